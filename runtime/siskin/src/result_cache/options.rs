//! Options as bytes for keys. Each field is written out, so that a key does not depend on the names of types, and a new
//! field does not compile before it has its place here.

use siskin_kernels::ops::attention::CacheType;

use crate::encoder::{EmbedOptions, OverflowMode, Pooling, Prompt};
use crate::logits_processors::LogitsProcessorOptions;
use crate::sample::SamplerOptions;
use crate::session::{GenerateOptions, SessionOptions};
use siskin_graph::StreamingWindow;

/// Bytes of fields in a fixed order. Lists are preceded by their lengths.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn sizes(&mut self, sizes: &[usize]) -> &mut Self {
        sizes.iter().fold(self, |fields, &size| fields.number(size as u64))
    }

    fn floats(&mut self, values: &[f32]) -> &mut Self {
        values.iter().fold(self, |fields, value| fields.number(u64::from(value.to_bits())))
    }

    fn option(&mut self, size: Option<usize>) -> &mut Self {
        self.sizes(&[usize::from(size.is_some()), size.unwrap_or(0)])
    }

    fn ids(&mut self, ids: &[u32]) -> &mut Self {
        let fields = self.sizes(&[ids.len()]);
        ids.iter().fold(fields, |fields, &id| fields.number(u64::from(id)))
    }

    fn id_lists(&mut self, lists: &[Vec<u32>]) -> &mut Self {
        let fields = self.sizes(&[lists.len()]);
        lists.iter().fold(fields, |fields, list| fields.ids(list))
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.sizes(&[text.len()]).0.extend(text.as_bytes());
        self
    }

    fn texts(&mut self, texts: &[String]) -> &mut Self {
        let fields = self.sizes(&[texts.len()]);
        texts.iter().fold(fields, |fields, text| fields.text(text))
    }

    fn cache_type(&mut self, kind: Option<CacheType>) -> &mut Self {
        // Part of saved keys: a new type takes a new number.
        self.option(kind.map(|kind| match kind {
            CacheType::Int8 => 0,
            CacheType::F16 => 1,
            CacheType::F32 => 2,
            CacheType::Int14 => 3,
        }))
    }
}

/// Returns the options that the response to a given prompt depends on: all but those of memory and speed, and the
/// variables of the template, which the tokens of the prompt show. Greedy decoding does not use the seed.
pub(super) fn of_generation(session: &SessionOptions, generate: GenerateOptions) -> Vec<u8> {
    let SessionOptions {
        batch: _,
        encoder_context: _,
        template: _,
        // A part of the key of the model.
        adapter: _,
        context,
        window,
        cache,
        forks,
        budget,
        sampler,
        stop,
        dry_breakers,
    } = session;
    let GenerateOptions { max_tokens, raw, parse_special: special } = generate;
    let mut fields = Fields::default();
    fields.sizes(&[*context, *forks]).option(*budget).cache_type(*cache);
    let window = window.map(|StreamingWindow { window, sinks }| [window, sinks]);
    fields.sizes(&[usize::from(window.is_some())]).sizes(&window.unwrap_or_default());
    fields.texts(stop).texts(dry_breakers);
    fields.sizes(&[max_tokens, usize::from(raw), usize::from(special)]);
    add_sampler(&mut fields, sampler);
    fields.0
}

fn add_sampler(fields: &mut Fields, sampler: &SamplerOptions) {
    let SamplerOptions {
        seed,
        temperature,
        dynamic_temperature_range,
        dynamic_temperature_exponent,
        top_k,
        top_p,
        min_p,
        typical_p,
        xtc_probability,
        xtc_threshold,
        repetition_penalty,
        frequency_penalty,
        presence_penalty,
        penalty_last_n,
        dry_multiplier,
        dry_base,
        dry_allowed_length,
        dry_last_n,
        dry_sequence_breakers,
        mirostat,
        mirostat_tau,
        mirostat_eta,
        logit_bias,
        logits_processors,
        log_probabilities,
        top_log_probabilities,
    } = sampler;
    fields.number(if *temperature == 0.0 { 0 } else { *seed });
    fields.floats(&[*temperature, *dynamic_temperature_range, *dynamic_temperature_exponent]);
    fields.floats(&[*top_p, *min_p, *typical_p, *xtc_probability, *xtc_threshold]);
    fields.floats(&[*repetition_penalty, *frequency_penalty, *presence_penalty]);
    fields.floats(&[*dry_multiplier, *dry_base, *mirostat_tau, *mirostat_eta]);
    fields.sizes(&[*top_k, *penalty_last_n, *dry_allowed_length, *dry_last_n, usize::from(*mirostat)]);
    fields.sizes(&[usize::from(*log_probabilities), *top_log_probabilities]);
    fields.id_lists(dry_sequence_breakers);
    fields.sizes(&[logit_bias.len()]);
    for (token, bias) in logit_bias {
        fields.number(u64::from(*token)).floats(&[*bias]);
    }
    add_logits_processors(fields, logits_processors);
}

fn add_logits_processors(fields: &mut Fields, options: &LogitsProcessorOptions) {
    let LogitsProcessorOptions {
        eos_token_ids,
        repetition_penalty,
        no_repeat_ngram_size,
        encoder_no_repeat_ngram_size,
        bad_words,
        min_length,
        min_tokens,
        forced_bos_token_id,
        forced_eos_token_ids,
        suppress,
        suppress_first,
    } = options;
    fields
        .ids(eos_token_ids)
        .floats(&[*repetition_penalty])
        .sizes(&[*no_repeat_ngram_size, *encoder_no_repeat_ngram_size]);
    fields.id_lists(bad_words).sizes(&[*min_length, *min_tokens]);
    fields
        .option(forced_bos_token_id.map(|id| id as usize))
        .ids(forced_eos_token_ids)
        .ids(suppress)
        .ids(suppress_first);
}

/// Returns the options that an embedding depends on.
pub(super) fn of_embedding(cache: CacheType, options: &EmbedOptions) -> Vec<u8> {
    // The adapter is a part of the model's key.
    let EmbedOptions { pooling, normalize, dimensions, overflow, prompt, adapter: _ } = options;
    let mut fields = Fields::default();
    fields.cache_type(Some(cache)).sizes(&[usize::from(*normalize), *dimensions]);
    fields.option(Pooling::NAMES.iter().position(|(known, _)| known == pooling));
    match overflow {
        OverflowMode::Error => fields.sizes(&[0, 0]),
        OverflowMode::Truncate => fields.sizes(&[1, 0]),
        OverflowMode::Window { overlap } => fields.sizes(&[2, *overlap]),
    };
    match prompt {
        Prompt::Default => fields.sizes(&[0, 0]),
        Prompt::None => fields.sizes(&[1, 0]),
        Prompt::Index(index) => fields.sizes(&[2, *index]),
    };
    fields.0
}
