//! The server information in the results of `initialize` and `server/discover`: that of the only upstream server of a
//! route, or the gateway's own in front of several. The handshake of an exchange builds it for each caller.

use http::Response;
use json::{Value, write_string};
use policy::definition::offer::ItemKind;
use policy::engine::pipeline::Shown;
use policy::rules::apps;

use crate::edge::encode;
use crate::mcp::client_info::{SKILLS, TASKS};
use crate::mcp::protocol::{Era, ProtocolVersion, meta};
use crate::mcp::wire::{self, Id, Object};
use crate::stream::body::Body;

/// The flag of a capability that says that changes of the list are told.
const LIST_CHANGED: &str = "listChanged";

/// What one caller is told about the servers of a route.
#[derive(Debug)]
pub struct ServerDescription {
    /// The JSON of `serverInfo`.
    info: String,
    /// The JSON of `instructions`.
    instructions: Option<String>,
    /// The JSON of `capabilities`.
    capabilities: String,
}

/// What a server says of itself, as one caller may see it: each part was released.
///
/// ```
/// # use gateway::{edge::server_info::ShownServerInfo, upstream::ServerInfo};
/// # fn show(said: ServerInfo, info: Option<policy::engine::pipeline::Shown>) {
/// let ServerInfo { era, ttl, .. } = said;
/// let shown = ShownServerInfo { era, ttl, info, instructions: None, capabilities: None };
/// # }
/// ```
///
/// ```compile_fail,E0308
/// # use gateway::{edge::server_info::ShownServerInfo, upstream::ServerInfo};
/// # fn show(said: ServerInfo) {
/// let ServerInfo { era, ttl, info, .. } = said; // as the server said it
/// let shown = ShownServerInfo { era, ttl, info, instructions: None, capabilities: None };
/// # }
/// ```
#[derive(Debug)]
pub struct ShownServerInfo {
    /// The era of the answer.
    pub era: Era,
    /// How long it is valid, in milliseconds; 0 if the server does not say.
    pub ttl: u64,
    /// `serverInfo`: the server's name and version.
    pub info: Option<Shown>,
    /// `instructions` for a model.
    pub instructions: Option<Shown>,
    /// The capabilities that the server declares.
    pub capabilities: Option<Shown>,
}

/// An upstream server, its own information, and what of it the caller may use.
#[derive(Debug)]
pub struct DescribedServer {
    /// Name of the server.
    pub name: Box<str>,
    /// The information it declares, without what is withheld.
    pub said: ShownServerInfo,
    /// The kinds of which the caller may use at least one definition.
    pub granted: Vec<ItemKind>,
    /// Whether callers share the sessions with this server.
    pub shared: bool,
    /// Whether tool results that are too long for a response are kept and offered as resources of the gateway.
    pub keeps: bool,
    /// Whether the server may show apps.
    pub apps: bool,
    /// Whether the list of tools also changes by what the caller finds.
    pub loads: bool,
}

impl ServerDescription {
    /// Presents `servers` to a client of `era`.
    pub fn new(servers: &[DescribedServer], era: Era) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let ourselves = format!(r#"{{"name":"portcullis","version":"{version}"}}"#);
        let raw = |shown: &Shown| shown.value().raw().to_owned();
        let [server] = servers else {
            let several = several(servers);
            return Self { info: ourselves, instructions: several, capabilities: merged(servers) };
        };
        Self {
            info: server.said.info.as_ref().map_or(ourselves, raw),
            instructions: server.said.instructions.as_ref().map(raw),
            capabilities: only(server, era),
        }
    }

    fn common(&self, result: &mut Object<'_>) {
        result.raw("capabilities", &self.capabilities);
        if let Some(instructions) = &self.instructions {
            result.raw("instructions", instructions);
        }
    }

