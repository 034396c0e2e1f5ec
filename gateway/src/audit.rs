//! The audit log: it records every exchange in an append-only, tamper-evident chain. The data path opens a record
//! before it sends anything upstream and closes it afterwards; a written line is never edited.
//!
//! Every exchange leaves one `exchange` line, including requests that are refused before they can be parsed. Only refusals
//! that are alike, most of them of callers that are not authenticated, are counted together in `refusals` lines. A call
//! also leaves an `intent` line, which is written before the call is sent: a crash between the two leaves an intent
//! without an exchange. The lines form a hash chain and a Merkle tree whose head is signed at intervals, so that a
//! verifier can detect missing or changed lines: these are the crate [`audit_log`]. `docs/audit.md` describes the format.

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
mod ledger_lock;

use std::fmt;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use audit_log::chain::{HashChain, content_of};
use audit_log::tree::Hash;
use aws_lc_rs::{hmac, rand};
use json::hex;
use tokio::sync::Notify;

use crate::base::caller_counters::CallerKey;
use crate::base::clock::Clock;
use crate::base::log_limit::LogLimit;
use crate::base::task::Tasks;
use crate::config::settings::{self, Rotation, SpoolOverflow};
use crate::metrics::Metrics;
use crate::metrics::outcome::{ExchangeEnd, ExchangeOutcome as Ended};

use record::{AuditEvent, RefusalCount};
use refusals::{
    OVER_SHARE_END, RefusalCounters, RefusalKind, RefusalOrigin, RefusalSummary, RefusalTime,
};
use spool::Spool;

pub use agreement::{disagreement, last_kept, left_behind};
pub use captured::{CapturedContent, Excerpt};
pub use checkpoint_file::CheckpointFile;
use checkpoint_file::{CheckpointFileLoss, CheckpointWriter};
pub use deliver::{Delivery, DeliveryTarget, deliver};
pub use file::{FileSink, ResumePolicy, ResumedChain, can_be_continued, examine};
pub use ledger::{CheckpointPolicy, Ledger, SinkSlot};
use ledger::{LossAction, LostFile, RequiredRoom, UnsyncedData};
use ledger_lock::{LedgerGuard, LedgerLock, Since};
pub use otlp::RecordExporter;
pub use record::{
    ApprovalEvent, CERTIFICATE, DefinitionSubject, FOREIGN, NAMES, OAUTH, Record, RecordId,
    RecordStart, RecordedDecision, RecordedSearch, UNSEEN, WithheldItem, written,
};
pub use refusals::OVER_SHARE;
pub use sink::{AuditSink, Rendering, write_to_stdout};
pub use watch::{FileIntegrity, LossKind, SpaceProbe, VolumeSpace, volume};
use watch::{FileSpace, VolumeReserve};

/// Prefix of argument digests.
const DIGEST: &[u8] = b"hmac-sha256:";
/// Maximum time for the last lines to be written when the gateway stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which the journal flushes, signs and checks for expired files.
const TEND_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which a write that has not returned counts as stalled: requests are refused then, and readiness fails.
const WRITE_STALL: Duration = Duration::from_secs(5);
/// Time after which a sync that has not returned counts as failed. A disk that is busy takes a while.
const SYNC_STALL: Duration = Duration::from_secs(10);
/// Interval between attempts to write what is left when the gateway stops.
const STOP_RETRY: Duration = Duration::from_millis(100);
/// Number of these intervals between checks for expired files.
const RETENTION_EVERY: u64 = 10;
/// Maximum length of a probe record, in bytes. A failed record that is longer counts as this long.
const MAX_PROBE_BYTES: usize = 64 * 1024;
/// Room in bytes that a request waits for in a blocking spool: its lines are shorter.
const ROOM: usize = 64 * 1024;
/// Typical size of a call's record, used to ask whether the sinks would accept calls at all.
const CALL: RequiredRoom = RequiredRoom { usual: 1024, once: 0 };
/// Age below which a file of the log is young: that it is removed is told.
const YOUNG_FILE: Duration = Duration::from_secs(24 * 60 * 60);
/// Limits log lines about records that were not written: a failing sink causes one for each request.
static LOST: LogLimit = LogLimit::new(1, 10);

/// Limits log lines about messages that exceed their inspection budget: a peer decides how many there are.
static COSTLY: LogLimit = LogLimit::new(1, 10);

/// The source of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevocationSource {
    /// An operator, through the admin API.
    Operator,
    /// The file of revocations.
    File,
    /// The gateway, because the caller touched a decoy.
    Decoy,
}

impl RevocationSource {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::File => "file",
            Self::Decoy => "decoy",
        }
    }
}

/// The summaries of refused requests that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DueSummaries {
    /// Those whose interval has passed, if there is room beside calls.
    Expired,
    /// All of them, because the gateway stops.
    All,
}

/// Whether a turn of the periodic work removes expired files, which it does less often than the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetentionCheck {
    /// Expired files are removed in this turn.
    Now,
    /// In a later one.
    Later,
}

/// How the last run of the gateway has left the log.
#[derive(Clone, Copy, Debug)]
struct PreviousRun {
    /// It ended without the record of a stop.
    crashed: bool,
    /// The length and the digest of the incomplete last record that was cut off.
    torn: Option<(usize, Hash)>,
}

/// Receives every exchange that has ended, beside the sinks.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Called once for each exchange, with its record and its outcome.
    fn ended(&self, record: &Record, ending: ExchangeEnd, now: Instant);
}

/// The reason why a record was not written.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A sink did not accept a line.
    #[error("the audit sink `{sink}` did not take the record")]
    Sink {
        /// Name of the sink.
        sink: Box<str>,
        /// The error of the sink.
        #[source]
        cause: io::Error,
    },
    /// The records of the caller take its share of a spool already.
    #[error("the records of the caller take its share of what they are written to")]
    Share,
    /// Checkpoints cannot be signed or written.
    #[error("checkpoints cannot be made: {0}")]
    Checkpoint(Box<str>),
    /// A write by another thread has not returned.
    #[error("an earlier write to the audit log has not returned for {} s", WRITE_STALL.as_secs())]
    Stalled,
    /// The operating system gives no random bytes.
    #[error("the operating system gave no random bytes")]
    Random,
}

