//! Explains what the gateway would decide about an access token, check by check, without a request and without a
//! running gateway. The checks are those of a request: the first one that fails is the reason that the audit record
//! of a request would have.

use std::path::PathBuf;
use std::sync::Arc;

use policy_core::subject::name::Scope;
use policy_core::subject::principal::Principal;

use crate::base::clock::{Clock, SystemClock};
use crate::base::masking;
use crate::base::task::Tasks;
use crate::config::quota::Quotas;
use crate::config::settings::revoked::{self, RevokedError};
use crate::config::settings::{AuthScheme, IssuerSettings, KeySource, ListenerSettings, Settings};
use crate::control::build::resource;
use crate::crypto::jose::{self, JoseError, Jws};
use crate::crypto::sealer::{SealError, Sealer};
use crate::identity::resource::ProtectedResource;
use crate::identity::{Authenticator, ClaimError, Confirmation, TokenError, TokenForm};
use crate::metrics::Metrics;
use crate::outbound::environment::{Environment, EnvironmentError};

/// Maximum number of issuers that are named in a hint.
const NAMED_ISSUERS: usize = 8;

/// The checks of a token, in the order of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenCheck {
    /// It is well formed: three parts, and a header without members that are not accepted.
    Form,
    /// For an opaque token: its issuer reports it as active (RFC 7662).
    Introspection,
    /// Its `iss`, or that of the introspection response, is a configured issuer.
    Issuer,
    /// The `typ` of its header.
    Type,
    /// The issuer may sign with its algorithm.
    Algorithm,
    /// The issuer publishes its key.
    Key,
    /// The signature matches the key.
    Signature,
    /// The required claims are present, and it is an access token.
    Claims,
    /// It is valid now, and its lifetime is not too long.
    Time,
    /// Its confirmation (`cnf`) is supported.
    Confirmation,
    /// Its subject and its client.
    Caller,
    /// Its groups are well formed.
    Groups,
    /// Its roles are well formed.
    Roles,
    /// Its chain of actors (`act`).
    Actors,
    /// Its scopes are well formed.
    Scopes,
    /// The route accepts the issuer.
    Route,
    /// Its audience is the route and nothing else.
    Audience,
    /// It is sender-constrained, if the route requires that.
    Binding,
    /// Its caller, its client and the token itself are not revoked.
    Revoked,
}

impl TokenCheck {
    /// All checks, in order.
    pub const ALL: [Self; 19] = [
        Self::Form,
        Self::Introspection,
        Self::Issuer,
        Self::Type,
        Self::Algorithm,
        Self::Key,
        Self::Signature,
        Self::Claims,
        Self::Time,
        Self::Confirmation,
        Self::Caller,
        Self::Groups,
        Self::Roles,
        Self::Actors,
        Self::Scopes,
        Self::Route,
        Self::Audience,
        Self::Binding,
        Self::Revoked,
    ];

    /// The name of the check.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Form => "form",
            Self::Introspection => "introspection",
            Self::Issuer => "issuer",
            Self::Type => "typ",
            Self::Algorithm => "algorithm",
            Self::Key => "key",
            Self::Signature => "signature",
            Self::Claims => "claims",
            Self::Time => "time",
            Self::Confirmation => "cnf",
            Self::Caller => "caller",
            Self::Groups => "groups",
            Self::Roles => "roles",
            Self::Actors => "act",
            Self::Scopes => "scopes",
            Self::Route => "route",
            Self::Audience => "audience",
            Self::Binding => "binding",
            Self::Revoked => "revoked",
        }
    }

    /// Whether tokens of this form are subject to this check.
    const fn is_for(self, form: TokenForm) -> bool {
        match self {
            Self::Introspection => matches!(form, TokenForm::Opaque),
            Self::Type | Self::Algorithm | Self::Key | Self::Signature => {
                matches!(form, TokenForm::Signed)
            }
            Self::Form
            | Self::Issuer
            | Self::Claims
            | Self::Time
            | Self::Confirmation
            | Self::Caller
            | Self::Groups
            | Self::Roles
            | Self::Actors
            | Self::Scopes
            | Self::Route
            | Self::Audience
            | Self::Binding
            | Self::Revoked => true,
        }
    }

    /// The check that failed with this error, for a token of this form.
    const fn of(error: &TokenError, form: TokenForm) -> Self {
        match error {
            TokenError::Shape => Self::Form,
            TokenError::Jose(error) => match error {
                JoseError::Signature => Self::Signature,
                JoseError::Claim(_) | JoseError::Differs(_) => Self::Claims,
                JoseError::Long
                | JoseError::Parts
                | JoseError::Base64
                | JoseError::Json(_)
                | JoseError::Header
                | JoseError::Algorithm => Self::Form,
            },
            TokenError::Issuer => Self::Issuer,
            TokenError::Kind => Self::Type,
            TokenError::Algorithm => Self::Algorithm,
            TokenError::Inactive => Self::Introspection,
            TokenError::Unavailable if matches!(form, TokenForm::Opaque) => Self::Introspection,
            TokenError::Key | TokenError::Unavailable => Self::Key,
            TokenError::IdToken | TokenError::Use => Self::Claims,
            TokenError::Claims(claim) => match claim {
                ClaimError::Times | ClaimError::Expiry | ClaimError::Issued | ClaimError::Id => {
                    Self::Claims
                }
                ClaimError::Subject | ClaimError::Client | ClaimError::Service => Self::Caller,
                ClaimError::Groups | ClaimError::GroupsElsewhere => Self::Groups,
                ClaimError::Roles => Self::Roles,
                ClaimError::Actors => Self::Actors,
                ClaimError::Scopes => Self::Scopes,
            },
            TokenError::Expired | TokenError::Early | TokenError::Lifetime => Self::Time,
            TokenError::Confirmation => Self::Confirmation,
            TokenError::IssuerOfRoute => Self::Route,
            TokenError::Audience => Self::Audience,
            TokenError::Certificate
            | TokenError::Proof
            | TokenError::Dpop(_)
            | TokenError::Nonce
            | TokenError::Unbound
            | TokenError::Body
            | TokenError::Busy => Self::Binding,
        }
    }
}

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckState {
    /// The token passes the check.
    Ok,
    /// The token fails the check.
    Failed,
    /// An earlier check failed.
    NotReached,
}

