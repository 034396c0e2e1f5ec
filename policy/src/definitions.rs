//! What is done about what is found in definitions.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::clean::Cleaning;
use crate::inspect::{Detector, Excused};
use crate::mode::Treatment;

/// What is done about what is found in the strings of a definition: `enforce` withholds it, `strip` takes
/// it out and shows the rest, `audit` records it, `off` ignores it.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Definitions {
    /// Characters that are not shown, or that change the order of those that are. Default `enforce`.
    pub hidden_characters: Treatment,
    /// Text that is made to look otherwise than it is: letters of mixed scripts or in odd shapes,
    /// terminal commands, text that is hidden in selectors. Default `enforce`; not `strip`.
    pub disguised_text: Treatment,
    /// Text that gives orders to a model. Default `enforce`; not `strip`.
    pub planted_instructions: Treatment,
    /// Names outside the specified alphabet, and names a server gives twice. Default `enforce`; not
    /// `strip`.
    pub tool_names: Treatment,
    /// HTML comments, and markup that loads or runs something. Default `strip`.
    pub active_markup: Treatment,
    /// Keys, tokens and passwords. Default `strip`: they are replaced.
    pub secrets: Treatment,
    /// URLs inside a network or a machine. Default `audit`.
    pub internal_urls: Treatment,
    /// Strings that are longer than anybody reads, or random. Default `audit`; not `strip`.
    pub oversized_text: Treatment,
    /// Scopes that write, in the definition of a tool that says it only reads (`readOnlyHint`). Default
    /// `enforce`; not `strip`.
    pub write_scopes: Treatment,
}

impl Default for Definitions {
    fn default() -> Self {
        Self {
            hidden_characters: Treatment::Enforce,
            disguised_text: Treatment::Enforce,
            planted_instructions: Treatment::Enforce,
            tool_names: Treatment::Enforce,
            active_markup: Treatment::Strip,
            secrets: Treatment::Strip,
            internal_urls: Treatment::Audit,
            oversized_text: Treatment::Audit,
            write_scopes: Treatment::Enforce,
        }
    }
}

impl Definitions {
    /// Nothing is done about anything that is found.
    #[must_use]
    pub const fn off() -> Self {
        Self {
            hidden_characters: Treatment::Off,
            disguised_text: Treatment::Off,
            planted_instructions: Treatment::Off,
            tool_names: Treatment::Off,
            active_markup: Treatment::Off,
            secrets: Treatment::Off,
            internal_urls: Treatment::Off,
            oversized_text: Treatment::Off,
            write_scopes: Treatment::Off,
        }
    }

    /// What is done about what this one finds.
    #[must_use]
    pub const fn treatment(&self, detector: Detector) -> Treatment {
        match detector {
            Detector::HiddenCharacters => self.hidden_characters,
            Detector::DisguisedText => self.disguised_text,
            Detector::ActiveMarkup => self.active_markup,
            Detector::Secrets => self.secrets,
            Detector::InternalUrls => self.internal_urls,
            Detector::OversizedText => self.oversized_text,
            Detector::WriteScopes => self.write_scopes,
            Detector::PlantedInstructions => self.planted_instructions,
            // A URI is the name of a resource.
            Detector::ToolNames | Detector::ResourceUris => self.tool_names,
            // These are asked where the others are known.
            Detector::Pins | Detector::Shadowing | Detector::Registry => Treatment::Off,
            // What was not looked at to its end nobody has approved.
            Detector::InspectionBudget => Treatment::Enforce,
            // These belong to what is said and sent.
            Detector::Identifiers
            | Detector::Contacts
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
            | Detector::ToolDirections => Treatment::Off,
        }
    }

    /// The members that cannot be `strip` and are: nothing could be taken out.
    pub(crate) fn misused(&self) -> impl Iterator<Item = &'static str> {
        let members = [
            ("disguisedText", self.disguised_text),
            ("plantedInstructions", self.planted_instructions),
            ("toolNames", self.tool_names),
            ("oversizedText", self.oversized_text),
            ("writeScopes", self.write_scopes),
        ];
        members.into_iter().filter(|(_, done)| *done == Treatment::Strip).map(|(name, _)| name)
    }

    /// What is taken out of definitions in which `excused` is accepted.
    pub(crate) fn cleaning(&self, excused: Excused) -> Cleaning {
        let strips =
            |detector| self.treatment(detector) == Treatment::Strip && !excused.names(detector);
        Cleaning {
            hidden: strips(Detector::HiddenCharacters),
            markup: strips(Detector::ActiveMarkup),
            secrets: strips(Detector::Secrets),
            addresses: strips(Detector::InternalUrls),
        }
    }
}
