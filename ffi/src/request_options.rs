//! Options for requests to an engine.

use std::ffi::c_char;
use std::time::Duration;

use siskin::sample::SamplerOptions;
use siskin::serving::{CacheSalt, ClientId, GenerationRequest, PromptInput, RequestClass, Speculation};

use crate::arguments::{text, text_or_none};
use crate::error::{Outcome, PendingError, siskin_error};
use crate::guard::{self, Handle, borrow};
use crate::sampler::siskin_sampler;
use crate::structured_output::{siskin_structured_output, structured_output};

/// Options for a request. Null selects the defaults. Freed with `siskin_request_options_free`.
pub struct siskin_request_options {
    _opaque: [u8; 0],
}

/// A request without its prompt.
pub(crate) struct Options(pub(crate) GenerationRequest);

impl Default for Options {
    fn default() -> Self {
        Self(GenerationRequest::new(PromptInput::Tokens(Vec::new())))
    }
}

impl Handle for siskin_request_options {
    type Inner = Options;
    type Control = ();
    const MAGIC: [u8; 8] = *b"SISKropt";
    const NAME: &'static str = "options";
}

/// The priority of a request. Within a priority, clients get equal shares of the compute time; a request that waits for
/// long rises.
pub type siskin_priority = u32;
/// The default.
pub const SISKIN_PRIORITY_NORMAL: siskin_priority = 0;
/// A person is waiting.
pub const SISKIN_PRIORITY_INTERACTIVE: siskin_priority = 1;
/// Throughput matters, latency does not.
pub const SISKIN_PRIORITY_BATCH: siskin_priority = 2;
/// Only while nothing else runs.
pub const SISKIN_PRIORITY_SHADOW: siskin_priority = 3;

fn request_class(priority: siskin_priority) -> Outcome<RequestClass> {
    match priority {
        SISKIN_PRIORITY_NORMAL => Ok(RequestClass::Normal),
        SISKIN_PRIORITY_INTERACTIVE => Ok(RequestClass::Interactive),
        SISKIN_PRIORITY_BATCH => Ok(RequestClass::Batch),
        SISKIN_PRIORITY_SHADOW => Ok(RequestClass::Shadow),
        other => Err(PendingError::argument("priority", format!("{other} is not a siskin_priority"))),
    }
}

/// How draft tokens are proposed, to verify several in one forward pass. Draft tokens change no token, and are used only while they
/// save time.
pub type siskin_speculation = u32;
/// By prompt lookup and, where that finds nothing, by the draft model, if there is one.
pub const SISKIN_SPECULATION_AUTO: siskin_speculation = 0;
/// Not at all.
pub const SISKIN_SPECULATION_OFF: siskin_speculation = 1;
/// By what followed the last tokens when they occurred before (prompt lookup).
pub const SISKIN_SPECULATION_NGRAM: siskin_speculation = 2;
/// By the draft model.
pub const SISKIN_SPECULATION_DRAFT: siskin_speculation = 3;

fn speculation(speculation: siskin_speculation) -> Outcome<Speculation> {
    match speculation {
        SISKIN_SPECULATION_AUTO => Ok(Speculation::Auto),
        SISKIN_SPECULATION_OFF => Ok(Speculation::Off),
        SISKIN_SPECULATION_NGRAM => Ok(Speculation::Ngram),
        SISKIN_SPECULATION_DRAFT => Ok(Speculation::Draft),
        other => Err(PendingError::argument("speculation", format!("{other} is not a siskin_speculation"))),
    }
}

/// Creates the default options.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_request_options_new(
    out: *mut *mut siskin_request_options,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `out` is null or writable.
    unsafe { guard::create(out, || Ok((Options::default(), ()))) }
}

/// Sets the maximum number of generated tokens. 0 (the default) means limited only by the context.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_request_options_set_max_tokens(
    options: *mut siskin_request_options,
    tokens: usize,
) -> *mut siskin_error {
    let max_tokens = if tokens == 0 { usize::MAX } else { tokens };
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        change(options, |request| {
            request.max_tokens = max_tokens;
            Ok(())
        })
    }
}

