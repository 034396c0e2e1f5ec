//! The endpoint of the admin API with which operators see how tools are ranked for a caller, and why.
//! [`admin_api`](super) has the route.

use std::sync::Arc;

use axum::extract::State;
use bytes::Bytes;
use http::StatusCode;
use json::{Document, JsonBounds, JsonKind, Value};
use policy_core::subject::principal::ProofOfPossession;
use selector::ranking::WordMatch;
use serde_json::json;

use super::{AdminApi, JsonText, RequestText};
use crate::config::settings::MAX_FOUND_TOOLS;
use crate::config::settings::cases::{CallerDescription, KnownCallers};
use crate::exchange::{NoRanking, RankedTool, RankingQuestion, RankingReport};

/// Longest request, in bytes, as for `find_tools`.
const MAX_QUERY: usize = 2048;
/// Most groups, roles or scopes of a caller.
const MAX_NAMES: usize = 128;
/// The number of tools if the request names none.
const USUAL_LIMIT: usize = 10;
/// The parts of a score that come from services, which are not asked.
const OF_SERVICES: [&str; 2] = ["embedding", "judged"];
/// The answer to a body that is not as it has to be.
const SHAPE: (StatusCode, &str) = (
    StatusCode::BAD_REQUEST,
    "send an object with `principal`, `route` and `query` (at most 2048 bytes), and if need be `groups`, `roles`, `scopes` \
     (lists of at most 128 names), `client`, `limit` (1 to 50) and `explain` (true or false)\n",
);

/// The note to an answer about a principal of which nothing is known.
const UNKNOWN_PRINCIPAL: &str = "the configuration names no such principal, and the question says no groups, roles or scopes: this is the answer for \
                                 a principal without them";

/// How much an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportDetail {
    /// The tools in their order.
    Order,
    /// Also what each score is made of, and which tools are close.
    Scores,
}

/// What an operator asks.
struct AskedRanking {
    question: RankingQuestion,
    detail: ReportDetail,
    /// What the operator may not expect of the answer.
    note: Option<&'static str>,
}

/// `POST /select`: how the tools of a route are ranked for a request of a caller. What the caller may not use does not
/// appear.
pub(super) async fn select(
    State(api): State<Arc<AdminApi>>,
    RequestText(text): RequestText,
) -> Result<JsonText, (StatusCode, &'static str)> {
    let gateway = Arc::clone(&api.live.now().gateway);
    let AskedRanking { question, detail, note } =
        asked(text, &gateway.known_callers).ok_or(SHAPE)?;
    match gateway.ranking(question).await {
        Ok(report) => {
            let mut answer = shown(&report, detail);
            if let (Some(note), Some(members)) = (note, answer.as_object_mut()) {
                members.insert("note".to_owned(), json!(note));
            }
            Ok(JsonText(format!("{answer}\n")))
        }
        Err(NoRanking::Route) => {
            Err((StatusCode::NOT_FOUND, "there is no such route with `discovery`\n"))
        }
        Err(NoRanking::Overload) => {
            Err((StatusCode::SERVICE_UNAVAILABLE, "there is too much other work\n"))
        }
    }
}

/// What a body asks for; `None` if it is not as it has to be.
fn asked(text: Bytes, callers: &KnownCallers) -> Option<AskedRanking> {
    let document = Document::parse(text, &JsonBounds::MESSAGE).ok()?;
    let root = document.root();
    let mut caller = CallerDescription::default();
    let (mut route, mut query, mut limit) = (None, None, USUAL_LIMIT);
    let mut detail = ReportDetail::Order;
    for (key, value) in root.members() {
        match &*key {
            "principal" => caller.id = value.as_str()?.into_owned(),
            "groups" => caller.groups = names(value)?,
            "roles" => caller.roles = names(value)?,
            "scopes" => caller.scopes = names(value)?,
            "client" => caller.client = Some(value.as_str()?.into_owned()),
            "route" => route = Some(value.as_str()?.as_ref().into()),
            "query" => query = Some(value.as_str()?.into_owned()),
            "limit" => {
                let asked = usize::try_from(value.as_i64()?).ok();
                limit = asked.filter(|asked| (1..=MAX_FOUND_TOOLS).contains(asked))?;
            }
            "explain" if value.as_bool()? => detail = ReportDetail::Scores,
            "explain" => detail = ReportDetail::Order,
            _ => return None,
        }
    }
    caller.proof = ProofOfPossession::None;
    let query = query.filter(|query| query.len() <= MAX_QUERY)?;
    let note = (!caller.is_known_or_described(callers)).then_some(UNKNOWN_PRINCIPAL);
    let principal = caller.principal_among(callers).ok()?;
    let question = RankingQuestion { principal, route: route?, query, limit };
    root.is_object().then_some(AskedRanking { question, detail, note })
}

fn names(list: Value<'_>) -> Option<Vec<String>> {
    let names = list.items().map(|name| Some(name.as_str()?.into_owned()));
    let names: Vec<_> = names.collect::<Option<_>>()?;
    (list.kind() == JsonKind::Array && names.len() <= MAX_NAMES).then_some(names)
}

fn shown(report: &RankingReport, detail: ReportDetail) -> serde_json::Value {
    let tools = report.tools.iter().map(|tool| ranked(tool, detail));
    let mut answer = json!({
        "tools": tools.collect::<Vec<_>>(), "missing": report.missing, "notAsked": report.not_asked,
    });
    if detail == ReportDetail::Scores
        && let Some(members) = answer.as_object_mut()
    {
        members.insert("close".to_owned(), json!(report.close));
    }
    answer
}

fn ranked(tool: &RankedTool, detail: ReportDetail) -> serde_json::Value {
    let RankedTool { name, server, hit, signals } = tool;
    let mut shown = json!({ "name": name, "server": server, "score": hit.score });
    let matched = |one: &WordMatch| json!({ "asked": one.asked, "found": one.found, "similarity": one.similarity });
    if detail == ReportDetail::Scores
        && let Some(members) = shown.as_object_mut()
    {
        let scores = json!({
            "words": hit.scores.lexical, "similarWords": hit.scores.soft, "direction": hit.scores.semantic,
        });
        // No judge is asked, so that nothing is known of the place that it would give.
        let known = json!({
            "history": signals.history, "available": signals.available, "judged": null,
        });
        let parts = hit.parts.named().into_iter().filter(|(name, _)| !OF_SERVICES.contains(name));
        let parts: serde_json::Map<_, _> =
            parts.map(|(name, part)| (name.to_owned(), json!(part))).collect();
        let matches: Vec<_> = hit.matches.iter().map(matched).collect();
        members.insert("scores".to_owned(), scores);
        members.insert("signals".to_owned(), known);
        members.insert("parts".to_owned(), json!(parts));
        members.insert("matches".to_owned(), json!(matches));
    }
    shown
}
