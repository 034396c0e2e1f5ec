//! The origins that an app may reach. Clients write them into a content security policy, so only one spelling of an
//! origin is accepted: what a browser could read as anything else is none.

use std::fmt;

/// Longest text of an origin, in bytes.
const LONGEST: usize = 261;
/// Longest label of a host name, in bytes (RFC 1035, section 2.3.4).
const LABEL: usize = 63;
/// How a label begins that stands for characters outside ASCII (RFC 5890, section 2.3.2.1).
const PUNYCODE: &str = "xn--";

/// An origin, or all subdomains of a host: `https://*.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppOrigin {
    scheme: OriginScheme,
    /// In lower case, without the `*.` of subdomains.
    host: Box<str>,
    hosts: OriginHosts,
    /// `None` for the usual one of the scheme.
    port: Option<u16>,
}

/// The hosts of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OriginHosts {
    /// The host itself.
    One,
    /// Every subdomain of the host, and not the host itself.
    Subdomains,
}

/// The scheme of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OriginScheme {
    Https,
    Wss,
}

/// Why a text is no origin that an app may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginError {
    /// It is longer than an origin can be.
    Length,
    /// It does not begin with `https://` or `wss://`.
    Scheme,
    /// It has more than a scheme, a host and a port: a name, a path, a query, a blank.
    Parts,
    /// The host is not written in ASCII letters, digits, `-` and `.`.
    Host,
    /// A `*` that does not stand for the first label of a host with at least two more.
    Wildcard,
    /// The port is not a plain number.
    Port,
}

impl fmt::Display for OriginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "is too long",
            Self::Scheme => "does not begin with `https://` or `wss://`",
            Self::Parts => "has more than a scheme, a host and a port",
            Self::Host => "has a host that is not written in ASCII letters, digits, `-` and `.`",
            Self::Wildcard => {
                "has a `*` that is not the first label of a host with at least two more"
            }
            Self::Port => "has a port that is not a plain number",
        })
    }
}

impl std::error::Error for OriginError {}

impl AppOrigin {
    /// Reads an origin.
    ///
    /// # Errors
    /// If a browser could read the text as anything but this origin.
    pub fn parse(text: &str) -> Result<Self, OriginError> {
        if text.len() > LONGEST {
            return Err(OriginError::Length);
        }
        let (scheme, rest) = text.split_once("://").ok_or(OriginError::Scheme)?;
        let (scheme, usual) = match scheme.to_ascii_lowercase().as_str() {
            "https" => (OriginScheme::Https, 443),
            "wss" => (OriginScheme::Wss, 443),
            _ => return Err(OriginError::Scheme),
        };
        // The root is the whole origin.
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '\\', '?', '#', '@', '%', ';', ',', '\'', '"', ' ']) {
            return Err(OriginError::Parts);
        }
        let (host, port) = match rest.split_once(':') {
            Some((host, port)) => (host, Some(self::port(port)?)),
            None => (rest, None),
        };
        let (host, hosts) = match host.strip_prefix("*.") {
            Some(host) if host.contains('.') => (host, OriginHosts::Subdomains),
            Some(_) => return Err(OriginError::Wildcard),
            None => (host, OriginHosts::One),
        };
        if host.contains('*') {
            return Err(OriginError::Wildcard);
        }
        let host = host.to_ascii_lowercase();
        if !host.split('.').all(is_label) {
            return Err(OriginError::Host);
        }
        let port = port.filter(|port| *port != usual);
        Ok(Self { scheme, host: host.into(), hosts, port })
    }

    /// Whether this origin of a policy allows `declared`, an origin of an app. Every name in Punycode has to be listed
    /// itself: it is shown to nobody in the letters that it looks like.
    #[must_use]
    pub fn allows(&self, declared: &Self) -> bool {
        if self.scheme != declared.scheme || self.port != declared.port {
            return false;
        }
        if self.hosts == declared.hosts && self.host == declared.host {
            return true;
        }
        let before =
            declared.host.strip_suffix(&*self.host).and_then(|host| host.strip_suffix('.'));
        self.hosts == OriginHosts::Subdomains
            && before.is_some_and(|labels| !labels.split('.').any(is_punycode))
    }
}

/// A port in its plain form.
fn port(text: &str) -> Result<u16, OriginError> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain).ok_or(OriginError::Port)
}

fn is_label(label: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=LABEL).contains(&label.len())
        && label.bytes().all(is_plain)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

fn is_punycode(label: &str) -> bool {
    label.starts_with(PUNYCODE)
}
