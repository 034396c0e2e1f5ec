//! Admission of HTTP requests to a listener, from their Host and Origin headers, before anything else is done with
//! them.
//!
//! In DNS rebinding, a browser is made to resolve an attacker's name to the gateway's address; it sends that name in
//! `Host` and the origin of the attacker's page in `Origin` (vectors AV-71 to AV-76, control C05).

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header::{HOST, ORIGIN, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Method, Version};

use crate::config::settings::{AuthScheme, ForwardedCertificates, ListenerSettings, OpsListener};
use crate::crypto::x509::VerifiedCertificate;
use crate::edge::failure::HttpFailure;
use crate::edge::tls::Acceptor;
use crate::identity::ConnectionToken;
use crate::identity::resource::ProtectedResource;
use crate::mcp::wire::headers::{SingleValue, single};
use crate::net::http2::AuthenticationSignal;

/// The client at the other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// IP address and port, as the listener sees them.
    pub address: SocketAddr,
    /// The client certificate that was verified in the TLS handshake, if any.
    pub certificate: Option<Arc<VerifiedCertificate>>,
    /// The credential last verified on this connection, so that it is not verified for every request.
    pub memo: Arc<ConnectionToken>,
    /// Whether a request on the connection was authenticated, which enlarges the HTTP/2 flow-control windows; `None`
    /// over HTTP/1.1.
    pub vouched: Option<Arc<AuthenticationSignal>>,
}

impl Peer {
    /// A client without a certificate.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self { address, certificate: None, memo: Arc::default(), vouched: None }
    }
}

/// Decides which requests a listener admits, and how its clients authenticate.
#[derive(Debug)]
pub struct Admission {
    /// Name of the listener.
    pub name: Arc<str>,
    /// Authentication schemes that the listener accepts.
    pub schemes: Vec<AuthScheme>,
    hosts: BTreeSet<Box<str>>,
    origins: BTreeSet<Box<str>>,
    loopback: bool,
    /// Whether any IP address is accepted as host: a page cannot rebind an address to another one.
    addressed: bool,
    /// Whether requests come without the headers that mirror the message, as over stdio and HTTP+SSE.
    pub plain: bool,
    /// OAuth protected-resource metadata of the routes, by path.
    pub resources: Arc<HashMap<Box<str>, ProtectedResource>>,
    /// Settings for client certificates that a proxy forwards in a header.
    pub forwarded: Option<ForwardedCertificates>,
    /// TLS of the listener, if it has TLS.
    pub tls: Option<Arc<Acceptor>>,
}

impl Admission {
    /// Admission for a configured listener.
    #[must_use]
    pub fn new(
        listener: &ListenerSettings,
        resources: HashMap<Box<str>, ProtectedResource>,
        tls: Option<Arc<Acceptor>>,
    ) -> Self {
        Self {
            resources: Arc::new(resources),
            forwarded: listener.forwarded.clone(),
            tls,
            name: Arc::from(&*listener.name),
            schemes: listener.schemes.clone(),
            hosts: listener.hosts.clone(),
            origins: listener.origins.clone(),
            loopback: listener.address.ip().is_loopback(),
            addressed: false,
            plain: false,
        }
    }

    /// Checks the Host and Origin headers of a request, and that it asks for no other protocol.
    ///
    /// # Errors
    /// If the request names another host, comes from an origin that is not allowed, or asks for an upgrade, CONNECT or
    /// HTTP/1.0.
    pub fn admit(&self, head: &Parts) -> Result<(), HttpFailure> {
        let SingleValue::Value(host) = single(&head.headers, HOST) else {
            return Err(HttpFailure::Host);
        };
        let target = head.uri.authority().map(http::uri::Authority::as_str);
        if target.is_some_and(|target| !target.eq_ignore_ascii_case(host)) || !self.answers_to(host)
        {
            return Err(HttpFailure::Host);
        }
        match single(&head.headers, ORIGIN) {
            // Images and frames of a page are fetched without `Origin`, and would be charged to a caller of this machine.
            SingleValue::Absent if self.is_of_other_site(&head.headers) => {
                return Err(HttpFailure::Origin);
            }
            SingleValue::Absent => {}
            SingleValue::Value(origin) if self.may_call(origin, host) => {}
            SingleValue::Value(_) | SingleValue::Bad => return Err(HttpFailure::Origin),
        }
        let upgrade = head.headers.contains_key(UPGRADE) || head.method == Method::CONNECT;
        if upgrade || head.version < Version::HTTP_11 {
            return Err(HttpFailure::Upgrade);
        }
        Ok(())
    }

