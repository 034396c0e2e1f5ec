//! Several servers behind one path: each thing has one name there, and leads to one server.

use std::io::Write as _;

use e2e::client::Client;
use e2e::gateway::{ANA, Config};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era};
use serde_json::{Value, json};

const ALL: &str = "rules:
- {id: open, effect: allow, principals: ['group:dev'], servers: ['*'], tools: ['*'], prompts: ['*'], resources: ['*']}";

/// A server that says its name in everything it answers.
fn server(era: Era, name: &'static str, tools: &[&str]) -> Server {
    let tools: Vec<_> = tools.iter().map(|name| tool(name)).collect();
    let offers = json!({
        "tools": tools, "prompts": [{ "name": "greet" }],
        "resources": [{ "uri": "note://a", "name": "a" }],
        "resourceTemplates": [{ "uriTemplate": "note://{x}", "name": "x" }],
    });
    Server::offering(era, offers, move |call| match call.method() {
        "tools/call" => json!({ "resultType": "complete", "content": [
            { "type": "text", "text": name },
            { "type": "resource_link", "uri": "note://a", "name": "a" },
            { "type": "resource", "resource": { "uri": "note://b", "text": "note://c" } },
        ] }),
        "resources/read" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "contents": [{ "uri": call.body["params"]["uri"], "text": name }],
        }),
        "prompts/get" => json!({ "resultType": "complete", "description": name, "messages": [
            { "role": "user", "content": { "type": "resource_link", "uri": "note://a", "name": "a" } },
        ] }),
        _ => json!({ "resultType": "complete", "completion": { "values": [name] } }),
    })
}

fn config(one: &Server, two: &Server, prefix: &str) -> Config {
    let servers =
        format!("- {{name: one, url: '{}'}}\n- {{name: My_two, url: '{}'}}", one.url(), two.url());
    let mut config = Config::with(&servers, "[one, My_two]").policy(ALL);
    config.routes = format!("- {{path: /mcp, servers: [one, My_two], prefix: {prefix}}}");
    config
}

#[test]
fn tools_have_the_names_the_route_gives_them_and_lead_to_one_server() {
    for era in ERAS {
        // One server of each era: a route does not mind.
        let one = server(Era::Legacy, "one", &["read", "only-one", "a.b"]);
        let two = server(Era::Modern, "two", &["read", "x__y"]);
        let long = "l".repeat(128);
        for (prefix, expected) in [
            (
                "always",
                vec![
                    ("one__read", "one"),
                    ("one__only-one", "one"),
                    ("one__a_b_*", "one"),
                    ("My_two__read", "two"),
                    ("My_two__x__y", "two"),
                ],
            ),
            (
                "onConflict",
                vec![
                    ("one__read", "one"),
                    ("only-one", "one"),
                    ("a.b", "one"),
                    ("My_two__read", "two"),
                    ("My_two__x__y", "two"),
                ],
            ),
            ("never", vec![("only-one", "one"), ("a.b", "one"), ("x__y", "two")]),
        ] {
            let gateway = config(&one, &two, prefix).start();
            let ana = gateway.client(era, ANA);
            let tools = ana.tools();
            assert_eq!(tools.len(), expected.len(), "{prefix}: {tools:?}");
            for (shown, (name, answers)) in tools.iter().zip(&expected) {
                assert!(
                    shown == name || name.strip_suffix('*').is_some_and(|n| shown.starts_with(n)),
                    "{shown} {name}"
                );
                let answer = ana.call(shown, &json!({})).json();
                assert_eq!(
                    answer["result"]["content"][0]["text"], *answers,
                    "{prefix} {shown}: {answer}"
                );
            }
            let before = one.tool_calls().len() + two.tool_calls().len();
            let other: &[&str] = match prefix {
                "always" => &[
                    "read",
                    "only-one",
                    "a.b",
                    "one__a.b",
                    "two__read",
                    "my_two__read",
                    "one__",
                    "__read",
                ],
                "onConflict" => &["read", "one__only-one", "x__y", "My_two__only-one"],
                _ => &["read", "one__read", "My_two__read", "one__only-one"],
            };
            for name in other.iter().copied().chain([long.as_str()]) {
                let answer = ana.call(name, &json!({}));
                assert_eq!((answer.status, answer.code()), (200, -32602), "{prefix} {name}");
            }
            assert_eq!(one.tool_calls().len() + two.tool_calls().len(), before);
        }
    }
}

