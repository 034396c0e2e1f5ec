//! What a server says without the members that its caller does not see.
//!
//! In the structured content a label stands for what its pointer leads to. Elsewhere (in texts that
//! are JSON and do not say the same, `_meta`, data of errors, questions) nobody says how the members
//! are arranged, so a label stands for every member of its last name.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::encoded::{self, Reads};
use super::form::{self, Form};
use super::{Concealed, Part, Without};
use crate::coding;
use crate::inspect::Finding;
use crate::json::{
    Bounds, Document, Kind, Value, write_ascii, write_items, write_members, write_name,
    write_plain, write_string,
};
use crate::pointer::escaped;
use crate::work::Budget;

/// Writes the value of a member: to where, its name, the value, and the place it stands at.
type WriteMember<'f, Cut> = &'f mut dyn FnMut(&mut Cut, &mut Vec<u8>, &str, Value<'_>, &mut String);
/// Writes an item in the same way.
type WriteItem<'f, Cut> = &'f mut dyn FnMut(&mut Cut, &mut Vec<u8>, Value<'_>, &mut String);

/// Shortest value that is looked for elsewhere in the result, in bytes.
const SHORTEST: usize = 4;
/// Most values that are, and their bytes together: with more the result is withheld.
const VALUES: usize = 4096;
const BYTES: usize = 256 * 1024;
/// Most places that are told of one result.
const KEPT: usize = 16;
/// How often a text may be JSON or base64 within a string of either: what goes deeper is withheld.
const NESTED: usize = 4;
/// How deep blocks of content may be in each other.
const BLOCKS: usize = 4;

/// Members of parameters that mean something to the protocol and carry no data of a tool.
const PARAMS: [&str; 18] = [
    "mode",
    "role",
    "elicitationId",
    "level",
    "progress",
    "total",
    "progressToken",
    "requestId",
    "taskId",
    "status",
    "includeContext",
    "temperature",
    "maxTokens",
    "stopSequences",
    "modelPreferences",
    "tools",
    "toolChoice",
    "createdAt",
];
/// The same of results, and of what says how a task goes.
const RESULT: [&str; 12] = [
    "resultType",
    "isError",
    "taskId",
    "status",
    "nextCursor",
    "requestState",
    "createdAt",
    "lastUpdatedAt",
    "ttl",
    "ttlMs",
    "pollInterval",
    "pollIntervalMs",
];
/// The same of blocks of content: what it says is read, and stays as it is where no label can be in it.
const BLOCK: [&str; 4] = ["type", "mimeType", "size", "role"];
/// Longest word of the protocol or type of a medium, in bytes (RFC 6838 section 4.2).
const LONGEST_WORD: usize = 255;
/// What a word of the protocol has not, and every form of JSON has.
const OPENS: &[u8] = b"{}[]\"'<>&\\";
/// What a schema says of a member without giving a value of it.
const SHAPE: [&str; 13] = [
    "$schema",
    "type",
    "format",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "uniqueItems",
    "multipleOf",
    "pattern",
    "required",
];

/// What is said without what is concealed; `mark` is what stands for a value. `None` if there is
/// nothing of it. Where the budget is exhausted, nothing of what was said may be shown.
pub(crate) fn without(
    said: Value<'_>,
    part: Part,
    concealed: &Concealed,
    mark: &dyn Fn(&str) -> String,
    budget: &Budget,
) -> Option<Without> {
    let trees = Trees::of(concealed);
    let mut cut = Cut {
        trees: &trees,
        concealed,
        mark,
        budget,
        twin: None,
        nested: 0,
        values: BTreeSet::new(),
        findings: Vec::new(),
        changes: 0,
        bytes: 0,
        full: false,
    };
    let mut out = Vec::with_capacity(said.raw().len());
    let at = &mut String::new();
    match part {
        Part::Result => cut.result(&mut out, said, at),
        Part::Error => cut.error(&mut out, said, at),
        Part::Params => cut.params(&mut out, said, at),
    }
    let Cut { values, findings, changes, full, .. } = cut;
    (changes > 0).then_some(Without { text: out, values, findings, full })
}

/// Paths of members, by their parts.
#[derive(Debug, Default)]
struct Tree<'a> {
    /// A path ends here.
    ends: bool,
    /// What is below every item or member.
    every: Option<Box<Tree<'a>>>,
    named: BTreeMap<&'a str, Tree<'a>>,
}

impl<'a> Tree<'a> {
    fn add(&mut self, path: &'a [Box<str>]) {
        let mut at = self;
        for part in path {
            at = match &**part {
                "*" => &mut **at.every.get_or_insert_with(Box::default),
                name => at.named.entry(name).or_default(),
            };
        }
        at.ends = true;
    }

    fn below<'t>(&'t self, name: &str) -> impl Iterator<Item = &'t Tree<'a>> {
        self.named.get(name).into_iter().chain(self.every.as_deref())
    }
}

