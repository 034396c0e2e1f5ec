//! Any definition is inspected within its bounds.
#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use policy::json::{Bounds, Document};
use policy::tool::Tool;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(document) = Document::parse(Bytes::copy_from_slice(bytes), &Bounds::MESSAGE) {
        let document = Arc::new(document);
        if let Ok(tool) = Tool::read(document.root(), &document) {
            assert!(tool.findings().len() <= 12);
        }
    }
});
