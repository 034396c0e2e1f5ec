//! Keys, tokens and passwords, by the formats that vendors document and by what stands before them.
//!
//! One pass over the bytes; what costs more is done only to words that could be one.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use memchr::memmem;

use crate::coding;

use super::lens::{Class, Found};
use super::vendors;

/// Shortest word that could be a secret by what stands before it.
const SHORTEST: usize = 16;
/// Longest word that is looked at whole: of a longer one the start decides.
const LONGEST: usize = 4096;
/// How far before a word is looked for what it is called, in bytes.
const BEFORE: usize = 48;
/// Longest first line of a private key, in bytes.
const HEADER: usize = 80;
/// Longest value in quotation marks, in bytes.
const QUOTED: usize = 200;
/// Shortest value behind `Bearer` that is taken for one (RFC 6750 section 2.1).
const BEARER: usize = 12;
/// How far back the beginning of a command line is looked for, in bytes.
const COMMAND: usize = 120;
/// Fewest different characters of a word that is no placeholder.
const DIFFERENT: usize = 8;

/// What a word of a vendor begins with, how long it is at least, and what it is.
#[rustfmt::skip]
const PREFIXES: &[(&str, usize, &str)] = &[
    ("AKIA", 20, "aws-access-key"), ("ASIA", 20, "aws-access-key"), ("ABIA", 20, "aws-access-key"),
    ("ACCA", 20, "aws-access-key"), ("A3T", 20, "aws-access-key"), ("ABSK", 40, "aws-bedrock-key"),
    ("AGE-SECRET-KEY-1", 60, "age-key"), ("AIza", 39, "google-api-key"), ("AKCp", 60, "jfrog-token"),
    ("AKID", 36, "tencent-key"), ("AQVN", 38, "yandex-key"), ("ATATT3", 60, "atlassian-token"),
    ("ATBB", 28, "bitbucket-token"), ("ATCTT3", 60, "atlassian-token"), ("BBFF-", 30, "ubidots-token"),
    ("CCIPAT_", 40, "circleci-token"), ("EAACEdEose0cBA", 30, "facebook-token"), ("EAAA", 60, "square-token"),
    ("EZAK", 54, "easypost-key"), ("EZTK", 54, "easypost-key"), ("FLWSECK", 30, "flutterwave-key"),
    ("GOCSPX-", 30, "google-client-secret"), ("LTAI", 20, "alibaba-key"), ("NRAK-", 30, "new-relic-key"),
    ("NRJS-", 20, "new-relic-key"), ("NRII-", 30, "new-relic-key"), ("PMAK-", 50, "postman-key"),
    ("SG.", 60, "sendgrid-key"), ("api_org_", 38, "huggingface-token"), ("bkua_", 40, "buildkite-token"),
    ("dapi", 36, "databricks-token"), ("dckr_oat_", 30, "docker-token"), ("dckr_pat_", 30, "docker-token"),
    ("doo_v1_", 60, "digitalocean-token"), ("dop_v1_", 60, "digitalocean-token"), ("dor_v1_", 60, "digitalocean-token"),
    ("dp.ct.", 40, "doppler-token"), ("dp.pt.", 40, "doppler-token"), ("dp.st.", 40, "doppler-token"),
    ("dt0c01.", 60, "dynatrace-token"), ("duffel_", 40, "duffel-token"), ("figd_", 30, "figma-token"),
    ("fio-u-", 40, "frameio-token"), ("fm1_", 60, "fly-token"), ("fm2_", 60, "fly-token"), ("fo1_", 40, "fly-token"),
    ("gho_", 40, "github-token"), ("ghp_", 40, "github-token"), ("ghr_", 40, "github-token"),
    ("ghs_", 40, "github-token"), ("ghu_", 40, "github-token"), ("github_pat_", 60, "github-token"),
    ("glc_", 40, "grafana-token"), ("glcbt-", 20, "gitlab-token"), ("gldt-", 24, "gitlab-token"),
    ("glft-", 20, "gitlab-token"), ("glpat-", 26, "gitlab-token"), ("glptt-", 40, "gitlab-token"),
    ("glrt-", 24, "gitlab-token"), ("glsa_", 40, "grafana-token"), ("glsoat-", 24, "gitlab-token"),
    ("gsk_", 40, "groq-key"), ("hf_", 34, "huggingface-token"), ("hvb.", 40, "vault-token"),
    ("hvr.", 40, "vault-token"), ("hvs.", 40, "vault-token"), ("lin_api_", 40, "linear-key"),
    ("npm_", 40, "npm-token"), ("ntn_", 40, "notion-token"), ("nvapi-", 40, "nvidia-key"),
    ("oa2-client-id_", 40, "blynk-client"), ("ops_eyJ", 60, "onepassword-token"), ("phc_", 40, "posthog-key"),
    ("phx_", 40, "posthog-key"), ("pat-na1-", 40, "hubspot-token"), ("pat-eu1-", 40, "hubspot-token"),
    ("pk.eyJ", 60, "mapbox-token"), ("pnu_", 38, "prefect-key"), ("pplx-", 40, "perplexity-key"),
    ("pscale_oauth_", 40, "planetscale-token"), ("pscale_pw_", 40, "planetscale-token"), ("pscale_tkn_", 40, "planetscale-token"),
    ("pub-c-", 40, "pubnub-key"), ("sub-c-", 40, "pubnub-key"), ("sec-c-", 40, "pubnub-key"),
    ("pul-", 40, "pulumi-token"), ("pypi-", 60, "pypi-token"), ("r8_", 38, "replicate-token"),
    ("rdme_", 60, "readme-key"), ("rk_live_", 20, "stripe-key"), ("rk_test_", 20, "stripe-key"),
    ("rpa_", 40, "runpod-key"), ("rubygems_", 50, "rubygems-key"), ("sbp_", 40, "supabase-token"),
    ("sgp_", 40, "sourcegraph-token"), ("shippo_live_", 40, "shippo-token"), ("shippo_test_", 40, "shippo-token"),
    ("shpat_", 38, "shopify-token"), ("shpca_", 38, "shopify-token"), ("shppa_", 38, "shopify-token"),
    ("shpss_", 38, "shopify-token"), ("sk-ant-", 40, "anthropic-key"), ("sk-or-", 40, "openrouter-key"),
    ("sk-proj-", 40, "openai-key"), ("sk-svcacct-", 40, "openai-key"), ("sk-", 35, "api-key"),
    ("sk.eyJ", 60, "mapbox-token"), ("sk_live_", 20, "stripe-key"), ("sk_test_", 20, "stripe-key"),
    ("sl.", 80, "dropbox-token"), ("sntrys_", 40, "sentry-token"), ("sntryu_", 60, "sentry-token"),
    ("sq0atp-", 29, "square-token"), ("sq0csp-", 50, "square-token"), ("sqa_", 44, "sonarqube-token"),
    ("sqp_", 44, "sonarqube-token"), ("squ_", 44, "sonarqube-token"), ("tfp_", 40, "typeform-token"),
    ("tskey-", 20, "tailscale-key"), ("tvly-", 24, "tavily-key"), ("v1.0-", 60, "cloudflare-key"),
    ("whsec_", 30, "stripe-key"), ("xai-", 60, "xai-key"), ("xapp-", 40, "slack-token"),
    ("xkeysib-", 60, "brevo-key"), ("xoxa-", 24, "slack-token"), ("xoxb-", 24, "slack-token"),
    ("xoxe-", 24, "slack-token"), ("xoxp-", 24, "slack-token"), ("xoxr-", 24, "slack-token"),
    ("xoxs-", 24, "slack-token"), ("ya29.", 40, "google-token"),
    ("AVNS_", 20, "aiven-password"), ("CFPAT-", 40, "contentful-token"), ("ak_live_", 24, "api-key"), ("ak_test_", 24, "api-key"),
    ("csk-", 40, "cerebras-key"), ("e2b_", 40, "e2b-key"), ("fc-", 35, "firecrawl-key"), ("fw_", 24, "fireworks-key"),
    ("gAAAAA", 90, "fernet-token"), ("ion_", 40, "cesium-token"), ("key-", 36, "mailgun-key"), ("lsv2_", 40, "langsmith-key"),
    ("mdb_sa_sk_", 40, "mongodb-secret"), ("nfp_", 40, "netlify-token"), ("pcsk_", 50, "pinecone-key"), ("rnd_", 30, "render-key"),
    ("rzp_live_", 23, "razorpay-key"), ("rzp_test_", 23, "razorpay-key"), ("secret_", 47, "notion-token"), ("shpua_", 38, "shopify-token"),
    ("sk_", 40, "api-key"), ("tgp_v1_", 40, "together-key"), ("tkn.v1_", 40, "teamwork-token"), ("v2.local.", 60, "paseto"),
    ("v4.local.", 60, "paseto"), ("v4.public.", 60, "paseto"), ("zpka_", 40, "zuplo-key"), ("IGQV", 60, "instagram-token"),
    ("crsr_", 40, "cursor-key"), ("pdl_live_", 30, "paddle-key"),
];

