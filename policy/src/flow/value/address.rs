//! The shapes of addresses: hosts, mail addresses, accounts and paths, as whole tokens and inside of them.
//!
//! The author of an untrusted page chooses what stands around an address: `contact:eve@evil.example`, `\neve@…` in JSON
//! that is shown as a text, `_eve@…_`, or a word of another script without a space. So the addresses inside a token are
//! found too.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::ValueReading;

/// Fewest letters and digits of an account number, and digits among them.
const ACCOUNT: (usize, usize) = (8, 4);
/// Shortest name with an underscore that is the name of one thing, in bytes.
const UNDERSCORED: usize = 8;
/// Most groups of one account number.
const GROUPS: usize = 12;
/// Most letters and digits of an account number in groups; an IBAN has 34 at most.
const JOINED: usize = 40;
/// Most digits of a group: a telephone number has 15 at most (ITU-T E.164).
const DIGITS: usize = 15;
/// Most places where an account number in groups can begin.
const STARTS: usize = 4;
/// Signs inside an address that begin and end none.
const SIGNS: [char; 5] = ['.', '-', '_', '+', '@'];
/// Most readings of the name before an `@`, besides the whole.
const NAMES: usize = 3;
/// How often the end of a text is cut off until it is a host.
const CUTS: usize = 3;

/// A token in the form in which it is compared.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Canonical<'t> {
    /// The whole: a URL without scheme, user information, `www.` and default port.
    pub(super) text: Cow<'t, str>,
    /// The host, if the token begins with one.
    pub(super) host: Option<Cow<'t, str>>,
    /// The host of a URL that is no domain name, behind two slashes: of a share (`\\\\server\\share`), or a bucket
    /// (`s3://bucket/file`).
    pub(super) site: Option<String>,
    /// What stands before the host of a URL.
    pub(super) user: &'t str,
    /// All but the scheme, which can have further addresses.
    pub(super) bare: &'t str,
    /// What follows the host.
    tail: &'t str,
}

impl<'t> Canonical<'t> {
    pub(super) fn of(token: &'t str) -> Self {
        let scheme = special(token)
            .or_else(|| token.split_once("://").filter(|(scheme, _)| is_scheme(scheme)));
        let mail = token.strip_prefix("mailto:");
        let bare = scheme.map(|(_, rest)| rest).or(mail).unwrap_or(token);
        let end = bare.find(['/', '?', '#', '\\']).unwrap_or(bare.len());
        let (authority, tail) = bare.split_at(end);
        let is_url = mail.is_none() && (scheme.is_some() || !tail.is_empty());
        let (user, place) =
            authority.rsplit_once('@').filter(|_| is_url).unwrap_or(("", authority));
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        let (host, port) =
            place.rsplit_once(':').filter(|(_, port)| is_port(port)).unwrap_or((place, ""));
        let host = host.trim_end_matches('.');
        let host = host.strip_prefix("www.").unwrap_or(host);
        let place = if scheme.is_some() { HostPlace::Url } else { HostPlace::Text };
        let known = ipv4(host, place).map(Cow::Owned);
        let known = known.or_else(|| is_host(host).then_some(Cow::Borrowed(host)));
        let Some(known) = known else {
            let text = if mail.is_some() { authority } else { bare };
            // `//` alone begins a comment too. What is on this machine belongs to nobody who writes a page.
            let is_site = scheme.is_some_and(|(scheme, _)| !scheme.is_empty() || !tail.is_empty())
                && !matches!(host, "" | "localhost");
            let site = is_site.then(|| format!("//{host}"));
            return Self { text: text.into(), host: None, site, user: "", bare, tail: bare };
        };
        let text = match port {
            "" | "80" | "443" if tail.is_empty() => known.clone(),
            "" | "80" | "443" => format!("{known}{tail}").into(),
            port => format!("{known}:{port}{tail}").into(),
        };
        Self { text, host: Some(known), site: None, user, bare, tail }
    }

