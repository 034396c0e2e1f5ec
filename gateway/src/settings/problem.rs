//! What is wrong with a configuration, where, and what to do about it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;

/// Most problems that are shown to a person: who mends these reads the file again.
const SHOWN: usize = 100;

/// One thing wrong with a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Bytes of the file.
    span: Range<usize>,
    pub(super) message: String,
    help: String,
}

/// Every problem of one file, ready to be shown.
#[derive(Clone, Debug)]
pub struct Problems {
    file: String,
    text: String,
    found: Vec<Problem>,
}

#[derive(Serialize)]
struct Entry<'a> {
    file: &'a str,
    /// 1-based.
    line: usize,
    /// 1-based, in characters.
    column: usize,
    message: &'a str,
    help: &'a str,
}

impl Problem {
    pub(super) fn new(
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self { span, message: message.into(), help: help.into() }
    }
}

impl Problems {
    pub(super) fn new(file: &str, text: &str, mut found: Vec<Problem>) -> Self {
        // What is said first of a place is the cause; what is said later of it follows.
        let mut places = BTreeSet::new();
        found.retain(|problem| {
            let new = places.insert((problem.span.start, problem.span.end));
            problem.span.is_empty() || new
        });
        found.sort_by_key(|problem| problem.span.start);
        Self { file: file.to_owned(), text: text.to_owned(), found }
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.found.len()
    }

    /// The first of them, in words: `FILE:LINE:COLUMN: MESSAGE; HELP`.
    #[must_use]
    pub fn first(&self) -> String {
        let Some(problem) = self.found.first() else { return String::new() };
        let (line, column) = self.place(problem.span.start);
        format!("{}:{line}:{column}: {}; {}", self.file, problem.message, problem.help)
    }

    /// For a person: a snippet of the file for each, and what to do.
    #[must_use]
    pub fn human(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
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
            // The place stands in the snippet's first line, except where there is no line to show.
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

    /// For a program: a JSON array.
    #[must_use]
    pub fn json(&self) -> String {
        let (mut line, mut start) = (1, 0);
        let mut entries = Vec::new();
        // They are in the order of the file, so each is looked for from the one before.
        for Problem { span, message, help } in &self.found {
            let at = span.start.min(self.text.len());
            let between = self.text.get(start..at).unwrap_or_default();
            line += between.matches('\n').count();
            start += between.rfind('\n').map_or(0, |end| end + 1);
            let column = self.text.get(start..at).unwrap_or_default().chars().count() + 1;
            entries.push(Entry { file: &self.file, line, column, message, help });
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
