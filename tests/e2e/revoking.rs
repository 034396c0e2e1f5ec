//! The kill switch: what is revoked is no longer served, and streams of it end.

use std::fs;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use e2e::client::{Answer, Client, post, raw, read, until};
use e2e::gateway::{ANA, Config, Folder, Gateway, binary};
use e2e::issuer::Issuer;
use e2e::pki::{Leaf, Pki};
use e2e::server::Server;
use e2e::stdio::Started;
use e2e::tls::{client, tunnel};
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

use crate::attaching::started;
use crate::introspection::replaced;
use crate::programs::program;
use crate::shares::deaf;
use crate::tokens::{believing, knock};
use crate::transports::{call_of, message, unread};

/// How soon streams of what is revoked have to end.
const SOON: Duration = Duration::from_secs(5);

/// A configuration with an operator's token and a file of revocations.
pub(crate) fn switchable(config: Config, folder: &Folder) -> Config {
    let (token, file) = (folder.path().join("token"), folder.path().join("revoked.yaml"));
    fs::write(&token, "operator-secret").unwrap();
    fs::write(&file, "# nothing\n").unwrap();
    let mut config = config;
    config.ops = format!("{{address: '127.0.0.1:0', token: {{fromFile: '{}'}}}}", token.display());
    config.more = format!("revocations: {{file: '{}'}}", file.display());
    config
}

/// Writes a file in one step: whoever looks at it sees all of what was there before, or all of this.
fn put(file: &Path, text: &str) {
    let next = file.with_extension("put");
    fs::write(&next, text).unwrap();
    fs::rename(next, file).unwrap();
}

pub(crate) fn change(gateway: &Gateway, method: &str, token: &str, body: &Value) -> Answer {
    let authorization = format!("Bearer {token}");
    let headers = [("host", "localhost"), ("authorization", &*authorization)];
    let bytes = post("/revocations", &headers, &body.to_string());
    let bytes = [method.as_bytes(), bytes.strip_prefix(b"POST").unwrap()].concat();
    raw(gateway.ops.unwrap(), &bytes)
}

pub(crate) fn revoke(gateway: &Gateway, body: &Value) {
    assert_eq!(change(gateway, "POST", "operator-secret", body).status, 200);
}

#[test]
fn an_empty_file_of_revocations_is_told_at_the_start() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let config = switchable(Config::of(&server.url()), &folder);
    config.start().says("revocation.file_empty");
    fs::write(folder.path().join("revoked.yaml"), "principals: []\n").unwrap();
    let said = config.start().said();
    assert!(!said.contains("revocation.file_empty"), "{said}");
}

#[test]
fn whoever_is_revoked_is_served_no_more() {
    for era in ERAS {
        let (server, issuer, folder) =
            (Server::echo(era, &["echo", "other"]), Issuer::start(), Folder::new());
        let gateway = switchable(believing(&server, &issuer.item("corp", "")), &folder).start();
        let alice = issuer.good("alice");
        let bearer = format!("Bearer {alice}");
        let status = || knock(&gateway, era, &[("authorization", &bearer)]).status;
        for body in [
            json!({ "principals": ["corp/alice"] }),
            json!({ "clients": ["agent"] }),
            json!({ "tokens": ["alice-1"] }),
        ] {
            assert_eq!(status(), 200, "{body}");
            revoke(&gateway, &body);
            assert_eq!(status(), 401, "{body}");
            assert_eq!(gateway.last()["reason"], "credential-revoked");
            assert_eq!(change(&gateway, "DELETE", "operator-secret", &body).status, 200);
        }
        let client = gateway.client(era, &alice);
        assert_eq!(client.tools(), ["echo", "other"]);
        revoke(&gateway, &json!({ "tools": ["up/other"] }));
        assert_eq!(client.tools(), ["echo"]);
        let calls = server.count("tools/call");
        assert_eq!(client.call("other", &json!({})).code(), -32602);
        assert_eq!(gateway.last()["reason"], "revoked");
        assert_eq!(client.call("echo", &json!({})).status, 200);
        revoke(&gateway, &json!({ "servers": ["up"] }));
        assert_eq!(client.call("echo", &json!({})).code(), -32602);
        assert_eq!(server.count("tools/call"), calls + 1);
    }
}

#[test]
fn a_client_that_calls_in_its_own_name_is_revoked_and_lifted_under_the_name_in_its_records() {
    for era in ERAS {
        let (server, issuer, folder) =
            (Server::echo(era, &["echo"]), Issuer::start(), Folder::new());
        let config = switchable(believing(&server, &issuer.item("corp", "")), &folder);
        let file = folder.path().join("gateway.yaml");
        let gateway = config.start_at(&file);
        let ops = gateway.ops.unwrap().to_string();
        // Its subject is the client.
        let bearer = format!("Bearer {}", issuer.good("agent"));
        let other = format!("Bearer {}", issuer.good("alice"));
        let status = || knock(&gateway, era, &[("authorization", &bearer)]).status;
        assert_eq!(status(), 200);
        let name = gateway.last()["principal"].as_str().unwrap().to_owned();
        assert_eq!(name, "service:corp/agent");
        let verb = |arguments: &[&str], at: &[&str]| {
            let mut command = Command::new(binary());
            command.args(arguments).arg("-c").arg(&file).args(at);
            let output = command.output().unwrap();
            (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        // At the operator's listener.
        let body = json!({ "principals": [name] });
        revoke(&gateway, &body);
        assert_eq!(status(), 401);
        assert_eq!(gateway.last()["reason"], "credential-revoked");
        assert_eq!(knock(&gateway, era, &[("authorization", &other)]).status, 200);
        assert_eq!(change(&gateway, "DELETE", "operator-secret", &body).status, 200);
        assert_eq!(status(), 200);
        // By the verb, which asks the gateway, or changes the file that the gateway reads.
        for at in [&["--ops", &*ops][..], &["--offline"]] {
            let (good, said) = verb(&["revoke", "--principal", &name], at);
            assert!(good, "{at:?}: {said}");
            eventually("the revocation", || (status() == 401).then_some(()));
            let (good, said) = verb(&["revocations", "lift", "--principal", &name], at);
            assert!(good, "{at:?}: {said}");
            eventually("the end of it", || (status() == 200).then_some(()));
            // What nobody can be named says what can be.
            let (good, said) = verb(&["revoke", "--principal", "service:other/agent"], at);
            assert!(!good && said.contains("`service:ISSUER/CLIENT`"), "{at:?}: {said}");
        }
        let unknown = json!({ "principals": ["service:other/agent"] });
        let refused = change(&gateway, "POST", "operator-secret", &unknown);
        assert_eq!(refused.status, 400);
        assert!(refused.body.contains("service:ISSUER/CLIENT"), "{refused:?}");
    }
}

/// A name may have characters that YAML writes otherwise than JSON.
#[test]
fn a_name_of_any_characters_is_revoked_also_over_a_restart_and_hides_no_other() {
    let (server, issuer, folder) =
        (Server::echo(Era::Modern, &["echo"]), Issuer::start(), Folder::new());
    let config = switchable(believing(&server, &issuer.item("corp", "")), &folder);
    let mut gateway = config.start();
    let names = ["x\u{1f600}", "\u{10ffff}y", "a\u{2028}b", "\u{feff}c", "e\u{ad}f", "last"];
    let tokens = names.map(|name| format!("Bearer {}", issuer.good(name)));
    for (name, token) in names.iter().zip(&tokens) {
        for era in ERAS {
            assert_eq!(knock(&gateway, era, &[("authorization", token)]).status, 200, "{name:?}");
        }
        let body = json!({ "principals": [format!("corp/{name}")] });
        let said = change(&gateway, "POST", "operator-secret", &body).json();
        assert_eq!((&said["written"], &said["lastsOverRestart"]), (&json!(true), &json!(true)));
    }
    for _ in 0..2 {
        for (era, token) in ERAS.into_iter().flat_map(|era| tokens.iter().map(move |t| (era, t))) {
            assert_eq!(knock(&gateway, era, &[("authorization", token)]).status, 401);
        }
        drop(gateway);
        gateway = config.start();
    }
}

#[test]
fn a_certificate_is_revoked_under_any_of_its_names() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let (folder, pki) = (Folder::new(), Pki::new("clients"));
        let own = pki.issue(&Leaf::local());
        let mut config = believing(&server, &issuer.item("corp", ""));
        config.authentication = "[oauth, certificate]".to_owned();
        config.identity.push_str("certificates: [{names: ['dns:*', 'uri:*'], groups: [dev]}]");
        config.listener.push_str(&format!(
            "\ntls:\n  certificate: '{}'\n  key: '{}'\n  clients: {{certificates: optional, authorities: '{}'}}",
            own.certificate.display(),
            own.key.display(),
            pki.path(),
        ));
        let gateway = switchable(config, &folder).start();
        let mine = pki.issue(&Leaf {
            dns: vec!["a.example".into(), "b.example".into()],
            uris: vec!["urn:agent".into()],
            ..Leaf::default()
        });
        let through = tunnel(gateway.address, client(pki.roots(), Some(&mine)));
        let bearer = format!("Bearer {}", issuer.good("alice"));
        let status = |headers: &[(&str, &str)]| {
            let silent = Client::silent(through, "/mcp", era, headers);
            let answer =
                if era == Era::Legacy { silent.hello() } else { silent.call("echo", &json!({})) };
            answer.status
        };
        let token = [("authorization", &*bearer)];
        for name in ["dns:a.example", "dns:b.example", "uri:urn:agent"] {
            let body = json!({ "principals": [name] });
            assert_eq!(status(&[]), 200, "{name}");
            assert_eq!(gateway.last()["principal"], "dns:a.example");
            revoke(&gateway, &body);
            assert_eq!(status(&[]), 401, "{name}");
            assert_eq!(gateway.last()["reason"], "credential-revoked");
            // A token that comes with the certificate is not good in that hand any more either.
            assert_eq!(status(&token), 401, "{name}");
            assert_eq!(knock_over_tls(&gateway, &pki, era, &token), 200, "{name}");
            assert_eq!(change(&gateway, "DELETE", "operator-secret", &body).status, 200);
            assert_eq!(status(&token), 200, "{name}");
        }
    }
}

