//! Runs a sentence encoder of the BERT family (all-MiniLM-L6-v2) on short texts: the teacher of the seed. Written for this
//! one model and for clarity; it takes minutes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;

use serde_json::Value;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

/// Numbers of the direction of a text.
pub(crate) const WIDTH: usize = 384;
const HEADS: usize = 12;
const HEAD_WIDTH: usize = WIDTH / HEADS;
const LAYERS: usize = 6;
/// Most tokens of a text.
const MAX_TOKENS: usize = 64;
/// Texts that go through a layer together.
const TOGETHER: usize = 32;
/// Outputs that are computed together.
const PANEL: usize = 8;

/// A matrix and what is added to its product, in panels of eight outputs.
struct Linear {
    panels: Vec<Vec<[f32; PANEL]>>,
    bias: Vec<f32>,
}

struct Norm {
    scale: Vec<f32>,
    shift: Vec<f32>,
}

struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attended_norm: Norm,
    wide: Linear,
    narrow: Linear,
    norm: Norm,
}

pub(crate) struct Teacher {
    vocabulary: BTreeMap<String, usize>,
    words: Vec<f32>,
    positions: Vec<f32>,
    kind: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

/// The tensors of a file in the format of safetensors.
struct Tensors {
    header: Value,
    bytes: Vec<u8>,
    begin: usize,
}

impl Tensors {
    fn read(file: &Path) -> Self {
        let bytes = fs::read(file).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        Self { header, bytes, begin: 8 + length }
    }

    fn get(&self, name: &str) -> Vec<f32> {
        let entry = &self.header[name];
        assert_eq!(entry["dtype"], "F32", "{name}");
        let at =
            |place: usize| self.begin + entry["data_offsets"][place].as_u64().unwrap() as usize;
        let numbers = self.bytes[at(0)..at(1)].chunks_exact(4);
        numbers.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    }

    fn linear(&self, name: &str) -> Linear {
        let (weights, bias) =
            (self.get(&format!("{name}.weight")), self.get(&format!("{name}.bias")));
        let inputs = weights.len() / bias.len();
        let panel = |panel: usize| {
            let of = |input: usize| {
                std::array::from_fn(|output| weights[(panel * PANEL + output) * inputs + input])
            };
            (0..inputs).map(of).collect()
        };
        Linear { panels: (0..bias.len() / PANEL).map(panel).collect(), bias }
    }

