//! Records of questions, and of answers to them, that belong to no exchange.

use std::sync::Arc;

use policy::ask::Refusal;
use policy::inspect::Finding;
use policy::principal::Principal;

use super::{Gateway, Route};
use crate::ending::{Ending, Outcome as Ended};
use crate::protocol::code;
use crate::upstream::Upstream;

impl Gateway {
    /// Records that a server may not ask what it asked outside of a call.
    pub(super) fn refused_to(
        &self,
        caller: &Arc<Principal>,
        route: &Arc<Route>,
        (server, asked): (&Upstream, &str),
        refusal: Refusal,
    ) {
        tracing::warn!(server = %server.name(), asked, %refusal, "a server may not ask this of clients");
        let finding = Finding::unasked(refusal.at, refusal.reason.code());
        self.metrics.content([&finding]);
        let ending = denied(refusal.reason.code());
        self.on_record(caller, route, (server, asked), vec![finding], ending);
    }

    /// Records what was found in a message of a session that belongs to no exchange; whether it could be.
    pub(super) fn on_record(
        &self,
        caller: &Arc<Principal>,
        route: &Arc<Route>,
        (server, asked): (&Upstream, &str),
        found: Vec<Finding>,
        ending: Ending,
    ) -> bool {
        let mut record = self.listening(caller, route, server.name());
        record.method = Some(asked.into());
        record.found(found);
        let recorded = self.journal.refused(&record, ending);
        if let Err(error) = &recorded {
            tracing::error!(error = %crate::report::Chain(error), "not recorded");
        }
        recorded.is_ok()
    }
}

/// How an exchange ends in which something was not passed on.
pub(super) fn denied(reason: &'static str) -> Ending {
    let (outcome, code) = (Ended::Denied, Some(code::DENIED));
    Ending { outcome, reason: Some(reason), code, ..Ending::answered() }
}
