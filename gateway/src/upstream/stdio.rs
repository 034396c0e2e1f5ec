//! Upstream servers that are programs on this machine, reached over standard input and output.
//!
//! Each process has four tasks: one writes its input, one reads its output, one logs its error output, and one waits
//! for its end or stops it.

use std::env;
use std::ffi::OsString;
use std::process::{ExitStatus, Stdio as Pipe};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use policy_core::subject::name::ServerName;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufRead, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::channel::{Channel, ChannelShare, ChannelTerms};
use super::demux::ConnectionScope;
use super::error::UpstreamError;
use super::line_framing::{LineError, ROOM, append_flat, read_line};
use super::message;
use super::send_queue::QueuedMessage;
use super::server_identity;
use super::server_log::{self, ErrorOutput, LastOutput, OutputTail, ServerLog};
use crate::base::clock::{Clock as _, SystemClock};
use crate::base::fair::{BlankLines, ReadBudget};
use crate::base::intake::ResponseAccount;
use crate::base::secret::Secret;
use crate::base::task::Tasks;
use crate::config::settings::{Program, UNREADABLE};
use crate::mcp::wire::FromServerError;
use crate::outbound::environment::EnvironmentError;
use crate::outbound::secrets::LiveSecret;
use crate::pins::PinMonitor;
use crate::process::sandbox::{self, DeniedPath, SandboxPlan};

/// The maximum number of consecutive output lines that are no messages before the process is given up: some programs
/// print a greeting.
const GARBAGE: usize = 16;
/// How long the error output of a program that has ended is read on, if another process still holds it open.
const LAST_WORDS: Duration = Duration::from_millis(250);
/// How long a process may take to end after its input was closed, and again after each signal.
const PATIENCE: Duration = Duration::from_secs(2);
/// The variables that every program inherits from the gateway's environment.
pub(super) const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// Starts the processes of one program.
#[derive(Debug)]
pub(super) struct ProcessStarter {
    terms: ChannelTerms,
    program: Program,
    secrets: Vec<(String, Arc<LiveSecret>)>,
    tasks: Tasks,
    pin_monitor: Option<Arc<PinMonitor>>,
}

/// The name and value of an environment variable of a process.
type EnvVariable = (String, Arc<Secret>);

impl ProcessStarter {
    pub(super) fn new(
        terms: ChannelTerms,
        program: Program,
        secrets: Vec<(String, Arc<LiveSecret>)>,
        tasks: Tasks,
    ) -> Self {
        Self { terms, program, secrets, tasks, pin_monitor: None }
    }

    /// Reports the identity of started programs to `pin_monitor`.
    pub(super) fn known_to(self, pin_monitor: Arc<PinMonitor>) -> Self {
        Self { pin_monitor: Some(pin_monitor), ..self }
    }

    /// Determines the identity of the program before it is started, and checks that it is the approved one. Reading a
    /// large program takes a while.
    pub(super) async fn identify(&self) -> Result<(), UpstreamError> {
        let Some(pin_monitor) = self.pin_monitor.clone().filter(|pin_monitor| pin_monitor.acts())
        else {
            return Ok(());
        };
        let program = self.program.clone();
        let path = self.secrets.iter().find(|(name, _)| name == "PATH");
        let path = path.and_then(|(_, value)| value.now().ok());
        let path = path.map(|value| OsString::from(value.expose()));
        let identity = tokio::task::spawn_blocking(move || {
            server_identity::of_program(&program, path.as_deref())
        })
        .await;
        let identity = identity.unwrap_or_else(|_| UNREADABLE.to_owned());
        if pin_monitor.identified(&self.terms.name, &identity) {
            Ok(())
        } else {
            Err(UpstreamError::IdentityMismatch)
        }
    }

    /// The environment of a process that is started now.
    fn secrets(&self) -> Result<Arc<[EnvVariable]>, EnvironmentError> {
        let now = |(name, value): &(String, Arc<LiveSecret>)| Ok((name.clone(), value.now()?));
        self.secrets.iter().map(now).collect()
    }

