//! The formats of the fields of a form (SPEC 2025-11-25 client/elicitation).

/// Whether a text has a format; an unknown format says nothing.
pub(super) fn has_format(format: &str, text: &str) -> bool {
    match format {
        "email" => is_email(text),
        "uri" => is_uri(text),
        "date" => is_date(text),
        "date-time" => is_date_time(text),
        _ => true,
    }
}

/// Whether there is something before and behind the last `@`, without blanks.
fn is_email(text: &str) -> bool {
    let plain = !text.contains(|c: char| c.is_whitespace() || c.is_control());
    plain && text.rsplit_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty())
}

/// Whether there is something behind a scheme (RFC 3986 section 3.1).
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(of_scheme)
        && !rest.is_empty()
        && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Whether it is a full date (RFC 3339 section 5.6).
fn is_date(text: &str) -> bool {
    let mut parts = text.split('-');
    let mut number = |digits: usize| {
        let part = parts.next().filter(|part| part.len() == digits)?;
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<u32>().ok()).flatten()
    };
    let (Some(year), Some(month), Some(day)) = (number(4), number(2), number(2)) else {
        return false;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day) && parts.next().is_none()
}

/// Whether it is a date with a time of day (RFC 3339 section 5.6). Seconds and the offset may be left out, as the input
/// elements of browsers do.
fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't', ' ']) else { return false };
    let zone = time.find(['Z', 'z', '+', '-']).unwrap_or(time.len());
    let (clock, zone) = time.split_at(zone);
    let (clock, fraction) = clock.split_once('.').map_or((clock, None), |(a, b)| (a, Some(b)));
    let is_zone = match zone.strip_prefix(['+', '-']) {
        Some(offset) => has_parts(offset, &[23, 59]),
        None => zone.is_empty() || zone.eq_ignore_ascii_case("z"),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_clock = has_parts(clock, &[23, 59, 60]) || has_parts(clock, &[23, 59]);
    is_date(date) && is_clock && fraction.is_none_or(digits) && is_zone
}

/// Whether these are numbers of two digits between colons, each at most as large as given.
fn has_parts(text: &str, most: &[u32]) -> bool {
    let mut parts = text.split(':');
    let fits = |most: &u32| {
        let part = parts.next().filter(|part| part.len() == 2);
        let digits = part.filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        digits.and_then(|part| part.parse::<u32>().ok()).is_some_and(|value| value <= *most)
    };
    most.iter().all(fits) && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::has_format;

    #[test]
    fn a_value_has_the_format_of_its_field() {
        for (format, text) in [
            ("email", "ana@example.com"),
            ("email", "ana+x@localhost"),
            ("uri", "https://example.com/a?b#c"),
            ("uri", "mailto:ana@example.com"),
            ("date", "2026-02-28"),
            ("date", "2024-02-29"),
            ("date-time", "2026-11-27T13:49:00Z"),
            ("date-time", "2026-11-27t13:49:00.25+01:00"),
            ("date-time", "2026-11-27T13:49"),
            ("colour", "anything"),
        ] {
            assert!(has_format(format, text), "{format} {text}");
        }
        for (format, text) in [
            ("email", "ana"),
            ("email", "ana@"),
            ("email", "a na@example.com"),
            ("uri", "example.com"),
            ("uri", "1a:b"),
            ("uri", "https:"),
            ("uri", "https://a b"),
            ("date", "2026-02-29"),
            ("date", "2026-2-1"),
            ("date", "27.11.2026"),
            ("date", "2026-11-27-01"),
            ("date-time", "2026-11-27"),
            ("date-time", "2026-11-27T13"),
            ("date-time", "2026-11-27T24:00:00Z"),
        ] {
            assert!(!has_format(format, text), "{format} {text}");
        }
    }
}
