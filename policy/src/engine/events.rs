//! Subscriptions to events of servers (SEP-3415): with a webhook the server sends the events to an address that the
//! client names, past every gateway, so no such subscription reaches a server (control C37).
//!
//! This does not depend on the names of members: what holds an address, or a name or a value that speaks of a webhook,
//! counts wherever it stands in a request or a notification about events.

use std::fmt::Write as _;

use json::pointer::escaped;
use json::{JsonKind, Value};

use crate::engine::message::ItemRequest;

/// The methods of the extension that are known. A server could take another spelling for one of them.
pub(super) const EVENT_METHODS: [&str; 5] =
    ["events/list", "events/poll", "events/stream", "events/subscribe", "events/unsubscribe"];

/// Words in the names of members that say where a server sends to.
const NAMES: [&str; 3] = ["webhook", "callback", "deliverto"];
/// How such names end.
const ENDS: [&str; 7] = ["url", "urls", "uri", "uris", "endpoint", "endpoints", "href"];
/// How secrets begin with which webhooks are signed (Standard Webhooks).
const SECRET: &str = "whsec_";
/// Longest place of a finding, in bytes.
const PLACE: usize = 256;

/// Whether a method is about events, in any spelling that a server could take for one.
#[must_use]
pub fn is_of_events(method: &str) -> bool {
    let mut words = method.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| {
        // It stands before the names of all notifications.
        !word.eq_ignore_ascii_case("notifications")
    });
    let is = |word: &str, known: &str| word.eq_ignore_ascii_case(known);
    let letters = letters(method);
    let is_known = |known: &str| letters.ends_with(&known.replace('/', ""));
    words.next().is_some_and(|word| is(word, "event") || is(word, "events"))
        || words.any(|word| is(word, "events"))
        || EVENT_METHODS.into_iter().any(is_known)
}

/// Where a request about events names an address for them, as a JSON Pointer; `None` if it names none, or is about
/// something else.
#[must_use]
pub fn webhook_of(call: &ItemRequest) -> Option<String> {
    if !is_of_events(&call.name) {
        return None;
    }
    let arguments = call.arguments.iter().map(|value| ("/params", "arguments", value));
    let extra = call.extra.iter().map(|(key, value)| ("/params", &**key, value));
    let meta = call.meta.iter().map(|(key, value)| ("/params/_meta", &**key, value));
    arguments.chain(extra).chain(meta).find_map(|(at, key, value)| {
        let mut at = format!("{at}/{}", escaped(key));
        let is_found = names_webhook(key, value.value()) || has_webhook(value.value(), &mut at);
        is_found.then_some(at)
    })
}

/// Whether a value, or anything in it, is an address or speaks of a webhook; `at` is then its place.
///
/// INVARIANT: the parser bounds the depth, so the recursion is bounded too.
fn has_webhook(value: Value<'_>, at: &mut String) -> bool {
    let length = at.len();
    match value.kind() {
        JsonKind::Null | JsonKind::Boolean | JsonKind::Number => return false,
        JsonKind::Plain | JsonKind::Escaped => {
            return value.as_str().is_some_and(|text| is_address(&text) || is_word(&text));
        }
        JsonKind::Array => {
            for (n, item) in value.items().enumerate() {
                if length < PLACE {
                    write!(at, "/{n}").unwrap_or_default();
                }
                if has_webhook(item, at) {
                    return true;
                }
                at.truncate(length);
            }
        }
        JsonKind::Object => {
            for (name, member) in value.members() {
                if length + name.len() < PLACE {
                    write!(at, "/{}", escaped(&name)).unwrap_or_default();
                }
                if names_webhook(&name, member) || is_address(&name) || has_webhook(member, at) {
                    return true;
                }
                at.truncate(length);
            }
        }
    }
    false
}

/// Whether a member says by its name where to send to, and has a value.
fn names_webhook(name: &str, value: Value<'_>) -> bool {
    let says_no = value.kind() == JsonKind::Null || value.as_bool() == Some(false);
    let name = letters(name);
    let is_named = NAMES.iter().any(|known| name.contains(known));
    !says_no && (is_named || ENDS.iter().any(|known| name.ends_with(known)))
}

/// Whether a text says that there is a webhook: the mode of a delivery, or the secret of one.
fn is_word(text: &str) -> bool {
    let letters = letters(text);
    matches!(letters.as_str(), "webhook" | "webhooks" | "callback" | "callbacks")
        || text
            .trim_start()
            .get(..SECRET.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(SECRET))
}

