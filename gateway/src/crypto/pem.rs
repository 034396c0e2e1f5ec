//! Certificates and keys in files, as they are given in the configuration.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::base::file;
use crate::crypto::x509::{Leaf, X509Error};

/// Longest file that is read: a bundle of a few hundred authorities.
const LONGEST: u64 = 4 * 1024 * 1024;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// It is not there, or may not be read.
    #[error("could not read `{0}`: {1}")]
    Read(Box<str>, #[source] io::Error),
    /// It is longer than any certificate.
    #[error("`{0}` is longer than {LONGEST} bytes")]
    Long(Box<str>),
    /// There is no certificate in it, or one that is broken.
    #[error("`{0}` has no certificates in PEM")]
    NoCertificate(Box<str>),
    /// There is no key in it, or one that is broken.
    #[error("`{0}` has no private key in PEM")]
    NoKey(Box<str>),
    /// The key is of a kind that is not used, or belongs to another certificate.
    #[error("the key in `{0}` does not belong to the certificate")]
    Mismatch(Box<str>),
    /// A certificate of an authority cannot be used.
    #[error("`{0}` has a certificate that cannot be trusted as an authority")]
    Authority(Box<str>),
    /// A certificate cannot be read.
    #[error("a certificate in `{0}` cannot be used: {1}")]
    Certificate(Box<str>, #[source] X509Error),
}

/// The text of a file that is not too long.
///
/// # Errors
/// When it cannot be read.
pub fn text(path: &Path) -> Result<Vec<u8>, PemError> {
    let name = || Box::from(path.display().to_string());
    file::read(path, LONGEST).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => PemError::Long(name()),
        _ => PemError::Read(name(), error),
    })
}

/// The certificates in a file, at least one.
///
/// # Errors
/// When it cannot be read or has none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let missing = || PemError::NoCertificate(path.display().to_string().into());
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text(path)?).collect();
    read.ok().filter(|found| !found.is_empty()).ok_or_else(missing)
}

/// The private key in a file.
///
/// # Errors
/// When it cannot be read or has none.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, PemError> {
    let missing = |_| PemError::NoKey(path.display().to_string().into());
    PrivateKeyDer::from_pem_slice(&text(path)?).map_err(missing)
}

/// The authorities in a file.
///
/// # Errors
/// When it cannot be read, or one in it is no authority.
pub fn roots(path: &Path) -> Result<Arc<RootCertStore>, PemError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let unusable = |_| PemError::Authority(path.display().to_string().into());
        roots.add(certificate).map_err(unusable)?;
    }
    Ok(Arc::new(roots))
}

/// A certificate with its chain and its key, and what the certificate says.
///
/// # Errors
/// When a file cannot be read, or the two do not belong together.
pub fn identity(chain: &Path, secret: &Path) -> Result<(Arc<CertifiedKey>, Leaf), PemError> {
    let certificates = certificates(chain)?;
    let unusable = |error| PemError::Certificate(chain.display().to_string().into(), error);
    let leaf = certificates.first().map_or(&[] as &[u8], |first| first.as_ref());
    let read = Leaf::read(leaf).map_err(unusable)?;
    let mismatch = |_| PemError::Mismatch(secret.display().to_string().into());
    let key = default_provider().key_provider.load_private_key(key(secret)?).map_err(mismatch)?;
    let identity = CertifiedKey::new(certificates, key);
    identity.keys_match().map_err(mismatch)?;
    Ok((Arc::new(identity), read))
}
