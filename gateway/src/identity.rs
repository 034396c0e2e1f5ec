//! Authenticates requests: turns their credentials (API keys, access tokens, client certificates) into a
//! [`Principal`]. The exchange calls [`Authenticator::identify`] for every request. This module knows HTTP and
//! credentials, and must not know the policy.

pub mod resource;
mod certificate;
mod claims;
mod dpop;
mod error;
mod issuer;
mod keys;
mod address_turns;
mod introspection_limiter;
mod bearer;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, Method};
use policy_core::subject::principal::Principal;

use crate::audit::{CERTIFICATE, OAUTH};
use crate::base::error_chain::ErrorChain;
use crate::base::secret::Secret;
use crate::config::settings::{self, AuthScheme, KnownCertificate, Limits};
use crate::crypto::sealer::Sealer;
use crate::crypto::x509::VerifiedCertificate;
use crate::identity::resource::{ChallengeError, ProtectedResource, TokenScheme};
use crate::mcp::wire::headers::{SingleValue, single};
use crate::metrics::credential_check::CredentialCheck;
use crate::outbound::environment::{Environment, EnvironmentError};

pub use bearer::ConnectionToken;
use bearer::{TokenMemory, TokenValidator, looks_signed};
pub use certificate::{ForwardedCertificate, is_named, told};
pub use claims::Confirmation;
pub use dpop::DpopError;
pub use error::{ClaimError, TokenError};
use issuer::KeyRing;
use keys::ApiKeys;

/// Fetches the keys of an issuer once, as the gateway does, and returns their number. For diagnostics.
///
/// # Errors
/// The reason why they cannot be read, as text.
pub async fn count_keys(
    issuer: &settings::IssuerSettings,
    environment: &Environment,
) -> Result<usize, String> {
    let ways =
        environment.ways(&issuer.way, None).map_err(|error| ErrorChain(&error).to_string())?;
    let ring =
        KeyRing::new(issuer, ways, Arc::clone(&environment.clock), environment.tasks.clone());
    ring.count().await.map_err(|error| ErrorChain(&error).to_string())
}

/// The form of an access token, which decides how it is validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenForm {
    /// A JWT, validated by its signature (RFC 9068).
    Signed,
    /// An opaque token, validated by introspection (RFC 7662).
    Opaque,
}

impl TokenForm {
    /// Determines the form of a token.
    #[must_use]
    pub fn of(token: &str) -> Self {
        if looks_signed(token) { Self::Signed } else { Self::Opaque }
    }
}

static API_KEY: HeaderName = HeaderName::from_static("x-api-key");
static DPOP: HeaderName = HeaderName::from_static("dpop");

/// The result of one authentication scheme for a request.
enum SchemeResult {
    /// The request has no credential for this scheme; the next one is tried.
    Absent,
    /// The request has a credential that may belong to another scheme.
    Foreign,
    /// The credential is valid.
    Proved(Box<AuthenticatedCaller>),
    /// The credential is invalid; no other scheme is tried.
    Refuted(AuthnError),
}

/// The reason why a request is not authenticated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthnError {
    /// No scheme found a credential.
    #[error("no credential")]
    Missing,
    /// The credential is not known.
    #[error("the credential is not known")]
    Unknown,
    /// The listener accepts anonymous callers only, but the request has a credential.
    #[error("this listener accepts no credentials")]
    Unwanted,
    /// The request has more than one credential.
    #[error("more than one credential")]
    Ambiguous,
    /// A proxy forwarded a certificate that cannot be parsed.
    #[error("the forwarded client certificate cannot be parsed")]
    Forwarded,
    /// The caller, its client or its token is revoked.
    #[error("the caller was revoked")]
    Revoked,
    /// The access token is not accepted.
    #[error("the token is not accepted")]
    Token(#[source] TokenError),
}

impl AuthnError {
    /// The check that the token failed, if any: for the operator alone.
    #[must_use]
    pub const fn detail(&self) -> Option<CredentialCheck> {
        match self {
            Self::Token(error) => Some(error.detail()),
            Self::Missing
            | Self::Unknown
            | Self::Unwanted
            | Self::Ambiguous
            | Self::Forwarded
            | Self::Revoked => None,
        }
    }