    /// The part that can have further addresses. A host can be in a longer one only in the widest reading, unless it is
    /// written in two scripts.
    pub(super) fn rest(&self, reading: ValueReading) -> &'t str {
        let is_read = !reading.is_widest() && self.user.is_empty();
        let is_read = is_read && self.host.as_ref().is_some_and(|host| host.is_ascii());
        if is_read { self.tail } else { self.bare }
    }

    /// Whether the token names one thing wherever it stands.
    pub(super) fn is_address(&self) -> bool {
        self.is_place() || is_underscored(&self.text)
    }

    /// Whether the token is an address, an account or a path, and not just a name.
    pub(super) fn is_place(&self) -> bool {
        let text = &*self.text;
        let first = || text.split(['/', '?', '#', ':']).next().unwrap_or_default();
        let is_mail =
            || text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && is_host(host));
        let is_path = || {
            text.len() >= 6
                && (text.starts_with(['/', '~', '\\']) || text.matches(['/', '\\']).count() > 1)
        };
        self.host.is_some()
            || self.site.is_some()
            || is_host(first())
            || is_mail()
            || is_account(text)
            || is_path() && !is_date(text)
    }
}

/// The scheme and the rest of a URL whose readers take any slashes before the host, also none and backslashes
/// (WHATWG URL, section 4.4), and of one without a scheme (`//host/path`, `\\host\path`).
fn special(token: &str) -> Option<(&str, &str)> {
    let is_slash = ['/', '\\'];
    if let Some(rest) = ["//", "\\\\"].iter().find_map(|slashes| token.strip_prefix(slashes)) {
        return Some(("", rest.trim_start_matches(is_slash)));
    }
    let (scheme, rest) = token.split_once(':')?;
    let is_special = matches!(scheme, "http" | "https" | "ftp" | "ws" | "wss");
    is_special.then(|| (scheme, rest.trim_start_matches(is_slash)))
}

fn is_scheme(text: &str) -> bool {
    let inside = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic()) && text.bytes().all(inside)
}

/// Whether a token is a name of a host, or of a file with an extension.
pub(super) fn is_host(token: &str) -> bool {
    let Some((name, last)) = token.rsplit_once('.') else { return false };
    let inside = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_last = || {
        last.len() >= 2
            && last.chars().all(char::is_alphanumeric)
            && last.chars().any(char::is_alphabetic)
    };
    let is_punycode = || last.starts_with("xn--") && last.chars().all(inside);
    !name.is_empty() && (is_last() || is_punycode()) && name.chars().all(inside)
}

/// Where a host stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostPlace {
    /// In a URL with a scheme.
    Url,
    /// Within a text of another kind.
    Text,
}

/// An IPv4 address in its usual form; in the host of a URL also one that is written as one to three numbers, or in
/// another base, as browsers read it.
fn ipv4(host: &str, place: HostPlace) -> Option<String> {
    if !host.as_bytes().first()?.is_ascii_digit() {
        return None;
    }
    let parts = host.split('.').count();
    if !(parts == 4 || place == HostPlace::Url && parts < 4) {
        return None;
    }
    let number = |part: &str| match part.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None if part.len() > 1 && part.starts_with('0') => u32::from_str_radix(part, 8).ok(),
        None => part.parse().ok(),
    };
    let (mut address, mut left) = (0_u32, 4_u32);
    for (n, part) in host.split('.').enumerate() {
        let part = number(part)?;
        let width = if n + 1 == parts { 8 * left } else { 8 };
        if width < 32 && part >> width != 0 {
            return None;
        }
        address = address.checked_shl(width).unwrap_or(0) | part;
        left -= 1;
    }
    Some(Ipv4Addr::from(address).to_string())
}

/// An IPv6 address in its usual form. The brackets around one in a URL end the token.
pub(super) fn ipv6(token: &str) -> Option<String> {
    let is_one = token.len() <= 45 && token.bytes().filter(|byte| *byte == b':').count() > 1;
    let address: Ipv6Addr =
        is_one.then(|| token.trim_matches(['.', '/']).parse().ok()).flatten()?;
    Some(address.to_canonical().to_string())
}

