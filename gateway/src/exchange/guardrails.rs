//! The last word of those outside who are asked about what the policy permits.

use policy::inspect::Finding;
use policy::json::Value;
use policy::principal::Principal;

use super::{Gateway, Route};
use crate::outbound::guardrail::{Part, Question};
use crate::upstream::Upstream;

/// What the guardrails of a route are asked about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matter<'a> {
    /// Which server.
    pub(super) server: &'a Upstream,
    /// What is used of it, as it calls it.
    pub(super) name: &'a str,
    /// What sort of thing it is.
    pub(super) part: Part,
    /// What would be sent or shown.
    pub(super) value: Value<'a>,
    /// What else the caller chose, as the members of a JSON object without its braces.
    pub(super) beside: &'a str,
}

impl Gateway {
    /// Asks every guardrail of a route, one after the other: what is to be recorded.
    ///
    /// # Errors
    /// Why it may not pass, and what was to be recorded before.
    pub(super) async fn guarded(
        &self,
        route: &Route,
        caller: &Principal,
        about: Matter<'_>,
    ) -> Result<Vec<Finding>, (Finding, Vec<Finding>)> {
        let mut found = Vec::new();
        for guardrail in route.guardrails.iter().filter(|one| one.judges(about.part)) {
            let question = Question {
                part: about.part,
                route: &route.path,
                server: about.server.name().as_str(),
                name: about.name,
                principal: caller.id.as_str(),
                value: about.value,
                beside: about.beside,
            };
            match guardrail.ask(question).await {
                Ok(noted) => found.extend(noted),
                Err(finding) => {
                    self.metrics.content([&finding]);
                    found.push(finding.clone());
                    return Err((finding, found));
                }
            }
        }
        self.metrics.content(&found);
        Ok(found)
    }
}
