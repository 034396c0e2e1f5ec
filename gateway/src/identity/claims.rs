//! From what a token says to who the caller is.
//!
//! RFC 9068 (access tokens as JWT), RFC 8725 (best practice), RFC 7662 (what an issuer says of a
//! token); vectors AV-16 and AV-20 to AV-29.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use policy::json::{Kind, Value};
use policy::name::{ClientId, GroupName, PrincipalId, RoleName, Scope};
use policy::principal::{Claims, Principal, Proof};

use super::TokenError;
use crate::jose::{seconds, text};
use crate::settings::{ClaimPath, Implied, Issuer};

/// Most who act for one caller, one for the other (RFC 8693, section 4.1).
const ACTORS: usize = 5;
/// Most groups, roles and scopes of each sort.
const MOST: usize = 512;
/// Most audiences.
const AUDIENCES: usize = 64;
/// Members that only an ID token has (OpenID Connect Core 1.0, sections 2 and 3.1.3.6).
const OF_ID_TOKENS: [&str; 4] = ["nonce", "at_hash", "c_hash", "s_hash"];
/// How the principals of clients begin that call in their own name. No issuer's name has a colon in
/// it, so no user of any issuer is named so.
const SERVICE: &str = "service:";

/// What a verified token is good for.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    /// Who presents it, once the confirmation is proved.
    pub(super) principal: Principal,
    /// For which resources.
    pub(super) audiences: Vec<Box<str>>,
    /// Until when, the difference between clocks included.
    pub(super) expires: SystemTime,
    /// What its holder has to prove.
    pub(super) confirmation: Confirmation,
}

/// What the holder of a token has to prove (RFC 7800).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Confirmation {
    /// That the connection has the certificate with this digest (RFC 8705).
    pub(super) certificate: Option<Box<str>>,
    /// That it has the key with this digest (RFC 9449).
    pub(super) key: Option<Box<str>>,
}

/// From where what is said comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A token that was verified.
    Token,
    /// The issuer's answer about a token.
    Answer,
}

