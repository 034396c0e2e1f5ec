//! Notifications of clients, `logging/setLevel`, and responses to requests of the gateway.

use detection::inspect::Finding;
use detection::labels::LabelledPart;
use http::{Response, StatusCode};
use json::Fragment;
use policy::engine::pipeline::{EarlyMessage, Shown};
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::time::timeout;

use super::call::UseStopped;
use super::elicitation::may_require_elicitation;
use super::guardrails::GuardrailSubject;
use super::in_flight_call::server_error;
use super::{DecodedRequest, Gateway, InFlightSlot, Route};
use crate::audit::{ReadEntry, Record};
use crate::config::quota::Quota;
use crate::edge::decode::UseOperation;
use crate::edge::encode;
use crate::edge::failure::Failure;
use crate::mcp::protocol::{Era, method};
use crate::mcp::wire::{Id, ResponseOutcome};
use crate::metrics::outcome::ExchangeEnd;
use crate::outbound::guardrail::GuardedPart;
use crate::session::state::SessionState;
use crate::stream::body::Body;
use crate::upstream::{Upstream, UpstreamError};

/// The method by which a client sets its log level.
const LEVEL: &str = "logging/setLevel";

impl Gateway {
    /// Answers `ping` and notifications that need no further action.
    pub(super) fn acknowledge(&self, arrived: &DecodedRequest, record: &Record) -> Response<Body> {
        let response = match &arrived.id {
            Some(id) => encode::pong(id),
            None => encode::empty(StatusCode::ACCEPTED),
        };
        let ending = ExchangeEnd { status: response.status().as_u16(), ..ExchangeEnd::answered() };
        match self.journal.record_unopened(record, ending) {
            Ok(()) => response,
            Err(error) => self.unrecorded(record, error),
        }
    }

    /// Cancels a request of the session.
    pub(super) fn cancel(
        &self,
        arrived: &DecodedRequest,
        id: Id,
        record: &Record,
    ) -> Response<Body> {
        let response = self.acknowledge(arrived, record);
        // The id of an unknown or finished request is ignored.
        let taken = arrived.session.as_ref().filter(|_| response.status() == StatusCode::ACCEPTED);
        let key = taken.map(|session| (session.key, id));
        if let Some(call) = key.and_then(|key| self.cancellations.get(&key)) {
            call.cancel();
        }
        response
    }

    /// Takes the client's response to a request of the gateway. One that is not what was asked for is refused, and the
    /// server is told that there is none.
    pub(super) async fn answered(
        &self,
        arrived: &DecodedRequest,
        id: Id,
        outcome: ResponseOutcome,
        mut record: Box<Record>,
    ) -> Response<Body> {
        let id = &id;
        if let ResponseOutcome::Result(result) = &outcome
            && let Some(kept) = self.session_state(arrived)
            && let Some(terms) = kept.terms_of(id)
            && let Err(finding) = self.fits_terms(arrived, terms, result).await
        {
            kept.give_up(id);
            record.found(vec![finding.clone()]);
            return self.refuse_answer(&record, finding);
        }
        let response = self.acknowledge(arrived, &record);
        // A response that is not recorded is not passed on.
        let is_taken = response.status() == StatusCode::ACCEPTED;
        if let Some(kept) = self.session_state(arrived).filter(|_| is_taken) {
            kept.answer(id, outcome);
        }
        response
    }

    /// The state of the session of a message.
    fn session_state(&self, arrived: &DecodedRequest) -> Option<Arc<SessionState>> {
        self.session_states.find(arrived.session.as_ref()?.key)
    }

