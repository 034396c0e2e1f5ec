//! Callers by the certificate of their connection, and certificates that a proxy tells.
//!
//! RFC 8705 section 7.1, RFC 9440; vectors AV-42 and AV-45.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use policy::name::PrincipalId;
use policy::pattern::Pattern;
use policy::principal::{Claims, Principal, Proof};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::config::settings::{Forwarded, ForwardedHeader, KnownCertificate};
use crate::crypto::x509::{Anchor, Certificate, Leaf};
use crate::mcp::wire::headers::{Single, single};

/// Longest header with a certificate in it.
const LONGEST: usize = 16 * 1024;

/// Who has `certificate`, if it is one that is known.
pub(super) fn who(known: &[KnownCertificate], certificate: &Certificate) -> Option<Principal> {
    let (mut id, mut groups, mut scopes) = (None, Vec::new(), Vec::new());
    for entry in known {
        let mut names = certificate.names().iter();
        let name = names.find(|name| entry.names.iter().any(|pattern| pattern.matches(name)));
        if let Some(name) = name {
            id = id.or_else(|| PrincipalId::parse(name).ok());
            groups.extend(entry.groups.iter().cloned());
            scopes.extend(entry.scopes.iter().cloned());
        }
    }
    let id: PrincipalId = id?;
    let mut claims = Claims::default();
    claims.certificate = Some(id.as_str().into());
    claims.proof = Proof::Certificate;
    claims.scopes = scopes.into_iter().collect();
    claims.thumbprint = Some(format!("x5t:{}", certificate.thumbprint).into());
    Some(Principal { id, groups: groups.into_iter().collect(), claims }.bound())
}

/// Whether one of the names of `certificate` that count is among `patterns`.
#[must_use]
pub fn is_named(certificate: &Certificate, patterns: &[Pattern]) -> bool {
    let mut names = certificate.names().iter();
    names.any(|name| patterns.iter().any(|pattern| pattern.matches(name)))
}

/// What a header says that should have a certificate in it.
#[derive(Debug)]
pub enum Told {
    /// Nothing that counts: whoever sent it may not tell.
    Stranger,
    /// That there is none, by somebody who may tell.
    None,
    /// This certificate.
    Certificate(Arc<Certificate>),
    /// Something that cannot be read, by somebody who may tell.
    Broken,
}

/// The certificate of a client, as a proxy tells it that may: from `peer`, with a certificate of its
/// `own`. Others are not listened to.
#[must_use]
pub fn told(
    forwarded: &Forwarded,
    peer: IpAddr,
    own: Option<&Certificate>,
    headers: &HeaderMap,
    now: SystemTime,
) -> Told {
    let placed = forwarded.addresses.is_empty()
        || forwarded.addresses.iter().any(|prefix| prefix.contains(&peer.to_canonical()));
    let named =
        forwarded.names.is_empty() || own.is_some_and(|own| is_named(own, &forwarded.names));
    if !placed || !named {
        return Told::Stranger;
    }
    let header = match forwarded.header {
        ForwardedHeader::ClientCert => "client-cert",
        ForwardedHeader::Envoy => "x-forwarded-client-cert",
    };
    let text = match single(headers, header) {
        Single::Absent => return Told::None,
        Single::Bad => return Told::Broken,
        Single::Value(text) => text,
    };
    let der = match forwarded.header {
        _ if text.len() > LONGEST => None,
        ForwardedHeader::ClientCert => rfc9440(text),
        ForwardedHeader::Envoy => envoy(text),
    };
    let read = der.and_then(|der| Leaf::read(&der).ok()).filter(|read| read.ends > now);
    match read.and_then(|read| read.vouched_by(Anchor::Proxy).ok()) {
        Some(certificate) => Told::Certificate(Arc::new(certificate)),
        None => Told::Broken,
    }
}

/// A byte sequence of structured fields (RFC 9440, section 2.1; RFC 8941, section 3.3.5).
fn rfc9440(text: &str) -> Option<Vec<u8>> {
    let inner = text.trim().strip_prefix(':')?.strip_suffix(':')?;
    STANDARD.decode(inner).ok()
}

/// `Cert="<PEM, percent-encoded>"` of the only element: with more than one it cannot be known which
/// of them this proxy has seen itself.
fn envoy(text: &str) -> Option<Vec<u8>> {
    let (mut quoted, mut parts, mut start) = (false, Vec::new(), 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b',' if !quoted => return None,
            b';' if !quoted => {
                parts.push(text.get(start..at)?);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..)?);
    let mut found = parts.iter().filter_map(|part| {
        let (key, value) = part.trim().split_once('=')?;
        key.eq_ignore_ascii_case("cert").then_some(value)
    });
    let (value, None) = (found.next()?, found.next()) else { return None };
    let pem = percent(value.strip_prefix('"')?.strip_suffix('"')?)?;
    CertificateDer::from_pem_slice(&pem).ok().map(|der| der.as_ref().to_vec())
}

/// The bytes of a text that is percent-encoded (RFC 3986, section 2.1).
pub(super) fn percent(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        let decoded = crate::base::hex::decode(std::str::from_utf8(&digits).ok()?)?;
        out.push(*decoded.first()?);
    }
    Some(out)
}
