//! What clients said of themselves and was found to pass, so that it is not looked at again with every
//! request: a modern client repeats it in each.
//!
//! It belongs to one generation of the configuration, and with that to one policy. It is a cache: an entry
//! that is pushed out by another costs a look and nothing else.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use policy::inspect::Finding;
use policy::principal::Principal;

use crate::client::Client;

/// Most introductions that are remembered.
const SLOTS: usize = 1024;
/// How long the word of guardrails about an introduction counts, which may change their minds.
const AGREED: Duration = Duration::from_mins(1);

/// Who introduces itself with what, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Introduction {
    pub(super) route: Arc<str>,
    /// The places on the route of the servers that may be told.
    pub(super) servers: Box<[usize]>,
    pub(super) caller: Arc<Principal>,
    pub(super) client: Arc<Client>,
}

/// What passed.
#[derive(Debug)]
pub(super) struct Passed {
    /// The client, as servers are told of it.
    pub(super) client: Arc<Client>,
    /// What was found in what it said and let pass.
    pub(super) found: Vec<Finding>,
    /// When the guardrails of the route have agreed.
    pub(super) at: Instant,
    /// What the detectors knew of values that must not be sent elsewhere; see
    /// [`Policy::learned`](policy::pipeline::Policy::learned).
    pub(super) learned: u64,
}

#[derive(Debug)]
struct Known {
    said: Introduction,
    passed: Arc<Passed>,
}

/// Introductions that passed: each has one place by its hash, which is keyed so that nobody chooses whose
/// place is taken. No request waits for another here.
pub struct Introductions {
    slots: Box<[ArcSwapOption<Known>]>,
    hasher: RandomState,
}

impl Default for Introductions {
    fn default() -> Self {
        let slots = std::iter::repeat_with(ArcSwapOption::empty).take(SLOTS).collect();
        Self { slots, hasher: RandomState::new() }
    }
}

impl fmt::Debug for Introductions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Introductions").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

impl Introductions {
    /// What passed of this introduction, if it did not too long ago and the detectors knew no less.
    pub(super) fn find(
        &self,
        said: &Introduction,
        (now, learned): (Instant, u64),
    ) -> Option<Arc<Passed>> {
        let known = self.slot(said)?.load();
        let Known { said: before, passed } = &**known.as_ref()?;
        let fresh = now.saturating_duration_since(passed.at) < AGREED && passed.learned == learned;
        (fresh && before == said).then(|| Arc::clone(passed))
    }

    /// Remembers what passed.
    pub(super) fn keep(&self, said: Introduction, passed: Arc<Passed>) {
        if let Some(slot) = self.slot(&said) {
            slot.store(Some(Arc::new(Known { said, passed })));
        }
    }

    fn slot(&self, said: &Introduction) -> Option<&ArcSwapOption<Known>> {
        let Introduction { route, servers, caller, client } = said;
        let hash = self.hasher.hash_one((route, servers, caller.key(), client));
        self.slots.get(usize::try_from(hash % SLOTS as u64).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::{AGREED, Introduction, Introductions, Passed};
    use crate::client::Client;
    use crate::clock::{Clock as _, System};
    use policy::name::{GroupName, PrincipalId};
    use policy::principal::Principal;
    use std::sync::Arc;
    use std::time::Duration;

    fn said(groups: &[&str], info: &str, servers: &[usize]) -> Introduction {
        let groups = groups.iter().map(|group| GroupName::parse(group).unwrap()).collect();
        Introduction {
            route: "/mcp".into(),
            servers: servers.into(),
            caller: Arc::new(Principal::new(PrincipalId::parse("ana").unwrap(), groups)),
            client: Arc::new(Client::gateway().told(None, Some(info))),
        }
    }

    #[test]
    fn an_introduction_is_known_again_by_all_that_it_was_judged_by() {
        let (known, now) = (Introductions::default(), System.instant());
        let first = said(&["dev"], r#"{"name":"a"}"#, &[0]);
        assert!(known.find(&first, (now, 0)).is_none());
        let client = Arc::clone(&first.client);
        let passed = Arc::new(Passed { client, found: Vec::new(), at: now, learned: 7 });
        known.keep(first.clone(), passed);
        assert!(known.find(&said(&["dev"], r#"{"name":"a"}"#, &[0]), (now, 7)).is_some());
        for other in [
            said(&["ops"], r#"{"name":"a"}"#, &[0]),
            said(&["dev"], r#"{"name":"b"}"#, &[0]),
            said(&["dev"], r#"{"name":"a"}"#, &[0, 1]),
            Introduction { route: "/two".into(), ..first.clone() },
        ] {
            assert!(known.find(&other, (now, 7)).is_none(), "{other:?}");
        }
        // The detectors know more, or guardrails are to be asked again.
        assert!(known.find(&first, (now, 8)).is_none());
        assert!(known.find(&first, (now + AGREED - Duration::from_millis(1), 7)).is_some());
        assert!(known.find(&first, (now + AGREED, 7)).is_none());
        // Another policy is another generation, which remembers nothing.
        assert!(Introductions::default().find(&first, (now, 7)).is_none());
    }
}
