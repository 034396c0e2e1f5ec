//! What one flow remembers: its labels, and which kind of source has shown which value.

use std::hash::{BuildHasherDefault, Hasher};

use json::{JsonKind, Value};

use super::label::{FlowLabels, Integrity};
use super::value::{
    self, Scalar, ValueExtent, ValueKey, ValueKind, ValueReading, ValueVisitor, link,
};

/// Who has shown a value to the flow, or sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueMarks(u8);

impl ValueMarks {
    /// The caller sent it before the flow was shown anything untrusted.
    const GIVEN: Self = Self(1);
    /// A trusted result showed it.
    const TRUSTED: Self = Self(2);
    /// An untrusted result showed it.
    const UNTRUSTED: Self = Self(4);
    /// A confidential result showed it.
    const CONFIDENTIAL: Self = Self(8);
    /// The caller sent it after the flow was shown something untrusted.
    const SENT: Self = Self(16);
    /// Of a link: a result showed it before the caller sent it, so its author and not the caller has put it together.
    const WRITTEN: Self = Self(32);
    /// Of a value that may have been forgotten: it may have been shown by the worst source and relayed since.
    const FORGOTTEN: Self = Self(4 | 8 | 16);

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the user's side has given the value, or a trusted result has.
    #[must_use]
    pub const fn is_endorsed(self) -> bool {
        self.has(Self::GIVEN) || self.has(Self::TRUSTED)
    }

    /// Whether only untrusted results have shown it.
    #[must_use]
    pub const fn is_only_untrusted(self) -> bool {
        self.has(Self::UNTRUSTED) && !self.is_endorsed()
    }

    /// Whether a confidential result has shown it, and the user's side has not sent it before.
    #[must_use]
    pub const fn is_confidential(self) -> bool {
        self.has(Self::CONFIDENTIAL) && !self.has(Self::GIVEN)
    }

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These marks for the values of a result with these labels.
    const fn of_result(labels: FlowLabels, marks: Self) -> Self {
        if labels.is_confidential() { marks.with(Self::CONFIDENTIAL) } else { marks }
    }

    /// Whether a link was shown before it was sent.
    const fn is_written(self) -> bool {
        self.has(Self::WRITTEN)
    }

    /// These marks of a link that a result shows, and whose form has these marks.
    const fn shown_as_link(self, form: Self) -> Self {
        if form.has(Self::SENT) { self } else { self.with(Self::WRITTEN) }
    }

    /// The marks of a value after it was shown or sent once more.
    const fn marked(self, new: Self) -> Self {
        // A trusted server repeats what it was sent: that endorses nothing that was sent on behalf of an attacker.
        let is_relayed = self.has(Self::SENT) && !self.is_endorsed();
        let new = if is_relayed { Self(new.0 & !Self::TRUSTED.0) } else { new };
        self.with(new)
    }
}

/// What is known of a result that a flow is shown.
#[derive(Clone, Copy, Debug)]
pub struct ResultSource<'a> {
    /// The labels of what showed it.
    pub labels: FlowLabels,
    /// The members of `structuredContent` that the server vouches for, although others write the rest.
    pub vouched: &'a [Box<str>],
    /// Which runs of words are remembered.
    pub runs: RunsKept,
}

/// The results whose runs of words are remembered. They take most of the room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunsKept {
    /// Those of confidential results: no other clause compares runs.
    #[default]
    Confidential,
    /// Those of all results: a rule reads `origin`.
    All,
}

impl ResultSource<'_> {
    fn marking(&self) -> RunMarking {
        let is_kept = self.runs == RunsKept::All || self.labels.is_confidential();
        if is_kept { RunMarking::Kept } else { RunMarking::Skipped }
    }
}

/// What is done with the runs of words of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunMarking {
    Kept,
    /// Only those that are known get marks.
    Known,
    Skipped,
}

/// The keys are keyed hashes already.
#[derive(Clone, Copy, Debug, Default)]
struct HashedAlready(u64);

impl Hasher for HashedAlready {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[expect(
    clippy::disallowed_types,
    reason = "nothing iterates it, so its order reaches no decision"
)]
type MarkedValues = std::collections::HashMap<u64, ValueMarks, BuildHasherDefault<HashedAlready>>;

/// How values are marked.
#[derive(Clone, Copy, Debug)]
struct Marking<'a> {
    key: &'a ValueKey,
    most: usize,
    runs: RunMarking,
    marks: ValueMarks,
}

/// How names in a list are marked, and other texts.
#[derive(Clone, Copy, Debug)]
struct ListedMarking<'a> {
    trusted: Marking<'a>,
    untrusted: Marking<'a>,
}

