//! Removes from a server's message the members that its caller may not see.
//!
//! In the structured content a label applies to the target of its pointer. Elsewhere (texts that are JSON
//! and differ from the structured content, `_meta`, data of errors, elicitation requests) the arrangement of
//! members is unknown, so a label applies to every member with its last name.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use json::coding;
use json::pointer::escaped;
use json::{
    Document, JsonBounds, JsonKind, Value, write_ascii, write_items, write_members, write_name,
    write_plain, write_string,
};
use policy_core::base::work::WorkBudget;

use super::encoded::{self, DecodedInspector};
use super::form::{self, TextForm};
use super::{ConcealedMembers, LabelledPart, RedactedMessage};
use crate::inspect::Finding;

/// Writes the value of a member to a buffer; gets the member's name, its value and its place.
type WriteMember<'f, MemberRedactor> =
    &'f mut dyn FnMut(&mut MemberRedactor, &mut Vec<u8>, &str, Value<'_>, &mut String);
/// Writes an item of a list in the same way.
type WriteItem<'f, MemberRedactor> =
    &'f mut dyn FnMut(&mut MemberRedactor, &mut Vec<u8>, Value<'_>, &mut String);

/// Shortest concealed value that is looked for elsewhere in the result, in bytes.
const SHORTEST: usize = 4;
/// Most values that are looked for, and below it their total size in bytes: with more, the result is withheld.
const VALUES: usize = 4096;
const BYTES: usize = 256 * 1024;
/// Most places that are reported of one result.
const KEPT: usize = 16;
/// Greatest nesting of JSON or base64 within strings: deeper content is withheld.
const NESTED: usize = 4;
/// Units that each byte of a message costs: each name is compared with the path of each label, and texts that are JSON are
/// parsed again.
const EACH_BYTE: usize = 24;
/// Units that one concealed value costs, beside its length: it is hashed for its mark.
const EACH_MARK: usize = 256;
/// Greatest nesting of content blocks.
const BLOCKS: usize = 4;

/// Members of parameters that belong to the protocol and carry no data of a tool.
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
/// The same for results and for the status of a task.
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
/// The same for content blocks: the value is read, and kept where no label can be in it.
const BLOCK: [&str; 4] = ["type", "mimeType", "size", "role"];
/// Longest protocol token or media type, in bytes (RFC 6838 section 4.2).
const LONGEST_WORD: usize = 255;
/// Characters that no protocol token has, and at least one of which every form of JSON has.
const OPENS: &[u8] = b"{}[]\"'<>&\\";
/// Keywords of a schema that describe a member without giving a value of it.
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

/// The message without what is concealed; `mark` gives the replacement of a value. `None` if nothing in it is
/// concealed, or the budget does not suffice. Where the budget is exhausted afterwards, nothing of the message may be shown.
pub fn without(
    said: Value<'_>,
    part: LabelledPart,
    concealed: &ConcealedMembers,
    mark: &dyn Fn(&str) -> String,
    budget: &WorkBudget,
) -> Option<RedactedMessage> {
    if !budget.spend(said.raw().len().saturating_mul(EACH_BYTE)) {
        return None;
    }
    let trees = ConcealedPaths::of(concealed);
    let mut cut = MemberRedactor {
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
        LabelledPart::Result => cut.result(&mut out, said, at),
        LabelledPart::Error => cut.error(&mut out, said, at),
        LabelledPart::Params => cut.params(&mut out, said, at),
    }
    let MemberRedactor { values, findings, changes, full, .. } = cut;
    (changes > 0).then_some(RedactedMessage { text: out, values, findings, full })
}

/// A trie of member paths.
#[derive(Debug, Default)]
struct PathTree<'a> {
    /// A path ends here.
    ends: bool,
    /// The subtree of every item or member.
    every: Option<Box<PathTree<'a>>>,
    named: BTreeMap<&'a str, PathTree<'a>>,
}

impl<'a> PathTree<'a> {
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

