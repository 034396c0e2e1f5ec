//! Tokens that are good in one hand alone: bound to a certificate, or to a key that signs requests.

use e2e::client::{Answer, Client, post, raw};
use e2e::gateway::{Config, Folder, Gateway};
use e2e::issuer::{Issuer, Key, encode, now};
use e2e::pki::{Leaf, Pki};
use e2e::server::Server;
use e2e::tls::{client, tunnel};
use e2e::{ERAS, Era};
use serde_json::{Value, json};

use crate::introspection::replaced;
use crate::tokens::{believing, knock};

const URL: &str = "https://gw.example/mcp";

fn ath(token: &str) -> String {
    encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes()).as_ref())
}

/// What a good proof says.
pub(crate) fn said(token: &str, id: &str) -> Value {
    json!({ "jti": id, "htm": "POST", "htu": URL, "iat": now(), "ath": ath(token) })
}

pub(crate) fn bound(issuer: &Issuer, cnf: &Value) -> String {
    let mut claims = issuer.claims("alice");
    claims["cnf"] = cnf.clone();
    issuer.token(&claims)
}

pub(crate) fn dpop(gateway: &Gateway, era: Era, token: &str, proof: &str) -> Answer {
    knock(gateway, era, &[("authorization", &format!("DPoP {token}")), ("dpop", proof)])
}

#[test]
fn a_token_bound_to_a_key_needs_a_proof_for_each_request() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let gateway = believing(&server, &issuer.item("corp", "")).start();
    let (key, other) = (Key::es256("mine"), Key::es256("mine"));
    let token = bound(&issuer, &json!({ "jkt": key.thumbprint() }));
    let mut count = 0;
    let mut id = || {
        count += 1;
        format!("id-{count}")
    };
    for era in ERAS {
        // AV-55
        let proof = key.proof(&said(&token, &id()));
        assert_eq!(dpop(&gateway, era, &token, &proof).status, 200);
        assert_eq!(gateway.last()["proof"], "dpop");
        // AV-56: once.
        let again = dpop(&gateway, era, &token, &proof);
        assert_eq!(again.status, 401);
        assert!(
            again.header("www-authenticate").unwrap().contains(r#"error="invalid_dpop_proof""#)
        );
        assert_eq!(gateway.last()["reason"], "token-proof");
        let with = |changes: Value| {
            let mut claims = said(&token, "x");
            for (name, value) in changes.as_object().unwrap() {
                claims[name] = value.clone();
            }
            claims
        };
        let (clock, long) = (now(), "x".repeat(300));
        for (what, changes) in [
            ("AV-57 htm", json!({ "htm": "GET" })),
            ("AV-57 htm in lower case", json!({ "htm": "post" })),
            ("AV-57 htu", json!({ "htu": "https://gw.example/other" })),
            ("AV-57 host", json!({ "htu": "https://evil.example/mcp" })),
            ("AV-57 scheme", json!({ "htu": "http://gw.example/mcp" })),
            ("AV-57 ath", json!({ "ath": ath("another") })),
            ("AV-57 no ath", json!({ "ath": null })),
            ("no id", json!({ "jti": null })),
            ("long id", json!({ "jti": long })),
            ("AV-58 old", json!({ "iat": clock - 120 })),
            ("AV-58 early", json!({ "iat": clock + 120 })),
            ("AV-58 text", json!({ "iat": "now" })),
            ("AV-58 none", json!({ "iat": null })),
        ] {
            let mut claims = with(changes.clone());
            if changes.get("jti").is_none() {
                claims["jti"] = json!(id());
            }
            let answer = dpop(&gateway, era, &token, &key.proof(&claims));
            assert_eq!(answer.status, 401, "{what}");
        }
        for htu in ["HTTPS://GW.example:443/mcp", "https://gw.example/mcp?x=y#z"] {
            let mut claims = said(&token, &id());
            claims["htu"] = json!(htu);
            assert_eq!(dpop(&gateway, era, &token, &key.proof(&claims)).status, 200, "{htu}");
        }
        let claims = said(&token, &id()).to_string();
        let mut jwk = key.jwk();
        let header = |alg: &str, typ: &str, jwk: &Value| {
            json!({ "alg": alg, "typ": typ, "jwk": jwk }).to_string()
        };
        let wrong_key = other.proof(&said(&token, &id()));
        let wrong_type = key.token(&header("ES256", "at+jwt", &jwk), &claims);
        let secret = e2e::issuer::hs256(&header("HS256", "dpop+jwt", &jwk), &claims, b"x");
        let not_its_own = other.token(&header("ES256", "dpop+jwt", &jwk), &claims);
        jwk["d"] = json!(encode(&[7; 32]));
        let private = key.token(&header("ES256", "dpop+jwt", &jwk), &claims);
        for (what, proof) in [
            ("AV-57 jkt", wrong_key),
            ("AV-57 typ", wrong_type),
            ("AV-57 HS256", secret),
            ("AV-57 signed by another", not_its_own),
            ("AV-57 private key", private),
            ("nothing", String::new()),
            ("a token", token.clone()),
        ] {
            assert_eq!(dpop(&gateway, era, &token, &proof).status, 401, "{what}");
        }
        // AV-60
        let proof = key.proof(&said(&token, &id()));
        let bearer = format!("Bearer {token}");
        let header = format!("DPoP {token}");
        let plain = issuer.good("alice");
        let unbound = format!("DPoP {plain}");
        let unbound_proof = key.proof(&said(&plain, &id()));
        for (what, headers, status) in [
            ("Bearer", vec![("authorization", &*bearer), ("dpop", &*proof)], 401),
            ("no proof", vec![("authorization", &*header)], 401),
            (
                "two proofs",
                vec![("authorization", &*header), ("dpop", &*proof), ("dpop", &*proof)],
                400,
            ),
            ("not bound", vec![("authorization", &*unbound), ("dpop", &*unbound_proof)], 401),
        ] {
            assert_eq!(knock(&gateway, era, &headers).status, status, "AV-60 {what}");
        }
        assert_eq!(dpop(&gateway, era, &token, &proof).status, 200);
    }
}

