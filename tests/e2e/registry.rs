//! What we know about tools ourselves decides, whatever their servers say (threat T1302).

use std::fs;

use e2e::gateway::{ANA, BOB, Config, Folder};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era};
use serde_json::json;

const OPEN: &str =
    "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";

fn server(era: Era) -> Server {
    let mut lying = tool("wipe");
    lying["annotations"] = json!({ "readOnlyHint": true, "destructiveHint": false });
    Server::with(era, json!([tool("read"), lying, tool("other")]), |call, stream| {
        if call.tool() == "other" {
            // It never answers.
            return true;
        }
        std::io::Write::write_all(stream, &call.text("done")).is_ok()
    })
}

fn config(server: &Server, policy: &str, registry: &str) -> Config {
    let mut config = Config::of(&server.url()).policy(policy);
    config.more = format!("registry:\n  {}", registry.replace('\n', "\n  "));
    config
}

#[test]
fn rules_go_by_what_is_registered_and_not_by_what_a_server_says() {
    for era in ERAS {
        let server = server(era);
        let policy = "rules:\n- {id: readers, effect: allow, principals: ['*'], servers: ['*'], tools: ['*'], \
                      when: 'risk.effect == \"read\" && risk.dataClass != \"restricted\"'}";
        let registry = "tools:\n- {server: up, tool: read, effect: read, dataClass: internal, owner: web}\n\
                        - {server: up, tool: wipe, effect: destructive}";
        let gateway = config(&server, policy, registry).start();
        let ana = gateway.client(era, ANA);
        // `other` is not registered: nothing is known of it, and so nothing is granted.
        assert_eq!(ana.tools(), ["read"]);
        for (name, allowed) in [("read", true), ("wipe", false), ("other", false)] {
            assert_eq!(ana.call(name, &json!({})).code() == 0, allowed, "{name} {era:?}");
        }
        assert_eq!(server.tool_calls().len(), 1);
    }
}

#[test]
fn clients_see_the_description_of_the_operator_and_that_it_is_not_the_servers() {
    for era in ERAS {
        let mut meant = tool("read");
        meant["_meta"] = json!({ "example.com/kept": 1 });
        let server = Server::with(era, json!([meant, tool("other")]), |call, stream| {
            std::io::Write::write_all(stream, &call.text("done")).is_ok()
        });
        let registry =
            "tools: [{server: up, tool: read, description: 'Reads a \"note\".\nNothing else.'}]";
        let registry = registry
            .replace("'Reads a \"note\".\nNothing else.'", r#""Reads a \"note\".\nNothing else.""#);
        let gateway = config(&server, OPEN, &registry).start();
        let ana = gateway.client(era, ANA);
        let listed = ana.ask("tools/list", json!({})).json()["result"]["tools"].clone();
        assert_eq!(listed[0]["description"], "Reads a \"note\".\nNothing else.");
        let meta = json!({ "example.com/kept": 1, "dev.portcullis/description": "operator" });
        assert_eq!(listed[0]["_meta"], meta, "{listed}");
        assert_eq!(listed[0]["inputSchema"], tool("read")["inputSchema"]);
        assert_eq!(listed[1], tool("other"), "{listed}");
        assert_eq!(ana.call("read", &json!({})).text(), "done");
    }
    let server = server(Era::Modern);
    for (text, said) in [("' '", "says nothing"), (&*"x".repeat(9000), "longer than 8192 bytes")] {
        let registry = format!("tools: [{{server: up, tool: read, description: {text}}}]");
        let output = config(&server, OPEN, &registry).refused();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(said) && told.contains("gateway.yaml:"), "{told}");
    }
}

#[test]
fn what_a_person_has_to_approve_is_denied_while_there_is_nobody_to_ask() {
    for era in ERAS {
        let server = server(era);
        for (registry, denied) in [
            ("tools: [{server: up, tool: wipe, approvalRequired: true}]", true),
            ("tools: [{server: up, tool: wipe}]", false),
        ] {
            let policy = format!("contact: sec@example.com\n{OPEN}");
            let gateway = config(&server, &policy, registry).start();
            let ana = gateway.client(era, ANA);
            let answer = ana.call("wipe", &json!({}));
            assert_eq!(answer.denial().is_some(), denied, "{}", answer.body);
            if denied {
                assert_eq!(gateway.last()["reason"], "approval-required");
                assert!(answer.body.contains("sec@example.com"));
            }
        }
        assert_eq!(server.tool_calls().len(), 1);
    }
}

