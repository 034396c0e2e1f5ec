//! `portcullis policy simulate`: decides the exchanges of an audit log again with another configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gateway::audit::{CERTIFICATE, FOREIGN, NAMES, OAUTH};
use gateway::config::settings::Settings;
use gateway::config::settings::cases::{CallerDescription, TestRequest, planner_of};
use gateway::control::dry_run::DryRun;
use gateway::mcp::protocol::method;
use json::Value;
use policy::definition::offer::ItemKind;
use policy::rules::access::AnywayDecision;
use policy::rules::decision::Effect;
use policy_core::subject::name::{RESERVED, ServerName};
use policy_core::subject::principal::{Principal, ProofOfPossession};
use serde_json::json;

use super::super::printable::in_a_line;
use super::super::{OutputFormat, audit, complain, print, print_for_people, say};
use super::{DENIED, allowed, denied, recorded_name, rehearsal, verdict};

/// Reason code of a caller that the configuration would not authenticate.
const NOBODY: &str = "unknown-caller";

#[derive(Debug, Args)]
pub(super) struct SimulateArgs {
    /// The configuration to try.
    #[arg(short, long, alias = "policy", value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    /// The files of the audit log, or `-` for standard input. The rotated files beside a file are read as well.
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    against: Vec<PathBuf>,
    /// Exit with 5 if any decision would be different.
    #[arg(long)]
    strict: bool,
    /// Output format of the result.
    #[arg(long, value_enum, default_value_t = OutputFormat::Human)]
    format: OutputFormat,
}

/// A recorded decision by rules that would be different.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ChangedDecision {
    principal: String,
    server: String,
    thing: String,
    was: String,
    would: String,
}

/// Result of the simulation.
#[derive(Debug, Default)]
struct SimulationResult {
    same: u64,
    /// Exchanges that were not decided by rules, but by findings or pins.
    others: u64,
    /// Exchanges whose decision depends on what is not recorded: on arguments, or on the server's name of a renamed tool.
    open: u64,
    /// The changed decisions, each with the number of exchanges and the time of the last one.
    flips: BTreeMap<ChangedDecision, (u64, String)>,
}

pub(super) fn run(simulate: &SimulateArgs) -> Result<ExitCode, ExitCode> {
    let (settings, rehearsal) = rehearsal(&simulate.config)?;
    let mut tally = SimulationResult::default();
    let read = audit::each(&simulate.against, &mut |record| {
        count(record, &settings, &rehearsal, &mut tally);
    });
    let unread = read.map_err(|error| complain(&error.to_string()))?;
    if unread > 0 {
        say(&format!("{unread} lines are no records; `portcullis audit verify` says why"));
    }
    match simulate.format {
        OutputFormat::Human => print_for_people(&words(&tally)),
        OutputFormat::Json => print(&format!("{}\n", shown(&tally))),
    };
    let flipped = simulate.strict && !tally.flips.is_empty();
    Ok(if flipped { ExitCode::from(DENIED) } else { ExitCode::SUCCESS })
}

/// The ids of the rules that decided something in the log, and the time of its first record.
pub(super) fn used(files: &[PathBuf]) -> io::Result<(BTreeSet<String>, String)> {
    let (mut used, mut since) = (BTreeSet::new(), None);
    audit::each(files, &mut |record| {
        since = since.take().or_else(|| text(record, "time"));
        used.extend(text(record, "rule"));
    })?;
    Ok((used, since.unwrap_or_else(|| "ever".to_owned())))
}

fn text(record: Value<'_>, name: &str) -> Option<String> {
    Some(record.get(name)?.as_str()?.into_owned())
}

fn texts(record: Value<'_>, name: &str) -> Vec<String> {
    let items = record.get(name).into_iter().flat_map(Value::items);
    items.filter_map(|item| item.as_str().map(String::from)).collect()
}

/// What the exchange of a record was about.
enum RecordSubject {
    /// One definition, by its kind and name.
    Thing(ItemKind, String),
    /// The list of all definitions of a kind.
    List(ItemKind),
}

impl RecordSubject {
    fn of(record: Value<'_>) -> Option<Self> {
        let named = ItemKind::LISTED
            .into_iter()
            .find_map(|kind| Some((kind, text(record, kind.as_str())?)));
        if let Some((kind, name)) = named {
            return Some(Self::Thing(kind, name));
        }
        let asked = text(record, "method")?;
        let listed = ItemKind::LISTED.into_iter().find(|kind| method::list(*kind) == asked);
        match listed {
            Some(kind) => Some(Self::List(kind)),
            None if method::clamped(&asked) == asked => None,
            // A method that the gateway does not know is a definition of its own.
            None => Some(Self::Thing(ItemKind::Method, asked)),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Thing(kind, name) => format!("{} {name}", kind.as_str()),
            Self::List(kind) => format!("the list of {}", kind.list()),
        }
    }
}

