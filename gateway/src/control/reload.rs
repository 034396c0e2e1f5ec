//! Reloads the configuration while the gateway runs: all of it or nothing.
//!
//! The file is watched by content, so that a ConfigMap whose links are swapped is a change like any other; SIGHUP and
//! the admin API request a reload at once. A new configuration is read, checked and built completely beside the one
//! in force, and then takes effect in one step. Problems of a file are reported in the log, in a metric, in the audit
//! log and to the operator, and change nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use json::hex;
use tokio::time::timeout;

use crate::base::error_chain::ErrorChain;
use crate::base::file::{self, FileTasks, FileWatch, WatchEvent};
use crate::base::sha256::sha256;
use crate::base::systemd;
use crate::config::settings::Settings;
use crate::control::build::{ProcessState, SettingsSource, StartError};
use crate::control::revocation::RevocationManager;
use crate::pins::PinMonitor;
use crate::serve::generation::CurrentGeneration;

/// Sections that cannot change while the gateway runs: sockets, sinks, keys, and limits that resources were created
/// with.
const FIXED: [&str; 8] =
    ["listeners", "ops", "audit", "telemetry", "log", "sessions", "limits", "revocations"];

/// Interval between attempts after an error that may be temporary.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum time for a reload, from reading the file to building the result. The files may be on a disk that does not
/// answer.
const CHANGE: Duration = Duration::from_secs(30);

/// The digest of each section of a configuration.
pub type SectionDigests = BTreeMap<Box<str>, [u8; 32]>;

