//! Does a text give orders to a model? A detector in layers, the same for whoever asks.
//!
//! Every string is seen as a person would see it ([`Trick`]s are found on the way) and decoded where it
//! was encoded; then it is read in stretches of some dozen words. Each stretch has a score: of a linear
//! model over what its words are about, and of rules by intent. The text is as suspicious as its most
//! suspicious stretch, so that an order does not hide in a long description (control C12, threats
//! T1001, T1402 and T1501).
//!
//! The weights are made by `tests/detect` and stand in `model.bin`; how well it does is in
//! `docs/detection.md`. All of it is linear in the text.

mod lexicon;
mod normal;
mod decode;
mod rules;
mod segment;
mod suspects;
mod tokens;
mod features;
mod harmless;
mod strings;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

use crate::json::{Bounds, Document, Value};
use crate::work::Budget;

use decode::Code;
pub use features::BUCKETS;
use features::Hit;
use lexicon::LEXICON;
pub use normal::Trick;
use rules::{On, RULES};
use strings::Slot;
pub use tokens::Token;

/// The weights: for each bucket a signed byte, then the bias; in units of 1/32.
static MODEL: &[u8] = include_bytes!("detect/model.bin");
/// What one unit of a weight is worth.
const UNIT: f32 = 1.0 / 32.0;
/// How much the rules count beside the model, and the most they can.
const RULES_COUNT: f32 = 0.6;
const RULES_MOST: f32 = 8.0;
/// Most words of one definition that are looked at.
const WORDS: usize = 50_000;
/// What a trick says by itself.
const TRICK: f32 = 8.0;
/// Words around a stretch in which a rule still counts for it.
const BEFORE: usize = 4;
const BEHIND: usize = 12;
/// How many words before a stretch a rule that reaches into it can begin.
const NEAR: usize = 4;
/// From this score on a text is taken to give orders: so many of a hundred ordinary definitions reach
/// it as `docs/detection.md` says.
pub const THRESHOLD: f32 = 1.3;

/// A text as it was read.
#[derive(Debug)]
pub struct Reading {
    /// The stretches of text, decoded ones too.
    pub windows: Vec<Window>,
    /// Ways in which the text was made to look otherwise, and where.
    pub tricks: Vec<(Trick, String)>,
    /// What an encoding says by itself, whatever the words: the most of all, and where.
    encoded: Option<(f32, &'static str, String)>,
    /// The words of the whole text as it stands.
    pub tokens: Vec<Token>,
    /// There was more than is looked at.
    pub cut: bool,
}

/// A stretch of text.
#[derive(Debug)]
pub struct Window {
    /// From which word to which.
    pub words: (usize, usize),
    /// Buckets of its features, each once.
    pub features: Vec<u16>,
    /// What the rules say, from 0 to 8.
    pub rules: f32,
    /// In words, what the rule says that says most.
    note: &'static str,
    /// Where it begins.
    at: String,
}

/// How suspicious a text is, and why.
#[derive(Debug)]
pub struct Score {
    /// From [`THRESHOLD`] on it is taken to give orders.
    pub value: f32,
    /// Where, as a JSON Pointer.
    pub at: String,
    /// Why, in our words.
    pub note: &'static str,
}

/// The weights of a model.
#[derive(Clone, Debug)]
pub struct Model {
    /// One for each bucket.
    pub weights: Vec<f32>,
    /// What is added to each stretch.
    pub bias: f32,
}

impl Model {
    /// The model that is compiled in.
    #[must_use]
    pub fn built_in() -> &'static Self {
        static BUILT_IN: LazyLock<Model> = LazyLock::new(|| Model::parse(MODEL));
        &BUILT_IN
    }

