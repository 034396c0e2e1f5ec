//! What a detector of values finds in a text: of which class it is, and where it stands.

use crate::inspect::Detector;

/// What class of data it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Secret,
    Identifier,
    Contact,
    /// A value that is planted so that whoever carries it away is seen.
    Canary,
    /// A value that another server gave to the same caller.
    Carried,
    /// A member that is labelled.
    Field,
}

impl Class {
    pub(super) const fn detector(self) -> Detector {
        match self {
            Self::Secret => Detector::Secrets,
            Self::Identifier => Detector::Identifiers,
            Self::Contact => Detector::Contacts,
            Self::Canary => Detector::Canaries,
            Self::Carried => Detector::CarriedData,
            Self::Field => Detector::SensitiveFields,
        }
    }
}

/// A stretch of a text that is something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) class: Class,
    /// What, by its stable name.
    pub(super) rule: &'static str,
    pub(super) from: usize,
    pub(super) end: usize,
}

impl Found {
    pub(super) const fn new(class: Class, rule: &'static str, from: usize, end: usize) -> Self {
        Self { class, rule, from, end }
    }

    /// The same of a text that begins at `start`.
    pub(super) const fn behind(self, start: usize) -> Self {
        Self { from: self.from + start, end: self.end + start, ..self }
    }
}
