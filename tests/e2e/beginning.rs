//! The first steps: a configuration to begin with, the file that is read where none is named, and what a doctor says.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use e2e::client::Client;
use e2e::gateway::{Config, Folder, Gateway, binary, printed, root};
use e2e::issuer::{Issuer, Key};
use e2e::pki::{Leaf, Pki};
use e2e::server::{Server, answer};
use e2e::tls::Front;
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

use crate::certificates::tls;

fn portcullis(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(arguments).current_dir(folder).env("USER", "ana");
    command.output().unwrap()
}

/// Runs a line that was printed, as a shell would.
fn pasted(folder: &Path, line: &str) -> Output {
    let programs = binary().parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(folder).env("PATH", path).env("USER", "ana");
    shell.output().unwrap()
}

/// The same configuration on ports that are free.
fn on_free_ports(file: &Path) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains("127.0.0.1:8080") && text.contains("127.0.0.1:9901"), "{text}");
    fs::write(
        file,
        text.replace("address: 127.0.0.1:8080", "address: 127.0.0.1:0")
            .replace("127.0.0.1:9901", "127.0.0.1:0"),
    )
    .unwrap();
}

#[test]
fn what_init_writes_serves_after_the_commands_that_it_prints() {
    let folder = Folder::new();
    let program = binary().display().to_string();
    let made = portcullis(
        folder.path(),
        &["init", "--server", "small", "--command", &program, "--", "canary"],
    );
    let told = printed(&made);
    assert!(made.status.success(), "{told}");
    let key = told.split_whitespace().find(|word| word.starts_with("pcl_")).unwrap().to_owned();
    let file = folder.path().join("portcullis.yaml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("pcl_") && text.contains("# "), "{text}");
    let valid = portcullis(folder.path(), &["validate"]);
    assert!(valid.status.success(), "{}", printed(&valid));
    assert!(
        told.contains("`portcullis export --client CLIENT` prints what a client has to be told")
    );
    let desktop = portcullis(folder.path(), &["export", "--client", "claude-desktop"]);
    assert!(desktop.status.success() && printed(&desktop).contains("/small"), "{told}");
    let next: Vec<_> = told.lines().filter(|line| line.starts_with("  portcullis ")).collect();
    let [approve, run] = &next[..] else { panic!("{told}") };
    // Nobody is there who could be asked about each definition.
    let approved = pasted(folder.path(), &approve.replace("pin approve", "pin approve --yes"));
    assert!(approved.status.success(), "{}", printed(&approved));
    assert_eq!(run.trim(), "portcullis run");
    on_free_ports(&file);
    let mut command = Command::new(binary());
    command.arg("run").current_dir(folder.path());
    let gateway = Gateway::spawn(command, Folder::new(), folder.path().join("audit.jsonl"));
    gateway.says("reading `portcullis.yaml` in this folder");
    for era in ERAS {
        let client = Client::connect(gateway.address, "/small", era, Some(&key));
        assert!(client.tools().contains(&"add".to_owned()), "{:?}", client.tools());
        let answer = client.call("add", &json!({ "a": 2, "b": 3 })).json();
        assert_eq!(answer["result"]["content"][0]["text"], "5", "{answer}");
    }
    // It is not written over, and nothing is drawn for it.
    let before = fs::read_to_string(&file).unwrap();
    let again = portcullis(
        folder.path(),
        &["init", "--server", "other", "--url", "https://example.com/mcp"],
    );
    assert_eq!(again.status.code(), Some(1));
    assert!(
        printed(&again).contains("`portcullis.yaml` is there already")
            && !printed(&again).contains("pcl_")
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
}

/// A server with one thing of each kind that callers can use.
fn of_each_kind(era: Era) -> Server {
    let offers = json!({
        "tools": [e2e::server::tool("read")],
        "prompts": [{ "name": "summarise", "description": "Asks for a summary." }],
        "resources": [{ "uri": "file:///srv/shared/notes.txt", "name": "notes" }],
    });
    let done = json!({ "resultType": "complete", "content": [], "messages": [], "contents": [] });
    Server::offering(era, offers, move |_| done.clone())
}

#[test]
fn what_init_writes_for_one_server_grants_its_prompts_and_resources_as_well() {
    for era in ERAS {
        let (folder, server) = (Folder::new(), of_each_kind(era));
        let made = portcullis(folder.path(), &["init", "--server", "up", "--url", &server.url()]);
        let told = printed(&made);
        assert!(made.status.success(), "{told}");
        let key = told.split_whitespace().find(|word| word.starts_with("pcl_")).unwrap();
        let approved = pasted(folder.path(), "portcullis pin && portcullis pin approve --yes");
        assert!(approved.status.success(), "{}", printed(&approved));
        assert!(!printed(&approved).contains("granted to nobody"), "{}", printed(&approved));
        on_free_ports(&folder.path().join("portcullis.yaml"));
        let mut command = Command::new(binary());
        command.arg("run").current_dir(folder.path());
        let gateway = Gateway::spawn(command, Folder::new(), folder.path().join("audit.jsonl"));
        for era in ERAS {
            let client = Client::connect(gateway.address, "/up", era, Some(key));
            let listed = |method: &str, list: &str, key: &str| {
                client.ask(method, json!({})).listed(list, key)
            };
            assert_eq!(listed("tools/list", "tools", "name"), ["read"]);
            assert_eq!(listed("prompts/list", "prompts", "name"), ["summarise"]);
            let uris = listed("resources/list", "resources", "uri");
            assert_eq!(uris, ["file:///srv/shared/notes.txt"]);
        }
    }
}

#[test]
fn what_is_approved_and_granted_by_no_rule_is_said() {
    for era in ERAS {
        let (folder, server) = (Folder::new(), of_each_kind(era));
        let mut config = Config::of(&server.url());
        config.pins = format!("{{file: '{}'}}", folder.path().join("lock").display());
        config.verb(&["pin"]);
        let prompts = "1 prompt approved and granted to nobody by any rule: `summarise`";
        let resources =
            "1 resource approved and granted to nobody by any rule: `file:///srv/shared/notes.txt`";
        let approved = printed(&config.verb(&["pin", "approve", "--yes", "--by", "ana"]));
        for line in [prompts, resources, "write `prompts: ['*']` or their names"] {
            assert!(approved.contains(line), "{line}\n{approved}");
        }
        let lint = config.tried(&["policy", "lint"]);
        assert_eq!(lint.status.code(), Some(6));
        for line in [prompts, resources] {
            let line = format!("ungranted server `up`: {line}");
            assert!(printed(&lint).contains(&line), "{line}\n{}", printed(&lint));
        }
        let quiet = config.tried(&["policy", "lint", "--allow", "ungranted", "--allow", "broad"]);
        assert!(quiet.status.success(), "{}", printed(&quiet));
        let (code, looks) = looked(&config, &[]);
        assert_eq!(code, Some(0), "{looks:?}");
        for said in [prompts, resources] {
            let is = |(check, mark, words): &&(String, String, String)| {
                check == "policy up" && mark == "warn" && words.contains(said)
            };
            assert!(looks.iter().any(|look| is(&look)), "{said}: {looks:?}");
        }
        // With a rule for them there is nothing to say.
        let rules = "rules:\n- {id: open, effect: allow, principals: ['group:dev'], servers: [up], \
                     tools: [read], prompts: ['*'], resources: ['file:///srv/*']}";
        let lint = config.policy(rules).tried(&["policy", "lint"]);
        assert!(!printed(&lint).contains("ungranted"), "{}", printed(&lint));
    }
}

#[test]
fn what_a_rule_forbids_on_purpose_is_not_advised_to_be_granted() {
    for era in ERAS {
        let (folder, server) = (Folder::new(), of_each_kind(era));
        let mut config = Config::of(&server.url());
        config.pins = format!("{{file: '{}'}}", folder.path().join("lock").display());
        let config = config.policy(
            "rules:\n- {id: reading, effect: allow, principals: ['group:dev'], servers: [up], tools: [other], \
             prompts: ['*'], resources: ['file:///srv/*']}\n- {id: no-reading, effect: forbid, principals: \
             ['group:dev'], servers: [up], tools: [read]}",
        );
        config.verb(&["pin"]);
        let forbidden = "1 tool approved and forbidden by the rule `no-reading`: `read`";
        let approved = printed(&config.verb(&["pin", "approve", "--yes", "--by", "ana"]));
        assert!(approved.contains(&format!("note: `up`: {forbidden}\n")), "{approved}");
        let lint = printed(&config.tried(&["policy", "lint"]));
        assert!(!lint.contains("ungranted"), "{lint}");
        let (_, looks) = looked(&config, &[]);
        let is = |(check, mark, words): &(String, String, String)| {
            check == "policy up" && mark == "ok" && words.contains(forbidden)
        };
        assert!(looks.iter().any(is), "{looks:?}");
        for said in [approved, lint, format!("{looks:?}")] {
            assert!(!said.contains("to show them, write `tools"), "{said}");
        }
    }
}

#[test]
fn what_init_writes_can_be_revoked_while_it_runs() {
    let folder = Folder::new();
    let program = binary().display().to_string();
    // What makes no configuration leaves nothing.
    let clear =
        portcullis(folder.path(), &["init", "--server", "up", "--url", "http://example.com/mcp"]);
    assert_eq!(clear.status.code(), Some(3), "{}", printed(&clear));
    assert!(!folder.path().join("revoked.yaml").exists());
    let init = ["init", "--server", "small", "--command", &program, "--", "canary"];
    let made = portcullis(folder.path(), &init);
    let told = printed(&made);
    assert!(made.status.success(), "{told}");
    let key = told.split_whitespace().find(|word| word.starts_with("pcl_")).unwrap().to_owned();
    assert_eq!(fs::read_to_string(folder.path().join("revoked.yaml")).unwrap(), "{}\n");
    let approved = pasted(folder.path(), "portcullis pin && portcullis pin approve --yes --by ana");
    assert!(approved.status.success(), "{}", printed(&approved));
    on_free_ports(&folder.path().join("portcullis.yaml"));
    let mut command = Command::new(binary());
    command.arg("run").current_dir(folder.path());
    let gateway = Gateway::spawn(command, Folder::new(), folder.path().join("audit.jsonl"));
    for era in ERAS {
        let client = Client::connect(gateway.address, "/small", era, Some(&key));
        let call = || client.call("add", &json!({ "a": 2, "b": 3 })).json();
        assert_eq!(call()["result"]["content"][0]["text"], "5", "{era:?}");
        let revoked = portcullis(folder.path(), &["revoke", "--tool", "small/add"]);
        assert!(revoked.status.success(), "{}", printed(&revoked));
        eventually("the revocation", || call()["result"].is_null().then_some(()));
        let lifted = portcullis(folder.path(), &["revocations", "lift", "--tool", "small/add"]);
        assert!(lifted.status.success(), "{}", printed(&lifted));
        eventually("the end of it", || call()["result"].is_object().then_some(()));
    }
}

#[test]
fn what_cannot_be_revoked_yet_is_told_with_what_to_do() {
    let folder = Folder::new();
    let config = "apiVersion: portcullis.dev/v1\nlisteners: [{name: main, address: '127.0.0.1:0', authentication: [anonymous]}]\n\
                  servers: [{name: up, url: 'http://127.0.0.1:9/'}]\nroutes: [{path: /up, servers: [up]}]\n\
                  identity: {anonymous: {groups: [local]}}\npolicy: {rules: []}\naudit: {sinks: [{name: file, file: audit.jsonl}]}\n";
    fs::write(folder.path().join("portcullis.yaml"), config).unwrap();
    let refused = portcullis(folder.path(), &["revoke", "--server", "up"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = printed(&refused);
    for part in ["add `revocations: {file: revoked.yaml}`", "`portcullis pin revoke SERVER/TOOL`"] {
        assert!(said.contains(part), "{said}");
    }
    // With that it is revoked.
    let more = format!("{config}revocations: {{file: revoked.yaml}}\n");
    fs::write(folder.path().join("portcullis.yaml"), more).unwrap();
    fs::write(folder.path().join("revoked.yaml"), "{}").unwrap();
    let revoked = portcullis(folder.path(), &["revoke", "--server", "up"]);
    assert!(revoked.status.success(), "{}", printed(&revoked));
}

#[test]
fn where_the_environment_does_not_say_who_approves_it_is_said_before() {
    let program = binary().display().to_string();
    for (user, by) in [(None, " --by NAME"), (Some("ana"), "")] {
        let folder = Folder::new();
        let ran = |arguments: &[&str]| {
            let mut command = Command::new(binary());
            command.args(arguments).current_dir(folder.path()).env_remove("USER");
            printed(&command.envs(user.map(|user| ("USER", user))).output().unwrap())
        };
        let told = ran(&["init", "--server", "small", "--command", &program, "--", "canary"]);
        assert!(
            told.contains(&format!("portcullis pin && portcullis pin approve{by}\n")),
            "{told}"
        );
        let told = ran(&["pin"]);
        assert!(told.contains(&format!("read it, then `portcullis pin approve{by}`")), "{told}");
    }
}

#[test]
fn init_keeps_no_secret_and_says_how_servers_are_named() {
    let folder = Folder::new();
    let token = ["ghp_", "0123456789abcdefghijABCDEFGHIJ012345"].concat();
    for arguments in [
        &["--url", "https://ana:hunter2@example.com/mcp"][..],
        &["--url", "https://example.com/mcp?api_key=hunter2hunter2hunter2"],
        &["--command", "server", "--", "--key", &token],
        &["--command", "server", "--", "--token", "sk-abcdefghijklmnop1234567890"],
        &["--command", "server", "--", "-y", "foo@1.0.0", "--password", "hunter2supersecret"],
        &["--command", "server", "--", "--api-key", "7f3a9c1e5b8d2f4a6c0e", "/srv"],
    ] {
        let made = portcullis(folder.path(), &[&["init", "--server", "up"], arguments].concat());
        assert_eq!(made.status.code(), Some(1), "{arguments:?}");
        assert!(printed(&made).contains("a secret stands in what was given"), "{}", printed(&made));
        assert!(!folder.path().join("portcullis.yaml").exists());
    }
    let none = portcullis(folder.path(), &["init"]);
    assert!(
        !none.status.success() && printed(&none).contains("portcullis init --server"),
        "{}",
        printed(&none)
    );
    let clear =
        portcullis(folder.path(), &["init", "--server", "up", "--url", "http://example.com/mcp"]);
    assert_eq!(clear.status.code(), Some(3), "{}", printed(&clear));
    // What comes from a variable is named, and the hints name the file.
    let file = folder.path().join("own gateway.yaml").display().to_string();
    let made = portcullis(
        folder.path(),
        &[
            "init",
            "-c",
            &file,
            "--server",
            "up",
            "--url",
            "https://example.com/mcp",
            "--token-env",
            "UP_TOKEN",
        ],
    );
    assert!(made.status.success(), "{}", printed(&made));
    assert!(printed(&made).contains(&format!("portcullis run -c '{file}'")), "{}", printed(&made));
    let set = "Set `UP_TOKEN` to the token for `up`, without `Bearer `: the gateway writes that\n";
    assert!(printed(&made).contains(set), "{}", printed(&made));
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("credential: {header: {fromEnv: UP_TOKEN}}"), "{text}");
    assert!(portcullis(folder.path(), &["validate", "--elsewhere", "-c", &file]).status.success());
}

#[test]
fn init_warns_of_a_second_server_among_the_arguments_of_the_first() {
    let folder = Folder::new();
    for (config, argument, is_warned) in
        [("a.yaml", "--server", true), ("b.yaml", "--url=http://x", true), ("c.yaml", "-u", false)]
    {
        let arguments = [
            "init",
            "-c",
            config,
            "--server",
            "notes",
            "--command",
            "cat",
            "--",
            argument,
            "clock",
        ];
        let made = portcullis(folder.path(), &arguments);
        let told = printed(&made);
        assert!(made.status.success(), "{told}");
        let warning = format!(
            "warning: `{argument}` after `--` became an argument of the program of `notes`. `init` writes one server"
        );
        assert_eq!(told.contains(&warning), is_warned, "{told}");
    }
}

#[test]
fn init_says_which_variables_have_to_be_set() {
    let folder = Folder::new();
    let made = portcullis(
        folder.path(),
        &["init", "--server", "gh", "--command", "cat", "--env", "GH_TOKEN", "--env", "GH_HOST"],
    );
    assert!(made.status.success(), "{}", printed(&made));
    for name in ["GH_TOKEN", "GH_HOST"] {
        let set = format!("Set `{name}` for the program of `gh`\n");
        assert!(printed(&made).contains(&set), "{}", printed(&made));
    }
}

#[test]
fn init_and_doctor_say_that_a_server_cannot_write_in_the_folder_with_the_files_of_the_gateway() {
    let folder = Folder::new();
    let project = folder.path().canonicalize().unwrap();
    fs::create_dir_all(project.join("data")).unwrap();
    let servers = json!({ "mcpServers": {
        "whole": { "command": "cat", "args": [project] },
        "part": { "command": "cat", "args": [project.join("data")] } } });
    fs::write(project.join("mcp.json"), servers.to_string()).unwrap();
    let made = portcullis(&project, &["init", "--from", "mcp.json"]);
    let told = printed(&made);
    let sealed = |name: &str| format!("`{name}` is given the folder `{}`", project.display());
    let apart = format!("{}-portcullis", project.display());
    assert!(made.status.success() && told.contains(&sealed("whole")), "{told}");
    assert!(told.contains(&format!("mkdir {apart}")) && told.contains("`revoked.yaml`"), "{told}");
    assert!(!told.contains("`part` is given"), "{told}");
    let looked = printed(&portcullis(&project, &["doctor", "--timeout", "1s"]));
    assert!(looked.contains(&sealed("whole")) && looked.contains(&apart), "{looked}");
    assert!(!looked.contains("`part` is given"), "{looked}");
}

#[test]
fn init_and_doctor_say_that_a_program_lies_beside_the_configuration() {
    let folder = Folder::new();
    let note = "is in the folder of the configuration, where its program can create no files";
    for (config, script, is_noted) in [
        ("portcullis.yaml", "notes.py", true),
        ("portcullis.yaml", "own/notes.py", false),
        ("elsewhere/portcullis.yaml", "notes.py", false),
    ] {
        let place = folder.path().join(config.replace(['/', '.'], "-") + &script.replace('/', "-"));
        fs::create_dir_all(place.join("own")).unwrap();
        fs::create_dir_all(place.join("elsewhere")).unwrap();
        fs::write(place.join(script), "").unwrap();
        let arguments =
            ["init", "-c", config, "--server", "notes", "--command", "cat", "--", script];
        let told = printed(&portcullis(&place, &arguments));
        assert!(told.contains("written: "), "{told}");
        assert_eq!(
            told.contains(&format!("note: `{script}` of the server `notes` {note}")),
            is_noted,
            "{told}"
        );
        let looked = printed(&portcullis(&place, &["doctor", "-c", config, "--timeout", "1s"]));
        assert_eq!(looked.contains(note), is_noted, "{looked}");
    }
}

#[test]
fn init_takes_the_servers_of_a_client() {
    let folder = Folder::new();
    let client = folder.path().join("mcp.json");
    let secret = "sk-live-4f9b2c7d1e8a6053b7c2";
    let servers = json!({ "mcpServers": {
        "files": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "/srv"],
                   "env": { "API_TOKEN": secret } },
        "remote": { "type": "http", "url": "https://tickets.example.com/mcp" } } });
    fs::write(&client, servers.to_string()).unwrap();
    let made = portcullis(folder.path(), &["init", "--from", "mcp.json"]);
    assert!(made.status.success() && !printed(&made).contains(secret), "{}", printed(&made));
    let text = fs::read_to_string(folder.path().join("portcullis.yaml")).unwrap();
    assert!(!text.contains(secret) && !text.contains("anonymous"), "{text}");
    assert!(text.contains("authentication: [apiKey]") && text.contains("path: /remote"), "{text}");
    assert!(portcullis(folder.path(), &["validate", "--elsewhere"]).status.success());
}

#[test]
fn init_writes_the_servers_of_a_client_whose_variables_are_not_set_and_says_which() {
    let folder = Folder::new();
    let servers = json!({ "mcpServers": {
        "small": { "command": "cat", "args": ["canary", "--owner", "Zx9QmLpT4vWn"] },
        "remote": { "type": "http", "url": "https://tickets.example.com/mcp?k=Zx9QmLpT4vWn" } } });
    fs::write(folder.path().join("mcp.json"), servers.to_string()).unwrap();
    let made = portcullis(folder.path(), &["init", "--from", "mcp.json"]);
    let told = printed(&made);
    assert!(made.status.success() && told.contains("pcl_"), "{told}");
    for variable in ["SMALL_OWNER", "REMOTE_K"] {
        assert!(told.contains(&format!("set `{variable}` to ")), "{told}");
        let missing = format!("the environment variable `{variable}` is not set");
        assert!(told.contains(&missing), "{told}");
    }
    // The place that is told can be looked at.
    let text = fs::read_to_string(folder.path().join("portcullis.yaml")).unwrap();
    assert!(text.contains("${SMALL_OWNER}") && text.contains("/mcp?k=${REMOTE_K}"), "{text}");
    assert_eq!(portcullis(folder.path(), &["validate"]).status.code(), Some(3));
    let mut valid = Command::new(binary());
    valid.arg("validate").current_dir(folder.path());
    valid.envs([("SMALL_OWNER", "acme"), ("REMOTE_K", "a-key")]);
    let valid = valid.output().unwrap();
    assert!(valid.status.success(), "{}", printed(&valid));
}

#[test]
fn where_there_is_no_configuration_it_is_said_how_one_is_made() {
    let folder = Folder::new();
    for arguments in [
        &["validate"][..],
        &["pin"],
        &["pin", "approve", "--yes"],
        &["scan"],
        &["config", "show"],
        &["policy", "lint"],
        &["stdio"],
        &["doctor"],
    ] {
        let text = printed(&portcullis(folder.path(), arguments));
        let help = "could not read `portcullis.yaml`: No such file or directory (os error 2); `portcullis init` writes one";
        assert!(text.contains(help), "{arguments:?}: {text}");
        let named = [arguments, &["-c", "own.yaml"]].concat();
        let text = printed(&portcullis(folder.path(), &named));
        assert!(text.contains("could not read `own.yaml`"), "{named:?}: {text}");
        assert!(text.contains("`portcullis init -c own.yaml` writes one"), "{named:?}: {text}");
    }
}

#[test]
fn what_an_operator_needs_to_ask_a_gateway_is_said() {
    let folder = Folder::new();
    let program = binary().display().to_string();
    let init = ["init", "--server", "up", "--command", &program, "--", "canary"];
    let made = portcullis(folder.path(), &init);
    assert!(made.status.success(), "{}", printed(&made));
    let file = folder.path().join("portcullis.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let token = "  # token: {fromEnv: OPS_TOKEN}\n";
    assert!(text.contains(token), "{text}");
    assert!(
        text.contains("if this file has a section\n  # `selftest: {}`, `portcullis selftest`"),
        "{text}"
    );
    for verb in [&["config", "applied"][..], &["selftest"]] {
        let text = printed(&portcullis(folder.path(), verb));
        assert!(text.contains("add `token: {fromEnv: OPS_TOKEN}` under `ops`"), "{verb:?}: {text}");
    }
    // With what it says, the gateway answers.
    fs::write(&file, text.replace("  # token:", "  token:")).unwrap();
    on_free_ports(&file);
    let mut command = Command::new(binary());
    command.arg("run").current_dir(folder.path()).env("OPS_TOKEN", "a-token-of-an-operator");
    let audit = folder.path().join("audit.jsonl");
    let gateway = Gateway::spawn(command, Folder::new(), audit);
    let mut command = Command::new(binary());
    let ops = gateway.ops.unwrap().to_string();
    command.args(["config", "applied", "--ops", &ops]).current_dir(folder.path());
    let output = command.env("OPS_TOKEN", "a-token-of-an-operator").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    assert!(printed(&output).contains("this file is in force"), "{}", printed(&output));
    // The token can come from where `portcullis revoke` takes it as well.
    fs::write(folder.path().join("token"), "a-token-of-an-operator\n").unwrap();
    for (more, variable, code) in [
        (vec!["--token-file", "token"], None, 0),
        (vec![], Some("a-token-of-an-operator"), 0),
        (vec![], Some("another-token"), 1),
        (vec!["--token-file", "token"], Some("another-token"), 0),
    ] {
        let mut command = Command::new(binary());
        command.args(["config", "applied", "--ops", &ops]).args(&more).current_dir(folder.path());
        command.envs(variable.map(|token| ("PORTCULLIS_OPS_TOKEN", token)));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{more:?}: {}", printed(&output));
    }
}

#[test]
fn run_says_which_configuration_it_reads() {
    let folder = Folder::new();
    let mut command = Command::new(binary());
    command
        .arg("run")
        .current_dir(folder.path())
        .envs([("LISTEN", "127.0.0.1:0"), ("OPS", "127.0.0.1:0")]);
    let gateway = Gateway::spawn(command, Folder::new(), "/nowhere".into());
    gateway.says("there is no `portcullis.yaml` in this folder, so this is the quickstart");
    gateway.says("`LISTEN=127.0.0.1:8081 OPS=127.0.0.1:9902 portcullis run` takes other ports");
    // Nothing of the quickstart is shown or begun anew instead of one's own.
    for option in ["--dry-run", "--new-log"] {
        let output = portcullis(folder.path(), &["run", option]);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            printed(&output).contains("there is no `portcullis.yaml` in this folder"),
            "{}",
            printed(&output)
        );
    }
    // One that cannot be read is no reason to start another.
    std::os::unix::fs::symlink("/no/such/file", folder.path().join("portcullis.yaml")).unwrap();
    let output = portcullis(folder.path(), &["run"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(printed(&output).contains("could not read `portcullis.yaml`"), "{}", printed(&output));
}

#[test]
fn every_verb_reads_the_usual_file_and_takes_another_by_c() {
    let folder = Folder::new();
    let program = binary().display().to_string();
    let init = ["--server", "up", "--command", &program, "--", "canary"];
    for file in [None, Some("other.yaml")] {
        let named = file.map(|file| vec!["-c", file]).unwrap_or_default();
        let made = portcullis(folder.path(), &[&["init"], &named[..], &init].concat());
        assert!(made.status.success(), "{}", printed(&made));
        let file = file.unwrap_or("portcullis.yaml");
        on_free_ports(&folder.path().join(file));
        let text = fs::read_to_string(folder.path().join(file)).unwrap();
        let own = format!("pins: {{file: {file}.lock}}\naudit:\n");
        fs::write(folder.path().join(file), text.replace("audit:\n", &own)).unwrap();
        let lock = portcullis(folder.path(), &[&["validate"], &named[..]].concat());
        let hint =
            format!("`portcullis pin{}`", if named.is_empty() { "" } else { " -c other.yaml" });
        assert!(
            lock.status.success() && printed(&lock).contains(&hint),
            "{hint}: {}",
            printed(&lock)
        );
        for verb in [
            &["validate"][..],
            &["config", "show"],
            &["export", "--client", "cursor"],
            &["scan", "--fail-on", "none"],
            &["pin"],
            &["pin", "list"],
            &["pin", "approve", "--yes"],
            &["pin", "verify"],
            &["policy", "lint", "--allow", "broad"],
            &["run", "--dry-run"],
            &["doctor"],
        ] {
            let output = portcullis(folder.path(), &[verb, &named[..]].concat());
            assert!(
                matches!(output.status.code(), Some(0 | 6)),
                "{verb:?} {named:?}: {}",
                printed(&output)
            );
        }
        let exec = [&["exec"], &named[..], &["--", "true"]].concat();
        let output = portcullis(folder.path(), &exec);
        assert!(output.status.success(), "{}", printed(&output));
    }
    let twice = portcullis(folder.path(), &["validate", "portcullis.yaml", "-c", "other.yaml"]);
    assert_eq!(twice.status.code(), Some(2));
}

/// The lines of a doctor for programs: what was looked at, how it is, and what is said of it.
fn looked(config: &Config, arguments: &[&str]) -> (Option<i32>, Vec<(String, String, String)>) {
    let output = config.tried(&[&["doctor", "--format", "json"], arguments].concat());
    #[expect(clippy::disallowed_methods, reason = "our own output")]
    let all: Vec<Value> =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", printed(&output)));
    let text = |look: &Value, key: &str| look[key].as_str().unwrap().to_owned();
    let line = |look: &Value| {
        let whole = format!("{} -> {}", text(look, "message"), text(look, "mend"));
        (text(look, "check"), text(look, "status"), whole)
    };
    (output.status.code(), all.iter().map(line).collect())
}

fn of<'a>(looks: &'a [(String, String, String)], thing: &str) -> (&'a str, &'a str) {
    let look = looks
        .iter()
        .find(|(check, ..)| check == thing)
        .unwrap_or_else(|| panic!("{thing}: {looks:?}"));
    (&look.1, &look.2)
}

#[test]
fn a_doctor_finds_what_is_well() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let folder = Folder::new();
        let config = Config::of(&server.url()).approved(&folder.path().join("lock"));
        let (code, looks) = looked(&config, &[]);
        assert_eq!(code, Some(0), "{looks:?}");
        let spoken = match era {
            Era::Modern => "2026-07-28",
            Era::Legacy => "2025-11-25 or before",
        };
        let (mark, words) = of(&looks, "server up");
        assert_eq!(mark, "ok");
        assert!(
            words.starts_with(&format!("reached; it speaks {spoken} and offers 1 definition")),
            "{words}"
        );
        for thing in ["configuration", "clock", "audit file", "listener main", "ops", "lockfile"] {
            assert_eq!(of(&looks, thing).0, "ok", "{looks:?}");
        }
        let human = config.tried(&["doctor"]);
        assert_eq!(human.status.code(), Some(0));
        assert!(printed(&human).contains("0 fail"), "{}", printed(&human));
        assert_eq!(server.tool_calls().len(), 0);
    }
}

