//! A request in a person's words, as the index is searched for it.

use crate::bag::{query_words, weight_in_query};
use crate::model::{Model, WordIndex, identity};
use crate::vector::Direction;

/// Most bytes of a query that are read; the rest of it is ignored.
pub const MAX_QUERY_BYTES: usize = 4096;

/// A query, read once and searched for as often as needed.
#[derive(Clone, Debug)]
pub struct Query {
    pub(crate) terms: Vec<Term>,
    pub(crate) direction: Direction,
}

/// A distinct word of a query.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) word: String,
    pub(crate) identity: u32,
    pub(crate) known: Option<WordIndex>,
    /// What the word counts: its rarity, or little if it is there for the grammar.
    pub(crate) weight: f32,
}

impl Query {
    /// Reads a query. At most [`MAX_QUERY_BYTES`] and [`crate::bag::MAX_QUERY_WORDS`] of it count.
    #[must_use]
    pub fn new(model: &Model, text: &str) -> Self {
        let text = text.get(..text.floor_char_boundary(MAX_QUERY_BYTES)).unwrap_or_default();
        let words = query_words(text);
        let direction = Direction::of(model, words.iter().map(|word| (word.as_str(), 1.0)));
        let term = |word: String| {
            let identity = identity(&word);
            let known = model.find(identity);
            let weight = model.rarity(known) * weight_in_query(&word);
            Term { word, identity, known, weight }
        };
        Self { terms: words.into_iter().map(term).collect(), direction }
    }

    /// The words of the query, with their endings removed.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().map(|term| term.word.as_str())
    }
}
