//! Lists the members of messages and how each is treated: one table for both directions and both protocol eras.
//!
//! Members that the table does not name are inspected, so a member of a later revision or of a private extension is
//! inspected too. A test compares the table with the members of the protocol's schemas (`places/members.txt`), so
//! that none is forgotten, and the end-to-end tests put a marked value into every place.

/// The sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client sends it.
    Client,
    /// The server sends it.
    Server,
}

/// The part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
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
pub enum Treatment {
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
pub struct Places {
    /// The sender of the message.
    pub side: Side,
    /// The part of the message.
    pub part: Part,
    /// The methods; `*` matches any.
    pub methods: &'static [&'static str],
    /// JSON Pointers into the params, result or error. Values below them are treated alike.
    pub at: &'static [&'static str],
    /// How the places are treated.
    pub treatment: Treatment,
}

const fn places(
    side: Side,
    part: Part,
    methods: &'static [&'static str],
    treatment: Treatment,
    at: &'static [&'static str],
) -> Places {
    Places { side, part, methods, at, treatment }
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
    &["tools/list", "prompts/list", "resources/list", "resources/templates/list"];
const ASKING: &[&str] = &["tools/call", "prompts/get", "resources/read"];
const TASKS: &[&str] = &["tasks/get", "tasks/result", "tasks/update", "tasks/cancel"];

/// The table. The row with the longest pointer applies; among equals, the one that names the method.
#[rustfmt::skip]
pub const PLACES: &[Places] = &[
    // Requests of clients.
    places(Side::Client, Part::Request, ANY, Treatment::Inspect, &[
        "/_meta", "/_meta/io.modelcontextprotocol~1clientInfo", "/_meta/io.modelcontextprotocol~1clientCapabilities",
        "/_meta/traceparent", "/_meta/tracestate",
    ]),
    places(Side::Client, Part::Request, ANY, Treatment::Closed, &[
        "/_meta/io.modelcontextprotocol~1protocolVersion", "/_meta/io.modelcontextprotocol~1logLevel",
    ]),
    places(Side::Client, Part::Request, ANY, Treatment::Rebuilt, &[
        "/_meta/progressToken", "/_meta/io.modelcontextprotocol~1subscriptionId", "/_meta/baggage",
    ]),
    places(Side::Client, Part::Request, &["initialize"], Treatment::Inspect, &["/capabilities", "/clientInfo"]),
    places(Side::Client, Part::Request, &["initialize"], Treatment::Closed, &["/protocolVersion"]),
    // The gateway answers these itself, and sends its own requests to the servers.
    places(Side::Client, Part::Request, &["initialize", "ping", "server/discover", "logging/setLevel"], Treatment::Rebuilt, &["/_meta"]),
    places(Side::Client, Part::Request, LISTS, Treatment::Rebuilt, &["/_meta"]),
    places(Side::Client, Part::Request, &["subscriptions/listen"], Treatment::Rebuilt, &["/_meta"]),
    places(Side::Client, Part::Request, &["tasks/list"], Treatment::Rebuilt, &["/_meta", "/cursor"]),
    // The gateway issues no cursors, so it accepts none.
    places(Side::Client, Part::Request, LISTS, Treatment::Closed, &["/cursor"]),
    places(Side::Client, Part::Request, ASKING, Treatment::Inspect, &["/arguments", "/inputResponses"]),
    places(Side::Client, Part::Request, ASKING, Treatment::Sealed, &STATE),
    places(Side::Client, Part::Request, &["tools/call", "prompts/get"], Treatment::Inspect, &["/name"]),
    places(Side::Client, Part::Request, &["tools/call"], Treatment::Inspect, &["/task", "/task/ttl"]),
    places(Side::Client, Part::Request, &["resources/read", "resources/subscribe", "resources/unsubscribe"], Treatment::Inspect, &["/uri"]),
    places(Side::Client, Part::Request, &["completion/complete"], Treatment::Inspect, &[
        "/argument", "/argument/name", "/argument/value", "/context", "/context/arguments", "/ref/name", "/ref/uri",
    ]),
    places(Side::Client, Part::Request, &["completion/complete"], Treatment::Closed, &["/ref/type"]),
    places(Side::Client, Part::Request, &["completion/complete"], Treatment::Rebuilt, &["/ref", "/ref/title"]),
    places(Side::Client, Part::Request, &["logging/setLevel"], Treatment::Closed, &["/level"]),
    places(Side::Client, Part::Request, &["subscriptions/listen"], Treatment::Rebuilt, &["/notifications"]),
    places(Side::Client, Part::Request, &["subscriptions/listen"], Treatment::Closed, &[
        "/notifications/toolsListChanged", "/notifications/promptsListChanged", "/notifications/resourcesListChanged",
    ]),
    places(Side::Client, Part::Request, &["subscriptions/listen"], Treatment::Inspect, &["/notifications/resourceSubscriptions"]),
    places(Side::Client, Part::Request, TASKS, Treatment::Sealed, &["/taskId"]),
    // Notifications of clients.
    places(Side::Client, Part::Notification, &["notifications/cancelled"], Treatment::Rebuilt, &[
        "/requestId", "/reason", "/_meta", "/_meta/io.modelcontextprotocol~1subscriptionId",
    ]),
    places(Side::Client, Part::Notification, &["notifications/progress"], Treatment::Rebuilt, &[
        "/progressToken", "/progress", "/total", "/message", "/_meta",
    ]),
    places(Side::Client, Part::Notification, &["notifications/initialized", "notifications/roots/list_changed"], Treatment::Rebuilt, &["/_meta"]),
    places(Side::Client, Part::Notification, &["notifications/tasks/status"], Treatment::Inspect, &[
        "/_meta", "/taskId", "/status", "/statusMessage", "/createdAt", "/lastUpdatedAt", "/pollInterval", "/ttl",
    ]),
    // Responses of clients.
    places(Side::Client, Part::Result, &["elicitation/create"], Treatment::Inspect, &["/action", "/content", "/_meta"]),
    places(Side::Client, Part::Result, &["roots/list"], Treatment::Inspect, &["/roots", "/_meta"]),
    places(Side::Client, Part::Result, &["sampling/createMessage"], Treatment::Inspect, &["/content", "/model", "/role", "/stopReason", "/_meta"]),
    // The gateway answers these requests of servers itself.
    places(Side::Client, Part::Result, &["ping"], Treatment::Rebuilt, &["/_meta"]),
    places(Side::Client, Part::Result, &["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"], Treatment::Rebuilt, &[
        "/_meta", "/taskId", "/status", "/statusMessage", "/createdAt", "/lastUpdatedAt", "/pollInterval", "/ttl", "/tasks", "/nextCursor",
    ]),
    places(Side::Client, Part::Error, ANY, Treatment::Inspect, &["/code", "/message", "/data"]),
    // Requests of servers.
    places(Side::Server, Part::Request, &["elicitation/create"], Treatment::Inspect, &[
        "/message", "/requestedSchema", "/url", "/elicitationId", "/task", "/task/ttl", "/_meta", "/_meta/progressToken",
    ]),
    places(Side::Server, Part::Request, &["elicitation/create"], Treatment::Closed, &["/mode"]),
    places(Side::Server, Part::Request, &["sampling/createMessage"], Treatment::Inspect, &[
        "/messages", "/systemPrompt", "/modelPreferences", "/stopSequences", "/temperature", "/metadata", "/tools", "/toolChoice",
        "/task", "/task/ttl", "/_meta", "/_meta/progressToken",
    ]),
    places(Side::Server, Part::Request, &["sampling/createMessage"], Treatment::Closed, &["/maxTokens", "/includeContext"]),
    places(Side::Server, Part::Request, &["roots/list"], Treatment::Inspect, &["/_meta", "/_meta/progressToken"]),
    places(Side::Server, Part::Request, &["ping"], Treatment::Rebuilt, &["/_meta", "/_meta/progressToken"]),
    places(Side::Server, Part::Request, &["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"], Treatment::Rebuilt, &[
        "/taskId", "/cursor", "/_meta", "/_meta/progressToken",
    ]),
    // Notifications of servers.
    places(Side::Server, Part::Notification, ANY, Treatment::Inspect, &["/_meta"]),
    places(Side::Server, Part::Notification, ANY, Treatment::Rebuilt, &["/_meta/io.modelcontextprotocol~1subscriptionId"]),
    places(Side::Server, Part::Notification, &["notifications/progress"], Treatment::Inspect, &["/message"]),
    places(Side::Server, Part::Notification, &["notifications/progress"], Treatment::Closed, &["/progress"]),
    places(Side::Server, Part::Notification, &["notifications/progress"], Treatment::Inspect, &["/total"]),
    places(Side::Server, Part::Notification, &["notifications/progress"], Treatment::Rebuilt, &["/progressToken"]),
    places(Side::Server, Part::Notification, &["notifications/message"], Treatment::Inspect, &["/data", "/logger", "/level"]),
    places(Side::Server, Part::Notification, &["notifications/resources/updated"], Treatment::Inspect, &["/uri"]),
    places(Side::Server, Part::Notification, &["notifications/elicitation/complete"], Treatment::Inspect, &["/elicitationId"]),
    places(Side::Server, Part::Notification, &["notifications/cancelled"], Treatment::Rebuilt, &["/requestId", "/reason", "/_meta"]),
    places(Side::Server, Part::Notification, &["notifications/subscriptions/acknowledged"], Treatment::Rebuilt, &[
        "/_meta", "/notifications", "/notifications/toolsListChanged", "/notifications/promptsListChanged",
        "/notifications/resourcesListChanged", "/notifications/resourceSubscriptions",
    ]),
    // Clients poll the state of a task.
    places(Side::Server, Part::Notification, &["notifications/tasks/status"], Treatment::Rebuilt, &[
        "/_meta", "/taskId", "/status", "/statusMessage", "/createdAt", "/lastUpdatedAt", "/pollInterval", "/ttl",
    ]),
    // Responses of servers.
    places(Side::Server, Part::Result, ANY, Treatment::Inspect, &["/_meta"]),
    places(Side::Server, Part::Result, ANY, Treatment::Closed, &["/resultType"]),
    places(Side::Server, Part::Result, &["initialize", "server/discover"], Treatment::Inspect, &[
        "/capabilities", "/instructions", "/serverInfo", "/_meta/io.modelcontextprotocol~1serverInfo",
    ]),
    places(Side::Server, Part::Result, &["initialize", "server/discover"], Treatment::Closed, &["/protocolVersion", "/supportedVersions"]),
    places(Side::Server, Part::Result, &["initialize", "server/discover", "subscriptions/listen", "ping", "logging/setLevel"], Treatment::Rebuilt, &["/_meta"]),
    places(Side::Server, Part::Result, &["resources/subscribe", "resources/unsubscribe"], Treatment::Inspect, &["/_meta"]),
    places(Side::Server, Part::Result, &["server/discover"], Treatment::Rebuilt, &["/ttlMs", "/cacheScope"]),
    places(Side::Server, Part::Result, &["subscriptions/listen"], Treatment::Rebuilt, &[
        "/_meta/io.modelcontextprotocol~1serverInfo", "/_meta/io.modelcontextprotocol~1subscriptionId",
    ]),
    places(Side::Server, Part::Result, LISTS, Treatment::Inspect, &[
        "/tools", "/prompts", "/resources", "/resourceTemplates", "/_meta/io.modelcontextprotocol~1serverInfo",
    ]),
    places(Side::Server, Part::Result, LISTS, Treatment::Rebuilt, &["/nextCursor", "/ttlMs", "/cacheScope"]),
    places(Side::Server, Part::Result, ASKING, Treatment::Inspect, &[
        "/content", "/structuredContent", "/isError", "/task", "/task/status", "/task/statusMessage", "/task/createdAt",
        "/task/lastUpdatedAt", "/task/pollInterval", "/task/ttl", "/messages", "/description", "/contents", "/ttlMs",
        "/cacheScope", "/inputRequests", "/_meta/io.modelcontextprotocol~1serverInfo",
    ]),
    places(Side::Server, Part::Result, ASKING, Treatment::Sealed, &STATE),
    places(Side::Server, Part::Result, &["tools/call"], Treatment::Sealed, &TASK_IDS),
    places(Side::Server, Part::Result, TASKS, Treatment::Sealed, &TASK_IDS),
    places(Side::Server, Part::Result, TASKS, Treatment::Inspect, &[
        "/status", "/statusMessage", "/createdAt", "/lastUpdatedAt", "/pollInterval", "/ttl",
    ]),
    places(Side::Server, Part::Result, &["tasks/list"], Treatment::Rebuilt, &["/_meta", "/tasks", "/nextCursor"]),
    places(Side::Server, Part::Result, &["completion/complete"], Treatment::Inspect, &[
        "/completion", "/_meta/io.modelcontextprotocol~1serverInfo",
    ]),
    places(Side::Server, Part::Error, ANY, Treatment::Inspect, &["/code", "/message", "/data"]),
];

/// Kind of a server's result, which determines its sealed members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The result requests input from the client: its state is sealed.
    Asking,
    /// A result of a tool call or about a task: task ids are sealed.
    OfCall,
    /// Any other result: nothing is sealed.
    Plain,
}