/// What a doctor says of the operator's address for the configuration in `file`.
fn of_operator(file: &Path) -> (String, String) {
    let mut command = Command::new(binary());
    let output = command.args(["doctor", "--format", "json", "-c"]).arg(file).output().unwrap();
    #[expect(clippy::disallowed_methods, reason = "our own output")]
    let all: Vec<Value> =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", printed(&output)));
    let look = all.iter().find(|look| look["check"] == "ops").unwrap();
    (look["status"].as_str().unwrap().to_owned(), look["message"].as_str().unwrap().to_owned())
}

#[test]
fn a_doctor_tells_its_own_gateway_from_another_one_that_has_the_port() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["read"]), Folder::new());
        let file = folder.path().join("own.yaml");
        let mut config = Config::of(&server.url());
        let gateway = config.start_at(&file);
        let ops = gateway.ops.unwrap();
        // A change of the address takes a restart, so the gateway stays where it is.
        config.ops = format!("{{address: '{ops}'}}");
        config.write(&file, gateway.audit());
        let own = format!("{ops} is in use, by the gateway that runs with this configuration");
        assert_eq!(of_operator(&file), ("warn".to_owned(), own.clone()));
        // A copy that records to the same file is of the same gateway.
        let copy = folder.path().join("copy.yaml");
        config.write(&copy, gateway.audit());
        assert_eq!(of_operator(&copy), ("warn".to_owned(), own));
        let elsewhere = folder.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let other = elsewhere.join("other.yaml");
        let said = format!("{ops} is in use, by a gateway that runs with another configuration");
        config.write(&other, &elsewhere.join("audit.jsonl"));
        assert_eq!(of_operator(&other), ("fail".to_owned(), said.clone()));
        // With a token it is asked, and refuses that; without one and without an audit file there is nothing to compare.
        let text = fs::read_to_string(&other).unwrap();
        let sink = format!("file: '{}'", elsewhere.join("audit.jsonl").display());
        assert!(text.contains(&sink), "{text}");
        let text = text.replace(&sink, "stdout: true");
        fs::write(&other, &text).unwrap();
        let (mark, unknown) = of_operator(&other);
        assert_eq!(mark, "warn", "{unknown}");
        assert!(unknown.ends_with("whether it runs with this configuration cannot be known"));
        fs::write(elsewhere.join("token"), "0123456789abcdef0123456789abcdef").unwrap();
        let token = format!("'{ops}', token: {{fromFile: token}}}}");
        fs::write(&other, text.replace(&format!("'{ops}'}}"), &token)).unwrap();
        assert_eq!(of_operator(&other), ("fail".to_owned(), said));
    }
}

