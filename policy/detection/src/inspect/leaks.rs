//! Finds what must not stand in a definition: secrets, addresses of internal hosts, active markup, and more text
//! than a person would read.

use policy_core::base::compiled::CompiledEach;
use regex::Regex;

use super::Detector;
use super::rendered::RenderedText;
use crate::secrets::formed_secrets;

/// Longest string that a person would read, in bytes.
const LONGEST: usize = 8 * 1024;
/// Least length of a word that is tested for randomness, in bytes.
const RANDOM: usize = 40;
/// The note of such a word.
pub(super) const RANDOM_WORD: &str = "has a long word that is no word";

const MARKUP: &str = r#"(?i)<!--|<\s*(?:script|iframe|object|embed|style|link|svg|form|meta|base)\b|\b(?:javascript|vbscript|livescript):|\]\(\s*<?(?:data:(?:text|image/svg|application)|(?:command|vscode[\w-]*|cursor|ms-[\w-]+|search-ms|file):)|\bon(?:error|load|click)\s*=|<\s*(?:img|image|video|audio|source|track|input)\b[^<>]*\b(?:src|srcset|poster|href)\s*=\s*["']?\s*(?:https?:|[/\\]{2})|!\[(?:[^\]]|\[[^\[\]]*\])*\]\(\s*<?\s*(?:https?:|[/\\]{2})|\[//\]:"#;
const INSIDE: &str = r"(?i)\bhttps?://(?:(?:localhost|127\.\d|0\.0\.0\.0|10\.\d|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|169\.254\.|\[::1\]|\[f[cd]|[\w.-]+\.(?:internal|intranet|corp|local|lan)\b|metadata\.google)[\w.:\[\]-]*)";

/// What is found by a pattern.
struct LeakSpec {
    detector: Detector,
    note: &'static str,
    pattern: &'static str,
    /// Whether a text has what each match contains: without it the pattern is neither compiled nor run.
    has_sign: fn(&str) -> bool,
}

const SPECS: [LeakSpec; 2] = [
    LeakSpec {
        detector: Detector::ActiveMarkup,
        note: "has a comment or markup that does something",
        pattern: MARKUP,
        has_sign: |text| {
            let is_mark = |byte: u8| matches!(byte, b'<' | b'=' | b']');
            text.bytes().any(is_mark) || text.to_ascii_lowercase().contains("cript:")
        },
    },
    LeakSpec {
        detector: Detector::InternalUrls,
        note: "names an address inside a network or a machine",
        pattern: INSIDE,
        has_sign: |text| text.contains("://"),
    },
];

static PATTERNS: CompiledEach<Regex, { SPECS.len() }> = CompiledEach::new(|index| {
    let spec = SPECS.get(index).ok_or("there is no such pattern")?;
    Ok(Regex::new(spec.pattern)?)
});

/// The note of a secret.
const SECRET: &str = "has what looks like a secret";

/// The findings in one string.
pub(super) fn all(text: &str) -> impl Iterator<Item = (Detector, &'static str)> {
    let rendered = RenderedText::of(text);
    let is_in = |index: usize, spec: &LeakSpec, text: &str| {
        (spec.has_sign)(text) && PATTERNS.get(index).is_some_and(|pattern| pattern.is_match(text))
    };
    let matches = |(index, spec): &(usize, &LeakSpec)| {
        let is_read = || rendered.as_ref().is_some_and(|read| is_in(*index, spec, read.as_str()));
        is_in(*index, spec, text) || is_read()
    };
    let found = SPECS.iter().enumerate().filter(matches);
    let mut found: Vec<_> = found.map(|(_, spec)| (spec.detector, spec.note)).collect();
    if !formed_secrets(text).is_empty() {
        found.push((Detector::Secrets, SECRET));
    }
    if text.len() > LONGEST {
        found.push((Detector::OversizedText, "is longer than anybody reads"));
    } else if text.split_whitespace().any(is_random) {
        found.push((Detector::OversizedText, RANDOM_WORD));
    }
    found.into_iter()
}

