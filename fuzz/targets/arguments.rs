//! Any schema is made ready or not, and any arguments fit it or not, in bounded time: `[schema,
//! arguments]`. Any text is a path, a URL and an address, or is not.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use policy::constraint::{Constraint, Limits};
use policy::json::{Bounds, Document};
use policy::schema::Schema;
use policy::work::Budget;

fn constraint(limits: serde_json::Value) -> Constraint {
    Constraint::new(Vec::new(), serde_json::from_value::<Limits>(limits).unwrap()).unwrap()
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(document) = Document::parse(Bytes::copy_from_slice(bytes), &Bounds::MESSAGE) else { return };
    let mut items = document.root().items();
    if let (Some(schema), Some(arguments)) = (items.next(), items.next()) {
        let schema = Schema::new(schema);
        let fits = schema.check(Some(arguments)).is_ok();
        assert!(!fits || schema.check_arguments(Some(arguments), &Budget::unlimited()).is_ok());
    }
    for limits in [
        serde_json::json!({ "argument": "/*", "type": "path", "within": ["/srv", "."] }),
        serde_json::json!({ "argument": "/*", "type": "url" }),
        serde_json::json!({ "argument": "/*", "type": "email", "domains": ["*.example"] }),
        serde_json::json!({ "argument": "/*", "forbid": ["shell", "sql", "option", "agentConfig"] }),
    ] {
        drop(constraint(limits).check(Some(document.root())));
    }
});
