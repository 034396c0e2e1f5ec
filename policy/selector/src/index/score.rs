//! Scores all tools of an index for a query.

use super::{Index, Posting};
use crate::query::{Query, Term};
use crate::ranking::{ToolIndex, WordMatch};

/// A word of the index, by its place.
type Slot = usize;

/// The scores of all tools, and what they came from.
pub(super) struct Scoring<'a> {
    index: &'a Index,
    query: &'a Query,
    /// For each word of the query: the words of the index that are the same or similar, and how similar.
    similar: Vec<Vec<(Slot, f32)>>,
    lexical: Vec<f32>,
    soft: Vec<f32>,
}

impl<'a> Scoring<'a> {
    /// Scores all tools. The score of each depends on its own words alone.
    pub(super) fn of(index: &'a Index, query: &'a Query) -> Self {
        let similar = query.terms.iter().map(|term| index.similar(term)).collect();
        let zeros = vec![0.0; index.len()];
        let mut scoring =
            Self { index, query, similar, lexical: zeros.clone(), soft: zeros.clone() };
        let (mut best, mut touched) = (zeros, Vec::new());
        for (term, similar) in query.terms.iter().zip(&scoring.similar) {
            for (slot, similarity) in similar {
                for posting in index.postings(*slot) {
                    let place = posting.tool as usize;
                    if *similarity >= 1.0
                        && let Some(sum) = scoring.lexical.get_mut(place)
                    {
                        *sum += term.weight * posting.weight;
                    }
                    if let Some(best) = best.get_mut(place) {
                        if *best == 0.0 {
                            touched.push(place);
                        }
                        *best = best.max(similarity * posting.weight);
                    }
                }
            }
            for place in touched.drain(..) {
                if let (Some(sum), Some(best)) = (scoring.soft.get_mut(place), best.get_mut(place)) {
                    *sum += term.weight * *best;
                    *best = 0.0;
                }
            }
        }
        scoring
    }

    /// The lexical and the soft score of a tool.
    pub(super) fn of_tool(&self, tool: ToolIndex) -> (f32, f32) {
        let of = |scores: &[f32]| scores.get(tool.0 as usize).copied().unwrap_or_default();
        (of(&self.lexical), of(&self.soft))
    }

    /// The words of the query with the most similar word of a tool, as far as one is similar.
    pub(super) fn matches(&self, tool: ToolIndex) -> Vec<WordMatch> {
        let matched = |(term, similar): (&Term, &Vec<(Slot, f32)>)| {
            let weighed = similar.iter().filter_map(|(slot, similarity)| {
                let postings = self.index.postings(*slot);
                let at = postings.binary_search_by_key(&tool.0, |posting| posting.tool).ok()?;
                let weight = postings.get(at)?.weight;
                Some((*slot, *similarity, similarity * weight))
            });
            let best = weighed.reduce(|best, one| if one.2 > best.2 { one } else { best });
            let (slot, similarity, _) = best?;
            let found = self.index.words.get(slot)?.to_string();
            Some(WordMatch { asked: term.word.clone(), found, similarity })
        };
        self.query.terms.iter().zip(&self.similar).filter_map(matched).collect()
    }
}

impl Index {
    /// The words of the index that are the word of a query or similar to it.
    fn similar(&self, term: &Term) -> Vec<(Slot, f32)> {
        let slot = |identity: u32| self.identities.binary_search(&identity).ok();
        let same = slot(term.identity).map(|slot| (slot, 1.0));
        let known = term.known.into_iter();
        let neighbours = known.flat_map(|word| self.model.neighbours(word));
        let similar = neighbours
            .filter_map(|(identity, similarity)| Some((slot(identity)?, similarity.min(0.99))));
        same.into_iter().chain(similar).collect()
    }

    fn postings(&self, slot: Slot) -> &[Posting] {
        let bound = |slot: usize| self.starts.get(slot).map_or(0, |start| *start as usize);
        self.postings.get(bound(slot)..bound(slot + 1)).unwrap_or_default()
    }
}
