//! What a certificate says of whom it belongs to, and which of that counts.
//!
//! Only what rustls does not tell is read here: names, the key's digest, and when it ends. A [`Leaf`]
//! is what was read. Whether it is to be believed is decided by rustls, with some trust anchors; a
//! [`Certificate`] names those and has only the names that they may vouch for.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::base::sha256::sha256;

/// Most names in one certificate.
const NAMES: usize = 100;
/// Longest SPIFFE ID, in bytes.
const SPIFFE: usize = 2048;

/// A certificate as it was read. Its names are what it says, and count for nothing before somebody
/// vouches for it: see [`Leaf::vouched_by`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// SHA-256 of the whole certificate, in Base64 for URLs: `x5t#S256` (RFC 8705, section 3.1).
    pub thumbprint: Box<str>,
    /// SHA-256 of its public key with the algorithm (RFC 7469, section 2.4).
    pub key: [u8; 32],
    /// When it ends.
    pub ends: SystemTime,
    /// Its owner may issue certificates.
    pub is_authority: bool,
    /// Its key may be used for signatures.
    pub signs: bool,
    /// Its subject alternative names, in its order.
    names: Vec<San>,
}

/// The certificate of a client that somebody has vouched for, with the names that count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// SHA-256 of the whole certificate, as in [`Leaf::thumbprint`].
    pub thumbprint: Box<str>,
    /// When it ends.
    pub ends: SystemTime,
    anchor: Anchor,
    names: Arc<[Box<str>]>,
}

/// The trust anchors that vouch for a certificate, which decide what names they may give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The authorities of the listener, which the operator trusts with every name.
    Authorities,
    /// The bundle of this trust domain. It vouches for the SPIFFE IDs of the domain and for no other
    /// name: a partner whose domain is federated issues whatever it likes under its own authority.
    TrustDomain(Box<str>),
    /// A proxy that verified the certificate with anchors of its own, which are not known here. A
    /// certificate with a SPIFFE ID was verified with the bundle of that ID's trust domain, so it is
    /// treated as such; one without is named by authorities that the proxy trusts.
    Proxy,
}

/// A subject alternative name (RFC 5280, section 4.2.1.6). Other kinds name nobody here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum San {
    /// A URI.
    Uri(Box<str>),
    /// A host.
    Dns(Box<str>),
    /// An address for mail.
    Email(Box<str>),
    /// An address.
    Ip(IpAddr),
}

impl fmt::Display for San {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uri(uri) => write!(f, "uri:{uri}"),
            Self::Dns(host) => write!(f, "dns:{host}"),
            Self::Email(address) => write!(f, "email:{address}"),
            Self::Ip(address) => write!(f, "ip:{address}"),
        }
    }
}

/// What is not accepted as a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum X509Error {
    /// It cannot be read.
    #[error("not a certificate")]
    Unreadable,
    /// It has more names than anybody needs.
    #[error("more than {NAMES} names")]
    Names,
    /// A SPIFFE ID is the only URI in a certificate.
    #[error("a SPIFFE ID beside another URI")]
    Uris,
    /// A SPIFFE ID is written in one way.
    #[error("not a SPIFFE ID")]
    Spiffe,
    /// A SPIFFE ID does not belong to an authority.
    #[error("a SPIFFE ID of an authority, or of a key that does not sign")]
    Usage,
    /// A trust domain vouches for its own SPIFFE IDs alone.
    #[error("no SPIFFE ID of the trust domain that vouches for it")]
    Domain,
}

impl Leaf {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// When it is none, or has too many names.
    pub fn read(der: &[u8]) -> Result<Self, X509Error> {
        let unreadable = |_| X509Error::Unreadable;
        let (rest, read) =
            X509Certificate::from_der(der).map_err(|_wrong| X509Error::Unreadable)?;
        if !rest.is_empty() {
            return Err(X509Error::Unreadable);
        }
        let mut names = Vec::new();
        if let Some(found) = read.subject_alternative_name().map_err(unreadable)? {
            if found.value.general_names.len() > NAMES {
                return Err(X509Error::Names);
            }
            names.extend(found.value.general_names.iter().filter_map(san));
        }
        let basic = read.basic_constraints().map_err(unreadable)?;
        let usage = read.key_usage().map_err(unreadable)?;
        let ends = u64::try_from(read.validity().not_after.timestamp()).unwrap_or(0);
        let key = sha256(read.public_key().raw);
        Ok(Self {
            thumbprint: thumbprint(der),
            key,
            names,
            ends: UNIX_EPOCH + Duration::from_secs(ends),
            is_authority: basic.is_some_and(|basic| basic.value.ca),
            signs: usage.is_none_or(|usage| usage.value.digital_signature()),
        })
    }

