//! The configuration in force: one gateway at a time, changed in one step.
//!
//! An exchange belongs to the gateway it began with, to its end: its policy, its pins, its servers.
//! Nothing is ever decided by parts of two.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;
use policy::revoked::Revoked;

use crate::door::Door;
use crate::exchange::Gateway;
use crate::settings::selftest::Selftest;
use crate::settings::{Scheme, Settings};

/// One configuration, ready to serve.
#[derive(Debug)]
pub struct Generation {
    /// The gateway.
    pub gateway: Arc<Gateway>,
    /// Its doors, in the order of the listeners.
    pub doors: Vec<Arc<Door>>,
    /// The routes at which the old HTTP+SSE is served.
    pub old: Vec<Box<str>>,
    /// How it is attacked by itself, if it is.
    pub selftest: Option<Arc<Selftest>>,
    /// What it has names for.
    pub names: Names,
}

/// The names that a configuration knows.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Of servers.
    pub servers: BTreeSet<Box<str>>,
    /// Of callers with keys, and of the one without a credential.
    pub principals: BTreeSet<Box<str>>,
    /// Of issuers of access tokens, whose callers are `ISSUER/SUBJECT`.
    pub issuers: BTreeSet<Box<str>>,
    /// Callers come with certificates as well, and have the names that are in those.
    pub others: bool,
}

impl Names {
    /// The names in a configuration.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let principals = settings.identity.principals();
        let mut schemes = settings.listeners.iter().flat_map(|listener| &listener.schemes);
        Self {
            servers: settings.servers.iter().map(|server| server.name.as_str().into()).collect(),
            principals: principals.iter().map(|principal| principal.id.as_str().into()).collect(),
            issuers: settings.identity.issuers.iter().map(|issuer| issuer.name.clone()).collect(),
            others: schemes.any(|scheme| *scheme == Scheme::Certificate),
        }
    }

    /// Whether a caller can have this id.
    #[must_use]
    pub fn may_be(&self, id: &str) -> bool {
        let issuer = id.split_once('/').map(|(issuer, _)| issuer);
        self.others
            || self.principals.contains(id)
            || issuer.is_some_and(|issuer| self.issuers.contains(issuer))
    }
}

/// The one in force.
#[derive(Debug)]
pub struct Live {
    now: ArcSwap<Generation>,
    /// Those before it that may still have something under way.
    before: Mutex<Vec<Weak<Gateway>>>,
}

impl Live {
    /// This one is in force.
    #[must_use]
    pub fn new(generation: Generation) -> Self {
        Self { now: ArcSwap::from_pointee(generation), before: Mutex::default() }
    }

    /// The one in force.
    #[must_use]
    pub fn now(&self) -> Arc<Generation> {
        self.now.load_full()
    }

    /// From now on another is in force. What is under way goes on under its own; streams that would
    /// never end by themselves end, and their clients come back.
    pub fn replace(&self, generation: Generation) {
        let former = self.now.swap(Arc::new(generation));
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        before.retain(|gateway| gateway.strong_count() > 0);
        before.push(Arc::downgrade(&former.gateway));
        drop(before);
        former.gateway.tasks.retire();
    }

    /// What is revoked is revoked for what is under way as well.
    pub fn revoke(&self, revoked: &Revoked) {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for gateway in before.iter().filter_map(Weak::upgrade) {
            gateway.revoke(revoked);
        }
        self.now().gateway.revoke(revoked);
    }
}
