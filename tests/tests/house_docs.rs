//! Links and paths in the documentation exist, and commits have suitable subjects.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its inputs fails")]

use siskin_tests::{house, paths};
use std::process::Command;

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

#[test]
fn named_paths_exist() {
    let tree = house::Tree::read(&paths::root());
    house::assert_clean("Paths in documents exist.", &house::named_paths_exist(&tree));
}

#[test]
fn paths_in_tables_of_rules_exist() {
    let tree = house::Tree::read(&paths::root());
    house::assert_clean("Paths in the tables of rules exist.", &house::table_paths_exist(&tree));
}

/// Skipped without the repository's history, as in a release archive or a shallow clone.
#[test]
fn subjects_of_commits_are_short() {
    let tree = house::Tree::read(&paths::root());
    let base = tree.list("tests/house/commits.txt").pop().unwrap();
    let git = |arguments: &[&str]| Command::new("git").args(arguments).current_dir(paths::root()).output();
    match git(&["cat-file", "-e", &format!("{base}^{{commit}}")]) {
        Err(error) => return println!("skipped: git does not run: {error}"),
        Ok(output) if !output.status.success() => {
            let reason = String::from_utf8_lossy(&output.stderr).into_owned();
            return println!("skipped: no commit {base} here: {}", reason.trim());
        }
        Ok(_) => {}
    }
    let log = git(&["log", "--no-merges", "--format=%h %s", &format!("{base}..HEAD")]).unwrap();
    assert!(log.status.success(), "{}", String::from_utf8_lossy(&log.stderr));
    house::assert_clean(
        "Subjects of commits are short.",
        &house::subjects_fit(&String::from_utf8_lossy(&log.stdout)),
    );
}
