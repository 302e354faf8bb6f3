//! The chat page at `/`: one file that loads nothing else and uses the API as any client does.

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY, X_FRAME_OPTIONS};

use crate::call::Call;
use crate::error::ApiError;
use crate::response::{self, Response};

const PAGE: &str = include_str!("chat.html");

/// What the page may do: run its own script and style, which are named by their SHA-256, show the icon in it, and send
/// requests to this server. It cannot turn text into HTML or code. `serve/tests/clients/siskin_server.py` compares
/// the hashes with the file.
const POLICY: &str = "default-src 'none'; \
    script-src 'sha256-9wi5NqVaCbMUz4gH8yah9nPPKyQOQSXoVTqFD9i/muU='; \
    style-src 'sha256-Vv8pjoRFFB0us+R2E5oY/sQPzOvIztxQOWjNM+fndk0='; \
    img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Returns the page.
pub(crate) async fn answer(_: Call) -> Result<Response, ApiError> {
    let mut response = response::bytes(StatusCode::OK, "text/html; charset=utf-8", PAGE.into());
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_FRAME_OPTIONS, "DENY"),
        (CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_makes_no_html_of_text() {
        assert!(PAGE.len() <= 40_000, "{} bytes", PAGE.len());
        for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("] {
            assert!(!PAGE.contains(sink), "{sink}");
        }
        for load in ["<link rel=\"stylesheet\"", "<img", "src=", "@import", "url("] {
            assert!(!PAGE.contains(load), "{load}");
        }
    }
}
