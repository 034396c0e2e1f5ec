//! `portcullis policy`: explains, tests, simulates and reviews the rules of a configuration without running the
//! gateway.

pub(super) mod simulate;

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::{fs, io};

use clap::{Args, Subcommand, ValueEnum};
use gateway::audit::lines::finding_in_words;
use gateway::base::error_chain::ErrorChain;
use gateway::config::settings::cases::{
    self, CallerDescription, ExpectedDecision, TestCase, TestRequest, UnknownRoute,
};
use gateway::config::settings::{RouteSettings, Settings};
use gateway::control::dry_run::{DenialMessage, DryRun, DryRunAnswer, ItemKnowledge};
use gateway::mcp::tool_naming::{NameForm, Naming, is_prefixed, prefixed};
use gateway::serve::generation::ConfiguredNames;
use json::{Document, Fragment, JsonBounds};
use policy::definition::drift::visible;
use policy::definition::lock::ApprovalState;
use policy::definition::offer::ItemKind;
use policy::flow::planner::Planner;
use policy::rules::constraint::UnmatchedConstraint;
use policy::rules::decision::{Decision, Denial, Effect, Reason};
use policy::rules::explain::{Applicability, RuleExplanation, RuleIssue, RuleRemark};
use policy_core::subject::name::{Scope, ServerName};
use policy_core::subject::principal::{Principal, ProofOfPossession};
use serde_json::json;

use super::printable::in_a_line;
use super::rule_review::WildcardReview;
use super::ungranted::Ungranted;
use super::{OutputFormat, complain, invalid, print, print_for_people, rule_review, say, why};
use simulate::SimulateArgs;

/// Exit code: a test case failed, the explained call is denied, or a simulated decision differs.
const DENIED: u8 = 5;
/// Exit code: the review of the rules has remarks.
const EXIT_FOUND: u8 = 6;
/// How a file of test cases begins.
const FIRST_CASE: &str = "\
# The cases that `portcullis policy test` decides: docs/policy.md, \"Before it decides\".
tests:
  - name: what it shows
    principal: NAME               # a caller of the configuration; or a described one, with groups, roles or scopes
    server: NAME
    tool: NAME                    # or prompt, resource, skill, method
    arguments: {}
    expect: deny                  # or allow
";

#[derive(Debug, Args)]
pub(super) struct PolicyArgs {
    #[command(subcommand)]
    verb: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Explain the decision about one call: which rule decides, and what every other rule says of the call. Exits with
    /// 5 if the call is denied. Without a tool, prompt, resource, skill or method: show which definitions of the server the
    /// caller sees by the lockfile, and why the others are hidden.
    Explain(Box<ExplainArgs>),
    /// Run test cases, by default those in `NAME.test.yaml` beside `NAME.yaml`. Exits with 5 if a case fails.
    Test(PolicyTestArgs),
    /// Decide the exchanges of an audit log again with another configuration, and show which decisions would change,
    /// and for which callers.
    Simulate(SimulateArgs),
    /// Report rules that are superfluous, very broad, idle or inactive, and approved definitions that no rule grants;
    /// with an audit log, also rules that were never used. Exits with 6 if there is anything to report.
    Lint(LintArgs),
}

#[derive(Debug, Args)]
struct ExplainArgs {
    /// The configuration file to read.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    /// The principal that calls. If the configuration knows it, it has the groups and scopes from there unless they are
    /// given here.
    #[arg(long, value_name = "ID")]
    principal: String,
    /// A group of the principal. Can be given more than once.
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// A role of the principal. Can be given more than once.
    #[arg(long, value_name = "NAME")]
    role: Vec<String>,
    /// A scope of the principal, with all that it implies. Can be given more than once.
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<String>,
    /// The client that the principal uses.
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// How the principal has proved possession of its credential.
    #[arg(long, value_enum)]
    proof: Option<ProofArg>,
    /// The path of the route on which it is called. It matters where routes are for planners.
    #[arg(long, value_name = "PATH")]
    route: Option<String>,
    /// The upstream server that is called.
    #[arg(long, value_name = "NAME")]
    server: String,
    #[command(flatten)]
    thing: ExplainTarget,
    /// The arguments of the call, as a JSON object.
    #[arg(long, value_name = "JSON")]
    arguments: Option<String>,
    /// Output format of the decision.
    #[arg(long, value_enum, default_value_t = OutputFormat::Human)]
    format: OutputFormat,
}

#[derive(Debug, Args)]
#[group(required = false, multiple = false)]
struct ExplainTarget {
    /// The tool that is called, by its name on the server or on a route.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// The prompt that is requested.
    #[arg(long, value_name = "NAME")]
    prompt: Option<String>,
    /// The resource that is read.
    #[arg(long, value_name = "URI")]
    resource: Option<String>,
    /// The skill whose manifest is read: the path of the skill, or its URI.
    #[arg(long, value_name = "NAME")]
    skill: Option<String>,
    /// A method that the gateway does not know.
    #[arg(long, value_name = "NAME")]
    method: Option<String>,
}

