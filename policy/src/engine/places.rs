//! Lists the members of messages and how each is treated: one table for both directions and both protocol eras.
//!
//! Members that the table does not name are inspected, so a member of a later revision or of a private extension is
//! inspected too. A test compares the table with the members of the protocol's schemas (`places/members.txt`), so
//! that none is forgotten, and the end-to-end tests put a marked value into every place.

/// The sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageSender {
    /// The client sends it.
    Client,
    /// The server sends it.
    Server,
}

/// The part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePart {
    /// The `params` of a request. Includes what a modern server requests in a result.
    Request,
    /// The `result` of a request.
    Result,
    /// The `error` of a response.
    Error,
    /// The `params` of a notification.
    Notification,
}

/// How a place is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceTreatment {
    /// The detectors and the guardrails of the route inspect every string and name.
    Inspect,
    /// The gateway seals the value on its way to the other side, which returns it sealed: only its author reads it.
    Sealed,
    /// The gateway reads the value, and forwards only values that the protocol lists.
    Closed,
    /// The value is not forwarded: the gateway writes its own, or none.
    Rebuilt,
}

/// Places with the same treatment: these JSON Pointers in messages of these methods.
#[derive(Clone, Copy, Debug)]
pub struct PlaceRow {
    /// The sender of the message.
    pub side: MessageSender,
    /// The part of the message.
    pub part: MessagePart,
    /// The methods; `*` matches any.
    pub methods: &'static [&'static str],
    /// JSON Pointers into the params, result or error. Values below them are treated alike.
    pub at: &'static [&'static str],
    /// How the places are treated.
    pub treatment: PlaceTreatment,
}

const fn places(
    side: MessageSender,
    part: MessagePart,
    methods: &'static [&'static str],
    treatment: PlaceTreatment,
    at: &'static [&'static str],
) -> PlaceRow {
    PlaceRow { side, part, methods, at, treatment }
}

/// Places of task ids in results of servers.
const TASK_IDS: [&str; 4] = [
    "/taskId",
    "/task/taskId",
    "/_meta/io.modelcontextprotocol~1related-task/taskId",
    "/result/_meta/io.modelcontextprotocol~1related-task/taskId",
];

/// Place of the state that a server wants returned to it.
const STATE: [&str; 1] = ["/requestState"];

const ANY: &[&str] = &["*"];
const LISTS: &[&str] =
    &["tools/list", "prompts/list", "resources/list", "resources/templates/list", "skills/list"];
const ASKING: &[&str] = &["tools/call", "prompts/get", "resources/read"];
const TASKS: &[&str] = &["tasks/get", "tasks/result", "tasks/update", "tasks/cancel"];

