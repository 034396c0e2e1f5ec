//! Records which servers are served to one client together.

use std::collections::BTreeSet;

use crate::subject::name::ServerName;

/// The servers on each route. By default, all servers share a route.
#[derive(Clone, Debug, Default)]
pub struct SharedRoutes {
    /// The servers of each route; `None` if the routes are unknown.
    routes: Option<Vec<BTreeSet<ServerName>>>,
}

impl SharedRoutes {
    /// Builds the value from the servers of each route.
    #[must_use]
    pub fn of<Servers: IntoIterator<Item = ServerName>>(
        routes: impl IntoIterator<Item = Servers>,
    ) -> Self {
        let of_route = |servers: Servers| servers.into_iter().collect();
        Self { routes: Some(routes.into_iter().map(of_route).collect()) }
    }

    /// Whether some route serves both servers.
    #[must_use]
    pub fn share(&self, one: &ServerName, other: &ServerName) -> bool {
        let both = |route: &BTreeSet<ServerName>| route.contains(one) && route.contains(other);
        self.routes.as_ref().is_none_or(|routes| routes.iter().any(both))
    }
}
