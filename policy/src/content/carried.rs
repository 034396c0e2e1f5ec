//! What callers were shown of secrets, so that they are known again when they are sent elsewhere
//! (control C26).
//!
//! Kept are digests under a random key, so many for each caller and server, in memory alone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Most values that are kept of what one server gave one caller; the oldest goes first.
const VALUES: usize = 256;
/// Most pairs of a caller and a server; the one that was least recently new goes first.
const PAIRS: usize = 4096;
/// Of a digest so much is kept, in bytes.
const DIGEST: usize = 8;

type Digest = [u8; DIGEST];

/// How much was known of what one caller was shown: while it is the same, so is what is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// The turn of what was learned last. Turns are never used twice.
    last: u64,
    /// Of how many servers something is known; without a new turn it only falls, as what is old is dropped.
    servers: usize,
}

/// What callers were shown.
#[derive(Debug, Default)]
pub(super) struct Carried {
    // Taken only where a secret was found, or somebody has learned something since; that is no hot path.
    kept: Mutex<Kept>,
    /// How many values were new.
    learned: AtomicU64,
}

/// A caller and a server.
type Pair = (Box<str>, Box<str>);

#[derive(Debug, Default)]
struct Kept {
    turn: u64,
    /// What each was given.
    of: BTreeMap<Pair, Given>,
}

/// What a caller was given by one server.
#[derive(Debug, Default)]
struct Given {
    /// When there was last anything.
    used: u64,
    /// When there was last something new.
    new: u64,
    values: VecDeque<Digest>,
}

impl Kept {
    /// What the caller was given, with the servers that gave it.
    fn of_caller<'a>(&'a self, caller: &'a str) -> impl Iterator<Item = (&'a str, &'a Given)> {
        let from: Pair = (caller.into(), "".into());
        let given = self.of.range(from..).take_while(move |((known, _), _)| &**known == caller);
        given.map(|((_, server), given)| (&**server, given))
    }
}

fn short(digest: &[u8]) -> Digest {
    digest.first_chunk().copied().unwrap_or_default()
}

impl Carried {
    /// From now on `caller` has it from `server`.
    pub(super) fn keep(&self, caller: &str, server: &str, digest: &[u8]) {
        let digest = short(digest);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.turn += 1;
        let turn = kept.turn;
        let pair = (caller.into(), server.into());
        if kept.of.len() >= PAIRS && !kept.of.contains_key(&pair) {
            let oldest = kept.of.iter().min_by_key(|(_, given)| given.used);
            if let Some(oldest) = oldest.map(|(pair, _)| pair.clone()) {
                kept.of.remove(&oldest);
                self.learned.fetch_add(1, Ordering::Release);
            }
        }
        let given = kept.of.entry(pair).or_default();
        given.used = turn;
        if !given.values.contains(&digest) {
            given.new = turn;
            given.values.push_back(digest);
            if given.values.len() > VALUES {
                given.values.pop_front();
            }
            self.learned.fetch_add(1, Ordering::Release);
        }
    }

    /// How often something was learned of any caller, or forgotten: while this is the same, the same text is
    /// found to be the same, whoever sends it.
    pub(super) fn learned(&self) -> u64 {
        self.learned.load(Ordering::Acquire)
    }

    /// The same of one caller: while this is the same, the same text that it sends is found to be the same.
    pub(super) fn learned_of(&self, caller: &str) -> Learned {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut learned = Learned::default();
        for (_, given) in kept.of_caller(caller) {
            learned.last = learned.last.max(given.new);
            learned.servers += 1;
        }
        learned
    }

    /// Whether `caller` has it from a server other than `server`, and not from that one too.
    pub(super) fn is_of_another(&self, caller: &str, server: &str, digest: &[u8]) -> bool {
        let digest = short(digest);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut other, mut own) = (false, false);
        for (known, given) in kept.of_caller(caller) {
            if given.values.contains(&digest) {
                own |= known == server;
                other |= known != server;
            }
        }
        other && !own
    }
}

#[cfg(test)]
mod tests {
    use super::{Carried, PAIRS, VALUES};

    #[test]
    fn what_one_server_gave_is_known_at_another_only() {
        let carried = Carried::default();
        carried.keep("ana", "crm", b"12345678");
        assert!(carried.is_of_another("ana", "web", b"12345678"));
        assert!(!carried.is_of_another("ana", "crm", b"12345678"));
        assert!(!carried.is_of_another("bob", "web", b"12345678"));
        assert!(!carried.is_of_another("ana", "web", b"87654321"));
        let learned = carried.learned();
        carried.keep("ana", "web", b"12345678");
        assert!(!carried.is_of_another("ana", "web", b"12345678"));
        assert!(carried.learned() > learned);
        let learned = carried.learned();
        carried.keep("ana", "web", b"12345678");
        assert_eq!(carried.learned(), learned, "nothing was new");
    }

    #[test]
    fn it_is_bounded() {
        let carried = Carried::default();
        for n in 0..2 * PAIRS {
            carried.keep(&format!("caller {n}"), "crm", b"12345678");
        }
        for n in 0..2 * VALUES {
            carried.keep("ana", "crm", &n.to_be_bytes());
        }
        let kept = carried.kept.lock().unwrap();
        assert_eq!(kept.of.len(), PAIRS);
        assert_eq!(kept.of[&("ana".into(), "crm".into())].values.len(), VALUES);
    }

    #[test]
    fn what_one_caller_was_shown_changes_nothing_for_another() {
        let carried = Carried::default();
        carried.keep("ana", "crm", b"12345678");
        let (of_ana, of_all) = (carried.learned_of("ana"), carried.learned());
        for n in 0_u64..100 {
            carried.keep("bob", "crm", &n.to_be_bytes());
            carried.keep("anabel", "crm", &n.to_be_bytes());
        }
        carried.keep("ana", "crm", b"12345678");
        assert_eq!(carried.learned_of("ana"), of_ana);
        assert!(carried.learned() > of_all);
        carried.keep("ana", "crm", b"87654321");
        let more = carried.learned_of("ana");
        assert_ne!(more, of_ana);
        carried.keep("ana", "web", b"12345678");
        assert_ne!(carried.learned_of("ana"), more);
    }

    #[test]
    fn what_is_forgotten_of_a_caller_changes_what_is_known_of_it() {
        let carried = Carried::default();
        carried.keep("ana", "crm", b"12345678");
        carried.keep("ana", "web", b"12345678");
        let before = carried.learned_of("ana");
        for n in 0..PAIRS - 1 {
            carried.keep(&format!("caller {n}"), "crm", b"12345678");
        }
        assert_ne!(carried.learned_of("ana"), before, "the older of the two was dropped");
    }
}
