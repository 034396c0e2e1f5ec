//! The built gateway, as a process.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::canary::{self, Side};
use crate::client::{Client, get};
use crate::{Era, eventually};

/// The key that every test configuration knows as `ana`, in group `dev`.
pub const ANA: &str = "pcl_ana-secret-0123456789";
/// The key of `bob`, in group `ops`.
pub const BOB: &str = "pcl_bob-secret-9876543210";

/// How long records and metrics of calls that were sent are waited for: those of a call that a test keeps waiting do
/// not come.
const CLOSING: Duration = Duration::from_secs(2);

/// The built binary.
///
/// # Panics
/// When it was not built.
#[must_use]
pub fn binary() -> PathBuf {
    // target/<profile>/deps/<test> -> target/<profile>/portcullis
    let test = std::env::current_exe().unwrap();
    let binary = test.parent().unwrap().parent().unwrap().join("portcullis");
    assert!(binary.exists(), "{} is not built: run `cargo build` first", binary.display());
    binary
}

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// A folder that is removed when it is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new empty folder.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "making a folder is no default")]
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("portcullis-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A copy of an example of the repository in a folder of its own: what a gateway writes is beside its configuration.
///
/// # Panics
/// When there is no such example.
#[must_use]
pub fn example(name: &str) -> (Folder, PathBuf) {
    let folder = Folder::new();
    let file = folder.path().join("gateway.yaml");
    fs::copy(root().join("config/examples").join(name), &file).unwrap();
    (folder, file)
}

/// A configuration in parts, so that a test shows only what it is about.
#[derive(Clone, Debug)]
pub struct Config {
    /// `servers:` items.
    pub servers: String,
    /// `routes:` items; by default all servers are on `/mcp`.
    pub routes: String,
    /// The `policy:` section.
    pub policy: String,
    /// `limits:` members.
    pub limits: String,
    /// More of the one listener.
    pub listener: String,
    /// The ways to authenticate there; by default `apiKey`.
    pub authentication: String,
    /// More of `identity`.
    pub identity: String,
    /// More sections.
    pub more: String,
    /// The `pins` section; by default everything is approved.
    pub pins: String,
    /// The `ops` section.
    pub ops: String,
    /// The file records go to; by default one in the test's folder.
    pub audit: Option<PathBuf>,
    /// More of the sink that writes it.
    pub sink: String,
    /// More sinks, as items of a list.
    pub sinks: String,
    /// More members of the `audit` section.
    pub auditing: String,
    /// How requests of unknown callers are recorded; by default one by one, so that a test sees each.
    pub refusals: String,
}

impl Config {
    /// One server at `url`, everything allowed to `dev`.
    #[must_use]
    pub fn of(url: &str) -> Self {
        Self::with(&format!("- {{name: up, url: '{url}'}}"), "[up]")
    }

    /// The same for a server that may ask for whatever it wants that is not refused in any case.
    #[must_use]
    pub fn asked(url: &str) -> Self {
        let personal =
            "[name, email, phone, address, birthDate, nationalId, bankAccount, card, health]";
        let requests = "{formElicitation: {secrets: allow, personalData: PERSONAL}, urlElicitation: {hosts: ['*']}, sampling: {modelHints: keep}, roots: {}, rate: 100000/s}"
            .replace("PERSONAL", personal);
        Self::with(&format!("- {{name: up, url: '{url}', serverRequests: {requests}}}"), "[up]")
    }

    /// These servers behind `/mcp`, everything allowed to `dev`. Where there are several, tools have the names
    /// of their servers before theirs.
    #[must_use]
    pub fn with(servers: &str, route: &str) -> Self {
        let prefix = if route.contains(',') { ", prefix: always" } else { "" };
        Self {
            servers: servers.to_owned(),
            routes: format!("- {{path: /mcp, servers: {route}{prefix}}}"),
            policy: "contact: sec@example.com\nrules:\n- {id: open, effect: allow, \
                     principals: ['group:dev'], servers: ['*'], tools: ['*']}"
                .to_owned(),
            limits: String::new(),
            listener: String::new(),
            authentication: "[apiKey]".to_owned(),
            identity: String::new(),
            more: String::new(),
            pins: "{mode: off}".to_owned(),
            ops: "{address: '127.0.0.1:0'}".to_owned(),
            audit: None,
            sink: String::new(),
            sinks: String::new(),
            auditing: String::new(),
            refusals: "{individualRecords: 1000000}".to_owned(),
        }
    }

    /// With this policy instead.
    #[must_use]
    pub fn policy(mut self, policy: &str) -> Self {
        self.policy = policy.to_owned();
        self
    }

    /// With these limits.
    #[must_use]
    pub fn limits(mut self, limits: &str) -> Self {
        self.limits = limits.to_owned();
        self
    }

    /// The configuration, of a gateway that writes its records to this file.
    #[must_use]
    pub fn yaml(&self, audit: &Path) -> String {
        let indented = |text: &str| text.replace('\n', "\n  ");
        let section = |name: &str, text: &str| {
            if text.is_empty() { String::new() } else { format!("{name}:\n  {}\n", indented(text)) }
        };
        // printf KEY | sha256sum
        let keys = "- {name: ana, principal: ana, groups: [dev], sha256: ANA}\n\
                    - {name: bob, principal: bob, groups: [ops], sha256: BOB}"
            .replace("ANA", "5434d1fbe1648d10e4c47fcfab49b8f1a98b1ac20460ed66af94e6c80d6418a5")
            .replace("BOB", "51757016c7071fa4aba403c9cb194bd900cec62ffc34cd50ad213a43399f77ed");
        let identity = format!("apiKeys:\n{keys}\n{}", self.identity);
        let listener = format!(
            "- name: main\n  address: 127.0.0.1:0\n  authentication: {}\n{}",
            self.authentication,
            if self.listener.is_empty() {
                String::new()
            } else {
                format!("  {}\n", self.listener.replace('\n', "\n  "))
            }
        );
        // Tests leave calls open, and the end of a gateway need not wait for those.
        let drain = if self.limits.contains("drainTimeout") { "" } else { "drainTimeout: 2s" };
        let limits = [drain, &self.limits].join("\n");
        let comma = |text: &str| if text.is_empty() { String::new() } else { format!(", {text}") };
        let audit = format!(
            "sinks: [{{name: file, file: '{}'{}}}{}]\n{}\nrefusals: {}",
            audit.display(),
            comma(&self.sink),
            comma(&self.sinks),
            self.auditing,
            self.refusals
        );
        [
            format!("apiVersion: portcullis.dev/v1\nops: {}\npins: {}\n", self.ops, self.pins),
            section("listeners", &listener),
            section("identity", &identity),
            section("servers", &self.servers),
            section("routes", &self.routes),
            section("policy", &self.policy),
            section("audit", &audit),
            section("limits", &limits),
            format!("{}\n", self.more),
        ]
        .concat()
    }

    /// Approves what the servers offer now, in the lockfile at `lock`, and starts from there.
    #[must_use]
    pub fn approved(mut self, lock: &Path) -> Self {
        self.pins = format!("{{file: '{}'}}", lock.display());
        self.verb(&["pin"]);
        self.verb(&["pin", "approve", "--yes", "--by", "ana"]);
        self
    }

    /// Runs a verb on this configuration; it has to go well.
    ///
    /// # Panics
    /// When it does not.
    pub fn verb(&self, arguments: &[&str]) -> Output {
        let output = self.tried(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}");
        output
    }

    /// Runs a verb on this configuration.
    ///
    /// # Panics
    /// When it cannot be run.
    #[must_use]
    pub fn tried(&self, arguments: &[&str]) -> Output {
        self.fed(arguments, "")
    }

    /// Runs a verb on this configuration with this on its standard input.
    ///
    /// # Panics
    /// When it cannot be run.
    #[must_use]
    pub fn fed(&self, arguments: &[&str], input: &str) -> Output {
        let folder = Folder::new();
        let file = folder.path().join("gateway.yaml");
        fs::write(&file, self.yaml(&folder.path().join("audit.jsonl"))).unwrap();
        let mut command = Command::new(binary());
        command.args(arguments).arg("-c").arg(&file);
        fed(command, input)
    }

    /// Starts the gateway from a file that is there to be changed: with [`Self::write`].
    #[must_use]
    pub fn start_at(&self, file: &Path) -> Gateway {
        let folder = Folder::new();
        let audit = self.audit.clone().unwrap_or_else(|| folder.path().join("audit.jsonl"));
        fs::write(file, self.yaml(&audit)).unwrap();
        let mut command = Command::new(binary());
        command.args(["run", "-c"]).arg(file);
        Gateway::spawn(command, folder, audit)
    }

    /// Writes it where a gateway reads it that records to `audit`.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, file: &Path, audit: &Path) {
        // As an editor does that does it well: whoever reads sees the old one or the new one.
        let next = file.with_extension("next");
        fs::write(&next, self.yaml(audit)).unwrap();
        fs::rename(next, file).unwrap();
    }

    /// Starts the gateway.
    #[must_use]
    pub fn start(&self) -> Gateway {
        let folder = Folder::new();
        let audit = self.audit.clone().unwrap_or_else(|| folder.path().join("audit.jsonl"));
        let file = folder.path().join("gateway.yaml");
        fs::write(&file, self.yaml(&audit)).unwrap();
        let mut command = Command::new(binary());
        command.args(["run", "-c"]).arg(&file);
        Gateway::spawn(command, folder, audit)
    }

    /// Runs the gateway when it is not expected to start.
    ///
    /// # Panics
    /// When it does.
    #[must_use]
    pub fn refused(&self) -> Output {
        let folder = Folder::new();
        let audit = self.audit.clone().unwrap_or_else(|| folder.path().join("audit.jsonl"));
        let file = folder.path().join("gateway.yaml");
        fs::write(&file, self.yaml(&audit)).unwrap();
        let mut command = Command::new(binary());
        command.args(["run", "-c"]).arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // One that starts after all must not be waited for for ever.
        eventually("the refusal", || child.try_wait().unwrap());
        child.wait_with_output().unwrap()
    }
}

