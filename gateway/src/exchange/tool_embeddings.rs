//! The embeddings of definitions that callers were shown, made in the background, and those of requests.
//!
//! A definition without an embedding is ranked by its words alone. Nobody waits for it: a search notes the definitions that
//! lack one, and a task asks for a few of them at a time. If there is no room for more, those go that no search has used
//! for a while; as long as all are in use, further definitions are ranked without.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::base::bounded::BoundedMap;
use crate::base::clock::Clock;
use crate::base::expiring_cache::{CacheKey, ExpiringCache};
use crate::base::sha256::sha256;
use crate::base::share::Holder;
use crate::base::task::Tasks;
use crate::config::settings::EmbeddingsSettings;
use crate::metrics::selection_outcome::SelectionOutcome;
use crate::outbound::embeddings::{Embedding, Embeddings, cosine};
use crate::outbound::environment::{Environment, EnvironmentError};

/// Most bytes of all embeddings of definitions.
const MAX_BYTES: usize = 128 * 1024 * 1024;
/// Most definitions that wait for an embedding; a later search notes the others again.
const MAX_WAITING: usize = 1024;
/// How long an embedding is kept at least that no search uses.
const UNUSED: Duration = Duration::from_secs(600);
/// How long nothing is tried after there was no room.
const FULL: Duration = Duration::from_secs(60);
/// How often the service may give no embedding of a text alone before it is not sent again.
const MAX_REFUSALS: u32 = 2;

/// The embeddings of one configuration.
#[derive(Debug)]
pub(super) struct ToolEmbeddings {
    client: Embeddings,
    requests: ExpiringCache<Embedding>,
    definitions: KeptEmbeddings,
    pending: Mutex<PendingTexts>,
    refusals: RefusalCounts,
    batch: usize,
    clock: Arc<dyn Clock>,
}

/// Texts without an embedding yet.
#[derive(Debug, Default)]
struct PendingTexts {
    waiting: BTreeMap<CacheKey, String>,
    /// Those that the service is being asked for.
    asked: BTreeSet<CacheKey>,
    /// Whether a task is at work.
    is_working: bool,
}

impl ToolEmbeddings {
    pub(super) fn new(
        settings: &EmbeddingsSettings,
        environment: &Environment,
    ) -> Result<Self, EnvironmentError> {
        Ok(Self {
            client: Embeddings::new(settings, environment)?,
            requests: ExpiringCache::new(settings.cache),
            definitions: KeptEmbeddings::new(
                settings.definitions,
                MAX_BYTES,
                environment.clock.instant(),
            ),
            pending: Mutex::default(),
            refusals: RefusalCounts::default(),
            batch: settings.batch,
            clock: Arc::clone(&environment.clock),
        })
    }

    /// The embedding of a request, if there are definitions to compare it with and the service answers in time.
    pub(super) async fn of_request(
        &self,
        holder: &Holder,
        request: &str,
        now: Instant,
    ) -> Option<Embedding> {
        if self.definitions.by_text.length() == 0 {
            return None;
        }
        let key = request_key(holder, request);
        if let Some(known) = self.requests.get(&key, now) {
            self.client.count(SelectionOutcome::Cached);
            return Some(known);
        }
        let made = self.client.of_request(holder, request).await;
        let outcome = made.as_ref().map_or_else(|outcome| *outcome, |_| SelectionOutcome::Answered);
        self.client.count(outcome);
        let made = made.ok()?;
        self.requests.insert(key, Arc::clone(&made), size_of_val(&*made), now);
        Some(made)
    }

    /// Counts a request that may not be sent.
    pub(super) fn note_withheld(&self) {
        self.client.count(SelectionOutcome::Content);
    }

    /// The cosine between the embeddings of a request and of the definition whose text has this digest.
    pub(super) fn cosine(&self, request: &[f32], text: &CacheKey, now: Instant) -> Option<f32> {
        self.definitions.used(text, now, |kept| cosine(request, kept))?
    }

    /// Whether the definition whose text has this digest has an embedding, which a search uses at `now`.
    pub(super) fn has(&self, text: &CacheKey, now: Instant) -> bool {
        self.definitions.used(text, now, |_| ()).is_some()
    }

