//! Writes the result of an evaluation: for people, as JSON, and as JUnit XML.

use std::fmt::Write as _;

use evaluation::comparison::{Comparison, DefinitionDifference, FigureChange};
use evaluation::example::Example;
use evaluation::ratio::Ratio;
use evaluation::result::{Confusion, ExampleResult};
use evaluation::threshold::{Measure, Verdict};
use evaluation::tool::EvaluatedTool;
use policy::definition::drift::visible;
use policy::definition::review::Severity;
use serde_json::{Value, json};

use super::{EvalOutcome, in_words};

/// Most lines of one kind that are shown to people.
const SHOWN: usize = 20;

/// The ratio that a figure is, if it is one.
fn ratio(measure: Measure, outcome: &EvalOutcome) -> Option<Ratio> {
    let figures = &outcome.evaluation.figures;
    match measure {
        Measure::Top1 => Some(figures.first),
        Measure::Recall => Some(figures.within),
        Measure::ValidArguments => Some(figures.arguments),
        Measure::ForbiddenTools => Some(figures.unforbidden),
        Measure::ForbiddenArguments => Some(figures.refused),
        Measure::Policy => Some(figures.outcomes),
        Measure::MeanRank | Measure::GraveFindings => None,
    }
}

/// What is wrong with an example besides its rank.
fn mistakes(result: &ExampleResult) -> Vec<String> {
    let mut found = Vec::new();
    for tool in &result.above {
        found.push(format!("the forbidden tool `{tool}` is ranked above the expected one"));
    }
    if let Some(misfit) = &result.misfit {
        found.push(format!("the arguments do not fit: {misfit}"));
    }
    for name in &result.accepted {
        found.push(format!("the forbidden value of `{name}` is accepted"));
    }
    if let Some(outcome) = result.outcome.as_ref().filter(|outcome| !outcome.is_expected) {
        found.push(match &outcome.reason {
            None => "the call is allowed".to_owned(),
            Some(reason) => format!("the call is denied: {reason}"),
        });
    }
    found
}

/// The examples with their results.
fn each(outcome: &EvalOutcome) -> impl Iterator<Item = (&Example, &ExampleResult)> {
    outcome.examples.iter().zip(&outcome.evaluation.results)
}

/// The result for people.
pub(super) fn human(outcome: &EvalOutcome) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").unwrap_or_default();
    let (examples, tools) = (outcome.examples.len(), outcome.definitions.tools.len());
    line(format!("{examples} examples, {tools} tools"));
    outcome.verdicts.iter().for_each(|verdict| line(verdict_line(verdict, outcome)));
    let confusions = &outcome.evaluation.confusions;
    for one in confusions.iter().take(SHOWN) {
        let (of, interval) = (one.ratio.of, one.ratio.interval());
        line(format!(
            "taken   {} for {}: {} of {of} requests ({:.2} to {:.2})",
            visible(&one.taken.to_string()),
            visible(&one.expected.to_string()),
            one.ratio.count,
            interval.low,
            interval.high
        ));
    }
    let rest = |count: usize, what: &str| {
        (count > SHOWN).then(|| {
            format!("        and {} more {what}: `--format json` shows all", count - SHOWN)
        })
    };
    rest(confusions.len(), "pairs").into_iter().for_each(&mut line);
    let wrong: Vec<_> = each(outcome).filter(|(_, result)| result.is_wrong()).collect();
    for (example, result) in wrong.iter().take(SHOWN) {
        let id = visible(&example.id);
        line(format!("wrong   {id} ({}:{})", visible(&example.file), example.line));
        mistakes(result).iter().for_each(|one| line(format!("        {}", visible(one))));
    }
    rest(wrong.len(), "examples").into_iter().for_each(&mut line);
    let found = findings(outcome);
    found.iter().take(SHOWN).cloned().for_each(&mut line);
    rest(found.len(), "findings").into_iter().for_each(&mut line);
    if let Some(comparison) = &outcome.comparison {
        compared(comparison, &mut line);
    }
    if outcome.undecided > 0 {
        line(format!(
            "note: {} examples name a caller, and no configuration decides about them: name one with `-c`",
            outcome.undecided
        ));
    }
    line(if outcome.passes() { "passed".to_owned() } else { "FAILED".to_owned() });
    out
}

