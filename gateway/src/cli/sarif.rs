//! Findings as SARIF 2.1.0, for code review tools.

use serde_json::{Value, json};

/// One finding.
#[derive(Debug)]
pub(super) struct Result {
    /// The stable name of what was found.
    pub(super) rule: &'static str,
    /// `error`, `warning` or `note`.
    pub(super) level: &'static str,
    /// What, and what to do.
    pub(super) message: String,
    /// The file it concerns.
    pub(super) file: String,
    /// The thing it concerns, such as `files/tools/read_file#/description`.
    pub(super) thing: String,
}

/// The log of one run.
pub(super) fn log(results: &[Result]) -> String {
    let mut rules: Vec<_> = results.iter().map(|result| result.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    let rules: Vec<_> = rules.into_iter().map(|id| json!({ "id": id })).collect();
    let result = |result: &Result| -> Value {
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
