//! An issuer of access tokens with a mock key, and a gateway that believes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gateway::base::clock::{Clock, SystemClock};
use gateway::base::task::Tasks;
use gateway::config::quota::Quotas;
use gateway::config::settings::{self, AuthScheme, IssuerSettings, KeySource, Limits, RouteOauth};
use gateway::crypto::jwk::Algorithm;
use gateway::crypto::sealer::Sealer;
use gateway::identity::resource::{CertificateBinding, ProtectedResource};
use gateway::identity::{Authenticator, AuthnRequest};
use gateway::metrics::Metrics;
use gateway::outbound::environment::Environment;
use policy_core::subject::principal::RequiredProof;
use serde_json::{Value, json};

/// The time at which everything happens, in seconds since 1970.
pub(super) const NOW: u64 = 1_800_000_000;
/// The identifier of the issuer.
pub(super) const ISSUER: &str = "https://issuer.example";
/// The resource that tokens must be for, and the URL of every request.
pub(super) const RESOURCE: &str = "https://gw.example/mcp";

/// Numbers the files of keys.
static FILES: AtomicUsize = AtomicUsize::new(0);

/// A clock that stands still, so that what is found is found again.
#[derive(Debug)]
struct Still(Instant);

impl Clock for Still {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(NOW)
    }

    fn instant(&self) -> Instant {
        self.0
    }
}

/// Bytes in the alphabet of tokens.
pub(super) fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A new key for ES256.
pub(super) fn new_key() -> EcdsaKeyPair {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key")
}

/// The public part of a key.
pub(super) fn jwk(pair: &EcdsaKeyPair) -> Value {
    let point = pair.public_key().as_ref();
    json!({ "kty": "EC", "crv": "P-256", "x": encoded(&point[1..33]), "y": encoded(&point[33..]) })
}

/// A token with this header and these claims, whatever they say.
pub(super) fn signed(pair: &EcdsaKeyPair, header: &str, claims: &str) -> String {
    let text = format!("{}.{}", encoded(header.as_bytes()), encoded(claims.as_bytes()));
    let signature = pair.sign(&SystemRandom::new(), text.as_bytes()).expect("a signature");
    format!("{text}.{}", encoded(signature.as_ref()))
}

/// What identifies the callers of a gateway.
pub(super) struct Gate {
    /// The key of the issuer.
    pub(super) pair: EcdsaKeyPair,
    identity: Authenticator,
    resource: ProtectedResource,
    runtime: tokio::runtime::Runtime,
}

impl Gate {
    /// A gateway for whose tokens this proof of possession is needed.
    pub(super) fn new(proof: Option<RequiredProof>) -> Self {
        let pair = new_key();
        let mut key = jwk(&pair);
        key["kid"] = "k1".into();
        let (process, number) = (std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
        let file = std::env::temp_dir().join(format!("portcullis-fuzz-{process}-{number}.json"));
        std::fs::write(&file, json!({ "keys": [key] }).to_string()).expect("a file");
        let issuer = IssuerSettings {
            name: "corp".into(),
            issuer: ISSUER.into(),
            keys: KeySource::File(file),
            algorithms: Algorithm::ALL.to_vec(),
            untyped: false,
            clock_skew: Duration::from_secs(30),
            max_lifetime: Duration::from_secs(3600),
            refresh: Duration::from_secs(600),
            cooldown: Duration::from_secs(30),
            max_stale: Duration::from_secs(3600),
            claims: settings::ClaimPaths::default(),
            service: None,
            introspection: None,
            way: settings::ConnectionSettings::default(),
        };
        let oauth = RouteOauth { issuers: vec![0], proof, ..RouteOauth::default() };
        let resource = ProtectedResource::new(
            "https://gw.example",
            "/mcp",
            &oauth,
            std::slice::from_ref(&issuer),
            CertificateBinding::Unverifiable,
        );
        let settings = settings::IdentitySettings {
            issuers: vec![issuer],
            ..settings::IdentitySettings::default()
        };
        // The proofs of one key are to have room for as long as a fuzzer runs.
        let limits = Limits { proofs: usize::MAX / 2, ..Limits::default() };
        let world = Environment::new(
            Arc::new(Still(SystemClock.instant())),
            limits,
            Tasks::default(),
            Arc::new(Metrics::new(UNIX_EPOCH)),
            Arc::new(Quotas::new(&limits, &[])),
        );
        let sealer = Arc::new(Sealer::new(&[vec![7; 32]]).expect("a key of 32 bytes"));
        let identity =
            Authenticator::new(&settings, &world, &limits, sealer, None).expect("an identity");
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { pair, identity, resource, runtime }
    }

    /// Whether the caller of a request with these headers is identified.
    pub(super) fn accepts(&self, headers: &[(&str, &str)]) -> bool {
        let request = headers.iter().fold(http::Request::post("/mcp"), |request, (name, value)| {
            request.header(*name, *value)
        });
        let Ok(request) = request.body(()) else { return false };
        let (head, ()) = request.into_parts();
        let asked = AuthnRequest::new(&[AuthScheme::Oauth], &head, Some(&self.resource), None);
        self.runtime.block_on(self.identity.identify(asked)).is_ok()
    }
}
