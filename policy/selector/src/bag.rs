//! The words of a text with what each of them counts, before anything is known of their meaning. Training and searching
//! share this.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::text::{stem, words};
use crate::tool::{FIELDS, FieldWords, ToolText};

/// Most words of a query.
pub const MAX_QUERY_WORDS: usize = 64;
/// Most words of a description that its direction is made of: what a tool does is said at the beginning.
const DIRECTING_WORDS: usize = 60;
/// What the fields count in the direction of a tool, in the order of [`crate::tool::Field::ALL`].
const DIRECTION: [f32; FIELDS] = [3.0, 1.0, 1.0, 0.5, 0.0, 0.6];
/// What a word counts in a query that is there for the grammar or the manners.
const FILLER_WEIGHT: f32 = 0.15;
/// Fewest and most characters of a part of a word.
const PART_CHARS: std::ops::RangeInclusive<usize> = 3..=4;
/// Most parts of a word.
const MAX_PARTS: usize = 16;

const FILLERS: &str = "the a an of to in for and or on with is are be by this that it its as from at if can \
    will which you your i my me do does what how please would could want need like have has s t";

/// Stems of words that are there for the grammar or the manners.
static FILLER_STEMS: LazyLock<BTreeSet<String>> =
    LazyLock::new(|| FILLERS.split_whitespace().map(stem).collect());

/// What a word of a query counts, besides its rarity.
#[must_use]
pub fn weight_in_query(word: &str) -> f32 {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    if is_number || FILLER_STEMS.contains(word) { FILLER_WEIGHT } else { 1.0 }
}

/// The distinct words of a query, in their order.
#[must_use]
pub fn query_words(query: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let words = words(query, MAX_QUERY_WORDS);
    words.into_iter().filter(|word| seen.insert(word.clone())).collect()
}

/// The words of a tool that its direction is made of, with what each counts. A field's words share what the field
/// counts, so that a longer text does not outweigh the others.
#[must_use]
pub fn tool_words(tool: &ToolText) -> Vec<(String, f32)> {
    directing(&tool.words())
}

pub(crate) fn directing(fields: &FieldWords) -> Vec<(String, f32)> {
    let mut bag: Vec<(String, f32)> = Vec::new();
    for (words, weight) in fields.0.iter().zip(DIRECTION).filter(|(_, weight)| *weight > 0.0) {
        let words = words.get(..DIRECTING_WORDS).unwrap_or(words);
        #[expect(clippy::cast_precision_loss, reason = "a field has few words")]
        let each = weight / (words.len() as f32).sqrt();
        for word in words {
            match bag.iter_mut().find(|(known, _)| known == word) {
                Some((_, sum)) => *sum += each,
                None => bag.push((word.clone(), each)),
            }
        }
    }
    bag
}

/// The parts of a word, which stand for it if it is not in the table. A number has none.
pub fn parts(word: &str) -> Vec<String> {
    if word.bytes().all(|byte| byte.is_ascii_digit()) {
        return Vec::new();
    }
    let framed: Vec<char> = ['<'].into_iter().chain(word.chars()).chain(['>']).collect();
    let parts = PART_CHARS.flat_map(|length| framed.windows(length)).take(MAX_PARTS);
    parts.map(|part| part.iter().collect()).collect()
}
