//! Removes from a definition what must not stand in it, and leaves the rest unchanged (control C12).
//!
//! Idempotent: `clean(clean(x)) == clean(x)`. Names are not changed, because they are how items are called. A
//! definition in which something is still found after cleaning is withheld.

use json::{JsonKind as Shape, Value, write_canonical_string, write_items, write_members};
use policy_core::base::compiled::Compiled;
use policy_core::base::hidden::TERMINAL;
use regex::Regex;

use crate::inspect::rendered::RenderedText;

/// What is removed from a definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaning {
    /// Invisible characters and terminal escape sequences.
    pub hidden: bool,
    /// HTML comments and active markup.
    pub markup: bool,
    /// Secrets are replaced by a placeholder.
    pub secrets: bool,
    /// Addresses of internal hosts are replaced.
    pub addresses: bool,
}

/// Members of a schema that determine which arguments are admitted, and are not text.
const CONTRACT: [&str; 8] =
    ["enum", "const", "pattern", "default", "required", "type", "format", "$ref"];
/// Members of a schema whose value is an object with names in the place of keywords.
const NAMES: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Most passes over one string; a string that needs more was built to need more.
const PASSES: usize = 8;

struct CleaningPatterns {
    comment: Regex,
    element: Regex,
    tag: Regex,
    active: Regex,
}

static PATTERNS: Compiled<CleaningPatterns> = Compiled::new(|| {
    let names = "script|iframe|object|embed|style|link|svg|form|meta|base";
    Ok(CleaningPatterns {
        comment: Regex::new(r"(?s)<!--.*?(?:-->|$)|\[//\]:[^\n]*")?,
        element: Regex::new(
            r"(?is)<\s*(?:script|style|iframe|object|svg)\b.*?<\s*/\s*(?:script|style|iframe|object|svg)\s*>",
        )?,
        tag: Regex::new(&format!(r"(?i)<\s*/?\s*(?:{names})\b[^<>]*>?"))?,
        active: Regex::new(
            r#"(?i)\b(?:javascript|vbscript|livescript):|\bon(?:error|load|click)\s*=|<\s*(?:img|image|video|audio|source|track|input)\b[^<>]*\b(?:src|srcset|poster|href)\s*=\s*["']?\s*(?:https?:|[/\\]{2})[^<>]*>?|!\[(?:[^\]]|\[[^\[\]]*\])*\]\(\s*<?\s*(?:https?:|[/\\]{2})[^)]*\)?|\]\(\s*<?(?:data:(?:text|image/svg|application)|(?:command|vscode[\w-]*|cursor|ms-[\w-]+|search-ms|file):)"#,
        )?,
    })
});

/// The definition as JSON, with its strings cleaned.
#[must_use]
pub fn definition(value: Value<'_>, cleaning: Cleaning) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.raw().len());
    write(&mut out, value, cleaning, MemberKey::Other, 0);
    out
}

/// What a value is, by the key of the member that has it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemberKey {
    /// The value of a keyword that decides which arguments are admitted.
    Contract,
    /// An object whose members have names in the place of keywords: a parameter can be called `pattern`.
    Names,
    /// Any other part of a definition.
    Other,
}

impl MemberKey {
    /// What the member `name` of an object is that is itself a `parent`.
    fn of(parent: Self, name: &str) -> Self {
        match parent {
            Self::Names => Self::Other,
            Self::Contract | Self::Other if CONTRACT.contains(&name) => Self::Contract,
            Self::Contract | Self::Other if NAMES.contains(&name) => Self::Names,
            Self::Contract | Self::Other => Self::Other,
        }
    }
}

/// Writes a value with its strings cleaned; `key` says what it is the value of.
///
/// INVARIANT: the depth of a document is bounded, so the recursion is.
fn write(out: &mut Vec<u8>, value: Value<'_>, cleaning: Cleaning, key: MemberKey, depth: usize) {
    match value.kind() {
        // These values decide which arguments are admitted.
        _ if key == MemberKey::Contract => out.extend_from_slice(value.raw().as_bytes()),
        Shape::Null | Shape::Boolean | Shape::Number => {
            out.extend_from_slice(value.raw().as_bytes());
        }
        Shape::Plain | Shape::Escaped => {
            write_canonical_string(out, &text(&value.as_str().unwrap_or_default(), cleaning));
        }
        Shape::Array => {
            write_items(out, value.items(), |out, item| {
                write(out, item, cleaning, MemberKey::Other, depth + 1);
            });
        }
        Shape::Object => write_members(out, value.members(), |out, (name, member)| {
            write_canonical_string(out, &name);
            out.push(b':');
            if depth == 0 && matches!(&*name, "name" | "uri" | "uriTemplate") {
                out.extend_from_slice(member.raw().as_bytes());
            } else {
                write(out, member, cleaning, MemberKey::of(key, &name), depth + 1);
            }
        }),
    }
}

