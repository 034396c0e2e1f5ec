//! Validates DPoP proofs of possession: a signature for one request with one token (RFC 9449; vectors AV-55 to
//! AV-60).

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{Method, Uri};
use json::Value;

use crate::base::bounded::BoundedMap;
use crate::base::sha256::sha256;
use crate::crypto::jose::{self, JoseError, Jws};
use crate::crypto::sealer::Sealer;

/// Maximum difference between the time of a proof and the clock of the gateway.
const WINDOW: Duration = Duration::from_secs(60);
/// Lifetime of a nonce.
const NONCE: Duration = Duration::from_secs(300);
/// The share of one caller in the room for proofs is one in this number.
const SHARES: usize = 16;
/// Maximum length of the id of a proof, in bytes.
const ID: usize = 256;
/// Identifies the purpose to the sealer.
const FORMAT: &[u8] = b"portcullis dpop nonce v1";

/// The reason why a proof is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DpopError {
    /// It is malformed, or its signature is invalid.
    #[error("DPoP proof: malformed, or invalid signature")]
    Shape,
    /// The two readers of tokens differ on this.
    #[error("DPoP proof: the second parser rejects {0}")]
    Differs(&'static str),
    /// It is for another request, token or key.
    #[error("DPoP proof: `htm`, `htu`, `ath` or key mismatch")]
    Other,
    /// It is too old, or from the future.
    #[error("DPoP proof: `iat` out of range")]
    Time,
    /// It was used before.
    #[error("DPoP proof: replayed")]
    Used,
    /// It has no valid nonce of the gateway.
    #[error("DPoP proof: `nonce` missing or invalid")]
    Nonce,
    /// There is no room to remember it, so a replay could not be detected.
    #[error("DPoP proof: replay cache is full")]
    Full,
}

/// What a proof must be for.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProofContext<'a> {
    pub(super) method: &'a Method,
    /// The URL of the request.
    pub(super) url: &'a str,
    pub(super) token: &'a str,
    /// The thumbprint of the key that the token is bound to.
    pub(super) key: &'a str,
    /// The id of the token's principal, which may have tokens for any number of keys.
    pub(super) principal: &'a str,
    pub(super) nonce: bool,
}

/// The time at which a proof is used, in both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProofTime {
    /// The time of day, which decides whether a proof is fresh.
    pub(super) now: SystemTime,
    /// The monotonic time, which also decides for how long a proof is remembered: the time of day may be set ahead for a
    /// while and back again.
    pub(super) instant: Instant,
}

/// For how long a used proof is remembered.
#[derive(Clone, Copy, Debug)]
struct UsedProof {
    /// Until when it would be valid.
    valid: SystemTime,
    /// When it would have expired at the latest if nobody had set the time of day.
    until: Instant,
}

/// Remembers used proofs, to prevent replay.
pub(super) struct DpopVerifier {
    /// The used proofs, by the digest of the key and id of each.
    used: BoundedMap<[u8; 32], UsedProof>,
    /// Number of proofs of each caller, and since when, so that none takes all the room.
    shares: BoundedMap<[u8; 32], Option<(usize, SystemTime)>>,
    share: usize,
    sealer: Arc<Sealer>,
}

impl std::fmt::Debug for DpopVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proofs").field("used", &self.used).finish_non_exhaustive()
    }
}

impl DpopVerifier {
    pub(super) fn new(limit: usize, sealer: Arc<Sealer>) -> Self {
        let (used, shares) = (BoundedMap::new(limit), BoundedMap::new(limit));
        Self { used, shares, share: (limit / SHARES).max(1), sealer }
    }

