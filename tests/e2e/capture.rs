//! Contents on record (control C24): none unless an operator wants them, and then without what nobody
//! should read in a log.

use std::sync::{Arc, Mutex};

use e2e::gateway::{ANA, BOB, Config, Gateway};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era};
use serde_json::{Value, json};

/// A key in the form of one; it opens nothing.
const SECRET: &str = "AKIAQ3EGRZ7XK2MWPLVT";
const CARD: &str = "4539 1488 0343 6467";
const MAIL: &str = "carol@example.net";

/// A server whose tool says what it is told to say.
fn server(era: Era, said: &Arc<Mutex<Value>>) -> Server {
    let said = Arc::clone(said);
    let mut work = tool("work");
    work["outputSchema"] = json!({ "type": "object", "properties": {
        "note": { "type": "string" }, "salary": { "type": "string", "x-sensitive": "pay" } } });
    let offers = json!({ "tools": [work], "prompts": [{ "name": "ask" }] });
    Server::offering(era, offers, move |_| said.lock().unwrap().clone())
}

fn start(server: &Server, capture: &str) -> Gateway {
    let policy = "rules:\n\
        - {id: open, effect: allow, principals: ['group:dev'], servers: ['*'], tools: ['*'], prompts: ['*']}\n\
        - {id: never, effect: forbid, principals: ['*'], servers: ['*'], tools: ['*'], when: 'has(arguments.forbidden)'}\n\
        content:\n\
        - servers: ['*']\n  results: {secrets: audit, identifiers: audit, contacts: audit}\n  arguments: {secrets: audit}\n  fields: [{label: pay, principals: ['group:dev']}]";
    let mut config = Config::of(&server.url()).policy(policy);
    config.auditing = capture.to_owned();
    config.start()
}

fn text(text: &str) -> Value {
    json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }] })
}

/// The two records of the last call.
fn records(gateway: &Gateway) -> (Value, Value) {
    let all = gateway.log();
    let last = |event: &str| all.iter().rev().find(|record| record["event"] == event).cloned();
    (last("intent").unwrap_or_default(), last("exchange").unwrap())
}

#[test]
fn nothing_that_is_said_is_recorded_unless_it_is_wanted() {
    for era in ERAS {
        for capture in ["", "capture: {}", "capture: {arguments: false, results: false}"] {
            let said = Arc::new(Mutex::new(text("a-quiet-word")));
            let gateway = start(&server(era, &said), capture);
            let ana = gateway.client(era, ANA);
            assert!(
                ana.call("work", &json!({ "query": "an-inner-thought" })).json()["result"]
                    .is_object()
            );
            let log = std::fs::read_to_string(gateway.audit()).unwrap();
            assert!(!log.contains("an-inner-thought") && !log.contains("a-quiet-word"), "{log}");
        }
    }
}

#[test]
fn what_is_said_is_recorded_without_what_nobody_should_read() {
    for era in ERAS {
        for servers in ERAS {
            let said = Arc::new(Mutex::new(text("")));
            let up = server(servers, &said);
            let gateway = start(&up, "capture: {arguments: true, results: true}");
            let ana = gateway.client(era, ANA);
            *said.lock().unwrap() = json!({
                "resultType": "complete",
                "structuredContent": { "note": format!("{MAIL} uses {SECRET}"), "salary": "90210-a-year" },
                "content": [{ "type": "text", "text": format!("a-quiet-word, {CARD}, 90210-a-year") }],
            });
            let sent = json!({ "query": "an-inner-thought", "key": SECRET, "to": MAIL });
            let shown = ana.call("work", &sent);
            // Its caller may see all of it.
            for value in [SECRET, CARD, MAIL, "90210-a-year"] {
                assert!(shown.body.contains(value), "{}", shown.body);
            }
            let (intent, exchange) = records(&gateway);
            let arguments = intent["arguments"].as_str().unwrap();
            assert!(arguments.contains("an-inner-thought"), "{arguments}");
            let arguments: Value = parsed(arguments);
            assert!(arguments["key"].as_str().unwrap().starts_with("[REDACTED:"), "{arguments}");
            assert!(exchange["arguments"].is_null(), "they are recorded once");
            let result = exchange["result"].as_str().unwrap();
            assert!(result.contains("a-quiet-word"), "{result}");
            assert!(parsed(result)["structuredContent"].is_object());
            assert!(exchange["cut"].is_null() && intent["cut"].is_null());
            let log = std::fs::read_to_string(gateway.audit()).unwrap();
            for value in [SECRET, CARD, MAIL, "90210-a-year"] {
                assert!(!log.contains(value), "{value} is in the log");
            }
            // The log is still whole, and as its schema says.
            assert!(verified(&gateway));
        }
    }
}

