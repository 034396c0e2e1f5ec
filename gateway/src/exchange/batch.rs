//! Several messages in one body: only clients that speak 2025-03-26 may send them.
//!
//! SPEC 2025-03-26 basic#batching. Each message is its own exchange, with its own decision and its
//! own record.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use policy::json::Bounds;

use super::{Arrived, Gateway, Knocked, Place, identified};
use crate::audit::Record;
use crate::body::Body;
use crate::door::{Door, Peer};
use crate::failure::Failure;
use crate::inbound::{self, Ask};
use crate::protocol::{Era, Version};
use crate::reply;
use crate::sse;
use crate::wire::{self, DecodeError, Message};

impl Gateway {
    /// Whether the body holds more than one message.
    pub(super) fn is_batch(&self, knocked: &Knocked) -> bool {
        let first = knocked.body.iter().find(|byte| !byte.is_ascii_whitespace());
        first == Some(&b'[')
    }

    /// Answers every message of a batch.
    pub(super) async fn batch(
        self: Arc<Self>,
        door: &Arc<Door>,
        peer: &Peer,
        knocked: Knocked,
        (mut record, place): (Box<Record>, Place),
    ) -> Response<Body> {
        let Knocked { caller, holder, route, head, body, .. } = knocked;
        let session = match self.bind(&caller, &route, &head) {
            Ok(session) if session.version == Version::V2025March => session,
            Ok(session) => {
                record.version = Some(session.version);
                return self.refuse(&record, &Failure::Shape("batches are not accepted"));
            }
            Err(_) => return self.refuse(&record, &Failure::Shape("batches are not accepted")),
        };
        record.version = Some(session.version);
        let limit = self.limits.batch;
        let messages = match wire::decode_batch(body, &Bounds::MESSAGE, limit) {
            Ok(Some(messages)) => messages,
            Ok(None) => return self.refuse(&record, &Failure::Shape("not a batch")),
            Err(error) => return self.refuse(&record, &Failure::Decode(error)),
        };
        let one = |message: Result<Message, DecodeError>| {
            let gateway = Arc::clone(&self);
            let (mut record, share) = (gateway.record(door, peer), place.body());
            record.principal = Some(Arc::clone(&caller.principal));
            record.scheme = Some(caller.scheme);
            record.route = Some(Arc::clone(&route.path));
            record.version = Some(session.version);
            let read = identified(message, &mut record).and_then(|(id, message)| {
                let mut inbound = inbound::read(&head.headers, message, &mut record.version)?;
                if inbound.version.era() == Era::Modern {
                    return Err(Failure::Shape("a batch is of the revision of its session"));
                }
                inbound.version = session.version;
                record.version = Some(session.version);
                if matches!(inbound.ask, Ask::Initialize) {
                    return Err(Failure::Shape("`initialize` is not part of a batch"));
                }
                let (caller, route) = (caller.clone(), Arc::clone(&route));
                let (holder, session) = (holder.clone(), Some(session.clone()));
                let door = Arc::clone(door);
                Ok(Arrived { caller, holder, route, session, inbound, id, batched: true, door })
            });
            async move {
                let arrived = match read {
                    Ok(arrived) => arrived,
                    Err(failure) => return gateway.refuse(&record, &failure),
                };
                match gateway.enter_for(&arrived.holder) {
                    Ok(mut own) => {
                        own.body = share;
                        gateway.answer(arrived, record, own).await
                    }
                    Err(failure) => gateway.refuse(&record, &failure),
                }
            }
        };
        let answers = join_all(messages.into_iter().map(one)).await;
        let limit = self.limits.response_body;
        let read = join_all(answers.into_iter().map(|answer| messages_of(answer, limit))).await;
        let parts: Vec<Bytes> = read.into_iter().flatten().collect();
        if parts.is_empty() {
            return reply::empty(StatusCode::ACCEPTED);
        }
        let mut out = vec![b'['];
        for (n, part) in parts.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            out.extend_from_slice(part);
        }
        out.push(b']');
        reply::json(out)
    }
}

/// The responses in an answer. What is said on the way to one has no place in a batch.
async fn messages_of(answer: Response<Body>, limit: usize) -> Vec<Bytes> {
    let streamed = matches!(answer.body(), Body::Stream(..) | Body::Replay(..) | Body::Leased(..));
    let mut body = answer.into_body();
    let mut decoder = sse::Decoder::new(limit);
    let (mut found, mut whole) = (Vec::new(), Vec::new());
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        if !streamed {
            whole.extend_from_slice(&data);
            continue;
        }
        let fed = decoder.feed(&data, |event| {
            if !event.data.is_empty() {
                found.push(event.data);
            }
        });
        if fed.is_err() {
            break;
        }
    }
    if streamed {
        found.retain(|message| {
            let read = wire::decode(message.clone(), &Bounds::ANSWER);
            matches!(read, Ok(Message::Response(_)))
        });
        return found;
    }
    if whole.is_empty() { Vec::new() } else { vec![whole.into()] }
}
