//! The values of a message, in the form in which they are compared: keyed hashes of tokens and of runs of words.
//!
//! A token is what stands between spaces, quotes and brackets: a word, a number, an address. It is compared in lower
//! case, in Unicode normalisation form KC, with ASCII digits, without invisible characters, and a URL without its scheme. The addresses
//! inside a token are values too. No text is kept.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};

use json::{JsonKind, Value};
use policy_core::base::digits::with_ascii_digit;
use policy_core::base::hidden::is_plain_ascii;
use unicode_normalization::UnicodeNormalization as _;

use self::address::{AccountGroups, Canonical};
use self::link::LinkPart;
use self::unspaced::UnspacedRun;

mod address;
mod host;
pub mod link;
mod ornament;
mod unspaced;

/// Words of a run. Shorter runs are common in any two texts of one language.
const RUN: usize = 5;
/// Most values of one message that are looked at.
const TOKENS: usize = 1 << 18;
/// Longest text that is compared as a whole too, in bytes: a name of several words.
const WHOLE: usize = 64;
/// Most bytes and words of a line that is a name.
const NAME: (usize, usize) = (48, 3);
/// Names that the protocol gives to the outermost members of results, errors, notifications and entries of lists, in
/// ascending order. They say nothing of a server's own.
const STANDARD: &[&str] = &[
    "_meta",
    "annotations",
    "arguments",
    "cacheScope",
    "capabilities",
    "code",
    "completion",
    "content",
    "contents",
    "createdAt",
    "data",
    "description",
    "elicitationId",
    "icons",
    "inputRequests",
    "instructions",
    "isError",
    "lastUpdatedAt",
    "level",
    "logger",
    "message",
    "messages",
    "mimeType",
    "name",
    "nextCursor",
    "notifications",
    "pollInterval",
    "progress",
    "progressToken",
    "prompts",
    "protocolVersion",
    "reason",
    "requestId",
    "requestState",
    "resourceTemplates",
    "resources",
    "resultType",
    "serverInfo",
    "size",
    "status",
    "statusMessage",
    "structuredContent",
    "supportedVersions",
    "task",
    "taskId",
    "tasks",
    "title",
    "tools",
    "total",
    "ttl",
    "ttlMs",
    "uri",
    "uriTemplate",
];

/// The key of all hashes of one process. It does not leave the process.
#[derive(Clone, Debug)]
pub struct ValueKey(RandomState);

impl ValueKey {
    /// A key with this random state.
    #[must_use]
    pub const fn new(random: RandomState) -> Self {
        Self(random)
    }

    fn token(&self, text: &str) -> u64 {
        self.0.hash_one((0_u8, text))
    }

    fn run(&self, words: &[u64; RUN]) -> u64 {
        self.0.hash_one((1_u8, words))
    }

    fn characters(&self, run: &[char]) -> u64 {
        self.0.hash_one((4_u8, run))
    }

    fn link(&self, part: LinkPart<'_>) -> u64 {
        match part {
            LinkPart::Exact(text) => self.0.hash_one((2_u8, text)),
            LinkPart::Form(text) => self.0.hash_one((3_u8, text)),
        }
    }
}

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueKind {
    /// A token that names no place: a word or a number; also a text that has no token, or stands for several names.
    Word,
    /// A short text as a whole.
    Whole,
    /// A token that names one thing wherever it stands: a URL, a host, a mail address, an account, a path, a name with
    /// an underscore.
    Address,
    /// An address inside a token, or an account in groups. Its token or its groups are visited as well.
    Inner,
    /// A run of words.
    Run,
    /// A link, as it is written.
    Link,
    /// The form that the spellings of a link share; what is shown has it before the link.
    LinkForm,
}

/// How widely the addresses inside a token are read. Each reading finds all that the ones before it find, so that what
/// was given once is known when it is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueReading {
    /// What is about to be sent: those that say where it leads to.
    Judged,
    /// What the caller gives or a trusted result shows: also files in paths, and the hosts of mail addresses.
    Given,
    /// What an untrusted result shows, whose author chooses what stands beside an address: also those with a word before
    /// or behind them that no space separates.
    Untrusted,
}

impl ValueReading {
    const fn is_widest(self) -> bool {
        matches!(self, Self::Untrusted)
    }
}

/// All values of a message were visited, or the message has too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueExtent {
    /// All values were visited.
    Complete,
    /// Not all: the message has more values than are looked at, or the visitor has stopped.
    Partial,
}

/// Visits the values of a message, with a bound on their number.
#[derive(Debug)]
pub struct ValueVisitor<'a, F> {
    key: &'a ValueKey,
    reading: ValueReading,
    has_runs: bool,
    left: usize,
    visit: F,
}

