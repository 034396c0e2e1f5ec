//! The configuration, changed while the gateway runs: the whole of it or nothing.
//!
//! The file is watched by what is in it, so that a ConfigMap whose links are swapped is a change like any
//! other; SIGHUP and the operator's listener ask for it at once. All of a new configuration is read,
//! checked and built beside the one in force; then it takes over in one step. What is wrong with a
//! file is said in the log, in a metric, on record and to the operator, and changes nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::time::timeout;

use crate::base::error_chain::Chain;
use crate::base::file::{self, Aside, Turn, Watch};
use crate::base::hex;
use crate::base::sha256::sha256;
use crate::base::systemd;
use crate::config::settings::Settings;
use crate::control::build::{Lasting, Source, StartError};
use crate::control::revocation::Killswitch;
use crate::pins::Keeper;
use crate::serve::generation::Live;

/// What cannot change while the gateway runs: sockets, sinks, keys, and bounds that things were made
/// with.
const FIXED: [&str; 8] =
    ["listeners", "ops", "audit", "telemetry", "log", "sessions", "limits", "revocations"];

/// After how long what may work the next time is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// How long a change may take, from the file to what is built of it. What it reads may be on a disk that does
/// not answer.
const CHANGE: Duration = Duration::from_secs(30);

/// The digest of each section of a configuration.
pub type Sections = BTreeMap<Box<str>, [u8; 32]>;

