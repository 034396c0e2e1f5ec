//! Compares two definitions, and classifies each change by its risk.
//!
//! Definitions are compared by meaning: the order of members, and of lists that are sets, is cosmetic; arguments are
//! matched by name; and texts are examined for new instructions. A change that is not understood counts as
//! significant (control C10, threats T1201 and T1501).

mod words;
mod schema;

use std::collections::BTreeSet;
use std::fmt;

use json::pointer::escaped;
use json::{JsonKind as Shape, Value};
use policy_core::subject::kind::{ItemKind, letters};

use crate::definition::lock::{ApprovalState, LockedServer, LockedVersion};
use crate::definition::offer::{Catalog, CatalogItem};
use crate::definition::pin::{Digest, DigestSubject};

pub use policy_core::base::hidden::visible;
pub use schema::words as words_of;
pub use words::LOST_LIMIT;

/// Most removed definitions that a new one is compared with.
const FORMER: usize = 32;
/// Most changes reported for one definition.
const MOST: usize = 64;

/// Risk class of a change, in ascending order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// White space, case, punctuation, order, or a version number.
    Cosmetic,
    /// Fewer values are accepted than before.
    Narrowing,
    /// A text has other words, without new instructions.
    Wording,
    /// A change that is not understood.
    Other,
    /// More is accepted than before: a type, a value, the omission of an argument.
    Widening,
    /// An argument was added.
    Parameter,
    /// A server declares a new capability.
    Capability,
    /// An annotation about the danger of a tool has changed.
    Annotation,
    /// An argument was added through which data can leave or code can run: a URL, an address, a path, a command.
    Sink,
    /// A text now contains an instruction, names a URL or another tool, or has invisible characters.
    Instruction,
}

impl Risk {
    /// All classes, in ascending order.
    pub const ALL: [Self; 10] = [
        Self::Cosmetic,
        Self::Narrowing,
        Self::Wording,
        Self::Other,
        Self::Widening,
        Self::Parameter,
        Self::Capability,
        Self::Annotation,
        Self::Sink,
        Self::Instruction,
    ];

    /// Name in the configuration and in audit records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cosmetic => "cosmetic",
            Self::Narrowing => "narrowing",
            Self::Wording => "wording",
            Self::Other => "other",
            Self::Widening => "widening",
            Self::Parameter => "parameter",
            Self::Capability => "capability",
            Self::Annotation => "annotation",
            Self::Sink => "sink",
            Self::Instruction => "instruction",
        }
    }
}

/// One difference between two definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionChange {
    /// JSON Pointer (RFC 6901) into the definition.
    pub at: String,
    /// Risk class of the change.
    pub risk: Risk,
    /// Describes the change; fixed text, never taken from the definition.
    pub what: &'static str,
    /// The former value as JSON, with invisible characters escaped; `None` if the member was absent.
    pub before: Option<String>,
    /// The new value, in the same form; `None` if the member was removed.
    pub after: Option<String>,
}

impl fmt::Display for DefinitionChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The server chose the names in the place, and whoever reads it decides by it.
        write!(f, "{} at `{}`: {}", self.risk.as_str(), visible(&self.at), self.what)
    }
}

/// The differences between two definitions of the same thing; empty if they are equivalent.
#[must_use]
pub fn compare(
    subject: DigestSubject,
    before: Value<'_>,
    after: Value<'_>,
) -> Vec<DefinitionChange> {
    let mut differ =
        DefinitionDiffer { changes: Vec::new(), dropped: 0, polarity: schema::Polarity::default() };
    for (name, old, new) in members(before, after) {
        let at = pointer("", &name);
        if same(old, new) {
            continue;
        }
        match (subject, &*name) {
            (DigestSubject::Offer(ItemKind::Tool), "inputSchema") => differ.input(&at, old, new),
            (DigestSubject::Offer(ItemKind::Tool), "annotations") => {
                differ.annotations(&at, old, new)
            }
            (DigestSubject::Offer(ItemKind::Prompt), "arguments") => {
                differ.arguments(&at, old, new)
            }
            (DigestSubject::Offer(ItemKind::Skill), "resources") => differ.files(&at, old, new),
            (DigestSubject::Server, "capabilities") => differ.capabilities(&at, old, new),
            (DigestSubject::Server, "serverInfo") => differ.info(&at, old, new),
            (_, "description" | "title" | "instructions") => differ.text(&at, old, new),
            _ => differ.other(&at, old, new),
        }
    }
    differ.changes
}

