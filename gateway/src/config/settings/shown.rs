//! Prints a configuration as written in its file, optionally with defaults and the line of each value. Variables
//! are printed by name; secrets must never be printed.

use std::fmt::Write as _;

use detection::content::Direction;
use json::pointer::escaped;
use serde_json::Value;

use super::effective::{self, EffectiveValues};
use super::problem::ConfigProblem;
use super::variables::{VariableFallback, VariableReference, replaced};
use super::yaml::{NodeKind, YamlNode};
use super::{ConfigProblems, ConfigText, Settings, shape, yaml};

/// What is printed in addition to the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrintOptions {
    /// Print the defaults of keys that are left out.
    pub defaults: bool,
    /// Print the line of each value.
    pub origin: bool,
}

/// Keys whose values are not printed, by the prefix of their JSON Pointer.
const HIDDEN: [&str; 1] = ["/policy/canaries"];
/// The text in place of a value that is not printed.
const HIDING: &str = " (not shown)";

/// Decides which values may be printed.
pub trait PrintFilter {
    /// Whether the literal value of the variable or header `name` may be printed.
    fn value(&self, name: &str, text: &str) -> bool;
    /// Whether an argument of a program may be printed, given the argument before it.
    fn argument(&self, before: Option<&str>, text: &str) -> bool;
    /// Whether a URL may be printed.
    fn url(&self, text: &str) -> bool;
}

/// Prints the configuration `text`, from which `settings` were compiled, as YAML.
///
/// # Errors
/// If the text is not YAML.
pub fn show(
    ConfigText { file, text }: ConfigText<'_>,
    settings: &Settings,
    with: PrintOptions,
    judge: &dyn PrintFilter,
) -> Result<String, ConfigProblems> {
    let wrong = |found: Vec<ConfigProblem>| ConfigProblems::new(file, text, found);
    let root = yaml::parse(text).map_err(wrong)?;
    let schema = shape::schema();
    let effective = EffectiveValues::of(settings);
    let mut shown =
        ConfigPrinter { text, schema: &schema, with, judge, effective, out: String::new() };
    shown.node(&root, &schema, "", 0);
    Ok(shown.out)
}

struct ConfigPrinter<'a> {
    text: &'a str,
    schema: &'a Value,
    with: PrintOptions,
    judge: &'a dyn PrintFilter,
    effective: EffectiveValues,
    out: String,
}

