//! Clients, and what they may do.

mod keys;
mod rate_limit;

use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HeaderMap};
use siskin::serving::{CacheSalt, ClientId, RequestClass};

pub use keys::{ApiKeys, NewApiKey};

use crate::error::ApiError;
use keys::ApiKey;

/// The client of a request: the owner of an API key, or anyone if the server has no keys.
#[derive(Clone)]
pub(crate) struct Client {
    key: Option<Arc<ApiKey>>,
}

impl Client {
    /// A client without a key, who may do everything that needs none.
    pub(crate) fn anonymous() -> Self {
        Self { key: None }
    }

    /// Returns the client whose key the headers have.
    pub(crate) fn authenticate(keys: Option<&ApiKeys>, headers: &HeaderMap) -> Result<Self, ApiError> {
        let Some(keys) = keys else { return Ok(Self::anonymous()) };
        let given = given_key(headers).ok_or_else(|| {
            ApiError::unauthorized("an API key is required: send it as `Authorization: Bearer KEY`")
        })?;
        let key = keys.find(given).ok_or_else(|| ApiError::unauthorized("the API key is not valid"))?;
        Ok(Self { key: Some(key) })
    }

    /// Returns the name of the key.
    pub(crate) fn name(&self) -> Option<&str> {
        self.key.as_ref().map(|key| key.name.as_str())
    }

    /// Returns whether the client may use a model.
    pub(crate) fn may_use(&self, model: &str) -> bool {
        self.key.as_ref().is_none_or(|key| key.may_use(model))
    }

    /// Returns whether the client may change what the server does.
    pub(crate) fn is_admin(&self) -> bool {
        self.key.as_ref().is_some_and(|key| key.is_admin)
    }

    /// Returns the class of a request: the one that it asks for, but none above that of the key.
    pub(crate) fn class(&self, requested: RequestClass) -> RequestClass {
        self.key.as_ref().map_or(requested, |key| requested.max(key.class))
    }

    /// Returns who shares the compute time with others: the owner of the key, or else the `user` of the request.
    pub(crate) fn id(&self, user: Option<&str>) -> ClientId {
        let name = self.name().or(user);
        name.map_or(ClientId::default(), |name| ClientId(hashed(name)))
    }

    /// Returns the salt of cached prefixes, which keys do not share.
    pub(crate) fn salt(&self, cache_salt: Option<&str>) -> CacheSalt {
        match (self.name(), cache_salt) {
            (None, None) => CacheSalt::default(),
            (None, Some(salt)) => CacheSalt::of(salt),
            (Some(name), salt) => CacheSalt::of(&format!("{name}\0{}", salt.unwrap_or_default())),
        }
    }

    /// Counts a request.
    pub(crate) fn begin_request(&self) -> Result<(), ApiError> {
        self.key.as_ref().map_or(Ok(()), |key| key.rates.begin_request())
    }

    /// Counts tokens of prompts or responses.
    pub(crate) fn count_tokens(&self, tokens: usize) {
        if let Some(key) = &self.key {
            key.rates.count_tokens(tokens);
        }
    }

    /// Adds the headers that say how much of the rates is left.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        if let Some(key) = &self.key {
            key.rates.add_headers(headers);
        }
    }
}

/// Returns the key in the headers of a request.
fn given_key(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    bearer.or_else(|| headers.get("x-api-key")?.to_str().ok())
}

/// Returns the beginning of the hash of a text.
fn hashed(text: &str) -> u64 {
    let mut bytes = [0; 8];
    blake3::Hasher::new().update(text.as_bytes()).finalize_xof().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
