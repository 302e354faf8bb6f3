//! `siskin embed`: texts to vectors.

use crate::options::{MemoArgs, ModelArgs, OpenArgs, named};
use crate::output;
use crate::texts::{LongArgs, OVERLAP, TextArgs};
use serde_json::json;
use siskin::encoder::{EmbedOptions, Pooling, Prompt};
use siskin::{EncoderOptions, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// Turn texts into vectors, one on each line
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin, GGUF or ONNX file, or a model folder
    model: PathBuf,
    #[command(flatten)]
    texts: TextArgs,
    /// How the hidden states of a text's tokens become one vector: mean, cls, last, max or weighted; what the model was
    /// made for where nothing is said
    #[arg(long, value_name = "WAY", value_parser = named(Pooling::NAMES))]
    pooling: Option<Pooling>,
    /// What stands before each text: a prompt of the model's by its name, or `none`; the model's usual one where nothing is
    /// said
    #[arg(long, value_name = "NAME")]
    prompt: Option<String>,
    /// Leave vectors at their length
    #[arg(long)]
    no_normalise: bool,
    /// Keep so many columns, of models that were trained for it; 0: all
    #[arg(long, default_value_t = 0, value_name = "N")]
    columns: usize,
    #[command(flatten)]
    long: LongArgs,
    /// Tokens that go through the model at once
    #[arg(long, default_value_t = 512, value_name = "N")]
    batch: usize,
    #[command(flatten)]
    memo: MemoArgs,
    #[command(flatten)]
    model_args: ModelArgs,
    /// Print a JSON object for each text
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let long = args.long.read(OVERLAP)?;
    let wanted = EncoderOptions { batch: args.batch, head: false, ..EncoderOptions::default() };
    let mut encoder = open.encoder(&args.model, &args.model_args, wanted)?;
    let mut options = EmbedOptions::of(encoder.model())?;
    options.pooling = args.pooling.unwrap_or(options.pooling);
    options.normalise &= !args.no_normalise;
    options.columns = args.columns;
    options.prompt = match args.prompt.as_deref() {
        None => Prompt::Usual,
        Some("none") => Prompt::None,
        Some(name) => Prompt::named(encoder.model(), name)?,
    };
    options.long = long;
    let memo = args.memo.open()?.map(Arc::new);
    memo.iter().for_each(|memo| encoder.remember(Arc::clone(memo)));
    let outcome = args.texts.each(open, |first, texts| {
        for (index, vector) in encoder.embed(texts, &options)?.iter().enumerate() {
            if args.json {
                output::json(&json!({"index": first + index, "embedding": vector}))?;
            } else {
                let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
                output::line(numbers.join(" "))?;
            }
        }
        Ok(())
    });
    if let Some(memo) = memo {
        let siskin::memo::Statistics { hits, misses, .. } = memo.statistics();
        output::note(open, format_args!("[{hits} vectors remembered, {misses} computed]"));
        args.memo.save(&memo);
    }
    outcome
}
