//! The environment variables that this program reads.

use std::path::PathBuf;

/// Returns true if colors are unwanted: `NO_COLOR` is set and not empty (<https://no-color.org>), or `TERM` is `dumb`.
pub(crate) fn no_color() -> bool {
    let is_set = |name: &str, value: &dyn Fn(&std::ffi::OsStr) -> bool| {
        std::env::var_os(name).is_some_and(|found| value(&found))
    };
    is_set("NO_COLOR", &|value| !value.is_empty()) || is_set("TERM", &|value| value == "dumb")
}

/// Returns the user's folder for the state of programs, such as histories: `siskin` in `XDG_STATE_HOME`, in
/// `HOME/.local/state`, or in `LOCALAPPDATA` on Windows, whichever is set first. `None` if no variable is set.
pub(crate) fn user_state() -> Option<PathBuf> {
    // The XDG Base Directory Specification requires that relative paths are ignored.
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = folder("XDG_STATE_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".local/state")))
        .or_else(|| folder("LOCALAPPDATA"));
    base.map(|base| base.join("siskin"))
}