/// Reads what `claims` say at the time `now`.
pub(super) fn read(
    issuer: &Issuer,
    implied: &Implied,
    claims: Value<'_>,
    form: Form,
    now: SystemTime,
) -> Result<Grant, TokenError> {
    let invalid = |_| TokenError::Claims;
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let skew = issuer.clock_skew.as_secs();
    let expires = seconds(claims, "exp").map_err(invalid)?;
    let begins = seconds(claims, "nbf").map_err(invalid)?;
    let issued = seconds(claims, "iat").map_err(invalid)?;
    let token = text(claims, "jti").map_err(invalid)?;
    let strict = form == Form::Token && !issuer.untyped;
    if strict && (issued.is_none() || token.is_none()) {
        return Err(TokenError::Claims);
    }
    if OF_ID_TOKENS.iter().any(|name| claims.get(name).is_some()) {
        return Err(TokenError::Kind);
    }
    let presented = match form {
        // Its header says what it is, and was looked at before.
        Form::Token => Presented::Bearer,
        Form::Answer => presented(issuer, claims)?,
    };
    let expires = expires.ok_or(TokenError::Claims)?;
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
    let confirmation = confirmation(claims)?;
    // RFC 9449, section 6.2: a token of this type is bound to a key. One that is not could be used
    // by anybody, although its issuer did not mean it to be.
    if presented == Presented::Dpop && confirmation.key.is_none() {
        return Err(TokenError::Proof);
    }
    let (proof, thumbprint) = match &confirmation {
        Confirmation { certificate: None, key: None } => (Proof::None, None),
        Confirmation { key: Some(key), .. } => (Proof::Dpop, Some(format!("jkt:{key}").into())),
        Confirmation { certificate: Some(digest), key: None } => {
            (Proof::Certificate, Some(format!("x5t:{digest}").into()))
        }
    };
    let paths = &issuer.claims;
    let subject = match &paths.subject {
        Some(path) => at(claims, path).and_then(Value::as_str).map(Into::into),
        None => text(claims, "sub").map_err(invalid)?,
    };
    let client = match &paths.client {
        Some(path) => at(claims, path).and_then(Value::as_str).map(Into::into),
        None => {
            let azp = text(claims, "azp").map_err(invalid)?;
            text(claims, "client_id").map_err(invalid)?.or(azp)
        }
    };
    let client: Option<Box<str>> = client;
    let subject: Option<Box<str>> = subject;
    if form == Form::Token && client.is_none() {
        return Err(TokenError::Claims);
    }
    // A token without `sub` belongs to nobody but its client. One that lacks the member that is
    // configured in place of `sub`, and has `sub`, is of somebody whose name is not known.
    let nobody = form == Form::Answer && claims.get("sub").is_none();
    let (name, subject) = match (subject, client.as_deref()) {
        // RFC 9068, sections 2.2 and 5: without a user `sub` is the client, whose id must not be
        // mistaken for the user of that name.
        (Some(subject), Some(client)) if *subject == *client => (service(issuer, client), None),
        (Some(subject), _) if !subject.is_empty() => {
            (format!("{}/{subject}", issuer.name), Some(subject))
        }
        (None, Some(client)) if nobody => (service(issuer, client), None),
        (Some(_) | None, _) => return Err(TokenError::Claims),
    };
    let id = PrincipalId::parse(&name);
    let client = client.map(|client| ClientId::parse(&client)).transpose();
    let groups = list(claims, paths.groups.as_ref(), |text| GroupName::parse(text).ok())?;
    let roles = list(claims, paths.roles.as_ref(), |text| RoleName::parse(text).ok())?;
    let expires = UNIX_EPOCH + Duration::from_secs(expires.saturating_add(skew).min(1 << 40));
    let mut claims_read = Claims::default();
    claims_read.issuer = Some(issuer.name.clone());
    claims_read.subject = subject;
    claims_read.client = client.map_err(|_wrong| TokenError::Claims)?;
    claims_read.actors = actors(claims)?;
    claims_read.roles = roles;
    claims_read.scopes = implied.closure(scopes(claims, paths.scopes.as_ref())?);
    claims_read.certificate = None;
    claims_read.proof = proof;
    claims_read.thumbprint = thumbprint;
    claims_read.token = token;
    let principal =
        Principal { id: id.map_err(|_wrong| TokenError::Claims)?, groups, claims: claims_read };
    let principal = principal.bound();
    Ok(Grant { principal, audiences: audiences(claims)?, expires, confirmation })
}

/// The principal of a client that calls in its own name.
fn service(issuer: &Issuer, client: &str) -> String {
    format!("{SERVICE}{}/{client}", issuer.name)
}

/// How a token has to be presented, as its issuer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presented {
    Bearer,
    Dpop,
}

/// Whether the answer is about an access token: refresh and ID tokens are active as well.
///
/// RFC 7662, section 2.2 (`token_type`, as in RFC 6749, section 7.1). Some issuers say it elsewhere as
/// well: `typ` (Keycloak) and `token_use` (Ory Hydra, Amazon Cognito); what is said there has to fit.
fn presented(issuer: &Issuer, claims: Value<'_>) -> Result<Presented, TokenError> {
    let said = |name: &str| -> Result<Option<String>, TokenError> {
        let said = text(claims, name).map_err(|_wrong| TokenError::Claims)?;
        Ok(said.map(|said| said.to_ascii_lowercase()))
    };
    let presented = match said("token_type")?.as_deref() {
        Some("bearer" | "access_token") => Presented::Bearer,
        Some("dpop") => Presented::Dpop,
        None if issuer.untyped => Presented::Bearer,
        Some(_) | None => return Err(TokenError::Kind),
    };
    let typ = match said("typ")?.as_deref() {
        None | Some("bearer" | "dpop" | "at+jwt" | "application/at+jwt") => true,
        Some("jwt") => issuer.untyped,
        Some(_) => false,
    };
    let used = matches!(said("token_use")?.as_deref(), None | Some("access" | "access_token"));
    if typ && used { Ok(presented) } else { Err(TokenError::Kind) }
}

