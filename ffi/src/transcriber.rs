//! Transcribers: speech-to-text.

use std::ffi::{c_char, c_void};

use siskin::audio::AudioSamples;
use siskin::speech::{Segment, TranscribeOptions, Transcriber, Transcript};

use crate::arguments::{SizedOutput, boolean, integer, number, output, text_or_none, values};
use crate::callback::{HostPointer, siskin_release_function};
use crate::cancel_handle::{RunControl, cancel, cancel_handle_of, siskin_cancel_handle};
use crate::error::{Outcome, PendingError, siskin_error};
use crate::guard::{self, Handle, borrow, in_callback};
use crate::model::siskin_model;

/// Transcribes speech. One call at a time may use it, from any thread. Freed with `siskin_transcriber_free`.
pub struct siskin_transcriber {
    _opaque: [u8; 0],
}

impl Handle for siskin_transcriber {
    type Inner = TranscriberState;
    type Control = RunControl;
    const MAGIC: [u8; 8] = *b"SISKtran";
    const NAME: &'static str = "transcriber";
}

/// The transcriber behind a handle, and its last transcript.
pub(crate) struct TranscriberState {
    transcriber: Transcriber,
    options: TranscribeOptions,
    transcript: Transcript,
    on_segment: Option<SegmentCallback>,
}

struct SegmentCallback {
    function: unsafe extern "C" fn(*mut c_void, *const siskin_segment) -> bool,
    host: HostPointer,
}

/// Receives a segment once the window of audio that it is in was transcribed. The segment is valid during the call. Returns
/// whether to continue. It must not call the library.
pub type siskin_segment_function =
    Option<unsafe extern "C" fn(user: *mut c_void, segment: *const siskin_segment) -> bool>;

/// A segment of the audio and its text. Set `struct_size` before the call. The text is valid until the next call that
/// modifies the transcriber.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_segment {
    /// `sizeof(siskin_segment)`.
    pub struct_size: usize,
    /// The text: UTF-8, not NUL-terminated.
    pub text: *const c_char,
    /// The length of `text` in bytes.
    pub length: usize,
    /// The start in seconds.
    pub start: f64,
    /// The end in seconds.
    pub end: f64,
    /// The mean log-probability of the tokens in the window.
    pub log_probability: f32,
    /// The probability that the window contains no speech.
    pub no_speech_probability: f32,
}

/// A transcription option.
pub type siskin_transcribe_option = u32;
/// Whether to translate to English (0 or 1). Default 0.
pub const SISKIN_TRANSCRIBE_TRANSLATE: siskin_transcribe_option = 1;
/// Whether to divide the text into segments with timestamps (0 or 1). Default 0.
pub const SISKIN_TRANSCRIBE_TIMESTAMPS: siskin_transcribe_option = 2;
/// The number of beams in beam search. Default: 1.
pub const SISKIN_TRANSCRIBE_BEAMS: siskin_transcribe_option = 3;
/// Whether to condition each window on the text of the previous one (0 or 1). Default 0.
pub const SISKIN_TRANSCRIBE_CONDITION_ON_PREVIOUS_TEXT: siskin_transcribe_option = 4;
/// The no-speech probability above which a window is skipped as silent, unless its mean log-probability
/// is high. Default: 0.6.
pub const SISKIN_TRANSCRIBE_NO_SPEECH_THRESHOLD: siskin_transcribe_option = 5;
/// The maximum number of tokens in a window. Default: half of the model's context.
pub const SISKIN_TRANSCRIBE_MAX_TOKENS: siskin_transcribe_option = 6;

fn set(options: &mut TranscribeOptions, option: siskin_transcribe_option, value: f64) -> Outcome {
    match option {
        SISKIN_TRANSCRIBE_TRANSLATE => options.translate = boolean("value", value)?,
        SISKIN_TRANSCRIBE_TIMESTAMPS => options.timestamps = boolean("value", value)?,
        SISKIN_TRANSCRIBE_BEAMS => options.beams = integer("value", value)?,
        SISKIN_TRANSCRIBE_CONDITION_ON_PREVIOUS_TEXT => {
            options.condition_on_previous_text = boolean("value", value)?
        }
        SISKIN_TRANSCRIBE_NO_SPEECH_THRESHOLD => options.no_speech_threshold = number("value", value)?,
        SISKIN_TRANSCRIBE_MAX_TOKENS => options.max_tokens = integer("value", value)?,
        other => {
            return Err(PendingError::argument(
                "option",
                format!("{other} is not a siskin_transcribe_option"),
            ));
        }
    }
    Ok(())
}

