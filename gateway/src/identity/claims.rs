//! Maps the claims of an access token to a principal.
//!
//! RFC 9068 (JWT access tokens), RFC 8725 (best practice), RFC 7662 (introspection); vectors AV-16 and AV-20 to
//! AV-29.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use json::{JsonKind, Value};
use policy_core::subject::name::{ClientId, GroupName, PrincipalId, RoleName, Scope};
use policy_core::subject::principal::{Claims, Principal, ProofOfPossession, SERVICE};

use super::{ClaimError, TokenError};
use crate::config::settings::{ClaimPath, ImpliedScopes, IssuerSettings};
use crate::crypto::jose::{seconds, text};

/// Maximum length of a chain of actors (RFC 8693, section 4.1).
const ACTORS: usize = 5;
/// Maximum number each of groups, roles and scopes.
const MOST: usize = 512;
/// Maximum number of audiences.
const AUDIENCES: usize = 64;
/// Claims that only ID tokens have (OpenID Connect Core 1.0, sections 2 and 3.1.3.6).
const OF_ID_TOKENS: [&str; 4] = ["nonce", "at_hash", "c_hash", "s_hash"];

/// What a verified token grants.
#[derive(Clone, Debug)]
pub(super) struct TokenGrant {
    /// The principal that presents it, once the confirmation is proved.
    pub(super) principal: Principal,
    /// The resources it is for.
    pub(super) audiences: Vec<Box<str>>,
    /// Its expiry, including the tolerance for clock skew.
    pub(super) expires: SystemTime,
    /// What its holder must prove.
    pub(super) confirmation: Confirmation,
}

/// The confirmation of a token: what its holder must prove (RFC 7800).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirmation {
    /// The thumbprint of the certificate that the connection must use (RFC 8705).
    pub certificate: Option<Box<str>>,
    /// The thumbprint of the key that must sign a DPoP proof (RFC 9449).
    pub key: Option<Box<str>>,
}

/// The source of a set of claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimsSource {
    /// A JWT with a verified signature.
    Token,
    /// An introspection response of the issuer.
    Answer,
}

/// Validates `claims` at the time `now` and reads what they grant.
pub(super) fn read(
    issuer: &IssuerSettings,
    implied: &ImpliedScopes,
    claims: Value<'_>,
    form: ClaimsSource,
    now: SystemTime,
) -> Result<TokenGrant, TokenError> {
    let invalid = |_| TokenError::Claims(ClaimError::Times);
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let expires = seconds(claims, "exp").map_err(invalid)?;
    let begins = seconds(claims, "nbf").map_err(invalid)?;
    let issued = seconds(claims, "iat").map_err(invalid)?;
    let token = text(claims, "jti").map_err(invalid)?;
    if form == ClaimsSource::Token && !issuer.untyped {
        issued.ok_or(TokenError::Claims(ClaimError::Issued))?;
        token.as_ref().ok_or(TokenError::Claims(ClaimError::Id))?;
    }
    if OF_ID_TOKENS.iter().any(|name| claims.get(name).is_some()) {
        return Err(TokenError::IdToken);
    }
    let presented = presented(issuer, claims, form)?;
    let expires = expires.ok_or(TokenError::Claims(ClaimError::Expiry))?;
    let expires = in_time(issuer, expires, begins, issued, now)?;
    let confirmation = confirmation(claims)?;
    // RFC 9449, section 6.2: a token of this type is bound to a key. Without the binding, anyone could use it,
    // against the intent of its issuer.
    if presented == PresentationScheme::Dpop && confirmation.key.is_none() {
        return Err(TokenError::Confirmation);
    }
    let (proof, thumbprint) = match &confirmation {
        Confirmation { certificate: None, key: None } => (ProofOfPossession::None, None),
        Confirmation { key: Some(key), .. } => {
            (ProofOfPossession::Dpop, Some(format!("jkt:{key}").into()))
        }
        Confirmation { certificate: Some(digest), key: None } => {
            (ProofOfPossession::Certificate, Some(format!("x5t:{digest}").into()))
        }
    };
    let paths = &issuer.claims;
    let TokenIdentity { id, subject, client } = named(issuer, claims, form)?;
    let id = PrincipalId::parse(&id).map_err(|_wrong| TokenError::Claims(ClaimError::Subject))?;
    let client = client.map(|client| ClientId::parse(&client)).transpose();
    let client = client.map_err(|_wrong| TokenError::Claims(ClaimError::Client))?;
    if paths.groups.as_ref().is_some_and(|path| is_elsewhere(claims, path)) {
        return Err(TokenError::Claims(ClaimError::GroupsElsewhere));
    }
    let groups = list(claims, paths.groups.as_ref(), |text| GroupName::parse(text).ok());
    let groups = groups.ok_or(TokenError::Claims(ClaimError::Groups))?;
    let roles = list(claims, paths.roles.as_ref(), |text| RoleName::parse(text).ok());
    let mut said = Claims::default();
    said.issuer = Some(issuer.name.clone());
    said.subject = subject;
    said.client = client;
    said.roles = roles.ok_or(TokenError::Claims(ClaimError::Roles))?;
    said.actors = actors(claims)?;
    said.scopes = implied.closure(scopes(claims, paths.scopes.as_ref())?);
    said.certificate = None;
    said.proof = proof;
    said.thumbprint = thumbprint;
    said.token = token;
    let principal = Principal { id, groups, claims: said }.bound();
    Ok(TokenGrant { principal, audiences: audiences(claims)?, expires, confirmation })
}

