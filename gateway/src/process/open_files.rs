//! The limit of open files (`RLIMIT_NOFILE`) of the gateway and of the programs that it starts.
//!
//! Service managers and shells give a process 1024 open files and let it ask for more. The gateway needs one for each
//! connection, so it asks. A program that it starts gets what the gateway was given: one that uses `select` fails with
//! larger descriptors.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit, setrlimit};

/// The limit that this process was given, if [`raise`] has raised it.
static GIVEN: OnceLock<u64> = OnceLock::new();

/// Raises the limit of this process to the most that it may ask for.
///
/// # Errors
/// If the kernel refuses it.
pub fn raise() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let Some(given) = limit.current.filter(|_| limit.current != limit.maximum) else {
        return Ok(());
    };
    set(limit.maximum)?;
    // Another gateway of this process may have raised it before; what it was given stays.
    GIVEN.get_or_init(|| given);
    Ok(())
}

/// The limit that this process was given; `None` if it was not raised.
#[must_use]
pub fn given() -> Option<u64> {
    GIVEN.get().copied()
}

/// Gives this process a limit of `files`, which it may raise again.
///
/// # Errors
/// If the kernel refuses it.
pub fn lower(files: u64) -> io::Result<()> {
    set(Some(files))
}

fn set(current: Option<u64>) -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = current;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
