//! `siskin classify`: text classification.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::texts::{LongText, TextSourceArgs};
use serde_json::{Value, json};
use siskin::encoder::{ExitCriterion, OverflowMode, Scored};
use siskin::{Encoder, EncoderOptions, Result};
use std::path::PathBuf;

/// Classify texts
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin file or a Hugging Face folder
    model: PathBuf,
    #[command(flatten)]
    texts: TextSourceArgs,
    /// Handling of texts that are too long for the model: refuse or cut
    #[arg(long, value_enum, default_value_t)]
    long: LongText,
    /// Early exit, for models with a classifier on each layer: confidence=P (exit at this top probability),
    /// entropy=NATS (exit below this entropy) or patience=N (exit after N consecutive equal predictions)
    #[arg(long, value_name = "RULE", value_parser = early)]
    early: Option<ExitCriterion>,
    #[command(flatten)]
    model_args: ModelArgs,
    /// Print a JSON object for each text, with the scores of all classes
    #[arg(long)]
    json: bool,
}

fn early(text: &str) -> std::result::Result<ExitCriterion, String> {
    let rule = text.split_once('=').and_then(|(name, value)| {
        Some(match name {
            "confidence" => ExitCriterion::Confidence(value.parse().ok()?),
            "entropy" => ExitCriterion::Entropy(value.parse().ok()?),
            "patience" => ExitCriterion::Patience(value.parse().ok()?),
            _ => return None,
        })
    });
    rule.ok_or_else(|| {
        "give confidence=0.9, entropy=0.3 or patience=2, with a number that suits you".to_owned()
    })
}

/// The JSON output.
pub(crate) fn values(encoder: &mut Encoder, texts: &[String], long: OverflowMode) -> Result<Vec<Value>> {
    let all = encoder.classify(texts, long)?;
    Ok(all.iter().enumerate().map(|(index, classes)| value(index, classes)).collect())
}

fn value(index: usize, classes: &[Scored]) -> Value {
    let class = |class: &Scored| json!({"label": class.label, "probability": class.probability});
    json!({"index": index, "classes": classes.iter().map(class).collect::<Vec<_>>()})
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let long = args.long.whole()?;
    let wanted = EncoderOptions { early: args.early, ..EncoderOptions::default() };
    let mut encoder = open.encoder(&args.model, &args.model_args, wanted)?;
    args.texts.each(open, |first, texts| {
        let all = encoder.classify(texts, long)?;
        for (index, classes) in all.iter().enumerate() {
            let layers = encoder.layers().get(index);
            if args.json {
                let mut text = value(first + index, classes);
                if let Some(layers) = layers {
                    text["layers"] = json!(layers);
                }
                output::json(&text)?;
            } else if let Some(best) = classes.first() {
                let layers = layers.map_or_else(String::new, |layers| format!("\t{layers} layers"));
                output::line(format_args!("{}\t{:.4}{layers}", best.label, best.probability))?;
            }
        }
        Ok(())
    })
}
