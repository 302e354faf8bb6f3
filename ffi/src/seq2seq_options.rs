//! Options for seq2seq generation.

use std::ffi::c_char;

use siskin::seq2seq::Seq2SeqGenerateOptions;

use crate::arguments::{integer, text, text_or_none};
use crate::encoder::{overflow_mode, siskin_overflow_mode};
use crate::error::{Outcome, PendingError, siskin_error};
use crate::guard::{self, Handle, borrow};
use crate::model::siskin_model;
use crate::sampler::siskin_sampler;

/// Options for seq2seq generation. Freed with `siskin_seq2seq_options_free`.
pub struct siskin_seq2seq_options {
    _opaque: [u8; 0],
}

impl Handle for siskin_seq2seq_options {
    type Inner = Seq2SeqGenerateOptions;
    type Control = ();
    const MAGIC: [u8; 8] = *b"SISKs2so";
    const NAME: &'static str = "options";
}

/// A seq2seq option.
pub type siskin_seq2seq_option = u32;
/// The number of beams in beam search; 1 means greedy decoding or sampling instead.
pub const SISKIN_SEQ2SEQ_BEAMS: siskin_seq2seq_option = 1;
/// The number of texts that are returned for each input, best first.
pub const SISKIN_SEQ2SEQ_N_BEST: siskin_seq2seq_option = 2;
/// The maximum number of tokens in a generated text.
pub const SISKIN_SEQ2SEQ_MAX_TOKENS: siskin_seq2seq_option = 3;
/// Length penalty: the exponent of the length of a text, by which its score is divided.
pub const SISKIN_SEQ2SEQ_LENGTH_PENALTY: siskin_seq2seq_option = 4;
/// Diverse beam search: the number of groups that the beams are divided into.
pub const SISKIN_SEQ2SEQ_BEAM_GROUPS: siskin_seq2seq_option = 5;
/// Diverse beam search: the penalty for tokens that earlier groups chose.
pub const SISKIN_SEQ2SEQ_DIVERSITY_PENALTY: siskin_seq2seq_option = 6;

fn set(options: &mut Seq2SeqGenerateOptions, option: siskin_seq2seq_option, value: f64) -> Outcome {
    let search = &mut options.search;
    match option {
        SISKIN_SEQ2SEQ_BEAMS => search.beams = integer("value", value)?,
        SISKIN_SEQ2SEQ_N_BEST => search.num_return_sequences = integer("value", value)?,
        SISKIN_SEQ2SEQ_MAX_TOKENS => search.max_tokens = integer("value", value)?,
        SISKIN_SEQ2SEQ_LENGTH_PENALTY => search.length_penalty = value as f32,
        SISKIN_SEQ2SEQ_BEAM_GROUPS => search.num_beam_groups = integer("value", value)?,
        SISKIN_SEQ2SEQ_DIVERSITY_PENALTY => search.diversity_penalty = value as f32,
        other => {
            return Err(PendingError::argument("option", format!("{other} is not a siskin_seq2seq_option")));
        }
    }
    Ok(())
}

/// Creates a model's default options.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_seq2seq_options_new(
    model: *const siskin_model,
    out: *mut *mut siskin_seq2seq_options,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` is null or live; `out` is null or writable.
    unsafe { guard::create(out, || borrow(model, |model| Ok((Seq2SeqGenerateOptions::of(model)?, ())))) }
}

/// Creates a model's options for summarization.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_seq2seq_options_new_summary(
    model: *const siskin_model,
    out: *mut *mut siskin_seq2seq_options,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` is null or live; `out` is null or writable.
    unsafe { guard::create(out, || borrow(model, |model| Ok((Seq2SeqGenerateOptions::summary(model)?, ())))) }
}

/// Creates a model's options for translation. A language is given by the model's name for it, such as `deu_Latn`, or by
/// the language code that this name begins with; empty if the model supports a single language pair.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_seq2seq_options_new_translation(
    model: *const siskin_model,
    source_language: *const c_char,
    source_language_length: usize,
    target_language: *const c_char,
    target_language_length: usize,
    out: *mut *mut siskin_seq2seq_options,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` is null or live; `source_language` is a text of `source_language_length` bytes;
    // `target_language` is a text of `target_language_length` bytes; `out` is null or writable.
    unsafe {
        guard::create(out, || {
            let source = text_or_none("source_language", source_language, source_language_length)?;
            let target = text_or_none("target_language", target_language, target_language_length)?;
            borrow(model, |model| {
                let (source, target) = (source.as_deref(), target.as_deref());
                Ok((Seq2SeqGenerateOptions::translation(model, source, target)?, ()))
            })
        })
    }
}

/// Sets an option. Counts take integers. Values are checked when the options are used.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_seq2seq_options_set(
    options: *mut siskin_seq2seq_options,
    option: siskin_seq2seq_option,
    value: f64,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe { guard::exclusive(options, |options, ()| set(options, option, value)) }
}

/// Sets what happens to texts that are longer than the model accepts. Windows end at sentence boundaries and overlap by
/// `overlap` tokens; other modes ignore `overlap`. Default: `SISKIN_OVERFLOW_ERROR`.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_seq2seq_options_set_overflow(
    options: *mut siskin_seq2seq_options,
    mode: siskin_overflow_mode,
    overlap: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            options.overflow = overflow_mode(mode, overlap)?;
            Ok(())
        })
    }
}

/// Sets the text before each input, such as `summarize: `.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_seq2seq_options_set_prefix(
    options: *mut siskin_seq2seq_options,
    prefix: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `prefix` is a string of `length` bytes.
    unsafe {
        guard::exclusive(options, |options, ()| {
            options.prefix = text("prefix", prefix, length)?.to_owned();
            Ok(())
        })
    }
}

/// Sets the sampling options, which are copied. Only used without beam search.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_seq2seq_options_set_sampler(
    options: *mut siskin_seq2seq_options,
    sampler: *const siskin_sampler,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` and `sampler` are null or live.
    unsafe {
        guard::exclusive(options, |options, ()| {
            options.sampler = borrow(sampler, |sampler| Ok(sampler.clone()))?;
            Ok(())
        })
    }
}

/// Frees options. Null is ignored.
///
/// # Safety
/// The pointer contract of the crate, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_seq2seq_options_free(options: *mut siskin_seq2seq_options) {
    // SAFETY: pointer contract: `options` is null or live, and not used afterwards.
    unsafe { guard::free(options) }
}
