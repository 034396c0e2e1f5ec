//! Identity providers: tokens of their shape against the configuration of the documentation; and what the operator is
//! told of a token that was refused, which the caller is not.

use std::fs;
use std::process::{Command, Output};

use e2e::gateway::{Config, Folder, Gateway, binary, fed, root};
use e2e::issuer::{Issuer, Key, RESOURCE, now};
use e2e::server::{Server, ok};
use e2e::{ERAS, Era};
use serde_json::{Value, json};

use crate::tokens::{believing, knock};

/// A provider: how its tokens look, and the issuer that makes them.
struct Provider {
    issuer: Issuer,
    key: Key,
    /// The header of its tokens.
    header: Value,
}

impl Provider {
    /// One whose tokens have this in their header beside the algorithm and the key.
    fn new(header: Value) -> Self {
        let (issuer, key) = (Issuer::start(), Key::rs256("r1"));
        issuer.publish(&[&key]);
        let mut all = header;
        all["alg"] = json!("RS256");
        all["kid"] = json!("r1");
        Self { issuer, key, header: all }
    }

    /// The identifier at `path`, whose metadata is published from now on.
    fn identifier(&self, path: &str) -> String {
        let identifier = format!("{}{path}", self.issuer.url());
        let keys = format!("{}/jwks", self.issuer.url());
        let metadata = json!({ "issuer": identifier, "jwks_uri": keys }).to_string();
        let place = format!("{}/.well-known/openid-configuration", path.trim_end_matches('/'));
        let places = [place, "/.well-known/oauth-authorization-server".to_owned()];
        // The bare place belongs to an issuer without a path.
        let places = places.iter().take(if path.trim_matches('/').is_empty() { 2 } else { 1 });
        for place in places {
            let metadata = metadata.clone();
            self.issuer.answer(place, move |_| ok(&metadata));
        }
        identifier
    }

    /// A token with these claims, some of them others; `null` takes one away.
    fn token(&self, claims: &Value, changes: &Value) -> String {
        self.with_header(&self.header, claims, changes)
    }

    fn with_header(&self, header: &Value, claims: &Value, changes: &Value) -> String {
        let claims = changed(claims, changes);
        let token = self.key.token(&header.to_string(), &claims.to_string());
        e2e::canary::watch(e2e::canary::Side::Caller, &token);
        token
    }

    /// A gateway with the recipe called `name`, in which `hosts` stand for this issuer.
    fn gateway(&self, name: &str, hosts: &[&str], server: &Server) -> Config {
        let (mut issuers, mut routes) = recipe(name);
        for host in hosts {
            assert!(issuers.contains(host), "{host}");
            let own = self.issuer.url();
            (issuers, routes) = (issuers.replace(host, &own), routes.replace(host, &own));
        }
        let authorities = format!("    connection: {{authorities: '{}'}}", self.issuer.pki.path());
        let issuers = issuers.replace(
            "  acceptUntypedTokens: true",
            &format!("  acceptUntypedTokens: true\n{authorities}"),
        );
        let mut config = believing(server, "");
        config.identity = issuers;
        config.routes = routes.replace("servers: [tickets]", "servers: [up]");
        config
    }
}

fn changed(claims: &Value, changes: &Value) -> Value {
    let mut claims = claims.clone();
    let members = claims.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            members.remove(name);
        } else {
            members.insert(name.clone(), value.clone());
        }
    }
    claims
}

