//! What a session holds: going back, saving, and giving memory away.

use std::ffi::c_char;

use siskin::ErrorKind;

use crate::arguments::{Frame, place, text, values};
use crate::error::{Failure, siskin_error};
use crate::guard;
use crate::memory::siskin_memory;
use crate::session::siskin_session;

/// What a session has done so far. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_stats {
    /// `sizeof(siskin_stats)`.
    pub struct_size: usize,
    /// Tokens that it holds.
    pub position: u64,
    /// Tokens of prompts that were read; those that were known already are not counted.
    pub prompt_tokens: u64,
    /// The time that took.
    pub prompt_nanoseconds: u64,
    /// Tokens that were written.
    pub tokens: u64,
    /// The time that took.
    pub nanoseconds: u64,
}

/// What the session has done so far.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_stats(
    session: *const siskin_session,
    out: *mut siskin_stats,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::shared(session, |state| {
            let frame = Frame::new("out", out)?;
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

/// What the session holds in memory.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_memory(
    session: *const siskin_session,
    out: *mut siskin_memory,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::shared(session, |state| {
            let frame = Frame::new("out", out)?;
            frame.fill(&state.session.memory().into());
            Ok(())
        })
    }
}

/// The scores of all tokens to come next, as the model gives them; zeros before the first token. They are good until
/// the next call that changes the session.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_logits(
    session: *const siskin_session,
    logits: *mut *const f32,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::shared(session, |state| {
            let (logits, count) = (place("logits", logits)?, place("count", count)?);
            logits.write(state.session.logits().as_ptr());
            count.write(state.session.logits().len());
            Ok(())
        })
    }
}

/// Forgets all that was said and read. The answer that is being written is dropped.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_forget(session: *mut siskin_session) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(session, |state, _| {
            state.drop_answer();
            state.session.reset();
            Ok(())
        })
    }
}

/// Forgets all but the first `position` tokens, and all messages: what follows goes on from those tokens. The answer
/// that is being written is dropped.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_rewind(
    session: *mut siskin_session,
    position: usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
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

/// Writes what the session holds to a file, which appears when it is complete: who has it can read what was said. An
/// answer that is being written goes on afterwards; in the file it ends here. For a moment it takes as much memory
/// again as the session's tokens do.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_save(
    session: *mut siskin_session,
    path: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
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

/// The same to memory, which is good until the next call that changes the session.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_save_memory(
    session: *mut siskin_session,
    bytes: *mut *const u8,
    length: *mut usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
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

/// Goes on from what `siskin_session_save` wrote, in place of what was said here. It must be of the same model, and
/// of a session with the same type of cache and window. What follows is what would have followed there.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_restore(
    session: *mut siskin_session,
    path: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(session, |state, _| {
            state.session.restore_from(text("path", path, length)?)?;
            state.drop_answer();
            Ok(())
        })
    }
}

/// The same from memory.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_restore_memory(
    session: *mut siskin_session,
    bytes: *const u8,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(session, |state, _| {
            state.session.restore(values("bytes", bytes, length)?)?;
            state.drop_answer();
            Ok(())
        })
    }
}

/// Holds the session, for when an app goes to the background: a running call ends within milliseconds with
/// `SISKIN_ERROR_CANCELLED`, and those after it are refused with `SISKIN_ERROR_SUSPENDED`. Nothing is lost: once
/// resumed, `siskin_session_next` goes on where the answer was.
///
/// Threads: any, at any time while the session is there.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_suspend(session: *const siskin_session) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::remote(session, |remote| {
            remote.suspend();
            Ok(())
        })
    }
}

/// Lets the session work again, and takes back stops that no call has followed.
///
/// Threads: any, at any time while the session is there.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_resume(session: *const siskin_session) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::remote(session, |remote| {
            remote.resume();
            Ok(())
        })
    }
}

/// Gives back memory that holds nothing.
pub const SISKIN_TRIM_UNUSED: u32 = 1;
/// Forgets all that was said and read as well: save it before.
pub const SISKIN_TRIM_ALL: u32 = 2;

/// Gives memory back to the system, which gives it again as it is needed: `SISKIN_TRIM_…`.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_session_trim(session: *mut siskin_session, level: u32) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(session, |state, _| {
            match level {
                SISKIN_TRIM_UNUSED => {}
                SISKIN_TRIM_ALL => {
                    state.drop_answer();
                    state.session.reset();
                }
                other => {
                    return Err(Failure::argument("level", format!("{other} is not one of SISKIN_TRIM_…")));
                }
            }
            state.saved = Vec::new();
            state.session.trim();
            Ok(())
        })
    }
}
