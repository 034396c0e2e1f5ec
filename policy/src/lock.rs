//! What was approved, and what waits to be: the content of a lockfile.

use std::collections::BTreeMap;

use crate::json::Fragment;
use crate::kind::Kind;
use crate::pin::Digest;

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
    /// All of it.
    pub definition: Fragment,
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

    /// The digest of all that is approved.
    #[must_use]
    pub fn set(&self) -> Digest {
        let server = self.server.iter().map(|version| ("", version));
        let offers = self.offers.iter().flat_map(|((_, name), versions)| {
            versions.iter().map(move |version| (&**name, version))
        });
        let approved = server.chain(offers).filter(|(_, one)| one.state == State::Approved);
        Digest::of_set(approved.map(|(name, version)| (name, version.digest)))
    }
}

/// What is known of all servers, by name.
#[derive(Clone, Debug, Default)]
pub struct Lock {
    /// The servers.
    pub servers: BTreeMap<Box<str>, Locked>,
}
