//! What stands in what servers say and callers send, beside definitions (controls C13, C14 and C26).
//!
//! Every string is looked at, wherever it stands: member names too, and what resources carry in
//! base64. Each detector says what it found and where; what is done about it the policy says, by
//! server. `sanitize(sanitize(x)) == sanitize(x)`: what is left is left again.

mod encoded;
mod orders;
mod personal;
mod rules;
mod secrets;
mod walk;

use std::borrow::Cow;
use std::collections::BTreeMap;

use aws_lc_rs::digest::{Context, SHA256};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::coding::hex;
use crate::hidden::{Hidden, TERMINAL, without_colours};
use crate::inspect::{Detector, Finding};
use crate::json::Value;
use crate::mode::Mode;
use crate::name::ServerName;
use crate::pattern::Pattern;
use crate::{clean, inspect};

/// Most findings that are kept of one message and detector; all are acted on.
const KEPT: usize = 16;

/// Most passes over one string after the first: what takes more was made to take more.
const PASSES: usize = 6;

/// What is done about what is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Handling {
    /// It is not looked for.
    Off,
    /// It is recorded.
    Audit,
    /// It is taken out.
    Strip,
    /// It is changed so that it is shown and does nothing.
    Defang,
    /// It is replaced by its name and a mark, the same for the same value and caller.
    Redact,
    /// The message is withheld.
    Block,
}

/// What is done about what is found in one direction. What is left out is as the defaults say.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Handlings {
    /// Characters that are not shown, and commands to terminals: `strip` (results only), `block`,
    /// `audit` or `off`. Default `strip` in results, `audit` in arguments.
    hidden_characters: Option<Handling>,
    /// HTML comments and markup that loads or runs something: `strip` and `defang` (results only),
    /// `block`, `audit` or `off`. Default `audit` in results, `off` in arguments.
    active_markup: Option<Handling>,
    /// Keys, tokens and passwords: `redact`, `block`, `audit` or `off`. Default `redact` in results,
    /// `audit` in arguments.
    secrets: Option<Handling>,
    /// Numbers by which states and banks know a person: cards, IBAN, social security and tax numbers;
    /// likewise. Default `redact` in results, `audit` in arguments.
    identifiers: Option<Handling>,
    /// Text that gives orders to whoever reads it: `redact`, `block`, `audit` or `off`. Default `redact`
    /// in results, `off` in arguments.
    planted_instructions: Option<Handling>,
    /// E-mail addresses, telephone numbers and IP addresses; likewise. Default `audit` in results,
    /// `off` in arguments.
    contacts: Option<Handling>,
}

/// In which direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What a server says.
    Result,
    /// What a caller sends.
    Argument,
}

impl Handlings {
    /// What is done about what this one finds.
    #[must_use]
    pub fn of(&self, detector: Detector, direction: Direction) -> Handling {
        let result = direction == Direction::Result;
        let either = |said: Option<Handling>, of_result, of_argument| {
            said.unwrap_or(if result { of_result } else { of_argument })
        };
        match detector {
            Detector::HiddenCharacters => {
                either(self.hidden_characters, Handling::Strip, Handling::Audit)
            }
            Detector::ActiveMarkup => either(self.active_markup, Handling::Audit, Handling::Off),
            Detector::Secrets => either(self.secrets, Handling::Redact, Handling::Audit),
            Detector::Identifiers => either(self.identifiers, Handling::Redact, Handling::Audit),
            Detector::PlantedInstructions => {
                either(self.planted_instructions, Handling::Redact, Handling::Off)
            }
            Detector::Contacts => either(self.contacts, Handling::Audit, Handling::Off),
            Detector::DisguisedText
            | Detector::ToolNames
            | Detector::InternalUrls
            | Detector::OversizedText
            | Detector::Shadowing
            | Detector::Pins
            | Detector::Registry
            | Detector::InputSchema
            | Detector::Constraints
            | Detector::OutputSchema => Handling::Off,
        }
    }

