//! Nobody fills the log, the audit log or the disk by sending much of what is refused or unasked.

use std::fs;

use e2e::gateway::{ANA, Config, Folder};
use e2e::{ERAS, eventually};
use serde_json::{Value, json};

/// A server over stdio that sends answers nobody has asked for before each answer.
const STRAYS: &str = r#"
import json, sys

def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}))

TOOLS = {"tools": [{"name": "read", "description": "A tool.", "inputSchema": {"type": "object"}}]}
RESULTS = {
    "initialize": {
        "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
        "serverInfo": {"name": "strays", "version": "1"},
    },
    "tools/list": TOOLS,
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    for n in range(1000):
        send({"id": 1_000_000_000 + n, "result": {}})
    known = RESULTS.get(message["method"])
    answer = {"result": known} if known else {"error": {"code": -32601, "message": "no such method"}}
    send({"id": message["id"], **answer})
    sys.stdout.flush()
"#;

#[test]
fn a_server_that_sends_answers_nobody_asked_for_does_not_fill_the_log() {
    for era in ERAS {
        let folder = Folder::new();
        let program = folder.path().join("strays.py");
        fs::write(&program, STRAYS).unwrap();
        let server = format!("- {{name: up, command: python3, args: ['{}']}}", program.display());
        let gateway = Config::with(&server, "[up]").start();
        let ana = gateway.client(era, ANA);
        let mut calls = 0;
        // Each call brings a thousand; the lines that are written say how many were not.
        let (lines, suppressed) = eventually("a line that counts the others", || {
            calls += 1;
            assert_eq!(ana.call("read", &json!({})).status, 200);
            let log = gateway.log.lock().unwrap().clone();
            let lines: Vec<_> = log.lines().filter(|line| line.contains("nobody waits")).collect();
            let counts = lines.iter().map(|line| suppressed_in(line));
            let suppressed = counts.max().filter(|count| *count > 100)?;
            Some((lines.len(), suppressed))
        });
        assert!(lines < 50, "{lines} lines for {calls} calls; {suppressed} were suppressed");
    }
}

/// How many lines a line of the log says were suppressed before it.
#[expect(clippy::disallowed_methods, reason = "our own output")]
fn suppressed_in(line: &str) -> u64 {
    let line: Value = serde_json::from_str(line).unwrap_or_default();
    line["fields"]["suppressed"].as_u64().unwrap_or_default()
}
