//! What a pull found, kept beside the files so that the model is found, listed and removed without its source.

use serde::{Deserialize, Serialize};

use crate::pick::PickedFiles;

/// A model in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct PullRecord {
    /// The name that always means its bytes.
    pub(crate) name: String,
    /// The version whose files they are.
    pub(crate) version: String,
    pub(crate) files: PickedFiles,
}
