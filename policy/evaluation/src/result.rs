//! What came out for each example, and the figures of all of them.

use std::collections::BTreeMap;

use crate::ratio::{Ratio, number};
use crate::tool::ToolName;

/// What came out for one example.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExampleResult {
    /// The rank of the first expected tool, from 1; `None` if the request does not lead to any of them.
    pub rank: Option<usize>,
    /// The tool that is ranked first in place of an expected one.
    pub taken: Option<ToolName>,
    /// The score of the first expected tool less that of the best other one.
    pub margin: f32,
    /// Forbidden tools that are ranked above the expected ones.
    pub above: Vec<ToolName>,
    /// What is wrong with the arguments; `None` if they fit, or none were given.
    pub misfit: Option<String>,
    /// Whether arguments were given.
    pub has_arguments: bool,
    /// Forbidden values of arguments that neither the schema nor a constraint nor the policy refuses.
    pub accepted: Vec<Box<str>>,
    /// The decision about the call, if one was expected and there is a configuration.
    pub outcome: Option<OutcomeResult>,
}

/// A decision about the call of an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutcomeResult {
    /// Whether the call would be allowed.
    pub allowed: bool,
    /// The reason code, if not.
    pub reason: Option<String>,
    /// Whether that was expected.
    pub is_expected: bool,
}

impl ExampleResult {
    /// Whether an expected tool is among the first `limit`.
    #[must_use]
    pub fn is_within(&self, limit: usize) -> bool {
        self.rank.is_some_and(|rank| rank <= limit)
    }

    /// Whether something besides the rank is wrong.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        let has_failed = |outcome: &OutcomeResult| !outcome.is_expected;
        !self.above.is_empty()
            || self.misfit.is_some()
            || !self.accepted.is_empty()
            || self.outcome.as_ref().is_some_and(has_failed)
    }
}

/// The figures of some examples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// How many examples there are, and how many of them lead to an expected tool first.
    pub first: Ratio,
    /// How many lead to an expected tool among the first few.
    pub within: Ratio,
    /// The mean rank of the first expected tool. What is not found has the rank behind all tools.
    pub mean_rank: f64,
    /// The mean of the score by which expected tools are ahead of others; negative if they are behind.
    pub margin: f64,
    /// How many of the given arguments fit the schema and the constraints.
    pub arguments: Ratio,
    /// How many examples have no forbidden tool above the expected ones.
    pub unforbidden: Ratio,
    /// How many examples have each forbidden argument refused.
    pub refused: Ratio,
    /// How many decisions are as expected.
    pub outcomes: Ratio,
}

impl Figures {
    /// The figures of some results. `limit` is the number of tools that a search shows, `last` the number of all.
    pub(crate) fn of<'a>(
        results: impl Iterator<Item = &'a ExampleResult> + Clone,
        limit: usize,
        last: usize,
    ) -> Self {
        let first = Ratio::of(results.clone(), |one| one.is_within(1));
        let rank = |one: &ExampleResult| number(one.rank.unwrap_or(last + 1));
        let mean = |sum: f64| if first.of == 0 { 0.0 } else { sum / number(first.of) };
        let with_arguments = results.clone().filter(|one| one.has_arguments);
        let outcomes = results.clone().filter_map(|one| one.outcome.as_ref());
        Self {
            first,
            within: Ratio::of(results.clone(), |one| one.is_within(limit)),
            mean_rank: mean(results.clone().map(rank).sum()),
            margin: mean(results.clone().map(|one| f64::from(one.margin)).sum()),
            arguments: Ratio::of(with_arguments, |one| one.misfit.is_none()),
            unforbidden: Ratio::of(results.clone(), |one| one.above.is_empty()),
            refused: Ratio::of(results, |one| one.accepted.is_empty()),
            outcomes: Ratio::of(outcomes, |one| one.is_expected),
        }
    }
}

/// A tool that is taken for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    /// The tool that requests are about.
    pub expected: ToolName,
    /// The tool that they lead to.
    pub taken: ToolName,
    /// How many of the examples of the expected tool do.
    pub ratio: Ratio,
}

/// The result of an evaluation.
#[derive(Clone, Debug, Default)]
pub struct Evaluation {
    /// How many tools a search shows.
    pub limit: usize,
    /// What came out for each example, in their order.
    pub results: Vec<ExampleResult>,
    /// The figures of all examples.
    pub figures: Figures,
    /// The figures of each expected tool.
    pub by_tool: BTreeMap<ToolName, Figures>,
    /// Which tools are taken for which, the most frequent first.
    pub confusions: Vec<Confusion>,
}
