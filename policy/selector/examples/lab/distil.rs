//! Makes `data/seed.bin`: rows of words whose sum points where a teacher says that the text points.

use std::collections::BTreeMap;
use std::path::Path;

use selector::bag::query_words;
use selector::model::{DIMENSIONS, identity};
use selector::tool::ToolText;

use crate::data::{Catalogue, Dice, Request};
use crate::learn::{Bag, Row, Table, unit};
use crate::teacher::{Teacher, WIDTH};
use crate::train::{tool_bag, vocabulary, write_seed};

const EPOCHS: usize = 4;
const BATCH: usize = 256;
const RATE: f32 = 0.02;
/// Rounds in which the main directions of the teacher are found.
const ROUNDS: usize = 40;
/// Texts of each kind that the main directions are found from.
const SAMPLE: usize = 4000;
const PHRASES: usize = 14_000;
/// How people begin a request.
const BEGINNINGS: &[&str] = &[
    "",
    "",
    "",
    "can you",
    "could you please",
    "please",
    "i want to",
    "i need to",
    "help me",
    "i would like to",
    "how do i",
    "is there a way to",
    "let me",
    "we need to",
    "what is the",
    "show me the",
    "give me the",
    "tell me about",
    "i am looking for",
    "do you have",
    "find me",
    "where can i see",
    "who",
    "when does",
];

/// Texts of one kind, with their words and with where the teacher points. The mean of the kind is subtracted: what all
/// texts of a kind have in common says nothing.
struct Kind {
    bags: Vec<Bag>,
    directions: Vec<Vec<f32>>,
}

impl Kind {
    fn new(teacher: &Teacher, texts: &[String], bags: Vec<Bag>) -> Self {
        let mut directions = teacher.directions(texts);
        let mut mean = vec![0.0; WIDTH];
        for direction in &directions {
            mean.iter_mut().zip(direction).for_each(|(sum, number)| *sum += number);
        }
        let count = directions.len() as f32;
        for direction in &mut directions {
            direction.iter_mut().zip(&mean).for_each(|(number, sum)| *number -= sum / count);
        }
        Self { bags, directions }
    }
}

/// A name as words.
fn spoken(name: &str) -> String {
    let mut spoken = String::new();
    let mut before = ' ';
    for c in name.chars() {
        if c.is_uppercase() && before.is_lowercase() {
            spoken.push(' ');
        }
        spoken.push(if c.is_alphanumeric() { c } else { ' ' });
        before = c;
    }
    spoken.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The most frequent items, the most frequent first.
fn frequent<'a>(items: impl Iterator<Item = &'a str>, most: usize) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    items.for_each(|item| *counts.entry(item).or_default() += 1);
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
    counts.into_iter().take(most).map(|(item, _)| item.to_owned()).collect()
}

