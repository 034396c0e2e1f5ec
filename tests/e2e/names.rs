//! A thing has one name: no spelling of a URI, a method or a tool leads past a rule, an approval or a
//! revocation.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Instant;

use e2e::client::{Client, raw, until};
use e2e::gateway::{ANA, Config, Folder, binary};
use e2e::server::{Call, Server};
use e2e::{ERAS, Era, PATIENCE};
use serde_json::{Value, json};

use crate::watching::{OPEN, telling};

const FILES: &str = "rules:
- {id: files, effect: allow, principals: ['group:dev'], servers: [up], resources: ['file:///srv/*', 'file:/*']}
- {id: secret, effect: forbid, principals: ['*'], servers: ['*'], resources: ['file:///srv/secret', 'file:///srv/secret/*']}";

fn listed(uris: &[&str]) -> Value {
    let resource = |uri: &&str| json!({ "uri": uri, "name": "a file" });
    json!({ "resources": uris.iter().map(resource).collect::<Vec<_>>() })
}

/// What a server says that reads whatever it is asked for.
fn contents(call: &Call) -> Value {
    let uri = call.body["params"]["uri"].clone();
    json!({ "resultType": "complete", "contents": [{ "uri": uri, "text": "content" }],
        "ttlMs": 0, "cacheScope": "private" })
}

/// A server with these resources.
fn files(era: Era, uris: &[&str]) -> Server {
    Server::offering(era, listed(uris), contents)
}

/// A server that lists one more resource once it has grown.
fn growing(era: Era, grown: &Arc<AtomicBool>) -> Server {
    let grown = Arc::clone(grown);
    let offers = move |_: &Call| match grown.load(Ordering::SeqCst) {
        true => listed(&["file:///srv/a", "file:///srv/b", "file:///srv/new"]),
        false => listed(&["file:///srv/a", "file:///srv/b"]),
    };
    Server::shifting(era, offers, contents)
}

fn read(client: &Client, uri: &str) -> Value {
    client.ask("resources/read", json!({ "uri": uri })).json()
}

