//! Resources that a caller was given links to: a result can name one that its server has made for it.
//!
//! Who was given a link may read what it leads to, where resources of the server may be made at run time
//! ([`crate::pins::ResourcePins::ByTemplate`]); rules and revocations decide as they always do. There is no clock
//! here: the time is a number that only grows, and whoever has one says what has expired.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::principal::Principal;
use crate::uri::ResourceUri;

/// Most callers whose links are remembered.
const CALLERS: usize = 4096;
/// Most links of one caller; a new one takes the place of the one that expires first.
const OF_ONE: usize = 256;

/// The links that one caller was given.
#[derive(Clone, Debug, Default)]
pub struct LinksOf {
    /// Until when, by server and URI in canonical form.
    links: BTreeMap<(Box<str>, Box<str>), u64>,
}

impl LinksOf {
    /// Whether there is one to `uri`, in canonical form, of `server`.
    #[must_use]
    pub fn has(&self, server: &str, uri: &str) -> bool {
        self.links.contains_key(&(server.into(), uri.into()))
    }

    fn add(&mut self, server: &str, uri: &ResourceUri, until: u64) {
        let place = (server.into(), uri.as_str().into());
        if self.links.len() >= OF_ONE && !self.links.contains_key(&place) {
            let first = self.links.iter().min_by_key(|(_, until)| **until);
            if let Some(first) = first.map(|(place, _)| place.clone()) {
                self.links.remove(&first);
            }
        }
        self.links.insert(place, until);
    }
}

/// The links that callers were given, by what tells callers apart.
#[derive(Debug, Default)]
pub struct Links {
    given: ArcSwap<BTreeMap<Box<str>, Arc<LinksOf>>>,
}

impl Links {
    /// Remembers that `principal` was given links to these resources of `server`, until `until`. One caller more
    /// than are remembered is not: what it was given it can read only if a template says so.
    pub fn give(&self, principal: &Principal, server: &str, uris: &[ResourceUri], until: u64) {
        if uris.is_empty() {
            return;
        }
        self.given.rcu(|known| {
            let of_caller = known.get(principal.key());
            if of_caller.is_none() && known.len() >= CALLERS {
                return Arc::clone(known);
            }
            let mut given = of_caller.map(|given| LinksOf::clone(given)).unwrap_or_default();
            uris.iter().for_each(|uri| given.add(server, uri, until));
            let mut all = BTreeMap::clone(known);
            all.insert(principal.key().into(), Arc::new(given));
            Arc::new(all)
        });
    }

    /// What `principal` was given.
    #[must_use]
    pub fn of(&self, principal: &Principal) -> Option<Arc<LinksOf>> {
        self.given.load().get(principal.key()).cloned()
    }

    /// Forgets what has expired by `now`.
    pub fn forget(&self, now: u64) {
        let is_over = |given: &LinksOf| given.links.values().any(|until| *until <= now);
        if !self.given.load().values().any(|given| is_over(given)) {
            return;
        }
        self.given.rcu(|known| {
            let left = known.iter().filter_map(|(caller, given)| {
                if !is_over(given) {
                    return Some((caller.clone(), Arc::clone(given)));
                }
                let mut given = LinksOf::clone(given);
                given.links.retain(|_, until| *until > now);
                (!given.links.is_empty()).then(|| (caller.clone(), Arc::new(given)))
            });
            Arc::new(left.collect::<BTreeMap<_, _>>())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Links, OF_ONE};
    use crate::name::PrincipalId;
    use crate::principal::Principal;
    use crate::uri::ResourceUri;

    fn who(id: &str) -> Principal {
        Principal::new(PrincipalId::parse(id).unwrap(), [].into())
    }

    fn uri(n: usize) -> ResourceUri {
        ResourceUri::parse(&format!("note://made/{n}")).unwrap()
    }

    #[test]
    fn a_link_is_its_callers_alone_until_it_expires() {
        let links = Links::default();
        let (ana, bob) = (who("ana"), who("bob"));
        links.give(&ana, "up", &[uri(1)], 10);
        links.give(&ana, "up", &[uri(2)], 20);
        let has = |who: &Principal, server: &str, n: usize| {
            links.of(who).is_some_and(|given| given.has(server, uri(n).as_str()))
        };
        assert!(has(&ana, "up", 1) && has(&ana, "up", 2));
        assert!(!has(&bob, "up", 1) && !has(&ana, "down", 1) && !has(&ana, "up", 3));
        links.forget(10);
        assert!(!has(&ana, "up", 1) && has(&ana, "up", 2));
        links.forget(20);
        assert!(links.of(&ana).is_none());
    }

    #[test]
    fn one_caller_has_so_many_links_and_the_oldest_go_first() {
        let links = Links::default();
        let ana = who("ana");
        for n in 0..=OF_ONE {
            links.give(&ana, "up", &[uri(n)], n as u64);
        }
        let given = links.of(&ana).unwrap();
        assert!(!given.has("up", uri(0).as_str()) && given.has("up", uri(OF_ONE).as_str()));
    }
}
