//! Models as programs give them to the server.

use std::fmt::Debug;

use siskin::serving::ServedModelOptions;
use siskin::{Model, Result};

use crate::operations::DriftBaseline;

/// A model under the name by which requests select it.
pub struct ServedModel {
    /// The name.
    pub name: String,
    /// The version, for metrics and lists of models; [`ServedModel::new`] takes it from the model file.
    pub version: String,
    /// The model. Requests select its adapters by their names, as if they were models.
    pub model: Model,
    /// The options of a decoder.
    pub options: ServedModelOptions,
    /// What prompts of a decoder, or texts for embeddings, usually look like: metrics say how much those of requests differ.
    /// `None`: there are no such metrics.
    pub drift_baseline: Option<DriftBaseline>,
}

impl ServedModel {
    /// Creates a model with default options.
    pub fn new(name: impl Into<String>, model: Model) -> Self {
        let version = model.identity()[..6].iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            name: name.into(),
            version,
            model,
            options: ServedModelOptions::default(),
            drift_baseline: None,
        }
    }
}

/// The models that a running server can load. Clients choose among its names; they cannot make the server open other files.
pub trait ModelRepository: Debug + Send + Sync {
    /// Returns the names of all models that can be loaded.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](siskin::ErrorKind::Io) if they cannot be read.
    fn names(&self) -> Result<Vec<String>>;

    /// Opens a model. It may have changed since it was opened before.
    ///
    /// # Errors
    /// Those of opening the file.
    fn open(&self, name: &str) -> Result<ServedModel>;
}
