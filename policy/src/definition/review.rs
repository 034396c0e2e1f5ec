//! Reviews the definition of a tool as a security team would: what it leaves open, what it lets the caller declare,
//! what it claims about itself. Decides nothing; `portcullis scan` prints the remarks with advice.

use std::borrow::Cow;

use json::pointer::escaped;
use json::{JsonKind as Shape, Value};
use policy_core::subject::kind::{ReadOnlyHint, hints};

/// How much a remark matters to the operator who approves a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// For information: an improvement for the author.
    Info,
    /// Consider before granting access: rules and constraints can narrow it.
    Low,
    /// Examine the definition before approving it.
    Medium,
    /// Do not approve as is: the gateway withholds or removes it by default.
    High,
}

impl Severity {
    /// Name of the severity in reports.
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

/// A remark on a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionRemark {
    /// Stable name of the kind of remark.
    pub rule: &'static str,
    /// How much the remark matters.
    pub severity: Severity,
    /// JSON Pointer (RFC 6901) into the definition.
    pub at: String,
    /// States the observation in a few words.
    pub note: &'static str,
    /// Advises the operator who approves the definition.
    pub fix: &'static str,
}

/// Deepest nested schema that is reviewed.
const DEEPEST: usize = 16;
/// Most remarks on one definition.
const MOST: usize = 100;

/// A remark on arguments that are recognized by name and type.
struct ArgumentRule {
    rule: &'static str,
    severity: Severity,
    note: &'static str,
    fix: &'static str,
    /// Whether an argument with these words in its name, of this tool, is meant.
    is: fn(argument: &[String], tool: &ToolContext<'_>) -> bool,
    /// Types that the argument must have.
    of: ArgumentTypes,
}

/// The types of arguments that a remark applies to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArgumentTypes {
    /// Free text, and lists of it. With an `enum`, `const` or `pattern`, the author has limited the values.
    FreeText,
    /// Text, lists and booleans.
    Any,
}

/// The tool that an argument belongs to.
struct ToolContext<'a> {
    /// Words of the tool's name.
    words: Vec<String>,
    /// Names of all arguments on the same level.
    beside: Vec<Cow<'a, str>>,
}

/// The remarks on arguments.
const ARGUMENTS: [ArgumentRule; 9] = [
    ArgumentRule {
        rule: "free-command",
        severity: Severity::Medium,
        note: "an argument that is run",
        fix: "grant it to few callers, and limit the argument by `policy.constraints`",
        is: is_command,
        of: ArgumentTypes::FreeText,
    },
    ArgumentRule {
        rule: "free-sql",
        severity: Severity::Medium,
        note: "an argument that is a query in a language of its own",
        fix: "give the server an account that may only do what is meant, or limit the argument by `policy.constraints`",
        is: is_sql,
        of: ArgumentTypes::FreeText,
    },
    ArgumentRule {
        rule: "free-url",
        severity: Severity::Low,
        note: "an argument that says where to connect to",
        fix: "say in `policy.constraints` which hosts are meant",
        is: |argument, _| {
            has(
                argument,
                &[
                    "url", "uri", "endpoint", "webhook", "callback", "host", "hostname", "domain",
                    "proxy",
                ],
            )
        },
        of: ArgumentTypes::FreeText,
    },
    ArgumentRule {
        rule: "free-path",
        severity: Severity::Low,
        note: "an argument that names a file",
        fix: "say in `policy.constraints` which folder is meant, if the server does not keep to one by itself",
        is: is_file,
        of: ArgumentTypes::FreeText,
    },
    ArgumentRule {
        rule: "arbitrary-recipient",
        severity: Severity::Low,
        note: "an argument that says to whom something goes",
        fix: "say in `policy.constraints` which recipients are meant, or in a rule with `when`",
        is: is_recipient,
        of: ArgumentTypes::FreeText,
    },
    ArgumentRule {
        rule: "self-declared-privilege",
        severity: Severity::Medium,
        note: "an argument with which a caller gives itself a right",
        fix: "forbid the argument by `policy.constraints`, and take rights from the caller's token",
        is: is_privilege,
        of: ArgumentTypes::Any,
    },
    ArgumentRule {
        rule: "self-declared-privilege",
        severity: Severity::Info,
        note: "an argument whose name speaks of rights",
        fix: "see whether a caller gives itself a right by it; if so, limit it by `policy.constraints`",
        is: |argument, _| {
            has(argument, &["root", "override", "role", "permissions"])
                && !is_privilege(argument, &ToolContext::NONE)
        },
        of: ArgumentTypes::Any,
    },
    ArgumentRule {
        rule: "asks-for-context",
        severity: Severity::Medium,
        note: "an argument for the conversation or for what a model thinks, of a tool that is about something else",
        fix: "ask its author what it is for; if nothing needs it, forbid the argument by `policy.constraints`",
        is: is_unrelated_context,
        of: ArgumentTypes::Any,
    },
    ArgumentRule {
        rule: "asks-for-secret",
        severity: Severity::Medium,
        note: "an argument for a secret, of a tool that is about something else",
        fix: "let the server hold the secret: what a model passes on, it can also pass on elsewhere",
        is: is_unrelated_secret,
        of: ArgumentTypes::FreeText,
    },
];

