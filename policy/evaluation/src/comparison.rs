//! Which figures a change of definitions lowers, and what in the definitions does it.
//!
//! Requests alone do not show every harmful change: a request may still lead to a tool whose arguments have changed. So
//! each changed definition is also compared with the former one: its texts by their words, its arguments one by one, and
//! all of it as [`drift`] does for the lockfile.

mod texts;

use std::collections::{BTreeMap, BTreeSet};

use policy::definition::drift::{self, Risk};
use policy::definition::offer::ItemKind;
use policy::definition::pin::DigestSubject;
use policy::definition::review::Severity;

use crate::ratio::number;
use crate::result::Evaluation;
use crate::shape::{self, ArgumentShape};
use crate::suite::{Definitions, Examples};
use crate::threshold::{Bound, Measure};
use crate::tool::{EvaluatedTool, ToolName};

/// By how much the score of a tool may fall, compared with the best other tool, for its own requests.
const MARGIN: f64 = 0.3;
/// A request counts as lost if the tool that it leads to now is ahead by more than this.
const CLEAR: f32 = 0.1;
/// The cosine of the directions of two definitions from which they are taken for each other.
const RESEMBLANCE: f32 = 0.9;
/// By how much the cosine must have grown.
const APPROACH: f32 = 0.1;

/// What a change of a definition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// The definition is new.
    Added,
    /// The definition is gone.
    Removed,
    /// Its description, its title or the description of an argument.
    Text,
    /// What its arguments are, which of them must be given, and what they take.
    Arguments,
    /// What its server says of how dangerous it is.
    Annotations,
    /// A finding of the review or of a detector.
    Finding,
    /// Requests that are about the tool no longer lead to it.
    Selection,
    /// Requests that are about other tools lead to it.
    Capture,
}

impl ChangeKind {
    /// Its name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Text => "text",
            Self::Arguments => "arguments",
            Self::Annotations => "annotations",
            Self::Finding => "finding",
            Self::Selection => "selection",
            Self::Capture => "capture",
        }
    }
}

/// One difference between two evaluations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionDifference {
    /// The tool that differs.
    pub tool: ToolName,
    /// What it is about.
    pub kind: ChangeKind,
    /// JSON Pointer (RFC 6901) into the definition; empty for the whole.
    pub at: String,
    /// The difference in words: fixed texts and numbers, never a text of the definition.
    pub note: String,
    /// Whether the evaluation falls by it.
    pub falls: bool,
}

/// A figure before and after.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FigureChange {
    /// The figure that got worse.
    pub measure: Measure,
    /// Its value with the former definitions.
    pub before: f64,
    /// Its value with the new ones.
    pub after: f64,
    /// By how much it may get worse.
    pub tolerance: f64,
}

impl FigureChange {
    /// By how much it got worse; negative if it got better.
    #[must_use]
    pub fn worse_by(&self) -> f64 {
        match self.measure.usual() {
            Bound::Least(_) => self.before - self.after,
            Bound::Most(_) => self.after - self.before,
        }
    }

    /// Whether it got worse by more than is tolerated.
    #[must_use]
    pub fn falls(&self) -> bool {
        // Differences of shares are not exact.
        self.worse_by() > self.tolerance + 1e-9
    }
}

/// The comparison of two evaluations by the same examples.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// The figures of the evaluation.
    pub figures: Vec<FigureChange>,
    /// The differences, those by which the evaluation falls first.
    pub differences: Vec<DefinitionDifference>,
}

impl Comparison {
    /// Whether the new definitions are worse than is tolerated.
    #[must_use]
    pub fn falls(&self) -> bool {
        self.figures.iter().any(FigureChange::falls) || self.differences.iter().any(|one| one.falls)
    }
}

/// Definitions with their evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Evaluated<'a> {
    /// The definitions that were evaluated.
    pub definitions: &'a Definitions,
    /// How the examples did with them.
    pub evaluation: &'a Evaluation,
}

/// Compares two evaluations by `examples`; `tolerance` says by how much each figure may get worse.
#[must_use]
pub fn compare(
    examples: &Examples,
    before: Evaluated<'_>,
    after: Evaluated<'_>,
    tolerance: impl Fn(Measure) -> f64,
) -> Comparison {
    let figure = |measure: Measure| FigureChange {
        measure,
        before: measure.value(before.evaluation, before.definitions),
        after: measure.value(after.evaluation, after.definitions),
        tolerance: tolerance(measure),
    };
    let mut differ = Differ { examples, before, after, found: Vec::new() };
    differ.all();
    let mut differences = differ.found;
    differences.sort_by_key(|one| (!one.falls, one.tool.clone(), one.kind));
    Comparison { figures: Measure::ALL.into_iter().map(figure).collect(), differences }
}

