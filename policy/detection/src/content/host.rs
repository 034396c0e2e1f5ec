//! Checks the host that a link leads to, and whether the link pretends to lead elsewhere (threat T1402).

use std::borrow::Cow;

use policy_core::subject::pattern::Pattern;
use unicode_security::MixedScript;
use unicode_security::confusable_detection::skeleton;

/// The problem with the authority of a URL (RFC 3986 section 3.2); `None` if there is none. `hosts` are the permitted
/// ones; empty: all.
pub fn note(authority: &str, hosts: &[Pattern]) -> Option<&'static str> {
    let (userinfo, host) = match authority.rsplit_once('@') {
        Some((userinfo, host)) => (Some(userinfo), host),
        None => (None, authority),
    };
    let name = userinfo.map(|userinfo| userinfo.split(':').next().unwrap_or(userinfo));
    if name.is_some_and(is_host) {
        return Some("has a link with another host before the one it leads to");
    }
    let host = without_port(host).trim_end_matches('.');
    if host.is_empty() {
        return (userinfo.is_some()).then_some("has a link that leads nowhere");
    }
    if host.split('.').any(is_disguised) {
        return Some("has a link to a host that looks like another");
    }
    if is_odd(host) {
        return Some("has a link to an address in an odd spelling");
    }
    let host = host.to_lowercase();
    let allowed = hosts.is_empty() || hosts.iter().any(|pattern| pattern.matches(&host));
    (!allowed).then_some("has a link to a host that is not on the list")
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Whether a name looks like a host name.
fn is_host(name: &str) -> bool {
    let name = name.replace("%2e", ".").replace("%2E", ".");
    let name = name.trim_matches(|c: char| !c.is_alphanumeric());
    let last = name.rsplit_once('.').map(|(_, last)| last);
    last.is_some_and(|last| last.len() >= 2 && last.bytes().all(|b| b.is_ascii_alphabetic()))
}

/// Whether a label imitates another: with letters of several scripts, or of one that looks like Latin.
fn is_disguised(label: &str) -> bool {
    let prefix = label.get(..4).filter(|prefix| prefix.eq_ignore_ascii_case("xn--"));
    let label = match prefix {
        Some(_) => match punycode(label.get(4..).unwrap_or_default()) {
            Some(label) => Cow::Owned(label),
            // A label that cannot be decoded could be anything.
            None => return true,
        },
        None => Cow::Borrowed(label),
    };
    if label.is_ascii() {
        return prefix.is_some();
    }
    let latin =
        |c: char| c.is_ascii() || matches!(c, '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}');
    if label.chars().all(latin) {
        return false;
    }
    let plain = skeleton(&label).all(|c| c.is_ascii() || !c.is_alphanumeric());
    plain || !label.as_ref().is_single_script()
}

/// Whether an IPv4 address is written in an unusual form (RFC 3986 section 7.4).
fn is_odd(host: &str) -> bool {
    let number = |part: &str| {
        part.strip_prefix("0x").or_else(|| part.strip_prefix("0X")).map_or_else(
            || !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()),
            |hex| !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit()),
        )
    };
    let parts: Vec<&str> = host.split('.').collect();
    let usual =
        |part: &&str| part.parse::<u8>().is_ok() && (part.len() == 1 || !part.starts_with('0'));
    parts.iter().all(|part| number(part)) && !(parts.len() == 4 && parts.iter().all(usual))
}

/// Decodes a label in Punycode without its prefix `xn--` (RFC 3492); `None` if it is none.
#[must_use]
pub fn punycode(label: &str) -> Option<String> {
    const BASE: u32 = 36;
    let (plain, coded) = label.rsplit_once('-').unwrap_or(("", label));
    let mut out: Vec<char> = plain.chars().collect();
    let (mut n, mut i, mut bias) = (128_u32, 0_u32, 72_u32);
    let mut digits = coded.bytes().peekable();
    if coded.is_empty() || coded.len() > 63 || !label.is_ascii() {
        return None;
    }
    while digits.peek().is_some() {
        let (old, mut weight, mut k) = (i, 1_u32, BASE);
        loop {
            let digit = match digits.next()? {
                byte @ b'a'..=b'z' => u32::from(byte - b'a'),
                byte @ b'A'..=b'Z' => u32::from(byte - b'A'),
                byte @ b'0'..=b'9' => u32::from(byte - b'0') + 26,
                _ => return None,
            };
            i = i.checked_add(digit.checked_mul(weight)?)?;
            let threshold = k.saturating_sub(bias).clamp(1, 26);
            if digit < threshold {
                break;
            }
            weight = weight.checked_mul(BASE - threshold)?;
            k += BASE;
        }
        let count = u32::try_from(out.len()).ok()? + 1;
        // Bias adaptation, section 6.1.
        let mut delta = if old == 0 { (i - old) / 700 } else { (i - old) / 2 };
        delta += delta / count;
        let mut steps = 0;
        while delta > ((BASE - 1) * 26) / 2 {
            delta /= BASE - 1;
            steps += BASE;
        }
        bias = steps + BASE * delta / (delta + 38);
        n = n.checked_add(i / count)?;
        i %= count;
        out.insert(usize::try_from(i).ok()?, char::from_u32(n)?);
        i += 1;
    }
    Some(out.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::{is_disguised, is_odd, punycode};

    #[test]
    fn labels_are_read() {
        // RFC 3492 section 7.1 has these (A), (B) and a common one.
        assert_eq!(punycode("egbpdaj6bu4bxfgehfvwxn").unwrap(), "ليهمابتكلموشعربي؟");
        assert_eq!(punycode("ihqwcrb4cv8a8dqg056pqjye").unwrap(), "他们为什么不说中文");
        assert_eq!(punycode("mnchen-3ya").unwrap(), "münchen");
        assert_eq!(punycode("-!"), None);
    }

    #[test]
    fn hosts_that_look_like_others() {
        for label in ["xn--pypal-4ve", "pаypal", "аррӏе", "xn--a"] {
            assert!(is_disguised(label), "{label}");
        }
        for label in ["paypal", "münchen", "xn--mnchen-3ya", "пример", "例え", "日本"] {
            assert!(!is_disguised(label), "{label}");
        }
    }

    #[test]
    fn addresses_in_odd_spellings() {
        for host in ["2130706433", "0x7f.0.0.1", "127.1", "0177.0.0.1", "1.2.3.4.5"] {
            assert!(is_odd(host), "{host}");
        }
        for host in ["127.0.0.1", "example.org", "10.0.0.12", "1.example", "[::1]"] {
            assert!(!is_odd(host), "{host}");
        }
    }
}
