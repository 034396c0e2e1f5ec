//! Bounds the recursion of the parser of CEL before it runs.

/// An upper bound on the recursion depth of the parser: open brackets, plus every `?`, `!` and `-` since the last
/// operand, none of which closes. What stands in literals and comments does not count; they are found as by the lexer of
/// the parser (`CEL.g4` of the crate `cel`).
pub(super) fn depth(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut brackets, mut chain, mut deepest) = (0_usize, 0_usize, 0_usize);
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let length = match byte {
            b'"' | b'\'' => match Prefix::before(bytes, at) {
                Prefix::Other => return usize::MAX,
                prefix @ (Prefix::Plain | Prefix::Raw) => {
                    literal(bytes.get(at..).unwrap_or_default(), prefix)
                }
            },
            b'`' => identifier(bytes.get(at..).unwrap_or_default()),
            b'/' if bytes.get(at + 1) == Some(&b'/') => comment(bytes, at),
            _ => None,
        };
        if let Some(length) = length {
            at += length;
            continue;
        }
        match byte {
            b'(' | b'[' | b'{' => brackets += 1,
            b')' | b']' | b'}' => brackets = brackets.saturating_sub(1),
            b'?' | b'!' | b'-' => chain += 1,
            b'&' | b'|' | b',' => chain = 0,
            _ => {}
        }
        deepest = deepest.max(brackets + chain);
        at += 1;
    }
    deepest
}

/// Length of the comment at `at`, which ends with its line.
fn comment(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    Some(memchr::memchr(b'\n', rest).unwrap_or(rest.len()))
}

/// The word directly before a quote.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefix {
    /// None, or that of bytes.
    Plain,
    /// That of a literal without escapes.
    Raw,
    /// A name or a number, after which CEL has no literal. Where the literal begins depends on the word.
    Other,
}

impl Prefix {
    /// The word before the quote at `at`.
    fn before(bytes: &[u8], at: usize) -> Self {
        let before = bytes.get(..at).unwrap_or_default();
        let is_of_word = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
        let length = before.iter().rev().take_while(is_of_word).count();
        let word = before.get(at - length..).unwrap_or_default().to_ascii_lowercase();
        match &*word {
            b"" | b"b" => Self::Plain,
            b"r" | b"br" => Self::Raw,
            _ => Self::Other,
        }
    }
}

/// Length of the escaped identifier at the beginning of `rest`, in which `//` begins no comment; `None` if it is none.
fn identifier(rest: &[u8]) -> Option<usize> {
    let is_of_name = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_.-/ ".contains(byte);
    let length = rest.iter().skip(1).take_while(is_of_name).count();
    (length > 0 && rest.get(length + 1) == Some(&b'`')).then_some(length + 2)
}

/// Length of the string literal at the beginning of `rest`; `None` if it is none: the lexer then leaves the quote out, and
/// what follows it counts.
fn literal(rest: &[u8], prefix: Prefix) -> Option<usize> {
    let quote = *rest.first()?;
    let three = [quote; 3];
    let long = rest.starts_with(&three).then(|| ended(rest, &three, prefix)).flatten();
    long.or_else(|| ended(rest, &[quote], prefix))
}

/// Length of the literal at the beginning of `rest` that `quotes` begins and ends; one quote does not reach over a line
/// end.
fn ended(rest: &[u8], quotes: &[u8], prefix: Prefix) -> Option<usize> {
    let mut at = quotes.len();
    loop {
        let left = rest.get(at..)?;
        if left.starts_with(quotes) {
            return Some(at + quotes.len());
        }
        at += match left.first()? {
            b'\\' if prefix != Prefix::Raw => escape(left)?,
            b'\n' | b'\r' if quotes.len() == 1 => return None,
            _ => 1,
        };
    }
}

/// Length of an escape sequence; `None` if CEL has no such escape.
fn escape(text: &[u8]) -> Option<usize> {
    let digits = |count: usize, is_digit: fn(&u8) -> bool| {
        let found = text.get(2..2 + count)?;
        found.iter().all(is_digit).then_some(2 + count)
    };
    match text.get(1)? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => {
            Some(2)
        }
        b'x' | b'X' => digits(2, u8::is_ascii_hexdigit),
        b'u' => digits(4, u8::is_ascii_hexdigit),
        b'U' => digits(8, u8::is_ascii_hexdigit),
        b'0'..=b'3' => digits(2, |digit| (b'0'..=b'7').contains(digit)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::depth;

    #[test]
    fn brackets_in_literals_and_comments_neither_open_nor_close() {
        for (text, expected) in [
            ("((a))", 2),
            (r#"(")" + (")" + (")" + "a")))"#, 3),
            (r#"(r"\" + (")" + 'a'))"#, 2),
            (r"f('(((', [1])", 2),
            (r#""""(" ) """ + (1)"#, 1),
            (r"('\'' + (')' + ('))' + '')))", 3),
            ("(1 // )\n + (2))", 2),
            // An unfinished literal and one with a wrong escape are none.
            ("\" (((1", 3),
            ("'\n'(((1", 3),
            (r#""\q (((" "#, 3),
            // Where a literal begins after such a word is left open.
            (r#"12r"\"(")"#, usize::MAX),
            (r#"bar")" + (1)"#, usize::MAX),
            ("`a//b` + ((1))", 2),
            ("`` // ((1))", 0),
            ("--!-a ? b : -c", 6),
            ("-a && -b && -c", 1),
        ] {
            assert_eq!(depth(text), expected, "{text}");
        }
        let deep = format!("{}true{}", r#"(")" + "#.repeat(300), ")".repeat(300));
        assert_eq!(depth(&deep), 300);
    }
}
