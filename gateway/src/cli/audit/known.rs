//! The values of `--event`, `--reason` and `--found` that a log can have. Another value is a mistake, since with it no
//! record would match. Names that earlier versions wrote are accepted as well, but not proposed.

use clap::builder::{PossibleValue, PossibleValuesParser};
use detection::inspect::Detector;
use policy::engine::ask::RefusalReason;

/// The codes of `docs/reasons.md`.
const REASONS: [&str; 130] = [
    "not-granted",
    "forbidden",
    "condition-error",
    "unknown-tool",
    "unknown-prompt",
    "unknown-resource",
    "unknown-template",
    "unknown-skill",
    "skill-file-unknown",
    "method-not-granted",
    "definition-finding",
    "shadowed",
    "not-approved",
    "definition-changed",
    "approval-revoked",
    "definition-removed",
    "definition-inconsistent",
    "definition-not-canonical",
    "server-quarantined",
    "server-identity",
    "evaluation-missing",
    "evaluation-failed",
    "non-canonical-uri",
    "approval-required",
    "approval-denied",
    "approval-timeout",
    "approval-limit",
    "approval-size",
    "approval-changed",
    "approval-interrupted",
    "flow-target",
    "flow-value",
    "flow-confidential",
    "flow-destructive",
    "flow-planner",
    "insufficient-scope",
    "proof-required",
    "arguments",
    "content",
    "skill-changed",
    "skill-file-changed",
    "server-request-not-configured",
    "server-request-secret",
    "server-request-personal-data",
    "server-request-standing-grant",
    "server-request-write-scope",
    "server-request-url",
    "server-request-context",
    "server-request-size",
    "server-request-malformed",
    "server-request-count",
    "server-request-rate",
    "server-request-not-inspected",
    "server-request-planner",
    "app-not-allowed",
    "event-webhook",
    "client-answer",
    "revoked",
    "discovery-name",
    "decoy",
    "host-not-allowed",
    "origin-not-allowed",
    "upgrade-not-supported",
    "credential-missing",
    "credential-refused",
    "credential-revoked",
    "everything-revoked",
    "decoy-locked",
    "token-refused",
    "token-issuer",
    "token-audience",
    "token-time",
    "token-proof",
    "token-unavailable",
    "unknown-route",
    "http-method",
    "overload",
    "server-busy",
    "caller-limit-requests",
    "caller-limit-bodies",
    "caller-limit-rate",
    "caller-limit-records",
    "address-limit",
    "caller-limit-elicitations",
    "caller-limit-sessions",
    "caller-limit-streams",
    "caller-limit-subscriptions",
    "ambiguous-framing",
    "malformed-request",
    "rate-limited",
    "budget-exceeded",
    "repeated-call",
    "discovery-form",
    "discovery-class",
    "gateway-loop",
    "gateway-hops",
    "media-type",
    "not-acceptable",
    "body-length",
    "body-time",
    "body-broken",
    "invalid-json",
    "invalid-message",
    "header-mismatch",
    "unsupported-version",
    "invalid-params",
    "unknown-method",
    "invalid-session",
    "replay-expired",
    "duplicate-id",
    "client-capability",
    "client-input",
    "input-required",
    "audit-unavailable",
    "upstream-connect",
    "circuit-open",
    "upstream-egress",
    "upstream-identity",
    "upstream-credential",
    "upstream-unauthorized",
    "upstream-process",
    "upstream-timeout",
    "upstream-reset",
    "upstream-status",
    "upstream-protocol",
    "upstream-session",
    "upstream-memory-limit",
    "upstream-session-limit",
    "partial",
    "cancelled",
];
/// Former names of reasons.
const FORMER_REASONS: [&str; 70] = [
    "accept",
    "act",
    "ask-context",
    "ask-count",
    "ask-malformed",
    "ask-not-configured",
    "ask-secret",
    "ask-size",
    "ask-standing-grant",
    "ask-unjudged",
    "ask-url",
    "ask-write-scope",
    "audience",
    "audit",
    "body",
    "busy",
    "certificate",
    "client-answer",
    "client-id-missing",
    "cnf",
    "definition",
    "dpop-form",
    "dpop-nonce",
    "dpop-other",
    "dpop-time",
    "expired",
    "form",
    "framing",
    "groups",
    "groups-elsewhere",
    "host",
    "iat-missing",
    "inactive",
    "issuer",
    "issuer-not-on-route",
    "json",
    "jti-missing",
    "key-unknown",
    "lifetime",
    "message",
    "not-yet-valid",
    "origin",
    "params",
    "proof",
    "readers-differ",
    "record",
    "replay",
    "retryAfter",
    "roles",
    "scopes",
    "service",
    "session",
    "share-address",
    "share-bodies",
    "share-parked",
    "share-requests",
    "share-sessions",
    "share-streams",
    "share-subscriptions",
    "signature",
    "token-use",
    "typ",
    "unavailable",
    "unbound",
    "unpinnable",
    "upgrade",
    "upstream-broken",
    "upstream-crowded",
    "upstream-memory",
    "uri",
];
/// The events of `config/audit.schema.json`.
const EVENTS: [&str; 24] = [
    "start",
    "stop",
    "applied",
    "rejected",
    "renamed",
    "opened",
    "retired",
    "checkpoint",
    "gap",
    "probe",
    "intent",
    "exchange",
    "pins",
    "definition",
    "shadowing",
    "revoked",
    "reinstated",
    "approval",
    "sandbox",
    "selftest",
    "refusals",
    "lost",
    "foreign",
    "began",
];
/// Former names of events.
const FORMER_EVENTS: [&str; 1] = ["torn"];
/// How the former reasons begin for which a server's request is refused.
const FORMER_REFUSAL: &str = "ask-";

fn parser(known: Vec<&'static str>, former: Vec<&'static str>) -> PossibleValuesParser {
    let former = former.into_iter().map(|name| PossibleValue::new(name).hide(true));
    PossibleValuesParser::new(known.into_iter().map(PossibleValue::new).chain(former))
}

/// The values of `--event`.
pub(super) fn events() -> PossibleValuesParser {
    parser(EVENTS.to_vec(), FORMER_EVENTS.to_vec())
}

/// The values of `--reason`.
pub(super) fn reasons() -> PossibleValuesParser {
    parser(REASONS.to_vec(), FORMER_REASONS.to_vec())
}

/// The values of `--found`: detectors, and the reasons for which a server's request is refused.
pub(super) fn findings() -> PossibleValuesParser {
    let detectors = Detector::ALL.into_iter().map(Detector::name);
    let former = FORMER_REASONS.into_iter().filter(|code| code.starts_with(FORMER_REFUSAL));
    parser(detectors.chain(RefusalReason::CODES).collect(), former.collect())
}

#[cfg(test)]
mod tests {
    use super::{EVENTS, REASONS};

    #[test]
    fn the_known_reasons_are_those_of_the_documentation() {
        let page = include_str!("../../../../docs/reasons.md");
        let (page, _details) = page.split_once("## Which check a token did not pass").unwrap();
        let tables = page.split("\n\n").filter(|table| table.starts_with("| code |"));
        let rows = tables.flat_map(|table| table.lines().skip(2));
        let codes =
            rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
        assert_eq!(codes.collect::<Vec<_>>(), REASONS);
    }

    #[test]
    fn the_known_events_are_those_of_the_schema() {
        let schema: serde_json::Value =
            include_str!("../../../../config/audit.schema.json").parse().unwrap();
        assert_eq!(schema["properties"]["event"]["enum"], serde_json::json!(EVENTS));
    }
}
