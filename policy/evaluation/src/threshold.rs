//! Which figures suffice.

use crate::ratio::number;
use crate::result::{Evaluation, Figures};
use crate::suite::Definitions;

/// A figure that has a threshold, and that a change of definitions may lower by a tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// The share of requests that lead to an expected tool first.
    Top1,
    /// The share of requests that lead to an expected tool among the first few.
    Recall,
    /// The mean rank of the first expected tool.
    MeanRank,
    /// The share of arguments that fit.
    ValidArguments,
    /// The share of examples without a forbidden tool above the expected one.
    ForbiddenTools,
    /// The share of examples of which no forbidden argument is accepted.
    ForbiddenArguments,
    /// The share of decisions that are as expected.
    Policy,
    /// The number of definitions with a finding that is grave.
    GraveFindings,
}

/// The value that a figure must have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The figure has to be at least this.
    Least(f64),
    /// The figure may be at most this.
    Most(f64),
}

impl Measure {
    /// Every measure, in the order of reports.
    pub const ALL: [Self; 8] = [
        Self::Top1,
        Self::Recall,
        Self::MeanRank,
        Self::ValidArguments,
        Self::ForbiddenTools,
        Self::ForbiddenArguments,
        Self::Policy,
        Self::GraveFindings,
    ];

    /// Its name on the command line and in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Top1 => "top1",
            Self::Recall => "recall",
            Self::MeanRank => "meanRank",
            Self::ValidArguments => "validArguments",
            Self::ForbiddenTools => "forbiddenTools",
            Self::ForbiddenArguments => "forbiddenArguments",
            Self::Policy => "policy",
            Self::GraveFindings => "graveFindings",
        }
    }

    /// The threshold that applies unless another one is given.
    #[must_use]
    pub const fn usual(self) -> Bound {
        match self {
            Self::Top1 => Bound::Least(0.6),
            Self::Recall => Bound::Least(0.9),
            Self::MeanRank => Bound::Most(f64::INFINITY),
            Self::ValidArguments
            | Self::ForbiddenTools
            | Self::ForbiddenArguments
            | Self::Policy => Bound::Least(1.0),
            Self::GraveFindings => Bound::Most(0.0),
        }
    }

    /// By how much a change of definitions may make it worse unless something else is given.
    #[must_use]
    pub const fn tolerance(self) -> f64 {
        match self {
            Self::Top1 | Self::Recall => 0.02,
            Self::MeanRank => 0.5,
            Self::ValidArguments
            | Self::ForbiddenTools
            | Self::ForbiddenArguments
            | Self::Policy
            | Self::GraveFindings => 0.0,
        }
    }

    /// The bound of this kind with another value.
    #[must_use]
    pub const fn bound(self, value: f64) -> Bound {
        match self.usual() {
            Bound::Least(_) => Bound::Least(value),
            Bound::Most(_) => Bound::Most(value),
        }
    }

    /// Its value in an evaluation of these definitions.
    #[must_use]
    pub fn value(self, evaluation: &Evaluation, definitions: &Definitions) -> f64 {
        let grave = definitions.tools.iter().filter(|tool| tool.is_grave()).count();
        self.of(&evaluation.figures, grave)
    }

    /// Its value among these figures, which may be those of one tool, with this number of grave definitions.
    #[must_use]
    pub fn of(self, figures: &Figures, grave: usize) -> f64 {
        match self {
            Self::Top1 => figures.first.share(),
            Self::Recall => figures.within.share(),
            Self::MeanRank => figures.mean_rank,
            Self::ValidArguments => figures.arguments.share(),
            Self::ForbiddenTools => figures.unforbidden.share(),
            Self::ForbiddenArguments => figures.refused.share(),
            Self::Policy => figures.outcomes.share(),
            Self::GraveFindings => number(grave),
        }
    }
}

impl Bound {
    /// Whether a value is within it. What is no number is not.
    #[must_use]
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::Least(least) => value >= least,
            Self::Most(most) => value <= most,
        }
    }

    /// The number of it.
    #[must_use]
    pub const fn number(self) -> f64 {
        match self {
            Self::Least(number) | Self::Most(number) => number,
        }
    }
}

/// A figure beside its threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The figure that is compared.
    pub measure: Measure,
    /// The value that it has.
    pub value: f64,
    /// The threshold that it has to keep.
    pub bound: Bound,
}

impl Verdict {
    /// Whether the figure suffices.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.bound.holds(self.value)
    }
}

/// Compares every figure with its threshold; `bound` gives the threshold of each.
#[must_use]
pub fn verdicts(
    evaluation: &Evaluation,
    definitions: &Definitions,
    bound: impl Fn(Measure) -> Bound,
) -> Vec<Verdict> {
    let verdict = |measure: Measure| Verdict {
        measure,
        value: measure.value(evaluation, definitions),
        bound: bound(measure),
    };
    Measure::ALL.into_iter().map(verdict).collect()
}
