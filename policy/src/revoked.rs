//! What is no longer to be used, whatever the rules say (control C32).

use std::collections::BTreeSet;

use crate::name::ServerName;
use crate::principal::Principal;
use crate::uri::{self, ResourceUri};

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
    /// The resources among `tools`, as `SERVER/URI` in every form that servers may take for the same.
    /// Filled by [`Self::indexed`].
    pub resources: BTreeSet<Box<str>>,
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

    /// The same, ready to be asked about resources in other spellings than it was written in.
    #[must_use]
    pub fn indexed(mut self) -> Self {
        self.resources.clear();
        for entry in &self.tools {
            let Some((server, name)) = entry.split_once('/') else { continue };
            let Ok(uri) = ResourceUri::listed(name) else { continue };
            for form in uri::related(uri.as_str()) {
                self.resources.insert(format!("{server}/{form}").into());
            }
        }
        self
    }

    /// Whether `name` of `server` may not be used any more, or nothing of the server. A resource is
    /// revoked with every form of its URI that the server may take for the same.
    #[must_use]
    pub fn has(&self, server: &ServerName, name: &str) -> bool {
        if self.has_server(server) {
            return true;
        }
        if self.tools.is_empty() {
            return false;
        }
        let entry = |name: &str| format!("{server}/{name}");
        if self.tools.contains(entry(name).as_str()) {
            return true;
        }
        if self.resources.is_empty() || !name.contains(':') {
            return false;
        }
        let Ok(uri) = ResourceUri::listed(name) else { return false };
        let revoked = |form: &str| self.resources.contains(entry(form).as_str());
        uri::related(uri.as_str()).iter().any(|form| revoked(form))
    }
}

#[cfg(test)]
mod tests {
    use super::Revoked;
    use crate::name::ServerName;

    #[test]
    fn a_resource_is_revoked_in_every_spelling() {
        let tools = ["up/file:///srv/Secret note", "up/drop"].map(Box::<str>::from).into();
        let revoked = Revoked { tools, ..Revoked::default() }.indexed();
        let server = ServerName::parse("up").unwrap();
        for name in [
            "drop",
            "file:///srv/Secret note",
            "file:///srv/Secret%20note",
            "FILE:///srv/Secret%20note?x",
            "file:///srv/Secret%20note/",
            "file://localhost/srv/Secret%20note",
        ] {
            assert!(revoked.has(&server, name), "{name}");
        }
        for name in ["drop2", "file:///srv/Secret", "file:///srv/Secret%20notes"] {
            assert!(!revoked.has(&server, name), "{name}");
        }
        let other = ServerName::parse("other").unwrap();
        assert!(!revoked.has(&other, "drop"));
    }
}
