//! `siskin transcribe`: speech to text.

use crate::options::{ModelArgs, OpenArgs};
use crate::output::{self, Bar};
use serde_json::{Value, json};
use siskin::audio::{RATE, Sound};
use siskin::speech::{Segment, TranscribeOptions, Transcriber, Transcript};
use siskin::{Error, Result};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Write down what is said
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin file, or a folder of CTranslate2 or Hugging Face, of a Whisper model
    model: PathBuf,
    /// WAVE files; `-` for 16-bit samples without a header on standard input, 16000 in a second
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    hearing: HearingArgs,
    #[command(flatten)]
    model_args: ModelArgs,
    /// Print a JSON object for each file
    #[arg(long)]
    json: bool,
}

/// What is made of speech.
#[derive(clap::Args, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HearingArgs {
    /// The language that is spoken, such as en; without it, what the model hears first
    #[arg(long, value_name = "CODE")]
    language: Option<String>,
    /// Write English, whatever is spoken
    #[arg(long)]
    translate: bool,
    /// Print segments with their times
    #[arg(long)]
    timestamps: bool,
    /// What might have been said before, with names and words that may occur
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Let the model see the text of the 30 seconds before
    #[arg(long)]
    previous: bool,
    /// Texts that go on at the same time, of which the likeliest by its length is taken; 1: the likeliest token each time
    #[arg(long, default_value_t = 1, value_name = "N")]
    beams: usize,
    /// Always take the likeliest token, also where this leads round in circles
    #[arg(long)]
    greedy: bool,
    /// The most tokens of 30 seconds; without it, half the model's context
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
}

impl Default for HearingArgs {
    fn default() -> Self {
        let (language, prompt, max_tokens) = (None, None, None);
        let [translate, timestamps, previous, greedy] = [false; 4];
        Self { language, translate, timestamps, prompt, previous, beams: 1, greedy, max_tokens }
    }
}

impl HearingArgs {
    pub(crate) fn options(&self) -> TranscribeOptions {
        let usual = TranscribeOptions::default();
        TranscribeOptions {
            language: self.language.clone(),
            translate: self.translate,
            timestamps: self.timestamps,
            max_tokens: self.max_tokens.unwrap_or(usual.max_tokens),
            prompt: self.prompt.clone(),
            previous: self.previous,
            beams: self.beams,
            again: !self.greedy,
            ..usual
        }
    }
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let model = open.model(&args.model, &args.model_args)?;
    let mut transcriber = Transcriber::new(&model, args.model_args.kv)
        .map_err(|error| error.within(&args.model.display().to_string()))?;
    let options = args.hearing.options();
    for path in &args.files {
        let place = path.display().to_string();
        let sound = sound(path).map_err(|error| error.within(&place))?;
        let shows_segments = args.hearing.timestamps && !args.json;
        // Lines that come as they are ready show how far it is.
        let bar = (!shows_segments).then(|| Bar::of_seconds(open));
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
            told["file"] = place.into();
            output::json(&told)?;
        } else if !shows_segments {
            output::line(&transcript.text)?;
        }
    }
    Ok(())
}

fn sound(path: &Path) -> Result<Sound> {
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(|error| Error::io("", &error))?;
        return Sound::from_pcm16(&bytes, RATE, 1);
    }
    Sound::from_wav(&std::fs::read(path).map_err(|error| Error::io("", &error))?)
}

fn seconds(sound: &Sound) -> f64 {
    sound.samples.len() as f64 / f64::from(sound.rate.max(1))
}

/// What `--json` prints of a sound.
pub(crate) fn heard(
    transcriber: &mut Transcriber,
    sound: &Sound,
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
        "log_probability": segment.log_probability, "silence": segment.silence})
}

/// Seconds as minutes and seconds, with hours where there are any.
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
