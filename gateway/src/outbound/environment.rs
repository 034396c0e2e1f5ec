//! The shared environment of all outgoing connections: clock, tasks, metrics, secrets, trust anchors and time limits.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderName;
use rustls::{ClientConfig, RootCertStore};

use crate::base::clock::Clock;
use crate::base::secret::Secret;
use crate::base::task::Tasks;
use crate::config::quota::Quotas;
use crate::config::settings::{
    ConnectionSettings, GatewayCertificate, Limits, SecretRef, ServerTls,
};
use crate::crypto::pem::{self, PemError};
use crate::mcp::gateway_path::GatewayId;
use crate::metrics::Metrics;
use crate::net::http_client::HttpClientSettings;
use crate::net::server_verifier::{ClientCertificate, ServerTrust};
use crate::outbound::secrets::{self, ConfigSecrets, LiveSecret, SecretError, SecretStore};

/// The maximum size of a response from an authorization server, in bytes.
const ANSWER: usize = 256 * 1024;
/// The time limit for a request to an authorization server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a secret, a key or the TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// A secret cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A certificate or a key cannot be read.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// TLS cannot be set up.
    #[error("could not set up TLS")]
    Tls(#[from] rustls::Error),
    /// The key in this file cannot sign.
    #[error("the key in `{0}` cannot sign")]
    Key(Box<str>),
    /// The secret from this source is not valid in a header.
    #[error("the secret from {0} contains characters not allowed in a header")]
    Header(String),
    /// A secret begins with the prefix that is configured for its header.
    #[error(
        "the secret for the header `{name}` begins with `{prefix}`, and `prefix` would put that before it once more: take it \
         out of the secret, or write `prefix: ''`"
    )]
    Repeated {
        /// The header that carries the secret.
        name: HeaderName,
        /// The prefix that the secret repeats.
        prefix: Box<str>,
    },
    /// The URL cannot be used.
    #[error("a URL cannot be used")]
    Url(#[from] crate::net::http_client::FetchError),
}

/// The environment that outgoing connections share.
#[derive(Debug)]
pub struct Environment {
    /// The source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Spawns background tasks that end with the gateway.
    pub tasks: Tasks,
    /// The metrics that outgoing requests update.
    pub metrics: Arc<Metrics>,
    /// The secrets in use.
    pub secrets: Arc<SecretStore>,
    /// Shared budgets, and the share of each caller.
    pub quotas: Arc<Quotas>,
    /// The id of the gateway in the path of requests.
    pub gateway_id: GatewayId,
    read: ConfigSecrets,
    limits: Limits,
    machine: OnceLock<Arc<RootCertStore>>,
}

impl Environment {
    /// An environment with an empty secret store.
    #[must_use]
    pub fn new(
        clock: Arc<dyn Clock>,
        limits: Limits,
        tasks: Tasks,
        metrics: Arc<Metrics>,
        quotas: Arc<Quotas>,
    ) -> Self {
        let secrets = Arc::new(SecretStore::new(Arc::clone(&clock), Arc::clone(&metrics)));
        let (read, machine) = (ConfigSecrets::default(), OnceLock::new());
        let gateway_id = GatewayId::default();
        Self { clock, limits, tasks, metrics, secrets, quotas, gateway_id, read, machine }
    }

    /// The same environment of the gateway with this id.
    #[must_use]
    pub fn with_gateway_id(self, gateway_id: GatewayId) -> Self {
        Self { gateway_id, ..self }
    }

    /// The same environment with the secret store `store`.
    #[must_use]
    pub fn with_secrets(self, store: &Arc<SecretStore>) -> Self {
        Self { secrets: Arc::clone(store), ..self }
    }

    /// A secret whose value may change while it is used.
    ///
    /// # Errors
    /// If it cannot be read, or is empty.
    pub fn live(&self, reference: &SecretRef) -> Result<Arc<LiveSecret>, EnvironmentError> {
        Ok(self.read.hold(&self.secrets, reference)?)
    }

    /// The current value of a secret.
    ///
    /// # Errors
    /// If it cannot be read, or is empty.
    pub fn secret(&self, reference: &SecretRef) -> Result<Arc<Secret>, EnvironmentError> {
        Ok(self.live(reference)?.now()?)
    }

    /// A secret that is valid as a bearer token in `Authorization` (RFC 6750 section 2.1).
    ///
    /// # Errors
    /// If it cannot be read, or is not valid in a header.
    pub fn bearer(&self, reference: &SecretRef) -> Result<Arc<LiveSecret>, EnvironmentError> {
        let live = self.live(reference)?;
        let unusable = || EnvironmentError::Header(secrets::place(reference));
        live.bearer().ok_or_else(unusable)?;
        Ok(live)
    }

    /// The TLS configuration for connections to a server.
    ///
    /// # Errors
    /// If a certificate or a key cannot be read.
    pub fn tls(&self, settings: &ServerTls) -> Result<Arc<ClientConfig>, EnvironmentError> {
        let trust = ServerTrust {
            roots: settings.authorities.as_deref().map(pem::roots).transpose()?,
            pins: settings.keys.clone(),
            spiffe: settings.spiffe.clone(),
            own: settings.own.as_ref().map(own).transpose()?,
        };
        Ok(trust.config(&self.machine())?)
    }

    /// The connection settings for an authorization server or a guardrail, with the client certificate `mine` if
    /// there is one.
    ///
    /// # Errors
    /// If a certificate or a key cannot be read.
    pub fn ways(
        &self,
        way: &ConnectionSettings,
        mine: Option<&GatewayCertificate>,
    ) -> Result<HttpClientSettings, EnvironmentError> {
        let authorities = way.authorities.clone();
        let tls = ServerTls { authorities, own: mine.cloned(), ..ServerTls::default() };
        Ok(HttpClientSettings {
            tls: self.tls(&tls)?,
            egress: way.egress.clone(),
            connect_timeout: self.limits.connect_timeout,
            time: PATIENCE.min(self.limits.response_timeout),
            limit: ANSWER,
        })
    }

    /// The trust anchors of the operating system, loaded on first use.
    fn machine(&self) -> Arc<RootCertStore> {
        let read = || {
            let mut roots = RootCertStore::empty();
            let found = rustls_native_certs::load_native_certs();
            for error in found.errors {
                tracing::warn!(
                    event = "tls.trust_anchors_unreadable", %error,
                    "trust anchors of the operating system could not be read"
                );
            }
            let (good, bad) = roots.add_parsable_certificates(found.certs);
            tracing::debug!(good, bad, "trust anchors loaded");
            Arc::new(roots)
        };
        Arc::clone(self.machine.get_or_init(read))
    }
}

fn own(files: &GatewayCertificate) -> Result<ClientCertificate, PemError> {
    Ok(ClientCertificate(pem::identity(&files.certificate, &files.key)?.0))
}
