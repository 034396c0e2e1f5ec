//! Decoys: tools that no server has, and values that nobody has a reason to send (control C35).

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::canary::{self, Side};
use e2e::client::{Answer, Client, raw};
use e2e::gateway::{ANA, BOB, Config, Folder, Gateway, printed};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

const OPEN: &str = "contact: sec@example.com\nrules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], \
                    tools: ['*'], prompts: ['*'], resources: ['*']}";
/// A value that nobody has a reason to send.
const HONEY: &str = "hny7QxV2mK9pLw4Zt8Rb";

/// A server with a tool that gives its text back, one that never answers, and one that gives away a honeytoken.
fn server(era: Era) -> Server {
    let tools = ["read", "wait", "leak"].map(tool);
    Server::with(era, json!(tools), |call, stream| {
        let text = call.body["params"]["arguments"]["text"].as_str().unwrap_or("done");
        match call.tool() {
            "wait" => true,
            "leak" => stream.write_all(&call.text(&format!("the key is {HONEY}."))).is_ok(),
            _ => stream.write_all(&call.text(text)).is_ok(),
        }
    })
}

fn config(server: &Server, decoys: &str) -> Config {
    let mut config = Config::of(&server.url()).policy(OPEN);
    config.more = format!("decoys:\n  {}", decoys.replace('\n', "\n  "));
    config
}

/// The same with an operator.
fn operated(server: &Server, folder: &Folder, decoys: &str) -> Config {
    let token = folder.path().join("token");
    fs::write(&token, "operator-secret").unwrap();
    let mut config = config(server, decoys);
    config.ops = format!("{{address: '127.0.0.1:0', token: {{fromFile: '{}'}}}}", token.display());
    config
}

/// Runs a verb against the running gateway.
fn verb(config: &Config, gateway: &Gateway, arguments: &[&str]) -> String {
    let ops = gateway.ops.unwrap().to_string();
    let mut all = arguments.to_vec();
    all.extend(["--ops", &ops]);
    let done = config.tried(&all);
    assert!(done.status.success(), "{}", printed(&done));
    printed(&done)
}

/// An answer without its id.
fn without_id(answer: &Answer) -> (u16, Value) {
    let mut body = answer.json();
    body["id"] = Value::Null;
    (answer.status, body)
}

fn findings(record: &Value) -> String {
    record["findings"].to_string() + &record["found"].to_string()
}

fn is_served(client: &Client) -> bool {
    client.call("read", &json!({})).status == 200
}

#[test]
fn a_decoy_is_shown_to_whom_it_is_for_and_a_call_of_it_reaches_no_server() {
    for era in ERAS {
        let server = server(era);
        let decoys = "tools:
- {server: up, name: export_all_credentials, description: Exports all credentials.}
- server: up
  name: grant_admin
  description: Makes somebody an administrator.
  shownTo: ['group:dev']
  inputSchema: {type: object, required: [user], properties: {user: {type: string}}}";
        let gateway = config(&server, decoys).start();
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        assert_eq!(ana.tools(), ["read", "wait", "leak", "grant_admin"], "{era:?}");
        assert_eq!(bob.tools(), ["read", "wait", "leak"]);
        let listed = ana.ask("tools/list", json!({})).json();
        assert_eq!(
            listed["result"]["tools"][3],
            json!({
                "name": "grant_admin", "description": "Makes somebody an administrator.",
                "inputSchema": { "type": "object", "required": ["user"], "properties": { "user": { "type": "string" } } },
            })
        );
        let unknown = without_id(&ana.call("no_such_tool", &json!({})));
        for (name, client) in [("grant_admin", &ana), ("export_all_credentials", &bob)] {
            let answer = client.call(name, &json!({ "user": "eve" }));
            assert_eq!(without_id(&answer), unknown, "a decoy looks like no tool");
            let last = gateway.last();
            assert_eq!((&last["decision"], &last["reason"]), (&json!("deny"), &json!("decoy")));
            assert_eq!((&last["server"], &last["tool"]), (&json!("up"), &json!(name)));
            assert!(findings(&last).contains("decoy at `/name`"), "{last}");
        }
        // Without a lock both go on.
        assert!(is_served(&ana) && is_served(&bob));
        assert!(server.tool_calls().iter().all(|call| call.tool() == "read"));
        gateway.says("a caller touched a decoy");
        gateway.measures("portcullis_decoys_total{kind=\"tool\"} 2");
        gateway.measures("portcullis_denials_total{reason=\"decoy\"} 2");
    }
}

