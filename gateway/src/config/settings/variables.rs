//! Substitutes `${VAR}` in scalars. It runs after parsing, so that a variable can change a value but never the
//! structure.

use super::problem::ConfigProblem;
use super::yaml::{NodeKind, Scalar, YamlNode};

/// Returns the value of a variable; `None` if it is not set.
pub(super) type VariableLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The references that could not be substituted.
#[derive(Debug, Default)]
pub(super) struct SubstitutionProblems {
    /// References to variables that are not set.
    pub(super) unset: Vec<ConfigProblem>,
    /// References with invalid syntax.
    pub(super) malformed: Vec<ConfigProblem>,
}

impl SubstitutionProblems {
    /// All of these problems.
    pub(super) fn all(self) -> impl Iterator<Item = ConfigProblem> {
        self.unset.into_iter().chain(self.malformed)
    }
}

/// Why a scalar could not be expanded, with the message and the help.
#[derive(Debug)]
enum ExpansionError {
    /// A variable is not set.
    Unset(String, String),
    /// A reference has invalid syntax.
    Malformed(String, String),
}

/// Substitutes the variables in every scalar under `node`. A scalar that cannot be expanded is left unchanged.
pub(super) fn substitute(
    node: &mut YamlNode,
    lookup: VariableLookup<'_>,
    left: &mut SubstitutionProblems,
) {
    match &mut node.kind {
        NodeKind::Sequence(items) => {
            items.iter_mut().for_each(|item| substitute(item, lookup, left));
        }
        NodeKind::Mapping(members) => {
            members.iter_mut().for_each(|(_, member)| substitute(member, lookup, left));
        }
        NodeKind::Scalar(scalar) if scalar.text.contains("${") => {
            match expand(&scalar.text, lookup) {
                Ok(text) => *scalar = Scalar { text, plain: scalar.plain, substituted: true },
                Err(ExpansionError::Unset(message, help)) => {
                    let problem = ConfigProblem::new(node.span.clone(), message, help);
                    left.unset.push(problem.of_unset_variable());
                }
                Err(ExpansionError::Malformed(message, help)) => {
                    left.malformed.push(ConfigProblem::new(node.span.clone(), message, help));
                }
            }
        }
        NodeKind::Scalar(_) => {}
    }
}

/// Looks up every variable that a scalar under `node` refers to, even if an earlier one is not set.
pub(super) fn look_up(node: &YamlNode, lookup: VariableLookup<'_>) {
    match &node.kind {
        NodeKind::Sequence(items) => items.iter().for_each(|item| look_up(item, lookup)),
        NodeKind::Mapping(members) => {
            members.iter().for_each(|(_, member)| look_up(member, lookup))
        }
        NodeKind::Scalar(scalar) => {
            replaced(&scalar.text, |inner| {
                lookup(VariableReference::of(inner).name);
                String::new()
            });
        }
    }
}

/// The text of a scalar with its variables substituted; `None` if the node is no scalar or cannot be expanded.
pub(super) fn expanded(node: &YamlNode, lookup: VariableLookup<'_>) -> Option<String> {
    match &node.kind {
        NodeKind::Scalar(scalar) => expand(&scalar.text, lookup).ok(),
        NodeKind::Sequence(_) | NodeKind::Mapping(_) => None,
    }
}

/// Expands `${VAR}`, `${VAR:-default}` and `${VAR:?message}`; `$${` is an escaped `${`.
fn expand(text: &str, lookup: VariableLookup<'_>) -> Result<String, ExpansionError> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(literal) = before.strip_suffix('$') {
            out.push_str(literal);
            out.push_str("${");
            rest = after;
            continue;
        }
        out.push_str(before);
        let Some((inner, after)) = after.split_once('}') else {
            let help = "close it with `}`, or write `$${` for the characters themselves";
            let message = "`${` is not closed".to_owned();
            return Err(ExpansionError::Malformed(message, help.to_owned()));
        };
        out.push_str(&variable(inner, lookup)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// The text between the braces of `${…}`: a name, and what stands after the first `:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VariableReference<'a> {
    /// The name of the variable.
    pub(super) name: &'a str,
    /// What applies where the variable is not set.
    pub(super) fallback: VariableFallback<'a>,
}

