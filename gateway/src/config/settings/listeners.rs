//! Compiles the `listeners` section: sockets, authentication schemes, TLS and forwarded certificates.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use http::Uri;
use ipnet::IpNet;
use policy_core::subject::pattern::Pattern;

use super::compiler::{DefiningSection, SettingsCompiler};
use super::identity::IdentitySettings;
use super::raw::{
    RawClients, RawForwarded, RawForwardedHeader, RawListener, RawOwnCertificate, RawPresence,
    RawScheme, RawTls, RawTlsVersion,
};
use super::reach::GatewayCertificate;
use crate::crypto::x509;
use crate::net::egress::is_this_machine;

/// A socket that clients connect to.
#[derive(Clone, Debug)]
pub struct ListenerSettings {
    /// The name of the listener.
    pub name: Box<str>,
    /// The address and port.
    pub address: SocketAddr,
    /// The accepted authentication schemes, in the order in which they are tried; never empty.
    pub schemes: Vec<AuthScheme>,
    /// The host names accepted in `Host`, in lower case, without a port.
    pub hosts: BTreeSet<Box<str>>,
    /// The web origins whose pages may call the listener.
    pub origins: BTreeSet<Box<str>>,
    /// The public URL in front of the path of a route, without a slash at the end. If `None`, a loopback listener
    /// uses its address.
    pub public: Option<Box<str>>,
    /// The TLS of the listener; `None` for plain HTTP.
    pub tls: Option<ListenerTls>,
    /// The proxies that may forward client certificates.
    pub forwarded: Option<ForwardedCertificates>,
}

/// A way in which callers authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthScheme {
    /// With an OAuth access token.
    Oauth,
    /// With a client certificate.
    Certificate,
    /// With an API key.
    ApiKey,
    /// No credential; only on a loopback listener.
    Anonymous,
}

/// The TLS of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTls {
    /// The certificate of the listener.
    pub own: GatewayCertificate,
    /// Whether TLS 1.2 is accepted as well.
    pub allows_tls12: bool,
    /// How client certificates are verified; `None` if none is requested.
    pub clients: Option<ClientCertSettings>,
    /// Whether clients may negotiate HTTP/2.
    pub http2: bool,
}

/// How client certificates are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertSettings {
    /// Whether a client without a certificate is refused.
    pub required: bool,
    /// The file with the trusted certificate authorities.
    pub authorities: Option<PathBuf>,
    /// The SPIFFE trust domains, and the file with the certificate authorities of each.
    pub domains: Vec<(Box<str>, PathBuf)>,
    /// Patterns of which a name in the certificate must match one; `None` allows any name.
    pub names: Option<Vec<Pattern>>,
}

/// The proxies that may forward client certificates.
#[derive(Clone, Debug)]
pub struct ForwardedCertificates {
    /// The header that carries the certificate.
    pub header: ForwardedHeader,
    /// The networks of the proxies; empty allows any.
    pub addresses: Vec<IpNet>,
    /// Patterns over the names in the proxies' own certificates; empty allows any.
    pub names: Vec<Pattern>,
}

/// A header that carries a client certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `Client-Cert`, as RFC 9440 defines it.
    ClientCert,
    /// `X-Forwarded-Client-Cert` of Envoy, whose `Cert` element has the certificate.
    Envoy,
}