/// The paths that are concealed, as they are looked for.
#[derive(Debug, Default)]
struct Trees<'a> {
    /// From the root of the structured content.
    rooted: Tree<'a>,
    /// By the last name of each, and the items and members behind it.
    loose: Tree<'a>,
    /// The last names.
    names: BTreeSet<&'a str>,
    /// Everything is concealed, texts too.
    whole: bool,
}

impl<'a> Trees<'a> {
    fn of(concealed: &'a Concealed) -> Self {
        let mut trees = Self::default();
        for path in &concealed.paths {
            trees.rooted.add(path);
            trees.whole |= path.is_empty();
            let last = path.iter().rposition(|part| **part != *"*");
            let tail = last.and_then(|last| path.get(last..)).unwrap_or_default();
            trees.names.extend(tail.first().map(|name| &**name));
            // A path of items alone conceals every item.
            trees.loose.add(tail);
        }
        trees
    }
}

/// Where in a value: which paths go on from here.
#[derive(Clone, Copy)]
struct Spot<'s, 't> {
    here: &'s [&'t Tree<'t>],
    /// It is within what is concealed.
    inside: bool,
    /// Paths may begin anywhere.
    loose: bool,
}

/// Where no path goes on and none begins; texts are read all the same.
const NEUTRAL: Spot<'static, 'static> = Spot { here: &[], inside: false, loose: false };

struct Cut<'t> {
    trees: &'t Trees<'t>,
    concealed: &'t Concealed,
    mark: &'t dyn Fn(&str) -> String,
    /// What reading encodings may cost.
    budget: &'t Budget,
    /// The structured content, in the form in which texts are compared with it.
    twin: Option<Vec<u8>>,
    /// In how many texts within texts.
    nested: usize,
    values: BTreeSet<String>,
    findings: Vec<Finding>,
    changes: usize,
    bytes: usize,
    /// There is more than can be looked for.
    full: bool,
}

impl<'t> Cut<'t> {
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

    fn found(&mut self, finding: impl FnOnce() -> Finding) {
        self.changes += 1;
        if self.findings.len() < KEPT {
            self.findings.push(finding());
        }
    }

    /// What stands for a value that is concealed.
    fn conceal(&mut self, value: &str, looked_for: bool, at: &str) -> String {
        if looked_for && value.len() >= SHORTEST {
            self.keep(value);
        }
        self.found(|| Finding::labelled(at));
        (self.mark)(value)
    }

    /// What stands for a text of which nobody can say what it holds.
    fn withheld(&mut self, text: &str, at: &str) -> String {
        self.found(|| Finding::unread(at));
        (self.mark)(text)
    }

