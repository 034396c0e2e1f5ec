//! What a server says that goes to the log: bounded in number and in length, without control characters
//! and without secrets.
//!
//! A program writes its error output for itself, not for our log: it may write what it was given, what a
//! caller sent, or as much as it can.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::name::ServerName;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};
use tokio::time::Instant;

use crate::base::log_limit::LogLimit;
use crate::base::masking;
use crate::base::printable::with_quotes;
use crate::base::secret::Secret;
use crate::metrics::OfServer;
use crate::process::sandbox::{Closed, Refused};

/// Lines a second of one server that are logged, after a burst. A server that starts says some dozens.
const PER_SECOND: u32 = 20;
const BURST: u32 = 200;
/// Lines a second about what one server says or asks outside of calls, after a burst.
const ABOUT_PER_SECOND: u32 = 1;
const ABOUT_BURST: u32 = 20;
/// The time in which one line is logged about questions of a server that are refused.
const QUESTION: Duration = Duration::from_mins(1);
/// Characters of one line that are logged.
const LONGEST: usize = 4096;
/// Bytes of a line that are looked at: a secret that is cut off at the end of what is shown is still found.
const READ: usize = 2 * LONGEST;
/// Shorter values of variables are words, not secrets.
const SECRET: usize = 8;
/// What stands in the log in the place of a secret that the program was given.
const GIVEN: &str = "[REDACTED:given]";

/// Lines that are kept of what a program said last, and characters of each.
const LAST: usize = 8;
const KEPT: usize = 500;

/// A bound on what one server puts into the log.
#[derive(Debug)]
pub(super) struct Noise {
    limit: LogLimit,
    counts: Arc<OfServer>,
    /// The same for questions that are refused: a server asks the same ones again and again.
    questions: LogLimit,
    /// What the last program that has ended left behind.
    last: Mutex<LastWords>,
}

/// What a program that has ended said last, and what comes of it.
#[derive(Clone, Debug, Default)]
pub struct LastWords {
    /// The last lines of its error output, as they may be shown.
    pub lines: Vec<String>,
    /// The path that it was refused, where its sandbox closes that.
    pub closed: Option<Closed>,
}

/// The last lines of one program, as it wrote them, and the path that it says it was refused.
#[derive(Debug, Default)]
pub(super) struct Tail {
    lines: VecDeque<Vec<u8>>,
    refused: Refused,
}

/// What a program said last on its error output.
#[derive(Debug, Default)]
pub(super) struct Complaint {
    /// The last lines, as they may be shown.
    pub(super) lines: Vec<String>,
    /// The path that it says it was refused.
    pub(super) refused: Option<PathBuf>,
}

impl Tail {
    /// Takes one more, and lets go of the first where there are enough.
    pub(super) fn push(&mut self, line: Vec<u8>) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        if self.lines.len() == LAST {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Looks at a line for a path that was refused. A trace may follow it that is longer than what is kept.
    pub(super) fn look(&mut self, line: &[u8], given: &[(String, Arc<Secret>)]) {
        if self.refused.concerns(&String::from_utf8_lossy(line)) {
            self.refused.read(&shown(line, given));
        }
    }

    /// Them as they may be shown: see [`shown`].
    pub(super) fn shown(self, given: &[(String, Arc<Secret>)]) -> Complaint {
        let short = |line: &Vec<u8>| shown(line, given).chars().take(KEPT).collect();
        let lines = self.lines.iter().map(short).collect();
        Complaint { lines, refused: self.refused.path() }
    }
}

impl Noise {
    pub(super) fn new(counts: Arc<OfServer>) -> Arc<Self> {
        let (limit, last) = (LogLimit::new(PER_SECOND, BURST), Mutex::default());
        Arc::new(Self { limit, counts, questions: LogLimit::every(QUESTION), last })
    }

    /// Keeps what a program said last.
    pub(super) fn ended(&self, said: LastWords) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }

    /// What the last program that has ended said last.
    pub(super) fn last(&self) -> LastWords {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same for lines about what it says, which it must not hide behind its own.
    pub(super) fn about(counts: Arc<OfServer>) -> Self {
        let (limit, last) = (LogLimit::new(ABOUT_PER_SECOND, ABOUT_BURST), Mutex::default());
        Self { limit, counts, questions: LogLimit::every(QUESTION), last }
    }

    /// Counts progress of `server` that belongs to no request of its session, or finds no room. The first is logged; a server
    /// that reports in this way does so all the time.
    pub(super) fn progress_dropped(&self, server: &ServerName) {
        if self.counts.progress_dropped() {
            tracing::warn!(
                %server,
                "progress was dropped: it names no request of its session that is under way and wants it, or too much waits \
                 for the request; what is dropped from now on is counted and not logged"
            );
        }
    }

    /// Whether a line may be logged, and how many were not since the last one; counted if it may not.
    pub(super) fn allow(&self, now: Instant) -> Option<u64> {
        self.within(&self.limit, now)
    }

    /// The same for a line about a question of the server that is refused.
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

/// The beginning of the next line of `input`, however long it is; `None` at its end.
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

/// A line as it may stand in the log. What the program was given in its environment is a secret, whatever
/// it looks like.
pub(super) fn shown(line: &[u8], given: &[(String, Arc<Secret>)]) -> String {
    let mut text = String::from_utf8_lossy(line).into_owned();
    for (_, secret) in given.iter().filter(|(_, secret)| secret.expose().len() >= SECRET) {
        if text.contains(secret.expose()) {
            text = text.replace(secret.expose(), GIVEN);
        }
    }
    let text = masking::secrets(&text);
    let mut shown = String::new();
    let escaped = with_quotes(&text.trim_end_matches('\r').escape_debug().to_string());
    for (n, character) in escaped.chars().enumerate() {
        if n == LONGEST {
            shown.push('…');
            break;
        }
        shown.push(character);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::{KEPT, LAST, LONGEST, Tail, beginning, shown};
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
        assert!(shown(&[1; 100_000], &[]).chars().count() <= LONGEST + 1);
        // As libraries for HTTP write what they ask.
        let asked = shown(b"GET https://api.example/a?api_key=k-1&n=2", &[]);
        assert_eq!(asked, "GET https://api.example/a?api_key=***&n=2");
        assert_eq!(shown("déjà vu: 3 of 4".as_bytes(), &[]), "déjà vu: 3 of 4");
        let traced = "  File \"server.py\", line 3: {'id': 1}";
        assert_eq!(shown(traced.as_bytes(), &[]), traced);
    }

    #[test]
    fn the_last_lines_are_few_and_short_and_have_no_secret() {
        let given = [("KEY".to_owned(), Arc::new(Secret::new("correct horse battery".into())))];
        let mut tail = Tail::default();
        for n in 0..100 {
            tail.push(format!("line {n} with correct horse battery").into_bytes());
            tail.push(b"  ".to_vec());
        }
        tail.push(b"a word ".repeat(1200));
        let said = tail.shown(&given).lines;
        assert_eq!(said.len(), LAST);
        assert_eq!(said[0], "line 93 with [REDACTED:given]");
        assert_eq!(said[LAST - 1].chars().count(), KEPT);
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
