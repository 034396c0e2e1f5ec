//! What the documents show works: commands are run, configurations are read, links lead somewhere, and verbs and
//! options that are named exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use e2e::client::Client;
use e2e::gateway::{ANA, Folder, Gateway, binary, printed, root};
use e2e::pki::{Leaf, Pki};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era, eventually};
use regex::Regex;
use serde_json::json;

use crate::first_hour;

/// printf KEY | sha256sum
const HASH: &str = "5434d1fbe1648d10e4c47fcfab49b8f1a98b1ac20460ed66af94e6c80d6418a5";
/// What the operator shows in these tests.
const TOKEN: &str = "a-token-of-the-operator";

/// What begins a command that is not run here, and why. The list only shrinks.
const NOT_HERE: [(&str, &str); 15] = [
    ("cargo ", "builds for minutes; what is tested is built by it"),
    ("tests/", "sets up, runs or measures what the tests are, this one included"),
    ("jq ", "is not among what `tests/setup` installs"),
    ("docker ", "needs a daemon of containers"),
    ("kubectl ", "needs a cluster"),
    ("helm ", "needs a cluster; what it renders is compared in `deploy.rs`"),
    ("install ", "writes into folders of the system"),
    ("openssl ", "writes into folders of the system, or asks a gateway with TLS"),
    ("systemctl ", "needs a running systemd"),
    ("promtool ", "is run on the same files in `deploy.rs`"),
    ("git ", "is the reader's own repository"),
    ("deploy/image/stage ", "is run in `deploy.rs`"),
    ("cd deploy/compose ", "needs a daemon of containers"),
    (
        "curl -sS -o /dev/null -w '%{http_code}\\n' -X POST https://COLLECTOR",
        "asks the reader's own collector",
    ),
    (
        "curl -sS -o /dev/null -w '%{http_code}\\n' TOKEN_URL",
        "asks the reader's own authorization server",
    ),
];
/// Most entries of that list.
const MOST_NOT_HERE: usize = 15;
/// Programs whose names begin a command where it stands indented; behind a fence everything is one.
const PROGRAMS: [&str; 18] = [
    "portcullis",
    "./target/dist/portcullis",
    "cargo",
    "jq",
    "curl",
    "printf",
    "docker",
    "kubectl",
    "helm",
    "install",
    "promtool",
    "openssl",
    "git",
    "cd",
    "systemctl",
    "python3",
    "deploy/image/stage",
    "tests/run",
];
/// Commands that end with another code than 0: how they begin, and with which.
const CODES: [(&str, &[i32]); 7] = [
    // A folder of one tool says little.
    ("portcullis eval", &[0, 5]),
    ("portcullis policy explain", &[5]),
    ("portcullis policy lint", &[0, 6]),
    // Nothing is found in what the servers here offer.
    ("portcullis pin approve --yes handbook/", &[1]),
    // There is a configuration already, whose servers may be another's.
    ("portcullis init", &[1]),
    ("portcullis doctor", &[0, 1]),
    // The token is nobody's.
    ("portcullis token inspect", &[1, 5, 7]),
];
/// Commands that go on until they are stopped, and what they say by then.
const GO_ON: [(&str, &str); 2] =
    [("portcullis run", "listens on"), ("portcullis audit tail -f", " ")];
/// What asks a gateway that runs.
const ASKS: [&str; 5] = [
    "curl ",
    "portcullis selftest",
    "portcullis revoke",
    "portcullis revocations",
    "portcullis approvals",
];

/// Every page, by its path in the repository.
fn pages() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("docs"), PathBuf::from("deploy")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    let above = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name());
    let above = above.filter_map(|name| name.into_string().ok());
    found.extend(above.filter(|name| name.ends_with(".md")));
    found.sort();
    assert!(found.len() > 40, "{found:?}");
    found
}

fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap()
}

