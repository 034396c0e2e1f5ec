//! Each remaining log can be verified, regardless of which records sinks refuse.

use std::io::{self, Cursor};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use audit_log::chain::HashChain;
use audit_log::note::{NoteSigner, NoteVerifier};
use audit_log::verify::{LogVerifier, VerifyOptions};
use bytes::Bytes;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::{CheckpointPolicy, Ledger, SinkSlot};
use crate::audit::record::{AuditEvent, RecordId};
use crate::audit::sink::AuditSink;
use crate::config::settings::SpoolOverflow;

/// A sink that accepts or refuses each line as scripted.
#[derive(Clone, Debug)]
struct Told {
    lines: Arc<Mutex<Vec<Bytes>>>,
    works: Arc<Mutex<bool>>,
}

impl AuditSink for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn append(&mut self, line: &Bytes) -> io::Result<()> {
        if !*self.works.lock().unwrap() {
            return Err(io::Error::other("told to"));
        }
        self.lines.lock().unwrap().push(line.clone());
        Ok(())
    }
}

const CHAIN: &str = "0011223344556677";

fn object(event: &AuditEvent<'_>) -> Vec<u8> {
    event.write(CHAIN, &RecordId::new(UNIX_EPOCH, 0, 0), UNIX_EPOCH, "sha256:0")
}

fn verified(lines: &[Bytes], key: &NoteVerifier) -> Vec<String> {
    let mut audit =
        LogVerifier::new(VerifyOptions { keys: vec![key.clone()], ..VerifyOptions::default() });
    audit.read("log", &mut Cursor::new(lines.concat())).unwrap();
    audit.finish().problems.iter().map(ToString::to_string).collect()
}

proptest! {
    #[test]
    fn what_is_left_can_be_verified(
        steps in proptest::collection::vec((any::<[bool; 2]>(), any::<bool>()), 0..60),
    ) {
        let told = || Told { lines: Arc::default(), works: Arc::new(Mutex::new(true)) };
        let sinks = [told(), told()];
        let signer = NoteSigner::generate("test").unwrap();
        let key = signer.public().clone();
        let slots = sinks.iter().zip([SpoolOverflow::Deny, SpoolOverflow::Drop]).map(|(sink, full)| {
            SinkSlot { sink: Box::new(sink.clone()), full, missing: None, begun: false }
        });
        let interval = Duration::from_secs(1);
        let checkpoints = CheckpointPolicy { signer, records: 5, interval };
        let mut ledger = Ledger::new(HashChain::new(CHAIN), slots.collect(), checkpoints, false);
        let (own, tree) = (ledger.public(), ledger.tree().clone());
        let start = AuditEvent { event: "start", key: Some(&own), tree: Some(&tree), ..AuditEvent::default() };
        ledger.push(object(&start), &mut object).unwrap();
        ledger.checkpoint(&mut object).unwrap();
        for (works, begins) in steps {
            for (sink, works) in sinks.iter().zip(works) {
                *sink.works.lock().unwrap() = works;
            }
            if begins {
                ledger.slots[0].begun = true;
            }
            let probe = object(&AuditEvent { event: "probe", ..AuditEvent::default() });
            // A record that the required sink does not accept counts as failed for the caller.
            prop_assert_eq!(ledger.push(probe, &mut object).is_ok(), works[0]);
        }
        // Both sinks work again at the end, and the log is stopped like that of a gateway.
        for sink in &sinks {
            *sink.works.lock().unwrap() = true;
        }
        ledger.push(object(&AuditEvent { event: "stop", ..AuditEvent::default() }), &mut object).unwrap();
        ledger.checkpoint(&mut object).unwrap();
        for sink in &sinks {
            let lines = sink.lines.lock().unwrap().clone();
            let problems = verified(&lines, &key);
            prop_assert!(problems.is_empty(), "{problems:?}\n{}", String::from_utf8_lossy(&lines.concat()));
        }
    }
}
