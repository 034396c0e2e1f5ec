//! What servers are shown: never what a caller sent, and for each caller its own.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::digest;
use e2e::client::{Client, raw};
use e2e::gateway::{ANA, Config, Gateway};
use e2e::issuer::{Issuer, encode, now};
use e2e::pki::{Leaf, Pki};
use e2e::server::{Call, Server, answer, ok};
use e2e::tls::Front;
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

use crate::introspection::Gate;
use crate::tokens::believing;

/// A server item with more of its configuration.
fn item(server: &Server, more: &str) -> String {
    format!("- name: up\n  url: '{}'\n  {}\n", server.url(), more.replace('\n', "\n  "))
}

fn header(call: &Call, name: &str) -> Option<String> {
    let found = call.head.lines().filter_map(|line| line.split_once(": "));
    let mut found = found.filter(|(known, _)| known.eq_ignore_ascii_case(name));
    let value = found.next().map(|(_, value)| value.trim().to_owned());
    assert!(found.next().is_none(), "{name} twice: {}", call.head);
    value
}

pub(crate) fn form(call: &Call, name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(&call.bytes).into_owned();
    let body = text.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned();
    let value = body.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")))?;
    let mut out = Vec::new();
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let hex: String =
                [bytes.next().unwrap(), bytes.next().unwrap()].map(char::from).iter().collect();
            out.push(u8::from_str_radix(&hex, 16).unwrap());
        } else {
            out.push(byte);
        }
    }
    Some(String::from_utf8(out).unwrap())
}

/// A grant at `issuer` for the client `gateway` with a secret.
fn grant(issuer: &Issuer, more: &str) -> String {
    let secret = issuer.pki.folder().join("secret");
    std::fs::write(&secret, "gateway-secret-canary").unwrap();
    e2e::canary::watch(e2e::canary::Side::Server, "gateway-secret-canary");
    format!(
        "tokenUrl: '{}/token', client: {{id: gateway, secret: {{fromFile: '{}'}}}}, \
         connection: {{authorities: '{}'}}{more}",
        issuer.url(),
        secret.display(),
        issuer.pki.path(),
    )
}

/// A gateway before `server`, which is shown `credential`, believing `issuer`.
fn showing(server: &Server, issuer: &Issuer, credential: &str) -> Config {
    let mut config = believing(server, &issuer.item("corp", ""));
    config.servers = item(server, &format!("credential: {{{credential}}}"));
    config
}

/// What a token endpoint answers.
fn token(text: &str, more: &Value) -> Vec<u8> {
    e2e::canary::watch(e2e::canary::Side::Server, text);
    let mut answer = json!({
        "access_token": text, "token_type": "Bearer", "expires_in": 300,
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
    });
    for (key, value) in more.as_object().unwrap() {
        answer[key] = value.clone();
    }
    ok(&answer.to_string())
}

#[test]
fn nothing_that_a_caller_sends_reaches_a_server() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let gateway = believing(&server, &issuer.item("corp", "")).start();
        let good = issuer.good("alice");
        let alice = gateway.client(era, &good);
        let body =
            alice.message(&json!(1), "tools/call", json!({ "name": "echo", "arguments": {} }));
        let bytes = String::from_utf8(alice.bytes("tools/call", Some("echo"), &body)).unwrap();
        // AV-46, AV-54
        let sent = [
            "cookie: crumb-canary",
            "proxy-authorization: Basic proxy-canary",
            "x-forwarded-for: 10.9.8.7",
            "forwarded: for=10.9.8.6",
            "client-cert: :Y2VydC1jYW5hcnk=:",
            "x-internal-user: internal-canary",
            "x-amz-security-token: amz-canary",
            "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "baggage: user=baggage-canary",
        ];
        let bytes = bytes.replacen("\r\n", &format!("\r\n{}\r\n", sent.join("\r\n")), 1);
        assert_eq!(raw(gateway.address, bytes.as_bytes()).status, 200);
        let signature = good.rsplit('.').next().unwrap();
        for call in server.calls() {
            let text = String::from_utf8_lossy(&call.bytes).into_owned();
            for secret in ["canary", "10.9.8", "Y2VydC1", signature, "alice", "00f067aa0ba902b7"] {
                assert!(!text.contains(secret), "{secret} in {text}");
            }
            assert_eq!(header(&call, "authorization"), None);
        }
    }
}

