//! The notifications of one upstream server that a listener is permitted to receive.

use std::collections::BTreeSet;

use json::Value;
use policy::definition::offer::ItemKind;
use policy::engine::message::{ClientRequest, ItemRequest, RequestOperation};
use policy::engine::pipeline::{Permit, ServerPermit};
use policy_core::subject::name::ServerName;

use crate::mcp::protocol::method;
use crate::mcp::wire::Object;

/// The maximum number of resources one listener may subscribe to.
pub const RESOURCES: usize = 256;

/// The lists whose changes can be subscribed to.
pub const SUBSCRIBABLE_LISTS: [ItemKind; 3] =
    [ItemKind::Tool, ItemKind::Prompt, ItemKind::Resource];

/// The number of copies kept of a subscribed URI: for the client, for its server, and in the filter.
const PLACES: usize = 3;
/// Overhead in bytes of each copy.
const BESIDE: usize = 128;

/// Memory in bytes that the subscription to a resource takes.
#[must_use]
pub const fn listening_bytes(uri: &str) -> usize {
    PLACES * (uri.len() + BESIDE)
}

/// Lists and resources whose notifications are listened for.
#[derive(Clone, Debug, Default)]
pub struct ListenedItems {
    kinds: Vec<ItemKind>,
    resources: Vec<Box<str>>,
}

impl ListenedItems {
    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.resources.is_empty()
    }

    /// The changes of one list.
    #[must_use]
    pub fn of_list(kind: ItemKind) -> Self {
        Self { kinds: vec![kind], ..Self::default() }
    }

    /// The URIs of the resources.
    #[must_use]
    pub fn resources(&self) -> &[Box<str>] {
        &self.resources
    }

    /// Adds those of `other`, with every URI converted by `shown`.
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
        for kind in SUBSCRIBABLE_LISTS {
            if let Some(flag) = flag(kind).filter(|_| self.kinds.contains(&kind)) {
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
                json::write_string(out, uri);
            }
            out.push(b']');
        }
    }
}

/// The notifications of one server that a listener may receive: proof for [`Upstream::listen`], made of permits only. It
/// cannot be copied.
///
/// ```
/// # use gateway::upstream::NotificationFilter;
/// # use policy::engine::pipeline::{Permit, ServerPermit};
/// # fn wanted(server: ServerPermit, tools: Permit) {
/// let mut wants = NotificationFilter::new(server);
/// let is_added = wants.add(tools);
/// # }
/// ```
///
/// ```compile_fail,E0599
/// let wants = gateway::upstream::NotificationFilter::default(); // of no server
/// ```
///
/// ```compile_fail,E0308
/// # use gateway::upstream::NotificationFilter;
/// # use policy::engine::pipeline::{ServerPermit, Standing};
/// # fn wanted(server: ServerPermit, tools: Standing) {
/// let mut wants = NotificationFilter::new(server);
/// let is_added = wants.add(tools); // the answer to a question
/// # }
/// ```
///
/// [`Upstream::listen`]: super::Upstream::listen
#[derive(Debug)]
pub struct NotificationFilter {
    server: ServerName,
    items: ListenedItems,
    /// All messages of a session, including requests of the server: what a legacy client gets.
    everything: bool,
}

impl NotificationFilter {
    /// A filter for nothing of a server yet.
    #[must_use]
    pub fn new(permit: ServerPermit) -> Self {
        Self { server: permit.into_server(), items: ListenedItems::default(), everything: false }
    }

    /// A filter for everything that a server sends in a session.
    #[must_use]
    pub fn of_session(permit: ServerPermit) -> Self {
        Self { everything: true, ..Self::new(permit) }
    }

    /// Adds what `permit` allows: a list permit stands for its list-changed notifications, a subscription permit for
    /// its resource. Returns whether it was added; one for another server is not.
    pub fn add(&mut self, permit: Permit) -> bool {
        let Self { server: own, items, .. } = self;
        match permit.spend().0 {
            ClientRequest::List { server, kind } if server == *own => {
                items.kinds.push(kind);
                true
            }
            ClientRequest::Use(ItemRequest {
                server,
                verb: RequestOperation::Subscribe,
                name,
                ..
            }) if server == *own => {
                let room = items.resources.len() < RESOURCES;
                if room && !items.resources.contains(&name) {
                    items.resources.push(name);
                }
                room
            }
            ClientRequest::List { .. } | ClientRequest::Use(_) => false,
        }
    }

