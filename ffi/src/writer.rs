//! Writers: batched text-to-text generation.

use std::ffi::c_char;

use siskin::seq2seq::{GeneratedText, Seq2SeqGenerateOptions};
use siskin::{Seq2Seq, Seq2SeqOptions};

use crate::arguments::{SizedOutput, place};
use crate::error::{PendingError, siskin_error};
use crate::guard::{self, Handle, looking};
use crate::model::siskin_model;
use crate::seq2seq_options::siskin_writing;
use crate::stop::{Remote, siskin_stop, stop_now, stop_of};
use crate::strings::siskin_texts;

/// Generates a text for each text of a batch: translations, summaries, continuations. One call at a time may use it,
/// from any thread. Freed with `siskin_writer_free`.
pub struct siskin_writer {
    _opaque: [u8; 0],
}

impl Handle for siskin_writer {
    type Inner = WriterState;
    type Remote = Remote;
    const MAGIC: [u8; 8] = *b"SISKwrit";
    const NAME: &'static str = "writer";
}

/// The writer behind a handle, and its last results.
pub(crate) struct WriterState {
    writer: Seq2Seq,
    written: Vec<Vec<GeneratedText>>,
}

/// A generated text. Set `struct_size` before the call. Pointers are valid until the next call that changes the writer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_written {
    /// `sizeof(siskin_written)`.
    pub struct_size: usize,
    /// The text; UTF-8, not NUL-terminated.
    pub text: *const c_char,
    /// Its length in bytes.
    pub length: usize,
    /// Its token ids.
    pub tokens: *const u32,
    /// The number of tokens.
    pub token_count: usize,
    /// Its length-penalized score: higher is better.
    pub score: f64,
    /// Whether the model ended it; otherwise the length limit did.
    pub ended: bool,
}

/// Creates a writer. `rows` is the number of sequences or beams that are generated at the same time, 0: 32; `context`
/// the maximum number of tokens of a text with its prefix, 0: the model's own, but no more than 1024.
///
/// Threads: any.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writer_new(
    model: *const siskin_model,
    rows: usize,
    context: usize,
    out: *mut *mut siskin_writer,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::made(out, || {
            let usual = Seq2SeqOptions::default();
            let rows = if rows == 0 { usual.rows } else { rows };
            let writer =
                looking(model, |model| Ok(model.seq2seq(Seq2SeqOptions { rows, context, ..usual })?))?;
            let remote = Remote::new(writer.cancel_handle());
            Ok((WriterState { writer, written: Vec::new() }, remote))
        })
    }
}

/// Generates a text for each text; read the results with `siskin_writer_written`. `writing` may be null: the defaults
/// of the model's configuration.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writer_write(
    writer: *mut siskin_writer,
    texts: *const siskin_texts,
    writing: *const siskin_writing,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(writer, |state, remote| {
            remote.check()?;
            let writing = match writing.is_null() {
                true => Seq2SeqGenerateOptions::of(state.writer.model())?,
                false => looking(writing, |writing| Ok(writing.clone()))?,
            };
            looking(texts, |texts| {
                state.written = state.writer.generate(texts, &writing)?;
                Ok(())
            })
        })
    }
}

/// Returns the number of texts that were generated for text `index`.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writer_count(
    writer: *const siskin_writer,
    index: usize,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(writer, |state| {
            let count = place("count", count)?;
            let none = || PendingError::argument("index", format!("text {index} is out of range"));
            count.write(state.written.get(index).ok_or_else(none)?.len());
            Ok(())
        })
    }
}

/// Returns generated text `rank` of text `index`, best first.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writer_written(
    writer: *const siskin_writer,
    index: usize,
    rank: usize,
    out: *mut siskin_written,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(writer, |state| {
            let frame = SizedOutput::new("out", out)?;
            let none = || {
                PendingError::argument("rank", format!("nothing of rank {rank} was written for text {index}"))
            };
            let written = state.written.get(index).and_then(|all| all.get(rank)).ok_or_else(none)?;
            frame.fill(&siskin_written {
                struct_size: 0,
                text: written.text.as_ptr().cast(),
                length: written.text.len(),
                tokens: written.tokens.as_ptr(),
                token_count: written.tokens.len(),
                score: written.score,
                ended: written.finish_reason == siskin::FinishReason::Eos,
            });
            Ok(())
        })
    }
}

/// Stops the running call, or the next one, within milliseconds: it returns `SISKIN_ERROR_CANCELLED`.
///
/// Threads: any, at any time during the writer's lifetime.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writer_stop(writer: *const siskin_writer) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { stop_now(writer) }
}

/// Creates a handle that stops the writer and may outlive it.
///
/// Threads: any, at any time during the writer's lifetime.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writer_stopper(
    writer: *const siskin_writer,
    out: *mut *mut siskin_stop,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { stop_of(writer, out) }
}

/// Frees a writer. Null is ignored. A writer that a call is using is not freed.
///
/// # Safety
/// Pointers are valid, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writer_free(writer: *mut siskin_writer) {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::free(writer) }
}