#[test]
fn whatever_is_done_to_a_result_what_is_labelled_is_not_recorded() {
    // A number of a person stands in a text alone, and a label says so; marks are put around the text.
    for era in ERAS {
        for done in [
            "fence: true",
            "results: {contacts: annotate}",
            "size: {maxBytes: 600, onExceeded: truncate}",
        ] {
            let salary = json!({ "salary": "90210-a-year", "note": MAIL }).to_string();
            let long = "a-quiet-word ".repeat(60);
            let said = json!({ "resultType": "complete", "content": [
                { "type": "text", "text": salary }, { "type": "text", "text": long }] });
            let up = server(era, &Arc::new(Mutex::new(said)));
            let policy = format!(
                "rules:\n- {{id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}}\n\
                 content:\n- servers: ['*']\n  {done}\n  fields: [{{label: pay, principals: ['group:dev']}}]\n  outputSchema: 'off'"
            );
            let mut config = Config::of(&up.url()).policy(&policy);
            config.auditing = "capture: {results: true, size: 8KiB}".to_owned();
            let gateway = config.start();
            let shown = gateway.client(era, ANA).call("work", &json!({}));
            assert!(shown.body.contains("90210-a-year"), "{done}: {}", shown.body);
            let (_, exchange) = records(&gateway);
            assert!(exchange["result"].as_str().unwrap().contains("a-quiet-word"), "{done}");
            let log = std::fs::read_to_string(gateway.audit()).unwrap();
            assert!(!log.contains("90210-a-year") && !log.contains(MAIL), "{done}: {exchange}");
        }
    }
}

#[test]
fn what_is_a_secret_by_its_name_is_not_recorded() {
    for era in ERAS {
        // Nothing in its words says that it is one.
        let secret = "correct horse battery staple";
        let inner = json!({ "password": secret }).to_string();
        let said = json!({ "resultType": "complete", "structuredContent": { "note": "x",
            "password": secret, "pin": { "secret-code": 48_151_623 } },
            "content": [{ "type": "text", "text": inner }, { "type": "text", "text": format!("it is {inner}") }] });
        let up = server(era, &Arc::new(Mutex::new(said)));
        let gateway = start(&up, "capture: {arguments: true, results: true}");
        let called =
            gateway.client(era, ANA).call("work", &json!({ "password": secret, "to": "a-friend" }));
        assert!(called.json()["result"].is_object(), "{}", called.body);
        let (intent, _) = records(&gateway);
        assert!(intent["arguments"].as_str().unwrap().contains("a-friend"));
        let log = std::fs::read_to_string(gateway.audit()).unwrap();
        assert!(!log.contains(secret) && !log.contains("48151623"), "{log}");
    }
}

#[test]
fn what_is_a_secret_by_any_name_for_one_is_not_recorded() {
    let secret = "correct horse battery staple";
    let code = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(json!({ "password": secret }).to_string())
    };
    let sent = json!({
        "sshKey": secret, "pass": secret, "db_pass": [secret], "pin": 48_151_623, "otp": "48151623",
        "contrase\u{f1}a": secret, "\u{43f}\u{430}\u{440}\u{43e}\u{43b}\u{44c}": secret,
        "items": [{ "name": "password", "value": secret }, ["x-api-key", secret]],
        "code": code, "compass": "north by northwest",
    });
    for era in ERAS {
        let said = Arc::new(Mutex::new(text("a-quiet-word")));
        let up = server(era, &said);
        *said.lock().unwrap() = json!({ "resultType": "complete",
            "content": [{ "type": "text", "text": sent.to_string() }] });
        let gateway = start(&up, "capture: {arguments: true, results: true, size: 8KiB}");
        let called = gateway.client(era, ANA).call("work", &sent);
        assert!(called.json()["result"].is_object(), "{}", called.body);
        let (intent, exchange) = records(&gateway);
        for recorded in [&intent["arguments"], &exchange["result"]] {
            let recorded = recorded.as_str().unwrap();
            assert!(recorded.contains("north by northwest"), "{recorded}");
            for value in [secret, "48151623", code.get(20..40).unwrap()] {
                assert!(!recorded.contains(value), "{value}: {recorded}");
            }
        }
    }
}

