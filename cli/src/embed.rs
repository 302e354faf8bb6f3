//! `siskin embed`: text embeddings.

use crate::options::{ModelArgs, OpenArgs, ResultCacheArgs, named};
use crate::output;
use crate::texts::{OVERLAP, OverflowArgs, TextSourceArgs};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use siskin::encoder::{EmbedOptions, OverflowMode, Pooling, Prompt};
use siskin::{Encoder, EncoderOptions, Model, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// Compute text embeddings, one vector per line
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model: a name (see `siskin pull --help`), a .siskin, GGUF or ONNX file, or a folder
    model: PathBuf,
    #[command(flatten)]
    texts: TextSourceArgs,
    #[command(flatten)]
    vectors: VectorArgs,
    #[command(flatten)]
    overflow: OverflowArgs,
    /// Batch size in tokens
    #[arg(long, default_value_t = 512, value_name = "N")]
    batch_size: usize,
    /// Print a JSON object for each text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cache: ResultCacheArgs,
    #[command(flatten)]
    model_args: ModelArgs,
}

/// Embedding options.
#[derive(clap::Args, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct VectorArgs {
    /// Pooling: mean, cls, last, max or weighted; default: the pooling that the model was trained with
    #[arg(long, value_name = "MODE", value_parser = named(Pooling::NAMES))]
    #[serde(deserialize_with = "pooling")]
    pooling: Option<Pooling>,
    /// Prepend one of the model's prompts to each text, by its name; `none` for no prompt; default: the model's default
    #[arg(long, value_name = "NAME")]
    prompt_name: Option<String>,
    /// Do not L2-normalize the vectors
    #[arg(long)]
    no_normalize: bool,
    /// Truncate vectors to N dimensions, for models trained for it (Matryoshka); 0 keeps all
    #[arg(long, default_value_t = 0, value_name = "N")]
    dimensions: usize,
}

fn pooling<'a, D: Deserializer<'a>>(value: D) -> std::result::Result<Option<Pooling>, D::Error> {
    let name = Option::<String>::deserialize(value)?;
    name.as_deref().map(named(Pooling::NAMES)).transpose().map_err(serde::de::Error::custom)
}

impl VectorArgs {
    pub(crate) fn options(&self, model: &Model, long: OverflowMode) -> Result<EmbedOptions> {
        let usual = EmbedOptions::of(model)?;
        let prompt = match self.prompt_name.as_deref() {
            None => Prompt::Default,
            Some("none") => Prompt::None,
            Some(name) => Prompt::named(model, name)?,
        };
        Ok(EmbedOptions {
            pooling: self.pooling.unwrap_or(usual.pooling),
            normalize: usual.normalize && !self.no_normalize,
            dimensions: self.dimensions,
            overflow: long,
            prompt,
            ..usual
        })
    }
}

/// The JSON output.
pub(crate) fn values(encoder: &mut Encoder, texts: &[String], options: &EmbedOptions) -> Result<Vec<Value>> {
    let vectors = encoder.embed(texts, options)?;
    Ok(vectors.iter().enumerate().map(|(index, vector)| value(index, vector)).collect())
}

fn value(index: usize, vector: &[f32]) -> Value {
    json!({"index": index, "embedding": vector})
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let long = args.overflow.mode(OVERLAP)?;
    let wanted = EncoderOptions { batch: args.batch_size, head: false, ..EncoderOptions::default() };
    let mut encoder = open.encoder(&args.model, &args.model_args, wanted)?;
    let options = args.vectors.options(encoder.model(), long)?;
    let cache = args.cache.open()?.map(Arc::new);
    cache.iter().for_each(|cache| encoder.set_cache(Arc::clone(cache)));
    let outcome = args.texts.each(open, |first, texts| {
        for (index, vector) in encoder.embed(texts, &options)?.iter().enumerate() {
            if args.json {
                output::json(&value(first + index, vector))?;
            } else {
                let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
                output::line(numbers.join(" "))?;
            }
        }
        Ok(())
    });
    if let Some(cache) = cache {
        let siskin::result_cache::CacheStatistics { hits, misses, .. } = cache.statistics();
        output::note(open.quiet, format_args!("[{hits} cached, {misses} computed]"));
        args.cache.save(&cache);
    }
    outcome
}
