//! The authenticated caller. The gateway's identity layer builds it; the policy only reads it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::subject::name::{ClientId, GroupName, PrincipalId, RoleName, Scope};

/// Prefix of principals for clients that act in their own name. Names of issuers contain no colon, so no user of an
/// issuer has such a name.
pub const SERVICE: &str = "service:";

/// An authenticated caller.
///
/// The anonymous caller of a loopback listener is a principal as well: it has an id and groups like any other, so no
/// rule and no code path has to treat it differently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Principal {
    /// Stable id, taken from the credential.
    pub id: PrincipalId,
    /// Groups, from the configuration or from a verified claim.
    pub groups: BTreeSet<GroupName>,
    /// Further claims of the credential.
    pub claims: Claims,
}

/// What a verified credential states about a caller besides its id and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claims {
    /// The issuer that authenticated the caller, by its name in the configuration.
    pub issuer: Option<Box<str>>,
    /// The subject of the caller at its issuer.
    pub subject: Option<Box<str>>,
    /// The OAuth client that the caller uses.
    pub client: Option<ClientId>,
    /// Actors that act for the caller, the nearest first (RFC 8693, section 4.1).
    pub actors: Vec<Box<str>>,
    /// Roles of the caller.
    pub roles: BTreeSet<RoleName>,
    /// Scopes of the credential, including the implied ones.
    pub scopes: BTreeSet<Scope>,
    /// Name in the client certificate of the connection.
    pub certificate: Option<Box<str>>,
    /// All names of the client certificate that its trust anchors may vouch for, and of the certificate of the proxy that
    /// forwards it. Each of them revokes the caller.
    pub names: Arc<[Box<str>]>,
    /// How the caller has proved possession of the credential.
    pub proof: ProofOfPossession,
    /// Digest of the key that possession was proved with.
    pub thumbprint: Option<Box<str>>,
    /// Id of the token.
    pub token: Option<Box<str>>,
    /// Key of the principal if it consists of more than the id; see [`Principal::bound`].
    key: Option<Box<str>>,
}

/// How a caller has proved possession of its credential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProofOfPossession {
    /// Not at all: the credential is a bearer credential.
    #[default]
    None,
    /// By the client certificate of the connection (RFC 8705).
    Certificate,
    /// By a DPoP signature on each request (RFC 9449).
    Dpop,
}

impl ProofOfPossession {
    /// Name in conditions and audit records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Certificate => "certificate",
            Self::Dpop => "dpop",
        }
    }
}

/// Proof of possession that a rule requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RequiredProof {
    /// Any proof of possession.
    Any,
    /// The client certificate of the connection.
    Certificate,
    /// A DPoP signature on each request.
    Dpop,
}

impl RequiredProof {
    /// Whether `proof` satisfies the requirement.
    #[must_use]
    pub const fn is_met_by(self, proof: ProofOfPossession) -> bool {
        matches!(
            (self, proof),
            (Self::Any, ProofOfPossession::Certificate | ProofOfPossession::Dpop)
                | (Self::Certificate, ProofOfPossession::Certificate)
                | (Self::Dpop, ProofOfPossession::Dpop)
        )
    }
}

impl Principal {
    /// A caller with no claims other than its id and groups.
    #[must_use]
    pub fn new(id: PrincipalId, groups: BTreeSet<GroupName>) -> Self {
        Self { id, groups, claims: Claims::default() }
    }

    /// The same caller with a key of its id, its client and the key it proved possession with.
    #[must_use]
    pub fn bound(mut self) -> Self {
        let Claims { client, thumbprint, .. } = &self.claims;
        if client.is_some() || thumbprint.is_some() {
            let client = client.as_ref().map_or("", ClientId::as_str);
            // No part can contain a control character, so different callers have different keys.
            let thumbprint = thumbprint.as_deref().unwrap_or_default();
            self.claims.key = Some(format!("{}\0{client}\0{thumbprint}", self.id).into());
        }
        self
    }

    /// Whether each [`PrincipalSelector`] selects both or neither. Tokens of one principal may differ in their groups and
    /// roles, and so in what may be shown.
    #[must_use]
    pub fn is_selected_like(&self, other: &Self) -> bool {
        let (own, others) = (&self.claims, &other.claims);
        self.id == other.id
            && self.groups == other.groups
            && own.roles == others.roles
            && own.client == others.client
    }

    /// Whether the credential has every scope that `other`'s has.
    #[must_use]
    pub fn has_scopes_of(&self, other: &Self) -> bool {
        other.claims.scopes.is_subset(&self.claims.scopes)
    }

    /// Distinguishes the principal from all others: its id and, if known, its client and the key it has proved
    /// possession of. Results and sessions of one key are not available to another.
    #[must_use]
    pub fn key(&self) -> &str {
        self.claims.key.as_deref().unwrap_or(self.id.as_str())
    }
}

/// Selects the principals that a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PrincipalSelector {
    /// Every authenticated caller, including the anonymous principal of a loopback listener.
    Anyone,
    /// Members of this group.
    Group(GroupName),
    /// Principals with this role.
    Role(RoleName),
    /// Principals that use this OAuth client.
    Client(ClientId),
    /// The principal with this id.
    Principal(PrincipalId),
}

impl PrincipalSelector {
    /// Whether `principal` is selected.
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

    /// Whether every principal that `other` selects is certainly selected by this one.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        *self == Self::Anyone || self == other
    }
}
