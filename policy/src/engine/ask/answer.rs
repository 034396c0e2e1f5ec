//! What a client's answer to a server's request must be: what was asked, and nothing more.
//!
//! The terms are taken from the request as the client is shown it, and are kept until it answers. They hold of a form only
//! what its answer is compared with, not its texts.

use std::collections::BTreeMap;

use json::{
    Document, JsonBounds, JsonKind, Value, write_items, write_members, write_name, write_string,
};
use policy_core::base::work::WorkBudget;
use policy_core::schema::{Schema, SchemaViolation};

use super::answer_format::has_format;
use super::{ELICIT, ROOTS, SAMPLE, ServerRequestPolicy};

/// Most bytes of the terms of all requests that are made at once.
pub const LONGEST_TERMS: usize = 128 * 1024;
/// Units per byte of the schema of a form for making it ready.
const COMPILING: usize = 64;
/// Most blocks of the content of a model's answer.
const BLOCKS: usize = 64;
/// Most roots of one answer.
const ROOTS_AT_ONCE: usize = 1024;
/// Longest name of a model and longest URI of a root, in bytes.
const WORD: usize = 4096;

/// Keywords of a field with which its value is compared, and the JSON types that they have.
const KEYWORDS: [(&str, &[JsonKind]); 15] = [
    ("type", TEXT),
    ("enum", &[JsonKind::Array]),
    ("const", SCALAR),
    ("minLength", NUMBER),
    ("maxLength", NUMBER),
    ("pattern", TEXT),
    ("format", TEXT),
    ("minimum", NUMBER),
    ("maximum", NUMBER),
    ("exclusiveMinimum", NUMBER),
    ("exclusiveMaximum", NUMBER),
    ("multipleOf", NUMBER),
    ("minItems", NUMBER),
    ("maxItems", NUMBER),
    ("uniqueItems", &[JsonKind::Boolean]),
];
const TEXT: &[JsonKind] = &[JsonKind::Plain, JsonKind::Escaped];
const NUMBER: &[JsonKind] = &[JsonKind::Number];
const SCALAR: &[JsonKind] =
    &[JsonKind::Plain, JsonKind::Escaped, JsonKind::Number, JsonKind::Boolean, JsonKind::Null];

/// A field that does not say what its value is.
const ANY_FIELD: &str = r#"{"type":["string","number","boolean","null","array"],"items":{"type":["string","number","boolean"]}}"#;

/// What an answer to one request must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerTerms {
    kind: AnswerKind,
    /// Whether the client may answer with a task first (2025-11-25).
    is_task: bool,
}

/// The kind of answer that a request has.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AnswerKind {
    /// That of a user to a form, with the schema of its content.
    Form(Box<str>),
    /// That of a user to a page.
    Page,
    /// That of a model: its most bytes, and whether it may use tools.
    Sampling(usize, ModelTools),
    /// The roots of the client.
    Roots,
    /// None: no such request is passed on.
    Nothing,
}

/// Whether a model's answer may use tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelTools {
    Offered,
    None,
}

fn violation(at: &str, note: &str) -> SchemaViolation {
    SchemaViolation { at: at.to_owned(), note: note.to_owned() }
}

/// A violation in the answer with this key.
fn placed(key: &str, misfit: SchemaViolation) -> SchemaViolation {
    SchemaViolation { at: format!("/{}{}", json::pointer::escaped(key), misfit.at), ..misfit }
}

impl AnswerTerms {
    /// The terms of a request, from its method and params, and the most bytes of a model's answer.
    pub(super) fn of(method: &str, params: Option<Value<'_>>, longest: usize) -> Self {
        let member = |name: &str| params.and_then(|params| params.get(name));
        let is_task = member("task").is_some_and(Value::is_object);
        let mode = member("mode").and_then(Value::as_str);
        let kind = match method {
            ELICIT if mode.as_deref() == Some("url") => AnswerKind::Page,
            ELICIT => AnswerKind::Form(compact(member("requestedSchema")).into()),
            SAMPLE if member("tools").is_some_and(|tools| tools.items().next().is_some()) => {
                AnswerKind::Sampling(longest, ModelTools::Offered)
            }
            SAMPLE => AnswerKind::Sampling(longest, ModelTools::None),
            ROOTS => AnswerKind::Roots,
            _ => AnswerKind::Nothing,
        };
        Self { kind, is_task }
    }

