//! Recognises secrets by the formats that vendors document.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use json::coding;
use policy_core::base::compiled::Compiled;

use super::{distinct, is_placeholder, is_uuid};
use crate::content::found::{FoundValue, ValueClass};
use crate::content::runs;

/// The beginning of a JSON Web Token: `{"` in base64.
const TOKEN: &str = "eyJ";
/// How many bytes are tested of a word that begins within another one.
const SAMPLE: usize = 160;
/// Longest header of a JSON Web Token that begins within a word, in bytes.
const TOKEN_HEADER: usize = 1024;
/// Shortest part of a key that looks random by itself, in bytes.
const RANDOM: usize = 10;
/// The least length of a key of any vendor, and of a token, in bytes.
const LEAST: usize = 20;
/// The rule of keys that `portcullis keygen` prints.
const OWN: &str = "portcullis-key";
/// From this length on, a prefix is distinctive regardless of the text before it.
const DISTINCTIVE: usize = 5;

/// The format of a vendor's key.
#[derive(Debug)]
struct VendorKey {
    /// What the key begins with.
    prefix: &'static str,
    /// The least length of the whole key, in bytes.
    least: usize,
    /// The rule that the finding names.
    rule: &'static str,
}

const fn key(prefix: &'static str, least: usize, rule: &'static str) -> VendorKey {
    VendorKey { prefix, least, rule }
}

