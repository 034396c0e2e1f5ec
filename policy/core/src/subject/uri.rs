//! Brings the URIs of resources and the texts of URI templates into one canonical form.
//!
//! A server may return the same resource for many spellings of its URI. Rules, approvals, revocations and
//! audit records therefore never see a URI as it arrived, but the canonical form of RFC 3986, section 6. A
//! spelling that a reader could resolve to another resource has no canonical form and is refused, not
//! repaired: a repair would have to know how the server would have repaired it.

use std::borrow::Cow;
use std::fmt;
use std::iter;
use std::net::{Ipv4Addr, Ipv6Addr};

use unicode_normalization::{UnicodeNormalization as _, is_nfc};

use crate::base::hidden::{Hidden, has_variant};

/// Longest URI, in bytes.
const LONGEST: usize = 2048;

/// Why a text is not a URI that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UriError {
    /// It is empty, or longer than 2048 bytes.
    Length,
    /// It does not begin with a scheme.
    Scheme,
    /// A scheme that has hosts, without one; or a host that is written in an unusual way.
    Host,
    /// Brackets around something else than an IPv6 address, or an address without plain brackets or that readers write
    /// differently.
    Address,
    /// A bracket in a pattern where it is not known whether it belongs to a host.
    Bracket,
    /// A port that is empty, is the usual one of the scheme, or is not a plain number.
    Port,
    /// The letter of a drive that is not written as `C:`: some readers take `C|` for it (WHATWG URL, section 4.2).
    Drive,
    /// Userinfo before the host.
    Userinfo,
    /// A segment of dots.
    Dots,
    /// An empty segment before the last.
    Empty,
    /// A fragment, which is not sent to a server.
    Fragment,
    /// A backslash, or a slash or a backslash that is escaped.
    Slash,
    /// A `%` that is not followed by two hexadecimal digits, or escapes that are not UTF-8.
    Escape,
    /// An escaped character that must not be escaped, or an escape that is escaped again.
    Escaped,
    /// A control character, or one that is not shown.
    Hidden,
    /// A blank at its end: many readers of URIs remove it (WHATWG URL, section 4.4).
    Blank,
    /// Characters outside ASCII that are not in normalisation form C, or that some readers turn into
    /// separators.
    Form,
}

impl UriError {
    /// What is wrong, for a caller and for an operator.
    #[must_use]
    pub const fn note(self) -> &'static str {
        match self {
            Self::Length => "the URI is empty or longer than 2048 bytes",
            Self::Scheme => "the URI does not begin with a scheme",
            Self::Host => "the URI has no host, or one that is not written plainly",
            Self::Bracket => {
                "the pattern has a bracket behind a wildcard, where a host may stand or a path: write the scheme and `//` before \
                 the address, as in `http://[2001:db8::1]/*`, or `%5B` and `%5D` for brackets of a path"
            }
            Self::Address => {
                "the URI has brackets around something that is not an IPv6 address, or such an address that is not in brackets and \
                 in its shortest form, like `[2001:db8::1]`"
            }
            Self::Port => "the URI has a port that is not written plainly; leave out the usual one",
            Self::Drive => "the URI has the letter of a drive that is not written as `C:`",
            Self::Userinfo => "the URI has a name or a password before its host",
            Self::Dots => "the URI has a segment of dots",
            Self::Empty => "the URI has an empty segment",
            Self::Fragment => "the URI has a fragment",
            Self::Slash => "the URI has a backslash, or an escaped slash",
            Self::Escape => "the URI has a `%` that does not begin an escape of UTF-8",
            Self::Escaped => "the URI has an escape of a character that must not be escaped",
            Self::Hidden => "the URI has a character that is not shown",
            Self::Blank => "the URI ends in a blank",
            Self::Form => "the URI is not in Unicode normalisation form C",
        }
    }
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.note())
    }
}

impl std::error::Error for UriError {}

/// The origin of a spelling, which determines what it may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UriSource {
    /// A caller: only spellings that every reader resolves alike.
    Caller,
    /// The list of a server. The server fixes its own spelling, so an unusual one has a canonical form:
    /// userinfo is left out, unneeded escapes are undone, an IPv6 address is shortened, and the scheme may be missing.
    List,
    /// A template (RFC 6570) in the list of a server: expressions in braces are kept.
    Template,
}

/// The URI of a resource, or the text of a template, in canonical form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceUri(Box<str>);

