//! Writers: text to text over many texts at once.

use std::ffi::c_char;

use siskin::seq2seq::{Candidate, Writing};
use siskin::{Writer, WriterOptions};

use crate::arguments::{Frame, place};
use crate::error::{Failure, siskin_error};
use crate::guard::{self, Handle, looking};
use crate::model::siskin_model;
use crate::stop::{Remote, siskin_stop, stop_now, stop_of};
use crate::texts::siskin_texts;
use crate::writing::siskin_writing;

/// Writes texts for texts: translations, summaries, continuations. One call at a time may be at work on it, from any
/// thread. Freed with `siskin_writer_free`.
pub struct siskin_writer {
    _opaque: [u8; 0],
}

impl Handle for siskin_writer {
    type Inner = State;
    type Remote = Remote;
    const MAGIC: [u8; 8] = *b"SISKwrit";
    const NAME: &'static str = "writer";
}

/// The writer behind a handle, and what it wrote last.
pub(crate) struct State {
    writer: Writer,
    written: Vec<Vec<Candidate>>,
}

/// A text that was written. Set `struct_size` before the call. Pointers are good until the next call that changes the
/// writer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_written {
    /// `sizeof(siskin_written)`.
    pub struct_size: usize,
    /// The text; UTF-8, without a zero.
    pub text: *const c_char,
    /// Bytes of that.
    pub length: usize,
    /// Its tokens.
    pub tokens: *const u32,
    /// How many those are.
    pub token_count: usize,
    /// How likely it is by its length: higher is better.
    pub score: f64,
    /// Whether the model ended it; otherwise there was room for no more.
    pub ended: bool,
}

/// Opens a writer. `rows` is how many texts or beams go on at the same time, 0: 32; `context` the most tokens of a
/// text with what stands before it, 0: the model's own, but no more than 1024.
///
/// Threads: any.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writer_new(
    model: *const siskin_model,
    rows: usize,
    context: usize,
    out: *mut *mut siskin_writer,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::made(out, || {
            let usual = WriterOptions::default();
            let rows = if rows == 0 { usual.rows } else { rows };
            let writer =
                looking(model, |model| Ok(model.writer(WriterOptions { rows, context, ..usual })?))?;
            let remote = Remote::new(writer.stop_handle());
            Ok((State { writer, written: Vec::new() }, remote))
        })
    }
}

/// Writes a text for each text; `siskin_writer_written` gives them. `writing` may be null: what the model's own
/// configuration asks for.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writer_write(
    writer: *mut siskin_writer,
    texts: *const siskin_texts,
    writing: *const siskin_writing,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(writer, |state, remote| {
            remote.check()?;
            let writing = match writing.is_null() {
                true => Writing::of(state.writer.model())?,
                false => looking(writing, |writing| Ok(writing.clone()))?,
            };
            looking(texts, |texts| {
                state.written = state.writer.write(texts, &writing)?;
                Ok(())
            })
        })
    }
}

/// How many texts were written for text `index`.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writer_count(
    writer: *const siskin_writer,
    index: usize,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::shared(writer, |state| {
            let count = place("count", count)?;
            let none = || Failure::argument("index", format!("there is no text {index}"));
            count.write(state.written.get(index).ok_or_else(none)?.len());
            Ok(())
        })
    }
}

/// Text `rank` of those that were written for text `index`, the best first.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writer_written(
    writer: *const siskin_writer,
    index: usize,
    rank: usize,
    out: *mut siskin_written,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::shared(writer, |state| {
            let frame = Frame::new("out", out)?;
            let none =
                || Failure::argument("rank", format!("nothing of rank {rank} was written for text {index}"));
            let written = state.written.get(index).and_then(|all| all.get(rank)).ok_or_else(none)?;
            frame.fill(&siskin_written {
                struct_size: 0,
                text: written.text.as_ptr().cast(),
                length: written.text.len(),
                tokens: written.tokens.as_ptr(),
                token_count: written.tokens.len(),
                score: written.score,
                ended: written.ended,
            });
            Ok(())
        })
    }
}

/// Stops the running call, or the next one, within milliseconds: it gives `SISKIN_ERROR_CANCELLED`.
///
/// Threads: any, at any time while the writer is there.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writer_stop(writer: *const siskin_writer) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe { stop_now(writer) }
}

/// Makes the means to stop the writer, which may outlive it.
///
/// Threads: any, at any time while the writer is there.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writer_stopper(
    writer: *const siskin_writer,
    out: *mut *mut siskin_stop,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe { stop_of(writer, out) }
}

/// Frees a writer. Null is nothing. One that a call is at work on stays as it is.
///
/// # Safety
/// Pointers are good, and nobody uses it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writer_free(writer: *mut siskin_writer) {
    // SAFETY: the caller's promise.
    unsafe { guard::free(writer) }
}
