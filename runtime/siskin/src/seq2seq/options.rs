//! Options for seq2seq generation, with defaults from the model's config.

use serde_json::Value;
use siskin_kernels::ops::attention::CacheType;

use crate::beam_search::{BeamEarlyStopping, MAX_BEAMS, SearchOptions};
use crate::encoder::OverflowMode;
use crate::logits_processors::LogitsProcessorOptions;
use crate::logits_processors::from_config::place;
use crate::model::Model;
use crate::sample::SamplerOptions;
use crate::session::SessionOptions;
use crate::{Error, Result};
use siskin_graph::AdapterSlot;
use siskin_graph::arch::ConfigReader;

/// Options for opening a [`Seq2Seq`](super::Seq2Seq).
#[derive(Clone, Copy, Debug)]
pub struct Seq2SeqOptions {
    /// The maximum number of beams of all texts that are decoded at the same time; a text with more beams enlarges it.
    pub rows: usize,
    /// The maximum number of source tokens per encoder batch; a longer text enlarges it.
    pub batch: usize,
    /// The maximum number of tokens in a source, for encoder–decoder models; 0 means the model's own.
    pub source: usize,
    /// The maximum number of decoder tokens, including the prompt; 0 means the model's own, capped at 1024.
    pub context: usize,
    /// The type of the KV cache; `None` means f16, or f32 for models whose weights are f32.
    pub cache: Option<CacheType>,
    /// The adapter, of those that the model was opened with to choose from; see [`Model::adapter_slot`].
    pub adapter: AdapterSlot,
}

impl Default for Seq2SeqOptions {
    fn default() -> Self {
        Self { rows: 32, batch: 512, source: 0, context: 0, cache: None, adapter: AdapterSlot::MODEL }
    }
}

/// Options for the generated texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Seq2SeqGenerateOptions {
    /// Beams, logits processors and lengths. With one beam, tokens are chosen by the sampler, and `best` is the number
    /// of texts that are sampled per source; there must be one group then.
    pub search: SearchOptions,
    /// The sampler, used with one beam; with more it must be [`SamplerOptions::greedy`]. Logits processors are those of
    /// `search`.
    pub sampler: SamplerOptions,
    /// DRY sequence breakers, as text.
    pub dry_breakers: Vec<String>,
    /// A prefix of each text, such as a task name.
    pub prefix: String,
    /// The tokens before and after each source, instead of the special tokens that the tokenizer adds.
    pub around: Option<(Vec<u32>, Vec<u32>)>,
    /// The decoder start tokens; empty means the model's own.
    pub start: Vec<u32>,
    /// The tokens that each generated text is forced to begin with.
    pub decoder_prefix: Vec<u32>,
    /// How texts that are too long for the model are handled. Parts end at sentence boundaries if there are any.
    pub overflow: OverflowMode,
}

impl Default for Seq2SeqGenerateOptions {
    fn default() -> Self {
        Self {
            search: SearchOptions { beams: 1, ..SearchOptions::default() },
            sampler: SamplerOptions::greedy(),
            dry_breakers: SessionOptions::default().dry_breakers,
            prefix: String::new(),
            around: None,
            start: Vec::new(),
            decoder_prefix: Vec::new(),
            overflow: OverflowMode::Error,
        }
    }
}

impl Seq2SeqGenerateOptions {
    /// Returns the options of the model's generation config; greedy if it has none.
    pub fn of(model: &Model) -> Result<Self> {
        Self::read(&model.config_reader(), model)
    }

    /// Returns the options for the first of `names` that is a task of the model's config.
    pub fn task(model: &Model, names: &[&str]) -> Result<Self> {
        let mut config = model.config_reader().values().clone();
        let known = config.get("task_specific_params").and_then(Value::as_object);
        let task =
            known.and_then(|known| names.iter().find_map(|name| known.get(*name)?.as_object())).cloned();
        let prefix = task.as_ref().and_then(|task| task.get("prefix")).and_then(Value::as_str);
        let prefix = prefix.unwrap_or_default().to_owned();
        if let Some(task) = task {
            match config.get_mut("generation").and_then(Value::as_object_mut) {
                Some(generation) => generation.extend(task),
                None => config.extend(task),
            }
        }
        Ok(Self { prefix, ..Self::read(&ConfigReader::new(config), model)? })
    }

