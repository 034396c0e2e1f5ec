//! For whom a server is spoken to.

use std::sync::Arc;
use std::time::SystemTime;

use policy::principal::Principal;

use crate::base::secret::Secret;
use crate::mcp::client_info::Client;
use crate::session::Leg;

/// For whom the gateway speaks to a server.
#[derive(Clone, Debug)]
pub struct Party {
    /// The caller; `None` for the gateway itself.
    pub principal: Option<Arc<Principal>>,
    /// The route the caller came by; `None` for the gateway itself.
    pub route: Option<Arc<str>>,
    /// What its client said of itself.
    pub client: Arc<Client>,
    /// Its own session with the server, where there is one.
    pub leg: Option<Leg>,
    /// The token it came with, to get others for.
    pub subject: Option<Arc<Subject>>,
}

/// The token a caller came with.
#[derive(Debug)]
pub struct Subject {
    /// The token.
    pub token: Arc<Secret>,
    /// The id of the caller.
    pub caller: Arc<str>,
    /// When it ends.
    pub until: Option<SystemTime>,
}

impl Party {
    /// The caller, whatever client it uses and with whatever key; `None` for the gateway itself.
    #[must_use]
    pub fn caller(&self) -> Option<&str> {
        self.principal.as_ref().map(|principal| principal.id.as_str())
    }

    /// The gateway itself.
    #[must_use]
    pub fn gateway() -> Self {
        let client = Arc::clone(Client::gateway());
        Self { principal: None, route: None, client, leg: None, subject: None }
    }
}