    /// Starts a process and the tasks that serve it.
    pub(super) fn start(
        &self,
        generation: u64,
        serves: ConnectionScope,
        held: Option<ChannelShare>,
    ) -> Result<Arc<Channel>, UpstreamError> {
        let secrets = self.secrets().map_err(UpstreamError::Environment)?;
        let inherited = INHERITED.iter().filter_map(|name| Some((*name, env::var_os(name)?)));
        if self.tasks.is_dismissed() {
            return Err(UpstreamError::Exited);
        }
        let Program { command, args, sandbox, .. } = &self.program;
        let command = sandbox::supervised(sandbox.as_ref(), command, args);
        let mut command = Command::from(command.map_err(UpstreamError::Start)?);
        command
            .env_clear()
            .envs(inherited)
            .envs(secrets.iter().map(|(name, value)| (name, OsString::from(value.expose()))))
            .stdin(Pipe::piped())
            .stdout(Pipe::piped())
            .stderr(Pipe::piped());
        if let Some(directory) = &self.program.directory {
            command.current_dir(directory);
        }
        let start = SystemClock.now();
        self.terms.server_log.starts(start);
        let mut child = command.spawn().map_err(UpstreamError::Start)?;
        let supervisor = Supervisor::of(&child);
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(UpstreamError::Exited);
        };
        let channel = Channel::new(generation, serves, &self.terms, held);
        let ChannelTerms { name, limits, server_log, response_memory, .. } = &self.terms;
        tracing::info!(
            event = "program.started", server = %name, pid = child.id(),
            "program started"
        );
        self.tasks.spawn_service(write(stdin, Arc::clone(&channel)));
        let known_as: Arc<str> = name.as_str().into();
        let reader = OutputReader {
            channel: Arc::clone(&channel),
            name: name.clone(),
            server_log: Arc::clone(server_log),
            limit: limits.response_body,
            received: response_memory.begin(&known_as, None),
            given: Arc::clone(&secrets),
        };
        self.tasks.spawn_service(reader.read(BufReader::new(stdout)));
        let gone = CancellationToken::new();
        let complaints = ErrorOutputReader {
            name: name.clone(),
            server_log: Arc::clone(server_log),
            gone: gone.clone(),
            given: secrets,
        };
        let said = complaints.read(BufReader::new(stderr));
        let watcher = ProcessWatcher {
            child,
            supervisor,
            gone,
            channel: Arc::clone(&channel),
            name: name.clone(),
            server_log: Arc::clone(server_log),
            sandbox: self.program.sandbox.clone().map(Arc::new),
            start,
            tasks: self.tasks.clone(),
        };
        self.tasks.spawn_service(watcher.watch(said));
        Ok(channel)
    }
}

/// Writes queued messages until the channel ends or the program stops reading.
async fn write(mut stdin: ChildStdin, channel: Arc<Channel>) {
    while let Some(message) = channel.next_unsent().await {
        match feed_line(&mut stdin, &message, &channel).await {
            WriteOutcome::Whole => channel.sent(message),
            WriteOutcome::Over => {
                channel.lose();
                break;
            }
            WriteOutcome::Stalled => {
                channel.lose();
                channel.has_stalled();
                break;
            }
        }
    }
    channel.close();
}

/// The maximum number of bytes of a message that are copied at a time for writing.
const AT_ONCE: usize = 64 * 1024;

/// Writes a message as a line.
async fn feed_line(
    stdin: &mut ChildStdin,
    message: &QueuedMessage,
    channel: &Channel,
) -> WriteOutcome {
    let mut line = Vec::with_capacity(AT_ONCE.min(message.body.length()) + 1);
    for part in message.body.parts().flat_map(|part| part.chunks(AT_ONCE)) {
        if line.len() + part.len() > AT_ONCE {
            match feed(stdin, &line, channel).await {
                WriteOutcome::Whole => line.clear(),
                fed => return fed,
            }
        }
        append_flat(&mut line, part);
    }
    line.push(b'\n');
    feed(stdin, &line, channel).await
}

/// The outcome of writing a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteOutcome {
    /// The program has read it.
    Whole,
    /// The channel has ended, or the program has closed its input.
    Over,
    /// The program reads nothing and is given up.
    Stalled,
}

/// Writes a line at the pace at which the program reads. A line that was begun is completed, or the program is ended.
async fn feed(stdin: &mut ChildStdin, line: &[u8], channel: &Channel) -> WriteOutcome {
    let mut rest = line;
    while !rest.is_empty() {
        let since = Instant::now();
        let taken = tokio::select! {
            biased;
            () = channel.over.cancelled() => return WriteOutcome::Over,
            taken = stdin.write(rest) => taken,
            () = channel.stalls(since) => return WriteOutcome::Stalled,
        };
        match taken {
            Ok(bytes @ 1..) => rest = rest.get(bytes..).unwrap_or_default(),
            Ok(0) | Err(_) => return WriteOutcome::Over,
        }
        channel.moved();
    }
    WriteOutcome::Whole
}

/// Reads the output of a program.
struct OutputReader {
    channel: Arc<Channel>,
    name: ServerName,
    server_log: Arc<ServerLog>,
    /// The maximum length of a message in bytes.
    limit: usize,
    /// The memory budget of a message. Callers share the program, so only the server's share is used.
    received: ResponseAccount,
    /// The environment of the process, whose values are masked.
    given: Arc<[EnvVariable]>,
}

