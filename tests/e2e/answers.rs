//! What a client answers to a server is what the server asked for, and nothing more (control C19, threat T1403).

use std::io::Write as _;
use std::net::TcpStream;

use e2e::client::{Answer, Client};
use e2e::gateway::{ANA, Config, Gateway};
use e2e::server::Server;
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

use crate::asking::{again, asked, legacy, read_more};
use crate::places::{Script, asking, form, sample};

const OPEN: &str =
    "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";
const HONEY: &str = "vault-note-7Qm2-Xk81-Zp40";

fn able(gateway: &Gateway, era: Era) -> Client {
    let can = json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {},
        "extensions": { "io.modelcontextprotocol/tasks": {} } });
    Client::able(gateway.address, "/mcp", era, Some(ANA), &can)
}

/// Fields of a form, answers with more or other things than these, and one that fits.
fn fields() -> (Value, Vec<Value>, Value) {
    let fields = json!({
        "branch": { "type": "string", "enum": ["main", "develop"] },
        "email": { "type": "string", "format": "email" },
        "count": { "type": "integer", "minimum": 1 },
    });
    let accepted = |content: Value| json!({ "action": "accept", "content": content });
    let wrong = vec![
        accepted(json!({ "branch": "main", "history": "all that the model knows" })),
        accepted(json!({ "branch": "release" })),
        accepted(json!({ "email": "no address" })),
        accepted(json!({ "count": "3" })),
        accepted(json!({ "count": 0 })),
        json!({ "action": "decline", "content": { "branch": "main" } }),
        json!({ "action": "accept", "content": {}, "notes": "more" }),
    ];
    (fields, wrong, accepted(json!({ "branch": "main", "count": 2 })))
}

/// Continues a call of `work`.
fn continued(client: &Client, state: &Value, inputs: &Value) -> Answer {
    client.ask(
        "tools/call",
        json!({ "name": "work", "arguments": {}, "requestState": state, "inputResponses": inputs }),
    )
}

/// Whether it is refused as no answer to what was asked, without the answer in it.
fn assert_refused(gateway: &Gateway, answer: &Answer, given: &Value) {
    assert_eq!(answer.code(), -32602, "{given}: {answer:?}");
    assert!(answer.body.contains("is not what was asked for"), "{answer:?}");
    assert!(!answer.body.contains("all that the model knows"), "{answer:?}");
    let record = gateway.last();
    assert_eq!(record["reason"], "client-answer", "{record}");
    assert!(record["found"].to_string().contains("input-schema"), "{record}");
}

#[test]
fn a_modern_client_answers_what_was_asked_and_nothing_more() {
    let script = Script::default();
    let (fields, wrong, right) = fields();
    *script.lock().unwrap() = form(&fields);
    let server = asking(Era::Modern, &script);
    let gateway = Config::asked(&server.url()).policy(OPEN).start();
    let ana = able(&gateway, Era::Modern);
    let state = ana.call("work", &json!({})).json()["result"]["requestState"].clone();
    for answer in &wrong {
        let given = json!({ "q": answer });
        assert_refused(&gateway, &continued(&ana, &state, &given), &given);
    }
    assert_eq!(server.tool_calls().len(), 1);
    assert_eq!(continued(&ana, &state, &json!({ "q": right })).code(), 0);
    // An answer to another question is left out. One in a first request is for a server that asks without a state.
    let more = json!({ "q": right, "other": { "action": "accept" } });
    assert_eq!(continued(&ana, &state, &more).code(), 0);
    assert_eq!(continued(&ana, &state, &json!({ "other": right })).code(), 0);
    let unasked = json!({ "name": "work", "arguments": {}, "inputResponses": { "q": right } });
    assert_eq!(ana.ask("tools/call", unasked).code(), 0);
    let sent = server.tool_calls().into_iter().skip(1);
    let sent: Vec<_> = sent.map(|call| call.body["params"]["inputResponses"].clone()).collect();
    let right = json!({ "q": right });
    assert_eq!(sent, [right.clone(), right.clone(), Value::Null, right]);
    // An answer of the model, whose size and blocks are those of one.
    *script.lock().unwrap() = sample(10, "none");
    let state = ana.call("work", &json!({})).json()["result"]["requestState"].clone();
    let said =
        |content: Value| json!({ "q": { "role": "assistant", "model": "m", "content": content } });
    for content in [
        json!({ "type": "text", "text": "long ".repeat(60_000) }),
        json!({ "type": "tool_use", "id": "1", "name": "n", "input": {} }),
        json!("text"),
    ] {
        let given = said(content);
        assert_refused(&gateway, &continued(&ana, &state, &given), &json!("a model's answer"));
    }
    let given = said(json!({ "type": "text", "text": "hi" }));
    assert_eq!(continued(&ana, &state, &given).code(), 0);
}

