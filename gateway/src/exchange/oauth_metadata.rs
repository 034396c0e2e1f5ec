//! Serves OAuth 2.0 protected-resource metadata (RFC 9728), which tells clients where to get an access token.

use http::header::CACHE_CONTROL;
use http::request::Parts;
use http::{HeaderValue, Response};

use super::Gateway;
use crate::edge::admission::{Admission, Peer};
use crate::edge::encode;
use crate::edge::failure::{Failure, PathMismatch};
use crate::identity::resource::WELL_KNOWN;
use crate::stream::body::Body;

impl Gateway {
    /// Answers with the metadata of a route: at the well-known path followed by the path of the route, and at the bare
    /// well-known path if there is only one route.
    pub fn describe(&self, door: &Admission, peer: &Peer, head: &Parts) -> Response<Body> {
        let mut record = self.record(door, peer);
        let path = head.uri.path().strip_prefix(WELL_KNOWN).unwrap_or_default();
        let only = door.resources.values().next().filter(|_| door.resources.len() == 1);
        let resource = if path.is_empty() { only } else { door.resource(path) };
        record.route = self.routes.get(path).map(|route| route.path.clone());
        let answered = door.admit(head).map_err(Failure::from).and_then(|()| match resource {
            Some(resource) => {
                let mut response = encode::json(Body::from(resource.metadata.clone()));
                let age = HeaderValue::from_static("max-age=300");
                response.headers_mut().insert(CACHE_CONTROL, age);
                Ok(response)
            }
            None => Err(Failure::Route(PathMismatch::Unknown)),
        });
        self.settle(&record, answered)
    }
}
