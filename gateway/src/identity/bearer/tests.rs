use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use jsonwebtoken::{DecodingKey, Validation};
use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::{TokenMemory, TokenValidator};
use crate::base::clock::{Clock, SystemClock};
use crate::base::task::Tasks;
use crate::config::quota::Quotas;
use crate::config::settings::{
    ClaimPaths, ConnectionSettings, IdentitySettings, IssuerSettings, KeySource, Limits, RouteOauth,
};
use crate::crypto::jwk::Algorithm;
use crate::crypto::sealer::Sealer;
use crate::identity::TokenError;
use crate::identity::resource::{CertificateBinding, ProtectedResource};
use crate::metrics::Metrics;
use crate::outbound::environment::Environment;

const NOW: u64 = 1_800_000_000;
const ISSUER: &str = "https://issuer.example";
const RESOURCE: &str = "https://gw.example/mcp";
const ALTERNATIVE: &str = "https://gw.example/other-name";
const BESIDE: &str = "account";

/// A clock that stands still. The clock of the machine shows another time.
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

/// An issuer that signs whatever it is given, and a validator that believes it.
struct World {
    issuer: EcdsaKeyPair,
    validator: TokenValidator,
    resource: ProtectedResource,
    runtime: Runtime,
}

static WORLD: LazyLock<World> = LazyLock::new(World::new);

