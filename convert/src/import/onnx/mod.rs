//! ONNX models: exports of the families that we know become their graphs, others run as they are.
//!
//! [`Model`] is what a file holds, read in place; [`Folder`] finds the files of a model, and [`Store`] the numbers
//! that lie beside them. [`recover`] gives tensors the names that they had before the export, so that the family's
//! rules for Hugging Face apply.

mod folder;
mod model;
mod names;
mod source;
mod tensor;
mod wire;

#[cfg(feature = "tract")]
mod general;
#[cfg(feature = "tract")]
mod proof;

pub use folder::{Folder, Side, Store};
pub(crate) use model::SETTINGS;
pub use model::{Attribute, Graph, Model, Node, Port, Setting, Size};
pub use names::{Lie, Named, recover, weights};
pub use tensor::{Data, Tensor};

#[cfg(feature = "tract")]
pub use general::General;

pub(super) use source::FORMAT;
#[cfg(feature = "tract")]
pub(crate) use source::{is_there, source_or};
