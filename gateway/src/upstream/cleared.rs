//! What a request, or a client's answer to a server, needs before it may be sent to that server.

use std::sync::Arc;

use json::{Document, Fragment, JsonBounds, JsonError};
use policy::engine::pipeline::{Answerable, Permit};
use policy_core::subject::kind::ReadOnlyHint;
use policy_core::subject::name::ServerName;

use crate::mcp::wire::Object;
use crate::outbound::guardrail::GuardrailsPassed;
use crate::session::rate_limiter::WithinRate;

/// Proof that a request may be sent: the policy permits it, it is within the rate limit of its tool, and the guardrails
/// of its route let it pass. [`Upstream::call`] and [`Upstream::tell`] take nothing less.
///
/// ```
/// # use gateway::{outbound::guardrail::GuardrailsPassed, session::rate_limiter::WithinRate, upstream::Cleared};
/// # fn counted(permit: policy::engine::pipeline::Permit, rate: WithinRate, agreed: GuardrailsPassed) {
/// let cleared = Cleared::new(permit, rate, agreed);
/// # }
/// ```
///
/// ```compile_fail,E0451
/// # fn unlimited(permit: policy::engine::pipeline::Permit) {
/// let cleared = gateway::upstream::Cleared { permit }; // neither counted nor judged
/// # }
/// ```
///
/// ```compile_fail,E0423
/// let counted = gateway::session::rate_limiter::WithinRate(()); // a private field
/// ```
///
/// ```compile_fail,E0423
/// let judged = gateway::outbound::guardrail::GuardrailsPassed(()); // a private field
/// ```
///
/// [`Upstream::call`]: super::Upstream::call
/// [`Upstream::tell`]: super::Upstream::tell
#[derive(Debug)]
#[must_use = "an unused `Cleared` is a request that is not sent"]
pub struct Cleared {
    permit: Permit,
}

impl Cleared {
    /// Puts the three proofs together.
    pub fn new(permit: Permit, _rate: WithinRate, _guardrails: GuardrailsPassed) -> Self {
        Self { permit }
    }

    /// What the definition of the tool says in `readOnlyHint`.
    #[must_use]
    pub fn hint(&self) -> ReadOnlyHint {
        self.permit.hint()
    }

    /// The permit, to be spent where the request is sent.
    pub(super) fn into_permit(self) -> Permit {
        self.permit
    }
}

/// Proof that a client's answer to a server may be sent to it: the policy inspected it, and the guardrails of the route
/// let it pass. A [`ServerReply`] with a client's words, and [`InputResponses`], are made of nothing less.
///
/// ```
/// # use gateway::{outbound::guardrail::GuardrailsPassed, upstream::ClearedAnswer};
/// # fn judged(answer: policy::engine::pipeline::Answerable, agreed: GuardrailsPassed) {
/// let cleared = ClearedAnswer::new(answer, agreed);
/// # }
/// ```
///
/// ```compile_fail,E0451
/// # fn unjudged(answer: policy::engine::pipeline::Answerable) {
/// let cleared = gateway::upstream::ClearedAnswer { answer }; // not judged
/// # }
/// ```
///
/// [`ServerReply`]: super::ServerReply
#[derive(Debug)]
#[must_use = "an answer that is cleared is sent or refused"]
pub struct ClearedAnswer {
    answer: Answerable,
}

impl ClearedAnswer {
    /// Puts the two proofs together.
    pub fn new(answer: Answerable, _guardrails: GuardrailsPassed) -> Self {
        Self { answer }
    }

    /// The member `key`, if it is an object: a part of what was judged.
    #[must_use]
    pub fn member(&self, key: &str) -> Option<Self> {
        Some(Self { answer: self.answer.member(key)? })
    }

    /// The server that may receive it.
    pub(super) const fn server(&self) -> &ServerName {
        self.answer.server()
    }

    /// The value that is sent as `result` or `error`.
    pub(super) const fn fragment(&self) -> &Fragment {
        self.answer.fragment()
    }
}

/// Whether a client answered a server's request with a result or with an error.
#[derive(Debug)]
pub enum ClearedOutcome {
    /// With the object under `result`.
    Result(ClearedAnswer),
    /// With the object under `error`.
    Error(ClearedAnswer),
}

/// A client's answers to what a modern server asked (`inputResponses`), with which a call is continued.
///
/// ```
/// # use gateway::upstream::{ClearedAnswer, InputResponses};
/// # fn continued(answers: ClearedAnswer) {
/// let inputs = InputResponses::whole(&answers);
/// # }
/// ```
///
/// ```compile_fail,E0308
/// # use gateway::upstream::InputResponses;
/// # fn continued(answers: json::Fragment) {
/// let inputs = InputResponses::whole(&answers); // not inspected
/// # }
/// ```
#[derive(Debug)]
pub struct InputResponses {
    server: ServerName,
    all: Fragment,
}

impl InputResponses {
    /// All answers, as a client sent them in one message.
    #[must_use]
    pub fn whole(answers: &ClearedAnswer) -> Self {
        Self { server: answers.server().clone(), all: answers.fragment().clone() }
    }

    /// The server that may receive them.
    pub(super) const fn server(&self) -> &ServerName {
        &self.server
    }

    /// The value that is sent as `inputResponses`.
    pub(super) const fn fragment(&self) -> &Fragment {
        &self.all
    }
}

/// Collects the answers that a client gave one by one.
#[derive(Debug)]
pub struct InputResponsesDraft {
    server: ServerName,
    out: Vec<u8>,
}

impl InputResponsesDraft {
    /// Starts a collection of answers for `server`.
    #[must_use]
    pub fn new(server: &ServerName) -> Self {
        Self { server: server.clone(), out: Vec::new() }
    }

    /// Adds the answer to the request `key`, and returns whether it may be sent to the server.
    #[must_use]
    pub fn answer(&mut self, key: &str, answer: &ClearedAnswer) -> bool {
        let is_for_it = *answer.server() == self.server;
        if is_for_it {
            self.member(key, answer.fragment().value().raw());
        }
        is_for_it
    }

    /// Adds that the user has cancelled the elicitation `key`: the words of the gateway for a client that answered with
    /// an error.
    pub fn cancel(&mut self, key: &str) {
        self.member(key, r#"{"action":"cancel"}"#);
    }

    fn member(&mut self, key: &str, raw: &str) {
        let mut object = if self.out.is_empty() {
            Object::open(&mut self.out)
        } else {
            Object::resume(&mut self.out)
        };
        object.raw(key, raw);
    }

    /// The answers; `None` if there are none.
    ///
    /// # Errors
    /// If together they exceed the bounds of a message.
    pub fn finish(mut self) -> Result<Option<InputResponses>, JsonError> {
        if self.out.is_empty() {
            return Ok(None);
        }
        self.out.push(b'}');
        let document = Document::parse(self.out.into(), &JsonBounds::ANSWER)?;
        let all = Fragment::whole(Arc::new(document));
        Ok(Some(InputResponses { server: self.server, all }))
    }
}
