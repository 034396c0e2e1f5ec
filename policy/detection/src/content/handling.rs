//! The handling of findings in contents, as the policy configures it for each detector and direction.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::inspect::Detector;

/// What the gateway does about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Handling {
    /// The detector does not search for it.
    Off,
    /// The finding is recorded in the audit log; the message is unchanged.
    Audit,
    /// A line with the names of the findings is put before the text.
    Annotate,
    /// The text is wrapped in marks that its author cannot forge.
    Wrap,
    /// The match is removed.
    Strip,
    /// The match is changed so that it is shown but has no effect.
    Defang,
    /// The match is replaced by its kind and a mark, which is the same for the same value and caller.
    Redact,
    /// The message is withheld.
    Block,
}

/// Whether a profile lists what is permitted: hosts for links, types for media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermittedList {
    /// It does not.
    Absent,
    /// It does, so that what is not listed can be acted on.
    Given,
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a server to a caller.
    Result,
    /// From a caller to a server.
    Argument,
}

/// What the gateway does about findings in one direction. Detectors that are left out have their defaults.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Handlings {
    /// Invisible characters and terminal escape sequences: `strip` and `annotate` (results only), `block`, `audit` or
    /// `off`. Default `strip` in results, `audit` in arguments.
    hidden_characters: Option<Handling>,
    /// HTML comments and markup that loads, runs or hides something: `strip`, `defang` and `annotate`
    /// (results only), `block`, `audit` or `off`. Default `audit` in results, `off` in arguments.
    active_markup: Option<Handling>,
    /// Links that lead elsewhere than they seem to, and with `linkHosts` all links to other hosts: the values of
    /// `activeMarkup`, and `redact`. Default `audit` in results, `defang` with `linkHosts`;
    /// `off` in arguments.
    links: Option<Handling>,
    /// Keys, tokens and passwords: `redact`, `annotate` (results only), `block`, `audit` or `off`.
    /// Default `redact` in results, `audit` in arguments.
    secrets: Option<Handling>,
    /// Identity and bank numbers of persons (cards, IBAN, social security and tax numbers): the values of `secrets`.
    /// Default `redact` in results, `audit` in arguments.
    identifiers: Option<Handling>,
    /// Text that gives instructions to the model that reads it: the values of `secrets`, and `wrap` (results only).
    /// Default `redact` in results, `off` in arguments.
    planted_instructions: Option<Handling>,
    /// Text that directs the model to a tool of another server, among those that the caller sees: the values of
    /// `plantedInstructions`. Default `redact` in results, `off` in arguments.
    tool_directions: Option<Handling>,
    /// E-mail addresses, telephone numbers and IP addresses: the values of `secrets`. Default `audit` in results,
    /// `off` in arguments.
    contacts: Option<Handling>,
    /// What stands in place of a secret, a card or a telephone number, and is none: examples of documentations, variables,
    /// `xxxx`. The values of `secrets`. Default `off`.
    placeholders: Option<Handling>,
    /// The values of `canaries`, which must never occur in a message: `redact`, `block`, `audit` or `off`.
    /// Default `audit` in results, `block` in arguments.
    canaries: Option<Handling>,
    /// Arguments only: secrets and personal data that the same caller got from another server: `redact`, `block`,
    /// `audit` or `off`. Default `block`.
    carried_data: Option<Handling>,
    /// Results only: data in base64 or a `data:` URI, of a type that `mediaTypes` does not name, or that is not of its
    /// declared type: `block`, `audit` or `off`. Default `audit`, `block` with `mediaTypes`.
    media_types: Option<Handling>,
}

/// The defaults: in results, in results with a list of permitted hosts or types, and in arguments.
#[rustfmt::skip]
const USUAL: [(Detector, Handling, Handling, Handling); 12] = [
    (Detector::HiddenCharacters, Handling::Strip, Handling::Strip, Handling::Audit),
    (Detector::ActiveMarkup, Handling::Audit, Handling::Audit, Handling::Off),
    (Detector::Links, Handling::Audit, Handling::Defang, Handling::Off),
    (Detector::Secrets, Handling::Redact, Handling::Redact, Handling::Audit),
    (Detector::Identifiers, Handling::Redact, Handling::Redact, Handling::Audit),
    (Detector::PlantedInstructions, Handling::Redact, Handling::Redact, Handling::Off),
    (Detector::ToolDirections, Handling::Redact, Handling::Redact, Handling::Off),
    (Detector::Contacts, Handling::Audit, Handling::Audit, Handling::Off),
    (Detector::Placeholders, Handling::Off, Handling::Off, Handling::Off),
    (Detector::Canaries, Handling::Audit, Handling::Audit, Handling::Block),
    (Detector::CarriedData, Handling::Off, Handling::Off, Handling::Block),
    (Detector::MediaTypes, Handling::Audit, Handling::Block, Handling::Off),
];

