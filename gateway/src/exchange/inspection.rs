//! Where messages are looked at: on the thread that serves the client, or beside it.

use std::sync::Arc;

use policy::message::{Reply, Use};
use policy::offer::Offer;
use policy::pipeline::{Expectation, Policy, Released};
use policy::principal::Principal;
use policy::work::Budget;

use super::Gateway;
use crate::base::offload::{Cause, OffloadError};
use crate::edge::failure::Failure;
use crate::upstream::UpstreamError;

impl Gateway {
    /// Looks at a message of so many bytes, of which `caller` is the cause: here if it is short, and beside
    /// the threads that serve clients if it is not. What it may cost is in proportion to its length.
    ///
    /// # Errors
    /// When it could not be looked at.
    pub(super) async fn inspect<T, F>(
        &self,
        caller: &Arc<Principal>,
        bytes: usize,
        look: F,
    ) -> Result<T, OffloadError>
    where
        T: Send + 'static,
        F: FnOnce(&Policy, &Arc<Principal>, &Budget) -> T + Send + 'static,
    {
        let most = self.limits.inspection_work;
        if bytes < self.limits.inspected_inline {
            return Ok(look(&self.policy, caller, &Budget::of(bytes, most)));
        }
        let (policy, principal) = (Arc::clone(&self.policy), Arc::clone(caller));
        let look = move |budget: &Budget| look(&policy, &principal, budget);
        let cause = Cause::Caller(caller.id.as_str().into());
        self.tasks.offload().run(cause, bytes, most, look).await
    }

    /// How many bytes have to be looked at for a decision about `call`. Where the schema or the cleaned
    /// definition of `offer` is worked out for it, it counts as long: that costs what the server makes of it.
    pub(super) fn to_inspect(&self, call: &Use, offer: Option<&Offer>) -> usize {
        let more = || call.extra.iter().chain(&call.meta);
        let names: usize = more().map(|(name, _)| name.len()).sum();
        let parts = call.arguments.iter().chain(more().map(|(_, value)| value));
        let sent: usize = parts.map(|part| part.value().span().len()).sum();
        let bytes = sent.saturating_add(names).saturating_add(call.name.len());
        let ready = |offer: &Offer| self.policy.is_ready(&call.server, offer) && offer.is_cleaned();
        let ready = offer.is_none_or(ready);
        if ready { bytes } else { bytes.max(self.limits.inspected_inline) }
    }

    /// An answer as `caller` may see it.
    ///
    /// # Errors
    /// When it could not be looked at: then nobody sees it.
    pub(super) async fn inspected(
        &self,
        caller: &Arc<Principal>,
        due: Expectation,
        reply: Reply,
    ) -> Result<Released, Failure> {
        let bytes = match &reply {
            Reply::Result(said) | Reply::Error(said) | Reply::Told(said) => {
                said.value().span().len()
            }
            Reply::List(_) => 0,
        };
        // A schema that is compiled for it costs what the server makes of it.
        let bytes = if due.is_ready() { bytes } else { bytes.max(self.limits.inspected_inline) };
        let look = |policy: &Policy, caller: &Arc<Principal>, budget: &Budget| {
            policy.release(caller, due, reply, budget)
        };
        self.inspect(caller, bytes, look).await.map_err(|error| {
            tracing::warn!(error = %crate::base::error_chain::Chain(&error), "an answer was withheld");
            let what = "the answer could not be looked at";
            Failure::Upstream(UpstreamError::Protocol(what))
        })
    }
}
