//! The gateway as a service in an application: the example of the gateway as a program, and what the service does about
//! requests that the gateway's own listeners never have.

use std::fs;
use std::future::{Future as _, poll_fn};
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::pin::pin;
use std::process::Command;
use std::sync::mpsc::{self, Sender};
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::ConnectInfo;
use e2e::client::{Client, get, raw, read, until};
use e2e::gateway::{ANA, BOB, Config, Folder, Gateway, binary, root};
use e2e::pki::{Leaf, Pki};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era, eventually};
use gateway::config::settings::{self, Settings};
use gateway::control::run;
use gateway::edge::admission::Peer;
use gateway::serve::{McpService, MountedBody};
use http::{Request, Response};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// Starts the example in front of what `config` describes.
fn mounted(config: &Config) -> Gateway {
    let folder = Folder::new();
    let (file, audit) = (folder.path().join("gateway.yaml"), folder.path().join("audit.jsonl"));
    config.write(&file, &audit);
    let mut command = Command::new(binary().with_file_name("mount_in_axum"));
    command.arg(&file).arg("127.0.0.1:0");
    Gateway::spawn_without_ops(command, folder, audit)
}

/// A server with the tool `slow`, whose calls are answered when it is told to.
fn waiting(era: Era) -> (Server, Sender<()>) {
    let (go, wait) = mpsc::channel();
    let wait = std::sync::Mutex::new(wait);
    let server = Server::with(era, json!([tool("slow")]), move |call, stream| {
        wait.lock().unwrap().recv().unwrap();
        stream.write_all(&call.text("late")).is_ok()
    });
    (server, go)
}

/// Opens a stream without an end, and waits until it has begun.
fn listening(client: &Client) -> TcpStream {
    let mut stream = match client.era {
        Era::Legacy => client.stream(None),
        Era::Modern => {
            let filter = json!({ "notifications": { "toolsListChanged": true } });
            let body = client.message(&json!(1), "subscriptions/listen", filter);
            let mut stream = TcpStream::connect(client.address).unwrap();
            stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
            stream.write_all(&client.bytes("subscriptions/listen", None, &body)).unwrap();
            stream
        }
    };
    until(&mut stream, "text/event-stream");
    stream
}