    /// A model from the bytes it is kept as.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let weight = |byte: &u8| f32::from(byte.cast_signed()) * UNIT;
        let weights: Vec<f32> = bytes.iter().take(BUCKETS).map(weight).collect();
        let bias = bytes.get(BUCKETS..).and_then(|bytes| bytes.try_into().ok());
        Self {
            weights,
            bias: bias.map_or(0.0, |bytes| f32::from(i16::from_le_bytes(bytes)) * UNIT),
        }
    }

    /// The bytes it is kept as.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let unit = |weight: &f32, most: f32| (weight / UNIT).round().clamp(-most, most);
        #[expect(clippy::cast_possible_truncation, reason = "clamped before")]
        let byte = |weight: &f32| (unit(weight, 127.0) as i8).cast_unsigned();
        let mut out: Vec<u8> = self.weights.iter().map(byte).collect();
        #[expect(clippy::cast_possible_truncation, reason = "clamped before")]
        let bias = unit(&self.bias, 32_767.0) as i16;
        out.extend(bias.to_le_bytes());
        out
    }

    /// What it says of one stretch.
    #[must_use]
    pub fn score(&self, window: &Window) -> f32 {
        let weight =
            |feature: &u16| self.weights.get(usize::from(*feature)).copied().unwrap_or(0.0);
        self.bias + window.features.iter().map(weight).sum::<f32>()
    }
}

impl Reading {
    /// Reads a definition, or any other value.
    #[must_use]
    pub fn of(definition: Value<'_>) -> Self {
        Reader::new(definition).read(definition)
    }

    /// How suspicious it is to `model`, tricks included.
    #[must_use]
    pub fn score(&self, model: &Model) -> Score {
        let score = self.orders(model);
        let trick = TRICK + 0.2 * score.value.min(0.0);
        match self.tricks.first().filter(|_| trick > score.value) {
            Some((found, at)) => Score { value: trick, at: at.clone(), note: found.note() },
            None => score,
        }
    }

    /// How much it looks like orders to `model`.
    #[must_use]
    pub fn orders(&self, model: &Model) -> Score {
        let local = |window: &Window| model.score(window) + RULES_COUNT * window.rules;
        let scored = self.windows.iter().map(|window| (local(window), window));
        let best = scored.max_by(|(one, _), (other, _)| one.total_cmp(other));
        let (value, at, note) = best
            .map_or((-20.0, "", ""), |(score, window)| (score, window.at.as_str(), window.note));
        if let Some((bonus, note, at)) = &self.encoded
            && bonus + 0.2 * value.min(0.0) > value
        {
            let value = bonus + 0.2 * value.min(0.0);
            return Score { value, at: at.clone(), note };
        }
        let note = if note.is_empty() { "reads like orders to a model" } else { note };
        Score { value, at: at.to_owned(), note }
    }
}

/// Most stretches of suspicious lines that are decoded, each as long as one text is at most.
const SUSPECTS: usize = 16;
/// What normalising a text costs for each byte of what it becomes, in units.
const NORMALISED: usize = 16;
/// What decoding a stretch in every way costs for each byte of it, in units.
const DECODED: usize = 128;

/// What else a text says: as a person would see it, where that is not how it is written, and decoded
/// where it was encoded.
/// What it costs is taken from `budget`.
pub(crate) fn readings(text: &str, budget: &Budget) -> Vec<String> {
    let mut views = Vec::new();
    let normal = if is_undisguised(text) {
        Cow::Borrowed(text)
    } else {
        // Characters of compatibility become several: the cost is that of what they become.
        if !budget.spend(normal::expanded(text).saturating_mul(NORMALISED)) {
            return Vec::new();
        }
        let normal = normal::normal(text);
        views.extend(normal.hidden.into_iter().map(|text| (Code::Hidden, text)));
        Cow::Owned(normal.text)
    };
    let suspects = suspects::of(&normal);
    let mut rest = suspects.as_str();
    for _ in 0..SUSPECTS {
        let (part, more) = rest.split_at(rest.floor_char_boundary(decode::LONGEST));
        if !part.is_empty() {
            if !budget.spend(part.len().saturating_mul(DECODED)) {
                return Vec::new();
            }
            decode::views(part, &mut views);
        }
        rest = more;
    }
    let views = views.into_iter().take(decode::TRIED);
    let mut all: Vec<String> = Vec::new();
    for (code, text) in views {
        // Where every letter stood alone, words may not have stood apart.
        all.extend((code == Code::Spaced).then(|| segment::of(&text)));
        all.push(text);
    }
    if *normal != *text {
        all.push(normal.into_owned());
    }
    all
}

