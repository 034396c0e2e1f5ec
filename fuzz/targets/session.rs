//! No text is the session or the state of a call that was not sealed for this caller, route and call; one that was sealed
//! opens, and with any edit does not. The input is a text, or edits of what was sealed.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gateway::base::clock::Clock;
use gateway::config::settings::Limits;
use gateway::crypto::sealer::Sealer;
use gateway::exchange::{opens_request_state, sealed_request_state};
use gateway::mcp::protocol::ProtocolVersion;
use gateway::session::disclosed_client::DisclosedClient;
use gateway::session::{Sessions, UpstreamSession};
use libfuzzer_sys::fuzz_target;
use policy::engine::message::{ItemRequest, RequestOperation};
use policy_core::subject::name::{PrincipalId, ServerName};
use policy_core::subject::principal::Principal;

use self::bounded::bounded;

/// A clock that stands still.
#[derive(Debug)]
struct Still(Instant);

impl Clock for Still {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn instant(&self) -> Instant {
        self.0
    }
}

struct World {
    sealer: Arc<Sealer>,
    sessions: Sessions,
    now: SystemTime,
    who: [Principal; 2],
    call: [ItemRequest; 2],
    session: String,
    state: String,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let sealer = Arc::new(Sealer::new(&[vec![7; 32]]).expect("a key of 32 bytes"));
    let clock = Arc::new(Still(gateway::base::clock::SystemClock.instant()));
    let now = clock.now();
    let hour = Duration::from_secs(3600);
    let sessions = Sessions::new(Arc::clone(&sealer), hour, &Limits::default(), clock);
    let who =
        ["ana", "bo"].map(|id| Principal::new(PrincipalId::parse(id).expect("an id"), [].into()));
    let server = ServerName::parse("up").expect("a name");
    let call = ["add", "sub"].map(|tool| ItemRequest::bare(&server, RequestOperation::Call, tool));
    let upstream = UpstreamSession { version: ProtocolVersion::V2025June, id: Some("s1".into()) };
    let (version, client) = (ProtocolVersion::V2025November, DisclosedClient::gateway());
    let session = sessions.seal(&who[0], "/mcp", version, &client, &[(0, upstream)]);
    let state = sealed_request_state(&sealer, &who[0], "/mcp", &call[0], now + hour);
    let (session, state) = (session.expect("a session"), state.expect("a state"));
    World { sealer, sessions, now, who, call, session, state }
});

/// `sealed` with the edits that `bytes` are, three for each: a place, what is done, and a character.
fn edited(sealed: &str, bytes: &[u8]) -> String {
    let mut text: Vec<char> = sealed.chars().collect();
    for edit in bytes.as_chunks::<3>().0 {
        let [place, what, byte] = *edit;
        let at = usize::from(place) * text.len() / 256;
        match what % 4 {
            0 => text.insert(at, char::from(byte)),
            1 if !text.is_empty() => drop(text.remove(at)),
            2 if !text.is_empty() => text[at] = char::from(byte),
            _ => text.truncate(at),
        }
    }
    text.into_iter().collect()
}

fuzz_target!(|bytes: &[u8]| {
    let World { sealer, sessions, now, who: [ana, bo], call: [call, other], session, state } =
        &*WORLD;
    let is_session =
        |text: &str, who, route| bounded(text.len(), |_| sessions.open(text, who, route).is_ok());
    let is_state = |text: &str, who, route, call| {
        bounded(text.len(), |_| opens_request_state(sealer, who, route, call, text, *now))
    };
    assert!(is_session(session, ana, "/mcp") && is_state(state, ana, "/mcp", call));
    let mut texts = vec![edited(session, bytes), edited(state, bytes)];
    texts.extend(std::str::from_utf8(bytes).map(str::to_owned));
    for text in texts {
        assert_eq!(is_session(&text, ana, "/mcp"), text == *session);
        assert_eq!(is_state(&text, ana, "/mcp", call), text == *state);
        assert!(!is_session(&text, bo, "/mcp") && !is_session(&text, ana, "/other"));
        assert!(!is_state(&text, bo, "/mcp", call) && !is_state(&text, ana, "/other", call));
        assert!(!is_state(&text, ana, "/mcp", other));
    }
});