    /// Whether a browser says that a page of another site has caused the request (Fetch Metadata). Links to the listener of
    /// an operator may be followed.
    fn is_of_other_site(&self, headers: &http::HeaderMap) -> bool {
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        !self.addressed && matches!(site, Some(b"cross-site" | b"same-site"))
    }

    /// Admission for the admin listener. Probes and metric collectors address it by any of the machine's IP addresses.
    #[must_use]
    pub fn of_operator(ops: &OpsListener) -> Self {
        let admission = Self::plain("ops".into(), Vec::new());
        let loopback = ops.address.ip().is_loopback();
        Self { hosts: ops.hosts.clone(), loopback, addressed: true, plain: false, ..admission }
    }

    /// Admission for messages that this listener admitted in another transport: the bridge turns them into requests.
    #[must_use]
    pub fn inside(&self) -> Self {
        let inside = Self::plain(Arc::clone(&self.name), self.schemes.clone());
        Self { resources: Arc::clone(&self.resources), ..inside }
    }

    /// Admission for requests that come through no connection of their own.
    #[must_use]
    pub fn plain(name: Arc<str>, schemes: Vec<AuthScheme>) -> Self {
        let hosts = ["localhost".into()].into();
        Self {
            name,
            schemes,
            hosts,
            origins: BTreeSet::new(),
            loopback: true,
            addressed: false,
            plain: true,
            resources: Arc::default(),
            forwarded: None,
            tls: None,
        }
    }

    /// One of the hosts that the listener answers to, if any.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.hosts.first().map(|host| &**host)
    }

    /// The value for `Access-Control-Allow-Origin`, if the request comes from an allowed origin.
    #[must_use]
    pub fn origin(&self, head: &http::HeaderMap) -> Option<HeaderValue> {
        let origin = head.get(ORIGIN)?;
        let listed = origin.to_str().is_ok_and(|origin| self.origins.contains(origin));
        listed.then(|| origin.clone())
    }

    /// Whether a client at `address` can have connected to the listener: a loopback address is reached from this machine
    /// alone.
    #[must_use]
    pub fn is_reachable_from(&self, address: IpAddr) -> bool {
        !self.loopback || address.to_canonical().is_loopback()
    }

    fn answers_to(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            // The last colon is part of an IPv6 address in brackets, or the host is invalid.
            Some(_) | None => host,
        };
        self.hosts.contains(name.to_ascii_lowercase().as_str())
            || self.addressed && is_address(name)
    }

    const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https://" } else { "http://" }
    }

    /// The OAuth protected-resource metadata of the route at `path`.
    #[must_use]
    pub fn resource(&self, path: &str) -> Option<&ProtectedResource> {
        if self.resources.is_empty() { None } else { self.resources.get(path) }
    }

    /// Whether `origin` is an allowed origin or, on a loopback listener, that of the listener itself.
    fn may_call(&self, origin: &str, host: &str) -> bool {
        self.origins.contains(origin)
            || (self.loopback && origin.strip_prefix(self.scheme()) == Some(host))
    }
}

