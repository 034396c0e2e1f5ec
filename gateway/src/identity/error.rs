//! Errors of access tokens, and the metrics labels of the checks that failed.

use super::DpopError;
use crate::crypto::jose::JoseError;
use crate::metrics::credential_check::CredentialCheck;

/// The reason why an access token is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It does not have the syntax of a token.
    #[error("not a token")]
    Shape,
    /// It is not a well-formed JWT, or its signature is invalid.
    #[error(transparent)]
    Jose(JoseError),
    /// Its issuer may not use its algorithm.
    #[error("signed with an algorithm that its issuer may not use")]
    Algorithm,
    /// Its issuer is not configured.
    #[error("not of an issuer that is configured here")]
    Issuer,
    /// Its issuer is configured, but not accepted on this route.
    #[error("not of an issuer that the route believes")]
    IssuerOfRoute,
    /// Its issuer does not have the key that signed it.
    #[error("signed with a key its issuer does not have")]
    Key,
    /// Its `typ` is not that of an access token.
    #[error("not an access token by its type")]
    Kind,
    /// It has claims that only ID tokens have.
    #[error("an ID token and not an access token")]
    IdToken,
    /// It is valid, but not an access token.
    #[error("not an access token by `typ`, `token_use` or `token_type` in it")]
    Use,
    /// A claim is missing or malformed.
    #[error(transparent)]
    Claims(ClaimError),
    /// Its audience is not this resource, or not this resource alone.
    #[error("not for this resource")]
    Audience,
    /// Its `exp` has passed by more than the tolerance for clock skew.
    #[error("its `exp` has passed")]
    Expired,
    /// It is not valid yet.
    #[error("not good yet")]
    Early,
    /// Its lifetime is longer than allowed.
    #[error("good for longer than `maxLifetime` of its issuer allows")]
    Lifetime,
    /// Its issuer reports it as inactive.
    #[error("its issuer does not know it")]
    Inactive,
    /// It is bound to another certificate than that of the connection.
    #[error("bound to another certificate")]
    Certificate,
    /// It has an unsupported confirmation, or lacks a required one.
    #[error("bound by a `cnf` that is missing or not understood")]
    Confirmation,
    /// The proof of possession is missing, or was presented without need.
    #[error("not proved to be the caller's")]
    Proof,
    /// The DPoP proof is not accepted.
    #[error(transparent)]
    Dpop(DpopError),
    /// The DPoP proof needs a nonce of the gateway.
    #[error("the proof needs a nonce")]
    Nonce,
    /// It is not sender-constrained, which the route requires.
    #[error("not bound to a key, which is asked for here")]
    Unbound,
    /// The body differs from the signed one.
    #[error("the body is not the one that was signed")]
    Body,
    /// The keys or the introspection endpoint of its issuer are unavailable.
    #[error("its issuer cannot be asked")]
    Unavailable,
    /// No more proofs can be remembered.
    #[error("too many proofs at once")]
    Busy,
}

/// The claim that is missing or malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// `exp`, `nbf`, `iat` or `jti` has the wrong type.
    #[error("`exp`, `nbf`, `iat` or `jti` is of the wrong type")]
    Times,
    /// It has no `exp`.
    #[error("it has no `exp`")]
    Expiry,
    /// It has no `iat`.
    #[error("it has no `iat`, which only `acceptUntypedTokens` tokens may lack")]
    Issued,
    /// It has no `jti`.
    #[error("it has no `jti`, which only `acceptUntypedTokens` tokens may lack")]
    Id,
    /// It has no valid subject.
    #[error("it does not name whom it is about, at `claims.subject` or in `sub`")]
    Subject,
    /// It has no valid client id.
    #[error("it names no client, at `claims.client` or in `client_id` or `azp`")]
    Client,
    /// The claim that marks service clients has the wrong type.
    #[error("what stands at `serviceTokens.claim` is not a text")]
    Service,
    /// Its groups are malformed, or too many.
    #[error("the groups at `claims.groups` are no list of at most 512 names")]
    Groups,
    /// Its groups are not in the token.
    #[error("its groups are not in it: it had too many of them, and says where to ask")]
    GroupsElsewhere,
    /// Its roles are malformed, or too many.
    #[error("the roles at `claims.roles` are no list of at most 512 names")]
    Roles,
    /// Its chain of actors is malformed, or too long.
    #[error("its `act` is not understood, or has more than five in it")]
    Actors,
    /// Its scopes are malformed, or too many.
    #[error("the scopes are no text with single spaces and no list of at most 512 scopes")]
    Scopes,
}

