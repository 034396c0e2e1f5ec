//! Reads JSON Web Signatures strictly, and has `jsonwebtoken` verify them with a key that is chosen beforehand.
//!
//! The header of a token names a key and an algorithm, but only as a claim: the keys come from the issuer, and each
//! is valid for one algorithm. Header members that could mislead a verifier (an embedded key, a URL, an algorithm
//! without a key, a critical extension) are refused before any signature is checked (RFC 7515, RFC 8725; vectors
//! AV-01 to AV-09 and AV-39).
//!
//! `jsonwebtoken` then reads the token again: it verifies the signature and the registered claims, and it must find
//! the same claims. What only one of the two readers accepts is refused
//! (docs/decisions/0007-tokens-read-by-two-readers.md).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use json::{Document, JsonError, JsonKind, Value};
use jsonwebtoken::Validation;
use jsonwebtoken::errors::ErrorKind;

use crate::crypto::jwk::{Algorithm, BOUNDS, ED25519_NAME, Jwk, KID};

/// Maximum length of a token, in bytes.
pub const MAX_TOKEN: usize = 8 * 1024;
/// Header members that are accepted: those used here and those that are harmless.
const MEMBERS: [&str; 5] = ["alg", "kid", "typ", "x5t", "x5t#S256"];

/// The reason why a token is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoseError {
    /// It is longer than [`MAX_TOKEN`].
    #[error("the token is longer than {MAX_TOKEN} bytes")]
    Long,
    /// It does not have three parts.
    #[error("the token does not have three parts")]
    Parts,
    /// A part is not canonical base64url.
    #[error("a part of the token is not Base64 for URLs")]
    Base64,
    /// A part is not JSON.
    #[error("a part of the token is not a JSON object: {0}")]
    Json(JsonError),
    /// The header has a member that is not accepted or has the wrong type, or a part is not a JSON object.
    #[error("the header has a member that is not accepted")]
    Header,
    /// The algorithm is missing or not accepted.
    #[error("the algorithm is not accepted")]
    Algorithm,
    /// The signature does not match.
    #[error("the signature does not fit")]
    Signature,
    /// The signature matches, but `jsonwebtoken` refuses this registered claim.
    #[error("the second parser rejects `{0}`")]
    Claim(&'static str),
    /// `jsonwebtoken` refuses what is accepted here, or reads something else.
    #[error("the second parser rejects {0}")]
    Differs(&'static str),
}

/// What the registered claims of an access token must say (RFC 7519, section 4.1).
///
/// The times are missing, because `jsonwebtoken` would compare them with the clock of the machine.
#[derive(Clone, Debug)]
pub struct ExpectedClaims<'a> {
    /// The value of `iss`.
    pub issuer: &'a str,
    /// The audiences of which at least one must be in `aud`.
    pub audiences: Vec<&'a str>,
}

/// A parsed token. None of its content may be trusted before [`Jws::is_signed_by`] or [`Jws::is_issued_as`].
#[derive(Debug)]
pub struct Jws<'a> {
    /// The algorithm it claims.
    pub algorithm: Algorithm,
    /// The key id it claims.
    pub kid: Option<Box<str>>,
    /// The token type it claims, in lower case and without `application/`.
    pub typ: Option<Box<str>>,
    /// The public key in its header, if [`Jws::read_with_key`] was used.
    pub jwk: Option<Jwk>,
    claims: Document,
    text: &'a str,
    /// Whether the header names the algorithm as RFC 9864 does.
    naming: AlgorithmNaming,
}

/// The specification after which a header names its algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AlgorithmNaming {
    /// RFC 7518 and RFC 8037: all names that `jsonwebtoken` knows.
    Usual,
    /// RFC 9864: `Ed25519`, which `jsonwebtoken` does not know.
    FullySpecified,
}

/// Where the key of a token comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKeySource {
    /// It is known from elsewhere; a key in the header is refused.
    Elsewhere,
    /// The header of the token has it.
    Header,
}

