//! Generation options of writers.

use std::ffi::c_char;

use siskin::seq2seq::Seq2SeqGenerateOptions;

use crate::arguments::{text, text_or_none, whole};
use crate::encoder::long;
use crate::error::{Outcome, PendingError, siskin_error};
use crate::guard::{self, Handle, looking};
use crate::model::siskin_model;
use crate::sampler::siskin_sampler;

/// Generation options of a writer. Freed with `siskin_writing_free`.
pub struct siskin_writing {
    _opaque: [u8; 0],
}

impl Handle for siskin_writing {
    type Inner = Seq2SeqGenerateOptions;
    type Remote = ();
    const MAGIC: [u8; 8] = *b"SISKwing";
    const NAME: &'static str = "writing";
}

/// The number of beams of beam search; 1: greedy decoding or sampling with one beam.
pub const SISKIN_WRITING_BEAMS: u32 = 1;
/// The number of texts returned for each input, best first.
pub const SISKIN_WRITING_BEST: u32 = 2;
/// The maximum number of tokens of a text.
pub const SISKIN_WRITING_MAX_TOKENS: u32 = 3;
/// Length penalty: the exponent of a text's length by which its score is divided.
pub const SISKIN_WRITING_LENGTH_PENALTY: u32 = 4;
/// Diverse beam search: the number of groups that the beams are divided into.
pub const SISKIN_WRITING_GROUPS: u32 = 5;
/// Diverse beam search: the penalty of a group for tokens that other groups chose.
pub const SISKIN_WRITING_DIVERSITY: u32 = 6;

fn set(writing: &mut Seq2SeqGenerateOptions, option: u32, value: f64) -> Outcome {
    let search = &mut writing.search;
    match option {
        SISKIN_WRITING_BEAMS => search.beams = whole("value", value)?,
        SISKIN_WRITING_BEST => search.best = whole("value", value)?,
        SISKIN_WRITING_MAX_TOKENS => search.max_tokens = whole("value", value)?,
        SISKIN_WRITING_LENGTH_PENALTY => search.length_penalty = value as f32,
        SISKIN_WRITING_GROUPS => search.groups = whole("value", value)?,
        SISKIN_WRITING_DIVERSITY => search.diversity = value as f32,
        other => {
            return Err(PendingError::argument("option", format!("{other} is not one of SISKIN_WRITING_…")));
        }
    }
    Ok(())
}

/// Creates options from the model's own configuration.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writing_new(
    model: *const siskin_model,
    out: *mut *mut siskin_writing,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::made(out, || looking(model, |model| Ok((Seq2SeqGenerateOptions::of(model)?, ())))) }
}

/// Creates options for summarization.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writing_new_summary(
    model: *const siskin_model,
    out: *mut *mut siskin_writing,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::made(out, || looking(model, |model| Ok((Seq2SeqGenerateOptions::summary(model)?, ())))) }
}

/// Creates options for translation. Languages are given by the model's names for them, or by the language code that
/// such a name begins with; empty if the model supports a single language pair.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writing_new_translation(
    model: *const siskin_model,
    from: *const c_char,
    from_length: usize,
    to: *const c_char,
    to_length: usize,
    out: *mut *mut siskin_writing,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::made(out, || {
            let (from, to) = (text_or_none("from", from, from_length)?, text_or_none("to", to, to_length)?);
            looking(model, |model| {
                Ok((Seq2SeqGenerateOptions::translation(model, from.as_deref(), to.as_deref())?, ()))
            })
        })
    }
}

/// Sets one of `SISKIN_WRITING_…`. Values are validated when the options are used.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writing_set(
    writing: *mut siskin_writing,
    option: u32,
    value: f64,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::alone(writing, |writing, ()| set(writing, option, value)) }
}

/// Sets how texts that are too long for the model are handled: `SISKIN_LONG_…`. Windows end at sentence boundaries.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writing_set_long(
    writing: *mut siskin_writing,
    long: u32,
    overlap: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(writing, |writing, ()| {
            writing.overflow = self::long(long, overlap)?;
            Ok(())
        })
    }
}

/// Sets the prefix of each text, such as the name of a task.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writing_set_before(
    writing: *mut siskin_writing,
    before: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(writing, |writing, ()| {
            writing.prefix = text("before", before, length)?.to_owned();
            Ok(())
        })
    }
}

/// Sets the sampling options for a single beam, which are copied.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writing_set_sampler(
    writing: *mut siskin_writing,
    sampler: *const siskin_sampler,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(writing, |writing, ()| {
            writing.sampler = looking(sampler, |sampler| Ok(sampler.clone()))?;
            Ok(())
        })
    }
}

/// Frees it. Null is ignored.
///
/// # Safety
/// Pointers are valid, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writing_free(writing: *mut siskin_writing) {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::free(writing) }
}
