//! How a `portcullis stdio` finds the running gateway of its configuration, and is served by it.
//!
//! A gateway that runs leaves `FILE.running` beside its configuration: the name of a socket and a token. Only the user
//! can read the file, and it is kept back from the programs that the gateway starts, as everything is whose name
//! begins with that of the configuration. So who knows the token may read the configuration, too. The gateway holds a
//! lock on the file for as long as it lives: one that nobody holds was left behind by a process that was killed, and
//! is not followed. While the lock is held, a client is served by that gateway or not at all: a process of its own
//! would not know what was revoked there.
//!
//! The socket is an abstract one of Unix, whose name is drawn at random. Every process of the machine can see the name
//! and take it once the gateway has died, so both sides prove that they know the token before the client sends its
//! key, and neither sends the token: each answers a number that the other has drawn with an HMAC under the token. The
//! process that a client has started only copies bytes from there on.
//!
//! A program behind the gateway is no client of it: a process that descends from the gateway is refused before it takes
//! a place, and connects in vain as often as it likes: see `refusals`. Other processes of the user can hold places without proving anything, and keep no client out with that: see
//! `greetings`.

mod greetings;
mod refusals;

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use rustix::process::{Pid, getpid};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
    BufReader, copy, stdin, stdout,
};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::greetings::{Greeting, Greetings};
use self::refusals::Refusals;
use crate::base::error_chain::Chain;
use crate::base::file;
use crate::base::hex;
use crate::base::log_limit::LogLimit;
use crate::base::random;
use crate::base::secret::Secret;
use crate::base::task::Tasks;
use crate::control::stdio::{Console, Tenancy};
use crate::process::ancestry::{Lineage, LineageError};
use crate::serve::generation::Live;
use crate::serve::listener::ACCEPT_PAUSE;

/// What stands behind the name of the configuration in that of the file.
const ENDING: &str = ".running";
/// The first line of the file: its form.
const FORM: &str = "portcullis-running/2";
/// Longest file, and longest line of a greeting, in bytes.
const LONGEST: u64 = 16 * 1024;
/// Most clients that are attached at once.
const CLIENTS: usize = 64;
/// How long a greeting may take.
const GREETING: Duration = Duration::from_secs(10);
/// How often a client tries to reach a gateway that lives, and how long it waits before the next time.
const TRIES: usize = 20;
const TRY_PAUSE: Duration = Duration::from_millis(250);
/// Lines that a process of this user can cause by connecting: of those that are refused at once, and of those that are
/// not served.
static BELOW: LogLimit = LogLimit::new(1, 5);
static UNSERVED: LogLimit = LogLimit::new(1, 20);
/// What the gateway says when it serves a client, and what it says before the reason when it does not.
const SERVED: &str = "served";
const REFUSED: &str = "refused ";

/// Why a client cannot be attached to a gateway that runs.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// It has not proved that it knows the token before its place was taken.
    #[error("it did not prove in time that it knows the token, and others connect")]
    Evicted,
    /// The gateway does not serve it.
    #[error("{0}")]
    Refused(String),
    /// The key or the route cannot be sent.
    #[error("the key in `PORTCULLIS_API_KEY` or the route has a line end in it")]
    Greeting,
    /// The gateway does not prove that it knows the token.
    #[error(
        "what answers for the running gateway does not prove that it is that gateway; it was not shown the key"
    )]
    Unproved,
    /// The gateway lives, and its socket cannot be used.
    #[error(
        "a gateway runs with this configuration and cannot be reached; stop it, or try again, because a process of its \
         own would not know what was revoked there"
    )]
    Unreachable(#[source] io::Error),
    /// The gateway lives, and has left what this version does not read.
    #[error(
        "a gateway of another version of portcullis runs with this configuration: start it again with this version"
    )]
    Version,
    /// The gateway has ended, or does not serve the client any longer.
    #[error(
        "the running gateway has ended the connection: it has stopped, or the key was revoked; its log says why"
    )]
    Ended,
    /// The connection broke.
    #[error("the connection with the running gateway broke")]
    Broken(#[source] io::Error),
}

/// Where a gateway that runs is found.
struct Notice {
    /// Of the socket.
    name: String,
    token: String,
}

impl Notice {
    /// Reads what a gateway of this user has left that lives; `None` where there is none, or nothing that can be
    /// believed.
    fn read(config: &Path) -> Result<Option<Self>, AttachError> {
        let path = path(config);
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(&path);
        let opened = match (opened, fs::symlink_metadata(&path)) {
            (Ok(file), _) => file,
            (Err(error), Ok(data)) if is_left_by_us(&data) => {
                return Err(AttachError::Broken(error));
            }
            (Err(_), _) => return Ok(None),
        };
        let data = opened.metadata().map_err(AttachError::Broken)?;
        // Somebody else who can write to the folder must not be shown the key; and the name that a gateway has left
        // behind which has ended may be that of anybody's socket by now.
        let lives = || matches!(opened.try_lock_shared(), Err(TryLockError::WouldBlock));
        if !is_left_by_us(&data) || !lives() {
            return Ok(None);
        }
        let mut text = String::new();
        (&opened).take(LONGEST).read_to_string(&mut text).map_err(AttachError::Broken)?;
        let mut lines = text.lines().map(str::to_owned);
        match (lines.next().as_deref(), lines.next(), lines.next()) {
            (Some(FORM), Some(name), Some(token)) => Ok(Some(Self { name, token })),
            _ => Err(AttachError::Version),
        }
    }

