//! Makes `data/model.bin` from `data/seed.bin`, the written requests, the thesaurus, and the definitions of a folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use selector::bag::tool_words;
use selector::model::{
    DIMENSIONS, MAX_NEIGHBOURS, Model, ModelParts, PARTS, TrainedWord, identity,
};
use selector::tool::{FIELDS, ToolText};

use crate::data::{Catalogue, Dice, Request, thesaurus};
use crate::learn::{Bag, Pace, Pair, Row, Table, neighbours};

const EPOCHS: usize = 10;
/// Pairs of a batch: each has all others of the batch as counterexamples.
const BATCH: usize = 256;
const LARGE_BATCH: usize = 512;
/// Texts of an epoch that are held where the seed has them.
const HELD: usize = 8000;
const REQUESTS: Pace = Pace { rate: 0.03, temperature: 0.1, dropped: 0.25 };
const NAMES: Pace = Pace { rate: 0.01, temperature: 0.08, dropped: 0.15 };
const MEANINGS: Pace = Pace { rate: 0.01, temperature: 0.08, dropped: 0.0 };
/// Least similarity of a neighbour.
const LEAST_SIMILARITY: f32 = 0.4;
/// The share of servers whose requests are left out to choose weights on: one in so many.
pub(crate) const FOLDS: u32 = 4;

/// Whether the requests of a server are left out when weights are chosen.
pub(crate) fn is_left_out(server: &str) -> bool {
    identity(server).is_multiple_of(FOLDS)
}

/// The words of the table: a stem and the form of it that is met most often in a line.
pub(crate) fn vocabulary(data: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(data.join("words.txt")).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(stem, form)| (stem.to_owned(), form.to_owned())).collect()
}

/// The seed: rows of a table, as signed bytes with the number that 127 stands for before them.
pub(crate) fn write_seed(table: &Table) -> Vec<u8> {
    let mut file = Vec::new();
    for row in &table.rows {
        let most = row.iter().fold(f32::MIN_POSITIVE, |most, number| most.max(number.abs()));
        file.extend(most.to_le_bytes());
        file.extend(row.iter().map(|number| (number / most * 127.0).round() as i8 as u8));
    }
    file
}

fn read_seed(data: &Path) -> Table {
    let identities = vocabulary(data).iter().map(|(stem, _)| identity(stem)).collect();
    let mut table = Table::new(identities, &mut Dice::new(1));
    let file = fs::read(data.join("seed.bin")).unwrap();
    assert_eq!(file.len(), table.rows.len() * (DIMENSIONS + 4), "the seed is of other words");
    for (row, bytes) in table.rows.iter_mut().zip(file.chunks_exact(DIMENSIONS + 4)) {
        let most = f32::from_le_bytes(bytes[..4].try_into().unwrap());
        for (number, byte) in row.iter_mut().zip(&bytes[4..]) {
            *number = f32::from(*byte as i8) / 127.0 * most;
        }
    }
    table
}

pub(crate) fn tool_bag(table: &Table, tool: &ToolText) -> Bag {
    table.bag(tool_words(tool).iter().map(|(word, weight)| (word.as_str(), *weight)))
}

/// What is learned from.
struct Lessons {
    requests: Vec<Pair>,
    names: Vec<Pair>,
    meanings: Vec<Pair>,
}

fn lessons(table: &Table, all: &Catalogue, pairs: &[Request], data: &Path) -> Lessons {
    let tool = |at: usize| &all.tools[at].text;
    let request = |pair: &Request| Pair {
        one: table.text(&pair.text),
        other: tool_bag(table, tool(pair.expected[0])),
        meaning: pair.expected[0],
    };
    let name = |at: usize| Pair {
        one: table.text(&tool(at).name),
        other: table.text(&tool(at).description.chars().take(400).collect::<String>()),
        meaning: at,
    };
    let lines = thesaurus(&data.join("thesaurus.txt"));
    let mut meanings: BTreeMap<&str, usize> = BTreeMap::new();
    let meaning = |(one, other): &'_ (String, String), of: usize| Pair {
        one: table.text(one),
        other: table.text(other),
        meaning: of,
    };
    let numbered: Vec<usize> = lines
        .iter()
        .map(|(_, other)| {
            let next = meanings.len();
            *meanings.entry(other.as_str()).or_insert(next)
        })
        .collect();
    let is_whole = |pair: &Pair| !pair.one.is_empty() && !pair.other.is_empty();
    let lines = lines.iter().zip(numbered).map(|(line, of)| meaning(line, of));
    Lessons {
        requests: pairs.iter().map(request).filter(is_whole).collect(),
        names: all.background(pairs).into_iter().map(name).filter(is_whole).collect(),
        meanings: lines.filter(is_whole).collect(),
    }
}

