//! A certified authorization server, and the official SDKs in their own OAuth flow.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use e2e::authority::Authority;
use e2e::client::{Client, post, raw};
use e2e::gateway::{Config, Gateway, root};
use e2e::issuer::{Key, RESOURCE, encode, now};
use e2e::pki::{Leaf, Pki};
use e2e::server::Server;
use e2e::tls;
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

use crate::peers::peers;
use crate::tokens::{believing, knock};

/// An item of `issuers` that believes `authority`.
fn item(authority: &Authority, more: &str) -> String {
    let (issuer, ca) = (&authority.issuer, authority.pki.path());
    format!(
        "- name: as\n  issuer: '{issuer}'\n  connection: {{authorities: '{ca}'}}\n  claims: {{groups: /groups}}\n{more}"
    )
}

fn status(gateway: &Gateway, era: Era, token: &str) -> u16 {
    knock(gateway, era, &[("authorization", &format!("Bearer {token}"))]).status
}

fn minted(authority: &Authority, query: &str) -> String {
    authority.ask("GET", &format!("/test/token?{query}"))
}

#[expect(clippy::disallowed_methods, reason = "the report of our own script")]
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// What a token says.
fn claims(token: &str) -> Value {
    use base64::Engine as _;
    let part = token.split('.').nth(1).unwrap();
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap();
    parsed(std::str::from_utf8(&bytes).unwrap())
}

#[test]
fn the_official_clients_find_their_way_from_the_refusal() {
    let authority = Authority::start(None);
    let server = Server::echo(Era::Modern, &["echo"]);
    let mut config = believing(&server, &item(&authority, ""));
    // What a loopback listener is called if nothing is said.
    config.listener = String::new();
    let gateway = config.start();
    let url = format!("http://{}/mcp", gateway.address);
    for (script, program) in [
        ("sdk_py1.py", "py1"),
        ("sdk_py2.py", "py2"),
        ("sdk_ts1.mjs", "node"),
        ("sdk_ts2.mjs", "node"),
    ] {
        let source = root().join("tests/oauth").join(script);
        let mut command = if program == "node" {
            // Node finds packages beside the script.
            let copy = peers().join("node").join(script);
            fs::copy(&source, &copy).unwrap();
            let mut command = Command::new("node");
            command.arg(copy).env("NODE_EXTRA_CA_CERTS", authority.pki.file());
            command
        } else {
            let mut command = Command::new(peers().join(program).join("bin/python"));
            command.arg(source).env("SSL_CERT_FILE", authority.pki.file());
            command
        };
        let output = command.arg(&url).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let failed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{script}: {said}{failed}");
        let report = parsed(said.lines().last().unwrap());
        assert_eq!(report["tools"], json!(["echo"]), "{script}");
        assert_eq!(
            (&report["said"], &report["registered"]),
            (&json!("hello"), &json!(true)),
            "{script}"
        );
        let call = gateway.recorded("the call", |record| record["method"] == "tools/call");
        assert_eq!(call["principal"], "as/alice", "{script}");
    }
    let eras: Vec<_> = gateway
        .exchanges()
        .into_iter()
        .filter(|record| record["method"] == "tools/call")
        .map(|record| record["era"].clone())
        .collect();
    assert_eq!(eras, ["legacy", "modern", "legacy", "modern"]);
}

#[test]
fn a_real_issuers_tokens_are_believed_for_what_they_are() {
    let authority = Authority::start(None);
    let server = Server::echo(Era::Modern, &["echo"]);
    let gateway = believing(&server, &item(&authority, "")).start();
    for era in ERAS {
        let good = minted(&authority, &format!("sub=alice&resource={RESOURCE}&scope=mcp"));
        assert_eq!(status(&gateway, era, &good), 200);
        let rsa = minted(&authority, &format!("resource={RESOURCE}&header={{\"alg\":\"RS256\"}}"));
        assert_eq!(status(&gateway, era, &rsa), 200);
        for (what, query) in [
            ("other audience", "resource=https://gw.example/other".to_owned()),
            ("ended", format!("resource={RESOURCE}&ttl=-120")),
            ("not signed", format!("resource={RESOURCE}&header={{\"alg\":\"none\"}}")),
            ("no subject", format!("resource={RESOURCE}&claims={{\"sub\":null}}")),
        ] {
            assert_eq!(status(&gateway, era, &minted(&authority, &query)), 401, "{what}");
        }
    }
}

#[test]
fn keys_are_rotated_under_load_and_nobody_is_refused() {
    let authority = Authority::start(None);
    let server = Server::echo(Era::Modern, &["echo"]);
    let gateway = believing(&server, &item(&authority, "  unknownKeyCooldown: 1ms\n")).start();
    let token = || minted(&authority, &format!("sub=alice&resource={RESOURCE}&scope=mcp"));
    let old = token();
    let (done, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let current = std::sync::Mutex::new(old.clone());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let token = current.lock().unwrap().clone();
                    assert_eq!(status(&gateway, Era::Modern, &token), 200);
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..3 {
            drop(authority.ask("POST", "/test/rotate"));
            *current.lock().unwrap() = token();
            let before = calls.load(Ordering::Relaxed);
            eventually("more calls", || {
                (calls.load(Ordering::Relaxed) > before + 20).then_some(())
            });
        }
        done.store(true, Ordering::Relaxed);
    });
    // The key of before is still published, and so is the token good that it signed.
    assert_eq!(status(&gateway, Era::Modern, &old), 200);
}

