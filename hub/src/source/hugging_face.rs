//! Models in repositories of the Hugging Face hub, or of a mirror.

use std::path::PathBuf;

use serde::Deserialize;
use siskin_format::{Error, ErrorKind, Result};

use crate::digest::FileDigest;
use crate::download::{DownloadProgress, RemoteFile, download};
use crate::env::HubSettings;
use crate::pick::{PickedFiles, pick};
use crate::store::RepositoryFolder;
use crate::transport::{GetRequest, Transport};
use crate::url::escape_path;

/// The maximum size of the list of files.
const MAX_LIST_BYTES: u64 = 64 << 20;

/// A revision of a repository.
pub(crate) struct Revision {
    /// The commit that a branch or tag names now.
    pub(crate) commit: String,
    files: Vec<RepositoryFile>,
}

struct RepositoryFile {
    path: String,
    bytes: u64,
    digest: FileDigest,
}

#[derive(Deserialize)]
struct RevisionInfo {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<LargeFile>,
}

/// A file whose bytes are kept outside of Git.
#[derive(Deserialize)]
struct LargeFile {
    sha256: String,
    size: u64,
}

impl Revision {
    /// Looks up a revision: a branch, a tag or a commit.
    pub(crate) fn look_up(
        transport: &Transport,
        settings: &HubSettings,
        repository: &str,
        revision: &str,
    ) -> Result<Self> {
        let revision = escape_path(revision).replace('/', "%2F");
        let url = format!("{}/api/models/{repository}/revision/{revision}?blobs=true", settings.hugging_face);
        let request = GetRequest { token: settings.token.as_deref(), ..GetRequest::new(&url) };
        let bytes = transport.get_bytes(&request, MAX_LIST_BYTES)?;
        let info: RevisionInfo = serde_json::from_slice(&bytes).map_err(|error| {
            Error::corrupt(format!("hf:{repository}"), format!("not a description of a repository: {error}"))
        })?;
        if info.sha.len() != 40 || !info.sha.bytes().all(|c| c.is_ascii_hexdigit()) {
            return Err(Error::corrupt(
                format!("hf:{repository}"),
                format!("`{}` is not a commit", info.sha),
            ));
        }
        let files = info.siblings.into_iter().filter_map(|sibling| sibling.file().transpose());
        Ok(Self { commit: info.sha, files: files.collect::<Result<_>>()? })
    }

    /// Downloads the model, and returns its file or folder, and which files it has.
    pub(crate) fn pull(
        &self,
        transport: &Transport,
        settings: &HubSettings,
        repository: &str,
        wanted: Option<&str>,
        progress: &mut DownloadProgress<'_>,
    ) -> Result<(PathBuf, PickedFiles)> {
        let folder = RepositoryFolder::hugging_face(&settings.hugging_face_cache, repository);
        let paths: Vec<String> = self.files.iter().map(|file| file.path.clone()).collect();
        let picked = pick(&paths, wanted).map_err(|error| error.within(&format!("hf:{repository}")))?;
        let names = picked.paths();
        let files: Vec<&RepositoryFile> =
            self.files.iter().filter(|file| names.contains(&file.path)).collect();
        let all: u64 = files.iter().map(|file| file.bytes).sum();
        let mut before = 0;
        for file in &files {
            let url = format!(
                "{}/{repository}/resolve/{}/{}",
                settings.hugging_face,
                self.commit,
                escape_path(&file.path)
            );
            let remote =
                RemoteFile { url, token: settings.token.clone(), bytes: file.bytes, digest: file.digest };
            let blob = folder.blob(&file.digest)?;
            download(transport, &remote, &blob, &mut |arrived, _| progress(before + arrived, all))?;
            folder.link(&file.digest, &self.commit, &file.path)?;
            before += file.bytes;
        }
        let path = picked.find(&folder, &self.commit).ok_or_else(|| {
            Error::new(ErrorKind::Missing, format!("hf:{repository}"), "the files have left the cache again")
        })?;
        Ok((path, picked))
    }
}

impl Sibling {
    /// Returns the file; `None` without a digest.
    fn file(self) -> Result<Option<RepositoryFile>> {
        let Self { rfilename, size, blob_id, lfs } = self;
        let (bytes, digest) = match (lfs, size, blob_id) {
            (Some(lfs), ..) => (lfs.size, FileDigest::sha256(&lfs.sha256)),
            (None, Some(size), Some(blob)) => (size, FileDigest::git_blob(&blob)),
            _ => return Ok(None),
        };
        let digest = digest.map_err(|error| error.within(&rfilename))?;
        Ok(Some(RepositoryFile { path: rfilename, bytes, digest }))
    }
}

impl PickedFiles {
    pub(crate) fn paths(&self) -> &[String] {
        match self {
            Self::File(paths) | Self::Folder(paths) => paths,
        }
    }

    /// Returns the file or the folder of the model, if all of it is in the cache.
    pub(crate) fn find(&self, folder: &RepositoryFolder, version: &str) -> Option<PathBuf> {
        let found: Option<Vec<PathBuf>> =
            self.paths().iter().map(|path| folder.find(version, path)).collect();
        let first = found?.into_iter().next()?;
        match self {
            Self::File(_) => Some(first),
            Self::Folder(_) => folder.snapshot_folder(version),
        }
    }
}
