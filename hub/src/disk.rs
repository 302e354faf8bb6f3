//! Room on disks.

use std::path::Path;

use siskin_format::{Error, ErrorKind, Result};

/// Free space that is kept on the disk.
const MARGIN: u64 = 64 << 20;

/// Adds sizes, which servers may claim to be anything.
pub(crate) fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// Fails if the disk of a file has no room for `bytes` more.
pub(crate) fn check_space(path: &Path, bytes: u64) -> Result<()> {
    match available(path.parent().unwrap_or(path)) {
        Some(free) if free < bytes.saturating_add(MARGIN) => {
            let message = format!(
                "{} MiB are needed, but only {} MiB are free; remove models with `siskin rm`",
                bytes >> 20,
                free >> 20
            );
            Err(Error::new(ErrorKind::Io, path.display().to_string(), message))
        }
        _ => Ok(()),
    }
}

/// Returns the bytes that this user may still write; `None` if the system does not say.
#[cfg(unix)]
fn available(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(not(unix))]
fn available(_: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloads_that_do_not_fit_are_refused() {
        let folder = std::env::temp_dir();
        check_space(&folder.join("a"), 1).unwrap();
        if available(&folder).is_some() {
            let error = check_space(&folder.join("a"), 1 << 60).unwrap_err();
            assert!(error.message().contains("siskin rm"), "{error}");
        }
    }
}
