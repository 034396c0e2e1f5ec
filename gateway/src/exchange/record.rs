//! Opens and closes the audit records of exchanges. What cannot be recorded is not answered, and a caller that leaves more
//! records than its share is refused.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Response;
use http::request::Parts;
use policy::engine::message::RequestOperation;

use super::{DecodedRequest, Gateway, InFlightSlot, SlotOwner};
use crate::audit::{LostRecord, OpenRecord, Record, RecordStart};
use crate::base::caller_counters::RatedCaller;
use crate::base::share::Holder;
use crate::edge::admission::{Admission, Peer};
use crate::edge::decode::ClientOperation;
use crate::edge::denial::ToolDenial;
use crate::edge::encode;
use crate::edge::failure::{Failure, HttpFailure};
use crate::identity::AuthenticatedCaller;
use crate::mcp::discovery_tools::DiscoveryTool;
use crate::mcp::protocol::{Era, ProtocolVersion};
use crate::mcp::wire::Id;
use crate::metrics::outcome::ExchangeEnd;
use crate::stream::body::Body;

impl Gateway {
    pub(super) fn record(&self, admission: &Admission, peer: &Peer) -> Box<Record> {
        self.blank(Arc::clone(&admission.name), peer.address)
    }

    pub(super) fn blank(&self, listener: Arc<str>, peer: SocketAddr) -> Box<Record> {
        let id = self.journal.id();
        Box::new(Record::new(RecordStart {
            id,
            at: (self.clock.now(), self.clock.instant()),
            config_digest: Arc::clone(&self.config_digest),
            policy: Arc::clone(&self.policy),
            through: (listener, peer),
            trace: self.telemetry.begin(id.number()),
        }))
    }

    /// The caller as the party whose share of the audit log its records take; `None` for the gateway's own self-test.
    pub fn recorded_caller(&self, holder: &Holder, slot: &InFlightSlot) -> Option<RatedCaller> {
        (slot.whose != SlotOwner::Gateway).then(|| self.quotas.other_requests.caller(holder))
    }

    /// Whether the caller may leave further records in the audit log. What ends earlier work is always accepted:
    /// cancellations, answers to questions, and the end of a session. A call is decided also if the caller is over its
    /// rate: only those that are allowed have records of their own then.
    ///
    /// # Errors
    /// If it has sent too much that is no allowed call, or its records take its share of what they are written to.
    pub(super) async fn may_leave_records(
        &self,
        arrived: &DecodedRequest,
        record: &mut Record,
    ) -> Result<(), Failure> {
        record.asks_server = self.asks_a_server(arrived);
        let Some(rated) = &record.caller else { return Ok(()) };
        match &arrived.inbound.ask {
            ClientOperation::Cancel(_) | ClientOperation::Answer(..) | ClientOperation::End => {
                return Ok(());
            }
            _ if record.asks_server => {}
            _ => self.is_within_rate(rated)?,
        }
        self.has_share_of_log(rated).await
    }

    /// Whether the request is to use something of a server, if that is allowed.
    fn asks_a_server(&self, arrived: &DecodedRequest) -> bool {
        let ClientOperation::Use(ask) = &arrived.inbound.ask else { return false };
        let discovery = arrived.route.discovery_tool(&ask.name);
        match ask.verb {
            RequestOperation::Call if self.is_channel_call(arrived, ask) => false,
            RequestOperation::Call => {
                discovery.is_none_or(|tool| matches!(tool, DiscoveryTool::Call(_)))
            }
            RequestOperation::Read => !Self::is_kept(&ask.name),
            RequestOperation::Get
            | RequestOperation::GetSkill
            | RequestOperation::ReadSkillFile
            | RequestOperation::CompletePrompt
            | RequestOperation::CompleteTemplate
            | RequestOperation::Other => true,
            RequestOperation::Subscribe
            | RequestOperation::Unsubscribe
            | RequestOperation::Task(_) => false,
        }
    }

    /// Whether the caller may send more that is no allowed call.
    ///
    /// # Errors
    /// How long it has to wait.
    pub fn is_within_rate(&self, rated: &RatedCaller) -> Result<(), Failure> {
        rated.wait(self.clock.instant()).map_or(Ok(()), |wait| Err(Failure::OtherRequests(wait)))
    }

    /// Whether the records of the caller have room in what they are written to.
    ///
    /// # Errors
    /// If they take its share already.
    pub async fn has_share_of_log(&self, rated: &RatedCaller) -> Result<(), Failure> {
        match self.journal.has_share(rated.key()).await {
            true => Ok(()),
            false => Err(Failure::RecordShare),
        }
    }

