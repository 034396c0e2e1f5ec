//! Approved definitions that no caller can see because no rule of the policy allows them. Used by `doctor`, `pin
//! approve` and `policy`.

use std::collections::BTreeMap;
use std::fmt;

use policy::definition::drift::visible;
use policy::definition::lock::{ApprovalState, Lockfile};
use policy::definition::offer::ItemKind;
use policy::engine::pipeline::Policy;
use policy_core::subject::name::{RuleId, ServerName};

/// Most names that are listed for one server and one key.
const NAMED: usize = 5;

/// The approved definitions of one server and one kind that no rule allows, and which either no `forbid` rule names or
/// the same one.
#[derive(Debug)]
pub(super) struct Ungranted {
    /// Name of the upstream server.
    pub(super) server: ServerName,
    /// The `forbid` rule that names them. They are then hidden on purpose, and nothing has to be done.
    pub(super) forbidden: Option<RuleId>,
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
        let mut found: BTreeMap<_, Vec<String>> = BTreeMap::new();
        let access = policy.access();
        for (server, kind, name) in things {
            if let Some(key) = key(kind)
                && !access.allows_anybody(server, kind, name)
            {
                let forbidden = access.forbids_by_name(server, kind, name).map(RuleId::as_str);
                found.entry((server, key, forbidden)).or_default().push(visible(name));
            }
        }
        let one = |((server, key, forbidden), names): ((&ServerName, _, Option<&str>), _)| Self {
            server: server.clone(),
            forbidden: forbidden.and_then(|rule| RuleId::parse(rule).ok()),
            key,
            names,
        };
        found.into_iter().map(one).collect()
    }

    /// Describes the finding, without the advice.
    pub(super) fn said(&self) -> String {
        let Self { key, names, forbidden, .. } = self;
        let noun = if let [_] = &names[..] { key.trim_end_matches('s') } else { key };
        let shown: Vec<_> = names.iter().take(NAMED).map(|name| format!("`{name}`")).collect();
        let more = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let how = match forbidden {
            Some(rule) => format!("forbidden by the rule `{rule}`"),
            None => "granted to nobody by any rule".to_owned(),
        };
        format!("{} {noun} approved and {how}: {}{more}", names.len(), shown.join(", "))
    }

    /// Advice on how to resolve the finding; `None` if a rule forbids it, because that was meant so.
    pub(super) fn mend(&self) -> Option<String> {
        let Self { server, key, forbidden, .. } = self;
        forbidden.is_none().then(|| {
            format!(
                "to show them, write `{key}: ['*']` or their names in an `allow` rule of `{server}`; otherwise leave it so"
            )
        })
    }
}

impl fmt::Display for Ungranted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.server, self.said())?;
        self.mend().map_or(Ok(()), |mend| write!(f, "; {mend}"))
    }
}

/// The key of a rule that grants this kind; `None` for kinds that no lockfile holds.
const fn key(kind: ItemKind) -> Option<&'static str> {
    match kind {
        ItemKind::Tool => Some("tools"),
        ItemKind::Prompt => Some("prompts"),
        ItemKind::Resource | ItemKind::Template => Some("resources"),
        ItemKind::Skill => Some("skills"),
        ItemKind::Method => None,
    }
}
