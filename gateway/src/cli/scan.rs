//! `portcullis scan`: shows what detectors and a reviewer find in the definitions that servers offer.

mod tokens;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use detection::inspect::Finding;
use gateway::config::overrides::Overrides;
use gateway::config::settings::ServerSettings;
use gateway::control::inventory::ServerInventory;
use gateway::pins::acceptance;
use json::{Document, JsonBounds, Value};
use policy::definition::drift::visible;
use policy::definition::gravity::gravity;
use policy::definition::lock::AcceptedFinding;
use policy::definition::offer::{Catalog, CatalogItem, ItemKind};
use policy::definition::pins::Pins;
use policy::definition::review::{self, DefinitionRemark, Severity};
use policy::definition::shadow::{ShadowingConflicts, ShadowingPolicy, Similarity};
use policy::engine::pipeline::Policy;
use policy::rules::constraint::ArgumentType;
use policy_core::base::work::WorkBudget;
use policy_core::subject::mode::{FindingTreatment, Mode};
use policy_core::subject::name::ServerName;
use serde_json::json;

use self::tokens::ServerTokens;
use super::pin::SurveyArgs;
use super::why::thing;
use super::{
    FindingsFormat, complain, named_or_absent, pin, print, print_for_people, sarif, say, settings,
};

/// Exit code: there is a finding at least as grave as `--fail-on`.
const EXIT_FOUND: u8 = 6;

#[derive(Debug, Args)]
pub(super) struct ScanArgs {
    #[command(flatten)]
    which: SurveyArgs,
    /// A file with the definitions of one server, instead of asking servers: the result of `tools/list`, or an array of
    /// tools. Without a configuration the default detectors count.
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    input: Option<PathBuf>,
    /// Output format of the findings.
    #[arg(long, value_enum, default_value_t = FindingsFormat::Human)]
    format: FindingsFormat,
    /// Exit with 6 if a finding is at least this grave.
    #[arg(long, value_enum, default_value_t = SeverityThreshold::High)]
    fail_on: SeverityThreshold,
    /// Show findings that are at least this grave. Default: `low` for people, `info` in JSON and SARIF.
    #[arg(long, value_enum)]
    show: Option<SeverityThreshold>,
    /// Show how many tokens each tool takes in the context of a model, instead of the findings. `--fail-on` has no effect.
    #[arg(long, conflicts_with_all = ["show", "fail_on"])]
    tokens: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SeverityThreshold {
    /// Any finding, including advice to the author of the server.
    Info,
    /// Findings to know about before the tool is granted, such as an argument that names a file.
    Low,
    /// Findings to look at before the definition is approved, such as an argument that is executed.
    Medium,
    /// Findings that the gateway withholds or removes by default, such as planted instructions and secrets.
    High,
    /// No finding, however grave.
    None,
}

impl SeverityThreshold {
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

/// A finding, with the definition and the place that it is in.
#[derive(Debug)]
struct ScanFinding {
    thing: String,
    rule: &'static str,
    severity: Severity,
    at: String,
    note: String,
    fix: &'static str,
    /// The command that accepts it as a false alarm, where a lockfile can have it.
    accept: Option<String>,
    /// Indexes of the constraints that limit the argument, counted from 0 in the order of the configuration.
    limited_by: Vec<usize>,
}

impl ScanFinding {
    const fn is_limited(&self) -> bool {
        !self.limited_by.is_empty()
    }
}

pub(super) fn run(scan: &ScanArgs) -> ExitCode {
    let read = match &scan.input {
        Some(file) => input(file, &scan.which.config),
        None => asked(&scan.which),
    };
    let ScanInput { catalogs, policy, pins, overrides, mut found, failed, unasked } = match read {
        Ok(read) => read,
        Err(code) => return code,
    };
    let count_tokens = || ServerTokens::of(&catalogs, &policy, &overrides);
    if scan.tokens {
        let servers = count_tokens();
        match scan.format {
            FindingsFormat::Human => {
                print_for_people(&(unasked.alone() + &tokens::human(&servers)))
            }
            FindingsFormat::Json => print(&tokens::as_json(&servers)),
            FindingsFormat::Sarif => return complain("`--tokens` has no SARIF: it finds nothing"),
        };
        return failed.map_or(ExitCode::SUCCESS, ExitCode::from);
    }
    let count: usize = catalogs.iter().map(|catalog| catalog.offers().len()).sum();
    found.extend(look(&catalogs, &policy, pins.as_ref()));
    found.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.thing.cmp(&b.thing)));
    let least = scan.show.unwrap_or(match scan.format {
        FindingsFormat::Human => SeverityThreshold::Low,
        FindingsFormat::Json | FindingsFormat::Sarif => SeverityThreshold::Info,
    });
    let shown = |one: &&ScanFinding| least.severity().is_some_and(|least| one.severity >= least);
    let shown: Vec<&ScanFinding> = found.iter().filter(shown).collect();
    let file = scan.input.as_deref().unwrap_or(&scan.which.config).display().to_string();
    match scan.format {
        FindingsFormat::Human => {
            let tokens = tokens::summary(&count_tokens());
            let scanning =
                ScanSummary { count, hidden: found.len() - shown.len(), unasked, tokens };
            print_for_people(&human(&shown, &scanning))
        }
        FindingsFormat::Json => print(&as_json(&shown)),
        FindingsFormat::Sarif => print(&as_sarif(&shown, &file)),
    };
    let grave = |least: Severity| found.iter().any(|one| one.severity >= least);
    if scan.fail_on.severity().is_some_and(grave) {
        return ExitCode::from(EXIT_FOUND);
    }
    failed.map_or(ExitCode::SUCCESS, ExitCode::from)
}

