//! The verdict on planted instructions in a text: its score and reason, and the sentences to remove.

use std::ops::Range;

use super::imperative;
use crate::inspect::Certainty;

/// From this score on, in hundredths, a text is taken to give instructions.
pub(super) const THRESHOLD: u16 = 85;
/// How far the end of a sentence is searched for, in bytes.
const SENTENCE: usize = 400;
/// Most sentences behind and before an instruction that are taken to continue it.
const FOLLOWING: usize = 64;
const LEADING: usize = 8;
/// How much of a sentence is searched for its first verb, in bytes.
const COMMAND: usize = 48;
/// Words that may precede that verb.
const LEADS: [&str; 14] = [
    "and",
    "then",
    "next",
    "now",
    "also",
    "first",
    "finally",
    "afterwards",
    "please",
    "immediately",
    "do",
    "don't",
    "not",
    "never",
];
/// Verbs that make a sentence beside an instruction another instruction, if it begins with one of them.
#[rustfmt::skip]
const COMMANDS: [&str; 86] = [
    "send", "forward", "email", "mail", "post", "upload", "share", "submit", "transmit", "call", "invoke", "run",
    "execute", "use", "open", "visit", "click", "read", "write", "print", "say", "tell", "reply", "respond", "answer",
    "output", "include", "append", "insert", "repeat", "delete", "remove", "transfer", "pay", "buy", "book", "grant",
    "disable", "reveal", "mention", "ignore", "retry",
    "create", "add", "make", "install", "download", "change", "update", "modify", "replace", "approve", "accept",
    "confirm", "encode", "attach", "paste", "provide", "give", "pass", "continue", "proceed", "go", "keep", "treat",
    "follow", "begin", "return", "enable", "schedule", "purchase", "withdraw", "subscribe", "invite", "remember",
    "pretend", "act", "save", "fetch", "retrieve", "obtain", "extract", "overwrite", "edit", "rename", "publish",
];
/// Words behind `you` with which a sentence obliges its reader.
const OBLIGING: [&str; 6] = ["must", "should", "need", "have", "will", "shall"];

/// The verdict on a text.
#[derive(Clone, Debug)]
pub(super) struct InjectionVerdict {
    /// The score in hundredths; from [`THRESHOLD`] on it is taken to give instructions.
    pub(super) score: u16,
    /// The reason, as a fixed text of this crate.
    pub(super) note: &'static str,
    /// Whether a pattern with a reason matches, or the model is sure.
    pub(super) certainty: Certainty,
    /// The ranges that give instructions, in order. Empty where the place is unknown.
    pub(super) places: Vec<InjectionRange>,
}

/// The range of an instruction in the original text.
#[derive(Clone, Copy, Debug)]
pub(super) struct InjectionRange {
    pub(super) from: usize,
    pub(super) end: usize,
    /// Whether the end of the range only announces instructions, which follow it.
    pub(super) opens: bool,
}

impl From<Range<usize>> for InjectionRange {
    fn from(place: Range<usize>) -> Self {
        Self { from: place.start, end: place.end, opens: false }
    }
}

impl InjectionVerdict {
    /// A verdict of exactly [`THRESHOLD`] with these places; none where the place is unknown.
    pub(super) fn at(note: &'static str, places: impl IntoIterator<Item = Range<usize>>) -> Self {
        let places = places.into_iter().map(InjectionRange::from).collect();
        Self { score: THRESHOLD, note, certainty: Certainty::Certain, places }
    }

    /// Whether the text is taken to give instructions.
    pub(super) const fn is_one(&self) -> bool {
        self.score >= THRESHOLD
    }

    /// The score relative to the threshold: from 1 on the text is taken to give instructions.
    pub(super) fn value(&self) -> f32 {
        f32::from(self.score) / f32::from(THRESHOLD)
    }

    /// The parts of the text to remove, in order; the whole text where the place is unknown.
    pub(super) fn places(&self, text: &str) -> Vec<Range<usize>> {
        let mut all: Vec<Range<usize>> = Vec::new();
        for order in &self.places {
            // A place within the last part is covered by it, so each byte is read once.
            let least = all.last().map_or(0, |last| last.end);
            if order.end <= least {
                continue;
            }
            let place = sentences(text, *order, least);
            match all.last_mut().filter(|last| last.end >= place.start) {
                Some(last) => last.end = last.end.max(place.end),
                None => all.push(place),
            }
        }
        if all.is_empty() { vec![Range { start: 0, end: text.len() }] } else { all }
    }
}