    /// `logging/setLevel`: stored for modern servers, which receive the level with each request, and passed on to
    /// legacy servers with a session.
    pub(super) async fn set_level(
        &self,
        arrived: DecodedRequest,
        level: &'static str,
        record: Box<Record>,
    ) -> Response<Body> {
        let id = arrived.id.clone().unwrap_or(Id::Number(0));
        let Some(session) = &arrived.session else {
            let missing = Failure::Session(crate::session::SessionError::Missing);
            return self.refuse(&record, &missing);
        };
        let session_slot = match self.session_states.reserve(session.key, &arrived.holder) {
            Ok(session_slot) => session_slot,
            Err(none) => return self.refuse(&record, &Failure::no_share(Quota::Sessions, none)),
        };
        let mut entry = match self.journal.open(record) {
            Ok(entry) => entry,
            Err(error) => return arrived.unrecorded(error),
        };
        self.session_states.enter(session_slot).set_level(format!("\"{level}\"").into());
        let (mut refused, alone) = (None, arrived.route.servers.len() == 1);
        for (server_index, server) in arrived.route.servers.iter().enumerate() {
            match self.tell_level(&arrived, server_index, level, &mut entry).await {
                None => {}
                Some(Ok(ResponseOutcome::Error(error))) => {
                    refused = Some(self.level_refused(&arrived, server, error, &mut entry).await);
                    entry.server = alone.then(|| server.name().as_str().into());
                }
                Some(Ok(ResponseOutcome::Result(_))) => {}
                Some(Err(error)) => {
                    let error = crate::base::error_chain::ErrorChain(&error);
                    tracing::warn!(
                        event = "server.log_level_failed", server = %server.name(), %error,
                        "the log level could not be set"
                    );
                }
            }
        }
        let (ending, response) = match refused.filter(|_| alone) {
            Some(Ok(Some(error))) => {
                let body = encode::server_error(&id, Era::Legacy, &error);
                (server_error(error.fragment()), encode::json(body))
            }
            Some(Err(failure)) => return self.failed(entry, &failure, Some(&id)),
            Some(Ok(None)) | None => (ExchangeEnd::answered(), encode::empty_result(&id)),
        };
        self.shown(entry, ending, Some(&id), response)
    }

    /// Tells one server the log level; `None` if it is not told, because it is not permitted or has no legacy session.
    async fn tell_level(
        &self,
        arrived: &DecodedRequest,
        server_index: usize,
        level: &'static str,
        entry: &mut ReadEntry,
    ) -> Option<Result<ResponseOutcome, UpstreamError>> {
        let server = arrived.route.servers.get(server_index)?;
        // As they are now: another server may have taken its time.
        let (facts, principal) = (self.policy.facts(), &arrived.caller.principal);
        let permit = self.policy.admit_server(&facts, principal, server.name())?;
        let upstream_session = arrived.upstream_session(server_index)?;
        if upstream_session.version.era() == Era::Modern {
            return None;
        }
        let started = self.clock.instant();
        let on_behalf = arrived.on_behalf(server_index);
        let told = server.set_level(permit, entry, &on_behalf, upstream_session, level);
        // One of several servers is not waited for longer than for a list of it.
        let answered = match arrived.route.servers.len() {
            1 => told.await,
            _ => {
                let patience = self.limits.list_timeout;
                let late = |_| Err(UpstreamError::Timeout(patience));
                timeout(patience, told).await.unwrap_or_else(late)
            }
        };
        entry.wait_before_send += self.since(started);
        Some(answered)
    }

    /// The error of a server that was told a log level, as the caller may see it.
    async fn level_refused(
        &self,
        arrived: &DecodedRequest,
        server: &Upstream,
        error: Fragment,
        entry: &mut ReadEntry,
    ) -> Result<Option<Shown>, Failure> {
        if may_require_elicitation(&error) {
            // No page is needed for a log level, and none is judged here.
            let asked = "the server asks for a page to be opened where it is told a log level";
            return Err(Failure::Upstream(UpstreamError::Protocol(asked)));
        }
        let mut found = Vec::new();
        let told = EarlyMessage { part: LabelledPart::Error, said: error };
        let caller = &arrived.caller.principal;
        let said = Some(told.said.value());
        let error = match self.is_withheld(&arrived.route, server.name(), LEVEL, said) {
            true => Err(self.not_for_planner()),
            false => self.heard(caller, server, told, None, &mut found).await,
        };
        let error = match error {
            Ok(Some(said)) => self.guarded_error(arrived, server, said, &mut found).await.map(Some),
            error => error,
        };
        entry.found(found);
        error.map_err(Failure::Withheld)
    }

