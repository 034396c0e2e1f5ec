//! Validates arguments and results against the schemas of a definition (control C09).
//!
//! Supports JSON Schema 2020-12, or the draft that `$schema` names. References are only followed within the schema
//! itself, and patterns are matched in linear time.
//!
//! Beside it:
//!
//! - [`declared`]: which arguments an input schema declares

mod patterns;
pub mod declared;
mod keywords;
mod cost;
mod room;

use std::borrow::Cow;
use std::collections::BTreeMap;

use json::{JsonKind, Value};
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Map, Number};

use self::keywords::KeywordContents;
pub use self::room::{CachedSchema, SchemaCache};
use crate::base::work::WorkBudget;

/// Most values in the JSON of a usable schema.
const PARTS: usize = 5000;
/// Longest word quoted from a schema or from arguments, in bytes.
const WORD: usize = 100;
/// Longest JSON Pointer in a message, in bytes.
const PLACE: usize = 512;

/// Most units that a check may have cost for its failure to be explained: an explanation costs a multiple of the
/// check.
const TOLD: u64 = 16 << 20;

/// Estimated memory of a compiled schema, in bytes: per byte of its text, and for each schema.
const EACH_BYTE: usize = 12;
/// The same for each object with members: a map has room for eleven of them, and the validator has its own.
const EACH_OBJECT: usize = 2 * OBJECT;
const LEAST: usize = 2048;

/// Note for a schema that cannot be used.
const UNUSABLE: &str = "the schema in the definition cannot be used";
/// Note for a schema whose patterns would cost too much.
const PATTERNS: &str =
    "the schema in the definition has more patterns, or larger ones, than are matched";

/// A compiled schema, or the reason why it rejects everything.
#[derive(Debug)]
pub struct Schema(Result<CompiledSchema, &'static str>);

/// A parsed schema, from which the cost of a check is computed, with its validator.
#[derive(Debug)]
struct CompiledSchema {
    schema: serde_json::Value,
    validator: Validator,
    /// Estimated memory of its regex automata, in bytes.
    automata: usize,
    /// Length of its text, in bytes.
    length: usize,
    /// Number of its objects.
    objects: usize,
}

/// A violation of a schema or constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaViolation {
    /// JSON Pointer to the offending value.
    pub at: String,
    /// Describes the violation without the value.
    pub note: String,
}

impl Schema {
    /// Compiles a schema. A schema that cannot be used rejects everything.
    #[must_use]
    pub fn new(schema: Value<'_>) -> Self {
        let (mut left, length, objects) = (PARTS, schema.raw().len(), objects(schema));
        let small = plain(schema, &mut left);
        let small = small.filter(|schema| ReferenceWalk::new(schema).cost().is_some());
        Self(small.ok_or(UNUSABLE).and_then(|schema| {
            let automata = patterns::weight(&schema).ok_or(PATTERNS)?;
            let matched = PatternOptions::regex().size_limit(patterns::LARGE);
            let options = jsonschema::options().with_pattern_options(matched);
            let validator = options.build(&schema).map_err(|_error| UNUSABLE)?;
            Ok(CompiledSchema { schema, validator, automata, length, objects })
        }))
    }

