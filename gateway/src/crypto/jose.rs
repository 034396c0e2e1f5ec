//! Signed tokens: read strictly, verified with a key that was chosen before.
//!
//! A token says which key it is signed with and how; here that is only a question. The answer comes
//! from the keys of its issuer, each of which is good for one algorithm. What a token could lead
//! astray with (a key of its own, a URL, an algorithm without a key, a critical extension) is refused
//! before any signature is looked at (RFC 7515, RFC 8725; vectors AV-01 to AV-09 and AV-39).

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
    ECDSA_P384_SHA384_FIXED_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_SHA256, RsaKeyPair, RsaPublicKeyComponents, VerificationAlgorithm,
};
use aws_lc_rs::{digest, signature};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use policy::json::{Bounds, Document, JsonError, Kind, Value, write_string};
use rustls::pki_types::PrivateKeyDer;

/// Longest token, in bytes.
pub const LONGEST: usize = 8 * 1024;
/// Longest name of a key.
const KID: usize = 256;
/// Bounds on what is written in a token or in a set of keys.
pub const BOUNDS: Bounds = Bounds { depth: 16, nodes: 4096, key: 256, number: 32 };
/// Members of a header that have a meaning here, or none that matters.
const MEMBERS: [&str; 5] = ["alg", "kid", "typ", "x5t", "x5t#S256"];
/// The public exponent of every RSA key in use: 65537.
const EXPONENT: [u8; 3] = [1, 0, 1];

/// An algorithm for signatures. None of them works with a secret that two ends share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    #[serde(rename = "RS256")]
    Rs256,
    /// RSASSA-PSS with SHA-256.
    #[serde(rename = "PS256")]
    Ps256,
    /// ECDSA on P-256 with SHA-256.
    #[serde(rename = "ES256")]
    Es256,
    /// ECDSA on P-384 with SHA-384.
    #[serde(rename = "ES384")]
    Es384,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl Algorithm {
    /// Those that are accepted unless less is configured.
    pub const ALL: [Self; 5] = [Self::Rs256, Self::Ps256, Self::Es256, Self::Es384, Self::EdDsa];

    /// Its name (RFC 7518, section 3.1; RFC 8037, section 3.1).
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
        // RFC 9864 gives Ed25519 a name of its own.
        let text = if text == "Ed25519" { "EdDSA" } else { text };
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == text)
    }
}

/// Why a token is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoseError {
    /// Longer than is read.
    #[error("the token is longer than {LONGEST} bytes")]
    Long,
    /// It has not three parts.
    #[error("the token has not three parts")]
    Parts,
    /// A part is not Base64 for URLs in its one spelling.
    #[error("a part of the token is not Base64 for URLs")]
    Base64,
    /// A part is not a JSON object.
    #[error("a part of the token is not a JSON object: {0}")]
    Json(JsonError),
    /// The header has a member that it must not have, or one of the wrong type.
    #[error("the header has a member that is not accepted")]
    Header,
    /// The algorithm is not one that is accepted.
    #[error("the algorithm is not accepted")]
    Algorithm,
    /// The signature does not fit.
    #[error("the signature does not fit")]
    Signature,
}

/// A token as it was read. Nothing in it is to be believed before [`Jws::is_signed_by`].
#[derive(Debug)]
pub struct Jws<'a> {
    /// How it says it is signed.
    pub algorithm: Algorithm,
    /// With which key, as it says.
    pub kid: Option<Box<str>>,
    /// What sort of token it says it is, in lower case and without `application/`.
    pub typ: Option<Box<str>>,
    /// The public key in its header, where that may be.
    pub jwk: Option<Key>,
    claims: Document,
    signed: &'a [u8],
    signature: Vec<u8>,
}

impl<'a> Jws<'a> {
    /// Reads an access token, or any other whose key is known from elsewhere.
    ///
    /// # Errors
    /// When it is not written as it should be.
    pub fn read(text: &'a str) -> Result<Self, JoseError> {
        Self::parse(text, false)
    }

    /// Reads a token that brings its own public key: a proof of possession (RFC 9449, section 4.2).
    ///
    /// # Errors
    /// When it is not written as it should be.
    pub fn read_with_key(text: &'a str) -> Result<Self, JoseError> {
        Self::parse(text, true)
    }

