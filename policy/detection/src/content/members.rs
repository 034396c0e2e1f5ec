//! Tells by which name a value in a message is known: that of its member, of its column, or of a text beside it.

use std::borrow::Cow;

use json::{JsonKind, Value};

use crate::secrets;

/// Members that hold the value that another member names, in lower case.
pub(super) const VALUES: [&str; 9] =
    ["value", "values", "val", "v", "content", "data", "default", "text", "plaintext"];
/// Members that name such a value, in lower case.
pub(super) const NAMING: [&str; 14] = [
    "name",
    "key",
    "field",
    "header",
    "id",
    "label",
    "param",
    "parameter",
    "property",
    "variable",
    "var",
    "k",
    "title",
    "column",
];
/// Members with the names of the columns of a table, in lower case.
const COLUMNS: [&str; 9] = [
    "columns",
    "cols",
    "headers",
    "header",
    "fields",
    "columnnames",
    "column_names",
    "fieldnames",
    "field_names",
];
/// Members with the rows of such a table, in lower case.
const ROWS: [&str; 8] = ["rows", "data", "values", "records", "results", "items", "body", "result"];
/// Most columns of a table whose names are read.
const MOST: usize = 256;
/// Longest text that is taken for a name, in bytes.
pub(super) const LONGEST: usize = 64;

/// What names a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum NamedBy<'a> {
    /// Nothing gives it a name.
    Nothing,
    /// This name, as it does for each item where the value is a list.
    Name(&'a str),
    /// These names of columns, for each item of each of its rows.
    Columns(&'a [Box<str>]),
    /// These names of columns, for each of its items.
    Row(&'a [Box<str>]),
}

impl<'a> NamedBy<'a> {
    /// The name, where the value has one of its own.
    pub(super) const fn name(self) -> Option<&'a str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Nothing | Self::Columns(_) | Self::Row(_) => None,
        }
    }
}

/// How the values in an object or a list are named.
#[derive(Debug)]
pub(super) struct NamesWithin<'a> {
    /// What names the object or the list.
    outer: NamedBy<'a>,
    /// The names of columns that a member or the first item gives.
    columns: Vec<Box<str>>,
    /// The text that names the value beside it.
    beside: Option<Cow<'a, str>>,
}

impl<'a> NamesWithin<'a> {
    /// How the values in `value`, which `outer` names, are named.
    pub(super) fn of(outer: NamedBy<'a>, value: Value<'a>) -> Self {
        let mut within = Self { outer, columns: Vec::new(), beside: None };
        match value.kind() {
            JsonKind::Array => within.read_list(value),
            JsonKind::Object => within.read_object(value),
            JsonKind::Null
            | JsonKind::Boolean
            | JsonKind::Number
            | JsonKind::Plain
            | JsonKind::Escaped => {}
        }
        within
    }

    fn read_list(&mut self, list: Value<'a>) {
        let mut items = list.items();
        let (first, second, third) = (items.next(), items.next(), items.next());
        let (Some(first), Some(second)) = (first, second) else { return };
        if third.is_none() {
            self.beside = short(first);
        }
        if first.kind() == JsonKind::Array && second.kind() == JsonKind::Array {
            self.columns = columns(first).unwrap_or_default();
        }
    }

    fn read_object(&mut self, object: Value<'a>) {
        let (mut has_value, mut has_rows) = (false, None);
        for (name, member) in object.members() {
            has_value |= is_one_of(&name, &VALUES);
            if member.kind() == JsonKind::Array && is_one_of(&name, &COLUMNS) {
                has_rows = Some(member);
            }
        }
        if has_value {
            let naming = object.members().filter(|(name, _)| is_one_of(name, &NAMING));
            let mut names = naming.filter_map(|(_, member)| short(member));
            self.beside = names.find(|name| secrets::announces(name));
        }
        if let Some(member) = has_rows {
            self.columns = columns(member).unwrap_or_default();
        }
    }

    /// What names the item at this place of the list.
    pub(super) fn item(&self, n: usize) -> NamedBy<'_> {
        match self.outer {
            NamedBy::Row(columns) => {
                let column = columns.get(n).map(|name| &**name);
                let pair = self.beside.as_deref().filter(|_| n == 1);
                let pair = pair.filter(|name| secrets::announces(name));
                pair.or(column).map_or(NamedBy::Nothing, NamedBy::Name)
            }
            NamedBy::Columns(columns) => NamedBy::Row(columns),
            _ if !self.columns.is_empty() => {
                if n == 0 {
                    NamedBy::Nothing
                } else {
                    NamedBy::Row(&self.columns)
                }
            }
            NamedBy::Nothing | NamedBy::Name(_) => {
                let pair = self.beside.as_deref().filter(|_| n == 1);
                let pair = pair.filter(|name| secrets::announces(name));
                pair.map_or(self.outer, NamedBy::Name)
            }
        }
    }

    /// What names the member of this name of the object.
    pub(super) fn member<'n>(&'n self, name: &'n str) -> NamedBy<'n> {
        if !self.columns.is_empty() && is_one_of(name, &ROWS) {
            return NamedBy::Columns(&self.columns);
        }
        let is_value = is_one_of(name, &VALUES);
        match (&self.beside, self.outer) {
            (Some(beside), _) if is_value => NamedBy::Name(beside),
            // What names an object names the value in it, and its key.
            (None, NamedBy::Name(outer)) if is_value || name.eq_ignore_ascii_case("key") => {
                NamedBy::Name(outer)
            }
            _ => NamedBy::Name(name),
        }
    }
}

/// Whether a name is one of these, which are in lower case.
pub(super) fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// A text that may be a name.
fn short(value: Value<'_>) -> Option<Cow<'_, str>> {
    value.as_str().filter(|text| !text.is_empty() && text.len() <= LONGEST)
}

/// The names of the columns of a table; `None` where an item is no name and has none.
fn columns(list: Value<'_>) -> Option<Vec<Box<str>>> {
    let named = |item: Value<'_>| {
        let name = if item.is_object() { item.get("name") } else { Some(item) };
        name.and_then(short).map(|name| name.as_ref().into())
    };
    list.items().take(MOST).map(named).collect()
}
