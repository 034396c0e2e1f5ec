//! The flow that a request belongs to: what it was shown is in the decision about a call, and what a call is sent goes
//! to its flow.

use std::sync::Arc;

use json::{Fragment, Value};
use policy::definition::offer::{Catalog, CatalogItem};
use policy::engine::message::{ItemRequest, RequestExtras};
use policy::engine::pipeline::{Permit, Policy, Ruling};
use policy::flow::guard::{FlowFacts, FlowOfCall, FlowScope, SentValues, chosen_names};
use policy::flow::label::FlowLabels;
use policy::flow::memory::ResultSource;
use policy::rules::approval::ApprovalDemand;
use policy_core::subject::principal::Principal;

use super::{DecodedRequest, Gateway};
use crate::audit::Record;
use crate::base::clock::Clock;
use crate::session::flow_store::{FlowKey, FlowPart, FlowStore};

/// The flow of an exchange.
#[derive(Clone, Debug)]
pub(super) struct ExchangeFlow {
    store: Arc<FlowStore>,
    clock: Arc<dyn Clock>,
    key: FlowKey,
}

impl Gateway {
    /// The flow that a request belongs to; `None` if no flow is remembered.
    pub(super) fn flow_of(
        &self,
        arrived: &DecodedRequest,
        record: &Record,
    ) -> Option<ExchangeFlow> {
        if !self.policy.flow().is_active() {
            return None;
        }
        let part = flow_part(&self.policy, arrived, record);
        let (caller, planner) = (owner(&arrived.caller.principal), arrived.route.planner);
        let key = FlowKey { caller, part, planner };
        let (store, clock) = (Arc::clone(&self.flow_store), Arc::clone(&self.clock));
        Some(ExchangeFlow { store, clock, key })
    }
}

/// Which of the flows of its caller a request belongs to.
pub(super) fn flow_part(policy: &Policy, arrived: &DecodedRequest, record: &Record) -> FlowPart {
    let trace = record.trace.parent.as_ref().or(record.trace.link.as_ref());
    let trace = trace.filter(|_| policy.flow().scope() == FlowScope::Trace);
    match (&arrived.session, trace) {
        (Some(session), _) => FlowPart::Session(session.key),
        (None, Some(span)) => FlowPart::Trace(span.trace),
        (None, None) => FlowPart::Stateless,
    }
}

/// The owner of a flow: the principal with its client. The key with which it proves possession is no part of it, or a
/// client would begin a clean flow with a new key.
pub(super) fn owner(principal: &Principal) -> Box<str> {
    match &principal.claims.client {
        // Neither can contain a control character.
        Some(client) => format!("{}\0{client}", principal.id).into(),
        None => principal.id.as_str().into(),
    }
}

impl ExchangeFlow {
    /// Which flow it is.
    pub(super) const fn key(&self) -> &FlowKey {
        &self.key
    }

    /// Decides about a call with what its flow was shown. A call that is permitted adds its labels to the flow at once, so
    /// that nothing of its answer comes before them.
    pub(super) fn admit(
        &self,
        policy: &Policy,
        call: ItemRequest,
        offers: Option<&Catalog>,
        mut extras: RequestExtras,
        admit: impl FnOnce(ItemRequest, &RequestExtras) -> Ruling<Permit>,
    ) -> Ruling<Permit> {
        let (kind, planner) = (call.verb.kind(), self.key.planner);
        let tool = policy.flow().labels_of(&call.server, kind, &call.name);
        let refused = policy.flow().refuses(planner, &call.server, kind, &call.name);
        // Nothing is shown that would have to be withheld.
        let shows = !policy.flow().withholds(planner, &call.server, kind, &call.name, None);
        let kept = call.clone();
        let definition = offers.and_then(|offers| offers.offer(&kept.name));
        let definition = definition.map(CatalogItem::definition);
        let unasked = extras.unasked.clone();
        let names = chosen_names(kept.arguments.as_ref().map(Fragment::value), definition);
        let sent = SentValues { names: &names, unasked: unasked.as_ref(), ..kept.sent() };
        let now = self.clock.instant();
        // A choice of links is counted in the same step, so that calls at once do not choose more than one after another.
        extras.flow = self.store.with(&self.key, now, |key, memory, _| {
            let facts = policy.flow().judge(key, memory, tool, sent);
            facts.choice.into_iter().for_each(|choice| memory.choose(choice));
            FlowFacts { violation: refused.or(facts.violation), ..facts }
        });
        let ruling = admit(call, &extras);
        if let Some(choice) = extras.flow.choice.filter(|_| ruling.outcome.is_err()) {
            self.store.with(&self.key, now, |_, memory, _| memory.unchoose(choice));
        }
        if ruling.outcome.is_ok() {
            let violation = extras.approved.as_ref().and_then(ApprovalDemand::violation);
            self.store.with(&self.key, now, |key, memory, most| {
                if let (Some(violation), Some(arguments)) = (violation, sent.arguments) {
                    let flow = FlowOfCall { key, memory: &mut *memory, tool };
                    policy.flow().endorse(flow, violation, arguments, most);
                }
                sent.remember(key, memory, most);
                if shows {
                    memory.grow(tool.labels);
                }
            });
        }
        ruling
    }

    /// Remembers the values of a result that the client is about to be shown.
    pub(super) fn shown(&self, source: ResultSource<'_>, said: Value<'_>) {
        self.store.with(&self.key, self.clock.instant(), |key, memory, most| {
            memory.shown(key, source, said, most);
        });
    }

    /// Forgets the values of the flow, so that every value that it does not know counts as untrusted: a result with these
    /// labels is shown that was not read.
    pub(super) fn forget(&self, labels: FlowLabels) {
        self.store.with(&self.key, self.clock.instant(), |_, memory, _| {
            memory.grow(labels.of_texts());
            memory.forget_values();
        });
    }
}
