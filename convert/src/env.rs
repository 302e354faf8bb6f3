//! The environment variables that this crate reads.

use std::path::PathBuf;

/// Returns the user's cache folder for models: `siskin` in `XDG_CACHE_HOME`, in `HOME/.cache`, or in `LOCALAPPDATA` on
/// Windows, whichever is set first. Returns `None` if no variable is set.
pub(crate) fn user_cache() -> Option<PathBuf> {
    // The XDG Base Directory Specification requires that relative paths are ignored.
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = folder("XDG_CACHE_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".cache")))
        .or_else(|| folder("LOCALAPPDATA"));
    base.map(|base| base.join("siskin"))
}
