//! What a client is about to be shown goes to the flow of its call.

use std::sync::Arc;

use policy::engine::pipeline::{Facts, Policy, Shown};
use policy::flow::memory::ResultSource;
use policy_core::base::work::WorkBudget;
use policy_core::subject::principal::Principal;

use super::in_flight_call::UpstreamCall;

/// Units that each byte of a text costs whose values are remembered.
const EACH_BYTE: usize = 16;

impl UpstreamCall {
    /// Remembers the values of what the client is about to be shown, with the labels of the tool and those that the server
    /// says.
    pub(super) async fn remember_shown(&self, said: Option<&Shown>) {
        let (Some(flow), Some(said)) = (self.flow.clone(), said) else { return };
        let (server, kind) = (self.server.name().clone(), self.answer.verb().kind());
        let labels = self.gateway.policy.flow().labels_of(&server, kind, &self.tool).labels;
        let (labels, said) = (labels.restricted_by(said.value()), said.fragment().clone());
        let (bytes, tool, kept) = (said.value().span().len(), self.tool.clone(), flow.clone());
        let remember =
            move |policy: &Policy, _: &Facts, _: &Arc<Principal>, budget: &WorkBudget| {
                if !budget.spend(bytes.saturating_mul(EACH_BYTE)) {
                    return kept.forget(labels);
                }
                let vouched = policy.flow().labels_of(&server, kind, &tool).vouched;
                kept.shown(ResultSource { labels, vouched }, said.value());
            };
        if self.gateway.inspect(&self.caller, bytes, remember).await.is_err() {
            flow.forget(labels);
        }
    }
}