/// Why a configuration was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The file cannot be read.
    #[error("the file cannot be read")]
    Read(#[from] std::io::Error),
    /// It is not valid: every problem as JSON, and the first in words.
    #[error("it is not valid: {first}")]
    Invalid {
        /// All of them.
        json: String,
        /// The first.
        first: String,
    },
    /// Something has changed that cannot change.
    #[error("these sections need a restart: {}", .0.join(", "))]
    Restart(Vec<String>),
    /// Something it needs is not to be had.
    #[error(transparent)]
    Build(#[from] StartError),
    /// It took too long.
    #[error("its files were not read within {} s", CHANGE.as_secs())]
    Slow,
    /// It could not be built at all.
    #[error("building it broke off")]
    Broken,
    /// That it is in force cannot be recorded.
    #[error("it cannot be recorded")]
    Record(#[source] crate::audit::AuditError),
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// It is in force.
    Applied,
    /// It was in force already.
    Unchanged,
}

/// Who changes the configuration.
#[derive(Debug)]
pub struct Reloader {
    source: Arc<dyn Source>,
    lasting: Arc<Lasting>,
    live: Arc<Live>,
    switch: Arc<Killswitch>,
    held: Mutex<Held>,
    /// One change at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Held {
    keeper: Arc<Keeper>,
    digest: String,
    sections: Sections,
    at: SystemTime,
    /// The file as it was last tried to the end, and as it was last looked at.
    tried: Option<[u8; 32]>,
    seen: Option<[u8; 32]>,
    /// Why it could not be read when it was last looked at.
    unread: Option<String>,
    /// When to try again what may work the next time.
    again: Option<Instant>,
    /// What was wrong with it.
    error: Option<Wrong>,
}

#[derive(Clone, Debug)]
struct Wrong {
    at: SystemTime,
    what: String,
    problems: String,
    restart: Vec<String>,
}

impl Reloader {
    /// Reads `source` again when it changes.
    #[must_use]
    pub fn new(
        source: Arc<dyn Source>,
        (lasting, live, switch): (Arc<Lasting>, Arc<Live>, Arc<Killswitch>),
        (keeper, digest, sections): (Arc<Keeper>, String, Sections),
    ) -> Self {
        let at = lasting.clock.now();
        // The file may have changed since it was read: it is looked at once more.
        let (tried, seen, again, error) = (None, None, None, None);
        let unread = None;
        let held = Held { keeper, digest, sections, at, tried, seen, unread, again, error };
        let turn = Arc::default();
        Self { source, lasting, live, switch, held: Mutex::new(held), turn }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the file, for as long as the gateway runs.
    pub async fn tend(self: Arc<Self>) {
        let mut watch = Watch::new(self.lasting.tasks.clone());
        let (aside, mut stalled) = (Aside::default(), false);
        while let Some(turn) = watch.next().await {
            let reloader = Arc::clone(&self);
            let wanted = match turn {
                Turn::Asked => Ok(true),
                Turn::Time => aside.run(file::LOOK, move || reloader.has_settled()).await,
            };
            let late = wanted.is_err();
            match wanted {
                // What is wrong was told.
                Ok(true) => drop(self.reload().await),
                Ok(false) => {}
                Err(error) if !stalled => {
                    tracing::error!(%error, "the configuration cannot be looked at; that of before holds");
                }
                Err(_) => {}
            }
            stalled = late;
        }
    }

    /// Whether the file is another than was last tried, and was the same when it was last looked at:
    /// one that is being written is left alone until it is written.
    fn has_settled(&self) -> bool {
        let text = self.source.text();
        let unread = text.as_ref().err().map(ToString::to_string);
        let now = text.ok().map(|text| sha256(text.as_bytes()));
        self.lasting.metrics.config_usable.store(u64::from(unread.is_none()), Ordering::Relaxed);
        let mut held = self.held();
        if held.unread != unread {
            match &unread {
                Some(error) => tracing::error!(
                    %error,
                    "the configuration cannot be read; that of before holds"
                ),
                None => tracing::warn!("the configuration can be read again"),
            }
            held.unread = unread;
        }
        let before = std::mem::replace(&mut held.seen, now);
        let again = held.again.is_none_or(|again| self.lasting.clock.instant() >= again);
        now.is_some() && now != held.tried && now == before && again
    }

    /// Takes what the file says now.
    ///
    /// # Errors
    /// When it cannot be taken; then nothing has changed.
    pub async fn reload(self: &Arc<Self>) -> Result<Reloaded, ReloadError> {
        systemd::reloading();
        let done = self.changed().await;
        let now = self.lasting.clock.now();
        match &done {
            Ok(Reloaded::Applied) => {}
            Ok(Reloaded::Unchanged) => self.lasting.metrics.reloaded(true, self.held().at),
            Err(error) => {
                let what = Chain(error).to_string();
                tracing::error!(error = %what, "the configuration was not changed");
                self.lasting.metrics.reloaded(false, now);
                if let Err(error) = self.lasting.journal.noted("rejected", &what) {
                    tracing::error!(error = %Chain(&error), "not recorded");
                }
                let (problems, restart) = match error {
                    ReloadError::Invalid { json, .. } => (json.clone(), Vec::new()),
                    ReloadError::Restart(sections) => ("[]".to_owned(), sections.clone()),
                    _ => ("[]".to_owned(), Vec::new()),
                };
                self.held().error = Some(Wrong { at: now, what, problems, restart });
            }
        }
        // What was refused leaves what was in force: the gateway serves.
        if !self.lasting.tasks.is_waning() {
            systemd::ready();
        }
        done
    }

    /// Waits for a change, and for no longer than one may take.
    async fn changed(self: &Arc<Self>) -> Result<Reloaded, ReloadError> {
        let Ok(turn) = timeout(CHANGE, Arc::clone(&self.turn).lock_owned()).await else {
            return Err(ReloadError::Slow);
        };
        let decided = Arc::new(AtomicBool::new(false));
        let (reloader, decides) = (Arc::clone(self), Arc::clone(&decided));
        // Beside everything else: it may take a while, and whatever becomes of it the gateway goes on.
        let mut changed = tokio::task::spawn_blocking(move || {
            let done = reloader.change(&decides);
            // One that was given up keeps the next from beginning until it has ended.
            drop(turn);
            done
        });
        let done = match timeout(CHANGE, &mut changed).await {
            Ok(done) => done,
            Err(_) if !decided.swap(true, Ordering::AcqRel) => return Err(ReloadError::Slow),
            // It had been built in time and is being put in force.
            Err(_) => changed.await,
        };
        done.unwrap_or(Err(ReloadError::Broken))
    }

    /// Takes what the file says now, unless `decided` says that nobody waits for it any more.
    fn change(&self, decided: &AtomicBool) -> Result<Reloaded, ReloadError> {
        // What a file refers to may come a little later than the file.
        self.held().again = Some(self.lasting.clock.instant() + AGAIN);
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
                tracing::info!("the configuration is again the one that is in force");
            }
            // What it refers to may be another all the same.
            self.lasting.secrets.read_all();
            return Ok(Reloaded::Unchanged);
        }
        let sections = settings.sections.clone();
        let changed = self.fixed(&settings);
        if !changed.is_empty() {
            self.held().tried = digest;
            return Err(ReloadError::Restart(changed));
        }
        let keeper = Arc::clone(&self.held().keeper);
        let now = self.live.now();
        let built = self.lasting.build(settings, Some((&now.gateway, &keeper)))?;
        let renamed = now.gateway.renamed_by(&built.generation.gateway);
        drop(now);
        if decided.swap(true, Ordering::AcqRel) {
            return Err(ReloadError::Slow);
        }
        for what in renamed {
            tracing::warn!("{what}");
            self.lasting.journal.noted("renamed", &what).map_err(ReloadError::Record)?;
        }
        self.lasting.journal.applied(&built.digest).map_err(ReloadError::Record)?;
        self.lasting.begin(&built);
        let mut held = self.held();
        (held.keeper, held.digest) = (built.keeper(), built.digest.clone());
        (held.sections, held.at) = (sections, self.lasting.clock.now());
        (held.error, held.tried, held.again) = (None, digest, None);
        drop(held);
        let (generation, digest) = (built.generation, built.digest);
        self.switch.succeed(generation);
        tracing::info!(policy = %digest, "another configuration is in force");
        Ok(Reloaded::Applied)
    }

    /// What has changed that cannot change.
    fn fixed(&self, settings: &Settings) -> Vec<String> {
        let held = self.held();
        let other = |name: &&&str| settings.sections.get(**name) != held.sections.get(**name);
        FIXED.iter().filter(other).map(|name| (*name).to_owned()).collect()
    }

    /// What is in force, and what was wrong with what is not, as JSON.
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
