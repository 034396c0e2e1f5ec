//! SHA-256 in one call, mainly to derive keys and names from content.

use aws_lc_rs::digest::{SHA256, digest};

/// The SHA-256 digest of `bytes` (FIPS 180-4).
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}