/// A part of a page.
#[derive(Debug)]
enum Part<'a> {
    /// A line outside of fences.
    Line(&'a str),
    /// A line behind a fence with this info string.
    Fenced(&'a str, &'a str),
    /// The end of what was behind a fence.
    End,
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let (mut parts, mut fence) = (Vec::new(), None);
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), fence) {
            (Some(info), None) => fence = Some(info.trim()),
            (Some(_), Some(_)) => {
                fence = None;
                parts.push(Part::End);
            }
            (None, Some(info)) => parts.push(Part::Fenced(info, line)),
            (None, None) => parts.push(Part::Line(line)),
        }
    }
    assert_eq!(fence, None, "a fence is not closed");
    parts
}

/// The commands of a page, in their order, with continued lines put together.
fn commands(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for part in parts(text) {
        let goes_on = found.last().is_some_and(|last| last.ends_with('\\'));
        let line = match part {
            Part::Fenced("sh", line) => Some(line),
            Part::Fenced("console", line) => line.strip_prefix("$ "),
            Part::Line(line) => line.strip_prefix("    ").filter(|line| {
                let first = line.split(' ').next().unwrap_or_default();
                goes_on || PROGRAMS.contains(&first) || first.starts_with("tests/")
            }),
            Part::Fenced(..) | Part::End => None,
        };
        let Some(line) = line.map(str::trim).filter(|line| !line.is_empty()) else { continue };
        match found.last_mut().filter(|_| goes_on) {
            Some(last) => {
                last.pop();
                last.push_str(line);
            }
            None => found.push(line.to_owned()),
        }
    }
    found
}

/// A folder with everything that the commands of a page name.
struct Desk {
    folder: Folder,
    _servers: [Server; 2],
}

/// The configuration that stands for that of the reader.
fn configuration(servers: &[Server; 2]) -> String {
    let [tickets, files] = servers.each_ref().map(Server::url);
    format!(
        "apiVersion: portcullis.dev/v1
listeners:
  - {{name: main, address: '127.0.0.1:0', authentication: [apiKey]}}
ops: {{address: '127.0.0.1:0', token: {{fromFile: ops-token}}}}
revocations: {{file: revoked.yaml}}
selftest: {{ready: false}}
identity:
  apiKeys: [{{name: ana-laptop, principal: ana, groups: [developers], sha256: {HASH}}}]
servers:
  - {{name: tickets, url: '{tickets}'}}
  - {{name: files, url: '{files}'}}
  - {{name: crm-eu, url: '{tickets}'}}
routes: [{{path: /tickets, servers: [tickets]}}, {{path: /files, servers: [files]}}, {{path: /crm, servers: [crm-eu]}}]
policy:
  contact: platform-security@example.com
  rules:
    - {{id: developers-read, effect: allow, principals: ['group:developers'], servers: ['*'], tools: ['get_*', 'list_*', 'read_*']}}
  constraints:
    - {{servers: [files], tools: ['*'], argument: /path, type: path, within: [/srv/shared]}}
audit:
  checkpoints: {{file: checkpoints}}
  sinks: [{{name: file, file: audit.jsonl}}]
"
    )
}

