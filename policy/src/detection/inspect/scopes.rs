//! Finds the OAuth scopes that a tool requests.
//!
//! MCP has no member for them; servers put them into `securitySchemes`, `_meta` and members of their
//! own. The schemas of arguments and results are skipped, because a scope there is not one of the tool.

use super::{Finding, KEPT};
use crate::json::Value;
use crate::json::pointer::escaped;
use crate::subject::scope;

/// Members of a definition that describe arguments and results.
const SCHEMAS: [&str; 2] = ["inputSchema", "outputSchema"];

/// Adds a finding for each place of a definition that names a write scope.
pub(super) fn find(definition: Value<'_>, findings: &mut Vec<Finding>) {
    let most = findings.len() + KEPT;
    let mut at = String::new();
    for (name, member) in definition.members() {
        if !SCHEMAS.contains(&&*name) {
            within(&name, member, &mut at, most, findings);
        }
    }
}

/// Searches the member `name`, which stands at `at`, while there are fewer than `most` findings: each finding
/// copies its place, which can be long.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
fn within(name: &str, value: Value<'_>, at: &mut String, most: usize, findings: &mut Vec<Finding>) {
    if findings.len() >= most {
        return;
    }
    let length = at.len();
    at.push('/');
    at.push_str(&escaped(name));
    if writes(name, value) {
        findings.push(Finding::write_scope(at.clone()));
    }
    for (name, member) in value.members() {
        within(&name, member, at, most, findings);
    }
    for (n, item) in value.items().enumerate() {
        within(&n.to_string(), item, at, most, findings);
    }
    at.truncate(length);
}

/// Whether a member names a write scope: in a list of scopes, or in the text of a challenge.
fn writes(name: &str, value: Value<'_>) -> bool {
    lists(name) && scope::of_value(value).iter().any(|one| scope::writes(one))
        || value
            .as_str()
            .filter(|text| is_challenge(text))
            .is_some_and(|text| scope::of_challenge(&text).iter().any(|one| scope::writes(one)))
}

/// Whether a text is a challenge (RFC 9110, section 11.6.1) that can request scopes.
fn is_challenge(text: &str) -> bool {
    let scheme = text.split_ascii_whitespace().next().unwrap_or_default();
    ["Bearer", "DPoP"].iter().any(|known| known.eq_ignore_ascii_case(scheme))
}

/// Whether a member of this name lists scopes.
fn lists(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.ends_with("scope") || lower.ends_with("scopes")
}

#[cfg(test)]
mod tests {
    use crate::definition::offer::{CatalogItem, ItemKind};
    use crate::detection::inspect::Detector;
    use serde_json::{Value, json};

    fn places(more: &Value) -> Vec<String> {
        let mut tool = json!({ "name": "read_mail", "inputSchema": { "type": "object" } });
        for (name, member) in more.as_object().unwrap() {
            tool[name] = member.clone();
        }
        let offer = CatalogItem::for_tests(ItemKind::Tool, &tool.to_string());
        let scopes = offer.findings().iter().filter(|one| one.detector == Detector::WriteScopes);
        scopes.map(|finding| finding.at.clone()).collect()
    }

    #[test]
    fn a_tool_that_says_it_only_reads_needs_no_scope_that_writes() {
        let reads = json!({ "readOnlyHint": true });
        for (more, at) in [
            (
                json!({ "securitySchemes": [{ "type": "oauth2", "scopes": ["mail.read", "mail.send"] }] }),
                "/securitySchemes/0/scopes",
            ),
            (
                json!({ "securitySchemes": { "o": { "flows": { "implicit": { "scopes": { "files:write": "x" } } } } } }),
                "/securitySchemes/o/flows/implicit/scopes",
            ),
            (
                json!({ "_meta": { "example.com/requiredScopes": "files:read repo" } }),
                "/_meta/example.com~1requiredScopes",
            ),
            (json!({ "_meta": { "auth": "Bearer scope=\"admin:org\"" } }), "/_meta/auth"),
            (json!({ "scope": "files:*" }), "/scope"),
        ] {
            let mut claimed = more.clone();
            claimed["annotations"] = reads.clone();
            assert_eq!(places(&claimed), [at], "{more}");
            assert!(places(&more).is_empty(), "{more}");
        }
        for more in [
            json!({ "securitySchemes": [{ "type": "oauth2", "scopes": ["mail.read"] }] }),
            json!({ "inputSchema": { "properties": { "scope": { "enum": ["read", "write"] } } } }),
            json!({ "description": "Reads the scope of a project; scope=write is another tool's." }),
        ] {
            let mut claimed = more.clone();
            claimed["annotations"] = reads.clone();
            assert!(places(&claimed).is_empty(), "{more}");
        }
    }

    #[test]
    fn of_many_places_the_first_are_kept() {
        let many: Vec<_> = (0..50).map(|_| json!({ "scope": "write" })).collect();
        let more = json!({ "annotations": { "readOnlyHint": true }, "_meta": { "all": many } });
        let places = places(&more);
        assert_eq!(places.len(), super::KEPT);
        assert_eq!(places.first().unwrap(), "/_meta/all/0/scope");
    }
}
