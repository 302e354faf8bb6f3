//! Transcribers: speech to text.

use std::ffi::c_char;

use siskin::audio::AudioSamples;
use siskin::speech::{TranscribeOptions, Transcriber, Transcript};

use crate::arguments::{SizedOutput, place, text_or_none, truth, values, whole};
use crate::error::{Outcome, PendingError, siskin_error};
use crate::guard::{self, Handle, looking};
use crate::model::siskin_model;
use crate::stop::{Remote, siskin_stop, stop_now, stop_of};

/// Transcribes speech. One call at a time may use it, from any thread. Freed with `siskin_transcriber_free`.
pub struct siskin_transcriber {
    _opaque: [u8; 0],
}

impl Handle for siskin_transcriber {
    type Inner = TranscriberState;
    type Remote = Remote;
    const MAGIC: [u8; 8] = *b"SISKhear";
    const NAME: &'static str = "transcriber";
}

/// The transcriber behind a handle, and its last transcript.
pub(crate) struct TranscriberState {
    transcriber: Transcriber,
    options: TranscribeOptions,
    transcript: Transcript,
}

/// A segment of the audio, and its transcript. Set `struct_size` before the call. The text is valid until the next call
/// that changes the transcriber.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_segment {
    /// `sizeof(siskin_segment)`.
    pub struct_size: usize,
    /// The transcript; UTF-8, not NUL-terminated.
    pub text: *const c_char,
    /// Its length in bytes.
    pub length: usize,
    /// Its start, in seconds.
    pub start: f64,
    /// Its end, in seconds.
    pub end: f64,
    /// The mean log-probability of the tokens of its window.
    pub log_probability: f32,
    /// The probability that its window contains no speech.
    pub silence: f32,
}

/// 1: translate to English.
pub const SISKIN_TRANSCRIBE_TRANSLATE: u32 = 1;
/// 1: split the text into segments with timestamps.
pub const SISKIN_TRANSCRIBE_TIMESTAMPS: u32 = 2;
/// The number of beams of beam search.
pub const SISKIN_TRANSCRIBE_BEAMS: u32 = 3;
/// 1: condition on the text of the previous windows.
pub const SISKIN_TRANSCRIBE_PREVIOUS: u32 = 4;
/// The no-speech probability from which a window is treated as silent, unless its text is likely.
pub const SISKIN_TRANSCRIBE_SILENCE: u32 = 5;
/// The maximum number of tokens of a window.
pub const SISKIN_TRANSCRIBE_MAX_TOKENS: u32 = 6;

fn set(options: &mut TranscribeOptions, option: u32, value: f64) -> Outcome {
    match option {
        SISKIN_TRANSCRIBE_TRANSLATE => options.translate = truth("value", value)?,
        SISKIN_TRANSCRIBE_TIMESTAMPS => options.timestamps = truth("value", value)?,
        SISKIN_TRANSCRIBE_BEAMS => options.beams = whole("value", value)?,
        SISKIN_TRANSCRIBE_PREVIOUS => options.previous = truth("value", value)?,
        SISKIN_TRANSCRIBE_SILENCE if !value.is_nan() => options.silence = value as f32,
        SISKIN_TRANSCRIBE_MAX_TOKENS => options.max_tokens = whole("value", value)?,
        SISKIN_TRANSCRIBE_SILENCE => return Err(PendingError::argument("value", "is not a number")),
        other => {
            return Err(PendingError::argument(
                "option",
                format!("{other} is not one of SISKIN_TRANSCRIBE_…"),
            ));
        }
    }
    Ok(())
}

/// Creates a transcriber, for speech-to-text models.
///
/// Threads: any.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_new(
    model: *const siskin_model,
    out: *mut *mut siskin_transcriber,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::made(out, || {
            let transcriber = looking(model, |model| Ok(Transcriber::new(model, None)?))?;
            let remote = Remote::new(transcriber.cancel_handle());
            let options = TranscribeOptions::default();
            Ok((TranscriberState { transcriber, options, transcript: Transcript::default() }, remote))
        })
    }
}

