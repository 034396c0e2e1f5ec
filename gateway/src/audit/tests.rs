//! A log whose disk does not return from a write, or does not sync.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use audit_log::note::NoteSigner;
use bytes::Bytes;

use super::sink::AuditSink;
use super::{
    AuditError, CheckpointPolicy, Journal, JournalParts, SYNC_STALL, SinkSlot, WRITE_STALL,
};
use crate::base::clock::HandClock;
use crate::config::settings::{RefusalSettings, SpoolOverflow};
use crate::metrics::Metrics;

/// A disk that holds a write of `hold` until it is told to go on, and whose file may not be synced.
#[derive(Debug)]
struct Disk {
    held: Sender<()>,
    go: Mutex<Receiver<()>>,
    file: Arc<Mutex<Option<Arc<File>>>>,
}

impl AuditSink for Disk {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn append(&mut self, line: &Bytes) -> io::Result<()> {
        if line.windows(6).any(|part| part == b"\"hold\"") {
            self.held.send(()).unwrap();
            self.go.lock().unwrap().recv().unwrap();
        }
        Ok(())
    }

    fn unsynced(&mut self) -> Option<Arc<File>> {
        self.file.lock().unwrap().take()
    }
}

/// A journal on such a disk, and what controls the disk.
struct Fixture {
    clock: Arc<HandClock>,
    journal: Arc<Journal>,
    held: Receiver<()>,
    go: Sender<()>,
    file: Arc<Mutex<Option<Arc<File>>>>,
}

fn fixture() -> Fixture {
    let clock = HandClock::new();
    let (held_by, held) = channel();
    let (go, waits) = channel();
    let file = Arc::<Mutex<Option<Arc<File>>>>::default();
    let disk = Disk { held: held_by, go: Mutex::new(waits), file: Arc::clone(&file) };
    let slot =
        SinkSlot { sink: Box::new(disk), full: SpoolOverflow::Deny, missing: None, begun: false };
    let parts = JournalParts {
        sinks: vec![slot],
        resumed: None,
        checkpoints: CheckpointPolicy {
            signer: NoteSigner::generate("test").unwrap(),
            records: 1000,
            interval: Duration::from_secs(3600),
        },
        checkpoint_file: None,
        volume: |_| None,
        config_digest: "sha256:0".to_owned(),
        digest_key: None,
        refusals: RefusalSettings::default(),
        observers: Vec::new(),
    };
    let metrics = Arc::new(Metrics::new(SystemTime::UNIX_EPOCH));
    let journal = Journal::new(parts, Arc::<HandClock>::clone(&clock), metrics).unwrap();
    Fixture { clock, journal: Arc::new(journal), held, go, file }
}

#[test]
fn a_write_that_does_not_return_fails_the_records_of_others_and_readiness() {
    let Fixture { clock, journal, held, go, .. } = fixture();
    thread::scope(|scope| {
        let slow = scope.spawn(|| journal.record_event("hold", "a disk that hangs"));
        held.recv().unwrap();
        let moment = Duration::from_millis(1);
        clock.forward(WRITE_STALL.checked_sub(moment).unwrap());
        assert_eq!(
            (journal.impediment(), journal.stall()),
            (None, None),
            "a slow disk is no fault"
        );
        let waits = scope.spawn(|| journal.record_event("waits", ""));
        clock.forward(moment);
        assert!(matches!(waits.join().unwrap(), Err(AuditError::Stalled)));
        assert!(matches!(journal.record_event("later", ""), Err(AuditError::Stalled)));
        assert_eq!(journal.impediment(), Some("a write does not return"));
        assert_eq!(journal.stall(), Some("a write does not return"));
        go.send(()).unwrap();
        slow.join().unwrap().unwrap();
    });
    assert_eq!((journal.impediment(), journal.stall()), (None, None), "it goes on by itself");
    journal.record_event("after", "").unwrap();
}

#[test]
fn a_sync_that_fails_or_does_not_return_fails_readiness_and_no_record() {
    let Fixture { clock, journal, file, .. } = fixture();
    // Files that cannot be synced are devices.
    *file.lock().unwrap() = Some(Arc::new(File::open("/dev/null").unwrap()));
    journal.record_event("one", "").unwrap();
    journal.sync();
    for _ in 0..2 {
        journal.record_event("two", "").unwrap();
        assert_eq!(journal.impediment(), Some("a sync has failed"));
        assert_eq!(journal.stall(), Some("a sync has failed"));
    }
    // The disk is well again.
    let well = Arc::new(File::open(std::env::current_exe().unwrap()).unwrap());
    for (_, owed) in journal.syncing.lock().unwrap().iter_mut() {
        *owed = Arc::clone(&well);
    }
    journal.sync();
    assert_eq!((journal.impediment(), journal.stall()), (None, None));
    journal.sync_began.begin();
    clock.forward(SYNC_STALL);
    assert_eq!(journal.stall(), Some("a sync does not return"));
    assert!(!journal.is_working());
    journal.sync_began.end();
    assert!(journal.is_working());
}