impl CheckState {
    /// The name of the result.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::NotReached => "not reached",
        }
    }
}

/// The decision about a token.
#[derive(Debug)]
pub enum TokenVerdict {
    /// The caller is accepted, and its requests must prove this confirmation.
    Accepted(Arc<Principal>, Confirmation),
    /// The caller is revoked.
    Revoked(Arc<Principal>),
    /// The token is refused.
    Refused(TokenError),
}

/// The explanation of a token.
#[derive(Debug)]
pub struct TokenReport {
    /// The name of the configured issuer that the token names or that was asked about it.
    pub issuer: Option<Box<str>>,
    /// The introspection endpoint that was asked; `None` for a signed token.
    pub asked: Option<IntrospectionEndpoint>,
    /// The audience that the route requires.
    pub resource: Box<str>,
    /// The result of each check.
    pub checks: Vec<(TokenCheck, CheckState)>,
    /// The decision of the gateway.
    pub verdict: TokenVerdict,
    /// The scopes in `oauth.scopes` of the route that the token does not have. Clients request these first; only the
    /// rules require any.
    pub unheld_scopes: Vec<Scope>,
    /// A hint about the configuration for the failed check, in words for the operator.
    pub hint: Option<String>,
}

/// The endpoint that the gateway asks about an opaque token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntrospectionEndpoint {
    /// The URL of the endpoint.
    pub url: Box<str>,
    /// The client id of the gateway.
    pub client: Box<str>,
}

