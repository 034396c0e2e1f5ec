//! Commands that messages tell people to run, with the configuration that was named to this one: a hint can be pasted as
//! it is.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::{ArgMatches, Command, CommandFactory as _};

use super::{Arguments, USUAL};

/// What is put behind a command so that it reads the same configuration; empty where that is the usual one.
static NAMED: OnceLock<String> = OnceLock::new();

/// How a command begins in a message.
const BEGINS: &str = "portcullis ";

/// Keeps which configuration the command line names.
pub(super) fn remember(matches: &ArgMatches) {
    let mut named = None;
    let mut at = matches;
    while let Some((verb, inner)) = at.subcommand() {
        at = inner;
        for key in ["config", "file"].iter().take(if verb == "validate" { 2 } else { 1 }) {
            // A verb that has no such argument says so.
            if let Ok(Some(file)) = at.try_get_one::<PathBuf>(key) {
                named = Some(file.clone());
            }
        }
    }
    if let Some(file) = named.filter(|file| file != Path::new(USUAL)) {
        // It is set once, by the one command line there is.
        drop(NAMED.set(option(&file)));
    }
}

/// ` -c FILE` as a shell reads it.
pub(super) fn option(file: &Path) -> String {
    let text = file.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        format!(" -c {text}")
    } else {
        format!(" -c '{}'", text.replace('\'', "'\\''"))
    }
}

/// A message with the configuration in each command that reads one and names none.
pub(super) fn complete(text: &str) -> Cow<'_, str> {
    NAMED.get().map_or(Cow::Borrowed(text), |named| Cow::Owned(completed(text, named)))
}

/// Where the log goes: its lines have hints in them as well.
#[derive(Debug)]
pub(super) struct Completed<W>(pub(super) W);

impl<W: io::Write> io::Write for Completed<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(line) {
            Ok(text) if is_hint(text) => self.0.write_all(complete(text).as_bytes())?,
            Ok(_) | Err(_) => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Whether there is a command in a line of the log, and what would be put behind it needs no escape there.
fn is_hint(line: &str) -> bool {
    line.contains("`portcullis ") && NAMED.get().is_none_or(|named| !named.contains(['"', '\\']))
}

fn completed(text: &str, named: &str) -> String {
    let parts: Vec<_> = text.split('`').map(|part| completed_command(part, named)).collect();
    parts.join("`")
}

fn completed_command<'a>(part: &'a str, named: &str) -> Cow<'a, str> {
    let Some(rest) = part.strip_prefix(BEGINS) else { return Cow::Borrowed(part) };
    let mut words = rest.split_whitespace();
    if words.clone().any(|word| word == "-c" || word == "--config") {
        return Cow::Borrowed(part);
    }
    let whole = Arguments::command();
    let (mut verb, mut reads): (&Command, bool) = (&whole, false);
    while let Some(inner) = words.next().and_then(|word| verb.find_subcommand(word)) {
        verb = inner;
        reads = verb.get_arguments().any(|argument| argument.get_id() == "config");
    }
    if reads { Cow::Owned(format!("{part}{named}")) } else { Cow::Borrowed(part) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{completed, option};

    #[test]
    fn a_hint_names_the_configuration_that_was_named() {
        let named = option(Path::new("/etc/my gateway.yaml"));
        for (text, expected) in [
            ("run `portcullis pin`", "run `portcullis pin -c '/etc/my gateway.yaml'`"),
            (
                "`portcullis pin approve --server up --identity`",
                "`portcullis pin approve --server up --identity -c '/etc/my gateway.yaml'`",
            ),
            ("`portcullis keygen` makes one", "`portcullis keygen` makes one"),
            ("`portcullis pin key` has made", "`portcullis pin key` has made"),
            ("`portcullis run -c other.yaml`", "`portcullis run -c other.yaml`"),
            ("`rm -rf`", "`rm -rf`"),
        ] {
            assert_eq!(completed(text, &named), expected);
        }
    }
}