#[test]
fn a_secret_and_headers_are_shown_as_configured() {
    for era in ERAS {
        let (server, pki) = (Server::echo(era, &["echo"]), Pki::new("folder"));
        let secret = pki.folder().join("secret");
        std::fs::write(&secret, "upstream-canary\n").unwrap();
        e2e::canary::watch(e2e::canary::Side::Server, "upstream-canary");
        let from = format!("fromFile: '{}'", secret.display());
        for (more, name, value) in [
            (
                format!("credential: {{header: {{{from}}}}}"),
                "authorization",
                "Bearer upstream-canary",
            ),
            (
                format!("credential: {{header: {{name: X-API-Key, {from}}}}}"),
                "x-api-key",
                "upstream-canary",
            ),
            (
                format!("credential: {{header: {{prefix: 'Token ', {from}}}}}"),
                "authorization",
                "Token upstream-canary",
            ),
            (format!("headers: [{{name: X-Tenant, {from}}}]"), "x-tenant", "upstream-canary"),
            ("headers: [{name: X-Tenant, value: blue}]".to_owned(), "x-tenant", "blue"),
        ] {
            let config = Config::with(&item(&server, &more), "[up]");
            let gateway = config.start();
            let before = server.calls().len();
            let ana = gateway.client(era, ANA);
            let answer = ana.call("echo", &json!({ "text": "x" }));
            assert_eq!(answer.status, 200);
            let calls = server.calls().split_off(before);
            assert!(!calls.is_empty());
            for call in calls {
                assert_eq!(header(&call, name).as_deref(), Some(value), "{more}: {}", call.head);
            }
            // And nobody on this side hears of it.
            let said = format!("{answer:?} {} {:?}", gateway.said(), gateway.records());
            assert!(!said.contains("upstream-canary"));
        }
    }
}

#[test]
fn the_gateway_has_tokens_of_its_own() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        issuer.answer("/token", |_| token("own-token", &json!({})));
        let credential = format!("clientCredentials: {{{}}}", grant(&issuer, ", scopes: [tools]"));
        let gateway = showing(&server, &issuer, &credential).start();
        for subject in ["alice", "bob", "alice"] {
            assert_eq!(
                gateway.client(era, &issuer.good(subject)).call("echo", &json!({})).status,
                200
            );
        }
        for call in server.calls() {
            assert_eq!(header(&call, "authorization").as_deref(), Some("Bearer own-token"));
        }
        let asked = issuer.asked("/token");
        assert_eq!(asked.len(), 1);
        assert_eq!(form(&asked[0], "grant_type").as_deref(), Some("client_credentials"));
        assert_eq!(form(&asked[0], "scope").as_deref(), Some("tools"));
        assert_eq!(form(&asked[0], "resource"), Some(server.url()));
        let basic = header(&asked[0], "authorization").unwrap();
        assert!(basic.starts_with("Basic "), "{basic}");
    }
}