    /// Whether a value can fit it: it is not one that rejects everything because it cannot be compiled.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.0.is_ok()
    }

    /// Estimated memory of the compiled schema, in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        let ready = |ready: &CompiledSchema| {
            ready.automata + EACH_BYTE * ready.length + EACH_OBJECT * ready.objects
        };
        LEAST + self.0.as_ref().map_or(0, ready)
    }

    /// Estimated units for compiling it, apart from parsing.
    #[must_use]
    pub fn work(&self) -> usize {
        self.0.as_ref().map_or(0, |ready| ready.automata / patterns::COPIES)
    }

    /// Validates arguments. If they do not match, members that are `null` are treated as absent, since many clients
    /// send `null` for omitted arguments.
    ///
    /// # Errors
    /// As for [`Self::check`].
    pub fn check_arguments(
        &self,
        arguments: Option<Value<'_>>,
        budget: &WorkBudget,
    ) -> Result<(), SchemaViolation> {
        let checked = self.check(arguments, budget);
        let Some(arguments) = arguments.filter(|_| checked.is_err()) else { return checked };
        let null = |(_, member): &(Cow<'_, str>, Value<'_>)| member.kind() == JsonKind::Null;
        if !arguments.members().any(|member| null(&member)) {
            return checked;
        }
        let kept = arguments.members().filter(|member| !null(member));
        let kept = kept.map(|(name, member)| Some((name.into_owned(), whole(member)?)));
        let kept: Option<Map<_, _>> = kept.collect();
        kept.map_or(checked, |kept| self.fits(&kept.into(), budget))
    }

    /// Validates `value`; `None` is an empty object. The cost is charged to `budget`, and exceeding it counts as a
    /// violation.
    ///
    /// # Errors
    /// The first violation, as shown to the sender; the value is not part of it.
    pub fn check(
        &self,
        value: Option<Value<'_>>,
        budget: &WorkBudget,
    ) -> Result<(), SchemaViolation> {
        let of_all = |note: &str| SchemaViolation { at: String::new(), note: note.to_owned() };
        if let Some(value) = value {
            if !budget.spend(value.raw().len()) {
                return Err(of_all("inspection budget exceeded"));
            }
            if !has_room(value) {
                return Err(of_all("has more objects with a single member than can be checked"));
            }
        }
        let value = match value {
            Some(value) => whole(value),
            None => Some(Map::new().into()),
        };
        let value =
            value.ok_or_else(|| of_all("has a number that is not read alike everywhere"))?;
        self.fits(&value, budget)
    }

    fn fits(&self, value: &serde_json::Value, budget: &WorkBudget) -> Result<(), SchemaViolation> {
        let of_all = |note: &str| Err(SchemaViolation { at: String::new(), note: note.to_owned() });
        let CompiledSchema { schema, validator, .. } = match &self.0 {
            Ok(ready) => ready,
            Err(why) => return of_all(why),
        };
        let before = budget.spent();
        if !cost::spend(schema, value, budget) {
            return of_all("inspection budget exceeded");
        }
        if validator.is_valid(value) {
            return Ok(());
        }
        if budget.spent() - before > TOLD {
            return of_all("is not as the schema says");
        }
        // The first violation alone: a list of all of them takes a kilobyte for each item of a value.
        let first = validator.validate(value).err();
        first.map_or_else(|| of_all("is not as the schema says"), |error| Err(misfit(&error)))
    }
}

/// Most subschemas visited for one value; rejects schemas whose references double at every step (vector PV-38).
const STEPS: usize = 50_000;
/// Deepest nesting of subschemas and references: both this walk and the validator are recursive.
const DEEP: usize = 256;

/// Traverses a schema like the validator would, independent of any value.
struct ReferenceWalk<'a> {
    root: &'a serde_json::Value,
    /// Cost of each reference; `None` while it is being computed.
    known: BTreeMap<&'a str, Option<usize>>,
    depth: usize,
}

impl<'a> ReferenceWalk<'a> {
    const fn new(root: &'a serde_json::Value) -> Self {
        Self { root, known: BTreeMap::new(), depth: 0 }
    }

    /// The number of subschemas visited, following every reference; `None` if there are too many, if a reference has
    /// no target, or if a schema refers to itself for the same value, which would never end.
    fn cost(mut self) -> Option<usize> {
        self.part(self.root)
    }

    fn part(&mut self, schema: &'a serde_json::Value) -> Option<usize> {
        self.depth += 1;
        let cost = if self.depth > DEEP { None } else { self.keywords(schema) };
        self.depth -= 1;
        cost.filter(|cost| *cost <= STEPS)
    }

