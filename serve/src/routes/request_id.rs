//! Ids of requests, by which clients, proxies and logs refer to them.

use std::sync::atomic::{AtomicU64, Ordering};

use hyper::header::{HeaderMap, HeaderValue};

use crate::time::unix_time;

const MAX_LENGTH: usize = 128;

/// Returns the id that a client or proxy gave a request, or a new one.
pub(super) fn of(headers: &HeaderMap) -> HeaderValue {
    let is_printable =
        |id: &&HeaderValue| id.len() <= MAX_LENGTH && id.as_bytes().iter().all(u8::is_ascii_graphic);
    headers.get("x-request-id").filter(is_printable).filter(|id| !id.is_empty()).cloned().unwrap_or_else(new)
}

fn new() -> HeaderValue {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let id = format!("req_{:08x}{count:08x}", unix_time());
    HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("req_0"))
}
