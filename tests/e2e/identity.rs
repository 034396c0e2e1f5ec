//! Who is asking, through which door, in which session.

use e2e::client::{post, raw};
use e2e::gateway::{ANA, BOB, Config, Gateway};
use e2e::server::{Call, Server};
use e2e::{ERAS, Era, eventually};
use serde_json::json;

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

fn list(gateway: &Gateway, more: &[(&str, &str)]) -> (u16, String) {
    let host = gateway.address.to_string();
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META}}}}}"#);
    let mut headers = vec![
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
    ];
    if !more.iter().any(|(name, _)| *name == "host") {
        headers.push(("host", &host));
    }
    headers.extend(more);
    let answer = raw(gateway.address, &post("/mcp", &headers, &body));
    let reason = gateway.last()["reason"].as_str().unwrap_or("none").to_owned();
    (answer.status, reason)
}

#[test]
fn a_credential_is_needed_and_must_be_good() {
    let server = Server::echo(Era::Modern, &["read"]);
    let gateway = Config::of(&server.url()).start();
    let bearer = |key: &str| format!("Bearer {key}");
    let (ana, wrong) = (bearer(ANA), bearer("pcl_guess"));
    for (headers, expected) in [
        (vec![("authorization", ana.as_str())], (200, "none")),
        (vec![("x-api-key", ANA)], (200, "none")),
        (vec![], (401, "credential-missing")),
        (vec![("authorization", wrong.as_str())], (401, "credential-refused")),
        (vec![("authorization", "Basic YTpi")], (401, "credential-refused")),
        (vec![("authorization", ana.as_str()), ("x-api-key", BOB)], (400, "credential-refused")),
        (
            vec![("authorization", ana.as_str()), ("authorization", ana.as_str())],
            (400, "credential-refused"),
        ),
        (vec![("cookie", ANA)], (401, "credential-missing")),
    ] {
        let (status, reason) = list(&gateway, &headers);
        assert_eq!((status, reason.as_str()), expected, "{headers:?}");
    }
    // Who has no credential does not learn which paths there are.
    for path in ["/mcp", "/other"] {
        let answer =
            raw(gateway.address, &post(path, &[("host", &gateway.address.to_string())], "{}"));
        assert_eq!(answer.status, 401);
        assert_eq!(answer.header("www-authenticate"), Some("bearer"));
    }
}

#[test]
fn other_hosts_and_other_origins_are_refused() {
    let server = Server::echo(Era::Modern, &["read"]);
    let mut config = Config::of(&server.url());
    config.listener = "origins: ['https://app.example.com']".to_owned();
    let gateway = config.start();
    let own = format!("http://{}", gateway.address);
    for (headers, expected) in [
        (vec![("host", "localhost:1")], (200, "none")),
        (vec![("host", "evil.example.com")], (421, "host-not-allowed")),
        (vec![("host", "127.0.0.1.evil.example.com")], (421, "host-not-allowed")),
        (vec![("origin", "https://app.example.com")], (200, "none")),
        (vec![("origin", own.as_str())], (200, "none")),
        (vec![("origin", "https://evil.example.com")], (403, "origin-not-allowed")),
        (vec![("origin", "null")], (403, "origin-not-allowed")),
        // An image of a page of another site.
        (vec![("sec-fetch-site", "cross-site")], (403, "origin-not-allowed")),
        (vec![("sec-fetch-site", "same-site")], (403, "origin-not-allowed")),
        (vec![("sec-fetch-site", "same-origin")], (200, "none")),
        (vec![("sec-fetch-site", "none")], (200, "none")),
        (
            vec![("sec-fetch-site", "cross-site"), ("origin", "https://app.example.com")],
            (200, "none"),
        ),
        (vec![("upgrade", "websocket")], (400, "upgrade-not-supported")),
    ] {
        let mut headers = headers;
        headers.push(("x-api-key", ANA));
        let (status, reason) = list(&gateway, &headers);
        assert_eq!((status, reason.as_str()), expected, "{headers:?}");
    }
    let preflight = |origin: &str| {
        let text = format!(
            "OPTIONS /mcp HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\naccess-control-request-method: POST\r\n\r\n"
        );
        raw(gateway.address, text.as_bytes())
    };
    let allowed = preflight("https://app.example.com");
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://app.example.com"));
    let refused = preflight("https://evil.example.com");
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (403, None));
}

