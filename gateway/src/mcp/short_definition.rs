//! The definition of a tool with fewer words, for lists of routes that have `describe_tool` for the rest.
//!
//! The words that are left are whole sentences from the beginning of what the list would show otherwise: what pins,
//! detectors and overrides have done to a definition is done before.

use std::collections::BTreeSet;

use json::{Document, JsonBounds, JsonKind, Value, write_items, write_name, write_string};

use super::discovery_tools::DiscoveryTool;
use super::model_text::{model_text, model_tokens};
use super::protocol::meta;
use super::sentences::sentence_ends;
use crate::base::context_tokens::count_to;
use crate::base::schema_keywords::{MAPS_OF_SCHEMAS, SCHEMAS};

/// What is left of the descriptions of a tool.
#[derive(Debug)]
struct ShortDescriptions {
    /// The first sentences of the description; all of it if it is not cut.
    description: String,
    /// Where the descriptions of parameters begin that are left out.
    left_out: BTreeSet<usize>,
}

/// A definition whose descriptions have together at most `budget` tokens, as JSON; `None` if they have no more, or if the
/// definition would not have fewer with the mark.
///
/// The description of the tool is cut behind a sentence; its first one is left, however long it is. If that does not
/// suffice, descriptions of parameters are left out, the last one first. What was cut is marked in the description and in
/// `_meta`. Not for threads that serve clients: see [`count`](crate::base::context_tokens::count).
#[must_use]
pub fn shorten(definition: Value<'_>, budget: usize) -> Option<Vec<u8>> {
    let short = ShortDescriptions::of(definition, budget)?;
    let written = written(definition, &short);
    is_shorter(&written, definition).then_some(written)
}

/// Whether a definition has fewer tokens for a model than another one.
fn is_shorter(written: &[u8], than: Value<'_>) -> bool {
    let document = Document::parse(written.to_vec().into(), &JsonBounds::ANSWER);
    let Ok(document) = document else { return false };
    let tokens = model_tokens(document.root());
    count_to(&model_text(than), tokens) > tokens
}

/// A definition with what is left of its descriptions.
fn written(definition: Value<'_>, short: &ShortDescriptions) -> Vec<u8> {
    let mut out = Vec::with_capacity(definition.raw().len());
    let mark = format!("… {} has the rest.", DiscoveryTool::Describe.name());
    let description = format!("{} {mark}", short.description);
    out.extend_from_slice(b"{");
    let is_kept = |name: &str| !["description", "inputSchema", "_meta"].contains(&name);
    for (name, value) in definition.members().filter(|(name, _)| is_kept(name)) {
        write_name(&mut out, &name);
        out.extend_from_slice(value.raw().as_bytes());
        out.push(b',');
    }
    write_name(&mut out, "description");
    write_string(&mut out, description.trim_start());
    if let Some(schema) = definition.get("inputSchema") {
        out.push(b',');
        write_name(&mut out, "inputSchema");
        write_without(&mut out, schema, &short.left_out);
    }
    out.push(b',');
    write_name(&mut out, "_meta");
    out.push(b'{');
    let own = definition.get("_meta").filter(|own| own.is_object());
    for (name, value) in own.into_iter().flat_map(Value::members) {
        write_name(&mut out, &name);
        out.extend_from_slice(value.raw().as_bytes());
        out.push(b',');
    }
    write_name(&mut out, meta::SHORTENED);
    out.extend_from_slice(b"true}}");
    out
}

impl ShortDescriptions {
    /// What is left of a definition within `budget`; `None` if that is all.
    fn of(definition: Value<'_>, budget: usize) -> Option<Self> {
        let text = definition.get("description").and_then(Value::as_str).unwrap_or_default();
        let mut parameters = Vec::new();
        if let Some(schema) = definition.get("inputSchema") {
            add_descriptions(schema, &mut parameters);
        }
        let tokens = |value: &Value<'_>| count_to(&value.as_str().unwrap_or_default(), budget);
        let parameters: Vec<_> =
            parameters.iter().map(|value| (value.span().start, tokens(value))).collect();
        let of_parameters: usize = parameters.iter().map(|(_, tokens)| tokens).sum();
        if count_to(&text, budget) + of_parameters <= budget {
            return None;
        }
        let description = first_sentences(&text, budget.saturating_sub(of_parameters));
        let mut taken = count_to(description, budget) + of_parameters;
        let mut left_out = BTreeSet::new();
        for (start, tokens) in parameters.into_iter().rev() {
            if taken <= budget {
                break;
            }
            taken -= tokens;
            left_out.insert(start);
        }
        let is_whole = description.len() == text.trim_end().len() && left_out.is_empty();
        (!is_whole).then(|| Self { description: description.to_owned(), left_out })
    }
}

/// As many whole sentences from the beginning of a text as have together at most `budget` tokens, and at least one.
fn first_sentences(text: &str, budget: usize) -> &str {
    let (mut kept, mut used) = (0, 0);
    for end in sentence_ends(text) {
        used += count_to(text.get(kept..end).unwrap_or_default(), budget);
        if kept > 0 && used > budget {
            break;
        }
        kept = end;
    }
    text.get(..kept).unwrap_or(text)
}

