//! `portcullis select`: which tools of a file a request is about.

use std::fs;
use std::process::{Command, Output};

use e2e::Era;
use e2e::gateway::{Config, Folder, binary};
use e2e::server::Server;
use serde_json::{Value, json};

/// A file of tools and one of requests.
struct Files(Folder);

impl Files {
    fn new(tools: &str, queries: &str) -> Self {
        let folder = Folder::new();
        fs::write(folder.path().join("tools.jsonl"), tools).unwrap();
        fs::write(folder.path().join("queries.jsonl"), queries).unwrap();
        Self(folder)
    }

    fn select(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(binary());
        command.current_dir(self.0.path()).args(["select", "--tools", "tools.jsonl"]);
        command.args(arguments).output().unwrap()
    }
}

fn tool(server: &str, name: &str, description: &str) -> String {
    let id = format!("{server}.{name}");
    let tool = json!({ "name": name, "description": description, "inputSchema": {} });
    format!("{}\n", json!({ "tool_id": id, "server": server, "tool": tool }))
}

fn tools() -> String {
    [
        tool("files", "read_file", "Read the contents of a file."),
        tool("files", "delete_file", "Delete a file."),
        tool("mail", "send_message", "Send an e-mail."),
        tool("crm-eu", "find_customer", "Find a customer."),
        tool("tickets", "find_customer", "Find a customer."),
    ]
    .concat()
}

