//! Keeps what each flow was shown, in bounded memory (control C15).
//!
//! A flow that is dropped for want of room never becomes one that was shown nothing. While its labels are kept and only its
//! values are dropped, every value that it does not know counts as untrusted. If the flow itself is dropped, every flow
//! that its caller begins has the strictest labels until the dropped one would have expired. The caller with the
//! most flows loses its oldest ones, so that no caller closes the flows of another.

use std::collections::{BinaryHeap, HashMap};
use std::hash::RandomState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy::flow::memory::FlowMemory;
use policy::flow::planner::Planner;
use policy::flow::value::ValueKey;

use super::SessionKey;

/// Bytes that a value takes in memory, with the unused room of its table.
const EACH_VALUE: usize = 32;

/// Which flow a request belongs to. Parts that a client chooses only tell flows of one caller apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The principal with its client, as authenticated, but without the key with which it proves possession.
    pub caller: Box<str>,
    /// Which of the caller's flows.
    pub part: FlowPart,
    /// The planner that the route is for: what one planner is shown does not label the flow of the other.
    pub planner: Option<Planner>,
}

/// Which flow of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowPart {
    /// That of a legacy session.
    Session(SessionKey),
    /// That of a trace of the client.
    Trace(u128),
    /// That of everything without a session.
    Stateless,
}

/// The bounds of the store.
#[derive(Clone, Copy, Debug)]
pub struct FlowBounds {
    /// Most flows of all callers.
    pub flows: usize,
    /// Most values of one flow.
    pub values: usize,
    /// Most bytes of all values.
    pub memory: usize,
    /// How long a flow without a session lasts after its last request.
    pub window: Duration,
    /// How long the flow of a session lasts after its last request: as long as sessions do.
    pub session: Duration,
}

#[derive(Debug)]
struct KeptFlow {
    memory: Arc<Mutex<FlowMemory>>,
    values: usize,
    used: Instant,
}

#[derive(Debug, Default)]
struct FlowTable {
    flows: HashMap<FlowKey, KeptFlow>,
    /// The values of all flows.
    values: usize,
    /// Callers whose flows were dropped, and until when their new flows have the strictest labels.
    closed: HashMap<Box<str>, Instant>,
}

/// The store of flows.
#[derive(Debug)]
pub struct FlowStore {
    key: ValueKey,
    bounds: FlowBounds,
    table: Mutex<FlowTable>,
}

impl FlowStore {
    /// An empty store with a random key for its hashes.
    #[must_use]
    pub fn new(bounds: FlowBounds) -> Self {
        Self { key: ValueKey::new(RandomState::new()), bounds, table: Mutex::default() }
    }

    /// Reads or changes the memory of a flow. `act` also gets the key of the hashes, and the most values of one flow.
    pub fn with<T>(
        &self,
        flow: &FlowKey,
        now: Instant,
        act: impl FnOnce(&ValueKey, &mut FlowMemory, usize) -> T,
    ) -> T {
        let memory = self.find(flow, now);
        let mut kept = memory.lock().unwrap_or_else(PoisonError::into_inner);
        let before = kept.length();
        let done = act(&self.key, &mut kept, self.bounds.values);
        let after = kept.length();
        drop(kept);
        if after != before {
            self.count(flow, after);
        }
        done
    }

    /// Drops flows that have expired.
    pub fn sweep(&self, now: Instant) {
        let mut table = self.table();
        let FlowTable { flows, values, closed } = &mut *table;
        flows.retain(|key, flow| {
            let lives = now < self.end(key, flow);
            *values -= if lives { 0 } else { flow.values };
            lives
        });
        closed.retain(|_, until| now < *until);
    }

    fn table(&self) -> MutexGuard<'_, FlowTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When a flow expires if nothing more is done in it.
    fn end(&self, key: &FlowKey, flow: &KeptFlow) -> Instant {
        flow.used
            + match key.part {
                FlowPart::Session(_) => self.bounds.session,
                FlowPart::Trace(_) | FlowPart::Stateless => self.bounds.window,
            }
    }

