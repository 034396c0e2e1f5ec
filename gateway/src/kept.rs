//! Results that are too long for an answer, kept for the caller who got them (control C14).
//!
//! In memory, so many bytes of one caller and of all; the oldest of a caller make room for new ones.
//! Nobody else can read them, and after a while nobody can.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use policy::json::Fragment;
use policy::name::{RuleId, ServerName};

use crate::seal;

/// What the URI of a kept result begins with.
pub const SCHEME: &str = "portcullis://results/";
/// The part of all that one caller may take: one in so many.
const SHARE: usize = 4;

/// A result, and whose it is.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The result, as it may be shown.
    pub result: Fragment,
    /// What came of which tool.
    pub tool: Box<str>,
    /// Of which server.
    pub server: ServerName,
    /// The rule that allowed the call.
    pub rule: RuleId,
}

#[derive(Debug)]
struct Entry {
    kept: Kept,
    until: Instant,
}

/// One caller on one route.
type Owner = (Box<str>, Box<str>);

#[derive(Debug, Default)]
struct All {
    bytes: usize,
    owners: BTreeMap<Owner, VecDeque<([u8; 16], Entry)>>,
}

/// The results that are kept.
#[derive(Debug)]
pub struct Results {
    most: usize,
    time: Duration,
    // No hot path: most results are short.
    all: Mutex<All>,
}

impl Entry {
    fn size(&self) -> usize {
        self.kept.result.value().raw().len()
    }
}

impl Results {
    /// None yet: so many bytes, each for so long.
    #[must_use]
    pub fn new(most: usize, time: Duration) -> Self {
        Self { most, time, all: Mutex::default() }
    }

    /// For how long.
    #[must_use]
    pub const fn time(&self) -> Duration {
        self.time
    }

    /// Keeps a result for a caller on a route: under which URI. `None` if there is no room.
    #[must_use]
    pub fn keep(&self, caller: &str, route: &str, kept: Kept, now: Instant) -> Option<String> {
        let entry = Entry { kept, until: now + self.time };
        let size = entry.size();
        if size > self.most / SHARE {
            return None;
        }
        let name: [u8; 16] = seal::random().ok()?;
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.drop_until(now);
        let owner = (caller.into(), route.into());
        let All { bytes, owners } = &mut *all;
        if *bytes + size > self.most && !owners.contains_key(&owner) {
            return None;
        }
        let own = owners.entry(owner.clone()).or_default();
        let mut held: usize = own.iter().map(|(_, entry)| entry.size()).sum();
        while held + size > self.most / SHARE || *bytes + size > self.most {
            let Some((_, oldest)) = own.pop_front() else { break };
            held -= oldest.size();
            *bytes -= oldest.size();
        }
        if *bytes + size > self.most {
            if own.is_empty() {
                owners.remove(&owner);
            }
            return None;
        }
        *bytes += size;
        own.push_back((name, entry));
        Some(format!("{SCHEME}{}", crate::hex::encode(&name)))
    }

    /// The result under a URI, if it is one of this caller's on this route.
    #[must_use]
    pub fn find(&self, caller: &str, route: &str, uri: &str, now: Instant) -> Option<Kept> {
        let name = crate::hex::decode(uri.strip_prefix(SCHEME)?)?;
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.owners.get(&(caller.into(), route.into()))?;
        let named = |(known, entry): &&([u8; 16], Entry)| known[..] == *name && entry.until > now;
        own.iter().find(named).map(|(_, entry)| entry.kept.clone())
    }

    /// Drops what nobody can read any more.
    pub fn sweep(&self, now: Instant) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).drop_until(now);
    }
}

impl All {
    fn drop_until(&mut self, now: Instant) {
        let Self { bytes, owners } = self;
        owners.retain(|_, own| {
            while let Some((_, first)) = own.front().filter(|(_, first)| first.until <= now) {
                *bytes -= first.size();
                own.pop_front();
            }
            !own.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use policy::json::{Bounds, Document, Fragment};
    use policy::name::{RuleId, ServerName};

    use super::{Kept, Results};
    use crate::clock::{Clock as _, System};

    fn kept(bytes: usize) -> Kept {
        let text = format!("\"{}\"", "x".repeat(bytes - 2));
        let document = Document::parse(text.into(), &Bounds::MESSAGE).unwrap();
        Kept {
            result: Fragment::whole(Arc::new(document)),
            tool: "work".into(),
            server: ServerName::parse("up").unwrap(),
            rule: RuleId::parse("open").unwrap(),
        }
    }

    #[test]
    fn only_its_caller_reads_it_and_only_for_a_while() {
        let (results, now) = (Results::new(4000, Duration::from_secs(60)), System.instant());
        let uri = results.keep("ana", "/mcp", kept(500), now).unwrap();
        assert!(results.find("ana", "/mcp", &uri, now).is_some());
        assert!(results.find("bob", "/mcp", &uri, now).is_none());
        assert!(results.find("ana", "/other", &uri, now).is_none());
        assert!(results.find("ana", "/mcp", "portcullis://results/00", now).is_none());
        assert!(results.find("ana", "/mcp", &uri, now + Duration::from_secs(61)).is_none());
        results.sweep(now + Duration::from_secs(61));
        assert_eq!(results.all.lock().unwrap().bytes, 0);
    }

    #[test]
    fn new_ones_take_the_place_of_old_ones_of_the_same_caller_alone() {
        let (results, now) = (Results::new(4000, Duration::from_secs(60)), System.instant());
        let first = results.keep("ana", "/mcp", kept(600), now).unwrap();
        let second = results.keep("ana", "/mcp", kept(600), now).unwrap();
        assert!(results.find("ana", "/mcp", &first, now).is_none());
        assert!(results.find("ana", "/mcp", &second, now).is_some());
        for caller in ["b", "c", "d"] {
            assert!(results.keep(caller, "/mcp", kept(1000), now).is_some());
        }
        assert!(results.keep("e", "/mcp", kept(1000), now).is_none());
        assert!(results.keep("f", "/mcp", kept(2000), now).is_none());
        assert!(results.find("ana", "/mcp", &second, now).is_some());
        assert!(results.all.lock().unwrap().bytes <= 4000);
    }
}
