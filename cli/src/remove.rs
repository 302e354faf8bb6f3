//! `siskin rm`: removes models from the cache.

use crate::model_name;
use crate::options::OpenArgs;
use crate::output;
use siskin::Result;
use siskin_hub::{Hub, ModelName, PulledModel};
use std::path::Path;

/// Remove models from the cache
///
/// Files that other models of the cache share stay. What was packed from a model goes with it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Names as for `siskin pull`, or as `siskin list` shows them
    #[arg(required = true)]
    models: Vec<ModelName>,
}

/// Returns whether another model of the cache has the same file.
fn is_shared(hub: &Hub, model: &PulledModel) -> bool {
    let file = |path: &Path| path.canonicalize().ok();
    let mut others = hub.list().into_iter().filter(|other| Some(&other.name) != model.pinned.as_ref());
    others.any(|other| file(&other.path) == file(&model.path))
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let hub = model_name::hub();
    for name in &args.models {
        // Before the file is gone, whose identity names what was packed from it.
        let packed = match hub.find(name).unwrap_or_default() {
            Some(model) if !matches!(name, ModelName::Path(_)) && !is_shared(&hub, &model) => {
                open.remove_packed(&model.path)?
            }
            _ => 0,
        };
        let freed = hub.remove(name)?;
        output::note(open.quiet, format!("removed {name}, freed {}", output::bytes(freed + packed)));
    }
    Ok(())
}