/// The audit journal: it writes records to all sinks and hands out [`OpenRecord`] as proof that a record is open.
pub struct Journal {
    /// A chain has one order, so it has one lock. It is the only lock that all requests share, and it is held for the
    /// hash of a leaf, on average one node above it, and one `write` for each sink.
    ledger: LedgerLock<Ledger>,
    chain: Box<str>,
    /// Spools whose lack of room blocks calls.
    waited: Vec<Spool>,
    /// Spools whose lack of room denies calls.
    needed: Vec<Spool>,
    spools: Vec<Spool>,
    /// The checkpoints that are kept apart from the log.
    checkpoint_file: Option<CheckpointWriter>,
    /// Returns the free space of a file's volume.
    volume: SpaceProbe,
    /// Files with data that is not yet synced, by sink name. The thread that holds the lock syncs them.
    syncing: Mutex<Vec<(Box<str>, Arc<File>)>>,
    /// Since when a sync has been under way.
    sync_began: Since,
    /// The last sync has failed.
    unsynced: AtomicBool,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    config_digest: ArcSwap<Box<str>>,
    digest_key: hmac::Key,
    ids: RecordIds,
    /// Set when a sink fails; cleared when a record at least `lacking` bytes long is written.
    failing: AtomicBool,
    /// Length of the longest record that failed since then, in bytes; at most [`MAX_PROBE_BYTES`].
    lacking: AtomicUsize,
    /// What is left on the volumes of the files.
    reserve: VolumeReserve,
    /// Counts refused requests of unauthenticated callers.
    refusals: RefusalCounters,
    /// Counts requests of callers that leave too many records.
    caller_refusals: RefusalCounters,
    /// Counts refused requests that upstream servers send outside of calls.
    server_refusals: RefusalCounters,
    /// Notified when a file was rotated, because an old one may have expired.
    turned: Notify,
    observers: Vec<Arc<dyn Observer>>,
    /// A temporary observer, such as the self-test.
    witness: ArcSwapOption<Box<dyn Observer>>,
}

/// The kind of a record that was not written, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostRecord {
    /// The record of an exchange.
    Exchange,
    /// The intent of a call, which was therefore not sent.
    Intent,
    /// The record of a server request outside of a call.
    ServerRequest,
    /// The record that the response to a call was cut off by a revocation.
    CutResponse,
    /// An event of the audit log itself.
    Event,
}

impl LostRecord {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Exchange => "exchange",
            Self::Intent => "intent",
            Self::ServerRequest => "server-request",
            Self::CutResponse => "cut-response",
            Self::Event => "event",
        }
    }
}

/// Generates the ids of records.
#[derive(Debug)]
struct RecordIds {
    /// A random part of every id of this process.
    process: u64,
    counter: AtomicU64,
}