/// A modern server that asks without a state of its own.
fn stateless(fields: &Value) -> Server {
    let asked = form(fields);
    Server::with(Era::Modern, json!([e2e::server::tool("work")]), move |call, stream| {
        let params = &call.body["params"];
        let result = match params["inputResponses"].is_null() {
            true => json!({ "resultType": "input_required", "inputRequests": { "q": asked } }),
            false => {
                assert!(params["requestState"].is_null(), "the gateway's state is its own");
                json!({ "resultType": "complete", "content": [] })
            }
        };
        stream.write_all(&call.result(&result)).is_ok()
    })
}

#[test]
fn an_answer_to_a_server_without_a_state_or_to_one_that_waits_is_held_to_the_form_as_well() {
    let (fields, wrong, right) = fields();
    let server = stateless(&fields);
    let gateway = Config::asked(&server.url()).policy(OPEN).start();
    let ana = able(&gateway, Era::Modern);
    let state = ana.call("work", &json!({})).json()["result"]["requestState"].clone();
    let given = json!({ "q": wrong[0] });
    assert_refused(&gateway, &continued(&ana, &state, &given), &given);
    assert_eq!(continued(&ana, &state, &json!({ "q": right })).code(), 0);

    let (server, heard) = legacy();
    let gateway = Config::asked(&server.url()).policy(OPEN).start();
    let ana = able(&gateway, Era::Modern);
    let result = ana.call("ask", &json!({})).json()["result"].clone();
    let (key, _) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let state = result["requestState"].clone();
    let given = json!({ key: { "action": "accept", "content": { "v": "three" } } });
    assert_refused(&gateway, &again(&ana, &json!({}), &state, &given), &given);
    assert!(heard.lock().unwrap().is_empty());
    // The call still waits for an answer that fits.
    let given = json!({ key: { "action": "accept", "content": { "v": 3 } } });
    assert_eq!(
        again(&ana, &json!({}), &state, &given).json()["result"]["resultType"],
        "input_required"
    );
    assert_eq!(heard.lock().unwrap()[0]["result"]["content"]["v"], 3);
}