/// The status of what a client without a certificate is answered.
fn knock_over_tls(gateway: &Gateway, pki: &Pki, era: Era, headers: &[(&str, &str)]) -> u16 {
    let through = tunnel(gateway.address, client(pki.roots(), None));
    let silent = Client::silent(through, "/mcp", era, headers);
    let answer = if era == Era::Legacy { silent.hello() } else { silent.call("echo", &json!({})) };
    answer.status
}

#[test]
fn streams_of_the_revoked_are_cut() {
    for (what, body) in [
        ("principal", json!({ "principals": ["corp/alice"] })),
        ("client", json!({ "clients": ["agent"] })),
        ("token", json!({ "tokens": ["alice-1"] })),
        ("server", json!({ "servers": ["up"] })),
    ] {
        for era in ERAS {
            let (server, issuer, folder) =
                (Server::echo(era, &["echo"]), Issuer::start(), Folder::new());
            let gateway = switchable(believing(&server, &issuer.item("corp", "")), &folder).start();
            let alice = gateway.client(era, &issuer.good("alice"));
            let mut stream = match era {
                Era::Legacy => {
                    let mut stream = alice.stream(None);
                    until(&mut stream, "\r\n\r\n");
                    stream
                }
                Era::Modern => {
                    let body = alice.message(
                        &json!(1),
                        "subscriptions/listen",
                        json!({ "notifications": { "toolsListChanged": true } }),
                    );
                    let mut stream = TcpStream::connect(gateway.address).unwrap();
                    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
                    stream.write_all(&alice.bytes("subscriptions/listen", None, &body)).unwrap();
                    until(&mut stream, "acknowledged");
                    stream
                }
            };
            revoke(&gateway, &body);
            let took = until_last(&mut stream);
            assert!(took < SOON, "{what} {era:?}: {took:?}");
            gateway.measures("portcullis_streams_revoked_total 1");
        }
    }
}

/// Reads to the last chunk of a stream.
#[expect(clippy::disallowed_methods, reason = "the bound is one of real time")]
fn until_last(stream: &mut TcpStream) -> Duration {
    let started = Instant::now();
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    // A stream that is not cut goes on with what keeps it alive, so reading alone has no end.
    while !seen.ends_with("0\r\n\r\n") {
        assert!(started.elapsed() < e2e::PATIENCE, "the stream goes on: {seen}");
        let read = stream.read(&mut buffer).unwrap();
        if read == 0 {
            break;
        }
        seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    started.elapsed()
}

#[test]
fn a_call_under_way_is_cut_with_its_tool() {
    for era in ERAS {
        let issuer = Issuer::start();
        let folder = Folder::new();
        // A tool that says something and then never ends.
        let tools = json!([{ "name": "slow", "inputSchema": { "type": "object" } }]);
        let server = Server::with(era, tools, |_, stream| {
            let event = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"begun\"}}\n\n";
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            drop(stream.write_all(format!("{head}{event}").as_bytes()));
            let mut rest = [0; 64];
            drop(stream.read(&mut rest));
            false
        });
        let gateway = switchable(believing(&server, &issuer.item("corp", "")), &folder).start();
        let alice = gateway.client(era, &issuer.good("alice"));
        let params = json!({ "name": "slow", "arguments": {}, "_meta": { "io.modelcontextprotocol/logLevel": "info" } });
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        stream.write_all(&alice.call_bytes(&json!(1), &params)).unwrap();
        until(&mut stream, "begun");
        revoke(&gateway, &json!({ "tools": ["up/slow"] }));
        assert!(until_last(&mut stream) < SOON, "{era:?}");
    }
}

/// How far a server gets with the answer to a call before it says nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stall {
    /// Not to the head of it.
    Silent,
    /// To the first byte of a JSON object.
    Begun,
    /// To an event on the way.
    Told,
}

const STALLS: [Stall; 3] = [Stall::Silent, Stall::Begun, Stall::Told];

/// A server with the tool `slow`, whose answers stall until the gateway gives them up.
fn stalling(era: Era, stall: Stall) -> Server {
    let tools = json!([{ "name": "slow", "inputSchema": { "type": "object" } }]);
    Server::with(era, tools, move |_, stream| {
        let event = json!({
            "jsonrpc": "2.0", "method": "notifications/message",
            "params": { "level": "info", "data": "begun" },
        });
        let said = match stall {
            Stall::Silent => String::new(),
            Stall::Begun => {
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
                    .to_owned()
            }
            Stall::Told => format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {event}\n\n"
            ),
        };
        drop(stream.write_all(said.as_bytes()));
        drop(stream.read(&mut [0; 64]));
        false
    })
}

/// A call of `slow` that wants to be told what its server says on the way.
fn slow() -> Value {
    json!({ "name": "slow", "arguments": {}, "_meta": { "io.modelcontextprotocol/logLevel": "info" } })
}

/// Has `ana` call `slow` in this revision, gives `body` to be revoked once the call is under way, and gives what the
/// call is answered.
fn revoked_in_mid_call(
    gateway: &Gateway,
    server: &Server,
    (ana, stall): (&Client, Stall),
    body: &Value,
) -> Answer {
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    stream.write_all(&ana.call_bytes(&json!("the-call"), &slow())).unwrap();
    eventually("the call at the server", || (server.count("tools/call") == 1).then_some(()));
    let seen = if stall == Stall::Told { until(&mut stream, "begun") } else { String::new() };
    revoke(gateway, body);
    read(&mut seen.as_bytes().chain(&mut stream))
}

/// Clients of both eras, and of a revision whose slow calls are answered with one object.
const REVISIONS: [(Era, Option<&str>); 3] =
    [(Era::Modern, None), (Era::Legacy, None), (Era::Legacy, Some("2025-06-18"))];

/// Has `ana` call `slow` in each revision and with each stall, and revokes `body` once the call is under way. Gives what
/// she is answered to `check`, with what to say of a failure.
fn each_revoked_in_mid_call(body: &Value, check: impl Fn(&Gateway, &Client, &Answer, &str)) {
    for (era, revision) in REVISIONS {
        for stall in STALLS {
            let what = format!("{era:?} {revision:?} {stall:?} {body}");
            let (server, folder) = (stalling(era, stall), Folder::new());
            let gateway = switchable(Config::of(&server.url()), &folder).start();
            let mut ana = gateway.client(era, ANA);
            if let Some(revision) = revision {
                ana.handshake(revision);
            }
            let answer = revoked_in_mid_call(&gateway, &server, (&ana, stall), body);
            assert_eq!(answer.json()["id"], "the-call", "{what}");
            check(&gateway, &ana, &answer, &what);
        }
    }
}

