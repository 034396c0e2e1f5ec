//! The operator's listener, which is bounded as every other; and whether the process lives and ends in time.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use e2e::client::{Answer, get, raw, read};
use e2e::gateway::{ANA, Config, Folder, Gateway};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era, eventually};
use serde_json::json;

/// Most connections from one address.
const OF_ONE_ADDRESS: usize = 64;

fn operated(config: Config, folder: &Folder, more: &str) -> Config {
    let token = folder.path().join("token");
    fs::write(&token, "operator-secret").unwrap();
    let mut config = config;
    config.ops =
        format!("{{address: '127.0.0.1:0', token: {{fromFile: '{}'}}{more}}}", token.display());
    config
}

fn asked(gateway: &Gateway, method: &str, path: &str, headers: &str) -> Answer {
    let text = format!("{method} {path} HTTP/1.1\r\n{headers}content-length: 0\r\n\r\n");
    raw(gateway.ops.unwrap(), text.as_bytes())
}

#[test]
fn the_operators_listener_answers_to_its_own_names_and_to_no_page() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let gateway = operated(Config::of(&server.url()), &folder, ", hosts: [gateway]").start();
    let of = |headers: &str| asked(&gateway, "GET", "/readyz", headers).status;
    for host in ["localhost", "127.0.0.1:9901", "[::1]", "10.1.2.3:9901", "Gateway:9901"] {
        assert_eq!(of(&format!("host: {host}\r\n")), 200, "{host}");
    }
    // A page whose name was made to lead here (AV-71).
    for host in ["evil.example", "evil.example:9901", "0.0.0.0", "2130706433", "gateway.evil"] {
        assert_eq!(of(&format!("host: {host}\r\n")), 421, "{host}");
    }
    assert_eq!(of(""), 421);
    assert_eq!(of("host: localhost\r\nhost: localhost\r\n"), 421);
    let own = format!("http://{}", gateway.ops.unwrap());
    for origin in ["http://evil.example", "http://localhost", &own, "null", ""] {
        assert_eq!(of(&format!("host: localhost\r\norigin: {origin}\r\n")), 403, "{origin}");
    }
    let shown = "authorization: Bearer operator-secret\r\n";
    for (path, method) in [("/revocations", "POST"), ("/reload", "POST"), ("/config", "GET")] {
        let rebound = asked(&gateway, method, path, &format!("host: evil.example\r\n{shown}"));
        assert_eq!(rebound.status, 421, "{path}");
        let page =
            asked(&gateway, method, path, &format!("host: localhost\r\norigin: null\r\n{shown}"));
        assert_eq!(page.status, 403, "{path}");
    }
    assert_eq!(
        asked(&gateway, "GET", "/config", &format!("host: localhost\r\n{shown}")).status,
        200
    );
}

#[test]
fn the_operators_listener_has_so_many_connections_for_one_address() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let gateway = operated(Config::of(&server.url()), &folder, "").start();
    let open = |text: &str| {
        let mut stream = TcpStream::connect(gateway.ops.unwrap()).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        drop(stream.write_all(text.as_bytes()));
        stream
    };
    // Each is being answered: its body is waited for.
    let change = "POST /revocations HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n\
                  authorization: Bearer operator-secret\r\ncontent-length: 10\r\n\r\n";
    let held: Vec<_> = (0..OF_ONE_ADDRESS)
        .map(|_| {
            let mut stream = open(change);
            let mut head = [0; 25];
            stream.read_exact(&mut head).unwrap();
            assert_eq!(&head, b"HTTP/1.1 100 Continue\r\n\r\n");
            stream
        })
        .collect();
    // One more is closed without a word, and clients of the gateway notice nothing.
    let mut buffer = [0; 64];
    assert!(
        open("GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .read(&mut buffer)
            .map_or(true, |read| read == 0)
    );
    assert_eq!(gateway.client(Era::Modern, ANA).tools(), ["echo"]);
    drop(held);
    let metrics = eventually("a connection", || {
        let mut stream = TcpStream::connect(gateway.ops.unwrap()).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        let asked = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        drop(stream.write_all(asked));
        let mut text = String::new();
        drop(stream.read_to_string(&mut text));
        text.contains("portcullis_build_info").then_some(text)
    });
    let line = metrics
        .lines()
        .find(|line| line.starts_with("portcullis_ops_connections_refused_total "))
        .unwrap();
    assert_ne!(line.rsplit_once(' ').unwrap().1, "0");
    gateway.says("one caller has taken its share of 64");
}

