//! Compiles the `selection` section.

use std::ops::RangeInclusive;
use std::time::Duration;

use selector::fusion::{MOST_WEIGHT, Weights};

use super::compiler::SettingsCompiler;
use super::raw::{
    HistorySharing, RawHistoryMode, RawSelection, RawSelectionHistory, RawSelectionWeights,
    RequestRecording,
};
use super::{EmbeddingsSettings, JudgeSettings};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The usual and the longest time after which a use counts half.
const HALF_LIFE: (Duration, Duration) = (DAY.saturating_mul(7), DAY.saturating_mul(366));
/// The usual and the longest time after a request in which a call belongs to it.
const WINDOW: (Duration, Duration) = (MINUTE.saturating_mul(10), DAY);
/// The usual number of uses of a principal that are kept.
const ENTRIES: usize = 100;
const ENTRIES_RANGE: RangeInclusive<usize> = 1..=1000;
/// The usual number of principals of which something is kept.
const PRINCIPALS: usize = 1000;
const PRINCIPALS_RANGE: RangeInclusive<usize> = 1..=100_000;
/// Most uses of all principals: about 300 MB. Requests that wait for calls are beside them, at most 3 KB of a principal.
const MOST_USES: usize = 1_000_000;

/// The most that the place of a judge counts: with its default nothing is left of the other scores already.
const MOST_JUDGED: f64 = 100.0;
/// The largest difference between tools that are called close.
const MOST_CLOSE: f64 = 1.0;

/// How tools are ranked for a request in words.
#[derive(Clone, Debug, Default)]
pub struct SelectionSettings {
    /// What each score counts.
    pub weights: Weights,
    /// What is remembered of requests and calls; `None` for nothing.
    pub history: Option<HistorySettings>,
    /// How long after a request a call belongs to it, whether anything is remembered or only recorded.
    pub window: Duration,
    /// What records have of requests.
    pub record: RequestRecording,
    /// The judge that orders the first tools of an answer, if there is one.
    pub judge: Option<JudgeSettings>,
    /// The service that makes embeddings, if there is one.
    pub embeddings: Option<EmbeddingsSettings>,
}

/// What is remembered of requests for tools and of the calls that follow them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistorySettings {
    /// The time after which a use counts half.
    pub half_life: Duration,
    /// How long after a request a call belongs to it.
    pub window: Duration,
    /// Most uses of one principal.
    pub entries: usize,
    /// Most principals of which something is kept.
    pub principals: usize,
    /// Whose history a request is ranked by.
    pub share_by: HistorySharing,
}

impl SettingsCompiler<'_> {
    pub(super) fn selection(&mut self, raw: RawSelection) -> SelectionSettings {
        let history = self.selection_history(&raw.history);
        SelectionSettings {
            weights: self.selection_weights(&raw.weights),
            history: (raw.history.mode == RawHistoryMode::On).then_some(history),
            window: history.window,
            record: raw.history.record,
            judge: self.judge(raw.judge),
            embeddings: self.embeddings(raw.embeddings),
        }
    }

    fn selection_history(&mut self, raw: &RawSelectionHistory) -> HistorySettings {
        let at = |key: &str| format!("/selection/history/{key}");
        let (usual, most) = HALF_LIFE;
        let half_life = self.time_within(&at("halfLife"), raw.half_life.as_deref(), usual, most);
        if half_life < MINUTE {
            let message = "nothing would be remembered that is worth it";
            self.report(&at("halfLife"), message, "write at least `1m`, such as `7d`");
        }
        let (usual, most) = WINDOW;
        let window = self.time_within(&at("window"), raw.window.as_deref(), usual, most);
        let mut count = |key: &str, written: Option<usize>, usual, range: RangeInclusive<usize>| {
            let count = written.unwrap_or(usual);
            if !range.contains(&count) {
                let message = format!("must be between {} and {}", range.start(), range.end());
                let help = format!("write a number in this range, such as {usual}");
                self.report(&at(key), message, help);
            }
            count
        };
        let settings = HistorySettings {
            half_life,
            window,
            entries: count("entries", raw.entries, ENTRIES, ENTRIES_RANGE),
            principals: count("principals", raw.principals, PRINCIPALS, PRINCIPALS_RANGE),
            share_by: raw.share_by,
        };
        if settings.entries.saturating_mul(settings.principals) > MOST_USES {
            let message = format!("`entries` of so many `principals` are more than {MOST_USES}");
            self.report(&at("principals"), message, "give one of them less");
        }
        settings
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
        let most = f64::from(MOST_WEIGHT);
        let weights = Weights {
            lexical: weight("words", raw.words, most, usual.lexical),
            soft: weight("similarWords", raw.similar_words, most, usual.soft),
            semantic: weight("direction", raw.direction, most, usual.semantic),
            history: weight("history", raw.history, most, usual.history),
            available: weight("available", raw.available, most, usual.available),
            judged: weight("judged", raw.judged, MOST_JUDGED, usual.judged),
            embedding: weight("embedding", raw.embedding, most, usual.embedding),
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
