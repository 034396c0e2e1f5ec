//! What a token is good for: scopes, what they imply, and how a client gets more of them.

use std::io::Write as _;
use std::net::TcpStream;

use e2e::client::{Client, read, until};
use e2e::gateway::{ANA, Config, Gateway};
use e2e::issuer::Issuer;
use e2e::server::{Server, answer, tool};
use e2e::{ERAS, Era};
use serde_json::{Value, json};

use crate::tokens::believing;

const POLICY: &str = "rules:\n\
    - {id: readers, effect: allow, principals: ['group:dev'], servers: ['*'], tools: [read], scopes: ['files:read']}\n\
    - {id: writers, effect: allow, principals: ['group:dev'], servers: ['*'], tools: [write], scopes: ['files:read', 'files:write']}\n\
    - {id: admins, effect: allow, principals: ['role:admin'], servers: ['*'], tools: [admin]}\n\
    - {id: one-client, effect: allow, principals: ['client:agent'], servers: ['*'], tools: [agent]}\n\
    - {id: small, effect: allow, principals: ['group:dev'], servers: ['*'], tools: [pay], scopes: [pay], when: 'arguments.n < 10'}";

const PLACE: &str =
    "resource_metadata=\"https://gw.example/.well-known/oauth-protected-resource/mcp\"";

fn gateway(server: &Server, issuer: &Issuer) -> Gateway {
    let mut config = believing(server, &issuer.item("corp", "")).policy(POLICY);
    config.identity.push_str("scopes: {files: ['files:read', 'files:write'], all: [files, pay]}\n");
    config.start()
}

fn token(issuer: &Issuer, scope: Value) -> String {
    let mut claims = issuer.claims("alice");
    match scope {
        Value::Null => drop(claims.as_object_mut().unwrap().remove("scope")),
        scope => claims["scope"] = scope,
    }
    issuer.token(&claims)
}