/// Whether nothing in a text is a letter in disguise: where letters of another script look like Latin
/// ones, they stand beside Latin ones.
fn is_undisguised(text: &str) -> bool {
    let odd = |byte: u8| byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r') || byte == 0x7f;
    if text.is_ascii() {
        return !text.bytes().any(odd);
    }
    let mut before = ' ';
    text.chars().all(|c| {
        let other = |c: char| matches!(c, '\u{370}'..='\u{58f}');
        let mixed =
            other(c) && before.is_ascii_alphabetic() || c.is_ascii_alphabetic() && other(before);
        before = c;
        !mixed && (is_plain(c) || other(c) || is_foreign(c))
    })
}

/// Whether it is a letter, or a mark, of a script in which none looks like a Latin one.
const fn is_foreign(c: char) -> bool {
    matches!(c, '\u{5d0}'..='\u{5ea}' | '\u{60c}'..='\u{6ff}' | '\u{900}'..='\u{dff}' | '\u{e01}'..='\u{e5b}' | '\u{10a0}'..='\u{10ff}')
}

/// Whether a character is none that words are disguised with: ASCII, letters with accents, common
/// punctuation, signs, pictures, and scripts in which no letter looks Latin.
const fn is_plain(c: char) -> bool {
    matches!(c,
        ' '..='~' | '\t' | '\n' | '\r'
        | '\u{a1}'..='\u{ac}' | '\u{ae}'..='\u{17f}'
        | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}' | '\u{20a0}'..='\u{20bf}'
        | '\u{2190}'..='\u{23ff}' | '\u{2500}'..='\u{27bf}'
        | '\u{3000}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}'
        | '\u{ff01}' | '\u{ff08}' | '\u{ff09}' | '\u{ff0c}' | '\u{ff1a}' | '\u{ff1b}' | '\u{ff1f}'
        | '\u{1f300}'..='\u{1faff}')
}

/// Whether a text by itself is taken to give orders.
#[must_use]
pub fn is_order(text: &str) -> bool {
    let mut quoted = Vec::new();
    crate::json::write_string(&mut quoted, text);
    // INVARIANT: what is written as a string is one.
    let document = Document::parse(quoted.into(), &Bounds::ANSWER);
    let score = |document: &Document| Reading::of(document.root()).orders(Model::built_in()).value;
    document.is_ok_and(|document| score(&document) >= THRESHOLD)
}

/// Whether a tool of this name changes or sends something, by the words of its name.
pub(crate) fn names_a_change(name: &str) -> bool {
    tokens::parts(name).any(|part| LEXICON.writing.contains(part.to_lowercase().as_str()))
}

/// The words of a text, for those who make a model.
#[must_use]
pub fn words(text: &str, name: &str) -> Vec<Token> {
    let (tokens, _) =
        tokens::of(&normal::normal(text).text, &name.to_lowercase(), &BTreeSet::new());
    tokens.into_iter().map(|token| LEXICON.repaired(&token).map_or(token, Into::into)).collect()
}

/// The rules, compiled. One that does not compile finds nothing; `the_rules_compile` keeps that from
/// happening. Each for itself: an automaton of all of them would have more states than it can keep.
static COMPILED: LazyLock<Vec<Regex>> = LazyLock::new(|| compiled().unwrap_or_default());

/// The words that a rule looks for are ASCII, or else only its boundaries are: with those of all
/// scripts no automaton could be built that reads a byte at a time.
fn bytewise(rule: &rules::Rule) -> String {
    if rule.pattern.is_ascii() {
        format!("(?-u){}", rule.pattern)
    } else {
        rule.pattern.replace(r"\b", r"(?-u:\b)")
    }
}

fn compiled() -> Result<Vec<Regex>, regex::Error> {
    let one = |rule: &rules::Rule| {
        RegexBuilder::new(&bytewise(rule)).size_limit(1 << 24).dfa_size_limit(1 << 20).build()
    };
    RULES.iter().map(one).collect()
}

/// Reads one definition.
struct Reader {
    name: String,
    parameters: BTreeSet<String>,
    about: BTreeSet<&'static str>,
    agreement: &'static str,
    reading: Reading,
    /// Which word of the main text begins which string.
    places: Vec<(usize, String)>,
    /// Words that change case with every letter, in lower case.
    alternating: BTreeSet<String>,
    repaired: usize,
}

