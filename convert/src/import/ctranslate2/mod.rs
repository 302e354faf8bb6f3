//! CTranslate2 models: a folder with `model.bin`, its configuration and its vocabularies.
//!
//! [`Folder`] is the folder, [`Container`] its tensors, [`Matrix`] the values of one tensor, and [`Names`] maps the
//! tensors of a `.siskin` file to variables. Everything is read in place.

pub mod container;
mod folder;
mod matrix;
mod names;
mod settings;
mod source;
mod vocabulary;

pub use container::{Container, DataType, Variable};
pub use folder::Folder;
pub use matrix::Matrix;
pub use names::{Kind, Layout, Names, Part, Rule};
pub use vocabulary::{Role, Vocabulary};

pub(super) use source::FORMAT;

#[cfg(test)]
mod tests;