/// What rules say of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleOutcome {
    /// It is allowed.
    Allowed,
    /// It is allowed once a person has approved it.
    Asks,
    /// It is denied.
    Denied,
}

/// What rules say of an exchange, also in words.
struct SimulatedVerdict {
    outcome: RuleOutcome,
    words: String,
}

impl SimulatedVerdict {
    /// What a record says.
    fn logged(asked: AskedBy, reason: Option<&str>, rule: Option<String>) -> Self {
        match (asked, reason) {
            (AskedBy::Rule, _) => {
                let words = needs_approval(&allowed(&rule.unwrap_or_default()));
                Self { outcome: RuleOutcome::Asks, words }
            }
            (AskedBy::Nobody | AskedBy::Flow, Some(reason)) => {
                Self { outcome: RuleOutcome::Denied, words: denied(&reason, rule) }
            }
            (AskedBy::Nobody | AskedBy::Flow, None) => {
                let words = allowed(&rule.unwrap_or_default());
                Self { outcome: RuleOutcome::Allowed, words }
            }
        }
    }

    /// What the configuration would decide.
    fn simulated(would: &AnywayDecision) -> Self {
        let words = verdict(&would.effect);
        match would.effect {
            Effect::Deny(_) => Self { outcome: RuleOutcome::Denied, words },
            Effect::Allow(_) if would.needs_approval => {
                Self { outcome: RuleOutcome::Asks, words: needs_approval(&words) }
            }
            Effect::Allow(_) => Self { outcome: RuleOutcome::Allowed, words },
        }
    }
}

/// A decision in the audit log.
struct LoggedDecision {
    /// What was decided about.
    thing: String,
    server: String,
    was: SimulatedVerdict,
}

fn count(record: Value<'_>, settings: &Settings, rehearsal: &DryRun, tally: &mut SimulationResult) {
    let text = |name: &str| text(record, name);
    if text("event").as_deref() != Some("exchange") {
        return;
    }
    let Some((was, decided)) = text("decision").zip(text("server")) else { return };
    // The self-test is decided by rules of its own.
    let Some(about) = RecordSubject::of(record).filter(|_| decided != RESERVED) else { return };
    let reason = text("reason").filter(|_| was == "deny");
    let asked = asked_by(record, reason.as_deref());
    if asked == AskedBy::Flow
        || asked == AskedBy::Nobody && !reason.as_deref().is_none_or(is_of_rules)
    {
        tally.others += 1;
        return;
    }
    let was = SimulatedVerdict::logged(asked, reason.as_deref(), text("rule"));
    let decision = LoggedDecision { thing: about.shown(), server: decided.clone(), was };
    let would = match (caller(record, settings), ServerName::parse(&decided)) {
        (RecordedCaller::Known(principal), Ok(server)) => match &about {
            RecordSubject::List(kind) => Some(AnywayDecision {
                effect: rehearsal.of_list(&principal, &server, *kind),
                needs_approval: false,
            }),
            // The rule may depend on the part of the name that the record cut off.
            RecordSubject::Thing(_, name) if name.len() + 4 > FOREIGN => None,
            RecordSubject::Thing(kind, name) => {
                let route = text("route");
                let recorded = (name.as_str(), route.as_deref());
                // The rules are about the server's names, and the record has the one on the route.
                recorded_name(settings, rehearsal, &server, *kind, recorded).and_then(|name| {
                    // A route that is gone is for no planner any more.
                    let planner = route.as_deref().map(|route| planner_of(settings, route));
                    let planner = planner.and_then(Result::ok).flatten();
                    rehearsal.by_rules(&TestRequest {
                        principal: *principal,
                        server,
                        kind: *kind,
                        name,
                        arguments: None,
                        planner,
                    })
                })
            }
        },
        (RecordedCaller::Cut, _) => None,
        (RecordedCaller::Nobody, _) | (_, Err(_)) => {
            let words = denied::<&str>(&NOBODY, None);
            let would = SimulatedVerdict { outcome: RuleOutcome::Denied, words };
            return note(tally, record, decision, would);
        }
    };
    let Some(would) = would else {
        tally.open += 1;
        return;
    };
    note(tally, record, decision, SimulatedVerdict::simulated(&would));
}

/// Counts an exchange as unchanged, or adds it to the changed decisions.
fn note(
    tally: &mut SimulationResult,
    record: Value<'_>,
    decision: LoggedDecision,
    would: SimulatedVerdict,
) {
    let LoggedDecision { thing, server, was } = decision;
    if would.outcome == was.outcome {
        tally.same += 1;
        return;
    }
    let principal = text(record, "principal").unwrap_or_default();
    let flip = ChangedDecision { principal, server, thing, was: was.words, would: would.words };
    let entry = tally.flips.entry(flip).or_default();
    entry.0 += 1;
    entry.1 = text(record, "time").unwrap_or_default();
}

