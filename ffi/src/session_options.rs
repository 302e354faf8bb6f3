//! Session options.

use std::ffi::c_char;

use siskin::{CacheType, SessionOptions, StreamingWindow};

use crate::arguments::{byte_limit, text, text_or_none};
use crate::error::{Outcome, PendingError, siskin_error};
use crate::guard::{self, Handle, borrow};
use crate::sampler::siskin_sampler;

/// Session options. Null selects the defaults. Freed with `siskin_session_options_free`.
pub struct siskin_session_options {
    _opaque: [u8; 0],
}

/// The options behind a handle.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) session: SessionOptions,
    pub(crate) max_tokens: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { session: SessionOptions::default(), max_tokens: usize::MAX }
    }
}

impl Handle for siskin_session_options {
    type Inner = Options;
    type Control = ();
    const MAGIC: [u8; 8] = *b"SISKsopt";
    const NAME: &'static str = "options";
}

/// The dtype of the KV cache.
pub type siskin_kv_cache_type = u32;
/// The model's default.
pub const SISKIN_KV_CACHE_AUTO: siskin_kv_cache_type = 0;
/// int8 with scales: half the memory of f16.
pub const SISKIN_KV_CACHE_INT8: siskin_kv_cache_type = 1;
/// f16.
pub const SISKIN_KV_CACHE_F16: siskin_kv_cache_type = 2;
/// f32.
pub const SISKIN_KV_CACHE_F32: siskin_kv_cache_type = 3;
/// 14-bit integers with scales: the same memory as f16 and about the same precision.
pub const SISKIN_KV_CACHE_INT14: siskin_kv_cache_type = 4;

/// Converts a KV cache type.
pub(crate) fn kv_cache_type(kind: siskin_kv_cache_type) -> Outcome<Option<CacheType>> {
    match kind {
        SISKIN_KV_CACHE_AUTO => Ok(None),
        SISKIN_KV_CACHE_INT8 => Ok(Some(CacheType::Int8)),
        SISKIN_KV_CACHE_F16 => Ok(Some(CacheType::F16)),
        SISKIN_KV_CACHE_F32 => Ok(Some(CacheType::F32)),
        SISKIN_KV_CACHE_INT14 => Ok(Some(CacheType::Int14)),
        other => {
            Err(PendingError::argument("kv_cache_type", format!("{other} is not a siskin_kv_cache_type")))
        }
    }
}

/// Creates the default options.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_new(
    out: *mut *mut siskin_session_options,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `out` is null or writable.
    unsafe { guard::create(out, || Ok((Options::default(), ()))) }
}

/// Sets the context length: the maximum number of tokens in the conversation or text. 0 (the default) means the model's
/// context length, capped at 2048.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_context(
    options: *mut siskin_session_options,
    tokens: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe { change(options, |options| options.session.context = tokens) }
}

/// Sets the maximum number of tokens in a prefill batch. Larger batches are faster and take more memory; the generated
/// text is the same. Default: 256.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_max_batch_tokens(
    options: *mut siskin_session_options,
    tokens: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe { change(options, |options| options.session.batch = tokens) }
}

/// Sets the name of the adapter that applies to the session, of those that were added to the model's options; empty (the
/// default) means none. The KV cache depends on it: a session keeps its adapter.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_adapter(
    options: *mut siskin_session_options,
    name: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `name` is a string of `length` bytes.
    unsafe {
        guard::exclusive(options, |options, ()| {
            options.session.adapter = text_or_none("name", name, length)?;
            Ok(())
        })
    }
}

/// Sets the number of forks for which the KV cache has room beside the session. 0 (the default) means none: a fork then
/// shares the room of the session.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_forks(
    options: *mut siskin_session_options,
    forks: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe { change(options, |options| options.session.forks = forks) }
}

/// Sets variables of the chat template, such as `enable_thinking`: a JSON object. An empty string (the default) means
/// none.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_template_variables(
    options: *mut siskin_session_options,
    json: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `json` is a string of `length` bytes.
    unsafe {
        guard::exclusive(options, |options, ()| {
            Ok(options.session.template.set_variables(text("json", json, length)?)?)
        })
    }
}

/// Limits the memory used by activations and the KV cache, in bytes: creating a session that needs more fails with
/// `SISKIN_ERROR_MEMORY`, whose message names the longest context that fits. 0 (the default) means no limit.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_memory_budget(
    options: *mut siskin_session_options,
    bytes: u64,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe { change(options, |options| options.session.budget = byte_limit(bytes)) }
}

/// Limits attention to a sliding window of the `recent` newest tokens and the `sinks` oldest ones (attention sinks),
/// which makes the KV cache smaller. 0 and 0 (the default) mean the model's own attention mask.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_window(
    options: *mut siskin_session_options,
    recent: usize,
    sinks: usize,
) -> *mut siskin_error {
    let window = Some(StreamingWindow { window: recent, sinks }).filter(|_| recent > 0 || sinks > 0);
    // SAFETY: pointer contract: `options` is null or live.
    unsafe { change(options, |options| options.session.window = window) }
}

/// Sets the dtype of the KV cache. Default: f16, or f32 for models with f32 weights.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_kv_cache_type(
    options: *mut siskin_session_options,
    kv_cache_type: siskin_kv_cache_type,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            options.session.cache = self::kv_cache_type(kv_cache_type)?;
            Ok(())
        })
    }
}

/// Sets the maximum number of tokens in a response. 0 (the default) means limited only by the context.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_max_tokens(
    options: *mut siskin_session_options,
    tokens: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe { change(options, |options| options.max_tokens = if tokens == 0 { usize::MAX } else { tokens }) }
}

/// Sets the sampling options, which are copied. Null (the default) means the default sampling options.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_sampler(
    options: *mut siskin_session_options,
    sampler: *const siskin_sampler,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` and `sampler` are null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            options.session.sampler = match sampler.is_null() {
                true => siskin::sample::SamplerOptions::default(),
                false => borrow(sampler, |sampler| Ok(sampler.clone()))?,
            };
            Ok(())
        })
    }
}

/// Adds a stop string: a response ends before the first occurrence of any of them.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_add_stop_string(
    options: *mut siskin_session_options,
    stop_string: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `stop_string` is a string of `length` bytes.
    unsafe {
        guard::exclusive(options, |options, ()| {
            let stop = text("stop_string", stop_string, length)?;
            if stop.is_empty() {
                return Err(PendingError::argument("stop_string", "must not be empty"));
            }
            options.session.stop.push(stop.to_owned());
            Ok(())
        })
    }
}

/// Frees options. Null is ignored.
///
/// # Safety
/// The pointer contract of the crate, and the options are not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_free(options: *mut siskin_session_options) {
    // SAFETY: pointer contract: `options` is null or live, and not used afterwards.
    unsafe { guard::free(options) }
}

/// # Safety
/// The pointer contract of the crate.
unsafe fn change(
    options: *mut siskin_session_options,
    change: impl FnOnce(&mut Options),
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            change(options);
            Ok(())
        })
    }
}
