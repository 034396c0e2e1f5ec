//! Adds the self-test to a configuration: a server that attacks, and the routes, key and rules that it needs. All
//! of them have reserved names, and no rule of the operator can name them, so that no other decision changes.

use std::time::Duration;

use aws_lc_rs::rand;
use json::hex;
use json::pointer::escaped;
use policy::rules::control::Control;
use policy_core::subject::name::RESERVED;
use serde_json::{Map, Value, json};

use super::compiler::SettingsCompiler;
use super::problem::ConfigProblem;
use super::raw::RawSelftest;
use super::yaml::YamlNode;
use crate::base::secret::Secret;
use crate::base::sha256::sha256;
use crate::config::selftest_fixtures;

/// The path of the self-test's route, which only the self-test's key can use.
pub const PATH: &str = "/portcullis-selftest";

/// The path of its route with all guardrails. It is separate because a guardrail may not answer.
pub const GUARDED: &str = "/portcullis-selftest/guarded";
/// The running executable, even if its file was replaced.
const SELF: &str = "/proc/self/exe";
/// Its arguments that run the server of the self-test.
pub const ATTACKER: [&str; 2] = ["canary", "--selftest"];

/// When the self-test runs, and which of its failures are accepted.
#[derive(Debug)]
pub struct SelftestSettings {
    /// Whether the gateway is not ready before the self-test has passed.
    pub gates: bool,
    /// Accepted failures: controls, or single attacks as `control/attack`.
    pub except: Vec<String>,
    /// The interval between repetitions; `None` for none.
    pub every: Option<Duration>,
    /// The API key of the self-test. It is secret, and new for each configuration.
    pub key: Secret,
}

impl SettingsCompiler<'_> {
    pub(super) fn selftest(
        &mut self,
        raw: Option<RawSelftest>,
        key: Option<String>,
    ) -> Option<SelftestSettings> {
        let (raw, key) = (raw?, key);
        let mut except = Vec::new();
        for (n, name) in raw.skip.iter().enumerate() {
            let control = name.split_once('/').map_or(&**name, |(control, _)| control);
            match Control::ALL.iter().any(|known| known.as_str() == control) {
                true => except.push(name.clone()),
                false => {
                    let names = Control::ALL.map(Control::as_str).join(", ");
                    let message = format!("`{}` is no control", name.escape_debug());
                    self.report(
                        &format!("/selftest/skip/{n}"),
                        message,
                        format!("there are: {names}"),
                    );
                }
            }
        }
        let every = self.time("/selftest/interval", raw.interval.as_deref());
        // Without a key, the configuration is only inspected and no self-test runs.
        Some(SelftestSettings {
            gates: raw.gate_readiness,
            except,
            every,
            key: Secret::new(key?.into()),
        })
    }
}

/// Reports every use of a name that is reserved for the self-test.
pub(super) fn trespassers(json: &Value, root: &YamlNode) -> Vec<ConfigProblem> {
    let mut found = Vec::new();
    trespass(json, "", root, &mut found);
    found
}

fn trespass(value: &Value, at: &str, root: &YamlNode, found: &mut Vec<ConfigProblem>) {
    match value {
        Value::String(text) => {
            let name = text.rsplit([':', '/']).next().unwrap_or_default();
            if name.starts_with(RESERVED) || text.starts_with(PATH) {
                let message = format!("`{RESERVED}` is kept for the self-test");
                found.push(ConfigProblem::new(root.place(at), message, "take another name"));
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                trespass(item, &format!("{at}/{n}"), root, found);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                trespass(member, &format!("{at}/{}", escaped(name)), root, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Adds the self-test to a configuration and returns its API key; `None` if no random key can be drawn.
pub(super) fn add(json: &mut Value) -> Option<String> {
    let mut random = [0; 32];
    rand::fill(&mut random).ok()?;
    let key = format!("{}{}", super::KEY, hex::encode(&random));
    let digest = hex::encode(&sha256(key.as_bytes()));
    let guardrails = guardrails(json);
    let who = format!("principal:{RESERVED}");
    push(
        json,
        &["servers"],
        json!({
            "name": RESERVED, "command": SELF, "args": ATTACKER, "protocol": "modern",
        }),
    );
    push(json, &["routes"], json!({ "path": PATH, "servers": [RESERVED] }));
    push(
        json,
        &["routes"],
        json!({ "path": GUARDED, "servers": [RESERVED], "guardrails": guardrails }),
    );
    push(
        json,
        &["identity", "apiKeys"],
        json!({
            "name": RESERVED, "principal": RESERVED, "groups": [], "sha256": digest,
        }),
    );
    push(
        json,
        &["policy", "rules"],
        json!({
            "id": RESERVED, "effect": "allow", "principals": [who], "servers": [RESERVED],
            "tools": selftest_fixtures::granted(),
        }),
    );
    push(
        json,
        &["policy", "rules"],
        json!({
            "id": format!("{RESERVED}-forbid"), "effect": "forbid", "principals": [who],
            "servers": [RESERVED], "tools": [selftest_fixtures::CONDITIONAL], "when": "arguments.n > 5",
        }),
    );
    push(
        json,
        &["policy", "constraints"],
        json!({
            "servers": [RESERVED], "tools": [selftest_fixtures::CONSTRAINED], "argument": "/path", "type": "path",
            "within": ["/srv"], "mode": "enforce",
        }),
    );
    for (tool, rate, approval) in
        [(selftest_fixtures::RATED, Some("1/h"), false), (selftest_fixtures::ATTENDED, None, true)]
    {
        let mut entry = json!({ "server": RESERVED, "tool": tool, "approvalRequired": approval });
        if let (Some(rate), Some(entry)) = (rate, entry.as_object_mut()) {
            entry.insert("rate".to_owned(), rate.into());
        }
        push(json, &["registry", "tools"], entry);
    }
    Some(key)
}

/// The distinct guardrails of all routes: the self-test sends its messages to them as well.
fn guardrails(json: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    let routes = json.get("routes").and_then(Value::as_array).into_iter().flatten();
    for guardrail in routes.filter_map(|route| route.get("guardrails")?.as_array()).flatten() {
        if !all.contains(guardrail) {
            all.push(guardrail.clone());
        }
    }
    all
}

/// Appends an item to the list at a path of keys.
fn push(json: &mut Value, path: &[&str], item: Value) {
    let mut at = json;
    for name in path {
        let Value::Object(members) = at else { return };
        let missing =
            || if path.last() == Some(name) { json!([]) } else { Value::Object(Map::new()) };
        let member = members.entry(*name).or_insert(Value::Null);
        if member.is_null() {
            *member = missing();
        }
        at = member;
    }
    if let Value::Array(items) = at {
        items.push(item);
    }
}
