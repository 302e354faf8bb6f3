//! Links and paths in the documentation exist, and commits have suitable subjects.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its inputs fails")]

use siskin_tests::{arch_rules, paths};
use std::process::Command;

#[test]
fn links_lead_somewhere() {
    let tree = arch_rules::Tree::read(&paths::root());
    arch_rules::assert_clean("Links in Markdown lead to files.", &arch_rules::links_exist(&tree));
}

#[test]
fn named_pages_exist() {
    let tree = arch_rules::Tree::read(&paths::root());
    arch_rules::assert_clean("Pages that text names exist.", &arch_rules::adding_guides_exist(&tree));
}

#[test]
fn phrases_are_those_of_the_field() {
    let tree = arch_rules::Tree::read(&paths::root());
    arch_rules::assert_clean("Text uses the terms of the field.", &arch_rules::phrases_absent(&tree));
}

#[test]
fn named_paths_exist() {
    let tree = arch_rules::Tree::read(&paths::root());
    arch_rules::assert_clean("Paths in documents exist.", &arch_rules::named_paths_exist(&tree));
    arch_rules::assert_clean("Scripts exist.", &arch_rules::script_paths_exist(&tree));
}

#[test]
fn paths_in_tables_of_rules_exist() {
    let tree = arch_rules::Tree::read(&paths::root());
    arch_rules::assert_clean("Paths in the tables of rules exist.", &arch_rules::table_paths_exist(&tree));
}

/// Skipped without the repository's history, as in a release archive or a shallow clone.
#[test]
fn subjects_of_commits_are_short() {
    let tree = arch_rules::Tree::read(&paths::root());
    let base = tree.list("tests/arch_rules/commits.txt").pop().unwrap();
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
    arch_rules::assert_clean(
        "Subjects of commits are short.",
        &arch_rules::subjects_fit(&String::from_utf8_lossy(&log.stdout)),
    );
}
