//! What looking at a message may cost, whoever chose the message: it is answered or withheld in a bounded
//! time and memory, and others are served meanwhile (vectors PV-37 and PV-38).
//!
//! Nothing here is timed. That others are served is shown by the order in which calls are answered, and
//! what has to end has a deadline, which is long: a debug build takes ten times as long as a release, and
//! inspections have a lower priority than everything else on the machine.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use e2e::client::{Answer, Client, read, until};
use e2e::gateway::{ANA, BOB, Config, Folder, Gateway, binary};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era, eventually};
use serde_json::{Value, json};

const ALL: &str =
    "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";
const SECRET: &str = "AKIAQ3EGRZ7XK2MWPLVT";
/// How long an answer that has to be inspected may take before a test has failed.
const LONG: Duration = Duration::from_secs(150);
/// How many calls a bystander makes, one after the other.
const SMALL: usize = 20;
/// Most resident memory, in KiB.
const MEMORY: u64 = 512 * 1024;
const MIB: usize = 1024 * 1024;
const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

fn repeated(part: &str, bytes: usize) -> String {
    part.repeat(bytes / part.len())
}

/// Ordinary text of so many bytes with a secret at its end.
fn report(bytes: usize) -> String {
    let line = "Plain words of a report, and a number 17.\n";
    repeated(line, bytes) + "the key is " + SECRET + " of course"
}

fn text(text: &str) -> Value {
    json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }] })
}

/// A server with the tools `big` and `small`. Calls of `big` are answered with these results, in turn, and
/// only when so many of them have arrived as there are results; each is said here when it was written.
fn gathering(era: Era, results: Vec<Value>, big: &Value) -> (Server, Receiver<()>) {
    let (written, seen) = channel();
    let (written, gate) = (Mutex::new(written), Barrier::new(results.len()));
    let next = AtomicUsize::new(0);
    let server = Server::with(era, json!([big, tool("small")]), move |call, stream| {
        if call.tool() == "small" {
            return stream.write_all(&call.text("done")).is_ok();
        }
        let answer = call.result(&results[next.fetch_add(1, Ordering::AcqRel) % results.len()]);
        gate.wait();
        let sent = stream.write_all(&answer).is_ok();
        written.lock().unwrap().send(()).unwrap_or_default();
        sent
    });
    (server, seen)
}

