//! Cancellation of legacy calls: by the client's notification, and not by a disconnect.
//!
//! SPEC 2025-11-25 basic/transports#sending-messages-to-the-server

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Response;
use tokio_util::sync::CancellationToken;

use super::Gateway;
use crate::edge::failure::Failure;
use crate::mcp::wire::Id;
use crate::session::SessionKey;
use crate::stream::body::Body;

/// The entry of a legacy call in the table of cancellable calls; removed when dropped.
#[derive(Debug)]
pub(super) struct CancellationEntry(Option<(Arc<Gateway>, (SessionKey, Id), CancellationToken)>);

impl CancellationEntry {
    pub(super) fn enter(
        gateway: &Arc<Gateway>,
        session: Option<SessionKey>,
        id: &Id,
    ) -> Result<Self, Failure> {
        let Some(session) = session else { return Ok(Self(None)) };
        let (key, token) = ((session, id.clone()), CancellationToken::new());
        match gateway.cancellations.insert(key.clone(), token.clone()) {
            Ok(None) => Ok(Self(Some((Arc::clone(gateway), key, token)))),
            Ok(Some(_)) => Err(Failure::Duplicate),
            Err(_) => Err(Failure::Overload),
        }
    }

    /// Resolves when the client cancels the call; never for a call without a session.
    pub(super) async fn cancelled(&self) {
        match &self.0 {
            Some((_, _, token)) => token.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for CancellationEntry {
    fn drop(&mut self) {
        if let Some((gateway, key, _)) = self.0.take() {
            gateway.cancellations.remove(&key);
        }
    }
}

/// A future that is moved to a background task when it is dropped before it is ready.
struct Detached {
    work: Option<BoxFuture<'static, Response<Body>>>,
    tasks: crate::base::task::Tasks,
    /// Cancelled when the work is moved.
    gone: Option<CancellationToken>,
}

/// Runs `work` to completion even if the returned future is dropped. Then `gone` is cancelled.
pub(super) async fn detached(
    work: BoxFuture<'static, Response<Body>>,
    tasks: crate::base::task::Tasks,
    gone: Option<CancellationToken>,
) -> Response<Body> {
    Detached { work: Some(work), tasks, gone }.await
}

impl Future for Detached {
    type Output = Response<Body>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = work.as_mut().poll(cx);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            if let Some(gone) = &self.gone {
                gone.cancel();
            }
            self.tasks.spawn(async move { drop(work.await) });
        }
    }
}
