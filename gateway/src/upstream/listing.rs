//! What a server offers, read to its last page, and how it is shown again.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use policy::json::{Document, Fragment, Value, write_string};
use policy::name::ServerName;
use policy::pipeline::View;
use policy::tool::{Catalog, Tool};

use super::error::UpstreamError;
use crate::settings::Limits;
use crate::wire::{self, LARGE};

/// Most views of one listing that are kept written out.
const VIEWS: usize = 64;
/// Members of a result that are ours to write.
const OWN: [&str; 5] = ["tools", "nextCursor", "resultType", "ttlMs", "cacheScope"];

/// Members of a definition that clients read.
const DEFINITION: [&str; 8] = [
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
    "icons",
    "_meta",
];

/// The tools of a server.
#[derive(Debug)]
pub struct Listing {
    catalog: Arc<Catalog>,
    /// Members of the result that we do not know, of the first page.
    extra: Vec<(Box<str>, Fragment)>,
    /// For how long the server says the list is fresh, in milliseconds.
    ttl: u64,
    /// The one page it was read from, and where our id stands in it.
    source: Option<(Bytes, Range<usize>)>,
    /// Written out for those who have asked.
    views: ArcSwap<Vec<Arc<Written>>>,
}

/// A view, written out.
#[derive(Debug)]
pub struct Written {
    /// What is shown.
    pub view: Arc<View>,
    prefixed: bool,
    /// The definitions with commas between them.
    pub tools: Bytes,
}

impl Listing {
    /// The tools.
    #[must_use]
    pub const fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Members of the result that we do not know.
    #[must_use]
    pub fn extra(&self) -> &[(Box<str>, Fragment)] {
        &self.extra
    }

    /// For how long the server says the list is fresh, in milliseconds.
    #[must_use]
    pub const fn ttl(&self) -> u64 {
        self.ttl
    }

    /// Whether `text`, an answer to the request `id`, says the same as the one this was read from:
    /// byte for byte, but for the id.
    ///
    /// What was read strictly once need not be read again when it comes again.
    pub(super) fn is_repeated_by(&self, text: &[u8], id: i64) -> bool {
        let Some((source, place)) = &self.source else { return false };
        let same = |range: Range<usize>| text.get(range.clone()) == source.get(range);
        text.len() == source.len()
            && same(0..place.start)
            && same(place.end..source.len())
            && text.get(place.clone()) == Some(itoa::Buffer::new().format(id).as_bytes())
    }

    /// A view that was written out before and fits `fits`.
    #[must_use]
    pub fn written(&self, prefixed: bool, fits: impl Fn(&View) -> bool) -> Option<Arc<Written>> {
        let views = self.views.load();
        let found = views.iter().find(|known| known.prefixed == prefixed && fits(&known.view));
        found.cloned()
    }

    /// Writes a view out and keeps it.
    #[must_use]
    pub fn write(&self, view: Arc<View>, prefixed: bool) -> Arc<Written> {
        let tools = write(&view, prefixed.then(|| self.catalog.server()));
        let written = Arc::new(Written { view, prefixed, tools });
        self.views.rcu(|views| {
            // Oldest first out: a view is a cache, it can be made again.
            let kept = views.iter().skip((views.len() + 1).saturating_sub(VIEWS));
            kept.cloned().chain([Arc::clone(&written)]).collect::<Vec<_>>()
        });
        written
    }
}

/// The visible definitions as they came, or with the server's name before the tool's.
fn write(view: &View, server: Option<&ServerName>) -> Bytes {
    let mut out = Vec::new();
    for tool in view.tools() {
        if !out.is_empty() {
            out.push(b',');
        }
        let definition = tool.definition();
        let name = definition.get("name").filter(|_| server.is_some());
        let (Some(name), Some(server)) = (name, server) else {
            out.extend_from_slice(definition.raw().as_bytes());
            continue;
        };
        let (whole, part) = (definition.span(), name.span());
        let raw = definition.raw().as_bytes();
        let (before, after) = (part.start - whole.start, part.end - whole.start);
        out.extend_from_slice(raw.get(..before).unwrap_or_default());
        write_string(&mut out, &format!("{server}__{}", tool.name()));
        out.extend_from_slice(raw.get(after..).unwrap_or_default());
    }
    out.into()
}

