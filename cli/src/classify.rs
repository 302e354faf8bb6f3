//! `siskin classify`: text classification.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::texts::{TextSourceArgs, WholeOverflow};
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
    /// What to do with a text that is too long for the model
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    overflow: WholeOverflow,
    /// Early exit, for models with a classifier on each layer: `confidence=P` (at this top probability), `entropy=NATS`
    /// (below this entropy) or `patience=N` (after N consecutive equal predictions)
    #[arg(long, value_name = "CRITERION", value_parser = exit_criterion)]
    early_exit: Option<ExitCriterion>,
    /// Print a JSON object for each text, with the scores of all classes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model_args: ModelArgs,
}

fn exit_criterion(text: &str) -> std::result::Result<ExitCriterion, String> {
    let rule = text.split_once('=').and_then(|(name, value)| {
        Some(match name {
            "confidence" => ExitCriterion::Confidence(value.parse().ok()?),
            "entropy" => ExitCriterion::Entropy(value.parse().ok()?),
            "patience" => ExitCriterion::Patience(value.parse().ok()?),
            _ => return None,
        })
    });
    rule.ok_or_else(|| "expected a criterion such as confidence=0.9, entropy=0.3 or patience=2".to_owned())
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
    let long = args.overflow.mode();
    let wanted = EncoderOptions { early: args.early_exit, ..EncoderOptions::default() };
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
