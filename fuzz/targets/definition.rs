//! Any definition is inspected within its bounds.
#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use policy::json::{Bounds, Document};
use policy::offer::{Kind, Offer};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(document) = Document::parse(Bytes::copy_from_slice(bytes), &Bounds::MESSAGE) {
        let document = Arc::new(document);
        for kind in Kind::LISTED {
            if let Ok(offer) = Offer::read(kind, document.root(), &document) {
                assert!(offer.findings().len() <= 12 && offer.mirrored().len() <= 32);
            }
        }
    }
});
