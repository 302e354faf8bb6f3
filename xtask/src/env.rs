//! The environment variables that xtask reads.

use std::env::JoinPathsError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Returns the cargo that runs this program.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Returns cargo's target folder, if it is set.
pub(crate) fn target_folder() -> Option<String> {
    std::env::var("CARGO_TARGET_DIR").ok().filter(|path| !path.is_empty())
}

/// Returns the folder of cargo's registry.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home)
}

/// Returns the search path of programs with `folder` first.
pub(crate) fn path_with(folder: &Path) -> Result<OsString, JoinPathsError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path)))
}

/// `SISKIN_PEERS_PYTHON`: a Python that has llama-cpp-python installed.
pub(crate) fn peers_python() -> Option<String> {
    std::env::var("SISKIN_PEERS_PYTHON").ok().filter(|path| !path.is_empty())
}

/// `SISKIN_PEERS_AVX2_PYTHON`: a Python whose llama-cpp-python was built for AVX2 only.
pub(crate) fn peers_avx2_python() -> Option<String> {
    std::env::var("SISKIN_PEERS_AVX2_PYTHON").ok().filter(|path| !path.is_empty())
}

/// `ANDROID_NDK_HOME`: the folder of the Android NDK.
pub(crate) fn android_ndk() -> Option<String> {
    std::env::var("ANDROID_NDK_HOME").ok().filter(|path| !path.is_empty())
}

/// `ANDROID_HOME`: the folder of the Android SDK, which may have NDKs in `ndk/`.
pub(crate) fn android_sdk() -> Option<String> {
    std::env::var("ANDROID_HOME").ok().filter(|path| !path.is_empty())
}

/// `CUDA_HOME`: the folder of the CUDA toolkit, if nvcc is not on the path.
pub(crate) fn cuda_home() -> Option<String> {
    std::env::var("CUDA_HOME").ok().filter(|path| !path.is_empty())
}
