//! What a client is about to be shown goes to the flow of its call.

use std::sync::Arc;

use policy::definition::offer::ItemKind;
use policy::engine::pipeline::{Facts, Policy, Shown};
use policy::flow::label::FlowLabels;
use policy::flow::memory::ResultSource;
use policy_core::base::work::WorkBudget;
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;

use super::Gateway;
use super::flows::ExchangeFlow;
use super::in_flight_call::UpstreamCall;

/// Units that each byte of a text costs whose values are remembered.
const EACH_BYTE: usize = 16;

/// What a client is about to be shown, and where it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShownResult<'a> {
    pub(super) server: &'a ServerName,
    pub(super) kind: ItemKind,
    /// The tool, prompt, URI or method, with the name that the server uses.
    pub(super) name: &'a str,
    pub(super) said: &'a Shown,
}

impl UpstreamCall {
    /// Remembers the values of what the client is about to be shown.
    pub(super) async fn remember_shown(&self, said: Option<&Shown>) {
        let (Some(flow), Some(said)) = (&self.flow, said) else { return };
        let (server, kind) = (self.server.name(), self.answer.verb().kind());
        let result = ShownResult { server, kind, name: &self.tool, said };
        self.gateway.remember_shown(flow, &self.caller, result).await;
    }
}

impl Gateway {
    /// Remembers the values of a result in a flow, with the labels of the tool and those that the server says.
    pub(super) async fn remember_shown(
        &self,
        flow: &ExchangeFlow,
        caller: &Arc<Principal>,
        result: ShownResult<'_>,
    ) {
        let ShownResult { server, kind, name, said } = result;
        let labels = self.policy.flow().labels_of(server, kind, name).labels;
        let said = said.fragment().clone();
        let (server, name, kept) = (server.clone(), Box::<str>::from(name), flow.clone());
        let bytes = said.value().span().len();
        let remember =
            move |policy: &Policy, _: &Facts, _: &Arc<Principal>, budget: &WorkBudget| {
                if !budget.spend(bytes.saturating_mul(EACH_BYTE)) {
                    return kept.forget(FlowLabels::STRICTEST);
                }
                let labels = labels.restricted_by(said.value());
                let vouched = policy.flow().labels_of(&server, kind, &name).vouched;
                let runs = policy.flow().runs();
                kept.shown(ResultSource { labels, vouched, runs }, said.value());
            };
        if self.inspect(caller, bytes, remember).await.is_err() {
            // What was not read may say that it is stricter.
            flow.forget(FlowLabels::STRICTEST);
        }
    }
}
