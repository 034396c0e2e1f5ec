//! Inspects and sanitises the contents of messages: results of servers and arguments of callers, but not definitions
//! (controls C13, C14 and C26).
//!
//! Every string is inspected, wherever it stands: member names too, and base64 in resources. Each detector
//! reports what it found and where; the policy determines, by server, what is done about it. Idempotent:
//! `sanitize(sanitize(x)) == sanitize(x)`.

mod planted;
mod carried;
mod handling;
mod fence;
mod host;
mod imperative;
mod mark;
mod attributes;
mod markup;
mod media;
mod members;
mod document;
mod named;
mod order;
mod directions;
mod personal;
mod size;
mod solicit;
mod rules;
pub mod stretch;
mod honest;
mod orders;
mod encoded;
mod lens;
mod pieces;
mod walk;

use std::borrow::Cow;
use std::collections::BTreeSet;

use aho_corasick::AhoCorasick;
use json::{Document, JsonBounds, Value};
use policy_core::base::work::{USUAL_MOST, WorkBudget};
use policy_core::subject::mode::Mode;
use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;
use policy_core::subject::principal::PrincipalSelector;

use self::carried::LeakTracker;
pub use self::carried::TrackerVersion;
pub use self::directions::{Mention, OtherServerTools, SeenTools, ToolNames};
pub use self::handling::{Direction, Handling, Handlings, PermittedList};
pub use self::host::note as authority_note;
pub use self::host::punycode;
use self::lens::StringScan;
pub use self::personal::{
    PERSONAL_NAMES, PersonalKind, PersonalNames, identity_words, kind_of_pattern,
};
pub use self::pieces::ChosenPart;
pub use self::planted::Honeytoken;
use self::planted::{PlantedValues, automaton};
pub use self::size::truncated;
pub use self::size::{OversizeAction, ResultSizeLimit};
use crate::inspect::{Detector, Finding};
use crate::secrets;
use crate::secrets::found::{FoundValue, ValueClass};
pub use crate::secrets::secret_names;

/// Whether notes and fences are added to the texts in an inspected value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextMarking {
    /// They are added.
    Marked,
    /// None is added, because the value is processed further.
    Bare,
}

/// What is replaced, passed over and added when a server's message is inspected.
#[derive(Clone, Copy, Debug)]
pub struct LabelledContent<'a> {
    /// The values that are replaced wherever they stand, because members that hold them are hidden.
    pub labelled: &'a BTreeSet<String>,
    /// The pointers to values that are not inspected.
    pub sealed: &'a [&'a str],
    /// Whether notes and fences are added.
    pub marking: TextMarking,
}

/// Most findings of each detector that are kept for one message; all of them are acted on.
const KEPT: usize = 16;

/// The score of a text under the patterns for planted instructions; from 1 on it is taken to give instructions.
#[must_use]
pub fn patterns(text: &str) -> f32 {
    orders::patterns(text, None, &WorkBudget::unlimited()).map_or(0.0, |order| order.value())
}

/// `text` with `[REDACTED:KIND]` in place of everything that has the form of a secret: for log lines, which belong
/// to no message.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    let mut found = Vec::new();
    secrets::find(text, &mut found);
    found.retain(|one| one.class == ValueClass::Secret);
    replaced(text, found)
}

/// `text` with `[REDACTED:KIND]` in place of secrets, of card, account and identity numbers, and of the canaries and
/// honeytokens of `contents`, plain and encoded once: for names and addresses in audit records, into which a caller may
/// have put a value. A short plain name is returned without an allocation.
#[must_use]
pub fn without_values<'a>(text: &'a str, contents: Option<&ContentPolicy>) -> Cow<'a, str> {
    let none = PlantedValues::default();
    let planted = contents.map_or(&none, |contents| &contents.planted);
    if !planted.is_match(text.as_bytes()) && is_plain(text) {
        return Cow::Borrowed(text);
    }
    let mut found = Vec::new();
    secrets::find(text, &mut found);
    personal::find(text, &mut found);
    // In a name, underscores take the place of blanks.
    if memchr::memchr(b'_', text.as_bytes()).is_some() {
        personal::find(&text.replace('_', " "), &mut found);
    }
    let with = encoded::DecodeContext { planted, budget: &WorkBudget::unlimited(), recall: None };
    encoded::find(text, with, &mut found);
    found.extend(planted.find(text.as_bytes()));
    found.retain(|one| {
        matches!(
            one.class,
            ValueClass::Secret
                | ValueClass::Identifier
                | ValueClass::Canary
                | ValueClass::Honeytoken(_)
        )
    });
    if found.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(replaced(text, found)) }
}

/// Whether a text is too short and too plain for a secret: lower-case letters and separators.
fn is_plain(text: &str) -> bool {
    const LONGEST: usize = 64;
    let plain = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'.' | b'/' | b'-');
    text.len() <= LONGEST && text.bytes().all(plain)
}

