//! The channel between two planners: declared values that the untrusted one passes and the trusted one takes.
//!
//! A value is one boolean, number or short text within bounds that the operator has declared, so that no sentence of an
//! attacker fits through it where the operator does not declare that it may.

use json::{JsonKind, Value};
use policy_core::base::hidden;
use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use super::label::{Confidentiality, FlowLabels, Integrity};

/// Most entries of a channel.
pub const ENTRIES: usize = 64;
/// Most characters of a text.
const TEXT: usize = 256;
/// Most bytes of a number as it is written.
const NUMBER: usize = 32;
/// Most texts of an `enum`.
const CHOICES: usize = 256;
/// Most bytes of a compiled pattern.
const PATTERN: usize = 1 << 20;
/// The integers that every client represents exactly.
const EXACT: f64 = 9_007_199_254_740_991.0;

/// One value that may pass from the untrusted planner to the trusted one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChannelSettings {
    /// The name by which both planners name the value: at most 64 letters, digits, `_`, `-` and `.`.
    pub name: String,
    /// The JSON Schema of the value. It has to bound the value.
    pub schema: ChannelSchema,
    /// The integrity of the value in the flow of the trusted planner: `untrusted` (default) or `trusted`. A value that is
    /// `trusted` counts as given.
    pub integrity: Option<Integrity>,
    /// The confidentiality of the value in the flow of the trusted planner. Default: `confidential`.
    pub confidentiality: Option<Confidentiality>,
}

/// The JSON Schema of a value in a channel: the part of JSON Schema that bounds a value.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChannelSchema {
    /// `boolean`, `number`, `integer` or `string`.
    #[serde(rename = "type")]
    pub kind: ChannelType,
    /// The least number. Required for `number` and `integer`.
    pub minimum: Option<f64>,
    /// The greatest number. Required for `number` and `integer`.
    pub maximum: Option<f64>,
    /// The texts that a `string` can be.
    #[serde(rename = "enum")]
    pub choices: Option<Vec<String>>,
    /// The only text that a `string` can be.
    #[serde(rename = "const")]
    pub constant: Option<String>,
    /// A regular expression that the whole `string` has to match. Needs `maxLength`.
    pub pattern: Option<String>,
    /// Most characters of a `string`, at most 256.
    pub max_length: Option<usize>,
    /// The format of a `string`.
    pub format: Option<ChannelFormat>,
}

/// The type of a value in a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ChannelType {
    /// `true` or `false`.
    Boolean,
    /// A number between `minimum` and `maximum`.
    Number,
    /// A number without a fraction between `minimum` and `maximum`.
    Integer,
    /// A text, as `enum`, `const`, `pattern` or `format` says.
    String,
}

/// The format of a text in a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelFormat {
    /// A date, such as `2026-07-28`.
    Date,
    /// A date with a time and an offset (RFC 3339), such as `2026-07-28T09:00:00Z`.
    DateTime,
    /// A mail address of ASCII characters.
    Email,
    /// An `http` or `https` URL of ASCII characters. A path can have words in it.
    Uri,
    /// A UUID.
    Uuid,
}

impl ChannelFormat {
    const fn pattern(self) -> &'static str {
        match self {
            Self::Date => "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
            Self::DateTime => {
                "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
            }
            Self::Email => "[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(\\.[A-Za-z0-9-]{1,63}){1,8}",
            Self::Uri => {
                "https?://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?([/?#][A-Za-z0-9._~:/?#@!$&'()*+,;=%-]*)?"
            }
            Self::Uuid => "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Date => "date (YYYY-MM-DD)",
            Self::DateTime => "date and time (RFC 3339)",
            Self::Email => "mail address",
            Self::Uri => "http or https URL",
            Self::Uuid => "UUID",
        }
    }
}

/// What a value has to be.
#[derive(Clone, Debug)]
enum ValueBound {
    Boolean,
    Number { least: f64, most: f64, is_integer: bool },
    Choice(Vec<String>),
    Text { pattern: Regex, most: usize, said: String },
}

/// A compiled [`ChannelSettings`].
#[derive(Clone, Debug)]
pub struct ChannelEntry {
    name: Box<str>,
    bound: ValueBound,
    labels: FlowLabels,
}

/// A mistake in an entry: the member as a JSON Pointer, what is wrong, and how to correct it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelMistake {
    /// The member, relative to the entry.
    pub at: &'static str,
    /// What is wrong.
    pub message: &'static str,
    /// How to correct it.
    pub help: &'static str,
}

const fn mistake(at: &'static str, message: &'static str, help: &'static str) -> ChannelMistake {
    ChannelMistake { at, message, help }
}

