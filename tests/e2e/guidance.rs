//! What the documentation shows and what the verbs say is enough for a person to go on: the configuration of
//! the README works, and a mistake is told once, with what to do.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use e2e::client::Client;
use e2e::gateway::{ANA, Config, Folder, Gateway, binary, printed, root};
use e2e::server::Server;
use e2e::{ERAS, Era, eventually};
use serde_json::json;

/// printf KEY | sha256sum
const HASH: &str = "5434d1fbe1648d10e4c47fcfab49b8f1a98b1ac20460ed66af94e6c80d6418a5";

/// The configuration in the README, with servers of this machine in the place of its own.
fn documented(tickets: &Server, files: &Server) -> String {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let (_, rest) = readme.split_once("```yaml\n# portcullis.yaml\n").unwrap();
    let (yaml, _) = rest.split_once("```").unwrap();
    // What would wait for an answer at a terminal that is not there does not start.
    assert!(yaml.contains("    command: npx\n    args: ['-y', "), "{yaml}");
    let here = |line: &str| match line.trim_start().split(' ').next() {
        Some("address:") => Some("    address: 127.0.0.1:0".to_owned()),
        Some("sha256:") => Some(format!("      sha256: {HASH}")),
        Some("url:") => Some(format!("    url: {}", tickets.url())),
        Some("command:") => Some(format!("    url: {}", files.url())),
        Some("args:") => None,
        _ => Some(line.to_owned()),
    };
    yaml.lines().filter_map(here).map(|line| line + "\n").collect()
}

/// Runs a verb in a folder, as the README does.
fn verb(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(binary()).args(arguments).current_dir(folder).output().unwrap()
}

#[test]
fn the_configuration_of_the_readme_starts_and_lets_an_agent_begin() {
    for era in ERAS {
        let tickets = Server::echo(era, &["get_ticket", "close_ticket"]);
        let tools = [
            "list_directory",
            "list_allowed_directories",
            "read_file",
            "read_multiple_files",
            "write_file",
        ];
        let files = Server::echo(era, &tools);
        let folder = Folder::new();
        let at = folder.path().to_owned();
        fs::write(at.join("portcullis.yaml"), documented(&tickets, &files)).unwrap();
        for arguments in [
            &["validate"][..],
            &["scan", "--fail-on", "high"],
            &["pin"],
            &["pin", "approve", "--yes"],
            &["doctor"],
            &["run", "--dry-run"],
        ] {
            let output = verb(&at, arguments);
            assert!(output.status.success(), "{arguments:?}: {}", printed(&output));
        }
        // Without a file of cases it is said how one begins; with the documented one it passes.
        let test = ["policy", "test"];
        let output = verb(&at, &test);
        let text = printed(&output);
        assert!(!output.status.success() && text.contains("portcullis.test.yaml"), "{text}");
        assert!(text.contains("tests:\n  - name:") && text.contains("expect: deny"), "{text}");
        let policy = fs::read_to_string(root().join("docs/policy.md")).unwrap();
        let (_, cases) = policy.split_once("```yaml\n# portcullis.test.yaml\n").unwrap();
        let (cases, _) = cases.split_once("```").unwrap();
        fs::write(at.join("portcullis.test.yaml"), cases).unwrap();
        let output = verb(&at, &test);
        assert!(output.status.success(), "{}", printed(&output));
        let mut command = Command::new(binary());
        command.args(["run"]).current_dir(&at);
        let gateway = Gateway::spawn_without_ops(command, folder, at.join("audit.jsonl"));
        let client = |path: &str| Client::connect(gateway.address, path, era, Some(ANA));
        let files = client("/files");
        for (tool, arguments) in [
            ("list_allowed_directories", json!({})),
            ("list_directory", json!({ "path": "/srv/shared" })),
            ("read_file", json!({ "path": "/srv/shared/a/b" })),
            ("read_multiple_files", json!({ "paths": ["/srv/shared/a", "/srv/shared/b"] })),
        ] {
            let answer = files.call(tool, &arguments).json();
            let text = &answer["result"]["content"][0]["text"];
            assert_eq!(
                (text, answer["result"]["isError"] == true),
                (&json!("done"), false),
                "{answer}"
            );
        }
        let outside = "lies outside of where it may";
        for (tool, arguments, why) in [
            ("list_directory", json!({ "path": "/srv" }), outside),
            ("read_file", json!({ "path": "/srv/shared/../secret" }), "is not a plain path"),
            ("read_multiple_files", json!({ "paths": ["/srv/shared/a", "/etc/passwd"] }), outside),
        ] {
            let answer = files.call(tool, &arguments).body;
            assert!(answer.contains(why), "{tool}: {answer}");
        }
        assert!(
            files
                .call("write_file", &json!({ "path": "/srv/shared/a" }))
                .body
                .contains("unknown tool")
        );
        let answer = client("/tickets").call("get_ticket", &json!({})).body;
        assert!(answer.contains("done"), "{answer}");
    }
}