    /// Their length in bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        match &self.kind {
            AnswerKind::Form(schema) => schema.len(),
            AnswerKind::Page
            | AnswerKind::Sampling(..)
            | AnswerKind::Roots
            | AnswerKind::Nothing => 1,
        }
    }

    /// Whether any answer can satisfy them: the schema of a form is one that can be compared with a value.
    pub(super) fn can_be_met(&self, budget: &WorkBudget) -> bool {
        let AnswerKind::Form(schema) = &self.kind else { return true };
        ready(schema, budget).is_some_and(|schema| schema.is_usable())
    }

    /// Whether a client's answer is what the server asked for.
    ///
    /// # Errors
    /// The first thing in it that is not, without its value.
    pub fn check(&self, answer: Value<'_>, budget: &WorkBudget) -> Result<(), SchemaViolation> {
        if !answer.is_object() {
            return Err(violation("", "must be an object"));
        }
        if !budget.spend(answer.raw().len()) {
            return Err(violation("", "inspection budget exceeded"));
        }
        if self.is_task && answer.get("task").is_some_and(Value::is_object) {
            return has_only(answer, &["task"]);
        }
        match &self.kind {
            AnswerKind::Form(schema) => {
                let content = accepted(answer)?;
                let Some(content) = content else { return Ok(()) };
                form(schema, content.value(), budget).map_err(|SchemaViolation { at, note }| {
                    SchemaViolation { at: format!("/content{at}"), note }
                })
            }
            AnswerKind::Page => match accepted(answer)? {
                Some(UserContent::Given(content)) if content.members().next().is_some() => {
                    Err(violation("/content", "the answer to a page has no content"))
                }
                Some(UserContent::Given(_) | UserContent::None) | None => Ok(()),
            },
            AnswerKind::Sampling(longest, tools) => sampled(*longest, *tools, answer),
            AnswerKind::Roots => roots(answer),
            AnswerKind::Nothing => Err(violation("", "was not asked")),
        }
    }

    /// Writes the terms as JSON.
    fn write(&self, out: &mut Vec<u8>) {
        let code = match (&self.kind, self.is_task) {
            (AnswerKind::Form(_), false) => "f",
            (AnswerKind::Form(_), true) => "F",
            (AnswerKind::Page, false) => "p",
            (AnswerKind::Page, true) => "P",
            (AnswerKind::Sampling(_, ModelTools::None), false) => "s",
            (AnswerKind::Sampling(_, ModelTools::None), true) => "S",
            (AnswerKind::Sampling(_, ModelTools::Offered), false) => "t",
            (AnswerKind::Sampling(_, ModelTools::Offered), true) => "T",
            (AnswerKind::Roots, _) => "r",
            (AnswerKind::Nothing, _) => "n",
        };
        out.push(b'[');
        write_string(out, code);
        match &self.kind {
            AnswerKind::Form(schema) => {
                out.push(b',');
                out.extend_from_slice(schema.as_bytes());
            }
            AnswerKind::Sampling(longest, _) => {
                out.push(b',');
                out.extend_from_slice(longest.to_string().as_bytes());
            }
            AnswerKind::Page | AnswerKind::Roots | AnswerKind::Nothing => {}
        }
        out.push(b']');
    }

    /// Reads what [`Self::write`] wrote.
    fn read(value: Value<'_>) -> Option<Self> {
        let mut items = value.items();
        let code = items.next()?.as_str()?;
        let is_task = code.bytes().all(|byte| byte.is_ascii_uppercase());
        let mut longest = || items.next()?.as_i64().and_then(|bytes| bytes.try_into().ok());
        let kind = match &*code {
            "s" | "S" => AnswerKind::Sampling(longest()?, ModelTools::None),
            "t" | "T" => AnswerKind::Sampling(longest()?, ModelTools::Offered),
            "f" | "F" => AnswerKind::Form(items.next()?.raw().into()),
            "p" | "P" => AnswerKind::Page,
            "r" => AnswerKind::Roots,
            "n" => AnswerKind::Nothing,
            _ => return None,
        };
        Some(Self { kind, is_task })
    }
}

/// What the answers to several requests must be, by the keys under which the server made them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestTerms {
    by_key: BTreeMap<Box<str>, AnswerTerms>,
}