/// Runs a command with this on its standard input.
///
/// # Panics
/// When it cannot be run.
#[must_use]
pub fn fed(mut command: Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || drop(stdin.write_all(input.as_bytes())));
        child.wait_with_output().unwrap()
    })
}

/// What a program has printed: on standard output, and behind it on standard error.
#[must_use]
pub fn printed(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

/// What a program has printed on standard output, as JSON; `null` where it is none.
#[must_use]
pub fn json_of(output: &Output) -> Value {
    String::from_utf8_lossy(&output.stdout).parse().unwrap_or_default()
}

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    /// Where clients connect.
    pub address: SocketAddr,
    /// Where the operator connects.
    pub ops: Option<SocketAddr>,
    audit: PathBuf,
    /// What it said on standard error. It arrives some time after what it is about: a test waits for it
    /// (`says`).
    log: Arc<Mutex<String>>,
    /// What it said on standard output.
    pub out: Arc<Mutex<String>>,
    /// Its log was taken away by the test: what is left does not begin with the first record, or is not
    /// whole.
    pub is_tampered: bool,
    /// It was killed: the line that it was writing may be cut.
    is_killed: bool,
    _folder: Folder,
}

impl Gateway {
    /// Starts `command` and waits until it says where it listens.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn spawn(command: Command, folder: Folder, audit: PathBuf) -> Self {
        Self::launch(command, folder, audit, true)
    }

    /// The same for a configuration without a listener for the operator.
    #[must_use]
    pub fn spawn_without_ops(command: Command, folder: Folder, audit: PathBuf) -> Self {
        Self::launch(command, folder, audit, false)
    }

    fn launch(mut command: Command, folder: Folder, audit: PathBuf, has_ops: bool) -> Self {
        [ANA, BOB].iter().for_each(|key| canary::watch(Side::Caller, key));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = Arc::new(Mutex::new(String::new()));
        let stdout = child.stdout.take().unwrap();
        collect(stdout, Arc::clone(&out));
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let (mut address, mut ops) = (None, None);
        // The ops line is the last one before the gateway serves, where there is one.
        while address.is_none() || (ops.is_none() && has_ops) {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "the gateway ended:\n{said}");
            let found = |line: &str| line.trim().rsplit("://").next().unwrap().parse().ok();
            if line.contains("` listens on http") {
                address = found(&line);
            } else if line.contains("ops on http://") {
                ops = found(&line);
            }
            said.push_str(&line);
        }
        let log = Arc::new(Mutex::new(said));
        collect(stderr, Arc::clone(&log));
        Self {
            child,
            address: address.unwrap(),
            ops,
            audit,
            log,
            out,
            is_tampered: false,
            is_killed: false,
            _folder: folder,
        }
    }

    /// A client that speaks `era` as `key`.
    #[must_use]
    pub fn client(&self, era: Era, key: &str) -> Client {
        Client::connect(self.address, "/mcp", era, Some(key))
    }

    /// Every record so far, but for the checkpoints, which come when they are due. Records of calls that are being
    /// closed are waited for.
    #[must_use]
    pub fn records(&self) -> Vec<Value> {
        let all = self.settled().into_iter();
        all.filter(|record| record["event"] != "checkpoint").collect()
    }

    /// Every record that is in the file now. That of a call whose answer has come may be lacking.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "our own output")]
    pub fn log(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.audit).unwrap_or_default();
        // The last line may be on its way.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Every record, as soon as each call that was announced has its record: an answer that took longer than an
    /// instant is a stream, and its record is closed after the last event. A call that does not end within
    /// [`CLOSING`] is left out.
    #[expect(clippy::disallowed_methods, reason = "a test's patience is real time")]
    fn settled(&self) -> Vec<Value> {
        let started = Instant::now();
        loop {
            let all = self.log();
            if !has_open_calls(&all) || started.elapsed() > CLOSING {
                return all;
            }
            // Leaves the processor to the gateway.
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// The text of its metrics, with those of calls that are being closed.
    ///
    /// # Panics
    /// When it has no listener for the operator.
    #[must_use]
    pub fn metrics(&self) -> String {
        // Some tests record to a pipe.
        if fs::metadata(&self.audit).is_ok_and(|audit| audit.is_file()) {
            drop(self.settled());
        }
        self.metrics_now()
    }

    /// The text of its metrics as they are, also while calls are made.
    ///
    /// # Panics
    /// When it has no listener for the operator.
    #[must_use]
    pub fn metrics_now(&self) -> String {
        get(self.ops.unwrap(), "/metrics").body
    }

    /// The number of a metric, with those of calls that are being closed. Its labels are a part of its `name`.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn metric(&self, name: &str) -> u64 {
        number_of(name, &self.metrics())
    }

    /// The number of a metric as it is, also while calls are made.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn metric_now(&self, name: &str) -> u64 {
        number_of(name, &self.metrics_now())
    }

    /// What it has said on standard error so far. What it is about to say may be lacking.
    #[must_use]
    pub fn said(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until it has said a line with `text` on standard error, and returns all that it has said by then. What
    /// comes last may be a part of the next line.
    ///
    /// # Panics
    /// When it does not.
    pub fn says(&self, text: &str) -> String {
        eventually(&format!("the line `{text}` in the log"), || {
            let said = self.said();
            let is_whole = said.find(text).is_some_and(|at| said[at..].contains('\n'));
            is_whole.then_some(said)
        })
    }

    /// Waits until it has read by itself what so many servers offer. What a server is asked from then on is asked
    /// for a client.
    ///
    /// # Panics
    /// When it does not.
    pub fn has_read(&self, servers: usize) {
        eventually("the reading of the catalogues", || {
            (self.said().matches("tools listed").count() >= servers).then_some(())
        });
    }

    /// Waits until its metrics have this line.
    ///
    /// # Panics
    /// When they do not.
    pub fn measures(&self, line: &str) {
        let line = format!("\n{line}\n");
        eventually(&line, || self.metrics_now().contains(&line).then_some(()));
    }

    /// Kills it, as a machine that fails would.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.is_killed = true;
    }

    /// Its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The records of ended exchanges. Those that are being closed are waited for.
    #[must_use]
    pub fn exchanges(&self) -> Vec<Value> {
        self.records().into_iter().filter(|record| record["event"] == "exchange").collect()
    }

    /// The last record of an ended exchange.
    #[must_use]
    pub fn last(&self) -> Value {
        self.exchanges().pop().unwrap_or_default()
    }

    /// Waits for a record that `is` the one.
    #[must_use]
    pub fn recorded(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let is = |record: &Value| record["event"] == "exchange" && is(record);
        eventually(what, || self.log().into_iter().find(is))
    }

    /// The file records go to.
    #[must_use]
    pub fn audit(&self) -> &Path {
        &self.audit
    }

    /// Asks the gateway to read its files again.
    ///
    /// # Panics
    /// When it is not there.
    pub fn hang_up(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    }

    /// Lets no file that the gateway writes grow beyond so many bytes (`RLIMIT_FSIZE`); `None` lets all of them.
    ///
    /// # Panics
    /// When that cannot be set.
    pub fn limit_files(&self, bytes: Option<u64>) {
        let pid = self.child.id().to_string();
        let most = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
        let limit = format!("--fsize={most}:unlimited");
        assert!(Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap().success());
    }

    /// Asks the gateway to stop.
    pub fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    /// Waits until it has ended; its exit code.
    #[must_use]
    pub fn ended(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// The ids of its child processes.
    #[must_use]
    pub fn children(&self) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let children = tasks.flat_map(|task| {
            let text =
                fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default();
            text.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()
        });
        children.collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.terminate();
            drop(self.child.wait());
        }
        canary::written(&self.log.lock().unwrap(), "the log");
        canary::written(&self.out.lock().unwrap(), "standard output");
        // Some tests record to a device that has no end.
        if fs::metadata(&self.audit).is_ok_and(|audit| audit.is_file()) {
            let records = fs::read_to_string(&self.audit).unwrap_or_default();
            canary::written(&records, "the records");
            if thread::panicking() {
                tell(&records, &self.log.lock().unwrap());
            }
            // Whatever a test is about: the log it leaves is whole.
            let verified =
                Command::new(binary()).args(["audit", "verify"]).arg(&self.audit).output();
            let said = verified.map(|output| (output.status.code(), output.stderr)).unwrap();
            let text = String::from_utf8_lossy(&said.1);
            let is_cut = self.is_killed && text.contains("the last line is cut");
            let whole = said.0 == Some(0) || self.is_tampered || is_cut || thread::panicking();
            assert!(whole, "{text}");
        }
        if !thread::panicking() {
            canary::none_was_found();
        }
    }
}

