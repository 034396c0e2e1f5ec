//! What a security team looks for in the definition of a tool by hand: what it leaves open, what it
//! lets the caller declare, what it claims of itself. Nothing is decided by it; `portcullis scan` prints
//! it with what to do.

use crate::json::{Kind as Shape, Value};
use crate::pointer::escaped;

/// How much a remark matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Good to know.
    Info,
    /// To be improved.
    Low,
    /// To be looked at before it is approved.
    Medium,
    /// Not to be approved as it is.
    High,
}

impl Severity {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// Something to be said about a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Its stable name.
    pub rule: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// Where, as a JSON Pointer (RFC 6901).
    pub at: String,
    /// What.
    pub note: &'static str,
    /// What to do.
    pub fix: &'static str,
}

/// Deepest schema that is looked into.
const DEEPEST: usize = 16;
/// Most remarks of one definition.
const MOST: usize = 100;

/// Names of arguments by what can be done through them: rule, severity, words, note, fix.
const ARGUMENTS: [(&str, Severity, &[&str], &str, &str); 6] = [
    (
        "free-command",
        Severity::High,
        &["command", "cmd", "shell", "script", "exec", "bash", "eval", "code"],
        "an argument that is run",
        "list the commands in an `enum`, or take structured arguments instead",
    ),
    (
        "free-sql",
        Severity::High,
        &["sql", "statement"],
        "an argument that is a query in a language of its own",
        "take the values of a prepared statement instead",
    ),
    (
        "free-url",
        Severity::Medium,
        &["url", "uri", "endpoint", "webhook", "callback", "host", "hostname", "domain", "proxy"],
        "an argument that says where to connect to",
        "give a `pattern` with the hosts that are meant",
    ),
    (
        "free-path",
        Severity::Medium,
        &["path", "file", "filename", "filepath", "directory", "dir", "folder"],
        "an argument that names a file",
        "give a `pattern` with the folder that is meant, and forbid `..` by a rule",
    ),
    (
        "arbitrary-recipient",
        Severity::Medium,
        &["to", "email", "recipient", "recipients", "cc", "bcc", "phone", "iban", "payee"],
        "an argument that says to whom something goes",
        "give a `pattern` with the domains that are meant, or a rule with `when`",
    ),
    (
        "self-declared-privilege",
        Severity::High,
        &[
            "admin",
            "sudo",
            "root",
            "privileged",
            "approved",
            "authorized",
            "authorised",
            "trusted",
            "bypass",
            "override",
            "role",
            "permissions",
            "confirmed",
            "impersonate",
        ],
        "an argument with which a caller gives itself a right",
        "take rights from the caller's token, not from its arguments",
    ),
];

/// What there is to be said about a tool.
#[must_use]
pub fn tool(definition: Value<'_>) -> Vec<Remark> {
    let mut reviewer = Reviewer { remarks: Vec::new(), open: None, bounds: None };
    reviewer.description(definition);
    reviewer.name(definition);
    reviewer.claims(definition);
    match definition.get("inputSchema").filter(|schema| schema.is_object()) {
        Some(schema) => reviewer.input(schema),
        None => reviewer.note(
            "no-input-schema",
            Severity::Medium,
            "/inputSchema",
            "it does not say what arguments it takes",
            "add an `inputSchema`",
        ),
    }
    reviewer.output(definition);
    reviewer.remarks
}

struct Reviewer {
    remarks: Vec<Remark>,
    /// The first schema that admits members it does not name, and the first value without a bound.
    open: Option<String>,
    bounds: Option<String>,
}

impl Reviewer {
    fn note(
        &mut self,
        rule: &'static str,
        severity: Severity,
        at: &str,
        note: &'static str,
        fix: &'static str,
    ) {
        if self.remarks.len() < MOST {
            self.remarks.push(Remark { rule, severity, at: at.to_owned(), note, fix });
        }
    }