/// Input of a scan.
#[derive(Default)]
struct ScanInput {
    /// The definitions that servers offer.
    catalogs: Vec<Arc<Catalog>>,
    /// The policy, for its routes and its constraints on arguments.
    policy: Policy,
    /// The approvals, of which some accept findings; `None` if the definitions are not those of a server.
    pins: Option<Pins>,
    /// The operator's words for the tools of servers.
    overrides: BTreeMap<ServerName, Arc<Overrides>>,
    /// Findings in the servers' own instructions.
    found: Vec<ScanFinding>,
    /// Exit code if not everything could be read.
    failed: Option<u8>,
    /// Servers that could not be asked.
    unasked: SurveyGaps,
}

/// Servers that could not be asked, or not completely.
#[derive(Clone, Copy, Debug, Default)]
struct SurveyGaps {
    /// Number of servers that could not be asked.
    count: usize,
    /// Number of servers of which a list could not be read.
    incomplete: usize,
    /// Number of servers that were to be asked.
    of: usize,
}

impl SurveyGaps {
    fn among(surveys: &[ServerInventory]) -> Self {
        let count = surveys.iter().filter(|survey| survey.failed.is_some()).count();
        let incomplete = surveys.iter().filter(|survey| !survey.is_complete()).count() - count;
        Self { count, incomplete, of: surveys.len() }
    }

    /// The note that precedes the summary; empty if every server was read completely.
    fn said(self) -> String {
        let Self { count, incomplete, of } = self;
        let servers = if of == 1 { "server" } else { "servers" };
        match (count, incomplete) {
            (0, 0) => String::new(),
            (0, _) => format!(
                "{incomplete} of {of} {servers} could not be read to the end; of the rest: "
            ),
            (count, 0) => format!("{count} of {of} {servers} could not be asked; of the rest: "),
            (count, _) => format!(
                "{count} of {of} {servers} could not be asked, {incomplete} not be read to the end; of the rest: "
            ),
        }
    }

    /// The same note as a line; empty if every server was read completely.
    fn alone(self) -> String {
        let said = self.said();
        let line = said.strip_suffix(' ').map(|said| format!("{said}\n"));
        line.unwrap_or_default()
    }
}

/// What the summary says.
#[derive(Clone, Debug)]
struct ScanSummary {
    /// Number of definitions that were scanned.
    count: usize,
    /// Number of findings that are not shown.
    hidden: usize,
    /// Servers that could not be asked.
    unasked: SurveyGaps,
    /// How many tokens the tools of servers take, a line for each server.
    tokens: String,
}

/// Asks servers for their definitions and instructions.
fn asked(which: &SurveyArgs) -> Result<ScanInput, ExitCode> {
    let (settings, surveys) = pin::ask(which)?;
    let pins = pin::in_force(&settings)?;
    let mut found = Vec::new();
    for survey in &surveys {
        for info in &survey.server_infos {
            let Some(said) = &info.instructions else { continue };
            let server = survey.server.as_str();
            let of = ScannedItem {
                policy: &settings.policy,
                exceptions: pins.exceptions(server, None, "", info.digest),
                server,
                thing: "server".to_owned(),
                is_pinned: true,
            };
            for finding in detection::inspect::text(said.value(), &WorkBudget::unlimited()) {
                let at = format!("/instructions{}", finding.at);
                found.push(of.detected(&Finding { at, ..finding }));
            }
        }
    }
    let unasked = SurveyGaps::among(&surveys);
    let failed = match (unasked.count, unasked.incomplete) {
        (0, 0) => None,
        (0, _) => Some(super::INCOMPLETE),
        (_, _) => Some(super::FAILED),
    };
    let of_server = |one: &ServerSettings| (one.name.clone(), Arc::clone(&one.overrides));
    Ok(ScanInput {
        failed,
        unasked,
        overrides: settings.servers.iter().map(of_server).collect(),
        policy: settings.policy,
        pins: Some(pins),
        catalogs: surveys.iter().flat_map(|survey| survey.catalogs.iter().cloned()).collect(),
        found,
    })
}