/// The text with each match of a detector replaced by `by`.
pub(super) fn without(detector: Detector, text: &str, by: &str) -> String {
    if detector == Detector::Secrets {
        return replaced(text, by);
    }
    let index = SPECS.iter().position(|spec| spec.detector == detector);
    let Some(pattern) = index.and_then(|index| PATTERNS.get(index)) else {
        return text.to_owned();
    };
    let text = pattern.replace_all(text, by).into_owned();
    let rendered = RenderedText::of(&text);
    rendered.and_then(|read| read.replaced(&text, pattern, by)).unwrap_or(text)
}

/// The text with each secret replaced by `by`.
fn replaced(text: &str, by: &str) -> String {
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for secret in formed_secrets(text) {
        out.push_str(text.get(done..secret.start).unwrap_or_default());
        out.push_str(by);
        done = secret.end;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out
}

/// Whether a word is long and has the entropy of a random string.
fn is_random(word: &str) -> bool {
    if word.len() < RANDOM || word.contains("://") || word.contains('/') {
        return false;
    }
    let mut counts = [0_u32; 256];
    for byte in word.bytes() {
        if let Some(count) = counts.get_mut(usize::from(byte)) {
            *count += 1;
        }
    }
    let length = word.bytes().fold(0.0_f64, |sum, _| sum + 1.0);
    let share = |count: &u32| f64::from(*count) / length;
    let bits: f64 =
        counts.iter().filter(|count| **count > 0).map(|c| -share(c) * share(c).log2()).sum();
    let kinds = [
        word.bytes().any(|byte| byte.is_ascii_digit()),
        word.bytes().any(|byte| byte.is_ascii_uppercase()),
        word.bytes().any(|byte| byte.is_ascii_lowercase()),
    ];
    bits > 4.3 && kinds.iter().all(|kind| *kind)
}

#[cfg(test)]
mod tests {
    use super::super::Detector;
    use super::{PATTERNS, all};

    #[test]
    fn the_patterns_compile() {
        assert!(PATTERNS.error().is_none());
    }

    #[test]
    fn what_should_not_stand_in_a_definition_is_found() {
        for (text, expected) in [
            ("Adds. <!-- and more -->", Some(Detector::ActiveMarkup)),
            ("![x](https://a.example/p.png)", Some(Detector::ActiveMarkup)),
            ("![x](https&#58;//a.example/p.png)", Some(Detector::ActiveMarkup)),
            ("![x](//a.example/p.png)", Some(Detector::ActiveMarkup)),
            ("<img width=1 src=\"https&#58;//a.example/p.png\">", Some(Detector::ActiveMarkup)),
            ("<img src=\"ht\ntps://a.example/p.png\">", Some(Detector::ActiveMarkup)),
            ("renders `<img src=\"photo.png\">` and <b>", None),
            ("[x](javascript&colon;alert(1))", Some(Detector::ActiveMarkup)),
            ("<a href=\"java\nscript:alert(1)\">", Some(Detector::ActiveMarkup)),
            ("[x](vscode&#58;//x/y)", Some(Detector::ActiveMarkup)),
            ("see http&#58;//169.254.169.254/latest", Some(Detector::InternalUrls)),
            ("use AKIAQ3EGRZ7XK2MWPLVT to log in", Some(Detector::Secrets)),
            ("use AKIAIOSFODNN7EXAMPLE to log in", None),
            ("postgres://user:hunter22@db/x", Some(Detector::Secrets)),
            ("see http://169.254.169.254/latest", Some(Detector::InternalUrls)),
            ("see https://wiki.corp/page", Some(Detector::InternalUrls)),
            ("aGVsbG8gd29ybGQgQm9iIFhZWjEyMzQ1Njc4OTBxd2VydHl1aW9w", Some(Detector::OversizedText)),
            ("Adds two numbers, a < b, see https://docs.example.com/a_b", None),
            ("a very-long-hyphenated-word-that-goes-on-and-on-for-ever-and-ever", None),
        ] {
            let found: Vec<_> = all(text).map(|(detector, _)| detector).collect();
            assert_eq!(found.first().copied(), expected, "{text}");
        }
    }
}
