//! Seals state that a client holds for the gateway and must neither read, forge nor transfer: AES-256-GCM under a key
//! of the gateway, bound to the party and the purpose it was made for (controls C17 and C18, vectors AV-61 to AV-70).
//!
//! There may be several keys: the first one seals and all of them open, so keys can be rotated without invalidating
//! what was sealed before.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::base::random::{self, NoRandomBytes};

/// No random bytes are available, or a key is not 32 bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("could not seal")]
pub struct SealError;

/// Seals and opens values with the configured keys.
pub struct Sealer {
    keys: Vec<(LessSafeKey, hmac::Key)>,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("keys", &self.keys.len()).finish()
    }
}

impl Sealer {
    /// Makes a sealer with these 32-byte keys, or with a new random key if there are none.
    ///
    /// # Errors
    /// If a key has another length, or no random bytes are available.
    pub fn new(keys: &[Vec<u8>]) -> Result<Self, SealError> {
        let fresh = fresh::<32>()?.to_vec();
        let keys = if keys.is_empty() { std::slice::from_ref(&fresh) } else { keys };
        let key = |bytes: &Vec<u8>| {
            let key = UnboundKey::new(&AES_256_GCM, bytes).map_err(|_opaque| SealError)?;
            Ok((LessSafeKey::new(key), hmac::Key::new(hmac::HMAC_SHA256, bytes)))
        };
        Ok(Self { keys: keys.iter().map(key).collect::<Result<_, _>>()? })
    }

    /// Seals `plain` so that it opens only with the same `bound`. The first part of `bound` names the purpose.
    ///
    /// # Errors
    /// If no random bytes are available.
    pub fn seal(&self, bound: &[&[u8]], plain: Vec<u8>) -> Result<String, SealError> {
        self.seal_with(fresh::<NONCE_LEN>()?, bound, plain)
    }

    /// Seals deterministically: equal input gives equal output, for values that clients compare. The nonce is derived
    /// from the input (as in SIV, RFC 5297), so only equal inputs share a nonce.
    ///
    /// # Errors
    /// If there is no key.
    pub fn seal_same(&self, bound: &[&[u8]], plain: Vec<u8>) -> Result<String, SealError> {
        let (_, key) = self.keys.first().ok_or(SealError)?;
        let tag = hmac::sign(key, &[owned(bound), plain.clone()].concat());
        let nonce = tag.as_ref().first_chunk::<NONCE_LEN>().ok_or(SealError)?;
        self.seal_with(*nonce, bound, plain)
    }

    fn seal_with(
        &self,
        nonce: [u8; NONCE_LEN],
        bound: &[&[u8]],
        mut plain: Vec<u8>,
    ) -> Result<String, SealError> {
        let (key, _) = self.keys.first().ok_or(SealError)?;
        let unique = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(unique, owner(bound), &mut plain)
            .map_err(|_opaque| SealError)?;
        Ok(URL_SAFE_NO_PAD.encode([&nonce[..], &plain].concat()))
    }

    /// Opens what was sealed for `bound`; `None` for anything else, without a reason.
    #[must_use]
    pub fn open(&self, bound: &[&[u8]], text: &str) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        self.keys.iter().find_map(|(key, _)| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut sealed = sealed.to_vec();
            let length = key.open_in_place(nonce, owner(bound), &mut sealed).ok()?.len();
            sealed.truncate(length);
            Some(sealed)
        })
    }
}

/// Random bytes for a key or a nonce.
fn fresh<const N: usize>() -> Result<[u8; N], SealError> {
    random::bytes().map_err(|NoRandomBytes| SealError)
}

/// Encodes every part with its length before it, so that no two lists of parts have the same bytes.
fn owner(bound: &[&[u8]]) -> Aad<Vec<u8>> {
    Aad::from(owned(bound))
}

fn owned(bound: &[&[u8]]) -> Vec<u8> {
    let mut all = Vec::with_capacity(128);
    for part in bound {
        all.extend_from_slice(&(part.len() as u64).to_be_bytes());
        all.extend_from_slice(part);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::Sealer;

    #[test]
    fn what_is_sealed_opens_for_its_owner_alone() {
        let (old, new) = (vec![1; 32], vec![2; 32]);
        let sealer = Sealer::new(std::slice::from_ref(&old)).unwrap();
        let text = sealer.seal(&[b"task", b"ana"], b"7".to_vec()).unwrap();
        assert_eq!(sealer.open(&[b"task", b"ana"], &text).unwrap(), b"7");
        for bound in [&[&b"task"[..], b"bob"][..], &[b"cursor", b"ana"], &[b"taska", b"na"], &[]] {
            assert_eq!(sealer.open(bound, &text), None);
        }
        let rotated = Sealer::new(&[new.clone(), old]).unwrap();
        assert!(rotated.open(&[b"task", b"ana"], &text).is_some());
        let same = || sealer.seal_same(&[b"task", b"ana"], b"7".to_vec()).unwrap();
        assert_eq!(same(), same());
        assert_ne!(same(), sealer.seal_same(&[b"task", b"bob"], b"7".to_vec()).unwrap());
        assert_eq!(sealer.open(&[b"task", b"ana"], &same()).unwrap(), b"7");
        assert!(Sealer::new(&[new]).unwrap().open(&[b"task", b"ana"], &text).is_none());
    }

    #[test]
    fn a_changed_character_anywhere_does_not_open() {
        let sealer = Sealer::new(&[]).unwrap();
        let text = sealer.seal(&[b"x"], b"state".to_vec()).unwrap();
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(sealer.open(&[b"x"], &changed), None, "{at}");
            assert_eq!(sealer.open(&[b"x"], text.get(..at).unwrap()), None);
        }
    }
}
