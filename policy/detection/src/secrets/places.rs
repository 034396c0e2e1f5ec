//! Tells public ids in the paths of web services from keys that stand in a path.
//!
//! `https://acme.slack.com/archives/C024BE91L/p1671234567890129` names a message, and
//! `https://mainnet.infura.io/v3/9f8e…` contains a key. The segment before decides: a segment after a resource
//! kind (`archives`, `files`, `commits`) is the id of such a resource.

use policy_core::base::compiled::Compiled;
use regex::Regex;

use super::{CALLED, SHORTEST, is_mixed, is_reference};
use crate::secrets::vendors;

/// Resource kinds that precede an id in paths, sorted, in lower case. None of them precedes a segment that grants
/// access: `hooks`, `services`, `webhooks`, `token`, `invite`, `share`, `v1`.
#[rustfmt::skip]
const KINDS: [&str; 66] = [
    "accounts", "album", "archives", "artist", "board", "boards", "branch", "cards", "channels", "collections", "comments",
    "commit", "commits", "component_sets", "components", "contact", "contacts", "conversation", "conversations", "customers",
    "dashboard", "dashboards", "deck", "deploys", "design", "dns_records", "document", "documents", "episode", "event",
    "events", "file", "files", "images", "incidents", "invoices", "issue", "issues", "items", "jobs", "make", "messages",
    "monitors", "organizations", "pages", "payments", "playlist", "posts", "project", "projects", "proto", "records", "repos",
    "runs", "show", "slides", "status", "styles", "subscriptions", "tasks", "teams", "ticket", "tickets", "track", "tracks",
    "zones",
];
/// Hosts of web applications in which each path segment is an id; compared as a whole.
const PAGES: [&str; 5] = [
    "console.cloud.mongodb.com",
    "dash.cloudflare.com",
    "notion.so",
    "vercel.com",
    "www.notion.so",
];
/// Top-level domains of hosts that are recognised without a scheme.
const ENDS: [&str; 12] =
    ["ai", "app", "cloud", "co", "com", "dev", "gg", "io", "net", "org", "so", "us"];
/// Prefixes of Airtable ids; not `pat` and `key`, which are credentials.
const AIRTABLE: [&str; 9] = ["app", "att", "fld", "pag", "rec", "sel", "tbl", "usr", "viw"];
/// Length of an Airtable id, in bytes.
const AIRTABLE_ID: usize = 17;
/// Length of the key of a Figma file, in bytes.
const FIGMA_FILE: usize = 22;
/// Length of the key of a published Figma component, in hexadecimal digits.
const FIGMA_COMPONENT: usize = 40;
/// How many bytes around the key of a component are searched for evidence that it is one.
const AROUND: usize = 256;
/// Fewest digits of a path that contains a key.
const DIGITS: usize = 4;

/// Evidence that a `key` is that of a Figma component or style.
struct FigmaPatterns {
    /// The id of a node before it, as the name of a member or as its `id`.
    node: Regex,
    /// The id of a node after it.
    node_behind: Regex,
    /// The member that holds components.
    components: Regex,
    /// A `name` directly after it.
    name_behind: Regex,
}

/// The patterns, compiled on first use.
static FIGMA: Compiled<FigmaPatterns> = Compiled::new(|| {
    Ok(FigmaPatterns {
        node: Regex::new(
            r#"(?:^|[\s{,"'])(?:(?:id|node_id|nodeId)["'\\]*:\s*["'\\]*I?\d+:\d+|\d+:\d+["'\\]*:(?:[\s{]|$))"#,
        )?,
        node_behind: Regex::new(r#"\b(?:node_id|nodeId)["'\\]*:\s*["'\\]*I?\d+:\d+"#)?,
        components: Regex::new(
            r#"(?:^|[\s{,"'])(?:components|componentSets|component_sets|styles)["'\\]*:"#,
        )?,
        name_behind: Regex::new(r#"^["'\\]*,?\s*["'\\]*name["'\\]*:"#)?,
    })
});

/// A URL path, with its host or from the root on.
#[derive(Clone, Copy, Debug)]
pub(super) struct UrlPath<'a> {
    /// `None` where the path stands alone (`/files/…`).
    host: Option<&'a str>,
    path: &'a str,
}

impl<'a> UrlPath<'a> {
    /// The path that a word is, if it is one: `before` is the text before the word.
    pub(super) fn of(before: &str, word: &'a str) -> Option<Self> {
        let (first, path) = word.split_once('/')?;
        let named = |host: &str| {
            host.rsplit_once('.').is_some_and(|(name, end)| {
                !name.is_empty() && (before.ends_with("://") || ENDS.contains(&end))
            })
        };
        if named(first) {
            return Some(Self { host: Some(first), path });
        }
        before.ends_with('/').then_some(Self { host: None, path: word })
    }

    /// The offset in the word of a key in the path of a service that issues keys; `Err` for a path with a dash or a
    /// dot, which is judged like any other word.
    pub(super) fn key(self) -> Result<Option<usize>, AmbiguousPath> {
        let Some(host) = self.host else { return Err(AmbiguousPath) };
        if self.path.contains(['-', '.']) {
            return Err(AmbiguousPath);
        }
        let name: String = host
            .rsplit_once('.')
            .map_or(host, |(name, _)| name)
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect::<String>()
            .to_lowercase();
        let called = CALLED.iter().any(|called| name.ends_with(called));
        let digits = self.path.bytes().filter(u8::is_ascii_digit).count();
        if digits < DIGITS || !called && vendors::names(&name).is_none() {
            return Ok(None);
        }
        let secret = self.parts().find(|part| part.is_random() && !self.shows(*part));
        Ok(secret.map(|part| host.len() + 1 + part.at))
    }

    /// Whether all random-looking segments of a path without a host are ids of resources: `/files/ID`.
    pub(super) fn is_public(self) -> bool {
        let mut random = self.parts().filter(|part| part.is_random()).peekable();
        self.host.is_none() && random.peek().is_some() && random.all(|part| part.is_of_kind())
    }

    fn parts(self) -> impl Iterator<Item = PathSegment<'a>> {
        let mut at = 0;
        let mut before = "";
        self.path.split('/').map(move |text| {
            let part = PathSegment { at, text, before };
            at += text.len() + 1;
            before = text;
            part
        })
    }

    /// Whether a segment is an id that the service shows in the URLs of its pages.
    fn shows(self, part: PathSegment<'_>) -> bool {
        let host = self.host.unwrap_or_default().to_ascii_lowercase();
        part.is_of_kind()
            || PAGES.contains(&host.as_str())
            || is_of(&host, "slack.com") && is_message(part.text)
            || is_of(&host, "airtable.com") && is_airtable(part.text)
    }
}

