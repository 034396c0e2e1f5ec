//! What the gateway would decide about an access token, check by check, without a request and without a gateway that
//! runs. The checks are those that a request goes through: the first one that a token does not pass is what the record
//! of a request with it would say.

use std::path::PathBuf;
use std::sync::Arc;

use policy::name::Scope;
use policy::principal::Principal;

use crate::base::clock::{Clock, System};
use crate::base::masking;
use crate::base::task::Tasks;
use crate::config::quota::Quotas;
use crate::config::settings::revoked::{self, RevokedError};
use crate::config::settings::{Issuer, KeySource, Listener, Scheme, Settings};
use crate::control::build::resource;
use crate::crypto::jose::{self, JoseError};
use crate::crypto::sealer::{SealError, Sealer};
use crate::identity::resource::Resource;
use crate::identity::{ClaimError, Confirmation, Identity, TokenError, TokenForm};
use crate::metrics::Metrics;
use crate::outbound::environment::{World, WorldError};

/// Most issuers that are named to an operator whose token is of none of them.
const NAMED_ISSUERS: usize = 8;

/// What a token goes through, in the order of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenCheck {
    /// It has three parts that can be read, and a header without anything that is not accepted.
    Form,
    /// Its issuer was asked, and says that it is active (RFC 7662). For a token that is not signed.
    Introspection,
    /// Its `iss`, or that of the answer about it, is the issuer of the configuration.
    Issuer,
    /// `typ` in its header.
    Type,
    /// The issuer may sign with its algorithm.
    Algorithm,
    /// The issuer publishes its key.
    Key,
    /// The signature fits.
    Signature,
    /// What has to be there is there, and it says of itself that it is an access token.
    Claims,
    /// It has begun, has not ended, and is not good for too long.
    Time,
    /// What it is bound to is understood.
    Confirmation,
    /// Whom it is about and who uses it.
    Caller,
    /// The groups.
    Groups,
    /// The roles.
    Roles,
    /// Who acts for whom.
    Actors,
    /// The scopes.
    Scopes,
    /// The route believes the issuer.
    Route,
    /// It is for the route and for nobody else.
    Audience,
    /// It is bound to something, where the route wants that.
    Binding,
    /// Neither its caller nor its client nor itself was revoked.
    Revoked,
}

impl TokenCheck {
    /// All of them, in order.
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

    /// Its name.
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

    /// Whether tokens of this form go through it.
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

    /// The check that a token of this form did not pass.
    const fn of(error: &TokenError, form: TokenForm) -> Self {
        match error {
            TokenError::Shape => Self::Form,
            TokenError::Jose(error) => match error {
                JoseError::Signature => Self::Signature,
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

/// What came of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckState {
    /// The token passes.
    Ok,
    /// It does not.
    Failed,
    /// One before it did not pass.
    NotReached,
}

impl CheckState {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::NotReached => "not reached",
        }
    }
}

/// What the gateway would decide.
#[derive(Debug)]
pub enum Judgement {
    /// It would serve this caller, whose requests would have to prove this.
    Accepted(Arc<Principal>, Confirmation),
    /// The caller was revoked.
    Revoked(Arc<Principal>),
    /// It would refuse it.
    Refused(TokenError),
}

/// What was found out about a token.
#[derive(Debug)]
pub struct Examined {
    /// The name of the issuer that it says it is of, if that is configured, or that was asked about it.
    pub issuer: Option<Box<str>>,
    /// Where the issuer was asked, and as which client; `None` for a token that is signed.
    pub asked: Option<IntrospectionEndpoint>,
    /// What tokens of the route have to be for.
    pub resource: Box<str>,
    /// What came of each check.
    pub checks: Vec<(TokenCheck, CheckState)>,
    /// What the gateway would decide.
    pub verdict: Judgement,
    /// The scopes of the route's `oauth.scopes` that the token does not have. They are what clients ask for first; nothing
    /// but the rules requires one.
    pub unheld_scopes: Vec<Scope>,
    /// What the configuration says about what the token did not pass, in words for its operator.
    pub hint: Option<String>,
}

/// Whom the gateway asks about a token that is not signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntrospectionEndpoint {
    /// The endpoint.
    pub url: Box<str>,
    /// The id of the gateway there.
    pub client: Box<str>,
}

