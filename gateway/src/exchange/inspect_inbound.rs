//! Inspects what a server sends besides responses: notifications and server requests pass the same inspection as
//! results.

use std::sync::Arc;

use policy::base::work::WorkBudget;
use policy::detection::inspect::Finding;
use policy::detection::labels::LabelledPart;
use policy::engine::message::Reply;
use policy::engine::pipeline::{Expectation, Policy, ReleasedReply, VisibleReply};
use policy::json::Fragment;
use policy::subject::principal::Principal;

use super::Gateway;
use crate::mcp::wire::Notification;
use crate::upstream::Upstream;

impl Gateway {
    /// A fragment that a server sent, as `caller` may see it. If it belongs to a call, `due` also hides what its result
    /// must hide. Findings are counted and added to `found`.
    ///
    /// # Errors
    /// The finding for which it is withheld.
    pub(super) async fn heard(
        &self,
        caller: &Arc<Principal>,
        server: &Upstream,
        (part, said): (LabelledPart, Option<Fragment>),
        due: Option<&Expectation>,
        found: &mut Vec<Finding>,
    ) -> Result<Option<Fragment>, Finding> {
        let Some(said) = said else { return Ok(None) };
        let (name, bytes) = (server.name().clone(), said.value().span().len());
        let hidden = due.map(Expectation::hidden).cloned().unwrap_or_default();
        let look = move |policy: &Policy, caller: &Arc<Principal>, budget: &WorkBudget| {
            policy.release_early(caller, &name, part, said, &hidden, budget)
        };
        self.early(caller, bytes, look, found).await
    }

    /// The part of an early message that is released by `look`. Findings are counted and added to `found`.
    pub(super) async fn early(
        &self,
        caller: &Arc<Principal>,
        bytes: usize,
        look: impl FnOnce(&Policy, &Arc<Principal>, &WorkBudget) -> ReleasedReply + Send + 'static,
        found: &mut Vec<Finding>,
    ) -> Result<Option<Fragment>, Finding> {
        if bytes > self.limits.notification {
            return Err(self.unseen(Finding::too_long(), found));
        }
        let Ok(released) = self.inspect(caller, bytes, look).await else {
            return Err(self.unseen(Finding::over_budget(), found));
        };
        match self.counted_parts(released, found) {
            VisibleReply::Answer(Reply::Told(said)) => Ok(Some(said)),
            VisibleReply::Withheld(finding) => Err(finding),
            VisibleReply::Answer(_) | VisibleReply::List(_) | VisibleReply::Apart(_) => Ok(None),
        }
    }

    /// Counts a finding about something that was not inspected, and adds it to `found`.
    pub(super) fn unseen(&self, finding: Finding, found: &mut Vec<Finding>) -> Finding {
        self.metrics.content([&finding]);
        found.push(finding.clone());
        finding
    }

    /// The visible part of a released message. Findings are counted and added to `found`.
    pub(super) fn counted_parts(
        &self,
        released: ReleasedReply,
        found: &mut Vec<Finding>,
    ) -> VisibleReply {
        self.metrics.ran(released.ran());
        let (shown, findings) = released.into_parts();
        self.metrics.content(&findings);
        found.extend(findings);
        shown
    }

    /// A notification as `caller` may see it; `None` if it is withheld. Findings are logged.
    pub(super) async fn told(
        &self,
        caller: &Arc<Principal>,
        server: &Upstream,
        told: &Notification,
    ) -> Option<Notification> {
        let mut found = Vec::new();
        let said = (LabelledPart::Params, told.params.clone());
        let params = self.heard(caller, server, said, None, &mut found).await;
        // The server controls how many findings there are, so logging is rate-limited.
        let name = server.name();
        for finding in &found {
            if let Some(suppressed) = server.may_log(self.clock.instant()) {
                tracing::info!(server = %name, method = %told.method, %finding, suppressed, "found in what a server said");
            }
        }
        match params {
            Ok(params) => Some(Notification { method: told.method.clone(), params }),
            Err(finding) => {
                if let Some(suppressed) = server.may_log(self.clock.instant()) {
                    tracing::warn!(server = %name, method = %told.method, %finding, suppressed, "a notification was withheld");
                }
                None
            }
        }
    }
}
