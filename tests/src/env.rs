//! The environment variables that the tests read.

/// `SISKIN_FUZZ_ROUNDS`: mutations per seed in the short fuzz run. Default 200.
pub fn fuzz_rounds() -> usize {
    std::env::var("SISKIN_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

/// `SISKIN_TEST_ALL`: also run redundant cases. Default: no.
pub fn test_all() -> bool {
    std::env::var_os("SISKIN_TEST_ALL").is_some_and(|text| text == "1")
}

/// `SISKIN_TEST_DEVICE`: `cuda` runs the tests of CUDA kernels on the first GPU, `checked` on an emulator that checks every
/// access to memory. By default they run on an emulator that does so only with `SISKIN_TEST_ALL`.
pub fn test_device() -> Option<std::ffi::OsString> {
    std::env::var_os("SISKIN_TEST_DEVICE").filter(|name| !name.is_empty())
}

/// Returns the cargo that runs the tests.
pub fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// `SISKIN_GRADIENTS`: the folder of gradients that are sampled as reference. Default: none.
pub fn gradients() -> Option<std::path::PathBuf> {
    std::env::var_os("SISKIN_GRADIENTS").map(Into::into)
}