impl Reader {
    fn new(definition: Value<'_>) -> Self {
        let text = |key: &str| definition.get(key).and_then(Value::as_str).unwrap_or_default();
        let name = text("name").into_owned();
        Self {
            parameters: strings::parameters(definition),
            about: features::of_name(&name),
            agreement: features::agreement(&name, &text("description")),
            name,
            reading: Reading {
                windows: vec![],
                tricks: vec![],
                encoded: None,
                tokens: vec![],
                cut: false,
            },
            places: Vec::new(),
            alternating: BTreeSet::new(),
            repaired: 0,
        }
    }

    fn read(mut self, definition: Value<'_>) -> Reading {
        let described = definition.get("description").is_some();
        let (mut tokens, mut whole, mut decoded) = (Vec::new(), String::new(), Vec::new());
        let mut marked = !described;
        let (pieces, cut) = strings::of(definition);
        self.reading.cut = cut;
        for piece in pieces {
            let normal = normal::normal(&piece.text);
            for trick in normal.tricks {
                if !self.reading.tricks.iter().any(|(known, _)| *known == trick) {
                    self.reading.tricks.push((trick, piece.at.clone()));
                }
            }
            let mut views: Vec<_> = normal.hidden.into_iter().map(|t| (Code::Hidden, t)).collect();
            if decoded.len() < decode::TRIED {
                decode::views(&normal.text, &mut views);
            }
            decoded.extend(views.into_iter().map(|(code, text)| (code, text, piece.at.clone())));
            if tokens.len() > WORDS {
                self.reading.cut = true;
                break;
            }
            self.places.push((tokens.len(), piece.at.clone()));
            self.piece(piece.slot, &normal.text, &piece.at, &mut marked, &mut tokens);
            whole.push_str(&normal.text);
            whole.push('\n');
        }
        if tokens::are_alternating(&self.alternating) {
            self.reading.tricks.push((Trick::Alternating, "/description".to_owned()));
        }
        if self.repaired >= 4 {
            self.bonus(2.0, "swaps letters in words", "/description");
        }
        self.stream(&tokens, &whole, None);
        // Those that say most are read; many that say nothing hide none.
        decoded.sort_by_key(|(_, text, _)| std::cmp::Reverse(LEXICON.english(text).0));
        for (code, text, at) in decoded.iter().take(decode::OF_ALL) {
            let bonus = match code {
                Code::Hidden | Code::Rot13 | Code::Backwards | Code::Leet | Code::Spaced => 8.0,
                Code::Escapes | Code::Entities => 5.0,
                Code::Percent => 3.0,
                Code::Base64 | Code::Hex if decode::is_active(text) => 6.0,
                Code::Base64 | Code::Hex if LEXICON.english(text).0 >= 5 => 5.0,
                Code::Base64 | Code::Hex => 0.0,
            };
            self.bonus(bonus, code.note(), at);
            let (words, _) = tokens::of(text, &self.name.to_lowercase(), &self.parameters);
            let words = self.repair(words);
            self.stream(&words, text, Some(at));
        }
        self.reading.tokens = tokens;
        self.reading
    }

    fn bonus(&mut self, value: f32, note: &'static str, at: &str) {
        if value > self.reading.encoded.as_ref().map_or(0.0, |(known, ..)| *known) {
            self.reading.encoded = Some((value, note, at.to_owned()));
        }
    }

    fn repair(&mut self, words: Vec<Token>) -> Vec<Token> {
        let repair = |token: Token| match LEXICON.repaired(&token) {
            Some(meant) => {
                self.repaired += 1;
                meant.into()
            }
            None => token,
        };
        words.into_iter().map(repair).collect()
    }

    /// Adds the words of one string to the main text.
    fn piece(
        &mut self,
        slot: Slot,
        text: &str,
        at: &str,
        marked: &mut bool,
        tokens: &mut Vec<Token>,
    ) {
        let none = BTreeSet::new();
        let identifier = !slot.is_text() && !text.trim().contains(' ');
        let (words, alternating) = if identifier {
            let parts: Vec<&str> = tokens::parts(text).collect();
            if parts.len() < 6 && text.len() < 60 {
                if slot != Slot::Word {
                    tokens.extend(parts.iter().map(|part| part.to_lowercase().into()));
                }
                if slot == Slot::Name {
                    tokens.push(".".into());
                }
                return;
            }
            if tokens::is_sentence(text) {
                self.bonus(5.0, "is a sentence in place of a name", at);
            }
            let separators = text.matches(['_', '-']).count();
            let spaced =
                if separators >= 5 { text.replace(['_', '-'], " ") } else { parts.join(" ") };
            tokens::of(&spaced, "\0", &none)
        } else if slot.is_text() {
            tokens::of(
                &harmless::without_sources(text),
                &self.name.to_lowercase(),
                &self.parameters,
            )
        } else {
            tokens::of(text, "\0", &none)
        };
        self.alternating.extend(alternating);
        let words = self.repair(words);
        let words = if slot == Slot::Flag { harmless::without_checks(words) } else { words };
        let words = harmless::without(words);
        let end = |tokens: &mut Vec<Token>| {
            if tokens.last().is_some_and(|last| **last != *".") {
                tokens.push(".".into());
            }
        };
        end(tokens);
        if slot.is_text() && !*marked {
            *marked = true;
            tokens.push("^".into());
        }
        tokens.extend(words);
        end(tokens);
    }

