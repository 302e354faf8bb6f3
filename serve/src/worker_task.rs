//! Requests that a worker of a model computes.

use std::sync::Arc;
use std::time::Instant;

use siskin::Error;

use crate::error::ApiError;
use crate::metrics::ModelMetrics;
use crate::models::RegisteredModel;
use crate::workers::Workers;

/// Runs a request on one of a model's workers, and records it. `locate` names the field that an error is about, while the
/// error is still one of the library.
pub(crate) async fn run_on_worker<T: Send + 'static, R: Send + 'static>(
    model: &RegisteredModel,
    workers: &Arc<Workers<T>>,
    locate: impl FnOnce(Error) -> ApiError + Send + 'static,
    work: impl FnOnce(&mut T) -> siskin::Result<R> + Send + 'static,
) -> Result<R, ApiError> {
    let admitted = model.admit()?;
    let start = Instant::now();
    let mut guard = AbortGuard { metrics: &model.metrics, is_over: false };
    let outcome = workers.run(move |worker| Ok(work(worker).map_err(locate))).await;
    guard.is_over = true;
    let outcome =
        outcome.inspect_err(|error| model.metrics.record_refusal(error)).and_then(|outcome| outcome);
    model.metrics.record_task(outcome.as_ref().err(), start.elapsed());
    admitted.end(outcome.as_ref().err());
    outcome
}

/// Counts a request whose client leaves before its end.
struct AbortGuard<'a> {
    metrics: &'a ModelMetrics,
    is_over: bool,
}

impl Drop for AbortGuard<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.metrics.record_abort();
        }
    }
}
