//! What was said, taken down where an operator wants that (`audit.capture`).

use std::sync::Arc;

use policy::json::Fragment;
use policy::labels::Concealed;
use policy::name::ServerName;
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
        let arguments = match arguments.filter(|_| capture.arguments) {
            Some(arguments) => {
                let all = Concealed::default();
                Some(self.excerpt(server, arguments, &all, capture.size).await)
            }
            None => None,
        };
        let due = if capture.results { capture.size } else { 0 };
        record.captured = Some(Box::new(Captured { arguments, result: None, due }));
    }

    /// What of a result is taken down: as the server said it, whatever its caller is shown.
    pub(super) async fn captured_result(
        &self,
        server: &ServerName,
        result: &Fragment,
        labelled: &Concealed,
    ) -> Option<Excerpt> {
        let capture = self.capture.filter(|capture| capture.results)?;
        Some(self.excerpt(server, result, labelled, capture.size).await)
    }

    /// What is long is looked at beside the threads that serve clients.
    async fn excerpt(
        &self,
        server: &ServerName,
        said: &Fragment,
        labelled: &Concealed,
        most: usize,
    ) -> Excerpt {
        let (bytes, most_work) = (said.value().span().len(), self.limits.inspection_work);
        let text = if bytes < self.limits.inspected_inline {
            let budget = Budget::of(bytes, most_work);
            self.policy.recordable(server, said.value(), labelled, &budget)
        } else {
            let (policy, name) = (Arc::clone(&self.policy), server.clone());
            let (said, labelled) = (said.clone(), labelled.clone());
            let look =
                move |budget: &Budget| policy.recordable(&name, said.value(), &labelled, budget);
            let looked = self.tasks.offload().run(server.as_str(), bytes, most_work, look).await;
            looked.unwrap_or_default()
        };
        text.map_or_else(Excerpt::withheld, |text| Excerpt::of(&text, most))
    }
}
