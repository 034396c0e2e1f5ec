//! Compiles connections to external services other than MCP servers, such as authorization servers, and the
//! credentials that the gateway presents there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use policy_core::subject::name::Scope;
use policy_core::subject::pattern::Pattern;

use super::SecretRef;
use super::compiler::SettingsCompiler;
use super::raw::{RawClient, RawOwnCertificate, RawReach, RawSecretIn};
use crate::crypto::jwk::Algorithm;
use crate::crypto::jws_signer::JwsSigner;
use crate::crypto::pem;
use crate::net::egress::Egress;

/// An external service at a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceEndpoint {
    /// The URL of the service.
    pub url: Uri,
    /// How the gateway connects to it.
    pub way: ConnectionSettings,
}

/// How the gateway connects to an external service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// The file with the trusted certificate authorities; those of the system if `None`.
    pub authorities: Option<PathBuf>,
    /// The networks that connections may go to; if `None`, those that the host in the URL implies.
    pub egress: Option<Egress>,
}

/// The gateway as a client of an authorization server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRegistration {
    /// The client id at the authorization server.
    pub id: Box<str>,
    /// How the client authenticates.
    pub proof: ClientProof,
}

/// How a client authenticates to an authorization server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientProof {
    /// With a secret in `Authorization: Basic`.
    Basic(SecretRef),
    /// With a secret in the request body.
    Post(SecretRef),
    /// With a signed assertion (`private_key_jwt`, RFC 7523).
    Key {
        /// The file with the private key.
        file: PathBuf,
        /// The key id at the authorization server.
        kid: Option<Box<str>>,
        /// The signature algorithm, if the key supports more than one.
        algorithm: Option<Algorithm>,
        /// The audience of assertions.
        audience: Option<Box<str>>,
    },
    /// With the certificate of the connection (RFC 8705, section 2).
    Certificate(GatewayCertificate),
}

/// A certificate of the gateway, and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayCertificate {
    /// The file with the certificate and its chain.
    pub certificate: PathBuf,
    /// The file with the private key.
    pub key: PathBuf,
}

