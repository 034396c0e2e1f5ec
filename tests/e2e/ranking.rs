//! What ranks tools besides their definitions: the history of the caller, and how the servers do.

use std::fs;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use e2e::client::{Answer, Client, raw};
use e2e::gateway::{ANA, BOB, Config, Folder, Gateway};
use e2e::server::{Call, Server, answer};
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

use crate::discovery::{annotated, found, reads};

const ASKED: &str = "look up a customer";
const UNRELATED: &str = "find something by its name";
/// The tools that fit it, in the order of their definitions.
const BY_WORDS: [&str; 2] = ["crm-eu__find_customer", "tickets__find_customer"];

/// A server whose tools answer, unless it is `down`, and report an error if the arguments say `fail`. Its list holds for an
/// hour.
fn moody(era: Era, description: &str) -> (Server, Arc<AtomicBool>) {
    let down = Arc::new(AtomicBool::new(false));
    let is_down = Arc::clone(&down);
    let tools = json!([
        annotated("find_customer", description, &reads(), &["name"]),
        annotated("secret_customer", "Finds a secret customer.", &reads(), &["name"]),
    ]);
    let offers = json!({ "tools": tools, "ttlMs": 3_600_000, "cacheScope": "public" });
    let offers = move |_: &Call| offers.clone();
    let server = Server::answering(era, offers, move |call, stream| {
        let arguments = call.body["params"]["arguments"].to_string();
        let bytes = match (is_down.load(Ordering::SeqCst), arguments.contains("fail")) {
            (true, _) => answer("503 Not Now", "text/plain", "no"),
            (false, true) => {
                let content = json!([{ "type": "text", "text": "failed" }]);
                call.result(&json!({ "content": content, "isError": true }))
            }
            (false, false) => call.text("done"),
        };
        stream.write_all(&bytes).is_ok()
    });
    (server, down)
}

fn gateway(crm: &Server, tickets: &Server, more: &str) -> Gateway {
    config(crm, tickets, more).start()
}

fn config(crm: &Server, tickets: &Server, more: &str) -> Config {
    let servers = format!(
        "- {{name: crm-eu, url: '{}', circuitBreaker: {{failures: 3, openFor: 1s}}}}\n\
         - {{name: tickets, url: '{}', circuitBreaker: {{failures: 3, openFor: 1s}}}}",
        crm.url(),
        tickets.url()
    );
    let mut config = Config::with(&servers, "[crm-eu, tickets]").policy(
        "rules:\n- {id: find, effect: allow, principals: ['*'], servers: ['*'], tools: [find_customer]}\n\
         - {id: ops, effect: allow, principals: ['group:ops'], servers: ['*'], tools: [secret_customer]}",
    );
    config.routes =
        "- {path: /mcp, servers: [crm-eu, tickets], prefix: always, discovery: {mode: search}}"
            .to_owned();
    config.more = more.to_owned();
    config
}

/// An answer of `find_tools`, byte for byte.
fn exactly(client: &Client, query: &str) -> String {
    let params = json!({ "name": "find_tools", "arguments": { "query": query } });
    let answer = raw(client.address, &client.call_bytes(&json!(7), &params));
    format!("{} {}", answer.status, answer.message())
}

