//! `portcullis approvals`: lists the questions that calls of a running gateway wait for, shows one, and answers it.

use std::env;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::ops::{ANSWER, AdminRequest, OperatorArgs, ask};
use super::printable::in_a_line;
use super::{OutputFormat, complain, print, say};

#[derive(Debug, Args)]
pub(super) struct ApprovalsArgs {
    #[command(subcommand)]
    verb: ApprovalsCommand,
}

#[derive(Debug, Subcommand)]
enum ApprovalsCommand {
    /// List the questions that wait for an answer, the approvals that no call has used yet, and the denials that stand.
    List(ReachedArgs),
    /// Show one question: who calls what, all arguments, and why a person is asked.
    Show(QuestionArgs),
    /// Approve a call. It is made once, within the time that the question has. Where flow control asks, the targets of the
    /// call count as given in its flow afterwards.
    Approve(AnswerArgs),
    /// Deny a call. The same call is denied until the question expires.
    Deny(AnswerArgs),
}

/// How the command reaches the running gateway.
#[derive(Debug, Args)]
struct ReachedArgs {
    /// The configuration of the running gateway, for its `ops.address` and `ops.token`.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    #[command(flatten)]
    operator: OperatorArgs,
    /// Output format of the answer.
    #[arg(long, value_enum, default_value_t = OutputFormat::Human)]
    format: OutputFormat,
}

#[derive(Debug, Args)]
struct QuestionArgs {
    /// The id of the question, as `approvals list` prints it.
    id: String,
    #[command(flatten)]
    reached: ReachedArgs,
}

#[derive(Debug, Args)]
struct AnswerArgs {
    #[command(flatten)]
    question: QuestionArgs,
    /// Who answers, for the audit log. Default: your user name.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Why, for the audit log.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Runs `portcullis approvals` and its verbs.
pub(super) fn run(approvals: &ApprovalsArgs) -> ExitCode {
    let done = match &approvals.verb {
        ApprovalsCommand::List(reached) => list(reached),
        ApprovalsCommand::Show(question) => show(question),
        ApprovalsCommand::Approve(answer) => answered(answer, "approve", "approved"),
        ApprovalsCommand::Deny(answer) => answered(answer, "deny", "denied"),
    };
    done.unwrap_or_else(|why| why)
}

fn list(reached: &ReachedArgs) -> Result<ExitCode, ExitCode> {
    let answer = reached.asked("GET", "/approvals", "")?;
    if matches!(reached.format, OutputFormat::Json) {
        return Ok(print(&format!("{answer}\n")));
    }
    let all = answer.get("approvals").and_then(Value::as_array);
    let mut out = String::new();
    for one in all.into_iter().flatten() {
        let text = |key: &str| in_a_line(one.get(key).and_then(Value::as_str).unwrap_or_default());
        let (id, state, expires) = (text("id"), text("state"), text("expires"));
        let (who, server, tool) = (text("principal"), text("server"), text("tool"));
        let causes = one.get("causes").and_then(Value::as_array).into_iter().flatten();
        let causes: Vec<_> = causes.filter_map(Value::as_str).collect();
        let asked = in_a_line(&causes.join(", "));
        let line = format!(
            "{id}  {state:<8}  until {expires}  {who}: {server}/{tool} (asked by: {asked})"
        );
        writeln!(out, "{line}").unwrap_or_default();
    }
    if out.is_empty() {
        out.push_str("no call waits for an approval\n");
    }
    Ok(print(&out))
}

fn show(question: &QuestionArgs) -> Result<ExitCode, ExitCode> {
    let path = question.path("")?;
    let answer = question.reached.asked("GET", &path, "")?;
    Ok(match question.reached.format {
        OutputFormat::Json => print(&format!("{answer}\n")),
        OutputFormat::Human => print(&words(&answer)),
    })
}

fn answered(answer: &AnswerArgs, act: &str, done: &str) -> Result<ExitCode, ExitCode> {
    let AnswerArgs { question, by, reason } = answer;
    let path = question.path(&format!("/{act}"))?;
    let user = || env::var("USER").ok().filter(|user| !user.is_empty());
    let mut body = json!({});
    for (key, value) in [("by", by.clone().or_else(user)), ("reason", reason.clone())] {
        if let (Some(value), Some(body)) = (value, body.as_object_mut()) {
            body.insert(key.to_owned(), value.into());
        }
    }
    let told = question.reached.asked("POST", &path, &body.to_string())?;
    if matches!(question.reached.format, OutputFormat::Json) {
        return Ok(print(&format!("{told}\n")));
    }
    let text = |key: &str| in_a_line(told.get(key).and_then(Value::as_str).unwrap_or_default());
    say(&format!("{done}: {}/{} for {}", text("server"), text("tool"), text("principal")));
    Ok(ExitCode::SUCCESS)
}

impl QuestionArgs {
    /// The path of the question in the admin API.
    fn path(&self, act: &str) -> Result<String, ExitCode> {
        if self.id.is_empty() || !self.id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(complain(
                "that is no id of a question: `portcullis approvals list` prints them",
            ));
        }
        Ok(format!("/approvals/{}{act}", self.id))
    }
}