#[test]
fn a_server_that_asks_over_a_process_that_callers_share_is_told_which_setting_is_missing() {
    let script = root().join("tests/sdk/asker.py");
    let server = |more: &str| {
        format!(
            "- {{name: up, command: python3, args: ['{}'], protocol: legacy, serverRequests: {{formElicitation: {{secrets: allow}}}}{more}}}",
            script.display()
        )
    };
    for era in ERAS {
        let folder = Folder::new();
        let gateway = Config::with(&server(""), "[up]").start();
        fs::write(folder.path().join("one.go"), "").unwrap();
        let able = json!({ "elicitation": {} });
        let client = Client::able(gateway.address, "/mcp", era, Some(ANA), &able);
        let answer = client.call("ask", &json!({ "who": "one", "folder": folder.path() })).body;
        assert!(answer.contains("-32601") && answer.contains("sharing: perSession"), "{answer}");
        eventually("the log names the setting", || {
            let log = gateway.said();
            let told = |line: &str| {
                line.contains("request refused") && line.contains("sharing: perSession")
            };
            log.lines().any(told).then_some(())
        });
    }
    let folder = Folder::new();
    let file = folder.path().join("gateway.yaml");
    for (more, warned) in [("", true), (", sharing: perSession", false)] {
        Config::with(&server(more), "[up]").write(&file, &folder.path().join("audit.jsonl"));
        let output = verb(folder.path(), &["validate", "gateway.yaml"]);
        let text = printed(&output);
        assert!(output.status.success(), "{text}");
        assert_eq!(text.contains("write `sharing: perSession`"), warned, "{text}");
    }
}

#[test]
fn a_hash_that_is_none_is_one_mistake() {
    let folder = Folder::new();
    let (tickets, files) = (Server::echo(Era::Modern, &["a"]), Server::echo(Era::Modern, &["a"]));
    let yaml = documented(&tickets, &files).replace(HASH, "0f5b...");
    fs::write(folder.path().join("gateway.yaml"), yaml).unwrap();
    let output = verb(folder.path(), &["validate", "gateway.yaml"]);
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("not a SHA-256 in hexadecimal") && text.contains("1 problem;"), "{text}");
}

#[test]
fn a_proposal_of_nothing_is_not_to_be_approved() {
    let folder = Folder::new();
    let script = folder.path().join("server");
    fs::write(&script, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let server = format!("- {{name: up, command: '{}'}}", script.display());
    let mut config = Config::with(&server, "[up]");
    config.pins = format!("{{file: '{}'}}", folder.path().join("lock").display());
    let output = config.tried(&["pin"]);
    let text = printed(&output);
    assert!(!output.status.success() && text.contains("0 proposed"), "{text}");
    assert!(!text.contains("pin approve"), "{text}");
    assert!(text.contains("nothing is there to be approved"), "{text}");
}

#[test]
fn a_rule_that_forbids_what_is_in_a_folder_and_not_the_folder_is_remarked() {
    let server = Server::echo(Era::Modern, &["a"]);
    let rules = |resources: &str| {
        format!(
            "rules:\n- {{id: open, effect: allow, principals: ['group:dev'], servers: [up], tools: [a], resources: ['file:///srv/*']}}\n\
             - {{id: shut, effect: forbid, principals: ['*'], servers: [up], resources: [{resources}]}}"
        )
    };
    for (resources, remarked) in [
        ("'file:///srv/secret/*'", true),
        ("'file:///srv/secret', 'file:///srv/secret/*'", false),
        ("'file:///srv/secret*'", false),
    ] {
        let config = Config::with(&format!("- {{name: up, url: '{}'}}", server.url()), "[up]");
        let output = config.policy(&rules(resources)).tried(&["policy", "lint"]);
        let text = printed(&output);
        let told = text.contains("beside") && text.contains("`file:///srv/secret` itself");
        assert_eq!(told, remarked, "{text}");
    }
}

#[test]
fn a_gateway_that_runs_as_root_says_that_it_should_not() {
    use std::os::unix::fs::MetadataExt as _;
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let server = Server::echo(Era::Modern, &["a"]);
    let config = Config::with(&format!("- {{name: up, url: '{}'}}", server.url()), "[up]");
    let folder = Folder::new();
    config.write(&folder.path().join("gateway.yaml"), &folder.path().join("audit.jsonl"));
    let text = printed(&verb(folder.path(), &["validate", "gateway.yaml"]));
    assert_eq!(text.contains("do not run it as root"), is_root, "{text}");
    let gateway = config.start();
    if is_root {
        gateway.says("do not run it as root");
    }
    let log = gateway.said();
    assert_eq!(log.matches("do not run it as root").count(), usize::from(is_root), "{log}");
}
