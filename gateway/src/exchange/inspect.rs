//! Runs the inspection of messages: short ones on the thread that serves the client, long ones in the offload pool.

use std::sync::Arc;

use policy::definition::offer::CatalogItem;
use policy::engine::message::{ItemRequest, Reply};
use policy::engine::pipeline::{Expectation, Facts, Policy, ReleasedReply};
use policy_core::base::work::WorkBudget;
use policy_core::subject::principal::Principal;

use super::Gateway;
use super::in_flight_call::has_misspelled_content;
use crate::base::offload::{OffloadError, OffloadHolder};
use crate::edge::failure::Failure;
use crate::upstream::UpstreamError;

impl Gateway {
    /// Inspects a message of `bytes` bytes on behalf of `caller`: inline if it is short, in the offload pool otherwise.
    /// The work allowed is proportional to its length. `look` gets the facts as they are when it runs: a message may
    /// have waited for the pool.
    ///
    /// # Errors
    /// If the pool refuses the work or the work fails.
    pub(super) async fn inspect<T, F>(
        &self,
        caller: &Arc<Principal>,
        bytes: usize,
        look: F,
    ) -> Result<T, OffloadError>
    where
        T: Send + 'static,
        F: FnOnce(&Policy, &Facts, &Arc<Principal>, &WorkBudget) -> T + Send + 'static,
    {
        let most = self.limits.inspection_work;
        if bytes < self.limits.inspected_inline {
            let budget = WorkBudget::of(bytes, most);
            return Ok(look(&self.policy, &self.policy.facts(), caller, &budget));
        }
        let (policy, principal) = (Arc::clone(&self.policy), Arc::clone(caller));
        let look = move |budget: &WorkBudget| look(&policy, &policy.facts(), &principal, budget);
        let cause = OffloadHolder::Caller(caller.id.as_str().into());
        // Boxed, because short messages are the rule, and their futures would have room for it.
        Box::pin(self.tasks.offload().run(cause, bytes, most, look)).await
    }

    /// How many bytes a decision about `call` inspects. If the schema or the cleaned definition of `offer` is not
    /// computed yet, the message counts as long, because the server determines that cost.
    pub(super) fn to_inspect(&self, call: &ItemRequest, offer: Option<&CatalogItem>) -> usize {
        let more = || call.extra.iter().chain(&call.meta);
        let names: usize = more().map(|(name, _)| name.len()).sum();
        let parts = call.arguments.iter().chain(more().map(|(_, value)| value));
        let sent: usize = parts.map(|part| part.value().span().len()).sum();
        let bytes = sent.saturating_add(names).saturating_add(call.name.len());
        let ready =
            |offer: &CatalogItem| self.policy.is_ready(&call.server, offer) && offer.is_cleaned();
        let ready = offer.is_none_or(ready);
        if ready { bytes } else { bytes.max(self.limits.inspected_inline) }
    }

    /// Inspects a reply and returns what `caller` may see of it.
    ///
    /// # Errors
    /// If the reply could not be inspected, or has content with a misspelled member; then it is withheld.
    pub(super) async fn inspected(
        &self,
        caller: &Arc<Principal>,
        expectation: Expectation,
        reply: Reply,
    ) -> Result<ReleasedReply, Failure> {
        let bytes = match &reply {
            Reply::Result(said) | Reply::Error(said) | Reply::Told(said) => {
                said.value().span().len()
            }
            Reply::List(_) => 0,
        };
        // The server determines the cost of compiling its schema.
        let bytes =
            if expectation.is_ready() { bytes } else { bytes.max(self.limits.inspected_inline) };
        let look =
            |policy: &Policy, facts: &Facts, caller: &Arc<Principal>, budget: &WorkBudget| {
                if let Reply::Result(said) = &reply
                    && budget.spend(said.value().span().len())
                    && has_misspelled_content(said.value())
                {
                    return Err("the result has content with a member in another spelling");
                }
                // An exhausted budget withholds the reply there.
                Ok(policy.release(facts, caller, expectation, reply, budget))
            };
        let looked = self.inspect(caller, bytes, look).await.map_err(|error| {
            tracing::warn!(
                event = "result.withheld", error = %crate::base::error_chain::ErrorChain(&error),
                "result withheld"
            );
            Failure::Upstream(UpstreamError::Protocol("the result could not be inspected"))
        })?;
        looked.map_err(|what| Failure::Upstream(UpstreamError::Protocol(what)))
    }
}