#[test]
fn a_proof_can_be_asked_to_have_a_nonce() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let mut config = believing(&server, &issuer.item("corp", ""));
        config.routes =
            "- {path: /mcp, servers: [up], oauth: {proof: dpop, dpopNonce: true}}".to_owned();
        config.more = "sessions: {keys: [{fromFile: KEYS}]}".replace("KEYS", &{
            let file = issuer.pki.folder().join("keys");
            std::fs::write(&file, "ab".repeat(32)).unwrap();
            file.display().to_string()
        });
        let (gateway, replica) = (config.start(), config.start());
        let key = Key::es256("mine");
        let token = bound(&issuer, &json!({ "jkt": key.thumbprint() }));
        let answer = dpop(&gateway, era, &token, &key.proof(&said(&token, "a")));
        assert_eq!(answer.status, 401);
        let challenge = answer.header("www-authenticate").unwrap();
        assert!(
            challenge.starts_with("dpop ") && challenge.contains("use_dpop_nonce"),
            "{challenge}"
        );
        // A header's value is read in lower case here, so it is taken from the bytes.
        let nonce = nonce(&gateway, &token, &key.proof(&said(&token, "b")));
        let mut claims = said(&token, "c");
        claims["nonce"] = json!(nonce);
        assert_eq!(dpop(&gateway, era, &token, &key.proof(&claims)).status, 200);
        // Replicas with the same keys know each other's.
        claims["jti"] = json!("d");
        assert_eq!(dpop(&replica, era, &token, &key.proof(&claims)).status, 200);
        for wrong in
            [nonce.replace(nonce.get(4..8).unwrap(), "AAAA"), String::new(), "x".to_owned()]
        {
            claims["nonce"] = json!(wrong);
            claims["jti"] = json!(format!("e{wrong}"));
            assert_eq!(dpop(&gateway, era, &token, &key.proof(&claims)).status, 401);
        }
        // The route wants a proof of every token.
        let plain = format!("Bearer {}", issuer.good("alice"));
        assert_eq!(knock(&gateway, era, &[("authorization", &plain)]).status, 401);
        let metadata =
            e2e::client::get(gateway.address, "/.well-known/oauth-protected-resource/mcp");
        assert_eq!(metadata.json()["dpop_bound_access_tokens_required"], true);
    }
}

