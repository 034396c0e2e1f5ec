//! Compares JSON Schemas by the values they accept.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use json::Value;

use super::{DefinitionDiffer, Risk, is_set, opt_members, pointer, same};

/// Words in the name of an argument through which data can leave or code can run.
const SINKS: [&str; 40] = [
    "url",
    "uri",
    "endpoint",
    "webhook",
    "callback",
    "host",
    "hostname",
    "domain",
    "address",
    "ip",
    "email",
    "mail",
    "recipient",
    "recipients",
    "to",
    "cc",
    "bcc",
    "forward",
    "redirect",
    "proxy",
    "path",
    "file",
    "filename",
    "filepath",
    "directory",
    "dir",
    "folder",
    "output",
    "dest",
    "destination",
    "target",
    "command",
    "cmd",
    "exec",
    "script",
    "shell",
    "code",
    "sql",
    "query",
    "expression",
];

/// Deepest nested schema that is compared member by member.
const DEEPEST: usize = 24;

/// The type names of JSON Schema.
const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];

/// What a narrower subschema means for the whole schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Polarity {
    /// The whole accepts no new values: every accepted value satisfies the subschema.
    #[default]
    Positive,
    /// The whole may accept more: the subschema may be a condition, stand under `not`, or be referenced.
    Unknown,
}

/// What a schema accepts for members that `properties` no longer names.
#[derive(Clone, Copy)]
enum Remaining<'a> {
    /// Such members are rejected.
    Refused,
    /// Values that match this schema.
    Held(Value<'a>),
    /// Any value, or it cannot be determined.
    Open,
}

impl<'a> Remaining<'a> {
    /// Reads `additionalProperties` and `patternProperties` of `schema`.
    fn of(schema: Option<Value<'a>>) -> Self {
        let member = |name: &str| schema.and_then(|schema| schema.get(name));
        match member("additionalProperties") {
            // A pattern may match the name.
            _ if member("patternProperties").is_some() => Self::Open,
            Some(rest) if rest.as_bool() == Some(false) => Self::Refused,
            Some(rest) => Self::Held(rest),
            None => Self::Open,
        }
    }

    /// Whether everything accepted for such members is accepted by `former` as well.
    fn fits(self, former: Value<'_>) -> bool {
        let admits_all = former.as_bool() == Some(true)
            || former.is_object()
                && former.members().all(|(name, _)| SAYS_NOTHING.contains(&&*name));
        admits_all
            || match self {
                Self::Refused => true,
                Self::Held(rest) => same(Some(rest), Some(former)),
                Self::Open => false,
            }
    }
}

/// Keywords that do not affect which values are accepted.
const SAYS_NOTHING: [&str; 8] = [
    "title",
    "description",
    "$comment",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
];

/// Whether subschemas have effects outside their place: by references that do not lead into `$defs`, since then any
/// subschema may be used elsewhere, or by `unevaluated*`, which depends on all of them.
fn is_entangled(schema: Value<'_>) -> bool {
    let own = |(name, value): (std::borrow::Cow<'_, str>, Value<'_>)| match &*name {
        "$ref" => value.as_str().is_some_and(|target| {
            !target.starts_with("#/$defs/") && !target.starts_with("#/definitions/")
        }),
        "$dynamicRef" | "$recursiveRef" | "unevaluatedProperties" | "unevaluatedItems" => true,
        _ => false,
    };
    schema.members().any(own)
        || schema.members().any(|(_, member)| is_entangled(member))
        || schema.items().any(is_entangled)
}

/// Whether the value is absent or an object.
fn is_map(value: Option<Value<'_>>) -> bool {
    value.is_none_or(Value::is_object)
}

/// Classifies a new argument by its name and by the formats in its definition.
pub(super) fn added(name: &str, definition: &str) -> (Risk, &'static str) {
    let format = ["\"uri\"", "\"email\"", "\"hostname\"", "\"uri-reference\"", "\"ipv4\""];
    let sink = words(name).any(|word| SINKS.contains(&&*word))
        || format.iter().any(|format| definition.contains(format));
    if sink {
        return (Risk::Sink, "a new argument through which something can leave or be run");
    }
    (Risk::Parameter, "a new argument")
}