#[test]
fn a_token_with_too_few_scopes_is_told_all_that_are_needed() {
    for era in ERAS {
        let server = Server::echo(era, &["read", "write", "admin", "agent", "pay"]);
        let issuer = Issuer::start();
        let gateway = gateway(&server, &issuer);
        let alice = gateway.client(era, &token(&issuer, json!("mcp")));
        // What a better token could have is shown; what none of the caller's could is not.
        assert_eq!(alice.tools(), ["read", "write", "agent", "pay"]);
        let calls = server.count("tools/call");
        for (tool, scopes) in [("read", "files:read"), ("write", "files:read files:write")] {
            for _ in 0..2 {
                let answer = alice.call(tool, &json!({}));
                assert_eq!(answer.status, 403, "AV-11 {tool}: {answer:?}");
                let said =
                    format!(r#"bearer error="insufficient_scope", {PLACE}, scope="{scopes}""#);
                assert_eq!(answer.header("www-authenticate"), Some(&*said), "AV-14");
                let record = gateway.last();
                assert_eq!(record["reason"], "insufficient-scope");
                assert_eq!(record["outcome"], "denied");
            }
        }
        // AV-12: one of two is not enough, and both are named.
        let half = gateway.client(era, &token(&issuer, json!("files:read")));
        assert_eq!(half.call("read", &json!({})).status, 200);
        let answer = half.call("write", &json!({}));
        assert_eq!(answer.status, 403);
        assert!(
            answer
                .header("www-authenticate")
                .unwrap()
                .contains(r#"scope="files:read files:write""#)
        );
        // A tool it may not have in any case does not exist, whatever its scopes.
        assert_eq!(alice.call("admin", &json!({})).code(), -32602);
        assert_eq!(alice.call("nothing", &json!({})).code(), -32602);
        assert_eq!(server.count("tools/call"), calls + 1);
        // With arguments no rule allows, more scopes would not help, and none are asked for.
        let answer = alice.call("pay", &json!({ "n": 100 }));
        let reason = answer.denial().map(|denial| denial["reason"].clone());
        assert_eq!((answer.status, reason), (200, Some(json!("not-granted"))), "{answer:?}");
        assert_eq!(alice.call("pay", &json!({ "n": 1 })).status, 403);
    }
}

#[test]
fn a_broad_scope_implies_narrow_ones() {
    for era in ERAS {
        let server = Server::echo(era, &["read", "write", "pay"]);
        let issuer = Issuer::start();
        let gateway = gateway(&server, &issuer);
        // AV-13
        for scope in ["files", "all", "files:write files:read", "mcp files"] {
            let alice = gateway.client(era, &token(&issuer, json!(scope)));
            assert_eq!(alice.call("write", &json!({})).status, 200, "{scope}");
        }
        let all = gateway.client(era, &token(&issuer, json!("all")));
        assert_eq!(all.call("pay", &json!({ "n": 1 })).status, 200);
    }
}

#[test]
fn scopes_are_compared_whole() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let issuer = Issuer::start();
        let gateway = gateway(&server, &issuer);
        let call = |scope: Value| {
            let header = format!("Bearer {}", token(&issuer, scope));
            // The first request tells, in either era: a token that is refused gets no session.
            let silent =
                Client::silent(gateway.address, "/mcp", era, &[("authorization", &header)]);
            let first =
                if era == Era::Legacy { silent.hello() } else { silent.call("read", &json!({})) };
            if first.status != 200 || era == Era::Modern {
                return first.status;
            }
            let alice = gateway.client(era, header.strip_prefix("Bearer ").unwrap());
            alice.call("read", &json!({})).status
        };
        for scope in [
            json!("files:rea"),
            json!("files:reader"),
            json!("files:readonly"),
            json!("Files:Read"),
            json!("files"),
            json!("file"),
            json!(""),
            Value::Null,
            json!("mcp"),
            json!([]),
        ] {
            let expected = if scope == "files" { 200 } else { 403 };
            assert_eq!(call(scope.clone()), expected, "AV-15 {scope}");
        }
        for scope in [
            json!("files:read\tmcp"),
            json!("files:read\0mcp"),
            json!("mcp  files:read"),
            json!(" files:read"),
            json!("files:read\nmcp"),
            json!(7),
            json!({ "files:read": true }),
            json!(["files:read", 7]),
            json!("files:\"read"),
            json!(true),
        ] {
            assert_eq!(call(scope.clone()), 401, "AV-15, AV-16 {scope}");
        }
        for scope in [json!("files:read"), json!(["mcp", "files:read"])] {
            assert_eq!(call(scope.clone()), 200, "AV-16 {scope}");
        }
    }
}

#[test]
fn rules_speak_of_what_a_token_says() {
    for era in ERAS {
        let server = Server::echo(era, &["read", "admin", "agent", "acted"]);
        let issuer = Issuer::start();
        let policy = format!(
            "{POLICY}\n- {{id: acted, effect: allow, principals: ['*'], servers: ['*'], tools: [acted], \
             when: 'principal.actors.size() == 2 && principal.actors[0] == \"broker\" && \
             principal.issuer == \"corp\" && principal.subject == \"carol\"'}}"
        );
        let gateway = believing(&server, &issuer.item("corp", "")).policy(&policy).start();
        let mut claims = issuer.claims("carol");
        claims["groups"] = json!([]);
        claims["realm"] = json!({ "roles": ["admin", "user"] });
        claims["act"] = json!({ "sub": "broker", "act": { "sub": "portal" } });
        let carol = gateway.client(era, &issuer.token(&claims));
        assert_eq!(carol.tools(), ["admin", "agent", "acted"]);
        assert_eq!(carol.call("admin", &json!({})).status, 200);
        let record = gateway.last();
        assert_eq!(record["actors"], json!(["broker", "portal"]));
        claims["client_id"] = json!("other");
        claims["realm"] = json!({ "roles": "user" });
        claims["act"] = json!({ "sub": "portal" });
        let other = gateway.client(era, &issuer.token(&claims));
        assert_eq!(other.call("agent", &json!({})).code(), -32602);
        for wrong in [json!("broker"), json!({ "act": {} }), json!([]), json!({ "sub": 7 })] {
            claims["act"] = wrong.clone();
            let header = format!("Bearer {}", issuer.token(&claims));
            let silent =
                Client::silent(gateway.address, "/mcp", era, &[("authorization", &header)]);
            assert_eq!(silent.hello().status, 401, "{wrong}");
        }
        let deep = (0..6).fold(json!({ "sub": "a" }), |act, _| json!({ "sub": "a", "act": act }));
        claims["act"] = deep;
        let header = format!("Bearer {}", issuer.token(&claims));
        let silent = Client::silent(gateway.address, "/mcp", era, &[("authorization", &header)]);
        assert_eq!(silent.hello().status, 401, "more actors than are followed");
    }
}

