//! Compares the texts of a definition by their words.

use selector::model::Model;

use super::{ChangeKind, Differ};
use crate::likeness::WeighedText;
use crate::tool::{EvaluatedTool, ToolName};

/// A description must keep at least this much of the former one.
const KEPT: f32 = 0.6;
/// The description of an argument must.
const KEPT_OF_ARGUMENT: f32 = 0.4;
/// A description that keeps less than this of the former one must not have more than [`FRESH`] of new words.
const KEPT_BESIDE_FRESH: f32 = 0.8;
/// The share of new words that is tolerated then.
const FRESH: f32 = 0.4;
/// Words of a description below which it is too short to be compared by a share.
const SHORT: usize = 3;
/// So many new words of a description are needed to tell that they are those of another tool.
const BORROWED: usize = 3;
/// The words of another tool count as borrowed if at least this share of the new words are its own.
const BORROWED_SHARE: f32 = 0.7;

impl Differ<'_> {
    /// Compares the title and the description.
    pub(super) fn texts(&mut self, old: &EvaluatedTool, new: &EvaluatedTool) {
        let model = self.examples.model();
        let (before, after) = (&old.text.description, &new.text.description);
        if let Some(note) = lost(model, before, after, KEPT) {
            self.fall(&old.name, ChangeKind::Text, "/description", note);
        }
        if let Some(note) = lost(model, &old.text.title, &new.text.title, KEPT_OF_ARGUMENT) {
            self.fall(&old.name, ChangeKind::Text, "/title", note);
        }
        let (before, after) = (WeighedText::new(model, before), WeighedText::new(model, after));
        let fresh = after.beside(model, &before);
        if let Some(other) = self.lender(old, &fresh) {
            let note = format!("it has words of the description of {other} now");
            self.fall(&old.name, ChangeKind::Text, "/description", note);
        }
    }

    /// The tool whose words the new words of a description are.
    fn lender(&self, old: &EvaluatedTool, fresh: &[&str]) -> Option<ToolName> {
        if fresh.len() < BORROWED {
            return None;
        }
        let others = self.before.definitions.tools.iter().filter(|other| other.name != old.name);
        let share = |other: &EvaluatedTool| {
            let words = other.words();
            let own = fresh.iter().filter(|word| words.contains(**word)).count();
            #[expect(clippy::cast_precision_loss, reason = "a text has few words")]
            let share = own as f32 / fresh.len() as f32;
            share
        };
        let best = others.map(|other| (share(other), other));
        let best = best.max_by(|(one, _), (other, _)| one.total_cmp(other));
        best.filter(|(share, _)| *share >= BORROWED_SHARE).map(|(_, other)| other.name.clone())
    }

    /// Compares the description of an argument.
    pub(super) fn argument_text(&mut self, tool: &ToolName, at: &str, before: &str, after: &str) {
        if let Some(note) = lost(self.examples.model(), before, after, KEPT_OF_ARGUMENT) {
            self.fall(tool, ChangeKind::Text, at, note);
        }
    }
}

/// What a text has lost, if that is more than is tolerated.
fn lost(model: &Model, before: &str, after: &str, least: f32) -> Option<String> {
    let (before, after) = (WeighedText::new(model, before), WeighedText::new(model, after));
    if before.length() == 0 {
        return None;
    }
    if after.length() == 0 {
        return Some("the text is gone".to_owned());
    }
    let kept = before.kept_by(model, &after);
    let is_short = before.length() < SHORT;
    let least = if is_short { least / 2.0 } else { least };
    let is_other =
        !is_short && kept < KEPT_BESIDE_FRESH && after.fresh_since(model, &before) > FRESH;
    (kept < least || is_other)
        .then(|| format!("the text says something else: {kept:.2} of it is kept"))
}
