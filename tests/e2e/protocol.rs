//! The rest of the protocol follows the same rules as the tools: prompts, resources, completions,
//! methods that only the two ends know, tasks, batches, and lists that are had from memory.

use std::io::Write as _;

use e2e::client::{Client, raw};
use e2e::gateway::{ANA, BOB, Config};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era};
use serde_json::{Value, json};

fn offers() -> Value {
    json!({
        "tools": [tool("work")],
        "prompts": [{ "name": "greet" }, { "name": "secret" }],
        "resources": [{ "uri": "file:///open/a", "name": "a" }, { "uri": "file:///shut/b", "name": "b" }],
        "resourceTemplates": [
            { "uriTemplate": "file:///open/{x}", "name": "x" },
            { "uriTemplate": "file:///shut/{x}", "name": "y" },
        ],
    })
}

const RULES: &str = "rules:
- {id: read, effect: allow, principals: ['group:dev'], servers: ['*'], prompts: [greet], resources: ['file:///open/*']}
- {id: hush, effect: forbid, principals: ['group:dev'], servers: ['*'], resources: ['file:///open/.*']}";

#[test]
fn prompts_resources_and_completions_follow_the_rules() {
    for era in ERAS {
        let server = Server::offering(era, offers(), |call| match call.method() {
            "prompts/get" => json!({ "resultType": "complete", "messages": [] }),
            "completion/complete" => {
                json!({ "resultType": "complete", "completion": { "values": ["ana"] } })
            }
            _ => {
                json!({ "resultType": "complete", "contents": [], "ttlMs": 0, "cacheScope": "private" })
            }
        });
        for client_era in ERAS {
            let gateway = Config::of(&server.url()).policy(RULES).start();
            let ana = gateway.client(client_era, ANA);
            let list =
                |method: &str, list: &str, key: &str| ana.ask(method, json!({})).listed(list, key);
            assert_eq!(list("prompts/list", "prompts", "name"), ["greet"]);
            assert_eq!(list("resources/list", "resources", "uri"), ["file:///open/a"]);
            let templates = list("resources/templates/list", "resourceTemplates", "uriTemplate");
            assert_eq!(templates, ["file:///open/{x}"]);
            assert!(list("tools/list", "tools", "name").is_empty());
            let before = server.calls().len();
            let missing = if client_era == Era::Modern { -32602 } else { -32002 };
            for (method, params, code) in [
                ("prompts/get", json!({ "name": "secret" }), -32602),
                ("prompts/get", json!({ "name": "absent" }), -32602),
                ("resources/read", json!({ "uri": "file:///shut/b" }), missing),
                ("resources/read", json!({ "uri": "file:///open/.ssh" }), missing),
                (
                    "completion/complete",
                    json!({ "ref": { "type": "ref/prompt", "name": "secret" }, "argument": { "name": "x", "value": "" } }),
                    -32602,
                ),
                (
                    "completion/complete",
                    json!({ "ref": { "type": "ref/resource", "uri": "file:///shut/{x}" }, "argument": { "name": "x", "value": "" } }),
                    -32602,
                ),
                ("tools/call", json!({ "name": "work" }), -32602),
            ] {
                let answer = ana.ask(method, params.clone());
                assert_eq!(
                    (answer.status, answer.code()),
                    (200, code),
                    "{client_era:?} {method} {params}"
                );
                let record = gateway.last();
                assert_eq!(record["outcome"], "denied", "{record}");
            }
            let uses = ["prompts/get", "resources/read", "completion/complete", "tools/call"];
            let used = |calls: &[e2e::server::Call]| {
                calls.iter().filter(|call| uses.contains(&call.method())).count()
            };
            assert_eq!(used(&server.calls()[before..]), 0, "what is denied reaches no server");
            for (method, params, member) in [
                (
                    "prompts/get",
                    json!({ "name": "greet", "arguments": { "name": "ana" } }),
                    "messages",
                ),
                ("resources/read", json!({ "uri": "file:///open/a" }), "contents"),
                ("resources/read", json!({ "uri": "file:///open/not-listed" }), "contents"),
                (
                    "completion/complete",
                    json!({ "ref": { "type": "ref/prompt", "name": "greet" }, "argument": { "name": "name", "value": "a" } }),
                    "completion",
                ),
            ] {
                let answer = ana.ask(method, params.clone()).json();
                assert!(
                    answer["result"][member] != Value::Null,
                    "{client_era:?} {method}: {answer}"
                );
                let modern = client_era == Era::Modern;
                assert_eq!(answer["result"]["resultType"] == "complete", modern, "{answer}");
            }
            let record = gateway
                .recorded("the prompt", |r| r["prompt"] == "greet" && r["outcome"] == "answered");
            assert_eq!(record["rule"], "read");
        }
    }
}

