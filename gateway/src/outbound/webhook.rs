//! Notices to a web service, signed and retried (Standard Webhooks, <https://www.standardwebhooks.com>).
//!
//! The receiver can verify that a notice comes from this gateway, and recognise one that it has got before by its id. A
//! notice decides nothing: what depends on it goes on, or ends closed, without it.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::base::clock::Clock;
use crate::base::error_chain::ErrorChain;
use crate::config::settings::WebhookSettings;
use crate::net::http_client::Endpoint;
use crate::outbound::environment::{Environment, EnvironmentError};
use crate::outbound::secrets::LiveSecret;

/// Most requests under way at once.
const AT_ONCE: usize = 4;
/// Most bytes of an answer, of which nothing is read.
const ANSWER: usize = 64 * 1024;
/// The first pause before a request is repeated, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Begins a secret that is written in base64.
const ENCODED: &str = "whsec_";

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// A web service that gets notices.
#[derive(Debug)]
pub struct Webhook {
    endpoint: Endpoint,
    secret: Arc<LiveSecret>,
    clock: Arc<dyn Clock>,
    /// Places for requests under way, so that a receiver that answers slowly does not hold many connections.
    places: Semaphore,
}

/// What became of one request to the service.
#[derive(Debug)]
enum RequestEnd {
    /// The service took the notice.
    Taken,
    /// The service wants no more notices (HTTP status 410).
    Gone,
    /// It can be repeated; with the reason.
    Failed(String),
}

impl Webhook {
    /// The service with these settings.
    ///
    /// # Errors
    /// If the secret or the authorities for its certificate cannot be read.
    pub fn new(
        settings: &WebhookSettings,
        environment: &Environment,
    ) -> Result<Self, EnvironmentError> {
        let mut ways = environment.ways(&settings.place.way, None)?;
        (ways.time, ways.limit) = (settings.timeout, ANSWER);
        ways.connect_timeout = ways.connect_timeout.min(settings.timeout);
        Ok(Self {
            endpoint: ways.to(&settings.place.url)?,
            secret: environment.live(&settings.secret)?,
            clock: Arc::clone(&environment.clock),
            places: Semaphore::new(AT_ONCE),
        })
    }

    /// Delivers the notice `id`, and repeats it with growing pauses until it is taken. Drop the future to give up.
    /// Returns whether it was taken: not if the service wants no notices.
    pub async fn deliver(&self, id: &str, body: &Bytes) -> bool {
        let mut pause = PAUSES.0;
        loop {
            match self.send(id, body).await {
                RequestEnd::Taken => return true,
                RequestEnd::Gone => {
                    tracing::warn!(event = "webhook.gone", id, "the service wants no notices");
                    return false;
                }
                RequestEnd::Failed(error) => {
                    tracing::warn!(
                        event = "webhook.failed", id, error, again_in = ?pause,
                        "a notice could not be delivered; it is sent again"
                    );
                }
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(PAUSES.1);
        }
    }

    async fn send(&self, id: &str, body: &Bytes) -> RequestEnd {
        let Ok(_place) = self.places.acquire().await else {
            return RequestEnd::Failed("no place for a request".to_owned());
        };
        let headers = match self.headers(id, body) {
            Ok(headers) => headers,
            Err(error) => return RequestEnd::Failed(error),
        };
        match self.endpoint.send(Method::POST, headers, body.clone()).await {
            Ok(answer) if answer.status.is_success() => RequestEnd::Taken,
            Ok(answer) if answer.status == StatusCode::GONE => RequestEnd::Gone,
            Ok(answer) => RequestEnd::Failed(format!("HTTP status {}", answer.status.as_u16())),
            Err(error) => RequestEnd::Failed(ErrorChain(&error).to_string()),
        }
    }

    /// The headers of a request at this moment: each attempt has a signature of its own.
    fn headers(&self, id: &str, body: &[u8]) -> Result<HeaderMap, String> {
        let secret = self.secret.now().map_err(|error| ErrorChain(&error).to_string())?;
        let since = self.clock.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = since.as_secs().to_string();
        let key = key(secret.expose())
            .ok_or_else(|| format!("the secret begins with `{ENCODED}`, and no base64 follows"))?;
        let signature = format!("v1,{}", signature(&key, id, &time, body));
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, text) in [(ID, id), (TIMESTAMP, &time), (SIGNATURE, &signature)] {
            let value = HeaderValue::from_str(text).map_err(|error| error.to_string())?;
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

/// The key that a secret stands for; `None` if it is to be base64 and is not.
fn key(secret: &str) -> Option<Vec<u8>> {
    match secret.trim_end().strip_prefix(ENCODED) {
        Some(text) => STANDARD_NO_PAD.decode(text.trim_end_matches('=')).ok(),
        None => Some(secret.as_bytes().to_vec()),
    }
}

/// The signature of a notice in base64: HMAC-SHA256 of id, time and body with dots between them.
fn signature(key: &[u8], id: &str, time: &str, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in [id.as_bytes(), b".", time.as_bytes(), b".", body] {
        context.update(part);
    }
    STANDARD.encode(context.sign())
}

#[cfg(test)]
mod tests {
    use super::{key, signature};

    /// The example of the specification's reference libraries.
    #[test]
    fn a_notice_is_signed_as_the_specification_says() {
        let signed = signature(
            &key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap(),
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signed, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let plain = signature(b"a secret", "m", "1", b"{}");
        assert_ne!(plain, signature(b"another", "m", "1", b"{}"));
        assert_eq!(key("a secret").unwrap(), b"a secret");
        assert_eq!((key("whsec_YQ").unwrap(), key("whsec_!")), (b"a".to_vec(), None));
    }
}
