//! Compiles how upstream servers are verified and how the gateway authenticates to them, and the token requirements
//! of routes.

use std::path::PathBuf;

use http::{HeaderName, HeaderValue, Uri};
use policy_core::subject::name::Scope;
use policy_core::subject::principal::RequiredProof;

use super::compiler::{DefiningSection, SettingsCompiler};
use super::raw::{
    RawCredential, RawGrant, RawHeaderCredential, RawIdentityAssertion, RawRouteOauth, RawSecret,
    RawServer, RawServerTls, RawTransport,
};
use super::reach::{ClientRegistration, GatewayCertificate, ServiceEndpoint};
use super::{
    AuthScheme, IdentitySettings, ListenerSettings, RouteOauth, SecretRef, ServerSettings,
    VariableValue,
};
use crate::crypto::x509::SpiffeId;
use crate::net::egress::{is_in_the_clear, is_this_machine};

/// Headers that the protocol or the connection uses, and those that only a credential may set.
const TAKEN: [&str; 17] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "last-event-id",
    "origin",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
];

/// Whether the gateway sets the header `name`, in lower case, towards a server itself, or does not send it.
#[must_use]
pub fn is_own_header(name: &str) -> bool {
    name != "authorization" && TAKEN.contains(&name)
}

/// How an upstream server is verified, and the gateway's client certificate.
#[derive(Clone, Debug, Default)]
pub struct ServerTls {
    /// The file with the trusted certificate authorities; those of the system if `None`.
    pub authorities: Option<PathBuf>,
    /// SHA-256 hashes of the allowed public keys; empty allows any.
    pub keys: Vec<[u8; 32]>,
    /// The SPIFFE ID that the server must have, which replaces the check of its name.
    pub spiffe: Option<SpiffeId>,
    /// The client certificate that the gateway presents.
    pub own: Option<GatewayCertificate>,
    /// Whether HTTP/2 is not offered to the server.
    pub http1_alone: bool,
}

/// How the gateway authenticates to a server.
#[derive(Clone, Debug)]
pub enum ServerCredential {
    /// A secret in a header.
    Header {
        /// The name of the header.
        name: HeaderName,
        /// The text before the secret.
        prefix: Box<str>,
        /// The secret after the prefix.
        secret: SecretRef,
    },
    /// An access token of the gateway itself.
    Client(Box<TokenRequest>),
    /// An access token for each caller, exchanged for the caller's token.
    Exchange(Box<TokenRequest>),
    /// An access token for each caller, obtained with an assertion of the caller's identity provider.
    Assertion {
        /// The request to the identity provider for the assertion.
        provider: Box<TokenRequest>,
        /// The issuer identifier of the authorization server, which is the audience of the assertion.
        issuer: Box<str>,
        /// The request to the authorization server for the token.
        server: Box<TokenRequest>,
    },
}

/// How an access token is requested from an authorization server.
#[derive(Clone, Debug)]
pub struct TokenRequest {
    /// The token endpoint of the authorization server.
    pub place: ServiceEndpoint,
    /// The client that the gateway is at the authorization server.
    pub client: ClientRegistration,
    /// The scopes to request.
    pub scopes: Vec<Scope>,
    /// The resource that the token is for, if it is requested for one.
    pub resource: Option<Box<str>>,
    /// The audience that the token is for, if it is requested for one.
    pub audience: Option<Box<str>>,
    /// Whether the gateway sends an actor token to state that it acts for the caller.
    pub actor: bool,
}

impl ServerCredential {
    /// Whether each caller has a token of its own, obtained for the token that it sent.
    #[must_use]
    pub const fn is_of_caller(&self) -> bool {
        matches!(self, Self::Exchange(_) | Self::Assertion { .. })
    }
}

