//! Who is asking. Built by the gateway's identity layer, only read here.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::name::{ClientId, GroupName, PrincipalId, RoleName, Scope};

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
    /// What else its credential says of it.
    pub claims: Claims,
}

/// What a verified credential says of a caller besides its id and its groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claims {
    /// Who vouches for the caller: an issuer, as the operator names it.
    pub issuer: Option<Box<str>>,
    /// The caller as its issuer names it.
    pub subject: Option<Box<str>>,
    /// The client the caller uses.
    pub client: Option<ClientId>,
    /// Who acts for the caller, the nearest first (RFC 8693, section 4.1).
    pub actors: Vec<Box<str>>,
    /// Its roles.
    pub roles: BTreeSet<RoleName>,
    /// What the credential is good for, with everything that is implied by it.
    pub scopes: BTreeSet<Scope>,
    /// The name in the certificate of the connection.
    pub certificate: Option<Box<str>>,
    /// Every name in that certificate that counts: those which its trust anchors may vouch for.
    pub names: Arc<[Box<str>]>,
    /// Whether the caller has proved that the credential is its own.
    pub proof: Proof,
    /// The digest of the key it proved that with.
    pub thumbprint: Option<Box<str>>,
    /// The id of the token.
    pub token: Option<Box<str>>,
    /// The key of the principal, where it is made of more than its id; see [`Principal::bound`].
    key: Option<Box<str>>,
}

/// How a caller has proved that its credential is its own and was not copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// It has not: whoever holds the credential may use it.
    #[default]
    None,
    /// By the certificate of its connection (RFC 8705).
    Certificate,
    /// By a signature for each request (RFC 9449).
    Dpop,
}

impl Proof {
    /// How it is called in conditions and records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Certificate => "certificate",
            Self::Dpop => "dpop",
        }
    }
}

/// Which proof is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Wanted {
    /// Any.
    Any,
    /// The certificate of the connection.
    Certificate,
    /// A signature for each request.
    Dpop,
}

impl Wanted {
    /// Whether `proof` is one.
    #[must_use]
    pub const fn is_met_by(self, proof: Proof) -> bool {
        matches!(
            (self, proof),
            (Self::Any, Proof::Certificate | Proof::Dpop)
                | (Self::Certificate, Proof::Certificate)
                | (Self::Dpop, Proof::Dpop)
        )
    }
}

impl Principal {
    /// A caller of whom nothing else is known.
    #[must_use]
    pub fn new(id: PrincipalId, groups: BTreeSet<GroupName>) -> Self {
        Self { id, groups, claims: Claims::default() }
    }

    /// The same caller, its key made of its id, the client it uses and what it proved itself with.
    #[must_use]
    pub fn bound(mut self) -> Self {
        let Claims { client, thumbprint, .. } = &self.claims;
        if client.is_some() || thumbprint.is_some() {
            let client = client.as_ref().map_or("", ClientId::as_str);
            // No part has a control character in it, so no two callers have the same key.
            let thumbprint = thumbprint.as_deref().unwrap_or_default();
            self.claims.key = Some(format!("{}\0{client}\0{thumbprint}", self.id).into());
        }
        self
    }

    /// What tells it from every other caller: its id and, where they are known, the client it uses
    /// and the key it has proved its credential with. What one of them was given another cannot use.
    #[must_use]
    pub fn key(&self) -> &str {
        self.claims.key.as_deref().unwrap_or(self.id.as_str())
    }
}

/// Whom a rule speaks of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// Every authenticated caller.
    Anyone,
    /// The members of a group.
    Group(GroupName),
    /// Those who have a role.
    Role(RoleName),
    /// Those who use a client.
    Client(ClientId),
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
            Self::Role(role) => principal.claims.roles.contains(role),
            Self::Client(client) => principal.claims.client.as_ref() == Some(client),
            Self::Principal(id) => principal.id == *id,
        }
    }

    /// Whether everyone `other` means is surely meant here too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        *self == Self::Anyone || self == other
    }
}
