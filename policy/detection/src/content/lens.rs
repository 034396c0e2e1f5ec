//! Inspects a single string: reports its findings, and returns the string as it may be shown.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use aho_corasick::AhoCorasick;
use json::coding::{self, sha256};
use json::hex;
use json::pointer::{escaped, unescaped};
use policy_core::base::hidden::{Hidden, TERMINAL, has_any, without_colours};
use policy_core::base::work::{EACH_FOUND, WorkBudget};
use policy_core::subject::pattern::Pattern;

use super::KEPT;
use super::carried::{ComparableText, KeyedHashing, LeakTracker, ShownValue};
use super::directions::{self, SeenTools};
use super::document::{JsonText, ReplaceablePart};
use super::fence::Fence;
use super::handling::{Direction, Handling};
use super::mark::{self, Marks};
use super::members::NamedBy;
use super::order::InjectionVerdict;
use super::planted::PlantedValues;
use super::{encoded, fence, markup, orders, personal};
use crate::inspect::{self, Certainty, Detector};
use crate::secrets;
use crate::secrets::found::{FoundValue, ValueClass};

/// Most passes over one string after the first; a string that needs more was built to need more.
const PASSES: usize = 6;
/// Length from which a word of letters is searched, in bytes: no secret is shorter, an identifier has digits, and an
/// instruction more than a word.
const WORD: usize = 16;
/// Units that one pass costs for each byte of a text without findings.
const PASS: usize = 8;
/// Units that reading a text as JSON costs for each byte.
const READING: usize = 2;
/// Units that a text with its JSON escapes decoded costs for each byte.
const UNESCAPING: usize = 8;
/// The replacement of a text that cannot be sanitised.
const WITHHELD: &str = "[withheld]";

/// The parts of a range that are replaced, so that a text that is JSON remains so.
fn replaceable(json: Option<&JsonText>, text: &str, range: Range<usize>) -> Vec<ReplaceablePart> {
    match json {
        Some(json) => json.parts(text, &range),
        None => vec![ReplaceablePart { at: range, is_number: false }],
    }
}

/// The detector that finds values of a class.
pub(super) const fn detector(class: ValueClass) -> Detector {
    match class {
        ValueClass::Secret => Detector::Secrets,
        ValueClass::Identifier => Detector::Identifiers,
        ValueClass::Contact => Detector::Contacts,
        ValueClass::Canary => Detector::Canaries,
        ValueClass::Honeytoken(_) => Detector::Honeytokens,
        ValueClass::Carried => Detector::CarriedData,
        ValueClass::Field => Detector::SensitiveFields,
        ValueClass::Placeholder => Detector::Placeholders,
    }
}

/// The context in which the strings of one message are inspected.
#[derive(Clone, Copy)]
pub(super) struct StringScan<'a> {
    /// The handling of each detector's findings, in the order of [`Self::DETECTORS`].
    pub(super) handlings: [Handling; 12],
    /// The handling of planted instructions that are only likely.
    pub(super) likely: Handling,
    pub(super) direction: Direction,
    pub(super) allowed: &'a [String],
    /// Hosts that links may lead to; empty: all.
    pub(super) hosts: &'a [Pattern],
    /// Media types that base64 data may have; empty: all.
    pub(super) types: &'a [Pattern],
    /// Whether texts of results are wrapped in a fence.
    pub(super) fences: bool,
    /// The canaries and honeytokens of the policy.
    pub(super) planted: &'a PlantedValues,
    /// The handling of honeytokens, which no profile sets.
    pub(super) honeytokens: Handling,
    /// Values of labelled members that this caller may not see.
    pub(super) labelled: Option<&'a AhoCorasick>,
    pub(super) carried: &'a LeakTracker,
    /// Whether found values are remembered, also those of detectors that are off: they must not be sent to the servers
    /// for which arguments are searched.
    pub(super) remembers: bool,
    pub(super) server: &'a str,
    pub(super) key: &'a [u8; 32],
    pub(super) caller: &'a str,
    /// What the caller sees of the tools that a text names, if that is known.
    pub(super) tools: Option<SeenTools<'a>>,
    /// The name of the member whose value is inspected, if it has one that could announce a secret.
    pub(super) name: Option<&'a str>,
    /// The budget of the inspection.
    pub(super) budget: &'a WorkBudget,
}

