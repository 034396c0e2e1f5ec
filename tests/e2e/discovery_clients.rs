//! Discovery through clients that are not ours: the SDKs of two languages and two generations, and agent frameworks whose
//! model follows a script.

use std::thread;

use e2e::gateway::{ANA, Gateway};
use e2e::{Era, eventually};
use serde_json::{Value, json};

use crate::agents::{FRAMEWORKS, report, script};
use crate::calling_through::{mended_calls, unclear_calls, without_arguments};
use crate::discovery::{OURS, config, file_tools, mail_tools, server};
use crate::peers::{self, CLIENTS};

/// What a model asks, and the line that answers it.
const QUERY: &str = "send a message to somebody";
const LINE: &str = "[write] mail__send_mail(to: string, body?: string) -> Sends a message by mail.";
/// What answers a call through the tool for another class.
const CLASS: &str = "Nothing was called: this tool has the class write. Call call_write_tool with the same `name` and `arguments`.";

/// Everything that a client calls, with what it reads: the whole text, or its first line where it has several. A text that
/// begins with `Nothing was called`, and that about a tool of the gateway, is an error.
fn calls() -> Vec<(&'static str, Value, String)> {
    let write = json!({ "name": "mail__send_mail", "arguments": { "to": "bob" } });
    let mut calls = vec![
        ("find_tools", json!({ "query": QUERY }), LINE.to_owned()),
        ("call_write_tool", write.clone(), r#"{"to":"bob"}"#.to_owned()),
        ("call_read_tool", write, CLASS.to_owned()),
        ("call_read_tool", without_arguments(), "null".to_owned()),
    ];
    let mended = mended_calls().into_iter();
    calls.extend(mended.map(|(given, _)| ("call_read_tool", given, r#"{"path":"a"}"#.to_owned())));
    let unclear = unclear_calls().into_iter();
    calls.extend(unclear.map(|(given, text)| ("call_read_tool", given, text)));
    calls
}

fn is_error(text: &str) -> bool {
    text.starts_with("Nothing was called") || text.contains("is a tool of the gateway")
}

/// The records of calls of one era, without those that found or described tools.
fn called(gateway: &Gateway, era: &str, counts: impl Fn(&Value) -> bool) -> usize {
    let records = gateway.exchanges().into_iter();
    let calls = records.filter(|record| record["method"] == "tools/call" && record["era"] == era);
    calls.filter(counts).count()
}

#[test]
fn clients_of_sdks_find_describe_and_call_and_their_mistakes_are_mended_or_corrected() {
    let (files, mail) = (server(Era::Modern, file_tools()), server(Era::Legacy, mail_tools()));
    let gateway = config(&files, &mail).start();
    let calls = calls();
    let made: Vec<_> = calls.iter().map(|(tool, given, _)| json!([tool, given])).collect();
    let job = json!([{
        "url": format!("http://{}/search", gateway.address),
        "tool": "describe_tool", "arguments": { "name": "mail__send_mail" },
        "hidden": "no_such_tool", "calls": made,
    }]);
    let run = |(program, script, era): (&str, &str, &str)| {
        let report = peers::client(program, script, (era, ANA), &job).remove(0);
        let what = format!("{script} {era}");
        assert_eq!(report["tools"], json!([&["mail__list_mail"][..], &OURS].concat()), "{what}");
        let described = report["text"].as_str().unwrap();
        assert!(described.contains(r#""name":"mail__send_mail""#), "{what}: {described}");
        let read = report["calls"].as_array().unwrap();
        assert_eq!(read.len(), calls.len(), "{what}: {report}");
        for (read, (tool, given, text)) in read.iter().zip(&calls) {
            let what = format!("{what}: {tool} {given}: {read}");
            let said = read[0].as_str().unwrap();
            assert_eq!(said.lines().next(), Some(&**text), "{what}");
            assert_eq!(read[1], is_error(text), "{what}");
        }
    };
    thread::scope(|scope| CLIENTS.map(|client| drop(scope.spawn(move || run(client)))));
    let mended: Vec<_> =
        mended_calls().into_iter().filter(|(_, mended)| !mended.is_null()).collect();
    for era in ["legacy", "modern"] {
        let clients = CLIENTS.iter().filter(|(.., spoken)| *spoken == era).count();
        let is_mended = |record: &Value| !record["mended"].is_null();
        let expected = clients * (mended.len() + 1);
        eventually("the records", || (called(&gateway, era, is_mended) == expected).then_some(()));
        let is_unclear = |record: &Value| record["reason"] == "discovery-form";
        assert_eq!(called(&gateway, era, is_unclear), clients * unclear_calls().len(), "{era}");
        for (_, mended) in &mended {
            let count = called(&gateway, era, |record| record["mended"] == *mended);
            assert_eq!(count % clients, 0, "{era} {mended}");
            assert!(count >= clients, "{era} {mended}");
        }
    }
}

#[test]
fn agents_of_frameworks_find_describe_call_and_are_corrected() {
    let (files, mail) = (server(Era::Legacy, file_tools()), server(Era::Modern, mail_tools()));
    let gateway = config(&files, &mail).start();
    let send = json!({ "name": "mail__send_mail", "arguments": { "to": "bob" } });
    let script_of_calls = json!([
        ["find_tools", { "query": QUERY }],
        ["describe_tool", { "name": "mail__send_mail" }],
        ["call_read_tool", send],
        ["call_write_tool", send],
        ["call_read_tool", { "name": "read_file", "arguments": "{\"path\":\"a\"}" }],
        ["call_read_tool", { "name": "read_file", "arguments": "path=a" }],
        ["call_read_tool", { "name": "read_file", "arguments": { "path": "a" } }],
    ]);
    let unclear = unclear_calls().into_iter().find(|(given, _)| given["arguments"] == "path=a");
    let expected = [
        LINE,
        r#""name":"mail__send_mail""#,
        CLASS,
        r#"{"to":"bob"}"#,
        r#"{"path":"a"}"#,
        &unclear.unwrap().1,
        r#"{"path":"a"}"#,
    ];
    thread::scope(|scope| {
        for framework in &FRAMEWORKS {
            let url = format!("http://{}/search", gateway.address);
            let (calls, expected) = (script_of_calls.to_string(), &expected);
            scope.spawn(move || {
                let what = format!("{} {:?}", framework.script, framework.era);
                let mut command = script(framework.environment, framework.script);
                let report = report(&what, &command.args([url, calls]).output().unwrap());
                let what = format!("{what}: {report}");
                let read = report["read"].as_array().unwrap();
                assert_eq!(read.len(), expected.len(), "{what}");
                for (text, part) in read.iter().zip(expected) {
                    assert!(text.as_str().unwrap().contains(part), "{part}: {what}");
                }
                assert_eq!(report["tools"], json!([&["mail__list_mail"][..], &OURS].concat()));
                assert!(report["answer"].as_str().unwrap().starts_with("I have read: "), "{what}");
            });
        }
    });
    for (era, name) in [(Era::Legacy, "legacy"), (Era::Modern, "modern")] {
        let runs = FRAMEWORKS.iter().filter(|framework| framework.era == era).count();
        let sent =
            |record: &Value| record["tool"] == "mail__send_mail" && record["reason"].is_null();
        eventually("the records", || (called(&gateway, name, sent) == runs).then_some(()));
        let mended = |record: &Value| record["mended"] == json!(["arguments-text"]);
        assert_eq!(called(&gateway, name, mended), runs);
    }
}
