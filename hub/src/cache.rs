//! The models of the cache: finding, listing and removing them.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use siskin_format::{Error, ErrorKind, Result};

use crate::digest::FileDigest;
use crate::env::HubSettings;
use crate::name::RemoteModel;
use crate::pick::{PickedFiles, pick};
use crate::record::PullRecord;
use crate::store::{RepositoryFolder, blob_of, names_in};

/// A model in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulledModel {
    /// Its file or folder.
    pub path: PathBuf,
    /// The name that always means these bytes; `None` for a path.
    pub pinned: Option<RemoteModel>,
    /// The SHA-256 of the file; `None` for a folder, and for files of which only the commit is known.
    pub sha256: Option<FileDigest>,
}

/// A model in the list of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedModel {
    /// The name that always means its bytes.
    pub name: RemoteModel,
    /// Its file or folder.
    pub path: PathBuf,
    /// The size of its files.
    pub bytes: u64,
    /// When it was downloaded.
    pub modified: Option<SystemTime>,
}

/// The folders of a source: the one with the files, and the one with our records.
#[derive(Clone, Debug)]
pub(crate) struct ModelFolders {
    pub(crate) files: RepositoryFolder,
    pub(crate) records: RepositoryFolder,
}

impl ModelFolders {
    /// Returns the folders of a repository of Hugging Face, whose files other tools share.
    pub(crate) fn hugging_face(settings: &HubSettings, repository: &str) -> Self {
        Self::shared(settings, &format!("models--{}", repository.replace('/', "--")))
    }

    fn shared(settings: &HubSettings, name: &str) -> Self {
        Self {
            files: RepositoryFolder::new(settings.hugging_face_cache.join(name)),
            records: RepositoryFolder::new(settings.home.join("hub").join(name)),
        }
    }

    /// Returns the folder of another source.
    pub(crate) fn own(settings: &HubSettings, name: &str) -> Self {
        let folder = RepositoryFolder::new(settings.home.join("hub").join(name));
        Self { files: folder.clone(), records: folder }
    }

    /// Returns the model of a pinned name, if it was recorded and all of its files are there.
    pub(crate) fn find(&self, pinned: &RemoteModel) -> Result<Option<PulledModel>> {
        self.records.read_record(&pinned.to_string()).map_or(Ok(None), |record| self.model(&record))
    }

    /// Returns the model of a record, if all of its files are there.
    pub(crate) fn model(&self, record: &PullRecord) -> Result<Option<PulledModel>> {
        let Some(path) = record.files.find(&self.files, &record.version) else { return Ok(None) };
        let sha256 = match record.files {
            PickedFiles::File(ref paths) if paths.len() == 1 => digest_of(&path),
            _ => None,
        };
        Ok(Some(PulledModel { path, pinned: Some(record.name.parse()?), sha256 }))
    }

    /// Returns the files of a record that are there, by path.
    pub(crate) fn files_of(&self, record: &PullRecord) -> Vec<(String, Metadata)> {
        let file =
            |path: &String| Some((path.clone(), self.files.find(&record.version, path)?.metadata().ok()?));
        record.files.paths().iter().filter_map(file).collect()
    }

    /// Records a model whose files are there.
    pub(crate) fn record(&self, record: &PullRecord) -> Result<PulledModel> {
        self.records.write_record(record)?;
        let left =
            || Error::new(ErrorKind::Missing, &record.name, "its files were removed during the download");
        self.model(record)?.ok_or_else(left)
    }

    /// Returns what a pinned name means among the files that another tool downloaded from Hugging Face.
    pub(crate) fn unrecorded(&self, name: &RemoteModel) -> Option<PullRecord> {
        let RemoteModel::HuggingFace { revision: Some(version), pick: wanted, .. } = name else {
            return None;
        };
        let files = pick(&self.files.paths(version), wanted.as_deref()).ok()?;
        Some(PullRecord { name: name.to_string(), version: version.clone(), files })
    }

    pub(crate) fn exists(&self) -> bool {
        self.files.exists() || self.records.exists()
    }