impl RecordIds {
    fn next(&self, now: SystemTime) -> RecordId {
        RecordId::new(now, self.process, self.counter.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("chain", &self.chain).finish_non_exhaustive()
    }
}

/// The configuration and resources that [`Journal::new`] needs.
#[derive(Debug)]
pub struct JournalParts {
    /// The sinks, each with its policy for lack of room.
    pub sinks: Vec<SinkSlot>,
    /// The end of the existing chain in one of the sinks, if there is one.
    pub resumed: Option<ResumedChain>,
    /// The signer of checkpoints, and how often it signs.
    pub checkpoints: CheckpointPolicy,
    /// The separate file of checkpoints, if configured.
    pub checkpoint_file: Option<CheckpointFile>,
    /// Returns the free space of a file's volume.
    pub volume: SpaceProbe,
    /// The version of the configuration, for records that belong to no exchange.
    pub config_digest: String,
    /// The key of argument digests; a random one if `None`.
    pub digest_key: Option<Vec<u8>>,
    /// How refused requests of unauthenticated callers are summarised.
    pub refusals: settings::RefusalSettings,
    /// Observers of every exchange.
    pub observers: Vec<Arc<dyn Observer>>,
}

/// The random values that a journal begins with.
struct JournalSeed {
    /// The part that the ids of this process have in common.
    process: u64,
    /// The id of a new chain.
    chain: String,
    /// A key of argument digests, if none is configured.
    key: [u8; 32],
}

impl JournalSeed {
    /// Draws new random values.
    ///
    /// # Errors
    /// If there are no random bytes.
    fn generate() -> Result<Self, AuditError> {
        let (mut process, mut chain, mut key) = ([0; 8], [0; 8], [0; 32]);
        for part in [&mut process[..], &mut chain, &mut key] {
            rand::fill(part).map_err(|_unspecified| AuditError::Random)?;
        }
        Ok(Self { process: u64::from_be_bytes(process), chain: hex::encode(&chain), key })
    }
}

/// The same settings for refusals of servers, whose number the configuration bounds.
const fn of_servers(refusals: settings::RefusalSettings) -> settings::RefusalSettings {
    settings::RefusalSettings { tracked: usize::MAX, ..refusals }
}

impl Journal {
    /// Starts a journal: writes a `start` record and a first checkpoint to the sinks.
    ///
    /// # Errors
    /// If a sink does not accept the first lines, or there are no random bytes.
    pub fn new(
        parts: JournalParts,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, AuditError> {
        let seed = JournalSeed::generate()?;
        let JournalParts {
            sinks,
            resumed,
            checkpoints,
            checkpoint_file,
            volume,
            config_digest,
            digest_key,
            refusals,
            observers,
        } = parts;
        let crashed = resumed.as_ref().is_some_and(|resumed| resumed.crashed);
        let torn = resumed.as_ref().and_then(|resumed| resumed.torn);
        let chain = resumed.map_or_else(|| HashChain::new(&seed.chain), |resumed| resumed.chain);
        let spools: Vec<_> =
            sinks.iter().filter_map(|slot| Some((slot.full, slot.sink.spool()?.clone()))).collect();
        let that = |wanted: SpoolOverflow| -> Vec<Spool> {
            let spools = spools.iter().filter(|(full, _)| *full == wanted);
            spools.map(|(_, spool)| spool.clone()).collect()
        };
        let mut journal = Self {
            chain: chain.id.clone(),
            waited: that(SpoolOverflow::Block),
            needed: that(SpoolOverflow::Deny),
            spools: spools.into_iter().map(|(_, spool)| spool).collect(),
            ledger: LedgerLock::new(
                Ledger::new(chain, sinks, checkpoints, checkpoint_file.is_some()),
                Arc::clone(&clock),
                WRITE_STALL,
            ),
            checkpoint_file: None,
            volume,
            syncing: Mutex::default(),
            sync_began: Since::new(Arc::clone(&clock)),
            unsynced: AtomicBool::new(false),
            clock,
            metrics,
            config_digest: ArcSwap::from_pointee(config_digest.into()),
            digest_key: hmac::Key::new(
                hmac::HMAC_SHA256,
                digest_key.as_deref().unwrap_or(&seed.key),
            ),
            ids: RecordIds { process: seed.process, counter: AtomicU64::new(0) },
            failing: AtomicBool::new(false),
            lacking: AtomicUsize::new(0),
            reserve: VolumeReserve::new(),
            refusals: RefusalCounters::new(refusals),
            caller_refusals: RefusalCounters::new(refusals),
            server_refusals: RefusalCounters::new(of_servers(refusals)),
            turned: Notify::new(),
            observers,
            witness: ArcSwapOption::empty(),
        };
        journal.start(PreviousRun { crashed, torn })?;
        if let Some(file) = checkpoint_file {
            // The first record is written, so the failed start is recorded as well.
            let begun = journal.begin(file).inspect_err(|_| journal.abandon())?;
            journal.checkpoint_file = Some(begun);
        }
        Ok(journal)
    }

    fn start(&self, before: PreviousRun) -> Result<(), AuditError> {
        let PreviousRun { crashed, torn } = before;
        let mut ledger = self.ledger();
        let mut write = |event: &AuditEvent<'_>| self.event_line(event);
        // Gaps of the sinks are recorded first.
        ledger.mend(&mut write);
        let (key, tree) = (ledger.public(), ledger.tree().clone());
        let line = self.event_line(&AuditEvent {
            event: "start",
            crashed,
            bytes: torn.map(|(bytes, _)| bytes),
            digest: torn.map(|(_, digest)| digest),
            key: Some(&key),
            tree: Some(&tree),
            ..AuditEvent::default()
        });
        let written = ledger.push(line, &mut write);
        // A signed checkpoint right after the start shows that the gateway wrote this log.
        let written = written.and_then(|()| ledger.checkpoint(&mut write));
        drop(ledger);
        self.count_write(written)
    }

    /// Writes the first checkpoints to the separate file; the start fails if that fails.
    fn begin(&self, checkpoints: CheckpointFile) -> Result<CheckpointWriter, AuditError> {
        let UnsyncedData { files, notes } = self.ledger().unsynced();
        for (sink, file) in files {
            file.sync_data().map_err(|cause| AuditError::Sink { sink, cause })?;
        }
        let failed = |cause| AuditError::Sink { sink: checkpoint_file::NAME.into(), cause };
        checkpoints.begin(&notes).map_err(failed)
    }

    /// Returns an id for a new record: a UUID version 7 (RFC 9562), unique in and beyond this process.
    pub fn id(&self) -> RecordId {
        self.ids.next(self.clock.now())
    }

    /// Returns the digest of a call's arguments, keyed (HMAC-SHA-256) so that they cannot be found by guessing.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> String {
        let tag = hmac::sign(&self.digest_key, bytes);
        let mut text = Vec::with_capacity(DIGEST.len() + 2 * tag.as_ref().len());
        text.extend_from_slice(DIGEST);
        hex::write(&mut text, tag.as_ref());
        String::from_utf8(text).unwrap_or_default()
    }

    /// Records that another configuration takes effect.
    ///
    /// # Errors
    /// If a sink does not accept the record; then the new configuration must not take effect.
    pub fn record_config_applied(&self, config_digest: &str) -> Result<(), AuditError> {
        let former = self.config_digest.swap(Arc::new(config_digest.into()));
        let event = self.write_event(&AuditEvent { event: "applied", ..AuditEvent::default() });
        event.inspect_err(|_| self.config_digest.store(former))
    }

    /// Number of records in the chain, plus requests that are or will be summarised.
    #[must_use]
    pub fn accounted(&self) -> u64 {
        let counters = [&self.refusals, &self.caller_refusals, &self.server_refusals];
        let counted: u64 = counters.iter().map(|refusals| refusals.counted()).sum();
        self.ledger().tree().size() + counted
    }

    /// Sets or removes a temporary observer, which receives the exchanges that are on record.
    pub fn set_witness(&self, witness: Option<Box<dyn Observer>>) {
        self.witness.store(witness.map(Arc::new));
    }

    /// Whether any sink blocks calls for lack of room.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        !self.waited.is_empty()
    }

    /// Waits until the blocking sinks have room.
    pub async fn room(&self) {
        for spool in &self.waited {
            spool.vacant(ROOM).await;
        }
    }

    /// Whether the caller may leave further records: they take no more than its share of each spool that calls need, and
    /// of a volume that is almost full. Waits for its share of blocking spools.
    pub async fn has_share(&self, caller: CallerKey) -> bool {
        for spool in &self.waited {
            spool.vacant_for(caller, CALL.usual).await;
        }
        self.has_share_now(caller)
    }

    /// The same without waiting.
    fn has_share_now(&self, caller: CallerKey) -> bool {
        let mut spools = self.needed.iter().chain(&self.waited);
        self.reserve.has_share(caller) && spools.all(|spool| spool.has_share(caller, CALL.usual))
    }

