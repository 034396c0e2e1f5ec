//! Which tools callers used after which requests for tools, so that similar requests of the same caller find them first.
//!
//! Only calls of the caller itself count, by how the gateway answered them: nothing that a server says is in here. What is
//! kept of one principal changes no answer to another one, unless the operator shares it in groups. It lasts as long as
//! the process.
//!
//! What is kept is divided by principal, so that a request, a call and the removal of what counts no longer lock a small part
//! of it at a time. What a request compares with members of a group is bounded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy_core::subject::name::GroupName;
use selector::history::{RequestWords, UseCounts};

use super::SessionKey;
use crate::config::settings::{HistorySettings, HistorySharing};

/// Most requests of one principal with its client that wait for the call of a tool. Of more the oldest is forgotten.
pub const MAX_OPEN_REQUESTS: usize = 8;
/// Most tools that these requests have together. Of more the oldest request is forgotten.
const MAX_OPEN_TOOLS: usize = 128;
/// How long a call may take that is counted. A request waits for its calls that much longer than they may begin.
const LONGEST_CALL: Duration = Duration::from_secs(600);
/// Most clients of one principal of which something is kept: nothing is learned with further ones.
const MAX_CLIENTS: usize = 8;
/// Into how many parts the principals are divided, each with its lock.
const SHARDS: usize = 64;
/// How many parts are swept at a time, because it is done on a thread that serves clients.
const SWEPT_SHARDS: usize = 8;
/// Uses that count less than this are forgotten.
const LEAST_COUNT: f32 = 0.05;
/// Fewest other members whose uses say something of a group: of fewer, a member could be told from the others.
pub const LEAST_MEMBERS: usize = 3;
/// Most other members whose uses count for a request: the first ones with uses after similar requests, in the order of
/// their names.
const MAX_MEMBERS: usize = 64;
/// Most histories of other members that are looked at for them.
const MAX_CANDIDATES: usize = 1024;
/// Most uses of other members that a request is compared with.
const MAX_COMPARED: usize = 65_536;

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
    tools: Vec<ToolHash>,
    at: Instant,
}

/// A tool as a number, because answers have many tools of which few are called. The hash has a key of the process, so that
/// nobody can make two tools the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ToolHash(u64);

impl OpenRequest {
    /// Whether the answer had the tool.
    fn has(&self, tool: ToolHash) -> bool {
        self.tools.contains(&tool)
    }

    /// Whether a call that began at this time belongs to it.
    fn precedes(&self, started: Instant, window: Duration) -> bool {
        started.checked_duration_since(self.at).is_some_and(|after| after < window)
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
        let kept = window.saturating_add(LONGEST_CALL);
        self.open.retain(|open| now.saturating_duration_since(open.at) < kept);
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

    /// Adds a request that waits for calls.
    fn ask(&mut self, request: OpenRequest) {
        self.open.push_back(request);
        let tools = |open: &VecDeque<OpenRequest>| -> usize {
            open.iter().map(|request| request.tools.len()).sum()
        };
        while self.open.len() > MAX_OPEN_REQUESTS || tools(&self.open) > MAX_OPEN_TOOLS {
            self.open.pop_front();
        }
    }

    /// Counts a use for the latest request that was answered with the tool.
    fn used(
        &mut self,
        session: Option<SessionKey>,
        hash: ToolHash,
        used: RecentUse<'_>,
    ) -> HistoryStep {
        let RecentUse { server, name, outcome, started, now } = used;
        let is_it = |tool: &HistoryTool| tool.is(server, name);
        let HistorySettings { half_life, window, .. } = self.settings;
        let follows = |open: &OpenRequest| {
            open.session == session && open.has(hash) && open.precedes(started, window)
        };
        let Some(open) = self.open.iter_mut().rev().find(|open| follows(open)) else {
            return HistoryStep::Unasked;
        };
        let words = open.words.clone();
        if outcome == UseOutcome::Succeeded {
            // A call that is repeated says nothing more of the request.
            open.tools.retain(|tool| *tool != hash);
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
    /// When it began, which says to which request it belongs.
    pub started: Instant,
    /// The instant at which it ended.
    pub now: Instant,
}

/// A part of the histories, by principal with its client. The clients of one principal are in the same part.
type Shard = BTreeMap<Arc<str>, PrincipalHistory>;

/// The principals of each group, with their clients.
type GroupMembers = BTreeMap<GroupName, BTreeSet<Arc<str>>>;

/// The histories of all principals.
#[derive(Debug)]
pub struct SelectionHistory {
    // One is locked briefly for each request for tools, and for each call of a principal that has asked for tools.
    shards: [Mutex<Shard>; SHARDS],
    // Locked for a short time while a shard is locked, and never the other way round.
    members: Mutex<GroupMembers>,
    hasher: RandomState,
    /// How many principals there are, so that nothing is locked where no history is kept.
    count: AtomicUsize,
    /// The first shard that is swept next.
    swept: AtomicUsize,
}

impl Default for SelectionHistory {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            members: Mutex::default(),
            hasher: RandomState::new(),
            count: AtomicUsize::new(0),
            swept: AtomicUsize::new(0),
        }
    }
}

/// The principal of a key, without its client. Neither can contain a control character.
fn principal_of(key: &str) -> &str {
    key.split('\0').next().unwrap_or_default()
}

/// How many clients of the principal of a key there are.
fn clients(shard: &Shard, key: &str) -> usize {
    let principal = principal_of(key);
    let from = (Bound::Included(principal), Bound::Unbounded);
    let keys = shard.range::<str, _>(from).map(|(key, _)| key);
    keys.take_while(|key| principal_of(key) == principal).take(MAX_CLIENTS).count()
}

impl SelectionHistory {
    /// The part of the histories in which a principal is.
    fn shard(&self, key: &str) -> MutexGuard<'_, Shard> {
        let place = self.hasher.hash_one(principal_of(key)) % SHARDS as u64;
        // INVARIANT: the place is one of the array.
        let shard = usize::try_from(place).ok().and_then(|place| self.shards.get(place));
        let [first, ..] = &self.shards;
        shard.unwrap_or(first).lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn members(&self) -> MutexGuard<'_, GroupMembers> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hash(&self, server: &str, name: &str) -> ToolHash {
        ToolHash(self.hasher.hash_one((server, name)))
    }

