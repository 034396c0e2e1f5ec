//! Agents and servers as people run them: frameworks whose model follows a script, public servers behind every
//! default, and servers that ask their client in mid-call.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::thread;

use e2e::client::Client;
use e2e::gateway::{ANA, Config, Folder, Gateway, root};
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

use crate::peers::{Http, peers};

/// A command that ends after a minute, whatever becomes of it.
fn bounded(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "60"]).arg(program);
    command
}

/// A process under `timeout`, which is killed with the program that it watches.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let watcher = self.0.id();
        let children = fs::read_to_string(format!("/proc/{watcher}/task/{watcher}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            drop(Command::new("kill").args(["-KILL", child]).status());
        }
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A script of `tests/sdk` in one of the Python environments, as Ana.
pub(super) fn script(environment: &str, script: &str) -> Command {
    let mut command = bounded(&peers().join(environment).join("bin/python"));
    command.arg(root().join("tests/sdk").join(script)).arg(ANA);
    command
}

/// What a script reports on its last line.
#[expect(clippy::disallowed_methods, reason = "the report of our own script")]
pub(super) fn report(what: &str, output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().last().unwrap_or_default();
    serde_json::from_str(line)
        .unwrap_or_else(|_| panic!("{what}: {said}{}", String::from_utf8_lossy(&output.stderr)))
}

/// A framework for agents, in an environment where it speaks one era.
pub(super) struct Framework {
    /// The Python environment in `tests/.peers`.
    pub(super) environment: &'static str,
    /// The agent, in `tests/sdk`.
    pub(super) script: &'static str,
    /// The era that the SDK in the environment speaks to a gateway that has both.
    pub(super) era: Era,
}

/// LangChain has no modern era yet: langchain-mcp-adapters needs the Python SDK 1.x.
pub(super) const FRAMEWORKS: [Framework; 3] = [
    Framework { environment: "agents", script: "agent_langchain.py", era: Era::Legacy },
    Framework { environment: "agents", script: "agent_openai.py", era: Era::Legacy },
    Framework { environment: "agents2", script: "agent_openai.py", era: Era::Modern },
];

#[test]
fn agents_list_call_read_why_they_were_denied_and_finish_their_run() {
    let folder = Folder::new();
    let path = folder.path().canonicalize().unwrap();
    let shared = path.join("shared");
    fs::create_dir(&shared).unwrap();
    fs::write(shared.join("note.txt"), "a note").unwrap();
    let server = package("@modelcontextprotocol/server-filesystem/dist/index.js");
    let servers = format!(
        "- {{name: files, command: node, args: ['{}', '{}']}}",
        server.display(),
        shared.display()
    );
    let policy = "contact: sec@example.com
rules:
- {id: readers, effect: allow, principals: ['group:dev'], servers: [files], tools: [read_text_file, list_directory]}
- {id: keys, effect: forbid, principals: ['*'], servers: [files], tools: [read_text_file], when: 'arguments.path.endsWith(\".key\")'}
constraints:
- {servers: [files], tools: ['*'], argument: /path, type: path, within: ['SHARED']}"
        .replace("SHARED", &shared.display().to_string());
    let config = Config::with(&servers, "[files]").policy(&policy);
    let gateway = config.approved(&path.join("lock")).start();
    let calls = json!([
        ["read_text_file", { "path": shared.join("note.txt") }],
        ["read_text_file", { "path": shared.join("private.key") }],
        ["read_text_file", { "path": "/etc/passwd" }],
        ["list_directory", { "path": shared }],
    ]);
    thread::scope(|scope| {
        for framework in &FRAMEWORKS {
            let (url, calls) = (format!("http://{}/mcp", gateway.address), calls.to_string());
            scope.spawn(move || {
                let mut command = script(framework.environment, framework.script);
                finished(framework, &command.args([url, calls]).output().unwrap());
            });
        }
    });
    for era in ERAS {
        let runs = FRAMEWORKS.iter().filter(|framework| framework.era == era).count();
        let count = |reason: Option<&str>| {
            let calls = gateway.exchanges().into_iter().filter(|record| {
                record["method"] == "tools/call"
                    && record["era"] == if era == Era::Modern { "modern" } else { "legacy" }
                    && reason.is_none_or(|reason| record["reason"] == reason)
            });
            calls.count()
        };
        eventually("the records", || (count(None) == 4 * runs).then_some(()));
        assert_eq!(count(Some("forbidden")), runs, "{era:?}");
        assert_eq!(count(Some("arguments")), runs, "{era:?}");
    }
}

/// The agent was given what it may use, has read each answer, denials with their reasons, and has answered in the end.
fn finished(framework: &Framework, output: &Output) {
    let what = format!("{} {:?}", framework.script, framework.era);
    let report = report(&what, output);
    let what = format!("{what}: {report}");
    let mut tools: Vec<_> =
        report["tools"].as_array().unwrap().iter().map(|tool| tool.as_str().unwrap()).collect();
    tools.sort_unstable();
    assert_eq!(tools, ["list_directory", "read_text_file"], "{what}");
    let read: Vec<_> =
        report["read"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let expected = [
        &["a note"][..],
        &["denied", "`keys`", "sec@example.com"],
        &["denied", "`/path`", "sec@example.com"],
        &["[FILE] note.txt"],
    ];
    assert_eq!(read.len(), expected.len(), "{what}");
    for (text, parts) in read.iter().zip(expected) {
        assert!(parts.iter().all(|part| text.contains(part)), "{what}");
        // What a framework makes of an error of the protocol instead.
        assert!(!text.contains("Please try again"), "{what}");
    }
    let answer = report["answer"].as_str().unwrap();
    assert!(answer.starts_with("I have read: "), "{what}");
    assert!(read.iter().all(|text| answer.contains(text)), "{what}");
}

/// A file of an npm package in `tests/.peers`.
fn package(file: &str) -> PathBuf {
    peers().join("node/node_modules").join(file)
}

/// A public server over stdio, from npm or PyPI.
struct Published {
    /// Its name in the configuration, and its route.
    name: &'static str,
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
}

impl Published {
    fn npm(name: &'static str, file: &str, args: &[&str]) -> Self {
        let file = package(file).display().to_string();
        let args = [file].into_iter().chain(args.iter().map(|arg| (*arg).to_owned())).collect();
        Self { name, program: "node".into(), args, env: Vec::new() }
    }

    fn pypi(name: &'static str, environment: &str, program: &str, args: &[&str]) -> Self {
        let program = peers().join(environment).join("bin").join(program);
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Self { name, program, args, env: Vec::new() }
    }

    /// It as an item of `servers`.
    fn item(&self) -> String {
        let variable =
            |(name, value): &(&'static str, String)| json!({ "name": name, "value": value });
        let env: Vec<Value> = self.env.iter().map(variable).collect();
        format!(
            "- {{name: {}, command: '{}', args: {}, env: {}}}\n",
            self.name,
            self.program.display(),
            json!(self.args),
            json!(env)
        )
    }
}

/// The servers, with `data` to work on. None of them needs a network or a credential to start.
fn published(data: &Path) -> Vec<Published> {
    let done = Command::new("git").args(["init", "--quiet"]).arg(data).status().unwrap();
    assert!(done.success());
    let folder = data.display().to_string();
    let database = data.join("data.db").display().to_string();
    let mut memory =
        Published::npm("memory", "@modelcontextprotocol/server-memory/dist/index.js", &[]);
    memory.env = vec![("MEMORY_FILE_PATH", data.join("memory.jsonl").display().to_string())];
    vec![
        Published::npm(
            "files",
            "@modelcontextprotocol/server-filesystem/dist/index.js",
            &[&folder],
        ),
        Published::npm("all", "@modelcontextprotocol/server-everything/dist/index.js", &["stdio"]),
        memory,
        Published::npm(
            "thinking",
            "@modelcontextprotocol/server-sequential-thinking/dist/index.js",
            &[],
        ),
        Published::npm("browser", "@playwright/mcp/cli.js", &[]),
        Published::npm("docs", "@upstash/context7-mcp/dist/index.js", &[]),
        Published::pypi("git", "servers", "mcp-server-git", &["--repository", &folder]),
        Published::pypi("fetch", "servers", "mcp-server-fetch", &[]),
        Published::pypi("time", "servers", "mcp-server-time", &[]),
        Published::pypi("sheets", "servers", "excel-mcp-server", &["stdio"]),
        Published::pypi("sqlite", "py1", "mcp-server-sqlite", &["--db-path", &database]),
    ]
}

/// All of them, each on a route of its own, everything allowed to `dev`, and nothing else said.
fn config(servers: &[Published]) -> Config {
    let mut config = Config::with(&servers.iter().map(Published::item).collect::<String>(), "[]");
    let route = |server: &Published| format!("- {{path: /{0}, servers: [{0}]}}", server.name);
    config.routes = servers.iter().map(route).collect::<Vec<_>>().join("\n");
    config.policy(
        "rules:\n- {id: open, effect: allow, principals: ['group:dev'], servers: ['*'], \
         tools: ['*'], prompts: ['*'], resources: ['*']}",
    )
}

/// Runs `work` for each of them, two at a time; what it says is wrong, of all.
fn each(servers: &[Published], work: impl Fn(&Published) -> Vec<String> + Sync) -> Vec<String> {
    let halves = servers.chunks(servers.len().div_ceil(2));
    thread::scope(|scope| {
        let work = &work;
        let halves: Vec<_> = halves
            .map(|half| scope.spawn(move || half.iter().flat_map(work).collect::<Vec<_>>()))
            .collect();
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    })
}

/// A program that is spoken to without the gateway, in the legacy era.
struct Direct {
    _program: Killed,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    asked: u64,
    /// What it answered to `initialize`.
    hello: Value,
}

impl Direct {
    fn start(server: &Published) -> Self {
        let mut command = bounded(&server.program);
        command.args(&server.args).envs(server.env.iter().cloned());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (output, program) = (BufReader::new(output), Killed(child));
        let mut direct = Self { _program: program, input, output, asked: 0, hello: Value::Null };
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" } });
        direct.hello = direct.ask("initialize", &hello)["result"].take();
        direct.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        direct
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    #[expect(clippy::disallowed_methods, reason = "what is compared is what a parser makes of it")]
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            // It ends after a minute, and its output with it.
            assert!(self.output.read_line(&mut line).unwrap() > 0, "no answer to {method}");
            let message: Value = serde_json::from_str(&line).unwrap_or_default();
            if message["id"] == id && message["method"].is_null() {
                return message;
            }
        }
    }
}

/// The lists of what a server offers, and the member of each with its entries.
const LISTS: [(&str, &str); 4] = [
    ("tools/list", "tools"),
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
];

/// A whole list; empty for a server that has none of the kind.
fn listed(mut ask: impl FnMut(&str, &Value) -> Value, method: &str, member: &str) -> Vec<Value> {
    let (mut all, mut params) = (Vec::new(), json!({}));
    loop {
        let answer = ask(method, &params);
        if answer["error"]["code"] == -32601 {
            return all;
        }
        let page = answer["result"][member].as_array();
        all.extend(page.unwrap_or_else(|| panic!("{method}: {answer}")).iter().cloned());
        match &answer["result"]["nextCursor"] {
            Value::String(cursor) => params = json!({ "cursor": cursor }),
            _ => return all,
        }
    }
}

/// What one client is shown otherwise than the server says it.
fn differences(direct: &mut Direct, client: &Client) -> Vec<String> {
    let mut wrong = Vec::new();
    let hello = match client.era {
        Era::Legacy => client.hello(),
        Era::Modern => client.ask("server/discover", json!({})),
    };
    let shown = hello.json()["result"]["instructions"].take();
    if shown != direct.hello["instructions"] {
        wrong.push(format!("instructions: {shown}"));
    }
    for (method, member) in LISTS {
        let said = listed(|method, params| direct.ask(method, params), method, member);
        let shown =
            listed(|method, params| client.ask(method, params.clone()).json(), method, member);
        for entry in said.iter().filter(|entry| !shown.contains(entry)) {
            let other = shown.iter().find(|other| other["name"] == entry["name"]);
            let what = if other.is_some() { "changed" } else { "withheld" };
            wrong.push(format!("{method}: {} is {what}", entry["name"]));
        }
        if wrong.is_empty() && said != shown {
            wrong.push(format!("{method}: more, or in another order"));
        }
        if member == "tools" && said.is_empty() {
            wrong.push("it offers no tools".to_owned());
        }
    }
    wrong
}

#[test]
fn public_servers_are_shown_as_they_are_behind_every_default() {
    let folder = Folder::new();
    let data = folder.path().join("data");
    let servers = published(&data);
    let gateway = config(&servers).approved(&folder.path().join("lock")).start();
    let wrong = each(&servers, |server| {
        let mut direct = Direct::start(server);
        let path = format!("/{}", server.name);
        let shown = ERAS.into_iter().flat_map(|era| {
            let client = Client::connect(gateway.address, &path, era, Some(ANA));
            let wrong = differences(&mut direct, &client);
            wrong.into_iter().map(move |wrong| format!("{} {era:?}: {wrong}", server.name))
        });
        shown.collect()
    });
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), withheld(&gateway));
}