    /// Opens the audit record of an exchange. Nothing is written before the exchange ends, so the proof suffices for
    /// requests that only read; [`ReadEntry::log_intent`] makes it one for a call.
    ///
    /// # Errors
    /// If a sink failed and still does. Then nothing may be sent.
    pub fn open(self: &Arc<Self>, record: Box<Record>) -> Result<ReadEntry, AuditError> {
        if self.failing.load(Ordering::Acquire) {
            self.probe()?;
        }
        let open = Open { journal: Arc::clone(self), record, is_closed: false };
        Ok(OpenRecord { open, stage: PhantomData })
    }

    /// Writes the intent of a call. Fails if a sink that must not lose records refuses it.
    fn log_intent(&self, record: &mut Record) -> Result<(), AuditError> {
        let line = record.intent(&self.chain);
        let captured = record.captured.as_ref();
        let room = captured.map_or(RequiredRoom::of(&line), |captured| RequiredRoom {
            usual: line.len().saturating_sub(captured.intent_bytes()),
            once: captured.intent_bytes() + captured.due,
        });
        let written = self.append(line, record.caller_key(), Some(room));
        if matches!(written, Err(AuditError::Share)) {
            self.count_together(record, OVER_SHARE_END, self.clock.instant());
        }
        written?;
        record.intent_logged = true;
        Ok(())
    }

    /// Records an exchange that had no open record, such as a refused request or a ping. An exchange of an
    /// authenticated caller has a separate record; others are summarised.
    ///
    /// # Errors
    /// If a sink does not accept the record.
    pub fn record_unopened(&self, record: &Record, ending: ExchangeEnd) -> Result<(), AuditError> {
        let now = self.clock.instant();
        match record.principal {
            // A cancellation or an answer to a question, which are never refused, or one that was under way.
            Some(_) if record.is_over_rate(now) => {
                self.count_together(record, ending, now);
                Ok(())
            }
            Some(_) => self.record_exchange(record, ending),
            None => self.record_summarised(record, ending),
        }
    }

    /// Records the answer to an HTTP request whose message is an exchange of its own: that exchange counts against the rate
    /// of its caller, and this answer does not.
    ///
    /// # Errors
    /// If a sink does not accept the record.
    pub fn record_outer(&self, record: &Record, ending: ExchangeEnd) -> Result<(), AuditError> {
        let now = self.clock.instant();
        if record.is_over_rate(now) {
            self.count_together(record, ending, now);
            return Ok(());
        }
        self.write_exchange(record, ending, now)
    }

    /// Records a refused request that is summarised with others like it, even if its caller is authenticated.
    ///
    /// # Errors
    /// If a sink does not accept the record.
    pub fn record_summarised(
        &self,
        record: &Record,
        ending: ExchangeEnd,
    ) -> Result<(), AuditError> {
        let kind = RefusalKind::of(record, ending);
        self.record_or_summarise(self.counters_of(&kind), &kind, record, ending)
    }

    /// Records a refused request that `server` sent outside of a call, summarised with others like it.
    ///
    /// # Errors
    /// If a sink does not accept the record.
    pub fn record_server_request(
        &self,
        server: &str,
        record: &Record,
        ending: ExchangeEnd,
    ) -> Result<(), AuditError> {
        self.record_or_summarise(
            &self.server_refusals,
            &RefusalKind::of_server(server, ending),
            record,
            ending,
        )
    }

    /// Records the first of a kind, and counts those after it.
    fn record_or_summarise(
        &self,
        refusals: &RefusalCounters,
        kind: &RefusalKind,
        record: &Record,
        ending: ExchangeEnd,
    ) -> Result<(), AuditError> {
        let now = self.clock.instant();
        let at = RefusalTime { now, time: record.time };
        if !self.has_room_beside_calls() {
            refusals.count(kind, at);
        } else if refusals.is_alone(kind, at) {
            // A record that fails is counted for the summary as well, although another sink may have it.
            let written = self.write_exchange(record, ending, now);
            return written.inspect_err(|_| refusals.count(kind, at));
        }
        self.metrics.audit_summarised.add(1);
        self.count(record, ending, now);
        self.tell_witness(record, ending, now);
        Ok(())
    }

    /// The counters for this kind. Callers without a credential take no place of callers that have one.
    fn counters_of(&self, kind: &RefusalKind) -> &RefusalCounters {
        match kind.origin {
            RefusalOrigin::Caller(_) => &self.caller_refusals,
            RefusalOrigin::Server(_) => &self.server_refusals,
            RefusalOrigin::Of(_) | RefusalOrigin::Other => &self.refusals,
        }
    }

    /// Counts an exchange that has no record of its own.
    fn count_together(&self, record: &Record, ending: ExchangeEnd, now: Instant) {
        let kind = RefusalKind::of(record, ending);
        self.counters_of(&kind).count(&kind, RefusalTime { now, time: record.time });
        self.metrics.audit_summarised.add(1);
        self.count(record, ending, now);
        self.tell_witness(record, ending, now);
    }

    /// Counts an exchange that is no call against the rate of its caller. Returns whether it has no record of its own: it
    /// was refused or denied, and the caller is over its rate, or the log has no room beside calls.
    fn is_only_counted(&self, record: &Record, ending: ExchangeEnd, now: Instant) -> bool {
        let Some(caller) = record.caller.as_ref().filter(|_| !record.is_of_call()) else {
            return false;
        };
        let is_over_rate = record.is_over_rate(now);
        caller.count(now);
        match ending.outcome {
            Ended::Refused | Ended::Denied => {
                is_over_rate || !self.has_room_beside_calls() || !self.has_share_now(caller.key())
            }
            Ended::Answered
            | Ended::Failed
            | Ended::Cancelled
            | Ended::ToolError
            | Ended::ServerError => false,
        }
    }

    /// Records an exchange that has ended.
    fn record_exchange(&self, record: &Record, ending: ExchangeEnd) -> Result<(), AuditError> {
        let now = self.clock.instant();
        if self.is_only_counted(record, ending, now) {
            self.count_together(record, ending, now);
            return Ok(());
        }
        self.write_exchange(record, ending, now)
    }

