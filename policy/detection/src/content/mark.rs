//! Creates the marks that replace values, and recognises them, so that nothing is searched for inside a mark.
//!
//! A mark has one form: the name of a known rule, and some letters of a keyed digest. A forged mark can hide nothing:
//! keys are longer, and numbers and addresses do not consist of letters.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem;

/// The beginning of a mark.
const OPENS: &str = "[REDACTED:";
/// Finds [`OPENS`].
static OPENING: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(OPENS));
/// Letters of the digest in a mark: enough that different values of one caller rarely collide.
const LETTERS: usize = 10;
/// The names of all rules, sorted.
#[rustfmt::skip]
const RULES: &[&str] = &[
    "age-key", "airtable-token", "aiven-password", "alibaba-key", "anthropic-key", "api-key", "atlassian-token", "au-abn",
    "au-acn", "au-medicare-number", "au-tfn", "aws-access-key", "aws-bedrock-key", "bank-account", "basic-auth",
    "bitbucket-token", "bitcoin-address", "blynk-client", "br-cpf", "brevo-key", "buildkite-token", "ca-sin", "canary",
    "card-number", "cerebras-key", "cesium-token", "circleci-token", "clickup-token", "cloudflare-key", "connection-string",
    "contentful-token", "credential", "cursor-key", "databricks-token", "de-tax-id", "digitalocean-token", "docker-token",
    "doppler-token", "driving-licence", "dropbox-token", "duffel-token", "dynatrace-token", "e2b-key", "easypost-key",
    "email-address", "encoded-token", "es-nie", "es-nif", "facebook-token", "fernet-token", "fi-personal-code",
    "figma-token", "firecrawl-key", "fireworks-key", "flutterwave-key", "fly-token", "fr-nir", "frameio-token",
    "github-token", "gitlab-token", "google-api-key", "google-client-secret", "google-token", "grafana-token", "groq-key",
    "hubspot-token", "huggingface-token", "iban", "in-aadhaar", "in-pan", "instagram-token", "instructions", "ip-address",
    "it-fiscal-code", "jfrog-token", "jwt", "kr-rrn", "langsmith-key", "linear-key", "link", "mailchimp-key", "mailgun-key",
    "mapbox-token", "mongodb-secret", "named-secret", "netlify-token", "new-relic-key", "nl-bsn", "no-birth-number",
    "notion-token", "npm-token", "nvidia-key", "onepassword-token", "openai-key", "openrouter-key", "paddle-key", "paseto",
    "passport-number", "password", "perplexity-key", "phone-number", "pinecone-key", "pl-pesel", "planetscale-token",
    "portcullis-key", "posthog-key", "postman-key", "prefect-key", "private-key", "pubnub-key", "pulumi-token",
    "pypi-token", "razorpay-key", "readme-key", "recaptcha-key", "render-key", "replicate-token", "rubygems-key", "runpod-key", "salesforce-token",
    "se-personal-number", "sendgrid-key", "sensitive-field", "sentry-token", "sg-nric", "shippo-token", "shopify-token",
    "slack-token", "sonarqube-token", "sourcegraph-token", "square-token", "stripe-key", "supabase-token", "tailscale-key",
    "tavily-key", "teamwork-token", "telegram-token", "tencent-key", "th-tnin", "together-key", "twilio-key",
    "typeform-token", "ubidots-token", "uk-nhs-number", "uk-nino", "url-password", "us-itin", "us-routing-number", "us-ssn",
    "vault-token", "webhook", "xai-key", "yandex-key", "zuplo-key",
];

/// The mark of a rule for a value with this digest.
pub(super) fn of(rule: &str, digest: &[u8]) -> String {
    let halves = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let letters: String = halves.take(LETTERS).map(|half| char::from(b'a' + half)).collect();
    format!("{OPENS}{rule}:{letters}]")
}

/// The ranges of the marks in a text.
#[derive(Debug)]
pub(super) struct Marks(Vec<Range<usize>>);

impl Marks {
    pub(super) fn in_text(text: &str) -> Self {
        let starts = OPENING.find_iter(text.as_bytes());
        Self(starts.filter_map(|from| Some(from..from + length(text.get(from..)?)?)).collect())
    }

