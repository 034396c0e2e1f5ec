//! Which servers are offered to one client together.

use std::collections::BTreeSet;

use crate::name::ServerName;

/// Which servers stand on one route with which. The default one holds that all do.
#[derive(Clone, Debug, Default)]
pub struct SharedRoutes {
    /// The servers of each route; nothing where the routes are not known.
    routes: Option<Vec<BTreeSet<ServerName>>>,
}

impl SharedRoutes {
    /// From the servers of each route.
    #[must_use]
    pub fn of<Servers: IntoIterator<Item = ServerName>>(
        routes: impl IntoIterator<Item = Servers>,
    ) -> Self {
        let of_route = |servers: Servers| servers.into_iter().collect();
        Self { routes: Some(routes.into_iter().map(of_route).collect()) }
    }

    /// Whether some route offers the things of both.
    #[must_use]
    pub fn share(&self, one: &ServerName, other: &ServerName) -> bool {
        let both = |route: &BTreeSet<ServerName>| route.contains(one) && route.contains(other);
        self.routes.as_ref().is_none_or(|routes| routes.iter().any(both))
    }
}
