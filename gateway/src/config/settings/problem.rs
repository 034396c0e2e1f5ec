//! Problems of a configuration: what is wrong, where it is, and how to fix it; and their output for people and
//! programs. Secrets in the file must never appear in either.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;

use crate::base::masking;

/// Maximum number of problems that are printed for a person, who checks the file again after fixing them.
const SHOWN: usize = 100;

/// A problem of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConfigProblem {
    /// The place, in bytes of the file.
    span: Range<usize>,
    pub(super) message: String,
    help: String,
    /// Parts of the file, in bytes, that may contain a secret and are masked.
    hidden: Vec<Range<usize>>,
    about: ProblemKind,
}

/// What a problem is about, as far as other problems can follow from it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ProblemKind {
    /// One or several values.
    Value,
    /// A key that the schema does not have.
    UnknownKey {
        /// The mapping that contains the key, in bytes of the file.
        mapping: Range<usize>,
        /// The JSON Pointer of the key that was probably meant.
        meant: Option<String>,
    },
    /// A missing key, by JSON Pointer.
    MissingKey(String),
    /// A variable that is not set.
    UnsetVariable,
}

/// All problems of one file, ready for output. Secrets in the file are masked.
#[derive(Clone, Debug)]
pub struct ConfigProblems {
    file: String,
    /// The text of the file with `*` in place of each masked byte, so that positions stay the same.
    text: String,
    found: Vec<ConfigProblem>,
    /// Warnings about the same file.
    warnings: Vec<Box<str>>,
}

#[derive(Serialize)]
struct ProblemJson<'a> {
    file: &'a str,
    /// The line, from 1.
    line: usize,
    /// The column in characters, from 1.
    column: usize,
    message: &'a str,
    help: &'a str,
}

impl ConfigProblem {
    pub(super) fn new(
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        let (message, help) = (masking::secrets(&message.into()), masking::secrets(&help.into()));
        Self { span, message, help, hidden: Vec::new(), about: ProblemKind::Value }
    }

    /// Marks the problem as an unknown key in this `mapping`; the key at the JSON Pointer `meant` was probably
    /// meant.
    pub(super) fn of_unknown_key(mut self, mapping: Range<usize>, meant: Option<String>) -> Self {
        self.about = ProblemKind::UnknownKey { mapping, meant };
        self
    }

    /// Marks the problem as a missing key, by JSON Pointer.
    pub(super) fn of_missing_key(mut self, pointer: String) -> Self {
        self.about = ProblemKind::MissingKey(pointer);
        self
    }

    /// Marks the problem as a variable that is not set.
    pub(super) fn of_unset_variable(mut self) -> Self {
        self.about = ProblemKind::UnsetVariable;
        self
    }

    /// Whether the problem is an unknown key that was probably meant as this one.
    pub(super) fn is_meant_as(&self, pointer: &str) -> bool {
        matches!(&self.about, ProblemKind::UnknownKey { meant: Some(meant), .. } if meant == pointer)
    }

    /// The JSON Pointer of the missing key, if the problem is one.
    pub(super) fn missing_key(&self) -> Option<&str> {
        match &self.about {
            ProblemKind::MissingKey(pointer) => Some(pointer),
            ProblemKind::Value | ProblemKind::UnknownKey { .. } | ProblemKind::UnsetVariable => {
                None
            }
        }
    }

