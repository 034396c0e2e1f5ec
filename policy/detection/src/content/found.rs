//! A value that a detector found in a text: its class and its range.

use crate::inspect::Detector;

/// The class of a value, which determines its detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueClass {
    Secret,
    Identifier,
    Contact,
    /// A canary, planted so that its disclosure is noticed.
    Canary,
    /// A value that another server gave to the same caller.
    Carried,
    /// A value of a labelled member.
    Field,
    /// What stands in place of a value: an example of a documentation, a variable, `xxxx`.
    Placeholder,
}

impl ValueClass {
    pub(super) const fn detector(self) -> Detector {
        match self {
            Self::Secret => Detector::Secrets,
            Self::Identifier => Detector::Identifiers,
            Self::Contact => Detector::Contacts,
            Self::Canary => Detector::Canaries,
            Self::Carried => Detector::CarriedData,
            Self::Field => Detector::SensitiveFields,
            Self::Placeholder => Detector::Placeholders,
        }
    }
}

/// A range of a text that holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundValue {
    pub(super) class: ValueClass,
    /// The stable name of the rule that matched.
    pub(super) rule: &'static str,
    pub(super) from: usize,
    pub(super) end: usize,
}

impl FoundValue {
    pub(super) const fn new(
        class: ValueClass,
        rule: &'static str,
        from: usize,
        end: usize,
    ) -> Self {
        Self { class, rule, from, end }
    }

    /// This finding with its range moved by `start`, the offset of the text in a longer one.
    pub(super) const fn behind(self, start: usize) -> Self {
        Self { from: self.from + start, end: self.end + start, ..self }
    }
}