#[test]
fn a_caller_has_a_share_of_the_room_for_proofs_which_replays_do_not_use_up() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        // One caller has a sixteenth of it.
        let gateway = believing(&server, &issuer.item("corp", "")).limits("proofs: 320").start();
        let with = |key: &Key, id: &str| {
            let token = bound(&issuer, &json!({ "jkt": key.thumbprint() }));
            let proof = key.proof(&said(&token, id));
            (token, proof)
        };
        let (one, other) = (Key::es256("one"), Key::es256("other"));
        let (token, stolen) = with(&one, "0");
        assert_eq!(dpop(&gateway, era, &token, &stolen).status, 200);
        for _ in 0..25 {
            assert_eq!(dpop(&gateway, era, &token, &stolen).status, 401);
        }
        for n in 1..20 {
            let (token, proof) = with(&one, &n.to_string());
            assert_eq!(dpop(&gateway, era, &token, &proof).status, 200, "{n}");
        }
        let (token, proof) = with(&one, "20");
        assert_eq!(dpop(&gateway, era, &token, &proof).status, 503);
        assert_eq!(gateway.last()["reason"], "token-unavailable");
        // Another key of the same caller has no share of its own, and another caller has.
        let (token, proof) = with(&other, "0");
        assert_eq!(dpop(&gateway, era, &token, &proof).status, 503);
        let mut claims = issuer.claims("bob");
        claims["cnf"] = json!({ "jkt": other.thumbprint() });
        let token = issuer.token(&claims);
        let proof = other.proof(&said(&token, "1"));
        assert_eq!(dpop(&gateway, era, &token, &proof).status, 200);
    }
}

#[test]
fn used_proofs_and_nonces_outlive_a_change_of_the_configuration() {
    for era in ERAS {
        let (server, issuer, folder) =
            (Server::echo(era, &["echo"]), Issuer::start(), Folder::new());
        let config = |more: &str| {
            let mut config = believing(&server, &issuer.item("corp", more));
            config.routes =
                "- {path: /mcp, servers: [up], oauth: {proof: dpop, dpopNonce: true}}".to_owned();
            config
        };
        let file = folder.path().join("gateway.yaml");
        let gateway = config("").start_at(&file);
        let key = Key::es256("mine");
        let token = bound(&issuer, &json!({ "jkt": key.thumbprint() }));
        let mut claims = said(&token, "a");
        claims["nonce"] =
            json!(nonce(&gateway, &token, &key.proof(&said(&token, "without a nonce"))));
        let used = key.proof(&claims);
        assert_eq!(dpop(&gateway, era, &token, &used).status, 200);
        // Also when it is the issuer of the token that is configured otherwise.
        replaced(&gateway, &file, &config("unknownKeyCooldown: 45s"));
        assert_eq!(dpop(&gateway, era, &token, &used).status, 401);
        assert_eq!(gateway.last()["reason"], "token-proof");
        claims["jti"] = json!("b");
        assert_eq!(dpop(&gateway, era, &token, &key.proof(&claims)).status, 200);
    }
}

#[test]
fn a_nonce_that_is_too_old_is_refused() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let mut config = believing(&server, &issuer.item("corp", ""));
        config.routes =
            "- {path: /mcp, servers: [up], oauth: {proof: dpop, dpopNonce: true}}".to_owned();
        let file = issuer.pki.folder().join("keys");
        std::fs::write(&file, "ab".repeat(32)).unwrap();
        config.more = format!("sessions: {{keys: [{{fromFile: {}}}]}}", file.display());
        let gateway = config.start();
        let key = Key::es256("mine");
        let token = bound(&issuer, &json!({ "jkt": key.thumbprint() }));
        // As the gateway makes one, at another time.
        let sealer = gateway::crypto::sealer::Sealer::new(&[vec![0xab; 32]]).unwrap();
        let made = |at: u64| {
            sealer.seal(&[b"portcullis dpop nonce v1"], at.to_be_bytes().to_vec()).unwrap()
        };
        let with = |id: &str, nonce: &str| {
            let mut claims = said(&token, id);
            claims["nonce"] = json!(nonce);
            dpop(&gateway, era, &token, &key.proof(&claims))
        };
        assert_eq!(with("a", &made(now() - 200)).status, 200);
        for (id, at) in [("b", now() - 330), ("c", 0), ("d", now() + 120)] {
            let answer = with(id, &made(at));
            assert_eq!(answer.status, 401, "{era:?} {id}");
            let challenge = answer.header("www-authenticate").unwrap();
            assert!(challenge.contains("use_dpop_nonce"), "{challenge}");
        }
        let fresh = nonce(&gateway, &token, &key.proof(&said(&token, "e")));
        assert_eq!(with("f", &fresh).status, 200);
    }
}

fn nonce(gateway: &Gateway, token: &str, proof: &str) -> String {
    use std::io::{Read as _, Write as _};
    let client = Client::silent(
        gateway.address,
        "/mcp",
        Era::Modern,
        &[("authorization", &format!("DPoP {token}")), ("dpop", proof), ("connection", "close")],
    );
    let mut stream = std::net::TcpStream::connect(gateway.address).unwrap();
    stream.write_all(&client.bytes("tools/list", None, "{}")).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("dpop-nonce: ")).unwrap();
    line.to_owned()
}