    /// The text with blanks in place of each mark and all other offsets unchanged. Line ends separate the text on
    /// both sides, so that text before a mark is no context for text behind it.
    pub(super) fn masked<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.0.is_empty() {
            return Cow::Borrowed(text);
        }
        let (mut out, mut done) = (String::with_capacity(text.len()), 0);
        for mark in &self.0 {
            out.push_str(text.get(done..mark.start).unwrap_or_default());
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', mark.len().saturating_sub(2)));
            out.push('\n');
            done = mark.end;
        }
        out.push_str(text.get(done..).unwrap_or_default());
        Cow::Owned(out)
    }

    /// The parts of a range outside marks; with marks in it, only parts with a letter or a digit.
    pub(super) fn around(&self, text: &str, stretch: Range<usize>) -> Vec<Range<usize>> {
        // INVARIANT: marks are in order and do not overlap.
        let first = self.0.partition_point(|mark| mark.end <= stretch.start);
        let (mut parts, mut from) = (Vec::new(), stretch.start);
        for mark in self.0.iter().skip(first).take_while(|mark| mark.start < stretch.end) {
            parts.push(from..mark.start.max(from));
            from = mark.end;
        }
        parts.push(from..stretch.end.max(from));
        if parts.len() > 1 {
            let says = |part: &Range<usize>| {
                text.get(part.clone()).is_some_and(|part| part.contains(char::is_alphanumeric))
            };
            parts.retain(says);
        }
        parts
    }
}

/// The length of the mark at the beginning of a text; `None` if there is none.
fn length(text: &str) -> Option<usize> {
    let rest = text.strip_prefix(OPENS)?;
    // Longer than any rule name.
    let name = rest.bytes().take(64).position(|byte| byte == b':')?;
    RULES.binary_search(&rest.get(..name)?).ok()?;
    let letters = rest.get(name + 1..name + 1 + LETTERS)?;
    let ours = letters.bytes().all(|byte| (b'a'..=b'p').contains(&byte));
    let end = name + 1 + LETTERS;
    (ours && rest.as_bytes().get(end) == Some(&b']')).then_some(OPENS.len() + end + 1)
}

#[cfg(test)]
mod tests {
    use super::{Marks, RULES, of};

    /// The source files that name rules.
    const SOURCES: [&str; 9] = [
        include_str!("personal.rs"),
        include_str!("personal/numbers.rs"),
        include_str!("secrets.rs"),
        include_str!("secrets/commands.rs"),
        include_str!("secrets/forms.rs"),
        include_str!("lens.rs"),
        include_str!("walk.rs"),
        include_str!("../content.rs"),
        include_str!("encoded.rs"),
    ];

    #[test]
    fn every_rule_that_a_detector_names_is_known() {
        assert!(RULES.is_sorted());
        // The names in findings, in tables of formats, and in return values.
        let words = SOURCES.iter().flat_map(|source| {
            let code = source.split("#[cfg(test)]").next().unwrap_or_default();
            code.split('"').skip(1).step_by(2)
        });
        let named = |word: &&str| {
            let ends = ["-key", "-token", "-secret", "-number", "-string", "-id", "-code"];
            let name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            word.bytes().all(name)
                && ends.iter().any(|end| word.ends_with(end) && word.len() > end.len())
        };
        let mut count = 0;
        for word in words.filter(named) {
            assert!(RULES.contains(&word), "{word}");
            count += 1;
        }
        assert!(count > 10, "{count}");
    }

    #[test]
    fn a_mark_is_known_in_its_one_form() {
        let mark = of("github-token", &[0x0f, 0xa1, 2, 3, 4, 5]);
        assert_eq!(mark, "[REDACTED:github-token:apkbacadae]");
        let text = format!("a={mark} b");
        let marks = Marks::in_text(&text);
        assert_eq!((marks.0.len(), marks.0.first()), (1, Some(&(2..text.len() - 2))));
        assert_eq!(marks.masked(&text).len(), text.len());
        assert_eq!(marks.masked(&text).trim_matches(['a', '=', ' ', 'b', '\n']), "");
        assert_eq!(marks.around(&text, 0..text.len()), [0..2, text.len() - 2..text.len()]);
        assert!(marks.around(&text, 5..9).is_empty());
        for other in [
            "[REDACTED:github-token:apkbacadaz]",
            "[REDACTED:github-token:apkbacada1]",
            "[REDACTED:github-token:apkbacada]",
            "[REDACTED:github-token:apkbacadaee]",
            "[REDACTED:no-such-rule:apkbacadae]",
            "[REDACTED:password:[REDACTED:password:",
            "[redacted:github-token:apkbacadae]",
        ] {
            assert!(Marks::in_text(other).0.is_empty(), "{other}");
        }
    }
}
