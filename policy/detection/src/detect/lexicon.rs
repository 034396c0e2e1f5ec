//! A lexicon of words by class, for the features, the rules and the recognition of decoded text.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// The source of the lexicon, one class per line; lines that begin with a colon are other lists.
const TEXT: &str = include_str!("lexicon.txt");

/// The lexicon in parsed form.
#[derive(Debug, Default)]
pub(super) struct Lexicon {
    /// The classes of each word.
    classes: BTreeMap<&'static str, Vec<&'static str>>,
    /// Words by their sorted letters.
    anagrams: BTreeMap<String, &'static str>,
    /// Correctly spelled words, which are never repaired.
    known: BTreeSet<&'static str>,
    /// English words, by which decoded text is recognised.
    english: BTreeSet<&'static str>,
    /// Function words by which a name is recognised as a sentence.
    pub(super) joints: BTreeSet<&'static str>,
    /// Words in the names of tools that write.
    pub(super) writing: BTreeSet<&'static str>,
    /// Words in the names of tools that read.
    pub(super) reading: BTreeSet<&'static str>,
    /// Standard member names of definitions, which are not read as text.
    pub(super) keys: BTreeSet<&'static str>,
}

pub(super) static LEXICON: LazyLock<Lexicon> = LazyLock::new(Lexicon::read);

/// Suffixes that are stripped to look up a word.
const ENDS: [&str; 5] = ["'s", "s", "ing", "ed", "ly"];

impl Lexicon {
    fn read() -> Self {
        let mut lexicon = Self::default();
        let (mut common, mut order) = (Vec::new(), Vec::new());
        let lines = TEXT.lines().filter(|line| !line.starts_with('#'));
        for (name, words) in lines.filter_map(|line| line.split_once(' ')) {
            let words = words.split_whitespace();
            match name {
                ":common" => common.extend(words),
                ":eng" => lexicon.english.extend(words),
                ":realword" => lexicon.known.extend(words),
                ":func2" => lexicon.joints.extend(words),
                ":idw" => lexicon.writing.extend(words),
                ":idr" => lexicon.reading.extend(words),
                ":schema_keys" => lexicon.keys.extend(words),
                class => {
                    for word in words {
                        let classes = lexicon.classes.entry(word).or_default();
                        if classes.is_empty() {
                            order.push(word);
                        }
                        if !classes.contains(&class) {
                            classes.push(class);
                        }
                    }
                }
            }
        }
        let plain = |word: &&&'static str| word.bytes().all(|byte| byte.is_ascii_alphabetic());
        for word in common.iter().chain(order.iter().filter(plain)).filter(|w| w.len() >= 4) {
            lexicon.anagrams.entry(sorted(word)).or_insert(word);
        }
        lexicon.known.extend(common.iter().chain(&order));
        lexicon.english.extend(common.iter().chain(order.iter().filter(|word| word.is_ascii())));
        lexicon
    }

    /// The classes of a word, also in an inflected form; empty if it has none.
    pub(super) fn classes(&self, word: &str) -> &[&'static str] {
        if let Some(classes) = self.classes.get(word) {
            return classes;
        }
        for end in ENDS {
            let Some(stem) = word.strip_suffix(end).filter(|stem| stem.len() >= 3) else {
                continue;
            };
            if let Some(classes) = self.classes.get(stem) {
                return classes;
            }
            if matches!(end, "ing" | "ed")
                && let Some(classes) = self.classes.get(format!("{stem}e").as_str())
            {
                return classes;
            }
        }
        &[]
    }

    /// The classes of the words in a run of Chinese or Japanese, which has no blanks; `None` for any other word. The
    /// longest word of at most four characters counts at each place.
    pub(super) fn within(&self, run: &str) -> Option<Vec<&[&'static str]>> {
        let dense = |c: char| matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}');
        if run.is_ascii() || !run.contains(dense) {
            return None;
        }
        let starts: Vec<usize> = run.char_indices().map(|(at, _)| at).chain([run.len()]).collect();
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(from) = starts.get(at) {
            let word = |length: usize| {
                let part = starts.get(at + length).and_then(|end| run.get(*from..*end))?;
                Some((length, self.classes.get(part)?))
            };
            let longest = (2..=4).rev().find_map(word);
            found.extend(longest.map(|(_, classes)| classes.as_slice()));
            at += longest.map_or(1, |(length, _)| length);
        }
        Some(found)
    }

    /// Whether a word has a class in exactly this form.
    pub(super) fn has(&self, word: &str) -> bool {
        self.classes.contains_key(word)
    }

    /// The intended word of one with transposed letters; `None` if it needs no repair or has none.
    pub(super) fn repaired(&self, word: &str) -> Option<&'static str> {
        let letters = word.len() >= 4 && word.bytes().all(|byte| byte.is_ascii_alphabetic());
        if !letters || self.known.contains(word) {
            return None;
        }
        let meant = self.anagrams.get(&sorted(word)).copied().filter(|meant| *meant != word)?;
        let ends = |text: &str| (text.bytes().next(), text.bytes().last());
        let (first, last) = ends(meant);
        (first == ends(word).0 || last == ends(word).1).then_some(meant)
    }

    /// Number of English words in a text, and of all words.
    pub(super) fn english(&self, text: &str) -> (usize, usize) {
        let (mut hit, mut all) = (0, 0);
        let mut lower = String::new();
        let letter = |c: char| c.is_ascii_alphabetic() || c == '\'';
        for word in text.split(|c| !letter(c)).filter(|word| word.len() >= 2) {
            all += 1;
            lower.clear();
            lower.extend(word.chars().map(|c| c.to_ascii_lowercase()));
            hit += usize::from(self.english.contains(lower.as_str()));
        }
        (hit, all)
    }

    /// All English words of the lexicon.
    pub(super) fn words(&self) -> impl Iterator<Item = &'static str> {
        self.english.iter().copied()
    }

    /// Whether a word is an English word of the lexicon.
    pub(super) fn is_english(&self, word: &str) -> bool {
        self.english.contains(word)
    }
}

fn sorted(word: &str) -> String {
    let mut bytes: Vec<char> = word.chars().collect();
    bytes.sort_unstable();
    bytes.into_iter().collect()
}
