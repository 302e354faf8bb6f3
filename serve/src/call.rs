//! A request on its way to the function that answers it.

use std::sync::{Arc, Mutex};

use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderMap;

use crate::body;
use crate::clients::Client;
use crate::error::ApiError;
use crate::models::RegisteredModel;
use crate::operations::degradation::DegradationLevel;
use crate::state::ServerState;
use crate::sync::lock;
use crate::uri::query_parameter;
use siskin_format::JsonFields;
use tokio::sync::OwnedSemaphorePermit;

/// A request of a client that may use the route.
pub(crate) struct Call {
    pub(crate) state: Arc<ServerState>,
    pub(crate) client: Client,
    /// What stands in the path for the names in braces, percent-decoded.
    pub(crate) arguments: Vec<String>,
    /// The maximum size of the body in bytes.
    pub(crate) max_body_bytes: usize,
    pub(crate) request: Request<Incoming>,
    /// What was given up for this request, for a header of the response.
    pub(crate) degradations: Arc<Mutex<Vec<String>>>,
}

impl Call {
    /// Returns the headers of the request.
    pub(crate) fn headers(&self) -> &HeaderMap {
        self.request.headers()
    }

    /// Returns an argument of the path.
    pub(crate) fn argument(&self, index: usize) -> &str {
        self.arguments.get(index).map_or("", String::as_str)
    }

    /// Returns a parameter of the query.
    pub(crate) fn query(&self, name: &str) -> Result<Option<String>, ApiError> {
        query_parameter(self.request.uri().query(), name)
    }

    /// Returns a model that the client may use.
    pub(crate) fn model(&self, name: &str) -> Result<Arc<RegisteredModel>, ApiError> {
        self.state.models.find(name, &self.client)
    }

    /// Takes the field `model` of a request, and returns the model. It may be missing if there is only one.
    pub(crate) fn take_model(&self, fields: &mut JsonFields<'_>) -> Result<Arc<RegisteredModel>, ApiError> {
        let name = fields.take("model")?;
        self.select_model(name, false)
    }

    /// Returns the model of a client that may use only one.
    pub(crate) fn only_model(&self) -> Result<Arc<RegisteredModel>, ApiError> {
        self.state.models.only_of(&self.client).ok_or_else(|| ApiError::invalid("model", "missing"))
    }

    /// Returns how much is given up now for requests to a model.
    pub(crate) fn degradation(&self, model: &RegisteredModel) -> DegradationLevel {
        match self.state.degrade_after {
            None => DegradationLevel::None,
            after => DegradationLevel::of(self.state.models.predicted_wait(model), after),
        }
    }

    /// Says in the response what was given up.
    pub(crate) fn report_degradation(&self, what: String) {
        lock(&self.degradations).push(what);
    }

    /// Takes the fields `model` and `allow_fallback`, and returns the model that answers.
    pub(crate) fn take_model_or_fallback(
        &self,
        fields: &mut JsonFields<'_>,
    ) -> Result<Arc<RegisteredModel>, ApiError> {
        let name = fields.take("model")?;
        self.select_model(name, fields.take("allow_fallback")?.unwrap_or(false))
    }

    /// Returns the model that answers a request for the model `name`, which may be missing if there is only one.
    pub(crate) fn select_model(
        &self,
        name: Option<String>,
        allow_fallback: bool,
    ) -> Result<Arc<RegisteredModel>, ApiError> {
        let model = match name {
            Some(name) => self.model(&name)?,
            None => self.only_model()?,
        };
        Ok(if allow_fallback { self.with_fallback(model) } else { model })
    }

    fn with_fallback(&self, model: Arc<RegisteredModel>) -> Arc<RegisteredModel> {
        let fallback =
            self.state.fallback.as_ref().filter(|_| self.degradation(&model) >= DegradationLevel::Fallback);
        let fallback =
            fallback.and_then(|name| self.model(name).ok()).filter(|fallback| fallback.name != model.name);
        match fallback {
            Some(fallback) => {
                self.report_degradation(format!("fallback={}", fallback.name));
                fallback
            }
            None => model,
        }
    }

    /// Reads a large body, after waiting until there is room for it: until the permit is dropped, it counts as in memory.
    pub(crate) async fn read_upload(&mut self) -> Result<(Bytes, OwnedSemaphorePermit), ApiError> {
        let uploads = Arc::clone(&self.state.uploads);
        let permit = uploads.acquire_owned().await.map_err(|_| ApiError::shutting_down())?;
        Ok((self.read_body().await?, permit))
    }

    /// Reads the body, which has the maximum size of the route.
    pub(crate) async fn read_body(&mut self) -> Result<Bytes, ApiError> {
        let timeout = self.state.client_timeout;
        body::read(self.request.body_mut(), self.max_body_bytes, timeout).await
    }
}
