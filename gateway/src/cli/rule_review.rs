//! Reviews the rules of a policy by the definitions in the lockfile. Used by `validate` and `policy lint`.

use policy::definition::lock::Lockfile;
use policy::definition::offer::ItemKind;
use policy::engine::pipeline::Policy;
use policy::rules::explain::RuleRemark;
use policy::subject::name::ServerName;
use policy::subject::pattern::Pattern;

/// Whether a pattern with a wildcard that matches no definition is remarked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WildcardReview {
    /// It is, as a name is.
    Remarked,
    /// It is not: it may be meant for what the servers offer later.
    LeftOut,
}

/// The remarks about the rules of `policy`, for all configured `servers`.
pub(super) fn remarks(
    policy: &Policy,
    servers: &[ServerName],
    lock: &Lockfile,
    wildcards: WildcardReview,
) -> Vec<RuleRemark> {
    policy.access().review(|among, kind, pattern| {
        let has_wildcard = pattern.as_str().contains(['*', '?']);
        match wildcards == WildcardReview::LeftOut && has_wildcard {
            true => None,
            false => offered(servers, lock, among, kind, pattern),
        }
    })
}

/// Whether one of the servers that `among` names has an item in the lockfile that `pattern` names. `None` if there is no
/// such server, or if one of them has no definitions in the lockfile: it may offer anything.
fn offered(
    servers: &[ServerName],
    lock: &Lockfile,
    among: &[Pattern],
    kind: ItemKind,
    pattern: &Pattern,
) -> Option<bool> {
    let mut is_any = None;
    for server in servers.iter().filter(|server| server.is_among(among)) {
        let locked =
            lock.servers.get(server.as_str()).filter(|locked| !locked.offers.is_empty())?;
        let is = locked.offers.keys().any(|(of, name)| *of == kind && pattern.matches(name));
        is_any = Some(is_any.unwrap_or(false) || is);
    }
    is_any
}