fn has(words: &[String], any: &[&str]) -> bool {
    words.iter().any(|word| any.contains(&word.as_str()))
}

/// Whether the argument names a file: `path`, `output_dir`, `paths`; in a tool for files also `source` and
/// `destination`.
fn is_file(argument: &[String], tool: &ToolContext<'_>) -> bool {
    const NAMES: [&str; 12] = [
        "path",
        "paths",
        "file",
        "filename",
        "filenames",
        "filepath",
        "filepaths",
        "directory",
        "directories",
        "dir",
        "folder",
        "folders",
    ];
    const ENDS: [&str; 6] = ["source", "destination", "src", "dest", "dst", "target"];
    let is_end = || matches!(argument, [only] if ENDS.contains(&only.as_str()));
    has(argument, &NAMES) || is_end() && (has(&tool.words, &NAMES) || has(&tool.words, &["files"]))
}

/// Whether the argument is executed: `command`, `shell_command`, `python_code`; not `service_code`. An argument named
/// only `code` counts if the tool executes something.
fn is_command(argument: &[String], tool: &ToolContext<'_>) -> bool {
    const LANGUAGES: [&str; 14] = [
        "python",
        "js",
        "javascript",
        "typescript",
        "shell",
        "bash",
        "sh",
        "ruby",
        "lua",
        "perl",
        "php",
        "powershell",
        "script",
        "program",
    ];
    const RUNS: [&str; 8] =
        ["run", "execute", "exec", "eval", "evaluate", "interpret", "shell", "repl"];
    const COMMANDS: [&str; 6] = ["command", "commands", "cmd", "cmds", "commandline", "script"];
    const TEXTS: [&str; 5] = ["line", "text", "string", "run", "execute"];
    match argument {
        [.., last] if COMMANDS.contains(&last.as_str()) => true,
        // `command_line` and `command_to_run` count; `command_id` does not.
        [first, .., last] if COMMANDS.contains(&first.as_str()) => TEXTS.contains(&last.as_str()),
        [only] if matches!(only.as_str(), "shell" | "exec" | "bash" | "eval") => true,
        [only] if only == "code" => has(&tool.words, &RUNS),
        [.., before, last] if last == "code" => LANGUAGES.contains(&before.as_str()),
        _ => false,
    }
}

/// Whether the argument is SQL: `sql`, `sql_query`, `statement`; not `bank_statement`.
fn is_sql(argument: &[String], _: &ToolContext<'_>) -> bool {
    has(argument, &["sql"]) || argument.iter().map(String::as_str).eq(["statement"])
}

/// Whether the argument is a recipient. E-mail addresses, telephone numbers and `to` occur in many tools; they count
/// in those that send. `to` beside `from` is the end of a range, relation or journey.
fn is_recipient(argument: &[String], tool: &ToolContext<'_>) -> bool {
    const SENDS: [&str; 16] = [
        "send", "mail", "email", "message", "sms", "transfer", "pay", "payment", "notify",
        "invite", "forward", "reply", "share", "call", "fax", "wire",
    ];
    let sends = has(&tool.words, &SENDS);
    match argument {
        [only] if only == "to" => {
            sends || !tool.beside.iter().any(|name| matches!(&**name, "from" | "source"))
        }
        // In `date_to`, `to` is no recipient.
        words if has(words, &["to"]) => false,
        words if has(words, &["recipient", "recipients", "cc", "bcc", "iban", "payee"]) => true,
        words => sends && has(words, &["email", "phone"]),
    }
}

