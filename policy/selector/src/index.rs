//! The tools of a catalogue, and the search among them.

mod close;
mod score;

use std::collections::BTreeMap;

use crate::bag::directing;
use crate::fusion::{
    Best, RelativeScores, Scores, Signals, Strategy, UsualEmbedding, Weights, fuse,
};
use crate::model::{Model, identity};
use crate::query::Query;
use crate::ranking::{Hit, Ranking, ToolIndex};
use crate::text::words;
use crate::tool::{FIELDS, FieldWords, MAX_NAME_BYTES, MAX_NAME_WORDS, MAX_PARAMETERS, ToolText};
use crate::vector::Direction;

use score::Scoring;

/// Most tools of an index. More are ignored.
pub const MAX_TOOLS: usize = 1 << 16;
/// Most tools of an answer.
pub const MAX_LIMIT: usize = 1000;
/// What a word of each field counts, in the order of [`crate::tool::Field::ALL`].
const FIELD_WEIGHTS: [f32; FIELDS] = [3.0, 2.0, 1.0, 0.7, 0.6, 0.9];
/// How much the length of a field matters: 0 for not at all, 1 for in full.
const LENGTH_MATTERS: f32 = 0.5;
/// A field is at most this many times as long as the mean one, for what its length matters.
const LONGEST: f32 = 4.0;
/// How soon further fields with the same word add nothing.
const SATURATION: f32 = 0.6;
/// A tool that shares no word with the query is found if its direction is at least this close.
const LEAST_COSINE: f32 = 0.2;

/// A tool that shares no word with the query is found too if its embedding is closer than usual by at least this.
const LEAST_ABOVE: f32 = 0.15;

/// A tool as the index keeps it. It depends on the definition alone, so that it can be kept while others change.
#[derive(Clone, Debug)]
pub struct PreparedTool {
    terms: Vec<(String, f32)>,
    direction: Direction,
    label: Label,
}

/// What sets tools apart that are close.
#[derive(Clone, Debug)]
struct Label {
    server: String,
    name: Vec<String>,
    parameters: Vec<String>,
}

impl PreparedTool {
    /// Prepares a tool. The cost is linear in the length of its definition.
    #[must_use]
    pub fn new(model: &Model, tool: &ToolText) -> Self {
        let fields = tool.words();
        let bag = directing(&fields);
        let direction = Direction::of(model, bag.iter().map(|(word, weight)| (&**word, *weight)));
        let parameters = tool.parameters.iter().take(MAX_PARAMETERS);
        let label = Label {
            server: shortened(&tool.server),
            name: words(&tool.name, MAX_NAME_WORDS),
            parameters: parameters.map(|parameter| shortened(&parameter.name)).collect(),
        };
        Self { terms: saturated(model, fields), direction, label }
    }
}

/// At most [`MAX_NAME_BYTES`] of a name.
fn shortened(name: &str) -> String {
    name.get(..name.floor_char_boundary(MAX_NAME_BYTES)).unwrap_or_default().to_owned()
}

/// What each word of a definition counts: BM25F, with the mean lengths of the model instead of the catalogue's.
fn saturated(model: &Model, fields: FieldWords) -> Vec<(String, f32)> {
    let mut sums: BTreeMap<String, f32> = BTreeMap::new();
    let properties = FIELD_WEIGHTS.into_iter().zip(model.lengths());
    for (words, (weight, mean)) in fields.0.into_iter().zip(properties) {
        #[expect(clippy::cast_precision_loss, reason = "a field has few words")]
        let length = (words.len() as f32 / mean).min(LONGEST);
        let each = weight / (1.0 - LENGTH_MATTERS + LENGTH_MATTERS * length);
        words.into_iter().for_each(|word| *sums.entry(word).or_default() += each);
    }
    sums.into_iter().map(|(word, sum)| (word, sum / (SATURATION + sum))).collect()
}

/// A tool that has a word, and what the word counts there.
#[derive(Clone, Copy, Debug)]
struct Posting {
    tool: u32,
    weight: f32,
}

/// The tools of a catalogue.
#[derive(Clone, Debug)]
pub struct Index {
    model: &'static Model,
    /// Sorted identities of the words of all tools.
    identities: Box<[u32]>,
    words: Box<[Box<str>]>,
    /// Where the postings of each word begin, and behind the last one where they end.
    starts: Box<[u32]>,
    postings: Box<[Posting]>,
    directions: Box<[Direction]>,
    labels: Box<[Label]>,
}