    fn description(&mut self, definition: Value<'_>) {
        let text = definition.get("description").and_then(Value::as_str).unwrap_or_default();
        let text = text.to_lowercase();
        let at = "/description";
        if text.trim().len() < 10 {
            return self.note(
                "no-description",
                Severity::Medium,
                at,
                "it does not say what it does",
                "describe what it does, in a sentence or two",
            );
        }
        let anything = [
            "anything",
            "any command",
            "any code",
            "any query",
            "any task",
            "arbitrary",
            "everything you",
            "whatever you",
        ];
        if anything.iter().any(|word| text.contains(word)) {
            self.note(
                "anything",
                Severity::Medium,
                at,
                "it says that it does anything",
                "split it into tools that each do one thing",
            );
        }
        let limits = [
            "do not use",
            "don't use",
            "not for ",
            "instead use",
            "use instead",
            "only when",
            "only use",
            "not intended",
            "should not be used",
        ];
        if !limits.iter().any(|word| text.contains(word)) {
            self.note(
                "no-limits",
                Severity::Info,
                at,
                "it does not say when it is not to be used",
                "add a sentence that begins with `Do not use it for`",
            );
        }
    }

    fn name(&mut self, definition: Value<'_>) {
        let name = definition.get("name").and_then(Value::as_str).unwrap_or_default();
        let lower = name.to_lowercase();
        let parts: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).collect();
        let version = |part: &str| {
            part.strip_prefix('v').is_some_and(|rest| {
                !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
            })
        };
        let random = |part: &str| {
            let digits = part.bytes().filter(u8::is_ascii_digit).count();
            part.len() >= 8 && digits >= 3 && part.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let dated =
            |part: &str| part.len() == 4 && part.starts_with("20") && part.parse::<u16>().is_ok();
        let passing =
            |part: &str| matches!(part, "beta" | "alpha" | "tmp" | "temp" | "new" | "old");
        if parts
            .iter()
            .copied()
            .any(|part| version(part) || random(part) || dated(part) || passing(part))
        {
            self.note(
                "unstable-name",
                Severity::Low,
                "/name",
                "its name has a version, a date or a random part in it",
                "give it a name that stays, so that rules and approvals stay good",
            );
        }
    }

    /// A tool that says it only reads, and by its name does more.
    fn claims(&mut self, definition: Value<'_>) {
        let hint = |name: &str| {
            let annotations = definition.get("annotations")?;
            annotations.get(name)?.as_bool()
        };
        let name = definition.get("name").and_then(Value::as_str).unwrap_or_default();
        let writes = [
            "delete", "remove", "drop", "send", "write", "create", "update", "execute", "run",
            "pay", "transfer", "deploy", "install", "grant", "revoke", "kill", "purge",
        ];
        let first = crate::drift::words_of(&name).next().unwrap_or_default();
        let harmless = hint("readOnlyHint") == Some(true) || hint("destructiveHint") == Some(false);
        if harmless && writes.contains(&first.as_str()) {
            self.note(
                "claims-harmless",
                Severity::High,
                "/annotations",
                "it says that it is harmless, and by its name it is not",
                "do not rely on its annotations: say in the registry what it does",
            );
        }
    }

