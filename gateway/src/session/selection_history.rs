//! Which tools callers used after which requests for tools, so that similar requests of the same caller find them first.
//!
//! Only calls of the caller itself count, by how the gateway answered them: nothing that a server says is in here. What is
//! kept of one principal changes no answer to another one, unless the operator shares it in groups. It lasts as long as
//! the process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy_core::subject::name::GroupName;
use selector::history::{RequestWords, UseCounts};

use super::SessionKey;
use crate::config::settings::{HistorySettings, HistorySharing};

/// Most requests of one principal that wait for the call of a tool. Of more the oldest is forgotten.
const MAX_OPEN_REQUESTS: usize = 8;
/// Uses that count less than this are forgotten.
const LEAST_COUNT: f32 = 0.05;
/// Fewest other members whose uses say something of a group: of fewer, a member could be told from the others.
pub const LEAST_MEMBERS: usize = 3;
/// Most other members of a group that are asked, in the order of their keys.
const MAX_MEMBERS: usize = 64;

/// A tool, by its server and the name that the server uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HistoryTool {
    /// The name of the server.
    pub server: Box<str>,
    /// The name of the tool at its server.
    pub name: Box<str>,
}

impl HistoryTool {
    fn is(&self, server: &str, name: &str) -> bool {
        *self.server == *server && *self.name == *name
    }
}

/// The caller whose history it is.
#[derive(Clone, Debug)]
pub struct HistoryCaller {
    /// The principal with its client.
    pub key: Box<str>,
    /// The groups of the principal.
    pub groups: BTreeSet<GroupName>,
    /// The session, if there is one.
    pub session: Option<SessionKey>,
}

/// A request that was answered with tools.
#[derive(Clone, Debug)]
pub struct AnsweredRequest {
    /// The words of the request.
    pub words: RequestWords,
    /// The tools in the answer.
    pub tools: Vec<HistoryTool>,
}

/// How a call ended, as far as it says something of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UseOutcome {
    /// The caller got a result.
    Succeeded,
    /// The tool failed, or the call was denied.
    Failed,
}

/// What became of a call for the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryStep {
    /// It was counted for a request.
    Counted,
    /// No request of the caller was answered with the tool shortly before.
    Unasked,
}

#[derive(Debug)]
struct OpenRequest {
    session: Option<SessionKey>,
    words: RequestWords,
    tools: Vec<HistoryTool>,
    at: Instant,
}

impl OpenRequest {
    /// Whether the answer had the tool.
    fn has(&self, server: &str, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.is(server, name))
    }
}

/// The uses of a tool after requests with the same words.
#[derive(Debug)]
struct KnownUse {
    words: RequestWords,
    tool: HistoryTool,
    counts: UseCounts,
    at: Instant,
}

impl KnownUse {
    /// The counts as they are now.
    fn counts(&self, half_life: Duration, now: Instant) -> UseCounts {
        let age = now.saturating_duration_since(self.at).as_secs_f32();
        self.counts.times(0.5_f32.powf(age / half_life.as_secs_f32()))
    }
}

/// What is kept of one principal.
#[derive(Debug)]
struct PrincipalHistory {
    groups: BTreeSet<GroupName>,
    open: VecDeque<OpenRequest>,
    uses: Vec<KnownUse>,
    settings: HistorySettings,
}

impl PrincipalHistory {
    fn sweep(&mut self, now: Instant) {
        let HistorySettings { window, half_life, .. } = self.settings;
        self.open.retain(|open| now.saturating_duration_since(open.at) < window);
        self.uses.retain(|known| known.counts(half_life, now).all() >= LEAST_COUNT);
    }

    /// What similar requests led to.
    fn similar(
        &self,
        words: &RequestWords,
        half_life: Duration,
        now: Instant,
    ) -> BTreeMap<&HistoryTool, UseCounts> {
        let mut found: BTreeMap<_, UseCounts> = BTreeMap::new();
        for known in &self.uses {
            let similarity = known.words.similarity(words);
            if similarity > 0.0 {
                let counts = known.counts(half_life, now).times(similarity);
                let sum = found.entry(&known.tool).or_default();
                *sum = sum.and(counts);
            }
        }
        found
    }

    /// Counts a use for the latest request that was answered with the tool.
    fn used(&mut self, session: Option<SessionKey>, used: RecentUse<'_>) -> HistoryStep {
        let RecentUse { server, name, outcome, now } = used;
        let is_it = |tool: &HistoryTool| tool.is(server, name);
        let HistorySettings { half_life, .. } = self.settings;
        let mut open = self.open.iter_mut().rev();
        let Some(open) = open.find(|open| open.session == session && open.has(server, name)) else {
            return HistoryStep::Unasked;
        };
        let words = open.words.clone();
        if outcome == UseOutcome::Succeeded {
            // A call that is repeated says nothing more of the request.
            open.tools.retain(|tool| !is_it(tool));
        }
        let more = match outcome {
            UseOutcome::Succeeded => UseCounts { succeeded: 1.0, failed: 0.0 },
            UseOutcome::Failed => UseCounts { succeeded: 0.0, failed: 1.0 },
        };
        let mut known = self.uses.iter_mut();
        match known.find(|known| is_it(&known.tool) && known.words == words) {
            Some(known) => {
                known.counts = known.counts(half_life, now).and(more);
                known.at = now;
            }
            None => {
                let tool = HistoryTool { server: server.into(), name: name.into() };
                self.make_room(now);
                self.uses.push(KnownUse { words, tool, counts: more, at: now });
            }
        }
        HistoryStep::Counted
    }