impl<'a, F: FnMut(ValueKind, u64) -> bool> ValueVisitor<'a, F> {
    /// Calls `visit` for each value; it returns whether to go on.
    pub const fn new(key: &'a ValueKey, reading: ValueReading, visit: F) -> Self {
        Self { key, reading, has_runs: true, left: TOKENS, visit }
    }

    /// The same, which skips the runs of words.
    #[must_use]
    pub fn without_runs(self) -> Self {
        Self { has_runs: false, ..self }
    }

    /// Visits the strings and numbers in `value` and the names of members, except those of the first level that the
    /// protocol has there.
    pub fn all_of(&mut self, value: Value<'_>) -> ValueExtent {
        if !value.is_object() {
            return self.value(value);
        }
        let is_complete = value.members().all(|(name, member)| {
            (STANDARD.binary_search(&&*name).is_ok() || self.whole_text(&name))
                && self.value(member) == ValueExtent::Complete
        });
        if is_complete { ValueExtent::Complete } else { ValueExtent::Partial }
    }

    /// Visits the strings and numbers in `value`, and the names of members.
    pub fn value(&mut self, value: Value<'_>) -> ValueExtent {
        let is_complete = each_scalar(value, &mut |scalar| match scalar {
            Scalar::Text(text) => self.whole_text(text),
            Scalar::True => true,
        });
        if is_complete { ValueExtent::Complete } else { ValueExtent::Partial }
    }

    /// Visits the values of one text.
    pub fn text(&mut self, text: &str) -> ValueExtent {
        if self.whole_text(text) { ValueExtent::Complete } else { ValueExtent::Partial }
    }

    /// Visits the values of one text, and those of its other readings; whether all were visited. What is judged is read by
    /// its judge, where another reading gives nothing.
    fn whole_text(&mut self, text: &str) -> bool {
        let is_judged = self.reading == ValueReading::Judged;
        self.one_text(text)
            && (is_judged || link::readings(text).all(|reading| self.one_text(&reading)))
            && (!self.reading.is_widest()
                || ornament::without_ornaments(text).is_none_or(|text| self.one_text(&text)))
    }

    /// Visits the values of one text as it is written; whether all were visited.
    fn one_text(&mut self, text: &str) -> bool {
        let (key, text) = (self.key, &*without_colours(text));
        // What is judged is compared with links only where the tool follows links: see `FlowMemory::followed`.
        if self.reading != ValueReading::Judged
            && !link::each(text, self.reading, &mut |part| {
                let kind = match part {
                    LinkPart::Exact(_) => ValueKind::Link,
                    LinkPart::Form(_) => ValueKind::LinkForm,
                };
                self.pass(kind, key.link(part))
            })
        {
            return false;
        }
        let text = normal(text);
        let text = text.trim();
        if text.len() <= WHOLE && text.contains(' ') {
            let whole = text.split_whitespace().collect::<Vec<_>>().join(" ");
            if !self.pass(ValueKind::Whole, self.key.token(&whole)) {
                return false;
            }
        }
        let mut state = TextState::default();
        let mut has_token = false;
        for token in text.split(is_separator).filter(|token| !token.is_empty()) {
            let trimmed = trimmed(token);
            has_token |= !trimmed.is_empty();
            let goes_on = match address::ipv6(token) {
                Some(address) => self.pass(ValueKind::Address, self.key.token(&address)),
                None => trimmed.is_empty() || self.one(trimmed, &mut state),
            };
            if !goes_on {
                return false;
            }
        }
        // What stands for several names is no name: somebody who gave `report` has not given `report*`.
        let is_pattern = || {
            text.contains('*')
                || text.contains("..")
                || text.ends_with('?')
                || text.starts_with('!')
        };
        let is_untold = !text.is_empty() && (!has_token || is_pattern());
        !is_untold || self.pass(ValueKind::Word, self.key.token(text))
    }