#[test]
fn a_call_that_is_revoked_under_way_is_answered_as_a_new_one_would_be() {
    for body in [json!({ "tools": ["up/slow"] }), json!({ "servers": ["up"] })] {
        each_revoked_in_mid_call(&body, |gateway, ana, answer, what| {
            assert_eq!(answer.code(), -32602, "{what}");
            let said = answer.events();
            let responses = said.iter().filter(|event| event.contains("the-call")).count();
            assert!(said.is_empty() || responses == 1, "{what}: {said:?}");
            let record = gateway.recorded("the call", |record| record["tool"] == "slow");
            let (outcome, reason) = (&record["outcome"], &record["reason"]);
            assert_eq!((outcome, reason), (&json!("denied"), &json!("revoked")), "{what}");
            let new = ana.call("slow", &json!({}));
            assert_eq!(new.json()["error"], answer.json()["error"], "{what}");
            assert_eq!(new.status, answer.status, "{what}");
        });
    }
}

#[test]
fn a_call_whose_caller_is_revoked_is_answered_with_an_error() {
    for (body, reason) in [
        (json!({ "principals": ["ana"] }), "credential-revoked"),
        (json!({ "everything": true }), "everything-revoked"),
    ] {
        each_revoked_in_mid_call(&body, |gateway, _ana, answer, what| {
            assert_eq!(answer.code(), -32600, "{what}");
            let record = gateway.recorded("the call", |record| record["tool"] == "slow");
            assert_eq!(record["reason"], reason, "{what}");
        });
    }
}

#[test]
fn a_client_over_stdio_whose_call_is_revoked_under_way_gets_an_error_and_goes_on() {
    for era in ERAS {
        for stall in STALLS {
            for body in [json!({ "tools": ["up/slow"] }), json!({ "servers": ["up"] })] {
                let (server, folder) = (stalling(era, stall), Folder::new());
                let file = folder.path().join("gateway.yaml");
                let gateway = switchable(Config::of(&server.url()), &folder).start_at(&file);
                let mut client = Started::new(started(&file, "/mcp", Some(ANA)), era);
                let answer = std::thread::scope(|scope| {
                    let call = scope.spawn(|| client.ask("tools/call", slow()));
                    eventually("the call at the server", || {
                        (server.count("tools/call") == 1).then_some(())
                    });
                    revoke(&gateway, &body);
                    call.join().unwrap()
                });
                assert_eq!(answer["error"]["code"], -32602, "{era:?} {stall:?} {body}: {answer}");
                assert_eq!(client.call("slow", &json!({}))["error"], answer["error"], "{era:?}");
                assert_eq!(client.end().code, Some(0), "{era:?} {stall:?} {body}");
            }
        }
    }
}

/// Bytes of a long answer: more than the buffers of two sockets hold together.
const LONG: usize = 12 * 1024 * 1024;

/// How a server answers with [`LONG`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// With one JSON object.
    Object,
    /// On a stream, after an event on the way.
    Stream,
}

/// A server with the tool `slow`, whose answers are long.
fn verbose(era: Era, form: Form) -> Server {
    let tools = json!([{ "name": "slow", "inputSchema": { "type": "object" } }]);
    Server::with(era, tools, move |call, stream| {
        let result = json!({
            "resultType": "complete",
            "content": [{ "type": "text", "text": "plain ".repeat(LONG / 6) }],
        });
        if form == Form::Object {
            return stream.write_all(&call.result(&result)).is_ok();
        }
        let told = json!({
            "jsonrpc": "2.0", "method": "notifications/message",
            "params": { "level": "info", "data": "begun" },
        });
        let done = json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": result });
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        drop(stream.write_all(format!("{head}data: {told}\n\ndata: {done}\n\n").as_bytes()));
        false
    })
}

/// Reads to the end of the connection or of a stream.
fn to_the_end(stream: &mut TcpStream) -> String {
    let (mut seen, mut buffer) = (Vec::new(), vec![0; 65_536]);
    // A connection that is cut may be reset.
    while let Ok(read) = stream.read(&mut buffer)
        && read > 0
    {
        seen.extend_from_slice(&buffer[..read]);
        if seen.ends_with(b"\r\n0\r\n\r\n") {
            break;
        }
    }
    String::from_utf8_lossy(&seen).into_owned()
}

/// The end of what was read, for a message about it.
fn tail(text: &str) -> &str {
    (text.len().saturating_sub(500)..).find_map(|from| text.get(from..)).unwrap_or(text)
}

#[test]
fn a_caller_that_is_revoked_does_not_get_the_rest_of_a_long_answer() {
    for (era, revision) in REVISIONS {
        for (body, code, reason) in [
            (json!({ "tools": ["up/slow"] }), -32602, "revoked"),
            (json!({ "principals": ["ana"] }), -32600, "credential-revoked"),
        ] {
            // With the revision of slow calls that are answered with an object, and else on a stream.
            let form = match (era, revision) {
                (Era::Legacy, None) => Form::Stream,
                (Era::Legacy, Some(_)) => Form::Object,
                (Era::Modern, _) if code == -32602 => Form::Object,
                (Era::Modern, _) => Form::Stream,
            };
            let what = format!("{era:?} {revision:?} {form:?} {body}");
            let (server, folder) = (verbose(era, form), Folder::new());
            let content = "content: [{servers: ['*'], results: {plantedInstructions: off}}]";
            let mut config = Config::of(&server.url());
            config.policy = format!("{content}\n{}", config.policy);
            let gateway = switchable(config, &folder).start();
            let mut ana = gateway.client(era, ANA);
            if let Some(revision) = revision {
                ana.handshake(revision);
            }
            let mut stream = deaf(&gateway, &ana.call_bytes(&json!("the-call"), &slow()));
            stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
            drop(gateway.recorded("the answer", |record| {
                record["tool"] == "slow" && record["outcome"] == "answered"
            }));
            // Some of it is on its way.
            until(&mut stream, "plain plain");
            revoke(&gateway, &body);
            let seen = to_the_end(&mut stream);
            assert!(seen.len() < LONG * 3 / 4, "{what}: {} bytes", seen.len());
            if form == Form::Stream {
                assert!(seen.contains("event: broken-off"), "{what}: {:?}", tail(&seen));
                let told = format!("\"code\":{code}");
                let is_told = seen.contains(&told) && seen.contains("the-call");
                assert!(is_told, "{what}: {:?}", tail(&seen));
            }
            let cut = gateway.recorded("the end of the answer", |record| {
                record["tool"] == "slow" && record["reason"] == reason
            });
            assert_eq!((&cut["rpcId"], &cut["principal"]), (&json!("the-call"), &json!("ana")));
            assert_eq!(cut["server"], "up", "{what}");
            let cut = |record: &&Value| record["reason"] == reason;
            assert_eq!(gateway.exchanges().iter().filter(cut).count(), 1, "{what}");
            gateway.measures("portcullis_streams_revoked_total 1");
        }
    }
}

/// A configuration that is no longer in force goes on for the calls that began under it.
#[test]
fn a_call_from_before_a_change_is_cut_when_its_tool_is_revoked() {
    for era in ERAS {
        let folder = Folder::new();
        let tools = json!([{ "name": "slow", "inputSchema": { "type": "object" } }]);
        let server = Server::with(era, tools, |_, stream| {
            let event = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"begun\"}}\n\n";
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            drop(stream.write_all(format!("{head}{event}").as_bytes()));
            drop(stream.read(&mut [0; 64]));
            false
        });
        let config = switchable(Config::of(&server.url()), &folder);
        let file = folder.path().join("gateway.yaml");
        let gateway = config.start_at(&file);
        let ana = gateway.client(era, ANA);
        let params = json!({ "name": "slow", "arguments": {}, "_meta": { "io.modelcontextprotocol/logLevel": "info" } });
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        stream.write_all(&ana.call_bytes(&json!(1), &params)).unwrap();
        until(&mut stream, "begun");
        let mut other = config.clone();
        other.policy = config.policy.replace("sec@example.com", "other@example.com");
        replaced(&gateway, &file, &other);
        revoke(&gateway, &json!({ "tools": ["up/slow"] }));
        assert!(until_last(&mut stream) < SOON, "{era:?}");
    }
}