#[test]
fn a_client_can_sign_or_show_a_certificate() {
    let issuer = Issuer::start();
    let key = rcgen::KeyPair::generate().unwrap();
    let file = issuer.pki.folder().join("client-key.pem");
    std::fs::write(&file, key.serialize_pem()).unwrap();
    issuer.answer("/token", |_| token("signed-for", &json!({})));
    let server = Server::echo(Era::Modern, &["echo"]);
    let url = issuer.url();
    let credential = format!(
        "clientCredentials: {{tokenUrl: '{url}/token', client: {{id: gateway, privateKey: {{file: '{}', keyId: g1, audience: '{url}'}}}}, \
         connection: {{authorities: '{}'}}}}",
        file.display(),
        issuer.pki.path(),
    );
    let gateway = showing(&server, &issuer, &credential).start();
    assert_eq!(
        gateway.client(Era::Modern, &issuer.good("alice")).call("echo", &json!({})).status,
        200
    );
    let asked = issuer.asked("/token");
    let assertion = form(&asked[0], "client_assertion").unwrap();
    let kind = form(&asked[0], "client_assertion_type").unwrap();
    assert_eq!(kind, "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
    let part = |n: usize| -> Value {
        use base64::Engine as _;
        let text = assertion.split('.').nth(n).unwrap();
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).unwrap();
        String::from_utf8(bytes).unwrap().parse().unwrap()
    };
    assert_eq!(part(0), json!({ "alg": "ES256", "typ": "JWT", "kid": "g1" }));
    let claims = part(1);
    assert_eq!(
        (&claims["iss"], &claims["sub"], &claims["aud"]),
        (&json!("gateway"), &json!("gateway"), &json!(url))
    );
    assert!(claims["exp"].as_u64().unwrap() <= now() + 61);
    assert!(claims["jti"].as_str().unwrap().len() >= 16);
    // The same with a certificate: RFC 8705, section 2.
    let pki = Pki::new("both");
    let inner =
        Server::start(|_, stream| stream.write_all(&token("shown-for", &json!({}))).is_ok());
    let front = Front::before(inner.address, &pki.issue(&Leaf::local()), Some(&pki));
    let mine = pki.issue(&Leaf::default());
    let credential = format!(
        "clientCredentials: {{tokenUrl: 'https://localhost:{}/token', client: {{id: gateway, certificate: {{certificate: '{}', key: '{}'}}}}, \
         connection: {{authorities: '{}'}}}}",
        front.address.port(),
        mine.certificate.display(),
        mine.key.display(),
        pki.path(),
    );
    let gateway = showing(&server, &issuer, &credential).start();
    assert_eq!(
        gateway.client(Era::Modern, &issuer.good("alice")).call("echo", &json!({})).status,
        200
    );
    let shown = front.shown.lock().unwrap().clone();
    let shown =
        shown[0].as_ref().map(|leaf| encode(digest::digest(&digest::SHA256, leaf).as_ref()));
    assert_eq!(shown, Some(mine.thumbprint()));
    assert_eq!(form(&inner.calls()[0], "client_id").as_deref(), Some("gateway"));
}

/// A token for the subject of the token it is got for.
fn exchanged(call: &Call) -> String {
    let subject = form(call, "subject_token").unwrap();
    let hash = digest::digest(&digest::SHA256, subject.as_bytes());
    format!("for-{}", encode(hash.as_ref()))
}

#[test]
fn each_caller_has_a_token_got_for_its_own() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        issuer.answer("/token", |call| match form(call, "grant_type").as_deref() {
            Some("client_credentials") => token("actor-token", &json!({})),
            _ => token(&exchanged(call), &json!({})),
        });
        let credential = format!("tokenExchange: {{{}, actor: true}}", grant(&issuer, ""));
        let gateway = showing(&server, &issuer, &credential).start();
        let tokens = [issuer.good("alice"), issuer.good("bob")];
        // AV-47: each in its own name, whoever else asks at the same time.
        std::thread::scope(|scope| {
            for n in 0..4 {
                let (gateway, token) = (&gateway, &tokens[n % 2]);
                scope.spawn(move || {
                    let who = gateway.client(era, token);
                    for _ in 0..250 {
                        let text = if n % 2 == 0 { "alice" } else { "bob" };
                        assert_eq!(who.call("echo", &json!({ "text": text })).status, 200);
                    }
                });
            }
        });
        let expected = tokens.each_ref().map(|token| {
            format!(
                "Bearer for-{}",
                encode(digest::digest(&digest::SHA256, token.as_bytes()).as_ref())
            )
        });
        let mut calls = 0;
        for call in server.calls() {
            let shown = header(&call, "authorization").unwrap();
            match call.body["params"]["arguments"]["text"].as_str() {
                Some("alice") => assert_eq!(shown, expected[0]),
                Some("bob") => assert_eq!(shown, expected[1]),
                _ => {
                    assert!(expected.contains(&shown), "{shown}");
                    continue;
                }
            }
            calls += 1;
        }
        assert_eq!(calls, 1000);
        let asked = issuer.asked("/token");
        let exchanges: Vec<_> =
            asked.iter().filter(|call| form(call, "subject_token").is_some()).collect();
        assert_eq!((asked.len(), exchanges.len()), (3, 2));
        for call in exchanges {
            assert_eq!(
                form(call, "grant_type").as_deref(),
                Some("urn:ietf:params:oauth:grant-type:token-exchange")
            );
            assert_eq!(form(call, "actor_token").as_deref(), Some("actor-token"));
            assert_eq!(form(call, "resource"), Some(server.url()));
        }
        // What servers are shown is nowhere else.
        let said = format!("{} {:?}", gateway.said(), gateway.records());
        assert!(!said.contains(&expected[0]) && !said.contains("gateway-secret-canary"));
    }
}

