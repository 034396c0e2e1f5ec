//! The keys of an issuer: fetches and refreshes them, and chooses the key that may have signed a token.
//!
//! Fetches are single-flight. An unknown key id causes one fetch and then none during a cooldown. Keys that cannot be
//! refreshed are used for a limited time and then not at all (vectors AV-30 to AV-38).

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::Uri;
use json::{Document, Value};
use tokio::sync::{Mutex as Turn, oneshot};

use crate::base::clock::Clock;
use crate::base::task::Tasks;
use crate::config::settings::KeySource;
use crate::crypto::jwk::{self, Algorithm, Jwk, JwksError};
use crate::crypto::pem::{self, PemError};
use crate::net::http_client::{FetchError, HttpClientSettings};

/// Bounds on the refresh interval, regardless of the issuer's cache headers.
const SOONEST: Duration = Duration::from_secs(300);
const LATEST: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of callers that wait for the keys of one issuer.
const MAX_WAITING_CALLERS: usize = 64;
/// Minimum interval between attempts while there are no keys.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The reason why there are no keys.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyFetchError {
    /// They could not be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The file could not be read.
    #[error(transparent)]
    File(#[from] PemError),
    /// The text is not a key set.
    #[error(transparent)]
    Set(#[from] JwksError),
    /// The metadata of the issuer is of another issuer, or has no key set.
    #[error("the metadata of the issuer {0}")]
    Metadata(&'static str),
}

/// The result of a search for a key.
#[derive(Debug)]
pub(super) enum KeyLookup {
    /// The key that may have signed the token, and the generation of its set.
    Key(Arc<Jwk>, u64),
    /// The issuer has no such key.
    Unknown,
    /// The keys of the issuer are not available.
    Unavailable,
}

/// The keys of one issuer.
pub(super) struct KeyRing {
    issuer: Box<str>,
    source: KeySource,
    ways: HttpClientSettings,
    refresh: Duration,
    cooldown: Duration,
    max_stale: Duration,
    clock: Arc<dyn Clock>,
    held: ArcSwapOption<CachedKeys>,
    /// The generation of the key set. Different sets never share a number, even across reloads.
    generation: AtomicU64,
    /// Time until which the keys may be used, in seconds since 1970.
    good_until: AtomicU64,
    /// Whether the keys must be fetched again at once.
    due: AtomicBool,
    /// The key set URL that discovery has found.
    discovered: Mutex<Option<Uri>>,
    /// Held while the keys are fetched, with the times of the last attempts.
    reading: Turn<LastFetches>,
    /// Number of callers that wait for a fetch.
    waiting: AtomicUsize,
    tasks: Tasks,
}

/// The times of the last attempts to fetch the keys.
#[derive(Debug, Default)]
struct LastFetches {
    /// The last attempt for any reason.
    tried: Option<Instant>,
    /// The last attempt because of an unknown key id.
    for_unknown: Option<Instant>,
}

struct CachedKeys {
    keys: Vec<Arc<Jwk>>,
    text: Bytes,
    read: Instant,
    good_for: Duration,
    generation: u64,
}

/// Why the keys of an issuer are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchReason {
    /// None are held, or those that are held are old.
    Age,
    /// A token names a key that is not among them.
    UnknownKey,
}

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyRing").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl KeyRing {
    pub(super) fn new(
        settings: &crate::config::settings::IssuerSettings,
        ways: HttpClientSettings,
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

    /// Takes over the keys of `former` from the same source while they may be used. They are fetched again at once,
    /// because operators reload the configuration to force that.
    pub(super) fn succeed(&self, former: &Self) {
        let Some(held) = former.held.load_full() else { return };
        let age = self.clock.instant().saturating_duration_since(held.read);
        let Some(left) = (held.good_for + self.max_stale).checked_sub(age) else { return };
        self.good_until.store(seconds(self.clock.now() + left), Ordering::Release);
        self.generation.store(held.generation, Ordering::Release);
        self.held.store(Some(held));
        self.due.store(true, Ordering::Release);
    }

    /// The generation of the current key set; tokens that were verified with another one are verified again.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether a result of `generation` is still valid: it is the current key set, and not too old.
    pub(super) fn stands_by(&self, generation: u64, now: SystemTime) -> bool {
        let now = seconds(now);
        self.generation() == generation && now <= self.good_until.load(Ordering::Acquire)
    }

    fn usable(&self) -> Option<Arc<CachedKeys>> {
        let held = self.held.load_full()?;
        let age = self.clock.instant().saturating_duration_since(held.read);
        (age <= held.good_for + self.max_stale).then_some(held)
    }

    /// Finds the key that may have signed a token, by the key id in its header.
    pub(super) async fn find(
        self: &Arc<Self>,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> KeyLookup {
        if let Some(held) = self.usable()
            && let Some(key) = held.choose(kid, algorithm)
        {
            return KeyLookup::Key(key, held.generation);
        }
        let before = self.held.load().as_ref().map(|held| held.read);
        self.read_for(before).await;
        match self.usable() {
            None => KeyLookup::Unavailable,
            Some(held) => match held.choose(kid, algorithm) {
                Some(key) => KeyLookup::Key(key, held.generation),
                None => KeyLookup::Unknown,
            },
        }
    }

    /// Fetches the keys in a task of its own, so that a caller that disconnects does not cancel the fetch for others.
    /// The number of callers that wait is bounded.
    async fn read_for(self: &Arc<Self>, before: Option<Instant>) {
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= MAX_WAITING_CALLERS {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let (done, read) = oneshot::channel::<()>();
        let ring = Arc::clone(self);
        self.tasks.spawn_service(async move {
            ring.read(before, FetchReason::UnknownKey).await;
            ring.waiting.fetch_sub(1, Ordering::AcqRel);
            drop(done);
        });
        // The sender is dropped when the fetch has ended.
        drop(read.await);
    }

    /// Fetches the keys, unless they were fetched after `before` or attempted recently. Fetches because of an unknown
    /// key id have a cooldown, because anyone can make up a key id.
    async fn read(&self, before: Option<Instant>, reason: FetchReason) {
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
            // Callers that waited during a failed attempt share its failure, or each of them would wait in turn.
            let failed_meanwhile = last.tried.is_some_and(|tried| tried >= came);
            if failed_meanwhile || within(last.tried, RETRY_INTERVAL.min(self.cooldown)) {
                return;
            }
        } else if reason == FetchReason::UnknownKey {
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
                let error = crate::base::error_chain::ErrorChain(&error);
                tracing::warn!(
                    event = "issuer.keys_fetch_failed", issuer = %self.issuer, %error,
                    "the keys of the issuer could not be read"
                );
            }
        }
    }

    fn keep(&self, text: Bytes, age: Option<Duration>) {
        let keys = match jwk::keys(text.clone()) {
            Ok(keys) => keys,
            Err(error) => {
                tracing::warn!(
                    event = "issuer.keys_fetch_failed", issuer = %self.issuer, %error,
                    "the keys of the issuer could not be read"
                );
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
        self.held.store(Some(Arc::new(CachedKeys { keys, text, read, good_for, generation })));
        self.good_until.store(until, Ordering::Release);
        self.generation.store(generation, Ordering::Release);
        tracing::debug!(issuer = %self.issuer, generation, "the keys of the issuer were read");
    }

    async fn load(&self) -> Result<(Bytes, Option<Duration>), KeyFetchError> {
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

    /// Fetches the keys once without using them; returns their number.
    pub(super) async fn count(&self) -> Result<usize, KeyFetchError> {
        let (text, _) = self.load().await?;
        Ok(jwk::keys(text)?.len())
    }

    async fn fetch(&self, uri: &Uri) -> Result<(Bytes, Option<Duration>), KeyFetchError> {
        let fetched = self.ways.to(uri)?.get().await?.good()?;
        let age = fetched.max_age();
        Ok((fetched.body, age))
    }

    /// Finds the key set URL in the issuer's metadata (RFC 8414, section 3; OpenID Connect Discovery 1.0, section 4).
    async fn discover(&self, issuer: &Uri) -> Result<Uri, KeyFetchError> {
        let path = issuer.path().trim_end_matches('/');
        let mut last = KeyFetchError::Metadata("cannot be found");
        for place in [
            format!("/.well-known/oauth-authorization-server{path}"),
            format!("/.well-known/openid-configuration{path}"),
            format!("{path}/.well-known/openid-configuration"),
        ] {
            let mut parts = issuer.clone().into_parts();
            parts.path_and_query = place.parse().ok();
            let Ok(uri) = Uri::from_parts(parts) else { continue };
            match self
                .ways
                .to(&uri)?
                .get()
                .await
                .and_then(crate::net::http_client::FetchedResponse::good)
            {
                Ok(fetched) => return self.keys_of(fetched.body),
                Err(error @ FetchError::Status(_)) => last = error.into(),
                Err(error) => return Err(error.into()),
            }
        }
        Err(last)
    }

    /// The key set URL in the metadata `text`.
    fn keys_of(&self, text: Bytes) -> Result<Uri, KeyFetchError> {
        let unreadable = |_| KeyFetchError::Metadata("is not JSON");
        let metadata = Document::parse(text, &jwk::BOUNDS).map_err(unreadable)?;
        let said = |key: &str| metadata.root().get(key).and_then(Value::as_str);
        if said("issuer").as_deref() != Some(&self.issuer) {
            return Err(KeyFetchError::Metadata("is that of another issuer"));
        }
        let place = said("jwks_uri").and_then(|text| text.parse::<Uri>().ok());
        let place = place.filter(|uri| uri.scheme_str() == Some("https"));
        place.ok_or(KeyFetchError::Metadata("has no `jwks_uri` with `https`"))
    }

    /// Fetches the keys when that is due; returns the time until the next call.
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
                self.read(held.map(|held| held.read), FetchReason::Age).await;
                // After a failure, the next attempt comes soon.
                self.held.load().as_ref().map_or(RETRY_INTERVAL * 5, |held| {
                    let age = self.clock.instant().saturating_duration_since(held.read);
                    held.good_for.saturating_sub(age).max(RETRY_INTERVAL * 5)
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
    // A disk that does not answer counts as a read error.
    match tokio::time::timeout(crate::base::file::CHECK_TIMEOUT, read).await {
        Ok(Ok(text)) => Ok(text?.into()),
        Ok(Err(_)) => Err(PemError::Read(name, std::io::ErrorKind::Other.into())),
        Err(_) => Err(PemError::Read(name, std::io::ErrorKind::TimedOut.into())),
    }
}

impl CachedKeys {
    /// The key with this id; without an id, the only one that is valid for the algorithm.
    fn choose(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<Arc<Jwk>> {
        let named = |key: &&Arc<Jwk>| kid.is_none() || key.kid.as_deref() == kid;
        let mut fitting = self.keys.iter().filter(named).filter(|key| key.fits(algorithm));
        let first = fitting.next()?;
        fitting.next().is_none().then(|| Arc::clone(first))
    }
}
