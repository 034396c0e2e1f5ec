//! What came of asking a service that helps to rank tools, in metrics and records.

/// What came of asking a judge or a service for embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionOutcome {
    /// The service gave a usable answer.
    Answered,
    /// A judge answered that no candidate fits.
    NoneFits,
    /// The answer to the same question is still known.
    Cached,
    /// The text may not be sent, or could not be inspected.
    Content,
    /// The question is longer than `maxPrompt`.
    PromptLength,
    /// As many questions are under way as may be, in total or of this caller.
    Busy,
    /// The caller has caused as many questions as it may in a time.
    Rate,
    /// The service keeps failing, and is left alone for a time.
    CircuitOpen,
    /// There was no answer in time.
    Timeout,
    /// The service could not be reached, or the connection broke off.
    Connection,
    /// The answer has another HTTP status than 200.
    Status,
    /// The answer is too long.
    AnswerLength,
    /// The answer is not JSON, or has not the form that was asked for.
    AnswerForm,
    /// The answer names a candidate that there is not.
    UnknownNumber,
    /// The answer names a candidate twice.
    RepeatedNumber,
}

impl SelectionOutcome {
    /// All outcomes, in the order of their counters.
    pub const ALL: [Self; 15] = [
        Self::Answered,
        Self::NoneFits,
        Self::Cached,
        Self::Content,
        Self::PromptLength,
        Self::Busy,
        Self::Rate,
        Self::CircuitOpen,
        Self::Timeout,
        Self::Connection,
        Self::Status,
        Self::AnswerLength,
        Self::AnswerForm,
        Self::UnknownNumber,
        Self::RepeatedNumber,
    ];

    /// The name in metrics and records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::NoneFits => "none-fits",
            Self::Cached => "cached",
            Self::Content => "content",
            Self::PromptLength => "prompt-length",
            Self::Busy => "busy",
            Self::Rate => "rate",
            Self::CircuitOpen => "circuit-open",
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Status => "status",
            Self::AnswerLength => "answer-length",
            Self::AnswerForm => "answer-form",
            Self::UnknownNumber => "unknown-number",
            Self::RepeatedNumber => "repeated-number",
        }
    }

    /// Whether the service was not asked, or not reached, so that another question would have no answer either.
    #[must_use]
    pub const fn is_of_network(self) -> bool {
        matches!(self, Self::Timeout | Self::Connection | Self::CircuitOpen | Self::Busy)
    }

    /// Whether it says that the service itself fails. The form of an answer does not: a definition of a hostile server can
    /// make a model answer badly, and must not turn the judge off for others.
    #[must_use]
    pub const fn is_of_service(self) -> bool {
        matches!(self, Self::Timeout | Self::Connection | Self::Status)
    }
}
