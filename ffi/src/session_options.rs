//! Options of sessions.

use std::ffi::c_char;

use siskin::{CacheType, SessionOptions, Window};

use crate::arguments::text;
use crate::error::{Outcome, PendingError, siskin_error};
use crate::guard::{self, Handle, looking};
use crate::sampler::siskin_sampler;

/// Options of a session. Null stands for the defaults. Freed with `siskin_session_options_free`.
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
    type Remote = ();
    const MAGIC: [u8; 8] = *b"SISKsopt";
    const NAME: &'static str = "options";
}

/// The default of the model.
pub const SISKIN_CACHE_TYPE_AUTO: u32 = 0;
/// int8 with scales: half the memory of f16.
pub const SISKIN_CACHE_TYPE_INT8: u32 = 1;
/// f16.
pub const SISKIN_CACHE_TYPE_F16: u32 = 2;
/// f32.
pub const SISKIN_CACHE_TYPE_F32: u32 = 3;

/// Converts a `SISKIN_CACHE_TYPE_…` constant.
pub(crate) fn cache_type(kind: u32) -> Outcome<Option<CacheType>> {
    match kind {
        SISKIN_CACHE_TYPE_AUTO => Ok(None),
        SISKIN_CACHE_TYPE_INT8 => Ok(Some(CacheType::Int8)),
        SISKIN_CACHE_TYPE_F16 => Ok(Some(CacheType::F16)),
        SISKIN_CACHE_TYPE_F32 => Ok(Some(CacheType::F32)),
        other => Err(PendingError::argument("type", format!("{other} is not one of SISKIN_CACHE_TYPE_…"))),
    }
}

/// Creates the default options.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_new(
    out: *mut *mut siskin_session_options,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::made(out, || Ok((Options::default(), ()))) }
}

/// Sets the context length: the maximum number of tokens of the conversation or sequence; 0, the default: the model's
/// own, but no more than 2048.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_context(
    options: *mut siskin_session_options,
    tokens: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { change(options, |options| options.session.context = tokens) }
}

/// Sets the maximum number of tokens of one prefill batch. A larger batch is faster and takes more memory; the
/// generated text is the same. Default: 256.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_batch(
    options: *mut siskin_session_options,
    tokens: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { change(options, |options| options.session.batch = tokens) }
}

/// Sets the maximum size of activations and KV cache together, in bytes: a session that would take more is rejected
/// with `SISKIN_ERROR_MEMORY`, whose message names the longest context that fits. 0, the default: no limit.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_budget(
    options: *mut siskin_session_options,
    bytes: u64,
) -> *mut siskin_error {
    let budget = Some(bytes).filter(|&bytes| bytes > 0);
    let budget = budget.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    // SAFETY: guaranteed by the caller.
    unsafe { change(options, |options| options.session.budget = budget) }
}

/// Limits attention to a sliding window of the `recent` newest tokens and the `first` oldest ones (attention sinks), so
/// that the KV cache is smaller. 0 and 0: the model's own attention mask.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_window(
    options: *mut siskin_session_options,
    recent: usize,
    first: usize,
) -> *mut siskin_error {
    let window = Some(Window { recent, first }).filter(|_| recent > 0 || first > 0);
    // SAFETY: guaranteed by the caller.
    unsafe { change(options, |options| options.session.window = window) }
}

/// Sets the type of the KV cache: one of `SISKIN_CACHE_TYPE_…`.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_cache_type(
    options: *mut siskin_session_options,
    kind: u32,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(options, |options, ()| {
            options.session.cache = cache_type(kind)?;
            Ok(())
        })
    }
}

/// Sets the maximum number of tokens of an answer; 0, the default: as many as the context has room for.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_max_tokens(
    options: *mut siskin_session_options,
    tokens: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { change(options, |options| options.max_tokens = if tokens == 0 { usize::MAX } else { tokens }) }
}

/// Sets the sampling options, which are copied. Null: the defaults.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_set_sampler(
    options: *mut siskin_session_options,
    sampler: *const siskin_sampler,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(options, |options, ()| {
            options.session.sampler = match sampler.is_null() {
                true => siskin::sample::SamplerOptions::default(),
                false => looking(sampler, |sampler| Ok(sampler.clone()))?,
            };
            Ok(())
        })
    }
}

/// Adds a stop string: it ends an answer where it occurs, and is not a part of it.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_add_stop(
    options: *mut siskin_session_options,
    stop: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(options, |options, ()| {
            let stop = text("stop", stop, length)?;
            if stop.is_empty() {
                return Err(PendingError::argument("stop", "is empty: every text would end at once"));
            }
            options.session.stop.push(stop.to_owned());
            Ok(())
        })
    }
}

/// Frees options. Null is ignored.
///
/// # Safety
/// Pointers are valid, and the options are not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_options_free(options: *mut siskin_session_options) {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::free(options) }
}

/// # Safety
/// As for every function of the header.
unsafe fn change(
    options: *mut siskin_session_options,
    change: impl FnOnce(&mut Options),
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(options, |options, ()| {
            change(options);
            Ok(())
        })
    }
}