    /// Whether there is no room for further embeddings for a while.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.definitions.is_full(now)
    }

    /// Has embeddings made of texts that lack one.
    pub(super) fn want(
        self: &Arc<Self>,
        texts: Vec<(CacheKey, String)>,
        now: Instant,
        tasks: &Tasks,
    ) {
        if self.is_full(now) {
            return;
        }
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, text) in texts {
            let is_new = !pending.asked.contains(&key) && !self.definitions.by_text.contains(&key);
            if is_new && pending.waiting.len() < MAX_WAITING {
                pending.waiting.insert(key, text);
            }
        }
        let is_idle = !pending.is_working && !pending.waiting.is_empty();
        if is_idle {
            pending.is_working = true;
            drop(pending);
            let this = Arc::clone(self);
            tasks.spawn(async move { this.work().await });
        }
    }

    /// Makes embeddings until none is wanted, there is no room, or the service fails.
    async fn work(&self) {
        while let Some(batch) = self.next_batch() {
            let texts: Vec<_> = batch.iter().map(|(_, text)| text.clone()).collect();
            let is_done = match self.made(&texts).await {
                Ok(made) => {
                    let keys = batch.into_iter().map(|(key, _)| key);
                    keys.zip(made).for_each(|(key, one)| self.keep(key, &one));
                    true
                }
                Err(outcome) if outcome.is_of_network() => false,
                Err(outcome) if batch.len() < 2 => {
                    batch.into_iter().for_each(|(key, _)| self.refused(key, outcome));
                    false
                }
                Err(_) => self.made_singly(batch).await,
            };
            if !is_done || self.is_full(self.clock.instant()) {
                // The next search asks again, if the circuit is closed then.
                let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
                *pending = PendingTexts::default();
                return;
            }
        }
    }

    /// Asks for the embedding of each text of a batch that the service does not take: one text must not cost the others
    /// theirs. A text that is the only one to be refused is not sent again. Returns whether any was taken.
    async fn made_singly(&self, batch: Vec<(CacheKey, String)>) -> bool {
        let (mut refused, mut is_any_taken) = (Vec::new(), false);
        for (key, text) in batch {
            match self.made(&[text]).await {
                Ok(made) => {
                    is_any_taken = true;
                    made.iter().for_each(|one| self.keep(key, one));
                }
                Err(outcome) if outcome.is_of_network() => return false,
                Err(outcome) => refused.push((key, outcome)),
            }
        }
        for (key, outcome) in refused {
            match is_any_taken {
                true => self.mark(key),
                false => self.refused(key, outcome),
            }
        }
        is_any_taken
    }

    /// Counts that the service gave no embedding of a text alone. An answer that is of no use says something of the text,
    /// if it comes again; a failure of the service says nothing of it.
    fn refused(&self, key: CacheKey, outcome: SelectionOutcome) {
        if !outcome.is_of_service() && self.refusals.is_last(key) {
            self.mark(key);
        }
    }

    /// Keeps an embedding that has no angle to any other, so that the text is not sent again.
    fn mark(&self, key: CacheKey) {
        self.keep(key, &Arc::from([]));
    }

    async fn made(&self, texts: &[String]) -> Result<Vec<Embedding>, SelectionOutcome> {
        // Nobody waits, so no caller pays with a share.
        let holder = Holder::Network(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let made = self.client.of_definitions(&holder, texts).await;
        let outcome = made.as_ref().map_or_else(|outcome| *outcome, |_| SelectionOutcome::Answered);
        self.client.count(outcome);
        made
    }

    fn next_batch(&self) -> Option<Vec<(CacheKey, String)>> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.asked.clear();
        let mut batch = Vec::new();
        while batch.len() < self.batch {
            let Some((key, text)) = pending.waiting.pop_first() else { break };
            pending.asked.insert(key);
            batch.push((key, text));
        }
        pending.is_working = !batch.is_empty();
        pending.is_working.then_some(batch)
    }

    fn keep(&self, key: CacheKey, embedding: &Embedding) {
        if !self.definitions.keep(key, embedding, self.clock.instant()) {
            tracing::warn!(
                event = "selection.embeddings_full",
                kept = self.definitions.by_text.length(),
                "there is no room for embeddings of further definitions: those are ranked without"
            );
        }
    }
}

/// The embeddings of definitions, with bounds on their number and on their bytes.
#[derive(Debug)]
struct KeptEmbeddings {
    /// By the digest of the text that they are made of.
    by_text: BoundedMap<CacheKey, KeptEmbedding>,
    bytes: AtomicUsize,
    most_bytes: usize,
    /// What seconds are counted from.
    start: Instant,
    /// Until when there is no room, in seconds.
    full_until: AtomicU64,
}

#[derive(Debug)]
struct KeptEmbedding {
    numbers: Embedding,
    /// When a search used it last, in seconds.
    used: AtomicU64,
}

impl KeptEmbeddings {
    fn new(most: usize, most_bytes: usize, start: Instant) -> Self {
        let (bytes, full_until) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { by_text: BoundedMap::new(most), bytes, most_bytes, start, full_until }
    }