#[test]
fn a_caller_with_many_tokens_leaves_the_authorization_server_to_others() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let many: Vec<_> = (0..20)
            .map(|n| {
                let mut claims = issuer.claims("alice");
                claims["jti"] = json!(format!("alice-{n}"));
                issuer.token(&claims)
            })
            .collect();
        let (gate, held) = (Gate::default(), many.clone());
        let of_alice = move |call: &Call| held.contains(&form(call, "subject_token").unwrap());
        let (waits, is_hers) = (gate.clone(), of_alice.clone());
        issuer.answer("/token", move |call| {
            if is_hers(call) {
                waits.pass();
            }
            token(&exchanged(call), &json!({}))
        });
        let credential = format!("tokenExchange: {{{}}}", grant(&issuer, ""));
        let gateway = showing(&server, &issuer, &credential).start();
        std::thread::scope(|scope| {
            for token in &many {
                let gateway = &gateway;
                scope.spawn(move || {
                    let header = format!("Bearer {token}");
                    let headers = [("authorization", &*header)];
                    let mut alice = Client::silent(gateway.address, "/mcp", era, &headers);
                    if era == Era::Legacy {
                        alice.handshake("2025-11-25");
                    }
                    assert_eq!(alice.call("echo", &json!({})).status, 200);
                });
            }
            let asked = || issuer.asked("/token").iter().filter(|call| of_alice(call)).count();
            eventually("the requests", || (asked() >= 8).then_some(()));
            let bob = gateway.client(era, &issuer.good("bob"));
            assert_eq!(bob.call("echo", &json!({})).status, 200);
            assert_eq!(asked(), 8, "a caller has a share");
            gate.open();
        });
    }
}

#[test]
fn a_token_got_for_a_caller_that_finds_no_room_is_got_again_and_is_as_good() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        issuer.answer("/token", |call| {
            token(&format!("{}{}", exchanged(call), "x".repeat(5000)), &json!({}))
        });
        let credential = format!("tokenExchange: {{{}}}", grant(&issuer, ""));
        let config = showing(&server, &issuer, &credential);
        let gateway = config.limits("tokenMemory: 64KiB\ntokenMemoryPerCaller: 4KiB").start();
        let alice = gateway.client(era, &issuer.good("alice"));
        for _ in 0..3 {
            let before = issuer.asked("/token").len();
            assert_eq!(alice.call("echo", &json!({ "text": "hello" })).status, 200);
            assert!(issuer.asked("/token").len() > before, "{era:?}: it was kept");
        }
    }
}

