//! Links in results: what a caller was given a link to it may read, where the server may make resources at run
//! time.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use policy::json::Value;
use policy::name::ServerName;
use policy::offer::Kind;
use policy::principal::Principal;
use policy::uri::ResourceUri;

use super::Gateway;
use crate::edge::encode;

/// How long a link can be followed after it was given.
const LIFETIME: Duration = Duration::from_secs(3600);
/// Most links of one result that are remembered.
const OF_ONE_RESULT: usize = 64;

impl Gateway {
    /// Remembers the links in a result of `server` that `caller` is given.
    pub(super) fn linked(&self, caller: &Principal, server: &ServerName, result: Value<'_>) {
        let found = RefCell::new(Vec::new());
        let note = |_: Kind, uri: &str| -> Option<String> {
            let mut found = found.borrow_mut();
            // What has no canonical form cannot be asked for either.
            if found.len() < OF_ONE_RESULT {
                found.extend(ResourceUri::parse(uri));
            }
            None
        };
        drop(encode::links(result, &note));
        let until = self.seconds().saturating_add(LIFETIME.as_secs());
        self.policy.links().give(caller, server.as_str(), &found.into_inner(), until);
    }

    /// The time in seconds, for what expires.
    pub(super) fn seconds(&self) -> u64 {
        self.clock.now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}