    /// Records and answers a request that was refused.
    pub(super) fn refuse(&self, record: &Record, failure: &Failure) -> Response<Body> {
        let public =
            failure.public(record.version.map(ProtocolVersion::era)).naming(record.item.as_ref());
        let ending = failure.ending(&public);
        let recorded = match failure.is_turned_away() {
            true => self.journal.record_summarised(record, ending),
            false => self.journal.record_unopened(record, ending),
        };
        if let Err(error) = recorded {
            // The request stays refused; only the reported reason changes.
            return self.unrecorded(record, error);
        }
        encode::error(&public, record.rpc_id.as_ref())
    }

    /// Closes the record of a tool call that failed and answers it: with a result for the model, if it is a denial that
    /// the caller may know of.
    ///
    /// SPEC 2025-11-25 server/tools#error-handling: input validation errors are tool errors.
    pub(super) fn failed_call<S>(
        &self,
        entry: OpenRecord<S>,
        failure: &Failure,
        id: &Id,
    ) -> Response<Body> {
        let Some(denial) = ToolDenial::of(failure, &self.policy, Some(entry.id)) else {
            return self.failed(entry, failure, Some(id));
        };
        let era = entry.version.map_or(Era::Modern, ProtocolVersion::era);
        let response = encode::denied_call(id, era, &denial);
        self.shown(entry, failure.ending_in_result(era), Some(id), response)
    }

    pub(super) fn unrecorded(
        &self,
        record: &Record,
        error: crate::audit::AuditError,
    ) -> Response<Body> {
        let failure = Failure::unrecorded(error);
        // Where it is only this caller that has no room, the log works.
        if matches!(failure, Failure::Audit(_)) {
            self.journal.log_lost(&failure, LostRecord::Exchange);
        }
        let public = failure.public(record.version.map(ProtocolVersion::era));
        encode::error(&public, record.rpc_id.as_ref())
    }

    /// Records a request whose head could not be read, and which the HTTP library has refused. Nothing is known of it but its
    /// address.
    pub fn record_unreadable(
        &self,
        admission: &Admission,
        address: SocketAddr,
        failure: HttpFailure,
    ) {
        let record = self.blank(Arc::clone(&admission.name), address);
        drop(self.refuse(&record, &failure.into()));
    }

    /// Closes the record and returns the response, or an error if the record cannot be written.
    pub(super) fn shown<S>(
        &self,
        mut entry: OpenRecord<S>,
        ending: ExchangeEnd,
        id: Option<&Id>,
        response: Response<Body>,
    ) -> Response<Body> {
        entry.bytes_out = response.body().length();
        let era = entry.version.map(ProtocolVersion::era);
        match entry.close(ending) {
            Ok(()) => response,
            Err(error) => encode::error(&Failure::Audit(error).public(era), id),
        }
    }

    /// Closes the record of an exchange that failed after its record was opened.
    pub(super) fn failed<S>(
        &self,
        entry: OpenRecord<S>,
        failure: &Failure,
        id: Option<&Id>,
    ) -> Response<Body> {
        let public =
            failure.public(entry.version.map(ProtocolVersion::era)).naming(entry.item.as_ref());
        tracing::debug!(error = %crate::base::error_chain::ErrorChain(failure), "exchange failed");
        let response = encode::error(&public, id);
        self.shown(entry, failure.ending(&public), id, response)
    }

    /// Authenticates the request that opens a connection of another transport, whose messages become exchanges of their
    /// own.
    ///
    /// # Errors
    /// The response to a client that is not authenticated or not admitted.
    pub async fn greet(
        &self,
        admission: &Admission,
        peer: &Peer,
        route: &str,
        head: &Parts,
    ) -> Result<(AuthenticatedCaller, Peer, Box<Record>), Box<Response<Body>>> {
        let mut record = self.record(admission, peer);
        match self.identify(admission, peer, route, head, &mut record).await {
            Ok(caller) => {
                // Its messages carry no headers of the proxy but belong to the same client certificate.
                let certificate = self.certificate(admission, peer, head).ok().flatten();
                Ok((caller, Peer { certificate, ..peer.clone() }, record))
            }
            Err(failure) => Err(Box::new(self.refuse(&record, &failure))),
        }
    }

    /// Records the exchange that [`Self::greet`] began, and returns its response.
    pub fn settle(
        &self,
        record: &Record,
        answered: Result<Response<Body>, Failure>,
    ) -> Response<Body> {
        let response = match answered {
            Ok(response) => response,
            Err(failure) => return self.refuse(record, &failure),
        };
        let ending = ExchangeEnd { status: response.status().as_u16(), ..ExchangeEnd::answered() };
        // A message is an exchange of its own.
        let recorded = match record.http_method {
            Some("POST") => self.journal.record_outer(record, ending),
            _ => self.journal.record_unopened(record, ending),
        };
        match recorded {
            Ok(()) => response,
            Err(error) => self.unrecorded(record, error),
        }
    }
}
