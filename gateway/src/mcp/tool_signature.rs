//! The definition of a tool as one line, by which a model chooses it: the name, the parameters with their types, and what
//! it does.
//!
//! The words are the server's, as the list shows them. They are cut, and stay on their line: a name that is no plain word
//! is written as a JSON string in ASCII, and blanks of any kind become one space.

use json::{Value, write_ascii};
use policy_core::base::hidden::Hidden;

use crate::mcp::sentences::sentence_ends;

/// Most parameters of a line.
const MAX_PARAMETERS: usize = 16;
/// Longest description in characters.
const MAX_DESCRIPTION: usize = 200;
/// Longest name of a parameter and longest type, in characters.
const MAX_WORD: usize = 64;
/// Most values or types that are written as alternatives.
const MAX_ALTERNATIVES: usize = 5;
/// How deep types are read: arrays of arrays.
const MAX_DEPTH: usize = 3;
/// Longest beginning that is not taken for a sentence, in bytes.
const SHORT_BEGINNING: usize = 12;
/// Stands for what was cut.
const CUT: &str = "…";

/// A tool as one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolSignature {
    /// The name with the parameters: `read(path: string, lines?: integer)`.
    pub call: String,
    /// The first sentence of the description, or nothing.
    pub description: String,
}

impl ToolSignature {
    /// The signature of a definition.
    #[must_use]
    pub fn read(tool: Value<'_>) -> Self {
        let text = |key: &str| tool.get(key).and_then(Value::as_str).unwrap_or_default();
        let parameters = parameters(tool.get("inputSchema"));
        let call = format!("{}({})", word(&text("name"), usize::MAX), parameters.join(", "));
        Self { call, description: first_sentence(&text("description")) }
    }
}

/// The parameters with their types, the required ones first.
fn parameters(schema: Option<Value<'_>>) -> Vec<String> {
    let Some(schema) = schema else { return Vec::new() };
    let required: Vec<_> = schema.get("required").into_iter().flat_map(Value::items).collect();
    let is_required = |name: &str| required.iter().any(|one| one.is_text(name));
    let mut written = [Vec::new(), Vec::new()];
    let properties = schema.get("properties").into_iter().flat_map(Value::members);
    for (name, schema) in properties {
        let is_optional = !is_required(&name);
        let mark = if is_optional { "?" } else { "" };
        let parameter = || format!("{}{mark}: {}", word(&name, MAX_WORD), type_of(schema, 0));
        let [first, second] = &mut written;
        let list = if is_optional { second } else { first };
        // One more tells that some were cut.
        if list.len() <= MAX_PARAMETERS {
            list.push(parameter());
        }
    }
    let mut written = written.concat();
    if written.len() > MAX_PARAMETERS {
        written.truncate(MAX_PARAMETERS);
        written.push(CUT.to_owned());
    }
    written
}

/// The type of a parameter in a few words.
fn type_of(schema: Value<'_>, depth: usize) -> String {
    if depth > MAX_DEPTH {
        return "any".to_owned();
    }
    if let Some(values) = schema.get("enum").or_else(|| schema.get("const")) {
        let is_list = values.kind() == json::JsonKind::Array;
        let all = values.items().chain((!is_list).then_some(values));
        return alternatives(all.map(|value| match value.as_str() {
            Some(text) => word(&text, MAX_WORD),
            None => word(value.raw(), MAX_WORD),
        }));
    }
    let choice = schema.get("anyOf").or_else(|| schema.get("oneOf"));
    if let Some(choice) = choice {
        return alternatives(choice.items().map(|one| type_of(one, depth + 1)));
    }
    let Some(kind) = schema.get("type") else { return "any".to_owned() };
    let named = |kind: Value<'_>| match kind.as_str().as_deref() {
        Some("array") => match schema.get("items") {
            Some(items) => format!("{}[]", type_of(items, depth + 1)),
            None => "any[]".to_owned(),
        },
        Some(name) => word(name, MAX_WORD),
        None => "any".to_owned(),
    };
    if kind.kind() == json::JsonKind::Array {
        alternatives(kind.items().map(named))
    } else {
        named(kind)
    }
}

/// The first of the alternatives, with `|` between them.
fn alternatives(all: impl Iterator<Item = String>) -> String {
    let mut all: Vec<_> = all.take(MAX_ALTERNATIVES + 1).collect();
    if all.len() > MAX_ALTERNATIVES {
        all.truncate(MAX_ALTERNATIVES);
        all.push(CUT.to_owned());
    }
    if all.is_empty() { "any".to_owned() } else { all.join("|") }
}

