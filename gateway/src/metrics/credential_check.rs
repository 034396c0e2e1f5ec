//! Which check a credential failed. Operators see it in audit records, metrics and the log at `debug`; the caller
//! must never see it, because it says which part of a forged credential to fix.

/// The check that a credential failed. `docs/reasons.md` lists the codes, which are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CredentialCheck {
    /// The token is not in the JWS compact form: three Base64 parts, of which two are JSON objects.
    Form,
    /// The token's header has a member that is not allowed, or one of the wrong type.
    Header,
    /// The signature algorithm is not accepted, either in general or for this issuer.
    Algorithm,
    /// `iss` is missing or names no configured issuer.
    Issuer,
    /// The issuer is configured, but the route does not accept it.
    IssuerOfRoute,
    /// The `typ` is not that of an access token.
    Typ,
    /// The token has claims that only ID tokens have.
    IdToken,
    /// The token, or its issuer at introspection, says that it is not an access token.
    TokenUse,
    /// The issuer publishes no key with this id.
    KeyUnknown,
    /// The signature is invalid.
    Signature,
    /// The two readers of tokens do not both accept it, or do not read the same.
    ReadersDiffer,
    /// `exp`, `nbf`, `iat` or `jti` is of the wrong type.
    ClaimType,
    /// `exp` is missing from the token.
    ExpMissing,
    /// `iat` is missing although it is required.
    IatMissing,
    /// `jti` is missing although it is required.
    JtiMissing,
    /// The token has expired.
    Expired,
    /// The token is not valid yet.
    NotYetValid,
    /// The token is valid for longer than `maxLifetime`.
    Lifetime,
    /// `cnf` is not understood, or is missing although the token type requires it.
    Cnf,
    /// The claim that names the subject is missing.
    SubMissing,
    /// The claim that names the client is missing.
    ClientIdMissing,
    /// The claim that marks tokens of clients acting for themselves has the wrong type.
    Service,
    /// The groups have the wrong type, are too many, or contain an invalid name.
    Groups,
    /// The groups are not in the token: it refers to another place that has them.
    GroupsElsewhere,
    /// The roles have the wrong type, are too many, or contain an invalid name.
    Roles,
    /// `act` has the wrong type or is too long.
    Act,
    /// The scopes have the wrong type, are too many, or contain an invalid scope.
    Scopes,
    /// The token names no audience, another audience, or an additional one that is not allowed.
    Audience,
    /// The issuer reports the token as inactive.
    Inactive,
    /// The token is bound to a certificate other than that of the connection.
    Certificate,
    /// The token is bound to a key and came without a proof, or came with a proof and is not bound.
    Proof,
    /// The DPoP proof is malformed.
    DpopForm,
    /// The DPoP proof is for another request, token or key.
    DpopOther,
    /// The DPoP proof was made too long ago or lies in the future.
    DpopTime,
    /// The DPoP proof was used before.
    DpopUsed,
    /// The DPoP proof has no valid nonce of the gateway.
    DpopNonce,
    /// The token is not sender-constrained although the route requires that.
    Unbound,
    /// The body does not match the signed one.
    Body,
    /// The issuer cannot be reached, or its keys are not available.
    Unavailable,
    /// The cache of used proofs is full.
    Busy,
}

impl CredentialCheck {
    /// Every variant, in declaration order.
    pub const ALL: [Self; 40] = [
        Self::Form,
        Self::Header,
        Self::Algorithm,
        Self::Issuer,
        Self::IssuerOfRoute,
        Self::Typ,
        Self::IdToken,
        Self::TokenUse,
        Self::KeyUnknown,
        Self::Signature,
        Self::ReadersDiffer,
        Self::ClaimType,
        Self::ExpMissing,
        Self::IatMissing,
        Self::JtiMissing,
        Self::Expired,
        Self::NotYetValid,
        Self::Lifetime,
        Self::Cnf,
        Self::SubMissing,
        Self::ClientIdMissing,
        Self::Service,
        Self::Groups,
        Self::GroupsElsewhere,
        Self::Roles,
        Self::Act,
        Self::Scopes,
        Self::Audience,
        Self::Inactive,
        Self::Certificate,
        Self::Proof,
        Self::DpopForm,
        Self::DpopOther,
        Self::DpopTime,
        Self::DpopUsed,
        Self::DpopNonce,
        Self::Unbound,
        Self::Body,
        Self::Unavailable,
        Self::Busy,
    ];

    /// The stable code of the check.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Form => "form",
            Self::Header => "header",
            Self::Algorithm => "algorithm",
            Self::Issuer => "issuer",
            Self::IssuerOfRoute => "issuer-not-on-route",
            Self::Typ => "typ",
            Self::IdToken => "id-token",
            Self::TokenUse => "token-use",
            Self::KeyUnknown => "key-unknown",
            Self::Signature => "signature",
            Self::ReadersDiffer => "readers-differ",
            Self::ClaimType => "claim-type",
            Self::ExpMissing => "exp-missing",
            Self::IatMissing => "iat-missing",
            Self::JtiMissing => "jti-missing",
            Self::Expired => "expired",
            Self::NotYetValid => "not-yet-valid",
            Self::Lifetime => "lifetime",
            Self::Cnf => "cnf",
            Self::SubMissing => "sub-missing",
            Self::ClientIdMissing => "client-id-missing",
            Self::Service => "service",
            Self::Groups => "groups",
            Self::GroupsElsewhere => "groups-elsewhere",
            Self::Roles => "roles",
            Self::Act => "act",
            Self::Scopes => "scopes",
            Self::Audience => "audience",
            Self::Inactive => "inactive",
            Self::Certificate => "certificate",
            Self::Proof => "proof",
            Self::DpopForm => "dpop-form",
            Self::DpopOther => "dpop-other",
            Self::DpopTime => "dpop-time",
            Self::DpopUsed => "dpop-used",
            Self::DpopNonce => "dpop-nonce",
            Self::Unbound => "unbound",
            Self::Body => "body",
            Self::Unavailable => "unavailable",
            Self::Busy => "busy",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CredentialCheck;
    use std::collections::BTreeSet;

    #[test]
    fn every_check_has_a_code_of_its_own_and_is_explained() {
        let page = include_str!("../../../docs/reasons.md");
        let codes: BTreeSet<_> = CredentialCheck::ALL.iter().map(|detail| detail.code()).collect();
        assert_eq!(codes.len(), CredentialCheck::ALL.len());
        for (place, detail) in CredentialCheck::ALL.into_iter().enumerate() {
            assert_eq!(detail as usize, place, "counters are found by place");
            let code = detail.code();
            assert!(page.contains(&format!("| `{code}` |")), "docs/reasons.md: `{code}`");
        }
    }
}