impl OutputReader {
    async fn read(self, mut stdout: impl AsyncBufRead + Unpin) {
        let Self { channel, name, server_log, limit, mut received, given } = self;
        let (mut garbage, mut fair, mut blanks) = (0, ReadBudget::new(), BlankLines::new());
        loop {
            fair.turn().await;
            let line = tokio::select! {
                line = read_line(&mut stdout, limit, &mut received) => line,
                () = channel.over.cancelled() => return,
            };
            let text = match line {
                Ok(text) => text,
                Err(why) => {
                    log_end(why, &name);
                    channel.lose();
                    return;
                }
            };
            fair.took(text.length());
            if text.parts().flatten().all(u8::is_ascii_whitespace) {
                if let Err(error) = blanks.count(1, Instant::now()) {
                    tracing::warn!(
                        event = "program.stopped", server = %name, %error,
                        "the program is stopped"
                    );
                    channel.lose();
                    return;
                }
                continue;
            }
            match message::read_patiently(text.clone(), name.as_str(), &received, ROOM).await {
                Ok(read) => {
                    garbage = 0;
                    blanks.message();
                    channel.deliver(read.message, &name);
                    tokio::select! {
                        () = channel.demux.ready() => {}
                        () = channel.over.cancelled() => return,
                    }
                }
                Err(error @ FromServerError::Memory { .. }) => {
                    let error = crate::base::error_chain::ErrorChain(&error);
                    tracing::warn!(
                        event = "program.stopped", server = %name, %error,
                        "the program is stopped"
                    );
                    channel.lose();
                    return;
                }
                Err(error) => {
                    garbage += 1;
                    if let Some(begin) = text.parts().next() {
                        server_log.strays(begin, &given);
                    }
                    // A valid message in between resets the count.
                    log_stray(&name, &server_log, &error);
                    if garbage > GARBAGE {
                        server_log.floods();
                        tracing::warn!(
                            event = "program.stopped", server = %name,
                            error = "too many lines in a row are not JSON-RPC messages", lines = garbage,
                            "the program is stopped"
                        );
                        channel.lose();
                        return;
                    }
                }
            }
        }
    }
}

/// Logs that a program wrote a line that is no message.
fn log_stray(name: &ServerName, server_log: &ServerLog, error: &FromServerError) {
    if let Some(suppressed) = server_log.allow(Instant::now()) {
        let error = crate::base::error_chain::ErrorChain(error);
        tracing::warn!(
            event = "server.invalid_message", server = %name, %error, suppressed,
            "program wrote a line that is not a JSON-RPC message"
        );
    }
}

/// Logs why no further line of a program can be read.
fn log_end(why: LineError, name: &ServerName) {
    match why {
        LineError::Closed => tracing::info!(
            event = "program.output_closed", server = %name,
            "the program closed its output"
        ),
        LineError::TooLong => {
            tracing::warn!(
                event = "program.line_too_long", server = %name,
                "the program wrote a line that is longer than `limits.responseBody`"
            );
        }
        LineError::NoRoom => {
            tracing::warn!(
                event = "program.memory_limit", server = %name,
                "response memory limit reached while reading a line of the program"
            );
        }
    }
}

/// Reads and logs the error output of a program.
struct ErrorOutputReader {
    name: ServerName,
    server_log: Arc<ServerLog>,
    /// Cancelled when the process has ended.
    gone: CancellationToken,
    /// The environment of the process, whose values are masked.
    given: Arc<[EnvVariable]>,
}

impl ErrorOutputReader {
    /// Logs the error output, masked so that it cannot imitate the gateway's own log lines. Lines beyond the rate
    /// limit are read too, because a program blocks when its error output is not read. Reads until the process has
    /// ended, since a program reports the reason for its end last, and returns its last lines.
    async fn read(self, mut stderr: impl AsyncBufRead + Unpin) -> ErrorOutput {
        let Self { name, server_log, gone, given } = self;
        let mut tail = OutputTail::default();
        let read = async {
            let mut fair = ReadBudget::new();
            while let Some(line) = server_log::beginning(&mut stderr).await {
                fair.turn().await;
                fair.took(line.len());
                if let Some(suppressed) = server_log.allow(Instant::now()) {
                    let text = server_log::shown(&line, &given);
                    tracing::info!(
                        event = "program.output", server = %name, text = %text, suppressed,
                        "program output"
                    );
                }
                tail.look(&line, &given);
                tail.push(line);
            }
        };
        let late = async {
            gone.cancelled().await;
            tokio::time::sleep(LAST_WORDS).await;
        };
        tokio::select! {
            biased;
            () = read => {}
            () = late => {}
        }
        tail.shown(&given)
    }
}

