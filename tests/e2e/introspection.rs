//! Tokens that cannot be read: what their issuer says of them is held to the same as what a signed
//! token says of itself, and asking is kept possible for everybody.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{IpAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use e2e::client::{Client, raw_from, read};
use e2e::gateway::{ANA, Config, Folder, Gateway};
use e2e::http2::{END_HEADERS, END_STREAM, Wire, frame, kind, packed};
use e2e::issuer::{Issuer, now};
use e2e::pki::{Leaf, Pki};
use e2e::server::{Server, answer, ok};
use e2e::tls::client;
use e2e::{ERAS, Era, PATIENCE, eventually};
use serde_json::{Value, json};

use crate::deputy::form;
use crate::providers::inspected;
use crate::tokens::{believing, knock};

/// An error of HTTP/2 (RFC 9113, section 7).
const FLOW_CONTROL_ERROR: u32 = 3;

/// What an issuer says of the tokens it is asked about.
#[derive(Clone, Default)]
struct Known(Arc<Mutex<BTreeMap<String, Value>>>);

impl Known {
    /// What `issuer` answers from now on; of other tokens it says that they are not active.
    fn of(issuer: &Issuer) -> Self {
        let known = Self::default();
        let answers = known.clone();
        issuer.answer("/introspect", move |call| {
            let token = form(call, "token").unwrap();
            let said = answers.0.lock().unwrap().get(&token).cloned();
            ok(&said.unwrap_or(json!({ "active": false })).to_string())
        });
        known
    }

    fn say(&self, token: &str, said: Value) {
        self.0.lock().unwrap().insert(token.to_owned(), said);
    }
}

/// An item of `issuers` that is asked about tokens.
fn asked(issuer: &Issuer, introspection: &str, more: &str) -> String {
    let secret = issuer.pki.folder().join("secret");
    std::fs::write(&secret, "secret-of-the-gateway").unwrap();
    let (url, secret) = (issuer.url(), secret.display());
    let client = format!("client: {{id: gateway, secret: {{fromFile: '{secret}'}}}}");
    let question = format!("introspection: {{url: '{url}/introspect', {client}{introspection}}}");
    issuer.item("corp", &format!("{question}{more}"))
}

/// What the issuer says of a good token of this caller.
fn good(issuer: &Issuer, subject: &str) -> Value {
    changed(issuer.claims(subject), &json!({ "active": true, "token_type": "Bearer" }))
}

/// The same with these members; one that is `null` is taken away.
fn changed(mut said: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        let members = said.as_object_mut().unwrap();
        if value.is_null() {
            members.remove(name);
        } else {
            members.insert(name.clone(), value.clone());
        }
    }
    said
}

