//! What a running gateway is asked over its operator's listener: whether it is ready, and to attack
//! itself.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use gateway::secret::Secret;
use gateway::selftest::words;
use gateway::settings::SecretRef;

use super::{FAILED, Format, complain, print, say};

/// Something does not hold.
const FOUND: u8 = 6;
/// Longest answer that is read.
const LONGEST: u64 = 16 * 1024 * 1024;
/// How long it may take to attack everything.
const PATIENCE: Duration = Duration::from_secs(150);

#[derive(Debug, Args)]
pub(super) struct Selftest {
    /// The configuration of the running gateway, for its `ops.address` and `ops.token`.
    #[arg(short, long, value_name = "FILE", default_value = "portcullis.yaml")]
    config: PathBuf,
    /// Where the operator's listener is, if not there: `HOST:PORT`.
    #[arg(long, value_name = "ADDRESS")]
    ops: Option<String>,
    /// How it is shown.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Health {
    /// What is asked: the URL of `/readyz`, or of `/livez`.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9901/readyz")]
    url: String,
    /// How long it may take.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

pub(super) fn health(health: &Health) -> ExitCode {
    let parts = health.url.strip_prefix("http://").map(|rest| rest.split_once('/'));
    let (address, path) = match parts {
        Some(Some((address, path))) => (address, format!("/{path}")),
        Some(None) | None => return complain("`--url` is not `http://HOST:PORT/PATH`"),
    };
    match ask(address, ("GET", &path, None), health.timeout) {
        Ok((200, _)) => print("ready\n"),
        Ok((status, body)) => {
            say(&format!("{status}: {}", body.trim()));
            ExitCode::from(FAILED)
        }
        Err(error) => complain(&format!("`{address}` does not answer: {error}")),
    }
}

pub(super) fn selftest(selftest: &Selftest) -> ExitCode {
    let settings = match super::settings(&selftest.config) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let Some(ops) = settings.ops else {
        return complain("the configuration has no `ops`");
    };
    let Some(token) = ops.token.as_ref().map(secret) else {
        return complain("the configuration has no `ops.token`, which an operator has to show");
    };
    let token = match token {
        Ok(token) => token,
        Err(why) => return complain(&why),
    };
    let address = selftest.ops.clone().unwrap_or_else(|| ops.address.to_string());
    let answer = match ask(&address, ("POST", "/selftest", Some(&token)), PATIENCE) {
        Ok((200, body)) => body,
        Ok((status, body)) => return complain(&format!("{status}: {}", body.trim())),
        Err(error) => return complain(&format!("`{address}` does not answer: {error}")),
    };
    let Ok(report) = answer.parse::<serde_json::Value>() else {
        return complain("the answer is no report");
    };
    let passed = report.get("passed").and_then(serde_json::Value::as_bool) == Some(true);
    match selftest.format {
        Format::Human => {
            print(&words(&report));
            say(if passed { "everything holds" } else { "something does not hold" });
        }
        Format::Json => drop(print(&answer)),
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::from(FOUND) }
}

fn secret(reference: &SecretRef) -> Result<Secret, String> {
    let text = match reference {
        SecretRef::Env(name) => {
            std::env::var(name).map_err(|_unset| format!("the variable `{name}` is not set"))?
        }
        SecretRef::File(path) => read(path)?,
    };
    Ok(Secret::new(text.trim().into()))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path)
        .map_err(|error| format!("could not read `{}`: {error}", path.display()))
}

/// One request over one connection: the status and the body.
fn ask(
    address: &str,
    (method, path, token): (&str, &str, Option<&Secret>),
    patience: Duration,
) -> Result<(u16, String), std::io::Error> {
    let none = || std::io::Error::other("there is no such address");
    let target = address.to_socket_addrs()?.next().ok_or_else(none)?;
    let mut stream = TcpStream::connect_timeout(&target, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let shown = token.map(|token| format!("authorization: Bearer {}\r\n", token.expose()));
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: 0\r\n{}\r\n",
        shown.unwrap_or_default()
    );
    stream.write_all(head.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other("it does not speak HTTP"))?;
    Ok((status, body.to_owned()))
}