/// A line for each finding that is at least of medium severity.
fn findings(outcome: &EvalOutcome) -> Vec<String> {
    let mut lines = Vec::new();
    for tool in &outcome.definitions.tools {
        let grave = tool.remarks.iter().filter(|remark| remark.severity >= Severity::Medium);
        lines.extend(grave.map(|remark| {
            let (name, at) = (visible(&tool.name.to_string()), visible(&remark.at));
            format!("{:<7} {name}: {} {at}", remark.severity.as_str(), remark.rule)
        }));
    }
    lines
}

fn verdict_line(verdict: &Verdict, outcome: &EvalOutcome) -> String {
    let mark = if verdict.holds() { "ok    " } else { "FAILED" };
    let (name, bound) = (verdict.measure.as_str(), in_words(verdict.bound));
    let of = ratio(verdict.measure, outcome).map_or_else(String::new, |ratio| {
        let interval = ratio.interval();
        format!(", {} of {} ({:.3} to {:.3})", ratio.count, ratio.of, interval.low, interval.high)
    });
    format!("{mark}  {name:<19}{:.3}{of}; {bound}", verdict.value)
}

/// What a comparison comes to, for people.
fn compared(comparison: &Comparison, line: &mut impl FnMut(String)) {
    for figure in comparison.figures.iter().filter(|figure| figure.before != figure.after) {
        let mark = if figure.falls() { "FELL  " } else { "ok    " };
        let (name, tolerance) = (figure.measure.as_str(), figure.tolerance);
        line(format!(
            "{mark}  {name:<19}{:.3} before, {:.3} now; {tolerance} tolerated",
            figure.before, figure.after
        ));
    }
    let mut shown = 0;
    for one in &comparison.differences {
        // What falls is shown in full.
        shown += usize::from(!one.falls);
        if shown <= SHOWN {
            line(difference_line(one));
        }
    }
    if shown > SHOWN {
        line(format!("        and {} more differences: `--format json` shows all", shown - SHOWN));
    }
}

fn difference_line(one: &DefinitionDifference) -> String {
    let mark = if one.falls { "FELL  " } else { "note  " };
    let (tool, at) = (visible(&one.tool.to_string()), visible(&one.at));
    let space = if at.is_empty() { "" } else { " " };
    format!("{mark}  {tool}{space}{at}: {} ({})", visible(&one.note), one.kind.as_str())
}

/// The result for programs.
pub(super) fn as_json(outcome: &EvalOutcome) -> String {
    let evaluation = &outcome.evaluation;
    let result = json!({
        "passed": outcome.passes(),
        "limit": evaluation.limit,
        "inputs": outcome.inputs,
        "figures": outcome.verdicts.iter().map(|one| verdict(one, outcome)).collect::<Vec<_>>(),
        "confusions": evaluation.confusions.iter().map(confusion).collect::<Vec<_>>(),
        "examples": each(outcome).map(|(one, result)| example(one, result)).collect::<Vec<_>>(),
        "tools": outcome.definitions.tools.iter().map(|one| tool(one, outcome)).collect::<Vec<_>>(),
        "comparison": outcome.comparison.as_ref().map(comparison),
        "undecided": outcome.undecided,
    });
    serde_json::to_string_pretty(&result).unwrap_or_default() + "\n"
}

fn shares(ratio: Ratio) -> Value {
    let interval = ratio.interval();
    json!({ "count": ratio.count, "of": ratio.of, "low": interval.low, "high": interval.high })
}

fn verdict(one: &Verdict, outcome: &EvalOutcome) -> Value {
    let bound = one.bound.number();
    json!({
        "figure": one.measure.as_str(), "value": one.value, "passed": one.holds(),
        "threshold": bound.is_finite().then_some(bound), "ratio": ratio(one.measure, outcome).map(shares),
    })
}

fn confusion(one: &Confusion) -> Value {
    json!({
        "expected": one.expected.to_string(), "taken": one.taken.to_string(), "ratio": shares(one.ratio),
    })
}

