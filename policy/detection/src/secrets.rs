//! Finds keys, tokens and passwords, by the formats that vendors document and by the words before them.
//!
//! One pass over the bytes; more expensive tests are applied only to words that could be secrets.

pub(crate) mod found;
pub(crate) mod runs;
mod vendors;
mod table;
mod pattern;
mod randomness;
mod placeholder;
mod forms;
mod places;
mod names;
mod labels;
mod commands;

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use json::coding;
use memchr::memmem;
use policy_core::base::compiled::Compiled;

use self::commands::flagged;
use self::forms::format;
use self::found::{FoundValue, ValueClass};
pub use self::labels::secret_names;
use self::placeholder::distinct;
use self::places::UrlPath;

/// Shortest word that is a secret because of the words before it, in bytes.
const SHORTEST: usize = 16;
/// Shortest value that is assigned to the name of a service's key, in bytes.
const ASSIGNED_KEY: usize = 10;
/// Longest part of a word that is tested, in bytes: a longer word is judged by its beginning.
const LONGEST: usize = 4096;
/// How many bytes before a word are searched for its designation.
const BEFORE: usize = 48;
/// Longest first line of a private key, in bytes.
const HEADER: usize = 80;
/// How many bytes behind a quoted first line are searched for a key.
const BODY: usize = 512;
/// Shortest line of a key, in bytes.
const LINE: usize = 40;
/// Longest quoted value, in bytes.
const QUOTED: usize = 200;
/// Shortest value after `Bearer` that is taken for a token, in bytes (RFC 6750 section 2.1).
const BEARER: usize = 12;
/// Fewest distinct characters of a word that is no placeholder.
const DIFFERENT: usize = 8;

/// Hosts and paths after which the rest of a URL is a secret.
const WEBHOOKS: [(&str, &str); 11] = [
    ("chat.googleapis.com", "/v1/spaces/"),
    ("maker.ifttt.com", "/trigger/"),
    ("open.feishu.cn", "/open-apis/bot/v2/hook/"),
    (".tines.com", "/webhook/"),
    ("discordapp.com", "/api/webhooks/"),
    ("hooks.slack.com", "/services/"),
    ("hooks.slack.com", "/workflows/"),
    ("outlook.office.com", "/webhook/"),
    (".webhook.office.com", "/webhookb2/"),
    ("discord.com", "/api/webhooks/"),
    ("hooks.zapier.com", "/hooks/catch/"),
];

/// URI schemes in which userinfo is the login of a person (RFC 3986 section 3.2.1); in other schemes it belongs to a
/// connection string.
const WEB: [&str; 9] = ["http", "https", "ws", "wss", "ftp", "ftps", "sftp", "ssh", "git"];

/// Names of secrets, compared without case and separators.
const CALLED: [&str; 18] = [
    "secret",
    "private",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "accountkey",
    "sharedkey",
    "passw",
    "passphrase",
    "pwd",
    "credential",
    "bearer",
    "authorization",
    "auth",
    "key",
    "access",
    "api",
];

/// The automaton for the names of secrets.
static LISTS: Compiled<AhoCorasick> = Compiled::new(|| Ok(AhoCorasick::new(CALLED)?));

/// Ordinary words, and beginnings of such, in which one of [`CALLED`] stands by chance.
const ORDINARY: [&str; 25] = [
    "author",
    "secretar",
    "secretion",
    "keyword",
    "keyboard",
    "keynote",
    "keystone",
    "keyframe",
    "keypad",
    "keyhole",
    "monkey",
    "donkey",
    "turkey",
    "hockey",
    "jockey",
    "hotkey",
    "whiskey",
    "tokeniz",
    "tokenis",
    "accessor",
    "accessib",
    "accession",
    "capita",
    "rapid",
    "therap",
];

/// The automaton for ordinary words.
static ORDINARY_WORDS: Compiled<AhoCorasick> = Compiled::new(|| Ok(AhoCorasick::new(ORDINARY)?));

/// The names of secrets in a text in lower case without signs: their numbers in [`CALLED`].
fn names_in(plain: &str) -> Vec<usize> {
    let Some(lists) = LISTS.get() else { return Vec::new() };
    let mut found = lists.find_overlapping_iter(plain).peekable();
    if found.peek().is_none() {
        return Vec::new();
    }
    let ordinary = ORDINARY_WORDS.get().into_iter();
    let ordinary = ordinary.flat_map(|words| words.find_overlapping_iter(plain));
    let ordinary: Vec<Range<usize>> = ordinary.map(|word| word.range()).collect();
    let is_within = |name: &Range<usize>| {
        ordinary.iter().any(|word| word.start <= name.start && name.end <= word.end)
    };
    found.filter(|name| !is_within(&name.range())).map(|name| name.pattern().as_usize()).collect()
}