#[test]
fn a_method_that_only_the_two_ends_know_passes_where_a_rule_names_it() {
    for era in ERAS {
        let server = Server::offering(
            era,
            json!({}),
            |call| json!({ "resultType": "complete", "saw": call.body["params"]["odd"] }),
        );
        let rules = "rules:
- {id: vendor, effect: allow, principals: ['group:dev'], servers: ['*'], methods: ['com.example/*']}";
        for client_era in ERAS {
            let gateway = Config::of(&server.url()).policy(rules).start();
            let ana = gateway.client(client_era, ANA);
            let answer = ana.ask("com.example/odd", json!({ "odd": [1.50, "x"] })).json();
            assert_eq!(answer["result"]["saw"], json!([1.50, "x"]), "{answer}");
            let refused = ana.ask("org.example/odd", json!({}));
            let status = if client_era == Era::Modern { 404 } else { 200 };
            assert_eq!((refused.status, refused.code()), (status, -32601));
            assert_eq!(gateway.last()["reason"], "method-not-granted");
            if client_era == Era::Legacy && era == Era::Legacy {
                for name in ["com.example/told", "org.example/told"] {
                    let body = json!({ "jsonrpc": "2.0", "method": name, "params": { "n": 1 } });
                    let answer = raw(ana.address, &ana.bytes(name, None, &body.to_string()));
                    assert_eq!(answer.status, 202);
                }
                assert_eq!(
                    (server.count("com.example/told"), server.count("org.example/told")),
                    (1, 0)
                );
            }
        }
        assert_eq!(server.count("org.example/odd"), 0);
    }
}

#[test]
fn arguments_repeated_in_headers_are_the_ones_in_the_body() {
    let schema = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" },
        "deep": { "type": "object", "properties": { "n": { "type": "integer", "x-mcp-header": "N" } } },
    }});
    let broken = json!({ "type": "object", "properties": {
        "list": { "type": "array", "items": { "type": "string", "x-mcp-header": "Item" } },
    }});
    let tools = json!([
        { "name": "work", "inputSchema": schema },
        { "name": "broken", "inputSchema": broken },
    ]);
    let server = Server::offering(
        Era::Modern,
        json!({ "tools": tools }),
        |_| json!({ "resultType": "complete", "content": [] }),
    );
    let gateway = Config::of(&server.url()).start();
    let ana = gateway.client(Era::Modern, ANA);
    assert_eq!(ana.tools(), ["work"], "an invalid annotation excludes the tool");
    let call = |headers: &str, arguments: Value| {
        let params = json!({ "name": "work", "arguments": arguments });
        let bytes = String::from_utf8(ana.call_bytes(&json!(1), &params)).unwrap();
        raw(ana.address, bytes.replacen("\r\n", &format!("\r\n{headers}"), 1).as_bytes())
    };
    let both = json!({ "region": "Hello, 世界", "deep": { "n": 42 } });
    let good = "mcp-param-region: =?base64?SGVsbG8sIOS4lueVjA==?=\r\nMCP-PARAM-N: 42.0\r\n";
    assert_eq!(call(good, both.clone()).status, 200);
    let sent = server.tool_calls().pop().unwrap().head.to_lowercase();
    assert!(
        sent.contains("mcp-param-region: =?base64?sgvsbg8s")
            && sent.contains("mcp-param-n: 42\r\n"),
        "{sent}"
    );
    let before = server.tool_calls().len();
    for (headers, arguments) in [
        ("", both.clone()),
        ("mcp-param-n: 42\r\n", both.clone()),
        ("mcp-param-region: elsewhere\r\nmcp-param-n: 42\r\n", both.clone()),
        ("mcp-param-region: a\r\nmcp-param-region: a\r\n", json!({ "region": "a" })),
        ("mcp-param-region: a\r\n", json!({})),
        ("mcp-param-region: =?base64?YR==?=\r\n", json!({ "region": "a" })),
    ] {
        let answer = call(headers, arguments);
        assert_eq!((answer.status, answer.code()), (400, -32020), "{headers}");
        assert_eq!(gateway.last()["reason"], "header-mismatch");
    }
    assert_eq!(call("mcp-param-other: x\r\n", json!({ "region": null })).status, 200);
    assert_eq!(server.tool_calls().len(), before + 1);
    // A legacy client knows nothing of the headers; the server gets them all the same.
    let old = gateway.client(Era::Legacy, ANA);
    assert_eq!(old.call("work", &json!({ "region": "eu" })).status, 200);
    assert!(
        server.tool_calls().pop().unwrap().head.to_lowercase().contains("mcp-param-region: eu\r\n")
    );
}