impl ExplainTarget {
    fn named(&self) -> Option<(ItemKind, &str)> {
        let Self { tool, prompt, resource, skill, method } = self;
        let kinds = [
            (ItemKind::Tool, tool),
            (ItemKind::Prompt, prompt),
            (ItemKind::Resource, resource),
            (ItemKind::Skill, skill),
            (ItemKind::Method, method),
        ];
        kinds.into_iter().find_map(|(kind, name)| Some((kind, name.as_deref()?)))
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProofArg {
    /// By the TLS client certificate of its connection.
    Certificate,
    /// By a DPoP proof with each request.
    Dpop,
}

#[derive(Debug, Args)]
struct PolicyTestArgs {
    /// The files with test cases.
    files: Vec<PathBuf>,
    /// The configuration file to read.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    /// Output format of the result.
    #[arg(long, value_enum, default_value_t = OutputFormat::Human)]
    format: OutputFormat,
}

#[derive(Debug, Args)]
struct LintArgs {
    /// The configuration file to read.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    /// Files of the audit log: report rules that grant access and that decided nothing in these files.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    against: Vec<PathBuf>,
    /// Do not report this code: `covered`, `broad`, `idle`, `beside`, `inactive`, `ungranted` or `unused`.
    #[arg(long, value_name = "CODE")]
    allow: Vec<String>,
    /// Output format of the remarks.
    #[arg(long, value_enum, default_value_t = OutputFormat::Human)]
    format: OutputFormat,
}

pub(super) fn run(policy: PolicyArgs) -> ExitCode {
    let done = match policy.verb {
        PolicyCommand::Explain(explain) => self::explain(&explain),
        PolicyCommand::Test(test) => self::test(&test),
        PolicyCommand::Simulate(simulate) => simulate::run(&simulate),
        PolicyCommand::Lint(lint) => self::lint(&lint),
    };
    done.unwrap_or_else(|code| code)
}

/// Loads a configuration, and prepares to decide with it.
fn rehearsal(file: &Path) -> Result<(Settings, DryRun), ExitCode> {
    let mut settings = super::settings(file)?;
    let rehearsal = DryRun::new(&mut settings);
    let rehearsal = rehearsal.map_err(|error| complain(&ErrorChain(&error).to_string()))?;
    Ok((settings, rehearsal))
}

fn explain(explain: &ExplainArgs) -> Result<ExitCode, ExitCode> {
    let (settings, rehearsal) = rehearsal(&explain.config)?;
    say_unknown(explain, &settings);
    if explain.thing.named().is_none() {
        return listed(explain, &settings, &rehearsal).map_err(|why| complain(&why));
    }
    let mut question = question(explain, &settings).map_err(|why| complain(&why))?;
    if let Some(own) = own_name(&settings, &rehearsal, &question) {
        let (kind, shown) = (question.kind.as_str(), visible(&question.name));
        say(&format!("note: `{shown}` is the name on a route of the {kind} `{}`", visible(&own)));
        question.name = own;
    }
    let answer = rehearsal.ask(&question);
    match explain.format {
        OutputFormat::Human => print_for_people(&words(&question, &answer, &rehearsal)),
        OutputFormat::Json => print(&format!("{}\n", shown(&question, &answer, &rehearsal))),
    };
    let allowed = matches!(answer.decision.effect, Effect::Allow(_));
    Ok(if allowed { ExitCode::SUCCESS } else { ExitCode::from(DENIED) })
}

/// Lists the definitions of a server in the lockfile that a caller sees, and why the others are hidden.
fn listed(
    explain: &ExplainArgs,
    settings: &Settings,
    rehearsal: &DryRun,
) -> Result<ExitCode, String> {
    let (principal, server) = asked_about(explain, settings)?;
    let planner = planner(explain, settings)?;
    let policy = rehearsal.policy();
    let facts = policy.facts();
    let offers = rehearsal.offers().filter(|(of, _)| **of == server);
    let rows = offers.map(|(_, offer)| {
        let decision = policy.about(&facts, &principal, &server, offer);
        let why = why::unseen(policy, &facts, &server, offer, &decision);
        let (kind, name) = (offer.kind(), offer.name().as_str());
        let why = why.or_else(|| {
            let refusal = rehearsal.planner_refusal(planner, &server, kind, name)?;
            let decision = Decision::of(Effect::Deny(refusal));
            Some(why::reason(server.as_str(), &why::thing(kind, name), &decision))
        });
        (why::thing(offer.kind(), offer.name().as_str()), why, decision)
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        say(&format!("note: the lockfile has nothing of `{server}`: `portcullis pin`"));
    }
    Ok(match explain.format {
        OutputFormat::Human => {
            let mut out = String::new();
            for (thing, why, decision) in &rows {
                match why {
                    None => writeln!(out, "shown    {server} {thing}"),
                    Some(why) => writeln!(out, "hidden   {server} {thing}: {why}"),
                }
                .unwrap_or_default();
                for finding in decision.findings.iter().filter(|_| why.is_none()) {
                    writeln!(out, "         found: {finding}").unwrap_or_default();
                }
            }
            print_for_people(&out)
        }
        OutputFormat::Json => {
            let row = |(thing, why, decision): &(String, Option<String>, Decision)| {
                let findings = decision.findings.iter().map(ToString::to_string);
                json!({
                    "server": server.as_str(), "thing": thing, "listed": why.is_none(), "why": why,
                    "findings": findings.collect::<Vec<_>>(),
                })
            };
            let rows: Vec<_> = rows.iter().map(row).collect();
            print(&format!("{}\n", serde_json::Value::from(rows)))
        }
    })
}

fn question(explain: &ExplainArgs, settings: &Settings) -> Result<TestRequest, String> {
    let (principal, server) = asked_about(explain, settings)?;
    let arguments = explain.arguments.as_deref().map(|text| {
        let document = Document::parse(text.to_owned().into(), &JsonBounds::MESSAGE);
        let document = document.map_err(|error| format!("`--arguments`: {error}"))?;
        match document.root().is_object() {
            true => Ok(Fragment::whole(Arc::new(document))),
            false => Err("`--arguments` is not a JSON object".to_owned()),
        }
    });
    let (kind, name) = explain.thing.named().ok_or("name one thing")?;
    let arguments = arguments.transpose()?;
    let planner = planner(explain, settings)?;
    Ok(TestRequest { principal, server, kind, name: name.into(), arguments, planner })
}

/// The name at its server of something that is named as clients see it on a route, which is the name in audit records.
/// `None` if it is named as its server does.
fn own_name(settings: &Settings, rehearsal: &DryRun, question: &TestRequest) -> Option<Box<str>> {
    let TestRequest { server, kind, name: shown, .. } = question;
    if known_names(rehearsal, server, *kind).any(|own| own == &**shown) {
        return None;
    }
    settings.routes.iter().find_map(|route| {
        let own = RouteNaming::of(settings, route, server)?.own(rehearsal, *kind, shown);
        own.filter(|own| **own != **shown)
    })
}

/// The names of the items of a server in the lockfile.
fn known_names<'a>(
    rehearsal: &'a DryRun,
    server: &'a ServerName,
    kind: ItemKind,
) -> impl Iterator<Item = &'a str> {
    let offers = rehearsal.offers();
    let offers = offers.filter(move |(of, offer)| *of == server && offer.kind() == kind);
    offers.map(|(_, offer)| offer.name().as_str())
}

/// How the items of one server are named on one route.
struct RouteNaming<'a> {
    server: &'a ServerName,
    form: NameForm,
    naming: Naming,
}

