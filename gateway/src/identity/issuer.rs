//! The keys of an issuer: where they are had from, when they are read again, and which of them a
//! token may be signed with.
//!
//! One reading at a time, whoever waits; an unknown key causes one reading and then none for a
//! while; keys that cannot be read again are relied on for a while and then not at all (vectors
//! AV-30 to AV-38).

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::Uri;
use policy::json::{Document, Value};
use tokio::sync::{Mutex as Turn, oneshot};

use crate::base::clock::Clock;
use crate::base::task::Tasks;
use crate::config::settings::KeySource;
use crate::crypto::jose::{self, Algorithm, Key, KeySetError};
use crate::crypto::pem::{self, PemError};
use crate::net::http_client::{FetchError, Ways};

/// The soonest and the latest after which keys are read again, whatever their issuer says.
const SOONEST: Duration = Duration::from_secs(300);
const LATEST: Duration = Duration::from_secs(24 * 3600);
/// Most callers that wait for the keys of one issuer.
const WAITING: usize = 64;
/// How soon keys are looked for again when there are none.
const AGAIN: Duration = Duration::from_secs(1);

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeysError {
    /// They could not be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The file could not be read.
    #[error(transparent)]
    File(#[from] PemError),
    /// They are no set of keys.
    #[error(transparent)]
    Set(#[from] KeySetError),
    /// The metadata of the issuer is not its own, or says nothing of keys.
    #[error("the metadata of the issuer {0}")]
    Metadata(&'static str),
}

/// What can be said of a key.
#[derive(Debug)]
pub(super) enum Found {
    /// It may have signed the token; and when that was so.
    Key(Arc<Key>, u64),
    /// The issuer has no such key.
    Unknown,
    /// Nobody knows, because the issuer cannot be asked.
    Unavailable,
}

/// The keys of one issuer.
pub(super) struct KeyRing {
    issuer: Box<str>,
    source: KeySource,
    ways: Ways,
    refresh: Duration,
    cooldown: Duration,
    max_stale: Duration,
    clock: Arc<dyn Clock>,
    held: ArcSwapOption<Held>,
    /// The number of the set of keys. No two sets have the same, whatever the configuration.
    generation: AtomicU64,
    /// Until when the keys are relied on, in seconds since 1970.
    good_until: AtomicU64,
    /// They are to be read again at once.
    due: AtomicBool,
    /// Where discovery has found the keys.
    discovered: Mutex<Option<Uri>>,
    /// Who reads them, and when that was last done.
    reading: Turn<Last>,
    /// How many wait for that.
    waiting: AtomicUsize,
    tasks: Tasks,
}

/// When keys were last read, or tried to be.
#[derive(Debug, Default)]
struct Last {
    /// At all.
    tried: Option<Instant>,
    /// For the sake of a key nobody knew.
    for_unknown: Option<Instant>,
}

struct Held {
    keys: Vec<Arc<Key>>,
    text: Bytes,
    read: Instant,
    good_for: Duration,
    generation: u64,
}

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyRing").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl KeyRing {
    pub(super) fn new(
        settings: &crate::config::settings::Issuer,
        ways: Ways,
        clock: Arc<dyn Clock>,
        tasks: Tasks,
    ) -> Self {
        Self {
            issuer: settings.issuer.clone(),
            source: settings.keys.clone(),
            ways,
            refresh: settings.refresh,
            cooldown: settings.cooldown,
            max_stale: settings.max_stale,
            clock,
            held: ArcSwapOption::empty(),
            generation: AtomicU64::new(0),
            good_until: AtomicU64::new(0),
            due: AtomicBool::new(false),
            discovered: Mutex::default(),
            reading: Turn::default(),
            waiting: AtomicUsize::new(0),
            tasks,
        }
    }

    /// Begins with the keys that `former` has from the same source, as long as they are relied on. They
    /// are read again at once: a change of the configuration has always been a way to ask for that.
    pub(super) fn succeed(&self, former: &Self) {
        let Some(held) = former.held.load_full() else { return };
        let age = self.clock.instant().saturating_duration_since(held.read);
        let Some(left) = (held.good_for + self.max_stale).checked_sub(age) else { return };
        self.good_until.store(seconds(self.clock.now() + left), Ordering::Release);
        self.generation.store(held.generation, Ordering::Release);
        self.held.store(Some(held));
        self.due.store(true, Ordering::Release);
    }

    /// Which set of keys it is: a token that was good under another has to be looked at again.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether what was verified under `generation` still holds: its keys are those of now, and are
    /// not too old.
    pub(super) fn stands_by(&self, generation: u64, now: SystemTime) -> bool {
        let now = seconds(now);
        self.generation() == generation && now <= self.good_until.load(Ordering::Acquire)
    }

    fn usable(&self) -> Option<Arc<Held>> {
        let held = self.held.load_full()?;
        let age = self.clock.instant().saturating_duration_since(held.read);
        (age <= held.good_for + self.max_stale).then_some(held)
    }

    /// The key that a token may be signed with, as its header names it.
    pub(super) async fn find(self: &Arc<Self>, kid: Option<&str>, algorithm: Algorithm) -> Found {
        if let Some(held) = self.usable()
            && let Some(key) = held.choose(kid, algorithm)
        {
            return Found::Key(key, held.generation);
        }
        let before = self.held.load().as_ref().map(|held| held.read);
        self.read_for(before).await;
        match self.usable() {
            None => Found::Unavailable,
            Some(held) => match held.choose(kid, algorithm) {
                Some(key) => Found::Key(key, held.generation),
                None => Found::Unknown,
            },
        }
    }

    /// Has the keys read, in a task of its own: a caller that hangs up does not stop what others wait
    /// for, and more than a few are not kept waiting at all.
    async fn read_for(self: &Arc<Self>, before: Option<Instant>) {
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= WAITING {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let (done, read) = oneshot::channel::<()>();
        let ring = Arc::clone(self);
        self.tasks.spawn_service(async move {
            ring.read(before, true).await;
            ring.waiting.fetch_sub(1, Ordering::AcqRel);
            drop(done);
        });
        // The sender is dropped when it is done.
        drop(read.await);
    }

    /// Reads the keys again, unless somebody has since `before`, or tried not long ago. For the sake
    /// of an unknown key that is done once in a while alone: anybody can make one up.
    async fn read(&self, before: Option<Instant>, for_unknown: bool) {
        let came = self.clock.instant();
        let mut last = self.reading.lock().await;
        if self.held.load().as_ref().map(|held| held.read) != before {
            return;
        }
        let now = self.clock.instant();
        let within = |last: Option<Instant>, rest| {
            last.is_some_and(|last| now.saturating_duration_since(last) < rest)
        };
        if self.usable().is_none() {
            // Whoever has waited while it failed does not try again: each would wait in turn.
            let failed_meanwhile = last.tried.is_some_and(|tried| tried >= came);
            if failed_meanwhile || within(last.tried, AGAIN.min(self.cooldown)) {
                return;
            }
        } else if for_unknown {
            if within(last.for_unknown, self.cooldown) {
                return;
            }
            last.for_unknown = Some(now);
        }
        let loaded = self.load().await;
        last.tried = Some(self.clock.instant());
        match loaded {
            Ok((text, age)) => self.keep(text, age),
            Err(error) => {
                let error = crate::base::error_chain::Chain(&error);
                tracing::warn!(issuer = %self.issuer, %error, "the keys of an issuer were not read");
            }
        }
    }

    fn keep(&self, text: Bytes, age: Option<Duration>) {
        let keys = match jose::keys(text.clone()) {
            Ok(keys) => keys,
            Err(error) => {
                tracing::warn!(issuer = %self.issuer, %error, "the keys of an issuer were not read");
                return;
            }
        };
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let same = self.held.load_full().filter(|held| held.text == text);
        let generation =
            same.map_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed), |held| held.generation);
        let good_for = age.map_or(self.refresh, |age| age.clamp(SOONEST, LATEST).min(self.refresh));
        let keys = keys.into_iter().map(Arc::new).collect();
        let read = self.clock.instant();
        let until = seconds(self.clock.now() + good_for + self.max_stale);
        self.held.store(Some(Arc::new(Held { keys, text, read, good_for, generation })));
        self.good_until.store(until, Ordering::Release);
        self.generation.store(generation, Ordering::Release);
        tracing::debug!(issuer = %self.issuer, generation, "the keys of an issuer were read");
    }

    async fn load(&self) -> Result<(Bytes, Option<Duration>), KeysError> {
        match &self.source {
            KeySource::File(path) => Ok((file(path).await?, None)),
            KeySource::Url(uri) => self.fetch(uri).await,
            KeySource::Discovered(issuer) => {
                let known = || self.discovered.lock().unwrap_or_else(PoisonError::into_inner);
                let place = known().take();
                let place = match place {
                    Some(place) => place,
                    None => self.discover(issuer).await?,
                };
                let fetched = self.fetch(&place).await?;
                *known() = Some(place);
                Ok(fetched)
            }
        }
    }

    /// Reads the keys once, and keeps none: how many there are.
    pub(super) async fn count(&self) -> Result<usize, KeysError> {
        let (text, _) = self.load().await?;
        Ok(jose::keys(text)?.len())
    }

    async fn fetch(&self, uri: &Uri) -> Result<(Bytes, Option<Duration>), KeysError> {
        let fetched = self.ways.to(uri)?.get().await?.good()?;
        let age = fetched.max_age();
        Ok((fetched.body, age))
    }

    /// Asks the issuer where its keys are.
    ///
    /// RFC 8414, section 3; OpenID Connect Discovery 1.0, section 4
    async fn discover(&self, issuer: &Uri) -> Result<Uri, KeysError> {
        let path = issuer.path().trim_end_matches('/');
        let mut last = KeysError::Metadata("cannot be found");
        for place in [
            format!("/.well-known/oauth-authorization-server{path}"),
            format!("/.well-known/openid-configuration{path}"),
            format!("{path}/.well-known/openid-configuration"),
        ] {
            let mut parts = issuer.clone().into_parts();
            parts.path_and_query = place.parse().ok();
            let Ok(uri) = Uri::from_parts(parts) else { continue };
            match self.ways.to(&uri)?.get().await.and_then(crate::net::http_client::Fetched::good) {
                Ok(fetched) => return self.keys_of(fetched.body),
                Err(error @ FetchError::Status(_)) => last = error.into(),
                Err(error) => return Err(error.into()),
            }
        }
        Err(last)
    }

    /// Where the metadata `text` says that the keys are.
    fn keys_of(&self, text: Bytes) -> Result<Uri, KeysError> {
        let unreadable = |_| KeysError::Metadata("is not JSON");
        let metadata = Document::parse(text, &jose::BOUNDS).map_err(unreadable)?;
        let said = |key: &str| metadata.root().get(key).and_then(Value::as_str);
        if said("issuer").as_deref() != Some(&self.issuer) {
            return Err(KeysError::Metadata("is that of another issuer"));
        }
        let place = said("jwks_uri").and_then(|text| text.parse::<Uri>().ok());
        let place = place.filter(|uri| uri.scheme_str() == Some("https"));
        place.ok_or(KeysError::Metadata("has no `jwks_uri` with `https`"))
    }

    /// Reads the keys before they are needed, and again before they are old; says when to come back.
    pub(super) async fn tend(&self) -> Duration {
        let held = self.held.load_full();
        let age = held.as_ref().map(|held| {
            let age = self.clock.instant().saturating_duration_since(held.read);
            held.good_for.saturating_sub(age)
        });
        let due = self.due.swap(false, Ordering::AcqRel);
        match age {
            Some(left) if !left.is_zero() && !due => left,
            _ => {
                self.read(held.map(|held| held.read), false).await;
                // When it failed, it is tried again in a while.
                self.held.load().as_ref().map_or(AGAIN * 5, |held| {
                    let age = self.clock.instant().saturating_duration_since(held.read);
                    held.good_for.saturating_sub(age).max(AGAIN * 5)
                })
            }
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.usable().is_some()
    }
}

/// A time in seconds since 1970.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

async fn file(path: &Path) -> Result<Bytes, PemError> {
    let path = path.to_owned();
    let name = Box::from(path.display().to_string());
    let read = tokio::task::spawn_blocking(move || pem::text(&path));
    // The disk may not answer: then it is as if the keys could not be read.
    match tokio::time::timeout(crate::base::file::LOOK, read).await {
        Ok(Ok(text)) => Ok(text?.into()),
        Ok(Err(_)) => Err(PemError::Read(name, std::io::ErrorKind::Other.into())),
        Err(_) => Err(PemError::Read(name, std::io::ErrorKind::TimedOut.into())),
    }
}

impl Held {
    /// The key of this name; without a name, the only one that fits.
    fn choose(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<Arc<Key>> {
        let named = |key: &&Arc<Key>| kid.is_none() || key.kid.as_deref() == kid;
        let mut fitting = self.keys.iter().filter(named).filter(|key| key.fits(algorithm));
        let first = fitting.next()?;
        fitting.next().is_none().then(|| Arc::clone(first))
    }
}
