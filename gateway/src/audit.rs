//! The record. Opened before anything is sent, closed after; never edited.
//!
//! Every exchange leaves one `exchange` line, those that were refused before they could be read
//! among them. A call leaves an `intent` line as well, which is in the file before the call is on
//! its way: a crash between the two leaves an intent without an exchange. The lines are a chain
//! ([`chain`]), and a tree over them whose head is signed now and then ([`note`]), so that [`verify`]
//! can tell whether all of them are there as they were written. The format is described in
//! `docs/audit.md`.

pub mod tree;
pub mod chain;
pub mod note;
mod captured;
mod record;
mod refusals;
mod watch;
pub mod spool;
pub mod ocsf;
mod otlp;
mod deliver;
pub mod lines;
mod sink;
pub mod file;
mod checkpoint_file;
mod agreement;
mod ledger;
pub mod verify;

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use aws_lc_rs::{hmac, rand};
use tokio::sync::Notify;

use crate::base::clock::Clock;
use crate::base::hex;
use crate::base::log_limit::LogLimit;
use crate::base::task::Tasks;
use crate::config::settings::{self, Full};
use crate::metrics::Metrics;
use crate::metrics::outcome::Ending;

use chain::{Chain, content_of};
use record::{Counted, Event};
use refusals::{Address, Kind, Refusals, Summary};
use spool::Spool;

pub use agreement::{disagreement, last_kept, left_behind};
pub use captured::{Captured, Excerpt};
pub use checkpoint_file::CheckpointFile;
use checkpoint_file::{Kept, Lapse};
pub use deliver::{Delivery, Receiver, deliver};
pub use file::{FileSink, Resumed, Trusted, can_be_continued, examine};
pub use ledger::{Checkpoints, Ledger, Slot};
use ledger::{Loss, Room, Then, Unsynced};
pub use record::{
    Beginning, CERTIFICATE, FOREIGN, NAMES, OAUTH, Record, RecordId, UNSEEN, Unseen, Verdict,
    written,
};
pub use sink::{Rendering, Sink, write_to_stdout};
pub use watch::{Lost, Space, Volume, Watch, volume};

/// How digests of arguments begin.
const DIGEST: &[u8] = b"hmac-sha256:";
/// How long the last lines may take to be written.
const LAST: Duration = Duration::from_secs(2);
/// How often it is looked whether something is to be flushed, signed or thrown away.
const TURN: Duration = Duration::from_secs(1);
/// How long until it is tried again to write what is left at the end.
const AGAIN: Duration = Duration::from_millis(100);
/// Every how many of these turns it is looked for files that are not to be kept.
const RARELY: u64 = 10;
/// Longest record that is tried whether it is taken where one was not, in bytes. Longer ones count as this long.
const PROBED: usize = 64 * 1024;
/// How much room one request wants in a spool that is waited for: its lines are shorter.
const ROOM: usize = 64 * 1024;
/// What the record of a call is taken to say at most, where it is asked whether calls are made at all.
const CALL: Room = Room { usual: 1024, once: 0 };
/// Log lines about records that were not taken: while a sink fails there is one for each request.
static LOST: LogLimit = LogLimit::new(1, 10);

/// Log lines about messages that cost more to look at than one may: a peer decides how many there are.
static COSTLY: LogLimit = LogLimit::new(1, 10);

/// Where it was said that something is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By an operator, at the operator's listener.
    Operator,
    /// In the file of revocations.
    File,
}

impl By {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::File => "file",
        }
    }
}

/// Who is told of every exchange that has ended.
pub trait Observer: fmt::Debug + Send + Sync {
    /// It ended like this.
    fn ended(&self, record: &Record, ending: Ending, now: Instant);
}

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
    /// Checkpoints cannot be signed or written.
    #[error("checkpoints cannot be made: {0}")]
    Checkpoint(Box<str>),
}

