//! Asks servers what they are and what they offer, for people who are to approve it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use policy::access::Access;
use policy::definitions::Definitions;
use policy::name::ServerName;
use policy::offer::{Catalog, Kind};
use policy::pipeline::Policy;
use tokio::time::{Instant, timeout_at};

use crate::base::clock::{Clock, System};
use crate::base::error_chain::Chain;
use crate::base::task::Tasks;
use crate::config::quota::Quotas;
use crate::config::settings::{Checkpoints, Reach, Server, Settings};
use crate::control::build::{self, StartError};
use crate::metrics::Metrics;
use crate::outbound::environment::World;
use crate::pins::Keeper;
use crate::serve::listener;
use crate::upstream::{Hello, Offered, Party, Upstream, UpstreamError, server_identity};

/// How long a list is waited for of which its server does not say that it has it.
const UNDECLARED: Duration = Duration::from_secs(5);

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
    /// The lists that could not be read although it says that it has them, and why.
    pub unread: Vec<(Kind, String)>,
    /// It was asked in every era that it could speak.
    pub whole: bool,
    /// Why it could not be asked at all.
    pub failed: Option<String>,
    /// What helps against what failed, where that is known.
    pub mend: Option<String>,
    /// How long it took.
    pub took: Duration,
}

impl Survey {
    /// Whether everything was read that it says it has.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.failed.is_none() && self.unread.is_empty()
    }

    /// Whether its list of `kind` was read.
    #[must_use]
    pub fn has_read(&self, kind: Kind) -> bool {
        self.catalogs.iter().any(|catalog| catalog.kind() == kind)
    }
}

/// How servers are asked.
pub struct Asking {
    /// How long each server may take for everything it is asked.
    pub patience: Duration,
    /// What is told while they are asked: the server, and what is done with it.
    pub told: Box<Progress>,
}

/// Tells what is done with a server while it is asked.
pub type Progress = dyn Fn(&ServerName, &str) + Send + Sync;

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("patience", &self.patience).finish_non_exhaustive()
    }
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
    asking: &Asking,
) -> Result<Vec<Survey>, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(System);
    let tasks = Tasks::default();
    let metrics = Arc::new(Metrics::new(clock.now()));
    settings.limits.answer_time = settings.limits.answer_time.min(asking.patience);
    let quotas = Arc::new(Quotas::new(&settings.limits, &[]));
    let (limits, counted) = (settings.limits, Arc::clone(&metrics));
    let world = World::new(Arc::clone(&clock), limits, tasks.clone(), counted, quotas);
    settings.audit.sinks.clear();
    settings.audit.checkpoints = Checkpoints::default();
    settings.servers.retain(|server| wanted(server.name.as_str()));
    let journal = build::journal(&settings, &world, &metrics, Vec::new())?;
    let pinning = settings.pins.off();
    // What is found in definitions is told by those who ask for the survey.
    let policy = Arc::new(Policy::new(Access::default(), Definitions::off(), None));
    let keeper = Keeper::new(policy, pinning, journal, Arc::clone(&metrics), Vec::new())?;
    let upstreams = build::upstreams(&settings, &world, &metrics, &Arc::new(keeper))?;
    let each = upstreams.iter().zip(&settings.servers);
    let mut surveys = join_all(each.map(|(upstream, server)| ask(upstream, server, asking))).await;
    // After that every program has ended, and has been heard to its end.
    listener::drain(&tasks, settings.limits.drain_time).await;
    for (survey, upstream) in surveys.iter_mut().zip(&upstreams) {
        let said = upstream.last_words();
        let last = survey.unread.last_mut().map(|(_, why)| why);
        let Some(why) = survey.failed.as_mut().or(last) else { continue };
        if let Some(closed) = said.closed {
            why.extend(["; ", &closed.said()]);
            survey.mend = Some(closed.mend());
        }
        if !said.lines.is_empty() {
            why.push_str("; the last lines of its error output:");
            said.lines.iter().for_each(|line| why.extend(["\n    | ", line.as_str()]));
        }
    }
    Ok(surveys)
}