    /// Visits a token, the addresses inside it, and what ends with it.
    fn one(&mut self, token: &str, state: &mut TextState) -> bool {
        let token = integral(token);
        if token.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            let hash = self.key.token(token);
            let is_account = token.len() > 4 && address::is_account(token);
            let kind = if is_account { ValueKind::Address } else { ValueKind::Word };
            return self.pass(kind, hash)
                && self.number(token)
                && self.grouped(token, state)
                && self.word(hash, state);
        }
        let token = &*host::readable(token);
        let canonical = Canonical::of(token);
        let hash = self.key.token(&canonical.text);
        let kind = if canonical.is_address() { ValueKind::Address } else { ValueKind::Word };
        let host = canonical.host.as_deref().filter(|host| *host != canonical.text);
        let goes_on = self.pass(kind, hash)
            && host.is_none_or(|host| self.pass(ValueKind::Inner, self.key.token(host)))
            && canonical
                .site
                .as_ref()
                .is_none_or(|site| self.pass(ValueKind::Inner, self.key.token(site)))
            && (canonical.user.is_empty()
                || self.pass(ValueKind::Word, self.key.token(canonical.user)));
        goes_on
            && self.names(token, canonical.bare)
            && self.inside(canonical.rest(self.reading))
            && self.grouped(token, state)
            && self.words(token, state)
    }

    /// Visits the name behind the sign of a handle (`@name`); where a token is not judged, also the names in a path, and
    /// the path behind a host: programs take any of them for a target.
    fn names(&mut self, token: &str, bare: &str) -> bool {
        let is_sign = |c: char| matches!(c, '@' | '#' | '~' | '+' | '$');
        let name = token.trim_start_matches(is_sign);
        if name.len() < token.len() && !self.name(name) {
            return false;
        }
        if self.reading == ValueReading::Judged {
            return true;
        }
        let key = self.key;
        if self.reading.is_widest()
            && !address::each_name(token, &mut |name| self.pass(ValueKind::Word, key.token(name)))
        {
            return false;
        }
        let is_end = |c: char| is_sign(c) || matches!(c, '/' | '\\' | ':' | '?' | '&' | '=');
        let path = bare.split_once(['/', ':']).map_or("", |(_, path)| path);
        let path = path.split(['?', '#']).next().unwrap_or_default();
        path.is_empty() || self.name(path) && bare.split(is_end).all(|name| self.name(name))
    }

    /// Visits a name inside a token.
    fn name(&mut self, name: &str) -> bool {
        let name = trimmed(name).trim_start_matches('/');
        let name = name.strip_suffix(".git").unwrap_or(name);
        name.is_empty() || self.pass(ValueKind::Word, self.key.token(name))
    }

    /// Visits the addresses inside a token.
    fn inside(&mut self, token: &str) -> bool {
        let (key, reading) = (self.key, self.reading);
        address::each_inner(token, reading, &mut |inner| {
            self.pass(ValueKind::Inner, key.token(inner))
        })
    }

    /// Visits a telephone number with an international prefix as it is written without one.
    fn number(&mut self, account: &str) -> bool {
        let number = address::without_prefix(account);
        number.is_none_or(|number| self.pass(ValueKind::Inner, self.key.token(number)))
    }

    /// Visits the accounts in groups that end with this token.
    fn grouped(&mut self, token: &str, state: &mut TextState) -> bool {
        let key = self.key;
        state.groups.add(token, &mut |joined| {
            self.pass(ValueKind::Inner, key.token(joined)) && self.number(joined)
        })
    }

    /// Visits the runs that end with the words in a token.
    fn words(&mut self, token: &str, state: &mut TextState) -> bool {
        let mut words = token.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty());
        !self.has_runs
            || words
                .all(|word| self.word(self.key.token(word), state) && self.characters(word, state))
    }

    /// Visits the runs that end with the characters in a word of a script that has no spaces between words.
    fn characters(&mut self, word: &str, state: &mut TextState) -> bool {
        if !word.chars().any(unspaced::is_unspaced) {
            return true;
        }
        word.chars().all(|c| match state.characters.add(c) {
            Some(run) => self.pass(ValueKind::Run, self.key.characters(run)),
            None => true,
        })
    }

    /// Visits the run that ends with this word.
    fn word(&mut self, hash: u64, state: &mut TextState) -> bool {
        if !self.has_runs {
            return true;
        }
        state.window.rotate_left(1);
        if let Some(last) = state.window.last_mut() {
            *last = hash;
        }
        state.words += 1;
        state.words < RUN || self.pass(ValueKind::Run, self.key.run(&state.window))
    }

    fn pass(&mut self, kind: ValueKind, hash: u64) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        (self.visit)(kind, hash)
    }
}

/// What of a text is remembered from token to token.
#[derive(Debug, Default)]
struct TextState {
    /// The hashes of the last words.
    window: [u64; RUN],
    words: usize,
    /// The last characters of words in scripts without spaces.
    characters: UnspacedRun,
    groups: AccountGroups,
}

/// A part of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar<'a> {
    /// A string, a number, or the name of a member.
    Text(&'a str),
    /// `true`. What is `false` or `null` says nothing.
    True,
}