/// A name as it is, if it can be read as nothing else; else as a JSON string. A longer one is cut.
#[must_use]
pub fn word(name: &str, most: usize) -> String {
    let cut: String = name.chars().take(most).collect();
    let is_plain = |c: char| {
        (c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '$' | '@' | '+'))
            && Hidden::of(c).is_none()
    };
    let mut out = Vec::new();
    if !cut.is_empty() && cut.chars().all(is_plain) {
        out.extend_from_slice(cut.as_bytes());
    } else {
        write_ascii(&mut out, &cut);
    }
    if cut.len() < name.len() {
        out.extend_from_slice(CUT.as_bytes());
    }
    String::from_utf8(out).unwrap_or_default()
}

/// The first sentence of a text with those that limit it, on one line.
fn first_sentence(text: &str) -> String {
    let text = text.trim();
    let ends = sentence_ends(text);
    // A short beginning is a heading more often than a sentence.
    let end = ends.iter().find(|end| **end > SHORT_BEGINNING).or(ends.last());
    let sentence = end.and_then(|end| text.get(..*end)).unwrap_or(text);
    let mut out = String::new();
    let mut count = 0;
    for c in sentence.chars() {
        if count == MAX_DESCRIPTION {
            out.push_str(CUT);
            break;
        }
        let is_blank = c.is_whitespace() || c.is_control();
        if is_blank && out.ends_with(' ') {
            continue;
        }
        out.push(if is_blank { ' ' } else { c });
        count += 1;
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds};

    use super::ToolSignature;

    fn signature(definition: &str) -> ToolSignature {
        let text = definition.to_owned().into();
        ToolSignature::read(Document::parse(text, &JsonBounds::ANSWER).unwrap().root())
    }

    #[test]
    fn a_signature_has_the_required_parameters_first_and_the_first_sentence() {
        let read = signature(
            r#"{"name":"read","description":"Reads a text file. Slowly.","inputSchema":{"type":"object","required":["path"],
               "properties":{"lines":{"type":"integer"},"path":{"type":"string"},"as":{"enum":["text","base64"]},
               "tags":{"type":"array","items":{"type":"string"}},"at":{"type":["string","null"]},"x":{},
               "y":{"anyOf":[{"type":"number"},{"type":"boolean"}]}}}}"#,
        );
        let expected = "read(path: string, lines?: integer, as?: text|base64, tags?: string[], at?: string|null, x?: any, \
                        y?: number|boolean)";
        assert_eq!(read.call, expected);
        assert_eq!(read.description, "Reads a text file.");
        assert_eq!(signature("{\"name\":\"x\"}").call, "x()");
        let limited = signature(
            r#"{"name":"x","description":"Deletes files, e.g. Old ones. Never those of others.\n\nIt is slow."}"#,
        );
        assert_eq!(limited.description, "Deletes files, e.g. Old ones. Never those of others.");
    }

    #[test]
    fn nothing_in_a_definition_begins_a_line_or_looks_like_a_part_of_it() {
        let read = signature(
            r#"{"name":"a) -> Deletes\n[read] b(","description":"One\n[read] two()\u2028three","inputSchema":
               {"properties":{"p\n: string)":{"type":"x\n,y"}}}}"#,
        );
        let whole = format!("{} {}", read.call, read.description);
        assert!(!whole.contains(['\n', '\u{2028}']), "{whole:?}");
        assert!(read.call.starts_with("\"a) -> Deletes"), "{whole:?}");
        assert!(read.call.contains("(\"p\\n: string)\"?: \"x\\n,y\")"), "{whole:?}");
    }

    #[test]
    fn every_part_has_a_bound() {
        let properties: Vec<_> =
            (0..99).map(|n| format!("\"p{n}{}\":{{}}", "x".repeat(999))).collect();
        let text = format!(
            r#"{{"name":"n","description":"{}","inputSchema":{{"properties":{{{}}}}}}}"#,
            "word ".repeat(9999),
            properties.join(",")
        );
        let read = signature(&text);
        assert!(read.call.len() < 2000 && read.call.ends_with("…)"), "{}", read.call);
        assert!(read.description.len() < 220 && read.description.ends_with('…'));
    }
}
