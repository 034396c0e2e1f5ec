//! Access tokens: who vouches, whether it is true, and for whom it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use e2e::client::{Answer, Client, get, raw};
use e2e::gateway::{ANA, Config, Gateway};
use e2e::issuer::{Issuer, Key, RESOURCE, encode, hs256, now};
use e2e::server::{Server, answer, ok};
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

/// A gateway that believes `issuer` and stands for [`RESOURCE`].
pub(crate) fn believing(server: &Server, issuers: &str) -> Config {
    let mut config = Config::of(&server.url());
    config.authentication = "[oauth]".to_owned();
    config.listener = "publicUrl: https://gw.example".to_owned();
    config.routes = "- {path: /mcp, servers: [up], oauth: {scopes: [mcp]}}".to_owned();
    config.identity = format!("issuers:\n{issuers}");
    config
}

/// What is answered to a request with these headers, in words of `era` that need no session.
pub(crate) fn knock(gateway: &Gateway, era: Era, headers: &[(&str, &str)]) -> Answer {
    knock_at(gateway, "/mcp", era, headers)
}

/// The same at this path and query.
fn knock_at(gateway: &Gateway, path: &str, era: Era, headers: &[(&str, &str)]) -> Answer {
    let client = Client::silent(gateway.address, path, era, headers);
    match era {
        Era::Modern => client.call("echo", &json!({ "text": "hello" })),
        Era::Legacy => client.hello(),
    }
}

fn with(gateway: &Gateway, era: Era, token: &str) -> (u16, String) {
    let header = format!("Bearer {token}");
    let answer = knock(gateway, era, &[("authorization", &header)]);
    let reason = gateway.last()["reason"].as_str().unwrap_or("none").to_owned();
    (answer.status, reason)
}

/// Asserts that `token` is refused for `reason`, that it went nowhere and that nobody wrote it down.
fn refused(gateway: &Gateway, server: &Server, token: &str, reason: &str, what: &str) {
    for era in ERAS {
        let (before, records) = (server.calls().len(), gateway.exchanges().len());
        assert_eq!(with(gateway, era, token), (401, reason.to_owned()), "{what}");
        assert_eq!(server.calls().len(), before, "{what}");
        assert_eq!(gateway.exchanges().len(), records + 1, "{what}");
    }
    let secret = token.rsplit('.').next().unwrap_or_default();
    if secret.len() > 20 {
        assert!(!gateway.said().contains(secret), "{what}");
        let records = serde_json::to_string(&gateway.records()).unwrap();
        assert!(!records.contains(secret), "{what}");
    }
}

#[test]
fn a_good_token_is_who_it_says() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let gateway = believing(&server, &issuer.item("corp", "")).start();
        assert_eq!(with(&gateway, era, &issuer.good("alice")), (200, "none".to_owned()));
        let record = gateway.last();
        assert_eq!(record["principal"], "corp/alice");
        assert_eq!((&record["client"], &record["scheme"]), (&json!("agent"), &json!("oauth")));
        // The same token again costs no question to the issuer; another of it does not either.
        assert_eq!(with(&gateway, era, &issuer.good("alice")).0, 200);
        let mut bob = issuer.claims("bob");
        bob["groups"] = json!(["ops"]);
        let answer = knock(
            &gateway,
            Era::Modern,
            &[("authorization", &format!("bearer {}", issuer.token(&bob)))],
        );
        assert_eq!(answer.code(), -32602, "{answer:?}");
        assert_eq!(issuer.asked("/jwks").len(), 1);
    }
}

