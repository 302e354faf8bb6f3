//! Finding, downloading, opening and converting models.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use siskin::file::File;
use siskin::self_test::Goldens;
use siskin::{Error, ErrorKind, Model, ModelOptions, Result};
use siskin_convert::{AdapterSource, Calibration, OpenOptions, PackOptions, PackedCache, Recipe};
use siskin_hub::{Hub, HubSettings, ModelName};

use crate::interrupt;
use crate::model::PyModel;
use crate::progress::PyProgress;

/// Runs `work` without the GIL. An exception of the progress function takes precedence over its error.
fn with_progress<T: Send>(
    py: Python<'_>,
    progress: &PyProgress,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    let outcome = interrupt::run(py, progress.cancel_handle(), work);
    progress.take_raised().map_or(outcome, Err)
}

/// Returns the path of a model, which is downloaded if it is a name and not in the cache.
fn find(name: &Path, progress: &PyProgress) -> Result<PathBuf> {
    let Some(text) = name.to_str().filter(|_| !name.exists()) else { return Ok(name.to_owned()) };
    match text.parse::<ModelName>()? {
        ModelName::Path(path) => {
            let mut message = "no such file or directory".to_owned();
            let repository = format!("hf:{text}");
            if repository.parse::<ModelName>().is_ok() {
                message.push_str(&format!("; did you mean `{repository}`?"));
            }
            Err(Error::new(ErrorKind::Missing, path.display().to_string(), message))
        }
        name => {
            let hub = Hub::new(HubSettings::from_env());
            let pulled = hub.pull(&name, &mut |done, total| match progress.set(done, total) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })?;
            Ok(pulled.path)
        }
    }
}

fn packed_cache(cache: Option<PathBuf>) -> Result<PackedCache> {
    let Some(path) = cache else { return Ok(PackedCache::User) };
    match path.to_str().map(str::to_lowercase).as_deref() {
        Some("") => Err(Error::argument("cache", "expected a folder, `source` or `off`")),
        Some("source") => Ok(PackedCache::NextToSource),
        Some("off") => Ok(PackedCache::Off),
        _ => Ok(PackedCache::Folder(path)),
    }
}

/// Opens a model: a name such as `smollm2` or `hf:organization/repository`, which is downloaded when it is first used, a
/// file or a folder. Other formats than `.siskin` are packed once; `cache` is the folder for that, `source` to keep packed
/// files next to their sources, or `off`. `context` is the maximum length of sessions in tokens.
#[pyfunction]
#[pyo3(signature = (name, *, threads = 0, context = 0, adapter = None, cache = None, progress = None))]
pub(crate) fn load(
    py: Python<'_>,
    name: PathBuf,
    threads: usize,
    context: usize,
    adapter: Option<PathBuf>,
    cache: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<PyModel> {
    let label = name.display().to_string();
    let progress = PyProgress::new(progress, label.clone());
    let model = with_progress(py, &progress, || {
        let path = find(&name, &progress)?;
        let options = OpenOptions { cache: packed_cache(cache)?, recipe: None, progress: &progress };
        let model_options = ModelOptions { threads, ..ModelOptions::default() };
        let loaded = match &adapter {
            None => siskin_convert::open_model(&path, &options, &model_options)?,
            Some(adapter) => {
                let beside = AdapterSource { path: adapter, any_base: false };
                siskin_convert::open_adapted(&path, beside, &options, &model_options)?
            }
        };
        Model::new(loaded)
    })?;
    Ok(PyModel::new(model, label, context))
}

/// Downloads a model unless it is in the cache, and returns its path.
#[pyfunction]
#[pyo3(signature = (name, *, progress = None))]
pub(crate) fn pull(py: Python<'_>, name: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<PathBuf> {
    let progress = PyProgress::new(progress, name.display().to_string());
    with_progress(py, &progress, || find(&name, &progress))
}

/// Converts a model to a `.siskin` file. `quant` is a weight type such as `w4i` or a mix such as `q4_k_m`; without it, weights
/// keep their values. `calibrate` is a text file, with which weights are rounded by GPTQ.
#[pyfunction]
#[pyo3(signature = (source, output, *, quant = None, calibrate = None, progress = None))]
pub(crate) fn convert(
    py: Python<'_>,
    source: PathBuf,
    output: PathBuf,
    quant: Option<&str>,
    calibrate: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<PathBuf> {
    let progress = PyProgress::new(progress, output.display().to_string());
    with_progress(py, &progress, || {
        let source = find(&source, &progress)?;
        let recipe = quant.map(str::parse::<Recipe>).transpose()?;
        let calibration = calibrate.map(|text| collect(&source, &text, &progress)).transpose()?;
        let goldens = |file: &File| Ok(goldens(file));
        let options = PackOptions {
            recipe,
            goldens: Some(&goldens),
            progress: &progress,
            calibration: calibration.as_ref(),
            ..PackOptions::default()
        };
        siskin_convert::pack_file(&source, &output, &options)?;
        Ok(output)
    })
}

fn collect(source: &Path, text: &Path, progress: &PyProgress) -> Result<Calibration> {
    let location = text.display().to_string();
    let text = std::fs::read_to_string(text).map_err(|error| Error::io(&location, &error))?;
    Calibration::collect(source, &text, progress)
}

/// Returns the goldens of a file, by which later runs detect faulty memory and kernels; `None` for models that have none.
fn goldens(file: &File) -> Option<Vec<u8>> {
    let model = Model::from_file(file.clone(), &ModelOptions::default()).ok()?;
    Some(Goldens::compute(&model).ok()?.to_section())
}
