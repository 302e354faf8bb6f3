//! Every environment variable that the CUDA driver reads.

/// `SISKIN_CUDA_KERNELS`: the folder of kernels that `cargo xtask cuda` compiled. By default they are compiled at run
/// time.
pub(crate) fn cuda_kernels() -> Option<std::path::PathBuf> {
    std::env::var_os("SISKIN_CUDA_KERNELS").filter(|path| !path.is_empty()).map(Into::into)
}
