//! Reads and writes the lockfile: the approved definitions, in a file that people review and keep in Git.
//!
//! It is YAML in a stable order, so that a change of one definition is a small change of the file. A definition is
//! written as JSON in canonical order, one member per line, with every character outside ASCII escaped. When the
//! file is read, each definition must match the digest beside it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use detection::inspect::Detector;
use json::pointer::escaped;
use json::{Document, Fragment, JsonBounds, JsonKind as Shape, Value, by_units, write_ascii};
use policy::definition::lock::{
    AcceptedFinding, ApprovalState, EvaluationResult, LockedServer, LockedVersion, Lockfile,
    RecordedEvaluation,
};
use policy::definition::offer::ItemKind;
use policy::definition::pin::{Digest, DigestSubject};
use serde::Deserialize;

use super::pins::Approvers;
use super::problem::{ConfigProblem, ConfigProblems};
use super::yaml;
use crate::base::error_chain::ErrorChain;

/// Maximum size of a lockfile, in bytes.
const MAX_FILE: u64 = 64 * 1024 * 1024;
/// Maximum size of the reason for an approval or an exception, in bytes.
pub const LONGEST_REASON: usize = 1024;
/// Maximum size of a signature file, in bytes.
const SIGNATURES: u64 = 64 * 1024;
/// The help for a file that is no lockfile.
const WRITER: &str = "only `portcullis pin` writes this file";
/// The prefix of the signed message, which the content of the file follows.
const SIGNED: &[u8] = b"portcullis.lock/v1\n";

/// Why a lockfile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The file does not exist.
    #[error(
        "there is no lockfile `{0}`: run `portcullis pin` to propose one, then `portcullis pin approve`"
    )]
    Missing(Box<str>),
    /// The file cannot be read.
    #[error("could not read `{0}`")]
    Read(Box<str>, #[source] io::Error),
    /// The file is larger than the limit.
    #[error("`{0}` is longer than {MAX_FILE} bytes")]
    Long(Box<str>),
    /// The content is not a valid lockfile.
    #[error(
        "`{file}` cannot be used:\n{shown}run `git restore {file}`, or remove it and run `portcullis pin`"
    )]
    Shape {
        /// The name of the file.
        file: Box<str>,
        /// The problems with their places, for people.
        shown: String,
        /// The first problem, in a line.
        first: String,
        /// The problems for programs: a JSON array, as [`ConfigProblems::json`] returns it.
        json: String,
    },
    /// Too few approvers have signed the file.
    #[error(
        "`{file}` is signed by {found} of the {needed} approvers it takes ({why}): run `portcullis pin sign`"
    )]
    Unsigned {
        /// The name of the file.
        file: Box<str>,
        /// The number of valid signatures.
        found: usize,
        /// The required number of signatures.
        needed: usize,
        /// The reason why other signatures do not count.
        why: &'static str,
    },
}