impl Desk {
    fn new() -> Self {
        let servers = [
            Server::echo(Era::Modern, &["get_ticket", "close_ticket"]),
            Server::echo(Era::Modern, &["list_directory", "read_file", "write_file"]),
        ];
        let desk = Self { folder: Folder::new(), _servers: servers };
        let put = |name: &str, text: &str| fs::write(desk.at(name), text).unwrap();
        let yaml = configuration(&desk._servers);
        for name in ["portcullis.yaml", "new.yaml", "running.yaml"] {
            put(name, &yaml);
        }
        put("revoked.yaml", "{}\n");
        put("token.txt", "nobodys\n");
        put("keys.json", "{\"keys\": []}\n");
        put("ops-token", TOKEN);
        put(
            ".mcp.json",
            r#"{"mcpServers": {"x": {"type": "http", "url": "https://mcp.example.com/mcp"}}}"#,
        );
        let policy = read("docs/policy.md");
        let (_, cases) = policy.split_once("```yaml\n# portcullis.test.yaml\n").unwrap();
        put("portcullis.test.yaml", cases.split("```").next().unwrap());
        let tool = tool("close_ticket");
        fs::create_dir(desk.at("tools")).unwrap();
        put("tools/close_ticket.schema.json", &tool.to_string());
        put("tools/close_ticket.examples.jsonl", "{\"query\": \"close the ticket\"}\n");
        put("tools/close_ticket.policy.yaml", "server: tickets\ntool: close_ticket\n");
        fs::create_dir(desk.at("bin")).unwrap();
        symlink(binary(), desk.at("bin/portcullis")).unwrap();
        desk
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command as a shell of the reader runs it.
    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        let path = std::env::var("PATH").unwrap_or_default();
        command.args(["-c", line]).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("PATH", format!("{}:{path}", self.at("bin").display()));
        command.env("TOKEN", TOKEN).env("HOME", self.folder.path());
        command
    }

    fn done(&self, line: &str) -> Output {
        self.shell(line).output().unwrap()
    }

    /// Approves what is offered, and lets a gateway record a call, a denial and a stranger.
    fn lived_in(&self) {
        for line in
            ["portcullis pin -c portcullis.yaml", "portcullis pin approve --yes -c portcullis.yaml"]
        {
            let output = self.done(line);
            assert!(output.status.success(), "{line}: {}", printed(&output));
        }
        fs::copy(self.at("portcullis.lock"), self.at("approved.lock")).unwrap();
        let mut gateway = self.running();
        for era in ERAS {
            let ana = Client::connect(gateway.address, "/tickets", era, Some(ANA));
            assert!(ana.call("get_ticket", &json!({})).json()["result"].is_object());
            assert!(ana.call("close_ticket", &json!({})).json()["error"].is_object());
        }
        let stranger = Client::silent(gateway.address, "/tickets", Era::Modern, &[]);
        assert_eq!(stranger.ask("tools/list", json!({})).status, 401);
        gateway.terminate();
        eventually("the end of the gateway", || gateway.ended());
    }

    /// A gateway of the configuration, which its operator's verbs find.
    fn running(&self) -> Gateway {
        let mut command = Command::new(binary());
        command.args(["run", "-c"]).arg(self.at("running.yaml"));
        let gateway = Gateway::spawn(command, Folder::new(), self.at("audit.jsonl"));
        let ops = gateway.ops.unwrap().to_string();
        let here = |text: String| {
            text.replace("ops: {address: '127.0.0.1:0'", &format!("ops: {{address: '{ops}'"))
        };
        let yaml = fs::read_to_string(self.at("running.yaml")).unwrap();
        fs::write(self.at("portcullis.yaml"), here(yaml)).unwrap();
        gateway
    }

    /// Starts a command that goes on, waits for what it says, and stops it.
    fn begun(&self, line: &str, says: &str) {
        let log = self.at("said.log");
        let out = File::create(&log).unwrap();
        let mut command = self.shell(&format!("exec {line}"));
        command.stdout(out.try_clone().unwrap()).stderr(out);
        let mut child = command.spawn().unwrap();
        eventually(line, || {
            let said = fs::read_to_string(&log).unwrap();
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "{line}: {said}");
            said.contains(says).then_some(())
        });
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        eventually("its end", || child.try_wait().unwrap());
    }
}

