//! Which tools each caller has found, where the list of tools follows that (`discovery.loads`).
//!
//! A list belongs to a session, or to a caller without one. Only names are kept: whether a tool is shown is decided anew for
//! each list. Losing them harms nobody, because a tool is found again. Bounded: names of one list, lists and bytes in all,
//! and a time without use. When there are too many, the caller that has the most loses those that were unused for longest.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::flow_store::FlowPart;

/// Estimated bytes of a name besides its text.
const EACH_NAME: usize = 32;
/// Estimated bytes of a list besides its names and the texts of its key.
const EACH_LIST: usize = 512;
/// How often the name of the caller of a list is in memory.
const CALLER_COPIES: usize = 4;

/// Whose list it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LoadKey {
    /// The path of the route.
    pub route: Arc<str>,
    /// The caller with its client, as authenticated; the address of a caller that nothing else tells apart.
    pub caller: Box<str>,
    /// Its session, or which of its requests without one.
    pub part: FlowPart,
}

/// The bounds of the store.
#[derive(Clone, Copy, Debug)]
pub struct LoadBounds {
    /// Most lists of all callers.
    pub lists: usize,
    /// Most bytes of all lists, as estimated.
    pub bytes: usize,
    /// How long a list is kept after its last use.
    pub idle: Duration,
}

/// The names of one list on its route, the one that was found last at the end.
#[derive(Debug)]
struct LoadedList {
    names: VecDeque<Box<str>>,
    bytes: usize,
    used: Instant,
}

/// The lists of one caller.
#[derive(Debug, Default)]
struct CallerLists {
    keys: HashSet<LoadKey>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct LoadTable {
    lists: HashMap<LoadKey, LoadedList>,
    /// The same lists by caller.
    callers: HashMap<Box<str>, CallerLists>,
    /// The callers by the bytes of their lists, so that the one with the most is found without a look at all lists.
    sizes: BTreeSet<(usize, Box<str>)>,
    /// Who is told that a list has changed. Each entry has a listener, whose number is bounded like that of streams.
    listeners: HashMap<LoadKey, watch::Sender<()>>,
    bytes: usize,
}

/// The store of what callers have found.
#[derive(Debug)]
pub struct LoadedTools {
    bounds: LoadBounds,
    table: Mutex<LoadTable>,
}

impl LoadedTools {
    /// A store without any lists.
    #[must_use]
    pub fn new(bounds: LoadBounds) -> Self {
        Self { bounds, table: Mutex::default() }
    }

    /// Adds tools to a list of at most `most`, the most important one last. The oldest ones go. Returns whether the list has
    /// changed; its listeners are told.
    pub fn load(&self, key: &LoadKey, found: Vec<Box<str>>, most: usize, now: Instant) -> bool {
        let mut table = self.table();
        table.expire(key, now, self.bounds.idle);
        if found.is_empty() {
            return false;
        }
        if !table.lists.contains_key(key) {
            if table.lists.len() >= self.bounds.lists {
                table.make_room();
            }
            let bytes = EACH_LIST + key.route.len() + CALLER_COPIES * key.caller.len();
            let list = LoadedList { names: VecDeque::new(), bytes, used: now };
            table.lists.insert(key.clone(), list);
            table.resize(key, 0, bytes);
        }
        // INVARIANT: it was added above if it was missing.
        let Some(list) = table.lists.get_mut(key) else { return false };
        let before = list.bytes;
        let is_changed = list.add(found, most, now);
        let after = list.bytes;
        table.resize(key, before, after);
        while table.bytes > self.bounds.bytes && !table.lists.is_empty() {
            table.make_room();
        }
        if is_changed {
            table.tell(key);
        }
        is_changed
    }

    /// The names of the tools that a list has, which counts as use of it.
    #[must_use]
    pub fn names(&self, key: &LoadKey, now: Instant) -> BTreeSet<Box<str>> {
        let mut table = self.table();
        table.expire(key, now, self.bounds.idle);
        let list = table.lists.get_mut(key);
        list.map(|list| {
            list.used = now;
            list.names.iter().cloned().collect()
        })
        .unwrap_or_default()
    }

    /// Notes that a list is in use, such as when a tool is called.
    pub fn touch(&self, key: &LoadKey, now: Instant) {
        let mut table = self.table();
        table.expire(key, now, self.bounds.idle);
        if let Some(list) = table.lists.get_mut(key) {
            list.used = now;
        }
    }

    /// Forgets a list, such as that of a session that has ended.
    pub fn forget(&self, key: &LoadKey) {
        self.table().remove(key);
    }