    fn input(&mut self, schema: Value<'_>) {
        let properties: Vec<_> =
            schema.get("properties").into_iter().flat_map(Value::members).collect();
        let plain = |value: &Value<'_>| {
            let kind = value.get("type").and_then(Value::as_str);
            kind.as_deref() == Some("string") && !is_bounded(*value)
        };
        if properties.len() >= 2 && properties.iter().all(|(_, value)| plain(value)) {
            self.note(
                "plain-strings",
                Severity::Low,
                "/inputSchema/properties",
                "all arguments are plain strings",
                "give them types, `enum`, `format` or `pattern`",
            );
        }
        self.schema(schema, "/inputSchema", 0);
        if let Some(at) = self.open.take() {
            self.note(
                "open-properties",
                Severity::Low,
                &at,
                "arguments are admitted that have no name here",
                "add `additionalProperties: false`",
            );
        }
        if let Some(at) = self.bounds.take() {
            self.note(
                "missing-bounds",
                Severity::Low,
                &at,
                "a value may be as long or as large as it likes",
                "add `maxLength`, `maximum` or `maxItems`",
            );
        }
    }

    /// INVARIANT: the depth is bounded.
    fn schema(&mut self, schema: Value<'_>, at: &str, depth: usize) {
        if depth > DEEPEST {
            return self.note(
                "deep-schema",
                Severity::Medium,
                at,
                "a schema inside more schemas than anybody reads",
                "flatten it",
            );
        }
        let is_text = |key: &str| schema.get(key).and_then(Value::as_str);
        if is_text("$ref").is_some_and(|to| !to.starts_with('#')) {
            self.note(
                "remote-ref",
                Severity::High,
                at,
                "a part of the schema is somewhere else, and can be another tomorrow",
                "put the schema here; it is never fetched",
            );
        }
        let properties = schema.get("properties");
        let closed = schema.get("additionalProperties").or(schema.get("unevaluatedProperties"));
        let is_closed =
            closed.is_some_and(|value| value.as_bool() == Some(false) || value.is_object());
        if properties.is_some() && !is_closed && self.open.is_none() {
            self.open = Some(at.to_owned());
        }
        for (name, value) in properties.into_iter().flat_map(Value::members) {
            let at = format!("{at}/properties/{}", escaped(&name));
            self.argument(&name, value, &at);
            self.schema(value, &at, depth + 1);
        }
        for key in ["items", "contains", "additionalProperties", "not"] {
            if let Some(inner) = schema.get(key).filter(|inner| inner.is_object()) {
                self.schema(inner, &format!("{at}/{key}"), depth + 1);
            }
        }
        for key in ["anyOf", "oneOf", "allOf", "prefixItems"] {
            for (n, inner) in schema.get(key).into_iter().flat_map(Value::items).enumerate() {
                self.schema(inner, &format!("{at}/{key}/{n}"), depth + 1);
            }
        }
        for key in ["$defs", "definitions"] {
            for (name, inner) in schema.get(key).into_iter().flat_map(Value::members) {
                self.schema(inner, &format!("{at}/{key}/{name}"), depth + 1);
            }
        }
        let kind = schema.get("type").and_then(Value::as_str);
        let unbounded = match kind.as_deref() {
            Some("string") => !is_bounded(schema),
            Some("number" | "integer") => {
                !is_bounded(schema)
                    && schema.get("maximum").is_none()
                    && schema.get("exclusiveMaximum").is_none()
            }
            Some("array") => schema.get("maxItems").is_none(),
            _ => false,
        };
        if unbounded && self.bounds.is_none() {
            self.bounds = Some(at.to_owned());
        }
    }

    fn argument(&mut self, name: &str, value: Value<'_>, at: &str) {
        let listed = value.get("enum").is_some()
            || value.get("const").is_some()
            || value.get("pattern").is_some();
        let words: Vec<String> = crate::drift::words_of(name).collect();
        for (rule, severity, names, note, fix) in ARGUMENTS {
            let is = words.iter().any(|word| names.contains(&word.as_str()));
            let declares = rule == "self-declared-privilege";
            // `to` in `date_to` is no recipient, and neither is a number.
            let short = words.len() > 1 && names.contains(&"to") && words.iter().any(|w| w == "to");
            let is_number = matches!(
                value.get("type").and_then(Value::as_str).as_deref(),
                Some("integer" | "number")
            );
            if is && (declares || !listed) && !short && (declares || !is_number) {
                self.note(rule, severity, at, note, fix);
            }
        }
    }

    fn output(&mut self, definition: Value<'_>) {
        let Some(schema) = definition.get("outputSchema") else {
            return self.note(
                "no-output-schema",
                Severity::Info,
                "/outputSchema",
                "it does not say what it returns",
                "add an `outputSchema`, so that results can be checked",
            );
        };
        if admits_html(schema, 0) {
            self.note(
                "html-output",
                Severity::Medium,
                "/outputSchema",
                "it returns HTML",
                "return text or data; markup in a result can carry more than is seen",
            );
        }
    }
}

