//! The party on whose behalf the gateway sends a request to an upstream server: a caller or the gateway itself.

use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderValue;
use policy_core::subject::principal::Principal;

use crate::base::secret::Secret;
use crate::session::UpstreamSession;
use crate::session::disclosed_client::DisclosedClient;

/// The party on whose behalf a request is sent.
#[derive(Clone, Debug)]
pub struct OnBehalfOf {
    /// The principal of the caller; `None` for the gateway itself.
    pub principal: Option<Arc<Principal>>,
    /// The route of the caller; `None` for the gateway itself.
    pub route: Option<Arc<str>>,
    /// The name and capabilities of its client.
    pub client: DisclosedClient,
    /// The client's own session with the server, if it has one.
    pub upstream_session: Option<UpstreamSession>,
    /// The caller's access token, to be exchanged for others.
    pub subject: Option<Arc<SubjectToken>>,
    /// The gateways that the caller's request has passed, with this one; `None` for the gateway itself.
    pub path: Option<HeaderValue>,
}

/// The access token of a caller.
#[derive(Debug)]
pub struct SubjectToken {
    /// The token that the caller presented.
    pub token: Arc<Secret>,
    /// The id of the principal.
    pub caller: Arc<str>,
    /// When the token expires, if known.
    pub until: Option<SystemTime>,
}

impl OnBehalfOf {
    /// The id of the principal, without its client and key; `None` for the gateway itself.
    #[must_use]
    pub fn caller(&self) -> Option<&str> {
        self.principal.as_ref().map(|principal| principal.id.as_str())
    }

    /// The gateway itself, for requests that no caller causes.
    #[must_use]
    pub fn gateway() -> Self {
        let client = DisclosedClient::gateway();
        let (upstream_session, subject, path) = (None, None, None);
        Self { principal: None, route: None, client, upstream_session, subject, path }
    }
}