#[test]
fn what_is_labelled_is_not_recorded_in_base64() {
    use base64::Engine as _;
    let code = base64::engine::general_purpose::STANDARD
        .encode(json!({ "salary": "90210-a-year" }).to_string());
    for era in ERAS {
        let said = Arc::new(Mutex::new(text(&code)));
        let up = server(era, &said);
        let gateway = start(&up, "capture: {results: true}");
        let shown = gateway.client(era, ANA).call("work", &json!({}));
        assert!(shown.body.contains(&code), "{}", shown.body);
        let (_, exchange) = records(&gateway);
        let result = exchange["result"].as_str().unwrap();
        assert!(
            result.contains("content") && !result.contains(code.get(20..).unwrap()),
            "{result}"
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "what the gateway has written")]
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn verified(gateway: &Gateway) -> bool {
    let mut verify = std::process::Command::new(e2e::gateway::binary());
    let output = verify.args(["audit", "verify"]).arg(gateway.audit()).output().unwrap();
    output.status.success()
}

#[test]
fn what_was_tried_is_recorded_too() {
    for era in ERAS {
        let said = Arc::new(Mutex::new(text("a-quiet-word")));
        let up = server(era, &said);
        let gateway = start(&up, "capture: {arguments: true, results: true}");
        let ana = gateway.client(era, ANA);
        let _denied = ana.call("work", &json!({ "forbidden": "an-inner-thought" }));
        let record = gateway.last();
        assert_eq!((&record["outcome"], &record["rule"]), (&json!("denied"), &json!("never")));
        assert!(record["arguments"].as_str().unwrap().contains("an-inner-thought"));
        assert!(record["result"].is_null());
        // Who may do nothing at all, too.
        let _denied = gateway.client(era, BOB).call("work", &json!({ "query": "a-wish" }));
        assert!(gateway.last()["arguments"].as_str().unwrap().contains("a-wish"));
        // Prompts have arguments and results as well.
        *said.lock().unwrap() = json!({ "resultType": "complete", "messages": [{ "role": "user",
            "content": { "type": "text", "text": "a-quiet-word" } }] });
        let got =
            ana.ask("prompts/get", json!({ "name": "ask", "arguments": { "who": "a-friend" } }));
        assert!(got.json()["result"].is_object(), "{}", got.body);
        let (intent, exchange) = records(&gateway);
        assert!(intent["arguments"].as_str().unwrap().contains("a-friend"));
        assert!(exchange["result"].as_str().unwrap().contains("a-quiet-word"));
    }
}

#[test]
fn what_is_long_is_cut_and_one_alone_can_be_wanted() {
    for era in ERAS {
        let said = Arc::new(Mutex::new(text(&"\u{e4}".repeat(100_000))));
        let up = server(era, &said);
        let gateway = start(&up, "capture: {results: true, size: 1KiB}");
        let ana = gateway.client(era, ANA);
        assert!(
            ana.call("work", &json!({ "query": "an-inner-thought" })).json()["result"].is_object()
        );
        let (intent, exchange) = records(&gateway);
        assert!(intent["arguments"].is_null() && exchange["arguments"].is_null());
        assert_eq!(exchange["cut"], json!(["result"]));
        let result = exchange["result"].as_str().unwrap();
        assert!(result.starts_with('{') && result.contains('\u{e4}'), "{result}");
        let log = std::fs::read_to_string(gateway.audit()).unwrap();
        assert!(log.lines().all(|line| line.len() < 4096), "a line is longer than it may be");
        assert!(verified(&gateway));
    }
}

#[test]
fn more_than_a_record_has_room_for_cannot_be_wanted() {
    let up = server(Era::Modern, &Arc::new(Mutex::new(text(""))));
    let mut config = Config::of(&up.url());
    config.auditing = "capture: {arguments: true, size: 9KiB}".to_owned();
    let refused = config.refused();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("a record has room for 8 KiB"), "{said}");
    config.auditing = "capture: {arguments: true, size: 8KiB}".to_owned();
    config.sinks = "{name: out, stdout: true, spool: 16KiB}".to_owned();
    let refused = config.refused();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("the spool of `out` has no room for the records of a call"), "{said}");
}
