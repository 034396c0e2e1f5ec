//! Cache of compiled schemas: a short schema can compile to many megabytes, and a server has as many as it has tools.
//! Beyond the limit the least recently used schema is evicted, and compiled again when needed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwapOption;
use bytes::Bytes;

use super::{Schema, UNUSABLE};
use crate::base::work::WorkBudget;
use crate::json::{Document, JsonBounds, Value};
use crate::subject::name::ServerName;

/// Longest usable schema, in bytes. Schemas with the most permitted parts are shorter.
const LONGEST: usize = 1 << 20;
/// Units per byte of a schema for compiling it.
const EACH_BYTE: usize = 16;

/// A schema of a definition, with its compiled form while that is cached.
#[derive(Debug)]
pub struct CachedSchema {
    /// The text of the schema, separate from the list it came in; `None` if it is too long.
    text: Option<Document>,
    schema: ArcSwapOption<Schema>,
    /// Time of the last use, as a count of uses in [`SchemaCache`].
    used: AtomicU64,
}

impl CachedSchema {
    /// The schema `value`, not yet compiled.
    #[must_use]
    pub fn new(value: Value<'_>) -> Self {
        let raw = value.raw().as_bytes();
        let text = (raw.len() <= LONGEST).then(|| Bytes::copy_from_slice(raw));
        // INVARIANT: the same parser has read it as part of a deeper document.
        let text = text.and_then(|text| Document::parse(text, &JsonBounds::ANSWER).ok());
        Self { text, schema: ArcSwapOption::empty(), used: AtomicU64::new(0) }
    }

    /// Whether the compiled schema is cached.
    #[must_use]
    pub fn is_compiled(&self) -> bool {
        self.schema.load().is_some()
    }

    /// The compiled schema, compiled if necessary and cached in `kept` for `server`. Compilation is charged to
    /// `budget`, but at most half of what is left, because the message has to be inspected as well.
    #[must_use]
    pub fn get(
        self: &Arc<Self>,
        server: &ServerName,
        kept: &SchemaCache,
        budget: &WorkBudget,
    ) -> Arc<Schema> {
        self.used.store(kept.count.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        if let Some(schema) = self.schema.load_full() {
            return schema;
        }
        let schema = self.text.as_ref().map(|text| Schema::new(text.root()));
        let schema = Arc::new(schema.unwrap_or(Schema(Err(UNUSABLE))));
        let length = self.text.as_ref().map_or(0, |text| text.root().raw().len());
        let cost = schema.work().saturating_add(EACH_BYTE * length);
        let most = usize::try_from(budget.left() / 2).unwrap_or(usize::MAX);
        // The next inspection notices an exhausted budget.
        let _within = budget.spend(cost.min(most));
        kept.keep(server, self, &schema);
        schema
    }
}

/// Cache of compiled schemas of all servers.
#[derive(Debug)]
pub struct SchemaCache {
    /// Most estimated bytes in total, and for one server.
    all: usize,
    each: usize,
    kept: Mutex<Vec<SchemaCacheEntry>>,
    /// Counts uses, as the clock for eviction.
    count: AtomicU64,
    /// Counts compilations, for metrics.
    compiled: AtomicU64,
}

#[derive(Debug)]
struct SchemaCacheEntry {
    of: Weak<CachedSchema>,
    server: ServerName,
    weight: usize,
}

impl Default for SchemaCache {
    fn default() -> Self {
        Self::new(64 << 20, 32 << 20)
    }
}

impl SchemaCache {
    /// An empty cache for at most `all` bytes, of which one server may use `each`.
    #[must_use]
    pub fn new(all: usize, each: usize) -> Self {
        let (kept, count, compiled) = (Mutex::default(), AtomicU64::new(1), AtomicU64::new(0));
        Self { all, each, kept, count, compiled }
    }

    /// Estimated bytes of all cached schemas.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().filter(|kept| kept.of.strong_count() > 0).map(|kept| kept.weight).sum()
    }

    /// Number of compilations so far.
    #[must_use]
    pub fn compilations(&self) -> u64 {
        self.compiled.load(Ordering::Relaxed)
    }