/// Calls `visit` with each string, number and name of a member in `value`, until it returns false; whether all were
/// visited.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
pub fn each_scalar(value: Value<'_>, visit: &mut impl FnMut(Scalar<'_>) -> bool) -> bool {
    match value.kind() {
        JsonKind::Null => true,
        JsonKind::Boolean => value.as_bool() != Some(true) || visit(Scalar::True),
        JsonKind::Number => visit(Scalar::Text(&decimal(value.raw()))),
        JsonKind::Plain | JsonKind::Escaped => {
            visit(Scalar::Text(&value.as_str().unwrap_or_default()))
        }
        JsonKind::Array => value.items().all(|item| each_scalar(item, visit)),
        JsonKind::Object => value
            .members()
            .all(|(name, member)| visit(Scalar::Text(&name)) && each_scalar(member, visit)),
    }
}

/// Calls `visit` with each text that `value` holds in base64: in the `blob` of a resource, or in a `data:` URI anywhere in a
/// text.
pub fn each_encoded(value: Value<'_>, visit: &mut impl FnMut(&str)) {
    encoded_in(value, EncodedPlace::Text, visit);
}

/// What a text may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EncodedPlace {
    /// Base64 and nothing else.
    Blob,
    /// `data:` URIs among words.
    Text,
}

/// As [`each_encoded`], for a value at `place`.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
fn encoded_in(value: Value<'_>, place: EncodedPlace, visit: &mut impl FnMut(&str)) {
    match value.kind() {
        JsonKind::Null | JsonKind::Boolean | JsonKind::Number => {}
        JsonKind::Array => value.items().for_each(|item| encoded_in(item, place, visit)),
        JsonKind::Object => value.members().for_each(|(name, member)| {
            let is_blob = name == "blob";
            let place = if is_blob { EncodedPlace::Blob } else { EncodedPlace::Text };
            encoded_in(member, place, visit);
        }),
        JsonKind::Plain | JsonKind::Escaped => {
            // A text that is not encoded is read once, by the visitor.
            let raw = value.raw();
            if place == EncodedPlace::Text && !raw.contains("64,") && !raw.contains("\\u00") {
                return;
            }
            let Some(text) = value.as_str() else { return };
            if place == EncodedPlace::Blob {
                decoded(&text, visit);
            }
            data_of_uris(&text, &mut |data: &str| decoded(data, visit));
        }
    }
}

/// Calls `visit` with the data of each `data:` URI in base64 in a text. Browsers ignore the case of the scheme, and line ends
/// and tabs; in other texts they end the URI, so both readings are given.
fn data_of_uris(text: &str, visit: &mut impl FnMut(&str)) {
    const CODING: &str = "base64";
    for (comma, _) in text.match_indices(',') {
        let before = text.get(..comma).unwrap_or_default();
        let coding = before.get(before.len().saturating_sub(CODING.len())..);
        if !coding.is_some_and(|coding| coding.eq_ignore_ascii_case(CODING)) {
            continue;
        }
        let rest = text.get(comma + 1..).unwrap_or_default();
        let is_coded =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_' | '=' | '%');
        let goes_on = |c: char| is_coded(c) || matches!(c, '\r' | '\n' | '\t');
        let until = |ends: &dyn Fn(char) -> bool| {
            rest.get(..rest.find(ends).unwrap_or(rest.len())).unwrap_or_default()
        };
        let (line, all) = (until(&|c| !is_coded(c)), until(&|c| !goes_on(c)));
        let mut uri = |data: &str| {
            let (bytes, _undone) = json::coding::percent(data);
            visit(&String::from_utf8_lossy(&bytes));
        };
        uri(line);
        if all.trim_end().len() > line.len() {
            uri(all);
        }
    }
}

/// Calls `visit` with the text that base64 data decodes to, in UTF-8 or in UTF-16 with a mark. Bytes that are no UTF-8
/// separate the words around them.
fn decoded(data: &str, visit: &mut impl FnMut(&str)) {
    let bytes = json::coding::base64_skipping(data);
    match String::from_utf8(bytes) {
        Ok(text) => visit(&text),
        Err(error) => {
            let bytes = error.as_bytes();
            let text = utf16(bytes);
            visit(&text.unwrap_or_else(|| {
                String::from_utf8_lossy(bytes).replace(char::REPLACEMENT_CHARACTER, " ")
            }));
        }
    }
}

/// A text in UTF-16 with a mark of its byte order; `None` if it is none.
fn utf16(bytes: &[u8]) -> Option<String> {
    let read: fn([u8; 2]) -> u16 = match bytes {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return None,
    };
    let pairs = bytes.chunks_exact(2).filter_map(|pair| pair.try_into().ok());
    let units: Vec<_> = pairs.map(read).collect();
    String::from_utf16(&units).ok()
}

/// Calls `visit` with each member of `value` that has one of these names, at any depth.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
pub fn each_member(value: Value<'_>, names: &[Box<str>], visit: &mut impl FnMut(Value<'_>)) {
    value.items().for_each(|item| each_member(item, names, visit));
    for (name, member) in value.members() {
        if names.iter().any(|known| **known == *name) {
            visit(member);
        }
        each_member(member, names, visit);
    }
}

