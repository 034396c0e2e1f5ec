//! Sessions of legacy clients, which are stored in the session id itself instead of a table.
//!
//! The session id is encrypted and authenticated, and bound to a principal and a route, so it cannot be read or
//! forged. Every replica with the key can open it. Only sessions that were ended early have to be remembered. Ending
//! a session always succeeds: if too many ended sessions of a principal are remembered, a point in time is remembered
//! instead, before which all sessions of that principal have ended.

pub mod disclosed_client;
pub mod call_budgets;
pub mod channel_store;
pub mod flow_store;
pub mod loaded_tools;
pub mod lock_store;
pub mod approvals;
pub mod rate_limiter;
pub mod repeated_calls;
pub mod selection_history;
pub mod task_questions;
pub mod result_store;
pub mod state;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use policy_core::subject::name::PrincipalId;
use policy_core::subject::principal::Principal;

use crate::base::bounded::BoundedMap;
use crate::base::clock::Clock;
use crate::base::random;
use crate::base::share::{Holder, Share, Shares};
use crate::config::settings::Limits;
use crate::crypto::sealer::Sealer;
use crate::mcp::protocol::ProtocolVersion;
use crate::session::disclosed_client::DisclosedClient;

/// Additional data for the cipher: an id of another format version does not open.
const FORMAT: &[u8] = b"portcullis session v2";
/// The maximum length of an id in characters, so that it fits in a header.
const MAX_ID: usize = 6144;

/// The random key that identifies one session.
pub type SessionKey = [u8; 16];

/// The content of a session id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Random bytes that identify the session.
    pub key: SessionKey,
    /// The protocol revision agreed on with the client.
    pub version: ProtocolVersion,
    /// The name and capabilities of the client, as servers may receive them.
    pub client: DisclosedClient,
    /// The sessions that upstream servers opened for it, each with the index of the server in the route.
    pub upstream_sessions: Vec<(u8, UpstreamSession)>,
    /// When the session expires.
    pub expires: SystemTime,
}

/// A session between the gateway and one upstream server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamSession {
    /// The protocol revision agreed on with the server.
    pub version: ProtocolVersion,
    /// The server's session id, if it has sessions; for a program with a separate process for this session, the
    /// gateway's name for that process.
    pub id: Option<Box<str>>,
}

/// Why a request has no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The request names none, and its method needs one.
    #[error("no session id")]
    Missing,
    /// The id is invalid, expired, ended or of another caller: the caller is not told which.
    #[error("not a session of this caller")]
    Unknown,
    /// No random bytes are available, or the id would be too long.
    #[error("could not seal a session")]
    Seal,
}

/// Seals and opens session ids, and remembers ended sessions.
pub struct Sessions {
    sealer: Arc<Sealer>,
    lifetime: Duration,
    clock: Arc<dyn Clock>,
    /// Ended sessions that have not expired.
    ended: BoundedMap<SessionKey, EndedSession>,
    /// Shares of `ended`, by principal.
    shares: Arc<Shares<Holder>>,
    /// By principal, a time: all sessions that would have expired by then have ended.
    before: BoundedMap<PrincipalId, Option<EndedBefore>>,
}

/// A session that was ended before it expired.
struct EndedSession {
    principal: PrincipalId,
    /// When it would have expired.
    expires: SystemTime,
    /// When it would have expired at the latest if nobody had set the time of day.
    until: Instant,
    _share: Share<Holder>,
}

/// Sessions of one principal that were ended together.
#[derive(Clone, Copy, PartialEq, Eq)]
struct EndedBefore {
    /// All that would have expired by then.
    expires: SystemTime,
    /// When they would have expired at the latest if nobody had set the time of day.
    until: Instant,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

impl Sessions {
    /// Sessions with this `lifetime`, sealed by `sealer`.
    #[must_use]
    pub fn new(
        sealer: Arc<Sealer>,
        lifetime: Duration,
        limits: &Limits,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (most, each) = (limits.ended_sessions, limits.ended_sessions_per_caller);
        let (ended, before) = (BoundedMap::new(most), BoundedMap::new(most));
        Self { sealer, lifetime, clock, ended, shares: Shares::new(most, each), before }
    }