/// The outcome of the inspection of one string.
#[derive(Debug, Default)]
pub(super) struct ScanResult {
    pub(super) findings: Vec<(Detector, Handling, Cow<'static, str>)>,
    /// The string as it may be shown, if it was changed.
    pub(super) text: Option<String>,
    /// The score for planted instructions; from 1 on it is taken to give instructions.
    pub(super) score: f32,
    /// The findings that are left in the changed string, with their handling.
    left: Vec<(Detector, Handling)>,
}

impl ScanResult {
    /// Adds a finding, up to the limit for each detector; findings beyond it are acted on, but not reported.
    fn add(&mut self, one: (Detector, Handling, Cow<'static, str>)) {
        if self.findings.iter().filter(|known| known.0 == one.0).count() < KEPT {
            self.findings.push(one);
        }
    }
}

impl<'a> StringScan<'a> {
    /// The context of a value that has this name.
    pub(super) fn for_named<'n>(&self, named: NamedBy<'n>) -> StringScan<'n>
    where
        'a: 'n,
    {
        StringScan { name: named.name(), ..*self }
    }
}

impl StringScan<'_> {
    /// The detectors, in the order of [`Self::handlings`].
    pub(super) const DETECTORS: [Detector; 12] = [
        Detector::HiddenCharacters,
        Detector::ActiveMarkup,
        Detector::Links,
        Detector::Secrets,
        Detector::Identifiers,
        Detector::PlantedInstructions,
        Detector::ToolDirections,
        Detector::Contacts,
        Detector::Placeholders,
        Detector::Canaries,
        Detector::CarriedData,
        Detector::MediaTypes,
    ];

    pub(super) fn how(&self, detector: Detector) -> Handling {
        if detector == Detector::SensitiveFields {
            return Handling::Redact;
        }
        if detector == Detector::Honeytokens {
            return self.honeytokens;
        }
        let known = Self::DETECTORS.iter().zip(self.handlings);
        known
            .into_iter()
            .find(|(known, _)| **known == detector)
            .map_or(Handling::Off, |(_, how)| how)
    }

    /// The context for URIs and media types, which are not followed as links, and get no note or fence.
    pub(super) fn for_places(mut self) -> Self {
        for (detector, handling) in Self::DETECTORS.iter().zip(&mut self.handlings) {
            *handling = match (detector, *handling) {
                (Detector::Links, _) => Handling::Off,
                (_, handling) => handling.without_note(),
            };
        }
        self.likely = self.likely.without_note();
        self
    }

    /// The context for binary data: only values that are unmistakable are searched for.
    pub(super) fn for_values(mut self) -> Self {
        const VALUES: [Detector; 3] =
            [Detector::Secrets, Detector::Canaries, Detector::CarriedData];
        for (detector, handling) in Self::DETECTORS.iter().zip(&mut self.handlings) {
            if !VALUES.contains(detector) {
                *handling = Handling::Off;
            } else if *handling == Handling::Annotate {
                *handling = Handling::Audit;
            }
        }
        self.likely = Handling::Off;
        self
    }

    /// The scan of text that must not be rewritten: where something would be replaced, the message is blocked.
    pub(super) fn strict(mut self) -> Self {
        for handling in &mut self.handlings {
            if *handling == Handling::Redact {
                *handling = Handling::Block;
            }
        }
        self
    }

    /// The context for trace identifiers, in which hexadecimal digits are no identity number and no address.
    pub(super) fn for_traces(mut self) -> Self {
        const OFF: [Detector; 2] = [Detector::Identifiers, Detector::Contacts];
        for (detector, handling) in Self::DETECTORS.iter().zip(&mut self.handlings) {
            if OFF.contains(detector) {
                *handling = Handling::Off;
            }
        }
        self
    }

    /// The context for the data of vendors beside a trace. Numbers of traces look like numbers of cards by chance, so that a
    /// message is not refused for one: the data is left out.
    pub(super) fn for_trace_state(mut self) -> Self {
        const REPLACED: [Detector; 2] = [Detector::Identifiers, Detector::Contacts];
        for (detector, handling) in Self::DETECTORS.iter().zip(&mut self.handlings) {
            if REPLACED.contains(detector) && *handling == Handling::Block {
                *handling = Handling::Redact;
            }
        }
        self
    }