    fn below<'t>(&'t self, name: &str) -> impl Iterator<Item = &'t PathTree<'a>> {
        self.named.get(name).into_iter().chain(self.every.as_deref())
    }
}

/// The concealed paths, arranged for lookup.
#[derive(Debug, Default)]
struct ConcealedPaths<'a> {
    /// Paths from the root of the structured content.
    rooted: PathTree<'a>,
    /// Paths from the last member name on, with the wildcards behind it.
    loose: PathTree<'a>,
    /// The last member name of each path.
    names: BTreeSet<&'a str>,
    /// Whether everything is concealed, texts included.
    whole: bool,
}

impl<'a> ConcealedPaths<'a> {
    fn of(concealed: &'a ConcealedMembers) -> Self {
        let mut trees = Self::default();
        for path in &concealed.paths {
            trees.rooted.add(path);
            trees.whole |= path.is_empty();
            let last = path.iter().rposition(|part| **part != *"*");
            let tail = last.and_then(|last| path.get(last..)).unwrap_or_default();
            trees.names.extend(tail.first().map(|name| &**name));
            // A path of wildcards alone conceals every item.
            trees.loose.add(tail);
        }
        trees
    }

    /// Whether a member of this name may be concealed where the arrangement of members is unknown: a label of every
    /// member (`additionalProperties`, `patternProperties`) may apply to any.
    fn may_label(&self, name: &str) -> bool {
        self.loose.ends || self.names.contains(name)
    }
}

/// The position of a value relative to the concealed paths.
#[derive(Clone, Copy)]
struct PathPosition<'s, 't> {
    here: &'s [&'t PathTree<'t>],
    /// Whether the value is within a concealed member.
    inside: bool,
    /// Whether paths may begin at any member.
    loose: bool,
}

/// The position where no path continues or begins; strings are still parsed.
const NEUTRAL: PathPosition<'static, 'static> =
    PathPosition { here: &[], inside: false, loose: false };

struct MemberRedactor<'t> {
    trees: &'t ConcealedPaths<'t>,
    concealed: &'t ConcealedMembers,
    mark: &'t dyn Fn(&str) -> String,
    /// The budget for decoding and for marks.
    budget: &'t WorkBudget,
    /// The structured content in normal form, to recognise a text that repeats it.
    twin: Option<Vec<u8>>,
    /// Current nesting of encoded texts.
    nested: usize,
    values: BTreeSet<String>,
    findings: Vec<Finding>,
    changes: usize,
    bytes: usize,
    /// Whether there are more values than can be looked for.
    full: bool,
}

impl<'t> MemberRedactor<'t> {
    /// Remembers a value to be looked for elsewhere, as it is and as JSON writes it.
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

    /// Reports a concealed value, which is looked for elsewhere as well, and returns its mark.
    fn conceal_everywhere(&mut self, value: &str, at: &str) -> String {
        if value.len() >= SHORTEST {
            self.keep(value);
        }
        self.conceal(value, at)
    }

    /// Reports a concealed value and returns its mark.
    fn conceal(&mut self, value: &str, at: &str) -> String {
        self.found(|| Finding::labelled(at));
        self.marked(value)
    }

    /// Reports a text whose content is unknown and returns its mark.
    fn withheld(&mut self, text: &str, at: &str) -> String {
        self.found(|| Finding::unread(at));
        self.marked(text)
    }

    /// The mark of a value; empty if the budget does not suffice, because nothing of the message is shown then.
    fn marked(&self, value: &str) -> String {
        let is_within = self.budget.spend(EACH_MARK.saturating_add(value.len()));
        if is_within { (self.mark)(value) } else { String::new() }
    }

    /// Writes an object; `each` writes the values of its members.
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