/// A command with what is here in the place of what is the reader's.
fn here(line: &str, ops: &str) -> String {
    [
        ("./target/dist/portcullis", "portcullis"),
        ("import --write portcullis.yaml", "import --write imported.yaml"),
        ("/secrets/ops", "ops-token"),
        ("/var/log/portcullis/audit.jsonl", "audit.jsonl"),
        ("/etc/portcullis/credentials/audit-key", "audit-key"),
        ("/etc/portcullis/credentials/ops-token", "ops-token"),
        ("/etc/portcullis/portcullis.yaml", "portcullis.yaml"),
        ("127.0.0.1:9901", ops),
        ("HOST:9901", ops),
        ("SERVER", "tickets"),
        // Nobody is there who could be asked about each definition.
        ("pin approve", "pin approve --yes"),
        ("corp/mallory", "ana"),
    ]
    .iter()
    .fold(line.to_owned(), |line, (from, to)| line.replace(from, to))
}

/// Runs the commands of one page one after the other; says how many.
fn run_page(page: &str, lines: &[String]) -> usize {
    let desk = Desk::new();
    desk.lived_in();
    if lines.iter().any(|line| line.contains("TOOLS.jsonl")) {
        let tool = tool("close_ticket");
        let row = json!({ "tool_id": "tickets.close_ticket", "server": "tickets", "tool": tool });
        fs::write(desk.at("TOOLS.jsonl"), format!("{row}\n")).unwrap();
        let query = json!({ "id": 1, "query": "close the ticket" });
        fs::write(desk.at("QUERIES.jsonl"), format!("{query}\n")).unwrap();
    }
    let proposes = |line: &String| {
        let line = line.split(" #").next().unwrap().trim();
        line == "portcullis pin" || line.starts_with("portcullis pin -c")
    };
    if lines.iter().any(proposes) {
        // What is shown begins with nothing approved.
        fs::remove_file(desk.at("portcullis.lock")).unwrap();
    }
    let asks = |line: &String| ASKS.iter().any(|first| line.starts_with(first));
    let mut gateway: Option<Gateway> = None;
    for line in lines {
        // A page may start a gateway of its own before, which takes the same port.
        if gateway.is_none() && asks(line) {
            gateway = Some(desk.running());
        }
        let ops = gateway.as_ref().and_then(|gateway| gateway.ops).map(|ops| ops.to_string());
        let line = here(line, ops.as_deref().unwrap_or("127.0.0.1:9901"));
        // What comes behind is other programs', and may find nothing.
        let line = match line.starts_with("printf ") {
            true => &*line,
            false => line.split(" | ").next().unwrap(),
        };
        if let Some((_, says)) =
            GO_ON.iter().find(|(first, _)| line.starts_with(first) && !line.contains("--dry-run"))
        {
            desk.begun(line.split(" #").next().unwrap().trim(), says);
            continue;
        }
        let output = desk.done(line);
        let codes = CODES.iter().find(|(first, _)| line.starts_with(first));
        let codes = codes.map_or(&[0][..], |(_, codes)| codes);
        let is_good = output.status.code().is_some_and(|code| codes.contains(&code));
        assert!(is_good, "{page}: {line}: {:?}: {}", output.status.code(), printed(&output));
    }
    lines.len()
}

#[test]
fn every_command_that_is_shown_is_run() {
    let (mut count, mut passed_over) = (0, BTreeSet::new());
    // That page has a test of its own, which also compares what its commands print.
    for page in pages().into_iter().filter(|page| page != first_hour::PAGE) {
        let all = commands(&read(&page));
        let (not_here, lines): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|line| NOT_HERE.iter().any(|(first, _)| line.starts_with(first)));
        for line in not_here {
            let (first, _) = NOT_HERE.iter().find(|(first, _)| line.starts_with(first)).unwrap();
            passed_over.insert(*first);
        }
        if !lines.is_empty() {
            count += run_page(&page, &lines);
        }
    }
    assert!(count > 60, "{count}");
    let unused: Vec<_> =
        NOT_HERE.iter().filter(|(first, _)| !passed_over.contains(first)).collect();
    assert!(unused.is_empty(), "take these from the list, which only shrinks: {unused:?}");
    const { assert!(NOT_HERE.len() <= MOST_NOT_HERE, "the list only shrinks") };
}

