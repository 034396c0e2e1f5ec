//! A question as it is kept in a file.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use json::{Document, JsonBounds, Value};
use policy::definition::pin::Digest;
use policy::flow::guard::{FlowClause, FlowViolation, Origin};
use policy::flow::label::FlowLabels;
use serde::de::DeserializeOwned;
use serde::de::value::{Error, StrDeserializer};

use super::{ApprovalBinding, ApprovalId, ApprovalQuestion, ApprovalState, document};
use crate::mcp::wire::Object;

/// What a question can be asked for.
const CAUSES: [&str; 2] = ["rule", "registry"];

/// A question with its state, as it was read from a file.
#[derive(Debug)]
pub(super) struct StoredApproval {
    /// The question.
    pub(super) question: ApprovalQuestion,
    /// The state: waiting, approved or denied.
    pub(super) state: ApprovalState,
}

/// The state of a question that is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum StoredState<'a> {
    /// The one that it has after a start.
    Believed(&'a ApprovalState),
    /// It is being approved, and that may still fail: after a start it waits for an answer.
    Approving,
}

/// The name of [`StoredState::Approving`].
const APPROVING: &str = "approving";

/// Writes a question and its state as one JSON object.
pub(super) fn written(question: &ApprovalQuestion, state: StoredState<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512 + question.bytes());
    let mut object = Object::open(&mut out);
    let state = match state {
        StoredState::Believed(state) => state.as_str(),
        StoredState::Approving => APPROVING,
    };
    object.text("state", state);
    object.text("id", question.id.as_str());
    object.text("binding", &question.binding.hex());
    document::named(&mut object, question);
    object.text("arguments", &question.arguments);
    object.text("extra", &question.extra);
    if let Some(violation) = &question.violation {
        let mut flow = Object::open(object.key("violation"));
        flow.text("clause", violation.clause.code());
        flow.text("at", &violation.at);
        flow.text("sink", violation.sink.as_str());
        flow.close();
    }
    object.text("integrity", question.labels.integrity.as_str());
    object.text("confidentiality", question.labels.confidentiality.as_str());
    json::write_items(object.key("origins"), question.origins.iter(), |out, (name, origin)| {
        let mut item = Object::open(out);
        item.text("argument", name);
        item.text("origin", origin.as_str());
        item.close();
    });
    object.show("asked", &millis(question.asked));
    object.show("expires", &millis(question.expires));
    object.text("config", &question.config_digest);
    object.close();
    out
}

/// Reads what [`written`] wrote; `None` if a part of it is missing or is not known.
pub(super) fn read(text: &[u8]) -> Option<StoredApproval> {
    let document = Document::parse(Bytes::copy_from_slice(text), &JsonBounds::ANSWER).ok()?;
    let root = document.root();
    let text = |key: &str| Some(root.get(key)?.as_str()?.into_owned());
    let boxed = |key: &str| Some(text(key)?.into_boxed_str());
    let state = match text("state")?.as_str() {
        "waiting" | APPROVING => ApprovalState::Waiting,
        "approved" => ApprovalState::Approved,
        "denied" => ApprovalState::Denied,
        _ => return None,
    };
    let labels = FlowLabels {
        integrity: named(&text("integrity")?)?,
        confidentiality: named(&text("confidentiality")?)?,
    };
    let definition = match text("definition") {
        Some(digest) => Some(Digest::parse(&digest)?),
        None => None,
    };
    let violation = match root.get("violation") {
        Some(said) => Some(violation(said)?),
        None => None,
    };
    let causes = root.get("causes")?.items().map(cause).collect::<Option<_>>()?;
    let origins = root.get("origins")?.items().map(origin).collect::<Option<_>>()?;
    let question = ApprovalQuestion {
        id: ApprovalId::parse(&text("id")?)?,
        binding: ApprovalBinding::parse(&text("binding")?)?,
        principal: boxed("principal")?,
        client: boxed("client"),
        server: boxed("server")?,
        tool: boxed("tool")?,
        rule: boxed("rule")?,
        causes,
        arguments: boxed("arguments")?,
        extra: boxed("extra")?,
        argument_digest: boxed("argumentDigest")?,
        definition,
        violation,
        labels,
        origins,
        asked: time(&text("asked")?)?,
        expires: time(&text("expires")?)?,
        config_digest: Arc::from(text("config")?),
    };
    Some(StoredApproval { question, state })
}

fn violation(said: Value<'_>) -> Option<FlowViolation> {
    let code = said.get("clause")?.as_str()?;
    Some(FlowViolation {
        clause: FlowClause::ALL.into_iter().find(|clause| clause.code() == code)?,
        at: said.get("at")?.as_str()?.into_owned(),
        sink: named(&said.get("sink")?.as_str()?)?,
    })
}

fn cause(said: Value<'_>) -> Option<&'static str> {
    let said = said.as_str()?;
    let clauses = FlowClause::ALL.map(FlowClause::code);
    CAUSES.into_iter().chain(clauses).find(|known| **known == *said)
}

fn origin(said: Value<'_>) -> Option<(Box<str>, Origin)> {
    let origin = said.get("origin")?.as_str()?;
    let known = [Origin::Unknown, Origin::Trusted, Origin::Untrusted];
    let origin = known.into_iter().find(|known| known.as_str() == origin)?;
    Some((said.get("argument")?.as_str()?.into(), origin))
}

/// The value of an enumeration with this name in the configuration.
fn named<T: DeserializeOwned>(name: &str) -> Option<T> {
    T::deserialize(StrDeserializer::<Error>::new(name)).ok()
}

fn millis(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis())
}

fn time(millis: &str) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis.parse().ok()?))
}
