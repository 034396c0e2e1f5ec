//! What somebody wants to be told of a server without asking each time.

use policy::json::Value;
use policy::message::{Call, Use, Verb};
use policy::offer::Kind;
use policy::pipeline::Permit;

use crate::mcp::protocol::method;
use crate::mcp::wire::{Notification, Object};

/// Most resources one listener waits for, and may name.
pub const RESOURCES: usize = 256;

/// In how many places a URI is kept that a client listens for: for the client, for its server, and in what is
/// listened for.
const PLACES: usize = 3;
/// Bytes that each of them takes beside the text.
const BESIDE: usize = 128;

/// How many bytes it takes to listen for a resource.
#[must_use]
pub const fn listening_bytes(uri: &str) -> usize {
    PLACES * (uri.len() + BESIDE)
}

/// What somebody wants to be told of one server. Made of permits alone.
#[derive(Clone, Debug, Default)]
pub struct Wants {
    pub(super) kinds: Vec<Kind>,
    pub(super) resources: Vec<Box<str>>,
    /// Everything the server says to a session, questions among it: what a legacy client gets.
    pub(super) everything: bool,
}

impl Wants {
    /// Nothing yet, or everything a server says to a session.
    #[must_use]
    pub fn new(everything: bool) -> Self {
        Self { everything, ..Self::default() }
    }

    /// Adds what `permit` is for: a list stands for its changes, a subscription for the resource.
    /// Says whether there was room for it.
    pub fn add(&mut self, permit: Permit) -> bool {
        match permit.spend().0 {
            Call::List { kind, .. } => {
                self.kinds.push(kind);
                true
            }
            Call::Use(Use { verb: Verb::Subscribe, name, .. }) => {
                let room = self.resources.len() < RESOURCES;
                if room && !self.resources.contains(&name) {
                    self.resources.push(name);
                }
                room
            }
            Call::Use(_) => false,
        }
    }

    /// Whether there is nothing to listen for.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.resources.is_empty() && !self.everything
    }

    /// How many bytes it takes to listen for the resources that it names.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.resources.iter().map(|uri| listening_bytes(uri)).sum()
    }

    /// Whether it names resources, in words of whoever wants it.
    #[must_use]
    pub const fn names_resources(&self) -> bool {
        !self.resources.is_empty()
    }

    /// Whether everything a server says to the session is wanted.
    #[must_use]
    pub const fn everything(&self) -> bool {
        self.everything
    }

    /// Whether changes of the lists of `kind` are wanted.
    #[must_use]
    pub fn wants(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    /// Takes back what a modern server does not agree to.
    pub(super) fn limit(&mut self, agreed: Value<'_>) {
        let says = |kind: Kind| {
            flag(kind).and_then(|flag| agreed.get(flag)).and_then(Value::as_bool) == Some(true)
        };
        self.kinds.retain(|kind| says(*kind));
        let listed = agreed.get("resourceSubscriptions");
        let has = |uri: &str| {
            listed.is_some_and(|listed| {
                listed.items().any(|item| item.as_str().as_deref() == Some(uri))
            })
        };
        self.resources.retain(|uri| has(uri));
    }

    /// Adds what `other` wants, with every URI as `shown` makes it.
    pub fn merge(&mut self, other: &Self, shown: impl Fn(&str) -> String) {
        self.kinds.extend(
            other
                .kinds
                .iter()
                .filter(|kind| !self.kinds.contains(kind))
                .copied()
                .collect::<Vec<_>>(),
        );
        self.resources.extend(other.resources.iter().map(|uri| shown(uri).into()));
    }

    /// The members of a filter.
    pub fn show(&self, filter: &mut Object<'_>) {
        for kind in [Kind::Tool, Kind::Prompt, Kind::Resource] {
            if let Some(flag) = flag(kind).filter(|_| self.wants(kind)) {
                filter.raw(flag, "true");
            }
        }
        if !self.resources.is_empty() {
            let out = filter.key("resourceSubscriptions");
            out.push(b'[');
            for (n, uri) in self.resources.iter().enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                policy::json::write_string(out, uri);
            }
            out.push(b']');
        }
    }

    /// Whether a notification is wanted.
    #[must_use]
    pub fn admits(&self, told: &Notification) -> bool {
        match &*told.method {
            method::UPDATED => {
                let uri = told.params.as_ref().and_then(|params| params.value().get("uri"));
                let uri = uri.and_then(Value::as_str);
                uri.is_some_and(|uri| self.resources.iter().any(|wanted| **wanted == *uri))
            }
            name => changed(name).is_some_and(|kind| self.wants(kind)),
        }
    }
}

/// The member of a filter that stands for the changes of a list.
#[must_use]
pub const fn flag(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Tool => Some("toolsListChanged"),
        Kind::Prompt => Some("promptsListChanged"),
        Kind::Resource => Some("resourcesListChanged"),
        Kind::Template | Kind::Method => None,
    }
}

/// The kind whose list a notification says has changed.
#[must_use]
pub fn changed(name: &str) -> Option<Kind> {
    match name {
        method::TOOLS_CHANGED => Some(Kind::Tool),
        method::PROMPTS_CHANGED => Some(Kind::Prompt),
        method::RESOURCES_CHANGED => Some(Kind::Resource),
        _ => None,
    }
}