impl<'a> RouteNaming<'a> {
    /// `None` if the route does not lead to the server.
    fn of(settings: &Settings, route: &RouteSettings, server: &'a ServerName) -> Option<Self> {
        let servers = route.servers.iter().filter_map(|index| settings.servers.get(*index));
        let servers: Arc<[_]> = servers.map(|server| server.name.clone()).collect();
        let place = servers.iter().position(|name| name == server)?;
        let form = NameForm::of(route.prefix, place, servers.len());
        Some(Self { server, form, naming: Naming::new(form, servers, Arc::default()) })
    }

    /// The name at the server of what the route shows as `shown`; `None` if it cannot be derived.
    fn own(&self, rehearsal: &DryRun, kind: ItemKind, shown: &str) -> Option<Box<str>> {
        let Self { server, form, naming } = self;
        let own = match kind {
            ItemKind::Resource | ItemKind::Template | ItemKind::Skill => {
                naming.own_uri(server, shown)
            }
            // A long name is cut on the route, so that it is found among those that are known.
            ItemKind::Tool | ItemKind::Prompt if rehearsal.knows(server) => {
                let can_be = |own: &&str| match form {
                    NameForm::OnConflict => prefixed(server, own) == shown,
                    NameForm::Own | NameForm::First | NameForm::Prefixed | NameForm::Unshared => {
                        naming.show(server, kind, own).as_deref() == Some(shown)
                    }
                };
                known_names(rehearsal, server, kind).find(can_be)
            }
            ItemKind::Tool | ItemKind::Prompt => naming.own_name(server, shown),
            ItemKind::Method => None,
        };
        own.map(Into::into)
    }
}