#[test]
fn a_token_that_is_not_signed_is_inspected_by_asking_its_issuer_as_the_gateway_does() {
    let (server, issuer, folder) =
        (Server::echo(Era::Modern, &["echo"]), Issuer::start(), Folder::new());
    let known = Known::of(&issuer);
    let mut config = believing(&server, &asked(&issuer, "", ""));
    config.authentication = "[apiKey, oauth]".into();
    let gateway = config.start();
    known.say("good-opaque", good(&issuer, "alice"));
    let (code, out, _) = inspected(&config, &[], "Bearer good-opaque\n");
    assert_eq!(code, Some(0), "{out}");
    let place = format!("{}/introspect as client `gateway`", issuer.url());
    for line in
        ["principal    corp/alice", "ok           introspection", "ok           audience", &place]
    {
        assert!(out.contains(line), "{line}: {out}");
    }
    for line in ["good-opaque", "secret-of-the-gateway", "signature", "not reached"] {
        assert!(!out.contains(line), "{line}: {out}");
    }
    for (token, check, changes) in [
        ("inactive-opaque", "introspection", json!({ "active": false })),
        ("issuer-opaque", "issuer", json!({ "iss": "https://other.example" })),
        ("kind-opaque", "claims", json!({ "nonce": "n" })),
        ("ended-opaque", "time", json!({ "exp": now() - 60 })),
        ("audience-opaque", "audience", json!({ "aud": "https://api.example" })),
    ] {
        known.say(token, changed(good(&issuer, "alice"), &changes));
        let (code, out, said) = inspected(&config, &["--format", "json"], token);
        assert_eq!(code, Some(5), "{token}: {out}{said}");
        assert!(!out.contains(token) && !said.contains(token), "{out}{said}");
        let out: Value = out.parse().unwrap();
        let checks = out["checks"].as_array().unwrap();
        let failed = checks.iter().find(|row| row["state"] == "failed").unwrap();
        assert_eq!(failed["check"], check, "{out}");
        assert_eq!(out["asked"]["client"], "gateway");
        for era in ERAS {
            with(&gateway, era, token);
            let record = gateway.last();
            let of = |value: &Value| (value["reason"].clone(), value["detail"].clone());
            assert_eq!(of(&out), of(&record), "{token}");
        }
    }
    // A key of the configuration is sent to nobody, and with a file of keys nobody is asked.
    let before = issuer.asked("/introspect").len();
    let (code, _, said) = inspected(&config, &[], ANA);
    assert_eq!((code, said.contains("an API key of the configuration")), (Some(1), true), "{said}");
    let keys = folder.path().join("keys.json");
    std::fs::write(&keys, json!({ "keys": [issuer.key.jwk()] }).to_string()).unwrap();
    let (code, _, said) =
        inspected(&config, &["--jwks", &keys.display().to_string()], "good-opaque");
    assert_eq!((code, said.contains("/introspect` about it")), (Some(1), true), "{said}");
    assert_eq!(issuer.asked("/introspect").len(), before);
    // What an operator has to know where the issuer refuses the gateway.
    issuer.answer("/introspect", |_| {
        answer("401 No", "application/json", r#"{"error":"invalid_client"}"#)
    });
    let (code, out, said) = inspected(&config, &[], "good-opaque");
    assert_eq!(code, Some(7), "{out}{said}");
    assert!(
        said.contains("invalid_client") && said.contains("token introspection failed"),
        "{said}"
    );
    let nobody = believing(&server, &issuer.item("corp", ""));
    let (code, _, said) = inspected(&nobody, &[], "good-opaque");
    assert_eq!((code, said.contains("has `introspection`")), (Some(1), true), "{said}");
}

fn with(gateway: &Gateway, era: Era, token: &str) -> (u16, String) {
    let answer = knock(gateway, era, &[("authorization", &format!("Bearer {token}"))]);
    let reason = gateway.last()["reason"].as_str().unwrap_or("none").to_owned();
    (answer.status, reason)
}

#[test]
fn what_an_issuer_says_of_a_token_is_held_to_what_a_token_says_of_itself() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let known = Known::of(&issuer);
        let gateway = believing(&server, &asked(&issuer, "", "")).start();
        let clock = now();
        let decade = clock + 10 * 365 * 24 * 3600;
        for (n, (what, changes, reason)) in [
            ("no `active`", json!({ "active": null }), "token-refused"),
            ("`active` as a text", json!({ "active": "true" }), "token-refused"),
            ("`active` as a number", json!({ "active": 1 }), "token-refused"),
            ("another issuer", json!({ "iss": "https://other.example" }), "token-issuer"),
            ("an issuer of the wrong type", json!({ "iss": 7 }), "token-issuer"),
            ("no audience", json!({ "aud": null }), "token-audience"),
            ("another audience", json!({ "aud": "https://api.example" }), "token-audience"),
            ("no end", json!({ "exp": null }), "token-refused"),
            ("an end in ten years", json!({ "exp": decade }), "token-time"),
            ("ended", json!({ "exp": clock - 60 }), "token-time"),
            ("a refresh token", json!({ "token_type": "refresh_token" }), "token-refused"),
            ("no type", json!({ "token_type": null }), "token-refused"),
            ("a type of the wrong type", json!({ "token_type": 7 }), "token-refused"),
            ("513 groups", json!({ "groups": vec!["x"; 513] }), "token-refused"),
            ("513 scopes", json!({ "scope": vec!["mcp"; 513] }), "token-refused"),
            ("a refresh token of Keycloak", json!({ "typ": "Refresh" }), "token-refused"),
            ("an ID token of Keycloak", json!({ "typ": "ID" }), "token-refused"),
            ("a refresh token of Hydra", json!({ "token_use": "refresh_token" }), "token-refused"),
            ("an ID token of Cognito", json!({ "token_use": "id" }), "token-refused"),
            ("an ID token", json!({ "nonce": "n" }), "token-refused"),
            ("an ID token with a digest", json!({ "at_hash": "x" }), "token-refused"),
            ("bound to a key, and to none", json!({ "token_type": "DPoP" }), "token-proof"),
            (
                "bound to a key, and to a certificate",
                json!({ "token_type": "DPoP", "cnf": { "x5t#S256": "x".repeat(43) } }),
                "token-proof",
            ),
            ("bound to something unknown", json!({ "cnf": { "kid": "k" } }), "token-proof"),
            ("no caller", json!({ "sub": null, "client_id": null }), "token-refused"),
            ("a caller without a name", json!({ "sub": "" }), "token-refused"),
        ]
        .into_iter()
        .enumerate()
        {
            let token = format!("refused-{n}");
            known.say(&token, changed(good(&issuer, "alice"), &changes));
            assert_eq!(with(&gateway, era, &token), (401, reason.to_owned()), "{what}");
        }
        assert_eq!(server.count("tools/call"), 0);
        for (n, changes) in [
            json!({}),
            json!({ "token_type": "bearer" }),
            json!({ "token_type": "access_token", "token_use": "access_token" }),
            json!({ "typ": "Bearer", "iss": null, "iat": null, "jti": null }),
            json!({ "client_id": null }),
        ]
        .into_iter()
        .enumerate()
        {
            let token = format!("good-{n}");
            known.say(&token, changed(good(&issuer, "alice"), &changes));
            assert_eq!(with(&gateway, era, &token), (200, "none".to_owned()), "{changes}");
            assert_eq!(gateway.last()["principal"], "corp/alice");
        }
        // Of an issuer that does not say of which type its tokens are that has to be said.
        let gateway =
            believing(&server, &asked(&issuer, "", "\nacceptUntypedTokens: true")).start();
        known.say("untyped", changed(good(&issuer, "alice"), &json!({ "token_type": null })));
        assert_eq!(with(&gateway, era, "untyped").0, 200);
        assert_eq!(with(&gateway, era, "refused-10"), (401, "token-refused".to_owned()));
    }
}

