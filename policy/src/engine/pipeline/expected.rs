//! Predicts how the policy treats a finding, for the self-test.

use detection::content::{Direction, Handling, PermittedList};
use detection::inspect::Detector;
use policy_core::subject::mode::{FindingTreatment, Mode};
use policy_core::subject::name::ServerName;

use super::{Facts, Policy};
use crate::definition::shadow::Similarity;
use crate::rules::control::Control;

/// How a finding is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedTreatment {
    /// The content is blocked, removed or replaced.
    Stopped,
    /// The content passes and the finding is recorded.
    Recorded,
    /// The detector is off.
    Ignored,
}

impl Policy {
    /// How a finding of `detector` at `control` is treated for `server`. For a control without detectors, `detector`
    /// is the one it reports under.
    #[must_use]
    pub fn fate(
        &self,
        facts: &Facts,
        control: Control,
        detector: Detector,
        server: &ServerName,
    ) -> ExpectedTreatment {
        let profile = self.contents.of(server);
        let handled = |direction| {
            let handlings = match direction {
                Direction::Result => &profile.results,
                Direction::Argument => &profile.arguments,
            };
            match handlings.of(detector, direction, PermittedList::Absent) {
                Handling::Off => ExpectedTreatment::Ignored,
                // The content is shown with an annotation.
                Handling::Audit | Handling::Annotate | Handling::Wrap => {
                    ExpectedTreatment::Recorded
                }
                Handling::Strip | Handling::Defang | Handling::Redact | Handling::Block => {
                    ExpectedTreatment::Stopped
                }
            }
        };
        let by_mode = |mode| match mode {
            Mode::Enforce => ExpectedTreatment::Stopped,
            Mode::Audit => ExpectedTreatment::Recorded,
            Mode::Off => ExpectedTreatment::Ignored,
        };
        match control {
            Control::Pins => by_mode(facts.pins().mode),
            Control::Shadowing => by_mode(self.shadowing.of(Similarity::Reserved)),
            Control::InputSchema => by_mode(profile.input_schema),
            Control::OutputSchema => by_mode(profile.output_schema),
            Control::Definitions => match self.definitions.treatment(detector) {
                FindingTreatment::Enforce | FindingTreatment::Strip => ExpectedTreatment::Stopped,
                FindingTreatment::Audit => ExpectedTreatment::Recorded,
                FindingTreatment::Off => ExpectedTreatment::Ignored,
            },
            Control::Arguments => handled(Direction::Argument),
            Control::Results => handled(Direction::Result),
            // These controls have no mode and always act.
            Control::Door
            | Control::Authentication
            | Control::Message
            | Control::Session
            | Control::Rules
            | Control::Revocation
            | Control::Registry
            | Control::Constraints
            | Control::Rates
            | Control::Guardrails => ExpectedTreatment::Stopped,
        }
    }
}
