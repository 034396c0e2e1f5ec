//! Access tokens: who vouches, whether it is true, for whom it is, and whether its holder may have it.
//!
//! A token that was verified is remembered by its SHA-256 until it ends, so that the next request
//! with it costs a hash; and by the connection it came on last, where it costs a comparison. What
//! depends on the request is asked every time: the audience, the proof, and whether the keys of its
//! issuer are still the same.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aws_lc_rs::constant_time;
use policy::json::Value;
use policy::principal::Principal;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::claims::{self, Confirmation, Form};
use super::dpop::{About, ProofError, Proofs};
use super::issuer::{Found, KeyRing};
use super::{Asked, TokenError};
use crate::bounded::Bounded;
use crate::clock::Clock;
use crate::jose::{JoseError, Jws, LONGEST, text};
use crate::oauth::Authority;
use crate::resource::Resource;
use crate::secret::Secret;
use crate::settings::{Identity as Settings, Implied, Issuer};
use crate::sha256::sha256;
use crate::world::{World, WorldError};

/// How often what has ended is forgotten.
const SWEEP: Duration = Duration::from_secs(10);
/// How long it is remembered that an issuer does not know a token.
const UNKNOWN: Duration = Duration::from_secs(5);
/// How long a caller waits for its turn to be asked about.
const ROOM: Duration = Duration::from_secs(1);
/// Most tokens nobody knows that are remembered.
const STRANGERS: usize = 4096;
/// Most questions to one issuer about tokens at the same time.
const QUESTIONS: usize = 16;

/// Everything that is needed to believe tokens.
#[derive(Debug)]
pub(super) struct Bearer {
    issuers: Vec<Known>,
    implied: Implied,
    tokens: Bounded<[u8; 32], Arc<Verified>>,
    /// Tokens their issuer does not know, apart from the others: anybody can make them up.
    strangers: Bounded<[u8; 32], Arc<Verified>>,
    /// They are used once, whatever the configuration.
    proofs: Arc<Proofs>,
    /// Which configuration it is of.
    epoch: u64,
    clock: Arc<dyn Clock>,
}

/// An issuer and what is known of it.
#[derive(Debug)]
struct Known {
    settings: Issuer,
    ring: Arc<KeyRing>,
    introspection: Option<(Authority, Semaphore)>,
}

impl Known {
    async fn tend(&self) {
        let name = &self.settings.name;
        let mut missing = false;
        loop {
            let pause = self.ring.tend().await;
            let known = self.ring.is_known();
            if !known && !missing {
                tracing::warn!(
                    issuer = %name,
                    "the keys of this issuer cannot be read; its tokens are refused until they can"
                );
            } else if known && missing {
                tracing::info!(issuer = %name, "the keys of this issuer were read");
            }
            missing = !known;
            tokio::time::sleep(pause).await;
        }
    }
}

/// A token that was looked at.
#[derive(Debug)]
struct Verified {
    /// What it is good for; `None` when its issuer does not know it.
    good: Option<Good>,
    /// Which issuer, by its place.
    issuer: usize,
    until: SystemTime,
    /// The set of keys it was verified with; `None` when its issuer was asked.
    generation: Option<u64>,
}

#[derive(Debug)]
struct Good {
    principal: Arc<Principal>,
    /// The token, to get others for.
    token: Arc<Secret>,
    audiences: Vec<Box<str>>,
    confirmation: Confirmation,
}

impl Good {
    fn new(
        principal: Principal,
        token: &str,
        audiences: Vec<Box<str>>,
        confirmation: Confirmation,
    ) -> Self {
        let token = Arc::new(Secret::new(token.into()));
        Self { principal: Arc::new(principal), token, audiences, confirmation }
    }
}

/// The token that came last on a connection, and what is known of it. Most connections know no
/// other.
#[derive(Debug, Default)]
pub struct Memo(Mutex<Option<(Secret, u64, Arc<Verified>)>>);