    /// Whether the key at this JSON Pointer, or a key above it, is reported as missing.
    pub(super) fn is_of_missing(&self, pointer: &str) -> bool {
        let rest = self.missing_key().and_then(|missing| pointer.strip_prefix(missing));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Whether the problem begins within these bytes of the file.
    pub(super) const fn is_within(&self, bytes: &Range<usize>) -> bool {
        bytes.start <= self.span.start && self.span.start < bytes.end
    }

    /// Whether the problem follows from `cause`: it is about the mapping that `cause` is an unknown key of, and
    /// that key may hold what is missed. A missing key follows only if the unknown key was probably meant for it.
    pub(super) fn follows(&self, cause: &Self) -> bool {
        let ProblemKind::UnknownKey { mapping, .. } = &cause.about else { return false };
        match &self.about {
            ProblemKind::Value => self.span == *mapping,
            ProblemKind::MissingKey(pointer) => cause.is_meant_as(pointer),
            ProblemKind::UnknownKey { .. } | ProblemKind::UnsetVariable => false,
        }
    }

    const fn is_unknown_key(&self) -> bool {
        matches!(self.about, ProblemKind::UnknownKey { .. })
    }

    /// Masks these bytes of the file in the output.
    pub(super) fn hiding(mut self, secrets: impl IntoIterator<Item = Range<usize>>) -> Self {
        self.hidden.extend(secrets);
        self
    }
}

impl ConfigProblems {
    pub(super) fn new(file: &str, text: &str, mut found: Vec<ConfigProblem>) -> Self {
        // The first problem of a place is the cause, later ones follow from it.
        let (mut places, mut missing) = (BTreeSet::new(), BTreeSet::new());
        found.retain(|problem| {
            let new = places.insert((problem.span.start, problem.span.end));
            // Several keys can be missing in one mapping.
            let other = problem.missing_key().is_some_and(|key| missing.insert(key.to_owned()));
            problem.span.is_empty() || new || other
        });
        // Within one mapping an unknown key comes first: it may be the reason why another is missing.
        let unknown = |problem: &ConfigProblem| match &problem.about {
            ProblemKind::UnknownKey { mapping, .. } => Some((mapping.start, problem.span.start)),
            ProblemKind::Value | ProblemKind::MissingKey(_) | ProblemKind::UnsetVariable => None,
        };
        let last: BTreeMap<usize, usize> = found.iter().filter_map(unknown).collect();
        found.sort_by_key(|problem| match &problem.about {
            ProblemKind::MissingKey(_) => {
                let start = problem.span.start;
                (last.get(&start).copied().unwrap_or(start), 1)
            }
            ProblemKind::Value | ProblemKind::UnknownKey { .. } | ProblemKind::UnsetVariable => {
                (problem.span.start, 0)
            }
        });
        let mut hidden: Vec<_> = found.iter().flat_map(|one| one.hidden.clone()).collect();
        let shown =
            found.iter().take(SHOWN).filter_map(|problem| line_at(text, problem.span.start));
        hidden.extend(shown.filter_map(|line| secret_in(text, &line)));
        Self { file: file.to_owned(), text: masked(text, hidden), found, warnings: Vec::new() }
    }

    /// Adds warnings about the same file.
    pub(super) fn with_warnings(mut self, warnings: Vec<Box<str>>) -> Self {
        self.warnings = warnings;
        self
    }

    /// The warnings about the same file.
    #[must_use]
    pub fn warnings(&self) -> &[Box<str>] {
        &self.warnings
    }

    /// The number of problems.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.found.len()
    }

    /// Whether all problems are variables that are not set.
    #[must_use]
    pub fn are_unset_variables(&self) -> bool {
        self.found.iter().all(|problem| problem.about == ProblemKind::UnsetVariable)
    }

    /// The message, as `FILE:LINE:COLUMN: MESSAGE`, and the help of each problem, up to `SHOWN` of them.
    #[must_use]
    pub fn each(&self) -> Vec<(String, String)> {
        let told = |problem: &ConfigProblem| {
            let (line, column) = self.place(problem.span.start);
            let said = format!("{}:{line}:{column}: {}", self.file, problem.message);
            (said, problem.help.clone())
        };
        self.found.iter().take(SHOWN).map(told).collect()
    }

    /// One problem as `FILE:LINE:COLUMN: MESSAGE; HELP`, and the number of others. It is the first unknown key,
    /// from which others may follow, or else the first problem; empty if there are none.
    #[must_use]
    pub fn first(&self) -> String {
        let unknown = self.found.iter().find(|problem| problem.is_unknown_key());
        let Some(problem) = unknown.or_else(|| self.found.first()) else { return String::new() };
        let (line, column) = self.place(problem.span.start);
        let mut said =
            format!("{}:{line}:{column}: {}; {}", self.file, problem.message, problem.help);
        if let Some(more @ 1..) = self.found.len().checked_sub(1) {
            write!(said, " (and {more} more: `portcullis validate` shows them)")
                .unwrap_or_default();
        }
        said
    }

    /// The problems for a person: the line of each with a marker, the message and the help.
    #[must_use]
    pub fn human(&self) -> String {
        self.rendered(&Renderer::plain())
    }

    /// As [`Self::human`], with ANSI colour sequences.
    #[must_use]
    pub fn styled(&self) -> String {
        self.rendered(&Renderer::styled())
    }

