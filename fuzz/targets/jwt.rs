//! No text is a token that our issuer has not signed; and what it has signed is believed only if an
//! independent reader finds it to be a good access token as well, and `jsonwebtoken` alone does, which
//! the gateway has as its second reader. The input is a token; or, with a line end in it, a header and
//! claims, which the issuer signs whatever they say.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gateway::base::clock::Clock;
use gateway::base::task::Tasks;
use gateway::config::quota::Quotas;
use gateway::config::settings::{self, AuthScheme, IssuerSettings, KeySource, Limits, RouteOauth};
use gateway::crypto::jwk::Algorithm;
use gateway::crypto::sealer::Sealer;
use gateway::identity::resource::{CertificateBinding, ProtectedResource};
use gateway::identity::{Authenticator, AuthnRequest};
use gateway::metrics::Metrics;
use gateway::outbound::environment::Environment;
use jsonwebtoken::{DecodingKey, Validation};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

use self::bounded::bounded;

const NOW: u64 = 1_800_000_000;
const ISSUER: &str = "https://issuer.example";
const RESOURCE: &str = "https://gw.example/mcp";

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

struct Gate {
    pair: EcdsaKeyPair,
    key: DecodingKey,
    identity: Authenticator,
    resource: ProtectedResource,
    runtime: tokio::runtime::Runtime,
}

static WORLD: LazyLock<Gate> = LazyLock::new(|| {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
    let point = pair.public_key().as_ref();
    let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
    let keys = json!({ "keys": [{ "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": "k1" }] });
    let file = std::env::temp_dir().join(format!("portcullis-fuzz-{}.json", std::process::id()));
    std::fs::write(&file, keys.to_string()).expect("a file");
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
    let oauth = RouteOauth { issuers: vec![0], ..RouteOauth::default() };
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
    let limits = Limits::default();
    let world = Environment::new(
        Arc::new(Still(Instant::now())),
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
    let key = DecodingKey::from_ec_der(point);
    Gate { key, pair, identity, resource, runtime }
});

fn accepted(token: &str) -> bool {
    let request = http::Request::post("/mcp").header("authorization", format!("Bearer {token}"));
    let Ok(request) = request.body(()) else { return false };
    let (head, ()) = request.into_parts();
    let asked = AuthnRequest::new(&[AuthScheme::Oauth], &head, Some(&WORLD.resource), None);
    WORLD.runtime.block_on(WORLD.identity.identify(asked)).is_ok()
}

/// Whether an independent reader finds this to be a good access token.
fn is_good(header: &str, claims: &str) -> bool {
    let (Ok(header), Ok(claims)) =
        (serde_json::from_str::<Value>(header), serde_json::from_str::<Value>(claims))
    else {
        return false;
    };
    let header_ok = header.as_object().is_some_and(|members| {
        let known = ["alg", "typ", "kid", "x5t", "x5t#S256"];
        let typ = header["typ"].as_str().map(str::to_ascii_lowercase);
        members.keys().all(|key| known.contains(&&**key))
            && header["alg"] == "ES256"
            && matches!(typ.as_deref(), Some("at+jwt" | "application/at+jwt"))
            && (header.get("kid").is_none() || header["kid"] == "k1")
    });
    let audience = claims["aud"] == RESOURCE
        || claims["aud"]
            .as_array()
            .is_some_and(|all| !all.is_empty() && all.iter().all(|one| one == RESOURCE));
    let time = |name: &str| claims.get(name).map(|value| value.as_u64());
    let ends = matches!(time("exp"), Some(Some(ends)) if ends + 30 > NOW);
    let begun =
        !matches!(time("nbf"), Some(begins) if begins.is_none_or(|begins| begins > NOW + 30));
    let issued = matches!(time("iat"), Some(Some(issued)) if issued <= NOW + 30);
    let text = |name: &str| claims[name].as_str().is_some();
    header_ok
        && audience
        && ends
        && begun
        && issued
        && claims["iss"] == ISSUER
        && text("sub")
        && text("jti")
        && (text("client_id") || text("azp"))
        && claims.get("cnf").is_none()
        && claims.get("nonce").is_none()
}

/// Whether `jsonwebtoken` alone accepts this token, but for its times, which it compares with the clock of the machine.
fn is_good_elsewhere(token: &str) -> bool {
    let mut validation = Validation::new(jsonwebtoken::Algorithm::ES256);
    validation.validate_exp = false;
    validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    validation.set_issuer(&[ISSUER]);
    validation.set_audience(&[RESOURCE]);
    jsonwebtoken::decode::<Value>(token, &WORLD.key, &validation).is_ok()
}

fuzz_target!(|input: &str| {
    let Some((header, claims)) = input.split_once('\n') else {
        assert!(!bounded(input.len(), |_| accepted(input)), "a token nobody has signed");
        return;
    };
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = WORLD.pair.sign(&SystemRandom::new(), signed.as_bytes()).expect("a signature");
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
    if accepted(&token) {
        assert!(is_good(header, claims), "{header} {claims}");
        assert!(is_good_elsewhere(&token), "{header} {claims}");
        // Not with another signature, and not with none.
        assert!(!accepted(&format!("{signed}.{}", URL_SAFE_NO_PAD.encode([7; 64]))));
        assert!(!accepted(&format!("{signed}.")));
    }
});
