//! Remembers the resource links that each caller was given: a result can name a resource that its server has made
//! for that caller.
//!
//! A caller that was given a link may read its target where resources of the server may be made at run time
//! ([`crate::definition::pins::ResourcePins::ByTemplate`]); rules and revocations decide as always. This module has no clock: the
//! time is a number that only grows, and the caller of [`Links::forget`] supplies it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::subject::principal::Principal;
use crate::subject::uri::ResourceUri;

/// Most callers whose links are remembered.
const CALLERS: usize = 4096;
/// Most links of one caller; at the limit a new link replaces the one that expires first.
const OF_ONE: usize = 256;

/// The target of a caller's link: the key to which the caller's credential was bound, the server, and the URI in
/// canonical form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LinkTarget {
    key: Box<str>,
    server: Box<str>,
    uri: Box<str>,
}

impl LinkTarget {
    fn new(principal: &Principal, server: &str, uri: &str) -> Self {
        Self { key: principal.key().into(), server: server.into(), uri: uri.into() }
    }
}

/// The links that one caller was given.
#[derive(Clone, Debug, Default)]
pub struct CallerLinks {
    /// The time at which each link expires.
    links: BTreeMap<LinkTarget, u64>,
}

impl CallerLinks {
    /// Whether `principal`, the owner of these links, was given a link to `uri`, in canonical form, on `server`.
    #[must_use]
    pub fn has(&self, principal: &Principal, server: &str, uri: &str) -> bool {
        self.links.contains_key(&LinkTarget::new(principal, server, uri))
    }

    fn add(&mut self, target: LinkTarget, until: u64) {
        if self.links.len() >= OF_ONE && !self.links.contains_key(&target) {
            let first = self.links.iter().min_by_key(|(_, until)| **until);
            if let Some(first) = first.map(|(target, _)| target.clone()) {
                self.links.remove(&first);
            }
        }
        self.links.insert(target, until);
    }
}

/// The links of all callers, by principal id: a caller takes one place, regardless of how many keys it proves.
#[derive(Debug, Default)]
pub struct Links {
    given: ArcSwap<BTreeMap<Arc<str>, Arc<CallerLinks>>>,
}

impl Links {
    /// Remembers until `until` that `principal` was given links to these resources of `server`. Beyond 4096 callers
    /// the links of a new one are not remembered: it can read their targets only if a template permits it.
    pub fn give(&self, principal: &Principal, server: &str, uris: &[ResourceUri], until: u64) {
        if uris.is_empty() {
            return;
        }
        let caller = principal.id.as_str();
        self.given.rcu(|known| {
            let of_caller = known.get(caller);
            if of_caller.is_none() && known.len() >= CALLERS {
                return Arc::clone(known);
            }
            let mut given = of_caller.map(|given| CallerLinks::clone(given)).unwrap_or_default();
            for uri in uris {
                given.add(LinkTarget::new(principal, server, uri.as_str()), until);
            }
            let mut all = BTreeMap::clone(known);
            all.insert(caller.into(), Arc::new(given));
            Arc::new(all)
        });
    }

    /// The links that `principal` was given; `None` if there are none.
    #[must_use]
    pub fn of(&self, principal: &Principal) -> Option<Arc<CallerLinks>> {
        self.given.load().get(principal.id.as_str()).cloned()
    }

    /// Removes the links that have expired by `now`.
    pub fn forget(&self, now: u64) {
        let is_over = |given: &CallerLinks| given.links.values().any(|until| *until <= now);
        if !self.given.load().values().any(|given| is_over(given)) {
            return;
        }
        self.given.rcu(|known| {
            let left = known.iter().filter_map(|(caller, given)| {
                if !is_over(given) {
                    return Some((caller.clone(), Arc::clone(given)));
                }
                let mut given = CallerLinks::clone(given);
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
    use crate::subject::name::PrincipalId;
    use crate::subject::principal::Principal;
    use crate::subject::uri::ResourceUri;

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
            links.of(who).is_some_and(|given| given.has(who, server, uri(n).as_str()))
        };
        assert!(has(&ana, "up", 1) && has(&ana, "up", 2));
        assert!(!has(&bob, "up", 1) && !has(&ana, "down", 1) && !has(&ana, "up", 3));
        // Another key stands for another owner of the link.
        let mut other = ana.clone();
        other.claims.thumbprint = Some("another".into());
        let other = other.bound();
        assert!(!has(&other, "up", 1));
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
        let has = |n: usize| given.has(&ana, "up", uri(n).as_str());
        assert!(!has(0) && has(1) && has(OF_ONE));
    }
}
