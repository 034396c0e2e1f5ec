//! Asks the external guardrails of a route about messages that the policy permits.

use detection::content::without_values;
use detection::inspect::Finding;
use json::Value;
use policy_core::subject::principal::Principal;

use super::{Gateway, Route};
use crate::outbound::guardrail::{self, GuardedPart, GuardrailRequest, GuardrailsPassed};
use crate::upstream::Upstream;

/// What the guardrails of a route are asked about.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardrailSubject<'a> {
    /// The upstream server concerned.
    pub(super) server: &'a Upstream,
    /// The tool, prompt, URI or method, with the name that the server uses.
    pub(super) name: &'a str,
    /// The kind of message.
    pub(super) part: GuardedPart,
    /// The content that would be sent or shown.
    pub(super) value: Value<'a>,
    /// What else the caller chose, as the members of a JSON object without its braces.
    pub(super) beside: &'a str,
}

impl Gateway {
    /// Asks every guardrail of the route in order, and returns findings for the record.
    ///
    /// # Errors
    /// The finding that stops the message, with all findings for the record.
    pub(super) async fn guarded(
        &self,
        route: &Route,
        caller: &Principal,
        about: GuardrailSubject<'_>,
    ) -> Result<(GuardrailsPassed, Vec<Finding>), (Finding, Vec<Finding>)> {
        let question = GuardrailRequest {
            part: about.part,
            route: &route.path,
            server: about.server.name().as_str(),
            name: about.name,
            principal: caller.id.as_str(),
            value: about.value,
            beside: about.beside,
        };
        let judged = if route.guardrails.is_empty() {
            Ok((GuardrailsPassed::nothing_to_judge(), Vec::new()))
        } else {
            // Boxed, because it is large, and the futures of all calls would have room for it.
            Box::pin(guardrail::ask_all(&route.guardrails, question)).await
        };
        // A guardrail may quote what it was asked about, and no record has any content.
        let contents = self.policy.contents();
        let recorded = |finding: Finding| {
            let note = without_values(&finding.note, Some(contents));
            let note = note.chars().take(guardrail::REASON).collect::<String>().into();
            Finding { note, ..finding }
        };
        let judged = match judged {
            Ok((agreed, found)) => Ok((agreed, found.into_iter().map(recorded).collect())),
            Err((finding, found)) => {
                Err((recorded(finding), found.into_iter().map(recorded).collect::<Vec<_>>()))
            }
        };
        let (Ok((_, found)) | Err((_, found))) = &judged;
        self.metrics.content(found);
        judged
    }
}
