//! Repeats a call that a server has not begun to answer, if the operator has registered its tool as idempotent (control
//! C16). Nothing else is repeated: a call whose connection broke may have been made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::UpstreamError;
use crate::net::connection::ConnectionError;

/// The pause before the first repetition; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(50);

/// How often a call may be repeated, and how often it was. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct RetryCount {
    most: u32,
    made: Arc<AtomicU32>,
}

impl RetryCount {
    /// At most so many repetitions; more than that are cut, because each takes time and a connection.
    #[must_use]
    pub fn new(most: u32) -> Self {
        const MOST: u32 = 5;
        Self { most: most.min(MOST), made: Arc::default() }
    }

    /// How often the call was repeated.
    #[must_use]
    pub fn made(&self) -> u32 {
        self.made.load(Ordering::Acquire)
    }

    /// Waits before the call is repeated; returns whether it may be. It must be over before `deadline`.
    pub(super) async fn again(&self, error: &UpstreamError, deadline: Instant) -> bool {
        let made = self.made();
        if made >= self.most || !is_of_connection(error) {
            return false;
        }
        let pause = PAUSE * 2_u32.pow(made);
        if Instant::now() + pause >= deadline {
            return false;
        }
        // Boxed, because few calls are repeated, and the futures of all would have room for it.
        Box::pin(sleep(pause)).await;
        self.made.fetch_add(1, Ordering::AcqRel);
        true
    }
}

/// Whether the connection to the server failed before it answered anything.
const fn is_of_connection(error: &UpstreamError) -> bool {
    matches!(
        error,
        UpstreamError::Connection(
            ConnectionError::Connect(_)
                | ConnectionError::Broken(_)
                | ConnectionError::Unprocessed(_)
        ) | UpstreamError::Exited
    )
}
