//! What was approved, and what waits to be: the content of a lockfile.

use std::collections::BTreeMap;

use crate::alike::Alike;
use crate::inspect::Detector;
use crate::json::Fragment;
use crate::kind::Kind;
use crate::pin::{Digest, Subject};

/// Whether a definition may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Somebody proposes it.
    Pending,
    /// Somebody has approved it.
    Approved,
    /// Somebody has taken the approval back.
    Revoked,
}

impl State {
    /// Its name in the lockfile.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Revoked => "revoked",
        }
    }
}

/// What a detector finds in one definition and somebody has accepted as a false alarm. It holds for the
/// definition with the digest beside which it stands, and for no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Whose finding. INVARIANT: one that may be accepted ([`Detector::unacceptable`]).
    pub finding: Detector,
    /// Who has accepted it.
    pub by: Box<str>,
    /// When, as RFC 3339 writes it.
    pub at: Box<str>,
    /// Why.
    pub reason: Box<str>,
}

impl Exception {
    /// What it is recognised by, beside the definition with the digest `definition`.
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
        Digest::of_texts(Subject::Exception, &members)
    }
}

/// One definition of a thing, of which there may be several while servers are upgraded.
#[derive(Clone, Debug)]
pub struct Version {
    /// What it is recognised by. INVARIANT: it is the digest of the definition.
    pub digest: Digest,
    /// Whether it may be used.
    pub state: State,
    /// Who said so.
    pub by: Option<Box<str>>,
    /// When, as RFC 3339 writes it.
    pub at: Option<Box<str>>,
    /// Why, where somebody has said so.
    pub reason: Option<Box<str>>,
    /// What was accepted in it. INVARIANT: nothing in one that is not approved.
    pub exceptions: Vec<Exception>,
    /// All of it.
    pub definition: Fragment,
    /// What it is like.
    pub alike: Alike,
}

impl Version {
    /// One of which nobody has said anything. INVARIANT: `digest` is that of `definition`.
    #[must_use]
    pub fn new(digest: Digest, state: State, definition: Fragment) -> Self {
        let (by, at, reason, exceptions) = (None, None, None, Vec::new());
        Self { digest, state, by, at, reason, exceptions, definition, alike: Alike::default() }
    }
}

/// What is known of one server.
#[derive(Clone, Debug, Default)]
pub struct Locked {
    /// Who it has to be. `None`: whoever it is.
    pub identity: Option<Box<str>>,
    /// What it says of itself.
    pub server: Vec<Version>,
    /// What it offers.
    pub offers: BTreeMap<(Kind, Box<str>), Vec<Version>>,
}

impl Locked {
    /// What is known of `name`.
    #[must_use]
    pub fn versions(&self, kind: Kind, name: &str) -> &[Version] {
        self.offers.get(&(kind, Box::from(name))).map_or(&[], Vec::as_slice)
    }

    /// The digest of all that is approved, and of what was accepted in it.
    #[must_use]
    pub fn set(&self) -> Digest {
        let server = self.server.iter().map(|version| ("", version));
        let offers = self.offers.iter().flat_map(|((_, name), versions)| {
            versions.iter().map(move |version| (&**name, version))
        });
        let approved = server.chain(offers).filter(|(_, one)| one.state == State::Approved);
        let members = approved.flat_map(|(name, version)| {
            let exceptions = version.exceptions.iter().map(|one| one.digest(version.digest));
            std::iter::once(version.digest).chain(exceptions).map(move |digest| (name, digest))
        });
        Digest::of_set(members)
    }
}

/// What is known of all servers, by name.
#[derive(Clone, Debug, Default)]
pub struct Lock {
    /// The servers.
    pub servers: BTreeMap<Box<str>, Locked>,
}