/// The sentences that overlap a range, and the instructions in the sentences beside them; not before
/// `least`.
fn sentences(text: &str, order: InjectionRange, least: usize) -> Range<usize> {
    let InjectionRange { from, end, opens } = order;
    // A pattern over bytes may begin or end within a character.
    let (from, end) = (text.floor_char_boundary(from), text.ceil_char_boundary(end));
    let before = text.floor_char_boundary(from.saturating_sub(SENTENCE).max(least));
    let from = leading(text, last_stop(text, before, from), least);
    let mut end = next_stop(text, end);
    let rest = text.get(end..).unwrap_or_default();
    // The announced instruction stands in the next sentence.
    if opens
        && !rest.starts_with(['\n', '"'])
        && !text.get(..end).is_some_and(|t| t.ends_with('\n'))
    {
        let next = next_stop(text, end + rest.len() - rest.trim_start_matches(' ').len());
        // The line end stays, as the separator of what is left.
        end = if text.get(end..next).is_some_and(|t| t.ends_with('\n')) { next - 1 } else { next };
    }
    // Further instructions follow, each in a sentence or a line of its own.
    for _ in 0..FOLLOWING {
        let rest = text.get(end..).unwrap_or_default();
        let order = rest.trim_start_matches(is_sign);
        let between = rest.get(..rest.len() - order.len()).unwrap_or_default();
        // A new paragraph has another topic.
        if between.contains("\n\n") || !commands(order) {
            break;
        }
        end = next_stop(text, end + between.len());
    }
    from..end
}

/// Whether a character may precede a list item or a quotation.
fn is_sign(c: char) -> bool {
    matches!(c, '-' | '*' | '>' | '\u{2022}') || c.is_whitespace()
}

/// The start of the instructions that end at `from`, each in a sentence or a line of its own in the same paragraph.
fn leading(text: &str, mut from: usize, least: usize) -> usize {
    for _ in 0..LEADING {
        let before = text.get(least..from).unwrap_or_default();
        let said = before.trim_end();
        // The last character ends the sentence.
        let Some(last) = said.chars().next_back() else { break };
        let (end, own) = (least + said.len(), least + said.len() - last.len_utf8());
        let between = text.get(end..from).unwrap_or_default();
        let most = text.floor_char_boundary(own.saturating_sub(SENTENCE).max(least));
        let begins = last_stop(text, most, own);
        let sentence = text.get(begins..end).unwrap_or_default().trim_start_matches(is_sign);
        if between.contains("\n\n") || !commands(sentence) {
            break;
        }
        from = begins;
    }
    from
}

/// Whether a sentence begins like an instruction.
pub(super) fn is_command(sentence: &str) -> bool {
    commands(sentence)
}

/// The sentence around a range of a text.
pub(super) fn sentence_around(text: &str, place: Range<usize>) -> Range<usize> {
    let least = text.floor_char_boundary(place.start.saturating_sub(SENTENCE));
    last_stop(text, least, place.start)..next_stop(text, place.end)
}

/// Whether a sentence is an instruction: it begins with such a verb, or obliges its reader.
fn commands(sentence: &str) -> bool {
    let begins = sentence.get(..sentence.floor_char_boundary(COMMAND)).unwrap_or_default();
    let words = begins.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|w| !w.is_empty());
    let is =
        |words: &[&str], word: &str| words.iter().any(|known| word.eq_ignore_ascii_case(known));
    let mut words = words.skip_while(|word| is(&LEADS, word));
    let Some(first) = words.next() else { return false };
    let (second, third) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    is(&COMMANDS, first)
        || is(&["you"], first) && is(&OBLIGING, second)
        || is(&["be", "make"], first) && is(&["sure"], second)
        || is(&["it", "this", "that"], first)
            && is(&["is"], second)
            && is(&imperative::NECESSARY, third)
}

/// The end of the sentence at a place, its stop included.
fn next_stop(text: &str, at: usize) -> usize {
    let most = text.ceil_char_boundary((at + SENTENCE).min(text.len()));
    let rest = text.get(at..most).unwrap_or_default();
    let stop = rest.char_indices().find(|(n, c)| stops(text, at + n, *c));
    stop.map_or(most, |(n, c)| at + n + c.len_utf8())
}

/// The start of the sentence that ends at a place; not before `least`.
fn last_stop(text: &str, least: usize, at: usize) -> usize {
    let before = text.get(least..at).unwrap_or_default();
    let stop = before.char_indices().rev().find(|(n, c)| stops(text, least + n, *c));
    stop.map_or(least, |(n, c)| least + n + c.len_utf8())
}

/// Whether a character ends a sentence: a dot within a name, a number or a link does not.
fn stops(text: &str, at: usize, c: char) -> bool {
    let next = || text.get(at + c.len_utf8()..).and_then(|rest| rest.chars().next());
    match c {
        '\n' | '"' => true,
        '.' | '!' | '?' => next().is_none_or(|next| {
            next.is_whitespace() || matches!(next, '"' | '\'' | ')' | ']' | '<' | '*' | '\\')
        }),
        _ => false,
    }
}
