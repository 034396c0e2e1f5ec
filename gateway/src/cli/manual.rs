//! Documents that are generated from the code: manual pages, shell completions, and two chapters of the documentation.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory as _, ValueEnum};
use clap_complete::Shell;
use gateway::config::settings;
use serde_json::Value;

use super::{Cli, complain};

/// A generated chapter of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Chapter {
    /// The verbs and their options.
    Verbs,
    /// The keys of the configuration.
    Keys,
}

/// Prints the completion script for `shell` to standard output.
pub(super) fn completions(shell: Shell) -> ExitCode {
    let mut command = Cli::command();
    clap_complete::generate(shell, &mut command, "portcullis", &mut io::stdout());
    ExitCode::SUCCESS
}

/// Writes a manual page for each verb to `folder`.
pub(super) fn man(folder: &Path) -> ExitCode {
    let written =
        fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("could not write to `{}`: {error}", folder.display())),
    }
}

/// Generates a chapter as Markdown.
pub(super) fn reference(chapter: Chapter) -> String {
    match chapter {
        Chapter::Verbs => {
            let mut out = String::from(
                "# Verbs\n\nGenerated from the program: `portcullis reference verbs`. \
                 [configuration.md](configuration.md#verbs-and-exit-codes) lists the exit codes.\n",
            );
            let mut command = Cli::command();
            command.build();
            for verb in shown(&command) {
                describe(verb, "portcullis", &mut out);
            }
            out
        }
        Chapter::Keys => keys(),
    }
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    let of_clap = |command: &&Command| command.get_name() != "help";
    command.get_subcommands().filter(|one| !one.is_hide_set()).filter(of_clap)
}

fn describe(command: &Command, before: &str, out: &mut String) {
    let name = format!("{before} {}", command.get_name());
    write!(out, "\n## `{name}`\n").unwrap_or_default();
    if let Some(about) = command.get_about() {
        write!(out, "\n{}.\n", about.to_string().trim_end_matches('.')).unwrap_or_default();
    }
    let arguments = command.get_arguments().filter(|one| !one.is_hide_set());
    let rows: Vec<_> = arguments
        .filter(|one| !["help", "version"].contains(&one.get_id().as_str()))
        .map(|one| {
            let values: Vec<_> =
                one.get_value_names().into_iter().flatten().map(|name| name.as_str()).collect();
            let takes = one.get_action().takes_values();
            let value = if takes { format!(" {}", values.join(" ")) } else { String::new() };
            let name = match (one.get_long(), one.get_short()) {
                (Some(long), Some(short)) => format!("-{short}, --{long}{value}"),
                (Some(long), None) => format!("--{long}{value}"),
                (None, _) => value.trim().to_owned(),
            };
            let help = one.get_help().map(ToString::to_string).unwrap_or_default();
            let usual: Vec<_> = one
                .get_default_values()
                .iter()
                .map(|value| format!("`{}`", value.to_string_lossy()))
                .collect();
            let usual = if usual.is_empty() || !takes {
                String::new()
            } else {
                format!(" Default {}.", usual.join(", "))
            };
            // A long list of values is not printed, as in `--help`.
            let possible: Vec<_> = match takes && !one.is_hide_possible_values_set() {
                true => one
                    .get_possible_values()
                    .iter()
                    .filter(|value| !value.is_hide_set())
                    .map(|v| format!("`{}`", v.get_name()))
                    .collect(),
                false => Vec::new(),
            };
            let possible = if possible.is_empty() {
                String::new()
            } else {
                format!(" One of {}.", possible.join(", "))
            };
            format!("| `{name}` | {}{possible}{usual} |\n", sentence(&help).replace('|', "\\|"))
        })
        .collect();
    if !rows.is_empty() {
        write!(out, "\n| | |\n|---|---|\n{}", rows.concat()).unwrap_or_default();
    }
    for verb in shown(command) {
        describe(verb, &name, out);
    }
}

/// Ends a help text with a full stop. Clap removes a single one from the end of a doc comment; a text that ends with
/// `..` gets an ellipsis.
fn sentence(help: &str) -> String {
    let help = help.trim_end();
    if help.ends_with("..") {
        return format!("{}…", help.trim_end_matches('.'));
    }
    format!("{}.", help.trim_end_matches('.'))
}

/// Generates the chapter about the configuration from its JSON Schema, section by section.
fn keys() -> String {
    let schema = settings::schema();
    let mut out = String::from(
        "# Every key\n\nGenerated from the schema of the configuration: `portcullis reference keys`. Durations are written `500ms`, \
         `30s`, `10m`, `12h`; sizes `64KiB`, `1MiB`.\n",
    );
    section("The file", &schema, &mut out);
    let definitions = schema.get("$defs").and_then(Value::as_object).into_iter().flatten();
    for (name, definition) in definitions {
        section(title(name), definition, &mut out);
    }
    out
}

fn title(name: &str) -> &str {
    name.strip_prefix("Raw").unwrap_or(name)
}

fn section(name: &str, definition: &Value, out: &mut String) {
    let text = |value: &Value| {
        let text = value.get("description").and_then(Value::as_str).unwrap_or_default();
        text.replace('\n', " ").replace('|', "\\|")
    };
    let required: Vec<_> = definition
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = definition.get("properties").and_then(Value::as_object);
    let options =
        definition.get("oneOf").or_else(|| definition.get("anyOf")).and_then(Value::as_array);
    write!(out, "\n## {name}\n\n{}\n", text(definition)).unwrap_or_default();
    if let Some(properties) = properties {
        out.push_str("\n| key | is | |\n|---|---|---|\n");
        for (key, property) in properties {
            let must = if required.contains(&key.as_str()) { "**required** " } else { "" };
            writeln!(out, "| `{key}` | {must}{} | {} |", kind(property), text(property))
                .unwrap_or_default();
        }
    }
    let values: Vec<_> = options
        .into_iter()
        .flatten()
        .filter_map(|option| {
            let value = option.get("const").and_then(Value::as_str)?;
            Some(format!("| `{value}` | {} |\n", text(option)))
        })
        .collect();
    if !values.is_empty() {
        write!(out, "\n| value | |\n|---|---|\n{}", values.concat()).unwrap_or_default();
    }
}

/// The type of a value as Markdown: a word, or a link to the section that describes it.
fn kind(property: &Value) -> String {
    if let Some(reference) = property.get("$ref").and_then(Value::as_str) {
        let name = title(reference.rsplit('/').next().unwrap_or_default());
        return format!("[{name}](#{})", name.to_ascii_lowercase());
    }
    if let Some(options) = property.get("anyOf").and_then(Value::as_array) {
        let kinds = options.iter().map(kind).filter(|kind| kind != "nothing");
        return kinds.collect::<Vec<_>>().join(" or ");
    }
    let types = match property.get("type") {
        Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => vec![one.as_str()],
        Some(_) | None => Vec::new(),
    };
    let names = types.into_iter().filter(|name| *name != "null").map(|name| match name {
        "array" => {
            let items = property.get("items").map(kind).unwrap_or_default();
            format!("list of {items}")
        }
        "string" => "text".to_owned(),
        "integer" | "number" => "number".to_owned(),
        "boolean" => "`true` or `false`".to_owned(),
        "object" => match property.get("additionalProperties").filter(|more| more.is_object()) {
            Some(more) => format!("names with {}", kind(more)),
            None => "keys and values".to_owned(),
        },
        other => other.to_owned(),
    });
    let names: Vec<_> = names.collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(" or ") }
}