impl LockError {
    /// The error with its causes in one line, for the log: without the lines of the file.
    #[must_use]
    pub fn in_a_line(&self) -> String {
        match self {
            Self::Shape { file, first, .. } => format!(
                "`{file}` cannot be used: {first}; run `git restore {file}`, or remove it and run `portcullis pin`"
            ),
            Self::Missing(_) | Self::Read(..) | Self::Long(_) | Self::Unsigned { .. } => {
                ErrorChain(self).to_string()
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLock {
    version: u32,
    #[serde(default)]
    servers: BTreeMap<Box<str>, serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLocked {
    identity: Option<Box<str>>,
    set: Box<str>,
    #[serde(default)]
    server: Vec<RawVersion>,
    #[serde(default)]
    tools: BTreeMap<Box<str>, Vec<RawVersion>>,
    #[serde(default)]
    prompts: BTreeMap<Box<str>, Vec<RawVersion>>,
    #[serde(default)]
    resources: BTreeMap<Box<str>, Vec<RawVersion>>,
    #[serde(default)]
    resource_templates: BTreeMap<Box<str>, Vec<RawVersion>>,
    #[serde(default)]
    skills: BTreeMap<Box<str>, Vec<RawVersion>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawVersion {
    digest: Box<str>,
    state: ApprovalState,
    by: Option<Box<str>>,
    at: Option<Box<str>>,
    reason: Option<Box<str>>,
    #[serde(default)]
    exceptions: Vec<RawException>,
    evaluation: Option<RawEvaluation>,
    definition: Box<str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawEvaluation {
    result: EvaluationResult,
    digest: Box<str>,
    at: Box<str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawException {
    finding: Box<str>,
    by: Box<str>,
    at: Box<str>,
    reason: Box<str>,
}

/// Reads the lockfile, and verifies its signatures if there are `approvers`.
///
/// # Errors
/// If the file does not exist, is invalid, or lacks signatures.
pub fn read(file: &Path, approvers: &Approvers) -> Result<(Lockfile, Vec<u8>), LockError> {
    let name = || Box::from(file.display().to_string());
    let text = bytes(file, MAX_FILE)?;
    if !approvers.keys.is_empty() {
        signed(file, &text, approvers)?;
    }
    let shape = |text: &str, found: Vec<ConfigProblem>| {
        let problems = ConfigProblems::new(&file.display().to_string(), text, found);
        LockError::Shape {
            file: name(),
            shown: problems.human(),
            first: problems.first(),
            json: problems.json(),
        }
    };
    let utf8 = std::str::from_utf8(&text)
        .map_err(|_e| shape("", vec![ConfigProblem::new(0..0, "it is not UTF-8", WRITER)]))?;
    let lock = parse(utf8).map_err(|found| shape(utf8, found))?;
    Ok((lock, text))
}

fn bytes(file: &Path, longest: u64) -> Result<Vec<u8>, LockError> {
    let name = || Box::from(file.display().to_string());
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => LockError::Missing(name()),
        io::ErrorKind::FileTooLarge => LockError::Long(name()),
        _ => LockError::Read(name(), error),
    };
    crate::base::file::read(file, longest).map_err(failed)
}

/// Checks that `text`, which was written for `lock`, reads back as the same.
///
/// # Errors
/// The difference, as a message.
pub fn check(text: &str, lock: &Lockfile) -> Result<(), String> {
    let read = parse(text).map_err(|problems| {
        let first = problems.first().map(|problem| problem.message.clone());
        format!("the lockfile could not be read back: {}", first.unwrap_or_default())
    })?;
    let sets = |lock: &Lockfile| -> Vec<_> {
        lock.servers.iter().map(|(name, locked)| (name.clone(), locked.set())).collect()
    };
    let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
    if sets(&read) != sets(lock) || length > MAX_FILE {
        return Err("the lockfile would not say what it should, or is too long".to_owned());
    }
    Ok(())
}

/// Parses the text of a lockfile.
fn parse(text: &str) -> Result<Lockfile, Vec<ConfigProblem>> {
    let root = yaml::parse_large(text)?;
    let wrong = |at: &str, message: String, help: &str| {
        vec![ConfigProblem::new(root.place(at), message, help.to_owned())]
    };
    let json = root.json();
    if json.get("version").is_none() {
        let message = "this is not a lockfile: it has no `version: 1`".to_owned();
        return Err(wrong("", message, WRITER));
    }
    let raw: RawLock =
        serde_json::from_value(json).map_err(|error| wrong("", unnamed(&error), WRITER))?;
    if raw.version != 1 {
        return Err(wrong("/version", "not version 1".to_owned(), "use a newer gateway"));
    }
    let mut lock = Lockfile::default();
    for (name, raw) in raw.servers {
        let at = format!("/servers/{}", escaped(&name));
        // Each server is deserialized separately, so that an error has a place.
        let told = |error: serde_json::Error| wrong(&at, unnamed(&error), WRITER);
        let raw = RawLocked::deserialize(raw).map_err(told)?;
        let mut locked = LockedServer { identity: raw.identity, ..LockedServer::default() };
        let versions = |raw: Vec<RawVersion>, subject, named: Option<&str>, at: &str| {
            let read = |(n, raw): (usize, RawVersion)| {
                version(raw, subject, named).map_err(|message| {
                    let help = "somebody has edited it: take it from Git, or pin and approve again";
                    wrong(&format!("{at}/{n}/digest"), message.to_owned(), help)
                })
            };
            raw.into_iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()
        };
        locked.server = versions(raw.server, DigestSubject::Server, None, &format!("{at}/server"))?;
        for (kind, member, offers) in [
            (ItemKind::Tool, "tools", raw.tools),
            (ItemKind::Prompt, "prompts", raw.prompts),
            (ItemKind::Resource, "resources", raw.resources),
            (ItemKind::Template, "resourceTemplates", raw.resource_templates),
            (ItemKind::Skill, "skills", raw.skills),
        ] {
            for (offer, raw) in offers {
                let at = format!("{at}/{member}/{}", escaped(&offer));
                let read = versions(raw, DigestSubject::Offer(kind), Some(&offer), &at)?;
                locked.offers.insert((kind, offer), read);
            }
        }
        if Digest::parse(&raw.set) != Some(locked.set()) {
            let message = "what is approved of this server is not what the digest says".to_owned();
            let help = "somebody has edited it: take it from Git, or pin and approve again";
            return Err(wrong(&format!("{at}/set"), message, help));
        }
        lock.servers.insert(name, locked);
    }
    Ok(lock)
}

/// The message of a deserialization error, without the names of Rust types.
fn unnamed(error: &serde_json::Error) -> String {
    let words = error.to_string();
    match words.split_once(", expected struct ") {
        Some((words, _)) => format!("{words}, expected a mapping"),
        None => words,
    }
}

fn version(
    raw: RawVersion,
    subject: DigestSubject,
    name: Option<&str>,
) -> Result<LockedVersion, &'static str> {
    let document = Document::parse(String::from(raw.definition).into(), &JsonBounds::ANSWER)
        .map_err(|_error| "the definition is not JSON")?;
    let definition = Fragment::whole(Arc::new(document));
    let value = definition.value();
    let found = Digest::of(subject, value).map_err(|_inexact| "the definition has no digest")?;
    if Digest::parse(&raw.digest) != Some(found) {
        return Err("the definition does not have this digest");
    }
    if let (DigestSubject::Offer(kind), Some(name)) = (subject, name)
        && value.get(kind.key()).and_then(Value::as_str).as_deref() != Some(name)
    {
        return Err("the definition is of another name");
    }
    let exceptions = exceptions(raw.state, raw.exceptions)?;
    if raw.evaluation.is_some() && subject != DigestSubject::Offer(ItemKind::Tool) {
        return Err("it has an evaluation and is not a tool");
    }
    let evaluation = raw.evaluation.map(evaluation).transpose()?;
    let RawVersion { by, at, reason, .. } = raw;
    let version = LockedVersion::new(found, raw.state, definition);
    Ok(LockedVersion { by, at, reason, exceptions, evaluation, ..version })
}

/// Parses the evaluation of one definition.
fn evaluation(raw: RawEvaluation) -> Result<RecordedEvaluation, &'static str> {
    let RawEvaluation { result, digest, at } = raw;
    let hexadecimal = digest.strip_prefix("sha256:").unwrap_or_default();
    let is_lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if hexadecimal.len() != 64 || !hexadecimal.bytes().all(is_lower) {
        return Err("the digest of its evaluation is no `sha256:` with 64 hexadecimal digits");
    }
    Ok(RecordedEvaluation { result, digest, at })
}

/// Parses the exceptions of one definition. A finding that is unknown or that nobody may accept is refused: a line
/// without effect would look like one that has an effect.
fn exceptions(
    state: ApprovalState,
    raw: Vec<RawException>,
) -> Result<Vec<AcceptedFinding>, &'static str> {
    if state != ApprovalState::Approved && !raw.is_empty() {
        return Err("it has exceptions and is not approved");
    }
    let mut exceptions: Vec<AcceptedFinding> = Vec::new();
    for RawException { finding, by, at, reason } in raw {
        let finding = Detector::of_definitions(&finding).ok_or("no detector has this finding")?;
        if finding.unacceptable().is_some() {
            return Err("a finding that nobody may accept stands among its exceptions");
        }
        if reason.trim().is_empty() || reason.len() > LONGEST_REASON {
            return Err("an exception has no reason, or one that is too long");
        }
        if exceptions.iter().any(|known| known.finding == finding) {
            return Err("one finding stands twice among its exceptions");
        }
        exceptions.push(AcceptedFinding { finding, by, at, reason });
    }
    Ok(exceptions)
}

/// The text of a lockfile.
#[must_use]
pub fn write(lock: &Lockfile) -> String {
    let mut out = String::from(
        "# What was approved. Read the changes of this file as you read code; `portcullis pin`\n\
         # writes it, and the digests keep it from being edited by hand.\n\
         version: 1\nservers:\n",
    );
    for (name, locked) in &lock.servers {
        writeln!(out, "  {}:", yaml::quoted(name)).unwrap_or_default();
        if let Some(identity) = &locked.identity {
            writeln!(out, "    identity: {}", yaml::quoted(identity)).unwrap_or_default();
        }
        writeln!(out, "    set: {}", locked.set()).unwrap_or_default();
        if !locked.server.is_empty() {
            out.push_str("    server:\n");
            locked.server.iter().for_each(|version| entry(&mut out, "      ", version));
        }
        for (kind, member) in [
            (ItemKind::Tool, "tools"),
            (ItemKind::Prompt, "prompts"),
            (ItemKind::Resource, "resources"),
            (ItemKind::Template, "resourceTemplates"),
            (ItemKind::Skill, "skills"),
        ] {
            let mut of_kind = locked.offers.iter().filter(|((k, _), _)| *k == kind).peekable();
            if of_kind.peek().is_some() {
                writeln!(out, "    {member}:").unwrap_or_default();
            }
            for ((_, name), versions) in of_kind {
                writeln!(out, "      {}", yaml::quoted_key(name, "      ")).unwrap_or_default();
                versions.iter().for_each(|version| entry(&mut out, "        ", version));
            }
        }
    }
    if lock.servers.is_empty() {
        out.truncate(out.trim_end_matches("servers:\n").len());
    }
    out
}

fn entry(out: &mut String, indent: &str, version: &LockedVersion) {
    writeln!(out, "{indent}- digest: {}", version.digest).unwrap_or_default();
    writeln!(out, "{indent}  state: {}", version.state.as_str()).unwrap_or_default();
    for (key, value) in [("by", &version.by), ("at", &version.at), ("reason", &version.reason)] {
        if let Some(value) = value {
            writeln!(out, "{indent}  {key}: {}", yaml::quoted(value)).unwrap_or_default();
        }
    }
    if !version.exceptions.is_empty() {
        writeln!(out, "{indent}  exceptions:").unwrap_or_default();
    }
    for exception in &version.exceptions {
        let AcceptedFinding { finding, by, at, reason } = exception;
        writeln!(out, "{indent}    - finding: {}", finding.name()).unwrap_or_default();
        for (key, value) in [("by", by), ("at", at), ("reason", reason)] {
            writeln!(out, "{indent}      {key}: {}", yaml::quoted(value)).unwrap_or_default();
        }
    }
    if let Some(RecordedEvaluation { result, digest, at }) = &version.evaluation {
        writeln!(out, "{indent}  evaluation:").unwrap_or_default();
        for (key, value) in [("result", result.as_str()), ("digest", digest), ("at", at)] {
            writeln!(out, "{indent}    {key}: {}", yaml::quoted(value)).unwrap_or_default();
        }
    }
    writeln!(out, "{indent}  definition: |").unwrap_or_default();
    let mut text = String::new();
    pretty(&mut text, version.definition.value(), 0);
    for line in text.lines() {
        writeln!(out, "{indent}    {line}").unwrap_or_default();
    }
}

/// Formats a definition as in the lockfile: JSON in ASCII, with one member per line.
#[must_use]
pub fn in_lines(value: Value<'_>) -> String {
    let mut out = String::new();
    pretty(&mut out, value, 0);
    out
}

/// Appends JSON in ASCII with one member per line, in canonical order.
fn pretty(out: &mut String, value: Value<'_>, depth: usize) {
    let indent = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    match value.kind() {
        Shape::Object => {
            let mut members: Vec<_> = value.members().collect();
            members.sort_by(|(one, _), (other, _)| by_units(one, other));
            out.push('{');
            let any = !members.is_empty();
            for (n, (name, member)) in members.into_iter().enumerate() {
                out.push_str(if n > 0 { "," } else { "" });
                indent(out, depth + 1);
                out.push_str(&quoted(&name));
                out.push_str(": ");
                pretty(out, member, depth + 1);
            }
            if any {
                indent(out, depth);
            }
            out.push('}');
        }
        Shape::Array => {
            out.push('[');
            let mut any = false;
            for (n, item) in value.items().enumerate() {
                out.push_str(if n > 0 { "," } else { "" });
                any = true;
                indent(out, depth + 1);
                pretty(out, item, depth + 1);
            }
            if any {
                indent(out, depth);
            }
            out.push(']');
        }
        Shape::Plain | Shape::Escaped => out.push_str(&quoted(&value.as_str().unwrap_or_default())),
        Shape::Null | Shape::Boolean | Shape::Number => out.push_str(value.raw()),
    }
}

/// Quotes a JSON string in ASCII.
fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    write_ascii(&mut out, text);
    String::from_utf8(out).unwrap_or_default()
}

/// The path of the signature file of a lockfile.
#[must_use]
pub fn signatures(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".sig");
    name.into()
}

/// The message that approvers sign for the lockfile `text`.
#[must_use]
pub fn message(text: &[u8]) -> Vec<u8> {
    [SIGNED, text].concat()
}

/// Whether `signature` is a valid signature of `message` by `key`.
#[must_use]
pub fn is_signed(key: &[u8; 32], message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
}

/// Checks that enough approvers have signed `text`. The signature file has a line for each: the name, and the
/// signature in base64.
fn signed(file: &Path, text: &[u8], approvers: &Approvers) -> Result<(), LockError> {
    let lines = match bytes(&signatures(file), SIGNATURES) {
        Ok(lines) => String::from_utf8_lossy(&lines).into_owned(),
        Err(LockError::Missing(_)) => String::new(),
        Err(error) => return Err(error),
    };
    let message = message(text);
    let mut good = std::collections::BTreeSet::new();
    let mut why = "there are no others";
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let Some((name, signature)) = line.split_once(' ') else {
            why = "a line is not a signature";
            continue;
        };
        let Some((_, key)) = approvers.keys.iter().find(|(known, _)| **known == *name) else {
            why = "a signature is by nobody who may approve";
            continue;
        };
        let signature = STANDARD.decode(signature.trim()).unwrap_or_default();
        if is_signed(key, &message, &signature) {
            good.insert(*key);
        } else {
            why = "a signature is of another file";
        }
    }
    if good.len() >= approvers.needed.max(1) {
        return Ok(());
    }
    let (found, needed) = (good.len(), approvers.needed.max(1));
    Err(LockError::Unsigned { file: file.display().to_string().into(), found, needed, why })
}

#[cfg(test)]
mod tests {
    use super::{parse, write};
    use detection::inspect::Detector;
    use json::{Document, Fragment, JsonBounds};
    use policy::definition::lock::{
        AcceptedFinding, ApprovalState, LockedServer, LockedVersion, Lockfile,
    };
    use policy::definition::offer::ItemKind;
    use policy::definition::pin::{Digest, DigestSubject};
    use std::sync::Arc;