#[test]
fn a_doctor_finds_what_is_not_well_and_says_what_to_do() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let moved = Server::start(|_, stream| {
        let answer = "HTTP/1.1 307 Temporary Redirect\r\nLocation: /mcp/?token=hunter2hunter2\r\nContent-Length: 0\r\n\r\n";
        std::io::Write::write_all(stream, answer.as_bytes()).is_ok()
    });
    let changed = Server::echo(Era::Modern, &["read"]);
    let servers = format!(
        "- {{name: missing, command: /no/such/program}}\n\
         - {{name: silent, url: 'http://{}/mcp'}}\n\
         - {{name: moved, url: '{}'}}\n\
         - {{name: changed, url: '{}'}}",
        silent.local_addr().unwrap(),
        moved.url(),
        changed.url()
    );
    let folder = Folder::new();
    let mut config = Config::with(&servers, "[missing, silent, moved, changed]");
    config.pins = format!("{{file: '{}'}}", folder.path().join("lock").display());
    config.ops = format!(
        "{{address: '{}', token: {{fromEnv: PORTCULLIS_NOT_SET}}}}",
        taken.local_addr().unwrap()
    );
    let (code, looks) = looked(&config, &["--timeout", "2s"]);
    assert_eq!(code, Some(1), "{looks:?}");
    for (thing, part) in [
        ("configuration", "`PORTCULLIS_NOT_SET`: it is not set"),
        ("ops", "Address already in use"),
        ("server missing", "there is no `/no/such/program`"),
        ("server silent", "did not answer within 2s"),
        ("server moved", &format!("HTTP status 307: a redirect to `{}/`", moved.url())),
        ("server moved", "write where it leads in `url`"),
        ("lockfile", "portcullis pin"),
    ] {
        let (mark, words) = of(&looks, thing);
        assert!(mark == "fail" || thing == "ops", "{thing}: {looks:?}");
        assert!(words.contains(part), "{part}: {words}");
    }
    // One that does not answer keeps nobody else from being looked at.
    assert_eq!(of(&looks, "server changed").0, "ok", "{looks:?}");
    let human = config.tried(&["doctor", "--timeout", "2s"]);
    assert_eq!(human.status.code(), Some(1));
    for line in
        ["fail  server silent ", "-> write where it leads in `url`", "ok    server changed "]
    {
        assert!(printed(&human).contains(line), "{line}\nis not in\n{}", printed(&human));
    }
    assert!(!printed(&human).contains("hunter2"));
}