#[test]
fn keys_have_scopes_as_well_and_old_identities_stay() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["read"]), Issuer::start());
        let mut config = believing(&server, &issuer.item("corp", "")).policy(POLICY);
        config.authentication = "[oauth, apiKey]".to_owned();
        let gateway = config.start();
        // A key without scopes is told what is needed like any other credential.
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.call("read", &json!({})).status, 403);
        assert_eq!(gateway.last()["principal"], "ana");
        let alice = gateway.client(era, &token(&issuer, json!("files:read")));
        assert_eq!(alice.call("read", &json!({})).status, 200);
        let silent =
            Client::silent(gateway.address, "/mcp", era, &[("authorization", "Bearer neither")]);
        assert_eq!(silent.hello().status, 401);
    }
}

#[test]
fn scopes_and_proofs_are_asked_for_by_what_allows() {
    let server = Server::echo(Era::Modern, &["read"]);
    for (more, said) in [
        ("scopes: ['a b']", "the scope `a b`"),
        ("effect: forbid, scopes: [a]", "only an `allow` can ask for `scopes`"),
        ("effect: forbid, proof: any", "only an `allow` can ask for `proof`"),
        ("proof: sometimes", "`sometimes` is not known here"),
    ] {
        let effect = if more.contains("effect") { "" } else { "effect: allow, " };
        let rule = format!(
            "rules:\n- {{id: r, {effect}principals: ['*'], servers: ['*'], tools: ['*'], {more}}}"
        );
        let refused = Config::of(&server.url()).policy(&rule).refused();
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains(said) && text.contains("gateway.yaml:"), "{said}: {text}");
    }
}

/// A rule may require scopes of a call, so its answer needs them as well, even if it is fetched later.
#[test]
fn an_answer_is_fetched_later_with_the_scopes_of_its_call_only() {
    let server = Server::with(Era::Legacy, json!([tool("read")]), |call, stream| {
        let token = &call.body["params"]["_meta"]["progressToken"];
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
            "params": { "progressToken": token, "progress": 1 } });
        let result =
            json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": { "content": [] } });
        let events = format!("event: message\ndata: {told}\n\nevent: message\ndata: {result}\n\n");
        stream.write_all(&answer("200 OK", "text/event-stream", &events)).is_ok()
    });
    let issuer = Issuer::start();
    let gateway = gateway(&server, &issuer);
    let alice = gateway.client(Era::Legacy, &token(&issuer, json!("files:read")));
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    let params = json!({ "name": "read", "_meta": { "progressToken": 1 } });
    stream.write_all(&alice.call_bytes(&json!(1), &params)).unwrap();
    let first = until(&mut stream, "\n\n");
    let last = first.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().trim().to_owned();
    drop(stream);
    let fetched = |scope: Value| {
        let header = format!("Bearer {}", token(&issuer, scope));
        let headers = [("authorization", &*header)];
        let mut again = Client::silent(gateway.address, "/mcp", Era::Legacy, &headers);
        again.session.clone_from(&alice.session);
        read(&mut again.stream(Some(&last)))
    };
    for scope in [json!("mcp"), json!("files:rea"), Value::Null] {
        let answer = fetched(scope.clone());
        assert_eq!(answer.status, 400, "{scope}: {answer:?}");
        assert!(!answer.body.contains("\"result\""), "{scope}: {answer:?}");
        assert_eq!(gateway.last()["reason"], "replay-expired", "{scope}");
    }
    // Scopes that imply those of the call are as good as these.
    for scope in ["files:read", "files:read mcp", "files"] {
        let answer = fetched(json!(scope));
        assert_eq!(answer.status, 200, "{scope}: {answer:?}");
        assert!(answer.body.contains("\"result\""), "{scope}: {answer:?}");
    }
}
