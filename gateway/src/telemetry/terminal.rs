//! Formats log events for a terminal: the time in UTC, the level, the message and the fields, on one line. A `note` is
//! put behind the message, then a mark where the line is about the server of the self-test, and the name of the `event`, which is meant for programs, is left out. Control characters
//! are escaped, so that text from peers can neither begin a line nor control the terminal.

use std::fmt::{self, Write as _};

use policy_core::subject::name::RESERVED;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::audit::lines::{Colours, OF_SELFTEST};
use crate::base::clock::{Clock as _, SystemClock};
use crate::base::printable::in_a_line;

/// Formats each log event as one line of text.
#[derive(Clone, Copy, Debug)]
pub struct TerminalFormat(pub Colours);

/// The message of an event, its note, and its other fields.
#[derive(Default)]
struct EventText {
    message: String,
    note: String,
    /// Marks a line about the server of the self-test.
    mark: &'static str,
    fields: String,
}

impl Visit for EventText {
    fn record_u64(&mut self, field: &Field, value: u64) {
        // The number of lines that a limit left out before this one, which is nearly always none.
        if field.name() != "suppressed" || value > 0 {
            self.put(field, format_args!("{value}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format_args!("{value:?}"));
    }
}

impl EventText {
    fn put(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        match field.name() {
            "message" => write!(self.message, "{value}").unwrap_or_default(),
            "note" => write!(self.note, ": {value}").unwrap_or_default(),
            "event" => {}
            name => {
                if name == "server" && value.to_string() == RESERVED {
                    self.mark = OF_SELFTEST;
                }
                write!(self.fields, " {name}={value}").unwrap_or_default();
            }
        }
    }
}

impl<S, N> FormatEvent<S, N> for TerminalFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut said = EventText::default();
        event.record(&mut said);
        let time = humantime::format_rfc3339_seconds(SystemClock.now()).to_string();
        let time = time.get(11..19).unwrap_or_default();
        let (word, colour) = match *event.metadata().level() {
            Level::ERROR => ("ERROR", "31"),
            Level::WARN => ("WARN", "33"),
            Level::INFO => ("INFO", "32"),
            Level::DEBUG => ("DEBUG", "2"),
            Level::TRACE => ("TRACE", "2"),
        };
        let EventText { message, note, mark, fields } = said;
        let message = in_a_line(&format!("{message}{note}{mark}"));
        let fields = in_a_line(&fields);
        match self.0 {
            Colours::Shown => {
                writeln!(
                    out,
                    "\u{1b}[2m{time}\u{1b}[0m \u{1b}[{colour}m{word:<6}\u{1b}[0m {message}{fields}"
                )
            }
            Colours::None => writeln!(out, "{time} {word:<6} {message}{fields}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::{Colours, TerminalFormat};

    /// What was written.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_has_its_note_and_no_event_name_and_counts_the_suppressed_lines() {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(TerminalFormat(Colours::None))
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(server = "up", suppressed = 0_u64, "first");
            tracing::warn!(server = "up", suppressed = 7_u64, "second");
            tracing::warn!(event = "a.third", server = "up", note = "why", "third");
            tracing::warn!(server = %"portcullis-selftest", note = "why", "fourth");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = text.lines().map(|line| line.get(9..).unwrap()).collect();
        let expected = [
            "WARN   first server=up",
            "WARN   second server=up suppressed=7",
            "WARN   third: why server=up",
            "WARN   fourth: why (self-test) server=portcullis-selftest",
        ];
        assert_eq!(lines, expected);
    }
}
