//! Leases of responses that take a while to be read: they end when the credential expires, or when the caller or what
//! the response is about is revoked.
//!
//! A stream that outlived its authorization would bypass every revocation (control C32, vector AV-52). A call that was
//! sent cannot be undone, but its response is withheld: the client gets the error that a new call would get.
//!
//! What is watched here is the state as it is now, and not the facts under which the exchange was decided: a revocation
//! ends what those permitted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use policy::definition::offer::ItemKind;
use policy::rules::decision::{Denial, Disclosure, Reason};
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;
use policy_core::subject::revoked::RevocationList;
use tokio::time::sleep;

use super::{Gateway, Route};
use crate::audit::LostRecord;
use crate::edge::encode;
use crate::edge::failure::{AuthnFailure, Failure, PublicError};
use crate::identity::{AuthenticatedCaller, AuthnError};
use crate::mcp::protocol::Era;
use crate::session::state::AnsweredCall;
use crate::stream::body::{Body, HeldOpen, Lease, Termination};
use crate::stream::replay::ReplayBuffer;
use crate::stream::slots::EventStreamSlot;

/// Longest time for which a timer is set at once.
const MAX_TIMER: Duration = Duration::from_secs(3600);

/// What a call uses: a tool, prompt, resource or method of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedItem<'a> {
    pub(super) server: &'a ServerName,
    pub(super) kind: ItemKind,
    /// The name that the server uses.
    pub(super) name: &'a str,
}

impl AnsweredCall {
    const fn used(&self) -> UsedItem<'_> {
        UsedItem { server: &self.server, kind: self.kind, name: &self.name }
    }
}

/// The calls that a response answers: one, or those of a batch. Attached to the response as an extension.
#[derive(Clone, Debug)]
pub(super) struct AnsweredCalls(pub(super) Vec<AnsweredCall>);

/// The servers that a stream is about, if it began to listen to them before its response was made. Attached to the response
/// as an extension.
#[derive(Clone, Debug)]
pub(super) struct ListenedServers(pub(super) Vec<ServerName>);

/// Why a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseEnd {
    /// The caller, or what the response is about, was revoked.
    Revoked,
    /// The credential that opened the stream has expired.
    Credential,
    /// The gateway is shutting down.
    Gateway,
    /// Another configuration is in force.
    Configuration,
}

/// A response that takes a while to be read.
struct LeasedResponse {
    /// The calls it answers; `None` if it is about everything on its route.
    calls: Option<Vec<AnsweredCall>>,
    /// The servers that it is about if it answers no calls: those of its route that were not revoked when it began.
    servers: Vec<ServerName>,
    extent: ResponseForm,
}

/// Whether a response is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseForm {
    /// A stream, whose further events are not known.
    Stream,
    /// A complete body in memory.
    Object,
}

impl LeasedResponse {
    /// Whether the response has no end of its own.
    fn is_endless(&self) -> bool {
        self.calls.is_none() && self.extent == ResponseForm::Stream
    }
}

impl LeaseEnd {
    /// The reason for the log.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::Credential => "the credential has ended",
            Self::Gateway => "the gateway ends",
            Self::Configuration => "the configuration ends",
        }
    }
}

impl Gateway {
    /// Puts a lease on a response, unless it is handed to the connection in one frame. If a call is revoked, its stream
    /// ends with an error in place of everything unread; any other response breaks off.
    pub fn with_lease(
        self: &Arc<Self>,
        caller: AuthenticatedCaller,
        route: &Route,
        mut response: Response<Body>,
    ) -> Response<Body> {
        if response.body().is_one_piece() {
            return response;
        }
        let calls = response.extensions_mut().remove::<AnsweredCalls>().map(|calls| calls.0);
        // From before the body is read: a server that is revoked until then ends the response.
        let listened = response.extensions_mut().remove::<ListenedServers>();
        let servers = match listened {
            Some(ListenedServers(servers)) => servers,
            None if calls.is_none() => self.unrevoked(route),
            None => Vec::new(),
        };
        let answer = LeasedResponse {
            calls,
            servers,
            extent: if response.body().is_stream() {
                ResponseForm::Stream
            } else {
                ResponseForm::Object
            },
        };
        let stream_slot = response.extensions_mut().remove::<EventStreamSlot>();
        if stream_slot.is_some() {
            response.extensions_mut().insert(HeldOpen);
        }
        let gateway = Arc::clone(self);
        let over = async move {
            let over = gateway.over(&caller, &answer).await;
            let is_revoked = over == LeaseEnd::Revoked;
            let calls = answer.calls.filter(|_| is_revoked).unwrap_or_default();
            let told = calls.iter().find_map(|call| gateway.told_revoked(call));
            let on_cut = Box::new(move || {
                // Held until the response is cut: the stream of a session ends with the last who holds its slot.
                let _stream_slot = stream_slot;
                gateway.metrics.streams_cut.add(1);
                let why = over.as_str();
                tracing::info!(
                    event = "stream.cut", principal = %caller.principal.id, why,
                    "response stream ended: the right to read it has ended"
                );
                for call in &calls {
                    gateway.cut_on_record(call);
                }
            });
            Termination { told: told.map(Bytes::from), on_cut }
        };
        response.map(|body| body.leased(Lease::new(over)))
    }