impl ResourceUri {
    /// Parses the URI that a caller names.
    ///
    /// # Errors
    /// When it has a spelling that readers could resolve to different resources.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        canonical(text, UriSource::Caller).map(Self)
    }

    /// Parses the URI of a resource that a server lists.
    ///
    /// # Errors
    /// When it has no canonical form.
    pub fn listed(text: &str) -> Result<Self, UriError> {
        canonical(text, UriSource::List).map(Self)
    }

    /// Parses the text of a template that a server lists.
    ///
    /// # Errors
    /// When it has no canonical form.
    pub fn template(text: &str) -> Result<Self, UriError> {
        canonical(text, UriSource::Template).map(Self)
    }

    /// The canonical form as a string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The forms in which a canonical URI is compared with the patterns of prohibitions, the URI itself first: many servers
/// return the same resource with and without a query, path parameters, a slash or blanks at the end, with another case
/// of the authority or of a drive letter, and for `file:` with any authority. A form may occur twice.
///
/// A hostile URI has some two hundred forms, so they are made one at a time.
pub fn related(canonical: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let mut whole = vec![folded(canonical)];
    add_to(&mut whole, without_authority(&folded(canonical)));
    for n in 0..whole.len() {
        let other = whole.get(n).and_then(|form| with_other_drive(form));
        add_to(&mut whole, other);
    }
    for n in 0..whole.len() {
        let reduced = whole.get(n).and_then(|form| without_parameters(form));
        add_to(&mut whole, reduced);
    }
    iter::once(Cow::Borrowed(canonical)).chain(whole.into_iter().flat_map(shortened))
}

/// Adds a form that is not there yet.
fn add_to(forms: &mut Vec<Cow<'_, str>>, form: Option<String>) {
    if let Some(form) = form.filter(|form| !forms.iter().any(|known| **known == **form)) {
        forms.push(Cow::Owned(form));
    }
}

/// A form, and what is left of it without its query, or without slashes and blanks at the end of its path and of its
/// query.
fn shortened<'a>(form: Cow<'a, str>) -> impl Iterator<Item = Cow<'a, str>> {
    let (path, query) = form.split_at(without_query(&form).len());
    let (begin, queries) = (path.len(), queries(query).map(str::len));
    let mut parts = Vec::with_capacity(4);
    for path in paths(path).map(str::len) {
        for query in queries {
            if !parts.contains(&(path, query)) {
                parts.push((path, query));
            }
        }
    }
    parts.into_iter().map(move |(path, query)| {
        let (path, query) = (form.get(..path), form.get(begin..begin + query));
        Cow::Owned([path.unwrap_or_default(), query.unwrap_or_default()].concat())
    })
}

/// The form that [`related`] URIs share: if two URIs have any form in common, this is the same for both. By it a resource is found among listed, revoked and locked ones, however its URI is written.
pub fn reduced(canonical: &str) -> Cow<'_, str> {
    let mut form = folded(without_query(canonical));
    for less in
        [with_root, without_authority, with_small_drive, without_parameters, with_small_drive]
    {
        if let Some(next) = less(&form) {
            form = Cow::Owned(next);
        }
    }
    let length = without_any_ends(&form).len();
    let form = match form {
        Cow::Borrowed(form) => Cow::Borrowed(form.get(..length).unwrap_or(form)),
        Cow::Owned(mut form) => {
            form.truncate(length);
            Cow::Owned(form)
        }
    };
    // Without its end, what is left may be a drive (`file:///C:%20`).
    with_small_drive(&form).map_or(form, Cow::Owned)
}

/// The text of a `file:` URI without its authority.
fn without_authority(folded: &str) -> Option<String> {
    let rest = folded.strip_prefix("file://")?;
    let path = rest.get(rest.find('/')?..)?;
    (path.len() < rest.len()).then(|| format!("file://{path}"))
}

/// The text of a `file:` URI with the slash of its root, if it has an authority and nothing behind it.
fn with_root(folded: &str) -> Option<String> {
    let rest = folded.strip_prefix("file://")?;
    let (authority, after) = split_at_any(rest, &['/', '?'], BraceUse::Expression);
    (!after.starts_with('/')).then(|| format!("file://{authority}/{after}"))
}

/// The text with its drive letter in lower case, if it has one in upper case.
fn with_small_drive(text: &str) -> Option<String> {
    let letter = text.strip_prefix("file:///").and_then(|rest| rest.chars().next());
    letter.filter(char::is_ascii_uppercase).and_then(|_| with_other_drive(text))
}

/// A text before its query, without slashes and blanks at its end, or some of them.
fn paths(path: &str) -> [&str; 5] {
    let ends = without_blanks(path);
    [without_ends(path), without_slash(ends), ends, without_slash(path), path]
}

/// A query with its `?`, without slashes and blanks at its end, without parameters behind `;`, without both, and no query.
fn queries(query: &str) -> [&str; 5] {
    let (before, _parameters) = split_at_any(query, &[';'], BraceUse::Expression);
    [query, without_ends(query), before, without_ends(before), ""]
}