#[test]
fn connections_that_say_nothing_keep_nobody_from_the_operators_listener() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let gateway = operated(Config::of(&server.url()), &folder, "").start();
    let ops = gateway.ops.unwrap();
    let half = b"GET /livez HTTP/1.1\r\nhost: loc";
    let whole = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for first in [&b""[..], half, whole] {
        // More than there are places for one address, and every new one takes the place of an old one.
        let held: Vec<_> = (0..3 * OF_ONE_ADDRESS)
            .map(|_| {
                let mut stream = TcpStream::connect(ops).unwrap();
                stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
                stream.write_all(first).unwrap();
                if first == whole {
                    assert_eq!(read(&mut stream).status, 200);
                }
                stream
            })
            .collect();
        for _ in 0..10 {
            assert_eq!(get(ops, "/livez").status, 200);
        }
        let mut oldest = held.into_iter().next().unwrap();
        let mut buffer = [0; 64];
        assert!(oldest.read(&mut buffer).map_or(true, |read| read == 0));
    }
}

#[test]
fn heads_and_bodies_for_the_operator_have_a_length() {
    let (server, folder) = (Server::echo(Era::Modern, &["echo"]), Folder::new());
    let gateway = operated(Config::of(&server.url()), &folder, "").start();
    let text = "POST /revocations HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer operator-secret\r\n\
                content-length: 3145728\r\n\r\n";
    let answer = raw(gateway.ops.unwrap(), text.as_bytes());
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("2097152 bytes"), "{}", answer.body);
    let head = format!("host: localhost\r\nx: {}\r\n", "x".repeat(20 * 1024));
    assert_eq!(asked(&gateway, "GET", "/livez", &head).status, 431);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the bound is one of real time")]
fn liveness_is_green_while_clients_are_served() {
    for era in ERAS {
        let server = Server::echo(era, &["echo"]);
        let gateway = Config::of(&server.url()).start();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let ana = gateway.client(era, ANA);
                    while !over.load(Ordering::Acquire) {
                        assert_eq!(ana.call("echo", &json!({ "text": "hello" })).status, 200);
                    }
                });
            }
            // For longer than a worker may be silent.
            let (started, mut red) = (Instant::now(), Vec::new());
            while started.elapsed() < Duration::from_secs(3) {
                let answer = get(gateway.ops.unwrap(), "/livez");
                red.extend((answer.status != 200).then_some(answer));
            }
            over.store(true, Ordering::Release);
            assert!(red.is_empty(), "{red:?}");
        });
        let metrics = gateway.metrics();
        assert!(metrics.contains("portcullis_workers_stalled 0"), "{metrics}");
        assert!(metrics.contains("portcullis_worker_stalls_total 0"), "{metrics}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the bound is one of real time")]
fn a_gateway_that_is_told_to_stop_ends_in_its_time() {
    for era in ERAS {
        // It never answers.
        let tools = json!([tool("slow")]);
        let server = Server::with(era, tools, |_, stream| {
            let mut rest = [0; 64];
            drop(stream.read(&mut rest));
            false
        });
        let mut gateway = Config::of(&server.url()).limits("drainTimeout: 1s").start();
        let ana = gateway.client(era, ANA);
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        let params = json!({ "name": "slow", "arguments": {} });
        stream.write_all(&ana.call_bytes(&json!(1), &params)).unwrap();
        eventually("the call to arrive", || (!server.tool_calls().is_empty()).then_some(()));
        let started = Instant::now();
        gateway.terminate();
        let code = gateway.ended();
        let took = started.elapsed();
        assert_eq!(code, Some(0));
        assert!(took < Duration::from_secs(10), "{era:?}: {took:?}");
        let records = gateway.records();
        assert!(records.iter().any(|record| record["event"] == "stop"), "{records:?}");
    }
}
