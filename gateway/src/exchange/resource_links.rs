//! Resource links in results: a caller may read a resource it was given a link to, if the server may create resources
//! at run time.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use json::Value;
use policy::definition::offer::ItemKind;
use policy_core::subject::name::ServerName;
use policy_core::subject::principal::Principal;
use policy_core::subject::uri::ResourceUri;

use super::Gateway;
use crate::edge::encode;

/// How long a link stays valid.
const LIFETIME: Duration = Duration::from_secs(3600);
/// Largest number of links in one result that are remembered.
const OF_ONE_RESULT: usize = 64;

impl Gateway {
    /// Remembers the links in a result of `server` that `caller` receives.
    pub(super) fn linked(&self, caller: &Principal, server: &ServerName, result: Value<'_>) {
        let found = RefCell::new(Vec::new());
        let note = |_: ItemKind, uri: &str| -> Option<String> {
            let mut found = found.borrow_mut();
            // A URI without a canonical form cannot be requested either.
            if found.len() < OF_ONE_RESULT {
                found.extend(ResourceUri::parse(uri));
            }
            None
        };
        drop(encode::resource_uri_spans(result, &note));
        let until = self.seconds().saturating_add(LIFETIME.as_secs());
        self.policy.links().give(caller, server.as_str(), &found.into_inner(), until);
    }

    /// The current time in seconds since 1970.
    pub(super) fn seconds(&self) -> u64 {
        self.clock.now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}
