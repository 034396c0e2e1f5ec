//! Inspects what a server sends besides responses: notifications and server requests pass the same inspection as
//! results.

use std::sync::Arc;

use detection::inspect::Finding;
use detection::labels::LabelledPart;
use json::Fragment;
use policy::engine::pipeline::{
    EarlyMessage, Expectation, Facts, Policy, ReleasedReply, Shown, VisibleReply,
};
use policy::flow::guard::FlowClause;
use policy_core::base::work::WorkBudget;
use policy_core::subject::principal::Principal;

use super::server_request_records::{ServerQuestion, denied};
use super::{Gateway, Route};
use crate::edge::encode::ShownNotification;
use crate::mcp::wire::Notification;
use crate::metrics::outcome::ExchangeEnd;
use crate::upstream::{self, Upstream};

/// The reason of a record about a message that was withheld.
const CONTENT: &str = "content";
/// The same about one that the trusted planner is not shown.
const PLANNER: &str = FlowClause::Planner.code();

impl Gateway {
    /// What a server sent, as `caller` may see it. If it belongs to a call, `expectation` also hides what its result must hide.
    /// Findings are counted and added to `found`.
    ///
    /// # Errors
    /// The finding for which it is withheld.
    pub(super) async fn heard(
        &self,
        caller: &Arc<Principal>,
        server: &Upstream,
        told: EarlyMessage,
        expectation: Option<&Expectation>,
        found: &mut Vec<Finding>,
    ) -> Result<Option<Shown>, Finding> {
        let (name, bytes) = (server.name().clone(), told.said.value().span().len());
        let hidden = expectation.map(Expectation::hidden).cloned().unwrap_or_default();
        let look =
            move |policy: &Policy, facts: &Facts, caller: &Arc<Principal>, budget: &WorkBudget| {
                policy.release_early(facts, caller, &name, told, &hidden, budget)
            };
        self.early(caller, bytes, look, found).await
    }

    /// The params of a notification as `caller` may see them; `None` if it has none.
    ///
    /// # Errors
    /// The finding for which they are withheld.
    pub(super) async fn heard_params(
        &self,
        caller: &Arc<Principal>,
        server: &Upstream,
        told: &Notification,
        expectation: Option<&Expectation>,
        found: &mut Vec<Finding>,
    ) -> Result<Option<Shown>, Finding> {
        let Some(said) = told.params.clone() else { return Ok(None) };
        let told = EarlyMessage { part: LabelledPart::Params, said };
        self.heard(caller, server, told, expectation, found).await
    }

    /// The part of an early message that is released by `look`. Findings are counted and added to `found`.
    pub(super) async fn early(
        &self,
        caller: &Arc<Principal>,
        bytes: usize,
        look: impl FnOnce(&Policy, &Facts, &Arc<Principal>, &WorkBudget) -> ReleasedReply
        + Send
        + 'static,
        found: &mut Vec<Finding>,
    ) -> Result<Option<Shown>, Finding> {
        if bytes > self.limits.notification {
            return Err(self.unseen(Finding::too_long(), found));
        }
        let Ok(released) = self.inspect(caller, bytes, look).await else {
            return Err(self.unseen(Finding::over_budget(), found));
        };
        match self.counted_parts(caller, released, found) {
            VisibleReply::Told(said) => Ok(Some(said)),
            VisibleReply::Withheld(finding) => Err(finding),
            VisibleReply::Result(_)
            | VisibleReply::Error(_)
            | VisibleReply::List(_)
            | VisibleReply::Apart(_) => Ok(None),
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
        caller: &Principal,
        released: ReleasedReply,
        found: &mut Vec<Finding>,
    ) -> VisibleReply {
        self.metrics.ran(released.ran());
        let (shown, findings) = released.into_parts();
        self.note_shown(caller, &findings);
        found.extend(findings);
        shown
    }

    /// A notification that belongs to no exchange, as `caller` may see it; `None` if it is withheld. Findings are logged,
    /// and have a record of their own.
    pub(super) async fn told_on_record(
        &self,
        caller: &Arc<Principal>,
        route: &Arc<Route>,
        server: &Upstream,
        told: &Notification,
    ) -> Option<ShownNotification> {
        let params = told.params.as_ref().map(Fragment::value);
        if self.is_withheld(route, server.name(), &told.method, params) {
            // That a list has changed is shown without anything that the server adds to it.
            let is_change = upstream::changed(&told.method).is_some();
            if !is_change {
                let said = ServerQuestion { server, method: &told.method };
                let found = vec![self.not_for_planner()];
                self.found_in_notification(caller, route, said, found, denied(PLANNER));
            }
            return is_change
                .then(|| ShownNotification { method: told.method.clone(), params: None });
        }
        let mut found = Vec::new();
        let shown = self.told(caller, server, told, &mut found).await;
        if !found.is_empty() {
            let ending = match shown {
                Some(_) => ExchangeEnd::answered(),
                None => denied(CONTENT),
            };
            let said = ServerQuestion { server, method: &told.method };
            self.found_in_notification(caller, route, said, found, ending);
        }
        shown
    }

    /// A notification as `caller` may see it; `None` if it is withheld. Findings are logged, and added to `found`.
    pub(super) async fn told(
        &self,
        caller: &Arc<Principal>,
        server: &Upstream,
        told: &Notification,
        found: &mut Vec<Finding>,
    ) -> Option<ShownNotification> {
        let known = found.len();
        let params = self.heard_params(caller, server, told, None, found).await;
        // The server controls how many findings there are, so logging is rate-limited.
        let name = server.name();
        for finding in found.iter().skip(known) {
            if let Some(suppressed) = server.may_log(self.clock.instant()) {
                tracing::info!(
                    event = "notification.finding", server = %name, method = %told.method, %finding,
                    suppressed,
                    "finding in a notification"
                );
            }
        }
        match params {
            Ok(params) => Some(ShownNotification { method: told.method.clone(), params }),
            Err(finding) => {
                if let Some(suppressed) = server.may_log(self.clock.instant()) {
                    tracing::warn!(
                        event = "notification.withheld", server = %name, method = %told.method,
                        %finding, suppressed,
                        "notification withheld"
                    );
                }
                None
            }
        }
    }
}
