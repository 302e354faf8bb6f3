//! Opens adapters, and models with an adapter beside them.

use std::path::Path;

use siskin::file::File;
use siskin::{Adapter, Model, ModelOptions, Result};

use crate::import::peft;
use crate::open::{OpenOptions, open_any};

/// An adapter that a model is to be opened with.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// A `.siskin` file with an adapter, or a folder of PEFT.
    pub path: &'a Path,
    /// Whether it may have been trained beside other weights, such as those of the same model in another type.
    pub any_base: bool,
}

/// Opens the adapter that `beside` names, for the model in `base`.
///
/// # Errors
/// Where it cannot be read, and where it was trained beside another base. Folders of PEFT do not say what they were
/// trained beside.
pub fn open_adapter(beside: Beside<'_>, base: &File) -> Result<Adapter> {
    let within = |error: siskin::Error| error.within(&beside.path.display().to_string());
    if peft::is_there(beside.path) {
        return peft::open(beside.path, base).map_err(within);
    }
    let adapter = Adapter::open(beside.path)?;
    if !beside.any_base {
        adapter.check_base(base).map_err(within)?;
    }
    Ok(adapter)
}

/// Opens a model to run it with an adapter beside its matrices, as [`open_any`] opens it.
pub fn open_adapted(
    path: impl AsRef<Path>,
    beside: Beside<'_>,
    options: &OpenOptions<'_>,
    model_options: &ModelOptions,
) -> Result<Model> {
    let path = path.as_ref();
    let file = open_any(path, options)?;
    let adapter = open_adapter(beside, &file)?;
    Model::with_adapter(file, &adapter, model_options)
        .map_err(|error| error.within(&path.display().to_string()))
}
