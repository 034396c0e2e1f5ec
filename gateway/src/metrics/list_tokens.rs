//! How many tokens the lists of tools take that routes have shown last.
//!
//! A list is noted when it is shown, which is cheap, and counted when metrics are read: where nobody reads them, no
//! vocabulary of tokens is in memory.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Labels, MetricValue};

/// Most lists that are noted: those of a route and a server each.
const MAX_LISTS: usize = 4096;
/// Longest list that is counted, in bytes of JSON.
const MAX_LIST: usize = 4 * 1024 * 1024;
/// Bytes of lists after which the counting ends that one reading of the metrics begins.
const MAX_COUNTED: usize = 8 * 1024 * 1024;

/// The server in the labels of the gateway's own tools.
pub const OWN_TOOLS: &str = "_gateway";

/// How many tokens a list of tools takes in the context of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListTokenCount {
    /// As the list has the tools.
    pub shown: u64,
    /// If the list had every tool that its caller may use, with all words.
    pub full: u64,
}

/// The tools of one server in a list that a route has shown.
pub trait ShownTools: Any + fmt::Debug + Send + Sync {
    /// Bytes of JSON that all of them have.
    fn bytes(&self) -> usize;

    /// Bytes of JSON that are read to count them now: those of definitions whose tokens are not known yet.
    fn unread(&self) -> usize;

    /// Whether the others are the same definitions, so that the number is the same.
    fn is_same(&self, others: &dyn ShownTools) -> bool;

    /// Counts them; `None` if the list is no longer kept.
    fn count(&self) -> Option<ListTokenCount>;
}

/// The list of a server on a route that was shown last.
#[derive(Debug)]
struct LastList {
    tools: Arc<dyn ShownTools>,
    /// Whether `counted` is about `tools`.
    is_counted: bool,
    counted: Option<ListTokenCount>,
}

/// A route by its path, and a server by its name.
type ListKey = (Arc<str>, Box<str>);

/// The lists that were shown last, by route and server.
#[derive(Debug, Default)]
pub(super) struct ListTokens {
    lists: Mutex<BTreeMap<ListKey, LastList>>,
    /// The list that was counted last. The next reading begins behind it, so that each list has its turn.
    last: Mutex<Option<ListKey>>,
}

