//! What stands in what servers say and callers send, beside definitions (controls C13, C14 and C26).
//!
//! Every string is looked at, wherever it stands: member names too, and what resources carry in
//! base64. Each detector says what it found and where; what is done about it the policy says, by
//! server. `sanitize(sanitize(x)) == sanitize(x)`: what is left is left again.

mod carried;
mod handling;
mod fence;
mod host;
mod imperative;
mod found;
mod mark;
mod markup;
mod media;
mod named;
mod order;
mod directions;
mod personal;
mod size;
mod solicit;
mod rules;
pub mod stretch;
mod orders;
mod vendors;
mod secrets;
mod encoded;
mod lens;
mod pieces;
mod walk;

use std::borrow::Cow;
use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, MatchKind};

use self::carried::Carried;
pub use self::carried::Learned;
pub(crate) use self::directions::{Mention, Others, SeenTools, ToolNames};
use self::found::{Class, Found};
pub use self::handling::{Direction, Handling, Handlings};
pub(crate) use self::host::note as authority_note;
use self::lens::Lens;
pub use self::pieces::ChosenPart;
pub(crate) use self::size::truncated;
pub use self::size::{Over, Size};
use crate::inspect::{Detector, Finding};
use crate::json::{Bounds, Document, Value};
use crate::mode::Mode;
use crate::name::ServerName;
use crate::pattern::Pattern;
use crate::principal::Who;
use crate::work::{Budget, USUAL_MOST};

/// Most findings that are kept of one message and detector; all are acted on.
const KEPT: usize = 16;

/// How much the patterns for orders find in a text; from 1 on it is taken for orders.
#[must_use]
pub fn patterns(text: &str) -> f32 {
    orders::patterns(text, None, &Budget::unlimited()).map_or(0.0, |order| order.value())
}

/// `text` with `[REDACTED:KIND]` in the place of everything that has the form of a secret: for lines of a
/// log, which are nobody's message.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    let mut found = Vec::new();
    secrets::find(text, &mut found);
    replaced(text, found)
}

/// `text` with `[REDACTED:KIND]` in the place of secrets, of the numbers of cards, accounts and persons, and of the
/// canaries of `contents`, as they stand and encoded once: for names and addresses in records, which a caller may
/// have put a value into. A short plain name comes back as it is, without an allocation.
#[must_use]
pub fn without_values<'a>(text: &'a str, contents: Option<&Contents>) -> Cow<'a, str> {
    let canaries = contents.and_then(|contents| contents.canaries.as_ref());
    let known = canaries.is_some_and(|canaries| canaries.is_match(text));
    if !known && is_plain(text) {
        return Cow::Borrowed(text);
    }
    let mut found = Vec::new();
    secrets::find(text, &mut found);
    personal::find(text, &mut found);
    // In a name a low line stands where a blank would stand in a text.
    if memchr::memchr(b'_', text.as_bytes()).is_some() {
        personal::find(&text.replace('_', " "), &mut found);
    }
    let with = encoded::DecodeWith { canaries, budget: &Budget::unlimited(), recall: None };
    encoded::find(text, with, &mut found);
    let places = canaries.into_iter().flat_map(|canaries| canaries.find_iter(text));
    found.extend(places.map(|one| Found::new(Class::Canary, "canary", one.start(), one.end())));
    found.retain(|one| matches!(one.class, Class::Secret | Class::Identifier | Class::Canary));
    if found.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(replaced(text, found)) }
}

/// Whether a text is too short and too plain for a secret: words of small letters, with what joins them.
fn is_plain(text: &str) -> bool {
    const LONGEST: usize = 64;
    let plain = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'.' | b'/' | b'-');
    text.len() <= LONGEST && text.bytes().all(plain)
}

/// `text` with the names of what was found in its place.
fn replaced(text: &str, mut found: Vec<Found>) -> String {
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
    /// What is done about arguments that the definition does not declare, where it leaves open whether
    /// there may be more.
    pub undeclared: Mode,
    /// What is done about results that are not as the definition says.
    pub output_schema: Mode,
    /// Values that are no secrets: the first 16 hexadecimal digits of their SHA-256, or more.
    pub allowed: Vec<String>,
    /// Hosts that links in results may lead to; none means all.
    pub link_hosts: Vec<Pattern>,
    /// Types that may be carried in base64; none means all.
    pub media_types: Vec<Pattern>,
    /// Whether texts of results are put between marks that their author cannot write.
    pub fence: bool,
    /// How long results may be, if there is a limit.
    pub size: Option<Size>,
    /// Labels of members of results, and who sees what has them.
    pub fields: Vec<(Box<str>, Vec<Who>)>,
}

