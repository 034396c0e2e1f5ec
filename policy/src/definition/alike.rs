//! Decides whether two definitions are equivalent although their bytes differ: the order of lists that are sets by
//! the schema (`required`, `enum`, `type`) makes no difference, and neither do the values that the operator has
//! declared volatile.
//!
//! The digest of a definition ([`crate::definition::pin`]) covers every byte, and approvals are of that digest. The digest that
//! is computed here is never stored: it is computed from the definitions each time (control C10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use json::pointer::escaped;
use json::{
    InexactNumber, JsonKind as Shape, Value, by_units, write_canonical, write_canonical_string,
};
use policy_core::subject::kind::ItemKind;

use crate::definition::pin::{Digest, DigestSubject};

/// Values that may change between lists, as JSON Pointers (RFC 6901), by server, kind and name.
pub type VolatileMembers = BTreeMap<(Box<str>, ItemKind, Box<str>), Vec<Box<str>>>;

/// The equivalence digest of a definition without volatile values, computed once on demand.
#[derive(Clone, Debug, Default)]
pub struct EquivalenceDigest(OnceLock<Option<Digest>>);

impl EquivalenceDigest {
    /// The equivalence digest of `definition`. `None` when a number in it has no canonical form.
    pub(crate) fn of(
        &self,
        subject: DigestSubject,
        definition: Value<'_>,
        volatile: &[Box<str>],
    ) -> Option<Digest> {
        if volatile.is_empty() {
            return *self.0.get_or_init(|| settled(subject, definition, volatile));
        }
        settled(subject, definition, volatile)
    }
}

/// Most places that are reported of two definitions that differ.
const PLACES: usize = 16;

/// Where two definitions of one item differ, as JSON Pointers, each to the innermost value that an object names.
#[must_use]
pub fn differing(one: Value<'_>, other: Value<'_>) -> Vec<String> {
    let mut places = Vec::new();
    differ(one, other, &mut String::new(), &mut places);
    places.into_iter().map(|place| place.at).collect()
}

/// The evidence that a server generates a value anew at every start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regeneration {
    /// It has the same items in another order.
    Reordered,
    /// It had this value before, and another one in between.
    Returned,
}

/// The members of `pins.volatile` that make two definitions of a tool equivalent, where they differ in defaults alone
/// and those were `remade`: the ones that it names already (`known`), and the new ones. Empty where other values would
/// have to be named: text that a model reads is not ignored because it was seen before.
#[must_use]
pub fn volatile_defaults(
    one: Value<'_>,
    other: Value<'_>,
    known: &[Box<str>],
    remade: Regeneration,
) -> Vec<Box<str>> {
    let mut places = Vec::new();
    differ(one, other, &mut String::new(), &mut places);
    let is_remade = |place: &&DefinitionDifference<'_>| {
        let single = is_single(place.one) && is_single(place.other);
        let is_default = place.at.ends_with("/default") && single;
        is_default && (remade == Regeneration::Returned || is_reordered(place.one, place.other))
    };
    let found: BTreeSet<&str> =
        places.iter().filter(is_remade).map(|place| place.at.as_str()).collect();
    let is_new = |at: &&str| !known.iter().any(|known| **known == **at);
    let new: Vec<&str> = found.into_iter().filter(is_new).collect();
    let members: Vec<Box<str>> =
        known.iter().cloned().chain(new.iter().map(|at| Box::from(*at))).collect();
    let subject = DigestSubject::Offer(ItemKind::Tool);
    let like = settled(subject, one, &members);
    // A suggestion is made only where it makes the definitions equivalent.
    let helps = like.is_some() && like == settled(subject, other, &members);
    if helps && !new.is_empty() && members.len() <= PLACES { members } else { Vec::new() }
}

/// Whether two values are lists of the same items in another order, or comma-separated texts of such lists.
fn is_reordered(one: Value<'_>, other: Value<'_>) -> bool {
    let items = |value: Value<'_>| -> Option<Vec<Vec<u8>>> {
        let mut items: Vec<_> = match value.as_str() {
            Some(text) => text.split(',').map(|item| item.trim().as_bytes().to_vec()).collect(),
            None => value
                .items()
                .map(|item| {
                    let mut out = Vec::new();
                    write_canonical(&mut out, item).map(|()| out).ok()
                })
                .collect::<Option<_>>()?,
        };
        items.sort();
        Some(items)
    };
    let (ours, theirs) = (items(one), items(other));
    ours.as_ref().is_some_and(|items| items.len() > 1) && ours == theirs
}

