//! One string: what is found in it, and the string as it may be shown.

use std::borrow::Cow;
use std::collections::BTreeMap;

use aho_corasick::AhoCorasick;

use super::KEPT;
use super::carried::{Carried, Hashing, Letters, ShownValue};
use super::directions::{self, SeenTools};
use super::fence::Fence;
use super::found::{Class, Found};
use super::handling::{Direction, Handling};
use super::mark::{self, Marks};
use super::order::Order;
use super::{encoded, fence, markup, orders, personal, secrets};
use crate::coding::{hex, sha256};
use crate::hidden::{Hidden, TERMINAL, has_any, without_colours};
use crate::inspect::{self, Detector};
use crate::pattern::Pattern;
use crate::pointer::{escaped, unescaped};
use crate::work::{Budget, EACH_FOUND};

/// Most passes over one string after the first: what takes more was made to take more.
const PASSES: usize = 6;
/// What one pass costs for each byte of a text in which nothing is found, in units.
const PASS: usize = 8;
/// What stands for a text that cannot be told.
const WITHHELD: &str = "[withheld]";

/// With what a string is looked at.
#[derive(Clone, Copy)]
pub(super) struct Lens<'a> {
    /// What is done about what each detector finds, in the order of [`Self::DETECTORS`].
    pub(super) handlings: [Handling; 11],
    pub(super) direction: Direction,
    pub(super) allowed: &'a [String],
    /// Hosts that links may lead to; empty: all.
    pub(super) hosts: &'a [Pattern],
    /// Types that may be carried in base64; empty: all.
    pub(super) types: &'a [Pattern],
    /// Whether texts of results are put between marks.
    pub(super) fences: bool,
    pub(super) canaries: Option<&'a AhoCorasick>,
    /// Values that are labelled, which this caller does not see.
    pub(super) labelled: Option<&'a AhoCorasick>,
    pub(super) carried: &'a Carried,
    /// Whether what is found is kept in mind, also by detectors that are off: it may not go to servers
    /// for which it is searched.
    pub(super) remembers: bool,
    pub(super) server: &'a str,
    pub(super) key: &'a [u8; 32],
    pub(super) caller: &'a str,
    /// What its reader sees of the tools that are named, where that is known.
    pub(super) tools: Option<SeenTools<'a>>,
    /// What looking may cost.
    pub(super) budget: &'a Budget,
}

/// What one string is.
#[derive(Debug, Default)]
pub(super) struct Glance {
    pub(super) findings: Vec<(Detector, Handling, Cow<'static, str>)>,
    /// As it may be shown, if that is not as it came.
    pub(super) text: Option<String>,
    /// How much it looks like orders; from 1 on it is taken for that.
    pub(super) score: f32,
    /// What is still in it then, and what is done about that.
    left: Vec<(Detector, Handling)>,
}

impl Glance {
    /// Adds a finding, if there is room: so many of each detector are told, and all are acted on.
    fn add(&mut self, one: (Detector, Handling, Cow<'static, str>)) {
        if self.findings.iter().filter(|known| known.0 == one.0).count() < KEPT {
            self.findings.push(one);
        }
    }
}

impl Lens<'_> {
    /// Where in [`Self::handlings`] it stands.
    pub(super) const DETECTORS: [Detector; 11] = [
        Detector::HiddenCharacters,
        Detector::ActiveMarkup,
        Detector::Links,
        Detector::Secrets,
        Detector::Identifiers,
        Detector::PlantedInstructions,
        Detector::ToolDirections,
        Detector::Contacts,
        Detector::Canaries,
        Detector::CarriedData,
        Detector::MediaTypes,
    ];

    pub(super) fn how(&self, detector: Detector) -> Handling {
        if detector == Detector::SensitiveFields {
            return Handling::Redact;
        }
        let known = Self::DETECTORS.iter().zip(self.handlings);
        known
            .into_iter()
            .find(|(known, _)| **known == detector)
            .map_or(Handling::Off, |(_, how)| how)
    }