    /// The server that it is for.
    #[must_use]
    pub const fn server(&self) -> &ServerName {
        &self.server
    }

    /// The lists and resources.
    #[must_use]
    pub const fn items(&self) -> &ListenedItems {
        &self.items
    }

    /// The same once more, for a subscription that was lost.
    pub(super) fn again(&self) -> Self {
        let Self { server, items, everything } = self;
        Self { server: server.clone(), items: items.clone(), everything: *everything }
    }

    /// Removes all lists and resources, because the server offers no subscriptions.
    pub(super) fn clear(&mut self) {
        self.items = ListenedItems::default();
    }

    /// Removes a resource that the server refuses to watch.
    pub(super) fn remove(&mut self, uri: &str) {
        self.items.resources.retain(|wanted| **wanted != *uri);
    }

    /// Whether there is nothing to listen for.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty() && !self.everything
    }

    /// Memory in bytes that the subscriptions to its resources take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.items.resources.iter().map(|uri| listening_bytes(uri)).sum()
    }

    /// Whether it names resources, whose URIs were chosen by the client.
    #[must_use]
    pub const fn names_resources(&self) -> bool {
        !self.items.resources.is_empty()
    }

    /// Whether it covers everything a server sends in a session.
    #[must_use]
    pub const fn everything(&self) -> bool {
        self.everything
    }

    /// Whether it covers list-changed notifications of `kind`.
    #[must_use]
    pub fn wants(&self, kind: ItemKind) -> bool {
        self.items.kinds.contains(&kind)
    }

    /// Removes what a modern server did not agree to.
    pub(super) fn limit(&mut self, agreed: Value<'_>) {
        let says = |kind: ItemKind| {
            flag(kind).and_then(|flag| agreed.get(flag)).and_then(Value::as_bool) == Some(true)
        };
        self.items.kinds.retain(|kind| says(*kind));
        // Read once, however many a server lists.
        let listed =
            agreed.get("resourceSubscriptions").into_iter().flat_map(|listed| listed.items());
        let listed = listed.filter_map(|item| item.as_str());
        let wanted: BTreeSet<&str> = self.items.resources.iter().map(|uri| &**uri).collect();
        let agreed: BTreeSet<Box<str>> =
            listed.filter_map(|uri| wanted.get(&*uri).map(|uri| (*uri).into())).collect();
        self.items.resources.retain(|uri| agreed.contains(uri));
    }

    /// Whether a notification is covered, by its method and its params.
    #[must_use]
    pub fn admits(&self, told: &str, params: Option<Value<'_>>) -> bool {
        match told {
            method::UPDATED => {
                let uri = params.and_then(|params| params.get("uri"));
                let uri = uri.and_then(Value::as_str);
                uri.is_some_and(|uri| self.items.resources.iter().any(|wanted| **wanted == *uri))
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
        ItemKind::Template | ItemKind::Skill | ItemKind::Method => None,
    }
}

/// The list-changed notification for lists of `kind`; `None` for kinds that have none.
pub(super) const fn list_changed(kind: ItemKind) -> Option<&'static str> {
    match kind {
        ItemKind::Tool => Some(method::TOOLS_CHANGED),
        ItemKind::Prompt => Some(method::PROMPTS_CHANGED),
        ItemKind::Resource => Some(method::RESOURCES_CHANGED),
        ItemKind::Template | ItemKind::Skill | ItemKind::Method => None,
    }
}

/// The kind of list that a list-changed notification is about; `None` for other notifications.
#[must_use]
pub fn changed(name: &str) -> Option<ItemKind> {
    SUBSCRIBABLE_LISTS.into_iter().find(|kind| list_changed(*kind) == Some(name))
}
