//! `bench-kernels`: every kernel compared to the machine's peak.

use crate::Subcommand;
use crate::shell::{self, Result, program, run};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "bench-kernels",
    usage: "[FILTER]",
    about: "measure the kernels, or those whose name or type contains FILTER, and the machine's peak throughput",
    run: bench_kernels,
};

fn bench_kernels(arguments: &[String]) -> Result {
    let measuring = shell::measuring("bench_kernels")?;
    run(program(measuring, &[]).args(arguments))
}
