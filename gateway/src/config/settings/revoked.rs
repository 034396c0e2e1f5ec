//! Reads and writes the revocation file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::Arc;

use json::write_ascii;
use policy_core::subject::revoked::RevocationList;
use serde::Deserialize;

use super::yaml;
use crate::base::file;

/// Maximum size of the file, in bytes.
pub const MAX_FILE: u64 = 4 * 1024 * 1024;
/// Maximum length of a reason, in bytes.
pub const LONGEST_REASON: usize = 512;
/// A name that looks like a pattern. Revocations have no patterns, so it is refused.
pub const ANY: &str = "*";

/// Why a revocation file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RevokedError {
    /// The file cannot be read.
    #[error("could not read `{0}`: {1}")]
    Read(Box<str>, #[source] io::Error),
    /// The file is empty although it listed something before.
    #[error("`{0}` is empty or has comments alone; write `{{}}` into it if nothing is revoked")]
    Empty(Box<str>),
    /// The file is larger than the limit.
    #[error("`{0}` is longer than {MAX_FILE} bytes")]
    Long(Box<str>),
    /// The content is not a valid list of revocations.
    #[error("`{0}` is not a list of revocations: {1}")]
    Shape(Box<str>, Box<str>),
}

/// The content of a revocation file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevocationContent {
    /// The file is empty or has comments only. This also happens while it is being written.
    Nothing,
    /// The revocations in the file.
    Lists(RevocationList),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawRevocationFile {
    everything: bool,
    principals: Vec<Box<str>>,
    clients: Vec<Box<str>>,
    servers: Vec<Box<str>>,
    tools: Vec<Box<str>>,
    tokens: Vec<Box<str>>,
    reasons: BTreeMap<Box<str>, Box<str>>,
}

/// Reads the file at startup; an empty file revokes nothing then.
///
/// # Errors
/// If the file cannot be read or is invalid.
pub fn read(path: &Path) -> Result<RevocationList, RevokedError> {
    let text = file::read(path, MAX_FILE).map_err(|error| unread(path, error))?;
    Ok(match parse(path, &text)? {
        RevocationContent::Nothing => RevocationList::default(),
        RevocationContent::Lists(lists) => lists,
    })
}

/// The error for a file that could not be read.
#[must_use]
pub fn unread(path: &Path, error: io::Error) -> RevokedError {
    let name = path.display().to_string().into();
    match error.kind() {
        io::ErrorKind::FileTooLarge => RevokedError::Long(name),
        _ => RevokedError::Read(name, error),
    }
}

/// Parses the content of the file at `path`.
///
/// # Errors
/// If the content is invalid.
pub fn parse(path: &Path, text: &[u8]) -> Result<RevocationContent, RevokedError> {
    let shape = |why: String| RevokedError::Shape(path.display().to_string().into(), why.into());
    let text = std::str::from_utf8(text).map_err(|error| shape(error.to_string()))?;
    let says_nothing = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(says_nothing) {
        return Ok(RevocationContent::Nothing);
    }
    let node = yaml::parse(text).map_err(|problems| {
        let first = problems.first().map(|problem| problem.message.clone());
        shape(first.unwrap_or_default())
    })?;
    let json = node.json();
    // serde reads a struct from a sequence as well, and from an empty one as if all members had their defaults.
    if !json.is_object() {
        return Err(shape(
            "it is not a map of lists; write `{}` where nothing is revoked".to_owned(),
        ));
    }
    let raw: RawRevocationFile =
        serde_json::from_value(json).map_err(|error| shape(error.to_string()))?;
    let mut lists = RevocationList {
        everything: raw.everything,
        principals: raw.principals.into_iter().collect(),
        clients: raw.clients.into_iter().collect(),
        servers: raw.servers.into_iter().collect(),
        tools: raw.tools.into_iter().collect(),
        tokens: raw.tokens.into_iter().collect(),
        ..RevocationList::default()
    };
    check(&lists).map_err(shape)?;
    let reasons = raw.reasons.into_iter().map(|(entry, why)| (entry, Arc::from(why))).collect();
    let reasons = RevocationList { reasons, ..RevocationList::default() };
    // Drops the reason of an entry that was taken out of its list by hand.
    lists.add(&reasons);
    for reason in lists.reasons.values() {
        check_reason(reason).map_err(shape)?;
    }
    Ok(RevocationContent::Lists(lists))
}

/// Checks that every tool names its server and that no entry is a pattern.
///
/// # Errors
/// What is wrong with an entry, and what to write instead.
pub fn check(lists: &RevocationList) -> Result<(), String> {
    if let Some(tool) = lists.tools.iter().find(|tool| !tool.contains('/')) {
        return Err(format!("write a tool as `SERVER/NAME`, not `{}`", tool.escape_debug()));
    }
    let any = |tool: &str| {
        tool.split_once('/').is_some_and(|(server, name)| server == ANY || name == ANY)
    };
    for (list, entries) in lists.lists() {
        if entries.contains(ANY) || list == "tools" && entries.iter().any(|tool| any(tool)) {
            let help = "name a whole server in `servers`, or write `everything: true`";
            return Err(format!("`{list}` has `{ANY}` in it, which is no name; {help}"));
        }
    }
    Ok(())
}

