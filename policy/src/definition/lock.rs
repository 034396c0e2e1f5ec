//! The content of a lockfile: definitions that are approved, pending or revoked.

use std::collections::BTreeMap;

use detection::inspect::Detector;
use json::Fragment;
use policy_core::subject::kind::ItemKind;

use crate::definition::alike::EquivalenceDigest;
use crate::definition::pin::{Digest, DigestSubject};

/// Approval state of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ApprovalState {
    /// Proposed, but not yet approved.
    Pending,
    /// Approved, and therefore usable.
    Approved,
    /// The approval was withdrawn.
    Revoked,
}

impl ApprovalState {
    /// Name in the lockfile.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Revoked => "revoked",
        }
    }
}

/// A finding of a detector that was accepted as a false positive. It applies only to the definition with the digest
/// it is stored beside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedFinding {
    /// The detector that reported it. INVARIANT: its findings may be accepted ([`Detector::unacceptable`]).
    pub finding: Detector,
    /// The person who accepted it.
    pub by: Box<str>,
    /// Time of acceptance, in RFC 3339 format.
    pub at: Box<str>,
    /// Reason for accepting it.
    pub reason: Box<str>,
}

impl AcceptedFinding {
    /// The digest of the exception, for the definition with the digest `definition`.
    #[must_use]
    pub fn digest(&self, definition: Digest) -> Digest {
        let definition = definition.to_string();
        let members = [
            ("at", &*self.at),
            ("by", &*self.by),
            ("definition", &*definition),
            ("finding", self.finding.name()),
            ("reason", &*self.reason),
        ];
        Digest::of_texts(DigestSubject::Exception, &members)
    }
}

/// What an evaluation of a tool's definition by examples came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EvaluationResult {
    /// Every threshold was reached.
    Passed,
    /// A threshold was not reached, or a change made the definition worse.
    Failed,
}

impl EvaluationResult {
    /// Name in the lockfile.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
        }
    }
}

/// An evaluation of the definition that it is stored beside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedEvaluation {
    /// What it came to.
    pub result: EvaluationResult,
    /// The digest of its inputs, thresholds and result, as `portcullis eval` prints it: `sha256:` and 64 hexadecimal
    /// digits.
    pub digest: Box<str>,
    /// Time when it was recorded, in RFC 3339 format.
    pub at: Box<str>,
}

impl RecordedEvaluation {
    /// The digest of the record, for the definition with the digest `definition`.
    #[must_use]
    pub fn digest(&self, definition: Digest) -> Digest {
        let definition = definition.to_string();
        let members = [
            ("at", &*self.at),
            ("definition", &*definition),
            ("digest", &*self.digest),
            ("result", self.result.as_str()),
        ];
        Digest::of_texts(DigestSubject::Evaluation, &members)
    }
}

/// One version of a definition. Several can be locked at once while servers are upgraded.
#[derive(Clone, Debug)]
pub struct LockedVersion {
    /// Digest of the version. INVARIANT: the digest of `definition`.
    pub digest: Digest,
    /// Approval state of the version.
    pub state: ApprovalState,
    /// The person who set the state.
    pub by: Option<Box<str>>,
    /// Time when the state was set, in RFC 3339 format.
    pub at: Option<Box<str>>,
    /// Reason for the state, if one was given.
    pub reason: Option<Box<str>>,
    /// Accepted findings. INVARIANT: empty unless the version is approved.
    pub exceptions: Vec<AcceptedFinding>,
    /// The recorded evaluation of the version. INVARIANT: `None` unless it is the definition of a tool.
    pub evaluation: Option<RecordedEvaluation>,
    /// The complete definition as JSON.
    pub definition: Fragment,
    /// Digest of the definition for comparison regardless of order, computed on first use.
    pub alike: EquivalenceDigest,
}

impl LockedVersion {
    /// A version without author, time, reason, exceptions or evaluation. INVARIANT: `digest` is that of `definition`.
    #[must_use]
    pub fn new(digest: Digest, state: ApprovalState, definition: Fragment) -> Self {
        Self {
            digest,
            state,
            by: None,
            at: None,
            reason: None,
            exceptions: Vec::new(),
            evaluation: None,
            definition,
            alike: EquivalenceDigest::default(),
        }
    }
}

/// The locked definitions of one server.
#[derive(Clone, Debug, Default)]
pub struct LockedServer {
    /// Required identity of the server. `None`: any.
    pub identity: Option<Box<str>>,
    /// Versions of what the server states about itself.
    pub server: Vec<LockedVersion>,
    /// Versions of the server's tools, prompts, resources and templates.
    pub offers: BTreeMap<(ItemKind, Box<str>), Vec<LockedVersion>>,
}

