//! Encoders: embeddings and predictions for batches of texts.

use std::ffi::c_char;

use siskin::encoder::{EmbedOptions, ExitCriterion, OverflowMode, Pooling};
use siskin::{Encoder, EncoderOptions};

use crate::arguments::{SizedOutput, output, text};
use crate::cancel_handle::{RunControl, cancel, cancel_handle_of, siskin_cancel_handle};
use crate::error::{Outcome, PendingError, siskin_error};
use crate::guard::{self, Handle, borrow};
use crate::model::siskin_model;
use crate::predictions::{OwnedPrediction, siskin_prediction};
use crate::session_options::{kv_cache_type, siskin_kv_cache_type};
use crate::strings::siskin_strings;

/// Computes embeddings and predictions for whole texts. One call at a time may use it, from any thread. Freed with
/// `siskin_encoder_free`.
pub struct siskin_encoder {
    _opaque: [u8; 0],
}

impl Handle for siskin_encoder {
    type Inner = EncoderState;
    type Control = RunControl;
    const MAGIC: [u8; 8] = *b"SISKenco";
    const NAME: &'static str = "encoder";
}

/// The encoder behind a handle, and its last results.
pub(crate) struct EncoderState {
    encoder: Encoder,
    embed: EmbedOptions,
    overflow: OverflowMode,
    embeddings: Vec<Vec<f32>>,
    predictions: Vec<Vec<OwnedPrediction>>,
}

/// How the hidden states of a text are pooled into its embedding.
pub type siskin_pooling = u32;
/// The model's default.
pub const SISKIN_POOLING_AUTO: siskin_pooling = 0;
/// The mean over all tokens.
pub const SISKIN_POOLING_MEAN: siskin_pooling = 1;
/// The first token (CLS).
pub const SISKIN_POOLING_FIRST: siskin_pooling = 2;
/// The last token.
pub const SISKIN_POOLING_LAST: siskin_pooling = 3;
/// The maximum of each dimension.
pub const SISKIN_POOLING_MAX: siskin_pooling = 4;
/// The mean, weighted by position: 1, 2, 3, …
pub const SISKIN_POOLING_WEIGHTED: siskin_pooling = 5;

/// When a text has passed enough layers to be classified (early exit).
pub type siskin_exit_criterion = u32;
/// After all layers.
pub const SISKIN_EXIT_NEVER: siskin_exit_criterion = 0;
/// When the most likely class has at least this probability.
pub const SISKIN_EXIT_CONFIDENCE: siskin_exit_criterion = 1;
/// When the entropy of the classes is below this, in nats (DeeBERT).
pub const SISKIN_EXIT_ENTROPY: siskin_exit_criterion = 2;
/// When this many consecutive heads agree with the one before them (PABEE).
pub const SISKIN_EXIT_PATIENCE: siskin_exit_criterion = 3;

/// What happens to texts that are longer than the model accepts.
pub type siskin_overflow_mode = u32;
/// The call returns `SISKIN_ERROR_TOO_LONG`.
pub const SISKIN_OVERFLOW_ERROR: siskin_overflow_mode = 0;
/// They are truncated.
pub const SISKIN_OVERFLOW_TRUNCATE: siskin_overflow_mode = 1;
/// They are split into overlapping windows. Not supported by calls that need one result per text.
pub const SISKIN_OVERFLOW_WINDOW: siskin_overflow_mode = 2;

/// Converts an overflow mode.
pub(crate) fn overflow_mode(mode: siskin_overflow_mode, overlap: usize) -> Outcome<OverflowMode> {
    match mode {
        SISKIN_OVERFLOW_ERROR => Ok(OverflowMode::Error),
        SISKIN_OVERFLOW_TRUNCATE => Ok(OverflowMode::Truncate),
        SISKIN_OVERFLOW_WINDOW => Ok(OverflowMode::Window { overlap }),
        other => Err(PendingError::argument("mode", format!("{other} is not a siskin_overflow_mode"))),
    }
}

