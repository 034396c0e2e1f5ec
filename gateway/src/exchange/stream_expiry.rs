//! For how long an answer may go on that takes a while to be read: until the credential it was opened with ends, or until somebody
//! revokes the caller, or what the stream is about.
//!
//! A stream that outlived the right to it would be a way around every revocation (control C32,
//! vector AV-52). A call that has been sent cannot be taken back, but its
//! answer is not handed on: its client is told what it would be told of a new one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use policy::decision::{Denial, Reason, Told};
use policy::name::ServerName;
use policy::offer::Kind;
use policy::principal::Principal;
use policy::revoked::Revoked;
use tokio::time::sleep;

use super::{Gateway, Route, Standing};
use crate::edge::encode;
use crate::edge::failure::{Failure, Public, Stranger};
use crate::identity::{AuthnError, Caller};
use crate::mcp::protocol::Era;
use crate::session::state::About;
use crate::stream::body::{Body, Lease, Termination};
use crate::stream::replay::Replay;

/// The longest a timer is set for at once.
const TURN: Duration = Duration::from_secs(3600);

/// What a call uses: a tool, a prompt or a resource of a server, or a method of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used<'a> {
    pub(super) server: &'a ServerName,
    pub(super) kind: Kind,
    /// As its server knows it.
    pub(super) name: &'a str,
}

impl About {
    const fn used(&self) -> Used<'_> {
        Used { server: &self.server, kind: self.kind, name: &self.name }
    }
}

/// The calls whose answers are in one body: of a message that stands alone, or of a batch.
#[derive(Clone, Debug)]
pub(super) struct Calls(pub(super) Vec<About>);

/// Why the right to a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseEnd {
    /// The caller was revoked, or what the stream is about.
    Revoked,
    /// The credential that the stream was opened with has ended.
    Credential,
    /// The gateway ends.
    Gateway,
    /// The configuration ends.
    Configuration,
}

/// An answer that takes a while to be read.
struct Answer {
    /// The calls that are answered in it; `None` where it is about everything on its route.
    calls: Option<Vec<About>>,
    extent: Extent,
}

/// How far an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// It is a stream: what comes on it is not known.
    Stream,
    /// All of it is there.
    Object,
}

impl Answer {
    /// Whether it does not come to an end by itself.
    fn is_endless(&self) -> bool {
        self.calls.is_none() && self.extent == Extent::Stream
    }
}

impl LeaseEnd {
    /// For the log.
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
    /// The response, which ends with the right to it unless it is given to the connection at once. A call that is revoked
    /// meanwhile gets an error as its response, in the place of all that the client has not read by then, where it is
    /// answered on a stream. Every other response breaks off.
    pub fn leased(
        self: &Arc<Self>,
        caller: Caller,
        route: Arc<Route>,
        mut response: Response<Body>,
    ) -> Response<Body> {
        if response.body().is_one_piece() {
            return response;
        }
        let answer = Answer {
            calls: response.extensions_mut().remove::<Calls>().map(|calls| calls.0),
            extent: if response.body().is_stream() { Extent::Stream } else { Extent::Object },
        };
        let standing = response.extensions_mut().remove::<Standing>();
        let gateway = Arc::clone(self);
        let over = async move {
            // Its share is taken for as long as the stream can be read.
            let _standing = standing;
            let over = gateway.over(&caller, &route, &answer).await;
            let is_revoked = over == LeaseEnd::Revoked;
            let calls = answer.calls.filter(|_| is_revoked).unwrap_or_default();
            let told = calls.iter().find_map(|call| gateway.told_revoked(call));
            let on_cut = Box::new(move || {
                gateway.metrics.streams_cut.add(1);
                let why = over.as_str();
                tracing::info!(principal = %caller.principal.id, why, "an answer was cut off");
                for call in &calls {
                    gateway.cut_on_record(call);
                }
            });
            Termination { told: told.map(Bytes::from), on_cut }
        };
        response.map(|body| body.leased(Lease::new(over)))
    }

    /// The JSON-RPC error that takes the place of the answer to a call, if it was revoked.
    pub(super) fn told_revoked(&self, call: &About) -> Option<Vec<u8>> {
        let failure = self.revocation(&call.caller, call.used())?;
        let public = failure.public(Some(call.version.era())).naming(call.asked.as_ref());
        Some(encode::joined(encode::error(&public, Some(&call.id)).into_body()))
    }

    /// Puts an error in the place of what is kept of a call that has been answered, if it was revoked: it is not had by
    /// coming back for it, also where the revocation is taken back.
    pub(super) fn withdraw_revoked(&self, stream: &Replay, call: &About) {
        if !stream.is_over() || !call.receipt.is_closed() {
            // Who answers it sees that it was revoked.
            return;
        }
        let Some(told) = self.told_revoked(call) else { return };
        if !stream.is_read() {
            self.cut_on_record(call);
        }
        stream.withdraw(&told);
    }

