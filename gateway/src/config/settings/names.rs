//! Checks texts that name something and that nothing else checks: names of listeners and sinks, files, variables, patterns
//! of rules. An empty one names nothing, and one with a line end or another control character is a slip of a quoted YAML
//! text (`"a\b"`), or would look like something else in a log.

use json::pointer::escaped;

use super::problem::ConfigProblem;
use super::yaml::{NodeKind, YamlNode};

/// Places of such texts, as JSON Pointers. `*` stands for one key or position, and `**` at the beginning for any number.
const NAMING: [&str; 14] = [
    "/listeners/*/name",
    "/audit/sinks/*/name",
    "/audit/sinks/*/file",
    "/pins/file",
    "/policy/contact",
    "/policy/rules/*/contact",
    "/policy/rules/*/tools/*",
    "/policy/rules/*/prompts/*",
    "/policy/rules/*/methods/*",
    "/servers/*/command",
    "/servers/*/env/*/name",
    "/servers/*/headers/*/name",
    "**/fromEnv",
    "**/fromFile",
];

/// Each such text that is empty or is not one line. `waives` tells which places are not checked.
pub(super) fn problems(root: &YamlNode, waives: &dyn Fn(&str) -> bool) -> Vec<ConfigProblem> {
    let mut found = Vec::new();
    look(root, "", waives, &mut found);
    found
}

/// INVARIANT: the parser limits the nesting, so the recursion is limited too.
fn look(node: &YamlNode, at: &str, waives: &dyn Fn(&str) -> bool, found: &mut Vec<ConfigProblem>) {
    match &node.kind {
        NodeKind::Scalar(one) => {
            let problem = problem(&one.text).filter(|_| names_something(at) && !waives(at));
            let (message, help) = match problem {
                Some(TextProblem::Empty) => ("the text is empty", "write what it is to name"),
                Some(TextProblem::Control) => (
                    "the text has a line end or another control character",
                    "write it in one line; in double quotes a backslash is written `\\\\`",
                ),
                None => return,
            };
            found.push(ConfigProblem::new(node.span.clone(), message, help));
        }
        NodeKind::Sequence(items) => {
            for (n, item) in items.iter().enumerate() {
                look(item, &format!("{at}/{n}"), waives, found);
            }
        }
        NodeKind::Mapping(members) => {
            for (key, member) in members {
                look(member, &format!("{at}/{}", escaped(&key.text)), waives, found);
            }
        }
    }
}

/// Why a text names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextProblem {
    Empty,
    Control,
}

fn problem(text: &str) -> Option<TextProblem> {
    if text.chars().any(char::is_control) {
        return Some(TextProblem::Control);
    }
    text.trim().is_empty().then_some(TextProblem::Empty)
}

/// Whether the text at this place names something.
fn names_something(at: &str) -> bool {
    NAMING.iter().any(|place| match place.strip_prefix("**") {
        Some(end) => at.ends_with(end),
        None => {
            let (parts, wanted) = (at.split('/'), place.split('/'));
            parts.clone().count() == wanted.clone().count()
                && parts.zip(wanted).all(|(part, wanted)| wanted == "*" || part == wanted)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{TextProblem, names_something, problem};

    #[test]
    fn a_place_is_told_by_its_keys() {
        for (at, names) in [
            ("/listeners/0/name", true),
            ("/policy/rules/12/tools/3", true),
            ("/servers/1/env/0/value/fromEnv", true),
            ("/listeners/0/address", false),
            ("/policy/rules/12/tools", false),
            ("/policy/rules/12/tools/3/x", false),
            ("/servers/1/env/0/value", false),
            ("", false),
        ] {
            assert_eq!(names_something(at), names, "{at}");
        }
    }

    #[test]
    fn a_name_is_one_line_with_something_in_it() {
        for text in ["a", "a b", "*", "é", "世界"] {
            assert_eq!(problem(text), None, "{text}");
        }
        for text in ["", " ", "\u{3000}"] {
            assert_eq!(problem(text), Some(TextProblem::Empty), "{text:?}");
        }
        for text in ["a\nb", "\u{7}", "a\t", "\u{85}", "\n"] {
            assert_eq!(problem(text), Some(TextProblem::Control), "{text:?}");
        }
    }
}
