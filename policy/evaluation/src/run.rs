//! The evaluation: every request is searched for, and the call that follows is checked.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use json::Fragment;
use policy_core::base::work::WorkBudget;
use policy_core::schema::declared::undeclared;
use selector::fusion::{Signals, Strategy, Weights};
use selector::index::{MAX_LIMIT, Search};
use selector::ranking::{Hit, Ranking, ToolIndex};

use crate::example::{Example, ExpectedOutcome};
use crate::ratio::Ratio;
use crate::result::{Confusion, Evaluation, ExampleResult, Figures, OutcomeResult};
use crate::suite::{Definitions, Examples, PreparedExample};
use crate::tool::{EvaluatedTool, ToolName};

/// How many tools are looked at before all are.
const FEW: usize = 16;

/// A decision about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallDecision {
    /// Whether the call is allowed.
    pub allowed: bool,
    /// The reason code, if not.
    pub reason: Option<String>,
}

/// Decides about calls as a configuration would.
pub trait CallJudge {
    /// The decision about a call of `tool` by the caller of `outcome`; `None` if there is no configuration that
    /// could decide.
    fn decide(
        &self,
        outcome: &ExpectedOutcome,
        tool: &ToolName,
        arguments: Option<&Fragment>,
    ) -> Option<CallDecision>;
}

/// Decides about no call: there is no configuration.
#[derive(Clone, Copy, Debug)]
pub struct NoJudge;

impl CallJudge for NoJudge {
    fn decide(
        &self,
        _: &ExpectedOutcome,
        _: &ToolName,
        _: Option<&Fragment>,
    ) -> Option<CallDecision> {
        None
    }
}

/// Orders the first tools that a search finds, as a language model would.
pub trait CandidateOrder {
    /// How many tools it is shown.
    fn candidates(&self) -> usize;

    /// Which of the candidates fit a request, by their places, the best one first. Empty for the selector's own order.
    fn order(&self, request: &str, candidates: &[&EvaluatedTool]) -> Vec<usize>;
}

/// Leaves tools in the selector's order.
#[derive(Clone, Copy, Debug)]
pub struct SelectorOrder;

impl CandidateOrder for SelectorOrder {
    fn candidates(&self) -> usize {
        0
    }

    fn order(&self, _: &str, _: &[&EvaluatedTool]) -> Vec<usize> {
        Vec::new()
    }
}

/// Evaluates definitions by examples. `limit` is the number of tools that a search shows.
#[must_use]
pub fn evaluate(
    definitions: &Definitions,
    examples: &Examples,
    limit: usize,
    judge: &dyn CallJudge,
) -> Evaluation {
    evaluate_ordered(definitions, examples, limit, judge, &SelectorOrder)
}

/// Like [`evaluate`], with the first tools of each search in another order.
#[must_use]
pub fn evaluate_ordered(
    definitions: &Definitions,
    examples: &Examples,
    limit: usize,
    judge: &dyn CallJudge,
    order: &dyn CandidateOrder,
) -> Evaluation {
    let run = EvaluationRun { definitions, examples, judge, order, weights: Weights::default() };
    let results: Vec<_> = examples.all.iter().map(|one| run.one(one)).collect();
    let last = definitions.tools.len();
    let mut of_tools: BTreeMap<&ToolName, Vec<&ExampleResult>> = BTreeMap::new();
    for (one, result) in examples.all.iter().zip(&results) {
        if let Some(expected) = one.example.expected.first() {
            of_tools.entry(expected).or_default().push(result);
        }
    }
    let figures = |results: &[&ExampleResult]| Figures::of(results.iter().copied(), limit, last);
    let by_tool = of_tools.iter().map(|(name, all)| ((*name).clone(), figures(all))).collect();
    let confusions = confusions(&of_tools);
    Evaluation {
        limit,
        figures: Figures::of(results.iter(), limit, last),
        by_tool,
        confusions,
        results,
    }
}

/// Which tools are taken for which.
fn confusions(of_tools: &BTreeMap<&ToolName, Vec<&ExampleResult>>) -> Vec<Confusion> {
    let mut found = Vec::new();
    for (expected, results) in of_tools {
        let mut taken: BTreeMap<&ToolName, usize> = BTreeMap::new();
        for name in results.iter().filter_map(|one| one.taken.as_ref()) {
            *taken.entry(name).or_default() += 1;
        }
        let confusion = |(name, count): (&ToolName, usize)| Confusion {
            expected: (*expected).clone(),
            taken: name.clone(),
            ratio: Ratio { count, of: results.len() },
        };
        found.extend(taken.into_iter().map(confusion));
    }
    found.sort_by_key(|one| Reverse(one.ratio.count));
    found
}