    fn text(&self) -> String {
        format!("{FORM}\n{}\n{}\n", self.name, self.token)
    }

    /// Connects with the gateway, and is served by it if it proves to be the one that has left this.
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
    // One of another version is one, too.
    matches!(Notice::read(config), Ok(Some(_)) | Err(AttachError::Version))
}

/// Connects with the socket of this abstract name. Where many connect, this waits in the order of the kernel, which
/// refuses one that does not wait.
async fn connected(name: &str) -> io::Result<UnixStream> {
    let address = SocketAddr::from_abstract_name(name)?;
    let connecting = tokio::task::spawn_blocking(move || StdStream::connect_addr(&address));
    let stream = connecting.await.map_err(io::Error::other)??;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Whether a file is one that a gateway of this user leaves, and that nobody else can have written.
fn is_left_by_us(data: &Metadata) -> bool {
    let own = rustix::process::geteuid().as_raw();
    data.is_file() && data.uid() == own && data.mode() & 0o077 == 0
}

/// Who proves that it knows the token: what one side says is of no use to the other.
#[derive(Clone, Copy, Debug)]
enum Prover {
    Gateway,
    Client,
}

/// The random numbers of one connection, in hexadecimal: each side draws one.
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

    /// The HMAC under the token with which `prover` shows that it knows that, in hexadecimal.
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

/// 32 random bytes in hexadecimal.
fn drawn() -> io::Result<String> {
    random::bytes::<32>().map(|bytes| hex::encode(&bytes)).map_err(io::Error::other)
}

/// What a client asks for.
struct AttachRequest {
    /// The path of a route; empty for the only one there is.
    route: String,
    key: Option<Secret>,
}

/// The file that says where the running gateway of the configuration `config` is.
fn path(config: &Path) -> PathBuf {
    let mut name = config.as_os_str().to_owned();
    name.push(ENDING);
    name.into()
}

/// Where processes are attached to this gateway.
#[derive(Debug)]
pub struct Attachments {
    listener: UnixListener,
    token: Secret,
    /// What is taken away at the end.
    left: Left,
}

/// The file, which is taken away with this if it is still what was written.
#[derive(Debug)]
struct Left {
    path: PathBuf,
    text: Secret,
    /// Locked for as long as this process lives, so that clients know that it does.
    _held: File,
}

impl Drop for Left {
    fn drop(&mut self) {
        let is_own = file::text(&self.path, LONGEST).is_ok_and(|text| text == self.text.expose());
        if is_own && let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "the file for clients over stdio was left behind");
        }
    }
}

impl Attachments {
    /// Opens the socket, and says beside the configuration `config` where it is. A gateway that was there before is
    /// not found any longer.
    ///
    /// # Errors
    /// When there can be no such file or socket, as where the folder can only be read.
    pub fn open(config: &Path) -> io::Result<Self> {
        let notice = Notice { name: format!("portcullis-{}", drawn()?), token: drawn()? };
        let address = SocketAddr::from_abstract_name(&notice.name)?;
        let socket = StdListener::bind_addr(&address)?;
        socket.set_nonblocking(true)?;
        let listener = UnixListener::from_std(socket)?;
        let (path, text) = (path(config), notice.text());
        let next = path.with_extension(format!("{}.next", drawn()?));
        let mut options = OpenOptions::new();
        let mut held = options.write(true).create_new(true).mode(0o600).open(&next)?;
        // It is locked before it can be found.
        let written = held.try_lock().map_err(io::Error::from);
        let written = written.and_then(|()| held.write_all(text.as_bytes()));
        if let Err(error) = written.and_then(|()| fs::rename(&next, &path)) {
            drop(fs::remove_file(&next));
            return Err(error);
        }
        let left = Left { path, text: Secret::new(text.into()), _held: held };
        Ok(Self { listener, token: Secret::new(notice.token.into()), left })
    }