impl LockedServer {
    /// The versions of `name`; empty if there are none.
    #[must_use]
    pub fn versions(&self, kind: ItemKind, name: &str) -> &[LockedVersion] {
        self.offers.get(&(kind, Box::from(name))).map_or(&[], Vec::as_slice)
    }

    /// The digest of all approved versions, their exceptions and their evaluations.
    #[must_use]
    pub fn set(&self) -> Digest {
        let server = self.server.iter().map(|version| ("", version));
        let offers = self.offers.iter().flat_map(|((_, name), versions)| {
            versions.iter().map(move |version| (&**name, version))
        });
        let approved = server.chain(offers).filter(|(_, one)| one.state == ApprovalState::Approved);
        let members = approved.flat_map(|(name, version)| {
            let exceptions = version.exceptions.iter().map(|one| one.digest(version.digest));
            let evaluation = version.evaluation.as_ref().map(|one| one.digest(version.digest));
            let digests = std::iter::once(version.digest).chain(exceptions).chain(evaluation);
            digests.map(move |digest| (name, digest))
        });
        Digest::of_set(members)
    }
}

/// The content of a lockfile, by server.
#[derive(Clone, Debug, Default)]
pub struct Lockfile {
    /// Locked definitions of each server, by its name.
    pub servers: BTreeMap<Box<str>, LockedServer>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use detection::inspect::Detector;
    use json::{Document, Fragment, JsonBounds};

    use super::{
        AcceptedFinding, ApprovalState, EvaluationResult, ItemKind, LockedServer, LockedVersion,
        RecordedEvaluation,
    };
    use crate::definition::pin::{Digest, DigestSubject};

    fn version(name: &str, state: ApprovalState) -> LockedVersion {
        let text = format!(r#"{{"name":"{name}"}}"#);
        let document = Document::parse(text.into(), &JsonBounds::MESSAGE).unwrap();
        let definition = Fragment::whole(Arc::new(document));
        let digest = Digest::of(DigestSubject::Offer(ItemKind::Tool), definition.value()).unwrap();
        LockedVersion::new(digest, state, definition)
    }

    fn locked(version: LockedVersion) -> LockedServer {
        let offers = [((ItemKind::Tool, "add".into()), vec![version])].into();
        LockedServer { offers, ..LockedServer::default() }
    }

    #[test]
    fn the_digest_of_a_server_changes_with_everything_that_somebody_approved() {
        let approved = || version("add", ApprovalState::Approved);
        let exception = |reason: &str| AcceptedFinding {
            finding: Detector::Secrets,
            by: "ana".into(),
            at: "2026-01-01T00:00:00Z".into(),
            reason: reason.into(),
        };
        let evaluated = |result| {
            let evaluation =
                RecordedEvaluation { result, digest: "sha256:0".into(), at: "2026".into() };
            LockedVersion { evaluation: Some(evaluation), ..approved() }
        };
        let sets: Vec<_> = [
            approved(),
            version("other", ApprovalState::Approved),
            LockedVersion { exceptions: vec![exception("a")], ..approved() },
            LockedVersion { exceptions: vec![exception("b")], ..approved() },
            evaluated(EvaluationResult::Passed),
            evaluated(EvaluationResult::Failed),
        ]
        .map(|version| locked(version).set())
        .into();
        for (n, set) in sets.iter().enumerate() {
            assert!(!sets[..n].contains(set), "{n}");
        }
        // What is pending or revoked does not count.
        let none = LockedServer::default().set();
        for state in [ApprovalState::Pending, ApprovalState::Revoked] {
            assert_eq!(locked(version("add", state)).set(), none);
        }
        assert_eq!(locked(approved()).versions(ItemKind::Tool, "add").len(), 1);
        assert!(locked(approved()).versions(ItemKind::Prompt, "add").is_empty());
    }

    #[test]
    fn states_and_results_are_read_as_they_are_written() {
        for state in [ApprovalState::Pending, ApprovalState::Approved, ApprovalState::Revoked] {
            let read: ApprovalState = serde_json::from_value(state.as_str().into()).unwrap();
            assert_eq!(read, state);
        }
        for result in [EvaluationResult::Passed, EvaluationResult::Failed] {
            let read: EvaluationResult = serde_json::from_value(result.as_str().into()).unwrap();
            assert_eq!(read, result);
        }
    }
}