impl Default for Profile {
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

/// What is done about what servers say and callers send: the first profile that a server is of, or
/// the default one.
#[derive(Debug)]
pub struct Contents {
    profiles: Vec<Profile>,
    other: Profile,
    key: [u8; 32],
    canaries: Option<AhoCorasick>,
    carried: Carried,
    /// Whether the arguments of some server are searched for what another gave.
    carries: bool,
}

impl Default for Contents {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

/// Whom a server says something to.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    /// For whom marks are the same.
    pub(crate) caller: &'a str,
    /// What it sees of the tools that are named, where that is known.
    pub(crate) tools: Option<SeenTools<'a>>,
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
        let (other, all) = (Profile::default(), Pattern::new("*"));
        // Where an entry is of all servers, nothing is left to the default one.
        let whole = profiles.iter().any(|profile| profile.servers.contains(&all));
        let usual = Some(&other).filter(|_| !whole);
        let searches = |profile: &Profile| {
            let (detector, direction) = (Detector::CarriedData, Direction::Argument);
            profile.arguments.of(detector, direction, false) != Handling::Off
        };
        let carries = profiles.iter().chain(usual).any(searches);
        let (key, canaries, carried) = ([0; 32], None, Carried::default());
        Self { profiles, other, key, canaries, carried, carries }
    }

    /// The same with a key that keeps values from being guessed by their marks.
    #[must_use]
    pub fn with_key(self, key: [u8; 32]) -> Self {
        Self { key, ..self }
    }

    /// The same, with values that should never be seen.
    ///
    /// # Errors
    /// When they cannot be looked for.
    pub fn with_canaries(self, canaries: &[String]) -> Result<Self, Finding> {
        Ok(Self { canaries: values(canaries)?, ..self })
    }

    /// What is done about what `server` says and is sent.
    #[must_use]
    pub fn of(&self, server: &ServerName) -> &Profile {
        let named = |profile: &&Profile| {
            profile.servers.iter().any(|pattern| pattern.matches(server.as_str()))
        };
        self.profiles.iter().find(named).unwrap_or(&self.other)
    }

    /// Looks at `value`. `caller` is for whom marks are the same. What costs more than `budget` is blocked.
    #[must_use]
    pub fn look(
        &self,
        server: &ServerName,
        direction: Direction,
        caller: &str,
        value: Value<'_>,
        budget: &Budget,
    ) -> Seen {
        walk::look(&self.lens(server, direction, caller, None, budget), value, &[])
    }

    /// The same for a value that goes to `server` with other parts of one message, without looking for what is in pieces:
    /// [`Self::look_together`] does that for all of them.
    pub(crate) fn look_at_part(
        &self,
        server: &ServerName,
        caller: &str,
        value: Value<'_>,
        budget: &Budget,
    ) -> Seen {
        walk::part(&self.lens(server, Direction::Argument, caller, None, budget), value)
    }

