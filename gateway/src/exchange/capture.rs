//! Captures excerpts of arguments and results in audit records, where the operator enables it (`audit.capture`).

use std::sync::Arc;

use detection::labels::ConcealedMembers;
use json::Fragment;
use policy::engine::pipeline::{Facts, Policy};
use policy_core::base::work::WorkBudget;
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;

use super::Gateway;
use crate::audit::{CapturedContent, Excerpt, Record};

impl Gateway {
    /// Captures the arguments before the decision, because denied attempts are evidence too.
    pub(super) async fn capture_arguments(
        &self,
        server: &ServerName,
        arguments: Option<&Fragment>,
        record: &mut Record,
    ) {
        let Some(capture) = self.capture else { return };
        let caller = record.principal.clone();
        let arguments = match arguments.filter(|_| capture.arguments) {
            Some(arguments) => {
                let all = ConcealedMembers::default();
                // Boxed, here and below, because few configurations capture anything.
                let excerpt = self.excerpt(caller.as_ref(), server, arguments, &all, capture.size);
                Some(Box::pin(excerpt).await)
            }
            None => None,
        };
        let due = if capture.results { capture.size } else { 0 };
        record.captured = Some(Box::new(CapturedContent { arguments, result: None, due }));
    }

    /// The excerpt of a result as the server sent it, regardless of what the caller may see.
    pub(super) async fn captured_result(
        &self,
        caller: &Arc<Principal>,
        server: &ServerName,
        result: &Fragment,
        labelled: &ConcealedMembers,
    ) -> Option<Excerpt> {
        let capture = self.capture.filter(|capture| capture.results)?;
        let excerpt = self.excerpt(Some(caller), server, result, labelled, capture.size);
        Some(Box::pin(excerpt).await)
    }

    /// An excerpt with secrets removed; long texts are processed in the offload pool.
    async fn excerpt(
        &self,
        caller: Option<&Arc<Principal>>,
        server: &ServerName,
        said: &Fragment,
        labelled: &ConcealedMembers,
        most: usize,
    ) -> Excerpt {
        // Arguments of unauthenticated callers are not captured.
        let Some(caller) = caller else { return Excerpt::withheld() };
        let (name, said, labelled) = (server.clone(), said.clone(), labelled.clone());
        let bytes = said.value().span().len();
        let look = move |policy: &Policy, _: &Facts, _: &Arc<Principal>, budget: &WorkBudget| {
            policy.recordable(&name, said.value(), &labelled, budget)
        };
        let text = self.inspect(caller, bytes, look).await.ok().flatten();
        text.map_or_else(Excerpt::withheld, |text| Excerpt::of(&text, most))
    }
}
