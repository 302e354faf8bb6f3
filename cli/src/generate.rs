//! `siskin generate`: texts that follow other texts, or are made of them.

use crate::options::{ModelArgs, OpenArgs};
use crate::texts::TextArgs;
use crate::writing::WritingArgs;
use siskin::{Result, Writing};
use std::path::PathBuf;

/// Write on from each text, or with a model from text to text, what it makes of each
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin or GGUF file, or a folder
    model: PathBuf,
    #[command(flatten)]
    texts: TextArgs,
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
    args.writing.run(&model, (&args.model_args, open), &args.texts, Writing::of(&model)?, args.json)
}
