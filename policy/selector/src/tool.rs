//! What the definition of a tool says of it: its names, its descriptions and those of its parameters.

use std::borrow::Cow;
use std::collections::BTreeSet;

use json::Value;

use crate::text::words;

/// Most words of a name, of a title or of the name of a server.
pub const MAX_NAME_WORDS: usize = 16;
/// Most words of a description. Those behind them are ignored: a long description is no reason to be found more often.
pub const MAX_DESCRIPTION_WORDS: usize = 200;
/// Most parameters that are read.
pub const MAX_PARAMETERS: usize = 48;
/// Most words of the description of one parameter.
pub const MAX_PARAMETER_WORDS: usize = 24;
/// Most bytes of a name that is kept, so that an answer can show it.
pub const MAX_NAME_BYTES: usize = 128;

/// The texts of a tool's definition by which it is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolText {
    /// The name of the tool.
    pub name: String,
    /// Its title, or nothing.
    pub title: String,
    /// Its description, or nothing.
    pub description: String,
    /// The name of the server that offers it, or nothing.
    pub server: String,
    /// The name and the description of each parameter.
    pub parameters: Vec<ParameterText>,
}

/// The texts of a parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterText {
    /// The name of the parameter.
    pub name: String,
    /// Its description, or nothing.
    pub description: String,
}

impl ToolText {
    /// Reads the definition of a tool as MCP writes it. What is missing or has another type is nothing.
    #[must_use]
    pub fn read(server: &str, tool: Value<'_>) -> Self {
        let annotations = tool.get("annotations").and_then(|members| text(members, "title"));
        let properties = tool.get("inputSchema").and_then(|schema| schema.get("properties"));
        let members = properties.into_iter().flat_map(Value::members).take(MAX_PARAMETERS);
        let parameter = |(name, schema): (Cow<'_, str>, Value<'_>)| ParameterText {
            name: name.into_owned(),
            description: text(schema, "description").unwrap_or_default(),
        };
        Self {
            name: text(tool, "name").unwrap_or_default(),
            title: text(tool, "title").or(annotations).unwrap_or_default(),
            description: text(tool, "description").unwrap_or_default(),
            server: server.to_owned(),
            parameters: members.map(parameter).collect(),
        }
    }

    /// The distinct words of each field, in the order of [`Field::ALL`].
    #[must_use]
    pub fn field_words(&self) -> [Vec<String>; FIELDS] {
        self.words().0
    }

    /// The distinct words of each field. A word that is repeated counts once.
    pub(crate) fn words(&self) -> FieldWords {
        let parameters = || self.parameters.iter().take(MAX_PARAMETERS);
        let described =
            parameters().flat_map(|one| words(&one.description, MAX_PARAMETER_WORDS)).collect();
        let named = parameters().flat_map(|one| words(&one.name, MAX_NAME_WORDS)).collect();
        let server = self.server.rsplit('/').next().unwrap_or_default();
        FieldWords([
            distinct(words(&self.name, MAX_NAME_WORDS)),
            distinct(words(&self.title, MAX_NAME_WORDS)),
            distinct(words(&told(&self.description), MAX_DESCRIPTION_WORDS)),
            distinct(named),
            distinct(described),
            distinct(words(server, MAX_NAME_WORDS)),
        ])
    }
}

/// Words by which a text advertises a tool.
const ADVERTISING: &[&str] = &[
    "always",
    "anything",
    "best",
    "call",
    "choose",
    "every",
    "favorite",
    "first",
    "highest",
    "important",
    "must",
    "official",
    "only",
    "pick",
    "powerful",
    "prefer",
    "preferred",
    "priority",
    "rank",
    "recommended",
    "top",
    "trusted",
    "whatever",
];
/// Most bytes of a description that are looked at for advertisements.
const MAX_DESCRIPTION_BYTES: usize = 16 * 1024;

/// A description without the sentences that speak of choosing the tool: they say nothing of what it does.
fn told(description: &str) -> String {
    let description = description
        .get(..description.floor_char_boundary(MAX_DESCRIPTION_BYTES))
        .unwrap_or_default();
    let sentences = description.split_inclusive(['.', '!', '?', '\n']);
    sentences.filter(|sentence| !advertises(sentence)).collect()
}

/// Whether a sentence speaks of the tool itself, and in the words of an advertisement.
fn advertises(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    let words: BTreeSet<&str> = lower.split(|c: char| !c.is_alphanumeric()).collect();
    let speaks_of_itself = ["tool", "tools", "me"].iter().any(|word| words.contains(word));
    speaks_of_itself && ADVERTISING.iter().any(|word| words.contains(word))
}

/// The member of an object, if it is a text.
fn text(object: Value<'_>, member: &str) -> Option<String> {
    object.get(member).and_then(Value::as_str).map(Cow::into_owned)
}

/// The words without repetitions, in the order of their first mention.
fn distinct(words: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    words.into_iter().filter(|word| seen.insert(word.clone())).collect()
}

/// A field of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The name of the tool.
    Name,
    /// The title of the tool.
    Title,
    /// The description of the tool.
    Description,
    /// The names of its parameters.
    ParameterName,
    /// The descriptions of its parameters.
    ParameterDescription,
    /// The name of its server.
    Server,
}

impl Field {
    /// Every field, in a fixed order.
    pub const ALL: [Self; FIELDS] = [
        Self::Name,
        Self::Title,
        Self::Description,
        Self::ParameterName,
        Self::ParameterDescription,
        Self::Server,
    ];
}

/// How many fields there are.
pub const FIELDS: usize = 6;

/// The distinct words of each field, in the order of [`Field::ALL`].
#[derive(Clone, Debug)]
pub(crate) struct FieldWords(pub(crate) [Vec<String>; FIELDS]);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use json::{Document, JsonBounds};

    use super::*;

    #[test]
    fn a_definition_is_read_as_far_as_it_is_one() {
        let text = r#"{"name":"send_mail","annotations":{"title":"Send"},"description":7,
            "inputSchema":{"properties":{"to":{"description":"Whom"},"cc":true}}}"#;
        let document = Document::parse(text.to_owned().into(), &JsonBounds::ANSWER).unwrap();
        let read = ToolText::read("mail", Arc::new(document).root());
        let parameter = |name: &str, description: &str| ParameterText {
            name: name.to_owned(),
            description: description.to_owned(),
        };
        let expected = ToolText {
            name: "send_mail".to_owned(),
            title: "Send".to_owned(),
            description: String::new(),
            server: "mail".to_owned(),
            parameters: vec![parameter("to", "Whom"), parameter("cc", "")],
        };
        assert_eq!(read, expected);
    }
}
