//! The `siskin` command line.
fn main() {}
