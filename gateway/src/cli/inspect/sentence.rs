//! Which sentence of a text reads most like instructions: for a person who reads the output of `inspect`.

use detection::content::Direction;
use detection::detect::{Model, TextAnalysis};
use json::pointer::unescaped;
use json::{Document, JsonBounds, Value};
use policy::engine::pipeline::Policy;
use policy_core::subject::name::ServerName;
use serde_json::json;

/// Most bytes of a text whose sentences are compared.
const MAX_TEXT: usize = 64 * 1024;
/// Most characters of a sentence that are printed.
const MAX_SENTENCE: usize = 400;

/// How a sentence is scored.
#[derive(Clone, Copy, Debug)]
pub(super) enum Judge<'a> {
    /// As the description of a tool.
    Definition,
    /// As a text that this server sends or receives.
    Content { policy: &'a Policy, server: &'a ServerName, direction: Direction },
}

impl Judge<'_> {
    fn score(self, sentence: &str) -> f32 {
        let text = match self {
            Self::Definition => json!({ "description": sentence }),
            Self::Content { .. } => json!(sentence),
        };
        let Ok(document) = Document::parse(text.to_string().into(), &JsonBounds::ANSWER) else {
            return f32::MIN;
        };
        match self {
            Self::Definition => TextAnalysis::of(document.root()).score(Model::built_in()).value,
            Self::Content { policy, server, direction } => {
                policy.looked_at(server, direction, document.root()).score
            }
        }
    }
}

/// The sentence with the highest score by itself, of the string at `at` (a JSON Pointer, RFC 6901) in `value`. `None` if
/// there is no string, or if it is longer than [`MAX_TEXT`].
pub(super) fn strongest(judge: Judge<'_>, value: Value<'_>, at: &str) -> Option<String> {
    let text = at.split('/').skip(1).try_fold(value, |value, part| {
        let name = unescaped(part);
        let item = || value.items().nth(name.parse().ok()?);
        if value.is_object() { value.get(&name) } else { item() }
    });
    let text = text?.as_str().filter(|text| text.len() <= MAX_TEXT)?;
    let scored = sentences(&text).into_iter().map(|sentence| (judge.score(sentence), sentence));
    let (_, sentence) = scored.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    let beginning: String = sentence.chars().take(MAX_SENTENCE).collect();
    Some(if beginning.len() < sentence.len() { beginning + "..." } else { beginning })
}

/// The sentences of a text, and its lines.
fn sentences(text: &str) -> Vec<&str> {
    let (mut found, mut rest, mut start) = (Vec::new(), text, 0);
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let is_followed_by_space = characters.peek().is_none_or(|(_, next)| next.is_whitespace());
        let ends = match c {
            '\n' | '。' | '！' | '？' | '।' => true,
            '.' | '!' | '?' | '؟' => is_followed_by_space,
            _ => false,
        };
        let end = at + c.len_utf8();
        if let Some((sentence, others)) = rest.split_at_checked(end - start).filter(|_| ends) {
            found.push(sentence);
            (rest, start) = (others, end);
        }
    }
    found.push(rest);
    found.into_iter().map(str::trim).filter(|sentence| !sentence.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::sentences;

    #[test]
    fn a_text_is_split_at_the_ends_of_sentences_and_lines() {
        let text = "Reads v1.2 of a file. Now!\n- one\n\n二。三 آیا؟ x";
        assert_eq!(
            sentences(text),
            ["Reads v1.2 of a file.", "Now!", "- one", "二。", "三 آیا؟", "x"]
        );
        assert!(sentences(" \n").is_empty());
    }
}