impl SettingsCompiler<'_> {
    pub(super) fn listeners(
        &mut self,
        raws: &[RawListener],
        identity: &IdentitySettings,
    ) -> Vec<ListenerSettings> {
        self.filled("/listeners", raws, "add one; without a listener nobody can connect");
        let mut seen = BTreeSet::new();
        let listener = |(n, raw): (usize, &RawListener)| {
            let at = format!("/listeners/{n}");
            self.unique(&format!("{at}/name"), &raw.name, &mut seen);
            let address = self.address(&format!("{at}/address"), &raw.address)?;
            let schemes = self.schemes(&at, raw, address, identity);
            Some(ListenerSettings {
                name: raw.name.as_str().into(),
                address,
                public: self.public(&at, raw, address),
                tls: raw.tls.as_ref().and_then(|tls| self.tls(&format!("{at}/tls"), tls)),
                forwarded: raw
                    .forwarded_certificate
                    .as_ref()
                    .and_then(|told| self.forwarded(&at, raw, told)),
                schemes,
                hosts: self.hosts(&at, raw, address),
                origins: self.origins(&at, raw),
            })
        };
        raws.iter().enumerate().filter_map(listener).collect()
    }

    fn schemes(
        &mut self,
        at: &str,
        raw: &RawListener,
        address: SocketAddr,
        identity: &IdentitySettings,
    ) -> Vec<AuthScheme> {
        let list = format!("{at}/authentication");
        self.filled(&list, &raw.authentication, "list at least one scheme, such as `[apiKey]`");
        let mut schemes = Vec::new();
        for (n, scheme) in raw.authentication.iter().enumerate() {
            let at = format!("{list}/{n}");
            schemes.push(match scheme {
                RawScheme::Oauth => {
                    if identity.issuers.is_empty() {
                        let help = "add one under `identity.issuers`";
                        let message = "`identity.issuers` is empty";
                        self.report_reference(DefiningSection::Callers, &at, message, help);
                    }
                    AuthScheme::Oauth
                }
                RawScheme::Certificate => {
                    if identity.certificates.is_empty() {
                        let help = "add one under `identity.certificates`";
                        let message = "`identity.certificates` is empty";
                        self.report_reference(DefiningSection::Callers, &at, message, help);
                    }
                    let asked = raw.tls.as_ref().is_some_and(|tls| tls.clients.is_some());
                    if !asked && raw.forwarded_certificate.is_none() {
                        let help = "add `tls.clients`, or `forwardedCertificate` behind a proxy";
                        self.report(
                            &at,
                            "client certificates are not requested on this listener",
                            help,
                        );
                    }
                    AuthScheme::Certificate
                }
                RawScheme::ApiKey => {
                    if identity.api_keys.is_empty() {
                        let help = "add one under `identity.apiKeys`; `portcullis keygen` makes it";
                        let message = "there is no API key";
                        self.report_reference(DefiningSection::Callers, &at, message, help);
                    }
                    AuthScheme::ApiKey
                }
                RawScheme::Anonymous => {
                    if identity.anonymous.is_none() {
                        let help = "add `anonymous: {groups: [..]}` under `identity`";
                        let message = "the anonymous caller is not defined";
                        self.report_reference(DefiningSection::Callers, &at, message, help);
                    }
                    if !address.ip().is_loopback() {
                        let help = "bind the listener to 127.0.0.1, or ask for a credential";
                        let message = "anonymous callers are accepted on a loopback listener only";
                        self.report(&at, message, help);
                    }
                    AuthScheme::Anonymous
                }
            });
        }
        schemes
    }

    fn hosts(&mut self, at: &str, raw: &RawListener, address: SocketAddr) -> BTreeSet<Box<str>> {
        let mut hosts = self.host_names(at, &raw.hosts);
        match address.ip() {
            ip if ip.is_loopback() => {
                hosts.extend(["localhost", "127.0.0.1", "[::1]"].map(Into::into));
            }
            ip if ip.is_unspecified() && hosts.is_empty() => {
                let help =
                    "add `hosts: [gateway.example.com]`; requests for other names are refused";
                self.report(at, "the names clients use for this listener are not given", help);
            }
            IpAddr::V4(ip) => hosts.extend((!ip.is_unspecified()).then(|| ip.to_string().into())),
            IpAddr::V6(ip) => {
                hosts.extend((!ip.is_unspecified()).then(|| format!("[{ip}]").into()))
            }
        }
        hosts
    }

    /// Validates host names and converts them to lower case, as `Host` is compared.
    pub(super) fn host_names(&mut self, at: &str, raws: &[String]) -> BTreeSet<Box<str>> {
        let mut hosts: BTreeSet<Box<str>> = BTreeSet::new();
        for (n, host) in raws.iter().enumerate() {
            let plain = !host.is_empty()
                && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._[]:".contains(&b))
                && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
            if !plain {
                let message = format!("`{}` is not a host name", host.escape_debug());
                self.report(&format!("{at}/hosts/{n}"), message, "write the name without a port");
            }
            hosts.insert(host.to_ascii_lowercase().into());
        }
        hosts
    }

    fn origins(&mut self, at: &str, raw: &RawListener) -> BTreeSet<Box<str>> {
        for (n, origin) in raw.origins.iter().enumerate() {
            let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
            let good = rest.is_some_and(|host| {
                !host.is_empty()
                    && !host.contains(['/', '*', '@', '?', '#'])
                    && !host.bytes().any(|byte| byte.is_ascii_uppercase())
            });
            if !good {
                let message = format!("`{}` is not an origin", origin.escape_debug());
                let help = "write scheme, host and port in lower case: `https://app.example.com`";
                self.report(&format!("{at}/origins/{n}"), message, help);
            }
        }
        raw.origins.iter().map(|origin| origin.as_str().into()).collect()
    }

    fn public(&mut self, at: &str, raw: &RawListener, address: SocketAddr) -> Option<Box<str>> {
        let Some(text) = &raw.public_url else {
            let oauth = raw.authentication.contains(&RawScheme::Oauth);
            if oauth && !address.ip().is_loopback() {
                let help = "add `publicUrl: https://gateway.example.com`";
                let message = "tokens are made for a URL, and this listener has no `publicUrl`";
                self.report(at, message, help);
            }
            return None;
        };
        let good = text.parse::<Uri>().ok().filter(|uri| {
            let plain = matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.query().is_none()
                && matches!(uri.path(), "" | "/")
                && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
                && !text.contains('#')
                && !text.ends_with('/');
            // Tokens are compared with the URL byte by byte, so that only one spelling of it is valid.
            let port = match uri.scheme_str() {
                Some("https") => 443,
                _ => 80,
            };
            let lower = uri
                .authority()
                .is_some_and(|a| !a.as_str().bytes().any(|b| b.is_ascii_uppercase()));
            plain && lower && uri.port_u16() != Some(port)
        });
        if good.is_none() {
            let message = format!("`{}` is not the URL of a gateway", text.escape_debug());
            let help = "write `https://gateway.example.com`: lower case, no path, no usual port, no `/` at the end";
            self.report(&format!("{at}/publicUrl"), message, help);
        }
        let local = good.as_ref().is_some_and(is_this_machine);
        if good.as_ref().is_some_and(|uri| uri.scheme_str() == Some("http")) && !local {
            let help = "write `https://..`: tokens must not travel in the clear";
            self.report(&format!("{at}/publicUrl"), "plain HTTP is for loopback only", help);
        }
        good.map(|_| text.as_str().into())
    }

    fn tls(&mut self, at: &str, raw: &RawTls) -> Option<ListenerTls> {
        let own = RawOwnCertificate { certificate: raw.certificate.clone(), key: raw.key.clone() };
        let own = self.own(at, &own);
        let clients = raw.clients.as_ref().map(|raw| self.clients(&format!("{at}/clients"), raw));
        let (allows_tls12, http2) =
            (raw.minimum_version == RawTlsVersion::V12, raw.http2 != Some(false));
        Some(ListenerTls { own: own?, allows_tls12, clients, http2 })
    }

    fn clients(&mut self, at: &str, raw: &RawClients) -> ClientCertSettings {
        if raw.authorities.is_none() && raw.spiffe.is_empty() {
            let help = "add `authorities` or `spiffe`: without them no certificate is good";
            self.report(at, "nobody vouches for the certificates of clients", help);
        }
        let authorities = raw.authorities.as_deref();
        let authorities =
            authorities.and_then(|file| self.authorities(&format!("{at}/authorities"), file));
        let (mut seen, mut domains) = (BTreeSet::new(), Vec::new());
        for (n, domain) in raw.spiffe.iter().enumerate() {
            let at = format!("{at}/spiffe/{n}");
            self.unique(&format!("{at}/trustDomain"), &domain.trust_domain, &mut seen);
            if !x509::is_trust_domain(&domain.trust_domain) {
                let message =
                    format!("`{}` is not a trust domain", domain.trust_domain.escape_debug());
                let help = "write its name alone, in lower case: `corp.example`";
                self.report(&format!("{at}/trustDomain"), message, help);
            }
            let bundle = self.authorities(&format!("{at}/bundle"), &domain.bundle);
            domains.extend(bundle.map(|bundle| (domain.trust_domain.as_str().into(), bundle)));
        }
        let names = raw.names.as_ref().map(|names| {
            let at = format!("{at}/names");
            self.filled(&at, names, "name the certificates that may connect, or remove the list");
            self.vouchable(&at, names, raw);
            self.names(&at, names)
        });
        let required = raw.certificates == RawPresence::Required;
        ClientCertSettings { required, authorities, domains, names }
    }

    /// Reports names that no certificate on this listener can have, because trust domains only vouch for SPIFFE
    /// IDs.
    fn vouchable(&mut self, at: &str, names: &[String], clients: &RawClients) {
        if clients.authorities.is_some() || clients.spiffe.is_empty() {
            return;
        }
        for (n, name) in names.iter().enumerate().filter(|(_, name)| !name.starts_with("uri:")) {
            let message = format!(
                "no certificate here is named `{}`: trust domains vouch for SPIFFE IDs alone",
                name.escape_debug()
            );
            let help =
                "write `uri:spiffe://..`, or add `authorities` that may vouch for other names";
            self.report(&format!("{at}/{n}"), message, help);
        }
    }

    fn forwarded(
        &mut self,
        at: &str,
        listener: &RawListener,
        raw: &RawForwarded,
    ) -> Option<ForwardedCertificates> {
        let at = format!("{at}/forwardedCertificate");
        if raw.addresses.is_empty() && raw.names.is_empty() {
            let help = "give the `addresses` of the proxy, or the `names` in its certificate";
            self.report(&at, "it is not said who may tell certificates", help);
            return None;
        }
        let mut addresses = Vec::new();
        for (n, text) in raw.addresses.iter().enumerate() {
            let single = || text.parse::<IpAddr>().map(IpNet::from);
            match text.parse::<IpNet>().or_else(|_| single()) {
                Ok(prefix) if prefix.trunc() == prefix => addresses.push(prefix),
                Ok(_) | Err(_) => {
                    let message = format!("`{}` is not an address or prefix", text.escape_debug());
                    self.report(
                        &format!("{at}/addresses/{n}"),
                        message,
                        "write `10.1.2.3` or `10.1.0.0/16`",
                    );
                }
            }
        }
        match listener.tls.as_ref().and_then(|tls| tls.clients.as_ref()) {
            Some(clients) => self.vouchable(&format!("{at}/names"), &raw.names, clients),
            None if !raw.names.is_empty() => {
                let help = "add `tls.clients`, or name the proxy by `addresses` alone";
                self.report(
                    &format!("{at}/names"),
                    "client certificates are not requested on this listener",
                    help,
                );
            }
            None => {}
        }
        let header = match raw.header {
            RawForwardedHeader::ClientCert => ForwardedHeader::ClientCert,
            RawForwardedHeader::XForwardedClientCert => ForwardedHeader::Envoy,
        };
        let names = self.names(&format!("{at}/names"), &raw.names);
        Some(ForwardedCertificates { header, addresses, names })
    }
}
