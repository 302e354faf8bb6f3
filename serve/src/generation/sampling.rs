//! The sampling fields of requests.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use serde::Deserialize;
use siskin::Model;
use siskin::constraint::StructuredOutput;
use siskin::logits_processors::LogitsProcessorOptions;
use siskin::sample::SamplerOptions;
use siskin::serving::{GenerationRequest, PromptInput, RequestClass};

use crate::body::OneOrMany;
use crate::call::Call;
use crate::error::ApiError;
use siskin_format::JsonFields;

/// The maximum number of choices of a request.
const MAX_CHOICES: usize = 16;
/// The maximum number of stop strings, and of their bytes.
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 2048;
/// The maximum number of tokens with a bias.
const MAX_BIASES: usize = 1024;
/// The maximum number of most likely tokens to report.
const MAX_TOP_LOG_PROBABILITIES: usize = 20;

/// Fields that have no effect here.
const IGNORED: [&str; 5] =
    ["metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention"];

/// `stream_options`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StreamOptions {
    include_usage: Option<bool>,
    /// The usage so far in every chunk, as in vLLM.
    continuous_usage_stats: Option<bool>,
    /// Padding against side channels on a network: without effect on loopback.
    include_obfuscation: Option<bool>,
}

/// Whether a response is streamed, and whether it ends with the usage.
#[derive(Clone, Copy)]
pub(crate) struct Streaming {
    pub(crate) is_on: bool,
    pub(crate) include_usage: bool,
    /// Every chunk has the usage so far.
    pub(crate) has_continuous_usage: bool,
}

impl Streaming {
    pub(crate) fn take(fields: &mut JsonFields<'_>) -> Result<Self, ApiError> {
        let is_on = fields.take("stream")?.unwrap_or(false);
        let options: Option<StreamOptions> = fields.take("stream_options")?;
        if options.is_some() && !is_on {
            return Err(ApiError::invalid("stream_options", "requires `stream`"));
        }
        let options = options.unwrap_or_default();
        let include_usage = options.include_usage.unwrap_or(false);
        let has_continuous_usage = include_usage && options.continuous_usage_stats.unwrap_or(false);
        Ok(Self { is_on, include_usage, has_continuous_usage })
    }
}

/// The fields that chat completions and completions share: sampling, limits, priority and client.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SamplingFields {
    pub(crate) n: Option<usize>,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) min_tokens: Option<usize>,
    pub(crate) ignore_eos: Option<bool>,
    pub(crate) temperature: Option<f32>,
    pub(crate) top_p: Option<f32>,
    pub(crate) top_k: Option<i64>,
    pub(crate) min_p: Option<f32>,
    pub(crate) typical_p: Option<f32>,
    pub(crate) repetition_penalty: Option<f32>,
    pub(crate) frequency_penalty: Option<f32>,
    pub(crate) presence_penalty: Option<f32>,
    pub(crate) logit_bias: Option<BTreeMap<String, f32>>,
    pub(crate) stop: Option<OneOrMany<String>>,
    pub(crate) seed: Option<i64>,
    pub(crate) priority: Option<i64>,
    pub(crate) cache_salt: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) safety_identifier: Option<String>,
}

/// Takes the field `name`, the number of most likely tokens to report.
pub(crate) fn take_top_log_probabilities(
    fields: &mut JsonFields<'_>,
    name: &str,
) -> Result<Option<usize>, ApiError> {
    let top: Option<usize> = fields.take(name)?;
    match top.filter(|&top| top > MAX_TOP_LOG_PROBABILITIES) {
        Some(top) => {
            let message = format!("expected at most {MAX_TOP_LOG_PROBABILITIES}, got {top}");
            Err(ApiError::invalid(name, message))
        }
        None => Ok(top),
    }
}

impl SamplingFields {
    /// Takes all fields that are left.
    pub(crate) fn take(mut fields: JsonFields<'_>) -> Result<Self, ApiError> {
        fields.ignore(&IGNORED);
        Ok(fields.into_options()?)
    }

    /// Returns the number of choices for each prompt.
    pub(crate) fn choices(&self) -> usize {
        self.n.unwrap_or(1)
    }

    pub(crate) fn generates_nothing(&self) -> bool {
        self.max_tokens == Some(0)
    }

    /// Sets the maximum number of tokens to that of `max_completion_tokens`, unless it is `None`.
    pub(crate) fn limit(&mut self, max_tokens: Option<usize>) {
        self.max_tokens = max_tokens.or(self.max_tokens);
    }

