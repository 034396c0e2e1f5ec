//! The chain and its sinks: writes each record to every sink in order, and tracks which records a sink is missing.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use audit_log::chain::{HashChain, content_of};
use audit_log::note::NoteSigner;
use audit_log::tree::{Hash, MerkleTree};
use bytes::Bytes;

use super::AuditError;
use super::record::AuditEvent;
use super::sink::AuditSink;
use super::watch::{FileIntegrity, LossKind};
use crate::base::caller_counters::CallerKey;
use crate::config::settings::{Rotation, SpoolOverflow};

/// Maximum number of checkpoints that wait to be sent: the last ones prove what earlier ones do.
const NOTES: usize = 1024;

/// Serializes an event as a JSON object.
type WriteEvent<'a> = dyn FnMut(&AuditEvent<'_>) -> Vec<u8> + 'a;

/// A sink and its state in the ledger.
#[derive(Debug)]
pub struct SinkSlot {
    /// The destination of the lines.
    pub sink: Box<dyn AuditSink>,
    /// The policy for lack of room.
    pub full: SpoolOverflow,
    /// The first and last record that the sink is missing and that no `gap` record reports yet.
    pub missing: Option<(u64, u64)>,
    /// The sink has started a new file, and no `opened` record says where.
    pub begun: bool,
}

/// The room that a call needs before it is sent, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequiredRoom {
    /// Bytes that each of its records takes.
    pub(super) usual: usize,
    /// Bytes that occur in one of its records only.
    pub(super) once: usize,
}

impl RequiredRoom {
    pub(super) fn of(line: &[u8]) -> Self {
        Self { usual: line.len(), once: 0 }
    }
}

/// The signer of checkpoints, and how often it signs.
#[derive(Debug)]
pub struct CheckpointPolicy {
    /// The key that signs the tree head.
    pub signer: NoteSigner,
    /// Number of records after which a checkpoint is due.
    pub records: u64,
    /// Time after which a checkpoint is due, if there are new records.
    pub interval: Duration,
}

/// What is not synced yet, and would be lost in a crash of the machine.
#[derive(Debug)]
pub(super) struct UnsyncedData {
    /// The files of sinks that were written to, by sink name.
    pub(super) files: Vec<(Box<str>, Arc<File>)>,
    /// Checkpoints over what was written to them, for the separate file.
    pub(super) notes: Vec<String>,
}

/// A sink's file that is no longer intact.
#[derive(Debug)]
pub(super) struct LostFile {
    /// The name of the sink.
    pub(super) sink: Box<str>,
    /// How the file was lost.
    pub(super) what: LossKind,
    /// Whether the loss was not known before.
    pub(super) is_new: bool,
    /// The action that was taken.
    pub(super) then: LossAction,
}

/// The action taken for a file that was lost.
#[derive(Debug)]
pub(super) enum LossAction {
    /// No new file could be started, so the sink accepts nothing.
    Nothing(io::Error),
    /// The file is back, with everything that was written to it.
    Again,
    /// A new file was started; the result says whether that is on record.
    Anew(Result<(), AuditError>),
}

/// The chain, its sinks and the state of checkpoints.
#[derive(Debug)]
pub struct Ledger {
    chain: HashChain,
    slots: Vec<SinkSlot>,
    checkpoints: CheckpointPolicy,
    /// Number of records up to and including the last checkpoint.
    covered: u64,
    /// A record with tree peaks was written that a checkpoint must confirm.
    owed: bool,
    signed: Option<Instant>,
    /// Checkpoints are kept apart from the log as well.
    kept: bool,
    /// Checkpoints that were not sent there yet.
    notes: Vec<String>,
    /// Number of bytes that were written to files since the start.
    in_files: u64,
}

impl Ledger {
    pub(super) fn new(
        chain: HashChain,
        slots: Vec<SinkSlot>,
        checkpoints: CheckpointPolicy,
        kept: bool,
    ) -> Self {
        let covered = chain.tree.size();
        Self {
            chain,
            slots,
            checkpoints,
            covered,
            owed: false,
            signed: None,
            kept,
            notes: Vec::new(),
            in_files: 0,
        }
    }

    /// The public key of the signer, as text.
    pub(super) fn public(&self) -> String {
        self.checkpoints.signer.public().text()
    }