/// `text` with each finding replaced by its kind.
fn replaced(text: &str, mut found: Vec<FoundValue>) -> String {
    found.sort_by_key(|one| (one.from, one.end));
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for one in found.iter().filter(|one| one.from < one.end) {
        if one.from >= done {
            out.push_str(text.get(done..one.from).unwrap_or_default());
            out.push_str("[REDACTED:");
            out.push_str(one.rule);
            out.push(']');
        }
        done = done.max(one.end);
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out
}

/// The policy for the contents that some servers send and receive.
#[derive(Clone, Debug)]
pub struct ContentProfile {
    /// Patterns of the servers that it applies to.
    pub servers: Vec<Pattern>,
    /// Handling of what the servers send.
    pub results: Handlings,
    /// Handling of what is sent to the servers.
    pub arguments: Handlings,
    /// The mode for arguments that violate the input schema.
    pub input_schema: Mode,
    /// The mode for arguments that the input schema does not declare, where it leaves additional properties
    /// open.
    pub undeclared: Mode,
    /// The mode for results that violate the output schema.
    pub output_schema: Mode,
    /// Values that are no secrets: at least the first 16 hexadecimal digits of their SHA-256.
    pub allowed: Vec<String>,
    /// Hosts that links in results may lead to; empty: all.
    pub link_hosts: Vec<Pattern>,
    /// Media types that base64 data may have; empty: all.
    pub media_types: Vec<Pattern>,
    /// Whether texts of results are wrapped in marks that their author cannot forge.
    pub fence: bool,
    /// The size limit of results, if there is one.
    pub size: Option<ResultSizeLimit>,
    /// Labels of members of results, each with the principals that may see them.
    pub fields: Vec<(Box<str>, Vec<PrincipalSelector>)>,
}

impl Default for ContentProfile {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            results: Handlings::default(),
            arguments: Handlings::default(),
            input_schema: Mode::Enforce,
            undeclared: Mode::Off,
            output_schema: Mode::Audit,
            allowed: Vec::new(),
            link_hosts: Vec::new(),
            media_types: Vec::new(),
            fence: false,
            size: None,
            fields: Vec::new(),
        }
    }
}

/// The content policy for all servers: the first profile that matches a server applies to it, or else the default
/// profile.
#[derive(Debug)]
pub struct ContentPolicy {
    profiles: Vec<ContentProfile>,
    other: ContentProfile,
    key: [u8; 32],
    planted: PlantedValues,
    carried: LeakTracker,
    /// Whether the arguments of any server are searched for values from other servers.
    carries: bool,
}

impl Default for ContentPolicy {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

/// The recipient of a server's message.
#[derive(Clone, Copy, Debug)]
pub struct ContentRecipient<'a> {
    /// The caller, which keys the marks: equal values get equal marks for one caller.
    pub caller: &'a str,
    /// What the caller sees of the tools that are named, if that is known.
    pub tools: Option<SeenTools<'a>>,
}

/// The outcome of the inspection of one message.
#[derive(Debug, Default)]
pub struct ContentReport {
    /// The findings, at most 16 of each detector.
    pub findings: Vec<Finding>,
    /// The message as it may be shown, if it was changed.
    pub changed: Option<Vec<u8>>,
    /// The finding for which the message is withheld, if it is.
    pub blocked: Option<Finding>,
    /// The greatest score for planted instructions of any string; from 1 on it is taken to give instructions.
    pub score: f32,
}

