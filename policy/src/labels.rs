//! Members of results that are labelled as sensitive, and whom they are shown to (control C14).
//!
//! A label stands in the output schema (`x-sensitive`, `x-data-class`) or in what we know about the
//! tool ourselves. Whoever may not see a label sees a mark in place of the value, wherever the value
//! stands in the result: most servers repeat their structured content as text.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::inspect::Finding;
use crate::json::{
    Bounds, Document, Kind, Value, write_ascii, write_items, write_members, write_name,
    write_string,
};
use crate::pointer::{escaped, unescaped};

/// Most labels of one tool.
const LABELS: usize = 1024;
/// How deep in a value they may be.
const DEPTH: usize = 8;
/// How deep a schema may be that is looked at.
const NESTED: usize = 64;
/// Most parts of a schema that are looked at.
const PARTS: usize = 20_000;
/// Shortest value that is looked for elsewhere in the result, in bytes.
const SHORTEST: usize = 4;
/// Most values that are, and their bytes together: with more the result is withheld.
const VALUES: usize = 4096;
const BYTES: usize = 256 * 1024;
/// Most places that are told of one result.
const KEPT: usize = 16;
/// Labels of what anybody may see who may call the tool.
const OPEN: [&str; 2] = ["public", "internal"];

/// The labels of one tool's results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(BTreeSet<(Vec<Box<str>>, Box<str>)>);

/// A result without what its caller does not see.
pub(crate) struct Without {
    /// The result.
    pub(crate) text: Vec<u8>,
    /// The values that were replaced, to be looked for elsewhere.
    pub(crate) values: BTreeSet<String>,
    pub(crate) findings: Vec<Finding>,
    /// There are more values than can be looked for: nothing of it may be shown.
    pub(crate) full: bool,
}

impl Labels {
    /// Those of an output schema. One of which too much would have to be read labels everything.
    #[must_use]
    pub fn of_schema(schema: Value<'_>) -> Self {
        let mut labels = Self::default();
        let text = schema.raw();
        if !text.contains("x-sensitive") && !text.contains("x-data-class") && !text.contains('\\') {
            return labels;
        }
        let mut walk = Walk { root: schema, left: PARTS, depth: 0, labels: &mut labels };
        if walk.part(schema, &mut Vec::new()).is_none() {
            labels.0.insert((Vec::new(), "sensitive".into()));
        }
        labels
    }

    /// Adds one, at a JSON Pointer in which `*` stands for every item or member.
    pub fn add(&mut self, at: &str, label: &str) {
        let parts = at.split('/').skip(1).map(|part| unescaped(part).into()).collect();
        self.0.insert((parts, label.into()));
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Both.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.0.extend(other.0.iter().cloned());
        self
    }

    /// Those that are not shown to whom `may` says of each label whether it is.
    #[must_use]
    pub(crate) fn hidden(&self, may: impl Fn(&str) -> bool) -> Vec<&[Box<str>]> {
        let hidden = |label: &str| !OPEN.contains(&label) && !may(label);
        self.0.iter().filter(|(_, label)| hidden(label)).map(|(at, _)| &**at).collect()
    }
}

struct Walk<'a, 'b> {
    root: Value<'a>,
    left: usize,
    depth: usize,
    labels: &'b mut Labels,
}

impl<'a> Walk<'a, '_> {
    /// `None` if there is too much of it.
    fn part(&mut self, schema: Value<'a>, at: &mut Vec<Box<str>>) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        (self.depth < NESTED).then_some(())?;
        if !schema.is_object() {
            return Some(());
        }
        if at.len() > DEPTH {
            // What is too deep to be read counts as labelled.
            return self.label(at, "sensitive");
        }
        self.depth += 1;
        let done = self.inside(schema, at);
        self.depth -= 1;
        done
    }

    fn label(&mut self, at: &[Box<str>], label: &str) -> Option<()> {
        (self.labels.0.len() < LABELS).then_some(())?;
        self.labels.0.insert((at.to_vec(), label.into()));
        Some(())
    }

    fn inside(&mut self, schema: Value<'a>, at: &mut Vec<Box<str>>) -> Option<()> {
        for keyword in ["x-sensitive", "x-data-class"] {
            let said = schema.get(keyword).filter(|said| said.as_bool() != Some(false));
            // What cannot be read as a label is one.
            let label = said.map(|said| said.as_str().unwrap_or(Cow::Borrowed("sensitive")));
            label.map_or(Some(()), |label| self.label(at, &label))?;
        }
        for (name, member) in schema.members() {
            match &*name {
                "properties" => {
                    for (name, property) in member.members() {
                        at.push(name.as_ref().into());
                        self.part(property, at)?;
                        at.pop();
                    }
                }
                "items"
                | "contains"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "additionalItems"
                | "unevaluatedItems"
                | "patternProperties"
                | "prefixItems" => {
                    at.push("*".into());
                    match &*name {
                        "patternProperties" => {
                            member.members().try_for_each(|(_, part)| self.part(part, at))?;
                        }
                        _ => self.part(member, at)?,
                    }
                    // A list of schemas, one for each place.
                    member.items().try_for_each(|part| self.part(part, at))?;
                    at.pop();
                }
                "allOf" | "anyOf" | "oneOf" => {
                    member.items().try_for_each(|item| self.part(item, at))?;
                }
                "if" | "then" | "else" => self.part(member, at)?,
                "dependentSchemas" | "dependencies" => {
                    member.members().try_for_each(|(_, part)| self.part(part, at))?;
                }
                // What leads nobody knows where labels everything.
                "$dynamicRef" | "$recursiveRef" => return None,
                "$ref" => {
                    let target = member.as_str().and_then(|target| self.target(&target));
                    self.part(target?, at)?;
                }
                _ => {}
            }
        }
        Some(())
    }

    fn target(&self, reference: &str) -> Option<Value<'a>> {
        if reference == "#" {
            return Some(self.root);
        }
        let parts = reference.strip_prefix("#/")?;
        parts.split('/').try_fold(self.root, |value, part| value.get(&unescaped(part)))
    }
}