#[test]
fn a_decoy_has_the_name_of_its_server_where_tools_of_the_server_have_it() {
    for era in ERAS {
        let (one, two) = (server(era), Server::echo(era, &["export_all"]));
        let servers =
            format!("- {{name: one, url: '{}'}}\n- {{name: two, url: '{}'}}", one.url(), two.url());
        for (prefix, decoy, real) in [
            ("auto", "export_all", "two__export_all"),
            ("always", "one__export_all", "two__export_all"),
            ("onConflict", "one__export_all", "export_all"),
        ] {
            let mut config = Config::with(&servers, "[one, two]").policy(OPEN);
            config.routes = format!("- {{path: /mcp, servers: [one, two], prefix: {prefix}}}");
            config.more =
                "decoys: {tools: [{server: one, name: export_all, shownTo: ['*']}]}".to_owned();
            let gateway = config.start();
            let ana = gateway.client(era, ANA);
            let tools = ana.tools();
            assert!(
                tools.contains(&decoy.to_owned()) && tools.contains(&real.to_owned()),
                "{tools:?}"
            );
            assert_eq!(ana.call(real, &json!({})).text(), "done", "{prefix} {era:?}");
            assert_eq!(ana.call(decoy, &json!({})).code(), -32602);
            assert_eq!(gateway.last()["reason"], "decoy", "{prefix}");
        }
    }
}

#[test]
fn a_tool_that_a_server_lists_under_the_name_of_a_decoy_is_nobodys() {
    for era in ERAS {
        let server = server(era);
        let gateway = config(&server, "tools: [{server: up, name: leak}]").start();
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.tools(), ["read", "wait"]);
        assert_eq!(ana.call("leak", &json!({})).code(), -32602);
        assert_eq!(gateway.last()["reason"], "decoy");
        assert!(server.tool_calls().is_empty());
    }
}