/// The keys of vendors that have a prefix.
#[rustfmt::skip]
const PREFIXES: &[VendorKey] = &[
    key("AKIA", 20, "aws-access-key"), key("ASIA", 20, "aws-access-key"), key("ABIA", 20, "aws-access-key"),
    key("ACCA", 20, "aws-access-key"), key("A3T", 20, "aws-access-key"), key("ABSK", 40, "aws-bedrock-key"),
    key("AGE-SECRET-KEY-1", 60, "age-key"), key("AIza", 39, "google-api-key"), key("AKCp", 60, "jfrog-token"),
    key("AKID", 36, "tencent-key"), key("AQVN", 38, "yandex-key"), key("ATATT3", 60, "atlassian-token"),
    key("ATBB", 28, "bitbucket-token"), key("ATCTT3", 60, "atlassian-token"), key("BBFF-", 30, "ubidots-token"),
    key("CCIPAT_", 40, "circleci-token"), key("EAACEdEose0cBA", 30, "facebook-token"), key("EAAA", 60, "square-token"),
    key("EZAK", 54, "easypost-key"), key("EZTK", 54, "easypost-key"), key("FLWSECK", 30, "flutterwave-key"),
    key("GOCSPX-", 30, "google-client-secret"), key("LTAI", 20, "alibaba-key"), key("NRAK-", 30, "new-relic-key"),
    key("NRJS-", 20, "new-relic-key"), key("NRII-", 30, "new-relic-key"), key("PMAK-", 50, "postman-key"),
    key("SG.", 60, "sendgrid-key"), key("api_org_", 38, "huggingface-token"), key("bkua_", 40, "buildkite-token"),
    key("dapi", 36, "databricks-token"), key("dckr_oat_", 30, "docker-token"), key("dckr_pat_", 30, "docker-token"),
    key("doo_v1_", 60, "digitalocean-token"), key("dop_v1_", 60, "digitalocean-token"), key("dor_v1_", 60, "digitalocean-token"),
    key("dp.ct.", 40, "doppler-token"), key("dp.pt.", 40, "doppler-token"), key("dp.st.", 40, "doppler-token"),
    key("dt0c01.", 60, "dynatrace-token"), key("duffel_", 40, "duffel-token"), key("figd_", 30, "figma-token"),
    key("fio-u-", 40, "frameio-token"), key("fm1_", 60, "fly-token"), key("fm2_", 60, "fly-token"), key("fo1_", 40, "fly-token"),
    key("gho_", 40, "github-token"), key("ghp_", 40, "github-token"), key("ghr_", 40, "github-token"),
    key("ghs_", 40, "github-token"), key("ghu_", 40, "github-token"), key("github_pat_", 60, "github-token"),
    key("glc_", 40, "grafana-token"), key("glcbt-", 20, "gitlab-token"), key("gldt-", 24, "gitlab-token"),
    key("glft-", 20, "gitlab-token"), key("glpat-", 26, "gitlab-token"), key("glptt-", 40, "gitlab-token"),
    key("glrt-", 24, "gitlab-token"), key("glsa_", 40, "grafana-token"), key("glsoat-", 24, "gitlab-token"),
    key("gsk_", 40, "groq-key"), key("hf_", 34, "huggingface-token"), key("hvb.", 40, "vault-token"),
    key("hvr.", 40, "vault-token"), key("hvs.", 40, "vault-token"), key("lin_api_", 40, "linear-key"),
    key("npm_", 40, "npm-token"), key("ntn_", 40, "notion-token"), key("nvapi-", 40, "nvidia-key"),
    key("oa2-client-id_", 40, "blynk-client"), key("ops_eyJ", 60, "onepassword-token"), key("phc_", 40, "posthog-key"),
    key("phx_", 40, "posthog-key"), key("pat-na1-", 40, "hubspot-token"), key("pat-eu1-", 40, "hubspot-token"),
    key("pk.eyJ", 60, "mapbox-token"), key("pnu_", 38, "prefect-key"), key("pplx-", 40, "perplexity-key"),
    key("pscale_oauth_", 40, "planetscale-token"), key("pscale_pw_", 40, "planetscale-token"), key("pscale_tkn_", 40, "planetscale-token"),
    key("pub-c-", 40, "pubnub-key"), key("sub-c-", 40, "pubnub-key"), key("sec-c-", 40, "pubnub-key"),
    key("pul-", 40, "pulumi-token"), key("pypi-", 60, "pypi-token"), key("r8_", 38, "replicate-token"),
    key("rdme_", 60, "readme-key"), key("rk_live_", 20, "stripe-key"), key("rk_test_", 20, "stripe-key"),
    key("rpa_", 40, "runpod-key"), key("rubygems_", 50, "rubygems-key"), key("sbp_", 40, "supabase-token"),
    key("sgp_", 40, "sourcegraph-token"), key("shippo_live_", 40, "shippo-token"), key("shippo_test_", 40, "shippo-token"),
    key("shpat_", 38, "shopify-token"), key("shpca_", 38, "shopify-token"), key("shppa_", 38, "shopify-token"),
    key("shpss_", 38, "shopify-token"), key("sk-ant-", 40, "anthropic-key"), key("sk-or-", 40, "openrouter-key"),
    key("sk-proj-", 40, "openai-key"), key("sk-svcacct-", 40, "openai-key"), key("sk-", 35, "api-key"),
    key("sk.eyJ", 60, "mapbox-token"), key("sk_live_", 20, "stripe-key"), key("sk_test_", 20, "stripe-key"),
    key("sl.", 80, "dropbox-token"), key("sntrys_", 40, "sentry-token"), key("sntryu_", 60, "sentry-token"),
    key("sq0atp-", 29, "square-token"), key("sq0csp-", 50, "square-token"), key("sqa_", 44, "sonarqube-token"),
    key("sqp_", 44, "sonarqube-token"), key("squ_", 44, "sonarqube-token"), key("tfp_", 40, "typeform-token"),
    key("tskey-", 20, "tailscale-key"), key("tvly-", 24, "tavily-key"), key("v1.0-", 60, "cloudflare-key"),
    key("whsec_", 30, "stripe-key"), key("xai-", 60, "xai-key"), key("xapp-", 40, "slack-token"),
    key("xkeysib-", 60, "brevo-key"), key("xoxa-", 24, "slack-token"), key("xoxb-", 24, "slack-token"),
    key("xoxe-", 24, "slack-token"), key("xoxp-", 24, "slack-token"), key("xoxr-", 24, "slack-token"),
    key("xoxs-", 24, "slack-token"), key("ya29.", 40, "google-token"),
    key("AVNS_", 20, "aiven-password"), key("CFPAT-", 40, "contentful-token"), key("ak_live_", 24, "api-key"), key("ak_test_", 24, "api-key"),
    key("csk-", 40, "cerebras-key"), key("e2b_", 40, "e2b-key"), key("fc-", 35, "firecrawl-key"), key("fw_", 24, "fireworks-key"),
    key("gAAAAA", 90, "fernet-token"), key("ion_", 40, "cesium-token"), key("key-", 36, "mailgun-key"), key("lsv2_", 40, "langsmith-key"),
    key("mdb_sa_sk_", 40, "mongodb-secret"), key("nfp_", 40, "netlify-token"), key("pcl_", 47, OWN), key("pcsk_", 50, "pinecone-key"), key("rnd_", 30, "render-key"),
    key("rzp_live_", 23, "razorpay-key"), key("rzp_test_", 23, "razorpay-key"), key("secret_", 47, "notion-token"), key("shpua_", 38, "shopify-token"),
    key("sk_", 40, "api-key"), key("tgp_v1_", 40, "together-key"), key("tkn.v1_", 40, "teamwork-token"), key("v2.local.", 60, "paseto"),
    key("v4.local.", 60, "paseto"), key("v4.public.", 60, "paseto"), key("zpka_", 40, "zuplo-key"), key("IGQV", 60, "instagram-token"),
    key("crsr_", 40, "cursor-key"), key("pdl_live_", 30, "paddle-key"),
];