/// The name at its server of a tool or prompt that a record names as the route of that time showed it. `None` if that
/// cannot be told, because the name looks like one that a route made, and the route with the path `route` makes none
/// such of a name that is known.
pub(super) fn recorded_name(
    settings: &Settings,
    rehearsal: &DryRun,
    server: &ServerName,
    kind: ItemKind,
    (shown, route): (&str, Option<&str>),
) -> Option<Box<str>> {
    let route = settings.routes.iter().find(|known| Some(&*known.path) == route);
    let naming = route.and_then(|route| RouteNaming::of(settings, route, server));
    let own = naming.and_then(|naming| {
        // What the lockfile does not have was still called by its name on the route.
        let derived = || match kind {
            ItemKind::Tool | ItemKind::Prompt => naming.naming.own_name(server, shown),
            ItemKind::Resource | ItemKind::Template | ItemKind::Skill | ItemKind::Method => None,
        };
        naming.own(rehearsal, kind, shown).or_else(|| derived().map(Into::into))
    });
    let is_named = matches!(kind, ItemKind::Tool | ItemKind::Prompt);
    let is_known = |name: &str| known_names(rehearsal, server, kind).any(|known| known == name);
    match own {
        Some(own) if *own != *shown || is_known(&own) => Some(own),
        // The route of that time may have renamed what this one does not.
        Some(_) | None if is_named && is_prefixed(server, shown) => None,
        Some(_) | None => Some(shown.into()),
    }
}

/// Says that no caller can be the one that the command line names, unless its groups, roles or scopes describe one.
fn say_unknown(explain: &ExplainArgs, settings: &Settings) {
    let ExplainArgs { principal, group, role, scope, .. } = explain;
    let is_described = [group, role, scope].iter().any(|given| !given.is_empty());
    let names = ConfiguredNames::of(settings);
    if !is_described && !names.may_be(principal) {
        let why = names.unknown_caller(principal);
        let near = names.nearest_principal(principal);
        let near = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
        say(&format!(
            "note: {why}; correct it{near}, or describe it with `--group`, `--role` or `--scope`, if it stands for others"
        ));
    }
}

/// The principal and the server that the command line describes.
/// The planner that the given route is for.
fn planner(explain: &ExplainArgs, settings: &Settings) -> Result<Option<Planner>, String> {
    let Some(route) = &explain.route else { return Ok(None) };
    let unknown = |unknown: UnknownRoute| format!("{}; {}", unknown.message, unknown.help);
    cases::planner_of(settings, route).map_err(unknown)
}

fn asked_about(
    explain: &ExplainArgs,
    settings: &Settings,
) -> Result<(Principal, ServerName), String> {
    let described = CallerDescription {
        id: explain.principal.clone(),
        groups: explain.group.clone(),
        roles: explain.role.clone(),
        scopes: explain.scope.clone(),
        client: explain.client.clone(),
        proof: match explain.proof {
            None => ProofOfPossession::None,
            Some(ProofArg::Certificate) => ProofOfPossession::Certificate,
            Some(ProofArg::Dpop) => ProofOfPossession::Dpop,
        },
    };
    let principal = described.principal(settings);
    let principal = principal.map_err(|error| format!("a name of the caller {error}"))?;
    let servers = settings.servers.iter().map(|server| &server.name);
    let server = servers.clone().find(|server| server.as_str() == explain.server);
    let server = server.cloned().ok_or_else(|| {
        let list: Vec<_> = servers.map(ServerName::as_str).collect();
        format!("there is no server `{}`; there are: {}", visible(&explain.server), list.join(", "))
    })?;
    Ok((principal, server))
}

/// Reason code of a call that needs the approval of a person.
const APPROVAL: &str = "approval-required";

/// Reason code of a denial because of the arguments.
const ARGUMENTS: &str = "arguments";

/// Summarizes a decision in one phrase.
fn verdict(effect: &Effect) -> String {
    match effect {
        Effect::Allow(rule) => allowed(rule),
        Effect::Deny(denial) => denied(&denial.reason, denial.reason.rule()),
    }
}

fn allowed(rule: &dyn Display) -> String {
    format!("allowed by rule `{rule}`")
}

fn denied<R: Display>(reason: &dyn Display, rule: Option<R>) -> String {
    match rule {
        Some(rule) => format!("denied: {reason} (rule `{rule}`)"),
        None => format!("denied: {reason}"),
    }
}

const fn known(known: ItemKnowledge) -> &'static str {
    match known {
        ItemKnowledge::Locked(ApprovalState::Approved) => "approved in the lockfile",
        ItemKnowledge::Locked(ApprovalState::Pending) => "proposed in the lockfile, not approved",
        ItemKnowledge::Locked(ApprovalState::Revoked) => "revoked in the lockfile",
        ItemKnowledge::Missing => {
            "not in the lockfile, which has others of this server: as good as not there"
        }
        ItemKnowledge::Assumed => {
            "not in the lockfile: taken to be offered, approved, and to take anything"
        }
        ItemKnowledge::Nothing => "none is needed",
    }
}