    /// The stable reason code for records; `docs/reasons.md` explains each code and what to do.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Missing => "credential-missing",
            Self::Unknown | Self::Unwanted | Self::Ambiguous | Self::Forwarded => {
                "credential-refused"
            }
            Self::Revoked => "credential-revoked",
            Self::Token(error) => match error {
                TokenError::Audience => "token-audience",
                TokenError::Expired | TokenError::Early | TokenError::Lifetime => "token-time",
                TokenError::Issuer | TokenError::IssuerOfRoute | TokenError::Key => "token-issuer",
                TokenError::Certificate
                | TokenError::Confirmation
                | TokenError::Proof
                | TokenError::Dpop(_)
                | TokenError::Nonce
                | TokenError::Unbound
                | TokenError::Body => "token-proof",
                TokenError::Unavailable | TokenError::Busy => "token-unavailable",
                TokenError::Shape
                | TokenError::Jose(_)
                | TokenError::Algorithm
                | TokenError::Kind
                | TokenError::IdToken
                | TokenError::Use
                | TokenError::Claims(_)
                | TokenError::Inactive => "token-refused",
            },
        }
    }

    /// Whether the gateway or an issuer is at fault, and not the caller.
    #[must_use]
    pub const fn is_ours(&self) -> bool {
        matches!(self, Self::Token(TokenError::Unavailable | TokenError::Busy))
    }

    /// The error that the client is told, for the challenge.
    #[must_use]
    pub const fn wrong(&self) -> ChallengeError {
        match self {
            Self::Missing => ChallengeError::Nothing,
            Self::Ambiguous | Self::Forwarded => ChallengeError::Request,
            Self::Unknown | Self::Unwanted | Self::Revoked => {
                ChallengeError::Token("the token is not accepted")
            }
            Self::Token(error) => match error {
                TokenError::Expired => ChallengeError::Token("the token has expired"),
                TokenError::Audience => ChallengeError::Token("the token is for another resource"),
                TokenError::Nonce => ChallengeError::Nonce,
                TokenError::Dpop(_) => ChallengeError::Proof("the proof is not accepted"),
                TokenError::Confirmation | TokenError::Proof => {
                    ChallengeError::Bound("the token needs a proof of possession")
                }
                TokenError::Certificate | TokenError::Unbound => {
                    ChallengeError::Token("the token needs a proof of possession")
                }
                _ => ChallengeError::Token("the token is not accepted"),
            },
        }
    }
}

/// An authenticated caller and its credential.
#[derive(Clone, Debug)]
pub struct AuthenticatedCaller {
    /// The principal of the caller.
    pub principal: Arc<Principal>,
    /// The authentication scheme, as the audit log names it.
    pub scheme: &'static str,
    /// The access token of the request, for token exchange.
    pub token: Option<Arc<Secret>>,
    /// Expiry of the credential; `None` if it does not expire.
    pub until: Option<SystemTime>,
    /// The SHA-256 that the request body must have, if a proof signs it.
    pub body: Option<[u8; 32]>,
}

impl AuthenticatedCaller {
    fn by(principal: Arc<Principal>, scheme: &'static str) -> Self {
        Self { principal, scheme, token: None, until: None, body: None }
    }
}

/// The authentication-related parts of a request, and what its listener requires.
#[derive(Clone, Copy, Debug)]
pub struct AuthnRequest<'a> {
    /// The accepted schemes, in order.
    pub schemes: &'a [AuthScheme],
    /// The method of the request.
    pub method: &'a Method,
    /// The path of the request.
    pub path: &'a str,
    /// The query of the request.
    pub query: Option<&'a str>,
    /// The headers of the request.
    pub headers: &'a HeaderMap,
    /// The protected resource that tokens must be for.
    pub resource: Option<&'a ProtectedResource>,
    /// The client certificate of the connection.
    pub certificate: Option<&'a VerifiedCertificate>,
    /// The cache of the connection.
    pub memo: Option<&'a ConnectionToken>,
    /// The address of the client.
    pub peer: Option<IpAddr>,
    /// The DPoP proof of the request.
    proof: Option<&'a str>,
}

impl<'a> AuthnRequest<'a> {
    /// Makes the input for a request with this head.
    #[must_use]
    pub fn new(
        schemes: &'a [AuthScheme],
        head: &'a http::request::Parts,
        resource: Option<&'a ProtectedResource>,
        certificate: Option<&'a VerifiedCertificate>,
    ) -> Self {
        let (path, query) = (head.uri.path(), head.uri.query());
        let (method, headers) = (&head.method, &head.headers);
        Self {
            schemes,
            method,
            path,
            query,
            headers,
            resource,
            certificate,
            memo: None,
            peer: None,
            proof: None,
        }
    }
}