/// Whether a text consists of names, one on each line: it is too short to tell its reader what to do.
#[must_use]
pub fn is_names(text: &str) -> bool {
    let (bytes, words) = NAME;
    let is_name = |line: &str| {
        let line = line.strip_prefix("- ").unwrap_or(line);
        line.len() <= bytes && line.split_whitespace().count() <= words
    };
    text.lines().all(is_name)
}

/// Whether a line names a place: an address, an account or a path.
#[must_use]
pub fn names_place(line: &str) -> bool {
    let line = normal(line);
    line.split(is_separator).map(trimmed).any(|token| Canonical::of(token).is_place())
}

/// A text without the sequences that colour it in a terminal (ECMA-48, `ESC [ … m` and the like).
fn without_colours(text: &str) -> Cow<'_, str> {
    const BEGIN: &str = "\u{1b}[";
    if !text.contains(BEGIN) {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split(BEGIN);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest =
            part.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ';' | ':' | '?'));
        out.push_str(rest.strip_prefix(|c: char| c.is_ascii_alphabetic()).unwrap_or(part));
    }
    Cow::Owned(out)
}

/// The form in which texts are compared.
fn normal(text: &str) -> Cow<'_, str> {
    // ASCII is in normalisation form KC already.
    if is_plain_ascii(text) {
        return match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(text.to_ascii_lowercase()),
            false => Cow::Borrowed(text),
        };
    }
    let seen = text.nfkc().filter(|c| policy_core::base::hidden::Hidden::of(*c).is_none());
    Cow::Owned(seen.flat_map(char::to_lowercase).map(with_ascii_digit).collect())
}

/// Whether a character ends a token.
fn is_separator(c: char) -> bool {
    match c {
        '\0'..=' ' | '\x7f' | '"' | '\'' | '`' | '<' | '>' | '(' | ')' | '[' | ']' | '{' | '}' => {
            true
        }
        '|' | ',' | ';' | '*' => true,
        c if c.is_ascii() => false,
        '“' | '”' | '‘' | '’' | '«' | '»' => true,
        c => c.is_whitespace() || c.is_control(),
    }
}

fn trimmed(token: &str) -> &str {
    token
        .trim_start_matches(['.', ':', '!', '?', '=', '#', '&'])
        .trim_end_matches(['.', ':', '!', '?', '=', '#', '&', '/', '-'])
}

/// A number without a fraction of zeros; any other token as it is.
fn integral(token: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_zero = |text: &str| !text.is_empty() && text.bytes().all(|b| b == b'0');
    match token.split_once('.') {
        Some((whole, fraction)) if is_zero(fraction) && is_number(whole) => whole,
        Some(_) | None => token,
    }
}