    /// The members that cannot be handled as they say, and how they can.
    pub(crate) fn misused(
        &self,
        direction: Direction,
    ) -> impl Iterator<Item = (&'static str, &'static str)> {
        let plain = [Handling::Off, Handling::Audit, Handling::Block];
        let members = [
            ("hiddenCharacters", self.hidden_characters, &[Handling::Strip][..], "`strip`"),
            (
                "activeMarkup",
                self.active_markup,
                &[Handling::Strip, Handling::Defang],
                "`strip`, `defang`",
            ),
            ("secrets", self.secrets, &[Handling::Redact], "`redact`"),
            ("identifiers", self.identifiers, &[Handling::Redact], "`redact`"),
            ("plantedInstructions", self.planted_instructions, &[Handling::Redact], "`redact`"),
            ("contacts", self.contacts, &[Handling::Redact], "`redact`"),
        ];
        // What was decided about arguments is what is sent: nothing is taken out of them unseen.
        let sent = direction == Direction::Argument;
        let redacts = |more: &[Handling]| more.contains(&Handling::Redact);
        members.into_iter().filter_map(move |(name, said, more, help)| {
            let (more, help) =
                if sent && !redacts(more) { (&[][..], "`block`") } else { (more, help) };
            let said = said?;
            (!plain.contains(&said) && !more.contains(&said)).then_some((name, help))
        })
    }
}

/// What is done about what some servers say and are sent.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Which servers.
    pub servers: Vec<Pattern>,
    /// What they say.
    pub results: Handlings,
    /// What they are sent.
    pub arguments: Handlings,
    /// What is done about arguments that are not as the definition says.
    pub input_schema: Mode,
    /// What is done about results that are not as the definition says.
    pub output_schema: Mode,
    /// Values that are no secrets: the first 16 hexadecimal digits of their SHA-256, or more.
    pub allowed: Vec<String>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            results: Handlings::default(),
            arguments: Handlings::default(),
            input_schema: Mode::Enforce,
            output_schema: Mode::Audit,
            allowed: Vec::new(),
        }
    }
}

/// What is done about what servers say and callers send: the first profile that a server is of, or
/// the default one.
#[derive(Debug, Default)]
pub struct Contents {
    profiles: Vec<Profile>,
    other: Profile,
    key: [u8; 32],
}

/// What was seen in one message, and what has become of it.
#[derive(Debug, Default)]
pub struct Seen {
    /// What was found.
    pub findings: Vec<Finding>,
    /// The message as it may be shown, if that is not as it came.
    pub changed: Option<Vec<u8>>,
    /// For what it is withheld.
    pub blocked: Option<Finding>,
    /// How much the string that does most looks like orders; from 1 on it is taken for that.
    pub score: f32,
}

impl Contents {
    /// What these profiles say, the first one first.
    #[must_use]
    pub fn new(profiles: Vec<Profile>) -> Self {
        Self { profiles, ..Self::default() }
    }

    /// The same with a key that keeps values from being guessed by their marks.
    #[must_use]
    pub fn with_key(self, key: [u8; 32]) -> Self {
        Self { key, ..self }
    }

    /// What is done about what `server` says and is sent.
    #[must_use]
    pub fn of(&self, server: &ServerName) -> &Profile {
        let named = |profile: &&Profile| {
            profile.servers.iter().any(|pattern| pattern.matches(server.as_str()))
        };
        self.profiles.iter().find(named).unwrap_or(&self.other)
    }