/// Where records go, and the proof that they went.
pub struct Journal {
    /// A chain has one order: the one lock there is on the way of a request is held for the hash of a
    /// leaf, on average one node above it, and one `write`.
    ledger: Mutex<Ledger>,
    chain: Box<str>,
    /// Those that calls wait for.
    waited: Vec<Spool>,
    /// Those that calls are refused for where they have no room.
    needed: Vec<Spool>,
    spools: Vec<Spool>,
    /// To who keeps checkpoints apart from the log.
    checkpoint_file: Option<Kept>,
    /// Says what room there is on the volume of a file.
    volume: Volume,
    /// Files that a crash of the machine would still lose something of: whoever has it syncs them.
    syncing: Mutex<Vec<(Box<str>, Arc<File>)>>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    policy: ArcSwap<Box<str>>,
    digest_key: hmac::Key,
    ids: Ids,
    /// A sink has failed since it last took a record as long as the one that it did not take.
    failing: AtomicBool,
    /// How long the longest record is that was not taken since then, in bytes; no more than [`PROBED`].
    lacking: AtomicUsize,
    /// What is left on the volume of a file is kept for the records of calls.
    scarce: AtomicBool,
    /// What callers ask that are not known.
    refusals: Refusals,
    /// What servers ask outside of calls that they may not.
    unasked: Refusals,
    /// A file was begun anew: there may be one too many.
    turned: Notify,
    observers: Vec<Arc<dyn Observer>>,
    /// Who is told as well, for a while.
    witness: ArcSwapOption<Box<dyn Observer>>,
}

/// Where ids come from.
#[derive(Debug)]
struct Ids {
    /// A part of every id of this process, random.
    process: u64,
    counter: AtomicU64,
}

impl Ids {
    fn next(&self, now: SystemTime) -> RecordId {
        RecordId::new(now, self.process, self.counter.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("chain", &self.chain).finish_non_exhaustive()
    }
}

/// What a journal is made of.
#[derive(Debug)]
pub struct Parts {
    /// Where lines go.
    pub sinks: Vec<Slot>,
    /// Where the chain goes on that is in one of them.
    pub resumed: Option<Resumed>,
    /// Who signs, and how often.
    pub checkpoints: Checkpoints,
    /// Where checkpoints are kept apart from the log.
    pub checkpoint_file: Option<CheckpointFile>,
    /// Says what room there is on the volume of a file.
    pub volume: Volume,
    /// Names the configuration in records that belong to no exchange.
    pub policy: String,
    /// The key of argument digests.
    pub digest_key: Option<Vec<u8>>,
    /// How requests of callers that are not known are recorded.
    pub refusals: settings::Refusals,
    /// Who else is told.
    pub observers: Vec<Arc<dyn Observer>>,
}

impl Journal {
    /// A journal over its sinks.
    ///
    /// # Errors
    /// When a sink does not take the first line.
    pub fn new(
        parts: Parts,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, AuditError> {
        let mut random = [0; 48];
        let failed = |_: aws_lc_rs::error::Unspecified| AuditError::Sink {
            sink: "random".into(),
            cause: io::Error::other("the machine gave no random bytes"),
        };
        rand::fill(&mut random).map_err(failed)?;
        let (seed, key) = random.split_at(8);
        let (id, key) = key.split_at(8);
        let Parts {
            sinks,
            resumed,
            checkpoints,
            checkpoint_file,
            volume,
            policy,
            digest_key,
            refusals,
            observers,
        } = parts;
        let crashed = resumed.as_ref().is_some_and(|resumed| resumed.crashed);
        let torn = resumed.as_ref().and_then(|resumed| resumed.torn);
        let chain = resumed.map_or_else(|| Chain::new(&hex::encode(id)), |resumed| resumed.chain);
        let spools: Vec<_> =
            sinks.iter().filter_map(|slot| Some((slot.full, slot.sink.spool()?.clone()))).collect();
        let that = |wanted: Full| -> Vec<Spool> {
            let spools = spools.iter().filter(|(full, _)| *full == wanted);
            spools.map(|(_, spool)| spool.clone()).collect()
        };
        let mut journal = Self {
            chain: chain.id.clone(),
            waited: that(Full::Block),
            needed: that(Full::Deny),
            spools: spools.into_iter().map(|(_, spool)| spool).collect(),
            ledger: Mutex::new(Ledger::new(chain, sinks, checkpoints, checkpoint_file.is_some())),
            checkpoint_file: None,
            volume,
            syncing: Mutex::default(),
            clock,
            metrics,
            policy: ArcSwap::from_pointee(policy.into()),
            digest_key: hmac::Key::new(hmac::HMAC_SHA256, digest_key.as_deref().unwrap_or(key)),
            ids: Ids {
                process: seed.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
                counter: AtomicU64::new(0),
            },
            failing: AtomicBool::new(false),
            lacking: AtomicUsize::new(0),
            scarce: AtomicBool::new(false),
            refusals: Refusals::new(refusals),
            // There are as many servers as are configured.
            unasked: Refusals::new(settings::Refusals { tracked: usize::MAX, ..refusals }),
            turned: Notify::new(),
            observers,
            witness: ArcSwapOption::empty(),
        };
        journal.start(crashed, torn)?;
        if let Some(file) = checkpoint_file {
            // The first record stands: that nothing came of it is recorded as well.
            let begun = journal.begin(file).inspect_err(|_| journal.abandon())?;
            journal.checkpoint_file = Some(begun);
        }
        Ok(journal)
    }

    fn start(&self, crashed: bool, torn: Option<(usize, tree::Hash)>) -> Result<(), AuditError> {
        let mut ledger = self.ledger();
        let mut write = |event: &Event<'_>| self.line(event);
        // Before it may come what a sink lacks.
        ledger.mend(&mut write);
        let (key, tree) = (ledger.public(), ledger.tree().clone());
        let line = self.line(&Event {
            event: "start",
            crashed,
            bytes: torn.map(|(bytes, _)| bytes),
            digest: torn.map(|(_, digest)| digest),
            key: Some(&key),
            tree: Some(&tree),
            ..Event::default()
        });
        let written = ledger.push(line, &mut write);
        // From the beginning there is something that only the gateway could have written.
        let written = written.and_then(|()| ledger.checkpoint(&mut write));
        drop(ledger);
        self.counted(written)
    }

    /// Where the first checkpoint cannot be kept nothing is begun.
    fn begin(&self, checkpoints: CheckpointFile) -> Result<Kept, AuditError> {
        let Unsynced { files, notes } = self.ledger().unsynced();
        for (sink, file) in files {
            file.sync_data().map_err(|cause| AuditError::Sink { sink, cause })?;
        }
        let failed = |cause| AuditError::Sink { sink: checkpoint_file::NAME.into(), cause };
        checkpoints.begin(&notes).map_err(failed)
    }

    /// An id for a new record: a UUID of version 7 (RFC 9562), unique in and beyond this process.
    pub fn id(&self) -> RecordId {
        self.ids.next(self.clock.now())
    }

    /// The digest of a call's arguments, keyed so that it cannot be guessed from.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> String {
        let tag = hmac::sign(&self.digest_key, bytes);
        let mut text = Vec::with_capacity(DIGEST.len() + 2 * tag.as_ref().len());
        text.extend_from_slice(DIGEST);
        hex::write(&mut text, tag.as_ref());
        String::from_utf8(text).unwrap_or_default()
    }

