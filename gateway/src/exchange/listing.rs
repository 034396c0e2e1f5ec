//! `tools/list`

use std::sync::Arc;

use futures_util::future::join_all;
use http::Response;
use policy::pipeline::{Permit, Shown, View};

use super::{Arrived, Gateway};
use crate::audit::{Entry, Record, Verdict};
use crate::body::Body;
use crate::ending::Ending;
use crate::failure::Failure;
use crate::reply;
use crate::upstream::{Listing, Upstream, UpstreamError, Written};
use crate::wire::Id;

impl Gateway {
    /// Lists what the caller may see of every server on the route.
    pub(super) async fn list(&self, arrived: Arrived, mut record: Box<Record>) -> Response<Body> {
        let id = arrived.id.clone().unwrap_or(Id::Number(0));
        let era = arrived.inbound.version.era();
        let mut permits = Vec::new();
        for (place, server) in arrived.route.servers.iter().enumerate() {
            let ruling = self.policy.admit_list(&arrived.caller.principal, server.name());
            let granted = ruling.outcome.ok().map(|permit| permits.push((place, server, permit)));
            if granted.is_some() || permits.is_empty() {
                record.verdict = Verdict::Decided(Box::new(ruling.decision));
            }
        }
        if let [server] = &*arrived.route.servers {
            record.server = Some(server.name().as_str().into());
        }
        let mut entry = match self.journal.open_read(record) {
            Ok(entry) => entry,
            Err(error) => return reply::error(&Failure::Audit(error).public(Some(era)), Some(&id)),
        };
        let started = self.clock.instant();
        let reads = permits
            .into_iter()
            .map(|(place, server, permit)| self.read(&arrived, &entry, place, server, permit));
        let read = join_all(reads).await;
        let took = self.clock.instant().saturating_duration_since(started);
        let mut shown = Vec::new();
        let mut failed = None;
        for result in read {
            match result {
                Ok(part) => shown.push(part),
                Err(error) => failed = Some(error),
            }
        }
        if let Some(record) = entry.record() {
            record.upstream = took;
            let count = |(seen, hidden): (usize, usize), part: &(Arc<Listing>, Arc<Written>)| {
                let (more, withheld) = part.1.view.counts();
                (seen + more, hidden + withheld)
            };
            record.listed = Some(shown.iter().fold((0, 0), count));
        }
        match failed {
            Some(error) if shown.is_empty() => {
                self.failed(entry, &Failure::Upstream(error), Some(&id))
            }
            partial => {
                let response = reply::tools(&id, era, &shown, partial.is_none());
                let reason = partial.map(|_| "partial");
                self.shown(entry, Ending { reason, ..Ending::answered() }, Some(&id), response)
            }
        }
    }

    async fn read(
        &self,
        arrived: &Arrived,
        entry: &Entry,
        place: usize,
        server: &Upstream,
        permit: Permit,
    ) -> Result<(Arc<Listing>, Arc<Written>), UpstreamError> {
        let started = self.clock.instant();
        let (due, listing) = server.list(permit, entry, arrived.leg(place)).await?;
        let took = self.clock.instant().saturating_duration_since(started);
        self.metrics.upstream(server.index(), took);
        let principal = &*arrived.caller.principal;
        let prefixed = arrived.route.prefixed();
        // What was written for an equal caller is shown again: same listing, same policy.
        let released = match listing.written(prefixed, |view| view.is_for(principal)) {
            Some(written) => {
                let released = self.policy.release_again(principal, due, &written.view);
                if let Shown::Tools(view) = released.into_shown()
                    && Arc::ptr_eq(&view, &written.view)
                {
                    return Ok((listing, written));
                }
                return Err(UpstreamError::Protocol("a view was kept for another caller"));
            }
            None => {
                let tools = policy::message::Reply::Tools(Arc::clone(listing.catalog()));
                self.policy.release(principal, due, tools)
            }
        };
        match released.into_shown() {
            Shown::Tools(view) => {
                withheld(server, &view);
                let written = listing.write(view, prefixed);
                Ok((listing, written))
            }
            Shown::Answer(_) => Err(UpstreamError::Protocol("a list was released as an answer")),
        }
    }
}

/// Tells the operator, once for each view, what a caller does not see because of what it says.
fn withheld(server: &Upstream, view: &View) {
    for (tool, decision) in view.hidden() {
        for finding in &decision.findings {
            let tool = tool.name().as_str().escape_debug().to_string();
            tracing::warn!(server = %server.name(), %tool, %finding, "a tool is withheld");
        }
    }
}
