//! Compiles the `registry` section and its directory: the operator's own facts about tools.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use detection::labels::Labels;
use json::{Document, JsonBounds};
use policy::definition::registry::{RateLimit, Registry, RegistryEntry};
use policy::flow::guard::{GivenLabels, ToolFlowLabels, names_argument};
use policy_core::subject::name::ServerName;

use super::compiler::{DefiningSection, SettingsCompiler};
use super::raw::{RawRegistered, RawRegistry};
use super::yaml;
use crate::base::sha256::sha256;

/// Maximum number of files in the directory.
const FILES: usize = 10_000;
/// Maximum size of a file, in bytes.
const MAX_FILE: u64 = 4 * 1024 * 1024;

/// Maximum size of a description, in bytes.
const DESCRIPTION: usize = 8 * 1024;

/// The registry, and what it says for flow control.
#[derive(Debug, Default)]
pub(super) struct CompiledRegistry {
    /// The facts about each tool.
    pub(super) known: Registry,
    /// The labels of tools for flow control.
    pub(super) flow: Vec<ToolFlowLabels>,
}

impl SettingsCompiler<'_> {
    pub(super) fn registry(
        &mut self,
        raw: RawRegistry,
        folder: &Path,
        servers: &[ServerName],
    ) -> CompiledRegistry {
        let mut registry = CompiledRegistry::default();
        for (n, tool) in raw.tools.into_iter().enumerate() {
            let at = format!("/registry/tools/{n}");
            self.registered(&at, tool, None, servers, &mut registry);
        }
        if let Some(name) = raw.folder {
            let at = "/registry/folder";
            let folder = folder.join(name);
            self.uses.files.push(folder.clone());
            if let Err(message) = self.folder(at, &folder, servers, &mut registry) {
                let help = if folder.is_dir() {
                    "correct the file, or take it out of the folder"
                } else {
                    "make the folder, or name the one that the entries are in, from the folder of this file"
                };
                self.report(at, message, help);
            }
        }
        registry
    }

    fn folder(
        &mut self,
        at: &str,
        folder: &Path,
        servers: &[ServerName],
        registry: &mut CompiledRegistry,
    ) -> Result<(), String> {
        let unread =
            |error: std::io::Error| format!("could not read `{}`: {error}", folder.display());
        let mut files: Vec<_> = fs::read_dir(folder)
            .map_err(unread)?
            .take(FILES + 1)
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(unread)?;
        if files.len() > FILES {
            return Err(format!("`{}` has more than {FILES} files", folder.display()));
        }
        files.sort();
        for file in &files {
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(stem) = name.strip_suffix(".policy.yaml") else {
                let belongs = [".schema.json", ".examples.jsonl"]
                    .iter()
                    .find_map(|end| name.strip_suffix(end));
                if let Some(stem) = belongs
                    && !files.contains(&folder.join(format!("{stem}.policy.yaml")))
                {
                    return Err(format!("`{name}` has no `{stem}.policy.yaml` beside it"));
                }
                continue;
            };
            let wrong = |what: &str| format!("`{name}` {what}");
            let text = self.read(file)?;
            let node = yaml::parse(&text).map_err(|problems| {
                let first = problems.first().map(|problem| problem.message.clone());
                wrong(&format!("is not YAML: {}", first.unwrap_or_default()))
            })?;
            let raw: RawRegistered = serde_json::from_value(node.json())
                .map_err(|error| wrong(&format!("is not about a tool: {error}")))?;
            let schema = folder.join(format!("{stem}.schema.json"));
            let schema = files.contains(&schema).then(|| self.read(&schema)).transpose()?;
            if let Some(schema) = &schema {
                self.examples(folder, stem, schema, &files)?;
            }
            self.registered(at, raw, schema, servers, registry);
        }
        Ok(())
    }

    /// Reads a file of the directory and adds it to the digest of the configuration.
    fn read(&mut self, file: &Path) -> Result<String, String> {
        let unread =
            |error: std::io::Error| format!("could not read `{}`: {error}", file.display());
        let text = crate::base::file::text(file, MAX_FILE).map_err(unread)?;
        self.beside.push(sha256(text.as_bytes()));
        Ok(text)
    }

    /// Checks that the examples of a tool match its schema; each line has the arguments of one call.
    fn examples(
        &mut self,
        folder: &Path,
        stem: &str,
        schema: &str,
        files: &[PathBuf],
    ) -> Result<(), String> {
        #[expect(clippy::disallowed_methods, reason = "the operator's own file, not a peer's")]
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text);
        let schema =
            json(schema).map_err(|error| format!("`{stem}.schema.json` is not JSON: {error}"))?;
        let options =
            jsonschema::options().with_pattern_options(jsonschema::PatternOptions::regex());
        let validator = options
            .build(&schema)
            .map_err(|error| format!("`{stem}.schema.json` is not a JSON Schema: {error}"))?;
        let file = folder.join(format!("{stem}.examples.jsonl"));
        if !files.contains(&file) {
            return Ok(());
        }
        for (n, line) in
            self.read(&file)?.lines().enumerate().filter(|(_, line)| !line.trim().is_empty())
        {
            let place = format!("`{stem}.examples.jsonl`, line {}", n + 1);
            let example = json(line).map_err(|error| format!("{place} is not JSON: {error}"))?;
            let arguments = example.get("arguments").unwrap_or(&example);
            validator
                .validate(arguments)
                .map_err(|error| format!("{place} does not fit the schema: {error}"))?;
        }
        Ok(())
    }

    fn registered(
        &mut self,
        at: &str,
        raw: RawRegistered,
        schema: Option<String>,
        servers: &[ServerName],
        registry: &mut CompiledRegistry,
    ) {
        if !servers.iter().any(|server| server.as_str() == raw.server) {
            let list: Vec<_> = servers.iter().map(ServerName::as_str).collect();
            let message = format!("there is no server `{}`", raw.server.escape_debug());
            let help = format!("the servers are: {}", list.join(", "));
            self.report_reference(DefiningSection::Servers, at, message, help);
        }
        let digest = schema.and_then(|schema| {
            let document = Document::parse(Bytes::from(schema), &JsonBounds::ANSWER).ok();
            let digest = document.and_then(|document| RegistryEntry::digest(document.root()));
            if digest.is_none() {
                let message =
                    format!("the schema of `{}` cannot be pinned", raw.tool.escape_debug());
                self.report(at, message, "write strict JSON, with numbers that a double holds");
            }
            digest
        });
        let mut labels = Labels::default();
        for (pointer, label) in &raw.fields {
            if !pointer.is_empty() && !pointer.starts_with('/') {
                let message = format!("`{}` is no JSON Pointer", pointer.escape_debug());
                let help = "write `/customer/ssn`, with `*` for every item or member";
                self.report(&format!("{at}/fields"), message, help);
            }
            labels.add(pointer, label);
        }
        if let Some(flow) = raw.flow {
            self.flow_labels(&format!("{at}/flow"), &flow);
            let (server, tool) = (raw.server.as_str().into(), raw.tool.as_str().into());
            registry.flow.push(ToolFlowLabels { server, tool, labels: flow });
        }
        let registered = RegistryEntry {
            owner: raw.owner.map(Into::into),
            description: self.description(at, raw.description),
            version: raw.version.map(Into::into),
            effect: raw.effect,
            data_class: raw.data_class,
            approval_required: raw.approval_required,
            resource_scope: raw.resource_scope.map(Into::into),
            timeout: self.time(&format!("{at}/timeout"), raw.timeout.as_deref()),
            retries: raw.retries,
            idempotent: raw.idempotent,
            rate: self.call_rate(at, raw.rate.as_deref()),
            cost: raw.cost,
            may_repeat: raw.may_repeat,
            schema: digest,
            labels,
        };
        if !registry.known.add(&raw.server, &raw.tool, registered) {
            let message = format!("`{}` is registered twice", raw.tool.escape_debug());
            self.report(at, message, "keep one of them");
        }
    }

    /// Checks the labels of a tool for flow control.
    fn flow_labels(&mut self, at: &str, flow: &GivenLabels) {
        if *flow == GivenLabels::default() {
            let help = "write `integrity`, `confidentiality`, `sink`, `targets` or `vouched`";
            self.report(at, "this entry has no label", help);
        }
        for target in flow.targets.iter().flatten().filter(|target| !names_argument(target)) {
            let message = format!("`{}` names no argument", target.escape_debug());
            let help = "write the name of an argument at the top level, such as `recipient`";
            self.report(&format!("{at}/targets"), message, help);
        }
    }

    fn description(&mut self, at: &str, text: Option<String>) -> Option<Box<str>> {
        let text = text?;
        let at = format!("{at}/description");
        if text.trim().is_empty() {
            let help = "write what the tool does, or leave it out for the server's own description";
            self.report(&at, "this description says nothing", help);
        }
        if text.len() > DESCRIPTION {
            let message = format!("this description is longer than {DESCRIPTION} bytes");
            self.report(&at, message, "shorten it");
        }
        Some(text.into())
    }

    /// The rate at `at`; reports a text that is none.
    pub(super) fn call_rate(&mut self, at: &str, text: Option<&str>) -> Option<RateLimit> {
        let text = text?;
        let rate = rate(text);
        if rate.is_none() {
            let message = format!("`{}` is not a rate", text.escape_debug());
            self.report(&format!("{at}/rate"), message, "write `5/s`, `60/m` or `100/h`");
        }
        rate
    }
}

/// Parses a rate such as `60/m`; `None` if it is none.
pub(super) fn rate(text: &str) -> Option<RateLimit> {
    let (count, unit) = text.split_once('/')?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    let count = count.parse().ok().filter(|count| *count > 0)?;
    Some(RateLimit { count, per: Duration::from_secs(seconds) })
}