impl World {
    fn new() -> Self {
        let issuer = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let file = std::env::temp_dir().join(format!("portcullis-keys-{}", std::process::id()));
        std::fs::write(&file, format!(r#"{{"keys":[{}]}}"#, jwk(&issuer))).unwrap();
        let settings = IssuerSettings {
            name: "corp".into(),
            issuer: ISSUER.into(),
            keys: KeySource::File(file.clone()),
            algorithms: Algorithm::ALL.to_vec(),
            untyped: false,
            clock_skew: Duration::from_secs(30),
            max_lifetime: Duration::from_secs(3600),
            refresh: Duration::from_secs(600),
            cooldown: Duration::from_secs(30),
            max_stale: Duration::from_secs(3600),
            claims: ClaimPaths::default(),
            service: None,
            introspection: None,
            way: ConnectionSettings::default(),
        };
        let oauth = RouteOauth {
            issuers: vec![0],
            audiences: vec![ALTERNATIVE.into()],
            besides: vec![BESIDE.into()],
            ..RouteOauth::default()
        };
        let issuers = std::slice::from_ref(&settings);
        let resource = ProtectedResource::new(
            "https://gw.example",
            "/mcp",
            &oauth,
            issuers,
            CertificateBinding::Unverifiable,
        );
        let settings = IdentitySettings { issuers: vec![settings], ..IdentitySettings::default() };
        let limits = Limits::default();
        let environment = Environment::new(
            Arc::new(Still(SystemClock.instant())),
            limits,
            Tasks::default(),
            Arc::new(Metrics::new(UNIX_EPOCH)),
            Arc::new(Quotas::new(&limits, &[])),
        );
        let memory =
            TokenMemory::new(&limits, &environment.quotas, Arc::new(Sealer::new(&[]).unwrap()));
        let validator =
            TokenValidator::new(&settings, &environment, Arc::new(memory), None).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let made = Self { issuer, validator, resource, runtime };
        // The keys are read once, so that the file can go.
        assert_eq!(made.judge(&made.token(HEADER, &claims(&[]))), Ok(()));
        std::fs::remove_file(file).unwrap();
        made
    }

    /// Signs a token.
    fn token(&self, header: &str, claims: &str) -> String {
        signed(&self.issuer, header, claims)
    }

    /// What the gateway says of a token.
    fn judge(&self, token: &str) -> Result<(), &'static str> {
        let judged = self.runtime.block_on(self.validator.examine(&self.resource, token));
        judged.map(drop).map_err(|error: TokenError| error.detail().code())
    }

    /// Whether a service would accept a token that has `jsonwebtoken` alone, which is told the algorithm, the issuer
    /// and the audiences. `required` are claims that have to be there.
    fn elsewhere(&self, token: &str, required: &[&str]) -> bool {
        let mut validation = Validation::new(jsonwebtoken::Algorithm::ES256);
        validation.validate_exp = false;
        validation.set_required_spec_claims(required);
        validation.set_issuer(&[ISSUER]);
        validation.set_audience(&[RESOURCE, ALTERNATIVE]);
        let key = DecodingKey::from_ec_der(self.issuer.public_key().as_ref());
        jsonwebtoken::decode::<serde_json::Value>(token, &key, &validation).is_ok()
    }
}

const HEADER: &str = r#"{"alg":"ES256","typ":"at+jwt","kid":"k1"}"#;

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn jwk(pair: &EcdsaKeyPair) -> String {
    let point = pair.public_key().as_ref();
    let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
    format!(r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}","kid":"k1"}}"#)
}

fn signed(pair: &EcdsaKeyPair, header: &str, claims: &str) -> String {
    let message = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
    let signature = pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
    format!("{message}.{}", encode(signature.as_ref()))
}

/// The claims of a good token, of which some are others: `null` stands for none.
fn claims(others: &[(&str, &str)]) -> String {
    let mut all = vec![
        ("iss", r#""https://issuer.example""#),
        ("aud", r#""https://gw.example/mcp""#),
        ("sub", r#""alice""#),
        ("client_id", r#""agent""#),
        ("jti", r#""1""#),
        ("iat", "1800000000"),
        ("exp", "1800000600"),
    ];
    for (name, value) in others {
        all.retain(|(known, _)| known != name);
        all.push((name, value));
    }
    let all: Vec<_> = all.iter().filter(|(_, value)| *value != "null").collect();
    let all: Vec<_> = all.iter().map(|(name, value)| format!(r#""{name}":{value}"#)).collect();
    format!("{{{}}}", all.join(","))
}

/// A header with more members.
fn header(more: &str) -> String {
    HEADER.replacen('{', &format!("{{{more},"), 1)
}

/// Each row: what it is, the token, whether `jsonwebtoken` alone accepts it, and what the gateway says.
#[test]
fn what_two_readers_understand_differently_is_refused() {
    let environment = &*WORLD;
    let stranger = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let good = claims(&[]);
    let says = |name: &str, value: &str| environment.token(HEADER, &claims(&[(name, value)]));
    let says_also =
        |more: &str| environment.token(HEADER, &good.replacen('{', &format!("{{{more},"), 1));
    let under = |more: &str| environment.token(&header(more), &good);
    let other = |header: &str| environment.token(header, &good);
    let secret = |secret: &[u8]| {
        let head = encode(HEADER.replace("ES256", "HS256").as_bytes());
        let message = format!("{head}.{}", encode(good.as_bytes()));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
        format!("{message}.{}", encode(tag.as_ref()))
    };
    let token = environment.token(HEADER, &good);
    let (message, signature) = token.rsplit_once('.').unwrap();
    let padded = {
        let message = format!("{}.{}", URL_SAFE.encode(HEADER), URL_SAFE.encode(&good));
        let signature = environment.issuer.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE.encode(signature.as_ref()))
    };
    assert!(padded.contains('='));
    let (accepts, refuses) = (true, false);
    for (what, token, elsewhere, ours) in [
        // Both accept it.
        ("good", token.clone(), accepts, Ok(())),
        ("alternative audience", says("aud", &format!(r#"["{ALTERNATIVE}"]"#)), accepts, Ok(())),
        // The other reader takes the last member, or skips what it cannot read.
        ("sub twice", says_also(r#""client_id":"admin""#), accepts, Err("form")),
        ("sub escaped", says_also(r#""\u0063lient_id":"admin""#), accepts, Err("form")),
        ("groups twice", says_also(r#""groups":["a"],"groups":["b"]"#), accepts, Err("form")),
        ("aud a number", says("aud", "7"), accepts, Err("audience")),
        ("aud an object", says("aud", "{}"), accepts, Err("audience")),
        ("no aud", says("aud", "null"), accepts, Err("audience")),
        ("iss a list", says("iss", &format!(r#"["{ISSUER}"]"#)), accepts, Err("issuer")),
        ("no iss", says("iss", "null"), accepts, Err("issuer")),
        ("exp a fraction", says("exp", "1800000600.5"), accepts, Err("claim-type")),
        ("exp with an exponent", says("exp", "18000006e2"), accepts, Err("claim-type")),
        ("nbf a text", says("nbf", r#""2000000000""#), accepts, Err("claim-type")),
        ("nbf a fraction", says("nbf", "1800000000.5"), accepts, Err("claim-type")),
        ("iat a text", says("iat", r#""1800000000""#), accepts, Err("claim-type")),
        ("sub a number", says("sub", "7"), accepts, Err("sub-missing")),
        // Of a list, one audience is enough for it.
        (
            "a foreign audience",
            says("aud", &format!(r#"["{RESOURCE}","https://else.example"]"#)),
            accepts,
            Err("audience"),
        ),
        // It does not look at the times, the type and the use here.
        ("expired", says("exp", "1799999000"), accepts, Err("expired")),
        ("not yet valid", says("nbf", "1800001000"), accepts, Err("not-yet-valid")),
        ("an ID token", says("nonce", r#""n""#), accepts, Err("id-token")),
        ("typ JWT", other(&HEADER.replace("at+jwt", "JWT")), accepts, Err("typ")),
        ("no typ", other(r#"{"alg":"ES256","kid":"k1"}"#), accepts, Err("typ")),
        // It reads these members of a header and does nothing about them.
        ("crit", under(r#""crit":["exp"]"#), accepts, Err("header")),
        ("crit of b64", under(r#""crit":["b64"],"b64":false"#), accepts, Err("header")),
        ("b64", under(r#""b64":false"#), accepts, Err("header")),
        ("zip", under(r#""zip":"DEF""#), accepts, Err("header")),
        ("jku", under(r#""jku":"https://else.example""#), accepts, Err("header")),
        ("x5u", under(r#""x5u":"https://else.example""#), accepts, Err("header")),
        ("x5c", under(r#""x5c":["MIIB"]"#), accepts, Err("header")),
        ("nonce", under(r#""nonce":"n""#), accepts, Err("header")),
        (
            "own jwk",
            under(&format!(r#""jwk":{}"#, jwk(&environment.issuer))),
            accepts,
            Err("header"),
        ),
        // The gateway's reader keeps a number as it is written; for the other one this one has no value.
        ("a number out of range", says("size", "1e999"), refuses, Err("readers-differ")),
        ("the same as exp", says("exp", "1e999"), refuses, Err("readers-differ")),
        // Both refuse it.
        (
            "a jwk that signs",
            signed(&stranger, &header(&format!(r#""jwk":{}"#, jwk(&stranger))), &good),
            refuses,
            Err("header"),
        ),
        ("a key of the same name", signed(&stranger, HEADER, &good), refuses, Err("signature")),
        (
            "none",
            format!("{}.", other(r#"{"alg":"none","typ":"at+jwt"}"#).rsplit_once('.').unwrap().0),
            refuses,
            Err("algorithm"),
        ),
        (
            "the public key as a secret",
            secret(jwk(&environment.issuer).as_bytes()),
            refuses,
            Err("algorithm"),
        ),
        (
            "the point as a secret",
            secret(environment.issuer.public_key().as_ref()),
            refuses,
            Err("algorithm"),
        ),
        ("an empty secret", secret(b""), refuses, Err("algorithm")),
        (
            "another algorithm",
            other(&HEADER.replace("ES256", "ES384")),
            refuses,
            Err("key-unknown"),
        ),
        ("no signature", format!("{message}."), refuses, Err("signature")),
        (
            "a changed signature",
            format!("{message}.{}", encode(&[7; 64])),
            refuses,
            Err("signature"),
        ),
        (
            "a signature in DER",
            format!("{message}.{}", encode(&[0x30; 70])),
            refuses,
            Err("signature"),
        ),
        ("padding", padded, refuses, Err("form")),
        ("a padded signature", format!("{message}.{signature}=="), refuses, Err("form")),
        ("an end of line", format!("{token}\n"), refuses, Err("form")),
        (
            "the other alphabet",
            format!("{message}.{}+/", signature.get(..84).unwrap()),
            refuses,
            Err("form"),
        ),
        ("alg twice", under(r#""alg":"none""#), refuses, Err("form")),
        (
            "kid a number",
            other(r#"{"alg":"ES256","typ":"at+jwt","kid":1}"#),
            refuses,
            Err("header"),
        ),
        ("iss twice", says_also(r#""iss":"https://else.example""#), refuses, Err("form")),
        ("aud twice", says_also(r#""aud":"https://else.example""#), refuses, Err("form")),
        ("exp a text", says("exp", r#""1800000600""#), refuses, Err("claim-type")),
        ("no exp", says("exp", "null"), refuses, Err("exp-missing")),
        ("another issuer", says("iss", r#""https://else.example""#), refuses, Err("issuer")),
        ("another audience", says("aud", r#""https://else.example""#), refuses, Err("audience")),
        ("an empty list of audiences", says("aud", "[]"), refuses, Err("audience")),
        (
            "an audience beside none",
            says("aud", &format!(r#"["{BESIDE}"]"#)),
            refuses,
            Err("audience"),
        ),
    ] {
        assert_eq!(
            environment.elsewhere(&token, &["exp"]),
            elsewhere,
            "{what}, by jsonwebtoken alone"
        );
        assert_eq!(environment.judge(&token), ours, "{what}, by the gateway");
    }
}

/// Texts of claims, of which one in two is as it should be.
fn said(
    good: &'static str,
    others: &'static [&'static str],
) -> impl Strategy<Value = &'static str> {
    prop_oneof![Just(good), proptest::sample::select(others)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// The issuer signs whatever it likes, and somebody may change it on the way.
    #[test]
    fn what_jsonwebtoken_alone_refuses_is_refused(
        header in said(HEADER, &[
            r#"{"alg":"ES256","typ":"at+jwt"}"#,
            r#"{"alg":"ES384","typ":"at+jwt","kid":"k1"}"#,
            r#"{"alg":"HS256","typ":"at+jwt","kid":"k1"}"#,
            r#"{"alg":"none","typ":"at+jwt","kid":"k1"}"#,
            r#"{"alg":"ES256","typ":"application/at+JWT","x5t":"a","kid":"k1"}"#,
            r#"{"alg":"ES256","typ":null,"kid":"k1"}"#,
            r#"{"alg":"ES256","typ":"at+jwt","kid":"k\u0031"}"#,
        ]),
        iss in said(r#""https://issuer.example""#, &[
            "null", r#""https:\/\/issuer.example""#, r#""https://issuer.example/""#, r#"["https://issuer.example"]"#,
            "7", r#""""#,
        ]),
        aud in said(r#""https://gw.example/mcp""#, &[
            "null", r#""https://gw.example/other-name""#, r#"["https://gw.example/mcp","account"]"#, r#"["account"]"#,
            r#""account""#, "[]", "7", r#"["https://gw.example/mcp",7]"#, r#""https:\/\/gw.example\/mcp""#,
            r#"["else","https://gw.example/other-name"]"#, r#"{"0":"https://gw.example/mcp"}"#,
        ]),
        exp in said("1800000600", &["null", "1799999999", "1800000600.5", r#""1800000600""#, "1e999", "-1", "true"]),
        extra in said("1", &["1e999", "-0", "0.1e-5", "18446744073709551616", r#"{"a":[null,{"b":"\ud83d\ude00"}]}"#]),
        flipped in proptest::option::weighted(0.2, 0_usize..86),
    ) {
        let others = [("iss", iss), ("aud", aud), ("exp", exp), ("extra", extra)];
        let mut token = WORLD.token(header, &claims(&others));
        if let Some(place) = flipped {
            let place = token.len() - 86 + place;
            let other = if token.get(place..=place) == Some("A") { "B" } else { "A" };
            token.replace_range(place..=place, other);
        }
        let elsewhere = WORLD.elsewhere(&token, &["exp", "iss", "aud"]);
        let ours = WORLD.judge(&token);
        prop_assert!(elsewhere || ours.is_err(), "{}", token);
        // Whether that is so for the right reason: none of these is refused for being read in two ways.
        prop_assert!(ours != Err("readers-differ") || !elsewhere, "{}", token);
    }
}