/// Creates an encoder. `use_head` adds the model's task head: it is required for predictions, and must be off for
/// embeddings. `max_batch_tokens` is the maximum number of tokens in a forward pass; 0 means 512.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_new(
    model: *const siskin_model,
    use_head: bool,
    max_batch_tokens: usize,
    kv_cache_type: siskin_kv_cache_type,
    out: *mut *mut siskin_encoder,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` is null or live; `out` is null or writable.
    unsafe {
        guard::create(out, || {
            let options = encoder_options(use_head, max_batch_tokens, kv_cache_type)?;
            borrow(model, |model| EncoderState::create(model.encoder(options)?))
        })
    }
}

/// Returns the options of an encoder.
pub(crate) fn encoder_options(
    head: bool,
    max_batch_tokens: usize,
    kv_cache_type: siskin_kv_cache_type,
) -> Outcome<EncoderOptions> {
    let defaults = EncoderOptions::default();
    let batch = if max_batch_tokens == 0 { defaults.batch } else { max_batch_tokens };
    let cache = self::kv_cache_type(kv_cache_type)?;
    Ok(EncoderOptions { head, batch, cache, ..defaults })
}

impl EncoderState {
    /// Returns the state of a new encoder.
    pub(crate) fn create(encoder: Encoder) -> Outcome<(Self, RunControl)> {
        let control = RunControl::new(encoder.cancel_handle());
        let (embed, overflow) = (EmbedOptions::of(encoder.model())?, OverflowMode::Error);
        let (embeddings, predictions) = (Vec::new(), Vec::new());
        Ok((Self { encoder, embed, overflow, embeddings, predictions }, control))
    }
}

/// Sets what happens to texts that are longer than the model accepts. Windows overlap by `overlap` tokens; other modes
/// ignore `overlap`. Default: `SISKIN_OVERFLOW_ERROR`.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_set_overflow(
    encoder: *mut siskin_encoder,
    mode: siskin_overflow_mode,
    overlap: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` is null or live.
    unsafe {
        guard::exclusive(encoder, |state, _| {
            state.overflow = overflow_mode(mode, overlap)?;
            Ok(())
        })
    }
}

/// Sets how embeddings are computed: the pooling, whether they are normalized to unit length, and for Matryoshka models
/// the number of leading dimensions to keep; 0 means all.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_set_pooling(
    encoder: *mut siskin_encoder,
    pooling: siskin_pooling,
    normalize: bool,
    dimensions: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` is null or live.
    unsafe {
        guard::exclusive(encoder, |state, _| {
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
                        format!("{other} is not a siskin_pooling"),
                    ));
                }
            };
            state.embed = EmbedOptions { pooling, normalize, dimensions, ..state.embed };
            Ok(())
        })
    }
}

/// Sets when texts that are classified or ranked exit the model before its last layer. Returns
/// `SISKIN_ERROR_UNSUPPORTED` if it has no classification heads on intermediate layers. `threshold` is what `criterion` compares
/// with: a probability, an entropy, or a number of heads. Default: `SISKIN_EXIT_NEVER`, which ignores `threshold`.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_set_early_exit(
    encoder: *mut siskin_encoder,
    criterion: siskin_exit_criterion,
    threshold: f32,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` is null or live.
    unsafe {
        guard::exclusive(encoder, |state, _| {
            let criterion = match criterion {
                SISKIN_EXIT_NEVER => None,
                SISKIN_EXIT_CONFIDENCE => Some(ExitCriterion::Confidence(threshold)),
                SISKIN_EXIT_ENTROPY => Some(ExitCriterion::Entropy(threshold)),
                SISKIN_EXIT_PATIENCE if threshold >= 1.0 && threshold.fract() == 0.0 => {
                    Some(ExitCriterion::Patience(threshold as usize))
                }
                SISKIN_EXIT_PATIENCE => {
                    let message = format!("{threshold} is not a number of heads, of at least 1");
                    return Err(PendingError::argument("threshold", message));
                }
                other => {
                    let message = format!("{other} is not a siskin_exit_criterion");
                    return Err(PendingError::argument("criterion", message));
                }
            };
            Ok(state.encoder.set_early_exit(criterion)?)
        })
    }
}

