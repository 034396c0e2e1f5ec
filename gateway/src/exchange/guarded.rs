//! The last word of those outside who are asked about what the policy permits.

use policy::inspect::Finding;
use policy::json::Value;
use policy::principal::Principal;

use super::{Gateway, Route};
use crate::guardrail::Question;
use crate::upstream::Upstream;

impl Gateway {
    /// Asks every guardrail of a route, one after the other: what is to be recorded.
    ///
    /// # Errors
    /// Why it may not pass, and what was to be recorded before.
    pub(super) async fn guarded(
        &self,
        route: &Route,
        caller: &Principal,
        (server, name): (&Upstream, &str),
        (is_result, value): (bool, Option<Value<'_>>),
    ) -> Result<Vec<Finding>, (Finding, Vec<Finding>)> {
        let mut found = Vec::new();
        let Some(value) = value else { return Ok(found) };
        for guardrail in route.guardrails.iter().filter(|one| one.judges(is_result)) {
            let question = Question {
                is_result,
                route: &route.path,
                server: server.name().as_str(),
                name,
                principal: caller.id.as_str(),
                value,
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
