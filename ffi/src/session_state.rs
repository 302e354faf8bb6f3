//! State of sessions: counters, rewinding, saving, pausing and trimming memory.

use std::ffi::c_char;

use siskin::ErrorKind;

use crate::arguments::{SizedOutput, output, text, values};
use crate::error::{PendingError, siskin_error};
use crate::guard;
use crate::memory_usage::siskin_memory_usage;
use crate::session::siskin_session;

/// Session statistics. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_stats {
    /// `sizeof(siskin_stats)`.
    pub struct_size: usize,
    /// The number of tokens in the KV cache.
    pub position: u64,
    /// The number of prompt tokens processed, excluding those already in the KV cache.
    pub prompt_tokens: u64,
    /// The time spent in prefill.
    pub prompt_nanoseconds: u64,
    /// The number of generated tokens.
    pub generated_tokens: u64,
    /// The time spent generating them.
    pub generation_nanoseconds: u64,
}

/// Returns the session statistics.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_stats(
    session: *const siskin_session,
    out: *mut siskin_stats,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `out` is null or a sized struct.
    unsafe {
        guard::shared(session, |state| {
            let result = SizedOutput::new("out", out)?;
            result.write(&siskin_stats {
                struct_size: 0,
                position: state.session.position() as u64,
                prompt_tokens: state.stats.prompt_tokens,
                prompt_nanoseconds: state.stats.prompt_nanoseconds,
                generated_tokens: state.stats.generated_tokens,
                generation_nanoseconds: state.stats.generation_nanoseconds,
            });
            Ok(())
        })
    }
}

/// Returns the memory usage of the session.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_memory(
    session: *const siskin_session,
    out: *mut siskin_memory_usage,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `out` is null or a sized struct.
    unsafe {
        guard::shared(session, |state| {
            let result = SizedOutput::new("out", out)?;
            result.write(&state.session.memory().into());
            Ok(())
        })
    }
}

/// Returns the logits of the next token, one for each token of the vocabulary; zeros before the first prompt. They are
/// valid until the next call that modifies the session.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_logits(
    session: *const siskin_session,
    logits: *mut *const f32,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `logits` and `count` are disjoint outputs.
    unsafe {
        guard::shared(session, |state| {
            let (logits, count) = (output("logits", logits)?, output("count", count)?);
            logits.write(state.session.logits().as_ptr());
            count.write(state.session.logits().len());
            Ok(())
        })
    }
}

/// Removes all messages and tokens, and the current response.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_reset(session: *mut siskin_session) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live.
    unsafe {
        guard::exclusive(session, |state, _| {
            state.drop_answer();
            state.session.reset();
            Ok(())
        })
    }
}

/// Truncates the session to its first `position` tokens. Removes all messages and the current response: a new prompt
/// continues after those tokens.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_rewind(
    session: *mut siskin_session,
    position: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live.
    unsafe {
        guard::exclusive(session, |state, _| {
            let outcome = state.session.rewind(position);
            if outcome.as_ref().err().is_none_or(|error| error.kind() != ErrorKind::Argument) {
                state.drop_answer();
            }
            Ok(outcome?)
        })
    }
}

/// Saves the session to a file, which is replaced atomically. The file contains the conversation in plain text; protect
/// it accordingly. An unfinished response continues in this session, but the saved copy stops at this point. Saving
/// temporarily needs as much memory as the session's tokens occupy in the KV cache.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_save(
    session: *mut siskin_session,
    path: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `path` is a string of `length` bytes.
    unsafe {
        guard::exclusive(session, |state, _| {
            let path = text("path", path, length)?;
            match &state.generation {
                Some(generation) => state.session.save_during_to(generation, path)?,
                None => state.session.save_to(path)?,
            }
            Ok(())
        })
    }
}

/// Saves the session to memory that is valid until the next call that modifies the session.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_save_to_memory(
    session: *mut siskin_session,
    bytes: *mut *const u8,
    length: *mut usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `bytes` and `length` are disjoint outputs.
    unsafe {
        guard::exclusive(session, |state, _| {
            let (bytes, length) = (output("bytes", bytes)?, output("length", length)?);
            state.saved = match &state.generation {
                Some(generation) => state.session.save_during(generation)?,
                None => state.session.save()?,
            };
            bytes.write(state.saved.as_ptr());
            length.write(state.saved.len());
            Ok(())
        })
    }
}

/// Restores a session that was saved to a file, replacing the state of this one. It must have been saved with the same
/// model, KV cache dtype and window. Generation continues with identical results.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_restore(
    session: *mut siskin_session,
    path: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `path` is a string of `length` bytes.
    unsafe {
        guard::exclusive(session, |state, _| {
            state.session.restore_from(text("path", path, length)?)?;
            state.drop_answer();
            Ok(())
        })
    }
}

/// Restores a session that was saved to memory, like `siskin_session_restore`.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_restore_from_memory(
    session: *mut siskin_session,
    bytes: *const u8,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live; `bytes` is readable for `length` bytes.
    unsafe {
        guard::exclusive(session, |state, _| {
            state.session.restore(values("bytes", bytes, length)?)?;
            state.drop_answer();
            Ok(())
        })
    }
}

/// Pauses the session, for example when an app goes to the background: a running call returns `SISKIN_ERROR_CANCELED`
/// within milliseconds, and later calls return `SISKIN_ERROR_PAUSED`. No token is lost: after `siskin_session_resume`,
/// `siskin_session_next` continues the response.
///
/// Threads: any, at any time during the session's lifetime.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_pause(session: *const siskin_session) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live.
    unsafe {
        guard::control(session, |control| {
            control.pause();
            Ok(())
        })
    }
}

/// Resumes a paused session, and clears pending cancellations.
///
/// Threads: any, at any time during the session's lifetime.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_resume(session: *const siskin_session) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live.
    unsafe {
        guard::control(session, |control| {
            control.resume();
            Ok(())
        })
    }
}

/// How much memory is returned to the system.
pub type siskin_trim_level = u32;
/// Memory that is not in use.
pub const SISKIN_TRIM_UNUSED: siskin_trim_level = 1;
/// Also the messages and tokens, which are removed: save the session first.
pub const SISKIN_TRIM_ALL: siskin_trim_level = 2;

/// Returns memory to the system. It is committed again when it is needed.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_trim(
    session: *mut siskin_session,
    level: siskin_trim_level,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live.
    unsafe {
        guard::exclusive(session, |state, _| {
            match level {
                SISKIN_TRIM_UNUSED => {}
                SISKIN_TRIM_ALL => {
                    state.drop_answer();
                    state.session.reset();
                }
                other => {
                    return Err(PendingError::argument(
                        "level",
                        format!("{other} is not a siskin_trim_level"),
                    ));
                }
            }
            state.saved = Vec::new();
            state.session.trim();
            Ok(())
        })
    }
}
