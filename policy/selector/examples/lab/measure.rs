//! Measures how often the selector finds the tool that a request is about, and how long it takes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use selector::fusion::{Signals, Strategy, Weights};
use selector::index::{Index, PreparedTool, Search};
use selector::model::Model;
use selector::query::Query;

use crate::data::{Catalogue, Dice, Request, is_kept_back};

/// How many tools a catalogue has, if there are as many.
const TOOLS: usize = 2800;
/// Tools of an answer.
const LIMIT: usize = 5;
/// Sets of requests whose mean is that of domain prompts.
const DOMAIN: &[&str] = &["bfcl", "metatool", "sealtools"];
/// Pools that come first in a catalogue.
const FIRST_POOLS: &[&str] = &["wild", "livemcp", "mcpproxy", "metatool", "bfcl_live"];

/// Which requests of the benchmarks are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Those that weights were chosen on.
    Tuned,
    /// The others.
    KeptBack,
}

/// A catalogue and the requests that are made to it.
struct Bench {
    index: Index,
    /// The tools of the index.
    tools: Vec<usize>,
    requests: Vec<Request>,
}

pub(crate) struct Trial {
    benches: Vec<Bench>,
    model: &'static Model,
}

/// How many requests had the right tool first, and which share of the right tools was among the first five.
#[derive(Clone, Copy, Default)]
struct Found {
    requests: f64,
    first: f64,
    recalled: f64,
}

/// A weight among the others.
type Member = fn(&mut Weights) -> &mut f32;

impl Found {
    fn percent(self) -> [f64; 2] {
        [self.first, self.recalled].map(|found| 100.0 * found / self.requests)
    }
}

/// The interval of Wilson at 95 % for a share, in percent.
fn wilson(found: f64, of: f64) -> (f64, f64) {
    let z = 1.96_f64;
    let share = found / of;
    let middle = share + z * z / (2.0 * of);
    let width = z * (share * (1.0 - share) / of + z * z / (4.0 * of * of)).sqrt();
    let scale = 100.0 / (1.0 + z * z / of);
    ((middle - width) * scale, (middle + width) * scale)
}

fn index(all: &Catalogue, model: &'static Model, tools: &[usize]) -> Index {
    let prepared: Vec<_> =
        tools.iter().map(|at| PreparedTool::new(model, &all.tools[*at].text)).collect();
    Index::build(model, &prepared)
}

/// A catalogue of [`TOOLS`] tools: those that are needed, and others in a fixed order.
fn catalogue(needed: &BTreeSet<usize>, others: impl Iterator<Item = usize>) -> Vec<usize> {
    let others = others.filter(|at| !needed.contains(at));
    let mut tools: Vec<_> = needed.iter().copied().chain(others).take(TOOLS).collect();
    // The tools that are needed must not come first: equal scores would be decided for them.
    Dice::new(11).shuffle(&mut tools);
    tools
}

fn expected(requests: &[Request]) -> BTreeSet<usize> {
    requests.iter().flat_map(|request| request.expected.iter().copied()).collect()
}

impl Trial {
    pub(crate) fn new(
        all: &Catalogue,
        model: &'static Model,
        part: Part,
        queries: &[Request],
        pairs: Vec<Request>,
    ) -> Self {
        let is_measured = |one: &&Request| is_kept_back(&one.family) == (part == Part::KeptBack);
        let queries: Vec<_> = queries.iter().filter(is_measured).cloned().collect();
        let of = |pool: &str| {
            let pool = pool.to_owned();
            (0..all.tools.len()).filter(move |at| all.tools[*at].pool == pool)
        };
        let mut rest: Vec<usize> = of("sealtools").collect();
        Dice::new(5).shuffle(&mut rest);
        let others: Vec<usize> = FIRST_POOLS.iter().flat_map(|pool| of(pool)).chain(rest).collect();
        let tools = catalogue(&expected(&queries), others.into_iter());
        let mut benches =
            vec![Bench { index: index(all, model, &tools), tools, requests: queries }];
        if !pairs.is_empty() {
            let needed = expected(&pairs);
            let servers: BTreeSet<_> = needed.iter().map(|at| &all.tools[*at].server).collect();
            let near = (0..all.tools.len()).filter(|at| servers.contains(&all.tools[*at].server));
            let mut far: Vec<usize> = of("benign").chain(of("wild")).collect();
            Dice::new(5).shuffle(&mut far);
            let near: BTreeSet<usize> = near.collect();
            let far = far.into_iter().filter(|at| !near.contains(at));
            let tools = catalogue(&needed, near.iter().copied().chain(far));
            benches.push(Bench { index: index(all, model, &tools), tools, requests: pairs });
        }
        Self { benches, model }
    }

