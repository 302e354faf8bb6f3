//! Options for a draft model, which drafts the tokens of another one.

use std::path::{Path, PathBuf};

use crate::options::{ModelArgs, OpenArgs};
use siskin::{Model, Result};

/// Options for a draft model.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct DraftArgs {
    /// A smaller model with the same tokenizer that drafts tokens (speculative decoding); changes no output
    #[arg(long, value_name = "MODEL")]
    draft_model: Option<PathBuf>,
    /// Let the model draft its own tokens without these layers, such as 9,10, counted from 0; changes no output
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "draft_model")]
    draft_skip_layers: Vec<usize>,
}

impl DraftArgs {
    /// Opens the draft model of the model at `path`, if there is one.
    pub(crate) fn open(&self, path: &Path, args: &ModelArgs, open: &OpenArgs) -> Result<Option<Model>> {
        match &self.draft_model {
            Some(draft) => open.model(draft, &args.for_draft_model()).map(Some),
            None if self.draft_skip_layers.is_empty() => Ok(None),
            None => open.model(path, &args.without_layers(&self.draft_skip_layers)).map(Some),
        }
    }

    /// Whether a draft model was given.
    pub(crate) fn is_given(&self) -> bool {
        self.draft_model.is_some() || !self.draft_skip_layers.is_empty()
    }
}