    /// The context without notes and fences.
    pub(super) fn bare(mut self) -> Self {
        self.fences = false;
        for handling in &mut self.handlings {
            *handling = handling.without_note();
        }
        self.likely = self.likely.without_note();
        self
    }

    /// The context for audit records: every value is replaced, and nothing else is changed.
    pub(super) fn recorded(mut self) -> Self {
        let values =
            [Detector::Secrets, Detector::Identifiers, Detector::Contacts, Detector::Canaries];
        let how =
            |detector| if values.contains(&detector) { Handling::Redact } else { Handling::Off };
        self.handlings = Self::DETECTORS.map(how);
        self.honeytokens = Handling::Redact;
        self.remembers = false;
        self
    }

    pub(super) fn of(&self, class: ValueClass) -> Handling {
        self.how(detector(class))
    }

    pub(super) fn is_result(&self) -> bool {
        self.direction == Direction::Result
    }

    /// Inspects one string until another pass changes nothing, because a removal can join the text on both sides of it.
    /// A string that does not converge is withheld.
    pub(super) fn glance(&self, text: &str) -> ScanResult {
        // Text within our own fence was inspected when it was fenced.
        if self.is_result() && self.fence().is_around(text) {
            return ScanResult::default();
        }
        // Our own note is no part of the text behind it.
        let (line, body) = fence::without_note(text);
        let mut seen = self.cleaned(body);
        let now = seen.text.as_deref().unwrap_or(body);
        let note = fence::note(&seen.left);
        let noted = match note.as_deref() {
            Some(note) if note != line => Some(format!("{note}{now}")),
            _ if seen.text.is_some() => Some(format!("{line}{now}")),
            _ => None,
        };
        if seen.left.iter().any(|(_, done)| *done == Handling::Wrap) {
            seen.text = Some(self.fence().around(noted.as_deref().unwrap_or(text)));
        } else {
            seen.text = noted;
        }
        seen
    }

    /// Inspects one string without adding a note or a fence.
    pub(super) fn cleaned(&self, text: &str) -> ScanResult {
        let left = |glance: &ScanResult| glance.findings.iter().map(|one| (one.0, one.1)).collect();
        let mut seen = self.once(text);
        for _ in 0..PASSES {
            let Some(now) = &seen.text else {
                seen.left = left(&seen);
                return seen;
            };
            let mut next = self.once(now);
            if next.text.is_none() {
                seen.left = left(&next);
                // Findings of the last pass that change nothing, but must be acted on.
                let new = next.findings.into_iter().filter(|one| {
                    matches!(one.1, Handling::Block | Handling::Annotate | Handling::Wrap)
                        && !seen.findings.contains(one)
                });
                let new: Vec<_> = new.collect();
                new.into_iter().for_each(|one| seen.add(one));
                return seen;
            }
            seen.score = seen.score.max(next.score);
            next.findings.drain(..).for_each(|one| seen.add(one));
            seen.text = next.text;
        }
        let note = Cow::Borrowed("was made so that cleaning does not end");
        // Reported even beyond the limit of findings.
        seen.findings.push((Detector::HiddenCharacters, Handling::Block, note));
        seen
    }

    fn once(&self, text: &str) -> ScanResult {
        if !self.budget.spend(text.len().saturating_mul(PASS)) || self.is_plain_word(text) {
            return ScanResult::default();
        }
        self.searched(text)
    }

    /// Whether a text is a short word in which no detector finds anything: most names of members are, and many values.
    fn is_plain_word(&self, text: &str) -> bool {
        let has_lists = !self.planted.is_empty() || self.labelled.is_some() || self.seeks();
        text.len() < WORD
            && !has_lists
            && text.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
    }

    /// Inspects one string once.
    fn searched(&self, text: &str) -> ScanResult {
        let mut seen = ScanResult::default();
        // Hidden characters within a word do not split it for a reader.
        let plain = self.plain(text, &mut seen);
        let now = plain.as_ref().map_or(text, |(plain, _)| plain);
        let harmless = self.harmless(now, &mut seen);
        if harmless.is_some() {
            self.note_honeytokens(now, &mut seen);
        }
        let redacted = self.redacted(harmless.as_deref().unwrap_or(now), &mut seen);
        let now = redacted.as_deref().or(harmless.as_deref()).unwrap_or(now);
        let obeyed = self.obeyed(now, &mut seen);
        let redacted = obeyed.or(redacted);
        let strips = self.how(Detector::HiddenCharacters) == Handling::Strip;
        let stripped = || plain.filter(|(_, hidden)| *hidden && strips);
        seen.text = redacted.or(harmless).or_else(|| stripped().map(|(plain, _)| plain));
        seen
    }