/// Whether the caller asserts a privilege with the argument: `is_admin`, `approved`, `bypass_checks`; not
/// `admin_email`.
fn is_privilege(argument: &[String], _: &ToolContext<'_>) -> bool {
    const RIGHTS: [&str; 8] = [
        "admin",
        "sudo",
        "privileged",
        "approved",
        "authorized",
        "authorised",
        "trusted",
        "confirmed",
    ];
    let last = argument.last().is_some_and(|word| RIGHTS.contains(&word.as_str()));
    last || has(argument, &["bypass", "impersonate", "sudo"])
}

/// Whether one of these groups of words occurs completely.
fn has_group(words: &[String], groups: &[&[&str]]) -> bool {
    groups.iter().any(|group| group.iter().all(|part| words.iter().any(|word| word == part)))
}

/// Whether the argument takes the conversation, the prompt, thoughts of the model or the surroundings of the user:
/// `session_summary`, `system_prompt`, `user_profile`; not `conversation_id`, and not of a tool whose name is about such.
fn is_unrelated_context(argument: &[String], tool: &ToolContext<'_>) -> bool {
    const CONTEXT: [&[&str]; 29] = [
        &["conversation"],
        &["transcript"],
        &["scratchpad"],
        &["reasoning"],
        &["chat", "history"],
        &["message", "history"],
        &["prompt", "history"],
        &["previous", "messages"],
        &["previous", "results"],
        &["system", "prompt"],
        &["system", "message"],
        &["system", "instructions"],
        &["session", "summary"],
        &["session", "context"],
        &["session", "history"],
        &["user", "profile"],
        &["user", "context"],
        &["user", "prompt"],
        &["user", "request"],
        &["agent", "context"],
        &["agent", "memory"],
        &["full", "context"],
        &["tool", "list"],
        &["tools", "list"],
        &["available", "tools"],
        &["tool", "outputs"],
        &["tool", "results"],
        &["debug", "info"],
        &["environment", "variables"],
    ];
    #[rustfmt::skip]
    const ABOUT: [&str; 45] = [
        "chat", "conversation", "message", "messages", "session", "thread", "prompt", "transcript", "think", "thinking",
        "thought", "thoughts", "reasoning", "reason", "chain", "mental", "agent", "memory", "memories", "assistant", "llm",
        "model", "completion", "ask", "opinion", "user", "profile", "env", "environment", "run", "execute", "deploy",
        "container", "debug", "log", "logs", "mcp", "tool", "tools", "context", "summarize", "summary", "eval", "escalate",
        "handoff",
    ];
    const NUMBERS: [&str; 7] = ["id", "ids", "index", "count", "effort", "include", "length"];
    has_group(argument, &CONTEXT) && !has(argument, &NUMBERS) && !has(&tool.words, &ABOUT)
}

/// Whether the argument takes a password, a key or a cookie, of a tool whose name is not about authentication, accounts or
/// requests.
fn is_unrelated_secret(argument: &[String], tool: &ToolContext<'_>) -> bool {
    const SECRETS: [&[&str]; 17] = [
        &["password"],
        &["passwd"],
        &["passphrase"],
        &["secret"],
        &["apikey"],
        &["cookie"],
        &["cookies"],
        &["credential"],
        &["credentials"],
        &["mnemonic"],
        &["seed", "phrase"],
        &["private", "key"],
        &["ssh", "key"],
        &["api", "key"],
        &["access", "token"],
        &["auth", "token"],
        &["bearer", "token"],
    ];
    #[rustfmt::skip]
    const ABOUT: [&str; 50] = [
        "login", "auth", "authenticate", "token", "secret", "secrets", "password", "passwords", "key", "keys", "credential",
        "credentials", "sign", "vault", "connect", "account", "user", "users", "wallet", "encrypt", "decrypt", "protect",
        "unprotect", "configure", "config", "setup", "init", "initialize", "register", "set", "create", "cookie", "cookies",
        "session", "hash", "ssh", "database", "db", "smtp", "email", "mail", "unlock", "pdf", "zip", "browser", "verify",
        "http", "request", "fetch", "join",
    ];
    has_group(argument, &SECRETS) && !has(&tool.words, &ABOUT)
}

