//! Asks upstream servers for their server info and definitions, for the CLI verbs with which people review and
//! approve them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use policy::definition::offer::{Catalog, ItemKind};
use policy::engine::pipeline::Policy;
use policy::rules::access::RuleSet;
use policy::rules::definitions::DefinitionPolicy;
use policy_core::subject::name::ServerName;
use tokio::time::{Instant, timeout_at};

use crate::base::clock::{Clock, SystemClock};
use crate::base::error_chain::ErrorChain;
use crate::base::task::Tasks;
use crate::config::quota::Quotas;
use crate::config::settings::{CheckpointSettings, ServerSettings, ServerTransport, Settings};
use crate::control::build::{self, StartError};
use crate::metrics::Metrics;
use crate::outbound::environment::Environment;
use crate::pins::PinMonitor;
use crate::serve::listener;
use crate::upstream::{CapableOffer, ServerInfo, Upstream, UpstreamError, server_identity};

/// What precedes each line of a program's output in the reason of a failure.
pub const OUTPUT_LINE: &str = "\n    | ";
/// Maximum time to wait for a list that the server does not declare.
const UNDECLARED: Duration = Duration::from_secs(5);

/// The server info and definitions of one upstream server at one moment.
#[derive(Debug)]
pub struct ServerInventory {
    /// The name of the server.
    pub server: ServerName,
    /// The identity of the server, as in the lockfile.
    pub identity: String,
    /// Its server info, in each era that it supports.
    pub server_infos: Vec<Arc<ServerInfo>>,
    /// Its catalogs, one for each kind; then additional ones with definitions that it offers only to clients with
    /// client capabilities, or to these in another form.
    pub catalogs: Vec<Arc<Catalog>>,
    /// Declared lists that could not be read, with the reasons.
    pub unread: Vec<(ItemKind, String)>,
    /// Whether it was asked in every era that it may support.
    pub whole: bool,
    /// The reason why it could not be asked at all.
    pub failed: Option<String>,
    /// Advice on the failure, if there is any.
    pub mend: Option<String>,
    /// The first line of its program on standard output that is no message, if there was one.
    pub stray: Option<String>,
    /// Time that the survey of this server took.
    pub took: Duration,
}

impl ServerInventory {
    /// Whether all declared lists were read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.failed.is_none() && self.unread.is_empty()
    }

    /// Whether its list of `kind` was read.
    #[must_use]
    pub fn has_read(&self, kind: ItemKind) -> bool {
        self.catalogs.iter().any(|catalog| catalog.kind() == kind)
    }
}

/// The settings of a survey.
pub struct InventoryOptions {
    /// Maximum time for each server.
    pub patience: Duration,
    /// Called with the progress of each server.
    pub told: Box<ProgressCallback>,
}

/// A callback with the server and a description of the current step.
pub type ProgressCallback = dyn Fn(&ServerName, &str) + Send + Sync;

impl fmt::Debug for InventoryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("patience", &self.patience).finish_non_exhaustive()
    }
}

impl ServerInventory {
    /// Notes why the server could not be asked, with advice if it was too slow.
    fn fails(&mut self, error: &UpstreamError, reach: &ServerTransport) {
        self.failed = Some(ErrorChain(error).to_string());
        if matches!(error, UpstreamError::Timeout(_)) {
            self.mend = Some(longer(reach));
        }
    }

