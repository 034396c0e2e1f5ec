//! Credentials in, [`Principal`] out. Knows HTTP and keys; knows no policy.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::{constant_time, digest};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use policy::principal::Principal;

use crate::settings::{ApiKey, Scheme};
use crate::wire::headers::{Single, single};

/// What one scheme made of a request.
#[derive(Debug)]
enum Claim {
    /// This scheme's credential is not there; try the next.
    Absent,
    /// It is there and good.
    Proved(Arc<Principal>),
    /// It is there and bad; stop.
    Refuted(AuthnError),
}

/// Why a caller is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthnError {
    /// No scheme found its credential.
    #[error("no credential")]
    Missing,
    /// The credential is not known.
    #[error("the credential is not known")]
    Unknown,
    /// More than one credential: it is not clear which one speaks.
    #[error("more than one credential")]
    Ambiguous,
}

/// A caller and how it is known.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who.
    pub principal: Arc<Principal>,
    /// By which scheme, as the audit log names it.
    pub scheme: &'static str,
}

/// Finds out who a request is from.
#[derive(Debug)]
pub struct Identity {
    keys: Keys,
    anonymous: Option<Arc<Principal>>,
}

impl Identity {
    /// Knows these keys and this anonymous caller.
    #[must_use]
    pub fn new(keys: &[ApiKey], anonymous: Option<&Principal>) -> Self {
        Self { keys: Keys::new(keys), anonymous: anonymous.cloned().map(Arc::new) }
    }

    /// Tries `schemes` in order.
    ///
    /// # Errors
    /// When no credential is there, or the first one there is bad.
    pub fn identify(&self, schemes: &[Scheme], headers: &HeaderMap) -> Result<Caller, AuthnError> {
        for scheme in schemes {
            let (claim, scheme) = match scheme {
                Scheme::ApiKey => (self.keys.examine(headers), "apiKey"),
                Scheme::Anonymous => (self.anonymous(headers), "anonymous"),
            };
            match claim {
                Claim::Absent => {}
                Claim::Proved(principal) => return Ok(Caller { principal, scheme }),
                Claim::Refuted(error) => return Err(error),
            }
        }
        Err(AuthnError::Missing)
    }

    /// Who shows a credential is not anonymous, even where nobody asks for one: taking it for
    /// nobody would hide that it is wrong.
    fn anonymous(&self, headers: &HeaderMap) -> Claim {
        if headers.contains_key(AUTHORIZATION) || headers.contains_key(API_KEY) {
            return Claim::Refuted(AuthnError::Unknown);
        }
        self.anonymous.clone().map_or(Claim::Absent, Claim::Proved)
    }
}

const API_KEY: &str = "x-api-key";

/// Keys by the first bytes of their SHA-256; the whole of it is compared in constant time.
///
/// The table is looked up with a digest, never with the key: how long that takes says nothing
/// about a key that would fit.
#[derive(Debug)]
struct Keys(HashMap<[u8; 8], Vec<Known>>);

/// The SHA-256 of a key, and whose it is.
type Known = ([u8; 32], Arc<Principal>);

impl Keys {
    fn new(keys: &[ApiKey]) -> Self {
        let mut table: HashMap<_, Vec<_>> = HashMap::new();
        for ApiKey { sha256, principal } in keys {
            let entry = (*sha256, Arc::new(principal.clone()));
            table.entry(prefix(sha256)).or_default().push(entry);
        }
        Self(table)
    }

    fn examine(&self, headers: &HeaderMap) -> Claim {
        let bearer = match single(headers, AUTHORIZATION.as_str()) {
            Single::Absent => None,
            Single::Value(value) => match value.split_once(' ') {
                Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => Some(key.trim()),
                _ => return Claim::Refuted(AuthnError::Unknown),
            },
            Single::Bad => return Claim::Refuted(AuthnError::Ambiguous),
        };
        let key = match (bearer, single(headers, API_KEY)) {
            (None, Single::Absent) => return Claim::Absent,
            (Some(key), Single::Absent) | (None, Single::Value(key)) => key,
            (Some(_), Single::Value(_)) | (_, Single::Bad) => {
                return Claim::Refuted(AuthnError::Ambiguous);
            }
        };
        let hash = digest::digest(&digest::SHA256, key.as_bytes());
        let candidates = self.0.get(&prefix(hash.as_ref())).map_or(&[] as &[_], Vec::as_slice);
        let equal = |(known, _): &&Known| {
            constant_time::verify_slices_are_equal(known, hash.as_ref()).is_ok()
        };
        candidates
            .iter()
            .find(equal)
            .map_or(Claim::Refuted(AuthnError::Unknown), |(_, who)| Claim::Proved(Arc::clone(who)))
    }
}

fn prefix(hash: &[u8]) -> [u8; 8] {
    hash.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{AuthnError, Identity};
    use crate::settings::{ApiKey, Scheme};
    use aws_lc_rs::digest;
    use http::{HeaderMap, HeaderName, HeaderValue};
    use policy::name::PrincipalId;
    use policy::principal::Principal;

    fn who(id: &str) -> Principal {
        Principal::new(PrincipalId::parse(id).unwrap(), [].into())
    }

    fn identify(schemes: &[Scheme], headers: &[(&str, &str)]) -> Result<String, AuthnError> {
        let key = |key: &str, id| ApiKey {
            sha256: digest::digest(&digest::SHA256, key.as_bytes()).as_ref().try_into().unwrap(),
            principal: who(id),
        };
        let identity =
            Identity::new(&[key("k1", "ana"), key("k2", "bob")], Some(&who("anonymous")));
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        identity.identify(schemes, &map).map(|caller| caller.principal.id.to_string())
    }

    #[test]
    fn a_credential_is_good_or_it_is_refused() {
        use AuthnError::{Ambiguous, Missing, Unknown};
        let keys = [Scheme::ApiKey];
        let both = [Scheme::ApiKey, Scheme::Anonymous];
        let open = [Scheme::Anonymous];
        for (schemes, headers, expected) in [
            (&keys as &[_], &[("authorization", "Bearer k1")] as &[_], Ok("ana")),
            (&keys, &[("authorization", "bearer k2")], Ok("bob")),
            (&keys, &[("x-api-key", "k2")], Ok("bob")),
            (&keys, &[], Err(Missing)),
            (&keys, &[("authorization", "Bearer k3")], Err(Unknown)),
            (&keys, &[("authorization", "Bearer ")], Err(Unknown)),
            (&keys, &[("authorization", "Basic azE=")], Err(Unknown)),
            (&keys, &[("authorization", "Bearer k1"), ("x-api-key", "k2")], Err(Ambiguous)),
            (
                &keys,
                &[("authorization", "Bearer k1"), ("authorization", "Bearer k1")],
                Err(Ambiguous),
            ),
            (&both, &[], Ok("anonymous")),
            (&both, &[("authorization", "Bearer k1")], Ok("ana")),
            (&both, &[("authorization", "Bearer wrong")], Err(Unknown)),
            (&open, &[("authorization", "Bearer k1")], Err(Unknown)),
            (&[], &[("authorization", "Bearer k1")], Err(Missing)),
        ] {
            assert_eq!(identify(schemes, headers), expected.map(str::to_owned), "{headers:?}");
        }
    }
}