impl ChannelEntry {
    /// Compiles an entry.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn new(settings: &ChannelSettings) -> Result<Self, ChannelMistake> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let name = &*settings.name;
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            let help = "use at most 64 letters, digits, `_`, `-` and `.`";
            return Err(mistake("/name", "this is no name of a value", help));
        }
        if settings.integrity == Some(Integrity::Listed) {
            let help = "write `trusted` or `untrusted`: a value is no list of names";
            return Err(mistake("/integrity", "a value cannot be `listed`", help));
        }
        let labels = FlowLabels {
            integrity: settings.integrity.unwrap_or(Integrity::Untrusted),
            confidentiality: settings.confidentiality.unwrap_or(Confidentiality::Confidential),
        };
        Ok(Self { name: name.into(), bound: ValueBound::new(&settings.schema)?, labels })
    }

    /// The name by which both planners name the value.
    #[must_use]
    pub const fn name(&self) -> &str {
        &self.name
    }

    /// The labels of the value in the flow of the trusted planner.
    #[must_use]
    pub const fn labels(&self) -> FlowLabels {
        self.labels
    }

    /// Whether a value may pass.
    #[must_use]
    pub fn accepts(&self, value: Value<'_>) -> bool {
        match &self.bound {
            ValueBound::Boolean => value.as_bool().is_some(),
            ValueBound::Number { least, most, is_integer } => {
                let is_short = value.kind() == JsonKind::Number && value.raw().len() <= NUMBER;
                let number = value.as_f64().filter(|_| is_short);
                number.is_some_and(|number| {
                    number >= *least && number <= *most && (!is_integer || number.fract() == 0.0)
                })
            }
            ValueBound::Choice(choices) => {
                value.as_str().is_some_and(|text| choices.iter().any(|choice| **choice == *text))
            }
            ValueBound::Text { pattern, most, .. } => value.as_str().is_some_and(|text| {
                text.chars().count() <= *most
                    && !text.chars().any(char::is_control)
                    && !hidden::has_any(&text)
                    && pattern.is_match(&text)
            }),
        }
    }

    /// What a value has to be, in words.
    #[must_use]
    pub fn description(&self) -> String {
        match &self.bound {
            ValueBound::Boolean => "true or false".to_owned(),
            ValueBound::Number { least, most, is_integer } => {
                let kind = if *is_integer { "integer" } else { "number" };
                format!("{kind} from {least} to {most}")
            }
            ValueBound::Choice(choices) => format!("one of the texts {choices:?}"),
            ValueBound::Text { said, .. } => said.clone(),
        }
    }
}

impl ValueBound {
    fn new(schema: &ChannelSchema) -> Result<Self, ChannelMistake> {
        let has_text = schema.choices.is_some()
            || schema.constant.is_some()
            || schema.pattern.is_some()
            || schema.max_length.is_some()
            || schema.format.is_some();
        let has_number = schema.minimum.is_some() || schema.maximum.is_some();
        match schema.kind {
            ChannelType::Boolean | ChannelType::Number | ChannelType::Integer if has_text => {
                let help = "remove `enum`, `const`, `pattern`, `maxLength` and `format`";
                Err(mistake("/schema", "only a `string` has these bounds", help))
            }
            ChannelType::Boolean | ChannelType::String if has_number => {
                let help = "remove `minimum` and `maximum`";
                Err(mistake("/schema", "only a number has these bounds", help))
            }
            ChannelType::Boolean => Ok(Self::Boolean),
            ChannelType::Number | ChannelType::Integer => Self::number(schema),
            ChannelType::String => Self::text(schema),
        }
    }

    fn number(schema: &ChannelSchema) -> Result<Self, ChannelMistake> {
        let is_integer = schema.kind == ChannelType::Integer;
        let (Some(least), Some(most)) = (schema.minimum, schema.maximum) else {
            let help = "write `minimum` and `maximum`";
            return Err(mistake("/schema", "this number has no bounds", help));
        };
        if least > most || least.abs() > EXACT || most.abs() > EXACT {
            let help = "write a `minimum` that is at most `maximum`, both within 2^53";
            return Err(mistake("/schema", "no number is within these bounds", help));
        }
        Ok(Self::Number { least, most, is_integer })
    }

