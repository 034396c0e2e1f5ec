//! How a `portcullis stdio` finds the running gateway of its configuration, and is served by it.
//!
//! A gateway that runs leaves `FILE.running` beside its configuration: the name of a socket and a token. Only the user
//! can read the file, and it is kept back from the programs that the gateway starts, as everything is whose name
//! begins with that of the configuration. So who shows the token may read the configuration, too. The socket is an
//! abstract one of Unix, whose name is drawn at random: nothing is left behind by a process that was killed, and
//! a file that is left behind leads nowhere. The process that a client has started only copies bytes from there on.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener as StdListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, copy,
    stdin, stdout,
};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::console::{Console, Tenancy};
use crate::file;
use crate::front::ACCEPT_PAUSE;
use crate::hex;
use crate::live::Live;
use crate::report::Chain;
use crate::seal;
use crate::secret::Secret;
use crate::task::Tasks;

/// What stands behind the name of the configuration in that of the file.
const ENDING: &str = ".running";
/// The first line of the file: its form.
const FORM: &str = "portcullis-running/1";
/// Longest file, and longest line of a greeting, in bytes.
const LONGEST: u64 = 16 * 1024;
/// Most clients that are attached at once.
const CLIENTS: usize = 64;
/// Most connections at once that have not shown the token yet: they take no place of a client.
const GREETINGS: usize = 128;
/// How long a greeting may take.
const GREETING: Duration = Duration::from_secs(10);
/// What the gateway says when it serves a client, and what it says before the reason when it does not.
const SERVED: &str = "served";
const REFUSED: &str = "refused ";

/// Why a client cannot be attached to a gateway that runs.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The gateway does not serve it.
    #[error("{0}")]
    Refused(String),
    /// The key or the route cannot be sent.
    #[error("the key in `PORTCULLIS_API_KEY` or the route has a line end in it")]
    Greeting,
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
    /// Reads what a gateway of this user has left; `None` where there is nothing that can be believed.
    fn read(config: &Path) -> Option<Self> {
        let path = path(config);
        let data = fs::symlink_metadata(&path).ok()?;
        // Somebody else who can write to the folder must not be shown the key.
        let is_own = data.uid() == rustix::process::geteuid().as_raw() && data.mode() & 0o077 == 0;
        let text = file::text(&path, LONGEST).ok().filter(|_| is_own && data.is_file())?;
        let mut lines = text.lines();
        let (form, name, token) = (lines.next()?, lines.next()?, lines.next()?);
        (form == FORM).then(|| Self { name: name.to_owned(), token: token.to_owned() })
    }

    fn text(&self) -> String {
        format!("{FORM}\n{}\n{}\n", self.name, self.token)
    }
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
        let random = || seal::random::<32>().map_err(io::Error::other);
        let notice = Notice {
            name: format!("portcullis-{}", hex::encode(&random()?)),
            token: hex::encode(&random()?),
        };
        let address = SocketAddr::from_abstract_name(&notice.name)?;
        let socket = StdListener::bind_addr(&address)?;
        socket.set_nonblocking(true)?;
        let listener = UnixListener::from_std(socket)?;
        let (path, text) = (path(config), notice.text());
        let next = path.with_extension(format!("{}.next", hex::encode(&random()?)));
        let mut options = OpenOptions::new();
        let written = options.write(true).create_new(true).mode(0o600).open(&next);
        let written = written.and_then(|mut out| out.write_all(text.as_bytes()));
        if let Err(error) = written.and_then(|()| fs::rename(&next, &path)) {
            drop(fs::remove_file(&next));
            return Err(error);
        }
        let left = Left { path, text: Secret::new(text.into()) };
        Ok(Self { listener, token: Secret::new(notice.token.into()), left })
    }

    /// Serves the processes that are attached, until the gateway stops.
    pub async fn serve(self, live: Arc<Live>, tasks: Tasks) {
        let Self { listener, token, left: _left } = self;
        let own = rustix::process::geteuid().as_raw();
        let token = Arc::new(token);
        let greetings = Arc::new(Semaphore::new(GREETINGS));
        let clients = Arc::new(Semaphore::new(CLIENTS));
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
            // Every user of the machine can connect: the names of such sockets are no secret.
            if !stream.peer_cred().is_ok_and(|peer| peer.uid() == own) {
                continue;
            }
            // One too many is closed, and its process serves the client by itself.
            let Ok(greeting) = Arc::clone(&greetings).try_acquire_owned() else { continue };
            let clients = Arc::clone(&clients);
            let client = Attached { stream, token: Arc::clone(&token), greeting, clients };
            let (live, tasks_of) = (Arc::clone(&live), tasks.clone());
            tasks.spawn(async move {
                if let Err(error) = client.serve(live, tasks_of).await {
                    tracing::info!(error = %Chain(&error), "a client over stdio is not served");
                }
            });
        }
    }
}