impl<'a> Jws<'a> {
    /// Parses a token whose key is known from elsewhere, such as an access token.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn read(text: &'a str) -> Result<Self, JoseError> {
        Self::parse(text, TokenKeySource::Elsewhere)
    }

    /// Parses a token that carries its own public key: a DPoP proof (RFC 9449, section 4.2).
    ///
    /// # Errors
    /// If it is malformed.
    pub fn read_with_key(text: &'a str) -> Result<Self, JoseError> {
        Self::parse(text, TokenKeySource::Header)
    }

    fn parse(text: &'a str, source: TokenKeySource) -> Result<Self, JoseError> {
        if text.len() > MAX_TOKEN {
            return Err(JoseError::Long);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(JoseError::Parts)?;
        let (header, claims) = signed.split_once('.').ok_or(JoseError::Parts)?;
        if claims.contains('.') {
            return Err(JoseError::Parts);
        }
        let header = object(header)?;
        let claims = object(claims)?;
        decode(signature)?;
        let (mut algorithm, mut kid, mut typ, mut jwk) = (None, None, None, None);
        let mut naming = AlgorithmNaming::Usual;
        for (member, value) in header.root().members() {
            let said = || value.as_str().ok_or(JoseError::Header);
            match &*member {
                "alg" => {
                    let name = said()?;
                    algorithm = Some(Algorithm::parse(&name).ok_or(JoseError::Algorithm)?);
                    if name == ED25519_NAME {
                        naming = AlgorithmNaming::FullySpecified;
                    }
                }
                "kid" => kid = Some(said()?).filter(|kid| kid.len() <= KID).map(Into::into),
                "typ" => {
                    let lower = said()?.to_ascii_lowercase();
                    typ = Some(lower.strip_prefix("application/").unwrap_or(&lower).into());
                }
                "jwk" if source == TokenKeySource::Header => {
                    let public = value.is_object() && value.get("d").is_none();
                    let key = public.then(|| Jwk::read(value).ok()).flatten();
                    jwk = Some(key.ok_or(JoseError::Header)?);
                }
                member if MEMBERS.contains(&member) => drop(said()?),
                _ => return Err(JoseError::Header),
            }
        }
        if header.root().get("kid").is_some() && kid.is_none() {
            return Err(JoseError::Header);
        }
        let algorithm = algorithm.ok_or(JoseError::Algorithm)?;
        Ok(Self { algorithm, kid, typ, jwk, claims, text, naming })
    }

    /// The claims before verification. Use them only to choose the key, and to say why the token is refused.
    #[must_use]
    pub fn unverified(&self) -> Value<'_> {
        self.claims.root()
    }

    /// Verifies the signature with `key` and returns the claims. For tokens without registered claims to verify, such
    /// as DPoP proofs.
    ///
    /// # Errors
    /// If the signature does not match, the key is not for the algorithm of the token, or the readers differ.
    pub fn is_signed_by(&self, key: &Jwk) -> Result<Value<'_>, JoseError> {
        self.verify(key, &signature_alone(self.algorithm))
    }

    /// Verifies the signature of an access token with `key`, and its registered claims, and returns the claims. `exp`
    /// must be there, but whether it has passed is for the caller to determine, and so is the begin (`nbf`).
    ///
    /// # Errors
    /// If the signature does not match, the key is not for the algorithm of the token, a registered claim is missing
    /// or not as expected, or the readers differ.
    pub fn is_issued_as(
        &self,
        key: &Jwk,
        expected: &ExpectedClaims<'_>,
    ) -> Result<Value<'_>, JoseError> {
        let mut validation = signature_alone(self.algorithm);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.set_issuer(&[expected.issuer]);
        validation.set_audience(&expected.audiences);
        validation.validate_aud = true;
        self.verify(key, &validation)
    }

    /// Has `jsonwebtoken` verify the token, and compares what it has read.
    fn verify(&self, key: &Jwk, validation: &Validation) -> Result<Value<'_>, JoseError> {
        if !key.fits(self.algorithm) {
            return Err(JoseError::Signature);
        }
        let read = self.second_reading(key, validation).map_err(|error| refusal(error.kind()))?;
        let claims = self.claims.root();
        if same(&read, claims) { Ok(claims) } else { Err(JoseError::Differs("its claims")) }
    }

    fn second_reading(
        &self,
        key: &Jwk,
        validation: &Validation,
    ) -> jsonwebtoken::errors::Result<serde_json::Value> {
        match self.naming {
            AlgorithmNaming::Usual => {
                Ok(jsonwebtoken::decode(self.text, &key.public, validation)?.claims)
            }
            // The library refuses a header with this name, so it is told the algorithm. It verifies the signature, and
            // its reading of the claims is compared, but their validation is left to the caller.
            AlgorithmNaming::FullySpecified => {
                let (signed, signature) = self.text.rsplit_once('.').unwrap_or_default();
                let (key, algorithm) = (&key.public, self.algorithm.into());
                if !jsonwebtoken::crypto::verify(signature, signed.as_bytes(), key, algorithm)? {
                    return Err(ErrorKind::InvalidSignature.into());
                }
                jsonwebtoken::dangerous::insecure_decode_claims(self.text)
            }
        }
    }
}

