//! Translates errors of the CEL parser into a position and a plain statement of what is expected there. The parser
//! reports tokens of its grammar, which authors of rules do not know.

use std::fmt;

use cel::ParseErrors;

/// The first syntax error of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CelSyntaxError {
    /// Line in the expression, counted from 1.
    pub line: usize,
    /// Column in the line, counted from 1, in characters.
    pub column: usize,
    /// What is wrong, and what was expected.
    pub what: String,
}

impl fmt::Display for CelSyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, what } = self;
        match line {
            1 => write!(f, "at column {column}, {what}"),
            _ => write!(f, "at line {line}, column {column}, {what}"),
        }
    }
}

/// The first error that the parser reports for `text`; later errors follow from it.
pub(super) fn told(text: &str, errors: &ParseErrors) -> CelSyntaxError {
    let place = |place: isize| usize::try_from(place).unwrap_or(1).max(1);
    let (mut line, mut column) = (1, 1);
    let mut what = "it cannot be read".to_owned();
    if let Some(error) = errors.errors.first() {
        (line, column) = (place(error.pos.0), place(error.pos.1));
        what = words(&error.msg);
    }
    // The parser reports a character that cannot begin a token at the end of the token.
    let at = text.lines().nth(line - 1).unwrap_or_default();
    let single = |n: usize| at.chars().nth(n) == Some('=') && at.chars().nth(n + 1) != Some('=');
    if single(column.saturating_sub(1)) {
        "`=` is no operator: write `==` to compare".clone_into(&mut what);
    }
    CelSyntaxError { line, column, what }
}

/// Rewords a parser message such as `Syntax error: mismatched input 'x' expecting {..}`.
fn words(message: &str) -> String {
    let message = message.trim_start_matches("Syntax error: ");
    if let Some((missing, _)) =
        message.strip_prefix("missing '").and_then(|rest| rest.split_once('\''))
    {
        return format!("`{missing}` is missing");
    }
    if message.starts_with("Incomplete `ExprContext` for `_?_:_`") {
        return "a `?` has no `:` after it".to_owned();
    }
    if message.starts_with("no viable alternative") {
        return "a name or a value is missing here".to_owned();
    }
    let (before, expecting) = message.split_once(" expecting ").unwrap_or((message, ""));
    let found = before.find('\'').zip(before.rfind('\''));
    let found = found.and_then(|(start, end)| before.get(start + 1..end)).unwrap_or_default();
    let shown = found.trim().escape_debug();
    let expected = expected(expecting);
    let wanted = expected.map(|what| format!(", where {what} is expected")).unwrap_or_default();
    if found.starts_with("<EOF>") {
        let missing =
            expected.map_or("something is missing".to_owned(), |what| format!("{what} is missing"));
        return format!("the expression ends, and {missing}");
    }
    if before.starts_with("token recognition") && found.starts_with(['"', '\'']) {
        return "a text is not closed: its last quotation mark is missing".to_owned();
    }
    if before.starts_with("token recognition") {
        return format!("`{shown}` is nothing that CEL knows");
    }
    if found.is_empty() {
        return "it cannot be read".to_owned();
    }
    format!("there is `{shown}`{wanted}")
}

/// What is expected at the position, from the parser's list of tokens; `None` if nothing specific.
fn expected(tokens: &str) -> Option<&'static str> {
    let has = |token: &str| tokens.contains(token);
    if has("IDENTIFIER") && has("NUM_INT") {
        Some("a value")
    } else if has("'=='") {
        Some("an operator")
    } else if has("'}'") {
        Some("`}`")
    } else if has("']'") {
        Some("`]`")
    } else if has("')'") {
        Some("`)`")
    } else if has("':'") {
        Some("`:`")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::rules::condition::{Condition, ConditionError};

    #[test]
    fn a_mistake_is_told_with_its_column_and_what_was_expected() {
        for (text, column, what) in [
            ("arguments.x ==", 15, "the expression ends, and a value is missing"),
            ("arguments.x = 1", 13, "`=` is no operator: write `==` to compare"),
            ("arguments.", 11, "a name or a value is missing here"),
            ("(arguments.x == 1", 18, "`)` is missing"),
            ("arguments.x == [1, 2", 21, "the expression ends, and `]` is missing"),
            ("arguments.x and true", 13, "there is `and`, where an operator is expected"),
            ("arguments.x == \"a", 16, "a text is not closed: its last quotation mark is missing"),
        ] {
            let Err(ConditionError::Syntax(found)) = Condition::compile(text) else {
                panic!("{text} is CEL");
            };
            assert_eq!((found.line, found.column, &*found.what), (1, column, what), "{text}");
        }
    }
}
