//! What a client says of itself, and what it can be asked.
//!
//! Nothing here is trusted: it is passed on to the servers the client talks to, which have to treat
//! it the same way, and it decides what a server may ask of the client.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use policy::ask::Asks;
use policy::json::{Bounds, Document, Value};

use crate::protocol::method;

/// Longest capabilities and longest self-description that are passed on.
const LONGEST: usize = 1536;
/// The extension of long-running tasks.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";
/// How we present ourselves to servers where there is no client.
const OURSELVES: &str =
    concat!(r#"{"name":"portcullis","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);

/// A client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// Its `capabilities`, as JSON.
    capabilities: Arc<str>,
    /// Its name and version, as JSON.
    info: Option<Arc<str>>,
    can: Abilities,
}

/// What a client can be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Abilities {
    form: bool,
    url: bool,
    sampling: bool,
    roots: bool,
    /// It takes a task for an answer (modern).
    tasks: bool,
}

impl Client {
    /// The gateway itself, when it asks in its own name. It can be asked nothing.
    #[must_use]
    pub fn gateway() -> &'static Arc<Self> {
        static GATEWAY: LazyLock<Arc<Client>> = LazyLock::new(|| {
            let (capabilities, info) = ("{}".into(), Some(OURSELVES.into()));
            Arc::new(Client { capabilities, info, can: Abilities::default() })
        });
        &GATEWAY
    }

    /// The gateway itself, as it asks what a server offers to clients that can be asked whatever the server
    /// may ask. It answers no question all the same.
    #[must_use]
    pub fn capable_of(asks: &Asks) -> Arc<Self> {
        let can = Abilities::of(asks);
        Arc::new(Self { capabilities: can.write().into(), info: Some(OURSELVES.into()), can })
    }

    /// Whether it can be asked anything that a server may ask.
    #[must_use]
    pub fn answers_any(&self, asks: &Asks) -> bool {
        let (can, may) = (self.can, Abilities::of(asks));
        can.form && may.form
            || can.url && may.url
            || can.sampling && may.sampling
            || can.roots && may.roots
    }

    /// A client that said this. Capabilities that are too long to be passed on are cut down to
    /// those the protocol knows, and a description that is too long is left out.
    #[must_use]
    pub fn new(capabilities: Value<'_>, info: Option<Value<'_>>) -> Self {
        let can = Abilities::read(capabilities);
        let raw = capabilities.raw();
        let capabilities = if raw.len() <= LONGEST { raw.into() } else { can.write().into() };
        let info = info.filter(|info| info.is_object() && info.raw().len() <= LONGEST);
        Self { capabilities, info: info.map(|info| info.raw().into()), can }
    }

    /// From what [`Self::text`] gave.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let (capabilities, info) = text.split_once('\0')?;
        let bytes = Bytes::copy_from_slice(capabilities.as_bytes());
        let can = Abilities::read(Document::parse(bytes, &Bounds::MESSAGE).ok()?.root());
        let info = (!info.is_empty()).then(|| info.into());
        Some(Self { capabilities: capabilities.into(), info, can })
    }

    /// All of it, to be kept in a session.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}\0{}", self.capabilities, self.info.as_deref().unwrap_or_default())
    }

    /// Its capabilities, as JSON.
    #[must_use]
    pub fn capabilities(&self) -> &str {
        &self.capabilities
    }

    /// Its name and version, as JSON.
    #[must_use]
    pub fn info(&self) -> &str {
        self.info.as_deref().unwrap_or(OURSELVES)
    }

    /// Its name and version, as JSON, if it said them.
    #[must_use]
    pub fn said_info(&self) -> Option<&str> {
        self.info.as_deref()
    }

    /// Whether it says nothing of itself that it could choose.
    #[must_use]
    pub fn says_nothing(&self) -> bool {
        self.info.is_none() && &*self.capabilities == "{}"
    }

    /// The same client, as a server is told of it: with these texts where they are others. What it can be
    /// asked stays what it said.
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

    /// Whether it takes a task for an answer (modern).
    #[must_use]
    pub const fn takes_tasks(&self) -> bool {
        self.can.tasks
    }

    /// Whether a server may ask it this.
    #[must_use]
    pub fn can_be_asked(&self, asked: &str, params: Option<Value<'_>>) -> bool {
        match asked {
            method::ELICIT => {
                let mode = params.and_then(|params| params.get("mode")).and_then(Value::as_str);
                match mode.as_deref() {
                    None | Some("form") => self.can.form,
                    Some("url") => self.can.url,
                    Some(_) => false,
                }
            }
            method::SAMPLE => self.can.sampling,
            method::ROOTS => self.can.roots,
            _ => false,
        }
    }
}

impl Abilities {
    /// What a client can be asked that offers whatever a server may ask.
    const fn of(asks: &Asks) -> Self {
        Self {
            form: asks.forms.is_some(),
            url: asks.urls.is_some(),
            sampling: asks.sampling.is_some(),
            roots: asks.roots,
            tasks: false,
        }
    }

    /// SPEC 2025-11-25 client/elicitation#capabilities: `elicitation: {}` means forms.
    fn read(capabilities: Value<'_>) -> Self {
        let has = |name: &str| capabilities.get(name).is_some_and(Value::is_object);
        let elicitation = capabilities.get("elicitation").filter(|value| value.is_object());
        let mode = |name: &str| elicitation.is_some_and(|modes| modes.get(name).is_some());
        Self {
            form: elicitation.is_some() && (mode("form") || !mode("url")),
            url: mode("url"),
            sampling: has("sampling"),
            roots: has("roots"),
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
        members.extend(self.sampling.then_some(r#""sampling":{}"#));
        members.extend(self.roots.then_some(r#""roots":{}"#));
        let tasks = r#""extensions":{"io.modelcontextprotocol/tasks":{}}"#;
        members.extend(self.tasks.then_some(tasks));
        format!("{{{}}}", members.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::Client;
    use bytes::Bytes;
    use policy::json::{Bounds, Document};

    fn client(capabilities: &str) -> Client {
        let text = Bytes::copy_from_slice(capabilities.as_bytes());
        let document = Document::parse(text, &Bounds::MESSAGE).unwrap();
        Client::new(document.root(), None)
    }

    #[test]
    fn it_can_be_asked_what_it_declared() {
        let document = Document::parse(Bytes::from(r#"{"mode":"url"}"#), &Bounds::MESSAGE).unwrap();
        let url = Some(document.root());
        let plain = client(r#"{"elicitation":{}}"#);
        assert!(plain.can_be_asked("elicitation/create", None));
        assert!(!plain.can_be_asked("elicitation/create", url));
        assert!(!plain.can_be_asked("roots/list", None));
        let url_only = client(r#"{"elicitation":{"url":{}},"roots":{}}"#);
        assert!(url_only.can_be_asked("elicitation/create", url));
        assert!(!url_only.can_be_asked("elicitation/create", None));
        assert!(url_only.can_be_asked("roots/list", None));
        assert!(!url_only.can_be_asked("anything/else", None));
    }

    #[test]
    fn capabilities_that_are_too_long_keep_what_the_protocol_knows() {
        let long = format!(r#"{{"sampling":{{}},"experimental":{{"x":"{}"}}}}"#, "a".repeat(2000));
        let client = client(&long);
        assert_eq!(client.capabilities(), r#"{"sampling":{}}"#);
        assert_eq!(Client::from_text(&client.text()).unwrap(), client);
    }
}
