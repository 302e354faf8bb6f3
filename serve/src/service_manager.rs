//! Notifications to systemd, if the process is one of its services (`Type=notify`).

use std::time::Duration;

use sd_notify::NotifyState;

/// Says that requests are answered.
pub(crate) fn ready() {
    // Without systemd there is no one to notify.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
}

/// Says that the shutdown has begun.
pub(crate) fn stopping() {
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
}

/// Says again and again that the process is alive, if systemd restarts services that do not (`WatchdogSec=`). Never
/// returns.
pub(crate) async fn keep_alive() {
    let Some(timeout) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
    let mut interval = tokio::time::interval((timeout / 2).max(Duration::from_millis(1)));
    loop {
        interval.tick().await;
        let _ = sd_notify::notify(&[NotifyState::Watchdog]);
    }
}