/// Checks the reason of a revocation.
///
/// # Errors
/// If it says nothing, or is too long.
pub fn check_reason(reason: &str) -> Result<(), String> {
    match reason.trim().is_empty() {
        true => Err("the reason is empty: say why, for those who read it later".to_owned()),
        false if reason.len() > LONGEST_REASON => {
            Err(format!("the reason is longer than {LONGEST_REASON} bytes"))
        }
        false => Ok(()),
    }
}

/// The text of a revocation file: one entry per line, so that changes are small.
#[must_use]
pub fn write(all: &RevocationList) -> String {
    let mut out = String::from("# What is no longer to be used, whatever the rules say.\n");
    if all.is_empty() {
        // A file with comments only would be taken for one that is being written.
        out.push_str("{}\n");
    }
    if all.everything {
        out.push_str("everything: true\n");
    }
    for (name, list) in all.lists().into_iter().filter(|(_, list)| !list.is_empty()) {
        writeln!(out, "{name}:").unwrap_or_default();
        for entry in list {
            writeln!(out, "  - {}", yaml::quoted(entry)).unwrap_or_default();
        }
    }
    if !all.reasons.is_empty() {
        out.push_str("reasons:\n");
    }
    for (entry, reason) in &all.reasons {
        let key = yaml::quoted_key(entry, "  ");
        writeln!(out, "  {key} {}", yaml::quoted(reason)).unwrap_or_default();
    }
    out
}

/// Checks that `text`, which was written for `all`, reads back as the same.
///
/// # Errors
/// If it does not.
pub fn check_written(path: &Path, text: &str, all: &RevocationList) -> io::Result<()> {
    let is_same = match parse(path, text.as_bytes()) {
        Ok(RevocationContent::Lists(read)) => read == *all,
        Ok(RevocationContent::Nothing) | Err(_) => false,
    };
    let other = || io::Error::new(io::ErrorKind::InvalidData, "it would not say what it should");
    if is_same { Ok(()) } else { Err(other()) }
}

/// Quotes a string as JSON, in ASCII.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    write_ascii(&mut out, text);
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use policy_core::subject::revoked::RevocationList;

    use super::{RevocationContent, check_written, parse, write};

    fn said(text: &str) -> Result<RevocationContent, String> {
        parse(Path::new("r"), text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut all = RevocationList { everything: true, ..RevocationList::default() };
        for (name, entry) in
            [("principals", "corp/a\"b"), ("clients", "c"), ("tools", "up/x"), ("tokens", "# no")]
        {
            all.list_mut(name).unwrap().insert(entry.into());
        }
        // Every sort of character, alone and in a key of which each character is escaped.
        let odd = "\0\u{1}\t\n\r\u{7f}\u{85}\u{9f}\u{a0}\u{ad}\u{2028}\u{202e}\u{d7ff}\u{e000}\u{feff}\u{fffe}\u{1f600}\u{10ffff}";
        let mut each = all.clone();
        for c in odd.chars() {
            each.list_mut("principals").unwrap().insert(format!("corp/a{c}b").into());
            each.list_mut("clients").unwrap().insert(c.to_string().repeat(255).into());
        }
        let said_why = "leaked: \"a\"\n# é \u{1f600}";
        let reasoned = all.clone().because(&said_why.into());
        let odd = each.clone().because(&odd.into());
        for lists in [all, reasoned, each, odd, RevocationList::default()] {
            let text = write(&lists);
            assert_eq!(said(&text), Ok(RevocationContent::Lists(lists.clone())));
            assert!(check_written(Path::new("r"), &text, &lists).is_ok());
            let other = RevocationList { everything: !lists.everything, ..lists };
            assert!(check_written(Path::new("r"), &text, &other).is_err());
        }
    }

    #[test]
    fn a_file_that_lists_nothing_does_not_say_that_nothing_is_revoked() {
        for text in ["", "\n", "# principals:\n#  - ana\n"] {
            assert_eq!(said(text), Ok(RevocationContent::Nothing), "{text:?}");
        }
        for text in ["[]", "[true]", "[false, [ana]]", "null", "\"\""] {
            assert!(said(text).is_err(), "{text:?}");
        }
        for text in ["{}", "principals: []", "# none\nservers: []\n"] {
            assert_eq!(
                said(text),
                Ok(RevocationContent::Lists(RevocationList::default())),
                "{text:?}"
            );
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for (text, part) in [
            ("servers: ['*']", "everything: true"),
            ("principals: ['*']", "everything: true"),
            ("tools: ['up/*']", "`servers`"),
            ("tools: ['*/echo']", "everything"),
            ("tools: [echo]", "SERVER/NAME"),
            ("people: [ana]", "people"),
            ("everything: yes please", "invalid type"),
        ] {
            let error = said(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
