//! Builds catalogs of approved definitions for servers that have not been listed yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use json::{Document, JsonBounds, write_string};
use policy_core::subject::kind::ItemKind;
use policy_core::subject::name::ServerName;

use super::looks;
use crate::definition::lock::{ApprovalState, LockedServer, LockedVersion, Lockfile};
use crate::definition::offer::{Catalog, CatalogItem};

/// The approved tools and prompts of these servers, as catalogs to compare with those of other servers.
///
/// Each server has at least one catalog of either kind, so that its own name is known as well. Approved versions with
/// equal or similar names are in different catalogs, so that they do not count as duplicate names of one server.
#[must_use]
pub fn approved<'a>(
    lock: &Lockfile,
    servers: impl IntoIterator<Item = &'a ServerName>,
) -> Vec<Arc<Catalog>> {
    let nothing = LockedServer::default();
    let mut catalogs = Vec::new();
    for server in servers.into_iter().filter(|server| !server.is_reserved()) {
        let locked = lock.servers.get(server.as_str()).unwrap_or(&nothing);
        for kind in [ItemKind::Tool, ItemKind::Prompt] {
            let apart = apart(offers(locked, kind));
            let of = |offers| Arc::new(Catalog::new(server.clone(), kind, offers));
            catalogs.extend(apart.into_iter().map(of));
        }
    }
    catalogs
}

/// The approved definitions of one kind.
fn offers(locked: &LockedServer, kind: ItemKind) -> impl Iterator<Item = CatalogItem> {
    let of_kind = locked.offers.iter().filter(move |((of, _), _)| *of == kind);
    of_kind.flat_map(move |((_, name), versions)| {
        let approved = versions.iter().filter(|version| version.state == ApprovalState::Approved);
        approved.filter_map(move |version| offer(kind, name, version))
    })
}

/// One approved definition; reduced to its name if it cannot be read.
fn offer(kind: ItemKind, name: &str, version: &LockedVersion) -> Option<CatalogItem> {
    let document = version.definition.document();
    let read = CatalogItem::read_to_compare(kind, version.definition.value(), &document).ok();
    read.filter(|offer| offer.name().as_str() == name).or_else(|| named(kind, name))
}

/// A definition that contains only a name.
fn named(kind: ItemKind, name: &str) -> Option<CatalogItem> {
    let mut text = b"{\"name\":".to_vec();
    write_string(&mut text, name);
    text.push(b'}');
    let document = Arc::new(Document::parse(text.into(), &JsonBounds::MESSAGE).ok()?);
    CatalogItem::read_to_compare(kind, document.root(), &document).ok()
}

/// Distributes the definitions over as many lists as needed for the names within each to look different. Returns at
/// least one list, which may be empty.
fn apart(offers: impl Iterator<Item = CatalogItem>) -> Vec<Vec<CatalogItem>> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut lists = vec![Vec::new()];
    for offer in offers {
        let count = seen.entry(looks(offer.name().as_str())).or_default();
        match lists.get_mut(*count) {
            Some(list) => list.push(offer),
            None => lists.push(vec![offer]),
        }
        *count += 1;
    }
    lists
}
