//! A client that starts its server, and speaks with it over standard input and output.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use crate::{Era, PATIENCE, eventually};

/// A server that was started by its client.
#[derive(Debug)]
pub struct Started {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    said: Option<JoinHandle<String>>,
    era: Era,
    next: u64,
}

/// How it ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code.
    pub code: Option<i32>,
    /// What it said on standard error.
    pub said: String,
}

impl Started {
    /// Starts `command` for a client of this era, which says nothing yet.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn silent(mut command: Command, era: Era) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = std::sync::mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                #[expect(clippy::disallowed_methods, reason = "the gateway's output")]
                let message = serde_json::from_str(&line).unwrap();
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let said = thread::spawn(move || {
            let mut said = Vec::new();
            stderr.read_to_end(&mut said).unwrap();
            String::from_utf8_lossy(&said).into_owned()
        });
        let input = child.stdin.take();
        Self { child, input, lines, said: Some(said), era, next: 0 }
    }

    /// The same, and shakes hands where the era has that.
    ///
    /// # Panics
    /// When the handshake fails.
    #[must_use]
    pub fn new(command: Command, era: Era) -> Self {
        let mut started = Self::silent(command, era);
        if era == Era::Legacy {
            let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
            let greeted = started.ask("initialize", params);
            assert_eq!(greeted["result"]["protocolVersion"], "2025-11-25", "{greeted}");
            started.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        }
        started
    }

    /// Sends a message.
    ///
    /// # Panics
    /// When nobody reads it.
    pub fn say(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    /// Sends a request, and waits for the answer with its id; others are passed over.
    ///
    /// # Panics
    /// When there is none.
    pub fn ask(&mut self, method: &str, mut params: Value) -> Value {
        if self.era == Era::Modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        self.next += 1;
        let id = json!(self.next);
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message = self.lines.recv_timeout(PATIENCE).unwrap();
            if message["id"] == id {
                return message;
            }
            assert!(message["method"].is_string(), "an answer to nothing: {message}");
        }
    }

    /// The names of the tools that are listed.
    ///
    /// # Panics
    /// When there is no list.
    pub fn tools(&mut self) -> Vec<String> {
        let list = self.ask("tools/list", json!({}));
        let tools = list["result"]["tools"].as_array().unwrap_or_else(|| panic!("{list}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Calls a tool.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// Closes its input, and waits for its end.
    #[must_use]
    pub fn end(mut self) -> Ended {
        drop(self.input.take());
        self.ended()
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// When it does not.
    pub fn ended(&mut self) -> Ended {
        let status = eventually("the end of the server", || self.child.try_wait().unwrap());
        let said = self.said.take().unwrap().join().unwrap();
        Ended { code: status.code(), said }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // One that has ended cannot be killed, which is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
