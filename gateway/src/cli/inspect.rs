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
use policy::definition::pins::Pins;
use policy::engine::pipeline::Policy;
use policy_core::subject::name::ServerName;
use serde_json::json;

use super::printable::printable;
use super::{complain, named_or_absent, pin, say, settings};
use sentence::Judge;

/// Most bytes of a line.
const MAX_LINE: u64 = 16 * 1024 * 1024;

#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// What the lines hold: `{"id", "tool": {…}}` for a definition, `{"id", "text": "…"}` or `{"id", "value": …}` for a
    /// result or arguments.
    #[arg(long, value_enum)]
    kind: InspectKind,
    /// The configuration whose detectors are used, and whose lockfile says which findings in definitions are accepted. The
    /// default detectors are used if it does not exist and is not named.
    #[arg(short, long, value_name = "FILE", default_value = super::USUAL)]
    config: PathBuf,
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
    let Ok(server) = ServerName::parse(&inspect.server) else {
        return complain("`--server` is not the name of a server");
    };
    let inspector = match Inspector::read(inspect, server) {
        Ok(inspector) => inspector,
        Err(code) => return code,
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
        match inspector.one(&line) {
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

/// What each line is inspected with.
struct Inspector {
    kind: InspectKind,
    policy: Policy,
    pins: Pins,
    server: ServerName,
}

impl Inspector {
    /// The policy and the approvals of the configuration, if there is one.
    fn read(inspect: &InspectArgs, server: ServerName) -> Result<Self, ExitCode> {
        let (policy, pins) = match named_or_absent(&inspect.config) {
            Some(config) => {
                let settings = settings(config)?;
                let pins = pin::in_force(&settings)?;
                (settings.policy, pins)
            }
            None => (Policy::default(), Pins::default()),
        };
        Ok(Self { kind: inspect.kind, policy, pins, server })
    }

    /// Whether the findings in a definition count, and these findings, each with who has accepted it.
    fn found_in(&self, offer: &CatalogItem) -> (bool, Vec<Finding>) {
        let Self { policy, pins, server, .. } = self;
        let (of, name) = (Some(offer.kind()), offer.name().as_str());
        let exceptions = pins.exceptions(server.as_str(), of, name, offer.digest());
        let excused = pins.excused(server.as_str(), of, name, offer.digest());
        let accepted = |finding: &Finding| {
            let mut all = exceptions.iter();
            let by = all.find(|one| one.finding == finding.detector && excused.covers(finding));
            by.map_or_else(|| finding.clone(), |one| finding.accepted_by(&one.by))
        };
        let findings: Vec<_> = offer.findings().iter().map(accepted).collect();
        let flagged = policy
            .withholds_but(&findings, excused)
            .or_else(|| policy.suspects_but(&findings, excused));
        (flagged.is_some(), findings)
    }

    /// Inspects one line, and returns the object to print.
    fn one(&self, line: &[u8]) -> Result<serde_json::Value, String> {
        let Self { kind, policy, server, .. } = self;
        let kind = *kind;
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
                let (flagged, findings) = self.found_in(&offer);
                let score = TextAnalysis::of(tool).score(Model::built_in()).value / THRESHOLD;
                (flagged, score, findings, Judge::Definition, tool)
            }
            InspectKind::Result | InspectKind::Arguments => {
                let value = member(&["text", "value", "arguments"]).ok_or("there is no `text`")?;
                let direction = if kind == InspectKind::Result {
                    Direction::Result
                } else {
                    Direction::Argument
                };
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
            let sentence =
                is_planted.then(|| sentence::strongest(judge, value, &finding.at)).flatten();
            let members = [
                ("detector", Some(finding.detector.name().to_owned())),
                ("certainty", Some(finding.certainty.as_str().to_owned())),
                ("at", Some(finding.at.clone())),
                ("note", Some(finding.note.to_string())),
                ("sentence", sentence),
            ];
            let printed =
                members.into_iter().filter_map(|(name, value)| Some((name, json!(value?))));
            printed.map(|(name, value)| (name.to_owned(), value)).collect::<serde_json::Value>()
        };
        let findings: Vec<_> = findings.iter().map(finding).collect();
        let verdict = if flagged { "flagged" } else { "clean" };
        let id = id.parse::<serde_json::Value>().unwrap_or_default();
        Ok(json!({ "id": id, "verdict": verdict, "score": score, "findings": findings }))
    }
}
