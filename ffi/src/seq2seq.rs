//! Seq2seq: generation of output for each input text of a batch.

use std::ffi::c_char;

use siskin::seq2seq::{GeneratedText, Seq2SeqGenerateOptions};
use siskin::{Seq2Seq, Seq2SeqOptions};

use crate::arguments::{SizedOutput, output};
use crate::cancel_handle::{RunControl, cancel, cancel_handle_of, siskin_cancel_handle};
use crate::error::{PendingError, siskin_error};
use crate::guard::{self, Handle, borrow};
use crate::model::siskin_model;
use crate::seq2seq_options::siskin_seq2seq_options;
use crate::session::{finish_reason, siskin_finish_reason};
use crate::strings::siskin_strings;

/// A seq2seq generator: generates output for each input text of a batch, such as its translation or summary.
/// One call at a time may use it, from any thread. Freed with `siskin_seq2seq_free`.
pub struct siskin_seq2seq {
    _opaque: [u8; 0],
}

impl Handle for siskin_seq2seq {
    type Inner = Seq2SeqState;
    type Control = RunControl;
    const MAGIC: [u8; 8] = *b"SISKs2s_";
    const NAME: &'static str = "seq2seq";
}

/// The generator behind a handle, and its last results.
pub(crate) struct Seq2SeqState {
    seq2seq: Seq2Seq,
    generated: Vec<Vec<GeneratedText>>,
}

/// A generated text. Set `struct_size` before the call. Pointers are valid until the next call that modifies the
/// seq2seq generator.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_generated_text {
    /// `sizeof(siskin_generated_text)`.
    pub struct_size: usize,
    /// The text: UTF-8, not NUL-terminated.
    pub text: *const c_char,
    /// The length of `text` in bytes.
    pub length: usize,
    /// The token ids.
    pub tokens: *const u32,
    /// The number of elements of `tokens`.
    pub token_count: usize,
    /// The log-probability after the length penalty: higher is better.
    pub score: f64,
    /// `SISKIN_FINISH_REASON_EOS` or `SISKIN_FINISH_REASON_LENGTH`.
    pub finish_reason: siskin_finish_reason,
}

/// Creates a seq2seq generator. `max_sequences` is the maximum number of sequences that are generated at the same time,
/// counting every beam; 0 means 32. `context` is the maximum number of tokens in a generated text, including its
/// prompt; 0 means the model's context length, capped at 1024.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_seq2seq_new(
    model: *const siskin_model,
    max_sequences: usize,
    context: usize,
    out: *mut *mut siskin_seq2seq,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` is null or live; `out` is null or writable.
    unsafe {
        guard::create(out, || {
            let defaults = Seq2SeqOptions::default();
            let rows = if max_sequences == 0 { defaults.rows } else { max_sequences };
            let seq2seq =
                borrow(model, |model| Ok(model.seq2seq(Seq2SeqOptions { rows, context, ..defaults })?))?;
            let control = RunControl::new(seq2seq.cancel_handle());
            Ok((Seq2SeqState { seq2seq, generated: Vec::new() }, control))
        })
    }
}

/// Generates output for each input text. `siskin_seq2seq_text` returns the results. `options` may be null, for the
/// model's default options.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_seq2seq_generate(
    seq2seq: *mut siskin_seq2seq,
    texts: *const siskin_strings,
    options: *const siskin_seq2seq_options,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `seq2seq`, `texts` and `options` are null or live.
    unsafe {
        guard::exclusive(seq2seq, |state, control| {
            control.check()?;
            let options = match options.is_null() {
                true => Seq2SeqGenerateOptions::of(state.seq2seq.model())?,
                false => borrow(options, |options| Ok(options.clone()))?,
            };
            borrow(texts, |texts| {
                state.generated = state.seq2seq.generate(texts, &options)?;
                Ok(())
            })
        })
    }
}

/// Returns the number of texts that were generated for input `index`.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_seq2seq_text_count(
    seq2seq: *const siskin_seq2seq,
    index: usize,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `seq2seq` is null or live; `count` is null or writable.
    unsafe {
        guard::shared(seq2seq, |state| {
            let count = output("count", count)?;
            let none = || PendingError::argument("index", format!("there is no input {index}"));
            count.write(state.generated.get(index).ok_or_else(none)?.len());
            Ok(())
        })
    }
}

/// Returns generated text `rank` of input `index`, best first.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_seq2seq_text(
    seq2seq: *const siskin_seq2seq,
    index: usize,
    rank: usize,
    out: *mut siskin_generated_text,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `seq2seq` is null or live; `out` is null or a sized struct.
    unsafe {
        guard::shared(seq2seq, |state| {
            let result = SizedOutput::new("out", out)?;
            let none =
                || PendingError::argument("rank", format!("input {index} has no generated text {rank}"));
            let text = state.generated.get(index).and_then(|all| all.get(rank)).ok_or_else(none)?;
            result.write(&siskin_generated_text {
                struct_size: 0,
                text: text.text.as_ptr().cast(),
                length: text.text.len(),
                tokens: text.tokens.as_ptr(),
                token_count: text.tokens.len(),
                score: text.score,
                finish_reason: finish_reason(Some(text.finish_reason)),
            });
            Ok(())
        })
    }
}

/// Cancels the running call, or the next one: it returns `SISKIN_ERROR_CANCELED` within milliseconds.
/// For generic ONNX models, which run on the tract engine, cancellation takes effect only between texts.
///
/// Threads: any, at any time during the lifetime of the seq2seq generator.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_seq2seq_cancel(seq2seq: *const siskin_seq2seq) -> *mut siskin_error {
    // SAFETY: pointer contract: `seq2seq` is null or live.
    unsafe { cancel(seq2seq) }
}

/// Creates a handle that cancels calls on the seq2seq generator and may outlive it.
///
/// Threads: any, at any time during the lifetime of the seq2seq generator.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_seq2seq_cancel_handle(
    seq2seq: *const siskin_seq2seq,
    out: *mut *mut siskin_cancel_handle,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `seq2seq` is null or live; `out` is null or writable.
    unsafe { cancel_handle_of(seq2seq, out) }
}

/// Frees a seq2seq generator. Null is ignored. A generator that another call is using is not freed.
///
/// # Safety
/// The pointer contract of the crate, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_seq2seq_free(seq2seq: *mut siskin_seq2seq) {
    // SAFETY: pointer contract: `seq2seq` is null or live, and not used afterwards.
    unsafe { guard::free(seq2seq) }
}