/// Reads definitions from a file, and the configuration that says what counts in them, if there is one.
fn input(file: &Path, config: &Path) -> Result<ScanInput, ExitCode> {
    let policy = match named_or_absent(config) {
        Some(config) => settings(config)?.policy,
        None => Policy::default(),
    };
    let wrong = |why: &str| complain(&format!("`{}` {why}", file.display()));
    let text = fs::read(file).map_err(|error| wrong(&format!("could not be read: {error}")))?;
    let document = Document::parse(text.into(), &JsonBounds::ANSWER)
        .map_err(|error| wrong(&format!("is not JSON that would be let in: {error}")))?;
    let document = Arc::new(document);
    let root = document.root();
    let result = root.get("result").unwrap_or(root);
    let server = ServerName::parse("input").map_err(|_error| wrong("has no name"))?;
    let mut catalogs = Vec::new();
    for kind in ItemKind::LISTED {
        let list = result.get(kind.list());
        let list =
            list.or_else(|| Some(result).filter(|_| kind == ItemKind::Tool && !root.is_object()));
        let mut offers = Vec::new();
        for (n, definition) in list.into_iter().flat_map(Value::items).enumerate() {
            match CatalogItem::read(kind, definition, &document) {
                Ok(offer) => offers.push(offer),
                Err(error) => say(&format!("warning: {}/{n} is of no use: {error}", kind.list())),
            }
        }
        catalogs.push(Arc::new(Catalog::new(server.clone(), kind, offers)));
    }
    Ok(ScanInput { catalogs, policy, ..ScanInput::default() })
}

/// Collects the findings of detectors, of the reviewer and of the comparison between servers.
fn look(catalogs: &[Arc<Catalog>], policy: &Policy, pins: Option<&Pins>) -> Vec<ScanFinding> {
    let mut found = Vec::new();
    for catalog in catalogs {
        for offer in catalog.offers() {
            add_of_offer(catalog.server(), offer, policy, pins, &mut found);
        }
    }
    let shadows = ShadowingConflicts::among(catalogs.iter().cloned(), policy.routes());
    for (server, kind, name, conflicts) in shadows.all() {
        for conflict in conflicts {
            found.push(ScanFinding {
                thing: format!("{server}/{}/{}", kind.list(), visible(name)),
                rule: "shadowing",
                severity: likeness(conflict.likeness),
                at: "/name".to_owned(),
                note: conflict.to_string(),
                fix: "approve only the one that is meant, or say in `policy.shadowing` which of the two is shown",
                accept: None,
                limited_by: Vec::new(),
            });
        }
    }
    found
}

/// Adds the findings in one definition.
fn add_of_offer(
    from: &ServerName,
    offer: &CatalogItem,
    policy: &Policy,
    pins: Option<&Pins>,
    found: &mut Vec<ScanFinding>,
) {
    let (server, kind, name) = (from.as_str(), offer.kind(), offer.name().as_str());
    let exceptions = pins.map(|pins| pins.exceptions(server, Some(kind), name, offer.digest()));
    let item = ScannedItem {
        policy,
        exceptions: exceptions.unwrap_or_default(),
        server,
        thing: thing(kind, name),
        is_pinned: pins.is_some(),
    };
    let of = item.place();
    found.extend(offer.findings().iter().map(|finding| item.detected(finding)));
    if offer.digest().is_none() {
        found.push(ScanFinding {
            thing: of.clone(),
            rule: "definition-not-canonical",
            severity: Severity::High,
            at: String::new(),
            note: "a number in it does not survive canonical form".to_owned(),
            fix: "it cannot be approved: ask for a definition whose numbers a double holds",
            accept: None,
            limited_by: Vec::new(),
        });
    }
    if kind != ItemKind::Tool {
        return;
    }
    found.extend(review::tool(offer.definition()).into_iter().map(|remark| ScanFinding {
        thing: of.clone(),
        rule: remark.rule,
        severity: remark.severity,
        limited_by: limits(policy, from, name, &remark),
        at: remark.at,
        note: remark.note.to_owned(),
        fix: remark.fix,
        accept: None,
    }));
}