#[test]
fn every_verb_and_option_that_is_named_exists() {
    let code = Regex::new("`portcullis ([a-z][^`]*)`").unwrap();
    let option = Regex::new("(?:^|[ \\[])(--[a-z][a-z-]*)").unwrap();
    let word = Regex::new("^[a-z][a-z-]*$").unwrap();
    let mut helps: BTreeMap<Vec<String>, String> = BTreeMap::new();
    let mut count = 0;
    for page in pages() {
        for part in parts(&read(&page)) {
            let Part::Line(line) = part else { continue };
            for found in code.captures_iter(line) {
                let words = found[1].split_whitespace().take_while(|one| word.is_match(one));
                let words: Vec<_> = words.map(str::to_owned).collect();
                let help = helps.entry(words.clone()).or_insert_with(|| {
                    let output =
                        Command::new(binary()).args(&words).arg("--help").output().unwrap();
                    assert!(output.status.success(), "{page}: {}: {}", &found[0], printed(&output));
                    printed(&output)
                });
                // What comes behind `--` is another program's.
                let own = found[1].split(" -- ").next().unwrap();
                for option in option.captures_iter(own) {
                    assert!(
                        help.contains(&option[1]),
                        "{page}: {}: there is no {}",
                        &found[0],
                        &option[1]
                    );
                }
                count += 1;
            }
        }
    }
    assert!(count > 60, "{count}");
}

/// Sections of a configuration by their keys.
fn sections(text: &str) -> BTreeMap<String, String> {
    let (mut found, mut key) = (BTreeMap::<String, String>::new(), String::new());
    for line in text.lines() {
        if let Some((first, _)) = line.split_once(':')
            && !first.is_empty()
            && first.bytes().all(|byte| byte.is_ascii_alphabetic())
        {
            first.clone_into(&mut key);
        }
        if !key.is_empty() {
            let section = found.entry(key.clone()).or_default();
            section.push_str(line);
            section.push('\n');
        }
    }
    found
}

/// What a part of a configuration is completed with: the least that there has to be beside it.
fn least(given: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    const SERVERS: [&str; 6] = ["tickets", "files", "crm-eu", "web", "mail", "git"];
    let name = Regex::new("(?m)^  - \\{?name: ([\\w-]+)").unwrap();
    let names: Vec<String> = match given.get("servers") {
        Some(servers) => name.captures_iter(servers).map(|found| found[1].to_owned()).collect(),
        None => SERVERS.map(str::to_owned).into(),
    };
    let each =
        |line: &dyn Fn(&str) -> String| names.iter().map(|name| line(name)).collect::<String>();
    let servers = each(&|name| format!("  - {{name: {name}, url: 'http://127.0.0.1:9/mcp'}}\n"));
    let routes = each(&|name| format!("  - {{path: /{name}, servers: [{name}]}}\n"));
    // Who issues tokens is asked when the gateway runs, so there is nobody where nothing names one.
    let issuers = if given.contains_key("limits") { ISSUERS } else { "" };
    BTreeMap::from([
        ("apiVersion".to_owned(), "apiVersion: portcullis.dev/v1\n".to_owned()),
        (
            "listeners".to_owned(),
            "listeners:\n  - {name: main, address: '127.0.0.1:0', authentication: [apiKey]}\n"
                .to_owned(),
        ),
        ("identity".to_owned(), format!("identity:\n{KEYS}{issuers}").replace("HASH", HASH)),
        ("servers".to_owned(), format!("servers:\n{servers}")),
        ("routes".to_owned(), format!("routes:\n{routes}")),
        ("policy".to_owned(), format!("policy:\n{RULES}")),
        ("audit".to_owned(), format!("audit:\n{SINKS}")),
    ])
}

/// Callers that parts of configurations name.
const KEYS: &str = "  apiKeys:
    - {name: ana, principal: ana, groups: [developers, staff, hr], scopes: ['tickets:read'], sha256: HASH}
    - {name: platform, principal: platform, sha256: '0000000000000000000000000000000000000000000000000000000000000001'}
