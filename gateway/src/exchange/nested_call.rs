//! Reads the call of a tool out of the arguments of a `call_*_tool`, and mends it where it can mean one thing only.

use std::sync::Arc;

use json::{Document, Fragment, JsonBounds, JsonKind, Value, write_string};

use crate::mcp::discovery_tools::{CallMend, DiscoveryTool};
use crate::mcp::wire::{self, Object};

/// Longest name that a tool can have on a route, in bytes.
const MAX_NAME: usize = 256;
/// The members that can have the name of the tool; only the first is right.
const NAMES: [&str; 3] = ["name", "tool", "tool_name"];

/// The call that is meant.
#[derive(Clone, Debug)]
pub(super) struct NestedCall {
    /// The name of the tool on the route.
    pub(super) name: Box<str>,
    pub(super) arguments: Option<Fragment>,
    pub(super) mended: Vec<CallMend>,
}

/// Why it is not clear which call is meant, as a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnclearCall {
    pub(super) mistake: &'static str,
    /// The name of the tool, if that is clear.
    pub(super) name: Option<Box<str>>,
}

impl UnclearCall {
    const fn of(mistake: &'static str) -> Self {
        Self { mistake, name: None }
    }
}

/// Whether a call is inside of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallDepth {
    Outer,
    Inner,
}

/// The members of an object that is a call.
struct CallMembers<'a> {
    name: Option<(&'static str, Value<'a>)>,
    arguments: Option<Value<'a>>,
    others: Vec<(String, Value<'a>)>,
}

impl<'a> CallMembers<'a> {
    fn read(given: Value<'a>) -> Result<Self, UnclearCall> {
        let mut found = Self { name: None, arguments: None, others: Vec::new() };
        for (key, value) in given.members() {
            if let Some(member) = NAMES.into_iter().find(|name| *name == key) {
                if found.name.replace((member, value)).is_some() {
                    return Err(UnclearCall::of(
                        "it has more than one of `name`, `tool` and `tool_name`",
                    ));
                }
            } else if key == "arguments" {
                found.arguments = Some(value);
            } else {
                found.others.push((key.into_owned(), value));
            }
        }
        Ok(found)
    }
}

impl NestedCall {
    /// Whether the arguments are a call in the right form, which costs nothing to read.
    pub(super) fn is_regular(given: Option<&Fragment>) -> bool {
        let Some(given) = given else { return true };
        given.value().members().all(|(key, value)| match &*key {
            "name" => true,
            "arguments" => value.kind() == JsonKind::Object,
            _ => false,
        })
    }

    /// The call that is meant by the arguments of a `call_*_tool`.
    pub(super) fn read(given: Option<&Fragment>) -> Result<Self, UnclearCall> {
        let Some(given) = given else { return Err(UnclearCall::of("it has no `name`")) };
        read(given.value(), &given.document(), CallDepth::Outer)
    }
}

/// Reads a call that is an object.
fn read(
    given: Value<'_>,
    document: &Arc<Document>,
    depth: CallDepth,
) -> Result<NestedCall, UnclearCall> {
    let members = CallMembers::read(given)?;
    let Some((member, name)) = members.name else {
        return read_inside(&members, document, depth);
    };
    let name = name.as_str().filter(|name| !name.is_empty() && name.len() <= MAX_NAME);
    let name = name.filter(|name| !name.contains('\0'));
    let name =
        name.ok_or(UnclearCall::of("the name of the tool is not a text of 1 to 256 bytes"))?;
    let mut mended = Vec::new();
    if member != "name" {
        mended.push(CallMend::NameMember);
    }
    if let Some(DiscoveryTool::Call(_)) = DiscoveryTool::named(&name) {
        return match (depth, members.arguments) {
            (CallDepth::Outer, Some(inner)) if members.others.is_empty() => {
                mended.push(CallMend::NestedCall);
                joined(mended, read_wrapped(inner, document)?)
            }
            _ => Err(UnclearCall::of("`name` is not the name of a tool that was found")),
        };
    }
    let unclear = |mistake| UnclearCall { mistake, name: Some(name.as_ref().into()) };
    let arguments = match members.arguments {
        Some(_) if !members.others.is_empty() => {
            return Err(unclear("it has members beside `name` and `arguments`"));
        }
        Some(arguments) => object(arguments, document, &mut mended).map_err(unclear)?,
        None if members.others.is_empty() => None,
        None => {
            mended.push(CallMend::MissingWrapper);
            Some(gathered(&members.others).ok_or_else(|| unclear("`arguments` is missing"))?)
        }
    };
    Ok(NestedCall { name: name.into(), arguments, mended })
}

