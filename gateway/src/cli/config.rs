//! `portcullis config`: shows a configuration as the gateway reads it.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use gateway::config::settings::ConfigText;
use gateway::config::settings::shown::{self, PrintFilter, PrintOptions};
use gateway::config::settings::{ConfigRemark, Settings};

use super::import::secrets::{
    ArgPosition, is_plain, is_plain_argument, is_plain_url, without_placeholders,
};
use super::printable::in_a_line;
use super::{complain, invalid, ops, print, settings};

#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    verb: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Show a configuration with variables by their names and without secrets.
    Show {
        /// The configuration file to read.
        #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
        config: PathBuf,
        /// Include the default of each key that is not written.
        #[arg(long)]
        effective: bool,
        /// Show where each value is written.
        #[arg(long)]
        origin: bool,
    },
    /// Compare this configuration with the one that the running gateway uses, by the hash that audit records have in
    /// `policy`. Exits with 6 if they differ.
    Applied(ops::AppliedArgs),
}

/// Shows only the values that `portcullis import` would copy; masks anything that may be a secret.
struct ImportMasking;

impl PrintFilter for ImportMasking {
    fn value(&self, name: &str, text: &str) -> bool {
        without_placeholders(text).is_empty() || is_plain(name, text)
    }

    fn argument(&self, before: Option<&str>, text: &str) -> bool {
        let bare = without_placeholders(text);
        let at = before.map_or(ArgPosition::First, ArgPosition::After);
        // A package argument holds its version after `@` or `=`.
        let package = bare.contains(['@', '=']) && is_plain_argument(ArgPosition::Package, &bare);
        bare.is_empty() || is_plain_argument(at, &bare) || package
    }

    fn url(&self, text: &str) -> bool {
        is_plain_url(&without_placeholders(text)) || without_placeholders(text).is_empty()
    }
}

pub(super) fn run(config: &ConfigArgs) -> ExitCode {
    let (config, effective, origin) = match &config.verb {
        ConfigCommand::Show { config, effective, origin } => (config, effective, origin),
        ConfigCommand::Applied(applied) => return ops::applied(applied),
    };
    // An invalid configuration has no effective values to show.
    let settings = match settings(config) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let file = config.display().to_string();
    let text = match fs::read_to_string(config) {
        Ok(text) => text,
        Err(error) => return complain(&format!("could not read `{file}`: {error}")),
    };
    let with = PrintOptions { defaults: *effective, origin: *origin };
    match shown::show(ConfigText { file: &file, text: &text }, &settings, with, &ImportMasking) {
        Ok(yaml) => print(&(remarked(&settings) + &yaml)),
        Err(problems) => invalid(&problems),
    }
}

/// The remarks about a configuration, as YAML comments.
fn remarked(settings: &Settings) -> String {
    let mut out = String::new();
    for remark in ConfigRemark::all(settings) {
        let (ConfigRemark::Note(what) | ConfigRemark::Warning(what)) = remark;
        writeln!(out, "# {}", in_a_line(&what)).unwrap_or_default();
    }
    out
}
