//! Brings the forms in which clients write their servers to one form: `command`, `args`, `env`, `url`, `headers`, `type`.

use std::collections::{BTreeMap, BTreeSet};

use gateway::config::settings::variables::replaced;
use serde_json::{Map, Value, json};

use super::secrets::{bare_reference, variable_name};

/// Keys of the lists of servers in the files of clients.
const LISTS: [&str; 6] =
    ["mcpServers", "servers", "mcp_servers", "mcp", "context_servers", "extensions"];
/// Keys that say how a server is reached.
const ADDRESSES: [&str; 6] = ["command", "url", "serverUrl", "httpUrl", "cmd", "uri"];
/// Other names of keys of a server: that of a client, and the one used here.
const RENAMED: [(&str, &str); 6] = [
    ("cmd", "command"),
    ("envs", "env"),
    ("env_keys", "env_vars"),
    ("uri", "url"),
    ("serverUrl", "url"),
    ("transportType", "type"),
];
/// Lists of servers that a client does not start, or of all that it starts.
const OFF: [&str; 4] =
    ["/disabledMcpServers", "/disabledMcpjsonServers", "/mcp/excluded", "/excludeMCPServers"];
const ON: [&str; 2] = ["/mcp/allowed", "/allowMCPServers"];

/// A server as a client's file lists it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListedServer {
    pub(super) name: String,
    /// Its entry in the one form, or why there is none.
    pub(super) entry: Result<Map<String, Value>, &'static str>,
}

/// Every server in a file, under any of the keys that clients use.
pub(super) fn listed(root: &Value) -> Vec<ListedServer> {
    let mut found = Vec::new();
    let mut seen: BTreeMap<String, Value> = BTreeMap::new();
    for (name, entry, is_off) in entries(root) {
        let entry = match &entry {
            _ if is_off => Err("it is switched off"),
            Value::Object(server) => Ok(uniform(server)),
            _ => Err("its entry is no object"),
        };
        let value = entry.clone().map_or(Value::Null, Value::Object);
        match seen.get(&name) {
            Some(known) if *known == value => continue,
            Some(_) => {
                let entry = Err("there is another server of the same name in the file");
                found.push(ListedServer { name, entry });
                continue;
            }
            None => {}
        }
        seen.insert(name.clone(), value);
        found.push(ListedServer { name, entry });
    }
    found
}

/// The entries of all lists with their names, and whether the file switches them off elsewhere.
fn entries(root: &Value) -> Vec<(String, Value, bool)> {
    let mut found = Vec::new();
    let mut take = |list: Option<&Value>, around: &Value, key: &str| match list {
        Some(Value::Object(list)) => {
            for (name, entry) in list.iter().filter(|(name, entry)| is_entry(key, name, entry)) {
                found.push((name.clone(), entry.clone(), is_off(around, name)));
            }
        }
        Some(Value::Array(list)) => {
            for entry in list {
                if let Some(name) = entry.get("name").and_then(Value::as_str) {
                    found.push((name.to_owned(), entry.clone(), is_off(around, name)));
                }
            }
        }
        _ => {}
    };
    for key in LISTS {
        take(root.get(key), root, key);
    }
    // VS Code also has servers in its settings, and Claude Code has some for each project.
    take(root.pointer("/mcp/servers"), root, "servers");
    let projects = root.get("projects").and_then(Value::as_object).into_iter().flatten();
    for (_, project) in projects {
        take(project.get("mcpServers"), project, "mcpServers");
    }
    // Plugins have files that are nothing but the list.
    if found.is_empty() {
        let members = root.as_object().into_iter().flatten();
        let servers = members.filter(|(_, entry)| is_server(entry));
        found.extend(servers.map(|(name, entry)| (name.clone(), entry.clone(), false)));
    }
    found
}

/// Whether a member of a list is the entry of a server. `mcp` and `extensions` have other members as well.
fn is_entry(key: &str, name: &str, entry: &Value) -> bool {
    match key {
        "mcp" => entry.is_object() && (is_server(entry) || !["servers", "inputs"].contains(&name)),
        "extensions" => is_server(entry) || entry.get("type").is_some(),
        _ => true,
    }
}

