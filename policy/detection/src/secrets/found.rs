//! A value that a detector found in a text: its class and its range.

/// The class of a value, which determines its detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueClass {
    Secret,
    Identifier,
    Contact,
    /// A canary, planted so that its disclosure is noticed.
    Canary,
    /// A honeytoken, by its number in the configuration: nobody has a reason to send it.
    Honeytoken(u16),
    /// A value that another server gave to the same caller.
    Carried,
    /// A value of a labelled member.
    Field,
    /// What stands in place of a value: an example of a documentation, a variable, `xxxx`.
    Placeholder,
}

/// A range of a text that holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundValue {
    pub(crate) class: ValueClass,
    /// The stable name of the rule that matched.
    pub(crate) rule: &'static str,
    pub(crate) from: usize,
    pub(crate) end: usize,
}

impl FoundValue {
    pub(crate) const fn new(
        class: ValueClass,
        rule: &'static str,
        from: usize,
        end: usize,
    ) -> Self {
        Self { class, rule, from, end }
    }

    /// This finding with its range moved by `start`, the offset of the text in a longer one.
    pub(crate) const fn behind(self, start: usize) -> Self {
        Self { from: self.from + start, end: self.end + start, ..self }
    }
}
