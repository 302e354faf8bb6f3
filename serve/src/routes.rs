//! The table of routes.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde_json::json;

use crate::error::ApiError;
use crate::openai::{chat, completions, embeddings, model_list};
use crate::response::{self, Response};
use crate::state::ServerState;
use crate::{body, guard, page};

/// The maximum size of a JSON body in bytes.
const MAX_BODY_BYTES: usize = 4 << 20;

#[derive(Clone, Copy)]
enum Endpoint {
    ChatPage,
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

/// Method, path and endpoint. A path that ends with a slash, except `/` itself, takes the rest of the path as its
/// argument.
const ROUTES: &[(Method, &str, Endpoint)] = &[
    (Method::GET, "/", Endpoint::ChatPage),
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
        Endpoint::ChatPage => Ok(page::answer()),
        Endpoint::ModelList => Ok(model_list::list(&state.models)),
        Endpoint::ModelCard => model_list::card(&state.models, &percent_decoded(argument)?),
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

/// Decodes `%20` and the like.
fn percent_decoded(text: &str) -> Result<String, ApiError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend(parts.next().unwrap_or_default().as_bytes());
    let invalid = || ApiError::rejected(StatusCode::BAD_REQUEST, format!("invalid percent-encoding: {text}"));
    for part in parts {
        let code = part.get(..2).filter(|code| code.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok()).ok_or_else(invalid)?;
        bytes.push(code);
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| invalid())
}

/// Returns the endpoint for a path, and the argument in the path.
fn find<'p>(method: &Method, path: &'p str) -> Result<(Endpoint, &'p str), ApiError> {
    // The server leaves out the body of a response to HEAD.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let argument = |route: &str| match route.len() > 1 && route.ends_with('/') {
        true => path.strip_prefix(route).filter(|argument| !argument.is_empty()),
        false => (path == route).then_some(""),
    };
    let mut allowed = Vec::new();
    for (expected, route, endpoint) in ROUTES {
        match argument(route) {
            Some(argument) if expected == method => return Ok((*endpoint, argument)),
            Some(_) => allowed.push(expected.as_str()),
            None => {}
        }
    }
    if allowed.is_empty() {
        return Err(ApiError::rejected(StatusCode::NOT_FOUND, format!("no route {path}")));
    }
    let allowed = allowed.join(", ");
    Err(ApiError::method_not_allowed(format!("{path} takes {allowed}, not {method}"), allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_found_by_method_and_path() {
        assert!(matches!(find(&Method::GET, "/"), Ok((Endpoint::ChatPage, ""))));
        assert!(matches!(find(&Method::GET, "/v1/models"), Ok((Endpoint::ModelList, ""))));
        assert!(matches!(find(&Method::GET, "/v1/models/a/b"), Ok((Endpoint::ModelCard, "a/b"))));
        assert!(matches!(find(&Method::HEAD, "/health"), Ok((Endpoint::Ready, ""))));
        assert!(find(&Method::GET, "/favicon.ico").is_err());
        assert!(find(&Method::POST, "/").is_err());
        assert!(find(&Method::GET, "/v1/models/").is_err());
        assert!(find(&Method::GET, "/v1/chat/completions").is_err());
        assert!(find(&Method::POST, "/v1/chat/completions/").is_err());
    }

    #[test]
    fn names_are_percent_decoded() {
        assert_eq!(percent_decoded("Llama%203%2e1").unwrap(), "Llama 3.1");
        for wrong in ["%", "a%2", "%zz", "%ff", "%+1"] {
            assert!(percent_decoded(wrong).is_err(), "{wrong}");
        }
    }
}
