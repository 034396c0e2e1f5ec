//! Validates access tokens: issuer, signature or introspection, audience, and proof of possession.
//!
//! A valid token is cached by its SHA-256 until it expires, so that the next request with it costs a hash, and by the
//! connection it came on last, where it costs a comparison. Everything that depends on the request is checked every
//! time: the audience, the proof, and whether the keys of its issuer are unchanged.
//!
//! The cache survives a reload of the configuration. An entry refers to its issuer by an id that changes with any
//! setting that entries depend on. A reload therefore costs the callers of an unchanged issuer nothing, and the
//! tokens of a changed issuer are validated anew.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aws_lc_rs::constant_time;
use json::Value;
use policy_core::subject::principal::Principal;

use super::claims::{self, ClaimsSource, Confirmation};
use super::dpop::{DpopError, DpopVerifier, ProofContext, ProofTime};
use super::introspection_limiter::{IntrospectionHolder, IntrospectionLimiter};
use super::issuer::{KeyLookup, KeyRing};
use super::{AuthnRequest, TokenError};
use crate::base::bounded::BoundedMap;
use crate::base::clock::Clock;
use crate::base::log_limit::LogLimit;
use crate::base::secret::Secret;
use crate::base::sha256::sha256;
use crate::base::share::{Share, Shares};
use crate::config::quota::Quotas;
use crate::config::settings::{
    IdentitySettings as Settings, ImpliedScopes, IssuerSettings, KeySource, Limits,
};
use crate::crypto::jose::{ExpectedClaims, JoseError, Jws, MAX_TOKEN, text};
use crate::crypto::sealer::Sealer;
use crate::identity::resource::{ProtectedResource, TokenScheme};
use crate::outbound::authorization_server::OauthClient;
use crate::outbound::environment::{Environment, EnvironmentError};

/// Interval at which expired entries are removed.
const SWEEP: Duration = Duration::from_secs(10);
/// Time for which the answer that a token is inactive is cached.
const UNKNOWN: Duration = Duration::from_secs(5);
/// Interval between log lines about tokens on which the two readers differ.
const DIFFERING: Duration = Duration::from_secs(1);
/// Maximum number of inactive tokens that are cached.
const INACTIVE: usize = 4096;
/// Estimated size of a cached token without its texts, in bytes: table entries, an empty principal, and overhead of
/// the allocator.
const ENTRY: usize = 1024;
/// Estimated overhead of a name beside its text, in bytes: its place in a set, and overhead of the allocator.
const NAME: usize = 48;

/// The validator of access tokens.
#[derive(Debug)]
pub(super) struct TokenValidator {
    issuers: Vec<IssuerState>,
    implied: ImpliedScopes,
    memory: Arc<TokenMemory>,
    clock: Arc<dyn Clock>,
}

/// The caches for tokens and proofs, which survive reloads.
#[derive(Debug)]
pub(super) struct TokenMemory {
    tokens: BoundedMap<[u8; 32], Arc<CheckedToken>>,
    /// Bytes of cached tokens, here and in connections, by the id of the caller.
    shares: Arc<Shares<Arc<str>>>,
    /// Tokens that are inactive, in a separate cache because anyone can make them up.
    inactive: BoundedMap<[u8; 32], Arc<CheckedToken>>,
    /// Expiry of tokens that an issuer reported as active, which have reserved room for further introspection.
    known_active: BoundedMap<[u8; 32], SystemTime>,
    /// The DPoP proofs that were used.
    proofs: DpopVerifier,
    /// Log lines about tokens on which the two readers differ.
    differing: LogLimit,
}

impl TokenMemory {
    pub(super) fn new(limits: &Limits, quotas: &Quotas, sealer: Arc<Sealer>) -> Self {
        Self {
            tokens: BoundedMap::new(limits.tokens),
            shares: Arc::clone(&quotas.tokens),
            inactive: BoundedMap::new(INACTIVE),
            known_active: BoundedMap::new(limits.tokens),
            proofs: DpopVerifier::new(limits.proofs, sealer),
            differing: LogLimit::every(DIFFERING),
        }
    }

    fn sweep(&self, at: ProofTime) {
        let now = at.now;
        self.tokens.retain(|_, known| known.until > now);
        self.inactive.retain(|_, known| known.until > now);
        self.known_active.retain(|_, until| *until > now);
        self.proofs.sweep(at);
    }
}