#[test]
fn an_exchange_that_gives_something_else_gives_nothing() {
    let issuer = Issuer::start();
    let jwt = |audience: &str, ends: u64| {
        let mut claims = issuer.claims("alice");
        claims["aud"] = json!(audience);
        claims["exp"] = json!(ends);
        // A token for a server, not one of a caller.
        issuer.key.token(&issuer.key.header().to_string(), &claims.to_string())
    };
    let server = Server::echo(Era::Modern, &["echo"]);
    let url = server.url();
    let html = answer("200 OK", "text/html", "<html>login</html>");
    let redirect =
        b"HTTP/1.1 302 Found\r\nlocation: https://169.254.169.254/\r\ncontent-length: 0\r\n\r\n";
    let refused = answer("400 Bad Request", "application/json", r#"{"error":"invalid_grant"}"#);
    for (what, bytes, good) in [
        ("good", token("t", &json!({ "scope": "tools" })), true),
        ("for us", token(&jwt(&url, now() + 60), &json!({})), true),
        ("AV-48 wider scope", token("t", &json!({ "scope": "tools admin" })), false),
        (
            "AV-48 other audience",
            token(&jwt("https://other.example", now() + 60), &json!({})),
            false,
        ),
        ("AV-48 ended", token(&jwt(&url, now() - 60), &json!({})), false),
        ("AV-48 ends now", token("t", &json!({ "expires_in": 0 })), false),
        ("AV-48 N_A", token("t", &json!({ "token_type": "N_A" })), false),
        ("AV-48 DPoP", token("t", &json!({ "token_type": "DPoP" })), false),
        (
            "AV-48 other type",
            token(
                "t",
                &json!({ "issued_token_type": "urn:ietf:params:oauth:token-type:id_token" }),
            ),
            false,
        ),
        ("AV-48 time of the wrong type", token("t", &json!({ "expires_in": "300" })), false),
        ("AV-48 a header", token("t\r\nx-evil: 1", &json!({})), false),
        ("AV-48 no token", ok(r#"{"token_type":"Bearer"}"#), false),
        ("AV-48 HTML", html, false),
        ("AV-48 redirect", redirect.to_vec(), false),
        ("refused", refused, false),
        ("AV-49 broken", answer("500 Internal Server Error", "text/plain", "no"), false),
    ] {
        for era in ERAS {
            let server = Server::echo(era, &["echo"]);
            let reply = bytes.clone();
            issuer.answer("/token", move |_| reply.clone());
            let more = format!(", scopes: [tools], resource: '{url}'");
            let credential = format!("tokenExchange: {{{}}}", grant(&issuer, &more));
            let gateway = showing(&server, &issuer, &credential).start();
            let header = format!("Bearer {}", issuer.good("alice"));
            let silent =
                Client::silent(gateway.address, "/mcp", era, &[("authorization", &header)]);
            let answer =
                if era == Era::Legacy { silent.hello() } else { silent.call("echo", &json!({})) };
            if good {
                assert!(answer.json().get("result").is_some(), "{what}: {answer:?}");
                continue;
            }
            assert_eq!(answer.code(), -32603, "{what}: {answer:?}");
            assert_eq!(gateway.last()["reason"], "upstream-credential", "{what}");
            assert!(server.calls().is_empty(), "{what}");
        }
    }
}

#[test]
fn without_its_authorization_server_nobody_speaks_for_a_caller() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let away = grant(&issuer, "")
            .replace(&format!("{}/token", issuer.url()), "https://localhost:9/token");
        let gateway = showing(&server, &issuer, &format!("tokenExchange: {{{away}}}")).start();
        let header = format!("Bearer {}", issuer.good("alice"));
        let silent = Client::silent(gateway.address, "/mcp", era, &[("authorization", &header)]);
        let answer =
            if era == Era::Legacy { silent.hello() } else { silent.call("echo", &json!({})) };
        // AV-49
        assert_eq!(answer.code(), -32603);
        assert!(server.calls().is_empty());
    }
    // Nor for one who came without a token.
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    issuer.answer("/token", |call| token(&exchanged(call), &json!({})));
    let mut config =
        showing(&server, &issuer, &format!("tokenExchange: {{{}}}", grant(&issuer, "")));
    config.authentication = "[oauth, apiKey]".to_owned();
    let gateway = config.start();
    assert_eq!(gateway.client(Era::Modern, ANA).call("echo", &json!({})).code(), -32603);
    assert_eq!(gateway.last()["reason"], "upstream-credential");
    assert!(server.calls().is_empty() && issuer.asked("/token").is_empty());
}

#[test]
fn an_authorization_server_that_fails_opens_no_circuit_of_the_server() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        issuer.answer("/token", |_| answer("503 Not Now", "text/plain", "no"));
        let mut config = showing(&server, &issuer, "");
        let grant = grant(&issuer, "");
        let more = format!(
            "credential: {{clientCredentials: {{{grant}}}}}\ncircuitBreaker: {{failures: 2, openFor: 1h}}"
        );
        config.servers = item(&server, &more);
        let gateway = config.start();
        let caller = issuer.good("alice");
        let modern = gateway.client(Era::Modern, &caller);
        for _ in 0..5 {
            assert_eq!(modern.call("echo", &json!({})).code(), -32603);
            assert_eq!(gateway.last()["reason"], "upstream-credential");
        }
        // As soon as there is a token the server is asked.
        issuer.answer("/token", |_| token("own-token", &json!({})));
        assert_eq!(gateway.client(era, &caller).call("echo", &json!({})).status, 200);
        assert!(!server.tool_calls().is_empty());
    }
}