#[test]
fn what_is_kept_of_tokens_that_were_asked_about_has_a_share_in_bytes_for_each_caller() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let known = Known::of(&issuer);
        let config = believing(&server, &asked(&issuer, ", cacheTime: 5m", ""));
        let gateway = config.limits("tokenMemory: 256KiB\ntokenMemoryPerCaller: 64KiB").start();
        let names: Vec<_> = (0..500).map(|number| format!("group-{number}")).collect();
        let long = |subject| changed(good(&issuer, subject), &json!({ "groups": names }));
        for (token, subject) in [("first", "alice"), ("second", "alice"), ("third", "alice")] {
            known.say(token, long(subject));
        }
        known.say("other", long("bob"));
        let questions = || issuer.asked("/introspect").len();
        // About 30 KiB each: there is room for two of a caller.
        for token in ["first", "second", "third", "other"] {
            assert_eq!(with(&gateway, era, token).0, 200, "{token}");
        }
        assert_eq!(questions(), 4);
        for (token, more) in [("first", 0), ("second", 0), ("other", 0), ("third", 1)] {
            let before = questions();
            assert_eq!(with(&gateway, era, token).0, 200, "{token}");
            assert_eq!(questions() - before, more, "{era:?}: {token}");
        }
    }
}

#[test]
fn a_client_is_never_the_user_of_the_same_name() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let known = Known::of(&issuer);
        let start = |who: &str| {
            let rule = format!(
                "rules:\n- {{id: one, effect: allow, principals: ['principal:{who}'], servers: ['*'], tools: ['*']}}"
            );
            believing(&server, &asked(&issuer, "", "")).policy(&rule).start()
        };
        let (users, clients) = (start("corp/ana"), start("service:corp/ana"));
        let mut claims = issuer.claims("ana");
        claims["client_id"] = json!("ana");
        known.say("user", good(&issuer, "ana"));
        known
            .say("client", changed(good(&issuer, ""), &json!({ "sub": null, "client_id": "ana" })));
        known.say("itself", changed(good(&issuer, "ana"), &json!({ "client_id": "ana" })));
        let (user, client) = (issuer.good("ana"), issuer.token(&claims));
        for (what, token, is_user) in [
            ("a signed token of the user", &*user, true),
            ("a signed token of the client", &*client, false),
            ("a token of the user", "user", true),
            ("a token without a user", "client", false),
            ("a token of the client", "itself", false),
        ] {
            for (gateway, permitted) in [(&users, is_user), (&clients, !is_user)] {
                let caller = gateway.client(era, token);
                let answer = caller.call("echo", &json!({}));
                assert_eq!(answer.code() == 0, permitted, "{what}: {answer:?}");
                let named = if is_user { "corp/ana" } else { "service:corp/ana" };
                assert_eq!(gateway.last()["principal"], named, "{what}");
            }
        }
    }
}