    fn parse(text: &'a str, with_key: bool) -> Result<Self, JoseError> {
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
        let signature = decode(signature)?;
        let (mut algorithm, mut kid, mut typ, mut jwk) = (None, None, None, None);
        for (member, value) in header.root().members() {
            let text = || value.as_str().ok_or(JoseError::Header);
            match &*member {
                "alg" => algorithm = Some(Algorithm::parse(&text()?).ok_or(JoseError::Algorithm)?),
                "kid" => kid = Some(text()?).filter(|kid| kid.len() <= KID).map(Into::into),
                "typ" => {
                    let lower = text()?.to_ascii_lowercase();
                    typ = Some(lower.strip_prefix("application/").unwrap_or(&lower).into());
                }
                "jwk" if with_key => {
                    let public = value.is_object() && value.get("d").is_none();
                    let key = public.then(|| Key::read(value).ok()).flatten();
                    jwk = Some(key.ok_or(JoseError::Header)?);
                }
                member if MEMBERS.contains(&member) => drop(text()?),
                _ => return Err(JoseError::Header),
            }
        }
        if header.root().get("kid").is_some() && kid.is_none() {
            return Err(JoseError::Header);
        }
        let algorithm = algorithm.ok_or(JoseError::Algorithm)?;
        Ok(Self { algorithm, kid, typ, jwk, claims, signed: signed.as_bytes(), signature })
    }

    /// What it says, before that may be believed: whose key to look for, and nothing else.
    #[must_use]
    pub fn unverified(&self) -> Value<'_> {
        self.claims.root()
    }

    /// What it says, if `key` has signed it.
    ///
    /// # Errors
    /// When it has not, or in another way than the token says.
    pub fn is_signed_by(&self, key: &Key) -> Result<Value<'_>, JoseError> {
        if !key.fits(self.algorithm) || !key.verifies(self.algorithm, self.signed, &self.signature)
        {
            return Err(JoseError::Signature);
        }
        Ok(self.claims.root())
    }
}

fn object(text: &str) -> Result<Document, JoseError> {
    let document = Document::parse(Bytes::from(decode(text)?), &BOUNDS).map_err(JoseError::Json)?;
    if document.root().is_object() { Ok(document) } else { Err(JoseError::Header) }
}

/// What a token says in its second part, if it has three and that is an object: of a token that
/// somebody gave us for somebody else. It says nothing of who a caller is.
#[must_use]
pub fn said(token: &str) -> Option<Document> {
    let (_, rest) = token.split_once('.')?;
    let (claims, signature) = rest.split_once('.')?;
    (!signature.contains('.')).then(|| object(claims).ok()).flatten()
}

/// What a token says in its header, likewise.
#[must_use]
pub fn said_header(token: &str) -> Option<Document> {
    object(token.split_once('.')?.0).ok()
}

/// Base64 for URLs, without padding and without bits that mean nothing: one text has one spelling.
fn decode(text: &str) -> Result<Vec<u8>, JoseError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_unreadable| JoseError::Base64)
}

/// Why a key is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A secret that two ends share, or a private key.
    #[error("a secret has no place in a set of public keys")]
    Secret,
    /// It is not for signatures.
    #[error("not for signatures")]
    Use,
    /// Of a kind that is not used here.
    #[error("not a kind of key that is used here")]
    Kind,
    /// Too weak, or not on its curve.
    #[error("too weak, or broken")]
    Weak,
}

/// A public key, good for one algorithm; one of RSA that does not say for which, for two.
#[derive(Clone)]
pub struct Key {
    /// Its name among the keys of its owner.
    pub kid: Option<Box<str>>,
    algorithm: Algorithm,
    /// It is of RSA and did not say for which algorithm.
    either: bool,
    public: Public,
    thumbprint: Box<str>,
}

#[derive(Clone)]
enum Public {
    Parsed(ParsedPublicKey),
    Rsa { n: Vec<u8>, e: Vec<u8> },
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kid, algorithm, .. } = self;
        f.debug_struct("Key")
            .field("kid", kid)
            .field("algorithm", algorithm)
            .finish_non_exhaustive()
    }
}

