//! Splits texts and names into words: camel, snake and kebab case, without accents and invisible characters, and with
//! digits and look-alike letters read as the letters that they stand for.

use policy_core::base::hidden::Hidden;
use policy_core::base::work::WorkBudget;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;
use unicode_security::confusable_detection::skeleton;

/// Units per byte of a text for splitting it into words.
pub(super) const EACH_BYTE: usize = 32;
/// Units per word for comparing it with all known words.
pub(super) const EACH_WORD: usize = 96;

/// A word that is searched for.
pub(super) struct KnownWord {
    text: &'static str,
    letters: usize,
    /// Skeleton of the word (UTS 39).
    looks: String,
}

impl KnownWord {
    pub(super) fn new(text: &'static str) -> Self {
        let (letters, looks) = (text.chars().count(), looks(text));
        Self { text, letters, looks }
    }
}

/// Normalizes a word: removes combining marks, and replaces digits and letters by the letters they are written for.
pub(super) fn plain(text: &str) -> String {
    let letter = |c: char| match c {
        '0' | 'ø' => 'o',
        '1' | 'l' | 'ı' | 'ł' => 'i',
        '3' => 'e',
        '4' => 'a',
        '5' => 's',
        'đ' | 'ð' => 'd',
        other => other,
    };
    if text.is_ascii() {
        return text.chars().map(letter).collect();
    }
    text.nfkd().filter(|c| !is_combining_mark(*c)).map(letter).collect()
}

/// A word of an inspected text.
pub(super) struct Word {
    text: String,
    letters: usize,
    /// Skeleton of the word, if it has characters other than lower-case ASCII letters.
    looks: Option<String>,
}

impl Word {
    /// Returns `None` if the budget is exhausted.
    fn new(text: String, budget: &WorkBudget) -> Option<Self> {
        let odd = !text.bytes().all(|byte| byte.is_ascii_lowercase());
        let skeleton = if odd { EACH_WORD + text.len().saturating_mul(EACH_BYTE) } else { 0 };
        if !budget.spend(EACH_WORD + skeleton) {
            return None;
        }
        let looks = odd.then(|| looks(&text));
        Some(Self { letters: text.chars().count(), text, looks })
    }

    /// The number of its letters.
    pub(super) const fn letters(&self) -> usize {
        self.letters
    }

    /// The word in lower case.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the word equals `known` exactly.
    pub(super) fn is(&self, known: &str) -> bool {
        self.text == known
    }

    /// Whether the word equals `known`, treating confusable letters as equal.
    pub(super) fn reads_like(&self, known: &KnownWord) -> bool {
        let looks_so = || {
            self.letters == known.letters
                && self.looks.as_ref().is_some_and(|looks| *looks == known.looks)
        };
        self.text == known.text || looks_so()
    }
}

/// Normalizes a member name for comparison; names that a reader could confuse have the same form.
pub(super) fn spelling(name: &str, budget: &WorkBudget) -> String {
    words(name, budget).iter().map(|word| looks(&word.text)).collect()
}

/// The skeleton of a word, equal for words that look alike (UTS 39).
pub(super) fn looks(text: &str) -> String {
    skeleton(text).collect::<String>().to_lowercase()
}

/// The words of a text or name, in lower case: `apiKey`, `api_key` and `API key` have the same two. If `budget` is
/// exhausted, returns the words before that.
pub(super) fn words(text: &str, budget: &WorkBudget) -> Vec<Word> {
    let (mut words, mut word, mut before_lower) = (Vec::new(), String::new(), false);
    if !budget.spend(text.len().saturating_mul(EACH_BYTE)) {
        return words;
    }
    for c in text.nfkc().filter(|c| Hidden::of(*c).is_none()) {
        let ends = !c.is_alphanumeric() || c.is_uppercase() && before_lower;
        if ends && !word.is_empty() {
            let Some(word) = Word::new(std::mem::take(&mut word), budget) else { return words };
            words.push(word);
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        before_lower = c.is_lowercase();
    }
    words.extend((!word.is_empty()).then(|| Word::new(word, budget)).flatten());
    words
}