/// Whether two definitions have enough in common for the second to be a renamed copy of the first.
#[must_use]
pub fn is_renamed(key: &str, before: Value<'_>, after: Value<'_>) -> bool {
    let without = |value: Value<'_>| -> BTreeSet<(Box<str>, Digest)> {
        let fields = Digest::of_fields(DigestSubject::Set, value).unwrap_or_default();
        fields
            .into_iter()
            .filter(|(name, _)| !matches!(&**name, "title") && **name != *key)
            .collect()
    };
    let (old, new) = (without(before), without(after));
    if !old.is_empty() && old == new {
        return true;
    }
    let text = |value: Value<'_>| {
        value.get("description").and_then(Value::as_str).unwrap_or_default().into_owned()
    };
    let names = |value: Value<'_>| -> BTreeSet<String> {
        let properties = value.get("inputSchema").and_then(|schema| schema.get("properties"));
        properties.into_iter().flat_map(Value::members).map(|(name, _)| name.into_owned()).collect()
    };
    names(before) == names(after) && words::alike(&text(before), &text(after))
}

/// Differences from the nearest approved version.
#[derive(Debug, Default)]
pub struct Drift<'a> {
    /// The approved version with the fewest and least severe changes; `None` if none is approved.
    pub from: Option<&'a LockedVersion>,
    /// The differences from that version.
    pub changes: Vec<DefinitionChange>,
}

impl Drift<'_> {
    /// Whether no change is known to accept further arguments or values. Even if an operator accepts all drift,
    /// arguments are then still checked against the approved definition.
    #[must_use]
    pub fn is_within(&self) -> bool {
        let others = [Risk::Widening, Risk::Parameter, Risk::Sink];
        !self.changes.iter().any(|change| others.contains(&change.risk))
    }
}

/// The differences from the approved version that is nearest; empty if none is approved.
#[must_use]
pub fn nearest<'a>(
    versions: &'a [LockedVersion],
    subject: DigestSubject,
    definition: Value<'_>,
) -> Drift<'a> {
    let approved = versions.iter().filter(|version| version.state == ApprovalState::Approved);
    let drifts = approved.map(|version| {
        let changes = compare(subject, version.definition.value(), definition);
        Drift { from: Some(version), changes }
    });
    let gravity = |drift: &Drift<'_>| {
        (drift.changes.iter().map(|change| change.risk).max(), drift.changes.len())
    };
    drifts.min_by_key(gravity).unwrap_or_default()
}

/// The name of an approved definition like `offer` that is no longer listed. The new definition inherits no trust
/// from it, but the two are reported together (threat T1405).
#[must_use]
pub fn former_name<'a>(
    locked: &'a LockedServer,
    catalog: &Catalog,
    offer: &CatalogItem,
) -> Option<&'a str> {
    let kind = offer.kind();
    let gone = |name: &str| catalog.offer(name).is_none();
    let former = locked.offers.iter().filter(|((of, name), _)| *of == kind && gone(name));
    let mut former = former.take(FORMER);
    let is = |version: &LockedVersion| {
        is_renamed(kind.key(), version.definition.value(), offer.definition())
    };
    former.find(|(_, versions)| versions.iter().any(is)).map(|((_, name), _)| &**name)
}

/// Collects the differences of two definitions.
struct DefinitionDiffer {
    changes: Vec<DefinitionChange>,
    /// Number of changes beyond [`MOST`].
    dropped: usize,
    /// What a narrower subschema means for the whole schema that is compared.
    polarity: schema::Polarity,
}

impl DefinitionDiffer {
    fn note(
        &mut self,
        at: &str,
        risk: Risk,
        what: &'static str,
        old: Option<Value<'_>>,
        new: Option<Value<'_>>,
    ) {
        // Made only where it is kept: each item of a long list can be a change of the whole list.
        let change = || {
            let (before, after) = (old.map(words::shown), new.map(words::shown));
            DefinitionChange { at: at.to_owned(), risk, what, before, after }
        };
        if self.changes.len() < MOST {
            self.changes.push(change());
            return;
        }
        // More severe changes replace less severe ones.
        self.dropped += 1;
        let least = self.changes.iter_mut().min_by_key(|change| change.risk);
        if let Some(least) = least.filter(|least| least.risk < risk) {
            *least = change();
        }
    }