fn example(example: &Example, result: &ExampleResult) -> Value {
    json!({
        "id": example.id, "file": &*example.file, "line": example.line, "rank": result.rank,
        "taken": result.taken.as_ref().map(ToString::to_string), "margin": result.margin,
        "wrong": mistakes(result),
    })
}

fn tool(one: &EvaluatedTool, outcome: &EvalOutcome) -> Value {
    let figures = outcome.evaluation.by_tool.get(&one.name);
    let remarks = one.remarks.iter().map(|remark| {
        json!({ "rule": remark.rule, "severity": remark.severity.as_str(), "at": remark.at })
    });
    json!({
        "tool": one.name.to_string(), "digest": one.offer.digest().map(|digest| digest.to_string()),
        "top1": figures.map(|figures| shares(figures.first)),
        "recall": figures.map(|figures| shares(figures.within)),
        "meanRank": figures.map(|figures| figures.mean_rank),
        "findings": remarks.collect::<Vec<_>>(),
        "evaluation": outcome.tools.get(&one.name).map(|verdict| {
            json!({ "result": verdict.result.as_str(), "failed": verdict.failed, "digest": verdict.digest })
        }),
    })
}

fn comparison(one: &Comparison) -> Value {
    let figure = |figure: &FigureChange| {
        json!({
            "figure": figure.measure.as_str(), "before": figure.before, "after": figure.after,
            "tolerance": figure.tolerance, "fell": figure.falls(),
        })
    };
    let difference = |one: &DefinitionDifference| {
        json!({
            "tool": one.tool.to_string(), "kind": one.kind.as_str(), "at": one.at, "note": one.note,
            "fell": one.falls,
        })
    };
    json!({
        "fell": one.falls(),
        "figures": one.figures.iter().map(figure).collect::<Vec<_>>(),
        "differences": one.differences.iter().map(difference).collect::<Vec<_>>(),
    })
}

/// A test of JUnit.
struct JunitCase {
    name: String,
    /// Why it fails; `None` if it does not.
    failure: Option<String>,
}

/// The result as JUnit XML: a suite of the figures, one of the examples, and one of the comparison.
pub(super) fn as_junit(outcome: &EvalOutcome) -> String {
    let figure = |one: &Verdict| JunitCase {
        name: one.measure.as_str().to_owned(),
        failure: (!one.holds()).then(|| format!("{:.3}: {}", one.value, in_words(one.bound))),
    };
    let one = |(example, result): (&Example, &ExampleResult)| JunitCase {
        name: format!("{} ({}:{})", example.id, example.file, example.line),
        failure: result.is_wrong().then(|| mistakes(result).join("; ")),
    };
    let mut suites = vec![
        ("figures", outcome.verdicts.iter().map(figure).collect::<Vec<_>>()),
        ("examples", each(outcome).map(one).collect()),
    ];
    if let Some(comparison) = &outcome.comparison {
        let figures = comparison.figures.iter().map(|figure| JunitCase {
            name: figure.measure.as_str().to_owned(),
            failure: figure
                .falls()
                .then(|| format!("{:.3}, then {:.3}", figure.before, figure.after)),
        });
        let differences = comparison.differences.iter().map(|one| JunitCase {
            name: format!("{} {} {}", one.tool, one.kind.as_str(), one.at),
            failure: one.falls.then(|| one.note.clone()),
        });
        suites.push(("comparison", figures.chain(differences).collect()));
    }
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for (name, cases) in suites {
        let failures = cases.iter().filter(|case| case.failure.is_some()).count();
        let count = cases.len();
        writeln!(out, "  <testsuite name=\"{name}\" tests=\"{count}\" failures=\"{failures}\">")
            .unwrap_or_default();
        for JunitCase { name: case, failure } in cases {
            let case = escaped(&case);
            match failure {
                None => writeln!(out, "    <testcase classname=\"{name}\" name=\"{case}\"/>"),
                Some(why) => writeln!(
                    out,
                    "    <testcase classname=\"{name}\" name=\"{case}\"><failure message=\"{}\"/></testcase>",
                    escaped(&why)
                ),
            }
            .unwrap_or_default();
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

/// A text as the value of an attribute of XML. What XML 1.0 cannot have, and what is not seen, is shown escaped.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in visible(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
