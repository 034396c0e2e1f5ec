//! What was said, taken down where an operator wants that (`audit.capture`).

use std::sync::Arc;

use policy::json::Fragment;
use policy::labels::Concealed;
use policy::name::ServerName;
use policy::pipeline::Policy;
use policy::principal::Principal;
use policy::work::Budget;

use super::Gateway;
use crate::audit::{Captured, Excerpt, Record};

impl Gateway {
    /// Takes down the arguments of a call, before it is decided: what was tried is evidence too.
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
                let all = Concealed::default();
                Some(self.excerpt(caller.as_ref(), server, (arguments, &all), capture.size).await)
            }
            None => None,
        };
        let due = if capture.results { capture.size } else { 0 };
        record.captured = Some(Box::new(Captured { arguments, result: None, due }));
    }

    /// What of a result is taken down: as the server said it, whatever its caller is shown.
    pub(super) async fn captured_result(
        &self,
        caller: &Arc<Principal>,
        server: &ServerName,
        result: &Fragment,
        labelled: &Concealed,
    ) -> Option<Excerpt> {
        let capture = self.capture.filter(|capture| capture.results)?;
        Some(self.excerpt(Some(caller), server, (result, labelled), capture.size).await)
    }

    /// What is long is looked at beside the threads that serve clients.
    async fn excerpt(
        &self,
        caller: Option<&Arc<Principal>>,
        server: &ServerName,
        (said, labelled): (&Fragment, &Concealed),
        most: usize,
    ) -> Excerpt {
        // Arguments are captured of callers that are known alone.
        let Some(caller) = caller else { return Excerpt::withheld() };
        let (name, said, labelled) = (server.clone(), said.clone(), labelled.clone());
        let bytes = said.value().span().len();
        let look = move |policy: &Policy, _: &Arc<Principal>, budget: &Budget| {
            policy.recordable(&name, said.value(), &labelled, budget)
        };
        let text = self.inspect(caller, bytes, look).await.ok().flatten();
        text.map_or_else(Excerpt::withheld, |text| Excerpt::of(&text, most))
    }
}
