//! Detects text that gives instructions to a model: one layered detector for definitions, contents and model training.
//!
//! Every string is normalised to what a person would see ([`Trick`]s are reported on the way) and decoded where it
//! is encoded; then it is read in windows of some dozen words. Each window has a score, from a linear
//! model over the topics of its words and from rules by intent. The score of a text is that of its most
//! suspicious window, so that a long description cannot hide an instruction (control C12, threats
//! T1001, T1402 and T1501).
//!
//! The weights are trained by `tests/detect` and stored in `model.bin`; `docs/detection.md` has the measured
//! accuracy. All of it is linear in the length of the text.

mod lexicon;
mod normal;
mod decode;
mod rules;
mod required;
mod segment;
mod suspects;
mod tokens;
mod features;
mod harmless;
mod strings;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use json::{Document, JsonBounds, Value};
use policy_core::base::compiled::{CompileResult, CompiledEach};
use policy_core::base::hidden::is_plain_ascii;
use policy_core::base::work::WorkBudget;
use regex::bytes::{Regex, RegexBuilder};

use decode::TextEncoding;
pub use features::BUCKETS;
use features::RuleHit;
use lexicon::LEXICON;
pub use normal::Trick;
use rules::{RULES, RuleInput};
use strings::StringRole;
pub use tokens::Token;

/// The weights: a signed byte for each bucket, then the bias; in units of 1/32.
static MODEL: &[u8] = include_bytes!("detect/model.bin");
const _: () = assert!(include_bytes!("detect/model.bin").len() == BUCKETS + 2);

/// The value of one unit of a weight.
const UNIT: f32 = 1.0 / 32.0;
/// Factor of the rules beside the model, and the greatest score that they can reach.
const RULES_COUNT: f32 = 0.6;
const RULES_MOST: f32 = 8.0;
/// A rule of this weight, in hundredths, gives instructions for certain by itself, however low the model scores the words, and
/// so do rules of different grave families with a sum above it.
const DECISIVE: u16 = 420;
/// The families of what honest definitions seldom say. Preconditions, preferences and the arguments of other tools are not
/// among them: a server that keeps a session has those.
const GRAVE: [&str; 8] = [
    "authority",
    "command",
    "context_theft",
    "exfiltration",
    "obfuscation",
    "override",
    "secrecy",
    "sensitive_target",
];
/// Most words of one definition that are read.
const WORDS: usize = 50_000;
/// The score of a trick by itself.
const TRICK: f32 = 8.0;
/// Words before and behind a window in which a rule still counts for it.
const BEFORE: usize = 4;
const BEHIND: usize = 12;
/// How many words before a window a rule that reaches into it can begin.
const NEAR: usize = 4;
/// From this score on, a text may give instructions. `docs/detection.md` has the share of ordinary definitions that reach
/// it, and that reach [`CERTAIN`].
pub const THRESHOLD: f32 = 2.3;
/// From this score on, a text gives instructions for certain.
pub const CERTAIN: f32 = 3.95;

/// A text that was normalised, decoded and divided into windows.
#[derive(Debug)]
pub struct TextAnalysis {
    /// The windows of the text, those of decoded text included.
    pub windows: Vec<Window>,
    /// The ways in which the text is disguised, each with its place.
    pub tricks: Vec<(Trick, String)>,
    /// The encoding with the highest score by itself, regardless of its words: its score, description and place.
    encoded: Option<(f32, &'static str, String)>,
    /// The words of the whole text, without decoded text.
    pub tokens: Vec<Token>,
    /// Whether the text is longer than is read.
    pub cut: bool,
}

/// A window of some dozen words.
#[derive(Debug)]
pub struct Window {
    /// Range of its words: the first, and one past the last.
    pub words: (usize, usize),
    /// Buckets of its features, without duplicates.
    pub features: Vec<u32>,
    /// Score of the rules, from 0 to 8.
    pub rules: f32,
    /// Whether the rules are enough by themselves, however low the model scores the words.
    is_decided: bool,
    /// Description of the matching rule with the greatest weight.
    note: &'static str,
    /// The place where it begins, as a JSON Pointer.
    at: String,
}

/// The score of a text, with its place and reason.
#[derive(Debug)]
pub struct Score {
    /// From [`THRESHOLD`] on, the text is taken to give instructions.
    pub value: f32,
    /// The place, as a JSON Pointer.
    pub at: String,
    /// The reason, as a fixed text of this crate.
    pub note: &'static str,
}

/// A linear model: a weight for each bucket, in units of 1/32, and a bias.
#[derive(Clone, Debug)]
pub struct Model {
    weights: Box<[i8]>,
    bias: f32,
}

impl Model {
    /// The model that is compiled in.
    #[must_use]
    pub fn built_in() -> &'static Self {
        static BUILT_IN: LazyLock<Model> = LazyLock::new(|| Model::parse(MODEL));
        &BUILT_IN
    }

