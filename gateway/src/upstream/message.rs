//! Parses the messages of upstream servers, for all transports.

use std::time::Duration;

use tokio::time::Instant;

use crate::base::intake::ResponseAccount;
use crate::base::log_limit::LogLimit;
use crate::base::segments::Segments;
use crate::mcp::wire::{self, FromServer, FromServerError, RemovedMarks};

/// Limits the log lines about reserved keys, for all servers together: a server may send any number of them.
static MARKED: LogLimit = LogLimit::new(1, 5);

/// Parses a message of `server`, and removes members of `_meta` that only the gateway may set, because a client would
/// attribute them to the gateway. The memory of the index over its values counts against `index`.
///
/// # Errors
/// If it is not one valid message, or there is no room for it.
pub(super) async fn read(
    text: Segments,
    server: &str,
    index: ResponseAccount,
) -> Result<FromServer, FromServerError> {
    let read = wire::decode_from_server(text, index).await?;
    // An error that the gateway gave the server is no mark of the server's own, and its refusal was logged.
    if read.marks == RemovedMarks::Set
        && let Some(suppressed) = MARKED.allow(Instant::now().into_std())
    {
        tracing::warn!(
            event = "server.reserved_member",
            server,
            suppressed,
            "the server has set `_meta` keys that begin with `dev.portcullis/`, or the error code -31403, \
             which are reserved for the gateway; they were removed"
        );
    }
    Ok(read)
}

/// Like [`read`], for a connection that callers share: waits at most `patience` for room.
///
/// # Errors
/// Those of [`read`].
pub(super) async fn read_patiently(
    text: Segments,
    server: &str,
    received: &ResponseAccount,
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

    use super::{FromServerError, read_patiently};
    use crate::base::intake::ResponseAccounts;
    use crate::base::segments::Segments;

    fn dense() -> Segments {
        let items = "{},".repeat(10_000);
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"x":[{items}{{}}]}}}}"#).into()
    }

    #[tokio::test]
    async fn what_the_values_of_a_message_take_is_counted_and_waited_for() {
        let response_memory = Arc::new(ResponseAccounts::new(usize::MAX, usize::MAX, 1024 * 1024));
        let received = response_memory.begin(&"up".into(), None);
        let read = || read_patiently(dense(), "up", &received, Duration::from_millis(100));
        let first = read().await.unwrap();
        // Sixteen bytes for each value, in steps of 64 KiB.
        assert_eq!(response_memory.bytes(), 192 * 1024);
        let mut rest = received.beside();
        rest.holds(768 * 1024).unwrap();
        assert!(matches!(read().await, Err(FromServerError::Memory { .. })));
        assert_eq!(response_memory.refused(), 1);
        drop((first, rest));
        let second = read().await;
        assert!(second.is_ok());
        drop(second);
        assert_eq!(response_memory.bytes(), 0);
    }
}