impl ReachedArgs {
    /// Sends a request to the gateway, and parses the answer.
    fn asked(&self, method: &str, path: &str, body: &str) -> Result<Value, ExitCode> {
        let settings = super::settings(&self.config)?;
        let (address, token) = self.operator.reach(&settings)?;
        let question = AdminRequest { method, path, token: Some(&token), body };
        let answer = match ask(&address, &question, ANSWER) {
            Ok((200, answer)) => answer,
            Ok((status, answer)) => {
                return Err(complain(&format!("{status}: {}", answer.trim())));
            }
            Err(error) => {
                return Err(complain(&format!("`{address}` does not answer: {error}")));
            }
        };
        answer.parse().map_err(|_error| complain("the answer is not about approvals"))
    }
}

/// A question for people. The arguments are drawn by the gateway, and none of their characters is hidden.
fn words(question: &Value) -> String {
    let text = |at: &str| {
        let text = question.pointer(at).and_then(Value::as_str);
        text.map(in_a_line)
    };
    let mut out = String::new();
    for (name, at) in [
        ("id", "/id"),
        ("state", "/state"),
        ("asked", "/asked"),
        ("expires", "/expires"),
        ("principal", "/principal"),
        ("client", "/client"),
        ("server", "/server"),
        ("tool", "/tool"),
        ("definition", "/definition"),
        ("rule", "/rule"),
        ("digest", "/argumentDigest"),
    ] {
        if let Some(text) = text(at) {
            writeln!(out, "{name:<12}{text}").unwrap_or_default();
        }
    }
    let texts = |key: &str| question.get(key).and_then(Value::as_array).into_iter().flatten();
    let causes: Vec<_> = texts("causes").filter_map(Value::as_str).collect();
    writeln!(out, "{:<12}{}", "asked by", causes.join(", ")).unwrap_or_default();
    let flow = |key: &str| text(&format!("/flow/{key}")).unwrap_or_default();
    if question.get("flow").is_some() {
        let (argument, sink, note) = (flow("argument"), flow("sink"), flow("note"));
        let labels = format!("{}, {}", flow("integrity"), flow("confidentiality"));
        writeln!(out, "{:<12}`{argument}` of this tool (sink: {sink}) {note}", "flow")
            .unwrap_or_default();
        writeln!(out, "{:<12}{labels}", "was shown").unwrap_or_default();
        writeln!(out, "{:<12}{}", "then", flow("approvalMeans")).unwrap_or_default();
    }
    for origin in texts("origins") {
        let text =
            |key: &str| in_a_line(origin.get(key).and_then(Value::as_str).unwrap_or_default());
        writeln!(out, "{:<12}{}: {}", "origin", text("argument"), text("origin"))
            .unwrap_or_default();
    }
    let arguments = text("/arguments").filter(|arguments| !arguments.is_empty());
    writeln!(out, "{:<12}{}", "arguments", arguments.as_deref().unwrap_or("(none)"))
        .unwrap_or_default();
    if let Some(params) = text("/params") {
        writeln!(out, "{:<12}{params}", "params").unwrap_or_default();
    }
    out
}
