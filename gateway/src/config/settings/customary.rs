//! Reports common mistakes with a message of their own: the configuration file of an MCP client in place of the
//! gateway's, tool names with a server prefix, guessable secrets, and two listeners on one port.

use std::net::SocketAddr;
use std::ops::Range;

use json::hex;
use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;
use serde_json::Value;

use super::compiler::SettingsCompiler;
use super::problem::ConfigProblem;
use super::yaml::{MappingKey, NodeKind, YamlNode};
use super::{AuthScheme, ListenerSettings, OpsListener};
use crate::base::sha256::sha256;
use crate::mcp::tool_naming::BETWEEN;

/// Placeholders and words that attackers try first, in lower case.
const WELL_KNOWN: [&str; 28] = [
    "",
    "0000",
    "1234",
    "123456",
    "12345678",
    "admin",
    "api-key",
    "apikey",
    "change-me",
    "change_me",
    "changeit",
    "changeme",
    "default",
    "dummy",
    "example",
    "foo",
    "key",
    "letmein",
    "passw0rd",
    "password",
    "placeholder",
    "replace-me",
    "replaceme",
    "secret",
    "test",
    "todo",
    "token",
    "your-api-key",
];

/// Keys of MCP client configurations that contain the servers; no configuration of the gateway has them.
const OF_CLIENTS: [&str; 2] = ["mcpServers", "mcp_servers"];

/// Whether a secret is a placeholder or an easily guessed word.
pub(super) fn is_well_known(secret: &str) -> bool {
    WELL_KNOWN.contains(&&*secret.trim().to_ascii_lowercase())
}

/// The problem if the file is the configuration of an MCP client, else `None`. All values are masked, because such
/// files contain API keys.
pub(super) fn of_client(file: &str, text: &str, root: &YamlNode) -> Option<ConfigProblem> {
    let NodeKind::Mapping(members) = &root.kind else { return None };
    if members.iter().any(|(key, _)| key.text == "apiVersion") {
        return None;
    }
    // In YAML, a comment before a key of JSON becomes part of the key.
    let is_list = |(key, value): &&(MappingKey, YamlNode)| {
        let named = ["servers", "mcp"].contains(&&*key.text);
        named && matches!(value.kind, NodeKind::Mapping(_))
            || OF_CLIENTS.iter().any(|own| key.text.contains(own))
    };
    let (key, _) = members.iter().find(is_list)?;
    let span = own_key(text).unwrap_or_else(|| key.span.clone());
    Some(told(file, span).hiding(root.scalars("")))
}

/// The place of the first key that only client configurations have.
fn own_key(text: &str) -> Option<Range<usize>> {
    OF_CLIENTS.iter().find_map(|key| text.find(key).map(|at| at..at + key.len()))
}

/// Replaces the problems that were `found` in a file that is not YAML if it is the configuration of an MCP client,
/// which may be JSON with comments, or TOML.
pub(super) fn or_of_client(
    file: &str,
    text: &str,
    found: Vec<ConfigProblem>,
) -> Vec<ConfigProblem> {
    match own_key(text) {
        Some(span) if !text.contains("apiVersion") => {
            // The extent of the value is unknown if the file cannot be parsed, so that only the key is shown.
            let hidden = [0..span.start, span.end..text.len()];
            vec![told(file, span).hiding(hidden)]
        }
        Some(_) | None => found,
    }
}

fn told(file: &str, span: Range<usize>) -> ConfigProblem {
    let message = "this is the file of an MCP client, and not a configuration of the gateway";
    let help = format!("make one of it: `portcullis import {file} --write portcullis.yaml`");
    ConfigProblem::new(span, message, help)
}

