//! What we know about tools ourselves: who answers for them, what they do, how much of it is let
//! through. A server's own annotations are what the server says (threat T1302).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::json::Value;
use crate::kind::Kind;
use crate::labels::Labels;
use crate::pin::{Digest, Subject};

/// What a tool does to what it touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// It only reads.
    Read,
    /// It changes something that can be changed back.
    Write,
    /// It changes something that cannot.
    Destructive,
}

impl Effect {
    /// Its name in conditions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Destructive => "destructive",
        }
    }
}

/// How sensitive what a tool returns is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DataClass {
    /// For everybody.
    Public,
    /// For those who belong here.
    Internal,
    /// For those who need it.
    Confidential,
    /// For those who are named.
    Restricted,
}

impl DataClass {
    /// Its name in conditions.
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

/// So many calls of one caller in so much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many; at least one.
    pub count: u32,
    /// In how much time.
    pub per: Duration,
}

/// What we know about one tool.
#[derive(Clone, Debug, Default)]
pub struct Registered {
    /// Who answers for it.
    pub owner: Option<Box<str>>,
    /// Which version of it this is about.
    pub version: Option<Box<str>>,
    /// What it does.
    pub effect: Option<Effect>,
    /// How sensitive what it returns is.
    pub data_class: Option<DataClass>,
    /// A person has to approve each call.
    pub approval_required: bool,
    /// Which resources it touches.
    pub resource_scope: Option<Box<str>>,
    /// How long a call may take.
    pub timeout: Option<Duration>,
    /// How often a client may repeat a call that failed.
    pub retries: u32,
    /// A call that is made twice does what it does once.
    pub idempotent: bool,
    /// How often one caller may call it.
    pub rate: Option<Rate>,
    /// The digest of the input schema it has to have.
    pub schema: Option<Digest>,
    /// Which members of what it gives back are sensitive, beside those its own schema labels.
    pub labels: Labels,
}

impl Registered {
    /// The digest of an input schema.
    #[must_use]
    pub fn digest(schema: Value<'_>) -> Option<Digest> {
        Digest::of(Subject::Offer(Kind::Tool), schema).ok()
    }

    /// Whether a definition has the input schema it has to have.
    #[must_use]
    pub fn fits(&self, definition: Value<'_>) -> bool {
        let of = |definition: Value<'_>| Self::digest(definition.get("inputSchema")?);
        self.schema.is_none_or(|schema| of(definition) == Some(schema))
    }
}

/// What we know about tools, by server and name.
#[derive(Debug, Default)]
pub struct Registry {
    tools: BTreeMap<Box<str>, BTreeMap<Box<str>, Registered>>,
}

impl Registry {
    /// Adds a tool; whether it was not there before.
    pub fn add(&mut self, server: &str, tool: &str, registered: Registered) -> bool {
        self.tools.entry(server.into()).or_default().insert(tool.into(), registered).is_none()
    }

    /// The names of the tools of a server that something is known of.
    pub fn names(&self, server: &str) -> impl Iterator<Item = &str> {
        self.tools.get(server).into_iter().flat_map(BTreeMap::keys).map(|name| &**name)
    }

    /// What is known of a tool.
    #[must_use]
    pub fn get(&self, server: &str, kind: Kind, name: &str) -> Option<&Registered> {
        if kind != Kind::Tool {
            return None;
        }
        self.tools.get(server)?.get(name)
    }
}