fn words(question: &TestRequest, answer: &DryRunAnswer, rehearsal: &DryRun) -> String {
    let TestRequest { principal, server, kind, name, .. } = question;
    let lacks_arguments = question.arguments.is_none()
        && matches!(&answer.decision.effect, Effect::Deny(denial) if denial.reason.code() == ARGUMENTS);
    let mut out = match lacks_arguments {
        true => "denied: no arguments were given, and it is not called without; add `--arguments JSON`\n".to_owned(),
        false => format!("{}\n", verdict(&answer.decision.effect)),
    };
    let groups: Vec<_> = principal.groups.iter().map(|group| group.as_str()).collect();
    let mut line = |key: &str, value: &str| {
        writeln!(out, "  {key:<12}{value}").unwrap_or_default();
    };
    let is_allowed = matches!(answer.decision.effect, Effect::Allow(_));
    // What is allowed by the lockfile is denied if the server has changed it since.
    if is_allowed && answer.known != ItemKnowledge::Nothing {
        let has_proposal = rehearsal.has_proposal(server, *kind, name);
        line("but", if has_proposal { OTHER_PROPOSED } else { NOT_ASKED });
    }
    let groups = if groups.is_empty() { "no groups".to_owned() } else { groups.join(", ") };
    line("caller", &format!("{} ({groups})", principal.id));
    definition_lines(question, answer, rehearsal, &mut line);
    for finding in &answer.decision.findings {
        line("found", &finding_in_words(&finding.to_string()));
    }
    let asks =
        matches!(&answer.decision.effect, Effect::Deny(denial) if denial.reason.code() == APPROVAL);
    if asks {
        line(
            "then",
            "the call waits for a person, who is asked as `approvals` says (docs/approvals.md)",
        );
        line("told", "only where nobody can be asked:");
    }
    if let Some(told) = &answer.told {
        line("told", &in_a_line(&told_line(told, &answer.decision)));
        if let Some(scopes) = needed_scopes(&answer.decision) {
            line("", &format!("with the scopes that are needed: {}", scopes.join(" ")));
        }
    }
    for (n, said) in by_nearness(answer).into_iter().enumerate() {
        line(if n == 0 { "rules" } else { "" }, &rule_line(said));
    }
    if is_allowed && rehearsal.withholds_results(question) {
        line("result", "kept for the untrusted planner: the route is that of the trusted one");
    }
    if is_allowed {
        line("then", "rates, guardrails and what is done about the answer are not decided here");
    }
    out
}

/// What the gateway knows of the definition, and whether the caller sees it.
fn definition_lines(
    question: &TestRequest,
    answer: &DryRunAnswer,
    rehearsal: &DryRun,
    line: &mut impl FnMut(&str, &str),
) {
    let TestRequest { server, kind, name, .. } = question;
    line(kind.as_str(), &format!("{} of {server}", visible(name)));
    line("definition", known(answer.known));
    if answer.known == ItemKnowledge::Missing {
        let near = rehearsal.nearest(server, *kind, name);
        line(
            "",
            &near.map_or_else(
                || {
                    "`portcullis pin list` names what is in it, `portcullis pin` asks the server"
                        .to_owned()
                },
                |near| format!("did you mean `{}`?", visible(near)),
            ),
        );
    }
    if let Some(digest) = answer.decision.definition {
        line("", &digest.to_string());
    }
    if let Some(listed) = answer.listed {
        let of_lockfile = matches!(answer.known, ItemKnowledge::Locked(_));
        let seen = match (listed, of_lockfile) {
            (true, true) => "the caller sees it, if the server still offers what the lockfile has",
            (true, false) => "the caller sees it",
            (false, _) => "the caller does not see it",
        };
        line("list", seen);
        let thing = why::thing(*kind, name);
        if !listed && matches!(answer.decision.effect, Effect::Deny(_)) {
            line("why", &why::reason(server.as_str(), &thing, &answer.decision));
        }
    }
}

/// What may be otherwise at the server, of a call that is allowed by the lockfile: another definition is proposed.
const OTHER_PROPOSED: &str = "another definition of it is proposed in the lockfile, not approved: while the server offers that one, the call \
     can be denied (definition-changed); `portcullis pin diff` asks the server";
/// The same where none is proposed.
const NOT_ASKED: &str = "what the server offers now was not asked: `portcullis pin diff` asks it";

/// Describes what the client is told.
fn told_line(told: &DenialMessage, decision: &Decision) -> String {
    match told {
        DenialMessage::Result(text) => format!("isError {text}"),
        DenialMessage::Error(public) if is_step_up(decision) => {
            format!("{} {} (HTTP {})", public.code, public.message, public.status.as_u16())
        }
        DenialMessage::Error(public) => format!("{} {}", public.code, public.message),
    }
}

/// Describes one rule: its effect, its id, and whether it applies.
fn rule_line(said: &RuleExplanation) -> String {
    let says = match said.says {
        policy::rules::access::RuleEffect::Allow => "allow",
        policy::rules::access::RuleEffect::Forbid => "forbid",
    };
    let mode = match said.mode {
        policy::rules::decision::Mode::Audit => " (only counted)",
        policy::rules::decision::Mode::Enforce | policy::rules::decision::Mode::Off => "",
    };
    format!("{says:<7} {:<24} {}{mode}", said.rule.as_str(), said.applies.note())
}

