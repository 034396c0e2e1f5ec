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

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
    ECDSA_P384_SHA384_FIXED_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    ParsedPublicKey, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair, VerificationAlgorithm,
};
use aws_lc_rs::{digest, signature};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use json::{Document, JsonBounds, JsonError, JsonKind, Value, write_string};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{DecodingKey, Validation};
use rustls::pki_types::PrivateKeyDer;

/// Maximum length of a token, in bytes.
pub const LONGEST: usize = 8 * 1024;
/// Maximum length of a key id, in bytes.
const KID: usize = 256;
/// Parser bounds for tokens and key sets.
pub const BOUNDS: JsonBounds = JsonBounds { depth: 16, nodes: 4096, key: 256, number: 32 };
/// Header members that are accepted: those used here and those that are harmless.
const MEMBERS: [&str; 5] = ["alg", "kid", "typ", "x5t", "x5t#S256"];
/// The public exponent of every RSA key in use: 65537.
const EXPONENT: [u8; 3] = [1, 0, 1];
/// The name that RFC 9864 gives to EdDSA with Ed25519.
const ED25519_NAME: &str = "Ed25519";

/// A signature algorithm. All of them are asymmetric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 signatures with SHA-256.
    #[serde(rename = "RS256")]
    Rs256,
    /// RSASSA-PSS signatures with SHA-256.
    #[serde(rename = "PS256")]
    Ps256,
    /// ECDSA on P-256 with SHA-256.
    #[serde(rename = "ES256")]
    Es256,
    /// ECDSA on P-384 with SHA-384.
    #[serde(rename = "ES384")]
    Es384,
    /// EdDSA with Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl Algorithm {
    /// All algorithms, accepted unless fewer are configured.
    pub const ALL: [Self; 5] = [Self::Rs256, Self::Ps256, Self::Es256, Self::Es384, Self::EdDsa];

    /// The name in JOSE (RFC 7518, section 3.1; RFC 8037, section 3.1).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Ps256 => "PS256",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let text = if text == ED25519_NAME { "EdDSA" } else { text };
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == text)
    }
}

impl From<Algorithm> for jsonwebtoken::Algorithm {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Rs256 => Self::RS256,
            Algorithm::Ps256 => Self::PS256,
            Algorithm::Es256 => Self::ES256,
            Algorithm::Es384 => Self::ES384,
            Algorithm::EdDsa => Self::EdDSA,
        }
    }
}

/// The reason why a token is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoseError {
    /// It is longer than [`LONGEST`].
    #[error("the token is longer than {LONGEST} bytes")]
    Long,
    /// It does not have three parts.
    #[error("the token has not three parts")]
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
    #[error("the second reader refuses `{0}`")]
    Claim(&'static str),
    /// `jsonwebtoken` refuses what is accepted here, or reads something else.
    #[error("the second reader refuses {0}")]
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
        if text.len() > LONGEST {
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

/// The reason why a key is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwkError {
    /// A symmetric key or a private key.
    #[error("a secret has no place in a set of public keys")]
    Secret,
    /// Its declared use is not signatures.
    #[error("not for signatures")]
    Use,
    /// Its type, curve or algorithm is not supported.
    #[error("not a kind of key that is used here")]
    Kind,
    /// It is too weak, or not a point on its curve.
    #[error("too weak, or broken")]
    Weak,
}

/// A public key, valid for one algorithm; an RSA key without `alg` is valid for RS256 and PS256.
#[derive(Clone)]
pub struct Jwk {
    /// The key id in its set.
    pub kid: Option<Box<str>>,
    algorithm: Algorithm,
    /// It is an RSA key without `alg`.
    either: bool,
    public: DecodingKey,
    thumbprint: Box<str>,
}

impl fmt::Debug for Jwk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kid, algorithm, .. } = self;
        f.debug_struct("Key")
            .field("kid", kid)
            .field("algorithm", algorithm)
            .finish_non_exhaustive()
    }
}

