//! Loads the certificates and keys in PEM that the configuration names.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::base::file;
use crate::crypto::x509::{LeafCertificate, X509Error};

/// Maximum length of a file, in bytes: enough for a bundle of a few hundred authorities.
const MAX_FILE: u64 = 4 * 1024 * 1024;

/// The reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// It is missing or not readable.
    #[error("could not read `{0}`: {1}")]
    Read(Box<str>, #[source] io::Error),
    /// It is longer than the limit.
    #[error("`{0}` is longer than {MAX_FILE} bytes")]
    Long(Box<str>),
    /// It has no certificate, or a broken one.
    #[error("`{0}` has no certificates in PEM")]
    NoCertificate(Box<str>),
    /// It has no private key, or a broken one.
    #[error("`{0}` has no private key in PEM")]
    NoKey(Box<str>),
    /// The key is of an unsupported type, or belongs to another certificate.
    #[error("the key in `{0}` does not belong to the certificate")]
    Mismatch(Box<str>),
    /// A certificate cannot be used as a trust anchor.
    #[error("`{0}` has a certificate that cannot be trusted as an authority")]
    Authority(Box<str>),
    /// A certificate cannot be parsed.
    #[error("a certificate in `{0}` cannot be used: {1}")]
    Certificate(Box<str>, #[source] X509Error),
}

/// Reads a file up to the maximum length.
///
/// # Errors
/// If it cannot be read or is too long.
pub fn text(path: &Path) -> Result<Vec<u8>, PemError> {
    let name = || Box::from(path.display().to_string());
    file::read(path, MAX_FILE).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => PemError::Long(name()),
        _ => PemError::Read(name(), error),
    })
}

/// Reads the certificates in a file, at least one.
///
/// # Errors
/// If it cannot be read or has none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let missing = || PemError::NoCertificate(path.display().to_string().into());
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text(path)?).collect();
    read.ok().filter(|found| !found.is_empty()).ok_or_else(missing)
}

/// Reads the private key in a file.
///
/// # Errors
/// If it cannot be read or has none.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, PemError> {
    let missing = |_| PemError::NoKey(path.display().to_string().into());
    PrivateKeyDer::from_pem_slice(&text(path)?).map_err(missing)
}

/// Reads the trust anchors in a file.
///
/// # Errors
/// If it cannot be read, or a certificate in it cannot be an authority.
pub fn roots(path: &Path) -> Result<Arc<RootCertStore>, PemError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let unusable = |_| PemError::Authority(path.display().to_string().into());
        roots.add(certificate).map_err(unusable)?;
    }
    Ok(Arc::new(roots))
}

/// Reads a certificate chain and its private key, and parses the leaf certificate.
///
/// # Errors
/// If a file cannot be read, or the key does not belong to the certificate.
pub fn identity(
    chain: &Path,
    secret: &Path,
) -> Result<(Arc<CertifiedKey>, LeafCertificate), PemError> {
    let certificates = certificates(chain)?;
    let unusable = |error| PemError::Certificate(chain.display().to_string().into(), error);
    let leaf = certificates.first().map_or(&[] as &[u8], |first| first.as_ref());
    let read = LeafCertificate::read(leaf).map_err(unusable)?;
    let mismatch = |_| PemError::Mismatch(secret.display().to_string().into());
    let key = default_provider().key_provider.load_private_key(key(secret)?).map_err(mismatch)?;
    let identity = CertifiedKey::new(certificates, key);
    identity.keys_match().map_err(mismatch)?;
    Ok((Arc::new(identity), read))
}