    /// Number of records after the last checkpoint.
    fn uncovered(&self) -> u64 {
        self.chain.tree.size().saturating_sub(self.covered)
    }

    pub(super) fn tree(&self) -> &MerkleTree {
        &self.chain.tree
    }

    /// Checks that every sink with the policy `deny` has room for the records of a call, and `caller` a share of it.
    ///
    /// # Errors
    /// If one has no room.
    pub(super) fn room(
        &self,
        room: RequiredRoom,
        caller: Option<CallerKey>,
    ) -> Result<(), AuditError> {
        // Room for the `intent` line, the longer `exchange` line, and what only one of them has.
        let length = 3 * (room.usual + 256) + room.once;
        for slot in self.slots.iter().filter(|slot| slot.full == SpoolOverflow::Deny) {
            let has_share = caller.is_none_or(|caller| slot.sink.has_share(caller, length));
            if !has_share {
                return Err(AuditError::Share);
            }
            if !slot.sink.room(length) {
                let cause = io::Error::other("it has no room for more");
                return Err(AuditError::Sink { sink: slot.sink.name().into(), cause });
            }
        }
        Ok(())
    }

    /// Appends a record, a JSON object without its place, to every sink that accepts it.
    ///
    /// # Errors
    /// If a sink that may not lose records does not accept it.
    pub(super) fn push(
        &mut self,
        line: Vec<u8>,
        write: &mut WriteEvent<'_>,
    ) -> Result<(), AuditError> {
        let content = content_of(&line);
        self.push_hashed(line, &content, None, write)
    }

    /// Like [`Self::push`], for a record whose content digest is known, and which takes of the share of `caller`.
    ///
    /// # Errors
    /// If a sink that may not lose records does not accept it.
    pub(super) fn push_hashed(
        &mut self,
        line: Vec<u8>,
        content: &Hash,
        caller: Option<CallerKey>,
        write: &mut WriteEvent<'_>,
    ) -> Result<(), AuditError> {
        self.mend(write);
        let written = self.write(line, content, caller);
        // A record that one sink did not accept may be in another: a checkpoint covers it all the same.
        let due = self.owed || self.uncovered() >= self.checkpoints.records;
        let signed = if due { self.checkpoint(write) } else { Ok(()) };
        written.and(signed)
    }

    /// The number of bytes that were written to files since the start, with what seals the records and with checkpoints.
    pub(super) const fn in_files(&self) -> u64 {
        self.in_files
    }

    /// Records the gaps of sinks that have room again, and the starts of new files.
    pub(super) fn mend(&mut self, write: &mut WriteEvent<'_>) {
        for n in 0..self.slots.len() {
            let Some(slot) = self.slots.get(n) else { return };
            if slot.begun && slot.missing.is_none() {
                self.opened(n, write);
            }
            let Some(slot) = self.slots.get(n) else { return };
            if slot.missing.is_some() && slot.sink.room(4096) {
                self.gap(n, write);
            }
        }
    }

    /// Writes an `opened` record, so that a new file can be continued and verified from its first record.
    fn opened(&mut self, n: usize, write: &mut WriteEvent<'_>) {
        let (tree, key) = (self.chain.tree.clone(), self.public());
        let name: Option<Box<str>> = self.slots.get(n).map(|slot| slot.sink.name().into());
        let (sink, tree, key) = (name.as_deref(), Some(&tree), Some(&*key));
        self.note(&AuditEvent { event: "opened", key, sink, tree, ..AuditEvent::default() }, write);
        self.owed = true;
        // If this sink does not accept it, its `gap` record carries the same peaks.
        if let Some(slot) = self.slots.get_mut(n) {
            slot.begun = false;
        }
    }

    /// Writes a `gap` record that says which records a sink is missing. A reader of that sink alone can continue from
    /// it.
    fn gap(&mut self, n: usize, write: &mut WriteEvent<'_>) {
        let (tree, size) = (self.chain.tree.clone(), self.chain.tree.size());
        let Some(slot) = self.slots.get_mut(n) else { return };
        let name: Box<str> = slot.sink.name().into();
        let lacked = slot.missing.take();
        let (sink, tree) = (Some(&*name), Some(&tree));
        self.note(
            &AuditEvent { event: "gap", missing: lacked, sink, tree, ..AuditEvent::default() },
            write,
        );
        self.owed = true;
        let taken = self.chain.tree.size() > size;
        let Some(slot) = self.slots.get_mut(n) else { return };
        slot.missing = match (lacked, slot.missing) {
            (Some(_), None) if taken => None,
            // Other sinks have the `gap` record, so this one is missing it too.
            (Some((from, _)), Some((_, to))) => Some((from, to)),
            (lacked, _) => lacked,
        };
    }

