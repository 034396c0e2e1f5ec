//! What tasks have asked their clients, so that their answers are held to it: a client answers a task with a message of its
//! own (`tasks/update`), which has no state that the gateway could seal.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use policy::engine::ask::RequestTerms;

use crate::base::sha256::sha256;

/// Most tasks of one caller whose questions are remembered; of a caller with more those are forgotten that were asked first.
const PER_CALLER: usize = 256;
/// Most bytes of the questions of all tasks. Beyond it the caller with the most forgets those that were asked first.
const BYTES: usize = 64 << 20;
/// Estimated bytes of an entry besides its terms.
const ENTRY: usize = 256;

/// A task of a caller on a route and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskDigest([u8; 32]);

impl TaskDigest {
    /// The digest of the principal's key, the route, the server and the server's task id.
    #[must_use]
    pub fn of(parts: [&str; 4]) -> Self {
        let mut text = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
        for part in parts {
            text.extend_from_slice(&(part.len() as u64).to_be_bytes());
            text.extend_from_slice(part.as_bytes());
        }
        Self(sha256(&text))
    }
}

/// The questions of all tasks.
#[derive(Debug, Default)]
pub struct TaskQuestions {
    // Locked briefly when a task asks, and when it is answered.
    state: Mutex<AskedTasks>,
}

#[derive(Debug, Default)]
struct AskedTasks {
    callers: HashMap<Box<str>, VecDeque<AskedTask>>,
    /// Estimated bytes of all entries.
    bytes: usize,
}

#[derive(Debug)]
struct AskedTask {
    task: TaskDigest,
    terms: Arc<RequestTerms>,
}

impl AskedTask {
    fn bytes(&self) -> usize {
        ENTRY + self.terms.length()
    }
}

impl AskedTasks {
    /// Forgets the question of this caller at `at`.
    fn remove(&mut self, caller: &str, at: usize) {
        let Some(tasks) = self.callers.get_mut(caller) else { return };
        let removed = tasks.remove(at).map_or(0, |task| task.bytes());
        let is_last = tasks.is_empty();
        self.bytes = self.bytes.saturating_sub(removed);
        if is_last {
            self.callers.remove(caller);
        }
    }

    /// The caller whose questions take the most bytes.
    fn largest(&self) -> Option<Box<str>> {
        let bytes = |tasks: &VecDeque<AskedTask>| tasks.iter().map(AskedTask::bytes).sum::<usize>();
        let most = self.callers.iter().max_by_key(|(_, tasks)| bytes(tasks));
        most.map(|(caller, _)| caller.clone())
    }
}

impl TaskQuestions {
    fn state(&self) -> MutexGuard<'_, AskedTasks> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what a task asks `caller`, in place of what it asked before.
    pub fn remember(&self, caller: &str, task: TaskDigest, terms: RequestTerms) {
        let mut state = self.state();
        let known = state.callers.get(caller);
        let before = known.and_then(|tasks| tasks.iter().position(|one| one.task == task));
        if let Some(before) = before {
            state.remove(caller, before);
        }
        let asked = AskedTask { task, terms: Arc::new(terms) };
        state.bytes += asked.bytes();
        state.callers.entry(caller.into()).or_default().push_back(asked);
        if state.callers.get(caller).is_some_and(|tasks| tasks.len() > PER_CALLER) {
            state.remove(caller, 0);
        }
        while state.bytes > BYTES {
            let Some(largest) = state.largest() else { return };
            state.remove(&largest, 0);
        }
    }

    /// What a task has asked `caller`, if it is remembered.
    #[must_use]
    pub fn of(&self, caller: &str, task: TaskDigest) -> Option<Arc<RequestTerms>> {
        let state = self.state();
        let asked = state.callers.get(caller)?.iter().find(|one| one.task == task)?;
        Some(Arc::clone(&asked.terms))
    }
}

#[cfg(test)]
mod tests {
    use policy::engine::ask::{RequestTerms, ServerRequestPolicy};

    use super::{PER_CALLER, TaskDigest, TaskQuestions};

    fn terms(key: &str) -> RequestTerms {
        let policy = ServerRequestPolicy::default();
        RequestTerms::of([(key.into(), policy.terms("roots/list", None))])
    }

    #[test]
    fn the_latest_questions_of_a_task_are_those_of_its_caller() {
        let questions = TaskQuestions::default();
        let task = TaskDigest::of(["ana", "/mcp up", "up", "t"]);
        questions.remember("ana", task, terms("a"));
        questions.remember("ana", task, terms("b"));
        assert_eq!(questions.of("ana", task).as_deref(), Some(&terms("b")));
        assert!(questions.of("bob", task).is_none());
        assert!(questions.of("ana", TaskDigest::of(["ana", "/mcp u", "pup", "t"])).is_none());
    }

    #[test]
    fn a_caller_with_many_tasks_forgets_its_oldest_questions_alone() {
        let questions = TaskQuestions::default();
        let task = |n: usize| TaskDigest::of(["ana", "/mcp", "up", &n.to_string()]);
        questions.remember("bob", task(0), terms("a"));
        for n in 0..=PER_CALLER {
            questions.remember("ana", task(n), terms("a"));
        }
        assert!(questions.of("ana", task(0)).is_none());
        assert!(questions.of("ana", task(PER_CALLER)).is_some());
        assert!(questions.of("bob", task(0)).is_some());
    }

    #[test]
    fn the_questions_of_all_tasks_have_a_bound() {
        let questions = TaskQuestions::default();
        let long = "k".repeat(1 << 20);
        for n in 0..80 {
            let task = TaskDigest::of(["ana", "/mcp", "up", &n.to_string()]);
            questions.remember("ana", task, terms(&long));
        }
        assert!(questions.state().bytes <= super::BYTES);
        let first = TaskDigest::of(["ana", "/mcp", "up", "0"]);
        assert!(questions.of("ana", first).is_none());
    }
}
