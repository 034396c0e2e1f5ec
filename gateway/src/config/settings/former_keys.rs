//! Accepts former names of configuration keys: they are replaced with the current ones, each with a warning. Version
//! 1.0 will not accept them.

use super::problem::{ConfigProblem, ConfigProblems};
use super::yaml::{NodeKind, YamlNode};

/// Former names of keys in one kind of mapping.
struct RenamedKeys {
    /// The path of the mapping, with `*` for every item of a list.
    section: &'static [&'static str],
    /// The former and the current name of each key.
    names: &'static [(&'static str, &'static str)],
}

const RENAMED: &[RenamedKeys] = &[
    RenamedKeys {
        section: &["limits"],
        names: &[
            ("answerTime", "responseTimeout"),
            ("answers", "responseMemory"),
            ("answersPerCaller", "responseMemoryPerCaller"),
            ("answersPerServer", "responseMemoryPerServer"),
            ("connectTime", "connectTimeout"),
            ("drainTime", "drainTimeout"),
            ("inputTime", "inputTimeout"),
            ("keptResults", "resultStore"),
            ("keptResultsPerCaller", "resultStorePerCaller"),
            ("keptTime", "resultStoreTtl"),
            ("listTime", "listTimeout"),
            ("lists", "catalogMemory"),
            ("listsPerCaller", "catalogMemoryPerCaller"),
            ("pages", "pagesPerList"),
            ("parked", "pendingElicitations"),
            ("parkedPerCaller", "pendingElicitationsPerCaller"),
            ("replayTime", "replayTtl"),
            ("requestBodies", "requestBodyMemory"),
            ("requestBodiesPerCaller", "requestBodyMemoryPerCaller"),
            ("requestTime", "requestTimeout"),
            ("schemas", "schemaMemory"),
            ("schemasPerServer", "schemaMemoryPerServer"),
            ("streams", "streamsPerSession"),
            ("subscriptions", "subscriptionMemory"),
            ("subscriptionsPerCaller", "subscriptionMemoryPerCaller"),
            ("tools", "definitionsPerList"),
            ("totalTime", "callTimeout"),
            ("writeTime", "writeTimeout"),
        ],
    },
    RenamedKeys {
        section: &["limits", "callers", "*"],
        names: &[
            ("answersPerCaller", "responseMemoryPerCaller"),
            ("listsPerCaller", "catalogMemoryPerCaller"),
            ("parkedPerCaller", "pendingElicitationsPerCaller"),
            ("requestBodiesPerCaller", "requestBodyMemoryPerCaller"),
            ("subscriptionsPerCaller", "subscriptionMemoryPerCaller"),
        ],
    },
    RenamedKeys {
        section: &["limits", "http2"],
        names: &[
            ("answers", "responseBuffer"),
            ("control", "controlFrames"),
            ("idleTime", "idleTimeout"),
            ("pingTime", "pingInterval"),
            ("resets", "streamResets"),
            ("streams", "maxConcurrentStreams"),
            ("window", "streamWindow"),
        ],
    },
    RenamedKeys {
        section: &["identity", "issuers", "*"],
        names: &[
            ("cooldown", "unknownKeyCooldown"),
            ("refresh", "keyRefreshInterval"),
            ("service", "serviceTokens"),
            ("untyped", "acceptUntypedTokens"),
        ],
    },
    RenamedKeys {
        section: &["servers", "*", "serverRequests"],
        names: &[("forms", "formElicitation"), ("urls", "urlElicitation")],
    },
    RenamedKeys {
        section: &["servers", "*", "serverRequests", "sampling"],
        names: &[("messages", "maxMessages"), ("over", "onExceeded"), ("size", "maxSize")],
    },
    RenamedKeys {
        section: &["routes", "*", "oauth"],
        names: &[("besides", "additionalAudiences")],
    },
    RenamedKeys {
        section: &["routes", "*", "guardrails", "*"],
        names: &[("deadline", "timeout"), ("most", "maxSize")],
    },
    RenamedKeys {
        section: &["policy", "content", "*"],
        names: &[("allowed", "allowedValues"), ("optional", "allowUnknownServers")],
    },
    RenamedKeys {
        section: &["policy", "content", "*", "size"],
        names: &[("most", "maxBytes"), ("over", "onExceeded")],
    },
    RenamedKeys {
        section: &["policy", "constraints", "*"],
        names: &[("alsoHosts", "additionalHosts")],
    },
    RenamedKeys {
        section: &["audit", "refusals"],
        names: &[("each", "individualRecords"), ("tracked", "maxTracked")],
    },
    RenamedKeys {
        section: &["audit", "sinks", "*", "rotate"],
        names: &[
            ("age", "maxAge"),
            ("keep", "maxFiles"),
            ("keepFor", "retention"),
            ("size", "maxSize"),
        ],
    },
    RenamedKeys {
        section: &["selftest"],
        names: &[("every", "interval"), ("except", "skip"), ("ready", "gateReadiness")],
    },
];

/// What [`replace`] found.
#[derive(Debug, Default)]
pub(super) struct FormerKeys {
    /// A warning with place and help for each former name that was replaced.
    pub(super) warnings: Vec<Box<str>>,
    /// A problem for each former name beside the current one.
    pub(super) problems: Vec<ConfigProblem>,
}