/// The text with its drive letter in the other case, if it has one: no system distinguishes them.
fn with_other_drive(text: &str) -> Option<String> {
    let rest = text.strip_prefix("file://")?;
    let (host, path) = rest.split_at(rest.find('/')? + 1);
    let letter = path.chars().next().filter(char::is_ascii_alphabetic)?;
    let after = path.get(1..)?;
    let is_drive = after == ":" || after.starts_with(":/");
    let other = if letter.is_ascii_lowercase() {
        letter.to_ascii_uppercase()
    } else {
        letter.to_ascii_lowercase()
    };
    is_drive.then(|| format!("file://{host}{other}{after}"))
}

/// The text with its authority in lower case.
pub(crate) fn folded(text: &str) -> Cow<'_, str> {
    let Some((before, rest)) = text.split_once("://") else { return Cow::Borrowed(text) };
    let (authority, _) = split_at_any(rest, &['/', '?'], BraceUse::Expression);
    let (authority, after) = rest.split_at(without_query(authority).len());
    if authority.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(format!("{before}://{}{after}", authority.to_ascii_lowercase()))
    } else {
        Cow::Borrowed(text)
    }
}

/// The text up to its query. An escaped `?` or `#` ends it as well, because a server that decodes before it splits
/// reads a query there.
fn without_query(text: &str) -> &str {
    let ends = ["?", "%3F", "%23"].into_iter().filter_map(|end| text.find(end)).min();
    ends.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// The text without path parameters (RFC 3986, section 3.3), if its path or its host has any: servers that support
/// them read `/a;x/b` as `/a/b`. A segment that consists of parameters alone is left out.
fn without_parameters(text: &str) -> Option<String> {
    let start = match text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
        Some((scheme, _)) => scheme.len() + "://".len(),
        None => text.find(':').map_or(0, |colon| colon + 1),
    };
    let (before, rest) = text.split_at(start);
    let (path, query) = rest.split_at(without_query(rest).len());
    if !path.contains(';') {
        return None;
    }
    let mut names = Vec::new();
    for (n, segment) in segments(path, BraceUse::Expression).into_iter().enumerate() {
        let (name, parameters) = split_at_any(segment, &[';'], BraceUse::Expression);
        // With `//` before it, the first segment is the authority.
        if !name.is_empty() || parameters.is_empty() || n == 0 && before.ends_with("//") {
            names.push(name);
        }
    }
    // Keeps the root where the path has no other segment left.
    let is_root = names.len() == 1 && path.contains('/');
    let root = if is_root { "/" } else { "" };
    Some(format!("{before}{}{root}{query}", names.join("/")))
}

/// The text without one slash at its end; two of them are kept.
fn without_slash(text: &str) -> &str {
    text.strip_suffix('/').filter(|rest| !rest.ends_with('/')).unwrap_or(text)
}

/// The text without slashes and blanks at its end, in whichever order they stand there.
fn without_ends(text: &str) -> &str {
    let mut rest = text;
    loop {
        let next = without_slash(without_blanks(rest));
        if next.len() == rest.len() {
            return rest;
        }
        rest = next;
    }
}

/// The text without any slash and blank at its end, the slashes before an authority included.
fn without_any_ends(text: &str) -> &str {
    let mut rest = text;
    loop {
        let next = without_blanks(rest).trim_end_matches('/');
        if next.len() == rest.len() {
            return rest;
        }
        rest = next;
    }
}

/// The text without the blanks at its end, which are escaped in canonical form: readers that decode first, and some
/// file systems, drop them.
fn without_blanks(text: &str) -> &str {
    const BLANKS: [&str; 17] = [
        "%20",
        "%C2%A0",
        "%E1%9A%80",
        "%E2%80%80",
        "%E2%80%81",
        "%E2%80%82",
        "%E2%80%83",
        "%E2%80%84",
        "%E2%80%85",
        "%E2%80%86",
        "%E2%80%87",
        "%E2%80%88",
        "%E2%80%89",
        "%E2%80%8A",
        "%E2%80%AF",
        "%E2%81%9F",
        "%E3%80%80",
    ];
    let mut rest = text;
    while let Some(shorter) = BLANKS.into_iter().find_map(|blank| rest.strip_suffix(blank)) {
        rest = shorter;
    }
    rest
}

/// What braces in a text are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BraceUse {
    /// Characters as any other.
    Literal,
    /// The marks of an expression (RFC 6570), which is one unit.
    Expression,
}

impl BraceUse {
    /// What braces are in a URI from `source`.
    const fn of(source: UriSource) -> Self {
        match source {
            UriSource::Template => Self::Expression,
            UriSource::Caller | UriSource::List => Self::Literal,
        }
    }
}

