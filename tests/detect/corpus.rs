//! Texts that were written for training, each by itself (`corpus/README.md`), and documents of the libraries that this
//! project is built with, which are ordinary.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{env, fs};

use detection::content::stretch::stretches;
use detection::detect::{TextAnalysis, Window, words};
use serde_json::Value;

use super::generator::Dice;
use super::{Example, example, hash, read};

/// What a window counts that is an attack.
const ATTACK: f32 = 2.0;
/// What a window counts that stands in an attack's definition beside the attack.
const BESIDE: f32 = 0.5;
/// Licences of which the documents of a library are learned from.
const LICENCES: [&str; 5] = ["MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC"];
/// Lengths of the parts that are read of a document, in bytes.
const LENGTHS: [usize; 5] = [200, 400, 800, 1500, 2500];
/// Source files of a library of which parts are read.
const SOURCES: usize = 4;
/// Fewest bytes of a part.
const SHORTEST: usize = 120;

/// A text that was written for training.
struct WrittenText {
    attack: bool,
    /// The definition, or the text of a result.
    pub(crate) value: Value,
    /// The words of it that are the attack.
    marked: String,
}

impl WrittenText {
    /// The texts in a file of the corpus.
    fn all(name: &str) -> Vec<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("detect/corpus").join(name);
        let text = fs::read_to_string(path).unwrap();
        let row = |line: &str| {
            let mut row: Value = serde_json::from_str(line).unwrap();
            let marked = row["x"].as_str().unwrap_or_default().to_owned();
            Self { attack: row["a"] == 1, value: row["t"].take(), marked }
        };
        text.lines().map(row).collect()
    }
}

/// The windows of definitions: those with the attack, those beside it, and all of ordinary ones.
pub(crate) fn windows() -> Vec<Example> {
    let mut examples = Vec::new();
    for row in WrittenText::all("definitions.jsonl") {
        let reading = read(&row.value.to_string());
        if !row.attack {
            examples.extend(reading.windows.iter().map(|window| example(window, false, 1.0)));
            continue;
        }
        let Some(attack) = place(&row, &reading) else { continue };
        for window in &reading.windows {
            match kind(window, &attack) {
                Some(true) => examples.push(example(window, true, ATTACK)),
                Some(false) => examples.push(example(window, false, BESIDE)),
                None => {}
            }
        }
    }
    examples
}

/// The words of a reading that are the attack; `None` if they are read otherwise there, as the words of a name are.
fn place(row: &WrittenText, reading: &TextAnalysis) -> Option<Range<usize>> {
    let name = row.value["name"].as_str().unwrap_or_default();
    let sought = words(&row.marked, name);
    let alike = |at: usize| {
        let here = reading.tokens.get(at..).unwrap_or_default();
        here.iter().zip(&sought).filter(|(one, other)| one == other).count()
    };
    let last = reading.tokens.len().saturating_sub(sought.len());
    let best = (0..=last).max_by_key(|at| (alike(*at), usize::MAX - at))?;
    let enough = !sought.is_empty() && alike(best) * 10 >= sought.len() * 6;
    enough.then(|| best..best + sought.len())
}

/// Whether a window is mostly the attack, or has nothing of it; `None` in between.
fn kind(window: &Window, attack: &Range<usize>) -> Option<bool> {
    let (from, to) = window.words;
    let inside = attack.end.min(to).saturating_sub(attack.start.max(from));
    if inside * 10 >= attack.len() * 7 || inside >= 20 || inside * 10 >= (to - from) * 6 {
        return Some(true);
    }
    (inside == 0).then_some(false)
}

