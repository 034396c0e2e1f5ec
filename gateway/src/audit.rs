//! The record. Opened before anything is sent, closed after; never edited.
//!
//! Every exchange leaves one `exchange` line, those that were refused before they could be read
//! among them. A call leaves an `intent` line as well, which is in the file before the call is on
//! its way: a crash between the two leaves an intent without an exchange. The format is described in
//! `docs/audit.md`.

mod record;
mod sink;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aws_lc_rs::{hmac, rand};

use crate::clock::Clock;
use crate::ending::Ending;
use crate::hex;
use crate::metrics::Metrics;

pub use record::{Record, RecordId, Verdict};
pub use sink::{FileSink, Sink, StdoutSink};

/// How long the last lines may take to be written.
const LAST: Duration = Duration::from_secs(2);

/// Why there is no record.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A sink did not take a line.
    #[error("the audit sink `{sink}` did not take the record")]
    Sink {
        /// Which.
        sink: Box<str>,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

/// Where records go, and the proof that they went.
pub struct Journal {
    sinks: Vec<Box<dyn Sink>>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    policy: Box<str>,
    digest_key: hmac::Key,
    /// Upper half of every id of this process, random.
    process: u64,
    counter: AtomicU64,
    /// A sink has failed since it last worked.
    failing: AtomicBool,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("sinks", &self.sinks).finish_non_exhaustive()
    }
}

impl Journal {
    /// A journal over `sinks`; `policy` names the configuration in every record.
    ///
    /// # Errors
    /// When a sink does not take the first line.
    pub fn new(
        sinks: Vec<Box<dyn Sink>>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        policy: &str,
        digest_key: Option<&[u8]>,
    ) -> Result<Self, AuditError> {
        let mut random = [0; 40];
        let failed = |_: aws_lc_rs::error::Unspecified| AuditError::Sink {
            sink: "random".into(),
            cause: io::Error::other("the machine gave no random bytes"),
        };
        rand::fill(&mut random).map_err(failed)?;
        let (seed, key) = random.split_at(8);
        let journal = Self {
            sinks,
            clock,
            metrics,
            policy: policy.into(),
            digest_key: hmac::Key::new(hmac::HMAC_SHA256, digest_key.unwrap_or(key)),
            process: seed.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
            counter: AtomicU64::new(0),
            failing: AtomicBool::new(false),
        };
        journal.event("start")?;
        Ok(journal)
    }

    /// An id for a new record: a UUID of version 7 (RFC 9562), unique in and beyond this process.
    pub fn id(&self) -> RecordId {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        RecordId::new(self.clock.now(), self.process, count)
    }

    /// The digest of a call's arguments, keyed so that it cannot be guessed from.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> String {
        let tag = hmac::sign(&self.digest_key, bytes);
        format!("hmac-sha256:{}", hex::encode(tag.as_ref()))
    }

    /// Opens the record of a call that is about to be sent, on every sink.
    ///
    /// # Errors
    /// When a sink does not take it; then nothing may be sent.
    pub fn open_call(self: &Arc<Self>, record: Box<Record>) -> Result<Entry, AuditError> {
        let common = record.common(&self.policy);
        self.append(&Record::intent(&common))?;
        Ok(Entry { journal: Arc::clone(self), record: Some(record), common: Some(common) })
    }

    /// Opens the record of an exchange that only reads.
    ///
    /// # Errors
    /// When a sink failed and still does; then nothing may be sent.
    pub fn open_read(self: &Arc<Self>, record: Box<Record>) -> Result<Entry, AuditError> {
        if self.failing.load(Ordering::Acquire) {
            self.event("probe")?;
        }
        Ok(Entry { journal: Arc::clone(self), record: Some(record), common: None })
    }

    /// Records an exchange that ended before anything was sent.
    ///
    /// # Errors
    /// When a sink does not take it.
    pub fn refused(&self, record: &Record, ending: Ending) -> Result<(), AuditError> {
        let now = self.clock.instant();
        self.count(record, ending, now);
        self.append(&record.exchange(&record.common(&self.policy), ending, now))
    }

    fn count(&self, record: &Record, ending: Ending, now: Instant) {
        let total = now.saturating_duration_since(record.started);
        let gateway = total.saturating_sub(record.upstream);
        self.metrics.exchange(ending.outcome, record.reason(), gateway);
    }

    /// Records that the process stops.
    pub fn stop(&self) {
        if let Err(error) = self.event("stop") {
            tracing::error!(error = %crate::report::Chain(&error), "the last record was not taken");
        }
        for sink in &self.sinks {
            sink.finish(LAST);
        }
    }

    /// Records that an operator has revoked something, or has taken that back.
    ///
    /// # Errors
    /// When a sink does not take it.
    pub fn changed(&self, revoke: bool, what: &str) -> Result<(), AuditError> {
        let event = if revoke { "revoked" } else { "reinstated" };
        let (id, now) = (self.id(), self.clock.now());
        self.append(&record::event(event, &id, now, &self.policy, Some(what)))
    }

    /// Records something about the definitions of servers.
    ///
    /// # Errors
    /// When a sink does not take it.
    pub fn noted(&self, event: &str, what: &str) -> Result<(), AuditError> {
        let (id, now) = (self.id(), self.clock.now());
        self.append(&record::event(event, &id, now, &self.policy, Some(what)))
    }

    fn event(&self, event: &str) -> Result<(), AuditError> {
        self.append(&record::event(event, &self.id(), self.clock.now(), &self.policy, None))
    }

    fn append(&self, line: &[u8]) -> Result<(), AuditError> {
        for sink in &self.sinks {
            if let Err(cause) = sink.append(line) {
                self.failing.store(true, Ordering::Release);
                self.metrics.audit_failures.add(1);
                return Err(AuditError::Sink { sink: sink.name().into(), cause });
            }
        }
        if self.failing.load(Ordering::Relaxed) {
            self.failing.store(false, Ordering::Release);
        }
        self.metrics.audit_records.add(1);
        Ok(())
    }

    /// Whether lines are taken; a sink that failed is tried again.
    #[must_use]
    pub fn is_working(&self) -> bool {
        !self.failing.load(Ordering::Acquire) || self.event("probe").is_ok()
    }
}

/// Proof that an exchange is on record. It is closed once, at the latest when it is dropped.
#[derive(Debug)]
#[must_use = "an entry that is dropped is recorded as cancelled"]
pub struct Entry {
    journal: Arc<Journal>,
    record: Option<Box<Record>>,
    /// What its lines have in common, once it is written.
    common: Option<Vec<u8>>,
}

impl Entry {
    /// What is known so far.
    pub fn record(&mut self) -> Option<&mut Record> {
        self.record.as_deref_mut()
    }

    /// Records how it ended.
    ///
    /// # Errors
    /// When a sink does not take it. What was called has happened then; what was only read need
    /// not be shown.
    pub fn close(mut self, ending: Ending) -> Result<(), AuditError> {
        self.end(ending)
    }

    fn end(&mut self, ending: Ending) -> Result<(), AuditError> {
        let Some(record) = self.record.take() else { return Ok(()) };
        let now = self.journal.clock.instant();
        let common = self.common.take().unwrap_or_else(|| record.common(&self.journal.policy));
        let line = record.exchange(&common, ending, now);
        self.journal.count(&record, ending, now);
        self.journal.append(&line).inspect_err(|error| {
            tracing::error!(error = %crate::report::Chain(error), "a record was lost");
        })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // The client has gone, and what was being done for it has been given up.
        if let Err(error) = self.end(Ending::cancelled()) {
            tracing::debug!(error = %error, "not recorded");
        }
    }
}
