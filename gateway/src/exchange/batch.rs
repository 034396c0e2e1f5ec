//! JSON-RPC batches, which only clients of revision 2025-03-26 may send.
//!
//! SPEC 2025-03-26 basic#batching. Each message is an exchange of its own, with its own decision and record. A batch
//! has a single response, so no stream is opened and notifications on the way are dropped. The response waits for the
//! slowest message. The answer to a call whose right was revoked meanwhile is replaced with an error, and every answer
//! if the caller was revoked.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use json::JsonBounds;
use policy::engine::pipeline::Facts;
use policy_core::subject::principal::Principal;

use super::stream_expiry::AnsweredCalls;
use super::{AuthenticatedRequest, DecodedRequest, Gateway, InFlightSlot, Route, identified};
use crate::audit::Record;
use crate::base::intake::ResponseAccount;
use crate::base::share::Holder;
use crate::edge::admission::{Admission, Peer};
use crate::edge::decode::{self, ClientOperation};
use crate::edge::encode;
use crate::edge::failure::Failure;
use crate::identity::AuthenticatedCaller;
use crate::mcp::protocol::{Era, ProtocolVersion};
use crate::mcp::wire::{self, DecodeError, Id, Message};
use crate::session::Session;
use crate::session::state::AnsweredCall;
use crate::stream::body::Body;
use crate::upstream::UpstreamError;

/// What the messages of a batch share.
struct BatchSender {
    caller: AuthenticatedCaller,
    holder: Holder,
    route: Arc<Route>,
    head: Parts,
    session: Session,
    admission: Arc<Admission>,
    path: HeaderValue,
}

impl BatchSender {
    /// The record of one message.
    fn record(&self, gateway: &Gateway, peer: &Peer) -> Box<Record> {
        let mut record = gateway.record(&self.admission, peer);
        record.principal = Some(Arc::clone(&self.caller.principal));
        record.scheme = Some(self.caller.scheme);
        record.route = Some(Arc::clone(&self.route.path));
        record.version = Some(self.session.version);
        record.caller = Some(gateway.quotas.other_requests.caller(&self.holder));
        record
    }

    /// Decodes one message, in the revision of the session.
    fn request(
        &self,
        id: Option<Id>,
        message: Message,
        facts: Facts,
        record: &mut Record,
    ) -> Result<Box<DecodedRequest>, Failure> {
        let mut inbound = decode::read(&self.head.headers, message, &mut record.version)?;
        if inbound.version.era() == Era::Modern {
            return Err(Failure::Shape("a batch is of the revision of its session"));
        }
        inbound.version = self.session.version;
        record.version = Some(self.session.version);
        if matches!(inbound.ask, ClientOperation::Initialize) {
            return Err(Failure::Shape("`initialize` is not part of a batch"));
        }
        Ok(Box::new(DecodedRequest {
            caller: self.caller.clone(),
            holder: self.holder.clone(),
            route: Arc::clone(&self.route),
            session: Some(self.session.clone()),
            inbound,
            client: None,
            id,
            batched: true,
            admission: Arc::clone(&self.admission),
            facts,
            client_gone: None,
            path: self.path.clone(),
        }))
    }
}

impl Gateway {
    /// Whether the body is a JSON array.
    pub(super) fn is_batch(&self, authenticated: &AuthenticatedRequest) -> bool {
        let first = authenticated.body.parts().flatten().find(|byte| !byte.is_ascii_whitespace());
        first == Some(&b'[')
    }

