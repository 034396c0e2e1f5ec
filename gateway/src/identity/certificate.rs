//! Authenticates callers by the certificate of their connection, or by a certificate that a trusted proxy forwards.
//!
//! RFC 8705 section 7.1, RFC 9440; vectors AV-42 and AV-45.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use policy_core::subject::name::PrincipalId;
use policy_core::subject::pattern::Pattern;
use policy_core::subject::principal::{Claims, Principal, ProofOfPossession};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::config::settings::{ForwardedCertificates, ForwardedHeader, KnownCertificate};
use crate::crypto::x509::{CertificateAnchor, LeafCertificate, VerifiedCertificate};
use crate::mcp::wire::headers::{SingleValue, single};

/// Maximum length of a header with a certificate, in bytes.
const MAX_HEADER: usize = 16 * 1024;

/// Returns the principal of a certificate, if one of its names is configured.
pub(super) fn who(
    known: &[KnownCertificate],
    certificate: &VerifiedCertificate,
) -> Option<Principal> {
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
    claims.proof = ProofOfPossession::Certificate;
    claims.scopes = scopes.into_iter().collect();
    claims.thumbprint = Some(format!("x5t:{}", certificate.thumbprint).into());
    Some(Principal { id, groups: groups.into_iter().collect(), claims }.bound())
}

/// Whether one of the verified names of `certificate` matches one of `patterns`.
#[must_use]
pub fn is_named(certificate: &VerifiedCertificate, patterns: &[Pattern]) -> bool {
    let mut names = certificate.names().iter();
    names.any(|name| patterns.iter().any(|pattern| pattern.matches(name)))
}

/// The content of a header with a forwarded certificate.
#[derive(Debug)]
pub enum ForwardedCertificate {
    /// The sender is not a trusted proxy, so the header is ignored.
    UntrustedPeer,
    /// The trusted proxy forwards no certificate.
    None,
    /// The trusted proxy forwards this certificate.
    Certificate(Arc<VerifiedCertificate>),
    /// The trusted proxy forwards something that cannot be parsed.
    Broken,
}

/// Reads the client certificate that a trusted proxy forwards. The proxy is recognised by its address `peer` and its
/// `own` certificate; headers of other senders are ignored.
#[must_use]
pub fn told(
    forwarded: &ForwardedCertificates,
    peer: IpAddr,
    own: Option<&VerifiedCertificate>,
    headers: &HeaderMap,
    now: SystemTime,
) -> ForwardedCertificate {
    let placed = forwarded.addresses.is_empty()
        || forwarded.addresses.iter().any(|prefix| prefix.contains(&peer.to_canonical()));
    let named =
        forwarded.names.is_empty() || own.is_some_and(|own| is_named(own, &forwarded.names));
    if !placed || !named {
        return ForwardedCertificate::UntrustedPeer;
    }
    let header = match forwarded.header {
        ForwardedHeader::ClientCert => "client-cert",
        ForwardedHeader::Envoy => "x-forwarded-client-cert",
    };
    let text = match single(headers, header) {
        SingleValue::Absent => return ForwardedCertificate::None,
        SingleValue::Bad => return ForwardedCertificate::Broken,
        SingleValue::Value(text) => text,
    };
    let der = match forwarded.header {
        _ if text.len() > MAX_HEADER => None,
        ForwardedHeader::ClientCert => rfc9440(text),
        ForwardedHeader::Envoy => envoy(text),
    };
    let read = der.and_then(|der| LeafCertificate::read(&der).ok()).filter(|read| read.ends > now);
    match read.and_then(|read| read.vouched_by(CertificateAnchor::Proxy).ok()) {
        Some(certificate) => ForwardedCertificate::Certificate(Arc::new(certificate)),
        None => ForwardedCertificate::Broken,
    }
}

/// Parses a byte sequence of structured fields (RFC 9440, section 2.1; RFC 8941, section 3.3.5).
fn rfc9440(text: &str) -> Option<Vec<u8>> {
    let inner = text.trim().strip_prefix(':')?.strip_suffix(':')?;
    STANDARD.decode(inner).ok()
}

/// Parses `Cert="<PEM, percent-encoded>"` of the only element: with several elements, it is unknown which one this
/// proxy has verified itself.
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

/// Decodes percent-encoded text (RFC 3986, section 2.1).
pub(super) fn percent(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        let decoded = json::hex::decode(std::str::from_utf8(&digits).ok()?)?;
        out.push(*decoded.first()?);
    }
    Some(out)
}
