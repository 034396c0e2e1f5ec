//! What looks at results and arguments.

use std::hash::RandomState;
use std::sync::Arc;

use detection::clean::{self, Cleaning};
use detection::content::{
    ChosenPart, ContentPolicy, ContentProfile, ContentRecipient, Direction, Handlings, Honeytoken,
    SeenTools, truncated, without_secrets, without_values,
};
use detection::inspect::{self, Detector};
use detection::labels::{self, ConcealedMembers, LabelledPart, Labels};
use json::{Document, Fragment};
use policy::definition::skill::{self, SkillManifest};
use policy::engine::events;
use policy::engine::message::{ItemRequest, RequestOperation};
use policy::flow::guard::{FlowMode, FlowPolicy, FlowSettings, ToolLabels};
use policy::flow::label::{FlowLabels, Sink};
use policy::flow::memory::{FlowMemory, ResultSource, RunsKept};
use policy::flow::value::ValueKey;
use policy::rules::apps::message::{ReadItem, edited};
use policy_core::base::work::WorkBudget;
use policy_core::subject::pattern::Pattern;
use serde_json::{Map, Value};

use super::{Place, document, server};
use crate::inputs;

/// The detectors of contents that have a handling, by their keys in the configuration.
const HANDLED: [(&str, Detector); 12] = [
    ("hiddenCharacters", Detector::HiddenCharacters),
    ("activeMarkup", Detector::ActiveMarkup),
    ("links", Detector::Links),
    ("secrets", Detector::Secrets),
    ("identifiers", Detector::Identifiers),
    ("contacts", Detector::Contacts),
    ("plantedInstructions", Detector::PlantedInstructions),
    ("toolDirections", Detector::ToolDirections),
    ("placeholders", Detector::Placeholders),
    ("canaries", Detector::Canaries),
    ("carriedData", Detector::CarriedData),
    ("mediaTypes", Detector::MediaTypes),
];
/// What is done about findings, beside nothing.
const HANDLINGS: [&str; 7] = ["audit", "annotate", "wrap", "strip", "defang", "redact", "block"];
const CANARY: &str = "canary-7f3a9c21";
/// Values of a flow that are remembered, as by default.
const REMEMBERED: usize = 10_000;

/// The handlings in which one detector does this and all others are off; `None` if it cannot.
fn alone(key: &str, how: &str, direction: Direction) -> Option<Handlings> {
    let all = HANDLED.iter().map(|(other, _)| {
        (str::to_owned(other), Value::from(if *other == key { how } else { "off" }))
    });
    let handlings: Handlings = serde_json::from_value(all.collect::<Map<_, _>>().into()).unwrap();
    let is_used = handlings.misused(direction).all(|(member, _)| member != key);
    is_used.then_some(handlings)
}

fn profile() -> ContentProfile {
    let link_hosts = vec![Pattern::new("*.example")];
    ContentProfile { servers: vec![Pattern::new("*")], link_hosts, ..ContentProfile::default() }
}

fn policy(profiles: Vec<ContentProfile>) -> ContentPolicy {
    ContentPolicy::new(profiles).with_canaries(&[CANARY.to_owned()]).unwrap()
}

