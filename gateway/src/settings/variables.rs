//! `${VAR}` in scalars, after parsing: a variable can change a value, never the structure.

use super::problem::Problem;
use super::yaml::{Kind, Node, Scalar};

/// Where variables come from.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Puts variables into every scalar under `node`.
pub(super) fn substitute(node: &mut Node, lookup: Lookup<'_>, problems: &mut Vec<Problem>) {
    match &mut node.kind {
        Kind::Sequence(items) => {
            items.iter_mut().for_each(|item| substitute(item, lookup, problems));
        }
        Kind::Mapping(members) => {
            members.iter_mut().for_each(|(_, member)| substitute(member, lookup, problems));
        }
        Kind::Scalar(scalar) if scalar.text.contains("${") => match expand(&scalar.text, lookup) {
            Ok(text) => *scalar = Scalar { text, plain: scalar.plain, substituted: true },
            Err((message, help)) => {
                problems.push(Problem::new(node.span.clone(), message, help));
            }
        },
        Kind::Scalar(_) => {}
    }
}

/// `${VAR}`, `${VAR:-default}`, `${VAR:?message}`; `$${` stands for `${`.
fn expand(text: &str, lookup: Lookup<'_>) -> Result<String, (String, String)> {
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
            return Err(("`${` is not closed".to_owned(), help.to_owned()));
        };
        out.push_str(&variable(inner, lookup)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// `text` with something else in the place of every `${…}`; `with` is given what is between the braces. A
/// `${` that is not closed stays as it is.
pub fn replaced(text: &str, mut with: impl FnMut(&str) -> String) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inner, after)) = after.split_once('}') else { break };
        out.push_str(before);
        out.push_str(&with(inner));
        rest = after;
    }
    out.push_str(rest);
    out
}

fn variable(inner: &str, lookup: Lookup<'_>) -> Result<String, (String, String)> {
    let (name, otherwise) =
        inner.split_once(':').map_or((inner, None), |(name, rest)| (name, Some(rest)));
    let named = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !named {
        let message = format!("`{}` is not the name of a variable", name.escape_debug());
        return Err((message, "use letters, digits and `_`".to_owned()));
    }
    // As in a shell: with `:-` and `:?` a variable that is empty counts as not set.
    let value = lookup(name).filter(|value| otherwise.is_none() || !value.is_empty());
    match (value, otherwise) {
        (Some(value), _) => Ok(value),
        (None, Some(rest)) if rest.starts_with('-') => Ok(rest.trim_start_matches('-').to_owned()),
        (None, Some(rest)) if rest.starts_with('?') => {
            let message = format!("`{name}` is not set: {}", rest.trim_start_matches('?'));
            Err((message, format!("set the environment variable `{name}`")))
        }
        (None, Some(_)) => {
            let help = "write `${VAR:-default}` or `${VAR:?message}`";
            Err((format!("`${{{inner}}}` is not understood"), help.to_owned()))
        }
        (None, None) => {
            let help = format!("set it, or give a default: `${{{name}:-value}}`");
            Err((format!("the environment variable `{name}` is not set"), help))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::expand;

    fn expanded(text: &str) -> Result<String, String> {
        let lookup = |name: &str| match name {
            "HOST" => Some("example.com".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        expand(text, &lookup).map_err(|(message, _)| message)
    }

    #[test]
    fn the_four_forms() {
        for (text, value) in [
            ("${HOST}", "example.com"),
            ("https://${HOST}:${PORT:-8443}/", "https://example.com:8443/"),
            ("${EMPTY}|${EMPTY:-x}|${NONE:-}", "|x|"),
            ("$${HOST} $HOST", "${HOST} $HOST"),
        ] {
            assert_eq!(expanded(text).unwrap(), value);
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(expanded("${NONE}").unwrap_err(), "the environment variable `NONE` is not set");
        assert_eq!(expanded("${NONE:?the key}").unwrap_err(), "`NONE` is not set: the key");
        assert_eq!(expanded("${HOST").unwrap_err(), "`${` is not closed");
        assert_eq!(expanded("${a b}").unwrap_err(), "`a b` is not the name of a variable");
    }
}
