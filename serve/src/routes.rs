//! The table of routes.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde_json::json;

use crate::error::ApiError;
use crate::openai::{chat, completions, embeddings, model_list};
use crate::response::{self, Response};
use crate::state::ServerState;
use crate::{body, guard};

/// The maximum size of a JSON body in bytes.
const MAX_BODY_BYTES: usize = 4 << 20;

#[derive(Clone, Copy)]
enum Endpoint {
    ModelList,
    ModelCard,
    ChatCompletions,
    Completions,
    Embeddings,
    Live,
    Ready,
    Metrics,
    Version,
}

/// Method, path and endpoint. A path that ends with a slash takes the rest of the path as its argument.
const ROUTES: &[(Method, &str, Endpoint)] = &[
    (Method::GET, "/v1/models", Endpoint::ModelList),
    (Method::GET, "/v1/models/", Endpoint::ModelCard),
    (Method::POST, "/v1/chat/completions", Endpoint::ChatCompletions),
    (Method::POST, "/v1/completions", Endpoint::Completions),
    (Method::POST, "/v1/embeddings", Endpoint::Embeddings),
    (Method::GET, "/health", Endpoint::Ready),
    (Method::GET, "/health/live", Endpoint::Live),
    (Method::GET, "/health/ready", Endpoint::Ready),
    (Method::GET, "/metrics", Endpoint::Metrics),
    (Method::GET, "/version", Endpoint::Version),
];

/// Answers a request.
pub(crate) async fn answer(state: Arc<ServerState>, request: Request<Incoming>) -> Response {
    let outcome = match guard::check(request.headers()) {
        Ok(()) => dispatch(state, request).await,
        Err(error) => Err(error),
    };
    outcome.unwrap_or_else(|error| error.response())
}

async fn dispatch(state: Arc<ServerState>, request: Request<Incoming>) -> Result<Response, ApiError> {
    let path = request.uri().path().to_owned();
    let (endpoint, argument) = find(request.method(), &path)?;
    match endpoint {
        Endpoint::ModelList => Ok(model_list::list(&state.models)),
        Endpoint::ModelCard => model_list::card(&state.models, argument),
        Endpoint::ChatCompletions => chat::answer(&state, read(request).await?).await,
        Endpoint::Completions => completions::answer(&state, read(request).await?).await,
        Endpoint::Embeddings => embeddings::answer(&state, read(request).await?).await,
        Endpoint::Live => Ok(response::json(StatusCode::OK, &json!({"status": "ok"}))),
        Endpoint::Ready if state.is_shutting_down() => Err(ApiError::shutting_down()),
        Endpoint::Ready => Ok(response::json(StatusCode::OK, &json!({"status": "ok"}))),
        Endpoint::Metrics => {
            Ok(response::text("text/plain; version=0.0.4; charset=utf-8", state.models.metrics()))
        }
        Endpoint::Version => {
            Ok(response::json(StatusCode::OK, &json!({"version": env!("CARGO_PKG_VERSION")})))
        }
    }
}

async fn read(request: Request<Incoming>) -> Result<hyper::body::Bytes, ApiError> {
    body::read(request.into_body(), MAX_BODY_BYTES).await
}

/// Returns the endpoint for a path, and the argument in the path.
fn find<'p>(method: &Method, path: &'p str) -> Result<(Endpoint, &'p str), ApiError> {
    let argument = |route: &str| match route.ends_with('/') {
        true => path.strip_prefix(route).filter(|argument| !argument.is_empty()),
        false => (path == route).then_some(""),
    };
    let mut allowed = Vec::new();
    for (of, route, endpoint) in ROUTES {
        match argument(route) {
            Some(argument) if of == method => return Ok((*endpoint, argument)),
            Some(_) => allowed.push(of.as_str()),
            None => {}
        }
    }
    if allowed.is_empty() {
        return Err(ApiError::rejected(StatusCode::NOT_FOUND, format!("no route {path}")));
    }
    let message = format!("{path} takes {}, not {method}", allowed.join(", "));
    Err(ApiError::rejected(StatusCode::METHOD_NOT_ALLOWED, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_found_by_method_and_path() {
        assert!(matches!(find(&Method::GET, "/v1/models"), Ok((Endpoint::ModelList, ""))));
        assert!(matches!(find(&Method::GET, "/v1/models/a/b"), Ok((Endpoint::ModelCard, "a/b"))));
        assert!(find(&Method::GET, "/v1/models/").is_err());
        assert!(find(&Method::GET, "/v1/chat/completions").is_err());
        assert!(find(&Method::POST, "/v1/chat/completions/").is_err());
    }
}