/// The beginning of a PEM block (RFC 7468).
static BEGIN: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new("-----BEGIN"));

/// Whether the text before a short word could introduce it as a value: with a sign or a keyword.
fn may_be_given(bytes: &[u8], at: usize) -> bool {
    let before = bytes.get(at.saturating_sub(12)..at).unwrap_or_default();
    let blanks = |b: &&u8| matches!(b, b'"' | b'\'' | b'`' | b' ' | b'\\' | b'\t' | b'>' | b'(');
    let mut back = before.iter().rev().skip_while(blanks);
    let last = back.next().copied().unwrap_or(b' ').to_ascii_lowercase();
    // `=` and `:`; `-p`, `-u`, `/p` and `--password`; `basic` and `bearer`.
    matches!(last, b'=' | b':')
        || matches!(last, b'p' | b'u' | b's' | b'd' | b'r')
            && back.any(|b| matches!(b, b'-' | b'/'))
        || matches!(last, b'c' | b'r')
            && before.to_ascii_lowercase().windows(4).any(|w| w == b"asic" || w == b"arer")
}

/// For each byte whether it is a part of a word: a look-up for each byte of a text takes less time than comparisons.
static PARTS: [bool; 256] = {
    let mut parts = [false; 256];
    let mut rest: &mut [bool] = &mut parts;
    let mut byte = 0_u8;
    while let [part, more @ ..] = rest {
        *part = byte.is_ascii_alphanumeric()
            || matches!(byte, b'_' | b'-' | b'.' | b'+' | b'/' | b'~' | b'!' | b'%');
        byte = byte.wrapping_add(1);
        rest = more;
    }
    parts
};

fn is_part(byte: u8) -> bool {
    PARTS.get(usize::from(byte)).is_some_and(|part| *part)
}

/// Appends the secrets in `text`, and what stands in place of a secret as [`ValueClass::Placeholder`].
pub(crate) fn find(text: &str, out: &mut Vec<FoundValue>) {
    let before = out.len();
    forms::find(text, out);
    let found = out.get(before..).unwrap_or_default();
    let mut known: Vec<Range<usize>> = found.iter().map(|one| one.from..one.end).collect();
    known.sort_unstable_by_key(|range| (range.start, range.end));
    words(text, &known, out);
    labels::find(text, &known, out);
}

/// Appends the secrets whose form alone tells that they are some: keys in a vendor's format, private keys, and passwords in
/// URIs. For texts that speak about secrets.
fn find_formed(text: &str, out: &mut Vec<FoundValue>) {
    let before = out.len();
    forms::find(text, out);
    let mut at = 0;
    while let Some(begins) = text.get(at..).and_then(|rest| BEGIN.find(rest.as_bytes())) {
        at += begins;
        at = private_key(text, at, out).unwrap_or(at + 10);
    }
    let mut at = 0;
    while let Some(signs) = text.get(at..).and_then(|rest| rest.find("://")) {
        at = connection(text, at + signs, out);
    }
    let mut found: Vec<FoundValue> = out.drain(before..).collect();
    found.retain(|one| one.class == ValueClass::Secret);
    out.append(&mut found);
}

/// The ranges of the secrets in `text` that have a form of their own, in order and apart: for texts that speak about
/// passwords and keys, in which no word before a value tells that it is one.
#[must_use]
pub(crate) fn formed_secrets(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    find_formed(text, &mut found);
    let mut places: Vec<Range<usize>> = found.iter().map(|one| one.from..one.end).collect();
    places.sort_unstable_by_key(|place| (place.start, std::cmp::Reverse(place.end)));
    let mut done = 0;
    places.retain(|place| {
        let is_apart = place.start >= done;
        done = done.max(place.end);
        is_apart
    });
    places
}

/// Most bytes of the name of a member that are looked at: the last ones.
const NAME: usize = 64;
/// Longest value that is a secret because of the name of its member, in bytes.
const NAMED: usize = 4096;

