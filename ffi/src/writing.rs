//! How writers write.

use std::ffi::c_char;

use siskin::seq2seq::Writing;

use crate::arguments::{text, text_or_none, whole};
use crate::encoder::long;
use crate::error::{Failure, Outcome, siskin_error};
use crate::guard::{self, Handle, looking};
use crate::model::siskin_model;
use crate::sampler::siskin_sampler;

/// How a writer writes. Freed with `siskin_writing_free`.
pub struct siskin_writing {
    _opaque: [u8; 0],
}

impl Handle for siskin_writing {
    type Inner = Writing;
    type Remote = ();
    const MAGIC: [u8; 8] = *b"SISKwing";
    const NAME: &'static str = "writing";
}

/// How many texts are begun at the same time, of which the likeliest are kept; 1: the likeliest token each time.
pub const SISKIN_WRITING_BEAMS: u32 = 1;
/// How many texts are given for each, the best first.
pub const SISKIN_WRITING_BEST: u32 = 2;
/// The most tokens of a text.
pub const SISKIN_WRITING_MAX_TOKENS: u32 = 3;
/// The power of a text's length that its score is divided by.
pub const SISKIN_WRITING_LENGTH_PENALTY: u32 = 4;
/// Into how many groups beams are divided, each of which looks for something else.
pub const SISKIN_WRITING_GROUPS: u32 = 5;
/// What groups lose for the same tokens.
pub const SISKIN_WRITING_DIVERSITY: u32 = 6;

fn set(writing: &mut Writing, option: u32, value: f64) -> Outcome {
    let search = &mut writing.search;
    match option {
        SISKIN_WRITING_BEAMS => search.beams = whole("value", value)?,
        SISKIN_WRITING_BEST => search.best = whole("value", value)?,
        SISKIN_WRITING_MAX_TOKENS => search.max_tokens = whole("value", value)?,
        SISKIN_WRITING_LENGTH_PENALTY => search.length_penalty = value as f32,
        SISKIN_WRITING_GROUPS => search.groups = whole("value", value)?,
        SISKIN_WRITING_DIVERSITY => search.diversity = value as f32,
        other => return Err(Failure::argument("option", format!("{other} is not one of SISKIN_WRITING_…"))),
    }
    Ok(())
}

/// Makes what the model's own configuration asks for.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writing_new(
    model: *const siskin_model,
    out: *mut *mut siskin_writing,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe { guard::made(out, || looking(model, |model| Ok((Writing::of(model)?, ())))) }
}

/// The same for a summary.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writing_new_summary(
    model: *const siskin_model,
    out: *mut *mut siskin_writing,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe { guard::made(out, || looking(model, |model| Ok((Writing::summary(model)?, ())))) }
}

/// The same for a translation. Languages are named as the model names them, or by the code with which its own names
/// begin; empty where the model knows one pair alone.
///
/// # Safety
/// Pointers are good.
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
    // SAFETY: the caller's promise.
    unsafe {
        guard::made(out, || {
            let (from, to) = (text_or_none("from", from, from_length)?, text_or_none("to", to, to_length)?);
            looking(model, |model| Ok((Writing::translation(model, from.as_deref(), to.as_deref())?, ())))
        })
    }
}

/// Sets one of `SISKIN_WRITING_…`. Ranges are looked at when it is used.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writing_set(
    writing: *mut siskin_writing,
    option: u32,
    value: f64,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe { guard::alone(writing, |writing, ()| set(writing, option, value)) }
}

/// What is done with texts that are too long for the model: `SISKIN_LONG_…`. Parts end where sentences do.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writing_set_long(
    writing: *mut siskin_writing,
    long: u32,
    overlap: usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(writing, |writing, ()| {
            writing.long = self::long(long, overlap)?;
            Ok(())
        })
    }
}

/// What stands before each text, such as the name of a task.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writing_set_before(
    writing: *mut siskin_writing,
    before: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(writing, |writing, ()| {
            writing.before = text("before", before, length)?.to_owned();
            Ok(())
        })
    }
}

/// How tokens are chosen where there is one beam, which is copied.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writing_set_sampler(
    writing: *mut siskin_writing,
    sampler: *const siskin_sampler,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(writing, |writing, ()| {
            writing.sampler = looking(sampler, |sampler| Ok(sampler.clone()))?;
            Ok(())
        })
    }
}

/// Frees it. Null is nothing.
///
/// # Safety
/// Pointers are good, and nobody uses it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_writing_free(writing: *mut siskin_writing) {
    // SAFETY: the caller's promise.
    unsafe { guard::free(writing) }
}