";
const ISSUERS: &str = "  issuers:\n    - {name: corp, issuer: 'https://login.example.com'}\n";
const RULES: &str =
    "  rules:\n    - {id: base, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}\n";
const SINKS: &str = "  sinks:\n    - {name: file, file: audit.jsonl}\n";

/// A whole configuration of what is shown, which may be a part of one.
fn completed(shown: &str) -> String {
    // Items alone are rules.
    let shown = match shown.trim_start().starts_with("- {id:") {
        true => format!("policy:\n  rules:\n{shown}"),
        false => shown.to_owned(),
    };
    let mut given = sections(&shown);
    if given.contains_key("apiVersion") {
        return shown;
    }
    let mut whole = least(&given);
    // A section that is shown in part is completed, too.
    for (key, member, rest) in
        [("identity", "apiKeys:", KEYS), ("policy", "rules:", RULES), ("audit", "sinks:", SINKS)]
    {
        if let Some(section) = given.get_mut(key).filter(|section| !section.contains(member)) {
            section.push_str(&rest.replace("HASH", HASH));
        }
    }
    whole.extend(given);
    whole.into_values().collect()
}

/// The YAML that is shown on a page, whole block by whole block.
fn shown_yaml(page: &str) -> Vec<String> {
    let (mut found, mut block) = (Vec::new(), String::new());
    for part in parts(&read(page)) {
        match part {
            Part::Fenced("yaml", line) => {
                block.push_str(line);
                block.push('\n');
            }
            Part::End => found.extend((!block.is_empty()).then(|| std::mem::take(&mut block))),
            Part::Fenced(..) | Part::Line(_) => {}
        }
    }
    found
}

#[test]
fn every_configuration_that_is_shown_is_valid() {
    let pki = Pki::new("documents");
    let leaf = pki.issue(&Leaf::local());
    let mut count = 0;
    let elsewhere = |page: &str| page.starts_with("deploy/helm/") || page == first_hour::PAGE;
    for page in pages().iter().filter(|page| !elsewhere(page)) {
        for shown in shown_yaml(page) {
            let folder = Folder::new();
            fs::create_dir(folder.path().join("tool-registry")).unwrap();
            fs::write(folder.path().join("revoked.yaml"), "{}\n").unwrap();
            if shown.contains("\ntests:\n") || shown.contains("\nforbiddenArguments:") {
                // `guidance.rs` decides these cases, and `evaluating.rs` reads limits of evaluations.
                continue;
            }
            let text = [
                ("0f5b...", HASH),
                ("/tls/tls.crt", leaf.certificate.to_str().unwrap()),
                ("/tls/tls.key", leaf.key.to_str().unwrap()),
                ("zwA4…=", "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="),
                ("Yk93…=", "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="),
                ("/var/lib/portcullis/revoked.yaml", "revoked.yaml"),
            ]
            .iter()
            .fold(shown.clone(), |text, (from, to)| text.replace(from, to));
            let file = folder.path().join("gateway.yaml");
            fs::write(&file, completed(&text)).unwrap();
            let output = Command::new(binary())
                .args(["validate", "--elsewhere"])
                .arg(&file)
                .output()
                .unwrap();
            assert!(output.status.success(), "{page}:\n{shown}\n{}", printed(&output));
            count += 1;
        }
    }
    assert!(count >= 20, "{count}");
}