/// Appends the secrets of a value because of the name of its member, by the words and the rules that apply to
/// `"name": "value"` in a text. Where the value stands in quotation marks itself, they are no part of it.
pub(crate) fn find_named(name: &str, value: &str, out: &mut Vec<FoundValue>) {
    let whole = value.trim();
    if whole.len() < labels::SHORTEST || whole.len() > NAMED {
        return;
    }
    let start = value.len() - value.trim_start().len();
    let name =
        name.get(name.ceil_char_boundary(name.len().saturating_sub(NAME))..).unwrap_or_default();
    let mut found = Vec::new();
    labels::of_member(name, whole, &mut found);
    if found.is_empty() && says_secret(name) {
        let mark = if whole.contains('"') { '\'' } else { '"' };
        let text = format!("{mark}{name}{mark}: {mark}{whole}{mark}");
        words(&text, &[], &mut found);
        let from = text.len() - whole.len() - 1;
        found.retain(|one| one.from >= from && one.end <= from + whole.len());
        for one in &mut found {
            (one.from, one.end) = (one.from - from, one.end - from);
        }
    }
    out.extend(found.into_iter().map(|one| one.behind(start)));
}

/// Whether one of the words for a key, or the name of a service, is in the name of a member.
fn says_secret(name: &str) -> bool {
    let plain: String =
        name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    !names_in(&plain).is_empty() || vendors::names(&plain).is_some()
}

/// The rule of a JSON object in base64 that has a secret.
pub(crate) const ENCODED_TOKEN: &str = "encoded-token";

/// Whether the name of a member says that its value grants nothing.
pub(crate) fn names_no_secret(name: &str) -> bool {
    names::is_public(name)
}

/// Whether the name of a member announces a secret.
pub(crate) fn announces(name: &str) -> bool {
    labels::announces(name) || says_secret(name) && !names::is_public(name)
}

/// Whether any of these ranges, which are in order, overlaps a word.
fn is_known(known: &[Range<usize>], from: usize, end: usize) -> bool {
    let at = known.partition_point(|range| range.end <= from);
    known.get(at).is_some_and(|range| range.start < end)
}

/// Appends the secrets that are words of the text, except for those that `known` covers.
fn words(text: &str, known: &[Range<usize>], out: &mut Vec<FoundValue>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if !is_part(*byte) {
            if matches!(byte, b'"' | b'\'')
                && let Some(end) = quoted(text, at, out)
            {
                at = end;
                continue;
            }
            if *byte == b':' && bytes.get(at..).is_some_and(|rest| rest.starts_with(b"://")) {
                at = connection(text, at, out);
                continue;
            }
            at += 1;
            continue;
        }
        let rest = bytes.get(at..).unwrap_or_default();
        let run = at + rest.iter().position(|byte| !is_part(*byte)).unwrap_or(rest.len());
        // A shortcut for most words, which are short and assigned to nothing.
        let one = bytes.get(at..run).unwrap_or_default();
        let plain = memchr::memchr(b'-', one).is_none();
        if plain && one.len() < SHORTEST && !may_be_given(bytes, at) {
            at = run;
            continue;
        }
        // Each byte of a run is searched once for the beginning of a private key.
        while at < run {
            let left = bytes.get(at..run).unwrap_or_default();
            let dashes = memchr::memchr(b'-', left).is_some();
            let begins = if dashes { BEGIN.find(left) } else { None };
            let end = begins.map_or(run, |begins| at + begins);
            if end - at >= 6 && !is_known(known, at, end) {
                word(text, at, end, out);
            }
            at = match begins {
                Some(_) => private_key(text, end, out).unwrap_or(end + 10),
                None => run,
            };
        }
    }
}

/// Finds a private key in PEM (RFC 7468), up to its footer or the end of the text.
fn private_key(text: &str, at: usize, out: &mut Vec<FoundValue>) -> Option<usize> {
    let rest = text.get(at..)?;
    let line = rest.get(..rest.floor_char_boundary(HEADER))?;
    let line = line.split(['\n', '\\']).next()?;
    (line.contains("PRIVATE KEY") && !is_mentioned(rest, line.len())).then_some(())?;
    let footer = rest.find("-----END").map(|end| {
        let tail = rest.get(end + 8..).unwrap_or_default();
        end + 8 + tail.find("-----").map_or(0, |more| more + 5)
    });
    let end = at + footer.unwrap_or(rest.len());
    out.push(FoundValue::new(ValueClass::Secret, "private-key", at, end));
    Some(end)
}

