//! Authenticates callers by API key.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::{constant_time, digest};
use policy::subject::principal::Principal;

use crate::config::settings::ApiKey;

/// API keys by the first bytes of their SHA-256; the whole digest is compared in constant time.
///
/// The table is indexed by digest, so that the time of a lookup reveals nothing about valid keys.
#[derive(Debug)]
pub(super) struct ApiKeys(HashMap<[u8; 8], Vec<KnownApiKey>>);

/// The SHA-256 of a key, and its principal.
type KnownApiKey = ([u8; 32], Arc<Principal>);

impl ApiKeys {
    pub(super) fn new(keys: &[ApiKey]) -> Self {
        let mut table: HashMap<_, Vec<_>> = HashMap::new();
        for ApiKey { sha256, principal } in keys {
            let entry = (*sha256, Arc::new(principal.clone()));
            table.entry(prefix(sha256)).or_default().push(entry);
        }
        Self(table)
    }

    /// The principal of a key.
    pub(super) fn find(&self, key: &str) -> Option<&Arc<Principal>> {
        let hash = digest::digest(&digest::SHA256, key.as_bytes());
        let candidates = self.0.get(&prefix(hash.as_ref())).map_or(&[] as &[_], Vec::as_slice);
        let equal = |(known, _): &&KnownApiKey| {
            constant_time::verify_slices_are_equal(known, hash.as_ref()).is_ok()
        };
        candidates.iter().find(equal).map(|(_, who)| who)
    }
}

fn prefix(hash: &[u8]) -> [u8; 8] {
    hash.first_chunk().copied().unwrap_or_default()
}
