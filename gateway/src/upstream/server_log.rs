//! Log lines of and about an upstream server: limited in rate and length, without control characters and without
//! secrets.
//!
//! A program writes its error output for itself, not for the gateway's log: it may write its secrets, the data of a
//! caller, or any amount of text.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use policy_core::subject::name::ServerName;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};
use tokio::time::Instant;

use crate::base::log_limit::LogLimit;
use crate::base::masking;
use crate::base::printable::with_quotes;
use crate::base::secret::Secret;
use crate::metrics::ServerMetrics;
use crate::process::sandbox::{DeniedPath, DeniedPathFinder};

/// Lines per second of one server that are logged, after a burst. A server writes some dozens when it starts.
const PER_SECOND: u32 = 20;
const BURST: u32 = 200;
/// Lines per second that are logged about messages of one server outside of calls, after a burst.
const ABOUT_PER_SECOND: u32 = 1;
const ABOUT_BURST: u32 = 20;
/// Period in which one line is logged about refused requests of a server.
const QUESTION: Duration = Duration::from_mins(1);
/// The maximum number of characters of one logged line.
const MAX_LINE_CHARS: usize = 4096;
/// The number of bytes of a line that are examined, so that a secret cut off at the end of the shown part is found.
const READ: usize = 2 * MAX_LINE_CHARS;
/// Values of variables with fewer bytes are taken for words, not for secrets.
const SECRET: usize = 8;
/// Replaces a secret from the program's environment in the log.
const GIVEN: &str = "[REDACTED:given]";

/// The number of last lines of a program that are kept, and the number of characters of each.
const LAST_LINES: usize = 8;
const LAST_LINE_CHARS: usize = 500;
/// The number of characters that are kept of a line on standard output that is no message.
const STRAY_LINE_CHARS: usize = 200;

/// Limits the log lines of one server.
#[derive(Debug)]
pub(super) struct ServerLog {
    limit: LogLimit,
    counts: Arc<ServerMetrics>,
    /// The limit for lines about refused requests: a server repeats the same ones.
    questions: LogLimit,
    /// The last words of the program that ended last.
    last: Mutex<LastOutput>,
    /// When a process of the program was last started.
    start: Mutex<Option<SystemTime>>,
    /// The first line on its standard output that was no message, masked for display.
    stray: OnceLock<String>,
    /// Whether a process was ended because it wrote only such lines.
    flooded: AtomicBool,
}

/// The last output of a program that has ended, and a likely cause.
#[derive(Clone, Debug, Default)]
pub struct LastOutput {
    /// The last lines of its error output, masked for display.
    pub lines: Vec<String>,
    /// The path that it reports as refused, if its sandbox denies access to that path.
    pub closed: Option<DeniedPath>,
    /// The first line on standard output that was no message, of any of its processes, masked for display.
    pub stray: Option<String>,
    /// Whether the gateway ended one of its processes because it wrote too many such lines in a row.
    pub flooded: bool,
}

/// The last lines of one program as it wrote them, and the path that it reports as refused.
#[derive(Debug, Default)]
pub(super) struct OutputTail {
    lines: VecDeque<Vec<u8>>,
    refused: DeniedPathFinder,
}

/// The last error output of one program.
#[derive(Debug, Default)]
pub(super) struct ErrorOutput {
    /// The last lines, masked for display.
    pub(super) lines: Vec<String>,
    /// The path that it reports as refused.
    pub(super) refused: Option<PathBuf>,
}

/// Phrases for a certificate that a program does not trust, in lower case: OpenSSL, Node, Go and rustls.
const UNTRUSTED: [&str; 8] = [
    "unknownissuer",
    "certificate verify failed",
    "certificate signed by unknown authority",
    "self-signed certificate",
    "self signed certificate",
    "unable to get local issuer certificate",
    "unable to verify the first certificate",
    "unable_to_verify_leaf_signature",
];
/// Advice for a program that does not trust a certificate.
const TRUST: &str = "pass it the variable that names the certificates which your shell trusts, as in \
                     `env: [{name: SSL_CERT_FILE, fromEnv: SSL_CERT_FILE}]` (or `SSL_CERT_DIR`, `NODE_EXTRA_CA_CERTS`, \
                     `REQUESTS_CA_BUNDLE`): a program gets `PATH`, `HOME`, `LANG`, `TMPDIR` and what `env` names of the \
                     environment, and nothing else";