/// Whether the first line of a private key is quoted in a text or a program, and no key follows it. `length` is that of the
/// line.
fn is_mentioned(rest: &str, length: usize) -> bool {
    let behind = |signs: &str| rest.get(..length)?.split_once(signs).map(|(_, tail)| tail);
    let tail = behind("KEY-----").or_else(|| behind("BLOCK-----"));
    if !tail.is_some_and(|tail| tail.starts_with(['"', '\'', '`', ')'])) {
        return false;
    }
    let sample = rest.as_bytes().get(length..).unwrap_or_default();
    let part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let sample = sample.get(..sample.len().min(BODY)).unwrap_or_default();
    runs::long(sample, LINE, part).next().is_none()
}

/// Finds the password in `scheme://name:password@`, or a webhook URL; returns where to continue.
fn connection(text: &str, at: usize, out: &mut Vec<FoundValue>) -> usize {
    let start = at + 3;
    let rest = text.get(start..).unwrap_or_default();
    let length = rest
        .bytes()
        .take(512)
        .position(|b| {
            b.is_ascii_whitespace() || matches!(b, b'/' | b'"' | b'\'' | b'`' | b'<' | b'>')
        })
        .unwrap_or(rest.len().min(512));
    let authority = rest.get(..length).unwrap_or_default();
    if let Some((userinfo, _)) = authority.rsplit_once('@')
        && let Some((name, password)) = userinfo.split_once(':')
        && password.len() >= 3
    {
        let from = start + userinfo.len() - password.len();
        let rule = login(text.get(..at).unwrap_or_default());
        let (class, rule) = if is_example(name, password) {
            (ValueClass::Placeholder, "placeholder")
        } else {
            (ValueClass::Secret, rule)
        };
        out.push(FoundValue::new(class, rule, from, from + password.len()));
        return start + userinfo.len();
    }
    let path = rest.get(length..).unwrap_or_default();
    let host = authority.to_ascii_lowercase();
    let of = |(place, _): &&(&str, &str)| host.ends_with(place);
    for (_, begins) in WEBHOOKS.iter().filter(of) {
        if let Some(secret) = path.strip_prefix(begins) {
            let part = |b: u8| is_part(b) || b == b'@';
            let end = secret.bytes().position(|b| !part(b)).unwrap_or(secret.len());
            if end >= SHORTEST {
                let from = start + length + begins.len();
                out.push(FoundValue::new(ValueClass::Secret, "webhook", from, from + end));
                return from + end;
            }
        }
    }
    start
}

/// Whether a login is one of an example: a variable, a word such as `password`, or the name of the user again.
fn is_example(name: &str, password: &str) -> bool {
    placeholder::is_password(password) || password == name && password.len() < SHORTEST
}

/// The rule for a password in userinfo, by the scheme before it.
fn login(before: &str) -> &'static str {
    let scheme = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
    let length = before.bytes().rev().take(BEFORE).take_while(scheme).count();
    let scheme = before.get(before.len() - length..).unwrap_or_default();
    if WEB.iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        "url-password"
    } else {
        "connection-string"
    }
}

/// Finds a quoted value with special characters that is called a secret; returns where to continue.
fn quoted(text: &str, at: usize, out: &mut Vec<FoundValue>) -> Option<usize> {
    let before = text.get(text.floor_char_boundary(at.saturating_sub(BEFORE))..at)?;
    let ends = before.trim_end_matches([' ', '\\', '(']);
    // A default value, as in `get("SECRET_KEY", "...")`.
    let default = ends.ends_with("',") || ends.ends_with("\",");
    (ends.ends_with(['=', ':']) || default).then_some(())?;
    let mark = char::from(*text.as_bytes().get(at)?);
    let rest = text.get(at + 1..)?;
    let rest = rest.get(..rest.floor_char_boundary(QUOTED))?;
    let value = rest.get(..rest.find(mark)?)?.trim_end_matches('\\');
    let special = |c: char| c.is_ascii() && !is_part(c as u8);
    let whole = value.len() >= 8 && !value.contains(char::is_whitespace) && value.contains(special);
    let plain = value.contains(['$', '{', '<', '(']) && !is_random(value);
    if !whole || plain || value.contains("://") || !is_varied(value) || is_placeholder(value) {
        return None;
    }
    let before = before.trim_end_matches([' ', ',']);
    let strong = called(before, "a0b1c2d3e4f5g6h7")?;
    (names_secret(before) || strong == "password").then_some(())?;
    out.push(FoundValue::new(ValueClass::Secret, strong, at + 1, at + 1 + value.len()));
    Some(at + 1 + value.len())
}