fn epoch(table: &mut Table, pairs: &[Pair], batch: usize, pace: Pace, dice: &mut Dice) -> f32 {
    let mut order: Vec<&Pair> = pairs.iter().collect();
    dice.shuffle(&mut order);
    let (mut loss, mut batches) = (0.0, 0.0);
    for batch in order.chunks(batch).filter(|batch| batch.len() > 1) {
        loss += table.contrast(batch, pace, dice);
        batches += 1.0;
    }
    loss / batches
}

/// Holds words, and pairs of words, where the seed has them: the lessons do not name all words.
fn hold(table: &mut Table, seed: &Table, dice: &mut Dice) {
    let count = table.rows.len();
    let bag = |dice: &mut Dice, at: usize| -> Bag {
        let words = 1 + at % 2;
        (0..words).map(|_| (dice.below(count), 1.0)).collect()
    };
    let bags: Vec<Bag> = (0..HELD).map(|at| bag(dice, at)).collect();
    for batch in bags.chunks(BATCH) {
        let batch: Vec<(&Bag, Row)> = batch.iter().map(|bag| (bag, seed.direction(bag))).collect();
        table.distil(&batch, REQUESTS.rate);
    }
}

/// How rare words are in definitions, and how long the fields of definitions are.
struct Background {
    found: BTreeMap<u32, f32>,
    tools: f32,
    lengths: [f32; FIELDS],
}

impl Background {
    fn of(tools: &[&ToolText]) -> Self {
        let (mut found, mut lengths) = (BTreeMap::new(), [0.0; FIELDS]);
        for tool in tools {
            let fields = tool.field_words();
            let distinct: BTreeSet<u32> =
                fields.iter().flatten().map(|word| identity(word)).collect();
            distinct.into_iter().for_each(|word| *found.entry(word).or_default() += 1.0);
            for (length, words) in lengths.iter_mut().zip(&fields) {
                *length += words.len() as f32 / tools.len() as f32;
            }
        }
        Self { found, tools: tools.len() as f32, lengths: lengths.map(|length: f32| length + 0.1) }
    }

    fn rarity(&self, word: u32) -> f32 {
        let found = self.found.get(&word).copied().unwrap_or_default();
        (1.0 + (self.tools - found + 0.5) / (found + 0.5)).ln()
    }
}

/// Trains a model, on all pairs or without those that are left out.
pub(crate) fn train(all: &Catalogue, pairs: &[Request], data: &Path) -> Vec<u8> {
    let seed = read_seed(data);
    let mut table = seed.clone();
    let lessons = lessons(&table, all, pairs, data);
    let mut dice = Dice::new(7);
    for number in 1..=EPOCHS {
        let requests = epoch(&mut table, &lessons.requests, BATCH, REQUESTS, &mut dice);
        let names = epoch(&mut table, &lessons.names, LARGE_BATCH, NAMES, &mut dice);
        let meanings = epoch(&mut table, &lessons.meanings, LARGE_BATCH, MEANINGS, &mut dice);
        hold(&mut table, &seed, &mut dice);
        eprintln!(
            "epoch {number}: requests {requests:.3}, names {names:.3}, meanings {meanings:.3}"
        );
    }
    let tools: Vec<&ToolText> =
        all.background(pairs).into_iter().map(|at| &all.tools[at].text).collect();
    let background = Background::of(&tools);
    let similar = neighbours(&table, MAX_NEIGHBOURS, LEAST_SIMILARITY);
    let word = |((identity, row), neighbours): ((&u32, &Row), Vec<(u32, f32)>)| TrainedWord {
        identity: *identity,
        rarity: background.rarity(*identity),
        row: row.to_vec(),
        neighbours,
    };
    let trained = table.words().iter().zip(&table.rows).zip(similar).map(word).collect();
    let parts = &table.rows[table.rows.len() - PARTS..];
    Model::write(&ModelParts {
        words: trained,
        unknown: background.rarity(0),
        lengths: background.lengths,
        parts: parts.iter().map(|row| row.to_vec()).collect(),
    })
}