    /// Notes the honeytokens in a text of which parts are removed before values are searched.
    fn note_honeytokens(&self, text: &str, seen: &mut ScanResult) {
        if !self.planted.has_honeytokens() {
            return;
        }
        for one in self.planted.find(text.as_bytes()) {
            if matches!(one.class, ValueClass::Honeytoken(_)) {
                seen.add((detector(one.class), self.of(one.class), self.note(&one)));
            }
        }
    }

    /// The text without hidden characters, if it has any; and whether those are more than colours,
    /// which are no finding.
    fn plain(&self, text: &str, seen: &mut ScanResult) -> Option<(String, bool)> {
        if !has_any(text) {
            return None;
        }
        let plain = without_colours(text);
        let Some(note) = inspect::hidden(&plain) else {
            return (plain.len() < text.len()).then(|| (plain.into_owned(), false));
        };
        let handling = self.how(Detector::HiddenCharacters);
        if handling != Handling::Off {
            seen.add((Detector::HiddenCharacters, handling, Cow::Borrowed(note)));
        }
        let without = match TERMINAL.get() {
            Some(terminal) if plain.contains(|c| Hidden::of(c) == Some(Hidden::Control)) => {
                inspect::shown(&terminal.replace_all(&plain, ""))
            }
            _ => inspect::shown(&plain),
        };
        Some((without, true))
    }

    /// The text with active markup and suspicious links removed or defused; `None` if unchanged.
    fn harmless(&self, text: &str, seen: &mut ScanResult) -> Option<String> {
        let (active, links) = (self.how(Detector::ActiveMarkup), self.how(Detector::Links));
        if active == Handling::Off && links == Handling::Off {
            return None;
        }
        let found = markup::find(text, self.hosts, self.budget);
        let removes = |handling| matches!(handling, Handling::Strip | Handling::Redact);
        let json = if removes(active) || removes(links) { self.json(text) } else { None };
        let (mut out, mut done) = (None::<String>, 0);
        for one in &found.matches {
            let (detector, handling) = if one.is_link {
                (Detector::Links, links)
            } else {
                (Detector::ActiveMarkup, active)
            };
            if handling == Handling::Off || one.from < done {
                continue;
            }
            seen.add((detector, handling, Cow::Borrowed(one.note)));
            let range = one.from..one.end;
            let parts = match handling {
                Handling::Strip | Handling::Redact => replaceable(json.as_ref(), text, range),
                Handling::Defang => replaceable(None, text, range),
                Handling::Off
                | Handling::Audit
                | Handling::Annotate
                | Handling::Wrap
                | Handling::Block => continue,
            };
            for at in parts.into_iter().filter(|part| !part.is_number).map(|part| part.at) {
                let what = text.get(at.clone()).unwrap_or_default();
                let instead = match handling {
                    // A blank, so that the text on both sides of the match does not become one word.
                    Handling::Strip => Cow::Borrowed(" "),
                    Handling::Redact => Cow::Owned(self.mark("link", what)),
                    Handling::Off
                    | Handling::Audit
                    | Handling::Annotate
                    | Handling::Wrap
                    | Handling::Defang
                    | Handling::Block => Cow::Owned(found.defanged(one, what)),
                };
                let out = out.get_or_insert_with(|| String::with_capacity(text.len()));
                out.push_str(text.get(done..at.start).unwrap_or_default());
                out.push_str(&instead);
                done = at.end;
            }
        }
        let mut out = out?;
        out.push_str(text.get(done..).unwrap_or_default());
        Some(out)
    }

