//! Finds in the texts of a form what [`super::names`] knows, and whether a sentence asks its reader for it.

use policy_core::base::work::WorkBudget;

use super::names::{
    ARTICLES, ASKED_OF, ASKING, ASKING_WITHIN, CONDITIONS, FieldSubject, FieldSubjects, LOOKS,
    NOT_BEFORE, NOUNS, OWNERS, PERSONS, POSTAL, PROPERTIES, SubjectNames, USERS, VAGUE, WRITTEN,
};
use super::wording::{EACH_BYTE, Word, looks, plain, words};

/// Fewest bytes of a name that is joined from words of several letters: `p i n` is a name, `P in` is not. Bytes and not
/// letters, because only short names in Latin letters are words by chance as well; three letters of another alphabet
/// are enough.
const JOINED: usize = 6;
/// Most letters of a text that counts as a name although it has more than [`NAME`] words.
const NAME_LETTERS: usize = 16;
/// Most words of a text that counts as a name irrespective of its letters.
const NAME: usize = 3;

/// Most words between one of [`ASKING`] or [`USERS`] and the name of what is asked for.
const BETWEEN: usize = 5;

/// Units per word for comparing the names that begin with it.
const EACH_NAME: usize = 48;

/// What a PIN is in a form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PinMeaning {
    /// A personal identification number.
    Secret,
    /// A postal index number, as in India.
    PostalCode,
}

/// A text split into words, in all forms that are compared.
pub(super) struct TextReadings {
    /// The text as written, and with letters in place of `@` and `$` if it has any.
    readings: Vec<Wording>,
}

/// One reading of a text.
struct Wording {
    words: Vec<Word>,
    /// Words as written, normalized by [`plain`].
    written: Vec<String>,
    /// Words by their visual appearance, if any of them is not ASCII.
    looks: Option<Vec<String>>,
}

/// A subject that a text names, and the word with which its name begins.
struct NamedSubject {
    at: usize,
    subject: FieldSubject,
}

impl TextReadings {
    /// Splits a text into words; if `budget` is exhausted, covers only the words before that.
    pub(super) fn of(text: &str, budget: &WorkBudget) -> Self {
        // The one name that begins with a word of one letter.
        let joined = ["e-mail", "E-mail", "E-Mail"].iter().any(|name| text.contains(name));
        let text =
            if joined { &*text.replace("-mail", "mail").replace("-Mail", "mail") } else { text };
        let mut readings = vec![Wording::of(text, budget)];
        if text.contains(['@', '$']) {
            readings.push(Wording::of(&text.replace('@', "a").replace('$', "s"), budget));
        }
        Self { readings }
    }

    /// Whether the text is short enough to be a name.
    pub(super) fn is_name(&self) -> bool {
        self.readings.iter().any(|reading| {
            let letters: usize = reading.words.iter().map(|word| word.letters()).sum();
            reading.words.len() <= NAME || letters <= NAME_LETTERS
        })
    }

    /// Whether all words of the text are in [`VAGUE`].
    pub(super) fn is_vague(&self) -> bool {
        let of_reading =
            |reading: &Wording| reading.words.iter().all(|word| VAGUE.contains(&word.text()));
        self.readings.iter().any(of_reading)
    }

    pub(super) fn is_postal(&self) -> bool {
        let mut words = self.readings.iter().flat_map(|reading| &reading.words);
        words.any(|word| POSTAL.contains(&word.text()))
    }

    /// Whether the text is a question about an illness or the like of a person, which yes or no answers.
    pub(super) fn asks_of_health(&self) -> bool {
        let has = |known: &[&str]| {
            let mut words = self.readings.iter().flat_map(|reading| &reading.words);
            words.any(|word| known.contains(&word.text()))
        };
        has(&CONDITIONS) && (self.is_name() || has(&ASKED_OF))
    }

    /// What the text names.
    pub(super) fn names(&self, pin: PinMeaning) -> FieldSubjects {
        let mut all = FieldSubjects::default();
        for reading in &self.readings {
            all.join(reading.subjects(pin).into_iter().map(|one| one.subject).collect());
            for (words, names) in reading.forms() {
                all.join(reading.alone(words, names));
            }
        }
        all
    }