/// One string, cleaned until another pass changes nothing; empty if that takes more than [`PASSES`].
#[must_use]
pub fn text(text: &str, cleaning: Cleaning) -> String {
    let mut now = text.to_owned();
    for _ in 0..PASSES {
        let next = once(&now, cleaning);
        if next == now {
            return now;
        }
        now = next;
    }
    if once(&now, cleaning) == now { now } else { String::new() }
}

fn once(text: &str, cleaning: Cleaning) -> String {
    let (Some(patterns), Some(terminal)) = (PATTERNS.get(), TERMINAL.get()) else {
        return text.to_owned();
    };
    let mut text = text.to_owned();
    if cleaning.hidden {
        text = terminal.replace_all(&text, "").into_owned();
        text = crate::inspect::shown(&text);
    }
    if cleaning.markup {
        for pattern in [&patterns.comment, &patterns.element, &patterns.tag, &patterns.active] {
            // A blank, so that the text on both sides of the match does not become one word.
            text = pattern.replace_all(&text, " ").into_owned();
            // What is markup only as it is read.
            let read = RenderedText::of(&text);
            text = read.and_then(|read| read.replaced(&text, pattern, " ")).unwrap_or(text);
        }
    }
    if cleaning.secrets {
        text = crate::inspect::without_secrets(&text);
    }
    if cleaning.addresses {
        text = crate::inspect::without_addresses(&text);
    }
    text
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds};

    use super::{Cleaning, PATTERNS, definition, text};
    use proptest::prelude::*;

    #[test]
    fn the_patterns_compile() {
        assert!(PATTERNS.error().is_none());
    }

    const ALL: Cleaning = Cleaning { hidden: true, markup: true, secrets: true, addresses: true };

    #[test]
    fn what_should_not_be_there_is_taken_out_and_nothing_else() {
        for (before, after) in [
            ("Adds\u{200b} two\u{e0041} numbers.\u{202e}", "Adds two numbers."),
            ("a \u{1b}[31mred\u{1b}[0m word", "a red word"),
            ("Adds. <!-- hidden --> More.", "Adds.   More."),
            ("<scr<script>ipt>x</script>", "<scr "),
            ("see ![x](https&#58;//a.example/p.png) now", "see   now"),
            ("[x](javascript&colon;alert(1)) &amp; more", "[x]( alert(1)) &amp; more"),
            ("[x](vscode&#58;//x/y)", "[x //x/y)"),
            ("a <img src='https&colon;//a.example/p'> b", "a   b"),
            ("see http&#58;//10.0.0.1/x", "see [internal]/x"),
            ("key AKIAQ3EGRZ7XK2MWPLVT!", "key [redacted]!"),
            ("key AKIAIOSFODNN7EXAMPLE!", "key AKIAIOSFODNN7EXAMPLE!"),
            ("see http://10.0.0.1/x", "see [internal]/x"),
            (
                "plain 'text' with <b>bold</b> & 日本語 👩‍💻",
                "plain 'text' with <b>bold</b> & 日本語 👩‍💻",
            ),
        ] {
            assert_eq!(text(before, ALL), after);
        }
    }

    #[test]
    fn a_parameter_is_cleaned_whatever_its_name_is() {
        let cleaned = |json: &str| {
            let document = Document::parse(json.to_owned().into(), &JsonBounds::MESSAGE).unwrap();
            String::from_utf8(definition(document.root(), ALL)).unwrap()
        };
        for name in [
            "pattern",
            "type",
            "default",
            "format",
            "required",
            "enum",
            "const",
            "$ref",
            "properties",
        ] {
            for names in ["properties", "$defs", "patternProperties"] {
                let schema = |text: &str| {
                    format!(
                        r#"{{"inputSchema":{{"{names}":{{"{name}":{{"description":"{text}","pattern":"<b>\u200b"}}}}}}}}"#
                    )
                };
                // The keyword in the schema of the parameter stays as it is.
                assert_eq!(cleaned(&schema("a\\u200b word")), schema("a word"), "{names} {name}");
            }
        }
        // The parameter `properties` has a schema, and its parameters have names again.
        let deep = |text: &str| {
            format!(
                r#"{{"properties":{{"properties":{{"properties":{{"enum":{{"title":"{text}"}}}}}}}}}}"#
            )
        };
        assert_eq!(cleaned(&deep("a\\u200b word")), deep("a word"));
    }

    proptest! {
        #[test]
        fn cleaning_again_changes_nothing(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("<!--"), Just("-->"), Just("<script>"), Just("</script>"), Just("<svg "),
                    Just("\u{200b}"), Just("\u{1b}[1m"), Just("\u{e0041}"), Just("javascript:"),
                    Just("http://localhost"), Just("AKIAQ3EGRZ7XK2MWPLVT"), Just("on"), Just("error="),
                    Just("&#58;"), Just("java&Tab;script"), Just("!["), Just("]("), Just("\\:"), Just("https"),
                    Just(" "), Just("word"), Just("<"), Just(">"),
                ],
                0..14,
            )
        ) {
            let once = text(&parts.concat(), ALL);
            prop_assert_eq!(text(&once, ALL), once);
        }
    }
}
