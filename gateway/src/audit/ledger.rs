//! The chain and its sinks: what is written, in which order, and what is known to be missing where.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::AuditError;
use super::chain::{Chain, content_of};
use super::note::Signer;
use super::record::Event;
use super::sink::Sink;
use super::tree::{Hash, Tree};
use super::watch::{Lost, Watch};
use crate::config::settings::{Full, Rotation};

/// Most checkpoints that wait to be sent to who keeps them: the last prove what those before them do.
const NOTES: usize = 1024;

/// Writes the object of an event.
type Write<'a> = dyn FnMut(&Event<'_>) -> Vec<u8> + 'a;

/// A sink in its place.
#[derive(Debug)]
pub struct Slot {
    /// The sink.
    pub sink: Box<dyn Sink>,
    /// What happens when it has no room.
    pub full: Full,
    /// The first record it lacks, and the last, of those it is not yet on record to lack.
    pub missing: Option<(u64, u64)>,
    /// It was begun anew, and has not been told from where.
    pub begun: bool,
}

/// How much room a call wants before it is made, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// What its records say in any case, each of them.
    pub(super) usual: usize,
    /// What they say once.
    pub(super) once: usize,
}

impl Room {
    pub(super) fn of(line: &[u8]) -> Self {
        Self { usual: line.len(), once: 0 }
    }
}

/// Who signs the head of the tree, and how often.
#[derive(Debug)]
pub struct Checkpoints {
    /// Who signs.
    pub signer: Signer,
    /// After so many records.
    pub records: u64,
    /// After so long, if there was any.
    pub interval: Duration,
}

/// What a crash of the machine would lose.
#[derive(Debug)]
pub(super) struct Unsynced {
    /// The files of sinks that were written to, and whose they are.
    pub(super) files: Vec<(Box<str>, Arc<File>)>,
    /// Checkpoints over what was written to them, for who keeps them.
    pub(super) notes: Vec<String>,
}

/// The file of a sink that is not what it was.
#[derive(Debug)]
pub(super) struct Loss {
    /// Which sink.
    pub(super) sink: Box<str>,
    /// What became of the file.
    pub(super) what: Lost,
    /// It was not known before.
    pub(super) is_new: bool,
    /// What was done.
    pub(super) then: Then,
}

/// What was done about a file that was lost.
#[derive(Debug)]
pub(super) enum Then {
    /// There can be no other, so the sink takes nothing.
    Nothing(io::Error),
    /// It is there again, with all that was written to it.
    Again,
    /// There is another in its place, and that is on record, or is not.
    Anew(Result<(), AuditError>),
}

/// The chain and its sinks.
#[derive(Debug)]
pub struct Ledger {
    chain: Chain,
    slots: Vec<Slot>,
    checkpoints: Checkpoints,
    /// How many records the last checkpoint covers, itself among them.
    covered: u64,
    /// Something was said of the tree that a checkpoint has to confirm.
    owed: bool,
    signed: Option<Instant>,
    /// Somebody keeps checkpoints apart from the log as well.
    kept: bool,
    /// Those that were not sent there yet.
    notes: Vec<String>,
}