/// For each byte, the indices in [`PREFIXES`] of the prefixes that begin with it.
static BY_FIRST: LazyLock<Vec<Vec<usize>>> = LazyLock::new(|| {
    let begins = |byte: u8| {
        let prefixes = PREFIXES.iter().enumerate();
        prefixes
            .filter(|(_, key)| key.prefix.as_bytes().first() == Some(&byte))
            .map(|(at, _)| at)
            .collect()
    };
    (0..=255).map(begins).collect()
});

/// All prefixes, in the order of [`PREFIXES`], and then [`TOKEN`].
static STARTS: Compiled<AhoCorasick> = Compiled::new(|| {
    let prefixes = PREFIXES.iter().map(|key| key.prefix);
    Ok(AhoCorasick::new(prefixes.chain([TOKEN]))?)
});

/// Appends the keys with a vendor's prefix and the tokens that stand within other words: in a path, behind a name
/// and a dot or a dash, behind an escape. One pass, with a bounded test at each start. A prefix has only bytes that a
/// key can have, so it lies in a run of such bytes.
pub(super) fn embedded(text: &str, out: &mut Vec<FoundValue>) {
    let Some(starts) = STARTS.get() else { return };
    for run in runs::long(text.as_bytes(), LEAST, is_body) {
        in_run(text, run, starts, out);
    }
}

/// Appends the keys and tokens in one run of bytes that a key can have.
fn in_run(text: &str, run: Range<usize>, starts: &AhoCorasick, out: &mut Vec<FoundValue>) {
    let bytes = text.as_bytes();
    let whole = text.get(run.clone()).unwrap_or_default();
    // The punctuation at its end is no part of a key.
    let stop = run.start + whole.trim_end_matches(['.', '-']).len();
    // The end of the last key.
    let mut done = 0;
    for one in starts.find_overlapping_iter(whole) {
        let from = run.start + one.start();
        if from < done {
            continue;
        }
        let word = text.get(from..stop).unwrap_or_default();
        let rule = match PREFIXES.get(one.pattern().as_usize()) {
            Some(known) => within(bytes, from, word, known).map(|rule| {
                // Shorter prefixes match first, but the longest prefix determines the vendor.
                let longer = PREFIXES.iter().filter(|key| word.starts_with(key.prefix));
                let longest = longer.max_by_key(|key| key.prefix.len());
                longest.and_then(|known| within(bytes, from, word, known)).unwrap_or(rule)
            }),
            None => is_alone(bytes, from).then(|| token(word)).flatten(),
        };
        if let Some(rule) = rule {
            out.push(FoundValue::new(ValueClass::Secret, rule, from, from + word.len()));
            done = from + word.len();
        }
    }
}