#[test]
fn a_proof_can_be_about_the_body() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let gateway = believing(&server, &issuer.item("corp", "")).start();
    let key = Key::es256("mine");
    let token = bound(&issuer, &json!({ "jkt": key.thumbprint() }));
    let digest = |body: &str| {
        use base64::Engine as _;
        let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, body.as_bytes());
        format!("sha-256=:{}:", base64::engine::general_purpose::STANDARD.encode(hash))
    };
    let ask = |id: &str, signed: &str, body: &str| {
        let mut claims = said(&token, id);
        claims["content_digest"] = json!(signed);
        let proof = key.proof(&claims);
        let authorization = format!("DPoP {token}");
        let headers = [
            ("host", "localhost"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/list"),
            ("authorization", &*authorization),
            ("dpop", &*proof),
        ];
        raw(gateway.address, &post("/mcp", &headers, body)).status
    };
    let body = Client::silent(gateway.address, "/mcp", Era::Modern, &[]).message(
        &json!(1),
        "tools/list",
        json!({}),
    );
    assert_eq!(ask("a", &digest(&body), &body), 200);
    // AV-59: it was changed after it was signed.
    assert_eq!(ask("b", &digest(&body), &body.replace("\"id\":1", "\"id\":2")), 401);
    assert_eq!(gateway.last()["reason"], "token-proof");
    assert_eq!(ask("c", "sha-512=:AAAA:", &body), 401);
}

/// A gateway with TLS that asks for certificates, and its authority.
fn mutual(server: &Server, issuer: &Issuer, pki: &Pki, more: &str) -> Config {
    let files = pki.issue(&Leaf::local());
    let mut config = believing(server, &issuer.item("corp", ""));
    config.listener.push_str(&format!(
        "\ntls:\n  certificate: '{}'\n  key: '{}'\n  clients: {{certificates: optional, authorities: '{}'}}{more}",
        files.certificate.display(),
        files.key.display(),
        pki.path(),
    ));
    config
}

#[test]
fn a_token_bound_to_a_certificate_is_good_on_its_connections_alone() {
    for era in ERAS {
        let (server, issuer, pki) =
            (Server::echo(era, &["echo"]), Issuer::start(), Pki::new("clients"));
        let mut config = mutual(&server, &issuer, &pki, "");
        config.policy = "rules:\n\
            - {id: all, effect: allow, principals: ['*'], servers: ['*'], tools: [echo]}"
            .to_owned();
        let gateway = config.start();
        let (mine, other) = (pki.issue(&Leaf::uri("urn:a")), pki.issue(&Leaf::uri("urn:b")));
        let through = |files| tunnel(gateway.address, client(pki.roots(), files));
        let (own, others, none) = (through(Some(&mine)), through(Some(&other)), through(None));
        let token = bound(&issuer, &json!({ "x5t#S256": mine.thumbprint() }));
        let status = |address, token: &str| {
            let header = format!("Bearer {token}");
            let client = Client::silent(address, "/mcp", era, &[("authorization", &header)]);
            let answer =
                if era == Era::Legacy { client.hello() } else { client.call("echo", &json!({})) };
            answer.status
        };
        // AV-40 to AV-42
        assert_eq!(status(own, &token), 200);
        let record = gateway.last();
        assert_eq!(
            (&record["proof"], &record["certificate"]),
            (&json!("certificate"), &json!("uri:urn:a"))
        );
        assert_eq!(status(others, &token), 401);
        assert_eq!(gateway.last()["reason"], "token-proof");
        assert_eq!(status(none, &token), 401);
        // A token that is not bound is good on any connection, unless it is asked for.
        assert_eq!(status(none, &issuer.good("alice")), 200);
        let digest = mine.thumbprint();
        for (what, cnf) in [
            ("AV-43 padded", json!({ "x5t#S256": format!("{digest}=") })),
            ("AV-43 hexadecimal", json!({ "x5t#S256": "ab".repeat(32) })),
            ("AV-43 short", json!({ "x5t#S256": digest.get(..42) })),
            ("AV-43 SHA-1", json!({ "x5t": "YWJjZGVmZ2hpamtsbW5vcHFyc3Q" })),
            ("AV-43 number", json!({ "x5t#S256": 7 })),
            ("something else", json!({ "kid": "k" })),
            ("and something else", json!({ "x5t#S256": digest, "jwk": {} })),
            ("nothing", json!({})),
            ("a text", json!(digest)),
            ("null", Value::Null),
        ] {
            assert_eq!(status(own, &bound(&issuer, &cnf)), 401, "{what}");
        }
        let metadata = Client::silent(own, "/mcp", Era::Modern, &[]);
        let metadata = raw(
            metadata.address,
            b"GET /.well-known/oauth-protected-resource/mcp HTTP/1.1\r\nhost: localhost\r\n\r\n",
        );
        assert_eq!(metadata.json()["tls_client_certificate_bound_access_tokens"], true);
    }
}