/// The reason why a configuration was rejected.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The file cannot be read.
    #[error("the file cannot be read")]
    Read(#[from] std::io::Error),
    /// The file is not a valid configuration.
    #[error("it is not valid: {first}")]
    Invalid {
        /// All problems, as JSON.
        json: String,
        /// The first problem, in words.
        first: String,
    },
    /// A section has changed that needs a restart.
    #[error("these sections need a restart: {}", .0.join(", "))]
    Restart(Vec<String>),
    /// A resource that it needs cannot be acquired.
    #[error(transparent)]
    Build(#[from] StartError),
    /// The files were not read in time.
    #[error("its files were not read within {} s", CHANGE.as_secs())]
    Slow,
    /// The attempt to build it panicked.
    #[error("building it broke off")]
    Broken,
    /// Its activation cannot be recorded.
    #[error("it cannot be recorded")]
    Record(#[source] crate::audit::AuditError),
}

/// The result of a successful reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// The new configuration is in force.
    Applied,
    /// The file has the configuration that is in force.
    Unchanged,
}

/// Reloads the configuration, on request and when the file changes.
#[derive(Debug)]
pub struct Reloader {
    source: Arc<dyn SettingsSource>,
    lasting: Arc<ProcessState>,
    live: Arc<CurrentGeneration>,
    switch: Arc<RevocationManager>,
    held: Mutex<ReloadState>,
    /// Held during a reload, to serialize them.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct ReloadState {
    pin_monitor: Arc<PinMonitor>,
    digest: String,
    sections: SectionDigests,
    at: SystemTime,
    /// The digest of the file at the last completed attempt, and at the last check.
    tried: Option<[u8; 32]>,
    seen: Option<[u8; 32]>,
    /// The error of the last check, if the file could not be read.
    unread: Option<String>,
    /// The earliest time of the next attempt after an error that may be temporary.
    again: Option<Instant>,
    /// The error of the last rejected configuration.
    error: Option<RejectedConfig>,
}

#[derive(Clone, Debug)]
struct RejectedConfig {
    at: SystemTime,
    what: String,
    problems: String,
    restart: Vec<String>,
}

/// The parts of the process that a reload acts on.
#[derive(Debug)]
pub struct ReloadTargets {
    /// The state that outlives a reload.
    pub lasting: Arc<ProcessState>,
    /// The holder of the generation in force, which a reload replaces.
    pub live: Arc<CurrentGeneration>,
    /// The revocations, which hold in the new generation from its first request.
    pub switch: Arc<RevocationManager>,
}

/// The configuration that is in force when the reloader is made.
#[derive(Debug)]
pub struct ConfigInForce {
    /// Its comparison of definitions.
    pub pin_monitor: Arc<PinMonitor>,
    /// Its digest, which audit records name.
    pub digest: String,
    /// The digests of its sections.
    pub sections: SectionDigests,
    /// The digest of the text that it was compiled from.
    pub text_digest: [u8; 32],
}

impl Reloader {
    /// Makes a reloader for the configuration that was read from `source` and is in force.
    #[must_use]
    pub fn new(
        source: Arc<dyn SettingsSource>,
        targets: ReloadTargets,
        in_force: ConfigInForce,
    ) -> Self {
        let ReloadTargets { lasting, live, switch } = targets;
        let ConfigInForce { pin_monitor, digest, sections, text_digest } = in_force;
        let at = lasting.clock.now();
        // A file that has changed since it was read for the start has another digest.
        let tried = Some(text_digest);
        let (seen, unread, again, error) = (None, None, None, None);
        let held =
            ReloadState { pin_monitor, digest, sections, at, tried, seen, unread, again, error };
        let turn = Arc::default();
        Self { source, lasting, live, switch, held: Mutex::new(held), turn }
    }

    fn held(&self) -> MutexGuard<'_, ReloadState> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the file until the gateway stops.
    pub async fn tend(self: Arc<Self>) {
        let mut watch = FileWatch::new(self.lasting.tasks.clone());
        let (aside, mut stalled) = (FileTasks::default(), false);
        while let Some(turn) = watch.next().await {
            let reloader = Arc::clone(&self);
            let wanted = match turn {
                WatchEvent::Asked => Ok(true),
                WatchEvent::Time => {
                    aside.run(file::CHECK_TIMEOUT, move || reloader.has_settled()).await
                }
            };
            let late = wanted.is_err();
            match wanted {
                // The error was reported by `reload`.
                Ok(true) => drop(self.reload().await),
                Ok(false) => {}
                Err(error) if !stalled => {
                    tracing::error!(
                        event = "config.unreadable", %error,
                        "the configuration file cannot be examined; keeping the previous configuration"
                    );
                }
                Err(_) => {}
            }
            stalled = late;
        }
    }

    /// Whether the file differs from the last attempt and has not changed since the last check: a file that is being
    /// written is left alone until it is complete.
    fn has_settled(&self) -> bool {
        let text = self.source.text();
        let unread = text.as_ref().err().map(ToString::to_string);
        let now = text.ok().map(|text| sha256(text.as_bytes()));
        self.lasting.metrics.config_usable.store(u64::from(unread.is_none()), Ordering::Relaxed);
        let mut held = self.held();
        if held.unread != unread {
            match &unread {
                Some(error) => tracing::error!(
                    event = "config.unreadable", %error,
                    "the configuration cannot be read; keeping the previous configuration"
                ),
                None => {
                    tracing::warn!(event = "config.readable", "the configuration can be read again")
                }
            }
            held.unread = unread;
        }
        let before = std::mem::replace(&mut held.seen, now);
        let again = held.again.is_none_or(|again| self.lasting.clock.instant() >= again);
        now.is_some() && now != held.tried && now == before && again
    }

    /// Reloads the configuration from the source.
    ///
    /// # Errors
    /// If it is rejected; then nothing has changed.
    pub async fn reload(self: &Arc<Self>) -> Result<ReloadOutcome, ReloadError> {
        systemd::reloading();
        let done = self.changed().await;
        let now = self.lasting.clock.now();
        match &done {
            Ok(ReloadOutcome::Applied) => {}
            Ok(ReloadOutcome::Unchanged) => self.lasting.metrics.reloaded(self.held().at),
            Err(error) => {
                let what = ErrorChain(error).to_string();
                tracing::error!(
                    event = "config.rejected", error = %what,
                    "configuration rejected; keeping the previous configuration"
                );
                self.lasting.metrics.reload_failed();
                if let Err(error) = self.lasting.journal.record_event("rejected", &what) {
                    tracing::error!(
                        event = "audit.write_failed", error = %ErrorChain(&error),
                        "audit event not written"
                    );
                }
                let (problems, restart) = match error {
                    ReloadError::Invalid { json, .. } => (json.clone(), Vec::new()),
                    ReloadError::Restart(sections) => ("[]".to_owned(), sections.clone()),
                    _ => ("[]".to_owned(), Vec::new()),
                };
                self.held().error = Some(RejectedConfig { at: now, what, problems, restart });
            }
        }
        // After a rejection the old configuration is still served, so the gateway is ready.
        if !self.lasting.tasks.is_waning() {
            systemd::ready();
        }
        done
    }

    /// Runs a reload with a time limit.
    async fn changed(self: &Arc<Self>) -> Result<ReloadOutcome, ReloadError> {
        let Ok(turn) = timeout(CHANGE, Arc::clone(&self.turn).lock_owned()).await else {
            return Err(ReloadError::Slow);
        };
        let decided = Arc::new(AtomicBool::new(false));
        let (reloader, decides) = (Arc::clone(self), Arc::clone(&decided));
        // On the blocking pool: it may take long, and its failure must not affect the gateway.
        let mut changed = tokio::task::spawn_blocking(move || {
            let done = reloader.change(&decides);
            // A reload that was given up blocks the next one until it has ended.
            drop(turn);
            done
        });
        let done = match timeout(CHANGE, &mut changed).await {
            Ok(done) => done,
            Err(_) if !decided.swap(true, Ordering::AcqRel) => return Err(ReloadError::Slow),
            // The reload was built in time and is taking effect.
            Err(_) => changed.await,
        };
        done.unwrap_or(Err(ReloadError::Broken))
    }

    /// Reloads, unless `decided` says that the time limit has passed.
    fn change(&self, decided: &AtomicBool) -> Result<ReloadOutcome, ReloadError> {
        // Files that the configuration refers to may be updated a little later than the configuration.
        self.held().again = Some(self.lasting.clock.instant() + RETRY_INTERVAL);
        let text = self.source.text()?;
        let digest = Some(sha256(text.as_bytes()));
        let settings = self.source.settings(&text).map_err(|problems| {
            self.held().tried = digest;
            ReloadError::Invalid { json: problems.json(), first: problems.first() }
        })?;
        if format!("sha256:{}", settings.digest) == self.held().digest {
            let righted = {
                let mut held = self.held();
                (held.tried, held.again) = (digest, None);
                held.error.take().is_some()
            };
            if righted {
                tracing::info!(
                    event = "config.unchanged",
                    "the configuration file equals the active configuration again"
                );
            }
            // The secrets it refers to may have changed nevertheless.
            self.lasting.secrets.read_all();
            return Ok(ReloadOutcome::Unchanged);
        }
        let sections = settings.sections.clone();
        let changed = self.fixed(&settings);
        if !changed.is_empty() {
            self.held().tried = digest;
            return Err(ReloadError::Restart(changed));
        }
        let pin_monitor = Arc::clone(&self.held().pin_monitor);
        let now = self.live.now();
        let built = self.lasting.build(settings, Some((&now.gateway, &pin_monitor)))?;
        let renamed = now.gateway.renamed_by(&built.generation.gateway);
        drop(now);
        if decided.swap(true, Ordering::AcqRel) {
            return Err(ReloadError::Slow);
        }
        for what in renamed {
            tracing::warn!(event = "config.names_changed", note = %what, "configuration");
            self.lasting.journal.record_event("renamed", &what).map_err(ReloadError::Record)?;
        }
        self.lasting.journal.record_config_applied(&built.digest).map_err(ReloadError::Record)?;
        let mut held = self.held();
        (held.pin_monitor, held.digest) = (built.pin_monitor(), built.digest.clone());
        (held.sections, held.at) = (sections, self.lasting.clock.now());
        (held.error, held.tried, held.again) = (None, digest, None);
        drop(held);
        let (generation, digest) = (built.generation, built.digest);
        self.switch.succeed(generation);
        // After the revocations are in force: a revoked server is asked nothing.
        self.lasting.begin(&built.work);
        self.live.now().gateway.end_parked_of_others();
        tracing::info!(event = "config.applied", policy = %digest, "configuration applied");
        Ok(ReloadOutcome::Applied)
    }

    /// The sections that have changed and need a restart.
    fn fixed(&self, settings: &Settings) -> Vec<String> {
        let held = self.held();
        let other = |name: &&&str| settings.sections.get(**name) != held.sections.get(**name);
        let file = settings.approval_file != self.lasting.approval_file;
        let file = file.then(|| "approvals.file".to_owned());
        FIXED.iter().filter(other).map(|name| (*name).to_owned()).chain(file).collect()
    }

    /// The configuration in force and the error of the last rejected one, as JSON.
    #[must_use]
    pub fn status(&self) -> String {
        let held = self.held();
        let time = |at: SystemTime| humantime::format_rfc3339_millis(at).to_string();
        let seen = held.seen.map(|digest| hex::encode(&digest));
        let error = held.error.as_ref().map(|wrong| {
            #[expect(clippy::disallowed_methods, reason = "our own output")]
            let problems: serde_json::Value =
                serde_json::from_str(&wrong.problems).unwrap_or_default();
            serde_json::json!({ "at": time(wrong.at), "what": wrong.what, "problems": problems,
                "restartRequired": wrong.restart })
        });
        let status = serde_json::json!({
            "appliedHash": held.digest, "appliedAt": time(held.at), "fileSha256": seen,
            "lastError": error,
        });
        format!("{status}\n")
    }
}
