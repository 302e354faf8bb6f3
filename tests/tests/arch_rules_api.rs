//! The public items of each library are the committed ones, and the facade exports only items that it names.

use siskin_tests::{arch_rules, paths};

#[test]
fn public_items_are_the_committed_ones() {
    let tree = arch_rules::Tree::read(&paths::root());
    let apis = arch_rules::library_apis(&tree);
    assert!(apis.len() >= 3, "the library crates are not found");
    let mut breaches = Vec::new();
    for (package, items) in &apis {
        let path = arch_rules::snapshot_path(package);
        let committed: Vec<_> = tree.file(&path).map_or(Vec::new(), |file| file.text.lines().collect());
        let lost =
            committed.iter().filter(|line| !line.is_empty() && !items.iter().any(|item| item == *line));
        breaches.extend(lost.map(|line| format!("{path}:1: gone: {line}")));
        let new = items.iter().filter(|item| !committed.contains(&item.as_str()));
        breaches.extend(new.map(|item| format!("{path}:1: new: {item}")));
    }
    for path in tree.paths.iter().filter(|path| path.starts_with("tests/arch_rules/api-")) {
        if !apis.iter().any(|(package, _)| arch_rules::snapshot_path(package) == *path) {
            breaches.push(format!("{path}:1: the library crate does not exist"));
        }
    }
    arch_rules::assert_clean(
        "Public items changed: if it is meant, run `cargo xtask api --bless`.",
        &breaches,
    );
}

#[test]
fn the_facade_exports_items_by_name() {
    let tree = arch_rules::Tree::read(&paths::root());
    arch_rules::assert_clean(
        "The facade re-exports single items of other crates, never a module or a crate.",
        &arch_rules::facade_exports_items(&tree),
    );
}
