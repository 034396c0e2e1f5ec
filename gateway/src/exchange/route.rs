//! A path, the servers behind it, and what their things are called there.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use policy::name::ServerName;
use policy::offer::Kind;

use super::Gateway;
use crate::mcp::tool_naming::{NameForm, Naming, Prefix};
use crate::outbound::guardrail::Guardrail;
use crate::upstream::Upstream;

impl Gateway {
    /// What has other names for clients when `next` takes the place of this, in words for the operator: of
    /// each server that both have on a route.
    #[must_use]
    pub fn renamed_by(&self, next: &Self) -> Vec<String> {
        let mut all = Vec::new();
        for (path, route) in &self.routes {
            let Some(other) = next.routes.get(path) else { continue };
            for server in route.names.iter().filter(|server| other.names.contains(server)) {
                let (before, after) =
                    (route.form(server).said(server), other.form(server).said(server));
                if before != after {
                    all.push(format!("route {path}: names change: {after} (before: {before})"));
                }
            }
        }
        all.sort();
        all
    }
}

/// A path and the servers behind it.
#[derive(Debug)]
pub struct Route {
    /// The path.
    pub path: Arc<str>,
    /// The servers; never empty.
    pub servers: Vec<Arc<Upstream>>,
    /// Their names.
    names: Arc<[ServerName]>,
    /// When tools carry the name of their server.
    prefix: Prefix,
    /// Who is asked about arguments and results, in this order.
    pub guardrails: Vec<Guardrail>,
}

impl Route {
    /// A path to these servers.
    #[must_use]
    pub fn new(
        path: Arc<str>,
        servers: Vec<Arc<Upstream>>,
        prefix: Prefix,
        guardrails: Vec<Guardrail>,
    ) -> Self {
        let names = servers.iter().map(|server| server.name().clone()).collect();
        Self { path, servers, names, prefix, guardrails }
    }

    /// What a session is bound to besides its owner: the path, and the servers in their order. A
    /// session of a route that was changed does not open.
    #[must_use]
    pub fn identity(&self) -> String {
        let names: Vec<_> = self.servers.iter().map(|server| server.identity()).collect();
        format!("{} {}", self.path, names.join(" "))
    }

    /// Whether things can have other names here than at their servers.
    #[must_use]
    pub fn renames(&self) -> bool {
        self.servers.len() > 1 || self.prefix == Prefix::Always
    }

    /// Whether what one server's things are called depends on what the others offer.
    #[must_use]
    pub fn compares(&self, kind: Kind) -> bool {
        self.servers.len() > 1 && Naming::compares(self.prefix, kind)
    }

    /// In which form the things of `server` have names here.
    #[must_use]
    pub fn form(&self, server: &ServerName) -> NameForm {
        let place = self.names.iter().position(|name| name == server);
        NameForm::of(self.prefix, place.unwrap_or(usize::MAX), self.names.len())
    }

    /// How the things of `server` are called here, of which others offer the names `taken`.
    #[must_use]
    pub fn naming(&self, server: &ServerName, taken: Arc<BTreeSet<Box<str>>>) -> Naming {
        Naming::new(self.form(server), Arc::clone(&self.names), taken)
    }

    /// The URI at `server` of a resource that is called `uri` here, if it is one of it.
    #[must_use]
    pub fn own_uri<'a>(&self, server: &ServerName, uri: &'a str) -> Option<&'a str> {
        self.naming(server, Arc::default()).own_uri(server, uri)
    }

    /// What a resource of a server is called here.
    #[must_use]
    pub fn shown(&self, server: &Upstream, kind: Kind, name: &str) -> Option<String> {
        self.naming(server.name(), Arc::default())
            .show(server.name(), kind, name)
            .map(Cow::into_owned)
    }
}