/// The number of the metric with this name and these labels.
fn number_of(name: &str, metrics: &str) -> u64 {
    let number = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    number.unwrap_or_else(|| panic!("{name} in {metrics}")).parse().unwrap()
}

/// Whether a call was announced since the last start, and has no record of its end.
fn has_open_calls(records: &[Value]) -> bool {
    let began = records.iter().rposition(|record| record["event"] == "start").unwrap_or_default();
    let mut open = BTreeSet::new();
    for record in &records[began..] {
        match record["event"].as_str() {
            Some("intent") => drop(open.insert(record["id"].as_str())),
            Some("exchange") => drop(open.remove(&record["id"].as_str())),
            _ => {}
        }
    }
    !open.is_empty()
}

/// Says what the gateway of a test that fails did last: its own words tell less.
#[expect(clippy::print_stderr, reason = "it is for who reads why a test failed")]
fn tell(records: &str, log: &str) {
    for (what, lines) in [("records", records), ("log", log)] {
        let lines: Vec<_> = lines.lines().collect();
        let last = &lines[lines.len().saturating_sub(8)..];
        eprintln!("the last {what} of the gateway:\n{}", last.join("\n"));
    }
}

fn collect(mut from: impl std::io::Read + Send + 'static, into: Arc<Mutex<String>>) {
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = from.by_ref().read(&mut buffer) {
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    });
}
