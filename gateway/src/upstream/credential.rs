//! The credentials that the gateway presents to an upstream server: a configured secret, a token of the gateway's
//! own, or a token for each caller, obtained in exchange for the caller's token. The caller's token itself is never
//! passed on.
//!
//! RFC 8693 (token exchange), RFC 7523 and the MCP extension for enterprise-managed authorization; controls C03 and
//! C04, vectors AV-46 to AV-54. A token for a caller is cached under the digest of the token it was exchanged for, so
//! no caller gets another's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use json::{Document, Value as Json};
use policy_core::subject::name::Scope;
use tokio::sync::Mutex as Turn;

use super::UpstreamError;
use super::on_behalf_of::SubjectToken;
use crate::base::bounded::{BoundedMap, MapFull};
use crate::base::clock::Clock;
use crate::base::sha256::sha256;
use crate::base::share::{Share, Shares};
use crate::base::turns::Turns;
use crate::config::settings::{Limits, ServerCredential, TokenRequest, repeats_scheme};
use crate::crypto::jose::{self, Jws, MAX_TOKEN, seconds, text};
use crate::metrics::Metrics;
use crate::outbound::authorization_server::{OauthClient, OauthError};
use crate::outbound::environment::{Environment, EnvironmentError};
use crate::outbound::secrets::LiveSecret;

