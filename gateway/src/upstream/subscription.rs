//! The notifications of one upstream server that a listener is permitted to receive.

use policy::definition::offer::ItemKind;
use policy::engine::message::{ClientRequest, ItemRequest, RequestOperation};
use policy::engine::pipeline::Permit;
use policy::json::Value;

use crate::mcp::protocol::method;
use crate::mcp::wire::{Notification, Object};

/// The maximum number of resources one listener may subscribe to.
pub const RESOURCES: usize = 256;

/// The number of copies kept of a subscribed URI: for the client, for its server, and in the filter.
const PLACES: usize = 3;
/// Overhead in bytes of each copy.
const BESIDE: usize = 128;

/// Memory in bytes that the subscription to a resource takes.
#[must_use]
pub const fn listening_bytes(uri: &str) -> usize {
    PLACES * (uri.len() + BESIDE)
}

/// The notifications of one server that a listener wants. Built from permits only.
#[derive(Clone, Debug, Default)]
pub struct NotificationFilter {
    pub(super) kinds: Vec<ItemKind>,
    pub(super) resources: Vec<Box<str>>,
    /// All messages of a session, including requests of the server: what a legacy client gets.
    pub(super) everything: bool,
}

impl NotificationFilter {
    /// A filter for everything that a server sends in a session.
    #[must_use]
    pub fn of_session() -> Self {
        Self { everything: true, ..Self::default() }
    }

    /// Adds what `permit` allows: a list permit stands for its list-changed notifications, a subscription permit for
    /// its resource. Returns whether it was added.
    pub fn add(&mut self, permit: Permit) -> bool {
        match permit.spend().0 {
            ClientRequest::List { kind, .. } => {
                self.kinds.push(kind);
                true
            }
            ClientRequest::Use(ItemRequest { verb: RequestOperation::Subscribe, name, .. }) => {
                let room = self.resources.len() < RESOURCES;
                if room && !self.resources.contains(&name) {
                    self.resources.push(name);
                }
                room
            }
            ClientRequest::Use(_) => false,
        }
    }

    /// Whether there is nothing to listen for.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.resources.is_empty() && !self.everything
    }

    /// Memory in bytes that the subscriptions to its resources take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.resources.iter().map(|uri| listening_bytes(uri)).sum()
    }

    /// Whether it names resources, whose URIs were chosen by the client.
    #[must_use]
    pub const fn names_resources(&self) -> bool {
        !self.resources.is_empty()
    }

    /// Whether it covers everything a server sends in a session.
    #[must_use]
    pub const fn everything(&self) -> bool {
        self.everything
    }

    /// Whether it covers list-changed notifications of `kind`.
    #[must_use]
    pub fn wants(&self, kind: ItemKind) -> bool {
        self.kinds.contains(&kind)
    }

    /// Removes what a modern server did not agree to.
    pub(super) fn limit(&mut self, agreed: Value<'_>) {
        let says = |kind: ItemKind| {
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

    /// Adds what `other` covers, with every URI converted by `shown`.
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

    /// Writes the members of a `notifications` filter.
    pub fn show(&self, filter: &mut Object<'_>) {
        for kind in [ItemKind::Tool, ItemKind::Prompt, ItemKind::Resource] {
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

    /// Whether a notification is covered.
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

/// The filter member for list-changed notifications of `kind`; `None` for kinds that have none.
#[must_use]
pub const fn flag(kind: ItemKind) -> Option<&'static str> {
    match kind {
        ItemKind::Tool => Some("toolsListChanged"),
        ItemKind::Prompt => Some("promptsListChanged"),
        ItemKind::Resource => Some("resourcesListChanged"),
        ItemKind::Template | ItemKind::Method => None,
    }
}

/// The kind of list that a list-changed notification is about; `None` for other notifications.
#[must_use]
pub fn changed(name: &str) -> Option<ItemKind> {
    match name {
        method::TOOLS_CHANGED => Some(ItemKind::Tool),
        method::PROMPTS_CHANGED => Some(ItemKind::Prompt),
        method::RESOURCES_CHANGED => Some(ItemKind::Resource),
        _ => None,
    }
}