    /// The same for what says where something is or of which type: it is not taken for a link that is
    /// followed, and nothing is put before or around it.
    pub(super) fn for_places(mut self) -> Self {
        for (detector, handling) in Self::DETECTORS.iter().zip(&mut self.handlings) {
            *handling = match (detector, *handling) {
                (Detector::Links, _) => Handling::Off,
                (_, Handling::Annotate | Handling::Wrap) => Handling::Audit,
                (_, handling) => handling,
            };
        }
        self
    }

    /// The same for bytes that are no text: only values that stand for themselves are looked for.
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
        self
    }

    /// The same for text that is not rewritten: what would be replaced in it blocks the message.
    pub(super) fn strict(mut self) -> Self {
        for handling in &mut self.handlings {
            if *handling == Handling::Redact {
                *handling = Handling::Block;
            }
        }
        self
    }

    /// The same for identifiers of traces: a hexadecimal number is nobody's number or address.
    pub(super) fn for_traces(mut self) -> Self {
        const OFF: [Detector; 2] = [Detector::Identifiers, Detector::Contacts];
        for (detector, handling) in Self::DETECTORS.iter().zip(&mut self.handlings) {
            if OFF.contains(detector) {
                *handling = Handling::Off;
            }
        }
        self
    }

    /// The same with nothing put before or around anything.
    pub(super) fn bare(mut self) -> Self {
        self.fences = false;
        for handling in &mut self.handlings {
            if matches!(handling, Handling::Annotate | Handling::Wrap) {
                *handling = Handling::Audit;
            }
        }
        self
    }

    /// The same for what is written down: every value is replaced, and nothing else is touched.
    pub(super) fn recorded(mut self) -> Self {
        let values =
            [Detector::Secrets, Detector::Identifiers, Detector::Contacts, Detector::Canaries];
        let how =
            |detector| if values.contains(&detector) { Handling::Redact } else { Handling::Off };
        self.handlings = Self::DETECTORS.map(how);
        self.remembers = false;
        self
    }

    pub(super) fn of(&self, class: Class) -> Handling {
        self.how(class.detector())
    }

    pub(super) fn is_result(&self) -> bool {
        self.direction == Direction::Result
    }

