//! Lists of tools with short descriptions, and what lists cost the context of a model.

use std::any::Any;
use std::sync::{Arc, Weak};

use json::{Document, JsonBounds};
use policy::definition::offer::ItemKind;
use policy::engine::pipeline::{Facts, Policy};
use policy_core::base::work::WorkBudget;
use policy_core::subject::principal::Principal;

use super::route::Route;
use super::tool_index::CallerListing;
use super::{DecodedRequest, Gateway};
use crate::base::offload::OffloadError;
use crate::edge::encode::is_among;
use crate::mcp::model_text::model_tokens;
use crate::metrics::list_tokens::{ListTokenCount, OWN_TOOLS, ShownTools};
use crate::upstream::{RenderedView, ShortList};

impl Gateway {
    /// The lists with descriptions within the budget of the route; empty if it has none, or if its list has no tool of a
    /// server.
    pub(super) async fn short_lists(
        &self,
        arrived: &DecodedRequest,
        kind: ItemKind,
        shown: &[CallerListing],
    ) -> Result<Vec<Arc<ShortList>>, OffloadError> {
        let budget = arrived.route.description_budget(kind);
        let Some(budget) = budget.filter(|_| arrived.route.only(kind) != Some(&[])) else {
            return Ok(Vec::new());
        };
        let known = shown.iter().map(|(_, written)| written.known_short(budget));
        if let Some(known) = known.collect() {
            return Ok(known);
        }
        let bytes: usize = shown.iter().map(|(_, written)| written.offers().len()).sum();
        let views: Vec<_> = shown.iter().map(|(_, written)| Arc::clone(written)).collect();
        let shorten = move |_: &Policy, _: &Facts, _: &Arc<Principal>, work: &WorkBudget| {
            let short = |view: &Arc<RenderedView>| {
                work.spend(view.offers().len()).then(|| view.short(budget))
            };
            views.iter().map(short).collect::<Option<Vec<_>>>()
        };
        // The vocabulary of tokens may have to be read.
        let bytes = bytes.max(self.limits.inspected_inline);
        let short = self.inspect(&arrived.caller.principal, bytes, shorten).await?;
        short.ok_or(OffloadError::Late)
    }

    /// Forgets the lists of routes and servers that the configuration no longer has.
    pub fn keep_list_tokens(&self) {
        self.metrics.keep_lists(|path, server| {
            let route = self.routes.get(path);
            let has = |route: &Arc<Route>| {
                server == OWN_TOOLS || route.servers.iter().any(|one| one.name().as_str() == server)
            };
            route.is_some_and(has)
        });
    }

    /// Notes what a list of tools has, so that it is counted when metrics are read. A list that the route has shown before
    /// is not noted again, so that showing it takes no lock.
    pub(super) fn note_list_tokens(
        &self,
        route: &Arc<Route>,
        shown: &[CallerListing],
        short: &[Arc<ShortList>],
        own: OwnDefinitions<'_>,
    ) {
        let reader = Arc::as_ptr(route).addr();
        let mut is_any_new = false;
        for (n, (listing, written)) in shown.iter().enumerate() {
            if !written.is_new_to(reader) {
                continue;
            }
            is_any_new = true;
            let tools = ServerTools {
                route: Arc::downgrade(route),
                view: Arc::downgrade(written),
                short: short.get(n).map(Arc::downgrade),
                bytes: written.offers().len(),
            };
            let server = listing.catalog().server().as_str();
            self.metrics.note_list(&route.path, server, Arc::new(tools));
        }
        let OwnDefinitions { discovery, others } = own;
        if is_any_new && !(discovery.is_empty() && others.is_empty()) {
            let tools = OwnTools { discovery: discovery.to_vec(), others: others.to_vec() };
            self.metrics.note_list(&route.path, OWN_TOOLS, Arc::new(tools));
        }
    }
}

/// The definitions of the gateway itself in a list, as JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnDefinitions<'a> {
    /// The tools of discovery.
    pub(super) discovery: &'a [Vec<u8>],
    /// Decoys and the tool of the channel between two planners.
    pub(super) others: &'a [Vec<u8>],
}

/// The tools of a server in a list. It keeps neither the list nor the route.
#[derive(Debug)]
struct ServerTools {
    route: Weak<Route>,
    view: Weak<RenderedView>,
    short: Option<Weak<ShortList>>,
    bytes: usize,
}

impl ShownTools for ServerTools {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn unread(&self) -> usize {
        let view = self.view.upgrade().filter(|view| !view.has_tokens());
        let short = self.short.as_ref().and_then(Weak::upgrade);
        let short = short.filter(|short| !short.has_tokens());
        let view = view.map_or(0, |view| view.offers().len());
        view + short.map_or(0, |short| short.offers().len())
    }

    fn is_same(&self, others: &dyn ShownTools) -> bool {
        let is_short = |others: &Self| match (&self.short, &others.short) {
            (Some(one), Some(other)) => one.ptr_eq(other),
            (None, None) => true,
            _ => false,
        };
        let others = (others as &dyn Any).downcast_ref::<Self>();
        others.is_some_and(|others| {
            self.route.ptr_eq(&others.route) && self.view.ptr_eq(&others.view) && is_short(others)
        })
    }

    fn count(&self) -> Option<ListTokenCount> {
        let (route, view) = (self.route.upgrade()?, self.view.upgrade()?);
        let short = match &self.short {
            None => None,
            Some(short) => Some(short.upgrade()?),
        };
        let full = view.tokens();
        let shown = short.as_ref().map_or(full, |short| short.tokens());
        let only = route.only(ItemKind::Tool);
        let listed = view.items().iter().zip(shown);
        let listed = listed.filter(|(item, _)| only.is_none_or(|only| is_among(item.name(), only)));
        let sum = |tokens: usize| u64::try_from(tokens).unwrap_or(u64::MAX);
        Some(ListTokenCount {
            shown: sum(listed.map(|(_, tokens)| *tokens).sum()),
            full: sum(full.iter().sum()),
        })
    }
}

/// The gateway's own tools in a list.
#[derive(Debug, PartialEq, Eq)]
struct OwnTools {
    discovery: Vec<Vec<u8>>,
    others: Vec<Vec<u8>>,
}

impl ShownTools for OwnTools {
    fn bytes(&self) -> usize {
        self.discovery.iter().chain(&self.others).map(Vec::len).sum()
    }

    fn unread(&self) -> usize {
        self.bytes()
    }

    fn is_same(&self, others: &dyn ShownTools) -> bool {
        (others as &dyn Any).downcast_ref::<Self>().is_some_and(|others| self == others)
    }

    fn count(&self) -> Option<ListTokenCount> {
        let tokens = |definition: &Vec<u8>| {
            let document = Document::parse(definition.clone().into(), &JsonBounds::ANSWER);
            // INVARIANT: the gateway wrote it.
            document.map_or(0, |one| u64::try_from(model_tokens(one.root())).unwrap_or(u64::MAX))
        };
        let sum = |all: &[Vec<u8>]| all.iter().map(tokens).sum::<u64>();
        let full = sum(&self.others);
        Some(ListTokenCount { shown: full + sum(&self.discovery), full })
    }
}