#[test]
fn an_answer_is_relied_on_for_a_while_and_never_longer_than_its_token() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let known = Known::of(&issuer);
        let start = |cache: &str| -> Gateway {
            let item = asked(&issuer, &format!(", cacheTime: {cache}"), "");
            let config: Config = believing(&server, &item);
            config.start()
        };
        let long = start("5m");
        known.say("a", good(&issuer, "alice"));
        assert_eq!(with(&long, era, "a").0, 200);
        known.say("a", json!({ "active": false }));
        assert_eq!(with(&long, era, "a").0, 200, "the answer is remembered");
        assert_eq!(issuer.asked("/introspect").len(), 1);
        // It is the token that ends: the clock of the issuer may be 30 seconds off.
        known.say("b", changed(good(&issuer, "alice"), &json!({ "exp": now() - 27 })));
        assert_eq!(with(&long, era, "b").0, 200);
        eventually("the end of the token", || {
            (with(&long, era, "b") == (401, "token-time".to_owned())).then_some(())
        });
        // Also on one connection, which remembers what was found out on it.
        known.say("d", changed(good(&issuer, "alice"), &json!({ "exp": now() - 27 })));
        let client = Client::silent(long.address, "/mcp", era, &[("authorization", "Bearer d")]);
        let request = match era {
            Era::Modern => client.call_bytes(&json!(1), &json!({ "name": "echo" })),
            Era::Legacy => client.hello_bytes(),
        };
        let mut stream = TcpStream::connect(long.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut ask = || {
            stream.write_all(&request).unwrap();
            read(&mut stream).status
        };
        assert_eq!(ask(), 200);
        eventually("the end of the token on its connection", || (ask() == 401).then_some(()));
        let short = start("1ms");
        known.say("c", good(&issuer, "alice"));
        assert_eq!(with(&short, era, "c").0, 200);
        known.say("c", json!({ "active": false }));
        eventually("the end of the answer", || {
            (with(&short, era, "c") == (401, "token-refused".to_owned())).then_some(())
        });
    }
}

/// Writes `config` where `gateway` reads it, and waits until it is in force.
pub(crate) fn replaced(gateway: &Gateway, file: &std::path::Path, config: &Config) {
    let applied = || {
        let records = gateway.records().into_iter();
        records.filter(|record| record["event"] == "applied").collect::<Vec<_>>()
    };
    let before = applied().len();
    config.write(file, gateway.audit());
    gateway.hang_up();
    let change = eventually("the change", || applied().into_iter().nth(before));
    eventually("requests under it", || {
        drop(knock(gateway, Era::Modern, &[]));
        (gateway.last()["policy"] == change["policy"]).then_some(())
    });
}