#[test]
fn the_sandbox_that_is_shown_lets_its_server_start() {
    let [shown] = &shown_yaml("docs/sandbox.md")[..] else { panic!("more than one example") };
    let (folder, opt, shared) = (Folder::new(), Folder::new(), Folder::new());
    fs::create_dir(opt.path().join("bin")).unwrap();
    // As an installed server is: nothing else of where it was built is opened.
    let installed = opt.path().join("bin/files-server");
    fs::hard_link(binary(), &installed)
        .or_else(|_| fs::copy(binary(), &installed).map(|_| ()))
        .unwrap();
    let text = shown
        .replace("/opt/mcp", opt.path().to_str().unwrap())
        .replace("args: [/srv/shared]", "args: [canary]")
        .replace("/srv/shared", shared.path().to_str().unwrap());
    assert!(text.contains("mode: required") && text.contains("network: none"), "{text}");
    let file = folder.path().join("gateway.yaml");
    fs::write(&file, format!("pins: {{mode: 'off'}}\n{}", completed(&text))).unwrap();
    let mut command = Command::new(binary());
    command.args(["run", "-c"]).arg(&file);
    let gateway =
        Gateway::spawn_without_ops(command, Folder::new(), folder.path().join("audit.jsonl"));
    for era in ERAS {
        let client = Client::connect(gateway.address, "/files", era, Some(ANA));
        let answer = client.call("echo", &json!({ "text": "x" })).json();
        assert_eq!(answer["result"]["content"][0]["text"], "x", "{era:?}: {answer}");
    }
}

/// What GitHub makes of a heading.
fn anchor(heading: &str) -> String {
    let link = Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
    let text = link.replace_all(heading, "$1").trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The anchors of a page, each of which there is once.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for part in parts(&read(page)) {
        let Part::Line(line) = part else { continue };
        let text = line.trim_start_matches('#');
        if text.len() < line.len() && text.starts_with(' ') {
            assert!(found.insert(anchor(text)), "{page}: two headings `{}`", text.trim());
        }
    }
    found
}

#[test]
fn every_link_leads_somewhere() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let code = Regex::new("`[^`]*`").unwrap();
    let mut count = 0;
    for page in pages() {
        anchors(&page);
        for part in parts(&read(&page)) {
            let Part::Line(line) = part else { continue };
            for found in link.captures_iter(&code.replace_all(line, "")) {
                let target = &found[1];
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
                let beside = Path::new(&page).parent().unwrap();
                let to = if path.is_empty() { PathBuf::from(&page) } else { beside.join(path) };
                assert!(root().join(&to).exists(), "{page}: `{target}` leads nowhere");
                let is_page = to.extension().is_some_and(|end| end == "md");
                if is_page && !fragment.is_empty() {
                    let known = anchors(to.to_str().unwrap());
                    assert!(known.contains(fragment), "{page}: there is no heading `{target}`");
                }
                count += 1;
            }
        }
    }
    assert!(count > 150, "{count}");
}

#[test]
fn numbers_that_are_told_are_right_and_no_ellipsis_is_lost() {
    let alerts = fs::read_to_string(root().join("deploy/prometheus/alerts.yaml")).unwrap();
    let count = alerts.matches("- alert: ").count();
    let told = format!("| {count} alerts with tests and a runbook each, three dashboards |");
    assert!(read("deploy/README.md").contains(&told), "there are {count} alerts");
    let runbooks =
        pages().into_iter().filter(|page| page.starts_with("deploy/runbooks/Portcullis"));
    assert_eq!(runbooks.count(), count);
    let boards = fs::read_dir(root().join("deploy/grafana")).unwrap();
    let boards = boards.filter(|entry| {
        entry.as_ref().unwrap().path().extension().is_some_and(|ending| ending == "json")
    });
    assert_eq!(boards.count(), 3);
    // Two dots are a folder, or what was left of three.
    let lost = Regex::new(r"(?:[a-z]:|[\[{(])\.\.[`\]}),]").unwrap();
    for page in pages() {
        for (n, line) in read(&page).lines().enumerate() {
            assert!(!lost.is_match(line), "{page}:{}: {line}", n + 1);
        }
    }
}