/// Whether a token is an account or telephone number.
pub(super) fn is_account(token: &str) -> bool {
    let inside = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'+');
    let (mut counted, mut digits) = (0, 0);
    for byte in token.bytes() {
        if !inside(byte) {
            return false;
        }
        counted += usize::from(byte.is_ascii_alphanumeric());
        digits += usize::from(byte.is_ascii_digit());
    }
    counted >= ACCOUNT.0 && digits >= ACCOUNT.1 && !is_date(token)
}

/// A telephone number in its international form without the prefix `00`, which stands for `+` (ITU-T E.123); it has at
/// most 15 digits (E.164).
pub(super) fn without_prefix(number: &str) -> Option<&str> {
    let rest = number.strip_prefix("00")?;
    let is_number = (8..=15).contains(&rest.len()) && !rest.starts_with('0');
    (is_number && rest.bytes().all(|byte| byte.is_ascii_digit())).then_some(rest)
}

/// Whether a name has an underscore inside it: it is the name of one thing, wherever it stands.
fn is_underscored(name: &str) -> bool {
    name.len() >= UNDERSCORED && name.contains('_')
}

/// Whether a token is a date, also with a time.
fn is_date(token: &str) -> bool {
    let (day, time) = token.split_once('t').unwrap_or((token, ""));
    let is_time = |b: u8| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'+' | b'-' | b'z');
    let Some(sign) = day.chars().find(|c| matches!(c, '-' | '/' | '.')) else { return false };
    let mut parts = day.split(sign);
    let mut number = || {
        let part = parts.next()?;
        let is_short = (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        part.parse::<u16>().ok().filter(|_| is_short)
    };
    let (Some(first), Some(middle), Some(last)) = (number(), number(), number()) else {
        return false;
    };
    let is_month = |one, other| (one <= 12 && other <= 31) || (one <= 31 && other <= 12);
    parts.next().is_none()
        && time.bytes().all(is_time)
        && (is_month(first, middle) || is_month(middle, last))
}

/// Joins account and telephone numbers that are written in groups, as in `GB29 NWBK 6016 1331 9268 19` and
/// `+1 (415) 555-0123`.
#[derive(Debug, Default)]
pub(super) struct AccountGroups {
    joined: String,
    count: usize,
    /// Where a number can begin: with the first group, with one that looks like the begin of an IBAN or of a telephone
    /// number, and with digits behind a word.
    starts: Vec<usize>,
    /// The last group has no digit.
    after_word: bool,
}

/// The digits of a group of a number, which may be written with signs: `555-0123`, `20-00-00`, `+49`.
fn digits(token: &str) -> Option<String> {
    let number = token.strip_prefix('+').unwrap_or(token);
    let is_sign = |byte: u8| matches!(byte, b'-' | b'.' | b'/');
    let is_one = number.len() <= 2 * DIGITS
        && number.bytes().all(|byte| byte.is_ascii_digit() || is_sign(byte))
        && number.bytes().next().is_some_and(|byte| byte.is_ascii_digit());
    let digits = || number.chars().filter(char::is_ascii_digit).collect::<String>();
    is_one.then(digits).filter(|digits| digits.len() <= DIGITS)
}

