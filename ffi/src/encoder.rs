//! Encoders: embeddings, classes, scores, labels and answers for batches of texts.

use std::ffi::c_char;

use siskin::encoder::{EmbedOptions, OverflowMode, Pooling};
use siskin::{Encoder, EncoderOptions};

use crate::arguments::{SizedOutput, place, text};
use crate::error::{Outcome, PendingError, siskin_error};
use crate::guard::{self, Handle, looking};
use crate::model::siskin_model;
use crate::predictions::{OwnedMatch, siskin_found};
use crate::session_options::cache_type;
use crate::stop::{Remote, siskin_stop, stop_now, stop_of};
use crate::strings::siskin_texts;

/// Encodes whole texts. One call at a time may use it, from any thread. Freed with `siskin_encoder_free`.
pub struct siskin_encoder {
    _opaque: [u8; 0],
}

impl Handle for siskin_encoder {
    type Inner = EncoderState;
    type Remote = Remote;
    const MAGIC: [u8; 8] = *b"SISKenco";
    const NAME: &'static str = "encoder";
}

/// The encoder behind a handle, and its last results.
pub(crate) struct EncoderState {
    encoder: Encoder,
    embed: EmbedOptions,
    long: OverflowMode,
    vectors: Vec<Vec<f32>>,
    found: Vec<Vec<OwnedMatch>>,
}

/// The model's own pooling.
pub const SISKIN_POOLING_AUTO: u32 = 0;
/// The mean over all tokens.
pub const SISKIN_POOLING_MEAN: u32 = 1;
/// The first token (CLS).
pub const SISKIN_POOLING_FIRST: u32 = 2;
/// The last token.
pub const SISKIN_POOLING_LAST: u32 = 3;
/// The maximum of each column.
pub const SISKIN_POOLING_MAX: u32 = 4;
/// The mean, weighted by position: 1, 2, 3, …
pub const SISKIN_POOLING_WEIGHTED: u32 = 5;

/// A text with too many tokens is rejected.
pub const SISKIN_LONG_REFUSE: u32 = 0;
/// A text is truncated to the model's maximum length.
pub const SISKIN_LONG_CUT: u32 = 1;
/// A text is split into overlapping windows.
pub const SISKIN_LONG_PARTS: u32 = 2;

/// Converts a `SISKIN_LONG_…` constant.
pub(crate) fn long(long: u32, overlap: usize) -> Outcome<OverflowMode> {
    match long {
        SISKIN_LONG_REFUSE => Ok(OverflowMode::Error),
        SISKIN_LONG_CUT => Ok(OverflowMode::Truncate),
        SISKIN_LONG_PARTS => Ok(OverflowMode::Window { overlap }),
        other => Err(PendingError::argument("long", format!("{other} is not one of SISKIN_LONG_…"))),
    }
}

/// Creates an encoder. `head` enables the model's head: required for classes, labels, scores and answers, not allowed
/// for embeddings. `batch` is the maximum number of tokens of one forward pass, 0: 512; `cache` is one of
/// `SISKIN_CACHE_TYPE_…`.
///
/// Threads: any.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_new(
    model: *const siskin_model,
    head: bool,
    batch: usize,
    cache: u32,
    out: *mut *mut siskin_encoder,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::made(out, || {
            let usual = EncoderOptions::default();
            let batch = if batch == 0 { usual.batch } else { batch };
            let options = EncoderOptions { head, batch, cache: cache_type(cache)?, ..usual };
            looking(model, |model| {
                let encoder = model.encoder(options)?;
                let remote = Remote::new(encoder.cancel_handle());
                let (embed, long) = (EmbedOptions::of(model)?, OverflowMode::Error);
                Ok((EncoderState { encoder, embed, long, vectors: Vec::new(), found: Vec::new() }, remote))
            })
        })
    }
}

/// Sets how texts with more tokens than the model's maximum are handled: `SISKIN_LONG_…`; windows overlap by `overlap`
/// tokens.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_set_long(
    encoder: *mut siskin_encoder,
    long: u32,
    overlap: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(encoder, |state, _| {
            state.long = self::long(long, overlap)?;
            Ok(())
        })
    }
}