/// Indexes of the constraints that limit the argument that `remark` is about.
fn limits(
    policy: &Policy,
    server: &ServerName,
    tool: &str,
    remark: &DefinitionRemark,
) -> Vec<usize> {
    let meant = match remark.rule {
        "free-path" => ArgumentType::Path,
        "free-url" => ArgumentType::Url,
        "arbitrary-recipient" => ArgumentType::Email,
        "free-command" | "free-sql" | "self-declared-privilege" => ArgumentType::Any,
        // The remark is not about an argument, or no constraint resolves it.
        _ => return Vec::new(),
    };
    let all = policy.constraints().iter().enumerate();
    let acts = all.filter(|(_, one)| one.limits(server, tool, &remark.at, meant));
    acts.map(|(n, _)| n).collect()
}

/// A definition, or the instructions of a server, in which detectors look.
struct ScannedItem<'a> {
    /// The policy, which says what follows from a finding.
    policy: &'a Policy,
    /// The findings that the lockfile accepts in it.
    exceptions: &'a [AcceptedFinding],
    server: &'a str,
    /// Its path in the lockfile.
    thing: String,
    /// Whether a lockfile can have it.
    is_pinned: bool,
}

impl ScannedItem<'_> {
    fn place(&self) -> String {
        format!("{}/{}", self.server, self.thing)
    }

    /// A finding in it. What the lockfile accepts, and what the configuration switches off or only records, is less grave
    /// than what the gateway withholds.
    fn detected(&self, finding: &Finding) -> ScanFinding {
        let is_acceptable = finding.unacceptable().is_none();
        let mut accepted = self.exceptions.iter().filter(|one| one.finding == finding.detector);
        let accepted = accepted.next().filter(|_| is_acceptable);
        let now = self.policy.treatment_of(finding);
        let is_usual = now == Policy::default().treatment_of(finding);
        let (usual, fix) = gravity(finding);
        let (severity, fix) = match (accepted, now) {
            (Some(_), _) => (
                Severity::Info,
                "nothing: the lockfile accepts it, and `portcullis pin list` shows who has accepted it, and why",
            ),
            (None, FindingTreatment::Off) if !is_usual => (
                Severity::Info,
                "nothing: `policy.definitions` in the configuration switches it off",
            ),
            (None, FindingTreatment::Audit) if !is_usual => (
                usual.min(Severity::Medium),
                "read it: `policy.definitions` in the configuration has it recorded only, and the gateway shows it",
            ),
            (None, _) => (usual, fix),
        };
        let withholds = matches!(now, FindingTreatment::Enforce | FindingTreatment::Strip);
        let can_accept = self.is_pinned && is_acceptable && accepted.is_none() && withholds;
        let note = match accepted {
            Some(one) => finding.accepted_by(&one.by).note,
            None => finding.note.clone(),
        };
        ScanFinding {
            thing: self.place(),
            rule: finding.detector.name(),
            severity,
            at: finding.at.clone(),
            note: note.into_owned(),
            fix,
            accept: can_accept.then(|| acceptance(self.server, &self.thing, finding.detector)),
            limited_by: Vec::new(),
        }
    }
}

/// Severity of a name conflict: high if it is withheld by default, medium if it is recorded, else info.
fn likeness(likeness: Similarity) -> Severity {
    match ShadowingPolicy::default().of(likeness) {
        Mode::Enforce => Severity::High,
        Mode::Audit => Severity::Medium,
        Mode::Off => Severity::Info,
    }
}

/// Most places of one group that are shown to people, unless the severity is high.
const PLACES: usize = 5;

/// Formats findings for people, grouped by severity, rule and note.
fn human(found: &[&ScanFinding], scanning: &ScanSummary) -> String {
    let &ScanSummary { count, hidden, unasked, ref tokens } = scanning;
    if unasked.count > 0 && unasked.count == unasked.of {
        let servers = if unasked.of == 1 { "server" } else { "servers" };
        return format!("nothing is known: {0} of {0} {servers} could not be asked\n", unasked.of);
    }
    let mut out = String::new();
    let mut counts: BTreeMap<Severity, usize> = BTreeMap::new();
    let mut groups: BTreeMap<FindingGroup, Vec<&ScanFinding>> = BTreeMap::new();
    for one in found {
        *counts.entry(one.severity).or_default() += 1;
        groups.entry(FindingGroup::of(one)).or_default().push(one);
    }
    for (group, all) in &groups {
        group.write(all, &mut out).unwrap_or_default();
    }
    let counts: Vec<String> =
        counts.iter().rev().map(|(severity, n)| format!("{n} {}", severity.as_str())).collect();
    let counts = if counts.is_empty() { "nothing found".to_owned() } else { counts.join(", ") };
    let limited = match found.iter().filter(|one| one.is_limited()).count() {
        0 => String::new(),
        n => format!("; {n} of them limited by `policy.constraints`"),
    };
    let more = match hidden {
        0 => String::new(),
        1 => "; 1 finding of less weight is shown with `--show info`".to_owned(),
        n => format!("; {n} findings of less weight are shown with `--show info`"),
    };
    let before = unasked.said();
    out.push_str(tokens);
    writeln!(out, "{before}{count} definitions: {counts}{limited}{more}").unwrap_or_default();
    out
}