    /// The JSON-RPC error that replaces the response to a call, if the call is revoked.
    pub(super) fn told_revoked(&self, call: &AnsweredCall) -> Option<Vec<u8>> {
        let failure = self.revocation(&call.caller, call.used())?;
        let public = failure.public(Some(call.version.era())).naming(call.asked.as_ref());
        Some(encode::joined(encode::error(&public, Some(&call.id)).into_body()))
    }

    /// Replaces the kept events of an answered call with an error if it is revoked, so that resuming the stream cannot
    /// return them even after the revocation is lifted.
    pub(super) fn withdraw_revoked(&self, stream: &ReplayBuffer, call: &AnsweredCall) {
        if !stream.is_over() || !call.receipt.is_closed() {
            // The task that still answers the call checks for revocations itself.
            return;
        }
        let Some(told) = self.told_revoked(call) else { return };
        if !stream.is_read() {
            self.cut_on_record(call);
        }
        stream.withdraw(&told);
    }

    /// Takes the messages of servers that are revoked now out of the stream of a session.
    pub(super) fn withdraw_of_revoked(&self, route: &Route, stream: &ReplayBuffer) {
        let facts = self.policy.facts();
        let names = route.servers.iter().map(|server| server.name());
        for revoked in names.filter(|name| facts.revoked().has_server(name)) {
            stream.withdraw_messages(Some(revoked));
        }
    }

    /// Records that a response was cut off by a revocation, if the record says that the call was answered.
    pub(super) fn cut_on_record(&self, call: &AnsweredCall) {
        let Some(failure) = self.revocation(&call.caller, call.used()) else { return };
        if !call.receipt.cut() {
            return;
        }
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut record = self.blank("session".into(), nowhere);
        record.principal = Some(Arc::clone(&call.caller));
        record.route = Some(Arc::clone(&call.route));
        record.server = Some(call.server.as_str().into());
        record.version = Some(call.version);
        record.rpc_id = Some(call.id.clone());
        record.method.clone_from(&call.method);
        record.item.clone_from(&call.asked);
        record.upstream_name = Some(call.name.clone());
        if let Some(trace) = &call.trace {
            record.trace = trace.clone();
        }
        let public = failure.public(Some(call.version.era()));
        if let Err(error) = self.journal.record_unopened(&record, failure.ending(&public)) {
            self.journal.log_lost(&error, LostRecord::CutResponse);
        }
    }

    /// Resolves when `caller` may no longer use `route`, or when the configuration is replaced. Returns the error for
    /// the client if it was revoked.
    pub(crate) async fn right_ended(
        &self,
        caller: &AuthenticatedCaller,
        route: &Route,
    ) -> Option<PublicError> {
        let servers = self.unrevoked(route);
        let stream = LeasedResponse { calls: None, servers, extent: ResponseForm::Stream };
        if self.over(caller, &stream).await != LeaseEnd::Revoked {
            return None;
        }
        self.metrics.streams_cut.add(1);
        tracing::info!(
            event = "stream.revoked", principal = %caller.principal.id,
            "event stream ended by a revocation"
        );
        let denied = || {
            let denial = Denial { reason: Reason::Revoked, told: Disclosure::Nothing };
            Failure::Denied(ItemKind::Tool, denial)
        };
        let failure = self.caller_revocation(&caller.principal).unwrap_or_else(denied);
        Some(failure.public(Some(Era::Legacy)))
    }

    /// The failure that a new call of `caller` would get, if what it uses is revoked.
    pub(super) fn revocation(&self, caller: &Principal, used: UsedItem<'_>) -> Option<Failure> {
        if let Some(failure) = self.caller_revocation(caller) {
            return Some(failure);
        }
        let denied = || {
            let denial = Denial { reason: Reason::Revoked, told: Disclosure::Nothing };
            Failure::Denied(used.kind, denial)
        };
        self.policy.facts().revoked().has(used.server, used.name).then(denied)
    }