/// How an index is searched.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// Which scores rank the tools.
    pub strategy: Strategy,
    /// Most tools of the answer; at most [`MAX_LIMIT`].
    pub limit: usize,
    /// What the scores count.
    pub weights: &'a Weights,
}

impl Index {
    /// Builds the index of tools, which get their [`ToolIndex`] in this order.
    #[must_use]
    pub fn build(model: &'static Model, tools: &[PreparedTool]) -> Self {
        let tools = tools.get(..MAX_TOOLS).unwrap_or(tools);
        let mut sorted = Vec::new();
        for (place, tool) in (0_u32..).zip(tools) {
            let terms = tool.terms.iter();
            sorted.extend(terms.map(|(word, weight)| {
                (identity(word), word.as_str(), Posting { tool: place, weight: *weight })
            }));
        }
        sorted.sort_by_key(|(identity, _, posting)| (*identity, posting.tool));
        let (mut identities, mut words, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (identity, word, _)) in (0_u32..).zip(&sorted) {
            if identities.last() != Some(identity) {
                identities.push(*identity);
                words.push(Box::from(*word));
                starts.push(place);
            }
        }
        starts.push(u32::try_from(sorted.len()).unwrap_or(u32::MAX));
        Self {
            model,
            identities: identities.into(),
            words: words.into(),
            starts: starts.into(),
            postings: sorted.into_iter().map(|(_, _, posting)| posting).collect(),
            directions: tools.iter().map(|tool| tool.direction.clone()).collect(),
            labels: tools.iter().map(|tool| tool.label.clone()).collect(),
        }
    }

    /// How many tools it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether it has no tools.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// How many bytes the index takes, the model left out.
    #[must_use]
    pub fn memory(&self) -> usize {
        let words: usize = self.words.iter().map(|word| word.len() + size_of::<Box<str>>()).sum();
        let label = |label: &Label| {
            let texts = label.name.iter().chain(&label.parameters);
            let texts: usize = texts.map(|text| text.len() + size_of::<String>()).sum();
            texts + label.server.len() + size_of::<Label>()
        };
        let labels: usize = self.labels.iter().map(label).sum();
        let direction = size_of::<Direction>() + crate::model::DIMENSIONS * size_of::<i16>();
        words
            + labels
            + size_of_val(&*self.identities)
            + size_of_val(&*self.starts)
            + size_of_val(&*self.postings)
            + self.directions.len() * direction
    }

    /// The scores of words of all tools that a query is about, among those that are allowed, relative to the best of them as
    /// a search adds them up.
    pub fn relative_scores(
        &self,
        query: &Query,
        allowed: impl Fn(ToolIndex) -> bool,
    ) -> Vec<(ToolIndex, RelativeScores)> {
        if query.terms.is_empty() {
            return Vec::new();
        }
        let scoring = Scoring::of(self, query);
        let (found, best) = self.found(&scoring, query, Strategy::Fused, allowed, |_| None);
        found.into_iter().map(|(tool, scores)| (tool, best.relative(scores))).collect()
    }

    /// The tools that a query is about with their scores, in the order of the index, and what the scores are compared
    /// with.
    fn found(
        &self,
        scoring: &Scoring<'_>,
        query: &Query,
        strategy: Strategy,
        allowed: impl Fn(ToolIndex) -> bool,
        embedding: impl Fn(ToolIndex) -> Option<f32>,
    ) -> (Vec<(ToolIndex, Scores)>, Best) {
        let tools = (0..).zip(&self.directions).map(|(place, one)| (ToolIndex(place), one));
        let scored = tools.filter(|(tool, _)| allowed(*tool)).map(|(tool, direction)| {
            let (lexical, soft) = scoring.of_tool(tool);
            let semantic = direction.cosine(&query.direction);
            let embedding = embedding(tool).filter(|cosine| cosine.is_finite());
            (tool, Scores { lexical, soft, semantic, embedding })
        });
        let scored: Vec<_> = scored.collect();
        let usual = UsualEmbedding::of(scored.iter().map(|(_, scores)| *scores));
        let is_found =
            |(_, scores): &(ToolIndex, Scores)| is_found(strategy, *scores, usual.above(*scores));
        let found: Vec<_> = scored.into_iter().filter(is_found).collect();
        let best = Best::of(query.weight(), usual, found.iter().map(|(_, scores)| *scores));
        (found, best)
    }

