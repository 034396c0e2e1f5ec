//! Cryptographically secure random bytes from aws-lc, which the operating system seeds.

use aws_lc_rs::rand;

/// The random number generator failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gives no random bytes")]
pub struct NoRandomBytes;

/// Returns `N` random bytes, suitable for keys and for unguessable identifiers.
///
/// # Errors
/// [`NoRandomBytes`] if the generator cannot be seeded.
pub fn bytes<const N: usize>() -> Result<[u8; N], NoRandomBytes> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_opaque| NoRandomBytes)?;
    Ok(bytes)
}