/// Sends these bytes; the answer may take long.
fn begun(gateway: &Gateway, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// Calls `big` at once as often as told by one caller and, as soon as all answers are with the gateway, makes
/// small calls by another, which are answered before the last of the others is. Gives the answers.
fn beside(
    gateway: &Gateway,
    era: Era,
    params: &Value,
    calls: usize,
    all: &Receiver<()>,
) -> Vec<Answer> {
    let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
    let ended = &AtomicUsize::new(0);
    thread::scope(|scope| {
        let begin = |n: usize| {
            let bytes = ana.call_bytes(&json!(n), params);
            scope.spawn(move || {
                let answer = read(&mut begun(gateway, &bytes));
                ended.fetch_add(1, Ordering::AcqRel);
                answer
            })
        };
        let big: Vec<_> = (0..calls).map(begin).collect();
        (0..calls).for_each(|_| all.recv_timeout(LONG).unwrap());
        for _ in 0..SMALL {
            assert_eq!(answered(&bob.call("small", &json!({}))), "done");
        }
        let before = ended.load(Ordering::Acquire);
        assert!(before < calls, "{era:?}: a bystander had to wait for all {calls} of the others");
        big.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

fn answered(answer: &Answer) -> String {
    let answer = answer.json();
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn start(server: &Server, policy: &str, limits: &str) -> Gateway {
    Config::of(&server.url()).policy(&format!("{policy}\n{ALL}")).limits(limits).start()
}

/// What of the process was resident at most so far, in KiB.
fn peak(gateway: &Gateway) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn findings(gateway: &Gateway, detector: &str) -> u64 {
    gateway.metric(&format!("portcullis_content_findings_total{{detector=\"{detector}\"}}"))
}

/// What was found in the answer of the call of `big`, as it is on record.
fn found(gateway: &Gateway) -> String {
    gateway.recorded("the call", |record| record["tool"] == "big")["found"].to_string()
}

/// The caller is told which control it was and nothing of the text, and so is the record.
fn withheld(gateway: &Gateway, answer: &Answer) {
    let told = answer.json();
    assert_eq!(told["result"]["isError"], true, "{told}");
    assert_eq!(answered(answer), "the server's result was withheld: inspection-budget");
    let record = gateway.recorded("the call", |record| record["tool"] == "big");
    assert_eq!((&record["outcome"], &record["reason"]), (&json!("denied"), &json!("content")));
    let found = found(gateway);
    assert!(found.contains("inspection-budget at ``: inspection budget exceeded"), "{record}");
    assert!(findings(gateway, "inspection-budget") > 0);
}

#[test]
fn hostile_markup_and_long_texts_are_answered_and_others_do_not_wait_for_them() {
    for (era, plain) in [(Era::Legacy, MIB), (Era::Modern, 4 * MIB)] {
        let hostile = repeated("![][", MIB);
        let results = vec![text(&hostile), text(&report(plain)), text(&report(MIB))];
        let (server, seen) = gathering(era, results, &tool("big"));
        let gateway = start(&server, "", "");
        let params = json!({ "name": "big", "arguments": {} });
        let answers = beside(&gateway, era, &params, 3, &seen);
        let mut texts: Vec<_> = answers.iter().map(answered).collect();
        texts.sort_by_key(|text| !text.starts_with('!'));
        assert!(texts[0] == hostile, "the markup is as it was sent");
        for text in &texts[1..] {
            assert!(!text.contains(SECRET) && text.contains("the key is [REDACTED:aws-access-key"));
            assert!(text.starts_with("Plain words"), "the rest is as it was sent");
        }
        assert!(gateway.metric("portcullis_inspections_offloaded_total") >= 3);
        assert_eq!(gateway.metric("portcullis_inspections_refused_total"), 0);
    }
}

#[test]
fn a_message_of_a_few_kilobytes_does_not_wait_for_the_inspection_of_a_long_one() {
    for era in ERAS {
        let (server, written) = gathering(era, vec![text(&repeated("![][", MIB))], &tool("big"));
        let gateway = start(&server, "", "");
        let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
        let long = ana.call_bytes(&json!(1), &json!({ "name": "big", "arguments": {} }));
        let ended = &AtomicUsize::new(0);
        thread::scope(|scope| {
            let long = scope.spawn(|| {
                let answer = read(&mut begun(&gateway, &long));
                ended.store(1, Ordering::Release);
                answer
            });
            written.recv_timeout(LONG).unwrap();
            eventually("the inspection", || {
                (gateway.metric_now("portcullis_inspections_in_flight") > 0).then_some(())
            });
            let words = repeated("Plain words, and a number 17.\n", 8 * 1024);
            assert_eq!(answered(&bob.call("small", &json!({ "text": words }))), "done");
            assert_eq!(ended.load(Ordering::Acquire), 0, "{era:?}: a bystander had to wait");
            assert!(long.join().is_ok());
        });
    }
}

#[test]
fn resources_whose_uris_have_many_forms_take_no_more_memory_than_others() {
    let rules = "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], resources: ['*']}\n\
        - {id: shut, effect: forbid, principals: ['*'], servers: ['*'], resources: ['file:///shut/*']}";
    for era in ERAS {
        let folder = "a".repeat(1900);
        let uri = |n: usize| format!("file://Host/C:/{n};x/{folder}/%20/?q;a/%20/");
        let resources: Vec<_> =
            (0..1800).map(|n| json!({ "uri": uri(n), "name": n.to_string() })).collect();
        let offers = json!({ "resources": resources, "ttlMs": 0, "cacheScope": "public" });
        let server = Server::offering(era, offers, |_| json!({}));
        let gateway = Config::of(&server.url()).policy(rules).start();
        let listed = gateway.client(era, ANA).ask("resources/list", json!({}));
        assert_eq!(listed.listed("resources", "uri").len(), 1800);
        let peak = peak(&gateway);
        assert!(peak < MEMORY / 2, "{era:?}: {peak} KiB");
    }
}

/// What a server says in a call before it answers: these messages, with the token that progress has.
fn telling(era: Era, messages: Vec<Value>) -> (Server, Receiver<()>) {
    let (written, seen) = channel();
    let written = Mutex::new(written);
    let server = Server::with(era, json!([tool("big"), tool("small")]), move |call, stream| {
        if call.tool() == "small" {
            return stream.write_all(&call.text("done")).is_ok();
        }
        let token = &call.body["params"]["_meta"]["progressToken"];
        drop(stream.write_all(HEAD));
        for (n, message) in messages.iter().enumerate() {
            let mut message = message.clone();
            if message["method"] == "notifications/progress" {
                message["params"]["progressToken"] = token.clone();
            }
            drop(stream.write_all(format!("data: {message}\n\n").as_bytes()));
            // The gateway reads on when it has looked at what it has.
            if n == 0 {
                written.lock().unwrap().send(()).unwrap_or_default();
            }
        }
        let done = json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": text("all told") });
        drop(stream.write_all(format!("data: {done}\n\n").as_bytes()));
        false
    });
    (server, seen)
}

fn log(data: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/message",
        "params": { "level": "error", "data": data } })
}

fn progress(done: usize, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/progress",
        "params": { "progress": done, "message": message } })
}

/// A call whose client wants all that is told.
fn listening() -> Value {
    let meta = json!({ "progressToken": "t", "io.modelcontextprotocol/logLevel": "debug" });
    json!({ "name": "big", "arguments": {}, "_meta": meta })
}

#[test]
fn long_notifications_are_passed_on_and_others_do_not_wait_for_them() {
    for era in ERAS {
        let long = repeated("plain words and a number 17 ", 900_000);
        let messages = vec![log(&long), progress(1, &long), log(&long), progress(2, &long)];
        let (server, seen) = telling(era, messages);
        let gateway = start(&server, "", "");
        for answer in beside(&gateway, era, &listening(), 3, &seen) {
            assert_eq!(answered(&answer), "all told");
            let events = answer.events();
            let whole = events.iter().filter(|event| event.contains(&long)).count();
            assert_eq!((events.len(), whole), (5, 4), "{era:?}: each is passed on");
        }
        // Inspected where they came, they would not have been counted here.
        assert!(gateway.metric("portcullis_inspections_offloaded_total") >= 12);
    }
}

#[test]
fn a_notification_that_is_too_long_is_withheld_and_the_call_goes_on() {
    for era in ERAS {
        let words = "plain words and a number 17 ";
        let (short, long) = (repeated(words, 3000), repeated(words, 5000));
        let messages = vec![log(&short), log(&long), progress(1, &long), progress(2, &short)];
        for (limits, shown, detected) in
            [("notification: 4KiB", 2, 2), ("notification: 8KiB", 4, 0)]
        {
            let (server, _seen) = telling(era, messages.clone());
            let gateway = start(&server, "", limits);
            let bytes = gateway.client(era, ANA).call_bytes(&json!(1), &listening());
            let answer = read(&mut begun(&gateway, &bytes));
            assert_eq!(answered(&answer), "all told");
            assert_eq!(answer.events().len(), shown + 1, "{era:?} {limits}");
            assert_eq!(answer.body.contains(&long), shown == 4, "{era:?} {limits}");
            let found = found(&gateway);
            assert_eq!(found.matches("result-size at").count(), detected, "{found}");
            assert_eq!(findings(&gateway, "result-size"), detected as u64, "{era:?} {limits}");
        }
    }
}

/// A server that asks its client for a completion with a prompt of so many bytes, in the way of its era.
fn asking(era: Era, bytes: usize) -> Server {
    let prompt = repeated("plain words and a number 17 ", bytes);
    let params = json!({ "maxTokens": 1, "messages": [
        { "role": "user", "content": { "type": "text", "text": prompt } }] });
    Server::with(era, json!([tool("big")]), move |call, stream| {
        if era == Era::Modern {
            let question = json!({ "method": "sampling/createMessage", "params": params });
            let result = json!({ "resultType": "input_required", "requestState": "s",
                "inputRequests": { "q": question } });
            return stream.write_all(&call.result(&result)).is_ok();
        }
        let question = json!({ "jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage",
            "params": params });
        drop(stream.write_all(HEAD));
        drop(stream.write_all(format!("data: {question}\n\n").as_bytes()));
        // It waits for an answer until the gateway gives the call up.
        let mut rest = [0; 64];
        drop(std::io::Read::read(stream, &mut rest));
        false
    })
}

#[test]
fn a_long_question_is_asked_and_one_that_is_too_long_is_withheld() {
    for era in ERAS {
        for (bytes, shown) in [(900_000, true), (1_200_000, false)] {
            let server = asking(era, bytes);
            let asks = "{sampling: {maxTokens: 100, size: 4MiB}}";
            let up = format!("- {{name: up, url: '{}', serverRequests: {asks}}}", server.url());
            let gateway = Config::with(&up, "[up]").policy(ALL).limits("drainTimeout: 1s").start();
            let can = json!({ "sampling": {} });
            let ana = Client::able(gateway.address, "/mcp", era, Some(ANA), &can);
            let params = json!({ "name": "big", "arguments": {} });
            let mut stream = begun(&gateway, &ana.call_bytes(&json!(1), &params));
            if shown {
                let seen = until(&mut stream, "sampling/createMessage");
                assert!(!seen.contains("\"error\""), "{era:?}");
                continue;
            }
            let told = read(&mut stream);
            assert!(
                told.body.contains("the server's result was withheld: result-size"),
                "{told:?}"
            );
            assert!(!told.body.contains("plain words"), "{era:?}");
            let found = found(&gateway);
            assert!(found.contains("result-size at"), "{found}");
            assert_eq!(findings(&gateway, "result-size"), 1, "{era:?}");
        }
    }
}

#[test]
fn text_that_expands_is_withheld_and_takes_no_more_memory_than_others() {
    for era in ERAS {
        // Each of these letters is eleven times as long when it is normalised.
        let expanding = text(&repeated("\u{fdfa}", 15_000_000));
        let (server, seen) = gathering(era, vec![expanding; 3], &tool("big"));
        let gateway = start(&server, "", "");
        let params = json!({ "name": "big", "arguments": {} });
        for answer in beside(&gateway, era, &params, 3, &seen) {
            withheld(&gateway, &answer);
        }
        assert!(peak(&gateway) < MEMORY, "{era:?}: {} KiB were resident", peak(&gateway));
    }
}

#[test]
fn a_result_that_costs_too_much_to_check_is_withheld() {
    let branches: Vec<_> = (0..200).map(|n| json!({ "const": n })).collect();
    let items = json!({ "type": "array", "items": { "anyOf": branches } });
    let mut big = tool("big");
    big["outputSchema"] = json!({ "type": "object", "properties": { "items": items } });
    let result = |count: usize| {
        let items: Vec<_> = (0..count).map(|n| n % 200).collect();
        json!({ "resultType": "complete", "content": [], "structuredContent": { "items": items } })
    };
    for era in ERAS {
        for (mode, detector) in
            [("audit", "inspection-budget"), ("enforce", "output-schema"), ("'off'", "")]
        {
            let (server, _seen) = gathering(era, vec![result(80_000)], &big);
            let policy = format!("content: [{{servers: [up], outputSchema: {mode}}}]");
            let gateway = start(&server, &policy, "");
            let params = json!({ "name": "big", "arguments": {} });
            let bytes = gateway.client(era, ANA).call_bytes(&json!(1), &params);
            let answer = read(&mut begun(&gateway, &bytes));
            if detector.is_empty() {
                let shown = answer.json()["result"]["structuredContent"]["items"].clone();
                assert_eq!(shown.as_array().map(Vec::len), Some(80_000), "{era:?}");
                continue;
            }
            let told = answered(&answer);
            assert_eq!(told, format!("the server's result was withheld: {detector}"));
            let found = found(&gateway);
            assert!(found.contains("inspection budget exceeded"), "{era:?} {mode}: {found}");
            assert!(findings(&gateway, detector) > 0, "{era:?} {mode}");
            let bob = gateway.client(era, BOB);
            assert_eq!(answered(&bob.call("small", &json!({}))), "done");
            // A short one is checked.
            let (server, _seen) = gathering(era, vec![result(50)], &big);
            let gateway = start(&server, &policy, "");
            let answer = gateway.client(era, ANA).call("big", &json!({})).json();
            assert_eq!(answer["result"]["structuredContent"]["items"][49], 49, "{answer}");
        }
    }
}

/// Addresses of so many bytes, of which the last is at `host`.
fn recipients(bytes: usize, host: &str) -> Value {
    let mut to = vec!["ana.the-first@corp.example".to_owned(); bytes / 29];
    to.push(format!("last@{host}"));
    json!({ "to": to })
}

#[test]
fn a_rule_that_loops_over_what_it_may_be_given_decides_by_content_each_time() {
    const RULES: &str = r#"rules:
- {id: mail, effect: allow, principals: ['*'], servers: ['*'], tools: [send], when: 'arguments.to.all(t, t.matches(r"^[\w.+-]{1,64}@corp\.example$"))'}
- {id: rest, effect: allow, principals: ['*'], servers: ['*'], tools: [small]}"#;
    for era in ERAS {
        let server = Server::echo(era, &["send", "small"]);
        let gateway = Config::of(&server.url()).policy(RULES).start();
        let ana = gateway.client(era, ANA);
        let (good, bad) = (recipients(14_000, "corp.example"), recipients(14_000, "else.example"));
        assert!((13_500..15_000).contains(&good.to_string().len()));
        // Each is waited for no longer than any answer.
        for n in 0..50 {
            let given = if n % 2 == 0 { &good } else { &bad };
            let answer = ana.call("send", given);
            assert_eq!(answer.denial().is_none(), n % 2 == 0, "{era:?}: {answer:?}");
        }
        assert_eq!(server.tool_calls().len(), 25);
        let ends = gateway.exchanges().into_iter();
        let reasons: Vec<_> =
            ends.filter(|r| r["tool"] == "send").map(|r| r["reason"].clone()).collect();
        let denied = reasons.iter().filter(|reason| **reason == "not-granted").count();
        let made = reasons.iter().filter(|reason| reason.is_null()).count();
        assert_eq!((made, denied), (25, 25), "{era:?}: {reasons:?}");
    }
}

fn validated(config: &Config) -> Output {
    let folder = Folder::new();
    let file = folder.path().join("gateway.yaml");
    config.write(&file, &folder.path().join("audit.jsonl"));
    Command::new(binary()).arg("validate").arg(&file).output().unwrap()
}

#[test]
fn a_pattern_that_is_too_large_is_refused_when_the_file_is_read() {
    let rule = |pattern: &str| {
        format!(
            "rules:\n- {{id: mail, effect: allow, principals: ['*'], servers: ['*'], tools: ['*'], \
             when: 'arguments.to.matches(r\"{pattern}\")'}}"
        )
    };
    let config = |pattern: &str| Config::of("http://127.0.0.1:1/mcp").policy(&rule(pattern));
    let good = validated(&config(r"^[\w.+-]{1,64}@corp\.example$"));
    assert_eq!(good.status.code(), Some(0), "{}", String::from_utf8_lossy(&good.stderr));
    for (pattern, why) in [(r"^\w{1,9000}$", "size limit"), ("^(", "unclosed group")] {
        let refused = validated(&config(pattern));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(3), "{said}");
        for part in [why, "cannot be used", "gateway.yaml:", "= help: ", "1 problem"] {
            assert!(said.contains(part), "{part} in\n{said}");
        }
    }
}