/// Collects the pages of a list.
#[derive(Debug)]
pub(super) struct Pages {
    server: ServerName,
    limits: Limits,
    tools: Vec<Tool>,
    extra: Vec<(Box<str>, Fragment)>,
    ttl: Option<u64>,
    cursors: BTreeSet<String>,
    count: usize,
}

impl Pages {
    pub(super) fn new(server: ServerName, limits: Limits) -> Self {
        let (tools, extra, cursors) = (Vec::new(), Vec::new(), BTreeSet::new());
        Self { server, limits, tools, extra, ttl: None, cursors, count: 0 }
    }

    /// Takes a page; says where the next one is. Looking at every string of a large page takes
    /// its time, so that is done on another thread.
    pub(super) async fn take(
        mut self,
        result: Fragment,
    ) -> Result<(Self, Option<String>), UpstreamError> {
        let large = result.value().span().len() > LARGE;
        let take = move || {
            let next = self.read(&result)?;
            Ok((self, next))
        };
        if !large {
            return take();
        }
        let taken = tokio::task::spawn_blocking(take).await;
        taken.unwrap_or(Err(UpstreamError::Protocol("the list could not be read")))
    }

    fn read(&mut self, result: &Fragment) -> Result<Option<String>, UpstreamError> {
        let page = result.value();
        self.count += 1;
        if self.count > self.limits.pages {
            return Err(UpstreamError::Protocol("the list has more pages than are read"));
        }
        if wire::is_misspelled(page, &OWN) {
            return Err(UpstreamError::Protocol("the list has a member in another spelling"));
        }
        let Some(tools) =
            page.get("tools").filter(|tools| tools.kind() == policy::json::Kind::Array)
        else {
            return Err(UpstreamError::Protocol("the list has no `tools`"));
        };
        let document: Arc<Document> = result.document();
        for definition in tools.items() {
            if self.tools.len() >= self.limits.tools {
                return Err(UpstreamError::Protocol("the list has more tools than are read"));
            }
            if wire::is_misspelled(definition, &DEFINITION) {
                tracing::warn!(server = %self.server, "a tool with a misspelled member was left out");
                continue;
            }
            match Tool::read(definition, &document) {
                Ok(tool) => self.tools.push(tool),
                Err(error) => {
                    let error = crate::report::Chain(&error);
                    tracing::warn!(server = %self.server, %error, "a tool was left out");
                }
            }
        }
        if self.count == 1 {
            let unknown = page.members().filter(|(key, _)| !OWN.contains(&&**key));
            self.extra =
                unknown.map(|(key, value)| (key.into(), value.fragment(&document))).collect();
        }
        let ttl = page.get("ttlMs").and_then(Value::as_i64).and_then(|ttl| u64::try_from(ttl).ok());
        self.ttl = Some(self.ttl.unwrap_or(u64::MAX).min(ttl.unwrap_or(0)));
        let Some(cursor) = page.get("nextCursor").and_then(Value::as_str) else { return Ok(None) };
        if !self.cursors.insert(cursor.clone().into_owned()) {
            return Err(UpstreamError::Protocol("the list comes back to a page it had"));
        }
        Ok(Some(cursor.into_owned()))
    }

    /// The listing of all pages; `source` is the answer, if there was but one.
    pub(super) fn finish(self, source: Option<(Bytes, Range<usize>)>) -> Listing {
        Listing {
            catalog: Arc::new(Catalog::new(self.server, self.tools)),
            extra: self.extra,
            ttl: self.ttl.unwrap_or(0),
            source: source.filter(|_| self.count == 1),
            views: ArcSwap::default(),
        }
    }
}
