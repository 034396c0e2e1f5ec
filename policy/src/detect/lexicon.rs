//! Words by what they are about.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// The words, one class a line; lines that begin with a colon are other lists.
const TEXT: &str = include_str!("lexicon.txt");

/// The words, ready to be looked up.
#[derive(Debug, Default)]
pub(super) struct Lexicon {
    /// What a word is about.
    classes: BTreeMap<&'static str, Vec<&'static str>>,
    /// The word that these letters, sorted, are the letters of.
    anagrams: BTreeMap<String, &'static str>,
    /// Words that are spelled as they should be.
    known: BTreeSet<&'static str>,
    /// Words of English that decoded text is known by.
    english: BTreeSet<&'static str>,
    /// Words that make a sentence of a name.
    pub(super) joints: BTreeSet<&'static str>,
    /// Words in the names of tools that change something.
    pub(super) writing: BTreeSet<&'static str>,
    /// Words in the names of tools that only read.
    pub(super) reading: BTreeSet<&'static str>,
    /// Members of definitions whose names say nothing.
    pub(super) keys: BTreeSet<&'static str>,
}

pub(super) static LEXICON: LazyLock<Lexicon> = LazyLock::new(Lexicon::read);

/// Ends that a word may have more than the one that is looked up.
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

    /// What a word is about, in whichever form it comes.
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

    /// Whether it is about anything as it stands.
    pub(super) fn has(&self, word: &str) -> bool {
        self.classes.contains_key(word)
    }

    /// The word that was meant by one whose letters were swapped.
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

    /// How many of the words of a text are English, and how many there are.
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

    /// The English words.
    pub(super) fn words(&self) -> impl Iterator<Item = &'static str> {
        self.english.iter().copied()
    }

    /// Whether a word is English.
    pub(super) fn is_english(&self, word: &str) -> bool {
        self.english.contains(word)
    }
}

fn sorted(word: &str) -> String {
    let mut bytes: Vec<char> = word.chars().collect();
    bytes.sort_unstable();
    bytes.into_iter().collect()
}
