//! Models in repositories of the Hugging Face hub, or of a mirror.

use serde::Deserialize;
use serde_json::Value;
use siskin_format::{Error, Result};

use super::FoundModel;
use crate::digest::FileDigest;
use crate::download::{RemoteContent, RemoteFile};
use crate::env::HubSettings;
use crate::name::RemoteModel;
use crate::pick::pick;
use crate::transport::{GetRequest, Transport};
use crate::url::{check_setting, escape_path};

/// The maximum size of the list of files.
const MAX_LIST_BYTES: u64 = 64 << 20;

/// The maximum length of the name of a license.
const MAX_LICENSE_BYTES: usize = 200;

/// A revision of a repository.
pub(crate) struct Revision {
    /// The commit that a branch or tag names now.
    pub(crate) commit: String,
    /// The license that its authors state.
    pub(crate) license: Option<String>,
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
    /// The header of its README.
    #[serde(default, rename = "cardData")]
    card: Value,
    #[serde(default)]
    tags: Value,
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
        check_setting("HF_ENDPOINT", &settings.hugging_face)?;
        let revision = escape_path(revision).replace('/', "%2F");
        let url = format!("{}/api/models/{repository}/revision/{revision}?blobs=true", settings.hugging_face);
        let request = GetRequest { token: settings.token.as_deref(), ..GetRequest::new(&url) };
        let bytes = transport.get_bytes(&request, MAX_LIST_BYTES)?;
        Self::parse(&bytes).map_err(|error| error.within(&format!("hf:{repository}")))
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let info: RevisionInfo = serde_json::from_slice(bytes).map_err(|error| {
            Error::corrupt("revision", format!("not a description of a repository: {error}"))
        })?;
        if info.sha.len() != 40 || !info.sha.bytes().all(|c| c.is_ascii_hexdigit()) {
            return Err(Error::corrupt("sha", format!("`{}` is not a commit", info.sha)));
        }
        let license = info.license();
        let files = info.siblings.into_iter().filter_map(|sibling| sibling.file().transpose());
        Ok(Self { commit: info.sha, license, files: files.collect::<Result<_>>()? })
    }

    /// Returns the model of the revision.
    pub(crate) fn model(
        self,
        settings: &HubSettings,
        repository: &str,
        wanted: Option<&str>,
    ) -> Result<FoundModel> {
        let paths: Vec<String> = self.files.iter().map(|file| file.path.clone()).collect();
        let picked = pick(&paths, wanted).map_err(|error| error.within(&format!("hf:{repository}")))?;
        let remote = |file: RepositoryFile| {
            let path = escape_path(&file.path);
            let url = format!("{}/{repository}/resolve/{}/{path}", settings.hugging_face, self.commit);
            let content = RemoteContent::Digest(file.digest);
            let remote = RemoteFile { url, token: settings.token.clone(), bytes: file.bytes, content };
            (file.path, remote)
        };
        let files = self.files.into_iter().filter(|file| picked.paths().contains(&file.path)).map(remote);
        Ok(FoundModel {
            pinned: RemoteModel::HuggingFace {
                repository: repository.to_owned(),
                revision: Some(self.commit.clone()),
                pick: wanted.map(str::to_owned),
            },
            version: Some(self.commit.clone()),
            files: files.collect(),
            picked,
        })
    }
}

impl RevisionInfo {
    /// Returns the license: of the header of the README, or of a tag `license:…`.
    fn license(&self) -> Option<String> {
        let stated = match &self.card["license"] {
            Value::String(name) => Some(name.clone()),
            Value::Array(names) => {
                let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                Some(names.join(", "))
            }
            _ => None,
        };
        let tags = self.tags.as_array().into_iter().flatten().filter_map(Value::as_str);
        let license =
            stated.or_else(|| tags.filter_map(|tag| tag.strip_prefix("license:")).next().map(str::to_owned));
        license.filter(|name| {
            (1..=MAX_LICENSE_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
        })
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

/// Reads the description of a revision, and picks a model.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_untrusted(bytes: &[u8]) {
    let Ok(revision) = Revision::parse(bytes) else { return };
    let paths: Vec<String> = revision.files.iter().map(|file| file.path.clone()).collect();
    let _ = (pick(&paths, None), pick(&paths, Some("q4_0")));
}