#[test]
fn opaque_tokens_are_asked_about() {
    let authority = Authority::start(None);
    let server = Server::echo(Era::Modern, &["echo"]);
    let secret = authority.pki.folder().join("secret");
    fs::write(&secret, "gateway-secret-0123456789").unwrap();
    let introspection = format!(
        "  introspection: {{url: '{}/token/introspection', client: {{id: gateway-secret, secret: {{fromFile: '{}'}}}}}}\n",
        authority.issuer,
        secret.display(),
    );
    let resource = "https://gw.example/opaque";
    let mut config = believing(&server, &item(&authority, &introspection));
    config.routes = "- {path: /opaque, servers: [up]}\n- {path: /mcp, servers: [up]}".to_owned();
    config.policy =
        "rules:\n- {id: all, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}"
            .to_owned();
    config.authentication = "[oauth, apiKey]".to_owned();
    let gateway = config.start();
    let opaque =
        minted(&authority, &format!("sub=alice&client=public&resource={resource}&scope=mcp"));
    assert!(!opaque.contains('.'), "{opaque}");
    let ask = |path: &str, era: Era, token: &str| {
        let header = format!("Bearer {token}");
        let client = Client::silent(gateway.address, path, era, &[("authorization", &header)]);
        let answer =
            if era == Era::Legacy { client.hello() } else { client.call("echo", &json!({})) };
        answer.status
    };
    let asked = || parsed(&authority.ask("GET", "/test/stats"))["introspection"].as_u64().unwrap();
    for era in ERAS {
        assert_eq!(ask("/opaque", era, &opaque), 200);
        assert_eq!(gateway.last()["principal"], "as/alice");
        // It is for another route.
        assert_eq!(ask("/mcp", era, &opaque), 401);
        assert_eq!(ask("/opaque", era, "made-up"), 401);
    }
    // Once for each token, whoever asks again; and never for a key.
    assert_eq!(ask("/opaque", Era::Modern, e2e::gateway::ANA), 200);
    assert_eq!(asked(), 2);
    drop(authority);
    let another = "another-made-up";
    assert_eq!(ask("/opaque", Era::Modern, another), 503);
    assert_eq!(gateway.last()["reason"], "token-unavailable");
    assert_eq!(ask("/opaque", Era::Modern, &opaque), 200);
}

/// Asks the token endpoint for something, as a client with a secret in `Authorization: Basic` or in
/// the form; `config` is how TLS is spoken.
fn token_request(
    authority: &Authority,
    config: std::sync::Arc<rustls::ClientConfig>,
    headers: &[(&str, &str)],
    form: &str,
) -> Value {
    let port: u16 = authority.issuer.rsplit(':').next().unwrap().parse().unwrap();
    let through = tls::tunnel(([127, 0, 0, 1], port).into(), config);
    let host = format!("localhost:{port}");
    let mut all = vec![("host", &*host), ("content-type", "application/x-www-form-urlencoded")];
    all.extend(headers);
    raw(through, &post("/token", &all, form)).json()
}