/// The path alone does not tell what its segments are.
#[derive(Clone, Copy, Debug)]
pub(super) struct AmbiguousPath;

/// A segment of a path.
#[derive(Clone, Copy, Debug)]
struct PathSegment<'a> {
    /// Its offset in the path, in bytes.
    at: usize,
    text: &'a str,
    /// The segment before it.
    before: &'a str,
}

impl PathSegment<'_> {
    /// Whether it could be a key: long, with letters and digits, and not made of words.
    fn is_random(self) -> bool {
        let digits = self.text.bytes().filter(u8::is_ascii_digit).count();
        let letters = self.text.bytes().any(|byte| byte.is_ascii_alphabetic());
        self.text.len() >= SHORTEST
            && letters
            && (digits >= 2 || is_mixed(self.text))
            && !is_reference(self.text)
    }

    /// Whether it follows a resource kind.
    fn is_of_kind(self) -> bool {
        let kind = self.before.to_ascii_lowercase();
        KINDS.binary_search(&kind.as_str()).is_ok()
    }
}

/// Whether a host is `domain` or a subdomain of it.
fn is_of(host: &str, domain: &str) -> bool {
    let above = host.strip_suffix(domain);
    above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

/// Whether a segment is the timestamp of a Slack message, as in its permalink: `p` and 16 digits.
fn is_message(part: &str) -> bool {
    let digits = part.strip_prefix('p');
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Whether a segment is the id of an Airtable base, table, record or the like.
fn is_airtable(part: &str) -> bool {
    part.len() == AIRTABLE_ID
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && AIRTABLE.iter().any(|kind| part.starts_with(kind))
}

/// Whether a word is the `key` of a Figma file or of a published component, which are ids.
pub(super) fn is_figma(text: &str, from: usize, end: usize) -> bool {
    let word = text.get(from..end).unwrap_or_default();
    let hex = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    let component = word.len() == FIGMA_COMPONENT && word.bytes().all(hex);
    let file = word.len() == FIGMA_FILE && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !component && !file {
        return false;
    }
    let before = text.get(text.floor_char_boundary(from.saturating_sub(AROUND))..from);
    let signs = |c: char| c.is_ascii_whitespace() || matches!(c, '"' | '\'' | '\\');
    let Some(named) = before.unwrap_or_default().trim_end_matches(signs).strip_suffix(':') else {
        return false;
    };
    let named = named.trim_end_matches(['"', '\'', '\\']);
    let length =
        named.bytes().rev().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    let (above, name) = named.split_at_checked(named.len() - length).unwrap_or_default();
    match name {
        "fileKey" | "file_key" => file,
        "key" if component => {
            let behind = text.get(end..text.floor_char_boundary(end.saturating_add(AROUND)));
            is_component(above, behind.unwrap_or_default())
        }
        _ => false,
    }
}

/// Whether a `key` between these texts is that of a component.
fn is_component(above: &str, behind: &str) -> bool {
    FIGMA.get().is_some_and(|figma| {
        figma.node.is_match(above)
            || figma.node_behind.is_match(behind)
            || figma.components.is_match(above) && figma.name_behind.is_match(behind)
    })
}

#[cfg(test)]
mod tests {
    use super::{FIGMA, KINDS};

    #[test]
    fn the_kinds_are_in_order() {
        assert!(KINDS.is_sorted());
    }

    #[test]
    fn the_patterns_compile() {
        assert!(FIGMA.error().is_none());
    }
}
