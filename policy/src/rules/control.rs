//! Lists the controls, and records which of them ran, so that a configured control that does not run is noticed.

/// A security control. Each is one decision point in the code, and records there that it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Control {
    /// Whether a listener accepts the `Host` and `Origin` of a request (C05).
    Door,
    /// Authentication of the caller (C02).
    Authentication,
    /// Whether a body is exactly one message, and its headers agree with it (C06, C07).
    Message,
    /// Whether a session belongs to the caller (C17).
    Session,
    /// The access rules (C08).
    Rules,
    /// The list of revocations (C32).
    Revocation,
    /// Whether a definition was approved (C10).
    Pins,
    /// Detectors over definitions (C12).
    Definitions,
    /// Detection of definitions that can be mistaken for others (C11).
    Shadowing,
    /// The operator's registry of tools (C22).
    Registry,
    /// Whether arguments match the input schema (C09).
    InputSchema,
    /// Configured limits on arguments (C09).
    Constraints,
    /// Detectors over arguments (C14).
    Arguments,
    /// Detectors over what a server sends (C13, C14).
    Results,
    /// Whether a result matches the output schema (C13).
    OutputSchema,
    /// Rate limits per caller (C16).
    Rates,
    /// External guardrail services (C13).
    Guardrails,
}

impl Control {
    /// All controls, in the order of their bits.
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

    /// Name in metrics, in the configuration and in reports.
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

/// The set of controls that ran for one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlSet(u32);

impl ControlSet {
    /// Adds `control` to the set.
    pub const fn note(&mut self, control: Control) {
        self.0 |= control.bit();
    }

    /// Adds all controls of `other`.
    pub const fn join(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// The set of exactly these controls.
    #[must_use]
    pub fn of(controls: &[Control]) -> Self {
        controls.iter().fold(Self::default(), |mut ran, control| {
            ran.note(*control);
            ran
        })
    }

    /// Whether `control` is in the set.
    #[must_use]
    pub const fn has(self, control: Control) -> bool {
        self.0 & control.bit() != 0
    }

    /// The set as a bit mask, one bit for each control.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The set with this bit mask.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The controls in the set.
    pub fn iter(self) -> impl Iterator<Item = Control> {
        Control::ALL.into_iter().filter(move |control| self.has(*control))
    }
}

#[cfg(test)]
mod tests {
    use super::{Control, ControlSet};

    #[test]
    fn every_control_has_a_place_of_its_own() {
        for (n, control) in Control::ALL.into_iter().enumerate() {
            assert_eq!(control as usize, n);
            let ran = ControlSet::of(&[control]);
            assert_eq!(ran.iter().collect::<Vec<_>>(), [control]);
        }
        assert_eq!(ControlSet::of(&Control::ALL).iter().count(), Control::ALL.len());
    }
}
