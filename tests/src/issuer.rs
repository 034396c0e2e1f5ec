//! An issuer of tokens whose every byte a test decides: its keys, what it publishes and what it
//! answers, over TLS.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Mutex};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use aws_lc_rs::{digest, hmac, rsa};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::canary::{self, Side};
use crate::pki::{Leaf, Pki};
use crate::server::{Call, Server, answer, ok};
use crate::tls::Front;

/// The resource the gateway of a test stands for, unless it says otherwise.
pub const RESOURCE: &str = "https://gw.example/mcp";

/// A key that signs.
pub struct Key {
    /// Its name.
    pub kid: String,
    pair: Pair,
}

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Rsa(Box<RsaKeyPair>),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("kid", &self.kid).finish_non_exhaustive()
    }
}

impl Key {
    /// A new key on P-256.
    ///
    /// # Panics
    /// When the machine cannot make one.
    #[must_use]
    pub fn es256(kid: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Self { kid: kid.to_owned(), pair: Pair::Ecdsa(pair) }
    }

    /// A new key of RSA.
    ///
    /// # Panics
    /// When the machine cannot make one.
    #[must_use]
    pub fn rs256(kid: &str) -> Self {
        let pair = RsaKeyPair::generate(rsa::KeySize::Rsa2048).unwrap();
        Self { kid: kid.to_owned(), pair: Pair::Rsa(Box::new(pair)) }
    }

    /// Its public half.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn jwk(&self) -> Value {
        match &self.pair {
            Pair::Ecdsa(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
                json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": self.kid, "alg": "ES256" })
            }
            Pair::Rsa(pair) => {
                // RSAPublicKey of RFC 8017, appendix A.1.1, whose modulus has 2048 bits.
                let n = encode(&pair.public_key().as_ref()[9..265]);
                json!({ "kty": "RSA", "n": n, "e": "AQAB", "kid": self.kid, "alg": "RS256" })
            }
        }
    }

    /// The digest of its public half (RFC 7638).
    ///
    /// # Panics
    /// When it is not on a curve.
    #[must_use]
    pub fn thumbprint(&self) -> String {
        let jwk = self.jwk();
        let (x, y) = (jwk["x"].as_str().unwrap(), jwk["y"].as_str().unwrap());
        let text = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        encode(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
    }

    /// Signs bytes.
    ///
    /// # Panics
    /// When the machine cannot.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Ecdsa(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Rsa(pair) => {
                let mut out = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut out).unwrap();
                out
            }
        }
    }

    /// A token with exactly this header and these claims, signed.
    #[must_use]
    pub fn token(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
        let signature = self.sign(signed.as_bytes());
        format!("{signed}.{}", encode(&signature))
    }

    /// The header this key is named with.
    #[must_use]
    pub fn header(&self) -> Value {
        let alg = if matches!(self.pair, Pair::Rsa(_)) { "RS256" } else { "ES256" };
        json!({ "alg": alg, "typ": "at+jwt", "kid": self.kid })
    }

    /// A proof of possession for a request (RFC 9449).
    #[must_use]
    pub fn proof(&self, claims: &Value) -> String {
        let mut jwk = self.jwk();
        jwk.as_object_mut().map(|jwk| (jwk.remove("kid"), jwk.remove("alg")));
        let header = json!({ "alg": "ES256", "typ": "dpop+jwt", "jwk": jwk });
        self.token(&header.to_string(), &claims.to_string())
    }
}

/// Base64 for URLs.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A token signed with a secret, as if the two ends shared it.
#[must_use]
pub fn hs256(header: &str, claims: &str, secret: &[u8]) -> String {
    let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    format!("{signed}.{}", encode(hmac::sign(&key, signed.as_bytes()).as_ref()))
}

/// The time, in seconds since 1970.
///
/// # Panics
/// Before 1970.
#[must_use]
pub fn now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

