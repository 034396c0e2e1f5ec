//! Signs tokens: the gateway's client assertions towards authorization servers (RFC 7523).
//!
//! `jsonwebtoken` is not used here, because it takes fewer forms of private keys and parses the key for every
//! signature (docs/decisions/0007-tokens-read-by-two-readers.md).

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::PrivateKeyDer;

use crate::crypto::jwk::{Algorithm, members};

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