    /// Removes the model of a pinned name, and parts of downloads, and returns how many bytes that frees: files that other
    /// models share stay. `None` if there was nothing. The folder is locked.
    pub(crate) fn remove(&self, name: &RemoteModel) -> Result<Option<u64>> {
        let text = name.to_string();
        let (removed, kept): (Vec<_>, Vec<_>) =
            self.records.records().into_iter().partition(|record| record.name == text);
        let record = removed.into_iter().next().or_else(|| self.unrecorded(name).filter(|_| is_whole(name)));
        let (is_known, mut unlinked) = (record.is_some(), Vec::new());
        if let Some(record) = record {
            let is_shared = |path: &String| {
                kept.iter().any(|other| other.version == record.version && other.files.paths().contains(path))
            };
            for path in record.files.paths().iter().filter(|path| !is_shared(path)) {
                unlinked.extend(self.files.unlink(&record.version, path)?);
            }
            self.records.remove_record(&text)?;
        }
        let freed = self.files.remove_unused_blobs(&unlinked)?;
        Ok((is_known || freed > 0).then_some(freed))
    }
}

/// Returns the SHA-256 of a file of a snapshot, which is the name of its blob.
fn digest_of(path: &Path) -> Option<FileDigest> {
    FileDigest::sha256(blob_of(path)?.to_str()?).ok()
}

/// Returns all models of the cache by name, those of other tools included.
pub(crate) fn list(settings: &HubSettings) -> Vec<CachedModel> {
    let mut models: Vec<CachedModel> = Vec::new();
    for folders in all_folders(settings) {
        for record in folders.records.records() {
            add(&mut models, &folders, &record);
        }
        // What other tools downloaded.
        if let Some(repository) = folders.files.repository_of_hugging_face() {
            for version in folders.files.versions() {
                add_unrecorded(&mut models, &folders, &repository, version);
            }
        }
    }
    models.sort_by_key(|model| model.name.to_string());
    models
}

/// Adds the model of a version that Siskin did not download, if it has one.
fn add_unrecorded(models: &mut Vec<CachedModel>, folders: &ModelFolders, repository: &str, version: String) {
    let name =
        RemoteModel::HuggingFace { repository: repository.to_owned(), revision: Some(version), pick: None };
    let Some(record) = folders.unrecorded(&name) else { return };
    if let Some(path) = record.files.find(&folders.files, &record.version)
        && !models.iter().any(|known| known.path == path)
    {
        add(models, folders, &record);
    }
}

fn add(models: &mut Vec<CachedModel>, folders: &ModelFolders, record: &PullRecord) {
    let Ok(Some(model)) = folders.model(record) else { return };
    let Some(name) = model.pinned.filter(|name| models.iter().all(|known| known.name != *name)) else {
        return;
    };
    let all = folders.files_of(record);
    models.push(CachedModel {
        name,
        path: model.path,
        bytes: all.iter().map(|(_, metadata)| metadata.len()).sum(),
        modified: all.first().and_then(|(_, metadata)| metadata.modified().ok()),
    });
}

/// Returns whether a name is that of the model of a repository, not of one of several.
fn is_whole(name: &RemoteModel) -> bool {
    matches!(name, RemoteModel::HuggingFace { pick: None, .. })
}

/// Returns the folders of all repositories.
fn all_folders(settings: &HubSettings) -> Vec<ModelFolders> {
    let is_of_hub = |name: &String| name.starts_with("models--");
    let own = names_in(&settings.home.join("hub")).into_iter().filter(|name| !is_of_hub(name));
    let shared = names_in(&settings.hugging_face_cache).into_iter().filter(is_of_hub);
    let shared = shared.map(|name| ModelFolders::shared(settings, &name));
    own.map(|name| ModelFolders::own(settings, &name)).chain(shared).collect()
}

impl PickedFiles {
    /// Returns the file or the folder of the model, if all of it is in the cache.
    fn find(&self, folder: &RepositoryFolder, version: &str) -> Option<PathBuf> {
        let found: Option<Vec<PathBuf>> =
            self.paths().iter().map(|path| folder.find(version, path)).collect();
        let first = found?.into_iter().next()?;
        match self {
            Self::File(_) => Some(first),
            Self::Folder(_) => folder.snapshot_folder(version),
        }
    }
}
