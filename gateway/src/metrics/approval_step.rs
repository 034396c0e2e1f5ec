//! What happens to the question whether a call may be made.

/// A step in the life of an approval, in metrics and in `approval` records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalStep {
    /// The question was put.
    Asked,
    /// A person approved the call.
    Approved,
    /// A person denied the call.
    Denied,
    /// Nobody answered in time, or the approval was not used in time.
    Expired,
    /// Another configuration took over before the approval was used.
    Withdrawn,
}

impl ApprovalStep {
    /// All steps, in the order of their counters.
    pub const ALL: [Self; 5] =
        [Self::Asked, Self::Approved, Self::Denied, Self::Expired, Self::Withdrawn];

    /// The name in metrics and records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}