    fn norm(&self, name: &str) -> Norm {
        let (scale, shift) = (format!("{name}.weight"), format!("{name}.bias"));
        Norm { scale: self.get(&scale), shift: self.get(&shift) }
    }
}

impl Linear {
    /// The product with each row of `inputs`. Each sum runs over the inputs in their order, whatever the processor.
    fn of(&self, inputs: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let mut outputs = vec![vec![0.0; self.bias.len()]; inputs.len()];
        for (at, panel) in self.panels.iter().enumerate() {
            for (rows, outputs) in inputs.chunks(4).zip(outputs.chunks_mut(4)) {
                let mut sums = [[0.0_f32; PANEL]; 4];
                for (input, weights) in panel.iter().enumerate() {
                    for (sums, row) in sums.iter_mut().zip(rows) {
                        let number = row[input];
                        sums.iter_mut().zip(weights).for_each(|(sum, w)| *sum += number * w);
                    }
                }
                for (sums, output) in sums.iter().zip(outputs) {
                    let begin = at * PANEL;
                    let bias = &self.bias[begin..begin + PANEL];
                    let output = output[begin..begin + PANEL].iter_mut();
                    output.zip(sums).zip(bias).for_each(|((out, sum), bias)| *out = sum + bias);
                }
            }
        }
        outputs
    }
}

impl Norm {
    fn apply(&self, row: &mut [f32]) {
        let count = row.len() as f32;
        let mean = row.iter().sum::<f32>() / count;
        let spread = row.iter().map(|number| (number - mean).powi(2)).sum::<f32>() / count;
        let factor = 1.0 / (spread + 1e-12).sqrt();
        for ((number, scale), shift) in row.iter_mut().zip(&self.scale).zip(&self.shift) {
            *number = (*number - mean) * factor * scale + shift;
        }
    }
}

fn add_and_norm(rows: &mut [Vec<f32>], added: &[Vec<f32>], norm: &Norm) {
    for (row, added) in rows.iter_mut().zip(added) {
        row.iter_mut().zip(added).for_each(|(number, added)| *number += added);
        norm.apply(row);
    }
}

/// The Gaussian error linear unit; the error function as Abramowitz and Stegun 7.1.26 approximate it.
fn gelu(x: f32) -> f32 {
    let z = x.abs() / std::f32::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let factors = [1.061_405_4, -1.453_152_1, 1.421_413_8, -0.284_496_72, 0.254_829_6];
    let polynomial = factors.iter().fold(0.0, |sum, factor| sum * t + factor) * t;
    let erf = (1.0 - polynomial * (-z * z).exp()).copysign(x);
    0.5 * x * (1.0 + erf)
}

impl Layer {
    fn read(tensors: &Tensors, number: usize) -> Self {
        let name = |rest: &str| format!("encoder.layer.{number}.{rest}");
        Self {
            query: tensors.linear(&name("attention.self.query")),
            key: tensors.linear(&name("attention.self.key")),
            value: tensors.linear(&name("attention.self.value")),
            attended: tensors.linear(&name("attention.output.dense")),
            attended_norm: tensors.norm(&name("attention.output.LayerNorm")),
            wide: tensors.linear(&name("intermediate.dense")),
            narrow: tensors.linear(&name("output.dense")),
            norm: tensors.norm(&name("output.LayerNorm")),
        }
    }

    /// `lengths` are those of the texts whose tokens are the rows.
    fn apply(&self, rows: &mut [Vec<f32>], lengths: &[usize]) {
        let (queries, keys, values) = (self.query.of(rows), self.key.of(rows), self.value.of(rows));
        let mut mixed = vec![vec![0.0; WIDTH]; rows.len()];
        let mut begin = 0;
        for length in lengths {
            let text = begin..begin + length;
            for head in (0..HEADS).map(|head| head * HEAD_WIDTH..(head + 1) * HEAD_WIDTH) {
                for at in text.clone() {
                    let asked = &queries[at][head.clone()];
                    let product = |key: &Vec<f32>| {
                        let pairs = asked.iter().zip(&key[head.clone()]);
                        pairs.map(|(one, other)| one * other).sum::<f32>()
                            / (HEAD_WIDTH as f32).sqrt()
                    };
                    let logits: Vec<f32> = keys[text.clone()].iter().map(product).collect();
                    let most = logits.iter().copied().fold(f32::MIN, f32::max);
                    let powers: Vec<f32> = logits.iter().map(|l| (l - most).exp()).collect();
                    let sum: f32 = powers.iter().sum();
                    for (power, value) in powers.iter().zip(&values[text.clone()]) {
                        let out = mixed[at][head.clone()].iter_mut();
                        out.zip(&value[head.clone()]).for_each(|(o, v)| *o += power / sum * v);
                    }
                }
            }
            begin += length;
        }
        add_and_norm(rows, &self.attended.of(&mixed), &self.attended_norm);
        let mut wide = self.wide.of(rows);
        wide.iter_mut().flatten().for_each(|number| *number = gelu(*number));
        add_and_norm(rows, &self.narrow.of(&wide), &self.norm);
    }
}

impl Teacher {
    /// Reads `model.safetensors` and `tokenizer.json` of a folder.
    pub(crate) fn read(folder: &Path) -> Self {
        let tensors = Tensors::read(&folder.join("model.safetensors"));
        let tokenizer = fs::read_to_string(folder.join("tokenizer.json")).unwrap();
        let tokenizer: Value = serde_json::from_str(&tokenizer).unwrap();
        let entries = tokenizer["model"]["vocab"].as_object().unwrap().iter();
        Self {
            vocabulary: entries
                .map(|(word, at)| (word.clone(), at.as_u64().unwrap() as usize))
                .collect(),
            words: tensors.get("embeddings.word_embeddings.weight"),
            positions: tensors.get("embeddings.position_embeddings.weight"),
            kind: tensors.get("embeddings.token_type_embeddings.weight"),
            norm: tensors.norm("embeddings.LayerNorm"),
            layers: (0..LAYERS).map(|number| Layer::read(&tensors, number)).collect(),
        }
    }

