//! Compiles the `selection` section.

use selector::fusion::Weights;

use super::compiler::SettingsCompiler;
use super::raw::{RawSelection, RawSelectionWeights};
use super::{EmbeddingsSettings, JudgeSettings};

/// The most that a score counts. More would leave nothing of the other scores.
const MOST_WEIGHT: f64 = 10.0;
/// The most that the place of a judge counts: with its default nothing is left of the other scores already.
const MOST_JUDGED: f64 = 100.0;
/// The largest difference between tools that are called close.
const MOST_CLOSE: f64 = 1.0;

/// How tools are ranked for a request in words.
#[derive(Clone, Debug, Default)]
pub struct SelectionSettings {
    /// What each score counts.
    pub weights: Weights,
    /// The judge that orders the first tools of an answer, if there is one.
    pub judge: Option<JudgeSettings>,
    /// The service that makes embeddings, if there is one.
    pub embeddings: Option<EmbeddingsSettings>,
}

impl SettingsCompiler<'_> {
    pub(super) fn selection(&mut self, raw: RawSelection) -> SelectionSettings {
        SelectionSettings {
            weights: self.selection_weights(&raw.weights),
            judge: self.judge(raw.judge),
            embeddings: self.embeddings(raw.embeddings),
        }
    }

    fn selection_weights(&mut self, raw: &RawSelectionWeights) -> Weights {
        let usual = Weights::default();
        let mut weight = |key: &str, written: Option<f64>, most: f64, usual: f32| {
            let Some(written) = written else { return usual };
            if !(0.0..=most).contains(&written) {
                let message = format!("must be between 0 and {most}");
                let help = format!("write a number from 0 to {most}, such as {usual}");
                self.report(&format!("/selection/weights/{key}"), message, help);
            }
            #[expect(clippy::cast_possible_truncation, reason = "a weight need not be exact")]
            let written = written as f32;
            written
        };
        let weights = Weights {
            lexical: weight("words", raw.words, MOST_WEIGHT, usual.lexical),
            soft: weight("similarWords", raw.similar_words, MOST_WEIGHT, usual.soft),
            semantic: weight("direction", raw.direction, MOST_WEIGHT, usual.semantic),
            history: weight("history", raw.history, MOST_WEIGHT, usual.history),
            available: weight("available", raw.available, MOST_WEIGHT, usual.available),
            judged: weight("judged", raw.judged, MOST_JUDGED, usual.judged),
            embedding: weight("embedding", raw.embedding, MOST_WEIGHT, usual.embedding),
            close: weight("close", raw.close, MOST_CLOSE, usual.close),
        };
        if weights.lexical + weights.soft + weights.semantic <= 0.0 {
            let message =
                "no score of a definition counts, so that every request has the same answer";
            let help = "give `words`, `similarWords` or `direction` more than 0";
            self.report("/selection/weights", message, help);
        }
        weights
    }
}
