//! Records of refused server requests, and of messages of a session that belong to no exchange.

use std::sync::Arc;

use detection::inspect::Finding;
use policy::engine::ask::Refusal;
use policy_core::subject::principal::Principal;

use super::{Gateway, Route};
use crate::audit::LostRecord;
use crate::mcp::protocol::code;
use crate::metrics::outcome::{ExchangeEnd, ExchangeOutcome as Ended};
use crate::upstream::Upstream;

/// The server request, the response to it, or the notification that a record is about.
#[derive(Clone, Copy)]
pub(super) struct ServerQuestion<'a> {
    /// The server that asks or tells.
    pub(super) server: &'a Upstream,
    /// The method of its message.
    pub(super) method: &'a str,
}

impl Gateway {
    /// The finding for a refused server request; counts it, and logs it within the server's rate limit.
    pub(super) fn not_asked(&self, server: &Upstream, refusal: Refusal) -> Finding {
        if let Some(suppressed) = server.may_log(self.clock.instant()) {
            let server = server.name();
            tracing::warn!(
                event = "server_request.refused", %server, %refusal, suppressed,
                "server request refused by the policy"
            );
        }
        let finding = Finding::unasked(refusal.at, refusal.reason.code());
        self.metrics.content([&finding]);
        finding
    }

    /// Records a server request that was refused outside of a call. The server controls how many there are, so many of
    /// them share one record.
    pub(super) fn refused_to(
        &self,
        caller: &Arc<Principal>,
        route: &Arc<Route>,
        question: ServerQuestion<'_>,
        refusal: Refusal,
    ) {
        let ServerQuestion { server, method } = question;
        let mut record = self.listening(caller, route, server.name());
        record.method = Some(method.into());
        record.found(vec![self.not_asked(server, refusal)]);
        let ending = denied(refusal.reason.code());
        if let Err(error) =
            self.journal.record_server_request(server.name().as_str(), &record, ending)
        {
            self.journal.log_lost(&error, LostRecord::ServerRequest);
        }
    }

    /// Records findings in a notification that belongs to no exchange. The server controls how many there are, so many of
    /// them share one record.
    pub(super) fn found_in_notification(
        &self,
        caller: &Arc<Principal>,
        route: &Arc<Route>,
        said: ServerQuestion<'_>,
        found: Vec<Finding>,
        ending: ExchangeEnd,
    ) {
        let mut record = self.listening(caller, route, said.server.name());
        record.method = Some(said.method.into());
        record.found(found);
        let name = said.server.name().as_str();
        if let Err(error) = self.journal.record_server_request(name, &record, ending) {
            self.journal.log_lost(&error, LostRecord::ServerRequest);
        }
    }

    /// Records findings in a message that belongs to no exchange, and returns whether the record was written.
    pub(super) fn on_record(
        &self,
        caller: &Arc<Principal>,
        route: &Arc<Route>,
        question: ServerQuestion<'_>,
        found: Vec<Finding>,
        ending: ExchangeEnd,
    ) -> bool {
        let mut record = self.listening(caller, route, question.server.name());
        record.method = Some(question.method.into());
        record.found(found);
        let recorded = self.journal.record_unopened(&record, ending);
        if let Err(error) = &recorded {
            self.journal.log_lost(error, LostRecord::ServerRequest);
        }
        recorded.is_ok()
    }
}

/// The ending of an exchange in which something was withheld for `reason`.
pub(super) fn denied(reason: &'static str) -> ExchangeEnd {
    let (outcome, code) = (Ended::Denied, Some(code::DENIED));
    ExchangeEnd { outcome, reason: Some(reason), code, ..ExchangeEnd::answered() }
}