    /// A model of these weights and this bias, rounded to what is stored of them.
    #[must_use]
    pub fn rounded(weights: &[f32], bias: f32) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "clamped before")]
        let unit = |weight: &f32| (weight / UNIT).round().clamp(-127.0, 127.0) as i8;
        let bias = (bias / UNIT).round().clamp(-32_767.0, 32_767.0) * UNIT;
        Self { weights: weights.iter().map(unit).collect(), bias }
    }

    /// Parses a model from its stored bytes: the weights, and two bytes of bias.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let Some((weights, bias)) = bytes.split_last_chunk() else {
            return Self { weights: Box::default(), bias: 0.0 };
        };
        let weights = weights.iter().map(|byte| byte.cast_signed()).collect();
        Self { weights, bias: f32::from(i16::from_le_bytes(*bias)) * UNIT }
    }

    /// Serialises the model to the bytes that [`Self::parse`] reads.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        #[expect(clippy::cast_possible_truncation, reason = "clamped when it was made")]
        let bias = (self.bias / UNIT).round() as i16;
        let mut out: Vec<u8> = self.weights.iter().map(|weight| weight.cast_unsigned()).collect();
        out.extend(bias.to_le_bytes());
        out
    }

    /// The weight of a bucket.
    #[must_use]
    pub fn weight(&self, bucket: u32) -> f32 {
        let weight = usize::try_from(bucket).ok().and_then(|bucket| self.weights.get(bucket));
        f32::from(weight.copied().unwrap_or(0)) * UNIT
    }

    /// The bias, which is added to the weights once.
    #[must_use]
    pub const fn bias(&self) -> f32 {
        self.bias
    }

    /// The score of one window, without the rules.
    #[must_use]
    pub fn score(&self, window: &Window) -> f32 {
        self.bias + window.features.iter().map(|feature| self.weight(*feature)).sum::<f32>()
    }
}

impl TextAnalysis {
    /// Reads a definition, or any other value.
    #[must_use]
    pub fn of(definition: Value<'_>) -> Self {
        AnalysisBuilder::new(definition).read(definition)
    }

    /// The score of the text under `model`, tricks included.
    #[must_use]
    pub fn score(&self, model: &Model) -> Score {
        let score = self.orders(model);
        let trick = TRICK + 0.2 * score.value.min(0.0);
        match self.tricks.first().filter(|_| trick > score.value) {
            Some((found, at)) => Score { value: trick, at: at.clone(), note: found.note() },
            None => score,
        }
    }