    /// Listens for changes of a list.
    #[must_use]
    pub fn listen(self: &Arc<Self>, key: LoadKey) -> LoadListener {
        let mut table = self.table();
        let sender = table.listeners.entry(key.clone()).or_default();
        let receiver = Some(sender.subscribe());
        drop(table);
        LoadListener { store: Arc::clone(self), key, receiver }
    }

    /// Drops lists that were not used for the idle time.
    pub fn sweep(&self, now: Instant) {
        let mut table = self.table();
        let idle = self.bounds.idle;
        let is_over = |list: &LoadedList| now.saturating_duration_since(list.used) >= idle;
        let over = table.lists.iter().filter(|(_, list)| is_over(list));
        let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
        over.iter().for_each(|key| table.remove(key));
        if table.lists.capacity() > 4 * table.lists.len().max(16) {
            let left = 2 * table.lists.len().max(16);
            table.lists.shrink_to(left);
        }
    }

    fn table(&self) -> MutexGuard<'_, LoadTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoadedList {
    /// Adds names, and returns whether others are in the list than before.
    fn add(&mut self, found: Vec<Box<str>>, most: usize, now: Instant) -> bool {
        self.used = now;
        let before: BTreeSet<_> = self.names.iter().cloned().collect();
        for name in found {
            self.names.retain(|known| *known != name);
            self.names.push_back(name);
        }
        while self.names.len() > most {
            self.names.pop_front();
        }
        let size = |names: &mut dyn Iterator<Item = &Box<str>>| -> usize {
            names.map(|name| name.len() + EACH_NAME).sum()
        };
        self.bytes = self.bytes - size(&mut before.iter()) + size(&mut self.names.iter());
        before.len() != self.names.len() || !self.names.iter().all(|name| before.contains(name))
    }
}

impl LoadTable {
    fn tell(&self, key: &LoadKey) {
        if let Some(listener) = self.listeners.get(key) {
            listener.send_replace(());
        }
    }

    fn remove(&mut self, key: &LoadKey) {
        if let Some(list) = self.lists.remove(key) {
            self.resize(key, list.bytes, 0);
            self.tell(key);
        }
    }

    /// Notes that a list takes `after` bytes, 0 if it is gone, and took `before`, 0 if it is new.
    fn resize(&mut self, key: &LoadKey, before: usize, after: usize) {
        if before == after {
            return;
        }
        self.bytes = self.bytes - before + after;
        let mut lists = self.callers.remove(&key.caller).unwrap_or_default();
        self.sizes.remove(&(lists.bytes, key.caller.clone()));
        lists.bytes = lists.bytes - before + after;
        if before == 0 {
            lists.keys.insert(key.clone());
        }
        if after == 0 {
            lists.keys.remove(key);
        }
        if !lists.keys.is_empty() {
            self.sizes.insert((lists.bytes, key.caller.clone()));
            self.callers.insert(key.caller.clone(), lists);
        }
    }

    fn expire(&mut self, key: &LoadKey, now: Instant, idle: Duration) {
        let used = self.lists.get(key).map(|list| list.used);
        if used.is_some_and(|used| now.saturating_duration_since(used) >= idle) {
            self.remove(key);
        }
    }

