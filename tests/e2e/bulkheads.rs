//! How many calls of a server are under way at once, and which calls are repeated (control C16).

use std::io::Write as _;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use e2e::client::{Answer, Client};
use e2e::gateway::{ANA, BOB, Config, printed};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era, eventually};
use serde_json::json;

const OPEN: &str =
    "rules:\n- {id: open, effect: allow, principals: ['*'], servers: ['*'], tools: ['*']}";

/// Holds calls back until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn pass(&self) {
        let (open, changed) = &*self.0;
        let mut open = open.lock().unwrap();
        while !*open {
            open = changed.wait(open).unwrap();
        }
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

/// A server whose tool `wait` answers when the gate is open.
fn slow(era: Era, gate: &Gate) -> Server {
    let gate = gate.clone();
    Server::with(era, json!([tool("wait"), tool("read")]), move |call, stream| {
        if call.tool() == "wait" {
            gate.pass();
        }
        stream.write_all(&call.text("done")).is_ok()
    })
}

/// A call that waits, once the server has it.
fn waiting(client: &Client, server: &Server, count: usize) -> JoinHandle<Answer> {
    let client = client.clone();
    let call = thread::spawn(move || client.call("up__wait", &json!({})));
    eventually("the call at the server", || (server.tool_calls().len() == count).then_some(()));
    call
}

#[test]
fn a_server_has_so_many_calls_at_once_and_each_caller_a_share_of_them() {
    for era in ERAS {
        for (bounds, status) in [
            ("maxConcurrent: 2", 429),
            ("maxConcurrent: 1", 503),
            ("maxConcurrent: 3, maxConcurrentPerCaller: 1", 429),
        ] {
            let gate = Gate::default();
            let (server, other) = (slow(era, &gate), Server::echo(era, &["read"]));
            let servers = format!(
                "- {{name: up, url: '{}', {bounds}}}\n- {{name: other, url: '{}'}}",
                server.url(),
                other.url()
            );
            let gateway = Config::with(&servers, "[up, other]").policy(OPEN).start();
            let (ana, bob) = (gateway.client(era, ANA), gateway.client(era, BOB));
            let first = waiting(&ana, &server, 1);
            let refused = ana.call("up__read", &json!({}));
            let expected = if era == Era::Modern { status } else { 200 };
            assert_eq!(refused.status, expected, "{bounds} {refused:?}");
            assert_eq!(refused.json()["error"]["data"]["reason"], "server-busy");
            assert_eq!(refused.header("retry-after"), Some("1"));
            assert_eq!(gateway.last()["reason"], "server-busy");
            assert_eq!(
                ana.call("other__read", &json!({})).text(),
                "done",
                "another server goes on"
            );
            let of_bob = bob.call("up__read", &json!({}));
            assert_eq!(of_bob.json()["error"].is_null(), status == 429, "{bounds} {of_bob:?}");
            assert_eq!(ana.tools().len(), 3, "lists are no calls");
            gate.open();
            assert_eq!(first.join().unwrap().text(), "done");
            eventually("a free place", || {
                (ana.call("up__read", &json!({})).code() == 0).then_some(())
            });
        }
    }
}

#[test]
fn shares_of_a_server_are_no_more_than_the_whole() {
    let server = Server::echo(Era::Modern, &["read"]);
    for (bounds, said) in [
        ("maxConcurrentPerCaller: 1", "what has no limit"),
        ("maxConcurrent: 1, maxConcurrentPerCaller: 2", "larger than the whole"),
    ] {
        let servers = format!("- {{name: up, url: '{}', {bounds}}}", server.url());
        let output = Config::with(&servers, "[up]").tried(&["validate"]);
        assert_eq!(output.status.code(), Some(3));
        assert!(printed(&output).contains(said), "{}", printed(&output));
    }
}

/// A server that breaks the connection of its first calls, before it answers.
fn flaky(era: Era, breaks: usize) -> Server {
    let left = Mutex::new(breaks);
    Server::with(era, json!([tool("read"), tool("write")]), move |call, stream| {
        let mut left = left.lock().unwrap();
        if *left > 0 {
            *left -= 1;
            return false;
        }
        stream.write_all(&call.text("done")).is_ok()
    })
}

#[test]
fn only_a_call_that_is_registered_as_idempotent_is_repeated_and_so_often() {
    let registry = "registry:\n  tools:\n  - {server: up, tool: read, idempotent: true, retries: 2}\n  \
                    - {server: up, tool: write, retries: 2}";
    for era in ERAS {
        for (tool, breaks, calls, retries, is_answered) in [
            ("read", 1, 2, json!(1), true),
            ("read", 2, 3, json!(2), true),
            ("read", 9, 3, json!(2), false),
            ("write", 1, 1, json!(null), false),
        ] {
            let server = flaky(era, breaks);
            let mut config = Config::of(&server.url()).policy(OPEN);
            config.more = registry.to_owned();
            let gateway = config.start();
            let answer = gateway.client(era, ANA).call(tool, &json!({}));
            assert_eq!(answer.code() == 0, is_answered, "{tool} {breaks} {era:?} {answer:?}");
            assert_eq!(server.tool_calls().len(), calls, "{tool} {breaks} {era:?}");
            let last = gateway.last();
            assert_eq!(last["retries"], retries, "{last}");
            if !is_answered {
                assert_eq!(last["reason"], "upstream-reset");
            }
            let made = retries.as_u64().unwrap_or_default();
            assert_eq!(gateway.metric("portcullis_upstream_retries_total"), made);
        }
    }
}