impl AccountGroups {
    /// Adds a token. Calls `visit` with each account that ends with it, since nothing says where one ends: the next word
    /// may be short as well. Returns whether to go on.
    pub(super) fn add(&mut self, token: &str, visit: &mut impl FnMut(&str) -> bool) -> bool {
        let is_inside = |b: u8| b.is_ascii_alphanumeric();
        let number = digits(token);
        let has_digit = number.is_some() || token.bytes().any(|b| b.is_ascii_digit());
        let is_group = number.is_some() || token.len() <= 4 && token.bytes().all(is_inside);
        let begins = is_group && token.len() > 1 && has_digit;
        if !is_group || self.count == 0 && !begins {
            if self.count > 0 {
                self.clear();
            }
            return true;
        }
        let is_behind_word = number.is_some() && self.after_word;
        let group = number.as_deref().unwrap_or(token);
        if self.count == GROUPS || self.joined.len() + group.len() > JOINED {
            self.drop_first();
        }
        let is_country = token.len() == 4
            && token.bytes().take(2).all(|b| b.is_ascii_alphabetic())
            && token.bytes().skip(2).all(|b| b.is_ascii_digit());
        if self.count == 0 || is_country || is_behind_word || token.starts_with('+') {
            if self.starts.len() == STARTS {
                self.starts.remove(0);
            }
            self.starts.push(self.joined.len());
        }
        self.joined.push_str(group);
        self.count += 1;
        self.after_word = !has_digit;
        if self.count == 1 || !has_digit {
            return true;
        }
        let joined = self.starts.iter().filter_map(|start| self.joined.get(*start..));
        joined.filter(|joined| is_account(joined)).all(visit)
    }

    fn clear(&mut self) {
        self.joined.clear();
        self.starts.clear();
        (self.count, self.after_word) = (0, false);
    }

    /// Makes room for the next group: what stands before the last begin of an IBAN is no part of its account.
    fn drop_first(&mut self) {
        match self.starts.pop() {
            Some(start) if start > 0 => {
                self.joined.drain(..start);
                self.starts = vec![0];
                self.count = self.joined.len().div_ceil(4);
            }
            Some(_) | None => self.clear(),
        }
    }
}

/// A part of a token that is long enough to be an address, with what stands beside it.
struct AddressRun<'t> {
    text: &'t str,
    before: &'t str,
    after: &'t str,
}

/// Calls `visit` with each address-shaped run inside a token, bounded by what no address contains, by an escape of JSON,
/// by signs, and by a change of script. It returns whether to go on. The cost is proportional to the length.
pub(super) fn each_inner(
    token: &str,
    reading: ValueReading,
    visit: &mut impl FnMut(&str) -> bool,
) -> bool {
    let mut run: Option<(usize, Option<Script>)> = None;
    for (at, c) in token.char_indices().chain([(token.len(), ' ')]) {
        let next = RunPart::of(c);
        let ended = match (run, next) {
            (Some((from, _)), RunPart::Outside) => Some(from),
            (Some((from, Some(script))), RunPart::Letter(other)) if script != other => Some(from),
            _ => None,
        };
        if let Some(from) = ended {
            let (before, rest) = token.split_at(from);
            let (text, after) = rest.split_at(at - from);
            if !(AddressRun { text, before, after }).each(reading, visit) {
                return false;
            }
            run = None;
        }
        run = match (run, next) {
            (_, RunPart::Outside) => None,
            (run, RunPart::Sign) => run.or(Some((at, None))),
            (run, RunPart::Letter(script)) => {
                Some((run.map_or(at, |(from, _)| from), Some(script)))
            }
        };
    }
    true
}

/// Calls `visit` with each name inside a token, bounded by what no name contains and by a change of script: `•name`,
/// `a=name&b=1`. It returns whether to go on.
pub(super) fn each_name(token: &str, visit: &mut impl FnMut(&str) -> bool) -> bool {
    let is_outside = |c: char| c != '/' && RunPart::of(c) == RunPart::Outside;
    let is_sign = |c: char| c == '/' || SIGNS.contains(&c);
    let mut visit = |name: &str| {
        let name = name.trim_matches(is_sign);
        name.is_empty() || name.len() == token.len() || visit(name)
    };
    token
        .split(is_outside)
        .all(|part| visit(part) && (part.is_ascii() || each_of_one_script(part, &mut visit)))
}

