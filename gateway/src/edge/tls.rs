//! TLS of the listeners: the server certificate, verification of client certificates, and reload of changed files
//! without closing connections.
//!
//! RFC 8446, RFC 8705 section 2, SPIFFE X509-SVID section 5; vectors AV-40 to AV-45. Early data is never accepted, and
//! sessions are not resumed where client certificates are requested: every connection presents its certificate.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{Context, SHA256};
use policy_core::subject::pattern::Pattern;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::settings::{ClientCertSettings, ListenerTls};
use crate::crypto::pem::{self, PemError};
use crate::crypto::x509::{CertificateAnchor, LeafCertificate, VerifiedCertificate};
use crate::identity::is_named;
use crate::net::handshake_bound::{HANDSHAKE, HANDSHAKE_WITH_CERTIFICATE, HandshakeBound};
use crate::net::http2;
use crate::net::server_verifier::refused;

/// How often the certificate files are checked for changes.
pub const WATCH: Duration = Duration::from_secs(2);

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM file cannot be used.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The server certificate has expired.
    #[error("the certificate has ended")]
    Ended,
    /// The certificate authorities for clients cannot be used.
    #[error("the authorities cannot be used")]
    Verifier(#[from] VerifierBuilderError),
    /// rustls rejects the certificate or the protocol versions.
    #[error("TLS cannot be set up")]
    Setup(#[from] rustls::Error),
}

/// The TLS of one listener.
pub struct Acceptor {
    settings: ListenerTls,
    current: ArcSwap<LoadedTls>,
    /// Digest of the files that were read last, including those that could not be used.
    seen: Mutex<[u8; 32]>,
}

struct LoadedTls {
    config: Arc<ServerConfig>,
    /// Verifier of client certificates, if the listener requests them.
    clients: Option<Arc<ClientVerifier>>,
    ends: SystemTime,
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Acceptor {
    /// Sets TLS up with the current files of `settings`.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub fn new(settings: &ListenerTls, now: SystemTime) -> Result<Self, TlsError> {
        let seen = Mutex::new(fingerprint(settings)?);
        let current = ArcSwap::from_pointee(current(settings, now)?);
        Ok(Self { settings: settings.clone(), current, seen })
    }

    /// Does the TLS handshake with a client and returns the client certificate it presented, if any.
    ///
    /// # Errors
    /// If the handshake fails or the client certificate is not accepted.
    pub async fn accept<S>(
        &self,
        stream: S,
    ) -> io::Result<(TlsStream<HandshakeBound<S>>, Option<Arc<VerifiedCertificate>>)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        // The handshake and the check after it use the same trust anchors, even if the files change in between.
        let current = self.current.load_full();
        let most = match &current.clients {
            None => HANDSHAKE,
            Some(_) => HANDSHAKE_WITH_CERTIFICATE,
        };
        let stream = HandshakeBound::new(stream, most);
        let mut stream = TlsAcceptor::from(Arc::clone(&current.config)).accept(stream).await?;
        stream.get_mut().0.complete();
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let vouched = shown.zip(current.clients.as_ref());
        let vouched = vouched.map(|(leaf, clients)| clients.vouched(leaf).map(Arc::new));
        let certificate = vouched
            .transpose()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok((stream, certificate))
    }

    /// Loads changed files, and returns whether there were any. Open connections are not affected.
    ///
    /// # Errors
    /// If the new files cannot be used; the previous ones stay in use.
    pub fn renew(&self, now: SystemTime) -> Result<bool, TlsError> {
        let fingerprint = fingerprint(&self.settings)?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == fingerprint {
            return Ok(false);
        }
        // Remembered even if unusable, so that the error is reported once per change.
        *seen = fingerprint;
        self.current.store(Arc::new(current(&self.settings, now)?));
        Ok(true)
    }

    /// When the server certificate expires, in seconds since 1970.
    #[must_use]
    pub fn ends(&self) -> u64 {
        let ends = self.current.load().ends;
        ends.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

/// Whether the handshake negotiated HTTP/2.
#[must_use]
pub fn is_http2<S>(stream: &TlsStream<S>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(http2::ALPN)
}

fn files(settings: &ListenerTls) -> impl Iterator<Item = &std::path::Path> {
    let clients = settings.clients.as_ref();
    let own = [&settings.own.certificate, &settings.own.key];
    let authorities = clients.and_then(|clients| clients.authorities.as_ref());
    let bundles = clients.map_or(&[] as &[_], |clients| &clients.domains);
    let bundles = bundles.iter().map(|(_, bundle)| bundle);
    own.into_iter().chain(authorities).chain(bundles).map(|path| path.as_path())
}

fn fingerprint(settings: &ListenerTls) -> Result<[u8; 32], PemError> {
    let mut context = Context::new(&SHA256);
    for path in files(settings) {
        let text = pem::text(path)?;
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(&text);
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    Ok(digest)
}

fn current(settings: &ListenerTls, now: SystemTime) -> Result<LoadedTls, TlsError> {
    let (identity, read) = pem::identity(&settings.own.certificate, &settings.own.key)?;
    if read.ends <= now {
        return Err(TlsError::Ended);
    }
    let versions: &[_] = if settings.allows_tls12 { &[&TLS13, &TLS12] } else { &[&TLS13] };
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)?;
    let clients =
        settings.clients.as_ref().map(|clients| ClientVerifier::new(clients).map(Arc::new));
    let clients = clients.transpose()?;
    let builder = match &clients {
        None => builder.with_no_client_auth(),
        Some(clients) => builder.with_client_cert_verifier(Arc::<ClientVerifier>::clone(clients)),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertificate(identity)));
    let offered: &[&[u8]] =
        if settings.http2 { &[http2::ALPN, http2::ALPN_OLD] } else { &[http2::ALPN_OLD] };
    config.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
    config.max_early_data_size = 0;
    if clients.is_some() {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(LoadedTls { config: Arc::new(config), clients, ends: read.ends })
}

/// Presents the same certificate for every server name.
#[derive(Debug)]
struct SingleCertificate(Arc<rustls::sign::CertifiedKey>);

impl rustls::server::ResolvesServerCert for SingleCertificate {
    fn resolve(
        &self,
        _: rustls::server::ClientHello<'_>,
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// Why a valid certificate may not connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum UnacceptedCertificate {
    #[error("the certificate has none of the names that may connect")]
    Name,
    #[error("the trust domain is not one that is believed")]
    Domain,
    #[error("the key of the certificate does not sign")]
    Usage,
}

/// The trust anchors of one source, with their verifier.
#[derive(Debug)]
struct Anchors {
    anchor: CertificateAnchor,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Anchors {
    fn new(anchor: CertificateAnchor, file: &std::path::Path) -> Result<Self, TlsError> {
        let provider = Arc::new(default_provider());
        let roots = pem::roots(file)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build()?;
        Ok(Self { anchor, verifier })
    }
}

/// Verifies client certificates against the authorities of the listener. A SPIFFE ID is verified against the bundle of
/// its own trust domain alone, so that one domain cannot issue identities of another.
#[derive(Debug)]
struct ClientVerifier {
    plain: Option<Anchors>,
    domains: BTreeMap<Box<str>, Anchors>,
    names: Option<Vec<Pattern>>,
    required: bool,
    hints: Vec<DistinguishedName>,
}

impl ClientVerifier {
    fn new(clients: &ClientCertSettings) -> Result<Self, TlsError> {
        let plain = clients.authorities.as_deref();
        let plain =
            plain.map(|file| Anchors::new(CertificateAnchor::Authorities, file)).transpose()?;
        let mut domains = BTreeMap::new();
        for (domain, bundle) in &clients.domains {
            let anchors = Anchors::new(CertificateAnchor::TrustDomain(domain.clone()), bundle)?;
            domains.insert(domain.clone(), anchors);
        }
        let all = plain.iter().chain(domains.values());
        let hints = all.flat_map(|one| one.verifier.root_hint_subjects().to_vec()).collect();
        let (names, required) = (clients.names.clone(), clients.required);
        Ok(Self { plain, domains, names, required, hints })
    }

    /// Any of the verifiers: signature checks do not depend on the anchors.
    fn any(&self) -> Result<&Arc<dyn ClientCertVerifier>, rustls::Error> {
        let first = self.plain.as_ref().or_else(|| self.domains.values().next());
        let first = first.map(|anchors| &anchors.verifier);
        first.ok_or_else(|| rustls::Error::General("no authorities".to_owned()))
    }

    /// The only anchors that may verify `leaf`. They depend on the certificate alone, so the handshake and the check
    /// after it use the same ones.
    fn anchors(&self, leaf: &LeafCertificate) -> Result<&Anchors, rustls::Error> {
        match leaf.spiffe().map_err(refused)? {
            Some(id) if !self.domains.is_empty() => self
                .domains
                .get(id.trust_domain())
                .ok_or_else(|| refused(UnacceptedCertificate::Domain)),
            Some(_) | None => {
                self.plain.as_ref().ok_or_else(|| CertificateError::UnknownIssuer.into())
            }
        }
    }

    /// The identity in a certificate that was verified in the handshake.
    fn vouched(&self, leaf: &CertificateDer<'_>) -> Result<VerifiedCertificate, rustls::Error> {
        let read = LeafCertificate::read(leaf).map_err(refused)?;
        let anchor = self.anchors(&read)?.anchor.clone();
        read.vouched_by(anchor).map_err(refused)
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let read = LeafCertificate::read(leaf).map_err(refused)?;
        let Anchors { anchor, verifier } = self.anchors(&read)?;
        let verified = verifier.verify_client_cert(leaf, chain, now)?;
        if !read.signs {
            return Err(refused(UnacceptedCertificate::Usage));
        }
        let vouched = read.vouched_by(anchor.clone()).map_err(refused)?;
        if self.names.as_ref().is_some_and(|names| !is_named(&vouched, names)) {
            return Err(refused(UnacceptedCertificate::Name));
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.any()?.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.any()?.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.any().map(|one| one.supported_verify_schemes()).unwrap_or_default()
    }
}
