//! Scores pairs of sentences with a linear model over hashed words, pairs of words, and pairs with one word between
//! them (control C13).
//!
//! The model complements the patterns of `orders`, which give a reason and are precise where they match: it was trained
//! on what they found, and generalises a little. `docs/content.md` describes its training data.

use std::ops::Range;
use std::sync::LazyLock;

use crate::detect::Model;

/// Number of buckets that features are hashed into.
pub const BUCKETS: usize = 1 << 18;
/// From this score on, a pair of sentences may give instructions. `docs/detection.md` has the share of ordinary texts that
/// reach it, and that reach [`CERTAIN`].
pub const THRESHOLD: f32 = 2.5;
/// From this score on, it is certain enough to remove the sentences.
pub const CERTAIN: f32 = 4.0;
/// Longest sentence, in bytes: a longer one counts as several.
const SENTENCE: usize = 300;
/// Fewest words of a text that is scored.
const WORDS: usize = 4;

/// A signed byte for each bucket, then the bias.
static BUILT_IN: LazyLock<Model> = LazyLock::new(|| Model::parse(include_bytes!("orders.bin")));
const _: () = assert!(include_bytes!("orders.bin").len() == BUCKETS + 2);

/// A pair of sentences with its features, for training.
#[derive(Clone, Debug)]
pub struct SentencePair {
    /// The range of the sentences in the text.
    pub at: Range<usize>,
    /// The buckets of their features.
    pub features: Vec<u32>,
}