#[test]
fn what_is_left_of_a_route_goes_on() {
    for era in ERAS {
        let (one, two) = (Server::echo(era, &["echo"]), Server::echo(era, &["echo"]));
        let folder = Folder::new();
        let servers =
            format!("- {{name: one, url: '{}'}}\n- {{name: two, url: '{}'}}", one.url(), two.url());
        let gateway = switchable(Config::with(&servers, "[one, two]"), &folder).start();
        gateway.has_read(2);
        revoke(&gateway, &json!({ "servers": ["one"] }));
        let before = one.calls().len();
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.tools(), ["two__echo"]);
        assert_eq!(ana.call("two__echo", &json!({})).status, 200);
        assert_eq!(ana.call("one__echo", &json!({})).code(), -32602);
        let discover = if era == Era::Modern { "server/discover" } else { "ping" };
        assert_eq!(ana.ask(discover, json!({})).status, 200);
        // A stream is opened and stays open, for the server that is left.
        let mut stream = match era {
            Era::Legacy => ana.stream(None),
            Era::Modern => {
                let body = ana.message(
                    &json!(1),
                    "subscriptions/listen",
                    json!({ "notifications": { "toolsListChanged": true } }),
                );
                let mut stream = TcpStream::connect(gateway.address).unwrap();
                stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
                stream.write_all(&ana.bytes("subscriptions/listen", None, &body)).unwrap();
                stream
            }
        };
        until(&mut stream, "text/event-stream");
        let metrics = gateway.metrics();
        assert!(metrics.contains("portcullis_streams_revoked_total 0"), "{era:?}");
        // Nothing is said to the one that was revoked.
        assert_eq!(one.calls().len(), before, "{era:?}");
    }
}

#[test]
fn a_call_that_was_revoked_is_not_had_by_coming_back() {
    let folder = Folder::new();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let tools = json!([{ "name": "slow", "inputSchema": { "type": "object" } }]);
    let server = Server::with(Era::Legacy, tools, move |call, stream| {
        let event = |text: &str| format!("data: {text}\n\n");
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": "begun" } });
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        drop(stream.write_all(format!("{head}{}", event(&told.to_string())).as_bytes()));
        wait.lock().unwrap().recv().unwrap();
        let done = json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": { "content": [{ "type": "text", "text": "the-revoked-answer" }] } });
        drop(stream.write_all(event(&done.to_string()).as_bytes()));
        false
    });
    let gateway = switchable(Config::of(&server.url()), &folder).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
    stream
        .write_all(&ana.call_bytes(&json!(1), &json!({ "name": "slow", "arguments": {} })))
        .unwrap();
    let seen = until(&mut stream, "begun");
    let last = seen.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    revoke(&gateway, &json!({ "tools": ["up/slow"] }));
    until_last(&mut stream);
    let mut again = ana.stream(Some(&last));
    go.send(()).unwrap();
    drop(gateway.recorded("the end of the call", |record| record["tool"] == "slow"));
    let mut rest = String::new();
    again.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    drop(again.read_to_string(&mut rest));
    assert!(!rest.contains("the-revoked-answer"), "{rest}");
    // It is told, though, that the call was revoked.
    assert!(rest.contains("-32602"), "{rest}");
}

/// A client of HTTP+SSE speaks the old revision. The servers are of both eras.
#[test]
fn a_stream_of_the_old_transport_ends_with_the_errors_of_its_calls() {
    for era in ERAS {
        for (body, code) in [
            (json!({ "principals": ["ana"] }), -32600),
            (json!({ "everything": true }), -32600),
            (json!({ "servers": ["up"] }), -32602),
        ] {
            // Which of those who are told of a revocation is first is not decided.
            for turn in 0..4 {
                let what = format!("{era:?} {body} {turn}");
                let (server, folder) = (stalling(era, Stall::Silent), Folder::new());
                let mut config = Config::of(&server.url());
                config.routes = "- {path: /mcp, servers: [up], httpSse: true}".into();
                let gateway = switchable(config, &folder).start();
                let (mut stream, endpoint) = unread(&gateway);
                for id in [7, 8] {
                    let call = message(&gateway, &endpoint, &call_of(id, "slow"));
                    assert_eq!(raw(gateway.address, &call).status, 202, "{what}");
                }
                eventually("the calls at the server", || {
                    (server.count("tools/call") == 2).then_some(())
                });
                revoke(&gateway, &body);
                let mut rest = String::new();
                while !rest.ends_with("0\r\n\r\n") {
                    assert!(stream.read_line(&mut rest).unwrap() > 0, "{what}: {rest}");
                }
                for id in [7, 8] {
                    let error = rest.lines().filter_map(|line| line.strip_prefix("data: "));
                    let error = error.filter(|line| line.contains(&format!("\"id\":{id},")));
                    let errors: Vec<_> = error.collect();
                    let told = format!("\"code\":{code}");
                    assert_eq!(errors.len(), 1, "{what}: {rest}");
                    assert!(errors[0].contains(&told), "{what}: {rest}");
                }
                gateway.measures("portcullis_streams_revoked_total 1");
            }
        }
    }
}

#[test]
fn an_old_client_that_is_revoked_gets_an_error_for_an_answer_it_has_not_read() {
    for era in ERAS {
        let (server, folder) = (verbose(era, Form::Object), Folder::new());
        let content = "content: [{servers: ['*'], results: {plantedInstructions: off}}]";
        let mut config = Config::of(&server.url());
        config.policy = format!("{content}\n{}", config.policy);
        config.routes = "- {path: /mcp, servers: [up], httpSse: true}".into();
        let gateway = switchable(config, &folder).start();
        let (mut stream, endpoint) = unread(&gateway);
        let call = message(&gateway, &endpoint, &call_of(7, "slow"));
        assert_eq!(raw(gateway.address, &call).status, 202);
        drop(gateway.recorded("the answer", |record| {
            record["tool"] == "slow" && record["outcome"] == "answered"
        }));
        // Some of it is on its way.
        let mut seen = vec![0; 1024];
        stream.read_exact(&mut seen).unwrap();
        revoke(&gateway, &json!({ "principals": ["ana"] }));
        let rest = to_the_end(stream.get_mut());
        assert!(rest.len() < LONG * 3 / 4, "{era:?}: {} bytes", rest.len());
        let (_, end) = rest
            .split_once("event: broken-off")
            .unwrap_or_else(|| panic!("{era:?}: {} bytes: {:?}", rest.len(), tail(&rest)));
        assert!(end.contains("\"id\":7,") && end.contains("\"code\":-32600"), "{era:?}: {end}");
    }
}

/// Only clients of one revision send batches. The servers are of both eras.
#[test]
fn a_batch_hands_on_nothing_of_what_was_revoked_while_it_waited() {
    for era in ERAS {
        for (body, code, reason) in [
            (json!({ "tools": ["up/quick"] }), -32602, "revoked"),
            (json!({ "principals": ["ana"] }), -32600, "credential-revoked"),
            (json!({ "everything": true }), -32600, "everything-revoked"),
        ] {
            let what = format!("{era:?} {body}");
            let folder = Folder::new();
            let (go, wait) = std::sync::mpsc::channel::<()>();
            let wait = std::sync::Mutex::new(wait);
            let tools = ["quick", "slow"]
                .map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }));
            let server = Server::with(era, json!(tools), move |call, stream| {
                if call.tool() == "slow" {
                    // It ends with the test, or when it is let.
                    wait.lock().unwrap().recv().unwrap_or_default();
                }
                stream.write_all(&call.text(&format!("the answer of {}", call.tool()))).is_ok()
            });
            let gateway = switchable(Config::of(&server.url()), &folder).start();
            let mut ana = gateway.client(Era::Legacy, ANA);
            ana.handshake("2025-03-26");
            let call = |id: &str, tool: &str| {
                ana.message(&json!(id), "tools/call", json!({ "name": tool, "arguments": {} }))
            };
            let batch = format!("[{},{}]", call("first", "quick"), call("second", "slow"));
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
            stream.write_all(&ana.bytes("", None, &batch)).unwrap();
            drop(gateway.recorded("the first answer", |record| {
                record["tool"] == "quick" && record["outcome"] == "answered"
            }));
            eventually("the other call", || {
                let calls = server.tool_calls();
                calls.iter().any(|call| call.tool() == "slow").then_some(())
            });
            revoke(&gateway, &body);
            drop(go);
            let answer = read(&mut stream);
            let answers = answer.json();
            let of = |id: &str| {
                let all = answers.as_array().unwrap_or_else(|| panic!("{what}: {answers}"));
                all.iter().find(|one| one["id"] == id).cloned().unwrap_or_default()
            };
            assert!(!answer.body.contains("the answer of quick"), "{what}: {answers}");
            assert_eq!(of("first")["error"]["code"], code, "{what}: {answers}");
            if reason == "revoked" {
                // The call of another tool is answered.
                assert!(of("second")["result"].is_object(), "{what}: {answers}");
            } else {
                assert_eq!(of("second")["error"]["code"], code, "{what}: {answers}");
            }
            drop(gateway.recorded("that it was not handed on", |record| {
                record["rpcId"] == "first" && record["reason"] == reason
            }));
        }
    }
}

