//! Finds card numbers among other numbers: behind a count, before an amount, in a row of a table.
//!
//! A neighbouring number does not disqualify a number with the form and the check digit of a card.
//! In one piece it counts wherever it is a word of its own. In groups it counts in the groups that issuers
//! print, with the same separator between them, where the digits do not continue in groups of the same length: in a
//! table of four-digit numbers every tenth row of four would have a valid check digit.

use policy_core::base::digits::decimal_digit;

use super::examples;
use super::numbers::is_card;
use crate::secrets::found::FoundValue;

/// Fewest digits of a card number.
pub(super) const FEWEST: usize = 13;
/// Most digits of a card number.
const MOST: usize = 19;
/// The groups in which issuers print them.
const PRINTED: [&[usize]; 4] = [&[4, 4, 4, 4], &[4, 6, 5], &[4, 6, 4], &[4, 4, 4, 4, 3]];
/// Most groups that are tested together.
const TOGETHER: usize = 1024;
/// Groups that are kept for the next test when that limit is reached.
const AGAIN: usize = 8;

/// Consecutive digits without a separator.
#[derive(Clone, Copy)]
struct DigitGroup {
    from: usize,
    end: usize,
    /// Number of its digits.
    length: usize,
    /// The separator before it, if another group precedes that.
    joined: Option<char>,
    /// Whether the text before it, such as a letter or a decimal point, does not make it part of something else.
    begins: bool,
    /// The same for the text behind it.
    ends: bool,
}

/// Appends the card numbers in `text`.
pub(super) fn find(text: &str, out: &mut Vec<FoundValue>) {
    let mut groups: Vec<DigitGroup> = Vec::new();
    let mut chars = text.char_indices().peekable();
    // The last character, and the one before it.
    let (mut last, mut before) = (' ', ' ');
    while let Some((from, c)) = chars.next() {
        if decimal_digit(c).is_none() {
            (before, last) = (last, c);
            continue;
        }
        let (mut end, mut length) = (from + c.len_utf8(), 1);
        while let Some((at, next)) = chars.next_if(|(_, next)| decimal_digit(*next).is_some()) {
            end = at + next.len_utf8();
            length += 1;
        }
        let next = chars.peek().map_or(' ', |(_, next)| *next);
        let neighbour = groups.last().filter(|group| group.end + last.len_utf8() == from);
        let joined = neighbour.filter(|_| is_sign(last)).map(|_| last);
        let apart = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let is_rest = matches!(last, '.' | '#') || last == '-' && before.is_ascii_alphanumeric();
        let begins = apart(last) && !is_rest;
        let ends = apart(next);
        if joined.is_none() || groups.len() >= TOGETHER {
            look(text, &groups, out);
            let kept = if joined.is_some() { AGAIN } else { 0 };
            groups.drain(..groups.len().saturating_sub(kept));
        }
        groups.push(DigitGroup { from, end, length, joined, begins, ends });
        // Stands for a digit of either width.
        (before, last) = ('0', '0');
    }
    look(text, &groups, out);
}

/// Whether a character may separate groups of digits.
const fn is_sign(c: char) -> bool {
    matches!(c, ' ' | '-' | '.' | '/' | '_' | '\u{a0}' | '\u{2007}' | '\u{2009}' | '\u{202f}')
}

/// Searches consecutive groups for card numbers.
fn look(text: &str, groups: &[DigitGroup], out: &mut Vec<FoundValue>) {
    let mut at = 0;
    while let Some(group) = groups.get(at) {
        let next = groups.get(at + 1);
        if group.length >= FEWEST {
            // The digits before a decimal point are only part of a number.
            let whole = next.and_then(|next| next.joined.filter(|sign| *sign == '.')).is_none();
            if group.begins && group.ends && whole {
                single(text, group, out);
            }
            at += 1;
            continue;
        }
        let rest = groups.get(at..).unwrap_or_default();
        let before = at.checked_sub(1).and_then(|at| groups.get(at));
        let length = printed(text, rest, before, out);
        at += length.max(1);
    }
}

/// Tests a number in one piece, which may have leading zeros.
fn single(text: &str, group: &DigitGroup, out: &mut Vec<FoundValue>) {
    let all = text.get(group.from..group.end).unwrap_or_default().chars().filter_map(decimal_digit);
    let digits: Vec<u8> = all.skip_while(|digit| *digit == 0).take(MOST + 1).collect();
    if digits.len() >= FEWEST && is_card(&digits) {
        out.push(examples::card(&digits, group.from, group.end));
    }
}

/// Appends card numbers in groups that begin with the first group; returns the number of groups to skip.
fn printed(
    text: &str,
    groups: &[DigitGroup],
    before: Option<&DigitGroup>,
    out: &mut Vec<FoundValue>,
) -> usize {
    let Some(first) = groups.first().filter(|first| first.length == 4) else { return 0 };
    let sign = groups.get(1).and_then(|second| second.joined);
    // Digits that continue in groups of the same length are a table.
    let alone = before.map_or(first.begins, |before| before.length != 4);
    let parts = |window: &[DigitGroup], lengths: &[usize]| {
        window.len() == lengths.len()
            && window.iter().zip(lengths).all(|(group, length)| group.length == *length)
            && window.iter().skip(1).all(|group| group.joined == sign)
            && window.last().is_some_and(|last| last.ends)
    };
    let is_number = |window: &[DigitGroup]| {
        let (from, end) = (window.first().map(|one| one.from), window.last().map(|one| one.end));
        let all = text.get(from.unwrap_or_default()..end.unwrap_or_default()).unwrap_or_default();
        let digits: Vec<u8> = all.chars().filter_map(decimal_digit).collect();
        is_card(&digits)
    };
    let mut add = |window: &[DigitGroup]| {
        if let (Some(first), Some(last)) = (window.first(), window.last()) {
            let all = text.get(first.from..last.end).unwrap_or_default();
            let digits: Vec<u8> = all.chars().filter_map(decimal_digit).collect();
            out.push(examples::card(&digits, first.from, last.end));
        }
    };
    if !alone {
        return 0;
    }
    for lengths in PRINTED {
        let window = groups.get(..lengths.len()).unwrap_or_default();
        let goes_on = groups.get(lengths.len()).is_some_and(|next| next.length == 4);
        if parts(window, lengths) && !goes_on && is_number(window) {
            add(window);
            return lengths.len();
        }
    }
    // Several numbers in a row, each with a valid check digit.
    let same = groups.iter().take_while(|group| group.length == 4).count();
    let row = groups.get(..same).unwrap_or_default();
    let numbers = || row.chunks(4);
    if same >= 8
        && same.is_multiple_of(4)
        && numbers().all(|window| parts(window, &[4; 4]) && is_number(window))
    {
        numbers().for_each(&mut add);
    }
    same
}
