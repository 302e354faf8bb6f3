//! The first bytes of a file, which say what it is.

use std::fs::File;
use std::io::Read;

use siskin_format::{Error, ErrorKind, Result};

use crate::download::{PIECE, RemoteContent, RemoteFile, Transfer};
use crate::journal::Journal;
use crate::store::RepositoryFolder;
use crate::transport::Transport;

/// How much of a file is asked for first, and at most.
const FIRST: u64 = 1 << 20;
const MAX: u64 = 64 << 20;

/// Called with the first bytes of a file; returns true if it takes more of them to know what the file is.
pub type NeedsLongerHead<'a> = dyn FnMut(&[u8]) -> bool + 'a;

/// Returns the first bytes of a file, as many as `needs_longer` asks for. A later download continues behind them. `None` if that
/// is too many, if the server has no ranges, and if a part of the file cannot be kept. The repository is locked.
pub(crate) fn download_head(
    transport: &Transport,
    remote: &RemoteFile,
    folder: &RepositoryFolder,
    needs_longer: &mut NeedsLongerHead<'_>,
) -> Result<Option<Vec<u8>>> {
    let target = folder.blob(&remote.content.blob_name())?;
    match remote.content {
        RemoteContent::Tag(None) => return Ok(None),
        // A file that is in the cache as a part of another model.
        RemoteContent::Digest(_) if target.exists() => {
            let failed = |error: std::io::Error| Error::io(target.display().to_string(), &error);
            return grow(remote.bytes, needs_longer, &mut |wanted| {
                let mut head = Vec::new();
                let file = File::open(&target).map_err(failed)?;
                file.take(wanted).read_to_end(&mut head).map_err(failed)?;
                Ok(head)
            });
        }
        _ => {}
    }
    let Ok(journal) = Journal::open(&target, &remote.identity(), remote.bytes) else { return Ok(None) };
    let transfer = Transfer::new(transport, remote, &journal).of_ranges_only();
    let head = grow(remote.bytes, needs_longer, &mut |wanted| {
        let missing = journal.arrived().missing(wanted, PIECE);
        missing.into_iter().try_for_each(|range| transfer.fetch(range))?;
        let mut head = vec![0; wanted as usize];
        journal.read(0, &mut head).map(|()| head)
    });
    match head {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
        head => head,
    }
}

/// Gets twice as many first bytes of a file until they are enough; `None` if that is too many.
fn grow(
    bytes: u64,
    needs_longer: &mut NeedsLongerHead<'_>,
    get: &mut dyn FnMut(u64) -> Result<Vec<u8>>,
) -> Result<Option<Vec<u8>>> {
    let most = bytes.min(MAX);
    let mut wanted = FIRST.min(most);
    loop {
        let head = get(wanted)?;
        match needs_longer(&head) {
            false => return Ok(Some(head)),
            true if wanted == most => return Ok(None),
            true => wanted = wanted.saturating_mul(2).min(most),
        }
    }
}