/// Heading of a group of findings; the fields are in sort order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FindingGroup {
    /// Severity, the gravest first.
    severity: Reverse<Severity>,
    rule: &'static str,
    fix: &'static str,
    /// Note that all findings of the group share; empty if the notes differ.
    note: String,
}

impl FindingGroup {
    fn of(one: &ScanFinding) -> Self {
        // These findings have a note of their own for each place.
        let differs = one.severity == Severity::High || one.rule == "shadowing";
        let note = if differs { String::new() } else { visible(&one.note) };
        Self { severity: Reverse(one.severity), rule: one.rule, fix: one.fix, note }
    }

    fn write(&self, all: &[&ScanFinding], out: &mut String) -> fmt::Result {
        let Self { severity, rule, fix, note } = self;
        let said = if note.is_empty() { String::new() } else { format!(": {note}") };
        let n = all.len();
        let findings = if n == 1 { "finding" } else { "findings" };
        let (limited, open): (Vec<&ScanFinding>, Vec<&ScanFinding>) =
            all.iter().copied().partition(|one| one.is_limited());
        let narrowed = match limited.len() {
            0 => String::new(),
            n => format!(", {n} limited"),
        };
        writeln!(out, "{:<7}{rule}{said} ({n} {findings}{narrowed})", severity.0.as_str())?;
        let most = if severity.0 == Severity::High { n } else { PLACES };
        for one in open.iter().take(most) {
            let said =
                if note.is_empty() { format!(": {}", visible(&one.note)) } else { String::new() };
            writeln!(out, "         {} {}{said}", one.thing, visible(&one.at))?;
        }
        if open.len() > most {
            writeln!(out, "         and {} more: `--format json` shows all", open.len() - most)?;
        }
        for one in limited.iter().take(most) {
            let by: Vec<_> = one.limited_by.iter().map(|n| (n + 1).to_string()).collect();
            let (at, by) = (visible(&one.at), by.join(", "));
            writeln!(out, "         limited by constraint {by}: {} {at}", one.thing)?;
        }
        if limited.len() > most {
            let more = limited.len() - most;
            writeln!(out, "         and {more} more that are limited: `--format json` shows all")?;
        }
        if open.is_empty() {
            return Ok(());
        }
        writeln!(out, "       what to do: {fix}")?;
        if severity.0 < Severity::High {
            return Ok(());
        }
        // One command for each definition with any number of findings.
        let commands: BTreeSet<&str> =
            open.iter().filter_map(|one| one.accept.as_deref()).collect();
        for command in commands.into_iter().take(PLACES) {
            writeln!(out, "       if it is a false alarm: `{command}`")?;
        }
        Ok(())
    }
}

fn as_json(found: &[&ScanFinding]) -> String {
    let one = |one: &&ScanFinding| {
        json!({
            "thing": one.thing, "rule": one.rule, "severity": one.severity.as_str(),
            "at": one.at, "note": visible(&one.note), "fix": one.fix, "accept": one.accept,
            "limitedBy": one.limited_by,
        })
    };
    let all: Vec<_> = found.iter().map(one).collect();
    serde_json::to_string_pretty(&all).unwrap_or_default() + "\n"
}

fn as_sarif(found: &[&ScanFinding], file: &str) -> String {
    let one = |one: &&ScanFinding| sarif::SarifResult {
        rule: one.rule,
        level: match one.severity {
            Severity::High => "error",
            Severity::Medium => "warning",
            Severity::Low | Severity::Info => "note",
        },
        message: match one.is_limited() {
            true => format!("{}. A constraint limits it already", visible(&one.note)),
            false => format!("{}. {}", visible(&one.note), one.fix),
        },
        file: file.to_owned(),
        thing: format!("{}#{}", one.thing, one.at),
    };
    sarif::log(&found.iter().map(one).collect::<Vec<_>>())
}
