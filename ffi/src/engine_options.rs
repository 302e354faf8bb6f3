//! Options for engines and their models.

use std::ffi::c_char;
use std::path::PathBuf;

use siskin::serving::{DiskCacheOptions, Drive, EngineOptions, SchedulingOptions, ServedModelOptions};
use siskin::{KvBudget, SessionOptions};

use crate::arguments::{byte_limit, text_or_none};
use crate::error::siskin_error;
use crate::guard::{self, Handle, borrow};
use crate::model::siskin_model;
use crate::session_options::{kv_cache_type, siskin_kv_cache_type};

/// Options for an engine. Null selects the defaults. Freed with `siskin_engine_options_free`.
pub struct siskin_engine_options {
    _opaque: [u8; 0],
}

impl Handle for siskin_engine_options {
    type Inner = EngineOptions;
    type Control = ();
    const MAGIC: [u8; 8] = *b"SISKeopt";
    const NAME: &'static str = "options";
}

/// Creates the default options.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_options_new(
    out: *mut *mut siskin_engine_options,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `out` is null or writable.
    unsafe { guard::create(out, || Ok((EngineOptions::default(), ()))) }
}

/// Sets the number of compute threads, which all models share. 0 (the default) means the number of the first model.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_options_set_threads(
    options: *mut siskin_engine_options,
    threads: u32,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            options.threads = threads as usize;
            Ok(())
        })
    }
}

/// Sets whether a thread of the engine runs the forward passes. Otherwise the threads that wait for chunks run them: one for
/// all, while the others wait. Default: false.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_options_set_background_thread(
    options: *mut siskin_engine_options,
    enabled: bool,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            options.drive = if enabled { Drive::Thread } else { Drive::Caller };
            Ok(())
        })
    }
}

/// Limits the memory for the KV caches and activations of all decoders of the engine, in bytes: adding a model that needs more
/// than is left fails with `SISKIN_ERROR_MEMORY`. Model files are memory-mapped and do not count. 0 (the default) means no
/// limit.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_options_set_memory_budget(
    options: *mut siskin_engine_options,
    bytes: u64,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            options.memory_budget = byte_limit(bytes);
            Ok(())
        })
    }
}

/// Frees options. Null is ignored.
///
/// # Safety
/// The pointer contract of the crate, and the options are not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_engine_options_free(options: *mut siskin_engine_options) {
    // SAFETY: pointer contract: `options` is null or live, and not used afterwards.
    unsafe { guard::free(options) }
}

/// Options for a model of an engine. Null selects the defaults. Freed with `siskin_served_model_options_free`.
pub struct siskin_served_model_options {
    _opaque: [u8; 0],
}

/// The default number of requests that run at the same time: an app has fewer clients than a server.
const MAX_RUNNING: usize = 4;
/// The default size of the prefix cache's directory.
const DIRECTORY_BYTES: u64 = 1 << 30;

/// The options behind a handle.
#[derive(Clone)]
pub(crate) struct ServedOptions {
    options: ServedModelOptions,
    /// The folder of the prefix cache, and its maximum size; 0: the default.
    directory: Option<PathBuf>,
    directory_bytes: u64,
}

impl ServedOptions {
    /// Returns the options of the model.
    pub(crate) fn finish(&self) -> ServedModelOptions {
        let max_bytes = if self.directory_bytes == 0 { DIRECTORY_BYTES } else { self.directory_bytes };
        let disk_cache = self.directory.clone().map(|folder| DiskCacheOptions { folder, max_bytes });
        ServedModelOptions { disk_cache, ..self.options.clone() }
    }
}

impl Default for ServedOptions {
    fn default() -> Self {
        let mut options = ServedModelOptions::default();
        options.scheduling.max_running = MAX_RUNNING;
        Self { options, directory: None, directory_bytes: 0 }
    }
}

impl Handle for siskin_served_model_options {
    type Inner = ServedOptions;
    type Control = ();
    const MAGIC: [u8; 8] = *b"SISKmopt";
    const NAME: &'static str = "options";
}

/// Creates the default options.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_served_model_options_new(
    out: *mut *mut siskin_served_model_options,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `out` is null or writable.
    unsafe { guard::create(out, || Ok((ServedOptions::default(), ()))) }
}

/// Sets the maximum number of tokens in a request, the prompt included. 0 (the default) means the model's context length,
/// capped at 2048.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_served_model_options_set_context(
    options: *mut siskin_served_model_options,
    tokens: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe { change_session(options, |session| session.context = tokens) }
}

/// Sets the maximum number of tokens in a batch. Larger batches are faster and take more memory; the generated text is the
/// same. Default: 256.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_served_model_options_set_max_batch_tokens(
    options: *mut siskin_served_model_options,
    tokens: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe { change_session(options, |session| session.batch = tokens) }
}

