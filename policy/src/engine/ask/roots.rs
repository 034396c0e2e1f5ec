//! Which of a client's roots a server may know of.

use json::{JsonKind, Value};
use policy_core::subject::pattern::Pattern;
use policy_core::subject::uri::ResourceUri;

use super::{JsonEdit, TEXT};

/// The roots that a server may know of. The default is all of them.
#[derive(Clone, Debug, Default)]
pub struct RootsPolicy {
    /// Patterns of the URIs that are granted, in canonical form; `None` grants every root.
    pub only: Option<Vec<Pattern>>,
}

impl RootsPolicy {
    /// The edits that remove the roots that are not granted from the answer of a client: a legacy one is the result of
    /// `roots/list`, a modern one an object with a result for each request (SPEC 2026-07-28 `inputResponses`).
    pub(super) fn edits(&self, answer: Value<'_>) -> Vec<JsonEdit> {
        let Some(only) = &self.only else { return Vec::new() };
        // The members of an object with results are objects under any name; those of a result are not.
        let has = |name, kinds: &[JsonKind]| {
            answer.get(name).is_some_and(|member| kinds.contains(&member.kind()))
        };
        let is_result =
            has("roots", &[JsonKind::Array]) || has("action", TEXT) || has("role", TEXT);
        let results: Vec<_> = match is_result {
            true => vec![answer],
            false => answer.members().map(|(_, member)| member).collect(),
        };
        results.into_iter().filter_map(|result| edit(only, result.get("roots")?)).collect()
    }
}

/// The edit to a list of roots; `None` if all are granted.
fn edit(only: &[Pattern], roots: Value<'_>) -> Option<JsonEdit> {
    // What is no list of roots is not passed on: nobody could say what it grants.
    let items = if roots.kind() == JsonKind::Array { Some(roots.items()) } else { None };
    let (kept, lost): (Vec<_>, Vec<_>) =
        items.into_iter().flatten().partition(|root| is_granted(only, *root));
    if lost.is_empty() && roots.kind() == JsonKind::Array {
        return None;
    }
    let kept: Vec<_> = kept.into_iter().map(Value::raw).collect();
    Some(JsonEdit { span: roots.span(), text: format!("[{}]", kept.join(",")) })
}

/// Whether the URI of a root is granted. One without a canonical form is not.
fn is_granted(only: &[Pattern], root: Value<'_>) -> bool {
    let uri = root.get("uri").and_then(Value::as_str);
    let uri = uri.and_then(|uri| ResourceUri::parse(&uri).ok());
    uri.is_some_and(|uri| only.iter().any(|pattern| pattern.matches(uri.as_str())))
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds};
    use policy_core::subject::pattern::Pattern;
    use serde_json::{Value, json};

    use super::RootsPolicy;

    /// The lists of roots that are written in place of those in an answer.
    fn written(policy: &RootsPolicy, answer: &Value) -> Vec<String> {
        let document = Document::parse(answer.to_string().into(), &JsonBounds::MESSAGE).unwrap();
        policy.edits(document.root()).into_iter().map(|edit| edit.text).collect()
    }

    #[test]
    fn a_server_is_told_only_of_the_roots_that_are_granted() {
        let policy = RootsPolicy { only: Some(vec![Pattern::resource("file:///srv/*").unwrap()]) };
        let (open, shut) = (json!({ "uri": "file:///srv/a" }), json!({ "uri": "file:///etc" }));
        let kept = r#"[{"uri":"file:///srv/a"}]"#;
        for (answer, expected) in [
            (json!({ "roots": [open] }), vec![]),
            (json!({ "roots": [open, shut] }), vec![kept]),
            (json!({ "roots": [shut, { "uri": "file:///srv/../etc" }, {}, 1] }), vec!["[]"]),
            (
                json!({ "first": { "roots": [shut, open] }, "second": { "roots": [open] } }),
                vec![kept],
            ),
            // What is no list of roots could be read as one.
            (json!({ "first": { "roots": "file:///etc" } }), vec!["[]"]),
            (json!({ "action": "accept", "content": { "roots": [shut] } }), vec![]),
        ] {
            assert_eq!(written(&policy, &answer), expected, "{answer}");
        }
        assert_eq!(written(&RootsPolicy::default(), &json!({ "roots": [shut] })), [""; 0]);
    }
}