/// The handlings that a detector supports, beside `off`, `audit` and `block`.
const fn possible(detector: Detector) -> &'static [Handling] {
    use Handling::{Annotate, Defang, Redact, Strip, Wrap};
    match detector {
        Detector::HiddenCharacters => &[Strip, Annotate],
        Detector::ActiveMarkup => &[Strip, Defang, Annotate],
        Detector::Links => &[Strip, Defang, Redact, Annotate],
        Detector::Secrets | Detector::Identifiers | Detector::Contacts | Detector::Placeholders => {
            &[Redact, Annotate]
        }
        Detector::PlantedInstructions | Detector::ToolDirections => &[Redact, Wrap, Annotate],
        Detector::Canaries | Detector::CarriedData => &[Redact],
        Detector::MediaTypes
        | Detector::DisguisedText
        | Detector::ToolNames
        | Detector::ResourceUris
        | Detector::SensitiveFields
        | Detector::ResultSize
        | Detector::Guardrail
        | Detector::InternalUrls
        | Detector::OversizedText
        | Detector::Shadowing
        | Detector::Pins
        | Detector::Registry
        | Detector::InputSchema
        | Detector::Constraints
        | Detector::OutputSchema
        | Detector::ServerRequests
        | Detector::WriteScopes
        | Detector::Flow
        | Detector::Honeytokens
        | Detector::Decoys
        | Detector::Apps
        | Detector::Webhooks
        | Detector::SkillEntries
        | Detector::SkillFiles
        | Detector::InspectionBudget => &[],
    }
}

impl Handling {
    /// The handling where a text gets no note and no fence.
    pub(super) const fn without_note(self) -> Self {
        if matches!(self, Self::Annotate | Self::Wrap) { Self::Audit } else { self }
    }

    /// The handling of what is only likely: nothing of a text is removed that may be honest.
    pub(super) const fn of_likely(self) -> Self {
        if matches!(self, Self::Redact) { Self::Annotate } else { self }
    }

    /// Its name in the configuration.
    const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Audit => "audit",
            Self::Annotate => "annotate",
            Self::Wrap => "wrap",
            Self::Strip => "strip",
            Self::Defang => "defang",
            Self::Redact => "redact",
            Self::Block => "block",
        }
    }

    /// Whether it is supported in a direction. Arguments are sent as they were decided about: they are not rewritten,
    /// except that values may be replaced.
    const fn is_for(self, direction: Direction) -> bool {
        matches!(direction, Direction::Result)
            || matches!(self, Self::Off | Self::Audit | Self::Redact | Self::Block)
    }
}

impl Handlings {
    /// The configured handlings, with the names of their members.
    const fn all(&self) -> [(&'static str, Detector, Option<Handling>); 12] {
        [
            ("hiddenCharacters", Detector::HiddenCharacters, self.hidden_characters),
            ("activeMarkup", Detector::ActiveMarkup, self.active_markup),
            ("links", Detector::Links, self.links),
            ("secrets", Detector::Secrets, self.secrets),
            ("identifiers", Detector::Identifiers, self.identifiers),
            ("plantedInstructions", Detector::PlantedInstructions, self.planted_instructions),
            ("toolDirections", Detector::ToolDirections, self.tool_directions),
            ("contacts", Detector::Contacts, self.contacts),
            ("placeholders", Detector::Placeholders, self.placeholders),
            ("canaries", Detector::Canaries, self.canaries),
            ("carriedData", Detector::CarriedData, self.carried_data),
            ("mediaTypes", Detector::MediaTypes, self.media_types),
        ]
    }

    /// The handling of this detector's findings.
    #[must_use]
    pub fn of(&self, detector: Detector, direction: Direction, list: PermittedList) -> Handling {
        let said = self.all().into_iter().find(|(_, known, _)| *known == detector);
        let Some((_, _, said)) = said else { return Handling::Off };
        said.unwrap_or_else(|| Self::usual(detector, direction, list))
    }

    /// The default handlings without a list of what is permitted, by the name of the member.
    pub fn usual_of(direction: Direction) -> impl Iterator<Item = (&'static str, &'static str)> {
        let all = Self::default().all().into_iter();
        all.map(move |(name, detector, _)| {
            (name, Self::usual(detector, direction, PermittedList::Absent).name())
        })
    }

    fn usual(detector: Detector, direction: Direction, list: PermittedList) -> Handling {
        let usual = USUAL.iter().find(|(known, ..)| *known == detector);
        let (_, result, with_list, argument) =
            usual.copied().unwrap_or((detector, Handling::Off, Handling::Off, Handling::Off));
        match direction {
            Direction::Result if list == PermittedList::Given => with_list,
            Direction::Result => result,
            Direction::Argument => argument,
        }
    }

    /// The members whose handling is not supported here, each with a hint for the operator.
    pub fn misused(&self, direction: Direction) -> impl Iterator<Item = (&'static str, String)> {
        self.all().into_iter().filter_map(move |(name, detector, said)| {
            let said = said?;
            let here = match direction {
                Direction::Result => detector != Detector::CarriedData,
                Direction::Argument => detector != Detector::MediaTypes,
            };
            let more = || possible(detector).iter().filter(|one| here && one.is_for(direction));
            let plain = matches!(said, Handling::Off | Handling::Audit | Handling::Block);
            if here && (plain || more().any(|one| *one == said)) {
                return None;
            }
            if !here {
                return Some((name, "leave it out: it is of the other direction".to_owned()));
            }
            let more: Vec<_> = more().map(|one| format!("`{}`, ", one.name())).collect();
            Some((name, format!("write {}`block`, `audit` or `off`", more.concat())))
        })
    }
}
