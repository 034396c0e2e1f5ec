//! What servers get to know of a client: its description of itself, once that was inspected.

use std::ops::Deref;
use std::sync::Arc;

use policy::engine::ask::ServerRequestPolicy;
use policy::engine::pipeline::SendableDescription;

use crate::mcp::client_info::{AppUse, Client};
use crate::outbound::guardrail::GuardrailsPassed;

/// A client as the detectors release its description of itself to servers. Guardrails have not judged it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedClient(Arc<Client>);

impl InspectedClient {
    /// The client with the description that was released.
    #[must_use]
    pub fn new(client: &Arc<Client>, released: &SendableDescription) -> Self {
        let capabilities = Some(released.capabilities())
            .filter(|capabilities| *capabilities != client.capabilities());
        let info = released.info().filter(|info| Some(*info) != client.said_info());
        if capabilities.is_none() && info.is_none() {
            return Self(Arc::clone(client));
        }
        Self(Arc::new(client.told(capabilities, info)))
    }
}

impl Deref for InspectedClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0
    }
}

/// A client whose description of itself servers may receive: the policy inspected it, and the guardrails of the route let
/// it pass. Every request on behalf of a client takes one. The gateway describes itself without either.
///
/// ```
/// # use gateway::outbound::guardrail::GuardrailsPassed;
/// # use gateway::session::disclosed_client::{DisclosedClient, InspectedClient};
/// # fn judged(client: InspectedClient, agreed: GuardrailsPassed) {
/// let disclosed = DisclosedClient::new(client, agreed);
/// # }
/// ```
///
/// ```compile_fail,E0423
/// # use std::sync::Arc;
/// # use gateway::mcp::client_info::Client;
/// # fn unjudged(client: Arc<Client>) {
/// let disclosed = gateway::session::disclosed_client::DisclosedClient(client); // a private field
/// # }
/// ```
///
/// ```compile_fail,E0308
/// # use std::sync::Arc;
/// # use gateway::{mcp::client_info::Client, upstream::OnBehalfOf};
/// # fn unjudged(client: Arc<Client>) {
/// let party = OnBehalfOf { client, ..OnBehalfOf::gateway() }; // as the client has sent it
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisclosedClient(Arc<Client>);

impl DisclosedClient {
    /// Puts the two proofs together.
    #[must_use]
    pub fn new(client: InspectedClient, _agreed: GuardrailsPassed) -> Self {
        Self(client.0)
    }

    /// A client that says nothing of itself, so there is nothing to inspect; otherwise `None`.
    #[must_use]
    pub fn silent(client: &Arc<Client>) -> Option<Self> {
        client.says_nothing().then(|| Self(Arc::clone(client)))
    }

    /// The gateway itself, for requests on its own behalf.
    #[must_use]
    pub fn gateway() -> Self {
        Self(Arc::clone(Client::gateway()))
    }

    /// The gateway itself, with the capabilities for every server request that `asks` allows, and for apps if the server
    /// may show some.
    #[must_use]
    pub fn capable_of(asks: &ServerRequestPolicy, apps: AppUse) -> Self {
        Self(Client::capable_of(asks, apps))
    }

    /// The client as a server gets to know it that may show apps or not: what is left of what was disclosed.
    #[must_use]
    pub fn for_server(self, apps: AppUse) -> Self {
        match apps {
            AppUse::Allowed => self,
            AppUse::Denied => self.0.without_apps().map_or(self, |client| Self(Arc::new(client))),
        }
    }

    /// The client in a session id that the gateway has sealed: it was disclosed when the session began.
    pub(super) fn unsealed(text: &str) -> Option<Self> {
        Some(Self(Arc::new(Client::from_text(text)?)))
    }

    /// The same client before guardrails have judged it, to be judged again.
    #[must_use]
    pub fn inspected(&self) -> InspectedClient {
        InspectedClient(Arc::clone(&self.0))
    }
}

impl Deref for DisclosedClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0
    }
}