#[test]
fn a_doctor_waits_as_long_as_pin_and_says_what_gives_a_slow_program_longer() {
    let folder = Folder::new();
    let program = folder.path().join("slow");
    fs::write(&program, "#!/bin/sh\nwhile read -r line; do :; done\n").unwrap();
    let server = format!("- {{name: slow, command: sh, args: ['{}']}}", program.display());
    let (code, looks) = looked(&Config::with(&server, "[slow]"), &["--timeout", "1s"]);
    assert_eq!(code, Some(1), "{looks:?}");
    let (mark, words) = of(&looks, "server slow");
    assert_eq!(mark, "fail");
    assert!(words.contains("did not answer within 1s"), "{words}");
    assert!(words.contains("its program was started and runs"), "{words}");
    assert!(
        words.contains("`--timeout` gives it longer here, and `limits.responseTimeout`"),
        "{words}"
    );
    assert!(!words.contains("start the program by hand"), "{words}");
    for verb in [&["doctor", "--help"][..], &["pin", "--help"]] {
        let help = printed(&portcullis(folder.path(), verb));
        assert!(help.contains("[default: 30s]"), "{verb:?}: {help}");
    }
}

#[test]
fn a_doctor_reads_the_keys_of_issuers() {
    let server = Server::echo(Era::Modern, &["read"]);
    let issuer = Issuer::start();
    issuer.publish(&[&Key::es256("one")]);
    let mut config = Config::of(&server.url());
    config.identity = format!("issuers:\n{}", issuer.item("corp", ""));
    let (code, looks) = looked(&config, &[]);
    assert_eq!(
        (code, of(&looks, "issuer corp")),
        (Some(0), ("ok", "its key set was read: 1 key -> ")),
        "{looks:?}"
    );
    issuer.answer("/.well-known/oauth-authorization-server", |_| {
        answer("404 Not Found", "text/plain", "no")
    });
    let (code, looks) = looked(&config, &["--timeout", "2s"]);
    assert_eq!((code, of(&looks, "issuer corp").0), (Some(1), "fail"), "{looks:?}");
}