/// Whether at least half of the neighbouring characters differ in kind.
fn is_random(value: &str) -> bool {
    let kind = |b: u8| (b.is_ascii_lowercase(), b.is_ascii_uppercase(), b.is_ascii_digit());
    let changes =
        value.as_bytes().windows(2).filter(|p| matches!(p, [a, b] if kind(*a) != kind(*b)));
    value.len() >= 20 && changes.count() * 2 >= value.len()
}

fn names_secret(before: &str) -> bool {
    let lower = before.rsplit(['\n', ';', ',', '{', '}']).next().unwrap_or(before).to_lowercase();
    lower.contains("secret") || lower.contains("passw") || lower.contains("private")
}

/// The offset of the value in a word that includes its name, as in `vendor-token-VALUE`.
fn joined(word: &str) -> Option<usize> {
    let uuid = word.len().checked_sub(36).filter(|at| {
        word.get(*at..).is_some_and(is_uuid)
            && word.get(..*at).is_some_and(|head| head.ends_with(['-', '_', '.']))
    });
    let at = match uuid {
        Some(at) => at,
        None => word.rfind(['-', '.'])? + 1,
    };
    let value = word.get(at..)?;
    let head: String = word
        .get(..at)?
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect::<String>()
        .to_lowercase();
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let called = CALLED.iter().any(|name| head.ends_with(name)) || vendors::names(&head).is_some();
    let called = called && (head == "key" || !names::is_public(word.get(..at)?));
    (value.len() >= SHORTEST && digits >= 4 && called).then_some(at)
}

fn word(text: &str, from: usize, end: usize, out: &mut Vec<FoundValue>) {
    let whole = text.get(from..end).unwrap_or_default();
    let skipped = whole.len() - whole.trim_start_matches(['-', '.', '/', '+', '~', '!', '%']).len();
    let (from, whole) = (from + skipped, whole.trim_matches(['-', '.', '/', '+', '~', '!', '%']));
    let start = whole.get(..whole.len().min(LONGEST)).unwrap_or(whole);
    // Base64 padding is part of the value.
    let tail = text.as_bytes().get(from + whole.len()..).unwrap_or_default();
    let padding = tail.iter().take(2).take_while(|byte| **byte == b'=').count();
    let end = from + whole.len() + padding;
    if start.len() >= SHORTEST
        && let Some(rule) = format(start)
        && !names::is_public(text.get(..from).unwrap_or_default())
    {
        return out.push(FoundValue::new(ValueClass::Secret, rule, from, end));
    }
    if let Some(found) = flagged(text, from, end) {
        return out.push(found);
    }
    // A shortcut for most words, which are short and assigned to nothing.
    let given = || {
        let before = text.get(..from).unwrap_or_default();
        is_assigned(before) || ends_with(before, "bearer ") && start.len() >= BEARER
    };
    if start.len() < SHORTEST && !given() || !is_varied(start) || is_placeholder(start) {
        return;
    }
    let place = UrlPath::of(text.get(..from).unwrap_or_default(), start);
    if is_shown(text, from, end, place) {
        return;
    }
    if let Some(at) = key_within(place, start).filter(|_| start.len() == whole.len()) {
        return out.push(FoundValue::new(
            ValueClass::Secret,
            "credential",
            from + at,
            from + whole.len(),
        ));
    }
    // A word that is not assigned to a name has to look like a secret.
    let digits = start.bytes().filter(u8::is_ascii_digit).take(2).count();
    if digits < 2 && start.len() < 20 && !given() {
        return;
    }
    let before = text.get(text.floor_char_boundary(from.saturating_sub(BEFORE))..from);
    let Some(rule) = called(before.unwrap_or_default(), start) else { return };
    // A call is no value.
    if text.as_bytes().get(end) == Some(&b'(') {
        return;
    }
    if rule == "password" && is_prose(text, from, end) {
        return;
    }
    out.push(FoundValue::new(ValueClass::Secret, rule, from, end));
}