/// Calls `visit` with the parts of a name that are written in one script each.
fn each_of_one_script(name: &str, visit: &mut impl FnMut(&str) -> bool) -> bool {
    let mut last = None;
    let ends = name.char_indices().filter_map(|(at, c)| {
        let RunPart::Letter(script) = RunPart::of(c) else { return None };
        let before = last.replace(script);
        before.is_some_and(|before| before != script).then_some(at)
    });
    let mut from = 0;
    ends.chain([name.len()]).all(|at| {
        let part = name.get(from..at).unwrap_or_default();
        from = at;
        part.len() == name.len() || visit(part)
    })
}

/// A script, as far as a change of it ends an address. Digits count as Latin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Script {
    Latin,
    Greek,
    Cyrillic,
    Other,
}

/// What a character is in an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunPart {
    Outside,
    Sign,
    Letter(Script),
}

impl RunPart {
    fn of(c: char) -> Self {
        match c {
            c if SIGNS.contains(&c) => Self::Sign,
            c if !c.is_alphanumeric() => Self::Outside,
            '\0'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' => Self::Letter(Script::Latin),
            '\u{370}'..='\u{3ff}' | '\u{1f00}'..='\u{1fff}' => Self::Letter(Script::Greek),
            '\u{400}'..='\u{52f}' => Self::Letter(Script::Cyrillic),
            _ => Self::Letter(Script::Other),
        }
    }
}

