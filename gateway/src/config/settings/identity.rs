//! Compiles the `identity` section: API keys, issuers, certificates and scopes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use json::pointer::{escaped, unescaped};
use policy_core::subject::name::{GroupName, PrincipalId, Scope};
use policy_core::subject::pattern::Pattern;
use policy_core::subject::principal::Principal;

use super::compiler::SettingsCompiler;
use super::raw::{
    RawApiKey, RawClaims, RawIdentity, RawIntrospection, RawIssuer, RawKeys, RawKnownCertificate,
};
use super::reach::{ClientRegistration, ConnectionSettings, ServiceEndpoint};
use crate::crypto::jwk::Algorithm;
use crate::crypto::pem;

/// The prefix of the API keys that `portcullis keygen` generates.
pub const KEY: &str = "pcl_";

/// How callers are authenticated.
#[derive(Debug, Default)]
pub struct IdentitySettings {
    /// The API keys of callers.
    pub api_keys: Vec<ApiKey>,
    /// The principal of callers without a credential; `None` if they are not accepted.
    pub anonymous: Option<Principal>,
    /// The authorization servers whose tokens are accepted.
    pub issuers: Vec<IssuerSettings>,
    /// Callers that are authenticated by their certificate.
    pub certificates: Vec<KnownCertificate>,
    /// The scopes that other scopes imply.
    pub implied: ImpliedScopes,
}

/// An API key, by its hash.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// SHA-256 of the key.
    pub sha256: [u8; 32],
    /// The principal that the key authenticates.
    pub principal: Principal,
}

/// Callers that are authenticated by their certificate.
#[derive(Clone, Debug)]
pub struct KnownCertificate {
    /// Patterns over the names in the certificate.
    pub names: Vec<Pattern>,
    /// The groups of these callers.
    pub groups: BTreeSet<GroupName>,
    /// The scopes of these callers, including implied ones.
    pub scopes: BTreeSet<Scope>,
}

/// An authorization server whose tokens are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerSettings {
    /// The name of the issuer in principals, logs and metrics.
    pub name: Box<str>,
    /// The issuer identifier, as in `iss`.
    pub issuer: Box<str>,
    /// Where the key set is.
    pub keys: KeySource,
    /// The accepted signature algorithms; never empty.
    pub algorithms: Vec<Algorithm>,
    /// Whether tokens of an unspecified type are accepted as access tokens.
    pub untyped: bool,
    /// The tolerated difference between the issuer's clock and the gateway's.
    pub clock_skew: Duration,
    /// Maximum lifetime of a token.
    pub max_lifetime: Duration,
    /// The age after which the keys are fetched again.
    pub refresh: Duration,
    /// After a fetch for an unknown key id, the time before another one causes a fetch.
    pub cooldown: Duration,
    /// How long the keys are used if they cannot be fetched again.
    pub max_stale: Duration,
    /// Where the claims are in a token.
    pub claims: ClaimPaths,
    /// How tokens of clients that act for themselves are marked, if not by RFC 9068.
    pub service: Option<ServiceClaim>,
    /// How the issuer is asked about tokens that are not JWTs; `None` if it is not.
    pub introspection: Option<IntrospectionSettings>,
    /// How the gateway connects to the issuer.
    pub way: ConnectionSettings,
}

/// Where the key set of an issuer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// At the URL in the metadata of the issuer, which is this URI.
    Discovered(Uri),
    /// At a configured URL.
    Url(Uri),
    /// In a configured file.
    File(PathBuf),
}

/// Where the claims are in a token. `None` means the default claim; for groups and roles, none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimPaths {
    /// The subject; `/sub` if `None`.
    pub subject: Option<ClaimPath>,
    /// The groups of the caller.
    pub groups: Option<ClaimPath>,
    /// The roles of the caller.
    pub roles: Option<ClaimPath>,
    /// The scopes; `/scope` or else `/scp` if `None`.
    pub scopes: Option<ClaimPath>,
    /// The client id; `/client_id` or else `/azp` if `None`.
    pub client: Option<ClaimPath>,
}