impl LastOutput {
    /// What the operator can do, where the lines say why the program has failed.
    #[must_use]
    pub fn mend(&self) -> Option<String> {
        let is_untrusted = |line: &String| {
            let line = line.to_ascii_lowercase();
            UNTRUSTED.iter().any(|phrase| line.contains(phrase))
        };
        let trust = || self.lines.iter().any(is_untrusted).then(|| TRUST.to_owned());
        self.closed.as_ref().map(DeniedPath::mend).or_else(trust)
    }
}

impl OutputTail {
    /// Adds a line and drops the oldest if there are too many.
    pub(super) fn push(&mut self, line: Vec<u8>) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        if self.lines.len() == LAST_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Searches a line for a refused path at once, because a stack trace after it may be longer than the kept lines.
    pub(super) fn look(&mut self, line: &[u8], given: &[(String, Arc<Secret>)]) {
        if self.refused.concerns(&String::from_utf8_lossy(line)) {
            self.refused.read(&shown(line, given));
        }
    }

    /// The lines, masked for display by [`shown`].
    pub(super) fn shown(self, given: &[(String, Arc<Secret>)]) -> ErrorOutput {
        let short = |line: &Vec<u8>| shown(line, given).chars().take(LAST_LINE_CHARS).collect();
        let lines = self.lines.iter().map(short).collect();
        ErrorOutput { lines, refused: self.refused.path() }
    }
}

impl ServerLog {
    pub(super) fn new(counts: Arc<ServerMetrics>) -> Arc<Self> {
        Arc::new(Self::with(LogLimit::new(PER_SECOND, BURST), counts))
    }

    fn with(limit: LogLimit, counts: Arc<ServerMetrics>) -> Self {
        let questions = LogLimit::every(QUESTION);
        let (last, start, stray) = (Mutex::default(), Mutex::default(), OnceLock::new());
        let flooded = AtomicBool::new(false);
        Self { limit, counts, questions, last, start, stray, flooded }
    }

    /// Notes that a process of the program is started at `now`.
    pub(super) fn starts(&self, now: SystemTime) {
        *self.start.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// When a process of the program was last started: what is newer than that, is newer than every process.
    pub(super) fn program_start(&self) -> Option<SystemTime> {
        *self.start.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the last words of a program that has ended.
    pub(super) fn ended(&self, said: LastOutput) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }

    /// Stores a line on standard output that is no message, if it is the first.
    pub(super) fn strays(&self, line: &[u8], given: &[(String, Arc<Secret>)]) {
        self.stray.get_or_init(|| {
            let line = line.get(..READ).unwrap_or(line);
            let mut text: String = shown(line, given).chars().take(STRAY_LINE_CHARS + 1).collect();
            if let Some((end, _)) = text.char_indices().nth(STRAY_LINE_CHARS) {
                text.truncate(end);
                text.push('…');
            }
            text
        });
    }

    /// Notes that a process is ended because it wrote too many lines in a row that are no messages.
    pub(super) fn floods(&self) {
        self.flooded.store(true, Ordering::Relaxed);
    }

    /// The last words of the program that ended last.
    pub(super) fn last(&self) -> LastOutput {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let flooded = self.flooded.load(Ordering::Relaxed);
        LastOutput { stray: self.stray.get().cloned(), flooded, ..last }
    }

    /// A limit for lines about a server, separate so that the server cannot suppress them with its own lines.
    pub(super) fn about(counts: Arc<ServerMetrics>) -> Self {
        Self::with(LogLimit::new(ABOUT_PER_SECOND, ABOUT_BURST), counts)
    }

    /// Counts progress of `server` that belongs to no request of its session or finds no room. Only the first is
    /// logged, because a server that reports progress in this way does so all the time.
    pub(super) fn progress_dropped(&self, server: &ServerName) {
        if self.counts.progress_dropped() {
            tracing::warn!(
                event = "notification.progress_dropped", %server,
                "progress dropped: it names no request in flight that asked for it, or too much progress \
                 waits; further drops are only counted"
            );
        }
    }

    /// Whether a line may be logged. Returns the number of lines suppressed since the last one; `None`, and counts
    /// the line as suppressed, if it must not be logged.
    pub(super) fn allow(&self, now: Instant) -> Option<u64> {
        self.within(&self.limit, now)
    }

    /// Like [`Self::allow`], for a line about a refused request of the server.
    pub(super) fn allow_question(&self, now: Instant) -> Option<u64> {
        self.within(&self.questions, now)
    }

    fn within(&self, limit: &LogLimit, now: Instant) -> Option<u64> {
        let allowed = limit.allow(now.into_std());
        if allowed.is_none() {
            self.counts.suppressed();
        }
        allowed
    }
}

/// The first bytes of the next line of `input`, which is read to its end; `None` at the end of the input.
pub(super) async fn beginning(input: &mut (impl AsyncBufRead + Unpin)) -> Option<Vec<u8>> {
    let (mut text, mut any) = (Vec::new(), false);
    loop {
        let buffer = input.fill_buf().await.ok()?;
        if buffer.is_empty() {
            return any.then_some(text);
        }
        any = true;
        let end = memchr::memchr(b'\n', buffer);
        let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
        let room = READ.saturating_sub(text.len());
        text.extend_from_slice(part.get(..room.min(part.len())).unwrap_or_default());
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Some(text);
        }
    }
}

