//! `siskin translate`: texts into another language.

use crate::options::OpenArgs;
use crate::writing::WritingArgs;
use siskin::{Result, Writing};

/// Translate each text
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The language of the texts, as the model names it or by its code; models of one pair need none
    #[arg(long, value_name = "CODE")]
    from: Option<String>,
    /// The language to write
    #[arg(long, value_name = "CODE")]
    to: Option<String>,
    #[command(flatten)]
    writing: WritingArgs,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let (from, to) = (args.from.as_deref(), args.to.as_deref());
    args.writing.run(open, |model| Writing::translation(model, from, to))
}
