//! What a server says beside its answers, as a caller may see it: notifications and questions pass
//! the same inspection as answers do.

use std::sync::Arc;

use policy::inspect::Finding;
use policy::json::Fragment;
use policy::labels::Part;
use policy::message::Reply;
use policy::pipeline::{Expectation, Released, Shown};
use policy::principal::Principal;

use super::Gateway;
use crate::failure::Failure;
use crate::upstream::{Asked, Question, Upstream, UpstreamError};
use crate::wire::{Notification, Outcome};

impl Gateway {
    /// An answer as `caller` may see it. What is long does not hold up others.
    ///
    /// # Errors
    /// When it could not be looked at: then nobody sees it.
    pub(super) async fn inspected(
        &self,
        caller: &Arc<Principal>,
        due: Expectation,
        reply: Reply,
    ) -> Result<Released, Failure> {
        let said = match &reply {
            Reply::Result(said) | Reply::Error(said) | Reply::Told(said) => {
                said.value().raw().len()
            }
            Reply::List(_) => 0,
        };
        if said < self.limits.inspected_inline {
            return Ok(self.policy.release(caller, due, reply));
        }
        let (policy, caller) = (Arc::clone(&self.policy), Arc::clone(caller));
        let looked = tokio::task::spawn_blocking(move || policy.release(&caller, due, reply));
        let what = "the answer could not be looked at";
        looked.await.map_err(|_ended| Failure::Upstream(UpstreamError::Protocol(what)))
    }

    /// What a server said, as `caller` may see it, also by what its reply is held to that is `due`. What
    /// was found is counted, and added to `found`.
    ///
    /// # Errors
    /// What was found, if it is withheld for it.
    pub(super) fn heard(
        &self,
        caller: &Principal,
        server: &Upstream,
        (part, said): (Part, Option<Fragment>),
        due: Option<&Expectation>,
        found: &mut Vec<Finding>,
    ) -> Result<Option<Fragment>, Finding> {
        let Some(said) = said else { return Ok(None) };
        let released = self.policy.release_early(caller, server.name(), said, part, due);
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
    pub(super) fn told(
        &self,
        caller: &Principal,
        server: &Upstream,
        told: &Notification,
    ) -> Option<Notification> {
        let mut found = Vec::new();
        let said = (Part::Params, told.params.clone());
        let params = self.heard(caller, server, said, None, &mut found);
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
    pub(super) fn sent(
        &self,
        caller: &Principal,
        server: &Upstream,
        outcome: Outcome,
    ) -> Option<Outcome> {
        let (answer, wrap): (_, fn(Fragment) -> Outcome) = match outcome {
            Outcome::Result(result) => (result, Outcome::Result),
            Outcome::Error(error) => (error, Outcome::Error),
        };
        let (sent, found) = self.policy.answerable(caller, server.name(), answer);
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
    pub(super) fn asked(
        &self,
        caller: &Principal,
        server: &Upstream,
        asked: Asked,
        due: Option<&Expectation>,
        found: &mut Vec<Finding>,
    ) -> Result<Asked, Finding> {
        let Asked { questions, result } = asked;
        // What is asked stands in the result too, and is counted once.
        let result = self.heard(caller, server, (Part::Result, result), due, found)?;
        let mut again = Vec::new();
        let mut shown = Vec::with_capacity(questions.len());
        for Question { key, id, method, params } in questions {
            let found = if result.is_some() { &mut again } else { &mut *found };
            let params = self.heard(caller, server, (Part::Params, params), due, found)?;
            shown.push(Question { key, id, method, params });
        }
        Ok(Asked { questions: shown, result })
    }
}
