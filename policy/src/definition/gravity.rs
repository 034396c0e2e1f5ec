//! How grave a finding of a detector is to the operator who approves a definition, and what to do about it.

use detection::inspect::{Certainty, Detector, Finding};

use crate::definition::review::Severity;

/// How grave a finding is by default, and advice.
#[must_use]
pub fn gravity(finding: &Finding) -> (Severity, &'static str) {
    match finding.detector {
        Detector::PlantedInstructions if finding.certainty == Certainty::Likely => (
            Severity::Medium,
            "read it before you approve it: the gateway shows it and records the finding, and withholds it with \
             `policy.definitions.likelyFindings: enforce`",
        ),
        Detector::PlantedInstructions => (
            Severity::High,
            "do not approve it before you have read it and asked who wrote it; the gateway withholds it",
        ),
        Detector::HiddenCharacters | Detector::DisguisedText => (
            Severity::High,
            "do not approve it: what it says is not what is seen, and the gateway withholds it",
        ),
        Detector::ToolNames if finding.certainty == Certainty::Likely => {
            (Severity::Low, "some clients may not be able to call it: ask for another name")
        }
        Detector::ToolNames => (
            Severity::Medium,
            "the gateway withholds it: ask for another name, or set `policy.definitions.toolNames`",
        ),
        Detector::ResourceUris => {
            (Severity::Medium, "the gateway withholds it: see `docs/policy.md`, \"Resources\"")
        }
        Detector::ActiveMarkup => {
            (Severity::Medium, "look at it; the gateway takes the markup out and shows the rest")
        }
        Detector::Secrets => (
            Severity::High,
            "tell its owner to revoke it; the gateway replaces it in what is shown",
        ),
        Detector::InternalUrls => (
            Severity::Medium,
            "see whether a client may know the address; `policy.definitions.internalUrls` takes it out",
        ),
        Detector::OversizedText => (Severity::Low, "read it to its end before you approve it"),
        Detector::WriteScopes => (
            Severity::High,
            "do not approve it before its scopes only read, or it says that it changes something; the gateway withholds it",
        ),
        Detector::Identifiers | Detector::Contacts => {
            (Severity::Medium, "see whether a client may see the data of persons that stand in it")
        }
        // These detectors look at lists, pins and messages, not at a single definition.
        Detector::Links
        | Detector::Canaries
        | Detector::CarriedData
        | Detector::SensitiveFields
        | Detector::MediaTypes
        | Detector::ResultSize
        | Detector::Guardrail
        | Detector::Shadowing
        | Detector::Pins
        | Detector::Registry
        | Detector::InputSchema
        | Detector::Constraints
        | Detector::OutputSchema
        | Detector::InspectionBudget
        | Detector::ServerRequests
        | Detector::ToolDirections
        | Detector::Flow
        | Detector::Placeholders
        | Detector::Honeytokens
        | Detector::Decoys
        | Detector::Apps
        | Detector::Webhooks
        | Detector::SkillEntries
        | Detector::SkillFiles => (Severity::Medium, "see `docs/pins.md`"),
    }
}
