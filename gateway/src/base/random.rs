//! Unpredictable bytes, of the generator of aws-lc, which the operating system seeds.

use aws_lc_rs::rand;

/// The operating system gave no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gives no random bytes")]
pub struct NoRandomBytes;

/// `N` random bytes, good enough for keys and for names that nobody may guess.
///
/// # Errors
/// [`NoRandomBytes`] where the generator cannot be seeded.
pub fn bytes<const N: usize>() -> Result<[u8; N], NoRandomBytes> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_opaque| NoRandomBytes)?;
    Ok(bytes)
}