/// The rules of an answer, those that apply to the call first.
fn by_nearness(answer: &DryRunAnswer) -> Vec<&RuleExplanation> {
    let near = |applies: &Applicability| match applies {
        Applicability::Yes => 0,
        Applicability::Depends
        | Applicability::Lacks(_)
        | Applicability::Fails
        | Applicability::Error(_) => 1,
        Applicability::Caller
        | Applicability::Server
        | Applicability::Thing
        | Applicability::Off => 2,
    };
    let mut rules: Vec<_> = answer.rules.iter().collect();
    rules.sort_by_key(|said| near(&said.applies));
    rules
}

fn shown(question: &TestRequest, answer: &DryRunAnswer, rehearsal: &DryRun) -> serde_json::Value {
    let TestRequest { principal, server, kind, name, .. } = question;
    let (reason, rule) = match &answer.decision.effect {
        Effect::Allow(rule) => (None, Some(rule)),
        Effect::Deny(denial) => (Some(denial.reason.code()), denial.reason.rule()),
    };
    let rules = answer.rules.iter().map(|said| {
        json!({ "rule": said.rule.as_str(), "applies": said.applies == Applicability::Yes, "note": said.applies.note() })
    });
    json!({
        "decision": if reason.is_none() { "allow" } else { "deny" },
        "reason": reason,
        "rule": rule.map(|rule| rule.as_str()),
        "principal": principal.id.as_str(),
        "server": server.as_str(),
        kind.as_str(): &**name,
        "definition": answer.decision.definition.map(|digest| digest.to_string()),
        "known": known(answer.known),
        "listed": answer.listed,
        "resultShown": !rehearsal.withholds_results(question),
        "findings": answer.decision.findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "told": answer.told.as_ref().map(|told| match told {
            DenialMessage::Result(text) => json!({ "isError": true, "message": text }),
            DenialMessage::Error(public) if is_step_up(&answer.decision) => json!({
                "status": public.status.as_u16(), "code": public.code, "message": public.message,
                "scopes": needed_scopes(&answer.decision),
            }),
            DenialMessage::Error(public) => json!({ "code": public.code, "message": public.message }),
        }),
        "rules": rules.collect::<Vec<_>>(),
    })
}

/// Whether another credential of the caller would be allowed the call.
const fn is_step_up(decision: &Decision) -> bool {
    match &decision.effect {
        Effect::Allow(_) => false,
        Effect::Deny(denial) => matches!(denial.reason, Reason::Scope(..) | Reason::Proof(..)),
    }
}

/// All scopes that the credential must have, if it lacks one.
fn needed_scopes(decision: &Decision) -> Option<Vec<&str>> {
    match &decision.effect {
        Effect::Deny(Denial { reason: Reason::Scope(_, scopes), .. }) => {
            Some(scopes.iter().map(Scope::as_str).collect())
        }
        Effect::Allow(_) | Effect::Deny(_) => None,
    }
}

fn test(test: &PolicyTestArgs) -> Result<ExitCode, ExitCode> {
    let mut settings = super::settings(&test.config)?;
    let beside = || {
        let name = test.config.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        test.config.with_file_name(format!("{name}.test.yaml"))
    };
    let files = if test.files.is_empty() { vec![beside()] } else { test.files.clone() };
    let mut all = Vec::new();
    for file in &files {
        let shown = file.display().to_string();
        let text = match fs::read_to_string(file) {
            Ok(text) if has_content(&text) => text,
            Ok(_empty) => return Err(begun(test, &format!("`{shown}` is empty"), &shown)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(begun(test, &format!("could not read `{shown}`: {error}"), &shown));
            }
            Err(error) => return Err(complain(&format!("could not read `{shown}`: {error}"))),
        };
        let cases = cases::read(&shown, &text, &settings);
        all.extend(cases.map_err(|problems| invalid(&problems))?);
    }
    let rehearsal = DryRun::new(&mut settings);
    let rehearsal = rehearsal.map_err(|error| complain(&ErrorChain(&error).to_string()))?;
    let names = ConfiguredNames::of(&settings);
    let mut deciding = BTreeSet::new();
    let mut results = Vec::new();
    for case in &all {
        let answer = rehearsal.ask(&case.question);
        deciding.extend(rule(&answer.decision).map(str::to_owned));
        results.push(TestResult {
            case,
            wrong: wrong(case, &answer),
            verdict: verdict(&answer.decision.effect),
            notes: doubts(case, &answer, &rehearsal, &names),
            found: answer.decision.findings.iter().map(ToString::to_string).collect(),
        });
    }
    let failed = results.iter().filter(|result| result.wrong.is_some()).count();
    let rules = rehearsal.policy().access().rules().iter().map(|rule| rule.id.as_str());
    let untested: Vec<_> = rules.filter(|id| !deciding.contains(*id)).collect();
    match test.format {
        OutputFormat::Human => {
            print_for_people(&results_in_words(&results));
            if !untested.is_empty() {
                say(&format!("note: no case is decided by: {}", untested.join(", ")));
            }
        }
        OutputFormat::Json => {
            let cases = results.iter().map(|TestResult { case, wrong, verdict, notes, found }| {
                json!({
                    "name": case.name, "passed": wrong.is_none(), "verdict": verdict, "wrong": wrong,
                    "notes": notes, "findings": found,
                })
            });
            let cases: Vec<_> = cases.collect();
            print(&format!("{}\n", json!({ "cases": cases, "untestedRules": untested })));
        }
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(DENIED) })
}

