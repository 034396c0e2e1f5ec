//! The trained table of words: how rare each of them is in definitions of tools, where it points, and which words are
//! similar to it. `examples/train.rs` makes it, and `docs/discovery.md` says from what.

use std::sync::LazyLock;

use crate::tool::FIELDS;

/// How many numbers describe where a word points.
pub const DIMENSIONS: usize = 128;
/// How many rows stand for parts of words that are not in the table.
pub const PARTS: usize = 4096;
/// Most similar words of a word.
pub const MAX_NEIGHBOURS: usize = 16;
/// The rarity of a word is stored in these parts of one.
const RARITY_UNIT: f32 = 1.0 / 16.0;
/// The similarity of two words is stored in these parts of one.
const SIMILARITY_UNIT: f32 = 1.0 / 255.0;
/// Bytes of a row: two dimensions in one byte.
const ROW_BYTES: usize = DIMENSIONS / 2;
/// What the file begins with.
const MAGIC: &[u8] = b"selector model 1\n";

static BUILT_IN: &[u8] = include_bytes!("../data/model.bin");

/// A word of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WordIndex(u32);

impl WordIndex {
    /// Its place in the table.
    #[must_use]
    pub const fn place(self) -> usize {
        self.0 as usize
    }
}

/// The identity of a word: FNV-1a with 32 bits. Two words with one identity are one word to the selector; a server gains
/// nothing by that, since it may as well write the other word.
#[must_use]
pub fn identity(word: &str) -> u32 {
    word.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The trained table of words.
#[derive(Debug)]
pub struct Model {
    /// Sorted identities of the words.
    identities: Box<[u32]>,
    rarities: Box<[u8]>,
    /// Rarity of a word that is not in the table.
    unknown: f32,
    lengths: [f32; FIELDS],
    scales: Box<[f32]>,
    rows: Box<[u8]>,
    /// Where the neighbours of each word begin, and behind the last one where they end.
    starts: Box<[u32]>,
    neighbours: Box<[(u32, u8)]>,
}

/// What a table is made of; rows and words have one order.
#[derive(Debug, Default)]
pub struct ModelParts {
    /// The words, sorted by [`identity`].
    pub words: Vec<TrainedWord>,
    /// Rarity of a word that is not in the table.
    pub unknown: f32,
    /// The mean number of distinct words in each field of a definition.
    pub lengths: [f32; FIELDS],
    /// Where each part of a word points.
    pub parts: Vec<Vec<f32>>,
}

/// A word of a table that is being made.
#[derive(Clone, Debug)]
pub struct TrainedWord {
    /// The [`identity`] of the word.
    pub identity: u32,
    /// How rare it is: the natural logarithm that BM25 calls the inverse document frequency.
    pub rarity: f32,
    /// The direction in which it points.
    pub row: Vec<f32>,
    /// Places of similar words, with their similarity between 0 and 1.
    pub neighbours: Vec<(u32, f32)>,
}

/// Reads a file from its beginning.
struct Reader(&'static [u8]);

impl Reader {
    fn take(&mut self, length: usize) -> Option<&'static [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes)
    }

    fn numbers(&mut self, count: usize) -> Option<Vec<u32>> {
        (0..count).map(|_| self.number()).collect()
    }
}

impl Model {
    /// The table that is compiled in.
    ///
    /// It is empty if the file is damaged, which a test excludes; the selector then compares words alone.
    #[must_use]
    pub fn built_in() -> &'static Self {
        static MODEL: LazyLock<Model> =
            LazyLock::new(|| Model::parse(BUILT_IN).unwrap_or_else(Model::empty));
        &MODEL
    }

    /// SHA-256 of the table that is compiled in.
    #[must_use]
    pub fn built_in_digest() -> Vec<u8> {
        json::coding::sha256([BUILT_IN])
    }

    /// A table without words.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            identities: Box::default(),
            rarities: Box::default(),
            unknown: 1.0,
            lengths: [1.0; FIELDS],
            scales: Box::default(),
            rows: Box::default(),
            starts: Box::new([0]),
            neighbours: Box::default(),
        }
    }

    /// Reads a file that [`Self::write`] wrote.
    #[must_use]
    pub fn parse(file: &'static [u8]) -> Option<Self> {
        let mut reader = Reader(file.strip_prefix(MAGIC)?);
        let words = usize::try_from(reader.number()?).ok()?;
        let unknown = f32::from_bits(reader.number()?);
        let mut lengths = [0.0; FIELDS];
        for length in &mut lengths {
            *length = f32::from_bits(reader.number()?);
        }
        let identities = reader.numbers(words)?;
        let rarities = reader.take(words)?;
        let scales = reader.numbers(words + PARTS)?;
        let rows = reader.take((words + PARTS) * ROW_BYTES)?;
        let mut starts = vec![0];
        let mut count = 0;
        for similar in reader.take(words)? {
            count += u32::from(*similar);
            starts.push(count);
        }
        let triples = reader.0.chunks_exact(3);
        let neighbour = |triple: &[u8]| match triple {
            [low, high, similarity] => {
                Some((u32::from(u16::from_le_bytes([*low, *high])), *similarity))
            }
            _ => None,
        };
        let neighbours: Vec<_> = triples.filter_map(neighbour).collect();
        let whole = neighbours.len() == usize::try_from(count).ok()? && identities.is_sorted();
        whole.then(|| Self {
            identities: identities.into(),
            rarities: rarities.into(),
            unknown,
            lengths,
            scales: scales.into_iter().map(f32::from_bits).collect(),
            rows: rows.into(),
            starts: starts.into(),
            neighbours: neighbours.into(),
        })
    }

    /// The file of a table.
    #[must_use]
    pub fn write(parts: &ModelParts) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        let words = u32::try_from(parts.words.len()).unwrap_or(u32::MAX);
        file.extend(words.to_le_bytes());
        file.extend(parts.unknown.to_bits().to_le_bytes());
        parts.lengths.iter().for_each(|length| file.extend(length.to_bits().to_le_bytes()));
        parts.words.iter().for_each(|word| file.extend(word.identity.to_le_bytes()));
        file.extend(parts.words.iter().map(|word| rounded(word.rarity / RARITY_UNIT)));
        let rows = || parts.words.iter().map(|word| &word.row).chain(&parts.parts);
        rows().for_each(|row| file.extend(scale(row).to_bits().to_le_bytes()));
        rows().for_each(|row| file.extend(packed(row)));
        file.extend(parts.words.iter().map(|word| rounded(bounded(word).len() as f32)));
        for (place, similarity) in parts.words.iter().flat_map(bounded) {
            file.extend(u16::try_from(*place).unwrap_or(u16::MAX).to_le_bytes());
            file.push(rounded(similarity / SIMILARITY_UNIT));
        }
        file
    }

    /// The word with this identity.
    #[must_use]
    pub fn find(&self, identity: u32) -> Option<WordIndex> {
        let place = self.identities.binary_search(&identity).ok()?;
        u32::try_from(place).ok().map(WordIndex)
    }

    /// How rare a word is in definitions: 0 for one that stands in all of them.
    #[must_use]
    pub fn rarity(&self, word: Option<WordIndex>) -> f32 {
        let known = word.and_then(|word| self.rarities.get(word.place()));
        known.map_or(self.unknown, |stored| f32::from(*stored) * RARITY_UNIT)
    }

    /// The mean number of distinct words in each field of a definition.
    #[must_use]
    pub const fn lengths(&self) -> [f32; FIELDS] {
        self.lengths
    }

    /// The identities of similar words, with their similarity between 0 and 1.
    pub fn neighbours(&self, word: WordIndex) -> impl Iterator<Item = (u32, f32)> {
        let bound = |place: usize| self.starts.get(place).map_or(0, |start| *start as usize);
        let range = bound(word.place())..bound(word.place() + 1);
        let similar = self.neighbours.get(range).unwrap_or_default();
        similar.iter().filter_map(|(place, similarity)| {
            let identity = self.identities.get(*place as usize)?;
            Some((*identity, f32::from(*similarity) * SIMILARITY_UNIT))
        })
    }

    /// The row of a word.
    #[must_use]
    pub const fn row_of(&self, word: WordIndex) -> usize {
        word.place()
    }

    /// The row of a part of a word.
    #[must_use]
    pub fn row_of_part(&self, part: &str) -> usize {
        self.identities.len() + identity(part) as usize % PARTS
    }

    /// The length of a word's row: how much the word says.
    #[must_use]
    pub fn length(&self, word: WordIndex) -> f32 {
        let mut row = [0.0; DIMENSIONS];
        self.add_row(self.row_of(word), 1.0, &mut row);
        row.iter().map(|number| number * number).sum::<f32>().sqrt()
    }

    /// Adds `weight` times a row to a sum.
    pub fn add_row(&self, row: usize, weight: f32, sum: &mut [f32; DIMENSIONS]) {
        let Some(scale) = self.scales.get(row) else { return };
        let bytes = self.rows.get(row * ROW_BYTES..(row + 1) * ROW_BYTES).unwrap_or_default();
        let factor = scale * weight;
        for (pair, byte) in sum.chunks_exact_mut(2).zip(bytes) {
            if let [even, odd] = pair {
                *even += factor * (f32::from(byte & 15) - 8.0);
                *odd += factor * (f32::from(byte >> 4) - 8.0);
            }
        }
    }
}