/// The claim that marks tokens of clients that act for themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceClaim {
    /// The place of the claim.
    pub claim: ClaimPath,
    /// The value of the claim.
    pub is: Box<str>,
}

/// A JSON Pointer (RFC 6901), as its unescaped segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimPath(pub Vec<Box<str>>);

/// The introspection endpoint of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntrospectionSettings {
    /// The URL of the endpoint.
    pub place: ServiceEndpoint,
    /// The client that the gateway is at the issuer.
    pub client: ClientRegistration,
    /// How long a response is cached.
    pub cache_time: Duration,
}

/// The scopes that other scopes imply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImpliedScopes(BTreeMap<Scope, Vec<Scope>>);

impl ImpliedScopes {
    /// `scopes` and all that they imply.
    #[must_use]
    pub fn closure(&self, scopes: impl IntoIterator<Item = Scope>) -> BTreeSet<Scope> {
        let mut all = BTreeSet::new();
        let mut left: Vec<Scope> = scopes.into_iter().collect();
        while let Some(scope) = left.pop() {
            if all.insert(scope.clone()) {
                left.extend(self.0.get(&scope).into_iter().flatten().cloned());
            }
        }
        all
    }
}

impl IdentitySettings {
    /// Whether there can be principals that the configuration does not list, because issuers or certificates name
    /// them.
    #[must_use]
    pub fn has_others(&self) -> bool {
        !self.issuers.is_empty() || !self.certificates.is_empty()
    }

    /// The principals that the configuration lists.
    #[must_use]
    pub fn principals(&self) -> Vec<Principal> {
        let keys = self.api_keys.iter().map(|key| key.principal.clone());
        keys.chain(self.anonymous.clone()).collect()
    }
}

/// Parses group names; the error has the index of the first invalid one.
fn groups(
    names: &[String],
) -> Result<BTreeSet<GroupName>, (usize, policy_core::subject::name::NameError)> {
    names.iter().enumerate().map(|(n, name)| GroupName::parse(name).map_err(|e| (n, e))).collect()
}