    /// Looks at `value`. `caller` is for whom marks are the same.
    #[must_use]
    pub fn look(
        &self,
        server: &ServerName,
        direction: Direction,
        caller: &str,
        value: Value<'_>,
    ) -> Seen {
        let profile = self.of(server);
        let handlings = match direction {
            Direction::Result => &profile.results,
            Direction::Argument => &profile.arguments,
        };
        let how = |detector| handlings.of(detector, direction);
        let lens = Lens {
            hidden: how(Detector::HiddenCharacters),
            markup: how(Detector::ActiveMarkup),
            secrets: how(Detector::Secrets),
            identifiers: how(Detector::Identifiers),
            contacts: how(Detector::Contacts),
            orders: how(Detector::PlantedInstructions),
            is_result: direction == Direction::Result,
            allowed: &profile.allowed,
            key: &self.key,
            caller,
        };
        walk::look(&lens, value)
    }
}

/// What class of data it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Secret,
    Identifier,
    Contact,
}

impl Class {
    const fn detector(self) -> Detector {
        match self {
            Self::Secret => Detector::Secrets,
            Self::Identifier => Detector::Identifiers,
            Self::Contact => Detector::Contacts,
        }
    }
}

/// A stretch of a text that is something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    class: Class,
    /// What, by its stable name.
    rule: &'static str,
    from: usize,
    end: usize,
}

impl Found {
    const fn new(class: Class, rule: &'static str, from: usize, end: usize) -> Self {
        Self { class, rule, from, end }
    }
}

/// With what a string is looked at.
struct Lens<'a> {
    hidden: Handling,
    markup: Handling,
    secrets: Handling,
    identifiers: Handling,
    contacts: Handling,
    orders: Handling,
    is_result: bool,
    allowed: &'a [String],
    key: &'a [u8; 32],
    caller: &'a str,
}

/// What one string is.
#[derive(Debug, Default)]
struct Glance {
    findings: Vec<(Detector, Handling, Cow<'static, str>)>,
    /// As it may be shown, if that is not as it came.
    text: Option<String>,
    /// How much it looks like orders; from 1 on it is taken for that.
    score: f32,
}

impl Lens<'_> {
    const fn of(&self, class: Class) -> Handling {
        match class {
            Class::Secret => self.secrets,
            Class::Identifier => self.identifiers,
            Class::Contact => self.contacts,
        }
    }

    /// Looks at one string, until there is nothing left to be taken out: that can join what stood
    /// apart. What does not come to an end is withheld.
    fn glance(&self, text: &str) -> Glance {
        let mut seen = self.once(text);
        for _ in 0..PASSES {
            let Some(now) = &seen.text else { return seen };
            let mut next = self.once(now);
            if next.text.is_none() {
                // What is only found now, and may not be shown.
                seen.findings
                    .extend(next.findings.into_iter().filter(|one| one.1 == Handling::Block));
                return seen;
            }
            seen.score = seen.score.max(next.score);
            seen.findings.append(&mut next.findings);
            seen.text = next.text;
        }
        let note = Cow::Borrowed("was made so that cleaning does not end");
        seen.findings.push((Detector::HiddenCharacters, Handling::Block, note));
        seen
    }

    fn once(&self, text: &str) -> Glance {
        let mut seen = Glance::default();
        // What is split by what is not shown is one word to who reads it.
        let plain = self.plain(text, &mut seen);
        let now = plain.as_ref().map_or(text, |(plain, _)| plain);
        let harmless = self.harmless(now, &mut seen);
        let redacted = self.redacted(harmless.as_deref().unwrap_or(now), &mut seen);
        let now = redacted.as_deref().or(harmless.as_deref()).unwrap_or(now);
        let obeyed = self.obeyed(now, &mut seen);
        let redacted = obeyed.or(redacted);
        let stripped = || plain.filter(|(_, hidden)| *hidden && self.hidden == Handling::Strip);
        seen.text = redacted.or(harmless).or_else(|| stripped().map(|(plain, _)| plain));
        seen
    }