    /// Records that another configuration is in force from now on.
    ///
    /// # Errors
    /// When a sink does not take it; then it is not.
    pub fn applied(&self, policy: &str) -> Result<(), AuditError> {
        let former = self.policy.swap(Arc::new(policy.into()));
        let event = self.event(&Event { event: "applied", ..Event::default() });
        event.inspect_err(|_| self.policy.store(former))
    }

    /// How many records there are in the chain, and requests that are recorded together or will be.
    #[must_use]
    pub fn accounted(&self) -> u64 {
        self.ledger().tree().size() + self.refusals.counted() + self.unasked.counted()
    }

    /// Tells this one as well how exchanges that are on record have ended, or nobody any more.
    pub fn watched_by(&self, witness: Option<Box<dyn Observer>>) {
        self.witness.store(witness.map(Arc::new));
    }

    /// Whether there is anything that calls wait for.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        !self.waited.is_empty()
    }

    /// Waits until those that calls wait for have room.
    pub async fn room(&self) {
        for spool in &self.waited {
            spool.vacant(ROOM).await;
        }
    }

    /// Opens the record of a call that is about to be sent, on every sink.
    ///
    /// # Errors
    /// When a sink does not take it; then nothing may be sent.
    pub fn open_call(self: &Arc<Self>, mut record: Box<Record>) -> Result<Entry, AuditError> {
        let line = record.intent(&self.chain);
        let captured = record.captured.as_ref();
        let room = captured.map_or(Room::of(&line), |captured| Room {
            usual: line.len().saturating_sub(captured.announced()),
            once: captured.announced() + captured.due,
        });
        self.append(line, Some(room))?;
        record.announced = true;
        Ok(Entry { journal: Arc::clone(self), record: Some(record) })
    }