fn at<'a>(claims: Value<'a>, path: &ClaimPath) -> Option<Value<'a>> {
    path.0.iter().try_fold(claims, |value, part| match value.kind() {
        Kind::Object => value.get(part),
        Kind::Array => value.items().nth(part.parse().ok()?),
        Kind::Null | Kind::Boolean | Kind::Number | Kind::Plain | Kind::Escaped => None,
    })
}

/// `aud`: a text, or a list of texts that is not empty.
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

/// A list of texts, or one text. What is there and is something else is refused.
fn list<T: Ord>(
    claims: Value<'_>,
    path: Option<&ClaimPath>,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<BTreeSet<T>, TokenError> {
    let Some(value) = path.and_then(|path| at(claims, path)) else { return Ok(BTreeSet::new()) };
    let one = |value: Value<'_>| value.as_str().and_then(|text| parse(&text));
    let found: Option<BTreeSet<T>> = match value.kind() {
        Kind::Null => return Ok(BTreeSet::new()),
        Kind::Array => value.items().take(MOST + 1).map(one).collect(),
        Kind::Plain | Kind::Escaped | Kind::Boolean | Kind::Number | Kind::Object => {
            one(value).map(|one| [one].into())
        }
    };
    found.filter(|found| found.len() <= MOST).ok_or(TokenError::Claims)
}

/// The scopes: a text with single spaces between them, or a list (RFC 9068, section 2.2.3).
fn scopes(claims: Value<'_>, path: Option<&ClaimPath>) -> Result<BTreeSet<Scope>, TokenError> {
    let value = match path {
        Some(path) => at(claims, path),
        None => claims.get("scope").or_else(|| claims.get("scp")),
    };
    let Some(value) = value else { return Ok(BTreeSet::new()) };
    let parse = |text: &str| Scope::parse(text).map_err(|_wrong| TokenError::Claims);
    let found: BTreeSet<Scope> = match value.as_str() {
        Some(text) if text.is_empty() => BTreeSet::new(),
        Some(text) => text.split(' ').map(parse).collect::<Result<_, _>>()?,
        None if value.kind() == Kind::Array => {
            let item = |item: Value<'_>| parse(&item.as_str().ok_or(TokenError::Claims)?);
            value.items().take(MOST + 1).map(item).collect::<Result<_, _>>()?
        }
        None => return Err(TokenError::Claims),
    };
    if found.len() <= MOST { Ok(found) } else { Err(TokenError::Claims) }
}

/// Who acts for the caller, the nearest first.
fn actors(claims: Value<'_>) -> Result<Vec<Box<str>>, TokenError> {
    let (mut found, mut next) = (Vec::new(), claims.get("act"));
    while let Some(actor) = next {
        let subject = actor.get("sub").and_then(Value::as_str).filter(|_| actor.is_object());
        let subject = subject.filter(|_| found.len() < ACTORS).ok_or(TokenError::Claims)?;
        found.push(subject.into());
        next = actor.get("act");
    }
    Ok(found)
}

/// What has to be proved. What is not understood cannot be proved.
fn confirmation(claims: Value<'_>) -> Result<Confirmation, TokenError> {
    let Some(cnf) = claims.get("cnf") else { return Ok(Confirmation::default()) };
    let mut found = Confirmation::default();
    // SHA-256 in Base64 for URLs.
    let digest = |value: Value<'_>| {
        let text = value.as_str().filter(|text| text.len() == 43);
        text.map(Into::into).ok_or(TokenError::Proof)
    };
    for (member, value) in cnf.members() {
        match &*member {
            "x5t#S256" => found.certificate = Some(digest(value)?),
            "jkt" => found.key = Some(digest(value)?),
            _ => return Err(TokenError::Proof),
        }
    }
    let empty = found == Confirmation::default();
    if empty || !cnf.is_object() { Err(TokenError::Proof) } else { Ok(found) }
}