/// Returns how many layers text `index` of the last call that classified or ranked texts with early exit passed. Returns
/// `SISKIN_ERROR_ARGUMENT` if there is no such text, or no such call since early exit was set.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_layers(
    encoder: *const siskin_encoder,
    index: usize,
    layers: *mut usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` is null or live; `layers` is null or writable.
    unsafe {
        guard::shared(encoder, |state| {
            let layers = output("layers", layers)?;
            let none =
                || PendingError::argument("index", format!("no text {index} was classified with early exit"));
            layers.write(*state.encoder.layers().get(index).ok_or_else(none)?);
            Ok(())
        })
    }
}

/// Runs `work` with an encoder and a batch of texts.
///
/// # Safety
/// The pointer contract of the crate.
unsafe fn with_texts(
    encoder: *mut siskin_encoder,
    texts: *const siskin_strings,
    work: impl FnOnce(&mut EncoderState, &[String]) -> Outcome,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` and `texts` are null or live.
    unsafe {
        guard::exclusive(encoder, |state, control| {
            control.check()?;
            borrow(texts, |texts| work(state, texts))
        })
    }
}

/// Computes the embedding of each text. `siskin_encoder_embedding` returns the results.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_embed(
    encoder: *mut siskin_encoder,
    texts: *const siskin_strings,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` and `texts` are null or live.
    unsafe {
        with_texts(encoder, texts, |state, texts| {
            let options = EmbedOptions { overflow: state.overflow, ..state.embed };
            state.embeddings = state.encoder.embed(texts, &options)?;
            state.predictions.clear();
            Ok(())
        })
    }
}

/// Returns the embedding of text `index`. It is valid until the next call that modifies the encoder.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_embedding(
    encoder: *const siskin_encoder,
    index: usize,
    values: *mut *const f32,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` is null or live; `values` and `count` are disjoint outputs.
    unsafe {
        guard::shared(encoder, |state| {
            let (values, count) = (output("values", values)?, output("count", count)?);
            let none = || {
                PendingError::argument(
                    "index",
                    format!("there is no embedding {index}; embed the texts first"),
                )
            };
            let vector = state.embeddings.get(index).ok_or_else(none)?;
            values.write(vector.as_ptr());
            count.write(vector.len());
            Ok(())
        })
    }
}

/// Classifies each text. `siskin_encoder_prediction` returns its classes, most probable first.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_classify(
    encoder: *mut siskin_encoder,
    texts: *const siskin_strings,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` and `texts` are null or live.
    unsafe {
        with_texts(encoder, texts, |state, texts| {
            let classes = state.encoder.classify(texts, state.overflow)?;
            state.keep(classes.into_iter().map(|all| {
                all.into_iter().map(|class| OwnedPrediction {
                    text: class.label,
                    score: class.probability,
                    ..OwnedPrediction::default()
                })
            }));
            Ok(())
        })
    }
}

/// Scores the relevance of each text to a query with a cross-encoder. `siskin_encoder_prediction` returns the
/// scores, in the order of the texts; only their order is meaningful. `SISKIN_OVERFLOW_WINDOW` is not
/// supported.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_rerank(
    encoder: *mut siskin_encoder,
    query: *const c_char,
    query_length: usize,
    texts: *const siskin_strings,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` and `texts` are null or live; `query` is a text of `query_length` bytes.
    unsafe {
        with_texts(encoder, texts, |state, texts| {
            let scores = state.encoder.rerank(text("query", query, query_length)?, texts, state.overflow)?;
            state.keep(
                scores.into_iter().map(|score| [OwnedPrediction { score, ..OwnedPrediction::default() }]),
            );
            Ok(())
        })
    }
}

/// Finds the labeled spans of each text, such as named entities. `siskin_encoder_prediction` returns the spans.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_tag(
    encoder: *mut siskin_encoder,
    texts: *const siskin_strings,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` and `texts` are null or live.
    unsafe {
        with_texts(encoder, texts, |state, texts| {
            let entities = state.encoder.tag(texts, state.overflow)?;
            state.keep(entities.into_iter().map(|all| {
                all.into_iter().map(|entity| OwnedPrediction {
                    text: entity.label,
                    score: entity.probability,
                    span: (entity.start, entity.end),
                    ..OwnedPrediction::default()
                })
            }));
            Ok(())
        })
    }
}

/// Finds the most probable answer to a question in each text: extractive question answering.
/// `siskin_encoder_prediction` returns the spans.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_answer(
    encoder: *mut siskin_encoder,
    question: *const c_char,
    question_length: usize,
    texts: *const siskin_strings,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` and `texts` are null or live; `question` is a text of `question_length`
    // bytes.
    unsafe {
        with_texts(encoder, texts, |state, texts| {
            let question = text("question", question, question_length)?;
            let mut answers = Vec::with_capacity(texts.len());
            for (index, text) in texts.iter().enumerate() {
                let answer = state.encoder.answer(question, text, state.overflow);
                let answer = answer.map_err(|error| error.within(&format!("text {index}")))?;
                answers.push([OwnedPrediction {
                    text: text.get(answer.start..answer.end).unwrap_or_default().to_owned(),
                    score: answer.probability,
                    span: (answer.start, answer.end),
                    ..OwnedPrediction::default()
                }]);
            }
            state.keep(answers.into_iter());
            Ok(())
        })
    }
}