#[test]
fn what_an_issuer_has_said_outlives_a_change_that_has_nothing_to_do_with_it() {
    for era in ERAS {
        let (server, issuer, folder) =
            (Server::echo(era, &["echo"]), Issuer::start(), Folder::new());
        let known = Known::of(&issuer);
        let file = folder.path().join("gateway.yaml");
        let config = believing(&server, &asked(&issuer, ", cacheTime: 5m", ""));
        let gateway = config.start_at(&file);
        known.say("opaque", good(&issuer, "alice"));
        let signed = issuer.good("alice");
        for token in ["opaque", &signed] {
            assert_eq!(with(&gateway, era, token).0, 200);
        }
        let readings = issuer.asked("/jwks").len();
        // The issuer is down from now on.
        for path in ["/introspect", "/jwks", "/.well-known/oauth-authorization-server"] {
            issuer.answer(path, |_| answer("500 Internal Server Error", "text/plain", "no"));
        }
        let mut other = config.clone();
        other.policy = config.policy.replace("sec@example.com", "other@example.com");
        replaced(&gateway, &file, &other);
        // A change asks for the keys anew, and does without them while they are relied on.
        eventually("a reading", || {
            let found = issuer.asked("/.well-known/oauth-authorization-server").len();
            (issuer.asked("/jwks").len() + found > readings + 1).then_some(())
        });
        for token in ["opaque", &signed, &issuer.good("bob")] {
            assert_eq!(with(&gateway, era, token), (200, "none".to_owned()));
        }
        // What is said under other settings has to be found out anew; the keys are the same.
        let mut claims = other.clone();
        claims.identity = other.identity.replace("groups: /groups", "groups: /teams");
        assert_ne!(claims.identity, other.identity);
        replaced(&gateway, &file, &claims);
        assert_eq!(with(&gateway, era, "opaque"), (503, "token-unavailable".to_owned()));
        let (status, _) = with(&gateway, era, &signed);
        assert_eq!(status, 200);
        let caller = gateway.client(era, &signed);
        assert_ne!(caller.call("echo", &json!({})).code(), 0, "it has no groups any more");
        // And keys from elsewhere are other keys.
        let mut elsewhere = claims.clone();
        let keys = format!("\n  keys: {{url: '{}/elsewhere'}}", issuer.url());
        elsewhere.identity = claims.identity.trim_end().to_owned() + &keys;
        replaced(&gateway, &file, &elsewhere);
        assert_eq!(with(&gateway, era, &signed), (503, "token-unavailable".to_owned()));
    }
}

/// A gate that holds back those who come to it until it is opened.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn pass(&self) {
        let (open, changed) = &*self.0;
        let held = open.lock().unwrap();
        drop(changed.wait_timeout_while(held, PATIENCE, |open| !*open).unwrap());
    }

    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

/// The head of a request with this token on a stream of HTTP/2, and so many frames of 16 KiB of its body.
fn begun(stream: u32, token: &str, frames: usize) -> Vec<u8> {
    let bearer = format!("Bearer {token}");
    let head = packed(&[
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", "/mcp"),
        ("authorization", &bearer),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ]);
    let head = frame(kind::HEADERS, END_HEADERS, stream, &head);
    let body = frame(kind::DATA, 0, stream, &vec![b' '; 16 * 1024]);
    [head, body.repeat(frames)].concat()
}

/// Whether the gateway has taken all that was sent to it so far, and has refused none of it.
fn is_taken(wire: &mut Wire) -> bool {
    assert!(wire.send(&frame(kind::PING, 0, 0, b"got that")));
    loop {
        let frame = wire.frame().unwrap();
        match frame.kind {
            kind::PING => return true,
            kind::RST_STREAM | kind::GOAWAY => return false,
            _ => {}
        }
    }
}

