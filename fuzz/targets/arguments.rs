//! Any schema is made ready or not, and any arguments fit it or not, in bounded time: `[schema,
//! arguments]`. Any text is a path, a URL and an address, or is not.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use policy::json::{Document, JsonBounds};
use policy::rules::constraint::{ArgumentLimits, Constraint};
use policy::schema::Schema;

use self::bounded::bounded;

fn constraint(limits: serde_json::Value) -> Constraint {
    Constraint::new(Vec::new(), serde_json::from_value::<ArgumentLimits>(limits).unwrap()).unwrap()
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(document) = Document::parse(Bytes::copy_from_slice(bytes), &JsonBounds::MESSAGE) else {
        return;
    };
    let mut items = document.root().items();
    if let (Some(schema), Some(arguments)) = (items.next(), items.next()) {
        let schema = bounded(bytes.len(), |_| Schema::new(schema));
        let fits = bounded(bytes.len(), |budget| schema.check(Some(arguments), budget).is_ok());
        let fit_as_arguments = |budget: &_| schema.check_arguments(Some(arguments), budget).is_ok();
        assert!(!fits || bounded(bytes.len(), fit_as_arguments));
    }
    for limits in [
        serde_json::json!({ "argument": "/*", "type": "path", "within": ["/srv", "."] }),
        serde_json::json!({ "argument": "/*", "type": "url" }),
        serde_json::json!({ "argument": "/*", "type": "email", "domains": ["*.example"] }),
        serde_json::json!({ "argument": "/*", "forbid": ["shell", "sql", "option", "agentConfig"] }),
    ] {
        let constraint = constraint(limits);
        let _whether = bounded(bytes.len(), |_| constraint.check(Some(document.root()), None));
    }
});