/// Hosts and places there behind which all is a secret.
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

/// What a secret is called. Compared without case and without what joins words.
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

/// Words of which nobody thinks that they are one.
const PLACEHOLDERS: [&str; 13] = [
    "example",
    "xxxx",
    "your",
    "placeholder",
    "changeme",
    "redacted",
    "dummy",
    "insert",
    "*****",
    ".....",
    "-----",
    "_____",
    "process.env",
];

/// What names of values, and values, are compared with.
struct Lists {
    called: AhoCorasick,
    placeholders: AhoCorasick,
}

static LISTS: LazyLock<Option<Lists>> = LazyLock::new(|| {
    let placeholders = AhoCorasick::builder().ascii_case_insensitive(true).build(PLACEHOLDERS);
    Some(Lists { called: AhoCorasick::new(CALLED).ok()?, placeholders: placeholders.ok()? })
});

/// How a private key begins (RFC 7468).
static BEGIN: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new("-----BEGIN"));

/// Whether something before a short word could give it as a value: a sign, or a word that says so.
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

const fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'_' | b'-' | b'.' | b'+' | b'/' | b'~' | b'!' | b'%')
}

/// Adds what is found in `text`.
pub(super) fn find(text: &str, out: &mut Vec<Found>) {
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
        // Most words are short, and nothing gives them a value.
        let one = bytes.get(at..run).unwrap_or_default();
        let plain = memchr::memchr(b'-', one).is_none();
        if plain && one.len() < SHORTEST && !may_be_given(bytes, at) {
            at = run;
            continue;
        }
        // Each byte of a run is looked at once for the start of a private key.
        while at < run {
            let left = bytes.get(at..run).unwrap_or_default();
            let dashes = memchr::memchr(b'-', left).is_some();
            let begins = if dashes { BEGIN.find(left) } else { None };
            let end = begins.map_or(run, |begins| at + begins);
            if end - at >= 6 {
                word(text, at, end, out);
            }
            at = match begins {
                Some(_) => private_key(text, end, out).unwrap_or(end + 10),
                None => run,
            };
        }
    }
}