/// A visitor that gives values marks.
type MarkingVisitor<'a> = ValueVisitor<'a, &'a mut dyn FnMut(ValueKind, u64) -> bool>;

/// What a flow was shown and has sent. Its labels only grow, and a value that was endorsed stays so.
#[derive(Clone, Debug, Default)]
pub struct FlowMemory {
    labels: FlowLabels,
    values: MarkedValues,
    /// How many links untrusted results have shown.
    links: u32,
    /// How many bits may have left by the choice of links.
    chosen: u32,
    /// Whether values were dropped. What is not known counts as untrusted and confidential then.
    has_forgotten: bool,
}

/// What following the links in a target tells their authors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkChoice {
    /// The bits of the choice: which of all links that untrusted results have shown is followed.
    pub bits: u32,
}

impl FlowMemory {
    /// The memory of a flow of which nothing is known any more: the strictest labels, and every value counts as
    /// untrusted.
    #[must_use]
    pub fn forgotten() -> Self {
        Self { labels: FlowLabels::STRICTEST, has_forgotten: true, ..Self::default() }
    }

    /// The labels of everything that the flow was shown.
    #[must_use]
    pub const fn labels(&self) -> FlowLabels {
        self.labels
    }

    /// How many values are remembered.
    #[must_use]
    pub fn length(&self) -> usize {
        self.values.len()
    }

    /// Drops the values and keeps the labels. From now on a value that is not known counts as untrusted, and stays so when
    /// it is sent or shown again: only what the user's side sends before anything untrusted is given.
    pub fn forget_values(&mut self) {
        self.values = MarkedValues::default();
        self.has_forgotten = true;
    }

    /// Makes the labels stricter.
    pub fn grow(&mut self, labels: FlowLabels) {
        self.labels = self.labels.join(labels);
    }

