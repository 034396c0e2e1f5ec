//! The kinds of decoys, in metrics.

/// What kind of decoy a caller touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecoyKind {
    /// A tool that no server has.
    Tool,
    /// A value that nobody has a reason to send.
    Honeytoken,
}

impl DecoyKind {
    /// All kinds, in the order of their counters.
    pub const ALL: [Self; 2] = [Self::Tool, Self::Honeytoken];

    /// The name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Honeytoken => "honeytoken",
        }
    }
}
