//! Which weights would have put the tools that callers used nearer to the first place: a search over the weights of the
//! three scores of words, on requests whose right tool is known.
//!
//! Whether other weights are better is measured on requests of callers that the search did not see. Everything is
//! deterministic.

use std::collections::BTreeMap;

use crate::fusion::{MOST_WEIGHT, RelativeScores, Weights};

/// Fewest requests from which something is concluded.
pub const LEAST_REQUESTS: usize = 50;
/// Fewest callers that they come from.
pub const LEAST_CALLERS: usize = 5;
/// Into how many parts the callers are divided; the weights for a part are chosen on the others.
const FOLDS: usize = 5;
/// What a weight is multiplied with in a step of the search.
const FACTORS: [f32; 8] = [0.0, 0.5, 0.7, 0.85, 1.18, 1.4, 2.0, 3.0];
/// Most rounds of the search over all weights.
const MAX_ROUNDS: usize = 8;
/// What weights have to gain on the requests that they are chosen on, so that rounding is no gain.
const LEAST_STEP: f64 = 1e-4;
/// How often the callers are drawn anew for an interval.
const DRAWS: usize = 2000;

/// A request whose right tool is known.
#[derive(Clone, Debug)]
pub struct JudgedRequest {
    /// The caller that asked for tools.
    pub caller: String,
    /// The tool that was used.
    pub used: RelativeScores,
    /// The others among which it was found.
    pub others: Vec<RelativeScores>,
}

/// The weights of the three scores of words.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WordWeights([f32; 3]);

impl WordWeights {
    fn of(weights: &Weights) -> Self {
        Self([weights.lexical, weights.soft, weights.semantic])
    }

    fn score(self, scores: RelativeScores) -> f32 {
        let Self([words, similar, direction]) = self;
        words * scores.words + similar * scores.similar_words + direction * scores.direction
    }

    /// One divided by the place of the used tool; tools with the same score share the mean of their places.
    fn reciprocal_rank(self, request: &JudgedRequest) -> f64 {
        let used = self.score(request.used);
        let mut before = 0.0;
        for other in &request.others {
            let score = self.score(*other);
            if score > used {
                before += 1.0;
            } else if score >= used {
                before += 0.5;
            }
        }
        1.0 / (1.0 + before)
    }

    fn mean(self, requests: &[&JudgedRequest]) -> f64 {
        mean(requests.iter().map(|request| self.reciprocal_rank(request)))
    }

    /// The same in proportion, with the sum of `other`: the scores of words count as much against the others as before, but
    /// none more than it may.
    fn scaled_to(self, other: Self) -> Self {
        let sum = |one: Self| one.0.iter().sum::<f32>();
        let factor = if sum(self) > 0.0 { sum(other) / sum(self) } else { 1.0 };
        let largest = self.0.into_iter().fold(0.0, f32::max);
        let factor = if largest > 0.0 { factor.min(MOST_WEIGHT / largest) } else { factor };
        Self(self.0.map(|weight| (weight * factor * 100.0).round() / 100.0))
    }

    /// Weights that put the used tools of the requests nearer to the first place, if the search finds some.
    fn improved(self, requests: &[&JudgedRequest]) -> Self {
        let mut best = (self, self.mean(requests));
        for _ in 0..MAX_ROUNDS {
            let before = best.1;
            for place in 0..3 {
                for factor in FACTORS {
                    let mut tried = best.0;
                    if let Some(weight) = tried.0.get_mut(place) {
                        *weight *= factor;
                    }
                    let reached = tried.mean(requests);
                    if reached > best.1 + LEAST_STEP {
                        best = (tried, reached);
                    }
                }
            }
            if best.1 <= before {
                break;
            }
        }
        best.0.scaled_to(self)
    }
}

/// A mean with its interval at 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The mean over all callers.
    pub mean: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

/// What other weights would change, measured on callers that they were not chosen on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedWeights {
    /// The number of requests.
    pub requests: usize,
    /// The number of callers.
    pub callers: usize,
    /// The mean reciprocal rank with the weights as they are.
    pub before: Measured,
    /// With the chosen ones.
    pub after: Measured,
    /// The difference between the two.
    pub gain: Measured,
    /// The weights that were chosen on all requests.
    pub weights: Weights,
}

impl LearnedWeights {
    /// Whether the interval of the gain has nothing but gains.
    #[must_use]
    pub fn is_gain(&self) -> bool {
        self.gain.low > 0.0
    }
}

/// Why nothing is concluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLittle {
    /// There are this many requests, fewer than [`LEAST_REQUESTS`].
    Requests(usize),
    /// They are of this many callers, fewer than [`LEAST_CALLERS`].
    Callers(usize),
}

/// Chooses weights on the requests, and measures what they change.
///
/// # Errors
/// If there are too few requests or callers.
pub fn learn(requests: &[JudgedRequest], current: &Weights) -> Result<LearnedWeights, TooLittle> {
    let mut callers: BTreeMap<&str, Vec<&JudgedRequest>> = BTreeMap::new();
    for request in requests {
        callers.entry(&request.caller).or_default().push(request);
    }
    if requests.len() < LEAST_REQUESTS {
        return Err(TooLittle::Requests(requests.len()));
    }
    if callers.len() < LEAST_CALLERS {
        return Err(TooLittle::Callers(callers.len()));
    }
    let usual = WordWeights::of(current);
    let in_fold = |fold: usize, is_in: bool| {
        let callers = callers.values().enumerate();
        callers.filter(move |(place, _)| (place % FOLDS == fold) == is_in).map(|(_, of)| of)
    };
    let mut ranks = Vec::new();
    for fold in 0..FOLDS {
        let seen: Vec<&JudgedRequest> = in_fold(fold, false).flatten().copied().collect();
        let chosen = usual.improved(&seen);
        for of_caller in in_fold(fold, true) {
            let rank = |request: &&JudgedRequest| {
                [usual, chosen].map(|weights| weights.reciprocal_rank(request))
            };
            ranks.push(of_caller.iter().map(rank).collect::<Vec<_>>());
        }
    }
    let all: Vec<_> = requests.iter().collect();
    let WordWeights([lexical, soft, semantic]) = usual.improved(&all);
    Ok(LearnedWeights {
        requests: requests.len(),
        callers: callers.len(),
        before: measured(&ranks, |[before, _]| before),
        after: measured(&ranks, |[_, after]| after),
        gain: measured(&ranks, |[before, after]| after - before),
        weights: Weights { lexical, soft, semantic, ..*current },
    })
}