impl AddressRun<'_> {
    fn each(&self, reading: ValueReading, visit: &mut impl FnMut(&str) -> bool) -> bool {
        let text = self.text;
        if !text.contains(['.', '@', '_'])
            && text.bytes().filter(u8::is_ascii_digit).count() < ACCOUNT.1
        {
            return true;
        }
        let hex = |n: usize| {
            text.len() >= n && text.bytes().take(n).skip(1).all(|b| b.is_ascii_hexdigit())
        };
        // In JSON or a program that is shown as a text, the letter of an escape stands before the address.
        let escape = match (self.before.as_bytes().last(), text.as_bytes().first()) {
            (Some(b'\\'), Some(b'u')) if hex(5) => 5,
            (Some(b'\\'), Some(b'x')) if hex(3) => 3,
            (Some(b'\\'), Some(b'n' | b'r' | b't' | b'b' | b'f' | b'v' | b'0')) => 1,
            (Some(b'%'), Some(b'0'..=b'9' | b'a'..=b'f')) if hex(2) => 2,
            _ => 0,
        };
        let behind = text.get(escape..).filter(|_| escape > 0);
        std::iter::once(text)
            .chain(behind)
            .flat_map(|text| text.split(".."))
            .map(|piece| piece.trim_matches(SIGNS))
            .all(|piece| match piece.contains('@') {
                true => self.each_mail(piece, reading, visit),
                false => self.place(piece, reading, visit),
            })
    }

    /// Visits the mail addresses in a piece, and their hosts. A call that names somebody at a host has not named the
    /// host, unless it is a URL with user information.
    fn each_mail(
        &self,
        piece: &str,
        reading: ValueReading,
        visit: &mut impl FnMut(&str) -> bool,
    ) -> bool {
        let is_url = self.after.starts_with(['/', ':', '?', '#', '\\']);
        let mut segments = piece.split('@');
        let mut name = segments.next().unwrap_or_default();
        let mut at = name.len();
        for segment in segments {
            let (local, from) = (name.trim_start_matches(SIGNS), at + 1);
            name = segment;
            at = from + segment.len();
            let Some(host) = host_in(segment) else { continue };
            let begin = from - 1 - local.len();
            let whole = piece.get(begin..from + host.len()).unwrap_or_default();
            let short = reading.is_widest().then(|| shortened(host)).flatten();
            let less = short.map(|short| host.len() - short.len());
            let visits_host = reading != ValueReading::Judged || is_url && at == piece.len();
            // Messengers write the number of a telephone so.
            let is_number = is_account(local) && local.bytes().all(|byte| byte.is_ascii_digit());
            let goes_on = (!is_number || visit(local))
                && (!visits_host || visit(bare_host(host)))
                && short.is_none_or(|short| visit(bare_host(short)))
                && names_of(local, reading).all(|skip| {
                    let mail = whole.get(skip..).unwrap_or_default();
                    let cut = less.and_then(|less| mail.get(..mail.len() - less));
                    visit(mail) && cut.is_none_or(&mut *visit)
                });
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// Visits the host in a piece, or the accounts.
    fn place(
        &self,
        piece: &str,
        reading: ValueReading,
        visit: &mut impl FnMut(&str) -> bool,
    ) -> bool {
        // The file in the path of a URL is not where a call leads to.
        let leads = || {
            self.before.is_empty()
                || self.before.ends_with(['=', ':', '@'])
                || self.before.ends_with("//")
        };
        if let Some(host) = host_in(piece)
            && (reading != ValueReading::Judged || leads())
        {
            let short = reading.is_widest().then(|| shortened(host)).flatten();
            if !visit(bare_host(host)) || !short.is_none_or(|short| visit(bare_host(short))) {
                return false;
            }
        }
        let is_widest = reading.is_widest();
        let mut account = |part: &str| {
            let is_compact = part.bytes().all(|b| b.is_ascii_alphanumeric());
            let compact = || part.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
            let number = part.trim_matches(|c: char| c.is_ascii_alphabetic());
            let is_beside = is_widest && number.len() < part.len() && is_account(number);
            visit(part) && (is_compact || visit(&compact())) && (!is_beside || visit(number))
        };
        let parts = piece.split('_').map(|part| part.trim_matches(SIGNS));
        let goes_on = parts.filter(|part| is_account(part)).all(|part| {
            // A word may stand before or behind a full stop without a space.
            let sentences = is_widest && part.contains('.');
            let inner = part.split('.').map(|part| part.trim_matches(SIGNS));
            account(part) && (!sentences || inner.filter(|part| is_account(part)).all(&mut account))
        });
        goes_on && self.name(piece, reading, visit)
    }

    /// Visits a name with an underscore. The name of a parameter, and a name in the path of a URL, are not what a call is
    /// about.
    fn name(
        &self,
        piece: &str,
        reading: ValueReading,
        visit: &mut impl FnMut(&str) -> bool,
    ) -> bool {
        let is_judged = reading == ValueReading::Judged;
        let is_beside = self.before.ends_with(['/', '\\']) || self.after.starts_with('=');
        if is_judged && is_beside || !is_underscored(piece) {
            return true;
        }
        let parts = piece.split('.').map(|part| part.trim_matches(SIGNS));
        visit(piece)
            && (!reading.is_widest()
                || parts.filter(|part| part.len() < piece.len() && is_underscored(part)).all(visit))
    }
}

/// How much is skipped of the name before an `@`: nothing, and in the widest reading what stands before its last signs,
/// because a word may stand there without a space.
fn names_of(local: &str, reading: ValueReading) -> impl Iterator<Item = usize> {
    let signs = local.rmatch_indices(['.', '-', '_', '+']).map(|(at, _)| at + 1);
    let most = if reading.is_widest() { NAMES } else { 0 };
    let whole = (!local.is_empty()).then_some(0);
    whole.into_iter().chain(signs.take(most).filter(|at| *at < local.len()))
}

fn bare_host(host: &str) -> &str {
    host.strip_prefix("www.").unwrap_or(host)
}

/// The host at the begin of a piece: a word may follow it with a sign.
fn host_in(piece: &str) -> Option<&str> {
    let mut host = piece.split(['+', '@']).next()?;
    for _ in 0..CUTS {
        if is_host(host) || ipv4(host, HostPlace::Text).is_some() {
            return Some(host);
        }
        let (name, last) = host.rsplit_once('.')?;
        let end = match last.find(['-', '_']) {
            Some(sign) if sign > 0 => name.len() + 1 + sign,
            Some(_) | None => name.len(),
        };
        host = host.get(..end)?;
    }
    None
}

/// A host without its last label: after a full stop a text may go on without a space.
fn shortened(host: &str) -> Option<&str> {
    host.rsplit_once('.').map(|(short, _)| short).filter(|short| is_host(short))
}
