//! Listeners as written.

use schemars::JsonSchema;
use serde::Deserialize;

/// A socket that clients connect to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawListener {
    /// Its name in logs and metrics.
    pub(in crate::config::settings) name: String,
    /// Address and port; `localhost` or an IP address. Port 0 takes a free one.
    #[serde(default = "default_address")]
    pub(in crate::config::settings) address: String,
    /// The ways to authenticate here, in the order they are tried.
    pub(in crate::config::settings) authentication: Vec<RawScheme>,
    /// Names that clients call this listener by in `Host`. A loopback listener answers to the
    /// loopback names anyway.
    #[serde(default)]
    pub(in crate::config::settings) hosts: Vec<String>,
    /// Web origins whose pages may call this listener, such as `https://app.example.com`.
    #[serde(default)]
    pub(in crate::config::settings) origins: Vec<String>,
    /// What clients put before the path of a route: `https://gateway.example.com`. Tokens are made
    /// for such a URL, and clients are told it. If not given on a loopback listener: its address.
    pub(in crate::config::settings) public_url: Option<String>,
    /// TLS. Without it clients speak plain HTTP.
    pub(in crate::config::settings) tls: Option<RawTls>,
    /// Certificates of clients, told by a proxy that ends TLS in front of this listener.
    pub(in crate::config::settings) forwarded_certificate: Option<RawForwarded>,
}

fn default_address() -> String {
    "127.0.0.1:8080".to_owned()
}

/// A way to authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum RawScheme {
    /// An access token of one of the issuers, in `Authorization: Bearer` or `DPoP`.
    Oauth,
    /// A certificate that `identity.certificates` knows.
    Certificate,
    /// A key in `Authorization: Bearer` or `X-API-Key`.
    ApiKey,
    /// No credential. Only on a loopback listener.
    Anonymous,
}

/// TLS of a listener.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawTls {
    /// The certificate, with its chain, in PEM. Read again when the file changes.
    pub(in crate::config::settings) certificate: String,
    /// Its private key, in PEM. Read again when the file changes.
    pub(in crate::config::settings) key: String,
    /// The oldest version that is spoken.
    #[serde(default)]
    pub(in crate::config::settings) minimum_version: RawTlsVersion,
    /// Certificates of clients. Without it none is asked for.
    pub(in crate::config::settings) clients: Option<RawClients>,
    /// Whether clients may choose HTTP/2. Default `true`; without it HTTP/1.1 is spoken.
    pub(in crate::config::settings) http2: Option<bool>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub(in crate::config::settings) enum RawTlsVersion {
    /// TLS 1.2.
    #[serde(rename = "1.2")]
    V12,
    /// TLS 1.3.
    #[default]
    #[serde(rename = "1.3")]
    V13,
}

/// Which certificates clients show.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "ClientCertificates")]
pub(in crate::config::settings) struct RawClients {
    /// Whether a client may connect without one. One that is shown must be good in any case.
    pub(in crate::config::settings) certificates: RawPresence,
    /// The authorities whose certificates are believed, in PEM. Read again when the file changes.
    pub(in crate::config::settings) authorities: Option<String>,
    /// The trust domains whose SPIFFE IDs are believed, each by its own authorities alone. They vouch
    /// for the SPIFFE ID and for no other name in a certificate.
    #[serde(default)]
    pub(in crate::config::settings) spiffe: Vec<RawTrustDomain>,
    /// Names one of which a certificate must have: patterns with `*` and `?` over `uri:…`,
    /// `dns:…`, `email:…` or `ip:…`. Any will do if not given. Names that whoever vouches for the
    /// certificate may not give do not count.
    pub(in crate::config::settings) names: Option<Vec<String>>,
}

/// Whether there must be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum RawPresence {
    /// There must.
    Required,
    /// There may.
    Optional,
}

/// A trust domain of SPIFFE.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawTrustDomain {
    /// Its name, such as `corp.example`.
    pub(in crate::config::settings) trust_domain: String,
    /// Its authorities, in PEM. Read again when the file changes.
    pub(in crate::config::settings) bundle: String,
}

/// A proxy that tells certificates: at least one of `addresses` and `names`, and all that are given
/// must fit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawForwarded {
    /// In which header.
    #[serde(default)]
    pub(in crate::config::settings) header: RawForwardedHeader,
    /// The addresses of the proxies: addresses and prefixes. The header of others is ignored.
    #[serde(default)]
    pub(in crate::config::settings) addresses: Vec<String>,
    /// The names in their own certificates: patterns as in `tls.clients.names`.
    #[serde(default)]
    pub(in crate::config::settings) names: Vec<String>,
}

/// A header with a certificate in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum RawForwardedHeader {
    /// `Client-Cert` (RFC 9440).
    #[default]
    ClientCert,
    /// `X-Forwarded-Client-Cert` of Envoy, with `Cert` in it.
    XForwardedClientCert,
}