/// Splits the text before the first of `ends`. An end within an expression does not count.
fn split_at_any<'a>(text: &'a str, ends: &[char], braces: BraceUse) -> (&'a str, &'a str) {
    let mut inside = false;
    let end = text.char_indices().find(|(_, c)| {
        match c {
            '{' if braces == BraceUse::Expression => inside = true,
            '}' => inside = false,
            _ => {}
        }
        !inside && ends.contains(c)
    });
    text.split_at(end.map_or(text.len(), |(at, _)| at))
}

/// The default port of a scheme whose URIs must have a host, because readers of `https:host` take the path for one.
fn usual_port(scheme: &str) -> Option<&'static str> {
    match scheme {
        "http" | "ws" => Some("80"),
        "https" | "wss" => Some("443"),
        "ftp" => Some("21"),
        _ => None,
    }
}

/// Whether a scheme is special (WHATWG URL, section 3.1): readers fold its hosts, give it a path, and escape `'` in its
/// queries.
fn is_special(scheme: &str) -> bool {
    scheme == "file" || usual_port(scheme).is_some()
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

/// A URI, taken apart and otherwise as it was written.
struct UriParts<'a> {
    /// In lower case; empty for a name that is no URI.
    scheme: String,
    authority: Option<&'a str>,
    path: &'a str,
    /// With its question mark, or empty.
    query: &'a str,
}

impl<'a> UriParts<'a> {
    /// Takes a text apart.
    fn of(text: &'a str, source: UriSource) -> Result<Self, UriError> {
        let braces = BraceUse::of(source);
        let (scheme, rest) = match text.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) {
            Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
            // A server may list a name that is no URI: it is compared as a path.
            None if source == UriSource::Caller => return Err(UriError::Scheme),
            None => (String::new(), text),
        };
        let (rest, fragment) = split_at_any(rest, &['#'], braces);
        if !fragment.is_empty() {
            return Err(UriError::Fragment);
        }
        let (hierarchy, query) = split_at_any(rest, &['?'], braces);
        let (authority, path) = match hierarchy.strip_prefix("//") {
            Some(rest) => {
                let (authority, path) = split_at_any(rest, &['/'], braces);
                (Some(authority), path)
            }
            None => (None, hierarchy),
        };
        Ok(Self { scheme, authority, path, query })
    }
}

/// The canonical form of a URI.
fn canonical(text: &str, source: UriSource) -> Result<Box<str>, UriError> {
    if text.is_empty() || text.len() > LONGEST {
        return Err(UriError::Length);
    }
    let is_blank = |c: char| c.is_whitespace() && !c.is_control();
    if text.ends_with(is_blank) {
        return Err(UriError::Blank);
    }
    let UriParts { scheme, authority, path, query } = UriParts::of(text, source)?;
    let mut out = String::with_capacity(text.len() + 8);
    if !scheme.is_empty() {
        out.push_str(&scheme);
        out.push(':');
    }
    let mut plain = String::with_capacity(text.len());
    match (authority, usual_port(&scheme)) {
        (Some(authority), usual) => {
            out.push_str("//");
            let host = host(authority, usual, source, &mut plain)?;
            if scheme == "file" && is_unusual_drive(plain.trim_end_matches('/')) {
                return Err(UriError::Drive);
            }
            out.push_str(&if scheme == "file" { file_host(host, source)? } else { host });
        }
        (None, Some(_)) => return Err(UriError::Host),
        // RFC 8089: `file:/a` and `file:///a` are the same.
        (None, None) if scheme == "file" && !path.starts_with('/') => return Err(UriError::Host),
        (None, None) if scheme == "file" => out.push_str("//"),
        (None, None) => {}
    }
    if path.is_empty() && is_special(&scheme) {
        out.push('/');
    }
    let path_scheme = if scheme == "file" { PathScheme::File } else { PathScheme::Other };
    write_path(path, path_scheme, source, &mut out, &mut plain)?;
    if let Some(query) = query.strip_prefix('?') {
        out.push('?');
        let from = out.len();
        component(query, UriPart::Query, source, &mut out, &mut plain)?;
        if is_special(&scheme) && query.contains('\'') {
            let written = out.split_off(from);
            out.push_str(&written.replace('\'', "%27"));
        }
    }
    if source == UriSource::Caller && !is_nfc(&plain) {
        return Err(UriError::Form);
    }
    // An undone escape must not have formed another one, nor a scheme.
    let is_escape =
        |rest: &str| rest.get(..2).is_some_and(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
    let is_begun = |text: &str| text.split_once(':').is_some_and(|(before, _)| is_scheme(before));
    if out.split("%25").skip(1).any(is_escape) || scheme.is_empty() && is_begun(&out) {
        return Err(UriError::Escaped);
    }
    Ok(out.into())
}

/// Whether a path is that of a file, which can begin with a drive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathScheme {
    File,
    Other,
}