/// The URIs that the server was asked to read.
fn reached(server: &Server) -> Vec<String> {
    let reads = server.calls().into_iter().filter(|call| call.method() == "resources/read");
    reads.map(|call| call.body["params"]["uri"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn no_spelling_of_a_uri_leads_past_a_forbid() {
    for era in ERAS {
        let server = files(era, &["file:///srv/a"]);
        let gateway = Config::of(&server.url()).policy(FILES).start();
        let ana = gateway.client(era, ANA);
        for (uri, told) in [
            ("file:///srv/../etc/shadow", "the URI has a segment of dots"),
            ("file:///srv/x/../secret/k", "the URI has a segment of dots"),
            ("file:///srv/./secret", "the URI has a segment of dots"),
            ("file:///srv//secret", "the URI has an empty segment"),
            (
                "file:///srv/%73ecret",
                "the URI has an escape of a character that must not be escaped",
            ),
            (
                "file:///srv/%2e%2e/etc",
                "the URI has an escape of a character that must not be escaped",
            ),
            ("file:///srv%2fsecret", "the URI has a backslash, or an escaped slash"),
            ("file:///srv\\secret", "the URI has a backslash, or an escaped slash"),
            ("file:///srv/secret#", "the URI has a fragment"),
            ("file:///srv/secret%00", "the URI has a character that is not shown"),
            ("file:///srv/sec\u{180f}ret", "the URI has a character that is not shown"),
            ("file:///srv/sec%E1%A0%8Fret", "the URI has a character that is not shown"),
            ("file:///srv/sec\u{1bca0}ret", "the URI has a character that is not shown"),
            ("file:///srv/sec\u{1d173}ret", "the URI has a character that is not shown"),
            ("file:///srv/sec\u{fff0}ret", "the URI has a character that is not shown"),
            ("file:///srv/sec\u{fe0f}ret", "the URI has a character that is not shown"),
            ("file:///srv/secret \u{3000}", "the URI ends in a blank"),
        ] {
            let answer = read(&ana, uri);
            assert_eq!(answer["error"]["code"], -32602, "{uri}: {answer}");
            assert_eq!(answer["error"]["message"], told, "{uri}");
            let record = gateway.last();
            assert_eq!(
                (&record["outcome"], &record["reason"]),
                (&json!("denied"), &json!("non-canonical-uri"))
            );
        }
        for uri in [
            "file:///srv/secret",
            "FILE:///srv/secret",
            "file:/srv/secret",
            "file:///srv/secret/",
            "file:///srv/secret?x",
            "file:///srv/secret%3Fx",
            "file:///srv/secret%20",
            "file:///srv/secret%C2%A0?x",
            "file:///srv/secret%20/",
            "file:///srv/secret/%20/",
            "file:///srv/secret/k?x",
        ] {
            assert!(read(&ana, uri)["error"].is_object(), "{uri}");
            assert_eq!(gateway.last()["reason"], "forbidden", "{uri}");
        }
        assert_eq!(reached(&server), [""; 0]);
        for uri in ["file:///srv/a", "file:///srv/b?x", "file:///srv/secrets", "file:///srv/é 1"] {
            assert!(read(&ana, uri)["result"].is_object(), "{uri}");
        }
        assert_eq!(reached(&server).len(), 4);
    }
}

#[test]
fn no_end_of_a_path_or_a_query_leads_past_a_forbid_with_a_query() {
    let rules = "rules:
- {id: all, effect: allow, principals: ['group:dev'], servers: [up], resources: ['*']}
- {id: secret, effect: forbid, principals: ['*'], servers: ['*'], resources: \
     ['https://q.example/r?id=1', 'db://x/report?id=7', 'http://h.example?x=1', 'file:///srv/dir/']}";
    for era in ERAS {
        let server = files(era, &["file:///srv/a"]);
        let gateway = Config::of(&server.url()).policy(rules).start();
        let ana = gateway.client(era, ANA);
        for uri in [
            "https://q.example/r?id=1",
            "https://q.example/r/?id=1",
            "https://q.example/r%20?id=1",
            "https://q.example/r/%20?id=1",
            "https://q.example/r;x?id=1",
            "https://q.example/r?id=1/",
            "https://q.example/r?id=1%20",
            "https://q.example/r?id=1;x",
            "db://x/report/?id=7",
            "http://h.example?x=1",
            "http://h.example/;a?x=1",
            "file:///srv/dir",
            "file:///srv/dir?x",
        ] {
            assert!(read(&ana, uri)["error"].is_object(), "{uri}");
            assert_eq!(gateway.last()["reason"], "forbidden", "{uri}");
        }
        assert_eq!(reached(&server), [""; 0]);
        for uri in ["https://q.example/r?id=2", "db://x/report", "file:///srv/dirs"] {
            assert!(read(&ana, uri)["result"].is_object(), "{uri}");
        }
    }
}

#[test]
fn no_spelling_of_a_host_and_no_path_parameter_leads_past_a_forbid() {
    let rules = "rules:
- {id: all, effect: allow, principals: ['group:dev'], servers: [up], resources: ['*']}
- {id: secret, effect: forbid, principals: ['*'], servers: ['*'], resources: \
     ['mem://x/secret', 'postgres://x/secret', 's3://x/secret', 'http://h.example/secret', 'file:///srv/secret']}";
    for era in ERAS {
        let server = files(era, &["file:///srv/a"]);
        let gateway = Config::of(&server.url()).policy(rules).start();
        let ana = gateway.client(era, ANA);
        for scheme in ["mem", "postgres", "s3"] {
            for host in ["x:", "x."] {
                let uri = format!("{scheme}://{host}/secret");
                assert_eq!(read(&ana, &uri)["error"]["code"], -32602, "{uri}");
                assert_eq!(gateway.last()["reason"], "non-canonical-uri", "{uri}");
            }
        }
        for uri in [
            "mem://x/secret;a",
            "http://h.example/secret;a",
            "http://h.example/;a/secret",
            "http://h.example/secret/;a",
            "http://h.example/secret%3Ba",
            "file:///srv;x/secret",
            "file:///srv/;/secret",
        ] {
            assert!(read(&ana, uri)["error"].is_object(), "{uri}");
            assert_eq!(gateway.last()["reason"], "forbidden", "{uri}");
        }
        assert_eq!(reached(&server), [""; 0]);
        for uri in ["mem://x:81/secret", "http://h.example/open;a", "file:///srv/a;b"] {
            assert!(read(&ana, uri)["result"].is_object(), "{uri}");
        }
        assert_eq!(reached(&server).len(), 3);
    }
}

/// Servers that resolve the URI ask for the shortest form of the address, whatever the scheme is.
#[test]
fn no_spelling_of_an_ipv6_address_leads_past_a_forbid() {
    let rules = "rules:
- {id: all, effect: allow, principals: ['group:dev'], servers: [up], resources: ['*']}
- {id: secret, effect: forbid, principals: ['*'], servers: ['*'], resources: \
     ['db://[::1]/secret', 'db://[::FFFF:A00:1]/secret', 'https://[::ffff:a00:1]/secret']}";
    let told = "the URI has brackets around something that is not an IPv6 address, or such an address that is not \
         in brackets and in its shortest form, like `[2001:db8::1]`";
    for era in ERAS {
        let server = files(era, &["db://[0:0::1]/open", "db://[0:0::1]/secret", "db://[a]/open"]);
        let gateway = Config::of(&server.url()).policy(rules).start();
        let ana = gateway.client(era, ANA);
        for uri in [
            "db://[0:0::1]/secret?x",
            "db://[0:0:0:0:0:0:0:1]/secret",
            "db://[::0001]:5432/secret",
            "db://[::ffff:10.0.0.1]/secret",
            "db://[0::ffff:a00:1]/secret",
            "https://[::ffff:10.0.0.1]/secret",
            "db://[::1%25lo]/secret",
            "db://[a]/secret",
            "db://[::1/secret",
        ] {
            let answer = read(&ana, uri);
            assert_eq!(answer["error"]["code"], -32602, "{uri}: {answer}");
            assert_eq!(answer["error"]["message"], told, "{uri}");
            assert_eq!(gateway.last()["reason"], "non-canonical-uri", "{uri}");
        }
        for uri in [
            "db://[::1]/secret",
            "DB://[::1]/secret?x",
            "db://[::ffff:a00:1]/secret",
            "db://[::FFFF:a00:1]/secret/",
            "https://[::ffff:a00:1]/secret",
        ] {
            assert!(read(&ana, uri)["error"].is_object(), "{uri}");
            assert_eq!(gateway.last()["reason"], "forbidden", "{uri}");
        }
        // The server lists this spelling, and the rule is about its canonical form.
        assert!(read(&ana, "db://[0:0::1]/secret")["error"].is_object());
        assert_eq!(gateway.last()["rule"], "secret");
        assert_eq!(reached(&server), [""; 0]);
        let offered = ana.ask("resources/list", json!({})).json()["result"]["resources"].clone();
        let offered: Vec<_> = offered.as_array().unwrap().iter().map(|one| &one["uri"]).collect();
        assert_eq!(offered, ["db://[0:0::1]/open"]);
        for uri in ["db://[0:0::1]/open", "db://[::1]/open", "db://[2001:DB8::1]:5432/open"] {
            assert!(read(&ana, uri)["result"].is_object(), "{uri}");
        }
        // What is listed is asked for in the spelling of the server.
        assert_eq!(
            reached(&server),
            ["db://[0:0::1]/open", "db://[0:0::1]/open", "db://[2001:DB8::1]:5432/open"]
        );
        gateway.says(told);
    }
}

#[test]
fn a_subscription_is_held_to_the_same_form() {
    let rules = "rules:
- {id: all, effect: allow, principals: ['group:dev'], servers: [up], resources: ['*']}
- {id: closed, effect: forbid, principals: ['*'], servers: ['*'], resources: ['file:///closed']}";
    let spellings = ["file:///srv/../closed", "file:///closed?x", "file:///%63losed"];
    for (era, server_era) in ERAS.into_iter().flat_map(|era| ERAS.map(|other| (era, other))) {
        let (_go, wait) = channel();
        let server = telling(server_era, wait);
        let gateway = Config::of(&server.url()).policy(rules).start();
        let ana = gateway.client(era, ANA);
        if era == Era::Legacy {
            for uri in spellings {
                let answer = ana.ask("resources/subscribe", json!({ "uri": uri })).json();
                assert!(answer["error"].is_object(), "{uri}: {answer}");
            }
        } else {
            let uris = [&spellings[..], &[OPEN]].concat();
            let wanted = json!({ "notifications": { "resourceSubscriptions": uris } });
            let body = ana.message(&json!("listen"), "subscriptions/listen", wanted);
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&ana.bytes("subscriptions/listen", None, &body)).unwrap();
            let agreed = until(&mut stream, "\n\n");
            assert!(agreed.contains("acknowledged") && agreed.contains(OPEN), "{agreed}");
            assert!(spellings.iter().all(|uri| !agreed.contains(uri)), "{agreed}");
        }
        for call in server.calls() {
            let body = call.body.to_string();
            assert!(spellings.iter().all(|uri| !body.contains(uri)), "{era:?}: {body}");
        }
    }
}

#[test]
fn no_spelling_reads_what_was_revoked_or_not_approved() {
    for era in ERAS {
        let folder = Folder::new();
        let (lock, revoked) = (folder.path().join("pins.lock"), folder.path().join("revoked.yaml"));
        std::fs::write(&revoked, "tools: ['up/file:///srv/b']\n").unwrap();
        let grown = Arc::new(AtomicBool::new(false));
        let server = growing(era, &grown);
        let mut config = Config::of(&server.url()).policy(FILES).approved(&lock);
        config.more = format!("revocations: {{file: '{}'}}", revoked.display());
        grown.store(true, Ordering::SeqCst);
        let gateway = config.start();
        let ana = gateway.client(era, ANA);
        for (uri, reason) in [
            ("file:///srv/b", "revoked"),
            ("FILE:///srv/b", "revoked"),
            ("file:///srv/b?x", "revoked"),
            ("file:///srv/b/", "revoked"),
            ("file:///srv/b;x", "revoked"),
            ("file:///srv/;x/b", "revoked"),
            ("file:///srv/new", "not-approved"),
            ("file:///srv/new?x", "not-approved"),
            ("file:///srv/new/", "not-approved"),
            ("file:///srv/new;x", "not-approved"),
        ] {
            assert!(read(&ana, uri)["error"].is_object(), "{uri}");
            assert_eq!(gateway.last()["reason"], reason, "{uri}");
        }
        assert_eq!(reached(&server), [""; 0]);
        assert!(read(&ana, "file:///srv/a?x")["result"].is_object());
    }
}

#[test]
fn what_a_server_lists_unusually_is_used_in_its_own_spelling() {
    for era in ERAS {
        let uris = ["file:///srv/My note", "file:///srv/%7Eana", "file:///srv/x/../a"];
        let server = files(era, &uris);
        let gateway = Config::of(&server.url()).policy(FILES).start();
        let ana = gateway.client(era, ANA);
        let listed = ana.ask("resources/list", json!({})).json()["result"]["resources"].clone();
        let listed: Vec<_> = listed.as_array().unwrap().iter().map(|one| &one["uri"]).collect();
        assert_eq!(listed, ["file:///srv/My note", "file:///srv/%7Eana"]);
        for uri in ["file:///srv/My note", "file:///srv/My%20note", "file:///srv/%7Eana"] {
            assert!(read(&ana, uri)["result"].is_object(), "{uri}");
        }
        assert_eq!(
            reached(&server),
            ["file:///srv/My note", "file:///srv/My note", "file:///srv/%7Eana"]
        );
        // The caller cannot tell what is listed and withheld from what is not listed.
        for uri in ["file:///srv/x/../a", "file:///srv/x/../b"] {
            assert_eq!(read(&ana, uri)["error"]["message"], "the URI has a segment of dots");
        }
        gateway.says("the URI has a segment of dots");
    }
}

#[test]
fn a_rule_for_a_uri_that_can_never_be_asked_for_does_not_start() {
    let server = files(Era::Modern, &[]);
    for (uri, why) in [
        ("file:/srv/*", "can never match: the URI has no host, or one that is not written plainly"),
        ("file:///srv/../*", "can never match: the URI has a segment of dots"),
        ("file:///srv/%73ecret", "can never match: the URI has an escape"),
        ("file:///srv//*", "can never match: the URI has an empty segment"),
        ("db://[0:0::1]/*", "can never match: the URI has brackets around something"),
        ("https://[::ffff:10.0.0.1]/*", "can never match: the URI has brackets around something"),
    ] {
        let policy = format!(
            "rules:\n- {{id: r, effect: forbid, principals: ['*'], servers: [up], resources: ['{uri}']}}"
        );
        let output = Config::of(&server.url()).policy(&policy).refused();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(why), "{uri}: {said}");
    }
}

/// Every unknown method is allowed, and one tool.
const UNKNOWN_METHODS: &str = "rules:
- {id: any, effect: allow, principals: ['group:dev'], servers: ['*'], methods: ['*']}
- {id: tools, effect: allow, principals: ['group:dev'], servers: ['*'], tools: [read]}";

#[test]
fn no_spelling_of_a_method_leads_past_the_rules_for_tools() {
    for era in ERAS {
        let server = Server::echo(era, &["read", "drop"]);
        let gateway = Config::of(&server.url()).policy(UNKNOWN_METHODS).start();
        let ana = gateway.client(era, ANA);
        let params = json!({ "name": "drop", "arguments": {} });
        // What the gateway asks of itself is known; everything else was a client's.
        let reached = || {
            let own = ["", "initialize", "notifications/initialized", "server/discover"];
            let is_own = |method: &str| own.contains(&method) || method.ends_with("/list");
            let calls = server.calls().into_iter().map(|call| call.method().to_owned());
            calls.filter(|method| !is_own(method)).collect::<Vec<_>>()
        };
        for method in [
            "Tools/call",
            "tools/Call",
            "tools//call",
            "/tools/call",
            "tools/call/",
            "tools.call",
            "tools_call",
            "tools%2Fcall",
            "tools/c%61ll",
            "tools\\call",
            "tools/call#",
            "Resources/read",
        ] {
            let answer = ana.ask(method, params.clone());
            assert_eq!((answer.status, answer.code()), (400, -32600), "{method}: {answer:?}");
            assert_eq!(gateway.last()["reason"], "invalid-message", "{method}");
        }
        assert_eq!(reached(), [""; 0]);
        // An extension is still decided by the rules about methods.
        drop(ana.ask("com.example/odd", json!({})));
        assert_eq!(reached(), ["com.example/odd"]);
    }
    // Headers cannot carry these, so only a legacy client can send them.
    let server = Server::echo(Era::Legacy, &["read", "drop"]);
    let gateway = Config::of(&server.url()).policy(UNKNOWN_METHODS).start();
    let ana = gateway.client(Era::Legacy, ANA);
    for method in [
        "tools/call ",
        " tools/call",
        "tools/ca\u{200b}ll",
        "t\u{43e}ols/call",
        "\u{ff54}ools/call",
    ] {
        let answer = ana.ask(method, json!({ "name": "drop", "arguments": {} }));
        assert_eq!((answer.status, answer.code()), (400, -32600), "{method:?}");
    }
    let answer = ana.ask("notifications/cancelled", json!({ "requestId": 1 }));
    assert_eq!((answer.status, answer.code()), (400, -32600));
    assert!(server.tool_calls().is_empty());
    let unknown = server.calls().into_iter().filter(|call| call.body["params"]["name"] == "drop");
    assert_eq!(unknown.count(), 0);
}

#[test]
fn a_request_of_the_protocol_without_an_id_is_refused() {
    for era in ERAS {
        let server = Server::echo(era, &["read", "drop"]);
        let gateway = Config::of(&server.url()).policy(UNKNOWN_METHODS).start();
        let ana = gateway.client(era, ANA);
        for (method, name) in [
            ("tools/call", "drop"),
            ("prompts/get", "drop"),
            ("resources/read", "file:///a"),
            (if era == Era::Legacy { "tasks/result" } else { "tasks/get" }, "t-1"),
            ("completion/complete", "drop"),
        ] {
            let params =
                json!({ "name": "drop", "uri": "file:///a", "taskId": "t-1", "arguments": {} });
            let message = ana.message(&json!(1), method, params);
            let message = message.replacen("\"id\":1,", "", 1);
            assert!(!message.contains("\"id\""), "{message}");
            let answer = raw(gateway.address, &ana.bytes(method, Some(name), &message));
            assert_eq!((answer.status, answer.code()), (400, -32600), "{method}: {answer:?}");
            assert_eq!(gateway.last()["reason"], "invalid-message", "{method}");
            let reached = server.calls().into_iter().filter(|call| call.method() == method);
            assert_eq!(reached.count(), 0, "{era:?} {method}");
        }
    }
}

#[test]
fn a_method_that_no_rule_names_is_on_record_as_one() {
    let rules = "rules:
- {id: any, effect: allow, principals: ['group:dev'], servers: ['*'], methods: ['com.example/*']}
- {id: no, effect: forbid, principals: ['*'], servers: ['*'], methods: ['com.example/no']}";
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let gateway = Config::of(&server.url()).policy(rules).start();
        let ana = gateway.client(era, ANA);
        let mut told = Vec::new();
        for (method, reason) in
            [("org.example/odd", "method-not-granted"), ("com.example/no", "forbidden")]
        {
            let answer = ana.ask(method, json!({})).json();
            assert_eq!(gateway.last()["reason"], reason, "{era:?} {method}");
            told.push((answer["error"]["code"].clone(), answer["error"]["message"].clone()));
        }
        // What is forbidden and what nobody has named look the same.
        assert_eq!(told[0], told[1], "{era:?}");
    }
}