    /// Remembers the values that a result shows, at most `most` in all.
    pub fn shown(
        &mut self,
        key: &ValueKey,
        source: ResultSource<'_>,
        result: Value<'_>,
        most: usize,
    ) {
        let (labels, vouched, runs) = (source.labels, source.vouched, source.marking());
        self.grow(labels);
        let marking =
            |marks| Marking { key, most, runs, marks: ValueMarks::of_result(labels, marks) };
        let (trusted, untrusted) = (marking(ValueMarks::TRUSTED), marking(ValueMarks::UNTRUSTED));
        if let Some(content) = result.get("structuredContent").filter(|_| !vouched.is_empty()) {
            value::each_member(content, vouched, &mut |member: Value<'_>| {
                self.remember(trusted, |visitor| visitor.all_of(member));
            });
        }
        // What is encoded is shown to the model in clear.
        value::each_encoded(result, &mut |text: &str| {
            let marking = if labels.integrity == Integrity::Trusted { trusted } else { untrusted };
            self.remember(marking, |visitor| visitor.text(text));
        });
        match labels.integrity {
            Integrity::Trusted => self.remember(trusted, |visitor| visitor.all_of(result)),
            Integrity::Untrusted => self.remember(untrusted, |visitor| visitor.all_of(result)),
            Integrity::Listed => {
                let mut each = |scalar: Scalar<'_>| {
                    if let Scalar::Text(text) = scalar {
                        self.listed(text, labels, ListedMarking { trusted, untrusted });
                    }
                    true
                };
                value::each_scalar(result, &mut each);
            }
        }
    }

    /// Remembers the values of a text in a list of names. A line with an address in a longer text gives nothing: somebody
    /// may have chosen a name that has line ends.
    fn listed(&mut self, text: &str, labels: FlowLabels, marking: ListedMarking<'_>) {
        let ListedMarking { trusted, untrusted } = marking;
        if !value::is_names(text) {
            self.grow(labels.of_texts());
            return self.remember(untrusted, |visitor| visitor.text(text));
        }
        let is_one = text.trim().lines().nth(1).is_none();
        for line in text.lines() {
            let marking = if is_one || !value::names_place(line) { trusted } else { untrusted };
            self.remember(marking, |visitor| visitor.text(line));
        }
    }

    /// Remembers the values of an argument of a call that is permitted: the user's side has given them, unless the flow was
    /// shown something untrusted before.
    pub fn sent(&mut self, key: &ValueKey, argument: Value<'_>, most: usize) {
        self.remember(self.sending(key, most), |visitor| visitor.value(argument));
    }

    /// The same for a text.
    pub fn sent_text(&mut self, key: &ValueKey, text: &str, most: usize) {
        self.remember(self.sending(key, most), |visitor| visitor.text(text));
    }

    fn sending<'a>(&self, key: &'a ValueKey, most: usize) -> Marking<'a> {
        let (marks, runs) = match self.labels.is_untrusted() {
            true => (ValueMarks::SENT, RunMarking::Known),
            false => (ValueMarks::GIVEN, RunMarking::Kept),
        };
        Marking { key, most, runs, marks }
    }

    /// Remembers the values of an argument that a person has approved: they count as given.
    pub fn endorsed(&mut self, key: &ValueKey, argument: Value<'_>, most: usize) {
        let marking = Marking { key, most, runs: RunMarking::Known, marks: ValueMarks::GIVEN };
        self.remember(marking, |visitor| visitor.value(argument));
    }

    /// Gives the values that `visit` visits new marks.
    fn remember(
        &mut self,
        marking: Marking<'_>,
        visit: impl FnOnce(&mut MarkingVisitor<'_>) -> ValueExtent,
    ) {
        let Marking { key, most, runs, marks: new } = marking;
        // What is inserted now may have been known before.
        let first = if self.has_forgotten { ValueMarks::FORGOTTEN } else { ValueMarks::default() };
        let (values, mut is_dropped) = (&mut self.values, false);
        let is_untrusted = new.has(ValueMarks::UNTRUSTED);
        let is_shown = is_untrusted || new.has(ValueMarks::TRUSTED);
        let links = &mut self.links;
        let mut form = ValueMarks::default();
        let mut mark = |kind: ValueKind, hash: u64| {
            if kind == ValueKind::LinkForm && is_shown {
                // Only what was sent is remembered in this form.
                form = values.get(&hash).copied().unwrap_or(first);
                return true;
            }
            let is_skipped = kind == ValueKind::Run && runs == RunMarking::Known;
            let as_link = |marks: ValueMarks| match kind == ValueKind::Link && is_shown {
                true => marks.shown_as_link(form),
                false => marks,
            };
            if let Some(marks) = values.get_mut(&hash) {
                *marks = as_link(*marks).marked(new);
            } else if is_skipped {
                return true;
            } else if values.len() < most {
                *links = links.saturating_add(u32::from(kind == ValueKind::Link && is_untrusted));
                values.insert(hash, as_link(first).marked(new));
            } else {
                // The values that are known get their marks nevertheless.
                is_dropped = true;
            }
            true
        };
        let mark: &mut dyn FnMut(ValueKind, u64) -> bool = &mut mark;
        let reading = if is_untrusted { ValueReading::Untrusted } else { ValueReading::Given };
        let visitor = ValueVisitor::new(key, reading, mark);
        let mut visitor =
            if runs == RunMarking::Skipped { visitor.without_runs() } else { visitor };
        let extent = visit(&mut visitor);
        self.has_forgotten |= is_dropped || extent == ValueExtent::Partial;
    }

    /// What following the links in `target`, a text or a list of texts, tells their authors; `None` if one of them is no link,
    /// or was not shown as a whole before it was sent.
    #[must_use]
    pub fn followed(&self, key: &ValueKey, target: Value<'_>) -> Option<LinkChoice> {
        let is_one = target.kind() != JsonKind::Array;
        let texts = is_one.then_some(target).into_iter().chain(target.items());
        let is_written = |hash: &u64| self.values.get(hash).is_some_and(|m| m.is_written());
        // Which of the links, or none.
        let each = self.links.checked_ilog2().map_or(1, |bits| bits + 1);
        let mut bits = 0_u32;
        for text in texts {
            link::sent(key, &text.as_str()?).filter(is_written)?;
            bits = bits.saturating_add(each);
        }
        (bits > 0).then_some(LinkChoice { bits })
    }

    /// How many bits may have left by the choice of links.
    #[must_use]
    pub const fn chosen(&self) -> u32 {
        self.chosen
    }

    /// Counts the choice of links that a call follows.
    pub const fn choose(&mut self, choice: LinkChoice) {
        self.chosen = self.chosen.saturating_add(choice.bits);
    }

    /// Takes a choice back: the call is not made.
    pub const fn unchoose(&mut self, choice: LinkChoice) {
        self.chosen = self.chosen.saturating_sub(choice.bits);
    }

    /// The marks of a value; `None` if it was neither shown nor sent.
    #[must_use]
    pub fn marks(&self, hash: u64) -> Option<ValueMarks> {
        let unknown = || ValueMarks::UNTRUSTED.with(ValueMarks::CONFIDENTIAL);
        self.values.get(&hash).copied().or_else(|| self.has_forgotten.then(unknown))
    }
}
