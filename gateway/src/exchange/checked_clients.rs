//! Cache of client descriptions that passed inspection, because modern clients repeat theirs in every request.
//!
//! It belongs to one configuration generation and thus to one policy. Evicting an entry only costs another inspection.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use detection::content::TrackerVersion;
use detection::inspect::Finding;
use policy_core::subject::principal::Principal;

use crate::mcp::client_info::Client;
use crate::session::disclosed_client::DisclosedClient;

/// Largest number of cached descriptions.
const SLOTS: usize = 1024;
/// How long an approval by guardrails is valid; a guardrail may decide differently later.
const AGREED: Duration = Duration::from_mins(1);

/// The cache key: a client description with its caller, route and servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientCheckKey {
    pub(super) route: Arc<str>,
    /// Indexes on the route of the servers that receive the description.
    pub(super) servers: Box<[usize]>,
    pub(super) caller: Arc<Principal>,
    pub(super) client: Arc<Client>,
}

/// The result of an inspection that passed.
#[derive(Debug)]
pub(super) struct CheckedClient {
    /// The client as servers see it.
    pub(super) client: DisclosedClient,
    /// Findings that did not stop the description.
    pub(super) found: Vec<Finding>,
    /// When the guardrails of the route approved it; `None` unless all of them answered.
    pub(super) agreed: Option<Instant>,
    /// The detectors' state about values that the caller must not send to other servers; see
    /// [`Policy::learned_of`](policy::engine::pipeline::Policy::learned_of).
    pub(super) learned: TrackerVersion,
    /// The detectors' state about all callers when `learned` was last seen to be unchanged; see
    /// [`Policy::learned`](policy::engine::pipeline::Policy::learned).
    pub(super) of_all: AtomicU64,
}

impl CheckedClient {
    /// Whether the detectors' state is unchanged, so that the findings still hold. `of_caller` takes a lock, so it is
    /// called only if `of_all`, which has to be read before, differs.
    pub(super) fn is_current(
        &self,
        of_all: u64,
        of_caller: impl FnOnce() -> TrackerVersion,
    ) -> bool {
        if self.of_all.load(Ordering::Acquire) == of_all {
            return true;
        }
        let is_same = of_caller() == self.learned;
        if is_same {
            self.of_all.store(of_all, Ordering::Release);
        }
        is_same
    }

    /// When the guardrails approved, if they need not be asked again at `now`.
    pub(super) fn agreed(&self, now: Instant) -> Option<Instant> {
        self.agreed.filter(|at| now.saturating_duration_since(*at) < AGREED)
    }
}

#[derive(Debug)]
struct CheckedClientEntry {
    said: ClientCheckKey,
    passed: Arc<CheckedClient>,
}

/// A fixed-size cache in which each key has one slot. The hash is keyed, so that a client cannot choose whose slot it
/// evicts, and the slots are lock-free.
pub struct CheckedClients {
    slots: Box<[ArcSwapOption<CheckedClientEntry>]>,
    hasher: RandomState,
}

impl Default for CheckedClients {
    fn default() -> Self {
        let slots = std::iter::repeat_with(ArcSwapOption::empty).take(SLOTS).collect();
        Self { slots, hasher: RandomState::new() }
    }
}

impl fmt::Debug for CheckedClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Introductions").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

impl CheckedClients {
    /// The cached result for this description.
    pub(super) fn find(&self, said: &ClientCheckKey) -> Option<Arc<CheckedClient>> {
        let known = self.slot(said)?.load();
        let CheckedClientEntry { said: before, passed } = &**known.as_ref()?;
        (before == said).then(|| Arc::clone(passed))
    }

    /// Caches the result for this description.
    pub(super) fn keep(&self, said: ClientCheckKey, passed: Arc<CheckedClient>) {
        if let Some(slot) = self.slot(&said) {
            slot.store(Some(Arc::new(CheckedClientEntry { said, passed })));
        }
    }

    fn slot(&self, said: &ClientCheckKey) -> Option<&ArcSwapOption<CheckedClientEntry>> {
        let ClientCheckKey { route, servers, caller, client } = said;
        let hash = self.hasher.hash_one((route, servers, caller.key(), client));
        self.slots.get(usize::try_from(hash % SLOTS as u64).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::{AGREED, CheckedClient, CheckedClients, ClientCheckKey};
    use crate::base::clock::{Clock as _, SystemClock};
    use crate::mcp::client_info::Client;
    use crate::session::disclosed_client::DisclosedClient;
    use detection::content::TrackerVersion;
    use policy_core::subject::name::{GroupName, PrincipalId};
    use policy_core::subject::principal::Principal;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::{Duration, Instant};

    fn said(groups: &[&str], info: &str, servers: &[usize]) -> ClientCheckKey {
        let groups = groups.iter().map(|group| GroupName::parse(group).unwrap()).collect();
        ClientCheckKey {
            route: "/mcp".into(),
            servers: servers.into(),
            caller: Arc::new(Principal::new(PrincipalId::parse("ana").unwrap(), groups)),
            client: Arc::new(Client::gateway().told(None, Some(info))),
        }
    }

    fn passed(agreed: Option<Instant>) -> CheckedClient {
        let (client, learned) = (DisclosedClient::gateway(), TrackerVersion::default());
        CheckedClient { client, found: Vec::new(), agreed, learned, of_all: AtomicU64::new(7) }
    }

    #[test]
    fn an_introduction_is_known_again_by_all_that_it_was_judged_by() {
        let (known, now) = (CheckedClients::default(), SystemClock.instant());
        let first = said(&["dev"], r#"{"name":"a"}"#, &[0]);
        assert!(known.find(&first).is_none());
        known.keep(first.clone(), Arc::new(passed(Some(now))));
        assert!(known.find(&said(&["dev"], r#"{"name":"a"}"#, &[0])).is_some());
        for other in [
            said(&["ops"], r#"{"name":"a"}"#, &[0]),
            said(&["dev"], r#"{"name":"b"}"#, &[0]),
            said(&["dev"], r#"{"name":"a"}"#, &[0, 1]),
            ClientCheckKey { route: "/two".into(), ..first.clone() },
        ] {
            assert!(known.find(&other).is_none(), "{other:?}");
        }
        // Another policy is another generation, which remembers nothing.
        assert!(CheckedClients::default().find(&first).is_none());
    }

    #[test]
    fn the_word_of_guardrails_counts_for_a_minute_and_that_of_the_detectors_until_they_learn() {
        let now = SystemClock.instant();
        let agreed = passed(Some(now));
        assert_eq!(agreed.agreed(now + AGREED - Duration::from_millis(1)), Some(now));
        assert_eq!(agreed.agreed(now + AGREED), None);
        assert_eq!(passed(None).agreed(now), None);
        let never = || -> TrackerVersion { panic!("nothing was learned of anybody") };
        assert!(agreed.is_current(7, never));
        // Something was learned of another caller: that is looked up once.
        assert!(agreed.is_current(8, TrackerVersion::default));
        assert!(agreed.is_current(8, never));
    }
}
