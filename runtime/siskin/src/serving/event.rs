//! What happens to a request.

use std::time::Duration;

use crate::Error;
use crate::sample::SampledToken;
use crate::session::FinishReason;

/// What happened to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum GenerationEvent {
    /// The prompt was scored: the first event of requests with
    /// [`GenerationRequest::prompt_log_probabilities`](super::GenerationRequest::prompt_log_probabilities).
    Prompt {
        /// The tokens of the prompt from the second on.
        tokens: Vec<TokenScore>,
    },
    /// A token was generated.
    Token {
        /// The token and its log-probability, which is NaN unless enabled in the sampler options.
        token: SampledToken,
        /// The text that it completes: whole characters, and none that may be the beginning of a stop string.
        text: String,
        /// The most likely tokens, if enabled in the sampler options.
        top: Vec<SampledToken>,
        /// When it was sampled, measured from the submission.
        time: Duration,
    },
    /// The last event.
    End {
        /// The text that was held back.
        text: String,
        /// The end token, if the request ended with one and log-probabilities are enabled. It does not belong to the response.
        end_token: Option<Box<TokenScore>>,
        /// Why the request ended.
        end: StreamEnd,
        /// What it used.
        usage: StreamUsage,
        /// How long it took.
        times: StreamTimes,
    },
}

/// A token and its log-probability, given the tokens before it.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenScore {
    /// The token and its log-probability.
    pub token: SampledToken,
    /// The most likely tokens in its place, if enabled in the sampler options.
    pub top: Vec<SampledToken>,
}

/// Why a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The generation ended.
    Finished(FinishReason),
    /// The request was canceled.
    Canceled,
    /// It was paused for too long, since its events were not taken.
    ReaderTooSlow,
    /// Its deadline passed.
    DeadlineExceeded,
    /// It failed.
    Failed(Error),
}

/// The tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamUsage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them whose keys and values were in the prefix cache.
    pub cached_tokens: usize,
    /// Generated tokens.
    pub generated_tokens: usize,
}

/// When a request came how far, measured from its submission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTimes {
    /// Its first forward pass began.
    pub start: Option<Duration>,
    /// Its first token was sampled.
    pub first_token: Option<Duration>,
    /// It ended.
    pub end: Duration,
}
