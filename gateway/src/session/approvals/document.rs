//! A question as JSON, for operators and what works for them.

use super::{ApprovalQuestion, OpenApproval};
use crate::mcp::wire::Object;

/// Writes what a list says of a question.
pub fn summary(object: &mut Object<'_>, open: &OpenApproval) {
    let question = &open.question;
    object.text("id", question.id.as_str());
    object.text("state", open.state.borrow().as_str());
    described(object, question);
}

/// Writes which call a question is about, without its arguments.
pub(super) fn named(object: &mut Object<'_>, question: &ApprovalQuestion) {
    object.text("principal", &question.principal);
    if let Some(client) = &question.client {
        object.text("client", client);
    }
    object.text("server", &question.server);
    object.text("tool", &question.tool);
    object.text("rule", &question.rule);
    json::write_items(object.key("causes"), question.causes.iter(), |out, cause| {
        json::write_string(out, cause);
    });
    object.text("argumentDigest", &question.argument_digest);
    if let Some(definition) = &question.definition {
        object.show("definition", definition);
    }
}

/// Writes what is asked, without the arguments.
fn described(object: &mut Object<'_>, question: &ApprovalQuestion) {
    named(object, question);
    object.show("asked", &humantime::format_rfc3339_seconds(question.asked));
    object.show("expires", &humantime::format_rfc3339_seconds(question.expires));
}

/// Writes the rest of a question: everything that a person needs to answer it.
pub fn details(object: &mut Object<'_>, question: &ApprovalQuestion) {
    object.text("arguments", &question.arguments);
    if !question.extra.is_empty() {
        object.text("params", &question.extra);
    }
    if let Some(violation) = &question.violation {
        let mut flow = Object::open(object.key("flow"));
        flow.text("clause", violation.clause.code());
        flow.text("argument", &violation.at);
        flow.text("sink", violation.sink.as_str());
        flow.text("note", violation.clause.note());
        flow.text("integrity", question.labels.integrity.as_str());
        flow.text("confidentiality", question.labels.confidentiality.as_str());
        flow.text("approvalMeans", super::question::ENDORSES);
        flow.close();
    }
    if !question.origins.is_empty() {
        let origins = question.origins.iter();
        json::write_items(object.key("origins"), origins, |out, (argument, origin)| {
            let mut item = Object::open(out);
            item.text("argument", argument);
            item.text("origin", origin.as_str());
            item.close();
        });
    }
}
