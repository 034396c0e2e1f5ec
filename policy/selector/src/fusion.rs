//! How the scores of a tool become one.

/// The scores of a tool for a request, as they are added up: relative to the best tool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RelativeScores {
    /// The score of shared words.
    pub words: f32,
    /// The score of similar words.
    pub similar_words: f32,
    /// The cosine between the directions.
    pub direction: f32,
}

/// Which scores rank the tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Words that the query and the definition share.
    Lexical,
    /// The directions of the query and of the definition.
    Semantic,
    /// Every score, fused into one.
    #[default]
    Fused,
}

/// What is known of a tool besides its definition. Every number is between 0 and 1; a number outside is brought inside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signals {
    /// How often similar requests led to this tool before. 0 if nothing is known.
    pub history: f32,
    /// How likely a call of it succeeds now: 0 if its server is not reached, and less than 1 if calls fail. 1 if
    /// nothing is known.
    pub available: f32,
    /// The place that a judge gave it: 1 for the first, less for the following, 0 for no place.
    pub judged: f32,
}

impl Default for Signals {
    fn default() -> Self {
        Self { history: 0.0, available: 1.0, judged: 0.0 }
    }
}

/// The most that a score may count, except the place of a judge. More would leave nothing of the other scores.
pub const MOST_WEIGHT: f32 = 10.0;

/// What each score counts in the fused one. The defaults of the first three were chosen on the development data; see
/// `docs/discovery.md`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// How much shared words count.
    pub lexical: f32,
    /// Words of similar meaning.
    pub soft: f32,
    /// The cosine between the directions.
    pub semantic: f32,
    /// How much [`Signals::history`] counts.
    pub history: f32,
    /// What is lost if [`Signals::available`] is 0.
    pub available: f32,
    /// How much [`Signals::judged`] counts. If it is above 0, the order of a judge stands in
    /// [`crate::index::Index::judged`], for all scores.
    pub judged: f32,
    /// How much [`Scores::embedding`] counts, as far as it is above the mean of the tools that the caller may use.
    pub embedding: f32,
    /// Two tools are close if their fused scores differ by less.
    pub close: f32,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            lexical: 0.4,
            soft: 1.1,
            semantic: 0.6,
            history: 0.15,
            available: 0.3,
            judged: 20.0,
            embedding: 1.0,
            close: 0.03,
        }
    }
}

/// The scores of a tool for a query.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scores {
    /// BM25F over the words that both have. Not bounded.
    pub lexical: f32,
    /// The same over words of similar meaning. Not bounded.
    pub soft: f32,
    /// The cosine between the directions, between -1 and 1.
    pub semantic: f32,
    /// The cosine between the embeddings that a service made of the request and of the definition, between -1 and 1; `None`
    /// if one of them is missing.
    pub embedding: Option<f32>,
}

/// What the scores of words are divided by: the geometric mean of the best score among the tools that the caller may
/// use and of what the words of the query count. Words thus count in full where they are found, and less where the best
/// tool has few of them: the request is in other words then, and its direction says more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Best {
    lexical: f32,
    soft: f32,
    usual: UsualEmbedding,
}

impl Best {
    pub(crate) fn of(
        weight: f32,
        usual: UsualEmbedding,
        scores: impl Iterator<Item = Scores>,
    ) -> Self {
        let best = scores.fold(Self::default(), |best, one| Self {
            lexical: best.lexical.max(one.lexical),
            soft: best.soft.max(one.soft),
            usual,
        });
        Self { lexical: (best.lexical * weight).sqrt(), soft: (best.soft * weight).sqrt(), usual }
    }

    /// The scores as they are added up.
    pub(crate) fn relative(self, scores: Scores) -> RelativeScores {
        let relative = |score: f32, best: f32| if best > 0.0 { score / best } else { 0.0 };
        RelativeScores {
            words: relative(scores.lexical, self.lexical),
            similar_words: relative(scores.soft, self.soft),
            direction: scores.semantic,
        }
    }
}

/// The mean cosine between the embeddings of a request and of the tools that the caller may use. Services differ in what
/// cosine two texts have that have nothing in common; what counts is by how much a tool is above the others. A tool
/// without an embedding stands where the mean of the others does, and so neither gains nor loses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UsualEmbedding(f32);

impl UsualEmbedding {
    pub(crate) fn of(scores: impl Iterator<Item = Scores>) -> Self {
        let (mut sum, mut count) = (0.0, 0.0);
        for cosine in scores.filter_map(|one| one.embedding) {
            sum += cosine;
            count += 1.0;
        }
        Self(if count > 0.0 { sum / count } else { 0.0 })
    }

    /// By how much the embedding of a tool is closer than usual.
    pub(crate) fn above(self, scores: Scores) -> f32 {
        scores.embedding.map_or(0.0, |cosine| cosine - self.0)
    }
}

/// What each score adds to the one by which a tool is ranked: the weight times the number that it is a weight of. The sum
/// is that score.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScoreParts {
    /// The part of shared words.
    pub words: f32,
    /// The part of similar words.
    pub similar_words: f32,
    /// The part of the direction.
    pub direction: f32,
    /// The part of the embedding.
    pub embedding: f32,
    /// The part of [`Signals::history`].
    pub history: f32,
    /// Of [`Signals::available`]: 0 or less.
    pub available: f32,
    /// The part of [`Signals::judged`].
    pub judged: f32,
}

impl ScoreParts {
    /// The parts, each with the name of its weight in a configuration.
    #[must_use]
    pub const fn named(self) -> [(&'static str, f32); 7] {
        [
            ("words", self.words),
            ("similarWords", self.similar_words),
            ("direction", self.direction),
            ("embedding", self.embedding),
            ("history", self.history),
            ("available", self.available),
            ("judged", self.judged),
        ]
    }

    /// The score by which a tool is ranked.
    pub(crate) fn sum(self) -> f32 {
        self.named().into_iter().fold(0.0, |sum, (_, part)| sum + part)
    }
}

/// What the score by which a tool is ranked is made of.
pub(crate) fn fuse(
    strategy: Strategy,
    weights: &Weights,
    scores: Scores,
    signals: Signals,
    best: Best,
) -> ScoreParts {
    let relative = best.relative(scores);
    match strategy {
        Strategy::Lexical => ScoreParts { words: scores.lexical, ..ScoreParts::default() },
        Strategy::Semantic => ScoreParts { direction: scores.semantic, ..ScoreParts::default() },
        Strategy::Fused => ScoreParts {
            words: weights.lexical * relative.words,
            similar_words: weights.soft * relative.similar_words,
            direction: weights.semantic * relative.direction,
            embedding: weights.embedding * best.usual.above(scores),
            history: weights.history * unit(signals.history),
            available: weights.available * (unit(signals.available) - 1.0),
            judged: weights.judged * unit(signals.judged),
        },
    }
}

/// A number between 0 and 1; what is no number is 0.
fn unit(number: f32) -> f32 {
    if number.is_nan() { 0.0 } else { number.clamp(0.0, 1.0) }
}