    /// Records that the answer to a call was cut off because the call was revoked, if its record says that its client
    /// was answered.
    pub(super) fn cut_on_record(&self, call: &About) {
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
        record.own_name = Some(call.name.clone());
        if let Some(trace) = &call.trace {
            record.trace = trace.clone();
        }
        let public = failure.public(Some(call.version.era()));
        if let Err(error) = self.journal.refused(&record, failure.ending(&public)) {
            self.journal.log_lost(&error, "that an answer was cut off is not on record");
        }
    }

    /// Resolves when the right of `caller` to everything on `route` has ended, or the configuration has: what the caller
    /// is told, where something was revoked.
    pub(crate) async fn right_ended(&self, caller: &Caller, route: &Route) -> Option<Public> {
        let stream = Answer { calls: None, extent: Extent::Stream };
        if self.over(caller, route, &stream).await != LeaseEnd::Revoked {
            return None;
        }
        self.metrics.streams_cut.add(1);
        tracing::info!(principal = %caller.principal.id, "a stream was revoked");
        let denied = || {
            let denial = Denial { reason: Reason::Revoked, told: Told::Nothing };
            Failure::Denied(Kind::Tool, denial)
        };
        let failure = self.caller_revocation(&caller.principal).unwrap_or_else(denied);
        Some(failure.public(Some(Era::Legacy)))
    }

    /// How it is told to `caller` that what it uses was revoked, if it was: as it would be told of a new call.
    pub(super) fn revocation(&self, caller: &Principal, used: Used<'_>) -> Option<Failure> {
        if let Some(failure) = self.caller_revocation(caller) {
            return Some(failure);
        }
        let denied = || {
            let denial = Denial { reason: Reason::Revoked, told: Told::Nothing };
            Failure::Denied(used.kind, denial)
        };
        self.policy.revoked().has(used.server, used.name).then(denied)
    }

    /// How it is told to `caller` that it was revoked, if it was.
    pub(super) fn caller_revocation(&self, caller: &Principal) -> Option<Failure> {
        let revoked = self.policy.revoked();
        if !revoked.has_principal(caller) {
            return None;
        }
        // To log in again does not help where everything is revoked.
        if revoked.everything {
            return Some(Failure::Everything);
        }
        let (challenge, nonce) = (None, None);
        let stranger = Stranger { error: AuthnError::Revoked, challenge, nonce };
        Some(Failure::Authn(Box::new(stranger)))
    }

    /// Resolves when what `caller` uses was revoked: how that is told.
    pub(super) async fn revoked(&self, caller: &Principal, used: Used<'_>) -> Failure {
        let mut revoking = self.revoking.subscribe();
        loop {
            if let Some(failure) = self.revocation(caller, used) {
                return failure;
            }
            if revoking.changed().await.is_err() {
                // INVARIANT: who tells of revocations lives as long as the gateway.
                std::future::pending().await
            }
        }
    }

    /// Resolves when the right to an answer has ended: why.
    async fn over(&self, caller: &Caller, route: &Route, answer: &Answer) -> LeaseEnd {
        let mut revoking = self.revoking.subscribe();
        let principal = &caller.principal;
        // What was revoked before is not part of the stream; what is left of the route is.
        let before = self.policy.revoked();
        let names = route.servers.iter().map(|server| server.name());
        let servers: Vec<_> = names.filter(|name| !before.has_server(name)).collect();
        let revoked = |revoked: &Revoked| {
            revoked.has_principal(principal)
                || match &answer.calls {
                    Some(calls) => calls.iter().any(|call| revoked.has(&call.server, &call.name)),
                    // It is about everything on the route.
                    None => servers.iter().any(|server| revoked.has_server(server)),
                }
        };
        loop {
            if revoked(&self.policy.revoked()) {
                return LeaseEnd::Revoked;
            }
            // What was answered while the credential was good is read to its end, which a stream may not have.
            let until = caller.until.filter(|_| answer.extent == Extent::Stream);
            let left = until.map(|until| until.duration_since(self.clock.now()));
            let left = left.map(Result::unwrap_or_default);
            if left.is_some_and(|left| left.is_zero()) {
                return LeaseEnd::Credential;
            }
            tokio::select! {
                changed = revoking.changed() => if changed.is_err() { return LeaseEnd::Gateway },
                // A call goes on to its end; a stream that has none ends with its configuration.
                () = self.tasks.stopping(), if answer.is_endless() => return LeaseEnd::Configuration,
                () = sleep(left.unwrap_or(TURN).min(TURN)), if left.is_some() => {}
            }
        }
    }

    /// From now on `revoked` is no longer to be used, and streams of it end.
    pub fn revoke(&self, revoked: &Revoked) {
        self.policy.revoke(revoked);
        self.revoking.send_replace(());
        if !revoked.is_empty() {
            let is_revoked = |call: &About| self.revocation(&call.caller, call.used()).is_some();
            for (stream, call) in self.conversations.answered(is_revoked) {
                self.withdraw_revoked(&stream, &call);
            }
        }
        for server in self.routes.values().flat_map(|route| &route.servers) {
            server.cut(revoked);
        }
    }
}
