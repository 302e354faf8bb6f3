//! Streaming transcription: one event per segment, as soon as it is complete.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde_json::{Value, json};
use siskin::speech::{Segment, Transcript};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::error::{ApiError, ErrorFormat};
use crate::event_stream::EventSource;
use crate::models::RegisteredModel;

/// The transcript of a file, and its duration.
pub(super) struct SpeechResult {
    pub(super) transcript: Transcript,
    pub(super) seconds: f64,
}

type Transcription = Pin<Box<dyn Future<Output = Result<SpeechResult, ApiError>> + Send>>;

/// The events of a transcript.
pub(super) struct TranscriptStream {
    model: Arc<RegisteredModel>,
    /// `None` after its end.
    transcription: Option<Transcription>,
    /// One for each event of the transcription, which makes few of them.
    segments: UnboundedReceiver<Segment>,
    events: VecDeque<Value>,
    has_text: bool,
}

impl TranscriptStream {
    /// Begins a transcription, and waits for its first event. Errors before it are those of the request.
    pub(super) async fn begin(
        model: Arc<RegisteredModel>,
        transcription: Transcription,
        segments: UnboundedReceiver<Segment>,
    ) -> Result<Self, ApiError> {
        let transcription = Some(transcription);
        let mut stream = Self { model, transcription, segments, events: VecDeque::new(), has_text: false };
        poll_fn(|context| stream.poll(context)).await?;
        Ok(stream)
    }

    /// Waits until there is an event, or the end.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ApiError>> {
        if !self.events.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let Some(transcription) = &mut self.transcription else { return Poll::Ready(Ok(())) };
        let outcome = match transcription.as_mut().poll(context) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        };
        while let Poll::Ready(Some(segment)) = self.segments.poll_recv(context) {
            self.push(&segment);
        }
        if let Some(outcome) = outcome {
            self.transcription = None;
            let SpeechResult { transcript, seconds } = outcome?;
            let usage = json!({"type": "duration", "seconds": seconds.ceil()});
            self.events
                .push_back(json!({"type": "transcript.text.done", "text": transcript.text, "usage": usage}));
        }
        if self.events.is_empty() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Adds the text of a segment, with the space before it unless it is the first.
    fn push(&mut self, segment: &Segment) {
        let space = if self.has_text && self.begins_with_space(segment) { " " } else { "" };
        let delta = format!("{space}{}", segment.text);
        self.has_text = true;
        self.events.push_back(json!({"type": "transcript.text.delta", "delta": delta}));
    }

    fn begins_with_space(&self, segment: &Segment) -> bool {
        let Ok(tokenizer) = self.model.model.tokenizer() else { return false };
        let pieces = segment.ids.iter().filter_map(|id| tokenizer.piece(*id, true).ok());
        // After the timestamp.
        let first = pieces.into_iter().find(|piece| !piece.is_empty() && !piece.starts_with(b"<|"));
        first.is_some_and(|piece| piece.starts_with(b" "))
    }
}

impl EventSource for TranscriptStream {
    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Value>> {
        match self.poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => Poll::Ready(self.events.pop_front()),
            Poll::Ready(Err(error)) => Poll::Ready(Some(error_event(&error))),
        }
    }
}

fn error_event(error: &ApiError) -> Value {
    let mut event = error.body_in(ErrorFormat::OpenAi);
    event["type"] = "error".into();
    event
}