impl Jwk {
    /// Reads a public JSON Web Key (RFC 7517).
    ///
    /// # Errors
    /// If it is not a key, or not one that is accepted.
    pub fn read(jwk: Value<'_>) -> Result<Self, JwkError> {
        let text = |key: &str| jwk.get(key).and_then(Value::as_str);
        let kind = text("kty").ok_or(JwkError::Kind)?;
        if kind == "oct" || jwk.get("d").is_some() || jwk.get("k").is_some() {
            return Err(JwkError::Secret);
        }
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return Err(JwkError::Use);
        }
        if let Some(uses) = jwk.get("key_ops")
            && !uses.items().any(|purpose| purpose.as_str().as_deref() == Some("verify"))
        {
            return Err(JwkError::Use);
        }
        let said = match text("alg") {
            Some(name) => Some(Algorithm::parse(&name).ok_or(JwkError::Kind)?),
            None => None,
        };
        let KeyParts { algorithm, public, canonical } = match (&*kind, text("crv").as_deref()) {
            ("EC", Some("P-256")) => elliptic(jwk, &P256)?,
            ("EC", Some("P-384")) => elliptic(jwk, &P384)?,
            ("OKP", Some("Ed25519")) => edwards(jwk)?,
            ("RSA", _) => rsa(jwk, said)?,
            _ => return Err(JwkError::Kind),
        };
        if said.is_some_and(|said| said != algorithm) {
            return Err(JwkError::Kind);
        }
        let either = said.is_none() && algorithm == Algorithm::Rs256;
        let kid = text("kid").filter(|kid| kid.len() <= KID).map(Into::into);
        let digest = digest::digest(&digest::SHA256, &canonical);
        let thumbprint = URL_SAFE_NO_PAD.encode(digest).into();
        Ok(Self { kid, algorithm, either, public, thumbprint })
    }

    /// The JWK thumbprint (RFC 7638), in base64url.
    #[must_use]
    pub fn thumbprint(&self) -> &str {
        &self.thumbprint
    }

    /// Whether the key is valid for this algorithm.
    #[must_use]
    pub fn fits(&self, algorithm: Algorithm) -> bool {
        self.algorithm == algorithm || (self.either && algorithm == Algorithm::Ps256)
    }
}

/// What a key says of itself, by its type.
struct KeyParts {
    algorithm: Algorithm,
    public: DecodingKey,
    /// The members that its thumbprint covers.
    canonical: Vec<u8>,
}

/// A curve of ECDSA keys.
struct EcCurve {
    name: &'static str,
    algorithm: Algorithm,
    /// The length of a coordinate in bytes.
    size: usize,
    verifier: &'static dyn VerificationAlgorithm,
}

static P256: EcCurve = EcCurve {
    name: "P-256",
    algorithm: Algorithm::Es256,
    size: 32,
    verifier: &ECDSA_P256_SHA256_FIXED,
};

static P384: EcCurve = EcCurve {
    name: "P-384",
    algorithm: Algorithm::Es384,
    size: 48,
    verifier: &ECDSA_P384_SHA384_FIXED,
};

/// A member of a key that holds bytes in base64url.
fn bytes(jwk: Value<'_>, key: &str) -> Result<Vec<u8>, JwkError> {
    let text = jwk.get(key).and_then(Value::as_str);
    text.and_then(|text| decode(&text).ok()).ok_or(JwkError::Weak)
}

fn elliptic(jwk: Value<'_>, curve: &EcCurve) -> Result<KeyParts, JwkError> {
    let x = bytes(jwk, "x")?;
    let y = bytes(jwk, "y")?;
    if x.len() != curve.size || y.len() != curve.size {
        return Err(JwkError::Weak);
    }
    let point = [&[4][..], &x, &y].concat();
    check(curve.verifier, &point)?;
    let canonical = members(&[
        ("crv", curve.name),
        ("kty", "EC"),
        ("x", &URL_SAFE_NO_PAD.encode(&x)),
        ("y", &URL_SAFE_NO_PAD.encode(&y)),
    ]);
    let public = DecodingKey::from_ec_der(&point);
    Ok(KeyParts { algorithm: curve.algorithm, public, canonical })
}

