//! A route: a path, the upstream servers behind it, and the names of their definitions there.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use policy::definition::offer::ItemKind;
use policy::flow::planner::Planner;
use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;

use super::Gateway;
use super::tool_index::ToolIndexCache;
use crate::config::settings::{DiscoverySettings, ListedTools};
use crate::mcp::tool_naming::{NameForm, Naming, PrefixMode};
use crate::outbound::guardrail::GuardrailClient;
use crate::upstream::Upstream;

impl Gateway {
    /// The changes of names when `next` replaces this configuration, in words for the operator, for each server that is
    /// on a route in both.
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

/// A path and the upstream servers behind it.
#[derive(Debug)]
pub struct Route {
    /// The exact path of requests.
    pub path: Arc<str>,
    /// The upstream servers; never empty.
    pub servers: Vec<Arc<Upstream>>,
    /// The names of the servers.
    names: Arc<[ServerName]>,
    /// What [`Self::identity`] returns.
    identity: Box<str>,
    /// When tool names are prefixed with the server's name.
    prefix: PrefixMode,
    /// Guardrails for arguments and results, in the order in which they are asked.
    pub guardrails: Vec<GuardrailClient>,
    /// The planner that the route is for, if there are two.
    pub planner: Option<Planner>,
    /// How models find the tools of the route; `None` if its list has all.
    pub discovery: Option<RouteDiscovery>,
}

/// The discovery of a route.
#[derive(Debug)]
pub struct RouteDiscovery {
    /// What the list has, and how many tools an answer.
    pub settings: DiscoverySettings,
    index: Arc<ToolIndexCache>,
}

impl RouteDiscovery {
    /// Discovery with these settings.
    #[must_use]
    pub fn new(settings: DiscoverySettings) -> Self {
        Self { settings, index: Arc::default() }
    }

    /// The index in which tools are found.
    pub(super) fn index(&self) -> Arc<ToolIndexCache> {
        Arc::clone(&self.index)
    }
}

impl Route {
    /// A route at `path` to `servers`.
    #[must_use]
    pub fn new(
        path: Arc<str>,
        servers: Vec<Arc<Upstream>>,
        prefix: PrefixMode,
        guardrails: Vec<GuardrailClient>,
    ) -> Self {
        let names = servers.iter().map(|server| server.name().clone()).collect();
        let identities: Vec<_> = servers.iter().map(|server| server.identity()).collect();
        let identity = format!("{path} {}", identities.join(" ")).into();
        Self { path, servers, names, identity, prefix, guardrails, planner: None, discovery: None }
    }

    /// The same for one of two planners. Sessions and sealed ids of a route for another planner do not open here.
    #[must_use]
    pub fn for_planner(self, planner: Option<Planner>) -> Self {
        let Some(kind) = planner else { return self };
        let identity = format!("{} planner={}", self.identity, kind.as_str()).into();
        Self { identity, planner, ..self }
    }

    /// The same with discovery of its tools.
    #[must_use]
    pub fn with_discovery(self, discovery: Option<DiscoverySettings>) -> Self {
        Self { discovery: discovery.map(RouteDiscovery::new), ..self }
    }

    /// Patterns for the tools of servers that the list has; `None` if it has all that the caller may use.
    #[must_use]
    pub fn only(&self, kind: ItemKind) -> Option<&[Pattern]> {
        match &self.discovery.as_ref().filter(|_| kind == ItemKind::Tool)?.settings.listed {
            ListedTools::All => None,
            ListedTools::Only(patterns) => Some(patterns),
        }
    }

    /// How many tools the list of one caller has because it has found them; `None` if no list follows that.
    #[must_use]
    pub fn loads(&self) -> Option<usize> {
        self.discovery.as_ref()?.settings.loads
    }

    /// The most tokens that the descriptions of a tool have in the list; `None` if they are shown as they are.
    #[must_use]
    pub fn description_budget(&self, kind: ItemKind) -> Option<usize> {
        self.discovery.as_ref().filter(|_| kind == ItemKind::Tool)?.settings.description_tokens
    }

    /// What a session is bound to besides its principal: the path and the servers in order. A session does not open
    /// after either has changed.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether names on the route can differ from those at the servers.
    #[must_use]
    pub fn renames(&self) -> bool {
        self.servers.len() > 1 || self.prefix == PrefixMode::Always
    }

    /// Whether the names of one server's definitions depend on the other servers.
    #[must_use]
    pub fn compares(&self, kind: ItemKind) -> bool {
        self.servers.len() > 1 && Naming::compares(self.prefix, kind)
    }

    /// The form of the names of `server` on this route.
    #[must_use]
    pub fn form(&self, server: &ServerName) -> NameForm {
        let place = self.names.iter().position(|name| name == server);
        NameForm::of(self.prefix, place.unwrap_or(usize::MAX), self.names.len())
    }

    /// The naming of `server`, where other servers offer the names `taken`.
    #[must_use]
    pub fn naming(&self, server: &ServerName, taken: Arc<BTreeSet<Box<str>>>) -> Naming {
        Naming::new(self.form(server), Arc::clone(&self.names), taken)
    }

    /// The URI at `server` of the resource shown as `uri`, if it belongs to that server.
    #[must_use]
    pub fn own_uri<'a>(&self, server: &ServerName, uri: &'a str) -> Option<&'a str> {
        self.naming(server, Arc::default()).own_uri(server, uri)
    }

    /// The name of a server's resource on this route; `None` if it is left out.
    #[must_use]
    pub fn shown(&self, server: &Upstream, kind: ItemKind, name: &str) -> Option<String> {
        self.naming(server.name(), Arc::default())
            .show(server.name(), kind, name)
            .map(Cow::into_owned)
    }
}