    /// Adds definitions that are offered only to clients with client capabilities, if they are new.
    fn add(&mut self, offered: CapableOffer) {
        for server_info in offered.server_infos {
            if !self.server_infos.iter().any(|known| known.digest == server_info.digest) {
                self.server_infos.push(server_info);
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

    /// Whether it offers an item of this name to any client.
    #[must_use]
    pub fn offers(&self, kind: ItemKind, name: &str) -> bool {
        let mut of_kind = self.catalogs.iter().filter(|catalog| catalog.kind() == kind);
        of_kind.any(|catalog| catalog.offer(name).is_some())
    }
}

/// Asks every server selected by `wanted` for its server info and definitions. Nothing is decided, served or
/// recorded.
///
/// # Errors
/// If a resource cannot be acquired.
pub async fn survey(
    mut settings: Settings,
    wanted: impl Fn(&str) -> bool,
    asking: &InventoryOptions,
) -> Result<Vec<ServerInventory>, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let tasks = Tasks::default();
    let metrics = Arc::new(Metrics::new(clock.now()));
    settings.limits.response_timeout = settings.limits.response_timeout.min(asking.patience);
    let quotas = Arc::new(Quotas::new(&settings.limits, &[]));
    let (limits, counted) = (settings.limits, Arc::clone(&metrics));
    let environment = Environment::new(Arc::clone(&clock), limits, tasks.clone(), counted, quotas);
    settings.audit.sinks.clear();
    settings.audit.checkpoints = CheckpointSettings::default();
    settings.servers.retain(|server| wanted(server.name.as_str()));
    let journal = build::journal(&settings, &environment, &metrics, Vec::new())?;
    let pinning = settings.pins.off();
    // The callers of the survey report findings in definitions themselves.
    let policy = Arc::new(Policy::new(RuleSet::default(), DefinitionPolicy::off(), None));
    let pin_monitor = PinMonitor::new(policy, pinning, journal, Arc::clone(&metrics), Vec::new())?;
    let upstreams = build::upstreams(&settings, &environment, &metrics, &Arc::new(pin_monitor))?;
    let each = upstreams.iter().zip(&settings.servers);
    let mut surveys = join_all(each.map(|(upstream, server)| ask(upstream, server, asking))).await;
    // After this, every program has ended and its output was read completely.
    listener::drain(&tasks, settings.limits.drain_timeout).await;
    for (survey, upstream) in surveys.iter_mut().zip(&upstreams) {
        let said = upstream.last_words();
        survey.stray.clone_from(&said.stray);
        let last = survey.unread.last_mut().map(|(_, why)| why);
        let Some(why) = survey.failed.as_mut().or(last) else { continue };
        if said.flooded {
            FLOODED.clone_into(why);
            survey.mend = Some(STRAY_MEND.to_owned());
        }
        if let Some(closed) = &said.closed {
            why.extend(["; ", &closed.said()]);
        }
        if let Some(mend) = said.mend().filter(|_| !said.flooded) {
            survey.mend = Some(mend);
        }
        if let Some(stray) = &said.stray {
            why.extend(["; ", &stray_output(stray)]);
        }
        if !said.lines.is_empty() {
            why.push_str("; the last lines of its error output:");
            said.lines.iter().for_each(|line| why.extend([OUTPUT_LINE, line.as_str()]));
        }
    }
    Ok(surveys)
}

/// Surveys one server, within its time limit.
async fn ask(
    upstream: &Arc<Upstream>,
    server: &ServerSettings,
    asking: &InventoryOptions,
) -> ServerInventory {
    let name = upstream.name().clone();
    let begun = Instant::now();
    let until = begun + asking.patience;
    let asked = server.clone();
    let looked = move || {
        (server_identity::of(&asked), server_identity::started(&asked).and_then(Result::err))
    };
    let (identity, unstartable) = tokio::task::spawn_blocking(looked).await.unwrap_or_default();
    let mut survey = ServerInventory {
        server: name.clone(),
        identity,
        server_infos: Vec::new(),
        catalogs: Vec::new(),
        unread: Vec::new(),
        whole: false,
        failed: None,
        mend: None,
        stray: None,
        took: Duration::ZERO,
    };
    if let Some(error) = unstartable {
        survey.failed = Some(format!("its program {error}"));
        return survey;
    }
    if upstream.per_caller_credentials() {
        survey.failed = Some("it is asked in the name of callers alone".to_owned());
        return survey;
    }
    let verb = match server.reach {
        ServerTransport::Stdio(_) => "starting",
        ServerTransport::Http(_) | ServerTransport::HttpSse(_) => "connecting",
    };
    (asking.told)(&name, verb);
    match timeout_at(until, upstream.server_infos()).await {
        Ok(Ok((server_infos, whole))) => {
            (survey.server_infos, survey.whole) = (server_infos, whole)
        }
        Ok(Err(error)) => survey.fails(&error, &server.reach),
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
                let error = ErrorChain(&error);
                let why = format!("as a client that can be asked something: {error}");
                survey.unread.push((ItemKind::Tool, why));
            }
        }
    }
    survey.took = begun.elapsed();
    survey
}

/// Reads all lists of a server concurrently, so that one that is never answered does not take time from the others.
async fn lists(
    upstream: &Arc<Upstream>,
    survey: &mut ServerInventory,
    until: Instant,
    asking: &InventoryOptions,
) {
    let has = |kind: ItemKind| survey.server_infos.iter().any(|server_info| server_info.has(kind));
    let said: Vec<_> =
        ItemKind::LISTED.into_iter().filter(|kind| has(*kind)).map(ItemKind::list).collect();
    let listing =
        if said.is_empty() { "listing".to_owned() } else { format!("listing {}", said.join(", ")) };
    (asking.told)(&survey.server, &listing);
    // A server that has no skills has no method for them, and most do not know the extension.
    let is_asked = |kind: &ItemKind| *kind != ItemKind::Skill || has(*kind);
    let read = ItemKind::LISTED.into_iter().filter(is_asked).map(|kind| {
        let until = if has(kind) { until } else { until.min(Instant::now() + UNDECLARED) };
        async move {
            let patience = until.saturating_duration_since(Instant::now());
            let listing = upstream.own_catalog(kind, Some(patience));
            let listing = timeout_at(until, listing).await;
            (kind, listing.unwrap_or(Err(UpstreamError::Timeout(asking.patience))))
        }
    });
    let (mut catalogs, mut unread) = (Vec::new(), Vec::new());
    for (kind, listing) in join_all(read).await {
        match listing {
            Ok(listing) => catalogs.push(Arc::clone(listing.catalog())),
            // A server need not answer requests for lists that it does not declare.
            Err(_) if !has(kind) => {}
            Err(UpstreamError::Timeout(_)) => unread.push((kind, late(asking.patience))),
            Err(error) => unread.push((kind, ErrorChain(&error).to_string())),
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

/// Why a server failed whose program wrote no message in many lines.
const FLOODED: &str = "the gateway has ended the program, because it wrote too many lines in a row that are no message";
/// Advice for a program that writes lines that are no messages.
pub const STRAY_MEND: &str = "have the program write that on standard error, or nothing: the gateway skips such lines, but ends a program \
                              that writes many of them in a row";

/// Says that a program writes lines such as `first` where messages are expected.
#[must_use]
pub fn stray_output(first: &str) -> String {
    format!(
        "its program writes text that is no JSON-RPC message on its standard output, first: \"{first}\""
    )
}

/// Advice for a server that was reached but did not answer in time.
fn longer(reach: &ServerTransport) -> String {
    let what = match reach {
        ServerTransport::Stdio(_) => {
            "its program was started and runs, and may need longer, as one that is fetched first does"
        }
        ServerTransport::Http(_) | ServerTransport::HttpSse(_) => {
            "correct `url`, start the server, or if it needs longer"
        }
    };
    format!(
        "{what}: `--timeout` gives it longer here, and `limits.responseTimeout` in a gateway that runs"
    )
}

fn late(patience: Duration) -> String {
    let patience = humantime::format_duration(patience);
    format!("it did not answer within {patience}; `--timeout` says how long it may take")
}