fn is_bounded(schema: Value<'_>) -> bool {
    ["enum", "const", "pattern", "maxLength", "format"].iter().any(|key| schema.get(key).is_some())
}

fn admits_html(schema: Value<'_>, depth: usize) -> bool {
    if depth > DEEPEST {
        return false;
    }
    let media = schema.get("contentMediaType").and_then(Value::as_str);
    if media.is_some_and(|media| media.contains("html") || media.contains("svg")) {
        return true;
    }
    let mut properties = schema.get("properties").into_iter().flat_map(Value::members);
    let named = |name: &str| {
        crate::drift::words_of(name).any(|word| matches!(&*word, "html" | "markup" | "svg"))
    };
    if properties.any(|(name, value)| named(&name) || admits_html(value, depth + 1)) {
        return true;
    }
    let inner = schema.get("items").filter(|items| items.kind() == Shape::Object);
    inner.is_some_and(|items| admits_html(items, depth + 1))
}

#[cfg(test)]
mod tests {
    use super::tool;
    use crate::json::{Bounds, Document};
    use serde_json::{Value, json};

    fn rules(definition: &Value) -> Vec<&'static str> {
        let text = definition.to_string();
        let document = Document::parse(text.into(), &Bounds::MESSAGE).unwrap();
        tool(document.root()).into_iter().map(|remark| remark.rule).collect()
    }

    fn good() -> Value {
        json!({
            "name": "get_ticket", "description": "Reads one ticket. Do not use it for lists of tickets.",
            "inputSchema": { "type": "object", "additionalProperties": false, "properties": {
                "id": { "type": "string", "pattern": "^T-[0-9]{1,9}$" },
                "depth": { "type": "integer", "minimum": 0, "maximum": 3 },
            } },
            "outputSchema": { "type": "object", "properties": { "title": { "type": "string" } } },
        })
    }

    #[test]
    fn a_careful_definition_has_nothing_to_be_said_about() {
        assert_eq!(rules(&good()), [""; 0]);
    }

    #[test]
    fn each_remark_is_made_where_it_is_due() {
        let with = |pointer: &str, new: Value| {
            let mut other = good();
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            other.pointer_mut(parent).unwrap()[name] = new;
            rules(&other)
        };
        let argument =
            |name: &str, schema: Value| with(&format!("/inputSchema/properties/{name}"), schema);
        let text = || json!({ "type": "string", "maxLength": 100 });
        for (found, rule) in [
            (argument("command", text()), "free-command"),
            (argument("sql", text()), "free-sql"),
            (argument("callbackUrl", text()), "free-url"),
            (argument("path", text()), "free-path"),
            (argument("bcc", text()), "arbitrary-recipient"),
            (argument("is_admin", json!({ "type": "boolean" })), "self-declared-privilege"),
            (argument("note", json!({ "type": "string" })), "missing-bounds"),
            (argument("part", json!({ "$ref": "https://x.example/s.json" })), "remote-ref"),
            (with("/inputSchema/additionalProperties", json!(true)), "open-properties"),
            (
                with(
                    "/inputSchema/properties",
                    json!({ "a": { "type": "string" }, "b": { "type": "string" } }),
                ),
                "plain-strings",
            ),
            (with("/description", json!("Does anything. Do not use it for fun.")), "anything"),
            (with("/description", json!("Reads one ticket.")), "no-limits"),
            (with("/description", json!("")), "no-description"),
            (with("/name", json!("get_ticket_v2")), "unstable-name"),
            (with("/outputSchema", json!({ "properties": { "body_html": {} } })), "html-output"),
        ] {
            assert!(found.contains(&rule), "{rule}: {found:?}");
        }
        let mut claims = good();
        claims["name"] = json!("delete_ticket");
        claims["annotations"] = json!({ "readOnlyHint": true });
        assert!(rules(&claims).contains(&"claims-harmless"));
        for ordinary in ["to_currency", "date_to", "profile", "pathology", "codec"] {
            let found = argument(ordinary, text());
            assert_eq!(found, [""; 0], "{ordinary}");
        }
    }
}