    /// Writes an object, of which `each` writes the values of members.
    fn members(
        &mut self,
        out: &mut Vec<u8>,
        object: Value<'_>,
        at: &mut String,
        each: WriteMember<'_, Self>,
    ) {
        if !object.is_object() {
            return self.loose(out, object, at);
        }
        let length = at.len();
        write_members(out, object.members(), |out, (name, member)| {
            write_name(out, &name);
            enter(at, &name);
            each(self, out, &name, member, at);
            at.truncate(length);
        });
    }

    /// Writes a list, of which `each` writes the items.
    fn items(
        &mut self,
        out: &mut Vec<u8>,
        list: Value<'_>,
        at: &mut String,
        each: WriteItem<'_, Self>,
    ) {
        let length = at.len();
        write_items(out, list.items().enumerate(), |out, (n, item)| {
            enter(at, &n.to_string());
            each(self, out, item, at);
            at.truncate(length);
        });
    }

    fn result(&mut self, out: &mut Vec<u8>, result: Value<'_>, at: &mut String) {
        let twin = result.get("structuredContent").map(plain);
        let outer = std::mem::replace(&mut self.twin, twin);
        self.members(out, result, at, &mut |cut, out, name, member, at| match name {
            "structuredContent" => {
                let here = [&cut.trees.rooted];
                cut.value(out, member, Spot { here: &here, inside: false, loose: false }, at);
            }
            "content" if member.kind() == Kind::Array => {
                cut.items(out, member, at, &mut |cut, out, block, at| {
                    cut.block(out, block, at, BLOCKS);
                });
            }
            // What came of a task, and how it goes.
            "result" | "task" if member.is_object() && at.matches('/').count() == 1 => {
                cut.result(out, member, at);
            }
            "error" if member.is_object() => cut.error(out, member, at),
            "inputRequests" => cut.questions(out, member, at),
            "statusMessage" => cut.string(out, member, at),
            name if RESULT.contains(&name) && is_scalar(member) => raw(out, member),
            name => cut.member(out, name, member, at),
        });
        self.twin = outer;
    }

    fn questions(&mut self, out: &mut Vec<u8>, questions: Value<'_>, at: &mut String) {
        self.members(out, questions, at, &mut |cut, out, _key, question, at| {
            cut.members(out, question, at, &mut |cut, out, name, member, at| match name {
                "method" if is_scalar(member) => raw(out, member),
                "params" => cut.params(out, member, at),
                name => cut.member(out, name, member, at),
            });
        });
    }

    fn error(&mut self, out: &mut Vec<u8>, error: Value<'_>, at: &mut String) {
        self.members(out, error, at, &mut |cut, out, name, member, at| match name {
            "code" if member.kind() == Kind::Number => raw(out, member),
            "message" => cut.string(out, member, at),
            "data" if member.is_object() => {
                cut.members(out, member, at, &mut |cut, out, name, member, at| match name {
                    "elicitations" if member.kind() == Kind::Array => {
                        cut.items(out, member, at, &mut |cut, out, question, at| {
                            cut.params(out, question, at);
                        });
                    }
                    name => cut.member(out, name, member, at),
                });
            }
            name => cut.member(out, name, member, at),
        });
    }

    fn params(&mut self, out: &mut Vec<u8>, params: Value<'_>, at: &mut String) {
        self.members(out, params, at, &mut |cut, out, name, member, at| match name {
            "message" | "systemPrompt" | "statusMessage" | "reason" => cut.string(out, member, at),
            "requestedSchema" if member.is_object() => cut.schema(out, member, at),
            "messages" if member.kind() == Kind::Array => {
                cut.items(out, member, at, &mut |cut, out, message, at| {
                    cut.block(out, message, at, BLOCKS);
                });
            }
            "logger" => cut.word(out, member, at),
            "uri" | "url" if !cut.trees.whole => cut.address(out, member, at),
            "uri" | "url" if is_scalar(member) => raw(out, member),
            // The protocol says what these mean, not the tool.
            name if PARAMS.contains(&name) && is_scalar(member) => raw(out, member),
            name if PARAMS.contains(&name) => cut.value(out, member, NEUTRAL, at),
            name => cut.member(out, name, member, at),
        });
    }