/// Waits for the end of a process, or ends it.
struct ProcessWatcher {
    child: Child,
    supervisor: Supervisor,
    /// Cancelled when the process has ended.
    gone: CancellationToken,
    channel: Arc<Channel>,
    name: ServerName,
    server_log: Arc<ServerLog>,
    sandbox: Option<Arc<SandboxPlan>>,
    /// When the process was started.
    start: SystemTime,
    tasks: Tasks,
}

impl ProcessWatcher {
    /// Waits until the process ends, or ends it, and cancels `gone` then. Stores its last words, which are `said`.
    async fn watch(self, said: impl Future<Output = ErrorOutput>) {
        let Self {
            mut child,
            mut supervisor,
            gone,
            channel,
            name,
            server_log,
            sandbox,
            start,
            tasks,
        } = self;
        let waited = async {
            let (ended, by) = tokio::select! {
                status = child.wait() => (status.ok(), EndedBy::Itself),
                () = channel.over.cancelled() => (None, if channel.is_lost() { EndedBy::Itself } else { EndedBy::Us }),
                () = tasks.halting() => (None, EndedBy::Us),
                () = tasks.dismissed() => (None, EndedBy::Us),
            };
            channel.end();
            let status = match ended {
                Some(status) => Some(status),
                None => end(&mut child, &supervisor).await,
            };
            supervisor.has_ended();
            gone.cancel();
            ProcessEnd { status, by }
        };
        let (end, said) = tokio::join!(waited, said);
        let closed = match (said.refused, sandbox) {
            (Some(path), Some(plan)) => {
                tokio::task::spawn_blocking(move || plan.closes(&path, Some(start)))
                    .await
                    .ok()
                    .flatten()
            }
            (None, _) | (_, None) => None,
        };
        let said = LastOutput { lines: said.lines, closed, stray: None, flooded: false };
        end.log(&name, &said);
        server_log.ended(said);
    }
}

/// Why a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndedBy {
    /// It ended by itself, closed its end of the channel, or was given up for its behaviour.
    Itself,
    /// The gateway no longer needs it.
    Us,
}

/// How a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessEnd {
    /// Its exit status, if it ended by itself.
    status: Option<ExitStatus>,
    by: EndedBy,
}

impl ProcessEnd {
    /// Logs the end. Only an error status of a process that ended by itself is a warning; after the gateway has closed
    /// its input the status does not matter.
    fn log(self, name: &ServerName, said: &LastOutput) {
        let Self { status, by } = self;
        let ended = status.map(|status| status.to_string());
        let last = said.lines.join(" | ");
        match (status.is_some_and(|status| !status.success()), by, said.mend()) {
            (true, EndedBy::Itself, Some(mend)) => {
                let why = said.closed.as_ref().map(DeniedPath::said);
                tracing::warn!(
                    event = "program.failed", server = %name, status = ended, why, mend = %mend,
                    last = %last,
                    "program ended with an error"
                );
            }
            (true, EndedBy::Itself, None) => {
                tracing::warn!(
                    event = "program.failed", server = %name, status = ended, last = %last,
                    "program ended with an error"
                );
            }
            (true, EndedBy::Us, _) => {
                tracing::debug!(
                    server = %name, status = ended, last = %last,
                    "program ended with an error when it was closed"
                );
            }
            (false, ..) => tracing::info!(
                event = "program.ended", server = %name, status = ended,
                "program ended"
            ),
        }
    }
}

/// Ends a process whose input was closed: waits, then signals it to stop, then kills it. Returns its status if it
/// ended by itself.
///
/// SPEC 2026-07-28 basic/transports/stdio#shutdown
async fn end(child: &mut Child, supervisor: &Supervisor) -> Option<ExitStatus> {
    if let Ok(status) = timeout(PATIENCE, child.wait()).await {
        return status.ok();
    }
    for next in [Signal::TERM, Signal::QUIT] {
        supervisor.signal(next);
        if timeout(PATIENCE, child.wait()).await.is_ok() {
            return None;
        }
    }
    drop(child.wait().await);
    None
}

/// The supervisor process that has started a program. No process of the program outlives the supervisor, and none
/// outlives the task that waits for it, which may be aborted at any time when a command is interrupted.
struct Supervisor(Option<Pid>);

impl Supervisor {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    /// Notes that it has ended, since its process id may be reused.
    fn has_ended(&mut self) {
        self.0 = None;
    }

    /// Sends a signal: `SIGTERM` is passed to the program, `SIGQUIT` ends all of its processes.
    fn signal(&self, signal: Signal) {
        if let Some(Err(error)) = self.0.map(|process| kill_process(process, signal)) {
            tracing::debug!(%error, "the program could not be signalled");
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.signal(Signal::QUIT);
    }
}
