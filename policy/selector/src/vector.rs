//! The direction of a text: the sum of the rows of its words, as a unit vector of whole numbers.

use crate::bag;
use crate::model::{DIMENSIONS, Model, identity};

/// The length that a vector is scaled to. Two of them multiply to at most its square, which fits 32 bits.
const LENGTH: f32 = 8192.0;

/// A direction in steps of `1 / 8192`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Direction(Box<[i16; DIMENSIONS]>);

impl Direction {
    /// The direction of words with weights; no direction if none of them says anything.
    #[must_use]
    pub fn of<'a>(model: &Model, words: impl IntoIterator<Item = (&'a str, f32)>) -> Self {
        let mut sum = [0.0; DIMENSIONS];
        for (word, weight) in words {
            if let Some(known) = model.find(identity(word)) {
                model.add_row(model.row_of(known), weight, &mut sum);
                continue;
            }
            let parts = bag::parts(word);
            #[expect(clippy::cast_precision_loss, reason = "a word has few parts")]
            let each = weight / (parts.len() as f32).sqrt();
            for part in &parts {
                model.add_row(model.row_of_part(part), each, &mut sum);
            }
        }
        Self::scaled(&sum)
    }

    fn scaled(sum: &[f32; DIMENSIONS]) -> Self {
        let length = sum.iter().map(|number| number * number).sum::<f32>().sqrt();
        let factor = if length > 1e-6 { LENGTH / length } else { 0.0 };
        #[expect(clippy::cast_possible_truncation, reason = "at most the length, which fits")]
        let whole = |number: f32| (number * factor).round().clamp(-LENGTH, LENGTH) as i16;
        Self(Box::new(sum.map(whole)))
    }

    /// The cosine of the angle between two directions: 1 for the same, 0 for unrelated ones.
    #[must_use]
    pub fn cosine(&self, other: &Self) -> f32 {
        // No sum overflows: the vectors are at most as long as LENGTH, but for rounding. Wrapping operations are what
        // the compiler can do for several numbers at once.
        let product = |(one, other): (&i16, &i16)| i32::from(*one).wrapping_mul(i32::from(*other));
        let sum = self.0.iter().zip(other.0.iter()).map(product).fold(0_i32, i32::wrapping_add);
        #[expect(clippy::cast_precision_loss, reason = "a cosine need not be exact")]
        let sum = sum as f32;
        sum / (LENGTH * LENGTH)
    }
}
