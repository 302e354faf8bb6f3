//! Opens adapters, and models with an adapter.

use std::path::Path;

use siskin_backend::loaded_model::{LoadedModel, ModelAdapters, ModelOptions};
use siskin_format::file::File;
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::adapter::{Adapter, NamedAdapter};

use crate::import::peft;
use crate::open::{OpenOptions, open_any};

/// An adapter to open a model with.
#[derive(Clone, Copy, Debug)]
pub struct AdapterSource<'a> {
    /// A `.siskin` file that holds an adapter, or a PEFT folder.
    pub path: &'a Path,
    /// Whether to accept an adapter that was trained with other base weights, such as the same model in another weight
    /// type.
    pub any_base: bool,
}

/// Opens the adapter that `beside` names, for the model in `base`.
///
/// # Errors
/// If the adapter cannot be read, or was trained on another base model. PEFT folders do not record their base weights.
pub fn open_adapter(beside: AdapterSource<'_>, base: &File) -> Result<Adapter> {
    let within = |error: Error| error.within(&beside.path.display().to_string());
    if peft::is_there(beside.path) {
        return peft::open(beside.path, base).map_err(within);
    }
    if beside.path.is_dir() {
        let message = "the folder has no adapter_config.json; pass a PEFT folder or a .siskin file";
        return Err(within(Error::new(ErrorKind::Missing, "", message)));
    }
    let adapter = Adapter::open(beside.path)?;
    if !beside.any_base {
        adapter.check_base(base).map_err(within)?;
    }
    Ok(adapter)
}

/// Opens adapters, each with its name, like [`open_adapter`].
pub fn open_adapters(adapters: &[(String, AdapterSource<'_>)], base: &File) -> Result<Vec<NamedAdapter>> {
    let named = |(name, source): &(String, AdapterSource<'_>)| {
        Ok(NamedAdapter { name: name.clone(), adapter: open_adapter(*source, base)? })
    };
    adapters.iter().map(named).collect()
}

/// Opens a model like [`open_any`], to be run with an adapter.
pub fn open_adapted(
    path: impl AsRef<Path>,
    beside: AdapterSource<'_>,
    options: &OpenOptions<'_>,
    model_options: &ModelOptions,
) -> Result<LoadedModel> {
    let path = path.as_ref();
    let file = open_any(path, options)?;
    let adapter = open_adapter(beside, &file)?;
    LoadedModel::new(file, ModelAdapters::Applied(&adapter), model_options)
        .map_err(|error| error.within(&path.display().to_string()))
}

/// Opens a model like [`open_any`], with adapters of which each sequence can choose one by its name.
pub fn open_with_adapters(
    path: impl AsRef<Path>,
    adapters: &[(String, AdapterSource<'_>)],
    options: &OpenOptions<'_>,
    model_options: &ModelOptions,
) -> Result<LoadedModel> {
    let path = path.as_ref();
    let file = open_any(path, options)?;
    let adapters = open_adapters(adapters, &file)?;
    LoadedModel::new(file, ModelAdapters::PerSequence(&adapters), model_options)
        .map_err(|error| error.within(&path.display().to_string()))
}
