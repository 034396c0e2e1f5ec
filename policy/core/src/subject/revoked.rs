//! Revoked principals, servers and things, which must not be used even if rules allow it (control C32).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::subject::name::ServerName;
use crate::subject::principal::{Principal, SERVICE};
use crate::subject::uri::{self, ResourceUri};

/// The key of the reason for which everything is revoked.
const EVERYTHING: &str = "everything";

/// The set of revocations in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevocationList {
    /// Whether everything is revoked: no caller is served and no server is used.
    pub everything: bool,
    /// Principals, by id or by any name in their certificate.
    pub principals: BTreeSet<Box<str>>,
    /// OAuth clients, by the id their issuer assigned.
    pub clients: BTreeSet<Box<str>>,
    /// Names of upstream servers.
    pub servers: BTreeSet<Box<str>>,
    /// Tools, prompts and resources, as `SERVER/NAME`.
    pub tools: BTreeSet<Box<str>>,
    /// Access tokens, by their `jti`.
    pub tokens: BTreeSet<Box<str>>,
    /// Resources among `tools`, as `SERVER/URI` in every form that servers may treat as the same resource. Filled by
    /// [`Self::indexed`].
    pub resources: BTreeSet<Box<str>>,
    /// Why entries are revoked, as far as somebody said so: by `LIST/ENTRY`, or `everything`. Decides nothing.
    pub reasons: BTreeMap<Box<str>, Arc<str>>,
}

impl RevocationList {
    /// The lists with their names in files and in JSON.
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

    /// The list with this name, if there is one.
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

    /// The same with this reason for every entry.
    #[must_use]
    pub fn because(mut self, reason: &Arc<str>) -> Self {
        let entries = self.lists().into_iter().flat_map(|(name, list)| {
            list.iter().map(move |entry| format!("{name}/{entry}").into_boxed_str())
        });
        let everything = self.everything.then(|| EVERYTHING.into());
        let keys: Vec<_> = entries.chain(everything).collect();
        self.reasons = keys.into_iter().map(|key| (key, Arc::clone(reason))).collect();
        self
    }

    /// Drops the reasons of what is not revoked.
    fn prune(&mut self) {
        let mut reasons = std::mem::take(&mut self.reasons);
        reasons.retain(|key, _| match key.split_once('/') {
            Some((list, entry)) => self.list_mut(list).is_some_and(|list| list.contains(entry)),
            None => self.everything && **key == *EVERYTHING,
        });
        self.reasons = reasons;
    }

    /// Whether nothing is revoked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.everything && self.lists().iter().all(|(_, list)| list.is_empty())
    }

    /// Whether `other` revokes everything that this does.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        let mut pairs = self.lists().into_iter().zip(other.lists());
        (!self.everything || other.everything)
            && pairs.all(|((_, mine), (_, theirs))| mine.is_subset(theirs))
    }

    /// The revocations in both sets.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        Self {
            everything: self.everything && other.everything,
            principals: both(&self.principals, &other.principals),
            clients: both(&self.clients, &other.clients),
            servers: both(&self.servers, &other.servers),
            tools: both(&self.tools, &other.tools),
            tokens: both(&self.tokens, &other.tokens),
            ..Self::default()
        }
    }

    /// Adds the revocations of `other`.
    pub fn add(&mut self, other: &Self) {
        self.everything |= other.everything;
        for (name, list) in other.lists() {
            if let Some(mine) = self.list_mut(name) {
                mine.extend(list.iter().cloned());
            }
        }
        self.reasons.extend(other.reasons.iter().map(|(key, why)| (key.clone(), Arc::clone(why))));
        self.prune();
    }

    /// Removes the revocations of `other`.
    pub fn remove(&mut self, other: &Self) {
        self.everything &= !other.everything;
        for (name, list) in other.lists() {
            if let Some(mine) = self.list_mut(name) {
                mine.retain(|entry| !list.contains(entry));
            }
        }
        self.prune();
    }

    /// Whether `principal` is revoked: by its id, its client, its token, or any name in its certificate.
    #[must_use]
    pub fn has_principal(&self, principal: &Principal) -> bool {
        let claims = &principal.claims;
        let client = claims.client.as_ref().map(crate::subject::name::ClientId::as_str);
        self.everything
            || self.principals.contains(principal.id.as_str())
            || client.is_some_and(|client| self.clients.contains(client))
            // A client that calls in its own name stands in records as `service:ISSUER/CLIENT`.
            || principal.id.as_str().starts_with(SERVICE) && self.clients.contains(principal.id.as_str())
            || claims.token.as_ref().is_some_and(|token| self.tokens.contains(token))
            || claims.names.iter().any(|name| self.principals.contains(name))
    }

    /// Whether the whole server is revoked.
    #[must_use]
    pub fn has_server(&self, server: &ServerName) -> bool {
        self.everything || self.servers.contains(server.as_str())
    }

    /// Fills the index of resources, so that lookups find them in any spelling.
    #[must_use]
    pub fn indexed(mut self) -> Self {
        self.resources.clear();
        for entry in &self.tools {
            let Some((server, name)) = entry.split_once('/') else { continue };
            let Ok(uri) = ResourceUri::listed(name) else { continue };
            self.resources.insert(format!("{server}/{}", uri::reduced(uri.as_str())).into());
        }
        self
    }

    /// Whether `name` of `server`, or the whole server, is revoked. A resource is revoked in every form of its URI
    /// that the server may treat as the same.
    #[must_use]
    pub fn has(&self, server: &ServerName, name: &str) -> bool {
        if self.has_server(server) {
            return true;
        }
        if !self.has_any_of(server) {
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
        self.resources.contains(entry(&uri::reduced(uri.as_str())).as_str())
    }

    /// Whether anything of `server` can be revoked. It is asked several times for each call, and formats nothing.
    fn has_any_of(&self, server: &ServerName) -> bool {
        let server = server.as_str();
        // The entries that begin with the name of the server are next to each other, and the first of them is the first
        // that is not less than the name.
        let mut from = self.tools.range::<str, _>((Bound::Included(server), Bound::Unbounded));
        from.next().is_some_and(|first| first.starts_with(server))
    }
}