#[test]
fn what_one_message_may_cost_is_a_setting() {
    for era in ERAS {
        let (server, _seen) = gathering(era, vec![text(&report(10_000))], &tool("big"));
        for (work, passes) in [("60000", false), ("1000000", true)] {
            let config = Config::of(&server.url()).policy(ALL);
            let config = config.limits(&format!("inspectionWork: {work}"));
            let gateway = config.start();
            let answer = gateway.client(era, ANA).call("big", &json!({}));
            if passes {
                assert!(answered(&answer).starts_with("Plain words"), "{answer:?}");
                assert_eq!(findings(&gateway, "inspection-budget"), 0);
            } else {
                withheld(&gateway, &answer);
            }
            // What is short is answered with either.
            let bob = gateway.client(era, BOB);
            assert_eq!(answered(&bob.call("small", &json!({}))), "done");
            assert!(validated(&config).status.success());
            let shown = config.verb(&["config", "show", "--effective"]).stdout;
            let shown = String::from_utf8_lossy(&shown).into_owned();
            assert!(shown.contains(&format!("inspectionWork: {work}")), "{shown}");
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the bound is one of real time")]
fn a_gateway_that_inspects_for_long_ends_in_its_time() {
    for era in ERAS {
        let long = text(&(repeated("![][", 2 * MIB) + &report(2 * MIB)));
        let (server, seen) = gathering(era, vec![long; 4], &tool("big"));
        let mut gateway = start(&server, "", "drainTimeout: 1s");
        let ana = gateway.client(era, ANA);
        let params = json!({ "name": "big", "arguments": {} });
        let bytes = |n: usize| ana.call_bytes(&json!(n), &params);
        let calls: Vec<_> = (0..4).map(|n| begun(&gateway, &bytes(n))).collect();
        (0..4).for_each(|_| seen.recv_timeout(LONG).unwrap());
        eventually("an inspection to be under way", || {
            (gateway.metric_now("portcullis_inspections_in_flight") > 0).then_some(())
        });
        let started = Instant::now();
        gateway.terminate();
        let code = gateway.ended();
        let took = started.elapsed();
        // 9 says that work was given up.
        assert!(matches!(code, Some(0 | 9)), "{era:?}: {code:?}");
        assert!(took < Duration::from_secs(20), "{era:?}: {took:?}");
        let records = gateway.records();
        assert!(records.iter().any(|record| record["event"] == "stop"), "{records:?}");
        drop(calls);
    }
}