    fn measure(&self, strategy: Strategy, weights: &Weights) -> BTreeMap<String, Found> {
        let mut sets: BTreeMap<String, Found> = BTreeMap::new();
        for bench in &self.benches {
            for request in &bench.requests {
                let query = Query::new(self.model, &request.text);
                let search = Search { strategy, limit: LIMIT, weights };
                let ranking = bench.index.search(&query, &search, |_| true, |_| Signals::default());
                let hits: Vec<usize> =
                    ranking.hits.iter().map(|hit| bench.tools[hit.tool.0 as usize]).collect();
                let right = |at: &&usize| request.expected.contains(at);
                let found = sets.entry(request.set.clone()).or_default();
                found.requests += 1.0;
                found.first += f64::from(u8::from(hits.first().iter().any(&right)));
                found.recalled +=
                    hits.iter().filter(right).count() as f64 / request.expected.len() as f64;
            }
        }
        sets
    }

    /// The means of the domain prompts, and the written requests.
    fn summary(sets: &BTreeMap<String, Found>) -> ([f64; 2], [f64; 2]) {
        let of = |names: &[&str]| {
            let found: Vec<_> = names.iter().filter_map(|name| sets.get(*name)).collect();
            let mean = |at: usize| {
                found.iter().map(|found| found.percent()[at]).sum::<f64>() / found.len() as f64
            };
            [mean(0), mean(1)]
        };
        (of(DOMAIN), of(&["written"]))
    }

    pub(crate) fn print(&self) {
        println!("| strategy | requests | number | first | among five |");
        println!("|---|---|--:|--:|--:|");
        for (name, strategy) in [
            ("lexical", Strategy::Lexical),
            ("semantic", Strategy::Semantic),
            ("fused", Strategy::Fused),
        ] {
            let sets = self.measure(strategy, &Weights::default());
            for (set, found) in &sets {
                let [first, recalled] = found.percent();
                let (low, high) = wilson(found.first, found.requests);
                let (least, most) = wilson(found.recalled, found.requests);
                println!(
                    "| {name} | {set} | {} | {first:.1} % ({low:.0} to {high:.0}) | {recalled:.1} % ({least:.0} to {most:.0}) |",
                    found.requests
                );
            }
            let ([first, recalled], _) = Self::summary(&sets);
            println!("| {name} | mean of domain prompts | | {first:.1} % | {recalled:.1} % |");
        }
    }

    /// Improves one weight after the other as long as that helps, and prints what each change leads to.
    pub(crate) fn tune(&self) {
        let worth = |weights: &Weights| {
            let (domain, written) = Self::summary(&self.measure(Strategy::Fused, weights));
            let sum = domain.iter().sum::<f64>() + written.iter().sum::<f64>();
            (sum / 4.0, domain, written)
        };
        let mut best = Weights::default();
        let mut most = worth(&best);
        println!("{most:.1?} at first");
        let members: [(&str, Member); 3] = [
            ("lexical", |weights| &mut weights.lexical),
            ("soft", |weights| &mut weights.soft),
            ("semantic", |weights| &mut weights.semantic),
        ];
        for step in [0.3, 0.15, 0.08] {
            for (name, member) in members {
                for change in [step, -step] {
                    let mut tried = best;
                    *member(&mut tried) += change;
                    let found = worth(&tried);
                    if *member(&mut tried) >= 0.0 && found.0 > most.0 {
                        println!("{name} {:.2}: {found:.1?}", *member(&mut tried));
                        (best, most) = (tried, found);
                    }
                }
            }
        }
        println!("{best:?}");
    }
}

/// Prints the time of a search and the memory of an index, for catalogues of several sizes.
pub(crate) fn speed(all: &Catalogue, model: &'static Model, pairs: &[Request]) {
    let mut order: Vec<usize> = (0..all.tools.len()).collect();
    Dice::new(3).shuffle(&mut order);
    println!("| tools | build | memory | median | 99th percentile |");
    println!("|--:|--:|--:|--:|--:|");
    for size in [100, 500, 2800, 10_000] {
        let tools = &order[..size.min(order.len())];
        let began = Instant::now();
        let index = index(all, model, tools);
        let build = began.elapsed().as_millis();
        let weights = Weights::default();
        let search = Search { strategy: Strategy::Fused, limit: LIMIT, weights: &weights };
        let once = |request: &Request| {
            let began = Instant::now();
            let query = Query::new(model, &request.text);
            let ranking = index.search(&query, &search, |_| true, |_| Signals::default());
            assert!(ranking.hits.len() <= LIMIT);
            began.elapsed().as_micros()
        };
        // The least of five: what else runs on the machine is not measured.
        let timed = |request: &Request| (0..5).map(|_| once(request)).min().unwrap();
        let mut times: Vec<_> = pairs.iter().take(2000).map(timed).collect();
        times.sort_unstable();
        let at = |share: usize| times[times.len() * share / 100];
        println!(
            "| {size} | {build} ms | {} KiB | {} µs | {} µs |",
            index.memory() / 1024,
            at(50),
            at(99)
        );
    }
}