    fn lock(definition: &str) -> Lockfile {
        let document = Document::parse(definition.to_owned().into(), &JsonBounds::MESSAGE).unwrap();
        let definition = Fragment::whole(Arc::new(document));
        let digest = Digest::of(DigestSubject::Offer(ItemKind::Tool), definition.value()).unwrap();
        let by = Some("ana \"a\"".into());
        let version =
            LockedVersion { by, ..LockedVersion::new(digest, ApprovalState::Approved, definition) };
        let offers =
            [((ItemKind::Tool, "a\" b: #\u{202e}\u{1f600}\\".into()), vec![version])].into();
        let identity = Some("https://x/mcp".into());
        let locked = LockedServer { identity, offers, ..LockedServer::default() };
        Lockfile { servers: [("up".into(), locked)].into() }
    }

    #[test]
    fn a_long_name_reads_back() {
        let name = format!("file:///{}", "é/".repeat(900));
        let text = format!("{{\"uri\":\"{name}\"}}");
        let document = Document::parse(text.into(), &JsonBounds::MESSAGE).unwrap();
        let definition = Fragment::whole(Arc::new(document));
        let digest =
            Digest::of(DigestSubject::Offer(ItemKind::Resource), definition.value()).unwrap();
        let version = LockedVersion::new(digest, ApprovalState::Approved, definition);
        let offers = [((ItemKind::Resource, name.as_str().into()), vec![version])].into();
        let locked = LockedServer { offers, ..LockedServer::default() };
        let lock = Lockfile { servers: [("up".into(), locked)].into() };
        super::check(&write(&lock), &lock).unwrap();
    }