/// A call over a stream that its client loses, and that is answered then.
#[test]
fn a_finished_call_that_is_revoked_is_not_had_by_coming_back() {
    for (body, code, reason) in [
        (json!({ "tools": ["up/slow"] }), "-32602", "revoked"),
        (json!({ "servers": ["up"] }), "-32602", "revoked"),
        (json!({ "principals": ["ana"] }), "-32600", "credential-revoked"),
    ] {
        for is_lifted in [false, true] {
            // Who is revoked cannot come back before that is taken back.
            if !is_lifted && reason != "revoked" {
                continue;
            }
            let what = format!("{body} {is_lifted}");
            let folder = Folder::new();
            let (go, wait) = std::sync::mpsc::channel::<()>();
            let wait = std::sync::Mutex::new(wait);
            let tools = json!([{ "name": "slow", "inputSchema": { "type": "object" } }]);
            let server = Server::with(Era::Legacy, tools, move |call, stream| {
                let told = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": "begun" } });
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
                drop(stream.write_all(format!("{head}data: {told}\n\n").as_bytes()));
                wait.lock().unwrap().recv().unwrap();
                let done = json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": { "content": [{ "type": "text", "text": "the-revoked-answer" }] } });
                drop(stream.write_all(format!("data: {done}\n\n").as_bytes()));
                false
            });
            let gateway = switchable(Config::of(&server.url()), &folder).start();
            let ana = gateway.client(Era::Legacy, ANA);
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
            stream.write_all(&ana.call_bytes(&json!("the-call"), &slow())).unwrap();
            let seen = until(&mut stream, "begun");
            let ids: Vec<_> = seen.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
            drop(stream);
            go.send(()).unwrap();
            drop(gateway.recorded("the answer", |record| {
                record["tool"] == "slow" && record["outcome"] == "answered"
            }));
            revoke(&gateway, &body);
            if is_lifted {
                assert_eq!(change(&gateway, "DELETE", "operator-secret", &body).status, 200);
            }
            // Whatever the client has of it.
            for last in [ids[0], ids[ids.len() - 1]] {
                let rest = read(&mut ana.stream(Some(last))).body;
                assert!(!rest.contains("the-revoked-answer"), "{what}: {rest}");
                assert!(rest.contains(code) && rest.contains("the-call"), "{what}: {rest}");
            }
            drop(gateway.recorded("that it was not handed on", |record| {
                record["rpcId"] == "the-call" && record["reason"] == reason
            }));
        }
    }
}

#[test]
fn a_stream_ends_with_its_token() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let gateway = believing(&server, &issuer.item("corp", "clockSkew: 1ms")).start();
        let mut claims = issuer.claims("alice");
        claims["exp"] = json!(e2e::issuer::now() + 3);
        let alice = gateway.client(era, &issuer.token(&claims));
        let mut stream = match era {
            Era::Legacy => alice.stream(None),
            Era::Modern => {
                let body = alice.message(
                    &json!(1),
                    "subscriptions/listen",
                    json!({ "notifications": {} }),
                );
                let mut stream = TcpStream::connect(gateway.address).unwrap();
                stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
                stream.write_all(&alice.bytes("subscriptions/listen", None, &body)).unwrap();
                stream
            }
        };
        assert!(until_last(&mut stream) < SOON + Duration::from_secs(3), "{era:?}");
    }
}

#[test]
fn a_file_says_what_is_revoked_and_is_watched() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["echo"]), Folder::new());
        let file = folder.path().join("revoked.yaml");
        let gateway = switchable(Config::of(&server.url()), &folder).start();
        let ana = || {
            let bearer = format!("Bearer {ANA}");
            knock(&gateway, era, &[("authorization", &bearer)]).status
        };
        assert_eq!(ana(), 200);
        fs::write(&file, "principals:\n  - ana\n").unwrap();
        eventually("the revocation", || (ana() == 401).then_some(()));
        let complaints = |what: &str| gateway.said().matches(what).count();
        // A file that cannot be read changes nothing, and says so. Each is put in place whole, so that it is
        // complained about once, and each round waits for a complaint of its own.
        for broken in ["principals: ana\n", "principal: [ana]\n", "tools: [no-slash]\n", ":\n"] {
            let before = complaints("revocations file cannot be read");
            put(&file, broken);
            eventually("the complaint", || {
                (complaints("revocations file cannot be read") > before).then_some(())
            });
            assert_eq!(ana(), 401, "{broken}");
        }
        fs::remove_file(&file).unwrap();
        assert_eq!(ana(), 401);
        fs::write(&file, "clients: [x]\n").unwrap();
        eventually("the end of the revocation", || (ana() == 200).then_some(()));
        // What an operator revokes is written there, into what it says at that moment, and outlives
        // the gateway.
        fs::write(&file, "clients: [x]\ntokens: [y]\n").unwrap();
        revoke(&gateway, &json!({ "principals": ["ana"] }));
        assert_eq!(ana(), 401);
        let text = fs::read_to_string(&file).unwrap();
        assert!(["ana", "x", "y"].iter().all(|one| text.contains(&format!("\"{one}\""))), "{text}");
        let listed = change(&gateway, "GET", "operator-secret", &json!({})).json();
        assert_eq!(listed["principals"], json!(["ana"]));
        // A file that was cut short lifts nothing.
        let before = complaints("is empty");
        put(&file, "");
        eventually("the complaint", || (complaints("is empty") > before).then_some(()));
        assert_eq!(ana(), 401);
        let events = gateway.records();
        assert!(events.iter().any(|event| event["event"] == "revoked"), "{events:?}");
    }
}

#[test]
fn only_an_operator_revokes() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let gateway = switchable(Config::of(&server.url()), &folder).start();
    let body = json!({ "principals": ["ana"] });
    for token in ["", "operator", "operator-secrets", ANA] {
        assert_eq!(change(&gateway, "POST", token, &body).status, 401, "{token}");
    }
    for wrong in [
        json!({}),
        json!([]),
        json!({ "principals": "ana" }),
        json!({ "people": ["ana"] }),
        json!({ "tools": ["no-slash"] }),
        json!({ "principals": [7] }),
    ] {
        assert_eq!(change(&gateway, "POST", "operator-secret", &wrong).status, 400, "{wrong}");
    }
    let bearer = format!("Bearer {ANA}");
    assert_eq!(knock(&gateway, Era::Modern, &[("authorization", &bearer)]).status, 200);
    // Without a token there is nothing to be changed, and clients have no way to it.
    let plain = Config::of(&server.url()).start();
    assert_eq!(change(&plain, "POST", "operator-secret", &body).status, 405);
    assert_eq!(
        raw(
            gateway.address,
            &post("/revocations", &[("host", "localhost"), ("x-api-key", ANA)], "{}")
        )
        .status,
        404
    );
    let mut config = Config::of(&server.url());
    config.more = "revocations: {file: /nowhere/revoked.yaml}".to_owned();
    let text = String::from_utf8_lossy(&config.refused().stderr).into_owned();
    assert!(
        text.contains("could not read `/nowhere/revoked.yaml`") && text.contains("gateway.yaml:"),
        "{text}"
    );
}

#[test]
fn the_file_is_beside_the_configuration_that_names_it() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["echo"]), Folder::new());
        fs::write(folder.path().join("revoked.yaml"), "principals: [ana]\n").unwrap();
        let mut config = Config::of(&server.url());
        config.more = "revocations: {file: revoked.yaml}".to_owned();
        let gateway = config.start_at(&folder.path().join("gateway.yaml"));
        let answer = gateway.client(Era::Modern, ANA).ask("tools/list", json!({}));
        assert_eq!(answer.status, 401);
        // One that cannot be read is seen until it can.
        let usable = |wanted: &str| {
            eventually(wanted, || {
                let metrics = gateway.metrics_now();
                metrics.contains(wanted).then_some(())
            });
        };
        usable("portcullis_revocations_usable 1");
        fs::write(folder.path().join("revoked.yaml"), "principals: 7\n").unwrap();
        usable("portcullis_revocations_usable 0");
        fs::write(folder.path().join("revoked.yaml"), "principals: []\n").unwrap();
        usable("portcullis_revocations_usable 1");
    }
}

