//! Replies to the requests of upstream servers: the only place where their bytes are written.

use policy_core::subject::name::ServerName;

use super::cleared::ClearedOutcome;
use crate::mcp::protocol::{code, method};
use crate::mcp::wire::{self, Id, Object, Request};

/// A reply to a request of a server: the cleared answer of a client, or the gateway's own words, which are fixed. No
/// other bytes are sent in reply, and it cannot be copied.
///
/// ```
/// # use gateway::mcp::wire::Id;
/// # use gateway::upstream::{ClearedOutcome, ReplySender, ServerReply};
/// # async fn reply(replier: ReplySender, id: Id, answer: ClearedOutcome) {
/// replier.reply(ServerReply::answer(&id, answer)).await;
/// # }
/// ```
///
/// ```compile_fail,E0308
/// # use gateway::upstream::ReplySender;
/// # async fn reply(replier: ReplySender) {
/// replier.reply(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_vec()).await; // bytes from anywhere
/// # }
/// ```
///
/// ```compile_fail,E0308
/// # use gateway::mcp::wire::{Id, ResponseOutcome};
/// # use gateway::upstream::{ReplySender, ServerReply};
/// # async fn reply(replier: ReplySender, id: Id, answer: ResponseOutcome) {
/// replier.reply(ServerReply::answer(&id, answer)).await; // what a client sent, not inspected
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a reply that is not sent leaves the server waiting"]
pub struct ServerReply {
    id: Id,
    content: ReplyContent,
}

#[derive(Debug)]
enum ReplyContent {
    /// The answer of a client.
    Answer(ClearedOutcome),
    /// An error of the gateway: its code, and its words.
    Refusal(i32, &'static str),
    /// The result of `ping`.
    Pong,
}

impl ServerReply {
    /// A client's answer to the request `id`.
    pub fn answer(id: &Id, answer: ClearedOutcome) -> Self {
        Self { id: id.clone(), content: ReplyContent::Answer(answer) }
    }

    /// The gateway's refusal of the request `id`, with a JSON-RPC error code. The words are fixed, so nothing that a
    /// client wrote is in them.
    pub fn refusal(id: &Id, code: i32, why: &'static str) -> Self {
        Self { id: id.clone(), content: ReplyContent::Refusal(code, why) }
    }

    /// The gateway's reply to a request that no client can answer: a result for `ping`, and for all other methods an
    /// error with the message `why`.
    pub(super) fn unasked(request: &Request, why: &'static str) -> Self {
        if request.method.as_ref() == method::PING {
            return Self { id: request.id.clone(), content: ReplyContent::Pong };
        }
        Self::refusal(&request.id, code::METHOD, why)
    }

    /// Whether `server` may receive it. The gateway's own words are for every server.
    pub(super) fn is_for(&self, server: &ServerName) -> bool {
        match &self.content {
            ReplyContent::Answer(
                ClearedOutcome::Result(answer) | ClearedOutcome::Error(answer),
            ) => answer.server() == server,
            ReplyContent::Refusal(..) | ReplyContent::Pong => true,
        }
    }