    fn rendered(&self, renderer: &Renderer) -> String {
        let mut out = String::new();
        for problem in self.found.iter().take(SHOWN) {
            let (line, column) = self.place(problem.span.start);
            let start = problem.span.start.min(self.text.len());
            let end = problem.span.end.clamp(start, self.text.len());
            // One line is enough to find the place.
            let shown = self.text.get(start..end).and_then(|text| text.lines().next());
            let span = start..start + shown.unwrap_or_default().trim_end().len();
            let snippet = Snippet::source(&self.text)
                .path(&self.file)
                .annotation(AnnotationKind::Primary.span(span));
            let report = [Level::ERROR
                .primary_title(&problem.message)
                .element(snippet)
                .element(Level::HELP.message(&problem.help))];
            let rendered = renderer.render(&report);
            let place = format!("{}:{line}:{column}", self.file);
            // The renderer prints the place above the snippet, except if there is no line to show.
            if rendered.contains(&place) {
                writeln!(out, "{rendered}\n").unwrap_or_default();
            } else {
                writeln!(out, "{rendered}\n --> {place}\n").unwrap_or_default();
            }
        }
        if let Some(more @ 1..) = self.found.len().checked_sub(SHOWN) {
            writeln!(out, "{more} more are not shown\n").unwrap_or_default();
        }
        out
    }

    /// The problems for a program: a JSON array.
    #[must_use]
    pub fn json(&self) -> String {
        let starts = self.text.match_indices('\n').map(|(end, _)| end + 1);
        let starts: Vec<_> = std::iter::once(0).chain(starts).collect();
        let mut entries = Vec::new();
        for ConfigProblem { span, message, help, .. } in &self.found {
            let at = span.start.min(self.text.len());
            let line = starts.partition_point(|start| *start <= at);
            let start = starts.get(line.saturating_sub(1)).copied().unwrap_or_default();
            let column = self.text.get(start..at).unwrap_or_default().chars().count() + 1;
            entries.push(ProblemJson { file: &self.file, line, column, message, help });
        }
        serde_json::to_string_pretty(&entries).unwrap_or_default()
    }

    fn place(&self, byte: usize) -> (usize, usize) {
        let before = self.text.get(..byte.min(self.text.len())).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        (line, column)
    }
}

/// The line that contains the byte, without its line end.
fn line_at(text: &str, byte: usize) -> Option<Range<usize>> {
    let byte = byte.min(text.len());
    let start = text.get(..byte)?.rfind('\n').map_or(0, |end| end + 1);
    let end = text.get(byte..)?.find('\n').map_or(text.len(), |length| byte + length);
    Some(start..end)
}

/// The part of a line that looks like a secret: from the first byte that masking would replace to the last.
fn secret_in(text: &str, line: &Range<usize>) -> Option<Range<usize>> {
    let whole = text.get(line.clone())?;
    let without = masking::secrets(whole);
    if without == whole {
        return None;
    }
    let same = |pair: &(char, char)| pair.0 == pair.1;
    let length = |pairs: &mut dyn Iterator<Item = (char, char)>| -> usize {
        pairs.take_while(same).map(|(c, _)| c.len_utf8()).sum()
    };
    let before = length(&mut whole.chars().zip(without.chars()));
    let rest = (whole.get(before..)?, without.get(before..)?);
    let after = length(&mut rest.0.chars().rev().zip(rest.1.chars().rev()));
    Some(line.start + before..line.end - after)
}

/// Replaces each byte in these ranges by `*`, except line ends, so that positions stay the same.
fn masked(text: &str, mut hidden: Vec<Range<usize>>) -> String {
    hidden.sort_by_key(|range| range.start);
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for Range { start, end } in hidden {
        let (start, end) = (start.max(done), end.min(text.len()));
        let (Some(before), Some(secret)) = (text.get(done..start), text.get(start..end)) else {
            continue;
        };
        out.push_str(before);
        for c in secret.chars() {
            match c {
                '\n' | '\r' => out.push(c),
                _ => out.extend(std::iter::repeat_n('*', c.len_utf8())),
            }
        }
        done = end;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::{ConfigProblem, ConfigProblems, masked};

    #[test]
    fn what_is_hidden_leaves_everything_in_its_place() {
        let text = "a: öl\nb: [x, y]\n";
        assert_eq!(masked(text, vec![3..6, 5..6, 11..12]), "a: ***\nb: [*, y]\n");
        assert_eq!(masked(text, vec![100..150, 120..200]), text);
    }

    #[test]
    fn a_line_with_a_secret_is_shown_without_it() {
        let key = ["ghp_", "0123456789abcdefghijABCDEFGHIJ012345"].concat();
        let text = format!("first: 1\nkeyy: {key} # mine\n");
        let at = text.find("keyy").unwrap();
        let problem = ConfigProblem::new(at..at + 4, format!("unknown `{key}`"), "remove it");
        let shown = ConfigProblems::new("x.yaml", &text, vec![problem]);
        for said in [shown.human(), shown.json(), shown.first()] {
            assert!(!said.contains("0123456789"), "{said}");
        }
        assert!(shown.human().contains("# mine"), "{}", shown.human());
        assert!(shown.human().contains("x.yaml:2:1"), "{}", shown.human());
    }
}