    /// The tools that a query is about, among those that are allowed. What is not allowed moves neither the scores nor
    /// the ranks of the others: the answer is that of an index without it.
    pub fn search(
        &self,
        query: &Query,
        search: &Search<'_>,
        allowed: impl Fn(ToolIndex) -> bool,
        signals: impl Fn(ToolIndex) -> Signals,
    ) -> Ranking {
        self.search_embedded(query, search, allowed, signals, |_| None)
    }

    /// Like [`Self::search`], with the cosine between the embeddings of the query and of each tool, where there is one.
    pub fn search_embedded(
        &self,
        query: &Query,
        search: &Search<'_>,
        allowed: impl Fn(ToolIndex) -> bool,
        signals: impl Fn(ToolIndex) -> Signals,
        embedding: impl Fn(ToolIndex) -> Option<f32>,
    ) -> Ranking {
        if query.terms.is_empty() {
            return Ranking::default();
        }
        let scoring = Scoring::of(self, query);
        let (found, best) = self.found(&scoring, query, search.strategy, allowed, embedding);
        let scored = found.into_iter().map(|(tool, scores)| {
            let parts = fuse(search.strategy, search.weights, scores, signals(tool), best);
            Hit { tool, score: parts.sum(), scores, parts, matches: Vec::new() }
        });
        let mut hits: Vec<_> = scored.collect();
        let shown = search.limit.min(MAX_LIMIT);
        // Whether the first ones are close does not depend on how many are asked for.
        let kept = shown.max(crate::ranking::MAX_CLOSE);
        if hits.len() > kept {
            hits.select_nth_unstable_by(kept, by_score);
            hits.truncate(kept);
        }
        hits.sort_by(by_score);
        let ambiguity = match search.strategy {
            Strategy::Fused => self.ambiguity(&hits, search.weights.close),
            Strategy::Lexical | Strategy::Semantic => None,
        };
        hits.truncate(shown);
        hits.iter_mut().for_each(|hit| hit.matches = scoring.matches(hit.tool));
        Ranking { hits, ambiguity }
    }

    /// The same answer after a judge has said which of its tools fit, the best one first. It has the tools that it had, and
    /// no other. Those that the judge names come first, in its order, for all scores; the others follow by their
    /// scores. If [`crate::fusion::Weights::judged`] is not above 0, or the judge names none of the tools, the order stays.
    #[must_use]
    pub fn judged(ranking: Ranking, search: &Search<'_>, order: &[ToolIndex]) -> Ranking {
        let Ranking { mut hits, mut ambiguity } = ranking;
        let places: BTreeMap<_, _> = order.iter().rev().zip(1..).collect();
        let place = |hit: &Hit| places.get(&hit.tool).copied().unwrap_or(0);
        if search.weights.judged > 0.0 && hits.iter().any(|hit| place(hit) > 0) {
            for hit in &mut hits {
                hit.parts.judged = search.weights.judged * part(place(hit), order.len());
                hit.score = hit.parts.sum();
            }
            let by_place = |one: &Hit, other: &Hit| place(other).cmp(&place(one));
            hits.sort_by(|one, other| by_place(one, other).then_with(|| by_score(one, other)));
            // The judge prefers one.
            ambiguity = None;
        }
        hits.truncate(search.limit.min(MAX_LIMIT));
        Ranking { hits, ambiguity }
    }
}

/// The order of an answer: the best score first, and tools with the same score in the order of the index.
fn by_score(one: &Hit, other: &Hit) -> std::cmp::Ordering {
    other.score.total_cmp(&one.score).then(one.tool.cmp(&other.tool))
}

#[expect(clippy::cast_precision_loss, reason = "an answer has few tools")]
fn part(of: usize, all: usize) -> f32 {
    of as f32 / all.max(1) as f32
}

/// Whether a tool with these scores is an answer at all.
fn is_found(strategy: Strategy, scores: Scores, above: f32) -> bool {
    let similar = scores.semantic >= LEAST_COSINE;
    match strategy {
        Strategy::Lexical => scores.lexical > 0.0,
        Strategy::Semantic => similar,
        Strategy::Fused => similar || scores.soft > 0.0 || above >= LEAST_ABOVE,
    }
}

#[cfg(test)]
mod tests;
