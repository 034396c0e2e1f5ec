//! What is no longer to be used, whatever the rules say (control C32).

use std::collections::BTreeSet;

use crate::name::ServerName;
use crate::principal::Principal;

/// Everything that was revoked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    /// Callers, by id or by any name in their certificate.
    pub principals: BTreeSet<Box<str>>,
    /// Clients, by the id their issuer gave them.
    pub clients: BTreeSet<Box<str>>,
    /// Servers, by name.
    pub servers: BTreeSet<Box<str>>,
    /// Tools, prompts and resources, as `SERVER/NAME`.
    pub tools: BTreeSet<Box<str>>,
    /// Tokens, by their `jti`.
    pub tokens: BTreeSet<Box<str>>,
}

impl Revoked {
    /// Whether `principal` may not be served any more: itself, its client, its token, or its
    /// certificate under any of the names in it.
    #[must_use]
    pub fn has_principal(&self, principal: &Principal) -> bool {
        let claims = &principal.claims;
        let client = claims.client.as_ref().map(crate::name::ClientId::as_str);
        self.principals.contains(principal.id.as_str())
            || client.is_some_and(|client| self.clients.contains(client))
            || claims.token.as_ref().is_some_and(|token| self.tokens.contains(token))
            || claims.names.iter().any(|name| self.principals.contains(name))
    }

    /// Whether nothing of `server` may be used any more.
    #[must_use]
    pub fn has_server(&self, server: &ServerName) -> bool {
        self.servers.contains(server.as_str())
    }

    /// Whether `name` of `server` may not be used any more, or nothing of the server.
    #[must_use]
    pub fn has(&self, server: &ServerName, name: &str) -> bool {
        if self.has_server(server) {
            return true;
        }
        let is = |tool: &str| tool.split_once('/') == Some((server.as_str(), name));
        !self.tools.is_empty() && self.tools.iter().any(|tool| is(tool))
    }
}