    /// Validates `text` as a proof for `about`, once. Returns the digest that the body must have, if the proof names
    /// one.
    pub(super) fn accept(
        &self,
        text: &str,
        about: ProofContext<'_>,
        at: ProofTime,
    ) -> Result<Option<[u8; 32]>, DpopError> {
        let now = at.now;
        let read = Jws::read_with_key(text).map_err(|_wrong| DpopError::Shape)?;
        let key = read.jwk.as_ref().ok_or(DpopError::Shape)?;
        if read.typ.as_deref() != Some("dpop+jwt") {
            return Err(DpopError::Shape);
        }
        let claims = read.is_signed_by(key).map_err(|error| match error {
            JoseError::Differs(what) => DpopError::Differs(what),
            _ => DpopError::Shape,
        })?;
        let said = |name: &str| claims.get(name).and_then(Value::as_str);
        let id = said("jti").filter(|id| (1..=ID).contains(&id.len())).ok_or(DpopError::Shape)?;
        let ath = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, about.token.as_bytes()));
        let same = key.thumbprint() == about.key
            && said("htm").as_deref() == Some(about.method.as_str())
            && said("htu").is_some_and(|said| same_url(&said, about.url))
            && said("ath").as_deref() == Some(&*ath);
        if !same {
            return Err(DpopError::Other);
        }
        let made = jose::seconds(claims, "iat").ok().flatten().ok_or(DpopError::Shape)?;
        let made = UNIX_EPOCH + Duration::from_secs(made.min(1 << 40));
        if made > now + WINDOW || made + WINDOW < now {
            return Err(DpopError::Time);
        }
        if about.nonce && !said("nonce").is_some_and(|nonce| self.knows(&nonce, now)) {
            return Err(DpopError::Nonce);
        }
        let body = match claims.get("content_digest") {
            None => None,
            Some(value) => Some(content(value).ok_or(DpopError::Shape)?),
        };
        let name = format!("{}\0{id}", key.thumbprint());
        let entry = sha256(name.as_bytes());
        // This check precedes the count, so that the holder of a stolen proof cannot use up the share of its caller.
        if self.used.contains(&entry) {
            return Err(DpopError::Used);
        }
        // The proof would be valid until it is too old, so it is remembered until then.
        if !self.has_share(about.principal, now) {
            return Err(DpopError::Full);
        }
        let used = UsedProof { valid: made + WINDOW, until: at.instant + WINDOW * 2 };
        match self.used.insert(entry, used) {
            Ok(None) => Ok(body),
            Ok(Some(_)) => Err(DpopError::Used),
            Err(_full) => Err(DpopError::Full),
        }
    }

    /// Counts a proof of a caller; returns whether the caller is within its share.
    fn has_share(&self, principal: &str, now: SystemTime) -> bool {
        let name = sha256(principal.as_bytes());
        let counted = self.shares.update(name, |share| match share {
            Some((count, since)) if now <= since + WINDOW * 2 => Some((count + 1, since)),
            Some(_) | None => Some((1, now)),
        });
        counted.is_some_and(|(count, _)| count <= self.share)
    }

    /// Removes proofs that are too old to be used again.
    pub(super) fn sweep(&self, at: ProofTime) {
        let ProofTime { now, instant } = at;
        self.used.retain(|_, used| used.valid >= now || used.until >= instant);
        self.shares.retain(|_, share| share.is_some_and(|(_, since)| now <= since + WINDOW * 2));
    }

    /// Makes a nonce: the sealed time, so that every replica can check it.
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

/// Parses `sha-256=:..:` (RFC 9530), as the draft for MCP specifies.
fn content(value: Value<'_>) -> Option<[u8; 32]> {
    let text = value.as_str()?;
    let inner = text.strip_prefix("sha-256=:")?.strip_suffix(':')?;
    STANDARD.decode(inner).ok()?.try_into().ok()
}

