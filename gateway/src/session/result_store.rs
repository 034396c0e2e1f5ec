//! Stores results that are too long for one response, for the caller that received them (control C14).
//!
//! Results are kept in memory for a limited time, with a limit in bytes for each caller and for all; the oldest
//! results of a caller make room for its new ones. No other caller can read them. A result is stored with its call,
//! so that the policy decides again on each read.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use policy::engine::message::ItemRequest;
use policy::engine::pipeline::StoredWords;
use policy_core::subject::principal::Principal;
use policy_core::subject::uri::ResourceUri;

use crate::base::random;

/// The prefix of the URI of a stored result.
pub const SCHEME: &str = "portcullis://results/";

/// The part of a URI after [`SCHEME`]; `None` for any other URI. Compares the canonical form, in which the case of
/// scheme and authority is ignored (RFC 3986, section 6.2.2.1).
#[must_use]
pub fn name_in(uri: &str) -> Option<Box<str>> {
    let uri = ResourceUri::parse(uri).ok()?;
    let (head, name) = uri.as_str().split_at_checked(SCHEME.len())?;
    head.eq_ignore_ascii_case(SCHEME).then(|| name.into())
}

/// A stored result and its call.
#[derive(Clone, Debug)]
pub struct StoredResult {
    /// The result, in the form in which it may be shown, detached from the message it arrived in.
    pub result: StoredWords,
    /// The call that produced it.
    pub call: ItemRequest,
    /// The number of bytes of a request body that the call keeps in memory.
    pub held: usize,
    /// The digest of the settings under which it was released.
    pub content_digest: [u8; 32],
    /// The caller that it was released to.
    pub caller: Arc<Principal>,
}

#[derive(Debug)]
struct ResultEntry {
    name: [u8; 16],
    /// The key of the principal, which includes its client and key.
    key: Box<str>,
    route: Box<str>,
    kept: StoredResult,
    until: Instant,
}

#[derive(Debug, Default)]
struct ResultTable {
    bytes: usize,
    /// By the id of the principal, for all its clients, keys and routes.
    callers: BTreeMap<Box<str>, VecDeque<ResultEntry>>,
}

/// The store of results.
#[derive(Debug)]
pub struct ResultStore {
    most: usize,
    /// The maximum number of bytes of one caller.
    each: usize,
    time: Duration,
    // Not on a hot path: most results are short.
    all: Mutex<ResultTable>,
}

impl ResultEntry {
    fn size(&self) -> usize {
        self.kept.result.length() + self.kept.held
    }
}

impl ResultStore {
    /// An empty store for `most` bytes in total and `each` bytes of one caller, which keeps a result for `time`.
    #[must_use]
    pub fn new(most: usize, each: usize, time: Duration) -> Self {
        Self { most, each, time, all: Mutex::default() }
    }

    /// How long a result is kept.
    #[must_use]
    pub const fn time(&self) -> Duration {
        self.time
    }

    /// Stores a result for a caller on a route and returns its URI; `None` if there is no room.
    #[must_use]
    pub fn keep(
        &self,
        caller: &Principal,
        route: &str,
        kept: StoredResult,
        now: Instant,
    ) -> Option<String> {
        let (name, until) = (random::bytes().ok()?, now + self.time);
        let (key, route) = (caller.key().into(), route.into());
        let entry = ResultEntry { name, key, route, kept, until };
        let (size, share) = (entry.size(), self.each);
        if size > share {
            return None;
        }
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.drop_until(now);
        let ResultTable { bytes, callers } = &mut *all;
        let id = caller.id.as_str();
        let own = callers.get(id).into_iter().flatten();
        let mut held: usize = own.map(ResultEntry::size).sum();
        // Without this check the caller would lose its results, and there would be no room nevertheless.
        if *bytes - held + size > self.most {
            return None;
        }
        let own = callers.entry(id.into()).or_default();
        while held + size > share || *bytes + size > self.most {
            let Some(oldest) = own.pop_front() else { break };
            held -= oldest.size();
            *bytes -= oldest.size();
        }
        *bytes += size;
        own.push_back(entry);
        Some(format!("{SCHEME}{}", json::hex::encode(&name)))
    }