/// Maximum number of callers' tokens that are requested at the same time.
const REQUESTS: usize = 64;
/// Maximum number of these for one caller, who may have many tokens, or one that is refused.
const REQUESTS_EACH: usize = 8;
/// Overhead in bytes of a cached token of a caller, beside its text.
const ENTRY: usize = 512;
/// How many seconds before its expiry a token is no longer used.
const MARGIN: u64 = 30;
/// The lifetime in seconds of a token without `expires_in`.
const DEFAULT_LIFETIME_SECONDS: u64 = 60;
/// The maximum lifetime in seconds of a token.
const LONGEST_LIFE: u64 = 24 * 3600;
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// Why there is no credential for a server.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The caller has no token that could be exchanged.
    #[error("the caller has no token to exchange")]
    Subject,
    /// The authorization server did not issue a token.
    #[error(transparent)]
    Oauth(#[from] OauthError),
    /// The issued token is not the one that was requested.
    #[error("the authorization server gave {0}")]
    Given(&'static str),
    /// So many assertions were used that no other one can be noted as used.
    #[error("assertion replay cache is full")]
    Assertions(#[source] MapFull),
}

/// The credentials for one server.
pub(super) struct Credentials {
    kind: CredentialKind,
    /// Cached tokens by digest of the caller's token; the gateway's own token is under zeros.
    tokens: BoundedMap<[u8; 32], Arc<TokenSlot>>,
    /// Budget of bytes for cached tokens of callers, for all servers.
    shares: Arc<Shares<Arc<str>>>,
    /// Assertions that were used, by digest of their `jti`, and when they expire.
    used: BoundedMap<[u8; 32], SystemTime>,
    /// The turns of callers to have a token requested.
    requests: Turns,
    clock: Arc<dyn Clock>,
}

enum CredentialKind {
    Nothing,
    Header { name: HeaderName, prefix: Box<str>, secret: Arc<LiveSecret> },
    Client(Box<TokenClient>),
    Exchange(Box<TokenClient>),
    Assertion { provider: Box<TokenClient>, issuer: Box<str>, server: Box<TokenClient> },
}

/// A token request: the client that sends it and the requested scopes and audience.
struct TokenClient {
    metrics: Arc<Metrics>,
    authority: OauthClient,
    id: Box<str>,
    scopes: Vec<Scope>,
    resource: Option<Box<str>>,
    audience: Option<Box<str>>,
    actor: bool,
}

#[derive(Default)]
struct TokenSlot {
    /// Held while a token is requested; other requests wait.
    turn: Turn<()>,
    held: Mutex<Option<CachedToken>>,
}

struct CachedToken {
    value: HeaderValue,
    until: SystemTime,
    /// Its part of the caller's share; `None` for the gateway's own token.
    _room: Option<Share<Arc<str>>>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl TokenClient {
    fn new(environment: &Environment, grant: &TokenRequest) -> Result<Box<Self>, EnvironmentError> {
        Ok(Box::new(Self {
            authority: OauthClient::new(environment, &grant.place, &grant.client, None)?,
            id: grant.client.id.clone(),
            scopes: grant.scopes.clone(),
            resource: grant.resource.clone(),
            audience: grant.audience.clone(),
            actor: grant.actor,
            metrics: Arc::clone(&environment.metrics),
        }))
    }

    /// The form parameters for the requested scopes, resource and audience.
    fn wanted(&self) -> Vec<(&'static str, String)> {
        let mut form = Vec::new();
        if !self.scopes.is_empty() {
            let scopes: Vec<_> = self.scopes.iter().map(Scope::as_str).collect();
            form.push(("scope", scopes.join(" ")));
        }
        form.extend(self.resource.as_ref().map(|it| ("resource", it.to_string())));
        form.extend(self.audience.as_ref().map(|it| ("audience", it.to_string())));
        form
    }

    async fn ask(
        &self,
        form: &[(&str, &str)],
        wanted: &[(&str, String)],
    ) -> Result<Document, OauthError> {
        let wanted = wanted.iter().map(|(name, value)| (*name, value.as_str()));
        let form: Vec<_> = form.iter().copied().chain(wanted).collect();
        let answer = self.authority.ask(&form).await;
        let [good, bad] = &self.metrics.tokens;
        if answer.is_ok() {
            good.add(1)
        } else {
            bad.add(1)
        }
        answer
    }
}

/// The value of a header that carries a secret, as the secret is now.
///
/// # Errors
/// If the secret cannot be read, or is not valid in a header.
pub(super) fn header(
    name: &HeaderName,
    prefix: &str,
    secret: &LiveSecret,
) -> Result<HeaderValue, EnvironmentError> {
    let secret = secret.now()?;
    if repeats_scheme(prefix, secret.expose()) {
        return Err(EnvironmentError::Repeated { name: name.clone(), prefix: prefix.into() });
    }
    let text = format!("{prefix}{}", secret.expose());
    let unusable =
        |_| EnvironmentError::Header(format!("the configuration for the header `{name}`"));
    let mut value = HeaderValue::try_from(text).map_err(unusable)?;
    value.set_sensitive(true);
    Ok(value)
}

impl Credentials {
    pub(super) fn new(
        environment: &Environment,
        settings: Option<&ServerCredential>,
        limits: &Limits,
    ) -> Result<Self, EnvironmentError> {
        let kind = match settings {
            None => CredentialKind::Nothing,
            Some(ServerCredential::Header { name, prefix, secret }) => {
                let secret = environment.live(secret)?;
                header(name, prefix, &secret)?;
                CredentialKind::Header { name: name.clone(), prefix: prefix.clone(), secret }
            }
            Some(ServerCredential::Client(grant)) => {
                CredentialKind::Client(TokenClient::new(environment, grant)?)
            }
            Some(ServerCredential::Exchange(grant)) => {
                CredentialKind::Exchange(TokenClient::new(environment, grant)?)
            }
            Some(ServerCredential::Assertion { provider, issuer, server }) => {
                CredentialKind::Assertion {
                    provider: TokenClient::new(environment, provider)?,
                    issuer: issuer.clone(),
                    server: TokenClient::new(environment, server)?,
                }
            }
        };
        Ok(Self {
            kind,
            tokens: BoundedMap::new(limits.tokens),
            shares: Arc::clone(&environment.quotas.exchanged),
            used: BoundedMap::new(limits.tokens),
            requests: Turns::new(REQUESTS, REQUESTS_EACH),
            clock: Arc::clone(&environment.clock),
        })
    }

    /// Whether a new credential can be obtained after the server has rejected one.
    pub(super) const fn are_renewable(&self) -> bool {
        matches!(
            self.kind,
            CredentialKind::Client(_)
                | CredentialKind::Exchange(_)
                | CredentialKind::Assertion { .. }
        )
    }

    /// Whether each caller has its own credential and the gateway itself has none.
    pub(super) const fn are_of_callers(&self) -> bool {
        matches!(self.kind, CredentialKind::Exchange(_) | CredentialKind::Assertion { .. })
    }

    /// The header to present to the server for a caller with the token `subject`; `None` if no credential is
    /// configured.
    pub(super) async fn shown(
        &self,
        subject: Option<&Arc<SubjectToken>>,
    ) -> Result<Option<(HeaderName, HeaderValue)>, UpstreamError> {
        let token = match &self.kind {
            CredentialKind::Nothing => return Ok(None),
            CredentialKind::Header { name, prefix, secret } => {
                let value = header(name, prefix, secret).map_err(UpstreamError::Environment)?;
                return Ok(Some((name.clone(), value)));
            }
            // Boxed, because these are large, and the futures of all calls would have room for them.
            CredentialKind::Client(asker) => Box::pin(self.held(None, || self.own(asker))).await,
            CredentialKind::Exchange(asker) => {
                let subject = subject.ok_or(CredentialError::Subject);
                let subject = subject.map_err(UpstreamError::Credential)?;
                Box::pin(self.held(Some(subject), || self.exchange(asker, subject))).await
            }
            CredentialKind::Assertion { provider, issuer, server } => {
                let subject = subject.ok_or(CredentialError::Subject);
                let subject = subject.map_err(UpstreamError::Credential)?;
                let ask = || self.assertion(provider, issuer, server, subject);
                Box::pin(self.held(Some(subject), ask)).await
            }
        };
        token.map(|value| Some((AUTHORIZATION, value))).map_err(UpstreamError::Credential)
    }

    /// Drops the cached token that the server has rejected, so that it is not used again.
    pub(super) fn forget(&self, subject: Option<&Arc<SubjectToken>>, shown: &HeaderValue) {
        let name = if self.are_of_callers() { subject.map(name) } else { Some([0; 32]) };
        let Some(slot) = name.and_then(|name| self.tokens.get(&name)) else { return };
        let mut held = slot.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref().is_some_and(|held| held.value == *shown) {
            *held = None;
        }
    }

    /// Drops the gateway's own cached token, so that a new one is requested.
    pub(super) fn renew(&self) {
        drop(self.tokens.remove(&[0; 32]));
    }

    /// Removes expired tokens that no request waits for, and expired assertions.
    pub(super) fn sweep(&self) {
        let now = self.clock.now();
        self.tokens.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.good(now).is_some());
        self.used.retain(|_, until| *until > now);
    }

    /// The cached token for `subject`, or the gateway's own, requested with `ask` if there is none. Never valid for
    /// longer than the token it was exchanged for.
    async fn held<F>(
        &self,
        subject: Option<&Arc<SubjectToken>>,
        ask: impl FnOnce() -> F,
    ) -> Result<HeaderValue, CredentialError>
    where
        F: Future<Output = Result<(String, u64), CredentialError>>,
    {
        let most = subject.and_then(|subject| subject.until);
        let name = subject.map_or([0; 32], name);
        let slot = match self.tokens.get(&name) {
            Some(slot) => slot,
            None => {
                let slot = Arc::new(TokenSlot::default());
                if self.tokens.insert(name, Arc::clone(&slot)).is_err() {
                    let now = self.clock.now();
                    self.tokens.retain(|_, slot| slot.good(now).is_some());
                    // Without room in the cache the token is requested every time: slower, not wrong.
                    drop(self.tokens.insert(name, Arc::clone(&slot)));
                }
                self.tokens.get(&name).unwrap_or(slot)
            }
        };
        if let Some(value) = slot.good(self.clock.now()) {
            return Ok(value);
        }
        // An expired token is not exchanged.
        if most.is_some_and(|most| most <= self.clock.now()) {
            return Err(CredentialError::Subject);
        }
        let _turn = slot.turn.lock().await;
        if let Some(value) = slot.good(self.clock.now()) {
            return Ok(value);
        }
        // The gateway's own token is requested once for all, also while a caller's is.
        let _request = match subject {
            Some(subject) => self.requests.take(&subject.caller).await,
            None => None,
        };
        let (token, lifetime) = ask().await?;
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_wrong| CredentialError::Given("a token that is none"))?;
        value.set_sensitive(true);
        let lifetime = Duration::from_secs(lifetime.min(LONGEST_LIFE).saturating_sub(MARGIN));
        let until = self.clock.now() + lifetime;
        let until = most.map_or(until, |most| until.min(most));
        let take =
            |subject: &Arc<SubjectToken>| self.shares.take(&subject.caller, value.len() + ENTRY);
        // Without room in the caller's share the token is requested every time: slower, not wrong.
        if let Ok(room) = subject.map(take).transpose() {
            let held = CachedToken { value: value.clone(), until, _room: room };
            *slot.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        }
        Ok(value)
    }

    /// Requests a token for the gateway itself (RFC 6749, section 4.4).
    async fn own(&self, asker: &TokenClient) -> Result<(String, u64), CredentialError> {
        let wanted = asker.wanted();
        let answer = asker.ask(&[("grant_type", "client_credentials")], &wanted).await?;
        self.given(asker, &answer, None)
    }

    /// Exchanges the caller's token for one for the server (RFC 8693, section 2).
    async fn exchange(
        &self,
        asker: &TokenClient,
        subject: &SubjectToken,
    ) -> Result<(String, u64), CredentialError> {
        let actor = match asker.actor {
            true => Some(self.held(None, || self.own(asker)).await?),
            false => None,
        };
        let actor = actor.as_ref().and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let mut form = vec![
            ("grant_type", EXCHANGE),
            ("subject_token", subject.token.expose()),
            ("subject_token_type", ACCESS_TOKEN),
            ("requested_token_type", ACCESS_TOKEN),
        ];
        if let Some(actor) = actor {
            form.push(("actor_token", actor));
            form.push(("actor_token_type", ACCESS_TOKEN));
        }
        let wanted = asker.wanted();
        let answer = asker.ask(&form, &wanted).await?;
        self.given(asker, &answer, Some(ACCESS_TOKEN))
    }

    /// Obtains a token for the caller with an assertion of its identity provider.
    ///
    /// MCP extension `enterprise-managed-authorization`, sections «Token Exchange» and «Access Token Request»
    async fn assertion(
        &self,
        provider: &TokenClient,
        issuer: &str,
        server: &TokenClient,
        subject: &SubjectToken,
    ) -> Result<(String, u64), CredentialError> {
        let resource = server.resource.as_deref().unwrap_or_default();
        let form = [
            ("grant_type", EXCHANGE),
            ("subject_token", subject.token.expose()),
            ("subject_token_type", ACCESS_TOKEN),
            ("requested_token_type", ID_JAG),
            ("audience", issuer),
            ("resource", resource),
        ];
        let wanted: Vec<_> =
            provider.wanted().into_iter().filter(|(name, _)| *name == "scope").collect();
        let answer = provider.ask(&form, &wanted).await?;
        let said = |name: &str| answer.root().get(name).and_then(Json::as_str);
        if said("issued_token_type").as_deref() != Some(ID_JAG) {
            return Err(CredentialError::Given("something else than an assertion"));
        }
        let assertion = said("access_token").ok_or(CredentialError::Given("no assertion"))?;
        self.asserts(&assertion, issuer, resource, &server.id)?;
        let wanted: Vec<_> =
            server.wanted().into_iter().filter(|(name, _)| *name == "scope").collect();
        let form = [("grant_type", JWT_BEARER), ("assertion", &assertion)];
        let answer = server.ask(&form, &wanted).await?;
        self.given(server, &answer, None)
    }

    /// Checks that an assertion is the requested one and was not used before. Its signature is for its audience to
    /// verify, but an assertion for another audience is not forwarded at all (vector AV-53).
    fn asserts(
        &self,
        assertion: &str,
        issuer: &str,
        resource: &str,
        client: &str,
    ) -> Result<(), CredentialError> {
        let wrong = CredentialError::Given("an assertion of something else");
        let Ok(read) = Jws::read(assertion) else { return Err(wrong) };
        let claims = read.unverified();
        let said = |name: &str| text(claims, name).ok().flatten();
        let now = self.clock.now();
        let ends = seconds(claims, "exp").ok().flatten();
        let ends = ends.map(|ends| UNIX_EPOCH + Duration::from_secs(ends.min(1 << 40)));
        let same = read.typ.as_deref() == Some("oauth-id-jag+jwt")
            && said("aud").as_deref() == Some(issuer)
            && said("resource").as_deref() == Some(resource)
            && said("client_id").as_deref() == Some(client);
        let (Some(id), Some(ends), true) = (said("jti"), ends.filter(|ends| *ends > now), same)
        else {
            return Err(wrong);
        };
        let entry = sha256(id.as_bytes());
        let used = CredentialError::Given("an assertion that was used before");
        self.used.retain(|_, until| *until > now);
        match self.used.insert(entry, ends) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(used),
            // Whether this one was used could not be seen later.
            Err(full) => Err(CredentialError::Assertions(full)),
        }
    }

    /// The token in a response and its lifetime in seconds, if it is the requested one (vector AV-48).
    fn given(
        &self,
        asker: &TokenClient,
        answer: &Document,
        issued: Option<&str>,
    ) -> Result<(String, u64), CredentialError> {
        let answer = answer.root();
        let said = |name: &str| answer.get(name).and_then(Json::as_str);
        let token = said("access_token").ok_or(CredentialError::Given("no token"))?;
        let charset = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if token.is_empty() || token.len() > MAX_TOKEN || !token.bytes().all(charset) {
            return Err(CredentialError::Given("a token that is none"));
        }
        if !said("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
            return Err(CredentialError::Given("a token that cannot be sent"));
        }
        if issued.is_some() && said("issued_token_type").as_deref() != issued {
            return Err(CredentialError::Given("another type of token"));
        }
        if let Some(scopes) = said("scope")
            && !asker.scopes.is_empty()
            && scopes.split(' ').any(|one| !asker.scopes.iter().any(|asked| asked.as_str() == one))
        {
            return Err(CredentialError::Given("more scopes than were asked for"));
        }
        let told = seconds(answer, "expires_in");
        let told = told.map_err(|_wrong| CredentialError::Given("no time that can be read"))?;
        if told == Some(0) {
            return Err(CredentialError::Given("a token that has ended"));
        }
        let left = self.fits(asker, &token)?;
        let told = told.unwrap_or(DEFAULT_LIFETIME_SECONDS);
        Ok((token.into_owned(), left.map_or(told, |left| left.min(told))))
    }

    /// Checks that a token in JWT form is for the server and has not expired, and returns its remaining lifetime in
    /// seconds; `None` for an opaque token. Its signature is for the server to verify.
    fn fits(&self, asker: &TokenClient, token: &str) -> Result<Option<u64>, CredentialError> {
        let Some(said) = jose::said(token) else { return Ok(None) };
        let claims = said.root();
        let now = self.clock.now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let ends = seconds(claims, "exp").ok().flatten();
        if ends.is_some_and(|ends| ends <= now) {
            return Err(CredentialError::Given("a token that has ended"));
        }
        let left = ends.map(|ends| ends - now);
        let wanted = asker.audience.as_deref().or(asker.resource.as_deref());
        let (Some(wanted), Some(audience)) = (wanted, claims.get("aud")) else { return Ok(left) };
        let is = |value: Json<'_>| value.as_str().as_deref() == Some(wanted);
        if is(audience) || audience.items().any(is) {
            Ok(left)
        } else {
            Err(CredentialError::Given("a token for another audience"))
        }
    }
}

impl TokenSlot {
    fn good(&self, now: SystemTime) -> Option<HeaderValue> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().filter(|held| held.until > now).map(|held| held.value.clone())
    }
}

/// The cache key of the token for a caller.
fn name(subject: &Arc<SubjectToken>) -> [u8; 32] {
    sha256(subject.token.expose().as_bytes())
}