#[test]
fn a_server_with_a_dot_in_its_name_has_tools_that_can_be_called() {
    for era in ERAS {
        let (one, two) = (Server::echo(era, &["read"]), Server::echo(era, &["read", "write"]));
        for prefix in ["always", "onConflict"] {
            let servers = format!(
                "- {{name: files.v2, url: '{}'}}\n- {{name: files_v2, url: '{}'}}",
                one.url(),
                two.url()
            );
            let mut config = Config::with(&servers, "[files.v2, files_v2]");
            config.routes =
                format!("- {{path: /mcp, servers: [files.v2, files_v2], prefix: {prefix}}}");
            let gateway = config.start();
            let ana = gateway.client(era, ANA);
            let tools = ana.tools();
            assert_eq!(tools.len(), 3, "{tools:?}");
            for tool in &tools {
                let answer = ana.call(tool, &json!({ "text": tool })).json();
                assert_eq!(answer["result"]["content"][0]["text"], **tool, "{prefix}: {answer}");
            }
        }
        assert_eq!((one.tool_calls().len(), two.tool_calls().len()), (2, 4));
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test measures real time")]
fn a_file_of_document_marks_is_refused_at_once() {
    let folder = Folder::new();
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, "---\n".repeat(100_000)).unwrap();
    let mut command = std::process::Command::new(binary());
    command.arg("validate").arg(&file);
    let started = Instant::now();
    let output = e2e::gateway::fed(command, "");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("a second document"), "{said}");
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
}

#[test]
fn the_name_in_the_header_is_the_name_in_the_body_to_the_letter() {
    let server = Server::echo(Era::Modern, &["read", "Read"]);
    let gateway = Config::of(&server.url()).start();
    let ana = gateway.client(Era::Modern, ANA);
    let body = ana.message(&json!(1), "tools/call", json!({ "name": "read", "arguments": {} }));
    for header in ["Read", "READ", "read ", "drop", "rea%64"] {
        // Blanks around the value of a header are not part of it.
        let same = header.trim() == "read";
        let answer = raw(gateway.address, &ana.bytes("tools/call", Some(header), &body));
        let expected = if same { (200, 0) } else { (400, -32020) };
        assert_eq!((answer.status, answer.code()), expected, "{header:?}");
    }
    let missing = raw(gateway.address, &ana.bytes("tools/call", None, &body));
    assert_eq!((missing.status, missing.code()), (400, -32020));
    assert_eq!(server.tool_calls().len(), 1);
}
