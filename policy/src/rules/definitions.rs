//! Settings for how findings in definitions are treated.

use detection::clean::Cleaning;
use detection::inspect::{AcceptedDetectors, Certainty, Detector, Finding};
use policy_core::subject::mode::{FindingTreatment, Mode};
use schemars::JsonSchema;
use serde::Deserialize;

/// How findings in the strings of a definition are treated: `enforce` withholds the definition, `strip` removes the
/// finding and shows the rest, `audit` records it, `off` ignores it.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DefinitionPolicy {
    /// Characters that are invisible, or that reorder visible ones. Default `enforce`.
    pub hidden_characters: FindingTreatment,
    /// Text that disguises its content: letters of mixed scripts or in unusual shapes, terminal control sequences,
    /// text hidden in variation selectors. Default `enforce`; not `strip`.
    pub disguised_text: FindingTreatment,
    /// Text that contains instructions to a model; what is only likely to is treated as `likelyFindings` says.
    /// Default `enforce`; not `strip`.
    pub planted_instructions: FindingTreatment,
    /// Names that a server uses twice, which withholds both, and names outside the specified alphabet, which are only
    /// `likelyFindings`. Default `enforce`; not `strip`.
    pub tool_names: FindingTreatment,
    /// HTML comments, and markup that loads or runs content. Default `strip`.
    pub active_markup: FindingTreatment,
    /// Keys, tokens and passwords. Default `strip`, which replaces them.
    pub secrets: FindingTreatment,
    /// URLs of internal or loopback addresses. Default `audit`.
    pub internal_urls: FindingTreatment,
    /// Strings that are too long for a reviewer to read, or random. Default `audit`; not `strip`.
    pub oversized_text: FindingTreatment,
    /// Findings that are only likely, of the detectors that are set to `enforce`: what may be instructions by its words, and
    /// names outside the specified alphabet. Default `audit`, so that no honest definition is hidden for them.
    pub likely_findings: Mode,
    /// Write scopes in the definition of a tool that claims to be read-only (`readOnlyHint`). Default `enforce`; not
    /// `strip`.
    pub write_scopes: FindingTreatment,
}

impl Default for DefinitionPolicy {
    fn default() -> Self {
        Self {
            hidden_characters: FindingTreatment::Enforce,
            disguised_text: FindingTreatment::Enforce,
            planted_instructions: FindingTreatment::Enforce,
            tool_names: FindingTreatment::Enforce,
            active_markup: FindingTreatment::Strip,
            secrets: FindingTreatment::Strip,
            internal_urls: FindingTreatment::Audit,
            oversized_text: FindingTreatment::Audit,
            likely_findings: Mode::Audit,
            write_scopes: FindingTreatment::Enforce,
        }
    }
}

impl DefinitionPolicy {
    /// Settings that ignore all findings.
    #[must_use]
    pub const fn off() -> Self {
        Self {
            hidden_characters: FindingTreatment::Off,
            disguised_text: FindingTreatment::Off,
            planted_instructions: FindingTreatment::Off,
            tool_names: FindingTreatment::Off,
            active_markup: FindingTreatment::Off,
            secrets: FindingTreatment::Off,
            internal_urls: FindingTreatment::Off,
            oversized_text: FindingTreatment::Off,
            likely_findings: Mode::Off,
            write_scopes: FindingTreatment::Off,
        }
    }

    /// How `finding` is treated: as the findings of its detector, unless it is only likely.
    #[must_use]
    pub const fn treatment_of(&self, finding: &Finding) -> FindingTreatment {
        match (self.treatment(finding.detector), finding.certainty) {
            (FindingTreatment::Enforce, Certainty::Likely) => match self.likely_findings {
                Mode::Enforce => FindingTreatment::Enforce,
                Mode::Audit => FindingTreatment::Audit,
                Mode::Off => FindingTreatment::Off,
            },
            (treatment, _) => treatment,
        }
    }

    /// How certain findings of `detector` are treated.
    #[must_use]
    pub const fn treatment(&self, detector: Detector) -> FindingTreatment {
        match detector {
            Detector::HiddenCharacters => self.hidden_characters,
            Detector::DisguisedText => self.disguised_text,
            Detector::ActiveMarkup => self.active_markup,
            Detector::Secrets => self.secrets,
            Detector::InternalUrls => self.internal_urls,
            Detector::OversizedText => self.oversized_text,
            Detector::WriteScopes => self.write_scopes,
            Detector::PlantedInstructions => self.planted_instructions,
            // The URI is the name of a resource.
            Detector::ToolNames | Detector::ResourceUris => self.tool_names,
            // These are decided where their facts are known.
            Detector::Pins | Detector::Shadowing | Detector::Registry => FindingTreatment::Off,
            // A definition that was not inspected completely must not be used.
            Detector::InspectionBudget => FindingTreatment::Enforce,
            // These detectors apply to calls and results.
            Detector::Identifiers
            | Detector::Contacts
            | Detector::Placeholders
            | Detector::Links
            | Detector::Canaries
            | Detector::CarriedData
            | Detector::SensitiveFields
            | Detector::MediaTypes
            | Detector::ResultSize
            | Detector::Guardrail
            | Detector::InputSchema
            | Detector::Constraints
            | Detector::OutputSchema
            | Detector::ServerRequests
            | Detector::Flow
            | Detector::Honeytokens
            | Detector::Decoys
            | Detector::Apps
            | Detector::Webhooks
            | Detector::SkillEntries
            | Detector::SkillFiles
            | Detector::ToolDirections => FindingTreatment::Off,
        }
    }

    /// The members set to `strip` whose findings cannot be removed.
    pub(crate) fn misused(&self) -> impl Iterator<Item = &'static str> {
        let members = [
            ("disguisedText", self.disguised_text),
            ("plantedInstructions", self.planted_instructions),
            ("toolNames", self.tool_names),
            ("oversizedText", self.oversized_text),
            ("writeScopes", self.write_scopes),
        ];
        members
            .into_iter()
            .filter(|(_, done)| *done == FindingTreatment::Strip)
            .map(|(name, _)| name)
    }

    /// What is removed from definitions in which the findings of `excused` are accepted.
    pub(crate) fn cleaning(&self, excused: AcceptedDetectors) -> Cleaning {
        let strips = |detector| {
            self.treatment(detector) == FindingTreatment::Strip && !excused.names(detector)
        };
        Cleaning {
            hidden: strips(Detector::HiddenCharacters),
            markup: strips(Detector::ActiveMarkup),
            secrets: strips(Detector::Secrets),
            addresses: strips(Detector::InternalUrls),
        }
    }
}
