//! Definitions and examples that belong together.

use std::collections::BTreeMap;
use std::sync::Arc;

use policy::rules::constraint::Constraint;
use selector::fusion::Weights;
use selector::index::{Index, PreparedTool};
use selector::model::Model;
use selector::query::Query;

use crate::example::Example;
use crate::tool::{EvaluatedTool, ToolName};

/// What an evaluation demands of the arguments of one tool besides its schema.
#[derive(Debug, Default)]
pub struct ArgumentDemands {
    /// Limits on the arguments of the tools.
    pub constraints: Vec<Constraint>,
    /// Names of arguments that no call may have.
    pub forbidden: Vec<Box<str>>,
}

/// An example with its request as the selector reads it.
#[derive(Debug)]
pub(crate) struct PreparedExample {
    pub(crate) example: Example,
    pub(crate) query: Query,
}

/// Examples, which can be tried with different definitions.
#[derive(Debug)]
pub struct Examples {
    model: &'static Model,
    pub(crate) all: Vec<PreparedExample>,
    pub(crate) demands: BTreeMap<ToolName, ArgumentDemands>,
}

impl Examples {
    /// Prepares examples for an evaluation.
    #[must_use]
    pub fn new(
        model: &'static Model,
        examples: Vec<Example>,
        demands: BTreeMap<ToolName, ArgumentDemands>,
    ) -> Self {
        let prepare = |example: Example| {
            let query = Query::new(model, &example.query);
            PreparedExample { example, query }
        };
        Self { model, all: examples.into_iter().map(prepare).collect(), demands }
    }

    /// The table of words that requests are read with.
    #[must_use]
    pub const fn model(&self) -> &'static Model {
        self.model
    }

    /// The examples, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Example> {
        self.all.iter().map(|one| &one.example)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// The definitions among which tools are looked for.
#[derive(Debug)]
pub struct Definitions {
    /// The definitions, in their order.
    pub tools: Vec<Arc<EvaluatedTool>>,
    /// What each score counts in the search among them.
    pub(crate) weights: Weights,
    pub(crate) places: BTreeMap<ToolName, usize>,
    pub(crate) index: Index,
}

impl Definitions {
    /// Indexes definitions. Of several with one name the first counts.
    #[must_use]
    pub fn new(model: &'static Model, tools: Vec<Arc<EvaluatedTool>>) -> Self {
        let prepared: Vec<PreparedTool> = tools.iter().map(|tool| tool.prepared.clone()).collect();
        let mut places = BTreeMap::new();
        for (place, tool) in tools.iter().enumerate() {
            places.entry(tool.name.clone()).or_insert(place);
        }
        let weights = Weights::default();
        Self { index: Index::build(model, &prepared), places, tools, weights }
    }

    /// The same, with other weights of a search among them.
    #[must_use]
    pub const fn weighted(mut self, weights: Weights) -> Self {
        self.weights = weights;
        self
    }

    /// The definition of a tool.
    #[must_use]
    pub fn find(&self, name: &ToolName) -> Option<&Arc<EvaluatedTool>> {
        self.tools.get(*self.places.get(name)?)
    }

    /// The name of the tool at a place of the index.
    pub(crate) fn name_at(&self, place: u32) -> Option<&ToolName> {
        self.tools.get(usize::try_from(place).ok()?).map(|tool| &tool.name)
    }
}