    /// Opens the record of an exchange that only reads.
    ///
    /// # Errors
    /// When a sink failed and still does; then nothing may be sent.
    pub fn open_read(self: &Arc<Self>, record: Box<Record>) -> Result<Entry, AuditError> {
        if self.failing.load(Ordering::Acquire) {
            self.probe()?;
        }
        Ok(Entry { journal: Arc::clone(self), record: Some(record) })
    }

    /// Records an exchange that ended before anything was sent. Where its caller is known it has a record of its
    /// own; of other callers, many are recorded together.
    ///
    /// # Errors
    /// When a sink does not take it.
    pub fn refused(&self, record: &Record, ending: Ending) -> Result<(), AuditError> {
        match record.principal {
            Some(_) => self.ended(record, ending),
            None => self.turned_away(record, ending),
        }
    }

    /// Records a request of a caller that is not let in, whether or not it is known: many are recorded together.
    ///
    /// # Errors
    /// When a sink does not take it.
    pub fn turned_away(&self, record: &Record, ending: Ending) -> Result<(), AuditError> {
        self.among(&self.refusals, &Kind::of(record, ending), (record, ending))
    }

    /// Records that `server` has asked outside of calls what it may not ask: many are recorded together.
    ///
    /// # Errors
    /// When a sink does not take it.
    pub fn unasked(&self, server: &str, record: &Record, ending: Ending) -> Result<(), AuditError> {
        self.among(&self.unasked, &Kind::of_server(server, ending), (record, ending))
    }

    /// Records the first of a kind, and counts those after it.
    fn among(
        &self,
        refusals: &Refusals,
        kind: &Kind,
        (record, ending): (&Record, Ending),
    ) -> Result<(), AuditError> {
        let now = self.clock.instant();
        let at = (now, record.time);
        if refusals.is_alone(kind, at, self.has_room_beside_calls()) {
            // What is not taken now is recorded together with those after it, though another sink may have it.
            return self.ended(record, ending).inspect_err(|_| refusals.count(kind, at));
        }
        self.metrics.audit_summarised.add(1);
        self.count(record, ending, now);
        self.tell_witness(record, ending, now);
        Ok(())
    }

    /// Records an exchange that has ended.
    fn ended(&self, record: &Record, ending: Ending) -> Result<(), AuditError> {
        let now = self.clock.instant();
        self.count(record, ending, now);
        if record.is_over_budget()
            && let Some(suppressed) = COSTLY.allow(now)
        {
            tracing::warn!(
                server = record.server.as_deref(),
                suppressed,
                "a message was withheld because it costs more to look at than `limits.inspectionWork` and \
                 `limits.inspectionWorkPerByte` allow"
            );
        }
        self.append(record.exchange(&self.chain, ending, now), None)?;
        self.tell_witness(record, ending, now);
        Ok(())
    }

    fn tell_witness(&self, record: &Record, ending: Ending, now: Instant) {
        if let Some(witness) = &*self.witness.load() {
            witness.ended(record, ending, now);
        }
    }

    /// Whether there is room for the records of refusals beside what is kept for those of calls. Where no call is
    /// made anyway, for want of room, nothing has to be kept.
    fn has_room_beside_calls(&self) -> bool {
        !self.scarce.load(Ordering::Relaxed)
            && (self.needed.iter().all(Spool::has_room_beside_calls)
                || self.ledger().room(CALL).is_err())
    }

    /// Records what was counted of callers that are not known, and of servers: what is due, or all of it.
    fn summarise(&self, all: bool) {
        if !all && !self.has_room_beside_calls() {
            return;
        }
        let now = self.clock.instant();
        for refusals in [&self.refusals, &self.unasked] {
            let mut left = refusals.due(now, all).into_iter();
            for summary in left.by_ref() {
                let Err(error) = self.summary(&summary) else { continue };
                refusals.give_back(&summary, now);
                self.complain(Err(error));
                break;
            }
            left.for_each(|summary| refusals.give_back(&summary, now));
        }
    }

    fn summary(&self, summary: &Summary) -> Result<(), AuditError> {
        let Summary { kind, count, since } = summary;
        let Kind { address, outcome, reason, detail, status } = kind;
        let (server, address) = match address {
            Address::Server(server) => (Some(Arc::clone(server)), None),
            Address::Of(_) | Address::Other => (None, Some(address.to_string())),
        };
        let counted = Some(Counted {
            address,
            server,
            count: *count,
            since: *since,
            outcome: *outcome,
            reason: *reason,
            detail: *detail,
            status: *status,
        });
        self.event(&Event { event: "refusals", counted, ..Event::default() })
    }

