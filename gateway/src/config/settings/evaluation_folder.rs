//! Reads a folder for `portcullis eval`: definitions of tools, examples of requests, and limits on arguments.

mod line;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evaluation::example::Example;
use evaluation::suite::ArgumentDemands;
use evaluation::tool::ToolName;
use json::{Document, Fragment, JsonBounds, Value};
use policy::definition::lock::{ApprovalState, Lockfile};
use policy::definition::offer::ItemKind;
use policy::rules::constraint::{ArgumentLimits, Constraint};
use policy::rules::decision::Mode;
use serde::Deserialize;

use super::problem::{ConfigProblem, ConfigProblems};
use super::yaml::{self, YamlNode};
use line::ExampleReader;

/// Maximum number of files in the folder.
const FILES: usize = 10_000;
/// Maximum size of a file, in bytes.
const MAX_FILE: u64 = 16 * 1024 * 1024;
/// Maximum number of examples in all files.
const EXAMPLES: usize = 100_000;
/// Keys of a `NAME.policy.yaml` that say something to the registry and nothing here.
const OF_REGISTRY: [&str; 14] = [
    "owner",
    "version",
    "effect",
    "dataClass",
    "approvalRequired",
    "resourceScope",
    "timeout",
    "retries",
    "idempotent",
    "cost",
    "mayRepeat",
    "fields",
    "flow",
    "rate",
];

/// A definition with its server.
#[derive(Clone, Debug)]
pub struct GivenDefinition {
    /// The server; empty if it is not known.
    pub server: Box<str>,
    /// The definition of the tool, as the file has it.
    pub document: Arc<Document>,
}

impl GivenDefinition {
    /// The name of the tool, with that of its server.
    #[must_use]
    pub fn name(&self) -> ToolName {
        let name = self.document.root().get("name").and_then(Value::as_str).unwrap_or_default();
        ToolName { server: self.server.clone(), name: name.into() }
    }
}

/// Where the definitions of a folder belong.
#[derive(Debug, Default)]
pub struct FolderContext {
    /// Definitions that are known besides: of the lockfile, or of the one that is compared with.
    pub known: Vec<GivenDefinition>,
    /// The only server of the configuration, to which definitions without a server belong.
    pub server: Option<Box<str>>,
}

/// The content of a folder.
#[derive(Debug, Default)]
pub struct EvaluationFolder {
    /// The definitions of all tools of the folder.
    pub definitions: Vec<GivenDefinition>,
    /// The examples of all tools of the folder.
    pub examples: Vec<Example>,
    /// What is demanded of arguments besides the schemas.
    pub demands: BTreeMap<ToolName, ArgumentDemands>,
    /// The texts of the files with examples and limits, in the order of their names.
    pub texts: Vec<Vec<u8>>,
}

/// The limits on the arguments of one tool as written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawDemands {
    /// The name of the tool's server.
    server: Option<Box<str>>,
    /// The tool, by the server's own name for it.
    tool: Option<Box<str>>,
    /// Limits on the arguments of a tool.
    constraints: Vec<ArgumentLimits>,
    /// Names of arguments that no call may have.
    forbidden_arguments: Vec<Box<str>>,
}

/// Reads a folder.
///
/// # Errors
/// Every problem of every file, with its line and what to do.
pub fn read(
    folder: &Path,
    context: &FolderContext,
) -> Result<EvaluationFolder, Vec<ConfigProblems>> {
    let mut reader =
        FolderReader { folder, context, read: EvaluationFolder::default(), problems: Vec::new() };
    match stems(folder) {
        Ok(stems) => reader.all(&stems),
        Err(message) => {
            let help = "name a folder with a file `NAME.schema.json` for each tool";
            reader.report(folder, "", vec![ConfigProblem::new(0..0, message, help)]);
        }
    }
    if reader.problems.is_empty() { Ok(reader.read) } else { Err(reader.problems) }
}

