//! Approved definitions that no caller can see because no rule of the policy allows them. Used by `doctor`, `pin
//! approve` and `policy`.

use std::collections::BTreeMap;
use std::fmt;

use policy::definition::drift::visible;
use policy::definition::lock::{ApprovalState, Lockfile};
use policy::definition::offer::ItemKind;
use policy::engine::pipeline::Policy;
use policy::subject::name::ServerName;

/// Most names that are listed for one server and one key.
const NAMED: usize = 5;

/// The approved definitions of one server and one kind that no rule allows.
#[derive(Debug)]
pub(super) struct Ungranted {
    /// Name of the upstream server.
    pub(super) server: ServerName,
    /// Key of a rule that grants this kind: `tools`, `prompts` or `resources`.
    key: &'static str,
    /// Names of the definitions, escaped for display.
    names: Vec<String>,
}

impl Ungranted {
    /// Finds the definitions of these servers that `lock` approves and no rule of `policy` allows.
    pub(super) fn all<'a>(
        policy: &Policy,
        lock: &Lockfile,
        servers: impl IntoIterator<Item = &'a ServerName>,
    ) -> Vec<Self> {
        let of_server = |server: &'a ServerName| {
            let locked = lock.servers.get(server.as_str()).into_iter();
            let offers = locked.flat_map(|locked| &locked.offers);
            let approved = offers.filter(|(_, versions)| {
                versions.iter().any(|version| version.state == ApprovalState::Approved)
            });
            approved.map(move |((kind, name), _)| (server, *kind, &**name))
        };
        Self::among(policy, servers.into_iter().flat_map(of_server))
    }

    /// Finds the definitions among `things` that no rule of `policy` allows.
    pub(super) fn among<'a>(
        policy: &Policy,
        things: impl Iterator<Item = (&'a ServerName, ItemKind, &'a str)>,
    ) -> Vec<Self> {
        let mut found: BTreeMap<(&ServerName, &'static str), Vec<String>> = BTreeMap::new();
        for (server, kind, name) in things {
            if let Some(key) = key(kind)
                && !policy.access().allows_anybody(server, kind, name)
            {
                found.entry((server, key)).or_default().push(visible(name));
            }
        }
        let one = |((server, key), names): ((&ServerName, _), _)| Self {
            server: server.clone(),
            key,
            names,
        };
        found.into_iter().map(one).collect()
    }

    /// Describes the finding, without the advice.
    pub(super) fn said(&self) -> String {
        let Self { key, names, .. } = self;
        let noun = if let [_] = &names[..] { key.trim_end_matches('s') } else { key };
        let shown: Vec<_> = names.iter().take(NAMED).map(|name| format!("`{name}`")).collect();
        let more = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!(
            "{} {noun} approved and granted to nobody by any rule: {}{more}",
            names.len(),
            shown.join(", ")
        )
    }

    /// Advice on how to resolve the finding.
    pub(super) fn mend(&self) -> String {
        let Self { server, key, .. } = self;
        format!(
            "to show them, write `{key}: ['*']` or their names in an `allow` rule of `{server}`; otherwise leave it so"
        )
    }
}

impl fmt::Display for Ungranted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}; {}", self.server, self.said(), self.mend())
    }
}

/// The key of a rule that grants this kind; `None` for kinds that no lockfile holds.
const fn key(kind: ItemKind) -> Option<&'static str> {
    match kind {
        ItemKind::Tool => Some("tools"),
        ItemKind::Prompt => Some("prompts"),
        ItemKind::Resource | ItemKind::Template => Some("resources"),
        ItemKind::Method => None,
    }
}
