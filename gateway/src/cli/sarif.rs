//! Writes findings as SARIF 2.1.0, for code review tools.

use serde_json::{Value, json};

/// One result of a SARIF run.
#[derive(Debug)]
pub(super) struct SarifResult {
    /// Stable identifier of the rule.
    pub(super) rule: &'static str,
    /// SARIF level: `error`, `warning` or `note`.
    pub(super) level: &'static str,
    /// Description of the finding, with advice.
    pub(super) message: String,
    /// Path of the file that the finding is in.
    pub(super) file: String,
    /// Logical location, such as `files/tools/read_file#/description`.
    pub(super) thing: String,
}

/// Formats a SARIF log with one run.
pub(super) fn log(results: &[SarifResult]) -> String {
    let mut rules: Vec<_> = results.iter().map(|result| result.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    let rules: Vec<_> = rules.into_iter().map(|id| json!({ "id": id })).collect();
    let result = |result: &SarifResult| -> Value {
        json!({
            "ruleId": result.rule,
            "level": result.level,
            "message": { "text": result.message },
            "locations": [{
                "physicalLocation": { "artifactLocation": { "uri": result.file } },
                "logicalLocations": [{ "fullyQualifiedName": result.thing }],
            }],
            "partialFingerprints": { "thing/v1": result.thing },
        })
    };
    let results: Vec<_> = results.iter().map(result).collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "portcullis", "version": env!("CARGO_PKG_VERSION"), "rules": rules,
            } },
            "results": results,
        }],
    });
    serde_json::to_string_pretty(&log).unwrap_or_default() + "\n"
}
