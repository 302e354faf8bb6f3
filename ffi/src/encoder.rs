//! Encoders: many texts at once to vectors, classes, scores, labels and answers.

use std::ffi::c_char;

use siskin::encoder::{EmbedOptions, Long, Pooling};
use siskin::{Encoder, EncoderOptions};

use crate::arguments::{Frame, place, text};
use crate::error::{Failure, Outcome, siskin_error};
use crate::found::{Found, siskin_found};
use crate::guard::{self, Handle, looking};
use crate::model::siskin_model;
use crate::session_options::cache_type;
use crate::stop::{Remote, siskin_stop, stop_now, stop_of};
use crate::texts::siskin_texts;

/// Reads whole texts. One call at a time may be at work on it, from any thread. Freed with `siskin_encoder_free`.
pub struct siskin_encoder {
    _opaque: [u8; 0],
}

impl Handle for siskin_encoder {
    type Inner = State;
    type Remote = Remote;
    const MAGIC: [u8; 8] = *b"SISKenco";
    const NAME: &'static str = "encoder";
}

/// The encoder behind a handle, and what it found last.
pub(crate) struct State {
    encoder: Encoder,
    embed: EmbedOptions,
    long: Long,
    vectors: Vec<Vec<f32>>,
    found: Vec<Vec<Found>>,
}

/// What the model was made for.
pub const SISKIN_POOLING_AUTO: u32 = 0;
/// The mean over all tokens.
pub const SISKIN_POOLING_MEAN: u32 = 1;
/// The first token's.
pub const SISKIN_POOLING_FIRST: u32 = 2;
/// The last token's.
pub const SISKIN_POOLING_LAST: u32 = 3;
/// The largest of each column.
pub const SISKIN_POOLING_MAX: u32 = 4;
/// The mean with weights 1, 2, 3, …
pub const SISKIN_POOLING_WEIGHTED: u32 = 5;

/// A text with too many tokens is refused.
pub const SISKIN_LONG_REFUSE: u32 = 0;
/// It is read as far as the model reads.
pub const SISKIN_LONG_CUT: u32 = 1;
/// It is read in parts that share some tokens.
pub const SISKIN_LONG_PARTS: u32 = 2;

/// What is done with long texts, as a constant says it.
pub(crate) fn long(long: u32, overlap: usize) -> Outcome<Long> {
    match long {
        SISKIN_LONG_REFUSE => Ok(Long::Refuse),
        SISKIN_LONG_CUT => Ok(Long::Cut),
        SISKIN_LONG_PARTS => Ok(Long::Window { overlap }),
        other => Err(Failure::argument("long", format!("{other} is not one of SISKIN_LONG_…"))),
    }
}

/// Opens an encoder. `head` says whether the model's head is used, which classes, labels, scores and answers need and
/// vectors must not have. `batch` is the most tokens that go through the model at once, 0: 512; `cache` is one of
/// `SISKIN_CACHE_TYPE_…`.
///
/// Threads: any.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_new(
    model: *const siskin_model,
    head: bool,
    batch: usize,
    cache: u32,
    out: *mut *mut siskin_encoder,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::made(out, || {
            let usual = EncoderOptions::default();
            let batch = if batch == 0 { usual.batch } else { batch };
            let options = EncoderOptions { head, batch, cache: cache_type(cache)?, ..usual };
            looking(model, |model| {
                let encoder = model.encoder(options)?;
                let remote = Remote::new(encoder.stop_handle());
                let (embed, long) = (EmbedOptions::of(model)?, Long::Refuse);
                Ok((State { encoder, embed, long, vectors: Vec::new(), found: Vec::new() }, remote))
            })
        })
    }
}

/// What is done with texts that have more tokens than the model reads: `SISKIN_LONG_…`; parts share `overlap` tokens.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_set_long(
    encoder: *mut siskin_encoder,
    long: u32,
    overlap: usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(encoder, |state, _| {
            state.long = self::long(long, overlap)?;
            Ok(())
        })
    }
}

/// How hidden states become one vector: `SISKIN_POOLING_…`; whether it is brought to length one; and how many of its
/// columns are kept, for models that were trained to be cut off, 0: all.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_set_pooling(
    encoder: *mut siskin_encoder,
    pooling: u32,
    normalise: bool,
    columns: usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
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
                    return Err(Failure::argument(
                        "pooling",
                        format!("{other} is not one of SISKIN_POOLING_…"),
                    ));
                }
            };
            state.embed = EmbedOptions { pooling, normalise, columns, ..state.embed };
            Ok(())
        })
    }
}

/// Works on texts with an encoder.
///
/// # Safety
/// As for every function of the header.
unsafe fn with_texts(
    encoder: *mut siskin_encoder,
    texts: *const siskin_texts,
    work: impl FnOnce(&mut State, &[String]) -> Outcome,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(encoder, |state, remote| {
            remote.check()?;
            looking(texts, |texts| work(state, texts))
        })
    }
}

/// Makes a vector of each text; `siskin_encoder_vector` gives them.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_embed(
    encoder: *mut siskin_encoder,
    texts: *const siskin_texts,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        with_texts(encoder, texts, |state, texts| {
            let options = EmbedOptions { long: state.long, ..state.embed };
            state.vectors = state.encoder.embed(texts, &options)?;
            state.found.clear();
            Ok(())
        })
    }
}

/// The vector of text `index`, good until the next call that changes the encoder.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_vector(
    encoder: *const siskin_encoder,
    index: usize,
    values: *mut *const f32,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::shared(encoder, |state| {
            let (values, count) = (place("values", values)?, place("count", count)?);
            let none =
                || Failure::argument("index", format!("there is no vector {index}; embed the texts first"));
            let vector = state.vectors.get(index).ok_or_else(none)?;
            values.write(vector.as_ptr());
            count.write(vector.len());
            Ok(())
        })
    }
}