#[test]
fn what_a_server_says_of_tokens_is_not_told_to_the_client() {
    for era in ERAS {
        let issuer = Issuer::start();
        let evil = format!("{}/evil", issuer.url());
        let count = AtomicUsize::new(0);
        let fresh = move |_: &Call| {
            token(&format!("token-{}", count.fetch_add(1, Ordering::Relaxed)), &json!({}))
        };
        issuer.answer("/token", fresh);
        // AV-51: a server that wants another token, now and for ever.
        let place = evil.clone();
        let tools = json!([{ "name": "echo", "inputSchema": { "type": "object" } }]);
        let server = Server::with(era, tools, move |_, stream| {
            let text = format!(
                "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer resource_metadata=\"{place}\", scope=\"upstream-scope\"\r\ncontent-length: 0\r\n\r\n"
            );
            stream.write_all(text.as_bytes()).is_ok()
        });
        let credential = format!("clientCredentials: {{{}}}", grant(&issuer, ""));
        let gateway = showing(&server, &issuer, &credential).start();
        let alice = gateway.client(era, &issuer.good("alice"));
        gateway.has_read(1);
        let before = issuer.asked("/token").len();
        let answer = alice.call("echo", &json!({}));
        assert_eq!(answer.code(), -32603, "{answer:?}");
        assert_eq!((answer.header("www-authenticate"), answer.status != 401), (None, true));
        assert!(!format!("{answer:?}").contains("upstream-scope"));
        assert_eq!(gateway.last()["reason"], "upstream-unauthorized");
        assert!(issuer.asked("/evil").is_empty());
        // Something newer was tried, once.
        assert_eq!(issuer.asked("/token").len(), before + 1);
        assert_eq!(server.count("tools/call"), 2);
    }
}

#[test]
fn a_token_that_a_server_no_longer_takes_is_replaced() {
    for era in ERAS {
        let issuer = Issuer::start();
        let count = AtomicUsize::new(0);
        issuer.answer("/token", move |_| {
            token(&format!("token-{}", count.fetch_add(1, Ordering::Relaxed)), &json!({}))
        });
        let tools = json!([{ "name": "echo", "inputSchema": { "type": "object" } }]);
        let server = Server::with(era, tools, |call, stream| {
            let bytes = if header(call, "authorization").as_deref() == Some("Bearer token-0") {
                answer("401 Unauthorized", "text/plain", "no")
            } else {
                call.text("hello")
            };
            stream.write_all(&bytes).is_ok()
        });
        let credential = format!("clientCredentials: {{{}}}", grant(&issuer, ""));
        let gateway = showing(&server, &issuer, &credential).start();
        let alice = gateway.client(era, &issuer.good("alice"));
        for _ in 0..3 {
            let answer = alice.call("echo", &json!({}));
            assert_eq!(answer.json()["result"]["content"][0]["text"], "hello", "{answer:?}");
        }
        assert_eq!((issuer.asked("/token").len(), server.count("tools/call")), (2, 4));
    }
}

