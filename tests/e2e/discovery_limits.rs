//! What calls of `find_tools` and `describe_tool` count against: the rate of the route, equal calls, budgets, and the requests
//! that a caller may have under way.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

use e2e::gateway::{ANA, BOB};
use e2e::server::Server;
use e2e::{ERAS, eventually};
use serde_json::{Value, json};

use crate::discovery::{client, config, file_tools, mail_tools, server};

#[test]
fn finding_and_describing_count_against_rates_budgets_and_equal_calls() {
    for era in ERAS {
        let mut config = config(&server(era, file_tools()), &server(era, mail_tools()));
        config.policy = config.policy.replace("['group:dev']", "['*']");
        config.routes =
            "- {path: /slow, servers: [files, mail], discovery: {mode: search, rate: 3/h}}\n\
                         - {path: /mcp, servers: [files, mail], discovery: {mode: search}}"
                .to_owned();
        config.more = "budgets:\n\
                       - {name: described, tools: [describe_tool], window: 1h, calls: 3}\n\
                       - {name: files, servers: ['*'], window: 1h, calls: 1}\n\
                       - {name: bytes, window: 1h, bytes: 2MiB}\n\
                       repeatedCalls: {limit: 2, window: 1h}"
            .to_owned();
        let gateway = config.start();
        let refusal = |path: &str, key: &str, tool: &str, text: &str| {
            let member = if tool == "find_tools" { "query" } else { "name" };
            let answer = client(&gateway, path, era, key).call(tool, &json!({ member: text }));
            let denial = answer.denial().filter(|denial| denial["reason"] != "discovery-form");
            denial.map(|denial| {
                assert!(denial["retryAfter"].as_u64().unwrap() > 0, "{denial}");
                denial["reason"].as_str().unwrap().to_owned()
            })
        };
        let limited = Some("rate-limited".to_owned());
        // Both tools have one rate, of each caller on the route.
        assert_eq!(refusal("/slow", ANA, "find_tools", "read"), None);
        assert_eq!(refusal("/slow", ANA, "describe_tool", "read_file"), None);
        assert_eq!(refusal("/slow", ANA, "find_tools", "write"), None);
        assert_eq!(refusal("/slow", ANA, "find_tools", "mail"), limited);
        assert_eq!(gateway.last()["reason"], "rate-limited");
        assert_eq!(refusal("/slow", ANA, "describe_tool", "write_file"), limited);
        assert_eq!(refusal("/slow", BOB, "find_tools", "read"), None);
        // The calls themselves do not count as such, and have the budgets of their servers, which finding has not used.
        let ana = client(&gateway, "/slow", era, ANA);
        let nested = json!({ "name": "read_file", "arguments": { "path": "a" } });
        assert_eq!(ana.call("call_read_tool", &nested).denial(), None);
        let over = ana.call("call_read_tool", &nested).denial().unwrap();
        assert_eq!(over["reason"], "budget-exceeded");
        assert_eq!(gateway.last()["budget"], "files");
        // A name that is none counts as well.
        assert_eq!(refusal("/mcp", ANA, "describe_tool", "no_such_tool"), None);
        assert_eq!(refusal("/mcp", ANA, "describe_tool", "write_file"), None);
        let spent = Some("budget-exceeded".to_owned());
        assert_eq!(refusal("/mcp", ANA, "describe_tool", "delete_file"), spent);
        let last = gateway.last();
        assert_eq!(
            (&last["tool"], &last["budget"]),
            (&json!("describe_tool"), &json!("described"))
        );
        let again: Vec<_> = (0..3).map(|_| refusal("/mcp", ANA, "find_tools", "read")).collect();
        assert_eq!(again, [None, None, Some("repeated-call".to_owned())]);
        assert_eq!(refusal("/mcp", ANA, "find_tools", "read a file"), None);
        // Bytes of answers count.
        let all = |_| refusal("/mcp", BOB, "find_tools", &"file ".repeat(400));
        assert_eq!(all(()), None);
        assert_eq!(gateway.last()["budget"], Value::Null);
    }
}

#[test]
fn finding_takes_a_place_among_the_requests_of_its_caller() {
    for era in ERAS {
        let (go, wait) = channel::<()>();
        let wait = Mutex::new(wait);
        let slow = Server::shifting(
            era,
            move |call| {
                if call.method() == "tools/list" {
                    wait.lock().unwrap().recv().unwrap_or_default();
                }
                json!({ "tools": file_tools() })
            },
            |_| json!({ "resultType": "complete", "content": [] }),
        );
        let config = config(&slow, &server(era, mail_tools()))
            .limits("inFlightPerCaller: 1\nlistTimeout: 30s");
        let gateway = config.start();
        let ana = client(&gateway, "/search", era, ANA);
        let (done, answers) = channel();
        thread::scope(|scope| {
            for query in ["read", "write"] {
                let (ana, done) = (&ana, done.clone());
                scope.spawn(move || done.send(ana.call("find_tools", &json!({ "query": query }))));
            }
            // One waits for the list, and the other finds no room.
            let refused = answers.recv_timeout(e2e::PATIENCE).unwrap();
            assert_eq!(refused.status, 429, "{refused:?}");
            assert_eq!(gateway.last()["reason"], "caller-limit-requests");
            drop(go);
            let answered = answers.recv_timeout(e2e::PATIENCE).unwrap();
            assert_eq!(answered.status, 200, "{answered:?}");
        });
        eventually("room", || {
            let again = ana.call("find_tools", &json!({ "query": "write" }));
            (again.status == 200).then_some(())
        });
    }
}