/// The status of a request of `ana`.
fn of_ana(gateway: &Gateway, era: Era) -> u16 {
    let bearer = format!("Bearer {ANA}");
    knock(gateway, era, &[("authorization", &bearer)]).status
}

fn listed(gateway: &Gateway) -> Value {
    change(gateway, "GET", "operator-secret", &json!({})).json()
}

#[test]
fn what_is_locked_to_write_revocations_is_no_other_file() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["echo"]), Folder::new());
        let list = folder.path().join("portcullis.revoked");
        fs::write(&list, "# nothing\n").unwrap();
        // As the pins' lockfile is called.
        let other = folder.path().join("portcullis.lock");
        fs::write(&other, "what was approved").unwrap();
        let mut config = switchable(Config::of(&server.url()), &folder);
        config.more = format!("revocations: {{file: '{}'}}", list.display());
        let gateway = config.start();
        revoke(&gateway, &json!({ "principals": ["ana"] }));
        assert_eq!(of_ana(&gateway, era), 401);
        assert_eq!(fs::read_to_string(&other).unwrap(), "what was approved");
        assert!(fs::read_to_string(&list).unwrap().contains("\"ana\""));
    }
}

#[test]
fn no_link_is_followed_to_write_revocations() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["echo"]), Folder::new());
        let victim = folder.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        for link in ["revoked.lock", "revoked.yaml.lock", "revoked.yaml.next"] {
            symlink(&victim, folder.path().join(link)).unwrap();
        }
        let gateway = switchable(Config::of(&server.url()), &folder).start();
        let answer = change(&gateway, "POST", "operator-secret", &json!({ "principals": ["ana"] }));
        assert_eq!(answer.status, 200);
        // It holds, and the answer says that it does not last.
        assert_eq!(answer.json()["written"], false);
        assert_eq!(answer.json()["lastsOverRestart"], false);
        assert_eq!(of_ana(&gateway, era), 401);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        gateway.says("revoked.yaml.lock");
    }
}

#[test]
fn a_lift_that_was_refused_does_not_happen_later() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let gateway = switchable(Config::of(&server.url()), &folder).start();
    let entries = [
        json!({ "principals": ["ana"] }),
        json!({ "servers": ["up"] }),
        json!({ "tools": ["up/echo"] }),
    ];
    entries.iter().for_each(|entry| revoke(&gateway, entry));
    // Somebody else holds the lock. The first lifts stop waiting for it after two seconds each; the last one has
    // the lock still to wait for when its time is over.
    let lock = folder.path().join("revoked.yaml.lock");
    let lock = fs::File::options().read(true).write(true).open(lock).unwrap();
    lock.lock().unwrap();
    std::thread::scope(|scope| {
        let lift = |entry: &Value| change(&gateway, "DELETE", "operator-secret", entry);
        let lifts: Vec<_> = entries.iter().map(|entry| scope.spawn(move || lift(entry))).collect();
        for lift in lifts {
            let answer = lift.join().unwrap();
            assert_eq!(answer.status, 503, "{answer:?}");
            assert!(answer.body.contains("nothing was changed"), "{answer:?}");
        }
    });
    lock.unlock().unwrap();
    // Changes are made one after the other: when a later one is in the file, the earlier ones have ended.
    eventually("a later change to be written", || {
        let body = json!({ "principals": ["bob"] });
        let answer = change(&gateway, "POST", "operator-secret", &body);
        (answer.json()["written"] == true).then_some(())
    });
    let all = listed(&gateway);
    assert_eq!(all["principals"], json!(["ana", "bob"]), "{all}");
    assert_eq!((&all["servers"], &all["tools"]), (&json!(["up"]), &json!(["up/echo"])), "{all}");
    let text = fs::read_to_string(folder.path().join("revoked.yaml")).unwrap();
    for entry in ["\"ana\"", "\"up\"", "\"up/echo\""] {
        assert!(text.contains(entry), "{entry}: {text}");
    }
    ERAS.iter().for_each(|era| assert_eq!(of_ana(&gateway, *era), 401));
}

#[test]
fn files_that_would_destroy_each_other_are_refused_at_the_start() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let path = |name: &str| folder.path().join(name);
    fs::write(path("list"), "# nothing\n").unwrap();
    fs::create_dir(path("folder")).unwrap();
    symlink(path("list"), path("linked")).unwrap();
    for (what, list, pins, audit, said) in [
        ("the lock", "list", "list.lock", "audit", "the lock file of `revocations.file`"),
        ("the list", "list", "list", "audit", "the list of revocations"),
        ("a link to the list", "linked", "pins", "list", "the audit log `file`"),
        ("another spelling", "list", "pins", "folder/../list.lock", "the audit log `file`"),
        ("the pins", "list", "pins", "pins", "the lockfile of the pins"),
    ] {
        let mut config = Config::of(&server.url());
        config.pins = format!("{{file: '{}'}}", path(pins).display());
        config.more = format!("revocations: {{file: '{}'}}", path(list).display());
        config.audit = Some(path(audit));
        let output = config.refused();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{what}: {text}");
        assert!(text.contains(said) && text.contains("a file of its own"), "{what}: {text}");
    }
    assert_eq!(fs::read_to_string(path("list")).unwrap(), "# nothing\n");
}

#[test]
fn a_file_that_is_being_written_lifts_nothing() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["echo"]), Folder::new());
        let file = folder.path().join("revoked.yaml");
        let gateway = switchable(Config::of(&server.url()), &folder).start();
        revoke(&gateway, &json!({ "principals": ["ana"] }));
        assert_eq!(of_ana(&gateway, era), 401);
        // Written in place again and again, it reads well at every moment and never has all of it.
        let (over, round) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut count = 0;
                while !over.load(Ordering::Acquire) {
                    count += 1;
                    let round = round.load(Ordering::Acquire);
                    fs::write(&file, format!("# {count}\nclients:\n  - round-{round}\n")).unwrap();
                    std::thread::yield_now();
                }
            });
            for n in 0..3 {
                round.store(n, Ordering::Release);
                let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    eventually("a look at the file", || {
                        let clients = listed(&gateway)["clients"].to_string();
                        clients.contains(&format!("round-{n}")).then_some(())
                    });
                    assert_eq!(of_ana(&gateway, era), 401, "{era:?}: what it lacks was not lifted");
                }));
                if seen.is_err() || n == 2 {
                    over.store(true, Ordering::Release);
                }
                seen.unwrap();
            }
        });
        // Left alone, it counts.
        eventually("the end of the revocation", || (of_ana(&gateway, era) == 200).then_some(()));
    }
}

#[test]
fn a_file_of_comments_and_a_file_that_is_gone_lift_nothing() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["echo"]), Folder::new());
        let file = folder.path().join("revoked.yaml");
        let gateway = switchable(Config::of(&server.url()), &folder).start();
        revoke(&gateway, &json!({ "principals": ["ana"] }));
        let usable = |wanted: u8| {
            let line = format!("portcullis_revocations_usable {wanted}");
            eventually(&line, || {
                let metrics = gateway.metrics_now();
                metrics.contains(&line).then_some(())
            });
        };
        let all = fs::read_to_string(&file).unwrap();
        fs::write(&file, "# principals:\n#  - ana\n").unwrap();
        usable(0);
        assert_eq!(of_ana(&gateway, era), 401);
        fs::write(&file, &all).unwrap();
        usable(1);
        fs::remove_file(&file).unwrap();
        usable(0);
        assert_eq!(of_ana(&gateway, era), 401);
        fs::write(&file, "{}\n").unwrap();
        eventually("the end of the revocation", || (of_ana(&gateway, era) == 200).then_some(()));
    }
}

