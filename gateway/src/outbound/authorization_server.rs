//! Client of an authorization server: authenticates the gateway at an endpoint, such as the token endpoint, and reads
//! the responses.
//!
//! RFC 6749 sections 2.3 and 5, RFC 7523 (`private_key_jwt`), RFC 8705 section 2.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use json::{Document, Value, write_string};

use crate::base::clock::Clock;
use crate::base::random;
use crate::base::secret::Secret;
use crate::config::settings::{ClientProof, ClientRegistration, ServiceEndpoint};
use crate::crypto::jwk;
use crate::crypto::jws_signer::JwsSigner;
use crate::crypto::pem;
use crate::net::http_client::{Endpoint, FetchError};
use crate::outbound::environment::{Environment, EnvironmentError};
use crate::outbound::secrets::{LiveSecret, SecretError};

/// The lifetime of a client assertion, in seconds.
const ASSERTION: u64 = 60;

/// Why a request to an authorization server failed.
#[derive(Debug, thiserror::Error)]
pub enum OauthError {
    /// The server could not be reached, or answered with an unexpected status.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The server refused, with one of the defined error codes.
    #[error("the authorization server refused: {0}")]
    Refused(&'static str),
    /// The response is not a JSON object.
    #[error("the answer of the authorization server {0}")]
    Answer(&'static str),
    /// The gateway's own client secret cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The client assertion could not be signed, or the credential cannot be sent.
    #[error("could not sign")]
    Sign,
}

/// An endpoint of an authorization server, and the client identity of the gateway there.
#[derive(Debug)]
pub struct OauthClient {
    endpoint: Endpoint,
    id: Box<str>,
    proof: ClientAuthentication,
    clock: Arc<dyn Clock>,
}

enum ClientAuthentication {
    /// Sent in `Authorization: Basic` with the client id.
    Header(Arc<LiveSecret>),
    Form(Arc<LiveSecret>),
    Signature {
        signer: JwsSigner,
        audience: Box<str>,
    },
    Connection,
}

impl std::fmt::Debug for ClientAuthentication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Proof(..)")
    }
}

impl OauthClient {
    /// The endpoint at `place`, for the client `client`. Client assertions are issued for `audience`, unless the
    /// configuration names another.
    ///
    /// # Errors
    /// If a secret, a key or a certificate cannot be read.
    pub fn new(
        environment: &Environment,
        place: &ServiceEndpoint,
        client: &ClientRegistration,
        audience: Option<&str>,
    ) -> Result<Self, EnvironmentError> {
        let mine = match &client.proof {
            ClientProof::Certificate(own) => Some(own),
            ClientProof::Basic(_) | ClientProof::Post(_) | ClientProof::Key { .. } => None,
        };
        let endpoint = environment.ways(&place.way, mine)?.to(&place.url)?;
        let proof = match &client.proof {
            ClientProof::Basic(secret) => ClientAuthentication::Header(environment.live(secret)?),
            ClientProof::Post(secret) => ClientAuthentication::Form(environment.live(secret)?),
            ClientProof::Key { file, kid, algorithm, audience: said } => {
                let key = pem::key(file)?;
                let signer = JwsSigner::new(&key, kid.clone(), *algorithm);
                let unusable = || EnvironmentError::Key(file.display().to_string().into());
                let url = place.url.to_string();
                let audience = said.as_deref().or(audience).unwrap_or(&url).into();
                ClientAuthentication::Signature { signer: signer.ok_or_else(unusable)?, audience }
            }
            ClientProof::Certificate(_) => ClientAuthentication::Connection,
        };
        Ok(Self { endpoint, id: client.id.clone(), proof, clock: Arc::clone(&environment.clock) })
    }

    /// Sends a form, and parses the JSON object in the response.
    ///
    /// # Errors
    /// If the server cannot be reached, refuses, or answers with anything else.
    pub async fn ask(&self, form: &[(&str, &str)]) -> Result<Document, OauthError> {
        let mut headers = HeaderMap::new();
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, form_type);
        let mut body = String::new();
        let mut field = |name: &str, value: &str| {
            let and = if body.is_empty() { "" } else { "&" };
            write!(body, "{and}{name}={}", encoded(value)).unwrap_or_default();
        };
        form.iter().for_each(|(name, value)| field(name, value));
        match &self.proof {
            ClientAuthentication::Header(secret) => {
                drop(headers.insert(AUTHORIZATION, basic(&self.id, &*secret.now()?)?));
            }
            ClientAuthentication::Form(secret) => {
                field("client_id", &self.id);
                field("client_secret", secret.now()?.expose());
            }
            ClientAuthentication::Signature { signer, audience } => {
                let assertion = self.assertion(signer, audience).ok_or(OauthError::Sign)?;
                field("client_id", &self.id);
                field(
                    "client_assertion_type",
                    "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                );
                field("client_assertion", &assertion);
            }
            ClientAuthentication::Connection => field("client_id", &self.id),
        }
        let fetched = self.endpoint.send(Method::POST, headers, body.into()).await?;
        let read = read(fetched.body);
        match fetched.status.as_u16() {
            200 => read,
            400 | 401 | 403 => Err(OauthError::Refused(refusal(read.ok().as_ref()))),
            status => Err(FetchError::Status(status).into()),
        }
    }

    /// Builds and signs a client assertion: RFC 7523, section 3.
    fn assertion(&self, signer: &JwsSigner, audience: &str) -> Option<String> {
        let now = self.clock.now().duration_since(UNIX_EPOCH).ok()?.as_secs();
        let id = json::hex::encode(&random::bytes::<16>().ok()?);
        let text = |text: &str| {
            let mut out = Vec::new();
            write_string(&mut out, text);
            String::from_utf8(out).unwrap_or_default()
        };
        let (us, audience, until) = (text(&self.id), text(audience), now + ASSERTION);
        let claims = format!(
            r#"{{"iss":{us},"sub":{us},"aud":{audience},"jti":"{id}","iat":{now},"exp":{until}}}"#
        );
        signer.sign("JWT", claims.as_bytes())
    }
}

/// The `Authorization` value for a client and its secret (RFC 6749, section 2.3.1).
fn basic(id: &str, secret: &Secret) -> Result<HeaderValue, OauthError> {
    let both = format!("{}:{}", encoded(id), encoded(secret.expose()));
    let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(both)));
    let mut value = value.map_err(|_unusable| OauthError::Sign)?;
    value.set_sensitive(true);
    Ok(value)
}

fn read(body: Bytes) -> Result<Document, OauthError> {
    let document = Document::parse(body, &jwk::BOUNDS);
    let document = document.map_err(|_wrong| OauthError::Answer("is not JSON"))?;
    if document.root().is_object() { Ok(document) } else { Err(OauthError::Answer("is no object")) }
}

/// The error code of a refusal: only defined codes, because the text is logged (RFC 6749 section 5.2, RFC 8693
/// section 2.2.2, RFC 8707 section 2).
fn refusal(answer: Option<&Document>) -> &'static str {
    const CODES: [&str; 8] = [
        "invalid_client",
        "invalid_grant",
        "invalid_request",
        "invalid_scope",
        "invalid_target",
        "unauthorized_client",
        "unsupported_grant_type",
        "access_denied",
    ];
    let said = answer.and_then(|answer| answer.root().get("error")).and_then(Value::as_str);
    CODES.into_iter().find(|code| said.as_deref() == Some(*code)).unwrap_or("for another reason")
}

/// Encodes text for `application/x-www-form-urlencoded`.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => {
                out.push(char::from(byte));
            }
            _ => write!(out, "%{byte:02X}").unwrap_or_default(),
        }
    }
    out
}
