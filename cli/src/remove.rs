//! `siskin rm`: removes models from the cache.

use crate::model_name;
use crate::options::{NoPackedFiles, OpenArgs};
use crate::output;
use siskin::Result;
use siskin_hub::ModelName;

/// Remove models from the cache
///
/// Files that other models of the cache share stay. What was packed from a model goes with it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Names as for `siskin pull`, or as `siskin list` shows them
    #[arg(required = true)]
    models: Vec<ModelName>,
    #[command(flatten)]
    _packed: NoPackedFiles,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let hub = model_name::hub();
    for name in &args.models {
        let packed = match hub.find(name)? {
            Some(model) => open.remove_packed(&model.path)?,
            None => 0,
        };
        let freed = hub.remove(name)?;
        output::note(open.quiet, format!("removed {name}, {}", output::bytes(freed + packed)));
    }
    Ok(())
}
