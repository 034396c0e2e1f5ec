//! Who the gateway says it is: the one server behind it, or itself in front of several.

use std::sync::Arc;

use http::Response;
use policy::json::{Fragment, Value, write_string};
use policy::offer::Kind;

use crate::edge::encode;
use crate::mcp::client_info::TASKS;
use crate::mcp::protocol::{Era, Version, meta};
use crate::mcp::wire::{self, Id, Object};
use crate::stream::body::Body;
use crate::upstream::Hello;

/// What is said of the servers of a route to one caller.
#[derive(Debug)]
pub struct Presentation {
    /// `serverInfo`, as JSON.
    info: String,
    /// `instructions`, as JSON; already found fit to be shown.
    instructions: Option<String>,
    /// `capabilities`, as JSON.
    capabilities: String,
}

/// A server, what it says of itself, and what of it the caller may use.
#[derive(Debug)]
pub struct Presented {
    /// Its name.
    pub name: Box<str>,
    /// What it says, without instructions that are withheld.
    pub hello: Arc<Hello>,
    /// The kinds the caller may use something of.
    pub granted: Vec<Kind>,
    /// The server's sessions are shared between callers.
    pub shared: bool,
    /// Results of its tools that are too long for an answer are resources of ours.
    pub keeps: bool,
}

impl Presentation {
    /// Presents these servers to a client of `era`, with the instructions they have left.
    pub fn new(servers: &[Presented], era: Era) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let ourselves = format!(r#"{{"name":"portcullis","version":"{version}"}}"#);
        let raw = |fragment: &Fragment| fragment.value().raw().to_owned();
        let text = |server: &Presented| server.hello.instructions.clone();
        let [server] = servers else {
            let several = several(servers, text);
            return Self { info: ourselves, instructions: several, capabilities: merged(servers) };
        };
        Self {
            info: server.hello.info.as_ref().map_or(ourselves, raw),
            instructions: text(server).as_ref().map(raw),
            capabilities: only(server, era),
        }
    }

    fn common(&self, result: &mut Object<'_>) {
        result.raw("capabilities", &self.capabilities);
        if let Some(instructions) = &self.instructions {
            result.raw("instructions", instructions);
        }
    }

    /// The answer to `server/discover`, good for `ttl` milliseconds.
    pub fn discovered(&self, id: &Id, ttl: u64) -> Response<Body> {
        let mut out = wire::head(Some(id), 512);
        out.extend_from_slice(br#""result":"#);
        let mut result = Object::open(&mut out);
        result.text("resultType", "complete");
        result.raw("supportedVersions", &Version::list());
        self.common(&mut result);
        result.raw("ttlMs", itoa::Buffer::new().format(ttl));
        result.text("cacheScope", "private");
        let mut meta = Object::open(result.key("_meta"));
        meta.raw(meta::SERVER_INFO, &self.info);
        meta.close();
        result.close();
        out.push(b'}');
        encode::json(out)
    }

    /// The answer to `initialize`.
    pub fn initialized(&self, id: &Id, version: Version) -> Response<Body> {
        let mut out = wire::head(Some(id), 512);
        out.extend_from_slice(br#""result":"#);
        let mut result = Object::open(&mut out);
        result.text("protocolVersion", version.as_str());
        self.common(&mut result);
        result.raw("serverInfo", &self.info);
        result.close();
        out.push(b'}');
        encode::json(out)
    }
}

/// Whether a capability is one the caller can use: through which kind of thing.
fn is_granted(server: &Presented, key: &str) -> bool {
    let has = |kind| server.granted.contains(&kind);
    match key {
        "tools" => has(Kind::Tool),
        "prompts" => has(Kind::Prompt),
        "resources" => has(Kind::Resource),
        "completions" => has(Kind::Prompt) || has(Kind::Resource),
        "tasks" => has(Kind::Tool),
        // Log lines of a conversation that many share are given to nobody.
        "logging" => !server.shared,
        _ => has(Kind::Method),
    }
}

/// The capabilities of the one server, as it gives them.
fn only(server: &Presented, era: Era) -> String {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    let said = server.hello.capabilities.as_ref().map(Fragment::value);
    for (key, value) in said.into_iter().flat_map(Value::members) {
        // The tasks of 2025-11-25 and those of the extension are not the same.
        let foreign = server.hello.era != era && matches!(&*key, "tasks" | "extensions");
        let extensions = key == "extensions" && !foreign;
        if extensions {
            // Each end has to know an extension; of those we do not know, rules speak by method.
            let mut known = Object::open(object.key("extensions"));
            for (name, value) in value.members() {
                let kind = if name == TASKS { Kind::Tool } else { Kind::Method };
                if server.granted.contains(&kind) {
                    known.raw(&name, value.raw());
                }
            }
            known.close();
            continue;
        }
        if !is_granted(server, &key) || foreign {
            continue;
        }
        if key != "tasks" {
            object.raw(&key, value.raw());
            continue;
        }
        // A list of tasks is not offered: nobody could say whose they are.
        let mut tasks = Object::open(object.key("tasks"));
        let others = value.members().filter(|(member, _)| member != "list");
        others.for_each(|(member, value)| tasks.raw(&member, value.raw()));
        tasks.close();
    }
    let said = server.hello.capabilities.as_ref().map(Fragment::value);
    let has = said.is_some_and(|said| said.get("resources").is_some());
    if server.keeps && !(has && is_granted(server, "resources")) {
        object.raw("resources", "{}");
    }
    object.close();
    String::from_utf8(out).unwrap_or_default()
}

/// What several servers can do together.
fn merged(servers: &[Presented]) -> String {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    for (key, flags) in [
        ("tools", &["listChanged"][..]),
        ("prompts", &["listChanged"]),
        ("resources", &["listChanged", "subscribe"]),
        ("completions", &[]),
        ("logging", &[]),
    ] {
        let having = servers
            .iter()
            .filter(|server| is_granted(server, key))
            .filter_map(|server| server.hello.capabilities.as_ref()?.value().get(key));
        let having: Vec<_> = having.collect();
        let keeps = key == "resources" && servers.iter().any(|server| server.keeps);
        if having.is_empty() && !keeps {
            continue;
        }
        let mut member = Object::open(object.key(key));
        for flag in flags {
            let set = |value: &Value<'_>| value.get(flag).and_then(Value::as_bool) == Some(true);
            if having.iter().any(set) {
                member.raw(flag, "true");
            }
        }
        member.close();
    }
    object.close();
    String::from_utf8(out).unwrap_or_default()
}

/// The instructions of several servers, each under its name.
fn several(servers: &[Presented], text: impl Fn(&Presented) -> Option<Fragment>) -> Option<String> {
    let mut all = String::new();
    for server in servers {
        let Some(text) = text(server) else { continue };
        let text = text.value().as_str().unwrap_or_default().into_owned();
        all.push_str(if all.is_empty() { "" } else { "\n\n" });
        all.push_str(&format!("# {}\n\n{text}", server.name));
    }
    let mut out = Vec::new();
    write_string(&mut out, &all);
    (!all.is_empty()).then(|| String::from_utf8(out).unwrap_or_default())
}
