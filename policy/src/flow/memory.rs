//! What one flow remembers: its labels, and which kind of source has shown which value.

use std::hash::{BuildHasherDefault, Hasher};

use json::Value;

use super::label::{FlowLabels, Integrity};
use super::value::{self, ValueExtent, ValueKey, ValueKind, ValueVisitor};

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
    /// Its labels.
    pub labels: FlowLabels,
    /// The members of `structuredContent` that the server vouches for, although others write the rest.
    pub vouched: &'a [Box<str>],
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

/// A visitor that gives values marks.
type MarkingVisitor<'a> = ValueVisitor<'a, &'a mut dyn FnMut(ValueKind, u64) -> bool>;

/// What a flow was shown and has sent. Its labels only grow, and a value that was endorsed stays so.
#[derive(Clone, Debug, Default)]
pub struct FlowMemory {
    labels: FlowLabels,
    values: MarkedValues,
    /// Whether values were dropped. What is not known counts as untrusted and confidential then.
    has_forgotten: bool,
}

impl FlowMemory {
    /// The memory of a flow of which nothing is known any more: the strictest labels, and every value counts as
    /// untrusted.
    #[must_use]
    pub fn forgotten() -> Self {
        Self { labels: FlowLabels::STRICTEST, values: MarkedValues::default(), has_forgotten: true }
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

    /// Drops the values and keeps the labels. From now on a value that is not known counts as untrusted.
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
        let ResultSource { labels, vouched } = source;
        self.grow(labels);
        let trusted = ValueMarks::of_result(labels, ValueMarks::TRUSTED);
        let untrusted = ValueMarks::of_result(labels, ValueMarks::UNTRUSTED);
        if let Some(content) = result.get("structuredContent").filter(|_| !vouched.is_empty()) {
            value::each_member(content, vouched, &mut |member: Value<'_>| {
                self.remember(most, |visitor| visitor.all_of(member), key, trusted);
            });
        }
        match labels.integrity {
            Integrity::Trusted => {
                self.remember(most, |visitor| visitor.all_of(result), key, trusted);
            }
            Integrity::Untrusted => {
                self.remember(most, |visitor| visitor.all_of(result), key, untrusted);
            }
            Integrity::Listed => value::each_text(result, &mut |text: &str| {
                let is_names = value::is_names(text);
                if !is_names {
                    self.grow(labels.of_texts());
                }
                let marks = if is_names { trusted } else { untrusted };
                self.remember(most, |visitor| visitor.text(text), key, marks);
            }),
        }
    }

    /// Remembers the values of a call that is permitted: the user's side has given them, unless the flow was shown
    /// something untrusted before.
    pub fn sent(&mut self, key: &ValueKey, arguments: Value<'_>, most: usize) {
        let mark = if self.labels.is_untrusted() { ValueMarks::SENT } else { ValueMarks::GIVEN };
        self.remember(most, |visitor| visitor.all_of(arguments), key, mark);
    }

    /// Remembers the values of an argument that a person has approved: they count as given.
    pub fn endorsed(&mut self, key: &ValueKey, argument: Value<'_>, most: usize) {
        self.remember(most, |visitor| visitor.all_of(argument), key, ValueMarks::GIVEN);
    }

    /// Gives the values that `visit` visits new marks.
    fn remember(
        &mut self,
        most: usize,
        visit: impl FnOnce(&mut MarkingVisitor<'_>) -> ValueExtent,
        key: &ValueKey,
        new: ValueMarks,
    ) {
        let values = &mut self.values;
        let mut mark = |_: ValueKind, hash: u64| {
            if let Some(marks) = values.get_mut(&hash) {
                *marks = marks.marked(new);
                return true;
            }
            let fits = values.len() < most;
            if fits {
                values.insert(hash, new);
            }
            fits
        };
        let mark: &mut dyn FnMut(ValueKind, u64) -> bool = &mut mark;
        if visit(&mut ValueVisitor::new(key, mark)) == ValueExtent::Partial {
            self.has_forgotten = true;
        }
    }

    /// The marks of a value; `None` if it was neither shown nor sent.
    #[must_use]
    pub fn marks(&self, hash: u64) -> Option<ValueMarks> {
        let unknown = || ValueMarks::UNTRUSTED.with(ValueMarks::CONFIDENTIAL);
        self.values.get(&hash).copied().or_else(|| self.has_forgotten.then(unknown))
    }
}