    /// The text with found values replaced; `None` if unchanged.
    fn redacted(&self, text: &str, seen: &mut ScanResult) -> Option<String> {
        let mut json = self.json(text);
        let mut found = self.outside_marks(text, json.as_ref());
        if !self.budget.spend(found.len().saturating_mul(EACH_FOUND)) {
            return None;
        }
        // Hidden characters must not keep a value from being found, even where they are permitted.
        let bare = has_any(text)
            .then(|| -> String { text.chars().filter(|c| Hidden::of(*c).is_none()).collect() });
        let mut text = text;
        if let Some(bare) = bare.as_deref().filter(|bare| bare.len() < text.len()) {
            let json_of_bare = self.json(bare);
            let of_bare = self.outside_marks(bare, json_of_bare.as_ref());
            if of_bare.len() > found.len() {
                (text, found, json) = (bare, of_bare, json_of_bare);
            }
        }
        if found.is_empty() {
            return None;
        }
        self.remember(text, &mut found);
        // Of two overlapping findings, the one with the stricter handling counts. A honeytoken can look like a secret, and
        // who sends it is locked.
        found.sort_by_key(|one| {
            let is_planted = matches!(one.class, ValueClass::Honeytoken(_));
            let handling = std::cmp::Reverse(self.of(one.class));
            (!is_planted, handling, one.from, std::cmp::Reverse(one.end))
        });
        let mut kept: BTreeMap<usize, FoundValue> = BTreeMap::new();
        for one in found {
            let before = kept.range(..one.end).next_back();
            if before.is_none_or(|(_, known)| known.end <= one.from) {
                kept.insert(one.from, one);
            }
        }
        let (mut out, mut done, mut changed) = (String::with_capacity(text.len()), 0, false);
        for one in kept.into_values() {
            let handling = self.of(one.class);
            seen.add((detector(one.class), handling, self.note(&one)));
            if handling != Handling::Redact {
                continue;
            }
            for part in replaceable(json.as_ref(), text, one.from..one.end) {
                // Two values can have an escape or a number in common.
                let at = part.at.start.max(done)..part.at.end;
                if at.is_empty() {
                    continue;
                }
                out.push_str(text.get(done..at.start).unwrap_or_default());
                let mark = self.mark(one.rule, text.get(at.clone()).unwrap_or_default());
                let quote = if part.is_number { "\"" } else { "" };
                out.extend([quote, &mark, quote]);
                (done, changed) = (at.end, true);
            }
        }
        out.push_str(text.get(done..).unwrap_or_default());
        changed.then_some(out)
    }

    /// The values in a text outside our own marks: a mark describes a value, and is none.
    fn outside_marks(&self, text: &str, json: Option<&JsonText>) -> Vec<FoundValue> {
        let marks = Marks::in_text(text);
        let mut found = self.all(&marks.masked(text));
        if let Some(json) = json.filter(|_| self.looks_for_secrets()) {
            let mut find = |name: &str, value: &str, found: &mut Vec<FoundValue>| {
                secrets::find_named(name, &Marks::in_text(value).masked(value), found);
            };
            let named = json.named(&mut find).into_iter();
            found.extend(named.filter(|one| self.keeps(text, one)));
        }
        if let Some(json) = json.filter(|_| !self.planted.is_empty()) {
            for (at, decoded) in json.escaped(text) {
                let planted = self.planted.find(decoded.as_bytes()).into_iter();
                found.extend(planted.map(|one| FoundValue { from: at.start, end: at.end, ..one }));
            }
        }
        let found = found.into_iter();
        let parts = |one: FoundValue| {
            let parts = marks.around(text, one.from..one.end).into_iter();
            parts.map(move |part| FoundValue { from: part.start, end: part.end, ..one })
        };
        found.flat_map(parts).collect()
    }

    /// All values in a text that are searched for.
    fn all(&self, text: &str) -> Vec<FoundValue> {
        let (mut found, on) = (Vec::new(), |detector| self.how(detector) != Handling::Off);
        let carries = self.carries();
        if self.looks_for_secrets() {
            secrets::find(text, &mut found);
            // A position in a list may be JSON in base64, as some tokens are.
            if !found.is_empty() && self.name.is_some_and(secrets::names_no_secret) {
                found.retain(|one| one.rule != secrets::ENCODED_TOKEN);
            }
        }
        let persons = on(Detector::Identifiers) || on(Detector::Contacts);
        if persons || on(Detector::Placeholders) || carries {
            personal::find(text, &mut found);
        }
        if let Some(name) = self.name {
            if self.looks_for_secrets() {
                secrets::find_named(name, text, &mut found);
            }
            if persons || carries {
                personal::find_named(name, text, &mut found);
            }
        }
        if persons || on(Detector::Secrets) || carries || !self.planted.is_empty() {
            let recall = |text: &str, found: &mut Vec<FoundValue>| self.recall(text, found);
            let recall: Option<encoded::Recall<'_>> = if carries { Some(&recall) } else { None };
            let with =
                encoded::DecodeContext { planted: self.planted, budget: self.budget, recall };
            encoded::find(text, with, &mut found);
        }
        self.sought(text, &mut found);
        self.listed(text, &mut found);
        self.escaped(text, &mut found);
        found.retain(|one| self.keeps(text, one));
        found
    }

