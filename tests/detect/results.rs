//! Makes the weights of the model that reads results, and measures it on sources it has not seen.
//!
//! It learns from the stretches in which the patterns find orders, and in rows without any from the
//! stretch that reads most like those; ordinary are all others. It also learns from the texts that were written for this
//! purpose (`corpus`), in which it is known what the orders are, and from the documents of libraries. Only
//! permissively licensed rows are learned from. The same input makes the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use detection::content::patterns;
use detection::content::stretch::{BUCKETS, stretches, strongest};
use detection::detect::Model;
use serde_json::Value;

use super::{Example, corpus, train};

/// How often the stretches of rows without a pattern are chosen anew.
const ROUNDS: usize = 2;
/// So much more than its share all that is learned to be orders counts, in parts of what is ordinary.
const SHARE: f32 = 0.2;
/// Stretches in which patterns find less than this are ordinary, unless they are chosen.
const ORDINARY: f32 = 0.3;
/// What a stretch of a written text counts that is orders.
const WRITTEN: f32 = 4.0;
/// Longest text that is learned from, in bytes.
const LONGEST: usize = 20_000;

struct Row {
    text: String,
    source: String,
    stratum: String,
    permissive: bool,
    /// The features of its stretches, and what the patterns find in each.
    stretches: Vec<(Vec<u32>, f32)>,
    patterns: f32,
}

fn read(folder: &Path, name: &str) -> Vec<Row> {
    let all = fs::read_to_string(folder.join(name)).unwrap();
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let word = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let text = word("text");
        let part = text.get(..text.floor_char_boundary(LONGEST)).unwrap();
        let of = |one: detection::content::stretch::SentencePair| {
            let found = patterns(part.get(one.at).unwrap_or_default());
            (one.features, found)
        };
        let license = word("license");
        Row {
            stretches: stretches(part).into_iter().map(of).collect(),
            patterns: patterns(&text),
            // What is said of a repository as a whole says nothing of the row.
            permissive: ["MIT", "Apache", "BSD", "ISC", "CC-BY"]
                .iter()
                .any(|free| license.starts_with(free)),
            source: word("source").split('/').next().unwrap_or_default().to_owned(),
            stratum: word("stratum"),
            text,
        }
    };
    all.lines().map(row).collect()
}

fn sum(model: &Model, features: &[u32]) -> f32 {
    model.bias() + features.iter().map(|f| model.weight(*f)).sum::<f32>()
}

/// Learns to tell the orders in `attacks` from all else in them and from `ordinary`.
fn learn(attacks: &[&Row], ordinary: &[&Row], seed: u64) -> Model {
    // The stretches that are orders, by row and place.
    let mut orders: BTreeSet<(usize, usize)> = BTreeSet::new();
    for (n, row) in attacks.iter().enumerate() {
        let found = row.stretches.iter().enumerate().filter(|(_, (_, found))| *found >= 1.0);
        orders.extend(found.map(|(at, _)| (n, at)));
    }
    let written = corpus::pairs(WRITTEN);
    let mut model = None;
    for round in 0..=ROUNDS {
        let mut examples = Vec::new();
        for (n, row) in attacks.iter().enumerate() {
            for (at, (features, found)) in row.stretches.iter().enumerate() {
                let attack = orders.contains(&(n, at));
                if attack || *found < ORDINARY {
                    examples.push(Example { features: features.clone(), attack, weight: 1.0 });
                }
            }
        }
        let plain = ordinary.iter().flat_map(|row| &row.stretches);
        let plain = plain.map(|(features, _)| (features.clone(), false));
        examples.extend(plain.map(|(features, attack)| Example { features, attack, weight: 1.0 }));
        let rest = examples.iter().filter(|one| !one.attack).count();
        let weight = rest as f32 * SHARE / orders.len().max(1) as f32;
        examples.iter_mut().filter(|one| one.attack).for_each(|one| one.weight = weight);
        examples.extend(written.iter().cloned());
        let learned = train(&examples, BUCKETS, seed);
        if round < ROUNDS {
            let has: BTreeSet<usize> = orders.iter().map(|(n, _)| *n).collect();
            for (n, row) in attacks.iter().enumerate().filter(|(n, _)| !has.contains(n)) {
                let scores = row.stretches.iter().map(|(features, _)| sum(&learned, features));
                let best = scores.enumerate().max_by(|one, other| one.1.total_cmp(&other.1));
                // What does not look like the others is left out, not learned to be ordinary.
                orders.extend(best.filter(|(_, score)| *score > -2.0).map(|(at, _)| (n, at)));
            }
        }
        model = Some(learned);
    }
    model.unwrap()
}