    /// The form that a user is shown: a member of it may be filled in with what is concealed.
    fn schema(&mut self, out: &mut Vec<u8>, schema: Value<'_>, at: &mut String) {
        self.members(out, schema, at, &mut |cut, out, name, member, at| {
            if SHAPE.contains(&name) {
                return raw(out, member);
            }
            if name != "properties" || !member.is_object() {
                return cut.value(out, member, NEUTRAL, at);
            }
            cut.members(out, member, at, &mut |cut, out, name, property, at| {
                let labelled = cut.trees.whole || cut.trees.names.contains(&*form::shown(name));
                if !labelled || !property.is_object() {
                    return cut.value(out, property, NEUTRAL, at);
                }
                cut.members(out, property, at, &mut |cut, out, name, member, at| {
                    if SHAPE.contains(&name) {
                        return raw(out, member);
                    }
                    cut.value(out, member, Spot { inside: true, ..NEUTRAL }, at);
                });
            });
        });
    }

    /// A block of content, a resource in one, or a message with blocks.
    fn block(&mut self, out: &mut Vec<u8>, block: Value<'_>, at: &mut String, deep: usize) {
        let Some(deep) = deep.checked_sub(1) else { return self.loose(out, block, at) };
        if !block.is_object() {
            return self.string(out, block, at);
        }
        self.members(out, block, at, &mut |cut, out, name, member, at| match name {
            "text" | "title" | "description" => cut.string(out, member, at),
            "blob" | "data" => cut.carried(out, member, at),
            "resource" if member.is_object() => cut.block(out, member, at, deep),
            "content" if member.kind() == Kind::Array => {
                cut.items(out, member, at, &mut |cut, out, block, at| {
                    cut.block(out, block, at, deep);
                });
            }
            "content" => cut.block(out, member, at, deep),
            "annotations" if member.is_object() => {
                cut.members(out, member, at, &mut |cut, out, name, member, at| match name {
                    "audience" if member.kind() == Kind::Array => {
                        cut.items(out, member, at, &mut |cut, out, role, at| {
                            cut.word(out, role, at);
                        });
                    }
                    "audience" | "priority" | "lastModified" => cut.word(out, member, at),
                    name => cut.member(out, name, member, at),
                });
            }
            "uri" => cut.address(out, member, at),
            "name" => cut.string(out, member, at),
            name if BLOCK.contains(&name) => cut.word(out, member, at),
            name => cut.member(out, name, member, at),
        });
    }