/// Whether a word of letters begins a description: `password: The password of the account`.
fn is_prose(text: &str, from: usize, end: usize) -> bool {
    let word = text.get(from..end).unwrap_or_default();
    let letters = word.bytes().all(|byte| byte.is_ascii_alphabetic());
    let colon = text.get(..from).unwrap_or_default().trim_end().ends_with(':');
    let more = matches!(text.as_bytes().get(end..end + 2), Some([b' ', next]) if next.is_ascii_alphabetic() || *next == b'(');
    letters && colon && (more || word.bytes().any(|byte| byte.is_ascii_uppercase()))
}

/// Whether a word is a path or a `key` that a service makes public, and nothing before it calls it a secret.
fn is_shown(text: &str, from: usize, end: usize, place: Option<UrlPath<'_>>) -> bool {
    let before = text.get(text.floor_char_boundary(from.saturating_sub(BEFORE))..from);
    let said = before.unwrap_or_default();
    let open = !names_secret(said) && !said.to_ascii_lowercase().contains("token");
    open && (place.is_some_and(UrlPath::is_public) || places::is_figma(text, from, end))
}

/// The offset of a value in a word that includes its name, or of a key in the path of a service.
fn key_within(place: Option<UrlPath<'_>>, word: &str) -> Option<usize> {
    match place.map(UrlPath::key) {
        Some(Ok(key)) => key,
        None | Some(Err(places::AmbiguousPath)) => joined(word),
    }
}

/// Whether a text ends with a word, ignoring case.
fn ends_with(text: &str, word: &str) -> bool {
    let start = text.len().checked_sub(word.len());
    start.and_then(|start| text.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(word))
}

/// Whether the text before a value assigns it: it ends with `=` or `:`.
fn is_assigned(before: &str) -> bool {
    before.trim_end_matches(['"', '\'', '`', ' ', '\\', '\t', '>', '(']).ends_with(['=', ':'])
}

/// Parts of names whose values are public, or made from a secret.
const SHOWN: [&str; 14] = [
    "hash",
    "digest",
    "checksum",
    "fingerprint",
    "sha1",
    "sha256",
    "sha512",
    "publickey",
    "pubkey",
    "cachekey",
    "sortkey",
    "primarykey",
    "partitionkey",
    "idempotencykey",
];

/// The rule of a word that the text before it calls a secret.
fn called(before: &str, word: &str) -> Option<&'static str> {
    let line = before.rsplit(['\n', ';', ',', '{', '}']).next().unwrap_or(before);
    let plain: String = line
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, '=' | ':'))
        .flat_map(char::to_lowercase)
        .collect();
    let assigned = is_assigned(line);
    if names::is_public(line) && !is_key_of_credential(before, line) {
        return None;
    }
    let least_of_key = if assigned { ASSIGNED_KEY } else { SHORTEST };
    if of_vendor(&plain, word, least_of_key) {
        return Some("credential");
    }
    // What is assigned belongs to the last name before it.
    let segment = plain.trim_end_matches(['=', ':']);
    let segment =
        if assigned { segment.rsplit(['=', ':']).next().unwrap_or(segment) } else { segment };
    let name = CALLED.get(names_in(segment).into_iter().min()?)?;
    if SHOWN.iter().any(|shown| segment.contains(shown)) || names::is_id(line) {
        return None;
    }
    if matches!(*name, "passw" | "passphrase" | "pwd") && assigned {
        let at_host = line.contains('@') && !line.trim_end().ends_with('=');
        let one =
            word.len() >= 6 && !at_host && !is_reference(word) && !placeholder::is_password(word);
        return one.then_some("password");
    }
    let naming = KeyNaming {
        name,
        strong: !matches!(*name, "key" | "access" | "auth" | "api"),
        assigned,
        adjacent: segment.ends_with(name),
        compound: segment.len() > name.len(),
    };
    (naming.fits(word) && !is_reference(word) && !randomness::is_worded(word))
        .then_some("credential")
}

/// Whether `line`, the end of `before`, names the `key` of an entry that is called a secret itself: `api:` and below it
/// `key:`.
fn is_key_of_credential(before: &str, line: &str) -> bool {
    let above = before.get(..before.len() - line.len()).unwrap_or_default();
    let opens = |c: char| c.is_whitespace() || matches!(c, '{' | '"' | '\'' | '\\');
    let above = above.trim_end_matches(opens);
    let name = above.strip_suffix([':', '=']).unwrap_or_default();
    let name =
        name.rsplit(|c: char| !c.is_alphanumeric() && c != '_').find(|name| !name.is_empty());
    names::is_bare_key(line) && name.is_some_and(says_secret)
}