#[test]
fn what_nobody_has_is_refused_by_name() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let gateway = switchable(Config::of(&server.url()), &folder).start();
    for (body, said) in [
        (json!({ "servers": ["*"] }), "everything: true"),
        (json!({ "servers": ["pu"] }), "`pu`; the servers are `up`"),
        (json!({ "tools": ["pu/echo"] }), "`pu`"),
        (json!({ "principals": ["anna"] }), "`anna`"),
        (json!({ "clients": ["agent"] }), "no issuer"),
        (json!({ "everything": "yes" }), "`principals`"),
        // With one that is right.
        (json!({ "principals": ["ana"], "servers": ["pu"] }), "`pu`"),
    ] {
        let answer = change(&gateway, "POST", "operator-secret", &body);
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.body.contains(said), "{body}: {}", answer.body);
    }
    let answer = change(&gateway, "DELETE", "operator-secret", &json!({ "principals": ["ana"] }));
    assert_eq!((answer.status, answer.body.contains("`ana`")), (404, true), "{}", answer.body);
    assert_eq!(of_ana(&gateway, Era::Modern), 200);
    assert_eq!(listed(&gateway)["principals"], json!([]));
    assert!(gateway.records().iter().all(|record| record["event"] != "revoked"));
}

#[test]
fn everything_is_revoked_at_once_and_over_a_restart() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["echo"]), Folder::new());
        let config = switchable(Config::of(&server.url()), &folder);
        let file = folder.path().join("revoked.yaml");
        let before = fs::read_to_string(&file).unwrap();
        let gateway = config.start();
        assert_eq!(of_ana(&gateway, era), 200);
        let answer = change(&gateway, "POST", "operator-secret", &json!({ "everything": true }));
        let said = answer.json();
        assert_eq!(
            (&said["written"], &said["everything"], &said["lastsOverRestart"]),
            (&json!(true), &json!(true), &json!(true))
        );
        let calls = server.calls().len();
        let bearer = format!("Bearer {ANA}");
        let refused = knock(&gateway, era, &[("authorization", &bearer)]);
        // No other credential would help, so the caller is not asked for one.
        assert_eq!((refused.status, refused.header("www-authenticate")), (403, None));
        assert_eq!(gateway.last()["reason"], "everything-revoked");
        // Who has no good credential learns nothing.
        assert_eq!(knock(&gateway, era, &[("authorization", "Bearer wrong")]).status, 401);
        assert_eq!(server.calls().len(), calls);
        let ops = gateway.ops.unwrap();
        let ready = e2e::client::get(ops, "/readyz?verbose").body;
        assert!(ready.contains("everything is revoked"), "{ready}");
        let metrics = gateway.metrics_now();
        assert!(metrics.contains("portcullis_everything_revoked 1"), "{metrics}");
        let text = fs::read_to_string(&file).unwrap();
        drop(gateway);
        // `switchable` has made the file, which is as the gateway has left it.
        assert_ne!(text, before);
        let gateway = config.start();
        assert_eq!(of_ana(&gateway, era), 403);
        let lift = change(&gateway, "DELETE", "operator-secret", &json!({ "everything": true }));
        assert_eq!((lift.status, &lift.json()["everything"]), (200, &json!(false)));
        assert_eq!(of_ana(&gateway, era), 200);
    }
}

#[test]
fn a_revoked_server_is_asked_nothing_for_the_gateway_itself_either() {
    for era in ERAS {
        let (one, two) = (Server::echo(era, &["echo"]), Server::echo(era, &["echo"]));
        let folder = Folder::new();
        let servers =
            format!("- {{name: one, url: '{}'}}\n- {{name: two, url: '{}'}}", one.url(), two.url());
        let mut config = switchable(Config::with(&servers, "[one, two]"), &folder);
        let lockfile = folder.path().join("portcullis.lock");
        config.pins =
            format!("{{file: '{}', trustOnFirstUse: true, recheck: 20ms}}", lockfile.display());
        // What is asked of the other one tells that time has passed.
        let rechecks = |server: &Server, more: usize| {
            let before = server.count("tools/list");
            eventually("rechecks", || (server.count("tools/list") >= before + more).then_some(()));
        };
        let gateway = config.start();
        rechecks(&one, 2);
        revoke(&gateway, &json!({ "servers": ["one"] }));
        rechecks(&two, 3);
        let before = one.calls().len();
        rechecks(&two, 5);
        drop(gateway);
        let gateway = config.start();
        rechecks(&two, 5);
        assert_eq!(one.calls().len(), before, "{era:?}");
        let lift = change(&gateway, "DELETE", "operator-secret", &json!({ "servers": ["one"] }));
        assert_eq!(lift.status, 200);
        rechecks(&one, 2);
        assert_eq!(gateway.client(era, ANA).tools(), ["one__echo", "two__echo"]);
    }
}

#[test]
fn a_revoked_program_ends_and_is_started_again_when_that_is_lifted() {
    for era in ERAS {
        for everything in [false, true] {
            let folder = Folder::new();
            let gateway = switchable(program("CANARY", ""), &folder).start();
            let ana = gateway.client(era, ANA);
            let is_echoed = || {
                let answer = ana.call("echo", &json!({ "text": "x" })).json();
                answer["result"]["content"][0]["text"] == "x"
            };
            assert!(is_echoed());
            assert_eq!(gateway.children().len(), 1);
            let what = if everything {
                json!({ "everything": true })
            } else {
                json!({ "servers": ["up"] })
            };
            revoke(&gateway, &what);
            eventually("the program ends", || gateway.children().is_empty().then_some(()));
            assert!(!is_echoed());
            assert!(gateway.children().is_empty());
            assert_eq!(change(&gateway, "DELETE", "operator-secret", &what).status, 200);
            let ana = gateway.client(era, ANA);
            let answer = ana.call("echo", &json!({ "text": "x" })).json();
            assert_eq!(answer["result"]["content"][0]["text"], "x", "{era:?} {answer}");
        }
    }
}

#[test]
fn revoking_is_a_verb_that_says_what_is_in_force() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let config = switchable(Config::of(&server.url()), &folder);
    let file = folder.path().join("gateway.yaml");
    let gateway = config.start_at(&file);
    let ops = gateway.ops.unwrap().to_string();
    let verb = |arguments: &[&str], online: bool| {
        let mut command = Command::new(binary());
        command.args(arguments).arg("-c").arg(&file);
        if online {
            command.args(["--ops", &ops]);
        } else {
            command.arg("--offline");
        }
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    assert_eq!(verb(&["revocations", "list"], true).1, "nothing is revoked\n");
    let (good, out, said) = verb(&["revoke", "--principal", "ana", "--tool", "up/x"], true);
    assert!(good, "{said}");
    assert!(out.contains("principals  ana") && out.contains("tools       up/x"), "{out}");
    let expected = "revoked: principals `ana`; tools `up/x`; all that is revoked now:\n";
    assert!(said.contains(expected), "{said}");
    assert_eq!(of_ana(&gateway, Era::Modern), 401);
    for online in [true, false] {
        assert_eq!(verb(&["revocations", "list"], online).1, out);
        let (good, _, said) = verb(&["revoke", "--server", "pu"], online);
        assert!(!good && said.contains("`pu`"), "{said}");
        let (good, _, said) = verb(&["revocations", "lift", "--principal", "bob"], online);
        assert!(!good && said.contains("`bob`"), "{said}");
    }
    let (good, out, said) = verb(&["revocations", "lift", "--principal", "ana"], true);
    assert!(good && !out.contains("ana"), "{out} {said}");
    assert!(said.contains("lifted: principals `ana`; still revoked:\n"), "{said}");
    assert!(out.contains("tools       up/x"), "{out}");
    assert_eq!(of_ana(&gateway, Era::Modern), 200);
    // Where nothing is left that is said, and what programs read has no such words.
    for (online, format) in [(true, "human"), (false, "human"), (true, "json"), (false, "json")] {
        let format = ["--format", format];
        let lift = ["revocations", "lift", "--tool", "up/x"];
        let (good, out, said) = verb(&[&lift[..], &format].concat(), online);
        assert!(good, "{said}");
        let is_human = format[1] == "human";
        assert_eq!(out == "nothing is revoked\n", is_human, "{out}");
        assert_eq!(said.contains("lifted: tools `up/x`\n"), is_human, "{said}");
        let (good, _, said) = verb(&[&["revoke", "--tool", "up/x"][..], &format].concat(), online);
        assert!(good && said.contains("revoked: tools `up/x`") == is_human, "{said}");
    }
    // In the file alone: the gateway sees it.
    let (good, out, said) = verb(&["revoke", "--everything"], false);
    assert!(good && out.starts_with("everything\n"), "{out} {said}");
    eventually("the revocation", || (of_ana(&gateway, Era::Modern) == 403).then_some(()));
    assert!(verb(&["revocations", "lift", "--everything"], false).0);
    eventually("the end of it", || (of_ana(&gateway, Era::Modern) == 200).then_some(()));
    // Without a file it holds until the gateway stops, and that is said.
    let mut plain = config.clone();
    plain.more = String::new();
    let file = folder.path().join("plain.yaml");
    let gateway = plain.start_at(&file);
    let ops = gateway.ops.unwrap().to_string();
    let mut command = Command::new(binary());
    command.args(["revoke", "--principal", "ana", "--ops", &ops, "-c"]).arg(&file);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && said.contains("no `revocations.file` is configured"),
        "{said}"
    );
    assert_eq!(of_ana(&gateway, Era::Modern), 401);
}