    fn text(&mut self, at: &str, old: Option<Value<'_>>, new: Option<Value<'_>>) {
        let read = |value: Option<Value<'_>>| match value {
            None => Some(String::new()),
            Some(value) => value.as_str().map(std::borrow::Cow::into_owned),
        };
        let (Some(before), Some(after)) = (read(old), read(new)) else {
            return self.other(at, old, new);
        };
        let (risk, what) = words::judge(&before, &after);
        self.note(at, risk, what, old, new);
    }

    fn count(&self) -> usize {
        self.changes.len() + self.dropped
    }

    fn other(&mut self, at: &str, old: Option<Value<'_>>, new: Option<Value<'_>>) {
        let (risk, what) = words::compared(old, new);
        if risk == Risk::Instruction {
            self.note(at, risk, what, old, new);
        } else {
            let what = match (old, new) {
                (None, _) => "a member is new",
                (_, None) => "a member is gone",
                _ => "a member is different",
            };
            self.note(at, Risk::Other, what, old, new);
        }
    }

    fn annotations(&mut self, at: &str, old: Option<Value<'_>>, new: Option<Value<'_>>) {
        let empty = |value: Option<Value<'_>>| value.is_none_or(|value| value.is_object());
        if !empty(old) || !empty(new) {
            return self.other(at, old, new);
        }
        for (name, old, new) in opt_members(old, new).into_iter().filter(|(_, a, b)| !same(*a, *b))
        {
            let at = pointer(at, &name);
            let what = match &*letters(&name) {
                "readonlyhint" | "destructivehint" | "idempotenthint" | "openworldhint" => {
                    "the server says otherwise how dangerous it is"
                }
                "title" => {
                    self.text(&at, old, new);
                    continue;
                }
                _ => {
                    self.other(&at, old, new);
                    continue;
                }
            };
            self.note(&at, Risk::Annotation, what, old, new);
        }
    }

    /// Compares the files of a skill: a list of objects with unique URIs. What a file says is known by its digest alone,
    /// so each change may bring new instructions.
    fn files(&mut self, at: &str, old: Option<Value<'_>>, new: Option<Value<'_>>) {
        let (Some(before), Some(after)) = (by_member("uri", old), by_member("uri", new)) else {
            return self.other(at, old, new);
        };
        for (uri, file) in &after {
            let former = before.get(uri).copied();
            let what = match former {
                None => "a file of the skill is new",
                Some(former) if same(Some(former), Some(*file)) => continue,
                Some(_) => "a file of the skill is different",
            };
            self.note(&pointer(at, uri), Risk::Instruction, what, former, Some(*file));
        }
        for (uri, file) in before.iter().filter(|(uri, _)| !after.contains_key(*uri)) {
            let at = pointer(at, uri);
            self.note(&at, Risk::Instruction, "a file of the skill is gone", Some(*file), None);
        }
    }

    /// Compares the arguments of a prompt: a list of objects with unique names.
    fn arguments(&mut self, at: &str, old: Option<Value<'_>>, new: Option<Value<'_>>) {
        let (Some(before), Some(after)) = (by_member("name", old), by_member("name", new)) else {
            return self.other(at, old, new);
        };
        let mut changed = false;
        for (name, item) in &after {
            let at = pointer(at, name);
            match before.get(name) {
                None => {
                    let (risk, what) = schema::added(name, item.raw());
                    self.note(&at, risk, what, None, Some(*item));
                    let (risk, what) = words::compared(None, Some(*item));
                    if risk == Risk::Instruction {
                        self.note(&at, risk, what, None, Some(*item));
                    }
                }
                Some(former) if same(Some(*former), Some(*item)) => continue,
                Some(former) => self.other(&at, Some(*former), Some(*item)),
            }
            changed = true;
        }
        for (name, item) in before.iter().filter(|(name, _)| !after.contains_key(*name)) {
            let at = pointer(at, name);
            let needed = item.get("required").and_then(Value::as_bool) == Some(true);
            let (risk, what) = match needed {
                true => (Risk::Widening, "an argument that had to be given is gone"),
                false => (Risk::Narrowing, "an argument is gone"),
            };
            self.note(&at, risk, what, Some(*item), None);
            changed = true;
        }
        if !changed {
            self.note(at, Risk::Cosmetic, "the order is different", old, new);
        }
    }

    fn capabilities(&mut self, at: &str, old: Option<Value<'_>>, new: Option<Value<'_>>) {
        for (name, old, new) in opt_members(old, new).into_iter().filter(|(_, a, b)| !same(*a, *b))
        {
            let at = pointer(at, &name);
            match (old, new) {
                (None, Some(_)) => {
                    self.note(&at, Risk::Capability, "the server says it can do more", old, new);
                }
                (Some(_), None) => {
                    self.note(&at, Risk::Narrowing, "the server says it can do less", old, new);
                }
                _ => self.note(&at, Risk::Capability, "a capability is different", old, new),
            }
        }
    }

    fn info(&mut self, at: &str, old: Option<Value<'_>>, new: Option<Value<'_>>) {
        for (name, old, new) in opt_members(old, new).into_iter().filter(|(_, a, b)| !same(*a, *b))
        {
            let at = pointer(at, &name);
            match &*name {
                "version" if is_version(new) => {
                    self.note(&at, Risk::Cosmetic, "the version is different", old, new);
                }
                "title" | "description" => self.text(&at, old, new),
                _ => self.other(&at, old, new),
            }
        }
    }
}

