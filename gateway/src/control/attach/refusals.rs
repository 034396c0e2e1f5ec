//! Bounds the cost of connections that are refused before they take a place.
//!
//! A program behind the gateway can connect to the socket as fast as it is refused. The gateway therefore remembers
//! for a moment which processes descend from it and closes their connections without reading `/proc` again, and it
//! pauses before the next accept after many refusals in a row. Clients that connect meanwhile wait in the backlog of
//! the kernel. The pause is so short, and a refusal without `/proc` so much cheaper, that they wait no longer than if
//! the gateway read `/proc` for each earlier connection.

use std::collections::HashMap;
use std::time::Duration;

use rustix::process::Pid;
use tokio::time::Instant;

/// Time for which a process is remembered as a descendant of the gateway. It is short because a reused process id
/// cannot be detected without `/proc`: a client with the id of an ended process is refused for at most this time, and
/// tries again.
const REMEMBERED: Duration = Duration::from_millis(250);
/// Maximum number of remembered processes.
const MOST: usize = 256;
/// Number of connections that are refused without a pause.
const BURST: u32 = 64;
/// The time within which these refusals must occur to cause a pause.
const WITHIN: Duration = Duration::from_secs(1);
/// The length of the pause as a multiple of the time that the refusals took, so that refusals take at most a quarter
/// of the time.
const PAUSE_FACTOR: u32 = 3;
/// Maximum length of a pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// The state of recent refusals.
#[derive(Debug, Default)]
pub(super) struct AttachRefusals {
    /// Descendants of the gateway, and when each was seen.
    below: HashMap<Pid, Instant>,
    /// Number of refusals since the last pause.
    count: u32,
    /// Time of the first of them.
    since: Option<Instant>,
}

impl AttachRefusals {
    /// Whether a process is remembered at `now` as a descendant of the gateway.
    pub(super) fn is_below(&self, process: Pid, now: Instant) -> bool {
        self.below.get(&process).is_some_and(|seen| now < *seen + REMEMBERED)
    }

    /// Remembers these processes as descendants of the gateway.
    pub(super) fn remember(&mut self, processes: &[Pid], now: Instant) {
        if self.below.len() + processes.len() > MOST {
            self.below.clear();
        }
        self.below.extend(processes.iter().map(|process| (*process, now)));
    }

    /// Counts a refusal at `now`; returns the pause before the next accept, if one is due.
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

    use super::{AttachRefusals, BURST, LONGEST_PAUSE, MOST, REMEMBERED};

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    #[test]
    fn a_process_below_the_gateway_is_known_for_a_moment() {
        let (mut refusals, now) = (AttachRefusals::default(), Instant::now());
        refusals.remember(&[pid(7), pid(8)], now);
        assert!(refusals.is_below(pid(7), now) && refusals.is_below(pid(8), now));
        assert!(!refusals.is_below(pid(9), now));
        assert!(!refusals.is_below(pid(7), now + REMEMBERED));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut refusals, now) = (AttachRefusals::default(), Instant::now());
        for id in (1..).take(4 * MOST) {
            refusals.remember(&[pid(id)], now);
            assert!(refusals.is_below(pid(id), now) && refusals.below.len() <= MOST);
        }
    }

    #[test]
    fn many_refusals_one_after_the_other_are_followed_by_a_short_pause() {
        let (mut refusals, now) = (AttachRefusals::default(), Instant::now());
        for round in 0..3 {
            let began = now + Duration::from_secs(round);
            let each = Duration::from_micros(10);
            for n in 1..BURST {
                assert_eq!(refusals.pause(began + each * (n - 1)), None);
            }
            let took = each * (BURST - 1);
            assert_eq!(refusals.pause(began + took), Some(took * 3));
        }
        // The pause is bounded, however slow the refusals are.
        for n in 1..BURST {
            assert_eq!(refusals.pause(now + Duration::from_millis(10) * n), None);
        }
        assert_eq!(refusals.pause(now + Duration::from_millis(900)), Some(LONGEST_PAUSE));
    }

    #[test]
    fn refusals_now_and_then_delay_nobody() {
        let (mut refusals, now) = (AttachRefusals::default(), Instant::now());
        for n in 0..10 * BURST {
            assert_eq!(refusals.pause(now + Duration::from_millis(50) * n), None);
        }
    }
}
