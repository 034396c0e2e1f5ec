//! Reads the names and properties of X.509 certificates, and decides which of the names count.
//!
//! Only what rustls does not expose is read here: names, the digest of the key, and the expiry. A [`LeafCertificate`] is a
//! certificate as parsed. rustls decides with its trust anchors whether it is valid; a [`VerifiedCertificate`] records the
//! anchor and has only the names that this anchor may vouch for.

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

/// Maximum number of names in one certificate.
const NAMES: usize = 100;
/// Maximum length of a SPIFFE ID, in bytes.
const SPIFFE: usize = 2048;

/// A parsed certificate. Its names are unverified until a trust anchor vouches for it: see [`LeafCertificate::vouched_by`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafCertificate {
    /// SHA-256 of the whole certificate, in base64url: `x5t#S256` (RFC 8705, section 3.1).
    pub thumbprint: Box<str>,
    /// SHA-256 of its public key with the algorithm (RFC 7469, section 2.4).
    pub key: [u8; 32],
    /// The end of its validity.
    pub ends: SystemTime,
    /// Whether it is a CA certificate.
    pub is_authority: bool,
    /// Whether its key may be used for signatures.
    pub signs: bool,
    /// Its subject alternative names, in their order.
    names: Vec<San>,
}

/// A verified client certificate, with the names that its trust anchor may vouch for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedCertificate {
    /// SHA-256 of the whole certificate, as in [`LeafCertificate::thumbprint`].
    pub thumbprint: Box<str>,
    /// The end of its validity.
    pub ends: SystemTime,
    anchor: CertificateAnchor,
    names: Arc<[Box<str>]>,
}

/// The trust anchor that verified a certificate, which decides what names count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateAnchor {
    /// The listener's certificate authorities, which the operator trusts with every name.
    Authorities,
    /// The bundle of this trust domain. It vouches for SPIFFE IDs of the domain and for no other name: a federated
    /// partner can issue anything under its own authority.
    TrustDomain(Box<str>),
    /// A proxy that verified the certificate with anchors that are not known here. A certificate with a SPIFFE ID was
    /// verified with the bundle of that ID's trust domain, so it is treated as such; one without is vouched for by
    /// authorities that the proxy trusts.
    Proxy,
}

/// A subject alternative name (RFC 5280, section 4.2.1.6) of a kind that can identify a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum San {
    /// A URI, such as a SPIFFE ID.
    Uri(Box<str>),
    /// A DNS name, in lower case.
    Dns(Box<str>),
    /// An e-mail address (`rfc822Name`).
    Email(Box<str>),
    /// An IPv4 or IPv6 address.
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

/// The reason why a certificate is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum X509Error {
    /// It cannot be parsed.
    #[error("not a certificate")]
    Unreadable,
    /// It has more than `NAMES` names.
    #[error("more than {NAMES} names")]
    Names,
    /// It has a SPIFFE ID and another URI.
    #[error("a SPIFFE ID beside another URI")]
    Uris,
    /// It has a malformed SPIFFE ID.
    #[error("not a SPIFFE ID")]
    Spiffe,
    /// It has a SPIFFE ID, but is a CA certificate or its key does not sign.
    #[error("a SPIFFE ID of an authority, or of a key that does not sign")]
    Usage,
    /// It has no SPIFFE ID of the trust domain that vouches for it.
    #[error("no SPIFFE ID of the trust domain that vouches for it")]
    Domain,
}

impl LeafCertificate {
    /// Parses a certificate in DER.
    ///
    /// # Errors
    /// If it is malformed, or has too many names.
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

    /// Returns the SPIFFE ID, if the certificate has one.
    ///
    /// SPIFFE X509-SVID, sections 2 and 4: exactly one URI; the leaf is not a CA and its key signs.
    ///
    /// # Errors
    /// If it has a `spiffe:` URI that breaks these rules.
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