/// Checks the validity period at `now`; returns the expiry, including the tolerance for clock skew.
fn in_time(
    issuer: &IssuerSettings,
    expires: u64,
    begins: Option<u64>,
    issued: Option<u64>,
    now: u64,
) -> Result<SystemTime, TokenError> {
    let skew = issuer.clock_skew.as_secs();
    if expires.saturating_add(skew) <= now {
        return Err(TokenError::Expired);
    }
    let early = now.saturating_add(skew);
    if begins.is_some_and(|begins| begins > early) || issued.is_some_and(|issued| issued > early) {
        return Err(TokenError::Early);
    }
    let lifetime = expires.saturating_sub(issued.unwrap_or(now));
    if lifetime > issuer.max_lifetime.as_secs() {
        return Err(TokenError::Lifetime);
    }
    Ok(UNIX_EPOCH + Duration::from_secs(expires.saturating_add(skew).min(1 << 40)))
}

/// The identities in a token.
struct TokenIdentity {
    /// The id of the principal.
    id: String,
    /// The subject, if it is a user.
    subject: Option<Box<str>>,
    /// The id of the client.
    client: Option<Box<str>>,
}

/// Determines the principal, the user and the client of a token.
fn named(
    issuer: &IssuerSettings,
    claims: Value<'_>,
    form: ClaimsSource,
) -> Result<TokenIdentity, TokenError> {
    let (no_subject, no_client) =
        (TokenError::Claims(ClaimError::Subject), TokenError::Claims(ClaimError::Client));
    let paths = &issuer.claims;
    let subject: Option<Box<str>> = match &paths.subject {
        Some(path) => at(claims, path).and_then(Value::as_str).map(Into::into),
        None => text(claims, "sub").map_err(|_wrong| no_subject.clone())?,
    };
    let client: Option<Box<str>> = match &paths.client {
        Some(path) => at(claims, path).and_then(Value::as_str).map(Into::into),
        None => {
            let said = |name: &str| text(claims, name).map_err(|_wrong| no_client.clone());
            let azp = said("azp")?;
            said("client_id")?.or(azp)
        }
    };
    let is_empty = client.as_deref() == Some("");
    if is_empty || (form == ClaimsSource::Token && client.is_none()) {
        return Err(no_client);
    }
    // An introspection response without `sub` belongs to its client alone. If the claim that is configured in place
    // of `sub` is missing and there is a `sub`, the user's name is unknown.
    let nobody = form == ClaimsSource::Answer && claims.get("sub").is_none();
    let acts_for_itself = is_service(issuer, claims)?;
    let (id, subject) = match (subject, client.as_deref()) {
        (Some(_), Some(client)) if acts_for_itself => (service(issuer, client), None),
        // RFC 9068, sections 2.2 and 5: without a user, `sub` is the client id, which must not be mistaken for a user
        // of that name.
        (Some(subject), Some(client)) if *subject == *client => (service(issuer, client), None),
        (Some(subject), _) if !subject.is_empty() && !acts_for_itself => {
            (format!("{}/{subject}", issuer.name), Some(subject))
        }
        (None, Some(client)) if nobody => (service(issuer, client), None),
        (Some(_) | None, _) => return Err(no_subject),
    };
    Ok(TokenIdentity { id, subject, client })
}

