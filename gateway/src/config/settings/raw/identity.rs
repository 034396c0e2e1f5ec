//! Who is known, as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::RawSecret;
use crate::crypto::jose::Algorithm;

/// How callers are known.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawIdentity {
    /// Keys, each held as its SHA-256 and never as itself.
    #[serde(default)]
    pub(in crate::config::settings) api_keys: Vec<RawApiKey>,
    /// Who a caller without a credential is, where a listener lets one in.
    pub(in crate::config::settings) anonymous: Option<RawAnonymous>,
    /// The authorization servers whose access tokens are believed.
    #[serde(default)]
    pub(in crate::config::settings) issuers: Vec<RawIssuer>,
    /// Callers who are known by the certificate of their connection alone.
    #[serde(default)]
    pub(in crate::config::settings) certificates: Vec<RawKnownCertificate>,
    /// Scopes that imply others: who has the first has those in its list, and what they imply.
    #[serde(default)]
    pub(in crate::config::settings) scopes: BTreeMap<String, Vec<String>>,
}

/// One key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawApiKey {
    /// Its name, for people: which key to revoke.
    pub(in crate::config::settings) name: String,
    /// The caller it stands for.
    pub(in crate::config::settings) principal: String,
    /// The caller's groups.
    #[serde(default)]
    pub(in crate::config::settings) groups: Vec<String>,
    /// The scopes it is good for.
    #[serde(default)]
    pub(in crate::config::settings) scopes: Vec<String>,
    /// The SHA-256 of the key, in hexadecimal; `portcullis keygen` prints both.
    pub(in crate::config::settings) sha256: String,
}

/// The caller without a credential; its principal is `anonymous`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawAnonymous {
    /// Its groups.
    #[serde(default)]
    pub(in crate::config::settings) groups: Vec<String>,
}

/// Callers with a certificate. The principal is the name that fits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawKnownCertificate {
    /// Names: patterns with `*` and `?` over `uri:…`, `dns:…`, `email:…` or `ip:…`.
    pub(in crate::config::settings) names: Vec<String>,
    /// The callers' groups.
    #[serde(default)]
    pub(in crate::config::settings) groups: Vec<String>,
    /// The scopes such a certificate is good for.
    #[serde(default)]
    pub(in crate::config::settings) scopes: Vec<String>,
}

/// An authorization server. A caller's principal is the name of the issuer, `/` and the subject; that
/// of a client that calls in its own name is `service:`, the name of the issuer, `/` and the client.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawIssuer {
    /// Its name in principals, logs and metrics.
    pub(in crate::config::settings) name: String,
    /// Its identifier, exactly as it stands in `iss`: an `https` URL.
    pub(in crate::config::settings) issuer: String,
    /// Where its keys are: a URL, or a file. If not given, where its metadata (RFC 8414) says.
    pub(in crate::config::settings) keys: Option<RawKeys>,
    /// The algorithms it may sign with; all but those with shared secrets if not given.
    pub(in crate::config::settings) algorithms: Option<Vec<Algorithm>>,
    /// Believe access tokens whose `typ` is `JWT` or not there at all, of an issuer that does not
    /// know RFC 9068; they must then name a client and must not have a `nonce`. And believe answers of
    /// `introspection` that do not give the type of a token (`token_type`).
    #[serde(default)]
    pub(in crate::config::settings) untyped: bool,
    /// How far its clock may differ from ours. Default `30s`, at most `60s`.
    pub(in crate::config::settings) clock_skew: Option<String>,
    /// The longest a token may be good for. Default `1h`.
    pub(in crate::config::settings) max_lifetime: Option<String>,
    /// How old its keys may be before they are read again. Default `10m`; what it says itself
    /// counts between `5m` and `24h`.
    pub(in crate::config::settings) refresh: Option<String>,
    /// How long after its keys were read for the sake of an unknown one they are not read for
    /// another. Default `30s`.
    pub(in crate::config::settings) cooldown: Option<String>,
    /// How long its keys are relied on when they cannot be read again. Default `1h`.
    pub(in crate::config::settings) max_stale: Option<String>,
    /// Where in a token things stand.
    #[serde(default)]
    pub(in crate::config::settings) claims: RawClaims,
    /// How it says that a client acts for itself and for no user. If not given, the subject of such a token is the
    /// client (RFC 9068, section 2.2).
    pub(in crate::config::settings) service: Option<RawService>,
    /// Ask the issuer about tokens that cannot be read (RFC 7662).
    pub(in crate::config::settings) introspection: Option<RawIntrospection>,
    /// How its endpoints are reached.
    #[serde(default)]
    pub(in crate::config::settings) connection: RawReach,
}

