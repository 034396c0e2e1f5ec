//! Authorities and certificates of a test, made anew each time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints, SanType, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::gateway::Folder;

/// An authority and the files it made.
#[derive(Debug)]
pub struct Pki {
    folder: Folder,
    issuer: CertifiedIssuer<'static, KeyPair>,
    count: AtomicUsize,
}

/// What a certificate is to be like.
#[derive(Clone, Debug, Default)]
pub struct Leaf {
    /// Names of hosts.
    pub dns: Vec<String>,
    /// URIs.
    pub uris: Vec<String>,
    /// It ended long ago.
    pub ended: bool,
    /// It may issue others.
    pub authority: bool,
    /// What it may be used for; clients and servers if nothing is said.
    pub usage: Option<ExtendedKeyUsagePurpose>,
    /// When it ends, as a point in time after now, in seconds.
    pub seconds: Option<i64>,
}

impl Leaf {
    /// One for a host on loopback.
    #[must_use]
    pub fn local() -> Self {
        Self { dns: vec!["localhost".into()], ..Self::default() }
    }

    /// One with a URI.
    #[must_use]
    pub fn uri(uri: &str) -> Self {
        Self { uris: vec![uri.into()], ..Self::default() }
    }
}

/// The files of a certificate and its key.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}

impl Files {
    /// As rustls takes them.
    ///
    /// # Panics
    /// When they are not there.
    #[must_use]
    pub fn read(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let chain = CertificateDer::pem_file_iter(&self.certificate).unwrap();
        let chain = chain.collect::<Result<_, _>>().unwrap();
        (chain, PrivateKeyDer::from_pem_file(&self.key).unwrap())
    }

    /// The digest tokens are bound to.
    ///
    /// # Panics
    /// When the file is not there.
    #[must_use]
    pub fn thumbprint(&self) -> String {
        let (chain, _) = self.read();
        URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, &chain[0]))
    }

    /// Takes the place of other files, as a tool that renews certificates does.
    ///
    /// # Panics
    /// When it cannot.
    pub fn replace(&self, other: &Self) {
        fs::copy(&self.key, &other.key).unwrap();
        fs::copy(&self.certificate, &other.certificate).unwrap();
    }
}

impl Pki {
    /// An authority of this name.
    ///
    /// # Panics
    /// When the machine cannot make a key.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::constrained(name, &[])
    }

    /// An authority of this name that may vouch for hosts under these domains alone.
    ///
    /// # Panics
    /// When the machine cannot make a key.
    #[must_use]
    pub fn constrained(name: &str, domains: &[&str]) -> Self {
        let mut params = CertificateParams::default();
        if !domains.is_empty() {
            let subtree = |domain: &&str| GeneralSubtree::DnsName((*domain).to_owned());
            params.name_constraints = Some(NameConstraints {
                permitted_subtrees: domains.iter().map(subtree).collect(),
                excluded_subtrees: Vec::new(),
            });
        }
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = Folder::new();
        fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer, count: AtomicUsize::new(0) }
    }

    /// The file with its own certificate.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The same, as part of a configuration.
    #[must_use]
    pub fn path(&self) -> String {
        self.file().display().to_string()
    }

    /// A folder for other files of the test.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its own certificate, to be believed.
    ///
    /// # Panics
    /// Never, unless it was made wrong.
    #[must_use]
    pub fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        Arc::new(roots)
    }

    /// A certificate.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn issue(&self, leaf: &Leaf) -> Files {
        let mut params = CertificateParams::default();
        let dns = leaf.dns.iter().map(|name| SanType::DnsName(name.as_str().try_into().unwrap()));
        let uris = leaf.uris.iter().map(|uri| SanType::URI(uri.as_str().try_into().unwrap()));
        params.subject_alt_names = dns.chain(uris).collect();
        if leaf.dns.iter().any(|name| name == "localhost") {
            let loopback = std::net::IpAddr::from([127, 0, 0, 1]);
            params.subject_alt_names.push(SanType::IpAddress(loopback));
        }
        if leaf.ended {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        if let Some(seconds) = leaf.seconds {
            #[expect(
                clippy::disallowed_methods,
                reason = "certificates are compared with real time"
            )]
            let now = std::time::SystemTime::now();
            params.not_after =
                (now + std::time::Duration::from_secs(seconds.unsigned_abs())).into();
        }
        if leaf.authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let both = [ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        params.extended_key_usages = match &leaf.usage {
            Some(usage) => vec![usage.clone()],
            None => both.to_vec(),
        };
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let path = |what: &str| self.folder.path().join(format!("{count}-{what}.pem"));
        let files = Files { certificate: path("certificate"), key: path("key") };
        fs::write(&files.certificate, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }
}