/// Sets how hidden states are pooled to one vector: `SISKIN_POOLING_…`; whether it is normalized to unit length; and
/// how many of its dimensions are kept, for Matryoshka models, 0: all.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_set_pooling(
    encoder: *mut siskin_encoder,
    pooling: u32,
    normalize: bool,
    columns: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(encoder, |state, _| {
            let pooling = match pooling {
                SISKIN_POOLING_AUTO => EmbedOptions::of(state.encoder.model())?.pooling,
                SISKIN_POOLING_MEAN => Pooling::Mean,
                SISKIN_POOLING_FIRST => Pooling::First,
                SISKIN_POOLING_LAST => Pooling::Last,
                SISKIN_POOLING_MAX => Pooling::Max,
                SISKIN_POOLING_WEIGHTED => Pooling::Weighted,
                other => {
                    return Err(PendingError::argument(
                        "pooling",
                        format!("{other} is not one of SISKIN_POOLING_…"),
                    ));
                }
            };
            state.embed = EmbedOptions { pooling, normalize, columns, ..state.embed };
            Ok(())
        })
    }
}

/// Runs `work` with an encoder and a batch of texts.
///
/// # Safety
/// As for every function of the header.
unsafe fn with_texts(
    encoder: *mut siskin_encoder,
    texts: *const siskin_texts,
    work: impl FnOnce(&mut EncoderState, &[String]) -> Outcome,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(encoder, |state, remote| {
            remote.check()?;
            looking(texts, |texts| work(state, texts))
        })
    }
}

/// Computes the embedding of each text; read the results with `siskin_encoder_vector`.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_embed(
    encoder: *mut siskin_encoder,
    texts: *const siskin_texts,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        with_texts(encoder, texts, |state, texts| {
            let options = EmbedOptions { overflow: state.long, ..state.embed };
            state.vectors = state.encoder.embed(texts, &options)?;
            state.found.clear();
            Ok(())
        })
    }
}

/// Returns the embedding of text `index`, valid until the next call that changes the encoder.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_vector(
    encoder: *const siskin_encoder,
    index: usize,
    values: *mut *const f32,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(encoder, |state| {
            let (values, count) = (place("values", values)?, place("count", count)?);
            let none = || {
                PendingError::argument("index", format!("there is no vector {index}; embed the texts first"))
            };
            let vector = state.vectors.get(index).ok_or_else(none)?;
            values.write(vector.as_ptr());
            count.write(vector.len());
            Ok(())
        })
    }
}

/// Classifies each text, with the most probable class first; read the results with `siskin_encoder_found`.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_classify(
    encoder: *mut siskin_encoder,
    texts: *const siskin_texts,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        with_texts(encoder, texts, |state, texts| {
            let classes = state.encoder.classify(texts, state.long)?;
            state.keep(classes.into_iter().map(|all| {
                all.into_iter().map(|class| OwnedMatch {
                    text: class.label,
                    score: class.probability,
                    ..OwnedMatch::default()
                })
            }));
            Ok(())
        })
    }
}

/// Scores the relevance of each text to a query with a cross-encoder: only the order is meaningful.
/// `siskin_encoder_found` returns the scores, in the order of the texts. A text that is too long is rejected, or
/// truncated if `siskin_encoder_set_long` says so; pairs cannot be scored in windows.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_rerank(
    encoder: *mut siskin_encoder,
    question: *const c_char,
    length: usize,
    texts: *const siskin_texts,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        with_texts(encoder, texts, |state, texts| {
            let scores = state.encoder.rerank(text("question", question, length)?, texts, state.long)?;
            state.keep(scores.into_iter().map(|score| [OwnedMatch { score, ..OwnedMatch::default() }]));
            Ok(())
        })
    }
}

/// Finds the labeled spans of each text, such as named entities; read the results with `siskin_encoder_found`.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_tag(
    encoder: *mut siskin_encoder,
    texts: *const siskin_texts,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        with_texts(encoder, texts, |state, texts| {
            let entities = state.encoder.tag(texts, state.long)?;
            state.keep(entities.into_iter().map(|all| {
                all.into_iter().map(|run| OwnedMatch {
                    text: run.label,
                    score: run.probability,
                    span: (run.start, run.end),
                    ..OwnedMatch::default()
                })
            }));
            Ok(())
        })
    }
}

