//! No text is a proof of possession that the holder of the key has not signed; and what it has signed is accepted only if an
//! independent reader finds it to be for this request, token, key and time, and only once. The input is a proof; or, with a
//! line end in it, a header and claims, which the holder signs whatever they say. In them `$JWK` is the key and `$ATH` the
//! digest of the token.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;
#[path = "shared/issuer.rs"]
mod issuer;

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::EcdsaKeyPair;
use libfuzzer_sys::fuzz_target;
use policy_core::subject::principal::RequiredProof;
use serde_json::{Value, json};

use self::bounded::bounded;
use self::issuer::{Gate, ISSUER, NOW, RESOURCE, encoded, jwk, new_key, signed};

struct World {
    gate: Gate,
    holder: EcdsaKeyPair,
    key: Value,
    token: String,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let (gate, holder) = (Gate::new(Some(RequiredProof::Dpop)), new_key());
    let key = jwk(&holder);
    // RFC 7638: the required members in their order, without blanks.
    let text = format!(r#"{{"crv":"P-256","kty":"EC","x":{},"y":{}}}"#, key["x"], key["y"]);
    let thumbprint = encoded(digest(&SHA256, text.as_bytes()).as_ref());
    let header = json!({ "alg": "ES256", "typ": "at+jwt", "kid": "k1" });
    let claims = json!({ "iss": ISSUER, "sub": "ana", "aud": RESOURCE, "client_id": "c", "jti": "t1", "iat": NOW,
        "exp": NOW + 600, "cnf": { "jkt": thumbprint } });
    let token = signed(&gate.pair, &header.to_string(), &claims.to_string());
    World { gate, holder, key, token }
});

fn accepted(proof: &str) -> bool {
    let authorization = format!("DPoP {}", WORLD.token);
    WORLD.gate.accepts(&[("authorization", &authorization), ("dpop", proof)])
}

fn ath() -> String {
    encoded(digest(&SHA256, WORLD.token.as_bytes()).as_ref())
}

/// Whether a URL is that of the request, without its query and fragment.
fn is_here(url: &str) -> bool {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let authority = authority.to_ascii_lowercase();
    scheme.eq_ignore_ascii_case("https")
        && matches!(&*authority, "gw.example" | "gw.example:443")
        && path == "/mcp"
}

/// Whether an independent reader finds this to be a good proof.
fn is_good(header: &str, claims: &str) -> bool {
    let (Ok(header), Ok(claims)) =
        (serde_json::from_str::<Value>(header), serde_json::from_str::<Value>(claims))
    else {
        return false;
    };
    let typ = header["typ"].as_str().map(str::to_ascii_lowercase);
    let same_key =
        ["kty", "crv", "x", "y"].iter().all(|name| header["jwk"][name] == WORLD.key[name]);
    let text = |name: &str| claims[name].as_str();
    header["alg"] == "ES256"
        && matches!(typ.as_deref(), Some("dpop+jwt" | "application/dpop+jwt"))
        && same_key
        && header["jwk"].get("d").is_none()
        && text("jti").is_some_and(|id| (1..=256).contains(&id.len()))
        && text("htm") == Some("POST")
        && text("htu").is_some_and(is_here)
        && text("ath") == Some(&ath())
        && claims["iat"].as_u64().is_some_and(|made| made.abs_diff(NOW) <= 60)
}

fuzz_target!(|input: &str| {
    let Some((header, claims)) = input.split_once('\n') else {
        assert!(!bounded(input.len(), |_| accepted(input)), "a proof nobody has signed");
        return;
    };
    let filled = |text: &str| text.replace("$JWK", &WORLD.key.to_string()).replace("$ATH", &ath());
    let (header, claims) = (filled(header), filled(claims));
    let proof = signed(&WORLD.holder, &header, &claims);
    let (text, _signature) = proof.rsplit_once('.').expect("three parts");
    assert!(!accepted(&format!("{text}.{}", encoded(&[7; 64]))), "another signature");
    assert!(!accepted(&signed(&WORLD.gate.pair, &header, &claims)), "another key");
    if bounded(input.len(), |_| accepted(&proof)) {
        assert!(is_good(&header, &claims), "{header} {claims}");
        assert!(!accepted(&proof), "a proof is used once");
    }
});
