//! How much of a text another one keeps: by words without their endings, similar words, and words that are nearly the same.

use std::collections::BTreeSet;

use selector::bag::weight_in_query;
use selector::model::{Model, identity};
use selector::text::words;
use strsim::osa_distance;

/// Most words of a text that are compared.
pub(crate) const MAX_WORDS: usize = 400;
/// A word that is nearly the same keeps this much of it.
const MISTYPED: f32 = 0.9;
/// A similar word keeps at least this much of a word.
const SIMILAR: f32 = 0.75;
/// Shortest word that can be mistyped in one place, and in two, in characters.
const SHORTEST: usize = 4;
const LONG: usize = 8;

/// The distinct words of a text with what each of them counts: how rare it is in definitions.
#[derive(Clone, Debug, Default)]
pub struct WeighedText {
    words: Vec<(String, f32)>,
}

impl WeighedText {
    /// Reads the words of a text.
    #[must_use]
    pub fn new(model: &Model, text: &str) -> Self {
        let mut seen = BTreeSet::new();
        let words = words(text, MAX_WORDS).into_iter().filter(|word| seen.insert(word.clone()));
        let weigh = |word: String| {
            let rarity = model.rarity(model.find(identity(&word))).max(0.5);
            let weight = rarity * weight_in_query(&word);
            (word, weight)
        };
        Self { words: words.map(weigh).collect() }
    }

    /// What all of its words count.
    #[must_use]
    pub fn weight(&self) -> f32 {
        self.words.iter().map(|(_, weight)| weight).sum()
    }

    /// How many words it has that say something.
    #[must_use]
    pub fn length(&self) -> usize {
        self.words.iter().filter(|(word, _)| weight_in_query(word) >= 1.0).count()
    }

    /// Whether it has a word.
    #[must_use]
    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|(own, _)| own == word)
    }

    /// The share of this text that `former` does not have, by the weight of its words; 0 if it says nothing.
    #[must_use]
    pub fn fresh_since(&self, model: &Model, former: &Self) -> f32 {
        1.0 - self.kept_by(model, former)
    }

    /// The words that say something and that `other` does not have, also not similarly.
    #[must_use]
    pub fn beside(&self, model: &Model, other: &Self) -> Vec<&str> {
        let says = self.words.iter().filter(|(word, _)| weight_in_query(word) >= 1.0);
        let foreign = says.filter(|(word, _)| other.keeps(model, word) < 0.5);
        foreign.map(|(word, _)| word.as_str()).collect()
    }

    /// The share of this text that `later` keeps, by the weight of its words; 1 if it says nothing.
    #[must_use]
    pub fn kept_by(&self, model: &Model, later: &Self) -> f32 {
        let all = self.weight();
        if all <= 0.0 {
            return 1.0;
        }
        let kept = self.words.iter().map(|(word, weight)| weight * later.keeps(model, word));
        kept.sum::<f32>() / all
    }

    /// How much of a word the text has: all of it, a similar word, or one that was mistyped.
    fn keeps(&self, model: &Model, word: &str) -> f32 {
        if self.has(word) {
            return 1.0;
        }
        let known = model.find(identity(word));
        let neighbours: Vec<(u32, f32)> =
            known.into_iter().flat_map(|known| model.neighbours(known)).collect();
        let own = known.map(|_| identity(word));
        let alike = |other: &str| {
            let id = identity(other);
            let forth = neighbours.iter().find(|(neighbour, _)| *neighbour == id);
            let back = || {
                let other = model.find(id)?;
                model.neighbours(other).find(|(neighbour, _)| Some(*neighbour) == own)
            };
            let similar =
                forth.copied().or_else(back).map_or(0.0, |(_, similar)| similar.max(SIMILAR));
            similar.max(if is_mistyped(word, other) { MISTYPED } else { 0.0 })
        };
        self.words.iter().map(|(other, _)| alike(other)).fold(0.0, f32::max)
    }
}

/// Whether one of the words is the other one mistyped.
fn is_mistyped(one: &str, other: &str) -> bool {
    let shortest = one.chars().count().min(other.chars().count());
    let most = match shortest {
        0..SHORTEST => return false,
        SHORTEST..LONG => 1,
        _ => 2,
    };
    one.len().abs_diff(other.len()) <= most && osa_distance(one, other) <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(before: &str, after: &str) -> f32 {
        let model = Model::empty();
        WeighedText::new(&model, before).kept_by(&model, &WeighedText::new(&model, after))
    }

    #[test]
    fn what_is_kept_of_a_text_is_told_by_its_words() {
        let text = "Creates an issue in the tracker of a project";
        assert!(kept(text, "In a project's tracker: create issues.") > 0.9);
        assert!(kept(text, "Creates an isue in the trackr of a project") > 0.6);
        assert!(kept(text, "Sends a message to a channel") < 0.3);
        assert_eq!(kept(text, ""), 0.0);
        assert_eq!(kept("", text), 1.0);
    }
}
