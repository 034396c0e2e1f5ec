//! Compiles the `pins` section: how definitions are checked against the lockfile, and what happens to changed ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use policy::definition::alike::VolatileMembers;
use policy::definition::drift::Risk;
use policy::definition::lock::Lockfile;
use policy::definition::offer::ItemKind;
use policy::definition::pins::{EvaluationNeed, Pins, ResourcePins};
use policy::rules::decision::Mode;

use super::ServerSettings;
use super::compiler::SettingsCompiler;
pub use super::raw::DriftAction;
use super::raw::{RawDrift, RawPinKey, RawPins, RawVolatile};

/// The default name of the lockfile.
const FILE: &str = "portcullis.lock";
/// Maximum volatile values of one definition: more would leave little of it approved.
const VOLATILE: usize = 16;
/// The default interval between background fetches of lists.
const RECHECK: Duration = Duration::from_secs(300);

/// How definitions are checked against the approved ones.
#[derive(Clone, Debug)]
pub struct PinSettings {
    /// Whether definitions that are not approved are withheld, only recorded, or allowed.
    pub mode: Mode,
    /// The path of the lockfile.
    pub file: PathBuf,
    /// Whether the first definition that a server sends is approved, until the gateway stops.
    pub trust_on_first_use: bool,
    /// The interval between background fetches of lists.
    pub recheck: Duration,
    /// The approvers whose signatures the lockfile needs.
    pub approvers: Approvers,
    /// By server, which resources may be read without an approval of their own.
    pub resources: Arc<BTreeMap<Box<str>, ResourcePins>>,
    /// Whether definitions of tools need a recorded evaluation.
    pub evaluation: EvaluationNeed,
    /// Values that may differ in every list.
    pub volatile: Arc<VolatileMembers>,
    /// Whether commands such as `pin approve` can read this configuration.
    pub verbs: ConfigSource,
    drift: RawDrift,
}

/// Whether commands can read the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// The configuration is a file.
    CanRead,
    /// The configuration is built in, so that commands have nothing to change.
    CannotRead,
}

/// The approvers, and how many of them must have signed the lockfile.
#[derive(Clone, Debug, Default)]
pub struct Approvers {
    /// Names and Ed25519 public keys. If empty, the lockfile needs no signature.
    pub keys: Vec<(Box<str>, [u8; 32])>,
    /// The required number of signatures.
    pub needed: usize,
}

impl PinSettings {
    /// The pins for the policy that `lock` gives under these settings. The caller sets the mode.
    #[must_use]
    pub fn approving(&self, lock: Arc<Lockfile>) -> Pins {
        let (resources, volatile) = (Arc::clone(&self.resources), Arc::clone(&self.volatile));
        Pins { lock, resources, volatile, evaluation: self.evaluation, ..Pins::default() }
    }

    /// Adds the `resources` setting of each server.
    #[must_use]
    pub(super) fn of(self, servers: &[ServerSettings]) -> Self {
        let of = |server: &ServerSettings| (server.name.as_str().into(), server.resources);
        Self { resources: Arc::new(servers.iter().map(of).collect()), ..self }
    }

    /// A copy that approves everything.
    #[must_use]
    pub fn off(&self) -> Self {
        Self { mode: Mode::Off, ..self.clone() }
    }

    /// What happens to a change of this class.
    #[must_use]
    pub const fn action(&self, risk: Risk) -> DriftAction {
        let drift = &self.drift;
        match risk {
            Risk::Cosmetic => drift.cosmetic,
            Risk::Narrowing => drift.narrowing,
            Risk::Wording => drift.wording,
            Risk::Other => drift.other,
            Risk::Widening => drift.widening,
            Risk::Parameter => drift.parameter,
            Risk::Capability => drift.capability,
            Risk::Annotation => drift.annotation,
            Risk::Sink => drift.sink,
            Risk::Instruction => drift.instruction,
        }
    }

    /// What happens to a definition that was never proposed.
    #[must_use]
    pub const fn on_new(&self) -> DriftAction {
        self.drift.new
    }

    /// What happens to a definition that alternates between versions.
    #[must_use]
    pub const fn on_inconsistent(&self) -> DriftAction {
        self.drift.inconsistent
    }
}