/// Reads a call that has no name: it can be inside of `arguments`.
fn read_inside(
    members: &CallMembers<'_>,
    document: &Arc<Document>,
    depth: CallDepth,
) -> Result<NestedCall, UnclearCall> {
    const NAMELESS: UnclearCall = UnclearCall::of("it has no `name`");
    let inner = members.arguments.filter(|_| members.others.is_empty());
    let inner = inner.filter(|_| depth == CallDepth::Outer).ok_or(NAMELESS)?;
    let found = read_wrapped(inner, document)?;
    // Without `arguments` of its own it could be the parameters of a tool that has a parameter `name`.
    let is_whole = |inner: Value<'_>| inner.get("arguments").is_some();
    let is_whole = match inner.as_str() {
        Some(text) => parsed(&text).is_some_and(|inner| is_whole(inner.root())),
        None => is_whole(inner),
    };
    if !is_whole || found.mended.contains(&CallMend::MissingWrapper) {
        return Err(NAMELESS);
    }
    joined(vec![CallMend::NameInArguments], found)
}

/// Reads a call that is an object, or the text of one.
fn read_wrapped(inner: Value<'_>, document: &Arc<Document>) -> Result<NestedCall, UnclearCall> {
    const UNREADABLE: UnclearCall = UnclearCall::of("`arguments` is not an object");
    if let Some(text) = inner.as_str() {
        let document = Arc::new(parsed(&text).ok_or(UNREADABLE)?);
        let found = read(document.root(), &document, CallDepth::Inner)?;
        return joined(vec![CallMend::TextArguments], found);
    }
    if inner.is_object() { read(inner, document, CallDepth::Inner) } else { Err(UNREADABLE) }
}

/// The call with what was mended around it.
fn joined(mut mended: Vec<CallMend>, found: NestedCall) -> Result<NestedCall, UnclearCall> {
    mended.extend(found.mended.iter().filter(|mend| !mended.contains(mend)).collect::<Vec<_>>());
    Ok(NestedCall { mended, ..found })
}

/// `arguments` as an object, also if they are the text of one.
fn object(
    arguments: Value<'_>,
    document: &Arc<Document>,
    mended: &mut Vec<CallMend>,
) -> Result<Option<Fragment>, &'static str> {
    if arguments.is_object() {
        return Ok(Some(arguments.fragment(document)));
    }
    if arguments.kind() == JsonKind::Null {
        mended.push(CallMend::NullArguments);
        return Ok(None);
    }
    let text = arguments.as_str().ok_or("`arguments` is not an object")?;
    let read = parsed(&text).ok_or("`arguments` is a text that is not a JSON object")?;
    mended.push(CallMend::TextArguments);
    Ok(Some(Fragment::whole(Arc::new(read))))
}

/// The object that a text is, within the bounds of a message: a duplicate member is refused here as well.
fn parsed(text: &str) -> Option<Document> {
    let document = Document::parse(text.to_owned().into(), &JsonBounds::MESSAGE).ok()?;
    // As in the message around it, numbers are those that all readers read alike.
    let is_usable = document.root().is_object() && wire::has_common_numbers(document.root());
    is_usable.then_some(document)
}