/// The reason why a token could not be examined.
#[derive(Debug, thiserror::Error)]
pub enum TokenInspectionError {
    /// No listener accepts access tokens.
    #[error(
        "no listener of this configuration takes access tokens: add `oauth` to its `authentication`"
    )]
    Listener,
    /// The route is ambiguous or unknown.
    #[error("name one of its routes with `--route`: {0}")]
    Route(String),
    /// The token is opaque, and no issuer of the route supports introspection.
    #[error(
        "this token is not a signed one (a JWT), and no issuer of the route has `introspection`: the gateway would take \
         it for an API key that it does not know"
    )]
    Opaque,
    /// The token is opaque, and introspection was excluded by the options.
    #[error(
        "this token is not a signed one (a JWT): the gateway would ask `{0}` about it; leave `--jwks` out to have that done"
    )]
    Unasked(Box<str>),
    /// The text is an API key of a caller.
    #[error(
        "this is an API key of the configuration and not a token; no issuer was asked about it"
    )]
    ApiKey,
    /// A resource that the configuration needs is not available.
    #[error(transparent)]
    World(#[from] EnvironmentError),
    /// No random bytes are available.
    #[error("the machine gave no random bytes")]
    Random(#[source] SealError),
    /// The file of revocations cannot be read.
    #[error(transparent)]
    Revoked(#[from] RevokedError),
}

/// The context in which a token is examined.
#[derive(Debug, Default)]
pub struct TokenContext<'a> {
    /// The path of the route; may be `None` if there is only one.
    pub route: Option<&'a str>,
    /// The name of the listener; the first that accepts tokens if `None`.
    pub listener: Option<&'a str>,
    /// A file with the keys of the issuer, so that nothing is fetched.
    pub keys: Option<PathBuf>,
}

/// Determines what the gateway would decide about `token` with these settings.
///
/// # Errors
/// If that cannot be determined.
pub async fn examine(
    mut settings: Settings,
    about: &TokenContext<'_>,
    token: &str,
) -> Result<TokenReport, TokenInspectionError> {
    let (resource, wanted_scopes) = meant(&settings, about)?;
    let form = TokenForm::of(token);
    let asked = match form {
        TokenForm::Signed => Ok(None),
        TokenForm::Opaque => introspection_endpoint(&settings, &resource, about).map(Some),
    };
    let asked_issuer = asked.as_ref().ok().and_then(Option::as_ref).map(|(place, _)| *place);
    for (place, issuer) in settings.identity.issuers.iter_mut().enumerate() {
        // Only the secret of the issuer that is asked is needed.
        if Some(place) != asked_issuer {
            issuer.introspection = None;
        }
        if let Some(file) = &about.keys {
            issuer.keys = KeySource::File(file.clone());
        }
    }
    let (clock, tasks): (Arc<dyn Clock>, _) = (Arc::new(SystemClock), Tasks::default());
    let metrics = Arc::new(Metrics::new(clock.now()));
    let quotas = Arc::new(Quotas::new(&settings.limits, &[]));
    let environment = Environment::new(clock, settings.limits, tasks, metrics, quotas);
    let sealer = Arc::new(Sealer::new(&[]).map_err(TokenInspectionError::Random)?);
    let identity =
        Authenticator::new(&settings.identity, &environment, &settings.limits, sealer, None)?;
    if form == TokenForm::Opaque && identity.is_key(token) {
        return Err(TokenInspectionError::ApiKey);
    }
    let asked = asked?;
    let verdict = match identity.examine(&resource, token).await {
        Err(error) => TokenVerdict::Refused(error),
        Ok((principal, confirmation)) => {
            if let Some(file) = &settings.revocations {
                settings.policy.revoke(&revoked::read(file)?);
            }
            match settings.policy.facts().has_revoked(&principal) {
                true => TokenVerdict::Revoked(principal),
                false => TokenVerdict::Accepted(principal, confirmation),
            }
        }
    };
    let issuers = &settings.identity.issuers;
    let said = || {
        let said = identity.said_issuer(token)?;
        issuers.iter().position(|known| &*known.name == said)
    };
    let place = asked_issuer.or_else(said);
    let issuer = place.and_then(|place| issuers.get(place)).map(|issuer| issuer.name.clone());
    let on_route = place.is_some_and(|place| resource.issuers.contains(&place));
    let checks = states(&verdict, form, on_route);
    let asked = asked.map(|(_, asked)| asked);
    let unheld_scopes = match &verdict {
        TokenVerdict::Accepted(who, _) | TokenVerdict::Revoked(who) => {
            wanted_scopes.into_iter().filter(|wanted| !holds(who, wanted)).collect()
        }
        TokenVerdict::Refused(_) => Vec::new(),
    };
    let hint = match &verdict {
        TokenVerdict::Refused(error) => hint(error, issuers, place, &resource.issuers, token),
        TokenVerdict::Accepted(..) | TokenVerdict::Revoked(_) => None,
    };
    let resource = resource.uri;
    Ok(TokenReport { issuer, asked, resource, checks, verdict, unheld_scopes, hint })
}

/// Whether a caller has a scope that clients request. Some providers expect requests for `api://API/NAME` and issue
/// `NAME`.
fn holds(who: &Principal, wanted: &Scope) -> bool {
    let short = wanted.as_str().rsplit('/').next();
    who.claims.scopes.iter().any(|scope| scope == wanted || Some(scope.as_str()) == short)
}

/// A hint about the configuration for a failed check. The token is of the issuer at `place`; the route accepts those
/// in `on_route`.
fn hint(
    error: &TokenError,
    issuers: &[IssuerSettings],
    place: Option<usize>,
    on_route: &[usize],
    token: &str,
) -> Option<String> {
    match error {
        TokenError::Issuer => {
            let document = jose::said(token);
            let said = document.as_ref().and_then(|claims| claims.root().get("iss")?.as_str());
            Some(issuer_hint(issuers, said.as_deref()))
        }
        TokenError::IssuerOfRoute => {
            let names = on_route.iter().filter_map(|place| issuers.get(*place));
            let names: Vec<_> = names.map(|issuer| format!("`{}`", issuer.name)).collect();
            Some(format!("`oauth.issuers` of the route has {}", names.join(", ")))
        }
        TokenError::Kind => {
            let issuer = issuers.get(place?).filter(|issuer| !issuer.untyped)?;
            let typ = Jws::read(token).ok()?.typ;
            matches!(typ.as_deref(), None | Some("jwt")).then(|| {
                format!(
                    "the access tokens of many providers say `typ: JWT` or nothing: `acceptUntypedTokens: true` of issuer `{}` \
                     accepts them",
                    issuer.name
                )
            })
        }
        TokenError::Lifetime => {
            let issuer = issuers.get(place?)?;
            let most = humantime::format_duration(issuer.max_lifetime);
            Some(format!("`maxLifetime` of issuer `{}` is {most}", issuer.name))
        }
        _ => None,
    }
}

/// Names the configured issuers, or the one that differs from the token's only in case or a trailing slash.
fn issuer_hint(issuers: &[IssuerSettings], said: Option<&str>) -> String {
    let bare = |url: &str| url.trim_end_matches('/').to_lowercase();
    let near =
        said.and_then(|said| issuers.iter().find(|issuer| bare(&issuer.issuer) == bare(said)));
    if let Some(issuer) = near {
        return format!(
            "issuer `{}` is configured as `{}`, which has to be the same as `iss` to the letter, also in a `/` at its end",
            issuer.name, issuer.issuer
        );
    }
    let all: Vec<_> = issuers
        .iter()
        .take(NAMED_ISSUERS)
        .map(|issuer| format!("`{}` (`{}`)", issuer.issuer, issuer.name))
        .collect();
    let more = match issuers.len().saturating_sub(all.len()) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!("configured are {}{more}", all.join(", "))
}

/// Finds the issuer that the gateway asks about an opaque token, by index, and its endpoint.
fn introspection_endpoint(
    settings: &Settings,
    resource: &ProtectedResource,
    about: &TokenContext<'_>,
) -> Result<(usize, IntrospectionEndpoint), TokenInspectionError> {
    let issuers = &settings.identity.issuers;
    let mut found = resource
        .issuers
        .iter()
        .filter_map(|place| Some((*place, issuers.get(*place)?.introspection.as_ref()?)));
    let (place, introspection) = found.next().ok_or(TokenInspectionError::Opaque)?;
    // The query of a URL may contain a secret.
    let url = masking::uris(&introspection.place.url.to_string()).into_owned().into_boxed_str();
    if about.keys.is_some() {
        return Err(TokenInspectionError::Unasked(url));
    }
    Ok((place, IntrospectionEndpoint { url, client: introspection.client.id.clone() }))
}

/// The result of each check for a token of this form; `on_route` says whether the route accepts the issuer.
fn states(
    verdict: &TokenVerdict,
    form: TokenForm,
    on_route: bool,
) -> Vec<(TokenCheck, CheckState)> {
    let failed = match verdict {
        TokenVerdict::Accepted(..) => None,
        TokenVerdict::Revoked(_) => Some(TokenCheck::Revoked),
        TokenVerdict::Refused(error) => Some(TokenCheck::of(error, form)),
    };
    let state = |check: TokenCheck| match failed {
        // An `aud` of the wrong type is found before the route is checked.
        Some(TokenCheck::Audience) if check == TokenCheck::Route && !on_route => {
            CheckState::NotReached
        }
        None => CheckState::Ok,
        Some(failed) if check < failed => CheckState::Ok,
        Some(failed) if check == failed => CheckState::Failed,
        Some(_) => CheckState::NotReached,
    };
    let checks = TokenCheck::ALL.into_iter().filter(|check| check.is_for(form));
    checks.map(|check| (check, state(check))).collect()
}

/// Finds the resource that the token is for, and the scopes that clients are told to request there.
fn meant(
    settings: &Settings,
    about: &TokenContext<'_>,
) -> Result<(ProtectedResource, Vec<Scope>), TokenInspectionError> {
    let is_meant = |listener: &&ListenerSettings| {
        listener.schemes.contains(&AuthScheme::Oauth)
            && about.listener.is_none_or(|name| *listener.name == *name)
    };
    let listener =
        settings.listeners.iter().find(is_meant).ok_or(TokenInspectionError::Listener)?;
    let routes = &settings.routes;
    let route = match about.route {
        Some(path) => routes.iter().find(|route| *route.path == *path),
        None => routes.first().filter(|_| routes.len() == 1),
    };
    let names = || routes.iter().map(|route| format!("`{}`", route.path)).collect::<Vec<_>>();
    let route = route.ok_or_else(|| TokenInspectionError::Route(names().join(", ")))?;
    let scopes = route.oauth.scopes.clone();
    Ok((resource(settings, listener, listener.address, route), scopes))
}
