//! Reads the messages of servers, of every transport.

use bytes::Bytes;
use tokio::time::Instant;

use crate::log_limit::LogLimit;
use crate::wire::{self, DecodeError, FromServer, Message};

/// Log lines about marks of the gateway, of all servers: a server sends as many as it likes.
static MARKED: LogLimit = LogLimit::new(1, 5);

/// Reads a message of `server`, without keys of `_meta` that only the gateway sets: a client would take them for
/// what the gateway says.
///
/// # Errors
/// When it is not one acceptable message.
pub(super) async fn read(text: Bytes, server: &str) -> Result<Message, DecodeError> {
    let FromServer { message, had_marks } = wire::decode_from_server(text).await?;
    if had_marks && let Some(suppressed) = MARKED.allow(Instant::now().into_std()) {
        tracing::warn!(
            server,
            suppressed,
            "the server has set keys of `_meta` that begin with `dev.portcullis/`, as only the gateway may; they were removed"
        );
    }
    Ok(message)
}
