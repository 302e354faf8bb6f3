//! The diagram and the table of crates in `ARCHITECTURE.md`, drawn from the manifests.

use super::crates::is_ours;
use super::{Manifest, Tree, manifests};
use std::collections::{BTreeMap, BTreeSet};

/// The document that has the diagram.
pub const DIAGRAM_PATH: &str = "ARCHITECTURE.md";

/// What encloses the drawn part.
const START: &str = "<!-- crates: drawn by `cargo xtask diagram --bless` -->";
const END: &str = "<!-- end of crates -->";

/// Returns the document with the diagram and the table of the crates of `tree`.
///
/// # Errors
/// If the document does not have the marks, or a crate has no description.
pub fn document_with_diagram(tree: &Tree) -> Result<String, String> {
    let text = tree.file(DIAGRAM_PATH).map_or("", |file| &file.text);
    let parts = text.split_once(START).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        parts.ok_or_else(|| format!("{DIAGRAM_PATH}: `{START}` and `{END}` are missing"))?;
    Ok(format!("{before}{START}\n\n{}\n{}\n{END}{after}", diagram(tree), table(tree)?))
}

/// Returns the dependencies between our crates, without those of tests.
fn dependencies(tree: &Tree) -> BTreeMap<String, BTreeSet<String>> {
    let ours = |manifest: &Manifest| {
        let used =
            manifest.dependencies.iter().filter(|dependency| !dependency.dev && is_ours(&dependency.name));
        used.map(|dependency| dependency.name.clone()).collect()
    };
    manifests(tree).iter().map(|manifest| (manifest.name.clone(), ours(manifest))).collect()
}

/// Returns every crate that `from` depends on, directly or not.
fn reachable(graph: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let (mut seen, mut stack) = (BTreeSet::new(), vec![from]);
    while let Some(at) = stack.pop() {
        for next in graph.get(at).into_iter().flatten() {
            if seen.insert(next.clone()) {
                stack.push(next);
            }
        }
    }
    seen
}

/// Draws the dependencies; one that follows from others is left out.
fn diagram(tree: &Tree) -> String {
    let graph = dependencies(tree);
    let mut lines = vec!["```mermaid".to_owned(), "graph TD".to_owned()];
    for (name, uses) in &graph {
        for used in uses {
            let follows = |other: &String| other != used && reachable(&graph, other).contains(used);
            if !uses.iter().any(follows) {
                lines.push(format!("    {name} --> {used}"));
            }
        }
    }
    lines.push("```\n".to_owned());
    lines.join("\n")
}

/// Returns the rows of the table, crates below before those that use them, and those for development last.
fn table(tree: &Tree) -> Result<String, String> {
    let graph = dependencies(tree);
    let mut rows = Vec::new();
    for manifest in manifests(tree) {
        let (path, name) = (&manifest.path, &manifest.name);
        let text = tree.file(path).map_or("", |file| &file.text);
        let line = text.lines().find_map(|line| line.strip_prefix("description = "));
        let about =
            line.ok_or_else(|| format!("{path}:1: the package has no description"))?.trim_matches('"');
        let row = format!("| `{}/` | `{name}` | {about} |", manifest.folder());
        let is_internal = text.lines().any(|line| line == "publish = false");
        rows.push((is_internal, reachable(&graph, name).len(), name.clone(), row));
    }
    rows.sort();
    let rows: Vec<String> = rows.into_iter().map(|(.., row)| row).collect();
    Ok(format!("| folder | package | purpose |\n|---|---|---|\n{}\n", rows.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(document: &str) -> Tree {
        Tree::from_files(&[
            (DIAGRAM_PATH, document),
            ("a/Cargo.toml", "[package]\nname = \"siskin-a\"\ndescription = \"Low\"\n"),
            (
                "b/Cargo.toml",
                "[package]\nname = \"siskin-b\"\ndescription = \"Middle\"\n[dependencies]\nsiskin-a.workspace = true\n",
            ),
            (
                "c/Cargo.toml",
                "[package]\nname = \"siskin-c\"\ndescription = \"High\"\n[dependencies]\nserde = \"1\"\nsiskin-a = {}\nsiskin-b = {}\n\
                 [dev-dependencies]\nsiskin-d = {}\n",
            ),
        ])
    }

    #[test]
    fn arrows_that_follow_from_others_are_left_out() {
        let document =
            document_with_diagram(&tree(&format!("A\n{START}\nstale\n{END}\nB\n"))).unwrap_or_default();
        assert!(document.starts_with("A\n") && document.ends_with("\nB\n") && !document.contains("stale"));
        assert!(
            document.contains("graph TD\n    siskin-b --> siskin-a\n    siskin-c --> siskin-b\n```"),
            "{document}"
        );
        assert!(
            document.contains("| `a/` | `siskin-a` | Low |\n| `b/` | `siskin-b` | Middle |\n"),
            "{document}"
        );
        assert_eq!(document_with_diagram(&tree(&document)), Ok(document));
    }

    #[test]
    fn missing_marks_are_an_error() {
        assert!(document_with_diagram(&tree("A")).is_err());
    }
}
