//! CTranslate2 models: a folder with `model.bin`, its configuration and its vocabularies.
//!
//! [`Ctranslate2Folder`] is the folder, [`Container`] its tensors, [`VariableRows`] the values of one tensor, and [`Names`] maps the
//! tensors of a `.siskin` file to variables. Everything is read in place.

pub mod container;
mod folder;
mod matrix;
mod names;
mod settings;
mod source;
mod vocabulary;

pub use container::{Container, DataType, Variable};
pub use folder::Ctranslate2Folder;
pub use matrix::VariableRows;
pub use names::{ModelTopology, NameRule, Names, RowSlice, VariableSuffix};
pub use vocabulary::{TokenList, VocabularyRole};

pub(super) use source::FORMAT;

#[cfg(test)]
mod tests;