/// What an evaluation works with.
struct EvaluationRun<'a> {
    definitions: &'a Definitions,
    examples: &'a Examples,
    judge: &'a dyn CallJudge,
    order: &'a dyn CandidateOrder,
    weights: Weights,
}

impl EvaluationRun<'_> {
    fn one(&self, one: &PreparedExample) -> ExampleResult {
        let example = &one.example;
        let mut result = self.selected(one);
        let called = example.expected.first();
        let tool = called.and_then(|name| self.definitions.find(name));
        if let (Some(arguments), Some(name)) = (&example.arguments, called) {
            result.has_arguments = true;
            result.misfit = match tool {
                Some(tool) => self.misfit(tool, arguments),
                None => Some("there is no definition of the tool".to_owned()),
            };
            let accepts = |arguments: &Fragment| {
                tool.is_some_and(|tool| self.misfit(tool, arguments).is_none())
                    && self.allows(example, name, arguments)
            };
            let forbidden = example.forbidden_arguments.iter();
            let accepted = forbidden.filter(|one| accepts(&one.arguments));
            result.accepted = accepted.map(|one| one.name.clone()).collect();
        }
        if let (Some(expected), Some(name)) = (&example.outcome, called) {
            let decision = self.judge.decide(expected, name, example.arguments.as_ref());
            result.outcome = decision.map(|decision| outcome(expected, decision));
        }
        result
    }

    /// Whether a configuration would allow a call that nothing else refuses; true if no caller is named.
    fn allows(&self, example: &Example, name: &ToolName, arguments: &Fragment) -> bool {
        let outcome = example.outcome.as_ref();
        let decision =
            outcome.and_then(|outcome| self.judge.decide(outcome, name, Some(arguments)));
        decision.is_none_or(|decision| decision.allowed)
    }

    /// The place of the expected tools, and of those that are forbidden.
    fn selected(&self, one: &PreparedExample) -> ExampleResult {
        let PreparedExample { example, .. } = one;
        let order = self.order(one);
        let few = self.ranking(one, FEW, &order);
        let is_there = |hits: &[Hit]| hits.iter().any(|hit| self.is_one_of(hit, &example.expected));
        let ranking = match is_there(&few.hits) {
            true => few,
            false => self.ranking(one, MAX_LIMIT, &order),
        };
        let hits = &ranking.hits;
        let place = hits.iter().position(|hit| self.is_one_of(hit, &example.expected));
        let best_other = hits.iter().find(|hit| !self.is_one_of(hit, &example.expected));
        let score = place.and_then(|place| hits.get(place)).map_or(0.0, |hit| hit.score);
        let before = hits.iter().take(place.unwrap_or(hits.len()));
        let above = before.filter(|hit| self.is_one_of(hit, &example.forbidden));
        ExampleResult {
            rank: place.map(|place| place + 1),
            taken: best_other.filter(|_| place != Some(0)).and_then(|hit| self.name(hit)).cloned(),
            margin: score - best_other.map_or(0.0, |hit| hit.score),
            above: above.filter_map(|hit| self.name(hit)).cloned().collect(),
            ..ExampleResult::default()
        }
    }

    fn ranking(&self, one: &PreparedExample, limit: usize, order: &[ToolIndex]) -> Ranking {
        let limit = limit.max(self.order.candidates());
        let search = Search { strategy: Strategy::Fused, limit, weights: &self.weights };
        let index = &self.definitions.index;
        let ranking = index.search(&one.query, &search, |_| true, |_| Signals::default());
        if order.is_empty() { ranking } else { index.judged(ranking, &search, order) }
    }

    /// The tools that come first in another order than that of the selector.
    fn order(&self, one: &PreparedExample) -> Vec<ToolIndex> {
        let most = self.order.candidates();
        if most == 0 {
            return Vec::new();
        }
        let ranking = self.ranking(one, most, &[]);
        let hits = ranking.hits.iter().take(most);
        let found = hits.filter_map(|hit| {
            let tool = self.definitions.tools.get(usize::try_from(hit.tool.0).ok()?)?;
            Some((hit.tool, &**tool))
        });
        let (places, tools): (Vec<_>, Vec<_>) = found.unzip();
        let order = self.order.order(&one.example.query, &tools);
        order.into_iter().filter_map(|place| places.get(place).copied()).collect()
    }

    fn name(&self, hit: &Hit) -> Option<&ToolName> {
        self.definitions.name_at(hit.tool.0)
    }

    fn is_one_of(&self, hit: &Hit, names: &[ToolName]) -> bool {
        self.name(hit).is_some_and(|name| names.contains(name))
    }

    /// Why a call with these arguments would be refused for every caller; `None` if it would not.
    fn misfit(&self, tool: &EvaluatedTool, arguments: &Fragment) -> Option<String> {
        let said = |at: &str, note: &str| match at {
            "" => format!("the arguments: {note}"),
            at => format!("`{at}` {note}"),
        };
        let (given, schema) = (arguments.value(), tool.definition().get("inputSchema"));
        if let Err(misfit) = tool.schema().check_arguments(Some(given), &WorkBudget::unlimited()) {
            return Some(said(&misfit.at, &misfit.note));
        }
        if let Some(misfit) = undeclared(schema, given) {
            return Some(said(&misfit.at, &misfit.note));
        }
        let demands = self.examples.demands.get(&tool.name)?;
        if let Some(name) = demands.forbidden.iter().find(|name| given.get(name).is_some()) {
            return Some(format!("`/{name}` is forbidden by the policy beside the examples"));
        }
        let checks = demands.constraints.iter().map(|one| one.check(Some(given), schema));
        let misfit = checks.filter_map(Result::err).next()?;
        Some(said(&misfit.at, &misfit.note))
    }
}

