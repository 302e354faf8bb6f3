//! `siskin transcribe`: speech to text.

use crate::input_path;
use crate::options::{ModelArgs, OpenArgs};
use crate::output::{self, Bar};
use serde_json::{Value, json};
use siskin::audio::{AudioSamples, RATE};
use siskin::speech::{Segment, TranscribeOptions, Transcriber, Transcript};
use siskin::{Error, Result};
use siskin_media::audio;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Transcribe speech
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A Whisper model: a .siskin file, or a CTranslate2 or Hugging Face folder
    model: PathBuf,
    /// Audio files: WAV, and with the feature `audio-formats` MP3, M4A, FLAC, Ogg and Matroska; `-` for raw 16-bit samples at 16 kHz on standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Print a JSON object for each file
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    transcription: TranscriptionArgs,
    #[command(flatten)]
    model_args: ModelArgs,
}

/// Transcription options.
#[derive(clap::Args, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TranscriptionArgs {
    /// Spoken language, such as en; default: automatic detection
    #[arg(long, value_name = "CODE")]
    language: Option<String>,
    /// Translate to English
    #[arg(long)]
    translate: bool,
    /// Print segments with timestamps
    #[arg(long)]
    timestamps: bool,
    /// Initial prompt: text that could precede the speech, with names and words to expect
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Condition each 30-second window on the text of the previous one
    #[arg(long)]
    condition_on_previous_text: bool,
    /// Beam search with N beams and length normalization; 1 means greedy decoding
    #[arg(long, default_value_t = 1, value_name = "N")]
    beams: usize,
    /// Always choose the most likely token: no temperature fallback when the output is repetitive
    #[arg(long)]
    greedy: bool,
    /// Maximum number of tokens per 30 seconds; default: half the model's context
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
}

impl Default for TranscriptionArgs {
    fn default() -> Self {
        let (language, prompt, max_tokens) = (None, None, None);
        let [translate, timestamps, condition_on_previous_text, greedy] = [false; 4];
        Self {
            language,
            translate,
            timestamps,
            prompt,
            condition_on_previous_text,
            beams: 1,
            greedy,
            max_tokens,
        }
    }
}

impl TranscriptionArgs {
    pub(crate) fn options(&self) -> TranscribeOptions {
        let usual = TranscribeOptions::default();
        TranscribeOptions {
            language: self.language.clone(),
            translate: self.translate,
            timestamps: self.timestamps,
            max_tokens: self.max_tokens.unwrap_or(usual.max_tokens),
            prompt: self.prompt.clone(),
            condition_on_previous_text: self.condition_on_previous_text,
            beams: self.beams,
            temperature_fallback: !self.greedy,
            ..usual
        }
    }
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let model = open.model(&args.model, &args.model_args)?;
    let mut transcriber = Transcriber::new(&model, args.model_args.kv)
        .map_err(|error| error.within(&args.model.display().to_string()))?;
    let options = args.transcription.options();
    for path in &args.files {
        let location = path.display().to_string();
        let sound = sound(path)?;
        let shows_segments = args.transcription.timestamps && !args.json;
        // Lines printed as they are ready already show the progress.
        let bar = (!shows_segments).then(|| Bar::of_seconds(open.quiet));
        let seconds = seconds(&sound);
        let mut each = |segment: &Segment| {
            if let Some(bar) = &bar {
                bar.set(segment.end.min(seconds) as u64, seconds.ceil() as u64);
                return Ok(());
            }
            output::line(format_args!(
                "[{} --> {}] {}",
                clock(segment.start),
                clock(segment.end),
                segment.text
            ))
        };
        let transcript = transcriber.transcribe_with(&sound, &options, &mut each)?;
        drop(bar);
        if args.json {
            let mut told = value(seconds, &transcript);
            told["file"] = location.into();
            output::json(&told)?;
        } else if !shows_segments {
            output::line(&transcript.text)?;
        }
    }
    Ok(())
}

fn sound(path: &Path) -> Result<AudioSamples> {
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .map_err(|error| Error::io("standard input", &error))?;
        return AudioSamples::from_pcm16(&bytes, RATE, 1);
    }
    let location = path.display().to_string();
    audio::decode(input_path::read(path)?, audio::MAX_SAMPLES).map_err(|error| error.within(&location))
}

fn seconds(sound: &AudioSamples) -> f64 {
    sound.samples.len() as f64 / f64::from(sound.rate.max(1))
}

/// The JSON output for a file.
pub(crate) fn heard(
    transcriber: &mut Transcriber,
    sound: &AudioSamples,
    options: &TranscribeOptions,
) -> Result<Value> {
    Ok(value(seconds(sound), &transcriber.transcribe(sound, options)?))
}

fn value(seconds: f64, transcript: &Transcript) -> Value {
    let segments: Vec<Value> = transcript.segments.iter().map(segment).collect();
    json!({"seconds": output::round(seconds, 3), "language": transcript.language, "text": transcript.text,
        "segments": segments})
}

fn segment(segment: &Segment) -> Value {
    json!({"start": segment.start, "end": segment.end, "text": segment.text, "ids": segment.ids,
        "log_probability": segment.log_probability, "silence": segment.no_speech_probability})
}

/// Formats seconds as minutes and seconds, with hours if needed.
fn clock(seconds: f64) -> String {
    let thousandths = (seconds * 1000.0).round() as u64;
    let (hours, minutes) = (thousandths / 3_600_000, thousandths / 60_000 % 60);
    let rest = format!("{minutes:02}:{:02}.{:03}", thousandths / 1000 % 60, thousandths % 1000);
    if hours > 0 { format!("{hours:02}:{rest}") } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_like_a_clock() {
        assert_eq!(clock(0.0), "00:00.000");
        assert_eq!(clock(83.28), "01:23.280");
        assert_eq!(clock(3599.9999), "01:00:00.000");
    }
}