impl Key {
    /// Reads a public key (RFC 7517).
    ///
    /// # Errors
    /// When it is none, or none that is accepted.
    pub fn read(jwk: Value<'_>) -> Result<Self, KeyError> {
        let text = |key: &str| jwk.get(key).and_then(Value::as_str);
        let bytes = |key: &str| text(key).and_then(|text| decode(&text).ok()).ok_or(KeyError::Weak);
        let kind = text("kty").ok_or(KeyError::Kind)?;
        if kind == "oct" || jwk.get("d").is_some() || jwk.get("k").is_some() {
            return Err(KeyError::Secret);
        }
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return Err(KeyError::Use);
        }
        if let Some(uses) = jwk.get("key_ops")
            && !uses.items().any(|purpose| purpose.as_str().as_deref() == Some("verify"))
        {
            return Err(KeyError::Use);
        }
        let said = match text("alg") {
            Some(name) => Some(Algorithm::parse(&name).ok_or(KeyError::Kind)?),
            None => None,
        };
        let curve = text("crv");
        let (algorithm, public, canonical) = match (&*kind, curve.as_deref()) {
            ("EC", Some(curve @ ("P-256" | "P-384"))) => {
                let (algorithm, size, verifier): (_, _, &'static dyn VerificationAlgorithm) =
                    match curve {
                        "P-256" => (Algorithm::Es256, 32, &ECDSA_P256_SHA256_FIXED),
                        _ => (Algorithm::Es384, 48, &ECDSA_P384_SHA384_FIXED),
                    };
                let (x, y) = (bytes("x")?, bytes("y")?);
                if x.len() != size || y.len() != size {
                    return Err(KeyError::Weak);
                }
                let point = [&[4][..], &x, &y].concat();
                (
                    algorithm,
                    parsed(verifier, &point)?,
                    members(&[
                        ("crv", curve),
                        ("kty", "EC"),
                        ("x", &URL_SAFE_NO_PAD.encode(&x)),
                        ("y", &URL_SAFE_NO_PAD.encode(&y)),
                    ]),
                )
            }
            ("OKP", Some("Ed25519")) => {
                let x = bytes("x")?;
                let canonical = members(&[
                    ("crv", "Ed25519"),
                    ("kty", "OKP"),
                    ("x", &URL_SAFE_NO_PAD.encode(&x)),
                ]);
                (Algorithm::EdDsa, parsed(&ED25519, &x)?, canonical)
            }
            ("RSA", _) => {
                let (n, e) = (bytes("n")?, bytes("e")?);
                let strong =
                    (256..=1024).contains(&n.len()) && n.first().is_some_and(|b| *b >= 128);
                let odd = n.last().is_some_and(|byte| byte & 1 == 1);
                if !strong || !odd || e != EXPONENT {
                    return Err(KeyError::Weak);
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
                (algorithm, Public::Rsa { n, e }, canonical)
            }
            _ => return Err(KeyError::Kind),
        };
        if said.is_some_and(|said| said != algorithm) {
            return Err(KeyError::Kind);
        }
        let either = said.is_none() && matches!(public, Public::Rsa { .. });
        let kid = text("kid").filter(|kid| kid.len() <= KID).map(Into::into);
        let digest = digest::digest(&digest::SHA256, &canonical);
        let thumbprint = URL_SAFE_NO_PAD.encode(digest).into();
        Ok(Self { kid, algorithm, either, public, thumbprint })
    }

    /// Its digest (RFC 7638), in Base64 for URLs.
    #[must_use]
    pub fn thumbprint(&self) -> &str {
        &self.thumbprint
    }

    /// Whether it is for this algorithm.
    #[must_use]
    pub fn fits(&self, algorithm: Algorithm) -> bool {
        self.algorithm == algorithm || (self.either && algorithm == Algorithm::Ps256)
    }

    fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        match &self.public {
            Public::Parsed(key) => key.verify_sig(message, signature).is_ok(),
            Public::Rsa { n, e } => {
                let parameters = match algorithm {
                    Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
                    _ => &RSA_PKCS1_2048_8192_SHA256,
                };
                let key = RsaPublicKeyComponents { n, e };
                key.verify(parameters, message, signature).is_ok()
            }
        }
    }
}

/// Most keys in one set.
const KEYS: usize = 64;

/// Why a set of keys is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// It is not JSON.
    #[error("the set of keys cannot be read: {0}")]
    Json(JsonError),
    /// It is not a set of keys.
    #[error("the set of keys has no list `keys`")]
    Shape,
    /// It has more keys than anybody needs.
    #[error("the set has more than {KEYS} keys")]
    Many,
}

