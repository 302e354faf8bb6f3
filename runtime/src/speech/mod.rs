//! Speech to text with models of the Whisper kind.
//!
//! A [`Transcriber`] hears sound window by window: features of 30 seconds go through the encoder once, and the decoder
//! writes what it hears: the likeliest token of those that may follow, and where this leads nowhere, others by chance. Where the sound is longer, the
//! next window begins where the last whole segment ended.

mod rules;
mod segments;
mod special;
#[cfg(test)]
mod tests;
mod write;

use std::borrow::Cow;

use siskin_kernels::ops::attention::CacheType;

use crate::audio::{Mel, RATE, Sound, resample};
use crate::beam_search::MOST_BEAMS;
use crate::encoder::Tokens;
use crate::model::Model;
use crate::session::{Session, SessionOptions, StopHandle};
use crate::tokenizer::{DecodeOptions, EncodeOptions};
use crate::{Error, Result, features};
use special::Special;
use write::Written;

/// Frames in a second, and in a row of what the encoder gives.
const FRAMES: usize = 100;
const ROW: usize = 2;
/// Samples in a frame.
const HOP: usize = RATE as usize / FRAMES;
/// Fewer frames than this after a window are its end.
const LEAST: usize = 20;
/// What does not reach this is no sound: 80 dB below full scale.
const FAINTEST: f32 = 1e-4;
/// The least mean logarithm of probabilities at which a window is text though silence seemed likely.
const SURE: f32 = -1.0;

/// How a sound is transcribed.
#[derive(Clone, Debug, PartialEq)]
pub struct TranscribeOptions {
    /// The language that is spoken, such as `en`; `None`: what the model hears in the first window.
    pub language: Option<String>,
    /// Write English, whatever is spoken.
    pub translate: bool,
    /// Cut the text into segments with times. Sound that is longer than a window is always cut.
    pub timestamps: bool,
    /// The most tokens of a window; the model's half context is the most that there can be.
    pub max_tokens: usize,
    /// What might have been said before: names and words that the sound may hold.
    pub prompt: Option<String>,
    /// Let the model see the text of the windows before. What it got wrong once, it may then repeat.
    pub previous: bool,
    /// How many texts go on at the same time, of which the likeliest by its length is taken; 1: the likeliest token
    /// each time.
    pub beams: usize,
    /// The power of a text's length that its score is divided by, where there are beams.
    pub length_penalty: f32,
    /// Where the likeliest tokens go round in circles or are unlikely, write again with tokens by chance: the same ones
    /// every time.
    pub again: bool,
    /// A window is silent from this probability of silence on, unless its text is likely; above 1: never.
    pub silence: f32,
}

impl Default for TranscribeOptions {
    fn default() -> Self {
        Self {
            language: None,
            translate: false,
            timestamps: false,
            max_tokens: usize::MAX,
            prompt: None,
            previous: false,
            beams: 1,
            length_penalty: 1.0,
            again: true,
            silence: 0.6,
        }
    }
}

/// A part of a sound, and what is said in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Where it begins, in seconds.
    pub start: f64,
    /// Where it ends, in seconds.
    pub end: f64,
    /// What is said, without the spaces around it.
    pub text: String,
    /// The tokens, those of times included.
    pub ids: Vec<u32>,
    /// The mean logarithm of the probabilities of the window's tokens.
    pub log_probability: f32,
    /// The probability that the window is silent.
    pub silence: f32,
}

/// What is said in a sound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// The language that is spoken; `None` for models of one language and silent sounds.
    pub language: Option<String>,
    /// The parts, in order; silent ones are left out.
    pub segments: Vec<Segment>,
    /// The whole text.
    pub text: String,
}