/// The pairs of sentences of results and of documents. Those that are orders count `weight`.
pub(crate) fn pairs(weight: f32) -> Vec<Example> {
    let mut examples = Vec::new();
    for row in WrittenText::all("results.jsonl") {
        let text = row.value.as_str().unwrap_or_default();
        let attack = row.attack.then(|| text.find(&row.marked)).flatten();
        let attack = attack.map(|from| from..from + row.marked.len());
        for pair in stretches(text) {
            let is_attack = match &attack {
                None if row.attack => continue,
                None => false,
                Some(attack) => {
                    let from = attack.start.max(pair.at.start);
                    let inside = attack.end.min(pair.at.end).saturating_sub(from);
                    let mostly =
                        inside * 10 >= attack.len() * 6 || inside * 10 >= pair.at.len() * 6;
                    if !mostly && inside > 0 {
                        continue;
                    }
                    mostly
                }
            };
            let weight = if is_attack { weight } else { 1.0 };
            examples.push(Example { features: pair.features, attack: is_attack, weight });
        }
    }
    let ordinary = documents().iter().flat_map(|text| stretches(text)).collect::<Vec<_>>();
    let ordinary = ordinary.into_iter().map(|pair| pair.features);
    examples.extend(ordinary.map(|features| Example { features, attack: false, weight: 1.0 }));
    examples
}

/// Parts of the documents and sources of the libraries in `Cargo.lock`, as far as their licence permits it. They are
/// read where `cargo fetch` puts them, and are not kept here.
fn documents() -> Vec<String> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let sources = home.unwrap().join("registry/src");
    let registries: Vec<PathBuf> = entries(&sources);
    let mut parts = Vec::new();
    for (name, version) in libraries() {
        let folders = registries.iter().map(|registry| registry.join(format!("{name}-{version}")));
        if let Some(folder) = folders.into_iter().find(|folder| folder.is_dir()) {
            parts.extend(parts_of(&name, &folder));
        }
    }
    assert!(
        !parts.is_empty(),
        "run `cargo fetch` first: the documents of libraries are learned from"
    );
    parts.sort();
    parts.dedup();
    parts
}

/// The libraries in `Cargo.lock` with their versions.
fn libraries() -> BTreeMap<String, String> {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
    let lock = fs::read_to_string(lock).unwrap();
    let mut libraries: BTreeMap<String, String> = BTreeMap::new();
    let mut name = String::new();
    for line in lock.lines() {
        let value = |key: &str| line.strip_prefix(key)?.strip_suffix('"').map(str::to_owned);
        if let Some(found) = value("name = \"") {
            name = found;
        } else if let Some(version) = value("version = \"") {
            libraries.entry(name.clone()).or_insert(version);
        }
    }
    libraries
}

/// Parts of the documents and sources of one library; none if its licence does not permit it.
fn parts_of(name: &str, folder: &Path) -> Vec<String> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let licence = manifest.lines().find(|line| line.starts_with("license = ")).unwrap_or_default();
    if !LICENCES.iter().any(|known| licence.contains(known)) {
        return Vec::new();
    }
    let mut dice = Dice::new(hash(name));
    let mut files = vec![
        (folder.join("README.md"), 6),
        (folder.join("CHANGELOG.md"), 3),
        (folder.join("Cargo.toml"), 1),
    ];
    let mut code = entries(&folder.join("src"));
    code.retain(|path| path.extension().is_some_and(|end| end == "rs"));
    if !code.is_empty() {
        files.extend((0..SOURCES).map(|_| (dice.choose(&code).clone(), 3)));
    }
    let mut parts = Vec::new();
    for (file, count) in files {
        let text = fs::read_to_string(file).unwrap_or_default();
        parts.extend(some_of(&text, count, &mut dice));
    }
    parts
}

/// The paths in a folder, in order.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// Some parts of a text, each of whole paragraphs.
fn some_of(text: &str, count: usize, dice: &mut Dice) -> Vec<String> {
    let paragraphs: Vec<&str> = text.split("\n\n").collect();
    let mut parts = Vec::new();
    for _ in 0..count {
        let from = dice.below(paragraphs.len());
        let length = *dice.choose(&LENGTHS);
        let mut part = String::new();
        for paragraph in paragraphs.iter().skip(from) {
            if part.len() >= length {
                break;
            }
            part.push_str(paragraph);
            part.push_str("\n\n");
        }
        let end = part.floor_char_boundary(length * 2);
        part.truncate(end);
        if part.len() >= SHORTEST {
            parts.push(part);
        }
    }
    parts
}