    /// Answers every message of a batch.
    pub(super) async fn batch(
        self: Arc<Self>,
        peer: &Peer,
        authenticated: AuthenticatedRequest,
        mut record: Box<Record>,
        mut slot: InFlightSlot,
    ) -> Response<Body> {
        let AuthenticatedRequest { caller, holder, route, head, body, admission } = authenticated;
        let session = match self.bind(&caller, &route, &head) {
            Ok(session) if session.version == ProtocolVersion::V2025March => session,
            Ok(session) => {
                record.version = Some(session.version);
                return self.refuse(&record, &Failure::Shape("batches are not accepted"));
            }
            Err(_) => return self.refuse(&record, &Failure::Shape("batches are not accepted")),
        };
        record.version = Some(session.version);
        let limit = self.limits.batch;
        let messages = match wire::decode_any_batch(body, &JsonBounds::MESSAGE, limit).await {
            Ok(Some(messages)) => messages,
            Ok(None) => return self.refuse(&record, &Failure::Shape("not a batch")),
            Err(error) => return self.refuse(&record, &Failure::Decode(error)),
        };
        let index = messages.iter().flatten().map(Message::index_bytes).max();
        if let Err(failure) = slot.indexed(index.unwrap_or_default()) {
            return self.refuse(&record, &failure);
        }
        let path = match self.passed(&head.headers) {
            Ok(path) => path,
            Err(failure) => return self.refuse(&record, &failure),
        };
        let sender = BatchSender { caller, holder, route, head, session, admission, path };
        let one = |message: Result<Message, DecodeError>| {
            let (gateway, share, facts) = (Arc::clone(&self), slot.body(), self.policy.facts());
            let mut record = sender.record(&gateway, peer);
            let read = identified(message, &mut record);
            let asked = read.as_ref().ok().and_then(|(id, _)| id.clone());
            let read =
                read.and_then(|(id, message)| sender.request(id, message, facts, &mut record));
            async move {
                let arrived = match read {
                    Ok(arrived) => arrived,
                    Err(failure) => return (asked, gateway.refuse(&record, &failure)),
                };
                if let Err(failure) = gateway.may_leave_records(&arrived, &mut record).await {
                    return (asked, gateway.refuse(&record, &failure));
                }
                let answer = match gateway.enter_for(&arrived.holder) {
                    Ok(mut own) => {
                        own.body = share;
                        gateway.answer(arrived, record, own).await
                    }
                    Err(failure) => gateway.refuse(&record, &failure),
                };
                (asked, answer)
            }
        };
        let answers = join_all(messages.into_iter().map(one)).await;
        let BatchSender { caller, route, .. } = sender;
        let response = self.in_one_array(&caller.principal, &record, answers);
        self.with_lease(caller, &route, response)
    }

    /// Combines the responses to the messages of a batch into one.
    fn in_one_array(
        &self,
        caller: &Principal,
        record: &Record,
        answers: Vec<(Option<Id>, Response<Body>)>,
    ) -> Response<Body> {
        let mut parts = VecDeque::new();
        let (mut unsent, mut bytes): (Option<ResponseAccount>, usize) = (None, 0);
        let mut calls = Vec::new();
        // The answers have waited for the slowest one, so revocations are checked again.
        let answers = answers.into_iter().map(|(asked, mut answer)| {
            let own = answer.extensions_mut().remove::<AnsweredCalls>().map(|calls| calls.0);
            let own = own.unwrap_or_default();
            let replaced = self.told_instead(caller, asked.as_ref(), &own, &answer);
            replaced.unwrap_or_else(|| {
                calls.extend(own);
                answer.into_body()
            })
        });
        for (answer, share) in answers.filter_map(response) {
            parts.push_back(Bytes::from_static(if parts.is_empty() { b"[" } else { b"," }));
            // Contents shared between callers are not charged to one of them.
            if share.is_some() {
                bytes += answer.iter().map(Bytes::len).sum::<usize>();
            }
            parts.extend(answer);
            match (&mut unsent, share) {
                // All shares belong to the same caller, so they can be merged.
                (Some(all), Some(share)) => all.absorb(share),
                (none @ None, share) => *none = share,
                (Some(_), None) => {}
            }
        }
        if parts.is_empty() {
            return encode::empty(StatusCode::ACCEPTED);
        }
        parts.push_back(Bytes::from_static(b"]"));
        // Each part may be too short to be charged, but together they are not.
        if let Some(unsent) = &mut unsent
            && let Err(none) = unsent.reserve(bytes)
        {
            unsent.was_refused();
            return self.refuse(record, &Failure::Upstream(UpstreamError::Memory(none)));
        }
        let mut response = encode::json(Body::Parts(parts).counted(unsent));
        if !calls.is_empty() {
            response.extensions_mut().insert(AnsweredCalls(calls));
        }
        response
    }

    /// The error that replaces an answer whose caller or call was revoked since; `None` if the answer is handed on.
    fn told_instead(
        &self,
        caller: &Principal,
        asked: Option<&Id>,
        calls: &[AnsweredCall],
        answer: &Response<Body>,
    ) -> Option<Body> {
        if answer.body().length() == 0 {
            return None;
        }
        if let Some((call, told)) =
            calls.iter().find_map(|call| Some((call, self.told_revoked(call)?)))
        {
            self.cut_on_record(call);
            return Some(told.into());
        }
        let failure = self.caller_revocation(caller)?;
        let public = failure.public(Some(Era::Legacy));
        Some(encode::error(&public, asked).into_body())
    }
}

/// The parts of a response and its memory share; `None` if there is no response. The parts are not copied together.
fn response(answer: Body) -> Option<(VecDeque<Bytes>, Option<ResponseAccount>)> {
    let (parts, share) = match answer {
        Body::Parts(parts) => (parts, None),
        Body::Counted(parts, share) => (parts, Some(share)),
        // INVARIANT: no stream is opened for a message of a batch.
        Body::Stream(..) | Body::Replay(..) | Body::Leased(..) => return None,
    };
    (!parts.is_empty()).then_some((parts, share))
}
