//! Proofs of possession: a signature for one request with one token (RFC 9449; vectors AV-55 to
//! AV-60).

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{Method, Uri};
use policy::json::Value;

use crate::base::bounded::Bounded;
use crate::base::sha256::sha256;
use crate::crypto::jose::{self, Jws};
use crate::crypto::sealer::Sealer;

/// How far the time of a proof may be from ours.
const WINDOW: Duration = Duration::from_secs(60);
/// How long a nonce is good for.
const NONCE: Duration = Duration::from_secs(300);
/// One key gets this part of the room for proofs.
const SHARES: usize = 16;
/// Longest id of a proof.
const ID: usize = 256;
/// Names the format to the cipher.
const FORMAT: &[u8] = b"portcullis dpop nonce v1";

/// Why a proof is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// It is not a proof.
    #[error("not a proof")]
    Shape,
    /// It is for another request, another token or another key.
    #[error("a proof of something else")]
    Other,
    /// It was made too long ago, or in the future.
    #[error("a proof of another time")]
    Time,
    /// It was used before.
    #[error("a proof that was used before")]
    Used,
    /// It has no nonce of ours, or an old one.
    #[error("a proof without a nonce")]
    Nonce,
    /// No more can be remembered, so whether it was used before could not be known.
    #[error("too many proofs")]
    Full,
}

/// What a proof has to be about.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub(super) method: &'a Method,
    /// The URL that was asked for.
    pub(super) url: &'a str,
    pub(super) token: &'a str,
    /// The digest of the key the token is bound to.
    pub(super) key: &'a str,
    pub(super) nonce: bool,
}

/// Remembers proofs, so that none is used twice.
pub(super) struct Proofs {
    /// The digest of the key and the id of the proof, and until when it could be used again.
    used: Bounded<[u8; 32], SystemTime>,
    /// How many each key has used since when: none takes the room of the others.
    shares: Bounded<[u8; 32], Option<(usize, SystemTime)>>,
    share: usize,
    sealer: Arc<Sealer>,
}

impl std::fmt::Debug for Proofs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proofs").field("used", &self.used).finish_non_exhaustive()
    }
}

impl Proofs {
    pub(super) fn new(limit: usize, sealer: Arc<Sealer>) -> Self {
        let (used, shares) = (Bounded::new(limit), Bounded::new(limit));
        Self { used, shares, share: (limit / SHARES).max(1), sealer }
    }

    /// Accepts `text` as a proof of what it should be about, once; gives the digest of the body it
    /// is about, where it names one.
    pub(super) fn accept(
        &self,
        text: &str,
        about: About<'_>,
        now: SystemTime,
    ) -> Result<Option<[u8; 32]>, ProofError> {
        let read = Jws::read_with_key(text).map_err(|_wrong| ProofError::Shape)?;
        let key = read.jwk.as_ref().ok_or(ProofError::Shape)?;
        if read.typ.as_deref() != Some("dpop+jwt") {
            return Err(ProofError::Shape);
        }
        let claims = read.is_signed_by(key).map_err(|_wrong| ProofError::Shape)?;
        let said = |name: &str| claims.get(name).and_then(Value::as_str);
        let id = said("jti").filter(|id| (1..=ID).contains(&id.len())).ok_or(ProofError::Shape)?;
        let ath = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, about.token.as_bytes()));
        let same = key.thumbprint() == about.key
            && said("htm").as_deref() == Some(about.method.as_str())
            && said("htu").is_some_and(|said| same_url(&said, about.url))
            && said("ath").as_deref() == Some(&*ath);
        if !same {
            return Err(ProofError::Other);
        }
        let made = jose::seconds(claims, "iat").ok().flatten().ok_or(ProofError::Shape)?;
        let made = UNIX_EPOCH + Duration::from_secs(made.min(1 << 40));
        if made > now + WINDOW || made + WINDOW < now {
            return Err(ProofError::Time);
        }
        if about.nonce && !said("nonce").is_some_and(|nonce| self.knows(&nonce, now)) {
            return Err(ProofError::Nonce);
        }
        let body = match claims.get("content_digest") {
            None => None,
            Some(value) => Some(content(value).ok_or(ProofError::Shape)?),
        };
        let name = format!("{}\0{id}", key.thumbprint());
        let entry = sha256(name.as_bytes());
        // Before it is counted: one who has got hold of a proof must not use up the share of its key.
        if self.used.contains(&entry) {
            return Err(ProofError::Used);
        }
        // It could be used again until it is too old.
        if !self.has_share(key.thumbprint(), now) {
            return Err(ProofError::Full);
        }
        match self.used.insert(entry, made + WINDOW) {
            Ok(None) => Ok(body),
            Ok(Some(_)) => Err(ProofError::Used),
            Err(_full) => Err(ProofError::Full),
        }
    }

    /// Counts a proof of the key with this digest.
    fn has_share(&self, thumbprint: &str, now: SystemTime) -> bool {
        let name = sha256(thumbprint.as_bytes());
        let counted = self.shares.update(name, |share| match share {
            Some((count, since)) if now <= since + WINDOW * 2 => Some((count + 1, since)),
            Some(_) | None => Some((1, now)),
        });
        counted.is_some_and(|(count, _)| count <= self.share)
    }

    /// Forgets what could not be used again in any case.
    pub(super) fn sweep(&self, now: SystemTime) {
        self.used.retain(|_, until| *until >= now);
        self.shares.retain(|_, share| share.is_some_and(|(_, since)| now <= since + WINDOW * 2));
    }

    /// A nonce for proofs: the time, sealed, so that every replica knows it.
    pub(super) fn nonce(&self, now: SystemTime) -> Option<String> {
        let now = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
        self.sealer.seal(&[FORMAT], now.to_be_bytes().to_vec()).ok()
    }

    fn knows(&self, nonce: &str, now: SystemTime) -> bool {
        let made = self.sealer.open(&[FORMAT], nonce);
        let made = made.and_then(|made| Some(u64::from_be_bytes(made.try_into().ok()?)));
        let made = made.map(|made| UNIX_EPOCH + Duration::from_secs(made));
        made.is_some_and(|made| made <= now + WINDOW && now <= made + NONCE)
    }
}