/// A part of a trace context (W3C Trace Context).
#[derive(Clone, Copy, Debug)]
pub enum TracePart<'a> {
    /// `traceparent`: ids in hexadecimal digits, which may look like numbers of cards.
    Parent(&'a str),
    /// `tracestate`: data of vendors. What would be refused in it as a number or an address is to be left out.
    State(&'a str),
}

impl ContentPolicy {
    /// The content policy with these profiles, in order of precedence.
    #[must_use]
    pub fn new(profiles: Vec<ContentProfile>) -> Self {
        let (other, all) = (ContentProfile::default(), Pattern::new("*"));
        // A profile for all servers leaves nothing to the default profile.
        let whole = profiles.iter().any(|profile| profile.servers.contains(&all));
        let usual = Some(&other).filter(|_| !whole);
        let searches = |profile: &ContentProfile| {
            let (detector, direction) = (Detector::CarriedData, Direction::Argument);
            profile.arguments.of(detector, direction, PermittedList::Absent) != Handling::Off
        };
        let carries = profiles.iter().chain(usual).any(searches);
        let (key, planted, carried) = ([0; 32], PlantedValues::default(), LeakTracker::default());
        Self { profiles, other, key, planted, carried, carries }
    }

    /// This policy with a key, without which values cannot be guessed from their marks.
    #[must_use]
    pub fn with_key(self, key: [u8; 32]) -> Self {
        Self { key, ..self }
    }

    /// This policy with canary values, which must never occur in a message.
    ///
    /// # Errors
    /// When no automaton can be built for them.
    pub fn with_canaries(self, canaries: &[String]) -> Result<Self, Finding> {
        Ok(Self { planted: self.planted.with_canaries(canaries)?, ..self })
    }

    /// This policy with honeytokens. A message with one of them is withheld under every profile.
    ///
    /// # Errors
    /// When no automaton can be built for them.
    pub fn with_honeytokens(self, honeytokens: &[Honeytoken]) -> Result<Self, Finding> {
        Ok(Self { planted: self.planted.with_honeytokens(honeytokens)?, ..self })
    }

    /// The honeytokens in a value that is not sent anyway, so that nothing else of it matters.
    pub fn honeytokens_in(
        &self,
        server: &ServerName,
        caller: &str,
        value: Value<'_>,
        budget: &WorkBudget,
    ) -> Vec<Finding> {
        if !self.planted.has_honeytokens() {
            return Vec::new();
        }
        let mut findings = self.look_at_part(server, caller, value, budget).findings;
        findings.retain(|finding| finding.detector == Detector::Honeytokens);
        findings
    }

    /// Whether there are any honeytokens.
    #[must_use]
    pub const fn has_honeytokens(&self) -> bool {
        self.planted.has_honeytokens()
    }

    /// The profile that applies to `server`.
    #[must_use]
    pub fn of(&self, server: &ServerName) -> &ContentProfile {
        let named = |profile: &&ContentProfile| {
            profile.servers.iter().any(|pattern| pattern.matches(server.as_str()))
        };
        self.profiles.iter().find(named).unwrap_or(&self.other)
    }

    /// Inspects `value`. `caller` keys the marks. A message that costs more than `budget` is blocked.
    #[must_use]
    pub fn look(
        &self,
        server: &ServerName,
        direction: Direction,
        caller: &str,
        value: Value<'_>,
        budget: &WorkBudget,
    ) -> ContentReport {
        walk::look(&self.lens(server, direction, caller, None, budget), value, &[])
    }

    /// Inspects a value that is sent to `server` as one part of a message, without the search for values in pieces:
    /// [`Self::look_together`] does that for all parts.
    pub fn look_at_part(
        &self,
        server: &ServerName,
        caller: &str,
        value: Value<'_>,
        budget: &WorkBudget,
    ) -> ContentReport {
        walk::part(&self.lens(server, Direction::Argument, caller, None, budget), value)
    }

    /// Searches the parts of one message that `caller` has chosen for a value from another server that is split into
    /// pieces over several places. A message that costs more than `budget` is blocked.
    #[must_use]
    pub fn look_together(
        &self,
        server: &ServerName,
        caller: &str,
        parts: &[ChosenPart<'_>],
        budget: &WorkBudget,
    ) -> ContentReport {
        walk::together(&self.lens(server, Direction::Argument, caller, None, budget), parts)
    }

    /// Whether what `caller` sends to `server` is searched for values from other servers, and there are any.
    pub fn seeks(&self, server: &ServerName, caller: &str) -> bool {
        let budget = WorkBudget::for_bytes(0, USUAL_MOST);
        self.lens(server, Direction::Argument, caller, None, &budget).seeks()
    }

    /// Inspects what a server sends, except for the strings at the pointers `sealed`, which are passed on as text that
    /// only the server can read.
    #[must_use]
    pub fn look_but(
        &self,
        server: &ServerName,
        reader: ContentRecipient<'_>,
        value: Value<'_>,
        sealed: &[&str],
        budget: &WorkBudget,
    ) -> ContentReport {
        let lens = self.lens(server, Direction::Result, reader.caller, None, budget);
        walk::look(&StringScan { tools: reader.tools, ..lens }, value, sealed)
    }

    /// Inspects a text of a caller that must not be rewritten, because the policy has decided about it: where something
    /// would be replaced, the text is blocked.
    pub fn look_strictly(
        &self,
        server: &ServerName,
        caller: &str,
        text: &str,
        budget: &WorkBudget,
    ) -> ContentReport {
        walk::text(&self.lens(server, Direction::Argument, caller, None, budget).strict(), text)
    }

    /// Inspects a part of the trace context of a caller, which can be dropped.
    pub fn look_at_trace(
        &self,
        server: &ServerName,
        caller: &str,
        part: TracePart<'_>,
        budget: &WorkBudget,
    ) -> ContentReport {
        let lens = self.lens(server, Direction::Argument, caller, None, budget);
        match part {
            TracePart::Parent(text) => walk::text(&lens.for_traces(), text),
            TracePart::State(text) => walk::text(&lens.for_trace_state(), text),
        }
    }

    /// Inspects what a server sends and replaces the labelled values wherever they stand.
    pub fn look_without(
        &self,
        server: &ServerName,
        reader: ContentRecipient<'_>,
        value: Value<'_>,
        content: LabelledContent<'_>,
        budget: &WorkBudget,
    ) -> ContentReport {
        match automaton(content.labelled.iter().map(|value| &**value)) {
            Ok(labelled) => {
                let (caller, labelled) = (reader.caller, labelled.as_ref());
                let lens = self.lens(server, Direction::Result, caller, labelled, budget);
                let lens = StringScan { tools: reader.tools, ..lens };
                let lens = match content.marking {
                    TextMarking::Marked => lens,
                    TextMarking::Bare => lens.bare(),
                };
                walk::look(&lens, value, content.sealed)
            }
            Err(finding) => ContentReport { blocked: Some(finding), ..ContentReport::default() },
        }
    }

    /// `value` as it may be written to an audit record, whose readers need none of its secrets; `None` where it
    /// cannot be sanitised.
    pub fn recorded(
        &self,
        server: &ServerName,
        value: Value<'_>,
        labelled: &BTreeSet<String>,
        budget: &WorkBudget,
    ) -> Option<String> {
        let labelled = automaton(labelled.iter().map(|value| &**value)).ok()?;
        let lens = self.lens(server, Direction::Argument, "", labelled.as_ref(), budget).recorded();
        // Many secrets are recognisable only by the name of their member.
        let named = named::without(value, budget, &|value| lens.mark("named-secret", value));
        let named = match named {
            Some(text) => Some(Document::parse(text.into(), &JsonBounds::ANSWER).ok()?),
            None => None,
        };
        let value = named.as_ref().map_or(value, Document::root);
        let seen = walk::look(&lens, value, &[]);
        let text = match (seen.blocked, seen.changed) {
            (Some(_), _) => return None,
            (None, Some(changed)) => String::from_utf8(changed).ok()?,
            (None, None) => value.raw().to_owned(),
        };
        // Once more as one text, for values that are recognisable only by the text before them.
        let whole = lens.cleaned(&text);
        let blocks = whole.findings.iter().any(|(_, done, _)| *done == Handling::Block);
        if blocks || budget.is_exhausted() { None } else { Some(whole.text.unwrap_or(text)) }
    }

    /// A counter that changes whenever the same text could have new findings.
    pub fn learned(&self) -> u64 {
        self.carried.learned()
    }

    /// The same for texts that `caller` sends.
    pub fn learned_of(&self, caller: &str) -> TrackerVersion {
        self.carried.learned_of(caller)
    }

    /// A finding without secrets in its place and note, since the name of a member can be one.
    pub fn placed(&self, server: &ServerName, caller: &str, finding: Finding) -> Finding {
        let budget = WorkBudget::for_bytes(0, USUAL_MOST);
        let lens = self.lens(server, Direction::Result, caller, None, &budget);
        let at = lens.place(&finding.at);
        let note = match finding.note {
            // Fixed texts of this crate.
            Cow::Borrowed(note) => Cow::Borrowed(note),
            Cow::Owned(note) => Cow::Owned(lens.told(&note)),
        };
        Finding { at, note, ..finding }
    }

    /// The mark that replaces a value of a labelled member.
    pub fn mark(&self, server: &ServerName, caller: &str, value: &str) -> String {
        let budget = WorkBudget::unlimited();
        self.lens(server, Direction::Result, caller, None, &budget).mark("sensitive-field", value)
    }

    fn lens<'a>(
        &'a self,
        server: &'a ServerName,
        direction: Direction,
        caller: &'a str,
        labelled: Option<&'a AhoCorasick>,
        budget: &'a WorkBudget,
    ) -> StringScan<'a> {
        let profile = self.of(server);
        let handlings = match direction {
            Direction::Result => &profile.results,
            Direction::Argument => &profile.arguments,
        };
        let how = |detector| {
            let named = detector == Detector::Links && !profile.link_hosts.is_empty()
                || detector == Detector::MediaTypes && !profile.media_types.is_empty();
            let list = if named { PermittedList::Given } else { PermittedList::Absent };
            handlings.of(detector, direction, list)
        };
        StringScan {
            handlings: StringScan::DETECTORS.map(how),
            likely: how(Detector::PlantedInstructions).of_likely(),
            direction,
            allowed: &profile.allowed,
            hosts: &profile.link_hosts,
            types: &profile.media_types,
            fences: profile.fence,
            planted: &self.planted,
            honeytokens: Handling::Block,
            labelled,
            carried: &self.carried,
            remembers: self.carries && direction == Direction::Result,
            server: server.as_str(),
            key: &self.key,
            caller,
            tools: None,
            name: None,
            budget,
        }
    }
}

#[cfg(test)]
mod tests;
