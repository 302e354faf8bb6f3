//! `siskin summarise`: what texts say, in few words.

use crate::options::OpenArgs;
use crate::writing::WritingArgs;
use siskin::{Result, Writing};

/// Say in few words what each text says
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    writing: WritingArgs,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    args.writing.run(open, Writing::summary)
}
