//! Links and paths in the documentation exist.

use siskin_tests::{house, paths};

#[test]
fn links_lead_somewhere() {
    let tree = house::Tree::read(&paths::root());
    house::assert_clean("Links in Markdown lead to files.", &house::links_exist(&tree));
}

#[test]
fn named_pages_exist() {
    let tree = house::Tree::read(&paths::root());
    house::assert_clean("Pages that text names exist.", &house::adding_guides_exist(&tree));
}

#[test]
fn phrases_are_those_of_the_field() {
    let tree = house::Tree::read(&paths::root());
    house::assert_clean("Text uses the terms of the field.", &house::phrases_absent(&tree));
}
