//! Reads which arguments of a tool are repeated in HTTP headers (`x-mcp-header`), so that intermediaries can route by
//! them without reading the body.
//!
//! SPEC 2026-07-28 basic/transports/streamable-http#custom-headers-from-tool-parameters

use crate::json::{JsonKind, Value};

/// The annotation in a property of the input schema.
const KEY: &str = "x-mcp-header";
/// Most annotated arguments of one tool.
const MOST: usize = 32;
/// Longest header name in bytes, without its prefix.
const LONGEST: usize = 64;

/// An argument that is repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderArgument {
    /// Header name in lower case, without the prefix `mcp-param-`.
    pub header: Box<str>,
    /// Member names that lead to the argument.
    pub path: Vec<Box<str>>,
}

impl HeaderArgument {
    /// The value that the header must have for these arguments; `None` if the argument is absent or not a primitive
    /// value.
    #[must_use]
    pub fn value(&self, arguments: Option<Value<'_>>) -> Option<String> {
        let value = self.path.iter().try_fold(arguments?, |value, key| value.get(key))?;
        match value.kind() {
            JsonKind::Plain | JsonKind::Escaped => value.as_str().map(Into::into),
            JsonKind::Number => Some(whole(value.raw()).unwrap_or(value.raw()).to_owned()),
            JsonKind::Boolean => Some(value.raw().to_owned()),
            JsonKind::Null | JsonKind::Array | JsonKind::Object => None,
        }
    }

    /// Whether `said`, from a header, equals `meant`, from the body. Integers are compared by value.
    #[must_use]
    pub fn agree(said: &str, meant: &str) -> bool {
        said == meant || whole(said).is_some_and(|said| Some(said) == whole(meant))
    }
}

/// The digits of an integer, without a fraction of zeros; `None` if `number` is not an integer.
fn whole(number: &str) -> Option<&str> {
    let (digits, zeros) = number.split_once('.').unwrap_or((number, ""));
    let unsigned = digits.strip_prefix('-').unwrap_or(digits);
    let all = |text: &str, fits: fn(u8) -> bool| text.bytes().all(fits);
    let good = !unsigned.is_empty()
        && all(unsigned, |byte| byte.is_ascii_digit())
        && all(zeros, |byte| byte == b'0');
    good.then_some(digits)
}

/// Reads the annotations of a tool.
///
/// # Errors
/// If an annotation violates the specification; states how.
pub(crate) fn read(definition: Value<'_>) -> Result<Vec<HeaderArgument>, &'static str> {
    let Some(schema) = definition.get("inputSchema") else { return Ok(Vec::new()) };
    // Most tools have no annotation, and their schemas need not be traversed.
    let has = |what: &[u8]| memchr::memmem::find(schema.raw().as_bytes(), what).is_some();
    if !has(KEY.as_bytes()) && !has(b"\\u") {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    walk(schema, Some(&mut Vec::new()), &mut found)?;
    Ok(found)
}

/// INVARIANT: the depth of a document is bounded, so the recursion is.
fn walk(
    schema: Value<'_>,
    path: Option<&mut Vec<Box<str>>>,
    found: &mut Vec<HeaderArgument>,
) -> Result<(), &'static str> {
    if let Some(name) = schema.get(KEY) {
        let Some(path) = path.as_deref().filter(|path| !path.is_empty()) else {
            return Err("stands where no argument is");
        };
        found.push(annotation(schema, name, path, found)?);
    }
    let mut path = path;
    for (key, value) in schema.members() {
        match (&*key, path.as_deref_mut()) {
            (KEY, _) => {}
            ("properties", Some(path)) => {
                for (name, property) in value.members() {
                    path.push(name.into());
                    walk(property, Some(path), found)?;
                    path.pop();
                }
            }
            // These hold values rather than schemas.
            ("const" | "default" | "enum" | "examples", _) => {}
            _ => elsewhere(value, found)?,
        }
    }
    Ok(())
}

/// An annotation outside `properties` makes the tool invalid.
fn elsewhere(value: Value<'_>, found: &mut Vec<HeaderArgument>) -> Result<(), &'static str> {
    if value.is_object() {
        return walk(value, None, found);
    }
    value.items().try_for_each(|item| elsewhere(item, found))
}

fn annotation(
    schema: Value<'_>,
    name: Value<'_>,
    path: &[Box<str>],
    found: &[HeaderArgument],
) -> Result<HeaderArgument, &'static str> {
    let name = name.as_str().ok_or("is not a string")?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > LONGEST || !name.bytes().all(token) {
        return Err("is not the name of a header");
    }
    let header: Box<str> = name.to_ascii_lowercase().into();
    if found.iter().any(|other| other.header == header) {
        return Err("is given twice");
    }
    if found.len() >= MOST {
        return Err("is given too often");
    }
    let kind = schema.get("type").and_then(Value::as_str);
    if !matches!(kind.as_deref(), Some("string" | "integer" | "boolean")) {
        return Err("is on an argument that is no string, integer or boolean");
    }
    Ok(HeaderArgument { header, path: path.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::{HeaderArgument, read};
    use crate::json::{Document, JsonBounds};
    use bytes::Bytes;

    fn headers(schema: &str) -> Result<Vec<String>, &'static str> {
        let text = format!(r#"{{"name":"t","inputSchema":{schema}}}"#);
        let document = Document::parse(Bytes::from(text), &JsonBounds::MESSAGE).unwrap();
        let name = |found: &HeaderArgument| format!("{}={}", found.header, found.path.join("/"));
        Ok(read(document.root())?.iter().map(name).collect())
    }

    #[test]
    fn annotations_are_found_along_properties_alone() {
        let schema = r#"{"type":"object","properties":{
            "a":{"type":"string","x-mcp-header":"Region"},
            "b":{"type":"object","properties":{"c":{"type":"integer","x-mcp-header":"N"}}}}}"#;
        assert_eq!(headers(schema).unwrap(), ["region=a", "n=b/c"]);
        assert!(
            headers(r#"{"properties":{"a":{"type":"string","default":{"x-mcp-header":"A"}}}}"#)
                .unwrap()
                .is_empty()
        );
        for bad in [
            r#"{"x-mcp-header":"A"}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":""}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A B"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":7}}}"#,
            r#"{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}"#,
            r#"{"properties":{"a":{"x-mcp-header":"A"}}}"#,
            r#"{"properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}"#,
            r#"{"allOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#,
        ] {
            assert!(headers(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_agree_however_they_are_spelled() {
        assert!(HeaderArgument::agree("42.0", "42") && HeaderArgument::agree("-7", "-7.00"));
        assert!(!HeaderArgument::agree("42.1", "42") && !HeaderArgument::agree("042", "42"));
        assert!(!HeaderArgument::agree("a", "A"));
    }
}