/// Predicts the `count` most probable tokens for each mask token of a text. `siskin_encoder_prediction` returns the
/// tokens; its `index` is that of the mask, and `siskin_encoder_result_count` returns the number of masks.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_fill_mask(
    encoder: *mut siskin_encoder,
    text: *const c_char,
    length: usize,
    count: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` is null or live; `text` is a string of `length` bytes.
    unsafe {
        guard::exclusive(encoder, |state, control| {
            control.check()?;
            let masks = state.encoder.fill_mask(self::text("text", text, length)?, count)?;
            state.keep(masks.into_iter().map(|all| {
                all.into_iter().map(|token| OwnedPrediction {
                    text: token.text,
                    score: token.probability,
                    token: Some(token.id),
                    ..OwnedPrediction::default()
                })
            }));
            Ok(())
        })
    }
}

impl EncoderState {
    fn keep(&mut self, predictions: impl Iterator<Item = impl IntoIterator<Item = OwnedPrediction>>) {
        self.embeddings.clear();
        self.predictions = predictions.map(|all| all.into_iter().collect()).collect();
    }
}

/// Returns the number of results of the last call: one for each text, or after `siskin_encoder_fill_mask` one for each
/// mask; 0 after `siskin_encoder_embed`.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_result_count(
    encoder: *const siskin_encoder,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` is null or live; `count` is null or writable.
    unsafe {
        guard::shared(encoder, |state| {
            output("count", count)?.write(state.predictions.len());
            Ok(())
        })
    }
}

/// Returns the number of predictions of result `index`.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_prediction_count(
    encoder: *const siskin_encoder,
    index: usize,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` is null or live; `count` is null or writable.
    unsafe {
        guard::shared(encoder, |state| {
            let count = output("count", count)?;
            let none = || PendingError::argument("index", format!("there is no result {index}"));
            count.write(state.predictions.get(index).ok_or_else(none)?.len());
            Ok(())
        })
    }
}

/// Returns prediction `rank` of result `index`, best first; labeled spans are in the order of the text. The text of
/// the prediction is valid until the next call that modifies the encoder.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_prediction(
    encoder: *const siskin_encoder,
    index: usize,
    rank: usize,
    out: *mut siskin_prediction,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` is null or live; `out` is null or a sized struct.
    unsafe {
        guard::shared(encoder, |state| {
            let result = SizedOutput::new("out", out)?;
            let none = || PendingError::argument("rank", format!("result {index} has no prediction {rank}"));
            let prediction = state.predictions.get(index).and_then(|all| all.get(rank)).ok_or_else(none)?;
            result.write(&prediction.view());
            Ok(())
        })
    }
}

/// Cancels the running call, or the next one: it returns `SISKIN_ERROR_CANCELED` within milliseconds.
/// For generic ONNX models, which run on the tract engine, cancellation takes effect only between texts.
///
/// Threads: any, at any time during the encoder's lifetime.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_cancel(encoder: *const siskin_encoder) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` is null or live.
    unsafe { cancel(encoder) }
}

/// Creates a handle that cancels calls on the encoder and may outlive it.
///
/// Threads: any, at any time during the encoder's lifetime.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_cancel_handle(
    encoder: *const siskin_encoder,
    out: *mut *mut siskin_cancel_handle,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `encoder` is null or live; `out` is null or writable.
    unsafe { cancel_handle_of(encoder, out) }
}

/// Frees an encoder. Null is ignored. An encoder that another call is using is not freed.
///
/// # Safety
/// The pointer contract of the crate, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_encoder_free(encoder: *mut siskin_encoder) {
    // SAFETY: pointer contract: `encoder` is null or live, and not used afterwards.
    unsafe { guard::free(encoder) }
}
