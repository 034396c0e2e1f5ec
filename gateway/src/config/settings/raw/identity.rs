//! The `identity` section as written: API keys, issuers and certificates of callers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::RawSecret;
use crate::crypto::jwk::Algorithm;

/// How callers are authenticated.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawIdentity {
    /// API keys, of which only the SHA-256 hash is stored here.
    #[serde(default)]
    pub(in crate::config::settings) api_keys: Vec<RawApiKey>,
    /// The principal of callers without a credential, on listeners that accept `anonymous`.
    pub(in crate::config::settings) anonymous: Option<RawAnonymous>,
    /// The authorization servers whose access tokens are accepted.
    #[serde(default)]
    pub(in crate::config::settings) issuers: Vec<RawIssuer>,
    /// Callers that are authenticated by their client certificate alone.
    #[serde(default)]
    pub(in crate::config::settings) certificates: Vec<RawKnownCertificate>,
    /// Scopes that imply others: a caller with the scope also has those in its list, and what they imply.
    #[serde(default)]
    pub(in crate::config::settings) scopes: BTreeMap<String, Vec<String>>,
}

/// An API key of a caller.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawApiKey {
    /// The name of the key, for people who revoke it.
    pub(in crate::config::settings) name: String,
    /// The principal that the key authenticates.
    pub(in crate::config::settings) principal: String,
    /// The groups of the principal.
    #[serde(default)]
    pub(in crate::config::settings) groups: Vec<String>,
    /// The scopes that the key grants.
    #[serde(default)]
    pub(in crate::config::settings) scopes: Vec<String>,
    /// The SHA-256 hash of the key, in hexadecimal; `portcullis keygen` prints the key and its hash.
    pub(in crate::config::settings) sha256: String,
}

/// The caller without a credential, whose principal is `anonymous`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawAnonymous {
    /// The groups of the anonymous caller.
    #[serde(default)]
    pub(in crate::config::settings) groups: Vec<String>,
}

/// Callers with a client certificate. The principal is the name that matches.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawKnownCertificate {
    /// The accepted certificate names: patterns with `*` and `?` over `uri:…`, `dns:…`, `email:…` or `ip:…`.
    pub(in crate::config::settings) names: Vec<String>,
    /// The groups of these callers.
    #[serde(default)]
    pub(in crate::config::settings) groups: Vec<String>,
    /// The scopes that such a certificate grants.
    #[serde(default)]
    pub(in crate::config::settings) scopes: Vec<String>,
}

/// An authorization server. The principal of a caller is the name of the issuer, `/` and the subject. The principal
/// of a client that acts for itself is `service:`, the name of the issuer, `/` and the client id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawIssuer {
    /// The name of the issuer in principals, logs and metrics.
    pub(in crate::config::settings) name: String,
    /// The issuer identifier, exactly as in `iss`: an `https` URL.
    pub(in crate::config::settings) issuer: String,
    /// Where the key set of the issuer is: a URL or a file. If not given, the URL in its metadata (RFC 8414).
    pub(in crate::config::settings) keys: Option<RawKeys>,
    /// The accepted signature algorithms; if not given, all asymmetric ones.
    pub(in crate::config::settings) algorithms: Option<Vec<Algorithm>>,
    /// Accept access tokens whose `typ` is `JWT` or missing, from an issuer that does not implement RFC 9068; they
    /// must name a client and must not have a `nonce`. Also accept `introspection` responses without the type of
    /// the token (`token_type`).
    #[serde(default)]
    pub(in crate::config::settings) accept_untyped_tokens: bool,
    /// The tolerated difference between the issuer's clock and the gateway's. Default `30s`, at most `60s`.
    pub(in crate::config::settings) clock_skew: Option<String>,
    /// Maximum lifetime of a token. Default `1h`.
    pub(in crate::config::settings) max_lifetime: Option<String>,
    /// The age after which the keys are fetched again. Default `10m`, at most `24h`; a shorter cache lifetime that
    /// the issuer sends is honored down to `5m`.
    pub(in crate::config::settings) key_refresh_interval: Option<String>,
    /// After a fetch for an unknown key id, the time before another unknown key id causes a fetch. Default `30s`.
    pub(in crate::config::settings) unknown_key_cooldown: Option<String>,
    /// How long the keys are used if they cannot be fetched again. Default `1h`.
    pub(in crate::config::settings) max_stale: Option<String>,
    /// Where the claims are in a token.
    #[serde(default)]
    pub(in crate::config::settings) claims: RawClaims,
    /// How tokens are marked whose client acts for itself and not for a user. If not given, a token whose subject
    /// is the client (RFC 9068, section 2.2).
    pub(in crate::config::settings) service_tokens: Option<RawService>,
    /// Ask the issuer about tokens that are not JWTs (token introspection, RFC 7662).
    pub(in crate::config::settings) introspection: Option<RawIntrospection>,
    /// How the gateway connects to the endpoints of the issuer.
    #[serde(default)]
    pub(in crate::config::settings) connection: RawReach,
}

