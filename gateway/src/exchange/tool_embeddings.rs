//! The embeddings of definitions that callers were shown, made in the background, and those of requests.
//!
//! A definition without an embedding is ranked by its words alone. Nobody waits for it: a search notes the definitions that
//! lack one, and a task asks for a few of them at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::base::bounded::BoundedMap;
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

/// The embeddings of one configuration.
#[derive(Debug)]
pub(super) struct ToolEmbeddings {
    client: Embeddings,
    requests: ExpiringCache<Embedding>,
    /// By the digest of the text that they are made of.
    definitions: BoundedMap<CacheKey, Embedding>,
    bytes: AtomicUsize,
    pending: Mutex<PendingTexts>,
    batch: usize,
    /// Whether the log has that there is no more room.
    is_full: AtomicBool,
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
            definitions: BoundedMap::new(settings.definitions),
            bytes: AtomicUsize::new(0),
            pending: Mutex::default(),
            batch: settings.batch,
            is_full: AtomicBool::new(false),
        })
    }

    /// The embedding of a request, if there are definitions to compare it with and the service answers in time.
    pub(super) async fn of_request(
        &self,
        holder: &Holder,
        request: &str,
        now: Instant,
    ) -> Option<Embedding> {
        if self.definitions.length() == 0 {
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
    pub(super) fn cosine(&self, request: &[f32], text: &CacheKey) -> Option<f32> {
        cosine(request, &self.definitions.get(text)?)
    }

    /// Whether the definition whose text has this digest has an embedding.
    pub(super) fn has(&self, text: &CacheKey) -> bool {
        self.definitions.get(text).is_some()
    }

    /// Has embeddings made of texts that lack one.
    pub(super) fn want(self: &Arc<Self>, texts: Vec<(CacheKey, String)>, tasks: &Tasks) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, text) in texts {
            let is_new = !pending.asked.contains(&key) && !self.has(&key);
            if is_new && pending.waiting.len() < MAX_WAITING {
                pending.waiting.insert(key, text);
            }
        }
        let is_idle = !pending.is_working && !pending.waiting.is_empty();
        if is_idle && !self.is_full.load(Ordering::Relaxed) {
            pending.is_working = true;
            drop(pending);
            let this = Arc::clone(self);
            tasks.spawn(async move { this.work().await });
        }
    }

    /// Makes embeddings until none is wanted, or the service fails.
    async fn work(&self) {
        while let Some(batch) = self.next_batch() {
            let texts: Vec<_> = batch.iter().map(|(_, text)| text.clone()).collect();
            let is_done = match self.made(&texts).await {
                Ok(made) => {
                    let keys = batch.into_iter().map(|(key, _)| key);
                    keys.zip(made).for_each(|(key, one)| self.keep(key, one));
                    true
                }
                Err(outcome) => !outcome.is_of_network() && self.made_singly(batch).await,
            };
            if !is_done {
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
                    made.into_iter().for_each(|one| self.keep(key, one));
                }
                Err(outcome) if outcome.is_of_network() => return false,
                Err(_) => refused.push(key),
            }
        }
        if is_any_taken {
            // It has no angle to any other.
            refused.into_iter().for_each(|key| self.keep(key, Arc::from([])));
        }
        is_any_taken
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

    fn keep(&self, key: CacheKey, embedding: Embedding) {
        let bytes = size_of_val(&*embedding);
        let room = |held: usize| held.checked_add(bytes).filter(|held| *held <= MAX_BYTES);
        let has_room = self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_ok();
        let is_kept = has_room && self.definitions.insert(key, embedding).is_ok();
        if !is_kept && !self.is_full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                event = "selection.embeddings_full",
                kept = self.definitions.length(),
                "there is no room for embeddings of further definitions: those are ranked without"
            );
        }
    }
}

/// Nobody learns from the time of an answer what another caller has asked: the request of each is its own.
fn request_key(holder: &Holder, request: &str) -> CacheKey {
    let mut text = format!("{:?}", holder.payer()).into_bytes();
    text.push(0);
    text.extend_from_slice(request.as_bytes());
    sha256(&text)
}