/// The neighbours of a word that are stored.
fn bounded(word: &TrainedWord) -> &[(u32, f32)] {
    word.neighbours.get(..MAX_NEIGHBOURS).unwrap_or(&word.neighbours)
}

/// What one step of a row's numbers is.
fn scale(row: &[f32]) -> f32 {
    row.iter().fold(0.0_f32, |most, number| most.max(number.abs())) / 7.0
}

/// The numbers of a row in steps of its scale, two in a byte.
fn packed(row: &[f32]) -> Vec<u8> {
    let scale = scale(row).max(f32::MIN_POSITIVE);
    let nibble = |number: f32| rounded(number / scale + 8.0).min(15);
    let pair = |pair: &[f32]| match pair {
        [even, odd] => nibble(*even) | nibble(*odd) << 4,
        _ => 0,
    };
    row.chunks(2).map(pair).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is between the bounds of a byte"
)]
fn rounded(number: f32) -> u8 {
    number.round().clamp(0.0, 255.0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_that_is_compiled_in_can_be_read() {
        let model = Model::parse(BUILT_IN).expect("the file is whole");
        assert!(model.identities.len() > 10_000);
        assert!(BUILT_IN.len() < 3 << 20, "{} bytes", BUILT_IN.len());
    }

    #[test]
    fn what_is_written_is_read() {
        let row = |first: f32| {
            let mut row = vec![0.0; DIMENSIONS];
            row[0] = first;
            row[1] = -first;
            row
        };
        let words = vec![
            TrainedWord { identity: 3, rarity: 2.0, row: row(1.0), neighbours: vec![(1, 0.6)] },
            TrainedWord { identity: 9, rarity: 4.5, row: row(0.5), neighbours: vec![] },
        ];
        let parts = vec![row(0.1); PARTS];
        let parts = ModelParts { words, unknown: 9.0, lengths: [2.0; FIELDS], parts };
        let model = Model::parse(Model::write(&parts).leak()).unwrap();
        let word = model.find(3).unwrap();
        assert_eq!((model.rarity(Some(word)), model.rarity(None)), (2.0, 9.0));
        assert_eq!(model.neighbours(word).collect::<Vec<_>>(), [(9, 0.6)]);
        let mut sum = [0.0; DIMENSIONS];
        model.add_row(0, 2.0, &mut sum);
        assert!((sum[0] - 2.0).abs() < 1e-5 && (sum[1] + 2.0).abs() < 1e-5 && sum[2] == 0.0);
        assert!(model.find(4).is_none());
    }

    #[test]
    fn a_damaged_file_is_no_model() {
        for length in [0, MAGIC.len(), BUILT_IN.len() / 2, BUILT_IN.len() - 3] {
            assert!(Model::parse(&BUILT_IN[..length]).is_none(), "{length}");
        }
    }
}