    /// Looks at one string, until there is nothing left to be taken out: that can join what stood
    /// apart. What does not come to an end is withheld.
    pub(super) fn glance(&self, text: &str) -> Glance {
        // What stands between our own marks was looked at when they were set.
        if self.is_result() && self.fence().is_around(text) {
            return Glance::default();
        }
        // A line of ours says nothing new about what stands behind it.
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

    /// The same, with nothing put before or around it.
    pub(super) fn cleaned(&self, text: &str) -> Glance {
        let left = |glance: &Glance| glance.findings.iter().map(|one| (one.0, one.1)).collect();
        let mut seen = self.once(text);
        for _ in 0..PASSES {
            let Some(now) = &seen.text else {
                seen.left = left(&seen);
                return seen;
            };
            let mut next = self.once(now);
            if next.text.is_none() {
                seen.left = left(&next);
                // What is only found now, and may not be shown as it is.
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
        // Beyond all bounds: this one is always told.
        seen.findings.push((Detector::HiddenCharacters, Handling::Block, note));
        seen
    }

    fn once(&self, text: &str) -> Glance {
        let mut seen = Glance::default();
        if !self.budget.spend(text.len().saturating_mul(PASS)) {
            return seen;
        }
        // What is split by what is not shown is one word to who reads it.
        let plain = self.plain(text, &mut seen);
        let now = plain.as_ref().map_or(text, |(plain, _)| plain);
        let harmless = self.harmless(now, &mut seen);
        let redacted = self.redacted(harmless.as_deref().unwrap_or(now), &mut seen);
        let now = redacted.as_deref().or(harmless.as_deref()).unwrap_or(now);
        let obeyed = self.obeyed(now, &mut seen);
        let redacted = obeyed.or(redacted);
        let strips = self.how(Detector::HiddenCharacters) == Handling::Strip;
        let stripped = || plain.filter(|(_, hidden)| *hidden && strips);
        seen.text = redacted.or(harmless).or_else(|| stripped().map(|(plain, _)| plain));
        seen
    }

    /// The text without what is not shown, if there is any; and whether that is more than colours,
    /// which are no finding.
    fn plain(&self, text: &str, seen: &mut Glance) -> Option<(String, bool)> {
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
        let without = match TERMINAL.as_ref() {
            Some(terminal) if plain.contains(|c| Hidden::of(c) == Some(Hidden::Control)) => {
                inspect::shown(&terminal.replace_all(&plain, ""))
            }
            _ => inspect::shown(&plain),
        };
        Some((without, true))
    }

    /// The text with markup and links that do nothing, if they do anything.
    fn harmless(&self, text: &str, seen: &mut Glance) -> Option<String> {
        let (active, links) = (self.how(Detector::ActiveMarkup), self.how(Detector::Links));
        if active == Handling::Off && links == Handling::Off {
            return None;
        }
        let found = markup::find(text, self.hosts, self.budget);
        let (mut out, mut done) = (None::<String>, 0);
        for one in found {
            let (detector, handling) = if one.is_link {
                (Detector::Links, links)
            } else {
                (Detector::ActiveMarkup, active)
            };
            if handling == Handling::Off || one.from < done {
                continue;
            }
            seen.add((detector, handling, Cow::Borrowed(one.note)));
            let what = text.get(one.from..one.end).unwrap_or_default();
            let instead = match handling {
                // A blank, so that what stood apart does not become one word.
                Handling::Strip => Cow::Borrowed(" "),
                Handling::Defang => Cow::Owned(markup::defanged(&one, what)),
                Handling::Redact => Cow::Owned(self.mark("link", what)),
                Handling::Off
                | Handling::Audit
                | Handling::Annotate
                | Handling::Wrap
                | Handling::Block => continue,
            };
            let out = out.get_or_insert_with(|| String::with_capacity(text.len()));
            out.push_str(text.get(done..one.from).unwrap_or_default());
            out.push_str(&instead);
            done = one.end;
        }
        let mut out = out?;
        out.push_str(text.get(done..).unwrap_or_default());
        Some(out)
    }

    /// The text without what is nobody's business, if there is any and it is to be replaced.
    fn redacted(&self, text: &str, seen: &mut Glance) -> Option<String> {
        let mut found = self.outside_marks(text);
        if !self.budget.spend(found.len().saturating_mul(EACH_FOUND)) {
            return None;
        }
        // Nothing that is not shown keeps a value from being one, also where it may stay.
        let bare = has_any(text)
            .then(|| -> String { text.chars().filter(|c| Hidden::of(*c).is_none()).collect() });
        let mut text = text;
        if let Some(bare) = bare.as_deref().filter(|bare| bare.len() < text.len()) {
            let of_bare = self.outside_marks(bare);
            if of_bare.len() > found.len() {
                (text, found) = (bare, of_bare);
            }
        }
        if found.is_empty() {
            return None;
        }
        self.remember(text, &mut found);
        // Where two overlap, the one counts about which more is done.
        found.sort_by_key(|one| {
            (std::cmp::Reverse(self.of(one.class)), one.from, std::cmp::Reverse(one.end))
        });
        let mut kept: BTreeMap<usize, Found> = BTreeMap::new();
        for one in found {
            let before = kept.range(..one.end).next_back();
            if before.is_none_or(|(_, known)| known.end <= one.from) {
                kept.insert(one.from, one);
            }
        }
        let (mut out, mut done, mut changed) = (String::with_capacity(text.len()), 0, false);
        for one in kept.into_values() {
            let handling = self.of(one.class);
            seen.add((one.class.detector(), handling, Cow::Borrowed(one.rule)));
            let value = text.get(one.from..one.end).unwrap_or_default();
            out.push_str(text.get(done..one.from).unwrap_or_default());
            if handling == Handling::Redact {
                out.push_str(&self.mark(one.rule, value));
                changed = true;
            } else {
                out.push_str(value);
            }
            done = one.end;
        }
        out.push_str(text.get(done..).unwrap_or_default());
        changed.then_some(out)
    }

    /// The same without our own marks: a mark says what stood there, and is no value.
    fn outside_marks(&self, text: &str) -> Vec<Found> {
        let marks = Marks::in_text(text);
        let found = self.all(&marks.masked(text)).into_iter();
        let parts = |one: Found| {
            let parts = marks.around(text, one.from..one.end).into_iter();
            parts.map(move |part| Found { from: part.start, end: part.end, ..one })
        };
        found.flat_map(parts).collect()
    }

    /// Everything that is found in a text and looked for.
    fn all(&self, text: &str) -> Vec<Found> {
        let (mut found, on) = (Vec::new(), |detector| self.how(detector) != Handling::Off);
        let carries = on(Detector::CarriedData) || self.remembers;
        if on(Detector::Secrets) || carries {
            secrets::find(text, &mut found);
        }
        let persons = on(Detector::Identifiers) || on(Detector::Contacts);
        if persons || carries {
            personal::find(text, &mut found);
        }
        if persons || on(Detector::Secrets) || carries || self.canaries.is_some() {
            let recall = |text: &str, found: &mut Vec<Found>| self.recall(text, found);
            let recall: Option<encoded::Recall<'_>> = if carries { Some(&recall) } else { None };
            let with = encoded::DecodeWith { canaries: self.canaries, budget: self.budget, recall };
            encoded::find(text, with, &mut found);
        }
        self.sought(text, &mut found);
        self.listed(text, &mut found);
        found.retain(|one| {
            let carried = carries && one.class != Class::Contact;
            (on(one.class.detector()) || carried) && !self.allows(text, one)
        });
        found
    }

    /// Whether something in a text is a value as it stands, without anything being decoded.
    pub(super) fn is_value(&self, text: &str) -> bool {
        let mut found = Vec::new();
        if self.how(Detector::Secrets) != Handling::Off {
            secrets::find(text, &mut found);
        }
        self.listed(text, &mut found);
        !found.is_empty()
    }

    /// Adds the values that are known one by one: canaries, and what is labelled.
    fn listed(&self, text: &str, found: &mut Vec<Found>) {
        for (values, class, rule) in [
            (self.canaries, Class::Canary, "canary"),
            (self.labelled, Class::Field, "sensitive-field"),
        ] {
            let places = values.into_iter().flat_map(|values| values.find_iter(text));
            found.extend(places.map(|one| Found::new(class, rule, one.start(), one.end())));
        }
    }

    /// A number that is found, as what it counts for here.
    pub(super) fn counted(&self, found: Found, digits: &str) -> Found {
        let mut all = vec![found];
        self.remember(digits, &mut all);
        all.pop().unwrap_or(found)
    }

    /// What counts for carried data in a text that was decoded: what is found in it is kept in mind where a
    /// server shows it, and what another server gave is found again where it is sent.
    pub(super) fn recall(&self, text: &str, found: &mut Vec<Found>) {
        self.sought(text, found);
        self.remember(text, found);
    }

    /// What another server gave this caller, as a number that a text is.
    pub(super) fn known(&self, digits: &str) -> Option<Found> {
        let mut found = Vec::new();
        self.sought(digits, &mut found);
        found.into_iter().find(|one| !self.allows(digits, one))
    }

    /// Whether what is sent is searched for what other servers gave, and they gave anything.
    pub(super) fn seeks(&self) -> bool {
        let is_on = !self.is_result() && self.of(Class::Carried) != Handling::Off;
        is_on && self.carried.sought(self.caller).is_some()
    }

    /// Finds in what is sent what another server gave, also where no detector would find it.
    pub(super) fn sought(&self, text: &str, found: &mut Vec<Found>) {
        if self.is_result() || self.of(Class::Carried) == Handling::Off {
            return;
        }
        let Some(sought) = self.carried.sought(self.caller) else { return };
        let places =
            self.hashed(|hashing| sought.find(text, self.server, hashing, self.budget)).into_iter();
        let places = places
            .map(|(rule, place)| Found::new(Class::Carried, rule, place.start, place.end))
            .filter(|one| !self.allows(text, one));
        found.extend(places);
    }

    /// Keeps in mind what this caller is shown, and finds again in arguments what another server gave.
    fn remember(&self, text: &str, found: &mut Vec<Found>) {
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
            if self.of(Class::Carried) != Handling::Off && theirs() {
                carried.push(Found { class: Class::Carried, ..*one });
            }
            self.of(one.class) != Handling::Off
        });
        found.append(&mut carried);
    }

    /// The text without what gives orders or directs to tools of other servers, if there is any and it is
    /// to be taken out.
    fn obeyed(&self, text: &str, seen: &mut Glance) -> Option<String> {
        let tools = self.tools.filter(|_| self.is_result());
        let orders = |text: &str| orders::find(text, tools, self.budget);
        let left = self.unordered(text, Detector::PlantedInstructions, seen, orders);
        let Some(others) = tools.and_then(|tools| tools.others) else { return left };
        let directions = |text: &str| directions::find(text, others, self.budget);
        let now = left.as_deref().unwrap_or(text);
        self.unordered(now, Detector::ToolDirections, seen, directions).or(left)
    }

    /// The text without what a detector takes for orders, if it is to be taken out.
    fn unordered(
        &self,
        text: &str,
        detector: Detector,
        seen: &mut Glance,
        find: impl FnOnce(&str) -> Option<Order>,
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
        seen.add((detector, handling, Cow::Borrowed(order.note)));
        if handling != Handling::Redact {
            return None;
        }
        let (mut out, mut done) = (String::with_capacity(text.len()), 0);
        let places = order.places(&masked).into_iter();
        for place in places.flat_map(|place| marks.around(text, place)) {
            out.push_str(text.get(done..place.start)?);
            out.push_str(&self.mark("instructions", text.get(place.clone())?));
            done = place.end;
        }
        if done == 0 {
            return None;
        }
        out.push_str(text.get(done..)?);
        Some(out)
    }

    fn allows(&self, text: &str, one: &Found) -> bool {
        if self.allowed.is_empty() {
            return false;
        }
        let value = text.get(one.from..one.end).unwrap_or_default();
        let digest = hex(&sha256([value.as_bytes()]));
        self.allowed
            .iter()
            .any(|allowed| allowed.len() >= 16 && digest.starts_with(allowed.as_str()))
    }

    /// What stands for a value: its name, and the same letters for the same value and caller.
    pub(super) fn mark(&self, rule: &str, value: &str) -> String {
        mark::of(rule, &self.digest(value))
    }

    /// A place as it may be told and written down: the name of a member can be a secret.
    pub(super) fn place(&self, at: &str) -> String {
        let shown = |part: &str| escaped(&self.told(&unescaped(part))).into_owned();
        at.split('/').map(shown).collect::<Vec<_>>().join("/")
    }

    /// A text as it may be told and written down: without any value.
    pub(super) fn told(&self, text: &str) -> String {
        let glance = self.recorded().cleaned(text);
        let blocked = glance.findings.iter().any(|(_, done, _)| *done == Handling::Block);
        // What was not looked at to its end is not told.
        if blocked || self.budget.is_exhausted() {
            return WITHHELD.to_owned();
        }
        glance.text.unwrap_or_else(|| text.to_owned())
    }

    /// What is found as it is kept in mind, however it is grouped and written; `None` for what is no secret and
    /// no number of a person.
    fn value(&self, text: &str, one: &Found) -> Option<ShownValue> {
        let kept = matches!(one.class, Class::Secret | Class::Identifier);
        let value = text.get(one.from..one.end).filter(|_| kept && !self.allows(text, one))?;
        let letters = Letters::of(value);
        let has_any = !letters.as_bytes().is_empty();
        has_any.then(|| self.hashed(|hashing| ShownValue::new(&letters, one.rule, hashing)))
    }

    /// With what values of this caller are hashed.
    fn hashed<T>(&self, with: impl FnOnce(&Hashing<'_>) -> T) -> T {
        let caller = self.caller.as_bytes();
        let digest = |letters: &[u8]| sha256([&self.key[..], b"carried", caller, &[0], letters]);
        let random = sha256([&self.key[..], b"windows", caller]);
        let mut numbers = random
            .chunks_exact(8)
            .map(|bytes| u64::from_be_bytes(bytes.first_chunk().copied().unwrap_or_default()));
        let key = [numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()];
        with(&Hashing { digest: &digest, key })
    }

    /// The marks around texts of this server for this caller.
    pub(super) fn fence(&self) -> Fence<'_> {
        Fence { key: self.key, server: self.server, caller: self.caller }
    }

    /// What a value is recognised by, for this caller, and by nobody else.
    fn digest(&self, value: &str) -> Vec<u8> {
        sha256([self.key, self.caller.as_bytes(), &[0], value.as_bytes()])
    }
}
