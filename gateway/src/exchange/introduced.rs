//! What a client says of itself, as the servers of its route may be told it.
//!
//! It is passed on with every request to a modern server and with the handshake of a legacy one, lists
//! included, so it is looked at when it comes: once in a legacy session, with every message of a modern
//! client.

use std::sync::Arc;

use policy::json::{Bounds, Document, Fragment};
use policy::principal::Principal;
use policy::work::Budget;

use super::{Gateway, Route};
use crate::audit::Record;
use crate::client::Client;
use crate::failure::Failure;
use crate::wire::DecodeError;

impl Gateway {
    /// The client as every server of the route that the caller may use may be told of it.
    ///
    /// # Errors
    /// When something in it may not be sent to one of them.
    pub(super) fn introduced(
        &self,
        caller: &Principal,
        route: &Route,
        client: &Arc<Client>,
        record: &mut Record,
    ) -> Result<Arc<Client>, Failure> {
        let mut client = Arc::clone(client);
        if client.says_nothing() {
            return Ok(client);
        }
        for server in &route.servers {
            if !self.policy.grants_any(caller, server.name()) {
                continue;
            }
            let mut look = |text: &str| {
                let document = Document::parse(text.to_owned().into(), &Bounds::MESSAGE);
                let unread = |error| Failure::Decode(DecodeError::Json(error));
                let said = Fragment::whole(Arc::new(document.map_err(unread)?));
                // A client says a few words of itself, whatever it may send otherwise.
                let budget = Budget::for_bytes(0, self.limits.inspection_work);
                let (sent, found) = self.policy.answerable(caller, server.name(), said, &budget);
                self.metrics.content(&found);
                record.found(found);
                let sent = sent.map_err(Failure::Unsent)?;
                let changed = (sent.value().raw() != text).then(|| sent.value().raw().to_owned());
                Ok::<_, Failure>(changed)
            };
            let capabilities = look(client.capabilities())?;
            let info = client.said_info().map(&mut look).transpose()?.flatten();
            if capabilities.is_some() || info.is_some() {
                client = Arc::new(client.told(capabilities.as_deref(), info.as_deref()));
            }
        }
        Ok(client)
    }
}
