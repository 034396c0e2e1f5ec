//! A list of tools that follows what its caller has found (`discovery.loads`): which tools it has besides the others, and how
//! its caller is told that it has changed.
//!
//! The names that are kept choose from what `tools/list` would show the caller without discovery, decided anew for each
//! list. So a name that a caller may not use any more is in no list.

use std::collections::BTreeSet;
use std::sync::Arc;

use json::{Fragment, Value};
use policy::definition::offer::ItemKind;

use super::flows::{flow_part, owner};
use super::standing_stream::StandingStream;
use super::{DecodedRequest, Gateway, Route};
use crate::audit::Record;
use crate::base::share::Holder;
use crate::edge::encode::{self, ListedNames, ShownNotification};
use crate::mcp::protocol::method;
use crate::mcp::wire::Id;
use crate::session::loaded_tools::{LoadKey, LoadListener};

impl Gateway {
    /// The list that follows what this request finds; `None` if no list does.
    fn load_key(&self, arrived: &DecodedRequest, record: &Record) -> Option<LoadKey> {
        arrived.route.loads()?;
        let caller = match &arrived.holder {
            Holder::Caller(principal) => owner(principal),
            // No principal has a name that begins with a control character.
            Holder::Network(address) => format!("\0{address}").into(),
        };
        let part = flow_part(&self.policy, arrived, record);
        Some(LoadKey { route: Arc::clone(&arrived.route.path), caller, part })
    }

    /// Adds tools that a caller was shown to its list, by their names on the route, the most important one last.
    pub(super) fn load(&self, arrived: &DecodedRequest, record: &Record, names: Vec<Box<str>>) {
        let Some((key, most)) = self.load_key(arrived, record).zip(arrived.route.loads()) else {
            return;
        };
        let always = arrived.route.only(ItemKind::Tool).unwrap_or_default();
        let names = names.into_iter().filter(|name| !encode::is_among(name, always)).collect();
        self.loaded_tools.load(&key, names, most, self.clock.instant());
    }

    /// Notes that the list of a request's caller is in use.
    pub(super) fn keep_loaded(&self, arrived: &DecodedRequest, record: &Record) {
        if let Some(key) = self.load_key(arrived, record) {
            self.loaded_tools.touch(&key, self.clock.instant());
        }
    }

    /// The names of the tools that a caller has found; `None` if its list does not follow that.
    pub(super) fn loaded(
        &self,
        arrived: &DecodedRequest,
        kind: ItemKind,
        record: &Record,
    ) -> Option<BTreeSet<Box<str>>> {
        let key = self.load_key(arrived, record).filter(|_| kind == ItemKind::Tool)?;
        Some(self.loaded_tools.names(&key, self.clock.instant()))
    }

    /// Forgets what was found in a session that has ended.
    pub(super) fn unload(&self, arrived: &DecodedRequest, record: &Record) {
        if let Some(key) = self.load_key(arrived, record) {
            self.loaded_tools.forget(&key);
        }
    }

    /// Listens for changes of the list of a caller; `None` if it does not follow what was found, or the caller may use
    /// nothing on the route.
    pub(super) fn listen_for_loads(
        &self,
        arrived: &DecodedRequest,
        record: &Record,
    ) -> Option<LoadListener> {
        let key = self.load_key(arrived, record).filter(|_| self.may_use_any(arrived))?;
        Some(self.loaded_tools.listen(key))
    }

    /// Tells the client of a session on its stream when its list has changed by what it has found.
    pub(super) fn forward_loads(
        &self,
        arrived: &DecodedRequest,
        record: &Record,
        stream: &StandingStream,
    ) {
        let Some(loads) = self.listen_for_loads(arrived, record) else { return };
        let stream = stream.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stream.over(None) => {}
                () = forwarded(loads, &stream) => {}
            }
        });
    }
}

/// Tells the client of a session that its list has changed by what it has found, until its stream is over.
async fn forwarded(mut loads: LoadListener, stream: &StandingStream) {
    loop {
        tokio::select! {
            () = loads.changed() => {}
            () = stream.events.over() => return,
        }
        if stream.gateway.may_use_any_of(&stream.route, &stream.caller) {
            stream.tell(None, &tools_changed(None)).await;
        }
    }
}

/// Whether a subscription filter asks for changes of the list of tools.
pub(super) fn wants_tools(filter: &Fragment) -> bool {
    let flag = crate::upstream::flag(ItemKind::Tool).and_then(|flag| filter.value().get(flag));
    flag.and_then(Value::as_bool) == Some(true)
}

/// Resolves when the list of a caller has changed; never without a listener.
pub(super) async fn loads_changed(loads: &mut Option<LoadListener>) {
    match loads {
        Some(loads) => loads.changed().await,
        None => std::future::pending().await,
    }
}

/// The notification that the list of tools has changed, as part of a subscription if there is one.
pub(super) fn tools_changed(subscription: Option<&Id>) -> Vec<u8> {
    let told = ShownNotification { method: method::TOOLS_CHANGED.into(), params: None };
    match subscription {
        Some(id) => encode::subscription_notification(&told, &[], id),
        None => encode::notification(&told, &[]),
    }
}

/// Which tools of servers the list of a route has.
pub(super) fn listed_names<'a>(
    route: &'a Route,
    kind: ItemKind,
    loaded: Option<&'a BTreeSet<Box<str>>>,
) -> Option<ListedNames<'a>> {
    route.only(kind).map(|patterns| ListedNames { patterns, loaded })
}
