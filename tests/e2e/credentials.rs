//! Credentials that the name of their member announces, ids whose names have the same words, texts that are JSON and stay
//! so, and numbers of things that are no numbers of persons (controls C13 and C26).

use std::sync::{Arc, Mutex};

use e2e::gateway::{ANA, Config, Gateway};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era};
use serde_json::{Value, json};

const OPEN: &str =
    "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";
const CREDENTIALS: &str = include_str!("../../policy/benches/names/credentials.txt");
const HONEST: &str = include_str!("../../policy/benches/names/honest.txt");
const NUMBERS: &str = include_str!("../../policy/benches/names/numbers.txt");

type Said = Arc<Mutex<Value>>;

/// A server that answers calls with the result that it is told to.
fn server(era: Era, said: &Said) -> Server {
    let said = Arc::clone(said);
    Server::offering(era, json!({ "tools": [tool("work")] }), move |_| said.lock().unwrap().clone())
}

fn start(server: &Server, content: &str) -> Gateway {
    Config::asked(&server.url()).policy(&format!("{content}\n{OPEN}")).start()
}

/// The result of a call.
fn result(gateway: &Gateway, era: Era, arguments: &Value) -> Value {
    gateway.client(era, ANA).call("work", arguments).json()["result"].take()
}

/// The rows of a table, each as JSON if it is some, else as a text.
fn rows(table: &str) -> Vec<Value> {
    let rows = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let row = |line: &str| match line.parse::<Value>() {
        Ok(value) if value.is_object() || value.is_array() => value,
        _ => line.replace("\\n", "\n").into(),
    };
    rows.map(row).collect()
}

/// A result with this as its structured content, and as its text.
fn both(value: &Value) -> Value {
    let text = json!([{ "type": "text", "text": value.to_string() }]);
    json!({ "resultType": "complete", "content": text, "structuredContent": { "all": value } })
}

#[test]
fn what_stands_before_json_in_a_text_is_redacted_too() {
    const KEY: &str = "AKIAQ3EGRZ7XK2MWPLVT";
    for era in ERAS {
        let told = Said::default();
        let server = server(era, &told);
        let (gateway, off) = (
            start(&server, ""),
            start(&server, "content: [{servers: ['*'], results: {secrets: 'off'}}]"),
        );
        for text in [
            format!("# the key is {KEY}\n{{\"a\": 1}}"),
            format!("// {KEY}\n[1]"),
            format!("```json {KEY}\n{{}}\n```"),
        ] {
            let content = json!([{ "type": "text", "text": text }]);
            *told.lock().unwrap() = json!({ "resultType": "complete", "content": content });
            let shown = result(&gateway, era, &json!({})).to_string();
            assert!(!shown.contains(KEY) && shown.contains("[REDACTED:"), "{era:?}: {shown}");
            assert!(result(&off, era, &json!({})).to_string().contains(KEY));
        }
    }
}

#[test]
fn a_credential_is_known_by_the_name_of_its_member_and_an_id_is_not_taken_for_one() {
    for era in ERAS {
        let told = Said::default();
        let server = server(era, &told);
        let gateway = start(&server, "");
        let (credentials, honest) = (rows(CREDENTIALS), rows(HONEST));
        *told.lock().unwrap() = both(&json!(credentials));
        let shown = result(&gateway, era, &json!({}));
        let structured = shown["structuredContent"].to_string();
        for value in ["hunter2-Q9", "hunter3-Q8", "x7Kq2mVt9LpRz4WbN8sY", "Tr0ub4dor&3"] {
            assert!(!structured.contains(value), "{era:?} {value}: {structured}");
        }
        for (n, row) in credentials.iter().enumerate() {
            let one = shown["structuredContent"]["all"][n].to_string();
            assert!(one.contains("[REDACTED:"), "{era:?} {row} was shown");
        }
        // The same as a text.
        let members = credentials.iter().filter(|row| !row.is_string());
        *told.lock().unwrap() = both(&members.cloned().collect());
        let shown = result(&gateway, era, &json!({}))["content"][0]["text"].take();
        for value in ["hunter2-Q9", "hunter3-Q8", "x7Kq2mVt9LpRz4WbN8sY", "Tr0ub4dor&3"] {
            assert!(!shown.to_string().contains(value), "{era:?} {value}: {shown}");
        }
        *told.lock().unwrap() = both(&json!(honest));
        let shown = result(&gateway, era, &json!({}));
        for (n, row) in honest.iter().enumerate() {
            assert_eq!(&shown["structuredContent"]["all"][n], row, "{era:?}");
        }
        assert_eq!(shown["content"][0]["text"], json!(honest).to_string(), "{era:?}");
    }
}