/// Whether two URLs are equal without query and fragment, with case-insensitive scheme and host and default ports
/// (RFC 9449, section 4.3).
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
    use super::{
        DpopError, DpopVerifier, NONCE, ProofContext, ProofTime, SHARES, WINDOW, same_url,
    };
    use crate::base::clock::{Clock as _, SystemClock};
    use crate::crypto::jose::Jws;
    use crate::crypto::sealer::Sealer;
    use aws_lc_rs::digest;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use http::Method;
    use std::sync::{Arc, LazyLock};
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    const URL: &str = "https://gw.example/mcp";
    const TOKEN: &str = "a-token";
    const SECOND: Duration = Duration::from_secs(1);

    fn base() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    /// A client with a key that tokens are bound to.
    struct Holder {
        pair: EcdsaKeyPair,
        thumbprint: String,
        method: Method,
        /// More members of the key in the header.
        more: &'static str,
    }

    impl Holder {
        fn new() -> Self {
            let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
            let (thumbprint, method) = (String::new(), Method::POST);
            let mut holder = Self { pair, thumbprint, method, more: "" };
            let proof = holder.proof("first", base(), None);
            let read = Jws::read_with_key(&proof).unwrap();
            holder.thumbprint = read.jwk.unwrap().thumbprint().to_owned();
            holder
        }

        fn proof(&self, id: &str, made: SystemTime, nonce: Option<&str>) -> String {
            let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
            let point = self.pair.public_key().as_ref();
            let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
            let more = self.more;
            let header = format!(
                r#"{{"alg":"ES256","typ":"dpop+jwt","jwk":{{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}"{more}}}}}"#
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

        fn about(&self, nonce: bool) -> ProofContext<'_> {
            let Self { method, thumbprint: key, .. } = self;
            // Each has tokens of its own principal here.
            ProofContext { method, url: URL, token: TOKEN, key, principal: key, nonce }
        }
    }

    /// A time of day, with a monotonic clock that goes as it does.
    fn at(now: SystemTime) -> ProofTime {
        static START: LazyLock<Instant> = LazyLock::new(|| SystemClock.instant());
        // Some tests go back.
        let since = now.duration_since(base() - Duration::from_secs(3600)).unwrap();
        ProofTime { now, instant: *START + since }
    }

    fn proofs(limit: usize) -> DpopVerifier {
        DpopVerifier::new(limit, Arc::new(Sealer::new(&[]).unwrap()))
    }

    #[test]
    fn a_used_proof_is_remembered_for_as_long_as_it_would_be_accepted() {
        let (proofs, holder) = (proofs(1000), Holder::new());
        // The client's clock is as far ahead as allowed, so the proof would be valid for longest.
        let proof = holder.proof("one", base() + WINDOW, None);
        let accept = |now| proofs.accept(&proof, holder.about(false), at(now));
        assert_eq!(accept(base()), Ok(None));
        for later in [Duration::ZERO, WINDOW, WINDOW * 2] {
            proofs.sweep(at(base() + later));
            assert_eq!(accept(base() + later), Err(DpopError::Used), "{later:?}");
        }
        let late = base() + WINDOW * 2 + SECOND;
        proofs.sweep(at(late));
        assert_eq!(accept(late), Err(DpopError::Time));
    }

    #[test]
    fn a_used_proof_is_remembered_though_the_clock_is_set_ahead_and_back() {
        let (proofs, holder) = (proofs(1000), Holder::new());
        let proof = holder.proof("one", base(), None);
        assert_eq!(proofs.accept(&proof, holder.about(false), at(base())), Ok(None));
        let ahead = base() + Duration::from_secs(30 * 86_400);
        // The monotonic clock has not moved as far.
        proofs.sweep(ProofTime { now: ahead, ..at(base() + SECOND) });
        let back = at(base() + SECOND * 2);
        assert_eq!(proofs.accept(&proof, holder.about(false), back), Err(DpopError::Used));
        proofs.sweep(at(base() + WINDOW * 2 + SECOND));
        assert_eq!(proofs.used.length(), 0);
    }

    /// Browsers write `ext` and `key_ops` as well.
    #[test]
    fn a_key_in_a_proof_may_say_more_and_is_read_twice() {
        let (proofs, mut holder) = (proofs(1000), Holder::new());
        for (n, (more, expected)) in [
            (r#","ext":true,"key_ops":["verify"]"#, Ok(None)),
            (r#","use":"sig","alg":"ES256","kid":"k1""#, Ok(None)),
            (r#","x5c":["MIIB"],"x5t#S256":"a","odd":{"a":[1]}"#, Ok(None)),
            // The second reader has a type for these.
            (r#","kid":7"#, Err(DpopError::Differs("its JSON"))),
            (r#","x5c":"MIIB""#, Err(DpopError::Differs("its JSON"))),
        ]
        .into_iter()
        .enumerate()
        {
            holder.more = more;
            let proof = holder.proof(&n.to_string(), base(), None);
            assert_eq!(proofs.accept(&proof, holder.about(false), at(base())), expected, "{more}");
        }
    }

    #[test]
    fn a_nonce_is_good_for_a_while() {
        let (proofs, holder) = (proofs(1000), Holder::new());
        let nonce = proofs.nonce(base()).unwrap();
        let accept = |id: &str, now| {
            let proof = holder.proof(id, now, Some(&nonce));
            proofs.accept(&proof, holder.about(true), at(now))
        };
        assert_eq!(accept("at once", base()), Ok(None));
        assert_eq!(accept("at its end", base() + NONCE), Ok(None));
        assert_eq!(accept("too late", base() + NONCE + SECOND), Err(DpopError::Nonce));
        // The clock of the replica that made the nonce may be ahead by as much as that of a client.
        assert_eq!(accept("early", base() - WINDOW), Ok(None));
        assert_eq!(accept("too early", base() - WINDOW - SECOND), Err(DpopError::Nonce));
        let without = holder.proof("without", base(), None);
        assert_eq!(proofs.accept(&without, holder.about(true), at(base())), Err(DpopError::Nonce));
    }

    #[test]
    fn one_key_does_not_use_up_the_room_of_others_nor_does_a_stranger_use_up_its_share() {
        let share = 32;
        let proofs = proofs(share * SHARES);
        let (one, other) = (Holder::new(), Holder::new());
        let accept = |holder: &Holder, id: &str, now| {
            proofs.accept(&holder.proof(id, now, None), holder.about(false), at(now))
        };
        assert_eq!(accept(&one, "0", base()), Ok(None));
        for _ in 0..share {
            assert_eq!(accept(&one, "0", base()), Err(DpopError::Used), "a replay is not counted");
        }
        for n in 1..share {
            assert_eq!(accept(&one, &n.to_string(), base()), Ok(None), "{n}");
        }
        assert_eq!(accept(&one, "more", base()), Err(DpopError::Full));
        assert_eq!(accept(&other, "0", base()), Ok(None));
        let later = base() + WINDOW * 2 + SECOND;
        proofs.sweep(at(later));
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
