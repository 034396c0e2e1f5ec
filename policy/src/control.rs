//! What is checked, and what was: so that a control that is configured and does not run is noticed.

/// One thing that is checked. Each is one point of decision in the code, and notes there that it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Control {
    /// Whether a listener answers to the host, and the page may call (C05).
    Door,
    /// Who calls (C02).
    Authentication,
    /// Whether a message is exactly one message, and says the same in its headers (C06, C07).
    Message,
    /// Whether a session is the caller's own (C17).
    Session,
    /// What rules say (C08).
    Rules,
    /// What was revoked (C32).
    Revocation,
    /// Whether a definition was approved (C10).
    Pins,
    /// What detectors find in definitions (C12).
    Definitions,
    /// What could be taken for something else (C11).
    Shadowing,
    /// What we know about a tool ourselves (C22).
    Registry,
    /// Whether arguments fit the definition (C09).
    InputSchema,
    /// What arguments may be beyond that (C09).
    Constraints,
    /// What detectors find in what is sent (C14).
    Arguments,
    /// What detectors find in what a server says (C13, C14).
    Results,
    /// Whether a result fits the definition (C13).
    OutputSchema,
    /// How often a caller may call (C16).
    Rates,
    /// What those outside say who are asked (C13).
    Guardrails,
}

impl Control {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Door,
        Self::Authentication,
        Self::Message,
        Self::Session,
        Self::Rules,
        Self::Revocation,
        Self::Pins,
        Self::Definitions,
        Self::Shadowing,
        Self::Registry,
        Self::InputSchema,
        Self::Constraints,
        Self::Arguments,
        Self::Results,
        Self::OutputSchema,
        Self::Rates,
        Self::Guardrails,
    ];

    /// Its name in metrics, in the configuration and in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Door => "door",
            Self::Authentication => "authentication",
            Self::Message => "message",
            Self::Session => "session",
            Self::Rules => "rules",
            Self::Revocation => "revocation",
            Self::Pins => "pins",
            Self::Definitions => "definitions",
            Self::Shadowing => "shadowing",
            Self::Registry => "registry",
            Self::InputSchema => "inputSchema",
            Self::Constraints => "constraints",
            Self::Arguments => "arguments",
            Self::Results => "results",
            Self::OutputSchema => "outputSchema",
            Self::Rates => "rates",
            Self::Guardrails => "guardrails",
        }
    }

    const fn bit(self) -> u32 {
        1 << (self as u32)
    }
}

/// The controls that ran for one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran(u32);

impl Ran {
    /// This one did.
    pub const fn note(&mut self, control: Control) {
        self.0 |= control.bit();
    }

    /// These did as well.
    pub const fn join(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// These, and no others.
    #[must_use]
    pub fn of(controls: &[Control]) -> Self {
        controls.iter().fold(Self::default(), |mut ran, control| {
            ran.note(*control);
            ran
        })
    }

    /// Whether this one did.
    #[must_use]
    pub const fn has(self, control: Control) -> bool {
        self.0 & control.bit() != 0
    }

    /// The set as a number: one bit for each control that is in it.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The set that has this number.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// All that did.
    pub fn iter(self) -> impl Iterator<Item = Control> {
        Control::ALL.into_iter().filter(move |control| self.has(*control))
    }
}

#[cfg(test)]
mod tests {
    use super::{Control, Ran};

    #[test]
    fn every_control_has_a_place_of_its_own() {
        for (n, control) in Control::ALL.into_iter().enumerate() {
            assert_eq!(control as usize, n);
            let ran = Ran::of(&[control]);
            assert_eq!(ran.iter().collect::<Vec<_>>(), [control]);
        }
        assert_eq!(Ran::of(&Control::ALL).iter().count(), Control::ALL.len());
    }
}
