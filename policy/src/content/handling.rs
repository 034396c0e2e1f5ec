//! What is done about what is found, as the policy says it.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::inspect::Detector;

/// What is done about what is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Handling {
    /// It is not looked for.
    Off,
    /// It is recorded.
    Audit,
    /// The text it stands in begins with a line that says so.
    Annotate,
    /// The text it stands in is put between marks that its author cannot write.
    Wrap,
    /// It is taken out.
    Strip,
    /// It is changed so that it is shown and does nothing.
    Defang,
    /// It is replaced by its name and a mark, the same for the same value and caller.
    Redact,
    /// The message is withheld.
    Block,
}

/// In which direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What a server says.
    Result,
    /// What a caller sends.
    Argument,
}

/// What is done about what is found in one direction. What is left out is as the defaults say.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Handlings {
    /// Characters that are not shown, and commands to terminals: `strip` and `annotate` (results
    /// only), `block`, `audit` or `off`. Default `strip` in results, `audit` in arguments.
    hidden_characters: Option<Handling>,
    /// HTML comments and markup that loads, runs or hides something: `strip`, `defang` and `annotate`
    /// (results only), `block`, `audit` or `off`. Default `audit` in results, `off` in arguments.
    active_markup: Option<Handling>,
    /// Links that lead elsewhere than they seem to, and with `linkHosts` all that lead to other
    /// hosts: as `activeMarkup`, and `redact`. Default `audit` in results, `defang` with `linkHosts`;
    /// `off` in arguments.
    links: Option<Handling>,
    /// Keys, tokens and passwords: `redact`, `annotate` (results only), `block`, `audit` or `off`.
    /// Default `redact` in results, `audit` in arguments.
    secrets: Option<Handling>,
    /// Numbers by which states and banks know a person: cards, IBAN, social security and tax numbers;
    /// likewise. Default `redact` in results, `audit` in arguments.
    identifiers: Option<Handling>,
    /// Text that gives orders to whoever reads it: as `secrets`, and `wrap` (results only). Default
    /// `redact` in results, `off` in arguments.
    planted_instructions: Option<Handling>,
    /// Text that directs its reader to a tool of another server, of those that the caller sees: as
    /// `plantedInstructions`. Default `redact` in results, `off` in arguments.
    tool_directions: Option<Handling>,
    /// E-mail addresses, telephone numbers and IP addresses; as `secrets`. Default `audit` in results,
    /// `off` in arguments.
    contacts: Option<Handling>,
    /// The values of `canaries`, which should never be seen: `redact`, `block`, `audit` or `off`.
    /// Default `audit` in results, `block` in arguments.
    canaries: Option<Handling>,
    /// In arguments: secrets and personal data that the same caller got from another server. Likewise.
    /// Default `block`.
    carried_data: Option<Handling>,
    /// In results: what is carried in base64, of a type that `mediaTypes` does not name, or that is
    /// not what its type says: `block`, `audit` or `off`. Default `audit`, `block` with `mediaTypes`.
    media_types: Option<Handling>,
}

/// What is done if nothing is said: in results, there with a list of what may be, and in arguments.
#[rustfmt::skip]
const USUAL: [(Detector, Handling, Handling, Handling); 11] = [
    (Detector::HiddenCharacters, Handling::Strip, Handling::Strip, Handling::Audit),
    (Detector::ActiveMarkup, Handling::Audit, Handling::Audit, Handling::Off),
    (Detector::Links, Handling::Audit, Handling::Defang, Handling::Off),
    (Detector::Secrets, Handling::Redact, Handling::Redact, Handling::Audit),
    (Detector::Identifiers, Handling::Redact, Handling::Redact, Handling::Audit),
    (Detector::PlantedInstructions, Handling::Redact, Handling::Redact, Handling::Off),
    (Detector::ToolDirections, Handling::Redact, Handling::Redact, Handling::Off),
    (Detector::Contacts, Handling::Audit, Handling::Audit, Handling::Off),
    (Detector::Canaries, Handling::Audit, Handling::Audit, Handling::Block),
    (Detector::CarriedData, Handling::Off, Handling::Off, Handling::Block),
    (Detector::MediaTypes, Handling::Audit, Handling::Block, Handling::Off),
];

/// What may be done about what one detector finds, beside `off`, `audit` and `block`.
const fn possible(detector: Detector) -> &'static [Handling] {
    use Handling::{Annotate, Defang, Redact, Strip, Wrap};
    match detector {
        Detector::HiddenCharacters => &[Strip, Annotate],
        Detector::ActiveMarkup => &[Strip, Defang, Annotate],
        Detector::Links => &[Strip, Defang, Redact, Annotate],
        Detector::Secrets | Detector::Identifiers | Detector::Contacts => &[Redact, Annotate],
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
        | Detector::InspectionBudget => &[],
    }
}

impl Handling {
    /// How it is written.
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

    /// What was decided about arguments is what is sent: they are not rewritten, but for values that
    /// may be replaced.
    const fn is_for(self, direction: Direction) -> bool {
        matches!(direction, Direction::Result)
            || matches!(self, Self::Off | Self::Audit | Self::Redact | Self::Block)
    }
}

impl Handlings {
    /// The handlings that are written, with the names of their members.
    const fn all(&self) -> [(&'static str, Detector, Option<Handling>); 11] {
        [
            ("hiddenCharacters", Detector::HiddenCharacters, self.hidden_characters),
            ("activeMarkup", Detector::ActiveMarkup, self.active_markup),
            ("links", Detector::Links, self.links),
            ("secrets", Detector::Secrets, self.secrets),
            ("identifiers", Detector::Identifiers, self.identifiers),
            ("plantedInstructions", Detector::PlantedInstructions, self.planted_instructions),
            ("toolDirections", Detector::ToolDirections, self.tool_directions),
            ("contacts", Detector::Contacts, self.contacts),
            ("canaries", Detector::Canaries, self.canaries),
            ("carriedData", Detector::CarriedData, self.carried_data),
            ("mediaTypes", Detector::MediaTypes, self.media_types),
        ]
    }

    /// What is done about what this one finds; `named` says whether the profile names what may be,
    /// where it can: hosts for links, types for media.
    #[must_use]
    pub fn of(&self, detector: Detector, direction: Direction, named: bool) -> Handling {
        let said = self.all().into_iter().find(|(_, known, _)| *known == detector);
        let Some((_, _, said)) = said else { return Handling::Off };
        said.unwrap_or_else(|| Self::usual(detector, direction, named))
    }

    /// What is done where nothing is said, without a list of what may be: each member as it is written.
    pub fn usual_of(direction: Direction) -> impl Iterator<Item = (&'static str, &'static str)> {
        let all = Self::default().all().into_iter();
        all.map(move |(name, detector, _)| (name, Self::usual(detector, direction, false).name()))
    }

    fn usual(detector: Detector, direction: Direction, named: bool) -> Handling {
        let usual = USUAL.iter().find(|(known, ..)| *known == detector);
        let (_, result, with_list, argument) =
            usual.copied().unwrap_or((detector, Handling::Off, Handling::Off, Handling::Off));
        match direction {
            Direction::Result if named => with_list,
            Direction::Result => result,
            Direction::Argument => argument,
        }
    }

    /// The members that cannot be handled as they say, and how they can.
    pub(crate) fn misused(
        &self,
        direction: Direction,
    ) -> impl Iterator<Item = (&'static str, String)> {
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