#[test]
fn a_credential_in_the_member_of_an_argument_is_not_sent_and_one_in_an_error_is_not_shown() {
    let members = [
        json!({ "password": "hunter2-Q9" }),
        json!({ "auth": { "secret": "x7Kq2mVt9LpRz4WbN8sY" } }),
        json!({ "users": [{ "name": "ana", "apiKey": "x7Kq2mVt9LpRz4WbN8sY" }] }),
        json!({ "table": [["user", "password"], ["ana", "hunter2-Q9"]] }),
        json!({ "pin": 4829 }),
    ];
    for era in ERAS {
        let told = Said::default();
        let server = server(era, &told);
        *told.lock().unwrap() = json!({ "resultType": "complete", "content": [] });
        let gateway = start(&server, "content: [{servers: [up], arguments: {secrets: block}}]");
        for member in &members {
            let answer = result(&gateway, era, &json!({ "note": member }));
            assert_eq!(answer["isError"], true, "{era:?} {member}: {answer}");
            let text = answer["content"][0]["text"].as_str().unwrap();
            assert!(text.contains("/note/") && !text.contains("hunter2"), "{text}");
            assert_eq!(gateway.last()["reason"], "content");
        }
        assert!(server.tool_calls().is_empty());
        let honest = json!({ "note": { "pageToken": "9f8e7d6c5b4a39281706f5e4d3c2b1a0", "password": "changeme" } });
        assert!(result(&gateway, era, &honest)["isError"].is_null(), "{era:?}");
        let gateway = start(&server, "content: [{servers: [up], arguments: {secrets: redact}}]");
        result(&gateway, era, &json!({ "note": members[0] }));
        let sent = server.tool_calls().pop().unwrap().body["params"]["arguments"]["note"].take();
        assert!(sent["password"].as_str().unwrap().starts_with("[REDACTED:password:"), "{sent}");
        // An error of a tool, and one of the protocol.
        *told.lock().unwrap() = json!({
            "resultType": "complete", "isError": true, "content": [], "structuredContent": members[0],
        });
        let shown = result(&gateway, era, &json!({}));
        assert!(shown["structuredContent"]["password"].as_str().unwrap().starts_with("[REDACTED:"));
    }
}

#[test]
fn json_in_a_text_is_json_with_the_same_members_when_values_in_it_are_replaced() {
    let texts = [
        r#"{"pin": 4829, "card": 4539148803436467, "n": [1, 4539148803436467]}"#,
        r#"{"password": "h\"unt\\er2-Q9", "note": "a \"b\" AKIAQ3EGRZ7XK2MWPLVT\\"}"#,
        r#"{"note": "caf\u00e9 \ud83d\ude00 api_key=9f8e7d6c5b4a39281706f5e4d3c2b1a0"}"#,
        r#"["-----BEGIN PRIVATE KEY-----", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7", "VJTUt9Us8cKjMzEfYyjiWA4R4ypbHqGCPmRZmLFgdnwRjS0tmCwPmZHVqz", {"kept": 1}]"#,
        "{\"a\": {\"apiKey\": \"9f8e7d6c5b4a39281706f5e4d3c2b1a0\"}}\n{\"b\": 4539148803436467}\n",
    ];
    for era in ERAS {
        let told = Said::default();
        let server = server(era, &told);
        let gateway = start(&server, "");
        for text in texts {
            let block = json!([{ "type": "text", "text": text }]);
            *told.lock().unwrap() = json!({ "resultType": "complete", "content": block });
            let answer = result(&gateway, era, &json!({}));
            let shown = answer["content"][0]["text"].as_str().unwrap();
            assert!(shown.contains("[REDACTED:"), "{era:?} {shown}");
            for (was, is) in text.lines().zip(shown.lines()) {
                let was: Value = was.parse().unwrap();
                let is: Value = is.parse().unwrap_or_else(|error| panic!("{error}: {is}"));
                let names = |value: &Value| {
                    value.as_object().map(|all| all.keys().cloned().collect::<Vec<_>>())
                };
                assert_eq!(
                    (names(&was), was.as_array().map(Vec::len)),
                    (names(&is), is.as_array().map(Vec::len))
                );
            }
            for value in ["4539148803436467", "4829", "h\\\"unt", "9f8e7d6c", "MIIEvQ"] {
                assert!(!shown.contains(value), "{era:?} {value}: {shown}");
            }
        }
    }
}

#[test]
fn the_number_of_a_thing_is_shown_and_that_of_a_person_is_not() {
    for era in ERAS {
        let told = Said::default();
        let server = server(era, &told);
        let gateway = start(&server, "");
        *told.lock().unwrap() = both(&json!(rows(NUMBERS)));
        let shown = result(&gateway, era, &json!({}));
        for (n, row) in rows(NUMBERS).iter().enumerate() {
            assert_eq!(&shown["structuredContent"]["all"][n], row, "{era:?}");
        }
        *told.lock().unwrap() = both(&json!([
            { "pesel": "44051401359" }, { "steuerId": 86_095_742_719_u64 }, "PESEL 44051401359", { "n": 4_539_148_803_436_467_u64 },
        ]));
        let shown = result(&gateway, era, &json!({}))["structuredContent"]["all"].take();
        for one in shown.as_array().unwrap() {
            assert!(one.to_string().contains("[REDACTED:"), "{era:?} {one}");
        }
    }
}