impl SettingsCompiler<'_> {
    pub(super) fn identity(&mut self, raw: RawIdentity) -> IdentitySettings {
        let implied = self.implied(&raw.scopes);
        let api_keys = self.api_keys(&raw.api_keys, &implied);
        let anonymous = raw.anonymous.as_ref().and_then(|raw| self.anonymous(&raw.groups));
        let (mut names, mut urls) = (BTreeSet::new(), BTreeSet::new());
        let mut issuers = Vec::new();
        for (n, raw) in raw.issuers.into_iter().enumerate() {
            let at = format!("/identity/issuers/{n}");
            self.unique(&format!("{at}/name"), &raw.name, &mut names);
            self.unique(&format!("{at}/issuer"), &raw.issuer, &mut urls);
            issuers.extend(self.issuer(&at, raw));
        }
        let known = raw.certificates.iter().enumerate();
        let certificates = known.filter_map(|(n, raw)| self.known(n, raw, &implied)).collect();
        IdentitySettings { api_keys, anonymous, issuers, certificates, implied }
    }

    fn implied(&mut self, raw: &BTreeMap<String, Vec<String>>) -> ImpliedScopes {
        let mut implied = BTreeMap::new();
        for (scope, others) in raw {
            let at = format!("/identity/scopes/{}", escaped(scope));
            let parsed = self.scopes(&at, std::slice::from_ref(scope)).pop();
            let others = self.scopes(&at, others);
            implied.extend(parsed.map(|scope| (scope, others)));
        }
        ImpliedScopes(implied)
    }

    fn known(
        &mut self,
        n: usize,
        raw: &RawKnownCertificate,
        implied: &ImpliedScopes,
    ) -> Option<KnownCertificate> {
        let at = format!("/identity/certificates/{n}");
        self.filled(&format!("{at}/names"), &raw.names, "name the certificates that are meant");
        let names = self.names(&format!("{at}/names"), &raw.names);
        let scopes = self.scopes(&format!("{at}/scopes"), &raw.scopes);
        let groups = groups(&raw.groups).map_err(|(n, error)| {
            self.report(&format!("{at}/groups/{n}"), format!("the group {error}"), "rename it");
        });
        Some(KnownCertificate { names, groups: groups.ok()?, scopes: implied.closure(scopes) })
    }

    fn issuer(&mut self, at: &str, raw: RawIssuer) -> Option<IssuerSettings> {
        const MINUTE: Duration = Duration::from_secs(60);
        const HOUR: Duration = Duration::from_secs(3600);
        let label = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if raw.name.is_empty() || raw.name.len() > 64 || !raw.name.chars().all(label) {
            let help = "use up to 64 letters, digits, `-`, `_` and `.`";
            self.report(&format!("{at}/name"), "not a name", help);
        }
        let issuer = self.https(&format!("{at}/issuer"), &raw.issuer);
        if issuer.as_ref().is_some_and(|uri| uri.query().is_some()) {
            let help = "write its identifier exactly as it stands in `iss`";
            self.report(&format!("{at}/issuer"), "an issuer has no `?` in it", help);
        }
        if let Some(algorithms) = &raw.algorithms {
            let help = "name those it may sign with, or remove the list";
            self.filled(&format!("{at}/algorithms"), algorithms, help);
        }
        let way = self.way(&format!("{at}/connection"), &raw.connection);
        let keys = match raw.keys {
            None => issuer.clone().map(KeySource::Discovered),
            Some(raw) => self.key_source(&format!("{at}/keys"), raw),
        };
        let mut time = |key: &str, text: &Option<String>, usual, most| {
            self.time_within(&format!("{at}/{key}"), text.as_deref(), usual, most)
        };
        let clock_skew = time("clockSkew", &raw.clock_skew, MINUTE / 2, MINUTE);
        let max_lifetime = time("maxLifetime", &raw.max_lifetime, HOUR, HOUR * 24);
        let refresh = time("keyRefreshInterval", &raw.key_refresh_interval, MINUTE * 10, HOUR * 24);
        let cooldown = time("unknownKeyCooldown", &raw.unknown_key_cooldown, MINUTE / 2, HOUR);
        let max_stale = time("maxStale", &raw.max_stale, HOUR, HOUR * 24);
        let claims = self.claim_paths(&format!("{at}/claims"), raw.claims);
        let service = raw.service_tokens.and_then(|raw| {
            let claim = self.claim_path(&format!("{at}/service/claim"), &raw.claim)?;
            Some(ServiceClaim { claim, is: raw.is.into() })
        });
        let introspection = raw
            .introspection
            .and_then(|raw| self.introspection(&format!("{at}/introspection"), raw, &way));
        issuer?;
        Some(IssuerSettings {
            name: raw.name.into(),
            issuer: raw.issuer.into(),
            keys: keys?,
            algorithms: raw.algorithms.unwrap_or_else(|| Algorithm::ALL.to_vec()),
            untyped: raw.accept_untyped_tokens,
            clock_skew,
            max_lifetime,
            refresh,
            cooldown,
            max_stale,
            claims,
            service,
            introspection,
            way,
        })
    }

    fn key_source(&mut self, at: &str, raw: RawKeys) -> Option<KeySource> {
        match (raw.url, raw.file) {
            (Some(url), None) => self.https(&format!("{at}/url"), &url).map(KeySource::Url),
            (None, Some(file)) => {
                let path = self.path(&file);
                self.uses.believed.push(path.clone());
                let read = pem::text(&path).map_err(|error| error.to_string()).and_then(|text| {
                    crate::crypto::jwk::keys(text.into()).map_err(|error| error.to_string())
                });
                if let Err(error) = read {
                    let help = "give a file with a set of public keys: `{\"keys\": [..]}`";
                    self.report(&format!("{at}/file"), error, help);
                }
                Some(KeySource::File(path))
            }
            _ => {
                let help = "give exactly one of `url` and `file`";
                self.report(at, "the keys have exactly one source", help);
                None
            }
        }
    }

    fn claim_paths(&mut self, at: &str, raw: RawClaims) -> ClaimPaths {
        let mut path =
            |key: &str, text: Option<String>| self.claim_path(&format!("{at}/{key}"), &text?);
        ClaimPaths {
            subject: path("subject", raw.subject),
            groups: path("groups", raw.groups),
            roles: path("roles", raw.roles),
            scopes: path("scopes", raw.scopes),
            client: path("client", raw.client),
        }
    }

    fn claim_path(&mut self, at: &str, text: &str) -> Option<ClaimPath> {
        let Some(rest) = text.strip_prefix('/') else {
            let message = format!("`{}` is not a JSON Pointer", text.escape_debug());
            let help = "write `/realm_access/roles`; a `/` in a name is `~1`: `/https:~1~1example.com~1groups`";
            self.report(at, message, help);
            return None;
        };
        let part = |part| unescaped(part).into();
        Some(ClaimPath(rest.split('/').map(part).collect()))
    }

    fn introspection(
        &mut self,
        at: &str,
        raw: RawIntrospection,
        way: &ConnectionSettings,
    ) -> Option<IntrospectionSettings> {
        let url = self.https(&format!("{at}/url"), &raw.url);
        let client = self.client(&format!("{at}/client"), raw.client);
        let (usual, most) = (Duration::from_secs(60), Duration::from_secs(300));
        let at = format!("{at}/cacheTime");
        let cache_time = self.time_within(&at, raw.cache_time.as_deref(), usual, most);
        let place = ServiceEndpoint { url: url?, way: way.clone() };
        Some(IntrospectionSettings { place, client: client?, cache_time })
    }

    fn principal(&mut self, at: &str, id: &str, names: &[String]) -> Option<Principal> {
        let groups = groups(names).map_err(|(n, error)| {
            self.report(&format!("{at}/groups/{n}"), format!("the group {error}"), "rename it");
        });
        let id = PrincipalId::parse(id).map_err(|error| {
            self.report(&format!("{at}/principal"), format!("the principal {error}"), "rename it");
        });
        Some(Principal::new(id.ok()?, groups.ok()?))
    }

    fn anonymous(&mut self, names: &[String]) -> Option<Principal> {
        self.principal("/identity/anonymous", "anonymous", names)
    }

    fn api_keys(&mut self, raws: &[RawApiKey], implied: &ImpliedScopes) -> Vec<ApiKey> {
        let (mut names, mut hashes) = (BTreeSet::new(), BTreeSet::new());
        let key = |(n, raw): (usize, &RawApiKey)| {
            let at = format!("/identity/apiKeys/{n}");
            self.unique(&format!("{at}/name"), &raw.name, &mut names);
            let sha256 = json::hex::decode(&raw.sha256).and_then(|hash| hash.try_into().ok());
            let at_hash = format!("{at}/sha256");
            if sha256.is_some() {
                self.unique(&at_hash, &raw.sha256.to_ascii_lowercase(), &mut hashes);
            }
            if sha256.is_none() && raw.sha256.starts_with(KEY) {
                let help = "make another with `portcullis keygen`, because this one was written down, and write the \
                            `sha256` that it prints here";
                self.report_hiding(&at_hash, "this is the API key itself, and not its hash", help);
            } else if sha256.is_none() {
                let help = "write the 64 hexadecimal digits that `portcullis keygen` prints";
                self.report_hiding(&at_hash, "not a SHA-256 in hexadecimal", help);
            }
            let mut principal = self.principal(&at, &raw.principal, &raw.groups)?;
            let scopes = self.scopes(&format!("{at}/scopes"), &raw.scopes);
            principal.claims.scopes = implied.closure(scopes);
            // The principal stays defined even if the hash is invalid, so that references to it are not reported.
            Some(ApiKey { sha256: sha256.unwrap_or_default(), principal })
        };
        raws.iter().enumerate().filter_map(key).collect()
    }
}
