//! Verifies TLS servers: against the certificate authorities of the machine or configured ones, and
//! optionally against pinned keys or a SPIFFE ID (control C21, vector AV-51).
//!
//! Every configured check must succeed: a valid certificate alone is not enough where a pin or a SPIFFE ID
//! is required.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ResolvesClientCert, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};

use crate::crypto::x509::{LeafCertificate, SpiffeId};

/// The requirements on a server's certificate, and the client certificate for it.
#[derive(Clone, Debug, Default)]
pub struct ServerTrust {
    /// The accepted authorities; `None`: those of the machine.
    pub roots: Option<Arc<RootCertStore>>,
    /// SHA-256 digests of the accepted keys; empty: any key.
    pub pins: Vec<[u8; 32]>,
    /// The required SPIFFE ID, which replaces the check of the host name.
    pub spiffe: Option<SpiffeId>,
    /// The certificate that is presented when the server requests one.
    pub own: Option<ClientCertificate>,
}

/// The gateway's client certificate with its key.
#[derive(Clone)]
pub struct ClientCertificate(pub Arc<CertifiedKey>);

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Own(..)")
    }
}

/// A valid certificate of an unexpected server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnexpectedServer {
    /// Its key is not among the pinned ones.
    #[error("the key of the server is not one that was pinned")]
    Key,
    /// Its SPIFFE ID is not the required one.
    #[error("the server has another SPIFFE ID")]
    Spiffe,
}

impl ServerTrust {
    /// The TLS client configuration for these requirements; `machine` has the authorities of the machine.
    ///
    /// # Errors
    /// When no configuration can be built.
    pub fn config(&self, machine: &Arc<RootCertStore>) -> Result<Arc<ClientConfig>, rustls::Error> {
        let provider = Arc::new(default_provider());
        let roots = Arc::clone(self.roots.as_ref().unwrap_or(machine));
        let plain =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        // Without authorities every handshake fails, but the configuration itself is valid.
        let plain = if roots.is_empty() { None } else { plain.build().ok() };
        let verifier = ServerVerifier {
            plain,
            roots,
            pins: self.pins.clone(),
            spiffe: self.spiffe.clone(),
            algorithms: provider.signature_verification_algorithms,
        };
        let builder =
            builder(provider)?.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &self.own {
            Some(own) => builder.with_client_cert_resolver(Arc::new(FixedClientCert(own.clone()))),
            None => builder.with_no_client_auth(),
        };
        config.enable_early_data = false;
        Ok(Arc::new(config))
    }
}

fn builder(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
}

/// Presents one certificate to every server that requests one.
#[derive(Debug)]
struct FixedClientCert(ClientCertificate);

impl ResolvesClientCert for FixedClientCert {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct ServerVerifier {
    plain: Option<Arc<WebPkiServerVerifier>>,
    roots: Arc<RootCertStore>,
    pins: Vec<[u8; 32]>,
    spiffe: Option<SpiffeId>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        match &self.spiffe {
            None => {
                let plain = self.plain.as_ref().ok_or(unknown)?;
                plain.verify_server_cert(leaf, chain, name, ocsp, now)?;
            }
            // A workload is identified by its SPIFFE ID; its certificate need not contain the host name.
            Some(_) => {
                let parsed = ParsedCertificate::try_from(leaf)?;
                let algorithms = self.algorithms.all;
                verify_server_cert_signed_by_trust_anchor(
                    &parsed,
                    &self.roots,
                    chain,
                    now,
                    algorithms,
                )?;
            }
        }
        if self.pins.is_empty() && self.spiffe.is_none() {
            return Ok(ServerCertVerified::assertion());
        }
        let read = LeafCertificate::read(leaf);
        let read = read.map_err(|_wrong| rustls::Error::from(CertificateError::BadEncoding))?;
        if !self.pins.is_empty() && !self.pins.contains(&read.key) {
            return Err(refused(UnexpectedServer::Key));
        }
        if let Some(wanted) = &self.spiffe
            && read.spiffe().ok().flatten().as_ref() != Some(wanted)
        {
            return Err(refused(UnexpectedServer::Spiffe));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, leaf, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, leaf, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A handshake error with a reason of the gateway's own, which appears in the log.
pub(crate) fn refused(error: impl std::error::Error + Send + Sync + 'static) -> rustls::Error {
    CertificateError::Other(OtherError(Arc::new(error))).into()
}
