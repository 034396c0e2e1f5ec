//! Completes the `portcullis` commands that messages suggest with the `-c FILE` of the current command line, so that a
//! hint can be pasted as it is.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};

use clap::{ArgMatches, Command, CommandFactory as _};

use super::{Cli, USUAL};

/// The ` -c FILE` that is appended to suggested commands; empty if the configuration is the default one.
static NAMED: OnceLock<String> = OnceLock::new();

/// The verbs and their arguments. They are built once: building them takes longer than all else that a log line costs.
static COMMAND: LazyLock<Command> = LazyLock::new(Cli::command);

/// Prefix that marks a command in a message.
const BEGINS: &str = "portcullis ";

/// Stores which configuration the command line names.
pub(super) fn remember(matches: &ArgMatches) {
    let mut named = None;
    let mut at = matches;
    while let Some((verb, inner)) = at.subcommand() {
        at = inner;
        for key in ["config", "file"].iter().take(if verb == "validate" { 2 } else { 1 }) {
            // `Err` means that the verb has no such argument.
            if let Ok(Some(file)) = at.try_get_one::<PathBuf>(key) {
                named = Some(file.clone());
            }
        }
    }
    if let Some(file) = named.filter(|file| file != Path::new(USUAL)) {
        // There is only one command line, so this is set once.
        drop(NAMED.set(option(&file)));
    }
}

/// ` -c FILE`, quoted for a shell.
pub(super) fn option(file: &Path) -> String {
    format!(" -c {}", word(&file.display().to_string()))
}

/// Quotes `text` as one word of a suggested command, if a shell would read it otherwise.
pub(super) fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Adds the configuration to each command in `text` that reads one and names none.
pub(super) fn complete(text: &str) -> Cow<'_, str> {
    NAMED.get().map_or(Cow::Borrowed(text), |named| Cow::Owned(completed(text, named)))
}

/// Log writer that completes the hints in each line.
#[derive(Debug)]
pub(super) struct HintWriter<W>(pub(super) W);

impl<W: io::Write> io::Write for HintWriter<W> {
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

/// Whether a log line has a command in it, and the option can be inserted without escaping (the line may be JSON).
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
    let (mut verb, mut reads): (&Command, bool) = (&COMMAND, false);
    while let Some(inner) = words.next().and_then(|word| verb.find_subcommand(word)) {
        verb = inner;
        reads = verb.get_arguments().any(|argument| argument.get_id() == "config");
    }
    if reads { Cow::Owned(format!("{part}{named}")) } else { Cow::Borrowed(part) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{completed, option, word};

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

    #[test]
    fn a_word_of_a_suggested_command_is_quoted_where_a_shell_would_read_it_otherwise() {
        for (text, expected) in [
            ("/srv/project-portcullis", "/srv/project-portcullis"),
            ("/srv/my project", "'/srv/my project'"),
            ("/srv/$(id)", "'/srv/$(id)'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(word(text), expected);
        }
    }
}
