//! Public keys that verify tokens (RFC 7517). A key is valid for one algorithm, and is checked when its set is read.

use std::fmt;

use aws_lc_rs::digest;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey,
    VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use json::{Document, JsonBounds, JsonError, JsonKind, Value, write_string};
use jsonwebtoken::DecodingKey;

/// Maximum length of a key id, in bytes.
pub(super) const KID: usize = 256;
/// Parser bounds for tokens and key sets.
pub const BOUNDS: JsonBounds = JsonBounds { depth: 16, nodes: 4096, key: 256, number: 32 };
/// The public exponent of every RSA key in use: 65537.
const EXPONENT: [u8; 3] = [1, 0, 1];
/// The name that RFC 9864 gives to EdDSA with Ed25519.
pub(super) const ED25519_NAME: &str = "Ed25519";

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

    pub(super) fn parse(text: &str) -> Option<Self> {
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

/// The reason why a key is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwkError {
    /// A symmetric key or a private key.
    #[error("private or symmetric key in a JWKS")]
    Secret,
    /// Its declared use is not signatures.
    #[error("not for signatures")]
    Use,
    /// Its type, curve or algorithm is not supported.
    #[error("unsupported key type")]
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
    /// The key of the second reader.
    pub(super) public: DecodingKey,
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
    // Without padding and without stray bits, so that each value has one encoding.
    text.and_then(|text| URL_SAFE_NO_PAD.decode(&*text).ok()).ok_or(JwkError::Weak)
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
                tracing::error!(
                    event = "jwks.private_key",
                    "a JWKS contains a private or symmetric key, which is ignored"
                );
            }
            Err(error) => tracing::debug!(%error, "a key of a JWKS was skipped"),
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
pub(super) fn members(members: &[(&str, &str)]) -> Vec<u8> {
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
