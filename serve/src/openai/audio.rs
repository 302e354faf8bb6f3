//! `POST /v1/audio/transcriptions` and `POST /v1/audio/translations`.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value, json};
use siskin::speech::{Segment, TranscribeOptions, Transcriber, Transcript};
use siskin_media::audio;
use tokio::sync::mpsc::unbounded_channel;

use super::subtitles;
use super::transcript_stream::{SpeechResult, TranscriptStream};
use crate::call::Call;
use crate::error::{ApiError, FieldNames};
use crate::event_stream::{EventStream, StreamFormat};
use crate::multipart::Form;
use crate::response::{self, Response};
use crate::worker_task::run_on_worker;

/// The limit on the samples of a file: 512 MiB of memory, 46 minutes at 48 kHz.
const MAX_SAMPLES: usize = 1 << 27;

/// How a transcript is returned.
#[derive(Clone, Copy)]
enum Format {
    Json,
    VerboseJson,
    Text,
    SubRip,
    WebVtt,
}

impl Format {
    fn take(form: &mut Form) -> Result<Self, ApiError> {
        Ok(match form.take_text("response_format")?.as_deref() {
            None | Some("json") => Self::Json,
            Some("verbose_json") => Self::VerboseJson,
            Some("text") => Self::Text,
            Some("srt") => Self::SubRip,
            Some("vtt") => Self::WebVtt,
            Some(other) => {
                let message =
                    format!("`{other}` is not supported; expected json, verbose_json, text, srt or vtt");
                return Err(ApiError::invalid("response_format", message));
            }
        })
    }

    fn has_times(self) -> bool {
        matches!(self, Self::VerboseJson | Self::SubRip | Self::WebVtt)
    }
}

/// Returns the text of speech.
pub(crate) async fn transcriptions(call: Call) -> Result<Response, ApiError> {
    answer(call, false).await
}

/// Returns the English text of speech.
pub(crate) async fn translations(call: Call) -> Result<Response, ApiError> {
    answer(call, true).await
}

async fn answer(mut call: Call, translate: bool) -> Result<Response, ApiError> {
    call.client.begin_request()?;
    let (body, upload) = call.read_upload().await?;
    let mut form = Form::parse(call.headers(), &body)?;
    let model = match form.take_text("model")? {
        Some(name) => call.model(&name)?,
        None => call.only_model()?,
    };
    let file = form.take_file("file")?;
    let format = Format::take(&mut form)?;
    let language = if translate { None } else { form.take_text("language")? };
    let prompt = form.take_text("prompt")?;
    let is_streamed = take_stream(&mut form, format, translate)?;
    reject_unsupported(&mut form)?;
    form.finish()?;
    let workers = Arc::clone(model.speech()?);
    let options = TranscribeOptions {
        language,
        prompt,
        translate,
        timestamps: format.has_times() || is_streamed,
        ..TranscribeOptions::default()
    };
    let (sender, segments) = unbounded_channel();
    let (client, of) = (call.client.clone(), Arc::clone(&model));
    let transcribe = move |transcriber: &mut Transcriber| {
        let _upload = upload;
        let sound = audio::decode(file, MAX_SAMPLES).map_err(|error| error.within("file"))?;
        let seconds = sound.samples.len() as f64 / f64::from(sound.rate.max(1));
        let transcript = transcriber.transcribe_with(&sound, &options, &mut |segment| {
            // Counted now: a client that leaves in the middle has had these.
            client.count_tokens(segment.ids.len());
            of.metrics.record_generated(segment.ids.len());
            // If nothing reads it, it is not needed.
            let _ = sender.send(segment.clone());
            Ok(())
        })?;
        Ok(SpeechResult { transcript, seconds })
    };
    let of = Arc::clone(&model);
    let result = async move { run_on_worker(&of, &workers, locate, transcribe).await };
    if is_streamed {
        let stream = TranscriptStream::begin(model, Box::pin(result), segments).await?;
        return Ok(response::stream(EventStream::new(StreamFormat::TypedEvents, Box::new(stream))));
    }
    let SpeechResult { transcript, seconds } = result.await?;
    Ok(render(format, &transcript, seconds, translate))
}

/// Takes whether the transcript is streamed.
fn take_stream(form: &mut Form, format: Format, translate: bool) -> Result<bool, ApiError> {
    match form.take_text("stream")?.as_deref() {
        None | Some("false") => Ok(false),
        Some("true") if translate || !matches!(format, Format::Json) => {
            Err(ApiError::invalid("stream", "only transcriptions as JSON are streamed"))
        }
        Some("true") => Ok(true),
        Some(_) => Err(ApiError::invalid("stream", "expected true or false")),
    }
}

/// Returns how an error of the library is located: one of a file that is not audio is an error of the client.
fn locate(error: siskin::Error) -> ApiError {
    match error.location().starts_with("file") {
        true => ApiError::invalid("file", error.message()),
        false => FieldNames { prompt: "prompt", structured_output: "" }.locate(error),
    }
}

/// Rejects what changes results and is not supported, and takes the values of these fields that change none.
fn reject_unsupported(form: &mut Form) -> Result<(), ApiError> {
    let temperature = form.take_text("temperature")?;
    if temperature.is_some_and(|temperature| temperature.parse::<f32>() != Ok(0.0)) {
        let message = "only 0 is supported: it is raised when the text is repetitive";
        return Err(ApiError::invalid("temperature", message));
    }
    let granularities = form.take_texts("timestamp_granularities[]")?;
    if granularities.iter().any(|granularity| granularity != "segment") {
        return Err(ApiError::invalid("timestamp_granularities[]", "only `segment` is supported"));
    }
    Ok(())
}

fn render(format: Format, transcript: &Transcript, seconds: f64, translate: bool) -> Response {
    match format {
        Format::Json => {
            let usage = json!({"type": "duration", "seconds": seconds.ceil()});
            response::json(StatusCode::OK, &json!({"text": transcript.text, "usage": usage}))
        }
        Format::VerboseJson => {
            let segments: Vec<Value> = transcript.segments.iter().enumerate().map(segment).collect();
            let object = json!({
                "task": if translate { "translate" } else { "transcribe" },
                "language": transcript.language,
                "duration": seconds,
                "text": transcript.text,
                "segments": segments,
            });
            response::json(StatusCode::OK, &object)
        }
        Format::Text => response::text("text/plain; charset=utf-8", format!("{}\n", transcript.text)),
        Format::SubRip => {
            response::text("application/x-subrip; charset=utf-8", subtitles::sub_rip(&transcript.segments))
        }
        Format::WebVtt => response::text("text/vtt; charset=utf-8", subtitles::web_vtt(&transcript.segments)),
    }
}

fn segment((index, segment): (usize, &Segment)) -> Value {
    json!({
        "id": index,
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": segment.ids,
        "avg_logprob": segment.log_probability,
        "no_speech_prob": segment.no_speech_probability,
    })
}