/// Reads a set of public keys (RFC 7517, section 5). Keys that are not accepted are left out, and so
/// are those that share a name: which of them is meant cannot be known.
///
/// # Errors
/// When it is no set of keys, or has too many.
pub fn keys(text: Bytes) -> Result<Vec<Key>, KeySetError> {
    let document = Document::parse(text, &BOUNDS).map_err(KeySetError::Json)?;
    let list = document.root().get("keys").filter(|list| list.kind() == Kind::Array);
    let list = list.ok_or(KeySetError::Shape)?;
    if list.items().count() > KEYS {
        return Err(KeySetError::Many);
    }
    let mut keys: Vec<Key> = Vec::new();
    for item in list.items() {
        match Key::read(item) {
            Ok(key) => keys.push(key),
            Err(KeyError::Secret) => {
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

fn parsed(algorithm: &'static dyn VerificationAlgorithm, bytes: &[u8]) -> Result<Public, KeyError> {
    let key = ParsedPublicKey::new(algorithm, bytes).map_err(|_rejected| KeyError::Weak)?;
    Ok(Public::Parsed(key))
}

/// An object with these members, in their order.
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

/// A private key that signs.
pub struct Signer {
    pair: Pair,
    algorithm: Algorithm,
    kid: Option<Box<str>>,
}

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, kid, .. } = self;
        f.debug_struct("Signer").field("algorithm", algorithm).field("kid", kid).finish()
    }
}

impl Signer {
    /// The private key `key`, to be named `kid`; `wanted` chooses where a key could do more.
    #[must_use]
    pub fn new(
        key: &PrivateKeyDer<'_>,
        kid: Option<Box<str>>,
        wanted: Option<Algorithm>,
    ) -> Option<Self> {
        let (pair, algorithm) = pair(key, wanted)?;
        (wanted.is_none_or(|wanted| wanted == algorithm)).then_some(Self { pair, algorithm, kid })
    }

    /// Signs these claims, a JSON object, as a token of the type `typ`.
    #[must_use]
    pub fn sign(&self, typ: &str, claims: &[u8]) -> Option<String> {
        let mut header = vec![("alg", self.algorithm.as_str()), ("typ", typ)];
        header.extend(self.kid.as_deref().map(|kid| ("kid", kid)));
        let mut text = URL_SAFE_NO_PAD.encode(members(&header));
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(claims, &mut text);
        let (random, message) = (SystemRandom::new(), text.as_bytes());
        let signature = match &self.pair {
            Pair::Ecdsa(pair) => pair.sign(&random, message).ok()?.as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            Pair::Rsa(pair) => {
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

    /// The public half of a key on a curve, as it is written in a set of keys.
    #[must_use]
    pub fn public(&self) -> Option<Vec<u8>> {
        let point = match &self.pair {
            Pair::Ecdsa(pair) => pair.public_key().as_ref(),
            Pair::Rsa(_) | Pair::Ed25519(_) => return None,
        };
        let (x, y) = point.get(1..)?.split_at_checked(point.len() / 2)?;
        let curve = if self.algorithm == Algorithm::Es256 { "P-256" } else { "P-384" };
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        Some(members(&[("kty", "EC"), ("crv", curve), ("x", &x), ("y", &y)]))
    }
}

fn pair(key: &PrivateKeyDer<'_>, wanted: Option<Algorithm>) -> Option<(Pair, Algorithm)> {
    let der = key.secret_der();
    for (signing, algorithm) in [
        (&ECDSA_P256_SHA256_FIXED_SIGNING, Algorithm::Es256),
        (&ECDSA_P384_SHA384_FIXED_SIGNING, Algorithm::Es384),
    ] {
        let pair = EcdsaKeyPair::from_pkcs8(signing, der)
            .or_else(|_| EcdsaKeyPair::from_private_key_der(signing, der));
        if let Ok(pair) = pair {
            return Some((Pair::Ecdsa(pair), algorithm));
        }
    }
    if let Ok(pair) = Ed25519KeyPair::from_pkcs8(der) {
        return Some((Pair::Ed25519(pair), Algorithm::EdDsa));
    }
    let pair = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)).ok()?;
    let algorithm = wanted.filter(|wanted| *wanted == Algorithm::Ps256).unwrap_or(Algorithm::Rs256);
    Some((Pair::Rsa(pair), algorithm))
}

/// A point in time as tokens write it: whole seconds since 1970 (RFC 7519, section 2).
///
/// # Errors
/// When the member is there and is anything else: it must not count as absent (CVE-2026-25537).
pub fn seconds(claims: Value<'_>, name: &str) -> Result<Option<u64>, WrongType> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let digits = value.raw();
    let plain = value.kind() == Kind::Number && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().map(Some).map_err(|_large| WrongType) } else { Err(WrongType) }
}

/// A text; absent is none.
///
/// # Errors
/// When the member is there and is anything else.
pub fn text(claims: Value<'_>, name: &str) -> Result<Option<Box<str>>, WrongType> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    value.as_str().map(|text| Some(text.into())).ok_or(WrongType)
}

/// A member that is there is not of the type it should be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a member is not of the type it should be of")]
pub struct WrongType;

#[cfg(test)]
mod tests;