/// A private key in PEM (RFC 7468), to its end or to that of the text.
fn private_key(text: &str, at: usize, out: &mut Vec<Found>) -> Option<usize> {
    let rest = text.get(at..)?;
    let line = rest.get(..rest.floor_char_boundary(HEADER))?;
    let line = line.split(['\n', '\\']).next()?;
    line.contains("PRIVATE KEY").then_some(())?;
    let footer = rest.find("-----END").map(|end| {
        let tail = rest.get(end + 8..).unwrap_or_default();
        end + 8 + tail.find("-----").map_or(0, |more| more + 5)
    });
    let end = at + footer.unwrap_or(rest.len());
    out.push(Found::new(Class::Secret, "private-key", at, end));
    Some(end)
}

/// `scheme://name:password@`: where to go on.
fn connection(text: &str, at: usize, out: &mut Vec<Found>) -> usize {
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
        && let Some((_, password)) = userinfo.split_once(':')
        && password.len() >= 3
        && !is_placeholder(password)
        && !password.starts_with(['$', '{', '<', '%', '['])
    {
        let from = start + userinfo.len() - password.len();
        out.push(Found::new(Class::Secret, "connection-string", from, from + password.len()));
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
                out.push(Found::new(Class::Secret, "webhook", from, from + end));
                return from + end;
            }
        }
    }
    start
}