/// Authenticates the requests of clients.
#[derive(Debug)]
pub struct Authenticator {
    keys: ApiKeys,
    anonymous: Option<Arc<Principal>>,
    bearer: Option<TokenValidator>,
    memory: Arc<TokenMemory>,
    certificates: Vec<KnownCertificate>,
}

impl Authenticator {
    /// Makes an authenticator for the callers of `settings`. The token cache and the replay protection of `former`
    /// are kept.
    ///
    /// # Errors
    /// If a resource that an issuer needs is not available.
    pub fn new(
        settings: &settings::IdentitySettings,
        environment: &Environment,
        limits: &Limits,
        sealer: Arc<Sealer>,
        former: Option<&Self>,
    ) -> Result<Self, EnvironmentError> {
        let memory = former.map(|former| Arc::clone(&former.memory));
        let memory = memory
            .unwrap_or_else(|| Arc::new(TokenMemory::new(limits, &environment.quotas, sealer)));
        let former = former.and_then(|former| former.bearer.as_ref());
        let bearer = || TokenValidator::new(settings, environment, Arc::clone(&memory), former);
        let bearer = (!settings.issuers.is_empty()).then(bearer).transpose()?;
        Ok(Self {
            keys: ApiKeys::new(&settings.api_keys),
            anonymous: settings.anonymous.clone().map(Arc::new),
            bearer,
            memory,
            certificates: settings.certificates.clone(),
        })
    }

    /// Authenticates a request; the schemes are tried in order.
    ///
    /// # Errors
    /// If there is no credential, or the first one found is invalid.
    pub async fn identify(
        &self,
        mut asked: AuthnRequest<'_>,
    ) -> Result<AuthenticatedCaller, AuthnError> {
        let shown = shown(&asked);
        let takes = |scheme: &AuthScheme| matches!(scheme, AuthScheme::ApiKey | AuthScheme::Oauth);
        if asked.schemes.iter().any(takes)
            && asked.query.is_some_and(|query| has_credential(query, shown.as_ref().ok()))
        {
            return Err(AuthnError::Ambiguous);
        }
        // A leftover key of a client is reported as unwanted: another key would not be accepted either.
        let open = !asked.schemes.is_empty()
            && asked.schemes.iter().all(|scheme| *scheme == AuthScheme::Anonymous);
        let unknown = if open { AuthnError::Unwanted } else { AuthnError::Unknown };
        let shown = shown.map_err(|error| match error {
            AuthnError::Unknown => unknown.clone(),
            other => other,
        })?;
        asked.proof = shown.proof;
        let mut foreign = false;
        for scheme in asked.schemes {
            let claim = match scheme {
                AuthScheme::ApiKey => self.key(&shown),
                AuthScheme::Anonymous => self.anonymous(&shown),
                // A request with another credential is judged by that one, which may grant less than the certificate.
                AuthScheme::Certificate if shown.any => SchemeResult::Foreign,
                AuthScheme::Certificate => self.certificate(&asked),
                // Boxed, because it is large, and the futures of all requests would have room for it.
                AuthScheme::Oauth => Box::pin(self.token(&asked, &shown)).await,
            };
            match claim {
                SchemeResult::Absent => {}
                SchemeResult::Foreign => foreign = true,
                SchemeResult::Proved(caller) => return Ok(named(*caller, asked.certificate)),
                SchemeResult::Refuted(error) => return Err(error),
            }
        }
        Err(if foreign { unknown } else { AuthnError::Missing })
    }

    fn key(&self, shown: &RequestCredentials<'_>) -> SchemeResult {
        let known = |key: &str| self.keys.find(key);
        match (shown.bearer, shown.key) {
            (None, None) => SchemeResult::Absent,
            (_, Some(key)) => match known(key) {
                Some(who) => SchemeResult::Proved(Box::new(AuthenticatedCaller::by(
                    Arc::clone(who),
                    "apiKey",
                ))),
                None => SchemeResult::Refuted(AuthnError::Unknown),
            },
            (Some(key), None) => match known(key) {
                Some(who) => SchemeResult::Proved(Box::new(AuthenticatedCaller::by(
                    Arc::clone(who),
                    "apiKey",
                ))),
                // It may be an access token.
                None => SchemeResult::Foreign,
            },
        }
    }