fn is_server(entry: &Value) -> bool {
    ADDRESSES.iter().any(|key| entry.get(key).is_some())
}

/// Whether the file says elsewhere than in its entry that a server is not used.
fn is_off(around: &Value, name: &str) -> bool {
    let list = |at: &&str| around.pointer(at).and_then(Value::as_array);
    let has = |list: &Vec<Value>| list.iter().any(|one| one == name);
    OFF.iter().filter_map(list).any(has) || ON.iter().filter_map(list).any(|list| !has(list))
}

/// The entry of a server in the one form.
fn uniform(server: &Map<String, Value>) -> Map<String, Value> {
    let mut own = server.clone();
    // The program or the transport may be an object of its own.
    for key in ["command", "transport"] {
        if let Some(Value::Object(inner)) = own.get(key).cloned() {
            own.remove(key);
            for (name, value) in inner {
                let name = if name == "path" { "command".to_owned() } else { name };
                own.entry(name).or_insert(value);
            }
        }
    }
    if let Some(kind) = own.get("transport").filter(|kind| kind.is_string()).cloned() {
        own.remove("transport");
        own.entry("type").or_insert(kind);
    }
    for (name, ours) in RENAMED {
        if let Some(value) = own.remove(name) {
            own.entry(ours).or_insert(value);
        }
    }
    if let Some(url) = own.remove("httpUrl") {
        own.insert("url".to_owned(), url);
        own.insert("type".to_owned(), json!("http"));
    }
    // What a client gives to its HTTP library.
    let request = own.get_mut("requestInit").and_then(Value::as_object_mut);
    if let Some(Value::Object(headers)) = request.and_then(|request| request.remove("headers")) {
        let into = own.entry("headers").or_insert_with(|| json!({}));
        if let Some(into) = into.as_object_mut() {
            headers.into_iter().for_each(|(name, value)| {
                into.entry(name).or_insert(value);
            });
        }
    }
    if own.get("requestInit") == Some(&json!({})) {
        own.remove("requestInit");
    }
    own.retain(|_, value| !value.is_null());
    own.into_iter().map(|(key, value)| (key, references(value))).collect()
}

/// A value with the references to variables in every text written as `${NAME}`.
fn references(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(reference(&text)),
        Value::Array(items) => items.into_iter().map(references).collect(),
        Value::Object(members) => Value::Object(
            members.into_iter().map(|(key, value)| (key, references(value))).collect(),
        ),
        other => other,
    }
}

/// A text with its references to variables written as `${NAME}`: from `{env:NAME}`, `${{ secrets.NAME }}`, and from
/// `$NAME` alone or behind the scheme of a header.
fn reference(text: &str) -> String {
    let named = |name: &str| is_variable(name).then(|| format!("${{{name}}}"));
    let text = between(text, "${{", "}}", |inner| {
        let inner = inner.trim();
        named(
            inner
                .strip_prefix("secrets.")
                .or_else(|| inner.strip_prefix("inputs."))
                .unwrap_or(inner),
        )
    });
    let text =
        between(&text, "{env:", "}", |inner| named(inner).map(|name| format!("\u{0}{name}")));
    // `${env:NAME}` has the `$` already.
    let text = text.replace("$\u{0}", "").replace('\u{0}', "");
    let (before, last) =
        text.rsplit_once(' ').map_or(("", &*text), |(before, last)| (before, last));
    let is_alone = before.is_empty() || ["Bearer", "Basic", "Token", "ApiKey"].contains(&before);
    match last.strip_prefix('$').and_then(named).filter(|_| is_alone) {
        Some(name) if before.is_empty() => name,
        Some(name) => format!("{before} {name}"),
        None => text,
    }
}

