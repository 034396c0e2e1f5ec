//! For how long a stream may go on: until the credential it was opened with ends, or until somebody
//! revokes the caller, or what the stream is about.
//!
//! A stream that outlived the right to it would be a way around every revocation (control C32,
//! vector AV-52). A call that has been sent cannot be taken back, but its
//! answer is not handed on.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use policy::name::ServerName;
use policy::revoked::Revoked;
use tokio::time::sleep;

use super::{Gateway, Route, Standing};
use crate::body::{Body, Lease};
use crate::identity::Caller;

/// The longest a timer is set for at once.
const TURN: Duration = Duration::from_secs(3600);

/// What a stream is about: a tool, a prompt or a resource of a server.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) server: ServerName,
    pub(super) name: Box<str>,
}

impl Gateway {
    /// The response, which ends with the right to it if it is a stream.
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
            let why = gateway.over(&caller, &route, about).await;
            gateway.metrics.streams_cut.add(1);
            tracing::info!(principal = %caller.principal.id, why, "a stream was cut");
        };
        response.map(|body| body.leased(Lease::new(over)))
    }

    /// Resolves when the right of `caller` to everything on `route` has ended, or the configuration has.
    pub(crate) async fn right_ended(&self, caller: &Caller, route: &Route) {
        self.over(caller, route, None).await;
    }

    /// Resolves when the right to a stream has ended: why.
    async fn over(&self, caller: &Caller, route: &Route, about: Option<About>) -> &'static str {
        let mut revoking = self.revoking.subscribe();
        let principal = &caller.principal;
        // What was revoked before is not part of the stream; what is left of the route is.
        let before = self.policy.revoked();
        let names = route.servers.iter().map(|server| server.name());
        let servers: Vec<_> = names.filter(|name| !before.has_server(name)).collect();
        let revoked = |revoked: &Revoked| {
            revoked.has_principal(principal)
                || match &about {
                    Some(about) => revoked.has(&about.server, &about.name),
                    // It is about everything on the route.
                    None => servers.iter().any(|server| revoked.has_server(server)),
                }
        };
        loop {
            if revoked(&self.policy.revoked()) {
                return "revoked";
            }
            let left = caller.until.map(|until| until.duration_since(self.clock.now()));
            let left = left.map(Result::unwrap_or_default);
            if left.is_some_and(|left| left.is_zero()) {
                return "the credential has ended";
            }
            tokio::select! {
                changed = revoking.changed() => if changed.is_err() { return "the gateway ends" },
                // A call goes on to its end; a stream that has none ends with its configuration.
                () = self.tasks.stopping(), if about.is_none() => return "the configuration ends",
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