impl SettingsCompiler<'_> {
    /// Reports rules and constraints that name a tool as clients see it. The policy matches the server's own tool
    /// names, so that such a rule would never apply.
    pub(super) fn prefixed_names(&mut self, policy: &Value, at: &str, servers: &[ServerName]) {
        match policy {
            Value::Array(items) => {
                for (n, item) in items.iter().enumerate() {
                    self.prefixed_names(item, &format!("{at}/{n}"), servers);
                }
            }
            Value::Object(members) => {
                for key in ["tools", "prompts"] {
                    let names = members.get(key).and_then(Value::as_array).into_iter().flatten();
                    for (n, name) in names.enumerate() {
                        let Some((server, name)) =
                            name.as_str().and_then(|name| of_server(name, servers))
                        else {
                            continue;
                        };
                        if covers(members.get("servers"), server) {
                            self.prefixed_name(&format!("{at}/{key}/{n}"), server, name);
                        }
                    }
                }
                for (key, member) in members {
                    self.prefixed_names(member, &format!("{at}/{key}"), servers);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn prefixed_name(&mut self, at: &str, server: &ServerName, name: &str) {
        let (server, name) = (server.as_str(), name.escape_debug());
        let message =
            format!("`{server}{BETWEEN}{name}` is what clients see; here it names no tool");
        let help = format!(
            "write `{name}`: the name that `{server}` gives it; where that itself begins so, write `{server}_?{name}`"
        );
        self.report(at, message, help);
    }

    /// Reports addresses that two listeners cannot bind at the same time; `written` is the number of listeners in
    /// the file.
    pub(super) fn ports_differ(
        &mut self,
        listeners: &[ListenerSettings],
        ops: Option<&OpsListener>,
        written: usize,
    ) {
        let mut all: Vec<(String, String, SocketAddr)> = Vec::new();
        // A listener without a valid address was dropped, so that the indices no longer match the file.
        if listeners.len() == written {
            for (n, listener) in listeners.iter().enumerate() {
                let name = format!("the listener `{}`", listener.name.escape_debug());
                all.push((format!("/listeners/{n}/address"), name, listener.address));
            }
        }
        all.extend(ops.map(|ops| ("/ops/address".to_owned(), "`ops`".to_owned(), ops.address)));
        for (n, (at, name, address)) in all.iter().enumerate() {
            let mut before = all.iter().take(n);
            if let Some((_, other, _)) = before.find(|(_, _, other)| overlap(*address, *other)) {
                let message =
                    format!("{name} and {other} cannot both have the port {}", address.port());
                self.report(at, message, "give each a port of its own");
            }
        }
    }

    /// Reports API keys that are easy to guess, if other machines can connect.
    pub(super) fn keys_are_secret(&mut self, hashes: &[String], listeners: &[ListenerSettings]) {
        let takes_keys =
            |one: &&ListenerSettings| one.schemes.contains(&AuthScheme::ApiKey) && is_exposed(one);
        let Some(listener) = listeners.iter().find(takes_keys) else { return };
        let known: Vec<_> =
            WELL_KNOWN.iter().map(|word| hex::encode(&sha256(word.as_bytes()))).collect();
        for (n, hash) in hashes.iter().enumerate() {
            if known.contains(&hash.to_ascii_lowercase()) {
                let message = format!(
                    "the key with this hash is a well-known password, and `{}` is open to other machines",
                    listener.name.escape_debug()
                );
                let help = "make a key with `portcullis keygen`, and write its hash here";
                self.report(&format!("/identity/apiKeys/{n}/sha256"), message, help);
            }
        }
    }
}

/// Which machines can connect to the listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exposure {
    /// Only this machine can connect.
    Loopback,
    /// Other machines as well.
    Network,
}

impl Exposure {
    pub(super) fn of(listeners: &[ListenerSettings]) -> Self {
        if listeners.iter().any(is_exposed) { Self::Network } else { Self::Loopback }
    }
}

fn is_exposed(listener: &ListenerSettings) -> bool {
    !listener.address.ip().is_loopback()
}

/// Whether two sockets with these addresses conflict.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && (any || one.ip() == other.ip())
}

/// The server whose name and separator a tool name begins with, and the rest of the name.
fn of_server<'a>(name: &'a str, servers: &'a [ServerName]) -> Option<(&'a ServerName, &'a str)> {
    let rest = |server: &'a ServerName| {
        let rest = name.strip_prefix(server.as_str())?.strip_prefix(BETWEEN)?;
        (!rest.is_empty()).then_some((server, rest))
    };
    servers.iter().find_map(rest)
}

/// Whether the `servers` of an entry, or their absence, include `server`.
fn covers(named: Option<&Value>, server: &ServerName) -> bool {
    let Some(named) = named.and_then(Value::as_array) else { return true };
    let mut named = named.iter().filter_map(Value::as_str);
    named.any(|pattern| Pattern::new(pattern).matches(server.as_str()))
}
