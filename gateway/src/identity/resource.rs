//! A route as an OAuth protected resource: its identifier, its metadata, and the challenges for clients without a
//! sufficient token.
//!
//! RFC 9728 (protected resource metadata), RFC 6750 section 3 and RFC 9449 section 7.1 (challenges).

use std::fmt::Write as _;

use bytes::Bytes;
use http::HeaderValue;
use policy_core::subject::name::Scope;
use policy_core::subject::principal::{ProofOfPossession, RequiredProof};

use crate::config::settings::{IssuerSettings, RouteOauth};
use crate::crypto::jwk::Algorithm;

/// The well-known prefix of metadata paths.
pub const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// An OAuth protected resource.
#[derive(Debug)]
pub struct ProtectedResource {
    /// The public base URL of the listener.
    pub public: Box<str>,
    /// The resource identifier, which is the required audience.
    pub uri: Box<str>,
    /// Alternative audiences that are accepted.
    pub audiences: Vec<Box<str>>,
    /// Audiences that a token may have beside an accepted one.
    besides: Vec<Box<str>>,
    /// Indices of the accepted issuers.
    pub issuers: Vec<usize>,
    /// The proof of possession that tokens require.
    pub proof: Option<RequiredProof>,
    /// Whether DPoP proofs need a nonce of the gateway.
    pub nonce: bool,
    /// The metadata document, in JSON.
    pub metadata: Bytes,
    /// The URL of the metadata document.
    location: Box<str>,
    /// The scopes that clients should request first, separated by spaces.
    scopes: Box<str>,
}

/// The error of a request, in the terms of RFC 6750, section 3.1, and RFC 9449.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeError {
    /// None: the request had no credential.
    Nothing,
    /// The request is malformed.
    Request,
    /// The token is not accepted, for this reason.
    Token(&'static str),
    /// The token is only accepted with a DPoP proof.
    Bound(&'static str),
    /// The proof is not accepted, for this reason.
    Proof(&'static str),
    /// The proof lacks a nonce of the gateway.
    Nonce,
}

/// The scheme of the `Authorization` header in which an access token is presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenScheme {
    /// RFC 6750: the token alone.
    Bearer,
    /// RFC 9449: with a proof of possession.
    Dpop,
}

impl TokenScheme {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Bearer => "Bearer",
            Self::Dpop => "DPoP",
        }
    }
}

/// Whether the gateway can verify that a token is presented with the client certificate that it is bound to (RFC 8705).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateBinding {
    /// The listener sees client certificates, its own or those that a proxy forwards.
    Verifiable,
    /// The listener sees no client certificates.
    Unverifiable,
}