#[test]
fn an_identity_provider_vouches_for_a_caller_at_another_server() {
    let server = Server::echo(Era::Modern, &["echo"]);
    let url = server.url();
    let issuer = Issuer::start();
    let good = || {
        json!({
            "iss": issuer.url(), "sub": "alice", "aud": "https://as.example", "resource": url,
            "client_id": "gateway", "jti": "j", "iat": now(), "exp": now() + 60,
        })
    };
    let assertion = |typ: &str, claims: &Value| {
        let header = json!({ "alg": "ES256", "typ": typ, "kid": "k1" });
        issuer.key.token(&header.to_string(), &claims.to_string())
    };
    let start = |assertion: String, kind: &str| {
        let given = json!({
            "access_token": assertion, "token_type": "N_A", "expires_in": 60,
            "issued_token_type": kind,
        });
        issuer.answer("/token", move |_| ok(&given.to_string()));
        issuer.answer("/resource-token", |_| token("resource-token", &json!({})));
        let provider = grant(&issuer, "");
        let target =
            grant(&issuer, &format!(", resource: '{url}'")).replace("/token'", "/resource-token'");
        let credential = format!(
            "identityAssertion: {{identityProvider: {{{provider}}}, issuer: 'https://as.example', authorizationServer: {{{target}}}}}"
        );
        showing(&server, &issuer, &credential).start()
    };
    const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
    let used = issuer.asked("/resource-token").len();
    let gateway = start(assertion("oauth-id-jag+jwt", &good()), ID_JAG);
    let alice = gateway.client(Era::Modern, &issuer.good("alice"));
    assert_eq!(alice.call("echo", &json!({})).status, 200);
    assert_eq!(
        header(server.calls().last().unwrap(), "authorization").as_deref(),
        Some("Bearer resource-token")
    );
    let asked = &issuer.asked("/token")[0];
    assert_eq!(form(asked, "requested_token_type").as_deref(), Some(ID_JAG));
    assert_eq!(form(asked, "audience").as_deref(), Some("https://as.example"));
    assert_eq!(form(asked, "resource"), Some(url.clone()));
    let redeemed = &issuer.asked("/resource-token")[used];
    assert_eq!(
        form(redeemed, "grant_type").as_deref(),
        Some("urn:ietf:params:oauth:grant-type:jwt-bearer")
    );
    // AV-53: the same assertion for somebody else was used before.
    let bob = gateway.client(Era::Modern, &issuer.good("bob"));
    assert_eq!(bob.call("echo", &json!({})).code(), -32603);
    let before = issuer.asked("/resource-token").len();
    let with = |key: &str, value: Value| {
        let mut claims = good();
        claims[key] = value;
        claims
    };
    for (what, text, kind) in [
        ("aud", assertion("oauth-id-jag+jwt", &with("aud", json!("https://evil.example"))), ID_JAG),
        (
            "resource",
            assertion("oauth-id-jag+jwt", &with("resource", json!("https://other.example"))),
            ID_JAG,
        ),
        ("client", assertion("oauth-id-jag+jwt", &with("client_id", json!("other"))), ID_JAG),
        ("ended", assertion("oauth-id-jag+jwt", &with("exp", json!(now() - 1))), ID_JAG),
        ("no id", assertion("oauth-id-jag+jwt", &with("jti", Value::Null)), ID_JAG),
        ("typ", assertion("JWT", &good()), ID_JAG),
        (
            "kind",
            assertion("oauth-id-jag+jwt", &good()),
            "urn:ietf:params:oauth:token-type:access_token",
        ),
        ("nothing", "x".to_owned(), ID_JAG),
    ] {
        let gateway = start(text, kind);
        let alice = gateway.client(Era::Modern, &issuer.good("alice"));
        assert_eq!(alice.call("echo", &json!({})).code(), -32603, "AV-53 {what}");
        assert_eq!(gateway.last()["reason"], "upstream-credential", "AV-53 {what}");
    }
    assert_eq!(issuer.asked("/resource-token").len(), before);
}

#[test]
fn a_server_is_who_it_has_to_be() {
    for era in ERAS {
        let inner = Server::echo(era, &["echo"]);
        let (pki, other) = (Pki::new("servers"), Pki::new("others"));
        let id = "spiffe://corp.example/server";
        let files = pki.issue(&Leaf { uris: vec![id.into()], ..Leaf::local() });
        let front = Front::before(inner.address, &files, Some(&pki));
        let port = front.address.port();
        let pin = |files: &e2e::pki::Files| {
            let (chain, _) = files.read();
            let hex: String = spki(&chain[0]).iter().map(|byte| format!("{byte:02x}")).collect();
            hex
        };
        let start = |tls: &str| {
            let server =
                format!("- {{name: up, url: 'https://localhost:{port}/mcp', tls: {{{tls}}}}}");
            Config::with(&server, "[up]").start()
        };
        let call = |gateway: &Gateway| {
            let header = format!("Bearer {ANA}");
            let silent =
                Client::silent(gateway.address, "/mcp", era, &[("authorization", &header)]);
            if era == Era::Legacy { silent.hello() } else { silent.call("echo", &json!({})) }
        };
        let ca = format!("authorities: '{}'", pki.path());
        let pinned = format!("{ca}, keys: ['{}']", pin(&files));
        let named = format!("{ca}, spiffeId: '{id}'");
        for tls in [&ca, &pinned, &named] {
            assert!(call(&start(tls)).json().get("result").is_some(), "{tls}");
        }
        let before = inner.calls().len();
        let another = pki.issue(&Leaf::local());
        for tls in [
            String::new(),
            format!("authorities: '{}'", other.path()),
            format!("{ca}, keys: ['{}']", pin(&another)),
            format!("{ca}, spiffeId: 'spiffe://corp.example/other'"),
        ] {
            let gateway = start(&tls);
            assert_eq!(call(&gateway).code(), -32603, "{tls}");
            assert_eq!(gateway.last()["reason"], "upstream-identity", "{tls}");
        }
        assert_eq!(inner.calls().len(), before);
        // One that becomes another is refused from then on, and that is on record.
        let gateway = start(&pinned);
        let header = format!("Bearer {ANA}");
        let ana =
            Client::silent(gateway.address, "/mcp", Era::Modern, &[("authorization", &header)]);
        if era == Era::Modern {
            assert_eq!(ana.call("echo", &json!({})).status, 200);
        }
        front.show(&another);
        eventually("the refusal", || {
            let answer = call(&gateway);
            (answer.code() == -32603 && gateway.last()["reason"] == "upstream-identity")
                .then_some(())
        });
        // It is shown a certificate where one is configured.
        let mine = pki.issue(&Leaf::default());
        let front = Front::before(inner.address, &files, Some(&pki));
        let tls = format!(
            "{ca}, certificate: {{certificate: '{}', key: '{}'}}",
            mine.certificate.display(),
            mine.key.display()
        );
        let server = format!(
            "- {{name: up, url: 'https://localhost:{}/mcp', tls: {{{tls}}}}}",
            front.address.port()
        );
        assert!(call(&Config::with(&server, "[up]").start()).json().get("result").is_some());
        let shown = front.shown.lock().unwrap()[0].clone();
        let shown = shown.map(|leaf| encode(digest::digest(&digest::SHA256, &leaf).as_ref()));
        assert_eq!(shown, Some(mine.thumbprint()));
    }
}

