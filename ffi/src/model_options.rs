//! Options for opening a model.

use std::borrow::Cow;
use std::ffi::{c_char, c_void};
#[cfg(feature = "import")]
use std::path::{Path, PathBuf};
#[cfg(feature = "import")]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use siskin::file::File;
use siskin::{Adapter, CpuFeatures, DeviceKind, LayerSet, Model, ModelOptions, NamedAdapter};

use crate::arguments::{text, text_or_none, values};
use crate::callback::{HostPointer, siskin_release_function};
use crate::error::{PendingError, siskin_error};
#[cfg(feature = "import")]
use crate::guard::in_callback;
use crate::guard::{self, Handle};

/// Whether the packed copy of a non-`.siskin` model is cached.
pub type siskin_cache_mode = u32;
/// In the user's cache folder.
pub const SISKIN_CACHE_AUTO: siskin_cache_mode = 0;
/// Not at all: the model is packed each time it is opened.
pub const SISKIN_CACHE_OFF: siskin_cache_mode = 1;

/// A device that runs models.
pub type siskin_device = u32;
/// The fastest device that this build supports; currently always the CPU.
pub const SISKIN_DEVICE_AUTO: siskin_device = 0;
/// The CPU.
pub const SISKIN_DEVICE_CPU: siskin_device = 1;
/// Single-threaded scalar reference implementation, slow.
pub const SISKIN_DEVICE_REFERENCE: siskin_device = 2;

/// Options for opening a model. Null selects the defaults. Freed with `siskin_model_options_free`.
pub struct siskin_model_options {
    _opaque: [u8; 0],
}

/// Receives the progress of packing: the number of bytes written so far, and the total, which is 0 while it is unknown.
/// Returns whether to continue. It is called from library threads, one call at a time, while the function that opens
/// the model blocks. It must not call the library.
pub type siskin_progress_function =
    Option<unsafe extern "C" fn(user: *mut c_void, done: u64, total: u64) -> bool>;

/// The options behind a handle.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) model: ModelOptions,
    #[cfg(feature = "import")]
    pub(crate) cache: siskin_convert::PackedCache,
    #[cfg(feature = "import")]
    pub(crate) recipe: Option<siskin_convert::Recipe>,
    adapter: Option<AdapterOption>,
    /// The adapters that sessions choose from, by name.
    choices: Vec<(String, AdapterOption)>,
    progress: Option<Progress>,
}

/// An adapter, and whether it fits any base model.
struct AdapterOption {
    source: AdapterInput,
    any_base: bool,
}

enum AdapterInput {
    /// What a `.siskin` file held.
    Read(Adapter),
    /// A PEFT folder, which is read with the base model: its matrices are named differently there.
    #[cfg(feature = "import")]
    Peft(PathBuf),
}

impl AdapterOption {
    fn open(path: &str, any_base: bool) -> siskin::Result<Self> {
        #[cfg(feature = "import")]
        if Path::new(path).is_dir() {
            return Ok(Self { source: AdapterInput::Peft(path.into()), any_base });
        }
        Ok(Self { source: AdapterInput::Read(Adapter::open(path)?), any_base })
    }

    /// Returns the adapter for a base model.
    fn adapter(&self, base: &File) -> siskin::Result<Cow<'_, Adapter>> {
        match &self.source {
            AdapterInput::Read(adapter) => {
                if !self.any_base {
                    adapter.check_base(base)?;
                }
                Ok(Cow::Borrowed(adapter))
            }
            #[cfg(feature = "import")]
            AdapterInput::Peft(path) => {
                let source = siskin_convert::AdapterSource { path, any_base: self.any_base };
                siskin_convert::open_adapter(source, base).map(Cow::Owned)
            }
        }
    }
}

impl Options {
    /// Whether the model has an adapter.
    #[cfg(feature = "import")]
    pub(crate) fn has_adapter(&self) -> bool {
        self.adapter.is_some() || !self.choices.is_empty()
    }

    /// Opens the model in an open file.
    pub(crate) fn model(&self, file: File) -> siskin::Result<Model> {
        match &self.adapter {
            Some(_) if !self.choices.is_empty() => {
                let message = "an adapter for the whole model cannot be combined with selectable adapters";
                Err(siskin::Error::argument("adapter", message))
            }
            Some(option) => {
                let adapter = option.adapter(&file)?;
                Model::with_adapter(file, &adapter, &self.model)
            }
            None => {
                let named = |(name, option): &(String, AdapterOption)| {
                    let adapter = option.adapter(&file)?.into_owned();
                    Ok(NamedAdapter { name: name.clone(), adapter })
                };
                let adapters = self.choices.iter().map(named).collect::<siskin::Result<Vec<_>>>()?;
                Model::with_adapters(file, &adapters, &self.model)
            }
        }
    }
}

