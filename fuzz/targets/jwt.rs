//! No text is a token that our issuer has not signed; and what it has signed is believed only if an
//! independent reader finds it to be a good access token as well, and `jsonwebtoken` alone does, which
//! the gateway has as its second reader. The input is a token; or, with a line end in it, a header and
//! claims, which the issuer signs whatever they say.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

#[path = "shared/issuer.rs"]
mod issuer;

use std::sync::LazyLock;

use aws_lc_rs::signature::KeyPair as _;
use jsonwebtoken::{DecodingKey, Validation};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

use self::bounded::bounded;
use self::issuer::{Gate, ISSUER, NOW, RESOURCE, signed};

static WORLD: LazyLock<Gate> = LazyLock::new(|| Gate::new(None));

fn accepted(token: &str) -> bool {
    WORLD.accepts(&[("authorization", &format!("Bearer {token}"))])
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
    let key = DecodingKey::from_ec_der(WORLD.pair.public_key().as_ref());
    jsonwebtoken::decode::<Value>(token, &key, &validation).is_ok()
}

fuzz_target!(|input: &str| {
    let Some((header, claims)) = input.split_once('\n') else {
        assert!(!bounded(input.len(), |_| accepted(input)), "a token nobody has signed");
        return;
    };
    let token = signed(&WORLD.pair, header, claims);
    let (text, _signature) = token.rsplit_once('.').expect("three parts");
    if accepted(&token) {
        assert!(is_good(header, claims), "{header} {claims}");
        assert!(is_good_elsewhere(&token), "{header} {claims}");
        // Not with another signature, and not with none.
        assert!(!accepted(&format!("{text}.{}", issuer::encoded(&[7; 64]))));
        assert!(!accepted(&format!("{text}.")));
    }
});