/// Replaces what stands between two marks, with them, where `with` has something for it.
fn between(text: &str, open: &str, close: &str, with: impl Fn(&str) -> Option<String>) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(open) {
        out.push_str(before);
        let found = after.split_once(close).and_then(|(inner, after)| Some((with(inner)?, after)));
        match found {
            Some((replaced, after)) => {
                out.push_str(&replaced);
                rest = after;
            }
            None => {
                out.push_str(open);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// Whether a text has the form of a variable's name.
fn is_variable(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Every text in a file that has the form of a variable's name, or refers to one. Variables that are made up have to be
/// called otherwise.
pub(super) fn taken(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    gather(value, &mut found);
    found
}

/// INVARIANT: the parsers limit the nesting, so the recursion is limited too.
fn gather(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            if is_variable(text) && !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
                found.insert(text.clone());
            }
            // What the user is asked for has a name of its own.
            replaced(&reference(text), |inner| {
                let name = inner.split(":-").next().filter(|name| !name.starts_with("input:"));
                found.extend(name.map(|name| variable_name(bare_reference(name))));
                String::new()
            });
        }
        Value::Array(items) => items.iter().for_each(|item| gather(item, found)),
        Value::Object(members) => {
            let others = members.iter().filter(|(key, _)| *key != "inputs");
            others.for_each(|(_, member)| gather(member, found));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{listed, reference};

    #[test]
    fn servers_of_every_client_come_to_one_form() {
        for (root, name, entry) in [
            (json!({ "mcpServers": { "a": { "command": "x" } } }), "a", json!({ "command": "x" })),
            (json!({ "a": { "command": "x" } }), "a", json!({ "command": "x" })),
            (
                json!({ "mcpServers": { "a": { "httpUrl": "https://example.com/mcp" } } }),
                "a",
                json!({ "url": "https://example.com/mcp", "type": "http" }),
            ),
            (
                json!({ "servers": { "a": { "url": "u", "requestInit": { "headers": { "X": "$Y" } } } } }),
                "a",
                json!({ "url": "u", "headers": { "X": "${Y}" } }),
            ),
            (
                json!({ "context_servers": { "a": { "source": "custom", "command": { "path": "x", "args": ["y"] } } } }),
                "a",
                json!({ "source": "custom", "command": "x", "args": ["y"] }),
            ),
            (
                json!({ "extensions": { "a": { "type": "stdio", "cmd": "x", "envs": { "B": "c" } } } }),
                "a",
                json!({ "type": "stdio", "command": "x", "env": { "B": "c" } }),
            ),
            (
                json!({ "mcpServers": [{ "name": "a", "command": "x" }] }),
                "a",
                json!({ "name": "a", "command": "x" }),
            ),
            (
                json!({ "mcp": { "servers": { "a": { "command": "x" } }, "inputs": [] } }),
                "a",
                json!({ "command": "x" }),
            ),
        ] {
            let found = listed(&root);
            assert_eq!(found.len(), 1, "{root}");
            assert_eq!(found[0].name, name);
            assert_eq!(found[0].entry.clone().map(Value::Object), Ok(entry), "{root}");
        }
    }

    #[test]
    fn servers_that_are_not_used_or_not_told_apart_are_named() {
        for (root, why) in [
            (json!({ "mcpServers": { "a": 1 } }), "its entry is no object"),
            (
                json!({ "mcpServers": { "a": { "command": "x" } }, "disabledMcpServers": ["a"] }),
                "it is switched off",
            ),
            (
                json!({ "mcpServers": { "a": { "command": "x" } }, "mcp": { "allowed": ["b"] } }),
                "it is switched off",
            ),
            (
                json!({ "servers": { "a": { "command": "x" } }, "mcpServers": { "a": { "command": "y" } } }),
                "there is another server of the same name in the file",
            ),
        ] {
            let found = listed(&root);
            assert_eq!(found.last().unwrap().entry, Err(why), "{root}");
        }
        let twice =
            json!({ "servers": { "a": { "url": "x" } }, "mcpServers": { "a": { "url": "x" } } });
        assert_eq!(listed(&twice).len(), 1);
    }

    #[test]
    fn references_to_variables_are_known_in_every_form() {
        for (text, ours) in [
            ("${A}", "${A}"),
            ("${env:A}", "${A}"),
            ("{env:A}", "${A}"),
            ("Bearer {env:A}", "Bearer ${A}"),
            ("${{ secrets.A }}", "${A}"),
            ("$A", "${A}"),
            ("Bearer $A", "Bearer ${A}"),
            ("pa$A", "pa$A"),
            ("a $A", "a $A"),
            ("$1", "$1"),
            ("{env:}", "{env:}"),
            ("{file:~/x}", "{file:~/x}"),
        ] {
            assert_eq!(reference(text), ours, "{text}");
        }
    }
}
