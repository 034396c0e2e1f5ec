//! How long a judgement about a call takes in a flow with 10,000 remembered values. `cargo bench -p policy --bench flow`.

#![expect(clippy::unwrap_used, reason = "its own texts")]

use std::hash::RandomState;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use json::{Document, Fragment, JsonBounds};
use policy::engine::message::{ItemRequest, RequestOperation};
use policy::flow::guard::{FlowMode, FlowPolicy, FlowSettings, ToolLabels};
use policy::flow::label::{FlowLabels, Sink};
use policy::flow::memory::{FlowMemory, ResultSource, RunsKept};
use policy::flow::value::ValueKey;
use policy_core::subject::name::ServerName;

const VALUES: usize = 10_000;
const CALL: &str = r#"{"recipient":"bob@corp.example","subject":"Minutes of the meeting on Monday",
    "body":"Hello Bob, these are the minutes of our meeting. See you next week."}"#;

fn judged(criterion: &mut Criterion) {
    let key = ValueKey::new(RandomState::new());
    let mut memory = FlowMemory::default();
    let text = (0..VALUES).map(|n| format!("word{n} ")).collect::<String>();
    let shown = Document::parse(format!(r#"["{text}"]"#).into(), &JsonBounds::ANSWER).unwrap();
    let source = ResultSource { labels: FlowLabels::STRICTEST, vouched: &[], runs: RunsKept::All };
    memory.shown(&key, source, shown.root(), VALUES);
    let settings = FlowSettings { mode: FlowMode::Deny, ..FlowSettings::default() };
    let (policy, targets) = (FlowPolicy::new(settings), ["recipient".into()]);
    let tool = ToolLabels {
        labels: FlowLabels::default(),
        sink: Sink::External,
        targets: Some(&targets),
        vouched: &[],
    };
    let arguments = Document::parse(CALL.into(), &JsonBounds::MESSAGE).unwrap();
    let call = ItemRequest {
        arguments: Some(Fragment::whole(Arc::new(arguments))),
        ..ItemRequest::bare(&ServerName::parse("mail").unwrap(), RequestOperation::Call, "send")
    };
    criterion.bench_function("judgement at 10,000 values", |bencher| {
        bencher.iter(|| policy.judge(&key, black_box(&memory), tool, call.sent()));
    });
}

criterion_group!(benches, judged);
criterion_main!(benches);
