//! What reads definitions, schemas and the files that approve them.

use std::sync::Arc;

use detection::clean::{self, Cleaning};
use detection::inspect::{self, Detector};
use detection::labels::Labels;
use gateway::config::settings::{self, lockfile};
use gateway::mcp::short_definition::shorten;
use json::{Document, Value};
use policy::definition::alike::differing;
use policy::definition::decoy::Decoys;
use policy::definition::drift;
use policy::definition::lock::Lockfile;
use policy::definition::offer::{Catalog, CatalogItem, ItemKind};
use policy::definition::pin::{Digest, DigestSubject};
use policy::definition::registry::RegistryEntry;
use policy::definition::shadow::{ShadowingConflicts, SharedRoutes};
use policy::rules::apps::message;
use policy::rules::condition::{AccessRequest, Condition, KnownArguments};
use policy::rules::constraint::{ArgumentLimits, Constraint};
use policy_core::base::work::WorkBudget;
use policy_core::schema::Schema;
use policy_core::schema::declared::undeclared;
use policy_core::subject::name::{ItemName, PrincipalId};
use policy_core::subject::principal::Principal;

use super::{Place, document, server};
use crate::inputs;
use crate::meter::Allowance;

const SMALL: &str = r#"{"name":"send","description":"Sends.","inputSchema":{"type":"object","properties":{"a":{"type":"string"}}}}"#;

/// The detectors of definitions, all of them together.
fn inspection() -> Place {
    Place::new("inspection of definitions", inputs::definitions(), |text, meter| {
        let Some(document) = document(text) else { return };
        let name = ItemName::parse("send it").unwrap();
        meter.measure(text.len(), |budget| {
            inspect::definition(Some(&name), document.root(), budget)
        });
    })
    .of(&Detector::OF_DEFINITIONS)
    .fuzzed_as(&["definition"])
}

/// A definition as it is kept.
fn catalog() -> Place {
    let mut recipes = inputs::definitions();
    recipes.extend(inputs::skills());
    Place::new("reading of definitions", recipes, |text, meter| {
        let Some(document) = document(text) else { return };
        let document = Arc::new(document);
        for kind in ItemKind::LISTED {
            meter.measure(text.len(), |budget| {
                CatalogItem::read_again(kind, document.root(), &document, None, budget).is_ok()
            });
        }
    })
    .of(&[Detector::SkillEntries])
}

fn cleaner() -> Place {
    Place::new("cleaning of definitions", inputs::definitions(), |text, meter| {
        let Some(document) = document(text) else { return };
        let cleaning = Cleaning { hidden: true, markup: true, secrets: true, addresses: true };
        meter.measure(text.len(), |_| clean::definition(document.root(), cleaning));
        meter.measure(text.len(), |_| message::definition(None, document.root()));
        meter.measure(text.len(), |_| shorten(document.root(), 20));
    })
}

/// Another document of the same shape: with other names and words.
fn other(text: &str) -> Option<Document> {
    document(&text.replace("send", "sent").replace('a', "o"))
}

/// Bytes that looking for orders in each byte of a text allocates in all, which an inspection counts as 96 units. A comparison
/// does the same with both texts; it has no budget, because definitions of which one is approved have the length of a list.
const ANALYSIS: usize = 600;

fn pins() -> Place {
    Place::new("digests and differences", inputs::definitions(), |text, meter| {
        let (Some(now), Some(small)) = (document(text), document(SMALL)) else { return };
        let subject = DigestSubject::Offer(ItemKind::Tool);
        meter.measure(text.len(), |_| Digest::of(subject, now.root()));
        meter.measure(text.len(), |_| Digest::of_fields(subject, now.root()));
        let mut pair = |before: Value<'_>, after: Value<'_>, bytes: usize| {
            let allowed = Allowance { heap: 0, work: ANALYSIS * bytes };
            meter.measure_allowing(bytes, allowed, |_| drift::compare(subject, before, after));
            meter.measure(bytes, |_| differing(before, after));
        };
        pair(small.root(), now.root(), text.len());
        pair(now.root(), small.root(), text.len());
        if let Some(before) = other(text) {
            pair(before.root(), now.root(), 2 * text.len());
        }
    })
    .of(&[Detector::Pins])
    .fuzzed_as(&["canonical"])
}