    fn count(&self, record: &Record, ending: Ending, now: Instant) {
        let total = now.saturating_duration_since(record.started);
        let gateway = total.saturating_sub(record.upstream);
        self.metrics.exchange(ending.outcome, record.reason(), gateway);
        if let Some(detail) = ending.detail {
            self.metrics.credential_refused(detail);
        }
        let what = record.operated(ending);
        let upstream = record.sent.map(|_| record.upstream);
        self.metrics.operation(&what, total, upstream);
        self.metrics.ran(record.asked());
        for observer in &self.observers {
            observer.ended(record, ending, now);
        }
    }

    /// Records that the process stops, signs what there is, and waits until it is delivered.
    pub async fn stop(self: &Arc<Self>) {
        self.end();
        if tokio::time::timeout(LAST, self.synced()).await.is_err() {
            tracing::warn!("the last records or checkpoints were not written to the disk");
        }
        for spool in &self.spools {
            if tokio::time::timeout(LAST, spool.drained()).await.is_err() {
                tracing::warn!(sink = Sink::name(spool), "the last records were not delivered");
            }
        }
    }

    fn end(&self) {
        self.summarise(true);
        if let Err(error) = self.event(&Event { event: "stop", ..Event::default() }) {
            tracing::error!(error = %crate::base::error_chain::Chain(&error), "the last record was not taken");
        }
        let signed = self.ledger().checkpoint(&mut |event| self.line(event));
        self.complain(self.counted(signed));
    }

    /// Records that a start was given up before anything was served. The next start must not take it for a crash.
    pub(crate) fn abandon(&self) {
        self.end();
        self.sync();
    }

