//! Every capability in every cell: clients of two SDKs and two generations, in both eras, in front
//! of servers of the same, in both eras. `docs/compatibility.md` is written from what comes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use e2e::gateway::{ANA, Config, Folder, root};
use e2e::golden;
use serde_json::Value;

use crate::peers::{Http, peers};

/// The capabilities, and what a user sees of each.
const CAPABILITIES: [(&str, &str); 25] = [
    ("tools", "`tools/list`"),
    ("echo", "`tools/call`"),
    ("form", "elicitation in mid-call, a form, accepted"),
    ("decline", "the same, declined"),
    ("approve", "approval of a call by the user of the client, by elicitation of the gateway"),
    ("disapprove", "the same, not approved: the call is denied"),
    ("url", "elicitation in mid-call, a URL"),
    ("twice", "two elicitations, one after the other"),
    ("no_capability", "elicitation of a client that does not offer it: an error, not silence"),
    ("sample", "sampling in mid-call"),
    ("roots", "roots in mid-call"),
    ("progress", "progress, in order"),
    ("log", "log messages, from the level asked for"),
    ("cancel", "cancellation reaches the server"),
    ("list_changed", "`tools/list_changed`"),
    ("updated", "`resources/updated` of a subscription"),
    ("resources", "`resources/list`"),
    ("read", "`resources/read`"),
    ("template", "`resources/templates/list`, and reading one"),
    ("prompts", "`prompts/list`"),
    ("prompt", "`prompts/get`"),
    ("complete", "completion of a prompt's argument"),
    ("complete_template", "completion of a template's variable"),
    ("instructions", "instructions"),
    ("ping", "`ping` (legacy clients)"),
];

/// A program of one SDK in one era.
pub(super) struct Peer {
    pub(super) name: &'static str,
    sdk: &'static str,
    script: &'static str,
    pub(super) era: &'static str,
}

const fn peer(
    name: &'static str,
    sdk: &'static str,
    script: &'static str,
    era: &'static str,
) -> Peer {
    Peer { name, sdk, script, era }
}

const SERVERS: [Peer; 6] = [
    peer("py1", "py1", "server_py1.py", "legacy"),
    peer("py2-legacy", "py2", "server_py2.py", "legacy"),
    peer("ts1", "node", "server_ts1.mjs", "legacy"),
    peer("ts2-legacy", "node", "server_ts2.mjs", "legacy"),
    peer("py2-modern", "py2", "server_py2.py", "modern"),
    peer("ts2-modern", "node", "server_ts2.mjs", "modern"),
];

pub(super) const CLIENTS: [Peer; 6] = [
    peer("py1", "py1", "client_py1.py", "legacy"),
    peer("py2", "py2", "client_py2.py", "legacy"),
    peer("ts1", "node", "client_ts1.mjs", "legacy"),
    peer("ts2", "node", "client_ts2.mjs", "legacy"),
    peer("py2", "py2", "client_py2.py", "modern"),
    peer("ts2", "node", "client_ts2.mjs", "modern"),
];

/// Node finds packages beside the script, so the scripts are copied to where the packages are.
fn script(peer: &Peer) -> PathBuf {
    let script = root().join("tests/sdk/compat").join(peer.script);
    if peer.sdk != "node" {
        return script;
    }
    let folder = peers().join("node/compat");
    fs::create_dir_all(&folder).unwrap();
    let copy = folder.join(format!("{}-{}", peer.era, peer.script));
    fs::copy(script, &copy).unwrap();
    copy
}

fn command(peer: &Peer) -> Command {
    let program = match peer.sdk {
        "node" => "node".into(),
        sdk => peers().join(sdk).join("bin/python"),
    };
    let mut command = Command::new(program);
    command.arg(script(peer));
    command
}

/// What one client saw of one server through the gateway, by capability: whether it is as it should
/// be (`None`: it does not exist there), and what was seen.
pub(super) type Seen = BTreeMap<String, (Option<bool>, String)>;

/// Runs the checks with these names.
pub(super) fn run(client: &Peer, url: &str, marker: &Path, names: &[&str]) -> Seen {
    let mut said = String::new();
    // Node ends now and then, on a busy machine, before it has run a line of the script: without a word on
    // either output. That says nothing of the gateway, and is tried once more.
    for _ in 0..2 {
        let mut command = command(client);
        command.args([url, client.era, ANA, &names.join(",")]).arg(marker);
        let output = command.output().unwrap();
        let mut seen = Seen::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            #[expect(clippy::disallowed_methods, reason = "the report of our own script")]
            let Ok(report) = serde_json::from_str::<Value>(line) else { continue };
            let name = report["cap"].as_str().unwrap_or_default().to_owned();
            seen.insert(name, (report["ok"].as_bool(), report["got"].to_string()));
        }
        if !seen.is_empty() {
            return seen;
        }
        said += &format!("{} {}", output.status, String::from_utf8_lossy(&output.stderr));
        if !output.stderr.is_empty() {
            break;
        }
    }
    panic!("{} {url}: {said}", client.name);
}