/// Whether a value has the form of a version, so that its change is cosmetic.
fn is_version(value: Option<Value<'_>>) -> bool {
    let text = value.and_then(Value::as_str).unwrap_or_default();
    let part = |byte: u8| byte.is_ascii_alphanumeric() || b".-+_".contains(&byte);
    (1..=32).contains(&text.len())
        && text.bytes().all(part)
        && text.contains(|c: char| c.is_ascii_digit())
}

/// The items of a list by the text of a member; `None` if it is not a list, or if such texts are missing or repeated.
fn by_member<'a>(
    member: &str,
    list: Option<Value<'a>>,
) -> Option<std::collections::BTreeMap<String, Value<'a>>> {
    let Some(list) = list else { return Some(std::collections::BTreeMap::new()) };
    if list.kind() != Shape::Array {
        return None;
    }
    let mut named = std::collections::BTreeMap::new();
    for item in list.items() {
        let name = item.get(member).and_then(Value::as_str)?.into_owned();
        if named.insert(name, item).is_some() {
            return None;
        }
    }
    Some(named)
}

/// Every member name of two objects, with its value in each.
fn members<'a>(
    old: Value<'a>,
    new: Value<'a>,
) -> Vec<(Box<str>, Option<Value<'a>>, Option<Value<'a>>)> {
    opt_members(Some(old), Some(new))
}

fn opt_members<'a>(
    old: Option<Value<'a>>,
    new: Option<Value<'a>>,
) -> Vec<(Box<str>, Option<Value<'a>>, Option<Value<'a>>)> {
    let list = |value: Option<Value<'a>>| -> std::collections::BTreeMap<Box<str>, Value<'a>> {
        value.into_iter().flat_map(Value::members).map(|(k, v)| (k.into(), v)).collect()
    };
    let (mut old, new) = (list(old), list(new));
    let mut all: Vec<_> = Vec::new();
    for (name, value) in new {
        let before = old.remove(&name);
        all.push((name, before, Some(value)));
    }
    all.extend(old.into_iter().map(|(name, value)| (name, Some(value), None)));
    all.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    all
}

/// Whether both values are equal in canonical form, or both are absent.
fn same(old: Option<Value<'_>>, new: Option<Value<'_>>) -> bool {
    match (old, new) {
        (None, None) => true,
        (Some(old), Some(new)) => {
            if old.raw() == new.raw() {
                return true;
            }
            let plain = |value| {
                let mut out = Vec::new();
                json::write_canonical(&mut out, value).map(|()| out)
            };
            matches!((plain(old), plain(new)), (Ok(old), Ok(new)) if old == new)
        }
        _ => false,
    }
}

fn pointer(at: &str, name: &str) -> String {
    format!("{at}/{}", escaped(name))
}

fn is_set(value: Option<Value<'_>>) -> Option<BTreeSet<Vec<u8>>> {
    let value = value?;
    if value.kind() != Shape::Array {
        return None;
    }
    let plain = |item| {
        let mut out = Vec::new();
        json::write_canonical(&mut out, item).map(|()| out)
    };
    value.items().map(plain).collect::<Result<_, _>>().ok()
}

#[cfg(test)]
mod tests;