#[test]
fn resources_prompts_and_completions_find_their_server_and_their_way_back() {
    for era in ERAS {
        let (one, two) = (server(Era::Modern, "one", &["t"]), server(Era::Legacy, "two", &["t"]));
        let gateway = config(&one, &two, "always").start();
        let ana = gateway.client(era, ANA);
        let resources = ana.ask("resources/list", json!({}));
        assert_eq!(resources.listed("resources", "uri"), ["one+note://a", "my-two+note://a"]);
        let templates = ana.ask("resources/templates/list", json!({}));
        assert_eq!(
            templates.listed("resourceTemplates", "uriTemplate"),
            ["one+note://{x}", "my-two+note://{x}"]
        );
        let read = ana.ask("resources/read", json!({ "uri": "MY-TWO+note://z" })).json();
        assert_eq!(
            read["result"]["contents"][0],
            json!({ "uri": "my-two+note://z", "text": "two" })
        );
        assert_eq!(
            ana.ask("resources/read", json!({ "uri": "note://a" })).json()["result"],
            Value::Null
        );
        let called = ana.call("one__t", &json!({})).json();
        assert_eq!(called["result"]["content"][1]["uri"], "one+note://a", "{called}");
        assert_eq!(
            called["result"]["content"][2]["resource"],
            json!({ "uri": "one+note://b", "text": "note://c" })
        );
        let prompt = ana.ask("prompts/get", json!({ "name": "My_two__greet" })).json();
        assert_eq!(prompt["result"]["description"], "two", "{prompt}");
        assert_eq!(prompt["result"]["messages"][0]["content"]["uri"], "my-two+note://a");
        for (reference, answers) in [
            (json!({ "type": "ref/prompt", "name": "one__greet" }), "one"),
            (json!({ "type": "ref/resource", "uri": "my-two+note://{x}" }), "two"),
        ] {
            let params = json!({ "ref": reference, "argument": { "name": "x", "value": "" } });
            let completed = ana.ask("completion/complete", params).json();
            assert_eq!(completed["result"]["completion"]["values"][0], answers, "{completed}");
        }
    }
}

#[test]
fn a_server_that_is_late_is_left_out_and_the_list_says_so() {
    for era in ERAS {
        let one = server(Era::Modern, "one", &["read"]);
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = std::sync::Mutex::new(held);
        let silent = Server::start(move |call, stream| {
            if call.method() == "tools/list" {
                // Until the test is over.
                return held.lock().unwrap().recv().is_ok();
            }
            let result = json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } });
            stream.write_all(&call.result(&result)).is_ok()
        });
        let config =
            Config { limits: "listTimeout: 300ms".into(), ..config(&one, &silent, "always") };
        let gateway = config.start();
        let ana = gateway.client(era, ANA);
        let answer = ana.ask("tools/list", json!({}));
        assert_eq!(answer.listed("tools", "name"), ["one__read"]);
        let answer = answer.json();
        assert_eq!(
            answer["result"]["_meta"]["dev.portcullis/partial"],
            json!(["My_two"]),
            "{answer}"
        );
        if era == Era::Modern {
            assert_eq!(answer["result"]["ttlMs"], 0);
        }
        assert_eq!(gateway.last()["reason"], "partial");
        let metrics = gateway.metrics();
        assert!(metrics.contains("portcullis_list_servers_missing_total 1"), "{metrics}");
        assert_eq!(ana.call("one__read", &json!({})).json()["result"]["content"][0]["text"], "one");
        drop(hold);
    }
}

