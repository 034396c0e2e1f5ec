//! Helper processes. The gateway starts every program by way of its own executable: one process of it supervises the
//! program, another applies the sandbox to itself and becomes the program. [`begin`] is what they run.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use crate::base::clock::{Clock as _, SystemClock};
use crate::base::error_chain::ErrorChain;
use crate::config::settings::selftest::ATTACKER;
use crate::control::demo_server::{self, DemoTools};
use crate::process::sandbox::{self, StartTerms};

/// Prepares this process to start programs, and runs a helper if the gateway has started this process as one. `main`
/// returns the exit code then. An application that does not call this cannot use servers that are programs, nor the
/// self-test.
///
/// `main` calls it before anything else, while the process has one thread: a sandbox holds for the thread that makes it.
/// The memory of the process is kept from the programs that it starts, and it leaves no core dump. `line` is the command
/// line without the name of the program. `say` writes a line to standard error.
///
/// # Errors
/// If the memory of this process cannot be kept from others.
pub fn begin(
    line: impl IntoIterator<Item = OsString>,
    say: impl Fn(&str),
) -> io::Result<Option<ExitCode>> {
    sandbox::conceal()?;
    let mut line = line.into_iter();
    Ok(match line.next() {
        Some(verb) if verb == sandbox::VERB => Some(become_program(line, say)),
        Some(verb) if verb == sandbox::SUPERVISOR => Some(supervise(line, say)),
        Some(verb) if verb == ATTACKER[0] && line.by_ref().eq([ATTACKER[1]]) => Some(attack(say)),
        Some(_) | None => None,
    })
}

/// Applies the sandbox to this process, and replaces it with the program that follows on the command line.
fn become_program(mut line: impl Iterator<Item = OsString>, say: impl Fn(&str)) -> ExitCode {
    let terms = line.next().and_then(|text| StartTerms::read(text.to_str()?));
    let command = line.nth(1).and_then(|command| command.into_string().ok());
    let (Some(terms), Some(command)) = (terms, command) else {
        say("error: this verb is for the gateway itself");
        return ExitCode::FAILURE;
    };
    let rest: Vec<_> = line.collect();
    let Err(error) = terms.become_program(&command, &rest, &say);
    say(&format!("error: {}", ErrorChain(&error)));
    ExitCode::from(sandbox::REFUSED)
}

/// Starts a program, and waits until none of its processes is left.
fn supervise(line: impl Iterator<Item = OsString>, say: impl Fn(&str)) -> ExitCode {
    match sandbox::supervise(line) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&format!("error: the program cannot be watched over: {error}"));
            ExitCode::from(sandbox::REFUSED)
        }
    }
}

/// Runs the server of the self-test, over standard input and output.
fn attack(say: impl Fn(&str)) -> ExitCode {
    match demo_server::serve(|| SystemClock.now(), DemoTools::Attacker) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: the canary has ended: {error}"));
            ExitCode::FAILURE
        }
    }
}