/// Writes a path in canonical form to `out`, and its decoded text to `plain`.
fn write_path(
    path: &str,
    scheme: PathScheme,
    source: UriSource,
    out: &mut String,
    plain: &mut String,
) -> Result<(), UriError> {
    let rooted = path.is_empty() || path.starts_with('/');
    let segments: Vec<&str> = segments(path, BraceUse::of(source));
    let last = segments.len().saturating_sub(1);
    for (n, segment) in segments.into_iter().enumerate() {
        if n > 0 {
            out.push('/');
        }
        let is_root = n == 0 && rooted;
        if segment.is_empty() && n != last && !is_root {
            return Err(UriError::Empty);
        }
        let from = plain.len();
        component(segment, UriPart::Path, source, out, plain)?;
        let said = plain.get(from..).unwrap_or_default();
        if is_dots(said) {
            return Err(UriError::Dots);
        }
        if scheme == PathScheme::File && is_unusual_drive(said) {
            return Err(UriError::Drive);
        }
        plain.push('/');
    }
    Ok(())
}

/// The segments of a path. An expression in braces stays in one segment.
fn segments(path: &str, braces: BraceUse) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), path);
    loop {
        let (segment, after) = split_at_any(rest, &['/'], braces);
        found.push(segment);
        match after.strip_prefix('/') {
            Some(after) => rest = after,
            None => return found,
        }
    }
}

/// Whether some reader takes a segment for the current or the parent folder: with parameters behind it, blanks
/// around it, or with other Unicode dots.
fn is_dots(segment: &str) -> bool {
    let segment = segment.split(';').next().unwrap_or_default().trim();
    !segment.is_empty() && segment.nfkc().all(|c| c == '.')
}

/// Whether this is a drive letter and a bar, which readers of `file:` take for a colon.
fn is_unusual_drive(segment: &str) -> bool {
    matches!(segment.as_bytes(), [letter, b'|'] if letter.is_ascii_alphabetic())
}

/// Whether a host is an IPv4 address that is not written as four decimal numbers: readers take `127.1`, `0x7f.1` and
/// `2130706433` for `127.0.0.1` (WHATWG URL, section 3.5).
fn is_unusual_address(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit())
        || last.strip_prefix("0x").or(last.strip_prefix("0X")).is_some_and(is_hex);
    is_number && name.parse::<Ipv4Addr>().is_err()
}

/// A host with its IPv6 address, if it is one in brackets, as readers write it for every scheme.
fn with_plain_address(name: &str, source: UriSource) -> Result<Cow<'_, str>, UriError> {
    if !name.contains(['[', ']']) || source == UriSource::Template && name.contains('{') {
        return Ok(Cow::Borrowed(name));
    }
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = address.ok_or(UriError::Address)?;
    let parsed = address.parse::<Ipv6Addr>().map_err(|_not_an_address| UriError::Address)?;
    let written = written_address(parsed);
    if source == UriSource::Caller && !written.eq_ignore_ascii_case(address) {
        return Err(UriError::Address);
    }
    Ok(Cow::Owned(format!("[{written}]")))
}

/// Whether an authority, with or without what would be its port, is an IPv6 address without brackets, also with a zone, or
/// with escaped brackets. Some readers take it for the address, and others for a name and a port.
fn is_bare_address(authority: &str) -> bool {
    let address = authority.split('%').next().unwrap_or_default();
    address.parse::<Ipv6Addr>().is_ok()
        || authority.get(..3).is_some_and(|text| text.eq_ignore_ascii_case("%5b"))
}

/// An IPv6 address in the form of RFC 5952, but always hexadecimal: readers write `::ffff:102:304` for
/// `::ffff:1.2.3.4` (WHATWG URL, section 3.5).
fn written_address(address: Ipv6Addr) -> String {
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] => format!("::ffff:{high:x}:{low:x}"),
        [..] => address.to_string(),
    }
}

/// The authority without userinfo, in lower case where `usual`, the default port of the scheme, is given.
fn host(
    authority: &str,
    usual: Option<&str>,
    source: UriSource,
    plain: &mut String,
) -> Result<String, UriError> {
    let authority = match authority.rsplit_once('@') {
        Some(_) if source == UriSource::Caller => return Err(UriError::Userinfo),
        Some((_, authority)) => authority,
        None => authority,
    };
    let mut written = String::with_capacity(authority.len());
    component(authority, UriPart::Authority, source, &mut written, plain)?;
    plain.push('/');
    let (name, port) = split_port(&written);
    let digits = |port: &str| port.bytes().all(|b| b.is_ascii_digit());
    // For every scheme: libraries that split an authority drop an empty port and leading zeros.
    if port.is_some_and(|port| port.is_empty() || digits(port) && port.starts_with('0')) {
        return Err(UriError::Port);
    }
    if ends_in_dot(name) {
        return Err(UriError::Host);
    }
    if is_bare_address(&written) || is_bare_address(name) {
        return Err(UriError::Address);
    }
    if usual.is_some() && name.contains(':') && !name.contains(['[', '{']) {
        return Err(UriError::Port);
    }
    let name = with_plain_address(name, source)?;
    let out = port.map_or_else(|| name.to_string(), |port| format!("{name}:{port}"));
    let Some(usual) = usual else { return Ok(out) };
    if port.is_some_and(|port| port == usual || !digits(port) && source != UriSource::Template) {
        return Err(UriError::Port);
    }
    // Host names are ASCII (RFC 5891).
    if name.is_empty() || name.contains('%') {
        return Err(UriError::Host);
    }
    if !name.contains('{') && is_unusual_address(&name) {
        return Err(UriError::Host);
    }
    Ok(out.to_ascii_lowercase())
}