    /// The tokens of a text, by the longest known beginnings of its words.
    fn tokens(&self, text: &str) -> Vec<usize> {
        let special = |name: &str| self.vocabulary[name];
        let mut tokens = vec![special("[CLS]")];
        let plain: String = text.nfd().filter(|c| !is_combining_mark(*c)).collect();
        let mut spaced = String::new();
        for c in plain.to_lowercase().chars() {
            if c.is_alphanumeric() {
                spaced.push(c);
            } else {
                spaced.extend([' ', c, ' ']);
            }
        }
        for word in spaced.split_whitespace() {
            let chars: Vec<char> = word.chars().collect();
            let (mut begin, mut pieces) = (0, Vec::new());
            while begin < chars.len() {
                let lead = if begin == 0 { "" } else { "##" };
                let piece = (begin + 1..=chars.len()).rev().find_map(|end| {
                    let piece = format!("{lead}{}", chars[begin..end].iter().collect::<String>());
                    self.vocabulary.get(&piece).map(|token| (*token, end))
                });
                let Some((token, end)) = piece else { break };
                pieces.push(token);
                begin = end;
            }
            if begin < chars.len() {
                pieces = vec![special("[UNK]")];
            }
            tokens.extend(pieces);
        }
        tokens.truncate(MAX_TOKENS - 1);
        tokens.push(special("[SEP]"));
        tokens
    }

    /// The directions of a few texts.
    fn together(&self, texts: &[Vec<usize>]) -> Vec<Vec<f32>> {
        let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
        let mut rows = Vec::new();
        for (position, token) in texts.iter().flat_map(|text| text.iter().enumerate()) {
            let of = |table: &[f32], at: usize| table[at * WIDTH..(at + 1) * WIDTH].to_vec();
            let mut row = of(&self.words, *token);
            for added in [of(&self.positions, position), of(&self.kind, 0)] {
                row.iter_mut().zip(added).for_each(|(number, added)| *number += added);
            }
            self.norm.apply(&mut row);
            rows.push(row);
        }
        self.layers.iter().for_each(|layer| layer.apply(&mut rows, &lengths));
        let mut rows = rows.into_iter();
        let mean = |length: &usize| {
            let mut sum = vec![0.0; WIDTH];
            for row in rows.by_ref().take(*length) {
                sum.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
            }
            let size = sum.iter().map(|number| number * number).sum::<f32>().sqrt();
            sum.into_iter().map(|number| number / size).collect()
        };
        lengths.iter().map(mean).collect()
    }

    /// The directions of texts, each of length 1.
    pub(crate) fn directions(&self, texts: &[String]) -> Vec<Vec<f32>> {
        let tokens: Vec<Vec<usize>> = texts.iter().map(|text| self.tokens(text)).collect();
        let half = tokens.len().div_ceil(2).max(1);
        let part = |part: &[Vec<usize>]| -> Vec<Vec<f32>> {
            part.chunks(TOGETHER).flat_map(|texts| self.together(texts)).collect()
        };
        thread::scope(|scope| {
            let threads: Vec<_> =
                tokens.chunks(half).map(|texts| scope.spawn(move || part(texts))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        })
    }
}