struct Progress {
    #[cfg_attr(not(feature = "import"), expect(dead_code, reason = "only packing reports progress"))]
    function: unsafe extern "C" fn(*mut c_void, u64, u64) -> bool,
    #[cfg_attr(not(feature = "import"), expect(dead_code, reason = "only packing reports progress"))]
    host: HostPointer,
}

impl Handle for siskin_model_options {
    type Inner = Options;
    type Control = ();
    const MAGIC: [u8; 8] = *b"SISKmopt";
    const NAME: &'static str = "options";
}

/// Reports packing progress to the host.
#[cfg(feature = "import")]
pub(crate) struct ProgressCallback<'a> {
    progress: Option<&'a Progress>,
    total: AtomicU64,
    done: AtomicU64,
    canceled: AtomicBool,
}

#[cfg(feature = "import")]
impl Options {
    pub(crate) fn progress_callback(&self) -> ProgressCallback<'_> {
        let (total, done) = (AtomicU64::new(0), AtomicU64::new(0));
        ProgressCallback { progress: self.progress.as_ref(), total, done, canceled: AtomicBool::new(false) }
    }
}

#[cfg(feature = "import")]
impl ProgressCallback<'_> {
    fn report(&self) {
        let Some(Progress { function, host }) = self.progress else { return };
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        // SAFETY: pointer contract: `function` may be called with `user` until `release` is, which `host` does on drop.
        if !in_callback(|| unsafe { function(host.user(), done, total) }) {
            self.canceled.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(feature = "import")]
impl siskin_convert::ProgressSink for ProgressCallback<'_> {
    fn total(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
        self.report();
    }

    fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.report();
    }

    fn message(&self, text: &str) {
        crate::log::log(crate::log::SISKIN_LOG_INFO, text);
    }

    fn note(&self, text: &str) {
        crate::log::log(crate::log::SISKIN_LOG_WARNING, text);
    }

    fn canceled(&self) -> bool {
        self.canceled.load(Ordering::Relaxed)
    }
}

/// Creates the default options.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_options_new(out: *mut *mut siskin_model_options) -> *mut siskin_error {
    // SAFETY: pointer contract: `out` is null or writable.
    unsafe { guard::create(out, || Ok((Options::default(), ()))) }
}

/// Sets the number of worker threads. 0 (the default) means one per performance core.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_options_set_threads(
    options: *mut siskin_model_options,
    threads: u32,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            options.model.threads = threads as usize;
            Ok(())
        })
    }
}

/// Disables CPU features: a comma-separated list such as `avx512,amx`. Results are bit-identical.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_options_set_disabled_cpu_features(
    options: *mut siskin_model_options,
    names: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `names` is a string of `length` bytes.
    unsafe {
        guard::exclusive(options, |options, ()| {
            let names = text("names", names, length)?;
            let mut without = CpuFeatures::NONE;
            for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                let unknown = || PendingError::argument("names", format!("unknown CPU feature `{name}`"));
                without = without.with(CpuFeatures::named(name).ok_or_else(unknown)?);
            }
            options.model.disabled_cpu_features = without;
            Ok(())
        })
    }
}

/// Returns the constant of a device.
fn constant(device: DeviceKind) -> siskin_device {
    match device {
        DeviceKind::Auto => SISKIN_DEVICE_AUTO,
        DeviceKind::Cpu => SISKIN_DEVICE_CPU,
        DeviceKind::Reference => SISKIN_DEVICE_REFERENCE,
    }
}

/// Sets the device that the model runs on.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_options_set_device(
    options: *mut siskin_model_options,
    device: siskin_device,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            let known = DeviceKind::ALL.iter().find(|kind| constant(**kind) == device);
            options.model.device = *known.ok_or_else(|| {
                PendingError::argument("device", format!("{device} is not a siskin_device"))
            })?;
            Ok(())
        })
    }
}

/// Sets the layers to skip, by zero-based index.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_options_set_skip_layers(
    options: *mut siskin_model_options,
    layers: *const u32,
    count: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `layers` is readable for `count` values.
    unsafe {
        guard::exclusive(options, |options, ()| {
            let layers: Vec<usize> =
                values("layers", layers, count)?.iter().map(|&layer| layer as usize).collect();
            options.model.skip = LayerSet::of(&layers)?;
            Ok(())
        })
    }
}

/// Applies the LoRA or DoRA adapter in a `.siskin` file, which is read immediately, or in a PEFT folder (with the
/// `import` feature) to the models opened with these options; an empty path (the default) means no adapter. Opening a
/// model whose weights differ from those that the adapter was trained on fails, unless `any_base` is set; PEFT folders do
/// not record these weights.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_options_set_adapter(
    options: *mut siskin_model_options,
    path: *const c_char,
    length: usize,
    any_base: bool,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `path` is a string of `length` bytes.
    unsafe {
        guard::exclusive(options, |options, ()| {
            let path = text_or_none("path", path, length)?;
            options.adapter = path.map(|path| AdapterOption::open(&path, any_base)).transpose()?;
            Ok(())
        })
    }
}