    /// The response to `server/discover`, which may be cached for `ttl` milliseconds.
    pub fn discovered(&self, id: &Id, ttl: u64) -> Response<Body> {
        let mut out = wire::head(Some(id), 512);
        out.extend_from_slice(br#""result":"#);
        let mut result = Object::open(&mut out);
        result.text("resultType", "complete");
        result.raw("supportedVersions", &ProtocolVersion::list());
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

    /// The response to `initialize`.
    pub fn initialized(&self, id: &Id, version: ProtocolVersion) -> Response<Body> {
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

/// Whether the caller can use a capability, which depends on the kinds of definitions granted to it.
fn is_granted(server: &DescribedServer, key: &str) -> bool {
    let has = |kind| server.granted.contains(&kind);
    match key {
        "tools" => has(ItemKind::Tool),
        "prompts" => has(ItemKind::Prompt),
        // The files of skills are read as resources.
        "resources" => has(ItemKind::Resource) || has(ItemKind::Skill),
        "completions" => has(ItemKind::Prompt) || has(ItemKind::Resource),
        "tasks" => has(ItemKind::Tool),
        // Log messages of a shared session belong to no single caller, so none gets them.
        "logging" => !server.shared,
        _ => has(ItemKind::Method),
    }
}

/// Whether the caller can use an extension of the server.
fn knows_extension(server: &DescribedServer, name: &str) -> bool {
    let has = |kind| server.granted.contains(&kind);
    if is_of_apps(name) {
        return server.apps && has(ItemKind::Tool) && has(ItemKind::Resource);
    }
    has(if name == TASKS { ItemKind::Tool } else { ItemKind::Method })
}

/// Whether a client could take the name of an extension for that of apps.
fn is_of_apps(name: &str) -> bool {
    name.trim().eq_ignore_ascii_case(apps::EXTENSION)
}

/// The capabilities of the only server, as far as the caller can use them.
fn only(server: &DescribedServer, era: Era) -> String {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    let said = server.said.capabilities.as_ref().map(Shown::value);
    for (key, value) in said.into_iter().flat_map(Value::members) {
        // The tasks of 2025-11-25 and the tasks extension differ.
        let foreign = server.said.era != era && matches!(&*key, "tasks" | "extensions");
        if key == "extensions" {
            let skills = value.get(SKILLS).is_some() && server.granted.contains(&ItemKind::Skill);
            if foreign && !skills {
                continue;
            }
            // Both ends have to know an extension. For those the gateway does not know, rules decide by method.
            let mut known = Object::open(object.key("extensions"));
            // Both eras have the methods of skills. A directory is not read, because the manifest lists all files.
            if skills {
                known.raw(SKILLS, "{}");
            }
            for (name, value) in value.members().filter(|(name, _)| !foreign && name != SKILLS) {
                if knows_extension(server, &name) {
                    known.raw(&name, value.raw());
                }
            }
            known.close();
            continue;
        }
        if key == "experimental" && value.is_object() && is_granted(server, &key) {
            let mut known = Object::open(object.key("experimental"));
            for (name, value) in value.members().filter(|(name, _)| !is_of_apps(name)) {
                known.raw(&name, value.raw());
            }
            known.close();
            continue;
        }
        if !is_granted(server, &key) || foreign {
            continue;
        }
        if key == "tools" && server.loads {
            changing(object.key("tools"), value);
            continue;
        }
        if key != "tasks" {
            object.raw(&key, value.raw());
            continue;
        }
        // Task lists are not offered: the gateway cannot tell which caller a listed task belongs to.
        let mut tasks = Object::open(object.key("tasks"));
        let others = value.members().filter(|(member, _)| member != "list");
        others.for_each(|(member, value)| tasks.raw(&member, value.raw()));
        tasks.close();
    }
    let said = server.said.capabilities.as_ref().map(Shown::value);
    let has = said.is_some_and(|said| said.get("resources").is_some());
    if server.keeps && !(has && is_granted(server, "resources")) {
        object.raw("resources", "{}");
    }
    object.close();
    String::from_utf8(out).unwrap_or_default()
}

/// A capability of a list, with the flag that its changes are told.
fn changing(out: &mut Vec<u8>, said: Value<'_>) {
    let mut capability = Object::open(out);
    capability.raw(LIST_CHANGED, "true");
    let others = said.members().filter(|(member, _)| member != LIST_CHANGED);
    others.for_each(|(member, value)| capability.raw(&member, value.raw()));
    capability.close();
}

/// The merged capabilities of several servers.
fn merged(servers: &[DescribedServer]) -> String {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    for (key, flags) in [
        ("tools", &[LIST_CHANGED][..]),
        ("prompts", &[LIST_CHANGED]),
        ("resources", &[LIST_CHANGED, "subscribe"]),
        ("completions", &[]),
        ("logging", &[]),
    ] {
        let having = servers
            .iter()
            .filter(|server| is_granted(server, key))
            .filter_map(|server| server.said.capabilities.as_ref()?.value().get(key));
        let having: Vec<_> = having.collect();
        let keeps = key == "resources" && servers.iter().any(|server| server.keeps);
        if having.is_empty() && !keeps {
            continue;
        }
        let mut member = Object::open(object.key(key));
        for flag in flags {
            let set = |value: &Value<'_>| value.get(flag).and_then(Value::as_bool) == Some(true);
            let loads = key == "tools" && servers.iter().any(|server| server.loads);
            if having.iter().any(set) || loads {
                member.raw(flag, "true");
            }
        }
        member.close();
    }
    let has_skills = |server: &DescribedServer| {
        let said = server.said.capabilities.as_ref().map(Shown::value);
        let extensions = said.and_then(|said| said.get("extensions"));
        server.granted.contains(&ItemKind::Skill)
            && extensions.is_some_and(|extensions| extensions.get(SKILLS).is_some())
    };
    if servers.iter().any(has_skills) {
        let mut extensions = Object::open(object.key("extensions"));
        extensions.raw(SKILLS, "{}");
        extensions.close();
    }
    object.close();
    String::from_utf8(out).unwrap_or_default()
}

/// The instructions of several servers, each under a heading with its name.
fn several(servers: &[DescribedServer]) -> Option<String> {
    let mut all = String::new();
    for server in servers {
        let Some(text) = &server.said.instructions else { continue };
        let text = text.value().as_str().unwrap_or_default().into_owned();
        all.push_str(if all.is_empty() { "" } else { "\n\n" });
        all.push_str(&format!("# {}\n\n{text}", server.name));
    }
    let mut out = Vec::new();
    write_string(&mut out, &all);
    (!all.is_empty()).then(|| String::from_utf8(out).unwrap_or_default())
}