/// What the log says of what was withheld, and why.
fn withheld(gateway: &Gateway) -> String {
    let log = gateway.said();
    log.lines().filter(|line| line.contains("withheld")).collect::<Vec<_>>().join("\n")
}

#[test]
fn of_ten_public_servers_eight_pass_a_scan_at_its_default() {
    let folder = Folder::new();
    let servers = published(&folder.path().join("data"));
    assert!(servers.len() >= 10);
    let config = config(&servers);
    let failed = std::sync::Mutex::new(0);
    let found = each(&servers, |server| {
        let output = config.tried(&["scan", "--server", server.name]);
        if output.status.success() {
            return Vec::new();
        }
        *failed.lock().unwrap() += 1;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let grave =
            said.lines().filter(|line| line.starts_with("high") || line.contains("definitions:"));
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let errors = if output.status.code() == Some(6) { String::new() } else { errors };
        vec![format!("{}: {}{errors}", server.name, grave.collect::<Vec<_>>().join("\n  "))]
    });
    let failed = failed.into_inner().unwrap();
    assert!((servers.len() - failed) * 10 >= servers.len() * 8, "{}", found.join("\n"));
}

/// A server of `tests/sdk` that asks its client in mid-call.
fn trips(environment: &str, name: &str) -> Http {
    let mut command = Command::new(peers().join(environment).join("bin/python"));
    command.arg(root().join("tests/sdk").join(name));
    Http::start(|port| {
        command.arg(port);
        command
    })
}

