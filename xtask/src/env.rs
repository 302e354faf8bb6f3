//! The environment variables that xtask reads.

/// Returns the cargo that runs this program.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Returns cargo's target folder, if it is set.
pub(crate) fn target_folder() -> Option<String> {
    std::env::var("CARGO_TARGET_DIR").ok().filter(|path| !path.is_empty())
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
