//! Which of a test's cases run: all, or those that stand for the others.

use crate::knobs;

/// The cases that run: all where `SISKIN_TEST_ALL` says so, or else those that `stands` picks. How many are left out is
/// printed, in the form that `cargo xtask test` counts.
pub fn cases<T>(what: &str, all: impl IntoIterator<Item = T>, mut stands: impl FnMut(&T) -> bool) -> Vec<T> {
    let all: Vec<T> = all.into_iter().collect();
    if knobs::test_all() {
        return all;
    }
    let count = all.len();
    let chosen: Vec<T> = all.into_iter().filter(|case| stands(case)).collect();
    if chosen.len() < count {
        println!("left out: {} of {count} {what}; `cargo xtask test --all` runs them", count - chosen.len());
    }
    chosen
}