    /// Converts to a verified certificate, with the names that `anchor` may vouch for. Call it only after `anchor`
    /// has verified the certificate.
    ///
    /// # Errors
    /// If its SPIFFE ID is invalid, or `anchor` is a trust domain and it has no SPIFFE ID of that domain.
    pub fn vouched_by(self, anchor: CertificateAnchor) -> Result<VerifiedCertificate, X509Error> {
        let only = |id: &SpiffeId| vec![San::Uri(id.as_str().into())];
        let names = match (&anchor, self.spiffe()?) {
            (CertificateAnchor::TrustDomain(domain), Some(id))
                if id.trust_domain() == &**domain =>
            {
                only(&id)
            }
            (CertificateAnchor::TrustDomain(_), Some(_) | None) => return Err(X509Error::Domain),
            (CertificateAnchor::Proxy, Some(id)) => only(&id),
            (CertificateAnchor::Proxy, None) | (CertificateAnchor::Authorities, Some(_) | None) => {
                self.names
            }
        };
        let names = names.iter().map(|name| name.to_string().into_boxed_str()).collect();
        Ok(VerifiedCertificate { thumbprint: self.thumbprint, ends: self.ends, anchor, names })
    }
}

impl VerifiedCertificate {
    /// The trust anchor that verified it.
    #[must_use]
    pub const fn anchor(&self) -> &CertificateAnchor {
        &self.anchor
    }

    /// The names that count, in their order, each with its kind: `uri:..`, `dns:..`, `email:..`, `ip:..`.
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

/// The SHA-256 thumbprint of a certificate in DER, which tokens are bound to (`x5t#S256`).
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

/// A workload identity: `spiffe://TRUST-DOMAIN/PATH`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpiffeId {
    text: Box<str>,
    domain: usize,
}

impl SpiffeId {
    /// Parses a SPIFFE ID in its only spelling (SPIFFE-ID, sections 2.1 to 2.4).
    ///
    /// # Errors
    /// If it is malformed.
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

    /// The ID as text, with its scheme.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The trust domain of the ID.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        let start = "spiffe://".len();
        self.text.get(start..start + self.domain).unwrap_or_default()
    }
}

/// Whether `text` is a valid trust domain name (SPIFFE-ID, section 2.1).
#[must_use]
pub fn is_trust_domain(text: &str) -> bool {
    let fits =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    (1..=255).contains(&text.len()) && text.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::{CertificateAnchor, LeafCertificate, San, SpiffeId, X509Error, is_trust_domain};
    use std::time::UNIX_EPOCH;

    fn certificate(names: &[San]) -> LeafCertificate {
        let (thumbprint, names) = ("".into(), names.to_vec());
        let (is_authority, signs) = (false, true);
        LeafCertificate { thumbprint, key: [0; 32], names, ends: UNIX_EPOCH, is_authority, signs }
    }

    #[test]
    fn only_names_that_an_anchor_may_vouch_for_count() {
        let host = San::Dns("admin.corp.example".into());
        let id = San::Uri("spiffe://other.example/x".into());
        let (both, plain) = (certificate(&[host.clone(), id]), certificate(&[host]));
        let domain = |name: &str| CertificateAnchor::TrustDomain(name.into());
        let names = |leaf: &LeafCertificate, anchor: CertificateAnchor| {
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
        assert_eq!(names(&both, CertificateAnchor::Proxy), only);
        assert_eq!(
            names(&plain, CertificateAnchor::Proxy),
            Ok(vec!["dns:admin.corp.example".to_owned()])
        );
        assert_eq!(names(&both, CertificateAnchor::Authorities), all);
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
        let authority = LeafCertificate { is_authority: true, ..one.clone() };
        assert_eq!(authority.spiffe(), Err(X509Error::Usage));
        let mute = LeafCertificate { signs: false, ..one };
        assert_eq!(mute.spiffe(), Err(X509Error::Usage));
    }
}
