//! Decides whether a user may be sent to a page.

use std::net::Ipv6Addr;

use detection::content::authority_note;
use policy_core::subject::pattern::Pattern;

use crate::rules::constraint::is_inside;

/// Longest URL, in bytes.
const LONGEST: usize = 2048;

/// Whether `url` is an `https` page on one of these hosts, in a spelling that all browsers interpret alike. An
/// internal address or host name has to be listed literally; patterns do not match it.
pub(super) fn may_open(url: &str, hosts: &[Pattern]) -> bool {
    let scheme = url.get(..8).filter(|scheme| scheme.eq_ignore_ascii_case("https://"));
    let Some(rest) = scheme.and_then(|scheme| url.get(scheme.len()..)) else { return false };
    let plain = |byte: u8| matches!(byte, b'!'..=b'~') && byte != b'\\';
    if url.len() > LONGEST || !url.bytes().all(plain) {
        return false;
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    if authority.contains(['@', '%']) || authority_note(&authority, &[]).is_some() {
        return false;
    }
    let place = authority.strip_suffix(":443").unwrap_or(&authority);
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    let numeric = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let in_brackets = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_address = in_brackets.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    // What else a browser takes for a part of a host, a shell that opens it might not.
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !is_address && !host.bytes().all(of_name) {
        return false;
    }
    if host.split('.').any(str::is_empty) || !port.is_none_or(numeric) {
        return false;
    }
    let as_it_is = || hosts.iter().any(|pattern| pattern.as_str() == place);
    hosts.iter().any(|pattern| pattern.matches(place))
        && (!is_inside(host.trim_matches(['[', ']'])) || as_it_is())
}

#[cfg(test)]
mod tests {
    use policy_core::subject::pattern::Pattern;

    use super::may_open;

    #[test]
    fn only_pages_of_listed_hosts_are_opened() {
        let hosts = ["login.example.com", "*.corp.example", "wiki.internal", "id.example:8443"];
        let hosts = hosts.map(Pattern::new);
        for url in [
            "https://login.example.com",
            "https://login.example.com:443/a?b#c",
            "HTTPS://Login.Example.com/x@y",
            "https://a.corp.example/x",
            "https://wiki.internal/x",
            "https://id.example:8443/",
        ] {
            assert!(may_open(url, &hosts), "{url}");
        }
        for url in [
            "",
            "javascript:alert(1)",
            "data:text/html,x",
            "http://login.example.com/",
            "https:login.example.com",
            "https:///login.example.com",
            "https://login.example.com@evil.example/",
            "https://login.example.com.evil.example/",
            "https://login.example.com\\.evil.example/",
            "https://login.example.com%2eevil.example/",
            "https://login.example.com:8443/",
            "https://login.example.com./",
            "https://.corp.example/",
            "https://a..corp.example/",
            "https://evil.com|.corp.example",
            "https://evil.com^.corp.example",
            "https://evil.com`.corp.example",
            "https://$(id).corp.example",
            "https://a;b.corp.example",
            "https://[a-z].corp.example",
            "https://login.example.com /",
            "https://id.example/",
            "https://lоgin.example.com/",
            "https://169.254.169.254/latest",
            "https://evil.example/?https://login.example.com/",
        ] {
            assert!(!may_open(url, &hosts), "{url}");
        }
    }

    #[test]
    fn a_pattern_for_everything_does_not_stand_for_what_is_inside() {
        let hosts = [Pattern::new("*")];
        assert!(may_open("https://example.org/", &hosts));
        for host in [
            "169.254.169.254",
            "10.0.0.1",
            "127.0.0.1",
            "localhost",
            "[::1]",
            "[fe80::1]",
            "2130706433",
            "0x7f.1",
            "wiki.internal",
            "xn--pypal-4ve.com",
        ] {
            assert!(!may_open(&format!("https://{host}/"), &hosts), "{host}");
        }
    }
}