/// Sets one of `SISKIN_TRANSCRIBE_…`.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_set(
    transcriber: *mut siskin_transcriber,
    option: u32,
    value: f64,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::alone(transcriber, |state, _| set(&mut state.options, option, value)) }
}

/// Sets the spoken language, such as `en`; empty, the default: detect it.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_set_language(
    transcriber: *mut siskin_transcriber,
    language: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(transcriber, |state, _| {
            state.options.language = text_or_none("language", language, length)?;
            Ok(())
        })
    }
}

/// Sets a prompt: names and words that are likely to occur in the audio. Empty: none.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_set_prompt(
    transcriber: *mut siskin_transcriber,
    prompt: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(transcriber, |state, _| {
            state.options.prompt = text_or_none("prompt", prompt, length)?;
            Ok(())
        })
    }
}

/// Transcribes one channel of audio at `rate` samples per second, with full scale from −1 to 1.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_hear(
    transcriber: *mut siskin_transcriber,
    samples: *const f32,
    count: usize,
    rate: u32,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(transcriber, |state, remote| {
            remote.check()?;
            let samples = values("samples", samples, count)?.to_vec();
            state.hear(&AudioSamples { rate, samples })
        })
    }
}

/// Transcribes little-endian 16-bit samples with `channels` interleaved channels.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_hear_pcm16(
    transcriber: *mut siskin_transcriber,
    bytes: *const u8,
    length: usize,
    rate: u32,
    channels: u16,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(transcriber, |state, remote| {
            remote.check()?;
            state.hear(&AudioSamples::from_pcm16(values("bytes", bytes, length)?, rate, channels)?)
        })
    }
}

/// Transcribes the bytes of a WAVE file.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_hear_wav(
    transcriber: *mut siskin_transcriber,
    bytes: *const u8,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(transcriber, |state, remote| {
            remote.check()?;
            state.hear(&AudioSamples::from_wav(values("bytes", bytes, length)?)?)
        })
    }
}

impl TranscriberState {
    fn hear(&mut self, sound: &AudioSamples) -> Outcome {
        self.transcript = self.transcriber.transcribe(sound, &self.options)?;
        Ok(())
    }
}

/// Returns the whole text, and the spoken language, which is empty if unknown. Both are valid until the next call that
/// changes the transcriber.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_text(
    transcriber: *const siskin_transcriber,
    text: *mut *const c_char,
    length: *mut usize,
    language: *mut *const c_char,
    language_length: *mut usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(transcriber, |state| {
            let (text, length) = (place("text", text)?, place("length", length)?);
            let (language, language_length) =
                (place("language", language)?, place("language_length", language_length)?);
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
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_count(
    transcriber: *const siskin_transcriber,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(transcriber, |state| {
            place("count", count)?.write(state.transcript.segments.len());
            Ok(())
        })
    }
}

/// Returns segment `index`, in order of time.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_segment(
    transcriber: *const siskin_transcriber,
    index: usize,
    out: *mut siskin_segment,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(transcriber, |state| {
            let frame = SizedOutput::new("out", out)?;
            let none = || PendingError::argument("index", format!("there is no segment {index}"));
            let segment = state.transcript.segments.get(index).ok_or_else(none)?;
            frame.fill(&siskin_segment {
                struct_size: 0,
                text: segment.text.as_ptr().cast(),
                length: segment.text.len(),
                start: segment.start,
                end: segment.end,
                log_probability: segment.log_probability,
                silence: segment.silence,
            });
            Ok(())
        })
    }
}

/// Stops the running call, or the next one, within milliseconds: it returns `SISKIN_ERROR_CANCELLED`.
///
/// Threads: any, at any time during the transcriber's lifetime.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_stop(
    transcriber: *const siskin_transcriber,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { stop_now(transcriber) }
}

/// Creates a handle that stops the transcriber and may outlive it.
///
/// Threads: any, at any time during the transcriber's lifetime.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_stopper(
    transcriber: *const siskin_transcriber,
    out: *mut *mut siskin_stop,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { stop_of(transcriber, out) }
}

/// Frees a transcriber. Null is ignored. A transcriber that a call is using is not freed.
///
/// # Safety
/// Pointers are valid, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_transcriber_free(transcriber: *mut siskin_transcriber) {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::free(transcriber) }
}