/// `sha-256=:..:` (RFC 9530), as the draft for MCP has it.
fn content(value: Value<'_>) -> Option<[u8; 32]> {
    let text = value.as_str()?;
    let inner = text.strip_prefix("sha-256=:")?.strip_suffix(':')?;
    STANDARD.decode(inner).ok()?.try_into().ok()
}

/// Whether two URLs are the same without what comes after `?` or `#`, scheme and host in any case
/// and the usual port in either way.
///
/// RFC 9449, section 4.3
fn same_url(said: &str, meant: &str) -> bool {
    let plain = |text: &str| {
        let text = text.split(['?', '#']).next().unwrap_or_default();
        let uri: Uri = text.parse().ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let usual = if scheme == "https" { 443 } else { 80 };
        let host = uri.host()?.to_ascii_lowercase();
        let port = uri.port_u16().unwrap_or(usual);
        let userinfo = uri.authority()?.as_str().contains('@');
        (!userinfo).then(|| (scheme, host, port, uri.path().to_owned()))
    };
    let said = plain(said);
    said.is_some() && said == plain(meant)
}

#[cfg(test)]
mod tests {
    use super::{About, NONCE, ProofError, Proofs, SHARES, WINDOW, same_url};
    use crate::crypto::jose::Jws;
    use crate::crypto::sealer::Sealer;
    use aws_lc_rs::digest;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use http::Method;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    const URL: &str = "https://gw.example/mcp";
    const TOKEN: &str = "a-token";
    const SECOND: Duration = Duration::from_secs(1);

    fn base() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    /// Somebody with a key that tokens are bound to.
    struct Holder {
        pair: EcdsaKeyPair,
        thumbprint: String,
        method: Method,
    }

    impl Holder {
        fn new() -> Self {
            let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
            let mut holder = Self { pair, thumbprint: String::new(), method: Method::POST };
            let proof = holder.proof("first", base(), None);
            let read = Jws::read_with_key(&proof).unwrap();
            holder.thumbprint = read.jwk.unwrap().thumbprint().to_owned();
            holder
        }

