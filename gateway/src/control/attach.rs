//! Lets a `portcullis stdio` process find the running gateway of its configuration and be served by it.
//!
//! A running gateway creates `FILE.running` beside its configuration, with the name of a socket and a token. Only the
//! user can read the file, and the sandbox hides it from the programs that the gateway starts, like every file whose
//! name begins with that of the configuration; a process that knows the token may therefore read the configuration,
//! too. The gateway holds a lock on the file as long as it lives: a file without a lock was left by a process that
//! was killed, and is ignored. While the lock is held, a client is served by that gateway or not at all: a process of
//! its own would not know what was revoked there.
//!
//! The socket is an abstract Unix socket with a random name. Every local process can see the name, and bind it after
//! the gateway has died, so both sides prove that they know the token before the client sends its key. Neither sends
//! the token: each answers a random number of the other side with an HMAC under the token. After that, the client's
//! process only copies bytes.
//!
//! Descendants of the gateway process are refused first, at little cost: a program behind the gateway is not a client
//! of it. See `refusals`. Other processes of the user can hold places without proving anything, but cannot keep clients
//! out: see `greetings`.

mod greetings;
mod refusals;

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use json::hex;
use rustix::process::{Pid, getpid};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
    BufReader, copy, stdin, stdout,
};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::greetings::{HandshakeSlot, HandshakeSlots};
use self::refusals::AttachRefusals;
use crate::base::error_chain::ErrorChain;
use crate::base::file;
use crate::base::log_limit::LogLimit;
use crate::base::random;
use crate::base::secret::Secret;
use crate::base::task::Tasks;
use crate::control::stdio::{StdioServer, Tenancy};
use crate::process::ancestry::{Lineage, LineageError};
use crate::serve::generation::CurrentGeneration;
use crate::serve::listener::ACCEPT_PAUSE;

/// Suffix of the file after the name of the configuration.
const ENDING: &str = ".running";
/// The first line of the file: its format version.
const FORM: &str = "portcullis-running/2";
/// Maximum length of the file, and of a line of the handshake, in bytes.
const MAX_LINE: u64 = 16 * 1024;
/// Maximum number of attached clients.
const CLIENTS: usize = 64;
/// Maximum time for the handshake.
const GREETING: Duration = Duration::from_secs(10);
/// Number of attempts of a client to reach a live gateway, and the pause between them.
const TRIES: usize = 20;
const TRY_PAUSE: Duration = Duration::from_millis(250);
/// Limits log lines that a process of this user can cause by connecting: about connections refused at once, and about
/// clients that are not served.
static BELOW: LogLimit = LogLimit::new(1, 5);
static UNSERVED: LogLimit = LogLimit::new(1, 20);
/// The answer of the gateway to a client that it serves, and the prefix of its reason for refusing one.
const SERVED: &str = "served";
const REFUSED: &str = "refused ";

/// The reason why a client cannot be attached to a running gateway.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The client did not prove in time that it knows the token, and lost its place to another.
    #[error("it did not prove in time that it knows the token, and others connect")]
    Evicted,
    /// The gateway refuses the client, with this reason.
    #[error("{0}")]
    Refused(String),
    /// The key or the route contains a line end.
    #[error("the key in `PORTCULLIS_API_KEY` or the route has a line end in it")]
    Greeting,
    /// The gateway does not prove that it knows the token.
    #[error("the process on the gateway's socket failed the handshake; the API key was not sent")]
    Unproved,
    /// The gateway runs, but its socket cannot be used.
    #[error(
        "a gateway runs with this configuration and cannot be reached; stop it, or try again, because a process of its \
         own would not know what was revoked there"
    )]
    Unreachable(#[source] io::Error),
    /// The gateway runs, but its file has a format of another version.
    #[error(
        "a gateway of another version of portcullis runs with this configuration: start it again with this version"
    )]
    Version,
    /// The gateway has stopped, or no longer serves the client.
    #[error(
        "the running gateway has ended the connection: it has stopped, or the key was revoked; its log says why"
    )]
    Ended,
    /// The connection failed with this error.
    #[error("the connection with the running gateway broke")]
    Broken(#[source] io::Error),
}

/// The content of the file that a running gateway leaves.
struct RunningFile {
    /// Name of the abstract socket.
    name: String,
    token: String,
}

