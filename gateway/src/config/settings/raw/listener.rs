//! The `listeners` section as written.

use schemars::JsonSchema;
use serde::Deserialize;

/// A socket that clients connect to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawListener {
    /// The name of the listener in logs and metrics.
    pub(in crate::config::settings) name: String,
    /// The address and port: `localhost` or an IP address. Port 0 takes a free port.
    #[serde(default = "default_address")]
    pub(in crate::config::settings) address: String,
    /// The accepted authentication schemes, in the order in which they are tried.
    pub(in crate::config::settings) authentication: Vec<RawScheme>,
    /// The host names that are accepted in `Host`. A loopback listener always accepts the loopback names.
    #[serde(default)]
    pub(in crate::config::settings) hosts: Vec<String>,
    /// The web origins whose pages may call this listener, such as `https://app.example.com`.
    #[serde(default)]
    pub(in crate::config::settings) origins: Vec<String>,
    /// The public URL that clients use in front of the path of a route, such as `https://gateway.example.com`.
    /// Tokens are issued for it, and the metadata names it. If not given on a loopback listener: its address. On another
    /// address without `tls` it says that clients come through a proxy that ends TLS (`https`), or from this machine
    /// alone (`http://localhost:PORT`).
    pub(in crate::config::settings) public_url: Option<String>,
    /// The TLS of the listener. Without it clients speak plain HTTP.
    pub(in crate::config::settings) tls: Option<RawTls>,
    /// Client certificates that a TLS-terminating proxy in front of this listener forwards.
    pub(in crate::config::settings) forwarded_certificate: Option<RawForwarded>,
}

fn default_address() -> String {
    "127.0.0.1:8080".to_owned()
}

/// A way in which callers authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum RawScheme {
    /// An access token of one of the issuers, in `Authorization: Bearer` or `DPoP`.
    Oauth,
    /// A client certificate that `identity.certificates` accepts.
    Certificate,
    /// An API key in `Authorization: Bearer` or `X-API-Key`.
    ApiKey,
    /// No credential. Only allowed on a loopback listener.
    Anonymous,
}

/// The TLS of a listener.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawTls {
    /// The file with the certificate and its chain, in PEM. Read again when it changes.
    pub(in crate::config::settings) certificate: String,
    /// The file with the private key, in PEM. Read again when it changes.
    pub(in crate::config::settings) key: String,
    /// The minimum TLS version.
    #[serde(default)]
    pub(in crate::config::settings) minimum_version: RawTlsVersion,
    /// The verification of client certificates. Without it none is requested.
    pub(in crate::config::settings) clients: Option<RawClients>,
    /// Whether clients may negotiate HTTP/2. Default `true`; otherwise HTTP/1.1 is used.
    pub(in crate::config::settings) http2: Option<bool>,
}

/// A minimum TLS version.
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

/// How client certificates are verified.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "ClientCertificates")]
pub(in crate::config::settings) struct RawClients {
    /// Whether a client may connect without a certificate. A certificate that is presented must always be valid.
    pub(in crate::config::settings) certificates: RawPresence,
    /// A PEM file with the trusted certificate authorities. Read again when it changes.
    pub(in crate::config::settings) authorities: Option<String>,
    /// The SPIFFE trust domains, each with certificate authorities of its own. These vouch for the SPIFFE ID only,
    /// and for no other name in a certificate.
    #[serde(default)]
    pub(in crate::config::settings) spiffe: Vec<RawTrustDomain>,
    /// The accepted certificate names, of which a certificate must have one: patterns with `*` and `?` over
    /// `uri:…`, `dns:…`, `email:…` or `ip:…`. If not given, every name is accepted. Names that the certificate's
    /// authority may not vouch for do not count.
    pub(in crate::config::settings) names: Option<Vec<String>>,
}

/// Whether a client certificate is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum RawPresence {
    /// Clients without a certificate are refused.
    Required,
    /// Clients may connect without a certificate.
    Optional,
}

/// A SPIFFE trust domain.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawTrustDomain {
    /// The name of the trust domain, such as `corp.example`.
    pub(in crate::config::settings) trust_domain: String,
    /// A PEM file with its certificate authorities. Read again when it changes.
    pub(in crate::config::settings) bundle: String,
}

/// The proxies that may forward client certificates: at least one of `addresses` and `names`. A proxy must match
/// all that are given.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawForwarded {
    /// The header that carries the certificate.
    #[serde(default)]
    pub(in crate::config::settings) header: RawForwardedHeader,
    /// The addresses and prefixes of the proxies. The header is ignored if it comes from another address.
    #[serde(default)]
    pub(in crate::config::settings) addresses: Vec<String>,
    /// The names in the proxies' own certificates: patterns as in `tls.clients.names`.
    #[serde(default)]
    pub(in crate::config::settings) names: Vec<String>,
}

/// A header that carries a client certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum RawForwardedHeader {
    /// `Client-Cert` (RFC 9440).
    #[default]
    ClientCert,
    /// `X-Forwarded-Client-Cert` of Envoy, with the `Cert` element.
    XForwardedClientCert,
}