/// Finds the most probable span of each text that answers a question (extractive question answering); read the results
/// with `siskin_encoder_found`.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_answer(
    encoder: *mut siskin_encoder,
    question: *const c_char,
    length: usize,
    texts: *const siskin_texts,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        with_texts(encoder, texts, |state, texts| {
            let question = text("question", question, length)?;
            let mut answers = Vec::with_capacity(texts.len());
            for (index, text) in texts.iter().enumerate() {
                let answer = state.encoder.answer(question, text, state.long);
                let answer = answer.map_err(|error| error.within(&format!("text {index}")))?;
                let words = text.get(answer.start..answer.end).unwrap_or_default().to_owned();
                let span = (answer.start, answer.end);
                answers.push([OwnedMatch {
                    text: words,
                    score: answer.probability,
                    span,
                    ..OwnedMatch::default()
                }]);
            }
            state.keep(answers.into_iter());
            Ok(())
        })
    }
}

/// Predicts the `count` most probable tokens for each mask token of a text. Read the results with
/// `siskin_encoder_found`, whose text index is the index of the mask; `siskin_encoder_found_places` returns the number
/// of masks.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_fill_mask(
    encoder: *mut siskin_encoder,
    text: *const c_char,
    length: usize,
    count: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(encoder, |state, remote| {
            remote.check()?;
            let places = state.encoder.fill_mask(self::text("text", text, length)?, count)?;
            state.keep(places.into_iter().map(|all| {
                all.into_iter().map(|filling| OwnedMatch {
                    text: filling.text,
                    score: filling.probability,
                    token: Some(filling.id),
                    ..OwnedMatch::default()
                })
            }));
            Ok(())
        })
    }
}

impl EncoderState {
    fn keep(&mut self, found: impl Iterator<Item = impl IntoIterator<Item = OwnedMatch>>) {
        self.vectors.clear();
        self.found = found.map(|all| all.into_iter().collect()).collect();
    }
}

/// Returns the number of texts that the last call has results for; after `siskin_encoder_fill_mask`, the number of
/// masks in the text. 0 after `siskin_encoder_embed`.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_found_places(
    encoder: *const siskin_encoder,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(encoder, |state| {
            place("count", count)?.write(state.found.len());
            Ok(())
        })
    }
}

/// Returns the number of results for text `index`.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_found_count(
    encoder: *const siskin_encoder,
    index: usize,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(encoder, |state| {
            let count = place("count", count)?;
            let none = || PendingError::argument("index", format!("text {index} is out of range"));
            count.write(state.found.get(index).ok_or_else(none)?.len());
            Ok(())
        })
    }
}

/// Returns result `rank` of text `index`. Its text is valid until the next call that changes the encoder.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_found(
    encoder: *const siskin_encoder,
    index: usize,
    rank: usize,
    out: *mut siskin_found,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(encoder, |state| {
            let frame = SizedOutput::new("out", out)?;
            let none = || {
                PendingError::argument("rank", format!("nothing of rank {rank} was found for text {index}"))
            };
            let found = state.found.get(index).and_then(|all| all.get(rank)).ok_or_else(none)?;
            frame.fill(&found.view());
            Ok(())
        })
    }
}

/// Stops the running call, or the next one, within milliseconds: it returns `SISKIN_ERROR_CANCELLED`.
///
/// Threads: any, at any time during the encoder's lifetime.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_stop(encoder: *const siskin_encoder) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { stop_now(encoder) }
}

/// Creates a handle that stops the encoder and may outlive it.
///
/// Threads: any, at any time during the encoder's lifetime.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_stopper(
    encoder: *const siskin_encoder,
    out: *mut *mut siskin_stop,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { stop_of(encoder, out) }
}

/// Frees an encoder. Null is ignored. An encoder that a call is using is not freed.
///
/// # Safety
/// Pointers are valid, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_free(encoder: *mut siskin_encoder) {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::free(encoder) }
}