#[test]
fn who_touches_a_decoy_is_refused_everything_until_an_operator_lifts_the_lock() {
    for era in ERAS {
        let (server, folder) = (server(era), Folder::new());
        let decoys = "lock: {principal: 1h}\ntools: [{server: up, name: export_all}]";
        let config = operated(&server, &folder, decoys);
        let gateway = config.start();
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        assert!(is_served(&ana));
        // A call that is under way ends with it.
        let waiting = {
            let ana = ana.clone();
            thread::spawn(move || ana.call("wait", &json!({})))
        };
        eventually("the call that waits", || {
            server.tool_calls().iter().find(|call| call.tool() == "wait").cloned()
        });
        assert_eq!(ana.call("export_all", &json!({})).code(), -32602);
        let waited = waiting.join().unwrap();
        assert!(waited.body.contains("refuses this caller for now"), "{waited:?}");
        for answer in [ana.call("read", &json!({})), ana.ask("tools/list", json!({}))] {
            assert_eq!(answer.status, 403, "{answer:?}");
            assert!(!answer.body.contains("decoy"), "{answer:?}");
        }
        assert_eq!(gateway.last()["reason"], "decoy-locked");
        assert!(is_served(&bob), "another caller goes on");
        let revoked =
            gateway.records().into_iter().find(|record| record["event"] == "revoked").unwrap();
        assert_eq!(revoked["source"], "decoy");
        let what = revoked["what"].as_str().unwrap();
        assert!(
            what.contains(r#""principals":["ana"]"#) && what.contains("decoy up/export_all"),
            "{what}"
        );
        gateway.measures("portcullis_locked_principals 1");
        let listed = verb(&config, &gateway, &["revocations", "list"]);
        assert!(
            listed.contains("locked      ana  until ") && listed.contains("(decoy up/export_all)"),
            "{listed}"
        );
        verb(&config, &gateway, &["revocations", "lift", "--principal", "ana"]);
        assert!(is_served(&ana), "{era:?}");
        gateway.measures("portcullis_locked_principals 0");
        let lifted =
            gateway.records().into_iter().find(|record| record["event"] == "reinstated").unwrap();
        assert_eq!(lifted["source"], "operator");
        // The same again is an error: nothing is locked.
        let ops = gateway.ops.unwrap().to_string();
        let again = config.tried(&["revocations", "lift", "--principal", "ana", "--ops", &ops]);
        assert!(printed(&again).contains("not revoked"), "{}", printed(&again));
    }
}

#[test]
fn a_lock_ends_by_itself_and_outlives_a_reload() {
    for era in ERAS {
        let (server, folder) = (server(era), Folder::new());
        let decoys = "tools:\n- {server: up, name: export_all, lock: {principal: 6s}}\n- {server: up, name: other}";
        let mut config = config(&server, decoys);
        let file = folder.path().join("gateway.yaml");
        let gateway = config.start_at(&file);
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.call("other", &json!({})).code(), -32602);
        assert!(is_served(&ana), "this one locks nobody");
        assert_eq!(ana.call("export_all", &json!({})).code(), -32602);
        assert!(!is_served(&ana));
        config.more = String::new();
        config.write(&file, gateway.audit());
        gateway.hang_up();
        let bob = gateway.client(era, BOB);
        eventually("the reload", || {
            assert_eq!(bob.call("other", &json!({})).code(), -32602);
            (gateway.last()["reason"] == "unknown-tool").then_some(())
        });
        assert!(!is_served(&ana), "a reload lifts no lock");
        eventually("the end of the lock", || is_served(&ana).then_some(()));
    }
}

#[test]
fn a_honeytoken_is_sent_to_no_server_in_whatever_it_stands() {
    canary::watch(Side::Caller, HONEY);
    for era in ERAS {
        let (server, folder) = (server(era), Folder::new());
        let file = folder.path().join("honey");
        fs::write(&file, format!("{HONEY}\n")).unwrap();
        let decoys =
            format!("honeytokens:\n- {{name: vault-note, fromFile: '{}'}}", file.display());
        let gateway = config(&server, &decoys).start();
        let ana = gateway.client(era, ANA);
        let percent: String = HONEY.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let hex: String = HONEY.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut count = 0;
        for arguments in [
            json!({ "text": format!("see {HONEY}, please") }),
            json!({ "a": [{ "b": HONEY }] }),
            json!({ HONEY: 1 }),
            json!({ "text": STANDARD.encode(format!("key={HONEY}\n")) }),
            json!({ "text": format!("x {hex} y") }),
            json!({ "text": format!("https://a.example/?q={percent}") }),
        ] {
            let answer = ana.call("read", &arguments);
            let denial = answer.denial().unwrap_or_else(|| panic!("{arguments} {answer:?}"));
            assert_eq!(denial["reason"], "content");
            assert!(!answer.body.contains("honeytoken"), "the caller need not know: {answer:?}");
            let last = gateway.last();
            assert!(
                findings(&last).contains("honeytoken") && findings(&last).contains("vault-note"),
                "{last}"
            );
            count += 1;
        }
        // In other params, and where it is the name.
        let params =
            json!({ "name": "read", "arguments": {}, "_meta": { "example.com/note": HONEY } });
        assert!(ana.ask("tools/call", params).denial().is_some());
        assert!(findings(&gateway.last()).contains("vault-note"));
        let uri = format!("file:///srv/{HONEY}");
        let answer = ana.ask("resources/read", json!({ "uri": uri }));
        assert!(answer.code() != 0, "{answer:?}");
        // Also in a call that is denied in any case.
        assert_eq!(ana.call("no_such_tool", &json!({ "text": HONEY })).code(), -32602);
        assert!(findings(&gateway.last()).contains("vault-note"));
        assert!(server.tool_calls().is_empty());
        assert!(gateway.metric("portcullis_decoys_total{kind=\"honeytoken\"}") > count);
        assert!(!gateway.said().contains(HONEY));
        assert!(is_served(&ana), "without a lock it goes on");
    }
}