/// A client of an SDK that can be asked something, for the servers above.
fn traveller(environment: &str, name: &str, era: Era, steps: &Value) -> Command {
    let mut command = script(environment, name);
    let era = if era == Era::Modern { "modern" } else { "legacy" };
    command.args([era, &steps.to_string()]);
    command
}

/// The servers behind the gateway: one that lists what it makes, and one that has a template for it.
struct Trips {
    _servers: [Http; 2],
    folder: Folder,
    gateway: Gateway,
}

/// Their names, which are their routes too.
const TRIPS: [&str; 2] = ["listing", "linking"];

impl Trips {
    fn start() -> Self {
        let folder = Folder::new();
        let servers = [trips("py1", "trips_py1.py"), trips("py2", "trips_py2.py")];
        let items = TRIPS.iter().zip(&servers).zip(["dynamic", "byTemplate"]);
        let items = items.map(|((name, server), resources)| {
            let url = format!("http://127.0.0.1:{}/mcp", server.1);
            format!(
                "- {{name: {name}, url: '{url}', serverRequests: {{formElicitation: {{}}, sampling: {{}}}}, resources: {resources}}}\n"
            )
        });
        let mut config = Config::with(&items.collect::<String>(), "[]").policy(
            "rules:\n- {id: open, effect: allow, principals: ['group:dev'], servers: ['*'], \
             tools: ['*'], resources: ['trip://made/*']}",
        );
        let routes = TRIPS.map(|name| format!("- {{path: /{name}, servers: [{name}]}}"));
        config.routes = routes.join("\n");
        let gateway = config.approved(&folder.path().join("lock")).start();
        Self { _servers: servers, folder, gateway }
    }

    fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.gateway.address)
    }

    /// Begins a call in one process, kills it when it got somewhere, and lets another one go on with the call.
    fn resumed(&self, environment: &str, script: &str, era: Era, name: &str) -> Value {
        let folder = self.folder.path().join(format!("{era:?}-{name}"));
        fs::create_dir(&folder).unwrap();
        let step = |what: &str| json!([{ "do": what, "url": self.url(name), "folder": folder }]);
        let mut first = traveller(environment, script, era, &step("begin"));
        first.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut first = Killed(first.spawn().unwrap());
        eventually("the first process got somewhere", || {
            assert!(first.0.try_wait().unwrap().is_none(), "the first process has ended");
            folder.join("begun").exists().then_some(())
        });
        drop(first);
        fs::write(folder.join("go"), "").unwrap();
        let output = traveller(environment, script, era, &step("resume")).output().unwrap();
        report(&format!("{script} {era:?} {name}"), &output)[0].take()
    }
}

const ASKED: [&str; 2] = ["How many nights in Porto?", "A word on Porto?"];

#[test]
fn servers_ask_report_and_make_resources_in_mid_call_for_clients_of_both_eras() {
    let trips = Trips::start();
    let steps: Vec<_> =
        TRIPS.iter().map(|name| json!({ "do": "plan", "url": trips.url(name) })).collect();
    for (environment, script, era) in [
        ("py1", "traveller_py1.py", Era::Legacy),
        ("py2", "traveller_py2.py", Era::Legacy),
        ("py2", "traveller_py2.py", Era::Modern),
    ] {
        let what = format!("{script} {era:?}");
        let output = traveller(environment, script, era, &json!(steps)).output().unwrap();
        let reports = report(&what, &output);
        for (number, name) in TRIPS.iter().enumerate() {
            let (report, what) = (&reports[number], format!("{what} {name}: {reports}"));
            assert_eq!(report["asked"], json!(ASKED), "{what}");
            assert_eq!(report["read"], "3 nights in Porto: lovely", "{what}");
            // Of two streams either may be read first.
            let mut told: Vec<_> =
                report["steps"].as_array().unwrap().iter().map(|step| step.as_f64()).collect();
            told.sort_by(|one, other| one.partial_cmp(other).unwrap());
            assert_eq!(told, [Some(1.0), Some(2.0), Some(3.0)], "{what}");
        }
    }
}

#[test]
fn a_call_of_a_client_that_was_killed_is_finished_by_another_process() {
    let trips = Trips::start();
    for name in TRIPS {
        let report = trips.resumed("py1", "traveller_py1.py", Era::Legacy, name);
        assert_eq!(report["steps"], json!([2.0, 3.0]), "{name}: {report}");
        assert_eq!(report["asked"], json!([ASKED[0]]), "{name}: {report}");
        assert_eq!(report["read"], "3 nights in Porto", "{name}: {report}");
        // A modern client has no stream to come back to: it keeps the state, and answers.
        let report = trips.resumed("py2", "traveller_py2.py", Era::Modern, name);
        assert_eq!(report["asked"], json!(ASKED), "{name}: {report}");
        assert_eq!(report["read"], "3 nights in Porto: lovely", "{name}: {report}");
    }
    let records = trips.gateway.records();
    let sent = records.iter().filter(|record| record["event"] == "intent");
    let researched = sent.filter(|record| record["tool"] == "research").count();
    assert_eq!(researched, TRIPS.len(), "a call is made once");
}