    /// Forgets the use that counts least, if there is no room for another one.
    fn make_room(&mut self, now: Instant) {
        let HistorySettings { half_life, entries, .. } = self.settings;
        while self.uses.len() >= entries {
            let counted = self.uses.iter().map(|known| known.counts(half_life, now).all());
            let least = counted.enumerate().min_by(|(_, one), (_, other)| one.total_cmp(other));
            let Some((place, _)) = least else { return };
            self.uses.swap_remove(place);
        }
    }
}

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
pub struct RecentUse<'a> {
    /// The name of the server.
    pub server: &'a str,
    /// The name of the tool at its server.
    pub name: &'a str,
    /// How the call ended.
    pub outcome: UseOutcome,
    /// When it ended.
    pub now: Instant,
}

/// The histories of all principals.
#[derive(Debug, Default)]
pub struct SelectionHistory {
    // Locked briefly for each request for tools, and for each call of a principal that has asked for tools.
    principals: Mutex<BTreeMap<Box<str>, PrincipalHistory>>,
    /// How many principals there are, so that nothing is locked where no history is kept.
    count: AtomicUsize,
}

impl SelectionHistory {
    fn principals(&self) -> MutexGuard<'_, BTreeMap<Box<str>, PrincipalHistory>> {
        self.principals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing is kept of anybody.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Remembers a request of a caller, for the calls that follow it. Returns whether there was room for the principal;
    /// that of others is never taken.
    pub fn asked(
        &self,
        caller: HistoryCaller,
        request: AnsweredRequest,
        settings: HistorySettings,
        now: Instant,
    ) -> bool {
        let mut principals = self.principals();
        if !principals.contains_key(&caller.key) && principals.len() >= settings.principals {
            return false;
        }
        let new = || PrincipalHistory {
            groups: BTreeSet::new(),
            open: VecDeque::new(),
            uses: Vec::new(),
            settings,
        };
        let history = principals.entry(caller.key).or_insert_with(new);
        (history.groups, history.settings) = (caller.groups, settings);
        if history.open.len() >= MAX_OPEN_REQUESTS {
            history.open.pop_front();
        }
        let AnsweredRequest { words, tools } = request;
        if !words.is_empty() && !tools.is_empty() {
            history.open.push_back(OpenRequest { session: caller.session, words, tools, at: now });
        }
        self.count.store(principals.len(), Ordering::Relaxed);
        true
    }

    /// Counts a call of the principal `key` for the request that it follows.
    pub fn used(&self, key: &str, session: Option<SessionKey>, used: RecentUse<'_>) -> HistoryStep {
        let mut principals = self.principals();
        let Some(history) = principals.get_mut(key) else { return HistoryStep::Unasked };
        history.sweep(used.now);
        history.used(session, used)
    }

    /// Which tools similar requests of the caller led to, and, if the operator shares histories in groups, those of enough
    /// other members.
    #[must_use]
    pub fn similar(
        &self,
        caller: &HistoryCaller,
        words: &RequestWords,
        settings: HistorySettings,
        now: Instant,
    ) -> BTreeMap<HistoryTool, UseCounts> {
        let principals = self.principals();
        let mut found = BTreeMap::new();
        if let Some(own) = principals.get(&caller.key) {
            let own = own.similar(words, settings.half_life, now).into_iter();
            found.extend(own.map(|(tool, counts)| (tool.clone(), counts)));
        }
        if settings.share_by == HistorySharing::Group {
            for group in &caller.groups {
                let others = principals
                    .iter()
                    .filter(|(key, one)| **key != caller.key && one.groups.contains(group));
                let others = others.take(MAX_MEMBERS).map(|(_, one)| one);
                for (tool, counts) in of_members(others, words, settings, now) {
                    let sum: &mut UseCounts = found.entry(tool.clone()).or_default();
                    *sum = sum.and(counts);
                }
            }
        }
        found
    }

    /// Forgets what counts no longer.
    pub fn sweep(&self, now: Instant) {
        if self.is_empty() {
            return;
        }
        let mut principals = self.principals();
        principals.retain(|_, history| {
            history.sweep(now);
            !history.uses.is_empty() || !history.open.is_empty()
        });
        self.count.store(principals.len(), Ordering::Relaxed);
    }
}

/// What similar requests of enough members led to. No member counts more than one use of a tool does.
fn of_members<'a>(
    members: impl Iterator<Item = &'a PrincipalHistory>,
    words: &RequestWords,
    settings: HistorySettings,
    now: Instant,
) -> Vec<(&'a HistoryTool, UseCounts)> {
    let mut sums: BTreeMap<&HistoryTool, (usize, UseCounts)> = BTreeMap::new();
    for member in members {
        for (tool, counts) in member.similar(words, settings.half_life, now) {
            let (members, sum) = sums.entry(tool).or_default();
            *members += 1;
            *sum = sum.and(counts.times(1.0 / counts.all().max(1.0)));
        }
    }
    let enough = sums.into_iter().filter(|(_, (members, _))| *members >= LEAST_MEMBERS);
    enough.map(|(tool, (_, sum))| (tool, sum)).collect()
}

#[cfg(test)]
mod tests;