#[test]
fn a_honeytoken_in_a_call_that_leads_to_no_server_locks_as_well() {
    for era in ERAS {
        let (one, two) = (server(era), Server::echo(era, &["echo"]));
        let servers =
            format!("- {{name: one, url: '{}'}}\n- {{name: two, url: '{}'}}", one.url(), two.url());
        let mut config = Config::with(&servers, "[one, two]").policy(OPEN);
        config.routes = "- {path: /mcp, servers: [one, two], prefix: always}".to_owned();
        config.more = format!(
            "decoys: {{honeytokens: [{{name: wiki-key, value: '{HONEY}', lock: {{principal: 1h}}}}]}}"
        );
        let gateway = config.start();
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        assert_eq!(bob.call("no_such_tool", &json!({ "text": "nothing" })).code(), -32602);
        assert_eq!(bob.call("two__echo", &json!({})).status, 200, "no value, no lock");
        assert_eq!(ana.call("no_such_tool", &json!({ "text": HONEY })).code(), -32602);
        let last = gateway.last();
        assert!(findings(&last).contains("wiki-key"), "{last}");
        assert_eq!(ana.call("two__echo", &json!({})).status, 403);
        assert_eq!(gateway.last()["reason"], "decoy-locked");
        assert!(!gateway.said().contains(HONEY));
    }
}

/// With the form of a key: the detector of secrets finds it as well.
#[test]
fn a_honeytoken_that_looks_like_a_secret_locks_as_well() {
    const KEY: &str = "AKIAQ3EGRZ7XK2MWPLVT";
    for era in ERAS {
        let server = server(era);
        let decoys =
            format!("honeytokens:\n- {{name: cloud-key, value: {KEY}, lock: {{principal: 1h}}}}");
        let mut config = config(&server, &decoys);
        config.policy =
            format!("{OPEN}\ncontent: [{{servers: [up], arguments: {{secrets: block}}}}]");
        let gateway = config.start();
        let ana = gateway.client(era, ANA);
        assert!(ana.call("read", &json!({ "text": KEY })).denial().is_some());
        let found = findings(&gateway.last());
        assert!(found.contains("cloud-key"), "{era:?}: {found}");
        assert!(!is_served(&ana), "{era:?}");
    }
}

