//! Converts records to OCSF events, for systems that collect events of many products.
//!
//! OCSF 1.8.0: API Activity (6003), Authentication (3002), Detection Finding (2004), Entity Management (3004) and
//! Application Lifecycle (6002), with the profile `security_control`. An event carries the id, sequence number and
//! hash of its record in `metadata` and `unmapped`, so that the record can be found in its log.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::UNIX_EPOCH;

use audit_log::chain::read;
use json::{Value, write_ascii};

use crate::mcp::wire::Object;

/// The version of OCSF.
const VERSION: &str = "1.8.0";

/// An OCSF event class.
#[derive(Clone, Copy)]
struct EventClass {
    uid: u32,
    category: u32,
}

const API: EventClass = EventClass { uid: 6003, category: 6 };
const AUTHENTICATION: EventClass = EventClass { uid: 3002, category: 3 };
const FINDING: EventClass = EventClass { uid: 2004, category: 2 };
const ENTITY: EventClass = EventClass { uid: 3004, category: 3 };
const LIFECYCLE: EventClass = EventClass { uid: 6002, category: 6 };

/// Converts a record to an event, as one line. `None` for records about the log itself and for intents, whose
/// exchange has an event of its own.
#[must_use]
pub fn event(line: &[u8]) -> Option<Vec<u8>> {
    let document = read(line)?;
    let record = ParsedRecord(document.root());
    let (class, activity) = match &*record.text("event")? {
        "exchange" | "refusals"
            if record.text("principal").is_none() && record.number("status") == Some(401) =>
        {
            (AUTHENTICATION, 1)
        }
        "exchange" | "refusals" => (API, activity(&record)),
        "definition" | "shadowing" => (FINDING, 1),
        "revoked" | "reinstated" | "pins" | "approval" => (ENTITY, 3),
        "start" => (LIFECYCLE, 3),
        "stop" => (LIFECYCLE, 4),
        "applied" => (LIFECYCLE, 8),
        _ => return None,
    };
    let mut out = Vec::with_capacity(1024);
    let mut event = Object::open(&mut out);
    number(&mut event, "activity_id", activity.into());
    number(&mut event, "category_uid", class.category.into());
    number(&mut event, "class_uid", class.uid.into());
    number(&mut event, "type_uid", u64::from(class.uid) * 100 + u64::from(activity));
    let millis = record.time("time").unwrap_or_default();
    number(&mut event, "time", millis);
    if let (Some(count), Some(since)) = (record.number("count"), record.time("since")) {
        number(&mut event, "count", count);
        number(&mut event, "start_time", since);
        number(&mut event, "end_time", millis);
    }
    metadata(&mut event, &record);
    match class.uid {
        6003 => api(&mut event, &record),
        3002 => authentication(&mut event, &record),
        2004 => finding(&mut event, &record),
        3004 => entity(&mut event, &record),
        _ => lifecycle(&mut event, &record),
    }
    event.close();
    out.push(b'\n');
    Some(out)
}

/// Access to the members of a parsed record.
struct ParsedRecord<'a>(Value<'a>);

