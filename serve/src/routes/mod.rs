//! Routes: which function answers a request.

mod health;
mod openapi;
mod path;
mod request_id;
mod table;

use std::sync::{Arc, Mutex};

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use serde_json::Value;

use crate::access_log::LogEntry;
use crate::call::Call;
use crate::clients::Client;
use crate::error::{ApiError, ErrorFormat};
use crate::guard;
use crate::response::Response;
use crate::state::ServerState;
use crate::sync::lock;
use crate::uri::percent_decoded;
use table::{Access, HttpRoute, ROUTES};

/// Returns the description of all routes, in the format of OpenAPI.
pub(crate) fn description() -> Value {
    openapi::description()
}

/// Answers a request.
pub(crate) async fn answer(state: Arc<ServerState>, request: Request<Incoming>) -> Response {
    let id = request_id::of(request.headers());
    let log = state.access_log.as_ref();
    let mut log = log.map(|log| LogEntry::new(log, &id, request.method().as_str(), request.headers()));
    let cross_origin = guard::cross_origin_headers(&state.guard, request.headers());
    let mut response = if let Err(error) = guard::check_framing(request.headers()) {
        let mut response = error.response(error_format(request.uri().path()));
        // What follows may be no request.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    } else if guard::is_preflight(&request) {
        guard::answer_preflight(&state.guard, request.headers())
    } else {
        dispatch(state, request, log.as_mut()).await
    };
    let headers = response.headers_mut();
    headers.extend(cross_origin);
    headers.insert("x-request-id", id);
    if let Some(mut log) = log {
        log.status = response.status().as_u16();
        response.body_mut().set_log(log);
    }
    response
}

async fn dispatch(
    state: Arc<ServerState>,
    request: Request<Incoming>,
    mut log: Option<&mut LogEntry>,
) -> Response {
    let (route, arguments) = match find(request.method(), request.uri().path()) {
        Ok(found) => found,
        Err(error) => return error.response(error_format(request.uri().path())),
    };
    if let Some(log) = &mut log {
        log.route = route.path;
    }
    let client = match client(&state, route.access, request.headers()) {
        Ok(client) => client,
        Err(error) => return error.response(route.error_format),
    };
    if let Some(log) = log {
        log.client = client.name().map(str::to_owned);
    }
    let max_body_bytes = route.body.limit();
    let degradations = Arc::<Mutex<Vec<String>>>::default();
    let call = Call {
        state,
        client: client.clone(),
        arguments,
        max_body_bytes,
        request,
        degradations: Arc::clone(&degradations),
    };
    let outcome = (route.handler)(call).await;
    let mut response = outcome.unwrap_or_else(|error| error.response(route.error_format));
    client.add_headers(response.headers_mut());
    let degradations = lock(&degradations).join(", ");
    if let Some(value) = HeaderValue::from_str(&degradations).ok().filter(|value| !value.is_empty()) {
        response.headers_mut().insert("x-siskin-degraded", value);
    }
    response
}

/// Returns the client of a request, if it may use a route.
fn client(state: &ServerState, access: Access, headers: &HeaderMap) -> Result<Client, ApiError> {
    if access == Access::Public {
        return Ok(Client::anonymous());
    }
    guard::check(&state.guard, headers)?;
    let client = Client::authenticate(state.api_keys.as_deref(), headers)?;
    if access == Access::Admin && !client.is_admin() {
        let message =
            "this route needs an API key with `admin = true`; make one with `siskin api-key NAME --admin`";
        return Err(ApiError::forbidden(message));
    }
    Ok(client)
}

/// Returns how errors look in the API of a path: as in routes that begin with the same segment.
fn error_format(path: &str) -> ErrorFormat {
    let api = |path: &str| path.split('/').nth(1).map(str::to_owned);
    let route = ROUTES.iter().find(|route| api(route.path) == api(path));
    route.map_or(ErrorFormat::OpenAi, |route| route.error_format)
}

/// Returns the route of a path, and the arguments in the path.
fn find(method: &Method, path: &str) -> Result<(&'static HttpRoute, Vec<String>), ApiError> {
    // The server leaves out the body of a response to HEAD.
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    let matching = ROUTES.iter().filter_map(|route| Some((route, path::arguments(route.path, path)?)));
    let matching: Vec<_> = matching.collect();
    if let Some((route, arguments)) = matching.iter().find(|(route, _)| route.method.name() == method) {
        let decoded = arguments.iter().map(|argument| percent_decoded(argument));
        return Ok((route, decoded.collect::<Result<_, _>>()?));
    }
    // The template with the most segments is the most specific one: an argument at the end stands for several.
    let segments = |route: &HttpRoute| route.path.split('/').count();
    let Some(most) = matching.iter().map(|(route, _)| segments(route)).max() else {
        return Err(ApiError::rejected(StatusCode::NOT_FOUND, format!("no route {path}")));
    };
    let specific = matching.iter().filter(|(route, _)| segments(route) == most);
    let allowed = specific.map(|(route, _)| route.method.name()).collect::<Vec<_>>().join(", ");
    Err(ApiError::method_not_allowed(format!("{path} takes {allowed}, not {method}"), allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_found_by_method_and_path() {
        let found = |method, path| find(&method, path).map(|(route, arguments)| (route.path, arguments));
        assert_eq!(found(Method::GET, "/v1/models").unwrap(), ("/v1/models", vec![]));
        let (path, arguments) = found(Method::GET, "/v1/models/a/b%20c").unwrap();
        assert_eq!((path, arguments), ("/v1/models/{model}", vec!["a/b c".to_owned()]));
        assert_eq!(found(Method::HEAD, "/health").unwrap().0, "/health");
        assert!(found(Method::GET, "/v1/models/").is_err());
        assert!(found(Method::GET, "/v1/chat/completions").is_err());
        assert!(found(Method::POST, "/v1/chat/completions/").is_err());
        assert!(found(Method::GET, "/v1/models/%zz").is_err());
        let error = found(Method::PUT, "/v2/models/a/generate").unwrap_err();
        assert!(error.message().contains("takes POST, not PUT"), "{}", error.message());
        assert_eq!(found(Method::POST, "/v2/models/a/infer").unwrap().0, "/v2/models/{model}/infer");
    }

    #[test]
    fn no_route_hides_another() {
        for (index, route) in ROUTES.iter().enumerate() {
            let path = route.path.replace(['{', '}'], "");
            let method = Method::from_bytes(route.method.name().as_bytes()).unwrap();
            let (found, _) = find(&method, &path).unwrap();
            assert!(
                std::ptr::eq(found, &raw const ROUTES[index]),
                "{} is hidden by {}",
                route.path,
                found.path
            );
        }
    }
}