fn edwards(jwk: Value<'_>) -> Result<KeyParts, JwkError> {
    let x = bytes(jwk, "x")?;
    check(&ED25519, &x)?;
    let canonical =
        members(&[("crv", "Ed25519"), ("kty", "OKP"), ("x", &URL_SAFE_NO_PAD.encode(&x))]);
    let public = DecodingKey::from_ed_der(&x);
    Ok(KeyParts { algorithm: Algorithm::EdDsa, public, canonical })
}

/// An RSA key; `said` is the algorithm that it names, since it may be used with two.
fn rsa(jwk: Value<'_>, said: Option<Algorithm>) -> Result<KeyParts, JwkError> {
    let n = bytes(jwk, "n")?;
    let e = bytes(jwk, "e")?;
    let strong = (256..=1024).contains(&n.len()) && n.first().is_some_and(|b| *b >= 128);
    let odd = n.last().is_some_and(|byte| byte & 1 == 1);
    if !strong || !odd || e != EXPONENT {
        return Err(JwkError::Weak);
    }
    let canonical = members(&[
        ("e", &URL_SAFE_NO_PAD.encode(&e)),
        ("kty", "RSA"),
        ("n", &URL_SAFE_NO_PAD.encode(&n)),
    ]);
    let algorithm = match said {
        Some(Algorithm::Ps256) => Algorithm::Ps256,
        _ => Algorithm::Rs256,
    };
    Ok(KeyParts { algorithm, public: DecodingKey::from_rsa_raw_components(&n, &e), canonical })
}

/// Maximum number of keys in a set.
const KEYS: usize = 64;

/// The reason why a key set is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwksError {
    /// It is not JSON.
    #[error("the set of keys cannot be read: {0}")]
    Json(JsonError),
    /// It has no list `keys`.
    #[error("the set of keys has no list `keys`")]
    Shape,
    /// It has more than `KEYS` keys.
    #[error("the set has more than {KEYS} keys")]
    Many,
}

/// Reads a JSON Web Key Set (RFC 7517, section 5). Keys that are not accepted are left out, and so are keys that
/// share a key id, because the id is ambiguous.
///
/// # Errors
/// If it is not a key set, or has too many keys.
pub fn keys(text: Bytes) -> Result<Vec<Jwk>, JwksError> {
    let document = Document::parse(text, &BOUNDS).map_err(JwksError::Json)?;
    let list = document.root().get("keys").filter(|list| list.kind() == JsonKind::Array);
    let list = list.ok_or(JwksError::Shape)?;
    if list.items().count() > KEYS {
        return Err(JwksError::Many);
    }
    let mut keys: Vec<Jwk> = Vec::new();
    for item in list.items() {
        match Jwk::read(item) {
            Ok(key) => keys.push(key),
            Err(JwkError::Secret) => {
                tracing::error!("a set of public keys has a secret in it; it is not used");
            }
            Err(error) => tracing::debug!(%error, "a key is not used"),
        }
    }
    let named = |name: &Option<Box<str>>| keys.iter().filter(|key| key.kid == *name).count();
    let alone: Vec<bool> = keys.iter().map(|k| k.kid.is_none() || named(&k.kid) == 1).collect();
    let alone = keys.into_iter().zip(alone).filter(|(_, alone)| *alone);
    Ok(alone.map(|(key, _)| key).collect())
}

/// Checks that a public key is valid for `algorithm`. `jsonwebtoken` keeps the bytes of a key without looking at them.
fn check(algorithm: &'static dyn VerificationAlgorithm, key: &[u8]) -> Result<(), JwkError> {
    ParsedPublicKey::new(algorithm, key).map_err(|_rejected| JwkError::Weak)?;
    Ok(())
}

/// Writes a JSON object with these members in this order.
fn members(members: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (n, (key, value)) in members.iter().enumerate() {
        out.extend_from_slice(if n > 0 { b"," } else { b"" });
        write_string(&mut out, key);
        out.push(b':');
        write_string(&mut out, value);
    }
    out.push(b'}');
    out
}

