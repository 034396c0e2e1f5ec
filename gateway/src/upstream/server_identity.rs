//! The identity of an upstream server, to which approvals are bound.
//!
//! For a URL it is the URL and what the certificate must prove, which every connection enforces. For a program it is
//! the path and digest of the executable and, for an interpreter, the digest of the files that its arguments name
//! (threats T1004 and T1207).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use json::hex;

use crate::base::masking;
use crate::config::settings::{
    Program, ServerSettings, ServerTransport, UNREADABLE, VariableValue,
};
use crate::process::scripts::{self, CommandLine};

/// The identity of a server.
#[must_use]
pub fn of(server: &ServerSettings) -> String {
    match &server.reach {
        ServerTransport::Stdio(program) => of_program(program, path_of(program).as_deref()),
        ServerTransport::Http(_) | ServerTransport::HttpSse(_) => {
            of_url(server).unwrap_or_default()
        }
    }
}

/// Why a program cannot be started. The message continues a sentence that begins with the server's name.
#[derive(Debug, thiserror::Error)]
pub enum Unstartable {
    /// There is no such file.
    #[error("cannot be started: there is no `{command}`{place}")]
    Missing {
        /// The command as configured.
        command: String,
        /// Where it was looked for, and what to do, for the message.
        place: &'static str,
    },
    /// The file is not executable.
    #[error(
        "cannot be started: `{0}` is not executable; `chmod +x` it, or name what runs it in `command`"
    )]
    NotExecutable(String),
}

/// The executable of a server; `None` for a server at a URL, and if the search path is in a secret.
#[must_use]
pub fn started(server: &ServerSettings) -> Option<Result<PathBuf, Unstartable>> {
    let ServerTransport::Stdio(program) = &server.reach else { return None };
    let path = path_of(program);
    let folder = program.directory.clone().unwrap_or_default();
    let named = Path::new(&program.command).components().count() > 1;
    let is_hidden = |(name, value): &(String, VariableValue)| {
        name == "PATH" && matches!(value, VariableValue::Secret(_))
    };
    if !named && program.env.iter().any(is_hidden) {
        return None;
    }
    let place = match (program.command.contains(' '), named) {
        (true, _) => "; write the program alone, and its arguments as a list in `args`",
        (false, true) => "",
        (false, false) => " in the folders of `PATH`; write its whole path",
    };
    let Ok(file) = scripts::look_up(&program.command, &folder, path.as_deref()) else {
        return Some(Err(Unstartable::Missing { command: program.command.clone(), place }));
    };
    let may =
        file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
    let not = || Unstartable::NotExecutable(file.display().to_string());
    Some(if may { Ok(file) } else { Err(not()) })
}

/// The `PATH` that the configuration gives a program.
fn path_of(program: &Program) -> Option<OsString> {
    let path = program.env.iter().find(|(name, _)| name == "PATH");
    path.and_then(|(_, value)| match value {
        VariableValue::Literal(path) => Some(OsString::from(path)),
        VariableValue::Secret(_) => None,
    })
}

/// The identity of a server at a URL; `None` for a program. Without what is secret in the URL, because lockfiles are
/// committed and shown.
pub(super) fn of_url(server: &ServerSettings) -> Option<String> {
    let (ServerTransport::Http(uri) | ServerTransport::HttpSse(uri)) = &server.reach else {
        return None;
    };
    let mut identity = masking::uris(&uri.to_string()).into_owned();
    if let Some(spiffe) = &server.tls.spiffe {
        identity.push_str(&format!(" {}", spiffe.as_str()));
    }
    for key in &server.tls.keys {
        identity.push_str(&format!(" key:sha256:{}", hex::encode(key)));
    }
    Some(identity)
}

/// The identity of a program that is searched for in `path`, or in the gateway's own search path. Reads the whole
/// file.
pub(super) fn of_program(program: &Program, path: Option<&OsStr>) -> String {
    let folder = program.directory.clone().unwrap_or_default();
    let started = scripts::look_up(&program.command, &folder, path);
    let known = started.and_then(|file| {
        let (digest, run) = (hex::encode(&digest(&file)?), ran(program, path)?);
        Ok(format!("program {} sha256:{digest}{run}", file.display()))
    });
    known.unwrap_or_else(|error| format!("{UNREADABLE} {}: {}", program.command, error.kind()))
}

/// The files that a program runs because its arguments name them: their number, and one digest over their paths and
/// digests.
fn ran(program: &Program, path: Option<&OsStr>) -> io::Result<String> {
    let folder = program.directory.clone().unwrap_or_default();
    let line =
        CommandLine { command: &program.command, args: &program.args, folder: &folder, path };
    let files = scripts::of(line)?;
    if files.is_empty() {
        return Ok(String::new());
    }
    let mut all = Context::new(&SHA256);
    for file in &files {
        let path = file.as_os_str().as_encoded_bytes();
        all.update(&(path.len() as u64).to_be_bytes());
        all.update(path);
        all.update(&digest(file)?);
    }
    let all = hex::encode(all.finish().as_ref());
    Ok(format!(" running {} sha256:{all}", files.len()))
}

fn digest(path: &Path) -> io::Result<Vec<u8>> {
    // Reading from a pipe would block this thread.
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut file = File::open(path)?;
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(context.finish().as_ref().to_vec());
        }
        context.update(buffer.get(..read).unwrap_or_default());
    }
}
