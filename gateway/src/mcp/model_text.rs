//! What a model reads of a tool, and how many tokens it takes.

use json::{Value, write_members, write_name, write_plain};

use crate::base::context_tokens;

/// The members of a definition that clients give to a model. Others are for the client, such as `annotations`,
/// `outputSchema`, `icons` and `_meta`.
const READ: [&str; 3] = ["name", "description", "inputSchema"];

/// What a model reads of a tool: JSON without spaces, of the members that clients give to models.
#[must_use]
pub fn model_text(definition: Value<'_>) -> String {
    let mut out = Vec::new();
    let read = READ.into_iter().filter_map(|name| Some((name, definition.get(name)?)));
    write_members(&mut out, read, |out, (name, value)| {
        write_name(out, name);
        write_plain(out, value);
    });
    // INVARIANT: the parts are written from documents, which are UTF-8.
    String::from_utf8(out).unwrap_or_default()
}

/// How many tokens a tool takes in the context of a model. Not for threads that serve clients:
/// see [`context_tokens::count`].
#[must_use]
pub fn model_tokens(definition: Value<'_>) -> usize {
    context_tokens::count(&model_text(definition))
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds};

    use super::model_text;

    #[test]
    fn a_model_reads_the_name_the_description_and_the_parameters() {
        let text = r#"{"title":"T", "name" : "read", "icons":[{"src":"data:,x"}], "description":"Reads\u0020it.",
                       "inputSchema": {"type": "object"}, "outputSchema":{}, "_meta":{"a":1}, "annotations":{}}"#;
        let document = Document::parse(text.into(), &JsonBounds::MESSAGE).unwrap();
        let expected =
            r#"{"name":"read","description":"Reads it.","inputSchema":{"type":"object"}}"#;
        assert_eq!(model_text(document.root()), expected);
    }
}
