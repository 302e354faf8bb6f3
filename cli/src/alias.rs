//! `siskin alias`: short names of models.

use crate::list;
use crate::model_name;
use crate::options::{NoPackedFiles, OpenArgs};
use crate::output;
use siskin::Result;
use siskin_hub::ModelName;

/// Add, list or remove short names of models
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    _packed: NoPackedFiles,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Download a model, and give it a short name that always means the bytes that it has now
    Add {
        /// Letters, digits, `-`, `_` and `.`, then optionally a colon and a tag
        alias: String,
        /// hf:…, pypi:…, oci:… or https:…, as for `siskin pull`
        model: ModelName,
    },
    /// List the short names, as `siskin list --aliases` does
    #[command(alias = "ls")]
    List {
        /// Print a JSON object per short name
        #[arg(long)]
        json: bool,
    },
    /// Remove a short name; the model stays in the cache
    Rm {
        /// The short name
        alias: String,
    },
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let hub = model_name::hub();
    match &args.action {
        Action::Add { alias, model } => {
            let added = model_name::with_progress(open.quiet, &model.to_string(), |progress| {
                hub.add_alias(alias, model, progress)
            })?;
            output::note(open.quiet, format!("added alias {} for {}", added.name, added.model));
            Ok(())
        }
        Action::List { json } => list::aliases(&hub, *json),
        Action::Rm { alias } => hub.remove_alias(alias),
    }
}
