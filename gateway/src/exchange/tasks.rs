//! Tasks: tool calls that are answered with a task id first and with a result later.
//!
//! Covers the extension `io.modelcontextprotocol/tasks` of 2026-07-28 and the experimental tasks of 2025-11-25. The
//! client never sees the server's task id. It gets an id that is encrypted for it and names the server and the tool, so
//! that the rules for that tool decide about the task.

use std::ops::Range;
use std::sync::Arc;

use json::{Document, Fragment, JsonBounds, Value, write_string};
use policy_core::subject::principal::Principal;

use super::{DecodedRequest, Gateway, Route};
use crate::edge::decode::UseOperation;
use crate::edge::encode::Replacement;
use crate::mcp::wire;
use crate::upstream::Upstream;

/// Names the format in the associated data of the cipher.
const FORMAT: &[u8] = b"portcullis task v1";
/// The member of `_meta` that names the task of a message (2025-11-25).
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// The task that a client's task id stands for.
pub(super) struct UpstreamTask {
    /// Index of the server on the route.
    pub(super) server_index: usize,
    /// The tool that created it, with the name that the server uses.
    pub(super) tool: Box<str>,
    /// The server's task id, as it is sent in `params`.
    pub(super) id: Fragment,
}

impl Gateway {
    /// Decrypts a task id; `None` unless it was given to this caller on this route.
    pub(super) fn task(
        &self,
        arrived: &DecodedRequest,
        ask: &UseOperation,
    ) -> Option<UpstreamTask> {
        let route = arrived.route.identity();
        let principal = arrived.caller.principal.key();
        let bound = [FORMAT, principal.as_bytes(), route.as_bytes()];
        let plain = String::from_utf8(self.sealer.open(&bound, &ask.name)?).ok()?;
        let mut parts = plain.splitn(3, '\0');
        let (server, tool, id) = (parts.next()?, parts.next()?, parts.next()?);
        let servers = &arrived.route.servers;
        let server_index = servers.iter().position(|known| known.name().as_str() == server)?;
        let mut text = Vec::new();
        write_string(&mut text, id);
        let id = Document::parse(text.into(), &JsonBounds::MESSAGE).ok()?;
        Some(UpstreamTask { server_index, tool: tool.into(), id: Fragment::whole(Arc::new(id)) })
    }

    /// The spans of task ids in a result, with the encrypted ids for the client.
    pub(super) fn task_ids(
        &self,
        principal: &Principal,
        route: &Route,
        server: &Upstream,
        tool: &str,
        result: Value<'_>,
    ) -> Vec<Replacement> {
        let route = route.identity();
        let principal = principal.key();
        let bound = [FORMAT, principal.as_bytes(), route.as_bytes()];
        let related = |holder: Value<'_>| {
            let ids = wire::metas(holder).filter_map(|meta| meta.get(RELATED)?.get("taskId"));
            ids.map(of).collect::<Vec<_>>()
        };
        fn of(value: Value<'_>) -> (Range<usize>, Option<String>) {
            (value.span(), value.as_str().map(Into::into))
        }
        let named = [result.get("taskId"), result.get("task").and_then(|task| task.get("taskId"))];
        let named = named.into_iter().flatten().map(of);
        let holders = [Some(result), result.get("result")].into_iter().flatten();
        let places = named.chain(holders.flat_map(related));
        let seal = |(span, id): (Range<usize>, Option<String>)| {
            let plain = format!("{}\0{tool}\0{}", server.name(), id?);
            Some(Replacement::text(span, &self.sealer.seal_same(&bound, plain.into_bytes()).ok()?))
        };
        places.filter_map(seal).collect()
    }
}