/// The names of the tools' files, with the ends that there are of each.
fn stems(folder: &Path) -> Result<BTreeMap<String, Vec<&'static str>>, String> {
    let unread = |error: std::io::Error| format!("the folder could not be read: {error}");
    let mut stems: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    for (n, entry) in fs::read_dir(folder).map_err(unread)?.enumerate() {
        if n >= FILES {
            return Err(format!("the folder has more than {FILES} files"));
        }
        let name = entry.map_err(unread)?.file_name().to_string_lossy().into_owned();
        for end in [SCHEMA, POLICY, CASES] {
            if let Some(stem) = name.strip_suffix(end) {
                stems.entry(stem.to_owned()).or_default().push(end);
            }
        }
    }
    if stems.is_empty() {
        return Err("the folder has no definition".to_owned());
    }
    Ok(stems)
}

/// The end of the name of a file with a definition.
const SCHEMA: &str = ".schema.json";
/// The end of the name of a file with limits on arguments.
const POLICY: &str = ".policy.yaml";
/// The end of the name of a file with examples.
const CASES: &str = ".examples.jsonl";

/// A problem of a file without a place in it.
fn of_file(message: impl Into<String>, help: &str) -> Vec<ConfigProblem> {
    vec![ConfigProblem::new(0..0, message, help)]
}

/// Collects the content of a folder, and its problems.
struct FolderReader<'a> {
    folder: &'a Path,
    context: &'a FolderContext,
    read: EvaluationFolder,
    problems: Vec<ConfigProblems>,
}

