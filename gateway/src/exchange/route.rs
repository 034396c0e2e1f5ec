//! A path, the servers behind it, and what their things are called there.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use policy::offer::Kind;

use crate::guardrail::Guardrail;
use crate::naming::{Naming, Prefix};
use crate::upstream::Upstream;

/// A path and the servers behind it.
#[derive(Debug)]
pub struct Route {
    /// The path.
    pub path: Arc<str>,
    /// The servers; never empty.
    pub servers: Vec<Arc<Upstream>>,
    /// When tools carry the name of their server.
    pub prefix: Prefix,
    /// Who is asked about arguments and results, in this order.
    pub guardrails: Vec<Guardrail>,
}

impl Route {
    /// What a session is bound to besides its owner: the path, and the servers in their order. A
    /// session of a route that was changed does not open.
    #[must_use]
    pub fn identity(&self) -> String {
        let names: Vec<_> = self.servers.iter().map(|server| server.identity()).collect();
        format!("{} {}", self.path, names.join(" "))
    }

    /// Whether things have other names here than at their servers: with one server there is nothing
    /// to tell apart.
    #[must_use]
    pub const fn renames(&self) -> bool {
        self.servers.len() > 1
    }

    /// Whether what one server's things are called depends on what the others offer.
    #[must_use]
    pub const fn compares(&self, kind: Kind) -> bool {
        self.renames() && Naming::compares(self.prefix, kind)
    }

    /// How the things of a server are called here, of which others offer the names `taken`.
    #[must_use]
    pub fn naming(&self, taken: Arc<BTreeSet<Box<str>>>) -> Naming {
        if self.renames() { Naming::among(self.prefix, taken) } else { Naming::alone() }
    }

    /// What a resource of a server is called here.
    #[must_use]
    pub fn shown(&self, server: &Upstream, kind: Kind, name: &str) -> Option<String> {
        self.naming(Arc::default()).show(server.name(), kind, name).map(Cow::into_owned)
    }
}