/// A configured issuer and its state.
#[derive(Debug)]
struct IssuerState {
    /// The id of this issuer and its settings; changed settings have another id.
    id: u64,
    settings: IssuerSettings,
    ring: Arc<KeyRing>,
    introspection: Option<IntrospectionClient>,
}

/// The introspection endpoint of an issuer.
#[derive(Debug)]
struct IntrospectionClient {
    authority: OauthClient,
    questions: Arc<IntrospectionLimiter>,
    cache_time: Duration,
}

impl IntrospectionClient {
    fn new(
        issuer: &IssuerSettings,
        environment: &Environment,
        former: Option<&IssuerState>,
    ) -> Result<Option<Self>, EnvironmentError> {
        let Some(asked) = &issuer.introspection else { return Ok(None) };
        let authority =
            OauthClient::new(environment, &asked.place, &asked.client, Some(&issuer.issuer))?;
        // Requests in flight to the issuer still count.
        let questions = former.and_then(|former| former.introspection.as_ref());
        let questions = questions.map(|former| Arc::clone(&former.questions));
        let questions = questions.unwrap_or_else(|| Arc::new(IntrospectionLimiter::new()));
        Ok(Some(Self { authority, questions, cache_time: asked.cache_time }))
    }
}

/// Whether two settings of an issuer read its keys from the same place in the same way. Key files count as different,
/// because reading them again is cheap.
fn have_same_keys(one: &IssuerSettings, other: &IssuerSettings) -> bool {
    let remote = !matches!(one.keys, KeySource::File(_));
    remote && one.issuer == other.issuer && one.keys == other.keys && one.way == other.way
}

impl IssuerState {
    async fn tend(&self) {
        let name = &self.settings.name;
        let mut missing = false;
        loop {
            let pause = self.ring.tend().await;
            let known = self.ring.is_known();
            if !known && !missing {
                tracing::warn!(
                    event = "issuer.keys_unavailable", issuer = %name,
                    "no keys of the issuer: its tokens are rejected until its keys can be read"
                );
            } else if known && missing {
                tracing::info!(
                    event = "issuer.keys_available", issuer = %name,
                    "the keys of the issuer were read"
                );
            }
            missing = !known;
            tokio::time::sleep(pause).await;
        }
    }
}

/// The cached result for a token.
#[derive(Debug)]
struct CheckedToken {
    /// What the token grants; `None` if it is inactive.
    good: Option<ValidToken>,
    /// The id of its issuer.
    issuer: u64,
    /// Time until which this result is used.
    until: SystemTime,
    /// Expiry of the token.
    ends: SystemTime,
    /// The generation of the key set that verified it; `None` if it was introspected.
    generation: Option<u64>,
    /// The share of its caller that it takes while it is cached; `None` if there was no room, so that it is valid for
    /// one request alone.
    room: Option<Share<Arc<str>>>,
}

impl CheckedToken {
    /// Takes the share of its caller for the cache; returns whether there was room.
    fn finds_room(&mut self, shares: &Arc<Shares<Arc<str>>>) -> bool {
        let Some(good) = &self.good else { return false };
        self.room = shares.take(&good.principal.id.as_str().into(), good.memory()).ok();
        self.room.is_some()
    }
}

#[derive(Debug)]
struct ValidToken {
    principal: Arc<Principal>,
    /// The token itself, for token exchange.
    token: Arc<Secret>,
    audiences: Vec<Box<str>>,
    confirmation: Confirmation,
}

impl ValidToken {
    fn new(
        principal: Principal,
        token: &str,
        audiences: Vec<Box<str>>,
        confirmation: Confirmation,
    ) -> Self {
        let token = Arc::new(Secret::new(token.into()));
        Self { principal: Arc::new(principal), token, audiences, confirmation }
    }

    /// Estimates its size in bytes: the token, the principal, and every name in it.
    fn memory(&self) -> usize {
        let Self { principal, token, audiences, confirmation } = self;
        let claims = &principal.claims;
        let groups = principal.groups.iter().map(|name| name.as_str().len());
        let roles = claims.roles.iter().map(|name| name.as_str().len());
        let scopes = claims.scopes.iter().map(|name| name.as_str().len());
        let texts = claims.actors.iter().chain(audiences).map(|text| text.len());
        let said = [&claims.issuer, &claims.subject, &claims.thumbprint, &claims.token];
        let said = said.into_iter().chain([&confirmation.certificate, &confirmation.key]);
        let said = said.flatten().map(|text| text.len());
        let client = claims.client.iter().map(|client| client.as_str().len());
        let names = groups.chain(roles).chain(scopes).chain(texts).chain(said).chain(client);
        let names: usize = names.map(|length| length + NAME).sum();
        ENTRY + token.expose().len() + principal.id.as_str().len() + principal.key().len() + names
    }
}