/// A value in quotation marks that is more than one word, and called a secret: where it ends.
fn quoted(text: &str, at: usize, out: &mut Vec<Found>) -> Option<usize> {
    let before = text.get(text.floor_char_boundary(at.saturating_sub(BEFORE))..at)?;
    let ends = before.trim_end_matches([' ', '\\', '(']);
    // `get("SECRET_KEY", "...")`
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
    out.push(Found::new(Class::Secret, strong, at + 1, at + 1 + value.len()));
    Some(at + 1 + value.len())
}

/// Whether most characters are of different kinds than those beside them.
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

/// What is written together with its name, as in `vendor-token-VALUE`: where the value begins.
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
    (value.len() >= SHORTEST && digits >= 4 && called).then_some(at)
}

fn word(text: &str, from: usize, end: usize, out: &mut Vec<Found>) {
    let whole = text.get(from..end).unwrap_or_default();
    let skipped = whole.len() - whole.trim_start_matches(['-', '.', '/', '+', '~', '!', '%']).len();
    let (from, whole) = (from + skipped, whole.trim_matches(['-', '.', '/', '+', '~', '!', '%']));
    let start = whole.get(..whole.len().min(LONGEST)).unwrap_or(whole);
    // Padding belongs to it.
    let tail = text.as_bytes().get(from + whole.len()..).unwrap_or_default();
    let padding = tail.iter().take(2).take_while(|byte| **byte == b'=').count();
    let end = from + whole.len() + padding;
    // Of a path the last part.
    if let Some((_, last)) = whole.rsplit_once('/')
        && last.len() >= SHORTEST
        && let Some(rule) = format(last)
    {
        return out.push(Found::new(Class::Secret, rule, end - padding - last.len(), end));
    }
    if start.len() >= SHORTEST
        && let Some(rule) = format(start)
    {
        return out.push(Found::new(Class::Secret, rule, from, end));
    }
    if let Some(found) = flagged(text, from, end) {
        return out.push(found);
    }
    // Most words are short, and no value of anything.
    let given = || {
        let before = text.get(..from).unwrap_or_default();
        is_assigned(before) || ends_with(before, "bearer ") && start.len() >= BEARER
    };
    if start.len() < SHORTEST && !given() || !is_varied(start) || is_placeholder(start) {
        return;
    }
    if let Some(at) = joined(start).filter(|_| start.len() == whole.len()) {
        return out.push(Found::new(Class::Secret, "credential", from + at, from + whole.len()));
    }
    // What is not given as a value has to look like one.
    let digits = start.bytes().filter(u8::is_ascii_digit).take(2).count();
    if digits < 2 && start.len() < 20 && !given() {
        return;
    }
    let before = text.get(text.floor_char_boundary(from.saturating_sub(BEFORE))..from);
    let Some(rule) = called(before.unwrap_or_default(), start) else { return };
    out.push(Found::new(Class::Secret, rule, from, end));
}

/// Whether a text ends with a word, in any case.
fn ends_with(text: &str, word: &str) -> bool {
    let start = text.len().checked_sub(word.len());
    start.and_then(|start| text.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(word))
}