    /// Seals a new session of `principal` on `route`.
    ///
    /// # Errors
    /// If no random bytes are available, or the id would be too long.
    pub fn seal(
        &self,
        principal: &Principal,
        route: &str,
        version: ProtocolVersion,
        client: &DisclosedClient,
        upstream_sessions: &[(u8, UpstreamSession)],
    ) -> Result<String, SessionError> {
        let key: SessionKey = random::bytes().map_err(|_opaque| SessionError::Seal)?;
        let expires = self.clock.now() + self.lifetime;
        // A session opened in the same second in which others were ended together must not count as one of them.
        let after = self.ended_before(principal).map(|before| before + Duration::from_secs(1));
        let expires = after.map_or(expires, |after| expires.max(after));
        let mut plain = Vec::with_capacity(256);
        plain.extend_from_slice(&key);
        plain.extend_from_slice(&seconds(expires).to_be_bytes());
        plain.push(place(version)?);
        long(&mut plain, &client.text())?;
        for (server, upstream_session) in upstream_sessions {
            plain.extend_from_slice(&[*server, place(upstream_session.version)?]);
            // An empty id stands for none: a header cannot be empty.
            long(&mut plain, upstream_session.id.as_deref().unwrap_or_default())?;
        }
        let id = self.sealer.seal(&owner(principal.key(), route), plain);
        let id = id.map_err(|_opaque| SessionError::Seal)?;
        (id.len() <= MAX_ID).then_some(id).ok_or(SessionError::Seal)
    }

    /// Opens `id`, if it is a valid session of `principal` on `route`.
    ///
    /// # Errors
    /// If it is not, for any reason.
    pub fn open(
        &self,
        id: &str,
        principal: &Principal,
        route: &str,
    ) -> Result<Session, SessionError> {
        let unknown = SessionError::Unknown;
        let opened = self.sealer.open(&owner(principal.key(), route), id);
        let session = opened.as_deref().and_then(read).ok_or(unknown)?;
        if session.expires <= self.clock.now() || self.has_ended(&session, principal) {
            return Err(unknown);
        }
        Ok(session)
    }

    fn has_ended(&self, session: &Session, principal: &Principal) -> bool {
        if self.ended.contains(&session.key) {
            return true;
        }
        self.ended_before(principal).is_some_and(|before| session.expires <= before)
    }

    /// The expiry time by which all sessions of `principal` were ended together; `None` if none were.
    fn ended_before(&self, principal: &Principal) -> Option<SystemTime> {
        // Avoids the lookup in the usual case.
        if self.before.length() == 0 {
            None
        } else {
            self.before.get(&principal.id).flatten().map(|before| before.expires)
        }
    }

    /// The age of a session.
    #[must_use]
    pub fn age(&self, session: &Session) -> Duration {
        let left = session.expires.duration_since(self.clock.now()).unwrap_or_default();
        self.lifetime.saturating_sub(left)
    }

    /// Ends a session of `principal` before it expires. If no further session can be remembered, older sessions of
    /// the principal end with it.
    pub fn end(&self, session: &Session, principal: &Arc<Principal>) {
        if self.remember(session, principal) {
            return;
        }
        // The older half of the remembered sessions is replaced by their latest expiry, which makes room for as many.
        let mut own = Vec::new();
        self.ended.retain(|_, ended| {
            own.extend((ended.principal == principal.id).then_some(ended.expires));
            true
        });
        own.sort_unstable();
        if let Some(middle) = own.get(own.len() / 2) {
            self.end_all(principal, *middle);
        }
        if !self.remember(session, principal) {
            self.end_all(principal, session.expires);
        }
    }

    /// Remembers that a session has ended. Returns whether there was room.
    fn remember(&self, session: &Session, principal: &Arc<Principal>) -> bool {
        let Ok(share) = self.shares.take(&Holder::Caller(Arc::clone(principal)), 1) else {
            return false;
        };
        let (principal, expires) = (principal.id.clone(), session.expires);
        let until = self.latest();
        let ended = EndedSession { principal, expires, until, _share: share };
        self.ended.insert(session.key, ended).is_ok()
    }

    /// Ends all sessions of `principal` that would have expired by `expires`.
    fn end_all(&self, principal: &Principal, expires: SystemTime) {
        let until = self.latest();
        self.before.update(principal.id.clone(), |before| {
            let expires = before.map_or(expires, |before: EndedBefore| before.expires.max(expires));
            Some(EndedBefore { expires, until })
        });
        self.ended.retain(|_, ended| ended.principal != principal.id || ended.expires > expires);
        tracing::warn!(
            event = "session.all_ended", principal = %principal.id,
            "all sessions of a caller were ended: there were too many to remember each"
        );
    }

    /// When a session that is open now has expired by the monotonic clock.
    fn latest(&self) -> Instant {
        self.clock.instant() + self.lifetime
    }

    /// Forgets ended sessions that would have expired by now, by both clocks: the time of day may be set ahead for a while
    /// and back again.
    pub fn sweep(&self) {
        let (now, instant) = (self.clock.now(), self.clock.instant());
        let is_over = |expires, until| expires <= now && until <= instant;
        self.ended.retain(|_, ended| !is_over(ended.expires, ended.until));
        self.before.retain(|_, before| {
            before.is_some_and(|before| !is_over(before.expires, before.until))
        });
    }
}

/// The additional data to which an id is bound: it opens only for this principal on this route.
fn owner<'a>(principal: &'a str, route: &'a str) -> [&'a [u8]; 3] {
    // Groups are left out, because they may change between requests; the rights of a request come from its
    // credential.
    [FORMAT, route.as_bytes(), principal.as_bytes()]
}

