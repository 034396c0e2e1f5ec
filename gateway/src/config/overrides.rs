//! Titles and descriptions that the operator has written and that callers see in place of the server's own.
//!
//! Approval, comparison and inspection always use the server's own definition: the overrides are applied only when
//! a list is written for a caller who may see the tool.

use std::collections::BTreeMap;
use std::ops::Range;

use policy::json::pointer::unescaped;
use policy::json::{Value, write_string};

/// The title and description for one tool or argument. `None` leaves the server's own text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextOverride {
    /// The title, or `None`.
    pub title: Option<Box<str>>,
    /// The description, or `None`.
    pub description: Option<Box<str>>,
}

impl TextOverride {
    /// The members of the definition that are replaced, with their new texts.
    fn members(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [("title", &self.title), ("description", &self.description)];
        all.into_iter().filter_map(|(key, text)| Some((key, text.as_deref()?)))
    }
}

/// The overrides for one tool and its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOverride {
    /// The texts for the tool itself.
    pub tool: TextOverride,
    /// The texts for its arguments, by JSON Pointer into the arguments.
    pub arguments: BTreeMap<Box<str>, TextOverride>,
}

impl ToolOverride {
    /// Adds the changes of `definition` to `edits`. Returns the pointers of arguments that the definition does not
    /// have.
    pub fn edit<'a>(&'a self, definition: Value<'_>, edits: &mut DefinitionEdits) -> Vec<&'a str> {
        edits.members(definition, &self.tool);
        // Clients of 2025-03-26 show the title in the annotations.
        let annotations = definition.get("annotations");
        if let (Some(title), Some(old)) =
            (&self.tool.title, annotations.and_then(|one| one.get("title")))
        {
            edits.text(old, title);
        }
        let mut missing = Vec::new();
        for (pointer, words) in &self.arguments {
            match definition.get("inputSchema").and_then(|schema| argument(schema, pointer)) {
                Some(schema) => edits.members(schema, words),
                None => missing.push(&**pointer),
            }
        }
        missing
    }
}

/// The schema of the argument at `pointer`, found through `properties` and the `items` of lists. `None` if `schema`
/// does not describe it.
fn argument<'a>(schema: Value<'a>, pointer: &str) -> Option<Value<'a>> {
    let mut at = schema;
    for part in pointer.split('/').skip(1) {
        let name = unescaped(part);
        at = loop {
            if let Some(found) = at.get("properties").and_then(|all| all.get(&name)) {
                break found;
            }
            at = at.get("items")?;
        };
    }
    at.is_object().then_some(at)
}

/// The overrides for the tools of one server, by the server's own tool names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    tools: BTreeMap<Box<str>, ToolOverride>,
    /// What the detectors find in the texts, for the operator.
    warnings: Vec<Box<str>>,
}

impl Overrides {
    /// Overrides for `tools`, in whose texts the detectors found `warnings`.
    #[must_use]
    pub const fn new(tools: BTreeMap<Box<str>, ToolOverride>, warnings: Vec<Box<str>>) -> Self {
        Self { tools, warnings }
    }

    /// The overrides for `tool`, if there are any.
    #[must_use]
    pub fn of(&self, tool: &str) -> Option<&ToolOverride> {
        self.tools.get(tool)
    }

    /// What the detectors find in the texts, for the operator.
    #[must_use]
    pub fn warnings(&self) -> &[Box<str>] {
        &self.warnings
    }
}

/// Changes to the text of a definition. Every byte outside of them stays as the server sent it.
#[derive(Debug, Default)]
pub struct DefinitionEdits(Vec<(Range<usize>, Vec<u8>)>);

impl DefinitionEdits {
    /// Replaces the value `old` by a string.
    pub fn text(&mut self, old: Value<'_>, text: &str) {
        let mut new = Vec::new();
        write_string(&mut new, text);
        self.0.push((old.span(), new));
    }

    /// Sets these members of the object `within`, replacing those that exist.
    fn members(&mut self, within: Value<'_>, words: &TextOverride) {
        let mut added = Vec::new();
        for (key, text) in words.members() {
            if let Some(old) = within.get(key) {
                self.text(old, text);
                continue;
            }
            if !added.is_empty() {
                added.push(b',');
            }
            write_string(&mut added, key);
            added.push(b':');
            write_string(&mut added, text);
        }
        if added.is_empty() {
            return;
        }
        if within.members().next().is_some() {
            added.push(b',');
        }
        let start = within.span().start + 1;
        self.0.push((start..start, added));
    }

    /// Writes `definition` with the changes. INVARIANT: every change lies within `definition`, and no two overlap.
    pub fn write(mut self, definition: Value<'_>, out: &mut Vec<u8>) {
        let (raw, start) = (definition.raw().as_bytes(), definition.span().start);
        self.0.sort_by_key(|(range, _)| range.start);
        let mut done = 0;
        for (range, new) in self.0 {
            let (from, to) = (range.start - start, range.end - start);
            out.extend_from_slice(raw.get(done..from).unwrap_or_default());
            out.extend_from_slice(&new);
            done = to;
        }
        out.extend_from_slice(raw.get(done..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::{DefinitionEdits, TextOverride, ToolOverride};
    use policy::json::{Document, JsonBounds};

    fn edited(definition: &'static str, words: &ToolOverride) -> (String, Vec<String>) {
        let document = Document::parse(definition.into(), &JsonBounds::MESSAGE).unwrap();
        let (mut edits, mut out) = (DefinitionEdits::default(), Vec::new());
        let missing = words.edit(document.root(), &mut edits);
        let missing = missing.into_iter().map(str::to_owned).collect();
        edits.write(document.root(), &mut out);
        (String::from_utf8(out).unwrap(), missing)
    }

    fn words(title: Option<&str>, description: &str) -> TextOverride {
        TextOverride { title: title.map(Into::into), description: Some(description.into()) }
    }

    #[test]
    fn words_are_replaced_or_added_and_every_other_byte_stays() {
        let arguments = [
            ("/path", words(None, "where")),
            ("/edits/old", words(Some("Old"), "what")),
            ("/none", words(None, "nothing")),
        ];
        let all = ToolOverride {
            tool: words(Some("T"), "a \"b\""),
            arguments: arguments.map(|(at, words)| (at.into(), words)).into(),
        };
        let (text, missing) = edited(
            r#"{ "name" : "x", "annotations":{"title":"A","readOnlyHint":true}, "description":"no",
                "inputSchema":{"properties":{"path":{"type":"string"},"none":true,
                "edits":{"items":{"properties":{"old":{}}}}}} }"#,
            &all,
        );
        let expected = r#"{"title":"T", "name" : "x", "annotations":{"title":"T","readOnlyHint":true}, "description":"a \"b\"",
                "inputSchema":{"properties":{"path":{"description":"where","type":"string"},"none":true,
                "edits":{"items":{"properties":{"old":{"title":"Old","description":"what"}}}}}} }"#;
        assert_eq!(text, expected);
        assert_eq!(missing, ["/none"]);
    }

    #[test]
    fn what_has_no_words_stays_as_it_came() {
        let definition = r#"{"name":"x","description":"d"}"#;
        assert_eq!(
            edited(definition, &ToolOverride::default()),
            (definition.to_owned(), Vec::new())
        );
    }
}
