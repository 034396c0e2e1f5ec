//! Any definition is inspected within its bounds; its canonical form is one, cleaning it ends, and it
//! does not differ from itself.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use policy::definition::drift;
use policy::definition::offer::{CatalogItem, ItemKind};
use policy::definition::pin::{Digest, DigestSubject};
use policy::detection::clean::{self, Cleaning};
use policy::json::{Document, JsonBounds, write_canonical};

use self::bounded::bounded;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(document) = Document::parse(Bytes::copy_from_slice(bytes), &JsonBounds::MESSAGE) {
        let document = Arc::new(document);
        for kind in ItemKind::LISTED {
            if let Ok(offer) =
                bounded(bytes.len(), |_| CatalogItem::read(kind, document.root(), &document))
            {
                assert!(offer.findings().len() <= 32 && offer.mirrored().len() <= 32);
                let subject = DigestSubject::Offer(kind);
                assert!(drift::compare(subject, offer.definition(), offer.definition()).is_empty());
            }
        }
        let mut text = Vec::new();
        if write_canonical(&mut text, document.root()).is_ok() {
            let again = Document::parse(text.clone().into(), &JsonBounds::ANSWER).unwrap();
            let mut twice = Vec::new();
            write_canonical(&mut twice, again.root()).unwrap();
            assert_eq!(text, twice);
            let digest = |document: &Document| Digest::of(DigestSubject::Server, document.root());
            assert_eq!(digest(&document), digest(&again));
        }
        let all = Cleaning { hidden: true, markup: true, secrets: true, addresses: true };
        let cleaned = bounded(bytes.len(), |_| clean::definition(document.root(), all));
        Document::parse(cleaned.into(), &JsonBounds::ANSWER).unwrap();
    }
});