/// The key set of an issuer: exactly one of `url` and `file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawKeys {
    /// An `https` URL of a JSON Web Key Set (RFC 7517).
    pub(in crate::config::settings) url: Option<String>,
    /// A file with a JSON Web Key Set.
    pub(in crate::config::settings) file: Option<String>,
}

/// Where the claims are in a token, as JSON Pointers (RFC 6901) such as `/realm_access/roles`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawClaims {
    /// The subject. Default `/sub`.
    pub(in crate::config::settings) subject: Option<String>,
    /// The groups, a list or a single string. If not given, callers have none.
    pub(in crate::config::settings) groups: Option<String>,
    /// The roles, a list or a single string. If not given, callers have none.
    pub(in crate::config::settings) roles: Option<String>,
    /// The scopes, a list or a string separated by spaces. If not given `/scope`, or else `/scp`.
    pub(in crate::config::settings) scopes: Option<String>,
    /// The client id. If not given `/client_id`, or else `/azp`.
    pub(in crate::config::settings) client: Option<String>,
}

/// Tokens of clients that act for themselves: the principal is `service:`, the name of the issuer, `/` and the
/// client id. The subject of such a token is ignored.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawService {
    /// The claim that marks such a token, as a JSON Pointer such as `/gty`.
    pub(in crate::config::settings) claim: String,
    /// The value of that claim, such as `client-credentials`.
    pub(in crate::config::settings) is: String,
}

/// The introspection endpoint of an issuer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawIntrospection {
    /// The `https` URL of the introspection endpoint.
    pub(in crate::config::settings) url: String,
    /// The client that the gateway is at the issuer.
    pub(in crate::config::settings) client: RawClient,
    /// How long a response is cached. Default `60s`, at most `5m`, and never longer than the token is valid.
    pub(in crate::config::settings) cache_time: Option<String>,
}

/// The gateway as a client of an authorization server: exactly one of `secret`, `privateKey` and `certificate`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawClient {
    /// The client id at the authorization server.
    pub(in crate::config::settings) id: String,
    /// The secret that authenticates the client.
    pub(in crate::config::settings) secret: Option<RawSecret>,
    /// How the client secret is sent.
    #[serde(default)]
    pub(in crate::config::settings) secret_in: RawSecretIn,
    /// The key that signs client assertions (`private_key_jwt`, RFC 7523).
    pub(in crate::config::settings) private_key: Option<RawPrivateKey>,
    /// The client certificate (`tls_client_auth`, RFC 8705).
    pub(in crate::config::settings) certificate: Option<RawOwnCertificate>,
}

/// How a client secret is sent (RFC 6749, section 2.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum RawSecretIn {
    /// In the `Authorization: Basic` header.
    #[default]
    Header,
    /// In the request body.
    Body,
}

/// A private key that signs client assertions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawPrivateKey {
    /// The file with the key, in PEM.
    pub(in crate::config::settings) file: String,
    /// The key id at the authorization server.
    pub(in crate::config::settings) key_id: Option<String>,
    /// The signature algorithm, if the key supports more than one.
    pub(in crate::config::settings) algorithm: Option<Algorithm>,
    /// The audience of the assertion. If not given, the issuer if there is one, else the URL of the endpoint.
    pub(in crate::config::settings) audience: Option<String>,
}

/// A certificate of the gateway.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawOwnCertificate {
    /// The file with the certificate and its chain, in PEM.
    pub(in crate::config::settings) certificate: String,
    /// The file with the private key, in PEM.
    pub(in crate::config::settings) key: String,
}

/// How the gateway connects to an external service.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawReach {
    /// A PEM file with the trusted certificate authorities; those of the system if not given.
    pub(in crate::config::settings) authorities: Option<String>,
    /// The networks that connections may go to, as `egress` of a server.
    pub(in crate::config::settings) egress: Option<Vec<String>>,
}