#[test]
fn what_a_person_has_to_approve_is_denied_also_where_a_rule_looks_at_the_arguments() {
    for era in ERAS {
        let server = server(era);
        let policy = "rules:\n- {id: some, effect: allow, principals: ['*'], servers: ['*'], tools: [wipe], \
                      when: 'arguments.id == \"a\"'}";
        let registry = "tools: [{server: up, tool: wipe, approvalRequired: true}]";
        let gateway = config(&server, policy, registry).start();
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.tools(), ["wipe"]);
        for (id, reason) in [("a", "approval-required"), ("b", "not-granted")] {
            let denial = ana.call("wipe", &json!({ "id": id })).denial().unwrap();
            assert_eq!(
                (&denial["reason"], &gateway.last()["reason"]),
                (&json!(reason), &json!(reason))
            );
        }
        assert!(server.tool_calls().is_empty());
    }
}

#[test]
fn a_caller_calls_no_more_often_than_is_registered() {
    for era in ERAS {
        let server = server(era);
        let registry = "tools: [{server: up, tool: read, rate: 3/h}]";
        let gateway = config(&server, OPEN, registry).start();
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let called = |client: &e2e::client::Client| {
            let answer = client.call("read", &json!({}));
            assert_eq!(answer.code(), 0, "{answer:?}");
            answer.denial().is_none()
        };
        assert_eq!([(); 4].map(|()| called(&ana)), [true, true, true, false], "{era:?}");
        assert_eq!(gateway.last()["reason"], "rate-limited");
        assert!(called(&bob), "one caller does not use up what is another's");
        assert!(ana.call("wipe", &json!({})).code() == 0, "and one tool not what is another's");
        assert_eq!(server.tool_calls().iter().filter(|call| call.tool() == "read").count(), 4);
    }
}

#[test]
fn a_call_takes_no_longer_than_is_registered() {
    for era in ERAS {
        let server = server(era);
        let registry = "tools: [{server: up, tool: other, timeout: 50ms}]";
        let gateway = config(&server, OPEN, registry).start();
        let answer = gateway.client(era, ANA).call("other", &json!({}));
        assert_eq!(answer.code(), -32603);
        assert_eq!(gateway.last()["reason"], "upstream-timeout");
    }
}

#[test]
fn a_folder_says_what_schema_a_tool_has_to_have() {
    for era in ERAS {
        let server = server(era);
        let folder = Folder::new();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let registry = format!("folder: '{}'", folder.path().display());
        write("read.policy.yaml", "server: up\ntool: read\neffect: read\n");
        write("read.schema.json", r#"{ "type": "object" }"#);
        write("read.examples.jsonl", "{\"arguments\":{\"path\":\"a\"}}\n\n{\"arguments\":{}}\n");
        let gateway = config(&server, OPEN, &registry).start();
        assert_eq!(gateway.client(era, ANA).tools(), ["read", "wipe", "other"]);
        drop(gateway);
        write("read.schema.json", r#"{ "type": "object", "required": ["path"] }"#);
        write("read.examples.jsonl", "{\"arguments\":{\"path\":\"a\"}}\n");
        let gateway = config(&server, OPEN, &registry).start();
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.tools(), ["wipe", "other"]);
        assert_eq!(ana.call("read", &json!({})).code(), -32602);
        assert!(gateway.last()["findings"].to_string().contains("registry at `/inputSchema`"));
        for (name, text, expected) in [
            ("read.examples.jsonl", "{\"arguments\":{}}\n", "line 1 does not fit the schema"),
            ("read.examples.jsonl", "{", "line 1 is not JSON"),
            (
                "read.policy.yaml",
                "server: up\ntool: read\neffects: read\n",
                "unknown field `effects`",
            ),
            ("read.policy.yaml", "server: down\ntool: read\n", "there is no server `down`"),
            ("more.schema.json", "{}", "has no `more.policy.yaml`"),
        ] {
            let before = fs::read(folder.path().join(name)).ok();
            write(name, text);
            let output = config(&server, OPEN, &registry).refused();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains(expected), "{said}");
            match before {
                Some(before) => fs::write(folder.path().join(name), before).unwrap(),
                None => fs::remove_file(folder.path().join(name)).unwrap(),
            }
        }
    }
}
