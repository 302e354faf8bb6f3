//! `siskin summarise`: what texts say, in few words.

use crate::options::{ModelArgs, OpenArgs};
use crate::texts::TextArgs;
use crate::writing::WritingArgs;
use siskin::{Result, Writing};
use std::path::PathBuf;

/// Say in few words what each text says
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin file or a folder of a model from text to text
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
    args.writing.run(&model, (&args.model_args, open), &args.texts, Writing::summary(&model)?, args.json)
}
