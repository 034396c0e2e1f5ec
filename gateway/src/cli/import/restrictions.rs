//! Reads which tools of a server a client may call, so that the gateway allows no more.
//!
//! A list of allowed tools holds as it is, also an empty one. A list of tools that are called without asking narrows as
//! well, because the gateway cannot ask; an empty one says only that everything is asked for. A list of denied tools
//! becomes a rule that forbids. What cannot be written down or understood allows nothing.

use serde_json::{Map, Value};

use super::secrets::is_plain_name;

/// Keys of a server with the tools that may be called.
const ALLOWED: [&str; 5] =
    ["includeTools", "enabled_tools", "enabledTools", "tools", "allowed_tools"];
/// Keys of a server with the tools that are called without asking.
const UNASKED: [&str; 4] = ["alwaysAllow", "autoApprove", "allowedTools", "available_tools"];
/// Keys of a server with the tools that must not be called.
const DENIED: [&str; 5] =
    ["excludeTools", "disabledTools", "disabled_tools", "deniedTools", "blockedTools"];

/// The tools that may be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ToolRestriction {
    /// Tools that are allowed; `None` for all.
    pub(super) allowed: Option<Vec<String>>,
    /// Tools that are forbidden, although others are allowed.
    pub(super) denied: Vec<String>,
    /// What was not taken as it is, for notes.
    pub(super) remarks: Vec<String>,
    /// How many names of each key could be secrets, and were left out.
    pub(super) hidden: Vec<(usize, &'static str)>,
}

/// Whether a key of a server is about its tools.
pub(super) fn is_about_tools(key: &str) -> bool {
    ALLOWED.contains(&key) || UNASKED.contains(&key) || DENIED.contains(&key)
}

/// Whether a key of a server seems to say which of its tools may be called, in words that no known client uses.
fn seems_about_tools(key: &str) -> bool {
    const RESTRICTS: [&str; 13] = [
        "allow", "include", "enable", "permit", "only", "approve", "white", "deny", "exclude",
        "disable", "block", "forbid", "black",
    ];
    let key = key.to_ascii_lowercase();
    key.contains("tool") && RESTRICTS.iter().any(|word| key.contains(word))
}

impl ToolRestriction {
    /// Reads what is said of the tools of the server that its client calls `called`, in its entry and in the file.
    pub(super) fn of(called: &str, server: &Map<String, Value>, root: &Value) -> Self {
        let mut found = Self::default();
        for key in ALLOWED {
            match server.get(key) {
                None | Some(Value::Null) => {}
                Some(Value::Array(list)) => found.allow(key, list),
                Some(Value::String(all)) if all == "*" => {}
                Some(Value::Object(tools)) => found.each(key, tools),
                Some(_) => found.close(&format!("its `{key}` is not understood")),
            }
        }
        for key in UNASKED {
            if let Some(list) = server.get(key).and_then(Value::as_array).filter(|l| !l.is_empty())
            {
                found.allow(key, list);
            }
        }
        for key in DENIED {
            match server.get(key) {
                None | Some(Value::Null) => {}
                Some(Value::Array(list)) => found.deny(key, list.iter().map(Value::as_str)),
                Some(_) => found.close(&format!("its `{key}` is not understood")),
            }
        }
        let odd = server.iter().filter(|(key, value)| {
            !is_about_tools(key) && seems_about_tools(key) && !value.is_null()
        });
        for (key, _) in odd {
            let shown = if is_plain_name(key) {
                key.as_str()
            } else {
                "(a name that is not repeated here)"
            };
            found.close(&format!("its `{shown}` is not understood"));
        }
        found.of_agent(called, root);
        for (at, key) in [("/excludeTools", "excludeTools"), ("/tools/exclude", "tools")] {
            // What stands before `(` is a tool of the client itself, with its arguments.
            let list = root.pointer(at).and_then(Value::as_array).into_iter().flatten();
            let list =
                list.map(Value::as_str).filter(|tool| !tool.is_some_and(|t| t.contains('(')));
            let own = format!("{called}__");
            found.deny(key, list.map(|tool| tool.map(|t| t.strip_prefix(&own).unwrap_or(t))));
        }
        for key in ["tools", "permission"] {
            if let Some(table) = root.get(key).and_then(Value::as_object) {
                found.of_table(called, key, table);
            }
        }
        if found.denied.iter().any(|tool| tool == "*") {
            found.denied.clear();
            found.allowed = Some(Vec::new());
        }
        found
    }

    /// Allows only the tools of a list, of those that are allowed so far. `*` in it stands for all.
    fn allow(&mut self, key: &'static str, list: &[Value]) {
        if list.iter().any(|tool| tool == "*") {
            return;
        }
        let named: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
        self.narrow(key, &named, list.len());
    }

