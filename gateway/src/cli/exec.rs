//! `portcullis exec`: runs a gateway for one program, and gives the program the gateway's address.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use gateway::base::random;
use gateway::config::settings::{
    ListenerSettings, Program, ServerTransport, Settings, TerminalUse,
};
use gateway::control::run::{self, RunningGateway};
use gateway::control::watchdog::StopTrigger;
use json::hex;

use super::export::{ClientEndpoint, ClientKind, KEY, snippet};
use super::{OutputFormat, complain, logging, run_to_end, settings_to_serve, told_to_stop};

/// Placeholder in the program's arguments for the path of the file with the MCP servers.
const PLACE: &str = "{}";

#[derive(Debug, Args)]
pub(super) struct ExecArgs {
    /// The configuration file to read.
    #[arg(short, long, value_name = "FILE", default_value = super::USUAL)]
    config: PathBuf,
    /// Log format. In the human format, a line for each request is written only if this option is given, because the
    /// program uses the same terminal.
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<OutputFormat>,
    /// The program and its arguments. `{}` stands for the path of a file in the format of `.mcp.json` that names the
    /// gateway; the variables `PORTCULLIS_URL` and `PORTCULLIS_MCP_CONFIG` hold the address and that path.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// Runs the gateway and the program beside it. Returns the program's exit code.
pub(super) fn run(exec: ExecArgs) -> ExitCode {
    let mut settings = match settings_to_serve(&exec.config) {
        Ok(settings) => logging(settings, exec.log_format),
        Err(code) => return code,
    };
    settings.log.terminal = TerminalUse::Shared;
    let again = match super::settings(&exec.config) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let told = match TempMcpConfig::new(&exec.config) {
        Ok(told) => told,
        Err(error) => return complain(&format!("no file for the program can be made: {error}")),
    };
    told.keep_back(&mut settings);
    run_to_end(
        settings,
        None,
        |settings| run::start(settings, None),
        // The program may take any time to end; the timed stop begins after it.
        StopTrigger::WithCall,
        async move |running| match beside(running, &again, &exec, told).await {
            Ok(code) => code,
            Err(error) => complain(&error.to_string()),
        },
    )
}

/// Starts the program, and waits until it has ended.
async fn beside(
    running: &RunningGateway,
    settings: &Settings,
    exec: &ExecArgs,
    mut told: TempMcpConfig,
) -> io::Result<ExitCode> {
    let none = || io::Error::other("the gateway listens nowhere");
    let (listener, bound) =
        settings.listeners.iter().zip(&running.listeners).next().ok_or_else(none)?;
    // The bound address: the configuration may have left the port open.
    let listener = ListenerSettings { address: bound.1, ..listener.clone() };
    let scheme = if bound.2 { "https" } else { "http" };
    let base = format!("{scheme}://{}", bound.1);
    let door = ClientEndpoint::of(&listener, listener.public.is_none().then_some(&base));
    let text = snippet(ClientKind::ClaudeCode, &settings.routes, &door, &exec.config)?;
    told.file.write_all(text.as_bytes())?;
    let mut command = exec.command.iter().map(|part| match part == PLACE {
        true => told.path.clone().into_os_string(),
        false => part.clone(),
    });
    let mut program = tokio::process::Command::new(command.next().unwrap_or_default());
    // The gateway protects its own secrets from this program, so its configured variables are removed.
    program.env_clear().envs(environment(settings));
    program.args(command).env("PORTCULLIS_URL", &base).env("PORTCULLIS_MCP_CONFIG", &told.path);
    let told_to_stop = told_to_stop();
    let mut child = program.spawn().map_err(|error| {
        let name = exec.command.first().map(|name| name.to_string_lossy().into_owned());
        io::Error::other(format!("could not start `{}`: {error}", name.unwrap_or_default()))
    })?;
    let status = tokio::select! {
        status = child.wait() => status?,
        // Ctrl-C at a terminal signals the program as well; a signal to this process alone does not, so it is
        // forwarded.
        () = told_to_stop => {
            let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
            let pid = pid.and_then(rustix::process::Pid::from_raw);
            let term = rustix::process::Signal::TERM;
            if let Some(Err(error)) = pid.map(|pid| rustix::process::kill_process(pid, term)) {
                tracing::debug!(%error, "the program has already ended");
            }
            child.wait().await?
        }
    };
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// The environment of the program: that of this process without the variables that the configuration reads, except the
/// API key that clients use.
fn environment(settings: &Settings) -> impl Iterator<Item = (OsString, OsString)> {
    let named = &settings.own.variables;
    env::vars_os().filter(|(name, _)| match name.to_str() {
        Some(name) => name == KEY || !named.contains(name),
        // The configuration is UTF-8, so it cannot name this variable.
        None => true,
    })
}

/// A temporary file in the format of `.mcp.json` that names the gateway; removed when this is dropped. Sandboxed
/// upstream servers can neither read nor change it, because it decides where the program sends its API key.
struct TempMcpConfig {
    path: PathBuf,
    file: File,
    /// The folder that was created for the file, if the folder of the configuration was not writable.
    folder: Option<PathBuf>,
}

impl TempMcpConfig {
    /// Creates the file beside the configuration, where the sandbox already protects every file whose name begins with
    /// that of the configuration. If that fails, creates it in a folder of its own.
    fn new(config: &Path) -> io::Result<Self> {
        let random = hex::encode(&random::bytes::<16>().map_err(io::Error::other)?);
        let mut path = std::path::absolute(config)?.into_os_string();
        path.push(format!(".exec-{random}.mcp.json"));
        let path = PathBuf::from(path);
        if let Ok(file) = new_file(&path) {
            return Ok(Self { path, file, folder: None });
        }
        let own = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let own = own.filter(|folder| folder.is_absolute() && folder.is_dir());
        let folder = own.unwrap_or_else(env::temp_dir).join(format!("portcullis-exec-{random}"));
        DirBuilder::new().mode(0o700).create(&folder)?;
        let path = folder.join("mcp.json");
        Ok(Self { file: new_file(&path)?, path, folder: Some(folder) })
    }

    /// Keeps the folder of this file out of every sandbox.
    fn keep_back(&self, settings: &mut Settings) {
        let Some(folder) = &self.folder else { return };
        for server in &mut settings.servers {
            if let ServerTransport::Stdio(Program { sandbox: Some(plan), .. }) = &mut server.reach {
                plan.keep_back(std::slice::from_ref(folder), &[]);
            }
        }
    }
}

/// Creates a file that only this user can read.
fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

impl Drop for TempMcpConfig {
    fn drop(&mut self) {
        let gone = match &self.folder {
            Some(folder) => fs::remove_dir_all(folder),
            None => fs::remove_file(&self.path),
        };
        if let Err(error) = gone {
            tracing::debug!(%error, "a temporary file could not be removed");
        }
    }
}
