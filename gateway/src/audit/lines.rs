//! Formats records for a person at a terminal: a short line for each exchange that has ended.
//!
//! ```text
//! 11:02:52 DENY   ana files/read_text_file only-shared-files
//! ```
//!
//! The time is UTC, as in the records. Text from clients and upstream servers is clipped and escaped. A terminal that
//! does not accept output loses lines and delays nothing.

use std::fmt;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use audit_log::chain::read;
use json::Value;
use policy_core::subject::name::RESERVED;

use super::{Observer, Record};
use crate::base::log_queue;
use crate::base::printable::in_a_line;
use crate::config::settings::selftest::PATH;
use crate::metrics::outcome::ExchangeEnd;

/// Maximum number of lines that wait to be written.
const LINE_QUEUE: usize = 1024;
/// Maximum number of characters of a name in a line.
const NAME: usize = 96;
/// Peer address that the self-test calls from.
const NOBODY: &str = "127.0.0.1:0";
/// Marks a line about the self-test, whose denials are no attacks by somebody else.
pub const OF_SELFTEST: &str = " (self-test)";

/// Whether lines are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// With ANSI colour sequences.
    Shown,
    /// Without: the output is no terminal, has no colours, or the operator turned them off.
    None,
}

/// An observer that writes a line for each exchange to standard error.
pub struct TerminalLines {
    to: SyncSender<Vec<u8>>,
    lost: AtomicU64,
}

impl fmt::Debug for TerminalLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl TerminalLines {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(colours: Colours) -> io::Result<Self> {
        let (to, from) = sync_channel(LINE_QUEUE);
        let thread = thread::Builder::new().name("lines".to_owned());
        thread.spawn(move || write(&from, colours))?;
        Ok(Self { to, lost: AtomicU64::new(0) })
    }

    fn send(&self, record: Vec<u8>) -> bool {
        self.to.try_send(record).is_ok()
    }
}

impl Observer for TerminalLines {
    fn ended(&self, record: &Record, ending: ExchangeEnd, now: Instant) {
        if !self.send(record.exchange("", ending, now)) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(
                event = "audit.lines_dropped",
                lost,
                "request lines were dropped from the terminal; the audit log has them"
            );
        }
    }
}

fn write(from: &Receiver<Vec<u8>>, colours: Colours) {
    // By way of the queue of the log, so that no line stands within another.
    let mut out = log_queue::writer();
    while let Ok(record) = from.recv() {
        if let Some(line) = line(&record, colours) {
            // If standard error fails, there is nowhere to report it.
            drop(out.write_all(format!("{line}\n").as_bytes()));
        }
    }
}

/// Formats a record as a line; `None` for records without interest to a person: intents and checkpoints.
#[must_use]
pub fn line(record: &[u8], colours: Colours) -> Option<String> {
    let document = read(record.trim_ascii_end())?;
    let record = document.root();
    let text = |key: &str| record.get(key).and_then(Value::as_str);
    let event = text("event")?;
    let (word, rest) = match &*event {
        "exchange" => (word(&text("outcome")?, record), exchange(record)),
        "refusals" => (word(&text("outcome")?, record), counted(record)),
        "intent" | "checkpoint" => return None,
        _ => {
            let what = text("what").map(|what| clipped(&what, NAME * 4)).unwrap_or_default();
            (OutcomeWord { text: "LOG", colour: "2" }, format!("{event} {what}"))
        }
    };
    let mark = if is_of_selftest(record) { OF_SELFTEST } else { "" };
    let rest = format!("{}{mark}", rest.trim_end());
    let time = text("time")?;
    let time = time.get(11..19).unwrap_or_default();
    let OutcomeWord { text, colour } = word;
    Some(match colours {
        Colours::Shown => {
            format!("\u{1b}[2m{time}\u{1b}[0m \u{1b}[{colour}m{text:<6}\u{1b}[0m {rest}")
        }
        Colours::None => format!("{time} {text:<6} {rest}"),
    })
}

/// Whether the record is of an exchange of the self-test, or of an event about its server. The self-test calls from
/// port 0 of the loopback address, from which nobody can connect, on a route of its own; a real caller of that route
/// has another peer address. The report of the self-test (`selftest`) is not one of its exchanges.
#[must_use]
pub fn is_of_selftest(record: Value<'_>) -> bool {
    let text = |name: &str| record.get(name).and_then(Value::as_str);
    let called = text("peer").as_deref() == Some(NOBODY)
        && text("listener").as_deref() != Some("stdio")
        && text("route").is_some_and(|route| route.starts_with(PATH));
    let about = ["definition", "shadowing"].iter().any(|it| text("event").as_deref() == Some(it))
        && text("what").is_some_and(|what| what.starts_with(&format!("server `{RESERVED}`,")));
    called || about
}