impl RequestTerms {
    /// The terms of requests, each with its key.
    pub fn of(requests: impl IntoIterator<Item = (Box<str>, AnswerTerms)>) -> Self {
        Self { by_key: requests.into_iter().collect() }
    }

    /// Whether the answers in one object are those that were asked for (SPEC 2026-07-28 `inputResponses`). Requests without
    /// an answer are made again.
    ///
    /// # Errors
    /// The first thing that was not asked for, without its value.
    pub fn check(&self, answers: Value<'_>, budget: &WorkBudget) -> Result<(), SchemaViolation> {
        let unasked = answers.members().find(|(key, _)| !self.by_key.contains_key(&**key));
        if let Some((key, _)) = unasked {
            return Err(placed(&key, violation("", "was not asked")));
        }
        self.check_asked(answers, budget)
    }

    /// The same where answers to other requests go to nobody.
    ///
    /// # Errors
    /// The first thing that was not asked for, without its value.
    pub fn check_asked(
        &self,
        answers: Value<'_>,
        budget: &WorkBudget,
    ) -> Result<(), SchemaViolation> {
        let checked =
            self.by_key.iter().filter_map(|(key, terms)| Some((key, terms, answers.get(key)?)));
        checked.into_iter().try_for_each(|(key, terms, answer)| {
            terms.check(answer, budget).map_err(|misfit| placed(key, misfit))
        })
    }

    /// Whether there is a request with this key.
    #[must_use]
    pub fn asks(&self, key: &str) -> bool {
        self.by_key.contains_key(key)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Their length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.by_key.iter().map(|(key, terms)| key.len() + terms.length()).sum()
    }

    /// The terms as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.length());
        let members = self.by_key.iter();
        write_members(&mut out, members, |out, (key, terms)| {
            write_name(out, key);
            terms.write(out);
        });
        out
    }

    /// Reads what [`Self::to_json`] wrote; `None` if it is anything else.
    #[must_use]
    pub fn from_json(text: &[u8]) -> Option<Self> {
        let document = Document::parse(text.to_vec().into(), &JsonBounds::ANSWER).ok()?;
        let read = |(key, terms): (std::borrow::Cow<'_, str>, Value<'_>)| {
            Some((key.into(), AnswerTerms::read(terms)?))
        };
        let by_key = document.root().members().map(read).collect::<Option<_>>()?;
        Some(Self { by_key })
    }
}

impl ServerRequestPolicy {
    /// What the answer to a request must be, from its method and the params that the client is shown.
    #[must_use]
    pub fn terms(&self, method: &str, params: Option<Value<'_>>) -> AnswerTerms {
        let longest = self.sampling.as_ref().map_or(0, |sampling| sampling.answer_size);
        AnswerTerms::of(method, params, longest)
    }
}

/// What a user has entered who agreed.
#[derive(Clone, Copy)]
enum UserContent<'a> {
    None,
    Given(Value<'a>),
}

impl<'a> UserContent<'a> {
    const fn value(self) -> Option<Value<'a>> {
        match self {
            Self::None => None,
            Self::Given(value) => Some(value),
        }
    }
}

