use aws_lc_rs::hmac;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use json::Document;
use proptest::prelude::*;
use rustls::pki_types::PrivateKeyDer;

use super::{ExpectedClaims, JoseError, Jws, same};
use crate::crypto::jwk::{Algorithm, BOUNDS, Jwk, JwkError};
use crate::crypto::jws_signer::JwsSigner;

fn signer() -> JwsSigner {
    let pkcs8 = aws_lc_rs::signature::EcdsaKeyPair::generate_pkcs8(
        &aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED_SIGNING,
        &aws_lc_rs::rand::SystemRandom::new(),
    )
    .unwrap();
    let der = PrivateKeyDer::Pkcs8(pkcs8.as_ref().to_vec().into());
    JwsSigner::new(&der, Some("k1".into()), None).unwrap()
}

fn key(jwk: &str) -> Result<Jwk, JwkError> {
    let document = Document::parse(Bytes::from(jwk.to_owned()), &BOUNDS).unwrap();
    Jwk::read(document.root())
}

fn public(signer: &JwsSigner) -> Jwk {
    key(&String::from_utf8(signer.public().unwrap()).unwrap()).unwrap()
}

fn token(header: &str, claims: &str, signature: &[u8]) -> String {
    let part = |part: &str| URL_SAFE_NO_PAD.encode(part);
    format!("{}.{}.{}", part(header), part(claims), URL_SAFE_NO_PAD.encode(signature))
}