    /// The memory of a flow; a new one begins where there is none.
    fn find(&self, key: &FlowKey, now: Instant) -> Arc<Mutex<FlowMemory>> {
        let mut table = self.table();
        if let Some(flow) = table.flows.get(key)
            && now >= self.end(key, flow)
        {
            table.values -= flow.values;
            table.flows.remove(key);
        }
        if let Some(flow) = table.flows.get_mut(key) {
            flow.used = now;
            return Arc::clone(&flow.memory);
        }
        if table.flows.len() >= self.bounds.flows {
            self.make_room(&mut table);
        }
        let is_closed = table.closed.get(&key.caller).is_some_and(|until| now < *until);
        let memory = if is_closed { FlowMemory::forgotten() } else { FlowMemory::default() };
        let memory = Arc::new(Mutex::new(memory));
        let kept = KeptFlow { memory: Arc::clone(&memory), values: 0, used: now };
        table.flows.insert(key.clone(), kept);
        memory
    }

    /// Drops an eighth of the flows of the caller that has the most: the ones that were unused for longest.
    fn make_room(&self, table: &mut FlowTable) {
        let mut callers: HashMap<&str, usize> = HashMap::new();
        for key in table.flows.keys() {
            *callers.entry(&key.caller).or_default() += 1;
        }
        let most = callers.into_iter().max_by_key(|(caller, count)| (*count, *caller));
        let Some((caller, count)) = most.map(|(caller, count)| (Box::<str>::from(caller), count))
        else {
            return;
        };
        let mut own: Vec<_> = table.flows.iter().filter(|(key, _)| key.caller == caller).collect();
        own.sort_by_key(|(_, flow)| flow.used);
        let dropped: Vec<_> = own
            .into_iter()
            .take(count.div_ceil(8))
            .map(|(key, flow)| (key.clone(), self.end(key, flow)))
            .collect();
        for (key, end) in dropped {
            table.values -= table.flows.remove(&key).map_or(0, |flow| flow.values);
            let until = table.closed.entry(caller.clone()).or_insert(end);
            *until = end.max(*until);
        }
    }

    /// Counts the values of a flow. Where all flows have too many, the caller that has the most loses those of its flows
    /// that were unused for longest, and keeps their labels. Nobody loses values because of another caller that has more.
    fn count(&self, key: &FlowKey, now_has: usize) {
        let mut table = self.table();
        let FlowTable { flows, values, .. } = &mut *table;
        // A flow that was dropped meanwhile is not counted.
        let Some(flow) = flows.get_mut(key) else { return };
        *values = *values - flow.values + now_has;
        flow.values = now_has;
        let most = self.bounds.memory / EACH_VALUE;
        if *values <= most {
            return;
        }
        let mut callers: HashMap<&str, (usize, Vec<&mut KeptFlow>)> = HashMap::new();
        for (key, flow) in flows.iter_mut().filter(|(_, flow)| flow.values > 0) {
            let (has, own) = callers.entry(&key.caller).or_default();
            *has += flow.values;
            own.push(flow);
        }
        for (_, own) in callers.values_mut() {
            own.sort_by_key(|flow| std::cmp::Reverse(flow.used));
        }
        let mut callers: BinaryHeap<_> = callers
            .into_iter()
            .map(|(caller, (has, own))| CallerValues { has, caller, own })
            .collect();
        while *values > most - most / 8 {
            let Some(mut first) = callers.peek_mut() else { break };
            let Some(flow) = first.own.pop() else { break };
            flow.memory.lock().unwrap_or_else(PoisonError::into_inner).forget_values();
            let lost = std::mem::take(&mut flow.values);
            first.has -= lost;
            *values -= lost;
        }
    }
}

/// The flows of one caller, ordered by how many values they have: the flow that was unused for longest is the last.
struct CallerValues<'a> {
    has: usize,
    caller: &'a str,
    own: Vec<&'a mut KeptFlow>,
}

impl PartialEq for CallerValues<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for CallerValues<'_> {}

