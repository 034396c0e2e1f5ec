//! What is said of a configuration that is valid: what its tools are called, and what is odd about it.

use super::{Server, Settings};
use crate::mcp::tool_naming::NameForm;

/// Something that is said of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// How things are.
    Note(String),
    /// What may be a mistake.
    Warning(String),
}

impl Remark {
    /// All that is said of `settings`, in the order of the file.
    #[must_use]
    pub fn all(settings: &Settings) -> Vec<Self> {
        let in_clear = settings.in_clear.iter().map(|said| Self::Warning(said.to_string()));
        let mut all: Vec<_> = in_clear.collect();
        all.extend(settings.servers.iter().flat_map(overrides));
        all.extend(idle(settings));
        for route in &settings.routes {
            let servers = route.servers.iter().map(|index| settings.servers.get(*index));
            let servers: Vec<_> = servers.flatten().collect();
            for (place, server) in servers.iter().enumerate() {
                // That of the self-test is nobody's business.
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

/// What is there for nothing: servers that no client can reach, and a policy without rules.
fn idle(settings: &Settings) -> Vec<Remark> {
    let on_a_route = |index: usize| settings.routes.iter().any(|r| r.servers.contains(&index));
    let servers = settings.servers.iter().enumerate();
    let mut found: Vec<_> = servers
        .filter(|(index, server)| !server.name.is_reserved() && !on_a_route(*index))
        .map(|(_, server)| {
            let name = &server.name;
            Remark::Warning(format!(
                "no route leads to the server `{name}`, so that no client can reach it: name it in `routes[].servers`"
            ))
        })
        .collect();
    if settings.policy.access().rules().is_empty() {
        let message =
            "the policy has no rule, so that every call is denied: add one under `policy.rules`";
        found.push(Remark::Warning(message.to_owned()));
    }
    found
}

/// What the detectors see in the words that the operator has written.
fn overrides(server: &Server) -> Vec<Remark> {
    let warnings = server.overrides.warnings().iter();
    let name = &server.name;
    warnings.map(|warning| Remark::Warning(format!("server `{name}`: {warning}"))).collect()
}
