//! Finds which arguments that `review` remarks on are already constrained, so that `portcullis scan` can list those
//! that are not.

use super::{ArgumentType, Constraint};
use crate::json::pointer::unescaped;
use crate::subject::mode::Mode;
use crate::subject::name::ServerName;

/// One step from a schema to an argument.
#[derive(Debug, PartialEq, Eq)]
enum ArgumentStep {
    /// The member with this name.
    Member(Box<str>),
    /// Each item of an array, or each member whose name the schema does not state.
    Each,
}

/// The argument described at `at`, a JSON Pointer below `/inputSchema` in the definition of a tool; `None` if the
/// place does not identify it, as within `$defs`.
fn argument(at: &str) -> Option<Vec<ArgumentStep>> {
    let mut parts = at.strip_prefix("/inputSchema/")?.split('/');
    let mut found = Vec::new();
    while let Some(keyword) = parts.next() {
        match keyword {
            "properties" => found.push(ArgumentStep::Member(unescaped(parts.next()?).into())),
            "items" | "contains" | "additionalProperties" => found.push(ArgumentStep::Each),
            "prefixItems" => {
                parts.next()?;
                found.push(ArgumentStep::Each);
            }
            // These describe the same value.
            "anyOf" | "oneOf" | "allOf" => {
                parts.next()?;
            }
            _ => return None,
        }
    }
    Some(found)
}

impl Constraint {
    /// Whether the constraint is enforced and restricts the values of the argument that is described at `at` in the
    /// definition of `tool` (a JSON Pointer such as `/inputSchema/properties/path`), if the argument is used as a
    /// `meant`.
    #[must_use]
    pub fn limits(&self, server: &ServerName, tool: &str, at: &str, meant: ArgumentType) -> bool {
        let acts = self.mode == Mode::Enforce && self.is_of(server, tool);
        acts && self.says_which(meant) && argument(at).is_some_and(|place| self.reaches(&place))
    }

    /// Whether the constraint restricts the values that a `meant` may have. A limit of the length alone does not.
    fn says_which(&self, meant: ArgumentType) -> bool {
        let limits = &self.limits;
        let listed = !limits.values.is_empty() || limits.pattern.is_some();
        listed
            || match meant {
                ArgumentType::Any => limits.kind != ArgumentType::Any || !limits.forbid.is_empty(),
                ArgumentType::Path | ArgumentType::Url | ArgumentType::Email => {
                    limits.kind == meant
                }
            }
    }

    /// Whether the constraint checks the value at `place`, or each item of it. A constraint on items rejects a value
    /// that is not an array.
    fn reaches(&self, place: &[ArgumentStep]) -> bool {
        let at = match self.at.split_last() {
            Some((last, list)) if **last == *"*" && list.len() == place.len() => list,
            _ => &self.at,
        };
        let is_met = |(part, its): (&str, &ArgumentStep)| match its {
            _ if part == "*" => true,
            ArgumentStep::Member(name) => *part == **name,
            ArgumentStep::Each => false,
        };
        at.len() == place.len() && at.iter().map(|part| &**part).zip(place).all(is_met)
    }
}

#[cfg(test)]
mod tests {
    use super::{ArgumentStep, argument};

    #[test]
    fn the_place_of_an_argument_is_read_from_that_of_its_schema() {
        let member = |name: &str| ArgumentStep::Member(name.into());
        for (at, expected) in [
            ("/inputSchema/properties/path", Some(vec![member("path")])),
            ("/inputSchema/properties/a~1b", Some(vec![member("a/b")])),
            (
                "/inputSchema/properties/files/items/anyOf/1/properties/items",
                Some(vec![member("files"), ArgumentStep::Each, member("items")]),
            ),
            ("/inputSchema/$defs/file/properties/path", None),
            ("/inputSchema/not/properties/path", None),
            ("/description", None),
        ] {
            assert_eq!(argument(at), expected, "{at}");
        }
    }
}
