//! A server that is a program on this machine.
//!
//! One process serves every client. A task writes its input, a task reads its output and gives each
//! answer to the one request it belongs to, and a task watches it and stops it. A process that ends
//! is started again by the next request, after a pause that grows while it keeps ending.

use std::env;
use std::ffi::OsString;
use std::process::Stdio as Pipe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use policy::json::{Bounds, Value};
use policy::name::ServerName;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::error::UpstreamError;
use super::request::Outgoing;
use crate::bounded::Bounded;
use crate::protocol::{code, meta, method};
use crate::secret::Secret;
use crate::settings::{Limits, Program};
use crate::task::Tasks;
use crate::wire::{self, Id, Message};

/// Lines that wait to be written.
const QUEUE: usize = 64;
/// Messages that wait for one request.
const WAITING: usize = 64;
/// Lines of output that are no messages before the process is given up: some programs greet.
const GARBAGE: usize = 16;
/// Longest line of its error output that is logged.
const COMPLAINT: usize = 4096;
/// How long a process may take to end by itself, and again after it was asked to.
const PATIENCE: Duration = Duration::from_secs(2);
/// The first pause before a process is started again, and the longest.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Ends are counted together that are closer than this.
const STEADY: Duration = Duration::from_secs(10);
/// What every program gets of our environment.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// A program, and the process of it that runs.
#[derive(Debug)]
pub(super) struct Stdio {
    name: ServerName,
    program: Program,
    secrets: Vec<(String, Secret)>,
    limits: Limits,
    tasks: Tasks,
    state: Mutex<State>,
    generation: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    process: Option<Arc<Process>>,
    /// Ends in a row, each soon after the start.
    failures: u32,
    not_before: Option<Instant>,
}

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    /// Which start of the program this is.
    pub(super) generation: u64,
    input: mpsc::Sender<Bytes>,
    waiting: Bounded<i64, mpsc::Sender<Message>>,
    /// The process is to end, or has ended.
    over: CancellationToken,
    answered: AtomicBool,
    started: Instant,
}

/// The answer to one request, message by message.
#[derive(Debug)]
pub(super) struct StdioAnswer {
    process: Arc<Process>,
    id: i64,
    messages: mpsc::Receiver<Message>,
}

impl Stdio {
    pub(super) fn new(
        name: ServerName,
        program: Program,
        secrets: Vec<(String, Secret)>,
        limits: Limits,
        tasks: Tasks,
    ) -> Self {
        let (state, generation) = (Mutex::default(), AtomicU64::new(0));
        Self { name, program, secrets, limits, tasks, state, generation }
    }

    /// The process that runs, started if there is none.
    pub(super) async fn process(&self) -> Result<Arc<Process>, UpstreamError> {
        let mut state = self.state.lock().await;
        if let Some(process) = &state.process {
            if !process.over.is_cancelled() {
                return Ok(Arc::clone(process));
            }
            // One that worked for a while may start again at once; one that keeps ending may not.
            let steady = process.started.elapsed() >= STEADY;
            let answered = process.answered.load(Ordering::Relaxed);
            state.failures = if steady { 1 } else { state.failures + 1 };
            let worked = answered && state.failures == 1;
            let pause = PAUSE * 2_u32.saturating_pow(state.failures.min(16));
            let pause = if worked { Duration::ZERO } else { pause.min(LONGEST_PAUSE) };
            state.not_before = Some(Instant::now() + pause);
            state.process = None;
        }
        let left = state.not_before.map(|at| at.saturating_duration_since(Instant::now()));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Err(UpstreamError::Backoff(left));
        }
        let process = self.start().inspect_err(|_| {
            state.failures += 1;
            state.not_before = Some(Instant::now() + PAUSE);
        })?;
        state.process = Some(Arc::clone(&process));
        Ok(process)
    }

    fn start(&self) -> Result<Arc<Process>, UpstreamError> {
        let inherited = INHERITED.iter().filter_map(|name| Some((*name, env::var_os(name)?)));
        let mut command = Command::new(&self.program.command);
        command
            .args(&self.program.args)
            .env_clear()
            .envs(inherited)
            .envs(self.secrets.iter().map(|(name, value)| (name, OsString::from(value.expose()))))
            .stdin(Pipe::piped())
            .stdout(Pipe::piped())
            .stderr(Pipe::piped())
            // A group of its own: what the program starts is stopped with it.
            .process_group(0)
            .kill_on_drop(true);
        if let Some(directory) = &self.program.directory {
            command.current_dir(directory);
        }
        let mut child = command.spawn().map_err(UpstreamError::Start)?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(UpstreamError::Exited);
        };
        let (input, lines) = mpsc::channel(QUEUE);
        let process = Arc::new(Process {
            generation: self.generation.fetch_add(1, Ordering::Relaxed) + 1,
            input,
            waiting: Bounded::new(self.limits.in_flight.max(64) * 4),
            over: CancellationToken::new(),
            answered: AtomicBool::new(false),
            started: Instant::now(),
        });
        tracing::info!(server = %self.name, pid = child.id(), "program started");
        self.tasks.spawn_service(write(stdin, lines, process.over.clone()));
        let limit = self.limits.response_body;
        let reader = read(BufReader::new(stdout), Arc::clone(&process), self.name.clone(), limit);
        self.tasks.spawn_service(reader);
        self.tasks.spawn_service(complain(
            BufReader::new(stderr),
            process.over.clone(),
            self.name.clone(),
        ));
        let watch = watch(child, Arc::clone(&process), self.name.clone(), self.tasks.clone());
        self.tasks.spawn_service(watch);
        Ok(process)
    }
}

