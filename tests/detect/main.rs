//! Makes the weights of the detector, and measures it.
//!
//!     cargo run --release -p e2e --bin detect -- measure FOLDER
//!     cargo run --release -p e2e --bin detect -- content FOLDER
//!     cargo run --release -p e2e --bin detect -- train FOLDER > policy/detection/src/detect/model.bin
//!     cargo run --release -p e2e --bin detect -- train-results FOLDER > policy/detection/src/content/orders.bin
//!     cargo run --release -p e2e --bin detect -- results FOLDER
//!
//! FOLDER has `benign_tools.jsonl`, `poisoned_tools.jsonl`, `obfuscated_tools.jsonl` and
//! `lookalike_benign.jsonl`: a definition a line, under `tool`, with its `source` and `license`. Only
//! what is permissively licensed is learned from, besides the attacks that `generator.json` makes and the texts that
//! were written for this purpose (`corpus`). The same input makes the same bytes.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::disallowed_methods,
    reason = "a tool for those who work on the detector"
)]

mod content;
mod corpus;
mod generator;
mod results;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::{env, fs};

use detection::detect::{BUCKETS, Model, TextAnalysis, Window, words};
use generator::{Dice, Grammar};
use json::{Document, JsonBounds};
use serde_json::{Value, json};

const FOLDS: u64 = 4;
const ATTACKS: usize = 5000;
const ORDINARY: usize = 3000;
const EPOCHS: usize = 4;
const BATCH: usize = 128;
const RATE: f32 = 0.1;
const DECAY: f32 = 1e-5;
/// What a row that carries an attack and may be learned from counts.
const REAL: f32 = 3.0;

/// A definition and what is known of it.
struct Row {
    id: String,
    source: String,
    class: String,
    explicit: bool,
    transform: String,
    /// Of which row it is a transform.
    base: Option<String>,
    permissive: bool,
    server: String,
    tool: Value,
    reading: TextAnalysis,
}

fn read(text: &str) -> TextAnalysis {
    let document = Document::parse(text.to_owned().into(), &JsonBounds::ANSWER).unwrap();
    TextAnalysis::of(Arc::new(document).root())
}

fn rows(folder: &Path, file: &str) -> Vec<Row> {
    let text = fs::read_to_string(folder.join(file)).unwrap();
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let tool = row.get("tool")?.clone();
        let license = text("license");
        let free = ["MIT", "Apache", "BSD", "ISC", "CC-BY"];
        Some(Row {
            id: text("id"),
            source: text("source"),
            class: text("attack_class"),
            explicit: row["explicit"].as_bool().unwrap_or(true),
            transform: text("transform"),
            base: row["base_id"].as_str().map(str::to_owned),
            permissive: free.iter().any(|free| license.starts_with(free)),
            server: if text("server").is_empty() { text("family") } else { text("server") },
            reading: read(&tool.to_string()),
            tool,
        })
    };
    text.lines().filter_map(row).collect()
}

/// What is learned from: the features of a stretch, what it is, and what it counts.
#[derive(Clone)]
struct Example {
    features: Vec<u32>,
    attack: bool,
    weight: f32,
}

fn example(window: &Window, attack: bool, weight: f32) -> Example {
    Example { features: window.features.clone(), attack, weight }
}