/// Collects the differences of two evaluations.
struct Differ<'a> {
    examples: &'a Examples,
    before: Evaluated<'a>,
    after: Evaluated<'a>,
    found: Vec<DefinitionDifference>,
}

impl Differ<'_> {
    /// Adds a difference by which the evaluation falls.
    fn fall(&mut self, tool: &ToolName, kind: ChangeKind, at: &str, note: impl Into<String>) {
        self.note(tool, kind, at, note);
        if let Some(difference) = self.found.last_mut() {
            difference.falls = true;
        }
    }

    /// Adds a difference by which it does not fall.
    fn note(&mut self, tool: &ToolName, kind: ChangeKind, at: &str, note: impl Into<String>) {
        let (tool, at, note) = (tool.clone(), at.to_owned(), note.into());
        self.found.push(DefinitionDifference { tool, kind, at, note, falls: false });
    }

    fn all(&mut self) {
        let (former, now) = (self.before.definitions, self.after.definitions);
        for old in &former.tools {
            let Some(new) = now.find(&old.name) else {
                self.fall(&old.name, ChangeKind::Removed, "", "the tool is gone");
                continue;
            };
            if old.offer.digest().is_some() && old.offer.digest() == new.offer.digest() {
                continue;
            }
            self.texts(old, new);
            self.arguments(old, new);
            self.drift(old, new);
            self.findings(old, new);
            self.resemblance(old, new);
        }
        let mut seen = BTreeSet::new();
        for new in &now.tools {
            if !seen.insert(&new.name) {
                let note = "several definitions have this name";
                self.fall(&new.name, ChangeKind::Added, "", note);
            } else if former.find(&new.name).is_none() {
                self.note(&new.name, ChangeKind::Added, "", "the tool is new");
            }
        }
        self.selection();
    }

    /// Compares the arguments one by one.
    fn arguments(&mut self, old: &EvaluatedTool, new: &EvaluatedTool) {
        let (before, after) =
            (shape::arguments(old.definition()), shape::arguments(new.definition()));
        for (path, former) in &before {
            let at = format!("/inputSchema{path}");
            let Some(now) = after.get(path) else {
                self.fall(
                    &old.name,
                    ChangeKind::Arguments,
                    &at,
                    "the argument is gone, or has another name",
                );
                continue;
            };
            for note in argument_changes(former, now) {
                self.fall(&old.name, ChangeKind::Arguments, &at, note);
            }
            self.argument_text(&old.name, &at, &former.description, &now.description);
        }
        for (path, now) in after.iter().filter(|(path, _)| !before.contains_key(*path)) {
            let at = format!("/inputSchema{path}");
            let note = match now.is_required {
                true => "an argument that has to be given is new",
                false => "an argument is new",
            };
            match now.is_required {
                true => self.fall(&old.name, ChangeKind::Arguments, &at, note),
                false => self.note(&old.name, ChangeKind::Arguments, &at, note),
            }
        }
    }

    /// Adds what the comparison for the lockfile calls a widening, a way out, or another claim about danger.
    fn drift(&mut self, old: &EvaluatedTool, new: &EvaluatedTool) {
        let subject = DigestSubject::Offer(ItemKind::Tool);
        for change in drift::compare(subject, old.definition(), new.definition()) {
            let (kind, falls) = match change.risk {
                Risk::Annotation => (ChangeKind::Annotations, true),
                Risk::Widening | Risk::Sink => (ChangeKind::Arguments, true),
                Risk::Narrowing | Risk::Parameter => (ChangeKind::Arguments, false),
                Risk::Instruction => (ChangeKind::Text, change.what == drift::LOST_LIMIT),
                Risk::Cosmetic | Risk::Wording | Risk::Capability => (ChangeKind::Text, false),
                // A claim about results is gone, or a member that is not understood.
                Risk::Other => {
                    let is_gone = change.at == "/outputSchema" && change.after.is_none();
                    (ChangeKind::Arguments, is_gone)
                }
            };
            // What the comparison of the arguments has said already is not said again.
            let is_known = self.found.iter().any(|one| {
                let within = change.at.strip_prefix(&*one.at);
                one.tool == old.name
                    && one.falls
                    && !one.at.is_empty()
                    && within.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            });
            if !is_known {
                match falls {
                    true => self.fall(&old.name, kind, &change.at, change.what),
                    false => self.note(&old.name, kind, &change.at, change.what),
                }
            }
        }
    }

    /// Adds the findings that the former definition did not have.
    fn findings(&mut self, old: &EvaluatedTool, new: &EvaluatedTool) {
        let known: BTreeSet<(&str, &str)> =
            old.remarks.iter().map(|one| (one.rule, &*one.at)).collect();
        for remark in new.remarks.iter().filter(|one| !known.contains(&(one.rule, &*one.at))) {
            let falls = remark.severity >= Severity::Medium;
            let note = format!("`{}` ({}) is new", remark.rule, remark.severity.as_str());
            match falls {
                true => self.fall(&new.name, ChangeKind::Finding, &remark.at, note),
                false => self.note(&new.name, ChangeKind::Finding, &remark.at, note),
            }
        }
    }

    /// Adds the tool that the new definition resembles and the former one did not.
    fn resemblance(&mut self, old: &EvaluatedTool, new: &EvaluatedTool) {
        let nearest = |tool: &EvaluatedTool, others: &Definitions| {
            let others = others.tools.iter().filter(|other| other.name != tool.name);
            let cosines = others.map(|other| other.direction.cosine(&tool.direction));
            cosines.fold(0.0, f32::max)
        };
        let now = nearest(new, self.after.definitions);
        if now >= RESEMBLANCE && now - nearest(old, self.before.definitions) > APPROACH {
            let note = format!("it resembles another tool now ({now:.2})");
            self.fall(&new.name, ChangeKind::Text, "", note);
        }
    }

    /// Adds the tools whose requests no longer lead to them, and those that capture requests of others.
    fn selection(&mut self) {
        for (tool, now) in &self.after.evaluation.by_tool {
            let Some(former) = self.before.evaluation.by_tool.get(tool) else { continue };
            let lost = former.margin - now.margin;
            if lost > MARGIN && self.has_changed(tool) {
                let note = format!("its requests lead to it less clearly (by {lost:.2})");
                self.fall(tool, ChangeKind::Selection, "", note);
            }
        }
        let results = self.before.evaluation.results.iter().zip(&self.after.evaluation.results);
        let mut captured: BTreeMap<&ToolName, usize> = BTreeMap::new();
        let mut lost: BTreeMap<&ToolName, usize> = BTreeMap::new();
        for (one, (before, after)) in self.examples.all.iter().zip(results) {
            let Some(expected) = one.example.expected.first() else { continue };
            if before.rank != Some(1) || after.rank == Some(1) || after.margin > -CLEAR {
                continue;
            }
            if self.has_changed(expected) {
                *lost.entry(expected).or_default() += 1;
            } else if let Some(taken) = after.taken.as_ref().filter(|one| self.has_changed(one)) {
                *captured.entry(taken).or_default() += 1;
            }
        }
        for (tool, count) in lost {
            let note = format!("requests that led to it lead elsewhere: {}", number(count));
            self.fall(tool, ChangeKind::Selection, "", note);
        }
        for (tool, count) in captured {
            let note = format!("requests of other tools lead to it: {}", number(count));
            self.fall(tool, ChangeKind::Capture, "", note);
        }
    }

    /// Whether a tool has another definition than before.
    fn has_changed(&self, name: &ToolName) -> bool {
        let digest =
            |side: Evaluated<'_>| side.definitions.find(name).map(|one| one.offer.digest());
        digest(self.before) != digest(self.after)
    }
}

/// What is different about one argument, if it matters to callers.
fn argument_changes(former: &ArgumentShape, now: &ArgumentShape) -> Vec<&'static str> {
    let mut changes = Vec::new();
    if former.types != now.types {
        changes.push("the argument has another type");
    }
    match (&former.values, &now.values) {
        (Some(_), None) => changes.push("the values of the argument are no longer listed"),
        (Some(old), Some(new)) if !new.is_superset(old) => {
            changes.push("a value of the argument is gone");
        }
        (Some(old), Some(new)) if old != new => changes.push("the argument takes more values"),
        (Some(_), Some(_)) | (None, _) => {}
    }
    if former.is_required && !now.is_required {
        changes.push("the argument no longer has to be given");
    }
    if now.is_required && !former.is_required {
        changes.push("the argument has to be given now");
    }
    changes
}
