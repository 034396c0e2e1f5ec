//! What ranks tools besides their definitions: the history of the caller, and how the servers do.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use e2e::client::{Client, raw};
use e2e::gateway::{ANA, BOB, Config, Gateway};
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
    config.start()
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
        uses(&ana, &second, &json!({}), false);
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
        ("selection: {history: {principals: 1000000}}", "must be between 1 and 100000"),
    ] {
        let mut config = Config::of(&crm.url());
        config.more = section.to_owned();
        let said = String::from_utf8(config.refused().stderr).unwrap();
        assert!(said.contains(problem), "{section}: {said}");
    }
}