    fn keywords(&mut self, schema: &'a serde_json::Value) -> Option<usize> {
        let mut cost = 1_usize;
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            let held = keywords::holds(keyword);
            match held {
                KeywordContents::Reference => cost += self.reference(value.as_str()?)?,
                KeywordContents::Same | KeywordContents::SameList | KeywordContents::SameMap => {
                    for part in &*keywords::schemas(held, value) {
                        cost += self.part(part)?;
                    }
                }
                KeywordContents::Inside
                | KeywordContents::InsideList
                | KeywordContents::InsideMap => {
                    for part in &*keywords::schemas(held, value) {
                        cost += self.inside(part)?;
                    }
                }
                KeywordContents::Definitions => {
                    for part in &*keywords::schemas(held, value) {
                        self.defined(part)?;
                    }
                }
                KeywordContents::Name if value.is_string() && !std::ptr::eq(schema, self.root) => {
                    return None;
                }
                KeywordContents::Dynamic => return None,
                KeywordContents::Name | KeywordContents::Data => {}
            }
        }
        Some(cost)
    }

    /// Visits a definition that nothing refers to: it has no cost, but must not have a name by which the validator
    /// could find it.
    fn defined(&mut self, schema: &'a serde_json::Value) -> Option<()> {
        self.depth += 1;
        (self.depth <= DEEP).then_some(())?;
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            let held = keywords::holds(keyword);
            (held != KeywordContents::Name || !value.is_string()).then_some(())?;
            for part in &*keywords::schemas(held, value) {
                self.defined(part)?;
            }
        }
        self.depth -= 1;
        Some(())
    }

    /// A subschema for a part of the value, where references may be recursive because values are finite.
    fn inside(&mut self, member: &'a serde_json::Value) -> Option<usize> {
        let open: Vec<&str> =
            self.known.iter().filter(|(_, cost)| cost.is_none()).map(|(to, _)| *to).collect();
        for to in &open {
            self.known.insert(to, Some(1));
        }
        let cost = self.part(member);
        for to in open {
            self.known.insert(to, None);
        }
        cost
    }

    fn reference(&mut self, to: &'a str) -> Option<usize> {
        match self.known.get(to) {
            Some(Some(cost)) => return Some(*cost),
            Some(None) => return None,
            None => {}
        }
        self.known.insert(to, None);
        let target = keywords::target(self.root, to)?;
        let cost = self.part(target)?;
        self.known.insert(to, Some(cost));
        Some(cost)
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "what is not named here is told alike")]
fn misfit(error: &ValidationError<'_>) -> SchemaViolation {
    let mut at = error.instance_path().to_string();
    at.truncate(at.floor_char_boundary(PLACE));
    // Backticks in names chosen by a peer are escaped, since names are printed between backticks.
    let word = |text: &str| {
        let text = text.get(..text.floor_char_boundary(WORD)).unwrap_or_default();
        text.escape_debug().to_string().replace('`', "\\u{60}")
    };
    let note = match error.kind() {
        ValidationErrorKind::Required { property } => {
            format!("`{}` is missing", word(property.as_str().unwrap_or_default()))
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let name = unexpected.first().map_or("", String::as_str);
            format!("`{}` is not one of the members there can be", word(name))
        }
        ValidationErrorKind::Type { kind: TypeKind::Single(kind) } => {
            format!("must be {}", article(&kind.to_string()))
        }
        ValidationErrorKind::Type { kind: TypeKind::Multiple(_) } => {
            "must be of another type".to_owned()
        }
        ValidationErrorKind::Enum { .. } | ValidationErrorKind::Constant { .. } => {
            "must be one of the values that the schema names".to_owned()
        }
        ValidationErrorKind::Minimum { .. } | ValidationErrorKind::ExclusiveMinimum { .. } => {
            "is too small".to_owned()
        }
        ValidationErrorKind::Maximum { .. } | ValidationErrorKind::ExclusiveMaximum { .. } => {
            "is too large".to_owned()
        }
        ValidationErrorKind::MinLength { .. } | ValidationErrorKind::MinItems { .. } => {
            "is too short".to_owned()
        }
        ValidationErrorKind::MaxLength { .. } | ValidationErrorKind::MaxItems { .. } => {
            "is too long".to_owned()
        }
        ValidationErrorKind::Pattern { .. } | ValidationErrorKind::Format { .. } => {
            "does not have the form it has to have".to_owned()
        }
        _ => "is not as the schema says".to_owned(),
    };
    SchemaViolation { at, note }
}