/// The results of test cases for people.
fn results_in_words(results: &[TestResult<'_>]) -> String {
    let mut out = String::new();
    for TestResult { case, wrong, verdict, notes, found } in results {
        let name = visible(&case.name);
        match wrong {
            None => writeln!(out, "ok      {name}"),
            Some(wrong) => {
                writeln!(out, "FAILED  {name}\n        {wrong}; it is {verdict}")
            }
        }
        .unwrap_or_default();
        for finding in found.iter().filter(|_| wrong.is_some()) {
            writeln!(out, "        found: {finding}").unwrap_or_default();
        }
        for note in notes {
            writeln!(out, "        note: {note}").unwrap_or_default();
        }
    }
    let failed = results.iter().filter(|result| result.wrong.is_some()).count();
    writeln!(out, "{} passed, {failed} failed", results.len() - failed).unwrap_or_default();
    out
}

/// The result of a test case.
struct TestResult<'a> {
    case: &'a TestCase,
    /// How the decision differs from what the case expects; `None` if it does not.
    wrong: Option<String>,
    verdict: String,
    /// What may be misspelt in the case, so that it proves nothing.
    notes: Vec<String>,
    /// The findings of the decision.
    found: Vec<String>,
}

/// Whether a file of test cases has more than comments.
fn has_content(text: &str) -> bool {
    text.lines().map(str::trim_start).any(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Says that there are no test cases, and prints how a file of them begins.
fn begun(test: &PolicyTestArgs, why: &str, file: &str) -> ExitCode {
    if matches!(test.format, OutputFormat::Json) {
        return complain(why);
    }
    print(FIRST_CASE);
    complain(&format!(
        "{why}; what a first case looks like is on standard output, and `portcullis policy test > {file}` writes it there; \
         or name other files"
    ))
}

/// What may be misspelt in a case that comes out as expected whether or not it is: a caller that there cannot be, and an
/// item that the lockfile does not have.
fn doubts(
    case: &TestCase,
    answer: &DryRunAnswer,
    rehearsal: &DryRun,
    names: &ConfiguredNames,
) -> Vec<String> {
    let TestRequest { principal, server, kind, name, .. } = &case.question;
    let mut notes = Vec::new();
    let id = principal.id.as_str();
    // A caller with groups, roles or scopes of its own is described, and need not exist.
    let is_described = !principal.groups.is_empty()
        || !principal.claims.roles.is_empty()
        || !principal.claims.scopes.is_empty();
    if !is_described && !names.may_be(id) {
        notes.push(format!(
            "{}; correct it, or give its `groups`, if it stands for others",
            names.unknown_caller(id)
        ));
    }
    if answer.known == ItemKnowledge::Missing && case.reason.is_none() {
        let near = rehearsal.nearest(server, *kind, name);
        let near = near.map(|near| format!(" (did you mean `{}`?)", visible(near)));
        let (name, near) = (visible(name), near.unwrap_or_default());
        let kind = kind.as_str();
        notes.push(format!(
            "the lockfile has no {kind} `{name}` of `{server}`, so no rule is asked{near}; if that is what the case is about, write `reason: \
             unknown-{kind}`"
        ));
    }
    notes
}

/// The rule that made the decision; `None` for a denial without a rule.
fn rule(decision: &Decision) -> Option<&str> {
    match &decision.effect {
        Effect::Allow(rule) => Some(rule.as_str()),
        Effect::Deny(denial) => denial.reason.rule().map(|rule| rule.as_str()),
    }
}

/// How the answer differs from what the case expects; `None` if it does not.
fn wrong(case: &TestCase, answer: &DryRunAnswer) -> Option<String> {
    let decision = &answer.decision;
    let (allowed, reason) = match &decision.effect {
        Effect::Allow(_) => (true, None),
        Effect::Deny(denial) => (false, Some(denial.reason.code())),
    };
    if allowed != (case.expect == ExpectedDecision::Allow) {
        let wanted = if allowed { "it should be denied" } else { "it should be allowed" };
        return Some(wanted.to_owned());
    }
    if let Some(wanted) = &case.rule
        && rule(decision) != Some(wanted)
    {
        return Some(format!("rule `{wanted}` should decide"));
    }
    if let Some(wanted) = &case.reason
        && reason != Some(wanted)
    {
        return Some(format!("the reason should be `{wanted}`"));
    }
    match (case.listed, answer.listed.unwrap_or(false)) {
        (Some(true), false) => Some("it should stand in the list".to_owned()),
        (Some(false), true) => Some("it should not stand in the list".to_owned()),
        (Some(true), true) | (Some(false), false) | (None, _) => None,
    }
}

fn lint(lint: &LintArgs) -> Result<ExitCode, ExitCode> {
    let (settings, rehearsal) = rehearsal(&lint.config)?;
    let (policy, lock) = (rehearsal.policy(), rehearsal.lock());
    let servers: Vec<_> = settings.servers.iter().map(|server| server.name.clone()).collect();
    let remarks = rule_review::remarks(policy, &servers, lock, WildcardReview::Remarked);
    let mut said: Vec<_> = remarks.iter().map(remark).collect();
    let missed = UnmatchedConstraint::all(policy.constraints(), &servers, lock);
    said.extend(missed.iter().map(|missed| LintNote {
        subject: LintSubject::Constraint(missed.constraint),
        code: "idle",
        note: format!("{}; correct the name, or remove it", missed.note()),
    }));
    said.extend(ungranted(&settings, &rehearsal));
    if !lint.against.is_empty() {
        let (used, since) = simulate::used(&lint.against).map_err(|e| complain(&e.to_string()))?;
        let grants = policy.access().rules().iter().filter(|rule| {
            rule.says == policy::rules::access::RuleEffect::Allow
                && rule.mode == policy::rules::decision::Mode::Enforce
        });
        for rule in grants.filter(|rule| !used.contains(rule.id.as_str())) {
            let note = format!("it has decided nothing since {since}");
            let subject = LintSubject::Rule(rule.id.to_string());
            said.push(LintNote { subject, code: "unused", note });
        }
    }
    said.retain(|said| !lint.allow.iter().any(|allowed| allowed == said.code));
    match lint.format {
        OutputFormat::Human if said.is_empty() => print("nothing to say\n"),
        OutputFormat::Human => {
            let line = |LintNote { subject, code, note }: &LintNote| match subject {
                LintSubject::Server(server) => format!("{code:<9} server `{server}`: {note}\n"),
                LintSubject::Rule(rule) => format!("{code:<9} rule `{rule}`: {note}\n"),
                LintSubject::Constraint(n) => format!("{code:<9} constraint {}: {note}\n", n + 1),
            };
            if said.iter().any(|note| note.code == "ungranted") {
                say(
                    "note: if what is approved and granted to nobody is meant so: `--allow ungranted`",
                );
            }
            print_for_people(&said.iter().map(line).collect::<String>())
        }
        OutputFormat::Json => {
            let entry = |LintNote { subject, code, note }: &LintNote| match subject {
                LintSubject::Server(server) => {
                    json!({ "server": server.as_str(), "code": code, "note": note })
                }
                LintSubject::Rule(rule) => json!({ "rule": rule, "code": code, "note": note }),
                LintSubject::Constraint(n) => {
                    json!({ "constraint": n, "code": code, "note": note })
                }
            };
            let said: Vec<_> = said.iter().map(entry).collect();
            print(&format!("{}\n", serde_json::Value::from(said)))
        }
    };
    Ok(if said.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FOUND) })
}