/// Where names depend on those of other servers, one of these that does not answer is waited for once, not for each call.
#[test]
fn calls_do_not_wait_for_the_list_of_another_server_again_and_again() {
    for (era, prefix) in ERAS.into_iter().flat_map(|era| [(era, "onConflict"), (era, "never")]) {
        let one = server(Era::Modern, "one", &["read"]);
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = std::sync::Mutex::new(held);
        let silent = Server::start(move |call, stream| {
            if call.method() == "tools/list" || call.method() == "prompts/list" {
                // Until the test is over.
                return held.lock().unwrap().recv().is_ok();
            }
            let result = json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": { "tools": {}, "prompts": {} } });
            stream.write_all(&call.result(&result)).is_ok()
        });
        let config =
            Config { limits: "listTimeout: 300ms".into(), ..config(&one, &silent, prefix) };
        let gateway = config.start();
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.call("read", &json!({})).text(), "one");
        let asked = silent.count("tools/list");
        for _ in 0..10 {
            assert_eq!(ana.call("read", &json!({})).text(), "one");
        }
        // One more if ten seconds have passed.
        assert!(silent.count("tools/list") <= asked + 1, "{era:?} {prefix}");
        // A name that no other server has may be one of its.
        assert_ne!(ana.call("elsewhere", &json!({})).code(), 0);
        assert!(silent.count("tools/list") > asked, "{era:?} {prefix}");
        drop(hold);
    }
}

#[test]
fn a_server_that_answers_nothing_does_not_hold_up_the_handshake_of_the_others() {
    for era in ERAS {
        let one = server(Era::Modern, "one", &["read"]);
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = std::sync::Mutex::new(held);
        // Until the test is over.
        let silent = Server::start(move |_, _| held.lock().unwrap().recv().is_ok());
        let config =
            Config { limits: "listTimeout: 300ms".into(), ..config(&one, &silent, "always") };
        let gateway = config.start();
        let caller = Client::silent(
            gateway.address,
            "/mcp",
            era,
            &[("authorization", &format!("Bearer {ANA}"))],
        );
        let told = match era {
            Era::Modern => caller.ask("server/discover", json!({})),
            Era::Legacy => caller.hello(),
        };
        assert_eq!(told.code(), 0, "{told:?}");
        assert!(told.json()["result"]["capabilities"]["tools"].is_object(), "{told:?}");
        assert_eq!(gateway.client(era, ANA).call("one__read", &json!({})).text(), "one");
        drop(hold);
    }
}

/// A legacy client tells all servers of its route the log level.
#[test]
fn one_of_several_servers_that_does_not_take_a_log_level_is_not_waited_for_long() {
    let one = server(Era::Legacy, "one", &["read"]);
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let silent = Server::with(Era::Legacy, json!([tool("other")]), move |call, stream| {
        if call.method() == "logging/setLevel" {
            // Until the test is over.
            return held.lock().unwrap().recv().is_ok();
        }
        stream.write_all(&call.text("done")).is_ok()
    });
    // The server may take a minute for a call.
    let config = Config { limits: "listTimeout: 300ms".into(), ..config(&one, &silent, "always") };
    let gateway = config.start();
    let ana = gateway.client(Era::Legacy, ANA);
    let answer = ana.ask("logging/setLevel", json!({ "level": "info" }));
    assert!(answer.json()["result"].is_object(), "{answer:?}");
    gateway.says("server.log_level_failed");
    drop(hold);
}

#[test]
fn servers_whose_names_are_alike_in_uris_do_not_share_a_route() {
    let one = server(Era::Modern, "one", &[]);
    let servers = format!("- {{name: a_b, url: '{0}'}}\n- {{name: A-b, url: '{0}'}}", one.url());
    let refused = Config::with(&servers, "[a_b, A-b]").refused();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("too like the name of another"), "{said}");
}