impl ToolContext<'_> {
    /// A tool without a known name or other arguments.
    const NONE: Self = Self { words: Vec::new(), beside: Vec::new() };
}

/// Reviews the definition of a tool.
#[must_use]
pub fn tool(definition: Value<'_>) -> Vec<DefinitionRemark> {
    let name = definition.get("name").and_then(Value::as_str).unwrap_or_default();
    let name = crate::definition::drift::words_of(&name).collect();
    let mut reviewer = Reviewer { remarks: Vec::new(), name, open: None, bounds: None };
    reviewer.description(definition);
    reviewer.name(definition);
    reviewer.claims(definition);
    match definition.get("inputSchema").filter(|schema| schema.is_object()) {
        Some(schema) => reviewer.input(schema),
        None => reviewer.note(
            "no-input-schema",
            Severity::Low,
            "/inputSchema",
            "it does not say what arguments it takes",
            "pin it, and see what arguments callers send before you grant it widely",
        ),
    }
    reviewer.output(definition);
    reviewer.remarks
}

struct Reviewer {
    remarks: Vec<DefinitionRemark>,
    /// Words of the tool's name.
    name: Vec<String>,
    /// Place of the first schema that accepts undeclared members, and of the first unbounded value.
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
            self.remarks.push(DefinitionRemark { rule, severity, at: at.to_owned(), note, fix });
        }
    }

    fn description(&mut self, definition: Value<'_>) {
        let text = definition.get("description").and_then(Value::as_str).unwrap_or_default();
        let text = text.to_lowercase();
        let at = "/description";
        if text.trim().len() < 10 {
            return self.note(
                "no-description",
                Severity::Low,
                at,
                "it does not say what it does",
                "find out what it does before you approve it",
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
                Severity::Low,
                at,
                "it says that it does anything",
                "grant it to few callers, and limit its arguments by `policy.constraints`",
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
                "nothing; a model chooses better among tools that say so",
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
                Severity::Info,
                "/name",
                "its name has a version, a date or a random part in it",
                "expect to change rules and approvals when it is renamed",
            );
        }
    }

    /// Remarks on a tool that claims to be read-only or additive while its name indicates more. With the hint
    /// `destructiveHint: false` a tool claims to be additive (SPEC 2025-11-25 schema ToolAnnotations), which tools that
    /// create or send may be.
    fn claims(&mut self, definition: Value<'_>) {
        const DESTROYS: [&str; 7] =
            ["delete", "remove", "drop", "purge", "kill", "revoke", "uninstall"];
        const WRITES: [&str; 10] = [
            "send", "write", "create", "update", "pay", "transfer", "deploy", "install", "grant",
            "post",
        ];
        let name = definition.get("name").and_then(Value::as_str).unwrap_or_default();
        let first = crate::definition::drift::words_of(&name).next().unwrap_or_default();
        let (destroys, writes) =
            (DESTROYS.contains(&first.as_str()), WRITES.contains(&first.as_str()));
        let is_read_only = ReadOnlyHint::of(definition) == ReadOnlyHint::Claimed;
        let reads = is_read_only && (destroys || writes);
        let is_false = |hint: Value<'_>| hint.kind() != Shape::Null && !hint.may_be_true();
        let adds = hints(definition, "destructiveHint").any(is_false);
        if reads || adds && destroys {
            self.note(
                "claims-harmless",
                Severity::Medium,
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
                Severity::Info,
                "/inputSchema/properties",
                "all arguments are plain strings",
                "say in `policy.constraints` what they may be, where it matters",
            );
        }
        self.schema(schema, "/inputSchema", 0);
        if let Some(at) = self.open.take() {
            self.note(
                "open-properties",
                Severity::Info,
                &at,
                "arguments are admitted that have no name here",
                "set `undeclaredArguments: enforce` for the server, if only declared ones are meant",
            );
        }
        if let Some(at) = self.bounds.take() {
            self.note(
                "missing-bounds",
                Severity::Info,
                &at,
                "a value may be as long or as large as it likes",
                "nothing; the limits of the gateway bound every message",
            );
        }
    }

    /// INVARIANT: the recursion depth is bounded by [`DEEPEST`].
    fn schema(&mut self, schema: Value<'_>, at: &str, depth: usize) {
        if depth > DEEPEST {
            return self.note(
                "deep-schema",
                Severity::Medium,
                at,
                "a schema inside more schemas than anybody reads",
                "look at it in parts before you approve it",
            );
        }
        let is_text = |key: &str| schema.get(key).and_then(Value::as_str);
        if is_text("$ref").is_some_and(|to| !to.starts_with('#')) {
            self.note(
                "remote-ref",
                Severity::Medium,
                at,
                "a part of the schema is somewhere else, and can be another tomorrow",
                "ask for a definition with the schema in it: the gateway does not fetch it and cannot check arguments by it",
            );
        }
        let properties = schema.get("properties");
        let closed = schema.get("additionalProperties").or(schema.get("unevaluatedProperties"));
        let is_closed =
            closed.is_some_and(|value| value.as_bool() == Some(false) || value.is_object());
        if properties.is_some() && !is_closed && self.open.is_none() {
            self.open = Some(at.to_owned());
        }
        let beside = properties.into_iter().flat_map(Value::members).map(|(name, _)| name);
        let tool = ToolContext { words: self.name.clone(), beside: beside.collect() };
        for (name, value) in properties.into_iter().flat_map(Value::members) {
            let at = format!("{at}/properties/{}", escaped(&name));
            self.argument(&name, value, &tool, &at);
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
        if is_unbounded(schema) && self.bounds.is_none() {
            self.bounds = Some(at.to_owned());
        }
    }

    fn argument(&mut self, name: &str, value: Value<'_>, tool: &ToolContext<'_>, at: &str) {
        let words: Vec<String> = crate::definition::drift::words_of(name).collect();
        for ArgumentRule { rule, severity, note, fix, is, of } in ARGUMENTS {
            if of.has(value) && is(&words, tool) {
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
                "nothing; results are looked at as text",
            );
        };
        if admits_html(schema, 0) {
            self.note(
                "html-output",
                Severity::Info,
                "/outputSchema",
                "it returns HTML",
                "see `activeMarkup` under `policy.content`: markup in a result can carry more than is seen",
            );
        }
    }
}