/// The letters and digits of a text in lower case.
fn letters(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Schemes of addresses that some reader takes without the slashes.
const SCHEMES: [&str; 4] = ["http:", "https:", "wss:", "mailto:"];

/// Whether some reader could take a text, or a part of it, for a URL with a host: also with backslashes, with an escaped
/// colon, with characters that parsers of URLs drop (WHATWG URL, section 4.4), and without the slashes of `https:`.
fn is_address(text: &str) -> bool {
    let is_read = |c: &char| !c.is_whitespace() && !c.is_control();
    let text: String = text.chars().filter(is_read).collect();
    let text = text.to_ascii_lowercase().replace('\\', "/").replace("%25", "%").replace("%3a", ":");
    let text = text.replace("&#58;", ":").replace('：', ":").replace("%2f", "/");
    // `arn:aws:s3` is no address, although it has `ws:` in it.
    let begins_word = |at: usize| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        !before.is_some_and(char::is_alphanumeric)
    };
    let has = |scheme: &str| text.match_indices(scheme).any(|(at, _)| begins_word(at));
    text.starts_with("//") || text.contains("://") || SCHEMES.iter().any(|scheme| has(scheme))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use json::{Document, Fragment, JsonBounds};
    use policy_core::subject::name::ServerName;

    use super::{is_of_events, webhook_of};
    use crate::engine::message::{ItemRequest, RequestOperation};
    use crate::engine::method::{Form, form};

    /// Where params of this method name an address.
    fn place(method: &str, params: &str) -> Option<String> {
        let text = Bytes::copy_from_slice(params.as_bytes());
        let document = Arc::new(Document::parse(text, &JsonBounds::MESSAGE).unwrap());
        let extra = document.root().members();
        let extra = extra.map(|(key, value)| ((*key).into(), value.fragment(&document)));
        let extra: Vec<(Box<str>, Fragment)> = extra.collect();
        let server = ServerName::parse("up").unwrap();
        let bare = ItemRequest::bare(&server, RequestOperation::Other, method);
        webhook_of(&ItemRequest { extra, ..bare })
    }

    #[test]
    fn an_address_is_found_wherever_it_stands() {
        for params in [
            r#"{"delivery":{"mode":"x","url":"https://hooks.example/a"}}"#,
            r#"{"webhook":{"id":"stored"}}"#,
            r#"{"callback":"stored"}"#,
            r#"{"delivery":{"mode":"webhook"}}"#,
            r#"{"delivery":{"mode":"Web-Hook"}}"#,
            r#"{"delivery":{"secret":"whsec_c2VjcmV0"}}"#,
            r#"{"to":["HTTPS:\\\\hooks.example"]}"#,
            r#"{"to":"ht\ttps://hooks.example"}"#,
            r#"{"to":"https%3A%2F%2Fhooks.example"}"#,
            r#"{"to":"//hooks.example/a"}"#,
            r#"{"to":"https:hooks.example"}"#,
            r#"{"a":{"b":[{"https://hooks.example":1}]}}"#,
            r#"{"endpoint":"hooks.example/a"}"#,
        ] {
            assert!(place("events/subscribe", params).is_some(), "{params}");
            assert!(place("events/poll", params).is_some(), "{params}");
            assert_eq!(place("vendor/method", params), None, "{params}");
        }
        let at = place("events/subscribe", r#"{"delivery":{"to":["a","https://hooks.example"]}}"#);
        assert_eq!(at.as_deref(), Some("/params/delivery/to/1"));
        for params in [
            r#"{"name":"email.received","arguments":{"from":"*@example.com","n":3},"cursor":null,"maxEvents":50}"#,
            r#"{"webhook":null,"callback":false,"cursor":"MTIz/YWJj=="}"#,
            r#"{"arguments":{"bucket":"arn:aws:s3:::b","subject":"News: today"},"cursor":"rows:10"}"#,
        ] {
            assert_eq!(place("events/poll", params), None, "{params}");
        }
    }

    #[test]
    fn a_method_about_events_is_known_in_every_spelling() {
        for method in [
            "events/subscribe",
            "EVENTS/x",
            "event/subscribe",
            "vendor/events/subscribe",
            "io.example.events/x",
            "notifications/events/event",
            "eventssubscribe",
            "x-eventsSubscribe",
        ] {
            assert!(is_of_events(method), "{method}");
        }
        for method in ["vendor/method", "eventual/list", "prevents/x", "calendar/event/create"] {
            assert!(!is_of_events(method), "{method}");
        }
        for method in
            ["events/list", "events/poll", "events/stream", "events/subscribe", "events/x"]
        {
            assert_eq!(form(method), Form::Extension, "{method}");
        }
        for method in
            ["Events/subscribe", "events.subscribe", "events-poll", "events//poll", "eventspoll"]
        {
            assert_eq!(form(method), Form::Malformed, "{method}");
        }
    }
}