#[test]
fn anonymous_is_asked_for_by_name_and_only_on_loopback() {
    let server = Server::echo(Era::Modern, &["read"]);
    let mut config = Config::of(&server.url());
    config.listener = "hosts: [gw.example]".to_owned();
    let text = |address: &str| {
        let yaml = format!(
            "apiVersion: portcullis.dev/v1\npins: {{mode: off}}\nlisteners: [{{name: l, address: '{address}', authentication: [anonymous], hosts: [gw]}}]\n\
             identity: {{anonymous: {{groups: [dev]}}}}\nservers: [{{name: up, url: '{}'}}]\nroutes: [{{path: /mcp, servers: [up]}}]\n\
             audit: {{sinks: [{{name: out, stdout: true}}]}}\n",
            server.url()
        );
        let folder = e2e::gateway::Folder::new();
        let file = folder.path().join("a.yaml");
        std::fs::write(&file, yaml).unwrap();
        let output = std::process::Command::new(e2e::gateway::binary())
            .arg("validate")
            .arg(&file)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(text("127.0.0.1:0").0, Some(0));
    let (code, said) = text("0.0.0.0:0");
    assert_eq!(code, Some(3));
    assert!(said.contains("loopback listener only"), "{said}");
    // Where nobody asked for it, no credential is no entrance.
    let gateway = config.start();
    assert_eq!(list(&gateway, &[]).0, 401);
}

#[test]
fn a_session_is_its_owners_alone_and_ends_when_it_is_ended() {
    let server = Server::echo(Era::Legacy, &["read"]);
    let gateway = Config::of(&server.url()).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let with = |key: &str, session: Option<&str>| {
        let mut client = gateway.client(Era::Legacy, key);
        client.session = session.map(str::to_owned);
        client.ask("tools/list", json!({})).status
    };
    let session = ana.session.clone().unwrap();
    assert!(!session.contains("upstream-session"));
    assert_eq!(with(ANA, Some(&session)), 200);
    assert_eq!(with(BOB, Some(&session)), 404);
    assert_eq!(with(ANA, Some("made-up")), 404);
    assert_eq!(with(ANA, None), 400);
    let delete = |key: &str| {
        let text = format!(
            "DELETE /mcp HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\nmcp-session-id: {session}\r\n\r\n"
        );
        raw(gateway.address, text.as_bytes()).status
    };
    assert_eq!(delete(BOB), 404);
    assert_eq!(with(ANA, Some(&session)), 200);
    assert_eq!(delete(ANA), 200);
    assert_eq!(with(ANA, Some(&session)), 404);
    // The client is answered even if the server is slow to hear of it.
    eventually("the server is told", || {
        let is_end = |call: &Call| {
            call.head.starts_with("DELETE")
                && call.head.to_lowercase().contains("mcp-session-id: upstream-session")
        };
        server.calls().iter().any(is_end).then_some(())
    });
}

#[test]
fn a_handshake_agrees_on_a_revision_that_has_one() {
    let server = Server::echo(Era::Legacy, &["read"]);
    let gateway = Config::of(&server.url()).start();
    for (asked, agreed) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2024-11-05"),
        ("2026-07-28", "2025-11-25"),
        ("tomorrow", "2025-11-25"),
    ] {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": asked, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" }
        }});
        let client = gateway.client(Era::Legacy, ANA);
        let answer = raw(gateway.address, &client.bytes("initialize", None, &body.to_string()));
        assert_eq!(answer.json()["result"]["protocolVersion"], agreed);
        assert_eq!(answer.json()["result"]["serverInfo"]["name"], "fake");
    }
    let ping = gateway.client(Era::Legacy, ANA).ask("ping", json!({}));
    assert_eq!(ping.json()["result"], json!({}));
}

#[test]
fn no_credential_of_a_caller_reaches_a_server_a_record_or_the_log() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let body = ana.message(
            &json!(1),
            "tools/call",
            json!({ "name": "read", "arguments": { "text": "the-secret-argument" } }),
        );
        let mut bytes = String::from_utf8(ana.bytes("tools/call", Some("read"), &body)).unwrap();
        bytes = bytes.replacen(
            "\r\n",
            "\r\ncookie: c=crumb-1\r\nx-internal: forged-2\r\nproxy-authorization: basic-3\r\n",
            1,
        );
        assert_eq!(raw(gateway.address, bytes.as_bytes()).status, 200);
        let refused = ana.call("nothing", &json!({ "text": "the-secret-argument" }));
        assert_eq!(refused.code(), -32602);
        for call in server.calls() {
            let text = String::from_utf8_lossy(&call.bytes).into_owned();
            for secret in [ANA, "crumb-1", "forged-2", "basic-3"] {
                assert!(!text.contains(secret), "{text}");
            }
        }
        let records = serde_json::to_string(&gateway.records()).unwrap();
        let log = gateway.said();
        for secret in [ANA, "crumb-1", "the-secret-argument", "upstream-session"] {
            assert!(!records.contains(secret) && !log.contains(secret), "{secret}");
        }
    }
}