    /// Writes the record of an exchange that has ended, and counts it.
    fn write_exchange(
        &self,
        record: &Record,
        ending: ExchangeEnd,
        now: Instant,
    ) -> Result<(), AuditError> {
        self.count(record, ending, now);
        if record.is_over_budget()
            && let Some(suppressed) = COSTLY.allow(now)
        {
            tracing::warn!(
                event = "inspection.budget_exceeded",
                server = record.server.as_deref(),
                suppressed,
                "message withheld: inspecting it costs more than `limits.inspectionWorkPerByte` and `limits.inspectionWork` allow"
            );
        }
        self.append(record.exchange(&self.chain, ending, now), record.caller_key(), None)?;
        self.tell_witness(record, ending, now);
        Ok(())
    }

    fn tell_witness(&self, record: &Record, ending: ExchangeEnd, now: Instant) {
        if let Some(witness) = &*self.witness.load() {
            witness.ended(record, ending, now);
        }
    }

    /// Whether there is room for records of refusals beside the room reserved for calls. If calls are denied for lack
    /// of room anyway, nothing is reserved.
    fn has_room_beside_calls(&self) -> bool {
        !self.reserve.is_scarce()
            && self.waited.iter().all(|spool| spool.has_room_beside_waiting_calls(ROOM))
            && (self.needed.iter().all(Spool::has_room_beside_calls)
                || self.ledger.lock_in_time().is_none_or(|ledger| ledger.room(CALL, None).is_err()))
    }

    /// Writes the summaries of refused requests.
    fn summarise(&self, which: DueSummaries) {
        if which == DueSummaries::Expired && !self.has_room_beside_calls() {
            return;
        }
        let now = self.clock.instant();
        for refusals in [&self.refusals, &self.caller_refusals, &self.server_refusals] {
            let due = match which {
                DueSummaries::Expired => refusals.due(now),
                DueSummaries::All => refusals.all(now),
            };
            let mut left = due.into_iter();
            for summary in left.by_ref() {
                let Err(error) = self.record_summary(&summary) else { continue };
                refusals.give_back(&summary, now);
                self.log_failure(Err(error));
                break;
            }
            left.for_each(|summary| refusals.give_back(&summary, now));
        }
    }

    fn record_summary(&self, summary: &RefusalSummary) -> Result<(), AuditError> {
        let RefusalSummary { kind, count, since } = summary;
        let RefusalKind { origin, outcome, reason, detail, status } = kind;
        let (mut from, mut server, mut principal) = (None, None, None);
        match origin {
            RefusalOrigin::Server(name) => server = Some(Arc::clone(name)),
            RefusalOrigin::Caller(id) => principal = Some(Arc::clone(id)),
            RefusalOrigin::Of(_) | RefusalOrigin::Other => from = Some(origin.to_string()),
        }
        let counted = Some(RefusalCount {
            address: from,
            server,
            principal,
            count: *count,
            since: *since,
            outcome: *outcome,
            reason: *reason,
            detail: *detail,
            status: *status,
        });
        self.write_event(&AuditEvent { event: "refusals", counted, ..AuditEvent::default() })
    }

    fn count(&self, record: &Record, ending: ExchangeEnd, now: Instant) {
        let total = now.saturating_duration_since(record.started);
        let gateway = total.saturating_sub(record.in_servers());
        // A call that waits for a person, or whose client has gone meanwhile, was not denied.
        let waited = record.approval.is_some()
            && matches!(ending.outcome, Ended::Answered | Ended::Cancelled);
        let denial = record.reason().filter(|_| !waited);
        self.metrics.exchange(ending.outcome, denial, gateway);
        if let Some(detail) = ending.detail {
            self.metrics.credential_refused(detail);
        }
        let what = record.operated(ending);
        let upstream = record.sent_at.map(|_| record.upstream_duration);
        self.metrics.operation(&what, total, upstream);
        self.metrics.ran(record.asked());
        for observer in &self.observers {
            observer.ended(record, ending, now);
        }
    }

    /// Records that the process stops, signs the last checkpoint, and waits until everything is delivered.
    pub async fn stop(self: &Arc<Self>) {
        self.end();
        if tokio::time::timeout(STOP_TIMEOUT, self.synced()).await.is_err() {
            tracing::warn!(
                event = "audit.sync_failed",
                "the last audit records or checkpoints were not synced before the time limit"
            );
        }
        for spool in &self.spools {
            if tokio::time::timeout(STOP_TIMEOUT, spool.drained()).await.is_err() {
                tracing::warn!(
                    event = "audit.delivery_incomplete",
                    sink = AuditSink::name(spool),
                    "the last audit records were not delivered before the time limit"
                );
            }
        }
    }

    fn end(&self) {
        self.summarise(DueSummaries::All);
        if let Err(error) = self.write_event(&AuditEvent { event: "stop", ..AuditEvent::default() })
        {
            tracing::error!(
                event = "audit.write_failed", error = %crate::base::error_chain::ErrorChain(&error),
                "the `stop` record was not written"
            );
        }
        let signed = self.ledger().checkpoint(&mut |event| self.event_line(event));
        self.log_failure(self.count_write(signed));
    }

    /// Records that a start was given up before anything was served, so that the next start does not report a crash.
    pub(crate) fn abandon(&self) {
        self.end();
        self.sync();
    }

    /// Syncs repeatedly, on the blocking pool, until nothing is left.
    async fn synced(self: &Arc<Self>) {
        loop {
            let journal = Arc::clone(self);
            let synced = tokio::task::spawn_blocking(move || journal.sync());
            if synced.await.is_err() {
                return tracing::error!(
                    event = "audit.sync_failed",
                    "the last audit records were not synced: the task failed"
                );
            }
            if let Some(file) = &self.checkpoint_file {
                file.spool().drained().await;
            }
            if self.ledger().is_sent() {
                return;
            }
            tokio::time::sleep(STOP_RETRY).await;
        }
    }

    /// Records the revocation of `what`, with its source.
    ///
    /// # Errors
    /// If a sink does not accept the record.
    pub fn record_revoked(&self, what: &str, by: RevocationSource) -> Result<(), AuditError> {
        self.revocation("revoked", what, by)
    }

    /// Records the reversal of a revocation, with its source.
    ///
    /// # Errors
    /// If a sink does not accept the record.
    pub fn record_lifted(&self, what: &str, by: RevocationSource) -> Result<(), AuditError> {
        self.revocation("reinstated", what, by)
    }