impl Memo {
    fn last(&self, token: &str, epoch: u64) -> Option<Arc<Verified>> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What another configuration has found out does not hold in this one.
        let (known, _, verified) = held.as_ref().filter(|(_, found, _)| *found == epoch)?;
        // Requests of several callers may come on one connection, through a proxy.
        let same =
            constant_time::verify_slices_are_equal(known.expose().as_bytes(), token.as_bytes());
        same.is_ok().then(|| Arc::clone(verified))
    }

    fn keep(&self, token: &str, epoch: u64, verified: &Arc<Verified>) {
        let entry = (Secret::new(token.into()), epoch, Arc::clone(verified));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(entry);
    }
}

/// A caller by token.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) principal: Arc<Principal>,
    pub(super) token: Arc<Secret>,
    pub(super) until: SystemTime,
    pub(super) body: Option<[u8; 32]>,
}

impl Bearer {
    pub(super) fn new(
        settings: &Settings,
        world: &World,
        limits: &crate::settings::Limits,
        sealer: Arc<crate::seal::Sealer>,
        former: Option<&Self>,
    ) -> Result<Self, WorldError> {
        static EPOCH: AtomicU64 = AtomicU64::new(0);
        let proofs = former.map(|former| Arc::clone(&former.proofs));
        let mut issuers = Vec::new();
        for issuer in &settings.issuers {
            let (clock, tasks) = (Arc::clone(&world.clock), world.tasks.clone());
            let ring = KeyRing::new(issuer, world.ways(&issuer.way, None)?, clock, tasks);
            let ring = Arc::new(ring);
            let introspection = issuer.introspection.as_ref().map(|asked| {
                let at = Authority::new(world, &asked.place, &asked.client, Some(&issuer.issuer));
                at.map(|authority| (authority, Semaphore::new(QUESTIONS)))
            });
            let introspection = introspection.transpose()?;
            issuers.push(Known { settings: issuer.clone(), ring, introspection });
        }
        Ok(Self {
            issuers,
            implied: settings.implied.clone(),
            tokens: Bounded::new(limits.tokens),
            strangers: Bounded::new(STRANGERS),
            proofs: proofs.unwrap_or_else(|| Arc::new(Proofs::new(limits.proofs, sealer))),
            epoch: EPOCH.fetch_add(1, Ordering::Relaxed),
            clock: Arc::clone(&world.clock),
        })
    }

    /// Whether `token` is for this scheme: readable, or of an issuer that can be asked.
    pub(super) fn is_for(&self, resource: &Resource, token: &str) -> bool {
        looks_signed(token) || self.asked(resource).is_some()
    }

    /// Who may use `token` for what is asked.
    pub(super) async fn accept(
        &self,
        resource: &Resource,
        token: &str,
        dpop: bool,
        asked: &Asked<'_>,
    ) -> Result<Accepted, TokenError> {
        let mut now = self.clock.now();
        let last = asked.memo.and_then(|memo| memo.last(token, self.epoch));
        let verified = match last.filter(|last| self.holds(last, now)) {
            Some(verified) => verified,
            None => {
                let verified = self.verified(resource, token, now).await?;
                if let Some(memo) = asked.memo {
                    memo.keep(token, self.epoch, &verified);
                }
                // Finding it out may have taken a while.
                now = self.clock.now();
                verified
            }
        };
        if verified.until <= now {
            return Err(TokenError::Expired);
        }
        if !resource.issuers.contains(&verified.issuer) {
            return Err(TokenError::Issuer);
        }
        let good = verified.good.as_ref().ok_or(TokenError::Inactive)?;
        // A token that is good for somebody else as well could have been taken there.
        if !good.audiences.iter().all(|audience| resource.accepts(audience)) {
            return Err(TokenError::Audience);
        }
        let body = self.proved(resource, good, token, dpop, asked, now)?;
        if let Some(wanted) = resource.proof
            && !wanted.is_met_by(good.principal.claims.proof)
        {
            return Err(TokenError::Unbound);
        }
        let (principal, token) = (Arc::clone(&good.principal), Arc::clone(&good.token));
        Ok(Accepted { principal, token, until: verified.until, body })
    }

