//! Answers requests for OAuth 2.0 protected-resource metadata (RFC 9728), which tells clients where to get an access
//! token. The listener's router of well-known paths calls [`Gateway::describe`].

use http::header::CACHE_CONTROL;
use http::request::Parts;
use http::{HeaderValue, Response};

use super::Gateway;
use crate::edge::admission::{Admission, Peer};
use crate::edge::encode;
use crate::edge::failure::{Failure, PathMismatch};
use crate::stream::body::Body;

/// The route whose metadata is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescribedRoute<'a> {
    /// The route at this path.
    At(&'a str),
    /// The only route of the listener; no other has metadata without a path.
    Only,
}

impl Gateway {
    /// Answers with the metadata of a route. The exchange is recorded with every answer.
    pub fn describe(
        &self,
        admission: &Admission,
        peer: &Peer,
        head: &Parts,
        described: DescribedRoute<'_>,
    ) -> Response<Body> {
        let mut record = self.record(admission, peer);
        let (path, resource) = match described {
            DescribedRoute::At(path) => (path, admission.resource(path)),
            DescribedRoute::Only => {
                ("", admission.resources.values().next().filter(|_| admission.resources.len() == 1))
            }
        };
        record.route = self.routes.get(path).map(|route| route.path.clone());
        let answered = admission.admit(head).map_err(Failure::from).and_then(|()| match resource {
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
