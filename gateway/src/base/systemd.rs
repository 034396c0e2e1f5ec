//! Notifies the service manager of state changes: systemd, `Type=notify-reload`. Does nothing without
//! `NOTIFY_SOCKET`.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::base::heartbeat::Heartbeats;
use crate::base::task::Tasks;

/// Reports that start-up or a reload has finished, with success or not.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Reports that the configuration is being reloaded.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(
            %error,
            "the clock for the notification of a reload cannot be read"
        ),
    }
}

/// Reports that the gateway stops: it accepts no new connections and drains those in flight.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Sends watchdog pings at the interval that systemd asks for, until the gateway stops. Pings pause while a worker is
/// stalled or files or threads have been lacking for long, so that systemd restarts the process.
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
        tracing::warn!(
            event = "systemd.notify_failed", %error,
            "the service manager could not be notified"
        );
    }
}