    /// Reads the stretches of one text.
    fn stream(&mut self, tokens: &[Token], text: &str, at: Option<&str>) {
        let (texts, words) = hits(tokens, text);
        for (from, to) in features::windows(tokens) {
            // Sorted by where they begin: a stretch looks at those near it alone.
            let first = |word: usize| words.partition_point(|hit| hit.first < word);
            let near = words.get(first(from.saturating_sub(NEAR))..first(to + BEHIND));
            let near = near.unwrap_or_default();
            let counts = |hit: &&Hit| hit.first + BEFORE >= from && hit.last < to + BEHIND;
            let mut counted: Vec<&Hit> = near.iter().filter(counts).chain(&texts).collect();
            counted.sort_by_key(|hit| hit.rule);
            counted.dedup_by_key(|hit| hit.rule);
            let rules = counted.iter().filter_map(|hit| Some((*hit, RULES.get(hit.rule)?)));
            let weight: u16 = rules.clone().map(|(_, rule)| rule.weight).sum();
            let gravest = rules.max_by_key(|(_, rule)| rule.weight);
            let note = gravest.map_or("", |(_, rule)| rule.note);
            // Where the gravest rule has matched, or else the middle of the stretch.
            let middle = from.midpoint(to);
            let anchor = gravest.filter(|(hit, _)| hit.last != usize::MAX);
            let anchor = anchor.map_or(middle, |(hit, _)| hit.first);
            let place = self.places.partition_point(|(start, _)| *start <= anchor);
            let place = place.checked_sub(1).and_then(|place| self.places.get(place));
            let place = place.map(|(_, at)| at.as_str()).unwrap_or_default();
            let inside = near.iter().filter(|hit| hit.first >= from && hit.last < to);
            let inside: Vec<usize> = inside.chain(&texts).map(|hit| hit.rule).collect();
            let features =
                features::of_window(tokens, (from, to), &self.about, &inside, self.agreement);
            self.reading.windows.push(Window {
                words: (from, to),
                features,
                rules: (f32::from(weight) / 100.0).min(RULES_MOST),
                note,
                at: at.unwrap_or(place).to_owned(),
            });
        }
    }
}

/// The rules that match the text, and those that match words, in the order of the words.
fn hits(tokens: &[Token], text: &str) -> (Vec<Hit>, Vec<Hit>) {
    let mut joined = Vec::new();
    let mut starts = Vec::with_capacity(tokens.len());
    for token in tokens {
        if !joined.is_empty() {
            joined.push(b' ');
        }
        starts.push(joined.len());
        joined.extend_from_slice(token.as_bytes());
    }
    let word = |byte: usize| starts.partition_point(|start| *start <= byte).saturating_sub(1);
    let (mut texts, mut words) = (Vec::new(), Vec::new());
    for (rule, pattern) in COMPILED.iter().enumerate() {
        match RULES.get(rule).map(|rule| rule.on) {
            Some(On::Text) if pattern.is_match(text.as_bytes()) => {
                texts.push(Hit { rule, first: 0, last: usize::MAX });
            }
            Some(On::Text) | None => {}
            Some(On::Words) => words.extend(pattern.find_iter(&joined).map(|hit| {
                let last = word(hit.end().saturating_sub(1));
                Hit { rule, first: word(hit.start()), last }
            })),
        }
    }
    words.sort_by_key(|hit| hit.first);
    (texts, words)
}

#[cfg(test)]
mod tests;
