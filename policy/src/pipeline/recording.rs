//! What of a message is written down, where an operator wants contents on record.

use std::collections::BTreeSet;

use super::{Expectation, Policy};
use crate::json::{Bounds, Document, Value};
use crate::labels::{self, Concealed, Part};
use crate::name::ServerName;
use crate::work::Budget;

impl Expectation {
    /// What of the result its caller does not see.
    #[must_use]
    pub const fn hidden(&self) -> &Concealed {
        &self.terms.hidden
    }

    /// Where the result has members that are labelled as sensitive, whoever may see them.
    #[must_use]
    pub const fn labelled(&self) -> &Concealed {
        &self.terms.labelled
    }
}

impl Policy {
    /// Arguments for `server`, or a result of it, as they may be written down: without secrets, what a
    /// person is known by, canaries, and what stands at `labelled`. The same value has the same mark in
    /// every record of this process. `None` where it cannot be made so.
    #[must_use]
    pub fn recordable(
        &self,
        server: &ServerName,
        value: Value<'_>,
        labelled: &Concealed,
        budget: &Budget,
    ) -> Option<String> {
        let mark = |value: &str| self.contents.mark(server, "", value);
        let cut = if labelled.is_empty() {
            None
        } else {
            labels::without(value, Part::Result, labelled, &mark, budget)
        };
        if budget.is_exhausted() {
            return None;
        }
        let Some(cut) = cut else {
            return self.contents.recorded(server, value, &BTreeSet::new(), budget);
        };
        if cut.full {
            return None;
        }
        let document = Document::parse(cut.text.into(), &Bounds::ANSWER).ok()?;
        self.contents.recorded(server, document.root(), &cut.values, budget)
    }
}
