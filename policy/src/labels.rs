//! Members of results that are labelled as sensitive, and whom they are shown to (control C14).
//!
//! A label stands in the output schema (`x-sensitive`, `x-data-class`) or in what we know about the
//! tool ourselves. Whoever may not see a label sees a mark in place of the value, wherever the value
//! stands in the result: most servers repeat their structured content as text. A text that may hold a
//! labelled member and cannot be read is withheld.

pub(crate) mod form;
pub(crate) mod encoded;
mod cut;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) use self::cut::without;
use crate::inspect::Finding;
use crate::json::Value;
use crate::pointer::unescaped;

/// Most labels of one tool.
const LABELS: usize = 1024;
/// How deep in a value they may be.
const DEPTH: usize = 8;
/// How deep a schema may be that is looked at.
const NESTED: usize = 64;
/// Most parts of a schema that are looked at.
const PARTS: usize = 20_000;
/// Labels of what anybody may see who may call the tool.
const OPEN: [&str; 2] = ["public", "internal"];

/// The labels of one tool's results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    all: BTreeSet<(Vec<Box<str>>, Box<str>)>,
    /// Names of members that the schema declares: they are no data of anybody.
    declared: Arc<BTreeSet<Box<str>>>,
}

/// Which members of results are not shown to somebody.
#[derive(Clone, Debug, Default)]
pub struct Concealed {
    /// Their places in the structured content; `*` stands for every item or member.
    paths: BTreeSet<Vec<Box<str>>>,
    /// Names that are shown within them.
    declared: Vec<Arc<BTreeSet<Box<str>>>>,
}

/// Which part of what a server says is looked at: each has members that belong to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A result.
    Result,
    /// An error: its code, its message and its data.
    Error,
    /// The parameters of a notification or a question.
    Params,
}

impl Labels {
    /// Those of an output schema. One of which too much would have to be read labels everything.
    #[must_use]
    pub fn of_schema(schema: Value<'_>) -> Self {
        let text = schema.raw();
        let labelled =
            text.contains("x-sensitive") || text.contains("x-data-class") || text.contains('\\');
        let (mut all, mut declared) = (BTreeSet::new(), BTreeSet::new());
        let mut walk = Walk {
            root: schema,
            left: PARTS,
            depth: 0,
            content: Vec::new(),
            labels: &mut all,
            declared: &mut declared,
        };
        if walk.part(schema, &mut Vec::new()).is_none() {
            all.insert((Vec::new(), "sensitive".into()));
        }
        // Without a label the schema is read for the names that it declares alone.
        if !labelled {
            all.clear();
        }
        Self { all, declared: Arc::new(declared) }
    }

    /// Adds one, at a JSON Pointer in which `*` stands for every item or member.
    pub fn add(&mut self, at: &str, label: &str) {
        let parts = at.split('/').skip(1).map(|part| unescaped(part).into()).collect();
        self.all.insert((parts, label.into()));
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl Concealed {
    /// What of all these is not shown to whom `may` says of each label whether it is.
    #[must_use]
    pub(crate) fn of<'a>(
        labels: impl IntoIterator<Item = &'a Labels>,
        may: impl Fn(&str) -> bool,
    ) -> Self {
        let mut hidden = Self::default();
        for labels in labels {
            let closed = |label: &str| !OPEN.contains(&label) && !may(label);
            let paths = labels.all.iter().filter(|(_, label)| closed(label));
            hidden.paths.extend(paths.map(|(at, _)| at.clone()));
            hidden.declared.push(Arc::clone(&labels.declared));
        }
        hidden
    }

    /// Whether everything is shown.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Whether a name is one that a schema declares.
    fn declares(&self, name: &str) -> bool {
        self.declared.iter().any(|names| names.contains(name))
    }
}

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

struct Walk<'a, 'b> {
    root: Value<'a>,
    left: usize,
    depth: usize,
    /// The texts whose content is described here, each within the one before it.
    content: Vec<Content>,
    labels: &'b mut BTreeSet<(Vec<Box<str>>, Box<str>)>,
    declared: &'b mut BTreeSet<Box<str>>,
}

/// A text whose content a schema describes.
struct Content {
    /// Parts of the place at which the text stands.
    text: usize,
    /// What it holds is read, to find the members that are labelled in it.
    is_read: bool,
}

impl Content {
    /// Whether what a schema says of a text at `at` is of JSON, as it stands or in base64: other media and encodings
    /// (RFC 2045, RFC 4648) are not read.
    fn of(schema: Value<'_>, at: &[Box<str>]) -> Self {
        let said = |keyword: &str, known: fn(&str) -> bool| {
            schema.get(keyword).is_none_or(|said| said.as_str().is_some_and(|text| known(&text)))
        };
        let is_json = said("contentMediaType", |media| {
            let essence = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            matches!(&*essence, "application/json" | "text/json") || essence.ends_with("+json")
        });
        let is_plain = said("contentEncoding", |encoding| {
            let encoding = encoding.to_ascii_lowercase();
            matches!(&*encoding, "7bit" | "8bit" | "binary" | "base64" | "base64url")
        });
        Self { text: at.len(), is_read: is_json && is_plain }
    }
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
        // Members of a text are found by their names: without a name the whole text is labelled.
        let mut at = at;
        for Content { text, is_read } in self.content.iter().rev() {
            let (outside, within) = at.split_at_checked(*text)?;
            if !is_read || within.iter().all(|part| **part == *"*") {
                at = outside;
            }
        }
        (self.labels.len() < LABELS).then_some(())?;
        self.labels.insert((at.to_vec(), label.into()));
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
                        self.declared.insert(name.as_ref().into());
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
                // What is said of the names of members is said of the object.
                "if" | "then" | "else" | "not" | "propertyNames" => self.part(member, at)?,
                "contentSchema" => {
                    self.content.push(Content::of(schema, at));
                    self.part(member, at)?;
                    self.content.pop();
                }
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

#[cfg(test)]
mod tests;