/// The members as an object of their own.
fn gathered(members: &[(String, Value<'_>)]) -> Option<Fragment> {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    members.iter().for_each(|(key, value)| object.raw(key, value.raw()));
    object.close();
    let document = Document::parse(out.into(), &JsonBounds::MESSAGE).ok()?;
    Some(Fragment::whole(Arc::new(document)))
}

/// A call as it has to be: of the tool, if its name is a plain word, with these parameters.
pub(super) fn example(tool: &str, name: Option<&str>, parameters: &[(String, &str)]) -> String {
    let is_plain = |name: &&str| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
        name.len() <= 128 && !name.is_empty() && name.bytes().all(letter)
    };
    let name = name.filter(is_plain).unwrap_or("NAME");
    let mut out = format!("{tool} with {{\"name\":\"{name}\",\"arguments\":{{").into_bytes();
    for (n, (parameter, value)) in parameters.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        write_string(&mut out, parameter);
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
    out.extend_from_slice(b"}}");
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use json::{Document, Fragment, JsonBounds};

    use super::NestedCall;

    fn read(text: &str) -> Result<(String, String, Vec<&'static str>), &'static str> {
        let document = Document::parse(text.to_owned().into(), &JsonBounds::MESSAGE).unwrap();
        let given = Fragment::whole(Arc::new(document));
        let found = NestedCall::read(Some(&given)).map_err(|unclear| unclear.mistake)?;
        let arguments = found.arguments.as_ref().map(|given| given.value().raw().to_owned());
        let mended = found.mended.iter().map(|mend| mend.as_str()).collect();
        Ok((found.name.into(), arguments.unwrap_or_default(), mended))
    }

    #[test]
    fn a_call_that_can_mean_one_thing_is_mended() {
        let one = r#"{"a":1}"#;
        for (text, arguments, mended) in [
            (r#"{"name":"x","arguments":{"a":1}}"#, one, &[][..]),
            (r#"{"name":"x"}"#, "", &[]),
            (r#"{"name":"x","arguments":null}"#, "", &["arguments-null"]),
            (r#"{"name":"x","arguments":"{\"a\":1}"}"#, one, &["arguments-text"]),
            (r#"{"tool":"x","arguments":{"a":1}}"#, one, &["name-member"]),
            (r#"{"tool_name":"x","arguments":{"a":1}}"#, one, &["name-member"]),
            (r#"{"name":"x","a":1}"#, one, &["missing-wrapper"]),
            (r#"{"arguments":{"name":"x","arguments":{"a":1}}}"#, one, &["name-in-arguments"]),
            (
                r#"{"name":"call_read_tool","arguments":{"name":"x","arguments":{"a":1}}}"#,
                one,
                &["nested-call"],
            ),
            (
                r#"{"name":"call_write_tool","arguments":{"name":"x","a":1}}"#,
                one,
                &["nested-call", "missing-wrapper"],
            ),
            (
                r#"{"arguments":"{\"tool\":\"x\",\"arguments\":{\"a\":1}}"}"#,
                one,
                &["name-in-arguments", "arguments-text", "name-member"],
            ),
        ] {
            let expected = ("x".to_owned(), arguments.to_owned(), mended.to_vec());
            assert_eq!(read(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_call_that_can_mean_several_things_is_not() {
        for (text, mistake) in [
            ("{}", "it has no `name`"),
            (r#"{"arguments":{}}"#, "it has no `name`"),
            (r#"{"arguments":{"name":"x"}}"#, "it has no `name`"),
            (r#"{"arguments":{"name":"x","a":1}}"#, "it has no `name`"),
            (r#"{"a":1,"arguments":{"name":"x","arguments":{}}}"#, "it has no `name`"),
            (
                r#"{"name":"x","tool":"x"}"#,
                "it has more than one of `name`, `tool` and `tool_name`",
            ),
            (
                r#"{"tool":"x","tool_name":"y"}"#,
                "it has more than one of `name`, `tool` and `tool_name`",
            ),
            (r#"{"name":7}"#, "the name of the tool is not a text of 1 to 256 bytes"),
            (r#"{"name":""}"#, "the name of the tool is not a text of 1 to 256 bytes"),
            (r#"{"name":"x","arguments":[1]}"#, "`arguments` is not an object"),
            (r#"{"name":"x","arguments":"a"}"#, "`arguments` is a text that is not a JSON object"),
            (
                r#"{"name":"x","arguments":"[1]"}"#,
                "`arguments` is a text that is not a JSON object",
            ),
            (
                r#"{"name":"x","arguments":"{\"a\":1,\"a\":2}"}"#,
                "`arguments` is a text that is not a JSON object",
            ),
            (
                r#"{"name":"x","arguments":{},"a":1}"#,
                "it has members beside `name` and `arguments`",
            ),
            (
                r#"{"name":"call_read_tool","arguments":{"name":"call_read_tool","arguments":{}}}"#,
                "`name` is not the name of a tool that was found",
            ),
            (
                r#"{"name":"call_read_tool","a":1}"#,
                "`name` is not the name of a tool that was found",
            ),
        ] {
            assert_eq!(read(text), Err(mistake), "{text}");
        }
        assert!(NestedCall::read(None).is_err());
    }
}