/// Why nothing could be found out.
#[derive(Debug, thiserror::Error)]
pub enum ExamineError {
    /// No listener takes tokens.
    #[error(
        "no listener of this configuration takes access tokens: add `oauth` to its `authentication`"
    )]
    Listener,
    /// It is not clear which route is meant.
    #[error("name one of its routes with `--route`: {0}")]
    Route(String),
    /// It is not signed, and nobody can be asked about it.
    #[error(
        "this token is not a signed one (a JWT), and no issuer of the route has `introspection`: the gateway would take \
         it for an API key that it does not know"
    )]
    Opaque,
    /// It is not signed, and nobody may be asked about it.
    #[error(
        "this token is not a signed one (a JWT): the gateway would ask `{0}` about it; leave `--jwks` out to have that done"
    )]
    Unasked(Box<str>),
    /// It is the API key of a caller.
    #[error(
        "this is an API key of the configuration and not a token; no issuer was asked about it"
    )]
    ApiKey,
    /// Something the configuration needs is not to be had.
    #[error(transparent)]
    World(#[from] WorldError),
    /// There is no randomness.
    #[error("the machine gave no random bytes")]
    Random(#[source] SealError),
    /// The file of revocations cannot be read.
    #[error(transparent)]
    Revoked(#[from] RevokedError),
}

/// What is examined, beside the token.
#[derive(Debug, Default)]
pub struct ExaminedFor<'a> {
    /// The path of the route; not needed where there is one.
    pub route: Option<&'a str>,
    /// The name of the listener; the first that takes tokens if not given.
    pub listener: Option<&'a str>,
    /// A file with the keys of the issuer, so that nothing is fetched.
    pub keys: Option<PathBuf>,
}

/// Finds out what the gateway would decide about `token` with these settings.
///
/// # Errors
/// When that cannot be found out.
pub async fn examine(
    mut settings: Settings,
    about: &ExaminedFor<'_>,
    token: &str,
) -> Result<Examined, ExamineError> {
    let (resource, wanted_scopes) = meant(&settings, about)?;
    let form = TokenForm::of(token);
    let asked = match form {
        TokenForm::Signed => Ok(None),
        TokenForm::Opaque => introspection_endpoint(&settings, &resource, about).map(Some),
    };
    let asked_issuer = asked.as_ref().ok().and_then(Option::as_ref).map(|(place, _)| *place);
    for (place, issuer) in settings.identity.issuers.iter_mut().enumerate() {
        // No secret is needed but that of the issuer that is asked.
        if Some(place) != asked_issuer {
            issuer.introspection = None;
        }
        if let Some(file) = &about.keys {
            issuer.keys = KeySource::File(file.clone());
        }
    }
    let (clock, tasks): (Arc<dyn Clock>, _) = (Arc::new(System), Tasks::default());
    let metrics = Arc::new(Metrics::new(clock.now()));
    let quotas = Arc::new(Quotas::new(&settings.limits, &[]));
    let world = World::new(clock, settings.limits, tasks, metrics, quotas);
    let sealer = Arc::new(Sealer::new(&[]).map_err(ExamineError::Random)?);
    let identity = Identity::new(&settings.identity, &world, &settings.limits, sealer, None)?;
    if form == TokenForm::Opaque && identity.is_key(token) {
        return Err(ExamineError::ApiKey);
    }
    let asked = asked?;
    let verdict = match identity.examine(&resource, token).await {
        Err(error) => Judgement::Refused(error),
        Ok((principal, confirmation)) => {
            if let Some(file) = &settings.revocations {
                settings.policy.revoke(&revoked::read(file)?);
            }
            match settings.policy.has_revoked(&principal) {
                true => Judgement::Revoked(principal),
                false => Judgement::Accepted(principal, confirmation),
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
        Judgement::Accepted(who, _) | Judgement::Revoked(who) => {
            wanted_scopes.into_iter().filter(|wanted| !holds(who, wanted)).collect()
        }
        Judgement::Refused(_) => Vec::new(),
    };
    let hint = match &verdict {
        Judgement::Refused(error) => hint(error, issuers, (place, &resource.issuers), token),
        Judgement::Accepted(..) | Judgement::Revoked(_) => None,
    };
    let resource = resource.uri;
    Ok(Examined { issuer, asked, resource, checks, verdict, unheld_scopes, hint })
}

/// Whether a caller has a scope that clients ask for. Some providers are asked for `api://API/NAME` and write `NAME`.
fn holds(who: &Principal, wanted: &Scope) -> bool {
    let short = wanted.as_str().rsplit('/').next();
    who.claims.scopes.iter().any(|scope| scope == wanted || Some(scope.as_str()) == short)
}

/// What the configuration says about what a token of the issuer at `place` did not pass; the route believes those `on_route`.
fn hint(
    error: &TokenError,
    issuers: &[Issuer],
    (place, on_route): (Option<usize>, &[usize]),
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
        TokenError::Lifetime => {
            let issuer = issuers.get(place?)?;
            let most = humantime::format_duration(issuer.max_lifetime);
            Some(format!("`maxLifetime` of issuer `{}` is {most}", issuer.name))
        }
        _ => None,
    }
}

/// Which issuers are configured, and whether one is all but the one that a token names.
fn issuer_hint(issuers: &[Issuer], said: Option<&str>) -> String {
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

/// Which issuer the gateway asks about a token that is not signed, by its place in the configuration, and where.
fn introspection_endpoint(
    settings: &Settings,
    resource: &Resource,
    about: &ExaminedFor<'_>,
) -> Result<(usize, IntrospectionEndpoint), ExamineError> {
    let issuers = &settings.identity.issuers;
    let mut found = resource
        .issuers
        .iter()
        .filter_map(|place| Some((*place, issuers.get(*place)?.introspection.as_ref()?)));
    let (place, introspection) = found.next().ok_or(ExamineError::Opaque)?;
    // A query may carry a secret.
    let url = masking::uris(&introspection.place.url.to_string()).into_owned().into_boxed_str();
    if about.keys.is_some() {
        return Err(ExamineError::Unasked(url));
    }
    Ok((place, IntrospectionEndpoint { url, client: introspection.client.id.clone() }))
}

/// What came of each check of a token of this form; `on_route` says whether the route believes the issuer.
fn states(verdict: &Judgement, form: TokenForm, on_route: bool) -> Vec<(TokenCheck, CheckState)> {
    let failed = match verdict {
        Judgement::Accepted(..) => None,
        Judgement::Revoked(_) => Some(TokenCheck::Revoked),
        Judgement::Refused(error) => Some(TokenCheck::of(error, form)),
    };
    let state = |check: TokenCheck| match failed {
        // An `aud` of the wrong type is found before the route is looked at.
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

/// The resource that a token is shown for, and the scopes that clients are told to ask for there.
fn meant(
    settings: &Settings,
    about: &ExaminedFor<'_>,
) -> Result<(Resource, Vec<Scope>), ExamineError> {
    let is_meant = |listener: &&Listener| {
        listener.schemes.contains(&Scheme::Oauth)
            && about.listener.is_none_or(|name| *listener.name == *name)
    };
    let listener = settings.listeners.iter().find(is_meant).ok_or(ExamineError::Listener)?;
    let routes = &settings.routes;
    let route = match about.route {
        Some(path) => routes.iter().find(|route| *route.path == *path),
        None => routes.first().filter(|_| routes.len() == 1),
    };
    let names = || routes.iter().map(|route| format!("`{}`", route.path)).collect::<Vec<_>>();
    let route = route.ok_or_else(|| ExamineError::Route(names().join(", ")))?;
    let scopes = route.oauth.scopes.clone();
    Ok((resource(settings, listener, listener.address, route), scopes))
}
