//! What is no longer to be used, whatever the rules say (control C32).

use std::collections::BTreeSet;

use crate::name::ServerName;
use crate::principal::Principal;

/// Everything that was revoked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    /// Everything: no caller is served and no server is used.
    pub everything: bool,
    /// Callers, by id.
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
    /// The lists, with the names they have in files and in JSON.
    #[must_use]
    pub const fn lists(&self) -> [(&'static str, &BTreeSet<Box<str>>); 5] {
        [
            ("principals", &self.principals),
            ("clients", &self.clients),
            ("servers", &self.servers),
            ("tools", &self.tools),
            ("tokens", &self.tokens),
        ]
    }

    /// The list of this name, if there is one.
    pub fn list_mut(&mut self, name: &str) -> Option<&mut BTreeSet<Box<str>>> {
        match name {
            "principals" => Some(&mut self.principals),
            "clients" => Some(&mut self.clients),
            "servers" => Some(&mut self.servers),
            "tools" => Some(&mut self.tools),
            "tokens" => Some(&mut self.tokens),
            _ => None,
        }
    }

    /// Whether nothing is revoked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.everything && self.lists().iter().all(|(_, list)| list.is_empty())
    }

    /// Whether `other` revokes all of this by name.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        let mut pairs = self.lists().into_iter().zip(other.lists());
        (!self.everything || other.everything)
            && pairs.all(|((_, mine), (_, theirs))| mine.is_subset(theirs))
    }

    /// What of this `other` names as well.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        Self {
            everything: self.everything && other.everything,
            principals: both(&self.principals, &other.principals),
            clients: both(&self.clients, &other.clients),
            servers: both(&self.servers, &other.servers),
            tools: both(&self.tools, &other.tools),
            tokens: both(&self.tokens, &other.tokens),
        }
    }

    /// Revokes what `other` names as well.
    pub fn add(&mut self, other: &Self) {
        self.everything |= other.everything;
        for (name, list) in other.lists() {
            if let Some(mine) = self.list_mut(name) {
                mine.extend(list.iter().cloned());
            }
        }
    }

    /// No longer revokes what `other` names.
    pub fn remove(&mut self, other: &Self) {
        self.everything &= !other.everything;
        for (name, list) in other.lists() {
            if let Some(mine) = self.list_mut(name) {
                mine.retain(|entry| !list.contains(entry));
            }
        }
    }

    /// Whether `principal` may not be served any more: itself, its client, or its token.
    #[must_use]
    pub fn has_principal(&self, principal: &Principal) -> bool {
        let claims = &principal.claims;
        let client = claims.client.as_ref().map(crate::name::ClientId::as_str);
        self.everything
            || self.principals.contains(principal.id.as_str())
            || client.is_some_and(|client| self.clients.contains(client))
            || claims.token.as_ref().is_some_and(|token| self.tokens.contains(token))
    }

    /// Whether nothing of `server` may be used any more.
    #[must_use]
    pub fn has_server(&self, server: &ServerName) -> bool {
        self.everything || self.servers.contains(server.as_str())
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

fn both(mine: &BTreeSet<Box<str>>, theirs: &BTreeSet<Box<str>>) -> BTreeSet<Box<str>> {
    mine.intersection(theirs).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Revoked;
    use crate::name::{PrincipalId, ServerName};
    use crate::principal::Principal;

    fn servers(names: &[&str]) -> Revoked {
        Revoked { servers: names.iter().map(|name| (*name).into()).collect(), ..Revoked::default() }
    }

    #[test]
    fn everything_is_every_caller_and_every_server() {
        let all = Revoked { everything: true, ..Revoked::default() };
        let ana = Principal::new(PrincipalId::parse("ana").unwrap(), BTreeSet::new());
        let up = ServerName::parse("up").unwrap();
        assert!(all.has_principal(&ana) && all.has_server(&up) && all.has(&up, "echo"));
        assert!(!all.is_empty() && !all.is_within(&servers(&["up"])));
        let none = Revoked::default();
        assert!(!none.has_principal(&ana) && !none.has_server(&up) && none.is_empty());
    }

    #[test]
    fn what_is_added_can_be_taken_back_by_name() {
        let mut all = servers(&["one"]);
        all.add(&servers(&["two"]));
        assert_eq!(all, servers(&["one", "two"]));
        assert!(servers(&["two"]).is_within(&all) && !all.is_within(&servers(&["two"])));
        assert_eq!(all.common(&servers(&["two", "three"])), servers(&["two"]));
        all.remove(&servers(&["one", "three"]));
        assert_eq!(all, servers(&["two"]));
    }
}