/// Tells the classes of each text, the likeliest first; `siskin_encoder_found` gives them.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_classify(
    encoder: *mut siskin_encoder,
    texts: *const siskin_texts,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        with_texts(encoder, texts, |state, texts| {
            let classes = state.encoder.classify(texts, state.long)?;
            state.keep(classes.into_iter().map(|all| {
                all.into_iter().map(|class| Found {
                    text: class.label,
                    score: class.probability,
                    ..Found::default()
                })
            }));
            Ok(())
        })
    }
}

/// Scores how well each text goes with a question: only the order means something. `siskin_encoder_found` gives the
/// scores, in the order of the texts. A text that is too long is refused, or cut where `siskin_encoder_set_long` says
/// so; parts cannot be scored.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_rerank(
    encoder: *mut siskin_encoder,
    question: *const c_char,
    length: usize,
    texts: *const siskin_texts,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        with_texts(encoder, texts, |state, texts| {
            let scores = state.encoder.rerank(text("question", question, length)?, texts, state.long)?;
            state.keep(scores.into_iter().map(|score| [Found { score, ..Found::default() }]));
            Ok(())
        })
    }
}

/// Finds the runs of each text that have a label, such as names; `siskin_encoder_found` gives them.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_tag(
    encoder: *mut siskin_encoder,
    texts: *const siskin_texts,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        with_texts(encoder, texts, |state, texts| {
            let entities = state.encoder.tag(texts, state.long)?;
            state.keep(entities.into_iter().map(|all| {
                all.into_iter().map(|run| Found {
                    text: run.label,
                    score: run.probability,
                    span: (run.start, run.end),
                    ..Found::default()
                })
            }));
            Ok(())
        })
    }
}

/// Finds the likeliest place of each text that answers a question; `siskin_encoder_found` gives it.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_answer(
    encoder: *mut siskin_encoder,
    question: *const c_char,
    length: usize,
    texts: *const siskin_texts,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        with_texts(encoder, texts, |state, texts| {
            let question = text("question", question, length)?;
            let mut answers = Vec::with_capacity(texts.len());
            for (index, text) in texts.iter().enumerate() {
                let answer = state.encoder.answer(question, text, state.long);
                let answer = answer.map_err(|error| error.within(&format!("text {index}")))?;
                let words = text.get(answer.start..answer.end).unwrap_or_default().to_owned();
                let span = (answer.start, answer.end);
                answers.push([Found { text: words, score: answer.probability, span, ..Found::default() }]);
            }
            state.keep(answers.into_iter());
            Ok(())
        })
    }
}

/// Finds the `count` likeliest tokens for each masked place of a text; `siskin_encoder_found` gives them, with the
/// place in the place of the text's number, and `siskin_encoder_found_places` says how many places there are.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_fill_mask(
    encoder: *mut siskin_encoder,
    text: *const c_char,
    length: usize,
    count: usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(encoder, |state, remote| {
            remote.check()?;
            let places = state.encoder.fill_mask(self::text("text", text, length)?, count)?;
            state.keep(places.into_iter().map(|all| {
                all.into_iter().map(|filling| Found {
                    text: filling.text,
                    score: filling.probability,
                    token: Some(filling.id),
                    ..Found::default()
                })
            }));
            Ok(())
        })
    }
}

impl State {
    fn keep(&mut self, found: impl Iterator<Item = impl IntoIterator<Item = Found>>) {
        self.vectors.clear();
        self.found = found.map(|all| all.into_iter().collect()).collect();
    }
}

/// How many texts something was looked for in; after `siskin_encoder_fill_mask`, how many masked places the text had.
/// After `siskin_encoder_embed` it is 0.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_found_places(
    encoder: *const siskin_encoder,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::shared(encoder, |state| {
            place("count", count)?.write(state.found.len());
            Ok(())
        })
    }
}

/// How many things were found for text `index`.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_found_count(
    encoder: *const siskin_encoder,
    index: usize,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::shared(encoder, |state| {
            let count = place("count", count)?;
            let none = || Failure::argument("index", format!("there is no text {index}"));
            count.write(state.found.get(index).ok_or_else(none)?.len());
            Ok(())
        })
    }
}

/// Thing `rank` of what was found for text `index`. Its text is good until the next call that changes the encoder.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_found(
    encoder: *const siskin_encoder,
    index: usize,
    rank: usize,
    out: *mut siskin_found,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::shared(encoder, |state| {
            let frame = Frame::new("out", out)?;
            let none =
                || Failure::argument("rank", format!("nothing of rank {rank} was found for text {index}"));
            let found = state.found.get(index).and_then(|all| all.get(rank)).ok_or_else(none)?;
            frame.fill(&found.view());
            Ok(())
        })
    }
}

/// Stops the running call, or the next one, within milliseconds: it gives `SISKIN_ERROR_CANCELLED`.
///
/// Threads: any, at any time while the encoder is there.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_stop(encoder: *const siskin_encoder) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe { stop_now(encoder) }
}

/// Makes the means to stop the encoder, which may outlive it.
///
/// Threads: any, at any time while the encoder is there.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_stopper(
    encoder: *const siskin_encoder,
    out: *mut *mut siskin_stop,
) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe { stop_of(encoder, out) }
}

/// Frees an encoder. Null is nothing. One that a call is at work on stays as it is.
///
/// # Safety
/// Pointers are good, and nobody uses it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_free(encoder: *mut siskin_encoder) {
    // SAFETY: the caller's promise.
    unsafe { guard::free(encoder) }
}
