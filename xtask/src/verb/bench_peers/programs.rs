//! The programs that are compared, each called once.

use crate::shell::{self, Result, output, program};
use std::path::Path;

/// What `siskin bench` prints of a model.
pub(super) fn siskin(file: &Path, work: &[&str], threads: usize) -> Result<String> {
    let mut command = program(shell::release("siskin"), &["bench"]);
    output(command.arg(file).args(work).args(["--threads", &threads.to_string(), "--json"]))
}

/// What llama.cpp prints of the same work.
pub(super) fn llama(python: &Path, file: &Path, work: &[&str], threads: usize) -> Result<String> {
    let mut command = program(python, &["xtask/python/bench_llama.py"]);
    output(command.arg(file).args(work).args(["--threads", &threads.to_string()]))
}