#[test]
fn the_reason_of_a_revocation_is_on_record_and_listed_also_after_a_restart() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["echo"]), Folder::new());
        let config = switchable(Config::of(&server.url()), &folder);
        let file = folder.path().join("gateway.yaml");
        let gateway = config.start_at(&file);
        let on_record = |gateway: &Gateway, key: &str, value: &str| {
            eventually("the record", || gateway.log().into_iter().rfind(|one| one[key] == value))
        };
        let verb = |gateway: &Gateway, arguments: &[&str], online: bool| {
            let mut command = Command::new(binary());
            command.args(arguments).arg("-c").arg(&file);
            match online {
                true => command.args(["--ops", &gateway.ops.unwrap().to_string()]),
                false => command.arg("--offline"),
            };
            let output = command.output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (output.status.success(), text(&output.stdout), text(&output.stderr))
        };
        let revoke = ["revoke", "--principal", "ana", "--reason", "laptop lost\u{1b}[31m"];
        let (good, out, said) = verb(&gateway, &revoke, true);
        assert!(good && out.contains("principals  ana  (laptop lost\\u001b[31m)"), "{out} {said}");
        let record = on_record(&gateway, "event", "revoked");
        let what: Value = record["what"].as_str().unwrap().parse().unwrap();
        assert_eq!(what, json!({ "principals": ["ana"], "reason": "laptop lost\u{1b}[31m" }));
        assert_eq!(of_ana(&gateway, era), 401);
        // In the file alone: the gateway records what it reads.
        let (good, out, said) =
            verb(&gateway, &["revoke", "--tool", "up/echo", "--reason", "writes"], false);
        assert!(good && out.contains("tools       up/echo  (writes)"), "{out} {said}");
        let record = on_record(&gateway, "source", "file");
        let what: Value = record["what"].as_str().unwrap().parse().unwrap();
        assert_eq!(what, json!({ "tools": ["up/echo"], "reasons": { "tools/up/echo": "writes" } }));
        for online in [true, false] {
            let (_, listed, said) = verb(&gateway, &["revocations", "list"], online);
            assert_eq!(listed, out, "{said}");
        }
        drop(gateway);
        let gateway = config.start_at(&file);
        assert_eq!(verb(&gateway, &["revocations", "list"], true).1, out);
        // A reason ends with its revocation; that of the end is on record.
        let lift = ["revocations", "lift", "--principal", "ana", "--reason", "found again"];
        let (good, out, said) = verb(&gateway, &lift, true);
        assert!(good && out == "tools       up/echo  (writes)\n", "{out} {said}");
        let record = on_record(&gateway, "event", "reinstated");
        assert!(record["what"].as_str().unwrap().contains("found again"), "{record}");
        for (reason, why) in [(" ", "the reason is empty"), (&*"x".repeat(513), "longer than 512")]
        {
            let revoke = ["revoke", "--principal", "ana", "--reason", reason];
            let (good, _, said) = verb(&gateway, &revoke, true);
            assert!(!good && said.contains(why), "{said}");
            let body = json!({ "principals": ["ana"], "reason": reason });
            let answer = change(&gateway, "POST", "operator-secret", &body);
            assert!(answer.status == 400 && answer.body.contains(why), "{answer:?}");
        }
    }
}

#[test]
fn revoking_works_while_the_configuration_and_the_file_are_broken() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let config = switchable(Config::of(&server.url()), &folder);
    let file = folder.path().join("gateway.yaml");
    let gateway = config.start_at(&file);
    let ops = gateway.ops.unwrap().to_string();
    let token = folder.path().join("token");
    let ran = |command: &mut Command| {
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    // One that is no YAML, where everything is said on the command line.
    let valid = fs::read_to_string(&file).unwrap();
    fs::write(&file, "servers: [").unwrap();
    let mut revoke = Command::new(binary());
    revoke.args(["revoke", "--principal", "ana", "--ops", &ops, "-c"]).arg(&file);
    let (good, _, said) = ran(&mut revoke);
    assert!(!good && said.contains("--token-file"), "{said}");
    let (good, out, said) = ran(revoke.arg("--token-file").arg(&token));
    assert!(good && out.contains("principals  ana"), "{out} {said}");
    assert_eq!(of_ana(&gateway, Era::Modern), 401);
    // One with another mistake says where the token is; so does one whose file of revocations is broken.
    let broken = format!("{valid}\nnonsense: true\n");
    for (text, list) in [(&broken, "{}\n"), (&valid, "principals: 7\n")] {
        fs::write(&file, text).unwrap();
        put(&folder.path().join("revoked.yaml"), list);
        let mut list = Command::new(binary());
        list.args(["revocations", "list", "--ops", &ops, "-c"]).arg(&file);
        let (good, _, said) = ran(&mut list);
        assert!(good && said.contains("warning: the configuration is not valid"), "{said}");
    }
    // Without a configuration, and with the token in a variable.
    let mut everything = Command::new(binary());
    everything.args(["revoke", "--everything", "--ops", &ops]).current_dir(folder.path());
    let (good, _, said) = ran(everything.env("PORTCULLIS_OPS_TOKEN", "operator-secret"));
    assert!(good, "{said}");
    assert_eq!(of_ana(&gateway, Era::Modern), 403);
}

#[test]
fn what_the_file_revokes_and_lifts_is_on_record() {
    for era in ERAS {
        let (server, folder) = (Server::echo(era, &["echo"]), Folder::new());
        let file = folder.path().join("revoked.yaml");
        let gateway = switchable(Config::of(&server.url()), &folder).start();
        let recorded = |event: &str, source: &str| {
            eventually(event, || {
                let is = |record: &Value| record["event"] == event && record["source"] == source;
                gateway.records().into_iter().rfind(is)
            })
        };
        put(&file, "principals: [ana]\nclients: [x]\n");
        let record = recorded("revoked", "file");
        assert_eq!(record["what"], r#"{"principals":["ana"],"clients":["x"]}"#);
        put(&file, "clients: [x]\n");
        assert_eq!(recorded("reinstated", "file")["what"], r#"{"principals":["ana"]}"#);
        // What an operator asks for is recorded once, as the operator's.
        revoke(&gateway, &json!({ "principals": ["ana"] }));
        assert_eq!(recorded("revoked", "operator")["what"], r#"{"principals":["ana"]}"#);
        put(&file, "principals: [ana]\nclients: [x, y]\n");
        eventually("the next change", || {
            let records = gateway.records();
            records.iter().any(|one| one["what"] == r#"{"clients":["y"]}"#).then_some(())
        });
        let count = gateway.records().iter().filter(|one| one["event"] == "revoked").count();
        assert_eq!(count, 3);
        gateway.says("revocations changed in the file");
    }
}

#[test]
fn a_tool_that_no_server_lists_is_revoked_with_a_warning() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let gateway = switchable(Config::of(&server.url()), &folder).start();
    assert_eq!(gateway.client(Era::Modern, ANA).tools(), ["echo"]);
    let body = json!({ "tools": ["up/echo", "up/nope"] });
    let answer = change(&gateway, "POST", "operator-secret", &body);
    assert_eq!((answer.status, &answer.json()["unlisted"]), (200, &json!(["up/nope"])));
    assert_eq!(listed(&gateway)["tools"], json!(["up/echo", "up/nope"]));
}

#[test]
fn a_missing_file_of_revocations_is_no_empty_one() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let config = switchable(Config::of(&server.url()), &folder);
    fs::remove_file(folder.path().join("revoked.yaml")).unwrap();
    let said = String::from_utf8_lossy(&config.refused().stderr).into_owned();
    assert!(said.contains("before the first start write `{}` into it"), "{said}");
}