    /// Syncs until nothing is left to be, without holding the thread.
    async fn synced(self: &Arc<Self>) {
        loop {
            let journal = Arc::clone(self);
            let synced = tokio::task::spawn_blocking(move || journal.sync());
            if synced.await.is_err() {
                return tracing::error!("the last records were not synced");
            }
            if let Some(file) = &self.checkpoint_file {
                file.spool().drained().await;
            }
            if self.ledger().is_sent() {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Records that something was revoked, or that this was taken back, and where that was said.
    ///
    /// # Errors
    /// When a sink does not take it.
    pub fn changed(&self, revoke: bool, (what, by): (&str, By)) -> Result<(), AuditError> {
        let event = if revoke { "revoked" } else { "reinstated" };
        let (what, source) = (Some(what), Some(by.as_str()));
        self.event(&Event { event, what, source, ..Event::default() })
    }

    /// Records something that belongs to no exchange.
    ///
    /// # Errors
    /// When a sink does not take it.
    pub fn noted(&self, event: &str, what: &str) -> Result<(), AuditError> {
        self.event(&Event { event, what: Some(what), ..Event::default() })
    }

    /// Tries whether a record is taken that is as long as the longest that was not: where there is room for a short
    /// one alone, calls have none.
    fn probe(&self) -> Result<(), AuditError> {
        let filler = "-".repeat(self.lacking.load(Ordering::Acquire));
        let what = Some(&*filler).filter(|filler| !filler.is_empty());
        let line = self.line(&Event { event: "probe", what, ..Event::default() });
        let room = Room::of(&line);
        match self.taken(line, Some(room)) {
            Ok(()) => self.counted_as(Ok(()), PROBED),
            // It is longer than what was not taken.
            Err(error) => self.counted(Err(error)),
        }
    }

    fn event(&self, event: &Event<'_>) -> Result<(), AuditError> {
        self.append(self.line(event), None)
    }

    fn line(&self, event: &Event<'_>) -> Vec<u8> {
        let now = self.clock.now();
        event.write(&self.chain, &self.ids.next(now), now, &self.policy.load())
    }

    /// Appends a record. One that opens something is refused where there is no room for what follows of
    /// it; what has happened is written wherever there is room.
    fn append(&self, line: Vec<u8>, opens: Option<Room>) -> Result<(), AuditError> {
        let bytes = line.len();
        let written = self.taken(line, opens);
        self.counted_as(written, bytes)
    }

    /// The same, not counted.
    fn taken(&self, line: Vec<u8>, opens: Option<Room>) -> Result<(), AuditError> {
        // Most of the work is done before it is this record's turn.
        let content = content_of(&line);
        let mut ledger = self.ledger();
        let mut write = |event: &Event<'_>| self.line(event);
        let turned = ledger.turn(|| self.clock.now());
        let room = opens.map_or(Ok(()), |room| ledger.room(room));
        let written = room.and_then(|()| ledger.push_hashed(line, &content, &mut write));
        drop(ledger);
        if turned {
            self.turned.notify_one();
        }
        written
    }

    /// Counts what became of a record whose length does not matter.
    fn counted(&self, written: Result<(), AuditError>) -> Result<(), AuditError> {
        self.counted_as(written, 0)
    }

    /// Counts what became of a record of so many bytes. One that is shorter than what was not taken says nothing
    /// about whether that would be taken now.
    fn counted_as(&self, written: Result<(), AuditError>, bytes: usize) -> Result<(), AuditError> {
        let bytes = bytes.min(PROBED);
        match written {
            Ok(()) => {
                if self.failing.load(Ordering::Acquire)
                    && bytes >= self.lacking.load(Ordering::Acquire)
                {
                    self.lacking.store(0, Ordering::Release);
                    self.failing.store(false, Ordering::Release);
                }
                self.metrics.audit_records.add(1);
                Ok(())
            }
            Err(error) => {
                self.lacking.fetch_max(bytes, Ordering::AcqRel);
                self.failing.store(true, Ordering::Release);
                self.metrics.audit_failures.add(1);
                Err(error)
            }
        }
    }

    fn complain(&self, written: Result<(), AuditError>) {
        if let Err(error) = written {
            self.log_lost(&error, "audit");
        }
    }

    /// Logs that a record was not taken. Lines beyond what an operator can read are counted and not written: whoever
    /// sends requests while a sink fails would decide how many there are.
    pub fn log_lost(&self, error: &(dyn std::error::Error + 'static), what: &'static str) {
        if let Some(suppressed) = LOST.allow(self.clock.instant()) {
            tracing::error!(error = %crate::base::error_chain::Chain(error), suppressed, "{what}");
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether lines are taken; a sink that failed is tried again.
    #[must_use]
    pub fn is_working(&self) -> bool {
        !self.failing.load(Ordering::Acquire) || self.probe().is_ok()
    }

    /// Flushes, signs and throws away, until the gateway stops.
    pub async fn tend(self: Arc<Self>, tasks: Tasks) {
        let mut turn = tokio::time::interval(TURN);
        let mut count = 0_u64;
        loop {
            let due = tokio::select! {
                _ = turn.tick() => true,
                () = self.turned.notified() => false,
                () = tasks.halting() => return,
            };
            let journal = Arc::clone(&self);
            let rare = count.is_multiple_of(RARELY);
            let tended = tokio::task::spawn_blocking(move || match due {
                true => journal.turn(rare),
                false => journal.retire(),
            });
            if tended.await.is_err() {
                tracing::error!("the audit log is no longer tended");
                return;
            }
            count += u64::from(due);
        }
    }

    /// What is done each turn.
    fn turn(&self, rare: bool) {
        self.watch();
        self.watch_checkpoints();
        self.summarise(false);
        if rare {
            self.retire();
        }
        let now = self.clock.instant();
        let signed = self.ledger().checkpoint_at(now, &mut |event| self.line(event));
        if let Some(signed) = signed {
            self.complain(self.counted(signed));
        }
        if let Some(suppressed) = LOST.left(now) {
            tracing::error!(suppressed, "more log lines about records that were not taken");
        }
        self.sync();
    }

    /// Looks whether files are still what they were, and whether their volumes have room.
    fn watch(&self) {
        let mut scarce = false;
        self.watch_foreign();
        let watches = self.ledger().watches();
        for (n, watch) in watches {
            if watch.known.is_some() || watch.lost().is_some() {
                self.look(n);
            } else {
                scarce |= watch.is_scarce(self.volume);
            }
        }
        if self.scarce.swap(scarce, Ordering::Relaxed) != scarce {
            match scarce {
                true => tracing::error!(
                    "the volume of the audit log is almost full: what is left is kept for calls, and requests of \
                     unknown callers are only counted"
                ),
                false => tracing::info!("the volume of the audit log has room again"),
            }
        }
    }

    /// Looks whether somebody else has appended to files. Calls go on: what the gateway writes is whole, and `audit
    /// verify` tells the two apart.
    fn watch_foreign(&self) {
        let told = self.ledger().foreign(&mut |event| self.line(event));
        for (sink, bytes, recorded) in told {
            self.metrics.audit_foreign.add(1);
            tracing::error!(
                %sink, bytes,
                "audit_file_foreign: somebody else has appended to the file while it was written to"
            );
            self.complain(self.counted(recorded));
        }
    }

    /// Looks again while nothing is written: the file may just have been put aside because it was full.
    fn look(&self, n: usize) {
        let now = self.clock.now();
        let loss = self.ledger().look(n, now, &mut |event| self.line(event));
        let Some(Loss { sink, what, is_new, then }) = loss else { return };
        if is_new {
            self.metrics.audit_files_lost.add(1);
        }
        match then {
            Then::Nothing(error) => {
                self.failing.store(true, Ordering::Release);
                if is_new {
                    tracing::error!(%sink, %what, %error, "audit_file_lost: nothing is done until it is back");
                }
            }
            Then::Again => tracing::warn!(%sink, "audit_file_back: it goes on as it was"),
            Then::Anew(recorded) => {
                tracing::error!(%sink, %what, "audit_file_lost: another was begun in its place");
                self.complain(self.counted(recorded));
            }
        }
    }

    /// Looks whether the file of checkpoints is still what it was. Calls go on without it, as they do where it takes
    /// nothing: the log has its checkpoints.
    fn watch_checkpoints(&self) {
        let Some(Lapse { what, is_new, begun }) =
            self.checkpoint_file.as_ref().and_then(Kept::look)
        else {
            return;
        };
        let (sink, words) = (checkpoint_file::NAME, what.to_string());
        if is_new {
            self.metrics.audit_files_lost.add(1);
            let (sink, what) = (Some(sink), Some(&*words));
            self.complain(self.event(&Event { event: "lost", sink, what, ..Event::default() }));
        }
        match begun {
            Ok(()) => tracing::error!(
                %sink, what = %words,
                "audit_file_lost: another was begun in its place with the last checkpoint"
            ),
            Err(error) if is_new => tracing::error!(
                %sink, what = %words, %error,
                "audit_file_lost: checkpoints are not kept apart from the log until there can be another"
            ),
            Err(_) => {}
        }
    }

    /// What a crash of the machine must not lose.
    fn sync(&self) {
        // One at a time: what a checkpoint is over is on the disk before it is sent.
        let mut owed = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let Unsynced { files, notes } = self.ledger().unsynced();
        for (sink, file) in files {
            if !owed.iter().any(|(_, known)| Arc::ptr_eq(known, &file)) {
                owed.push((sink, file));
            }
        }
        owed.retain(|(sink, file)| {
            let Err(cause) = file.sync_data() else { return false };
            self.complain(self.counted(Err(AuditError::Sink { sink: sink.clone(), cause })));
            true
        });
        if let Some(file) = &self.checkpoint_file {
            // What is there still was sent a turn ago.
            let mut late = file.spool().held();
            let sent = notes.is_empty() || owed.is_empty() && file.send(&notes);
            if !sent {
                late += notes.iter().map(String::len).sum::<usize>();
                self.ledger().unsent(notes);
            }
            self.metrics.checkpoints_late.store(late as u64, Ordering::Relaxed);
        }
        let held = self.spools.iter().map(|spool| spool.held() as u64).sum();
        self.metrics.audit_held.store(held, Ordering::Relaxed);
    }

    fn retire(&self) {
        let kept = self.ledger().kept();
        let now = self.clock.now();
        for (file, rotation) in kept {
            for (path, first, next) in file::expired(&file, rotation, now) {
                // First the record, then the deed.
                let name = path.display().to_string();
                let missing = Some((first, next.saturating_sub(1)));
                let event =
                    Event { event: "retired", missing, what: Some(&name), ..Event::default() };
                if let Err(error) = self.event(&event) {
                    return self.complain(Err(error));
                }
                if let Err(error) = std::fs::remove_file(&path) {
                    // It is tried again, and said again, when the next one is due.
                    return tracing::error!(%error, file = %name, "old records were not removed");
                }
            }
        }
    }
}

/// Proof that an exchange is on record. It is closed once, at the latest when it is dropped.
#[derive(Debug)]
#[must_use = "an entry that is dropped is recorded as cancelled"]
pub struct Entry {
    journal: Arc<Journal>,
    record: Option<Box<Record>>,
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
        let lost = |error: &AuditError| self.journal.log_lost(error, "a record was lost");
        self.journal.ended(&record, ending).inspect_err(lost)
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