/// What `jsonwebtoken` is to verify of a token without registered claims. The times are never for it: it reads the
/// clock of the machine.
fn signature_alone(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm.into());
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}

/// The error for a refusal by `jsonwebtoken`. Its own text is not used, because it may quote the token.
fn refusal(kind: &ErrorKind) -> JoseError {
    match kind {
        ErrorKind::InvalidSignature => JoseError::Signature,
        ErrorKind::InvalidIssuer => JoseError::Claim("iss"),
        ErrorKind::InvalidAudience => JoseError::Claim("aud"),
        ErrorKind::MissingRequiredClaim(name) => match name.as_str() {
            "exp" => JoseError::Claim("exp"),
            "iss" => JoseError::Claim("iss"),
            _ => JoseError::Claim("aud"),
        },
        ErrorKind::Json(_) => JoseError::Differs("its JSON"),
        ErrorKind::InvalidAlgorithm | ErrorKind::InvalidKeyFormat => {
            JoseError::Differs("its algorithm")
        }
        _ => JoseError::Differs("its form"),
    }
}

/// Whether `jsonwebtoken` has read the same value.
fn same(read: &serde_json::Value, said: Value<'_>) -> bool {
    match (read, said.kind()) {
        (serde_json::Value::Null, JsonKind::Null) => true,
        (serde_json::Value::Bool(read), JsonKind::Boolean) => said.as_bool() == Some(*read),
        // Of other numbers the library keeps an approximation. No claim that is used here is one.
        (serde_json::Value::Number(read), JsonKind::Number) => {
            said.raw().parse::<u64>().ok() == read.as_u64()
        }
        (serde_json::Value::String(read), JsonKind::Plain | JsonKind::Escaped) => {
            said.as_str().as_deref() == Some(read)
        }
        (serde_json::Value::Array(read), JsonKind::Array) => {
            read.len() == said.items().count()
                && read.iter().zip(said.items()).all(|(read, said)| same(read, said))
        }
        (serde_json::Value::Object(read), JsonKind::Object) => {
            read.len() == said.members().count()
                && said
                    .members()
                    .all(|(name, said)| read.get(&*name).is_some_and(|read| same(read, said)))
        }
        _ => false,
    }
}

fn object(text: &str) -> Result<Document, JoseError> {
    let document = Document::parse(Bytes::from(decode(text)?), &BOUNDS).map_err(JoseError::Json)?;
    if document.root().is_object() { Ok(document) } else { Err(JoseError::Header) }
}

/// The claims of a token that another party issued to another party, unverified; `None` if it does not have three
/// parts or the second is not an object. They must not be used to authenticate a caller.
#[must_use]
pub fn said(token: &str) -> Option<Document> {
    let (_, rest) = token.split_once('.')?;
    let (claims, signature) = rest.split_once('.')?;
    (!signature.contains('.')).then(|| object(claims).ok()).flatten()
}

/// The header of such a token, unverified.
#[must_use]
pub fn said_header(token: &str) -> Option<Document> {
    object(token.split_once('.')?.0).ok()
}

/// Decodes base64url without padding and without stray bits, so that each value has one encoding.
fn decode(text: &str) -> Result<Vec<u8>, JoseError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_unreadable| JoseError::Base64)
}

/// Reads a NumericDate in whole seconds since 1970 (RFC 7519, section 2); `None` if it is absent.
///
/// # Errors
/// If the member has any other type: it must not count as absent (CVE-2026-25537).
pub fn seconds(claims: Value<'_>, name: &str) -> Result<Option<u64>, ClaimTypeError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let digits = value.raw();
    let plain =
        value.kind() == JsonKind::Number && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain {
        digits.parse().map(Some).map_err(|_large| ClaimTypeError)
    } else {
        Err(ClaimTypeError)
    }
}

/// Reads a string claim; `None` if it is absent.
///
/// # Errors
/// If the member has any other type.
pub fn text(claims: Value<'_>, name: &str) -> Result<Option<Box<str>>, ClaimTypeError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    value.as_str().map(|text| Some(text.into())).ok_or(ClaimTypeError)
}

/// A claim is present but has the wrong type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("wrong JSON type")]
pub struct ClaimTypeError;

#[cfg(test)]
mod tests;