/// Adds a LoRA or DoRA adapter that sessions of the model can choose by `name` with `siskin_session_options_set_adapter`.
/// The model is opened once for all of them. The rest is as in `siskin_model_options_set_adapter`, which cannot be
/// combined with this function; a name that was added before is replaced.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_options_add_adapter(
    options: *mut siskin_model_options,
    name: *const c_char,
    name_length: usize,
    path: *const c_char,
    path_length: usize,
    any_base: bool,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `name` and `path` are strings of these lengths.
    unsafe {
        guard::exclusive(options, |options, ()| {
            let name = text("name", name, name_length)?;
            if name.is_empty() {
                return Err(PendingError::argument("name", "must not be empty"));
            }
            let adapter = AdapterOption::open(text("path", path, path_length)?, any_base)?;
            options.choices.retain(|(other, _)| other != name);
            options.choices.push((name.to_owned(), adapter));
            Ok(())
        })
    }
}

/// Sets whether the packed copy of a non-`.siskin` model is cached.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_options_set_cache_mode(
    options: *mut siskin_model_options,
    mode: siskin_cache_mode,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            let cache = match mode {
                SISKIN_CACHE_AUTO => true,
                SISKIN_CACHE_OFF => false,
                other => {
                    return Err(PendingError::argument(
                        "mode",
                        format!("{other} is not a siskin_cache_mode"),
                    ));
                }
            };
            keep(options, cache)
        })
    }
}

/// Caches packed copies of non-`.siskin` models in this folder, which is created if it does not exist. In a
/// mobile app, use a folder inside the app's sandbox.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_options_set_cache_folder(
    options: *mut siskin_model_options,
    path: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `path` is a string of `length` bytes.
    unsafe { guard::exclusive(options, |options, ()| keep_in(options, text("path", path, length)?)) }
}

/// Sets the weight types that the matrices of a non-`.siskin` model are converted to, such as `w4i` or `q4_k`. An empty
/// string (the default) means the weight types of the source.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_options_set_quantization(
    options: *mut siskin_model_options,
    quantization: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `quantization` is a string of `length` bytes.
    unsafe {
        guard::exclusive(options, |options, ()| pack_as(options, text("quantization", quantization, length)?))
    }
}

/// Sets the function that receives the progress of packing; null means none. `release` is called with `user` when the
/// options are freed or the function is replaced.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_options_set_progress(
    options: *mut siskin_model_options,
    function: siskin_progress_function,
    user: *mut c_void,
    release: siskin_release_function,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `release` is null, or may be called once with `user`.
    unsafe {
        // Constructed first, so that it is released if the call fails.
        let host = HostPointer::new(user, release);
        guard::exclusive(options, |options, ()| {
            options.progress = function.map(|function| Progress { function, host });
            Ok(())
        })
    }
}

/// Frees options. Null is ignored.
///
/// # Safety
/// The pointer contract of the crate, and the options are not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_options_free(options: *mut siskin_model_options) {
    // SAFETY: pointer contract: `options` is null or live, and not used afterwards.
    unsafe { guard::free(options) }
}

#[cfg(feature = "import")]
mod packing {
    use super::{Options, PathBuf};
    use crate::error::Outcome;
    use siskin_convert::PackedCache;

    pub(super) fn keep(options: &mut Options, kept: bool) -> Outcome {
        options.cache = if kept { PackedCache::User } else { PackedCache::Off };
        Ok(())
    }

    pub(super) fn keep_in(options: &mut Options, folder: &str) -> Outcome {
        options.cache = PackedCache::Folder(PathBuf::from(folder));
        Ok(())
    }

    pub(super) fn pack_as(options: &mut Options, recipe: &str) -> Outcome {
        options.recipe = Some(recipe).filter(|recipe| !recipe.is_empty()).map(str::parse).transpose()?;
        Ok(())
    }
}

#[cfg(not(feature = "import"))]
mod packing {
    use super::Options;
    use crate::error::Outcome;

    fn rejection<T>() -> Outcome<T> {
        let message = "this build of the library opens only .siskin files; convert the model first";
        Err(siskin::Error::unsupported("import", message).into())
    }

    /// Nothing is packed, so that nothing is cached either.
    pub(super) fn keep(_: &mut Options, _: bool) -> Outcome {
        Ok(())
    }

    pub(super) fn keep_in(_: &mut Options, _: &str) -> Outcome {
        Ok(())
    }

    pub(super) fn pack_as(_: &mut Options, _: &str) -> Outcome {
        rejection()
    }
}

use packing::{keep, keep_in, pack_as};
