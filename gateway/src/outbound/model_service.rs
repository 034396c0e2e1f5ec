//! A web service with models, in the form of the API of OpenAI, that helps to rank tools.
//!
//! An answer is never needed: the search goes on without it. So a question is given up at once if too many are
//! under way, and a service that keeps failing is left alone for a time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::base::bounded::BoundedMap;
use crate::base::clock::Clock;
use crate::base::error_chain::ErrorChain;
use crate::base::gcra::{EventRate, Gcra};
use crate::base::share::{Holder, Payer, Shares};
use crate::config::settings::{CircuitBreaker, ModelServiceSettings};
use crate::metrics::selection_outcome::SelectionOutcome;
use crate::metrics::{Metrics, SelectionServiceMetrics};
use crate::net::http_client::{Endpoint, FetchError};
use crate::outbound::environment::{Environment, EnvironmentError};
use crate::outbound::secrets::LiveSecret;

/// Most callers whose questions are counted.
const MAX_CALLERS: usize = 16 * 1024;

/// The client of one service.
#[derive(Debug)]
pub struct ModelService {
    purpose: ModelPurpose,
    metrics: Arc<Metrics>,
    endpoint: Endpoint,
    token: Option<Arc<LiveSecret>>,
    circuit: ServiceCircuit,
    /// Questions under way, by caller.
    shares: Arc<Shares<Holder>>,
    rate: Option<EventRate>,
    /// How many questions each caller has caused lately.
    paces: BoundedMap<Payer, Gcra>,
    clock: Arc<dyn Clock>,
}

/// What a service is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelPurpose {
    /// A language model orders candidates.
    Judge,
    /// An encoder makes embeddings of texts.
    Embeddings,
}

impl ModelPurpose {
    /// The name in log lines.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Judge => "judge",
            Self::Embeddings => "embeddings",
        }
    }
}

/// The bounds of one exchange with a service.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeBounds {
    /// How long it may take.
    pub time: Duration,
    /// Most bytes of the answer.
    pub answer: usize,
    /// Whether the rate of the settings applies: to questions that callers cause.
    pub is_limited: bool,
}

impl ModelService {
    /// The service with these settings.
    ///
    /// # Errors
    /// If its token or the authorities for its certificate cannot be read.
    pub fn new(
        purpose: ModelPurpose,
        settings: &ModelServiceSettings,
        bounds: ExchangeBounds,
        environment: &Environment,
    ) -> Result<Self, EnvironmentError> {
        let mut ways = environment.ways(&settings.place.way, None)?;
        (ways.time, ways.limit) = (bounds.time, bounds.answer);
        ways.connect_timeout = ways.connect_timeout.min(bounds.time);
        let token = settings.token.as_ref().map(|token| environment.bearer(token)).transpose()?;
        let rate = settings.rate.filter(|_| bounds.is_limited);
        Ok(Self {
            purpose,
            metrics: Arc::clone(&environment.metrics),
            endpoint: ways.to(&settings.place.url)?,
            token,
            circuit: ServiceCircuit::new(settings.circuit_breaker),
            shares: Shares::new(settings.concurrent, settings.concurrent_per_caller),
            rate: rate.map(|rate| EventRate::new(rate.count, rate.per, rate.count)),
            paces: BoundedMap::new(MAX_CALLERS),
            clock: Arc::clone(&environment.clock),
        })
    }

    /// Sends a question of `holder`, and returns the body of the answer.
    ///
    /// # Errors
    /// What came of it instead.
    pub async fn ask(&self, holder: &Holder, body: Bytes) -> Result<Bytes, SelectionOutcome> {
        let share = self.shares.take(holder, 1).map_err(|_taken| SelectionOutcome::Busy)?;
        // Looked at first, so that nobody pays for a question that is not sent.
        if self.circuit.is_paused(self.clock.instant()) {
            return Err(SelectionOutcome::CircuitOpen);
        }
        if !self.is_within_rate(holder, self.clock.instant()) {
            return Err(SelectionOutcome::Rate);
        }
        if !self.circuit.admits(self.clock.instant()) {
            return Err(SelectionOutcome::CircuitOpen);
        }
        let began = self.clock.instant();
        let answered = self.post(body).await;
        drop(share);
        let now = self.clock.instant();
        self.counts().took(now.saturating_duration_since(began));
        match answered {
            Ok(body) => {
                if self.circuit.answered() {
                    tracing::info!(
                        event = "selection.circuit_closed",
                        service = self.purpose.as_str(),
                        "the service answers again"
                    );
                }
                Ok(body)
            }
            Err(error) => {
                let outcome = outcome_of(&error);
                tracing::warn!(
                    event = "selection.service_failed", service = self.purpose.as_str(),
                    outcome = outcome.as_str(), error = %ErrorChain(&error),
                    "the service gave no answer: tools are ranked without it"
                );
                if is_of_service(&error) && self.circuit.failed(now) {
                    tracing::warn!(
                        event = "selection.circuit_open",
                        service = self.purpose.as_str(),
                        "the service keeps failing: it is not asked for a time"
                    );
                }
                Err(outcome)
            }
        }
    }