        fn proof(&self, id: &str, made: SystemTime, nonce: Option<&str>) -> String {
            let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
            let point = self.pair.public_key().as_ref();
            let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
            let header = format!(
                r#"{{"alg":"ES256","typ":"dpop+jwt","jwk":{{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}"}}}}"#
            );
            let iat = made.duration_since(UNIX_EPOCH).unwrap().as_secs();
            let ath = encode(digest::digest(&digest::SHA256, TOKEN.as_bytes()).as_ref());
            let nonce = nonce.map(|nonce| format!(r#","nonce":"{nonce}""#)).unwrap_or_default();
            let claims = format!(
                r#"{{"jti":"{id}","htm":"POST","htu":"{URL}","iat":{iat},"ath":"{ath}"{nonce}}}"#
            );
            let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
            let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
            format!("{signed}.{}", encode(signature.as_ref()))
        }

        fn about(&self, nonce: bool) -> About<'_> {
            let Self { method, thumbprint: key, .. } = self;
            About { method, url: URL, token: TOKEN, key, nonce }
        }
    }

    fn proofs(limit: usize) -> Proofs {
        Proofs::new(limit, Arc::new(Sealer::new(&[]).unwrap()))
    }

    #[test]
    fn a_used_proof_is_remembered_for_as_long_as_it_would_be_accepted() {
        let (proofs, holder) = (proofs(1000), Holder::new());
        // The clock of the client is as early as it may be, so it would be accepted for longest.
        let proof = holder.proof("one", base() + WINDOW, None);
        let accept = |now| proofs.accept(&proof, holder.about(false), now);
        assert_eq!(accept(base()), Ok(None));
        for later in [Duration::ZERO, WINDOW, WINDOW * 2] {
            proofs.sweep(base() + later);
            assert_eq!(accept(base() + later), Err(ProofError::Used), "{later:?}");
        }
        let late = base() + WINDOW * 2 + SECOND;
        proofs.sweep(late);
        assert_eq!(accept(late), Err(ProofError::Time));
    }

    #[test]
    fn a_nonce_is_good_for_a_while() {
        let (proofs, holder) = (proofs(1000), Holder::new());
        let nonce = proofs.nonce(base()).unwrap();
        let accept = |id: &str, now| {
            let proof = holder.proof(id, now, Some(&nonce));
            proofs.accept(&proof, holder.about(true), now)
        };
        assert_eq!(accept("at once", base()), Ok(None));
        assert_eq!(accept("at its end", base() + NONCE), Ok(None));
        assert_eq!(accept("too late", base() + NONCE + SECOND), Err(ProofError::Nonce));
        // The clock of the replica that made it may be ahead of ours, by no more than that of a client.
        assert_eq!(accept("early", base() - WINDOW), Ok(None));
        assert_eq!(accept("too early", base() - WINDOW - SECOND), Err(ProofError::Nonce));
        let without = holder.proof("without", base(), None);
        assert_eq!(proofs.accept(&without, holder.about(true), base()), Err(ProofError::Nonce));
    }

    #[test]
    fn one_key_does_not_use_up_the_room_of_others_nor_does_a_stranger_use_up_its_share() {
        let share = 32;
        let proofs = proofs(share * SHARES);
        let (one, other) = (Holder::new(), Holder::new());
        let accept = |holder: &Holder, id: &str, now| {
            proofs.accept(&holder.proof(id, now, None), holder.about(false), now)
        };
        assert_eq!(accept(&one, "0", base()), Ok(None));
        for _ in 0..share {
            assert_eq!(accept(&one, "0", base()), Err(ProofError::Used), "a replay is not counted");
        }
        for n in 1..share {
            assert_eq!(accept(&one, &n.to_string(), base()), Ok(None), "{n}");
        }
        assert_eq!(accept(&one, "more", base()), Err(ProofError::Full));
        assert_eq!(accept(&other, "0", base()), Ok(None));
        let later = base() + WINDOW * 2 + SECOND;
        proofs.sweep(later);
        assert_eq!(accept(&one, "later", later), Ok(None));
    }

    #[test]
    fn one_place_has_several_spellings() {
        let meant = "https://gw.example/mcp";
        for same in [
            "https://gw.example/mcp",
            "HTTPS://GW.example:443/mcp",
            "https://gw.example/mcp?a=b",
            "https://gw.example/mcp#c",
        ] {
            assert!(same_url(same, meant), "{same}");
        }
        for other in [
            "http://gw.example/mcp",
            "https://gw.example/mcp/",
            "https://gw.example/MCP",
            "https://gw.example:8443/mcp",
            "https://gw.example.evil/mcp",
            "https://x@gw.example/mcp",
            "/mcp",
            "",
        ] {
            assert!(!same_url(other, meant), "{other}");
        }
    }
}
