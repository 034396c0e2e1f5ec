//! Credentials of the test run, looked for where they must not be: what callers show in everything
//! servers get, what servers are shown in everything callers get, and both in everything that is
//! written down. It is looked at in every test, whatever the test is about.

use std::sync::{Mutex, PoisonError};

/// Whose credential it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A caller shows it to the gateway.
    Caller,
    /// The gateway shows it to a server.
    Server,
}

static SECRETS: Mutex<Vec<(Side, String)>> = Mutex::new(Vec::new());
static FOUND: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Looks for this from now on. Of a token it is the signature: the rest may be said.
///
/// # Panics
/// Never.
pub fn watch(side: Side, secret: &str) {
    let secret = secret.rsplit('.').next().unwrap_or_default().to_owned();
    let mut secrets = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
    if secret.len() >= 12 && !secrets.iter().any(|(_, known)| *known == secret) {
        secrets.push((side, secret));
    }
}

fn look(text: &[u8], sides: &[Side], place: &str) {
    let secrets = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
    for (side, secret) in secrets.iter().filter(|(side, _)| sides.contains(side)) {
        if memchr::memmem::find(text, secret.as_bytes()).is_some() {
            let found = format!("a credential of a {side:?} in {place}: {secret}");
            FOUND.lock().unwrap_or_else(PoisonError::into_inner).push(found);
        }
    }
}

/// What a server got.
pub fn sent(bytes: &[u8]) {
    look(bytes, &[Side::Caller], "a request to a server");
}

/// What a caller got.
pub fn answered(bytes: &[u8]) {
    look(bytes, &[Side::Server], "an answer to a caller");
}

/// What was written down.
pub fn written(text: &str, place: &str) {
    look(text.as_bytes(), &[Side::Caller, Side::Server], place);
}

/// Fails if anything was found.
///
/// # Panics
/// When something was.
pub fn none_was_found() {
    let found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(found.is_empty(), "{found:#?}");
}