    /// The failure that `caller` would get, if it is revoked.
    pub(super) fn caller_revocation(&self, caller: &Principal) -> Option<Failure> {
        let facts = self.policy.facts();
        if !facts.has_revoked(caller) {
            let is_locked = self.locks.has(caller.id.as_str(), self.clock.instant());
            return is_locked.then_some(Failure::Locked);
        }
        // A new login does not help when everything is revoked.
        if facts.revoked().everything {
            return Some(Failure::Everything);
        }
        let (challenge, nonce) = (None, None);
        let failure = AuthnFailure { error: AuthnError::Revoked, challenge, nonce };
        Some(Failure::Authn(Box::new(failure)))
    }

    /// Resolves with the failure when what `caller` uses is revoked.
    pub(super) async fn revoked(&self, caller: &Principal, used: UsedItem<'_>) -> Failure {
        self.until_revoked(|| self.revocation(caller, used)).await
    }

    /// Resolves when `caller` or `server` is revoked, or the caller is locked.
    pub(super) async fn hearing_revoked(&self, caller: &Principal, server: Option<&ServerName>) {
        let is_server = |name| self.policy.facts().revoked().has_server(name);
        self.until_revoked(|| {
            let is_revoked =
                server.is_some_and(is_server) || self.caller_revocation(caller).is_some();
            is_revoked.then_some(())
        })
        .await;
    }

    /// Resolves with what `check` returns, which is asked again after each change of what is revoked or locked.
    async fn until_revoked<T>(&self, check: impl Fn() -> Option<T>) -> T {
        let mut revocations_changed = self.revocations_changed.subscribe();
        loop {
            if let Some(found) = check() {
                return found;
            }
            if revocations_changed.changed().await.is_err() {
                // INVARIANT: the sender lives as long as the gateway.
                std::future::pending().await
            }
        }
    }

    /// The servers of a route that are not revoked: the others are not part of a response.
    pub(super) fn unrevoked(&self, route: &Route) -> Vec<ServerName> {
        let facts = self.policy.facts();
        let names = route.servers.iter().map(|server| server.name());
        names.filter(|name| !facts.revoked().has_server(name)).cloned().collect()
    }

    /// Resolves when the lease of a response ends.
    async fn over(&self, caller: &AuthenticatedCaller, answer: &LeasedResponse) -> LeaseEnd {
        let mut revocations_changed = self.revocations_changed.subscribe();
        let principal = &caller.principal;
        let revoked = |revoked: &RevocationList| {
            revoked.has_principal(principal)
                || match &answer.calls {
                    Some(calls) => calls.iter().any(|call| revoked.has(&call.server, &call.name)),
                    // The response is about everything on the route.
                    None => answer.servers.iter().any(|server| revoked.has_server(server)),
                }
        };
        loop {
            let is_locked = self.locks.has(principal.id.as_str(), self.clock.instant());
            if is_locked || revoked(self.policy.facts().revoked()) {
                return LeaseEnd::Revoked;
            }
            // A complete body may be read to its end after the credential expires; a stream may have no end.
            let until = caller.until.filter(|_| answer.extent == ResponseForm::Stream);
            let left = until.map(|until| until.duration_since(self.clock.now()));
            let left = left.map(Result::unwrap_or_default);
            if left.is_some_and(|left| left.is_zero()) {
                return LeaseEnd::Credential;
            }
            tokio::select! {
                changed = revocations_changed.changed() => if changed.is_err() { return LeaseEnd::Gateway },
                // A call runs to its end; a stream without one ends with its configuration.
                () = self.tasks.stopping(), if answer.is_endless() => return LeaseEnd::Configuration,
                () = sleep(left.unwrap_or(MAX_TIMER).min(MAX_TIMER)), if left.is_some() => {}
            }
        }
    }

    /// Ends the streams and calls of those that are revoked or locked now.
    pub(super) fn end_revoked(&self) {
        self.revocations_changed.send_replace(());
        self.end_parked();
        let is_revoked = |call: &AnsweredCall| self.revocation(&call.caller, call.used()).is_some();
        for (stream, call) in self.session_states.answered(is_revoked) {
            self.withdraw_revoked(&stream, &call);
        }
    }

    /// Adds `revoked` to the policy, and ends the streams of what is revoked.
    pub fn revoke(&self, revoked: &RevocationList) {
        self.policy.revoke(revoked);
        if revoked.is_empty() {
            self.revocations_changed.send_replace(());
        } else {
            self.end_revoked();
        }
        for server in self.routes.values().flat_map(|route| &route.servers) {
            server.cut(revoked);
        }
    }
}
