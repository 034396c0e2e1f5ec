//! Why a token is not accepted, and which check that was.

use super::ProofError;
use crate::crypto::jose::JoseError;
use crate::metrics::credential_check::Detail;

/// Why a token is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is not written as a token is.
    #[error("not a token")]
    Shape,
    /// It cannot be read, or is not signed as it should be.
    #[error(transparent)]
    Jose(JoseError),
    /// Its issuer may not sign like this.
    #[error("signed with an algorithm that its issuer may not use")]
    Algorithm,
    /// Nobody who is known here has issued it.
    #[error("not of an issuer that is configured here")]
    Issuer,
    /// Its issuer is known, but not believed on this route.
    #[error("not of an issuer that the route believes")]
    IssuerOfRoute,
    /// Its issuer has no such key.
    #[error("signed with a key its issuer does not have")]
    Key,
    /// It is a token for something else.
    #[error("not an access token by its type")]
    Kind,
    /// It has what only ID tokens have.
    #[error("an ID token and not an access token")]
    IdToken,
    /// It is signed or active, and of another sort.
    #[error("not an access token by `typ`, `token_use` or `token_type` in it")]
    Use,
    /// Something it says is missing, of the wrong type or no name.
    #[error(transparent)]
    Claims(ClaimError),
    /// It is for somebody else.
    #[error("not for this resource")]
    Audience,
    /// It has ended.
    #[error("its `exp` has passed")]
    Expired,
    /// It has not begun.
    #[error("not good yet")]
    Early,
    /// It is good for longer than is accepted.
    #[error("good for longer than `maxLifetime` of its issuer allows")]
    Lifetime,
    /// Its issuer says that it is not good.
    #[error("its issuer does not know it")]
    Inactive,
    /// It is bound to another certificate than that of the connection.
    #[error("bound to another certificate")]
    Certificate,
    /// What has to be proved is not understood.
    #[error("bound by a `cnf` that is missing or not understood")]
    Confirmation,
    /// What has to be proved was not proved.
    #[error("not proved to be the caller's")]
    Proof,
    /// The proof is not accepted.
    #[error(transparent)]
    Dpop(ProofError),
    /// The proof needs a nonce of ours.
    #[error("the proof needs a nonce")]
    Nonce,
    /// It is bound to nothing, where it has to be.
    #[error("not bound to a key, which is asked for here")]
    Unbound,
    /// The body is another than the one that was signed.
    #[error("the body is not the one that was signed")]
    Body,
    /// The issuer cannot be asked.
    #[error("its issuer cannot be asked")]
    Unavailable,
    /// No more proofs can be remembered.
    #[error("too many proofs at once")]
    Busy,
}

/// What a token says that is not as it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// `exp`, `nbf`, `iat` or `jti`.
    #[error("`exp`, `nbf`, `iat` or `jti` is of the wrong type")]
    Times,
    /// No end.
    #[error("it has no `exp`")]
    Expiry,
    /// No beginning.
    #[error("it has no `iat`, which only `untyped` tokens may lack")]
    Issued,
    /// No id.
    #[error("it has no `jti`, which only `untyped` tokens may lack")]
    Id,
    /// Nobody that it is about.
    #[error("it does not name whom it is about, at `claims.subject` or in `sub`")]
    Subject,
    /// No client.
    #[error("it names no client, at `claims.client` or in `client_id` or `azp`")]
    Client,
    /// Whether a client acts for itself.
    #[error("what stands at `service.claim` is not a text")]
    Service,
    /// The groups.
    #[error("the groups at `claims.groups` are no list of at most 512 names")]
    Groups,
    /// The groups, which are not in the token.
    #[error("its groups are not in it: it had too many of them, and says where to ask")]
    GroupsElsewhere,
    /// The roles.
    #[error("the roles at `claims.roles` are no list of at most 512 names")]
    Roles,
    /// Who acts for whom.
    #[error("its `act` is not understood, or has more than five in it")]
    Actors,
    /// The scopes.
    #[error("the scopes are no text with single spaces and no list of at most 512 scopes")]
    Scopes,
}

impl ClaimError {
    const fn detail(self) -> Detail {
        match self {
            Self::Times => Detail::ClaimType,
            Self::Expiry => Detail::ExpMissing,
            Self::Issued => Detail::IatMissing,
            Self::Id => Detail::JtiMissing,
            Self::Subject => Detail::SubMissing,
            Self::Client => Detail::ClientIdMissing,
            Self::Service => Detail::Service,
            Self::Groups => Detail::Groups,
            Self::GroupsElsewhere => Detail::GroupsElsewhere,
            Self::Roles => Detail::Roles,
            Self::Actors => Detail::Act,
            Self::Scopes => Detail::Scopes,
        }
    }
}

impl TokenError {
    /// Which check the token did not pass.
    #[must_use]
    pub const fn detail(&self) -> Detail {
        match self {
            Self::Shape => Detail::Form,
            Self::Jose(error) => match error {
                JoseError::Long | JoseError::Parts | JoseError::Base64 | JoseError::Json(_) => {
                    Detail::Form
                }
                JoseError::Header => Detail::Header,
                JoseError::Algorithm => Detail::Algorithm,
                JoseError::Signature => Detail::Signature,
            },
            Self::Algorithm => Detail::Algorithm,
            Self::Issuer => Detail::Issuer,
            Self::IssuerOfRoute => Detail::IssuerOfRoute,
            Self::Key => Detail::KeyUnknown,
            Self::Kind => Detail::Typ,
            Self::IdToken => Detail::IdToken,
            Self::Use => Detail::TokenUse,
            Self::Claims(claim) => claim.detail(),
            Self::Audience => Detail::Audience,
            Self::Expired => Detail::Expired,
            Self::Early => Detail::NotYetValid,
            Self::Lifetime => Detail::Lifetime,
            Self::Inactive => Detail::Inactive,
            Self::Certificate => Detail::Certificate,
            Self::Confirmation => Detail::Cnf,
            Self::Proof => Detail::Proof,
            Self::Dpop(error) => match error {
                ProofError::Shape => Detail::DpopForm,
                ProofError::Other => Detail::DpopOther,
                ProofError::Time => Detail::DpopTime,
                ProofError::Used => Detail::DpopUsed,
                ProofError::Nonce => Detail::DpopNonce,
                ProofError::Full => Detail::Busy,
            },
            Self::Nonce => Detail::DpopNonce,
            Self::Unbound => Detail::Unbound,
            Self::Body => Detail::Body,
            Self::Unavailable => Detail::Unavailable,
            Self::Busy => Detail::Busy,
        }
    }
}