/// The words of an identifier, in lower case: `bccAddress` and `bcc_address` have the same two.
pub fn words(name: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::new();
    let mut lower = false;
    for c in name.chars() {
        if c.is_uppercase() && lower {
            spaced.push(' ');
        }
        lower = c.is_lowercase() || c.is_ascii_digit();
        spaced.extend(if c.is_alphanumeric() { c.to_lowercase().collect() } else { vec![' '] });
    }
    spaced.split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// A keyword whose value is a set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SetKeyword {
    /// The members that have to be given: a longer list accepts less.
    Required,
    /// The values that are accepted: a longer list accepts more.
    Enum,
}

/// The side on which a keyword bounds a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BoundKeyword {
    /// `minimum` and its like.
    Lower,
    /// `maximum` and its like.
    Upper,
}

impl DefinitionDiffer {
    /// Compares two input schemas, either of which may be absent.
    pub(super) fn input(&mut self, at: &str, old: Option<Value<'_>>, new: Option<Value<'_>>) {
        let polarity = match [old, new].into_iter().flatten().any(is_entangled) {
            true => Polarity::Unknown,
            false => Polarity::Positive,
        };
        self.polarity = polarity;
        self.schema(at, old, new, 0);
    }

    /// Notes that fewer values are accepted in one place; a narrowing only if that holds for the whole schema.
    fn narrower(
        &mut self,
        at: &str,
        what: &'static str,
        old: Option<Value<'_>>,
        new: Option<Value<'_>>,
    ) {
        match self.polarity {
            Polarity::Positive => self.note(at, Risk::Narrowing, what, old, new),
            Polarity::Unknown => {
                let what = "less fits a part, which can mean that more is admitted";
                self.note(at, Risk::Other, what, old, new);
            }
        }
    }

    /// Compares two subschemas whose effect on the whole schema is unknown.
    fn apart(&mut self, at: &str, old: Option<Value<'_>>, new: Option<Value<'_>>, depth: usize) {
        let before = std::mem::replace(&mut self.polarity, Polarity::Unknown);
        self.schema(at, old, new, depth);
        self.polarity = before;
    }

    /// Compares two schemas, either of which may be absent.
    pub(super) fn schema(
        &mut self,
        at: &str,
        old: Option<Value<'_>>,
        new: Option<Value<'_>>,
        depth: usize,
    ) {
        let is_schema = |value: Option<Value<'_>>| value.is_some_and(Value::is_object);
        if !is_schema(old) || !is_schema(new) || depth > DEEPEST {
            return match (old, new) {
                (Some(_), None) => self.note(at, Risk::Widening, "a schema is gone", old, new),
                _ => self.other(at, old, new),
            };
        }
        let rest = Remaining::of(new);
        let is_counted = [old, new].into_iter().flatten().any(|of| of.get("maxContains").is_some());
        self.required_unseen(at, old, new);
        for (name, old, new) in opt_members(old, new).into_iter().filter(|(_, a, b)| !same(*a, *b))
        {
            let at = pointer(at, &name);
            let before = self.count();
            match &*name {
                "properties" if is_map(old) && is_map(new) => {
                    self.properties(&at, old, new, rest, depth);
                }
                // With `maxContains`, fewer matching items admit further lists.
                "contains" if is_counted => self.apart(&at, old, new, depth + 1),
                name => self.keyword(&at, name, old, new, depth),
            }
            // A difference that no comparison noted is not understood.
            if self.count() == before {
                self.other(&at, old, new);
            }
        }
    }