#[test]
fn a_real_issuer_binds_tokens_to_certificates() {
    use base64::Engine as _;
    let (authority, pki) = (Authority::start(None), Pki::new("clients"));
    let server = Server::echo(Era::Modern, &["echo"]);
    let (own, mine) = (pki.issue(&Leaf::local()), pki.issue(&Leaf::uri("urn:agent")));
    let other = pki.issue(&Leaf::uri("urn:other"));
    let mut config = believing(&server, &item(&authority, ""));
    config.policy = "rules:\n- {id: all, effect: allow, principals: ['*'], servers: ['*'], tools: ['*'], proof: certificate}".to_owned();
    config.listener.push_str(&format!(
        "\ntls:\n  certificate: '{}'\n  key: '{}'\n  clients: {{certificates: optional, authorities: '{}'}}",
        own.certificate.display(),
        own.key.display(),
        pki.path(),
    ));
    let gateway = config.start();
    let basic = base64::engine::general_purpose::STANDARD.encode("mtls:mtls-secret-0123456789");
    let answer = token_request(
        &authority,
        tls::client(authority.pki.roots(), Some(&mine)),
        &[("authorization", &format!("Basic {basic}"))],
        &format!("grant_type=client_credentials&scope=mcp&resource={RESOURCE}"),
    );
    let token = answer["access_token"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert_eq!(claims(token)["cnf"]["x5t#S256"], mine.thumbprint());
    let header = format!("Bearer {token}");
    let through = |files| tls::tunnel(gateway.address, tls::client(pki.roots(), files));
    for era in ERAS {
        let ask = |address| {
            let client = Client::silent(address, "/mcp", era, &[("authorization", &header)]);
            let answer =
                if era == Era::Legacy { client.hello() } else { client.call("echo", &json!({})) };
            answer.status
        };
        assert_eq!(ask(through(Some(&mine))), 200);
        assert_eq!(ask(through(None)), 401);
        assert_eq!(ask(through(Some(&other))), 401);
    }
}

#[test]
fn a_real_issuer_binds_tokens_to_keys() {
    let authority = Authority::start(None);
    let server = Server::echo(Era::Modern, &["echo"]);
    let mut config = believing(&server, &item(&authority, ""));
    config.policy = "rules:\n- {id: all, effect: allow, principals: ['*'], servers: ['*'], tools: ['*'], proof: dpop}".to_owned();
    let gateway = config.start();
    let key = Key::es256("mine");
    let proof = key.proof(&json!({
        "jti": "a", "htm": "POST", "htu": format!("{}/token", authority.issuer), "iat": now(),
    }));
    let answer = token_request(
        &authority,
        tls::client(authority.pki.roots(), None),
        &[("dpop", &proof)],
        &format!(
            "grant_type=client_credentials&client_id=dpop&client_secret=dpop-secret-0123456789&scope=mcp&resource={RESOURCE}"
        ),
    );
    assert_eq!(answer["token_type"], "DPoP", "{answer}");
    let token = answer["access_token"].as_str().unwrap();
    assert_eq!(claims(token)["cnf"]["jkt"], key.thumbprint());
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    let proved = |id: &str, era: Era| {
        let proof = key.proof(&json!({
            "jti": id, "htm": "POST", "htu": RESOURCE, "iat": now(), "ath": encode(hash.as_ref()),
        }));
        let headers = [("authorization", &*format!("DPoP {token}")), ("dpop", &*proof)];
        knock(&gateway, era, &headers).status
    };
    for (id, era) in [("b", Era::Modern), ("c", Era::Legacy)] {
        assert_eq!(proved(id, era), 200);
        assert_eq!(proved(id, era), 401);
        assert_eq!(status(&gateway, era, token), 401);
    }
}

/// A gateway before `server`, which is shown what `authority` exchanges.
fn exchanging(server: &Server, authority: &Authority, client: &str, kind: &str) -> Config {
    let ca = authority.pki.path();
    let grant = format!(
        "tokenUrl: '{}/token', client: {{{client}}}, scopes: [mcp], connection: {{authorities: '{ca}'}}",
        authority.issuer
    );
    let credential = match kind {
        "assertion" => format!(
            "identityAssertion: {{identityProvider: {{{grant}}}, issuer: '{}', authorizationServer: {{{grant}}}}}",
            authority.issuer
        ),
        _ => format!("tokenExchange: {{{grant}, actor: true}}"),
    };
    let mut config = believing(server, &item(authority, ""));
    config.servers =
        format!("- {{name: up, url: '{}', credential: {{{credential}}}}}", server.url());
    config
}

#[test]
fn a_real_issuer_exchanges_tokens() {
    let key = rcgen::KeyPair::generate().unwrap();
    let point = key.public_key_raw().to_vec();
    let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
    let jwk = json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": "g1", "alg": "ES256", "use": "sig" });
    let authority = Authority::start(Some(&jwk));
    let (secret, file) =
        (authority.pki.folder().join("secret"), authority.pki.folder().join("key.pem"));
    fs::write(&secret, "gateway-secret-0123456789").unwrap();
    fs::write(&file, key.serialize_pem()).unwrap();
    let by_secret = format!("id: gateway-secret, secret: {{fromFile: '{}'}}", secret.display());
    let by_key = format!(
        "id: gateway, privateKey: {{file: '{}', keyId: g1, audience: '{}'}}",
        file.display(),
        authority.issuer
    );
    for era in ERAS {
        for (client, id, kind) in [
            (&by_secret, "gateway-secret", "exchange"),
            (&by_key, "gateway", "exchange"),
            (&by_secret, "gateway-secret", "assertion"),
        ] {
            let server = Server::echo(era, &["echo"]);
            let gateway = exchanging(&server, &authority, client, kind).start();
            let alice = minted(&authority, &format!("sub=alice&resource={RESOURCE}&scope=mcp"));
            let caller = gateway.client(era, &alice);
            let answer = caller.call("echo", &json!({ "text": "hi" }));
            assert_eq!(answer.json()["result"]["content"][0]["text"], "hi", "{kind} {answer:?}");
            for call in server.calls() {
                let shown =
                    call.head.lines().find_map(|line| line.strip_prefix("authorization: Bearer "));
                let said = claims(shown.unwrap());
                assert_eq!(
                    (&said["sub"], &said["aud"]),
                    (&json!("alice"), &json!(server.url())),
                    "{said}"
                );
                assert_eq!(said["client_id"], id);
                if kind == "exchange" {
                    // Who acts is the gateway, in whose name its own token was got.
                    assert_eq!(said["act"]["sub"], id, "{said}");
                }
                assert_ne!(shown, Some(&*alice));
            }
        }
    }
}