    fn certificate(&self, asked: &AuthnRequest<'_>) -> SchemeResult {
        let Some(certificate) = asked.certificate else { return SchemeResult::Absent };
        match certificate::who(&self.certificates, certificate) {
            Some(who) => {
                let mut caller = AuthenticatedCaller::by(Arc::new(who), CERTIFICATE);
                caller.until = Some(certificate.ends);
                SchemeResult::Proved(Box::new(caller))
            }
            None => SchemeResult::Foreign,
        }
    }

    async fn token(
        &self,
        asked: &AuthnRequest<'_>,
        shown: &RequestCredentials<'_>,
    ) -> SchemeResult {
        let (token, scheme) = match (shown.bearer, shown.dpop) {
            (Some(token), None) => (token, TokenScheme::Bearer),
            (None, Some(token)) => (token, TokenScheme::Dpop),
            (Some(_), Some(_)) | (None, None) => return SchemeResult::Absent,
        };
        let (Some(bearer), Some(resource)) = (&self.bearer, asked.resource) else {
            return SchemeResult::Foreign;
        };
        // A known API key must not be sent to an issuer.
        let is_key =
            || asked.schemes.contains(&AuthScheme::ApiKey) && self.keys.find(token).is_some();
        if !bearer.is_for(resource, token) || is_key() {
            return SchemeResult::Foreign;
        }
        match bearer.accept(resource, token, scheme, asked).await {
            Ok(accepted) => {
                let mut caller = AuthenticatedCaller::by(accepted.principal, OAUTH);
                caller.token = Some(accepted.token);
                caller.until = Some(accepted.until);
                caller.body = accepted.body;
                SchemeResult::Proved(Box::new(caller))
            }
            Err(error) => SchemeResult::Refuted(AuthnError::Token(error)),
        }
    }

    /// A request with a credential is not anonymous, even if no credential is needed: accepting it would hide that
    /// the credential is wrong.
    fn anonymous(&self, shown: &RequestCredentials<'_>) -> SchemeResult {
        if shown.any {
            return SchemeResult::Foreign;
        }
        let caller = |who: &Arc<Principal>| AuthenticatedCaller::by(Arc::clone(who), "anonymous");
        self.anonymous
            .as_ref()
            .map_or(SchemeResult::Absent, |who| SchemeResult::Proved(Box::new(caller(who))))
    }

    /// Validates a token for `resource` without a request. Returns the principal, and the confirmation that its
    /// requests must prove. Nothing is cached. The issuer is asked about an opaque token.
    ///
    /// # Errors
    /// The check that the token fails.
    pub async fn examine(
        &self,
        resource: &ProtectedResource,
        token: &str,
    ) -> Result<(Arc<Principal>, Confirmation), TokenError> {
        match &self.bearer {
            Some(bearer) => bearer.examine(resource, token).await,
            None => Err(TokenError::Issuer),
        }
    }

    /// Whether a text is a configured API key, which must not be sent to an issuer.
    #[must_use]
    pub fn is_key(&self, text: &str) -> bool {
        self.keys.find(text).is_some()
    }

    /// The configured name of the issuer that a token claims, unverified.
    #[must_use]
    pub fn said_issuer(&self, token: &str) -> Option<&str> {
        self.bearer.as_ref()?.said_issuer(token)
    }

    /// A nonce for DPoP proofs.
    #[must_use]
    pub fn nonce(&self) -> Option<String> {
        self.bearer.as_ref()?.nonce()
    }

    /// Keeps the keys of the issuers fresh until the gateway stops.
    pub async fn tend(&self) {
        match &self.bearer {
            Some(bearer) => bearer.tend().await,
            None => std::future::pending().await,
        }
    }

    /// The names of the issuers whose keys are not known; their tokens are refused.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        self.bearer.iter().flat_map(TokenValidator::missing)
    }
}

/// Query parameters that carry a credential regardless of the value: in lower case, without separators. Parameters
/// with other uses, such as `token`, `key` and `auth`, are judged by the value.
const CREDENTIALS: [&str; 12] = [
    "accesstoken",
    "apikey",
    "apitoken",
    "authorization",
    "authtoken",
    "bearer",
    "bearertoken",
    "dpop",
    "idtoken",
    "jwt",
    "refreshtoken",
    "xapikey",
];

/// Most parameters of a query that are read. The protocol has one, in the former transport.
const PARAMETERS: usize = 64;

