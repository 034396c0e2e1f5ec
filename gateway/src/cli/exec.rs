//! `portcullis exec`: a gateway for one program, which is told where it is.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gateway::settings::{Listener, Settings, Terminal};
use gateway::start::{self, Running};
use gateway::watchdog::Begins;

use super::export::{Client, Door, KEY, Started, snippet};
use super::{Format, complain, logging, run_to_end, settings_to_serve, told_to_stop};

/// What stands for the file with the servers in the arguments of the program.
const PLACE: &str = "{}";

#[derive(Debug, Args)]
pub(super) struct Exec {
    /// The configuration.
    #[arg(short, long, value_name = "FILE", default_value = super::USUAL)]
    config: PathBuf,
    /// How the log is written. For people there is a line for each request only if this is given: the terminal is the
    /// program's.
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<Format>,
    /// The program and its arguments. `{}` stands for a file that says where the gateway is, in the
    /// form of `.mcp.json`; the variables `PORTCULLIS_URL` and `PORTCULLIS_MCP_CONFIG` say it too.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// Runs the gateway, and the program beside it; ends as the program does.
pub(super) fn run(exec: Exec) -> ExitCode {
    let mut settings = match settings_to_serve(&exec.config) {
        Ok(settings) => logging(settings, exec.log_format),
        Err(code) => return code,
    };
    settings.log.terminal = Terminal::Shared;
    let again = match super::settings(&exec.config) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    run_to_end(
        settings,
        |settings| start::start(settings, None),
        // The program has the time it takes to end; the stop begins after it.
        Begins::WithCall,
        async move |running| match beside(running, &again, &exec).await {
            Ok(code) => code,
            Err(error) => complain(&error.to_string()),
        },
    )
}

/// The program, from its start to its end.
async fn beside(running: &Running, settings: &Settings, exec: &Exec) -> io::Result<ExitCode> {
    let none = || io::Error::other("the gateway listens nowhere");
    let (listener, bound) =
        settings.listeners.iter().zip(&running.listeners).next().ok_or_else(none)?;
    // Where it really is: the file may have left the port open.
    let listener = Listener { address: bound.1, ..listener.clone() };
    let scheme = if bound.2 { "https" } else { "http" };
    let base = format!("{scheme}://{}", bound.1);
    let door = Door::of(&listener, listener.public.is_none().then_some(&base));
    let started = Started::of(&exec.config)?;
    let text = snippet(Client::ClaudeCode, settings, &door, &started);
    let told = Told::new(&text)?;
    let mut command = exec.command.iter().map(|part| match part == PLACE {
        true => told.0.clone().into_os_string(),
        false => part.clone(),
    });
    let mut program = tokio::process::Command::new(command.next().unwrap_or_default());
    // It is what the gateway stands in front of: it gets nothing that the gateway is configured with.
    program.env_clear().envs(environment(settings));
    program.args(command).env("PORTCULLIS_URL", &base).env("PORTCULLIS_MCP_CONFIG", &told.0);
    let told_to_stop = told_to_stop();
    let mut child = program.spawn().map_err(|error| {
        let name = exec.command.first().map(|name| name.to_string_lossy().into_owned());
        io::Error::other(format!("could not start `{}`: {error}", name.unwrap_or_default()))
    })?;
    let status = tokio::select! {
        status = child.wait() => status?,
        // Whoever stops the two at a terminal has told the program as well.
        () = told_to_stop => {
            let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
            let pid = pid.and_then(rustix::process::Pid::from_raw);
            let term = rustix::process::Signal::TERM;
            if let Some(Err(error)) = pid.map(|pid| rustix::process::kill_process(pid, term)) {
                tracing::debug!(%error, "the program has ended already");
            }
            child.wait().await?
        }
    };
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// What of our environment the program gets: nothing that the configuration names, however it is written
/// there, but for the key that clients show.
fn environment(settings: &Settings) -> impl Iterator<Item = (OsString, OsString)> {
    let named = &settings.own.variables;
    env::vars_os().filter(|(name, _)| match name.to_str() {
        Some(name) => name == KEY || !named.contains(name),
        // The configuration is text: it cannot name this one.
        None => true,
    })
}

/// A file that says where the gateway is; gone when the program is.
struct Told(PathBuf);

impl Told {
    fn new(text: &str) -> io::Result<Self> {
        let name = format!("portcullis-{}.mcp.json", std::process::id());
        let path = env::temp_dir().join(name);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(&path)?.write_all(text.as_bytes())?;
        Ok(Self(path))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::debug!(%error, "a file was left behind");
        }
    }
}
