//! Keeps the values that an untrusted planner has passed, until a trusted one takes them (control C15).
//!
//! Bounded: one value for each declared name of a caller, a number of values in all, and a time. When there are too many,
//! the caller that has the most loses its oldest, so that no caller takes the values of another away.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
struct PassedValue {
    json: Box<str>,
    at: Instant,
}

/// The values of all callers: by the caller, and the name of the value.
type PassedValues = HashMap<Box<str>, BTreeMap<Box<str>, PassedValue>>;

/// The store of passed values.
#[derive(Debug)]
pub struct ChannelStore {
    most: usize,
    time: Duration,
    values: Mutex<PassedValues>,
}

impl ChannelStore {
    /// An empty store for `most` values, each of which is kept for `time`.
    #[must_use]
    pub fn new(most: usize, time: Duration) -> Self {
        Self { most, time, values: Mutex::default() }
    }

    /// How long a value is kept.
    #[must_use]
    pub const fn time(&self) -> Duration {
        self.time
    }

    /// Keeps a value, as JSON, in place of the last one of this caller and name.
    pub fn pass(&self, caller: &str, name: &str, json: &str, now: Instant) {
        let mut values = self.values();
        let is_new = !values.get(caller).is_some_and(|own| own.contains_key(name));
        let count: usize = values.values().map(BTreeMap::len).sum();
        if is_new && count >= self.most {
            make_room(&mut values);
        }
        let value = PassedValue { json: json.into(), at: now };
        values.entry(caller.into()).or_default().insert(name.into(), value);
    }

    /// The last value that was passed for this caller and name, as JSON; `None` if there is none, or its time is over.
    #[must_use]
    pub fn take(&self, caller: &str, name: &str, now: Instant) -> Option<Box<str>> {
        let values = self.values();
        let value = values.get(caller)?.get(name)?;
        (now < value.at + self.time).then(|| value.json.clone())
    }

    /// Drops values whose time is over.
    pub fn sweep(&self, now: Instant) {
        self.values().retain(|_, own| {
            own.retain(|_, value| now < value.at + self.time);
            !own.is_empty()
        });
    }

    fn values(&self) -> MutexGuard<'_, PassedValues> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the oldest value of the caller that has the most.
fn make_room(values: &mut PassedValues) {
    let most = values.iter().max_by_key(|(caller, own)| (own.len(), (*caller).clone()));
    let Some(caller) = most.map(|(caller, _)| caller.clone()) else { return };
    let Some(own) = values.get_mut(&caller) else { return };
    let oldest = own.iter().min_by_key(|(_, value)| value.at).map(|(name, _)| name.clone());
    if let Some(oldest) = oldest {
        own.remove(&oldest);
    }
    if own.is_empty() {
        values.remove(&caller);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::ChannelStore;
    use crate::base::clock::{Clock as _, SystemClock};

    #[test]
    fn a_value_is_its_callers_alone_and_kept_for_a_while() {
        let (store, now) = (ChannelStore::new(10, Duration::from_secs(60)), SystemClock.instant());
        store.pass("ana", "amount", "1", now);
        store.pass("ana", "amount", "2", now);
        assert_eq!(store.take("ana", "amount", now).as_deref(), Some("2"));
        assert_eq!(store.take("ana", "other", now), None);
        assert_eq!(store.take("bob", "amount", now), None);
        let later = now + Duration::from_secs(60);
        assert_eq!(store.take("ana", "amount", later), None);
        store.sweep(later);
        assert!(store.values().is_empty());
    }

    #[test]
    fn the_caller_with_the_most_values_loses_its_oldest() {
        let (store, now) = (ChannelStore::new(4, Duration::from_secs(60)), SystemClock.instant());
        store.pass("ana", "a", "1", now);
        for (n, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            store.pass("bob", name, "1", now + Duration::from_secs(n as u64 + 1));
        }
        let has = |caller, name| store.take(caller, name, now).is_some();
        assert!(has("ana", "a") && has("bob", "d") && !has("bob", "a"));
    }
}
