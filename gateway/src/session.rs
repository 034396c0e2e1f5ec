//! Sessions of legacy clients, without a table of them.
//!
//! The id a client holds is the session: sealed with AES-256-GCM, so that nobody can read or make
//! one, and bound to the principal and the route it was made for. Any replica with the key opens it.
//! What has to be remembered is only which sessions were ended before their time.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use policy::principal::Principal;

use crate::bounded::Bounded;
use crate::clock::Clock;
use crate::protocol::Version;

/// Names the format to the cipher: an id of another format never opens.
const FORMAT: &[u8] = b"portcullis session v1";
/// Longest id, in characters; a header must hold it.
const LONGEST: usize = 4096;

/// What tells one session from every other.
pub type SessionKey = [u8; 16];

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Random.
    pub key: SessionKey,
    /// The revision that was agreed on.
    pub version: Version,
    /// What servers opened for it: the server's place in the route, and its leg.
    pub legs: Vec<(u8, Leg)>,
}

/// The part of a session that lies between the gateway and one legacy server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leg {
    /// The revision that was agreed on with the server.
    pub version: Version,
    /// The server's own session id, where it keeps sessions.
    pub id: Option<Box<str>>,
}

/// Why a request has no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// It names none, and its method needs one.
    #[error("no session id")]
    Missing,
    /// Not ours, expired, ended, or another's: the caller is not told which.
    #[error("not a session of this caller")]
    Unknown,
    /// The machine could not make one.
    #[error("could not seal a session")]
    Seal,
    /// Too many sessions were ended before their time.
    #[error("cannot remember that another session has ended")]
    Full,
}

/// Seals and opens session ids.
pub struct Sessions {
    /// The first seals, all open.
    keys: Vec<LessSafeKey>,
    lifetime: Duration,
    clock: Arc<dyn Clock>,
    /// Sessions that have ended, until they would have expired.
    ended: Bounded<SessionKey, SystemTime>,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

impl Sessions {
    /// Sessions under these keys of 32 bytes; with none, under a new one.
    ///
    /// # Errors
    /// When a key has another length.
    pub fn new(
        keys: &[Vec<u8>],
        lifetime: Duration,
        limit: usize,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SessionError> {
        let mut fresh = vec![0; 32];
        rand::fill(&mut fresh).map_err(|_opaque| SessionError::Seal)?;
        let keys = if keys.is_empty() { std::slice::from_ref(&fresh) } else { keys };
        let key = |bytes: &Vec<u8>| {
            let key = UnboundKey::new(&AES_256_GCM, bytes).map_err(|_opaque| SessionError::Seal)?;
            Ok(LessSafeKey::new(key))
        };
        let keys = keys.iter().map(key).collect::<Result<_, _>>()?;
        Ok(Self { keys, lifetime, clock, ended: Bounded::new(limit) })
    }

    /// Seals a new session of `principal` on `route`.
    ///
    /// # Errors
    /// When the machine gives no random bytes, or the id would be too long.
    pub fn seal(
        &self,
        principal: &Principal,
        route: &str,
        version: Version,
        legs: &[(u8, Leg)],
    ) -> Result<String, SessionError> {
        let mut random = [0; 16 + NONCE_LEN];
        rand::fill(&mut random).map_err(|_opaque| SessionError::Seal)?;
        let (key, nonce) = random.split_at(16);
        let expires = self.clock.now() + self.lifetime;
        let mut sealed = Vec::with_capacity(128);
        sealed.extend_from_slice(key);
        sealed.extend_from_slice(&seconds(expires).to_be_bytes());
        sealed.push(place(version)?);
        for (server, leg) in legs {
            // An id of no length is none: a header cannot be empty.
            let id = leg.id.as_deref().unwrap_or_default();
            let length = u16::try_from(id.len()).map_err(|_opaque| SessionError::Seal)?;
            sealed.extend_from_slice(&[*server, place(leg.version)?]);
            sealed.extend_from_slice(&length.to_be_bytes());
            sealed.extend_from_slice(id.as_bytes());
        }
        let cipher = self.keys.first().ok_or(SessionError::Seal)?;
        let unique =
            Nonce::try_assume_unique_for_key(nonce).map_err(|_opaque| SessionError::Seal)?;
        cipher
            .seal_in_place_append_tag(unique, owner(principal, route), &mut sealed)
            .map_err(|_opaque| SessionError::Seal)?;
        let id = URL_SAFE_NO_PAD.encode([nonce, &sealed].concat());
        (id.len() <= LONGEST).then_some(id).ok_or(SessionError::Seal)
    }

    /// Opens `id`, if it is a living session of `principal` on `route`.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn open(
        &self,
        id: &str,
        principal: &Principal,
        route: &str,
    ) -> Result<Session, SessionError> {
        let unknown = SessionError::Unknown;
        let bytes = URL_SAFE_NO_PAD.decode(id).map_err(|_opaque| unknown)?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN).ok_or(unknown)?;
        let opened = self.keys.iter().find_map(|key| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut sealed = sealed.to_vec();
            let length = key.open_in_place(nonce, owner(principal, route), &mut sealed).ok()?.len();
            sealed.truncate(length);
            Some(sealed)
        });
        let (session, expires) = opened.as_deref().and_then(read).ok_or(unknown)?;
        if expires <= self.clock.now() || self.ended.contains(&session.key) {
            return Err(unknown);
        }
        Ok(session)
    }

    /// Ends a session before its time.
    ///
    /// # Errors
    /// When there is no room to remember that.
    pub fn end(&self, session: &Session) -> Result<(), SessionError> {
        let now = self.clock.now();
        let until = now + self.lifetime;
        if self.ended.insert(session.key, until).is_ok() {
            return Ok(());
        }
        self.ended.retain(|_, until| *until > now);
        self.ended.insert(session.key, until).map(|_| ()).map_err(|_opaque| SessionError::Full)
    }
}