    /// A word of the protocol, or what stands in its place if it is none and may hold what is concealed.
    fn word(&mut self, out: &mut Vec<u8>, member: Value<'_>, at: &mut String) {
        let text = member.as_str();
        let is_word =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !OPENS.contains(&byte));
        match text {
            Some(text) if text.len() <= LONGEST_WORD && is_word(&text) => {
                // With a label of everything a word of the protocol still stays.
                let shown = (!self.trees.whole).then(|| self.encoded(&text, at)).flatten();
                match shown {
                    Some(shown) => write_string(out, &shown),
                    None => raw(out, member),
                }
            }
            Some(_) => self.string(out, member, at),
            None if is_scalar(member) => raw(out, member),
            None => self.loose(out, member, at),
        }
    }

    /// An address: what it says with its escapes undone is read as well.
    fn address(&mut self, out: &mut Vec<u8>, member: Value<'_>, at: &mut String) {
        let Some(text) = member.as_str() else { return self.loose(out, member, at) };
        let plain = coding::unescaped(&text).map(|(plain, _places)| plain);
        if plain.is_some_and(|plain| self.text(&plain, at).is_some()) {
            let mark = (self.mark)(&text);
            return write_string(out, &mark);
        }
        self.string(out, member, at);
    }

    /// What is carried in base64, as a text or within other bytes.
    fn carried(&mut self, out: &mut Vec<u8>, member: Value<'_>, at: &mut String) {
        let is_base64 = |text: &str| {
            text.bytes().all(|byte| {
                byte.is_ascii_alphanumeric()
                    || byte.is_ascii_whitespace()
                    || b"+/-_=".contains(&byte)
            })
        };
        let text = member.as_str().filter(|text| is_base64(text));
        let Some(text) = text else { return self.string(out, member, at) };
        let budget = self.budget;
        match encoded::whole(&text, budget, &mut Encoded { cut: self, at }) {
            Some(shown) => write_string(out, &shown),
            None => raw(out, member),
        }
    }

    /// A text that is no JSON without what is concealed in what it carries in base64.
    fn encoded(&mut self, text: &str, at: &mut String) -> Option<String> {
        let budget = self.budget;
        encoded::without(text, budget, &mut Encoded { cut: self, at })
    }

    /// A member of which nobody says what it means.
    fn member(&mut self, out: &mut Vec<u8>, name: &str, member: Value<'_>, at: &mut String) {
        let trees = self.trees;
        let below: Vec<&Tree<'t>> = trees.loose.below(&form::shown(name)).collect();
        let spot = Spot { here: &below, inside: trees.loose.ends, loose: true };
        self.value(out, member, spot, at);
    }

    /// The same of a value without a name.
    fn loose(&mut self, out: &mut Vec<u8>, value: Value<'_>, at: &mut String) {
        let spot = Spot { here: &[], inside: self.trees.loose.ends, loose: true };
        self.value(out, value, spot, at);
    }

    /// A text, or what stands in its place.
    fn string(&mut self, out: &mut Vec<u8>, member: Value<'_>, at: &mut String) {
        let Some(text) = member.as_str() else { return self.loose(out, member, at) };
        match self.text(&text, at) {
            Some(shown) => write_string(out, &shown),
            None => raw(out, member),
        }
    }

    /// A text without what is concealed, if it holds any of that; a mark in its place if that cannot
    /// be told.
    fn text(&mut self, text: &str, at: &mut String) -> Option<String> {
        if text.is_empty() {
            return None;
        }
        if self.trees.whole {
            return Some(self.conceal(text, false, at));
        }
        let values = match form::of(text) {
            Form::Plain => {
                let names = &self.trees.names;
                if form::gives(text, |name| names.contains(name)) {
                    return Some(self.withheld(text, at));
                }
                return self.encoded(text, at);
            }
            Form::Json(values) if self.nested < NESTED => values,
            Form::Json(_) | Form::Odd => return Some(self.withheld(text, at)),
        };
        let before = self.changes;
        self.nested += 1;
        let shown = self.values_of(text, &values, at);
        self.nested -= 1;
        match shown {
            Some(_) if self.changes == before => None,
            Some(shown) => Some(shown),
            None => Some(self.withheld(text, at)),
        }
    }

    /// A text with these values in it, each without what is concealed; `None` if one cannot be read.
    fn values_of(
        &mut self,
        text: &str,
        values: &[Range<usize>],
        at: &mut String,
    ) -> Option<String> {
        let (mut out, mut done) = (Vec::with_capacity(text.len()), 0);
        for place in values {
            let value = text.get(place.clone())?.to_owned();
            let document = Document::parse(value.into(), &Bounds::ANSWER).ok()?;
            self.between(&mut out, text.get(done..place.start)?, at);
            let root = document.root();
            // What the structured content says again is arranged as that is.
            if self.twin.as_ref().is_some_and(|twin| *twin == plain(root)) {
                let here = [&self.trees.rooted];
                self.value(&mut out, root, Spot { here: &here, inside: false, loose: false }, at);
            } else {
                self.loose(&mut out, root, at);
            }
            done = place.end;
        }
        self.between(&mut out, text.get(done..)?, at);
        String::from_utf8(out).ok()
    }

    /// What stands around values: comments may say the same as they do.
    fn between(&mut self, out: &mut Vec<u8>, text: &str, at: &mut String) {
        let shown = self.text(text, at);
        out.extend_from_slice(shown.as_deref().unwrap_or(text).as_bytes());
    }

    /// INVARIANT: the parser bounds the depth of a document, and [`NESTED`] that of texts in texts, so
    /// the recursion is bounded too.
    fn value(&mut self, out: &mut Vec<u8>, value: Value<'_>, spot: Spot<'_, 't>, at: &mut String) {
        let here = spot.inside || spot.here.iter().any(|tree| tree.ends);
        let length = at.len();
        match value.kind() {
            Kind::Object => write_members(out, value.members(), |out, (name, member)| {
                let below = self.below(&spot, &name);
                // A name within what is concealed is data, unless the definition has it.
                let hides = here && !self.concealed.declares(&name);
                let name = if hides { Cow::Owned(self.conceal(&name, true, at)) } else { name };
                write_name(out, &name);
                enter(at, &name);
                self.value(out, member, Spot { here: &below, inside: here, ..spot }, at);
                at.truncate(length);
            }),
            Kind::Array => write_items(out, value.items().enumerate(), |out, (n, item)| {
                let name = n.to_string();
                let below = self.below(&spot, &name);
                enter(at, &name);
                self.value(out, item, Spot { here: &below, inside: here, ..spot }, at);
                at.truncate(length);
            }),
            Kind::Null => out.extend_from_slice(b"null"),
            Kind::Boolean | Kind::Number | Kind::Plain | Kind::Escaped if here => {
                let text = value.as_str().unwrap_or(Cow::Borrowed(value.raw()));
                let mark = self.conceal(&text, value.as_bool().is_none(), at);
                write_string(out, &mark);
            }
            Kind::Boolean | Kind::Number => raw(out, value),
            Kind::Plain | Kind::Escaped => {
                match self.text(&value.as_str().unwrap_or_default(), at) {
                    Some(shown) => write_string(out, &shown),
                    None => raw(out, value),
                }
            }
        }
    }

    /// The paths that go on at a member or an item.
    fn below(&self, spot: &Spot<'_, 't>, name: &str) -> Vec<&'t Tree<'t>> {
        let name = form::shown(name);
        let mut below: Vec<&Tree<'t>> =
            spot.here.iter().flat_map(|tree| tree.below(&name)).collect();
        if spot.loose {
            below.extend(self.trees.loose.below(&name));
        }
        below
    }
}