fn outcome(expected: &ExpectedOutcome, decision: CallDecision) -> OutcomeResult {
    let CallDecision { allowed, reason } = decision;
    let is_reason = expected.reason.is_none() || expected.reason == reason;
    OutcomeResult { is_expected: allowed == expected.allowed && is_reason, allowed, reason }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use json::{Document, JsonBounds};
    use selector::model::Model;

    use super::*;

    fn document(text: &str) -> Arc<Document> {
        Arc::new(Document::parse(text.to_owned().into(), &JsonBounds::ANSWER).unwrap())
    }

    fn name(name: &str) -> ToolName {
        ToolName { server: "mail".into(), name: name.into() }
    }

    fn tool(tool: &str, description: &str) -> Arc<EvaluatedTool> {
        let schema = r#"{"type":"object","properties":{"to":{"type":"string"}}}"#;
        let text =
            format!(r#"{{"name":"{tool}","description":"{description}","inputSchema":{schema}}}"#);
        Arc::new(EvaluatedTool::new(Model::built_in(), "mail", &document(&text)).unwrap())
    }

    fn example(query: &str, expected: &str, arguments: &str) -> Example {
        Example {
            id: query.to_owned(),
            file: "send.examples.jsonl".into(),
            line: 1,
            query: query.to_owned(),
            expected: vec![name(expected)],
            forbidden: vec![name("purge")],
            arguments: Some(Fragment::whole(document(arguments))),
            forbidden_arguments: Vec::new(),
            outcome: None,
        }
    }

    #[test]
    fn each_example_has_its_rank_and_its_mistakes() {
        let tools = vec![
            tool("send", "Send a letter to somebody"),
            tool("purge", "Purge the whole archive for good"),
        ];
        let definitions = Definitions::new(Model::built_in(), tools);
        let examples = vec![
            example("send a letter", "send", r#"{"to":"ana"}"#),
            example("purge the archive", "send", r#"{"to":7}"#),
            example("send a letter", "gone", r#"{"other":"ana"}"#),
        ];
        let examples = Examples::new(Model::built_in(), examples, BTreeMap::new());
        let evaluation = evaluate(&definitions, &examples, 1, &NoJudge);
        let [first, second, third] = evaluation.results.as_slice() else { panic!("three") };
        assert!(first.rank == Some(1) && first.margin > 0.0 && !first.is_wrong(), "{first:?}");
        assert_eq!((&second.taken, second.above.len()), (&Some(name("purge")), 1), "{second:?}");
        assert!(second.misfit.as_ref().unwrap().starts_with("`/to`"), "{second:?}");
        assert!(third.rank.is_none() && third.misfit.is_some(), "{third:?}");
        let figures = evaluation.figures;
        assert_eq!(figures.first, Ratio { count: 1, of: 3 });
        assert_eq!((figures.arguments.count, figures.unforbidden.count), (1, 2));
        let confused: Vec<_> = evaluation
            .confusions
            .iter()
            .map(|one| (one.expected.clone(), one.taken.clone()))
            .collect();
        assert_eq!(confused, [(name("gone"), name("send")), (name("send"), name("purge"))]);
    }
}
