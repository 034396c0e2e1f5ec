//! The GET stream of a legacy session, as those see it who write to it: one task for each server of the route, and one for
//! what the gateway itself tells.
//!
//! The stream goes on for a while after its client has left, so that a client that comes back misses nothing. The tasks
//! hold its slot ([`crate::stream::slots`]) as long.

use std::sync::Arc;
use std::time::Duration;

use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;
use tokio::time::timeout;

use super::{Gateway, Route};
use crate::session::state::SessionState;
use crate::stream::replay::ReplayBuffer;
use crate::stream::slots::EventStreamSlot;

/// How often it is checked whether the client is away.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The GET stream of a session.
#[derive(Clone)]
pub(super) struct StandingStream {
    pub(super) gateway: Arc<Gateway>,
    pub(super) caller: Arc<Principal>,
    pub(super) route: Arc<Route>,
    /// The session.
    pub(super) kept: Arc<SessionState>,
    /// What the client reads.
    pub(super) events: Arc<ReplayBuffer>,
    /// Held until the last task has ended.
    pub(super) _slot: EventStreamSlot,
}

impl StandingStream {
    /// Resolves when nothing more may be told, or nobody is left to hear it: the session or the configuration has ended, the
    /// caller or `server` is revoked, the client has stayed away, or the stream has ended. The stream ends then: a client
    /// that comes back opens a new one, as far as it still may.
    pub(super) async fn over(&self, server: Option<&ServerName>) {
        tokio::select! {
            () = self.kept.over() => {}
            () = self.gateway.tasks.stopping() => {}
            () = self.gateway.hearing_revoked(&self.caller, server) => {
                // Of a caller that is revoked everything.
                let is_caller = self.gateway.caller_revocation(&self.caller).is_some();
                self.events.withdraw_messages(server.filter(|_| !is_caller));
                // The lease of the response that is being read ends it, and says why.
                return self.events.end_when_left();
            }
            () = self.deserted() => return,
        }
        self.events.end();
    }

    /// Resolves when the stream has ended, or its client has been away for longer than `replayTtl`; then it ends. A stream
    /// that another one has superseded ends when its reader leaves.
    async fn deserted(&self) {
        let patience = self.gateway.limits.replay_ttl;
        let mut away = Duration::ZERO;
        while away < patience {
            if timeout(CHECK_INTERVAL, self.events.ended()).await.is_ok() {
                return;
            }
            away = if self.events.is_attached() { Duration::ZERO } else { away + CHECK_INTERVAL };
        }
        self.events.end();
    }

    /// Adds a message of a server to the stream, and returns whether there was room in time.
    pub(super) async fn push(
        &self,
        source: Option<&ServerName>,
        message: &[u8],
        patience: Duration,
    ) -> bool {
        timeout(patience, self.events.push_of(source, message)).await.is_ok()
    }

    /// Adds a message of a server, or of the gateway, and ends the stream if there is no room for it while a client may come
    /// back: it has no gap.
    pub(super) async fn tell(&self, source: Option<&ServerName>, message: &[u8]) {
        if !self.push(source, message, self.gateway.limits.replay_ttl).await {
            self.events.end();
        }
    }
}