    /// The score of the text under `model`, without tricks.
    #[must_use]
    pub fn orders(&self, model: &Model) -> Score {
        let local = |window: &Window| {
            let both = model.score(window) + RULES_COUNT * window.rules;
            if window.is_decided { both.max(CERTAIN) } else { both }
        };
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

/// Most parts of suspicious lines that are decoded, each of at most [`decode::LONGEST`] bytes.
const SUSPECTS: usize = 16;
/// Units that normalising a text costs for each byte of the result.
const NORMALISED: usize = 16;
/// Units that decoding a part in every way costs for each of its bytes.
const DECODED: usize = 128;

/// Further readings of a text: its normalised form, if that differs, and its decoded forms. Their cost is spent from
/// `budget`; empty where it does not suffice.
pub(crate) fn readings(text: &str, budget: &WorkBudget) -> Vec<String> {
    let mut views = Vec::new();
    let normal = if is_undisguised(text) {
        Cow::Borrowed(text)
    } else {
        // Compatibility characters expand: the cost is that of the expanded text.
        if !budget.spend(normal::expanded(text).saturating_mul(NORMALISED)) {
            return Vec::new();
        }
        let normal = normal::normal(text);
        views.extend(normal.hidden.into_iter().map(|text| (TextEncoding::Hidden, text)));
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
        // Where single letters were spaced apart, the spaces between words may be missing.
        all.extend((code == TextEncoding::Spaced).then(|| segment::of(&text)));
        all.push(text);
    }
    if *normal != *text {
        all.push(normal.into_owned());
    }
    all
}

/// Whether no letter of a text can be disguised: all characters are plain, and no Greek, Cyrillic or Armenian letter
/// stands beside a Latin one.
fn is_undisguised(text: &str) -> bool {
    if is_plain_ascii(text) {
        return true;
    }
    if text.is_ascii() {
        return false;
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

/// Whether it is a letter, or a mark, of a script without letters that look like Latin ones.
const fn is_foreign(c: char) -> bool {
    matches!(c, '\u{5d0}'..='\u{5ea}' | '\u{60c}'..='\u{6ff}' | '\u{900}'..='\u{dff}' | '\u{e01}'..='\u{e5b}' | '\u{10a0}'..='\u{10ff}')
}

/// Whether words are never disguised with this character: ASCII, letters with accents, common
/// punctuation, symbols, emoji, and scripts without letters that look like Latin ones.
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

/// Whether a text by itself is taken to give instructions to a model.
#[must_use]
pub fn is_order(text: &str) -> bool {
    let mut quoted = Vec::new();
    json::write_string(&mut quoted, text);
    // INVARIANT: the output of `write_string` is valid JSON.
    let document = Document::parse(quoted.into(), &JsonBounds::ANSWER);
    let score =
        |document: &Document| TextAnalysis::of(document.root()).orders(Model::built_in()).value;
    document.is_ok_and(|document| score(&document) >= THRESHOLD)
}

/// Whether a tool of this name changes or sends something, by the words of its name.
pub(crate) fn names_a_change(name: &str) -> bool {
    tokens::parts(name).any(|part| LEXICON.writing.contains(part.to_lowercase().as_str()))
}

/// The normalised words of a text that belongs to `name`, for training a model.
#[must_use]
pub fn words(text: &str, name: &str) -> Vec<Token> {
    let (tokens, _) =
        tokens::of(&normal::normal(text).text, &name.to_lowercase(), &BTreeSet::new());
    tokens.into_iter().map(|token| LEXICON.repaired(&token).map_or(token, Into::into)).collect()
}

/// The compiled rules. They are compiled one by one: an automaton of all of them would exceed its cache of states, and
/// most texts need few of them.
static COMPILED: CompiledEach<Regex, { RULES.len() }> = CompiledEach::new(compiled);

/// The pattern of a rule, with ASCII word boundaries: with those of Unicode no automaton that reads single
/// bytes could be built.
fn bytewise(rule: &rules::DetectionRule) -> String {
    if rule.pattern.is_ascii() {
        format!("(?-u){}", rule.pattern)
    } else {
        rule.pattern.replace(r"\b", r"(?-u:\b)")
    }
}

fn compiled(rule: usize) -> CompileResult<Regex> {
    let rule = RULES.get(rule).ok_or("there is no such rule")?;
    let mut builder = RegexBuilder::new(&bytewise(rule));
    Ok(builder.size_limit(1 << 24).dfa_size_limit(1 << 20).build()?)
}

/// State while one definition is read.
struct AnalysisBuilder {
    name: String,
    parameters: BTreeSet<String>,
    about: BTreeSet<&'static str>,
    agreement: &'static str,
    reading: TextAnalysis,
    /// The index of the first word of each string, and the place of the string.
    places: Vec<(usize, String)>,
    /// Lower-case forms of words that change case with every letter.
    alternating: BTreeSet<String>,
    repaired: usize,
}

impl AnalysisBuilder {
    fn new(definition: Value<'_>) -> Self {
        let text = |key: &str| definition.get(key).and_then(Value::as_str).unwrap_or_default();
        let name = text("name").into_owned();
        Self {
            parameters: strings::parameters(definition),
            about: features::of_name(&name),
            agreement: features::agreement(&name, &text("description")),
            name,
            reading: TextAnalysis {
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

    fn read(mut self, definition: Value<'_>) -> TextAnalysis {
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
            let mut views: Vec<_> =
                normal.hidden.into_iter().map(|t| (TextEncoding::Hidden, t)).collect();
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
        // The most English texts are read first: a flood of meaningless ones must not displace one with a meaning.
        decoded.sort_by_key(|(_, text, _)| std::cmp::Reverse(LEXICON.english(text).0));
        for (code, text, at) in decoded.iter().take(decode::OF_ALL) {
            let bonus = match code {
                TextEncoding::Hidden
                | TextEncoding::Rot13
                | TextEncoding::Backwards
                | TextEncoding::Leet
                | TextEncoding::Spaced => 8.0,
                TextEncoding::Escapes | TextEncoding::Entities => 5.0,
                TextEncoding::Percent => 3.0,
                TextEncoding::Base64 | TextEncoding::Hex if decode::is_active(text) => 6.0,
                TextEncoding::Base64 | TextEncoding::Hex if LEXICON.english(text).0 >= 5 => 5.0,
                TextEncoding::Base64 | TextEncoding::Hex => 0.0,
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
        slot: StringRole,
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
                if slot != StringRole::Word {
                    tokens.extend(parts.iter().map(|part| part.to_lowercase().into()));
                }
                if slot == StringRole::Name {
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
            let text = harmless::without_examples(text);
            tokens::of(
                &harmless::without_sources(&text),
                &self.name.to_lowercase(),
                &self.parameters,
            )
        } else {
            tokens::of(text, "\0", &none)
        };
        self.alternating.extend(alternating);
        let words = self.repair(words);
        let words = if slot == StringRole::Flag { harmless::without_checks(words) } else { words };
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

    /// Scores the windows of one text.
    fn stream(&mut self, tokens: &[Token], text: &str, at: Option<&str>) {
        let (texts, words) = hits(tokens, text);
        for (from, to) in features::windows(tokens) {
            // The matches are sorted by their first word: only those near a window are considered.
            let first = |word: usize| words.partition_point(|hit| hit.first < word);
            let near = words.get(first(from.saturating_sub(NEAR))..first(to + BEHIND));
            let near = near.unwrap_or_default();
            let counts = |hit: &&RuleHit| hit.first + BEFORE >= from && hit.last < to + BEHIND;
            let mut counted: Vec<&RuleHit> = near.iter().filter(counts).chain(&texts).collect();
            counted.sort_by_key(|hit| hit.rule);
            counted.dedup_by_key(|hit| hit.rule);
            let rules = counted.iter().filter_map(|hit| Some((*hit, RULES.get(hit.rule)?)));
            let weight: u16 = rules.clone().map(|(_, rule)| rule.weight).sum();
            let gravest = rules.max_by_key(|(_, rule)| rule.weight);
            let note = gravest.map_or("", |(_, rule)| rule.note);
            // The place is where the rule with the greatest weight matched, or else the middle of the window.
            let middle = from.midpoint(to);
            let anchor = gravest.filter(|(hit, _)| hit.last != usize::MAX);
            let anchor = anchor.map_or(middle, |(hit, _)| hit.first);
            let place = self.places.partition_point(|(start, _)| *start <= anchor);
            let place = place.checked_sub(1).and_then(|place| self.places.get(place));
            let place = place.map(|(_, at)| at.as_str()).unwrap_or_default();
            let inside = near.iter().filter(|hit| hit.first >= from && hit.last < to);
            let inside: Vec<usize> = inside.chain(&texts).map(|hit| hit.rule).collect();
            let words = tokens.get(from..to).unwrap_or_default();
            let features = features::of_window(words, &self.about, &inside, self.agreement);
            self.reading.windows.push(Window {
                words: (from, to),
                features,
                rules: (f32::from(weight) / 100.0).min(RULES_MOST),
                is_decided: is_decided(&counted),
                note,
                at: at.unwrap_or(place).to_owned(),
            });
        }
    }
}

/// Whether these matches give instructions for certain: one decisive rule, or several of different grave families. Only the
/// heaviest of a family counts, because those of one family say the same.
fn is_decided(hits: &[&RuleHit]) -> bool {
    let rules = || hits.iter().filter_map(|hit| RULES.get(hit.rule));
    let heaviest = |family: &str| {
        rules().filter(|rule| rule.family == family).map(|rule| rule.weight).max().unwrap_or(0)
    };
    let grave: u16 = GRAVE.iter().map(|family| heaviest(family)).sum();
    grave > DECISIVE || rules().any(|rule| rule.weight >= DECISIVE)
}

/// The matches of rules on the text, and those of rules on words, sorted by their first word.
fn hits(tokens: &[Token], text: &str) -> (Vec<RuleHit>, Vec<RuleHit>) {
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
    for rule in required::possible(&joined, text) {
        let Some(pattern) = COMPILED.get(rule) else { break };
        match RULES.get(rule).map(|rule| rule.on) {
            Some(RuleInput::Text) if pattern.is_match(text.as_bytes()) => {
                texts.push(RuleHit { rule, first: 0, last: usize::MAX });
            }
            Some(RuleInput::Text) | None => {}
            Some(RuleInput::Words) => words.extend(pattern.find_iter(&joined).map(|hit| {
                let last = word(hit.end().saturating_sub(1));
                RuleHit { rule, first: word(hit.start()), last }
            })),
        }
    }
    words.sort_by_key(|hit| hit.first);
    (texts, words)
}

#[cfg(test)]
mod tests;
