//! The folder of a run: checkpoints, log, report. Siskin chooses the file names in it, so it only writes into a
//! folder that it created, that was empty, or that holds the marker file of a run.

use std::fs;
use std::io;
use std::path::Path;

use siskin_format::{Error, Result};

/// The description of the run.
pub(crate) const RUN: &str = "run.json";

/// The file that marks a folder as that of a run.
const MARKER: &str = ".siskin-run";

/// Creates `folder` as the folder of a run, or marks it as one if it is empty. A non-empty folder without the marker
/// is rejected.
pub fn prepare(folder: &Path) -> Result<()> {
    let place = folder.display().to_string();
    let io = |error: io::Error| Error::io(&place, &error);
    fs::create_dir_all(folder).map_err(io)?;
    if has_marker(folder) {
        return Ok(());
    }
    let is_described = is_file(&folder.join(RUN));
    if !is_described && fs::read_dir(folder).map_err(io)?.next().is_some() {
        return Err(not_a_run(folder));
    }
    match fs::File::create_new(folder.join(MARKER)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io(error)),
        _ => Ok(()),
    }
}

/// Rejects a folder that [`prepare`] has not marked as that of a run.
pub(crate) fn check(folder: &Path) -> Result<()> {
    if has_marker(folder) || is_file(&folder.join(RUN)) { Ok(()) } else { Err(not_a_run(folder)) }
}

fn has_marker(folder: &Path) -> bool {
    is_file(&folder.join(MARKER))
}

/// Returns true if `path` is a regular file and not a symbolic link.
fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|facts| facts.is_file())
}

fn not_a_run(folder: &Path) -> Error {
    let message =
        format!("not the folder of a run: it holds other files and no {MARKER}; name another folder");
    Error::argument(folder.display().to_string(), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_and_empty_folders_become_run_folders() {
        let folder = std::env::temp_dir().join(format!("siskin-run-folder-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        assert!(check(&folder).is_err());
        prepare(&folder.join("new")).unwrap();
        prepare(&folder.join("new")).unwrap();
        check(&folder.join("new")).unwrap();
        let error = prepare(&folder).unwrap_err();
        assert!(error.message().contains("not the folder of a run"), "{error}");
        #[cfg(unix)]
        {
            let own = folder.join("own");
            fs::create_dir(&own).unwrap();
            std::os::unix::fs::symlink("/etc/hostname", own.join(MARKER)).unwrap();
            assert!(prepare(&own).is_err() && check(&own).is_err());
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