impl<'a> ParsedRecord<'a> {
    fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        self.0.get(name)?.as_str()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.raw().parse().ok()
    }

    /// A time in milliseconds since 1970.
    fn time(&self, name: &str) -> Option<u64> {
        let time = humantime::parse_rfc3339(&self.text(name)?).ok()?;
        let since = time.duration_since(UNIX_EPOCH).ok()?;
        Some(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn denied(&self) -> bool {
        matches!(self.text("outcome").as_deref(), Some("denied" | "refused"))
    }
}

/// The activity id: 2 (read), or 99 (other) for tool calls, whose effect is unknown, and for notifications.
fn activity(record: &ParsedRecord<'_>) -> u8 {
    match record.text("method").as_deref() {
        Some("tools/call") | None => 99,
        Some(method) if method.starts_with("notifications/") => 99,
        Some(_) => 2,
    }
}

fn metadata(event: &mut Object<'_>, record: &ParsedRecord<'_>) {
    let mut metadata = Object::open(event.key("metadata"));
    metadata.text("version", VERSION);
    let mut product = Object::open(metadata.key("product"));
    product.text("name", "Portcullis");
    product.text("vendor_name", "Portcullis");
    product.text("version", env!("CARGO_PKG_VERSION"));
    product.close();
    metadata.raw("profiles", r#"["security_control"]"#);
    member(&mut metadata, "uid", record.text("id"));
    member(&mut metadata, "correlation_uid", record.text("trace"));
    member(&mut metadata, "log_name", record.text("chain"));
    if let Some(seq) = record.number("seq") {
        number(&mut metadata, "sequence", seq);
    }
    metadata.close();
    let mut unmapped = Object::open(event.key("unmapped"));
    for name in
        ["hash", "policy", "rule", "definition", "argumentDigest", "route", "listener", "era"]
    {
        member(&mut unmapped, name, record.text(name));
    }
    for name in ["detections", "findings", "found", "shadow"] {
        if let Some(list) = record.0.get(name) {
            unmapped.raw(name, list.raw());
        }
    }
    unmapped.close();
}

fn api(event: &mut Object<'_>, record: &ParsedRecord<'_>) {
    severity(event, if record.denied() { 2 } else { 1 });
    let good = matches!(record.text("outcome").as_deref(), Some("answered"));
    number(event, "status_id", if good { 1 } else { 2 });
    member(event, "status_code", record.text("reason"));
    // Action 2 is Denied and disposition 2 is Blocked; 1 is Allowed for both.
    number(event, "action_id", if record.denied() { 2 } else { 1 });
    number(event, "disposition_id", if record.denied() { 2 } else { 1 });
    actor(event, record);
    endpoint(event, record);
    let mut api = Object::open(event.key("api"));
    let method = record.text("method").unwrap_or_else(|| "HTTP".into());
    write_ascii(api.key("operation"), &method);
    if let Some(server) = record.text("server") {
        let mut service = Object::open(api.key("service"));
        write_ascii(service.key("name"), &server);
        service.close();
    }
    let mut request = Object::open(api.key("request"));
    member(&mut request, "uid", record.text("id"));
    request.close();
    let mut response = Object::open(api.key("response"));
    if let Some(code) = record.0.get("code").or_else(|| record.0.get("status")) {
        response.raw("code", code.raw());
    }
    member(&mut response, "error", record.text("reason"));
    response.close();
    api.close();
    let item = ["tool", "prompt", "resource", "template", "skill"];
    let item = item.into_iter().find_map(|kind| Some((kind, record.text(kind)?)));
    if let Some((kind, name)) = item {
        let out = event.key("resources");
        out.push(b'[');
        let mut resource = Object::open(out);
        write_ascii(resource.key("name"), &name);
        resource.text("type", kind);
        resource.close();
        out.push(b']');
    }
    let took = record.0.get("durationMicros").and_then(|took| took.get("total"));
    if let Some(took) = took.and_then(|took| took.raw().parse::<u64>().ok()) {
        number(event, "duration", took / 1000);
    }
}

fn authentication(event: &mut Object<'_>, record: &ParsedRecord<'_>) {
    severity(event, 2);
    number(event, "status_id", 2);
    member(event, "status_detail", record.text("reason"));
    number(event, "action_id", 2);
    number(event, "disposition_id", 2);
    event.raw("user", r#"{"name":"unknown","type_id":0}"#);
    endpoint(event, record);
    event.raw("service", r#"{"name":"portcullis"}"#);
}

fn finding(event: &mut Object<'_>, record: &ParsedRecord<'_>) {
    severity(event, 3);
    number(event, "status_id", 1);
    number(event, "action_id", 2);
    number(event, "disposition_id", 2);
    let kind = record.text("event").unwrap_or_default();
    let mut info = Object::open(event.key("finding_info"));
    member(&mut info, "uid", record.text("id"));
    write_ascii(info.key("title"), &record.text("what").unwrap_or_default());
    let mut analytic = Object::open(info.key("analytic"));
    analytic.raw("type_id", "1");
    write_ascii(analytic.key("uid"), &kind);
    analytic.close();
    info.close();
}

fn entity(event: &mut Object<'_>, record: &ParsedRecord<'_>) {
    severity(event, 1);
    number(event, "status_id", 1);
    let mut entity = Object::open(event.key("entity"));
    let name = record.text("approval").or_else(|| record.text("what"));
    write_ascii(entity.key("name"), &name.unwrap_or_default());
    member(&mut entity, "type", record.text("event"));
    entity.close();
}

fn lifecycle(event: &mut Object<'_>, record: &ParsedRecord<'_>) {
    severity(event, 1);
    number(event, "status_id", 1);
    let mut app = Object::open(event.key("app"));
    app.text("name", "Portcullis");
    app.text("vendor_name", "Portcullis");
    member(&mut app, "version", record.text("version"));
    app.close();
}

fn actor(event: &mut Object<'_>, record: &ParsedRecord<'_>) {
    let mut actor = Object::open(event.key("actor"));
    match record.text("principal") {
        Some(principal) => {
            let mut user = Object::open(actor.key("user"));
            write_ascii(user.key("uid"), &principal);
            user.close();
        }
        None => actor.text("app_name", "unknown"),
    }
    member(&mut actor, "app_uid", record.text("client"));
    actor.close();
}

fn endpoint(event: &mut Object<'_>, record: &ParsedRecord<'_>) {
    let peer = record.text("peer").unwrap_or_default();
    let mut endpoint = Object::open(event.key("src_endpoint"));
    if let Some(address) = record.text("address") {
        // A network, or the group of all other addresses, is written as a name.
        let is_one = address.parse::<IpAddr>().is_ok();
        write_ascii(endpoint.key(if is_one { "ip" } else { "name" }), &address);
    }
    // A server's own request comes from that server, and what is counted of a caller from that caller.
    let name = record.text("server").or_else(|| record.text("principal"));
    let of_address = record.text("address").is_some();
    member(&mut endpoint, "name", name.filter(|_| peer.is_empty() && !of_address));
    if let Some((host, port)) = peer.rsplit_once(':') {
        write_ascii(endpoint.key("ip"), host.trim_matches(['[', ']']));
        if let Ok(port) = port.parse::<u16>() {
            number(&mut endpoint, "port", port.into());
        }
    }
    endpoint.close();
}

fn severity(event: &mut Object<'_>, severity: u64) {
    number(event, "severity_id", severity);
}

fn member(object: &mut Object<'_>, name: &str, value: Option<Cow<'_, str>>) {
    if let Some(value) = value {
        write_ascii(object.key(name), &value);
    }
}

fn number(object: &mut Object<'_>, name: &str, value: u64) {
    object.raw(name, itoa::Buffer::new().format(value));
}