/// Texts as a person might ask: a beginning, and a name, a verb with an object, or a word of the table.
fn phrases(tools: &[&ToolText], words: &[(String, String)]) -> Vec<String> {
    let mut dice = Dice::new(3);
    let names: Vec<String> = tools.iter().map(|tool| spoken(&tool.name)).collect();
    let verbs = frequent(names.iter().filter_map(|name| name.split(' ').next()), 150);
    let described: Vec<String> = tools.iter().map(|tool| spoken(&tool.description)).collect();
    let objects = frequent(described.iter().flat_map(|text| text.split(' ').take(40)), 4000);
    let objects = &objects[60..];
    let mut found = Vec::new();
    let mut ask = |dice: &mut Dice, rest: &[&str]| {
        let beginning = BEGINNINGS[dice.below(BEGINNINGS.len())];
        let parts = [beginning].into_iter().chain(rest.iter().copied());
        found.push(parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "));
    };
    names.iter().for_each(|name| ask(&mut dice, &[name]));
    for _ in 0..PHRASES {
        let (verb, object) = (dice.below(verbs.len()), dice.below(objects.len()));
        let other = if dice.below(2) == 0 { "" } else { &objects[dice.below(objects.len())] };
        ask(&mut dice, &[&verbs[verb], &objects[object], other]);
        let (word, form) = (dice.below(words.len()), dice.below(words.len()));
        let other = if dice.below(2) == 0 { &words[form].1 } else { &objects[object] };
        ask(&mut dice, &[&words[word].1, other]);
    }
    found
}

/// The main directions of a sample, by orthogonal iteration.
fn main_directions(sample: &[&Vec<f32>]) -> Vec<Vec<f32>> {
    let mut covariance = vec![vec![0.0_f32; WIDTH]; WIDTH];
    for direction in sample {
        for (row, one) in covariance.iter_mut().zip(direction.iter()) {
            row.iter_mut().zip(direction.iter()).for_each(|(sum, other)| *sum += one * other);
        }
    }
    let mut dice = Dice::new(9);
    let mut basis: Vec<Vec<f32>> =
        (0..DIMENSIONS).map(|_| (0..WIDTH).map(|_| dice.unit() - 0.5).collect()).collect();
    let dot = |one: &[f32], other: &[f32]| one.iter().zip(other).map(|(a, b)| a * b).sum::<f32>();
    for _ in 0..ROUNDS {
        for at in 0..DIMENSIONS {
            let mut turned: Vec<f32> = covariance.iter().map(|row| dot(row, &basis[at])).collect();
            for before in &basis[..at] {
                let share = dot(&turned, before);
                turned.iter_mut().zip(before).for_each(|(number, b)| *number -= share * b);
            }
            let length = dot(&turned, &turned).sqrt() + 1e-12;
            basis[at] = turned.into_iter().map(|number| number / length).collect();
        }
    }
    basis
}

fn projected(basis: &[Vec<f32>], direction: &[f32]) -> Row {
    let mut row = [0.0; DIMENSIONS];
    for (number, axis) in row.iter_mut().zip(basis) {
        *number = axis.iter().zip(direction).map(|(one, other)| one * other).sum();
    }
    unit(&row).0
}

/// The seed, from the teacher in a folder.
pub(crate) fn distil(all: &Catalogue, pairs: &[Request], data: &Path, teacher: &Path) -> Vec<u8> {
    let words = vocabulary(data);
    let teacher = Teacher::read(teacher);
    let mut dice = Dice::new(1);
    let mut table = Table::new(words.iter().map(|(stem, _)| identity(stem)).collect(), &mut dice);
    let tools: Vec<&ToolText> =
        all.background(pairs).into_iter().map(|at| &all.tools[at].text).collect();
    let phrases = phrases(&tools, &words);
    let stem = |(stem, _): &(String, String)| table.bag([(stem.as_str(), 1.0)]);
    let bags = [
        words.iter().map(stem).collect::<Vec<_>>(),
        tools.iter().map(|tool| tool_bag(&table, tool)).collect(),
        phrases
            .iter()
            .map(|text| table.bag(query_words(text).iter().map(|word| (word.as_str(), 1.0))))
            .collect(),
    ];
    let described = |tool: &&ToolText| format!("{}. {}", spoken(&tool.name), tool.description);
    let texts = [
        words.iter().map(|(_, form)| form.clone()).collect::<Vec<_>>(),
        tools.iter().map(described).collect(),
        phrases,
    ];
    let kinds: Vec<Kind> = texts
        .iter()
        .zip(bags)
        .map(|(texts, bags)| {
            eprintln!("the teacher reads {} texts", texts.len());
            Kind::new(&teacher, texts, bags)
        })
        .collect();
    let sample: Vec<_> =
        kinds.iter().flat_map(|kind| kind.directions.iter().take(SAMPLE)).collect();
    let basis = main_directions(&sample);
    let mut lessons: Vec<(&Bag, Row)> = Vec::new();
    for (kind, times) in kinds.iter().zip([1, 2, 1]) {
        for (bag, direction) in kind.bags.iter().zip(&kind.directions) {
            let lesson = (bag, projected(&basis, direction));
            lessons.extend((!bag.is_empty()).then_some(lesson).into_iter().cycle().take(times));
        }
    }
    for (bag, direction) in lessons.iter().take(words.len()) {
        if let [(row, _)] = bag.as_slice() {
            table.rows[*row] = direction.map(|number| number * 0.8);
        }
    }
    table.restart(1e-8);
    for number in 1..=EPOCHS {
        dice.shuffle(&mut lessons);
        let losses = lessons.chunks(BATCH).map(|batch| table.distil(batch, RATE));
        let (sum, count) = losses.fold((0.0, 0.0), |(sum, count), loss| (sum + loss, count + 1.0));
        eprintln!("epoch {number}: {:.3} from the teacher", sum / count);
    }
    write_seed(&table)
}