/// A doctor's look at a gateway and a server, both with certificates that are good for so long.
fn looked_at_certificates(era: Era, seconds: i64) -> Vec<(String, String, String)> {
    let (server, pki) = (Server::echo(era, &["read"]), Pki::new("both"));
    let own = pki.issue(&Leaf { seconds: Some(seconds), ..Leaf::local() });
    let front = Front::before(server.address, &own, None);
    let url = format!("https://{}/mcp", front.address);
    let item = format!("- {{name: up, url: '{url}', tls: {{authorities: '{}'}}}}", pki.path());
    let mut config = Config::with(&item, "[up]");
    config.listener = tls(&own, "");
    looked(&config, &[]).1
}

#[test]
fn a_doctor_says_when_certificates_end() {
    const DAY: i64 = 24 * 3600;
    for era in ERAS {
        for (days, mark) in [(29, "warn"), (31, "ok")] {
            let looks = looked_at_certificates(era, days * DAY);
            for thing in ["certificate main", "server certificate up"] {
                let (found, words) = of(&looks, thing);
                assert_eq!(found, mark, "{thing}: {looks:?}");
                assert!(words.starts_with("good until 2"), "{words}");
                assert_eq!(words.contains("renew it"), mark == "warn", "{words}");
            }
        }
        // One that has ended is not believed, and the server is not reached.
        let server = Server::echo(era, &["read"]);
        let pki = Pki::new("server");
        let ended = pki.issue(&Leaf { ended: true, ..Leaf::local() });
        let front = Front::before(server.address, &ended, None);
        let url = format!("https://{}/mcp", front.address);
        let item = format!("- {{name: up, url: '{url}', tls: {{authorities: '{}'}}}}", pki.path());
        let (code, looks) = looked(&Config::with(&item, "[up]"), &[]);
        assert_eq!((code, of(&looks, "server up").0), (Some(1), "fail"), "{looks:?}");
        assert!(!looks.iter().any(|(thing, ..)| thing == "server certificate up"), "{looks:?}");
    }
}