    /// The error of a server that was told a log level, if the guardrails of the route let it pass. Their findings are
    /// added to `found`.
    async fn guarded_error(
        &self,
        arrived: &DecodedRequest,
        server: &Upstream,
        said: Shown,
        found: &mut Vec<Finding>,
    ) -> Result<Shown, Finding> {
        let (caller, value) = (&arrived.caller.principal, said.value());
        let (part, name) = (GuardedPart::Result, LEVEL);
        let about = GuardrailSubject { server, name, part, value, beside: "" };
        match self.guarded(&arrived.route, caller, about).await {
            Ok((_, noted)) => {
                found.extend(noted);
                Ok(said)
            }
            Err((finding, noted)) => {
                found.extend(noted);
                Err(finding)
            }
        }
    }

    /// `notifications/roots/list_changed`: passed on to the servers with a session.
    pub(super) async fn roots_changed(
        &self,
        arrived: DecodedRequest,
        record: Box<Record>,
    ) -> Response<Body> {
        let entry = match self.journal.open(record) {
            Ok(entry) => entry,
            Err(error) => return arrived.unrecorded(error),
        };
        for (server_index, server) in arrived.route.servers.iter().enumerate() {
            // As they are now: another server may have taken its time.
            let (facts, principal) = (self.policy.facts(), &arrived.caller.principal);
            let permit = self.policy.admit_server(&facts, principal, server.name());
            let Some((permit, upstream_session)) =
                permit.zip(arrived.upstream_session(server_index))
            else {
                continue;
            };
            let on_behalf = arrived.on_behalf(server_index);
            if let Err(error) =
                server.roots_changed(permit, &entry, &on_behalf, upstream_session).await
            {
                let error = crate::base::error_chain::ErrorChain(&error);
                tracing::warn!(
                    event = "server.notification_failed", server = %server.name(), %error,
                    "a notification of a client could not be sent"
                );
            }
        }
        self.shown(entry, ExchangeEnd::accepted(), None, encode::empty(StatusCode::ACCEPTED))
    }

    /// An extension notification: passed on to the server if the policy permits it.
    pub(super) async fn tell(
        self: &Arc<Self>,
        arrived: DecodedRequest,
        ask: Box<UseOperation>,
        record: Box<Record>,
        slot: InFlightSlot,
    ) -> Response<Body> {
        let mut entry = match self.journal.open(record) {
            Ok(entry) => entry,
            Err(error) => return arrived.unrecorded(error),
        };
        let admitted = match self.authorize(&arrived, *ask, &mut entry).await {
            Ok(admitted) => admitted,
            // A notification has no response; the record says that it was dropped.
            Err(UseStopped::Failed(failure @ (Failure::Denied(..) | Failure::Unsent(_)))) => {
                let ending = ExchangeEnd { status: 202, ..failure.ending(&failure.public(None)) };
                return self.shown(entry, ending, None, encode::empty(StatusCode::ACCEPTED));
            }
            Err(UseStopped::Failed(failure)) => return self.failed(entry, &failure, None),
            // INVARIANT: only calls of tools are asked about.
            Err(UseStopped::Asks(_)) => return self.failed(entry, &Failure::Overload, None),
        };
        let entry = match entry.log_intent() {
            Ok(entry) => entry,
            Err(error) => return arrived.unrecorded(error),
        };
        let (server_index, server, permit) = admitted.into_parts();
        match server.tell(permit, &entry, &arrived.on_behalf(server_index), slot.body()).await {
            Ok(()) => self.shown(
                entry,
                ExchangeEnd::accepted(),
                None,
                encode::empty(StatusCode::ACCEPTED),
            ),
            Err(error) => self.failed(entry, &Failure::Upstream(error), None),
        }
    }

    /// A record for what the gateway does for a session without a request of the client.
    pub(super) fn listening(
        &self,
        caller: &Arc<Principal>,
        route: &Arc<Route>,
        server: &ServerName,
    ) -> Box<Record> {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut record = self.blank("session".into(), nowhere);
        record.principal = Some(Arc::clone(caller));
        record.route = Some(Arc::clone(&route.path));
        record.server = Some(server.as_str().into());
        record.method = Some(method::LISTEN.into());
        record
    }
}
