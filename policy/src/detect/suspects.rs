//! The lines of a text that may be something else than they seem: a glance, so that ordinary text is
//! not decoded in every way there is.

/// Longest stretch that is looked at as one line, in bytes.
const LINE: usize = 2000;
/// Shortest run that could be an encoding, in bytes.
const RUN: usize = 20;
/// Fewest words of a line that is looked at for not being in any language.
const WORDS: usize = 5;

/// Those lines, one behind the other.
pub(super) fn of(text: &str) -> String {
    let mut out = String::new();
    for line in text.split('\n') {
        let mut rest = line;
        while !rest.is_empty() {
            let (part, more) = rest.split_at(rest.floor_char_boundary(LINE));
            // A character has at most four bytes, so a part is never empty.
            if is_suspect(part) {
                out.push_str(part);
                out.push('\n');
            }
            rest = more;
        }
    }
    out
}

fn is_suspect(line: &str) -> bool {
    let mut shape = Shape::default();
    for word in line.split_ascii_whitespace() {
        if shape.adds(word) {
            return true;
        }
    }
    let prose = shape.letters * 10 >= line.len() * 7;
    // Prose has small words; what is spelled apart or backwards has none.
    let foreign = prose && shape.words >= WORDS && shape.common == 0;
    foreign || shape.single * 2 >= shape.words && shape.single >= 8 || shape.mixed >= 3
}

/// What the words of a line are like.
#[derive(Default)]
struct Shape {
    words: usize,
    /// Words of one letter.
    single: usize,
    /// Small words of English.
    common: usize,
    /// Words with a digit between letters.
    mixed: usize,
    letters: usize,
    percent: usize,
}

impl Shape {
    /// Adds a word; whether it says enough by itself.
    fn adds(&mut self, word: &str) -> bool {
        self.words += 1;
        let bytes = word.as_bytes();
        if bytes.len() <= 4 {
            self.single += usize::from(bytes.len() == 1);
            let small = word.trim_end_matches([',', '.', ':']);
            self.common += usize::from(matches!(
                small,
                "the"
                    | "and"
                    | "to"
                    | "of"
                    | "is"
                    | "in"
                    | "for"
                    | "you"
                    | "this"
                    | "on"
                    | "a"
                    | "it"
                    | "The"
                    | "with"
                    | "be"
            ));
            self.letters += bytes.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
            return false;
        }
        let (mut run, mut upper, mut lower, mut digits, mut inside) = (0, 0, 0, 0, 0);
        let mut before = b' ';
        for (n, byte) in bytes.iter().enumerate() {
            match byte {
                b'x' | b'u' if before == b'\\' => return true,
                b'A'..=b'Z' => upper += 1,
                b'a'..=b'z' => lower += 1,
                b'0'..=b'9' => {
                    digits += 1;
                    let next = bytes.get(n + 1).is_some_and(u8::is_ascii_alphabetic);
                    inside += usize::from(before.is_ascii_alphabetic() && next);
                }
                b'+' | b'=' => {}
                b'%' => self.percent += 1,
                b'#' if before == b'&' => return true,
                _ => {
                    (run, upper, lower, digits) = (0, 0, 0, 0);
                    before = *byte;
                    continue;
                }
            }
            run += 1;
            before = *byte;
            // Base64 has letters of both cases and digits; hexadecimal has mostly digits. What joins
            // words of a name or a path ends a run.
            let base64 = upper >= 3 && lower >= 3 && digits >= 1;
            if run >= RUN && (base64 || digits * 3 >= run) {
                return true;
            }
        }
        self.letters += bytes.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
        self.mixed += usize::from(inside > 0 && digits <= 4);
        self.percent >= 4
    }
}
