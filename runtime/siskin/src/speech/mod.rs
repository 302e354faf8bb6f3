//! Speech to text with Whisper models.
//!
//! A [`Transcriber`] processes audio in windows: the log-mel features of 30 seconds are encoded once, and the decoder
//! generates their text, greedily or by beam search, with temperature fallback if the result is repetitive or unlikely.
//! For longer audio, the next window begins where the last complete segment ended.

mod decode;
mod rules;
mod segments;
mod special;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use siskin_kernels::ops::attention::CacheType;

use crate::beam_search::MAX_BEAMS;
use crate::encoder::EncoderInput;
use crate::model::Model;
use crate::session::{Session, SessionOptions};
use crate::{Error, Result};
use decode::DecodedWindow;
use siskin_audio::{AudioSamples, Mel, RATE, resample};
use siskin_backend::cancel::CancelHandle;
use siskin_tokenizer::{DecodeOptions, EncodeOptions};
use special::Special;

/// Frames per second; two of them per row of encoder output.
const FRAMES: usize = 100;
const ROW: usize = 2;
/// Samples per frame.
const HOP: usize = RATE as usize / FRAMES;
/// The minimum number of frames of a window after the first; a shorter remainder is dropped.
const LEAST: usize = 20;
/// The amplitude below which samples count as silence: 80 dB below full scale.
const FAINTEST: f32 = 1e-4;
/// The mean log-probability from which on a window is treated as speech even if the no-speech probability is high.
const SURE: f32 = -1.0;

/// Options for a transcription.
#[derive(Clone, Debug, PartialEq)]
pub struct TranscribeOptions {
    /// The language that is spoken, such as `en`; `None` detects it in the first window.
    pub language: Option<String>,
    /// Translates to English instead of transcribing.
    pub translate: bool,
    /// Splits the text into segments with timestamps. Audio that is longer than a window is always split.
    pub timestamps: bool,
    /// The maximum number of tokens per window; at most half of the model's context.
    pub max_tokens: usize,
    /// Text that is treated as preceding the audio: names and terms that are likely to occur (`initial_prompt`).
    pub prompt: Option<String>,
    /// Conditions each window on the text of the previous ones. Errors may then repeat.
    pub condition_on_previous_text: bool,
    /// The number of beams; 1 means greedy decoding.
    pub beams: usize,
    /// The length penalty of beam search: the exponent of the length that a score is divided by.
    pub length_penalty: f32,
    /// Temperature fallback: decodes a window again by sampling if the result is repetitive or unlikely. Deterministic.
    pub temperature_fallback: bool,
    /// The no-speech probability from which on a window is skipped unless its text is likely; above 1 means never.
    pub no_speech_threshold: f32,
}

impl Default for TranscribeOptions {
    fn default() -> Self {
        Self {
            language: None,
            translate: false,
            timestamps: false,
            max_tokens: usize::MAX,
            prompt: None,
            condition_on_previous_text: false,
            beams: 1,
            length_penalty: 1.0,
            temperature_fallback: true,
            no_speech_threshold: 0.6,
        }
    }
}

/// A segment of the audio with its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The start, in seconds.
    pub start: f64,
    /// The end, in seconds.
    pub end: f64,
    /// The text, without surrounding spaces.
    pub text: String,
    /// The tokens, timestamps included.
    pub ids: Vec<u32>,
    /// The mean log-probability of the window's tokens.
    pub log_probability: f32,
    /// The probability that the window contains no speech.
    pub no_speech_probability: f32,
}

/// The result of a transcription.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// The spoken language; `None` for models of one language and for silent audio.
    pub language: Option<String>,
    /// The segments in order, silent ones omitted.
    pub segments: Vec<Segment>,
    /// The whole text.
    pub text: String,
}

/// Transcribes speech.
///
/// ```no_run
/// use siskin::audio::AudioSamples;
/// use siskin::speech::Transcriber;
///
/// let model = siskin::Model::open("whisper.siskin")?;
/// let audio = AudioSamples::from_wav(&std::fs::read("talk.wav").unwrap())?;
/// let transcript = Transcriber::new(&model, None)?.transcribe(&audio, &Default::default())?;
/// println!("{}", transcript.text);
/// # Ok::<(), siskin::Error>(())
/// ```
pub struct Transcriber {
    session: Session,
    special: Special,
    mel: Mel,
    scores: Vec<f32>,
}

