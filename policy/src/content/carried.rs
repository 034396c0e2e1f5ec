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

/// What callers were shown.
#[derive(Debug, Default)]
pub(super) struct Carried {
    // Taken only where a secret was found; that is no hot path.
    kept: Mutex<Kept>,
    /// How many values were new.
    learned: AtomicU64,
}

/// A caller and a server.
type Pair = (Box<str>, Box<str>);

#[derive(Debug, Default)]
struct Kept {
    turn: u64,
    /// What each was given, and when there was last something new.
    of: BTreeMap<Pair, (u64, VecDeque<Digest>)>,
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
            let oldest = kept.of.iter().min_by_key(|(_, (turn, _))| *turn);
            if let Some(oldest) = oldest.map(|(pair, _)| pair.clone()) {
                kept.of.remove(&oldest);
            }
        }
        let (used, values) = kept.of.entry(pair).or_default();
        *used = turn;
        if !values.contains(&digest) {
            values.push_back(digest);
            if values.len() > VALUES {
                values.pop_front();
            }
            self.learned.fetch_add(1, Ordering::Release);
        }
    }

    /// How many values were new until now: while this is the same, the same text is found to be the same.
    pub(super) fn learned(&self) -> u64 {
        self.learned.load(Ordering::Acquire)
    }

    /// Whether `caller` has it from a server other than `server`, and not from that one too.
    pub(super) fn is_of_another(&self, caller: &str, server: &str, digest: &[u8]) -> bool {
        let digest = short(digest);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let from: Pair = (caller.into(), "".into());
        let of_caller = kept.of.range(from..).take_while(|((known, _), _)| &**known == caller);
        let (mut other, mut own) = (false, false);
        for ((_, known), (_, values)) in of_caller {
            if values.contains(&digest) {
                own |= &**known == server;
                other |= &**known != server;
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
        assert_eq!(kept.of[&("ana".into(), "crm".into())].1.len(), VALUES);
    }
}