    fn narrow(&mut self, key: &'static str, named: &[&str], count: usize) {
        let plain: Vec<String> = named
            .iter()
            .filter(|tool| is_plain_tool(tool))
            .map(|tool| (*tool).to_owned())
            .collect();
        if plain.len() < count {
            self.hidden.push((count - plain.len(), key));
        }
        self.allowed = Some(match self.allowed.take() {
            None => plain,
            Some(before) => before.into_iter().filter(|tool| plain.contains(tool)).collect(),
        });
    }

    /// Forbids tools. One that cannot be written down closes the server, because it would be allowed otherwise.
    fn deny<'a>(&mut self, key: &'static str, tools: impl Iterator<Item = Option<&'a str>>) {
        for tool in tools {
            match tool.filter(|tool| is_plain_tool(tool)) {
                Some(tool) => self.denied.push(tool.to_owned()),
                None => self.close(&format!("a tool in its `{key}` cannot be written down")),
            }
        }
    }

    /// Allows nothing, and says why.
    fn close(&mut self, why: &str) {
        self.allowed = Some(Vec::new());
        self.remarks.push(format!("{why}, so none of its tools is allowed; write a rule by hand"));
    }

    /// Takes an object of tools, in which `false` or `enabled: false` stands for a tool that is denied.
    fn each(&mut self, key: &'static str, tools: &Map<String, Value>) {
        let is_off = |value: &Value| {
            let flag = |key: &str| value.get(key).and_then(Value::as_bool);
            *value == false || flag("enabled") == Some(false) || flag("disabled") == Some(true)
        };
        let off = tools.iter().filter(|(_, value)| is_off(value));
        self.deny(key, off.map(|(tool, _)| Some(tool.as_str())));
        let other = |value: &&Value| !value.is_boolean() && !is_off(value);
        if tools.values().any(|value| other(&value)) {
            self.remarks.push(format!(
                "what its `{key}` says of single tools was left out, but for those that are switched off"
            ));
        }
    }

    /// Takes the lists of an agent: `@SERVER` for a server, `@SERVER/TOOL` for one of its tools.
    fn of_agent(&mut self, called: &str, root: &Value) {
        let list = |key: &str| {
            let list = root.get(key).and_then(Value::as_array);
            list.map(|list| list.iter().filter_map(Value::as_str).collect::<Vec<_>>())
        };
        let own = |entry: &str| {
            let (server, tool) =
                entry.strip_prefix('@')?.split_once('/').unwrap_or((entry.get(1..)?, "*"));
            (server == called).then(|| tool.to_owned())
        };
        let narrow = |found: &mut Self, key: &'static str, tools: &[String]| {
            if !tools.iter().any(|tool| tool == "*") {
                let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
                found.narrow(key, &tools, tools.len());
            }
        };
        if let Some(tools) = list("tools").filter(|tools| !tools.contains(&"*")) {
            let tools: Vec<String> = tools.into_iter().filter_map(own).collect();
            narrow(self, "tools", &tools);
        }
        let unasked: Vec<String> =
            list("allowedTools").unwrap_or_default().into_iter().filter_map(own).collect();
        if !unasked.is_empty() {
            narrow(self, "allowedTools", &unasked);
        }
    }

    /// Takes a table of tools of all servers, in which `SERVER_TOOL` is switched off or denied.
    fn of_table(&mut self, called: &str, key: &'static str, table: &Map<String, Value>) {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let prefix = format!("{}_", called.chars().map(plain).collect::<String>());
        let of = |wanted: fn(&Value) -> bool| -> Vec<String> {
            let entries = table.iter().filter(|(_, value)| wanted(value));
            entries.filter_map(|(name, _)| below(&prefix, name)).collect()
        };
        let off = of(|value| *value == false || *value == "deny");
        let on = of(|value| *value == true || *value == "allow");
        if off.is_empty() {
            return;
        }
        let on: Vec<&str> = on.iter().map(String::as_str).filter(|tool| *tool != "*").collect();
        if off.iter().any(|tool| tool == "*") && !on.is_empty() {
            self.narrow(key, &on, on.len());
            let named = off.iter().filter(|tool| *tool != "*");
            self.deny(key, named.map(|tool| Some(tool.as_str())));
        } else {
            self.deny(key, off.iter().map(|tool| Some(tool.as_str())));
        }
        self.remarks.push(format!(
            "`{key}` of the file is taken for all callers; the gateway does not tell the agents of a client apart"
        ));
    }
}

/// The part of a name or pattern that is about the tools of a server, which begin with `prefix`; `None` if it is about
/// none of them. A pattern that ends within the prefix is about all of them.
fn below(prefix: &str, name: &str) -> Option<String> {
    if let Some(tool) = name.strip_prefix(prefix) {
        return Some(tool.to_owned());
    }
    let (front, _) = name.split_once('*')?;
    prefix.starts_with(front).then(|| "*".to_owned())
}