/// A private key that signs tokens.
pub struct JwsSigner {
    pair: SigningKeyPair,
    algorithm: Algorithm,
    kid: Option<Box<str>>,
}

enum SigningKeyPair {
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl fmt::Debug for JwsSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, kid, .. } = self;
        f.debug_struct("Signer").field("algorithm", algorithm).field("kid", kid).finish()
    }
}

impl JwsSigner {
    /// Makes a signer from a private key, with the key id `kid`. `wanted` chooses among the algorithms of an RSA key.
    /// Returns `None` if the key is not supported or not for `wanted`.
    #[must_use]
    pub fn new(
        key: &PrivateKeyDer<'_>,
        kid: Option<Box<str>>,
        wanted: Option<Algorithm>,
    ) -> Option<Self> {
        let (pair, algorithm) = pair(key, wanted)?;
        (wanted.is_none_or(|wanted| wanted == algorithm)).then_some(Self { pair, algorithm, kid })
    }

    /// Signs `claims`, a JSON object, as a token of the type `typ`; `None` if signing fails.
    #[must_use]
    pub fn sign(&self, typ: &str, claims: &[u8]) -> Option<String> {
        let mut header = vec![("alg", self.algorithm.as_str()), ("typ", typ)];
        header.extend(self.kid.as_deref().map(|kid| ("kid", kid)));
        let mut text = URL_SAFE_NO_PAD.encode(members(&header));
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(claims, &mut text);
        let (random, message) = (SystemRandom::new(), text.as_bytes());
        let signature = match &self.pair {
            SigningKeyPair::Ecdsa(pair) => pair.sign(&random, message).ok()?.as_ref().to_vec(),
            SigningKeyPair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            SigningKeyPair::Rsa(pair) => {
                let padding: &dyn signature::RsaEncoding = match self.algorithm {
                    Algorithm::Ps256 => &RSA_PSS_SHA256,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signed = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &random, message, &mut signed).ok()?;
                signed
            }
        };
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut text);
        Some(text)
    }

    /// The public key as a JWK; `None` for RSA and Ed25519 keys.
    #[must_use]
    pub fn public(&self) -> Option<Vec<u8>> {
        let point = match &self.pair {
            SigningKeyPair::Ecdsa(pair) => pair.public_key().as_ref(),
            SigningKeyPair::Rsa(_) | SigningKeyPair::Ed25519(_) => return None,
        };
        let (x, y) = point.get(1..)?.split_at_checked(point.len() / 2)?;
        let curve = if self.algorithm == Algorithm::Es256 { "P-256" } else { "P-384" };
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        Some(members(&[("kty", "EC"), ("crv", curve), ("x", &x), ("y", &y)]))
    }
}

fn pair(key: &PrivateKeyDer<'_>, wanted: Option<Algorithm>) -> Option<(SigningKeyPair, Algorithm)> {
    let der = key.secret_der();
    for (signing, algorithm) in [
        (&ECDSA_P256_SHA256_FIXED_SIGNING, Algorithm::Es256),
        (&ECDSA_P384_SHA384_FIXED_SIGNING, Algorithm::Es384),
    ] {
        let pair = EcdsaKeyPair::from_pkcs8(signing, der)
            .or_else(|_| EcdsaKeyPair::from_private_key_der(signing, der));
        if let Ok(pair) = pair {
            return Some((SigningKeyPair::Ecdsa(pair), algorithm));
        }
    }
    if let Ok(pair) = Ed25519KeyPair::from_pkcs8(der) {
        return Some((SigningKeyPair::Ed25519(pair), Algorithm::EdDsa));
    }
    let pair = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)).ok()?;
    let algorithm = wanted.filter(|wanted| *wanted == Algorithm::Ps256).unwrap_or(Algorithm::Rs256);
    Some((SigningKeyPair::Rsa(pair), algorithm))
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
#[error("a member is not of the type it should be of")]
pub struct ClaimTypeError;

#[cfg(test)]
mod tests;