impl FolderReader<'_> {
    fn report(&mut self, file: &Path, text: &str, found: Vec<ConfigProblem>) {
        self.problems.push(ConfigProblems::new(&file.display().to_string(), text, found));
    }

    fn path(&self, stem: &str, end: &str) -> PathBuf {
        self.folder.join(format!("{stem}{end}"))
    }

    /// The text of a file; `None` if it cannot be read, which is reported.
    fn text(&mut self, file: &Path) -> Option<String> {
        match crate::base::file::text(file, MAX_FILE) {
            Ok(text) => Some(text),
            Err(error) => {
                let help = "make it a readable file of UTF-8 with at most 16 MiB";
                self.report(file, "", of_file(format!("it could not be read: {error}"), help));
                None
            }
        }
    }

    /// Reads the definitions first, since examples of one tool can name others.
    fn all(&mut self, stems: &BTreeMap<String, Vec<&'static str>>) {
        let mut names = BTreeMap::new();
        for (stem, ends) in stems {
            let demands = match ends.contains(&POLICY) {
                true => self.demands(&self.path(stem, POLICY)),
                false => Some(RawDemands::default()),
            };
            let Some(demands) = demands else { continue };
            if let Some(name) = self.definition(stem, ends, &demands) {
                self.compiled(&self.path(stem, POLICY), &name, demands);
                names.insert(stem, name);
            }
        }
        let given: Vec<ToolName> =
            self.read.definitions.iter().map(GivenDefinition::name).collect();
        let mut all = given.clone();
        all.extend(self.context.known.iter().map(GivenDefinition::name));
        all.sort();
        all.dedup();
        for (stem, ends) in stems {
            let Some(name) = names.get(stem).filter(|_| ends.contains(&CASES)) else { continue };
            self.examples(&self.path(stem, CASES), name, &all);
        }
        if self.read.examples.is_empty() && self.problems.is_empty() {
            let help =
                "write examples of requests to `NAME.examples.jsonl`, one JSON object a line";
            self.report(self.folder, "", of_file("the folder has no example", help));
        }
    }

    /// Reads the limits on arguments.
    fn demands(&mut self, file: &Path) -> Option<RawDemands> {
        let text = self.text(file)?;
        self.read.texts.push(text.clone().into_bytes());
        let root = match yaml::parse(&text) {
            Ok(root) => root,
            Err(found) => {
                self.report(file, &text, found);
                return None;
            }
        };
        let json = root.json();
        let known = |key: &str| {
            OF_REGISTRY.contains(&key)
                || ["server", "tool", "constraints", "forbiddenArguments"].contains(&key)
        };
        let members = json.as_object().into_iter().flatten();
        let unknown = members.filter(|(key, _)| !known(key));
        let unknown: Vec<_> = unknown
            .map(|(key, _)| {
                let help = "write `constraints` or `forbiddenArguments`, or a key of the registry";
                ConfigProblem::new(root.key_place("", key), format!("unknown key `{key}`"), help)
            })
            .collect();
        if !unknown.is_empty() {
            self.report(file, &text, unknown);
            return None;
        }
        match RawDemands::deserialize(json) {
            Ok(demands) => Some(demands),
            Err(error) => {
                let place = place_of(&root, &error.to_string());
                let help =
                    "write `constraints` as `policy.constraints` of a configuration has them";
                self.report(file, &text, vec![ConfigProblem::new(place, error.to_string(), help)]);
                None
            }
        }
    }

    /// Compiles the limits on the arguments of a tool.
    fn compiled(&mut self, file: &Path, name: &ToolName, raw: RawDemands) {
        let mut demands =
            ArgumentDemands { constraints: Vec::new(), forbidden: raw.forbidden_arguments };
        for (n, limits) in raw.constraints.into_iter().enumerate() {
            match Constraint::new(Vec::new(), limits) {
                Ok(constraint) if constraint.mode == Mode::Off => {}
                Ok(constraint) => demands.constraints.push(constraint),
                Err((member, message)) => {
                    let Some(text) = self.text(file) else { return };
                    let at = format!("/constraints/{n}/{member}");
                    let place = yaml::parse(&text).map_or(0..0, |root| root.place(&at));
                    let help = "correct it; docs/content.md describes constraints";
                    self.report(file, &text, vec![ConfigProblem::new(place, message, help)]);
                }
            }
        }
        self.read.demands.insert(name.clone(), demands);
    }

    /// Reads a definition, or takes that of the lockfile, and returns its name.
    fn definition(&mut self, stem: &str, ends: &[&str], demands: &RawDemands) -> Option<ToolName> {
        let file = self.path(stem, SCHEMA);
        let tool = demands.tool.clone().unwrap_or_else(|| stem.into());
        let server = demands.server.clone().or_else(|| self.context.server.clone());
        if !ends.contains(&SCHEMA) {
            let known = self.known(server.as_deref(), &tool).map(GivenDefinition::name);
            if known.is_none() {
                let help = "write the definition of the tool to it, or approve the tool and name the configuration with `-c`";
                self.report(&file, "", of_file("there is no such file", help));
            }
            return known;
        }
        let text = self.text(&file)?;
        let parsed = Document::parse(text.clone().into(), &JsonBounds::ANSWER);
        let document = match parsed {
            Ok(document) => Arc::new(document),
            Err(error) => {
                let help = "correct it: it is read like the answer of a server";
                self.report(&file, &text, of_file(format!("no definition: {error}"), help));
                return None;
            }
        };
        let (is_definition, named) =
            (document.root().get("inputSchema").is_some(), document.root().get("name"));
        let document = match is_definition || named.and_then(Value::as_str).is_some() {
            true => document,
            false => self.with_schema(server.as_deref(), &tool, document.root())?,
        };
        let name = document.root().get("name").and_then(Value::as_str);
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            let help = "write the definition as `tools/list` has it: with `name`, `description` and `inputSchema`";
            self.report(&file, &text, of_file("the definition has no name", help));
            return None;
        };
        let server = server.or_else(|| Some(self.known(None, &name)?.server.clone()));
        let given = GivenDefinition { server: server.unwrap_or_default(), document };
        let name = given.name();
        if self.read.definitions.iter().any(|other| other.name() == name) {
            let message = format!("there is another definition of `{name}` in the folder");
            let help = "remove one of the two, or name their servers in `NAME.policy.yaml`";
            self.report(&file, &text, of_file(message, help));
            return None;
        }
        self.read.definitions.push(given);
        Some(name)
    }

    /// The definition of a tool that is known besides, if there is one of that name.
    fn known(&self, server: Option<&str>, tool: &str) -> Option<&GivenDefinition> {
        let is = |one: &&GivenDefinition| {
            server.is_none_or(|server| *one.server == *server) && *one.name().name == *tool
        };
        let mut known = self.context.known.iter().filter(is);
        let first = known.next()?;
        // Several servers have a tool of this name.
        known.all(|other| other.server == first.server).then_some(first)
    }

    /// A definition of which the file has the input schema alone, as in a folder of the registry: the rest is that of the
    /// lockfile.
    fn with_schema(
        &self,
        server: Option<&str>,
        tool: &str,
        schema: Value<'_>,
    ) -> Option<Arc<Document>> {
        let known = self.known(server, tool);
        let members = known.into_iter().flat_map(|one| one.document.root().members());
        let others = members.filter(|(name, _)| !matches!(&**name, "name" | "inputSchema"));
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut text = format!("{{\"name\":{},\"inputSchema\":{}", quoted(tool), schema.raw());
        for (name, value) in others {
            text.push_str(&format!(",{}:{}", quoted(&name), value.raw()));
        }
        text.push('}');
        Document::parse(text.into(), &JsonBounds::ANSWER).ok().map(Arc::new)
    }

    /// Reads the examples of a tool.
    fn examples(&mut self, file: &Path, own: &ToolName, all: &[ToolName]) {
        let Some(text) = self.text(file) else { return };
        self.read.texts.push(text.clone().into_bytes());
        let shown: Box<str> = file.file_name().unwrap_or_default().to_string_lossy().into();
        let (mut found, mut from) = (Vec::new(), 0);
        for (n, line) in text.split('\n').enumerate() {
            let place = from..from + line.len();
            from += line.len() + 1;
            if line.trim().is_empty() {
                continue;
            }
            if self.read.examples.len() >= EXAMPLES {
                let message = format!("there are more than {EXAMPLES} examples");
                found.push(ConfigProblem::new(place, message, "leave some out"));
                break;
            }
            let reader = ExampleReader { own, all, file: &shown, line: n + 1 };
            match reader.read(line) {
                Ok(example) => self.read.examples.push(example),
                Err(mistake) => {
                    found.push(ConfigProblem::new(place, mistake.message, mistake.help));
                }
            }
        }
        if !found.is_empty() {
            self.report(file, &text, found);
        }
    }
}

