//! Learns where words point: the direction of a request is brought near that of the tool it is about, and away from the
//! directions of other tools (an embedding bag with an in-batch softmax, AdaGrad with one rate for each row).

use std::collections::BTreeMap;

use selector::bag::{parts, query_words};
use selector::model::{DIMENSIONS, PARTS, identity};

use crate::data::Dice;

/// Where a text or a row points.
pub(crate) type Row = [f32; DIMENSIONS];
/// Rows with what each counts.
pub(crate) type Bag = Vec<(usize, f32)>;

/// The words of the table, sorted by identity, and the rows of words and of parts of words.
#[derive(Clone)]
pub(crate) struct Table {
    identities: Vec<u32>,
    pub(crate) rows: Vec<Row>,
    squares: Vec<f32>,
}

/// Two texts of one meaning, and what the second one is: texts of one kind are not told apart.
pub(crate) struct Pair {
    pub(crate) one: Bag,
    pub(crate) other: Bag,
    pub(crate) meaning: usize,
}

/// How a step learns.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) rate: f32,
    /// How sharp the softmax is: smaller is sharper.
    pub(crate) temperature: f32,
    /// The share of the words that is left out of each text.
    pub(crate) dropped: f32,
}

fn dot(one: &Row, other: &Row) -> f32 {
    // Eight sums, so that the compiler can add them at once: the order is fixed, and so is the result.
    let mut sums = [0.0_f32; 8];
    for (one, other) in one.chunks_exact(8).zip(other.chunks_exact(8)) {
        for ((sum, one), other) in sums.iter_mut().zip(one).zip(other) {
            *sum += one * other;
        }
    }
    sums.iter().sum()
}

fn add(sum: &mut Row, factor: f32, row: &Row) {
    sum.iter_mut().zip(row).for_each(|(sum, number)| *sum += factor * number);
}

/// A row of length 1, and the length that it had.
pub(crate) fn unit(row: &Row) -> (Row, f32) {
    let length = dot(row, row).sqrt() + 1e-6;
    (row.map(|number| number / length), length)
}

impl Table {
    /// A table of words with rows that point nowhere in particular.
    pub(crate) fn new(mut identities: Vec<u32>, dice: &mut Dice) -> Self {
        identities.sort_unstable();
        identities.dedup();
        let count = identities.len() + PARTS;
        let mut row = || [(); DIMENSIONS].map(|()| (dice.unit() - 0.5) * 0.03);
        let rows = (0..count).map(|_| row()).collect();
        Self { identities, rows, squares: vec![1e-6; count] }
    }

    pub(crate) fn words(&self) -> &[u32] {
        &self.identities
    }

    /// Forgets how much was learned, so that a next stage begins with its full rate.
    pub(crate) fn restart(&mut self, square: f32) {
        self.squares.fill(square);
    }

