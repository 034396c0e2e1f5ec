//! Errors of access tokens, and the metrics labels of the checks that failed.

use super::DpopError;
use crate::crypto::jose::JoseError;
use crate::metrics::credential_check::CredentialCheck;

/// The reason why an access token is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It does not have the syntax of a token.
    #[error("the credential is not a token")]
    Shape,
    /// It is not a well-formed JWT, or its signature is invalid.
    #[error(transparent)]
    Jose(JoseError),
    /// Its issuer may not use its algorithm.
    #[error("the algorithm is not allowed for this issuer")]
    Algorithm,
    /// Its issuer is not configured.
    #[error("the issuer is not configured")]
    Issuer,
    /// Its issuer is configured, but not accepted on this route.
    #[error("the issuer is not accepted on this route")]
    IssuerOfRoute,
    /// Its issuer does not have the key that signed it.
    #[error("the issuer has no key with this `kid`")]
    Key,
    /// Its `typ` is not that of an access token.
    #[error("`typ` is not that of an access token")]
    Kind,
    /// It has claims that only ID tokens have.
    #[error("the token is an ID token, not an access token")]
    IdToken,
    /// It is valid, but not an access token.
    #[error("the token is not an access token, by its `typ`, `token_use` or `token_type`")]
    Use,
    /// A claim is missing or malformed.
    #[error(transparent)]
    Claims(ClaimError),
    /// Its audience is not this resource, or not this resource alone.
    #[error("the audience (`aud`) is not this resource")]
    Audience,
    /// Its `exp` has passed by more than the tolerance for clock skew.
    #[error("the token has expired (`exp`)")]
    Expired,
    /// It is not valid yet.
    #[error("the token is not valid yet (`nbf`)")]
    Early,
    /// Its lifetime is longer than allowed.
    #[error("the lifetime exceeds `maxLifetime` of the issuer")]
    Lifetime,
    /// Its issuer reports it as inactive.
    #[error("the issuer reports the token as inactive")]
    Inactive,
    /// It is bound to another certificate than that of the connection.
    #[error("the token is bound to another certificate")]
    Certificate,
    /// It has an unsupported confirmation, or lacks a required one.
    #[error("`cnf` is missing or not supported")]
    Confirmation,
    /// The proof of possession is missing, or was presented without need.
    #[error("proof of possession is missing, or was presented for an unbound token")]
    Proof,
    /// The DPoP proof is not accepted.
    #[error(transparent)]
    Dpop(DpopError),
    /// The DPoP proof needs a nonce of the gateway.
    #[error("the DPoP proof needs a nonce")]
    Nonce,
    /// It is not sender-constrained, which the route requires.
    #[error("the token is not sender-constrained, which the route requires")]
    Unbound,
    /// The body differs from the signed one.
    #[error("the body differs from the signed one")]
    Body,
    /// The keys or the introspection endpoint of its issuer are unavailable.
    #[error("the keys or the introspection endpoint of the issuer are unavailable")]
    Unavailable,
    /// No more proofs can be remembered.
    #[error("the replay cache for proofs is full")]
    Busy,
}

/// The claim that is missing or malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// `exp`, `nbf`, `iat` or `jti` has the wrong type.
    #[error("`exp`, `nbf`, `iat` or `jti` is of the wrong type")]
    Times,
    /// It has no `exp`.
    #[error("`exp` is missing")]
    Expiry,
    /// It has no `iat`.
    #[error("`iat` is missing, which only `acceptUntypedTokens` tokens may lack")]
    Issued,
    /// It has no `jti`.
    #[error("`jti` is missing, which only `acceptUntypedTokens` tokens may lack")]
    Id,
    /// It has no valid subject.
    #[error("the subject is missing, at `claims.subject` or in `sub`")]
    Subject,
    /// It has no valid client id.
    #[error("the client is missing, at `claims.client` or in `client_id` or `azp`")]
    Client,
    /// The claim that marks service clients has the wrong type.
    #[error("the claim at `serviceTokens.claim` is not a string")]
    Service,
    /// Its groups are malformed, or too many.
    #[error("the claim at `claims.groups` is not a list of at most 512 names")]
    Groups,
    /// Its groups are not in the token.
    #[error(
        "the groups are not in the token: there were too many, and it refers to another source"
    )]
    GroupsElsewhere,
    /// Its roles are malformed, or too many.
    #[error("the claim at `claims.roles` is not a list of at most 512 names")]
    Roles,
    /// Its chain of actors is malformed, or too long.
    #[error("`act` is malformed, or has more than five actors")]
    Actors,
    /// Its scopes are malformed, or too many.
    #[error("the scopes are neither a string with single spaces nor a list of at most 512 scopes")]
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