#[test]
fn every_capability_in_every_cell() {
    let folder = Folder::new();
    let servers: Vec<_> = SERVERS
        .iter()
        .map(|server| {
            Http::start(|port| {
                let mut command = command(server);
                command.arg(port);
                if server.script.contains('2') {
                    command.arg(server.era);
                }
                command
            })
        })
        .collect();
    let items = SERVERS.iter().zip(&servers);
    let items = items.map(|(server, http)| {
        let requests = "{formElicitation: {}, urlElicitation: {hosts: [example.com]}, sampling: {}, roots: {}}";
        format!(
            "- {{name: {}, url: 'http://127.0.0.1:{}/mcp', serverRequests: {requests}}}",
            server.name, http.1
        )
    });
    let mut config = Config::with(&items.collect::<Vec<_>>().join("\n"), "[py1]").policy(
        "rules:
- {id: careful, effect: allow, principals: ['group:dev'], servers: ['*'], tools: [echo], requireApproval: true,
   when: 'arguments.text.startsWith(\"careful\")'}
- {id: open, effect: allow, principals: ['group:dev'], servers: ['*'], tools: ['*'], prompts: ['*'], resources: ['*']}",
    );
    let routes = SERVERS.iter().map(|s| format!("- {{path: /{0}, servers: [{0}]}}", s.name));
    config.more = "approvals: {ask: [client]}".to_owned();
    config.routes = routes.collect::<Vec<_>>().join("\n");
    let gateway = config.start();
    // What one client does to a server another would notice, so each server has one at a time.
    let all = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for server in &SERVERS {
            let (all, folder, address) = (&all, &folder, gateway.address);
            scope.spawn(move || {
                for client in &CLIENTS {
                    let url = format!("http://{address}/{}", server.name);
                    let marker = format!("{}-{}-{}", client.name, client.era, server.name);
                    let names = CAPABILITIES.map(|(name, _)| name);
                    let seen = run(client, &url, &folder.path().join(marker), &names);
                    all.lock().unwrap().push((client, server, seen));
                }
            });
        }
    });
    let all = all.into_inner().unwrap();
    let mut wrong = Vec::new();
    for (client, server, seen) in &all {
        for (name, _) in CAPABILITIES {
            let (ok, got) = seen.get(name).cloned().unwrap_or((Some(false), "no report".into()));
            if ok == Some(false) {
                wrong.push(format!(
                    "{} {} -> {}: {name}: {got}",
                    client.era, client.name, server.name
                ));
            }
        }
    }
    let log = gateway.said();
    if !wrong.is_empty() {
        fs::write(std::env::temp_dir().join("portcullis-compat.log"), log).unwrap();
    }
    assert!(wrong.is_empty(), "{}\n{} wrong", wrong.join("\n"), wrong.len());
    let text = matrix(&all);
    golden::compare([(&*root().join("docs/compatibility.md"), &*text)]);
}

/// The page.
fn matrix(all: &[(&Peer, &Peer, Seen)]) -> String {
    let cells =
        [("legacy", "legacy"), ("legacy", "modern"), ("modern", "legacy"), ("modern", "modern")];
    let mut text = "# Compatibility\n\n\
        This page shows what a client sees of a server through the gateway, in each pair of eras. *Legacy* is every\n\
        revision up to 2025-11-25, *modern* is 2026-07-28. This page is written by the test\n\
        `every_capability_in_every_cell` from what the official SDKs saw; it fails when the page is out of date.\n\n\
        Clients and servers: Python `mcp` 1.30 (legacy) and 2.3 (both), TypeScript `@modelcontextprotocol/sdk`\n\
        1.32 (legacy) and `@modelcontextprotocol/client`/`server` 2.4 (both). A number is the pairs of client and\n\
        server in which the capability worked, of those in which it exists.\n\n"
        .to_owned();
    writeln!(text, "| Capability | legacy client, legacy server | legacy client, modern server | modern client, legacy server | modern client, modern server |").unwrap();
    writeln!(text, "|---|---|---|---|---|").unwrap();
    for (name, what) in CAPABILITIES {
        write!(text, "| {what} |").unwrap();
        for (client_era, server_era) in cells {
            let pairs: Vec<_> = all
                .iter()
                .filter(|(client, server, _)| client.era == client_era && server.era == server_era)
                .filter_map(|(_, _, seen)| seen.get(name).and_then(|(ok, _)| *ok))
                .collect();
            let worked = pairs.iter().filter(|ok| **ok).count();
            if pairs.is_empty() {
                write!(text, " does not exist |").unwrap();
            } else {
                write!(text, " {worked} of {} |", pairs.len()).unwrap();
            }
        }
        text.push('\n');
    }
    let sdks: BTreeSet<_> = all.iter().map(|(client, _, _)| client.name).collect();
    assert_eq!(sdks.len(), 4);
    text
}