    /// Whether the holder of the token has proved what it has to prove.
    fn proved(
        &self,
        resource: &Resource,
        good: &Good,
        token: &str,
        dpop: bool,
        asked: &Asked<'_>,
        now: SystemTime,
    ) -> Result<Option<[u8; 32]>, TokenError> {
        let Confirmation { certificate, key } = &good.confirmation;
        if let Some(bound) = certificate {
            let shown = asked.certificate.map(|shown| shown.thumbprint.as_bytes());
            let same = shown.is_some_and(|shown| {
                constant_time::verify_slices_are_equal(shown, bound.as_bytes()).is_ok()
            });
            if !same {
                return Err(TokenError::Certificate);
            }
        }
        let Some(key) = key else {
            // RFC 9449, section 7.1: a token that is not bound is not presented like one that is.
            return if dpop { Err(TokenError::Proof) } else { Ok(None) };
        };
        if !dpop {
            return Err(TokenError::Proof);
        }
        let proof = asked.proof.ok_or(TokenError::Proof)?;
        let url = format!("{}{}", resource.public, asked.path);
        let (method, nonce) = (asked.method, resource.nonce);
        let about = About { method, url: &url, token, key, nonce };
        self.proofs.accept(proof, about, now).map_err(|error| match error {
            ProofError::Nonce => TokenError::Nonce,
            ProofError::Full => TokenError::Busy,
            ProofError::Shape | ProofError::Other | ProofError::Time | ProofError::Used => {
                TokenError::Dpop(error)
            }
        })
    }

    /// A nonce for proofs.
    pub(super) fn nonce(&self) -> Option<String> {
        self.proofs.nonce(self.clock.now())
    }

    /// Whether what was verified still is so.
    fn holds(&self, verified: &Verified, now: SystemTime) -> bool {
        let ring = |known: &Known| verified.generation.is_none_or(|g| known.ring.stands_by(g, now));
        verified.until > now && self.issuers.get(verified.issuer).is_some_and(ring)
    }

    /// What is known of a token, found out first if need be.
    async fn verified(
        &self,
        resource: &Resource,
        token: &str,
        now: SystemTime,
    ) -> Result<Arc<Verified>, TokenError> {
        let charset = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if token.len() > LONGEST || !token.bytes().all(charset) {
            return Err(TokenError::Shape);
        }
        let name = sha256(token.as_bytes());
        if let Some(stranger) = self.strangers.get(&name).filter(|one| one.until > now) {
            return Ok(stranger);
        }
        if let Some(verified) = self.tokens.get(&name) {
            if self.holds(&verified, now) {
                return Ok(verified);
            }
            self.tokens.remove(&name);
        }
        let verified = if looks_signed(token) {
            self.verify(token, now).await?
        } else {
            self.inspect(resource, token, now).await?
        };
        let verified = Arc::new(verified);
        if verified.good.is_none() {
            self.strangers.remove(&name);
            drop(self.strangers.insert(name, Arc::clone(&verified)));
            return Ok(verified);
        }
        if self.tokens.insert(name, Arc::clone(&verified)).is_err() {
            // With no room to remember it, it is verified each time: slower, not wrong.
            tracing::debug!("a token is not remembered");
        }
        Ok(verified)
    }