/// What stands at a place and was decoded.
struct Encoded<'c, 't> {
    cut: &'c mut Cut<'t>,
    at: &'c mut String,
}

impl Reads for Encoded<'_, '_> {
    fn read(&mut self, decoded: &str) -> Option<String> {
        if self.cut.nested >= NESTED {
            return Some(self.cut.withheld(decoded, self.at));
        }
        self.cut.nested += 1;
        let shown = self.cut.text(decoded, self.at);
        self.cut.nested -= 1;
        shown
    }

    fn holds(&self, decoded: &str) -> bool {
        // A label of everything leaves nothing of what nobody can read.
        self.cut.trees.whole
            || form::gives_in_bytes(decoded, |name| self.cut.trees.names.contains(name))
    }

    fn withhold(&mut self, encoded: &str) -> String {
        self.cut.withheld(encoded, self.at)
    }
}

/// Adds a part to a place.
fn enter(at: &mut String, name: &str) {
    at.push('/');
    at.push_str(&escaped(name));
}

fn raw(out: &mut Vec<u8>, value: Value<'_>) {
    out.extend_from_slice(value.raw().as_bytes());
}

fn is_scalar(value: Value<'_>) -> bool {
    !matches!(value.kind(), Kind::Array | Kind::Object)
}

/// A value in the form in which two are compared.
fn plain(value: Value<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.raw().len());
    write_plain(&mut out, value);
    out
}
