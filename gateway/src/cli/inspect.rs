//! `portcullis inspect`: runs the detectors of a configuration on JSON Lines from standard input, and prints one JSON
//! object for each line.

mod sentence;

use std::io::{self, BufRead as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use detection::content::Direction;
use detection::detect::{Model, THRESHOLD, TextAnalysis};
use detection::inspect::{Detector, Finding};
use json::{Document, JsonBounds, Value};
use policy::definition::offer::{CatalogItem, ItemKind};
use policy::engine::pipeline::Policy;
use policy_core::subject::name::ServerName;
use serde_json::json;

use super::printable::printable;
use super::{complain, say, settings};
use sentence::Judge;

/// Most bytes of a line.
const MAX_LINE: u64 = 16 * 1024 * 1024;

#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// What the lines hold: `{"id", "tool": {…}}` for a definition, `{"id", "text": "…"}` or `{"id", "value": …}` for a
    /// result or arguments.
    #[arg(long, value_enum)]
    kind: InspectKind,
    /// The configuration whose detectors are used. Default: the default detectors.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The server that sends the definitions and results, and receives the arguments.
    #[arg(long, value_name = "NAME", default_value = "input")]
    server: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum InspectKind {
    /// Tool definitions of a server.
    Definition,
    /// Tool results of a server.
    Result,
    /// Tool arguments of a caller.
    Arguments,
}

pub(super) fn run(inspect: &InspectArgs) -> ExitCode {
    let policy = match inspect.config.as_deref().map(settings).transpose() {
        Ok(settings) => settings.map(|settings| settings.policy).unwrap_or_default(),
        Err(code) => return code,
    };
    let Ok(server) = ServerName::parse(&inspect.server) else {
        return complain("`--server` is not the name of a server");
    };
    let (mut input, mut out) = (io::stdin().lock(), io::stdout().lock());
    let (mut line, mut failed) = (Vec::new(), false);
    for n in 1_u64.. {
        line.clear();
        let mut limited = io::Read::take(&mut input, MAX_LINE);
        match limited.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => return complain(&format!("standard input could not be read: {error}")),
        }
        if line.len() as u64 == MAX_LINE && !line.ends_with(b"\n") {
            // The rest of it is no line of its own.
            if let Err(error) = input.skip_until(b'\n') {
                return complain(&format!("standard input could not be read: {error}"));
            }
            say(&format!("error: line {n}: it is longer than {MAX_LINE} bytes"));
            failed = true;
            continue;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match one(inspect.kind, &policy, &server, &line) {
            Ok(answer) => {
                if writeln!(out, "{}", printable(&answer.to_string())).is_err() {
                    return ExitCode::from(super::FAILED);
                }
            }
            Err(why) => {
                say(&format!("error: line {n}: {why}"));
                failed = true;
            }
        }
    }
    if failed { ExitCode::from(super::FAILED) } else { ExitCode::SUCCESS }
}

/// Inspects one line, and returns the object to print.
fn one(
    kind: InspectKind,
    policy: &Policy,
    server: &ServerName,
    line: &[u8],
) -> Result<serde_json::Value, String> {
    let document = Document::parse(line.to_vec().into(), &JsonBounds::ANSWER);
    let document = Arc::new(document.map_err(|error| error.to_string())?);
    let root = document.root();
    let id = root.get("id").map_or("null", Value::raw);
    let member = |names: &[&str]| names.iter().find_map(|name| root.get(name));
    let (flagged, score, findings, judge, value) = match kind {
        InspectKind::Definition => {
            let tool = member(&["tool"]).ok_or("there is no `tool`")?;
            let offer = CatalogItem::read(ItemKind::Tool, tool, &document);
            let offer = offer.map_err(|error| format!("the tool is of no use: {error}"))?;
            let findings = offer.findings().to_vec();
            let flagged = policy.withholds(&findings).or_else(|| policy.suspects(&findings));
            let score = TextAnalysis::of(tool).score(Model::built_in()).value / THRESHOLD;
            (flagged.is_some(), score, findings, Judge::Definition, tool)
        }
        InspectKind::Result | InspectKind::Arguments => {
            let value = member(&["text", "value", "arguments"]).ok_or("there is no `text`")?;
            let direction =
                if kind == InspectKind::Result { Direction::Result } else { Direction::Argument };
            let seen = policy.looked_at(server, direction, value);
            let flagged = seen.changed.is_some() || seen.blocked.is_some();
            (
                flagged,
                seen.score,
                seen.findings,
                Judge::Content { policy, server, direction },
                value,
            )
        }
    };
    let finding = |finding: &Finding| {
        let is_planted = finding.detector == Detector::PlantedInstructions;
        let sentence = is_planted.then(|| sentence::strongest(judge, value, &finding.at)).flatten();
        let members = [
            ("detector", Some(finding.detector.name().to_owned())),
            ("certainty", Some(finding.certainty.as_str().to_owned())),
            ("at", Some(finding.at.clone())),
            ("note", Some(finding.note.to_string())),
            ("sentence", sentence),
        ];
        let printed = members.into_iter().filter_map(|(name, value)| Some((name, json!(value?))));
        printed.map(|(name, value)| (name.to_owned(), value)).collect::<serde_json::Value>()
    };
    let findings: Vec<_> = findings.iter().map(finding).collect();
    let verdict = if flagged { "flagged" } else { "clean" };
    let id = id.parse::<serde_json::Value>().unwrap_or_default();
    Ok(json!({ "id": id, "verdict": verdict, "score": score, "findings": findings }))
}
