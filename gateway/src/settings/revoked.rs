//! The file with what is no longer to be used.

use std::fs;
use std::path::Path;

use policy::revoked::Revoked;
use serde::Deserialize;

use super::yaml;

/// Longest file.
const LONGEST: u64 = 4 * 1024 * 1024;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RevokedError {
    /// It cannot be read.
    #[error("could not read `{0}`: {1}")]
    Read(Box<str>, #[source] std::io::Error),
    /// It is empty, and was not before.
    #[error("`{0}` is empty; write a comment into it if nothing is revoked")]
    Empty(Box<str>),
    /// It is longer than is read.
    #[error("`{0}` is longer than {LONGEST} bytes")]
    Long(Box<str>),
    /// It is not written as it should be.
    #[error("`{0}` is not a list of revocations: {1}")]
    Shape(Box<str>, Box<str>),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Raw {
    principals: Vec<Box<str>>,
    clients: Vec<Box<str>>,
    servers: Vec<Box<str>>,
    tools: Vec<Box<str>>,
    tokens: Vec<Box<str>>,
}

/// Reads the file.
///
/// # Errors
/// When it cannot be read or says something else.
pub fn read(file: &Path) -> Result<Revoked, RevokedError> {
    let name = || Box::from(file.display().to_string());
    let failed = |error| RevokedError::Read(name(), error);
    if fs::metadata(file).map_err(failed)?.len() > LONGEST {
        return Err(RevokedError::Long(name()));
    }
    let text = fs::read_to_string(file).map_err(failed)?;
    let says_nothing = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(says_nothing) {
        return Ok(Revoked::default());
    }
    let shape = |why: String| RevokedError::Shape(name(), why.into());
    let node = yaml::parse(&text).map_err(|problems| {
        let first = problems.first().map(|problem| problem.message.clone());
        shape(first.unwrap_or_default())
    })?;
    let raw: Raw = serde_json::from_value(node.json()).map_err(|error| shape(error.to_string()))?;
    if let Some(tool) = raw.tools.iter().find(|tool| !tool.contains('/')) {
        return Err(shape(format!("write a tool as `SERVER/NAME`, not `{}`", tool.escape_debug())));
    }
    Ok(Revoked {
        principals: raw.principals.into_iter().collect(),
        clients: raw.clients.into_iter().collect(),
        servers: raw.servers.into_iter().collect(),
        tools: raw.tools.into_iter().collect(),
        tokens: raw.tokens.into_iter().collect(),
        ..Revoked::default()
    })
}