impl Process {
    /// Sends a request.
    pub(super) async fn send(
        self: &Arc<Self>,
        outgoing: &Outgoing<'_>,
        at_most: Duration,
    ) -> Result<StdioAnswer, UpstreamError> {
        let Some(id) = outgoing.id else {
            return Err(UpstreamError::Protocol("a request needs an id"));
        };
        let (sender, messages) = mpsc::channel(WAITING);
        let taken = self.waiting.insert(id, sender);
        taken.map_err(|_late| UpstreamError::Stalled)?;
        let answer = StdioAnswer { process: Arc::clone(self), id, messages };
        self.line(outgoing.body.clone(), at_most).await?;
        Ok(answer)
    }

    /// Sends a notification.
    pub(super) async fn notify(
        &self,
        outgoing: &Outgoing<'_>,
        at_most: Duration,
    ) -> Result<(), UpstreamError> {
        self.line(outgoing.body.clone(), at_most).await
    }

    /// Sends a notification if there is room for it right now.
    pub(super) fn try_notify(&self, outgoing: &Outgoing<'_>) {
        if let Err(error) = self.input.try_send(outgoing.body.clone()) {
            tracing::debug!(%error, "a notification was not sent");
        }
    }

    async fn line(&self, line: Bytes, at_most: Duration) -> Result<(), UpstreamError> {
        tokio::select! {
            sent = timeout(at_most, self.input.send(line)) => match sent {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) => Err(UpstreamError::Exited),
                Err(_) => Err(UpstreamError::Stalled),
            },
            () = self.over.cancelled() => Err(UpstreamError::Exited),
        }
    }

    /// Gives a message to the request it belongs to. What belongs to none is dropped.
    fn deliver(&self, message: Message, name: &ServerName) {
        match message {
            Message::Response(response) => {
                let Some(Id::Number(id)) = response.id else {
                    tracing::warn!(server = %name, "a response without a request was dropped");
                    return;
                };
                match self.waiting.remove(&id) {
                    Some(request) => {
                        self.answered.store(true, Ordering::Relaxed);
                        hand(&request, Message::Response(response));
                    }
                    None => {
                        tracing::warn!(server = %name, id, "a response nobody waits for was dropped")
                    }
                }
            }
            Message::Notification(notification) => {
                // Progress names the request; nothing else on a shared channel does.
                let token = notification.params.as_ref().and_then(|params| {
                    params.value().get(meta::PROGRESS_TOKEN).and_then(Value::as_i64)
                });
                let request = token.and_then(|token| self.waiting.get(&token));
                // The last room is for the response: progress may be lost, an answer may not.
                if let Some(request) = request.filter(|request| request.capacity() > 1) {
                    hand(&request, Message::Notification(notification));
                }
            }
            Message::Request(request) => {
                let mut reply = reply_to(&request);
                reply.push(b'\n');
                if let Err(error) = self.input.try_send(reply.into()) {
                    tracing::debug!(server = %name, %error, "a request of the server was not answered");
                }
            }
        }
    }
}

/// A request that does not read what it asked for is given up rather than waited for.
fn hand(request: &mpsc::Sender<Message>, message: Message) {
    if let Err(error) = request.try_send(message) {
        tracing::debug!(%error, "a message was not taken");
    }
}

