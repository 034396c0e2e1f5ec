//! What tools are called on a route: stable when servers are added, said to the operator, and told before it
//! changes.

use e2e::client::Client;
use e2e::gateway::{ANA, Config, Folder, Gateway};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era};
use serde_json::{Value, json};

const ALL: &str = "rules:
- {id: open, effect: allow, principals: ['group:dev'], servers: ['*'], tools: ['*'], prompts: ['*'], resources: ['*']}";

/// A server that says its name in everything it answers.
fn server(era: Era, name: &'static str, tools: &[&str]) -> Server {
    let tools: Vec<_> = tools.iter().map(|name| tool(name)).collect();
    let offers = json!({ "tools": tools, "resources": [{ "uri": "note://a", "name": "a" }] });
    Server::offering(era, offers, move |call| match call.method() {
        "resources/read" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "contents": [{ "uri": call.body["params"]["uri"], "text": name }],
        }),
        _ => json!({ "resultType": "complete", "content": [{ "type": "text", "text": name }] }),
    })
}

/// Both servers, on a route with these members.
fn config(one: &Server, two: &Server, route: &str) -> Config {
    let servers =
        format!("- {{name: one, url: '{}'}}\n- {{name: two, url: '{}'}}", one.url(), two.url());
    let mut config = Config::with(&servers, "[one]").policy(ALL);
    config.routes = format!("- {{path: /mcp, {route}}}");
    config
}

/// Waits until the configuration that was written is in force.
fn reloaded(gateway: &Gateway) {
    gateway.hang_up();
    gateway.says("configuration applied");
}

fn calls(client: &Client, tool: &str) -> Value {
    client.call(tool, &json!({})).json()["result"]["content"][0]["text"].clone()
}

fn uris(client: &Client) -> Vec<String> {
    client.ask("resources/list", json!({})).listed("resources", "uri")
}

fn reads(client: &Client, uri: &str) -> Value {
    let answer = client.ask("resources/read", json!({ "uri": uri })).json();
    answer["result"]["contents"][0]["text"].clone()
}

#[test]
fn a_server_that_is_added_behind_the_first_renames_nothing() {
    for era in ERAS {
        let (one, two) = (server(era, "one", &["add"]), server(era, "two", &["add"]));
        let folder = Folder::new();
        let file = folder.path().join("gateway.yaml");
        let gateway = config(&one, &two, "servers: [one]").start_at(&file);
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.tools(), ["add"]);
        assert_eq!(uris(&ana), ["note://a"]);
        config(&one, &two, "servers: [one, two]").write(&file, gateway.audit());
        reloaded(&gateway);
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.tools(), ["add", "two__add"]);
        assert_eq!((calls(&ana, "add"), calls(&ana, "two__add")), (json!("one"), json!("two")));
        assert_eq!(ana.call("one__add", &json!({})).code(), -32602);
        assert_eq!(uris(&ana), ["note://a", "two+note://a"]);
        assert_eq!(
            (reads(&ana, "note://a"), reads(&ana, "two+note://a")),
            (json!("one"), json!("two"))
        );
        assert!(gateway.records().iter().all(|record| record["event"] != "renamed"));
    }
}

#[test]
fn one_server_has_prefixed_names_where_that_is_asked_for() {
    for era in ERAS {
        let (one, two) = (server(era, "one", &["add"]), server(era, "two", &["add"]));
        let gateway = config(&one, &two, "servers: [one], prefix: always").start();
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.tools(), ["one__add"]);
        assert_eq!(calls(&ana, "one__add"), "one");
        assert_eq!(ana.call("add", &json!({})).code(), -32602);
        assert_eq!(uris(&ana), ["one+note://a"]);
        assert_eq!(reads(&ana, "one+note://a"), "one");
        assert_eq!(one.tool_calls().len(), 1);
    }
}

#[test]
fn a_name_of_the_first_server_that_looks_like_one_of_another_is_told_apart() {
    for era in ERAS {
        let one = server(era, "one", &["two__add", "add"]);
        let two = server(era, "two", &["add"]);
        let gateway = config(&one, &two, "servers: [one, two]").start();
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.tools(), ["one__two__add", "add", "two__add"]);
        assert_eq!(
            (calls(&ana, "two__add"), calls(&ana, "one__two__add")),
            (json!("two"), json!("one"))
        );
        assert_eq!((one.tool_calls().len(), two.tool_calls().len()), (1, 1));
    }
}

#[test]
fn a_change_of_names_is_told_before_it_takes_effect() {
    for era in ERAS {
        let (one, two) = (server(era, "one", &["add"]), server(era, "two", &["add"]));
        let folder = Folder::new();
        let file = folder.path().join("gateway.yaml");
        let gateway = config(&one, &two, "servers: [one, two]").start_at(&file);
        config(&one, &two, "servers: [two, one]").write(&file, gateway.audit());
        reloaded(&gateway);
        let records = gateway.records();
        let events: Vec<_> =
            records.iter().map(|record| record["event"].as_str().unwrap()).collect();
        let applied = events.iter().position(|event| *event == "applied").unwrap();
        assert_eq!(events[applied - 2..applied], ["renamed", "renamed"], "{events:?}");
        let what = "route /mcp: names change: tools of `one` are named `one__NAME` (before: tools of `one` keep their names)";
        assert_eq!(records[applied - 2]["what"], what);
        gateway.says(what);
        assert_eq!(gateway.client(era, ANA).tools(), ["add", "one__add"]);
    }
}

#[test]
fn names_in_force_are_said_at_the_start_and_by_the_verbs() {
    let (one, two) = (server(Era::Modern, "one", &["add"]), server(Era::Modern, "two", &["add"]));
    let config = config(&one, &two, "servers: [one, two]");
    let folder = Folder::new();
    let file = folder.path().join("gateway.yaml");
    let gateway = config.start_at(&file);
    let verb = |arguments: &[&str]| {
        let output = config.tried(arguments);
        [output.stdout, output.stderr]
            .map(|said| String::from_utf8_lossy(&said).into_owned())
            .concat()
    };
    let mut validate = std::process::Command::new(e2e::gateway::binary());
    validate.args(["validate", "--elsewhere"]).arg(&file);
    let validate = String::from_utf8(e2e::gateway::fed(validate, "").stderr).unwrap();
    let (show, plan) = (verb(&["config", "show"]), verb(&["run", "--dry-run"]));
    let log = gateway.says("route /mcp: tools of `two` are named");
    for said in [log, validate, show, plan] {
        for what in [
            "route /mcp: tools of `one` keep their names",
            "route /mcp: tools of `two` are named `two__NAME`",
        ] {
            assert!(said.contains(what), "{what}\n{said}");
        }
    }
}