    /// What a sentence of the text asks the reader for.
    pub(super) fn solicits(&self) -> FieldSubjects {
        let of_reading = |reading: &Wording| -> Vec<_> {
            let named = reading.subjects(PinMeaning::Secret).into_iter();
            named.filter(|one| reading.solicits(one)).map(|one| one.subject).collect()
        };
        self.readings.iter().flat_map(of_reading).collect()
    }
}

impl Wording {
    fn of(text: &str, budget: &WorkBudget) -> Self {
        let words = words(text, budget);
        let bytes: usize = words.iter().map(|word| word.text().len()).sum();
        let odd = words.iter().any(|word| !word.text().is_ascii());
        let forms = bytes.saturating_mul(if odd { EACH_BYTE } else { 1 });
        if !budget.spend(words.len().saturating_mul(EACH_NAME).saturating_add(forms)) {
            return Self { words, written: Vec::new(), looks: None };
        }
        let written = words.iter().map(|word| plain(word.text())).collect();
        let looks = odd.then(|| words.iter().map(|word| plain(&looks(word.text()))).collect());
        Self { words, written, looks }
    }

    /// The words in each form, with the names in the same form.
    fn forms(&self) -> impl Iterator<Item = (&[String], &'static SubjectNames)> {
        let looks = self.looks.as_deref().map(|looks| (looks, &*LOOKS));
        std::iter::once((&*self.written, &*WRITTEN)).chain(looks)
    }

    /// What the words name, apart from words that count only alone.
    fn subjects(&self, pin: PinMeaning) -> Vec<NamedSubject> {
        let mut found = Vec::new();
        for (words, names) in self.forms() {
            for at in 0..words.len() {
                self.begins(WordsAt { words, at, names }, pin, &mut found);
                self.has_parts(WordsAt { words, at, names }, &mut found);
            }
            if words.iter().any(|word| !word.is_ascii()) {
                let whole = words.concat();
                let at = words.len();
                found.extend(within(&whole, names).map(|subject| NamedSubject { at, subject }));
            }
        }
        found
    }

    /// Adds the names that begin with the word at `at`.
    fn begins(&self, here: WordsAt<'_>, pin: PinMeaning, found: &mut Vec<NamedSubject>) {
        let WordsAt { words, at, names } = here;
        let mut name = String::new();
        for (n, word) in words.iter().enumerate().skip(at) {
            name.push_str(word);
            let from = names.names.partition_point(|(known, _)| *known < name);
            let known = names.names.get(from..).unwrap_or_default();
            let pieces = words.get(at..=n).unwrap_or_default();
            let joins = pieces.len() == 1
                || name.len() >= JOINED
                || name.contains(|c: char| c.is_ascii_digit())
                || pieces.iter().all(|piece| piece.chars().count() == 1);
            let other = self.is_other(n + 1)
                || self.is_property_of(at)
                || pin == PinMeaning::PostalCode && names.pins.contains(&name)
                || names.keys.contains(&name) && self.is_behind_noun(at);
            if let Some((_, subject)) = known.first().filter(|(first, _)| *first == name)
                && joins
                && !other
            {
                found.push(NamedSubject { at, subject: *subject });
            }
            let continues = |(known, _): &(String, FieldSubject)| {
                known.len() > name.len() && known.starts_with(&name)
            };
            if !known.iter().take(2).any(continues) {
                return;
            }
        }
    }

    /// Adds the names that are parts of the word at `at`.
    fn has_parts(&self, here: WordsAt<'_>, found: &mut Vec<NamedSubject>) {
        let WordsAt { words, at, names } = here;
        let Some(word) = words.get(at).filter(|word| word.len() > JOINED) else { return };
        let is_other = |rest: &str| {
            rest.is_empty() && self.is_other(at + 1)
                || NOT_BEFORE.iter().any(|other| rest.starts_with(&plain(other)))
        };
        for (part, subject) in &names.parts {
            let rest = word.find(&**part).and_then(|from| word.get(from + part.len()..));
            if rest.is_some_and(|rest| !is_other(rest)) && !self.is_property_of(at) {
                found.push(NamedSubject { at, subject: *subject });
            }
        }
    }