impl Answer {
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
pub fn treatment(side: Side, part: Part, method: &str, at: &str) -> Treatment {
    let leads =
        |to: &str| at.strip_prefix(to).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let (mut best, mut found) = ((0, false), Treatment::Inspect);
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

impl Places {
    /// Whether the row names the method itself rather than `*`; `None` if it does not apply to the method.
    fn named(&self, method: &str) -> Option<bool> {
        if self.methods.contains(&method) {
            return Some(true);
        }
        self.methods.contains(&"*").then_some(false)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Answer, PLACES, Part, Side, Treatment, treatment};

    /// The members of the schemas of 2025-11-25 and 2026-07-28, one per line: sender, part, method, place, and the
    /// revisions that have it.
    const MEMBERS: &str = include_str!("places/members.txt");

    fn members() -> impl Iterator<Item = (Side, Part, &'static str, &'static str)> {
        MEMBERS.lines().map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let side = if words[0] == "client" { Side::Client } else { Side::Server };
            let part = match words[1] {
                "request" => Part::Request,
                "result" => Part::Result,
                "error" => Part::Error,
                _ => Part::Notification,
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
            let found = treatment(Side::Client, Part::Request, "tools/call", at);
            assert_eq!(found, Treatment::Inspect, "{at}");
        }
        assert_eq!(
            treatment(Side::Server, Part::Result, "vendor/method", "/requestState"),
            Treatment::Inspect
        );
        assert_eq!(
            treatment(Side::Client, Part::Request, "tools/call", "/_meta/progressToken"),
            Treatment::Rebuilt
        );
    }

    #[test]
    fn what_inspection_leaves_out_is_what_the_table_says_is_sealed() {
        for (answer, method) in [
            (Answer::Asking, "tools/call"),
            (Answer::Asking, "prompts/get"),
            (Answer::Asking, "resources/read"),
            (Answer::OfCall, "tools/call"),
            (Answer::OfCall, "tasks/get"),
            (Answer::OfCall, "tasks/result"),
        ] {
            for at in answer.sealed() {
                let said = treatment(Side::Server, Part::Result, method, at);
                assert_eq!(said, Treatment::Sealed, "{method} {at}");
            }
        }
        assert!(Answer::Plain.sealed().is_empty());
    }
}
