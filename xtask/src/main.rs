//! Every chore of the project: `cargo xtask <verb>`.
fn main() {}