#[expect(clippy::disallowed_methods, reason = "our own output")]
fn answers(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn complaint(output: &Output) -> String {
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn requests_of_a_file_get_an_answer_each() {
    let queries = "{\"id\":\"a\",\"query\":\"get rid of this document\"}\n\n{\"id\":2,\"query\":\"drop Anna an email\"}\n";
    let files = Files::new(&tools(), queries);
    for strategy in ["fused", "semantic"] {
        let arguments = ["--queries", "queries.jsonl", "--limit", "2", "--strategy", strategy];
        let answers = answers(&files.select(&arguments));
        let first = |at: usize| answers[at]["tools"][0].clone();
        assert_eq!((&answers[0]["id"], &answers[1]["id"]), (&json!("a"), &json!(2)));
        assert_eq!((first(0), first(1)), (json!("files.delete_file"), json!("mail.send_message")));
        assert!(answers.iter().all(|one| one["tools"].as_array().unwrap().len() <= 2));
        assert!(answers.iter().all(|one| one["micros"].is_u64() && one.get("scores").is_none()));
    }
    let arguments = ["--queries", "queries.jsonl", "--explain"];
    let explained = &answers(&files.select(&arguments))[0];
    assert_eq!(explained["scores"][0]["tool"], "files.delete_file");
    assert!(explained["scores"][0]["semantic"].as_f64().unwrap() > 0.3, "{explained}");
    for one in explained["scores"].as_array().unwrap() {
        let parts = one["parts"].as_object().unwrap().values();
        let sum: f64 = parts.map(|part| part.as_f64().unwrap()).sum();
        assert!((sum - one["score"].as_f64().unwrap()).abs() < 1e-5, "{explained}");
    }
}

#[test]
fn a_person_is_told_why_and_what_is_too_close() {
    let files = Files::new(&tools(), "");
    let output = files.select(&["find a customer", "--explain", "--limit", "3"]);
    let said = String::from_utf8(output.stdout).unwrap();
    for part in [
        "\n2. crm-eu.find_customer\n   score ",
        " = shared words ",
        "\n   before weights: shared words ",
        "words: find, customer\n",
        "they differ in:\n   tickets.find_customer: server tickets\n   crm-eu.find_customer: server crm-eu\n",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = String::from_utf8(files.select(&["find a customer"]).stdout).unwrap();
    assert!(said.starts_with("1. tickets.find_customer\n2. crm-eu.find_customer\n"), "{said}");
    let none = files.select(&["of the"]);
    assert_eq!(String::from_utf8(none.stdout).unwrap(), "no tool matches\n");
}

#[test]
fn nothing_is_answered_if_a_line_cannot_be_read() {
    let good = "{\"id\":1,\"query\":\"x\"}\n";
    let twice = tools() + &tool("files", "read_file", "again");
    for (tools, queries, expected) in [
        (tools() + "{\"tool_id\":", good.to_owned(), "tools.jsonl:6: "),
        (
            twice,
            good.to_owned(),
            "tools.jsonl:6: `files.read_file` is the `tool_id` of an earlier line",
        ),
        (
            tools() + "{\"tool_id\":\"x\",\"tool\":7}",
            good.to_owned(),
            "tools.jsonl:6: `tool` is not an object",
        ),
        (
            tools() + "{\"tool_id\":\"x\",\"tool\":{}}",
            good.to_owned(),
            "tools.jsonl:6: the tool has no `name`",
        ),
        (tools(), format!("{good}{{\"id\":2}}"), "queries.jsonl:2: `query` is not a string"),
        (
            tools(),
            format!("{good}{{\"id\":[],\"query\":\"x\"}}"),
            "queries.jsonl:2: `id` is neither",
        ),
        (
            tools(),
            format!("{{\"id\":1,\"query\":\"{}\"}}", "x".repeat(5000)),
            "queries.jsonl:1: `query` is longer than 4096 bytes",
        ),
    ] {
        let said = complaint(&Files::new(&tools, &queries).select(&["--queries", "queries.jsonl"]));
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let said = complaint(&Files::new(&tools(), "").select(&["--queries", "none.jsonl"]));
    assert!(said.contains("`none.jsonl` could not be read"), "{said}");
}

#[test]
fn the_tools_of_a_lockfile_are_those_that_the_caller_would_be_shown() {
    let offers = json!([
        { "name": "delete_note", "description": "Delete a note for good.", "inputSchema": { "type": "object" } },
        { "name": "read_note", "description": "Read a note.", "inputSchema": { "type": "object" } },
    ]);
    let server = Server::with(Era::Modern, offers, |_, _| true);
    let rules = "rules:
- {id: ana, effect: allow, principals: ['principal:ana'], servers: [up], tools: ['*']}
- {id: bob, effect: allow, principals: ['principal:bob'], servers: [up], tools: [read_note]}";
    let folder = Folder::new();
    let config = Config::of(&server.url()).policy(rules).approved(&folder.path().join("pins.lock"));
    let selected = |more: &[&str]| {
        let output = config.tried(&[&["select", "get rid of a note"], more].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(selected(&[]).starts_with("1. up/delete_note\n"), "{}", selected(&[]));
    assert!(selected(&["--principal", "ana"]).starts_with("1. up/delete_note\n"));
    assert_eq!(selected(&["--principal", "bob"]), "1. up/read_note\n");
    assert_eq!(selected(&["--principal", "nobody"]), "no tool matches\n");
    let said = |config: &Config, more: &[&str]| {
        let output = config.tried(&[&["select", "get rid of a note"], more].concat());
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let [_, noted] = said(&config, &["--principal", "nobody"]);
    assert!(noted.contains("note: the configuration names no principal `nobody`"), "{noted}");
    assert_eq!(said(&config, &["--principal", "bob"])[1], "");
    // What nobody is shown is not ranked.
    let pins = config.pins.replace('}', ", requireEvaluation: true}");
    let unevaluated = Config { pins, ..config };
    let [none, noted] = said(&unevaluated, &[]);
    assert_eq!(none, "no tool matches\n");
    assert!(noted.contains("note: 2 tools of the lockfile are withheld"), "{noted}");
}

#[test]
fn what_is_missing_on_the_command_line_is_named() {
    let folder = Folder::new();
    let said = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.current_dir(folder.path()).arg("select").args(arguments);
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    let neither = said(&["delete a note"]);
    for part in ["there is no `portcullis.yaml` in this folder", "`-c FILE`", "`--tools FILE`"] {
        assert!(neither.contains(part), "{neither}");
    }
    let no_request = said(&["-c", "portcullis.yaml"]);
    assert!(no_request.contains("QUERY") && no_request.contains("--queries"), "{no_request}");
    fs::write(folder.path().join("portcullis.yaml"), "{").unwrap();
    let of_folder = said(&["delete a note"]);
    assert!(of_folder.contains("reading `portcullis.yaml` in this folder"), "{of_folder}");
}

/// A log in which each of six callers asked ten times to delete a note, and then called this tool.
fn log_of(called: &str, callers: usize) -> String {
    let mut log = String::new();
    for n in 0..60 {
        let principal = format!("u{}", n % callers);
        let time = |second: u32| format!("2026-01-01T{:02}:{:02}:{second:02}Z", n / 10, n % 10 * 6);
        let common = |more: Value| {
            let mut record = json!({
                "schema": "portcullis.audit/v3", "event": "exchange", "outcome": "answered", "route": "/mcp",
                "principal": principal, "scheme": "apiKey",
            });
            record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            format!("{record}\n")
        };
        log += &common(json!({
            "time": time(1), "tool": "find_tools", "query": "delete the note",
            "tools": ["delete_note", "remove_memo", "search_notes"],
        }));
        // What others call, and what the answer did not have, is no use of it.
        log += &common(json!({ "time": time(2), "tool": "archive", "server": "up" }));
        // Neither is a call that waits for its caller.
        log += &common(json!({
            "time": time(2), "tool": "search_notes", "server": "up", "reason": "input-required",
        }));
        log += &common(json!({ "time": time(3), "tool": called, "server": "up" }));
    }
    log
}

#[test]
fn weights_are_advised_by_a_log_if_the_gain_is_sure() {
    let offers = json!([
        { "name": "delete_note", "description": "Delete a note.", "inputSchema": { "type": "object" } },
        { "name": "search_notes", "description": "Search the notes that nobody may delete.",
            "inputSchema": { "type": "object" } },
        { "name": "remove_memo", "description": "Removes a memo for good.", "inputSchema": { "type": "object" } },
    ]);
    let server = Server::with(Era::Modern, offers, |_, _| true);
    let folder = Folder::new();
    let mut config = Config::of(&server.url());
    let key = |n: usize| {
        format!("- {{name: u{n}, principal: u{n}, groups: [dev], sha256: '{:064x}'}}\n", n + 1)
    };
    config.identity = (0..6).map(key).collect();
    config.more = "selection: {weights: {words: 3, similarWords: 0.1, direction: 0.1}}".to_owned();
    let mut config = config.approved(&folder.path().join("pins.lock"));
    let file = folder.path().join("audit.jsonl");
    let advised = |log: String| {
        fs::write(&file, log).unwrap();
        let output = config.tried(&["weights", "--audit", file.to_str().unwrap()]);
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), out, err)
    };
    let (code, out, err) = advised(log_of("remove_memo", 6));
    assert_eq!(code, Some(0), "{out}{err}");
    for part in [
        "# 60 of 60 requests",
        "of 6 callers",
        "# 1 different requests are among them",
        "\n    history: 0.15\n    available: 0.3\n    judged: 20\n    embedding: 1\n    close: 0.03\n",
        "gain: 0.167 (0.167 to 0.167)",
        "\nselection:\n  weights:\n    words: ",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert_eq!(advised(log_of("remove_memo", 6)).1, out, "it is deterministic");
    // What is printed is a valid section.
    let mut advice = Config::of(&server.url());
    advice.more =
        out.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    assert!(advice.tried(&["validate"]).status.success(), "{}", advice.more);
    let (code, out, err) = advised(log_of("delete_note", 6));
    assert_eq!(code, Some(1));
    assert!(
        err.contains("the interval of the gain includes none") && !out.contains("selection:"),
        "{out}{err}"
    );
    for (log, problem) in [
        (log_of("remove_memo", 4), "the requests are of 4 callers; at least 5 are needed"),
        (
            log_of("remove_memo", 6).lines().take(80).map(|line| format!("{line}\n")).collect(),
            "20 requests were followed",
        ),
        (log_of("unknown", 6), "nothing is advised: 0 requests"),
        (String::new(), "the log has no requests for tools"),
    ] {
        let (code, out, err) = advised(log);
        assert_eq!((code, &*out), (Some(1), ""), "{err}");
        assert!(err.contains(problem), "{problem}: {err}");
    }
    // A call belongs to a request for as long as the configuration says.
    fs::write(&file, log_of("remove_memo", 6)).unwrap();
    config.more = "selection: {history: {window: 2s}}".to_owned();
    let output = config.tried(&["weights", "--audit", file.to_str().unwrap()]);
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("0 requests were followed"), "{err}");
}