/// Every pair of consecutive sentences of a text; the last one is a single sentence.
#[must_use]
pub fn stretches(text: &str) -> Vec<SentencePair> {
    let mut all: Vec<(Range<usize>, Vec<u32>)> = Vec::new();
    sentences(text, |at, _words, features| all.push((at, features.to_vec())));
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

/// The greatest score of any pair of sentences, and the ranges of all pairs that reach [`CERTAIN`]; `None` for a
/// text with fewer than four words.
#[must_use]
pub fn strongest(model: &Model, text: &str) -> Option<(f32, Vec<Range<usize>>)> {
    let mut best = PairScores { bias: model.bias(), most: None, places: Vec::new(), last: None };
    let mut all = 0_usize;
    sentences(text, |at, words, features| {
        all += words;
        best.add(features.iter().map(|bucket| model.weight(*bucket)).sum(), at);
    });
    let most = best.most.filter(|_| all >= WORDS)?;
    Some((most, best.places))
}

/// Calls `each` for each sentence of a text: with its range, the number of its words, and its features. Each feature
/// counts once, however often a table or a log repeats it.
fn sentences(text: &str, mut each: impl FnMut(Range<usize>, usize, &[u32])) {
    let mut features: Vec<u32> = Vec::new();
    let mut sentence = None::<(Range<usize>, usize)>;
    let mut end = |(at, words), features: &mut Vec<u32>| {
        features.sort_unstable();
        features.dedup();
        each(at, words, features);
        features.clear();
    };
    read(text, |at, new, more| {
        match sentence.as_mut().filter(|_| !new) {
            Some((known, words)) => {
                known.end = at.end;
                *words += 1;
            }
            None => {
                if let Some(before) = sentence.replace((at, 1)) {
                    end(before, &mut features);
                }
            }
        }
        features.extend_from_slice(more);
    });
    if let Some(last) = sentence {
        end(last, &mut features);
    }
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
    fn add(&mut self, sum: f32, at: Range<usize>) {
        let before = self.last.as_ref();
        let both = before.map_or(sum, |(before, _)| before + sum) + self.bias;
        let from = before.map_or(at.start, |(_, before)| before.start);
        self.most = Some(self.most.map_or(both, |most| most.max(both)));
        if both >= CERTAIN {
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

/// Calls `word` for each word of a text: with its range, whether it begins a sentence, and its features. In scripts
/// without blanks, every two characters that stand beside each other are a word.
fn read(text: &str, mut word: impl FnMut(Range<usize>, bool, &[u32])) {
    let bytes = text.as_bytes();
    let (mut at, mut start, mut new) = (0, 0, true);
    let (mut before, mut first) = (0_u64, 0_u64);
    while let Some(byte) = bytes.get(at) {
        let rest = bytes.get(at + 1..).unwrap_or_default();
        let run = |of: fn(&u8) -> bool| at + 1 + rest.iter().take_while(|b| of(b)).count();
        // The end of the word, its hash, where the next one begins, and whether the sentence ends with it.
        let (end, hash, next, stops) = match byte {
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
            b'0'..=b'9' => (run(u8::is_ascii_digit), 1, None, false),
            b'a'..=b'z' | b'A'..=b'Z' => {
                let end = run(|b| b.is_ascii_alphabetic() || *b == b'\'');
                // Most words end at a character of ASCII, and none of those goes on here.
                let goes_on = bytes.get(end).is_some_and(|byte| !byte.is_ascii());
                let end = if goes_on { letters(text, end) } else { end };
                (end, hash(bytes.get(at..end).unwrap_or_default()), None, false)
            }
            0x80.. => foreign(text, at),
            other => (at + 1, 2 + u64::from(*other), None, matches!(other, b'.' | b'!' | b'?')),
        };
        if at.saturating_sub(start) > SENTENCE {
            new = true;
        }
        if new {
            start = at;
        }
        let features = [bucket(hash, 0, 1), bucket(hash, before, 2), bucket(hash, first, 3)];
        word(at..end, new, &features);
        let next = next.unwrap_or(end);
        new = stops && (*byte >= 0x80 || bytes.get(next).is_none_or(u8::is_ascii_whitespace));
        (first, before, at) = (before, hash, next);
    }
}

/// The end of a run of letters that goes on at `at`, in a script with blanks between words.
fn letters(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let more = |c: &char| (c.is_alphabetic() || *c == '\'' || is_mark(*c)) && !is_dense(*c);
    at + rest.chars().take_while(more).map(char::len_utf8).sum::<usize>()
}

/// The word that begins at `at` with a character that is not ASCII: its end, its hash, where the next word begins if
/// that is not at its end, and whether it ends a sentence.
fn foreign(text: &str, at: usize) -> (usize, u64, Option<usize>, bool) {
    let rest = text.get(at..).unwrap_or_default();
    let mut chars = rest.chars();
    let Some(one) = chars.next() else { return (text.len(), 0, None, false) };
    let after = at + one.len_utf8();
    if is_dense(one) {
        let second = chars.next().filter(|c| is_dense(*c));
        let end = after + second.map_or(0, char::len_utf8);
        let next = second.and_then(|_| chars.next()).filter(|c| is_dense(*c)).map(|_| after);
        return (end, hash(rest.as_bytes().get(..end - at).unwrap_or_default()), next, false);
    }
    if !one.is_alphabetic() {
        let stops = matches!(one, '。' | '！' | '？' | '।' | '؟' | '۔');
        return (after, 0x1_0000 + u64::from(u32::from(one)), None, stops);
    }
    let end = letters(text, after);
    (end, hash(rest.as_bytes().get(..end - at).unwrap_or_default()), None, false)
}

/// Whether words are written without blanks between them in the script of this character. Of Thai no texts were learned
/// from: its runs count as one word.
const fn is_dense(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

/// Whether it is a vowel sign or another mark within a word, of the scripts that have such.
const fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{64b}'..='\u{65f}' | '\u{900}'..='\u{dff}')
}

/// FNV-1a over the word in lower case.
fn hash(word: &[u8]) -> u64 {
    word.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The bucket of a word with an earlier one; `kind` is 1 for a single word, 2 and 3 for the distance of a pair.
fn bucket(word: u64, before: u64, kind: u64) -> u32 {
    let both =
        (word ^ before.rotate_left(23).wrapping_mul(kind)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let shift = u64::BITS - BUCKETS.trailing_zeros();
    u32::try_from((both ^ kind.wrapping_mul(0x5851_f42d_4c95_7f2d)) >> shift).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{BUILT_IN, stretches, strongest};

    #[test]
    fn a_sum_is_that_of_its_features() {
        let text = "The room is quiet. Breakfast is at eight!\nAsk at the desk\\nfor 2 keys? Ja, Größe 4 世界 ok.";
        let weight = |bucket: &u32| BUILT_IN.weight(*bucket);
        let all = stretches(text);
        let sum = |features: &[u32]| features.iter().map(weight).sum::<f32>() + BUILT_IN.bias();
        // One sentence after the first is always read with the one before it.
        let pairs = all.iter().take(all.len() - 1).map(|one| sum(&one.features));
        let first = all.first().map(|one| sum(&one.features)).unwrap();
        let best = pairs.fold(first, f32::max);
        let (found, places) = strongest(&BUILT_IN, text).unwrap();
        assert!(found >= best - 0.01, "{found} {best}");
        assert!(places.into_iter().all(|at| text.get(at).is_some()));
    }
}
