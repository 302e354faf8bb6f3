//! How many requests and tokens a key may use per minute.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::error::ApiError;
use crate::sync::lock;

/// A token bucket: it holds as much as may be used in a minute, and refills continuously.
struct RateLimit {
    per_minute: u64,
    state: Mutex<Level>,
}

struct Level {
    /// Negative after a response that was longer than what was left.
    left: f64,
    at: Instant,
}

impl RateLimit {
    fn new(per_minute: u64) -> Self {
        let level = Level { left: per_minute as f64, at: Instant::now() };
        Self { per_minute, state: Mutex::new(level) }
    }

    /// Refills the bucket and returns what `change` makes of what is in it.
    fn update<T>(&self, now: Instant, change: impl FnOnce(&mut f64) -> T) -> T {
        let mut level = lock(&self.state);
        let minutes = now.saturating_duration_since(level.at).as_secs_f64() / 60.0;
        let full = self.per_minute as f64;
        level.left = (level.left + minutes * full).min(full);
        level.at = level.at.max(now);
        change(&mut level.left)
    }

    /// Returns when there will be `amount`.
    fn wait_for(&self, amount: f64, left: f64) -> Duration {
        Duration::from_secs_f64(((amount - left).max(0.0) * 60.0 / self.per_minute as f64).min(1e9))
    }
}

/// The rates of a key.
pub(super) struct Rates {
    requests: Option<RateLimit>,
    tokens: Option<RateLimit>,
}

impl Rates {
    pub(super) fn new(requests_per_minute: Option<u64>, tokens_per_minute: Option<u64>) -> Self {
        Self {
            requests: requests_per_minute.map(RateLimit::new),
            tokens: tokens_per_minute.map(RateLimit::new),
        }
    }

    /// Counts a request, unless one of the rates is used up.
    pub(super) fn begin_request(&self) -> Result<(), ApiError> {
        self.begin_request_at(Instant::now())
    }

    fn begin_request_at(&self, now: Instant) -> Result<(), ApiError> {
        // Tokens are counted when they are known: a request begins as long as any are left.
        if let Some(tokens) = &self.tokens {
            let left = tokens.update(now, |left| *left);
            if left < 1.0 {
                let message = format!("the key's {} tokens per minute are used up", tokens.per_minute);
                return Err(ApiError::rate_limited(message, tokens.wait_for(1.0, left)));
            }
        }
        let Some(requests) = &self.requests else { return Ok(()) };
        requests.update(now, |left| {
            if *left < 1.0 {
                let message = format!("the key's {} requests per minute are used up", requests.per_minute);
                return Err(ApiError::rate_limited(message, requests.wait_for(1.0, *left)));
            }
            *left -= 1.0;
            Ok(())
        })
    }

    pub(super) fn count_tokens(&self, tokens: usize) {
        if let Some(limit) = &self.tokens {
            limit.update(Instant::now(), |left| *left -= tokens as f64);
        }
    }

    /// Adds the headers of the OpenAI API.
    pub(super) fn add_headers(&self, headers: &mut HeaderMap) {
        for (limit, names) in [
            (&self.requests, ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests"]),
            (&self.tokens, ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens"]),
        ] {
            let Some(limit) = limit else { continue };
            let left = limit.update(Instant::now(), |left| left.max(0.0)) as u64;
            for (name, value) in names.into_iter().zip([limit.per_minute, left]) {
                headers.insert(HeaderName::from_static(name), HeaderValue::from(value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_refill() {
        let rates = Rates::new(Some(2), Some(100));
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!(rates.begin_request_at(start).is_ok());
        assert!(rates.begin_request_at(start).is_ok());
        assert!(rates.begin_request_at(start).is_err(), "two requests per minute");
        assert!(rates.begin_request_at(later(29)).is_err());
        assert!(rates.begin_request_at(later(31)).is_ok());
        rates.count_tokens(150);
        assert!(rates.begin_request_at(later(60)).is_err(), "more tokens than there were");
        assert!(rates.begin_request_at(later(100)).is_ok());
        assert!(rates.begin_request_at(later(100)).is_ok());
        // A clock does not give anything back.
        assert!(rates.begin_request_at(later(99)).is_err());
    }
}