const fn is_body(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Whether what begins here is not within a longer word: no letter or digit stands before it, except in an
/// escape.
fn is_alone(bytes: &[u8], from: usize) -> bool {
    let before = bytes.get(..from).unwrap_or_default();
    let hex = |part: &[u8]| part.iter().all(u8::is_ascii_hexdigit);
    match before {
        [] => true,
        [.., last] if !last.is_ascii_alphanumeric() => true,
        [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
        [.., b'%', one, two] if hex(&[*one, *two]) => true,
        _ => matches!(before.last_chunk::<6>(), Some([b'\\', b'u', rest @ ..]) if hex(rest)),
    }
}

/// The rule of a word with a prefix that begins within another word. The test is stricter than for a whole word,
/// because names of files and base64 data have short prefixes by chance.
fn within(
    bytes: &[u8],
    from: usize,
    word: &str,
    VendorKey { prefix, least, rule }: &VendorKey,
) -> Option<&'static str> {
    let ends = prefix.ends_with(['-', '_', '.']);
    // A key of the gateway's own is told by its prefix and its length wherever it stands.
    let distinctive = ends && prefix.len() >= DISTINCTIVE || *rule == OWN;
    let glued = distinctive || matches!(*rule, "github-token" | "npm-token");
    (word.len() >= *least && (glued || is_alone(bytes, from))).then_some(())?;
    let rest = word.get(prefix.len()..word.len().min(SAMPLE.max(*least)))?;
    let letters = |text: &str| text.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let before = from.checked_sub(1).and_then(|at| bytes.get(at)).copied().unwrap_or(b' ');
    let fits = match *rule {
        "aws-access-key" => {
            letters(word.get(..SAMPLE.min(word.len()))?) == 20
                && rest.bytes().take(20 - prefix.len()).all(is_upper)
        }
        "google-api-key" => word.len() == *least,
        // A short prefix behind these characters is base64 data.
        _ if !ends => !matches!(before, b'/' | b'+'),
        // The same in URL-safe base64.
        _ if !distinctive && matches!(before, b'-' | b'_') => {
            prefix.ends_with('.') || letters(rest) >= least - prefix.len()
        }
        _ => true,
    };
    let named = !distinctive && is_uuid(rest);
    let random = rest.split(|c: char| !c.is_ascii_alphanumeric()).any(is_random);
    (fits && !named && random && looks_made(rest)).then_some(*rule)
}

const fn is_upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

/// Whether a part of a key is neither a word nor a number.
fn is_random(part: &str) -> bool {
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    let cases = |pair: &&[u8]| {
        matches!(pair, [a, b] if a.is_ascii_lowercase() && b.is_ascii_uppercase()
            || a.is_ascii_uppercase() && b.is_ascii_lowercase())
    };
    let changes = part.as_bytes().windows(2).filter(cases).count();
    part.len() >= RANDOM && (digits >= 2 && digits < part.len() || changes * 4 >= part.len())
}

/// Whether the rest behind a prefix is machine-generated: neither words nor a placeholder.
fn looks_made(rest: &str) -> bool {
    let mut words = rest.split(['-', '_', '.']).filter(|part| part.len() >= 3);
    let spoken = words.all(|part| part.bytes().all(|b| b.is_ascii_lowercase()));
    !spoken && distinct(rest) >= 5 && !is_placeholder(rest)
}

/// The rule of a word that begins like a JSON Web Token.
fn token(word: &str) -> Option<&'static str> {
    let head = word.get(..word.len().min(TOKEN_HEADER))?;
    let (head, _) = head.split_once('.')?;
    let (_, payload) = word.split_once('.')?;
    let payload = payload.get(..10).is_some_and(|begins| !begins.contains('.'));
    (head.len() >= 10 && payload && is_header(head)).then_some("jwt")
}

