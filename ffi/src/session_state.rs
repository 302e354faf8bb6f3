//! State of a session: rolling back, saving, and trimming memory.

use std::ffi::c_char;

use siskin::ErrorKind;

use crate::arguments::{SizedOutput, place, text, values};
use crate::error::{PendingError, siskin_error};
use crate::guard;
use crate::memory::siskin_memory;
use crate::session::siskin_session;

/// Counters of a session. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_stats {
    /// `sizeof(siskin_stats)`.
    pub struct_size: usize,
    /// Tokens in the KV cache.
    pub position: u64,
    /// Prompt tokens that were computed; tokens that were already in the KV cache are not counted.
    pub prompt_tokens: u64,
    /// The time spent in prefill.
    pub prompt_nanoseconds: u64,
    /// Tokens that were generated.
    pub tokens: u64,
    /// The time spent in prefill.
    pub nanoseconds: u64,
}

/// Returns the counters of the session.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_stats(
    session: *const siskin_session,
    out: *mut siskin_stats,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(session, |state| {
            let frame = SizedOutput::new("out", out)?;
            frame.fill(&siskin_stats {
                struct_size: 0,
                position: state.session.position() as u64,
                prompt_tokens: state.stats.prompt_tokens,
                prompt_nanoseconds: state.stats.prompt_nanoseconds,
                tokens: state.stats.tokens,
                nanoseconds: state.stats.nanoseconds,
            });
            Ok(())
        })
    }
}

/// Returns the memory that the session uses.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_memory(
    session: *const siskin_session,
    out: *mut siskin_memory,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(session, |state| {
            let frame = SizedOutput::new("out", out)?;
            frame.fill(&state.session.memory().into());
            Ok(())
        })
    }
}

/// Returns the logits of the next token, one for each token of the vocabulary; zeros before the first token. They are
/// valid until the next call that changes the session.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_logits(
    session: *const siskin_session,
    logits: *mut *const f32,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(session, |state| {
            let (logits, count) = (place("logits", logits)?, place("count", count)?);
            logits.write(state.session.logits().as_ptr());
            count.write(state.session.logits().len());
            Ok(())
        })
    }
}

/// Clears the session: all messages and tokens. The current answer is dropped.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_forget(session: *mut siskin_session) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(session, |state, _| {
            state.drop_answer();
            state.session.reset();
            Ok(())
        })
    }
}

/// Truncates the session to the first `position` tokens, and drops all messages: generation continues after those
/// tokens. The current answer is dropped.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_rewind(
    session: *mut siskin_session,
    position: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(session, |state, _| {
            let outcome = state.session.rewind(position);
            if outcome.as_ref().err().is_none_or(|error| error.kind() != ErrorKind::Argument) {
                state.drop_answer();
            }
            Ok(outcome?)
        })
    }
}

/// Saves the state of the session to a file, which is renamed into place when it is complete. The file contains the
/// conversation in readable form: protect it. An unfinished answer continues afterwards; in the file it ends here.
/// Saving temporarily takes as much memory again as the tokens of the session.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_save(
    session: *mut siskin_session,
    path: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(session, |state, _| {
            let path = text("path", path, length)?;
            match &state.generation {
                Some(generation) => state.session.save_during_to(generation, path)?,
                None => state.session.save_to(path)?,
            }
            Ok(())
        })
    }
}

/// Saves the state to memory, which is valid until the next call that changes the session.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_save_memory(
    session: *mut siskin_session,
    bytes: *mut *const u8,
    length: *mut usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(session, |state, _| {
            let (bytes, length) = (place("bytes", bytes)?, place("length", length)?);
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

/// Restores what `siskin_session_save` wrote, replacing the state of the session. It must come from the same model, and
/// from a session with the same cache type and window. Generation continues exactly as it would have there.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_restore(
    session: *mut siskin_session,
    path: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(session, |state, _| {
            state.session.restore_from(text("path", path, length)?)?;
            state.drop_answer();
            Ok(())
        })
    }
}

/// Restores the state from memory.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_restore_memory(
    session: *mut siskin_session,
    bytes: *const u8,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(session, |state, _| {
            state.session.restore(values("bytes", bytes, length)?)?;
            state.drop_answer();
            Ok(())
        })
    }
}

/// Suspends the session, for when an app goes to the background: a running call ends within milliseconds with
/// `SISKIN_ERROR_CANCELLED`, and later calls are rejected with `SISKIN_ERROR_SUSPENDED`. Nothing is lost: once resumed,
/// `siskin_session_next` continues the answer.
///
/// Threads: any, at any time during the session's lifetime.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_suspend(session: *const siskin_session) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::remote(session, |remote| {
            remote.suspend();
            Ok(())
        })
    }
}

/// Resumes the session, and clears stops that have not affected a call yet.
///
/// Threads: any, at any time during the session's lifetime.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_resume(session: *const siskin_session) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::remote(session, |remote| {
            remote.resume();
            Ok(())
        })
    }
}

/// Releases memory that is not in use.
pub const SISKIN_TRIM_UNUSED: u32 = 1;
/// Also clears all messages and tokens: save the session before.
pub const SISKIN_TRIM_ALL: u32 = 2;

/// Returns memory to the system; it is committed again on demand: `SISKIN_TRIM_…`.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_trim(session: *mut siskin_session, level: u32) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(session, |state, _| {
            match level {
                SISKIN_TRIM_UNUSED => {}
                SISKIN_TRIM_ALL => {
                    state.drop_answer();
                    state.session.reset();
                }
                other => {
                    return Err(PendingError::argument(
                        "level",
                        format!("{other} is not one of SISKIN_TRIM_…"),
                    ));
                }
            }
            state.saved = Vec::new();
            state.session.trim();
            Ok(())
        })
    }
}