/// Whether a gateway seems to run with this configuration, of this user or of another one: some process holds the lock
/// on its file. Only for a report, because another user could hold it.
#[must_use]
pub fn seems_to_run(config: &Path) -> bool {
    paths(config).iter().any(|path| opened(path).is_ok_and(|file| file::is_locked(&file)))
}

/// Opens the file at `path` for reading. It waits for no pipe, and follows no link.
fn opened(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

impl RunningFile {
    /// Reads the file of a live gateway of this user; `None` if there is none, or it cannot be trusted.
    fn read(config: &Path) -> Result<Option<Self>, AttachError> {
        for path in paths(config) {
            if let Some(file) = Self::read_at(&path)? {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// The same for the file at `path`.
    fn read_at(path: &Path) -> Result<Option<Self>, AttachError> {
        let opened = match (opened(path), fs::symlink_metadata(path)) {
            (Ok(file), _) => file,
            (Err(error), Ok(data)) if is_left_by_us(&data) => {
                return Err(AttachError::Broken(error));
            }
            (Err(_), _) => return Ok(None),
        };
        let data = opened.metadata().map_err(AttachError::Broken)?;
        // The key must not be shown to another user who can write to the folder; and after a gateway has ended, any
        // process may have bound the name of its socket.
        let lives = || file::is_locked(&opened);
        if !is_left_by_us(&data) || !lives() {
            return Ok(None);
        }
        let mut text = String::new();
        (&opened).take(MAX_LINE).read_to_string(&mut text).map_err(AttachError::Broken)?;
        let mut lines = text.lines().map(str::to_owned);
        match (lines.next().as_deref(), lines.next(), lines.next()) {
            (Some(FORM), Some(name), Some(token)) => Ok(Some(Self { name, token })),
            _ => Err(AttachError::Version),
        }
    }

    fn text(&self) -> String {
        format!("{FORM}\n{}\n{}\n", self.name, self.token)
    }

    /// Connects to the gateway, verifies that it knows the token, and asks to be served.
    async fn connect(&self, route: &str, key: &str) -> Result<UnixStream, AttachError> {
        let mut stream = connected(&self.name).await.map_err(AttachError::Broken)?;
        let own = rustix::process::geteuid().as_raw();
        if stream.peer_cred().map_err(AttachError::Broken)?.uid() != own {
            return Err(AttachError::Unproved);
        }
        let client = drawn().map_err(AttachError::Broken)?;
        say(&mut stream, &client).await?;
        let hello = answer(&mut stream).await.map_err(AttachError::Broken)?;
        let (gateway, proof) = hello.split_once(' ').ok_or(AttachError::Unproved)?;
        let challenge = Challenge { client, gateway: gateway.to_owned() };
        if !challenge.is_proved(&self.token, Prover::Gateway, proof) {
            return Err(AttachError::Unproved);
        }
        let proof = challenge.proof(&self.token, Prover::Client);
        say(&mut stream, &format!("{proof}\n{route}\n{key}")).await?;
        let told = answer(&mut stream).await.map_err(AttachError::Broken)?;
        match told.strip_prefix(REFUSED) {
            Some(reason) => Err(AttachError::Refused(reason.to_owned())),
            None if told == SERVED => Ok(stream),
            None => Err(AttachError::Version),
        }
    }
}

/// Whether a gateway of this user runs with the configuration `config`.
#[must_use]
pub fn is_running(config: &Path) -> bool {
    // A gateway of another version counts as well.
    matches!(RunningFile::read(config), Ok(Some(_)) | Err(AttachError::Version))
}

/// Connects to the abstract socket `name`. The call blocks while the backlog is full, because the kernel refuses a
/// non-blocking connection then.
async fn connected(name: &str) -> io::Result<UnixStream> {
    let address = SocketAddr::from_abstract_name(name)?;
    let connecting = tokio::task::spawn_blocking(move || StdStream::connect_addr(&address));
    let stream = connecting.await.map_err(io::Error::other)??;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Whether a file can only have been written by a gateway of this user.
fn is_left_by_us(data: &Metadata) -> bool {
    let own = rustix::process::geteuid().as_raw();
    data.is_file() && data.uid() == own && data.mode() & 0o077 == 0
}

/// The side that proves that it knows the token; the proof of one side is not valid for the other.
#[derive(Clone, Copy, Debug)]
enum Prover {
    Gateway,
    Client,
}

/// The nonces of one connection, in hexadecimal: one of each side.
struct Challenge {
    client: String,
    gateway: String,
}

impl Challenge {
    fn text(&self, prover: Prover) -> String {
        let prover = match prover {
            Prover::Gateway => "gateway",
            Prover::Client => "client",
        };
        format!("{FORM}\n{prover}\n{}\n{}\n", self.client, self.gateway)
    }

    /// The HMAC with which `prover` proves that it knows the token, in hexadecimal.
    fn proof(&self, token: &str, prover: Prover) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
        hex::encode(hmac::sign(&key, self.text(prover).as_bytes()).as_ref())
    }

    fn is_proved(&self, token: &str, prover: Prover, proof: &str) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
        let text = self.text(prover);
        let proof = hex::decode(proof);
        proof.is_some_and(|proof| hmac::verify(&key, text.as_bytes(), &proof).is_ok())
    }
}

/// Returns 32 random bytes in hexadecimal.
fn drawn() -> io::Result<String> {
    random::bytes::<32>().map(|bytes| hex::encode(&bytes)).map_err(io::Error::other)
}

/// The request of a client.
struct AttachRequest {
    /// The path of a route; empty for the only route.
    route: String,
    key: Option<Secret>,
}

/// The paths of the file for the configuration `config`: beside the path as it is named, and beside the file that it leads
/// to. A gateway and its clients may name one configuration by different links.
fn paths(config: &Path) -> Vec<PathBuf> {
    let beside = |config: &Path| {
        let mut name = config.as_os_str().to_owned();
        name.push(ENDING);
        PathBuf::from(name)
    };
    let folder = config.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = fs::canonicalize(folder.unwrap_or(Path::new("."))).ok();
    let named = folder.zip(config.file_name()).map(|(folder, name)| folder.join(name));
    let real = fs::canonicalize(config).ok().filter(|real| named.as_ref() != Some(real));
    let mut paths = vec![beside(config)];
    paths.extend(real.as_deref().map(beside));
    paths
}

/// The socket on which processes attach to this gateway.
#[derive(Debug)]
pub struct AttachListener {
    listener: UnixListener,
    token: Secret,
    /// Remove the files on drop.
    left: Vec<RunningFileGuard>,
}

/// The file, removed on drop if its content is unchanged.
#[derive(Debug)]
struct RunningFileGuard {
    path: PathBuf,
    text: Secret,
    /// Locked as long as this process lives, so that clients can tell that it does.
    _held: File,
}

impl RunningFileGuard {
    /// Writes the file at `path`, in place of that of an earlier gateway.
    fn write(path: PathBuf, notice: &RunningFile) -> io::Result<Self> {
        let text = notice.text();
        let next = path.with_extension(format!("{}.next", drawn()?));
        let mut options = OpenOptions::new();
        let mut held = options.write(true).create_new(true).mode(0o600).open(&next)?;
        // The file is locked before it becomes visible.
        let written = held.try_lock().map_err(io::Error::from);
        let written = written.and_then(|()| held.write_all(text.as_bytes()));
        if let Err(error) = written.and_then(|()| fs::rename(&next, &path)) {
            drop(fs::remove_file(&next));
            return Err(error);
        }
        Ok(Self { path, text: Secret::new(text.into()), _held: held })
    }
}

impl Drop for RunningFileGuard {
    fn drop(&mut self) {
        let is_own = file::text(&self.path, MAX_LINE).is_ok_and(|text| text == self.text.expose());
        if is_own && let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "the socket file for stdio clients could not be removed");
        }
    }
}

impl AttachListener {
    /// Binds the socket, and writes the file beside the configuration `config`. It replaces the file of an earlier
    /// gateway.
    ///
    /// # Errors
    /// If the file or socket cannot be created, for example because the folder is read-only.
    pub fn open(config: &Path) -> io::Result<Self> {
        let notice = RunningFile { name: format!("portcullis-{}", drawn()?), token: drawn()? };
        let address = SocketAddr::from_abstract_name(&notice.name)?;
        let socket = StdListener::bind_addr(&address)?;
        socket.set_nonblocking(true)?;
        let listener = UnixListener::from_std(socket)?;
        let mut left = Vec::new();
        for path in paths(config) {
            match RunningFileGuard::write(path, &notice) {
                Ok(guard) => left.push(guard),
                // The first one is found by all who name the configuration as this gateway does.
                Err(error) if !left.is_empty() => {
                    tracing::debug!(%error, "stdio clients find this gateway by one path only");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self { listener, token: Secret::new(notice.token.into()), left })
    }

    /// Serves attached processes until the gateway stops.
    pub async fn serve(self, live: Arc<CurrentGeneration>, tasks: Tasks) {
        let Self { listener, token, left: _left } = self;
        let token = Arc::new(token);
        let greetings = Arc::new(HandshakeSlots::default());
        let clients = Arc::new(Semaphore::new(CLIENTS));
        let mut refusals = AttachRefusals::default();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = tasks.stopping() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(
                        event = "stdio.accept_failed", %error,
                        "the connection of a stdio client could not be accepted"
                    );
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(lineage) = admitted(&stream, &mut refusals) else {
                drop(stream);
                match refusals.pause(Instant::now()) {
                    Some(pause) => tokio::time::sleep(pause).await,
                    // Yields, so that many refusals do not delay other tasks of this thread.
                    None => tokio::task::yield_now().await,
                }
                continue;
            };
            let greeting = tokio::select! {
                greeting = greetings.enter(lineage) => greeting,
                () = tasks.stopping() => return,
            };
            let clients = Arc::clone(&clients);
            let client = AttachingClient { stream, token: Arc::clone(&token), greeting, clients };
            let (live, tasks_of) = (Arc::clone(&live), tasks.clone());
            tasks.spawn(async move {
                if let Err(error) = client.serve(live, tasks_of).await
                    && let Some(suppressed) = UNSERVED.allow(Instant::now().into_std())
                {
                    let error = ErrorChain(&error);
                    tracing::info!(
                        event = "stdio.client_failed", %error, suppressed,
                        "stdio client not served"
                    );
                }
            });
        }
    }
}

/// Returns the lineage of the connected process; `None` if it must be refused.
fn admitted(stream: &UnixStream, refusals: &mut AttachRefusals) -> Option<Lineage> {
    // Every local user can connect, because the names of abstract sockets are public.
    let peer = stream.peer_cred().ok()?;
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    // 0 is a process in a PID namespace that is not below that of the gateway, so it is no program of the gateway.
    let Some(process) = peer.pid().and_then(Pid::from_raw) else { return Some(Lineage::default()) };
    let (own, now) = (getpid(), Instant::now());
    let mut climbed = Vec::new();
    let lineage = Lineage::of(process, |process| {
        let is_below = process == own || refusals.is_below(process, now);
        if !is_below {
            climbed.push(process);
        }
        is_below
    });
    match lineage {
        Ok(lineage) => Some(lineage),
        Err(error) => {
            if error == LineageError::Below {
                refusals.remember(&climbed, now);
            }
            if error != LineageError::Gone
                && let Some(suppressed) = BELOW.allow(Instant::now().into_std())
            {
                let pid = process.as_raw_nonzero();
                tracing::warn!(
                    event = "stdio.client_refused", %error, pid, suppressed,
                    "stdio client refused"
                );
            }
            None
        }
    }
}

/// A connected process of this user.
struct AttachingClient {
    stream: UnixStream,
    token: Arc<Secret>,
    /// Released when the client has proved that it knows the token.
    greeting: HandshakeSlot,
    /// The places for clients.
    clients: Arc<Semaphore>,
}

impl AttachingClient {
    async fn serve(self, live: Arc<CurrentGeneration>, tasks: Tasks) -> Result<(), AttachError> {
        let (input, mut output) = self.stream.into_split();
        let mut input = BufReader::new(input);
        let greeted = tokio::time::timeout(GREETING, greeted(&mut input, &mut output, &self.token));
        let greeted = tokio::select! {
            greeted = greeted => greeted,
            () = self.greeting.evicted() => return Err(AttachError::Evicted),
            () = tasks.stopping() => return Ok(()),
        };
        let AttachRequest { route, key } =
            greeted.map_err(|_late| AttachError::Broken(late()))??;
        drop(self.greeting);
        let Ok(_place) = self.clients.try_acquire_owned() else {
            let why = format!("the running gateway serves {CLIENTS} other clients over stdio");
            say(&mut output, &format!("{REFUSED}{why}")).await?;
            return Err(AttachError::Refused(why));
        };
        let route = Some(&*route).filter(|route| !route.is_empty());
        let opened = StdioServer::open(live, tasks, route, key.as_ref(), Tenancy::Multi).await;
        let told = match &opened {
            Ok(_) => SERVED.to_owned(),
            Err(error) => format!("{REFUSED}{}", ErrorChain(error).to_string().replace('\n', " ")),
        };
        say(&mut output, &told).await?;
        let served = match opened {
            Ok(console) => console.serve(input, output).await,
            Err(error) => Err(error),
        };
        served.map_err(|error| AttachError::Refused(ErrorChain(&error).to_string()))
    }
}

/// Runs the handshake: proves to the client that this gateway knows the token, verifies the client's proof, and reads
/// its request.
async fn greeted(
    input: &mut (impl AsyncBufRead + Unpin),
    output: &mut (impl AsyncWrite + Unpin),
    token: &Secret,
) -> Result<AttachRequest, AttachError> {
    let client = line_of(input).await.map_err(AttachError::Broken)?;
    let challenge = Challenge { client, gateway: drawn().map_err(AttachError::Broken)? };
    let proof = challenge.proof(token.expose(), Prover::Gateway);
    say(output, &format!("{} {proof}", challenge.gateway)).await?;
    let proof = line_of(input).await.map_err(AttachError::Broken)?;
    if !challenge.is_proved(token.expose(), Prover::Client, &proof) {
        return Err(AttachError::Refused("it does not know the token".to_owned()));
    }
    let route = line_of(input).await.map_err(AttachError::Broken)?;
    let key = line_of(input).await.map_err(AttachError::Broken)?;
    Ok(AttachRequest { route, key: (!key.is_empty()).then(|| Secret::new(key.into())) })
}

async fn say(output: &mut (impl AsyncWrite + Unpin), line: &str) -> Result<(), AttachError> {
    output.write_all(format!("{line}\n").as_bytes()).await.map_err(AttachError::Broken)
}

/// Reads one line of bounded length.
async fn line_of(input: &mut (impl AsyncBufRead + Unpin)) -> io::Result<String> {
    let mut line = String::new();
    input.take(MAX_LINE).read_line(&mut line).await?;
    match line.pop() {
        Some('\n') => Ok(line),
        Some(_) | None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the greeting did not come in time")
}

/// A connection to the running gateway of a configuration.
#[derive(Debug)]
pub struct AttachedConnection(UnixStream);

/// Attaches this process to the running gateway of the configuration `config`; `None` if none runs. The client is
/// served on `route`, or on the only route, and authenticates with `key`.
///
/// # Errors
/// If the gateway runs and refuses the client, or cannot be reached.
pub async fn attach(
    config: &Path,
    route: Option<&str>,
    key: Option<&Secret>,
) -> Result<Option<AttachedConnection>, AttachError> {
    let (route, key) = (route.unwrap_or_default(), key.map_or("", Secret::expose));
    let mut last = late();
    for _ in 0..TRIES {
        let Some(notice) = RunningFile::read(config)? else { return Ok(None) };
        if [route, key].iter().any(|line| line.contains(['\n', '\r'])) {
            return Err(AttachError::Greeting);
        }
        match tokio::time::timeout(2 * GREETING, notice.connect(route, key)).await {
            Ok(Ok(stream)) => return Ok(Some(AttachedConnection(stream))),
            // Too many clients connect, or the gateway is ending: then its file is unlocked soon.
            Ok(Err(AttachError::Broken(error))) => last = error,
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(AttachError::Unreachable(late())),
        }
        tokio::time::sleep(TRY_PAUSE).await;
    }
    Err(AttachError::Unreachable(last))
}

/// Reads one line from the gateway, and nothing beyond it.
async fn answer(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    while line.len() as u64 <= MAX_LINE {
        match stream.read_u8().await? {
            b'\n' => return String::from_utf8(line).map_err(io::Error::other),
            byte => line.push(byte),
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

impl AttachedConnection {
    /// Copies between standard input and output and the gateway, until the client closes its end.
    ///
    /// # Errors
    /// If the gateway ends first.
    pub async fn copy(self) -> Result<(), AttachError> {
        let (mut input, mut output) = self.0.into_split();
        let said = async {
            copy(&mut stdin(), &mut output).await?;
            output.shutdown().await
        };
        let heard = async {
            let mut out = stdout();
            copy(&mut input, &mut out).await?;
            out.flush().await
        };
        tokio::pin!(heard);
        tokio::select! {
            said = said => {
                said.map_err(AttachError::Broken)?;
                // Requests in flight are still answered.
                heard.await.map_err(AttachError::Broken)
            }
            heard = &mut heard => {
                heard.map_err(AttachError::Broken)?;
                Err(AttachError::Ended)
            }
        }
    }
}
