//! `portcullis eval`: evaluates definitions of tools by examples.

mod record;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use evaluation::comparison::{Comparison, Evaluated, compare};
use evaluation::example::{Example, ExpectedOutcome};
use evaluation::result::Evaluation;
use evaluation::run::{
    CallDecision, CallJudge, CandidateOrder, NoJudge, SelectorOrder, evaluate_ordered,
};
use evaluation::suite::{Definitions, Examples};
use evaluation::threshold::{Bound, Measure, Verdict, verdicts};
use evaluation::tool::{EvaluatedTool, ToolName};
use gateway::base::error_chain::ErrorChain;
use gateway::config::settings::cases::{CallerDescription, TestRequest};
use gateway::config::settings::evaluation_folder::{
    self, EvaluationFolder, FolderContext, GivenDefinition, LockedChoice, locked_definitions,
};
use gateway::config::settings::{Approvers, Settings, lockfile};
use gateway::control::dry_run::DryRun;
use gateway::mcp::tool_signature::ToolSignature;
use json::{Fragment, hex};
use policy::definition::drift::visible;
use policy::definition::lock::EvaluationResult;
use policy::definition::offer::ItemKind;
use policy::definition::pin::Digest;
use policy::definition::pins::Pins;
use policy::rules::decision::Effect;
use policy_core::subject::name::ServerName;
use selector::index::MAX_LIMIT;
use selector::model::Model;

use super::select::services::Services;
use record::ToolVerdict;

use super::{INVALID, complain, pin, print, print_for_people, say};

/// Exit code: a figure does not reach its threshold, or has fallen by more than is tolerated.
const RED: u8 = 5;
/// Most problems of callers that are shown.
const SHOWN: usize = 20;

#[derive(Debug, Args)]
pub(super) struct EvalArgs {
    /// The folder: `NAME.schema.json` has the definition of a tool, `NAME.examples.jsonl` an example of a request a line, and
    /// `NAME.policy.yaml` limits on its arguments.
    folder: PathBuf,
    /// A configuration. Its lockfile gives the other tools, and its policy decides about the calls of examples that name a
    /// caller.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How many tools a search shows: `recall` is the share of requests with an expected tool among them.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// A lockfile. The definitions in it are evaluated too, and the evaluation fails if the new ones are worse.
    #[arg(long, value_name = "OLD.lock")]
    compare: Option<PathBuf>,
    /// A threshold: `top1`, `recall`, `meanRank`, `validArguments`, `forbiddenTools`, `forbiddenArguments`, `policy` or
    /// `graveFindings`, and a number. Can be given more than once.
    #[arg(long, value_name = "FIGURE=NUMBER", value_parser = figure)]
    threshold: Vec<GivenFigure>,
    /// By how much a figure may get worse with `--compare`, named as for `--threshold`. Can be given more than once.
    #[arg(long, value_name = "FIGURE=NUMBER", value_parser = figure, requires = "compare")]
    tolerance: Vec<GivenFigure>,
    /// Record in the lockfile of the configuration, beside the definition of each tool that examples expect, whether it
    /// passed and the digest of the evaluation. A proposed definition is evaluated before an approved one.
    #[arg(long, requires = "config")]
    record: bool,
    /// Order the first tools of each search as the judge of the configuration says (`selection.judge`). It is sent the
    /// requests of the examples.
    #[arg(long, requires = "config")]
    judge: bool,
    /// Output format of the result.
    #[arg(long, value_enum, default_value_t = EvalFormat::Human)]
    format: EvalFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EvalFormat {
    /// Text for people to read.
    Human,
    /// JSON for other programs.
    Json,
    /// JUnit XML, for CI.
    Junit,
}

/// A number that the command line gives for a figure.
#[derive(Clone, Copy, Debug)]
struct GivenFigure {
    measure: Measure,
    number: f64,
}

/// Reads a threshold or a tolerance, as `FIGURE=NUMBER`.
fn figure(text: &str) -> Result<GivenFigure, String> {
    let (name, number) = text.split_once('=').ok_or("write FIGURE=NUMBER, such as `top1=0.8`")?;
    let measure = Measure::ALL.into_iter().find(|measure| measure.as_str() == name);
    let measure = measure.ok_or_else(|| {
        let names: Vec<_> = Measure::ALL.into_iter().map(Measure::as_str).collect();
        format!("there is no such figure; there are: {}", names.join(", "))
    })?;
    let number: Option<f64> = number.parse().ok();
    let number = number.filter(|number| number.is_finite() && *number >= 0.0);
    Ok(GivenFigure { measure, number: number.ok_or("the number must be 0 or more")? })
}

/// The number that was given last for a figure.
fn given(all: &[GivenFigure], measure: Measure) -> Option<f64> {
    all.iter().rfind(|one| one.measure == measure).map(|one| one.number)
}

pub(super) fn run(eval: &EvalArgs) -> ExitCode {
    evaluated(eval).unwrap_or_else(|code| code)
}

/// What a configuration contributes.
struct Configured {
    settings: Settings,
    rehearsal: DryRun,
    /// The approvals in force, of which some accept findings.
    pins: Pins,
    /// The approved definitions of the lockfile.
    definitions: Vec<GivenDefinition>,
}

/// What a run of the verb comes to.
struct EvalOutcome {
    evaluation: Evaluation,
    definitions: Definitions,
    examples: Examples,
    verdicts: Vec<Verdict>,
    comparison: Option<Comparison>,
    /// SHA-256 over the inputs, by what each of them is.
    inputs: BTreeMap<&'static str, String>,
    /// What the evaluation came to for each tool that examples expect.
    tools: BTreeMap<ToolName, ToolVerdict>,
    /// Number of examples that name a caller without a configuration that could decide.
    undecided: usize,
}

impl EvalOutcome {
    fn passes(&self) -> bool {
        self.verdicts.iter().all(Verdict::holds)
            && !self.comparison.as_ref().is_some_and(Comparison::falls)
    }