#[test]
fn a_doctor_says_which_registered_tools_a_server_does_not_have() {
    for era in ERAS {
        let server = Server::echo(era, &["read", "write"]);
        let mut config = Config::of(&server.url());
        config.more = "registry:\n  tools:\n  - {server: up, tool: read, effect: read}\n  \
            - {server: up, tool: wirte, approvalRequired: true}"
            .into();
        let (code, looks) = looked(&config, &[]);
        let (mark, words) = of(&looks, "registry up");
        assert_eq!((code, mark), (Some(0), "warn"), "{looks:?}");
        assert!(words.contains("lists no tool `wirte` -> "), "{words}");
        config.more = config.more.replace("wirte", "write");
        let (_, looks) = looked(&config, &[]);
        let words = "the server has 2 registered tools -> ";
        assert_eq!(of(&looks, "registry up"), ("ok", words), "{looks:?}");
    }
}

#[test]
fn a_run_says_at_once_that_a_program_is_not_there() {
    let gateway = Config::with("- {name: up, command: /no/such/program}", "[up]").start();
    gateway.says("cannot be started: there is no `/no/such/program`");
}

#[test]
fn pin_says_once_and_at_once_why_a_program_cannot_be_asked() {
    let missing = Config::with(
        "- {name: up, command: /no/such/program}\n- {name: two, command: no-such-program}",
        "[up, two]",
    );
    let said = printed(&missing.tried(&["pin"]));
    for part in [
        "`up` could not be asked: its program cannot be started: there is no `/no/such/program`",
        "`two` could not be asked: its program cannot be started: there is no `no-such-program` in",
    ] {
        assert_eq!(said.matches(part).count(), 1, "{said}");
    }
    assert!(!said.contains("WARN") && !said.contains("too long"), "{said}");
    // Of one that ends nothing is said but that, and why.
    let ends = Config::with(
        "- {name: up, command: /bin/sh, args: ['-c', 'echo no licence >&2; exit 3']}",
        "[up]",
    );
    let said = printed(&ends.tried(&["pin"]));
    assert!(said.contains("no licence") && !said.contains("closed its output"), "{said}");
    // A line that is too long is one.
    let long = Config::with(
        "- {name: up, command: /bin/sh, args: ['-c', 'yes | tr -d \"\\n\"; exit 3']}",
        "[up]",
    );
    let said = printed(&long.limits("responseBody: 64KiB").tried(&["pin"]));
    assert!(said.contains("a line that is longer than `limits.responseBody`"), "{said}");
}