/// Whether `secret` already begins with the authentication scheme in `prefix` (RFC 9110, section 11.4), so that the
/// header would contain it twice: `Bearer Bearer x`.
#[must_use]
pub fn repeats_scheme(prefix: &str, secret: &str) -> bool {
    let is_scheme = prefix.ends_with(' ') && !prefix.trim().is_empty();
    let begins = secret.get(..prefix.len());
    is_scheme && begins.is_some_and(|begins| begins.eq_ignore_ascii_case(prefix))
}

/// Whether a token request can name the gateway as the actor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ActorUse {
    /// A token exchange (RFC 8693) can.
    Allowed,
    /// Other grants cannot.
    Refused,
}

impl SettingsCompiler<'_> {
    /// Compiles the TLS, credential and headers of a server, which only a server at a URL can have.
    pub(super) fn shown(
        &mut self,
        at: &str,
        raw: &mut RawServer,
    ) -> (ServerTls, Option<ServerCredential>, Vec<(HeaderName, VariableValue)>) {
        let (tls, credential) = (raw.tls.take(), raw.credential.take());
        let headers = std::mem::take(&mut raw.headers);
        let given = [
            ("tls", tls.is_some()),
            ("credential", credential.is_some()),
            ("headers", !headers.is_empty()),
        ];
        for (key, _) in given.iter().filter(|(_, given)| *given && raw.url.is_none()) {
            let help = "remove it; a program gets its secrets by `env`";
            self.report(&format!("{at}/{key}"), format!("`{key}` belongs to a `url`"), help);
        }
        let url = raw.url.as_deref().and_then(|url| url.parse::<Uri>().ok());
        let secure = url.as_ref().and_then(Uri::scheme_str) == Some("https");
        if tls.is_some() && raw.url.is_some() && !secure {
            let help = "write `https://` in `url`, or remove it";
            self.report(&format!("{at}/tls"), "`tls` belongs to an `https` URL", help);
        }
        let tls = tls.map(|raw| self.server_tls(&format!("{at}/tls"), raw)).unwrap_or_default();
        // A name under `localhost` stays on this machine by the default networks alone.
        let usual = raw.egress.is_none();
        let local =
            url.as_ref().is_some_and(|url| is_this_machine(url) || usual && !is_in_the_clear(url));
        if credential.is_some() && url.is_some() && !secure && !local {
            let help = "use `https`: whoever listens on the way could take the credential";
            self.report(&format!("{at}/url"), "a credential would be sent in the clear", help);
        }
        let resource = raw.url.clone();
        let is_http_sse = raw.transport == RawTransport::HttpSse;
        let credential = credential.and_then(|raw| {
            let credential = self.credential(&format!("{at}/credential"), raw, resource)?;
            if is_http_sse && credential.is_of_caller() {
                let help = "use `header` or `clientCredentials`, or Streamable HTTP";
                let message = "over `httpSse` callers share a stream, and so a credential";
                self.report(&format!("{at}/credential"), message, help);
            }
            Some(credential)
        });
        let mut found = Vec::new();
        for (n, raw) in headers.into_iter().enumerate() {
            let at = format!("{at}/headers/{n}");
            let secret =
                raw.from_env.is_some() || raw.from_file.is_some() || raw.from_command.is_some();
            if secret && url.is_some() && !secure && !local {
                let help = "use `https`: whoever listens on the way could take it";
                self.report(&at, "a secret would be sent in the clear", help);
            }
            let name = self.header_name(&format!("{at}/name"), &raw.name);
            let value = self.variable(&at, raw).map(|(_, value)| value);
            if let Some(VariableValue::Literal(text)) = &value
                && HeaderValue::from_str(text).is_err()
            {
                self.report(
                    &format!("{at}/value"),
                    "not the value of a header",
                    "write visible text",
                );
            }
            found.extend(name.zip(value));
        }
        (tls, credential, found)
    }

    fn header_name(&mut self, at: &str, text: &str) -> Option<HeaderName> {
        let name = text.parse::<HeaderName>().ok();
        let Some(name) = name else {
            let message = format!("`{}` is not the name of a header", text.escape_debug());
            self.report(at, message, "write a name such as `X-Tenant`");
            return None;
        };
        if TAKEN.contains(&name.as_str()) || name.as_str().starts_with("mcp-") {
            let help = "remove it; `credential` sets `Authorization`, the protocol sets the others";
            self.report(at, format!("`{text}` is not set here"), help);
        }
        Some(name)
    }

    fn server_tls(&mut self, at: &str, raw: RawServerTls) -> ServerTls {
        let authorities = raw.authorities.as_deref();
        let authorities =
            authorities.and_then(|file| self.authorities(&format!("{at}/authorities"), file));
        let mut keys = Vec::new();
        for (n, text) in raw.keys.iter().enumerate() {
            match json::hex::decode(text).and_then(|hash| hash.try_into().ok()) {
                Some(hash) => keys.push(hash),
                None => {
                    let help = "write 64 digits: openssl x509 -pubkey -noout | openssl pkey -pubin \
                                -outform der | sha256sum";
                    self.report(&format!("{at}/keys/{n}"), "not a SHA-256 in hexadecimal", help);
                }
            }
        }
        let spiffe = raw.spiffe_id.as_deref().and_then(|text| {
            let wrong = |error| format!("`{}`: {error}", text.escape_debug());
            let help = "write `spiffe://trust-domain/path`";
            let read = SpiffeId::parse(text).map_err(wrong);
            read.map_err(|message| self.report(&format!("{at}/spiffeId"), message, help)).ok()
        });
        if spiffe.is_some() && authorities.is_none() {
            let help = "add `authorities`: the bundle of its trust domain";
            let message = "the machine's authorities do not vouch for SPIFFE IDs";
            self.report(&format!("{at}/spiffeId"), message, help);
        }
        let own = raw.certificate.and_then(|raw| self.own(&format!("{at}/certificate"), &raw));
        let http1_alone = raw.http2 == Some(false);
        ServerTls { authorities, keys, spiffe, own, http1_alone }
    }

    fn credential(
        &mut self,
        at: &str,
        raw: RawCredential,
        resource: Option<String>,
    ) -> Option<ServerCredential> {
        let RawCredential { header, client_credentials, token_exchange, identity_assertion } = raw;
        match (header, client_credentials, token_exchange, identity_assertion) {
            (Some(raw), None, None, None) => self.header(&format!("{at}/header"), raw),
            (None, Some(raw), None, None) => {
                let at = format!("{at}/clientCredentials");
                self.grant(&at, raw, resource, ActorUse::Refused).map(ServerCredential::Client)
            }
            (None, None, Some(raw), None) => {
                let at = format!("{at}/tokenExchange");
                self.grant(&at, raw, resource, ActorUse::Allowed).map(ServerCredential::Exchange)
            }
            (None, None, None, Some(raw)) => self.assertion(at, raw, resource),
            // What it was meant to be could not be read, which is reported already.
            (None, None, None, None) if self.is_flawed(at) => None,
            _ => {
                let help = "give exactly one of `header`, `clientCredentials`, `tokenExchange` and \
                            `identityAssertion`";
                self.report(
                    at,
                    "exactly one of `header`, `clientCredentials`, `tokenExchange` and \
                                 `identityAssertion` is required",
                    help,
                );
                None
            }
        }
    }

    fn assertion(
        &mut self,
        at: &str,
        raw: RawIdentityAssertion,
        resource: Option<String>,
    ) -> Option<ServerCredential> {
        let at = format!("{at}/identityAssertion");
        self.https(&format!("{at}/issuer"), &raw.issuer);
        let provider = format!("{at}/identityProvider");
        let provider =
            self.grant(&provider, raw.identity_provider, resource.clone(), ActorUse::Refused);
        let server = format!("{at}/authorizationServer");
        let server = self.grant(&server, raw.authorization_server, resource, ActorUse::Refused);
        let (provider, server, issuer) = (provider?, server?, raw.issuer.into());
        Some(ServerCredential::Assertion { provider, issuer, server })
    }

    fn header(&mut self, at: &str, raw: RawHeaderCredential) -> Option<ServerCredential> {
        let name = raw.name.as_deref().unwrap_or("Authorization");
        let Ok(name) = name.parse::<HeaderName>() else {
            let message = format!("`{}` is not the name of a header", name.escape_debug());
            self.report(&format!("{at}/name"), message, "write a name such as `X-API-Key`");
            return None;
        };
        let reserved = is_own_header(name.as_str());
        if reserved || name.as_str().starts_with("mcp-") {
            let help = "use `Authorization` or a header of the server's own";
            self.report(&format!("{at}/name"), "this header has another meaning", help);
        }
        let usual = if name == http::header::AUTHORIZATION { "Bearer " } else { "" };
        let prefix: Box<str> = raw.prefix.as_deref().unwrap_or(usual).into();
        let secret = RawSecret {
            from_env: raw.from_env,
            from_file: raw.from_file,
            from_command: raw.from_command,
            cache_time: raw.cache_time,
            timeout: raw.timeout,
            max_stale: raw.max_stale,
        };
        let secret = self.secret(at, secret)?;
        if let Some(sought) = self.secrets.last_mut() {
            sought.prefix.clone_from(&prefix);
        }
        Some(ServerCredential::Header { name, prefix, secret })
    }

    fn grant(
        &mut self,
        at: &str,
        raw: RawGrant,
        resource: Option<String>,
        actor_use: ActorUse,
    ) -> Option<Box<TokenRequest>> {
        if raw.actor && actor_use == ActorUse::Refused {
            let help = "remove it";
            self.report(&format!("{at}/actor"), "`actor` belongs to `tokenExchange`", help);
        }
        let url = self.https(&format!("{at}/tokenUrl"), &raw.token_url);
        let client = self.client(&format!("{at}/client"), raw.client);
        let scopes = self.scopes(&format!("{at}/scopes"), &raw.scopes);
        let way = self.way(&format!("{at}/connection"), &raw.connection);
        let audience: Option<Box<str>> = raw.audience.map(Into::into);
        let resource = raw.resource.or(resource.filter(|_| audience.is_none())).map(Into::into);
        let place = ServiceEndpoint { url: url?, way };
        let (client, actor) = (client?, raw.actor);
        Some(Box::new(TokenRequest { place, client, scopes, resource, audience, actor }))
    }

    pub(super) fn route_oauth(
        &mut self,
        at: &str,
        raw: &RawRouteOauth,
        identity: &IdentitySettings,
    ) -> RouteOauth {
        for (key, text) in raw
            .resource
            .iter()
            .map(|text| ("resource".to_owned(), text))
            .chain(
                raw.audiences.iter().enumerate().map(|(n, text)| (format!("audiences/{n}"), text)),
            )
            .chain(
                raw.additional_audiences
                    .iter()
                    .enumerate()
                    .map(|(n, text)| (format!("additionalAudiences/{n}"), text)),
            )
        {
            let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
            if text.is_empty() || !printable {
                let help = "write it exactly as it stands in `aud`";
                self.report(&format!("{at}/{key}"), "not an audience", help);
            }
        }
        let url = raw.resource.as_deref().map(|text| text.parse::<Uri>());
        if let Some(parsed) = url
            && !parsed.is_ok_and(|uri| uri.scheme().is_some() && uri.authority().is_some())
        {
            let help = "write the URL that clients use: `https://gateway.example.com/path`";
            self.report(&format!("{at}/resource"), "not the URL of a resource", help);
        }
        let known = |name: &String| identity.issuers.iter().position(|known| *known.name == **name);
        let issuers = match &raw.issuers {
            None => (0..identity.issuers.len()).collect(),
            Some(names) => {
                let list = format!("{at}/issuers");
                self.filled(&list, names, "name the issuers that are believed here");
                let mut found = Vec::new();
                for (n, name) in names.iter().enumerate() {
                    match known(name) {
                        Some(index) => found.push(index),
                        None => {
                            let message = format!("there is no issuer `{}`", name.escape_debug());
                            let help = "define it under `identity.issuers`, or correct the name";
                            let at = format!("{list}/{n}");
                            self.report_reference(DefiningSection::Callers, &at, message, help);
                        }
                    }
                }
                found
            }
        };
        RouteOauth {
            resource: raw.resource.as_deref().map(Into::into),
            audiences: raw.audiences.iter().map(|text| text.as_str().into()).collect(),
            besides: raw.additional_audiences.iter().map(|text| text.as_str().into()).collect(),
            issuers,
            scopes: self.scopes(&format!("{at}/scopes"), &raw.scopes),
            proof: raw.proof,
            nonce: raw.dpop_nonce,
        }
    }

    /// Reports requirements on tokens of a route that no client can meet.
    pub(super) fn provable(
        &mut self,
        at: &str,
        oauth: &RouteOauth,
        identity: &IdentitySettings,
        listeners: &[ListenerSettings],
    ) {
        let asks = |one: &ListenerSettings| {
            one.forwarded.is_some() || one.tls.as_ref().is_some_and(|tls| tls.clients.is_some())
        };
        let is_asked = listeners.iter().any(asks) || self.is_incomplete("/listeners");
        if oauth.proof == Some(RequiredProof::Certificate) && !is_asked {
            let help = "add `tls.clients` or `forwardedCertificate` to a listener";
            let message = "no listener asks for the certificates that tokens are to be bound to";
            self.report(&format!("{at}/oauth/proof"), message, help);
        }
        let issuers = oauth.issuers.iter().filter_map(|index| identity.issuers.get(*index));
        if issuers.filter(|issuer| issuer.introspection.is_some()).count() > 1 {
            let help = "name the issuers of this route under `oauth.issuers`";
            let message = "a token could be introspected by more than one issuer";
            self.report(&format!("{at}/oauth"), message, help);
        }
    }

    /// Reports a requirement that no client of the HTTP+SSE transport can meet.
    pub(super) fn provable_over_http_sse(&mut self, at: &str, oauth: &RouteOauth) {
        if oauth.proof == Some(RequiredProof::Dpop) {
            let help = "serve such callers over Streamable HTTP";
            let message = "messages over HTTP+SSE carry no proofs by DPoP";
            self.report(&format!("{at}/httpSse"), message, help);
        }
    }

    /// Reports servers that need a token per caller on routes where callers have no token, or where tokens of
    /// several issuers could be exchanged.
    pub(super) fn exchanged(
        &mut self,
        at: &str,
        found: &[usize],
        servers: &[ServerSettings],
        oauth: &RouteOauth,
        listeners: &[ListenerSettings],
    ) {
        let tokens = listeners.iter().any(|listener| listener.schemes.contains(&AuthScheme::Oauth));
        let tokens = tokens || self.is_incomplete("/listeners");
        for server in found.iter().filter_map(|index| servers.get(*index)) {
            let wants = server.credential.as_ref().is_some_and(ServerCredential::is_of_caller);
            if wants && !tokens {
                let message = format!(
                    "`{}` wants a token for each caller, and no listener takes one",
                    server.name
                );
                let help = "add `oauth` to the `authentication` of a listener";
                self.report(&format!("{at}/servers"), message, help);
            }
            if wants && oauth.issuers.len() > 1 {
                let message = format!(
                    "tokens of several issuers would be sent where those of `{}` are exchanged",
                    server.name
                );
                let help = "name one issuer under `oauth.issuers`";
                self.report(&format!("{at}/servers"), message, help);
            }
        }
    }
}