/// The rule of a word with a documented format.
pub(super) fn format(word: &str) -> Option<&'static str> {
    let begins = |at: &usize| {
        PREFIXES.get(*at).filter(|key| word.len() >= key.least && word.starts_with(key.prefix))
    };
    let known = word.bytes().next().and_then(|byte| BY_FIRST.get(usize::from(byte)));
    if let Some(VendorKey { prefix, rule, .. }) = known.into_iter().flatten().find_map(begins) {
        let rest = word.get(prefix.len()..).unwrap_or_default();
        let upper = *rule != "aws-access-key" || rest.bytes().take(20 - prefix.len()).all(is_upper);
        return (upper && looks_made(rest)).then_some(rule);
    }
    let mut parts = word.split('.');
    let token = |part: Option<&str>, least| {
        part.is_some_and(|part| {
            part.len() >= least
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        })
    };
    if word.starts_with("eyJ") && !word.contains('.') && is_token(word) {
        return Some("encoded-token");
    }
    if let Some((head, _)) = word.split_once('.').filter(|_| word.starts_with("eyJ"))
        && !is_header(head)
    {
        return None;
    }
    if word.starts_with("eyJ") && token(parts.next(), 10) && token(parts.next(), 10) {
        return Some("jwt");
    }
    of_service(word)
}

/// The rule of a key whose format is more than a prefix.
fn of_service(word: &str) -> Option<&'static str> {
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    if let Some(rest) = word.strip_prefix("SK").or_else(|| word.strip_prefix("AC"))
        && rest.len() == 32
        && hex(rest)
        && !rest.bytes().any(|b| b.is_ascii_uppercase())
    {
        return Some("twilio-key");
    }
    if let Some((key, region)) = word.split_once("-us")
        && key.len() == 32
        && hex(key)
        && matches!(region.len(), 1 | 2)
        && region.bytes().all(|b| b.is_ascii_digit())
    {
        return Some("mailchimp-key");
    }
    if let Some((number, key)) = word.strip_prefix("pk_").and_then(|rest| rest.split_once('_'))
        && (6..=10).contains(&number.len())
        && number.bytes().all(|b| b.is_ascii_digit())
        && key.len() >= 32
        && key.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
    {
        return Some("clickup-token");
    }
    if word.len() == 40 && ["6Lc", "6Ld", "6Le", "6Lf"].iter().any(|head| word.starts_with(head)) {
        return Some("recaptcha-key");
    }
    if let Some(rest) = word.strip_prefix("pat")
        && rest.len() == 79
        && rest.as_bytes().get(14) == Some(&b'.')
        && hex(rest.get(15..).unwrap_or_default())
    {
        return Some("airtable-token");
    }
    if word.starts_with("00D") && word.as_bytes().get(15) == Some(&b'!') && word.len() >= 60 {
        return Some("salesforce-token");
    }
    None
}

/// Whether a word is a JSON object in base64 with a member that is called a secret.
fn is_token(word: &str) -> bool {
    let plain = coding::base64(word.trim_end_matches('=')).unwrap_or_default();
    let text = std::str::from_utf8(&plain).unwrap_or_default();
    let has = ["\"k\":", "\"key\":", "\"token\":", "\"secret\":", "\"password\":", "\"auth\":"];
    text.starts_with('{') && has.iter().any(|name| text.contains(name))
}

/// Whether a part is the header of a JWS (RFC 7515 section 4).
fn is_header(part: &str) -> bool {
    let header = URL_SAFE_NO_PAD.decode(part).unwrap_or_default();
    let text = std::str::from_utf8(&header).unwrap_or_default();
    text.starts_with('{') && text.trim_end().ends_with('}') && text.contains("\"alg\"")
}

#[cfg(test)]
mod tests {
    use super::{LEAST, PREFIXES, STARTS, is_body};

    #[test]
    fn every_prefix_is_looked_for() {
        assert!(STARTS.error().is_none());
        let starts = STARTS.get().unwrap();
        assert_eq!(starts.patterns_len(), PREFIXES.len() + 1);
        for key in PREFIXES {
            assert!(key.least >= LEAST && key.prefix.bytes().all(is_body), "{key:?}");
        }
    }
}