    /// Verifies a token that is signed. Its issuer chooses the keys before the signature is looked at.
    async fn verify(&self, token: &str, now: SystemTime) -> Result<Verified, TokenError> {
        let read = Jws::read(token).map_err(TokenError::Jose)?;
        let said = text(read.unverified(), "iss").map_err(|_wrong| TokenError::Issuer)?;
        let said = said.ok_or(TokenError::Issuer)?;
        let place = self.issuers.iter().position(|known| known.settings.issuer == said);
        let (issuer, known) = place
            .and_then(|place| Some((place, self.issuers.get(place)?)))
            .ok_or(TokenError::Issuer)?;
        let settings = &known.settings;
        match read.typ.as_deref() {
            Some("at+jwt") => {}
            None | Some("jwt") if settings.untyped => {}
            // Also what is signed for something else: an ID token, a proof, a logout.
            Some(_) | None => return Err(TokenError::Kind),
        }
        if !settings.algorithms.contains(&read.algorithm) {
            return Err(TokenError::Jose(JoseError::Algorithm));
        }
        let (key, generation) = match known.ring.find(read.kid.as_deref(), read.algorithm).await {
            Found::Key(key, generation) => (key, generation),
            Found::Unknown => return Err(TokenError::Key),
            Found::Unavailable => return Err(TokenError::Unavailable),
        };
        let claims = read.is_signed_by(&key).map_err(TokenError::Jose)?;
        let grant = claims::read(settings, &self.implied, claims, Form::Token, now)?;
        let good = Some(Good::new(grant.principal, token, grant.audiences, grant.confirmation));
        Ok(Verified { good, issuer, until: grant.expires, generation: Some(generation) })
    }

    /// The issuer that is asked about tokens nobody can read.
    fn asked(&self, resource: &Resource) -> Option<(usize, &Known)> {
        let known = resource.issuers.iter().filter_map(|n| Some((*n, self.issuers.get(*n)?)));
        known.into_iter().find(|(_, known)| known.introspection.is_some())
    }

    /// Asks the issuer about a token.
    ///
    /// RFC 7662, section 2
    async fn inspect(
        &self,
        resource: &Resource,
        token: &str,
        now: SystemTime,
    ) -> Result<Verified, TokenError> {
        let (issuer, known) = self.asked(resource).ok_or(TokenError::Shape)?;
        let Some((authority, room)) = &known.introspection else { return Err(TokenError::Shape) };
        let cache_time = known.settings.introspection.as_ref().map(|asked| asked.cache_time);
        let answer = {
            // Whoever would have to wait for long is told so: a place is held meanwhile.
            let Ok(Ok(_room)) = timeout(ROOM, room.acquire()).await else {
                return Err(TokenError::Unavailable);
            };
            authority.ask(&[("token", token), ("token_type_hint", "access_token")]).await
        };
        let answer = answer.map_err(|error| {
            let error = crate::report::Chain(&error);
            tracing::warn!(issuer = %known.settings.name, %error, "a token could not be asked about");
            TokenError::Unavailable
        })?;
        let claims = answer.root();
        if claims.get("active").and_then(Value::as_bool) != Some(true) {
            let until = now + UNKNOWN;
            return Ok(Verified { good: None, issuer, until, generation: None });
        }
        let said = text(claims, "iss").map_err(|_wrong| TokenError::Issuer)?;
        if said.is_some_and(|said| said != known.settings.issuer) {
            return Err(TokenError::Issuer);
        }
        let grant = claims::read(&known.settings, &self.implied, claims, Form::Answer, now)?;
        let good = Some(Good::new(grant.principal, token, grant.audiences, grant.confirmation));
        let until = grant.expires.min(now + cache_time.unwrap_or(UNKNOWN));
        Ok(Verified { good, issuer, until, generation: None })
    }

    /// Reads the keys of every issuer before they are needed, for as long as the gateway runs.
    pub(super) async fn tend(&self) {
        let issuers = futures_util::future::join_all(self.issuers.iter().map(Known::tend));
        tokio::join!(issuers, self.sweep());
    }

    /// Forgets what has ended.
    async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let now = self.clock.now();
            self.tokens.retain(|_, known| known.until > now);
            self.strangers.retain(|_, known| known.until > now);
            self.proofs.sweep(now);
        }
    }

    /// Whether the keys of every issuer are known.
    pub(super) fn missing(&self) -> impl Iterator<Item = &str> {
        let missing = self.issuers.iter().filter(|known| !known.ring.is_known());
        missing.map(|known| &*known.settings.name)
    }
}

/// Three parts: a token that can be read.
fn looks_signed(token: &str) -> bool {
    memchr::memchr_iter(b'.', token.as_bytes()).count() == 2
}