/// Logistic regression by AdaGrad; the model is rounded as it is stored.
fn train(examples: &[Example], buckets: usize, seed: u64) -> Model {
    let mut dice = Dice::new(seed);
    let mut weights = vec![0.0_f32; buckets + 1];
    let mut squares = vec![0.01_f32; buckets + 1];
    let mut gradient = vec![0.0_f32; buckets + 1];
    let mut order: Vec<usize> = (0..examples.len()).collect();
    for _ in 0..EPOCHS {
        for at in (1..order.len()).rev() {
            order.swap(at, dice.below(at + 1));
        }
        for batch in order.chunks(BATCH) {
            gradient.fill(0.0);
            for example in batch.iter().map(|at| &examples[*at]) {
                let sum: f32 = example.features.iter().map(|f| weights[*f as usize]).sum();
                let z = (sum + weights[buckets]).clamp(-30.0, 30.0);
                let error = 1.0 / (1.0 + (-z).exp()) - f32::from(u8::from(example.attack));
                let error = error * example.weight / batch.len() as f32;
                example.features.iter().for_each(|f| gradient[*f as usize] += error);
                gradient[buckets] += error;
            }
            for ((weight, square), gradient) in weights.iter_mut().zip(&mut squares).zip(&gradient)
            {
                let step = gradient + DECAY * *weight;
                *square += step * step;
                *weight -= RATE * step / square.sqrt();
            }
        }
    }
    let bias = weights.pop().unwrap();
    Model::rounded(&weights, bias)
}

/// Names of tools that an attack speaks of.
fn names<'a>(dice: &mut Dice, rows: &[&'a Row], of: &'a Row) -> Vec<String> {
    let own: Vec<&&Row> = rows.iter().filter(|row| row.server == of.server).collect();
    let near = dice.chance(50);
    let mut names: Vec<String> = (0..3)
        .map(|_| if near { **dice.choose(&own) } else { *dice.choose(rows) })
        .filter_map(|row| row.tool["name"].as_str().map(str::to_owned))
        .filter(|name| name.len() < 50 && !name.contains(' ') && !name.is_empty())
        .collect();
    if names.is_empty() {
        names.push("list_items".to_owned());
    }
    names
}

