//! Reads one example.

use std::sync::Arc;

use evaluation::example::{Example, ExpectedOutcome, ForbiddenArgument};
use evaluation::tool::ToolName;
use json::{Document, Fragment, JsonBounds, Value};
use policy::flow::label::{Confidentiality, FlowLabels, Integrity};
use policy::rules::decision::Reason;
use selector::query::MAX_QUERY_BYTES;

use super::super::nearest::nearest;

/// Most tools that an example names.
const TOOLS: usize = 64;
/// The members of an example.
const MEMBERS: [&str; 10] = [
    "id",
    "query",
    "tools",
    "arguments",
    "forbiddenTools",
    "forbiddenArguments",
    "principal",
    "flow",
    "expect",
    "reason",
];

/// What is wrong with an example, and what to do.
pub(super) struct ExampleMistake {
    pub(super) message: String,
    pub(super) help: String,
}

fn mistake<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, ExampleMistake> {
    Err(ExampleMistake { message: message.into(), help: help.into() })
}

/// Where an example stands.
pub(super) struct ExampleReader<'a> {
    /// The tool of the file.
    pub(super) own: &'a ToolName,
    /// Every tool that an example can name.
    pub(super) all: &'a [ToolName],
    pub(super) file: &'a str,
    pub(super) line: usize,
}

impl ExampleReader<'_> {
    pub(super) fn read(&self, line: &str) -> Result<Example, ExampleMistake> {
        let document = match Document::parse(line.to_owned().into(), &JsonBounds::MESSAGE) {
            Ok(document) => Arc::new(document),
            Err(error) => return mistake(format!("{error}"), "write one JSON object a line"),
        };
        let root = document.root();
        if !root.is_object() {
            return mistake("this is not an object", "write one JSON object a line");
        }
        for (name, _) in root.members() {
            if !MEMBERS.contains(&&*name) {
                let near = nearest(&name, MEMBERS.iter().copied());
                let help = near.map_or_else(
                    || format!("an example has: {}", MEMBERS.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                return mistake(format!("unknown member `{}`", name.escape_debug()), help);
            }
        }
        let query = text(root, "query")?.unwrap_or_default();
        if query.trim().is_empty() || query.len() > MAX_QUERY_BYTES {
            let message =
                format!("`query` is missing, empty or longer than {MAX_QUERY_BYTES} bytes");
            return mistake(message, "write what a person asks for in `query`");
        }
        let expected = match root.get("tools") {
            Some(tools) => self.names("tools", tools)?,
            None => vec![self.own.clone()],
        };
        if expected.is_empty() {
            return mistake("`tools` is empty", "name the tool, or leave `tools` out");
        }
        let forbidden = root.get("forbiddenTools");
        let forbidden = forbidden.map(|tools| self.names("forbiddenTools", tools)).transpose()?;
        let id = text(root, "id")?.unwrap_or_else(|| format!("{}:{}", self.file, self.line));
        Ok(Example {
            id,
            file: self.file.into(),
            line: self.line,
            query,
            expected,
            forbidden: forbidden.unwrap_or_default(),
            arguments: arguments(root, &document)?,
            forbidden_arguments: forbidden_arguments(root)?,
            outcome: outcome(root)?,
        })
    }

    /// The tools with these names.
    fn names(&self, member: &str, names: Value<'_>) -> Result<Vec<ToolName>, ExampleMistake> {
        if names.items().next().is_none() && names.raw() != "[]" || names.items().count() > TOOLS {
            let help = "write a list of names, such as [\"search\"]";
            return mistake(format!("`{member}` is no list of at most {TOOLS} names"), help);
        }
        let name = |name: Value<'_>| match name.as_str() {
            Some(name) => self.name(&name),
            None => mistake(format!("`{member}` has something that is no text"), "write names"),
        };
        names.items().map(name).collect()
    }

    /// The tool with this name, or with `SERVER/NAME`.
    fn name(&self, name: &str) -> Result<ToolName, ExampleMistake> {
        let named = self.all.iter().filter(|one| *one.name == *name || one.to_string() == name);
        let named: Vec<&ToolName> = named.collect();
        let shown = name.escape_debug();
        match named.as_slice() {
            [] => {
                let names: Vec<String> = self.all.iter().map(ToString::to_string).collect();
                let bare = self.all.iter().map(|one| &*one.name);
                let near = nearest(name, bare.chain(names.iter().map(String::as_str)));
                let help = near.map_or_else(
                    || "name a tool that the folder or the lockfile defines".to_owned(),
                    |near| format!("did you mean `{}`?", near.escape_debug()),
                );
                mistake(format!("there is no tool `{shown}`"), help)
            }
            [one] => Ok((*one).clone()),
            // The tool of the file comes before those of other servers.
            several if several.contains(&self.own) => Ok(self.own.clone()),
            several => {
                let names: Vec<_> = several.iter().map(ToString::to_string).collect();
                mistake(
                    format!("several servers have a tool `{shown}`"),
                    format!("write one of: {}", names.join(", ")),
                )
            }
        }
    }
}