/// What applies where a variable is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VariableFallback<'a> {
    /// Nothing: it has to be set.
    None,
    /// This default value, after `:-`.
    Default(&'a str),
    /// This message, after `:?`.
    Message(&'a str),
    /// Neither form.
    Malformed,
}

impl<'a> VariableReference<'a> {
    /// Splits the text between the braces as a shell does: only the `-` or `?` next to the first `:` belongs to the
    /// form, and everything after it to the default value or the message.
    pub(super) fn of(inner: &'a str) -> Self {
        let Some((name, rest)) = inner.split_once(':') else {
            return Self { name: inner, fallback: VariableFallback::None };
        };
        let fallback = match (rest.strip_prefix('-'), rest.strip_prefix('?')) {
            (Some(default), _) => VariableFallback::Default(default),
            (None, Some(message)) => VariableFallback::Message(message),
            (None, None) => VariableFallback::Malformed,
        };
        Self { name, fallback }
    }
}

/// Replaces every `${…}` in `text` by what `with` returns for the text between the braces. An escaped `$${` and an
/// unclosed `${` are left unchanged.
pub fn replaced(text: &str, mut with: impl FnMut(&str) -> String) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        if before.ends_with('$') {
            out.push_str(before);
            out.push_str("${");
            rest = after;
            continue;
        }
        let Some((inner, after)) = after.split_once('}') else { break };
        out.push_str(before);
        out.push_str(&with(inner));
        rest = after;
    }
    out.push_str(rest);
    out
}

fn variable(inner: &str, lookup: VariableLookup<'_>) -> Result<String, ExpansionError> {
    let VariableReference { name, fallback } = VariableReference::of(inner);
    let named = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !named {
        let message = format!("`{}` is not the name of a variable", name.escape_debug());
        return Err(ExpansionError::Malformed(message, "use letters, digits and `_`".to_owned()));
    }
    // As in a shell, `:-` and `:?` treat an empty variable as not set.
    let value =
        lookup(name).filter(|value| fallback == VariableFallback::None || !value.is_empty());
    match (value, fallback) {
        (Some(value), _) => Ok(value),
        (None, VariableFallback::Default(default)) => Ok(default.to_owned()),
        (None, VariableFallback::Message(message)) => {
            let message = format!("`{name}` is not set: {message}");
            Err(ExpansionError::Unset(message, format!("set the environment variable `{name}`")))
        }
        (None, VariableFallback::Malformed) => {
            let help = "write `${VAR:-default}` or `${VAR:?message}`";
            let message = format!("`${{{inner}}}` is not understood");
            Err(ExpansionError::Malformed(message, help.to_owned()))
        }
        (None, VariableFallback::None) => {
            let help = format!("set it, or give a default: `${{{name}:-value}}`");
            let message = format!("the environment variable `{name}` is not set");
            Err(ExpansionError::Unset(message, help))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ExpansionError, expand};

    fn expanded(text: &str) -> Result<String, String> {
        let lookup = |name: &str| match name {
            "HOST" => Some("example.com".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        expand(text, &lookup).map_err(|why| match why {
            ExpansionError::Unset(message, _) | ExpansionError::Malformed(message, _) => message,
        })
    }

    #[test]
    fn the_four_forms() {
        for (text, value) in [
            ("${HOST}", "example.com"),
            ("https://${HOST}:${PORT:-8443}/", "https://example.com:8443/"),
            ("${EMPTY}|${EMPTY:-x}|${NONE:-}", "|x|"),
            ("$${HOST} $HOST", "${HOST} $HOST"),
            // As a shell does: one `-` belongs to the form.
            ("${NONE:--5}|${NONE:---x}|${NONE:-a:-b}", "-5|--x|a:-b"),
        ] {
            assert_eq!(expanded(text).unwrap(), value);
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(expanded("${NONE}").unwrap_err(), "the environment variable `NONE` is not set");
        assert_eq!(expanded("${NONE:?the key}").unwrap_err(), "`NONE` is not set: the key");
        assert_eq!(expanded("${NONE:??}").unwrap_err(), "`NONE` is not set: ?");
        assert_eq!(expanded("${HOST").unwrap_err(), "`${` is not closed");
        assert_eq!(expanded("${a b}").unwrap_err(), "`a b` is not the name of a variable");
    }
}