/// A JSON number in decimal digits, without zeros that say nothing: `1.5e3` and `1500.0` are `1500`. A number with too
/// many digits stays as it is.
fn decimal(raw: &str) -> Cow<'_, str> {
    if raw.bytes().all(|byte| byte.is_ascii_digit()) {
        return Cow::Borrowed(raw);
    }
    let (sign, number) = raw.strip_prefix('-').map_or(("", raw), |number| ("-", number));
    // A fraction that a double has no room for says nothing to most readers.
    if let Some(rounded) = json::rounded_to_integer(raw) {
        return Cow::Owned(format!("{sign}{rounded}"));
    }
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let Some(exponent) = exponent.parse::<i32>().ok().filter(|e| e.abs() <= 64) else {
        return Cow::Borrowed(raw);
    };
    let mut digits = format!("{whole}{fraction}");
    let mut point = i32::try_from(whole.len()).unwrap_or(i32::MAX).saturating_add(exponent);
    while point <= 0 {
        digits.insert(0, '0');
        point += 1;
    }
    let point = usize::try_from(point).unwrap_or_default();
    while digits.len() < point {
        digits.push('0');
    }
    let (whole, fraction) = digits.split_at_checked(point).unwrap_or((&digits, ""));
    let whole = whole.trim_start_matches('0');
    let (whole, fraction) =
        (if whole.is_empty() { "0" } else { whole }, fraction.trim_end_matches('0'));
    let separator = if fraction.is_empty() { "" } else { "." };
    Cow::Owned(format!("{sign}{whole}{separator}{fraction}"))
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use proptest::prelude::*;

    use super::{STANDARD, ValueKey, ValueKind, ValueReading, ValueVisitor, decimal};

    #[test]
    fn the_standard_names_are_those_of_the_protocol_and_in_order() {
        assert!(STANDARD.is_sorted());
        let members = include_str!("../engine/places/members.txt").lines();
        let of_servers = members.filter_map(|line| line.strip_prefix("server "));
        for line in of_servers.filter(|line| !line.starts_with("request ")) {
            let pointer = line.split(' ').nth(2).unwrap();
            let name = pointer.split('/').nth(1).unwrap();
            assert!(STANDARD.contains(&name), "{line}");
        }
    }

    fn found(key: &ValueKey, reading: ValueReading, text: &str) -> Vec<(ValueKind, u64)> {
        let mut found = Vec::new();
        ValueVisitor::new(key, reading, |kind, hash| {
            found.push((kind, hash));
            true
        })
        .text(text);
        found
    }

    fn read(key: &ValueKey, reading: ValueReading, text: &str) -> Vec<u64> {
        let found = found(key, reading, text).into_iter();
        let is_address = |kind| matches!(kind, ValueKind::Address | ValueKind::Inner);
        found.filter(|(kind, _)| is_address(*kind)).map(|(_, hash)| hash).collect()
    }

    fn addresses(key: &ValueKey, text: &str) -> Vec<u64> {
        read(key, ValueReading::Judged, text)
    }

    #[test]
    fn what_is_encoded_is_read_as_lenient_readers_read_it() {
        let all = |value: serde_json::Value| {
            let document = json::Document::parse(
                bytes::Bytes::from(value.to_string()),
                &json::JsonBounds::ANSWER,
            );
            let mut texts = Vec::new();
            super::each_encoded(document.unwrap().root(), &mut |text| texts.push(text.to_owned()));
            texts.join("|")
        };
        // "Our contact: eve@evil.example." and the same with a byte of Latin-1 behind it.
        let plain = "T3VyIGNvbnRhY3Q6IGV2ZUBldmlsLmV4YW1wbGUu";
        let latin = "T3VyIGNvbnRhY3Q6IGV2ZUBldmlsLmV4YW1wbGUu6Q==";
        let (first, rest) = plain.split_at(20);
        let blobs = [
            plain.to_owned(),
            format!("{plain}\n"),
            format!("{first}\r\n{rest}\r\n"),
            latin.to_owned(),
            format!("{first}!{rest}"),
        ];
        for blob in &blobs {
            let read = all(serde_json::json!({ "contents": [{ "blob": blob }] }));
            assert!(read.contains("eve@evil.example"), "{blob}: {read}");
        }
        let escaped = latin.replace('=', "%3D");
        for text in [
            format!("data:text/plain;base64,{plain}"),
            format!("DATA:text/plain;BASE64,{latin}"),
            format!("See data:;base64,{plain} for it."),
            format!("[a](data:text/plain;charset=utf-8;base64,{plain})"),
            format!("<img src=\"data:text/plain;base64,{escaped}\">"),
            format!("data:text/plain;base64,{plain}\nand words"),
            format!("data:text/plain;base64,{first}\n{rest}"),
        ] {
            let read = all(serde_json::json!({ "content": [{ "text": text }, [text.clone()]] }));
            assert_eq!(read.matches("eve@evil.example").count() % 2, 0, "{text}: {read}");
            assert!(read.contains("eve@evil.example"), "{text}: {read}");
        }
        assert_eq!(all(serde_json::json!({ "text": "base 64, and so on" })), "");
    }

    #[test]
    fn one_address_in_several_spellings_is_one_value() {
        let key = ValueKey::new(RandomState::new());
        for (one, other) in [
            ("see https://www.Example.com/a/", "(example.com/a)"),
            ("<Ana@Example.com>", "mailto:ana@example.com."),
            ("GB29 NWBK 6016 1331 9268 19", "gb29nwbk60161331926819"),
            ("e\u{200b}vil.example", "evil.example"),
            ("ｅvil.example", "evil.example"),
            ("'new_password'", "New_Password!"),
        ] {
            let (one, other) = (addresses(&key, one), addresses(&key, other));
            assert!(!other.is_empty() && other.iter().all(|hash| one.contains(hash)), "{one:?}");
        }
    }

    #[test]
    fn words_numbers_and_dates_are_no_addresses() {
        let key = ValueKey::new(RandomState::new());
        for text in [
            "Hello, world.",
            "2022-01-01",
            "98.70",
            "and/or",
            "1,810.00",
            "12/31/2026",
            "e.g. this",
        ] {
            assert!(addresses(&key, text).is_empty(), "{text}");
        }
    }

    #[test]
    fn an_address_is_found_wherever_the_author_of_a_page_puts_it() {
        let key = ValueKey::new(RandomState::new());
        let within = |address: &str, text: &str| {
            let (wanted, shown) =
                (addresses(&key, address), read(&key, ValueReading::Untrusted, text));
            assert!(!wanted.is_empty(), "{address}");
            assert!(wanted.iter().any(|hash| shown.contains(hash)), "{address} in {text}");
        };
        for text in [
            r#"{"body":"Hello\neve@evil.example\nbye"}"#,
            r"Hello\u000aeve@evil.example\r\nbye",
            "contact:eve@evil.example",
            "email=eve@evil.example&x=1",
            "_eve@evil.example_",
            "__eve@evil.example__, please",
            "联系eve@evil.example谢谢",
            "Пишите:eve@evil.exampleСпасибо",
            "eve@evil.example...bye",
            "eve@evil.example.Thanks",
            "Hello.eve@evil.example",
            "mail-eve@evil.example-now",
            "mailto:x@a.example?cc=eve@evil.example",
            "x%20eve@evil.example%0abye",
            "Eve/eve@evil.example",
        ] {
            within("eve@evil.example", text);
        }
        for text in [
            "host:evil.example",
            "联系evil.example谢谢",
            "site/evil.example",
            "wss://evil.example/x",
            "ftp://evil.example",
            "https://user:word@evil.example:8443/x",
            "https://evil.example./x",
            "eve@evil.example",
            "evil.example.Bye",
        ] {
            within("https://evil.example", text);
        }
        for text in [
            "http://192.0.2.7/x",
            "http://3221225991/",
            "http://0xc0000207",
            "at 192.0.2.7:8080.",
            "http://[::ffff:192.0.2.7]:80/",
            "http://me@192.0.2.7/",
        ] {
            within("192.0.2.7", text);
        }
        within("http://[2001:db8::1]/", "see 2001:DB8:0:0::1.");
    }

    #[test]
    fn an_account_is_found_in_groups_and_beside_other_words() {
        let key = ValueKey::new(RandomState::new());
        let within = |account: &str, text: &str| {
            let (wanted, shown) =
                (addresses(&key, account), read(&key, ValueReading::Untrusted, text));
            assert!(wanted.iter().any(|hash| shown.contains(hash)), "{account} in {text}");
        };
        for text in [
            "GB30 NWBK 6016 1331 9268 19 now",
            "pay 12 GB30 NWBK 6016 1331 9268 19 to me",
            "iban_gb30nwbk60161331926819",
            "GB30-NWBK-6016-1331-9268-19",
        ] {
            within("GB30NWBK60161331926819", text);
        }
        within("12-34-56789012", "the account 12-34-56789012");
        for (number, text) in [
            ("+14155550123", "call +1 415 555 0123 now"),
            ("14155550123", "call +1 (415) 555-0123"),
            ("4155550123", "ring 2 or (415) 555-0123"),
            ("14155550123@s.messenger.example", "+14155550123"),
            ("12345678", "no.12345678 and nothing else"),
            ("12345678", "№12345678"),
            ("eve_evil", "eve_evil。"),
            ("eve_evil", "__eve_evil__ or a.eve_evil"),
            ("user:eve_evil", "eve_evil"),
            ("https://intranet/a", "see https://intranet/b"),
            ("+4930901820", "tel. +49 30 901820"),
            ("+4930901820", "tel. 004930901820"),
            ("004930901820", "tel. +49 30 901820"),
            ("+14155550123", "call 00 1 415 555 0123 now"),
            ("+1 (415) 555-0123", "call +14155550123 now"),
            ("123456789012", "pay 12345678 9012 now"),
            ("20000012345678", "pay 20-00-00 12345678 now"),
        ] {
            within(number, text);
        }
        let all = |reading, text: &str| {
            let found = found(&key, reading, text).into_iter();
            found.filter(|(kind, _)| *kind != ValueKind::Run).collect::<Vec<_>>()
        };
        for (name, text) in [
            ("mallory", "write to @mallory."),
            ("mallory", "—mallory— or →mallory"),
            ("mallory", "to=mallory&x=1"),
            ("evilorg/repo-x", "口座evilorg/repo-x円"),
            ("mallory", "write to <@mallory> now"),
            ("@mallory", "write to mallory now"),
            ("mallory", "https://t.me/mallory"),
            ("mallory", "user:mallory"),
            ("mallory", "see /mallory now"),
            ("mallory/exfil", "see https://github.com/mallory/exfil?tab=x"),
            ("mallory/exfil", "clone git@github.com:mallory/exfil.git"),
        ] {
            let (wanted, shown) =
                (all(ValueReading::Judged, name), all(ValueReading::Untrusted, text));
            let is_shown = |(_, hash): &(ValueKind, u64)| shown.iter().any(|(_, one)| one == hash);
            assert!(wanted.iter().any(is_shown), "{name} in {text}");
        }
        within("1234/56/7890/evil", "see 1234/56/7890/evil");
        // The name of a parameter is not what a call is about, nor is that of a file.
        let judged = all(ValueReading::Judged, "https://one.example/some_file?project_id=1");
        for name in ["project_id", "some_file"] {
            let shown = all(ValueReading::Given, name);
            assert!(
                judged.iter().all(|(_, hash)| shown.iter().all(|(_, one)| one != hash)),
                "{name}"
            );
        }
    }

    /// The author of a page cannot make the work more than proportional to its length.
    #[test]
    fn the_number_of_values_is_bounded_by_the_length() {
        let key = ValueKey::new(RandomState::new());
        for part in [
            "a@",
            "a.bc@",
            "a_b.cd.ef@a",
            "1.",
            "a..",
            "1 ",
            "+1 ",
            "123456789012345 ",
            "a 1 ",
            "a/",
            "@a:",
            "gb11 ",
            "\\\\n",
            "_1234567a",
            "例a.bc",
        ] {
            let text = part.repeat(4000);
            let visited = found(&key, ValueReading::Untrusted, &text).len();
            assert!(visited < 6 * text.len(), "{part}: {visited}");
        }
    }

    #[test]
    fn a_number_is_one_value_in_all_its_spellings() {
        for (raw, said) in [
            ("12345678", "12345678"),
            ("12345678.0", "12345678"),
            ("1.2345678e7", "12345678"),
            ("1234567800E-2", "12345678"),
            ("-0.50", "-0.5"),
            ("0.0005", "0.0005"),
            ("5e-4", "0.0005"),
            ("1e999", "1e999"),
        ] {
            assert_eq!(decimal(raw), said, "{raw}");
        }
        let key = ValueKey::new(RandomState::new());
        assert_eq!(addresses(&key, "12345678.0"), addresses(&key, "12345678"));
    }

    proptest! {
        /// What was given once is known when it is sent again, and what was shown too.
        #[test]
        fn a_wider_reading_finds_all_that_a_narrower_one_finds(
            text in r"([a-z0-9.@/:_=\\?#%+ *-]|xn--|https://|\.example|eve@|例|я|\n){0,24}",
        ) {
            let key = ValueKey::new(RandomState::new());
            let [judged, given, untrusted] =
                [ValueReading::Judged, ValueReading::Given, ValueReading::Untrusted]
                    .map(|reading| found(&key, reading, &text));
            // Only what was shown as a link is one; of what is given, what a server could make one of counts too.
            let mut given = given;
            given.retain(|(kind, _)| !matches!(kind, ValueKind::Link | ValueKind::LinkForm));
            prop_assert!(judged.iter().all(|value| given.contains(value)));
            prop_assert!(given.iter().all(|value| untrusted.contains(value)));
        }
    }

    #[test]
    fn a_part_of_a_text_without_spaces_is_found_in_another_text() {
        let key = ValueKey::new(RandomState::new());
        let runs = |text: &str| {
            let found = found(&key, ValueReading::Given, text).into_iter();
            found.filter(|(kind, _)| *kind == ValueKind::Run).collect::<Vec<_>>()
        };
        let shares = |one: &str, two: &str| {
            let shown = runs(two);
            runs(one).iter().any(|run| shown.contains(run))
        };
        let text = "我们公司将于下周五完成对北风公司的收购。收购价格为四亿美元，请不要告诉任何人。";
        assert!(shares("完成对北风公司的收购。收购价格", text));
        assert!(shares("公司将于下周五 完成对北风公司", text));
        assert!(!shares("北风公司的收购", text));
        let text = "お世話になっております。当社は来週の金曜日に北風株式会社の買収を完了します。";
        assert!(shares("来週の金曜日に北風株式会社の買収を完了します", text));
        assert!(!shares("お世話になっております。山田です。", text));
        let text = "บริษัทของเราจะเข้าซื้อกิจการของนอร์ทวินด์ในวันศุกร์หน้าด้วยราคาสี่ร้อยล้านดอลลาร์";
        assert!(shares("เข้าซื้อกิจการของนอร์ทวินด์ในวันศุกร์หน้า", text));
    }

    #[test]
    fn a_run_is_found_in_another_text() {
        let key = ValueKey::new(RandomState::new());
        let runs = |text: &str| {
            let found = found(&key, ValueReading::Judged, text).into_iter();
            found
                .filter(|(kind, _)| *kind == ValueKind::Run)
                .map(|(_, hash)| hash)
                .collect::<Vec<_>>()
        };
        let source = runs("The key is under the mat, behind the house.");
        assert!(runs("They say: the KEY is under the mat").iter().any(|run| source.contains(run)));
        assert!(!runs("the mat is under the key").iter().any(|run| source.contains(run)));
    }
}
