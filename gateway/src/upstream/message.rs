//! Reads the messages of servers, of every transport.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::base::intake::Received;
use crate::base::log_limit::LogLimit;
use crate::mcp::wire::{self, FromServer, FromServerError};

/// Log lines about marks of the gateway, of all servers: a server sends as many as it likes.
static MARKED: LogLimit = LogLimit::new(1, 5);

/// Reads a message of `server`, without keys of `_meta` that only the gateway sets: a client would take them for
/// what the gateway says. What the index over its values takes is counted in `index`.
///
/// # Errors
/// When it is not one acceptable message, or there is no room for it.
pub(super) async fn read(
    text: Bytes,
    server: &str,
    index: Received,
) -> Result<FromServer, FromServerError> {
    let read = wire::decode_from_server(text, index).await?;
    if read.had_marks
        && let Some(suppressed) = MARKED.allow(Instant::now().into_std())
    {
        tracing::warn!(
            server,
            suppressed,
            "the server has set keys of `_meta` that begin with `dev.portcullis/`, or the code -31403 of an error, as only the gateway may; they were removed"
        );
    }
    Ok(read)
}

/// The same for a message on a connection that callers share: room for its values is waited for, `patience` at most.
///
/// # Errors
/// As [`read`].
pub(super) async fn read_patiently(
    text: Bytes,
    server: &str,
    received: &Received,
    patience: Duration,
) -> Result<FromServer, FromServerError> {
    let until = Instant::now() + patience;
    let mut index = received.beside();
    loop {
        let wanted = match read(text.clone(), server, index).await {
            Err(FromServerError::Memory { wanted, .. }) => wanted,
            read => return read,
        };
        index = received.beside();
        let left = until.saturating_duration_since(Instant::now());
        let room = index.waits(wanted, left).await;
        room.map_err(|none| FromServerError::Memory { wanted, none })?;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;

    use super::{FromServerError, read_patiently};
    use crate::base::intake::Intake;

    fn dense() -> Bytes {
        let items = "{},".repeat(10_000);
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"x":[{items}{{}}]}}}}"#).into()
    }

    #[tokio::test]
    async fn what_the_values_of_a_message_take_is_counted_and_waited_for() {
        let intake = Arc::new(Intake::new(usize::MAX, usize::MAX, 1024 * 1024));
        let received = intake.begin(&"up".into(), None);
        let read = || read_patiently(dense(), "up", &received, Duration::from_millis(100));
        let first = read().await.unwrap();
        // Sixteen bytes for each value, in steps of 64 KiB.
        assert_eq!(intake.bytes(), 192 * 1024);
        let mut rest = received.beside();
        rest.holds(768 * 1024).unwrap();
        assert!(matches!(read().await, Err(FromServerError::Memory { .. })));
        assert_eq!(intake.refused(), 1);
        drop((first, rest));
        let second = read().await;
        assert!(second.is_ok());
        drop(second);
        assert_eq!(intake.bytes(), 0);
    }
}