/// Whether the name of a tool, or a pattern, can be written down. A pattern is judged by the words in it.
fn is_plain_tool(tool: &str) -> bool {
    tool == "*" || is_plain_name(&tool.replace('*', "_"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::ToolRestriction;

    fn read(server: &Value, root: &Value) -> (Option<Vec<String>>, Vec<String>) {
        let found = ToolRestriction::of("git-hub", server.as_object().unwrap(), root);
        (found.allowed, found.denied)
    }

    #[test]
    fn what_a_client_may_call_is_no_more_through_the_gateway() {
        for (server, allowed, denied) in [
            (json!({}), None, &[][..]),
            (json!({ "includeTools": ["a", "b"] }), Some(&["a", "b"][..]), &[]),
            (json!({ "includeTools": [] }), Some(&[]), &[]),
            (json!({ "enabled_tools": [] }), Some(&[]), &[]),
            (json!({ "tools": ["*"] }), None, &[]),
            (json!({ "tools": "*" }), None, &[]),
            (json!({ "tools": ["a"] }), Some(&["a"]), &[]),
            (json!({ "tools": "a" }), Some(&[]), &[]),
            (json!({ "tools": [7] }), Some(&[]), &[]),
            (json!({ "tools": { "a": { "approval_mode": "approve" }, "b": false } }), None, &["b"]),
            // An empty list of what is not asked for says nothing of what may be called.
            (json!({ "alwaysAllow": [], "autoApprove": [] }), None, &[]),
            (json!({ "alwaysAllow": ["a"] }), Some(&["a"]), &[]),
            (json!({ "autoApprove": true }), None, &[]),
            (json!({ "includeTools": ["a", "b"], "alwaysAllow": ["b", "c"] }), Some(&["b"]), &[]),
            (json!({ "excludeTools": ["a"] }), None, &["a"]),
            (json!({ "disabledTools": [] }), None, &[]),
            (json!({ "disabled_tools": ["a"], "enabled_tools": ["b"] }), Some(&["b"]), &["a"]),
            (json!({ "disabledTools": ["*"] }), Some(&[]), &[]),
            // What cannot be written down is not allowed.
            (json!({ "disabledTools": ["s3cr3t-Value-99"] }), Some(&[]), &[]),
            (json!({ "disabledTools": [null] }), Some(&[]), &[]),
            (json!({ "disabledTools": "a" }), Some(&[]), &[]),
            // Nor is what seems to say which tools may be called.
            (json!({ "include_tools": ["a"] }), Some(&[]), &[]),
            (json!({ "IncludeTools": ["a"] }), Some(&[]), &[]),
            (json!({ "toolsAllowed": ["a"] }), Some(&[]), &[]),
            (json!({ "toolWhitelist": ["a"], "includeTools": ["a"] }), Some(&[]), &[]),
            (json!({ "toolTimeout": 5, "tool_timeout_sec": 5, "allow": ["a"] }), None, &[]),
        ] {
            let allowed =
                allowed.map(|list: &[&str]| list.iter().map(ToString::to_string).collect());
            let denied = denied.iter().map(ToString::to_string).collect();
            assert_eq!(read(&server, &json!({})), (allowed, denied), "{server}");
        }
    }

    #[test]
    fn what_a_file_says_of_the_tools_of_all_its_servers_is_taken_for_each() {
        for (root, allowed, denied) in [
            (json!({ "tools": { "git-hub_*": false } }), Some(&[][..]), &[][..]),
            (json!({ "tools": { "git-hub_a": false, "webfetch": false } }), None, &["a"]),
            (json!({ "tools": { "git*": false } }), Some(&[]), &[]),
            (json!({ "tools": { "*": false, "git-hub_a": true } }), Some(&["a"]), &[]),
            (json!({ "permission": { "git-hub_a": "deny", "bash": "ask" } }), None, &["a"]),
            (json!({ "tools": { "other_*": false } }), None, &[]),
            (json!({ "excludeTools": ["a", "ShellTool(rm -rf)"] }), None, &["a"]),
            (json!({ "tools": { "exclude": ["git-hub__a"] } }), None, &["a"]),
            (json!({ "tools": ["read", "@git-hub"] }), None, &[]),
            (json!({ "tools": ["read", "@git-hub/a", "@other/b"] }), Some(&["a"]), &[]),
            (json!({ "tools": ["read", "@other"] }), Some(&[]), &[]),
            (json!({ "tools": ["*"], "allowedTools": ["@git-hub/a"] }), Some(&["a"]), &[]),
        ] {
            let allowed =
                allowed.map(|list: &[&str]| list.iter().map(ToString::to_string).collect());
            let denied = denied.iter().map(ToString::to_string).collect();
            assert_eq!(read(&json!({}), &root), (allowed, denied), "{root}");
        }
    }
}