/// A process of this user that has connected.
struct Attached {
    stream: UnixStream,
    token: Arc<Secret>,
    /// Given back when the token was shown.
    greeting: OwnedSemaphorePermit,
    /// Where the place of a client is taken.
    clients: Arc<Semaphore>,
}

impl Attached {
    async fn serve(self, live: Arc<Live>, tasks: Tasks) -> Result<(), AttachError> {
        let (input, mut output) = self.stream.into_split();
        let mut input = BufReader::new(input);
        let greeting = tokio::select! {
            greeting = tokio::time::timeout(GREETING, greeting(&mut input)) => greeting,
            () = tasks.stopping() => return Ok(()),
        };
        let greeting = greeting.map_err(|_late| AttachError::Broken(late()))?;
        let [token, route, key] = greeting.map_err(AttachError::Broken)?;
        let (token, known) = (token.as_bytes(), self.token.expose().as_bytes());
        let is_known = constant_time::verify_slices_are_equal(token, known).is_ok();
        if !is_known {
            return Err(AttachError::Refused("it does not know the token".to_owned()));
        }
        drop(self.greeting);
        let Ok(_place) = self.clients.try_acquire_owned() else {
            return Err(AttachError::Refused(format!("{CLIENTS} others are attached")));
        };
        let key = (!key.is_empty()).then(|| Secret::new(key.into()));
        let route = Some(&*route).filter(|route| !route.is_empty());
        let opened = Console::open(live, tasks, route, key.as_ref(), Tenancy::Multi).await;
        let told = match &opened {
            Ok(_) => SERVED.to_owned(),
            Err(error) => format!("{REFUSED}{}", Chain(error).to_string().replace('\n', " ")),
        };
        output.write_all(format!("{told}\n").as_bytes()).await.map_err(AttachError::Broken)?;
        let served = match opened {
            Ok(console) => console.serve(input, output).await,
            Err(error) => Err(error),
        };
        served.map_err(|error| AttachError::Refused(Chain(&error).to_string()))
    }
}

/// The lines with which a client begins: the token, the route and the key.
async fn greeting(input: &mut (impl AsyncBufRead + Unpin)) -> io::Result<[String; 3]> {
    let mut lines = [String::new(), String::new(), String::new()];
    for line in &mut lines {
        *line = line_of(input).await?;
    }
    Ok(lines)
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

/// Attaches this process to the running gateway of the configuration `config`; `None` where none runs, or it can take
/// nobody. The client is served on `route`, or on the only one there is, and calls with `key`.
///
/// # Errors
/// When the gateway runs and does not serve the client.
pub async fn attach(
    config: &Path,
    route: Option<&str>,
    key: Option<&Secret>,
) -> Result<Option<Connection>, AttachError> {
    let Some(notice) = Notice::read(config) else { return Ok(None) };
    // A name that begins with a NUL is that of an abstract socket.
    let connecting = UnixStream::connect(format!("\0{}", notice.name));
    let connected = tokio::time::timeout(GREETING, connecting).await;
    let Ok(Ok(mut stream)) = connected else { return Ok(None) };
    let own = rustix::process::geteuid().as_raw();
    if stream.peer_cred().map_err(AttachError::Broken)?.uid() != own {
        return Ok(None);
    }
    let lines = [&*notice.token, route.unwrap_or_default(), key.map_or("", Secret::expose)];
    if lines.iter().any(|line| line.contains(['\n', '\r'])) {
        return Err(AttachError::Greeting);
    }
    let mut greeting = lines.join("\n");
    greeting.push('\n');
    let exchange = async {
        stream.write_all(greeting.as_bytes()).await?;
        answer(&mut stream).await
    };
    let told = match tokio::time::timeout(2 * GREETING, exchange).await {
        Ok(Ok(told)) => told,
        // It takes no more clients, or ends right now.
        Ok(Err(_)) => return Ok(None),
        Err(_) => return Err(AttachError::Broken(late())),
    };
    match told.strip_prefix(REFUSED) {
        Some(reason) => Err(AttachError::Refused(reason.to_owned())),
        None if told == SERVED => Ok(Some(Connection(stream))),
        None => Ok(None),
    }
}

/// The answer to a greeting, and nothing of what comes after it.
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