/// The table. The row with the longest pointer applies; among equals, the one that names the method.
#[rustfmt::skip]
pub const PLACES: &[PlaceRow] = &[
    // Requests of clients.
    places(MessageSender::Client, MessagePart::Request, ANY, PlaceTreatment::Inspect, &[
        "/_meta", "/_meta/io.modelcontextprotocol~1clientInfo", "/_meta/io.modelcontextprotocol~1clientCapabilities",
        "/_meta/traceparent", "/_meta/tracestate",
    ]),
    places(MessageSender::Client, MessagePart::Request, ANY, PlaceTreatment::Closed, &[
        "/_meta/io.modelcontextprotocol~1protocolVersion", "/_meta/io.modelcontextprotocol~1logLevel",
    ]),
    places(MessageSender::Client, MessagePart::Request, ANY, PlaceTreatment::Rebuilt, &[
        "/_meta/progressToken", "/_meta/io.modelcontextprotocol~1subscriptionId", "/_meta/baggage",
    ]),
    places(MessageSender::Client, MessagePart::Request, &["initialize"], PlaceTreatment::Inspect, &["/capabilities", "/clientInfo"]),
    places(MessageSender::Client, MessagePart::Request, &["initialize"], PlaceTreatment::Closed, &["/protocolVersion"]),
    // The gateway answers these itself, and sends its own requests to the servers.
    places(MessageSender::Client, MessagePart::Request, &["initialize", "ping", "server/discover", "logging/setLevel"], PlaceTreatment::Rebuilt, &["/_meta"]),
    places(MessageSender::Client, MessagePart::Request, LISTS, PlaceTreatment::Rebuilt, &["/_meta"]),
    places(MessageSender::Client, MessagePart::Request, &["subscriptions/listen"], PlaceTreatment::Rebuilt, &["/_meta"]),
    places(MessageSender::Client, MessagePart::Request, &["tasks/list"], PlaceTreatment::Rebuilt, &["/_meta", "/cursor"]),
    // The gateway issues no cursors, so it accepts none.
    places(MessageSender::Client, MessagePart::Request, LISTS, PlaceTreatment::Closed, &["/cursor"]),
    places(MessageSender::Client, MessagePart::Request, ASKING, PlaceTreatment::Inspect, &["/arguments", "/inputResponses"]),
    places(MessageSender::Client, MessagePart::Request, ASKING, PlaceTreatment::Sealed, &STATE),
    places(MessageSender::Client, MessagePart::Request, &["tools/call", "prompts/get"], PlaceTreatment::Inspect, &["/name"]),
    places(MessageSender::Client, MessagePart::Request, &["tools/call"], PlaceTreatment::Inspect, &["/task", "/task/ttl"]),
    places(MessageSender::Client, MessagePart::Request, &["resources/read", "resources/subscribe", "resources/unsubscribe", "skills/get"], PlaceTreatment::Inspect, &["/uri"]),
    places(MessageSender::Client, MessagePart::Request, &["completion/complete"], PlaceTreatment::Inspect, &[
        "/argument", "/argument/name", "/argument/value", "/context", "/context/arguments", "/ref/name", "/ref/uri",
    ]),
    places(MessageSender::Client, MessagePart::Request, &["completion/complete"], PlaceTreatment::Closed, &["/ref/type"]),
    places(MessageSender::Client, MessagePart::Request, &["completion/complete"], PlaceTreatment::Rebuilt, &["/ref", "/ref/title"]),
    places(MessageSender::Client, MessagePart::Request, &["logging/setLevel"], PlaceTreatment::Closed, &["/level"]),
    places(MessageSender::Client, MessagePart::Request, &["subscriptions/listen"], PlaceTreatment::Rebuilt, &["/notifications"]),
    places(MessageSender::Client, MessagePart::Request, &["subscriptions/listen"], PlaceTreatment::Closed, &[
        "/notifications/toolsListChanged", "/notifications/promptsListChanged", "/notifications/resourcesListChanged",
    ]),
    places(MessageSender::Client, MessagePart::Request, &["subscriptions/listen"], PlaceTreatment::Inspect, &["/notifications/resourceSubscriptions"]),
    places(MessageSender::Client, MessagePart::Request, TASKS, PlaceTreatment::Sealed, &["/taskId"]),
    // Notifications of clients.
    places(MessageSender::Client, MessagePart::Notification, &["notifications/cancelled"], PlaceTreatment::Rebuilt, &[
        "/requestId", "/reason", "/_meta", "/_meta/io.modelcontextprotocol~1subscriptionId",
    ]),
    places(MessageSender::Client, MessagePart::Notification, &["notifications/progress"], PlaceTreatment::Rebuilt, &[
        "/progressToken", "/progress", "/total", "/message", "/_meta",
    ]),
    places(MessageSender::Client, MessagePart::Notification, &["notifications/initialized", "notifications/roots/list_changed"], PlaceTreatment::Rebuilt, &["/_meta"]),
    places(MessageSender::Client, MessagePart::Notification, &["notifications/tasks/status"], PlaceTreatment::Inspect, &[
        "/_meta", "/taskId", "/status", "/statusMessage", "/createdAt", "/lastUpdatedAt", "/pollInterval", "/ttl",
    ]),
    // Responses of clients.
    places(MessageSender::Client, MessagePart::Result, &["elicitation/create"], PlaceTreatment::Inspect, &["/action", "/content", "/_meta"]),
    places(MessageSender::Client, MessagePart::Result, &["roots/list"], PlaceTreatment::Inspect, &["/roots", "/_meta"]),
    places(MessageSender::Client, MessagePart::Result, &["sampling/createMessage"], PlaceTreatment::Inspect, &["/content", "/model", "/role", "/stopReason", "/_meta"]),
    // The gateway answers these requests of servers itself.
    places(MessageSender::Client, MessagePart::Result, &["ping"], PlaceTreatment::Rebuilt, &["/_meta"]),
    places(MessageSender::Client, MessagePart::Result, &["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"], PlaceTreatment::Rebuilt, &[
        "/_meta", "/taskId", "/status", "/statusMessage", "/createdAt", "/lastUpdatedAt", "/pollInterval", "/ttl", "/tasks", "/nextCursor",
    ]),
    places(MessageSender::Client, MessagePart::Error, ANY, PlaceTreatment::Inspect, &["/code", "/message", "/data"]),
    // Requests of servers.
    places(MessageSender::Server, MessagePart::Request, &["elicitation/create"], PlaceTreatment::Inspect, &[
        "/message", "/requestedSchema", "/url", "/elicitationId", "/task", "/task/ttl", "/_meta", "/_meta/progressToken",
    ]),
    places(MessageSender::Server, MessagePart::Request, &["elicitation/create"], PlaceTreatment::Closed, &["/mode"]),
    places(MessageSender::Server, MessagePart::Request, &["sampling/createMessage"], PlaceTreatment::Inspect, &[
        "/messages", "/systemPrompt", "/modelPreferences", "/stopSequences", "/temperature", "/metadata", "/tools", "/toolChoice",
        "/task", "/task/ttl", "/_meta", "/_meta/progressToken",
    ]),
    places(MessageSender::Server, MessagePart::Request, &["sampling/createMessage"], PlaceTreatment::Closed, &["/maxTokens", "/includeContext"]),
    places(MessageSender::Server, MessagePart::Request, &["roots/list"], PlaceTreatment::Inspect, &["/_meta", "/_meta/progressToken"]),
    places(MessageSender::Server, MessagePart::Request, &["ping"], PlaceTreatment::Rebuilt, &["/_meta", "/_meta/progressToken"]),
    places(MessageSender::Server, MessagePart::Request, &["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"], PlaceTreatment::Rebuilt, &[
        "/taskId", "/cursor", "/_meta", "/_meta/progressToken",
    ]),
    // Notifications of servers.
    places(MessageSender::Server, MessagePart::Notification, ANY, PlaceTreatment::Inspect, &["/_meta"]),
    places(MessageSender::Server, MessagePart::Notification, ANY, PlaceTreatment::Rebuilt, &["/_meta/io.modelcontextprotocol~1subscriptionId"]),
    places(MessageSender::Server, MessagePart::Notification, &["notifications/progress"], PlaceTreatment::Inspect, &["/message"]),
    places(MessageSender::Server, MessagePart::Notification, &["notifications/progress"], PlaceTreatment::Closed, &["/progress"]),
    places(MessageSender::Server, MessagePart::Notification, &["notifications/progress"], PlaceTreatment::Inspect, &["/total"]),
    places(MessageSender::Server, MessagePart::Notification, &["notifications/progress"], PlaceTreatment::Rebuilt, &["/progressToken"]),
    places(MessageSender::Server, MessagePart::Notification, &["notifications/message"], PlaceTreatment::Inspect, &["/data", "/logger", "/level"]),
    places(MessageSender::Server, MessagePart::Notification, &["notifications/resources/updated"], PlaceTreatment::Inspect, &["/uri"]),
    places(MessageSender::Server, MessagePart::Notification, &["notifications/elicitation/complete"], PlaceTreatment::Inspect, &["/elicitationId"]),
    places(MessageSender::Server, MessagePart::Notification, &["notifications/cancelled"], PlaceTreatment::Rebuilt, &["/requestId", "/reason", "/_meta"]),
    places(MessageSender::Server, MessagePart::Notification, &["notifications/subscriptions/acknowledged"], PlaceTreatment::Rebuilt, &[
        "/_meta", "/notifications", "/notifications/toolsListChanged", "/notifications/promptsListChanged",
        "/notifications/resourcesListChanged", "/notifications/resourceSubscriptions",
    ]),
    // Clients poll the state of a task.
    places(MessageSender::Server, MessagePart::Notification, &["notifications/tasks/status"], PlaceTreatment::Rebuilt, &[
        "/_meta", "/taskId", "/status", "/statusMessage", "/createdAt", "/lastUpdatedAt", "/pollInterval", "/ttl",
    ]),
    // Responses of servers.
    places(MessageSender::Server, MessagePart::Result, ANY, PlaceTreatment::Inspect, &["/_meta"]),
    places(MessageSender::Server, MessagePart::Result, ANY, PlaceTreatment::Closed, &["/resultType"]),
    places(MessageSender::Server, MessagePart::Result, &["initialize", "server/discover"], PlaceTreatment::Inspect, &[
        "/capabilities", "/instructions", "/serverInfo", "/_meta/io.modelcontextprotocol~1serverInfo",
    ]),
    places(MessageSender::Server, MessagePart::Result, &["initialize", "server/discover"], PlaceTreatment::Closed, &["/protocolVersion", "/supportedVersions"]),
    places(MessageSender::Server, MessagePart::Result, &["initialize", "server/discover", "subscriptions/listen", "ping", "logging/setLevel"], PlaceTreatment::Rebuilt, &["/_meta"]),
    places(MessageSender::Server, MessagePart::Result, &["resources/subscribe", "resources/unsubscribe"], PlaceTreatment::Inspect, &["/_meta"]),
    places(MessageSender::Server, MessagePart::Result, &["server/discover"], PlaceTreatment::Rebuilt, &["/ttlMs", "/cacheScope"]),
    places(MessageSender::Server, MessagePart::Result, &["subscriptions/listen"], PlaceTreatment::Rebuilt, &[
        "/_meta/io.modelcontextprotocol~1serverInfo", "/_meta/io.modelcontextprotocol~1subscriptionId",
    ]),
    places(MessageSender::Server, MessagePart::Result, LISTS, PlaceTreatment::Inspect, &[
        "/tools", "/prompts", "/resources", "/resourceTemplates", "/skills", "/_meta/io.modelcontextprotocol~1serverInfo",
    ]),
    places(MessageSender::Server, MessagePart::Result, &["skills/get"], PlaceTreatment::Inspect, &["/skill", "/ttlMs", "/cacheScope"]),
    places(MessageSender::Server, MessagePart::Result, LISTS, PlaceTreatment::Rebuilt, &["/nextCursor", "/ttlMs", "/cacheScope"]),
    places(MessageSender::Server, MessagePart::Result, ASKING, PlaceTreatment::Inspect, &[
        "/content", "/structuredContent", "/isError", "/task", "/task/status", "/task/statusMessage", "/task/createdAt",
        "/task/lastUpdatedAt", "/task/pollInterval", "/task/ttl", "/messages", "/description", "/contents", "/ttlMs",
        "/cacheScope", "/inputRequests", "/_meta/io.modelcontextprotocol~1serverInfo",
    ]),
    places(MessageSender::Server, MessagePart::Result, ASKING, PlaceTreatment::Sealed, &STATE),
    places(MessageSender::Server, MessagePart::Result, &["tools/call"], PlaceTreatment::Sealed, &TASK_IDS),
    places(MessageSender::Server, MessagePart::Result, TASKS, PlaceTreatment::Sealed, &TASK_IDS),
    places(MessageSender::Server, MessagePart::Result, TASKS, PlaceTreatment::Inspect, &[
        "/status", "/statusMessage", "/createdAt", "/lastUpdatedAt", "/pollInterval", "/ttl",
    ]),
    places(MessageSender::Server, MessagePart::Result, &["tasks/list"], PlaceTreatment::Rebuilt, &["/_meta", "/tasks", "/nextCursor"]),
    places(MessageSender::Server, MessagePart::Result, &["completion/complete"], PlaceTreatment::Inspect, &[
        "/completion", "/_meta/io.modelcontextprotocol~1serverInfo",
    ]),
    places(MessageSender::Server, MessagePart::Error, ANY, PlaceTreatment::Inspect, &["/code", "/message", "/data"]),
];