#[test]
fn packages_that_are_shown_have_a_version_that_there_is() {
    // These were installed and run, `agents.rs` says how.
    let known = read("docs/agents.md");
    let pypi = Regex::new(r"`([a-z-]+)`(?: and `([a-z-]+)`)? ([0-9][0-9.]*[0-9])").unwrap();
    let there = |name: &str, version: &str| {
        pypi.captures_iter(&known).any(|found| {
            [found.get(1), found.get(2)].iter().flatten().any(|one| one.as_str() == name)
                && &found[3] == version
        })
    };
    let shown = Regex::new(r"([a-z][a-z-]*)==([0-9][0-9.]*[0-9])").unwrap();
    let mut count = 0;
    let files = ["deploy/Dockerfile.stdio".to_owned()].into_iter().chain(pages());
    for page in files {
        for found in shown.captures_iter(&read(&page)) {
            assert!(there(&found[1], &found[2]), "{page}: {}: see docs/agents.md", &found[0]);
            count += 1;
        }
    }
    assert!(count > 0);
}

/// The sources below a folder of the repository.
fn sources(folder: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found.retain(|path| path.extension().is_some_and(|end| end == "rs"));
    found
}

#[test]
fn headings_that_messages_of_the_gateway_name_stand_on_their_pages() {
    let continued = Regex::new(r"\\\n\s*").unwrap();
    let named = Regex::new(r#"(docs/[a-z-]+\.md)`?, \\"([^\\"]+)\\""#).unwrap();
    let mut found = BTreeSet::new();
    let crates = [
        "gateway/src",
        "gateway/audit-log/src",
        "policy/src",
        "policy/detection/src",
        "policy/core/src",
        "policy/json/src",
    ];
    for path in crates.into_iter().flat_map(sources) {
        let text = fs::read_to_string(&path).unwrap();
        for name in named.captures_iter(&continued.replace_all(&text, "")) {
            let (page, heading) = (name[1].to_owned(), name[2].to_owned());
            let known = anchors(&page);
            assert!(known.contains(&anchor(&heading)), "{}: {page}: {heading}", path.display());
            found.insert((page, heading));
        }
    }
    // What is logged of a worker that has stalled says where to read on.
    let stalled = ("docs/operations.md".to_owned(), "Alive and ready".to_owned());
    assert!(found.contains(&stalled), "{found:?}");
}

/// The arguments of a macro, from behind its parenthesis to the closing one.
fn arguments(text: &str) -> &str {
    let (mut depth, mut quoted, mut escaped) = (1, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return text.get(..at).unwrap();
        }
    }
    panic!("no end: {text}");
}

#[test]
fn every_log_event_has_a_constant_message_and_a_name_that_the_page_lists() {
    let logs = Regex::new(r"tracing::(error|warn|info|debug)!\(").unwrap();
    let named = Regex::new(r#"\bevent = "([a-z_]+(?:\.[a-z_]+)+)""#).unwrap();
    let message = Regex::new(r#""((?:[^"\\]|\\(?s:.))*)",?\s*$"#).unwrap();
    let mut events: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in sources("gateway/src") {
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        for found in logs.captures_iter(text) {
            let (whole, level) = (found.get(0).unwrap(), &found[1]);
            let event = arguments(text.get(whole.end()..).unwrap());
            let said = message.captures(event);
            let said = said.unwrap_or_else(|| panic!("{}: {event}", path.display()));
            assert!(!said[1].contains('{'), "{}: not constant: {event}", path.display());
            match named.captures(event) {
                Some(name) => {
                    events.entry(name[1].to_owned()).or_default().insert(level.to_owned());
                }
                None => assert_eq!(level, "debug", "{}: no name: {event}", path.display()),
            }
        }
    }
    let row = Regex::new(r"(?m)^\| `([a-z_]+\.[a-z_]+)` \| ([a-z ]+) \| [^|]+ \|$").unwrap();
    let page = read("docs/observability.md");
    let listed: BTreeMap<String, BTreeSet<String>> = row
        .captures_iter(&page)
        .map(|row| (row[1].to_owned(), row[2].split(" or ").map(str::to_owned).collect()))
        .collect();
    assert_eq!(listed, events);
}
