//! The Open Inference Protocol, version 2, of KServe and Triton: models take and return tensors.
//!
//! Texts are tensors of the type BYTES. Tensors are JSON, or binary data behind the JSON (the binary tensor data extension).

pub(crate) mod generate;
pub(crate) mod health;
pub(crate) mod infer;
pub(crate) mod infer_request;
mod infer_response;
pub(crate) mod metadata;
pub(crate) mod repository;
mod tensor_data;

use std::sync::Arc;

use hyper::StatusCode;
use siskin::OutputHead;

use crate::call::Call;
use crate::error::ApiError;
use crate::models::{ModelTask, RegisteredModel};

/// The only version of each model.
const VERSION: &str = "1";
/// The header with the length of the JSON, if binary data follow it.
const HEADER_LENGTH: &str = "inference-header-content-length";
/// The name of the input, and of the output of models that generate text.
const TEXT: &str = "text";
const EMBEDDING: &str = "embedding";
const LABEL: &str = "label";
const SCORE: &str = "score";

/// The tensors that a model returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TensorOutputs {
    /// A text for each text.
    Text,
    Embedding,
    /// The most likely class and its probability.
    Class,
    /// None: it takes no texts.
    None,
}

impl TensorOutputs {
    fn of(model: &RegisteredModel) -> Self {
        let graphs = model.model.graphs();
        match model.task {
            ModelTask::Decoder(_) | ModelTask::Seq2Seq(_) => Self::Text,
            ModelTask::Encoder(..) => match &graphs.encoder {
                Some(graph) if graph.head == OutputHead::Class => Self::Class,
                _ => Self::Embedding,
            },
            ModelTask::Speech(_) => Self::None,
        }
    }

    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Text => &[TEXT],
            Self::Embedding => &[EMBEDDING],
            Self::Class => &[LABEL, SCORE],
            Self::None => &[],
        }
    }
}

/// Returns the model in the path, whose version is the next argument if the path has one.
fn model_in_path(call: &Call) -> Result<Arc<RegisteredModel>, ApiError> {
    let model = call.model(call.argument(0))?;
    match call.argument(1) {
        "" | VERSION => Ok(model),
        other => {
            let message = format!("`{}` has no version {other}; expected {VERSION}", model.name);
            Err(ApiError::rejected(StatusCode::NOT_FOUND, message))
        }
    }
}