    /// Serves the processes that are attached, until the gateway stops.
    pub async fn serve(self, live: Arc<Live>, tasks: Tasks) {
        let Self { listener, token, left: _left } = self;
        let token = Arc::new(token);
        let greetings = Arc::new(Greetings::default());
        let clients = Arc::new(Semaphore::new(CLIENTS));
        let mut refusals = Refusals::default();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = tasks.stopping() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a client over stdio could not be attached");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(lineage) = admitted(&stream, &mut refusals) else {
                drop(stream);
                match refusals.pause(Instant::now()) {
                    Some(pause) => tokio::time::sleep(pause).await,
                    // Many that are refused do not hold up what else this thread serves.
                    None => tokio::task::yield_now().await,
                }
                continue;
            };
            let greeting = tokio::select! {
                greeting = greetings.enter(lineage) => greeting,
                () = tasks.stopping() => return,
            };
            let clients = Arc::clone(&clients);
            let client = Attached { stream, token: Arc::clone(&token), greeting, clients };
            let (live, tasks_of) = (Arc::clone(&live), tasks.clone());
            tasks.spawn(async move {
                if let Err(error) = client.serve(live, tasks_of).await
                    && let Some(suppressed) = UNSERVED.allow(Instant::now().into_std())
                {
                    let error = Chain(&error);
                    tracing::info!(%error, suppressed, "a client over stdio is not served");
                }
            });
        }
    }
}

/// From whom the process descends that has connected; `None` where it is not to be heard.
fn admitted(stream: &UnixStream, refusals: &mut Refusals) -> Option<Lineage> {
    // Every user of the machine can connect: the names of such sockets are no secret.
    let peer = stream.peer_cred().ok()?;
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    // 0 is a process of a PID namespace that is not below that of the gateway, so it is no program of the gateway.
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
                tracing::warn!(%error, pid, suppressed, "a process cannot be a client over stdio");
            }
            None
        }
    }
}

/// A process of this user that has connected.
struct Attached {
    stream: UnixStream,
    token: Arc<Secret>,
    /// Given back when the client has proved that it knows the token.
    greeting: Greeting,
    /// Where the place of a client is taken.
    clients: Arc<Semaphore>,
}

impl Attached {
    async fn serve(self, live: Arc<Live>, tasks: Tasks) -> Result<(), AttachError> {
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
        let opened = Console::open(live, tasks, route, key.as_ref(), Tenancy::Multi).await;
        let told = match &opened {
            Ok(_) => SERVED.to_owned(),
            Err(error) => format!("{REFUSED}{}", Chain(error).to_string().replace('\n', " ")),
        };
        say(&mut output, &told).await?;
        let served = match opened {
            Ok(console) => console.serve(input, output).await,
            Err(error) => Err(error),
        };
        served.map_err(|error| AttachError::Refused(Chain(&error).to_string()))
    }
}

/// Proves to a client that this is the gateway which has left the token, has it prove that it knows the token as well,
/// and reads what it wants.
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

/// Writes a line.
async fn say(output: &mut (impl AsyncWrite + Unpin), line: &str) -> Result<(), AttachError> {
    output.write_all(format!("{line}\n").as_bytes()).await.map_err(AttachError::Broken)
}

/// One line of bounded length.
async fn line_of(input: &mut (impl AsyncBufRead + Unpin)) -> io::Result<String> {
    let mut line = String::new();
    input.take(LONGEST).read_line(&mut line).await?;
    match line.pop() {
        Some('\n') => Ok(line),
        Some(_) | None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the greeting did not come in time")
}

/// A connection with the running gateway of a configuration.
#[derive(Debug)]
pub struct Connection(UnixStream);

/// Attaches this process to the running gateway of the configuration `config`; `None` where none runs. The client is
/// served on `route`, or on the only one there is, and calls with `key`.
///
/// # Errors
/// When the gateway runs and does not serve the client, or cannot be reached.
pub async fn attach(
    config: &Path,
    route: Option<&str>,
    key: Option<&Secret>,
) -> Result<Option<Connection>, AttachError> {
    let (route, key) = (route.unwrap_or_default(), key.map_or("", Secret::expose));
    let mut last = late();
    for _ in 0..TRIES {
        let Some(notice) = Notice::read(config)? else { return Ok(None) };
        if [route, key].iter().any(|line| line.contains(['\n', '\r'])) {
            return Err(AttachError::Greeting);
        }
        match tokio::time::timeout(2 * GREETING, notice.connect(route, key)).await {
            Ok(Ok(stream)) => return Ok(Some(Connection(stream))),
            // Too many connect, or it ends right now: then its file says no more that it lives.
            Ok(Err(AttachError::Broken(error))) => last = error,
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(AttachError::Unreachable(late())),
        }
        tokio::time::sleep(TRY_PAUSE).await;
    }
    Err(AttachError::Unreachable(last))
}

/// One line that the gateway says, and nothing of what comes after it.
async fn answer(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    while line.len() as u64 <= LONGEST {
        match stream.read_u8().await? {
            b'\n' => return String::from_utf8(line).map_err(io::Error::other),
            byte => line.push(byte),
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

impl Connection {
    /// Copies what the client says to the gateway and what the gateway says to the client, until the client closes its
    /// end.
    ///
    /// # Errors
    /// When the gateway ends first.
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
                // What is under way is still answered.
                heard.await.map_err(AttachError::Broken)
            }
            heard = &mut heard => {
                heard.map_err(AttachError::Broken)?;
                Err(AttachError::Ended)
            }
        }
    }
}