/// The name of a JSON Schema type with its article.
fn article(kind: &str) -> String {
    match kind {
        "integer" | "array" | "object" => format!("an {kind}"),
        "null" => kind.to_owned(),
        other => format!("a {other}"),
    }
}

/// Converts a value for the validator; `None` if a number in it does not fit a double.
fn whole(value: Value<'_>) -> Option<serde_json::Value> {
    let mut left = usize::MAX;
    plain(value, &mut left)
}

/// Bytes that a map with members takes: it has room for eleven of them.
const OBJECT: usize = 640;
/// Most bytes that the maps of a value may take: so many for each byte of its text, and so many for any.
const MAPS_EACH_BYTE: usize = 64;
const MAPS: usize = 1 << 20;

/// Whether the maps of a value take little enough memory. Objects of one member with a short name, and hardly anything else,
/// take a hundred times the length of their text.
fn has_room(value: Value<'_>) -> bool {
    let length = value.raw().len();
    // An object with a member has five bytes at least.
    length / 5 * OBJECT <= MAPS
        || objects(value) * OBJECT <= MAPS + length.saturating_mul(MAPS_EACH_BYTE)
}

/// The number of objects with members in a value.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
fn objects(value: Value<'_>) -> usize {
    match value.kind() {
        JsonKind::Array => value.items().map(objects).sum(),
        JsonKind::Object => {
            let members = value.members().map(|(_, member)| objects(member));
            members.fold(0, |all, one| all.max(1) + one)
        }
        JsonKind::Null
        | JsonKind::Boolean
        | JsonKind::Number
        | JsonKind::Plain
        | JsonKind::Escaped => 0,
    }
}

/// Converts a value of at most `left` values; `None` if it has more, or a number in it does not fit a double.
///
/// An array is allocated once: while one grows that is full of small values, it would be in memory twice.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
fn plain(value: Value<'_>, left: &mut usize) -> Option<serde_json::Value> {
    *left = left.checked_sub(1)?;
    Some(match value.kind() {
        JsonKind::Null => serde_json::Value::Null,
        JsonKind::Boolean => value.as_bool()?.into(),
        JsonKind::Number => number(value.raw())?.into(),
        JsonKind::Plain | JsonKind::Escaped => value.as_str()?.into_owned().into(),
        JsonKind::Array => {
            let count = value.items().count();
            let mut items = Vec::with_capacity(Some(count).filter(|count| count <= left)?);
            for item in value.items() {
                items.push(plain(item, left)?);
            }
            items.into()
        }
        JsonKind::Object => {
            let member = |(name, member): (Cow<'_, str>, Value<'_>)| {
                Some((name.into_owned(), plain(member, left)?))
            };
            value.members().map(member).collect::<Option<Map<_, _>>>()?.into()
        }
    })
}

