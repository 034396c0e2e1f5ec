//! How much two requests have in common, and what is concluded from the tools that similar requests led to.

use crate::query::Query;

/// Most words of a request that are compared. Of more, those that count least are left out.
pub const MAX_WORDS: usize = 16;
/// Requests that have less in common say nothing of each other.
const LEAST_SIMILARITY: f32 = 0.3;
/// How many uses of other tools are assumed beside those that are known, so that one use proves little.
const ASSUMED_USES: f32 = 1.0;

/// The words of a request with what they count. It has the identities of the words and not the words, so that the text of
/// a request cannot be read from it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestWords(Box<[RequestWord]>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct RequestWord {
    identity: u32,
    weight: f32,
}

impl RequestWords {
    /// The words of a query that count most.
    #[must_use]
    pub fn of(query: &Query) -> Self {
        let terms = query.terms.iter();
        let word = |identity, weight| RequestWord { identity, weight };
        let mut words: Vec<_> = terms.map(|term| word(term.identity, term.weight)).collect();
        words.sort_by(|one, other| {
            other.weight.total_cmp(&one.weight).then(one.identity.cmp(&other.identity))
        });
        words.truncate(MAX_WORDS);
        words.sort_by_key(|word| word.identity);
        words.dedup_by_key(|word| word.identity);
        Self(words.into())
    }

    /// Whether no word of the request counts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the shared words count in proportion to all words of both: 1 for the same words, and 0 for requests that have
    /// little in common.
    #[must_use]
    pub fn similarity(&self, other: &Self) -> f32 {
        let weight = |words: &Self| words.0.iter().map(|word| word.weight).sum::<f32>();
        let find = |word: &RequestWord| {
            let place = other.0.binary_search_by_key(&word.identity, |one| one.identity).ok()?;
            Some(word.weight.min(other.0.get(place)?.weight))
        };
        let shared: f32 = self.0.iter().filter_map(find).sum();
        let all = weight(self) + weight(other) - shared;
        let similarity = if all > 0.0 { (shared / all).clamp(0.0, 1.0) } else { 0.0 };
        if similarity < LEAST_SIMILARITY { 0.0 } else { similarity }
    }
}

/// How often requests led to a tool; each request counts as much as it is similar and recent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UseCounts {
    /// Calls with a result.
    pub succeeded: f32,
    /// Calls that failed or were denied.
    pub failed: f32,
}

impl UseCounts {
    /// The number of all calls.
    #[must_use]
    pub fn all(self) -> f32 {
        self.succeeded + self.failed
    }

    /// The same with each call counted `factor` times.
    #[must_use]
    pub fn times(self, factor: f32) -> Self {
        Self { succeeded: self.succeeded * factor, failed: self.failed * factor }
    }

    /// The counts of both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { succeeded: self.succeeded + other.succeeded, failed: self.failed + other.failed }
    }

    /// The share of `all` similar requests that led to the tool and succeeded, between 0 and 1: what
    /// [`Signals::history`](crate::fusion::Signals::history) is.
    #[must_use]
    pub fn share_of(self, all: f32) -> f32 {
        (self.succeeded / (all.max(self.all()) + ASSUMED_USES)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{RequestWords, UseCounts};
    use crate::model::Model;
    use crate::query::Query;

    fn words(text: &str) -> RequestWords {
        RequestWords::of(&Query::new(Model::built_in(), text))
    }

    #[test]
    fn requests_are_similar_by_the_words_that_count() {
        let refund = words("refund the customer");
        assert!((refund.similarity(&words("please refund my customers")) - 1.0).abs() < 0.01);
        let part = refund.similarity(&words("refund the order of a customer"));
        assert!(part > 0.3 && part < 1.0, "{part}");
        for other in ["send a mail", "the of to", ""] {
            assert!(refund.similarity(&words(other)).abs() < f32::EPSILON, "{other}");
        }
        assert!(words("of the").is_empty());
        let long: String = (0..60).map(|n| format!("refund{n} ")).collect();
        assert_eq!(words(&long).0.len(), super::MAX_WORDS);
    }

    #[test]
    fn one_use_proves_little_and_failures_take_away() {
        let share = |succeeded, failed, all| UseCounts { succeeded, failed }.share_of(all);
        assert!((share(1.0, 0.0, 1.0) - 0.5).abs() < 0.01);
        assert!(share(9.0, 0.0, 9.0) > 0.85);
        assert!(share(9.0, 9.0, 18.0) < 0.5);
        assert!(share(0.0, 5.0, 5.0).abs() < f32::EPSILON);
        // Less than the tool's own uses cannot be all.
        assert!(share(4.0, 0.0, 0.0) < 1.0);
    }
}