/// The outcome of an exchange as a word.
struct OutcomeWord {
    text: &'static str,
    /// Its SGR colour code (ECMA-48).
    colour: &'static str,
}

fn word(outcome: &str, record: Value<'_>) -> OutcomeWord {
    let allowed = record.get("decision").and_then(Value::as_str).as_deref() == Some("allow");
    let (text, colour) = match outcome {
        "answered" if allowed => ("ALLOW", "32"),
        "answered" => ("OK", "32"),
        "denied" => ("DENY", "31"),
        "refused" => ("REFUSE", "33"),
        "cancelled" => ("CANCEL", "33"),
        // Failures, and outcomes that later versions may add.
        _ => ("FAIL", "35"),
    };
    OutcomeWord { text, colour }
}

/// Formats the caller, the target and the reason of an exchange.
fn exchange(record: Value<'_>) -> String {
    let text = |key: &str| record.get(key).and_then(Value::as_str);
    let peer =
        || text("peer").map(|peer| peer.rsplit_once(':').map_or(&*peer, |(ip, _)| ip).to_owned());
    let who = text("principal").map(|who| who.into_owned()).or_else(peer).unwrap_or_default();
    format!("{} {} {}", clipped(&who, NAME), what(record), why(record))
}

/// The target of a request: `SERVER/NAME`, or the method.
fn what(record: Value<'_>) -> String {
    let text = |key: &str| record.get(key).and_then(Value::as_str);
    let server = text("server");
    let item = ["tool", "prompt", "resource", "template", "skill"].iter().find_map(|key| text(key));
    let Some(item) = item else {
        // A request without an MCP method, such as the end of a session, is shown by its HTTP method.
        let of_http = || Some(format!("{} {}", text("httpMethod")?, text("route")?));
        let method = text("method").map(String::from).or_else(of_http);
        let method = method.or_else(|| text("route").map(String::from));
        let method = method.map_or_else(|| "-".to_owned(), |method| clipped(&method, NAME * 2));
        return match server {
            Some(server) => format!("{method} {}", clipped(&server, NAME)),
            None => method,
        };
    };
    let Some(server) = server else { return clipped(&item, NAME) };
    // On a route with several servers, the name of a tool includes its server.
    let (double, plus) = (format!("{server}__"), format!("{server}+"));
    let bare = item.strip_prefix(&double).or_else(|| item.strip_prefix(&plus)).unwrap_or(&item);
    format!("{}/{}", clipped(&server, NAME), clipped(bare, NAME))
}

/// A finding for a person: one without a place is about the whole message.
#[must_use]
pub fn finding_in_words(finding: &str) -> String {
    finding.replacen(" at ``: ", ": ", 1)
}

/// The reason of an outcome: the rule that denied it, otherwise the reason code, and the first finding.
fn why(record: Value<'_>) -> String {
    let text = |key: &str| record.get(key).and_then(Value::as_str);
    let (rule, reason) = (text("rule"), text("reason"));
    let is_denied = text("outcome").as_deref() == Some("denied");
    let mut parts = Vec::new();
    match (rule, reason) {
        (Some(rule), Some(reason)) if is_denied && reason == "forbidden" => {
            parts.push(clipped(&rule, NAME))
        }
        (rule, Some(reason)) => {
            parts.push(clipped(&reason, NAME));
            parts.extend(rule.map(|rule| clipped(&rule, NAME)));
        }
        (Some(rule), None) => parts.push(clipped(&rule, NAME)),
        (None, None) => {}
    }
    parts.extend(text("detail").map(|detail| format!("({})", clipped(&detail, NAME))));
    parts.extend(text("missing").map(|name| format!("without `{}`", clipped(&name, NAME))));
    let found = ["findings", "found"].iter().filter_map(|key| record.get(key));
    let mut found = found.flat_map(Value::items).filter_map(Value::as_str);
    let is_of_flow = |finding: &str| finding.starts_with("flow at ");
    let by_flow = text("reason").is_some_and(|reason| reason.starts_with("flow-"));
    match text("reason") {
        Some(_) => {
            // The finding that the reason is about comes first.
            let mut all: Vec<_> = found.collect();
            all.sort_by_key(|finding| by_flow && !is_of_flow(finding));
            let first = all.first();
            parts.extend(first.map(|finding| clipped(&finding_in_words(finding), NAME)));
        }
        // What flow control only observes lets the call pass.
        None => {
            let observed = found.find(|finding| is_of_flow(finding));
            parts.extend(observed.map(|finding| {
                format!("(not enforced: {})", clipped(&finding_in_words(&finding), NAME))
            }));
        }
    }
    let micros = record.get("durationMicros").and_then(|all| all.get("total"));
    let micros = micros.and_then(|total| total.raw().parse::<u64>().ok());
    parts.extend(micros.map(|micros| format!("{}ms", micros / 1000)));
    parts.join(" ")
}

