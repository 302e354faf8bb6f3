//! Crate dependencies, third-party dependencies, licenses and sources follow the rules.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its inputs fails")]

use siskin_tests::{arch_rules, env, paths};
use std::process::Command;

#[test]
fn crates_depend_downwards() {
    let tree = arch_rules::Tree::read(&paths::root());
    assert!(arch_rules::manifests(&tree).len() >= 6, "the manifests are not read");
    arch_rules::assert_clean("Arrows between crates point down.", &arch_rules::crate_directions(&tree));
}

#[test]
fn modules_import_downwards() {
    let tree = arch_rules::Tree::read(&paths::root());
    arch_rules::assert_clean("Imports inside a crate point down.", &arch_rules::module_directions(&tree));
}

#[test]
fn modules_do_not_import_each_other_in_cycles() {
    let tree = arch_rules::Tree::read(&paths::root());
    arch_rules::assert_clean("Imports have no cycles.", &arch_rules::import_cycles(&tree));
}

#[test]
fn the_diagram_of_crates_is_up_to_date() {
    let tree = arch_rules::Tree::read(&paths::root());
    let document = arch_rules::document_with_diagram(&tree).unwrap();
    let committed = tree.file(arch_rules::DIAGRAM_PATH).map_or("", |file| &file.text);
    let stale = committed.lines().zip(document.lines()).position(|(old, new)| old != new);
    let stale = stale.or_else(|| (committed != document).then(|| committed.lines().count()));
    let breaches: Vec<_> = stale
        .map(|line| format!("{}:{}: differs from the manifests", arch_rules::DIAGRAM_PATH, line + 1))
        .into_iter()
        .collect();
    arch_rules::assert_clean("The crates changed: run `cargo xtask diagram --bless`.", &breaches);
}

#[test]
fn dependencies_stay_in_their_rooms() {
    let tree = arch_rules::Tree::read(&paths::root());
    arch_rules::assert_clean(
        "A manifest names only dependencies with a room.",
        &arch_rules::declared_where_allowed(&tree),
    );
    arch_rules::assert_clean(
        "Code uses a dependency only in its room.",
        &arch_rules::used_where_allowed(&tree),
    );
}

/// Returns the whole dependency tree, from the local registry if it is complete.
fn metadata() -> serde_json::Value {
    let ask = |extra: &[&str]| {
        Command::new(env::cargo())
            .args(["metadata", "--format-version", "1", "--locked"])
            .args(extra)
            .current_dir(paths::root())
            .output()
            .unwrap()
    };
    let mut answer = ask(&["--offline"]);
    if !answer.status.success() {
        answer = ask(&[]);
    }
    assert!(answer.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&answer.stderr));
    serde_json::from_slice(&answer.stdout).unwrap()
}

#[test]
fn licenses_and_sources_are_allowed() {
    let metadata = metadata();
    assert!(metadata["packages"].as_array().unwrap().len() > 10, "the packages are not listed");
    arch_rules::assert_clean(
        "Packages are free to use and from crates.io.",
        &arch_rules::packages_allowed(&metadata),
    );
}

#[test]
fn deny_toml_allows_the_same_licenses() {
    let text = std::fs::read_to_string(paths::root().join("deny.toml")).unwrap();
    let list = text.split("allow = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
    let licenses: Vec<_> = list.split('"').skip(1).step_by(2).collect();
    assert!(licenses.len() >= 8);
    for license in licenses {
        assert!(
            arch_rules::license_allowed(license),
            "deny.toml allows {license}, the architecture tests do not"
        );
    }
}