/// Whether the configured claim says that the client acts in its own name.
fn is_service(issuer: &IssuerSettings, claims: Value<'_>) -> Result<bool, TokenError> {
    let Some(service) = &issuer.service else { return Ok(false) };
    let Some(said) = at(claims, &service.claim) else { return Ok(false) };
    let said = said.as_str().ok_or(TokenError::Claims(ClaimError::Service))?;
    Ok(*said == *service.is)
}

/// Whether a token says that the claim at `path` was moved elsewhere because it would be too long. Its value is
/// unknown then, and a rule that denies something to a group would not apply.
///
/// OpenID Connect Core 1.0, section 5.6.2 (`_claim_names`); Microsoft Entra ID writes `hasgroups` if even that does
/// not fit.
fn is_elsewhere(claims: Value<'_>, path: &ClaimPath) -> bool {
    let Some(first) = path.0.first() else { return false };
    let names = claims.get("_claim_names");
    let moved = names.is_some_and(|names| !names.is_object() || names.get(first).is_some());
    let has = claims.get("hasgroups").is_some_and(|has| has.as_bool() != Some(false));
    moved || (has && &**first == "groups" && at(claims, path).is_none())
}

/// The principal of a client that acts in its own name.
fn service(issuer: &IssuerSettings, client: &str) -> String {
    format!("{SERVICE}{}/{client}", issuer.name)
}

/// How a token must be presented, according to its issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PresentationScheme {
    Bearer,
    Dpop,
}

/// Checks that the claims are those of an access token: refresh and ID tokens are signed and active as well.
///
/// RFC 7662, section 2.2 (`token_type`, as in RFC 6749, section 7.1). The header of a JWT was checked before. Some
/// issuers state it elsewhere as well, in `typ` (Keycloak) and `token_use` (Ory Hydra, Amazon Cognito), which must
/// agree.
fn presented(
    issuer: &IssuerSettings,
    claims: Value<'_>,
    form: ClaimsSource,
) -> Result<PresentationScheme, TokenError> {
    let said = |name: &str| -> Result<Option<String>, TokenError> {
        let said = text(claims, name).map_err(|_wrong| TokenError::Use)?;
        Ok(said.map(|said| said.to_ascii_lowercase()))
    };
    let typ = said("typ")?;
    let presented = match (form, said("token_type")?.as_deref()) {
        (ClaimsSource::Token, _) if typ.as_deref() == Some("dpop") => PresentationScheme::Dpop,
        (ClaimsSource::Token, _) => PresentationScheme::Bearer,
        (ClaimsSource::Answer, Some("bearer" | "access_token")) => PresentationScheme::Bearer,
        (ClaimsSource::Answer, Some("dpop")) => PresentationScheme::Dpop,
        (ClaimsSource::Answer, None) if issuer.untyped => PresentationScheme::Bearer,
        (ClaimsSource::Answer, Some(_) | None) => return Err(TokenError::Use),
    };
    let typ = match typ.as_deref() {
        None | Some("bearer" | "dpop" | "at+jwt" | "application/at+jwt") => true,
        Some("jwt") => issuer.untyped,
        Some(_) => false,
    };
    let used = matches!(said("token_use")?.as_deref(), None | Some("access" | "access_token"));
    if typ && used { Ok(presented) } else { Err(TokenError::Use) }
}

fn at<'a>(claims: Value<'a>, path: &ClaimPath) -> Option<Value<'a>> {
    path.0.iter().try_fold(claims, |value, part| match value.kind() {
        JsonKind::Object => value.get(part),
        JsonKind::Array => value.items().nth(part.parse().ok()?),
        JsonKind::Null
        | JsonKind::Boolean
        | JsonKind::Number
        | JsonKind::Plain
        | JsonKind::Escaped => None,
    })
}