    const ODD: &str = r#"{"z":[1.50,-0,1e+21,true,null,[],{}],"name":"a\" b: #\u202e\ud83d\ude00\\","description":"line one\n  - line: 'two'\u0085\u2028\ttab\u200b é","":""}"#;

    #[test]
    fn what_is_written_reads_back_and_is_written_the_same() {
        let text = write(&lock(ODD));
        assert!(text.is_ascii());
        let read = parse(&text).unwrap();
        assert_eq!(write(&read), text);
        let of = |lock: &Lockfile| lock.servers["up"].set();
        assert_eq!(of(&read), of(&lock(ODD)));
        assert_eq!(parse(&write(&Lockfile::default())).unwrap().servers.len(), 0);
    }

    fn with_exception() -> Lockfile {
        let mut lock = lock(ODD);
        let versions = lock.servers.get_mut("up").unwrap().offers.values_mut().flatten();
        for version in versions {
            let (by, at) = ("ana \"a\"".into(), "2026-01-02T03:04:05Z".into());
            let (finding, reason) = (Detector::PlantedInstructions, "it: is a #manual".into());
            version.exceptions.push(AcceptedFinding { finding, by, at, reason });
            version.reason = Some("read it".into());
        }
        lock
    }

    #[test]
    fn an_exception_reads_back_and_cannot_be_altered() {
        let text = write(&with_exception());
        let read = parse(&text).unwrap();
        assert_eq!(write(&read), text);
        let exceptions = |lock: &Lockfile| -> Vec<_> {
            let versions = lock.servers["up"].offers.values().flatten();
            versions.flat_map(|version| version.exceptions.clone()).collect()
        };
        assert_eq!(exceptions(&read), exceptions(&with_exception()));
        for (from, to) in [
            ("it: is a #manual", "it: is a manual"),
            ("05Z", "06Z"),
            ("      by: \"ana", "      by: \"bob"),
            ("finding: planted-instructions", "finding: secrets"),
            ("finding: planted-instructions", "finding: hidden-characters"),
            ("finding: planted-instructions", "finding: anything"),
            ("it: is a #manual", " "),
        ] {
            assert!(text.contains(from), "{from}");
            let at = text.rfind(from).unwrap();
            let (before, rest) = text.split_at(at);
            let other = format!("{before}{}", rest.replacen(from, to, 1));
            assert!(parse(&other).is_err(), "{from} {to}");
        }
        // Neither can one be added, or taken away.
        let (start, end) = (text.find("          exceptions"), text.find("          definition"));
        let (before, after) = (text.get(..start.unwrap()), text.get(end.unwrap()..));
        let without = format!("{}{}", before.unwrap(), after.unwrap());
        assert!(parse(&without).is_err());
        assert!(parse(&write(&lock(ODD))).is_ok());
    }

    #[test]
    fn nothing_in_it_can_be_altered() {
        let text = write(&lock(ODD));
        for (from, to) in [
            ("tab", "tub"),
            ("\"z\"", "\"y\""),
            ("1.50", "1.51"),
            ("state: approved", "state: pending"),
            ("set: mcp-pin/v1:set:sha256:", "set: mcp-pin/v1:set:sha256:0"),
            ("version: 1\n", "version: 2\n"),
            ("servers:", "server:"),
            (" b: #", " c: #"),
        ] {
            assert!(text.contains(from), "{from}");
            assert!(parse(&text.replacen(from, to, 1)).is_err(), "{from}");
        }
        // Cut anywhere it is no lockfile, or one that approves nothing; but for the last line end.
        for at in 0..text.len() - 1 {
            let lock = parse(text.get(..at).unwrap()).unwrap_or_default();
            assert!(lock.servers.is_empty(), "{at}");
        }
    }
}
