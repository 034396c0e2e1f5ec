//! Each remaining log can be verified, regardless of which records sinks refuse.

use std::io::{self, Cursor};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::{Checkpoints, Ledger, Slot};
use crate::audit::chain::Chain;
use crate::audit::note::{Signer, Verifier};
use crate::audit::record::{Event, RecordId};
use crate::audit::sink::Sink;
use crate::audit::verify::{Audit, Demands};
use crate::config::settings::Full;

/// A sink that accepts or refuses each line as scripted.
#[derive(Clone, Debug)]
struct Told {
    lines: Arc<Mutex<Vec<Bytes>>>,
    works: Arc<Mutex<bool>>,
}

impl Sink for Told {
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

fn object(event: &Event<'_>) -> Vec<u8> {
    event.write(CHAIN, &RecordId::new(UNIX_EPOCH, 0, 0), UNIX_EPOCH, "sha256:0")
}

fn verified(lines: &[Bytes], key: &Verifier) -> Vec<String> {
    let mut audit = Audit::new(Demands { keys: vec![key.clone()], ..Demands::default() });
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
        let signer = Signer::generate("test").unwrap();
        let key = signer.public().clone();
        let slots = sinks.iter().zip([Full::Deny, Full::Drop]).map(|(sink, full)| {
            Slot { sink: Box::new(sink.clone()), full, missing: None, begun: false }
        });
        let interval = Duration::from_secs(1);
        let checkpoints = Checkpoints { signer, records: 5, interval };
        let mut ledger = Ledger::new(Chain::new(CHAIN), slots.collect(), checkpoints, false);
        let (own, tree) = (ledger.public(), ledger.tree().clone());
        let start = Event { event: "start", key: Some(&own), tree: Some(&tree), ..Event::default() };
        ledger.push(object(&start), &mut object).unwrap();
        ledger.checkpoint(&mut object).unwrap();
        for (works, begins) in steps {
            for (sink, works) in sinks.iter().zip(works) {
                *sink.works.lock().unwrap() = works;
            }
            if begins {
                ledger.slots[0].begun = true;
            }
            let probe = object(&Event { event: "probe", ..Event::default() });
            // A record that the required sink does not accept counts as failed for the caller.
            prop_assert_eq!(ledger.push(probe, &mut object).is_ok(), works[0]);
        }
        // Both sinks work again at the end, and the log is stopped like that of a gateway.
        for sink in &sinks {
            *sink.works.lock().unwrap() = true;
        }
        ledger.push(object(&Event { event: "stop", ..Event::default() }), &mut object).unwrap();
        ledger.checkpoint(&mut object).unwrap();
        for sink in &sinks {
            let lines = sink.lines.lock().unwrap().clone();
            let problems = verified(&lines, &key);
            prop_assert!(problems.is_empty(), "{problems:?}\n{}", String::from_utf8_lossy(&lines.concat()));
        }
    }
}
