//! Tasks: calls of tools that are answered with a handle first and with a result later.
//!
//! The extension `io.modelcontextprotocol/tasks` of 2026-07-28 and the experimental tasks of
//! 2025-11-25, each between two ends that speak it. What a server calls a task means nothing to a
//! client: it gets an id that is sealed for it, and that says which tool of which server the task
//! came of, so that the same rules decide about it.

use std::ops::Range;
use std::sync::Arc;

use policy::json::{Bounds, Document, Fragment, Value, write_string};
use policy::principal::Principal;

use super::{Arrived, Gateway, Route};
use crate::edge::decode::UseAsk;
use crate::upstream::Upstream;

/// Names the format to the cipher.
const FORMAT: &[u8] = b"portcullis task v1";
/// The member of `_meta` that says which task a message belongs to (2025-11-25).
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A server's task.
pub(super) struct Known {
    /// The place of the server on the route.
    pub(super) at: usize,
    /// The tool it came of, as its server knows it.
    pub(super) tool: Box<str>,
    /// The server's id, as the member of `params` that it is.
    pub(super) id: Fragment,
}

impl Gateway {
    /// The task an id stands for, if it was given to this caller on this route.
    pub(super) fn task(&self, arrived: &Arrived, ask: &UseAsk) -> Option<Known> {
        let route = arrived.route.identity();
        let principal = arrived.caller.principal.key();
        let bound = [FORMAT, principal.as_bytes(), route.as_bytes()];
        let plain = String::from_utf8(self.sealer.open(&bound, &ask.name)?).ok()?;
        let mut parts = plain.splitn(3, '\0');
        let (server, tool, id) = (parts.next()?, parts.next()?, parts.next()?);
        let servers = &arrived.route.servers;
        let at = servers.iter().position(|known| known.name().as_str() == server)?;
        let mut text = Vec::new();
        write_string(&mut text, id);
        let id = Document::parse(text.into(), &Bounds::MESSAGE).ok()?;
        Some(Known { at, tool: tool.into(), id: Fragment::whole(Arc::new(id)) })
    }

    /// The ids of tasks in a result, and what the client knows them by.
    pub(super) fn task_ids(
        &self,
        principal: &Principal,
        route: &Route,
        server: &Upstream,
        tool: &str,
        result: Value<'_>,
    ) -> Vec<(Range<usize>, String)> {
        let route = route.identity();
        let principal = principal.key();
        let bound = [FORMAT, principal.as_bytes(), route.as_bytes()];
        let related = |holder: Value<'_>| holder.get("_meta")?.get(RELATED)?.get("taskId").map(of);
        fn of(value: Value<'_>) -> (Range<usize>, Option<String>) {
            (value.span(), value.as_str().map(Into::into))
        }
        let places = [
            result.get("taskId").map(of),
            result.get("task").and_then(|task| task.get("taskId")).map(of),
            related(result),
            result.get("result").and_then(related),
        ];
        let seal = |(span, id): (Range<usize>, Option<String>)| {
            let plain = format!("{}\0{tool}\0{}", server.name(), id?);
            Some((span, self.sealer.seal_same(&bound, plain.into_bytes()).ok()?))
        };
        places.into_iter().flatten().filter_map(seal).collect()
    }
}
