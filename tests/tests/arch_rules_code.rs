//! Unsafe code, threads, environment variables, printing and file sizes follow the rules.

use siskin_tests::{arch_rules, paths};

#[test]
fn unsafe_code_is_listed_and_explained() {
    let tree = arch_rules::Tree::read(&paths::root());
    arch_rules::assert_clean(
        "Unsafe code is listed and says why it is sound.",
        &arch_rules::unsafe_listed(&tree),
    );
}

#[test]
fn calls_have_their_place() {
    let tree = arch_rules::Tree::read(&paths::root());
    arch_rules::assert_clean("Some calls have one place.", &arch_rules::calls_in_their_place(&tree));
}

#[test]
fn files_are_short() {
    let tree = arch_rules::Tree::read(&paths::root());
    assert!(tree.rust().count() > 20, "the sources are not read");
    arch_rules::assert_clean("Files stay short.", &arch_rules::files_short(&tree));
}

#[test]
fn the_context_is_a_facade() {
    let tree = arch_rules::Tree::read(&paths::root());
    arch_rules::assert_clean("`Context` is short.", &arch_rules::context_small(&tree));
}

#[test]
fn functions_are_short_and_flat() {
    let tree = arch_rules::Tree::read(&paths::root());
    arch_rules::assert_clean("Functions stay short.", &arch_rules::functions_short(&tree));
    arch_rules::assert_clean("Functions stay flat.", &arch_rules::functions_flat(&tree));
}

/// Cargo does not discover test files if a manifest lists test targets.
#[test]
fn every_file_of_tests_is_in_a_program() {
    let tree = arch_rules::Tree::read(&paths::root());
    let mut lost = Vec::new();
    for folder in ["tests", "convert", "cli"] {
        let manifest = tree.file(&format!("{folder}/Cargo.toml")).map_or("", |file| &file.text);
        let prefix = format!("{folder}/tests/");
        let name = |path: &str| path.strip_prefix(&prefix)?.strip_suffix(".rs").map(str::to_owned);
        let own: Vec<_> = tree
            .rust()
            .filter_map(|file| Some((name(&file.path)?, file)))
            .filter(|(name, _)| !name.contains('/'))
            .collect();
        assert!(own.len() > 5, "the tests of {folder} are not read");
        for (name, file) in &own {
            let is_program = manifest.contains(&format!("path = \"tests/{name}.rs\""));
            let is_module = own.iter().any(|(_, root)| root.text.contains(&format!("\nmod {name};\n")));
            if !is_program && !is_module {
                lost.push(format!("{}:1: in no program of {folder}/Cargo.toml", file.path));
            }
        }
    }
    arch_rules::assert_clean("Every file of tests is run.", &lost);
}

#[test]
fn types_have_names_of_their_own() {
    let tree = arch_rules::Tree::read(&paths::root());
    arch_rules::assert_clean(
        "No two types that are visible outside their module share a name.",
        &arch_rules::type_names_unique(&tree),
    );
}