/// Masks a line for the log. All values from the program's environment are treated as secrets.
pub(super) fn shown(line: &[u8], given: &[(String, Arc<Secret>)]) -> String {
    let mut text = String::from_utf8_lossy(line).into_owned();
    for (_, secret) in given.iter().filter(|(_, secret)| secret.expose().len() >= SECRET) {
        for spelling in spellings(secret.expose()) {
            if text.contains(&*spelling) {
                text = text.replace(&*spelling, GIVEN);
            }
        }
    }
    let text = masking::secrets(&text);
    let mut shown = String::new();
    let escaped = with_quotes(&text.trim_end_matches('\r').escape_debug().to_string());
    for (n, character) in escaped.chars().enumerate() {
        if n == MAX_LINE_CHARS {
            shown.push('…');
            break;
        }
        shown.push(character);
    }
    shown
}

/// How a program may print a value: as it is, as a string of JSON or of a debugging output, and line by line.
fn spellings(value: &str) -> Vec<Cow<'_, str>> {
    let mut all = vec![Cow::Borrowed(value)];
    if value.bytes().any(|byte| matches!(byte, b'"' | b'\\' | b'\'' | ..b' ' | 0x7f..)) {
        // As writers of JSON and of `repr` escape it, with and without characters beyond ASCII.
        let escaped = value.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r");
        let escaped = escaped.replace('\t', "\\t");
        let quoted = escaped.replace('"', "\\\"");
        let ascii = |text: &str| -> String {
            let mut units = [0; 2];
            let mut out = String::new();
            for character in text.chars() {
                if character.is_ascii() {
                    out.push(character);
                } else {
                    let units = character.encode_utf16(&mut units).iter();
                    out.extend(units.map(|unit| format!("\\u{unit:04x}")));
                }
            }
            out
        };
        all.extend([ascii(&escaped), ascii(&quoted), escaped.replace('\'', "\\'")].map(Cow::Owned));
        all.extend([escaped, quoted].map(Cow::Owned));
    }
    let lines = value.lines().map(str::trim).filter(|line| line.len() >= SECRET);
    all.extend(lines.filter(|line| line.len() < value.len()).map(Cow::Borrowed));
    all
}

#[cfg(test)]
mod tests {
    use super::{
        LAST_LINE_CHARS, LAST_LINES, LastOutput, MAX_LINE_CHARS, OutputTail, beginning, shown,
    };
    use crate::base::secret::Secret;
    use std::sync::Arc;