impl Ledger {
    pub(super) fn new(
        chain: Chain,
        slots: Vec<Slot>,
        checkpoints: Checkpoints,
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
        }
    }

    /// The key that checkpoints are signed with.
    pub(super) fn public(&self) -> String {
        self.checkpoints.signer.public().text()
    }

    /// Records after the last checkpoint.
    fn uncovered(&self) -> u64 {
        self.chain.tree.size().saturating_sub(self.covered)
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.chain.tree
    }

    /// Whether every sink that calls depend on has room for what a call leaves.
    ///
    /// # Errors
    /// When one has not.
    pub(super) fn room(&self, room: Room) -> Result<(), AuditError> {
        // Its line, the one that it ends with, and what belongs to both.
        let length = 3 * (room.usual + 256) + room.once;
        for slot in self.slots.iter().filter(|slot| slot.full == Full::Deny) {
            if !slot.sink.room(length) {
                let cause = io::Error::other("it has no room for more");
                return Err(AuditError::Sink { sink: slot.sink.name().into(), cause });
            }
        }
        Ok(())
    }

    /// Appends a record that is an object without its place, to every sink that takes it.
    ///
    /// # Errors
    /// When a sink does not take it that has to.
    pub(super) fn push(&mut self, line: Vec<u8>, write: &mut Write<'_>) -> Result<(), AuditError> {
        let content = content_of(&line);
        self.push_hashed(line, &content, write)
    }

    /// The same for a record whose digest is known.
    ///
    /// # Errors
    /// When a sink does not take it that has to.
    pub(super) fn push_hashed(
        &mut self,
        line: Vec<u8>,
        content: &Hash,
        write: &mut Write<'_>,
    ) -> Result<(), AuditError> {
        self.mend(write);
        let written = self.write(line, content);
        // What one sink did not take another has: it is covered all the same.
        let due = self.owed || self.uncovered() >= self.checkpoints.records;
        let signed = if due { self.checkpoint(write) } else { Ok(()) };
        written.and(signed)
    }

    /// Records what sinks lack, where they have room again, and where new files begin.
    pub(super) fn mend(&mut self, write: &mut Write<'_>) {
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

    /// The first record of a file has what is needed to go on from it.
    fn opened(&mut self, n: usize, write: &mut Write<'_>) {
        let (tree, key) = (self.chain.tree.clone(), self.public());
        let name: Option<Box<str>> = self.slots.get(n).map(|slot| slot.sink.name().into());
        let (sink, tree, key) = (name.as_deref(), Some(&tree), Some(&*key));
        self.note(&Event { event: "opened", key, sink, tree, ..Event::default() }, write);
        self.owed = true;
        // Where this sink has not taken it, what it lacks is said with the same peaks.
        if let Some(slot) = self.slots.get_mut(n) {
            slot.begun = false;
        }
    }

    /// Which records a sink lacks. Whoever reads that sink alone can go on from here.
    fn gap(&mut self, n: usize, write: &mut Write<'_>) {
        let (tree, size) = (self.chain.tree.clone(), self.chain.tree.size());
        let Some(slot) = self.slots.get_mut(n) else { return };
        let name: Box<str> = slot.sink.name().into();
        let lacked = slot.missing.take();
        let (sink, tree) = (Some(&*name), Some(&tree));
        self.note(&Event { event: "gap", missing: lacked, sink, tree, ..Event::default() }, write);
        self.owed = true;
        let taken = self.chain.tree.size() > size;
        let Some(slot) = self.slots.get_mut(n) else { return };
        slot.missing = match (lacked, slot.missing) {
            (Some(_), None) if taken => None,
            // Others have it: it is one more that this one lacks.
            (Some((from, _)), Some((_, to))) => Some((from, to)),
            (lacked, _) => lacked,
        };
    }

    /// Appends an event of the log itself. What is lost of it shows in the gap it leaves.
    fn note(&mut self, event: &Event<'_>, write: &mut Write<'_>) {
        let line = write(event);
        let content = content_of(&line);
        if let Err(error) = self.write(line, &content) {
            tracing::warn!(error = %crate::base::error_chain::Chain(&error), event.event, "not recorded");
        }
    }

    /// Begins files anew that are full; whether there were any.
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
                    tracing::error!(%error, %sink, "a file of records was not begun anew");
                }
            }
        }
        turned
    }

    fn write(&mut self, mut line: Vec<u8>, content: &Hash) -> Result<(), AuditError> {
        let place = self.chain.next(content);
        place.seal(&mut line);
        let line = Bytes::from(line);
        let (mut taken, mut failed) = (false, None);
        for slot in &mut self.slots {
            let room = slot.full == Full::Block || slot.sink.room(line.len());
            let written = match slot.missing {
                // First it has to be on record what it lacks.
                Some(_) => Err(io::Error::other("it lacks earlier records")),
                // Whoever has to wait has waited: no more of them are under way than may be.
                None if room => slot.sink.append(&line),
                None => Err(io::Error::other("it has no room for more")),
            };
            match written {
                Ok(()) => taken = true,
                Err(cause) => {
                    let (from, _) = slot.missing.unwrap_or((place.seq, place.seq));
                    slot.missing = Some((from, place.seq));
                    if slot.full == Full::Drop {
                        // It may lose records, and this one is counted as lost.
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
            // Nobody has it: its number is free.
            for slot in &mut self.slots {
                let before = slot.missing.filter(|(from, _)| *from < place.seq);
                slot.missing = before.map(|(from, _)| (from, place.seq - 1));
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Signs the head of the tree, if there is something new since it was last signed.
    ///
    /// # Errors
    /// When a sink does not take it that has to.
    pub(super) fn checkpoint(&mut self, write: &mut Write<'_>) -> Result<(), AuditError> {
        if self.uncovered() == 0 {
            return Ok(());
        }
        let tree = self.chain.tree.clone();
        let note = self.checkpoints.signer.note(&self.chain.id, &tree);
        let event =
            Event { event: "checkpoint", note: Some(&note), tree: Some(&tree), ..Event::default() };
        let line = write(&event);
        let content = content_of(&line);
        let written = self.write(line, &content);
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

    /// The same when it is time to; `None` when it is not.
    pub(super) fn checkpoint_at(
        &mut self,
        now: Instant,
        write: &mut Write<'_>,
    ) -> Option<Result<(), AuditError>> {
        let signed = *self.signed.get_or_insert(now);
        let due = now.saturating_duration_since(signed) >= self.checkpoints.interval;
        if !due {
            return None;
        }
        self.signed = Some(now);
        (self.uncovered() > 0).then(|| self.checkpoint(write))
    }

    /// What shows whether the files of sinks are still what they were, and the places of those sinks.
    pub(super) fn watches(&self) -> Vec<(usize, Watch)> {
        let watch = |(n, slot): (usize, &Slot)| Some((n, slot.sink.watch()?));
        self.slots.iter().enumerate().filter_map(watch).collect()
    }

    /// Looks at the file of the sink at place `n`, while nothing is written to it. One that is not what it was takes
    /// nothing more until there is another in its place, or itself again.
    pub(super) fn look(
        &mut self,
        n: usize,
        now: SystemTime,
        write: &mut Write<'_>,
    ) -> Option<Loss> {
        let next = self.chain.tree.size();
        let slot = self.slots.get_mut(n)?;
        let watch = slot.sink.watch()?;
        let what = watch.lost().or(watch.known)?;
        slot.sink.lose(what);
        let sink: Box<str> = slot.sink.name().into();
        let is_new = watch.known.is_none();
        let then = match slot.sink.recover(next, now) {
            Err(cause) => Then::Nothing(cause),
            Ok(None) => Then::Again,
            Ok(Some(first)) => {
                // The first record of the new file says where the chain goes on.
                (slot.missing, slot.begun) = (None, true);
                let missing = next.checked_sub(1).filter(|last| *last >= first);
                let missing = missing.map(|last| (first, last));
                let words = what.to_string();
                let (sink, what) = (Some(&*sink), Some(&*words));
                let line = write(&Event { event: "lost", missing, sink, what, ..Event::default() });
                Then::Anew(self.push(line, write))
            }
        };
        Some(Loss { sink, what, is_new, then })
    }

    /// Puts on record what somebody else has appended to files of sinks: the sink, how many bytes, and whether that
    /// was taken.
    pub(super) fn foreign(
        &mut self,
        write: &mut Write<'_>,
    ) -> Vec<(Box<str>, u64, Result<(), AuditError>)> {
        let mut found: Vec<(Box<str>, u64)> = Vec::new();
        for slot in &mut self.slots {
            match slot.sink.foreign() {
                Ok(0) => {}
                Ok(bytes) => found.push((slot.sink.name().into(), bytes)),
                // What is written next finds the same, and is refused for it.
                Err(error) => tracing::debug!(%error, "a file of records was not looked at"),
            }
        }
        let mut told = Vec::new();
        for (sink, bytes) in found {
            let line = {
                let (sink, bytes) = (Some(&*sink), usize::try_from(bytes).ok());
                write(&Event { event: "foreign", bytes, sink, ..Event::default() })
            };
            let recorded = self.push(line, write);
            told.push((sink, bytes, recorded));
        }
        told
    }

    /// What is to be synced: whoever asks does it, and gives [back](Self::unsent) what could not be sent.
    pub(super) fn unsynced(&mut self) -> Unsynced {
        let file = |slot: &mut Slot| Some((slot.sink.name().into(), slot.sink.unsynced()?));
        let files = self.slots.iter_mut().filter_map(file).collect();
        Unsynced { files, notes: std::mem::take(&mut self.notes) }
    }

    /// Keeps checkpoints that could not be sent, until they are asked for again.
    pub(super) fn unsent(&mut self, mut notes: Vec<String>) {
        notes.append(&mut self.notes);
        self.notes = notes;
        self.keep_last();
    }

    /// Whether who keeps checkpoints was given all there are.
    pub(super) fn is_sent(&self) -> bool {
        self.notes.is_empty()
    }

    fn keep_last(&mut self) {
        let over = self.notes.len().saturating_sub(NOTES);
        self.notes.drain(..over);
    }

    /// Where full files are, and how long they are kept.
    pub(super) fn kept(&self) -> Vec<(PathBuf, Rotation)> {
        self.slots.iter().filter_map(|slot| slot.sink.kept()).collect()
    }
}

#[cfg(test)]
mod tests;
