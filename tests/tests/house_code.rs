//! Unsafe code, threads, environment variables, printing and file sizes keep to their places.

use siskin_tests::{house, paths};

#[test]
fn unsafe_code_is_listed_and_explained() {
    let tree = house::Tree::read(&paths::root());
    house::assert_clean("Unsafe code is listed and says why it is sound.", &house::unsafe_listed(&tree));
}

#[test]
fn calls_have_their_place() {
    let tree = house::Tree::read(&paths::root());
    house::assert_clean("Some calls have one place.", &house::calls_in_their_place(&tree));
}

#[test]
fn files_are_short() {
    let tree = house::Tree::read(&paths::root());
    assert!(tree.rust().count() > 20, "the sources are not read");
    house::assert_clean("Files stay short.", &house::files_short(&tree));
}
