//! Every environment variable that xtask reads.

/// The cargo that runs this program.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Where cargo puts what it builds, if the caller says so.
pub(crate) fn target_folder() -> Option<String> {
    std::env::var("CARGO_TARGET_DIR").ok().filter(|path| !path.is_empty())
}

/// `SISKIN_PEERS_PYTHON`: a Python that has llama-cpp-python already.
pub(crate) fn peers_python() -> Option<String> {
    std::env::var("SISKIN_PEERS_PYTHON").ok().filter(|path| !path.is_empty())
}

/// `SISKIN_PEERS_AVX2_PYTHON`: a Python whose llama-cpp-python was built for AVX2 alone.
pub(crate) fn peers_avx2_python() -> Option<String> {
    std::env::var("SISKIN_PEERS_AVX2_PYTHON").ok().filter(|path| !path.is_empty())
}

/// `ANDROID_NDK_HOME`: the folder of Android's compiler.
pub(crate) fn android_ndk() -> Option<String> {
    std::env::var("ANDROID_NDK_HOME").ok().filter(|path| !path.is_empty())
}

/// `ANDROID_HOME`: the folder of Android's tools, which may have compilers in `ndk/`.
pub(crate) fn android_sdk() -> Option<String> {
    std::env::var("ANDROID_HOME").ok().filter(|path| !path.is_empty())
}

/// `CUDA_HOME`: the folder of CUDA's compiler, where it is not on the path.
pub(crate) fn cuda_home() -> Option<String> {
    std::env::var("CUDA_HOME").ok().filter(|path| !path.is_empty())
}