/// The content of a user's answer; `None` if the user did not agree.
fn accepted(answer: Value<'_>) -> Result<Option<UserContent<'_>>, SchemaViolation> {
    has_only(answer, &["action", "content"])?;
    let content = answer.get("content").filter(|content| content.kind() != JsonKind::Null);
    if content.is_some_and(|content| !content.is_object()) {
        return Err(violation("/content", "must be an object"));
    }
    let action = answer.get("action").and_then(Value::as_str);
    match action.as_deref() {
        Some("accept") => Ok(Some(content.map_or(UserContent::None, UserContent::Given))),
        Some("decline" | "cancel") if content.is_some_and(|one| one.members().next().is_some()) => {
            Err(violation("/content", "the answer of a user who does not agree has no content"))
        }
        Some("decline" | "cancel") => Ok(None),
        Some(_) | None => Err(violation("/action", "must be `accept`, `decline` or `cancel`")),
    }
}

/// Whether an answer has no members but these and those that every result has.
fn has_only(answer: Value<'_>, known: &[&str]) -> Result<(), SchemaViolation> {
    let other = answer
        .members()
        .find(|(name, _)| !known.contains(&&**name) && !matches!(&**name, "_meta" | "resultType"));
    other.map_or(Ok(()), |(name, _)| {
        let at = format!("/{}", json::pointer::escaped(&name));
        Err(SchemaViolation { at, note: "is not a member of such an answer".to_owned() })
    })
}

/// Compares the content of a form with its schema.
fn form(
    schema: &str,
    content: Option<Value<'_>>,
    budget: &WorkBudget,
) -> Result<(), SchemaViolation> {
    let ready = ready(schema, budget).ok_or_else(|| violation("", "inspection budget exceeded"))?;
    ready.check_arguments(content, budget)?;
    let Ok(document) = Document::parse(schema.to_owned().into(), &JsonBounds::ANSWER) else {
        return Err(violation("", "is not as the schema says"));
    };
    let fields = document.root().get("properties");
    for (name, value) in content.into_iter().flat_map(Value::members) {
        let field = fields.and_then(|fields| fields.get(&name));
        let format = field.and_then(|field| field.get("format")).and_then(Value::as_str);
        let Some((format, text)) = format.zip(value.as_str()) else { continue };
        // Clients send a field that the user has left blank as an empty text.
        let is_blank = text.is_empty() && !is_required(document.root(), &name);
        if !is_blank && !has_format(&format, &text) {
            let at = format!("/{}", json::pointer::escaped(&name));
            let note = "does not have the form it has to have".to_owned();
            return Err(SchemaViolation { at, note });
        }
    }
    Ok(())
}

/// Whether a schema requires the member with this name.
fn is_required(schema: Value<'_>, name: &str) -> bool {
    schema.get("required").into_iter().flat_map(Value::items).any(|known| known.is_text(name))
}

/// The schema, made ready; `None` if the budget is exhausted.
fn ready(schema: &str, budget: &WorkBudget) -> Option<Schema> {
    budget.spend(schema.len().saturating_mul(COMPILING)).then_some(())?;
    let document = Document::parse(schema.to_owned().into(), &JsonBounds::ANSWER).ok()?;
    let schema = Schema::new(document.root());
    // How large its automata are is known once they are made. What follows in the same message is not made then.
    budget.spend(schema.work()).then_some(schema)
}

/// The schema of the content of a form, with the keywords that its values are compared with alone. Members that it does
/// not name are refused.
fn compact(schema: Option<Value<'_>>) -> String {
    let of = |name: &str| schema.and_then(|schema| schema.get(name));
    let fields = of("properties").filter(|fields| fields.is_object());
    let required: Vec<_> =
        of("required").into_iter().flat_map(Value::items).filter_map(Value::as_str).collect();
    let mut out = br#"{"type":"object","additionalProperties":false,"required":"#.to_vec();
    write_items(&mut out, required.iter(), |out, name| write_string(out, name));
    out.extend_from_slice(br#","properties":"#);
    let described =
        fields.into_iter().flat_map(Value::members).map(|(name, field)| (name, Some(field)));
    // A client may also ask for a required member that is not described.
    let mut others = required.clone();
    others.retain(|name| fields.is_none_or(|fields| fields.get(name).is_none()));
    others.sort_unstable();
    others.dedup();
    let all = described.chain(others.into_iter().map(|name| (name, None)));
    write_members(&mut out, all, |out, (name, field)| {
        write_name(out, &name);
        write_field(out, field);
    });
    out.push(b'}');
    String::from_utf8(out).unwrap_or_default()
}

/// Writes the keywords of a field that its value is compared with.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
fn write_field(out: &mut Vec<u8>, field: Option<Value<'_>>) {
    let lists = |field: Value<'_>| {
        ["anyOf", "oneOf"].into_iter().any(|list| choices(field, list).is_some())
    };
    let known = field.map(|field| (field, keywords(field)));
    let Some((field, kept)) = known.filter(|(field, kept)| !kept.is_empty() || lists(*field))
    else {
        out.extend_from_slice(ANY_FIELD.as_bytes());
        return;
    };
    let is_list = field.get("type").is_some_and(|kind| kind.is_text("array"));
    let parts = kept.into_iter().map(|(name, value)| (name, FieldPart::Raw(value)));
    let lists = ["anyOf", "oneOf"].into_iter();
    let lists = lists.filter_map(|list| Some((list, FieldPart::Choices(choices(field, list)?))));
    let items = is_list.then_some(("items", FieldPart::Items(field.get("items"))));
    write_members(out, parts.chain(lists).chain(items), |out, (name, part)| {
        write_name(out, name);
        match part {
            FieldPart::Raw(value) => out.extend_from_slice(value.raw().as_bytes()),
            FieldPart::Choices(list) => {
                write_items(out, list.items(), |out, choice| write_field(out, Some(choice)));
            }
            FieldPart::Items(items) => {
                write_field(out, items.filter(|items| items.kind() == JsonKind::Object));
            }
        }
    });
}

/// The keywords of a field that its value is compared with.
fn keywords(field: Value<'_>) -> Vec<(&'static str, Value<'_>)> {
    let kept = KEYWORDS.iter().filter_map(|(name, kinds)| {
        let value = field.get(name).filter(|value| kinds.contains(&value.kind()))?;
        // Clients without any choices show a text field.
        let is_empty = *name == "enum" && value.items().next().is_none();
        (!is_empty).then_some((*name, value))
    });
    kept.collect()
}

/// A list of choices, unless it has none.
fn choices<'a>(field: Value<'a>, list: &str) -> Option<Value<'a>> {
    field.get(list).filter(|list| list.items().next().is_some())
}