impl ProtectedResource {
    /// Makes the resource for the route at `path` below `public`.
    #[must_use]
    pub fn new(
        public: &str,
        path: &str,
        oauth: &RouteOauth,
        issuers: &[IssuerSettings],
        binding: CertificateBinding,
    ) -> Self {
        let uri = oauth.resource.clone().unwrap_or_else(|| format!("{public}{path}").into());
        let texts = |texts: Vec<&str>| {
            let mut out = vec![b'['];
            for (n, text) in texts.iter().enumerate() {
                out.extend_from_slice(if n > 0 { b"," } else { b"" });
                json::write_string(&mut out, text);
            }
            out.push(b']');
            String::from_utf8(out).unwrap_or_default()
        };
        let believed = oauth.issuers.iter().filter_map(|index| issuers.get(*index));
        let servers = believed.map(|issuer| &*issuer.issuer).collect();
        let mut metadata = format!(
            r#"{{"resource":{},"authorization_servers":{},"bearer_methods_supported":["header"]"#,
            texts(vec![&uri]).trim_matches(['[', ']']),
            texts(servers),
        );
        let scopes: Vec<_> = oauth.scopes.iter().map(Scope::as_str).collect();
        if !scopes.is_empty() {
            write!(metadata, r#","scopes_supported":{}"#, texts(scopes.clone()))
                .unwrap_or_default();
        }
        let algorithms = Algorithm::ALL.map(Algorithm::as_str).to_vec();
        let algorithms = texts(algorithms);
        write!(metadata, r#","dpop_signing_alg_values_supported":{algorithms}"#)
            .unwrap_or_default();
        if oauth.proof == Some(RequiredProof::Dpop) {
            metadata.push_str(r#","dpop_bound_access_tokens_required":true"#);
        }
        if binding == CertificateBinding::Verifiable {
            metadata.push_str(r#","tls_client_certificate_bound_access_tokens":true"#);
        }
        metadata.push('}');
        Self {
            public: public.into(),
            uri,
            audiences: oauth.audiences.clone(),
            besides: oauth.besides.clone(),
            issuers: oauth.issuers.clone(),
            proof: oauth.proof,
            nonce: oauth.nonce,
            metadata: metadata.into(),
            location: format!("{public}{WELL_KNOWN}{path}").into(),
            scopes: scopes.join(" ").into(),
        }
    }

    /// The audiences of which a token must name at least one.
    #[must_use]
    pub fn own_audiences(&self) -> Vec<&str> {
        std::iter::once(&self.uri).chain(&self.audiences).map(|audience| &**audience).collect()
    }

    /// Whether a token for these audiences is accepted: at least one is the resource or an alternative, and each
    /// other one is too or is tolerated beside it.
    #[must_use]
    pub fn accepts(&self, audiences: &[Box<str>]) -> bool {
        let ours = |one: &str| {
            *one == *self.uri || self.audiences.iter().any(|audience| **audience == *one)
        };
        let fits = |one: &str| ours(one) || self.besides.iter().any(|beside| **beside == *one);
        audiences.iter().any(|one| ours(one)) && audiences.iter().all(|one| fits(one))
    }

    /// Builds the `WWW-Authenticate` challenge for a missing or insufficient token.
    #[must_use]
    pub fn challenge(&self, wrong: ChallengeError) -> Option<HeaderValue> {
        let scheme = match wrong {
            ChallengeError::Bound(_) | ChallengeError::Proof(_) | ChallengeError::Nonce => {
                TokenScheme::Dpop
            }
            _ if self.proof == Some(RequiredProof::Dpop) => TokenScheme::Dpop,
            _ => TokenScheme::Bearer,
        };
        let mut text = format!("{} ", scheme.as_str());
        let error = match wrong {
            ChallengeError::Nothing => None,
            ChallengeError::Request => {
                Some(("invalid_request", "send one credential, in one header"))
            }
            ChallengeError::Token(why) | ChallengeError::Bound(why) => Some(("invalid_token", why)),
            ChallengeError::Proof(why) => Some(("invalid_dpop_proof", why)),
            ChallengeError::Nonce => Some(("use_dpop_nonce", "the proof lacks the nonce")),
        };
        if let Some((error, why)) = error {
            write!(text, r#"error="{error}", error_description="{why}", "#).unwrap_or_default();
        }
        self.finish(text, &self.scopes, scheme)
    }

    /// Builds the challenge for a token with more scopes: all those that the operation needs.
    #[must_use]
    pub fn step_up(&self, scopes: &[Scope], proof: ProofOfPossession) -> Option<HeaderValue> {
        let scopes: Vec<_> = scopes.iter().map(Scope::as_str).collect();
        let scheme = match proof == ProofOfPossession::Dpop {
            true => TokenScheme::Dpop,
            false => TokenScheme::Bearer,
        };
        let text = format!(r#"{} error="insufficient_scope", "#, scheme.as_str());
        self.finish(text, &scopes.join(" "), scheme)
    }

    /// Completes a challenge. Scopes and URLs contain no quotes or backslashes, so nothing is escaped.
    fn finish(&self, mut text: String, scopes: &str, scheme: TokenScheme) -> Option<HeaderValue> {
        write!(text, r#"resource_metadata="{}""#, self.location).unwrap_or_default();
        if !scopes.is_empty() {
            write!(text, r#", scope="{scopes}""#).unwrap_or_default();
        }
        if scheme == TokenScheme::Dpop {
            let algorithms = Algorithm::ALL.map(Algorithm::as_str).join(" ");
            write!(text, r#", algs="{algorithms}""#).unwrap_or_default();
        }
        HeaderValue::from_str(&text).ok()
    }
}