fn registry() -> Place {
    let entry = RegistryEntry { description: Some("Sends.".into()), ..RegistryEntry::default() };
    Place::new("definitions of the registry", inputs::definitions(), move |text, meter| {
        let Some(document) = document(text) else { return };
        meter.measure(text.len(), |_| entry.described(document.root()));
        meter.measure(text.len(), |_| RegistryEntry::digest(document.root()));
    })
    .of(&[Detector::Registry])
}

/// The definitions of two servers that are compared with each other.
fn shadowing() -> Place {
    Place::new("comparison of lists", inputs::lists(), |text, meter| {
        let (Some(list), Some(small)) = (document(text), document(&format!("[{SMALL}]"))) else {
            return;
        };
        let read = |name: &str, list: &Document, budget: &WorkBudget| {
            let whole = Arc::new(list.clone());
            let read = |item: Value<'_>| {
                CatalogItem::read_again(ItemKind::Tool, item, &whole, None, budget).ok()
            };
            let offers = whole.root().items().filter_map(read).collect();
            Arc::new(Catalog::new(server(name), ItemKind::Tool, offers))
        };
        meter.measure(text.len(), |budget| read("up", &list, budget));
        let budget = WorkBudget::unlimited();
        let (up, copy) = (read("up", &list, &budget), read("copy", &list, &budget));
        let other = read("other", &small, &budget);
        let routes = SharedRoutes::default();
        meter.measure(text.len(), |_| {
            ShadowingConflicts::among([Arc::clone(&up), Arc::clone(&other)], &routes)
        });
        meter.measure(2 * text.len(), |_| {
            ShadowingConflicts::among([Arc::clone(&up), Arc::clone(&copy)], &routes)
        });
    })
    .of(&[Detector::Shadowing])
}

/// Names of tools that exist only to be called.
fn decoys() -> Place {
    Place::new("decoys", inputs::texts(), |text, meter| {
        let decoys = Decoys::default();
        meter.measure(text.len(), |_| decoys.has("up", ItemKind::Tool, text));
    })
    .of(&[Detector::Decoys])
}

/// Lockfiles, in which definitions of servers are texts.
fn lockfiles() -> Place {
    Place::new("lockfiles", inputs::files(), |text, meter| {
        meter.measure(text.len(), |_| lockfile::check(text, &Lockfile::default()));
    })
    .fuzzed_as(&["lockfile"])
}

/// Lockfiles, configurations and conditions, which no peer chooses.
pub(super) fn of_operators() -> Vec<Place> {
    let place = Place::new("configurations", inputs::files(), |text, meter| {
        meter.measure(text.len(), |_| settings::load("f.yaml", text, &|_| None).is_ok());
    });
    vec![place.fuzzed_as(&["configuration"]), lockfiles(), conditions()]
}

/// Everything that reads definitions.
pub(super) fn definitions() -> Vec<Place> {
    vec![inspection(), catalog(), cleaner(), pins(), registry(), shadowing(), decoys()]
}

/// Most parts of a schema that is read, and the bytes that an object of it takes in one copy.
const PARTS: usize = 5000;
const OBJECT: usize = 640;
/// How often a pattern is compiled at most: for three sizes, and for the validator.
const PATTERNS_TRIED: usize = 4;

/// A schema that a server chose is compiled. Its patterns may take what `schemaMemory` counts for them.
fn compiling() -> Place {
    Place::new("compiling of schemas", inputs::schemas(), |text, meter| {
        let Some(document) = document(text) else { return };
        // One that cannot be used weighs nothing afterwards. It has at most so many parts.
        let parts = text.matches('{').count().min(PARTS) * 2 * OBJECT;
        let heap = Schema::new(document.root()).weight().max(parts);
        // It is allocated anew while the smallest size is found in which each pattern fits.
        let allowed = Allowance { heap, work: PATTERNS_TRIED * heap };
        meter.measure_allowing(text.len(), allowed, |_| Schema::new(document.root()));
        meter.measure(text.len(), |_| Labels::of_schema(document.root()));
    })
    .of(&[Detector::InputSchema, Detector::OutputSchema])
    .fuzzed_as(&["arguments"])
}