/// What is given on a command line, or as a name and a password in base64 (RFC 7617).
fn flagged(text: &str, from: usize, end: usize) -> Option<Found> {
    let bytes = text.as_bytes();
    if end - from == 35 && of_bot(text.get(..from)?) {
        return Some(Found::new(Class::Secret, "telegram-token", from, end));
    }
    // Most words have another word before them.
    if from < 3 || !bytes.get(from - 1).is_some_and(|b| matches!(b, b' ' | b'=' | b'"' | b'\'')) {
        return None;
    }
    let before = text.get(text.floor_char_boundary(from.saturating_sub(COMMAND))..from)?;
    let value = text.get(from..end)?;
    if ends_with(before, "basic ") {
        let plain = coding::base64(value.trim_end_matches('=')).filter(|_| value.len() >= 8)?;
        let named = std::str::from_utf8(&plain).ok()?.split_once(':')?;
        let secret = named.1.len() >= 3 && !plain.iter().any(u8::is_ascii_control);
        return secret.then(|| Found::new(Class::Secret, "basic-auth", from, end));
    }
    let flag = before.trim_end_matches(['"', '\'']).trim_end_matches([' ', '=']);
    let (head, flag) = flag.rsplit_once(char::is_whitespace)?;
    let has = |words: &[&str]| {
        let lower = head.to_ascii_lowercase();
        words.iter().any(|word| lower.contains(word))
    };
    let whole = value.len() >= 4 && !is_placeholder(value) && !value.starts_with('-');
    match flag {
        "-p" | "/p" if whole && has(&["psexec", "sshpass", "plink", "mysql", "ldapsearch"]) => {
            Some(Found::new(Class::Secret, "password", from, end))
        }
        "--password" | "--pass" | "--passwd"
            if whole && !is_reference(value) && distinct(value) >= 5 =>
        {
            Some(Found::new(Class::Secret, "password", from, end))
        }
        "-u" | "--user" if has(&["curl", "wget", "http"]) && bytes.get(end) == Some(&b':') => {
            let rest = text.get(end + 1..)?;
            let length = rest
                .bytes()
                .take(LONGEST)
                .take_while(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\''))
                .count();
            let password = rest.get(..length)?;
            let whole =
                length >= 4 && !is_placeholder(password) && !password.starts_with(['$', '{', '<']);
            whole.then(|| Found::new(Class::Secret, "password", end + 1, end + 1 + length))
        }
        _ => None,
    }
}

/// Whether a number of a bot stands before a word, and a colon.
fn of_bot(before: &str) -> bool {
    let Some(number) = before.strip_suffix(':') else { return false };
    let digits = number.bytes().rev().take(11).take_while(u8::is_ascii_digit).count();
    (8..=10).contains(&digits)
}

/// Whether a value follows: what stands before ends with `=` or `:`.
fn is_assigned(before: &str) -> bool {
    before.trim_end_matches(['"', '\'', '`', ' ', '\\', '\t', '>', '(']).ends_with(['=', ':'])
}

/// The places in [`PREFIXES`] of those that begin with each byte.
static BY_FIRST: LazyLock<Vec<Vec<usize>>> = LazyLock::new(|| {
    let begins = |byte: u8| {
        let prefixes = PREFIXES.iter().enumerate();
        prefixes
            .filter(|(_, (prefix, ..))| prefix.as_bytes().first() == Some(&byte))
            .map(|(at, _)| at)
            .collect()
    };
    (0..=255).map(begins).collect()
});

