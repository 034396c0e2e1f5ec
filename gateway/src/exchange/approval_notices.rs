//! Tells a web service of questions whether a call may be made, so that operators need not look for them.
//!
//! A notice that is not delivered changes nothing: the question waits for its time, and is then denied.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout, timeout_at};

use super::Gateway;
use crate::mcp::wire::Object;
use crate::outbound::webhook::Webhook;
use crate::session::approvals::{ApprovalState, OpenApproval, details, summary};

/// How long the notice of the end of a question is repeated.
const AFTER_THE_END: Duration = Duration::from_secs(60);

impl Gateway {
    /// Tells the configured service of a new question, and of its end. The number of these tasks is that of questions.
    pub(super) fn notify_of(&self, open: &OpenApproval) {
        let Some(webhook) = self.approval_webhook.clone() else { return };
        let (open, tasks) = (open.clone(), self.tasks.clone());
        self.tasks.spawn_service(async move {
            tokio::select! {
                () = notices(webhook, open) => {}
                // Neither the end of the gateway nor that of a configuration waits for a service.
                () = tasks.halting() => {}
            }
        });
    }
}

/// Delivers the notice of a question while it can be answered, and then that of its end, unless the service wants none.
async fn notices(webhook: Arc<Webhook>, open: OpenApproval) {
    let mut state = open.state.clone();
    let until = Instant::from_std(open.until);
    let id = open.question.id.as_str();
    let (first, last) = (format!("{id}-asked"), format!("{id}-ended"));
    let asked = body("approval.asked", &open);
    let has_ended = state.wait_for(|state| *state != ApprovalState::Waiting);
    let is_told = tokio::select! {
        is_told = webhook.deliver(&first, &asked) => is_told,
        // The service may have got the notice although its answer did not arrive.
        _ = has_ended => true,
        () = tokio::time::sleep_until(until) => true,
    };
    if !is_told {
        return;
    }
    // A question that expires is removed a little later.
    let has_ended = state.wait_for(|state| *state != ApprovalState::Waiting);
    drop(timeout_at(until + AFTER_THE_END, has_ended).await);
    let ended = body("approval.ended", &open);
    drop(timeout(AFTER_THE_END, webhook.deliver(&last, &ended)).await);
}

/// A notice: what the admin API shows of the question, and what has happened to it.
fn body(kind: &str, open: &OpenApproval) -> Bytes {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    object.text("type", kind);
    let mut data = Object::open(object.key("data"));
    summary(&mut data, open);
    if kind == "approval.asked" {
        details(&mut data, &open.question);
    }
    data.close();
    object.close();
    out.into()
}