/// Sets the dtype of the KV cache. Default: f16, or f32 for models with f32 weights.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_served_model_options_set_kv_cache_type(
    options: *mut siskin_served_model_options,
    kv_cache_type: siskin_kv_cache_type,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            options.options.session.cache = self::kv_cache_type(kv_cache_type)?;
            Ok(())
        })
    }
}

/// Sets the memory of the KV cache in bytes, which requests and cached prefixes share. A request that starts reserves what
/// its prompt and its maximum number of tokens need. 0 (the default) means enough for the maximum
/// numbers of running requests and of sessions, all at the maximum length: set these lower to reserve less.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_served_model_options_set_kv_cache_memory(
    options: *mut siskin_served_model_options,
    bytes: u64,
) -> *mut siskin_error {
    let budget = byte_limit(bytes).map(|bytes| KvBudget { bytes });
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            options.options.kv_budget = budget;
            Ok(())
        })
    }
}

/// Sets the maximum number of requests that run at the same time, at most half of the tokens in a batch. 0 (the default)
/// means 4.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_served_model_options_set_max_running(
    options: *mut siskin_served_model_options,
    requests: usize,
) -> *mut siskin_error {
    let max_running = if requests == 0 { MAX_RUNNING } else { requests };
    // SAFETY: pointer contract: `options` is null or live.
    unsafe { change_scheduling(options, |scheduling| scheduling.max_running = max_running) }
}

/// Sets the maximum number of requests that wait; further ones are rejected with `SISKIN_ERROR_OVERLOADED`. 0 (the default)
/// means 256.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_served_model_options_set_max_waiting(
    options: *mut siskin_served_model_options,
    requests: usize,
) -> *mut siskin_error {
    let max_waiting = if requests == 0 { SchedulingOptions::default().max_waiting } else { requests };
    // SAFETY: pointer contract: `options` is null or live.
    unsafe { change_scheduling(options, |scheduling| scheduling.max_waiting = max_waiting) }
}

/// Sets the maximum number of sessions, forks included, that the model has at a time. Default: 4; 0 means none.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_served_model_options_set_max_sessions(
    options: *mut siskin_served_model_options,
    sessions: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe { change_scheduling(options, |scheduling| scheduling.max_sessions = sessions) }
}

/// Sets the directory for cached prefixes that leave memory, and for those that are left when the engine is drained: later
/// requests, also of later processes, continue after them. It is created if necessary. Its files contain the tokens of
/// prompts and responses, and only this user can read them. Libraries without the feature `disk-cache`, such as those for
/// phones, reject a directory with `SISKIN_ERROR_UNSUPPORTED`. An empty string (the default) means none.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_served_model_options_set_prefix_cache_directory(
    options: *mut siskin_served_model_options,
    directory: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `directory` is a string of `length` bytes.
    unsafe {
        guard::exclusive(options, |options, ()| {
            options.directory = text_or_none("directory", directory, length)?.map(PathBuf::from);
            Ok(())
        })
    }
}

/// Sets the maximum size of the prefix cache's directory in bytes; the least recently used prefixes are removed. 0 (the
/// default) means 1 GiB.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_served_model_options_set_prefix_cache_directory_size(
    options: *mut siskin_served_model_options,
    bytes: u64,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            options.directory_bytes = bytes;
            Ok(())
        })
    }
}

/// Sets the draft model, which drafts tokens that the model then verifies in one pass: a smaller model with the same
/// tokenizer, or the same one opened with skipped layers. It changes no token. Null (the default) means none.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_served_model_options_set_draft_model(
    options: *mut siskin_served_model_options,
    draft_model: *const siskin_model,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` and `draft_model` are null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            options.options.draft = match draft_model.is_null() {
                true => None,
                false => Some(borrow(draft_model, |model| Ok(model.clone()))?),
            };
            Ok(())
        })
    }
}

/// Frees options. Null is ignored.
///
/// # Safety
/// The pointer contract of the crate, and the options are not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_served_model_options_free(options: *mut siskin_served_model_options) {
    // SAFETY: pointer contract: `options` is null or live, and not used afterwards.
    unsafe { guard::free(options) }
}

/// # Safety
/// The pointer contract of the crate.
unsafe fn change_session(
    options: *mut siskin_served_model_options,
    change: impl FnOnce(&mut SessionOptions),
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            change(&mut options.options.session);
            Ok(())
        })
    }
}

/// # Safety
/// The pointer contract of the crate.
unsafe fn change_scheduling(
    options: *mut siskin_served_model_options,
    change: impl FnOnce(&mut SchedulingOptions),
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            change(&mut options.options.scheduling);
            Ok(())
        })
    }
}
