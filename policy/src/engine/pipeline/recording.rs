//! Prepares message contents for the audit log, for operators who record them.

use std::collections::BTreeSet;

use super::{Expectation, Policy};
use crate::base::work::WorkBudget;
use crate::detection::labels::{self, ConcealedMembers, LabelledPart};
use crate::json::{Document, JsonBounds, Value};
use crate::subject::name::ServerName;

impl Expectation {
    /// Members of the result that are hidden from the caller.
    #[must_use]
    pub const fn hidden(&self) -> &ConcealedMembers {
        &self.terms.hidden
    }

    /// All members of the result that are labelled as sensitive, including those shown to the caller.
    #[must_use]
    pub const fn labelled(&self) -> &ConcealedMembers {
        &self.terms.labelled
    }
}

impl Policy {
    /// Arguments for `server`, or its result, redacted for the audit log: without secrets, personal data, canaries
    /// and the members in `labelled`. Equal values get equal marks in all records of this process. `None` if the
    /// value cannot be redacted completely.
    #[must_use]
    pub fn recordable(
        &self,
        server: &ServerName,
        value: Value<'_>,
        labelled: &ConcealedMembers,
        budget: &WorkBudget,
    ) -> Option<String> {
        let mark = |value: &str| self.contents.mark(server, "", value);
        let cut = if labelled.is_empty() {
            None
        } else {
            labels::without(value, LabelledPart::Result, labelled, &mark, budget)
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
        let document = Document::parse(cut.text.into(), &JsonBounds::ANSWER).ok()?;
        self.contents.recorded(server, document.root(), &cut.values, budget)
    }
}
