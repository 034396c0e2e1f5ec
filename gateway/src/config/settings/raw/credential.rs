//! The `tls` and `credential` keys of a server as written: how the gateway verifies a server and authenticates to
//! it.

use schemars::JsonSchema;
use serde::Deserialize;

use super::identity::{RawClient, RawOwnCertificate, RawReach};

/// How a server is verified beyond the name in its URL, and the client certificate that it gets.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawServerTls {
    /// A PEM file with the trusted certificate authorities; those of the system if not given.
    pub(in crate::config::settings) authorities: Option<String>,
    /// SHA-256 hashes, in hexadecimal, of the public keys (SPKI) that the server may have.
    #[serde(default)]
    pub(in crate::config::settings) keys: Vec<String>,
    /// The SPIFFE ID that the server must have; the name in the URL is not checked then.
    pub(in crate::config::settings) spiffe_id: Option<String>,
    /// The client certificate that the gateway presents.
    pub(in crate::config::settings) certificate: Option<RawOwnCertificate>,
    /// Whether the server may negotiate HTTP/2. Default `true`; otherwise HTTP/1.1 is used.
    pub(in crate::config::settings) http2: Option<bool>,
}

/// How the gateway authenticates to a server: exactly one of these members.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawCredential {
    /// A secret, the same for all callers.
    pub(in crate::config::settings) header: Option<RawHeaderCredential>,
    /// An access token of the gateway itself, the same for all callers (client credentials, RFC 6749, section 4.4).
    pub(in crate::config::settings) client_credentials: Option<RawGrant>,
    /// An access token for each caller, exchanged for the token that the caller sent (RFC 8693).
    pub(in crate::config::settings) token_exchange: Option<RawGrant>,
    /// An access token for each caller, obtained with an assertion of the caller's identity provider:
    /// enterprise-managed authorization.
    pub(in crate::config::settings) identity_assertion: Option<RawIdentityAssertion>,
}

/// A secret in an HTTP header: exactly one of `fromEnv`, `fromFile` and `fromCommand`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawHeaderCredential {
    /// The name of the header. Default `Authorization`.
    pub(in crate::config::settings) name: Option<String>,
    /// The text before the secret. Default `Bearer ` in `Authorization`, nothing in others.
    pub(in crate::config::settings) prefix: Option<String>,
    /// The environment variable that holds the secret.
    pub(in crate::config::settings) from_env: Option<String>,
    /// The file that holds the secret.
    pub(in crate::config::settings) from_file: Option<String>,
    /// A program that prints the secret on its standard output: its absolute path and its arguments. No shell is
    /// involved.
    pub(in crate::config::settings) from_command: Option<Vec<String>>,
    /// How long the output is used before the program runs again. If not given, `5m`; at most `24h`.
    pub(in crate::config::settings) cache_time: Option<String>,
    /// How long the program may run. If not given, `10s`; at most `1m`.
    pub(in crate::config::settings) timeout: Option<String>,
    /// How long after `cacheTime` the last output is still used if the program fails. If not given, `1h`; at most
    /// `24h`.
    pub(in crate::config::settings) max_stale: Option<String>,
}

/// How an access token is requested from an authorization server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawGrant {
    /// The token endpoint: an `https` URL.
    pub(in crate::config::settings) token_url: String,
    /// The client that the gateway is at the authorization server.
    pub(in crate::config::settings) client: RawClient,
    /// The scopes to request.
    #[serde(default)]
    pub(in crate::config::settings) scopes: Vec<String>,
    /// The resource that the token is for (RFC 8707). If not given, the URL of the server.
    pub(in crate::config::settings) resource: Option<String>,
    /// For `tokenExchange` only: state that the gateway acts for the caller, with an actor token of its own from
    /// the same endpoint.
    #[serde(default)]
    pub(in crate::config::settings) actor: bool,
    /// The audience that the token is for, if the authorization server expects `audience` instead of `resource`.
    pub(in crate::config::settings) audience: Option<String>,
    /// How the gateway connects to the token endpoint.
    #[serde(default)]
    pub(in crate::config::settings) connection: RawReach,
}

/// Enterprise-managed authorization: the identity provider issues an assertion for the caller's token, and the
/// server's authorization server issues an access token for the assertion.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawIdentityAssertion {
    /// How the assertion is requested from the identity provider.
    pub(in crate::config::settings) identity_provider: RawGrant,
    /// The issuer identifier of the server's authorization server, which is the audience of the assertion.
    pub(in crate::config::settings) issuer: String,
    /// How the access token is requested from the server's authorization server.
    pub(in crate::config::settings) authorization_server: RawGrant,
}