    fn revocation(
        &self,
        event: &'static str,
        what: &str,
        by: RevocationSource,
    ) -> Result<(), AuditError> {
        self.write_event(&AuditEvent {
            event,
            what: Some(what),
            source: Some(by.as_str()),
            ..AuditEvent::default()
        })
    }

    /// Records a step in the life of an approval.
    ///
    /// # Errors
    /// If a sink does not accept the record.
    pub fn record_approval(&self, approval: ApprovalEvent<'_>) -> Result<(), AuditError> {
        self.write_event(&AuditEvent {
            event: "approval",
            approval: Some(approval),
            ..AuditEvent::default()
        })
    }

    /// Records an event that belongs to no exchange.
    ///
    /// # Errors
    /// If a sink does not accept the record.
    pub fn record_event(&self, event: &str, what: &str) -> Result<(), AuditError> {
        self.write_event(&AuditEvent { event, what: Some(what), ..AuditEvent::default() })
    }

    /// Records an event about a definition.
    ///
    /// # Errors
    /// If a sink does not accept the record.
    pub fn record_definition(
        &self,
        event: &str,
        what: &str,
        subject: DefinitionSubject<'_>,
    ) -> Result<(), AuditError> {
        let (what, subject) = (Some(what), Some(subject));
        self.write_event(&AuditEvent { event, what, subject, ..AuditEvent::default() })
    }

    /// Probes the sinks with a record as long as the longest that failed: room for a short record alone is not enough
    /// for calls.
    fn probe(&self) -> Result<(), AuditError> {
        let filler = "-".repeat(self.lacking.load(Ordering::Acquire));
        let what = Some(&*filler).filter(|filler| !filler.is_empty());
        let line = self.event_line(&AuditEvent { event: "probe", what, ..AuditEvent::default() });
        let room = RequiredRoom::of(&line);
        match self.write_line(line, None, Some(room)) {
            Ok(()) => self.count_write_of(Ok(()), MAX_PROBE_BYTES),
            // The probe is longer than the record that failed.
            Err(error) => self.count_write(Err(error)),
        }
    }

    fn write_event(&self, event: &AuditEvent<'_>) -> Result<(), AuditError> {
        self.append(self.event_line(event), None, None)
    }

    fn event_line(&self, event: &AuditEvent<'_>) -> Vec<u8> {
        let now = self.clock.now();
        event.write(&self.chain, &self.ids.next(now), now, &self.config_digest.load())
    }

    /// Appends a record, which takes of the share of `caller`. `reserve` is checked first for a record that starts a
    /// call. Records of finished work are written to every sink with room.
    fn append(
        &self,
        line: Vec<u8>,
        caller: Option<CallerKey>,
        reserve: Option<RequiredRoom>,
    ) -> Result<(), AuditError> {
        let bytes = line.len();
        match self.write_line(line, caller, reserve) {
            // The log works; it is this caller that has to wait.
            Err(AuditError::Share) => Err(AuditError::Share),
            written => self.count_write_of(written, bytes),
        }
    }

    /// Appends a record without counting the result.
    fn write_line(
        &self,
        line: Vec<u8>,
        caller: Option<CallerKey>,
        reserve: Option<RequiredRoom>,
    ) -> Result<(), AuditError> {
        // The content is hashed before the lock is taken.
        let content = content_of(&line);
        let mut ledger = self.ledger.lock_in_time().ok_or(AuditError::Stalled)?;
        let mut write = |event: &AuditEvent<'_>| self.event_line(event);
        let turned = ledger.turn(|| self.clock.now());
        let room = reserve.map_or(Ok(()), |room| ledger.room(room, caller));
        let before = ledger.in_files();
        let written = room.and_then(|()| ledger.push_hashed(line, &content, caller, &mut write));
        let bytes = ledger.in_files() - before;
        drop(ledger);
        self.reserve.wrote(bytes, caller);
        if turned {
            self.turned.notify_one();
        }
        written
    }

    /// Counts the result of a record whose length does not matter.
    fn count_write(&self, written: Result<(), AuditError>) -> Result<(), AuditError> {
        self.count_write_of(written, 0)
    }

    /// Counts the result of a record of `bytes` bytes. The success of a record that is shorter than the one that
    /// failed does not end the failure.
    fn count_write_of(
        &self,
        written: Result<(), AuditError>,
        bytes: usize,
    ) -> Result<(), AuditError> {
        let bytes = bytes.min(MAX_PROBE_BYTES);
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

    fn log_failure(&self, written: Result<(), AuditError>) {
        if let Err(error) = written {
            self.log_lost(&error, LostRecord::Event);
        }
    }

    /// Logs that a record was not written, at a limited rate: clients that send requests while a sink fails would
    /// otherwise decide how many lines there are.
    pub fn log_lost(&self, error: &(dyn std::error::Error + 'static), what: LostRecord) {
        if let Some(suppressed) = LOST.allow(self.clock.instant()) {
            tracing::error!(
                event = "audit.write_failed", error = %crate::base::error_chain::ErrorChain(error),
                record = what.as_str(), suppressed,
                "audit record not written"
            );
        }
    }

    fn ledger(&self) -> LedgerGuard<'_, Ledger> {
        self.ledger.lock()
    }

    /// Whether records are accepted and kept; probes a sink that has failed.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.impediment().is_none()
    }

