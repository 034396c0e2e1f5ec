//! Labels members of results as sensitive, and determines which of them a caller may see (control C14).
//!
//! A label stands in the output schema (`x-sensitive`, `x-data-class`) or in the operator's registry entry of the
//! tool. A caller that may not see a label gets a mark in place of the value, everywhere in the result, because
//! most servers repeat their structured content as text. A text that may hold a labelled member and cannot be
//! parsed is withheld.

pub(crate) mod form;
pub(crate) mod encoded;
mod cut;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use json::Value;
use json::pointer::unescaped;

pub use self::cut::without;
use crate::inspect::Finding;

/// Most labels of one tool.
const LABELS: usize = 1024;
/// Greatest depth of a labelled member in a result.
const DEPTH: usize = 8;
/// Greatest depth of a schema that is read.
const NESTED: usize = 64;
/// Most subschemas that are read.
const PARTS: usize = 20_000;
/// Labels that conceal nothing from a caller that may call the tool.
const OPEN: [&str; 2] = ["public", "internal"];

/// The labels of one tool's results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    all: BTreeSet<(Vec<Box<str>>, Box<str>)>,
    /// Names of members that the schema declares: they carry no data.
    declared: Arc<BTreeSet<Box<str>>>,
}

/// The members of results that are concealed from one caller.
#[derive(Clone, Debug, Default)]
pub struct ConcealedMembers {
    /// Their places in the structured content; `*` stands for every item or member.
    paths: BTreeSet<Vec<Box<str>>>,
    /// Names of members that stay visible within them.
    declared: Vec<Arc<BTreeSet<Box<str>>>>,
}

/// The part of a server's message that is processed: each has its own protocol members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelledPart {
    /// A JSON-RPC result.
    Result,
    /// A JSON-RPC error: its code, message and data.
    Error,
    /// The parameters of a notification, or of an elicitation or sampling request.
    Params,
}

impl Labels {
    /// The labels of an output schema. A schema that is too large to be read labels everything.
    #[must_use]
    pub fn of_schema(schema: Value<'_>) -> Self {
        let text = schema.raw();
        let labelled =
            text.contains("x-sensitive") || text.contains("x-data-class") || text.contains('\\');
        let (mut all, mut declared) = (BTreeSet::new(), BTreeSet::new());
        let mut walk = LabelWalk {
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
        // A schema without labels is read only for the names that it declares.
        if !labelled {
            all.clear();
        }
        Self { all, declared: Arc::new(declared) }
    }

    /// Adds a label at a JSON Pointer in which `*` stands for every item or member.
    pub fn add(&mut self, at: &str, label: &str) {
        let parts = at.split('/').skip(1).map(|part| unescaped(part).into()).collect();
        self.all.insert((parts, label.into()));
    }

    /// Whether there are no labels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl ConcealedMembers {
    /// The members that are concealed, where `may` says of each label whether the caller may see it.
    #[must_use]
    pub fn of<'a>(
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

    /// Whether nothing is concealed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Whether a schema declares a member of this name.
    fn declares(&self, name: &str) -> bool {
        self.declared.iter().any(|names| names.contains(name))
    }
}

/// A message without the members that its caller may not see.
pub struct RedactedMessage {
    /// The message as JSON.
    pub text: Vec<u8>,
    /// The values that were replaced, which the caller of this module looks for elsewhere.
    pub values: BTreeSet<String>,
    /// The first findings about what was replaced.
    pub findings: Vec<Finding>,
    /// There were more values than can be looked for: nothing of the message may be shown.
    pub full: bool,
}

/// Without what it holds: neither the message nor the replaced values belong in a log.
impl fmt::Debug for RedactedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedactedMessage").field("full", &self.full).finish_non_exhaustive()
    }
}

struct LabelWalk<'a, 'b> {
    root: Value<'a>,
    left: usize,
    depth: usize,
    /// The enclosing texts whose content is described here, outermost first.
    content: Vec<StringContent>,
    labels: &'b mut BTreeSet<(Vec<Box<str>>, Box<str>)>,
    declared: &'b mut BTreeSet<Box<str>>,
}

/// A string whose content a schema describes.
struct StringContent {
    /// Number of parts in the place at which the string stands.
    text: usize,
    /// Whether its content can be parsed to find the labelled members.
    is_read: bool,
}

impl StringContent {
    /// Whether a schema describes the string at `at` as JSON, plain or in base64: other media types and encodings
    /// (RFC 2045, RFC 4648) are not parsed.
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

impl<'a> LabelWalk<'a, '_> {
    /// Reads a subschema. `None` if a limit is exceeded.
    fn part(&mut self, schema: Value<'a>, at: &mut Vec<Box<str>>) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        (self.depth < NESTED).then_some(())?;
        if !schema.is_object() {
            return Some(());
        }
        if at.len() > DEPTH {
            // A member that is too deep to be read counts as labelled.
            return self.label(at, "sensitive");
        }
        self.depth += 1;
        let done = self.inside(schema, at);
        self.depth -= 1;
        done
    }

    fn label(&mut self, at: &[Box<str>], label: &str) -> Option<()> {
        // Members within a string are found by name: without a name the whole string is labelled.
        let mut at = at;
        for StringContent { text, is_read } in self.content.iter().rev() {
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
            // A label that is not a string counts as `sensitive`.
            let label = said.map(|said| said.as_str().unwrap_or(Cow::Borrowed("sensitive")));
            label.map_or(Some(()), |label| self.label(at, &label))?;
        }
        for (name, member) in schema.members() {
            match &*name {
                "properties" => {
                    for (name, property) in member.members() {
                        self.declared.insert(name.as_ref().into());
                        if *name == *"*" {
                            // No place tells this member from each member: its label is that of the object.
                            self.part(property, at)?;
                            continue;
                        }
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
                    // `items` and `prefixItems` may be a list of schemas, one for each position.
                    member.items().try_for_each(|part| self.part(part, at))?;
                    at.pop();
                }
                "allOf" | "anyOf" | "oneOf" => {
                    member.items().try_for_each(|item| self.part(item, at))?;
                }
                // A schema of member names labels the object.
                "if" | "then" | "else" | "not" | "propertyNames" => self.part(member, at)?,
                "contentSchema" => {
                    self.content.push(StringContent::of(schema, at));
                    self.part(member, at)?;
                    self.content.pop();
                }
                "dependentSchemas" | "dependencies" => {
                    member.members().try_for_each(|(_, part)| self.part(part, at))?;
                }
                // The target of a dynamic reference is unknown here, so it labels everything.
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