/// What an issuer answers at a path, to a request with this body.
type Answer = Arc<dyn Fn(&Call) -> Vec<u8> + Send + Sync>;

/// An issuer.
pub struct Issuer {
    /// Its key.
    pub key: Key,
    /// Its authority for TLS.
    pub pki: Pki,
    server: Server,
    front: Front,
    answers: Arc<Mutex<BTreeMap<String, Answer>>>,
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Issuer {
    /// An issuer that publishes one key at `/jwks`.
    ///
    /// # Panics
    /// When there is no port.
    #[must_use]
    pub fn start() -> Self {
        let key = Key::es256("k1");
        let pki = Pki::new("issuer");
        let answers: Arc<Mutex<BTreeMap<String, Answer>>> = Arc::default();
        let known = Arc::clone(&answers);
        let server = Server::trusted(move |call, stream| {
            let path = call.head.split(' ').nth(1).unwrap_or_default();
            let path = path.split('?').next().unwrap_or_default().to_owned();
            let found = known.lock().unwrap().get(&path).cloned();
            let bytes = match found {
                Some(found) => found(call),
                None => answer("404 Not Found", "text/plain", "no"),
            };
            stream.write_all(&bytes).is_ok()
        });
        let front = Front::before(server.address, &pki.issue(&Leaf::local()), None);
        let issuer = Self { key, pki, server, front, answers };
        issuer.publish(&[&issuer.key]);
        let metadata =
            json!({ "issuer": issuer.url(), "jwks_uri": format!("{}/jwks", issuer.url()) });
        issuer
            .answer("/.well-known/oauth-authorization-server", move |_| ok(&metadata.to_string()));
        issuer
    }

    /// Its identifier.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.front.address.port())
    }

    /// Publishes these keys from now on.
    ///
    /// # Panics
    /// Never.
    pub fn publish(&self, keys: &[&Key]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
        let text = json!({ "keys": keys }).to_string();
        self.answer("/jwks", move |_| ok(&text));
    }

    /// Answers what is asked at `path` like this from now on.
    ///
    /// # Panics
    /// Never.
    pub fn answer(&self, path: &str, answer: impl Fn(&Call) -> Vec<u8> + Send + Sync + 'static) {
        self.answers.lock().unwrap().insert(path.to_owned(), Arc::new(answer));
    }

    /// The requests it got at `path`.
    #[must_use]
    pub fn asked(&self, path: &str) -> Vec<Call> {
        let at = |call: &Call| {
            let asked = call.head.split(' ').nth(1).unwrap_or_default();
            asked.split('?').next() == Some(path)
        };
        self.server.calls().into_iter().filter(at).collect()
    }

    /// Claims that are good for [`RESOURCE`].
    #[must_use]
    pub fn claims(&self, subject: &str) -> Value {
        let (now, url) = (now(), self.url());
        json!({
            "iss": url, "sub": subject, "aud": RESOURCE, "client_id": "agent", "iat": now,
            "exp": now + 300, "jti": format!("{subject}-1"), "scope": "mcp", "groups": ["dev"],
        })
    }

    /// A token with these claims.
    #[must_use]
    pub fn token(&self, claims: &Value) -> String {
        let token = self.key.token(&self.key.header().to_string(), &claims.to_string());
        canary::watch(Side::Caller, &token);
        token
    }

    /// A good token of this caller.
    #[must_use]
    pub fn good(&self, subject: &str) -> String {
        self.token(&self.claims(subject))
    }

    /// An item of `issuers` that believes it.
    #[must_use]
    pub fn item(&self, name: &str, more: &str) -> String {
        format!(
            "- name: {name}\n  issuer: '{}'\n  connection: {{authorities: '{}'}}\n  \
             claims: {{groups: /groups, roles: /realm/roles}}\n{}",
            self.url(),
            self.pki.path(),
            if more.is_empty() {
                String::new()
            } else {
                format!("  {}\n", more.replace('\n', "\n  "))
            },
        )
    }
}