/// Writes down what is said.
///
/// ```no_run
/// use siskin::audio::Sound;
/// use siskin::speech::Transcriber;
///
/// let model = siskin::Model::open("whisper.siskin")?;
/// let sound = Sound::from_wav(&std::fs::read("talk.wav").unwrap())?;
/// let transcript = Transcriber::new(&model, None)?.transcribe(&sound, &Default::default())?;
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
    /// For a model of the family `whisper` with its tokenizer. `cache` is the type of cached numbers; `None`: f16, or
    /// f32 for models whose weights are f32.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for other models, and
    /// [`ErrorKind::Missing`](crate::ErrorKind::Missing) where the tokenizer has not the tokens of Whisper.
    pub fn new(model: &Model, cache: Option<CacheType>) -> Result<Self> {
        if !features::AUDIO.is_there {
            return Err(features::AUDIO.missing());
        }
        if model.family() != "whisper" {
            let message = format!("a model of the family {} does not listen; whisper does", model.family());
            return Err(Error::unsupported("model", message));
        }
        let hyper = model.hyper();
        let frames = hyper.text.saturating_mul(ROW);
        if !frames.is_multiple_of(FRAMES) {
            let message = format!("windows of {frames} frames are no whole number of seconds");
            return Err(Error::unsupported("config.max_source_positions", message));
        }
        let special = Special::of(model)?;
        let mel = Mel::new(hyper.features, frames / FRAMES).map_err(|error| error.within("config"))?;
        let session = model.session(SessionOptions { cache, ..SessionOptions::default() })?;
        Ok(Self { special, mel, scores: vec![0.0; session.logits().len()], session })
    }

    /// The codes of the languages that the model knows; none for a model of one language.
    pub fn languages(&self) -> impl Iterator<Item = &str> {
        self.special.languages.iter().map(|(code, _)| &**code)
    }

    /// Stops a transcription from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.session.stop_handle()
    }

    /// The probabilities of the languages in the first window of a sound, the likeliest first.
    pub fn detect_language(&mut self, sound: &Sound) -> Result<Vec<(String, f32)>> {
        if !features::AUDIO.is_there {
            return Err(features::AUDIO.missing());
        }
        let samples = at_rate(sound)?;
        self.listen(&samples, 0)?;
        Ok(self.heard_languages())
    }

    /// Writes down a whole sound.
    pub fn transcribe(&mut self, sound: &Sound, options: &TranscribeOptions) -> Result<Transcript> {
        self.transcribe_with(sound, options, &mut |_| Ok(()))
    }

    /// The same, and calls `each` with every segment as soon as it is there. An error that it gives ends the work.
    pub fn transcribe_with(
        &mut self,
        sound: &Sound,
        options: &TranscribeOptions,
        each: &mut dyn FnMut(&Segment) -> Result<()>,
    ) -> Result<Transcript> {
        if !features::AUDIO.is_there {
            return Err(features::AUDIO.missing());
        }
        let mut language = options.language.as_deref().map(|code| self.special.language(code)).transpose()?;
        if options.translate && self.special.translate.is_none() {
            return Err(Error::argument("translate", "the model knows English alone"));
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
            let is_silent = written.silence > options.silence && written.log_probability <= SURE;
            let (parts, next) = segments::cut(&written.ids, self.special.times, length);
            for part in parts.iter().filter(|_| !is_silent) {
                let segment = self.segment(part, seek, &written, &mut text)?;
                if segment.text.is_empty() {
                    continue;
                }
                each(&segment)?;
                transcript.segments.push(segment);
                if options.previous {
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

    /// Opens the session again where it has no room for so many beams.
    fn make_room(&mut self, beams: usize) -> Result<()> {
        if !(1..=MOST_BEAMS).contains(&beams) {
            return Err(Error::argument("beams", format!("{beams}; give 1 to {MOST_BEAMS}")));
        }
        let options = self.session.options();
        if beams > 1 && options.forks < beams {
            let (options, stop) =
                (SessionOptions { forks: beams, ..options.clone() }, self.session.stop_handle());
            self.session = self.session.model().session(options)?;
            self.session.stop_by(stop);
        }
        Ok(())
    }

    /// The tokens of what might have been said before.
    fn prompt(&self, options: &TranscribeOptions) -> Result<Vec<u32>> {
        let Some(prompt) = &options.prompt else { return Ok(Vec::new()) };
        let encode = EncodeOptions { add_special: false, parse_special: false };
        self.session.model().tokenizer()?.encode(&format!(" {}", prompt.trim()), encode)
    }

    /// Reads the window that begins at a sample.
    fn listen(&mut self, samples: &[f32], from: usize) -> Result<()> {
        let features = self.mel.features(samples, from).values;
        self.session.read(&Tokens { features, ..Tokens::default() })?;
        self.session.prefill(&[self.special.start])
    }

    /// The probabilities of languages after the first token, the likeliest first.
    fn heard_languages(&self) -> Vec<(String, f32)> {
        let ids: Vec<u32> = self.special.languages.iter().map(|(_, id)| *id).collect();
        let share =
            |(code, id): &(String, u32)| (code.clone(), rules::probability(self.session.logits(), *id, &ids));
        let mut heard: Vec<_> = self.special.languages.iter().map(share).collect();
        heard.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        heard
    }

    /// A segment of the window that begins at frame `seek`; its bytes are appended to `text`.
    fn segment(
        &self,
        part: &segments::Part<'_>,
        seek: usize,
        written: &Written,
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
            silence: written.silence,
        })
    }
}

/// Whether there is any sound in `count` samples; what is not a number is for others to judge.
fn is_audible(samples: &[f32], from: usize, count: usize) -> bool {
    let window = samples.iter().skip(from).take(count);
    window.into_iter().any(|sample| sample.abs() >= FAINTEST || sample.is_nan())
}

/// The samples at the rate of models.
fn at_rate(sound: &Sound) -> Result<Cow<'_, [f32]>> {
    match sound.rate {
        RATE => Ok(Cow::Borrowed(&sound.samples)),
        rate => resample(&sound.samples, rate).map(Cow::Owned),
    }
}