/// What a word is by its form.
fn format(word: &str) -> Option<&'static str> {
    let begins = |at: &usize| {
        PREFIXES
            .get(*at)
            .filter(|(prefix, least, _)| word.len() >= *least && word.starts_with(prefix))
    };
    let known = word.bytes().next().and_then(|byte| BY_FIRST.get(usize::from(byte)));
    if let Some((prefix, _, rule)) = known.into_iter().flatten().find_map(begins) {
        let rest = word.get(prefix.len()..).unwrap_or_default();
        let upper = *rule != "aws-access-key"
            || rest
                .bytes()
                .take(20 - prefix.len())
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
        let words = rest.split(['-', '_', '.']).filter(|part| part.len() >= 3);
        let spoken = words.clone().all(|part| part.bytes().all(|b| b.is_ascii_lowercase()));
        return (upper && !spoken && distinct(rest) >= 5 && !is_placeholder(rest)).then_some(rule);
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

/// Whether it is an object in base64 with a member that is called a secret.
fn is_token(word: &str) -> bool {
    let plain = coding::base64(word.trim_end_matches('=')).unwrap_or_default();
    let text = std::str::from_utf8(&plain).unwrap_or_default();
    let has = ["\"k\":", "\"key\":", "\"token\":", "\"secret\":", "\"password\":", "\"auth\":"];
    text.starts_with('{') && has.iter().any(|name| text.contains(name))
}

/// Whether it is the header of a JWS (RFC 7515 section 4).
fn is_header(part: &str) -> bool {
    let header = URL_SAFE_NO_PAD.decode(part).unwrap_or_default();
    let text = std::str::from_utf8(&header).unwrap_or_default();
    text.starts_with('{') && text.trim_end().ends_with('}') && text.contains("\"alg\"")
}

/// Whether what stands before a word calls it a secret, and what to call it then.
fn called(before: &str, word: &str) -> Option<&'static str> {
    let line = before.rsplit(['\n', ';', ',', '{', '}']).next().unwrap_or(before);
    let plain: String = line
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, '=' | ':'))
        .flat_map(char::to_lowercase)
        .collect();
    let assigned = is_assigned(line);
    if of_vendor(&plain, word, assigned) {
        return Some("credential");
    }
    let names = LISTS.as_ref()?.called.find_overlapping_iter(&plain);
    let name = CALLED.get(names.map(|name| name.pattern().as_usize()).min()?)?;
    if matches!(*name, "passw" | "passphrase" | "pwd") && assigned {
        return (word.len() >= 6 && !is_reference(word)).then_some("password");
    }
    let adjacent = plain.ends_with(name);
    let strong = !matches!(*name, "key" | "access" | "auth" | "api");
    let least = match *name {
        "bearer" if adjacent => BEARER,
        name if assigned || adjacent && name != "api" => SHORTEST,
        _ => 20,
    };
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let random = digits >= 2 && word.bytes().any(|b| b.is_ascii_alphabetic())
        || word.len() >= 20 && digits == word.len() && strong && (assigned || adjacent)
        || word.len() >= 24 && digits == 0 && is_mixed(word);
    (word.len() >= least
        && random
        && (strong || assigned || adjacent || word.len() >= 24)
        && !is_reference(word))
    .then_some("credential")
}

/// Whether a word looks random and stands behind the name of a service.
fn of_vendor(plain: &str, word: &str, assigned: bool) -> bool {
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
    let least = if key && assigned { 10 } else { SHORTEST };
    word.len() >= least && (random || key) && !is_reference(word)
}

/// Whether a word has letters of both cases within its parts.
fn is_mixed(word: &str) -> bool {
    let changes = word
        .as_bytes()
        .windows(2)
        .filter(|pair| matches!(pair, [a, b] if a.is_ascii_lowercase() && b.is_ascii_uppercase()));
    changes.count() * 6 >= word.len()
}

/// Whether a word is a path, a name of something or a version, and not a value.
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
    // Most of its parts are words.
    parts.len() >= 2 && words * 4 >= parts.len() * 3 && !is_uuid(word)
        || word.contains('/')
            && parts.iter().any(|part| part.len() > 3 && spoken(&part))
            && parts.len() >= 3
}

fn is_uuid(word: &str) -> bool {
    let lengths = word.split('-').map(str::len);
    word.len() == 36 && lengths.eq([8, 4, 4, 4, 12])
}

fn distinct(word: &str) -> usize {
    let mut seen = [false; 256];
    for byte in word.bytes() {
        if let Some(known) = seen.get_mut(usize::from(byte)) {
            *known = true;
        }
    }
    seen.into_iter().filter(|seen| *seen).count()
}

fn is_varied(word: &str) -> bool {
    distinct(word) >= if word.len() < SHORTEST { 4 } else { DIFFERENT }
}

fn is_placeholder(word: &str) -> bool {
    let known = LISTS.as_ref().map(|lists| &lists.placeholders);
    known.is_some_and(|known| known.is_match(word))
}