    /// Appends the values that are whole only when the escapes of JSON are decoded: writers of JSON escape `&`, `/` or letters
    /// outside ASCII in different ways.
    fn escaped(&self, text: &str, found: &mut Vec<FoundValue>) {
        let is_sought =
            self.looks_for_secrets() || self.labelled.is_some() || !self.planted.is_empty();
        if !is_sought || memchr::memchr(b'\\', text.as_bytes()).is_none() {
            return;
        }
        let Some((plain, places)) = coding::json_unescaped(text) else { return };
        if !self.budget.spend(text.len().saturating_mul(UNESCAPING)) {
            return;
        }
        let mut decoded = Vec::new();
        if self.looks_for_secrets() {
            secrets::find(&plain, &mut decoded);
        }
        self.listed(&plain, &mut decoded);
        // What is found without decoding is not found twice.
        let known: BTreeSet<_> = found.iter().map(|one| (one.from, one.end)).collect();
        let in_text = |at: usize| usize::try_from(*places.get(at)?).ok();
        found.extend(decoded.into_iter().filter_map(|one| {
            let (from, end) = (in_text(one.from)?, in_text(one.end)?);
            (!known.contains(&(from, end))).then_some(FoundValue { from, end, ..one })
        }));
    }

    /// Whether values are searched for the servers that they must not be sent to, or from which they came.
    fn carries(&self) -> bool {
        self.how(Detector::CarriedData) != Handling::Off || self.remembers
    }

    fn looks_for_secrets(&self) -> bool {
        let on = |detector| self.how(detector) != Handling::Off;
        on(Detector::Secrets) || on(Detector::Placeholders) || self.carries()
    }

    /// Whether a value is one that is acted on or remembered.
    fn keeps(&self, text: &str, one: &FoundValue) -> bool {
        let carried =
            self.carries() && !matches!(one.class, ValueClass::Contact | ValueClass::Placeholder);
        (self.how(detector(one.class)) != Handling::Off || carried) && !self.allows(text, one)
    }

    /// The JSON values that a text consists of, if it does and something in it can be found by its name or replaced.
    fn json(&self, text: &str) -> Option<JsonText> {
        let begins = text.trim_start().starts_with(['{', '[', '"', '`', '~', '/', '#', '\u{feff}']);
        let read = begins && self.budget.spend(text.len().saturating_mul(READING));
        if read { JsonText::of(text) } else { None }
    }

    /// The secret that a number is because of its name; `None` if it is none.
    pub(super) fn named_number(&self, raw: &str) -> Option<FoundValue> {
        let name = self.name.filter(|_| self.looks_for_secrets())?;
        let mut found = Vec::new();
        secrets::find_named(name, raw, &mut found);
        let found = found.into_iter().find(|one| one.end - one.from == raw.len())?;
        let found = self.counted(found, raw);
        (self.of(found.class) != Handling::Off && !self.allows(raw, &found)).then_some(found)
    }

    /// Whether a text itself contains a value, without decoding.
    pub(super) fn is_value(&self, text: &str) -> bool {
        let mut found = Vec::new();
        if self.how(Detector::Secrets) != Handling::Off {
            secrets::find(text, &mut found);
            found.retain(|one| one.class == ValueClass::Secret);
        }
        self.listed(text, &mut found);
        !found.is_empty()
    }

    /// Appends the values that are known individually: planted ones, and values of labelled members.
    fn listed(&self, text: &str, found: &mut Vec<FoundValue>) {
        found.extend(self.planted.find(text.as_bytes()));
        let places = self.labelled.into_iter().flat_map(|values| values.find_iter(text));
        let (class, rule) = (ValueClass::Field, "sensitive-field");
        found.extend(places.map(|one| FoundValue::new(class, rule, one.start(), one.end())));
    }

