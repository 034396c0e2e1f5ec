//! What a server may ask of a client is changed before the client sees it, and so is the answer to roots (control C19,
//! threats T1112 and T1403).

use std::io::Write as _;
use std::net::TcpStream;

use e2e::client::Client;
use e2e::gateway::{BOB, Config, Gateway};
use e2e::server::Server;
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

use crate::asking::read_more;
use crate::places::{Script, able, asking, called, form, page, quiet, sample};

const OPEN: &str =
    "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";

/// A gateway whose server `up` may ask these, alone on its route or beside another one.
fn start(server: &Server, requests: &str, other: Option<&Server>) -> Gateway {
    let mut servers =
        format!("- {{name: up, url: '{}', serverRequests: {requests}}}", server.url());
    let route = match other {
        Some(other) => {
            servers.push_str(&format!("\n- {{name: other, url: '{}'}}", other.url()));
            "[up, other]"
        }
        None => "[up]",
    };
    let mut config = Config::with(&servers, route).policy(OPEN);
    config.routes = format!("- {{path: /mcp, servers: {route}, prefix: auto}}");
    config.start()
}

/// The first question that is in what a client was answered.
#[expect(clippy::disallowed_methods, reason = "the gateway's output, not a peer's")]
fn question(body: &str) -> Value {
    let found = serde_json::from_str::<Value>(body).ok().into_iter();
    let events = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let messages = found.chain(events.filter_map(|data| serde_json::from_str(data).ok()));
    let mut asked = messages.filter_map(|message: Value| {
        let modern = &message["result"]["inputRequests"]["q"];
        let asked = if modern.is_null() { &message } else { modern };
        asked["method"].is_string().then(|| asked.clone())
    });
    asked.next().unwrap_or_else(|| panic!("no question in {body}"))
}

#[test]
fn a_user_is_told_which_of_several_servers_asks() {
    for era in ERAS {
        let script = Script::default();
        let (server, other) = (asking(era, &script), quiet(era));
        let plain = form(&json!({ "name": { "type": "string" } }));
        let login = page("https://login.example.com/");
        for (origin, others, is_named) in [
            ("", Some(&other), true),
            ("", None, false),
            (", origin: always", None, true),
            (", origin: never", Some(&other), false),
        ] {
            let requests = format!(
                "{{formElicitation: {{}}, urlElicitation: {{hosts: [login.example.com]}}{origin}}}"
            );
            let gateway = start(&server, &requests, others);
            for (asked, message) in [(&plain, "more, please"), (&login, "open this")] {
                let (answer, _) = called(&gateway, era, &script, asked.clone());
                let seen = question(&answer.body)["params"]["message"].clone();
                let expected = match is_named {
                    true => format!("The server `up` asks: {message}"),
                    false => message.to_owned(),
                };
                assert_eq!(seen, json!(expected), "{era:?} {origin} {}", others.is_some());
            }
        }
    }
}

#[test]
fn a_server_does_not_choose_the_model_that_the_user_pays_for() {
    for era in ERAS {
        let script = Script::default();
        let server = asking(era, &script);
        let mut asked = sample(10, "none");
        asked["params"]["modelPreferences"] =
            json!({ "hints": [{ "name": "the-dearest" }], "costPriority": 0.5 });
        for (setting, hints) in
            [("", json!([])), ("modelHints: keep", json!([{ "name": "the-dearest" }]))]
        {
            let gateway = start(&server, &format!("{{sampling: {{{setting}}}}}"), None);
            let (answer, _) = called(&gateway, era, &script, asked.clone());
            let wanted = question(&answer.body)["params"]["modelPreferences"].clone();
            let expected = json!({ "hints": hints, "costPriority": 0.5 });
            assert_eq!(wanted, expected, "{era:?} {setting}");
        }
        // Some clients read this as `hints`.
        let gateway = start(&server, "{sampling: {}}", None);
        asked["params"]["modelPreferences"] = json!({ "Hints": [{ "name": "the-dearest" }] });
        let (answer, record) = called(&gateway, era, &script, asked);
        assert!(!answer.body.contains("the-dearest"), "{era:?}: {answer:?}");
        assert!(record["found"].to_string().contains("server-request-malformed"), "{record}");
    }
}

#[test]
fn a_server_that_asks_too_often_is_refused_for_the_caller_whom_it_asks() {
    for era in ERAS {
        let script = Script::default();
        let server = asking(era, &script);
        let gateway = start(&server, "{formElicitation: {}, rate: 2/h}", None);
        let plain = form(&json!({ "name": { "type": "string" } }));
        for asks in 0..4 {
            let (answer, record) = called(&gateway, era, &script, plain.clone());
            let is_asked = answer.body.contains("elicitation/create");
            let is_found = record["found"].to_string().contains("server-request-rate");
            assert_eq!((is_asked, is_found), (asks < 2, asks >= 2), "{era:?} {asks}: {record}");
        }
        let can = json!({ "elicitation": { "form": {} } });
        let bob = Client::able(gateway.address, "/mcp", era, Some(BOB), &can);
        let answer = bob.call("work", &json!({}));
        assert!(answer.body.contains("elicitation/create"), "{era:?}: {answer:?}");
    }
}