    /// Writes a list; `each` writes its items.
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
                cut.value(
                    out,
                    member,
                    PathPosition { here: &here, inside: false, loose: false },
                    at,
                );
            }
            "content" if member.kind() == JsonKind::Array => {
                cut.items(out, member, at, &mut |cut, out, block, at| {
                    cut.block(out, block, at, BLOCKS);
                });
            }
            // The result and the status of a task.
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
            "code" if member.kind() == JsonKind::Number => raw(out, member),
            "message" => cut.string(out, member, at),
            "data" if member.is_object() => {
                cut.members(out, member, at, &mut |cut, out, name, member, at| match name {
                    "elicitations" if member.kind() == JsonKind::Array => {
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
            "messages" if member.kind() == JsonKind::Array => {
                cut.items(out, member, at, &mut |cut, out, message, at| {
                    cut.block(out, message, at, BLOCKS);
                });
            }
            "logger" => cut.word(out, member, at),
            "uri" | "url" if !cut.trees.whole => cut.address(out, member, at),
            "uri" | "url" if is_scalar(member) => raw(out, member),
            // The protocol defines these, not the tool.
            name if PARAMS.contains(&name) && is_scalar(member) => raw(out, member),
            name if PARAMS.contains(&name) => cut.value(out, member, NEUTRAL, at),
            name => cut.member(out, name, member, at),
        });
    }

    /// Writes the schema of an elicitation form, whose members may have concealed values as defaults.
    fn schema(&mut self, out: &mut Vec<u8>, schema: Value<'_>, at: &mut String) {
        self.members(out, schema, at, &mut |cut, out, name, member, at| {
            if SHAPE.contains(&name) {
                return raw(out, member);
            }
            if name != "properties" || !member.is_object() {
                return cut.value(out, member, NEUTRAL, at);
            }
            cut.members(out, member, at, &mut |cut, out, name, property, at| {
                let labelled = cut.trees.whole || cut.trees.may_label(&form::shown(name));
                if !labelled || !property.is_object() {
                    return cut.value(out, property, NEUTRAL, at);
                }
                cut.members(out, property, at, &mut |cut, out, name, member, at| {
                    if SHAPE.contains(&name) {
                        return raw(out, member);
                    }
                    cut.value(out, member, PathPosition { inside: true, ..NEUTRAL }, at);
                });
            });
        });
    }

    /// Writes a content block, a resource in a block, or a message with blocks; `deep` is the nesting that is left.
    fn block(&mut self, out: &mut Vec<u8>, block: Value<'_>, at: &mut String, deep: usize) {
        let Some(deep) = deep.checked_sub(1) else { return self.loose(out, block, at) };
        if !block.is_object() {
            return self.string(out, block, at);
        }
        self.members(out, block, at, &mut |cut, out, name, member, at| match name {
            "text" | "title" | "description" => cut.string(out, member, at),
            "blob" | "data" => cut.carried(out, member, at),
            "resource" if member.is_object() => cut.block(out, member, at, deep),
            "content" if member.kind() == JsonKind::Array => {
                cut.items(out, member, at, &mut |cut, out, block, at| {
                    cut.block(out, block, at, deep);
                });
            }
            "content" => cut.block(out, member, at, deep),
            "annotations" if member.is_object() => {
                cut.members(out, member, at, &mut |cut, out, name, member, at| match name {
                    "audience" if member.kind() == JsonKind::Array => {
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

    /// Writes a protocol token; any other text is processed as a string.
    fn word(&mut self, out: &mut Vec<u8>, member: Value<'_>, at: &mut String) {
        let text = member.as_str();
        let is_word =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !OPENS.contains(&byte));
        match text {
            Some(text) if text.len() <= LONGEST_WORD && is_word(&text) => {
                // Protocol tokens stay even where everything is concealed.
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

    /// Writes a URI, which is also searched with its percent escapes decoded.
    fn address(&mut self, out: &mut Vec<u8>, member: Value<'_>, at: &mut String) {
        let Some(text) = member.as_str() else { return self.loose(out, member, at) };
        let plain = coding::unescaped(&text).map(|(plain, _places)| plain);
        if plain.is_some_and(|plain| self.text(&plain, at).is_some()) {
            let mark = self.marked(&text);
            return write_string(out, &mark);
        }
        self.string(out, member, at);
    }

    /// Writes base64 data, which is searched as a text and as other bytes.
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
        match encoded::whole(&text, budget, &mut DecodedTextReader { cut: self, at }) {
            Some(shown) => write_string(out, &shown),
            None => raw(out, member),
        }
    }

    /// A text that is not JSON, without what is concealed in the base64 that it carries; `None` if unchanged.
    fn encoded(&mut self, text: &str, at: &mut String) -> Option<String> {
        let budget = self.budget;
        encoded::without(text, budget, &mut DecodedTextReader { cut: self, at })
    }

    /// Writes a member whose meaning is unknown: paths may begin at its name.
    fn member(&mut self, out: &mut Vec<u8>, name: &str, member: Value<'_>, at: &mut String) {
        let trees = self.trees;
        let below: Vec<&PathTree<'t>> = trees.loose.below(&form::shown(name)).collect();
        let spot = PathPosition { here: &below, inside: trees.loose.ends, loose: true };
        self.value(out, member, spot, at);
    }

    /// Writes a value without a name in the same way.
    fn loose(&mut self, out: &mut Vec<u8>, value: Value<'_>, at: &mut String) {
        let spot = PathPosition { here: &[], inside: self.trees.loose.ends, loose: true };
        self.value(out, value, spot, at);
    }

    /// Writes a string without what is concealed in it.
    fn string(&mut self, out: &mut Vec<u8>, member: Value<'_>, at: &mut String) {
        let Some(text) = member.as_str() else { return self.loose(out, member, at) };
        match self.text(&text, at) {
            Some(shown) => write_string(out, &shown),
            None => raw(out, member),
        }
    }

    /// A text without what is concealed; `None` if unchanged. A text that may hold concealed members and cannot be
    /// parsed becomes a mark.
    fn text(&mut self, text: &str, at: &mut String) -> Option<String> {
        if text.is_empty() {
            return None;
        }
        if self.trees.whole {
            return Some(self.conceal(text, at));
        }
        let values = match form::of(text) {
            TextForm::Plain => {
                let trees = self.trees;
                if form::gives(text, |name| trees.may_label(name)) {
                    return Some(self.withheld(text, at));
                }
                return self.encoded(text, at);
            }
            TextForm::Json(values) if self.nested < NESTED => values,
            TextForm::Json(_) | TextForm::Odd => return Some(self.withheld(text, at)),
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

    /// A text with each of these JSON values rewritten; `None` if one cannot be parsed.
    fn values_of(
        &mut self,
        text: &str,
        values: &[Range<usize>],
        at: &mut String,
    ) -> Option<String> {
        let (mut out, mut done) = (Vec::with_capacity(text.len()), 0);
        for place in values {
            let value = text.get(place.clone())?.to_owned();
            let document = Document::parse(value.into(), &JsonBounds::ANSWER).ok()?;
            self.between(&mut out, text.get(done..place.start)?, at);
            let root = document.root();
            // A value that repeats the structured content is arranged like it.
            if self.twin.as_ref().is_some_and(|twin| *twin == plain(root)) {
                let here = [&self.trees.rooted];
                self.value(
                    &mut out,
                    root,
                    PathPosition { here: &here, inside: false, loose: false },
                    at,
                );
            } else {
                self.loose(&mut out, root, at);
            }
            done = place.end;
        }
        self.between(&mut out, text.get(done..)?, at);
        String::from_utf8(out).ok()
    }

    /// Writes the text around values: comments may repeat their content.
    fn between(&mut self, out: &mut Vec<u8>, text: &str, at: &mut String) {
        let shown = self.text(text, at);
        out.extend_from_slice(shown.as_deref().unwrap_or(text).as_bytes());
    }

    /// Writes a value without what is concealed; nothing where the budget is exhausted.
    ///
    /// INVARIANT: the parser bounds the depth of a document, and [`NESTED`] that of texts in texts, so
    /// the recursion is bounded too.
    fn value(
        &mut self,
        out: &mut Vec<u8>,
        value: Value<'_>,
        spot: PathPosition<'_, 't>,
        at: &mut String,
    ) {
        if self.budget.is_exhausted() {
            return;
        }
        let here = spot.inside || spot.here.iter().any(|tree| tree.ends);
        let length = at.len();
        // One buffer for all members or items.
        let mut below = Vec::new();
        match value.kind() {
            JsonKind::Object => write_members(out, value.members(), |out, (name, member)| {
                self.find_below(&spot, &name, &mut below);
                // A name within a concealed member is data, unless the schema declares it.
                let hides = here && !self.concealed.declares(&name);
                let name =
                    if hides { Cow::Owned(self.conceal_everywhere(&name, at)) } else { name };
                write_name(out, &name);
                enter(at, &name);
                self.value(out, member, PathPosition { here: &below, inside: here, ..spot }, at);
                at.truncate(length);
            }),
            JsonKind::Array => write_items(out, value.items().enumerate(), |out, (n, item)| {
                let name = n.to_string();
                self.find_below(&spot, &name, &mut below);
                enter(at, &name);
                self.value(out, item, PathPosition { here: &below, inside: here, ..spot }, at);
                at.truncate(length);
            }),
            JsonKind::Null => out.extend_from_slice(b"null"),
            JsonKind::Boolean | JsonKind::Number | JsonKind::Plain | JsonKind::Escaped if here => {
                let text = value.as_str().unwrap_or(Cow::Borrowed(value.raw()));
                // `true` and `false` stand everywhere.
                let mark = match value.as_bool() {
                    Some(_) => self.conceal(&text, at),
                    None => self.conceal_everywhere(&text, at),
                };
                write_string(out, &mark);
            }
            JsonKind::Boolean | JsonKind::Number => raw(out, value),
            JsonKind::Plain | JsonKind::Escaped => {
                match self.text(&value.as_str().unwrap_or_default(), at) {
                    Some(shown) => write_string(out, &shown),
                    None => raw(out, value),
                }
            }
        }
    }

    /// Replaces what is in `below` by the paths that continue at a member or an item.
    fn find_below(
        &self,
        spot: &PathPosition<'_, 't>,
        name: &str,
        below: &mut Vec<&'t PathTree<'t>>,
    ) {
        let name = form::shown(name);
        below.clear();
        below.extend(spot.here.iter().flat_map(|tree| tree.below(&name)));
        if spot.loose {
            below.extend(self.trees.loose.below(&name));
        }
    }
}

/// Searches decoded text on behalf of a [`MemberRedactor`], at one place.
struct DecodedTextReader<'c, 't> {
    cut: &'c mut MemberRedactor<'t>,
    at: &'c mut String,
}

impl DecodedInspector for DecodedTextReader<'_, '_> {
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
        // Where everything is concealed, unreadable bytes are concealed too.
        self.cut.trees.whole || form::gives_in_bytes(decoded, |name| self.cut.trees.may_label(name))
    }

    fn withhold(&mut self, encoded: &str) -> String {
        self.cut.withheld(encoded, self.at)
    }
}

/// Appends a member name or an index to a JSON Pointer.
fn enter(at: &mut String, name: &str) {
    at.push('/');
    at.push_str(&escaped(name));
}

fn raw(out: &mut Vec<u8>, value: Value<'_>) {
    out.extend_from_slice(value.raw().as_bytes());
}

fn is_scalar(value: Value<'_>) -> bool {
    !matches!(value.kind(), JsonKind::Array | JsonKind::Object)
}

/// A value in the normal form in which two values are compared.
fn plain(value: Value<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.raw().len());
    write_plain(&mut out, value);
    out
}