/// The mean over all requests, with the interval that drawing the callers anew gives.
fn measured(callers: &[Vec<[f64; 2]>], of: impl Fn([f64; 2]) -> f64) -> Measured {
    let sums = callers.iter().map(|ranks| {
        let sum: f64 = ranks.iter().map(|rank| of(*rank)).sum();
        (sum, count(ranks.len()))
    });
    let sums: Vec<_> = sums.collect();
    let ratio = |drawn: &mut dyn Iterator<Item = (f64, f64)>| {
        let (sum, all) = drawn.fold((0.0, 0.0), |(sum, all), (one, n)| (sum + one, all + n));
        if all > 0.0 { sum / all } else { 0.0 }
    };
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut place = || {
        // Xorshift; the seed is fixed, so that the same log has the same interval.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap_or_default() % sums.len().max(1)
    };
    let draw = |_| {
        let mut drawn = (0..sums.len()).filter_map(|_| sums.get(place()).copied());
        ratio(&mut drawn)
    };
    let mut means: Vec<f64> = (0..DRAWS).map(draw).collect();
    means.sort_by(f64::total_cmp);
    let at = |place: usize| means.get(place).copied().unwrap_or_default();
    Measured {
        mean: ratio(&mut sums.iter().copied()),
        low: at(DRAWS / 40),
        high: at(DRAWS - 1 - DRAWS / 40),
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let all = count(values.len());
    if all > 0.0 { values.sum::<f64>() / all } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "there are few requests")]
const fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::{JudgedRequest, LEAST_CALLERS, LEAST_REQUESTS, TooLittle, learn};
    use crate::fusion::{MOST_WEIGHT, RelativeScores, Weights};

    fn scores(words: f32, similar_words: f32, direction: f32) -> RelativeScores {
        RelativeScores { words, similar_words, direction }
    }

    /// Requests of which the direction says which tool is right as far as `is_right`, and words mislead.
    fn requests(
        number: usize,
        callers: usize,
        is_right: impl Fn(usize) -> bool,
    ) -> Vec<JudgedRequest> {
        let request = |n: usize| {
            let (good, bad) = (scores(0.3, 0.3, 0.6), scores(0.7, 0.5, 0.3));
            let (used, other) = if is_right(n) { (good, bad) } else { (bad, good) };
            JudgedRequest {
                caller: format!("caller{}", n % callers),
                used,
                others: vec![other, scores(0.1, 0.1, 0.1)],
            }
        };
        (0..number).map(request).collect()
    }

    #[test]
    fn weights_are_advised_if_callers_that_were_not_seen_gain() {
        let learned = learn(&requests(80, 8, |_| true), &Weights::default()).unwrap();
        assert!(learned.is_gain() && learned.gain.mean > 0.4, "{learned:?}");
        assert_eq!((learned.requests, learned.callers), (80, 8));
        let (new, old) = (learned.weights, Weights::default());
        assert!(new.semantic > old.semantic, "{new:?}");
        let sum = |one: &Weights| one.lexical + one.soft + one.semantic;
        assert!((sum(&new) - sum(&old)).abs() < 0.05, "{new:?}");
        assert_eq!((new.history, new.close), (old.history, old.close));
        let again = learn(&requests(80, 8, |_| true), &old).unwrap();
        assert_eq!(learned, again, "it is deterministic");
        // Weights that count much already do not become more than a configuration may have.
        let much = Weights { lexical: 10.0, soft: 0.0, semantic: 10.0, ..old };
        let Weights { lexical, soft, semantic, .. } =
            learn(&requests(80, 8, |_| true), &much).unwrap().weights;
        assert!(semantic > lexical && semantic > soft, "{lexical} {soft} {semantic}");
        let most = lexical.max(soft).max(semantic);
        assert!(most <= MOST_WEIGHT, "{most}");
    }

    #[test]
    fn nothing_is_advised_without_a_gain() {
        let learned = learn(&requests(80, 8, |_| false), &Weights::default()).unwrap();
        assert!(!learned.is_gain() && learned.gain.mean.abs() < 1e-9, "{learned:?}");
        // What half of the callers gain, the others lose.
        let split = learn(&requests(80, 8, |n| n % 8 < 4), &Weights::default()).unwrap();
        assert!(!split.is_gain(), "{split:?}");
        assert!(split.gain.low <= split.gain.mean && split.gain.mean <= split.gain.high);
    }

    #[test]
    fn nothing_is_concluded_from_little() {
        let few = learn(&requests(LEAST_REQUESTS - 1, 8, |_| true), &Weights::default());
        assert_eq!(few, Err(TooLittle::Requests(LEAST_REQUESTS - 1)));
        let alone = learn(&requests(100, LEAST_CALLERS - 1, |_| true), &Weights::default());
        assert_eq!(alone, Err(TooLittle::Callers(LEAST_CALLERS - 1)));
        let enough = learn(&requests(LEAST_REQUESTS, LEAST_CALLERS, |_| true), &Weights::default());
        assert!(enough.is_ok());
    }
}