impl SettingsCompiler<'_> {
    pub(super) fn pins(
        &mut self,
        raw: &RawPins,
        folder: &Path,
        servers: &[ServerSettings],
    ) -> PinSettings {
        let keys: Vec<_> =
            raw.keys.iter().enumerate().map(|(n, key)| self.pin_key(n, key)).collect();
        let keys: Vec<_> = keys.into_iter().flatten().collect();
        let needed = raw.min_approvers.unwrap_or(1);
        if raw.min_approvers.is_some() && !(1..=raw.keys.len()).contains(&needed) {
            let help = "give at least 1, and not more than there are `keys`";
            self.report("/pins/minApprovers", "this can never be met", help);
        }
        if raw.trust_on_first_use && !raw.keys.is_empty() {
            let help = "remove one of the two: what is trusted at first sight is signed by nobody";
            self.report("/pins/trustOnFirstUse", "`keys` ask for signatures", help);
        }
        if raw.trust_on_first_use && raw.require_evaluation {
            let help = "remove one of the two: nothing evaluates what is trusted at first sight";
            self.report(
                "/pins/trustOnFirstUse",
                "`requireEvaluation` would withhold every tool",
                help,
            );
        }
        for (name, action) in [("new", raw.drift.new), ("inconsistent", raw.drift.inconsistent)] {
            if matches!(action, DriftAction::Accept | DriftAction::Alert) {
                let help = "write `hold` or `quarantineServer`; for development there is `trustOnFirstUse`";
                self.report(&format!("/pins/drift/{name}"), "this would approve anything", help);
            }
        }
        let file = folder.join(raw.file.as_deref().unwrap_or(FILE));
        self.uses.files.push(file.clone());
        PinSettings {
            mode: raw.mode,
            file,
            trust_on_first_use: raw.trust_on_first_use,
            recheck: self.time("/pins/recheck", raw.recheck.as_deref()).unwrap_or(RECHECK),
            approvers: Approvers { keys, needed },
            resources: Arc::default(),
            evaluation: match raw.require_evaluation {
                true => EvaluationNeed::Passed,
                false => EvaluationNeed::None,
            },
            volatile: Arc::new(self.volatile(&raw.volatile, servers)),
            verbs: ConfigSource::CanRead,
            drift: raw.drift,
        }
    }

    fn volatile(&mut self, raw: &[RawVolatile], servers: &[ServerSettings]) -> VolatileMembers {
        let mut volatile = VolatileMembers::new();
        for (n, RawVolatile { server, tool, members }) in raw.iter().enumerate() {
            let at = format!("/pins/volatile/{n}");
            if members.is_empty() || members.len() > VOLATILE {
                let message = format!("{} members are named", members.len());
                self.report(&format!("{at}/members"), &message, "name 1 to 16 of them");
            }
            // A server with a problem of its own may be missing here.
            if !servers.is_empty() && !servers.iter().any(|known| known.name.as_str() == server) {
                let help = "name one of `servers`";
                self.report(&format!("{at}/server"), "there is no such server", help);
            }
            for (n, member) in members.iter().enumerate() {
                if let Some(message) = wrong_pointer(member) {
                    let help = "write a JSON Pointer such as `/inputSchema/properties/day/default`";
                    self.report(&format!("{at}/members/{n}"), message, help);
                }
            }
            let place = (server.as_str().into(), ItemKind::Tool, tool.as_str().into());
            let members = members.iter().map(|member| member.as_str().into()).collect();
            if volatile.insert(place, members).is_some() {
                let help = "write all `members` of a tool in one place";
                self.report(&format!("{at}/tool"), "this tool stands here twice", help);
            }
        }
        volatile
    }

    fn pin_key(&mut self, n: usize, raw: &RawPinKey) -> Option<(Box<str>, [u8; 32])> {
        let at = format!("/pins/keys/{n}");
        if raw.name.is_empty() || raw.name.contains(char::is_whitespace) {
            self.report(&format!("{at}/name"), "a name is one word", "rename it");
        }
        let key = STANDARD.decode(&raw.ed25519).ok().and_then(|key| key.try_into().ok());
        if key.is_none() {
            let help = "give 32 bytes in base64, as `portcullis pin key` prints them";
            self.report(&format!("{at}/ed25519"), "this is not a public key", help);
        }
        key.map(|key| (raw.name.as_str().into(), key))
    }
}

/// The problem with a pointer to a volatile value; `None` if it is valid.
fn wrong_pointer(pointer: &str) -> Option<&'static str> {
    if !pointer.starts_with('/') {
        return Some("this is no JSON Pointer to a member");
    }
    // RFC 6901 section 3: a tilde is followed by 0 or 1.
    if pointer.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1'])) {
        return Some("this is no JSON Pointer");
    }
    (pointer == "/name").then_some("a tool is known by its name")
}
