//! Serves the documents below `/.well-known` with an axum router: the OAuth 2.0 protected-resource metadata of the routes
//! (RFC 9728). The data path hands GET requests for them over ([`WellKnown::serves`]).

use std::sync::Arc;

use axum::routing::get;
use axum::{Extension, Router, body};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use tower::ServiceExt as _;

use crate::edge::admission::{Admission, Peer};
use crate::edge::encode;
use crate::exchange::{DescribedRoute, Gateway};
use crate::identity::resource::WELL_KNOWN;
use crate::stream::body::Body;

/// The listener that a request came through, and the configuration in force then.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    /// The gateway that records the exchange.
    pub(super) gateway: Arc<Gateway>,
    /// The admission of the listener, which has the metadata of its routes.
    pub(super) admission: Arc<Admission>,
    /// The client that sent the request.
    pub(super) peer: Peer,
}

/// The router of well-known paths. It belongs to no configuration: each request brings its [`Arrival`].
#[derive(Clone, Debug)]
pub(super) struct WellKnown(Router);

impl WellKnown {
    /// The router, to be made once.
    pub(super) fn new() -> Self {
        let router = Router::new()
            .route(WELL_KNOWN, get(of_only_route))
            .route(&format!("{WELL_KNOWN}/{{*path}}"), get(of_route))
            // The path of a route may be `/`, which a wildcard does not match.
            .fallback(of_route);
        Self(router)
    }

    /// Whether a request is for one of these documents. All other methods belong to the data path, which refuses them.
    pub(super) fn serves(method: &Method, path: &str) -> bool {
        method == Method::GET && path.starts_with(WELL_KNOWN)
    }

    /// Answers a request for one of these documents, or with 404 where no route has it.
    pub(super) async fn answer(&self, arrival: Arrival, head: Parts) -> Response<Body> {
        let mut request = Request::from_parts(head, body::Body::empty());
        request.extensions_mut().insert(arrival);
        let Ok(response) = self.0.clone().oneshot(request).await;
        let (head, body) = response.into_parts();
        // The document is in memory as a whole, so nothing is waited for or copied.
        match body::to_bytes(body, usize::MAX).await {
            Ok(whole) => Response::from_parts(head, Body::from(whole)),
            Err(_) => encode::empty(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

/// `GET /.well-known/oauth-protected-resource`: the metadata of the only route of the listener; 404 if it has several.
async fn of_only_route(Extension(arrival): Extension<Arrival>, head: Parts) -> Response<Body> {
    let Arrival { gateway, admission, peer } = &arrival;
    gateway.describe(admission, peer, &head, DescribedRoute::Only)
}

/// `GET /.well-known/oauth-protected-resource/PATH`: the metadata of the route at `/PATH`; 404 if there is none. The path
/// is compared as it was sent, not decoded.
async fn of_route(Extension(arrival): Extension<Arrival>, head: Parts) -> Response<Body> {
    let Arrival { gateway, admission, peer } = &arrival;
    let path = head.uri.path().strip_prefix(WELL_KNOWN).unwrap_or_default();
    gateway.describe(admission, peer, &head, DescribedRoute::At(path))
}
