//! Notes and warnings about a valid configuration: the names that tools get, and settings that are probably
//! mistakes. `validate` and the start of the gateway print them.

use super::{AuthScheme, ListenerSettings, ServerSettings, Settings};
use crate::mcp::tool_naming::NameForm;

/// A note or warning about a valid configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigRemark {
    /// Information that needs no action.
    Note(String),
    /// A probable mistake in the configuration.
    Warning(String),
}

impl ConfigRemark {
    /// All remarks about `settings`: warnings first, then what environment variables do to the telemetry and the tool
    /// names of each route.
    #[must_use]
    pub fn all(settings: &Settings) -> Vec<Self> {
        let warnings = settings.warnings.iter().map(|said| Self::Warning(said.to_string()));
        let mut all: Vec<_> = warnings.collect();
        all.extend(settings.listeners.iter().filter_map(in_plain_http));
        all.extend(settings.servers.iter().flat_map(overrides));
        all.extend(idle(settings));
        all.extend(doubtful(settings));
        all.extend(around_planners(settings));
        let telemetry = settings.telemetry.remarks.iter();
        all.extend(telemetry.map(|said| Self::Note(format!("telemetry: {said}"))));
        for route in &settings.routes {
            let servers = route.servers.iter().map(|index| settings.servers.get(*index));
            let servers: Vec<_> = servers.flatten().collect();
            for (place, server) in servers.iter().enumerate() {
                // The server of the self-test is internal.
                if !server.name.is_reserved() {
                    let form = NameForm::of(route.prefix, place, servers.len());
                    let said = form.said(&server.name);
                    all.push(Self::Note(format!("route {}: {said}", route.path)));
                }
            }
        }
        all
    }
}

/// A listener that takes keys or tokens over plain HTTP from other machines, as far as the configuration says.
fn in_plain_http(listener: &ListenerSettings) -> Option<ConfigRemark> {
    let takes_secrets = listener.schemes.iter().any(|scheme| match scheme {
        AuthScheme::ApiKey | AuthScheme::Oauth => true,
        AuthScheme::Certificate | AuthScheme::Anonymous => false,
    });
    // A `publicUrl` is `https`, or of this machine. Certificates are forwarded by a proxy that ends TLS.
    let is_told = listener.public.is_some() || listener.forwarded.is_some();
    let ListenerSettings { name, address, .. } = listener;
    if !takes_secrets || is_told || listener.tls.is_some() || address.ip().is_loopback() {
        return None;
    }
    Some(ConfigRemark::Warning(format!(
        "the listener `{name}` takes the keys of callers in plain HTTP on {address}, and others on the network can read them: \
         set `tls`; or say in `publicUrl` how clients reach it: `https://NAME` where a proxy in front ends TLS, \
         `http://localhost:PORT` where only this machine can"
    )))
}

/// Routes without a planner to servers that a planner has as well: what uses both is not kept apart.
fn around_planners(settings: &Settings) -> Vec<ConfigRemark> {
    let of_planners = settings.routes.iter().filter(|route| route.planner.is_some());
    let kept: Vec<_> = of_planners.flat_map(|route| &route.servers).collect();
    let others = settings.routes.iter().filter(|route| {
        route.planner.is_none() && route.servers.iter().any(|index| kept.contains(&index))
    });
    let warning = |path: &str| {
        format!(
            "the route {path} has no `planner`, and leads to a server of a planner: an agent that can use both is shown what is \
             untrusted and can act on it; set its `planner`, or let other callers alone use it"
        )
    };
    others.map(|route| ConfigRemark::Warning(warning(&route.path))).collect()
}

/// Settings without effect: servers that no route has, and a policy without rules.
fn idle(settings: &Settings) -> Vec<ConfigRemark> {
    let on_a_route = |index: usize| settings.routes.iter().any(|r| r.servers.contains(&index));
    let servers = settings.servers.iter().enumerate();
    let mut found: Vec<_> = servers
        .filter(|(index, server)| !server.name.is_reserved() && !on_a_route(*index))
        .map(|(_, server)| {
            let name = &server.name;
            ConfigRemark::Warning(format!(
                "no route leads to the server `{name}`, so that no client can reach it: name it in `routes[].servers`"
            ))
        })
        .collect();
    if settings.policy.access().rules().is_empty() {
        let message =
            "the policy has no rule, so that every call is denied: add one under `policy.rules`";
        found.push(ConfigRemark::Warning(message.to_owned()));
    }
    found
}

/// Conditions that are true or false only if the caller gives a boolean.
fn doubtful(settings: &Settings) -> impl Iterator<Item = ConfigRemark> {
    let rules = settings.policy.access().rules().iter();
    let doubtful = rules.filter(|rule| rule.when.as_ref().is_some_and(|w| !w.is_surely_boolean()));
    doubtful.map(|rule| {
        let id = &rule.id;
        ConfigRemark::Warning(format!(
            "the `when` of rule `{id}` is a condition only if its argument is true or false; anything else denies: \
             compare it, as in `arguments.x == true`"
        ))
    })
}

/// What the detectors find in the operator's titles and descriptions.
fn overrides(server: &ServerSettings) -> Vec<ConfigRemark> {
    let warnings = server.overrides.warnings().iter();
    let name = &server.name;
    warnings.map(|warning| ConfigRemark::Warning(format!("server `{name}`: {warning}"))).collect()
}