/// Schemas of ordinary size, with which values that a peer chose are compared.
const CHECKED: [&str; 5] = [
    r#"{"type":"object","properties":{"v":{"type":"array","items":{"anyOf":[{"type":"string"},{"type":"object"}]}}}}"#,
    r#"{"type":"object","properties":{"v":{"uniqueItems":true},"text":{"pattern":"^(a|b)*c$"}}}"#,
    r##"{"type":"object","properties":{"v":{"$ref":"#/$defs/v"}},"$defs":{"v":{"items":{"$ref":"#/$defs/v"},"additionalProperties":{"$ref":"#/$defs/v"}}}}"##,
    r#"{"additionalProperties":false,"required":["x"],"properties":{"v":{"maxProperties":1},"text":{"maxLength":4}}}"#,
    r#"{"unevaluatedProperties":false,"patternProperties":{"^v":{"items":{"multipleOf":0.01}}}}"#,
];

/// Bytes that the search for undeclared members allocates in all for each byte of a value. It visits a million parts at most.
const DECLARED: usize = 300;

fn checking() -> Place {
    let schemas: Vec<_> =
        CHECKED.iter().map(|schema| Schema::new(document(schema).unwrap().root())).collect();
    assert!(schemas.iter().all(Schema::is_usable));
    Place::new("checks of values", inputs::arguments(), move |text, meter| {
        let Some(document) = document(text) else { return };
        for (schema, of) in schemas.iter().zip(CHECKED) {
            meter.measure(text.len(), |budget| {
                schema.check_arguments(Some(document.root()), budget)
            });
            let declared = super::document(of).unwrap();
            let allowed = Allowance { heap: 0, work: DECLARED * text.len() };
            meter.measure_allowing(text.len(), allowed, |_| {
                undeclared(Some(declared.root()), document.root())
            });
        }
    })
    .of(&[Detector::InputSchema, Detector::OutputSchema])
}

fn constraints() -> Place {
    let constraint = |limits: serde_json::Value| {
        let limits = serde_json::from_value::<ArgumentLimits>(limits).unwrap();
        Constraint::new(Vec::new(), limits).unwrap()
    };
    let all = [
        serde_json::json!({ "argument": "/*", "type": "path", "within": ["/srv", "."] }),
        serde_json::json!({ "argument": "/*", "type": "url" }),
        serde_json::json!({ "argument": "/*", "type": "email", "domains": ["*.example"] }),
        serde_json::json!({ "argument": "/*", "forbid": ["shell", "sql", "option", "agentConfig"] }),
        serde_json::json!({ "argument": "/*", "pattern": "(a|b)*c", "maxLength": 4 }),
        serde_json::json!({ "argument": "/v/*", "type": "url" }),
    ]
    .map(constraint);
    Place::new("constraints", inputs::arguments(), move |text, meter| {
        let Some(document) = document(text) else { return };
        for constraint in &all {
            meter.measure(text.len(), |_| constraint.check(Some(document.root()), None));
        }
    })
    .of(&[Detector::Constraints])
}

fn conditions() -> Place {
    Place::new("compiling of conditions", inputs::conditions(), |text, meter| {
        meter.measure(text.len(), |_| Condition::compile(text).is_ok());
    })
    .fuzzed_as(&["condition"])
}

/// Conditions of rules about the arguments that a caller has chosen.
fn evaluation() -> Place {
    const CONDITIONS: [&str; 4] = [
        "arguments.v == 1",
        "arguments.text.matches('^(a|b)*c$')",
        "arguments == {'a': 1}",
        "arguments.v.all(x, x == 1)",
    ];
    let conditions = CONDITIONS.map(|text| Condition::compile(text).unwrap());
    let ana = Principal::new(PrincipalId::parse("ana").unwrap(), [].into());
    Place::new("evaluation of conditions", inputs::arguments(), move |text, meter| {
        let Some(document) = document(text) else { return };
        for condition in &conditions {
            meter.measure(text.len(), |budget| {
                let arguments = KnownArguments::Given(document.root(), budget);
                let (principal, server, kind) = (&ana, &server("up"), ItemKind::Tool);
                let (known, flow) = (None, None);
                let name = "send";
                let asked = AccessRequest { principal, server, kind, name, arguments, known, flow };
                condition.evaluate(asked).is_ok()
            });
        }
    })
}

/// Everything that compiles and checks.
pub(super) fn schemas() -> Vec<Place> {
    vec![compiling(), checking(), constraints(), evaluation()]
}