    /// The rows of words with weights.
    pub(crate) fn bag<'a>(&self, words: impl IntoIterator<Item = (&'a str, f32)>) -> Bag {
        let mut bag: BTreeMap<usize, f32> = BTreeMap::new();
        for (word, weight) in words {
            if let Ok(row) = self.identities.binary_search(&identity(word)) {
                *bag.entry(row).or_default() += weight;
                continue;
            }
            let parts = parts(word);
            let each = weight / (parts.len() as f32).sqrt();
            for part in &parts {
                let row = self.identities.len() + identity(part) as usize % PARTS;
                *bag.entry(row).or_default() += each;
            }
        }
        bag.into_iter().collect()
    }

    /// The rows of a text whose words count alike.
    pub(crate) fn text(&self, text: &str) -> Bag {
        self.bag(query_words(text).iter().map(|word| (word.as_str(), 1.0)))
    }

    fn sum(&self, bag: &Bag) -> Row {
        let mut sum = [0.0; DIMENSIONS];
        bag.iter().for_each(|(row, weight)| add(&mut sum, *weight, &self.rows[*row]));
        sum
    }

    pub(crate) fn direction(&self, bag: &Bag) -> Row {
        unit(&self.sum(bag)).0
    }

    /// Takes a step along gradients of the sums of texts.
    fn step(&mut self, gradients: &[(&Bag, Row)], rate: f32) {
        let mut rows: BTreeMap<usize, Row> = BTreeMap::new();
        for (bag, gradient) in gradients {
            for (row, weight) in *bag {
                add(rows.entry(*row).or_insert([0.0; DIMENSIONS]), *weight, gradient);
            }
        }
        for (row, gradient) in rows {
            self.squares[row] += dot(&gradient, &gradient) / DIMENSIONS as f32;
            add(&mut self.rows[row], -rate / self.squares[row].sqrt(), &gradient);
        }
    }

    /// Turns texts towards targets, and returns how far they were: 0 if they pointed there.
    pub(crate) fn distil(&mut self, batch: &[(&Bag, Row)], rate: f32) -> f32 {
        let mut far = 0.0;
        let gradient = |(bag, target): &(&'_ Bag, Row)| {
            let (direction, length) = unit(&self.sum(bag));
            let cosine = dot(&direction, target);
            far += 1.0 - cosine;
            let mut gradient = [0.0; DIMENSIONS];
            add(&mut gradient, -1.0 / length, target);
            add(&mut gradient, cosine / length, &direction);
            gradient
        };
        let rows: Vec<Row> = batch.iter().map(gradient).collect();
        let gradients: Vec<_> = batch.iter().map(|(bag, _)| *bag).zip(rows).collect();
        self.step(&gradients, rate);
        far / batch.len() as f32
    }

    /// Brings the two texts of each pair together and those of different pairs apart, and returns the loss.
    pub(crate) fn contrast(&mut self, batch: &[&Pair], pace: Pace, dice: &mut Dice) -> f32 {
        let mut thin = |bag: &Bag| -> Bag {
            let kept: Bag = bag.iter().filter(|_| dice.unit() >= pace.dropped).copied().collect();
            if kept.is_empty() { bag.clone() } else { kept }
        };
        let ones: Vec<Bag> = batch.iter().map(|pair| thin(&pair.one)).collect();
        let others: Vec<Bag> = batch.iter().map(|pair| thin(&pair.other)).collect();
        let left: Vec<_> = ones.iter().map(|bag| unit(&self.sum(bag))).collect();
        let right: Vec<_> = others.iter().map(|bag| unit(&self.sum(bag))).collect();
        let count = batch.len();
        let alike = |i: usize, j: usize| i != j && batch[i].meaning == batch[j].meaning;
        let logit = |i: usize, j: usize| {
            if alike(i, j) { -1e9 } else { dot(&left[i].0, &right[j].0) / pace.temperature }
        };
        let logits: Vec<Vec<f32>> =
            (0..count).map(|i| (0..count).map(|j| logit(i, j)).collect()).collect();
        let transposed: Vec<Vec<f32>> =
            (0..count).map(|j| (0..count).map(|i| logits[i][j]).collect()).collect();
        let by_row: Vec<_> = logits.iter().map(|row| softmax(row)).collect();
        let by_column: Vec<_> = transposed.iter().map(|row| softmax(row)).collect();
        let loss: f32 = (0..count).map(|i| -(by_row[i][i] + 1e-9).ln()).sum();
        let mut gradients = vec![([0.0; DIMENSIONS], [0.0; DIMENSIONS]); count];
        for i in 0..count {
            for j in 0..count {
                let same = if i == j { 2.0 } else { 0.0 };
                let pull = (by_row[i][j] + by_column[j][i] - same) / 2.0 / pace.temperature;
                if pull.abs() > 1e-6 {
                    add(&mut gradients[i].0, pull, &right[j].0);
                    add(&mut gradients[j].1, pull, &left[i].0);
                }
            }
        }
        let mut steps: Vec<(&Bag, Row)> = Vec::new();
        for (at, (one, other)) in gradients.iter().enumerate() {
            steps.push((&ones[at], across(one, left[at])));
            steps.push((&others[at], across(other, right[at])));
        }
        self.step(&steps, pace.rate);
        loss / count as f32
    }
}

/// The part of a gradient that turns a direction, for the sum of this length.
fn across(gradient: &Row, (direction, length): (Row, f32)) -> Row {
    let mut turned = *gradient;
    add(&mut turned, -dot(gradient, &direction), &direction);
    turned.map(|number| number / length)
}

fn softmax(logits: &[f32]) -> Vec<f32> {
    let most = logits.iter().copied().fold(f32::MIN, f32::max);
    let powers: Vec<f32> = logits.iter().map(|logit| (logit - most).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

/// The most similar words of each word, from the most similar on, as far as they are at least `least` similar.
pub(crate) fn neighbours(table: &Table, most: usize, least: f32) -> Vec<Vec<(u32, f32)>> {
    let words: Vec<Row> =
        table.rows.iter().take(table.identities.len()).map(|row| unit(row).0).collect();
    let similar = |(at, one): (usize, &Row)| {
        let others = (0_u32..).zip(&words).filter(|(other, _)| *other as usize != at);
        let near = others.map(|(other, row)| (other, dot(one, row)));
        let mut near: Vec<_> = near.filter(|(_, cosine)| *cosine >= least).collect();
        near.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        near.truncate(most);
        near
    };
    words.iter().enumerate().map(similar).collect()
}