fn both(mine: &BTreeSet<Box<str>>, theirs: &BTreeSet<Box<str>>) -> BTreeSet<Box<str>> {
    mine.intersection(theirs).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::RevocationList;
    use crate::subject::name::{PrincipalId, ServerName};
    use crate::subject::principal::Principal;

    fn servers(names: &[&str]) -> RevocationList {
        RevocationList {
            servers: names.iter().map(|name| (*name).into()).collect(),
            ..RevocationList::default()
        }
    }

    #[test]
    fn everything_is_every_caller_and_every_server() {
        let all = RevocationList { everything: true, ..RevocationList::default() };
        let ana = Principal::new(PrincipalId::parse("ana").unwrap(), BTreeSet::new());
        let up = ServerName::parse("up").unwrap();
        assert!(all.has_principal(&ana) && all.has_server(&up) && all.has(&up, "echo"));
        assert!(!all.is_empty() && !all.is_within(&servers(&["up"])));
        let none = RevocationList::default();
        assert!(!none.has_principal(&ana) && !none.has_server(&up) && none.is_empty());
    }

    #[test]
    fn a_client_that_calls_in_its_own_name_is_revoked_under_the_name_in_its_records() {
        let clients = ["service:corp/s9".into(), "ana".into()].into();
        let revoked = RevocationList { clients, ..RevocationList::default() };
        let caller = |id: &str| Principal::new(PrincipalId::parse(id).unwrap(), BTreeSet::new());
        assert!(revoked.has_principal(&caller("service:corp/s9")));
        assert!(!revoked.has_principal(&caller("service:corp/s8")));
        assert!(!revoked.has_principal(&caller("ana")), "a user is no client");
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

    #[test]
    fn a_reason_goes_with_its_entry() {
        let mut all = servers(&["one", "two"]).because(&"leaked".into());
        all.add(&servers(&["two"]).because(&"slow".into()));
        all.add(&servers(&["one", "three"]));
        let reasons = |all: &RevocationList| {
            let reasons = all.reasons.iter().map(|(key, why)| format!("{key}: {why}"));
            reasons.collect::<Vec<_>>()
        };
        assert_eq!(reasons(&all), ["servers/one: leaked", "servers/two: slow"]);
        all.remove(&servers(&["one"]));
        assert_eq!(reasons(&all), ["servers/two: slow"]);
        let everything = RevocationList { everything: true, ..RevocationList::default() };
        all.add(&everything.clone().because(&"drill".into()));
        assert_eq!(reasons(&all), ["everything: drill", "servers/two: slow"]);
        all.remove(&everything);
        assert_eq!(reasons(&all), ["servers/two: slow"]);
    }

    #[test]
    fn a_server_is_found_among_others_whose_names_begin_with_its_name() {
        let tools = ["up-2/drop", "up/echo", "up2/drop", "u/drop"].map(Box::<str>::from).into();
        let revoked = RevocationList { tools, ..RevocationList::default() };
        let server = |name| ServerName::parse(name).unwrap();
        assert!(revoked.has(&server("up"), "echo") && revoked.has(&server("up-2"), "drop"));
        for other in ["up", "up-3", "up3", "v", "a"] {
            assert!(!revoked.has(&server(other), "drop"), "{other}");
        }
    }

    #[test]
    fn a_resource_is_revoked_in_every_spelling() {
        let tools = ["up/file:///srv/Secret note", "up/drop"].map(Box::<str>::from).into();
        let revoked = RevocationList { tools, ..RevocationList::default() }.indexed();
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