/// Calls a tool through the gateway's, or directly.
fn uses(client: &Client, name: &str, arguments: &Value, through: bool) {
    let answer = match through {
        true => client.call("call_read_tool", &json!({ "name": name, "arguments": arguments })),
        false => client.call(name, arguments),
    };
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn what_a_caller_used_it_finds_first_and_nobody_else_does() {
    for era in ERAS {
        let [crm, tickets] = [(); 2].map(|()| moody(era, "Finds a customer by name.").0);
        let gateway = gateway(&crm, &tickets, "selection: {history: {mode: on}}");
        let [ana, bob, twin] = [ANA, BOB, ANA].map(|key| gateway.client(era, key));
        let by_words = found(&ana, ASKED);
        let [first, second] = [0, 1].map(|place| by_words[place].clone());
        let unrelated = found(&ana, UNRELATED);
        let requests = [ASKED, "customer", UNRELATED, "send a mail"];
        let of_bob = || requests.map(|request| exactly(&bob, request));
        // What an answer did not have, and what nobody asked for, counts for nothing.
        let _asked = found(&ana, ASKED);
        uses(&ana, &second, &json!({}), false);
        let _asked = of_bob();
        uses(&bob, &first, &json!({}), true);
        let before_use = of_bob();
        assert_eq!(found(&ana, ASKED)[0], second, "it was called after the request");
        assert_eq!(found(&ana, UNRELATED), unrelated);
        assert_eq!(gateway.metric("portcullis_selection_history_total{outcome=\"succeeded\"}"), 2);
        for through in [true, false, true] {
            let _asked = found(&ana, "look up customers");
            uses(&ana, &second, &json!({ "name": "x" }), through);
        }
        assert_eq!(found(&ana, "please look up a customer")[0], second);
        // A tool that fails falls behind again.
        for _ in 0..8 {
            let _asked = found(&ana, ASKED);
            uses(&ana, &second, &json!({ "name": "fail" }), true);
            let _asked = found(&ana, ASKED);
            uses(&ana, &first, &json!({ "name": "x" }), true);
        }
        assert_eq!(found(&ana, ASKED)[0], first);
        // In another session as well: the history is that of the principal.
        assert_eq!(found(&twin, ASKED), found(&ana, ASKED));
        assert_eq!(of_bob(), before_use, "the history of another one changes no byte");
        let hidden = ana.call("crm-eu__secret_customer", &json!({}));
        assert!(hidden.code() != 0 || hidden.denial().is_some(), "{hidden:?}");
        assert!(!exactly(&ana, "secret customer").contains("secret_customer"));
    }
}

#[test]
fn without_a_history_nothing_is_learned_and_weights_rank() {
    for era in ERAS {
        let (crm, _) = moody(era, "Finds a customer by name.");
        let (tickets, _) = moody(era, "Finds a customer of a ticket by the name of the ticket.");
        let weighed =
            "selection: {weights: {history: 10, words: 0, similarWords: 0, direction: 1}}";
        let [plain, weighed] = ["", weighed].map(|more| gateway(&crm, &tickets, more));
        for gateway in [plain, weighed] {
            let ana = gateway.client(era, ANA);
            let before = exactly(&ana, ASKED);
            for name in BY_WORDS.iter().rev().cycle().take(3) {
                let _asked = found(&ana, ASKED);
                uses(&ana, name, &json!({}), true);
            }
            assert_eq!(exactly(&ana, ASKED), before);
        }
    }
}

#[test]
fn a_tool_whose_server_fails_ranks_behind_an_equal_one_until_it_is_back() {
    // A server before the later revision is asked for its list each time, and is left out while it cannot be asked.
    let servers = [(); 2].map(|()| moody(Era::Modern, "Finds a customer by name."));
    let [crm, tickets] = &servers;
    for era in ERAS {
        let gateway = gateway(&crm.0, &tickets.0, "");
        let [ana, bob] = [ANA, BOB].map(|key| gateway.client(era, key));
        let usual = found(&ana, ASKED);
        let place = usize::from(usual[0] == "tickets__find_customer");
        let down = &servers[place].1;
        let call = || ana.call(&usual[0], &json!({}));
        assert_eq!(call().text(), "done");
        down.store(true, Ordering::SeqCst);
        let _failed = call();
        let behind = |client: &Client| {
            let names = found(client, ASKED);
            let place = |name| names.iter().position(|known| known == name);
            place(&usual[0]) > place(&usual[1]) && names.len() >= 2
        };
        assert!(behind(&ana), "a call of it failed");
        (0..6).for_each(|_| drop(call()));
        let open = "portcullis_circuit_breaker_open{server=";
        assert!(
            gateway.metrics().lines().any(|line| line.starts_with(open) && line.ends_with(" 1"))
        );
        assert!(behind(&ana) && behind(&bob), "it is found all the same");
        down.store(false, Ordering::SeqCst);
        eventually("it answers again", || (call().text() == "done").then_some(()));
        // Many answers outweigh few failures.
        eventually("it is as good as before", || {
            (0..20).for_each(|_| assert_eq!(call().text(), "done"));
            (found(&ana, ASKED) == usual).then_some(())
        });
    }
}

#[test]
fn weights_out_of_range_are_refused() {
    let (crm, _) = moody(Era::Modern, "Finds a customer by name.");
    for (section, problem) in [
        ("selection: {weights: {words: 11}}", "must be between 0 and 10"),
        ("selection: {weights: {close: -0.1}}", "must be between 0 and 1"),
        (
            "selection: {weights: {words: 0, similarWords: 0, direction: 0}}",
            "no score of a definition counts",
        ),
        ("selection: {history: {halfLife: 1s}}", "nothing would be remembered"),
        ("selection: {history: {window: 2d}}", "longer than 1day"),
        ("selection: {history: {entries: 0}}", "must be between 1 and 1000"),
        ("selection: {history: {principals: 100000}}", "are more than 1000000"),
        ("selection: {history: {principals: 1000000}}", "must be between 1 and 100000"),
    ] {
        let mut config = Config::of(&crm.url());
        config.more = section.to_owned();
        let said = String::from_utf8(config.refused().stderr).unwrap();
        assert!(said.contains(problem), "{section}: {said}");
    }
}

#[test]
fn records_have_requests_only_where_the_configuration_says_so() {
    let (crm, _) = moody(Era::Legacy, "Finds a customer by name.");
    let (tickets, _) = moody(Era::Legacy, "Finds a customer by name.");
    let secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
    let asked = format!("look up a customer with {secret} or the card 4539 1488 0343 6467");
    for era in ERAS {
        for (section, is_recorded) in
            [("", false), ("selection: {history: {record: queries}}", true)]
        {
            let gateway = gateway(&crm, &tickets, section);
            let ana = gateway.client(era, ANA);
            let names = found(&ana, &asked);
            let record = gateway.last();
            assert_eq!(record["tool"], "find_tools");
            if !is_recorded {
                assert!(record["query"].is_null() && record["tools"].is_null(), "{record}");
                continue;
            }
            let query = record["query"].as_str().unwrap();
            assert!(query.starts_with("look up a customer with "), "{query}");
            assert!(!query.contains(secret) && !query.contains("6467"), "{query}");
            assert_eq!(record["tools"], json!(names));
            let _long = found(&ana, &"customer ".repeat(200));
            assert!(gateway.last()["query"].as_str().unwrap().len() <= 256);
            uses(&ana, &names[0], &json!({}), true);
            assert!(gateway.last()["query"].is_null());
        }
    }
}

/// Asks the operator's listener how tools are ranked.
fn ranking(gateway: &Gateway, token: &str, body: &Value) -> Answer {
    let body = body.to_string();
    let head =
        format!("POST /select HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n");
    let text = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    raw(gateway.ops.unwrap(), text.as_bytes())
}

#[test]
fn an_operator_sees_how_tools_are_ranked_for_a_caller_and_why() {
    let (crm, down) = moody(Era::Modern, "Finds a customer by name.");
    let (tickets, _) = moody(Era::Modern, "Finds a customer by name.");
    let folder = Folder::new();
    fs::write(folder.path().join("token"), "operator-secret").unwrap();
    let token = folder.path().join("token");
    let mut config = config(&crm, &tickets, "selection: {history: {mode: on}}");
    config.ops = format!("{{address: '127.0.0.1:0', token: {{fromFile: '{}'}}}}", token.display());
    let gateway = config.start();
    gateway.has_read(2);
    let asked = json!({
        "principal": "ana", "route": "/mcp", "query": ASKED, "limit": 5, "explain": true,
    });
    let report = |body: &Value| ranking(&gateway, "operator-secret", body).json();
    let names = |report: &Value| -> Vec<String> {
        let tools = report["tools"].as_array().unwrap_or_else(|| panic!("{report}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    for era in ERAS {
        let ana = gateway.client(era, ANA);
        let used = found(&ana, ASKED)[1].clone();
        uses(&ana, &used, &json!({ "name": "x" }), true);
        let shown = report(&asked);
        // The same order as the caller sees.
        assert_eq!(names(&shown), found(&ana, ASKED), "{shown}");
        let of_used = shown["tools"].as_array().unwrap().iter().find(|one| one["name"] == used);
        assert!(of_used.unwrap()["signals"]["history"].as_f64().unwrap() > 0.0, "{shown}");
    }
    let shown = report(&asked);
    let first = &shown["tools"][0];
    assert!(first["scores"]["direction"].is_number() && first["matches"][0]["found"].is_string());
    assert_eq!((&shown["missing"], &first["signals"]["available"]), (&json!([]), &json!(1.0)));
    down.store(true, Ordering::SeqCst);
    let ana = gateway.client(Era::Modern, ANA);
    (0..3).for_each(|_| drop(ana.call(BY_WORDS[0], &json!({}))));
    let shown = report(&asked);
    let tools = shown["tools"].as_array().unwrap();
    let crm = tools.iter().find(|tool| tool["server"] == "crm-eu").unwrap();
    assert!(crm["signals"]["available"].as_f64().unwrap() < 0.6, "{shown}");
    // What the caller may not use does not appear, and what it may does.
    let hidden = |caller: Value| {
        let mut body = json!({ "principal": "ana", "route": "/mcp", "query": "secret customer" });
        body.as_object_mut().unwrap().extend(caller.as_object().unwrap().clone());
        names(&report(&body)).iter().any(|name| name.ends_with("secret_customer"))
    };
    assert!(!hidden(json!({})) && hidden(json!({ "principal": "bob" })));
    assert!(hidden(json!({ "principal": "somebody", "groups": ["ops"] })));
    assert!(!hidden(json!({ "principal": "somebody" })));
    let plain = report(&json!({ "principal": "ana", "route": "/mcp", "query": ASKED }));
    assert!(plain["tools"][0]["signals"].is_null() && plain["tools"][0]["score"].is_number());
    refuses_what_is_no_question(&gateway, &asked);
}

/// Without the token nobody learns anything, and bodies are read strictly.
fn refuses_what_is_no_question(gateway: &Gateway, asked: &Value) {
    assert_eq!(ranking(gateway, "wrong", asked).status, 401);
    for (member, value, status) in [
        ("route", json!("/none"), 404),
        ("route", json!(7), 400),
        ("limit", json!(0), 400),
        ("limit", json!(51), 400),
        ("query", json!("x".repeat(2049)), 400),
        ("groups", json!("ops"), 400),
        ("principal", json!(""), 400),
        ("other", json!(1), 400),
    ] {
        let mut body = asked.clone();
        body[member] = value;
        let answer = ranking(gateway, "operator-secret", &body);
        assert_eq!(answer.status, status, "{member}: {}", answer.body);
    }
}