/// A place at which two definitions differ.
struct DefinitionDifference<'a> {
    /// The place, as a JSON Pointer.
    at: String,
    /// The value of the first definition; the enclosing object where it has none there.
    one: Value<'a>,
    /// The value of the second definition, in the same way.
    other: Value<'a>,
}

/// Collects the places at which two values differ, at most [`PLACES`].
///
/// INVARIANT: the depth of a document is bounded, so the recursion is.
fn differ<'a>(
    one: Value<'a>,
    other: Value<'a>,
    at: &mut String,
    places: &mut Vec<DefinitionDifference<'a>>,
) {
    let plain = |value| {
        let mut out = Vec::new();
        write_canonical(&mut out, value).map(|()| out).ok()
    };
    if places.len() >= PLACES || plain(one).is_some_and(|one| Some(one) == plain(other)) {
        return;
    }
    if !one.is_object() || !other.is_object() {
        places.push(DefinitionDifference { at: at.clone(), one, other });
        return;
    }
    let names = |value: Value<'_>| -> BTreeSet<String> {
        value.members().map(|(name, _)| name.into_owned()).collect()
    };
    for name in names(one).union(&names(other)) {
        let length = at.len();
        at.push('/');
        at.push_str(&escaped(name));
        match (one.get(name), other.get(name)) {
            (Some(one), Some(other)) => differ(one, other, at, places),
            _ if places.len() < PLACES => {
                places.push(DefinitionDifference { at: at.clone(), one, other })
            }
            _ => {}
        }
        at.truncate(length);
    }
}

/// The digest of a definition with its sets sorted and its volatile values left out.
fn settled(subject: DigestSubject, definition: Value<'_>, volatile: &[Box<str>]) -> Option<Digest> {
    let mut writer = EquivalenceWriter { out: Vec::new(), at: String::new(), volatile };
    let part = match subject {
        DigestSubject::Offer(ItemKind::Tool) => SchemaPart::Tool,
        DigestSubject::Offer(_)
        | DigestSubject::Server
        | DigestSubject::Set
        | DigestSubject::Exception
        | DigestSubject::Evaluation => SchemaPart::Data,
    };
    writer.value(definition, part).ok()?;
    Some(Digest::of_alike(subject, &writer.out))
}

/// Whether a value can be left out where it is named: a scalar, or a list of scalars. An object is never left out,
/// because it could hold text that a model reads and that the operator did not name.
fn is_single(value: Value<'_>) -> bool {
    match value.kind() {
        Shape::Object => false,
        Shape::Array => {
            value.items().all(|item| !matches!(item.kind(), Shape::Object | Shape::Array))
        }
        Shape::Null | Shape::Boolean | Shape::Number | Shape::Plain | Shape::Escaped => true,
    }
}

/// The role of a part of a definition, which determines the lists that are sets.
#[derive(Clone, Copy)]
enum SchemaPart {
    /// The definition of a tool.
    Tool,
    /// A single JSON Schema.
    Schema,
    /// An object whose members are schemas.
    Schemas,
    /// A list of schemas, whose order counts.
    ListOfSchemas,
    /// An object whose members are sets.
    Sets,
    /// A list whose order does not count.
    Set,
    /// Anything else: every order counts except that of members.
    Data,
}

impl SchemaPart {
    /// The role of the member `name` of this part.
    fn member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Tool, "inputSchema" | "outputSchema") | (Self::Schemas, _) => Self::Schema,
            (Self::Sets, _) | (Self::Schema, "required" | "enum" | "type") => Self::Set,
            (Self::Schema, "dependentRequired") => Self::Sets,
            (
                Self::Schema,
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
            ) => Self::Schemas,
            (Self::Schema, "allOf" | "anyOf" | "oneOf" | "prefixItems") => Self::ListOfSchemas,
            (
                Self::Schema,
                "items"
                | "contains"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "unevaluatedItems"
                | "propertyNames"
                | "not"
                | "if"
                | "then"
                | "else"
                | "contentSchema",
            ) => Self::Schema,
            (Self::Tool | Self::Schema | Self::ListOfSchemas | Self::Set | Self::Data, _) => {
                Self::Data
            }
        }
    }

    /// The role of an item of this part.
    const fn item(self) -> Self {
        match self {
            Self::ListOfSchemas => Self::Schema,
            Self::Tool | Self::Schema | Self::Schemas | Self::Sets | Self::Set | Self::Data => {
                Self::Data
            }
        }
    }
}

struct EquivalenceWriter<'a> {
    out: Vec<u8>,
    /// The current place, as a JSON Pointer.
    at: String,
    volatile: &'a [Box<str>],
}