#[test]
fn a_list_that_is_fresh_is_had_from_memory_and_a_private_one_by_its_caller_alone() {
    for (scope, for_two) in [("public", 1), ("private", 2)] {
        let offers = json!({ "tools": [tool("work")], "ttlMs": 600_000, "cacheScope": scope });
        let server = Server::offering(Era::Modern, offers, |_| json!({}));
        let mut config = Config::of(&server.url()).policy(
            "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}",
        );
        config.limits = "catalogAge: 1ms".into();
        let gateway = config.start();
        gateway.has_read(1);
        let before = server.count("tools/list");
        for key in [ANA, BOB] {
            for era in ERAS {
                let client = gateway.client(era, key);
                let list = client.ask("tools/list", json!({}));
                assert_eq!(list.listed("tools", "name"), ["work"]);
                let list = list.json();
                if era == Era::Modern {
                    assert_eq!(list["result"]["cacheScope"], "private");
                    assert_eq!(list["result"]["ttlMs"], 600_000);
                }
                for _ in 0..3 {
                    assert_eq!(client.tools(), ["work"]);
                }
            }
        }
        let asked = server.count("tools/list") - before;
        // What is for all was read when the gateway started; what is for one, once for each caller
        // and each thing its client says it can do.
        let expected = if for_two == 1 { 0..=0 } else { 2..=4 };
        assert!(expected.contains(&asked), "{scope}: {asked}");
    }
}

#[test]
fn several_messages_in_one_body_are_for_one_revision_alone() {
    let server = Server::echo(Era::Legacy, &["work"]);
    let gateway = Config::of(&server.url()).limits("batch: 4").start();
    let mut old = gateway.client(Era::Legacy, ANA);
    old.handshake("2025-03-26");
    let call = |id: u64, tool: &str| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool } });
    let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let batch = |client: &Client, messages: &[Value]| {
        raw(client.address, &client.bytes("", None, &json!(messages).to_string()))
    };
    let before = gateway.exchanges().len();
    let answer = batch(&old, &[call(1, "work"), told.clone(), call(2, "absent"), json!(7)]).json();
    let answers = answer.as_array().unwrap();
    assert_eq!(answers.len(), 3, "{answer}");
    assert_eq!(
        (&answers[0]["id"], &answers[0]["result"]["content"][0]["text"]),
        (&json!(1), &json!("done"))
    );
    assert_eq!((&answers[1]["id"], &answers[1]["error"]["code"]), (&json!(2), &json!(-32602)));
    assert_eq!(answers[2]["error"]["code"], -32600);
    assert_eq!(gateway.exchanges().len(), before + 4, "each message has its own record");
    assert_eq!(batch(&old, &[told.clone(), told.clone()]).status, 202);
    let too_many = vec![told.clone(); 5];
    for messages in [&[][..], &too_many] {
        assert_eq!(batch(&old, messages).code(), -32600);
    }
    let new = gateway.client(Era::Legacy, ANA);
    let calls = server.tool_calls().len();
    assert_eq!(batch(&new, &[call(1, "work")]).code(), -32600);
    assert_eq!(batch(&gateway.client(Era::Modern, ANA), &[call(1, "work")]).code(), -32600);
    assert_eq!(server.tool_calls().len(), calls);
}