impl Transcriber {
    /// Creates a transcriber for a speech model with its tokenizer. `cache` is the type of the KV cache; `None` means
    /// f16, or f32 for models whose weights are f32.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for other models, and
    /// [`ErrorKind::Missing`](crate::ErrorKind::Missing) if the tokenizer lacks Whisper's special tokens.
    pub fn new(model: &Model, cache: Option<CacheType>) -> Result<Self> {
        if !siskin_audio::FEATURE.is_there {
            return Err(siskin_audio::FEATURE.missing());
        }
        if !model.can_transcribe() {
            let message = format!("{} models cannot transcribe audio; use a Whisper model", model.family());
            return Err(Error::unsupported("model", message));
        }
        let model_config = model.config();
        let frames = model_config.encoder_context.saturating_mul(ROW);
        if !frames.is_multiple_of(FRAMES) {
            let message = format!("windows of {frames} frames are not a whole number of seconds");
            return Err(Error::unsupported("config.max_source_positions", message));
        }
        let special = Special::of(model)?;
        let mel = Mel::new(model_config.features, frames / FRAMES).map_err(|error| error.within("config"))?;
        let session = model.session(SessionOptions { cache, ..SessionOptions::default() })?;
        Ok(Self { special, mel, scores: vec![0.0; session.logits().len()], session })
    }

    /// Returns the codes of the languages that the model supports; empty for a model of one language.
    pub fn languages(&self) -> impl Iterator<Item = &str> {
        self.special.languages.iter().map(|(code, _)| &**code)
    }