#[test]
fn a_route_or_a_tool_can_ask_for_proof() {
    for era in ERAS {
        let (server, issuer, pki) =
            (Server::echo(era, &["echo", "payments.send"]), Issuer::start(), Pki::new("clients"));
        let mut config = mutual(&server, &issuer, &pki, "");
        config.routes.push_str("\n- {path: /bound, servers: [up], oauth: {proof: certificate}}");
        config.policy = "rules:\n\
            - {id: all, effect: allow, principals: ['group:dev'], servers: ['*'], tools: [echo]}\n\
            - {id: payments, effect: allow, principals: ['group:dev'], servers: ['*'], tools: ['payments.*'], proof: any}"
            .to_owned();
        let gateway = config.start();
        let mine = pki.issue(&Leaf::uri("urn:a"));
        let own = tunnel(gateway.address, client(pki.roots(), Some(&mine)));
        let (plain, good) = (issuer.good("alice"), {
            let mut claims = issuer.claims("alice");
            claims["cnf"] = json!({ "x5t#S256": mine.thumbprint() });
            claims
        });
        let open = |token: &str| Client::connect(own, "/mcp", era, Some(token));
        let alice = open(&plain);
        assert_eq!(alice.tools(), ["echo", "payments.send"]);
        assert_eq!(alice.call("echo", &json!({})).status, 200);
        // AV-44: the tool is there, and wants more of the token.
        let answer = alice.call("payments.send", &json!({}));
        assert_eq!(answer.status, 401, "{answer:?}");
        assert!(answer.header("www-authenticate").unwrap().contains("proof of possession"));
        assert_eq!(gateway.last()["reason"], "proof-required");
        assert_eq!(open(&issuer.token(&good)).call("payments.send", &json!({})).status, 200);
        // And so does the route.
        let at = |claims: &Value| {
            let mut claims = claims.clone();
            claims["aud"] = json!("https://gw.example/bound");
            let header = format!("Bearer {}", issuer.token(&claims));
            Client::silent(own, "/bound", Era::Legacy, &[("authorization", &header)]).hello().status
        };
        assert_eq!(at(&issuer.claims("alice")), 401);
        assert_eq!(at(&good), 200);
    }
}

#[test]
fn a_session_is_of_one_client_and_one_key() {
    let (server, issuer, pki) =
        (Server::echo(Era::Legacy, &["echo"]), Issuer::start(), Pki::new("clients"));
    let gateway = mutual(&server, &issuer, &pki, "").start();
    let (mine, other) = (pki.issue(&Leaf::uri("urn:a")), pki.issue(&Leaf::uri("urn:b")));
    let through = |files| tunnel(gateway.address, client(pki.roots(), Some(files)));
    let (own, others) = (through(&mine), through(&other));
    let token = |client: &str, files: Option<&e2e::pki::Files>| {
        let mut claims = issuer.claims("alice");
        claims["client_id"] = json!(client);
        if let Some(files) = files {
            claims["cnf"] = json!({ "x5t#S256": files.thumbprint() });
        }
        issuer.token(&claims)
    };
    let opened = Client::connect(own, "/mcp", Era::Legacy, Some(&token("agent", Some(&mine))));
    let with = |address, token: &str| {
        let mut client = Client::silent(
            address,
            "/mcp",
            Era::Legacy,
            &[("authorization", &format!("Bearer {token}"))],
        );
        client.session.clone_from(&opened.session);
        client.ask("tools/list", json!({})).status
    };
    assert_eq!(with(own, &token("agent", Some(&mine))), 200);
    // AV-61, AV-62: another client, another key, the same key without a proof, another caller.
    assert_eq!(with(own, &token("other", Some(&mine))), 404);
    assert_eq!(with(others, &token("agent", Some(&other))), 404);
    assert_eq!(with(own, &token("agent", None)), 404);
    assert_eq!(with(own, &issuer.good("bob")), 404);
    // AV-63
    let mut nobody = Client::silent(own, "/mcp", Era::Legacy, &[]);
    nobody.session.clone_from(&opened.session);
    assert_eq!(nobody.ask("tools/list", json!({})).status, 401);
}