#[test]
fn a_honeytoken_in_an_answer_is_withheld_and_locks_nobody() {
    for era in ERAS {
        let (server, folder) = (server(era), Folder::new());
        let decoys = format!(
            "honeytokens:\n- {{name: wiki-key, value: '{HONEY}', lock: {{principal: 1h}}}}"
        );
        let config = operated(&server, &folder, &decoys);
        let gateway = config.start();
        let ana = gateway.client(era, ANA);
        let answer = ana.call("leak", &json!({}));
        assert!(!answer.body.contains(HONEY), "{answer:?}");
        let last = gateway.last();
        assert!(findings(&last).contains("wiki-key"), "{last}");
        gateway.says("a server has shown a honeytoken");
        assert!(is_served(&ana), "a server locks nobody out");
        // Who sends the value is locked.
        assert!(ana.call("read", &json!({ "text": HONEY })).denial().is_some());
        assert!(!is_served(&ana));
        assert!(is_served(&gateway.client(era, BOB)));
        let listed = verb(&config, &gateway, &["revocations", "list"]);
        assert!(listed.contains("honeytoken wiki-key"), "{listed}");
        for text in [gateway.said(), format!("{:?}", gateway.log())] {
            assert!(!text.contains(HONEY));
        }
        // Escaped in JSON that is a text, as it has to be for some values.
        let rest = HONEY.strip_prefix('h').unwrap();
        let escaped = format!(r#"{{"k": "\u0068{rest}"}}"#);
        let answer = gateway.client(era, BOB).call("read", &json!({ "text": escaped }));
        assert!(answer.denial().is_some(), "{answer:?}");
        // Also without the policy of contents.
        drop(gateway);
        let mut off = config.clone();
        off.policy = format!(
            "{OPEN}\ncontent: [{{servers: [up], results: {{canaries: 'off', secrets: 'off'}}, arguments: {{canaries: 'off', secrets: 'off', carriedData: 'off'}}}}]"
        );
        let gateway = off.start();
        let answer = gateway.client(era, ANA).call("read", &json!({ "text": HONEY }));
        assert!(answer.denial().is_some(), "{answer:?}");
    }
}

#[test]
fn mistakes_in_decoys_are_shown() {
    let server = server(Era::Modern);
    for (decoys, said) in [
        ("tools: [{server: pu, name: x}]", "there is no server `pu`"),
        ("tools: [{server: up, name: 'a b'}]", "`a b` has ` `"),
        ("tools: [{server: up, name: x}, {server: up, name: x}]", "has this decoy twice"),
        (
            "tools: [{server: up, name: x, shownTo: ['group:none']}]",
            "no caller can be `group:none`",
        ),
        ("tools: [{server: up, name: x, shownTo: [dev]}]", "`dev` names nobody"),
        (
            "tools: [{server: up, name: x, lock: {principal: 40d}}]",
            "cannot be locked for this long",
        ),
        ("tools: [{server: up, name: named}]", "a rule or the registry names the tool `named`"),
        ("honeytokens: [{name: x, value: short}]", "cannot be looked for"),
        ("honeytokens: [{name: x}]", "exactly one source"),
        ("honeytokens: [{name: x, value: '0123456789abcdef', fromEnv: Y}]", "exactly one source"),
    ] {
        let mut config = config(&server, decoys);
        config.policy = "rules:\n- {id: one, effect: allow, principals: ['*'], servers: ['*'], tools: [named, read]}".to_owned();
        let output = config.tried(&["validate"]);
        assert_eq!(output.status.code(), Some(3), "{decoys}");
        assert!(printed(&output).contains(said), "{said}: {}", printed(&output));
    }
    // A value that is too short is noticed when it is read.
    let folder = Folder::new();
    let file = folder.path().join("honey");
    fs::write(&file, "short").unwrap();
    let config = config(
        &server,
        &format!("honeytokens: [{{name: vault-note, fromFile: '{}'}}]", file.display()),
    );
    let output = config.refused();
    assert!(
        printed(&output).contains("the honeytoken `vault-note` has to have 16"),
        "{}",
        printed(&output)
    );
}

#[test]
fn only_an_operator_lifts_a_lock() {
    let (server, folder) = (server(Era::Modern), Folder::new());
    let decoys = "lock: {principal: 1h}\ntools: [{server: up, name: export_all}]";
    let gateway = operated(&server, &folder, decoys).start();
    let ana = gateway.client(Era::Modern, ANA);
    assert_eq!(ana.call("export_all", &json!({})).code(), -32602);
    let body = r#"{"principals":["ana"]}"#;
    let text = format!(
        "DELETE /revocations HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(raw(gateway.ops.unwrap(), text.as_bytes()).status, 401);
    assert!(!is_served(&ana));
    // A stream that begins now is refused as well.
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream
        .write_all(&ana.call_bytes(&json!(1), &json!({ "name": "read", "arguments": {} })))
        .unwrap();
    assert_eq!(e2e::client::read(&mut stream).status, 403);
}