impl ConfigPrinter<'_> {
    /// Prints the node at `at`, with `deep` levels of indentation.
    fn node(&mut self, node: &YamlNode, schema: &Value, at: &str, deep: usize) {
        let schema = self.followed(schema);
        match &node.kind {
            NodeKind::Scalar(_) => {}
            NodeKind::Sequence(items) => {
                let of_items = schema.get("items").cloned().unwrap_or_default();
                let arguments = at.ends_with("/args") || at.ends_with("/fromCommand");
                let mut before = None;
                for (n, item) in items.iter().enumerate() {
                    let at = format!("{at}/{n}");
                    write!(self.out, "{}-", "  ".repeat(deep)).unwrap_or_default();
                    let text = scalar(item).filter(|_| arguments);
                    if text.is_some_and(|text| !self.judge.argument(before, text)) {
                        self.line(HIDING, item);
                    } else {
                        self.value(item, &of_items, &at, deep);
                    }
                    before = text;
                }
            }
            NodeKind::Mapping(members) => {
                let properties = schema.get("properties").cloned().unwrap_or_default();
                let name = members.iter().find(|(key, _)| key.text == "name");
                let name = name.and_then(|(_, node)| scalar(node)).unwrap_or_default();
                for (key, member) in members {
                    let of_member = properties.get(&key.text).cloned().unwrap_or_default();
                    let at = format!("{at}/{}", escaped(&key.text));
                    write!(self.out, "{}{}:", "  ".repeat(deep), quoted(&key.text))
                        .unwrap_or_default();
                    let literal = key.text == "value" && !name.is_empty();
                    let secret =
                        literal && scalar(member).is_some_and(|text| !self.judge.value(name, text));
                    if secret || HIDDEN.iter().any(|hidden| at.starts_with(hidden)) {
                        self.line(HIDING, member);
                        continue;
                    }
                    self.value(member, &of_member, &at, deep);
                }
                // The keys of a sink depend on its kind, so that defaults would mislead.
                if self.with.defaults && !at.starts_with("/audit/sinks") {
                    let written: Vec<_> = members.iter().map(|(key, _)| &*key.text).collect();
                    self.defaults(&schema, &written, at, deep);
                    if written.contains(&"command") && !written.contains(&"sandbox") {
                        self.sandbox(name, deep);
                    }
                }
            }
        }
    }

    /// Prints the value after a key or a dash.
    fn value(&mut self, node: &YamlNode, schema: &Value, at: &str, deep: usize) {
        match &node.kind {
            // Overrides are public to all callers.
            NodeKind::Scalar(one)
                if one.text.contains("://")
                    && !at.contains("/overrides/")
                    && !self.judge.url(&one.text) =>
            {
                self.line(HIDING, node);
            }
            NodeKind::Scalar(one) => {
                let text = without_defaults(&one.text);
                let text = if one.plain { text } else { quoted(&text) };
                self.line(&format!(" {text}"), node);
            }
            NodeKind::Sequence(items) if items.is_empty() => self.line(" []", node),
            // An empty mapping still has defaults.
            NodeKind::Mapping(members) if members.is_empty() => {
                let before = self.out.len();
                self.line("", node);
                let head = self.out.len();
                if self.with.defaults {
                    self.node(node, schema, at, deep + 1);
                }
                if self.out.len() == head {
                    self.out.truncate(before);
                    self.line(" {}", node);
                }
            }
            NodeKind::Sequence(_) | NodeKind::Mapping(_) => {
                self.line("", node);
                self.node(node, schema, at, deep + 1);
            }
        }
    }

    fn line(&mut self, text: &str, node: &YamlNode) {
        self.out.push_str(text);
        if self.with.origin {
            let before = self.text.get(..node.span.start).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let variable = scalar(node).is_some_and(|text| text.replace("$${", "").contains("${"));
            let variable = if variable { ", a variable" } else { "" };
            write!(self.out, "  # line {line}{variable}").unwrap_or_default();
        }
        self.out.push('\n');
    }

    /// Prints the defaults of keys in `schema` at `at` that are not `written`, and of sections that are left out.
    fn defaults(&mut self, schema: &Value, written: &[&str], at: &str, deep: usize) {
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |name: &str| {
            required.is_some_and(|all| all.iter().any(|one| one.as_str() == Some(name)))
        };
        let indent = "  ".repeat(deep);
        let properties = schema.get("properties").and_then(Value::as_object).cloned();
        for (name, property) in properties.unwrap_or_default() {
            if written.contains(&name.as_str()) || is_required(&name) {
                continue;
            }
            let place = format!("{at}/{name}");
            let known = self.effective.at(&place).map(str::to_owned);
            if let Some(usual) =
                known.or_else(|| handling(at, &name)).or_else(|| self.usual(&property))
            {
                let origin = self.effective.origin(&place);
                writeln!(self.out, "{indent}{name}: {usual}  # {origin}").unwrap_or_default();
            } else if place == "/policy/content" {
                self.content(&indent);
            } else if property.get("$ref").is_some() {
                // The section is always present. An optional section, which may be absent, is not a plain
                // reference.
                let section = self.followed(&property);
                let before = self.out.len();
                writeln!(self.out, "{indent}{name}:  # default").unwrap_or_default();
                let head = self.out.len();
                self.defaults(&section, &[], &place, deep + 1);
                if self.out.len() == head {
                    self.out.truncate(before);
                }
            }
        }
    }

    /// Prints the default actions on results and arguments, for servers without an entry.
    fn content(&mut self, indent: &str) {
        writeln!(self.out, "{indent}content:  # default\n{indent}  - servers: [\"*\"]")
            .unwrap_or_default();
        for (name, direction) in
            [("results", Direction::Result), ("arguments", Direction::Argument)]
        {
            writeln!(self.out, "{indent}    {name}:").unwrap_or_default();
            for (detector, handling) in effective::content(direction) {
                writeln!(self.out, "{indent}      {detector}: {handling}  # default")
                    .unwrap_or_default();
            }
        }
    }

    /// Prints the default sandbox of a program.
    fn sandbox(&mut self, server: &str, deep: usize) {
        let indent = "  ".repeat(deep);
        writeln!(self.out, "{indent}sandbox:  # default").unwrap_or_default();
        for (name, text) in self.effective.sandbox_of(server) {
            writeln!(self.out, "{indent}  {name}: {text}  # default").unwrap_or_default();
        }
    }

    fn usual(&self, property: &Value) -> Option<String> {
        match property.get("default") {
            Some(Value::Null | Value::Object(_) | Value::Array(_)) | None => {}
            Some(usual) => return Some(usual.to_string()),
        }
        // If the schema has no default, the description has it: "Default `60s`."
        let words = property.get("description")?.as_str()?;
        let (_, rest) = words.split_once("Default ")?;
        let end = rest.find([',', ';', '\n']).unwrap_or(rest.len());
        let rest = rest.get(..end)?.trim_end_matches('.');
        // "Default half of `inFlight`" has no value to print.
        if let Some(value) = rest.strip_prefix('`') {
            return value.split_once('`').map(|(value, _)| value.to_owned());
        }
        let number = rest.split(['.', ' ']).next()?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| number.to_owned())
    }

    /// The target of the `$ref` in a schema, or of the one in an optional value.
    fn followed(&self, schema: &Value) -> Value {
        let one = |schema: &Value| {
            let reference = schema.get("$ref").and_then(Value::as_str);
            reference.and_then(|reference| self.schema.pointer(reference.trim_start_matches('#')))
        };
        if let Some(found) = one(schema) {
            return found.clone();
        }
        let options = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
        let mut found = options.filter_map(one);
        found.next().unwrap_or(schema).clone()
    }
}

/// The default action of the detector `name` in an entry of `content`.
fn handling(at: &str, name: &str) -> Option<String> {
    let entry = at.strip_prefix("/policy/content/")?;
    let direction = match entry.split_once('/')?.1 {
        "results" => Direction::Result,
        "arguments" => Direction::Argument,
        _ => return None,
    };
    let mut all = effective::content(direction);
    all.find(|(detector, _)| *detector == name).map(|(_, handling)| handling.to_owned())
}

/// `text` without the default values of variables, which may be secrets.
fn without_defaults(text: &str) -> String {
    replaced(text, |inner| {
        let VariableReference { name, fallback } = VariableReference::of(inner);
        match fallback {
            VariableFallback::None | VariableFallback::Message(_) => format!("${{{inner}}}"),
            VariableFallback::Default(_) | VariableFallback::Malformed => format!("${{{name}}}"),
        }
    })
}

fn scalar(node: &YamlNode) -> Option<&str> {
    match &node.kind {
        NodeKind::Scalar(scalar) => Some(&scalar.text),
        NodeKind::Sequence(_) | NodeKind::Mapping(_) => None,
    }
}

/// Quotes a string as JSON, which is also YAML, unless it is plainly a word.
fn quoted(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.'))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&&*text.to_ascii_lowercase());
    if plain { text.to_owned() } else { Value::from(text).to_string() }
}
