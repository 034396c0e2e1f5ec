//! Counts the tokens that a text takes in the context of a model.
//!
//! The vocabulary is `o200k_base`, which several models have; for others the number is an estimate. It is read when the
//! first text is counted. The cost is a little more than linear in the length of a text, and a text is counted in pieces of
//! bounded length, so that nobody can choose a text that costs more.

/// The name of the vocabulary that texts are counted with.
const VOCABULARY: &str = "o200k_base";
/// Longest piece of a text that is counted at once, in bytes. Where a longer text is divided, a word may count as one more.
const MAX_PIECE: usize = 64 * 1024;
/// Bytes of the longest token of the vocabulary.
const LONGEST_TOKEN: usize = 128;

/// The number of tokens of a text. Texts that stand for control tokens count like any other text.
///
/// The first call reads the vocabulary, which takes a tenth of a second: it is not for threads that serve clients.
#[must_use]
pub fn count(text: &str) -> usize {
    // INVARIANT: the vocabulary is compiled in. No text has more tokens than bytes.
    let Some(encoding) = tiktoken::get_encoding(VOCABULARY) else { return text.len() };
    pieces(text).map(|piece| encoding.count(piece)).sum()
}

/// The number of tokens of a text, or `most` and one if it has more: nothing is read of a text that is too long for `most`.
#[must_use]
pub fn count_to(text: &str, most: usize) -> usize {
    let has_more = text.len() > most.saturating_mul(LONGEST_TOKEN);
    let count = if has_more { usize::MAX } else { count(text) };
    count.min(most.saturating_add(1))
}

/// A text in pieces of bounded length.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let at = rest.floor_char_boundary(MAX_PIECE);
        let (piece, more) = rest.split_at_checked(at)?;
        rest = more;
        Some(piece).filter(|piece| !piece.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_TOKEN, MAX_PIECE, VOCABULARY, count, count_to, pieces};

    #[test]
    fn texts_have_the_tokens_that_the_vocabulary_gives_them() {
        // As `tiktoken` of OpenAI counts them.
        let known = [
            ("", 0),
            ("hello world", 2),
            ("Reads a text file.", 5),
            ("<|endoftext|>", 7),
            ("天气", 1),
        ];
        for (text, tokens) in known {
            assert_eq!(count(text), tokens, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_told_by_its_length() {
        let encoding = tiktoken::get_encoding(VOCABULARY).unwrap();
        let ids = 0..u32::try_from(encoding.vocab_size()).unwrap();
        let longest = ids.map(|id| encoding.decode(&[id]).len()).max();
        assert_eq!(longest, Some(LONGEST_TOKEN));
        assert_eq!(count_to("hello world", 2), 2);
        assert_eq!(count_to("hello world", 1), 2);
        assert_eq!(count_to(&" ".repeat(2 * LONGEST_TOKEN), 2), 2);
        assert_eq!(count_to(&" ".repeat(2 * LONGEST_TOKEN + 1), 2), 3);
    }

    #[test]
    fn a_long_text_is_counted_in_pieces() {
        for text in ["天".repeat(MAX_PIECE), " ".repeat(3 * MAX_PIECE), "a".repeat(MAX_PIECE + 1)]
        {
            assert_eq!(pieces(&text).collect::<String>(), text);
            assert!(pieces(&text).all(|piece| piece.len() <= MAX_PIECE));
            assert!((1..=text.len()).contains(&count(&text)));
        }
    }
}