    /// What a finding says of a value: its rule, or the name of the honeytoken.
    pub(super) fn note(&self, found: &FoundValue) -> Cow<'static, str> {
        if let ValueClass::Honeytoken(number) = found.class {
            return Cow::Owned(self.planted.name(number).to_owned());
        }
        Cow::Borrowed(found.rule)
    }

    /// A value that was found in a number, in the class that it has here.
    pub(super) fn counted(&self, found: FoundValue, digits: &str) -> FoundValue {
        let mut all = vec![found];
        self.remember(digits, &mut all);
        all.pop().unwrap_or(found)
    }

    /// The handling of carried data in decoded text: values that a server shows are remembered, and values from another
    /// server are found in what is sent.
    pub(super) fn recall(&self, text: &str, found: &mut Vec<FoundValue>) {
        self.sought(text, found);
        self.remember(text, found);
    }

    /// The value from another server that the digits are; `None` if they are none.
    pub(super) fn known(&self, digits: &str) -> Option<FoundValue> {
        let mut found = Vec::new();
        self.sought(digits, &mut found);
        found.into_iter().find(|one| !self.allows(digits, one))
    }

    /// Whether the message is searched for values from other servers, and there are any.
    pub(super) fn seeks(&self) -> bool {
        let is_on = !self.is_result() && self.of(ValueClass::Carried) != Handling::Off;
        is_on && self.carried.sought(self.caller).is_some()
    }

    /// Appends the values from other servers that occur in what is sent, also where no detector would find them.
    pub(super) fn sought(&self, text: &str, found: &mut Vec<FoundValue>) {
        if self.is_result() || self.of(ValueClass::Carried) == Handling::Off {
            return;
        }
        let Some(sought) = self.carried.sought(self.caller) else { return };
        let places =
            self.hashed(|hashing| sought.find(text, self.server, hashing, self.budget)).into_iter();
        let places = places
            .map(|(rule, place)| FoundValue::new(ValueClass::Carried, rule, place.start, place.end))
            .filter(|one| !self.allows(text, one));
        found.extend(places);
    }

    /// Remembers the values that this caller is shown; in arguments, marks the values from other servers.
    fn remember(&self, text: &str, found: &mut Vec<FoundValue>) {
        if self.is_result() {
            for one in found.iter().filter(|_| self.remembers) {
                let shown = !matches!(self.of(one.class), Handling::Redact | Handling::Block);
                if let Some(value) = self.value(text, one).filter(|_| shown) {
                    self.carried.keep(self.caller, self.server, value);
                }
            }
            found.retain(|one| self.of(one.class) != Handling::Off);
            return;
        }
        let mut carried = Vec::new();
        found.retain(|one| {
            let theirs = || {
                self.value(text, one).is_some_and(|value| {
                    self.carried.is_of_another(self.caller, self.server, &value)
                })
            };
            if self.of(ValueClass::Carried) != Handling::Off && theirs() {
                carried.push(FoundValue { class: ValueClass::Carried, ..*one });
            }
            self.of(one.class) != Handling::Off
        });
        found.append(&mut carried);
    }

    /// The text without planted instructions and without directions to tools of other servers; `None` if
    /// unchanged.
    fn obeyed(&self, text: &str, seen: &mut ScanResult) -> Option<String> {
        let tools = self.tools.filter(|_| self.is_result());
        let orders = |text: &str| orders::find(text, tools, self.budget);
        let left = self.unordered(text, Detector::PlantedInstructions, seen, orders);
        let Some(others) = tools.and_then(|tools| tools.others) else { return left };
        let directions = |text: &str| directions::find(text, others, self.budget);
        let now = left.as_deref().unwrap_or(text);
        self.unordered(now, Detector::ToolDirections, seen, directions).or(left)
    }

    /// The text without what a detector takes for instructions; `None` if unchanged.
    fn unordered(
        &self,
        text: &str,
        detector: Detector,
        seen: &mut ScanResult,
        find: impl FnOnce(&str) -> Option<InjectionVerdict>,
    ) -> Option<String> {
        let handling = self.how(detector);
        if handling == Handling::Off {
            return None;
        }
        let marks = Marks::in_text(text);
        let masked = marks.masked(text);
        let order = find(&masked)?;
        seen.score = seen.score.max(order.value());
        if !order.is_one() {
            return None;
        }
        let handling = match order.certainty {
            Certainty::Certain => handling,
            // A note in front of it would break a text that is a document.
            Certainty::Likely if text.trim_start().starts_with(['{', '[']) => {
                self.likely.without_note()
            }
            Certainty::Likely => self.likely,
        };
        seen.add((detector, handling, Cow::Borrowed(order.note)));
        if handling != Handling::Redact {
            return None;
        }
        let (mut out, mut done) = (String::with_capacity(text.len()), 0);
        let json = self.json(text);
        let places = order.places(&masked).into_iter();
        let places = places.flat_map(|place| marks.around(text, place));
        for place in places.flat_map(|place| replaceable(json.as_ref(), text, place)) {
            // A number gives no instruction.
            let at = place.at.start.max(done)..place.at.end;
            if place.is_number || at.is_empty() {
                continue;
            }
            out.push_str(text.get(done..at.start)?);
            out.push_str(&self.mark("instructions", text.get(at.clone())?));
            done = at.end;
        }
        if done == 0 {
            return None;
        }
        out.push_str(text.get(done..)?);
        Some(out)
    }

    fn allows(&self, text: &str, one: &FoundValue) -> bool {
        if self.allowed.is_empty() {
            return false;
        }
        let value = text.get(one.from..one.end).unwrap_or_default();
        let digest = hex::encode(&sha256([value.as_bytes()]));
        self.allowed
            .iter()
            .any(|allowed| allowed.len() >= 16 && digest.starts_with(allowed.as_str()))
    }

    /// The mark of a value: its rule, and the same letters for the same value and caller.
    pub(super) fn mark(&self, rule: &str, value: &str) -> String {
        mark::of(rule, &self.digest(value))
    }

    /// A place without secrets, for reports and records: the name of a member can be one.
    pub(super) fn place(&self, at: &str) -> String {
        let shown = |part: &str| escaped(&self.told(&unescaped(part))).into_owned();
        at.split('/').map(shown).collect::<Vec<_>>().join("/")
    }

    /// A text without any value, for reports and records.
    pub(super) fn told(&self, text: &str) -> String {
        let glance = self.recorded().cleaned(text);
        let blocked = glance.findings.iter().any(|(_, done, _)| *done == Handling::Block);
        // Fails closed: a text that was not inspected to its end is withheld.
        if blocked || self.budget.is_exhausted() {
            return WITHHELD.to_owned();
        }
        glance.text.unwrap_or_else(|| text.to_owned())
    }

    /// A found value as it is remembered, independent of its grouping; `None` for a value that is neither a secret nor
    /// an identity number.
    fn value(&self, text: &str, one: &FoundValue) -> Option<ShownValue> {
        let kept = matches!(one.class, ValueClass::Secret | ValueClass::Identifier);
        let value = text.get(one.from..one.end).filter(|_| kept && !self.allows(text, one))?;
        let letters = ComparableText::of(value);
        let has_any = !letters.as_bytes().is_empty();
        has_any.then(|| self.hashed(|hashing| ShownValue::new(&letters, one.rule, hashing)))
    }

    /// Calls `with` with the keyed hash functions for this caller's values.
    fn hashed<T>(&self, with: impl FnOnce(&KeyedHashing<'_>) -> T) -> T {
        let caller = self.caller.as_bytes();
        let digest = |letters: &[u8]| sha256([&self.key[..], b"carried", caller, &[0], letters]);
        let random = sha256([&self.key[..], b"windows", caller]);
        let mut numbers = random
            .chunks_exact(8)
            .map(|bytes| u64::from_be_bytes(bytes.first_chunk().copied().unwrap_or_default()));
        let key = [numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()];
        with(&KeyedHashing { digest: &digest, key })
    }

    /// The fence for texts of this server to this caller.
    pub(super) fn fence(&self) -> Fence<'_> {
        Fence { key: self.key, server: self.server, caller: self.caller }
    }

    /// The keyed digest by which a value is recognised for this caller only.
    fn digest(&self, value: &str) -> Vec<u8> {
        sha256([self.key, self.caller.as_bytes(), &[0], value.as_bytes()])
    }
}