/// How the text before a word names it.
struct KeyNaming<'a> {
    name: &'a str,
    /// Whether the name alone says that the value is a secret.
    strong: bool,
    assigned: bool,
    adjacent: bool,
    /// Whether the name is a part of a longer one, as in `vendor_key`.
    compound: bool,
}

impl KeyNaming<'_> {
    /// Whether a word is long and random enough to be what the name says: the more the name says, the shorter it may be.
    fn fits(&self, word: &str) -> bool {
        let least = match self.name {
            "bearer" if self.adjacent => BEARER,
            name if self.assigned || self.adjacent && name != "api" => SHORTEST,
            _ => 20,
        };
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        let letters = word.bytes().filter(u8::is_ascii_alphabetic).count();
        let whole = digits + letters == word.len();
        let near = self.assigned || self.adjacent;
        let random = digits >= 2 && letters > 0
            || word.len() >= 20 && digits == word.len() && near && (self.strong || self.assigned)
            || word.len() >= 24 && digits == 0 && is_mixed(word)
            || word.len() >= 26 && whole && digits == 0 && near && distinct(word) >= SHORTEST;
        let short = self.assigned
            && self.adjacent
            && (self.strong || self.compound)
            && (ASSIGNED_KEY..SHORTEST).contains(&word.len())
            && whole
            && digits >= 3
            && letters >= 3;
        short
            || word.len() >= least
                && random
                && (self.strong || self.assigned || self.adjacent || word.len() >= 24)
    }
}

/// Whether a word looks random and follows the name of a service. Behind the name of a service's key, it has at least
/// `least_of_key` bytes.
fn of_vendor(plain: &str, word: &str, least_of_key: usize) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let letters = word.bytes().any(|b| b.is_ascii_alphabetic());
    let random = digits >= 2 && letters || word.len() >= 20 && is_mixed(word);
    let whole = word.bytes().all(|b| b.is_ascii_alphanumeric());
    let long = word.len() >= 20 && whole && distinct(word) >= 16;
    let keyed = digits >= SHORTEST && digits == word.len() || long;
    if !random && !keyed {
        return false;
    }
    let Some(key) = vendors::names(plain.trim_end_matches(['=', ':'])) else { return false };
    let least = if key { least_of_key } else { SHORTEST };
    word.len() >= least && (random || key) && !is_reference(word)
}

/// Whether a word changes from lower to upper case within its parts.
fn is_mixed(word: &str) -> bool {
    let changes = word
        .as_bytes()
        .windows(2)
        .filter(|pair| matches!(pair, [a, b] if a.is_ascii_lowercase() && b.is_ascii_uppercase()));
    changes.count() * 6 >= word.len()
}

/// Whether a word is a path, a name or a version, and not a value.
fn is_reference(word: &str) -> bool {
    if word.contains("://") || coding::percent(word).1 * 12 > word.len() {
        return true;
    }
    let parts: Vec<&str> =
        word.split(['/', '.', '_', '-', '+']).filter(|part| !part.is_empty()).collect();
    let spoken = |part: &&&str| {
        part.bytes().all(|b| b.is_ascii_lowercase())
            || part.bytes().all(|b| b.is_ascii_uppercase())
            || part.bytes().skip(1).all(|b| b.is_ascii_lowercase())
            || part.len() <= 3
    };
    let words = parts.iter().filter(spoken).count();
    // At least three quarters of its parts are words.
    parts.len() >= 2 && words * 4 >= parts.len() * 3 && !is_uuid(word)
        || word.contains('/')
            && parts.iter().any(|part| part.len() > 3 && spoken(&part))
            && parts.len() >= 3
}

fn is_uuid(word: &str) -> bool {
    let lengths = word.split('-').map(str::len);
    word.len() == 36 && lengths.eq([8, 4, 4, 4, 12])
}

fn is_varied(word: &str) -> bool {
    distinct(word) >= if word.len() < SHORTEST { 4 } else { DIFFERENT }
}

fn is_placeholder(word: &str) -> bool {
    placeholder::is_one(word)
}

#[cfg(test)]
mod tests {
    use super::{LISTS, ORDINARY_WORDS};

    #[test]
    fn the_lists_compile() {
        assert!(LISTS.error().is_none());
        assert!(ORDINARY_WORDS.error().is_none());
    }
}