impl PartialOrd for CallerValues<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CallerValues<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.has, self.caller).cmp(&(other.has, other.caller))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use json::{Document, JsonBounds};
    use policy::flow::label::FlowLabels;
    use policy::flow::memory::{ResultSource, RunsKept};

    use super::{EACH_VALUE, FlowBounds, FlowKey, FlowPart, FlowStore};

    const WINDOW: Duration = Duration::from_secs(60);

    fn store(flows: usize, values: usize) -> FlowStore {
        let memory = values * EACH_VALUE;
        FlowStore::new(FlowBounds {
            flows,
            values: 1000,
            memory,
            window: WINDOW,
            session: WINDOW * 2,
        })
    }

    fn key(caller: &str, session: u8) -> FlowKey {
        FlowKey { caller: caller.into(), part: FlowPart::Session([session; 16]), planner: None }
    }

    fn labels(store: &FlowStore, key: &FlowKey, now: Instant) -> FlowLabels {
        store.with(key, now, |_, memory, _| memory.labels())
    }

    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_caller_whose_flows_are_dropped_begins_with_the_strictest_labels() {
        let (store, now) = (store(4, 1000), start());
        labels(&store, &key("ana", 0), now);
        for n in 0..4 {
            labels(&store, &key("bob", n), now + Duration::from_secs(u64::from(n)));
        }
        let later = now + Duration::from_secs(9);
        assert_eq!(labels(&store, &key("bob", 0), later), FlowLabels::STRICTEST);
        assert_eq!(labels(&store, &key("ana", 0), later), FlowLabels::default());
        // Once the dropped flow would have expired, nothing can be washed off any more.
        let expired = later + WINDOW * 3;
        store.sweep(expired);
        assert_eq!(labels(&store, &key("bob", 9), expired), FlowLabels::default());
    }

    /// Shows a flow 30 words, and the 26 runs in them.
    fn shown(store: &FlowStore, key: &FlowKey, at: Instant, word: &str) {
        let text = (0..30).map(|n| format!("{word}{n} ")).collect::<String>();
        let document = Document::parse(format!(r#"["{text}"]"#).into(), &JsonBounds::ANSWER);
        store.with(key, at, |hashes, memory, most| {
            let (labels, runs) = (FlowLabels::STRICTEST, RunsKept::Confidential);
            let source = ResultSource { labels, vouched: &[], runs };
            memory.shown(hashes, source, document.unwrap().root(), most);
        });
    }

    fn known(store: &FlowStore, key: &FlowKey, now: Instant) -> (usize, bool) {
        store.with(key, now, |_, memory, _| (memory.length(), memory.marks(7).is_some()))
    }

    #[test]
    fn the_oldest_flow_loses_its_values_and_keeps_its_labels() {
        let (store, now) = (store(10, 100), start());
        shown(&store, &key("ana", 1), now, "first");
        shown(&store, &key("ana", 2), now + Duration::from_secs(1), "second");
        assert_eq!(labels(&store, &key("ana", 1), now), FlowLabels::STRICTEST);
        // What it does not know counts as untrusted.
        assert_eq!(known(&store, &key("ana", 1), now), (0, true));
        assert_eq!(known(&store, &key("ana", 2), now), (56, false));
        assert!(store.table().values <= 100);
    }

    #[test]
    fn the_caller_with_the_most_values_loses_its_own() {
        let (store, now) = (store(10, 200), start());
        let at = |seconds| now + Duration::from_secs(seconds);
        shown(&store, &key("ana", 1), at(0), "first");
        for n in 1..9 {
            shown(&store, &key("bob", n), at(n.into()), "other");
        }
        assert_eq!(known(&store, &key("ana", 1), at(9)), (56, false), "ana keeps hers");
        assert_eq!(known(&store, &key("bob", 1), at(9)), (0, true));
        assert_eq!(known(&store, &key("bob", 8), at(9)), (56, false));
        assert!(store.table().values <= 200);
    }

    #[test]
    fn a_flow_without_a_session_lasts_as_long_as_it_is_used() {
        let (store, now) = (store(10, 1000), start());
        let key = FlowKey { caller: "ana".into(), part: FlowPart::Stateless, planner: None };
        store.with(&key, now, |_, memory, _| memory.grow(FlowLabels::STRICTEST));
        for n in 1..5 {
            assert_eq!(labels(&store, &key, now + WINDOW / 2 * n), FlowLabels::STRICTEST);
        }
        assert_eq!(labels(&store, &key, now + WINDOW * 4), FlowLabels::default());
    }
}
