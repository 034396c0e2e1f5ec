//! What the gateway holds for callers takes as much memory as is counted for it, and not several times as much; and all
//! that one caller makes it hold has one bound.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use e2e::client::{Client, raw, until};
use e2e::gateway::{ANA, BOB, Config, Folder, Gateway, root};
use e2e::issuer::Issuer;
use e2e::server::{Server, ok, tool};
use e2e::{ERAS, Era, PATIENCE, eventually};
use serde_json::{Value, json};

use crate::asking::able;
use crate::tokens::{believing, knock};

const OPEN: &str =
    "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";
const MIB: usize = 1024 * 1024;

/// What was resident of the process at most, in bytes.
fn peak(gateway: &Gateway) -> usize {
    memory_of(gateway, "VmHWM:")
}

/// What is resident of the process now, in bytes.
fn resident(gateway: &Gateway) -> usize {
    memory_of(gateway, "VmRSS:")
}

fn memory_of(gateway: &Gateway, what: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Whether so many bytes more than `before` were resident at most as are held, and no more than half as many again and
/// what two threads take that read at the same time.
#[track_caller]
fn took_once(gateway: &Gateway, before: usize, held: usize) {
    let more = peak(gateway).saturating_sub(before);
    assert!(
        more < held + held / 2 + 16 * MIB,
        "{} MiB more were resident for {}",
        more / MIB,
        held / MIB
    );
}

/// Sends these bytes and does not wait for an answer.
fn begun(gateway: &Gateway, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// A call whose arguments are so many bytes long. Blanks are no text, so it costs little to look at them.
fn long_call(client: &Client, id: u64, tool: &str, bytes: usize) -> Vec<u8> {
    let params = json!({ "name": tool, "arguments": { "text": "x" } });
    let blanks = format!(r#""text":"x"{}"#, " ".repeat(bytes));
    let message = client.message(&json!(id), "tools/call", params);
    client.bytes("tools/call", Some(tool), &message.replace(r#""text":"x""#, &blanks))
}

/// A server with the tools `slow`, which is not answered before the sender is dropped, and `long`, which is answered with
/// 3 MiB.
fn server(era: Era) -> (Server, Sender<()>) {
    let (release, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let server = Server::with(era, json!([tool("slow"), tool("long")]), move |call, stream| {
        if call.tool() == "slow" {
            wait.lock().unwrap().recv().unwrap_or_default();
            return stream.write_all(&call.text("done")).is_ok();
        }
        let answer = String::from_utf8(call.text("done")).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let blanks = format!("[{}", " ".repeat(3 * MIB));
        stream.write_all(&ok(&body.replacen('[', &blanks, 1))).is_ok()
    });
    (server, release)
}

#[test]
fn the_body_of_a_call_that_is_under_way_is_in_memory_once() {
    for era in ERAS {
        let (server, release) = server(era);
        let gateway = Config::of(&server.url()).policy(OPEN).start();
        gateway.has_read(1);
        let ana = gateway.client(era, ANA);
        let before = peak(&gateway);
        let calls: Vec<_> =
            (1..=15).map(|id| begun(&gateway, &long_call(&ana, id, "slow", 4_000_000))).collect();
        eventually("the calls are with the server", || {
            (server.count("tools/call") == calls.len()).then_some(())
        });
        took_once(&gateway, before, 15 * 4_000_000);
        drop(release);
    }
}

#[test]
fn a_message_that_waits_for_a_program_that_does_not_read_is_in_memory_once() {
    for era in ERAS {
        let folder = Folder::new();
        let script = root().join("tests/sdk/single.py");
        let spoken = if era == Era::Modern { "modern" } else { "legacy" };
        let servers = format!(
            "- {{name: up, command: python3, args: ['{}', {spoken}, '{}'], protocol: {spoken}}}",
            script.display(),
            folder.path().display()
        );
        let limits = "sendQueue: 128MiB\nsendQueuePerCaller: 128MiB";
        let gateway = Config::with(&servers, "[up]").policy(OPEN).limits(limits).start();
        gateway.has_read(1);
        let ana = gateway.client(era, ANA);
        let hold = json!({ "name": "hold", "arguments": { "who": "one" } });
        let at_work = begun(&gateway, &ana.call_bytes(&json!(900), &hold));
        let file = folder.path().join("one.holds");
        eventually("the program is at work", || file.exists().then_some(()));
        let before = peak(&gateway);
        let calls: Vec<_> =
            (1..=15).map(|id| begun(&gateway, &long_call(&ana, id, "take", 4_000_000))).collect();
        let unsent = || gateway.metric_now("portcullis_upstream_send_queue_bytes{server=\"up\"}");
        eventually("they wait", || (unsent() > 14 * 4_000_000).then_some(()));
        took_once(&gateway, before, 15 * 4_000_000);
        drop((calls, at_work));
        std::fs::write(folder.path().join("one.go"), "").unwrap();
    }
}

/// A client that asks this and reads nothing of the answer, for which its system takes in little.
fn deaf(gateway: &Gateway, bytes: &[u8]) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let connected = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4096)?;
        socket.connect(gateway.address).await?.into_std()
    });
    let mut stream = connected.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

fn are_answered(gateway: &Gateway, count: usize) -> bool {
    let done = |record: &&Value| record["tool"] == "long" && record["outcome"] == "answered";
    gateway.records().iter().filter(done).count() == count
}

/// Only clients of 2025-03-26 send batches.
#[test]
fn what_a_batch_is_answered_with_is_in_memory_once_until_its_client_reads_it() {
    let (server, _release) = server(Era::Legacy);
    let limits = "responseMemoryPerServer: 128MiB\nwriteTimeout: 60s";
    let gateway = Config::of(&server.url()).policy(OPEN).limits(limits).start();
    gateway.has_read(1);
    let mut ana = gateway.client(Era::Legacy, ANA);
    ana.handshake("2025-03-26");
    let before = resident(&gateway);
    // So many answers may be under inspection for one caller at once.
    let params = json!({ "name": "long", "arguments": {} });
    let call = |id: u64| ana.message(&json!(id), "tools/call", params.clone());
    let batch = format!("[{}]", (1..=18).map(call).collect::<Vec<_>>().join(","));
    let unread = deaf(&gateway, &ana.bytes("", None, &batch));
    eventually("the answers are there", || are_answered(&gateway, 18).then_some(()));
    // What waits for its client is counted, whoever's share it takes.
    let held = gateway.metric_now("portcullis_response_memory_bytes");
    assert!(held >= 18 * 3 * MIB as u64, "{held}");
    // While they are read they take more, the more of them are read at the same time.
    eventually("they are in memory once", || {
        let more = resident(&gateway).saturating_sub(before);
        (more < 18 * 3 * MIB * 3 / 2).then_some(())
    });
    drop(unread);
    let held = || gateway.metric_now("portcullis_response_memory_bytes");
    eventually("it is given back", || (held() == 0).then_some(()));
}

#[test]
fn the_values_of_a_request_take_of_the_share_of_its_caller_beside_its_bytes() {
    for era in ERAS {
        let (server, release) = server(era);
        drop(release);
        let limits =
            "requestBody: 256KiB\nrequestBodyMemory: 4MiB\nrequestBodyMemoryPerCaller: 512KiB";
        let gateway = Config::of(&server.url()).policy(OPEN).limits(limits).start();
        let ana = gateway.client(era, ANA);
        let call = |values: &str| {
            let params = json!({ "name": "slow", "arguments": { "x": ["VALUES"] } });
            let message = ana.message(&json!(1), "tools/call", params);
            let message = message.replace("[\"VALUES\"]", &format!("[{values}]"));
            raw(gateway.address, &ana.bytes("tools/call", Some("slow"), &message))
        };
        // Sixteen bytes for each value, of which there are 80000 in 160 kB.
        let over = call(&vec!["0"; 80_000].join(","));
        assert_eq!((over.status, over.header("retry-after")), (429, Some("1")), "{over:?}");
        assert_eq!(over.json()["error"]["data"]["reason"], "caller-limit-bodies", "{over:?}");
        assert_eq!(call(&" ".repeat(160_000)).status, 200, "{era:?}");
    }
}

#[test]
fn what_a_caller_sends_and_what_it_is_answered_have_one_bound_together() {
    for era in ERAS {
        let (server, release) = server(era);
        let limits = "responseBody: 4MiB\nmemory: 16MiB\nmemoryPerCaller: 8MiB";
        let gateway = Config::of(&server.url()).policy(OPEN).limits(limits).start();
        gateway.has_read(1);
        let mut ana = gateway.client(era, ANA);
        if era == Era::Legacy {
            // Of the revision after it a slow call is answered with events.
            ana.handshake("2025-06-18");
        }
        let bob = gateway.client(era, BOB);
        let slow: Vec<_> =
            (1..=2).map(|id| begun(&gateway, &long_call(&ana, id, "slow", 4_170_000))).collect();
        eventually("both are with the server", || (server.count("tools/call") == 2).then_some(()));
        // Each share has room for more: it is all of them together that have not.
        let over = raw(gateway.address, &long_call(&ana, 3, "long", 60_000));
        assert_eq!((over.status, over.header("retry-after")), (429, Some("1")), "{over:?}");
        assert_eq!(over.json()["error"]["data"]["reason"], "caller-limit-bodies", "{over:?}");
        let over = ana.call("long", &json!({}));
        assert!(over.body.contains("response memory limit reached"), "{era:?} {over:?}");
        let is = |record: &Value| record["reason"] == "upstream-memory-limit";
        assert_eq!(gateway.recorded("the refusal", is)["principal"], "ana");
        // Others have their part.
        let long = bob.call("long", &json!({}));
        assert!(long.json()["result"].is_object(), "{era:?} {long:?}");
        drop(release);
        drop(slow);
        eventually("it is given back", || {
            ana.call("long", &json!({})).json()["result"].is_object().then_some(())
        });
    }
}

/// A gateway before a program that sends 66 reports of 15 kB for each call, with more of its item.
fn flooded(more: &str, limits: &str) -> Gateway {
    let script = root().join("tests/sdk/flood.py");
    let servers = format!(
        "- {{name: up, command: python3, args: ['{}', '66', '15000'], protocol: legacy{more}}}",
        script.display()
    );
    let gateway = Config::with(&servers, "[up]").policy(OPEN).limits(limits).start();
    gateway.has_read(1);
    gateway
}

/// Progress of calls that was dropped.
fn untold(gateway: &Gateway) -> u64 {
    gateway.metric_now("portcullis_progress_dropped_total{server=\"up\"}")
}

/// A call of a tool of the program that wants progress.
fn reported(client: &Client, id: u64, tool: &str) -> Vec<u8> {
    let meta = json!({ "progressToken": format!("t{id}") });
    client.call_bytes(&json!(id), &json!({ "name": tool, "arguments": {}, "_meta": meta }))
}

#[test]
fn what_waits_for_calls_that_their_client_does_not_read_takes_of_its_share_from_the_first_bytes() {
    for era in ERAS {
        let limits = "responseBody: 1MiB\nresponseMemoryPerCaller: 8MiB\nreplayBytes: 64KiB\n\
                      replayMemoryPerCaller: 4MiB\nstreamsPerSession: 100\nwriteTimeout: 60s";
        let gateway = flooded("", limits);
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        assert_eq!(bob.call("last", &json!({})).text(), "last");
        let before = peak(&gateway);
        let unread: Vec<_> =
            (1..=60).map(|id| deaf(&gateway, &reported(&ana, id, "flood"))).collect();
        eventually("all calls are on their way", || {
            let begun = |record: &&Value| record["event"] == "intent" && record["tool"] == "flood";
            (gateway.records().iter().filter(begun).count() == unread.len()).then_some(())
        });
        // The program does one thing at a time: when this is answered, it has said all about those before. How much of
        // that the systems of both ends take in is not decided; the rest waits in the gateway, or was dropped.
        assert_eq!(bob.call("last", &json!({})).text(), "last", "{era:?}");
        // They would be 58 MiB.
        let more = peak(&gateway).saturating_sub(before);
        assert!(more < 32 * MIB, "{era:?}: {} MiB more were resident", more / MIB);
        let held = gateway.metric_now("portcullis_response_memory_bytes");
        assert!(usize::try_from(held).unwrap() <= 9 * MIB, "{era:?}: {held}");
        // Others are told about theirs.
        let mut heard = begun(&gateway, &reported(&bob, 900, "flood"));
        until(&mut heard, "\"progress\":3");
        drop((unread, heard));
        let held = || gateway.metric_now("portcullis_response_memory_bytes");
        if era == Era::Modern {
            eventually("it is given back", || (held() == 0).then_some(()));
        }
    }
}

/// Only calls of modern clients wait for their clients to answer.
#[test]
fn progress_of_calls_that_wait_for_their_client_takes_of_its_share() {
    let more = ", sharing: perSession, serverRequests: {formElicitation: {}}";
    let gateway =
        flooded(more, "inputTimeout: 5m\nresponseBody: 1MiB\nresponseMemoryPerCaller: 8MiB");
    let ana = able(&gateway, Era::Modern, ANA);
    assert_eq!(ana.call("last", &json!({})).text(), "last");
    let before = peak(&gateway);
    let ask = |id: u64| raw(gateway.address, &reported(&ana, id, "ask"));
    let answers: Vec<_> = (1..=40).map(ask).collect();
    assert_eq!(ana.call("last", &json!({})).text(), "last");
    eventually("progress was dropped for want of room", || {
        // Two of each find no place; of the rest there is room for a fifth.
        (untold(&gateway) > 40 * 30).then_some(())
    });
    // They would be 38 MiB.
    let more = peak(&gateway).saturating_sub(before);
    assert!(more < 24 * MIB, "{} MiB more were resident", more / MIB);
    // The call goes on all the same, and is reported about again.
    let message = answers[7].json();
    let result = &message["result"];
    assert_eq!(result["resultType"], "input_required", "{message}");
    let key = result["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let params = json!({
        "name": "ask", "arguments": {}, "_meta": { "progressToken": "again" },
        "requestState": result["requestState"], "inputResponses": { key: { "action": "decline" } },
    });
    let done = raw(gateway.address, &ana.call_bytes(&json!(99), &params)).json();
    assert_eq!(done["result"]["content"][0]["text"], "decline", "{done}");
}

/// A text of two letters or digits for each number.
fn short_name(number: usize) -> String {
    let letter = |n: usize| char::from(b"abcdefghijklmnopqrstuvwxyz0123456789"[n % 36]);
    [letter(number / 36), letter(number)].iter().collect()
}

#[test]
fn tokens_that_were_verified_are_kept_in_so_many_bytes_and_the_rest_is_verified_again() {
    for era in ERAS {
        let (server, issuer) = (Server::echo(era, &["echo"]), Issuer::start());
        let config = believing(&server, &issuer.item("corp", ""));
        let gateway = config.limits("tokenMemory: 4MiB\ntokenMemoryPerCaller: 2MiB").start();
        gateway.has_read(1);
        let names: Vec<_> = (0..512).map(short_name).collect();
        let token = |number: usize, subject: &str| {
            let mut claims = issuer.claims(subject);
            claims["jti"] = json!(number.to_string());
            claims["groups"] = json!(names);
            claims["realm"] = json!({ "roles": names.get(..250).unwrap() });
            claims["scope"] = json!(format!("mcp {}", names.get(..500).unwrap().join(" ")));
            let header = issuer.key.header().to_string();
            format!("Bearer {}", issuer.key.token(&header, &claims.to_string()))
        };
        let good = |token: &str| knock(&gateway, era, &[("authorization", token)]).status;
        assert_eq!(good(&token(0, "bob")), 200);
        let before = peak(&gateway);
        let tokens: Vec<_> = (1..=400).map(|number| token(number, "alice")).collect();
        for token in &tokens {
            assert_eq!(good(token), 200, "{era:?}");
        }
        // Each takes about 55 KiB, which would be 22 MiB.
        let more = peak(&gateway).saturating_sub(before);
        assert!(more < 14 * MIB, "{era:?}: {} MiB more were resident", more / MIB);
        // What is not kept is as good as what is.
        for token in tokens.iter().take(3).chain(tokens.iter().rev().take(3)) {
            assert_eq!(good(token), 200, "{era:?}");
        }
    }
}
