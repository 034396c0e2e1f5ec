//! `portcullis scan`: what detectors and a reviewer would say about what servers offer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use policy::drift::visible;
use policy::inspect::{Detector, Finding};
use policy::json::{Bounds, Document, Value};
use policy::name::ServerName;
use policy::offer::{Catalog, Kind, Offer};
use policy::review::{self, Severity};
use policy::shadow::Shadows;
use policy::work::Budget;
use serde_json::json;

use super::pin::Propose;
use super::{Output, complain, pin, print, sarif, say};

/// Something was found that is at least as grave as was asked for.
const FOUND: u8 = 6;

#[derive(Debug, Args)]
pub(super) struct Scan {
    #[command(flatten)]
    which: Propose,
    /// A file with what one server offers instead: the result of `tools/list`, or an array of tools.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "server"])]
    input: Option<PathBuf>,
    /// How it is shown.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    format: Output,
    /// Exit with 6 from this severity on.
    #[arg(long, value_enum, default_value_t = FailOn::High)]
    fail_on: FailOn,
    /// Show remarks from this severity on.
    #[arg(long, value_enum, default_value_t = FailOn::Low)]
    show: FailOn,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FailOn {
    Info,
    Low,
    Medium,
    High,
    /// Never.
    None,
}

impl FailOn {
    const fn severity(self) -> Option<Severity> {
        match self {
            Self::Info => Some(Severity::Info),
            Self::Low => Some(Severity::Low),
            Self::Medium => Some(Severity::Medium),
            Self::High => Some(Severity::High),
            Self::None => None,
        }
    }
}

/// One thing that was found.
#[derive(Debug)]
struct Found {
    thing: String,
    rule: &'static str,
    severity: Severity,
    at: String,
    note: String,
    fix: &'static str,
}

pub(super) fn run(scan: &Scan) -> ExitCode {
    let read = match &scan.input {
        Some(file) => input(file),
        None => pin::ask(&scan.which).map(|(_, surveys)| {
            let failed = surveys.iter().any(|survey| survey.failed.is_some());
            let incomplete = surveys.iter().any(|survey| !survey.is_complete());
            let failed = match (failed, incomplete) {
                (true, _) => Some(super::FAILED),
                (false, true) => Some(super::INCOMPLETE),
                (false, false) => None,
            };
            let mut found = Vec::new();
            for survey in &surveys {
                for hello in &survey.hellos {
                    if let Some(said) = &hello.instructions {
                        let of = format!("{}/server", survey.server);
                        found.extend(
                            policy::inspect::text(said.value(), &Budget::unlimited())
                                .into_iter()
                                .map(|f| {
                                    detected(
                                        &of,
                                        &Finding { at: format!("/instructions{}", f.at), ..f },
                                    )
                                }),
                        );
                    }
                }
            }
            let catalogs = surveys.iter().flat_map(|survey| survey.catalogs.iter().cloned());
            (catalogs.collect::<Vec<_>>(), found, failed)
        }),
    };
    let (catalogs, mut found, failed) = match read {
        Ok(read) => read,
        Err(code) => return code,
    };
    let count: usize = catalogs.iter().map(|catalog| catalog.offers().len()).sum();
    found.extend(look(&catalogs));
    found.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.thing.cmp(&b.thing)));
    let shown = |one: &&Found| scan.show.severity().is_some_and(|least| one.severity >= least);
    let shown: Vec<&Found> = found.iter().filter(shown).collect();
    let file = scan.input.as_deref().unwrap_or(&scan.which.config).display().to_string();
    print(&match scan.format {
        Output::Human => human(&shown, count),
        Output::Json => as_json(&shown),
        Output::Sarif => as_sarif(&shown, &file),
    });
    let grave = |least: Severity| found.iter().any(|one| one.severity >= least);
    if scan.fail_on.severity().is_some_and(grave) {
        return ExitCode::from(FOUND);
    }
    failed.map_or(ExitCode::SUCCESS, ExitCode::from)
}

/// What there is to look at, what was found already, and the code to end with where not all could be read.
type Read = (Vec<Arc<Catalog>>, Vec<Found>, Option<u8>);

/// What stands in a file.
fn input(file: &Path) -> Result<Read, ExitCode> {
    let wrong = |why: &str| complain(&format!("`{}` {why}", file.display()));
    let text = fs::read(file).map_err(|error| wrong(&format!("could not be read: {error}")))?;
    let document = Document::parse(text.into(), &Bounds::ANSWER)
        .map_err(|error| wrong(&format!("is not JSON that would be let in: {error}")))?;
    let document = Arc::new(document);
    let root = document.root();
    let result = root.get("result").unwrap_or(root);
    let server = ServerName::parse("input").map_err(|_error| wrong("has no name"))?;
    let mut catalogs = Vec::new();
    for kind in Kind::LISTED {
        let list = result.get(kind.list());
        let list =
            list.or_else(|| Some(result).filter(|_| kind == Kind::Tool && !root.is_object()));
        let mut offers = Vec::new();
        for (n, definition) in list.into_iter().flat_map(Value::items).enumerate() {
            match Offer::read(kind, definition, &document) {
                Ok(offer) => offers.push(offer),
                Err(error) => say(&format!("warning: {}/{n} is of no use: {error}", kind.list())),
            }
        }
        catalogs.push(Arc::new(Catalog::new(server.clone(), kind, offers)));
    }
    Ok((catalogs, Vec::new(), None))
}