/// A part of the schema of a field.
enum FieldPart<'a> {
    /// A keyword with its value.
    Raw(Value<'a>),
    /// Schemas of which the value fits one.
    Choices(Value<'a>),
    /// The schema of the items of a list.
    Items(Option<Value<'a>>),
}

/// Whether an answer is one of a model.
fn sampled(longest: usize, tools: ModelTools, answer: Value<'_>) -> Result<(), SchemaViolation> {
    has_only(answer, &["role", "content", "model", "stopReason"])?;
    if answer.raw().len() > longest {
        return Err(violation("", "is longer than `sampling.maxAnswerSize`"));
    }
    let text = |name: &str| answer.get(name).and_then(Value::as_str);
    if !text("role").is_some_and(|role| matches!(&*role, "user" | "assistant")) {
        return Err(violation("/role", "must be `user` or `assistant`"));
    }
    if text("model").is_none_or(|model| model.len() > WORD) {
        return Err(violation("/model", "must be the name of a model"));
    }
    let why = answer.get("stopReason").filter(|why| why.kind() != JsonKind::Null);
    if why.is_some_and(|why| why.as_str().is_none_or(|why| why.len() > WORD)) {
        return Err(violation("/stopReason", "must be a string"));
    }
    let content = answer.get("content").ok_or_else(|| violation("/content", "is missing"))?;
    let blocks: Vec<_> = match content.kind() {
        JsonKind::Array => content.items().take(BLOCKS + 1).collect(),
        JsonKind::Plain
        | JsonKind::Escaped
        | JsonKind::Number
        | JsonKind::Boolean
        | JsonKind::Null
        | JsonKind::Object => vec![content],
    };
    if blocks.len() > BLOCKS {
        return Err(violation("/content", "has too many blocks"));
    }
    let is_one = |block: &Value<'_>| is_block(tools, *block);
    match blocks.iter().all(is_one) {
        true => Ok(()),
        false => Err(violation("/content", "has a block that a model's answer cannot have")),
    }
}

/// Whether a value is a block of a model's answer, with members of their types.
fn is_block(tools: ModelTools, block: Value<'_>) -> bool {
    let is_text = |name: &str| block.get(name).is_some_and(|value| TEXT.contains(&value.kind()));
    let kind = block.get("type").and_then(Value::as_str);
    match kind.as_deref() {
        Some("text") => is_text("text"),
        Some("image" | "audio") => is_text("data") && is_text("mimeType"),
        Some("tool_use") => {
            tools == ModelTools::Offered
                && is_text("id")
                && is_text("name")
                && block.get("input").is_some_and(Value::is_object)
        }
        Some("tool_result") => {
            tools == ModelTools::Offered
                && is_text("toolUseId")
                && block.get("content").is_some_and(|content| content.kind() == JsonKind::Array)
        }
        Some(_) | None => false,
    }
}

/// Whether an answer is a list of roots.
fn roots(answer: Value<'_>) -> Result<(), SchemaViolation> {
    has_only(answer, &["roots"])?;
    let roots = answer.get("roots").filter(|roots| roots.kind() == JsonKind::Array);
    let roots = roots.ok_or_else(|| violation("/roots", "must be an array"))?;
    if roots.items().count() > ROOTS_AT_ONCE {
        return Err(violation("/roots", "has too many items"));
    }
    let is_root = |root: Value<'_>| {
        let uri = root.get("uri").and_then(Value::as_str);
        let name = root.get("name").filter(|name| name.kind() != JsonKind::Null);
        uri.is_some_and(|uri| uri.len() <= WORD) && name.is_none_or(|name| name.as_str().is_some())
    };
    match roots.items().all(is_root) {
        true => Ok(()),
        false => Err(violation("/roots", "has an item that is not a root")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most bytes of a model's answer.
    const LONGEST: usize = 200;

    fn read(text: &str) -> Document {
        Document::parse(text.to_owned().into(), &JsonBounds::ANSWER).unwrap()
    }

    /// Where an answer is not what was asked; `None` if it is.
    fn misfit(method: &str, params: &str, answer: &str) -> Option<String> {
        let (params, answer) = (read(params), read(answer));
        let terms = AnswerTerms::of(method, Some(params.root()), LONGEST);
        let all = RequestTerms::of([("q".into(), terms.clone())]);
        assert_eq!(RequestTerms::from_json(&all.to_json()).unwrap(), all);
        let budget = WorkBudget::unlimited();
        terms.check(answer.root(), &budget).err().map(|one| one.at)
    }

    #[test]
    fn an_answer_to_a_form_has_what_was_asked_and_nothing_else() {
        let schema = r#"{"requestedSchema":{"type":"object","required":["name"],"properties":{
            "name":{"type":"string","title":"Your name","maxLength":5},
            "age":{"type":"integer","minimum":0},
            "mail":{"type":"string","format":"email"},
            "day":{"type":"string","format":"date"},
            "kind":{"type":"string","oneOf":[{"const":"a","title":"A"},{"const":"b","title":"B"}]},
            "tags":{"type":"array","items":{"type":"string","enum":["x","y"]},"maxItems":2},
            "open":{},
            "code":{"type":"string","pattern":"^[a-z]+$"}}}}"#;
        let of = |answer: &str| misfit(ELICIT, schema, answer);
        for answer in [
            r#"{"action":"accept","content":{"name":"ana"}}"#,
            r#"{"action":"accept","content":{"name":"ana","age":3,"mail":"a@b.example","day":"2026-11-27","kind":"b","tags":["x"],"open":true,"code":"ab"}}"#,
            r#"{"action":"accept","content":{"name":"ana","age":null}}"#,
            r#"{"action":"decline"}"#,
            r#"{"action":"cancel","content":null,"_meta":{}}"#,
            r#"{"action":"decline","content":{}}"#,
        ] {
            assert_eq!(of(answer), None, "{answer}");
        }
        for (answer, at) in [
            (r#"{"action":"accept"}"#, "/content"),
            (r#"{"action":"accept","content":{"name":"ana","more":1}}"#, "/content"),
            (r#"{"action":"accept","content":{"name":"annabel"}}"#, "/content/name"),
            (r#"{"action":"accept","content":{"name":{"a":1}}}"#, "/content/name"),
            (r#"{"action":"accept","content":{"name":"ana","age":"3"}}"#, "/content/age"),
            (
                r#"{"action":"accept","content":{"name":"ana","mail":"no address"}}"#,
                "/content/mail",
            ),
            (r#"{"action":"accept","content":{"name":"ana","day":"2026-13-01"}}"#, "/content/day"),
            (r#"{"action":"accept","content":{"name":"ana","kind":"c"}}"#, "/content/kind"),
            (r#"{"action":"accept","content":{"name":"ana","tags":["z"]}}"#, "/content/tags/0"),
            (r#"{"action":"accept","content":{"name":"ana","open":{}}}"#, "/content/open"),
            (r#"{"action":"accept","content":{"name":"ana","code":"A"}}"#, "/content/code"),
            (r#"{"action":"accept","content":[]}"#, "/content"),
            (r#"{"action":"decline","content":{"name":"ana"}}"#, "/content"),
            (r#"{"action":"yes"}"#, "/action"),
            (r#"{"content":{"name":"ana"}}"#, "/action"),
            (r#"{"action":"accept","content":{"name":"ana"},"notes":"more"}"#, "/notes"),
        ] {
            assert_eq!(of(answer).as_deref(), Some(at), "{answer}");
        }
    }

    #[test]
    fn an_answer_to_a_page_has_no_content_and_one_with_a_task_is_a_task() {
        let page = r#"{"mode":"url","url":"https://a.example"}"#;
        assert_eq!(misfit(ELICIT, page, r#"{"action":"accept"}"#), None);
        let more = r#"{"action":"accept","content":{"a":1}}"#;
        assert_eq!(misfit(ELICIT, page, more).as_deref(), Some("/content"));
        let task = r#"{"task":{"taskId":"t"}}"#;
        assert_eq!(misfit(ELICIT, r#"{"task":{}}"#, task), None);
        assert_eq!(misfit(ELICIT, "{}", task).as_deref(), Some("/task"));
    }

    #[test]
    fn an_answer_of_a_model_is_bounded_and_has_blocks_of_their_types() {
        let of = |answer: &str| misfit(SAMPLE, "{}", answer);
        for answer in [
            r#"{"role":"assistant","model":"m","content":{"type":"text","text":"hi"},"stopReason":"endTurn"}"#,
            r#"{"role":"assistant","model":"m","content":[{"type":"image","data":"aa","mimeType":"image/png"}]}"#,
        ] {
            assert_eq!(of(answer), None, "{answer}");
        }
        let long = format!(
            r#"{{"role":"assistant","model":"m","content":{{"type":"text","text":"{}"}}}}"#,
            "a".repeat(200)
        );
        for (answer, at) in [
            (r#"{"role":"system","model":"m","content":{"type":"text","text":"hi"}}"#, "/role"),
            (r#"{"role":"user","content":{"type":"text","text":"hi"}}"#, "/model"),
            (r#"{"role":"user","model":"m","content":"hi"}"#, "/content"),
            (r#"{"role":"user","model":"m","content":{"type":"text","text":["hi"]}}"#, "/content"),
            (
                r#"{"role":"user","model":"m","content":{"type":"tool_use","id":"1","name":"n","input":{}}}"#,
                "/content",
            ),
            (
                r#"{"role":"user","model":"m","content":{"type":"text","text":"hi"},"files":[]}"#,
                "/files",
            ),
            (&long, ""),
        ] {
            assert_eq!(of(answer).as_deref(), Some(at), "{answer}");
        }
        let offered = r#"{"tools":[{"name":"n","inputSchema":{}}]}"#;
        let using = r#"{"role":"assistant","model":"m","content":[{"type":"tool_use","id":"1","name":"n","input":{}}]}"#;
        assert_eq!(misfit(SAMPLE, offered, using), None);
    }

    #[test]
    fn an_answer_with_roots_is_a_list_of_them_and_what_was_not_asked_is_no_answer() {
        assert_eq!(misfit(ROOTS, "{}", r#"{"roots":[{"uri":"file:///a","name":"a"}]}"#), None);
        for answer in
            [r#"{"roots":{}}"#, r#"{"roots":["file:///a"]}"#, r#"{"roots":[{"name":"a"}]}"#]
        {
            assert_eq!(misfit(ROOTS, "{}", answer).as_deref(), Some("/roots"), "{answer}");
        }
        assert_eq!(misfit("vendor/ask", "{}", "{}").as_deref(), Some(""));
        let terms = RequestTerms::of([("q".into(), AnswerTerms::of(ROOTS, None, LONGEST))]);
        let budget = WorkBudget::unlimited();
        let of = |answers: &str| terms.check(read(answers).root(), &budget).err().map(|one| one.at);
        assert_eq!(of(r#"{"q":{"roots":[]}}"#), None);
        assert_eq!(of("{}"), None);
        assert_eq!(of(r#"{"q":{"roots":[]},"p/q":{}}"#).as_deref(), Some("/p~1q"));
    }

    #[test]
    fn a_form_whose_schema_cannot_be_compared_with_a_value_can_not_be_answered() {
        let can = |field: &str| {
            let params = format!(r#"{{"requestedSchema":{{"properties":{{"a":{field}}}}}}}"#);
            let terms = AnswerTerms::of(ELICIT, Some(read(&params).root()), LONGEST);
            terms.can_be_met(&WorkBudget::unlimited())
        };
        assert!(can(r#"{"type":"string","pattern":"^a+$","exclusiveMinimum":true}"#));
        assert!(can(r#""x""#) && can("{}"));
        assert!(!can(r#"{"type":"string","pattern":"(?=a)"}"#));
        assert!(!can(r#"{"type":"string","minLength":-1}"#));
    }
}
