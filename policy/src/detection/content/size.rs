//! The size limit of results, and the handling of results that exceed it (control C14, vector PV-37).

use schemars::JsonSchema;
use serde::Deserialize;

use crate::json::{JsonKind, Value, write_items, write_members, write_name, write_string};

/// Bytes that are reserved for the note in each string that is cut.
const MARK: usize = 80;

/// What happens to a result that exceeds the size limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OversizeAction {
    /// The result is withheld.
    #[default]
    Refuse,
    /// The longest strings of the result are cut, each with a note.
    Truncate,
    /// The gateway stores the result and answers with a link, under which the same caller can read it for a while.
    Offload,
}

/// The size limit of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultSizeLimit {
    /// Greatest size of the result as JSON, in bytes.
    pub most: usize,
    /// What happens to a result that exceeds it.
    pub over: OversizeAction,
}

/// The result with its longest strings cut, so that it has at most `most` bytes; `None` if that is not
/// enough. Base64 data is not cut, because half of it is useless.
pub(crate) fn truncated(result: Value<'_>, most: usize) -> Option<Vec<u8>> {
    let mut lengths = Vec::new();
    measure(result, "", &mut lengths);
    let all: usize = lengths.iter().sum();
    let rest = result.raw().len().checked_sub(all)?;
    let mut budget = most.checked_sub(rest)?;
    lengths.sort_unstable();
    // The greatest length that all strings may have: short ones leave their share to longer ones.
    let mut longest = 0;
    let mut left = lengths.len();
    for length in &lengths {
        let share = budget / left.max(1);
        if *length <= share {
            budget -= length;
            left -= 1;
            longest = *length;
        } else {
            longest = share;
            break;
        }
    }
    (longest > MARK).then_some(())?;
    let mut out = Vec::with_capacity(most);
    write(&mut out, result, "", longest);
    (out.len() <= most).then_some(out)
}

fn is_cut(value: Value<'_>, name: &str) -> bool {
    matches!(value.kind(), JsonKind::Plain | JsonKind::Escaped)
        && !matches!(name, "blob" | "data" | "type" | "uri" | "mimeType")
}

/// Collects the lengths of all strings that may be cut.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
fn measure(value: Value<'_>, name: &str, lengths: &mut Vec<usize>) {
    if is_cut(value, name) {
        lengths.push(value.raw().len());
    }
    value.items().for_each(|item| measure(item, name, lengths));
    value.members().for_each(|(name, member)| measure(member, &name, lengths));
}

fn write(out: &mut Vec<u8>, value: Value<'_>, name: &str, longest: usize) {
    match value.kind() {
        JsonKind::Array => {
            write_items(out, value.items(), |out, item| write(out, item, name, longest));
        }
        JsonKind::Object => write_members(out, value.members(), |out, (name, member)| {
            write_name(out, &name);
            write(out, member, &name, longest);
        }),
        JsonKind::Plain | JsonKind::Escaped
            if is_cut(value, name) && value.raw().len() > longest =>
        {
            let text = value.as_str().unwrap_or_default();
            let mut room = longest.saturating_sub(MARK);
            let fits = |c: &char| {
                let size = match c {
                    '"' | '\\' | '\n' | '\r' | '\t' => 2,
                    c if c.is_control() => 6,
                    c => c.len_utf8(),
                };
                let fits = size <= room;
                room = room.saturating_sub(size);
                fits
            };
            let shown: String = text.chars().take_while(fits).collect();
            let (whole, part) = (text.len(), shown.len());
            write_string(
                out,
                &format!("{shown}[TRUNCATED by the gateway: {part} of {whole} bytes shown]"),
            );
        }
        JsonKind::Null
        | JsonKind::Boolean
        | JsonKind::Number
        | JsonKind::Plain
        | JsonKind::Escaped => {
            out.extend_from_slice(value.raw().as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::truncated;
    use crate::json::{Document, JsonBounds};

    proptest! {
        #[test]
        fn what_is_cut_is_short_enough_and_still_json(
            texts in proptest::collection::vec("[a-z\"\\\\\n\u{1}é世]{0,300}", 1..6), most in 100_usize..1500,
        ) {
            let result = serde_json::json!({ "content": texts, "blob": "AAAA", "n": 1 });
            let document = Document::parse(result.to_string().into(), &JsonBounds::MESSAGE).unwrap();
            if let Some(cut) = truncated(document.root(), most) {
                prop_assert!(cut.len() <= most);
                let again: serde_json::Value = Document::parse(cut.into(), &JsonBounds::MESSAGE).unwrap().root().raw().parse().unwrap();
                prop_assert_eq!(&again["blob"], "AAAA");
                for (text, cut) in texts.iter().zip(again["content"].as_array().unwrap()) {
                    let cut = cut.as_str().unwrap();
                    let kept = cut.split("[TRUNCATED").next().unwrap();
                    prop_assert!(cut == text || text.starts_with(kept));
                }
            }
        }
    }

    #[test]
    fn short_strings_leave_room_to_long_ones() {
        let result = serde_json::json!({ "a": "x".repeat(20), "b": "y".repeat(5000) });
        let document = Document::parse(result.to_string().into(), &JsonBounds::MESSAGE).unwrap();
        let cut = String::from_utf8(truncated(document.root(), 1000).unwrap()).unwrap();
        assert!(
            cut.contains(&"x".repeat(20)) && cut.contains(&"y".repeat(850)) && cut.len() <= 1000
        );
        assert!(truncated(document.root(), 40).is_none());
    }
}
