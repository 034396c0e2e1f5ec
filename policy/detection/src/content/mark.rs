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
    "access-code", "adafruit-key", "adobe-secret", "age-key", "airtable-token", "aiven-password", "akamai-key", "alchemy-token",
    "alibaba-key", "anthropic-key", "anyscale-key", "api-key", "apify-token", "ar-cuit", "asana-token", "at-social-insurance",
    "atlassian-token", "au-abn", "au-acn", "au-medicare-number", "au-tfn", "aws-access-key", "aws-appsync-key",
    "aws-bedrock-key", "axiom-token", "azure-client-secret", "azure-devops-token", "azure-key", "backblaze-key", "bank-account",
    "basic-auth", "be-national-number", "bg-egn", "bitbucket-token", "bitcoin-address", "blynk-client", "br-cnpj", "br-cpf",
    "braintree-token", "brave-key", "brevo-key", "buildkite-token", "ca-sin", "canary", "canva-token", "card-number",
    "cerebras-key", "cesium-token", "ch-ahv", "checkly-key", "circleci-token", "cl-rut", "clickup-token", "clojars-token",
    "cloudflare-key", "cn-resident-id", "co-cedula", "codeclimate-token", "confluent-key", "connection-string",
    "contentful-token", "coze-token", "crates-token", "credential", "cursor-key", "databento-key", "databricks-token",
    "dbt-token", "de-social-insurance", "de-tax-id", "defined-key", "deno-token", "digitalocean-token", "discord-token",
    "dk-cpr", "docker-swarm-token", "docker-token", "doppler-token", "driving-licence", "dropbox-token", "duffel-token",
    "dynatrace-token", "e2b-key", "easypost-key", "elastic-key", "email-address", "encoded-token", "endorlabs-key", "es-nie",
    "es-nif", "facebook-token", "fauna-key", "fernet-token", "fi-personal-code", "figma-token", "firebase-key", "firecrawl-key",
    "fireworks-key", "flutterwave-key", "fly-token", "fr-nir", "frameio-token", "github-token", "gitlab-token",
    "gocardless-token", "google-api-key", "google-client-secret", "google-token", "gr-amka", "grafana-token", "groq-key",
    "harness-token", "heroku-key", "honeycomb-key", "honeytoken", "hr-oib", "hu-taj", "hubspot-token", "huggingface-token", "iban", "id-nik",
    "ie-pps", "il-id", "in-aadhaar", "in-pan", "infisical-token", "infracost-key", "inngest-key", "instagram-token",
    "instructions", "intercom-token", "intra42-secret", "ip-address", "it-fiscal-code", "jfrog-token", "jp-my-number", "jwt",
    "kr-rrn", "langfuse-key", "langsmith-key", "launchdarkly-key", "lightspark-key", "linear-key", "link", "linkedin-secret",
    "liveblocks-key", "lob-key", "logfire-token", "lt-personal-code", "mailchimp-key", "mailersend-key", "mailgun-key",
    "mandrill-key", "mapbox-token", "mattermost-token", "mem0-key", "mercadopago-token", "mergify-key", "modal-token",
    "mollie-key", "mongodb-secret", "mx-curp", "my-nric", "named-secret", "neon-key", "netlify-token", "new-relic-key",
    "ng-nin", "ngrok-key", "nightfall-key", "nl-bsn", "no-birth-number", "notion-token", "npm-token", "nuget-key", "nvidia-key",
    "nz-ird", "octopus-key", "onepassword-key", "onepassword-token", "openai-key", "openrouter-key", "openshift-token",
    "ory-token", "packagist-token", "paddle-key", "pagerduty-key", "paseto", "passport-number", "password", "perplexity-key",
    "persona-key", "phone-number", "pinecone-key", "pk-cnic", "pl-nip", "pl-pesel", "placeholder", "plaid-token",
    "planetscale-token", "polar-token", "portcullis-key", "posthog-key", "postman-key", "prefect-key", "private-key", "pt-nif",
    "pubnub-key", "pulumi-token", "pypi-token", "ramp-secret", "rapidapi-key", "razorpay-key", "readme-key", "recaptcha-key",
    "render-key", "replicate-token", "resend-key", "ro-cnp", "rootly-key", "ru-inn", "ru-snils", "rubygems-key", "runpod-key",
    "salesforce-token", "samsara-key", "sanity-token", "scaleway-key", "scalingo-token", "se-personal-number", "semgrep-token",
    "sendgrid-key", "sensitive-field", "sentry-token", "settlemint-token", "sg-nric", "shippo-token", "shopify-token",
    "slack-token", "snyk-token", "sonarqube-token", "sourcegraph-token", "square-token", "stackhawk-key", "statsig-key",
    "storyblok-token", "stripe-key", "stytch-key", "sumup-key", "supabase-token", "tailscale-key", "tavily-key",
    "teamwork-token", "telegram-token", "telnyx-key", "tencent-key", "terraform-token", "th-tnin", "together-key", "tr-tckn",
    "trigger-key", "tw-id", "twilio-key", "twitch-token", "twitter-token", "typeform-token", "ua-tax-number", "ubidots-token",
    "uk-nhs-number", "uk-nino", "uk-utr", "unkey-key", "url-password", "url-signature", "us-itin", "us-npi",
    "us-routing-number", "us-ssn", "valtown-token", "vault-token", "veracode-key", "vercel-token", "voyage-key", "wakatime-key",
    "wandb-key", "webhook", "workos-key", "xai-key", "yandex-key", "yandex-token", "za-id", "zoho-token", "zuplo-key",
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
    const SOURCES: [&str; 12] = [
        include_str!("personal.rs"),
        include_str!("personal/numbers.rs"),
        include_str!("personal/national.rs"),
        include_str!("personal/examples.rs"),
        include_str!("../secrets.rs"),
        include_str!("../secrets/table.rs"),
        include_str!("../secrets/commands.rs"),
        include_str!("../secrets/forms.rs"),
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
        assert!(count > 200, "{count}");
        assert!(["access-code", "url-signature"].iter().all(|rule| RULES.contains(rule)));
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