    /// Appends an event of the log itself. If it is lost, a later gap shows it.
    fn note(&mut self, event: &AuditEvent<'_>, write: &mut WriteEvent<'_>) {
        let line = write(event);
        let content = content_of(&line);
        if let Err(error) = self.write(line, &content, None) {
            tracing::warn!(
                event = "audit.write_failed", error = %crate::base::error_chain::ErrorChain(&error),
                record = event.event,
                "audit event not written"
            );
        }
    }

    /// Rotates full files; returns whether there were any.
    pub(super) fn turn(&mut self, now: impl Fn() -> SystemTime) -> bool {
        let (next, mut turned) = (self.chain.tree.size(), false);
        for slot in &mut self.slots {
            match slot.sink.turn(next, &now) {
                Ok(begun) => {
                    slot.begun |= begun;
                    turned |= begun;
                }
                Err(error) => {
                    let sink = slot.sink.name();
                    tracing::error!(
                        event = "audit.rotation_failed", %error, %sink,
                        "an audit file could not be rotated"
                    );
                }
            }
        }
        turned
    }

    fn write(
        &mut self,
        mut line: Vec<u8>,
        content: &Hash,
        caller: Option<CallerKey>,
    ) -> Result<(), AuditError> {
        let place = self.chain.next(content);
        place.seal(&mut line);
        let line = Bytes::from(line);
        let (mut taken, mut failed) = (false, None);
        for slot in &mut self.slots {
            let room = slot.full == SpoolOverflow::Block || slot.sink.room(line.len());
            let written = match slot.missing {
                // A `gap` record must come before any other.
                Some(_) => Err(io::Error::other("it lacks earlier records")),
                // Callers have already waited for room, so a blocking sink cannot overflow here.
                None if room => slot.sink.append_for(&line, caller),
                None => Err(io::Error::other("it has no room for more")),
            };
            match written {
                Ok(()) => {
                    taken = true;
                    self.in_files += if slot.sink.takes_space() { line.len() as u64 } else { 0 };
                }
                Err(cause) => {
                    let (from, _) = slot.missing.unwrap_or((place.seq, place.seq));
                    slot.missing = Some((from, place.seq));
                    if slot.full == SpoolOverflow::Drop {
                        // The sink may lose records, and this one is counted as missing.
                        taken = true;
                    } else {
                        let sink = slot.sink.name().into();
                        failed = Some(AuditError::Sink { sink, cause });
                    }
                }
            }
        }
        if taken || self.slots.is_empty() {
            self.chain.push(&place);
        } else {
            // No sink has the record, so its number is reused.
            for slot in &mut self.slots {
                let before = slot.missing.filter(|(from, _)| *from < place.seq);
                slot.missing = before.map(|(from, _)| (from, place.seq - 1));
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Writes a checkpoint, if there are records after the last one.
    ///
    /// # Errors
    /// If a sink that may not lose records does not accept it.
    pub(super) fn checkpoint(&mut self, write: &mut WriteEvent<'_>) -> Result<(), AuditError> {
        if self.uncovered() == 0 {
            return Ok(());
        }
        let tree = self.chain.tree.clone();
        let note = self.checkpoints.signer.note(&self.chain.id, &tree);
        let event = AuditEvent {
            event: "checkpoint",
            note: Some(&note),
            tree: Some(&tree),
            ..AuditEvent::default()
        };
        let line = write(&event);
        let content = content_of(&line);
        let written = self.write(line, &content, None);
        if self.chain.tree.size() > tree.size() {
            (self.covered, self.owed) = (self.chain.tree.size(), false);
        }
        written?;
        if self.kept {
            self.notes.push(note);
            self.keep_last();
        }
        Ok(())
    }

    /// Writes a checkpoint if the interval has passed; `None` if no checkpoint is due.
    pub(super) fn checkpoint_at(
        &mut self,
        now: Instant,
        write: &mut WriteEvent<'_>,
    ) -> Option<Result<(), AuditError>> {
        let signed = *self.signed.get_or_insert(now);
        let due = now.saturating_duration_since(signed) >= self.checkpoints.interval;
        if !due {
            return None;
        }
        self.signed = Some(now);
        (self.uncovered() > 0).then(|| self.checkpoint(write))
    }

    /// Returns handles to check the files of sinks, with the index of each sink.
    pub(super) fn watches(&self) -> Vec<(usize, FileIntegrity)> {
        let watch = |(n, slot): (usize, &SinkSlot)| Some((n, slot.sink.watch()?));
        self.slots.iter().enumerate().filter_map(watch).collect()
    }

    /// Checks the file of the sink at index `n`, while nothing is written to it. If it is not intact, the sink
    /// accepts nothing until the file is back or a new one is started.
    pub(super) fn look(
        &mut self,
        n: usize,
        now: SystemTime,
        write: &mut WriteEvent<'_>,
    ) -> Option<LostFile> {
        let next = self.chain.tree.size();
        let slot = self.slots.get_mut(n)?;
        let watch = slot.sink.watch()?;
        let what = watch.lost().or(watch.known)?;
        slot.sink.lose(what);
        let sink: Box<str> = slot.sink.name().into();
        let is_new = watch.known.is_none();
        let then = match slot.sink.recover(next, now) {
            Err(cause) => LossAction::Nothing(cause),
            Ok(None) => LossAction::Again,
            Ok(Some(first)) => {
                // The first record of the new file says where the chain goes on.
                (slot.missing, slot.begun) = (None, true);
                let missing = next.checked_sub(1).filter(|last| *last >= first);
                let missing = missing.map(|last| (first, last));
                let words = what.to_string();
                let (sink, what) = (Some(&*sink), Some(&*words));
                let line = write(&AuditEvent {
                    event: "lost",
                    missing,
                    sink,
                    what,
                    ..AuditEvent::default()
                });
                LossAction::Anew(self.push(line, write))
            }
        };
        Some(LostFile { sink, what, is_new, then })
    }

    /// Records what other processes have appended to files of sinks. Returns the sink, the number of bytes, and the
    /// result of the record.
    pub(super) fn foreign(
        &mut self,
        write: &mut WriteEvent<'_>,
    ) -> Vec<(Box<str>, u64, Result<(), AuditError>)> {
        let mut found: Vec<(Box<str>, u64)> = Vec::new();
        for slot in &mut self.slots {
            match slot.sink.foreign() {
                Ok(0) => {}
                Ok(bytes) => found.push((slot.sink.name().into(), bytes)),
                // The next write finds the same error and is refused for it.
                Err(error) => tracing::debug!(%error, "an audit file could not be examined"),
            }
        }
        let mut told = Vec::new();
        for (sink, bytes) in found {
            let line = {
                let (sink, bytes) = (Some(&*sink), usize::try_from(bytes).ok());
                write(&AuditEvent { event: "foreign", bytes, sink, ..AuditEvent::default() })
            };
            let recorded = self.push(line, write);
            told.push((sink, bytes, recorded));
        }
        told
    }

    /// Takes what needs to be synced. The caller syncs it, and returns checkpoints that could not be sent with
    /// [`Self::unsent`].
    pub(super) fn unsynced(&mut self) -> UnsyncedData {
        let file = |slot: &mut SinkSlot| Some((slot.sink.name().into(), slot.sink.unsynced()?));
        let files = self.slots.iter_mut().filter_map(file).collect();
        UnsyncedData { files, notes: std::mem::take(&mut self.notes) }
    }

    /// Puts back checkpoints that could not be sent.
    pub(super) fn unsent(&mut self, mut notes: Vec<String>) {
        notes.append(&mut self.notes);
        self.notes = notes;
        self.keep_last();
    }

    /// Whether all checkpoints were handed over.
    pub(super) fn is_sent(&self) -> bool {
        self.notes.is_empty()
    }

    fn keep_last(&mut self) {
        let over = self.notes.len().saturating_sub(NOTES);
        self.notes.drain(..over);
    }

    /// The files whose rotated files may expire, and their rotation settings.
    pub(super) fn kept(&self) -> Vec<(PathBuf, Rotation)> {
        self.slots.iter().filter_map(|slot| slot.sink.kept()).collect()
    }
}

#[cfg(test)]
mod tests;