/// Creates a transcriber. The model must have `SISKIN_CAPABILITY_TRANSCRIBE`.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_new(
    model: *const siskin_model,
    out: *mut *mut siskin_transcriber,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` is null or live; `out` is null or writable.
    unsafe {
        guard::create(out, || {
            let transcriber = borrow(model, |model| Ok(Transcriber::new(model, None)?))?;
            let control = RunControl::new(transcriber.cancel_handle());
            let options = TranscribeOptions::default();
            let transcript = Transcript::default();
            Ok((TranscriberState { transcriber, options, transcript, on_segment: None }, control))
        })
    }
}

/// Restores the default options.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_reset_options(
    transcriber: *mut siskin_transcriber,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `transcriber` is null or live.
    unsafe {
        guard::exclusive(transcriber, |state, _| {
            state.options = TranscribeOptions::default();
            Ok(())
        })
    }
}

/// Sets the spoken language, such as `en`. An empty string (the default) means automatic detection.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_set_language(
    transcriber: *mut siskin_transcriber,
    language: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `transcriber` is null or live; `language` is a string of `length` bytes.
    unsafe {
        guard::exclusive(transcriber, |state, _| {
            state.options.language = text_or_none("language", language, length)?;
            Ok(())
        })
    }
}

/// Sets a prompt, such as names and words that are likely to occur in the audio. An empty string (the default) means no
/// prompt.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_set_prompt(
    transcriber: *mut siskin_transcriber,
    prompt: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `transcriber` is null or live; `prompt` is a string of `length` bytes.
    unsafe {
        guard::exclusive(transcriber, |state, _| {
            state.options.prompt = text_or_none("prompt", prompt, length)?;
            Ok(())
        })
    }
}

/// Sets an option. Options that are counts or flags take integers.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_set(
    transcriber: *mut siskin_transcriber,
    option: siskin_transcribe_option,
    value: f64,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `transcriber` is null or live.
    unsafe { guard::exclusive(transcriber, |state, _| set(&mut state.options, option, value)) }
}

/// Sets the function that receives each segment once its window of audio was transcribed, in later calls; null stops that. If
/// the function returns false, the call fails with `SISKIN_ERROR_CANCELED`. `release` is called with `user` when the
/// function is no longer used.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_set_segment_function(
    transcriber: *mut siskin_transcriber,
    function: siskin_segment_function,
    user: *mut c_void,
    release: siskin_release_function,
) -> *mut siskin_error {
    // Constructed first, so that it is released if the call fails.
    // SAFETY: pointer contract: `release` is null, or may be called once with `user`, from any thread.
    let host = unsafe { HostPointer::new(user, release) };
    // SAFETY: pointer contract: `transcriber` is null or live.
    unsafe {
        guard::exclusive(transcriber, |state, _| {
            state.on_segment = function.map(|function| SegmentCallback { function, host });
            Ok(())
        })
    }
}

/// Transcribes single-channel audio: samples from −1 to 1, at `sample_rate` samples per second.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_transcribe(
    transcriber: *mut siskin_transcriber,
    samples: *const f32,
    count: usize,
    sample_rate: u32,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `transcriber` is null or live; `samples` is readable for `count` values.
    unsafe {
        guard::exclusive(transcriber, |state, control| {
            control.check()?;
            let samples = values("samples", samples, count)?.to_vec();
            state.transcribe(&AudioSamples { rate: sample_rate, samples })
        })
    }
}

/// Transcribes little-endian 16-bit PCM with `channels` interleaved channels, at `sample_rate` samples per second.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_transcribe_pcm16(
    transcriber: *mut siskin_transcriber,
    bytes: *const u8,
    length: usize,
    sample_rate: u32,
    channels: u16,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `transcriber` is null or live; `bytes` is readable for `length` bytes.
    unsafe {
        guard::exclusive(transcriber, |state, control| {
            control.check()?;
            state.transcribe(&AudioSamples::from_pcm16(
                values("bytes", bytes, length)?,
                sample_rate,
                channels,
            )?)
        })
    }
}

/// Transcribes a WAV file in memory.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_transcribe_wav(
    transcriber: *mut siskin_transcriber,
    bytes: *const u8,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `transcriber` is null or live; `bytes` is readable for `length` bytes.
    unsafe {
        guard::exclusive(transcriber, |state, control| {
            control.check()?;
            state.transcribe(&AudioSamples::from_wav(values("bytes", bytes, length)?)?)
        })
    }
}

impl TranscriberState {
    fn transcribe(&mut self, audio: &AudioSamples) -> Outcome {
        let Self { transcriber, options, transcript, on_segment } = self;
        *transcript = transcriber.transcribe_with(audio, options, &mut |segment| {
            let Some(SegmentCallback { function, host }) = &*on_segment else { return Ok(()) };
            let segment = siskin_segment { struct_size: size_of::<siskin_segment>(), ..native(segment) };
            // SAFETY: pointer contract: `function` may be called with `user` until `release` is, which `host` does on drop.
            match in_callback(|| unsafe { function(host.user(), &raw const segment) }) {
                true => Ok(()),
                false => Err(siskin::Error::canceled("segment")),
            }
        })?;
        Ok(())
    }
}

/// Returns a segment without the size of its struct. It is valid as long as `segment`.
fn native(segment: &Segment) -> siskin_segment {
    siskin_segment {
        struct_size: 0,
        text: segment.text.as_ptr().cast(),
        length: segment.text.len(),
        start: segment.start,
        end: segment.end,
        log_probability: segment.log_probability,
        no_speech_probability: segment.no_speech_probability,
    }
}

/// Returns the text of all segments, and the spoken language, which is empty if unknown. Both are valid until the next
/// call that modifies the transcriber.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_text(
    transcriber: *const siskin_transcriber,
    text: *mut *const c_char,
    length: *mut usize,
    language: *mut *const c_char,
    language_length: *mut usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `transcriber` is null or live; `text`, `length`, `language` and `language_length` are
    // disjoint outputs.
    unsafe {
        guard::shared(transcriber, |state| {
            let (text, length) = (output("text", text)?, output("length", length)?);
            let (language, language_length) =
                (output("language", language)?, output("language_length", language_length)?);
            let spoken = state.transcript.language.as_deref().unwrap_or("");
            text.write(state.transcript.text.as_ptr().cast());
            length.write(state.transcript.text.len());
            language.write(spoken.as_ptr().cast());
            language_length.write(spoken.len());
            Ok(())
        })
    }
}

/// Returns the number of segments.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_segment_count(
    transcriber: *const siskin_transcriber,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `transcriber` is null or live; `count` is null or writable.
    unsafe {
        guard::shared(transcriber, |state| {
            output("count", count)?.write(state.transcript.segments.len());
            Ok(())
        })
    }
}

/// Returns segment `index`. Segments are in chronological order.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_segment(
    transcriber: *const siskin_transcriber,
    index: usize,
    out: *mut siskin_segment,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `transcriber` is null or live; `out` is null or a sized struct.
    unsafe {
        guard::shared(transcriber, |state| {
            let result = SizedOutput::new("out", out)?;
            let none = || PendingError::argument("index", format!("there is no segment {index}"));
            let segment = state.transcript.segments.get(index).ok_or_else(none)?;
            result.write(&native(segment));
            Ok(())
        })
    }
}

/// Cancels the running call, or the next one: it returns `SISKIN_ERROR_CANCELED` within milliseconds.
///
/// Threads: any, at any time during the transcriber's lifetime.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_cancel(
    transcriber: *const siskin_transcriber,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `transcriber` is null or live.
    unsafe { cancel(transcriber) }
}

/// Creates a handle that cancels calls on the transcriber and may outlive it.
///
/// Threads: any, at any time during the transcriber's lifetime.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_cancel_handle(
    transcriber: *const siskin_transcriber,
    out: *mut *mut siskin_cancel_handle,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `transcriber` is null or live; `out` is null or writable.
    unsafe { cancel_handle_of(transcriber, out) }
}

/// Frees a transcriber. Null is ignored. A transcriber that another call is using is not freed.
///
/// # Safety
/// The pointer contract of the crate, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_free(transcriber: *mut siskin_transcriber) {
    // SAFETY: pointer contract: `transcriber` is null or live, and not used afterwards.
    unsafe { guard::free(transcriber) }
}
