//! `siskin generate`: texts that follow other texts, or are made of them.

use crate::options::OpenArgs;
use crate::writing::WritingArgs;
use siskin::{Result, Writing};

/// Write on from each text, or with a model from text to text, what it makes of each
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    writing: WritingArgs,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    args.writing.run(open, Writing::of)
}
