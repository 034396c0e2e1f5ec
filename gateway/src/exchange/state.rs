//! Request state that a modern client carries until it has answered a server's requests: encrypted and authenticated,
//! bound to the caller, the route, the server and the call with its arguments, and valid for a limited time.
//!
//! SPEC 2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow (vectors PV-40 to PV-45)

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use policy::engine::ask::RequestTerms;
use policy::engine::message::ItemRequest;
use policy_core::subject::principal::Principal;

use crate::base::sha256::sha256;
use crate::crypto::sealer::{SealError, Sealer};
use crate::session::approvals::ApprovalId;

/// Names the format in the associated data of the cipher.
const FORMAT: &[u8] = b"portcullis state v2";

/// The content of a request state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    /// The upstream server's own request state, if it has one, and what the client's answers must be.
    Server(ServerState),
    /// The call is parked in the gateway under this key.
    Parked([u8; 16]),
    /// The call has to be made again.
    Again,
    /// The call waits for the approval of a person, who is asked this question.
    Approval(ApprovalId),
}

/// What a call is continued with that a modern server has interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerState {
    /// The server's own request state.
    pub(super) own: Option<Box<str>>,
    /// What the client's answers must be.
    pub(super) terms: RequestTerms,
}

impl ServerState {
    fn write(&self, out: &mut Vec<u8>) {
        let terms = self.terms.to_json();
        out.extend_from_slice(&(terms.len() as u64).to_be_bytes());
        out.extend_from_slice(&terms);
        out.push(u8::from(self.own.is_some()));
        out.extend_from_slice(self.own.as_deref().unwrap_or_default().as_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<8>()?;
        let (terms, rest) =
            rest.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)?;
        let (has_own, own) = rest.split_first()?;
        let own: Box<str> = std::str::from_utf8(own).ok()?.into();
        let own = if *has_own == 1 { Some(own) } else { None };
        Some(Self { own, terms: RequestTerms::from_json(terms)? })
    }
}

/// What a request state is bound to.
#[derive(Clone, Debug)]
pub(super) struct RequestStateBinding {
    principal: Box<str>,
    route: Box<str>,
    server: Box<str>,
    /// Digest of the action, name, arguments and other members, independent of their spelling in JSON.
    call: [u8; 32],
}

impl RequestStateBinding {
    pub(super) fn new(principal: &Principal, route: &str, call: &ItemRequest) -> Self {
        let mut plain = format!("{:?} ", call.verb).into_bytes();
        json::write_string(&mut plain, &call.name);
        if let Some(arguments) = &call.arguments {
            json::write_plain(&mut plain, arguments.value());
        }
        for (key, value) in &call.extra {
            json::write_string(&mut plain, key);
            json::write_plain(&mut plain, value.value());
        }
        let call_digest = sha256(&plain);
        let principal = principal.key().into();
        Self {
            principal,
            route: route.into(),
            server: call.server.as_str().into(),
            call: call_digest,
        }
    }

    fn parts(&self) -> [&[u8]; 5] {
        let Self { principal, route, server, call } = self;
        [FORMAT, principal.as_bytes(), route.as_bytes(), server.as_bytes(), call]
    }

    /// Encrypts `state` with an expiry after `lifetime`.
    pub(super) fn seal(
        &self,
        sealer: &Sealer,
        state: &RequestState,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<String, SealError> {
        let expires = now + lifetime;
        let expires = expires.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut plain = expires.to_be_bytes().to_vec();
        match state {
            RequestState::Server(state) => {
                plain.push(0);
                state.write(&mut plain);
            }
            RequestState::Parked(key) => {
                plain.push(1);
                plain.extend_from_slice(key);
            }
            RequestState::Again => plain.push(2),
            RequestState::Approval(id) => {
                plain.push(3);
                plain.extend_from_slice(id.as_str().as_bytes());
            }
        }
        sealer.seal(&self.parts(), plain)
    }

    /// Decrypts a state; `None` unless it was sealed for the same call of the same caller and has not expired.
    pub(super) fn open(
        &self,
        sealer: &Sealer,
        text: &str,
        now: SystemTime,
    ) -> Option<RequestState> {
        let plain = sealer.open(&self.parts(), text)?;
        let (expires, rest) = plain.split_first_chunk::<8>()?;
        let expires = Duration::from_secs(u64::from_be_bytes(*expires));
        if UNIX_EPOCH.checked_add(expires)? <= now {
            return None;
        }
        match rest.split_first()? {
            (0, state) => Some(RequestState::Server(ServerState::read(state)?)),
            (1, key) => Some(RequestState::Parked(key.try_into().ok()?)),
            (2, []) => Some(RequestState::Again),
            (3, id) => {
                let id = std::str::from_utf8(id).ok()?;
                Some(RequestState::Approval(ApprovalId::parse(id)?))
            }
            _ => None,
        }
    }
}

/// Seals the state of a call that has to be made again. For the fuzz target of envelopes, as [`opens_request_state`].
///
/// # Errors
/// If no random bytes are available.
pub fn sealed_request_state(
    sealer: &Sealer,
    principal: &Principal,
    route: &str,
    call: &ItemRequest,
    expires: SystemTime,
) -> Result<String, SealError> {
    let binding = RequestStateBinding::new(principal, route, call);
    binding.seal(sealer, &RequestState::Again, expires, Duration::ZERO)
}

/// Whether `text` is a request state for this call of this caller that has not expired at `now`.
#[must_use]
pub fn opens_request_state(
    sealer: &Sealer,
    principal: &Principal,
    route: &str,
    call: &ItemRequest,
    text: &str,
    now: SystemTime,
) -> bool {
    RequestStateBinding::new(principal, route, call).open(sealer, text, now).is_some()
}

#[cfg(test)]
mod tests {
    use super::{RequestState, RequestStateBinding, ServerState};
    use crate::crypto::sealer::Sealer;
    use bytes::Bytes;
    use json::{Document, Fragment, JsonBounds};
    use policy::engine::ask::{RequestTerms, ServerRequestPolicy};
    use policy::engine::message::{ItemRequest, RequestOperation};
    use policy_core::subject::name::{ClientId, PrincipalId, ServerName};
    use policy_core::subject::principal::Principal;
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    fn bound(
        who: &str,
        route: &str,
        server: &str,
        tool: &str,
        arguments: &'static str,
    ) -> RequestStateBinding {
        let who = Principal::new(PrincipalId::parse(who).unwrap(), [].into());
        RequestStateBinding::new(&who, route, &call(server, tool, arguments))
    }

