//! The configuration in force: one generation at a time, replaced in one step by a reload.
//!
//! An exchange keeps the generation it started with, including its policy, pins and upstream servers, so no decision
//! mixes two configurations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use policy_core::subject::name::RESERVED;
use policy_core::subject::principal::SERVICE;
use policy_core::subject::revoked::RevocationList;

use crate::base::task::Tasks;
use crate::config::settings::selftest::SelftestSettings;
use crate::config::settings::{AuthScheme, Program, ServerTransport, Settings, nearest};
use crate::edge::admission::Admission;
use crate::exchange::Gateway;
use crate::process::sandbox::SandboxPlan;

/// Grace period for calls to programs of a former configuration whose sandboxes allow more than is allowed now.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// A compiled configuration, ready to serve.
#[derive(Debug)]
pub struct Generation {
    /// Runs the exchanges of this generation.
    pub gateway: Arc<Gateway>,
    /// Admission of each listener, in the order of the listeners.
    pub admissions: Vec<Arc<Admission>>,
    /// The paths of the routes that serve the HTTP+SSE transport.
    pub http_sse_paths: Vec<Box<str>>,
    /// The self-test of this configuration, if it is enabled.
    pub selftest: Option<Arc<SelftestSettings>>,
    /// The names it defines, against which revocations are checked.
    pub names: ConfiguredNames,
    /// The sandboxes of its stdio servers.
    pub sandboxes: Sandboxes,
}

/// The sandboxes of the stdio servers of a configuration, by server name; `None` for a server without a sandbox.
#[derive(Clone, Debug, Default)]
pub struct Sandboxes(BTreeMap<Box<str>, Option<SandboxPlan>>);

impl Sandboxes {
    /// The sandboxes in `settings`.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let programs = settings.servers.iter().filter_map(|server| match &server.reach {
            ServerTransport::Stdio(Program { sandbox, .. }) => {
                Some((server.name.as_str().into(), sandbox.clone()))
            }
            ServerTransport::Http(_) | ServerTransport::HttpSse(_) => None,
        });
        Self(programs.collect())
    }

    /// Whether a program that runs in one of these sandboxes can do what `next` no longer allows: open a file that
    /// `next` keeps from all programs, or do what the changed sandbox of its own server forbids.
    #[must_use]
    pub fn are_outdated_by(&self, next: &Self) -> bool {
        self.0.iter().any(|(name, former)| {
            let own = next.0.get(name);
            match (former, own) {
                (None, Some(Some(_))) => true,
                (None, Some(None) | None) => false,
                (Some(former), own) => {
                    next.0.values().flatten().any(|plan| !former.protects_all_of(plan))
                        || matches!(own, Some(Some(own)) if !former.allows_the_same(own))
                }
            }
        })
    }
}

/// The names that a configuration defines.
#[derive(Clone, Debug, Default)]
pub struct ConfiguredNames {
    /// Names of upstream servers.
    pub servers: BTreeSet<Box<str>>,
    /// Ids of principals with API keys, and of the anonymous principal.
    pub principals: BTreeSet<Box<str>>,
    /// Names of token issuers. Their principals are `ISSUER/SUBJECT`, or `service:ISSUER/CLIENT` if a client calls on
    /// its own behalf.
    pub issuers: BTreeSet<Box<str>>,
    /// Whether clients authenticate with certificates as well: those principals are named by their certificates.
    pub others: bool,
}

impl ConfiguredNames {
    /// The names in `settings`.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let principals = settings.identity.principals();
        let mut schemes = settings.listeners.iter().flat_map(|listener| &listener.schemes);
        Self {
            servers: settings.servers.iter().map(|server| server.name.as_str().into()).collect(),
            principals: principals.iter().map(|principal| principal.id.as_str().into()).collect(),
            issuers: settings.identity.issuers.iter().map(|issuer| issuer.name.clone()).collect(),
            others: schemes.any(|scheme| *scheme == AuthScheme::Certificate),
        }
    }

    /// Whether a principal of this configuration can have this id.
    #[must_use]
    pub fn may_be(&self, id: &str) -> bool {
        let of_issuer = id.strip_prefix(SERVICE).unwrap_or(id);
        let issuer = of_issuer.split_once('/').map(|(issuer, _)| issuer);
        self.others
            || self.principals.contains(id)
            || issuer.is_some_and(|issuer| self.issuers.contains(issuer))
    }

    /// The principal with an API key whose id differs from this one in a few letters only.
    #[must_use]
    pub fn nearest_principal(&self, id: &str) -> Option<&str> {
        let known = self.principals.iter().map(|known| &**known);
        nearest(id, known.filter(|known| !known.starts_with(RESERVED)))
    }

    /// Says that no principal can have this id, and which ids there are.
    #[must_use]
    pub fn unknown_caller(&self, id: &str) -> String {
        let callers = quoted(&self.principals);
        let of_keys = (!callers.is_empty()).then(|| format!("the API keys are those of {callers}"));
        let issuers = quoted(&self.issuers);
        let of_issuers = (!issuers.is_empty()).then(|| {
            format!("callers with tokens are `ISSUER/SUBJECT` or `service:ISSUER/CLIENT`, of the issuers {issuers}")
        });
        let known: Vec<_> = of_keys.into_iter().chain(of_issuers).collect();
        let known = if known.is_empty() {
            "no API key and no issuer is configured".to_owned()
        } else {
            known.join("; ")
        };
        format!("no caller can be `{}`: {known}", id.escape_debug())
    }
}