/// Writes a text after its length.
fn long(out: &mut Vec<u8>, text: &str) -> Result<(), SessionError> {
    let length = u16::try_from(text.len()).map_err(|_long| SessionError::Seal)?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// Reads a text that [`long`] wrote, and returns the bytes after it.
fn text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

fn read(bytes: &[u8]) -> Option<Session> {
    let (key, rest) = bytes.split_first_chunk::<16>()?;
    let (expires, rest) = rest.split_first_chunk::<8>()?;
    let (version, rest) = rest.split_first()?;
    let (client, mut rest) = text(rest)?;
    let client = DisclosedClient::unsealed(client)?;
    let mut upstream_sessions = Vec::new();
    while let Some(([server, version], after)) = rest.split_first_chunk::<2>() {
        let (id, after) = text(after)?;
        let id = (!id.is_empty()).then(|| id.into());
        upstream_sessions.push((
            *server,
            UpstreamSession { version: *ProtocolVersion::ALL.get(usize::from(*version))?, id },
        ));
        rest = after;
    }
    let version = *ProtocolVersion::ALL.get(usize::from(*version))?;
    let expires = UNIX_EPOCH.checked_add(Duration::from_secs(u64::from_be_bytes(*expires)))?;
    Some(Session { key: *key, version, client, upstream_sessions, expires })
}

fn place(version: ProtocolVersion) -> Result<u8, SessionError> {
    let place = ProtocolVersion::ALL.iter().position(|known| *known == version);
    place.and_then(|place| u8::try_from(place).ok()).ok_or(SessionError::Seal)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::{SessionError, Sessions, UpstreamSession};
    use crate::base::clock::Clock;
    use crate::config::settings::Limits;
    use crate::crypto::sealer::Sealer;
    use crate::mcp::protocol::ProtocolVersion;
    use crate::session::disclosed_client::DisclosedClient;
    use policy_core::subject::name::PrincipalId;
    use policy_core::subject::principal::Principal;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, LazyLock};
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    /// The time in seconds, and how many of them the time of day was set ahead.
    #[derive(Debug, Default)]
    struct Hand(AtomicU64, AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> SystemTime {
            UNIX_EPOCH + Duration::from_secs(1_800_000_000 + self.0.load(Ordering::Relaxed))
        }

        fn instant(&self) -> Instant {
            static START: LazyLock<Instant> =
                LazyLock::new(|| crate::base::clock::SystemClock.instant());
            let ahead = self.1.load(Ordering::Relaxed);
            *START + Duration::from_secs(self.0.load(Ordering::Relaxed) - ahead)
        }
    }

    fn who(id: &str) -> Arc<Principal> {
        Arc::new(Principal::new(PrincipalId::parse(id).unwrap(), [].into()))
    }

    fn sessions(keys: &[Vec<u8>], clock: &Arc<Hand>) -> Sessions {
        let clock: Arc<dyn Clock> = Arc::<Hand>::clone(clock);
        let sealer = Arc::new(Sealer::new(keys).unwrap());
        let limits =
            Limits { ended_sessions: 6, ended_sessions_per_caller: 4, ..Limits::default() };
        Sessions::new(sealer, Duration::from_secs(60), &limits, clock)
    }

    /// The id of a new session.
    fn sealed(sessions: &Sessions, who: &Principal) -> String {
        let client = DisclosedClient::gateway();
        sessions.seal(who, "/mcp", ProtocolVersion::V2025June, &client, &[]).unwrap()
    }

    #[test]
    fn a_session_can_always_be_ended_and_stays_ended() {
        let clock = Arc::default();
        let sessions = sessions(&[], &clock);
        let (ana, bob, eve) = (who("ana"), who("bob"), who("eve"));
        let open = |who: &Principal| {
            let id = sealed(&sessions, who);
            (sessions.open(&id, who, "/mcp").unwrap(), id)
        };
        let lives = |who: &Principal, id: &str| sessions.open(id, who, "/mcp").is_ok();
        let (_, kept) = open(&bob);
        // More than one caller may have remembered, and more than all may.
        let mut ended = Vec::new();
        for second in 0..20 {
            clock.0.store(second, Ordering::Relaxed);
            let (session, id) = open(&ana);
            sessions.end(&session, &ana);
            ended.push(id);
        }
        assert!(ended.iter().all(|id| !lives(&ana, id)));
        assert!(sessions.ended.length() <= 4, "the rest is left to others");
        let (young, youngest) = open(&ana);
        assert!(lives(&ana, &youngest), "what was opened after them goes on");
        for _ in 0..4 {
            let (session, id) = open(&eve);
            sessions.end(&session, &eve);
            assert!(!lives(&eve, &id));
        }
        assert!(lives(&bob, &kept), "nobody else's ends");
        let (session, id) = open(&bob);
        sessions.end(&session, &bob);
        sessions.end(&young, &ana);
        assert!(!lives(&bob, &id) && !lives(&ana, &youngest));
        assert!(lives(&bob, &open(&bob).1), "also in the same second");
        clock.0.store(100, Ordering::Relaxed);
        sessions.sweep();
        assert_eq!((sessions.ended.length(), sessions.before.length()), (0, 0));
        assert_eq!(sessions.shares.taken(), 0);
    }

    #[test]
    fn what_has_ended_stays_so_though_the_clock_is_set_ahead_and_back() {
        let clock: Arc<Hand> = Arc::default();
        let sessions = sessions(&[], &clock);
        let (ana, bob) = (who("ana"), who("bob"));
        let ended = |who: &Arc<Principal>| {
            let id = sealed(&sessions, who);
            sessions.end(&sessions.open(&id, who, "/mcp").unwrap(), who);
            id
        };
        let one = ended(&bob);
        let many: Vec<_> = (0..20).map(|_| ended(&ana)).collect();
        let ahead = 30 * 86_400;
        clock.0.store(ahead, Ordering::Relaxed);
        clock.1.store(ahead, Ordering::Relaxed);
        sessions.sweep();
        clock.0.store(0, Ordering::Relaxed);
        clock.1.store(0, Ordering::Relaxed);
        assert!(sessions.open(&one, &bob, "/mcp").is_err());
        assert!(many.iter().all(|id| sessions.open(id, &ana, "/mcp").is_err()));
    }

    #[test]
    fn what_has_ended_is_remembered_until_it_would_have_expired() {
        let clock = Arc::default();
        let sessions = sessions(&[], &clock);
        let (ana, bob) = (who("ana"), who("bob"));
        let ended = |who: &Arc<Principal>| {
            let id = sealed(&sessions, who);
            sessions.end(&sessions.open(&id, who, "/mcp").unwrap(), who);
            id
        };
        // One that is remembered by itself, and more of one caller than are.
        let one = ended(&bob);
        let many: Vec<_> = (0..20).map(|_| ended(&ana)).collect();
        assert!(sessions.before.length() > 0);
        for second in [0, 30, 59] {
            clock.0.store(second, Ordering::Relaxed);
            sessions.sweep();
            assert!(sessions.open(&one, &bob, "/mcp").is_err(), "{second}");
            assert!(many.iter().all(|id| sessions.open(id, &ana, "/mcp").is_err()), "{second}");
        }
    }

    #[test]
    fn a_session_opens_for_its_owner_on_its_route_until_it_ends() {
        let clock = Arc::default();
        let sessions = sessions(&[], &clock);
        let ana = who("ana");
        let upstream_session = |id: Option<&str>| UpstreamSession {
            version: ProtocolVersion::V2025March,
            id: id.map(Into::into),
        };
        let upstream_sessions = [(0, upstream_session(Some("abc"))), (3, upstream_session(None))];
        let id = sessions
            .seal(
                &ana,
                "/mcp",
                ProtocolVersion::V2025June,
                &DisclosedClient::gateway(),
                &upstream_sessions,
            )
            .unwrap();
        let session = sessions.open(&id, &ana, "/mcp").unwrap();
        assert_eq!(
            (session.version, &session.upstream_sessions[..]),
            (ProtocolVersion::V2025June, &upstream_sessions[..])
        );
        assert_eq!(session.client, DisclosedClient::gateway());
        assert_eq!(sessions.open(&id, &who("bob"), "/mcp"), Err(SessionError::Unknown));
        assert_eq!(sessions.open(&id, &ana, "/other"), Err(SessionError::Unknown));
        clock.0.store(61, Ordering::Relaxed);
        assert_eq!(sessions.open(&id, &ana, "/mcp"), Err(SessionError::Unknown));
        clock.0.store(0, Ordering::Relaxed);
        sessions.end(&session, &ana);
        assert_eq!(sessions.open(&id, &ana, "/mcp"), Err(SessionError::Unknown));
    }

    #[test]
    fn a_key_that_is_rotated_out_still_opens_and_one_that_is_gone_does_not() {
        let clock = Arc::default();
        let (old, new) = (vec![1; 32], vec![2; 32]);
        let ana = who("ana");
        let id = sealed(&sessions(std::slice::from_ref(&old), &clock), &ana);
        assert!(sessions(&[new.clone(), old], &clock).open(&id, &ana, "/mcp").is_ok());
        assert!(sessions(&[new], &clock).open(&id, &ana, "/mcp").is_err());
    }
}
