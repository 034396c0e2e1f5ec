//! Records the result of an evaluation in the lockfile, beside each definition that it is about.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

use evaluation::comparison::{Comparison, FigureChange};
use evaluation::threshold::{Bound, Measure};
use evaluation::tool::{EvaluatedTool, ToolName};
use gateway::config::settings::Settings;
use json::hex;
use policy::definition::drift::visible;
use policy::definition::lock::{
    ApprovalState, EvaluationResult, LockedVersion, Lockfile, RecordedEvaluation,
};
use policy::definition::offer::ItemKind;

use super::super::{pin, say};
use super::{EvalArgs, EvalOutcome, bound_of};

/// Most tools that a message names.
const SHOWN: usize = 20;

/// What the evaluation came to for one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolVerdict {
    pub(super) result: EvaluationResult,
    /// The thresholds that the tool's own figures do not reach, and what else failed, in words.
    pub(super) failed: Vec<String>,
    /// `sha256:` and the digest of the inputs, the thresholds and the result.
    pub(super) digest: String,
}

/// What the evaluation came to for each tool that examples expect. A tool passes if its own figures reach every threshold,
/// its definition has no grave finding, and a comparison finds nothing that is worse about it.
pub(super) fn by_tool(eval: &EvalArgs, outcome: &EvalOutcome) -> BTreeMap<ToolName, ToolVerdict> {
    let mut verdicts = BTreeMap::new();
    for (name, figures) in &outcome.evaluation.by_tool {
        let Some(tool) = outcome.definitions.find(name) else { continue };
        let mut failed = Vec::new();
        let mut inputs = format!("portcullis-evaluation/v1\nlimit {}\n", eval.limit);
        for (what, digest) in &outcome.inputs {
            writeln!(inputs, "{what} {digest}").unwrap_or_default();
        }
        for measure in Measure::ALL {
            let (value, bound) =
                (measure.of(figures, usize::from(tool.is_grave())), bound_of(eval, measure));
            if !bound.holds(value) {
                failed.push(measure.as_str().to_owned());
            }
            let sign = if matches!(bound, Bound::Least(_)) { ">=" } else { "<=" };
            writeln!(inputs, "{} {value} {sign} {}", measure.as_str(), bound.number())
                .unwrap_or_default();
        }
        if outcome.comparison.as_ref().is_some_and(|one| is_worse(one, name)) {
            failed.push("comparison".to_owned());
        }
        let result = match failed.is_empty() {
            true => EvaluationResult::Passed,
            false => EvaluationResult::Failed,
        };
        let digest = tool.offer.digest().map(|digest| digest.to_string()).unwrap_or_default();
        writeln!(inputs, "definition {digest}\nresult {}", result.as_str()).unwrap_or_default();
        let digest = format!("sha256:{}", hex::encode(&json::coding::sha256([inputs.as_bytes()])));
        verdicts.insert(name.clone(), ToolVerdict { result, failed, digest });
    }
    verdicts
}

/// Whether a comparison finds a tool worse. A figure that falls is one of all tools.
fn is_worse(comparison: &Comparison, name: &ToolName) -> bool {
    let mut about = comparison.differences.iter().filter(|one| one.tool == *name);
    about.any(|one| one.falls) || comparison.figures.iter().any(FigureChange::falls)
}

/// Writes the results to the lockfile of the configuration.
pub(super) fn recorded(settings: &Settings, outcome: &EvalOutcome) -> Result<(), ExitCode> {
    let (mut lock, former) = pin::locked(settings)?;
    let at = pin::now();
    let mut missing = BTreeSet::new();
    let mut count = 0;
    let failed = outcome.tools.iter().filter(|(_, one)| one.result == EvaluationResult::Failed);
    for (name, verdict) in failed.clone().take(SHOWN) {
        say(&format!("failed: `{}`: {}", visible(&name.to_string()), verdict.failed.join(", ")));
    }
    if failed.clone().count() > SHOWN {
        say(&format!("failed: {} more tools", failed.count() - SHOWN));
    }
    for (name, verdict) in &outcome.tools {
        let evaluation = RecordedEvaluation {
            result: verdict.result,
            digest: verdict.digest.as_str().into(),
            at: at.clone(),
        };
        let tool = outcome.definitions.find(name);
        let written = tool.map_or(0, |tool| record(&mut lock, tool, &evaluation));
        if written == 0 {
            missing.insert(name);
        }
        count += written;
    }
    for name in missing.iter().take(SHOWN) {
        say(&format!(
            "note: the lockfile has no such definition of `{}`, so nothing is recorded for it; `portcullis pin` proposes \
             what the server offers now",
            visible(&name.to_string())
        ));
    }
    if missing.len() > SHOWN {
        say(&format!("note: and of {} more tools", missing.len() - SHOWN));
    }
    if count == 0 && missing.is_empty() {
        say("note: the lockfile records these results already");
        return Ok(());
    }
    let edit = pin::LockfileEdit { count, what: "evaluations recorded" };
    pin::changed(settings, &lock, &former, edit).map(|_| ())
}

/// Records an evaluation beside each version with this definition that is not revoked, and returns how many there are.
fn record(lock: &mut Lockfile, tool: &EvaluatedTool, evaluation: &RecordedEvaluation) -> usize {
    let key = (ItemKind::Tool, tool.name.name.clone());
    let locked = lock.servers.get_mut(&tool.name.server);
    let versions = locked.and_then(|locked| locked.offers.get_mut(&key));
    let is = |version: &&mut LockedVersion| {
        Some(version.digest) == tool.offer.digest() && version.state != ApprovalState::Revoked
    };
    let mut count = 0;
    for version in versions.into_iter().flatten().filter(is) {
        // The time of an evaluation that came to the same is not changed, so that the file stays the same too.
        let is_same = |known: &RecordedEvaluation| {
            known.digest == evaluation.digest && known.result == evaluation.result
        };
        if !version.evaluation.as_ref().is_some_and(is_same) {
            version.evaluation = Some(evaluation.clone());
        }
        count += 1;
    }
    count
}