/// What asked for the approval of a person, according to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskedBy {
    /// No person was asked.
    Nobody,
    /// A rule, or the registry.
    Rule,
    /// Flow control, which cannot be simulated.
    Flow,
}

fn asked_by(record: Value<'_>, reason: Option<&str>) -> AskedBy {
    let is_denied = reason.is_some_and(|reason| reason.starts_with("approval-"));
    if !is_denied && record.get("approval").is_none() {
        return AskedBy::Nobody;
    }
    let found = ["findings", "found"].iter().filter_map(|key| record.get(key));
    let mut found = found.flat_map(Value::items).filter_map(Value::as_str);
    if found.any(|finding| finding.starts_with("flow at ")) { AskedBy::Flow } else { AskedBy::Rule }
}

fn needs_approval(allowed: &str) -> String {
    format!("{allowed}, if a person approves it")
}

/// Whether a denial came from rules. Other denials cannot be decided again without the definition and the arguments of
/// that time.
fn is_of_rules(reason: &str) -> bool {
    matches!(
        reason,
        "not-granted"
            | "forbidden"
            | "condition-error"
            | "insufficient-scope"
            | "proof-required"
            | "method-not-granted"
    )
}

/// The caller of a record, according to the configuration.
pub(in crate::cli) enum RecordedCaller {
    /// A principal with all of its claims.
    Known(Box<Principal>),
    /// A principal whose record was cut, so that some of its claims are missing.
    Cut,
    /// The configuration would not authenticate this caller.
    Nobody,
}

/// Finds the caller by its name in the configuration, or rebuilds it from the claims in the record if a token or a
/// certificate proved them.
pub(in crate::cli) fn caller(record: Value<'_>, settings: &Settings) -> RecordedCaller {
    let Some(id) = text(record, "principal") else { return RecordedCaller::Nobody };
    let scheme = text(record, "scheme");
    let known = settings.identity.principals().into_iter().find(|known| known.id.as_str() == id);
    let lets_in = match scheme.as_deref() {
        Some(OAUTH) => !settings.identity.issuers.is_empty(),
        Some(CERTIFICATE) => !settings.identity.certificates.is_empty(),
        Some(_) | None => {
            return known
                .map_or(RecordedCaller::Nobody, |known| RecordedCaller::Known(Box::new(known)));
        }
    };
    if !lets_in {
        return RecordedCaller::Nobody;
    }
    let lists = ["groups", "roles", "scopes"].map(|name| texts(record, name));
    if lists.iter().any(|list| list.len() >= NAMES) {
        return RecordedCaller::Cut;
    }
    let [groups, roles, scopes] = lists;
    let proof = match text(record, "proof").as_deref() {
        Some("certificate") => ProofOfPossession::Certificate,
        Some("dpop") => ProofOfPossession::Dpop,
        Some(_) | None => ProofOfPossession::None,
    };
    let described =
        CallerDescription { id, groups, roles, scopes, client: text(record, "client"), proof };
    described
        .principal(settings)
        .map_or(RecordedCaller::Cut, |known| RecordedCaller::Known(Box::new(known)))
}

fn words(tally: &SimulationResult) -> String {
    let mut out = String::new();
    for (flip, (count, last)) in &tally.flips {
        let ChangedDecision { principal, server, thing, was, would } = flip;
        let [principal, server, thing] = [principal, server, thing].map(|text| in_a_line(text));
        let [was, would, last] = [was, would, last].map(|text| in_a_line(text));
        writeln!(
            out,
            "{count:>6}  {principal}  {thing} of {server}\n        was   {was}\n        would {would}\n        last  {last}"
        )
        .unwrap_or_default();
    }
    let flips: u64 = tally.flips.values().map(|(count, _)| count).sum();
    writeln!(
        out,
        "{flips} would come out otherwise, {} the same; {} depend on arguments or names that are not on record; \
         {} were not decided by rules",
        tally.same, tally.open, tally.others
    )
    .unwrap_or_default();
    out
}

fn shown(tally: &SimulationResult) -> serde_json::Value {
    let flips = tally.flips.iter().map(|(flip, (count, last))| {
        let ChangedDecision { principal, server, thing, was, would } = flip;
        json!({ "principal": principal, "server": server, "thing": thing, "was": was, "would": would,
            "count": count, "last": last })
    });
    json!({ "flips": flips.collect::<Vec<_>>(), "same": tally.same, "dependOnArguments": tally.open,
        "notByRules": tally.others })
}
