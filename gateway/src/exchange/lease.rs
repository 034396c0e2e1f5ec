//! For how long a stream may go on: until the credential it was opened with ends, or until somebody
//! revokes the caller, or what the stream is about.
//!
//! A stream that outlived the right to it would be a way around every revocation (control C32,
//! vector AV-52). A call that has been sent cannot be taken back, but its
//! answer is not handed on: its client is told what it would be told of a new one.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use policy::decision::{Denial, Reason, Told};
use policy::name::ServerName;
use policy::offer::Kind;
use policy::principal::Principal;
use policy::revoked::Revoked;
use tokio::time::sleep;

use super::{Gateway, Route, Standing};
use crate::body::{Body, Lease};
use crate::failure::{Failure, Stranger};
use crate::identity::{AuthnError, Caller};
use crate::protocol::Era;
use crate::reply;
use crate::sse;
use crate::wire::Id;

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

/// The call that a stream is about, and how its client is told that it was revoked.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) server: ServerName,
    pub(super) kind: Kind,
    pub(super) name: Box<str>,
    /// Under which id the client waits for the response.
    pub(super) id: Id,
    pub(super) era: Era,
    /// What was asked for, as it is on record.
    pub(super) asked: Option<(Kind, Box<str>)>,
}

impl About {
    const fn used(&self) -> Used<'_> {
        Used { server: &self.server, kind: self.kind, name: &self.name }
    }
}

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
    /// The response, which ends with the right to it if it is a stream. A call that is revoked meanwhile gets an
    /// error as its response, in the place of all that the client has not read by then.
    pub fn leased(
        self: &Arc<Self>,
        caller: Caller,
        route: Arc<Route>,
        mut response: Response<Body>,
    ) -> Response<Body> {
        if matches!(response.body(), Body::Parts(_) | Body::Counted(..)) {
            return response;
        }
        let about = response.extensions_mut().remove::<About>();
        let standing = response.extensions_mut().remove::<Standing>();
        let gateway = Arc::clone(self);
        let over = async move {
            // Its share is taken for as long as the stream can be read.
            let _standing = standing;
            let over = gateway.over(&caller, &route, about.as_ref()).await;
            gateway.metrics.streams_cut.add(1);
            let why = over.as_str();
            tracing::info!(principal = %caller.principal.id, why, "a stream was cut");
            let about = about.filter(|_| over == LeaseEnd::Revoked)?;
            let failure = gateway.revocation(&caller.principal, about.used())?;
            let public = failure.public(Some(about.era)).naming(about.asked.as_ref());
            let told = reply::error(&public, Some(&about.id)).into_body();
            Some(sse::encode(&reply::joined(told)))
        };
        response.map(|body| body.leased(Lease::new(over)))
    }

    /// Resolves when the right of `caller` to everything on `route` has ended, or the configuration has.
    pub(crate) async fn right_ended(&self, caller: &Caller, route: &Route) {
        self.over(caller, route, None).await;
    }

    /// How it is told to `caller` that what it uses was revoked, if it was: as it would be told of a new call.
    pub(super) fn revocation(&self, caller: &Principal, used: Used<'_>) -> Option<Failure> {
        let revoked = self.policy.revoked();
        if revoked.has_principal(caller) {
            // To log in again does not help where everything is revoked.
            if revoked.everything {
                return Some(Failure::Everything);
            }
            let (challenge, nonce) = (None, None);
            let stranger = Stranger { error: AuthnError::Revoked, challenge, nonce };
            return Some(Failure::Authn(Box::new(stranger)));
        }
        let denied = || {
            let denial = Denial { reason: Reason::Revoked, told: Told::Nothing };
            Failure::Denied(used.kind, denial)
        };
        revoked.has(used.server, used.name).then(denied)
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

    /// Resolves when the right to a stream has ended: why.
    async fn over(&self, caller: &Caller, route: &Route, about: Option<&About>) -> LeaseEnd {
        let mut revoking = self.revoking.subscribe();
        let principal = &caller.principal;
        // What was revoked before is not part of the stream; what is left of the route is.
        let before = self.policy.revoked();
        let names = route.servers.iter().map(|server| server.name());
        let servers: Vec<_> = names.filter(|name| !before.has_server(name)).collect();
        let revoked = |revoked: &Revoked| {
            revoked.has_principal(principal)
                || match about {
                    Some(about) => revoked.has(&about.server, &about.name),
                    // It is about everything on the route.
                    None => servers.iter().any(|server| revoked.has_server(server)),
                }
        };
        loop {
            if revoked(&self.policy.revoked()) {
                return LeaseEnd::Revoked;
            }
            let left = caller.until.map(|until| until.duration_since(self.clock.now()));
            let left = left.map(Result::unwrap_or_default);
            if left.is_some_and(|left| left.is_zero()) {
                return LeaseEnd::Credential;
            }
            tokio::select! {
                changed = revoking.changed() => if changed.is_err() { return LeaseEnd::Gateway },
                // A call goes on to its end; a stream that has none ends with its configuration.
                () = self.tasks.stopping(), if about.is_none() => return LeaseEnd::Configuration,
                () = sleep(left.unwrap_or(TURN).min(TURN)) => {}
            }
        }
    }

    /// From now on `revoked` is no longer to be used, and streams of it end.
    pub fn revoke(&self, revoked: &Revoked) {
        self.policy.revoke(revoked);
        self.revoking.send_replace(());
        for server in self.routes.values().flat_map(|route| &route.servers) {
            server.cut(revoked);
        }
    }
}