    fn keyword(
        &mut self,
        at: &str,
        name: &str,
        old: Option<Value<'_>>,
        new: Option<Value<'_>>,
        depth: usize,
    ) {
        match name {
            "description" | "title" | "$comment" => self.text(at, old, new),
            "required" => self.set(at, old, new, SetKeyword::Required),
            "enum" => self.set(at, old, new, SetKeyword::Enum),
            "type" => self.types(at, old, new),
            "additionalProperties" | "unevaluatedProperties" => self.closed(at, old, new, depth),
            "items" | "contains" | "propertyNames" | "then" | "else"
                if old.is_some_and(Value::is_object) && new.is_some_and(Value::is_object) =>
            {
                self.schema(at, old, new, depth + 1);
            }
            // A narrower condition makes its branches apply to fewer values.
            "if" => self.apart(at, old, new, depth + 1),
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
                self.bound(at, old, new, BoundKeyword::Lower);
            }
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
                self.bound(at, old, new, BoundKeyword::Upper);
            }
            // Prescribing an argument's value prescribes what is sent.
            "const" | "default" | "pattern" | "format" | "$ref" => {
                self.note(at, Risk::Sink, "says what an argument has to be", old, new);
                self.instructing(at, old, new);
            }
            "$defs" | "definitions" if is_map(old) && is_map(new) => {
                // Definitions may be referenced from anywhere.
                for (name, old, new) in opt_members(old, new) {
                    if !same(old, new) {
                        self.apart(&pointer(at, &name), old, new, depth + 1);
                    }
                }
            }
            _ => self.other(at, old, new),
        }
    }

    /// Notes the members that a schema newly requires without having declared them: to a model that reads the schema
    /// these are new arguments, although fewer values are accepted.
    fn required_unseen(&mut self, at: &str, old: Option<Value<'_>>, new: Option<Value<'_>>) {
        let (was, is) =
            (old.and_then(|old| old.get("required")), new.and_then(|new| new.get("required")));
        let declared = old.and_then(|old| old.get("properties"));
        let before: BTreeSet<_> =
            was.into_iter().flat_map(Value::items).filter_map(Value::as_str).collect();
        for name in is.into_iter().flat_map(Value::items).filter_map(Value::as_str) {
            let is_declared = declared.is_some_and(|declared| declared.get(&name).is_some());
            if !before.contains(&name) && !is_declared {
                let (risk, what) = added(&name, "");
                self.note(&pointer(at, "required"), risk, what, was, is);
            }
        }
    }

    /// Compares named members, and what is accepted for those that are no longer named.
    fn properties(
        &mut self,
        at: &str,
        old: Option<Value<'_>>,
        new: Option<Value<'_>>,
        rest: Remaining<'_>,
        depth: usize,
    ) {
        for (name, old, new) in opt_members(old, new).into_iter().filter(|(_, a, b)| !same(*a, *b))
        {
            let at = pointer(at, &name);
            match (old, new) {
                (None, Some(added_one)) => {
                    let (risk, what) = added(&name, added_one.raw());
                    self.note(&at, risk, what, old, new);
                    let mut texts = vec![name.to_string()];
                    super::words::strings(added_one, &mut texts);
                    let (risk, what) = super::words::judge("", &texts.join("\n"));
                    if risk == Risk::Instruction {
                        self.note(&at, risk, what, old, new);
                    }
                }
                (Some(former), None) if rest.fits(former) => {
                    self.narrower(&at, "an argument is gone", old, new);
                }
                (Some(_), None) => {
                    let what = "an argument is gone, and more is admitted under its name";
                    self.note(&at, Risk::Widening, what, old, new);
                }
                _ => self.schema(&at, old, new, depth + 1),
            }
        }
    }

    /// Compares lists that are sets.
    fn set(
        &mut self,
        at: &str,
        old: Option<Value<'_>>,
        new: Option<Value<'_>>,
        keyword: SetKeyword,
    ) {
        let readable = |value: Option<Value<'_>>| value.is_none() || is_set(value).is_some();
        if !readable(old) || !readable(new) {
            return self.other(at, old, new);
        }
        self.instructing(at, old, new);
        // Without `enum` all values are accepted; without `required` nothing is required.
        match (is_set(old), is_set(new)) {
            // A list of one value prescribes what is sent.
            (None, _) if keyword == SetKeyword::Enum => {
                self.note(at, Risk::Sink, "says what an argument has to be", old, new);
            }
            (_, None) if keyword == SetKeyword::Enum => {
                self.note(at, Risk::Widening, "values are no longer listed", old, new);
            }
            (before, after) => {
                let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
                let gained = after.difference(&before).next().is_some();
                let lost = before.difference(&after).next().is_some();
                let (wider, wider_what) = match keyword {
                    SetKeyword::Required => (lost, "something need not be given"),
                    SetKeyword::Enum => (gained, "more values are admitted"),
                };
                let (risk, what) = match (wider, gained || lost) {
                    (true, _) => (Risk::Widening, wider_what),
                    (false, true) => return self.narrower(at, "less is admitted", old, new),
                    (false, false) => (Risk::Cosmetic, "the order is different"),
                };
                self.note(at, risk, what, old, new);
            }
        }
    }

    fn types(&mut self, at: &str, old: Option<Value<'_>>, new: Option<Value<'_>>) {
        let list = |value: Option<Value<'_>>| -> Option<Vec<String>> {
            let value = value?;
            let one = value.as_str().map(|one| vec![one.into_owned()]);
            one.or_else(|| value.items().map(|item| item.as_str().map(Into::into)).collect())
        };
        let known = |value: Option<Value<'_>>| {
            let types = list(value).unwrap_or_default();
            value.is_none()
                || !types.is_empty() && types.iter().all(|one| TYPES.contains(&one.as_str()))
        };
        if !known(old) || !known(new) {
            return self.other(at, old, new);
        }
        let admits = |types: &BTreeSet<String>, wanted: &String| {
            types.contains(wanted) || (wanted == "integer" && types.contains("number"))
        };
        let what = match (list(old), list(new)) {
            (None, _) => return self.narrower(at, "a type is now given", old, new),
            (Some(_), None) => "any type is admitted",
            (Some(before), Some(after)) => {
                let before = before.into_iter().collect();
                if after.iter().all(|one| admits(&before, one)) {
                    return self.narrower(at, "fewer types are admitted", old, new);
                }
                "another type is admitted"
            }
        };
        self.note(at, Risk::Widening, what, old, new);
    }

    /// Compares keywords about members that are not named, which are accepted unless the keyword is `false`.
    fn closed(&mut self, at: &str, old: Option<Value<'_>>, new: Option<Value<'_>>, depth: usize) {
        let is_false = |value: Option<Value<'_>>| value.and_then(Value::as_bool) == Some(false);
        match (old, new) {
            (Some(one), Some(other)) if one.is_object() && other.is_object() => {
                self.schema(at, old, new, depth + 1);
            }
            (_, Some(value)) if value.as_bool().is_none() => self.other(at, old, new),
            _ if is_false(new) => {
                self.narrower(at, "only named members are admitted", old, new);
            }
            _ if is_false(old) => {
                self.note(at, Risk::Widening, "members without a name are admitted", old, new);
            }
            (Some(_), None) | (_, Some(_)) if old.is_some_and(Value::is_object) => {
                self.note(at, Risk::Widening, "other members have no schema", old, new);
            }
            // Beside `unevaluated*`, the keyword marks all members as evaluated.
            _ if self.polarity == Polarity::Unknown => self.other(at, old, new),
            _ => self.note(at, Risk::Cosmetic, "says what holds anyway", old, new),
        }
    }

    fn bound(
        &mut self,
        at: &str,
        old: Option<Value<'_>>,
        new: Option<Value<'_>>,
        bound: BoundKeyword,
    ) {
        let read = |value: Option<Value<'_>>| value.and_then(Value::as_f64);
        let what = match (read(old), read(new)) {
            (None, Some(_)) if old.is_none() => {
                return self.narrower(at, "a bound is new", old, new);
            }
            // Numbers too close for `f64` to distinguish are not tighter.
            (Some(before), Some(after)) => match before.partial_cmp(&after) {
                Some(Ordering::Less) if bound == BoundKeyword::Lower => {
                    return self.narrower(at, "a bound is tighter", old, new);
                }
                Some(Ordering::Greater) if bound == BoundKeyword::Upper => {
                    return self.narrower(at, "a bound is tighter", old, new);
                }
                _ => "a bound is looser",
            },
            _ => "a bound is gone",
        };
        self.note(at, Risk::Widening, what, old, new);
    }

    /// Notes if the strings of a value contain a new instruction.
    fn instructing(&mut self, at: &str, old: Option<Value<'_>>, new: Option<Value<'_>>) {
        let (risk, what) = super::words::compared(old, new);
        if risk == Risk::Instruction {
            self.note(at, risk, what, old, new);
        }
    }
}