/// Whether a query contains a credential in any spelling: by the name of a parameter, or because a value equals a
/// credential in the headers or looks like a token or a key.
///
/// RFC 6750, section 2.3: a token in a URL appears in the logs of every hop.
fn has_credential(query: &str, shown: Option<&RequestCredentials<'_>>) -> bool {
    let decoded =
        |text: &str| certificate::percent(text).unwrap_or_else(|| text.as_bytes().to_vec());
    // A stranger chooses it, so no more of it is read: a query of so many parameters is refused like one with a credential.
    let separators = query.bytes().filter(|byte| matches!(byte, b'&' | b';'));
    if separators.take(PARAMETERS).count() == PARAMETERS {
        return true;
    }
    query.split(['&', ';']).filter(|pair| !pair.is_empty()).any(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let letters = decoded(name).into_iter().filter(u8::is_ascii_alphanumeric);
        let name: Vec<u8> = letters.map(|byte| byte.to_ascii_lowercase()).collect();
        CREDENTIALS.iter().any(|known| known.as_bytes() == name)
            || is_credential(&decoded(value), shown)
    })
}

/// Whether the value of a parameter equals a credential in the headers, or looks like one: it starts with a scheme,
/// is a JWT (RFC 7519: three base64url parts, or five if encrypted, the first of which is an object), or is a key
/// that `portcullis keygen` made.
fn is_credential(value: &[u8], shown: Option<&RequestCredentials<'_>>) -> bool {
    let scheme = value.iter().position(|byte| matches!(byte, b' ' | b'+'));
    let whole = value;
    let (scheme, value) = value.split_at(scheme.map_or(0, |at| at + 1));
    let named = |known: &str| {
        scheme.split_last().is_some_and(|(_, name)| name.eq_ignore_ascii_case(known.as_bytes()))
    };
    let is_shown = shown.is_some_and(|shown| {
        let all = [shown.bearer, shown.dpop, shown.key];
        all.into_iter().flatten().map(str::as_bytes).any(|own| own == value || own == whole)
    });
    let base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_=.".contains(byte);
    let parts = value.split(|byte| *byte == b'.').count();
    let is_jwt = value.starts_with(b"eyJ") && matches!(parts, 3 | 5) && value.iter().all(base64);
    named("bearer")
        || named("dpop")
        || is_shown
        || is_jwt
        || value.starts_with(settings::KEY.as_bytes())
}

/// The credentials in the headers of a request.
struct RequestCredentials<'a> {
    bearer: Option<&'a str>,
    dpop: Option<&'a str>,
    key: Option<&'a str>,
    proof: Option<&'a str>,
    /// Whether there is any credential.
    any: bool,
}

fn shown<'a>(asked: &AuthnRequest<'a>) -> Result<RequestCredentials<'a>, AuthnError> {
    let one = |name: &HeaderName| match single(asked.headers, name) {
        SingleValue::Absent => Ok(None),
        SingleValue::Value(value) => Ok(Some(value)),
        SingleValue::Bad => Err(AuthnError::Ambiguous),
    };
    let mut values = asked.headers.get_all(AUTHORIZATION).iter();
    let authorization = match (values.next(), values.next()) {
        (None, _) => None,
        // The characters of a credential are checked when it is validated for the first time.
        (Some(value), None) => Some(std::str::from_utf8(value.as_bytes())),
        (Some(_), Some(_)) => return Err(AuthnError::Ambiguous),
    };
    let authorization = authorization.transpose().map_err(|_wrong| AuthnError::Ambiguous)?;
    let (key, proof) = (one(&API_KEY)?, one(&DPOP)?);
    let any = authorization.is_some() || key.is_some();
    if authorization.is_some() && key.is_some() {
        return Err(AuthnError::Ambiguous);
    }
    let (mut bearer, mut dpop) = (None, None);
    if let Some(text) = authorization {
        let (scheme, rest) = text.split_once(' ').ok_or(AuthnError::Unknown)?;
        let rest = rest.trim();
        // With two credentials in one header, it is ambiguous which one counts.
        if memchr::memchr2(b',', b' ', rest.as_bytes()).is_some() {
            return Err(AuthnError::Ambiguous);
        }
        match scheme {
            _ if scheme.eq_ignore_ascii_case("bearer") => bearer = Some(rest),
            _ if scheme.eq_ignore_ascii_case("dpop") => dpop = Some(rest),
            _ => return Err(AuthnError::Unknown),
        }
    }
    Ok(RequestCredentials { bearer, dpop, key, proof, any })
}