    #[test]
    fn a_line_in_the_log_is_short_and_has_no_secret_and_no_control_character() {
        let given = [("KEY".to_owned(), Arc::new(Secret::new("correct horse battery".into())))];
        let line =
            b"\x1b[31mhello correct horse battery, and ghp_1234567890abcdefghijABCDEFGHIJ123456";
        let text = shown(line, &given);
        assert!(!text.contains("battery") && !text.contains("ghp_1234"), "{text}");
        assert!(!text.contains('\x1b') && text.contains("REDACTED:given"), "{text}");
        assert!(shown(&[1; 100_000], &[]).chars().count() <= MAX_LINE_CHARS + 1);
        let given = |value: &str| [("KEY".to_owned(), Arc::new(Secret::new(value.into())))];
        let pem = given("-----BEGIN SECRET-----\nQ29ycmVjdEhvcnNl\n  TWFueUxpbmVzT2Y\nabc\n");
        assert_eq!(shown(b"> Q29ycmVjdEhvcnNl", &pem), "> [REDACTED:given]");
        assert_eq!(shown(b"TWFueUxpbmVzT2Y\r", &pem), "[REDACTED:given]");
        // A short line is a word.
        assert_eq!(shown(b"abc", &pem), "abc");
        let odd = given("pa\"ss\\w'ordé🔑");
        for line in [
            r#"{"key":"pa\"ss\\w'ordé🔑"}"#,
            r#"{"key":"pa\"ss\\w'ord\u00e9\ud83d\udd11"}"#,
            r#"repr 'pa"ss\\w\'ordé🔑'"#,
        ] {
            let text = shown(line.as_bytes(), &odd);
            assert!(text.contains("REDACTED:given") && !text.contains("ord"), "{line}: {text}");
        }
        // As libraries for HTTP write what they ask.
        let asked = shown(b"GET https://api.example/a?api_key=k-1&n=2", &[]);
        assert_eq!(asked, "GET https://api.example/a?api_key=***&n=2");
        assert_eq!(shown("déjà vu: 3 of 4".as_bytes(), &[]), "déjà vu: 3 of 4");
        let traced = "  File \"server.py\", line 3: {'id': 1}";
        assert_eq!(shown(traced.as_bytes(), &[]), traced);
    }

    #[test]
    fn a_certificate_that_is_not_trusted_is_a_matter_of_the_environment() {
        let said = |line: &str| {
            LastOutput { lines: vec![line.to_owned()], ..LastOutput::default() }.mend()
        };
        let mend = said("invalid peer certificate: UnknownIssuer").unwrap();
        for name in crate::upstream::stdio::INHERITED {
            assert!(mend.contains(&format!("`{name}`")), "{name}");
        }
        assert!(mend.contains("SSL_CERT_FILE"), "{mend}");
        assert!(said("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed").is_some());
        assert_eq!(said("no such file"), None);
    }

    #[test]
    fn the_last_lines_are_few_and_short_and_have_no_secret() {
        let given = [("KEY".to_owned(), Arc::new(Secret::new("correct horse battery".into())))];
        let mut tail = OutputTail::default();
        for n in 0..100 {
            tail.push(format!("line {n} with correct horse battery").into_bytes());
            tail.push(b"  ".to_vec());
        }
        tail.push(b"a word ".repeat(1200));
        let said = tail.shown(&given).lines;
        assert_eq!(said.len(), LAST_LINES);
        assert_eq!(said[0], "line 93 with [REDACTED:given]");
        assert_eq!(said[LAST_LINES - 1].chars().count(), LAST_LINE_CHARS);
    }

    #[test]
    fn a_line_without_end_is_read_to_its_end_and_kept_in_part() {
        let text = [vec![b'x'; 3_000_000], b"\nnext\nlast".to_vec()].concat();
        let mut input = &text[..];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut next = || runtime.block_on(beginning(&mut input));
        assert_eq!(next().unwrap().len(), super::READ);
        assert_eq!(next().as_deref(), Some(&b"next"[..]));
        assert_eq!(next().as_deref(), Some(&b"last"[..]));
        assert_eq!(next(), None);
    }
}
