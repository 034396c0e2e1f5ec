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
}

#[test]
fn a_person_is_told_why_and_what_is_too_close() {
    let files = Files::new(&tools(), "");
    let output = files.select(&["find a customer", "--explain", "--limit", "3"]);
    let said = String::from_utf8(output.stdout).unwrap();
    for part in [
        "\n2. crm-eu.find_customer\n   score ",
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
}