/// `io.modelcontextprotocol/tasks`, and the experimental tasks of 2025-11-25.
#[test]
fn a_task_is_its_callers_alone_and_its_id_says_nothing() {
    for era in ERAS {
        let server = Server::offering(
            era,
            json!({ "tools": [tool("work"), tool("shut")] }),
            move |call| {
                let task = json!({ "taskId": "upstream-task-7", "status": "working", "ttlMs": 1000, "createdAt": "x" });
                match (call.method(), era) {
                    ("tools/call", Era::Modern) => {
                        let mut result = task;
                        result["resultType"] = "task".into();
                        result
                    }
                    ("tools/call", Era::Legacy) => json!({ "task": task }),
                    ("tasks/get", _) => {
                        let mut result = task;
                        result["resultType"] = "complete".into();
                        result
                    }
                    _ => {
                        json!({ "resultType": "complete", "content": [{ "type": "text", "text": "done" }] })
                    }
                }
            },
        );
        let rules = |tools: &str| {
            format!(
                "rules:\n- {{id: open, effect: allow, principals: ['*'], servers: ['*'], tools: [{tools}]}}"
            )
        };
        let gateway = Config::of(&server.url()).policy(&rules("work")).start();
        let capabilities = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        let ana = Client::able(gateway.address, "/mcp", era, Some(ANA), &capabilities);
        let answer = ana.ask("tools/call", json!({ "name": "work", "task": {} })).json();
        let task = if era == Era::Modern { &answer["result"] } else { &answer["result"]["task"] };
        let id = task["taskId"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(!answer.to_string().contains("upstream-task-7"));
        let got = ana.ask("tasks/get", json!({ "taskId": id })).json();
        assert_eq!(got["result"]["taskId"], id, "the same task has the same id: {got}");
        let asked = server.calls().pop().unwrap().body;
        assert_eq!(asked["params"]["taskId"], "upstream-task-7");
        assert_eq!(gateway.last()["tool"], "work");
        let last = if era == Era::Modern { "tasks/update" } else { "tasks/result" };
        assert_eq!(ana.ask(last, json!({ "taskId": id })).code(), 0);
        assert_eq!(ana.ask("tasks/cancel", json!({ "taskId": id })).code(), 0);
        let before = server.calls().len();
        let bob = Client::able(gateway.address, "/mcp", era, Some(BOB), &capabilities);
        for (client, id) in [(&bob, id), (&ana, "upstream-task-7"), (&ana, id.get(1..).unwrap())] {
            assert_eq!(client.ask("tasks/get", json!({ "taskId": id })).code(), -32602);
        }
        assert_eq!(ana.ask("tasks/list", json!({})).code(), -32601);
        let asked =
            server.calls()[before..].iter().filter(|c| c.method().starts_with("tasks")).count();
        assert_eq!(asked, 0);
        if era == Era::Modern {
            // A client that does not know tasks is not given one.
            let plain = gateway.client(era, ANA);
            assert_eq!(plain.call("work", &json!({})).code(), -32603);
        }
    }
}

#[test]
fn a_server_gets_the_keys_of_meta_that_are_listed_for_it() {
    for era in ERAS {
        let server = Server::echo(era, &["work"]);
        for (setting, got) in [
            ("", ["com.example/tenant", "vendor.example/hint"].as_slice()),
            (", clientMeta: ['vendor.example/*']", &["vendor.example/hint"]),
            (", clientMeta: []", &[]),
        ] {
            let mut config = Config::of(&server.url());
            config.servers = format!("- {{name: up, url: '{}'{setting}}}", server.url());
            let gateway = config.start();
            let meta = json!({ "com.example/tenant": "admin", "vendor.example/hint": 1 });
            let params = json!({ "name": "work", "arguments": {}, "_meta": meta });
            let answer = gateway.client(era, ANA).ask("tools/call", params);
            assert_eq!(answer.code(), 0, "{answer:?}");
            let last = server.tool_calls().pop().unwrap();
            let sent = last.body["params"]["_meta"].as_object().cloned().unwrap_or_default();
            let ours = |key: &&String| key.contains(".example/");
            let sent: Vec<_> = sent.keys().filter(ours).map(String::as_str).collect();
            assert_eq!(sent, got, "{era:?} {setting}");
        }
    }
}

#[test]
fn what_a_client_says_of_itself_reaches_the_server_and_nothing_else_does() {
    for era in ERAS {
        let server = Server::offering(
            era,
            json!({ "tools": [tool("work")] }),
            |_| json!({ "resultType": "complete", "content": [] }),
        );
        let gateway = Config::of(&server.url()).start();
        let capabilities = json!({ "sampling": {}, "experimental": { "odd": { "n": 1.0 } } });
        let ana = Client::able(gateway.address, "/mcp", era, Some(ANA), &capabilities);
        assert_eq!(ana.call("work", &json!({})).status, 200);
        let calls = server.calls();
        let told = |call: &&e2e::server::Call| {
            let params = &call.body["params"];
            params["capabilities"] == capabilities
                || params["_meta"]["io.modelcontextprotocol/clientCapabilities"] == capabilities
        };
        assert!(calls.iter().any(|call| told(&call)), "{era:?}");
    }
}

/// Both transports of the wire end where the client ends them.
#[test]
fn a_client_that_takes_nothing_is_given_up() {
    let long = "x".repeat(200_000);
    let server = Server::with(Era::Modern, json!([tool("work")]), move |call, stream| {
        stream.write_all(&call.text(&long)).is_ok()
    });
    let gateway = Config::of(&server.url()).limits("writeTimeout: 200ms").start();
    let ana = gateway.client(Era::Modern, ANA);
    let mut stream = std::net::TcpStream::connect(gateway.address).unwrap();
    // Many answers, none of them read: far more than the machine keeps for a connection.
    let mut sent = 0;
    for n in 0..200 {
        if stream.write_all(&ana.call_bytes(&json!(n), &json!({ "name": "work" }))).is_err() {
            break;
        }
        sent += 1;
    }
    assert!(sent > 0);
    e2e::eventually("the connection is given up", || {
        let metrics = gateway.metrics_now();
        metrics.contains("portcullis_connections 0").then_some(())
    });
}