    /// Looks in all that `caller` has chosen of one message for what another server gave, where it stands in pieces in
    /// several places of it. What costs more than `budget` is blocked.
    #[must_use]
    pub fn look_together(
        &self,
        server: &ServerName,
        caller: &str,
        parts: &[ChosenPart<'_>],
        budget: &Budget,
    ) -> Seen {
        walk::together(&self.lens(server, Direction::Argument, caller, None, budget), parts)
    }

    /// Whether what `caller` sends to `server` is searched for what other servers gave, and they gave anything.
    pub(crate) fn seeks(&self, server: &ServerName, caller: &str) -> bool {
        let budget = Budget::for_bytes(0, USUAL_MOST);
        self.lens(server, Direction::Argument, caller, None, &budget).seeks()
    }

    /// The same for what a server says, where the strings at the pointers `sealed` are not looked at: they
    /// go on as text that nobody but the server reads.
    #[must_use]
    pub(crate) fn look_but(
        &self,
        server: &ServerName,
        reader: Reader<'_>,
        value: Value<'_>,
        sealed: &[&str],
        budget: &Budget,
    ) -> Seen {
        let lens = self.lens(server, Direction::Result, reader.caller, None, budget);
        walk::look(&Lens { tools: reader.tools, ..lens }, value, sealed)
    }

    /// The same for what a caller sends that is not rewritten: it is what was decided about. What would
    /// be replaced in it is not sent.
    pub(crate) fn look_strictly(
        &self,
        server: &ServerName,
        caller: &str,
        text: &str,
        budget: &Budget,
    ) -> Seen {
        walk::text(&self.lens(server, Direction::Argument, caller, None, budget).strict(), text)
    }

    /// The same for what a caller says about its trace, which can be left out.
    pub(crate) fn look_at_trace(
        &self,
        server: &ServerName,
        caller: &str,
        text: &str,
        budget: &Budget,
    ) -> Seen {
        walk::text(&self.lens(server, Direction::Argument, caller, None, budget).for_traces(), text)
    }

    /// The same, with these values of labelled members replaced wherever they stand; `bare` with nothing
    /// put before or around anything, because there is more to be done to it.
    pub(crate) fn look_without(
        &self,
        server: &ServerName,
        reader: Reader<'_>,
        value: Value<'_>,
        labelled: &BTreeSet<String>,
        (bare, sealed): (bool, &[&str]),
        budget: &Budget,
    ) -> Seen {
        match values(labelled) {
            Ok(labelled) => {
                let (caller, labelled) = (reader.caller, labelled.as_ref());
                let lens = self.lens(server, Direction::Result, caller, labelled, budget);
                let lens = Lens { tools: reader.tools, ..lens };
                walk::look(&if bare { lens.bare() } else { lens }, value, sealed)
            }
            Err(finding) => Seen { blocked: Some(finding), ..Seen::default() },
        }
    }

    /// `value` as it may be written down, where whoever reads it has no need of any value in it; `None`
    /// where it cannot be.
    pub(crate) fn recorded(
        &self,
        server: &ServerName,
        value: Value<'_>,
        labelled: &BTreeSet<String>,
        budget: &Budget,
    ) -> Option<String> {
        let labelled = values(labelled).ok()?;
        let lens = self.lens(server, Direction::Argument, "", labelled.as_ref(), budget).recorded();
        // Many a secret is one by the name of the member it stands in alone.
        let named = named::without(value, budget, &|value| lens.mark("named-secret", value));
        let named = match named {
            Some(text) => Some(Document::parse(text.into(), &Bounds::ANSWER).ok()?),
            None => None,
        };
        let value = named.as_ref().map_or(value, Document::root);
        let seen = walk::look(&lens, value, &[]);
        let text = match (seen.blocked, seen.changed) {
            (Some(_), _) => return None,
            (None, Some(changed)) => String::from_utf8(changed).ok()?,
            (None, None) => value.raw().to_owned(),
        };
        // Once more as one text, for what is one by what stands before it.
        let whole = lens.cleaned(&text);
        let blocks = whole.findings.iter().any(|(_, done, _)| *done == Handling::Block);
        if blocks || budget.is_exhausted() { None } else { Some(whole.text.unwrap_or(text)) }
    }

    /// A number that changes whenever a text may be found to be something that it was not before.
    pub(crate) fn learned(&self) -> u64 {
        self.carried.learned()
    }

    /// The same for texts that `caller` sends.
    pub(crate) fn learned_of(&self, caller: &str) -> Learned {
        self.carried.learned_of(caller)
    }

    /// A finding whose place and words name no secret, whatever members are called.
    pub(crate) fn placed(&self, server: &ServerName, caller: &str, finding: Finding) -> Finding {
        let budget = Budget::for_bytes(0, USUAL_MOST);
        let lens = self.lens(server, Direction::Result, caller, None, &budget);
        let at = lens.place(&finding.at);
        let note = match finding.note {
            // Our own words.
            Cow::Borrowed(note) => Cow::Borrowed(note),
            Cow::Owned(note) => Cow::Owned(lens.told(&note)),
        };
        Finding { detector: finding.detector, at, note }
    }

    /// What stands for a value of a labelled member.
    pub(crate) fn mark(&self, server: &ServerName, caller: &str, value: &str) -> String {
        let budget = Budget::unlimited();
        self.lens(server, Direction::Result, caller, None, &budget).mark("sensitive-field", value)
    }

    fn lens<'a>(
        &'a self,
        server: &'a ServerName,
        direction: Direction,
        caller: &'a str,
        labelled: Option<&'a AhoCorasick>,
        budget: &'a Budget,
    ) -> Lens<'a> {
        let profile = self.of(server);
        let handlings = match direction {
            Direction::Result => &profile.results,
            Direction::Argument => &profile.arguments,
        };
        let how = |detector| {
            let named = detector == Detector::Links && !profile.link_hosts.is_empty()
                || detector == Detector::MediaTypes && !profile.media_types.is_empty();
            handlings.of(detector, direction, named)
        };
        Lens {
            handlings: Lens::DETECTORS.map(how),
            direction,
            allowed: &profile.allowed,
            hosts: &profile.link_hosts,
            types: &profile.media_types,
            fences: profile.fence,
            canaries: self.canaries.as_ref(),
            labelled,
            carried: &self.carried,
            remembers: self.carries && direction == Direction::Result,
            server: server.as_str(),
            key: &self.key,
            caller,
            tools: None,
            budget,
        }
    }
}

/// Values that are looked for one by one, the longest first.
fn values<'a>(
    values: impl IntoIterator<Item = &'a String>,
) -> Result<Option<AhoCorasick>, Finding> {
    let values: Vec<&String> = values.into_iter().filter(|value| !value.is_empty()).collect();
    if values.is_empty() {
        return Ok(None);
    }
    let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&values);
    built.map(Some).map_err(|_too_many| Finding::unchanged())
}

#[cfg(test)]
mod tests;
