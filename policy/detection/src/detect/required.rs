//! What a text must contain for a rule to match it.
//!
//! `required.tsv` lists for each rule a few groups of literals: every match contains a literal of each group. An ordinary text
//! lacks one of them for most rules, so that those are neither compiled nor run. The file is generated from the
//! patterns by the test below, which compares it.

use aho_corasick::{AhoCorasick, AhoCorasickBuilder};
use policy_core::base::compiled::{CompileResult, Compiled};

use super::rules::{RULES, RuleInput};

/// For each rule a line: its identifier, then groups behind tabs, each of literals between bars.
const STORED: &str = include_str!("required.tsv");
/// A group of a rule, and the bit that it has among those of the rule.
type RuleGroup = (usize, u8);

static REQUIRED: Compiled<Requirements> = Compiled::new(requirements);

struct Requirements {
    words: LiteralTable,
    text: LiteralTable,
    /// For each rule the bits of all its groups.
    groups: Vec<u8>,
}

/// Literals, and the groups that each belongs to.
struct LiteralTable {
    automaton: AhoCorasick,
    of: Vec<Vec<RuleGroup>>,
}

/// The indices of the rules that may match, in order: `words` are the words joined by blanks, `text` the text as it is.
pub(super) fn possible(words: &[u8], text: &str) -> impl Iterator<Item = usize> {
    let required = REQUIRED.get();
    let mut found = [0_u8; RULES.len()];
    if let Some(required) = required {
        required.words.note(words, &mut found);
        required.text.note(text.as_bytes(), &mut found);
    }
    let groups = required.map_or(&[][..], |required| &required.groups);
    let all = groups.iter().zip(found).enumerate();
    all.filter(|(_, (needed, found))| **needed & !*found == 0).map(|(rule, _)| rule)
}

impl LiteralTable {
    /// A table of these literals. Without case, letters of ASCII are found in both cases.
    fn new(mut literals: Vec<(&str, RuleGroup)>, input: RuleInput) -> CompileResult<Self> {
        literals.sort_unstable();
        let (mut texts, mut of): (Vec<&str>, Vec<Vec<RuleGroup>>) = Default::default();
        for (literal, group) in literals {
            match of.last_mut().filter(|_| texts.last() == Some(&literal)) {
                Some(groups) => groups.push(group),
                None => {
                    texts.push(literal);
                    of.push(vec![group]);
                }
            }
        }
        let mut builder = AhoCorasickBuilder::new();
        builder.ascii_case_insensitive(input == RuleInput::Text);
        Ok(Self { automaton: builder.build(texts)?, of })
    }

    /// Adds the groups of each literal in `text` to those of its rule.
    fn note(&self, text: &[u8], found: &mut [u8]) {
        for literal in self.automaton.find_overlapping_iter(text) {
            for (rule, group) in self.of.get(literal.pattern().as_usize()).into_iter().flatten() {
                if let Some(found) = found.get_mut(*rule) {
                    *found |= group;
                }
            }
        }
    }
}

fn requirements() -> CompileResult<Requirements> {
    let (mut words, mut text, mut groups) = (Vec::new(), Vec::new(), Vec::new());
    for (rule, line) in STORED.lines().enumerate() {
        let (id, listed) = line.split_once('\t').unwrap_or((line, ""));
        let of = RULES.get(rule).filter(|of| of.id == id).ok_or("a line of another rule")?;
        let mut bits = 0;
        for (at, group) in listed.split('\t').filter(|group| !group.is_empty()).enumerate() {
            let bit = 1_u8.checked_shl(u32::try_from(at)?).ok_or("too many groups")?;
            bits |= bit;
            let into = if of.on == RuleInput::Words { &mut words } else { &mut text };
            into.extend(group.split('|').map(|literal| (literal, (rule, bit))));
        }
        groups.push(bits);
    }
    if groups.len() != RULES.len() {
        return Err("a rule without a line".into());
    }
    Ok(Requirements {
        words: LiteralTable::new(words, RuleInput::Words)?,
        text: LiteralTable::new(text, RuleInput::Text)?,
        groups,
    })
}

#[cfg(test)]
mod tests;
