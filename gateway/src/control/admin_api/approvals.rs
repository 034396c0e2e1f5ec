//! The endpoints of the admin API for approvals: operators list the questions that calls wait for, see what would be
//! done, and approve or deny it. [`admin_api`](super) has the routes.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use json::{Document, JsonBounds};

use super::{AdminApi, JsonText, RequestText};
use crate::config::settings::revoked::check_reason;
use crate::mcp::wire::Object;
use crate::session::approvals::{
    AnswerError, AnswerSource, ApprovalAnswer, ApprovalId, ApprovalVerdict, details, summary,
};

/// Longest name of a person, in bytes.
const LONGEST_NAME: usize = 128;
/// The answer to a body that is not as it has to be.
const SHAPE: (StatusCode, &str) = (
    StatusCode::BAD_REQUEST,
    "send nothing, or an object with `by` (a name of at most 128 bytes) and `reason` (at most 1000)\n",
);
/// The answer to an id of no question.
const NONE: (StatusCode, &str) = (
    StatusCode::NOT_FOUND,
    "there is no such question: it was answered and used, has expired, or the configuration has changed\n",
);

/// What an operator says with an answer.
#[derive(Default)]
struct AnswerWords {
    /// The name of the person.
    by: Option<Box<str>>,
    /// The reason that the person gives.
    reason: Option<Box<str>>,
}

/// Why the answer of an operator is refused.
#[derive(Clone, Copy)]
pub(super) enum AnswerRefusal {
    /// The body is not as it has to be.
    Shape,
    /// The answer was not taken.
    Answer(AnswerError),
}

/// `GET /approvals`: the questions that wait, and the approvals that were not used, without the arguments.
pub(super) async fn list(State(api): State<Arc<AdminApi>>) -> JsonText {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    let open = api.open_approvals();
    json::write_items(object.key("approvals"), open.iter(), |out, open| {
        let mut item = Object::open(out);
        summary(&mut item, open);
        item.close();
    });
    object.close();
    out.push(b'\n');
    JsonText(String::from_utf8(out).unwrap_or_default())
}

/// `GET /approvals/ID`: one question with everything that a person needs to answer it.
pub(super) async fn show(
    State(api): State<Arc<AdminApi>>,
    Path(id): Path<String>,
) -> Result<JsonText, (StatusCode, &'static str)> {
    let open = ApprovalId::parse(&id).and_then(|id| api.open_approval(&id)).ok_or(NONE)?;
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    summary(&mut object, &open);
    details(&mut object, &open.question);
    object.close();
    out.push(b'\n');
    Ok(JsonText(String::from_utf8(out).unwrap_or_default()))
}

/// `POST /approvals/ID/approve`: the call may be made, once.
pub(super) async fn approve(
    State(api): State<Arc<AdminApi>>,
    Path(id): Path<String>,
    RequestText(text): RequestText,
) -> Result<JsonText, AnswerRefusal> {
    answer(&api, &id, text, ApprovalVerdict::Approve).await
}

/// `POST /approvals/ID/deny`: the call is denied, and so is the same call until the question expires.
pub(super) async fn deny(
    State(api): State<Arc<AdminApi>>,
    Path(id): Path<String>,
    RequestText(text): RequestText,
) -> Result<JsonText, AnswerRefusal> {
    answer(&api, &id, text, ApprovalVerdict::Deny).await
}

async fn answer(
    api: &AdminApi,
    id: &str,
    text: Bytes,
    verdict: ApprovalVerdict,
) -> Result<JsonText, AnswerRefusal> {
    let AnswerWords { by, reason } = said(text).ok_or(AnswerRefusal::Shape)?;
    let unknown = AnswerRefusal::Answer(AnswerError::Unknown);
    let id = ApprovalId::parse(id).ok_or(unknown)?;
    // What was asked under another configuration is no longer what would be done.
    let open = api.open_approval(&id).ok_or(unknown)?;
    let answer = ApprovalAnswer { verdict, source: AnswerSource::Operator, by, reason };
    api.approvals().answer(&id, answer).await.map_err(AnswerRefusal::Answer)?;
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    summary(&mut object, &open);
    object.close();
    out.push(b'\n');
    Ok(JsonText(String::from_utf8(out).unwrap_or_default()))
}

/// The name and the reason in a body; `None` if it is not as it has to be.
fn said(text: Bytes) -> Option<AnswerWords> {
    let mut said = AnswerWords::default();
    if text.is_empty() {
        return Some(said);
    }
    let document = Document::parse(text, &JsonBounds::MESSAGE).ok()?;
    let root = document.root();
    for (key, value) in root.members() {
        let text: Box<str> = value.as_str()?.into();
        match &*key {
            "by" if !text.is_empty() && text.len() <= LONGEST_NAME => said.by = Some(text),
            "reason" if check_reason(&text).is_ok() => said.reason = Some(text),
            _ => return None,
        }
    }
    root.is_object().then_some(said)
}

impl IntoResponse for AnswerRefusal {
    fn into_response(self) -> Response {
        match self {
            Self::Shape => SHAPE.into_response(),
            Self::Answer(AnswerError::Unknown) => NONE.into_response(),
            Self::Answer(AnswerError::Answered) => {
                (StatusCode::CONFLICT, "the question was answered before\n").into_response()
            }
            Self::Answer(AnswerError::Unrecorded) => {
                (StatusCode::SERVICE_UNAVAILABLE, "it cannot be recorded\n").into_response()
            }
        }
    }
}