impl ArgumentTypes {
    /// Whether the schema of an argument permits one of these types.
    fn has(self, schema: Value<'_>) -> bool {
        let is = |value: Value<'_>, wanted: &[&str]| {
            value.as_str().is_some_and(|kind| wanted.contains(&&*kind))
        };
        let listed = ["enum", "const", "pattern"].iter().any(|key| schema.get(key).is_some());
        let wanted: &[&str] = match self {
            Self::FreeText if listed => return false,
            Self::FreeText => &["string", "array"],
            Self::Any => &["string", "array", "boolean"],
        };
        // A schema without a type permits all types.
        schema
            .get("type")
            .is_none_or(|kind| is(kind, wanted) || kind.items().any(|kind| is(kind, wanted)))
    }
}

/// Whether a schema admits values of any length or size.
fn is_unbounded(schema: Value<'_>) -> bool {
    let kind = schema.get("type").and_then(Value::as_str);
    match kind.as_deref() {
        Some("string") => !is_bounded(schema),
        Some("number" | "integer") => {
            !is_bounded(schema)
                && schema.get("maximum").is_none()
                && schema.get("exclusiveMaximum").is_none()
        }
        Some("array") => schema.get("maxItems").is_none(),
        _ => false,
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
        crate::definition::drift::words_of(name)
            .any(|word| matches!(&*word, "html" | "markup" | "svg"))
    };
    if properties.any(|(name, value)| named(&name) || admits_html(value, depth + 1)) {
        return true;
    }
    let inner = schema.get("items").filter(|items| items.kind() == Shape::Object);
    inner.is_some_and(|items| admits_html(items, depth + 1))
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds};

    use super::{Severity, tool};
    use serde_json::{Value, json};

    fn remarks(definition: &Value) -> Vec<(&'static str, Severity)> {
        let text = definition.to_string();
        let document = Document::parse(text.into(), &JsonBounds::MESSAGE).unwrap();
        tool(document.root()).into_iter().map(|remark| (remark.rule, remark.severity)).collect()
    }

    fn rules(definition: &Value) -> Vec<&'static str> {
        remarks(definition).into_iter().map(|(rule, _)| rule).collect()
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
            (argument("paths", text()), "free-path"),
            (argument("bcc", text()), "arbitrary-recipient"),
            (argument("is_admin", json!({ "type": "boolean" })), "self-declared-privilege"),
            (argument("sessionSummary", text()), "asks-for-context"),
            (argument("system_prompt", text()), "asks-for-context"),
            (argument("db_password", text()), "asks-for-secret"),
            (argument("apiKey", text()), "asks-for-secret"),
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

    /// A tool with one argument.
    fn taking(tool: &str, argument: &str, kind: &str) -> Value {
        let mut definition = good();
        definition["name"] = tool.into();
        definition["inputSchema"]["properties"][argument] =
            json!({ "type": kind, "maxLength": 9, "maxItems": 9 });
        definition
    }

    #[test]
    fn what_only_sounds_like_it_is_not_remarked_on() {
        for (tool, argument, kind) in [
            ("get_quota", "service_code", "string"),
            ("get_country", "code", "string"),
            ("get_result", "command_id", "string"),
            ("analyse", "source_code", "string"),
            ("get_ticket", "conversation_id", "string"),
            ("get_ticket", "secretary", "string"),
            ("summarize_chat", "transcript", "string"),
            ("reset_user", "password", "string"),
            ("profile_app", "focusOnUserCode", "boolean"),
            ("list_runs", "exec", "boolean"),
            ("read_report", "bank_statement", "string"),
            ("get_user", "email", "string"),
            ("count_days", "date_to", "string"),
            ("find_owner", "admin_email", "string"),
            ("count_files", "files", "integer"),
        ] {
            assert_eq!(remarks(&taking(tool, argument, kind)), [], "{tool} {argument}");
        }
        let mut relation = taking("create_relation", "to", "string");
        relation["inputSchema"]["properties"]["from"] = json!({ "type": "string", "maxLength": 9 });
        assert_eq!(remarks(&relation), []);
    }

    #[test]
    fn nothing_is_as_grave_as_what_the_gateway_withholds() {
        let medium = Severity::Medium;
        for (definition, expected) in [
            (taking("run", "command", "string"), ("free-command", medium)),
            (taking("run_code", "code", "string"), ("free-command", medium)),
            (taking("start", "shellCommand", "string"), ("free-command", medium)),
            (taking("start", "command_to_run", "string"), ("free-command", medium)),
            (taking("start", "python_code", "string"), ("free-command", medium)),
            (taking("query", "sql_query", "string"), ("free-sql", medium)),
            (taking("query", "statement", "string"), ("free-sql", medium)),
            (taking("close", "bypass_checks", "boolean"), ("self-declared-privilege", medium)),
            (taking("get", "repo_path", "string"), ("free-path", Severity::Low)),
            (taking("get", "url", "string"), ("free-url", Severity::Low)),
            (taking("send_mail", "to", "array"), ("arbitrary-recipient", Severity::Low)),
            (taking("send_code", "email", "string"), ("arbitrary-recipient", Severity::Low)),
            (taking("add", "role", "string"), ("self-declared-privilege", Severity::Info)),
        ] {
            assert_eq!(remarks(&definition), [expected], "{definition}");
        }
    }

    #[test]
    fn a_hint_is_doubted_only_where_the_name_says_otherwise() {
        let doubted = |name: &str, hint: &str, value: bool| {
            let mut definition = good();
            definition["name"] = name.into();
            definition["annotations"] = json!({ hint: value });
            rules(&definition) == ["claims-harmless"]
        };
        for name in ["create_directory", "create_entities", "send_mail", "write_note", "run_query"]
        {
            assert!(!doubted(name, "destructiveHint", false), "{name}");
        }
        assert!(!doubted("run_query", "readOnlyHint", true));
        for name in ["delete_file", "purge_queue"] {
            assert!(doubted(name, "destructiveHint", false) && doubted(name, "readOnlyHint", true));
        }
        assert!(doubted("create_file", "readOnlyHint", true));
        let mut spelled = good();
        spelled["name"] = "delete_file".into();
        for annotations in [json!({ "read_only_hint": "yes" }), json!({ "destructiveHint": "no" })]
        {
            spelled["annotations"] = annotations;
            assert_eq!(rules(&spelled), ["claims-harmless"], "{spelled}");
        }
    }
}