/// Formats a summary of refused requests.
fn counted(record: Value<'_>) -> String {
    let text = |key: &str| record.get(key).and_then(Value::as_str);
    let count = record.get("count").map(|count| count.raw().to_owned()).unwrap_or_default();
    let from =
        ["address", "principal", "server"].iter().find_map(|key| text(key)).unwrap_or_default();
    format!("{} {count} more {}", clipped(&from, NAME), why(record))
}

/// Clips a text to `most` characters and escapes it for a terminal.
fn clipped(text: &str, most: usize) -> String {
    let short: String = text.chars().take(most).collect();
    let dots = if short.len() < text.len() { "..." } else { "" };
    format!("{}{dots}", in_a_line(&short))
}

#[cfg(test)]
mod tests {
    use super::{Colours, line};

    #[test]
    fn a_request_is_a_line() {
        let start = r#"{"event":"exchange","outcome":"#;
        let end = r#","time":"2026-11-22T11:02:52.123456Z"}"#;
        for (middle, wanted) in [
            (
                r#""denied","principal":"ana","reason":"forbidden","rule":"only-shared-files","server":"files","tool":"read_text_file""#,
                "11:02:52 DENY   ana files/read_text_file only-shared-files",
            ),
            (
                r#""answered","decision":"allow","durationMicros":{"total":12345},"principal":"ana","rule":"read","server":"files","tool":"files__read""#,
                "11:02:52 ALLOW  ana files/read read 12ms",
            ),
            (
                r#""denied","listener":"main","peer":"127.0.0.1:0","principal":"portcullis-selftest","reason":"revoked","route":"/portcullis-selftest","server":"portcullis-selftest","tool":"selftest_revoked""#,
                "11:02:52 DENY   portcullis-selftest portcullis-selftest/selftest_revoked revoked (self-test)",
            ),
            // A stranger on its route.
            (
                r#""denied","listener":"main","peer":"127.0.0.1:4711","principal":"ana","reason":"not-granted","route":"/portcullis-selftest","tool":"x""#,
                "11:02:52 DENY   ana x not-granted",
            ),
            (
                r#""refused","detail":"signature","method":"tools/list","peer":"192.0.2.1:4711","reason":"token-refused""#,
                "11:02:52 REFUSE 192.0.2.1 tools/list token-refused (signature)",
            ),
            (
                r#""answered","durationMicros":{"total":2100},"httpMethod":"DELETE","principal":"ana","route":"/tickets""#,
                "11:02:52 OK     ana DELETE /tickets 2ms",
            ),
            (
                r#""denied","missing":"owner","principal":"ana","reason":"condition-error","rule":"own","server":"up","tool":"drop""#,
                "11:02:52 DENY   ana up/drop condition-error own without `owner`",
            ),
            (
                r#""denied","found":["server-requests at ``: server-request-not-configured"],"principal":"ana","reason":"server-request-not-configured","server":"up","tool":"work""#,
                "11:02:52 DENY   ana up/work server-request-not-configured server-requests: server-request-not-configured",
            ),
            (
                r#""refused","method":"a\u001b[31mb\nc\u202ed","peer":"[::1]:1","reason":"x""#,
                "11:02:52 REFUSE [::1] a\\u001b[31mb\\nc\\u202ed x",
            ),
        ] {
            let record = format!("{start}{middle}{end}");
            assert_eq!(line(record.as_bytes(), Colours::None).unwrap(), wanted);
            let coloured = line(record.as_bytes(), Colours::Shown).unwrap();
            assert!(coloured.starts_with("\u{1b}[2m11:02:52\u{1b}[0m \u{1b}["), "{coloured:?}");
        }
        let long = format!("{start}\"denied\",\"principal\":\"{}\"{end}", "x".repeat(4000));
        assert!(line(long.as_bytes(), Colours::None).unwrap().len() < 200);
        let intent = br#"{"event":"intent","time":"2026-11-22T11:02:52.123456Z"}"#;
        assert_eq!(line(intent, Colours::None), None);
    }
}