    /// Whether a tool failed, although all tools together may reach the thresholds.
    fn has_failed_tool(&self) -> bool {
        self.tools.values().any(|tool| tool.result == EvaluationResult::Failed)
    }
}

fn evaluated(eval: &EvalArgs) -> Result<ExitCode, ExitCode> {
    let choice = match eval.record {
        true => LockedChoice::Proposed,
        false => LockedChoice::Approved,
    };
    let configured = |file| configured(file, choice);
    let mut configured = eval.config.as_deref().map(configured).transpose()?;
    let former = eval.compare.as_deref().map(former).transpose()?;
    let mut known = former.clone().unwrap_or_default();
    known.extend(configured.iter().flat_map(|one| one.definitions.clone()));
    let servers = configured.iter().flat_map(|one| &one.settings.servers);
    let servers: Vec<_> = servers.map(|server| server.name.as_str()).collect();
    let server = if let [only] = servers.as_slice() { Some(Box::from(*only)) } else { None };
    let context = FolderContext { known, server };
    let folder = evaluation_folder::read(&eval.folder, &context).map_err(|problems| {
        problems.iter().for_each(|problem| say(problem.human().trim_end()));
        let count: usize = problems.iter().map(|problem| problem.count()).sum();
        say(&format!(
            "{count} {}; nothing was evaluated",
            if count == 1 { "problem" } else { "problems" }
        ));
        ExitCode::from(INVALID)
    })?;
    if let Some(configured) = &configured {
        callers_exist(&folder.examples, configured)?;
    }
    let outcome = outcome(eval, configured.as_mut(), former, folder)?;
    match eval.format {
        EvalFormat::Human => print_for_people(&report::human(&outcome)),
        EvalFormat::Json => print(&report::as_json(&outcome)),
        EvalFormat::Junit => print(&report::as_junit(&outcome)),
    };
    if let Some(configured) = configured.filter(|_| eval.record) {
        record::recorded(&configured.settings, &outcome)?;
    }
    let passes = outcome.passes() && !(eval.record && outcome.has_failed_tool());
    Ok(if passes { ExitCode::SUCCESS } else { ExitCode::from(RED) })
}

/// Loads a configuration with the definitions of its lockfile.
fn configured(file: &Path, choice: LockedChoice) -> Result<Configured, ExitCode> {
    let mut settings = super::settings(file)?;
    // A proposal is not signed yet, and recording its evaluation changes the file in any case.
    let approvers = match choice {
        LockedChoice::Proposed => std::mem::take(&mut settings.pins.approvers),
        LockedChoice::Approved => settings.pins.approvers.clone(),
    };
    let pins = pin::in_force(&settings)?;
    let definitions = locked_definitions(&pins.lock, choice);
    let rehearsal = DryRun::new(&mut settings);
    let rehearsal = rehearsal.map_err(|error| complain(&ErrorChain(&error).to_string()))?;
    settings.pins.approvers = approvers;
    Ok(Configured { settings, rehearsal, pins, definitions })
}

/// The approved definitions of the lockfile to compare with. Whoever compares has it from Git, so no signature is asked
/// for.
fn former(file: &Path) -> Result<Vec<GivenDefinition>, ExitCode> {
    let read = lockfile::read(file, &Approvers::default());
    let (lock, _) = read.map_err(|error| complain(&ErrorChain(&error).to_string()))?;
    let definitions = locked_definitions(&lock, LockedChoice::Approved);
    if definitions.is_empty() {
        let shown = file.display();
        return Err(complain(&format!(
            "`{shown}` approves no tool, so there is nothing to compare with"
        )));
    }
    Ok(definitions)
}

/// Checks that the policy can decide about every call that it is to decide about.
fn callers_exist(examples: &[Example], configured: &Configured) -> Result<(), ExitCode> {
    let servers: BTreeSet<&str> =
        configured.settings.servers.iter().map(|server| server.name.as_str()).collect();
    let mut wrong = Vec::new();
    for example in examples {
        let (Some(outcome), Some(tool)) = (&example.outcome, example.expected.first()) else {
            continue;
        };
        let place = format!("{}:{}", example.file, example.line);
        if let Err(error) = caller(outcome, &configured.settings) {
            wrong.push(format!("{place}: `principal` {error}; correct it"));
        }
        if !servers.contains(&*tool.server) {
            let shown = visible(&tool.to_string());
            let list: Vec<_> = servers.iter().copied().collect();
            wrong.push(format!(
                "{place}: the configuration has no server of `{shown}`; name it as `server` in `NAME.policy.yaml`: {}",
                list.join(", ")
            ));
        }
    }
    wrong.iter().take(SHOWN).for_each(|wrong| say(&format!("error: {wrong}")));
    if wrong.is_empty() { Ok(()) } else { Err(ExitCode::from(INVALID)) }
}

/// The caller of an example.
fn caller(
    outcome: &ExpectedOutcome,
    settings: &Settings,
) -> Result<policy_core::subject::principal::Principal, policy_core::subject::name::NameError> {
    let described =
        CallerDescription { id: outcome.principal.clone(), ..CallerDescription::default() };
    described.principal(settings)
}

/// Evaluates the definitions, and the former ones to compare with.
fn outcome(
    eval: &EvalArgs,
    configured: Option<&mut Configured>,
    former: Option<Vec<GivenDefinition>>,
    folder: EvaluationFolder,
) -> Result<EvalOutcome, ExitCode> {
    let model = Model::built_in();
    let EvaluationFolder { definitions: own, examples, demands, texts } = folder;
    let named: BTreeSet<ToolName> = examples.iter().flat_map(|one| one.expected.clone()).collect();
    let others: Vec<_> = configured.iter().flat_map(|one| one.definitions.clone()).collect();
    let pins = configured.as_ref().map(|one| one.pins.clone()).unwrap_or_default();
    // A former tool that examples are about, of a server that the folder defines, is gone if the folder has it no more.
    let servers: BTreeSet<Box<str>> = own.iter().map(|one| one.server.clone()).collect();
    let is_gone =
        |one: &GivenDefinition| servers.contains(&one.server) && named.contains(&one.name());
    let kept = former.iter().flatten().filter(|one| !is_gone(one)).cloned();
    let now = prepared(model, &pins, own.into_iter().chain(others.clone()).chain(kept))?;
    let mut inputs = inputs(&now, &texts, configured.as_deref());
    let order = candidate_order(eval, configured.as_deref(), &mut inputs)?;
    let judge: Box<dyn CallJudge> = match configured {
        Some(configured) => Box::new(RehearsalJudge::new(configured, &now)),
        None => Box::new(NoJudge),
    };
    let examples = Examples::new(model, examples, demands);
    let definitions = Definitions::new(model, now);
    let limit = usize::from(eval.limit).min(MAX_LIMIT);
    let evaluation = evaluate_ordered(&definitions, &examples, limit, &*judge, &*order);
    let comparison = match former {
        None => None,
        Some(former) => {
            let former = prepared(model, &pins, former.into_iter().chain(others))?;
            let former = Definitions::new(model, former);
            let before = evaluate_ordered(&former, &examples, limit, &*judge, &*order);
            let before = Evaluated { definitions: &former, evaluation: &before };
            let after = Evaluated { definitions: &definitions, evaluation: &evaluation };
            let tolerance =
                |measure: Measure| given_or(&eval.tolerance, measure, Measure::tolerance);
            Some(compare(&examples, before, after, tolerance))
        }
    };
    let verdicts = verdicts(&evaluation, &definitions, |measure| bound_of(eval, measure));
    let calls = examples.iter().filter(|one| one.outcome.is_some()).count();
    let undecided = calls - evaluation.figures.outcomes.of;
    let tools = BTreeMap::new();
    let outcome = EvalOutcome {
        verdicts,
        comparison,
        inputs,
        tools,
        undecided,
        evaluation,
        definitions,
        examples,
    };
    Ok(EvalOutcome { tools: record::by_tool(eval, &outcome), ..outcome })
}

/// The threshold of a figure.
fn bound_of(eval: &EvalArgs, measure: Measure) -> Bound {
    given(&eval.threshold, measure).map_or_else(|| measure.usual(), |number| measure.bound(number))
}

/// The order of the first tools of a search: that of the judge, if it is to be asked, and the selector's otherwise.
fn candidate_order(
    eval: &EvalArgs,
    configured: Option<&Configured>,
    inputs: &mut BTreeMap<&'static str, String>,
) -> Result<Box<dyn CandidateOrder>, ExitCode> {
    if !eval.judge {
        return Ok(Box::new(SelectorOrder));
    }
    let settings = configured.and_then(|one| one.settings.selection.judge.as_ref());
    let settings = settings.ok_or_else(|| {
        complain("the configuration has no judge: write `selection.judge`, or leave out `--judge`")
    })?;
    inputs.insert("judge", sha256(settings.service.model.as_bytes()));
    let services = Services::new(Some(settings), None, &[]).map_err(|why| complain(&why))?;
    Ok(Box::new(JudgeOrder { services, candidates: settings.candidates }))
}

/// Orders tools as a judge says; where it gives no order, the selector's stands, and a warning says so.
struct JudgeOrder {
    services: Services,
    candidates: usize,
}

impl CandidateOrder for JudgeOrder {
    fn candidates(&self) -> usize {
        self.candidates
    }