    fn seconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_secs()
    }

    /// What `read` makes of the embedding of a text, which is used at `now`.
    fn used<T>(&self, text: &CacheKey, now: Instant, read: impl FnOnce(&[f32]) -> T) -> Option<T> {
        self.by_text.read(text, |kept| {
            kept.used.store(self.seconds(now), Ordering::Relaxed);
            read(&kept.numbers)
        })
    }

    fn is_full(&self, now: Instant) -> bool {
        self.seconds(now) < self.full_until.load(Ordering::Relaxed)
    }

    /// Keeps an embedding, in the place of unused ones if there is no other room. Returns whether there was any.
    fn keep(&self, text: CacheKey, numbers: &Embedding, now: Instant) -> bool {
        let has_room = self.insert(text, numbers, now)
            || self.forget_unused(now) && self.insert(text, numbers, now);
        let until = if has_room { 0 } else { self.seconds(now).saturating_add(FULL.as_secs()) };
        self.full_until.store(until, Ordering::Relaxed);
        has_room
    }

    fn insert(&self, text: CacheKey, numbers: &Embedding, now: Instant) -> bool {
        if self.by_text.contains(&text) {
            return true;
        }
        let bytes = size_of_val(&**numbers);
        let room = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.most_bytes);
        if self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_err() {
            return false;
        }
        let used = AtomicU64::new(self.seconds(now));
        let inserted =
            self.by_text.insert(text, KeptEmbedding { numbers: Arc::clone(numbers), used });
        if !matches!(inserted, Ok(None)) {
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        }
        inserted.is_ok()
    }

    /// Forgets what no search has used for a while. Returns whether there was any.
    fn forget_unused(&self, now: Instant) -> bool {
        let mut freed = None;
        self.by_text.retain(|_, kept| {
            let unused = self.seconds(now).saturating_sub(kept.used.load(Ordering::Relaxed));
            let is_kept = unused < UNUSED.as_secs();
            if !is_kept {
                freed = Some(freed.unwrap_or(0) + size_of_val(&*kept.numbers));
            }
            is_kept
        });
        self.bytes.fetch_sub(freed.unwrap_or(0), Ordering::AcqRel);
        freed.is_some()
    }
}

/// How often the service gave no embedding of a text alone.
#[derive(Debug, Default)]
struct RefusalCounts(Mutex<BTreeMap<CacheKey, u32>>);

impl RefusalCounts {
    /// Counts a refusal. Returns whether it is the last one; then it is forgotten.
    fn is_last(&self, text: CacheKey) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.get(&text).copied().unwrap_or(0) + 1;
        if count >= MAX_REFUSALS {
            counts.remove(&text);
            return true;
        }
        if counts.len() >= MAX_WAITING {
            counts.clear();
        }
        counts.insert(text, count);
        false
    }
}

/// Nobody learns from the time of an answer what another caller has asked: the request of each is its own.
fn request_key(holder: &Holder, request: &str) -> CacheKey {
    let mut text = format!("{:?}", holder.payer()).into_bytes();
    text.push(0);
    text.extend_from_slice(request.as_bytes());
    sha256(&text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{FULL, KeptEmbeddings, RefusalCounts, UNUSED};
    use crate::base::clock::{Clock as _, SystemClock};

    #[test]
    fn what_no_search_uses_makes_room_and_what_is_used_does_not() {
        let start = SystemClock.instant();
        let second = Duration::from_secs(1);
        let keeps = |kept: &KeptEmbeddings, n: u8, numbers: usize, at| {
            kept.keep([n; 32], &Arc::from(vec![1.0; numbers]), at)
        };
        let has = |kept: &KeptEmbeddings, n: u8| kept.by_text.contains(&[n; 32]);
        // By number, and by bytes.
        for (kept, size) in
            [(KeptEmbeddings::new(2, 1000, start), 1), (KeptEmbeddings::new(9, 80, start), 10)]
        {
            assert!(keeps(&kept, 0, size, start) && keeps(&kept, 1, size, start));
            assert!(keeps(&kept, 1, size, start), "it is there");
            assert!(!keeps(&kept, 2, size, start + second));
            assert!(kept.is_full(start + FULL) && !kept.is_full(start + FULL + second));
            let later = start + UNUSED;
            assert_eq!(kept.used(&[1; 32], later - second, <[f32]>::len), Some(size));
            assert!(keeps(&kept, 2, size, later) && !kept.is_full(later));
            assert!(!has(&kept, 0) && has(&kept, 1) && has(&kept, 2));
            assert!(!keeps(&kept, 3, size, later), "one has gone, and one has come");
            // Everything is given back.
            let last = later + UNUSED + UNUSED;
            assert!(keeps(&kept, 3, size, last) && keeps(&kept, 4, size, last));
            assert_eq!(kept.by_text.length(), 2);
        }
    }

    #[test]
    fn a_text_is_given_up_after_two_refusals() {
        let counts = RefusalCounts::default();
        assert!(!counts.is_last([1; 32]) && !counts.is_last([2; 32]));
        assert!(counts.is_last([1; 32]) && counts.is_last([2; 32]));
        assert!(!counts.is_last([1; 32]));
    }
}