/// Sets the sampling options, which are copied. Null (the default) means the default sampling options.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_request_options_set_sampler(
    options: *mut siskin_request_options,
    sampler: *const siskin_sampler,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` and `sampler` are null or live.
    unsafe {
        change(options, |request| {
            request.sampler = match sampler.is_null() {
                true => SamplerOptions::default(),
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
pub unsafe extern "C" fn siskin_request_options_add_stop_string(
    options: *mut siskin_request_options,
    stop_string: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `stop_string` is a string of `length` bytes.
    unsafe {
        change(options, |request| {
            let stop = text("stop_string", stop_string, length)?;
            if stop.is_empty() {
                return Err(PendingError::argument("stop_string", "must not be empty"));
            }
            request.stop.push(stop.to_owned());
            Ok(())
        })
    }
}

/// Sets the priority.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_request_options_set_priority(
    options: *mut siskin_request_options,
    priority: siskin_priority,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        change(options, |request| {
            request.class = request_class(priority)?;
            Ok(())
        })
    }
}

/// Sets the number of the client. Clients get equal shares of the compute time.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_request_options_set_client(
    options: *mut siskin_request_options,
    client: u64,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        change(options, |request| {
            request.client = ClientId(client);
            Ok(())
        })
    }
}

/// Sets the cache salt: requests only share cached prefixes with requests of the same salt. An empty string (the default)
/// means none.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_request_options_set_cache_salt(
    options: *mut siskin_request_options,
    salt: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `salt` is a string of `length` bytes.
    unsafe {
        change(options, |request| {
            let salt = text_or_none("salt", salt, length)?;
            request.salt = salt.map_or(CacheSalt::default(), |salt| CacheSalt::of(&salt));
            Ok(())
        })
    }
}

/// Sets the name of the adapter that applies to the request, of those that were added to the model's options. An empty
/// string (the default) means none.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_request_options_set_adapter(
    options: *mut siskin_request_options,
    name: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `name` is a string of `length` bytes.
    unsafe {
        change(options, |request| {
            request.adapter = text_or_none("name", name, length)?;
            Ok(())
        })
    }
}

/// Sets the maximum time in milliseconds, measured from the submission, after which the response ends. 0 (the default)
/// means no limit.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_request_options_set_timeout(
    options: *mut siskin_request_options,
    milliseconds: u32,
) -> *mut siskin_error {
    let timeout = Some(milliseconds).filter(|&milliseconds| milliseconds > 0);
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        change(options, |request| {
            request.timeout = timeout.map(|milliseconds| Duration::from_millis(u64::from(milliseconds)));
            Ok(())
        })
    }
}

/// Sets how draft tokens are proposed.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_request_options_set_speculation(
    options: *mut siskin_request_options,
    speculation: siskin_speculation,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        change(options, |request| {
            request.speculation = self::speculation(speculation)?;
            Ok(())
        })
    }
}

/// Sets what the response must be, as `siskin_session_set_structured_output` does for those of a session.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_request_options_set_structured_output(
    options: *mut siskin_request_options,
    kind: siskin_structured_output,
    definition: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `definition` is a text of `length` bytes.
    unsafe {
        change(options, |request| {
            request.structured_output = structured_output(kind, text("definition", definition, length)?)?;
            Ok(())
        })
    }
}

/// Frees options. Null is ignored.
///
/// # Safety
/// The pointer contract of the crate, and the options are not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_request_options_free(options: *mut siskin_request_options) {
    // SAFETY: pointer contract: `options` is null or live, and not used afterwards.
    unsafe { guard::free(options) }
}

/// # Safety
/// The pointer contract of the crate.
unsafe fn change(
    options: *mut siskin_request_options,
    change: impl FnOnce(&mut GenerationRequest) -> Outcome,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe { guard::exclusive(options, |options, ()| change(&mut options.0)) }
}
