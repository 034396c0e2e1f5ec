//! Scripts that write no spaces between words.
//!
//! In Chinese, Japanese, Thai, Lao, Khmer and Burmese a clause is one token, so runs of words say little there: a text
//! that repeats half a clause repeats no word. Runs of characters are compared instead.

/// Length of a run that has Han characters, digits and letters, in characters: about five words.
const HAN: usize = 10;
/// Length of a run with kana. Shorter ones are in the courtesies of most letters.
const KANA: usize = 20;
/// Length of a run with letters of the other scripts.
const LETTERS: usize = 24;

/// The last characters of a text, in the order in which they stand.
#[derive(Debug, Default)]
pub(super) struct UnspacedRun {
    /// At most twice [`LETTERS`], so that most characters are added without moving the others.
    last: Vec<char>,
}

impl UnspacedRun {
    /// Adds a character. Returns the run that ends with it; how long a run is depends on its characters alone.
    pub(super) fn add(&mut self, c: char) -> Option<&[char]> {
        if self.last.len() == 2 * LETTERS {
            self.last.drain(..LETTERS);
        }
        self.last.push(c);
        if !is_unspaced(c) {
            return None;
        }
        let tail =
            |length| self.last.len().checked_sub(length).and_then(|from| self.last.get(from..));
        let length = match tail(HAN)? {
            run if run.iter().any(|c| is_letter(*c)) => LETTERS,
            run if run.iter().any(|c| is_kana(*c)) => KANA,
            _ => HAN,
        };
        tail(length)
    }
}

/// Whether a character belongs to a script without spaces between words.
pub(super) fn is_unspaced(c: char) -> bool {
    is_han(c) || is_kana(c) || is_letter(c)
}

fn is_han(c: char) -> bool {
    matches!(c, '\u{3005}'..='\u{3007}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3fffd}')
}

fn is_kana(c: char) -> bool {
    matches!(c, '\u{3041}'..='\u{3096}' | '\u{309d}'..='\u{309f}' | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}')
}

/// Letters of Thai, Lao, Burmese and Khmer.
fn is_letter(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}')
}

#[cfg(test)]
mod tests {
    use super::{HAN, KANA, LETTERS, UnspacedRun};

    #[test]
    fn the_length_of_a_run_depends_on_its_script() {
        for (text, length) in [
            ("我们公司将于下周五完成对北风公司的收购我们公司将于下周五", HAN),
            ("当社は来週の金曜日に北風株式会社の買収を完了します", KANA),
            ("บริษทของเราจะเขาซอกจการของนอรทวนด", LETTERS),
        ] {
            let mut run = UnspacedRun::default();
            let lengths = text.chars().map(|c| run.add(c).map_or(0, <[char]>::len));
            let lengths = lengths.collect::<Vec<_>>();
            assert_eq!(lengths.last(), Some(&length), "{text}");
            assert_eq!(lengths.iter().position(|one| *one > 0), Some(length - 1), "{text}");
        }
        let mut run = UnspacedRun::default();
        assert!("no word of this is in such a script".chars().all(|c| run.add(c).is_none()));
    }
}