    /// Returns the options for a summary from the model's config.
    pub fn summary(model: &Model) -> Result<Self> {
        reads(model, "summarize")?;
        let writing = Self::task(model, &["summarization"])?;
        let prefix = model.tasks().summarization_prefix;
        Ok(match writing.prefix.is_empty() {
            true => Self { prefix: prefix.to_owned(), ..writing },
            false => writing,
        })
    }

    fn read(config: &ConfigReader, model: &Model) -> Result<Self> {
        let usual = Self::default();
        let count = |key: &str| config.count(&[&place(config, key)]);
        let number = |key: &str| config.number(&[&place(config, key)]);
        let early = match config.get(&place(config, "early_stopping")) {
            Some(Value::Bool(true)) => BeamEarlyStopping::Full,
            Some(Value::String(word)) if word == "never" => BeamEarlyStopping::Never,
            _ => BeamEarlyStopping::Unlikely,
        };
        let reads = model.graphs().encoder.is_some();
        // Decoder start tokens count toward `max_length`.
        let longest = count("max_length")?.filter(|_| reads).map(|length| length.saturating_sub(1));
        let beams = count("num_beams")?.unwrap_or(1).max(1);
        let groups = count("num_beam_groups")?.unwrap_or(1).max(1);
        let groups = if beams.is_multiple_of(groups) { groups } else { 1 };
        let diversity = number("diversity_penalty")?.filter(|_| groups > 1);
        let search = SearchOptions {
            beams,
            num_beam_groups: groups,
            diversity_penalty: diversity.unwrap_or(0.0) as f32,
            length_penalty: number("length_penalty")?.unwrap_or(1.0) as f32,
            early_stopping: early,
            num_return_sequences: 1,
            max_tokens: count("max_new_tokens")?
                .or(longest)
                .filter(|&length| length > 0)
                .unwrap_or(usize::MAX),
            logits_processors: LogitsProcessorOptions::read(config, model.end_ids(), model.choices())?,
        };
        Ok(Self { search, ..usual })
    }

    /// Returns how many hypotheses of a source are decoded at the same time.
    pub(super) fn width(&self) -> usize {
        if self.search.beams > 1 { self.search.beams } else { self.search.num_return_sequences.max(1) }
    }

    pub(super) fn validate(&self) -> Result<()> {
        let SearchOptions { beams, num_beam_groups, num_return_sequences, .. } = &self.search;
        if *beams != 1 {
            if self.sampler != SamplerOptions::greedy() {
                let message = "cannot be combined with beam search; use one beam, or the default sampler";
                return Err(Error::argument("sampler", message));
            }
            return self.search.validate();
        }
        if *num_beam_groups != 1 {
            return Err(Error::argument(
                "num_beam_groups",
                format!("{num_beam_groups} groups of one beam; request more beams"),
            ));
        }
        if self.sampler.logits_processors != LogitsProcessorOptions::default() {
            let message = "set them in the search options instead";
            return Err(Error::argument("sampler.logits_processors", message));
        }
        if *num_return_sequences > MAX_BEAMS {
            return Err(Error::argument(
                "num_return_sequences",
                format!("expected 1 to {MAX_BEAMS}, got {num_return_sequences}"),
            ));
        }
        if *num_return_sequences > 1 && self.sampler.temperature == 0.0 {
            let message = "all texts would be the same; use beams or a temperature";
            return Err(Error::argument("num_return_sequences", message));
        }
        SearchOptions { beams: self.width(), num_beam_groups: 1, ..self.search.clone() }.validate()
    }
}

/// Rejects decoder-only models.
pub(super) fn reads(model: &Model, what: &str) -> Result<()> {
    if model.graphs().encoder.is_some() {
        return Ok(());
    }
    let message = format!("decoder-only models cannot {what}; use a prompt instead, as in `siskin run`");
    Err(Error::unsupported("model", message))
}