    /// The SPIFFE ID, if it has one.
    ///
    /// SPIFFE X509-SVID, sections 2 and 4: exactly one URI; the leaf is no authority and signs.
    ///
    /// # Errors
    /// When it has something like one.
    pub fn spiffe(&self) -> Result<Option<SpiffeId>, X509Error> {
        let uris = || self.names.iter().filter_map(San::uri);
        let claimed = |uri: &str| uri.get(..7).is_some_and(|it| it.eq_ignore_ascii_case("spiffe:"));
        if !uris().any(claimed) {
            return Ok(None);
        }
        let mut uris = uris();
        let (Some(uri), None) = (uris.next(), uris.next()) else { return Err(X509Error::Uris) };
        let id = SpiffeId::parse(uri)?;
        if self.is_authority || !self.signs {
            return Err(X509Error::Usage);
        }
        Ok(Some(id))
    }

    /// The certificate, once `anchor` has verified it: with the names that `anchor` may vouch for.
    ///
    /// # Errors
    /// When it has something like a SPIFFE ID, or none of the trust domain that vouches for it.
    pub fn vouched_by(self, anchor: Anchor) -> Result<Certificate, X509Error> {
        let only = |id: &SpiffeId| vec![San::Uri(id.as_str().into())];
        let names = match (&anchor, self.spiffe()?) {
            (Anchor::TrustDomain(domain), Some(id)) if id.trust_domain() == &**domain => only(&id),
            (Anchor::TrustDomain(_), Some(_) | None) => return Err(X509Error::Domain),
            (Anchor::Proxy, Some(id)) => only(&id),
            (Anchor::Proxy, None) | (Anchor::Authorities, Some(_) | None) => self.names,
        };
        let names = names.iter().map(|name| name.to_string().into_boxed_str()).collect();
        Ok(Certificate { thumbprint: self.thumbprint, ends: self.ends, anchor, names })
    }
}

impl Certificate {
    /// Who vouches for it.
    #[must_use]
    pub const fn anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// The names that count, in its order, each with its kind: `uri:..`, `dns:..`, `email:..`, `ip:..`.
    #[must_use]
    pub const fn names(&self) -> &Arc<[Box<str>]> {
        &self.names
    }
}

impl San {
    fn uri(&self) -> Option<&str> {
        match self {
            Self::Uri(uri) => Some(uri),
            Self::Dns(_) | Self::Email(_) | Self::Ip(_) => None,
        }
    }
}

/// The digest of a certificate in DER that tokens are bound to.
#[must_use]
pub fn thumbprint(der: &[u8]) -> Box<str> {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, der)).into()
}

fn san(name: &GeneralName<'_>) -> Option<San> {
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    match name {
        GeneralName::URI(uri) if plain(uri) => Some(San::Uri((*uri).into())),
        GeneralName::DNSName(host) if plain(host) => {
            Some(San::Dns(host.to_ascii_lowercase().into()))
        }
        GeneralName::RFC822Name(address) if plain(address) => Some(San::Email((*address).into())),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).ok().map(IpAddr::from);
            four.or_else(|| <[u8; 16]>::try_from(*bytes).ok().map(IpAddr::from)).map(San::Ip)
        }
        _ => None,
    }
}

/// The name of a workload: `spiffe://TRUST-DOMAIN/PATH`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpiffeId {
    text: Box<str>,
    domain: usize,
}

impl SpiffeId {
    /// Reads one; there is one way to write it.
    ///
    /// SPIFFE-ID, sections 2.1 to 2.4
    ///
    /// # Errors
    /// When it is anything else.
    pub fn parse(text: &str) -> Result<Self, X509Error> {
        let rest = text.strip_prefix("spiffe://").filter(|_| text.len() <= SPIFFE);
        let rest = rest.ok_or(X509Error::Spiffe)?;
        let (domain, path) = match rest.split_once('/') {
            Some((domain, path)) => (domain, Some(path)),
            None => (rest, None),
        };
        let segment = |segment: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            !matches!(segment, "" | "." | "..") && segment.bytes().all(fits)
        };
        if !is_trust_domain(domain) || !path.is_none_or(|path| path.split('/').all(segment)) {
            return Err(X509Error::Spiffe);
        }
        Ok(Self { text: text.into(), domain: domain.len() })
    }

    /// All of it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Who vouches for it.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        let start = "spiffe://".len();
        self.text.get(start..start + self.domain).unwrap_or_default()
    }
}