/// Kind of a server's result, which determines its sealed members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// The result requests input from the client: its state is sealed.
    Asking,
    /// A result of a tool call or about a task: task ids are sealed.
    OfCall,
    /// Any other result: nothing is sealed.
    Plain,
}

impl ResultKind {
    /// JSON Pointers of the strings that are sealed on their way to the client.
    #[must_use]
    pub const fn sealed(self) -> &'static [&'static str] {
        match self {
            Self::Asking => &STATE,
            Self::OfCall => &TASK_IDS,
            Self::Plain => &[],
        }
    }
}

/// How a place is treated: by the longest pointer in the table that leads to it or above it. Places not in the table
/// are inspected.
#[must_use]
pub fn treatment(side: MessageSender, part: MessagePart, method: &str, at: &str) -> PlaceTreatment {
    let leads =
        |to: &str| at.strip_prefix(to).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let (mut best, mut found) = ((0, false), PlaceTreatment::Inspect);
    for row in PLACES.iter().filter(|row| row.side == side && row.part == part) {
        let Some(exact) = row.named(method) else { continue };
        for to in row.at.iter().filter(|to| leads(to)) {
            if (to.len(), exact) > best {
                (best, found) = ((to.len(), exact), row.treatment);
            }
        }
    }
    found
}

impl PlaceRow {
    /// Whether the row names the method itself rather than `*`; `None` if it does not apply to the method.
    fn named(&self, method: &str) -> Option<bool> {
        if self.methods.contains(&method) {
            return Some(true);
        }
        self.methods.contains(&"*").then_some(false)
    }
}

