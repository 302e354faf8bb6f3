//! `bench-kernels`: every kernel beside what the machine can do.

use crate::Verb;
use crate::shell::{Result, WITHOUT_TRACT, cargo, run};

pub(crate) const VERB: Verb = Verb {
    name: "bench-kernels",
    usage: "[FILTER]",
    about: "measure the kernels, or those whose name or type holds FILTER, and the machine's ceilings",
    run: bench_kernels,
};

fn bench_kernels(arguments: &[String]) -> Result {
    let package = [
        "run",
        "--release",
        "--locked",
        WITHOUT_TRACT,
        "--package",
        "siskin-tests",
        "--bin",
        "bench_kernels",
        "--",
    ];
    run(cargo(&package).args(arguments))
}