/// A remark about a part of the policy.
struct LintNote {
    subject: LintSubject,
    /// Code of the remark, as `--allow` names it.
    code: &'static str,
    note: String,
}

/// Part of the policy that a remark is about.
enum LintSubject {
    /// The rule with this id.
    Rule(String),
    /// The constraint at this index, counted from 0.
    Constraint(usize),
    /// The server with this name.
    Server(ServerName),
}

/// Remarks about approved definitions that no rule grants; none if pins are off. There is nothing to remark on what a
/// `forbid` rule names.
fn ungranted(settings: &Settings, rehearsal: &DryRun) -> Vec<LintNote> {
    let servers = settings.servers.iter().map(|server| &server.name);
    let found = Ungranted::all(rehearsal.policy(), rehearsal.lock(), servers);
    let note = |one: &Ungranted| {
        let note = format!("{}; {}", one.said(), one.mend()?);
        let subject = LintSubject::Server(one.server.clone());
        Some(LintNote { subject, code: "ungranted", note })
    };
    found.iter().filter_map(note).collect()
}

fn remark(remark: &RuleRemark) -> LintNote {
    let note = match &remark.what {
        RuleIssue::Covered(other) => {
            format!("`{other}` says all of it already; remove one of the two")
        }
        RuleIssue::Broad(what) => format!("{what}; name what is meant, or set a `when`"),
        RuleIssue::Idle(kind, name) => {
            let (kind, name) = (kind.as_str(), visible(name));
            format!(
                "these servers offer no {kind} `{name}`, by the lockfile; correct the name, or remove it"
            )
        }
        RuleIssue::Beside(folder) => {
            let folder = visible(folder);
            format!(
                "it forbids what is in `{folder}`, and `{folder}` itself can be read; name both"
            )
        }
        RuleIssue::Inactive => "it does not act; set `mode: enforce`, or remove it".to_owned(),
    };
    LintNote { subject: LintSubject::Rule(remark.rule.to_string()), code: remark.what.code(), note }
}