#[test]
fn an_application_serves_the_gateway_beside_its_own_routes() {
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        let gateway = mounted(&Config::of(&server.url()));
        let hello = get(gateway.address, "/hello");
        assert_eq!((hello.status, &*hello.body), (200, "hello\n"));
        let ana = gateway.client(era, ANA);
        assert_eq!(ana.tools(), ["echo"]);
        let answer = ana.call("echo", &json!({ "text": "through the application" }));
        assert_eq!((answer.status, &*answer.text()), (200, "through the application"));
        // A caller whom no rule allows the tool.
        let denied = gateway.client(era, BOB).call("echo", &json!({ "text": "no" }));
        assert_eq!((denied.status, denied.code()), (200, -32602), "{denied:?}");
        assert_eq!(server.tool_calls().len(), 1);
        let stranger = Client::connect(gateway.address, "/mcp", Era::Modern, None);
        assert_eq!(stranger.call("echo", &json!({})).status, 401);
        let rebound = b"GET /mcp HTTP/1.1\r\nhost: evil.example\r\n\r\n";
        assert_eq!(raw(gateway.address, rebound).status, 421);
        assert_eq!(get(gateway.address, "/nothing").status, 401);
        assert_eq!(get(gateway.address, "/.well-known/oauth-protected-resource").status, 404);

        let records = gateway.exchanges();
        let of = |outcome: &str, reason: Option<&str>| {
            let found = records
                .iter()
                .find(|record| record["outcome"] == outcome && record["reason"].as_str() == reason);
            found.unwrap_or_else(|| panic!("{outcome} {reason:?}: {records:#?}")).clone()
        };
        let denied = of("denied", Some("not-granted"));
        assert_eq!((&denied["principal"], &denied["tool"]), (&json!("bob"), &json!("echo")));
        for record in
            [denied, of("refused", Some("host-not-allowed")), of("refused", Some("unknown-route"))]
        {
            assert_eq!(record["listener"], "main", "{record}");
            let peer: SocketAddr = record["peer"].as_str().unwrap().parse().unwrap();
            assert!(peer.ip().is_loopback(), "{record}");
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the bound is one of real time")]
fn an_application_that_ends_answers_what_is_under_way_and_ends_streams() {
    for era in ERAS {
        let (server, go) = waiting(era);
        // Longer than a test waits: nothing may be left that only this time ends.
        let mut gateway = mounted(&Config::of(&server.url()).limits("drainTimeout: 5m"));
        let ana = gateway.client(era, ANA);
        let mut endless = listening(&ana);
        let params = json!({ "name": "slow", "arguments": {} });
        let mut busy = TcpStream::connect(gateway.address).unwrap();
        busy.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        busy.write_all(&ana.call_bytes(&json!(1), &params)).unwrap();
        eventually("the call", || (!server.tool_calls().is_empty()).then_some(()));
        let told = Instant::now();
        gateway.terminate();
        // The last chunk of a body in chunks.
        until(&mut endless, "0\r\n\r\n");
        // From now on the gateway takes nothing, and the application goes on until the gateway has stopped.
        eventually("the refusal", || (get(gateway.address, "/mcp").status == 503).then_some(()));
        assert_eq!(get(gateway.address, "/hello").status, 200);
        go.send(()).unwrap();
        let answer = read(&mut busy);
        assert!(answer.status == 200 && answer.text() == "late", "{answer:?}");
        drop(busy);
        assert_eq!(gateway.ended(), Some(0));
        assert!(told.elapsed() < Duration::from_secs(60), "{era:?}: {:?}", told.elapsed());
        let records = gateway.records();
        assert_eq!(records.last().unwrap()["event"], "stop", "{records:?}");
    }
}

/// The settings of `config`, with a log in `folder`.
fn read_settings(config: &Config, folder: &Folder) -> (Settings, PathBuf) {
    let (file, audit) = (folder.path().join("gateway.yaml"), folder.path().join("audit.jsonl"));
    config.write(&file, &audit);
    let text = fs::read_to_string(&file).unwrap();
    (settings::load("gateway.yaml", &text, &|_| None).unwrap(), audit)
}

async fn answered(service: &McpService, request: Request<Body>) -> Response<MountedBody> {
    service.clone().oneshot(request).await.unwrap()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the gateway's output, not a peer's")]
fn a_service_refuses_what_a_listener_would_not_have_let_through() {
    let server = Server::echo(Era::Modern, &["echo"]);
    let folder = Folder::new();
    let (settings, audit) = read_settings(&Config::of(&server.url()), &folder);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let gateway = run::start_mounted(settings, None).await.unwrap();
        assert!(gateway.listeners.is_empty() && gateway.service("other").is_none());
        let service = gateway.service("main").unwrap();
        let here: SocketAddr = "127.0.0.1:40000".parse().unwrap();
        let request = || Request::post("/mcp").header("host", "localhost");
        let from = |peer: &str, request: http::request::Builder| {
            let mut request = request.body(Body::empty()).unwrap();
            request.extensions_mut().insert(Peer::at(peer.parse().unwrap()));
            request
        };
        // The application does not say who calls.
        let nobody = request().body(Body::empty()).unwrap();
        assert_eq!(answered(&service, nobody).await.status(), 500);
        // Both ways in which it can say so.
        let mut shown = request().body(Body::empty()).unwrap();
        shown.extensions_mut().insert(ConnectInfo(here));
        assert_eq!(answered(&service, shown).await.status(), 401);
        assert_eq!(answered(&service, from("127.0.0.1:1", request())).await.status(), 401);
        assert_eq!(answered(&service, from("[::1]:1", request())).await.status(), 401);
        // The listener is one on loopback.
        for peer in ["192.0.2.7:1", "[2001:db8::7]:1", "[::ffff:192.0.2.7]:1"] {
            assert_eq!(answered(&service, from(peer, request())).await.status(), 421, "{peer}");
        }
        let twice = request().header("content-length", "0").header("content-length", "0");
        assert_eq!(answered(&service, from("127.0.0.1:1", twice)).await.status(), 400);
        let both = request().header("content-length", "0").header("transfer-encoding", "chunked");
        assert_eq!(answered(&service, from("127.0.0.1:1", both)).await.status(), 400);
        let many = (0..101).fold(request(), |request, n| request.header(format!("x-{n}"), "1"));
        assert_eq!(answered(&service, from("127.0.0.1:1", many)).await.status(), 431);
        // HTTP/2 has the host in the request line.
        let multiplexed = Request::post("http://localhost/mcp").version(http::Version::HTTP_2);
        assert_eq!(answered(&service, from("127.0.0.1:1", multiplexed)).await.status(), 401);

        let held = answered(&service, from("127.0.0.1:1", request())).await;
        let mut stop = pin!(gateway.stop());
        let waits = poll_fn(|cx| Poll::Ready(stop.as_mut().poll(cx).is_pending())).await;
        assert!(waits, "a response is not read");
        assert_eq!(answered(&service, from("127.0.0.1:1", request())).await.status(), 503);
        drop(held);
        assert_eq!(stop.await, run::StopOutcome::Whole);
    });
    let text = fs::read_to_string(audit).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let refused: Vec<_> = records.filter(|record| record["event"] == "exchange").collect();
    let count = |reason: &str| refused.iter().filter(|record| record["reason"] == reason).count();
    assert_eq!((count("host-not-allowed"), count("ambiguous-framing")), (3, 2), "{refused:#?}");
    assert_eq!(refused.iter().filter(|record| record["peer"] == "192.0.2.7:1").count(), 1);
}

#[test]
fn an_application_starts_servers_that_are_programs_in_their_sandbox() {
    let program = binary();
    let server = format!("- {{name: up, command: '{}', args: [canary]}}", program.display());
    for era in ERAS {
        let folder = Folder::new();
        let mut config = Config::with(&server, "[up]");
        config.more = "selftest: {}\n".to_owned();
        let gateway = mounted(&config.approved(&folder.path().join("portcullis.lock")));
        let answer = gateway.client(era, ANA).call("add", &json!({ "a": 2, "b": 3 }));
        assert!(answer.status == 200 && answer.text() == "5", "{answer:?}");
        assert!(!gateway.children().is_empty());
        let ready = || gateway.records().into_iter().find(|record| record["event"] == "selftest");
        let tested = eventually("the self-test", ready);
        assert!(tested["what"].as_str().unwrap().starts_with("passed: "), "{tested}");
    }
    // This process is none that the gateway can start programs by way of.
    let folder = Folder::new();
    let (settings, _) = read_settings(&Config::with(&server, "[up]"), &folder);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(run::start_mounted(settings, None)).unwrap_err().to_string();
    assert!(error.contains("`up` is a program") && error.contains("helper::begin"), "{error}");
}

#[test]
fn a_listener_with_tls_is_not_mounted() {
    let server = Server::echo(Era::Modern, &["echo"]);
    let pki = Pki::new("mounting");
    let leaf = pki.issue(&Leaf::local());
    let mut config = Config::of(&server.url());
    config.listener = format!(
        "tls: {{certificate: '{}', key: '{}'}}",
        leaf.certificate.display(),
        leaf.key.display()
    );
    let folder = Folder::new();
    let (settings, _) = read_settings(&config, &folder);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(run::start_mounted(settings, None)).unwrap_err().to_string();
    assert!(error.contains("`main` has `tls`") && error.contains("`publicUrl`"), "{error}");
}

#[test]
fn the_code_that_is_shown_is_that_of_the_example() {
    let page = fs::read_to_string(root().join("docs/embedding.md")).unwrap();
    let example = root().join("gateway/examples/mount_in_axum.rs");
    let example = fs::read_to_string(example).unwrap();
    let known: Vec<_> = example.lines().map(str::trim).collect();
    let shown = page.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert!(shown.lines().count() > 10, "{shown}");
    for line in shown.lines().map(str::trim) {
        assert!(known.contains(&line), "the example has no line `{line}`");
    }
}