    fn order(&self, request: &str, candidates: &[&EvaluatedTool]) -> Vec<usize> {
        if candidates.len() < 2 {
            return Vec::new();
        }
        let signature = |tool: &&EvaluatedTool| Arc::new(ToolSignature::read(tool.definition()));
        let places = self.services.places(request, candidates.iter().map(signature).collect());
        places.and_then(Result::ok).unwrap_or_default().into_iter().map(usize::from).collect()
    }
}

fn given_or(all: &[GivenFigure], measure: Measure, usual: fn(Measure) -> f64) -> f64 {
    given(all, measure).unwrap_or_else(|| usual(measure))
}

/// Prepares definitions, of which the first of each name counts. What the lockfile accepts is no finding.
fn prepared(
    model: &'static Model,
    pins: &Pins,
    all: impl Iterator<Item = GivenDefinition>,
) -> Result<Vec<Arc<EvaluatedTool>>, ExitCode> {
    let (mut seen, mut tools) = (BTreeSet::new(), Vec::new());
    for one in all {
        if !seen.insert(one.name()) {
            continue;
        }
        let mut tool = EvaluatedTool::new(model, &one.server, &one.document).map_err(|error| {
            let (name, error) = (visible(&one.name().to_string()), ErrorChain(&error).to_string());
            say(&format!("error: the definition of `{name}` is of no use: {error}; correct it"));
            ExitCode::from(INVALID)
        })?;
        let kind = Some(ItemKind::Tool);
        let accepted = pins.exceptions(&one.server, kind, &tool.name.name, tool.offer.digest());
        tool.remarks.retain(|remark| accepted.iter().all(|one| one.finding.name() != remark.rule));
        tools.push(Arc::new(tool));
    }
    Ok(tools)
}

fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(&json::coding::sha256([bytes])))
}