fn sentences(text: &str) -> Vec<String> {
    let text = text.replace(". ", ".\n");
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Stretches of definitions that an attack was put into, as far as they are the attack.
fn attacks(dice: &mut Dice, grammar: &Grammar, rows: &[&Row]) -> Vec<Example> {
    let mut examples = Vec::new();
    for _ in 0..ATTACKS {
        let carrier = *dice.choose(rows);
        let names = names(dice, rows, carrier);
        let attack = grammar.attack(dice, &names);
        let mut name = carrier.tool["name"].as_str().unwrap_or("tool").to_owned();
        if dice.chance(35) {
            let other = dice.choose(rows).tool["name"].as_str().unwrap_or("tool");
            let plain = ["helper", "tool", "add", "check_status", "get_info", "convert", "lookup"];
            name = if dice.chance(30) { other } else { *dice.choose(&plain) }.to_owned();
        }
        let ordinary = sentences(carrier.tool["description"].as_str().unwrap_or_default());
        let place = dice.below(100);
        let (mut before, mut after) = (String::new(), String::new());
        if !dice.chance(30) {
            if place < 75 && !ordinary.is_empty() {
                let from = if dice.chance(30) { dice.below(ordinary.len()) } else { 0 };
                let count = *dice.choose(&[1, 1, 2]);
                let some = ordinary.iter().skip(from).take(count);
                before = some.cloned().collect::<Vec<_>>().join(" ") + " ";
            }
            if place > 50 && ordinary.len() > 1 {
                after = format!(" {}", ordinary[ordinary.len().saturating_sub(2)..].join(" "));
            }
        }
        let mut tool = json!({ "name": name, "description": format!("{before}{attack}{after}") });
        if dice.chance(40) {
            tool["inputSchema"] = carrier.tool["inputSchema"].clone();
        }
        let reading = read(&tool.to_string());
        let found = words(&attack, &name);
        let starts = reading.tokens.windows(found.len().max(1));
        let like = |window: &[detection::detect::Token]| {
            let same = window.iter().zip(&found).filter(|(a, b)| a == b).count();
            same * 10 >= found.len() * 7
        };
        let Some(start) = starts.enumerate().find(|(_, window)| like(window)).map(|(at, _)| at)
        else {
            continue;
        };
        if found.len() < 3 {
            continue;
        }
        let (first, last) = (start, start + found.len());
        for window in &reading.windows {
            let (from, to) = window.words;
            let inside = last.min(to).saturating_sub(first.max(from));
            let most = inside * 10 >= found.len() * 8
                || inside >= 20
                || (inside * 10 >= (to - from) * 7 && inside >= 12);
            if most {
                examples.push(example(window, true, 1.0));
            }
        }
    }
    examples
}

fn ordinary(dice: &mut Dice, grammar: &Grammar, rows: &[&Row]) -> Vec<Example> {
    let mut examples = Vec::new();
    for _ in 0..ORDINARY {
        let carrier = *dice.choose(rows);
        let names = names(dice, rows, carrier);
        let first = sentences(carrier.tool["description"].as_str().unwrap_or_default());
        let first = first.first().cloned().unwrap_or_default();
        let text = format!("{first} {}", grammar.ordinary(dice, &names));
        let tool = json!({
            "name": carrier.tool["name"], "description": text,
            "inputSchema": carrier.tool["inputSchema"],
        });
        examples.extend(read(&tool.to_string()).windows.iter().map(|w| example(w, false, 1.0)));
    }
    examples
}

/// Prompts and resources that say what ordinary tools say: the rows are tools alone.
fn other_kinds(dice: &mut Dice, rows: &[&Row]) -> Vec<Example> {
    let mut examples = Vec::new();
    for row in rows {
        let (name, description) = (&row.tool["name"], &row.tool["description"]);
        let value = match dice.below(8) {
            0 => {
                let audience = *dice.choose(&[
                    &["user"][..],
                    &["assistant"],
                    &["user", "assistant"],
                    &["assistant", "user"],
                ]);
                let title = name.as_str().unwrap_or_default().replace(['_', '-'], " ");
                let uri = format!("file:///{}", name.as_str().unwrap_or_default());
                json!({
                    "uri": uri, "name": name, "title": title, "description": description,
                    "mimeType": "text/plain", "size": dice.below(90_000),
                    "annotations": { "audience": audience, "priority": 0.5, "lastModified": "2026-01-12T15:00:58Z" },
                })
            }
            1 => {
                let members = row.tool["inputSchema"]["properties"].as_object();
                let argument = |(name, schema): (&String, &Value)| json!({ "name": name, "description": schema["description"], "required": true });
                let arguments: Vec<Value> = members.into_iter().flatten().map(argument).collect();
                json!({ "name": name, "description": description, "arguments": arguments })
            }
            2 => {
                json!({ "uri": "test://thing/1", "name": name, "annotations": { "audience": ["user", "assistant"], "priority": 0.9 } })
            }
            _ => continue,
        };
        let reading = read(&value.to_string());
        examples.extend(reading.windows.iter().map(|window| example(window, false, 1.0)));
    }
    examples
}

/// A model of what may be learned from; `real` are rows that carry attacks.
fn learn(rows: &[&Row], real: &[&Row], seed: u64) -> Model {
    let grammar = Grammar::read();
    let mut dice = Dice::new(seed);
    let mut examples = attacks(&mut dice, &grammar, rows);
    examples.extend(corpus::windows());
    examples.extend(ordinary(&mut dice, &grammar, rows));
    let windows = rows.iter().flat_map(|row| &row.reading.windows);
    examples.extend(windows.map(|window| example(window, false, 1.0)));
    examples.extend(other_kinds(&mut dice, rows));
    let model = train(&examples, BUCKETS, seed);
    if real.is_empty() {
        return model;
    }
    // Which stretch of a row is the attack, the first model says.
    for row in real {
        let best = row.reading.windows.iter();
        let best = best.max_by(|a, b| model.score(a).total_cmp(&model.score(b)));
        examples.extend(best.map(|window| example(window, true, REAL)));
    }
    train(&examples, BUCKETS, seed)
}

fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn rate(rows: &[(&Row, f32)], threshold: f32) -> String {
    let flagged = rows.iter().filter(|(_, score)| *score >= threshold).count();
    if rows.is_empty() {
        return "-".to_owned();
    }
    format!("{:.1} % ({flagged}/{})", 100.0 * flagged as f32 / rows.len() as f32, rows.len())
}

fn table(title: &str, rows: &[(&Row, f32)], threshold: f32, key: impl Fn(&Row) -> String) {
    let mut groups: BTreeMap<String, Vec<(&Row, f32)>> = BTreeMap::new();
    for (row, score) in rows {
        groups.entry(key(row)).or_default().push((row, *score));
    }
    println!("\n{title}\n");
    let mut mean = 0.0;
    for (name, rows) in &groups {
        println!("  {name:<40} {}", rate(rows, threshold));
        let flagged = rows.iter().filter(|(_, score)| *score >= threshold).count();
        mean += 100.0 * flagged as f32 / rows.len() as f32;
    }
    println!("  {:<40} {:.1} %", "mean of these", mean / groups.len() as f32);
}

struct Data {
    benign: Vec<Row>,
    poisoned: Vec<Row>,
    obfuscated: Vec<Row>,
    alike: Vec<Row>,
}

impl Data {
    fn read(folder: &Path) -> Self {
        Self {
            benign: rows(folder, "benign_tools.jsonl"),
            poisoned: rows(folder, "poisoned_tools.jsonl"),
            obfuscated: rows(folder, "obfuscated_tools.jsonl"),
            alike: rows(folder, "lookalike_benign.jsonl"),
        }
    }
}

/// Figures of models that have not seen the servers they are measured on, nor, with `strict`, any row
/// that carries an attack.
fn measure(data: &Data, strict: bool) {
    let fold = |row: &Row| hash(&row.server) % FOLDS;
    let real: Vec<&Row> = data.poisoned.iter().filter(|row| row.permissive && !strict).collect();
    let models: Vec<Model> = (0..FOLDS)
        .map(|n| {
            let rows = data.benign.iter().filter(|row| row.permissive && fold(row) != n);
            learn(&rows.collect::<Vec<_>>(), &real, 100 + n)
        })
        .collect();
    let benign: Vec<(&Row, f32)> = data
        .benign
        .iter()
        .map(|row| (row, row.reading.score(&models[fold(row) as usize]).value))
        .collect();
    let mean = |row: &Row| {
        models.iter().map(|model| row.reading.score(model).value).sum::<f32>() / FOLDS as f32
    };
    let scored = |rows: &'_ [Row]| -> Vec<f32> { rows.iter().map(mean).collect() };
    let (poisoned, obfuscated, alike) =
        (scored(&data.poisoned), scored(&data.obfuscated), scored(&data.alike));
    let poisoned: Vec<_> = data.poisoned.iter().zip(poisoned).collect();
    let obfuscated: Vec<_> = data.obfuscated.iter().zip(obfuscated).collect();
    let alike: Vec<_> = data.alike.iter().zip(alike).collect();
    let mut sorted: Vec<f32> = benign.iter().map(|(_, score)| *score).collect();
    sorted.sort_by(|a, b| b.total_cmp(a));
    println!("{}", if strict { "no row with an attack was learned from" } else { "as shipped" });
    let closed = |row: &Row| {
        let base = row.base.as_ref();
        let known = |id: &String| data.poisoned.iter().find(|row| row.id == *id);
        base.and_then(known).is_none_or(|base| !base.permissive)
    };
    for share in [0.001_f32, 0.002, 0.003, 0.005, 0.007, 0.008, 0.010] {
        let threshold = sorted[(share * sorted.len() as f32) as usize];
        let some = |rows: &[(&Row, f32)], is: &dyn Fn(&Row) -> bool| {
            let rows: Vec<_> = rows.iter().filter(|(row, _)| is(row)).copied().collect();
            rate(&rows, threshold)
        };
        println!(
            "  {:.1} % of ordinary at {threshold:.2}: poisoned {}, never learned from {}, \
             explicit {}, implicit {}, obfuscated {}, of sources never learned from {}, alike {}",
            share * 100.0,
            some(&poisoned, &|_| true),
            some(&poisoned, &|row| !row.permissive),
            some(&poisoned, &|row| row.explicit),
            some(&poisoned, &|row| !row.explicit),
            some(&obfuscated, &|_| true),
            some(&obfuscated, &closed),
            some(&alike, &|_| true),
        );
    }
    let threshold = detection::detect::THRESHOLD;
    println!("\nat the threshold that is used, {threshold}: ordinary {}", rate(&benign, threshold));
    println!(
        "poisoned {}, obfuscated {}",
        rate(&poisoned, threshold),
        rate(&obfuscated, threshold)
    );
    table("poisoned, by source", &poisoned, threshold, |row| row.source.clone());
    table("poisoned, by class of attack", &poisoned, threshold, |row| row.class.clone());
    table("obfuscated, by transform", &obfuscated, threshold, |row| row.transform.clone());
    table("ordinary, by source", &benign, threshold, |row| row.source.clone());
}

/// How many definitions each detector finds something in, with the model that is compiled in.
fn shipped(data: &Data) {
    println!("with the model that is compiled in, which has learned from some of these:");
    for (name, rows) in [
        ("ordinary", &data.benign),
        ("poisoned", &data.poisoned),
        ("obfuscated", &data.obfuscated),
        ("alike", &data.alike),
    ] {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut withheld = 0;
        for row in rows {
            let text = row.tool.to_string();
            let document = Document::parse(text.into(), &JsonBounds::ANSWER).unwrap();
            let found = detection::inspect::text(
                document.root(),
                &policy_core::base::work::WorkBudget::unlimited(),
            );
            let mut detectors: Vec<_> = found.iter().map(|finding| finding.detector).collect();
            detectors.sort_unstable();
            detectors.dedup();
            use detection::inspect::Detector::{
                DisguisedText, HiddenCharacters, PlantedInstructions,
            };
            let acts = [DisguisedText, HiddenCharacters, PlantedInstructions];
            withheld += usize::from(detectors.iter().any(|found| acts.contains(found)));
            for detector in detectors {
                *counts.entry(detector.name()).or_default() += 1;
            }
        }
        println!("  {name:<11} {} definitions, {withheld} withheld: {counts:?}", rows.len());
    }
}

/// How long ordinary definitions take to read.
fn speed(folder: &Path) {
    let text = fs::read_to_string(folder.join("benign_tools.jsonl")).unwrap();
    let tools: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["tool"].to_string())
        .collect();
    read(&tools[0]);
    let bytes: usize = tools.iter().map(String::len).sum();
    let started = std::time::Instant::now();
    tools.iter().for_each(|tool| drop(read(tool)));
    let took = started.elapsed();
    println!("{} definitions, {bytes} bytes: {took:?}", tools.len());
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [verb, folder] = arguments.as_slice() else {
        return eprintln!(
            "detect measure|strict|shipped|content|results|train|train-results FOLDER"
        );
    };
    if verb == "speed" {
        return speed(Path::new(folder));
    }
    if verb == "results" {
        return results::measure(Path::new(folder));
    }
    if verb == "train-results" {
        return std::io::stdout().write_all(&results::learned(Path::new(folder))).unwrap();
    }
    if verb == "content" {
        return content::measure(Path::new(folder));
    }
    let data = Data::read(Path::new(folder));
    match verb.as_str() {
        "measure" => measure(&data, false),
        "strict" => measure(&data, true),
        "shipped" => shipped(&data),
        "train" => {
            let rows: Vec<&Row> = data.benign.iter().filter(|row| row.permissive).collect();
            let real: Vec<&Row> = data.poisoned.iter().filter(|row| row.permissive).collect();
            let model = learn(&rows, &real, 1);
            std::io::stdout().write_all(&model.write()).unwrap();
        }
        _ => eprintln!("detect measure|strict|shipped|content|results|train|train-results FOLDER"),
    }
}