/// The weights, from all that may be learned from.
pub(crate) fn learned(folder: &Path) -> Vec<u8> {
    let attacks = read(folder, "injected_outputs.jsonl");
    let ordinary = read(folder, "benign_outputs.jsonl");
    let attacks: Vec<&Row> = attacks.iter().filter(|row| row.permissive).collect();
    let ordinary: Vec<&Row> = ordinary.iter().filter(|row| row.permissive).collect();
    learn(&attacks, &ordinary, 1).write()
}

/// What the model and the patterns say of a row.
type Scores = (f32, f32);

/// Which sources are of one make: neither is learned from where the other is asked about.
fn family(source: &str) -> &str {
    if source.starts_with("agentd") { "agentdojo" } else { source }
}

/// Prints what it finds in sources from which it did not learn, beside what the patterns find.
pub(crate) fn measure(folder: &Path) {
    let attacks = read(folder, "injected_outputs.jsonl");
    let ordinary = read(folder, "benign_outputs.jsonl");
    let mut families: Vec<&str> =
        attacks.iter().chain(&ordinary).map(|r| family(&r.source)).collect();
    families.sort_unstable();
    families.dedup();
    let attacked: BTreeSet<&str> = attacks.iter().map(|row| family(&row.source)).collect();
    // Sources with nothing but ordinary rows are spread over the folds.
    let folds: Vec<Vec<&str>> = attacked
        .iter()
        .enumerate()
        .map(|(n, name)| {
            let others = families.iter().filter(|other| !attacked.contains(**other)).enumerate();
            let others = others.filter(|(m, _)| m % attacked.len() == n).map(|(_, other)| *other);
            [*name].into_iter().chain(others).collect()
        })
        .collect();
    let (mut plain, mut found): (Vec<Scores>, Vec<(&Row, f32)>) = (Vec::new(), Vec::new());
    for fold in folds {
        let out = |row: &&Row| fold.contains(&family(&row.source));
        let learn_from: Vec<&Row> =
            attacks.iter().filter(|row| !out(row) && row.permissive).collect();
        let rest: Vec<&Row> = ordinary.iter().filter(|row| !out(row) && row.permissive).collect();
        let model = learn(&learn_from, &rest, 1);
        let score = |row: &Row| strongest(&model, &row.text).map_or(-99.0, |(sum, _)| sum);
        plain.extend(ordinary.iter().filter(out).map(|row| (score(row), row.patterns)));
        found.extend(attacks.iter().filter(out).map(|row| (row, score(row))));
    }
    println!(
        "orders in results, from sources not learned from: model alone, patterns alone, both\n"
    );
    let share = |hit: usize, all: usize| 100.0 * hit as f64 / all.max(1) as f64;
    for threshold in [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0] {
        print!("  {threshold:.1}");
        let is = |(model, patterns): Scores| [model >= threshold, patterns >= 1.0];
        let count = |rows: Vec<Scores>| {
            let of = |f: fn([bool; 2]) -> bool| rows.iter().filter(|row| f(is(**row))).count();
            let all = rows.len();
            let [a, b, c] = [of(|[m, _]| m), of(|[_, p]| p), of(|[m, p]| m || p)];
            format!("{:5.1} {:5.1} {:5.1} %", share(a, all), share(b, all), share(c, all))
        };
        print!("   ordinary {}", count(plain.clone()));
        for stratum in ["explicit", "implicit"] {
            let rows = found.iter().filter(|(row, _)| row.stratum == stratum);
            print!(
                "   {stratum} {}",
                count(rows.map(|(row, score)| (*score, row.patterns)).collect())
            );
        }
        println!();
    }
    let mut by: BTreeMap<&str, Vec<Scores>> = BTreeMap::new();
    for (row, score) in &found {
        by.entry(&row.source).or_default().push((*score, row.patterns));
    }
    println!("\nby source, at {}\n", detection::content::stretch::THRESHOLD);
    for (source, rows) in by {
        let at = detection::content::stretch::THRESHOLD;
        let of = |f: &dyn Fn(&Scores) -> bool| rows.iter().filter(|row| f(row)).count();
        println!(
            "  {source:<36} {:5.1} {:5.1} {:5.1} % of {}",
            share(of(&|row| row.0 >= at), rows.len()),
            share(of(&|row| row.1 >= 1.0), rows.len()),
            share(of(&|row| row.0 >= at || row.1 >= 1.0), rows.len()),
            rows.len()
        );
    }
}