impl ListTokens {
    fn lists(&self) -> MutexGuard<'_, BTreeMap<ListKey, LastList>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> MutexGuard<'_, Option<ListKey>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, route: &Arc<str>, server: &str, tools: Arc<dyn ShownTools>) {
        let mut lists = self.lists();
        let key = (Arc::clone(route), server.into());
        if let Some(known) = lists.get_mut(&key) {
            if !known.tools.is_same(&*tools) {
                (known.tools, known.is_counted) = (tools, false);
            }
        } else if lists.len() < MAX_LISTS {
            lists.insert(key, LastList { tools, is_counted: false, counted: None });
        }
    }

    pub(super) fn keep(&self, is_kept: impl Fn(&str, &str) -> bool) {
        self.lists().retain(|(route, server), _| is_kept(route, server));
    }

    /// Whether there are lists that are not counted.
    pub(super) fn has_new(&self) -> bool {
        self.lists().values().any(|list| !list.is_counted)
    }

    /// Counts the lists that changed.
    pub(super) fn count(&self) {
        let is_new = |(_, list): &(&ListKey, &LastList)| !list.is_counted;
        let new = |(key, list): (&ListKey, &LastList)| (key.clone(), Arc::clone(&list.tools));
        let mut new: Vec<_> = self.lists().iter().filter(is_new).map(new).collect();
        let last = self.last().clone();
        let behind = new.partition_point(|(key, _)| last.as_ref().is_some_and(|last| key <= last));
        new.rotate_left(behind);
        let mut bytes = 0;
        for (key, tools) in new {
            if bytes > MAX_COUNTED {
                break;
            }
            let is_short = tools.bytes() <= MAX_LIST;
            bytes += if is_short { tools.unread() } else { 0 };
            let counted = if is_short { tools.count() } else { None };
            if let Some(list) = self.lists().get_mut(&key)
                && Arc::ptr_eq(&list.tools, &tools)
            {
                // What is no longer kept was shown all the same; of what is too long, nothing is known.
                let former = list.counted.filter(|_| is_short);
                (list.counted, list.is_counted) = (counted.or(former), true);
            }
            *self.last() = Some(key);
        }
    }

    pub(super) fn points(&self) -> Vec<(Labels, MetricValue)> {
        let mut points = Vec::new();
        for ((route, server), list) in &*self.lists() {
            let Some(counted) = list.counted else { continue };
            for (form, tokens) in [("shown", counted.shown), ("full", counted.full)] {
                let labels = vec![
                    ("route", (**route).into()),
                    ("server", server.clone()),
                    ("list", form.into()),
                ];
                points.push((labels, MetricValue::Gauge(tokens)));
            }
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{ListTokenCount, ListTokens, MAX_COUNTED, MAX_LIST, ShownTools};

    #[derive(Debug, Default)]
    struct Tools {
        bytes: usize,
        unread: usize,
        count: Option<ListTokenCount>,
        /// Tools with the same number are the same; 0 for none.
        view: usize,
        counted: Arc<AtomicUsize>,
    }

    impl ShownTools for Tools {
        fn bytes(&self) -> usize {
            self.bytes
        }

        fn unread(&self) -> usize {
            self.unread
        }

        fn is_same(&self, others: &dyn ShownTools) -> bool {
            let others = (others as &dyn Any).downcast_ref::<Self>();
            others.is_some_and(|others| self.view > 0 && self.view == others.view)
        }

        fn count(&self) -> Option<ListTokenCount> {
            self.counted.fetch_add(1, Ordering::Relaxed);
            self.count
        }
    }

    #[test]
    fn the_last_list_counts_and_a_list_that_is_too_long_does_not() {
        let (lists, route) = (ListTokens::default(), Arc::from("/mcp"));
        let note = |bytes, count: Option<u64>| {
            let count = count.map(|shown| ListTokenCount { shown, full: 9 });
            lists.note(&route, "files", Arc::new(Tools { bytes, count, ..Tools::default() }));
        };
        note(1, Some(5));
        assert!(lists.points().is_empty(), "nothing is counted before metrics are read");
        lists.count();
        assert_eq!(lists.points().len(), 2);
        // The list is no longer kept: the number stays.
        note(1, None);
        lists.count();
        assert_eq!(lists.points().len(), 2);
        note(MAX_LIST + 1, Some(5));
        lists.count();
        assert!(lists.points().is_empty());
        note(1, Some(5));
        lists.count();
        lists.keep(|_, server| server != "files");
        assert!(lists.points().is_empty());
    }

    #[test]
    fn each_list_has_its_turn_and_the_same_one_is_counted_once() {
        let (lists, route) = (ListTokens::default(), Arc::from("/mcp"));
        let counted = ["a", "b", "c"].map(|server| (server, Arc::new(AtomicUsize::new(0))));
        let note = |view: usize, unread: usize| {
            for (server, counted) in &counted {
                let (count, counted) = (Some(ListTokenCount::default()), Arc::clone(counted));
                let tools = Tools { bytes: 1, unread, count, view, counted };
                lists.note(&route, server, Arc::new(tools));
            }
        };
        let times = || [0, 1, 2].map(|place: usize| counted[place].1.load(Ordering::Relaxed));
        // Lists that change before each reading: the first ones do not take the turn of the others.
        for (view, expected) in [[1, 0, 0], [1, 1, 0], [1, 1, 1], [2, 1, 1]].iter().enumerate() {
            note(view + 1, MAX_COUNTED + 1);
            lists.count();
            assert_eq!(times(), *expected);
        }
        // Nothing is read for what is known already, so that nothing is put off.
        note(9, 0);
        lists.count();
        assert_eq!(times(), [3, 2, 2]);
        note(9, MAX_COUNTED + 1);
        assert!(!lists.has_new(), "the lists are the same");
    }
}