    fn text(schema: &ChannelSchema) -> Result<Self, ChannelMistake> {
        let ways = [
            schema.choices.is_some(),
            schema.constant.is_some(),
            schema.pattern.is_some(),
            schema.format.is_some(),
        ];
        if ways.into_iter().filter(|has| *has).count() != 1 {
            let help =
                "write exactly one of `enum`, `const`, `pattern` (with `maxLength`) and `format`";
            return Err(mistake("/schema", "this text is not bounded", help));
        }
        let choices = schema.choices.clone().or_else(|| Some(vec![schema.constant.clone()?]));
        if let Some(choices) = choices {
            let is_short = |text: &String| {
                text.chars().count() <= TEXT
                    && !hidden::has_any(text)
                    && !text.chars().any(char::is_control)
            };
            let fits = !choices.is_empty() && choices.len() <= CHOICES;
            if !fits || !choices.iter().all(is_short) {
                let help = "write 1 to 256 texts of at most 256 visible characters";
                return Err(mistake("/schema", "these texts cannot be passed", help));
            }
            return Ok(Self::Choice(choices));
        }
        let most = match (schema.max_length, &schema.pattern) {
            (Some(most), _) if (1..=TEXT).contains(&most) => most,
            (None, None) => TEXT,
            _ => {
                let help = "write a `maxLength` from 1 to 256";
                return Err(mistake("/schema", "the length of this text is not bounded", help));
            }
        };
        let format = schema.format;
        let pattern = format.map(ChannelFormat::pattern).or(schema.pattern.as_deref());
        let pattern = pattern.unwrap_or_default();
        let compiled = RegexBuilder::new(&format!(r"\A(?:{pattern})\z"))
            .size_limit(PATTERN)
            .dfa_size_limit(PATTERN)
            .build();
        let Ok(compiled) = compiled else {
            let help = "write a regular expression in the syntax of RE2";
            return Err(mistake("/schema/pattern", "this is no regular expression", help));
        };
        let said = match format {
            Some(format) => format!("{} of at most {most} characters", format.as_str()),
            None => format!("text of at most {most} characters that matches {pattern}"),
        };
        Ok(Self::Text { pattern: compiled, most, said })
    }
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds};
    use serde_json::json;

    use super::{ChannelEntry, ChannelSettings};

    fn entry(schema: &serde_json::Value) -> Result<ChannelEntry, &'static str> {
        let settings = json!({ "name": "value", "schema": schema });
        let settings: ChannelSettings = serde_json::from_value(settings).map_err(|_e| "unread")?;
        ChannelEntry::new(&settings).map_err(|mistake| mistake.message)
    }

    fn accepts(schema: &serde_json::Value, value: &str) -> bool {
        let document = Document::parse(value.to_owned().into(), &JsonBounds::MESSAGE).unwrap();
        entry(schema).unwrap().accepts(document.root())
    }

    #[test]
    fn a_schema_has_to_bound_the_value() {
        for schema in [
            json!({ "type": "number" }),
            json!({ "type": "number", "minimum": 0 }),
            json!({ "type": "integer", "minimum": 5, "maximum": 4 }),
            json!({ "type": "integer", "minimum": 0, "maximum": 1e30 }),
            json!({ "type": "string" }),
            json!({ "type": "string", "maxLength": 20 }),
            json!({ "type": "string", "pattern": "[a-z]+" }),
            json!({ "type": "string", "pattern": "[a-z]+", "maxLength": 257 }),
            json!({ "type": "string", "pattern": "[a-z", "maxLength": 5 }),
            json!({ "type": "string", "enum": [] }),
            json!({ "type": "string", "enum": ["a\u{200b}b"] }),
            json!({ "type": "string", "enum": ["a"], "format": "date" }),
            json!({ "type": "boolean", "maximum": 1 }),
            json!({ "type": "boolean", "const": "x" }),
            json!({ "type": "array", "items": { "type": "boolean" } }),
            json!({ "type": "object" }),
            json!({ "type": "string", "format": "regex" }),
            json!({ "type": "boolean", "description": "free" }),
        ] {
            assert!(entry(&schema).is_err(), "{schema}");
        }
    }

    #[test]
    fn only_a_value_within_the_bounds_passes() {
        let amount = json!({ "type": "number", "minimum": 0, "maximum": 10000 });
        let count = json!({ "type": "integer", "minimum": 1, "maximum": 9 });
        let flag = json!({ "type": "boolean" });
        let choice = json!({ "type": "string", "enum": ["low", "high"] });
        let code = json!({ "type": "string", "pattern": "[\\p{L} ]+", "maxLength": 8 });
        let date = json!({ "type": "string", "format": "date" });
        let mail = json!({ "type": "string", "format": "email" });
        let page = json!({ "type": "string", "format": "uri" });
        for (schema, value, passes) in [
            (&amount, "42.5", true),
            (&amount, "10000", true),
            (&amount, "10000.01", false),
            (&amount, "-1", false),
            (&amount, "\"42\"", false),
            (&amount, "0.00000000000000000000000000000000001", false),
            (&amount, "[1]", false),
            (&amount, "null", false),
            (&count, "3", true),
            (&count, "3.5", false),
            (&flag, "true", true),
            (&flag, "1", false),
            (&choice, "\"low\"", true),
            (&choice, "\"low \"", false),
            (&code, "\"Müller\"", true),
            (&code, "\"a\\u200bb\"", false),
            (&code, "\"Müller\\n\"", false),
            (&code, "\"much too long\"", false),
            (&date, "\"2026-07-28\"", true),
            (&date, "\"2026-07-28 ignore\"", false),
            (&mail, "\"bob@corp.example\"", true),
            (&mail, "\"write to bob@corp.example\"", false),
            (&page, "\"https://docs.example/a?b=c\"", true),
            (&page, "\"javascript:alert(1)\"", false),
            (&page, "\"https://docs.example/a b\"", false),
        ] {
            assert_eq!(accepts(schema, value), passes, "{schema} {value}");
        }
    }

    #[test]
    fn a_name_and_the_labels_are_checked() {
        for other in [
            json!({ "name": "" }),
            json!({ "name": "a b" }),
            json!({ "name": "a", "integrity": "listed" }),
        ] {
            let mut settings = json!({ "schema": { "type": "boolean" } });
            for (key, value) in other.as_object().unwrap() {
                settings[key] = value.clone();
            }
            let settings: ChannelSettings = serde_json::from_value(settings).unwrap();
            assert!(ChannelEntry::new(&settings).is_err(), "{other}");
        }
    }
}