/// The members of `identity`, and the items of `routes`, of a recipe in the documentation.
fn recipe(name: &str) -> (String, String) {
    let page = fs::read_to_string(root().join("docs/identity-providers.md")).unwrap();
    let begin = format!("```yaml\n# {name}\nidentity:\n");
    let (_, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("no recipe for {name}"));
    let (block, _) = rest.split_once("```").unwrap();
    let (identity, routes) = block.split_once("routes:\n").unwrap();
    let dedented = |text: &str| {
        let lines = text.lines().map(|line| line.strip_prefix("  ").unwrap());
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    (dedented(identity), dedented(routes))
}

/// What became of a token: the status, and the record.
fn shown(gateway: &Gateway, era: Era, token: &str) -> (u16, Value) {
    let answer = knock(gateway, era, &[("authorization", &format!("Bearer {token}"))]);
    (answer.status, gateway.last())
}

/// Asserts that a token comes in as this.
fn accepted(gateway: &Gateway, token: &str, wanted: &Value) {
    for era in ERAS {
        let (status, record) = shown(gateway, era, token);
        assert_eq!(status, 200, "{record}");
        for (name, value) in wanted.as_object().unwrap() {
            assert_eq!(record[name], *value, "{name}: {record}");
        }
    }
}

/// Asserts that a token is refused, and that the record says by which check.
fn refused(
    gateway: &Gateway,
    server: &Server,
    what: &str,
    token: &str,
    (reason, detail): (&str, &str),
) {
    for era in ERAS {
        let calls = server.calls().len();
        let (status, record) = shown(gateway, era, token);
        let said = (status, record["reason"].as_str(), record["detail"].as_str());
        assert_eq!(said, (401, Some(reason), Some(detail)), "{what}: {record}");
        assert_eq!(server.calls().len(), calls, "{what}");
    }
}

fn server() -> Server {
    Server::echo(Era::Modern, &["echo"])
}

#[test]
fn the_recipes_take_tokens_of_their_shape_and_no_others() {
    keycloak();
    entra();
    okta();
    auth0();
}

fn keycloak() {
    let (server, provider) = (server(), Provider::new(json!({ "typ": "JWT" })));
    let issuer = provider.identifier("/realms/corp");
    let config = provider.gateway("Keycloak", &["https://keycloak.example.com"], &server);
    let gateway = config.start();
    gateway.has_read(1);
    let claims = json!({
        "exp": now() + 300, "iat": now(), "auth_time": now() - 5, "jti": "onrtac:5d4b3a2f-6f5d",
        "iss": issuer, "aud": [RESOURCE, "account"], "sub": "3f2c7a54-9d1e-4b8e-8a53-0f7ce1c3a9b0",
        "typ": "Bearer", "azp": "agent", "sid": "b1c4d3e2", "acr": "1", "allowed-origins": ["/*"],
        "realm_access": { "roles": ["offline_access", "agent"] },
        "resource_access": { "account": { "roles": ["view-profile"] } },
        "scope": "openid mcp profile", "email_verified": true, "groups": ["/staff", "dev"],
        "preferred_username": "ana",
    });
    accepted(
        &gateway,
        &provider.token(&claims, &json!({})),
        &json!({
            "principal": "keycloak/3f2c7a54-9d1e-4b8e-8a53-0f7ce1c3a9b0", "client": "agent",
            "groups": ["/staff", "dev"], "roles": ["agent", "offline_access"],
            "scopes": ["mcp", "openid", "profile"],
        }),
    );
    // The account of a service is a user of Keycloak's.
    let service = json!({ "sub": "77", "client_id": "agent", "scope": "mcp", "groups": null,
        "preferred_username": "service-account-agent" });
    let who = json!({ "principal": "keycloak/77", "client": "agent", "groups": null });
    accepted(&gateway, &provider.token(&claims, &service), &who);
    for (what, changes, wanted) in [
        ("of the account alone", json!({ "aud": "account" }), ("token-audience", "audience")),
        ("for another API", json!({ "aud": [RESOURCE, "other"] }), ("token-audience", "audience")),
        ("ID token", json!({ "typ": "ID" }), ("token-refused", "token-use")),
        ("ID token by hash", json!({ "at_hash": "x" }), ("token-refused", "id-token")),
        ("refresh token", json!({ "typ": "Refresh" }), ("token-refused", "token-use")),
        ("DPoP without a key", json!({ "typ": "DPoP" }), ("token-proof", "cnf")),
        ("no client", json!({ "azp": null }), ("token-refused", "client-id-missing")),
        ("no subject", json!({ "sub": null }), ("token-refused", "sub-missing")),
        ("groups", json!({ "groups": [7] }), ("token-refused", "groups")),
        ("roles", json!({ "realm_access": { "roles": {} } }), ("token-refused", "roles")),
        ("ended", json!({ "exp": now() - 60 }), ("token-time", "expired")),
        ("another realm", json!({ "iss": provider.issuer.url() }), ("token-issuer", "issuer")),
    ] {
        refused(&gateway, &server, what, &provider.token(&claims, &changes), wanted);
    }
    let forged = Key::rs256("r1").token(&provider.header.to_string(), &claims.to_string());
    refused(&gateway, &server, "forged", &forged, ("token-refused", "signature"));
}

fn entra() {
    const TENANT: &str = "11111111-2222-3333-4444-555555555555";
    const API: &str = "66666666-7777-8888-9999-000000000000";
    let (server, provider) = (server(), Provider::new(json!({ "typ": "JWT", "x5t": "r1" })));
    let two = provider.identifier(&format!("/{TENANT}/v2.0"));
    let one = provider.identifier(&format!("/{TENANT}/"));
    let hosts = ["https://login.microsoftonline.com", "https://sts.windows.net"];
    let gateway = provider.gateway("Entra ID", &hosts, &server).start();
    gateway.has_read(1);
    let common = json!({
        "iat": now(), "nbf": now(), "exp": now() + 5100, "oid": "aaaa-1", "sub": "pairwise-1",
        "tid": TENANT, "uti": "kq", "rh": "0.AX", "scp": "mcp files.read", "roles": ["Agent"],
        "groups": ["dev", "9f2c"], "name": "Ana",
    });
    let two = changed(
        &common,
        &json!({ "iss": two, "aud": API, "azp": "agent", "azpacr": "1", "ver": "2.0" }),
    );
    let one = changed(
        &common,
        &json!({ "iss": one, "aud": "api://mcp-gateway", "appid": "agent", "appidacr": "1", "ver": "1.0" }),
    );
    let said = json!({ "client": "agent", "groups": ["9f2c", "dev"], "roles": ["Agent"], "scopes": ["files.read", "mcp"] });
    let of = |who: &str| changed(&said, &json!({ "principal": who }));
    accepted(&gateway, &provider.token(&two, &json!({})), &of("entra/aaaa-1"));
    accepted(&gateway, &provider.token(&one, &json!({})), &of("entra-v1/aaaa-1"));
    // An application for itself, with application permissions.
    let app = json!({ "idtyp": "app", "sub": "aaaa-1", "scp": null, "groups": ["dev"] });
    let who = json!({ "principal": "service:entra/agent", "client": "agent", "roles": ["Agent"], "scopes": null });
    accepted(&gateway, &provider.token(&two, &app), &who);
    let elsewhere = json!({ "groups": null, "_claim_names": { "groups": "src1" },
        "_claim_sources": { "src1": { "endpoint": "https://graph.example/x" } } });
    for (what, changes, wanted) in [
        ("overage", elsewhere, ("token-refused", "groups-elsewhere")),
        (
            "overage, implicit",
            json!({ "groups": null, "hasgroups": true }),
            ("token-refused", "groups-elsewhere"),
        ),
        (
            "for Graph",
            json!({ "aud": "00000003-0000-0000-c000-000000000000" }),
            ("token-audience", "audience"),
        ),
        (
            "another tenant",
            json!({ "iss": provider.issuer.url() + "/other/v2.0" }),
            ("token-issuer", "issuer"),
        ),
        ("no oid", json!({ "oid": null }), ("token-refused", "sub-missing")),
        ("no client", json!({ "azp": null }), ("token-refused", "client-id-missing")),
        ("ID token", json!({ "nonce": "n" }), ("token-refused", "id-token")),
        ("scopes", json!({ "scp": 7 }), ("token-refused", "scopes")),
        ("idtyp", json!({ "idtyp": ["app"] }), ("token-refused", "service")),
        (
            "continuous access evaluation",
            json!({ "exp": now() + 28 * 3600 }),
            ("token-time", "lifetime"),
        ),
        ("not yet", json!({ "nbf": now() + 600 }), ("token-time", "not-yet-valid")),
    ] {
        refused(&gateway, &server, what, &provider.token(&two, &changes), wanted);
    }
    let header = changed(&provider.header, &json!({ "nonce": "n" }));
    let graph = provider.with_header(&header, &two, &json!({}));
    refused(&gateway, &server, "a nonce in the header", &graph, ("token-refused", "header"));
}

fn okta() {
    let (server, provider) = (server(), Provider::new(json!({})));
    let issuer = provider.identifier("/oauth2/default");
    let config = provider.gateway("Okta", &["https://corp.okta.example.com"], &server);
    let gateway = config.start();
    gateway.has_read(1);
    let claims = json!({
        "ver": 1, "jti": "AT.0mP4JKAZX1iACIT4vbEDF7LpvDVjxypPMf0D7uX39RE", "iss": issuer,
        "aud": "api://default", "iat": now(), "exp": now() + 3600, "cid": "0oabucvy", "uid": "00ujmk",
        "scp": ["openid", "mcp"], "auth_time": now() - 9, "sub": "ana@example.com", "groups": ["dev"],
    });
    accepted(
        &gateway,
        &provider.token(&claims, &json!({})),
        &json!({ "principal": "okta/ana@example.com", "client": "0oabucvy", "groups": ["dev"], "scopes": ["mcp", "openid"] }),
    );
    let client = json!({ "sub": "0oabucvy", "uid": null, "scp": ["mcp"], "groups": null });
    let who =
        json!({ "principal": "service:okta/0oabucvy", "client": "0oabucvy", "scopes": ["mcp"] });
    accepted(&gateway, &provider.token(&claims, &client), &who);
    for (what, changes, wanted) in [
        (
            "of the org's own server",
            json!({ "iss": provider.issuer.url() }),
            ("token-issuer", "issuer"),
        ),
        ("for another API", json!({ "aud": "api://other" }), ("token-audience", "audience")),
        ("no client", json!({ "cid": null }), ("token-refused", "client-id-missing")),
        ("ID token", json!({ "nonce": "n", "aud": "0oabucvy" }), ("token-refused", "id-token")),
        ("groups", json!({ "groups": { "a": 1 } }), ("token-refused", "groups")),
        ("scopes", json!({ "scp": ["a b"] }), ("token-refused", "scopes")),
        ("ended", json!({ "exp": now() - 60 }), ("token-time", "expired")),
    ] {
        refused(&gateway, &server, what, &provider.token(&claims, &changes), wanted);
    }
    let symmetric = changed(&provider.header, &json!({ "alg": "HS256" }));
    let token = provider.with_header(&symmetric, &claims, &json!({}));
    refused(&gateway, &server, "a shared secret", &token, ("token-refused", "algorithm"));
    let unknown = changed(&provider.header, &json!({ "kid": "r2" }));
    let token = provider.with_header(&unknown, &claims, &json!({}));
    refused(&gateway, &server, "an unknown key", &token, ("token-issuer", "key-unknown"));
    let typed = changed(&provider.header, &json!({ "typ": "logout+jwt" }));
    let token = provider.with_header(&typed, &claims, &json!({}));
    refused(&gateway, &server, "another type", &token, ("token-refused", "typ"));
}

fn auth0() {
    const GROUPS: &str = "https://mcp.example.com/groups";
    let (server, provider) = (server(), Provider::new(json!({ "typ": "JWT" })));
    let issuer = provider.identifier("/");
    let config = provider.gateway("Auth0", &["https://corp.auth0.example.com"], &server);
    let gateway = config.start();
    gateway.has_read(1);
    let information = format!("{issuer}userinfo");
    let claims = json!({
        GROUPS: ["dev", "on call"], "iss": issuer, "sub": "auth0|5f7c8ec7c33c6c004bbafe82",
        "aud": [RESOURCE, information], "iat": now(), "exp": now() + 86400, "azp": "my_client",
        "scope": "openid profile mcp admin", "permissions": ["mcp", "read:files"],
    });
    accepted(
        &gateway,
        &provider.token(&claims, &json!({})),
        &json!({
            "principal": "auth0/auth0|5f7c8ec7c33c6c004bbafe82", "client": "my_client",
            "groups": ["dev", "on call"], "scopes": ["mcp", "read:files"],
        }),
    );
    let machine = json!({ "sub": "my_client@clients", "aud": RESOURCE, "gty": "client-credentials", "scope": "mcp" });
    let who = json!({ "principal": "service:auth0/my_client", "client": "my_client", "scopes": ["mcp", "read:files"] });
    accepted(&gateway, &provider.token(&claims, &machine), &who);
    for (what, changes, wanted) in [
        ("for user information", json!({ "aud": [information] }), ("token-audience", "audience")),
        (
            "for another API",
            json!({ "aud": ["https://api.example", information] }),
            ("token-audience", "audience"),
        ),
        (
            "for another one too",
            json!({ "aud": [RESOURCE, "https://api.example"] }),
            ("token-audience", "audience"),
        ),
        ("no client", json!({ "azp": null }), ("token-refused", "client-id-missing")),
        (
            "a client without a name",
            json!({ "azp": null, "gty": "client-credentials" }),
            ("token-refused", "client-id-missing"),
        ),
        ("a grant of the wrong type", json!({ "gty": true }), ("token-refused", "service")),
        ("groups", json!({ GROUPS: [1] }), ("token-refused", "groups")),
        ("permissions", json!({ "permissions": true }), ("token-refused", "scopes")),
        ("without the slash", json!({ "iss": provider.issuer.url() }), ("token-issuer", "issuer")),
        ("for a month", json!({ "exp": now() + 30 * 86400 }), ("token-time", "lifetime")),
    ] {
        refused(&gateway, &server, what, &provider.token(&claims, &changes), wanted);
    }
}

#[test]
fn the_operator_is_told_which_check_failed_and_the_caller_is_not() {
    let (server, issuer, folder) = (server(), Issuer::start(), Folder::new());
    let (file, audit) = (folder.path().join("gateway.yaml"), folder.path().join("audit.jsonl"));
    believing(&server, &issuer.item("corp", "")).write(&file, &audit);
    let mut command = Command::new(binary());
    command.args(["run", "-c"]).arg(&file).env("PORTCULLIS_LOG", "debug");
    let gateway = Gateway::spawn(command, folder, audit);
    let claims = issuer.claims("alice");
    let with = |header: Value, changes: Value| {
        let claims = changed(&claims, &changes).to_string();
        issuer.key.token(&changed(&issuer.key.header(), &header).to_string(), &claims)
    };
    let forged = Key::es256("k1").token(&issuer.key.header().to_string(), &claims.to_string());
    let tokens = [
        ("typ", with(json!({ "typ": "JWT" }), json!({}))),
        ("client-id-missing", with(json!({}), json!({ "client_id": null }))),
        ("jti-missing", with(json!({}), json!({ "jti": null }))),
        ("cnf", with(json!({}), json!({ "cnf": { "x": "y" } }))),
        ("signature", forged),
    ];
    for era in ERAS {
        let mut answers = Vec::new();
        for (detail, token) in &tokens {
            let answer = knock(&gateway, era, &[("authorization", &format!("Bearer {token}"))]);
            assert_eq!(gateway.last()["detail"], **detail);
            let challenge = answer.header("www-authenticate").unwrap().to_owned();
            assert!(!answer.body.contains(detail) && !challenge.contains(detail), "{answer:?}");
            answers.push((*detail, answer.status, challenge, answer.body));
        }
        // But for the one that lacks a proof the answers are the same to the byte.
        let same: Vec<_> = answers.iter().filter(|answer| answer.0 != "cnf").collect();
        let body = |text: &str| text.parse::<Value>().unwrap()["error"].clone();
        for answer in &same {
            assert_eq!((answer.1, &answer.2), (same[0].1, &same[0].2), "{answer:?}");
            assert_eq!(body(&answer.3), body(&same[0].3), "{answer:?}");
        }
    }
    let metrics = gateway.metrics();
    for (detail, _) in &tokens {
        let line = format!("portcullis_credentials_refused_total{{detail=\"{detail}\"}} 2");
        assert!(metrics.contains(&line), "{line}: {metrics}");
        gateway.says(&format!("\"detail\":\"{detail}\""));
    }
}

/// The verb on a configuration, with this token on standard input.
pub(crate) fn inspected(
    config: &Config,
    more: &[&str],
    token: &str,
) -> (Option<i32>, String, String) {
    let mut arguments = vec!["token", "inspect"];
    arguments.extend(more);
    said(&config.fed(&arguments, token))
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_token_is_inspected_check_by_check_as_the_gateway_would() {
    let (server, issuer, folder) = (server(), Issuer::start(), Folder::new());
    let config = believing(&server, &issuer.item("corp", ""));
    let gateway = config.start();
    let claims = issuer.claims("alice");
    let header = issuer.key.header();
    let good = issuer.good("alice");
    let (code, out, _) = inspected(&config, &[], &format!("Bearer {good}\n"));
    assert_eq!(code, Some(0), "{out}");
    for line in [
        "principal    corp/alice",
        "client       agent",
        "groups       dev",
        "scopes       mcp",
        "ok           signature",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(!out.contains("failed") && !out.contains("not reached"), "{out}");
    let cases = [
        (
            "typ",
            issuer.key.token(
                &changed(&header, &json!({ "typ": "JWT" })).to_string(),
                &claims.to_string(),
            ),
        ),
        ("signature", Key::es256("k1").token(&header.to_string(), &claims.to_string())),
        ("audience", issuer.token(&changed(&claims, &json!({ "aud": "x" })))),
        ("expired", issuer.token(&changed(&claims, &json!({ "exp": now() - 60 })))),
        ("client-id-missing", issuer.token(&changed(&claims, &json!({ "client_id": null })))),
        (
            "key-unknown",
            issuer
                .key
                .token(&changed(&header, &json!({ "kid": "k9" })).to_string(), &claims.to_string()),
        ),
        ("issuer", issuer.token(&changed(&claims, &json!({ "iss": "https://x.example" })))),
    ];
    for (detail, token) in &cases {
        let (code, out, said) = inspected(&config, &["--format", "json"], token);
        assert_eq!(code, Some(5), "{detail}: {out}{said}");
        let out: Value = out.parse().unwrap();
        // The gateway says the same.
        for era in ERAS {
            let record = shown(&gateway, era, token).1;
            assert_eq!(
                (&out["reason"], &out["detail"]),
                (&record["reason"], &record["detail"]),
                "{out}"
            );
        }
        assert_eq!(out["detail"], **detail);
        let states: Vec<_> =
            out["checks"].as_array().unwrap().iter().map(|row| &row["state"]).collect();
        let failed = states.iter().position(|state| **state == "failed").unwrap();
        assert!(states[..failed].iter().all(|state| **state == "ok"), "{out}");
        assert!(states[failed + 1..].iter().all(|state| **state == "not reached"), "{out}");
        let (_, human, _) = inspected(&config, &[], token);
        assert!(human.contains(&format!("{detail}: ")), "{human}");
        let signature = token.rsplit('.').next().unwrap();
        assert!(!human.contains(signature) && !human.contains(token.as_str()), "{human}");
    }
    // With the keys in a file nobody is asked.
    let keys = folder.path().join("keys.json");
    fs::write(&keys, json!({ "keys": [issuer.key.jwk()] }).to_string()).unwrap();
    let asked = issuer.asked("/jwks").len();
    let file = folder.path().join("token.txt");
    fs::write(&file, &good).unwrap();
    let (keys, file) = (keys.display().to_string(), file.display().to_string());
    let (code, out, said) = inspected(&config, &["--jwks", &keys, &file], "");
    assert_eq!((code, out.contains("corp/alice")), (Some(0), true), "{out}{said}");
    assert_eq!(issuer.asked("/jwks").len(), asked);
    // Where they cannot be had, that is another code.
    issuer.answer("/jwks", |_| e2e::server::answer("500 No", "text/plain", "no"));
    assert_eq!(inspected(&config, &[], &good).0, Some(7));
}

#[test]
fn an_inspected_token_without_the_scopes_that_clients_ask_for_is_accepted_with_a_note() {
    let (server, issuer) = (server(), Issuer::start());
    let config = believing(&server, &issuer.item("corp", ""));
    let token = issuer.token(&changed(&issuer.claims("alice"), &json!({ "scope": "openid" })));
    let gateway = config.start();
    for era in ERAS {
        assert_eq!(shown(&gateway, era, &token).0, 200, "{era:?}");
    }
    let (code, out, said) = inspected(&config, &[], &token);
    assert_eq!(code, Some(0), "{out}{said}");
    assert!(out.contains("note         the token does not have `mcp`: `oauth.scopes`"), "{out}");
    let (_, out, _) = inspected(&config, &["--format", "json"], &token);
    assert_eq!(out.parse::<Value>().unwrap()["unheldScopes"], json!(["mcp"]), "{out}");
    // One that has them, also as a provider writes them that is asked for `api://API/mcp`.
    let mut with_uri = config.clone();
    with_uri.routes = with_uri.routes.replace("[mcp]", "['api://x/mcp']");
    for config in [&config, &with_uri] {
        let (_, out, _) = inspected(config, &[], &issuer.good("alice"));
        assert!(out.contains("accepted") && !out.contains("note  "), "{out}");
    }
}

#[test]
fn an_inspected_token_that_is_refused_is_explained_by_the_configuration() {
    let (server, issuer) = (server(), Issuer::start());
    let config = believing(&server, &issuer.item("corp", "maxLifetime: 10m"));
    let claims = issuer.claims("alice");
    let refused = |changes: Value| {
        let (code, out, said) = inspected(&config, &[], &issuer.token(&changed(&claims, &changes)));
        assert_eq!(code, Some(5), "{out}{said}");
        out
    };
    let (url, slashed) = (issuer.url(), format!("{}/", issuer.url()));
    for (changes, expected) in [
        (
            json!({ "exp": now() + 7200 }),
            "lifetime: the lifetime exceeds `maxLifetime` of the issuer\n".to_owned(),
        ),
        (json!({ "exp": now() + 7200 }), "`maxLifetime` of issuer `corp` is 10m\n".to_owned()),
        (json!({ "exp": now() - 900 }), "expired: the token has expired (`exp`)\n".to_owned()),
        (json!({ "iss": slashed }), format!("issuer `corp` is configured as `{url}`, which has")),
        (json!({ "iss": "https://x.example" }), format!("configured are `{url}` (`corp`)\n")),
    ] {
        let out = refused(changes);
        assert!(out.contains(&expected), "{expected}: {out}");
    }
}

#[test]
fn a_token_is_inspected_by_the_usual_configuration_of_the_folder() {
    let (server, issuer, folder) =
        (Server::echo(Era::Modern, &["echo"]), Issuer::start(), Folder::new());
    let config = believing(&server, &issuer.item("corp", ""));
    let usual = folder.path().join("portcullis.yaml");
    config.write(&usual, &folder.path().join("audit.jsonl"));
    let verb = |arguments: &[&str], token: &str| {
        let mut command = Command::new(binary());
        command.args(["token", "inspect"]).args(arguments).current_dir(folder.path());
        said(&fed(command, token))
    };
    let good = issuer.good("alice");
    let late = issuer.token(&changed(&issuer.claims("alice"), &json!({ "exp": now() - 60 })));
    let (code, out, said) = verb(&[], &good);
    assert!(code == Some(0) && out.contains("principal    corp/alice"), "{out}{said}");
    assert!(said.contains("reading `portcullis.yaml` in this folder"), "{said}");
    let (code, out, said) = verb(&[], &late);
    assert!(code == Some(5) && out.contains("expired: "), "{out}{said}");
    // Without it a token is only shown, whatever is wrong with it.
    let (code, out, said) = verb(&["--raw"], &late);
    assert!(code == Some(0) && out.contains("\"alice\""), "{out}{said}");
    assert!(said.contains("nothing was verified"), "{said}");
    assert_eq!(verb(&["--raw", "--route", "/mcp"], &good).0, Some(2));
    fs::remove_file(&usual).unwrap();
    let (code, _, said) = verb(&["--route", "/mcp"], &good);
    assert!(code == Some(1) && said.contains("name a configuration with `-c FILE`"), "{said}");
}

#[test]
fn a_token_is_never_an_argument_and_never_printed() {
    let issuer = Issuer::start();
    let good = issuer.good("alice");
    let signature = good.rsplit('.').next().unwrap();
    let verb = |arguments: &[&str], input: &str| {
        let mut command = Command::new(binary());
        command.args(["token", "inspect"]).args(arguments);
        said(&fed(command, input))
    };
    let (code, out, said) = verb(&[&good], "");
    assert_eq!(code, Some(1));
    assert!(said.contains("standard input") && !said.contains(signature), "{said}");
    assert!(out.is_empty(), "{out}");
    // Without a configuration it shows what the token says, and that nothing was verified.
    let (code, out, said) = verb(&[], &good);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("\"alice\"") && said.contains("nothing was verified"), "{out}{said}");
    assert!(!out.contains(signature), "{out}");
    for (input, wanted) in [("", "no token"), ("abc", "three parts"), ("a.b.c", "three parts")] {
        let (code, _, said) = verb(&[], input);
        assert_eq!((code, said.contains(wanted)), (Some(1), true), "{input}: {said}");
    }
    // A control character of somebody else's choosing is not written to the terminal.
    let hostile =
        issuer.token(&changed(&issuer.claims("x"), &json!({ "sub": "\u{9b}31m\u{202e}" })));
    let (_, out, _) = verb(&["--format", "human"], &hostile);
    assert!(!out.contains(['\u{9b}', '\u{202e}']), "{out:?}");
}