/// The text of a member, if it is there.
fn text(root: Value<'_>, member: &str) -> Result<Option<String>, ExampleMistake> {
    match root.get(member) {
        None => Ok(None),
        Some(value) => match value.as_str() {
            Some(text) => Ok(Some(text.into_owned())),
            None => mistake(format!("`{member}` is no text"), "write it in quotes"),
        },
    }
}

/// The arguments of the call, if there are any.
fn arguments(
    root: Value<'_>,
    document: &Arc<Document>,
) -> Result<Option<Fragment>, ExampleMistake> {
    match root.get("arguments") {
        None => Ok(None),
        Some(arguments) if arguments.is_object() => Ok(Some(arguments.fragment(document))),
        Some(_) => mistake("`arguments` is no object", "write the arguments by their names"),
    }
}

/// The arguments of the call with each forbidden value in place of the expected one.
fn forbidden_arguments(root: Value<'_>) -> Result<Vec<ForbiddenArgument>, ExampleMistake> {
    let Some(forbidden) = root.get("forbiddenArguments") else { return Ok(Vec::new()) };
    let Some(arguments) = root.get("arguments").filter(|_| forbidden.is_object()) else {
        let help =
            "write an object of names and values, and in `arguments` a call that is accepted";
        return mistake("`forbiddenArguments` is no object, or there are no `arguments`", help);
    };
    let mut all = Vec::new();
    for (name, value) in forbidden.members() {
        let others = arguments.members().filter(|(other, _)| *other != name);
        let members = others.chain([(name.clone(), value)]);
        let member = |(name, value): (std::borrow::Cow<'_, str>, Value<'_>)| {
            format!("{}:{}", serde_json::Value::from(&*name), value.raw())
        };
        let text = format!("{{{}}}", members.map(member).collect::<Vec<_>>().join(","));
        match Document::parse(text.into(), &JsonBounds::MESSAGE) {
            Ok(document) => all.push(ForbiddenArgument {
                name: (&*name).into(),
                arguments: Fragment::whole(Arc::new(document)),
            }),
            Err(error) => {
                return mistake(format!("no client could send this: {error}"), "correct it");
            }
        }
    }
    Ok(all)
}

/// The decision that is expected, if a caller is named.
fn outcome(root: Value<'_>) -> Result<Option<ExpectedOutcome>, ExampleMistake> {
    let Some(principal) = text(root, "principal")? else {
        let stray = ["flow", "expect", "reason"].into_iter().find(|name| root.get(name).is_some());
        return match stray {
            None => Ok(None),
            Some(stray) => mistake(
                format!("`{stray}` says what is decided, and nobody calls"),
                "name the caller in `principal`",
            ),
        };
    };
    let allowed = match text(root, "expect")?.as_deref() {
        None | Some("allow") => true,
        Some("deny") => false,
        Some(_) => return mistake("`expect` is neither `allow` nor `deny`", "write one of them"),
    };
    let reason = text(root, "reason")?;
    if let Some(code) = &reason
        && (allowed || !Reason::CODES.contains(&code.as_str()))
    {
        let help = "take the code of a denial from docs/reasons.md, with `\"expect\": \"deny\"`";
        return mistake("`reason` is not the code of a denial that is expected", help);
    }
    let flow = root.get("flow").map(flow_labels).transpose()?.unwrap_or_default();
    Ok(Some(ExpectedOutcome { principal, flow, allowed, reason }))
}

/// What the flow of the caller was shown.
fn flow_labels(flow: Value<'_>) -> Result<FlowLabels, ExampleMistake> {
    let integrities = [Integrity::Trusted, Integrity::Listed, Integrity::Untrusted];
    let confidentialities = [
        Confidentiality::Public,
        Confidentiality::Internal,
        Confidentiality::Confidential,
        Confidentiality::Restricted,
    ];
    let mut labels = FlowLabels::default();
    for (name, value) in flow.members() {
        let value = value.as_str().unwrap_or_default();
        let integrity = integrities.into_iter().find(|one| one.as_str() == value);
        let confidentiality = confidentialities.into_iter().find(|one| one.as_str() == value);
        match (&*name, integrity, confidentiality) {
            ("integrity", Some(integrity), _) => labels.integrity = integrity,
            ("confidentiality", _, Some(one)) => labels.confidentiality = one,
            _ => {
                let help = "write `integrity` (trusted, listed, untrusted) and `confidentiality` (public, internal, \
                            confidential, restricted)";
                return mistake("`flow` has a label that there is not", help);
            }
        }
    }
    if !flow.is_object() {
        return mistake("`flow` is no object", "write {\"integrity\": \"untrusted\"}");
    }
    Ok(labels)
}