    /// Caches a compiled schema unless it exceeds the share of one server. Evicts the least recently used schemas of
    /// the server first, and then those of any server.
    fn keep(&self, server: &ServerName, of: &Arc<CachedSchema>, schema: &Arc<Schema>) {
        self.compiled.fetch_add(1, Ordering::Relaxed);
        let weight = schema.weight();
        if weight > self.each.min(self.all) {
            return;
        }
        // A poisoned lock is safe to use: no operation leaves the list inconsistent.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|kept| kept.of.strong_count() > 0);
        let own = Arc::downgrade(of);
        if kept.iter().any(|kept| kept.of.ptr_eq(&own)) {
            return;
        }
        make_room(&mut kept, self.each - weight, |kept| kept.server == *server);
        make_room(&mut kept, self.all - weight, |_| true);
        of.schema.store(Some(Arc::clone(schema)));
        kept.push(SchemaCacheEntry { of: own, server: server.clone(), weight });
    }
}

/// Evicts the least recently used entries selected by `these` until those left weigh at most `most` bytes.
fn make_room(
    kept: &mut Vec<SchemaCacheEntry>,
    most: usize,
    these: impl Fn(&SchemaCacheEntry) -> bool,
) {
    let mut weight: usize = kept.iter().filter(|kept| these(kept)).map(|kept| kept.weight).sum();
    while weight > most {
        let used =
            |kept: &SchemaCacheEntry| kept.of.upgrade().map(|of| of.used.load(Ordering::Relaxed));
        let those = kept.iter().enumerate().filter(|(_, kept)| these(kept));
        let Some((at, _)) = those.min_by_key(|(_, kept)| used(kept)) else { return };
        let gone = kept.swap_remove(at);
        weight -= gone.weight;
        if let Some(of) = gone.of.upgrade() {
            of.schema.store(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{CachedSchema, SchemaCache};
    use crate::base::work::WorkBudget;
    use crate::json::{Document, JsonBounds};
    use crate::subject::name::ServerName;

    fn schema(n: usize) -> Arc<CachedSchema> {
        let text = format!(
            r#"{{"type":"object","properties":{{"p":{{"pattern":"^[a-y]{{50}}x{n}$"}}}}}}"#
        );
        let document = Document::parse(text.into(), &JsonBounds::MESSAGE).unwrap();
        Arc::new(CachedSchema::new(document.root()))
    }

    #[test]
    fn the_schema_that_was_not_used_for_longest_goes_and_is_compiled_again() {
        let budget = WorkBudget::unlimited();
        let (one, other) = (ServerName::parse("one").unwrap(), ServerName::parse("other").unwrap());
        let weight = schema(1).get(&one, &SchemaCache::default(), &budget).weight();
        let kept = SchemaCache::new(4 * weight, 2 * weight);
        let [a, b, c] = [1, 2, 3].map(schema);
        let theirs = schema(4);
        drop(theirs.get(&other, &kept, &budget));
        drop((a.get(&one, &kept, &budget), b.get(&one, &kept, &budget)));
        drop(a.get(&one, &kept, &budget));
        drop(c.get(&one, &kept, &budget));
        assert!(a.is_compiled() && !b.is_compiled() && c.is_compiled());
        assert!(theirs.is_compiled(), "one server leaves the room of others alone");
        assert_eq!((kept.bytes(), kept.compilations()), (3 * weight, 4));
        drop(b.get(&one, &kept, &budget));
        assert!(!a.is_compiled() && b.is_compiled());
        drop((a, b, c));
        assert_eq!(kept.bytes(), weight);
    }

    #[test]
    fn a_schema_that_is_larger_than_the_share_of_a_server_is_used_and_not_kept() {
        let (one, kept) = (ServerName::parse("one").unwrap(), SchemaCache::new(8192, 4096));
        let (schema, budget) = (schema(1), WorkBudget::new(1000));
        let value = Document::parse(r#"{"p":"abc"}"#.into(), &JsonBounds::MESSAGE).unwrap();
        let ready = schema.get(&one, &kept, &budget);
        assert_eq!(budget.left(), 500, "compiling takes half at most");
        assert!(ready.check(Some(value.root()), &WorkBudget::unlimited()).is_err());
        assert!(!schema.is_compiled());
        assert_eq!(kept.bytes(), 0);
    }
}