    /// Returns a handle that cancels a transcription from another thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.session.cancel_handle()
    }

    /// Returns the probabilities of the languages in the first window, most likely first.
    pub fn detect_language(&mut self, sound: &AudioSamples) -> Result<Vec<(String, f32)>> {
        if !siskin_audio::FEATURE.is_there {
            return Err(siskin_audio::FEATURE.missing());
        }
        let samples = at_rate(sound)?;
        self.listen(&samples, 0)?;
        Ok(self.heard_languages())
    }

    /// Transcribes audio of any length.
    pub fn transcribe(&mut self, sound: &AudioSamples, options: &TranscribeOptions) -> Result<Transcript> {
        self.transcribe_with(sound, options, &mut |_| Ok(()))
    }

    /// Like [`transcribe`](Self::transcribe), and calls `each` with every segment as soon as it is complete. An error
    /// that it returns ends the call.
    pub fn transcribe_with(
        &mut self,
        sound: &AudioSamples,
        options: &TranscribeOptions,
        each: &mut dyn FnMut(&Segment) -> Result<()>,
    ) -> Result<Transcript> {
        if !siskin_audio::FEATURE.is_there {
            return Err(siskin_audio::FEATURE.missing());
        }
        let mut language = options.language.as_deref().map(|code| self.special.language(code)).transpose()?;
        if options.translate && self.special.translate.is_none() {
            return Err(Error::argument("translate", "the model only supports English"));
        }
        self.make_room(options.beams)?;
        let samples = at_rate(sound)?;
        let frames = samples.len().div_ceil(HOP);
        let with_times = options.timestamps || samples.len() > self.mel.samples();
        let mut before = self.prompt(options)?;
        let (mut transcript, mut text) = (Transcript::default(), Vec::new());
        let mut seek = 0;
        while seek == 0 && frames > 0 || seek + LEAST <= frames {
            let length = (frames - seek).min(self.mel.frames());
            if !is_audible(&samples, seek * HOP, length * HOP) {
                seek += length;
                continue;
            }
            self.listen(&samples, seek * HOP)?;
            if language.is_none() && !self.special.languages.is_empty() {
                let heard = self.heard_languages();
                language = heard.first().map(|(code, _)| self.special.language(code)).transpose()?;
            }
            let written = self.write(&before, language, with_times, options, seek as u64)?;
            let is_silent = written.no_speech_probability > options.no_speech_threshold
                && written.log_probability <= SURE;
            let (parts, next) = segments::cut(&written.ids, self.special.times, length);
            for part in parts.iter().filter(|_| !is_silent) {
                let segment = self.segment(part, seek, &written, &mut text)?;
                if segment.text.is_empty() {
                    continue;
                }
                each(&segment)?;
                transcript.segments.push(segment);
                if options.condition_on_previous_text {
                    before.extend(part.ids.iter().filter(|&&id| id < self.special.end));
                }
            }
            seek += if is_silent { length } else { next.min(length) };
        }
        transcript.language = language.and_then(|id| {
            let known = self.special.languages.iter().find(|(_, known)| *known == id);
            known.map(|(code, _)| code.clone())
        });
        transcript.text = String::from_utf8_lossy(&text).trim().to_owned();
        Ok(transcript)
    }

    /// Reopens the session if it does not have enough room for the beams.
    fn make_room(&mut self, beams: usize) -> Result<()> {
        if !(1..=MAX_BEAMS).contains(&beams) {
            return Err(Error::argument("beams", format!("expected 1 to {MAX_BEAMS}, got {beams}")));
        }
        let options = self.session.options();
        if beams > 1 && options.forks < beams {
            let (options, cancel) =
                (SessionOptions { forks: beams, ..options.clone() }, self.session.cancel_handle());
            self.session = self.session.model().session(options)?;
            self.session.set_cancel_handle(cancel);
        }
        Ok(())
    }

    /// Returns the tokens of the text that precedes the audio.
    fn prompt(&self, options: &TranscribeOptions) -> Result<Vec<u32>> {
        let Some(prompt) = &options.prompt else { return Ok(Vec::new()) };
        let encode = EncodeOptions { add_special: false, parse_special: false };
        self.session.model().tokenizer()?.encode(&format!(" {}", prompt.trim()), encode)
    }

    /// Encodes the window that begins at a sample.
    fn listen(&mut self, samples: &[f32], from: usize) -> Result<()> {
        let features = self.mel.features(samples, from).values;
        self.session.encode(&EncoderInput { features, ..EncoderInput::default() })?;
        self.session.prefill(&[self.special.start])
    }

    /// Returns the probabilities of the languages after the start token, most likely first.
    fn heard_languages(&self) -> Vec<(String, f32)> {
        let ids: Vec<u32> = self.special.languages.iter().map(|(_, id)| *id).collect();
        let share =
            |(code, id): &(String, u32)| (code.clone(), rules::probability(self.session.logits(), *id, &ids));
        let mut heard: Vec<_> = self.special.languages.iter().map(share).collect();
        heard.sort_unstable_by(|(_, a), (_, b)| b.total_cmp(a));
        heard
    }

    /// Returns a segment of the window that begins at frame `seek`; appends its bytes to `text`.
    fn segment(
        &self,
        part: &segments::SegmentFrames<'_>,
        seek: usize,
        written: &DecodedWindow,
        text: &mut Vec<u8>,
    ) -> Result<Segment> {
        let said: Vec<u32> = part.ids.iter().copied().filter(|&id| id < self.special.end).collect();
        let bytes = self.session.model().tokenizer()?.decode(&said, DecodeOptions { skip_special: true })?;
        text.extend_from_slice(&bytes);
        let seconds = |frame: usize| (seek + frame) as f64 / FRAMES as f64;
        Ok(Segment {
            start: seconds(part.start),
            end: seconds(part.end),
            text: String::from_utf8_lossy(&bytes).trim().to_owned(),
            ids: part.ids.to_vec(),
            log_probability: written.log_probability,
            no_speech_probability: written.no_speech_probability,
        })
    }
}

/// Returns whether any of `count` samples is above the silence threshold. NaN and infinity count as audible and are
/// reported elsewhere.
fn is_audible(samples: &[f32], from: usize, count: usize) -> bool {
    let window = samples.iter().skip(from).take(count);
    window.into_iter().any(|sample| sample.abs() >= FAINTEST || sample.is_nan())
}

/// Returns the samples at the models' sample rate.
fn at_rate(sound: &AudioSamples) -> Result<Cow<'_, [f32]>> {
    match sound.rate {
        RATE => Ok(Cow::Borrowed(&sound.samples)),
        rate => resample(&sound.samples, rate).map(Cow::Owned),
    }
}
