//! The operator's own metadata about tools: owner, effect, limits. Annotations of a server are only its own claims
//! (threat T1302).

use std::collections::BTreeMap;
use std::time::Duration;

use detection::labels::Labels;
use json::{Value, write_name, write_string};
use policy_core::subject::kind::ItemKind;

use crate::definition::pin::{Digest, DigestSubject};

/// Member of the `_meta` of a definition whose description is not the server's: it says whose it is.
pub const DESCRIBED: &str = "dev.portcullis/description";

/// What a tool does to the data it touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ToolEffect {
    /// The tool only reads.
    Read,
    /// The tool makes changes that can be undone.
    Write,
    /// The tool makes changes that cannot be undone.
    Destructive,
}

impl ToolEffect {
    /// Name of the effect in conditions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Destructive => "destructive",
        }
    }
}

/// Sensitivity of what a tool returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DataClass {
    /// Data for the general public.
    Public,
    /// Data for members of the organization.
    Internal,
    /// Data for those with a need to know.
    Confidential,
    /// Data for explicitly named principals.
    Restricted,
}

impl DataClass {
    /// Name of the class in conditions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Confidential => "confidential",
            Self::Restricted => "restricted",
        }
    }
}

/// A rate limit: calls of one caller in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Number of calls; at least one.
    pub count: u32,
    /// Length of the period.
    pub per: Duration,
}

/// The registry entry of one tool.
#[derive(Clone, Debug, Default)]
pub struct RegistryEntry {
    /// Person or team responsible for the tool.
    pub owner: Option<Box<str>>,
    /// The description that clients see in place of the server's.
    pub description: Option<Box<str>>,
    /// Version of the tool that the entry describes.
    pub version: Option<Box<str>>,
    /// What the tool does to the data it touches.
    pub effect: Option<ToolEffect>,
    /// Sensitivity of what the tool returns.
    pub data_class: Option<DataClass>,
    /// Whether a person has to approve each call.
    pub approval_required: bool,
    /// Resources that the tool touches.
    pub resource_scope: Option<Box<str>>,
    /// Longest duration of a call.
    pub timeout: Option<Duration>,
    /// How often a call is repeated whose connection failed, if it is idempotent.
    pub retries: u32,
    /// Whether a repeated call has no further effect.
    pub idempotent: bool,
    /// What a call costs, in the units of budgets.
    pub cost: Option<u64>,
    /// Whether the same call may be made again and again.
    pub may_repeat: bool,
    /// Rate limit of each caller.
    pub rate: Option<RateLimit>,
    /// Digest that the input schema must have.
    pub schema: Option<Digest>,
    /// Sensitive members of its results, in addition to those its output schema labels.
    pub labels: Labels,
}

impl RegistryEntry {
    /// The digest of an input schema; `None` if it cannot be computed.
    #[must_use]
    pub fn digest(schema: Value<'_>) -> Option<Digest> {
        Digest::of(DigestSubject::Offer(ItemKind::Tool), schema).ok()
    }

    /// A definition with the description of this entry, marked as such in `_meta`; `None` if the entry has none.
    #[must_use]
    pub fn described(&self, definition: Value<'_>) -> Option<Vec<u8>> {
        let text = self.description.as_deref()?;
        let mut out = Vec::with_capacity(definition.raw().len() + text.len());
        out.extend_from_slice(br#"{"description":"#);
        write_string(&mut out, text);
        let own = definition.members().filter(|(name, _)| name != "description");
        for (name, value) in own.filter(|(name, _)| name != "_meta") {
            out.push(b',');
            write_name(&mut out, &name);
            out.extend_from_slice(value.raw().as_bytes());
        }
        out.extend_from_slice(br#","_meta":{"#);
        let meta = definition.get("_meta").filter(|meta| meta.is_object());
        for (name, value) in meta.into_iter().flat_map(Value::members) {
            write_name(&mut out, &name);
            out.extend_from_slice(value.raw().as_bytes());
            out.push(b',');
        }
        write_name(&mut out, DESCRIBED);
        out.extend_from_slice(br#""operator"}}"#);
        Some(out)
    }

    /// Whether the input schema of a definition has the required digest, or none is required.
    #[must_use]
    pub fn fits(&self, definition: Value<'_>) -> bool {
        let of = |definition: Value<'_>| Self::digest(definition.get("inputSchema")?);
        self.schema.is_none_or(|schema| of(definition) == Some(schema))
    }
}

/// Registry entries by server and tool name.
#[derive(Debug, Default)]
pub struct Registry {
    tools: BTreeMap<Box<str>, BTreeMap<Box<str>, RegistryEntry>>,
    /// Whether some tool requires approvals.
    requires_approvals: bool,
}

impl Registry {
    /// Adds a tool; returns whether it was new.
    pub fn add(&mut self, server: &str, tool: &str, registered: RegistryEntry) -> bool {
        self.requires_approvals |= registered.approval_required;
        self.tools.entry(server.into()).or_default().insert(tool.into(), registered).is_none()
    }

    /// Whether calls of some tool require the approval of a person.
    #[must_use]
    pub const fn requires_approvals(&self) -> bool {
        self.requires_approvals
    }

    /// Names of the registered tools of a server.
    pub fn names(&self, server: &str) -> impl Iterator<Item = &str> {
        self.tools.get(server).into_iter().flat_map(BTreeMap::keys).map(|name| &**name)
    }

    /// The entry of a tool; `None` for other kinds and for tools that are not registered.
    #[must_use]
    pub fn get(&self, server: &str, kind: ItemKind, name: &str) -> Option<&RegistryEntry> {
        if kind != ItemKind::Tool {
            return None;
        }
        self.tools.get(server)?.get(name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{DataClass, ToolEffect};

    #[test]
    fn every_effect_and_class_has_a_name_of_its_own_in_conditions() {
        let effects = [ToolEffect::Read, ToolEffect::Write, ToolEffect::Destructive];
        let effects = effects.map(ToolEffect::as_str);
        assert_eq!(effects, ["read", "write", "destructive"]);
        let classes = [
            DataClass::Public,
            DataClass::Internal,
            DataClass::Confidential,
            DataClass::Restricted,
        ];
        let classes: BTreeSet<_> = classes.map(DataClass::as_str).into();
        assert_eq!(classes.len(), 4);
        // The names are those that a configuration uses.
        for class in classes {
            let read: DataClass = serde_json::from_value(class.into()).unwrap();
            assert_eq!(read.as_str(), class);
        }
    }
}
