//! What everything that reaches out has in common: whom the machine believes, secrets and
//! certificates of our own, and how long things may take.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderName;
use rustls::{ClientConfig, RootCertStore};

use crate::base::clock::Clock;
use crate::base::secret::Secret;
use crate::base::task::Tasks;
use crate::config::quota::Quotas;
use crate::config::settings::{Limits, OwnCertificate, SecretRef, ServerTls, Way};
use crate::crypto::pem::{self, PemError};
use crate::metrics::Metrics;
use crate::net::http_client::Ways;
use crate::net::server_verifier::{Own, Trust};
use crate::outbound::secrets::{self, LiveSecret, ReadOnce, SecretError, SecretStore};

/// Most bytes of an answer of an authorization server.
const ANSWER: usize = 256 * 1024;
/// How long an authorization server may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why something outside cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// A secret is not where it should be.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A certificate or a key cannot be used.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// TLS cannot be set up.
    #[error("could not set up TLS")]
    Tls(#[from] rustls::Error),
    /// A key cannot sign.
    #[error("the key in `{0}` cannot sign")]
    Key(Box<str>),
    /// A secret cannot be sent.
    #[error("the secret from {0} cannot stand in a header")]
    Header(String),
    /// A secret begins with what is put before it in a header.
    #[error(
        "the secret for the header `{name}` begins with `{prefix}`, and `prefix` would put that before it once more: take it \
         out of the secret, or write `prefix: ''`"
    )]
    Repeated {
        /// The header.
        name: HeaderName,
        /// What it begins with.
        prefix: Box<str>,
    },
    /// A URL cannot be used.
    #[error("a URL cannot be used")]
    Url(#[from] crate::net::http_client::FetchError),
}

/// The world outside.
#[derive(Debug)]
pub struct World {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Who does what nobody waits for alone.
    pub tasks: Tasks,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// The secrets that are in use.
    pub secrets: Arc<SecretStore>,
    /// What is shared, and how much of it one may take.
    pub quotas: Arc<Quotas>,
    read: ReadOnce,
    limits: Limits,
    machine: OnceLock<Arc<RootCertStore>>,
}

impl World {
    /// The world at the time of `clock`.
    #[must_use]
    pub fn new(
        clock: Arc<dyn Clock>,
        limits: Limits,
        tasks: Tasks,
        metrics: Arc<Metrics>,
        quotas: Arc<Quotas>,
    ) -> Self {
        let secrets = Arc::new(SecretStore::new(Arc::clone(&clock), Arc::clone(&metrics)));
        let (read, machine) = (ReadOnce::default(), OnceLock::new());
        Self { clock, limits, tasks, metrics, secrets, quotas, read, machine }
    }

    /// The same world, with the secrets of `store`.
    #[must_use]
    pub fn with_secrets(self, store: &Arc<SecretStore>) -> Self {
        Self { secrets: Arc::clone(store), ..self }
    }

    /// A secret that may become another while it is used.
    ///
    /// # Errors
    /// When it is not there, or is empty.
    pub fn live(&self, reference: &SecretRef) -> Result<Arc<LiveSecret>, WorldError> {
        Ok(self.read.hold(&self.secrets, reference)?)
    }

    /// A secret as it is now.
    ///
    /// # Errors
    /// When it is not there, or is empty.
    pub fn secret(&self, reference: &SecretRef) -> Result<Arc<Secret>, WorldError> {
        Ok(self.live(reference)?.now()?)
    }

    /// A secret that can stand in `Authorization` (RFC 6750 section 2.1).
    ///
    /// # Errors
    /// When it is not there, or cannot stand in a header.
    pub fn bearer(&self, reference: &SecretRef) -> Result<Arc<LiveSecret>, WorldError> {
        let live = self.live(reference)?;
        let unusable = || WorldError::Header(secrets::place(reference));
        live.bearer().ok_or_else(unusable)?;
        Ok(live)
    }

    /// How connections to a server are made.
    ///
    /// # Errors
    /// When a certificate or a key cannot be read.
    pub fn tls(&self, settings: &ServerTls) -> Result<Arc<ClientConfig>, WorldError> {
        let trust = Trust {
            roots: settings.authorities.as_deref().map(pem::roots).transpose()?,
            pins: settings.keys.clone(),
            spiffe: settings.spiffe.clone(),
            own: settings.own.as_ref().map(own).transpose()?,
        };
        Ok(trust.config(&self.machine())?)
    }

    /// How an authorization server is reached, with a certificate of our own if one is given.
    ///
    /// # Errors
    /// When a certificate or a key cannot be read.
    pub fn ways(&self, way: &Way, mine: Option<&OwnCertificate>) -> Result<Ways, WorldError> {
        let authorities = way.authorities.clone();
        let tls = ServerTls { authorities, own: mine.cloned(), ..ServerTls::default() };
        Ok(Ways {
            tls: self.tls(&tls)?,
            egress: way.egress.clone(),
            connect_time: self.limits.connect_time,
            time: PATIENCE.min(self.limits.answer_time),
            limit: ANSWER,
        })
    }

    /// The machine's authorities, read when they are first asked for.
    fn machine(&self) -> Arc<RootCertStore> {
        let read = || {
            let mut roots = RootCertStore::empty();
            let found = rustls_native_certs::load_native_certs();
            for error in found.errors {
                tracing::warn!(%error, "trust anchors");
            }
            let (good, bad) = roots.add_parsable_certificates(found.certs);
            tracing::debug!(good, bad, "trust anchors");
            Arc::new(roots)
        };
        Arc::clone(self.machine.get_or_init(read))
    }
}

fn own(files: &OwnCertificate) -> Result<Own, PemError> {
    Ok(Own(pem::identity(&files.certificate, &files.key)?.0))
}