/// An authority without userinfo as its host and its port. The colons of an address in brackets begin no port.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
        Some((name, port)) => (name, Some(port)),
        None => (authority, None),
    }
}

/// The host of a `file:` URI in canonical form. Readers treat it like that of `https:` (WHATWG URL, section 3.5): they
/// fold its case, convert an address, and encode or fold what is not ASCII.
fn file_host(host: String, source: UriSource) -> Result<String, UriError> {
    if source == UriSource::Caller && (host.contains('%') || is_unusual_address(&host)) {
        return Err(UriError::Host);
    }
    // The names of variables have a case.
    Ok(if host.contains('{') { host } else { host.to_ascii_lowercase() })
}

/// Whether a host in canonical form ends in a dot, or in a character that IDNA processing maps to a dot (Unicode
/// Technical Standard 46): resolvers drop it.
fn ends_in_dot(host: &str) -> bool {
    [".", "%E3%80%82", "%EF%BC%8E", "%EF%BD%A1"].into_iter().any(|dot| host.ends_with(dot))
}

/// The part of a URI that a text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UriPart {
    Authority,
    Path,
    Query,
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether a byte may stand unescaped in a segment (RFC 3986, `pchar`).
const fn is_plain(byte: u8) -> bool {
    let delimiter = matches!(
        byte,
        b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@'
    );
    is_unreserved(byte) || delimiter
}

/// Writes a part in canonical form to `out`, and its decoded text to `plain`.
fn component(
    text: &str,
    part: UriPart,
    source: UriSource,
    out: &mut String,
    plain: &mut String,
) -> Result<(), UriError> {
    // Pending bytes of an escaped character outside ASCII.
    let mut run = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
        if c == '%' {
            let byte = escape(&mut rest)?;
            if byte >= 0x80 {
                run.push(byte);
                continue;
            }
            unescaped(&mut run, out, plain)?;
            escaped(byte, part, source, rest, out)?;
            plain.push(char::from(byte));
            continue;
        }
        unescaped(&mut run, out, plain)?;
        match c {
            '{' if source == UriSource::Template => {
                let (expression, after) = rest.split_once('}').ok_or(UriError::Escape)?;
                if expression.chars().any(|c| !c.is_ascii_graphic()) {
                    return Err(UriError::Hidden);
                }
                out.push('{');
                out.push_str(expression);
                out.push('}');
                rest = after;
            }
            '\\' => return Err(UriError::Slash),
            c if c.is_ascii_control() => return Err(UriError::Hidden),
            '/' | '?' if part == UriPart::Query => raw(c, out, plain),
            '[' | ']' if part == UriPart::Authority => raw(c, out, plain),
            c if c.is_ascii() && u8::try_from(c).is_ok_and(is_plain) => raw(c, out, plain),
            c => character(c, out, plain)?,
        }
    }
    unescaped(&mut run, out, plain)
}

fn raw(c: char, out: &mut String, plain: &mut String) {
    out.push(c);
    plain.push(c);
}

/// Takes two hexadecimal digits from `rest` and returns the byte that they stand for.
fn escape(rest: &mut &str) -> Result<u8, UriError> {
    let digits = rest.get(..2).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
    let digits = digits.ok_or(UriError::Escape)?;
    let byte = u8::from_str_radix(digits, 16).map_err(|_not_hexadecimal| UriError::Escape)?;
    *rest = rest.get(2..).unwrap_or_default();
    Ok(byte)
}