/// The last valid token of a connection. Most connections use only one.
#[derive(Debug, Default)]
pub struct ConnectionToken(Mutex<Option<Arc<CheckedToken>>>);

impl ConnectionToken {
    fn last(&self, token: &str) -> Option<Arc<CheckedToken>> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let verified = held.as_ref()?;
        let known = &verified.good.as_ref()?.token;
        // Requests of several callers may come on one connection, through a proxy.
        let same =
            constant_time::verify_slices_are_equal(known.expose().as_bytes(), token.as_bytes());
        same.is_ok().then(|| Arc::clone(verified))
    }

    /// Caches the token, if it has a share of the cache.
    fn keep(&self, verified: &Arc<CheckedToken>) {
        if verified.room.is_some() {
            let entry = Arc::clone(verified);
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(entry);
        }
    }
}

/// An accepted access token and its caller.
#[derive(Debug)]
pub(super) struct AcceptedToken {
    pub(super) principal: Arc<Principal>,
    pub(super) token: Arc<Secret>,
    pub(super) until: SystemTime,
    pub(super) body: Option<[u8; 32]>,
}

impl TokenValidator {
    pub(super) fn new(
        settings: &Settings,
        environment: &Environment,
        memory: Arc<TokenMemory>,
        former: Option<&Self>,
    ) -> Result<Self, EnvironmentError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let implied_same = former.is_some_and(|former| former.implied == settings.implied);
        let mut issuers = Vec::new();
        for issuer in &settings.issuers {
            let (clock, tasks) = (Arc::clone(&environment.clock), environment.tasks.clone());
            let ring = KeyRing::new(issuer, environment.ways(&issuer.way, None)?, clock, tasks);
            let mut before = former.into_iter().flat_map(|former| &former.issuers);
            let before = before.find(|known| known.settings.issuer == issuer.issuer);
            if let Some(before) = before.filter(|known| have_same_keys(&known.settings, issuer)) {
                ring.succeed(&before.ring);
            }
            let same = before.filter(|known| implied_same && known.settings == *issuer);
            issuers.push(IssuerState {
                id: same.map_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed), |known| known.id),
                introspection: IntrospectionClient::new(issuer, environment, before)?,
                settings: issuer.clone(),
                ring: Arc::new(ring),
            });
        }
        let (implied, clock) = (settings.implied.clone(), Arc::clone(&environment.clock));
        Ok(Self { issuers, implied, memory, clock })
    }

    /// Whether `token` is for this scheme: a JWT, or an opaque token for a resource with introspection.
    pub(super) fn is_for(&self, resource: &ProtectedResource, token: &str) -> bool {
        looks_signed(token) || self.asked(resource).is_some()
    }

    /// Validates `token` for a request.
    pub(super) async fn accept(
        &self,
        resource: &ProtectedResource,
        token: &str,
        scheme: TokenScheme,
        asked: &AuthnRequest<'_>,
    ) -> Result<AcceptedToken, TokenError> {
        let mut now = self.clock.now();
        let last = asked.memo.and_then(|memo| memo.last(token));
        // A result found for this request is valid for it, even if it is not cached for long.
        let (verified, until) = match last.filter(|last| self.holds(last, now)) {
            Some(verified) => (Arc::clone(&verified), verified.until),
            None => {
                let verified = self.verified(resource, token, asked.peer, now).await?;
                if let Some(memo) = asked.memo {
                    memo.keep(&verified);
                }
                // Validation may have taken a while.
                now = self.clock.now();
                let until = if verified.good.is_some() { verified.ends } else { verified.until };
                (verified, until)
            }
        };
        if until <= now {
            return Err(TokenError::Expired);
        }
        let good = self.for_resource(resource, &verified)?;
        let body = self.proved(resource, good, token, scheme, asked, now)?;
        if let Some(wanted) = resource.proof
            && !wanted.is_met_by(good.principal.claims.proof)
        {
            return Err(TokenError::Unbound);
        }
        let (principal, token) = (Arc::clone(&good.principal), Arc::clone(&good.token));
        Ok(AcceptedToken { principal, token, until: verified.until, body })
    }

    /// Returns what the token grants, if it is valid for this resource.
    fn for_resource<'a>(
        &self,
        resource: &ProtectedResource,
        verified: &'a CheckedToken,
    ) -> Result<&'a ValidToken, TokenError> {
        if !self.place(verified).is_some_and(|(place, _)| resource.issuers.contains(&place)) {
            return Err(TokenError::IssuerOfRoute);
        }
        let good = verified.good.as_ref().ok_or(TokenError::Inactive)?;
        // A token that is also for another audience may have been stolen there.
        if !resource.accepts(&good.audiences) {
            return Err(TokenError::Audience);
        }
        Ok(good)
    }

    /// Validates a token for this resource without a request: returns its principal, and the confirmation that
    /// remains to be proved. Nothing is cached. The issuer is asked about an opaque token.
    pub(super) async fn examine(
        &self,
        resource: &ProtectedResource,
        token: &str,
    ) -> Result<(Arc<Principal>, Confirmation), TokenError> {
        if !is_written_as_a_token(token) {
            return Err(TokenError::Shape);
        }
        let now = self.clock.now();
        let verified = if looks_signed(token) {
            self.verify(resource, token, now).await?
        } else {
            let (known, introspection) = self.asked(resource).ok_or(TokenError::Shape)?;
            self.inspect(known, introspection, token, now).await?
        };
        let good = self.for_resource(resource, &verified)?;
        if let Some(wanted) = resource.proof
            && !wanted.is_met_by(good.principal.claims.proof)
        {
            return Err(TokenError::Unbound);
        }
        Ok((Arc::clone(&good.principal), good.confirmation.clone()))
    }

    /// The configured name of the issuer that a token claims, unverified.
    pub(super) fn said_issuer(&self, token: &str) -> Option<&str> {
        let read = Jws::read(token).ok()?;
        let said = text(read.unverified(), "iss").ok()??;
        let known = self.issuers.iter().find(|known| known.settings.issuer == said)?;
        Some(&known.settings.name)
    }

    /// Checks the proof of possession that the token requires. Returns the digest that the body must have, if the
    /// proof names one.
    fn proved(
        &self,
        resource: &ProtectedResource,
        good: &ValidToken,
        token: &str,
        scheme: TokenScheme,
        asked: &AuthnRequest<'_>,
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
            // RFC 9449, section 7.1: an unbound token must not be presented with the DPoP scheme.
            return match scheme {
                TokenScheme::Dpop => Err(TokenError::Proof),
                TokenScheme::Bearer => Ok(None),
            };
        };
        if scheme != TokenScheme::Dpop {
            return Err(TokenError::Proof);
        }
        let proof = asked.proof.ok_or(TokenError::Proof)?;
        let url = format!("{}{}", resource.public, asked.path);
        let (method, nonce) = (asked.method, resource.nonce);
        let principal = good.principal.id.as_str();
        let about = ProofContext { method, url: &url, token, key, principal, nonce };
        let at = ProofTime { now, instant: self.clock.instant() };
        self.memory.proofs.accept(proof, about, at).map_err(|error| match error {
            DpopError::Nonce => TokenError::Nonce,
            DpopError::Full => TokenError::Busy,
            DpopError::Differs(_) => self.refuse_as_differing(resource, TokenError::Dpop(error)),
            DpopError::Shape | DpopError::Other | DpopError::Time | DpopError::Used => {
                TokenError::Dpop(error)
            }
        })
    }

    /// A nonce for DPoP proofs.
    pub(super) fn nonce(&self) -> Option<String> {
        self.memory.proofs.nonce(self.clock.now())
    }

    /// The issuer of a result and its index; `None` if its settings have changed since or it was removed.
    fn place(&self, verified: &CheckedToken) -> Option<(usize, &IssuerState)> {
        self.issuers.iter().enumerate().find(|(_, known)| known.id == verified.issuer)
    }

    /// Whether a result is still valid.
    fn holds(&self, verified: &CheckedToken, now: SystemTime) -> bool {
        let ring =
            |known: &IssuerState| verified.generation.is_none_or(|g| known.ring.stands_by(g, now));
        verified.until > now && self.place(verified).is_some_and(|(_, known)| ring(known))
    }

    /// The cached result for the token with this digest, if it is still valid.
    fn remembered(&self, name: &[u8; 32], now: SystemTime) -> Option<Arc<CheckedToken>> {
        let holds = |found: &Arc<CheckedToken>| self.holds(found, now);
        if let Some(inactive) = self.memory.inactive.get(name).filter(holds) {
            return Some(inactive);
        }
        let verified = self.memory.tokens.get(name)?;
        if holds(&verified) {
            return Some(verified);
        }
        self.memory.tokens.remove(name);
        None
    }

    /// The result for a token, from the cache or by validation.
    async fn verified(
        &self,
        resource: &ProtectedResource,
        token: &str,
        peer: Option<IpAddr>,
        now: SystemTime,
    ) -> Result<Arc<CheckedToken>, TokenError> {
        if !is_written_as_a_token(token) {
            return Err(TokenError::Shape);
        }
        let name = sha256(token.as_bytes());
        if let Some(verified) = self.remembered(&name, now) {
            return Ok(verified);
        }
        let verified = if looks_signed(token) {
            self.verify(resource, token, now).await?
        } else {
            let (known, introspection) = self.asked(resource).ok_or(TokenError::Shape)?;
            let is_known_active =
                self.memory.known_active.get(&name).is_some_and(|until| until > now);
            let asker = if is_known_active {
                IntrospectionHolder::Token(name)
            } else {
                IntrospectionHolder::at(peer)
            };
            let place = introspection.questions.place(asker).await;
            // A refused client can retry; a waiting one would take the place of others.
            let _place = place.ok_or(TokenError::Unavailable)?;
            let now = self.clock.now();
            // Another request with the same token may have finished meanwhile.
            if let Some(verified) = self.remembered(&name, now) {
                return Ok(verified);
            }
            self.inspect(known, introspection, token, now).await?
        };
        let mut verified = verified;
        let has_room = verified.finds_room(&self.memory.shares);
        let verified = Arc::new(verified);
        if verified.good.is_none() {
            self.memory.known_active.remove(&name);
            self.memory.inactive.remove(&name);
            drop(self.memory.inactive.insert(name, Arc::clone(&verified)));
            return Ok(verified);
        }
        if verified.generation.is_none() {
            // Without room here, the token has no reserved room when it is introspected again.
            if self.memory.known_active.insert(name, verified.ends).is_err() {
                tracing::debug!("the cache of verified tokens is full");
            }
        }
        if !has_room || self.memory.tokens.insert(name, Arc::clone(&verified)).is_err() {
            // Without room in the cache, the token is validated for every request: slower, but correct.
            tracing::debug!("a verified token was not cached");
        }
        Ok(verified)
    }

    /// Verifies a JWT for this resource. The issuer determines the acceptable keys before the signature is checked.
    ///
    /// The result is cached for all resources: [`Self::for_resource`] checks it for the others, with a rule that
    /// implies the one of the second reader.
    async fn verify(
        &self,
        resource: &ProtectedResource,
        token: &str,
        now: SystemTime,
    ) -> Result<CheckedToken, TokenError> {
        let read = Jws::read(token).map_err(TokenError::Jose)?;
        let said = text(read.unverified(), "iss").map_err(|_wrong| TokenError::Issuer)?;
        let said = said.ok_or(TokenError::Issuer)?;
        let known = self.issuers.iter().find(|known| known.settings.issuer == said);
        let known = known.ok_or(TokenError::Issuer)?;
        let settings = &known.settings;
        match read.typ.as_deref() {
            Some("at+jwt") => {}
            None | Some("jwt") if settings.untyped => {}
            // This also refuses tokens for other purposes: ID tokens, proofs, logout tokens.
            Some(_) | None => return Err(TokenError::Kind),
        }
        if !settings.algorithms.contains(&read.algorithm) {
            return Err(TokenError::Algorithm);
        }
        let (key, generation) = match known.ring.find(read.kid.as_deref(), read.algorithm).await {
            KeyLookup::Key(key, generation) => (key, generation),
            KeyLookup::Unknown => return Err(TokenError::Key),
            KeyLookup::Unavailable => return Err(TokenError::Unavailable),
        };
        let judge = |claims| {
            let grant = claims::read(settings, &self.implied, claims, ClaimsSource::Token, now)?;
            let good =
                Some(ValidToken::new(grant.principal, token, grant.audiences, grant.confirmation));
            let (issuer, ends) = (known.id, grant.expires);
            let (generation, room) = (Some(generation), None);
            let checked = CheckedToken { good, issuer, until: ends, ends, generation, room };
            self.for_resource(resource, &checked)?;
            Ok(checked)
        };
        let expected = ExpectedClaims { issuer: &said, audiences: resource.own_audiences() };
        match read.is_issued_as(&key, &expected) {
            Ok(claims) => judge(claims),
            // It is signed, so the caller may know what is wrong with it, which our own checks find more precisely.
            Err(error @ JoseError::Claim(_)) => match judge(read.unverified()) {
                Err(precise) => Err(precise),
                Ok(_) => Err(self.refuse_as_differing(resource, TokenError::Jose(error))),
            },
            Err(error @ JoseError::Differs(_)) => {
                Err(self.refuse_as_differing(resource, TokenError::Jose(error)))
            }
            Err(error) => Err(TokenError::Jose(error)),
        }
    }

    /// Logs that the two readers of tokens differ, and returns `error`.
    fn refuse_as_differing(&self, resource: &ProtectedResource, error: TokenError) -> TokenError {
        if let Some(suppressed) = self.memory.differing.allow(self.clock.instant()) {
            tracing::warn!(
                event = "token.readers_differ", resource = %resource.uri, %error, suppressed,
                "token rejected: only one of the two token parsers accepts it"
            );
        }
        error
    }

    /// The first issuer of the resource with introspection, which is asked about opaque tokens.
    fn asked(&self, resource: &ProtectedResource) -> Option<(&IssuerState, &IntrospectionClient)> {
        let mut known = resource.issuers.iter().filter_map(|n| self.issuers.get(*n));
        known.find_map(|known| Some((known, known.introspection.as_ref()?)))
    }

    /// Asks the issuer about an opaque token (RFC 7662, section 2).
    async fn inspect(
        &self,
        known: &IssuerState,
        introspection: &IntrospectionClient,
        token: &str,
        now: SystemTime,
    ) -> Result<CheckedToken, TokenError> {
        let form = [("token", token), ("token_type_hint", "access_token")];
        let answer = introspection.authority.ask(&form).await;
        let answer = answer.map_err(|error| {
            let error = crate::base::error_chain::ErrorChain(&error);
            tracing::warn!(
                event = "token.introspection_failed", issuer = %known.settings.name, %error,
                "token introspection failed"
            );
            TokenError::Unavailable
        })?;
        let claims = answer.root();
        if claims.get("active").and_then(Value::as_bool) != Some(true) {
            let until = now + UNKNOWN;
            let issuer = known.id;
            let (good, ends, generation, room) = (None, until, None, None);
            return Ok(CheckedToken { good, issuer, until, ends, generation, room });
        }
        let said = text(claims, "iss").map_err(|_wrong| TokenError::Issuer)?;
        if said.is_some_and(|said| said != known.settings.issuer) {
            return Err(TokenError::Issuer);
        }
        let grant =
            claims::read(&known.settings, &self.implied, claims, ClaimsSource::Answer, now)?;
        let good =
            Some(ValidToken::new(grant.principal, token, grant.audiences, grant.confirmation));
        let (issuer, ends) = (known.id, grant.expires);
        let until = ends.min(now + introspection.cache_time);
        Ok(CheckedToken { good, issuer, until, ends, generation: None, room: None })
    }

    /// Keeps the keys of every issuer fresh and the caches clean, until the gateway stops.
    pub(super) async fn tend(&self) {
        let issuers = futures_util::future::join_all(self.issuers.iter().map(IssuerState::tend));
        tokio::join!(issuers, self.sweep());
    }

    /// Removes expired entries at an interval.
    async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let (now, instant) = (self.clock.now(), self.clock.instant());
            self.memory.sweep(ProofTime { now, instant });
        }
    }

    /// The names of the issuers whose keys are not known.
    pub(super) fn missing(&self) -> impl Iterator<Item = &str> {
        let missing = self.issuers.iter().filter(|known| !known.ring.is_known());
        missing.map(|known| &*known.settings.name)
    }
}

/// Whether a text has the syntax of a bearer token and an acceptable length (RFC 6750, section 2.1).
fn is_written_as_a_token(text: &str) -> bool {
    let charset = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    text.len() <= MAX_TOKEN && text.bytes().all(charset)
}

/// Whether a token has three parts, like a JWT.
pub(super) fn looks_signed(token: &str) -> bool {
    memchr::memchr_iter(b'.', token.as_bytes()).count() == 2
}

#[cfg(test)]
mod tests;