#[test]
fn a_token_is_good_under_its_key_alone() {
    let (ours, theirs) = (signer(), signer());
    let text = ours.sign("at+jwt", br#"{"sub":"ana"}"#).unwrap();
    let read = Jws::read(&text).unwrap();
    assert_eq!((read.kid.as_deref(), read.typ.as_deref()), (Some("k1"), Some("at+jwt")));
    let claims = read.is_signed_by(&public(&ours)).unwrap();
    assert_eq!(claims.get("sub").and_then(|sub| sub.as_str()).as_deref(), Some("ana"));
    assert_eq!(read.is_signed_by(&public(&theirs)).unwrap_err(), JoseError::Signature);
}

#[test]
fn the_registered_claims_are_verified_with_the_signature() {
    let (ours, theirs) = (signer(), signer());
    let (key, other) = (public(&ours), public(&theirs));
    let expected =
        ExpectedClaims { issuer: "https://i", audiences: vec!["https://a", "https://b"] };
    let judge = |claims: &str, key: &Jwk| {
        let text = ours.sign("at+jwt", claims.as_bytes()).unwrap();
        let read = Jws::read(&text).unwrap();
        read.is_issued_as(key, &expected).map(drop)
    };
    let good = r#"{"iss":"https://i","aud":"https://a","exp":1}"#;
    // Whether `exp` has passed is not asked here.
    assert_eq!(judge(good, &key), Ok(()));
    assert_eq!(judge(&good.replace("/a", "/b"), &key), Ok(()));
    assert_eq!(judge(&good.replace(r#""https://a""#, r#"["x","https://b"]"#), &key), Ok(()));
    for (claims, expected) in [
        (good.replace("//i", "//j"), JoseError::Claim("iss")),
        (good.replace("/a", "/c"), JoseError::Claim("aud")),
        (good.replace(r#""https://a""#, "[]"), JoseError::Claim("aud")),
        (good.replace(r#""https://a""#, "7"), JoseError::Claim("aud")),
        (good.replace("iss", "is"), JoseError::Claim("iss")),
        (good.replace("aud", "au"), JoseError::Claim("aud")),
        (good.replace("exp", "ex"), JoseError::Claim("exp")),
        (good.replace(":1}", r#":"1"}"#), JoseError::Claim("exp")),
        (good.replace(":1}", ":1e999}"), JoseError::Differs("its JSON")),
    ] {
        assert_eq!(judge(&claims, &key), Err(expected), "{claims}");
        assert_eq!(judge(&claims, &other), Err(JoseError::Signature), "{claims}");
    }
}

/// RFC 9864, section 2.2. `jsonwebtoken` has only the older name.
#[test]
fn ed25519_has_two_names() {
    let pair = Ed25519KeyPair::generate().unwrap();
    let x = URL_SAFE_NO_PAD.encode(pair.public_key());
    let public = |x: &str, alg: &str| {
        key(&format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}"{alg}}}"#)).unwrap()
    };
    let other = URL_SAFE_NO_PAD.encode(Ed25519KeyPair::generate().unwrap().public_key());
    let expected = ExpectedClaims { issuer: "i", audiences: vec!["a"] };
    for name in ["EdDSA", "Ed25519"] {
        let sign = |claims: &str| {
            let part = |part: &str| URL_SAFE_NO_PAD.encode(part);
            let message = format!("{}.{}", part(&format!(r#"{{"alg":"{name}"}}"#)), part(claims));
            let signature = URL_SAFE_NO_PAD.encode(pair.sign(message.as_bytes()));
            format!("{message}.{signature}")
        };
        let text = sign(r#"{"iss":"i","aud":"a","exp":1}"#);
        let read = Jws::read(&text).unwrap();
        assert_eq!(read.algorithm, Algorithm::EdDsa);
        for alg in ["", r#","alg":"EdDSA""#, r#","alg":"Ed25519""#] {
            let (good, wrong) = (public(&x, alg), public(&other, alg));
            assert!(
                read.is_signed_by(&good).is_ok() && read.is_issued_as(&good, &expected).is_ok()
            );
            assert_eq!(read.is_signed_by(&wrong).unwrap_err(), JoseError::Signature);
            assert_eq!(read.is_issued_as(&wrong, &expected).unwrap_err(), JoseError::Signature);
        }
        let text = sign(r#"{"n":1e999}"#);
        let read = Jws::read(&text).unwrap();
        let differs = JoseError::Differs("its JSON");
        assert_eq!(read.is_signed_by(&public(&x, "")).unwrap_err(), differs, "{name}");
    }
}

#[test]
fn a_difference_between_the_readers_is_seen_anywhere() {
    let text = r#"{"a":"\u0061b","n":null,"t":true,"i":[1,18446744073709551615,-1,0.1,1e2,-0],"o":{"x":[{}]}}"#;
    let document = Document::parse(Bytes::from(text), &BOUNDS).unwrap();
    let read: serde_json::Value = text.parse().unwrap();
    assert!(same(&read, document.root()));
    for (place, other) in [
        ("/a", r#""abc""#),
        ("/a", "null"),
        ("/n", "false"),
        ("/t", "false"),
        ("/t", r#""true""#),
        ("/i/0", "2"),
        ("/i/0", "1.0"),
        ("/i/1", "18446744073709551614"),
        ("/i/2", "1"),
        ("/i/3", "0"),
        ("/i", "[1]"),
        ("/i", r#"{"0":1}"#),
        ("/o/x", "[]"),
        ("/o/x/0", r#"{"y":1}"#),
        ("/o", "{}"),
    ] {
        let mut read = read.clone();
        *read.pointer_mut(place).unwrap() = other.parse().unwrap();
        assert!(!same(&read, document.root()), "{place} {other}");
    }
    let mut renamed = read.clone();
    renamed["b"] = renamed.as_object_mut().unwrap().remove("n").unwrap();
    assert!(!same(&renamed, document.root()));
}

#[test]
fn what_a_header_could_lead_astray_with_is_refused() {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, b"");
    let forged = hmac::sign(&secret, b"x");
    for (header, expected) in [
        (r#"{"alg":"none"}"#, JoseError::Algorithm),
        (r#"{"alg":"nOnE"}"#, JoseError::Algorithm),
        (r#"{"alg":"HS256"}"#, JoseError::Algorithm),
        (r#"{"alg":"ES256K"}"#, JoseError::Algorithm),
        (r#"{"alg":"RSA1_5"}"#, JoseError::Algorithm),
        (r#"{"alg":["ES256"]}"#, JoseError::Header),
        (r#"{}"#, JoseError::Algorithm),
        (r#"{"alg":"ES256","jku":"https://evil.example"}"#, JoseError::Header),
        (r#"{"alg":"ES256","x5u":"https://evil.example"}"#, JoseError::Header),
        (r#"{"alg":"ES256","x5c":["MA"]}"#, JoseError::Header),
        (r#"{"alg":"ES256","jwk":{}}"#, JoseError::Header),
        (r#"{"alg":"ES256","crit":["exp"]}"#, JoseError::Header),
        (r#"{"alg":"ES256","crit":[]}"#, JoseError::Header),
        (r#"{"alg":"ES256","b64":false}"#, JoseError::Header),
        (r#"{"alg":"ES256","zip":"DEF"}"#, JoseError::Header),
        (r#"{"alg":"ES256","cty":"JWT"}"#, JoseError::Header),
        (r#"{"alg":"ES256","kid":7}"#, JoseError::Header),
        (r#"["ES256"]"#, JoseError::Header),
    ] {
        let text = token(header, "{}", forged.as_ref());
        assert_eq!(Jws::read(&text).unwrap_err(), expected, "{header}");
    }
    let long = format!(r#"{{"alg":"ES256","kid":"{}"}}"#, "k".repeat(300));
    assert_eq!(Jws::read(&token(&long, "{}", b"x")).unwrap_err(), JoseError::Header);
    for twice in [r#"{"alg":"ES256","alg":"none"}"#, r#"{"alg":"ES256","\u0061lg":"none"}"#] {
        assert!(matches!(Jws::read(&token(twice, "{}", b"x")), Err(JoseError::Json(_))));
    }
    let claims = r#"{"aud":"a","\u0061ud":"b"}"#;
    let text = token(r#"{"alg":"ES256"}"#, claims, b"x");
    assert!(matches!(Jws::read(&text), Err(JoseError::Json(_))));
}

#[test]
fn one_token_has_one_spelling() {
    let ours = signer();
    let good = ours.sign("at+jwt", br#"{"sub":"a"}"#).unwrap();
    let (rest, signature) = good.rsplit_once('.').unwrap();
    for wrong in [
        format!("{good}="),
        format!("{rest}."),
        rest.to_owned(),
        format!("{good}.x"),
        format!("{rest}.{}", signature.replace(['-', '_'], "+")) + "+",
        format!(" {good}"),
        format!("{good}\n"),
        format!("{rest}.{}", signature.get(1..).unwrap()),
    ] {
        let read = Jws::read(&wrong).and_then(|jws| jws.is_signed_by(&public(&ours)).map(|_| ()));
        assert!(read.is_err(), "{wrong}");
    }
    assert_eq!(Jws::read(&"a".repeat(9000)).unwrap_err(), JoseError::Long);
}

#[test]
fn weak_keys_and_secrets_are_no_keys() {
    let rsa = |bytes: usize, e: &str| {
        let n = URL_SAFE_NO_PAD.encode(vec![0xff; bytes]);
        format!(r#"{{"kty":"RSA","n":"{n}","e":"{e}"}}"#)
    };
    assert!(key(&rsa(256, "AQAB")).is_ok());
    let zero = URL_SAFE_NO_PAD.encode([0; 32]);
    for (jwk, expected) in [
        (rsa(64, "AQAB"), JwkError::Weak),
        (rsa(256, "Aw"), JwkError::Weak),
        (rsa(4096, "AQAB"), JwkError::Weak),
        (r#"{"kty":"oct","k":"c2VjcmV0"}"#.to_owned(), JwkError::Secret),
        (r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#.to_owned(), JwkError::Weak),
        (format!(r#"{{"kty":"EC","crv":"P-256","x":"{zero}","y":"{zero}"}}"#), JwkError::Weak),
        (r#"{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"}"#.to_owned(), JwkError::Kind),
        (r#"{"kty":"RSA","use":"enc"}"#.to_owned(), JwkError::Use),
        (r#"{"kty":"RSA","key_ops":["encrypt"]}"#.to_owned(), JwkError::Use),
        (rsa(256, "AQAB").replace("\"kty\"", "\"alg\":\"ES256\",\"kty\""), JwkError::Kind),
        (rsa(256, "AQAB").replace("\"kty\"", "\"alg\":\"HS256\",\"kty\""), JwkError::Kind),
    ] {
        assert_eq!(key(&jwk).unwrap_err(), expected, "{jwk}");
    }
}

#[test]
fn a_key_is_good_for_its_algorithm_alone() {
    let n = URL_SAFE_NO_PAD.encode(vec![0xff; 256]);
    let rsa = |alg: &str| key(&format!(r#"{{"kty":"RSA","n":"{n}","e":"AQAB"{alg}}}"#)).unwrap();
    let fits = |key: &Jwk| Algorithm::ALL.map(|algorithm| key.fits(algorithm));
    assert_eq!(fits(&rsa(r#","alg":"RS256""#)), [true, false, false, false, false]);
    assert_eq!(fits(&rsa(r#","alg":"PS256""#)), [false, true, false, false, false]);
    assert_eq!(fits(&rsa("")), [true, true, false, false, false]);
    assert_eq!(fits(&public(&signer())), [false, false, true, false, false]);
}

#[test]
fn the_thumbprint_of_the_specification() {
    // RFC 7638, section 3.1
    let jwk = r#"{"kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw","e":"AQAB","alg":"RS256","kid":"2011-04-29"}"#;
    assert_eq!(key(jwk).unwrap().thumbprint(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
}

proptest! {
    #[test]
    fn no_text_is_good_that_was_not_signed(text in "[A-Za-z0-9_.=-]{0,200}") {
        let key = public(&signer());
        prop_assert!(Jws::read(&text).and_then(|jws| jws.is_signed_by(&key).map(|_| ())).is_err());
    }
}