impl ClaimError {
    const fn detail(self) -> CredentialCheck {
        match self {
            Self::Times => CredentialCheck::ClaimType,
            Self::Expiry => CredentialCheck::ExpMissing,
            Self::Issued => CredentialCheck::IatMissing,
            Self::Id => CredentialCheck::JtiMissing,
            Self::Subject => CredentialCheck::SubMissing,
            Self::Client => CredentialCheck::ClientIdMissing,
            Self::Service => CredentialCheck::Service,
            Self::Groups => CredentialCheck::Groups,
            Self::GroupsElsewhere => CredentialCheck::GroupsElsewhere,
            Self::Roles => CredentialCheck::Roles,
            Self::Actors => CredentialCheck::Act,
            Self::Scopes => CredentialCheck::Scopes,
        }
    }
}

impl TokenError {
    /// The check that the token failed, as a metrics label.
    #[must_use]
    pub const fn detail(&self) -> CredentialCheck {
        match self {
            Self::Shape => CredentialCheck::Form,
            Self::Jose(error) => match error {
                JoseError::Long | JoseError::Parts | JoseError::Base64 | JoseError::Json(_) => {
                    CredentialCheck::Form
                }
                JoseError::Header => CredentialCheck::Header,
                JoseError::Algorithm => CredentialCheck::Algorithm,
                JoseError::Signature => CredentialCheck::Signature,
                JoseError::Claim(_) | JoseError::Differs(_) => CredentialCheck::ReadersDiffer,
            },
            Self::Algorithm => CredentialCheck::Algorithm,
            Self::Issuer => CredentialCheck::Issuer,
            Self::IssuerOfRoute => CredentialCheck::IssuerOfRoute,
            Self::Key => CredentialCheck::KeyUnknown,
            Self::Kind => CredentialCheck::Typ,
            Self::IdToken => CredentialCheck::IdToken,
            Self::Use => CredentialCheck::TokenUse,
            Self::Claims(claim) => claim.detail(),
            Self::Audience => CredentialCheck::Audience,
            Self::Expired => CredentialCheck::Expired,
            Self::Early => CredentialCheck::NotYetValid,
            Self::Lifetime => CredentialCheck::Lifetime,
            Self::Inactive => CredentialCheck::Inactive,
            Self::Certificate => CredentialCheck::Certificate,
            Self::Confirmation => CredentialCheck::Cnf,
            Self::Proof => CredentialCheck::Proof,
            Self::Dpop(error) => match error {
                DpopError::Shape => CredentialCheck::DpopForm,
                DpopError::Differs(_) => CredentialCheck::ReadersDiffer,
                DpopError::Other => CredentialCheck::DpopOther,
                DpopError::Time => CredentialCheck::DpopTime,
                DpopError::Used => CredentialCheck::DpopUsed,
                DpopError::Nonce => CredentialCheck::DpopNonce,
                DpopError::Full => CredentialCheck::Busy,
            },
            Self::Nonce => CredentialCheck::DpopNonce,
            Self::Unbound => CredentialCheck::Unbound,
            Self::Body => CredentialCheck::Body,
            Self::Unavailable => CredentialCheck::Unavailable,
            Self::Busy => CredentialCheck::Busy,
        }
    }
}