/// Asks one server.
async fn ask(upstream: &Arc<Upstream>, server: &Server, asking: &Asking) -> Survey {
    let name = upstream.name().clone();
    let begun = Instant::now();
    let until = begun + asking.patience;
    let asked = server.clone();
    let looked = move || {
        (server_identity::of(&asked), server_identity::started(&asked).and_then(Result::err))
    };
    let (identity, unstartable) = tokio::task::spawn_blocking(looked).await.unwrap_or_default();
    let mut survey = Survey {
        server: name.clone(),
        identity,
        hellos: Vec::new(),
        catalogs: Vec::new(),
        unread: Vec::new(),
        whole: false,
        failed: None,
        mend: None,
        took: Duration::ZERO,
    };
    if let Some(error) = unstartable {
        survey.failed = Some(format!("its program {error}"));
        return survey;
    }
    if upstream.asks_callers() {
        survey.failed = Some("it is asked in the name of callers alone".to_owned());
        return survey;
    }
    let verb = match server.reach {
        Reach::Stdio(_) => "starting",
        Reach::Http(_) | Reach::Old(_) => "connecting",
    };
    (asking.told)(&name, verb);
    let party = Party::gateway();
    match timeout_at(until, upstream.hellos(&party)).await {
        Ok(Ok((hellos, whole))) => (survey.hellos, survey.whole) = (hellos, whole),
        Ok(Err(error)) => {
            survey.failed = Some(Chain(&error).to_string());
            if matches!(error, UpstreamError::Timeout(_)) {
                survey.mend = Some(longer(&server.reach));
            }
        }
        Err(_late) => {
            survey.failed = Some(late(asking.patience));
            survey.mend = Some(longer(&server.reach));
        }
    }
    if survey.failed.is_none() {
        lists(upstream, &mut survey, until, asking).await;
    }
    if survey.failed.is_none() && !survey.catalogs.is_empty() {
        let offered = timeout_at(until, upstream.offered_to_capable()).await;
        match offered.unwrap_or(Err(UpstreamError::Timeout(asking.patience))) {
            Ok(offered) => survey.add(offered),
            Err(error) => {
                let error = Chain(&error);
                let why = format!("as a client that can be asked something: {error}");
                survey.unread.push((Kind::Tool, why));
            }
        }
    }
    survey.took = begun.elapsed();
    survey
}

/// Reads every list of a server. They are asked for together, so that one that is never answered leaves the time
/// of the others alone.
async fn lists(upstream: &Arc<Upstream>, survey: &mut Survey, until: Instant, asking: &Asking) {
    let has = |kind: Kind| survey.hellos.iter().any(|hello| hello.has(kind));
    let said: Vec<_> = Kind::LISTED.into_iter().filter(|kind| has(*kind)).map(Kind::list).collect();
    let listing =
        if said.is_empty() { "listing".to_owned() } else { format!("listing {}", said.join(", ")) };
    (asking.told)(&survey.server, &listing);
    let party = Party::gateway();
    let read = Kind::LISTED.map(|kind| {
        let party = &party;
        let until = if has(kind) { until } else { until.min(Instant::now() + UNDECLARED) };
        async move {
            let patience = until.saturating_duration_since(Instant::now());
            let listing = upstream.catalog_within(party, kind, patience);
            let listing = timeout_at(until, listing).await;
            (kind, listing.unwrap_or(Err(UpstreamError::Timeout(asking.patience))))
        }
    });
    let (mut catalogs, mut unread) = (Vec::new(), Vec::new());
    for (kind, listing) in join_all(read).await {
        match listing {
            Ok(listing) => catalogs.push(Arc::clone(listing.catalog())),
            // Of what it does not say it has it need not know how to list it.
            Err(_) if !has(kind) => {}
            Err(UpstreamError::Timeout(_)) => unread.push((kind, late(asking.patience))),
            Err(error) => unread.push((kind, Chain(&error).to_string())),
        }
    }
    let counts = catalogs.iter().filter(|catalog| !catalog.offers().is_empty());
    let counts =
        counts.map(|catalog| format!("{} {}", catalog.offers().len(), catalog.kind().list()));
    let mut told = counts.collect::<Vec<_>>().join(", ");
    if told.is_empty() {
        told.push_str("nothing is listed");
    }
    (asking.told)(&survey.server, &told);
    (survey.catalogs, survey.unread) = (catalogs, unread);
}

/// What helps where a server is there and has not answered in time.
fn longer(reach: &Reach) -> String {
    let what = match reach {
        Reach::Stdio(_) => {
            "its program was started and runs, and may need longer, as one that is fetched first does"
        }
        Reach::Http(_) | Reach::Old(_) => "correct `url`, start the server, or if it needs longer",
    };
    format!(
        "{what}: `--timeout` gives it longer here, and `limits.answerTime` in a gateway that runs"
    )
}

fn late(patience: Duration) -> String {
    let patience = humantime::format_duration(patience);
    format!("it did not answer within {patience}; `--timeout` says how long it may take")
}