impl SettingsCompiler<'_> {
    /// Parses an `https` URL; plain HTTP could be read and changed in transit.
    pub(super) fn https(&mut self, at: &str, text: &str) -> Option<Uri> {
        let uri = text.parse::<Uri>().ok().filter(|uri| {
            uri.scheme_str() == Some("https")
                && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
                && !text.contains('#')
        });
        if uri.is_none() {
            let message = format!("`{}` is not an `https` URL", text.escape_debug());
            self.report(
                at,
                message,
                "write `https://host/path`; plain HTTP can be changed on its way",
            );
        }
        uri
    }

    pub(super) fn way(&mut self, at: &str, raw: &RawReach) -> ConnectionSettings {
        let authorities = raw.authorities.as_deref().and_then(|file| {
            let at = format!("{at}/authorities");
            self.authorities(&at, file)
        });
        let egress = raw.egress.as_ref().map(|list| self.networks(&format!("{at}/egress"), list));
        ConnectionSettings { authorities, egress }
    }

    /// Checks a file with certificate authorities.
    pub(super) fn authorities(&mut self, at: &str, file: &str) -> Option<PathBuf> {
        let path = self.path(file);
        self.uses.believed.push(path.clone());
        match pem::roots(&path) {
            Ok(_) => Some(path),
            Err(error) => {
                self.report(
                    at,
                    error.to_string(),
                    "give a file with certificates of authorities in PEM",
                );
                None
            }
        }
    }

    /// Checks a certificate of the gateway and its key; an expired one is refused.
    pub(super) fn own(&mut self, at: &str, raw: &RawOwnCertificate) -> Option<GatewayCertificate> {
        let own = GatewayCertificate {
            certificate: self.path(&raw.certificate),
            key: self.path(&raw.key),
        };
        self.uses.believed.push(own.certificate.clone());
        self.uses.files.push(own.key.clone());
        match pem::identity(&own.certificate, &own.key) {
            Ok((_, read)) if read.ends <= self.now => {
                let ended = humantime::format_rfc3339_seconds(read.ends);
                let message = format!("the certificate in `{}` ended at {ended}", raw.certificate);
                self.report(&format!("{at}/certificate"), message, "renew it");
                None
            }
            Ok(_) => Some(own),
            Err(error) => {
                let part = match error {
                    pem::PemError::NoKey(_) | pem::PemError::Mismatch(_) => "key",
                    pem::PemError::Read(ref file, _)
                        if **file == *own.key.display().to_string() =>
                    {
                        "key"
                    }
                    _ => "certificate",
                };
                let help = "give the certificate with its chain and its private key, in PEM";
                self.report(&format!("{at}/{part}"), error.to_string(), help);
                None
            }
        }
    }

    pub(super) fn client(&mut self, at: &str, raw: RawClient) -> Option<ClientRegistration> {
        if raw.id.is_empty() {
            self.report(&format!("{at}/id"), "the id is empty", "give the id of the gateway there");
        }
        let secret_in = raw.secret_in;
        let proof = match (raw.secret, raw.private_key, raw.certificate) {
            (Some(secret), None, None) => {
                let secret = self.secret(&format!("{at}/secret"), secret)?;
                match secret_in {
                    RawSecretIn::Header => ClientProof::Basic(secret),
                    RawSecretIn::Body => ClientProof::Post(secret),
                }
            }
            (None, Some(raw), None) => {
                let file = self.path(&raw.file);
                self.uses.files.push(file.clone());
                self.private_key(&format!("{at}/privateKey/file"), &file, raw.algorithm)?;
                let (kid, audience) = (raw.key_id.map(Into::into), raw.audience.map(Into::into));
                ClientProof::Key { file, kid, algorithm: raw.algorithm, audience }
            }
            (None, None, Some(raw)) => {
                ClientProof::Certificate(self.own(&format!("{at}/certificate"), &raw)?)
            }
            _ => {
                let help = "give exactly one of `secret`, `privateKey` and `certificate`";
                self.report(at, "it is not clear how the gateway proves to be this client", help);
                return None;
            }
        };
        Some(ClientRegistration { id: raw.id.into(), proof })
    }

    fn private_key(&mut self, at: &str, file: &Path, algorithm: Option<Algorithm>) -> Option<()> {
        let help = "give a private key in PEM: RSA, P-256, P-384 or Ed25519";
        let key = pem::key(file).map_err(|error| self.report(at, error.to_string(), help)).ok()?;
        if JwsSigner::new(&key, None, algorithm).is_none() {
            self.report(at, "the key cannot sign in the way that is asked for", help);
            return None;
        }
        Some(())
    }

    pub(super) fn scopes(&mut self, at: &str, texts: &[String]) -> Vec<Scope> {
        let mut scopes = Vec::new();
        for (n, text) in texts.iter().enumerate() {
            match Scope::parse(text) {
                Ok(scope) => scopes.push(scope),
                Err(error) => {
                    let message = format!("the scope `{}` {error}", text.escape_debug());
                    self.report(
                        &format!("{at}/{n}"),
                        message,
                        "write each scope as an item of its own",
                    );
                }
            }
        }
        scopes
    }

    /// Compiles patterns over the names in certificates.
    pub(super) fn names(&mut self, at: &str, texts: &[String]) -> Vec<Pattern> {
        const KINDS: [&str; 4] = ["uri:", "dns:", "email:", "ip:"];
        let mut seen = BTreeSet::new();
        for (n, text) in texts.iter().enumerate() {
            self.unique(&format!("{at}/{n}"), text, &mut seen);
            if !KINDS.iter().any(|kind| text.starts_with(kind)) {
                let message = format!("`{}` is not the name of a certificate", text.escape_debug());
                let help = "write `uri:..`, `dns:..`, `email:..` or `ip:..`";
                self.report(&format!("{at}/{n}"), message, help);
            }
        }
        texts.iter().map(|text| Pattern::new(text)).collect()
    }

    /// Parses a time, with a default and a maximum.
    pub(super) fn time_within(
        &mut self,
        at: &str,
        text: Option<&str>,
        usual: Duration,
        most: Duration,
    ) -> Duration {
        let time = self.time(at, text).unwrap_or(usual);
        if time > most {
            let most = humantime::format_duration(most);
            self.report(at, format!("longer than {most}"), format!("give at most `{most}`"));
        }
        time
    }
}
