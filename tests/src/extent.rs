//! Selects the cases of a test: all, or a representative subset.

use crate::env;

/// Returns the cases to run: all if `SISKIN_TEST_ALL` is set, otherwise those that `stands` selects. Prints the number
/// of omitted cases in the form that `cargo xtask test` counts.
pub fn cases<T>(what: &str, all: impl IntoIterator<Item = T>, mut stands: impl FnMut(&T) -> bool) -> Vec<T> {
    let all: Vec<T> = all.into_iter().collect();
    if env::test_all() {
        return all;
    }
    let count = all.len();
    let chosen: Vec<T> = all.into_iter().filter(|case| stands(case)).collect();
    if chosen.len() < count {
        println!("left out: {} of {count} {what}; `cargo xtask test --all` runs them", count - chosen.len());
    }
    chosen
}