    /// Whether nothing is kept of anybody.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Takes a place among the principals, if there is one.
    fn takes_place(&self, most: usize) -> bool {
        let next = |count: usize| (count < most).then_some(count.saturating_add(1));
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Remembers a request of a caller, for the calls that follow it. Returns whether there was room for the principal and
    /// for its client; that of others is never taken.
    pub fn asked(
        &self,
        caller: HistoryCaller,
        request: AnsweredRequest,
        settings: HistorySettings,
        now: Instant,
    ) -> bool {
        let AnsweredRequest { words, tools } = request;
        if words.is_empty() || tools.is_empty() {
            return true;
        }
        let HistoryCaller { key, groups, session } = caller;
        let mut shard = self.shard(&key);
        let known = shard.get_key_value(&*key).map(|(key, _)| Arc::clone(key));
        let key = match known {
            Some(key) => key,
            None if clients(&shard, &key) >= MAX_CLIENTS => return false,
            None if !self.takes_place(settings.principals) => return false,
            None => Arc::from(key),
        };
        let new = || PrincipalHistory {
            groups: BTreeSet::new(),
            open: VecDeque::new(),
            uses: Vec::new(),
            settings,
        };
        let history = shard.entry(Arc::clone(&key)).or_insert_with(new);
        // Members of groups are only known where they count.
        let groups = match settings.share_by {
            HistorySharing::Group => groups,
            HistorySharing::Principal => BTreeSet::new(),
        };
        if groups != history.groups {
            self.moves(&key, &history.groups, &groups);
        }
        (history.groups, history.settings) = (groups, settings);
        let tools = tools.iter().map(|tool| self.hash(&tool.server, &tool.name)).collect();
        history.ask(OpenRequest { session, words, tools, at: now });
        true
    }

    /// Notes that a principal is no longer in these groups, but in those.
    fn moves(&self, key: &Arc<str>, from: &BTreeSet<GroupName>, to: &BTreeSet<GroupName>) {
        let mut members = self.members();
        for group in from.difference(to) {
            if let Some(keys) = members.get_mut(group) {
                keys.remove(key);
                if keys.is_empty() {
                    members.remove(group);
                }
            }
        }
        for group in to.difference(from) {
            members.entry(group.clone()).or_default().insert(Arc::clone(key));
        }
    }

    /// Counts a call of the principal `key` for the request that it follows.
    pub fn used(&self, key: &str, session: Option<SessionKey>, used: RecentUse<'_>) -> HistoryStep {
        let hash = self.hash(used.server, used.name);
        let mut shard = self.shard(key);
        let Some(history) = shard.get_mut(key) else { return HistoryStep::Unasked };
        history.sweep(used.now);
        history.used(session, hash, used)
    }

    /// Which tools similar requests of the caller led to, and, if the operator shares histories in groups, those of enough
    /// other members. Then it is no work for threads that serve clients.
    #[must_use]
    pub fn similar(
        &self,
        caller: &HistoryCaller,
        words: &RequestWords,
        settings: HistorySettings,
        now: Instant,
    ) -> BTreeMap<HistoryTool, UseCounts> {
        let mut found = BTreeMap::new();
        if let Some(own) = self.shard(&caller.key).get(&*caller.key) {
            let own = own.similar(words, settings.half_life, now).into_iter();
            found.extend(own.map(|(tool, counts)| (tool.clone(), counts)));
        }
        if settings.share_by == HistorySharing::Group {
            for (tool, counts) in self.of_members(caller, words, settings.half_life, now) {
                let sum: &mut UseCounts = found.entry(tool).or_default();
                *sum = sum.and(counts);
            }
        }
        found
    }

    /// The keys of other members of the caller's groups, with those of each principal beside each other.
    fn others(&self, caller: &HistoryCaller) -> Vec<Arc<str>> {
        let principal = principal_of(&caller.key);
        let members = self.members();
        let mut others = BTreeSet::new();
        for keys in caller.groups.iter().filter_map(|group| members.get(group)) {
            let keys = keys.iter().filter(|key| principal_of(key) != principal);
            others.extend(keys.take(MAX_CANDIDATES).cloned());
        }
        others.into_iter().take(MAX_CANDIDATES).collect()
    }

    /// What similar requests of enough other members led to. No member counts more than one use of a tool does, however
    /// many groups it shares with the caller, and however many clients it has.
    fn of_members(
        &self,
        caller: &HistoryCaller,
        words: &RequestWords,
        half_life: Duration,
        now: Instant,
    ) -> Vec<(HistoryTool, UseCounts)> {
        let mut sums: BTreeMap<HistoryTool, (usize, UseCounts)> = BTreeMap::new();
        let (mut compared, mut asked) = (0_usize, 0);
        let others = self.others(caller);
        for keys in others.chunk_by(|one, other| principal_of(one) == principal_of(other)) {
            let Some(first) = keys.first() else { continue };
            let shard = self.shard(first);
            let histories: Vec<_> = keys.iter().filter_map(|key| shard.get(key)).collect();
            compared += histories.iter().map(|history| history.uses.len()).sum::<usize>();
            if compared > MAX_COMPARED {
                break;
            }
            let mut used: BTreeMap<&HistoryTool, UseCounts> = BTreeMap::new();
            for history in histories {
                for (tool, counts) in history.similar(words, half_life, now) {
                    let sum = used.entry(tool).or_default();
                    *sum = sum.and(counts);
                }
            }
            asked += usize::from(!used.is_empty());
            for (tool, counts) in used {
                let once = counts.times(1.0 / counts.all().max(1.0));
                match sums.get_mut(tool) {
                    Some((members, sum)) => (*members, *sum) = (*members + 1, sum.and(once)),
                    None => {
                        sums.insert(tool.clone(), (1, once));
                    }
                }
            }
            if asked >= MAX_MEMBERS {
                break;
            }
        }
        let enough = sums.into_iter().filter(|(_, (members, _))| *members >= LEAST_MEMBERS);
        enough.map(|(tool, (_, sum))| (tool, sum)).collect()
    }

    /// Forgets what counts no longer, in a part of the histories: in all of them after eight times.
    pub fn sweep(&self, now: Instant) {
        if self.is_empty() {
            return;
        }
        let from = self.swept.fetch_add(SWEPT_SHARDS, Ordering::Relaxed) % SHARDS;
        for shard in self.shards.iter().skip(from).take(SWEPT_SHARDS) {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let before = shard.len();
            shard.retain(|key, history| {
                history.sweep(now);
                let is_kept = !history.uses.is_empty() || !history.open.is_empty();
                if !is_kept && !history.groups.is_empty() {
                    self.moves(key, &history.groups, &BTreeSet::new());
                }
                is_kept
            });
            self.count.fetch_sub(before - shard.len(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
