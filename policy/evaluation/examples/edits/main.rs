//! Measures which edits of definitions lower an evaluation.
//!
//!     cargo run --release -p evaluation --example edits -- FOLDER [TOOLS [EDITED [FIRST]]]
//!
//! FOLDER has `benign_tools.jsonl`: a definition a line, with `id`, `server` and `tool`. The requests are those of
//! `policy/selector/data/pairs.tsv`. The first TOOLS (500) of the tools that have requests are evaluated together; EDITED
//! (100) of them, evenly spread from the one at FIRST (0) on, are edited, one after the other, in every way that applies.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "a tool for those who work on the evaluation"
)]

mod data;
mod texts;
mod schemas;
mod edits;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, thread};

use evaluation::comparison::{Comparison, Evaluated, compare};
use evaluation::result::Evaluation;
use evaluation::run::{NoJudge, evaluate};
use evaluation::suite::{Definitions, Examples};
use evaluation::threshold::Measure;
use evaluation::tool::EvaluatedTool;
use selector::model::Model;

use data::{Corpus, prepared};
use edits::{EDITS, Edit, Harm};

/// How many tools a search shows.
const LIMIT: usize = 5;

/// The definitions before any edit.
struct Baseline {
    corpus: Corpus,
    tools: Vec<Arc<EvaluatedTool>>,
    examples: Examples,
    definitions: Definitions,
    evaluation: Evaluation,
}

impl Baseline {
    fn new(corpus: Corpus) -> Self {
        let model = Model::built_in();
        let tools: Vec<_> =
            corpus.tools.iter().map(|tool| prepared(tool, &tool.definition)).collect();
        let examples = Examples::new(model, corpus.examples(), BTreeMap::new());
        let definitions = Definitions::new(model, tools.clone());
        let evaluation = evaluate(&definitions, &examples, LIMIT, &NoJudge);
        Self { corpus, tools, examples, definitions, evaluation }
    }

    /// The definitions with another one at `at`.
    fn with(&self, at: usize, tool: Arc<EvaluatedTool>) -> (Definitions, Evaluation) {
        let mut tools = self.tools.clone();
        tools[at] = tool;
        let definitions = Definitions::new(self.examples.model(), tools);
        let evaluation = evaluate(&definitions, &self.examples, LIMIT, &NoJudge);
        (definitions, evaluation)
    }

    /// What an edit of the tool at `at` does; `None` if it does not apply.
    fn trial(&self, edit: &Edit, at: usize) -> Option<Comparison> {
        let tool = &self.corpus.tools[at];
        let other = &self.corpus.tools[(at * 7 + 13) % self.corpus.tools.len()];
        let edited = (edit.apply)(tool, other)?;
        let later = prepared(tool, &edited.after);
        let former = edited.before.map(|before| self.with(at, prepared(tool, &before)));
        let (definitions, evaluation) = self.with(at, later);
        let (first, first_evaluation) = match &former {
            Some((definitions, evaluation)) => (definitions, evaluation),
            None => (&self.definitions, &self.evaluation),
        };
        let before = Evaluated { definitions: first, evaluation: first_evaluation };
        let after = Evaluated { definitions: &definitions, evaluation: &evaluation };
        Some(compare(&self.examples, before, after, Measure::tolerance))
    }
}

/// What was counted for one kind of edit.
#[derive(Clone, Default)]
struct Tally {
    applied: usize,
    lowered: usize,
    /// Why, of those that are not as they should be.
    why: Vec<String>,
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number =
        |at: usize, usual: usize| arguments.get(at).map_or(usual, |text| text.parse().unwrap());
    let corpus = Corpus::read(Path::new(&arguments[0]), number(1, 500));
    let baseline = Baseline::new(corpus);
    let figures = &baseline.evaluation.figures;
    println!("{} tools, {} requests", baseline.tools.len(), baseline.examples.len());
    println!("top-1 {:.3}, recall@5 {:.3}", figures.first.share(), figures.within.share());
    let edited = number(2, 100).min(baseline.tools.len());
    let (step, offset) = (baseline.tools.len() / edited, number(3, 0));
    let work: Vec<(usize, usize)> = (0..EDITS.len())
        .flat_map(|kind| (0..edited).map(move |n| (kind, n * step + offset)))
        .collect();
    let tallies = Mutex::new(vec![Tally::default(); EDITS.len()]);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while let Some((kind, at)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let edit = &EDITS[*kind];
                    let Some(comparison) = baseline.trial(edit, *at) else { continue };
                    let tally = &mut tallies.lock().unwrap()[*kind];
                    tally.applied += 1;
                    tally.lowered += usize::from(comparison.falls());
                    if comparison.falls() != (edit.harm == Harm::Harmful) {
                        tally.why.push(why(&baseline, *at, &comparison));
                    }
                }
            });
        }
    });
    report(&tallies.into_inner().unwrap());
}

/// What a comparison says of an edit, without a text of the definition.
fn why(baseline: &Baseline, at: usize, comparison: &Comparison) -> String {
    let figures = comparison.figures.iter().filter(|figure| figure.falls());
    let figures = figures.map(|figure| figure.measure.as_str().to_owned());
    let differences = comparison.differences.iter().filter(|one| one.falls);
    let differences = differences.map(|one| format!("{} {}", one.kind.as_str(), one.note));
    let all: Vec<_> = figures.chain(differences).collect();
    format!("{}: {}", baseline.corpus.tools[at].id, all.join("; "))
}

fn report(tallies: &[Tally]) {
    let mut sums: BTreeMap<bool, (usize, usize)> = BTreeMap::new();
    for (edit, tally) in EDITS.iter().zip(tallies) {
        let is_harmful = edit.harm == Harm::Harmful;
        let sum = sums.entry(is_harmful).or_default();
        *sum = (sum.0 + tally.lowered, sum.1 + tally.applied);
        let share = 100.0 * tally.lowered as f64 / tally.applied.max(1) as f64;
        let harm = if is_harmful { "harmful " } else { "harmless" };
        println!("{harm} {share:6.1} % {:5} of {:5}  {}", tally.lowered, tally.applied, edit.name);
        let shown = env::var("SHOW").map_or(0, |text| text.parse().unwrap());
        tally.why.iter().take(shown).for_each(|why| println!("             {why}"));
    }
    for (is_harmful, (lowered, applied)) in sums {
        let share = 100.0 * lowered as f64 / applied as f64;
        let harm = if is_harmful { "harmful" } else { "harmless" };
        println!("{harm}: {lowered} of {applied} lower the evaluation ({share:.2} %)");
    }
}