fn number(raw: &str) -> Option<Number> {
    if let Ok(whole) = raw.parse::<i64>() {
        return Some(whole.into());
    }
    if let Ok(whole) = raw.parse::<u64>() {
        return Some(whole.into());
    }
    Number::from_f64(raw.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds};

    use super::Schema;
    use crate::base::work::WorkBudget;

    #[test]
    fn a_value_of_hardly_anything_but_small_objects_is_not_checked() {
        let document = |text: String| Document::parse(text.into(), &JsonBounds::ANSWER).unwrap();
        let schema = Schema::new(document("{}".to_owned()).root());
        let check = |item: &str| {
            let list = document(format!("[{}0]", format!("{item},").repeat(40_000)));
            schema.check(Some(list.root()), &WorkBudget::unlimited())
        };
        assert!(check(r#"{"name":"a","id":1}"#).is_ok());
        assert!(check(r#"{"a":{"a":{"a":0}}}"#).unwrap_err().note.contains("single member"));
    }

    fn check(schema: &str, value: &str) -> Result<(), (String, String)> {
        let read =
            |text: &str| Document::parse(text.to_owned().into(), &JsonBounds::MESSAGE).unwrap();
        let (schema, value) = (read(schema), read(value));
        let checked =
            Schema::new(schema.root()).check(Some(value.root()), &WorkBudget::unlimited());
        checked.map_err(|misfit| (misfit.at, misfit.note))
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_place_and_without_its_value() {
        let schema = r#"{"type":"object","properties":{"n":{"type":"integer","minimum":1},
            "mode":{"enum":["a","b"]},"tags":{"type":"array","items":{"type":"string","maxLength":3}}},
            "required":["n"],"additionalProperties":false}"#;
        let wrong = |at: &str, note: &str| Err((at.to_owned(), note.to_owned()));
        for (value, expected) in [
            (r#"{"n":1}"#, Ok(())),
            (r#"{"n":1.0,"mode":"b","tags":["abc"]}"#, Ok(())),
            ("{}", wrong("", "`n` is missing")),
            (r#"{"n":"secret"}"#, wrong("/n", "must be an integer")),
            (r#"{"n":1.5}"#, wrong("/n", "must be an integer")),
            (r#"{"n":0}"#, wrong("/n", "is too small")),
            (
                r#"{"n":1,"mode":"secret"}"#,
                wrong("/mode", "must be one of the values that the schema names"),
            ),
            (r#"{"n":1,"tags":["a","secret"]}"#, wrong("/tags/1", "is too long")),
            (r#"{"n":1,"more":1}"#, wrong("", "`more` is not one of the members there can be")),
            (
                r#"{"n":1,"a` is said by `b":1}"#,
                wrong("", r"`a\u{60} is said by \u{60}b` is not one of the members there can be"),
            ),
            (r#"{"n":1e999}"#, wrong("", "has a number that is not read alike everywhere")),
        ] {
            assert_eq!(check(schema, value), expected, "{value}");
        }
    }

    #[test]
    fn a_schema_that_does_not_end_or_doubles_fits_nothing() {
        let doubling = (1..40).fold(r#""a0":{"type":"string"}"#.to_owned(), |all, n| {
            let before = n - 1;
            format!(r##"{all},"a{n}":{{"allOf":[{{"$ref":"#/$defs/a{before}"}},{{"$ref":"#/$defs/a{before}"}}]}}"##)
        });
        for schema in [
            r##"{"$ref":"#"}"##.to_owned(),
            r##"{"anyOf":[{"$ref":"#"},{"type":"string"}]}"##.to_owned(),
            r##"{"$defs":{"a":{"not":{"$ref":"#/$defs/b"}},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##.to_owned(),
            r##"{"$dynamicRef":"#x"}"##.to_owned(),
            // A member of `properties` is a schema irrespective of its name.
            r##"{"properties":{"default":{"$ref":"#/$defs/l"}},"$defs":{"l":{"allOf":[{"$ref":"#/$defs/l"}]}}}"##.to_owned(),
            r##"{"$ref":"#/$defs/a","$defs":{"a":{"dependencies":{"x":{"$ref":"#/$defs/a"}}}}}"##.to_owned(),
            // Names that the validator resolves and the cost estimate does not.
            r##"{"$ref":"#n","$defs":{"a":{"$anchor":"n","type":"object"}}}"##.to_owned(),
            r##"{"$ref":"b.json","$defs":{"a":{"$id":"b.json","type":"object"}}}"##.to_owned(),
            r##"{"properties":{"a":{"$id":"c.json","$ref":"#/$defs/a"}},"$defs":{"a":{}}}"##.to_owned(),
            format!(r##"{{"$defs":{{{}}},"$ref":"#/%24defs/a39"}}"##, doubling.replace("$defs", "%24defs")),
            format!(r##"{{"$defs":{{{doubling}}},"$ref":"#/$defs/a39"}}"##),
        ] {
            assert!(check(&schema, "{}").is_err(), "{schema}");
        }
        // A chain of references has no cycle, but is too deep for the stack.
        let chain = (1..4000).fold(r#""c0":{}"#.to_owned(), |all, n| {
            format!(r##"{all},"c{n}":{{"allOf":[{{"$ref":"#/$defs/c{}"}}]}}"##, n - 1)
        });
        let chain = format!(r##"{{"$defs":{{{chain}}},"$ref":"#/$defs/c3999"}}"##);
        assert!(check(&chain, "{}").is_err());
        let tree = r##"{"type":"object","properties":{"left":{"$ref":"#"},"right":{"$ref":"#"},"n":{"type":"number"}}}"##;
        assert_eq!(check(tree, r#"{"left":{"left":{"n":1}}}"#), Ok(()));
        assert!(check(tree, r#"{"left":{"left":{"n":"x"}}}"#).is_err());
    }

    #[test]
    fn a_schema_whose_patterns_cost_too_much_is_not_made_ready_and_says_why() {
        let part = |n| format!(r#""p{n}":{{"pattern":"^x{n}[ab]{{1,4000}}$"}}"#);
        let schema = |count| {
            let parts: Vec<_> = (0..count).map(part).collect();
            format!(r#"{{"properties":{{{}}}}}"#, parts.join(","))
        };
        assert_eq!(check(&schema(4), r#"{"p0":"x0a"}"#), Ok(()));
        let (_, note) = check(&schema(400), "{}").unwrap_err();
        assert!(note.contains("patterns"), "{note}");
        // A single pattern whose automaton exceeds the limit.
        let (_, note) = check(r#"{"pattern":"(?:[^a]{1000}){1000}"}"#, "{}").unwrap_err();
        assert_eq!(note, super::UNUSABLE);
    }

    #[test]
    fn an_argument_that_is_null_counts_as_absent() {
        let schema = r#"{"type":"object","required":["a"],"properties":{"a":{"type":"string"},"b":{"type":"string"}}}"#;
        let read =
            |text: &str| Document::parse(text.to_owned().into(), &JsonBounds::MESSAGE).unwrap();
        let schema = Schema::new(read(schema).root());
        let budget = WorkBudget::unlimited();
        let fits = |text: &str| schema.check_arguments(Some(read(text).root()), &budget).is_ok();
        assert!(fits(r#"{"a":"x","b":null}"#) && fits(r#"{"a":"x"}"#));
        assert!(!fits(r#"{"a":null}"#) && !fits(r#"{"a":"x","b":1}"#));
    }

    #[test]
    fn a_schema_that_cannot_be_used_fits_nothing() {
        for schema in [
            r#"{"$ref":"https://example.com/schema.json"}"#,
            r#"{"type":"nonsense"}"#,
            r#"{"pattern":"(?=a)"}"#,
            r#"{"properties":{"a":{"$ref":"file:///etc/passwd"}}}"#,
        ] {
            assert!(check(schema, "{}").is_err(), "{schema}");
        }
        let draft7 = r##"{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"x":{"type":"string"}},
            "properties":{"a":{"$ref":"#/definitions/x"},"t":{"items":[{"type":"number"}]}}}"##;
        assert_eq!(check(draft7, r#"{"a":"b","t":[1,"x"]}"#), Ok(()));
        assert!(check(draft7, r#"{"a":1}"#).is_err());
    }
}