#[test]
fn what_is_forged_or_written_otherwise_is_refused() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let (other, rsa) = (Key::es256("k1"), Key::rs256("r1"));
    issuer.publish(&[&issuer.key, &rsa]);
    let gateway = believing(&server, &issuer.item("corp", "")).start();
    gateway.has_read(1);
    assert_eq!(with(&gateway, Era::Modern, &issuer.good("alice")).0, 200);
    let claims = issuer.claims("alice").to_string();
    let good = issuer.good("alice");
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let payload = encode(claims.as_bytes());
    let plain = |header: &str| format!("{}.{payload}.", encode(header.as_bytes()));
    let under = |header: &str| issuer.key.token(header, &claims);
    let jwk = issuer.key.jwk().to_string();
    let pem = "-----BEGIN PUBLIC KEY-----\n".to_owned() + &jwk;
    let kid = |kid: &Value| json!({ "alg": "ES256", "typ": "at+jwt", "kid": kid }).to_string();
    let own = other.jwk();
    let forged = |header: &Value| other.token(&header.to_string(), &claims);
    let at = "token-refused";
    for (what, token, reason) in [
        ("AV-01 none", plain(r#"{"alg":"none","typ":"at+jwt"}"#), at),
        ("AV-01 None", plain(r#"{"alg":"None","typ":"at+jwt"}"#), at),
        ("AV-01 nOnE", plain(r#"{"alg":"nOnE","typ":"at+jwt"}"#), at),
        ("AV-01 no signature", format!("{signed}."), at),
        ("AV-01 two parts", signed.to_owned(), "credential-refused"),
        ("AV-02 a byte less", format!("{signed}.{}", shorter(signature)), at),
        ("AV-02 padding", format!("{good}=="), at),
        ("AV-02 other alphabet", format!("{signed}.{}+/", signature.get(..84).unwrap()), at),
        ("AV-02 bits that mean nothing", format!("{signed}.{}", trailing(signature)), at),
        (
            "AV-03 public key as a secret",
            hs256(&kid(&json!("k1")).replace("ES256", "HS256"), &claims, jwk.as_bytes()),
            at,
        ),
        (
            "AV-03 PEM as a secret",
            hs256(&kid(&json!("k1")).replace("ES256", "HS256"), &claims, pem.as_bytes()),
            at,
        ),
        ("AV-04 empty secret", hs256(r#"{"alg":"HS256","typ":"at+jwt"}"#, &claims, b""), at),
        (
            "AV-05 jku",
            forged(
                &json!({ "alg": "ES256", "typ": "at+jwt", "kid": "k1", "jku": format!("{}/evil", issuer.url()) }),
            ),
            at,
        ),
        (
            "AV-05 x5u",
            forged(
                &json!({ "alg": "ES256", "typ": "at+jwt", "kid": "k1", "x5u": format!("{}/evil", issuer.url()) }),
            ),
            at,
        ),
        ("AV-06 jwk", forged(&json!({ "alg": "ES256", "typ": "at+jwt", "jwk": own })), at),
        ("AV-06 x5c", forged(&json!({ "alg": "ES256", "typ": "at+jwt", "x5c": ["MIIB"] })), at),
        ("AV-07 path", under(&kid(&json!("../../etc/passwd"))), "token-issuer"),
        ("AV-07 SQL", under(&kid(&json!("' OR 1=1--"))), "token-issuer"),
        ("AV-07 long", under(&kid(&json!("k".repeat(4000)))), at),
        ("AV-07 NUL", under(&kid(&json!("k1\0"))), "token-issuer"),
        ("AV-07 CRLF", under(&kid(&json!("k1\r\nx: y"))), "token-issuer"),
        ("AV-07 number", under(&kid(&json!(1))), at),
        ("AV-08 crit", under(r#"{"alg":"ES256","typ":"at+jwt","kid":"k1","crit":["exp"]}"#), at),
        ("AV-08 empty crit", under(r#"{"alg":"ES256","typ":"at+jwt","kid":"k1","crit":[]}"#), at),
        ("AV-08 b64", under(r#"{"alg":"ES256","typ":"at+jwt","kid":"k1","b64":false}"#), at),
        ("AV-09 alg twice", under(r#"{"alg":"ES256","alg":"none","typ":"at+jwt","kid":"k1"}"#), at),
        (
            "AV-09 escaped",
            under(r#"{"alg":"ES256","\u0061lg":"none","typ":"at+jwt","kid":"k1"}"#),
            at,
        ),
        (
            "AV-09 aud twice",
            issuer.key.token(
                &issuer.key.header().to_string(),
                &claims.replacen('{', r#"{"aud":"x","#, 1),
            ),
            at,
        ),
        ("AV-39 other key type", under(&kid(&json!("r1"))), "token-issuer"),
        (
            "AV-39 PS256 with a key for RS256",
            rsa.token(r#"{"alg":"PS256","typ":"at+jwt","kid":"r1"}"#, &claims),
            "token-issuer",
        ),
        ("a key of the same name", forged(&issuer.key.header()), at),
    ] {
        refused(&gateway, &server, &token, reason, what);
    }
    assert!(issuer.asked("/evil").is_empty());
    // The key that is published for RS256 is good for that.
    assert_eq!(with(&gateway, Era::Modern, &rsa.token(&rsa.header().to_string(), &claims)).0, 200);
}

/// The gateway's own reader keeps a number as it is written, and the other one has no value for this one.
#[test]
fn what_only_one_of_two_readers_accepts_is_refused() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let gateway = believing(&server, &issuer.item("corp", "")).start();
        gateway.has_read(1);
        let token = |number: &str| {
            let claims = issuer.claims("alice").to_string();
            let claims = claims.replacen('{', &format!(r#"{{"size":{number},"#), 1);
            issuer.key.token(&issuer.key.header().to_string(), &claims)
        };
        assert_eq!(with(&gateway, era, &token("1e99")).0, 200);
        refused(&gateway, &server, &token("1e999"), "token-refused", "out of range");
        assert_eq!(gateway.last()["detail"], "readers-differ");
        gateway.says("token.readers_differ");
    }
}

fn shorter(text: &str) -> &str {
    text.get(..text.len() - 1).unwrap()
}

/// The same signature with its last, unused bits set.
fn trailing(signature: &str) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let last = signature.bytes().last().unwrap();
    let place = LETTERS.iter().position(|letter| *letter == last).unwrap();
    let other = char::from(LETTERS[place ^ 1]);
    format!("{}{other}", shorter(signature))
}

#[test]
fn a_client_is_told_where_to_get_a_token() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let gateway = believing(&server, &issuer.item("corp", "")).start();
    let place = "https://gw.example/.well-known/oauth-protected-resource/mcp";
    for era in ERAS {
        let answer = knock(&gateway, era, &[]);
        let said = format!(r#"bearer resource_metadata="{place}", scope="mcp""#);
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some(&*said)));
        let answer = knock(&gateway, era, &[("authorization", "Bearer a.b.c")]);
        let challenge = answer.header("www-authenticate").unwrap();
        assert!(challenge.contains(r#"error="invalid_token""#), "{challenge}");
        assert!(challenge.contains(&format!(r#"resource_metadata="{place}""#)), "{challenge}");
    }
    let issuer_url = issuer.url();
    for path in ["/mcp", ""] {
        let answer = get(gateway.address, &format!("/.well-known/oauth-protected-resource{path}"));
        let metadata = answer.json();
        assert_eq!((answer.status, &metadata["resource"]), (200, &json!(RESOURCE)), "{path}");
        assert_eq!(metadata["authorization_servers"], json!([issuer_url]));
        assert_eq!(metadata["scopes_supported"], json!(["mcp"]));
        assert_eq!(metadata["bearer_methods_supported"], json!(["header"]));
    }
    let other = get(gateway.address, "/.well-known/oauth-protected-resource/other");
    assert_eq!((other.status, other.header("www-authenticate")), (404, None));
    let evil =
        "GET /.well-known/oauth-protected-resource/mcp HTTP/1.1\r\nhost: evil.example\r\n\r\n";
    assert_eq!(raw(gateway.address, evil.as_bytes()).status, 421);
    // AV-19: a hostile path does not get into the header.
    let hostile = "GET /mcp%22%0d%0ax:%20y\\ HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let answer = raw(gateway.address, hostile.as_bytes());
    assert!((400..500).contains(&answer.status) && answer.header("x").is_none(), "{answer:?}");
}

#[test]
fn a_credential_stands_in_one_header_alone() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let gateway = believing(&server, &issuer.item("corp", "")).start();
    gateway.has_read(1);
    let (before, token) = (server.calls().len(), issuer.good("alice"));
    let (bearer, dpop) = (format!("Bearer {token}"), format!("DPoP {token}"));
    let joined = format!("Bearer {token}, Bearer {token}");
    let cookie = format!("access_token={token}");
    for era in ERAS {
        for (what, headers, status) in [
            (
                "AV-18 two headers",
                vec![("authorization", &*bearer), ("authorization", &*bearer)],
                400,
            ),
            ("AV-18 joined", vec![("authorization", &*joined)], 400),
            (
                "AV-18 two schemes",
                vec![("authorization", &*bearer), ("authorization", &*dpop)],
                400,
            ),
            ("AV-18 two sorts", vec![("authorization", &*bearer), ("x-api-key", "k")], 400),
            ("AV-17 cookie", vec![("cookie", &*cookie)], 401),
        ] {
            assert_eq!(knock(&gateway, era, &headers).status, status, "{what}");
        }
        let path = format!("/mcp?access_token={token}");
        for headers in [vec![], vec![("authorization", &*bearer)]] {
            let client = Client::silent(gateway.address, &path, era, &headers);
            let answer = if era == Era::Modern {
                client.ask("tools/list", json!({}))
            } else {
                client.hello()
            };
            assert_eq!(answer.status, 400, "AV-17 query");
        }
        let form = format!("access_token={token}");
        let bytes = e2e::client::post(
            "/mcp",
            &[("host", "localhost"), ("content-type", "application/x-www-form-urlencoded")],
            &form,
        );
        assert_eq!(raw(gateway.address, &bytes).status, 401, "AV-17 form");
    }
    assert_eq!(server.calls().len(), before);
}

#[test]
fn a_token_is_found_anywhere_in_a_url() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let gateway = believing(&server, &issuer.item("corp", "")).start();
    gateway.has_read(1);
    let token = issuer.good("alice");
    let bearer = format!("Bearer {token}");
    for era in ERAS {
        let status = |query: &str, headers: &[(&str, &str)]| {
            knock_at(&gateway, &format!("/mcp?{query}"), era, headers).status
        };
        for query in [
            format!("a=b&access_token={token}"),
            format!("access_token=x&access_token={token}"),
            format!("access%5Ftoken={token}"),
            format!("a&%61ccess_toke%6E={token}"),
            "access_token=".to_owned(),
            "access_token".to_owned(),
            "Access-Token=x".to_owned(),
            "a=b;access_token=x".to_owned(),
            format!("token={token}"),
            format!("TOKEN={token}"),
            format!("key={token}"),
            format!("auth=Bearer%20{token}"),
            format!("t=bearer+{token}"),
            format!("anything={}", token.replace('.', "%2E")),
            "api_key=x".to_owned(),
            "apikey=x".to_owned(),
            "X-Api-Key=x".to_owned(),
            "authorization=x".to_owned(),
            "bearer=x".to_owned(),
            "jwt=x".to_owned(),
            "id_token=x".to_owned(),
            "key=pcl_MDEyMzQ1Njc4OWFiY2RlZg".to_owned(),
        ] {
            assert_eq!(status(&query, &[]), 400, "{query}");
            assert_eq!(status(&query, &[("authorization", &bearer)]), 400, "{query}");
        }
        for query in [
            "a=access_token",
            "access_tokens=x",
            "%zz=x",
            "",
            "key=7",
            "token=page-2",
            "a=eyJ.b",
            "q=a+b",
        ] {
            assert_eq!(status(query, &[("authorization", &bearer)]), 200, "{query}");
        }
    }
}

#[test]
fn an_api_key_in_a_url_is_refused_under_any_name() {
    let server = Server::echo(Era::Modern, &["echo"]);
    let gateway = Config::of(&server.url()).start();
    gateway.has_read(1);
    let bearer = format!("Bearer {ANA}");
    for era in ERAS {
        let status = |query: &str, headers: &[(&str, &str)]| {
            knock_at(&gateway, &format!("/mcp?{query}"), era, headers).status
        };
        for query in ["api_key=x".to_owned(), format!("x={ANA}"), format!("key={ANA}")] {
            assert_eq!(status(&query, &[("authorization", &bearer)]), 400, "{query}");
            assert_eq!(status(&query, &[("x-api-key", ANA)]), 400, "{query}");
        }
        assert_eq!(status("key=7", &[("x-api-key", ANA)]), 200);
    }
}

#[test]
fn a_token_is_for_this_resource_and_no_other() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let mut config = believing(&server, &issuer.item("corp", ""));
    config.routes.push_str("\n- {path: /other, servers: [up], oauth: {audiences: [legacy-api]}}");
    let gateway = config.start();
    gateway.has_read(1);
    let token = |audience: Value| {
        let mut claims = issuer.claims("alice");
        claims["aud"] = audience;
        issuer.token(&claims)
    };
    let url = server.url();
    for (what, audience) in [
        ("AV-20 other route", json!("https://gw.example/other")),
        ("AV-21 the server", json!(url)),
        ("AV-22 prefix", json!("https://gw.example/mc")),
        ("AV-22 suffix", json!("https://gw.example/mcp/x")),
        ("AV-22 slash", json!("https://gw.example/mcp/")),
        ("AV-22 upper case", json!("https://GW.example/mcp")),
        ("AV-22 port", json!("https://gw.example:443/mcp")),
        ("AV-22 escaped", json!("https://gw.example/%6dcp")),
        ("AV-22 dots", json!("https://gw.example/%2e/mcp")),
        ("AV-22 fragment", json!("https://gw.example/mcp#")),
        ("AV-22 punycode", json!("https://xn--gw.example/mcp")),
        ("AV-23 another as well", json!([RESOURCE, "https://api.example"])),
    ] {
        refused(&gateway, &server, &token(audience), "token-audience", what);
    }
    for (what, audience) in [
        ("AV-24 number", json!(7)),
        ("AV-24 object", json!({ "0": RESOURCE })),
        ("AV-24 empty", json!([])),
        ("AV-24 mixed", json!([RESOURCE, 7])),
        ("AV-24 null", Value::Null),
    ] {
        refused(&gateway, &server, &token(audience), "token-audience", what);
    }
    let mut missing = issuer.claims("alice");
    missing.as_object_mut().unwrap().remove("aud");
    refused(&gateway, &server, &issuer.token(&missing), "token-audience", "AV-24 missing");
    assert_eq!(with(&gateway, Era::Modern, &token(json!([RESOURCE]))).0, 200);
    // What is listed will do, there and nowhere else.
    let legacy = format!("Bearer {}", token(json!("legacy-api")));
    let other =
        Client::silent(gateway.address, "/other", Era::Modern, &[("authorization", &legacy)]);
    assert_eq!(other.ask("tools/list", json!({})).status, 200);
    refused(&gateway, &server, &token(json!("legacy-api")), "token-audience", "listed elsewhere");
}

#[test]
fn only_access_tokens_are_access_tokens() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let gateway = believing(&server, &issuer.item("corp", "")).start();
    gateway.has_read(1);
    let typed = |typ: Value, more: Value| {
        let (mut header, mut claims) = (issuer.key.header(), issuer.claims("alice"));
        header["typ"] = typ;
        for (key, value) in more.as_object().unwrap() {
            claims[key] = value.clone();
        }
        issuer.key.token(&header.to_string(), &claims.to_string())
    };
    for (what, token) in [
        ("AV-25 ID token", typed(json!("JWT"), json!({ "nonce": "n" }))),
        ("AV-25 ID token in disguise", typed(json!("at+jwt"), json!({ "nonce": "n" }))),
        ("AV-25 untyped", typed(json!("JWT"), json!({}))),
        ("AV-26 ID-JAG", typed(json!("oauth-id-jag+jwt"), json!({}))),
        ("AV-27 logout token", typed(json!("logout+jwt"), json!({}))),
        ("AV-27 proof", typed(json!("dpop+jwt"), json!({}))),
        ("AV-27 introspection", typed(json!("token-introspection+jwt"), json!({}))),
        ("AV-27 refresh token", typed(json!("rt+jwt"), json!({}))),
        ("typ of the wrong type", typed(json!(7), json!({}))),
    ] {
        refused(&gateway, &server, &token, "token-refused", what);
    }
    assert_eq!(with(&gateway, Era::Modern, &typed(json!("application/AT+JWT"), json!({}))).0, 200);
    // An issuer that does not know RFC 9068 is believed where that is said, and no ID token of it.
    let gateway = believing(&server, &issuer.item("corp", "acceptUntypedTokens: true")).start();
    assert_eq!(with(&gateway, Era::Modern, &typed(json!("JWT"), json!({}))).0, 200);
    let id_token = typed(json!("JWT"), json!({ "nonce": "n" }));
    refused(&gateway, &server, &id_token, "token-refused", "AV-25 untyped issuer");
}

#[test]
fn a_token_has_its_time() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let gateway = believing(&server, &issuer.item("corp", "clockSkew: 30s")).start();
    gateway.has_read(1);
    let now = now();
    let token = |changes: &str| {
        let claims = issuer.claims("alice").to_string();
        let changes: Value = changes.parse().unwrap();
        let mut claims: Value = claims.parse().unwrap();
        for (key, value) in changes.as_object().unwrap() {
            claims[key] = value.clone();
        }
        claims
    };
    let signed = |claims: &Value| issuer.token(claims);
    let spelled = |name: &str, text: &str| {
        let mut claims = issuer.claims("alice");
        claims[name] = json!("@@");
        let text = claims.to_string().replace(r#""@@""#, text);
        issuer.key.token(&issuer.key.header().to_string(), &text)
    };
    for name in ["exp", "nbf", "iat"] {
        for text in
            [r#""1""#, "1.5", "-1", "9223372036854775808000", "1e999", "true", "[1]", "{}", "1e3"]
        {
            let what = format!("AV-28 {name} {text}");
            refused(&gateway, &server, &spelled(name, text), "token-refused", &what);
        }
    }
    for name in ["exp", "iat", "jti", "sub", "client_id"] {
        let mut claims = issuer.claims("alice");
        claims.as_object_mut().unwrap().remove(name);
        refused(&gateway, &server, &signed(&claims), "token-refused", &format!("no {name}"));
    }
    for (what, changes) in [
        ("AV-28 ended", format!(r#"{{"exp":{}}}"#, now - 60)),
        ("AV-28 at the edge", format!(r#"{{"exp":{}}}"#, now - 31)),
        ("AV-28 not yet", format!(r#"{{"nbf":{}}}"#, now + 90)),
        ("AV-28 from the future", format!(r#"{{"iat":{}}}"#, now + 90)),
        ("AV-29 too long", format!(r#"{{"exp":{}}}"#, now + 7200)),
        ("AV-28 for ever", r#"{"exp":9223372036854775807}"#.to_owned()),
    ] {
        refused(&gateway, &server, &signed(&token(&changes)), "token-time", what);
    }
    for changes in [format!(r#"{{"exp":{}}}"#, now - 10), format!(r#"{{"nbf":{}}}"#, now + 10)] {
        assert_eq!(with(&gateway, Era::Modern, &signed(&token(&changes))).0, 200, "{changes}");
    }
    // A token that was good is looked at again when it has ended.
    let short = signed(&token(&format!(r#"{{"exp":{}}}"#, e2e::issuer::now() - 27)));
    assert_eq!(with(&gateway, Era::Modern, &short).0, 200);
    eventually("the end of the token", || {
        (with(&gateway, Era::Modern, &short) == (401, "token-time".to_owned())).then_some(())
    });
}

#[test]
fn every_issuer_speaks_for_itself_alone() {
    let server = Server::echo(Era::Modern, &["echo"]);
    let (one, two) = (Issuer::start(), Issuer::start());
    let items = one.item("one", "") + &two.item("two", "");
    let mut config = believing(&server, &items);
    config.routes.push_str("\n- {path: /two, servers: [up], oauth: {issuers: [two]}}");
    let gateway = config.start();
    gateway.has_read(1);
    // AV-33: both call their key the same.
    assert_eq!(with(&gateway, Era::Modern, &one.good("alice")).0, 200);
    assert_eq!(gateway.last()["principal"], "one/alice");
    assert_eq!(with(&gateway, Era::Modern, &two.good("alice")).0, 200);
    assert_eq!(gateway.last()["principal"], "two/alice");
    let as_one = |issuer: &str| {
        let mut claims = one.claims("alice");
        claims["iss"] = json!(issuer);
        claims
    };
    let forged = two.token(&as_one(&one.url()));
    refused(&gateway, &server, &forged, "token-refused", "AV-30");
    let host = one.url();
    for (what, issuer) in [
        ("AV-31 slash", format!("{host}/")),
        ("AV-31 upper case", host.to_uppercase()),
        ("AV-31 scheme", host.replace("https", "http")),
        ("AV-31 unknown", "https://evil.example".to_owned()),
    ] {
        refused(&gateway, &server, &one.token(&as_one(&issuer)), "token-issuer", what);
    }
    for wrong in [json!(null), json!([host]), json!({})] {
        let mut claims = one.claims("alice");
        claims["iss"] = wrong;
        refused(&gateway, &server, &one.token(&claims), "token-issuer", "iss of the wrong type");
    }
    // A route that believes one of the two does not believe the other.
    let mut claims = one.claims("alice");
    claims["aud"] = json!("https://gw.example/two");
    let header = format!("Bearer {}", one.token(&claims));
    let client =
        Client::silent(gateway.address, "/two", Era::Modern, &[("authorization", &header)]);
    assert_eq!(client.ask("tools/list", json!({})).status, 401);
    assert_eq!(gateway.last()["reason"], "token-issuer");
}

#[test]
fn metadata_of_another_issuer_is_not_believed() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let metadata =
        json!({ "issuer": "https://other.example", "jwks_uri": format!("{}/jwks", issuer.url()) });
    issuer.answer("/.well-known/oauth-authorization-server", move |_| ok(&metadata.to_string()));
    let gateway = believing(&server, &issuer.item("corp", "")).start();
    // The door is closed, and the operator is told: AV-32.
    gateway.says("is that of another issuer");
    for era in ERAS {
        let (status, reason) = with(&gateway, era, &issuer.good("alice"));
        assert_eq!((status, &*reason), (503, "token-unavailable"));
    }
    assert!(issuer.asked("/jwks").is_empty());
}

#[test]
fn a_new_key_costs_one_question_whoever_waits() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let gateway = believing(&server, &issuer.item("corp", "unknownKeyCooldown: 1h")).start();
    assert_eq!(with(&gateway, Era::Modern, &issuer.good("alice")).0, 200);
    assert_eq!(issuer.asked("/jwks").len(), 1);
    let new = Key::es256("k2");
    issuer.publish(&[&issuer.key, &new]);
    let good = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (gateway, issuer, new, good) = (&gateway, &issuer, &new, &good);
            scope.spawn(move || {
                for n in 0..25 {
                    let mut claims = issuer.claims("alice");
                    claims["jti"] = json!(format!("{thread}-{n}"));
                    let token = new.token(&new.header().to_string(), &claims.to_string());
                    let header = format!("Bearer {token}");
                    let answer = knock(gateway, Era::Modern, &[("authorization", &header)]);
                    good.fetch_add(usize::from(answer.status == 200), Ordering::Relaxed);
                }
            });
        }
    });
    // AV-34: all of them good, and the keys were read once more.
    assert_eq!(good.into_inner(), 400);
    assert_eq!(issuer.asked("/jwks").len(), 2);
    // AV-35: keys nobody has cause no more questions.
    let claims = issuer.claims("alice").to_string();
    for n in 0..200 {
        let mut header = new.header();
        header["kid"] = json!(format!("made-up-{n}"));
        let token = new.token(&header.to_string(), &claims);
        assert_eq!(with(&gateway, Era::Modern, &token), (401, "token-issuer".to_owned()));
    }
    assert_eq!(issuer.asked("/jwks").len(), 2);
}

#[test]
fn hostile_sets_of_keys_do_no_harm() {
    let server = Server::echo(Era::Modern, &["echo"]);
    let long = Arc::new("x".repeat(300 * 1024));
    type Make = Box<dyn Fn(&Issuer) -> Vec<u8> + Send + Sync>;
    let many = json!({ "keys": vec![Key::es256("k").jwk(); 70] }).to_string();
    let secret =
        json!({ "keys": [{ "kty": "oct", "k": "c2VjcmV0", "kid": "k1", "alg": "HS256" }] });
    let point = json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "k1", "x": encode(&[1; 32]), "y": encode(&[2; 32]) }] });
    let weak =
        json!({ "keys": [{ "kty": "RSA", "kid": "k1", "n": encode(&[255; 64]), "e": "AQAB" }] });
    let cases: Vec<(&str, u16, Make)> = vec![
        ("AV-36 long", 503, Box::new(move |_| ok(&long))),
        (
            "AV-36 redirect",
            503,
            Box::new(|_| {
                b"HTTP/1.1 302 Found\r\nlocation: https://169.254.169.254/\r\ncontent-length: 0\r\n\r\n".to_vec()
            }),
        ),
        ("AV-36 many keys", 503, Box::new(move |_| ok(&many))),
        ("AV-36 not JSON", 503, Box::new(|_| ok("<html>"))),
        ("AV-36 keys twice", 503, Box::new(|_| ok(r#"{"keys":[],"keys":[]}"#))),
        ("AV-36 secret", 401, Box::new(move |_| ok(&secret.to_string()))),
        ("AV-36 not on the curve", 401, Box::new(move |_| ok(&point.to_string()))),
        ("AV-36 weak", 401, Box::new(move |_| ok(&weak.to_string()))),
        (
            "AV-36 two of a name",
            401,
            Box::new(|issuer| {
                ok(&json!({ "keys": [issuer.key.jwk(), Key::es256("k1").jwk()] }).to_string())
            }),
        ),
    ];
    let slow: Make = Box::new(|_| {
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"
            .to_vec()
    });
    let cases = cases.into_iter().chain([("AV-36 slow", 503, slow)]);
    for (what, status, make) in cases {
        let issuer = Issuer::start();
        let bytes = make(&issuer);
        issuer.answer("/jwks", move |_| bytes.clone());
        let config = believing(&server, &issuer.item("corp", "")).limits("responseTimeout: 1s");
        let gateway = config.start();
        let found = with(&gateway, Era::Modern, &issuer.good("alice"));
        assert_eq!(found.0, status, "{what}: {found:?}");
        let forged = hs256(
            r#"{"alg":"HS256","typ":"at+jwt","kid":"k1"}"#,
            &issuer.claims("alice").to_string(),
            b"secret",
        );
        assert_eq!(with(&gateway, Era::Modern, &forged).0, 401, "{what}");
    }
}

#[test]
fn keys_that_cannot_be_read_again_are_relied_on_for_a_while() {
    for (stale, expected) in [("1h", 200), ("1ms", 503)] {
        let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
        let more = format!("keyRefreshInterval: 1ms\nunknownKeyCooldown: 1ms\nmaxStale: {stale}");
        issuer.answer("/jwks", {
            let text = json!({ "keys": [issuer.key.jwk()] }).to_string();
            let count = AtomicUsize::new(0);
            // Once, and never again.
            move |_| match count.fetch_add(1, Ordering::Relaxed) {
                0 => ok(&text),
                _ => answer("500 Internal Server Error", "text/plain", "no"),
            }
        });
        let gateway = believing(&server, &issuer.item("corp", &more)).start();
        // AV-37: the issuer is down from now on.
        eventually("a second reading", || (issuer.asked("/jwks").len() > 1).then_some(()));
        let found = with(&gateway, Era::Modern, &issuer.good("alice"));
        assert_eq!(found.0, expected, "{stale}: {found:?}");
    }
}

#[test]
fn a_token_that_was_verified_is_good_no_longer_than_its_keys_are_relied_on() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let down = Arc::new(AtomicBool::new(false));
        issuer.answer("/jwks", {
            let (down, text) =
                (Arc::clone(&down), json!({ "keys": [issuer.key.jwk()] }).to_string());
            move |_| match down.load(Ordering::Relaxed) {
                false => ok(&text),
                true => answer("500 Internal Server Error", "text/plain", "no"),
            }
        });
        let item =
            issuer.item("corp", "keyRefreshInterval: 1ms\nunknownKeyCooldown: 1ms\nmaxStale: 2s");
        let gateway = believing(&server, &item).start();
        let token = issuer.good("alice");
        assert_eq!(with(&gateway, era, &token).0, 200);
        down.store(true, Ordering::Relaxed);
        eventually("the end of the keys", || {
            (with(&gateway, era, &token) == (503, "token-unavailable".to_owned())).then_some(())
        });
        down.store(false, Ordering::Relaxed);
        eventually("the keys", || (with(&gateway, era, &token).0 == 200).then_some(()));
    }
}

#[test]
fn tokens_of_a_key_that_was_removed_are_refused() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let gateway = believing(
        &server,
        &issuer.item("corp", "keyRefreshInterval: 1ms\nunknownKeyCooldown: 1ms"),
    )
    .start();
    let token = issuer.good("alice");
    assert_eq!(with(&gateway, Era::Modern, &token).0, 200);
    issuer.publish(&[&Key::es256("k2")]);
    // AV-38: also one that was verified before.
    eventually("the end of the key", || {
        (with(&gateway, Era::Modern, &token) == (401, "token-issuer".to_owned())).then_some(())
    });
}

#[test]
fn an_issuer_that_is_away_is_a_warning_and_a_closed_door() {
    let server = Server::echo(Era::Modern, &["echo"]);
    let issuer = Issuer::start();
    let item = issuer.item("corp", "");
    let gone = item.replace(&issuer.url(), "https://localhost:9");
    let gateway = believing(&server, &gone).start();
    gateway.says("its tokens are rejected until its keys can be read");
    let mut claims = issuer.claims("alice");
    claims["iss"] = json!("https://localhost:9");
    let token = issuer.token(&claims);
    for era in ERAS {
        let header = format!("Bearer {token}");
        let answer = knock(&gateway, era, &[("authorization", &header)]);
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        assert_eq!(gateway.last()["reason"], "token-unavailable");
    }
    let ready = get(gateway.ops.unwrap(), "/readyz?verbose").body;
    assert!(ready.contains("issuer corp: its keys are not known"), "{ready}");
}

#[test]
fn a_bad_configuration_of_issuers_is_said_with_its_place() {
    let (server, issuer) = (Server::echo(Era::Modern, &["echo"]), Issuer::start());
    let item = issuer.item("corp", "");
    for (items, said) in [
        (item.replace("https://", "http://"), "is not an `https` URL"),
        (item.replace(&issuer.pki.path(), "/nowhere/ca.pem"), "could not read `/nowhere/ca.pem`"),
        (issuer.item("corp", "keys: {url: 'http://localhost/jwks'}"), "is not an `https` URL"),
        (
            issuer.item("corp", "keys: {file: /nowhere/jwks.json}"),
            "could not read `/nowhere/jwks.json`",
        ),
        (issuer.item("corp", "keys: {}"), "the keys have exactly one source"),
        (issuer.item("corp", "algorithms: [HS256]"), "`HS256` is not known here"),
        (issuer.item("corp", "algorithms: []"), "the list is empty"),
        (issuer.item("corp", "clockSkew: 5m"), "longer than 1m"),
        (issuer.item("a b", ""), "not a name"),
        (format!("{item}{item}"), "is used twice"),
    ] {
        let refused = believing(&server, &items).refused();
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(3), "{said}: {text}");
        assert!(text.contains(said) && text.contains("gateway.yaml:"), "{said}: {text}");
    }
    for (route, said) in [
        ("oauth: {resource: ''}", "not an audience"),
        ("oauth: {audiences: ['']}", "not an audience"),
        ("oauth: {issuers: [nobody]}", "there is no issuer `nobody`"),
        ("oauth: {issuers: []}", "the list is empty"),
    ] {
        let mut config = believing(&server, &item);
        config.routes = format!("- {{path: /mcp, servers: [up], {route}}}");
        let text = String::from_utf8_lossy(&config.refused().stderr).into_owned();
        assert!(text.contains(said) && text.contains("gateway.yaml:"), "{said}: {text}");
    }
    let mut config = believing(&server, &item);
    config.listener = "publicUrl: http://gw.example".to_owned();
    let text = String::from_utf8_lossy(&config.refused().stderr).into_owned();
    assert!(text.contains("plain HTTP is for loopback only"), "{text}");
}

/// One person with two tokens is two callers where rules speak of what the tokens say.
#[test]
fn a_list_that_is_remembered_is_for_the_same_groups_and_claims() {
    for era in ERAS {
        let server = Server::echo(era, &["read", "write", "agent"]);
        let issuer = Issuer::start();
        let policy = "rules:\n\
            - {id: dev, effect: allow, principals: ['group:dev'], servers: ['*'], tools: [read]}\n\
            - {id: ops, effect: allow, principals: ['group:ops'], servers: ['*'], tools: [write]}\n\
            - {id: client, effect: allow, principals: ['client:other'], servers: ['*'], tools: [agent]}";
        let gateway = believing(&server, &issuer.item("corp", "")).policy(policy).start();
        let sees = |groups: &[&str], client: &str| {
            let mut claims = issuer.claims("alice");
            claims["groups"] = json!(groups);
            claims["client_id"] = client.into();
            let token = issuer.token(&claims);
            gateway.client(era, &token).tools()
        };
        // Twice, so that each finds what the other left behind.
        for _ in 0..2 {
            assert_eq!(sees(&["dev"], "agent"), ["read"]);
            assert_eq!(sees(&["ops"], "agent"), ["write"]);
            assert_eq!(sees(&["dev", "ops"], "agent"), ["read", "write"]);
            assert_eq!(sees(&["dev"], "other"), ["read", "agent"]);
        }
    }
}

/// A rule that forbids something to a group or a role has to see every name that the token has.
#[test]
fn a_list_with_too_many_names_is_refused_also_where_they_are_the_same() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let policy = "rules:\n\
            - {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}\n\
            - {id: never, effect: forbid, principals: ['group:bad', 'role:bad'], servers: ['*'], tools: ['*']}";
        let gateway = believing(&server, &issuer.item("corp", "")).policy(policy).start();
        gateway.has_read(1);
        let names = |same: usize| {
            let mut names = vec!["x"; same];
            names.push("bad");
            json!(names)
        };
        let saying = |place: &str, said: Value| {
            let mut claims = issuer.claims("alice");
            match place {
                "roles" => claims["realm"] = json!({ "roles": said }),
                place => claims[place] = said,
            }
            issuer.token(&claims)
        };
        for place in ["groups", "roles"] {
            let (last, over) = (saying(place, names(511)), saying(place, names(512)));
            let denied = gateway.client(era, &last).call("echo", &json!({ "text": "hello" }));
            assert_eq!(denied.code(), -32602, "{place}: {denied:?}");
            refused(&gateway, &server, &over, "token-refused", place);
            assert_eq!(gateway.last()["detail"], place);
            refused(&gateway, &server, &saying(place, names(600)), "token-refused", place);
            assert_eq!(gateway.last()["detail"], place);
        }
        let scopes = |count: usize| vec!["mcp"; count];
        for (count, expected) in [(512, 200), (513, 401)] {
            for said in [json!(scopes(count)), json!(scopes(count).join(" "))] {
                let token = saying("scope", said);
                assert_eq!(with(&gateway, era, &token).0, expected, "{count}");
            }
        }
        assert_eq!(gateway.last()["detail"], "scopes");
    }
}

/// What one client of a person was given, another client of the same person does not have.
#[test]
fn a_task_and_a_kept_result_are_for_the_same_client() {
    for era in ERAS {
        let server = Server::offering(
            era,
            json!({ "tools": [e2e::server::tool("later"), e2e::server::tool("long")] }),
            move |call| {
                let task = json!({ "taskId": "t-7", "status": "working", "ttlMs": 1000,
                    "createdAt": "x", "resultType": "task" });
                match (call.method(), call.tool(), era) {
                    ("tools/call", "later", Era::Modern) => task,
                    ("tools/call", "later", Era::Legacy) => json!({ "task": task }),
                    ("tools/call", ..) => json!({ "resultType": "complete",
                        "content": [{ "type": "text", "text": "long ".repeat(400) }] }),
                    _ => {
                        let mut task = task;
                        task["resultType"] = "complete".into();
                        task
                    }
                }
            },
        );
        let issuer = Issuer::start();
        let policy = "content: [{servers: [up], size: {maxBytes: 600, onExceeded: offload}}]\nrules:\n\
            - {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";
        let gateway = believing(&server, &issuer.item("corp", "")).policy(policy).start();
        let through = |client: &str| {
            let mut claims = issuer.claims("alice");
            claims["client_id"] = client.into();
            let token = issuer.token(&claims);
            let able = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
            Client::able(gateway.address, "/mcp", era, Some(&token), &able)
        };
        let (agent, other) = (through("agent"), through("other"));
        let answer = agent.call("long", &json!({})).json();
        let uri = answer["result"]["content"][1]["uri"].clone();
        let read = |client: &Client| client.ask("resources/read", json!({ "uri": uri })).json();
        assert!(read(&agent)["result"].is_object(), "{answer}");
        assert!(read(&other)["error"].is_object());
        // Another token of the same client will do.
        assert!(read(&through("agent"))["result"].is_object());
        let answer = agent.ask("tools/call", json!({ "name": "later", "task": {} })).json();
        let result = &answer["result"];
        let task = if era == Era::Modern { result } else { &result["task"] };
        let id = task["taskId"].clone();
        let get = |client: &Client| client.ask("tasks/get", json!({ "taskId": id })).code();
        assert_eq!((get(&agent), get(&other)), (0, -32602), "{answer}");
    }
}
