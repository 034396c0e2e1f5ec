//! What the policy says becomes of something that is found: for those who see whether it does.

use super::Policy;
use crate::content::{Direction, Handling};
use crate::control::Control;
use crate::inspect::Detector;
use crate::mode::{Mode, Treatment};
use crate::name::ServerName;
use crate::shadow::Likeness;

/// What becomes of something that is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is stopped, taken out or replaced.
    Stopped,
    /// It passes and is on record.
    Recorded,
    /// It is not looked for.
    Ignored,
}

impl Policy {
    /// What becomes of what `detector` finds where `control` asks it, about `server`; of what a
    /// control finds that has no detectors, if `detector` is its own.
    #[must_use]
    pub fn fate(&self, control: Control, detector: Detector, server: &ServerName) -> Fate {
        let profile = self.contents.of(server);
        let handled = |direction| {
            let handlings = match direction {
                Direction::Result => &profile.results,
                Direction::Argument => &profile.arguments,
            };
            match handlings.of(detector, direction, false) {
                Handling::Off => Fate::Ignored,
                // It is shown, with a word about it.
                Handling::Audit | Handling::Annotate | Handling::Wrap => Fate::Recorded,
                Handling::Strip | Handling::Defang | Handling::Redact | Handling::Block => {
                    Fate::Stopped
                }
            }
        };
        let by_mode = |mode| match mode {
            Mode::Enforce => Fate::Stopped,
            Mode::Audit => Fate::Recorded,
            Mode::Off => Fate::Ignored,
        };
        match control {
            Control::Pins => by_mode(self.pins.load().mode),
            Control::Shadowing => by_mode(self.shadowing.of(Likeness::Reserved)),
            Control::InputSchema => by_mode(profile.input_schema),
            Control::OutputSchema => by_mode(profile.output_schema),
            Control::Definitions => match self.definitions.treatment(detector) {
                Treatment::Enforce | Treatment::Strip => Fate::Stopped,
                Treatment::Audit => Fate::Recorded,
                Treatment::Off => Fate::Ignored,
            },
            Control::Arguments => handled(Direction::Argument),
            Control::Results => handled(Direction::Result),
            // These have no mode: what is asked there is always acted upon.
            Control::Door
            | Control::Authentication
            | Control::Message
            | Control::Session
            | Control::Rules
            | Control::Revocation
            | Control::Registry
            | Control::Constraints
            | Control::Rates
            | Control::Guardrails => Fate::Stopped,
        }
    }
}
