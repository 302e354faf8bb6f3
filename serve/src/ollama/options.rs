//! `options`: how text is generated.

use serde::Deserialize;
use serde_json::value::RawValue;
use siskin::serving::GenerationRequest;
use siskin_format::JsonFields;

use crate::body::OneOrMany;
use crate::call::Call;
use crate::error::ApiError;
use crate::generation::SamplingFields;
use crate::models::RegisteredModel;

const FIELD: &str = "options";

/// Options about how Ollama computes, which change no result here. The context is never shifted, so `num_keep` is one.
const IGNORED: [&str; 9] = [
    "num_keep",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "num_thread",
    "use_mmap",
    "use_mlock",
    "numa",
    "low_vram",
];

/// Options with the names of Ollama.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NamedOptions {
    num_predict: Option<i64>,
    num_ctx: Option<usize>,
    seed: Option<i64>,
    stop: Option<OneOrMany<String>>,
    temperature: Option<f32>,
    top_k: Option<i64>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    repeat_last_n: Option<i64>,
    repeat_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    mirostat: Option<u32>,
    mirostat_tau: Option<f32>,
    mirostat_eta: Option<f32>,
    tfs_z: Option<f32>,
    penalize_newline: Option<bool>,
}

/// How text is generated.
pub(super) struct RequestOptions {
    sampling: SamplingFields,
    /// The history of penalties in tokens; `None`: the usual.
    penalty_last_n: Option<usize>,
    mirostat: bool,
    mirostat_tau: Option<f32>,
    mirostat_eta: Option<f32>,
}

/// Returns the name of an option in a request, given its name in the server.
fn name(field: &str) -> String {
    let name = match field {
        "max_tokens" => "num_predict",
        "repetition_penalty" => "repeat_penalty",
        "penalty_last_n" => "repeat_last_n",
        other => other,
    };
    format!("{FIELD}.{name}")
}

impl RequestOptions {
    /// Takes the field.
    pub(super) fn take(fields: &mut JsonFields<'_>, model: &RegisteredModel) -> Result<Self, ApiError> {
        let given: Option<&RawValue> = fields.take(FIELD)?;
        let read = |given: &RawValue| -> siskin::Result<NamedOptions> {
            let mut options = JsonFields::read(given.get())?;
            options.ignore_null();
            options.ignore(&IGNORED);
            options.into_options()
        };
        let named = given.map_or_else(|| Ok(NamedOptions::default()), read);
        Self::new(named.map_err(|error| error.within_field(FIELD))?, model)
    }

    fn new(named: NamedOptions, model: &RegisteredModel) -> Result<Self, ApiError> {
        let limit = model.context_length;
        if let Some(context) = named.num_ctx.filter(|context| *context > limit) {
            let message = format!(
                "{context} exceeds the context of the server, which is {limit} tokens; restart it with \
                 --context {context}"
            );
            return Err(ApiError::invalid(&name("num_ctx"), message));
        }
        let unsupported = [
            ("tfs_z", named.tfs_z.is_some_and(|z| z != 1.0)),
            ("penalize_newline", named.penalize_newline == Some(false)),
            ("mirostat", !matches!(named.mirostat, None | Some(0 | 2))),
        ];
        if let Some((field, _)) = unsupported.iter().find(|(_, is_given)| *is_given) {
            return Err(ApiError::invalid(&name(field), "this value is not supported"));
        }
        let sampling = SamplingFields {
            // As in Ollama, there is no limit unless it is positive.
            max_tokens: named
                .num_predict
                .and_then(|count| usize::try_from(count).ok())
                .filter(|count| *count > 0),
            // As in Ollama, -1 stands for a random one.
            seed: named.seed.filter(|seed| *seed != -1),
            stop: named.stop,
            temperature: named.temperature,
            top_k: named.top_k,
            top_p: named.top_p,
            min_p: named.min_p,
            typical_p: named.typical_p,
            repetition_penalty: named.repeat_penalty,
            presence_penalty: named.presence_penalty,
            frequency_penalty: named.frequency_penalty,
            ..SamplingFields::default()
        };
        // As in Ollama, -1 is the whole context.
        let penalty_last_n = named.repeat_last_n.map(|count| usize::try_from(count).unwrap_or(limit));
        Ok(Self {
            sampling,
            penalty_last_n,
            mirostat: named.mirostat == Some(2),
            mirostat_tau: named.mirostat_tau,
            mirostat_eta: named.mirostat_eta,
        })
    }

    /// Returns a request without a prompt. `top_log_probabilities`: as in [`SamplingFields::variants`].
    pub(super) fn request(
        &self,
        top_log_probabilities: Option<usize>,
        call: &Call,
        model: &RegisteredModel,
    ) -> Result<GenerationRequest, ApiError> {
        let variants = self.sampling.variants(top_log_probabilities, None, false, call, &model.model);
        let mut request = variants.map_err(|error| error.renamed(name))?.swap_remove(0);
        let sampler = &mut request.sampler;
        sampler.penalty_last_n = self.penalty_last_n.unwrap_or(sampler.penalty_last_n);
        sampler.mirostat = self.mirostat;
        sampler.mirostat_tau = self.mirostat_tau.unwrap_or(sampler.mirostat_tau);
        sampler.mirostat_eta = self.mirostat_eta.unwrap_or(sampler.mirostat_eta);
        sampler.validate().map_err(|error| ApiError::from(error).renamed(name))?;
        Ok(request)
    }
}