/// The digests of what was evaluated, and with what.
fn inputs(
    tools: &[Arc<EvaluatedTool>],
    texts: &[Vec<u8>],
    configured: Option<&Configured>,
) -> BTreeMap<&'static str, String> {
    let named = tools.iter().filter_map(|tool| Some((&*tool.name.name, tool.offer.digest()?)));
    // The length of each file comes before its text, so that no two sets of files have one digest.
    let texts: Vec<u8> = texts
        .iter()
        .flat_map(|text| [text.len().to_be_bytes().to_vec(), text.clone()].concat())
        .collect();
    let mut inputs = BTreeMap::new();
    inputs.insert("definitions", Digest::of_set(named).to_string());
    inputs.insert("examples", sha256(&texts));
    inputs.insert("selector", format!("sha256:{}", hex::encode(&Model::built_in_digest())));
    if let Some(configured) = configured {
        inputs.insert("policy", configured.settings.digest.clone());
    }
    inputs
}

/// Decides about calls as a configuration would, with the definitions of the folder in place of those of the lockfile.
struct RehearsalJudge<'a> {
    settings: &'a Settings,
    rehearsal: &'a DryRun,
}

impl<'a> RehearsalJudge<'a> {
    fn new(configured: &'a mut Configured, tools: &[Arc<EvaluatedTool>]) -> Self {
        let servers = &configured.settings.servers;
        let known = |tool: &Arc<EvaluatedTool>| {
            let server =
                servers.iter().find(|server| server.name.as_str() == &*tool.name.server)?;
            Some((server.name.clone(), tool.offer.clone()))
        };
        configured.rehearsal.approve(tools.iter().filter_map(known).collect());
        Self { settings: &configured.settings, rehearsal: &configured.rehearsal }
    }
}

impl CallJudge for RehearsalJudge<'_> {
    fn decide(
        &self,
        outcome: &ExpectedOutcome,
        tool: &ToolName,
        arguments: Option<&Fragment>,
    ) -> Option<CallDecision> {
        let question = TestRequest {
            principal: caller(outcome, self.settings).ok()?,
            server: ServerName::parse(&tool.server).ok()?,
            kind: ItemKind::Tool,
            name: tool.name.clone(),
            arguments: arguments.cloned(),
            planner: None,
        };
        let answer = self.rehearsal.ask_in_flow(&question, outcome.flow);
        Some(match &answer.decision.effect {
            Effect::Allow(_) => CallDecision { allowed: true, reason: None },
            Effect::Deny(denial) => {
                CallDecision { allowed: false, reason: Some(denial.reason.code().to_owned()) }
            }
        })
    }
}

/// The bound of a threshold in words.
fn in_words(bound: Bound) -> String {
    match bound {
        Bound::Least(number) => format!("at least {number}"),
        Bound::Most(number) if number.is_infinite() => "any".to_owned(),
        Bound::Most(number) => format!("at most {number}"),
    }
}
