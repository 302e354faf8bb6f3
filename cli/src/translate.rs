//! `siskin translate`: texts into another language.

use crate::options::{ModelArgs, OpenArgs};
use crate::texts::TextArgs;
use crate::writing::WritingArgs;
use siskin::{Result, Writing};
use std::path::PathBuf;

/// Translate each text
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin file or a folder of a model from text to text
    model: PathBuf,
    #[command(flatten)]
    texts: TextArgs,
    /// The language of the texts, as the model names it or by its code; models of one pair need none
    #[arg(long, value_name = "CODE")]
    from: Option<String>,
    /// The language to write
    #[arg(long, value_name = "CODE")]
    to: Option<String>,
    #[command(flatten)]
    writing: WritingArgs,
    #[command(flatten)]
    model_args: ModelArgs,
    /// Print a JSON object for each text
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let model = open.model(&args.model, &args.model_args)?;
    let writing = Writing::translation(&model, args.from.as_deref(), args.to.as_deref())?;
    args.writing.run(&model, (&args.model_args, open), &args.texts, writing, args.json)
}
