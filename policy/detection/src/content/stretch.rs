//! Scores pairs of sentences with a linear model over hashed words, pairs of words, and pairs with one word between
//! them (control C13).
//!
//! The model complements the patterns of `orders`, which give a reason and are precise where they match: it was trained
//! on what they found, and generalises a little. `docs/content.md` describes its training data.

use std::ops::Range;
use std::sync::LazyLock;

use crate::detect::{BUCKETS, Model};

/// From this score on, a pair of sentences is taken to give instructions.
pub const THRESHOLD: f32 = 2.25;
/// Longest sentence, in bytes: a longer one counts as several.
const SENTENCE: usize = 300;
/// Fewest words of a text that is scored.
const WORDS: usize = 4;

/// A signed byte for each bucket, then the bias.
const _: () = assert!(include_bytes!("orders.bin").len() == BUCKETS + 2);
static BUILT_IN: LazyLock<Model> = LazyLock::new(|| Model::parse(include_bytes!("orders.bin")));

/// A pair of sentences with its features, for training.
#[derive(Clone, Debug)]
pub struct SentencePair {
    /// The range of the sentences in the text.
    pub at: Range<usize>,
    /// The buckets of their features.
    pub features: Vec<u16>,
}

/// Every pair of consecutive sentences of a text; the last one is a single sentence.
#[must_use]
pub fn stretches(text: &str) -> Vec<SentencePair> {
    let mut all: Vec<(Range<usize>, Vec<u16>)> = Vec::new();
    read(text, |at, new, features| match all.last_mut().filter(|_| !new) {
        Some((known, all)) => {
            known.end = at.end;
            all.extend(features);
        }
        None => all.push((at, features.to_vec())),
    });
    let mut out = Vec::with_capacity(all.len());
    for (n, (at, features)) in all.iter().enumerate() {
        let (mut at, mut features) = (at.clone(), features.clone());
        if let Some((next, more)) = all.get(n + 1) {
            at.end = next.end;
            features.extend(more);
        }
        out.push(SentencePair { at, features });
    }
    out
}

/// The greatest score of any pair of sentences, and the ranges of all pairs that reach [`THRESHOLD`]; `None` for a
/// text with fewer than four words.
#[must_use]
pub fn strongest(model: &Model, text: &str) -> Option<(f32, Vec<Range<usize>>)> {
    let weight = |bucket: &u16| model.weights.get(usize::from(*bucket)).copied().unwrap_or(0.0);
    let mut best = PairScores { bias: model.bias, most: None, places: Vec::new(), last: None };
    // The current sentence: its score and its range.
    let (mut now, mut words) = (None::<(f32, Range<usize>)>, 0_usize);
    read(text, |at, new, features| {
        words += 1;
        let sum: f32 = features.iter().map(weight).sum();
        match now.as_mut().filter(|_| !new) {
            Some((all, known)) => {
                *all += sum;
                known.end = at.end;
            }
            None => best.add(now.replace((sum, at))),
        }
    });
    best.add(now.take());
    let most = best.most.filter(|_| words >= WORDS)?;
    Some((most, best.places))
}

/// The running result of one pass over a text.
struct PairScores {
    bias: f32,
    most: Option<f32>,
    places: Vec<Range<usize>>,
    /// The previous sentence: its score and its range.
    last: Option<(f32, Range<usize>)>,
}

impl PairScores {
    /// Adds a sentence, which is scored together with the previous one.
    fn add(&mut self, sentence: Option<(f32, Range<usize>)>) {
        let Some((sum, at)) = sentence else { return };
        let before = self.last.as_ref();
        let both = before.map_or(sum, |(before, _)| before + sum) + self.bias;
        let from = before.map_or(at.start, |(_, before)| before.start);
        self.most = Some(self.most.map_or(both, |most| most.max(both)));
        if both >= THRESHOLD {
            match self.places.last_mut().filter(|place| place.end >= from) {
                Some(place) => place.end = at.end,
                None => self.places.push(from..at.end),
            }
        }
        self.last = Some((sum, at));
    }
}

/// The model that is compiled in.
#[must_use]
pub fn built_in() -> &'static Model {
    &BUILT_IN
}

/// Calls `word` for each word of a text: with its range, whether it begins a sentence, and its features.
fn read(text: &str, mut word: impl FnMut(Range<usize>, bool, &[u16])) {
    let bytes = text.as_bytes();
    let (mut at, mut start, mut new) = (0, 0, true);
    let (mut before, mut first) = (0_u64, 0_u64);
    while let Some(byte) = bytes.get(at) {
        let rest = bytes.get(at + 1..).unwrap_or_default();
        let run = |of: fn(&u8) -> bool| at + 1 + rest.iter().take_while(|b| of(b)).count();
        let (end, hash) = match byte {
            b'\n' => {
                (new, at) = (true, at + 1);
                continue;
            }
            // An escaped line end, as in JSON within a string.
            b'\\' if rest.first() == Some(&b'n') => {
                (new, at) = (true, at + 2);
                continue;
            }
            b if b.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'0'..=b'9' => (run(u8::is_ascii_digit), 1),
            b'a'..=b'z' | b'A'..=b'Z' => {
                let end = run(|b| b.is_ascii_alphabetic() || *b == b'\'');
                (end, hash(bytes.get(at..end).unwrap_or_default()))
            }
            0x80.. => {
                let end = run(|b| *b >= 0x80);
                (end, hash(bytes.get(at..end).unwrap_or_default()))
            }
            other => (at + 1, 2 + u64::from(*other)),
        };
        if at.saturating_sub(start) > SENTENCE {
            new = true;
        }
        if new {
            start = at;
        }
        let features = [bucket(hash, 0, 1), bucket(hash, before, 2), bucket(hash, first, 3)];
        word(at..end, new, &features);
        let stops = matches!(byte, b'.' | b'!' | b'?');
        new = stops && rest.first().is_none_or(u8::is_ascii_whitespace);
        (first, before, at) = (before, hash, end);
    }
}

/// FNV-1a over the word in lower case.
fn hash(word: &[u8]) -> u64 {
    word.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The bucket of a word with an earlier one; `kind` is 1 for a single word, 2 and 3 for the distance of a pair.
fn bucket(word: u64, before: u64, kind: u64) -> u16 {
    let both =
        (word ^ before.rotate_left(23).wrapping_mul(kind)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let shift = u64::BITS - BUCKETS.trailing_zeros();
    u16::try_from((both ^ kind.wrapping_mul(0x5851_f42d_4c95_7f2d)) >> shift).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{BUILT_IN, stretches, strongest};

    #[test]
    fn a_sum_is_that_of_its_features() {
        let text = "The room is quiet. Breakfast is at eight!\nAsk at the desk\\nfor 2 keys? Ja, Größe 4 世界 ok.";
        let weight = |bucket: &u16| BUILT_IN.weights[usize::from(*bucket)];
        let all = stretches(text);
        let sum = |features: &[u16]| features.iter().map(weight).sum::<f32>() + BUILT_IN.bias;
        // One sentence after the first is always read with the one before it.
        let pairs = all.iter().take(all.len() - 1).map(|one| sum(&one.features));
        let first = all.first().map(|one| sum(&one.features)).unwrap();
        let best = pairs.fold(first, f32::max);
        let (found, places) = strongest(&BUILT_IN, text).unwrap();
        assert!(found >= best - 0.01, "{found} {best}");
        assert!(places.into_iter().all(|at| text.get(at).is_some()));
    }
}