    /// Drops an eighth of the lists of the caller whose lists take the most, those that were unused for longest.
    fn make_room(&mut self) {
        let most = self.sizes.last().and_then(|(_, caller)| self.callers.get(caller));
        let Some(most) = most else { return };
        let used = |key: &LoadKey| self.lists.get(key).map(|list| list.used);
        let mut own: Vec<_> = most.keys.iter().map(|key| (used(key), key.clone())).collect();
        own.sort_by_key(|(used, _)| *used);
        let dropped = own.len().div_ceil(8);
        own.iter().take(dropped).for_each(|(_, key)| self.remove(key));
    }
}

/// Learns of changes of one list.
#[derive(Debug)]
pub struct LoadListener {
    store: Arc<LoadedTools>,
    key: LoadKey,
    /// `None` only while it is dropped.
    receiver: Option<watch::Receiver<()>>,
}

impl LoadListener {
    /// Resolves when the list has changed since the last time.
    pub async fn changed(&mut self) {
        // INVARIANT: the sender is kept as long as a receiver is.
        let is_told = match &mut self.receiver {
            Some(receiver) => receiver.changed().await.is_ok(),
            None => false,
        };
        if !is_told {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for LoadListener {
    fn drop(&mut self) {
        let mut table = self.store.table();
        self.receiver = None;
        if table.listeners.get(&self.key).is_some_and(|sender| sender.receiver_count() == 0) {
            table.listeners.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::{LoadBounds, LoadKey, LoadedTools};
    use crate::base::clock::{Clock as _, SystemClock};
    use crate::session::flow_store::FlowPart;

    const IDLE: Duration = Duration::from_secs(60);

    fn store(lists: usize, bytes: usize) -> Arc<LoadedTools> {
        Arc::new(LoadedTools::new(LoadBounds { lists, bytes, idle: IDLE }))
    }

    fn key(caller: &str, session: u8) -> LoadKey {
        let part = FlowPart::Session([session; 16]);
        LoadKey { route: "/mcp".into(), caller: caller.into(), part }
    }

    fn named(names: &[&str]) -> Vec<Box<str>> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn a_list_is_its_callers_alone_bounded_and_forgotten_after_a_while() {
        let (store, now) = (store(10, 1 << 20), SystemClock.instant());
        let (ana, other) = (key("ana", 1), key("ana", 2));
        let names = |key: &LoadKey, now| {
            store.names(key, now).into_iter().map(String::from).collect::<Vec<_>>()
        };
        assert!(store.load(&ana, named(&["a", "b"]), 3, now));
        assert!(!store.load(&ana, named(&["a"]), 3, now), "nothing is new");
        assert!(store.load(&ana, named(&["c", "d"]), 3, now));
        // `b` was found before `a` was found again.
        assert_eq!(names(&ana, now), ["a", "c", "d"]);
        for stranger in [other, key("bob", 1), LoadKey { route: "/x".into(), ..ana.clone() }] {
            assert!(names(&stranger, now).is_empty(), "{stranger:?}");
        }
        let later = now + IDLE - Duration::from_secs(1);
        store.touch(&ana, later);
        store.sweep(later + IDLE - Duration::from_secs(1));
        assert_eq!(names(&ana, later + IDLE - Duration::from_secs(1)).len(), 3);
        assert!(names(&ana, later + IDLE * 2).is_empty());
        assert!(store.load(&ana, named(&["a"]), 3, later));
        store.sweep(later + IDLE);
        let table = store.table();
        assert!(table.lists.is_empty() && table.bytes == 0);
        assert!(table.callers.is_empty() && table.sizes.is_empty());
    }

    #[test]
    fn listeners_are_told_of_their_list_and_leave_nothing_behind() {
        let (store, now) = (store(10, 1 << 20), SystemClock.instant());
        let (ana, bob) = (key("ana", 1), key("bob", 1));
        let mut listeners = [&ana, &ana, &bob].map(|key| store.listen(key.clone()));
        assert!(store.load(&ana, named(&["a"]), 3, now));
        let told = listeners.each_mut().map(|one| one.changed().now_or_never().is_some());
        assert_eq!(told, [true, true, false]);
        assert!(!store.load(&ana, named(&["a"]), 3, now));
        assert!(listeners[0].changed().now_or_never().is_none());
        store.forget(&ana);
        assert!(listeners[0].changed().now_or_never().is_some());
        assert_eq!(store.table().listeners.len(), 2);
        drop(listeners);
        assert!(store.table().listeners.is_empty());
    }

    #[test]
    fn the_caller_with_the_most_loses_the_list_that_was_unused_for_longest() {
        let (few, now) = (store(4, 1 << 20), SystemClock.instant());
        few.load(&key("ana", 1), named(&["a"]), 3, now);
        for n in 1..=4_u8 {
            few.load(&key("bob", n), named(&["a"]), 3, now + Duration::from_secs(n.into()));
        }
        let has = |key: LoadKey| few.table().lists.contains_key(&key);
        assert!(has(key("ana", 1)) && has(key("bob", 4)) && !has(key("bob", 1)));
        // A long list does not push out those of others.
        let small = store(100, 4096);
        small.load(&key("ana", 1), named(&["a"]), 3, now);
        let long: Vec<Box<str>> = (0..100).map(|n| format!("{n:0>100}").into()).collect();
        small.load(&key("bob", 1), long, 100, now);
        let table = small.table();
        assert!(table.bytes <= 4096 && table.lists.contains_key(&key("ana", 1)));
        // What is known of callers is what their lists have.
        let sizes: usize = table.sizes.iter().map(|(bytes, _)| bytes).sum();
        let keys: usize = table.callers.values().map(|lists| lists.keys.len()).sum();
        assert_eq!((sizes, keys), (table.bytes, table.lists.len()));
    }
}