    /// Returns the requests for the choices of a prompt, which have consecutive seeds. Their prompts are to be set.
    ///
    /// `top_log_probabilities`: the number of most likely tokens to report; `None`: no log-probabilities. `scores_prompt`: the
    /// log-probabilities of the prompt are reported, too, and nothing needs to be generated.
    pub(crate) fn variants(
        &self,
        top_log_probabilities: Option<usize>,
        structured_output: Option<StructuredOutput>,
        scores_prompt: bool,
        call: &Call,
        model: &Model,
    ) -> Result<Vec<GenerationRequest>, ApiError> {
        let choices = self.choices();
        if !(1..=MAX_CHOICES).contains(&choices) {
            return Err(ApiError::invalid("n", format!("expected 1 to {MAX_CHOICES}, got {choices}")));
        }
        let stop = self.stop.as_ref().map_or(Vec::new(), OneOrMany::to_vec);
        let stop_bytes: usize = stop.iter().map(String::len).sum();
        if stop.len() > MAX_STOPS || stop_bytes > MAX_STOP_BYTES {
            let message =
                format!("expected at most {MAX_STOPS} strings with at most {MAX_STOP_BYTES} bytes together");
            return Err(ApiError::invalid("stop", message));
        }
        let only_scores = scores_prompt && self.max_tokens == Some(0);
        if self.max_tokens == Some(0) && !only_scores {
            return Err(ApiError::invalid("max_tokens", "must be at least 1"));
        }
        if self.logit_bias.as_ref().is_some_and(|biases| biases.len() > MAX_BIASES) {
            return Err(ApiError::invalid("logit_bias", format!("expected at most {MAX_BIASES} tokens")));
        }
        let user = self.user.as_deref().or(self.safety_identifier.as_deref());
        let class = match self.priority.unwrap_or(0) {
            ..0 => RequestClass::Interactive,
            0 => RequestClass::Normal,
            1.. => RequestClass::Batch,
        };
        let first = GenerationRequest {
            max_tokens: self.max_tokens.unwrap_or(usize::MAX).min(call.state.max_tokens),
            sampler: self.sampler(top_log_probabilities, model.end_ids())?,
            structured_output,
            prompt_log_probabilities: scores_prompt,
            stop,
            class: call.client.class(class),
            client: call.client.id(user),
            salt: call.client.salt(self.cache_salt.as_deref()),
            ..GenerationRequest::new(PromptInput::Tokens(Vec::new()))
        };
        let choice = |index: usize| {
            let mut request = first.clone();
            request.sampler.seed = request.sampler.seed.wrapping_add(index as u64);
            request
        };
        Ok((0..choices).map(choice).collect())
    }

    fn sampler(
        &self,
        top_log_probabilities: Option<usize>,
        end_ids: &[u32],
    ) -> Result<SamplerOptions, ApiError> {
        let usual = SamplerOptions::default();
        let bias = |(token, bias): (&String, &f32)| match token.parse() {
            Ok(id) => Ok((id, *bias)),
            Err(_) => Err(ApiError::invalid("logit_bias", format!("`{token}` is not a token id"))),
        };
        let random = || RandomState::new().build_hasher().finish();
        let min_tokens = self.min_tokens.unwrap_or(0);
        if let Some(max_tokens) = self.max_tokens.filter(|max_tokens| min_tokens > *max_tokens) {
            let message = format!("{min_tokens} exceeds the maximum of {max_tokens} tokens");
            return Err(ApiError::invalid("min_tokens", message));
        }
        let logits_processors = LogitsProcessorOptions {
            eos_token_ids: if min_tokens > 0 { end_ids.to_vec() } else { Vec::new() },
            min_tokens,
            suppress: if self.ignore_eos == Some(true) { end_ids.to_vec() } else { Vec::new() },
            ..LogitsProcessorOptions::default()
        };
        let options = SamplerOptions {
            logits_processors,
            seed: self.seed.map_or_else(random, i64::cast_unsigned),
            temperature: self.temperature.unwrap_or(usual.temperature),
            top_p: self.top_p.unwrap_or(usual.top_p),
            // As in other servers, -1 disables it.
            top_k: self.top_k.map_or(usual.top_k, |top_k| usize::try_from(top_k).unwrap_or(0)),
            min_p: self.min_p.unwrap_or(usual.min_p),
            typical_p: self.typical_p.unwrap_or(usual.typical_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(usual.repetition_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(usual.frequency_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(usual.presence_penalty),
            logit_bias: self.logit_bias.iter().flatten().map(bias).collect::<Result<_, _>>()?,
            log_probabilities: top_log_probabilities.is_some(),
            top_log_probabilities: top_log_probabilities.unwrap_or(0),
            ..usual
        };
        options.validate()?;
        Ok(options)
    }
}
