//! What a pull would download, before it does.

use std::path::{Path, PathBuf};

use siskin_format::Result;

use crate::cache::{ModelFolders, PulledModel};
use crate::disk::sum;
use crate::download::RemoteFile;
use crate::head::{NeedsLongerHead, download_head};
use crate::hub::{Hub, missing_path};
use crate::name::{ModelName, RemoteModel};
use crate::source::LocatedModel;
use crate::transport::Transport;

/// What a pull would download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullPlan {
    /// The name that always means these bytes; `None` for a path.
    pub pinned: Option<RemoteModel>,
    /// The model's file or folder, if it is in the cache.
    pub path: Option<PathBuf>,
    /// The files, each with its size.
    pub files: Vec<PlannedFile>,
    /// How many of their bytes have been downloaded.
    pub cached_bytes: u64,
    /// The license, as the model's source or alias states it.
    pub license: Option<String>,
    /// The first bytes of a GGUF file that is not in the cache, if its server sends ranges.
    pub head: Option<ModelHead>,
}

/// A file of a [`PullPlan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFile {
    /// Its path in the repository; the name of the wheel of a package.
    pub path: String,
    /// Its size.
    pub bytes: u64,
}

/// The first bytes of a model file. They have not been verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelHead {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The size of the whole file.
    pub file_bytes: u64,
}

impl PullPlan {
    /// Returns the size of all files.
    pub fn bytes(&self) -> u64 {
        sum(self.files.iter().map(|file| file.bytes))
    }
}

impl Hub {
    /// Returns what [`Hub::pull`] would download. For a model in the cache, the source is not asked.
    ///
    /// Of a GGUF file, the first bytes are downloaded, as many as `needs_longer` asks for; a pull continues behind them.
    ///
    /// # Errors
    /// As [`Hub::pull`].
    pub fn plan(&self, name: &ModelName, needs_longer: &mut NeedsLongerHead<'_>) -> Result<PullPlan> {
        let alias = match name {
            ModelName::Alias(name) => Some(self.alias(name)?),
            ModelName::Path(_) | ModelName::Remote(_) => None,
        };
        let plan = match (self.find(name)?, name, &alias) {
            (Some(found), ..) => self.cached_plan(found),
            (None, ModelName::Remote(model), _) => self.remote_plan(model, needs_longer)?,
            (None, _, Some(alias)) => self.remote_plan(&alias.model, needs_longer)?,
            (None, _, None) => return Err(missing_path(name)),
        };
        let license = alias.and_then(|alias| alias.license).or(plan.license);
        Ok(PullPlan { license, ..plan })
    }

    fn cached_plan(&self, found: PulledModel) -> PullPlan {
        let files = match &found.pinned {
            Some(pinned) => recorded_files(&self.folders(pinned), pinned),
            None => files_at(&found.path),
        };
        let plan = PullPlan {
            pinned: found.pinned,
            path: Some(found.path),
            files,
            cached_bytes: 0,
            license: None,
            head: None,
        };
        PullPlan { cached_bytes: plan.bytes(), ..plan }
    }

    fn remote_plan(&self, model: &RemoteModel, needs_longer: &mut NeedsLongerHead<'_>) -> Result<PullPlan> {
        self.need_network(model, "not in the cache")?;
        let transport = Transport::new(&self.settings)?;
        let located = LocatedModel::look_up(&transport, &self.settings, model)?;
        let (folders, pinned) = (self.folders(model), located.pinned());
        let gguf = located.gguf();
        // Another process may be downloading it.
        let _lock = gguf.map(|_| folders.records.lock()).transpose()?;
        // A branch or a tag whose version was pulled by another name.
        if let Some(found) = folders.find(&pinned)? {
            return Ok(PullPlan { license: located.license.clone(), ..self.cached_plan(found) });
        }
        let files = located.files();
        let planned = |(path, remote): &(&str, &RemoteFile)| PlannedFile {
            path: (*path).to_owned(),
            bytes: remote.bytes,
        };
        let plan = PullPlan {
            pinned: Some(pinned),
            path: None,
            cached_bytes: sum(files.iter().map(|(_, remote)| remote.arrived_bytes(&folders.files))),
            files: files.iter().map(planned).collect(),
            license: located.license.clone(),
            head: None,
        };
        let Some(remote) = gguf else { return Ok(plan) };
        let bytes = download_head(&transport, remote, &folders.files, needs_longer)?;
        Ok(PullPlan { head: bytes.map(|bytes| ModelHead { bytes, file_bytes: remote.bytes }), ..plan })
    }
}

/// Returns the files of a model in the cache.
fn recorded_files(folders: &ModelFolders, pinned: &RemoteModel) -> Vec<PlannedFile> {
    let record = folders.records.read_record(&pinned.to_string()).or_else(|| folders.unrecorded(pinned));
    let files = record.map(|record| folders.files_of(&record)).unwrap_or_default();
    files.into_iter().map(|(path, metadata)| PlannedFile { path, bytes: metadata.len() }).collect()
}

/// Returns the file at a path, or the files of a folder.
fn files_at(path: &Path) -> Vec<PlannedFile> {
    let inside = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let file = |path: PathBuf| {
        let bytes = path.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
        Some(PlannedFile { path: path.file_name()?.to_str()?.to_owned(), bytes })
    };
    inside.chain([path.to_owned()]).filter_map(file).collect()
}
