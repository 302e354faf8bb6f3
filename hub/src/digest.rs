//! Digests of files, as the sources of models publish them.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use siskin_format::{Error, Result};

/// The digest of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileDigest {
    /// SHA-256 of its bytes.
    Sha256([u8; 32]),
    /// SHA-1 of its bytes behind the header of a Git blob, by which Hugging Face names small files.
    GitBlob([u8; 20]),
}

impl FileDigest {
    /// Parses the hexadecimal digits of a SHA-256.
    pub(crate) fn sha256(digits: &str) -> Result<Self> {
        let digest = from_hex(digits).map(Self::Sha256);
        digest.ok_or_else(|| Error::corrupt("sha256", format!("`{digits}` is not a SHA-256 digest")))
    }

    /// Parses the hexadecimal digits of a Git blob.
    pub(crate) fn git_blob(digits: &str) -> Result<Self> {
        let digest = from_hex(digits).map(Self::GitBlob);
        digest.ok_or_else(|| Error::corrupt("oid", format!("`{digits}` is not the name of a Git blob")))
    }
}

/// Hexadecimal digits alone: the name of the file in the cache.
impl fmt::Display for FileDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: &[u8] = match self {
            Self::Sha256(bytes) => bytes,
            Self::GitBlob(bytes) => bytes,
        };
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn from_hex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let digits = digits.as_bytes();
    let mut bytes = [0; N];
    let (pairs, rest) = digits.as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(bytes)
}

/// Computes the digest of a file, whose bytes arrive in order.
pub(crate) enum FileHasher {
    Sha256(Sha256),
    GitBlob(Sha1),
}

impl FileHasher {
    /// Begins the digest of a file of `bytes` bytes, of the kind of `expected`.
    pub(crate) fn new(expected: &FileDigest, bytes: u64) -> Self {
        match expected {
            FileDigest::Sha256(_) => Self::Sha256(Sha256::new()),
            FileDigest::GitBlob(_) => Self::GitBlob(Sha1::new_with_prefix(format!("blob {bytes}\0"))),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::GitBlob(hasher) => hasher.update(bytes),
        }
    }

    pub(crate) fn finish(self) -> FileDigest {
        match self {
            Self::Sha256(hasher) => FileDigest::Sha256(hasher.finalize().into()),
            Self::GitBlob(hasher) => FileDigest::GitBlob(hasher.finalize().into()),
        }
    }
}

/// Returns the SHA-256 of bytes.
pub(crate) fn sha256(bytes: &[u8]) -> FileDigest {
    FileDigest::Sha256(Sha256::digest(bytes).into())
}

/// Returns the SHA-256 of a file.
pub(crate) fn file_digest(path: &Path) -> Result<FileDigest> {
    let failed = |error: std::io::Error| Error::io(path.display().to_string(), &error);
    let (mut file, mut hasher) = (File::open(path).map_err(failed)?, Sha256::new());
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => return Ok(FileDigest::Sha256(hasher.finalize().into())),
            count => hasher.update(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_sha256sum_and_git() {
        let rows = [
            FileDigest::sha256("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad").unwrap(),
            // `printf abc | git hash-object --stdin`.
            FileDigest::git_blob("f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f").unwrap(),
        ];
        for expected in rows {
            let mut hasher = FileHasher::new(&expected, 3);
            hasher.update(b"a");
            hasher.update(b"bc");
            assert_eq!(hasher.finish(), expected);
        }
        assert!(FileDigest::sha256("ba78").is_err() && FileDigest::git_blob(&"g".repeat(40)).is_err());
        assert!(FileDigest::sha256(&"é".repeat(32)).is_err());
    }
}