/// Whether `text` is a trust domain (SPIFFE-ID, section 2.1).
#[must_use]
pub fn is_trust_domain(text: &str) -> bool {
    let fits =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    (1..=255).contains(&text.len()) && text.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::{Anchor, Leaf, San, SpiffeId, X509Error, is_trust_domain};
    use std::time::UNIX_EPOCH;

    fn certificate(names: &[San]) -> Leaf {
        let (thumbprint, names) = ("".into(), names.to_vec());
        let (is_authority, signs) = (false, true);
        Leaf { thumbprint, key: [0; 32], names, ends: UNIX_EPOCH, is_authority, signs }
    }

    #[test]
    fn only_names_that_an_anchor_may_vouch_for_count() {
        let host = San::Dns("admin.corp.example".into());
        let id = San::Uri("spiffe://other.example/x".into());
        let (both, plain) = (certificate(&[host.clone(), id]), certificate(&[host]));
        let domain = |name: &str| Anchor::TrustDomain(name.into());
        let names = |leaf: &Leaf, anchor: Anchor| {
            let vouched = leaf.clone().vouched_by(anchor);
            vouched.map(|it| it.names().iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let only = Ok(vec!["uri:spiffe://other.example/x".to_owned()]);
        let all = Ok(vec![
            "dns:admin.corp.example".to_owned(),
            "uri:spiffe://other.example/x".to_owned(),
        ]);
        assert_eq!(names(&both, domain("other.example")), only);
        assert_eq!(names(&both, domain("corp.example")), Err(X509Error::Domain));
        assert_eq!(names(&plain, domain("other.example")), Err(X509Error::Domain));
        assert_eq!(names(&both, Anchor::Proxy), only);
        assert_eq!(names(&plain, Anchor::Proxy), Ok(vec!["dns:admin.corp.example".to_owned()]));
        assert_eq!(names(&both, Anchor::Authorities), all);
    }

    #[test]
    fn one_way_to_write_a_spiffe_id() {
        let id = SpiffeId::parse("spiffe://corp.example/ns/a/sa/b").unwrap();
        assert_eq!(id.trust_domain(), "corp.example");
        assert!(SpiffeId::parse("spiffe://corp.example").is_ok());
        for wrong in [
            "spiffe://corp.example/",
            "spiffe://corp.example//a",
            "spiffe://corp.example/a/../b",
            "spiffe://corp.example/./a",
            "spiffe://Corp.example/a",
            "SPIFFE://corp.example/a",
            "spiffe://corp.example:80/a",
            "spiffe://user@corp.example/a",
            "spiffe://corp.example/a?b",
            "spiffe://corp.example/a#b",
            "spiffe://corp.example/%61",
            "spiffe:///a",
            "https://corp.example/a",
        ] {
            assert_eq!(SpiffeId::parse(wrong), Err(X509Error::Spiffe), "{wrong}");
        }
        assert!(!is_trust_domain("") && !is_trust_domain("a b"));
    }

    #[test]
    fn a_spiffe_id_stands_alone_and_belongs_to_a_leaf() {
        let uri = |text: &str| San::Uri(text.into());
        let id = uri("spiffe://corp.example/a");
        let one = certificate(&[San::Dns("a.example".into()), id.clone()]);
        assert_eq!(one.spiffe().unwrap().unwrap().as_str(), "spiffe://corp.example/a");
        assert_eq!(certificate(&[uri("https://a.example")]).spiffe(), Ok(None));
        let two = certificate(&[id.clone(), uri("https://a.example")]);
        assert_eq!(two.spiffe(), Err(X509Error::Uris));
        assert_eq!(certificate(&[id.clone(), id.clone()]).spiffe(), Err(X509Error::Uris));
        let shouted = certificate(&[uri("SPIFFE://corp.example/a")]);
        assert_eq!(shouted.spiffe(), Err(X509Error::Spiffe));
        let authority = Leaf { is_authority: true, ..one.clone() };
        assert_eq!(authority.spiffe(), Err(X509Error::Usage));
        let mute = Leaf { signs: false, ..one };
        assert_eq!(mute.spiffe(), Err(X509Error::Usage));
    }
}