    /// Writes the JSON-RPC response to the server's request.
    pub(super) fn into_body(self) -> Vec<u8> {
        let (key, answer) = match &self.content {
            ReplyContent::Answer(ClearedOutcome::Result(answer)) => ("result", answer),
            ReplyContent::Answer(ClearedOutcome::Error(answer)) => ("error", answer),
            ReplyContent::Refusal(code, why) => {
                return wire::error(Some(&self.id), *code, why, None);
            }
            ReplyContent::Pong => {
                let mut out = wire::head(Some(&self.id), 16);
                out.extend_from_slice(br#""result":{}}"#);
                return out;
            }
        };
        let raw = answer.fragment().value().raw();
        let mut out = wire::head(Some(&self.id), raw.len() + 16);
        let mut message = Object::resume(&mut out);
        message.first();
        message.raw(key, raw);
        message.close();
        out
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use json::{Document, Fragment, JsonBounds};
    use policy::engine::pipeline::Policy;
    use policy_core::base::work::WorkBudget;
    use policy_core::subject::name::{PrincipalId, ServerName};
    use policy_core::subject::principal::Principal;

    use super::super::cleared::{
        ClearedAnswer, ClearedOutcome, InputResponses, InputResponsesDraft,
    };
    use super::ServerReply;
    use crate::mcp::protocol::code;
    use crate::mcp::wire::{Id, Request};
    use crate::outbound::guardrail::GuardrailsPassed;

    fn server(name: &str) -> ServerName {
        ServerName::parse(name).unwrap()
    }

    /// An answer that was cleared for `up`.
    fn cleared(text: &str) -> ClearedAnswer {
        let document = Document::parse(text.to_owned().into(), &JsonBounds::MESSAGE).unwrap();
        let ana = Principal::new(PrincipalId::parse("ana").unwrap(), [].into());
        let answer = Fragment::whole(Arc::new(document));
        let budget = WorkBudget::unlimited();
        let (answer, _) = Policy::default().answerable(&ana, &server("up"), answer, &budget);
        ClearedAnswer::new(answer.unwrap(), GuardrailsPassed::nothing_to_judge())
    }

    fn body(reply: ServerReply) -> String {
        String::from_utf8(reply.into_body()).unwrap()
    }

    #[test]
    fn a_reply_has_the_words_of_its_answer_or_those_of_the_gateway() {
        let id = Id::Text("q".into());
        let answer = |wrap: fn(ClearedAnswer) -> ClearedOutcome| {
            body(ServerReply::answer(&id, wrap(cleared(r#"{"action":"accept"}"#))))
        };
        assert_eq!(
            answer(ClearedOutcome::Result),
            r#"{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}"#
        );
        assert_eq!(
            answer(ClearedOutcome::Error),
            r#"{"jsonrpc":"2.0","id":"q","error":{"action":"accept"}}"#
        );
        assert_eq!(
            body(ServerReply::refusal(&id, code::DENIED, "not now")),
            format!(
                r#"{{"jsonrpc":"2.0","id":"q","error":{{"code":{},"message":"not now"}}}}"#,
                code::DENIED
            )
        );
        let asked = |method: &str| Request { id: id.clone(), method: method.into(), params: None };
        assert_eq!(
            body(ServerReply::unasked(&asked("ping"), "nobody")),
            r#"{"jsonrpc":"2.0","id":"q","result":{}}"#
        );
        assert!(body(ServerReply::unasked(&asked("roots/list"), "nobody")).contains("nobody"));
    }

    #[test]
    fn an_answer_is_for_the_server_that_it_was_cleared_for() {
        let id = Id::Number(1);
        let answer = ServerReply::answer(&id, ClearedOutcome::Result(cleared("{}")));
        assert!(answer.is_for(&server("up")) && !answer.is_for(&server("other")));
        let refusal = ServerReply::refusal(&id, code::METHOD, "nobody");
        assert!(refusal.is_for(&server("up")) && refusal.is_for(&server("other")));
    }

    #[test]
    fn answers_are_collected_for_one_server_alone() {
        let mut inputs = InputResponsesDraft::new(&server("up"));
        assert!(inputs.answer("a", &cleared(r#"{"n":1}"#)));
        inputs.cancel("b");
        let inputs = inputs.finish().unwrap().unwrap();
        assert_eq!(inputs.fragment().value().raw(), r#"{"a":{"n":1},"b":{"action":"cancel"}}"#);
        assert_eq!(*inputs.server(), server("up"));
        let mut other = InputResponsesDraft::new(&server("other"));
        assert!(!other.answer("a", &cleared("{}")) && other.finish().unwrap().is_none());
        let whole = cleared(r#"{"a":{"n":1},"b":2}"#);
        assert_eq!(
            InputResponses::whole(&whole).fragment().value().raw(),
            r#"{"a":{"n":1},"b":2}"#
        );
        // A part of what was judged, if it is an object.
        assert_eq!(whole.member("a").unwrap().fragment().value().raw(), r#"{"n":1}"#);
        assert!(whole.member("b").is_none() && whole.member("c").is_none());
    }
}