/// Writes an escaped ASCII byte. `rest` is the text after it.
fn escaped(
    byte: u8,
    part: UriPart,
    source: UriSource,
    rest: &str,
    out: &mut String,
) -> Result<(), UriError> {
    let twice = rest.get(..2).is_some_and(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
    match byte {
        byte if byte.is_ascii_control() => Err(UriError::Hidden),
        b'/' | b'\\' if part != UriPart::Query => Err(UriError::Slash),
        b'%' if twice => Err(UriError::Escaped),
        byte if is_unreserved(byte) && source == UriSource::Caller => Err(UriError::Escaped),
        byte if is_unreserved(byte) => {
            out.push(char::from(byte));
            Ok(())
        }
        // In a path these mean the same escaped or not; in a query `&` and `%26` differ.
        byte if is_plain(byte) && part == UriPart::Path => {
            out.push(char::from(byte));
            Ok(())
        }
        byte => {
            percent(byte, out);
            Ok(())
        }
    }
}

/// Decodes and writes a run of escaped bytes outside ASCII.
fn unescaped(run: &mut Vec<u8>, out: &mut String, plain: &mut String) -> Result<(), UriError> {
    if run.is_empty() {
        return Ok(());
    }
    let text = String::from_utf8(std::mem::take(run)).map_err(|_not_utf8| UriError::Escape)?;
    text.chars().try_for_each(|c| character(c, out, plain))
}

/// Writes a character in its escaped form, unless it is hidden or folds to a separator.
fn character(c: char, out: &mut String, plain: &mut String) -> Result<(), UriError> {
    let before = plain.chars().next_back().unwrap_or(' ');
    match Hidden::of(c) {
        None => {}
        // Emoji and several scripts need these between their characters.
        Some(Hidden::Joiner) if !before.is_ascii() && c != '\u{180e}' => {}
        Some(Hidden::Variation) if has_variant(before, c, ' ') => {}
        Some(
            Hidden::Joiner
            | Hidden::Variation
            | Hidden::Notation
            | Hidden::Order
            | Hidden::Tag
            | Hidden::Shapeless
            | Hidden::Control,
        ) => return Err(UriError::Hidden),
    }
    if matches!(c, '\u{2028}' | '\u{2029}') {
        return Err(UriError::Hidden);
    }
    // A reader that applies compatibility normalisation would find a separator here.
    if !c.is_ascii() && iter::once(c).nfkc().any(|c| matches!(c, '/' | '\\' | '%')) {
        return Err(UriError::Form);
    }
    let mut bytes = [0; 4];
    for byte in c.encode_utf8(&mut bytes).bytes() {
        percent(byte, out);
    }
    plain.push(c);
    Ok(())
}

fn percent(byte: u8, out: &mut String) {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_default();
    out.push('%');
    out.push(digit(byte >> 4).to_ascii_uppercase());
    out.push(digit(byte & 15).to_ascii_uppercase());
}

/// Checks the host of a pattern, if it is known completely.
fn check_pattern_host(authority: &str, begun: &str, scheme: Option<&str>) -> Result<(), UriError> {
    // An address is known completely when its bracket closes, even if a wildcard follows.
    let address = begun.split_once(']').map(|(address, _)| address);
    if let Some(address) = address.filter(|address| !address.contains(['*', '?', '{'])) {
        with_plain_address(&format!("{address}]"), UriSource::Caller)?;
    }
    // A host that ends before its first wildcard is known completely.
    let after = authority.strip_prefix(begun);
    if !after.is_some_and(|after| after.is_empty() || after.starts_with('/')) {
        return Ok(());
    }
    let usual = scheme.and_then(usual_port);
    let written = host(begun, usual, UriSource::Caller, &mut String::new())?;
    if scheme == Some("file") { file_host(written, UriSource::Caller).map(drop) } else { Ok(()) }
}

/// Checks the segments of the path of a pattern.
fn check_pattern_path(path: &str, scheme: Option<&str>) -> Result<(), UriError> {
    let rooted = path.split('?').next().unwrap_or_default();
    let all: Vec<&str> = rooted.split('/').collect();
    for (n, segment) in all.iter().enumerate() {
        let inside = n > 0 && n + 1 < all.len();
        if segment.is_empty() && inside && scheme.is_some() {
            return Err(UriError::Empty);
        }
        if is_dots(segment) {
            return Err(UriError::Dots);
        }
        if scheme == Some("file") && n == 1 && is_unusual_drive(segment) {
            return Err(UriError::Drive);
        }
    }
    Ok(())
}

/// Length of the address in brackets, which can have wildcards in it, at the beginning of `rest` with the slashes before
/// it; 0 if there is none.
fn bracketed(rest: &str) -> usize {
    let address = rest.strip_prefix("//").filter(|authority| authority.starts_with('['));
    let address = address.and_then(|authority| authority.split('/').next()?.split_once(']'));
    address.map_or(0, |(address, _)| "//".len() + address.len() + "]".len())
}

/// Checks that each bracket of a pattern belongs to a host or to a path for certain: only in a host it is literal, so
/// that a pattern which takes it for the other never matches. `rest` follows the scheme, if one is known.
fn check_brackets(rest: &str, scheme: Option<&str>) -> Result<(), UriError> {
    let wild = rest.find(['*', '?']).unwrap_or(rest.len());
    let (known, unknown) = rest.split_at(wild);
    let may_be_host = match known.strip_prefix("//") {
        _ if scheme.is_none() => true,
        Some(authority) => !authority.contains('/'),
        None => "//".starts_with(known),
    };
    // The wildcard may stand in the address itself.
    let behind = bracketed(rest).saturating_sub(wild);
    let unknown = unknown.get(behind..).unwrap_or_default();
    if may_be_host && unknown.contains(['[', ']']) { Err(UriError::Bracket) } else { Ok(()) }
}

/// Whether a text has a wildcard.
fn is_wild(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// A pattern over URIs, taken apart and checked.
struct PatternParts<'a> {
    /// In lower case; `None` if it is not known.
    scheme: Option<String>,
    /// What follows the scheme.
    rest: &'a str,
    /// Length of the authority at the beginning of `rest` with the slashes before it, as far as it is known.
    authority: usize,
}

impl<'a> PatternParts<'a> {
    /// Takes a pattern apart.
    ///
    /// # Errors
    /// When the scheme, the host or the path can never match.
    fn of(text: &'a str) -> Result<Self, UriError> {
        let (scheme, rest) = match text.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme.to_ascii_lowercase()), rest),
            Some((scheme, _)) if !is_wild(scheme) && !scheme.contains('{') => {
                return Err(UriError::Scheme);
            }
            Some(_) | None => (None, text),
        };
        // Without a scheme, the beginning of the path is unknown.
        let authority = scheme.as_ref().and(rest.strip_prefix("//"));
        let literal = rest.split(['*', '?', '{']).next().unwrap_or_default();
        let known = |scheme: &String| usual_port(scheme).is_some() || scheme == "file";
        let cut = literal.len() < rest.len() && literal.len() < 2;
        if authority.is_none() && !cut && scheme.as_ref().is_some_and(known) {
            return Err(UriError::Host);
        }
        if rest.contains('#') && !rest.contains('{') {
            return Err(UriError::Fragment);
        }
        let host =
            authority.map(|rest| split_at_any(rest, &['/', '*', '?', '{'], BraceUse::Literal).0);
        if host.is_some_and(|host| host.contains('@')) {
            return Err(UriError::Userinfo);
        }
        let path = authority.map_or(rest, |rest| split_at_any(rest, &['/'], BraceUse::Literal).1);
        if let (Some(authority), Some(host)) = (authority, host) {
            check_pattern_host(authority, host, scheme.as_deref())?;
        }
        check_pattern_path(path, scheme.as_deref())?;
        check_brackets(rest, scheme.as_deref())?;
        let authority = host.map_or(0, |host| host.len() + "//".len());
        Ok(Self { scheme, rest, authority })
    }
}