/// Reads `aud`: a string, or a non-empty list of strings.
fn audiences(claims: Value<'_>) -> Result<Vec<Box<str>>, TokenError> {
    let audience = claims.get("aud").ok_or(TokenError::Audience)?;
    if let Some(one) = audience.as_str() {
        return Ok(vec![one.into()]);
    }
    let texts = audience.items().take(AUDIENCES + 1).map(|item| item.as_str().map(Into::into));
    let texts: Option<Vec<_>> = texts.collect();
    let fits = |texts: &Vec<_>| (1..=AUDIENCES).contains(&texts.len());
    texts.filter(fits).ok_or(TokenError::Audience)
}

/// Reads a list of strings, or one string; `None` for any other type.
fn list<T: Ord>(
    claims: Value<'_>,
    path: Option<&ClaimPath>,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<BTreeSet<T>> {
    let Some(value) = path.and_then(|path| at(claims, path)) else { return Some(BTreeSet::new()) };
    let one = |value: Value<'_>| value.as_str().and_then(|text| parse(&text));
    match value.kind() {
        JsonKind::Null => Some(BTreeSet::new()),
        JsonKind::Array => names(value.items().map(one)),
        JsonKind::Plain
        | JsonKind::Escaped
        | JsonKind::Boolean
        | JsonKind::Number
        | JsonKind::Object => one(value).map(|one| [one].into()),
    }
}

/// Collects the names in a list. `None` if one is invalid, or there are more than [`MOST`]. Duplicates count: a name
/// after the limit would not be read, and a rule that denies something to it would not apply.
fn names<T: Ord>(items: impl Iterator<Item = Option<T>>) -> Option<BTreeSet<T>> {
    let mut found = BTreeSet::new();
    for (count, item) in items.enumerate() {
        if count >= MOST {
            return None;
        }
        found.insert(item?);
    }
    Some(found)
}

/// Reads the scopes: a string with single spaces between them, or a list (RFC 9068, section 2.2.3).
fn scopes(claims: Value<'_>, path: Option<&ClaimPath>) -> Result<BTreeSet<Scope>, TokenError> {
    let wrong = || TokenError::Claims(ClaimError::Scopes);
    let value = match path {
        Some(path) => at(claims, path),
        None => claims.get("scope").or_else(|| claims.get("scp")),
    };
    let Some(value) = value else { return Ok(BTreeSet::new()) };
    let parse = |text: &str| Scope::parse(text).ok();
    let found = match value.as_str() {
        Some(text) if text.is_empty() => Some(BTreeSet::new()),
        Some(text) => names(text.split(' ').map(parse)),
        None if value.kind() == JsonKind::Array => {
            names(value.items().map(|item| item.as_str().and_then(|text| parse(&text))))
        }
        None => None,
    };
    found.ok_or_else(wrong)
}

/// Reads the actors that act for the caller, nearest first.
fn actors(claims: Value<'_>) -> Result<Vec<Box<str>>, TokenError> {
    let (mut found, mut next) = (Vec::new(), claims.get("act"));
    while let Some(actor) = next {
        let subject = actor.get("sub").and_then(Value::as_str).filter(|_| actor.is_object());
        let subject = subject
            .filter(|_| found.len() < ACTORS)
            .ok_or(TokenError::Claims(ClaimError::Actors))?;
        found.push(subject.into());
        next = actor.get("act");
    }
    Ok(found)
}

/// Reads the confirmation; unsupported methods are refused, because they cannot be checked.
fn confirmation(claims: Value<'_>) -> Result<Confirmation, TokenError> {
    let Some(cnf) = claims.get("cnf") else { return Ok(Confirmation::default()) };
    let mut found = Confirmation::default();
    // A SHA-256 in base64url.
    let digest = |value: Value<'_>| {
        let text = value.as_str().filter(|text| text.len() == 43);
        text.map(Into::into).ok_or(TokenError::Confirmation)
    };
    for (member, value) in cnf.members() {
        match &*member {
            "x5t#S256" => found.certificate = Some(digest(value)?),
            "jkt" => found.key = Some(digest(value)?),
            _ => return Err(TokenError::Confirmation),
        }
    }
    let empty = found == Confirmation::default();
    if empty || !cnf.is_object() { Err(TokenError::Confirmation) } else { Ok(found) }
}