/// Names in backticks, without those of the gateway itself.
#[must_use]
pub fn quoted(names: &BTreeSet<Box<str>>) -> String {
    let names = names.iter().filter(|name| !name.starts_with(RESERVED));
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The generation in force, with the former ones that still have exchanges in flight.
#[derive(Debug)]
pub struct CurrentGeneration {
    now: ArcSwap<Generation>,
    /// Former generations that may still have exchanges in flight.
    before: Mutex<Vec<FormerGeneration>>,
}

/// A generation that is no longer in force.
#[derive(Debug)]
struct FormerGeneration {
    gateway: Weak<Gateway>,
    sandboxes: Sandboxes,
}

impl CurrentGeneration {
    /// Starts with `generation` in force.
    #[must_use]
    pub fn new(generation: Generation) -> Self {
        Self { now: ArcSwap::from_pointee(generation), before: Mutex::default() }
    }

    /// The generation in force.
    #[must_use]
    pub fn now(&self) -> Arc<Generation> {
        self.now.load_full()
    }

    /// Puts `generation` in force. Exchanges in flight finish under their own generation; streams without an end are
    /// closed, and their clients reconnect. Programs whose sandboxes allow more than is allowed now are ended after
    /// `LAST_CALLS`, even with calls in flight.
    pub fn replace(&self, generation: Generation) {
        let next = generation.sandboxes.clone();
        let former = self.now.swap(Arc::new(generation));
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        before.retain(|one| one.gateway.strong_count() > 0);
        let gateway = Arc::downgrade(&former.gateway);
        before.push(FormerGeneration { gateway, sandboxes: former.sandboxes.clone() });
        let outdated = before.iter().filter(|one| one.sandboxes.are_outdated_by(&next));
        let outdated: Vec<_> = outdated.filter_map(|one| one.gateway.upgrade()).collect();
        drop(before);
        former.gateway.tasks.retire();
        if !outdated.is_empty() {
            tracing::info!(
                event = "sandbox.tightened",
                seconds = LAST_CALLS.as_secs(),
                "stopping programs of the previous configuration: their sandbox is now stricter"
            );
        }
        for gateway in outdated {
            gateway.tasks.spawn_service(dismissed(gateway.tasks.clone()));
        }
    }

    /// Applies `revoked` to the generation in force and to former ones with exchanges in flight.
    pub fn revoke(&self, revoked: &RevocationList) {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let before: Vec<_> = before.iter().filter_map(|one| one.gateway.upgrade()).collect();
        for gateway in before {
            gateway.revoke(revoked);
        }
        self.now().gateway.revoke(revoked);
    }
}

/// Ends the programs that are still in use after [`LAST_CALLS`].
async fn dismissed(tasks: Tasks) {
    tokio::select! {
        () = tokio::time::sleep(LAST_CALLS) => tasks.dismiss(),
        () = tasks.halting() => {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::Sandboxes;
    use crate::process::sandbox::{NetworkAccess, SandboxPlan};

    fn of(programs: &[(&str, Option<SandboxPlan>)]) -> Sandboxes {
        Sandboxes(programs.iter().map(|(name, plan)| ((*name).into(), plan.clone())).collect())
    }

    #[test]
    fn a_program_is_outdated_when_its_sandbox_allows_what_is_no_longer_allowed() {
        let hiding = |files: &[&str]| {
            let mut plan = SandboxPlan::usual();
            plan.keep_back(&files.iter().map(PathBuf::from).collect::<Vec<_>>(), &[]);
            Some(plan)
        };
        let closed = Some(SandboxPlan { network: NetworkAccess::None, ..SandboxPlan::usual() });
        let former = of(&[("up", hiding(&["/a"]))]);
        for (next, outdated) in [
            (of(&[("up", hiding(&["/a"]))]), false),
            (of(&[]), false),
            (of(&[("up", hiding(&[]))]), false),
            (of(&[("up", hiding(&["/b", "/a"]))]), true),
            (of(&[("another", hiding(&["/a", "/b"]))]), true),
            (of(&[("up", closed)]), true),
            (of(&[("up", None)]), false),
        ] {
            assert_eq!(former.are_outdated_by(&next), outdated, "{next:?}");
        }
        let free = of(&[("up", None)]);
        assert!(free.are_outdated_by(&former), "it has a sandbox now");
        assert!(!free.are_outdated_by(&free) && !free.are_outdated_by(&of(&[])));
    }
}
