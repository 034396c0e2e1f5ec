//! Counts identical calls, so that an agent in a loop is stopped (control C16): the same principal calls the same tool
//! with the same arguments.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy::definition::registry::RateLimit;

use crate::base::gcra::{EventRate, Gcra};
use crate::base::sha256::sha256;

/// Most calls of one caller that are told apart. Of a caller with more the oldest is forgotten: it does not repeat one.
const PER_CALLER: usize = 256;

/// What was called with which arguments.
type CallDigest = [u8; 16];

/// Why a call is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepeatRefusal {
    /// The same call was made too often; with the time until it may be made again.
    Repeated(Duration),
    /// There is no room to count the calls of another caller.
    Full,
}

/// The latest calls of all callers.
#[derive(Debug)]
pub struct RepeatedCalls {
    // Locked briefly for each call of a tool, if repeated calls are refused at all.
    state: Mutex<CallHistory>,
    /// Most calls of all callers that are told apart.
    limit: usize,
}

#[derive(Debug, Default)]
struct CallHistory {
    callers: HashMap<Box<str>, VecDeque<(CallDigest, Gcra)>>,
    /// Number of calls in `callers`.
    length: usize,
}

impl CallHistory {
    /// Drops the calls that would be counted as if they had never been made.
    fn sweep(&mut self, now: Instant) {
        self.callers.retain(|_, calls| {
            calls.retain(|(_, count)| !count.is_even(now));
            !calls.is_empty()
        });
        self.length = self.callers.values().map(VecDeque::len).sum();
    }

    /// Forgets the oldest call of the caller with the most, so that busy callers do not keep others out. Returns whether
    /// there was one that has another call left.
    fn make_room(&mut self) -> bool {
        let most = self.callers.values_mut().max_by_key(|calls| calls.len());
        let has_room = most.filter(|calls| calls.len() > 1).and_then(VecDeque::pop_front).is_some();
        self.length -= usize::from(has_room);
        has_room
    }
}

impl RepeatedCalls {
    /// Room for at most `limit` calls.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { state: Mutex::default(), limit }
    }

    fn state(&self) -> MutexGuard<'_, CallHistory> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call of `caller`. `parts` are the server, the tool and the arguments in canonical form.
    ///
    /// # Errors
    /// If the same call was made too often, or cannot be counted.
    pub fn take(
        &self,
        caller: &str,
        parts: [&[u8]; 3],
        rate: RateLimit,
        now: Instant,
    ) -> Result<(), RepeatRefusal> {
        let pace = EventRate::new(rate.count, rate.per, rate.count);
        let digest = digest(parts);
        let mut state = self.state();
        if let Some(calls) = state.callers.get_mut(caller)
            && let Some((_, count)) = calls.iter_mut().find(|(known, _)| *known == digest)
        {
            return count.take(pace, now).map_err(RepeatRefusal::Repeated);
        }
        if state.length >= self.limit {
            state.sweep(now);
        }
        let is_full = state.length >= self.limit;
        let known = state.callers.get(caller).map_or(0, VecDeque::len);
        if is_full && known == 0 && !state.make_room() {
            return Err(RepeatRefusal::Full);
        }
        let is_full = state.length >= self.limit;
        let mut count = Gcra::new();
        count.take(pace, now).map_err(RepeatRefusal::Repeated)?;
        let calls = state.callers.entry(caller.into()).or_default();
        if is_full || known >= PER_CALLER {
            calls.pop_front();
        }
        calls.push_back((digest, count));
        state.length += usize::from(!(is_full || known >= PER_CALLER));
        Ok(())
    }

    /// Drops what need not be remembered any longer.
    pub fn sweep(&self, now: Instant) {
        self.state().sweep(now);
    }
}

fn digest(parts: [&[u8]; 3]) -> CallDigest {
    let mut text = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
    for part in parts {
        text.extend_from_slice(&(part.len() as u64).to_be_bytes());
        text.extend_from_slice(part);
    }
    sha256(&text).first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use policy::definition::registry::RateLimit;

    use super::{PER_CALLER, RepeatRefusal, RepeatedCalls};
    use crate::base::clock::{Clock as _, SystemClock};

    const RATE: RateLimit = RateLimit { count: 2, per: Duration::from_secs(60) };

    #[test]
    fn the_same_call_is_refused_and_another_one_is_not() {
        let (calls, start) = (RepeatedCalls::new(100), SystemClock.instant());
        let take = |who: &str, tool: &str, arguments: &str, seconds| {
            let parts = [b"up".as_slice(), tool.as_bytes(), arguments.as_bytes()];
            calls.take(who, parts, RATE, start + Duration::from_secs(seconds))
        };
        let repeated = |seconds| Err(RepeatRefusal::Repeated(Duration::from_secs(seconds)));
        assert_eq!([take("ana", "t", "{}", 0), take("ana", "t", "{}", 0)], [Ok(()), Ok(())]);
        assert_eq!(take("ana", "t", "{}", 10), repeated(20));
        assert_eq!([take("ana", "t", "[]", 10), take("ana", "u", "{}", 10)], [Ok(()), Ok(())]);
        assert_eq!(take("bob", "t", "{}", 10), Ok(()));
        assert_eq!(
            [take("ana", "t", "{}", 30), take("ana", "t", "{}", 30)],
            [Ok(()), repeated(30)]
        );
        calls.sweep(start + Duration::from_secs(600));
        assert_eq!(calls.state().length, 0);
    }

    #[test]
    fn a_caller_with_many_different_calls_takes_no_room_of_others() {
        let (calls, start) = (RepeatedCalls::new(PER_CALLER + 1), SystemClock.instant());
        let take = |who: &str, n: usize| {
            let arguments = n.to_string();
            calls.take(who, [b"up", b"t", arguments.as_bytes()], RATE, start)
        };
        assert!((0..10 * PER_CALLER).all(|n| take("ana", n) == Ok(())));
        assert_eq!(calls.state().length, PER_CALLER);
        assert_eq!(take("bob", 0), Ok(()));
        assert_eq!(take("carl", 0), Ok(()), "the busiest caller makes room");
        assert_eq!([take("ana", 0), take("bob", 1)], [Ok(()), Ok(())]);
        assert_eq!(calls.state().length, PER_CALLER + 1);
        assert_eq!([take("bob", 1), take("bob", 1)].map(|taken| taken.is_ok()), [true, false]);
    }

    #[test]
    fn where_each_caller_has_one_call_another_caller_is_refused() {
        let (calls, start) = (RepeatedCalls::new(2), SystemClock.instant());
        let take = |who: &str| calls.take(who, [b"up", b"t", b"{}"], RATE, start);
        assert_eq!([take("ana"), take("bob")], [Ok(()), Ok(())]);
        assert_eq!(take("carl"), Err(RepeatRefusal::Full));
    }
}
