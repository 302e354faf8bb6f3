//! ONNX models: exports of known families are converted to their graphs, other models run as is.
//!
//! [`OnnxModel`] is the content of a file, read in place. [`OnnxFolder`] finds the files of a model, and [`ExternalData`] its external
//! data. [`recover`] restores the tensor names that the exporter dropped, so that the family's Hugging Face rules
//! apply.

mod embedding_settings;
mod folder;
mod model;
mod names;
mod source;
mod tensor;
mod wire;

#[cfg(feature = "tract")]
mod general;
#[cfg(feature = "tract")]
mod verify;

pub use folder::{ExternalData, GraphRole, OnnxFolder};
pub(crate) use model::SETTINGS;
pub use model::{OnnxAttribute, OnnxDimension, OnnxGraph, OnnxModel, OnnxNode, OnnxPort, Setting};
pub use names::{NamedTensorView, TensorOrder, recover, weights};
pub use tensor::{OnnxTensor, TensorData};

#[cfg(feature = "tract")]
pub use general::General;

pub(super) use source::FORMAT;
#[cfg(feature = "tract")]
pub(crate) use source::{is_there, source_or};