/// What an id is bound to besides its key: it opens for this principal on this route alone.
fn owner(principal: &Principal, route: &str) -> Aad<Vec<u8>> {
    // Groups may change between two requests; the rights of a request come from its credential.
    let parts = [FORMAT, route.as_bytes(), principal.id.as_str().as_bytes()];
    Aad::from(parts.join(&0))
}

fn read(bytes: &[u8]) -> Option<(Session, SystemTime)> {
    let (key, rest) = bytes.split_first_chunk::<16>()?;
    let (expires, rest) = rest.split_first_chunk::<8>()?;
    let (version, mut rest) = rest.split_first()?;
    let mut legs = Vec::new();
    while let Some(([server, version], after)) = rest.split_first_chunk::<2>() {
        let (length, after) = after.split_first_chunk::<2>()?;
        let (id, after) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
        let id = std::str::from_utf8(id).ok()?;
        let id = (!id.is_empty()).then(|| id.into());
        legs.push((*server, Leg { version: *Version::ALL.get(usize::from(*version))?, id }));
        rest = after;
    }
    let version = *Version::ALL.get(usize::from(*version))?;
    let expires = UNIX_EPOCH.checked_add(Duration::from_secs(u64::from_be_bytes(*expires)))?;
    Some((Session { key: *key, version, legs }, expires))
}

fn place(version: Version) -> Result<u8, SessionError> {
    let place = Version::ALL.iter().position(|known| *known == version);
    place.and_then(|place| u8::try_from(place).ok()).ok_or(SessionError::Seal)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::{Leg, SessionError, Sessions};
    use crate::clock::Clock;
    use crate::protocol::Version;
    use policy::name::PrincipalId;
    use policy::principal::Principal;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    #[derive(Debug, Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> SystemTime {
            UNIX_EPOCH + Duration::from_secs(1_800_000_000 + self.0.load(Ordering::Relaxed))
        }

        fn instant(&self) -> Instant {
            crate::clock::System.instant()
        }
    }

    fn who(id: &str) -> Principal {
        Principal { id: PrincipalId::parse(id).unwrap(), groups: [].into() }
    }

    fn sessions(keys: &[Vec<u8>], clock: &Arc<Hand>) -> Sessions {
        let clock: Arc<dyn Clock> = Arc::<Hand>::clone(clock);
        Sessions::new(keys, Duration::from_secs(60), 100, clock).unwrap()
    }

    #[test]
    fn a_session_opens_for_its_owner_on_its_route_until_it_ends() {
        let clock = Arc::default();
        let sessions = sessions(&[], &clock);
        let ana = who("ana");
        let leg = |id: Option<&str>| Leg { version: Version::V2025March, id: id.map(Into::into) };
        let legs = [(0, leg(Some("abc"))), (3, leg(None))];
        let id = sessions.seal(&ana, "/mcp", Version::V2025June, &legs).unwrap();
        let session = sessions.open(&id, &ana, "/mcp").unwrap();
        assert_eq!((session.version, &session.legs[..]), (Version::V2025June, &legs[..]));
        assert_eq!(sessions.open(&id, &who("bob"), "/mcp"), Err(SessionError::Unknown));
        assert_eq!(sessions.open(&id, &ana, "/other"), Err(SessionError::Unknown));
        clock.0.store(61, Ordering::Relaxed);
        assert_eq!(sessions.open(&id, &ana, "/mcp"), Err(SessionError::Unknown));
        clock.0.store(0, Ordering::Relaxed);
        sessions.end(&session).unwrap();
        assert_eq!(sessions.open(&id, &ana, "/mcp"), Err(SessionError::Unknown));
    }

    #[test]
    fn a_changed_character_anywhere_does_not_open() {
        let sessions = sessions(&[], &Arc::default());
        let ana = who("ana");
        let id = sessions.seal(&ana, "/mcp", Version::V2025June, &[]).unwrap();
        for at in 0..id.len() {
            let mut changed = id.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(sessions.open(&changed, &ana, "/mcp"), Err(SessionError::Unknown), "{at}");
            assert_eq!(
                sessions.open(id.get(..at).unwrap(), &ana, "/mcp"),
                Err(SessionError::Unknown)
            );
        }
    }

    #[test]
    fn a_key_that_is_rotated_out_still_opens_and_one_that_is_gone_does_not() {
        let clock = Arc::default();
        let (old, new) = (vec![1; 32], vec![2; 32]);
        let ana = who("ana");
        let id = sessions(std::slice::from_ref(&old), &clock)
            .seal(&ana, "/mcp", Version::V2025June, &[])
            .unwrap();
        assert!(sessions(&[new.clone(), old], &clock).open(&id, &ana, "/mcp").is_ok());
        assert!(sessions(&[new], &clock).open(&id, &ana, "/mcp").is_err());
    }
}
