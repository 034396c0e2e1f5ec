//! `portcullis config`: a configuration as it counts.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use gateway::config::settings::shown::{self, Judge, With};
use gateway::config::settings::{Remark, Settings};

use super::import::secrets::{At, is_plain, is_plain_argument, is_plain_url, without_placeholders};
use super::{complain, invalid, ops, print, settings};

#[derive(Debug, Args)]
pub(super) struct Config {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show a configuration: variables by their names, secrets not at all.
    Show {
        /// The configuration.
        #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
        config: PathBuf,
        /// Show what counts where nothing is written, too.
        #[arg(long)]
        effective: bool,
        /// Show where each value is written.
        #[arg(long)]
        origin: bool,
    },
    /// Say whether the running gateway uses this configuration: the hashes of both, as records have them in
    /// `policy`. Exits with 6 when they differ.
    Applied(ops::Applied),
}

/// What an import would write down.
struct Careful;

impl Judge for Careful {
    fn value(&self, name: &str, text: &str) -> bool {
        without_placeholders(text).is_empty() || is_plain(name, text)
    }

    fn argument(&self, before: Option<&str>, text: &str) -> bool {
        let bare = without_placeholders(text);
        let at = before.map_or(At::First, At::After);
        // A package says which version it is.
        let package = bare.contains(['@', '=']) && is_plain_argument(At::Package, &bare);
        bare.is_empty() || is_plain_argument(at, &bare) || package
    }

    fn url(&self, text: &str) -> bool {
        is_plain_url(&without_placeholders(text)) || without_placeholders(text).is_empty()
    }
}

pub(super) fn run(config: &Config) -> ExitCode {
    let (config, effective, origin) = match &config.verb {
        Verb::Show { config, effective, origin } => (config, effective, origin),
        Verb::Applied(applied) => return ops::applied(applied),
    };
    // One that is not valid counts for nothing.
    let settings = match settings(config) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let file = config.display().to_string();
    let text = match fs::read_to_string(config) {
        Ok(text) => text,
        Err(error) => return complain(&format!("could not read `{file}`: {error}")),
    };
    let with = With { defaults: *effective, origin: *origin };
    match shown::show((&file, &text), &settings, with, &Careful) {
        Ok(yaml) => print(&(remarked(&settings) + &yaml)),
        Err(problems) => invalid(&problems),
    }
}

/// What is said of a configuration, as comments before it.
fn remarked(settings: &Settings) -> String {
    let mut out = String::new();
    for remark in Remark::all(settings) {
        let (Remark::Note(what) | Remark::Warning(what)) = remark;
        writeln!(out, "# {}", what.escape_debug()).unwrap_or_default();
    }
    out
}