#[test]
fn a_form_without_a_message_cannot_hide_who_asks() {
    for era in ERAS {
        let script = Script::default();
        let (server, other) = (asking(era, &script), quiet(era));
        let gateway = start(&server, "{formElicitation: {}}", Some(&other));
        let mut asked = form(&json!({ "name": { "type": "string", "title": "from the bank" } }));
        asked["params"].as_object_mut().unwrap().remove("message");
        let (answer, record) = called(&gateway, era, &script, asked);
        assert!(!answer.body.contains("from the bank"), "{era:?}: {answer:?}");
        assert!(record["found"].to_string().contains("server-request-malformed"), "{record}");
    }
}

/// A task of a modern server that waits for answers to these requests.
fn working(requests: Value) -> Server {
    let offers = json!({ "tools": [e2e::server::tool("work")] });
    Server::offering(Era::Modern, offers, move |call| {
        let kind = if call.method() == "tools/call" { "task" } else { "complete" };
        json!({ "resultType": kind, "taskId": "t", "status": "input_required", "ttlMs": 60_000,
            "createdAt": "x", "inputRequests": requests })
    })
}

/// A client that can be asked, and the id of a task of `server`.
fn tasked(gateway: &Gateway) -> (Client, Value) {
    let can = json!({ "elicitation": { "form": {} }, "roots": {},
        "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let client = Client::able(gateway.address, "/mcp", Era::Modern, Some(e2e::gateway::ANA), &can);
    let answer = client.ask("tools/call", json!({ "name": "work", "task": {} })).json();
    let id = answer["result"]["taskId"].clone();
    assert!(id.is_string(), "{answer}");
    (client, id)
}

/// Such tasks are those of the modern era.
#[test]
fn a_task_gets_only_the_roots_that_are_granted_and_its_polling_uses_no_rate_up() {
    let roots = json!({ "q": { "method": "roots/list", "params": {} } });
    let server = working(roots);
    let gateway = start(&server, "{roots: {only: ['file:///srv/projects/*']}, rate: 2/h}", None);
    let (client, id) = tasked(&gateway);
    for _ in 0..5 {
        let state = client.ask("tasks/get", json!({ "taskId": id })).json();
        assert_eq!(state["result"]["inputRequests"]["q"]["method"], "roots/list", "{state}");
    }
    let given = json!({ "q": { "roots": [{ "uri": "file:///home/ana" }, { "uri": "file:///srv/projects/a" }] } });
    let update = json!({ "taskId": id, "inputResponses": given });
    assert_eq!(client.ask("tasks/update", update).code(), 0);
    let last = server.calls().into_iter().rfind(|call| call.method() == "tasks/update").unwrap();
    let got = &last.body["params"]["inputResponses"]["q"]["roots"];
    assert_eq!(*got, json!([{ "uri": "file:///srv/projects/a" }]));
}

/// Answers the question for roots of a call that this begins, and waits for the end of the call.
fn answers_with(client: &Client, era: Era, roots: &Value) {
    let result = json!({ "roots": roots });
    if era == Era::Modern {
        let state = client.call("work", &json!({})).json()["result"]["requestState"].clone();
        let params = json!({ "name": "work", "arguments": {}, "requestState": state,
            "inputResponses": { "q": result } });
        assert_eq!(client.ask("tools/call", params).code(), 0);
        return;
    }
    let mut stream = TcpStream::connect(client.address).unwrap();
    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    let params = json!({ "name": "work", "arguments": {} });
    stream.write_all(&client.call_bytes(&json!(1), &params)).unwrap();
    let mut seen = String::new();
    eventually("the question", || {
        read_more(&mut stream, &mut seen);
        seen.contains("roots/list").then_some(())
    });
    let id = question(&seen)["id"].clone();
    let body = json!({ "jsonrpc": "2.0", "id": id, "result": result });
    let taken = e2e::client::raw(client.address, &client.bytes("", None, &body.to_string()));
    assert_eq!(taken.status, 202);
    eventually("the end of the call", || {
        read_more(&mut stream, &mut seen);
        seen.contains("done").then_some(())
    });
}

#[test]
fn a_server_gets_only_the_roots_that_it_is_granted() {
    let root = |uri: &str| json!({ "uri": uri, "name": "a folder" });
    let (work, private, up) = (
        root("file:///srv/projects/one"),
        root("file:///home/ana"),
        root("file:///srv/projects/../../home/ana"),
    );
    for era in ERAS {
        let script = Script::default();
        *script.lock().unwrap() = json!({ "method": "roots/list", "params": {} });
        let server = asking(Era::Modern, &script);
        for (setting, given, got) in [
            ("", json!([work, private]), json!([work, private])),
            ("only: ['file:///srv/projects/*']", json!([work, private, up]), json!([work])),
            ("only: ['file:///srv/projects/*']", json!([private]), json!([])),
            ("only: ['file:///srv/projects/*']", json!([work]), json!([work])),
        ] {
            let gateway = start(&server, &format!("{{roots: {{{setting}}}}}"), None);
            answers_with(&able(&gateway, era), era, &given);
            let last = server.tool_calls().pop().unwrap();
            let seen = &last.body["params"]["inputResponses"]["q"]["roots"];
            assert_eq!(*seen, got, "{era:?} {setting} {given}");
        }
    }
}
