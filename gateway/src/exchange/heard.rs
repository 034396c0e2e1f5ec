//! What a server says beside its answers, as a caller may see it: notifications and questions pass
//! the same inspection as answers do.

use std::sync::Arc;

use policy::inspect::Finding;
use policy::json::Fragment;
use policy::message::Reply;
use policy::pipeline::{Expectation, Policy, Released, Shown};
use policy::principal::Principal;
use policy::work::Budget;

use super::Gateway;
use crate::failure::Failure;
use crate::offload::OffloadError;
use crate::upstream::{Asked, Question, Upstream, UpstreamError};
use crate::wire::{Notification, Outcome};

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
            return Ok(look(&self.policy, caller, &Budget::for_bytes(bytes, most)));
        }
        let (policy, principal) = (Arc::clone(&self.policy), Arc::clone(caller));
        let look = move |budget: &Budget| look(&policy, &principal, budget);
        self.tasks.offload().run(caller.id.as_str(), bytes, most, look).await
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
        let look = |policy: &Policy, caller: &Arc<Principal>, budget: &Budget| {
            policy.release(caller, due, reply, budget)
        };
        self.inspect(caller, bytes, look).await.map_err(|error| {
            tracing::warn!(error = %crate::report::Chain(&error), "an answer was withheld");
            let what = "the answer could not be looked at";
            Failure::Upstream(UpstreamError::Protocol(what))
        })
    }

    /// What a server said, as `caller` may see it. What was found is counted, and added to `found`.
    ///
    /// # Errors
    /// What was found, if it is withheld for it.
    pub(super) async fn heard(
        &self,
        caller: &Arc<Principal>,
        server: &Upstream,
        said: Option<Fragment>,
        found: &mut Vec<Finding>,
    ) -> Result<Option<Fragment>, Finding> {
        let Some(said) = said else { return Ok(None) };
        let (name, bytes) = (server.name().clone(), said.value().span().len());
        if bytes > self.limits.notification {
            found.push(Finding::too_long());
            return Err(Finding::too_long());
        }
        let look = move |policy: &Policy, caller: &Arc<Principal>, budget: &Budget| {
            policy.release_early(caller, &name, said, budget)
        };
        let Ok(released) = self.inspect(caller, bytes, look).await else {
            found.push(Finding::over_budget());
            return Err(Finding::over_budget());
        };
        match self.counted_parts(released, found) {
            Shown::Answer(Reply::Told(said)) => Ok(Some(said)),
            Shown::Withheld(finding) => Err(finding),
            Shown::Answer(_) | Shown::List(_) | Shown::Apart(_) => Ok(None),
        }
    }

    /// What may be shown of what was released. What was found is counted, and added to `found`.
    pub(super) fn counted_parts(&self, released: Released, found: &mut Vec<Finding>) -> Shown {
        self.metrics.ran(released.ran());
        let (shown, findings) = released.into_parts();
        self.metrics.content(&findings);
        found.extend(findings);
        shown
    }

    /// A notification as `caller` may see it, if it may; what was found in it is logged.
    pub(super) async fn told(
        &self,
        caller: &Arc<Principal>,
        server: &Upstream,
        told: &Notification,
    ) -> Option<Notification> {
        let mut found = Vec::new();
        let params = self.heard(caller, server, told.params.clone(), &mut found).await;
        for finding in &found {
            tracing::info!(server = %server.name(), method = %told.method, %finding, "found in what a server said");
        }
        match params {
            Ok(params) => Some(Notification { method: told.method.clone(), params }),
            Err(finding) => {
                tracing::warn!(server = %server.name(), method = %told.method, %finding, "a notification was withheld");
                None
            }
        }
    }

    /// What a client answered to a question, as it may be sent; `None` if it may not.
    pub(super) async fn sent(
        &self,
        caller: &Arc<Principal>,
        server: &Upstream,
        outcome: Outcome,
    ) -> Option<Outcome> {
        let (answer, wrap): (_, fn(Fragment) -> Outcome) = match outcome {
            Outcome::Result(result) => (result, Outcome::Result),
            Outcome::Error(error) => (error, Outcome::Error),
        };
        let (name, bytes) = (server.name().clone(), answer.value().span().len());
        let look = move |policy: &Policy, caller: &Arc<Principal>, budget: &Budget| {
            policy.answerable(caller, &name, answer, budget)
        };
        let (sent, found) = self.inspect(caller, bytes, look).await.ok()?;
        self.metrics.content(&found);
        for finding in &found {
            tracing::info!(server = %server.name(), %finding, "found in what a client answered");
        }
        sent.ok().map(wrap)
    }

    /// Questions as `caller` may see them.
    ///
    /// # Errors
    /// What was found, if one is withheld for it: then none is asked.
    pub(super) async fn asked(
        &self,
        caller: &Arc<Principal>,
        server: &Upstream,
        asked: Asked,
        found: &mut Vec<Finding>,
    ) -> Result<Asked, Finding> {
        let Asked { questions, result } = asked;
        // What is asked stands in the result too, and is counted once.
        let result = self.heard(caller, server, result, found).await?;
        let mut again = Vec::new();
        let mut shown = Vec::with_capacity(questions.len());
        for Question { key, id, method, params } in questions {
            let found = if result.is_some() { &mut again } else { &mut *found };
            let params = self.heard(caller, server, params, found).await?;
            shown.push(Question { key, id, method, params });
        }
        Ok(Asked { questions: shown, result })
    }
}
