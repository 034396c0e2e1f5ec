//! The groups of literals are derived from the patterns: `PORTCULLIS_BLESS=1 cargo nextest run -p detection required` writes
//! them.

use std::cmp::Reverse;
use std::fmt::Write as _;

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::string::string_regex;
use proptest::test_runner::TestRunner;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

use super::{REQUIRED, STORED, possible};
use crate::detect::rules::{RULES, RuleInput};
use crate::detect::{COMPILED, bytewise};

/// How many texts are generated from each pattern.
const TEXTS: usize = 64;
/// Most groups of a rule.
const GROUPS: usize = 3;
/// Most literals of a group, and the least length of each.
const MOST: usize = 48;
const LEAST: usize = 2;

#[test]
fn the_literals_of_every_rule_are_those_of_its_pattern() {
    let mut expected = String::new();
    for rule in &RULES {
        let hir = ParserBuilder::new().utf8(false).build().parse(&bytewise(rule)).unwrap();
        let mut groups = groups(&hir, rule.on);
        groups.retain(|group| group.len() <= MOST && shortest(group) >= LEAST);
        groups.sort_by_key(|group| (Reverse(shortest(group)), group.len(), group.clone()));
        groups.dedup();
        write!(expected, "{}", rule.id).unwrap();
        for group in groups.iter().take(GROUPS) {
            write!(expected, "\t{}", group.join("|")).unwrap();
        }
        expected.push('\n');
    }
    if std::env::var_os("PORTCULLIS_BLESS").is_some() && std::env::var_os("CI").is_none() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/detect/required.tsv");
        std::fs::write(file, &expected).unwrap();
    }
    assert!(STORED == expected, "required.tsv is out of date: run it with PORTCULLIS_BLESS=1");
    assert!(REQUIRED.error().is_none());
}

fn shortest(group: &[String]) -> usize {
    group.iter().map(String::len).min().unwrap_or(0)
}

/// Groups of literals: each match of the pattern contains a literal of each group.
fn groups(hir: &Hir, input: RuleInput) -> Vec<Vec<String>> {
    match hir.kind() {
        HirKind::Literal(literal) => of_literal(&literal.0, input),
        HirKind::Repetition(repeated) if repeated.min > 0 => groups(&repeated.sub, input),
        HirKind::Capture(capture) => groups(&capture.sub, input),
        HirKind::Alternation(branches) => {
            let best = |branch: &Hir| {
                let groups = groups(branch, input);
                groups.into_iter().max_by_key(|group| (shortest(group), usize::MAX - group.len()))
            };
            let all: Option<Vec<Vec<String>>> = branches.iter().map(best).collect();
            all.map(|all| minimal(all.into_iter().flatten().collect())).into_iter().collect()
        }
        HirKind::Concat(parts) => {
            let (mut all, mut run) = (Vec::new(), Vec::new());
            for part in parts {
                match part.kind() {
                    HirKind::Literal(literal) => run.extend_from_slice(&literal.0),
                    // An assertion stands between characters.
                    HirKind::Look(_) | HirKind::Empty => {}
                    HirKind::Class(class) if letter(class, input).is_some() => {
                        run.extend(letter(class, input))
                    }
                    HirKind::Class(_)
                    | HirKind::Repetition(_)
                    | HirKind::Capture(_)
                    | HirKind::Concat(_)
                    | HirKind::Alternation(_) => {
                        all.extend(of_literal(&std::mem::take(&mut run), input));
                        all.extend(groups(part, input));
                    }
                }
            }
            all.extend(of_literal(&run, input));
            all
        }
        HirKind::Class(_) | HirKind::Repetition(_) | HirKind::Look(_) | HirKind::Empty => {
            Vec::new()
        }
    }
}

/// The letter of a class of both of its cases, in lower case.
fn letter(class: &Class, input: RuleInput) -> Option<u8> {
    let ends: Vec<(u32, u32)> = match class {
        Class::Unicode(class) => {
            class.iter().map(|one| (one.start().into(), one.end().into())).collect()
        }
        Class::Bytes(class) => {
            class.iter().map(|one| (one.start().into(), one.end().into())).collect()
        }
    };
    let [(upper, last), (lower, end)] = *ends.as_slice() else { return None };
    let letter = u8::try_from(upper).ok().filter(u8::is_ascii_uppercase)?.to_ascii_lowercase();
    let is_pair = upper == last && lower == end && lower == u32::from(letter);
    (is_pair && input == RuleInput::Text).then_some(letter)
}

/// The group of one literal; none for what is no text or could not be stored.
fn of_literal(literal: &[u8], input: RuleInput) -> Vec<Vec<String>> {
    let Ok(text) = std::str::from_utf8(literal) else { return Vec::new() };
    let pieces = text.split(|c: char| c == '|' || c.is_control());
    let longest = pieces.max_by_key(|piece| piece.len()).filter(|piece| !piece.is_empty());
    let stored = longest.map(|piece| match input {
        RuleInput::Words => piece.to_owned(),
        RuleInput::Text => piece.to_ascii_lowercase(),
    });
    stored.map(|piece| vec![piece]).into_iter().collect()
}

/// The literals in order without those that contain another one.
fn minimal(mut literals: Vec<String>) -> Vec<String> {
    literals.sort_by_key(|literal| (literal.len(), literal.clone()));
    let mut kept: Vec<String> = Vec::new();
    for literal in literals {
        if !kept.iter().any(|one| literal.contains(one.as_str())) {
            kept.push(literal);
        }
    }
    kept.sort_unstable();
    kept
}

/// A text that a pattern matches has the literals of its rule, in either case.
#[test]
fn a_rule_that_matches_is_among_those_that_may() {
    let mut runner = TestRunner::deterministic();
    for (index, rule) in RULES.iter().enumerate() {
        // Boundaries of words cannot be generated: what is matched without them is looked at. Blanks of Unicode are none to
        // patterns of bytes.
        let pattern = rule.pattern.replace(r"\b", "").replace(r"\s", " ");
        let texts = string_regex(&pattern).unwrap();
        let mut matched = 0;
        for _ in 0..TEXTS {
            let text = format!(" {} ", texts.new_tree(&mut runner).unwrap().current());
            if COMPILED.get(index).unwrap().is_match(text.as_bytes()) {
                matched += 1;
                let mut possible = possible(text.as_bytes(), &text);
                assert!(possible.any(|one| one == index), "{}: {text}", rule.id);
            }
        }
        assert!(matched > 0, "nothing is matched by {}", rule.id);
    }
}
