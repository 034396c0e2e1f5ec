//! What a request needs before it may be sent to a server.

use policy::engine::message::ClientRequest;
use policy::engine::pipeline::Permit;
use policy::subject::kind::ReadOnlyHint;

use crate::outbound::guardrail::Agreed;
use crate::session::rate_limiter::WithinRate;

/// Proof that a request may be sent: the policy permits it, it is within the rate limit of its tool, and the guardrails
/// of its route let it pass. [`Upstream::call`] and [`Upstream::tell`] take nothing less.
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
/// let judged = gateway::outbound::guardrail::Agreed(()); // a private field
/// ```
///
/// [`Upstream::call`]: super::Upstream::call
/// [`Upstream::tell`]: super::Upstream::tell
#[derive(Debug)]
#[must_use = "a request that is cleared is sent or refused"]
pub struct Cleared {
    permit: Permit,
}

impl Cleared {
    /// Puts the three proofs together.
    pub fn new(permit: Permit, _rate: WithinRate, _agreed: Agreed) -> Self {
        Self { permit }
    }

    /// What the definition says of itself that its server is held to.
    #[must_use]
    pub fn hint(&self) -> ReadOnlyHint {
        self.permit.hint()
    }

    /// The request, for a call that was sent before and goes on now: nothing can be sent with it.
    #[must_use]
    pub fn into_call(self) -> ClientRequest {
        let (call, _) = self.permit.spend();
        call
    }

    /// The permit, to be spent where the request is sent.
    pub(super) fn into_permit(self) -> Permit {
        self.permit
    }
}