/// Whether a client could take the member name `key` for `_meta`: parsers that ignore case, and the MCP SDK for Python,
/// which reads `meta` where there is no `_meta`.
#[must_use]
pub fn is_meta(key: &str) -> bool {
    key.strip_prefix('_').unwrap_or(key).eq_ignore_ascii_case("meta")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{MessagePart, MessageSender, PLACES, PlaceTreatment, ResultKind, treatment};

    /// The members of the schemas of 2025-11-25 and 2026-07-28, one per line: sender, part, method, place, and the
    /// revisions that have it.
    const MEMBERS: &str = include_str!("places/members.txt");

    fn members() -> impl Iterator<Item = (MessageSender, MessagePart, &'static str, &'static str)> {
        MEMBERS.lines().map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let side =
                if words[0] == "client" { MessageSender::Client } else { MessageSender::Server };
            let part = match words[1] {
                "request" => MessagePart::Request,
                "result" => MessagePart::Result,
                "error" => MessagePart::Error,
                _ => MessagePart::Notification,
            };
            (side, part, words[2], words[3])
        })
    }

    #[test]
    fn every_member_of_the_schema_is_in_the_table() {
        let mut count = 0;
        for (side, part, method, at) in members() {
            let known = PLACES.iter().any(|row| {
                row.side == side
                    && row.part == part
                    && row.named(method).is_some()
                    && row.at.contains(&at)
            });
            assert!(known, "{side:?} {part:?} {method} {at}: say how it is treated");
            count += 1;
        }
        assert!(count > 250, "{count}");
    }

    #[test]
    fn no_place_is_said_twice() {
        let mut seen = BTreeSet::new();
        for row in PLACES {
            for (method, at) in
                row.methods.iter().flat_map(|m| row.at.iter().map(move |at| (m, at)))
            {
                let place = format!("{:?} {:?} {method} {at}", row.side, row.part);
                assert!(seen.insert(place.clone()), "{place}");
            }
        }
    }

    #[test]
    fn what_nobody_knows_is_inspected() {
        for at in ["", "/new", "/_meta/x", "/requestStateful", "/arguments/requestState"] {
            let found = treatment(MessageSender::Client, MessagePart::Request, "tools/call", at);
            assert_eq!(found, PlaceTreatment::Inspect, "{at}");
        }
        assert_eq!(
            treatment(MessageSender::Server, MessagePart::Result, "vendor/method", "/requestState"),
            PlaceTreatment::Inspect
        );
        assert_eq!(
            treatment(
                MessageSender::Client,
                MessagePart::Request,
                "tools/call",
                "/_meta/progressToken"
            ),
            PlaceTreatment::Rebuilt
        );
    }

    #[test]
    fn what_inspection_leaves_out_is_what_the_table_says_is_sealed() {
        for (answer, method) in [
            (ResultKind::Asking, "tools/call"),
            (ResultKind::Asking, "prompts/get"),
            (ResultKind::Asking, "resources/read"),
            (ResultKind::OfCall, "tools/call"),
            (ResultKind::OfCall, "tasks/get"),
            (ResultKind::OfCall, "tasks/result"),
        ] {
            for at in answer.sealed() {
                let said = treatment(MessageSender::Server, MessagePart::Result, method, at);
                assert_eq!(said, PlaceTreatment::Sealed, "{method} {at}");
            }
        }
        assert!(ResultKind::Plain.sealed().is_empty());
    }
}
