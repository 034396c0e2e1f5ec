//! Information that a client states about itself, and the server requests that it supports.
//!
//! None of this is trusted. The gateway passes it on to upstream servers, which must not trust it either, and uses it
//! to decide which requests a server may send to the client.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use json::{Document, JsonBounds, JsonKind, Value, write_members, write_name};
use policy::engine::ask::ServerRequestPolicy;
use policy::rules::apps;

use crate::mcp::protocol::method;

/// Most bytes of the capabilities, and of the client information, that are passed on.
const MAX_INFO: usize = 1536;
/// Identifier of the extension for long-running tasks.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";
/// The extension for skills (SEP-2640). Only servers declare it.
pub const SKILLS: &str = "io.modelcontextprotocol/skills";
/// Client information of the gateway itself, for requests on its own behalf.
const OURSELVES: &str =
    concat!(r#"{"name":"portcullis","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);

/// Capabilities and information of an MCP client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// The `capabilities` object, as JSON.
    capabilities: Arc<str>,
    /// The `clientInfo` object, as JSON; `None` if the client sent none, or one that is too long.
    info: Option<Arc<str>>,
    can: Abilities,
}

/// Server requests that a client supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Abilities {
    form: bool,
    url: bool,
    sampling: bool,
    /// Accepts tools in sampling requests.
    sampling_tools: bool,
    roots: bool,
    /// Accepts a task as the result of a request (modern).
    tasks: bool,
    /// Answers a sampling request with a task (legacy).
    sampling_task: bool,
    /// Answers an elicitation request with a task (legacy).
    elicitation_task: bool,
    /// Shows apps. Only the gateway itself is described by it.
    apps: AppUse,
}

/// Whether a server may show apps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AppUse {
    /// It may show none.
    #[default]
    Denied,
    /// Its configuration allows some.
    Allowed,
}