    fn call(server: &str, tool: &str, arguments: &'static str) -> ItemRequest {
        let document = Document::parse(Bytes::from(arguments), &JsonBounds::MESSAGE).unwrap();
        ItemRequest {
            server: ServerName::parse(server).unwrap(),
            verb: RequestOperation::Call,
            name: tool.into(),
            arguments: Some(Fragment::whole(Arc::new(document))),
            extra: Vec::new(),
            meta: Vec::new(),
        }
    }

    #[test]
    fn a_state_opens_for_the_same_client_and_key_alone() {
        let sealer = Sealer::new(&[]).unwrap();
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let through = |client: Option<&str>, key: Option<&str>| {
            let mut who = Principal::new(PrincipalId::parse("ana").unwrap(), [].into());
            who.claims.client = client.map(|client| ClientId::parse(client).unwrap());
            who.claims.thumbprint = key.map(Into::into);
            RequestStateBinding::new(&who.bound(), "/mcp a", &call("a", "pay", "{}"))
        };
        let ours = through(Some("app"), Some("k1"));
        let text = ours.seal(&sealer, &RequestState::Again, now, Duration::from_secs(60)).unwrap();
        let opens = |bound: RequestStateBinding| bound.open(&sealer, &text, now).is_some();
        assert!(opens(through(Some("app"), Some("k1"))));
        for (client, key) in [
            (None, None),
            (Some("app"), None),
            (None, Some("k1")),
            (Some("app"), Some("k2")),
            (Some("other"), Some("k1")),
        ] {
            assert!(!opens(through(client, key)), "{client:?} {key:?}");
        }
    }

    #[test]
    fn a_state_opens_for_the_same_call_of_the_same_caller_until_it_expires() {
        let sealer = Sealer::new(&[]).unwrap();
        let ours = bound("ana", "/mcp a", "a", "pay", r#"{"n":1,"to":"b"}"#);
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let roots = ServerRequestPolicy::default().terms("roots/list", None);
        let terms = RequestTerms::of([("q".into(), roots)]);
        for state in [
            RequestState::Server(ServerState { own: Some("x".into()), terms: terms.clone() }),
            RequestState::Server(ServerState { own: None, terms }),
            RequestState::Parked([7; 16]),
            RequestState::Again,
        ] {
            let text = ours.seal(&sealer, &state, now, Duration::from_secs(60)).unwrap();
            assert_eq!(ours.open(&sealer, &text, now), Some(state.clone()));
            let spelled = bound("ana", "/mcp a", "a", "pay", r#"{ "to": "\u0062", "n": 1 }"#);
            assert_eq!(spelled.open(&sealer, &text, now), Some(state));
            assert_eq!(ours.open(&sealer, &text, now + Duration::from_secs(60)), None);
            for other in [
                bound("bob", "/mcp a", "a", "pay", r#"{"n":1,"to":"b"}"#),
                bound("ana", "/two a", "a", "pay", r#"{"n":1,"to":"b"}"#),
                bound("ana", "/mcp a", "b", "pay", r#"{"n":1,"to":"b"}"#),
                bound("ana", "/mcp a", "a", "pax", r#"{"n":1,"to":"b"}"#),
                bound("ana", "/mcp a", "a", "pay", r#"{"n":2,"to":"b"}"#),
            ] {
                assert_eq!(other.open(&sealer, &text, now), None);
            }
        }
    }
}