    /// Why records are not accepted or not kept, as a clause; probes a sink that has failed.
    #[must_use]
    pub fn impediment(&self) -> Option<&'static str> {
        if self.ledger.is_stalled() {
            return Some("a write does not return");
        }
        if self.failing.load(Ordering::Acquire) && self.probe().is_err() {
            return Some("failing");
        }
        self.sync_impediment()
    }

    /// Why records that were written may not be on the disk.
    fn sync_impediment(&self) -> Option<&'static str> {
        if self.sync_began.lasts(SYNC_STALL) {
            return Some("a sync does not return");
        }
        self.unsynced.load(Ordering::Acquire).then_some("a sync has failed")
    }

    /// What holds the log up, without a probe: a write or a sync that does not return, or a sync that has failed. Sets the
    /// metrics of both.
    pub fn stall(&self) -> Option<&'static str> {
        let (write, sync) = (self.ledger.is_stalled(), self.sync_impediment());
        self.metrics.audit_write_stalled.store(u64::from(write), Ordering::Relaxed);
        self.metrics.audit_sync_failing.store(u64::from(sync.is_some()), Ordering::Relaxed);
        if write { Some("a write does not return") } else { sync }
    }

    /// Runs the journal's periodic work (flush, sign, remove expired files) until the gateway stops.
    pub async fn run_background(self: Arc<Self>, tasks: Tasks) {
        let mut turn = tokio::time::interval(TEND_INTERVAL);
        let mut count = 0_u64;
        loop {
            let due = tokio::select! {
                _ = turn.tick() => true,
                () = self.turned.notified() => false,
                () = tasks.halting() => return,
            };
            let journal = Arc::clone(&self);
            let retention = match count.is_multiple_of(RETENTION_EVERY) {
                true => RetentionCheck::Now,
                false => RetentionCheck::Later,
            };
            let tended = tokio::task::spawn_blocking(move || match due {
                true => journal.run_interval(retention),
                false => journal.remove_expired(),
            });
            if tended.await.is_err() {
                tracing::error!(
                    event = "audit.task_failed",
                    "the periodic work of the audit log has ended with a failure"
                );
                return;
            }
            count += u64::from(due);
        }
    }

    /// Does the work of one interval.
    fn run_interval(&self, retention: RetentionCheck) {
        self.check_files();
        self.check_checkpoint_file();
        self.summarise(DueSummaries::Expired);
        if retention == RetentionCheck::Now {
            self.remove_expired();
        }
        let now = self.clock.instant();
        let signed = self.ledger().checkpoint_at(now, &mut |event| self.event_line(event));
        if let Some(signed) = signed {
            self.log_failure(self.count_write(signed));
        }
        if let Some(suppressed) = LOST.left(now) {
            tracing::error!(
                event = "audit.write_failed",
                suppressed,
                "more audit records were not written"
            );
        }
        self.sync();
    }

    /// Checks that the files of sinks are intact and that their volumes have room.
    fn check_files(&self) {
        let mut space = FileSpace::ENOUGH;
        self.check_foreign_appends();
        let before = self.reserve.written();
        let watches = self.ledger().watches();
        for (n, watch) in watches {
            if watch.known.is_some() || watch.lost().is_some() {
                self.check_file(n);
            } else {
                space = space.least(watch.space(self.volume).unwrap_or(FileSpace::ENOUGH));
            }
        }
        if let Some(scarce) = self.reserve.found(space, before) {
            match scarce {
                true => tracing::error!(
                    event = "audit.volume_low",
                    "the volume of the audit log is almost full: the rest is reserved for calls, of each caller \
                     no more than it leaves to others, and requests that are refused are only counted"
                ),
                false => tracing::info!(
                    event = "audit.volume_recovered",
                    "the volume of the audit log has room again"
                ),
            }
        }
    }

    /// Checks whether another process has appended to a file. Calls continue: the gateway's own lines are whole, and
    /// `audit verify` tells them apart.
    fn check_foreign_appends(&self) {
        let told = self.ledger().foreign(&mut |event| self.event_line(event));
        for (sink, bytes, recorded) in told {
            self.metrics.audit_foreign.add(1);
            tracing::error!(
                event = "audit.file_foreign", %sink, bytes,
                "another process has appended to the audit file"
            );
            self.log_failure(self.count_write(recorded));
        }
    }

    /// Checks a file again under the lock, while nothing is written: it may just have been rotated.
    fn check_file(&self, n: usize) {
        let now = self.clock.now();
        let loss = self.ledger().look(n, now, &mut |event| self.event_line(event));
        let Some(LostFile { sink, what, is_new, then }) = loss else { return };
        if is_new {
            self.metrics.audit_files_lost.add(1);
        }
        match then {
            LossAction::Nothing(error) => {
                self.failing.store(true, Ordering::Release);
                if is_new {
                    tracing::error!(
                        event = "audit.file_lost", %sink, %what, %error,
                        "the audit file is lost: requests are refused until it is back"
                    );
                }
            }
            LossAction::Again => tracing::warn!(
                event = "audit.file_restored", %sink,
                "the audit file is back, and is continued"
            ),
            LossAction::Anew(recorded) => {
                tracing::error!(
                    event = "audit.file_lost", %sink, %what,
                    "the audit file is lost: a new one was created"
                );
                self.log_failure(self.count_write(recorded));
            }
        }
    }

    /// Checks that the file of checkpoints is intact. Calls continue without it, because the log has its own
    /// checkpoints.
    fn check_checkpoint_file(&self) {
        let Some(CheckpointFileLoss { what, is_new, begun }) =
            self.checkpoint_file.as_ref().and_then(CheckpointWriter::look)
        else {
            return;
        };
        let (sink, words) = (checkpoint_file::NAME, what.to_string());
        if is_new {
            self.metrics.audit_files_lost.add(1);
            let (sink, what) = (Some(sink), Some(&*words));
            self.log_failure(self.write_event(&AuditEvent {
                event: "lost",
                sink,
                what,
                ..AuditEvent::default()
            }));
        }
        match begun {
            Ok(()) => tracing::error!(
                event = "audit.file_lost", %sink, what = %words,
                "the checkpoint file is lost: a new one was created with the last checkpoint"
            ),
            Err(error) if is_new => tracing::error!(
                event = "audit.file_lost", %sink, what = %words, %error,
                "the checkpoint file is lost: checkpoints are written only to the audit log until a new file \
                 can be created"
            ),
            Err(_) => {}
        }
    }

    /// Syncs files, then sends checkpoints, so that a crash of the machine loses nothing that a checkpoint covers.
    fn sync(&self) {
        // The lock is held throughout: what a checkpoint covers is on disk before the checkpoint is sent.
        let mut owed = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let UnsyncedData { files, notes } = self.ledger().unsynced();
        for (sink, file) in files {
            if !owed.iter().any(|(_, known)| Arc::ptr_eq(known, &file)) {
                owed.push((sink, file));
            }
        }
        self.sync_began.begin();
        owed.retain(|(sink, file)| {
            let Err(cause) = file.sync_data() else { return false };
            self.log_failure(self.count_write(Err(AuditError::Sink { sink: sink.clone(), cause })));
            true
        });
        self.sync_began.end();
        self.unsynced.store(!owed.is_empty(), Ordering::Release);
        if let Some(file) = &self.checkpoint_file {
            // What is still in the spool was sent in an earlier interval.
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

    /// Tells that a file was removed although it was young: then the log covers less time than people expect of it, or one
    /// caller fills it.
    fn tell_young_file(&self, file: &str, age: Option<Duration>, rotation: Rotation) {
        let young = YOUNG_FILE.min(rotation.retention.unwrap_or(YOUNG_FILE));
        let Some(age) = age.filter(|age| *age < young) else { return };
        self.metrics.audit_young_files_removed.add(1);
        tracing::warn!(
            event = "audit.retention_short", %file, age_seconds = age.as_secs(),
            "an audit file was removed soon after it was full: `maxFiles` leaves less than a day"
        );
    }

    fn remove_expired(&self) {
        let kept = self.ledger().kept();
        let now = self.clock.now();
        for (file, rotation) in kept {
            for (path, first, next) in file::expired(&file, rotation, now) {
                let ended = std::fs::metadata(&path).and_then(|found| found.modified()).ok();
                // The removal is recorded before it is done.
                let name = path.display().to_string();
                let missing = Some((first, next.saturating_sub(1)));
                let event = AuditEvent {
                    event: "retired",
                    missing,
                    what: Some(&name),
                    ..AuditEvent::default()
                };
                if let Err(error) = self.write_event(&event) {
                    return self.log_failure(Err(error));
                }
                if let Err(error) = std::fs::remove_file(&path) {
                    // Recorded and tried again when the next file expires.
                    return tracing::error!(
                        event = "audit.retention_failed", %error, file = %name,
                        "an expired audit file could not be removed"
                    );
                }
                let age = ended.and_then(|ended| now.duration_since(ended).ok());
                self.tell_young_file(&name, age, rotation);
            }
        }
    }
}

/// Stage of an [`OpenRecord`] whose intent is not in the log: requests that only read may be sent.
#[derive(Debug)]
pub struct IntentPending(());

/// Stage of an [`OpenRecord`] whose intent every required sink has taken: the call may be sent.
#[derive(Debug)]
pub struct IntentLogged(());

/// Proof that an exchange will be on record: enough to read from a server, not to call it.
pub type ReadEntry = OpenRecord<IntentPending>;

/// Proof that the intent of a call is in the log: [`Upstream::call`] takes nothing less.
///
/// ```
/// # use std::sync::Arc;
/// # use gateway::{audit::ReadEntry, upstream::{CallOptions, Cleared, OnBehalfOf, Upstream}};
/// # async fn announced(
/// #     upstream: Arc<Upstream>, cleared: Cleared, entry: ReadEntry, caller: OnBehalfOf, options: CallOptions,
/// # ) {
/// let Ok(intent) = entry.log_intent() else { return };
/// drop(upstream.call(cleared, &intent, caller, options).await);
/// # }
/// ```
///
/// The same without the intent does not compile:
///
/// ```compile_fail,E0308
/// # use std::sync::Arc;
/// # use gateway::{audit::ReadEntry, upstream::{CallOptions, Cleared, OnBehalfOf, Upstream}};
/// # async fn unannounced(
/// #     upstream: Arc<Upstream>, cleared: Cleared, entry: ReadEntry, caller: OnBehalfOf, options: CallOptions,
/// # ) {
/// drop(upstream.call(cleared, &entry, caller, options).await);
/// # }
/// ```
///
/// [`Upstream::call`]: crate::upstream::Upstream::call
pub type Intent = OpenRecord<IntentLogged>;

/// An open audit record. It is closed once, at the latest when it is dropped. `S` is its stage: intent written or not.
#[derive(Debug)]
#[must_use = "an entry that is dropped is recorded as cancelled"]
pub struct OpenRecord<S> {
    open: Open,
    stage: PhantomData<S>,
}

#[derive(Debug)]
struct Open {
    journal: Arc<Journal>,
    record: Box<Record>,
    is_closed: bool,
}

impl ReadEntry {
    /// Writes the intent of the call that the record is of.
    ///
    /// # Errors
    /// If a sink does not take the intent. Then nothing may be sent, and the record is lost.
    pub fn log_intent(self) -> Result<Intent, AuditError> {
        let OpenRecord { mut open, .. } = self;
        if let Err(error) = open.journal.log_intent(&mut open.record) {
            open.is_closed = true;
            return Err(error);
        }
        Ok(OpenRecord { open, stage: PhantomData })
    }
}

impl<S> OpenRecord<S> {
    /// Records how the exchange ended.
    ///
    /// # Errors
    /// If a sink does not accept the record. A sent call cannot be undone; the result of a read is withheld.
    pub fn close(mut self, ending: ExchangeEnd) -> Result<(), AuditError> {
        self.open.end(ending)
    }
}

impl<S> Deref for OpenRecord<S> {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.open.record
    }
}

impl<S> DerefMut for OpenRecord<S> {
    fn deref_mut(&mut self) -> &mut Record {
        &mut self.open.record
    }
}

impl Open {
    fn end(&mut self, ending: ExchangeEnd) -> Result<(), AuditError> {
        if std::mem::replace(&mut self.is_closed, true) {
            return Ok(());
        }
        let lost = |error: &AuditError| self.journal.log_lost(error, LostRecord::Exchange);
        self.journal.record_exchange(&self.record, ending).inspect_err(lost)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // The client has gone, so the exchange was given up.
        if let Err(error) = self.end(ExchangeEnd::cancelled()) {
            tracing::debug!(error = %error, "the record of an abandoned exchange was not written");
        }
    }
}

#[cfg(test)]
mod tests;