/// The result without what stands at `hidden` in its structured content, and in texts that are JSON.
/// `mark` is what stands for a value. `None` if there is nothing of it.
pub(crate) fn without(
    result: Value<'_>,
    hidden: &[&[Box<str>]],
    mark: &dyn Fn(&str) -> String,
) -> Option<Without> {
    let mut cut = Cut {
        mark,
        values: BTreeSet::new(),
        findings: Vec::new(),
        changes: 0,
        bytes: 0,
        full: false,
    };
    let mut out = Vec::with_capacity(result.raw().len());
    cut.result(&mut out, result, hidden, "");
    let Cut { values, findings, changes, full, .. } = cut;
    (changes > 0).then_some(Without { text: out, values, findings, full })
}

struct Cut<'a> {
    mark: &'a dyn Fn(&str) -> String,
    values: BTreeSet<String>,
    findings: Vec<Finding>,
    changes: usize,
    bytes: usize,
    /// There is more than can be looked for.
    full: bool,
}

impl Cut<'_> {
    /// A value to be looked for, as it stands and as it is written in JSON.
    fn keep(&mut self, text: &str) {
        let mut forms = vec![text.to_owned()];
        for write in [write_string, write_ascii] {
            let mut quoted = Vec::new();
            write(&mut quoted, text);
            let quoted = String::from_utf8(quoted).unwrap_or_default();
            forms.push(quoted.trim_matches('"').to_owned());
        }
        for form in forms {
            if self.values.contains(&form) {
                continue;
            }
            self.bytes += form.len();
            self.full |= self.bytes > BYTES || self.values.len() >= VALUES;
            if !self.full {
                self.values.insert(form);
            }
        }
    }

    fn result(&mut self, out: &mut Vec<u8>, result: Value<'_>, hidden: &[&[Box<str>]], at: &str) {
        write_members(out, result.members(), |out, (name, member)| {
            write_name(out, &name);
            match &*name {
                "structuredContent" => {
                    let mut at = format!("{at}/structuredContent");
                    self.value(out, member, hidden, &mut at, false);
                }
                "content" if member.kind() == Kind::Array => {
                    write_items(out, member.items().enumerate(), |out, (n, block)| {
                        self.block(out, block, hidden, &format!("{at}/content/{n}"));
                    });
                }
                // What came of a task.
                "result" if member.is_object() && at.is_empty() => {
                    self.result(out, member, hidden, "/result");
                }
                _ => out.extend_from_slice(member.raw().as_bytes()),
            }
        });
    }

    /// A block of content, or the resource in one.
    fn block(&mut self, out: &mut Vec<u8>, block: Value<'_>, hidden: &[&[Box<str>]], at: &str) {
        if !block.is_object() {
            return out.extend_from_slice(block.raw().as_bytes());
        }
        write_members(out, block.members(), |out, (name, member)| {
            write_name(out, &name);
            let text = member.as_str().filter(|_| name == "text");
            match text.and_then(|text| self.json(&text, hidden, format!("{at}/text"))) {
                Some(inner) => write_string(out, &inner),
                None if name == "resource" && at.split('/').count() < 5 => {
                    self.block(out, member, hidden, &format!("{at}/resource"));
                }
                None => out.extend_from_slice(member.raw().as_bytes()),
            }
        });
    }

    /// A text that is JSON, without what is hidden in it, if there is any.
    fn json(&mut self, text: &str, hidden: &[&[Box<str>]], mut at: String) -> Option<String> {
        text.trim_start().starts_with(['{', '[']).then_some(())?;
        let document = Document::parse(text.to_owned().into(), &Bounds::ANSWER).ok()?;
        let (mut out, before) = (Vec::new(), self.changes);
        self.value(&mut out, document.root(), hidden, &mut at, false);
        if self.changes == before {
            return None;
        }
        String::from_utf8(out).ok()
    }

    /// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
    fn value(
        &mut self,
        out: &mut Vec<u8>,
        value: Value<'_>,
        hidden: &[&[Box<str>]],
        at: &mut String,
        inside: bool,
    ) {
        let here = inside || hidden.iter().any(|rest| rest.is_empty());
        let length = at.len();
        let below = |name: &str| -> Vec<&[Box<str>]> {
            let rest = hidden.iter().filter_map(|rest| rest.split_first());
            rest.filter(|(part, _)| ***part == *"*" || ***part == *name)
                .map(|(_, rest)| rest)
                .collect()
        };
        match value.kind() {
            Kind::Object => write_members(out, value.members(), |out, (name, member)| {
                write_name(out, &name);
                at.push('/');
                at.push_str(&escaped(&name));
                self.value(out, member, &below(&name), at, here);
                at.truncate(length);
            }),
            Kind::Array => write_items(out, value.items().enumerate(), |out, (n, item)| {
                let name = n.to_string();
                at.push('/');
                at.push_str(&name);
                self.value(out, item, &below(&name), at, here);
                at.truncate(length);
            }),
            Kind::Null => out.extend_from_slice(b"null"),
            Kind::Boolean | Kind::Number | Kind::Plain | Kind::Escaped if here => {
                let text = value.as_str().unwrap_or(Cow::Borrowed(value.raw()));
                if text.len() >= SHORTEST && value.as_bool().is_none() {
                    self.keep(&text);
                }
                self.changes += 1;
                if self.findings.len() < KEPT {
                    self.findings.push(Finding::labelled(at));
                }
                write_string(out, &(self.mark)(&text));
            }
            Kind::Boolean | Kind::Number | Kind::Plain | Kind::Escaped => {
                out.extend_from_slice(value.raw().as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Labels, without};
    use crate::json::{Bounds, Document};

    fn document(json: &serde_json::Value) -> Document {
        Document::parse(json.to_string().into(), &Bounds::MESSAGE).unwrap()
    }

    fn labels(schema: &serde_json::Value) -> Labels {
        Labels::of_schema(document(schema).root())
    }

    #[test]
    fn labels_are_read_wherever_a_schema_has_them() {
        let schema = serde_json::json!({
            "properties": {
                "name": {}, "ssn": { "x-sensitive": "pii" }, "key": { "x-sensitive": true },
                "rows": { "items": { "$ref": "#/$defs/row" } }, "open": { "x-data-class": "public" },
            },
            "allOf": [{ "properties": { "pay": { "x-data-class": "restricted" } } }],
            "$defs": { "row": { "properties": { "iban": { "x-sensitive": "bank" }, "next": { "$ref": "#/$defs/row" } } } },
        });
        let labels = labels(&schema);
        let hidden = labels.hidden(|label| label == "bank");
        let hidden: Vec<String> = hidden.iter().map(|at| at.join("/")).collect();
        // What is too deep to be read counts as labelled.
        let (deep, hidden): (Vec<_>, Vec<_>) =
            hidden.into_iter().partition(|at| at.split('/').count() > super::DEPTH);
        assert_eq!((hidden, deep.len()), (["key", "pay", "ssn"].map(str::to_owned).to_vec(), 2));
        let hidden = labels.hidden(|_| false);
        assert!(hidden.iter().any(|at| at.join("/") == "rows/*/next/iban"));
        // What cannot be read labels everything.
        let wide: serde_json::Map<_, _> = (0..2000)
            .map(|n| (n.to_string(), serde_json::json!({ "x-sensitive": true })))
            .collect();
        let labels = Labels::of_schema(document(&serde_json::json!({ "properties": wide })).root());
        assert!(labels.hidden(|_| false).iter().any(|at| at.is_empty()));
    }

    #[test]
    fn values_are_replaced_where_they_stand_and_in_json() {
        let mut labels = Labels::default();
        labels.add("/rows/*/ssn", "pii");
        labels.add("/pin", "sensitive");
        let row = serde_json::json!({ "rows": [{ "ssn": "123-45", "name": "Ana" }], "pin": 7, "ok": null });
        let result = serde_json::json!({
            "content": [{ "type": "text", "text": row.to_string() }, { "type": "text", "text": "of 123-45" }],
            "structuredContent": row, "isError": false,
        });
        let result = document(&result);
        let cut = without(result.root(), &labels.hidden(|_| false), &|_| "#".to_owned()).unwrap();
        let shown = String::from_utf8(cut.text).unwrap();
        assert_eq!(
            shown,
            r##"{"content":[{"text":"{\"ok\":null,\"pin\":\"#\",\"rows\":[{\"name\":\"Ana\",\"ssn\":\"#\"}]}","type":"text"},{"text":"of 123-45","type":"text"}],"isError":false,"structuredContent":{"ok":null,"pin":"#","rows":[{"name":"Ana","ssn":"#"}]}}"##
        );
        assert_eq!(cut.values.into_iter().collect::<Vec<_>>(), ["123-45"]);
        assert_eq!(cut.findings.len(), 4);
        assert!(without(result.root(), &labels.hidden(|_| true), &|_| String::new()).is_none());
    }
}