/// SHA-256 of the public key in a certificate for P-256.
fn spki(der: &[u8]) -> Vec<u8> {
    // SubjectPublicKeyInfo of RFC 5480 with an uncompressed point begins like this.
    let head: &[u8] = &[
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
        0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ];
    let at = der.windows(head.len()).position(|window| window == head).unwrap();
    digest::digest(&digest::SHA256, &der[at..at + 91]).as_ref().to_vec()
}

#[test]
fn a_bad_configuration_of_credentials_is_said_with_its_place() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let grant = grant(&issuer, "");
    let plain = grant.replace("https://", "http://");
    for (more, said) in [
        (
            "credential: {}".to_owned(),
            "exactly one of `header`, `clientCredentials`, `tokenExchange` and `identityAssertion` is required",
        ),
        ("credential: {header: {}}".to_owned(), "the secret has exactly one source"),
        (
            "credential: {header: {name: Cookie, fromEnv: X}}".to_owned(),
            "this header has another meaning",
        ),
        (format!("credential: {{clientCredentials: {{{plain}}}}}"), "is not an `https` URL"),
        (
            format!("credential: {{clientCredentials: {{{grant}, actor: true}}}}"),
            "`actor` belongs to `tokenExchange`",
        ),
        (format!("credential: {{tokenExchange: {{{grant}}}}}"), "no listener takes one"),
        ("headers: [{name: Authorization, value: x}]".to_owned(), "is not set here"),
        ("headers: [{name: Mcp-Method, value: x}]".to_owned(), "is not set here"),
        ("headers: [{name: 'a b', value: x}]".to_owned(), "is not the name of a header"),
        ("tls: {keys: [ab]}".to_owned(), "`tls` belongs to an `https` URL"),
    ] {
        let refused = Config::with(&item(&server, &more), "[up]").refused();
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(3), "{said}: {text}");
        assert!(text.contains(said) && text.contains("gateway.yaml:"), "{said}: {text}");
    }
    for (more, said) in [
        ("tls: {keys: [ab]}", "not a SHA-256 in hexadecimal"),
        ("tls: {spiffeId: 'https://x'}", "not a SPIFFE ID"),
        ("tls: {spiffeId: 'spiffe://corp.example/x'}", "do not vouch for SPIFFE IDs"),
        ("tls: {authorities: /nowhere/ca.pem}", "could not read `/nowhere/ca.pem`"),
    ] {
        let server = format!("- {{name: up, url: 'https://up.example/mcp', {more}}}");
        let text =
            String::from_utf8_lossy(&Config::with(&server, "[up]").refused().stderr).into_owned();
        assert!(text.contains(said) && text.contains("gateway.yaml:"), "{said}: {text}");
    }
    let far = "- {name: up, url: 'http://up.example/mcp', credential: {header: {fromEnv: X}}}";
    let text = String::from_utf8_lossy(&Config::with(far, "[up]").refused().stderr).into_owned();
    assert!(text.contains("a credential would be sent in the clear"), "{text}");
    let program = "- {name: up, command: cat, credential: {header: {fromEnv: X}}}";
    let text =
        String::from_utf8_lossy(&Config::with(program, "[up]").refused().stderr).into_owned();
    assert!(text.contains("`credential` belongs to a `url`"), "{text}");
}
