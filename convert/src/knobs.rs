//! Every environment variable that this crate reads.

use std::path::PathBuf;

/// The user's cache folder for models: `siskin` in `XDG_CACHE_HOME`, in `HOME/.cache`, or in Windows' `LOCALAPPDATA`,
/// whichever is set first. `None` where none is.
pub(crate) fn user_cache() -> Option<PathBuf> {
    // The XDG Base Directory Specification says to ignore relative paths.
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = folder("XDG_CACHE_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".cache")))
        .or_else(|| folder("LOCALAPPDATA"));
    base.map(|base| base.join("siskin"))
}