impl EquivalenceWriter<'_> {
    /// INVARIANT: the depth of a document is bounded, so the recursion is.
    fn value(&mut self, value: Value<'_>, part: SchemaPart) -> Result<(), InexactNumber> {
        if self.volatile.iter().any(|named| **named == *self.at) && is_single(value) {
            // `~` is no JSON: the digest covers the presence of a volatile value, not the value.
            self.out.push(b'~');
            return Ok(());
        }
        match (value.kind(), part) {
            (Shape::Object, _) => self.object(value, part),
            (Shape::Array, SchemaPart::Set) => self.set(value),
            (Shape::Array, _) => self.list(value, part),
            (Shape::Null | Shape::Boolean | Shape::Number | Shape::Plain | Shape::Escaped, _) => {
                write_canonical(&mut self.out, value)
            }
        }
    }

    fn object(&mut self, value: Value<'_>, part: SchemaPart) -> Result<(), InexactNumber> {
        let mut members: Vec<_> = value.members().collect();
        members.sort_by(|(one, _), (other, _)| by_units(one, other));
        self.out.push(b'{');
        for (n, (name, member)) in members.into_iter().enumerate() {
            self.out.extend_from_slice(if n > 0 { b"," } else { b"" });
            write_canonical_string(&mut self.out, &name);
            self.out.push(b':');
            let length = self.at.len();
            self.at.push('/');
            self.at.push_str(&escaped(&name));
            self.value(member, part.member(&name))?;
            self.at.truncate(length);
        }
        self.out.push(b'}');
        Ok(())
    }

    fn list(&mut self, value: Value<'_>, part: SchemaPart) -> Result<(), InexactNumber> {
        self.out.push(b'[');
        for (n, item) in value.items().enumerate() {
            self.out.extend_from_slice(if n > 0 { b"," } else { b"" });
            let length = self.at.len();
            self.at.push('/');
            self.at.push_str(&n.to_string());
            self.value(item, part.item())?;
            self.at.truncate(length);
        }
        self.out.push(b']');
        Ok(())
    }

    fn set(&mut self, value: Value<'_>) -> Result<(), InexactNumber> {
        let one = |item| {
            let mut out = Vec::new();
            write_canonical(&mut out, item).map(|()| out)
        };
        let mut items: Vec<_> = value.items().map(one).collect::<Result<_, _>>()?;
        items.sort();
        self.out.push(b'[');
        self.out.extend_from_slice(&items.join(&b','));
        self.out.push(b']');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds};
    use policy_core::subject::kind::ItemKind;

    use super::{EquivalenceDigest, Regeneration, volatile_defaults};
    use crate::definition::pin::{Digest, DigestSubject};
    use serde_json::{Value, json};

    fn of(subject: DigestSubject, definition: &Value, volatile: &[&str]) -> Digest {
        let document =
            Document::parse(definition.to_string().into(), &JsonBounds::MESSAGE).unwrap();
        let volatile: Vec<Box<str>> = volatile.iter().map(|at| Box::from(*at)).collect();
        EquivalenceDigest::default().of(subject, document.root(), &volatile).unwrap()
    }

    fn tool(schema: &Value) -> Value {
        json!({ "name": "a", "inputSchema": schema })
    }

    fn same(one: &Value, other: &Value) -> bool {
        let subject = DigestSubject::Offer(ItemKind::Tool);
        of(subject, &tool(one), &[]) == of(subject, &tool(other), &[])
    }

    #[test]
    fn the_order_of_a_set_makes_no_difference_wherever_a_schema_stands() {
        let sets = |a: &str, b: &str| json!({ "required": [a, b], "enum": [a, b], "type": [a, b] });
        let (one, other) = (sets("x", "y"), sets("y", "x"));
        for at in ["/items", "/properties/p", "/$defs/d", "/anyOf/0", "/additionalProperties"] {
            let place = |inner: &Value| {
                let mut schema = json!({ "items": {}, "properties": { "p": {} }, "$defs": { "d": {} },
                    "anyOf": [{}], "additionalProperties": {} });
                *schema.pointer_mut(at).unwrap() = inner.clone();
                schema
            };
            assert!(same(&place(&one), &place(&other)), "{at}");
            assert!(!same(&place(&one), &place(&sets("x", "z"))), "{at}");
        }
        let dependent = |a: &str, b: &str| json!({ "dependentRequired": { "p": [a, b] } });
        assert!(same(&dependent("x", "y"), &dependent("y", "x")));
    }

    #[test]
    fn what_is_to_be_named_as_volatile_is_defaults_alone_and_only_where_that_helps() {
        let members = |one: &Value, other: &Value, remade: Regeneration| {
            let parse = |value: &Value| {
                Document::parse(tool(value).to_string().into(), &JsonBounds::MESSAGE).unwrap()
            };
            let (one, other) = (parse(one), parse(other));
            volatile_defaults(one.root(), other.root(), &["/x".into()], remade).join(" ")
        };
        let with = |default: Value, about: &str| json!({ "description": about, "required": ["p", "q"], "properties": { "p": { "default": default } } });
        let at = "/x /inputSchema/properties/p/default";
        let both = [Regeneration::Reordered, Regeneration::Returned];
        for (one, other, wanted) in [
            (json!("a,b, c"), json!("c,a,b"), [at, at]),
            (json!(["a", "b"]), json!(["b", "a"]), [at, at]),
            (json!("a,b"), json!("a,c"), ["", at]),
            (json!("day 1"), json!("day 2"), ["", at]),
            (json!({ "a": 1 }), json!({ "a": 2 }), ["", ""]),
            (json!("a"), json!("a"), ["", ""]),
        ] {
            for (remade, wanted) in both.into_iter().zip(wanted) {
                let found = members(&with(one.clone(), "x"), &with(other.clone(), "x"), remade);
                assert_eq!(found, wanted, "{one} {other}");
                // A change of a text that models read remains a change.
                let found = members(&with(one.clone(), "x"), &with(other.clone(), "y"), remade);
                assert_eq!(found, "", "{one} {other}");
            }
        }
        // A reordered set is no change, so it is not named.
        let mut sets = with(json!("b,a"), "x");
        sets["required"] = json!(["q", "p"]);
        assert_eq!(members(&with(json!("a,b"), "x"), &sets, Regeneration::Reordered), at);
    }

    #[test]
    fn the_order_of_anything_else_counts() {
        for at in ["/default", "/const", "/examples", "/x-vendor", "/prefixItems", "/oneOf"] {
            let place = |first: &str, second: &str| {
                let mut schema = json!({});
                schema[at.trim_start_matches('/')] = json!([first, second]);
                schema
            };
            assert!(!same(&place("x", "y"), &place("y", "x")), "{at}");
        }
        // In data these names have no special meaning.
        let data = |a: &str, b: &str| json!({ "default": { "required": [a, b] } });
        assert!(!same(&data("x", "y"), &data("y", "x")));
        let names = |a: &str, b: &str| json!({ "properties": { "enum": { "default": [a, b] } } });
        assert!(!same(&names("x", "y"), &names("y", "x")));
        let prompt = |a: &str, b: &str| json!({ "name": "p", "inputSchema": { "enum": [a, b] } });
        let subject = DigestSubject::Offer(ItemKind::Prompt);
        assert_ne!(of(subject, &prompt("x", "y"), &[]), of(subject, &prompt("y", "x"), &[]));
    }

    #[test]
    fn a_volatile_value_is_left_out_where_it_is_named_and_nothing_else_is() {
        let definition = |value: Value, text: &str| {
            json!({ "name": "a", "description": text, "inputSchema": { "properties": {
                "p": { "default": value, "description": "x" } } } })
        };
        let at = "/inputSchema/properties/p/default";
        let like = |value: Value, text: &str, volatile: &[&str]| {
            of(DigestSubject::Offer(ItemKind::Tool), &definition(value, text), volatile)
        };
        assert_eq!(like(json!("a"), "d", &[at]), like(json!(["b", 1]), "d", &[at]));
        assert_ne!(like(json!("a"), "d", &[at]), like(json!("b"), "d", &[]));
        assert_ne!(like(json!("a"), "d", &[at]), like(json!("a"), "e", &[at]));
        // An object is never left out, because it could hold text that is not named.
        let object = |text: &str| json!({ "description": text });
        assert_ne!(like(object("a"), "d", &[at]), like(object("b"), "d", &[at]));
        assert_ne!(like(json!([object("a")]), "d", &[at]), like(json!([object("b")]), "d", &[at]));
        let outer = "/inputSchema/properties/p";
        assert_ne!(like(json!("a"), "d", &[outer]), like(json!("b"), "d", &[outer]));
        // The presence of a value counts.
        let without = json!({ "name": "a", "description": "d", "inputSchema": { "properties": {
            "p": { "description": "x" } } } });
        assert_ne!(
            like(json!("a"), "d", &[at]),
            of(DigestSubject::Offer(ItemKind::Tool), &without, &[at])
        );
    }
}