/// Replaces former names of keys in `root`. Where a mapping has both names of a key, the former one is removed, which
/// is a problem.
pub(super) fn replace(file: &str, text: &str, root: &mut YamlNode) -> FormerKeys {
    let mut found = FoundKeys::default();
    for RenamedKeys { section, names } in RENAMED {
        replace_in(root, section, names, &mut found);
    }
    let warnings = ConfigProblems::new(file, text, found.replaced).each().into_iter();
    let warnings = warnings.map(|(said, help)| format!("{said}; {help}").into()).collect();
    FormerKeys { warnings, problems: found.beside }
}

/// The former and the current names of the keys in the mapping at a JSON Pointer.
pub(super) fn names_at(pointer: &str) -> &'static [(&'static str, &'static str)] {
    let at: Vec<&str> = pointer.split('/').skip(1).collect();
    let is_at = |renamed: &&RenamedKeys| {
        let mut pairs = renamed.section.iter().zip(&at);
        renamed.section.len() == at.len()
            && pairs.all(|(wanted, key)| *wanted == "*" || wanted == key)
    };
    RENAMED.iter().find(is_at).map(|renamed| renamed.names).unwrap_or_default()
}

/// The places of former names.
#[derive(Default)]
struct FoundKeys {
    /// Those that were replaced.
    replaced: Vec<ConfigProblem>,
    /// Those that stood beside the current name.
    beside: Vec<ConfigProblem>,
}

fn replace_in(
    node: &mut YamlNode,
    section: &[&str],
    names: &[(&str, &str)],
    found: &mut FoundKeys,
) {
    match (&mut node.kind, section) {
        (NodeKind::Sequence(items), ["*", rest @ ..]) => {
            for item in items {
                replace_in(item, rest, names, found);
            }
        }
        (NodeKind::Mapping(members), [key, rest @ ..]) => {
            for (_, node) in members.iter_mut().filter(|(written, _)| written.text == *key) {
                replace_in(node, rest, names, found);
            }
        }
        (NodeKind::Mapping(members), []) => {
            for (former, current) in names {
                if members.iter().any(|(key, _)| key.text == *current) {
                    let message =
                        format!("`{former}` is the former name of `{current}`, which is given too");
                    for (key, _) in members.extract_if(.., |(key, _)| key.text == *former) {
                        found.beside.push(ConfigProblem::new(key.span, &*message, "remove it"));
                    }
                    continue;
                }
                for (key, _) in members.iter_mut().filter(|(key, _)| key.text == *former) {
                    (*current).clone_into(&mut key.text);
                    let message = format!("`{former}` is the former name of `{current}`");
                    let help =
                        format!("write `{current}`; version 1.0 will not accept the former name");
                    found.replaced.push(ConfigProblem::new(key.span.clone(), message, help));
                }
            }
        }
        (NodeKind::Scalar(_) | NodeKind::Sequence(_), _) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{RENAMED, replace};
    use crate::config::settings::{schema, yaml};

    /// The schema that `schema` refers to, also if it is optional.
    fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
        let branch = schema.get("anyOf").and_then(|any| any.get(0)).unwrap_or(schema);
        match branch.get("$ref").and_then(Value::as_str) {
            Some(at) => root.pointer(at.trim_start_matches('#')).unwrap(),
            None => branch,
        }
    }

    #[test]
    fn every_current_name_is_a_key_and_no_former_name_is() {
        let root = schema();
        for renamed in RENAMED {
            let section = renamed.section.iter().fold(&root, |schema, key| {
                let inner = match *key {
                    "*" => &schema["items"],
                    key => &schema["properties"][key],
                };
                resolved(&root, inner)
            });
            let keys = section["properties"].as_object().unwrap();
            for (former, current) in renamed.names {
                assert!(keys.contains_key(*current), "{:?} {current}", renamed.section);
                assert!(!keys.contains_key(*former), "{:?} {former}", renamed.section);
            }
        }
    }

    #[test]
    fn a_former_name_is_replaced_with_a_warning_that_has_its_place() {
        let text = "limits:\n  answerTime: 5s\n  http2: {streams: 3}\nselftest: {every: 1h}\n";
        let mut root = yaml::parse(text).unwrap();
        let warnings = replace("gateway.yaml", text, &mut root).warnings;
        assert_eq!(
            warnings.first().unwrap().as_ref(),
            "gateway.yaml:2:3: `answerTime` is the former name of `responseTimeout`; write `responseTimeout`; version \
             1.0 will not accept the former name"
        );
        assert_eq!(warnings.len(), 3);
        let expected = serde_json::json!({
            "limits": { "responseTimeout": "5s", "http2": { "maxConcurrentStreams": 3 } },
            "selftest": { "interval": "1h" },
        });
        assert_eq!(root.json(), expected);
    }

    #[test]
    fn nothing_is_replaced_where_both_names_are_given() {
        let text = "limits: {answerTime: 5s, responseTimeout: 6s}\n";
        let mut root = yaml::parse(text).unwrap();
        let found = replace("gateway.yaml", text, &mut root);
        assert_eq!((found.warnings.len(), found.problems.len()), (0, 1));
        assert_eq!(root.json(), serde_json::json!({ "limits": { "responseTimeout": "6s" } }));
    }

    #[test]
    fn the_names_of_a_section_are_found_by_its_pointer() {
        let first = |pointer| super::names_at(pointer).first().copied();
        assert_eq!(first("/limits"), Some(("answerTime", "responseTimeout")));
        assert_eq!(first("/servers/3/serverRequests"), Some(("forms", "formElicitation")));
        assert_eq!(first("/servers/3"), None);
        assert_eq!(first(""), None);
    }
}
