//! What the gateway shows to servers, as written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::identity::{RawClient, RawOwnCertificate, RawReach};

/// The TLS of a server, beyond the name in its URL.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawServerTls {
    /// The authorities whose certificates are believed, in PEM; the machine's if not given.
    pub(in crate::config::settings) authorities: Option<String>,
    /// SHA-256 of the public keys (SPKI) the server may have, in hexadecimal.
    #[serde(default)]
    pub(in crate::config::settings) keys: Vec<String>,
    /// The SPIFFE ID it has to have; the name in the URL is not looked at then.
    pub(in crate::config::settings) spiffe_id: Option<String>,
    /// The certificate it is shown.
    pub(in crate::config::settings) certificate: Option<RawOwnCertificate>,
    /// Whether the server may choose HTTP/2. Default `true`; without it HTTP/1.1 is spoken.
    pub(in crate::config::settings) http2: Option<bool>,
}

/// What a server is shown so that it lets us in: exactly one of its members.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawCredential {
    /// A secret, the same for all callers.
    pub(in crate::config::settings) header: Option<RawHeaderCredential>,
    /// A token for the gateway itself, the same for all callers (RFC 6749, section 4.4).
    pub(in crate::config::settings) client_credentials: Option<RawGrant>,
    /// A token for each caller, got for the token it came with (RFC 8693).
    pub(in crate::config::settings) token_exchange: Option<RawGrant>,
    /// A token for each caller, got for an assertion of its identity provider: enterprise-managed
    /// authorization.
    pub(in crate::config::settings) identity_assertion: Option<RawIdentityAssertion>,
}

/// A secret in a header: exactly one of `fromEnv`, `fromFile` and `fromCommand`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawHeaderCredential {
    /// The header. Default `Authorization`.
    pub(in crate::config::settings) name: Option<String>,
    /// What stands before the secret. Default `Bearer ` in `Authorization`, nothing in others.
    pub(in crate::config::settings) prefix: Option<String>,
    /// The environment variable that holds it.
    pub(in crate::config::settings) from_env: Option<String>,
    /// The file that holds it.
    pub(in crate::config::settings) from_file: Option<String>,
    /// A program that says it on its standard output: its absolute path and its arguments. No shell reads them.
    pub(in crate::config::settings) from_command: Option<Vec<String>>,
    /// After how long the program is run again. If not given, `5m`; at most `24h`.
    pub(in crate::config::settings) cache_time: Option<String>,
    /// How long the program may take. If not given, `10s`; at most `1m`.
    pub(in crate::config::settings) timeout: Option<String>,
    /// How long after `cacheTime` its last answer is used when the program fails. If not given, `1h`; at most `24h`.
    pub(in crate::config::settings) max_stale: Option<String>,
}

/// A token of an authorization server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawGrant {
    /// The token endpoint: an `https` URL.
    pub(in crate::config::settings) token_url: String,
    /// Who asks.
    pub(in crate::config::settings) client: RawClient,
    /// The scopes that are asked for.
    #[serde(default)]
    pub(in crate::config::settings) scopes: Vec<String>,
    /// The resource the token is for (RFC 8707). If not given, the URL of the server.
    pub(in crate::config::settings) resource: Option<String>,
    /// `tokenExchange` only: say that the gateway acts for the caller, with a token of its own from
    /// the same endpoint.
    #[serde(default)]
    pub(in crate::config::settings) actor: bool,
    /// The audience the token is for, where the authorization server wants that instead.
    pub(in crate::config::settings) audience: Option<String>,
    /// How the token endpoint is reached.
    #[serde(default)]
    pub(in crate::config::settings) connection: RawReach,
}

/// Enterprise-managed authorization: the identity provider gives an assertion for the caller's
/// token, and the authorization server of the server gives a token for the assertion.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawIdentityAssertion {
    /// The identity provider.
    pub(in crate::config::settings) identity_provider: RawGrant,
    /// The identifier of the authorization server of the server: whom the assertion is for.
    pub(in crate::config::settings) issuer: String,
    /// That authorization server.
    pub(in crate::config::settings) authorization_server: RawGrant,
}
