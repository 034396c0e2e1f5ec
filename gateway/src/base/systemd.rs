//! What a service manager is told, where there is one: systemd, `Type=notify-reload`. Without
//! `NOTIFY_SOCKET` nobody is told anything.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::base::heartbeat::Heartbeats;
use crate::base::task::Tasks;

/// Everything is up, and what was last changed is in force or was refused.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The configuration is being read again.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "the service manager cannot be told the time"),
    }
}

/// No new connections; what is in flight ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Says that the gateway is alive, as often as it is asked to, until it stops. While a worker has stalled, or
/// there have been no files or threads for long, nothing is said, so that the manager does what it is there for.
pub async fn tend(tasks: Tasks, beats: Arc<Heartbeats>) {
    let Some(within) = sd_notify::watchdog_enabled() else { return };
    let mut turn = tokio::time::interval((within / 2).max(Duration::from_millis(1)));
    loop {
        tokio::select! {
            _ = turn.tick() => if beats.stalled().is_empty() && beats.starved().is_none() {
                tell(&[NotifyState::Watchdog]);
            },
            () = tasks.halting() => return,
        }
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}
