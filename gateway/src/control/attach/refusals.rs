//! What connections cost that are refused before they take a place.
//!
//! A program behind the gateway can connect with the socket as fast as it is refused. So the gateway remembers for a
//! moment which processes are below it, and closes their connections without reading `/proc` again; and it accepts
//! the next connections after a pause where many were refused one after the other. Clients that connect meanwhile wait
//! in the order of the kernel. The pause is so short, and a refusal without `/proc` so much cheaper, that they wait no
//! longer than for a gateway that reads `/proc` for each connection before theirs.

use std::collections::HashMap;
use std::time::Duration;

use rustix::process::Pid;
use tokio::time::Instant;

/// How long a process is known to be below the gateway. When a process starts cannot be told without `/proc`, so this
/// is short: a client that has got the id of a process that has ended is refused for so long at most, and tries again.
const REMEMBERED: Duration = Duration::from_millis(250);
/// Most processes that are remembered.
const MOST: usize = 256;
/// So many connections are refused without a pause.
const BURST: u32 = 64;
/// In which time they have to be refused.
const WITHIN: Duration = Duration::from_secs(1);
/// The pause, in parts of the time that the refusals took: the gateway is busy with them for a quarter of the time.
const PAUSE_FACTOR: u32 = 3;
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// The connections that were refused lately.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// The processes below the gateway, and when that was seen.
    below: HashMap<Pid, Instant>,
    /// How many connections were refused since the last pause.
    count: u32,
    /// When the first of them was.
    since: Option<Instant>,
}

impl Refusals {
    /// Whether a process is known to be below the gateway at `now`.
    pub(super) fn is_below(&self, process: Pid, now: Instant) -> bool {
        self.below.get(&process).is_some_and(|seen| now < *seen + REMEMBERED)
    }

    /// From `now` on these processes are known to be below the gateway.
    pub(super) fn remember(&mut self, processes: &[Pid], now: Instant) {
        if self.below.len() + processes.len() > MOST {
            self.below.clear();
        }
        self.below.extend(processes.iter().map(|process| (*process, now)));
    }

    /// Counts a connection that was refused at `now`; the pause before the next one is accepted, where there is one.
    pub(super) fn pause(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        let took = now.saturating_duration_since(since);
        if took > WITHIN {
            (self.count, self.since) = (1, Some(now));
            return None;
        }
        self.count += 1;
        if self.count < BURST {
            return None;
        }
        (self.count, self.since) = (0, None);
        Some((took * PAUSE_FACTOR).min(LONGEST_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::Pid;
    use tokio::time::Instant;

    use super::{BURST, LONGEST_PAUSE, MOST, REMEMBERED, Refusals};

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    #[test]
    fn a_process_below_the_gateway_is_known_for_a_moment() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        refusals.remember(&[pid(7), pid(8)], now);
        assert!(refusals.is_below(pid(7), now) && refusals.is_below(pid(8), now));
        assert!(!refusals.is_below(pid(9), now));
        assert!(!refusals.is_below(pid(7), now + REMEMBERED));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        for id in (1..).take(4 * MOST) {
            refusals.remember(&[pid(id)], now);
            assert!(refusals.is_below(pid(id), now) && refusals.below.len() <= MOST);
        }
    }

    #[test]
    fn many_refusals_one_after_the_other_are_followed_by_a_short_pause() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        for round in 0..3 {
            let began = now + Duration::from_secs(round);
            let each = Duration::from_micros(10);
            for n in 1..BURST {
                assert_eq!(refusals.pause(began + each * (n - 1)), None);
            }
            let took = each * (BURST - 1);
            assert_eq!(refusals.pause(began + took), Some(took * 3));
        }
        // However slowly it refuses.
        for n in 1..BURST {
            assert_eq!(refusals.pause(now + Duration::from_millis(10) * n), None);
        }
        assert_eq!(refusals.pause(now + Duration::from_millis(900)), Some(LONGEST_PAUSE));
    }

    #[test]
    fn refusals_now_and_then_delay_nobody() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        for n in 0..10 * BURST {
            assert_eq!(refusals.pause(now + Duration::from_millis(50) * n), None);
        }
    }
}
