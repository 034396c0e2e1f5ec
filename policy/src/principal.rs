//! Who is asking. Built by the gateway's identity layer, only read here.

use std::collections::BTreeSet;

use crate::name::{GroupName, PrincipalId};

/// An authenticated caller.
///
/// The anonymous caller of a loopback listener is one too: it has an id and groups like any other,
/// so no rule and no code path needs to know it apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Principal {
    /// Stable id from the credential.
    pub id: PrincipalId,
    /// Groups, as configured or as claimed and verified.
    pub groups: BTreeSet<GroupName>,
}

/// Whom a rule speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Every authenticated caller.
    Anyone,
    /// The members of a group.
    Group(GroupName),
    /// One caller.
    Principal(PrincipalId),
}

impl Who {
    /// Whether `principal` is meant.
    #[must_use]
    pub fn is(&self, principal: &Principal) -> bool {
        match self {
            Self::Anyone => true,
            Self::Group(group) => principal.groups.contains(group),
            Self::Principal(id) => principal.id == *id,
        }
    }

    /// Whether everyone `other` means is surely meant here too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        *self == Self::Anyone || self == other
    }
}