impl Client {
    /// The gateway itself, for requests on its own behalf. It supports no server requests.
    #[must_use]
    pub fn gateway() -> &'static Arc<Self> {
        static GATEWAY: LazyLock<Arc<Client>> = LazyLock::new(|| {
            let (capabilities, info) = ("{}".into(), Some(OURSELVES.into()));
            Arc::new(Client { capabilities, info, can: Abilities::default() })
        });
        &GATEWAY
    }

    /// The gateway itself, with the capabilities for every server request that `server_requests` allows and, if the server
    /// may show `apps`, the one for these, so that the server lists what it offers to such clients. The gateway answers
    /// none of these requests.
    #[must_use]
    pub fn capable_of(server_requests: &ServerRequestPolicy, apps: AppUse) -> Arc<Self> {
        let can = Abilities { apps, ..Abilities::of(server_requests) };
        Arc::new(Self { capabilities: can.write().into(), info: Some(OURSELVES.into()), can })
    }

    /// The same client without the capability for apps, for a server that may not show any; `None` if it declares none.
    #[must_use]
    pub fn without_apps(&self) -> Option<Self> {
        // Most clients say nothing of it, and every request asks.
        let text = self.capabilities.to_ascii_lowercase();
        if !text.contains(apps::EXTENSION) && !text.contains('\\') {
            return None;
        }
        let bytes = Bytes::copy_from_slice(self.capabilities.as_bytes());
        let document = Document::parse(bytes, &JsonBounds::MESSAGE).ok()?;
        let is_of_apps = |name: &str| name.trim().eq_ignore_ascii_case(apps::EXTENSION);
        let has = |value: Value<'_>| value.members().any(|(name, _)| is_of_apps(&name));
        if !document.root().members().any(|(_, value)| has(value)) {
            return None;
        }
        let mut out = Vec::with_capacity(self.capabilities.len());
        write_members(&mut out, document.root().members(), |out, (key, value)| {
            write_name(out, &key);
            if !has(value) {
                return out.extend_from_slice(value.raw().as_bytes());
            }
            let kept = value.members().filter(|(name, _)| !is_of_apps(name));
            write_members(out, kept, |out, (name, value)| {
                write_name(out, &name);
                out.extend_from_slice(value.raw().as_bytes());
            });
        });
        let capabilities = String::from_utf8(out).ok()?.into();
        Some(Self { capabilities, ..self.clone() })
    }

    /// Whether the client supports any server request that `server_requests` allows.
    #[must_use]
    pub fn answers_any(&self, server_requests: &ServerRequestPolicy) -> bool {
        let (can, may) = (self.can, Abilities::of(server_requests));
        can.form && may.form
            || can.url && may.url
            || can.sampling && may.sampling
            || can.roots && may.roots
    }

    /// Creates a client from its own statements. Capabilities that are too long are reduced to those that MCP defines,
    /// and client information that is too long is dropped.
    #[must_use]
    pub fn new(capabilities: Value<'_>, info: Option<Value<'_>>) -> Self {
        let can = Abilities::read(capabilities);
        let raw = capabilities.raw();
        let capabilities = if raw.len() <= MAX_INFO { raw.into() } else { can.write().into() };
        let info = info.filter(|info| info.is_object() && info.raw().len() <= MAX_INFO);
        Self { capabilities, info: info.map(|info| info.raw().into()), can }
    }

    /// Restores a client from the output of [`Self::text`].
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let (capabilities, info) = text.split_once('\0')?;
        let bytes = Bytes::copy_from_slice(capabilities.as_bytes());
        let can = Abilities::read(Document::parse(bytes, &JsonBounds::MESSAGE).ok()?.root());
        let info = (!info.is_empty()).then(|| info.into());
        Some(Self { capabilities: capabilities.into(), info, can })
    }

    /// Serializes the client, to be kept in a session.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}\0{}", self.capabilities, self.info.as_deref().unwrap_or_default())
    }

    /// The capabilities, as JSON.
    #[must_use]
    pub fn capabilities(&self) -> &str {
        &self.capabilities
    }

    /// The client information as JSON, or that of the gateway if there is none.
    #[must_use]
    pub fn info(&self) -> &str {
        self.info.as_deref().unwrap_or(OURSELVES)
    }

    /// The client information as JSON, if there is any.
    #[must_use]
    pub fn said_info(&self) -> Option<&str> {
        self.info.as_deref()
    }

    /// Whether the client states neither information nor capabilities.
    #[must_use]
    pub fn says_nothing(&self) -> bool {
        self.info.is_none() && &*self.capabilities == "{}"
    }

    /// The same client with other capabilities and information to send to a server, if given. The server requests that
    /// it supports do not change.
    #[must_use]
    pub fn told(&self, capabilities: Option<&str>, info: Option<&str>) -> Self {
        let mut told = self.clone();
        if let Some(capabilities) = capabilities {
            told.capabilities = capabilities.into();
        }
        if let Some(info) = info {
            told.info = Some(info.into());
        }
        told
    }

    /// Whether the client accepts a task as the result of a request (modern).
    #[must_use]
    pub const fn takes_tasks(&self) -> bool {
        self.can.tasks
    }

    /// The capability that the client would have to declare for this server request, as JSON of `capabilities`; `None`
    /// if it supports the request.
    #[must_use]
    pub fn lacks(&self, asked: &str, params: Option<Value<'_>>) -> Option<&'static str> {
        let member = |name: &str| params.and_then(|params| params.get(name));
        let given = |name: &str| member(name).is_some_and(|value| value.kind() != JsonKind::Null);
        let with_tools = given("tools") || given("toolChoice");
        let mode = member("mode").and_then(Value::as_str);
        let can = match (asked, mode.as_deref()) {
            (method::ELICIT, None | Some("form")) => self.can.form,
            (method::ELICIT, Some("url")) => self.can.url,
            (method::SAMPLE, _) => self.can.sampling,
            (method::ROOTS, _) => self.can.roots,
            _ => false,
        };
        if !can {
            return Some(capability_for(asked));
        }
        if asked == method::SAMPLE && with_tools && !self.can.sampling_tools {
            return Some(r#"{"sampling":{"tools":{}}}"#);
        }
        if !given("task") {
            return None;
        }
        match asked {
            method::ELICIT => (!self.can.elicitation_task)
                .then_some(r#"{"tasks":{"requests":{"elicitation":{"create":{}}}}}"#),
            method::SAMPLE => (!self.can.sampling_task)
                .then_some(r#"{"tasks":{"requests":{"sampling":{"createMessage":{}}}}}"#),
            // No other request can be answered with a task.
            _ => Some(r#"{"tasks":{}}"#),
        }
    }
}

/// The capability that a server request requires, as JSON of `capabilities`.
#[must_use]
pub fn capability_for(asked: &str) -> &'static str {
    match asked {
        method::ELICIT => r#"{"elicitation":{}}"#,
        method::SAMPLE => r#"{"sampling":{}}"#,
        method::ROOTS => r#"{"roots":{}}"#,
        _ => r#"{"extensions":{}}"#,
    }
}

impl Abilities {
    /// Abilities that cover every server request that `server_requests` allows.
    const fn of(server_requests: &ServerRequestPolicy) -> Self {
        Self {
            form: server_requests.forms.is_some(),
            url: server_requests.urls.is_some(),
            sampling: server_requests.sampling.is_some(),
            roots: server_requests.roots.is_some(),
            sampling_tools: false,
            tasks: false,
            sampling_task: false,
            elicitation_task: false,
            apps: AppUse::Denied,
        }
    }

    /// Reads the abilities from `capabilities`.
    /// SPEC 2025-11-25 client/elicitation#capabilities: `elicitation: {}` means forms.
    /// SPEC 2025-11-25 client/sampling#capabilities and basic/utilities/tasks#client-capabilities.
    fn read(capabilities: Value<'_>) -> Self {
        let object = |name: &str| capabilities.get(name).filter(|value| value.is_object());
        let elicitation = object("elicitation");
        let requests = object("tasks").and_then(|tasks| tasks.get("requests"));
        let as_task = |kind: &str, request: &str| {
            let request = requests.and_then(|requests| requests.get(kind)?.get(request));
            request.is_some_and(Value::is_object)
        };
        let mode = |name: &str| elicitation.is_some_and(|modes| modes.get(name).is_some());
        Self {
            form: elicitation.is_some() && (mode("form") || !mode("url")),
            url: mode("url"),
            sampling: object("sampling").is_some(),
            sampling_tools: object("sampling")
                .and_then(|sampling| sampling.get("tools"))
                .is_some_and(Value::is_object),
            roots: object("roots").is_some(),
            sampling_task: as_task("sampling", "createMessage"),
            elicitation_task: as_task("elicitation", "create"),
            apps: AppUse::Denied,
            tasks: capabilities
                .get("extensions")
                .is_some_and(|extensions| extensions.get(TASKS).is_some()),
        }
    }

    fn write(self) -> String {
        let mut members = Vec::new();
        match (self.form, self.url) {
            (true, true) => members.push(r#""elicitation":{"form":{},"url":{}}"#),
            (true, false) => members.push(r#""elicitation":{}"#),
            (false, true) => members.push(r#""elicitation":{"url":{}}"#),
            (false, false) => {}
        }
        match (self.sampling, self.sampling_tools) {
            (true, true) => members.push(r#""sampling":{"tools":{}}"#),
            (true, false) => members.push(r#""sampling":{}"#),
            (false, _) => {}
        }
        match (self.sampling_task, self.elicitation_task) {
            (true, true) => members.push(
                r#""tasks":{"requests":{"sampling":{"createMessage":{}},"elicitation":{"create":{}}}}"#,
            ),
            (true, false) => {
                members.push(r#""tasks":{"requests":{"sampling":{"createMessage":{}}}}"#);
            }
            (false, true) => members.push(r#""tasks":{"requests":{"elicitation":{"create":{}}}}"#),
            (false, false) => {}
        }
        members.extend(self.roots.then_some(r#""roots":{}"#));
        let tasks = r#""io.modelcontextprotocol/tasks":{}"#;
        let apps = r#""io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}"#;
        let shows = self.apps == AppUse::Allowed;
        let extensions = [(self.tasks, tasks), (shows, apps)];
        let extensions = extensions.into_iter().filter_map(|(has, text)| has.then_some(text));
        let extensions = extensions.collect::<Vec<_>>().join(",");
        let extensions = format!(r#""extensions":{{{extensions}}}"#);
        members.extend((self.tasks || shows).then_some(&*extensions));
        format!("{{{}}}", members.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::Client;
    use bytes::Bytes;
    use json::{Document, JsonBounds};

    fn client(capabilities: &str) -> Client {
        let text = Bytes::copy_from_slice(capabilities.as_bytes());
        let document = Document::parse(text, &JsonBounds::MESSAGE).unwrap();
        Client::new(document.root(), None)
    }

    /// The capability that such a client lacks for this server request.
    fn lacks(capabilities: &str, asked: &str, params: &str) -> Option<&'static str> {
        let text = Bytes::copy_from_slice(params.as_bytes());
        let document = Document::parse(text, &JsonBounds::MESSAGE).unwrap();
        client(capabilities).lacks(asked, Some(document.root()))
    }

    #[test]
    fn it_can_be_asked_what_it_declared() {
        let (elicit, url, all) = ("elicitation/create", r#"{"mode":"url"}"#, "{}");
        let (forms, roots) = (Some(r#"{"elicitation":{}}"#), Some(r#"{"roots":{}}"#));
        let plain = r#"{"elicitation":{}}"#;
        assert_eq!(client(plain).lacks(elicit, None), None);
        assert_eq!(lacks(plain, elicit, url), forms);
        assert_eq!(client(plain).lacks("roots/list", None), roots);
        let url_only = r#"{"elicitation":{"url":{}},"roots":{}}"#;
        assert_eq!(lacks(url_only, elicit, url), None);
        assert_eq!(lacks(url_only, elicit, all), forms);
        assert_eq!(lacks(url_only, "roots/list", all), None);
        assert_eq!(lacks(url_only, "anything/else", all), Some(r#"{"extensions":{}}"#));
    }

    #[test]
    fn tools_and_tasks_of_a_question_are_capabilities_of_their_own() {
        let (elicit, sample) = ("elicitation/create", "sampling/createMessage");
        let tools = Some(r#"{"sampling":{"tools":{}}}"#);
        let of_sampling = Some(r#"{"tasks":{"requests":{"sampling":{"createMessage":{}}}}}"#);
        let of_elicitation = Some(r#"{"tasks":{"requests":{"elicitation":{"create":{}}}}}"#);
        let plain = r#"{"sampling":{},"elicitation":{},"roots":{}}"#;
        let able = r#"{"sampling":{"tools":{}},"elicitation":{},"roots":{},
            "tasks":{"requests":{"sampling":{"createMessage":{}},"elicitation":{"create":{}}}}}"#;
        for (asked, params, lacking) in [
            (sample, r#"{"tools":[]}"#, tools),
            (sample, r#"{"toolChoice":{"mode":"none"}}"#, tools),
            (sample, r#"{"task":{"ttl":1}}"#, of_sampling),
            (sample, r#"{"tools":null,"toolChoice":null,"task":null}"#, None),
            (elicit, r#"{"task":{}}"#, of_elicitation),
            (elicit, r#"{"task":null}"#, None),
        ] {
            assert_eq!(lacks(plain, asked, params), lacking, "{params}");
            assert_eq!(lacks(able, asked, params), None, "{params}");
        }
        // A request for roots is never answered with a task.
        for capabilities in [plain, able] {
            let lacking = lacks(capabilities, "roots/list", r#"{"task":{}}"#);
            assert_eq!(lacking, Some(r#"{"tasks":{}}"#));
        }
        let long = able.replacen('{', &format!(r#"{{"x":"{}","#, "a".repeat(2000)), 1);
        assert_eq!(lacks(&long, sample, r#"{"tools":[],"task":{}}"#), None);
        let again = Client::from_text(&client(&long).text()).unwrap();
        assert_eq!(again, client(&long), "what is cut down keeps what can be asked");
    }

    #[test]
    fn capabilities_that_are_too_long_keep_what_the_protocol_knows() {
        let long = format!(r#"{{"sampling":{{}},"experimental":{{"x":"{}"}}}}"#, "a".repeat(2000));
        let client = client(&long);
        assert_eq!(client.capabilities(), r#"{"sampling":{}}"#);
        assert_eq!(Client::from_text(&client.text()).unwrap(), client);
    }
}