/// Adds the descriptions in a schema, in its order. INVARIANT: the depth of a document is bounded, so the recursion is.
fn add_descriptions<'a>(schema: Value<'a>, found: &mut Vec<Value<'a>>) {
    for (name, value) in schema.members() {
        match &*name {
            "description" if value.as_str().is_some() => found.push(value),
            name if SCHEMAS.contains(&name) => {
                add_descriptions(value, found);
                value.items().for_each(|item| add_descriptions(item, found));
            }
            name if MAPS_OF_SCHEMAS.contains(&name) => {
                value.members().for_each(|(_, schema)| add_descriptions(schema, found));
            }
            _ => {}
        }
    }
}

/// Writes a value without the members whose values begin at these places. INVARIANT: the depth of a document is bounded,
/// so the recursion is.
fn write_without(out: &mut Vec<u8>, value: Value<'_>, left_out: &BTreeSet<usize>) {
    if left_out.range(value.span()).next().is_none() {
        return out.extend_from_slice(value.raw().as_bytes());
    }
    match value.kind() {
        JsonKind::Array => {
            write_items(out, value.items(), |out, item| write_without(out, item, left_out));
        }
        JsonKind::Object => {
            let members = value.members();
            let members = members.filter(|(_, member)| !left_out.contains(&member.span().start));
            json::write_members(out, members, |out, (name, member)| {
                write_name(out, &name);
                write_without(out, member, left_out);
            });
        }
        JsonKind::Null
        | JsonKind::Boolean
        | JsonKind::Number
        | JsonKind::Plain
        | JsonKind::Escaped => out.extend_from_slice(value.raw().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds};

    use super::shorten;

    fn short(definition: &str, budget: usize) -> Option<String> {
        let document = Document::parse(definition.to_owned().into(), &JsonBounds::ANSWER).unwrap();
        let short = shorten(document.root(), budget)?;
        let text = String::from_utf8(short).unwrap();
        assert!(Document::parse(text.clone().into(), &JsonBounds::ANSWER).is_ok(), "{text}");
        Some(text)
    }

    const LONG: &str = r#"{"name":"x","description":"Reads one file. It is slow on shared disks. Paths are relative to the folder in which its operator has started the server.",
        "inputSchema":{"type":"object","description":"All.","properties":{"description":{"type":"string","description":"One two three four."},
        "b":{"anyOf":[{"description":"Five six."},{"items":{"description":"Seven eight."}}]}}},"_meta":{"a":1}}"#;

    #[test]
    fn a_definition_within_the_budget_stays_as_it_is() {
        assert_eq!(short(LONG, 100), None);
        assert_eq!(short(r#"{"name":"x"}"#, 1), None);
    }

    #[test]
    fn the_description_is_cut_behind_a_sentence() {
        let text = short(LONG, 27).unwrap();
        let kept = r#""description":"Reads one file. It is slow on shared disks. … describe_tool has the rest.""#;
        assert!(text.contains(kept), "{text}");
        assert!(text.ends_with(r#""_meta":{"a":1,"dev.portcullis/shortened":true}}"#), "{text}");
        for kept in ["All.", "One two three four.", "Five six.", "Seven eight."] {
            assert!(text.contains(kept), "{text}");
        }
    }

    #[test]
    fn descriptions_of_parameters_go_last_and_the_last_one_first() {
        let text = short(LONG, 15).unwrap();
        assert!(text.contains("\"Reads one file. … describe_tool has the rest.\""), "{text}");
        assert!(text.contains("One two three four.") && !text.contains("Seven eight."), "{text}");
        let least = short(LONG, 1).unwrap();
        let schema = r#""inputSchema":{"type":"object","properties":{"description":{"type":"string"},"b":{"anyOf":[{},{"items":{}}]}}}"#;
        assert!(least.contains("Reads one file. …") && least.contains(schema), "{least}");
    }

    #[test]
    fn a_cut_that_saves_less_than_the_mark_takes_is_not_made() {
        let text = |rest: &str| format!(r#"{{"name":"x","description":"Reads one file. {rest}"}}"#);
        assert_eq!(short(&text("It is slow."), 5), None);
        let long =
            "It is slow on shared disks, and on those of other machines in the same network.";
        assert!(short(&text(long), 5).is_some());
    }

    #[test]
    fn one_sentence_is_left_however_long_it_is() {
        let one = format!(r#"{{"name":"x","description":"{}"}}"#, "word ".repeat(500));
        assert_eq!(short(&one, 10), None);
        let only = r#"{"name":"x","inputSchema":{"properties":{"a":{"description":"One two three four five six seven eight nine ten eleven twelve thirteen."}}}}"#;
        let expected = r#"{"name":"x","description":"… describe_tool has the rest.","inputSchema":{"properties":{"a":{}}},"_meta":{"dev.portcullis/shortened":true}}"#;
        assert_eq!(short(only, 2).as_deref(), Some(expected));
    }
}
