//! Which check a credential did not pass: for the operator, in records, metrics and the log at `debug`. The caller is
//! told none of it, because that would say which part of a forged credential to mend.

/// The check that a credential did not pass. Its code is stable and stands in `docs/reasons.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// It is not written as a token is: three parts of Base64 with a JSON object each.
    Form,
    /// Its header has a member that it must not have, or one of the wrong type.
    Header,
    /// It is signed in a way that is not accepted, at all or of this issuer.
    Algorithm,
    /// Its `iss` is missing, or is no configured issuer.
    Issuer,
    /// Its issuer is configured, but the route does not believe it.
    IssuerOfRoute,
    /// It is not of the type that access tokens are of.
    Typ,
    /// It has members that only ID tokens have.
    IdToken,
    /// It says of itself, or its issuer of it, that it is a token of another sort.
    TokenUse,
    /// Its issuer publishes no such key.
    KeyUnknown,
    /// The signature does not fit.
    Signature,
    /// `exp`, `nbf`, `iat` or `jti` is of the wrong type.
    ClaimType,
    /// It has no `exp`.
    ExpMissing,
    /// It has no `iat`, where that has to be there.
    IatMissing,
    /// It has no `jti`, where that has to be there.
    JtiMissing,
    /// It has ended.
    Expired,
    /// It has not begun.
    NotYetValid,
    /// It is good for longer than `maxLifetime`.
    Lifetime,
    /// Its `cnf` is not understood, or is missing where its type wants one.
    Cnf,
    /// It names nobody that it is about.
    SubMissing,
    /// It names no client.
    ClientIdMissing,
    /// What says whether it is of a client that acts for itself is of the wrong type.
    Service,
    /// Its groups are of the wrong type, are too many, or one is no name.
    Groups,
    /// Its groups are not in it: it says that they are to be had elsewhere.
    GroupsElsewhere,
    /// Its roles are of the wrong type, are too many, or one is no name.
    Roles,
    /// Its `act` is of the wrong type, or too long.
    Act,
    /// Its scopes are of the wrong type, are too many, or one is none.
    Scopes,
    /// It is for another resource, for another one as well, or says not for which.
    Audience,
    /// Its issuer says that it is not active.
    Inactive,
    /// It is bound to another certificate than that of the connection.
    Certificate,
    /// It is bound to a key and came without a proof, or the other way around.
    Proof,
    /// The proof by DPoP is none.
    DpopForm,
    /// The proof by DPoP is of another request, token or key.
    DpopOther,
    /// The proof by DPoP was made at another time.
    DpopTime,
    /// The proof by DPoP was used before.
    DpopUsed,
    /// The proof by DPoP has no nonce of ours.
    DpopNonce,
    /// It is bound to nothing, and the route wants tokens that are.
    Unbound,
    /// The body is another than the one that was signed.
    Body,
    /// Its issuer cannot be asked, or its keys are not known.
    Unavailable,
    /// No more proofs can be remembered.
    Busy,
}

impl Detail {
    /// Every check.
    pub const ALL: [Self; 39] = [
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

    /// Its code.
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
    use super::Detail;
    use std::collections::BTreeSet;

    #[test]
    fn every_check_has_a_code_of_its_own_and_is_explained() {
        let page = include_str!("../../../docs/reasons.md");
        let codes: BTreeSet<_> = Detail::ALL.iter().map(|detail| detail.code()).collect();
        assert_eq!(codes.len(), Detail::ALL.len());
        for (place, detail) in Detail::ALL.into_iter().enumerate() {
            assert_eq!(detail as usize, place, "counters are found by place");
            let code = detail.code();
            assert!(page.contains(&format!("| `{code}` |")), "docs/reasons.md: `{code}`");
        }
    }
}
