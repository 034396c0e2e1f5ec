//! The configuration in force: one gateway at a time, changed in one step.
//!
//! An exchange belongs to the gateway it began with, to its end: its policy, its pins, its servers.
//! Nothing is ever decided by parts of two.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use policy::revoked::Revoked;

use crate::base::task::Tasks;
use crate::config::settings::selftest::Selftest;
use crate::config::settings::{Program, Reach, Scheme, Settings};
use crate::edge::admission::Door;
use crate::exchange::Gateway;
use crate::identity::SERVICE;
use crate::process::sandbox::Plan;

/// How long programs of a former configuration whose sandboxes allow more than is allowed now may go on with what is
/// under way.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// One configuration, ready to serve.
#[derive(Debug)]
pub struct Generation {
    /// The gateway.
    pub gateway: Arc<Gateway>,
    /// Its doors, in the order of the listeners.
    pub doors: Vec<Arc<Door>>,
    /// The routes at which the old HTTP+SSE is served.
    pub old: Vec<Box<str>>,
    /// How it is attacked by itself, if it is.
    pub selftest: Option<Arc<Selftest>>,
    /// What it has names for.
    pub names: Names,
    /// In which sandboxes its programs are.
    pub sandboxes: Sandboxes,
}

/// The sandboxes of the programs of a configuration, by the name of the server; `None` where there is no sandbox.
#[derive(Clone, Debug, Default)]
pub struct Sandboxes(BTreeMap<Box<str>, Option<Plan>>);

impl Sandboxes {
    /// Those in a configuration.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let programs = settings.servers.iter().filter_map(|server| match &server.reach {
            Reach::Stdio(Program { sandbox, .. }) => {
                Some((server.name.as_str().into(), sandbox.clone()))
            }
            Reach::Http(_) | Reach::Old(_) => None,
        });
        Self(programs.collect())
    }

    /// Whether a program that runs in one of these can do what it can no longer do under `next`: open a file that
    /// became the gateway's own, or what the sandbox of its server, which is another now, does not allow.
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

/// The names that a configuration knows.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Of servers.
    pub servers: BTreeSet<Box<str>>,
    /// Of callers with keys, and of the one without a credential.
    pub principals: BTreeSet<Box<str>>,
    /// Of issuers of access tokens, whose callers are `ISSUER/SUBJECT`, and `service:ISSUER/CLIENT` where a client calls
    /// in its own name.
    pub issuers: BTreeSet<Box<str>>,
    /// Callers come with certificates as well, and have the names that are in those.
    pub others: bool,
}

impl Names {
    /// The names in a configuration.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let principals = settings.identity.principals();
        let mut schemes = settings.listeners.iter().flat_map(|listener| &listener.schemes);
        Self {
            servers: settings.servers.iter().map(|server| server.name.as_str().into()).collect(),
            principals: principals.iter().map(|principal| principal.id.as_str().into()).collect(),
            issuers: settings.identity.issuers.iter().map(|issuer| issuer.name.clone()).collect(),
            others: schemes.any(|scheme| *scheme == Scheme::Certificate),
        }
    }

    /// Whether a caller can have this id.
    #[must_use]
    pub fn may_be(&self, id: &str) -> bool {
        let of_issuer = id.strip_prefix(SERVICE).unwrap_or(id);
        let issuer = of_issuer.split_once('/').map(|(issuer, _)| issuer);
        self.others
            || self.principals.contains(id)
            || issuer.is_some_and(|issuer| self.issuers.contains(issuer))
    }
}

/// The one in force.
#[derive(Debug)]
pub struct Live {
    now: ArcSwap<Generation>,
    /// Those before it that may still have something under way.
    before: Mutex<Vec<Replaced>>,
}

/// One that was in force.
#[derive(Debug)]
struct Replaced {
    gateway: Weak<Gateway>,
    sandboxes: Sandboxes,
}

impl Live {
    /// This one is in force.
    #[must_use]
    pub fn new(generation: Generation) -> Self {
        Self { now: ArcSwap::from_pointee(generation), before: Mutex::default() }
    }

    /// The one in force.
    #[must_use]
    pub fn now(&self) -> Arc<Generation> {
        self.now.load_full()
    }

    /// From now on another is in force. What is under way goes on under its own; streams that would
    /// never end by themselves end, and their clients come back. Programs in sandboxes that allow more than is allowed
    /// now end soon, also with something under way.
    pub fn replace(&self, generation: Generation) {
        let next = generation.sandboxes.clone();
        let former = self.now.swap(Arc::new(generation));
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        before.retain(|one| one.gateway.strong_count() > 0);
        let gateway = Arc::downgrade(&former.gateway);
        before.push(Replaced { gateway, sandboxes: former.sandboxes.clone() });
        let outdated = before.iter().filter(|one| one.sandboxes.are_outdated_by(&next));
        let outdated: Vec<_> = outdated.filter_map(|one| one.gateway.upgrade()).collect();
        drop(before);
        former.gateway.tasks.retire();
        if !outdated.is_empty() {
            tracing::info!(
                seconds = LAST_CALLS.as_secs(),
                "programs may do less than before: those of former configurations are ended"
            );
        }
        for gateway in outdated {
            gateway.tasks.spawn_service(dismissed(gateway.tasks.clone()));
        }
    }

    /// What is revoked is revoked for what is under way as well.
    pub fn revoke(&self, revoked: &Revoked) {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let before: Vec<_> = before.iter().filter_map(|one| one.gateway.upgrade()).collect();
        for gateway in before {
            gateway.revoke(revoked);
        }
        self.now().gateway.revoke(revoked);
    }
}

/// Ends programs that are still in use when they have had [`LAST_CALLS`].
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
    use crate::process::sandbox::{Network, Plan};

    fn of(programs: &[(&str, Option<Plan>)]) -> Sandboxes {
        Sandboxes(programs.iter().map(|(name, plan)| ((*name).into(), plan.clone())).collect())
    }

    #[test]
    fn a_program_is_outdated_when_its_sandbox_allows_what_is_no_longer_allowed() {
        let hiding = |files: &[&str]| {
            let mut plan = Plan::usual();
            plan.keep_back(&files.iter().map(PathBuf::from).collect::<Vec<_>>(), &[]);
            Some(plan)
        };
        let closed = Some(Plan { network: Network::None, ..Plan::usual() });
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
