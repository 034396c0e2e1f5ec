//! Asks servers what they are and what they offer, for people who are to approve it.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use policy::name::ServerName;
use policy::offer::{Catalog, Kind};

use crate::assembly::{self, StartError};
use crate::clock::{Clock, System};
use crate::front;
use crate::metrics::Metrics;
use crate::pinning::Keeper;
use crate::quota::Quotas;
use crate::settings::{Checkpoints, Server, Settings};
use crate::task::Tasks;
use crate::upstream::{Hello, Offered, Party, Upstream, UpstreamError, whois};
use crate::world::World;

/// What one server says and offers at one moment.
#[derive(Debug)]
pub struct Survey {
    /// Its name.
    pub server: ServerName,
    /// Who it is.
    pub identity: String,
    /// What it says of itself, in each era that it speaks.
    pub hellos: Vec<Arc<Hello>>,
    /// What it offers, one catalogue for each kind; and behind those, in catalogues of their own, what it
    /// offers only to clients that can be asked something, or to these in another form.
    pub catalogs: Vec<Arc<Catalog>>,
    /// It was asked in every era that it could speak.
    pub whole: bool,
    /// Why it could not be asked.
    pub failed: Option<String>,
}

impl Survey {
    /// Adds what is offered to clients that can be asked something and is not known yet.
    fn add(&mut self, offered: Offered) {
        for hello in offered.hellos {
            if !self.hellos.iter().any(|known| known.digest == hello.digest) {
                self.hellos.push(hello);
            }
        }
        for listing in offered.listings {
            let kind = listing.kind();
            let of_kind = self.catalogs.iter().filter(|catalog| catalog.kind() == kind);
            let known: BTreeSet<_> = of_kind
                .flat_map(|catalog| catalog.offers())
                .map(|offer| (offer.name().clone(), offer.digest()))
                .collect();
            let offers = listing.catalog().offers().iter();
            let new = offers.filter(|o| !known.contains(&(o.name().clone(), o.digest())));
            let new: Vec<_> = new.cloned().collect();
            if !new.is_empty() {
                self.catalogs.push(Arc::new(Catalog::new(self.server.clone(), kind, new)));
            }
        }
    }

    /// Whether it offers something of this name, to some client.
    #[must_use]
    pub fn offers(&self, kind: Kind, name: &str) -> bool {
        let mut of_kind = self.catalogs.iter().filter(|catalog| catalog.kind() == kind);
        of_kind.any(|catalog| catalog.offer(name).is_some())
    }
}

/// Asks every server that `wanted` wants what it is and what it offers. Nothing is decided, nothing
/// listens, and nothing is recorded.
///
/// # Errors
/// When anything it needs is not to be had.
pub async fn survey(
    mut settings: Settings,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Survey>, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(System);
    let tasks = Tasks::default();
    let metrics = Arc::new(Metrics::new(clock.now()));
    let quotas = Arc::new(Quotas::new(&settings.limits, &[]));
    let world = World::new(
        Arc::clone(&clock),
        settings.limits,
        tasks.clone(),
        Arc::clone(&metrics),
        quotas,
    );
    settings.audit.sinks.clear();
    settings.audit.checkpoints = Checkpoints::default();
    settings.servers.retain(|server| wanted(server.name.as_str()));
    let journal = assembly::journal(&settings, &world, &metrics, None)?;
    let pinning = settings.pins.off();
    let keeper = Keeper::new(Arc::default(), pinning, journal, Arc::clone(&metrics), Vec::new())?;
    let upstreams = assembly::upstreams(&settings, &world, &metrics, &Arc::new(keeper))?;
    let ask = |(upstream, server): (&Arc<Upstream>, &Server)| {
        let (upstream, server) = (Arc::clone(upstream), server.clone());
        async move {
            let (name, party) = (upstream.name().clone(), Party::gateway());
            let identity = tokio::task::spawn_blocking(move || whois::of(&server)).await;
            let identity = identity.unwrap_or_default();
            let (hellos, catalogs, failed) = (vec![], vec![], None);
            let mut survey =
                Survey { server: name, identity, hellos, catalogs, whole: false, failed };
            let read = async {
                if upstream.asks_callers() {
                    return Err("it is asked in the name of callers alone".to_owned());
                }
                let told = |error: UpstreamError| crate::report::Chain(&error).to_string();
                (survey.hellos, survey.whole) = upstream.hellos(&party).await.map_err(told)?;
                for kind in Kind::LISTED {
                    match upstream.catalog(&party, kind).await {
                        Ok(listing) => survey.catalogs.push(Arc::clone(listing.catalog())),
                        // Of what it does not say it has it need not know how to list it.
                        Err(_) if !survey.hellos.iter().any(|hello| hello.has(kind)) => {}
                        Err(error) => return Err(told(error)),
                    }
                }
                let offered = upstream.offered_to_capable().await;
                survey.add(offered.map_err(|error| {
                    format!("as a client that can be asked something: {}", told(error))
                })?);
                Ok(())
            };
            survey.failed = read.await.err();
            survey
        }
    };
    let mut surveys = join_all(upstreams.iter().zip(&settings.servers).map(ask)).await;
    // After that every program has ended, and has been heard to its end.
    front::drain(&tasks, settings.limits.drain_time).await;
    for (survey, upstream) in surveys.iter_mut().zip(&upstreams) {
        let said = upstream.last_words();
        if let Some(why) = survey.failed.as_mut().filter(|_| !said.is_empty()) {
            why.push_str("; the last lines of its error output:");
            said.iter().for_each(|line| why.extend(["\n    | ", line.as_str()]));
        }
    }
    Ok(surveys)
}