    /// The text without what is not shown, if there is any; and whether that is more than colours,
    /// which are no finding.
    fn plain(&self, text: &str, seen: &mut Glance) -> Option<(String, bool)> {
        let shown = |byte: u8| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r');
        if text.bytes().all(shown) {
            return None;
        }
        let plain = without_colours(text);
        let Some(note) = inspect::hidden(&plain) else {
            return (plain.len() < text.len()).then(|| (plain.into_owned(), false));
        };
        if self.hidden != Handling::Off {
            seen.findings.push((Detector::HiddenCharacters, self.hidden, Cow::Borrowed(note)));
        }
        let without = match TERMINAL.as_ref() {
            Some(terminal) if plain.contains(|c| Hidden::of(c) == Some(Hidden::Control)) => {
                inspect::shown(&terminal.replace_all(&plain, ""))
            }
            _ => inspect::shown(&plain),
        };
        Some((without, true))
    }

    /// The text with markup that does nothing, if it does anything.
    fn harmless(&self, text: &str, seen: &mut Glance) -> Option<String> {
        if self.markup == Handling::Off || !text.contains(['<', ']', ':', '=']) {
            return None;
        }
        inspect::is_active(text).then_some(())?;
        let note = Cow::Borrowed("has a comment or markup that does something");
        seen.findings.push((Detector::ActiveMarkup, self.markup, note));
        match self.markup {
            Handling::Strip => Some(clean::text(
                text,
                clean::Cleaning { markup: true, ..clean::Cleaning::default() },
            )),
            Handling::Defang => Some(clean::defanged(text)),
            Handling::Off | Handling::Audit | Handling::Redact | Handling::Block => None,
        }
    }

    /// The text without what is nobody's business, if there is any and it is to be replaced.
    fn redacted(&self, text: &str, seen: &mut Glance) -> Option<String> {
        let mut found = self.all(text);
        // Nothing that is not shown keeps a value from being one, also where it may stay.
        let bare = (!text.is_ascii())
            .then(|| -> String { text.chars().filter(|c| Hidden::of(*c).is_none()).collect() });
        let mut text = text;
        if let Some(bare) = bare.as_deref().filter(|bare| bare.len() < text.len()) {
            let of_bare = self.all(bare);
            if of_bare.len() > found.len() {
                (text, found) = (bare, of_bare);
            }
        }
        if found.is_empty() {
            return None;
        }
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
            seen.findings.push((one.class.detector(), handling, Cow::Borrowed(one.rule)));
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

    /// Everything that is found in a text and looked for.
    fn all(&self, text: &str) -> Vec<Found> {
        let mut found = Vec::new();
        if self.secrets != Handling::Off {
            secrets::find(text, &mut found);
        }
        if self.identifiers != Handling::Off || self.contacts != Handling::Off {
            personal::find(text, &mut found);
        }
        encoded::find(text, &mut found);
        found.retain(|one| self.of(one.class) != Handling::Off && !self.allows(text, one));
        found
    }

    /// The text without what gives orders, if there is any and it is to be taken out.
    fn obeyed(&self, text: &str, seen: &mut Glance) -> Option<String> {
        if self.orders == Handling::Off {
            return None;
        }
        let order = orders::find(text)?;
        seen.score = seen.score.max(order.value());
        if !order.is_one() {
            return None;
        }
        seen.findings.push((Detector::PlantedInstructions, self.orders, Cow::Borrowed(order.note)));
        if self.orders != Handling::Redact {
            return None;
        }
        let place = order.place(text);
        let mut out = text.get(..place.start)?.to_owned();
        out.push_str(&self.mark("instructions", text.get(place.clone())?));
        out.push_str(text.get(place.end..)?);
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

    /// What stands for a value: its name, and the same digits for the same value and caller.
    fn mark(&self, rule: &str, value: &str) -> String {
        let digest = sha256([self.key, self.caller.as_bytes(), &[0], value.as_bytes()]);
        format!("[REDACTED:{rule}:{}]", hex(digest.get(..2).unwrap_or_default()))
    }
}

fn sha256<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    context.finish().as_ref().to_vec()
}

#[cfg(test)]
mod tests;
