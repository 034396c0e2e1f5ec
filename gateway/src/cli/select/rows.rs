//! Reads the files of `portcullis select`. A line that cannot be read is an error, with its file and its number.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::sync::Arc;

use gateway::mcp::tool_signature::ToolSignature;
use json::{Document, JsonBounds, Value};
use selector::query::MAX_QUERY_BYTES;
use selector::tool::ToolText;

/// Most bytes of a line.
const MAX_LINE: u64 = 4 * 1024 * 1024;
/// Most lines of a file.
const MAX_LINES: usize = 1_000_000;

/// A tool of a file.
pub(super) struct ToolRow {
    pub(super) id: String,
    pub(super) text: ToolText,
    /// What services are sent of it.
    pub(super) signature: Arc<ToolSignature>,
}

/// A request of a file.
#[derive(Clone, Debug)]
pub(super) struct RequestRow {
    /// As the line has it: a string or a number.
    pub(super) id: serde_json::Value,
    pub(super) query: String,
}

/// The tools of a file. Two with one id are an error: an answer could not tell them apart.
pub(super) fn tools(file: &Path) -> Result<Vec<ToolRow>, String> {
    let mut ids = BTreeSet::new();
    each_line(file, |row| {
        let id = text(row, "tool_id")?;
        if !ids.insert(id.clone()) {
            return Err(format!("`{id}` is the `tool_id` of an earlier line"));
        }
        let server = if row.get("server").is_some() { text(row, "server")? } else { String::new() };
        let tool = row.get("tool").filter(|tool| tool.is_object());
        let tool = tool.ok_or("`tool` is not an object")?;
        let text = ToolText::read(&server, tool);
        if text.name.is_empty() {
            return Err("the tool has no `name`".to_owned());
        }
        Ok(ToolRow { id, text, signature: Arc::new(ToolSignature::read(tool)) })
    })
}

/// The requests of a file.
pub(super) fn requests(file: &Path) -> Result<Vec<RequestRow>, String> {
    each_line(file, |row| {
        let query = text(row, "query")?;
        if query.len() > MAX_QUERY_BYTES {
            return Err(format!("`query` is longer than {MAX_QUERY_BYTES} bytes"));
        }
        let id = row.get("id").and_then(|id| id.raw().parse::<serde_json::Value>().ok());
        let id = id.filter(|id| id.is_string() || id.is_number());
        Ok(RequestRow { id: id.ok_or("`id` is neither a string nor a number")?, query })
    })
}

/// The text of a member of an object.
fn text(row: Value<'_>, member: &str) -> Result<String, String> {
    let text = row.get(member).and_then(Value::as_str);
    text.map(std::borrow::Cow::into_owned).ok_or_else(|| format!("`{member}` is not a string"))
}

/// What `read` makes of each line of a file that is not empty.
fn each_line<T>(
    file: &Path,
    mut read: impl FnMut(Value<'_>) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let name = file.display();
    let opened =
        File::open(file).map_err(|error| format!("`{name}` could not be read: {error}"))?;
    let mut input = BufReader::new(opened);
    let mut rows = Vec::new();
    for number in 1..=MAX_LINES {
        let mut line = Vec::new();
        let length = (&mut input).take(MAX_LINE).read_until(b'\n', &mut line);
        let length = length.map_err(|error| format!("`{name}` could not be read: {error}"))?;
        let at = |why: String| format!("{name}:{number}: {why}");
        if length == 0 {
            return Ok(rows);
        }
        if length as u64 == MAX_LINE {
            return Err(at(format!("it is longer than {MAX_LINE} bytes")));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let document = Document::parse(line.into(), &JsonBounds::ANSWER);
        let document = Arc::new(document.map_err(|error| at(error.to_string()))?);
        rows.push(read(document.root()).map_err(at)?);
    }
    Err(format!("`{name}` has more than {MAX_LINES} lines"))
}
