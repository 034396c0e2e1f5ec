//! The form by which the user of a client is asked about a call.

use json::Value;
use policy::flow::guard::Origin;

use super::drawing::drawn_text;
use super::question::{ApprovalQuestion, ENDORSES};
use super::{AnswerSource, ApprovalAnswer, ApprovalVerdict};
use crate::mcp::wire::Object;

/// The key of the question in `inputRequests` and `inputResponses`.
pub const FORM_KEY: &str = "portcullis-approval";
/// The field of the form.
const FIELD: &str = "approve";

/// The params of an `elicitation/create` request of the gateway itself. Only [`ApprovalQuestion::form`] writes them, and
/// no text of a server is in them.
#[derive(Clone, Debug)]
pub struct ApprovalForm(String);

impl ApprovalForm {
    /// The params as JSON.
    #[must_use]
    pub fn params(&self) -> &str {
        &self.0
    }
}

impl ApprovalQuestion {
    /// The question as a form with one field. The names are drawn, as the arguments are.
    #[must_use]
    pub fn form(&self) -> ApprovalForm {
        let mut out = Vec::new();
        let mut params = Object::open(&mut out);
        params.text("message", &self.message());
        let mut schema = Object::open(params.key("requestedSchema"));
        schema.text("type", "object");
        let mut properties = Object::open(schema.key("properties"));
        let mut field = Object::open(properties.key(FIELD));
        field.text("type", "boolean");
        field.text("title", "Make this call");
        field.raw("default", "false");
        field.close();
        properties.close();
        schema.raw("required", &format!(r#"["{FIELD}"]"#));
        schema.close();
        params.close();
        ApprovalForm(String::from_utf8(out).unwrap_or_default())
    }

    fn message(&self) -> String {
        let mut lines = vec![
            "The gateway asks whether this call may be made, once:".to_owned(),
            format!("principal: {}", drawn_text(&self.principal)),
            format!("server: {}", self.server),
            format!("tool: {}", drawn_text(&self.tool)),
            format!("rule: {} (asked by: {})", self.rule, self.causes.join(", ")),
        ];
        if let Some(violation) = &self.violation {
            let (at, sink, note) =
                (drawn_text(&violation.at), violation.sink.as_str(), violation.clause.note());
            lines.push(format!("flow: `{at}` of this tool (sink: {sink}) {note}"));
            lines.push(ENDORSES.to_owned());
        }
        let known = self.origins.iter().filter(|(_, origin)| *origin != Origin::Unknown);
        lines.extend(known.map(|(name, origin)| {
            format!("values of `{}`: {}", drawn_text(name), origin.as_str())
        }));
        lines.push(format!("arguments: {}", self.arguments));
        if !self.extra.is_empty() {
            lines.push(format!("params: {}", self.extra));
        }
        lines.join("\n")
    }
}

/// The answer of a user in the result of the form: only `accept` with the field set approves.
#[must_use]
pub fn form_answer(result: Value<'_>) -> ApprovalAnswer {
    let is_accepted = result.get("action").is_some_and(|action| action.is_text("accept"));
    let field = result.get("content").and_then(|content| content.get(FIELD));
    let approves = is_accepted && field.and_then(Value::as_bool) == Some(true);
    let verdict = if approves { ApprovalVerdict::Approve } else { ApprovalVerdict::Deny };
    ApprovalAnswer { verdict, source: AnswerSource::Client, by: None, reason: None }
}

#[cfg(test)]
mod tests {
    use json::{Document, JsonBounds};

    use super::{ApprovalVerdict, form_answer};

    #[test]
    fn only_an_accepted_form_that_says_so_approves() {
        let of = |text: &'static str| {
            form_answer(Document::parse(text.into(), &JsonBounds::MESSAGE).unwrap().root()).verdict
        };
        assert_eq!(
            of(r#"{"action":"accept","content":{"approve":true}}"#),
            ApprovalVerdict::Approve
        );
        for other in [
            r#"{"action":"accept","content":{"approve":false}}"#,
            r#"{"action":"accept","content":{"approve":"true"}}"#,
            r#"{"action":"accept","content":{}}"#,
            r#"{"action":"accept"}"#,
            r#"{"action":"decline","content":{"approve":true}}"#,
            r#"{"action":"cancel","content":{"approve":true}}"#,
            r#"{"content":{"approve":true}}"#,
            "[]",
        ] {
            assert_eq!(of(other), ApprovalVerdict::Deny, "{other}");
        }
    }
}