    /// The result with this URI, if it belongs to this caller on this route.
    #[must_use]
    pub fn find(
        &self,
        caller: &Principal,
        route: &str,
        uri: &str,
        now: Instant,
    ) -> Option<StoredResult> {
        let name = json::hex::decode(&name_in(uri)?)?;
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.callers.get(caller.id.as_str())?;
        let is = |entry: &&ResultEntry| {
            entry.name[..] == *name
                && *entry.key == *caller.key()
                && *entry.route == *route
                && entry.until > now
        };
        own.iter().find(is).map(|entry| entry.kept.clone())
    }

    /// Removes the results that have expired.
    pub fn sweep(&self, now: Instant) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).drop_until(now);
    }
}

impl ResultTable {
    fn drop_until(&mut self, now: Instant) {
        let Self { bytes, callers } = self;
        callers.retain(|_, own| {
            while let Some(first) = own.front().filter(|first| first.until <= now) {
                *bytes -= first.size();
                own.pop_front();
            }
            !own.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use detection::labels::{ConcealedMembers, LabelledPart};
    use json::{Document, Fragment, JsonBounds};
    use policy::engine::message::{ItemRequest, RequestOperation};
    use policy::engine::pipeline::{EarlyMessage, Policy, StoredWords, VisibleReply};
    use policy_core::base::work::WorkBudget;
    use policy_core::subject::name::{ClientId, PrincipalId, ServerName};
    use policy_core::subject::principal::Principal;

    use super::{ResultStore, StoredResult, name_in};
    use crate::base::clock::{Clock as _, SystemClock};

    /// A released text of this length, with its quotation marks.
    fn words(bytes: usize) -> StoredWords {
        let text = format!("\"{}\"", "-".repeat(bytes - 2));
        let document = Document::parse(text.into(), &JsonBounds::ANSWER).unwrap();
        let said = Fragment::whole(std::sync::Arc::new(document));
        let (policy, server) = (Policy::default(), ServerName::parse("up").unwrap());
        let told = EarlyMessage { part: LabelledPart::Params, said };
        let (hidden, budget) = (ConcealedMembers::default(), WorkBudget::unlimited());
        let facts = policy.facts();
        let released =
            policy.release_early(&facts, &caller("ana"), &server, told, &hidden, &budget);
        let VisibleReply::Told(shown) = released.into_shown() else { panic!("not released") };
        let stored = shown.stored();
        assert_eq!(stored.length(), bytes);
        stored
    }

    fn kept(bytes: usize) -> StoredResult {
        let call = ItemRequest {
            server: ServerName::parse("up").unwrap(),
            verb: RequestOperation::Call,
            name: "work".into(),
            arguments: None,
            extra: Vec::new(),
            meta: Vec::new(),
        };
        StoredResult {
            result: words(bytes),
            call,
            held: 0,
            content_digest: [0; 32],
            caller: std::sync::Arc::new(caller("ana")),
        }
    }

    fn caller(id: &str) -> Principal {
        Principal::new(PrincipalId::parse(id).unwrap(), BTreeSet::new())
    }

    #[test]
    fn only_its_caller_reads_it_and_only_for_a_while() {
        let (results, now) =
            (ResultStore::new(4000, 1000, Duration::from_secs(60)), SystemClock.instant());
        let uri = results.keep(&caller("ana"), "/mcp", kept(500), now).unwrap();
        assert!(results.find(&caller("ana"), "/mcp", &uri, now).is_some());
        assert!(results.find(&caller("bob"), "/mcp", &uri, now).is_none());
        assert!(results.find(&caller("ana"), "/other", &uri, now).is_none());
        assert!(results.find(&caller("ana"), "/mcp", "portcullis://results/00", now).is_none());
        assert!(
            results.find(&caller("ana"), "/mcp", &uri, now + Duration::from_secs(61)).is_none()
        );
        results.sweep(now + Duration::from_secs(61));
        assert_eq!(results.all.lock().unwrap().bytes, 0);
    }

    #[test]
    fn a_uri_is_known_in_every_spelling() {
        for uri in ["portcullis://results/0a", "PORTCULLIS://results/0a", "Portcullis://Results/0a"]
        {
            assert_eq!(name_in(uri).as_deref(), Some("0a"), "{uri}");
        }
        for uri in ["portcullis://result/0a", "file:///portcullis://results/0a", "a", ""] {
            assert_eq!(name_in(uri), None, "{uri}");
        }
    }

    #[test]
    fn the_same_person_with_another_client_or_key_does_not_read_it() {
        let (results, now) =
            (ResultStore::new(4000, 1000, Duration::from_secs(60)), SystemClock.instant());
        let through = |client: Option<&str>, key: Option<&str>| {
            let mut caller = caller("ana");
            caller.claims.client = client.map(|client| ClientId::parse(client).unwrap());
            caller.claims.thumbprint = key.map(Into::into);
            caller.bound()
        };
        let uri = results.keep(&through(Some("app"), Some("k1")), "/mcp", kept(5), now).unwrap();
        let reads = |caller| results.find(&caller, "/mcp", &uri, now).is_some();
        assert!(reads(through(Some("app"), Some("k1"))));
        for other in [(None, None), (Some("app"), None), (None, Some("k1"))] {
            assert!(!reads(through(other.0, other.1)), "{other:?}");
        }
        assert!(!reads(through(Some("app"), Some("k2"))));
        assert!(!reads(through(Some("other"), Some("k1"))));
    }

    #[test]
    fn what_finds_no_room_in_any_case_takes_the_place_of_nothing() {
        let (results, now) =
            (ResultStore::new(4000, 1000, Duration::from_secs(60)), SystemClock.instant());
        let first = results.keep(&caller("ana"), "/mcp", kept(300), now).unwrap();
        for name in ["b", "c", "d"] {
            assert!(results.keep(&caller(name), "/mcp", kept(1000), now).is_some());
        }
        assert!(results.keep(&caller("e"), "/mcp", kept(500), now).is_some());
        assert!(results.keep(&caller("ana"), "/mcp", kept(600), now).is_none());
        assert!(results.find(&caller("ana"), "/mcp", &first, now).is_some());
        assert!(results.keep(&caller("ana"), "/mcp", kept(500), now).is_some());
        assert!(results.find(&caller("ana"), "/mcp", &first, now).is_none());
        assert_eq!(results.all.lock().unwrap().bytes, 4000);
    }

    #[test]
    fn new_ones_take_the_place_of_old_ones_of_the_same_caller_alone() {
        let (results, now) =
            (ResultStore::new(4000, 1000, Duration::from_secs(60)), SystemClock.instant());
        let first = results.keep(&caller("ana"), "/mcp", kept(600), now).unwrap();
        let second = results.keep(&caller("ana"), "/mcp", kept(600), now).unwrap();
        assert!(results.find(&caller("ana"), "/mcp", &first, now).is_none());
        assert!(results.find(&caller("ana"), "/mcp", &second, now).is_some());
        for name in ["b", "c", "d"] {
            assert!(results.keep(&caller(name), "/mcp", kept(1000), now).is_some());
        }
        assert!(results.keep(&caller("e"), "/mcp", kept(1000), now).is_none());
        assert!(results.keep(&caller("f"), "/mcp", kept(2000), now).is_none());
        assert!(results.find(&caller("ana"), "/mcp", &second, now).is_some());
        assert!(results.all.lock().unwrap().bytes <= 4000);
    }
}
