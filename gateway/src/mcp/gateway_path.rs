//! The gateways that a request has passed, in the `Via` header (RFC 9110, section 7.6.3), so that a gateway notices that
//! it is behind itself (control C16).
//!
//! Only entries of these gateways count: `1.1 portcullis-` and an id that each process makes up. A caller can write such
//! entries too, so a server learns how many there were and not what they say: otherwise the header would carry what no
//! inspection has seen. Everything else in the header is left out, like all headers of clients.

use std::sync::Arc;

use http::header::VIA;
use http::{HeaderMap, HeaderValue};
use json::hex;

use crate::base::random;

/// What the name of a gateway begins with.
const NAME: &str = "portcullis-";
/// Digits of an id.
const DIGITS: usize = 16;
/// Stands for the id of each gateway that a request passed before.
const PASSED: &str = "0000000000000000";

/// The id of a gateway process, which says nothing about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayId {
    id: Arc<str>,
    /// The path of a request that begins at this gateway.
    path: HeaderValue,
}

/// Why a request is not taken any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// The gateway that sent it is this one.
    Loop,
    /// It has passed too many gateways.
    TooLong,
}

impl Default for GatewayId {
    /// A new id.
    fn default() -> Self {
        // Without random bytes every gateway has the same id, and refuses what another one sends.
        let id = hex::encode(&random::bytes::<8>().unwrap_or_default());
        Self { path: path(&[&id]), id: id.into() }
    }
}

impl GatewayId {
    /// The path of a request that begins at this gateway.
    #[must_use]
    pub fn path(&self) -> HeaderValue {
        self.path.clone()
    }

    /// The path of a request that came with these headers, and that this gateway sends on.
    ///
    /// # Errors
    /// If the request comes from this gateway, or has passed more than `most` others. One that leads back to this gateway by
    /// way of others has passed too many in the end.
    pub fn follow(&self, headers: &HeaderMap, most: usize) -> Result<HeaderValue, PathError> {
        if !headers.contains_key(VIA) {
            return Ok(self.path());
        }
        let values = headers.get_all(VIA).iter().filter_map(|value| value.to_str().ok());
        let passed: Vec<&str> =
            values.flat_map(|value| value.split(',')).filter_map(gateway).collect();
        if passed.contains(&&*self.id) {
            return Err(PathError::Loop);
        }
        if passed.len() > most {
            return Err(PathError::TooLong);
        }
        let before = std::iter::repeat_n(PASSED, passed.len());
        Ok(path(&before.chain([&*self.id]).collect::<Vec<_>>()))
    }
}

/// The value of `Via` for these ids, in the order of the gateways.
fn path(ids: &[&str]) -> HeaderValue {
    let entries: Vec<_> = ids.iter().map(|id| format!("1.1 {NAME}{id}")).collect();
    // INVARIANT: ids are hexadecimal digits.
    HeaderValue::try_from(entries.join(", ")).unwrap_or(HeaderValue::from_static("1.1 portcullis"))
}

/// The id of the gateway in an entry of `Via`; `None` for another kind of intermediary.
fn gateway(entry: &str) -> Option<&str> {
    let id = entry.split_ascii_whitespace().nth(1)?.strip_prefix(NAME)?;
    (id.len() == DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

#[cfg(test)]
mod tests {
    use http::header::VIA;
    use http::{HeaderMap, HeaderValue};

    use super::{GatewayId, PathError};

    #[test]
    fn a_request_passes_so_many_gateways_and_none_twice() {
        let gateways: Vec<_> = (0..4).map(|_| GatewayId::default()).collect();
        let mut headers = HeaderMap::new();
        headers.append(VIA, HeaderValue::from_static("1.1 nginx, 1.1 portcullis-x (odd), 2 cdn"));
        for (n, gateway) in gateways.iter().enumerate() {
            let path = gateway.follow(&headers, 2);
            if n == 3 {
                assert_eq!(path, Err(PathError::TooLong));
                break;
            }
            let path = path.unwrap();
            assert_eq!(path.to_str().unwrap().split(", ").count(), n + 1, "others are left out");
            assert!(path.to_str().unwrap().ends_with(gateway.path().to_str().unwrap()));
            headers.insert(VIA, path);
            assert_eq!(gateway.follow(&headers, 9), Err(PathError::Loop));
            for passed in gateways.iter().take(n) {
                let path = passed.follow(&headers, 9).unwrap();
                let told = path.to_str().unwrap();
                assert!(!gateways.iter().any(|one| one != passed && told.contains(&*one.id)));
            }
        }
        assert_ne!(gateways[0], gateways[1]);
    }
}