/// The keys of an issuer: exactly one of `url` and `file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawKeys {
    /// An `https` URL with a set of keys (RFC 7517).
    pub(in crate::config::settings) url: Option<String>,
    /// A file with a set of keys.
    pub(in crate::config::settings) file: Option<String>,
}

/// Where in a token things stand, as JSON Pointers (RFC 6901) such as `/realm_access/roles`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawClaims {
    /// Who it is about. Default `/sub`.
    pub(in crate::config::settings) subject: Option<String>,
    /// The groups, a list or one text. None if not given.
    pub(in crate::config::settings) groups: Option<String>,
    /// The roles, likewise.
    pub(in crate::config::settings) roles: Option<String>,
    /// The scopes, a list or a text with spaces. If not given `/scope`, or else `/scp`.
    pub(in crate::config::settings) scopes: Option<String>,
    /// The client. If not given `/client_id`, or else `/azp`.
    pub(in crate::config::settings) client: Option<String>,
}

/// Tokens of clients that act for themselves: the principal is `service:`, the name of the issuer, `/` and the client,
/// and the subject of the token counts for nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawService {
    /// Where that is said, as a JSON Pointer such as `/gty`.
    pub(in crate::config::settings) claim: String,
    /// The text that stands there, such as `client-credentials`.
    pub(in crate::config::settings) is: String,
}

/// Asking an issuer about a token.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawIntrospection {
    /// An `https` URL.
    pub(in crate::config::settings) url: String,
    /// Who asks.
    pub(in crate::config::settings) client: RawClient,
    /// How long an answer is relied on. Default `60s`, at most `5m`, and never longer than the token.
    pub(in crate::config::settings) cache_time: Option<String>,
}

/// The gateway as a client of an authorization server: exactly one of `secret`, `privateKey` and
/// `certificate`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawClient {
    /// Its id there.
    pub(in crate::config::settings) id: String,
    /// Its secret.
    pub(in crate::config::settings) secret: Option<RawSecret>,
    /// How the secret is sent.
    #[serde(default)]
    pub(in crate::config::settings) secret_in: RawSecretIn,
    /// The key it signs with (`private_key_jwt`, RFC 7523).
    pub(in crate::config::settings) private_key: Option<RawPrivateKey>,
    /// The certificate it shows (`tls_client_auth`, RFC 8705).
    pub(in crate::config::settings) certificate: Option<RawOwnCertificate>,
}

/// How a secret is sent (RFC 6749, section 2.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::config::settings) enum RawSecretIn {
    /// In `Authorization: Basic`.
    #[default]
    Header,
    /// In the form.
    Body,
}

/// A private key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawPrivateKey {
    /// The file, in PEM.
    pub(in crate::config::settings) file: String,
    /// Its name at the authorization server.
    pub(in crate::config::settings) key_id: Option<String>,
    /// The algorithm, where the key could do more than one.
    pub(in crate::config::settings) algorithm: Option<Algorithm>,
    /// Whom the assertion is for. If not given, the issuer where there is one, or the URL.
    pub(in crate::config::settings) audience: Option<String>,
}

/// A certificate of our own.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawOwnCertificate {
    /// The certificate, with its chain, in PEM.
    pub(in crate::config::settings) certificate: String,
    /// Its private key, in PEM.
    pub(in crate::config::settings) key: String,
}

/// How somebody is reached.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config::settings) struct RawReach {
    /// The authorities whose certificates are believed there, in PEM; the machine's if not given.
    pub(in crate::config::settings) authorities: Option<String>,
    /// Where connections there may go, as for a server.
    pub(in crate::config::settings) egress: Option<Vec<String>>,
}