    /// Counts a question of a caller. One is also refused if there is no room for its counter.
    fn is_within_rate(&self, holder: &Holder, now: Instant) -> bool {
        let Some(rate) = self.rate else { return true };
        let key = holder.payer();
        if self.paces.insert(key.clone(), Gcra::new()).is_err() {
            self.paces.retain(|_, pace| !pace.is_even(now));
            if self.paces.insert(key.clone(), Gcra::new()).is_err() {
                return false;
            }
        }
        let mut is_within = false;
        self.paces.update(key, |mut pace| {
            is_within = pace.take(rate, now).is_ok();
            pace
        });
        is_within
    }

    /// Counts what came of a question.
    pub fn count(&self, outcome: SelectionOutcome) {
        self.counts().count(outcome);
    }

    fn counts(&self) -> &SelectionServiceMetrics {
        match self.purpose {
            ModelPurpose::Judge => &self.metrics.judge,
            ModelPurpose::Embeddings => &self.metrics.embeddings,
        }
    }

    /// Logs that an answer was of no use.
    pub fn note_unusable(&self, outcome: SelectionOutcome) {
        tracing::warn!(
            event = "selection.answer_unusable",
            service = self.purpose.as_str(),
            outcome = outcome.as_str(),
            "the answer of the service is of no use: tools are ranked without it"
        );
    }

    async fn post(&self, body: Bytes) -> Result<Bytes, FetchError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.bearer().ok_or(FetchError::Token)?);
        }
        let fetched = self.endpoint.send(Method::POST, headers, body).await?;
        match fetched.status {
            StatusCode::OK => Ok(fetched.body),
            status => Err(FetchError::Status(status.as_u16())),
        }
    }
}

/// Whether a failure says that the service cannot be used now. A service refuses single questions with other statuses of
/// 400 and more, such as those that its filter dislikes: a caller, or a definition, could cause them to keep others from it.
const fn is_of_service(error: &FetchError) -> bool {
    match error {
        FetchError::Status(status) => {
            !matches!(*status, 400..=499) || matches!(*status, 401 | 403 | 404 | 408 | 429)
        }
        FetchError::Late(_) | FetchError::Link(_) | FetchError::Token | FetchError::Url => true,
        FetchError::Long(_) | FetchError::Answer(_) => false,
    }
}

const fn outcome_of(error: &FetchError) -> SelectionOutcome {
    match error {
        FetchError::Late(_) => SelectionOutcome::Timeout,
        FetchError::Long(_) => SelectionOutcome::AnswerLength,
        FetchError::Status(_) => SelectionOutcome::Status,
        FetchError::Answer(_) => SelectionOutcome::AnswerForm,
        FetchError::Link(_) | FetchError::Token | FetchError::Url => SelectionOutcome::Connection,
    }
}

/// Leaves a service alone for a time after it has failed several times in a row. Then one question goes through, and the
/// others once that is answered.
#[derive(Debug)]
pub struct ServiceCircuit {
    bounds: CircuitBreaker,
    state: Mutex<CircuitState>,
}

#[derive(Debug, Default)]
struct CircuitState {
    /// Failures in a row.
    failures: u32,
    /// Until when no question goes through; `None` while the circuit is closed.
    until: Option<Instant>,
}

impl CircuitState {
    fn is_paused(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

impl ServiceCircuit {
    /// A closed circuit with these bounds.
    #[must_use]
    pub fn new(bounds: CircuitBreaker) -> Self {
        Self { bounds, state: Mutex::default() }
    }

    /// Whether no question goes through at `now`. Unlike [`Self::admits`] it takes nobody's turn.
    pub fn is_paused(&self, now: Instant) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_paused(now)
    }

    /// Whether a question goes through at `now`. If a pause has ended, it is the only one until the next has passed.
    pub fn admits(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_paused(now) {
            return false;
        }
        if state.until.is_some() {
            state.until = now.checked_add(self.bounds.open_for);
        }
        true
    }

    /// Notes a failure at `now`. Returns whether it has opened the circuit.
    pub fn failed(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failures = state.failures.saturating_add(1);
        if state.failures < self.bounds.failures.get() {
            return false;
        }
        let was_closed = state.until.is_none();
        state.until = now.checked_add(self.bounds.open_for);
        was_closed
    }

    /// Notes an answer. Returns whether it has closed the circuit.
    pub fn answered(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failures = 0;
        state.until.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::ServiceCircuit;
    use crate::base::clock::{Clock as _, SystemClock};
    use crate::config::settings::CircuitBreaker;

    #[test]
    fn a_service_that_keeps_failing_is_left_alone_and_asked_once_after_each_pause() {
        let failures = NonZeroU32::new(2).unwrap();
        let circuit =
            ServiceCircuit::new(CircuitBreaker { failures, open_for: Duration::from_secs(30) });
        let start = SystemClock.instant();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(circuit.admits(at(0)) && !circuit.failed(at(0)) && !circuit.answered());
        assert!(circuit.admits(at(1)) && !circuit.failed(at(1)), "an answer begins the count anew");
        assert!(circuit.admits(at(2)) && circuit.failed(at(2)));
        assert!(!circuit.admits(at(31)) && circuit.is_paused(at(31)));
        assert!(!circuit.is_paused(at(32)) && !circuit.is_paused(at(32)), "to look takes no turn");
        assert!(circuit.admits(at(32)) && !circuit.admits(at(33)), "one goes to see");
        assert!(!circuit.failed(at(34)) && !circuit.admits(at(63)));
        assert!(circuit.admits(at(64)) && circuit.answered());
        assert!(circuit.admits(at(65)) && circuit.admits(at(65)));
    }
}