#[test]
fn bodies_that_wait_for_an_issuer_lie_in_small_windows_or_take_of_a_share() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let (pki, gate) = (Pki::new("windows"), Gate::default());
    let (held, claims) = (gate.clone(), good(&issuer, "alice"));
    issuer.answer("/introspect", move |call| {
        let token = form(call, "token").unwrap();
        if token.starts_with("made-up") {
            held.pass();
            return ok(r#"{"active":false}"#);
        }
        ok(&claims.to_string())
    });
    let own = pki.issue(&Leaf::local());
    let mut config = believing(&server, &asked(&issuer, ", cacheTime: 1ms", ""))
        .limits("requestBody: 200KiB\nrequestBodyMemoryPerCaller: 300KiB");
    let (certificate, key) = (own.certificate.display(), own.key.display());
    config.listener.push_str(&format!("\ntls: {{certificate: '{certificate}', key: '{key}'}}"));
    let (gateway, trusts) = (config.start(), client(pki.roots(), None));
    let connect = || Wire::client(gateway.address, &trusts, &[]);
    // Nobody on this connection was authenticated.
    let mut wire = connect();
    assert!(wire.send(&begun(1, "made-up-1", 1)));
    assert!(is_taken(&mut wire), "16 KiB are taken before it is known who sends them");
    assert!(wire.send(&frame(kind::DATA, 0, 1, b" ")));
    assert_eq!(wire.refusal(), Some((kind::RST_STREAM, FLOW_CONTROL_ERROR)));
    // Here somebody was.
    let mut wire = connect();
    assert!(wire.send(&begun(1, "known", 0)));
    let opened = loop {
        let settings = wire.next(kind::SETTINGS).unwrap();
        if !settings.payload.is_empty() {
            break settings.payload;
        }
    };
    // SETTINGS_INITIAL_WINDOW_SIZE of 256 KiB.
    assert_eq!(opened, [0, 4, 0, 4, 0, 0]);
    assert!(wire.send(&frame(kind::SETTINGS, END_STREAM, 0, &[])));
    assert!(wire.send(&begun(3, "made-up-2", 8)));
    assert!(is_taken(&mut wire), "128 KiB are");
    eventually("the question", || {
        let asked = issuer.asked("/introspect");
        asked.iter().any(|call| form(call, "token").as_deref() == Some("made-up-2")).then_some(())
    });
    assert!(wire.send(&begun(5, "made-up-3", 0)));
    let record =
        gateway.recorded("the refusal", |record| record["reason"] == "caller-limit-bodies");
    assert_eq!(record["status"], 429);
    gate.open();
}

#[test]
fn made_up_tokens_keep_neither_other_addresses_nor_known_tokens_out() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let gate = Gate::default();
    let (held, claims) = (gate.clone(), good(&issuer, "alice"));
    issuer.answer("/introspect", move |call| {
        let token = form(call, "token").unwrap();
        if token.starts_with("made-up") {
            held.pass();
            return ok(r#"{"active":false}"#);
        }
        ok(&claims.to_string())
    });
    let gateway = believing(&server, &asked(&issuer, ", cacheTime: 1ms", "")).start();
    assert_eq!(with(&gateway, Era::Modern, "known").0, 200);
    let bytes = |token: &str| {
        let header = format!("Bearer {token}");
        let headers = [("authorization", &*header)];
        let caller = Client::silent(gateway.address, "/mcp", Era::Modern, &headers);
        caller.call_bytes(&json!(1), &json!({ "name": "echo", "arguments": {} }))
    };
    // Far more than an issuer is asked at the same time, none of which it answers.
    let strangers: Vec<TcpStream> = (0..100)
        .map(|n| {
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            stream.write_all(&bytes(&format!("made-up-{n}"))).unwrap();
            stream
        })
        .collect();
    eventually("the questions", || (issuer.asked("/introspect").len() > 16).then_some(()));
    let elsewhere = IpAddr::from([127, 0, 0, 2]);
    for n in 0..15 {
        let answer = raw_from(elsewhere, gateway.address, &bytes(&format!("good-{n}")));
        assert_eq!(answer.status, 200, "{answer:?}");
        // The answer about this one is forgotten at once, and there is room to ask again.
        assert_eq!(with(&gateway, Era::Modern, "known").0, 200);
    }
    let made_up = |call: &&e2e::server::Call| form(call, "token").unwrap().starts_with("made-up");
    let asked = issuer.asked("/introspect");
    assert_eq!(asked.iter().filter(made_up).count(), 16, "one address has a share");
    gate.open();
    drop(strangers);
}