    /// Whether the word at `at` gives a preceding name another meaning.
    fn is_other(&self, at: usize) -> bool {
        self.words.get(at).is_some_and(|word| NOT_BEFORE.contains(&word.text()))
    }

    /// Whether the word at `at` follows one of [`NOUNS`].
    fn is_behind_noun(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|before| self.words.get(before));
        before.is_some_and(|word| NOUNS.contains(&word.text()))
    }

    /// Whether one of [`PROPERTIES`] of what is at `at` stands before it.
    fn is_property_of(&self, at: usize) -> bool {
        let before = self.words.get(..at).unwrap_or_default().iter().rev().map(|word| word.text());
        let mut before = before.skip_while(|word| ARTICLES.contains(word));
        before.next() == Some("of") && before.next().is_some_and(|word| PROPERTIES.contains(&word))
    }

    /// Whether the words around what is named ask the reader for it.
    fn solicits(&self, named: &NamedSubject) -> bool {
        let at = named.at;
        let asks = |words: &[Word], asking: &[&str]| {
            words.iter().any(|word| asking.contains(&word.text()))
        };
        let before = self.words.get(at.saturating_sub(BETWEEN)..at).unwrap_or_default();
        if asks(before, ASKING) {
            return true;
        }
        let until = at.saturating_add(BETWEEN).min(self.words.len());
        let around = self.words.get(at.saturating_sub(BETWEEN)..until).unwrap_or_default();
        let is_personal = matches!(named.subject, FieldSubject::Personal(_));
        // A name within other letters has no place among the words.
        let whole = || self.words.iter().map(|word| word.text()).collect::<String>();
        is_personal && asks(around, USERS)
            || at == self.words.len() && {
                let whole = whole();
                ASKING_WITHIN.iter().any(|asking| whole.contains(asking))
            }
    }

    /// What the words name that count only without others, or beside an owner.
    fn alone(&self, words: &[String], names: &SubjectNames) -> FieldSubjects {
        let of = |word: &String| {
            let from = names.alone.partition_point(|(known, _)| known < word);
            let known = names.alone.get(from..).unwrap_or_default().iter();
            let word = word.clone();
            known.take_while(move |(known, _)| *known == word)
        };
        let spelt = words.iter().all(|word| word.chars().count() == 1);
        if spelt && words.len() > 1 {
            return of(&words.concat()).map(|(_, subject)| *subject).collect();
        }
        let are_all = |owners: &[&str]| {
            let is_owner =
                |at: usize| self.words.get(at).is_some_and(|word| owners.contains(&word.text()));
            (0..words.len()).all(|at| {
                is_owner(at) || words.get(at).is_some_and(|word| of(word).next().is_some())
            })
        };
        let (secret, personal) = (are_all(OWNERS), are_all(PERSONS));
        if !secret && !personal {
            return FieldSubjects::default();
        }
        let fits = |(_, subject): &&(String, FieldSubject)| match subject {
            FieldSubject::Secret => secret,
            FieldSubject::Personal(_) => personal,
        };
        words.iter().flat_map(of).filter(fits).map(|(_, subject)| *subject).collect()
    }
}

/// What the names within `text` stand for, in scripts that do not separate words with blanks.
fn within<'a>(text: &'a str, names: &'a SubjectNames) -> impl Iterator<Item = FieldSubject> + 'a {
    let at = |(at, first): (usize, char)| {
        let begins = |(name, _): &(String, FieldSubject)| name.chars().next();
        let from = names.within.partition_point(|name| begins(name) < Some(first));
        let known = names.within.get(from..).unwrap_or_default().iter();
        let known = known.take_while(move |name| begins(name) == Some(first));
        let rest = text.get(at..).unwrap_or_default();
        known.filter(move |(name, _)| rest.starts_with(&**name)).map(|(_, subject)| *subject)
    };
    text.char_indices().flat_map(at)
}

/// A place among the words of a text in one form, and the names in the same form.
#[derive(Clone, Copy)]
struct WordsAt<'a> {
    words: &'a [String],
    at: usize,
    names: &'a SubjectNames,
}