/// Whether a host is an IP address in URL syntax, other than the unspecified address.
fn is_address(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = match inner {
        Some(inner) => inner.parse().map(IpAddr::V6),
        None => host.parse().map(IpAddr::V4),
    };
    address.is_ok_and(|address| !address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::Admission;
    use crate::config::settings::{ListenerSettings, OpsListener};
    use http::Request;
    use std::collections::HashMap;

    fn admits(uri: &str, headers: &[(&str, &str)]) -> Result<(), &'static str> {
        admits_at("127.0.0.1:8080", uri, headers)
    }

    fn admits_at(address: &str, uri: &str, headers: &[(&str, &str)]) -> Result<(), &'static str> {
        let listener = ListenerSettings {
            public: None,
            tls: None,
            forwarded: None,
            name: "main".into(),
            address: address.parse().unwrap(),
            schemes: Vec::new(),
            hosts: ["localhost", "127.0.0.1", "[::1]", "gw.example"].map(Into::into).into(),
            origins: ["https://good.example".into()].into(),
        };
        let admission = Admission::new(&listener, HashMap::new(), None);
        let mut request = Request::post(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        admission.admit(&head).map_err(|failure| failure.reason())
    }

    #[test]
    fn the_operators_listener_is_known_by_its_names_and_by_any_address() {
        let address = "0.0.0.0:9901".parse().unwrap();
        let hosts = ["localhost", "gateway"].map(Into::into).into();
        let admission = Admission::of_operator(&OpsListener { address, hosts, token: None });
        for (host, origin, expected) in [
            ("10.0.0.7:9901", None, Ok(())),
            ("[fd00::7]:9901", None, Ok(())),
            ("localhost", None, Ok(())),
            ("Gateway:9901", None, Ok(())),
            ("evil.example:9901", None, Err("host-not-allowed")),
            ("10.0.0.7.evil.example", None, Err("host-not-allowed")),
            ("0.0.0.0:9901", None, Err("host-not-allowed")),
            ("167772167", None, Err("host-not-allowed")),
            ("10.0.0.7:9901", Some("http://evil.example"), Err("origin-not-allowed")),
            ("10.0.0.7:9901", Some("http://10.0.0.7:9901"), Err("origin-not-allowed")),
        ] {
            let mut request = Request::get("/readyz").header("host", host);
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            let (head, ()) = request.body(()).unwrap().into_parts();
            let came = admission.admit(&head).map_err(|failure| failure.reason());
            assert_eq!(came, expected, "{host} {origin:?}");
        }
    }

    #[test]
    fn a_page_of_the_listener_itself_may_call_on_loopback_alone() {
        let own = [("host", "gw.example:8080"), ("origin", "http://gw.example:8080")];
        for address in ["127.0.0.1:8080", "127.9.9.9:8080", "[::1]:8080"] {
            assert_eq!(admits_at(address, "/mcp", &own), Ok(()), "{address}");
        }
        // On any other address a page could be anyone's: only listed origins may call.
        for address in ["192.0.2.7:8080", "0.0.0.0:8080", "[::]:8080", "[2001:db8::7]:8080"] {
            assert_eq!(admits_at(address, "/mcp", &own), Err("origin-not-allowed"), "{address}");
            let listed = [own[0], ("origin", "https://good.example")];
            assert_eq!(admits_at(address, "/mcp", &listed), Ok(()), "{address}");
        }
    }

    #[test]
    fn hosts_and_origins() {
        let host = ("host", "gw.example");
        for (uri, headers, expected) in [
            ("/mcp", &[host] as &[_], Ok(())),
            ("/mcp", &[("host", "GW.example:8443")], Ok(())),
            ("/mcp", &[("host", "[::1]:8080")], Ok(())),
            ("/mcp", &[("host", "127.0.0.1")], Ok(())),
            ("http://gw.example/mcp", &[host], Ok(())),
            ("/mcp", &[], Err("host-not-allowed")),
            ("/mcp", &[("host", "evil.example")], Err("host-not-allowed")),
            ("/mcp", &[("host", "gw.example.evil.example")], Err("host-not-allowed")),
            ("/mcp", &[("host", "gw.example.")], Err("host-not-allowed")),
            ("/mcp", &[("host", "evil.example:gw.example")], Err("host-not-allowed")),
            ("/mcp", &[("host", "0.0.0.0")], Err("host-not-allowed")),
            ("/mcp", &[("host", "2130706433")], Err("host-not-allowed")),
            ("/mcp", &[host, host], Err("host-not-allowed")),
            ("http://evil.example/mcp", &[host], Err("host-not-allowed")),
            ("/mcp", &[host, ("origin", "https://good.example")], Ok(())),
            ("/mcp", &[("host", "localhost:8080"), ("origin", "http://localhost:8080")], Ok(())),
            (
                "/mcp",
                &[("host", "localhost:8080"), ("origin", "http://localhost:9999")],
                Err("origin-not-allowed"),
            ),
            ("/mcp", &[host, ("origin", "null")], Err("origin-not-allowed")),
            ("/mcp", &[host, ("origin", "http://good.example")], Err("origin-not-allowed")),
            ("/mcp", &[host, ("origin", "https://good.example:8443")], Err("origin-not-allowed")),
            ("/mcp", &[host, ("origin", "https://good.example.evil")], Err("origin-not-allowed")),
            ("/mcp", &[host, ("origin", "https://GOOD.example")], Err("origin-not-allowed")),
            ("/mcp", &[host, ("origin", "https://x@good.example")], Err("origin-not-allowed")),
            (
                "/mcp",
                &[host, ("origin", "https://good.example"), ("origin", "https://good.example")],
                Err("origin-not-allowed"),
            ),
            ("/mcp", &[host, ("upgrade", "websocket")], Err("upgrade-not-supported")),
        ] {
            assert_eq!(admits(uri, headers), expected, "{uri} {headers:?}");
        }
    }
}