#[test]
fn no_shipped_file_has_a_key_that_everybody_knows() {
    // printf change-me | sha256sum, and the same of `changeme`, `secret`, `password` and `test`.
    let known = ["change-me", "changeme", "secret", "password", "test"].map(|word| {
        let hash = Command::new("sh")
            .args(["-c", &format!("printf %s {word} | sha256sum")])
            .output()
            .unwrap();
        String::from_utf8(hash.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
    });
    let mut folders = vec![root().join("config"), root().join("deploy"), root().join("docs")];
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let Ok(text) = fs::read_to_string(&path) else { continue };
            count += 1;
            assert!(!known.iter().any(|hash| text.contains(hash)), "{}", path.display());
            // And all of them call the configuration by its one name.
            assert!(!text.contains(&["gateway", ".yaml"].concat()), "{}", path.display());
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn a_start_whose_port_is_taken_leaves_nothing_on_record() {
    let server = Server::echo(Era::Modern, &["read"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = Folder::new();
    let audit = folder.path().join("audit.jsonl");
    let file = folder.path().join("portcullis.yaml");
    for (at, key) in [
        ("  address: 127.0.0.1:0\n", "`address` of the listener `main`"),
        ("address: '127.0.0.1:0'", "`ops.address`"),
    ] {
        Config::of(&server.url()).write(&file, &audit);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(at), "{text}");
        fs::write(&file, text.replace(at, &at.replace("127.0.0.1:0", &address.to_string())))
            .unwrap();
        let output = portcullis(folder.path(), &["run"]);
        assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
        assert!(
            printed(&output).contains(&format!("could not listen on `{address}`")),
            "{}",
            printed(&output)
        );
        let help = format!("stop it, or write another port in {key}\n");
        assert!(printed(&output).contains(&help), "{help}\n{}", printed(&output));
        let recorded = fs::read_to_string(&audit).unwrap_or_default();
        assert_eq!(recorded, "", "the sockets come before the first record");
    }
}