/// Everything there is to be said.
fn look(catalogs: &[Arc<Catalog>]) -> Vec<Found> {
    let mut found = Vec::new();
    for catalog in catalogs {
        for offer in catalog.offers() {
            let name = visible(offer.name().as_str());
            let of = format!("{}/{}/{name}", catalog.server(), offer.kind().list());
            found.extend(offer.findings().iter().map(|finding| detected(&of, finding)));
            if offer.digest().is_none() {
                found.push(Found {
                    thing: of.clone(),
                    rule: "unpinnable",
                    severity: Severity::High,
                    at: String::new(),
                    note: "a number in it does not survive canonical form".to_owned(),
                    fix: "write the number so that a double holds it, or as a string",
                });
            }
            if offer.kind() != Kind::Tool {
                continue;
            }
            found.extend(review::tool(offer.definition()).into_iter().map(|remark| Found {
                thing: of.clone(),
                rule: remark.rule,
                severity: remark.severity,
                at: remark.at,
                note: remark.note.to_owned(),
                fix: remark.fix,
            }));
        }
    }
    let shadows = Shadows::among(catalogs.iter().cloned());
    for (server, kind, name, conflicts) in shadows.all() {
        for conflict in conflicts {
            found.push(Found {
                thing: format!("{server}/{}/{}", kind.list(), visible(name)),
                rule: "shadowing",
                severity: Severity::Medium,
                at: "/name".to_owned(),
                note: conflict.to_string(),
                fix: "rename it, or say in `policy.shadowing` which of the two is shown",
            });
        }
    }
    found
}

fn detected(of: &str, finding: &Finding) -> Found {
    let (severity, fix) = match finding.detector {
        Detector::PlantedInstructions => (
            Severity::High,
            "do not approve it; ask who wrote it, and have it say only what the tool does",
        ),
        Detector::HiddenCharacters | Detector::DisguisedText => {
            (Severity::High, "have it written in characters that are shown")
        }
        Detector::ToolNames => {
            (Severity::Medium, "have it renamed: 1 to 128 of letters, digits, `_`, `-`, `.`")
        }
        Detector::ResourceUris => (
            Severity::Medium,
            "have the URI written in its canonical form: see `docs/policy.md`, \"Resources\"",
        ),
        Detector::ActiveMarkup => {
            (Severity::Medium, "have it written as plain text or plain Markdown")
        }
        Detector::Secrets => {
            (Severity::High, "have the secret revoked, and taken out of the definition")
        }
        Detector::InternalUrls => {
            (Severity::Medium, "have the address taken out of the definition")
        }
        Detector::OversizedText => (Severity::Low, "have it shortened to what a person would read"),
        Detector::WriteScopes => {
            (Severity::High, "have it ask for scopes that read, or say that it changes something")
        }
        Detector::Identifiers | Detector::Contacts => {
            (Severity::Medium, "have the data of persons taken out of the definition")
        }
        // What is found in lists, pins and messages, and not by looking at one definition.
        _ => (Severity::Medium, "see `docs/pins.md`"),
    };
    let (rule, at) = (finding.detector.name(), finding.at.clone());
    Found { thing: of.to_owned(), rule, severity, at, note: finding.note.to_string(), fix }
}

fn human(found: &[&Found], count: usize) -> String {
    let mut out = String::new();
    let mut counts: BTreeMap<Severity, usize> = BTreeMap::new();
    for one in found {
        *counts.entry(one.severity).or_default() += 1;
        let Found { thing, rule, severity, at, note, fix } = one;
        writeln!(out, "{:<7}{thing} {at}: {rule}: {}", severity.as_str(), visible(note))
            .unwrap_or_default();
        writeln!(out, "       {fix}").unwrap_or_default();
    }
    let counts: Vec<String> =
        counts.iter().rev().map(|(severity, n)| format!("{n} {}", severity.as_str())).collect();
    let counts = if counts.is_empty() { "nothing found".to_owned() } else { counts.join(", ") };
    writeln!(out, "{count} definitions: {counts}").unwrap_or_default();
    out
}

fn as_json(found: &[&Found]) -> String {
    let one = |one: &&Found| {
        json!({
            "thing": one.thing, "rule": one.rule, "severity": one.severity.as_str(),
            "at": one.at, "note": visible(&one.note), "fix": one.fix,
        })
    };
    let all: Vec<_> = found.iter().map(one).collect();
    serde_json::to_string_pretty(&all).unwrap_or_default() + "\n"
}

fn as_sarif(found: &[&Found], file: &str) -> String {
    let one = |one: &&Found| sarif::Result {
        rule: one.rule,
        level: match one.severity {
            Severity::High => "error",
            Severity::Medium => "warning",
            Severity::Low | Severity::Info => "note",
        },
        message: format!("{}. {}", visible(&one.note), one.fix),
        file: file.to_owned(),
        thing: format!("{}#{}", one.thing, one.at),
    };
    sarif::log(&found.iter().map(one).collect::<Vec<_>>())
}
