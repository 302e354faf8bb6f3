//! The compared programs; each function makes one call.

use crate::shell::{self, Result, output, program};
use std::path::Path;

/// Returns the output of `siskin bench` for a model.
pub(super) fn siskin(file: &Path, work: &[&str], threads: usize) -> Result<String> {
    let mut command = program(shell::release("siskin"), &["bench"]);
    output(command.arg(file).args(work).args(["--threads", &threads.to_string(), "--json"]))
}

/// Returns the output of llama.cpp for the same work.
pub(super) fn llama(python: &Path, file: &Path, work: &[&str], threads: usize) -> Result<String> {
    let mut command = program(python, &["xtask/python/bench_llama.py"]);
    output(command.arg(file).args(work).args(["--threads", &threads.to_string()]))
}
