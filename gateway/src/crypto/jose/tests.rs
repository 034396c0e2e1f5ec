use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use json::Document;
use proptest::prelude::*;
use rustls::pki_types::PrivateKeyDer;

use super::{Algorithm, BOUNDS, JoseError, Jwk, JwkError, Jws, JwsSigner};

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