/// The place of a member that an error names, or of all.
fn place_of(root: &YamlNode, error: &str) -> Range<usize> {
    let key = error.split('`').nth(1).unwrap_or_default();
    let constraints = root.node("/constraints").map(|node| node.span.clone());
    let named = ["server", "tool", "forbiddenArguments"].into_iter().find(|name| *name == key);
    named.map(|name| root.key_place("", name)).or(constraints).unwrap_or(root.span.clone())
}

/// Which version of a tool's definition in a lockfile is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockedChoice {
    /// The approved version; none if there is none.
    Approved,
    /// The proposed one, or else the approved one.
    Proposed,
}

/// The definitions of tools in a lockfile: one version of each tool.
pub fn locked_definitions(lock: &Lockfile, choice: LockedChoice) -> Vec<GivenDefinition> {
    let mut found = Vec::new();
    for (server, locked) in &lock.servers {
        let tools = locked.offers.iter().filter(|((kind, _), _)| *kind == ItemKind::Tool);
        for (_, versions) in tools {
            let last = |state: ApprovalState| versions.iter().rfind(|one| one.state == state);
            let proposed = match choice {
                LockedChoice::Approved => None,
                LockedChoice::Proposed => last(ApprovalState::Pending),
            };
            let version = proposed.or_else(|| last(ApprovalState::Approved));
            let definition = version.map(|version| Fragment::document(&version.definition));
            let given =
                definition.map(|document| GivenDefinition { server: server.clone(), document });
            found.extend(given);
        }
    }
    found
}