/// The text of a pattern over URIs, with everything but its wildcards in canonical form.
///
/// # Errors
/// When no URI in canonical form can match it.
pub(crate) fn pattern(text: &str) -> Result<String, UriError> {
    let text: String = text.nfc().collect();
    let PatternParts { scheme, rest, authority } = PatternParts::of(&text)?;
    let has_address = rest.starts_with("//[");
    let authority = authority.max(bracketed(rest));
    let mut out = String::with_capacity(text.len() + 8);
    if let Some(scheme) = &scheme {
        out.push_str(scheme);
        out.push(':');
    }
    let is_special = scheme.as_ref().is_some_and(|scheme| is_special(scheme));
    let in_query = |at: usize| rest.find('?').is_some_and(|query| query < at);
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '%' => {
                let digits: String = chars.as_str().chars().take(2).collect();
                if is_wild(&digits) {
                    out.push('%');
                    continue;
                }
                let byte = escape(&mut chars.as_str())?;
                match byte {
                    byte if is_unreserved(byte) || byte == b'*' => return Err(UriError::Escaped),
                    byte if byte.is_ascii_control() => return Err(UriError::Hidden),
                    b'/' | b'\\' if !in_query(at) => return Err(UriError::Slash),
                    byte if is_plain(byte) && !in_query(at) && at >= authority => {
                        out.push(char::from(byte));
                    }
                    byte => percent(byte, &mut out),
                }
                // Skips the two digits.
                chars.by_ref().take(2).for_each(drop);
            }
            '\\' => return Err(UriError::Slash),
            c if c.is_ascii_control() => return Err(UriError::Hidden),
            c if at < authority && (is_special || has_address) => out.push(c.to_ascii_lowercase()),
            '\'' if is_special && in_query(at) => out.push_str("%27"),
            // Brackets are literal only in an IP address of a host.
            '[' | ']' if at < authority => out.push(c),
            '"' | '<' | '>' | '^' | '`' | '|' | '[' | ']' => {
                character(c, &mut out, &mut String::new())?
            }
            c if c.is_ascii_graphic() => out.push(c),
            c => character(c, &mut out, &mut String::new())?,
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