/// Adds the names in the connection's certificate to the caller, whose credential then expires with it.
fn named(
    mut caller: AuthenticatedCaller,
    certificate: Option<&VerifiedCertificate>,
) -> AuthenticatedCaller {
    let Some(certificate) = certificate else { return caller };
    if let Some(name) = certificate.names().first() {
        let claims = &mut Arc::make_mut(&mut caller.principal).claims;
        claims.certificate.get_or_insert_with(|| name.clone());
        claims.names = Arc::clone(certificate.names());
    }
    caller.until = Some(caller.until.map_or(certificate.ends, |until| until.min(certificate.ends)));
    caller
}

impl AuthenticatedCaller {
    /// Adds the names of the connection's own certificate, which may be that of a proxy: with it, everybody is revoked who
    /// comes through the proxy.
    pub fn came_through(&mut self, own: &VerifiedCertificate) {
        let known = &self.principal.claims.names;
        if own.names().iter().all(|name| known.contains(name)) {
            return;
        }
        let names = known.iter().chain(own.names().iter()).cloned().collect();
        Arc::make_mut(&mut self.principal).claims.names = names;
    }
}

#[cfg(test)]
mod tests {
    use super::{Authenticator, AuthnError, AuthnRequest};
    use crate::base::clock::{Clock as _, SystemClock};
    use crate::base::task::Tasks;
    use crate::config::settings::{self, ApiKey, AuthScheme, Limits};
    use crate::crypto::sealer::Sealer;
    use crate::metrics::Metrics;
    use crate::outbound::environment::Environment;
    use aws_lc_rs::digest;
    use http::Request;
    use policy_core::subject::name::PrincipalId;
    use policy_core::subject::principal::Principal;
    use std::sync::Arc;

    fn who(id: &str) -> Principal {
        Principal::new(PrincipalId::parse(id).unwrap(), [].into())
    }

    fn identify(schemes: &[AuthScheme], headers: &[(&str, &str)]) -> Result<String, AuthnError> {
        let key = |key: &str, id| ApiKey {
            sha256: digest::digest(&digest::SHA256, key.as_bytes()).as_ref().try_into().unwrap(),
            principal: who(id),
        };
        let settings = settings::IdentitySettings {
            api_keys: vec![key("k1", "ana"), key("k2", "bob")],
            anonymous: Some(who("anonymous")),
            ..settings::IdentitySettings::default()
        };
        let limits = Limits::default();
        let environment = Environment::new(
            Arc::new(SystemClock),
            limits,
            Tasks::default(),
            Arc::new(Metrics::new(SystemClock.now())),
            Arc::new(crate::config::quota::Quotas::new(&limits, &[])),
        );
        let sealer = Arc::new(Sealer::new(&[]).unwrap());
        let identity = Authenticator::new(&settings, &environment, &limits, sealer, None).unwrap();
        let mut request = Request::post("/mcp");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let found =
            runtime.block_on(identity.identify(AuthnRequest::new(schemes, &head, None, None)));
        found.map(|caller| caller.principal.id.to_string())
    }

    #[test]
    fn a_credential_is_good_or_it_is_refused() {
        use AuthnError::{Ambiguous, Missing, Unknown, Unwanted};
        let keys = [AuthScheme::ApiKey];
        let both = [AuthScheme::ApiKey, AuthScheme::Anonymous];
        let open = [AuthScheme::Anonymous];
        for (schemes, headers, expected) in [
            (&keys as &[_], &[("authorization", "Bearer k1")] as &[_], Ok("ana")),
            (&keys, &[("authorization", "bearer k2")], Ok("bob")),
            (&keys, &[("x-api-key", "k2")], Ok("bob")),
            (&keys, &[], Err(Missing)),
            (&keys, &[("authorization", "Bearer k3")], Err(Unknown)),
            (&keys, &[("authorization", "Bearer ")], Err(Unknown)),
            (&keys, &[("authorization", "Basic azE=")], Err(Unknown)),
            (&keys, &[("authorization", "Bearer k1"), ("x-api-key", "k2")], Err(Ambiguous)),
            (
                &keys,
                &[("authorization", "Bearer k1"), ("authorization", "Bearer k1")],
                Err(Ambiguous),
            ),
            (&both, &[], Ok("anonymous")),
            (&both, &[("authorization", "Bearer k1")], Ok("ana")),
            (&both, &[("authorization", "Bearer wrong")], Err(Unknown)),
            (&open, &[("authorization", "Bearer k1")], Err(Unwanted)),
            (&open, &[("authorization", "Basic azE=")], Err(Unwanted)),
            (&[], &[("authorization", "Bearer k1")], Err(Missing)),
        ] {
            assert_eq!(identify(schemes, headers), expected.map(str::to_owned), "{headers:?}");
        }
    }
}