/// What a server that asks something of its client is told: `ping` is answered, nothing else is
/// offered.
pub(super) fn reply_to(request: &wire::Request) -> Vec<u8> {
    if request.method.as_ref() == method::PING {
        let mut out = wire::head(Some(&request.id), 16);
        out.extend_from_slice(br#""result":{}}"#);
        return out;
    }
    wire::error(Some(&request.id), code::METHOD, "this client does not offer that", None)
}

impl StdioAnswer {
    /// The next message.
    pub(super) async fn next(&mut self) -> Result<Message, UpstreamError> {
        tokio::select! {
            biased;
            message = self.messages.recv() => message.ok_or(UpstreamError::Exited),
            () = self.process.over.cancelled() => Err(UpstreamError::Exited),
        }
    }

    /// The process that was asked.
    pub(super) const fn process(&self) -> &Arc<Process> {
        &self.process
    }
}

impl Drop for StdioAnswer {
    fn drop(&mut self) {
        self.process.waiting.remove(&self.id);
    }
}

async fn write(mut stdin: ChildStdin, mut lines: mpsc::Receiver<Bytes>, over: CancellationToken) {
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            () = over.cancelled() => None,
        };
        let Some(line) = line else { return };
        let mut whole = Vec::with_capacity(line.len() + 1);
        // A message has no line end inside; in JSON a space means the same.
        whole.extend(
            line.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }),
        );
        whole.push(b'\n');
        let written = tokio::select! {
            written = stdin.write_all(&whole) => written.is_ok(),
            () = over.cancelled() => false,
        };
        if !written {
            over.cancel();
            return;
        }
    }
}

async fn read(
    mut stdout: impl AsyncBufRead + Unpin,
    process: Arc<Process>,
    name: ServerName,
    limit: usize,
) {
    let mut garbage = 0;
    loop {
        let line = tokio::select! {
            line = line(&mut stdout, limit) => line,
            () = process.over.cancelled() => return,
        };
        let Some(text) = line else {
            tracing::warn!(server = %name, "the program closed its output or wrote too long a line");
            process.over.cancel();
            return;
        };
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match wire::decode_any(text, &Bounds::ANSWER).await {
            Ok(message) => {
                garbage = 0;
                process.deliver(message, &name);
            }
            Err(error) => {
                garbage += 1;
                let error = crate::report::Chain(&error);
                tracing::warn!(server = %name, %error, "the program wrote what is no message");
                if garbage > GARBAGE {
                    process.over.cancel();
                    return;
                }
            }
        }
    }
}

/// One line without its end; `None` at the end of the output or past `limit`.
async fn line(input: &mut (impl AsyncBufRead + Unpin), limit: usize) -> Option<Bytes> {
    let mut text = Vec::new();
    loop {
        let buffer = input.fill_buf().await.ok()?;
        if buffer.is_empty() {
            return (!text.is_empty()).then(|| text.into());
        }
        let end = memchr::memchr(b'\n', buffer);
        let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
        if text.len() + part.len() > limit {
            return None;
        }
        text.extend_from_slice(part);
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Some(text.into());
        }
    }
}

/// Logs what the program says on its error output, so that nothing in it can pass for our log.
async fn complain(
    mut stderr: impl AsyncBufRead + Unpin,
    over: CancellationToken,
    name: ServerName,
) {
    loop {
        let text = tokio::select! {
            biased;
            text = line(&mut stderr, 1024 * 1024) => text,
            () = over.cancelled() => None,
        };
        let Some(text) = text else { return };
        let text = String::from_utf8_lossy(&text);
        let text = text.get(..text.floor_char_boundary(COMPLAINT)).unwrap_or_default();
        tracing::info!(server = %name, text = %text.escape_debug(), "the program says");
    }
}

/// Waits until the process ends, or ends it.
async fn watch(mut child: Child, process: Arc<Process>, name: ServerName, tasks: Tasks) {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let ended = tokio::select! {
        status = child.wait() => status.ok(),
        () = process.over.cancelled() => None,
        () = tasks.halting() => None,
    };
    process.over.cancel();
    let status = match ended {
        Some(status) => Some(status),
        None => end(&mut child, group).await,
    };
    // What the program started does not outlive it.
    signal(group, Signal::KILL);
    tracing::info!(server = %name, status = status.map(|s| s.to_string()), "program ended");
}

/// Its input is closed by now; then it is asked, then it is made to.
///
/// SPEC 2026-07-28 basic/transports/stdio#shutdown
async fn end(child: &mut Child, group: Option<Pid>) -> Option<std::process::ExitStatus> {
    for next in [Signal::TERM, Signal::KILL] {
        if let Ok(status) = timeout(PATIENCE, child.wait()).await {
            return status.ok();
        }
        signal(group, next);
    }
    child.wait().await.ok()
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(Err(error)) = group.map(|group| kill_process_group(group, signal)) {
        tracing::debug!(%error, "the program could not be signalled");
    }
}
