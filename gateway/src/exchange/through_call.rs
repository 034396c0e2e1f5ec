//! Whether a call may come through the tool of the gateway that it came through, and what is said if it may not.

use json::Value;
use policy::definition::offer::{CatalogItem, ItemKind};
use policy::definition::registry::ToolEffect;
use policy::engine::pipeline::Policy;
use policy_core::subject::name::ServerName;

use super::nested_call::{UnclearCall, example};
use crate::edge::failure::{CallCorrection, DiscoveryMistake, Failure};
use crate::mcp::discovery_tools::{CallMend, DiscoveryTool, ThroughCall, effect_of};

/// The class of a tool of a server: by what the operator says of it, and otherwise by what the server says.
pub(super) fn class_of(policy: &Policy, server: &ServerName, offer: &CatalogItem) -> ToolEffect {
    let name = offer.name().as_str();
    let sink = policy.flow().sink_of(server, ItemKind::Tool, name);
    let known = policy.registered(server, ItemKind::Tool, name);
    let registered = known.and_then(|known| known.effect).filter(|_| sink.is_none());
    registered.unwrap_or_else(|| effect_of(sink, offer.definition()))
}

/// A call that the policy permits.
pub(super) struct PermittedCall<'a> {
    pub(super) server: &'a ServerName,
    /// The name on the route.
    pub(super) shown_name: &'a str,
    /// What the server lists under the name.
    pub(super) offer: Option<&'a CatalogItem>,
    pub(super) arguments: Option<Value<'a>>,
}

/// Whether a permitted call may come through the tool of the gateway that it came through.
///
/// # Errors
/// With the correction, if the tool has another class, or if something was mended that the tool does not bear out.
pub(super) fn fits_through(
    policy: &Policy,
    through: &ThroughCall,
    called: &PermittedCall<'_>,
) -> Result<(), Failure> {
    let PermittedCall { server, shown_name, offer, arguments } = *called;
    let class = offer.map_or(ToolEffect::Destructive, |offer| class_of(policy, server, offer));
    if class != through.class {
        let text = format!(
            "Nothing was called: this tool has the class {}. Call {} with the same `name` and `arguments`.",
            class.as_str(),
            DiscoveryTool::Call(class).name(),
        );
        let correction = CallCorrection { mistake: DiscoveryMistake::Class, text };
        return Err(Failure::Discovery(Box::new(correction)));
    }
    if !through.mended.contains(&CallMend::MissingWrapper) {
        return Ok(());
    }
    let properties =
        offer.and_then(|offer| offer.definition().get("inputSchema")?.get("properties"));
    let is_known = |key: &str| properties.is_some_and(|properties| properties.get(key).is_some());
    let mut given = arguments.into_iter().flat_map(Value::members);
    if given.all(|(key, _)| is_known(&key)) {
        return Ok(());
    }
    let parameters = example_parameters(offer);
    let example = example(DiscoveryTool::Call(class).name(), Some(shown_name), &parameters);
    let text = format!(
        "Nothing was called: the parameters have to be in `arguments`, and not all members beside `name` are parameters of \
         this tool. Call {example}."
    );
    Err(malformed(text))
}

/// Values for the required parameters of a tool, by their types, as JSON.
fn example_parameters(offer: Option<&CatalogItem>) -> Vec<(String, &'static str)> {
    let schema = offer.and_then(|offer| offer.definition().get("inputSchema"));
    let required = schema.and_then(|schema| schema.get("required"));
    let names = required.into_iter().flat_map(Value::items).filter_map(Value::as_str);
    let is_plain = |name: &str| {
        name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let value = |name: &str| {
        let property = schema.and_then(|schema| schema.get("properties")?.get(name));
        match property.and_then(|one| one.get("type")?.as_str()).as_deref() {
            Some("integer" | "number") => "1",
            Some("boolean") => "true",
            Some("array") => "[]",
            Some("object") => "{}",
            _ => "\"…\"",
        }
    };
    let names = names.filter(|name| is_plain(name)).take(8);
    names.map(|name| (name.as_ref().to_owned(), value(&name))).collect()
}

/// The failure of a call that is not clear, with an example of one that is.
pub(super) fn unclear_call(class: ToolEffect, unclear: &UnclearCall) -> Failure {
    let parameters = [("PARAMETER".to_owned(), "\"…\"")];
    let example = example(DiscoveryTool::Call(class).name(), unclear.name.as_deref(), &parameters);
    malformed(format!(
        "Nothing was called: {}. Call {example}, with the name and the parameters that find_tools shows.",
        unclear.mistake
    ))
}

pub(super) fn malformed(text: String) -> Failure {
    let correction = CallCorrection { mistake: DiscoveryMistake::Form, text };
    Failure::Discovery(Box::new(correction))
}