/// A policy under which `ana` was shown a number by another server, which is then looked for.
fn after_a_number(profile: ContentProfile) -> ContentPolicy {
    let results = serde_json::from_value(serde_json::json!({ "identifiers": "audit" })).unwrap();
    let servers = vec![Pattern::new("crm")];
    let shows = ContentProfile { servers, results, ..ContentProfile::default() };
    let contents = policy(vec![shows, profile]);
    let shown = document(r#""Card 4539 1488 0343 6467""#).unwrap();
    let budget = WorkBudget::unlimited();
    let seen = contents.look(&server("crm"), Direction::Result, "ana", shown.root(), &budget);
    assert!(seen.changed.is_none(), "it was shown");
    contents
}

/// Each detector alone, with each handling, in the direction in which it can do most.
pub(super) fn handlings() -> Vec<Place> {
    let mut all = Vec::new();
    for (key, detector) in HANDLED {
        for how in HANDLINGS {
            let is_of_arguments = detector == Detector::CarriedData;
            let direction = if is_of_arguments { Direction::Argument } else { Direction::Result };
            let Some(handlings) = alone(key, how, direction) else { continue };
            let place = match direction {
                Direction::Argument => {
                    let profile = ContentProfile { arguments: handlings, ..profile() };
                    let contents = after_a_number(profile);
                    Place::new(format!("{key}: {how}"), inputs::arguments(), move |text, meter| {
                        let Some(document) = document(text) else { return };
                        meter.measure(text.len(), |budget| {
                            contents.look(&server("up"), direction, "ana", document.root(), budget)
                        });
                    })
                }
                Direction::Result => {
                    let contents = policy(vec![ContentProfile { results: handlings, ..profile() }]);
                    Place::new(format!("{key}: {how}"), inputs::results(), move |text, meter| {
                        let Some(document) = document(text) else { return };
                        let tools = SeenTools { own: &|_| false, others: Some(&|_| true) };
                        let reader = ContentRecipient { caller: "ana", tools: Some(tools) };
                        meter.measure(text.len(), |budget| {
                            contents.look_but(&server("up"), reader, document.root(), &[], budget)
                        });
                    })
                }
            };
            all.push(place.of(&[detector]).fuzzed_as(&["detector"]));
        }
    }
    all
}

/// The usual policy with a fence, all detectors together.
fn usual() -> Place {
    let contents = after_a_number(ContentProfile { fence: true, ..profile() });
    Place::new("all detectors, in results", inputs::results(), move |text, meter| {
        let Some(document) = document(text) else { return };
        meter.measure(text.len(), |budget| {
            contents.look(&server("up"), Direction::Result, "ana", document.root(), budget)
        });
    })
    .of(&[Detector::InspectionBudget])
    .fuzzed_as(&["content"])
}

fn usual_arguments() -> Place {
    let contents = after_a_number(profile());
    Place::new("all detectors, in arguments", inputs::arguments(), move |text, meter| {
        let Some(document) = document(text) else { return };
        meter.measure(text.len(), |budget| {
            contents.look(&server("up"), Direction::Argument, "ana", document.root(), budget)
        });
        let parts = [ChosenPart::Members(document.root())];
        meter.measure(text.len(), |budget| {
            contents.look_together(&server("up"), "ana", &parts, budget)
        });
    })
    .of(&[Detector::CarriedData])
}

fn honeytokens() -> Place {
    let token = Honeytoken { name: "h".into(), value: "password=".into() };
    let contents = ContentPolicy::default().with_honeytokens(&[token]).unwrap();
    Place::new("honeytokens", inputs::arguments(), move |text, meter| {
        let Some(document) = document(text) else { return };
        meter.measure(text.len(), |budget| {
            contents.honeytokens_in(&server("up"), "ana", document.root(), budget)
        });
    })
    .of(&[Detector::Honeytokens])
}

/// What is hidden of a result because of labels.
fn labelled() -> Place {
    let mut of_result = Labels::default();
    for at in ["/v", "/v/*", "/v/*/*", "/a"] {
        of_result.add(at, "sensitive");
    }
    let concealed = ConcealedMembers::of([&of_result], |_| false);
    let contents = policy(vec![profile()]);
    Place::new("labelled members", inputs::results(), move |text, meter| {
        let Some(document) = document(text) else { return };
        meter.measure(text.len(), |budget| {
            let mark = |value: &str| contents.mark(&server("up"), "ana", value);
            let part = LabelledPart::Result;
            labels::without(document.root(), part, &concealed, &mark, budget)
        });
    })
    .of(&[Detector::SensitiveFields])
}

fn size() -> Place {
    Place::new("shortening of results", inputs::results(), |text, meter| {
        let Some(document) = document(text) else { return };
        meter.measure(text.len(), |_| truncated(document.root(), text.len() / 2));
    })
    .of(&[Detector::ResultSize])
}

/// What a flow remembers of a result, and compares with a call.
fn flow() -> Place {
    let key = ValueKey::new(RandomState::new());
    let settings = FlowSettings { mode: FlowMode::Deny, ..FlowSettings::default() };
    let policy = FlowPolicy::new(settings).compared_by_rules();
    Place::new("flow labels", inputs::results(), move |text, meter| {
        let Some(document) = document(text) else { return };
        let labels = FlowLabels::STRICTEST;
        let source = ResultSource { labels, vouched: &[], runs: RunsKept::All };
        meter.measure(text.len(), |_| {
            let mut memory = FlowMemory::default();
            memory.shown(&key, source, document.root(), REMEMBERED);
            memory
        });
        let mut memory = FlowMemory::default();
        memory.shown(&key, source, document.root(), REMEMBERED);
        let sink = Sink::External;
        let tool = ToolLabels { labels: FlowLabels::default(), sink, targets: None, vouched: &[] };
        let call = call("send", &document);
        meter.measure(text.len(), |_| policy.judge(&key, &memory, tool, call.sent()));
    })
    .of(&[Detector::Flow])
}

/// A call with this document as its arguments.
fn call(tool: &str, arguments: &Document) -> ItemRequest {
    ItemRequest {
        arguments: Some(Fragment::whole(Arc::new(arguments.clone()))),
        ..ItemRequest::bare(&server("up"), RequestOperation::Call, tool)
    }
}

fn apps() -> Place {
    Place::new("apps in results", inputs::results(), |text, meter| {
        let Some(document) = document(text) else { return };
        for read in [ReadItem::Other, ReadItem::App] {
            meter.measure(text.len(), |_| edited(None, document.root(), read));
        }
    })
    .of(&[Detector::Apps])
}

fn webhooks() -> Place {
    Place::new("addresses for events", inputs::arguments(), |text, meter| {
        let Some(document) = document(text) else { return };
        let call = call("events/subscribe", &document);
        meter.measure(text.len(), |_| events::webhook_of(&call));
    })
    .of(&[Detector::Webhooks])
}

/// The files of a skill, compared with its manifest.
fn skill_files() -> Place {
    let listed = document(&format!(
        r#"{{"uri":"skill://s/SKILL.md","frontmatter":{{"name":"s","description":"d"}},"resources":[{{"uri":"skill://s/SKILL.md","digest":"sha256:{}"}}]}}"#,
        "a".repeat(64)
    ));
    let manifest = SkillManifest::read(listed.unwrap().root()).unwrap();
    Place::new("files of skills", inputs::results(), move |text, meter| {
        let Some(document) = document(text) else { return };
        meter.measure(text.len(), |_| skill::has_file(document.root()));
        let quoted = Value::from(text);
        let whole = format!(r#"{{"contents":[{{"uri":"skill://s/SKILL.md","text":{quoted}}}]}}"#);
        let Some(document) = super::document(&whole) else { return };
        let file = manifest.file("skill://s/SKILL.md").unwrap();
        meter.measure(whole.len(), |_| file.is_content_of(document.root()));
    })
    .of(&[Detector::SkillFiles])
}

/// What is removed from a text by itself.
fn cleaner() -> Place {
    Place::new("cleaning of texts", inputs::texts(), |text, meter| {
        let cleaning = Cleaning { hidden: true, markup: true, secrets: true, addresses: true };
        meter.measure(text.len(), |_| clean::text(text, cleaning));
    })
    .fuzzed_as(&["cleaner"])
}

/// Texts for logs and records.
fn records() -> Place {
    let contents = policy(vec![profile()]);
    Place::new("secrets in records", inputs::texts(), move |text, meter| {
        meter.measure(text.len(), |_| without_secrets(text));
        meter.measure(text.len(), |_| without_values(text, Some(&contents)).len());
    })
    .of(&[Detector::Secrets])
}

/// Texts of a server that belong to no definition: its instructions.
fn instructions() -> Place {
    Place::new("instructions of servers", inputs::documents(), |text, meter| {
        let Some(document) = document(text) else { return };
        meter.measure(text.len(), |budget| inspect::text(document.root(), budget));
    })
    .of(&[Detector::PlantedInstructions])
}

/// Everything else that looks at contents.
pub(super) fn contents() -> Vec<Place> {
    vec![
        usual(),
        usual_arguments(),
        honeytokens(),
        labelled(),
        size(),
        flow(),
        apps(),
        webhooks(),
        skill_files(),
        cleaner(),
        records(),
        instructions(),
    ]
}