#[test]
fn a_legacy_client_answers_what_was_asked_and_is_told_otherwise() {
    for server_era in ERAS {
        let (server, heard) = match server_era {
            Era::Legacy => legacy(),
            Era::Modern => {
                let fields = json!({ "v": { "type": "integer" } });
                (stateless(&fields), std::sync::Arc::default())
            }
        };
        let gateway = Config::asked(&server.url()).policy(OPEN).start();
        let ana = able(&gateway, Era::Legacy);
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        let (tool, message) = match server_era {
            Era::Legacy => ("ask", "first?"),
            Era::Modern => ("work", "more, please"),
        };
        stream.write_all(&ana.call_bytes(&json!(1), &json!({ "name": tool }))).unwrap();
        let mut seen = String::new();
        let id = asked(&mut stream, &mut seen, message);
        let result = json!({ "action": "accept", "content": { "v": 1, "more": "all that the model knows" } });
        let body = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        let answer = e2e::client::raw(ana.address, &ana.bytes("", None, &body.to_string()));
        assert!(answer.body.contains("is not what was asked for"), "{answer:?}");
        // A request of the client may have the id of the question.
        assert!(answer.json()["id"].is_null(), "{answer:?}");
        let record = gateway.exchanges().into_iter().find(|one| one["reason"] == "client-answer");
        assert!(record.unwrap()["found"].to_string().contains("input-schema"), "{server_era:?}");
        if server_era == Era::Legacy {
            // The server is told that there is no answer, and goes on.
            let id = asked(&mut stream, &mut seen, "second?");
            assert!(heard.lock().unwrap()[0]["error"].is_object(), "{heard:?}");
            let body = json!({ "jsonrpc": "2.0", "id": id, "result": { "action": "decline" } });
            let taken = e2e::client::raw(ana.address, &ana.bytes("", None, &body.to_string()));
            assert_eq!(taken.status, 202);
        }
        eventually("the end of the call", || {
            read_more(&mut stream, &mut seen);
            seen.ends_with("\r\n0\r\n\r\n").then_some(())
        });
        let reached =
            |text: &str| server.calls().iter().any(|call| call.body.to_string().contains(text));
        assert!(!reached("all that the model knows"), "{server_era:?}");
    }
}

/// Such tasks are those of the modern era.
#[test]
fn the_answers_to_a_task_are_held_to_what_it_asked() {
    let (fields, wrong, right) = fields();
    let offers = json!({ "tools": [e2e::server::tool("work")] });
    let asked = form(&fields);
    let server = Server::offering(Era::Modern, offers, move |call| {
        let kind = if call.method() == "tools/call" { "task" } else { "complete" };
        let mut state = json!({ "resultType": kind, "taskId": "t", "status": "working",
            "ttlMs": 60_000, "createdAt": "x" });
        if call.method() == "tasks/get" {
            state["status"] = "input_required".into();
            state["inputRequests"] = json!({ "q": asked });
        }
        state
    });
    let gateway = Config::asked(&server.url()).policy(OPEN).start();
    let ana = able(&gateway, Era::Modern);
    let answer = ana.ask("tools/call", json!({ "name": "work", "task": {} })).json();
    let id = answer["result"]["taskId"].clone();
    let update = |given: &Value| {
        ana.ask("tasks/update", json!({ "taskId": id, "inputResponses": { "q": given } }))
    };
    // It has not asked yet, as far as this client was shown.
    let early = update(&right);
    assert_refused(&gateway, &early, &right);
    assert!(early.body.contains("tasks/get"), "{early:?}");
    let state = ana.ask("tasks/get", json!({ "taskId": id })).json();
    assert_eq!(state["result"]["inputRequests"]["q"]["method"], "elicitation/create", "{state}");
    for given in &wrong {
        assert_refused(&gateway, &update(given), given);
    }
    assert_eq!(server.count("tasks/update"), 0);
    assert_eq!(update(&right).code(), 0);
    assert_eq!(server.count("tasks/update"), 1);
}

/// What an answer has is looked at as arguments are: a decoy in it is sent to no server.
#[test]
fn a_honeytoken_in_an_answer_is_not_sent() {
    let script = Script::default();
    *script.lock().unwrap() = form(&json!({ "note": { "type": "string" } }));
    let server = asking(Era::Modern, &script);
    let mut config = Config::asked(&server.url()).policy(OPEN);
    config.more = format!("decoys: {{honeytokens: [{{name: vault, value: '{HONEY}'}}]}}");
    let gateway = config.start();
    let ana = able(&gateway, Era::Modern);
    let state = ana.call("work", &json!({})).json()["result"]["requestState"].clone();
    let given =
        json!({ "q": { "action": "accept", "content": { "note": format!("see {HONEY}") } } });
    let answer = continued(&ana, &state, &given);
    assert_ne!(answer.json()["result"]["content"][0]["text"], "done", "{answer:?}");
    assert!(gateway.last()["found"].to_string().contains("vault"), "{}", gateway.last());
    assert_eq!(server.tool_calls().len(), 1);
}
