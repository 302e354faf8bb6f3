//! Checks that paths exist: those in inline code of documents, of scripts that project commands run, and those in the
//! tables of the rules.

use super::{Tree, crates, dependencies, forbidden_calls, imports, language};

/// Starts of paths that documents name and that a build or the user creates.
const CREATED: [&str; 2] = ["target/", "android/sample/app/src/main/assets"];
/// Extensions of sources. A file with one of them is ours, even if a document names only the end of its path.
const SOURCES: [&str; 6] = ["rs", "cu", "cuh", "kt", "java", "swift"];

/// Returns paths in inline code of Markdown files that do not exist.
///
/// A path starts with a folder of the workspace root, or has the extension of a source file, in which case the end of
/// a path is enough. `*` and `<name>` stand for any characters except slashes.
pub fn named_paths_exist(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (number, line) in file.lines_outside_code() {
            for name in line.split('`').skip(1).step_by(2) {
                if !exists(tree, name) {
                    breaches.push(format!("{}:{number}: `{name}` does not exist", file.path));
                }
            }
        }
    }
    breaches
}

/// Returns the paths of Python scripts in string literals of `xtask` that do not exist.
pub fn script_paths_exist(tree: &Tree) -> Vec<String> {
    const SCRIPTS: &str = "\"xtask/python/";
    let mut breaches = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.starts_with("xtask/src/")) {
        for (index, line) in file.text.lines().enumerate() {
            for (at, _) in line.match_indices(SCRIPTS) {
                let path = line[at + 1..].split('"').next().unwrap_or_default();
                if !tree.paths.iter().any(|known| known == path) {
                    breaches.push(format!("{}:{}: `{path}` does not exist", file.path, index + 1));
                }
            }
        }
    }
    breaches
}

/// Returns paths in the tables of the rules that do not exist: a stale row restricts or allows nothing.
pub fn table_paths_exist(tree: &Tree) -> Vec<String> {
    let tables = [
        ("forbidden_calls.rs", forbidden_calls::places()),
        ("crates.rs", crates::folders()),
        ("dependencies.rs", dependencies::folders()),
        ("imports.rs", imports::folders()),
        ("language.rs", language::exempt_paths()),
    ];
    let mut breaches = Vec::new();
    for (table, paths) in tables {
        for path in paths {
            let path = path.trim_end_matches('/');
            let found = match path.contains('/') {
                // A module is a file or a folder.
                true => tree
                    .paths
                    .iter()
                    .any(|known| known.strip_suffix(".rs").unwrap_or(known) == path || known == path),
                false => tree.paths.iter().any(|known| known.rsplit('/').next() == Some(path)),
            };
            if !found {
                breaches.push(format!("tests/src/arch_rules/{table}:1: `{path}` does not exist"));
            }
        }
    }
    breaches
}

/// Returns true if `name` is an existing path, or is not the path of a file or folder of ours.
fn exists(tree: &Tree, name: &str) -> bool {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_.@<>*/-".contains(c);
    if name.is_empty() || !name.chars().all(is_path) || CREATED.iter().any(|start| name.starts_with(start)) {
        return true;
    }
    let name = name.trim_end_matches('/');
    let (head, last) =
        (name.split('/').next().unwrap_or_default(), name.rsplit('/').next().unwrap_or_default());
    let extension =
        last.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, extension)| extension);
    if name.contains('/') && tree.paths.iter().any(|path| path == head) {
        return tree.paths.iter().any(|path| matches(path, name));
    }
    if !extension.is_some_and(|extension| SOURCES.contains(&extension)) {
        return true;
    }
    let depth = name.split('/').count();
    tree.paths.iter().any(|path| {
        let skipped = path.split('/').count().saturating_sub(depth);
        matches(&path.split('/').skip(skipped).collect::<Vec<_>>().join("/"), name)
    })
}

/// Returns true if `path` matches `pattern`, component by component.
fn matches(path: &str, pattern: &str) -> bool {
    path.split('/').count() == pattern.split('/').count()
        && path.split('/').zip(pattern.split('/')).all(|(part, pattern)| part_matches(part, pattern))
}

/// Returns true if one component matches a pattern with at most one `*` or `<name>`.
fn part_matches(part: &str, pattern: &str) -> bool {
    let (start, end) = match (pattern.split_once('*'), pattern.split_once('<')) {
        (Some((start, end)), _) => (start, end),
        (None, Some((start, rest))) => (start, rest.split_once('>').map_or("", |(_, end)| end)),
        (None, None) => return part == pattern,
    };
    part.len() >= start.len() + end.len() && part.starts_with(start) && part.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_paths_are_found() {
        let tree = |page: &str| {
            let mut tree = Tree::from_files(&[
                ("docs/a.md", page),
                ("runtime/src/exec/cpu/mod.rs", ""),
                ("cli/src/main.rs", ""),
            ]);
            tree.paths.extend(["runtime", "cli", "runtime/src", "runtime/src/exec"].map(str::to_owned));
            tree
        };
        let rows = [
            ("`runtime/src/exec/` and `exec/cpu/mod.rs` and `main.rs`", 0),
            ("`runtime/src/gone/`", 1),
            ("`exec/gpu/mod.rs`", 1),
            ("`gone.rs`", 1),
            ("`cli/src/<name>.rs` and `cli/*/main.rs`", 0),
            ("`cli/src/<name>.py`", 1),
            ("`model.siskin`, `a/b`, `--flag`, `cargo test -p x`, `.rs`", 0),
            ("```\n`gone.rs`\n```", 0),
        ];
        for (page, count) in rows {
            assert_eq!(named_paths_exist(&tree(page)).len(), count, "{page}");
        }
    }

    #[test]
    fn missing_scripts_are_found() {
        let code = "run(python, \"xtask/python/a.py\"); run(python, \"xtask/python/b.py\");";
        let tree = Tree::from_files(&[("xtask/src/commands/a.rs", code), ("xtask/python/a.py", "")]);
        assert_eq!(
            script_paths_exist(&tree),
            ["xtask/src/commands/a.rs:1: `xtask/python/b.py` does not exist"]
        );
    }

    #[test]
    fn stale_rows_of_tables_are_found() {
        let found = table_paths_exist(&Tree::from_files(&[("cli/src/main.rs", "")]));
        assert!(found.iter().any(|line| line.contains("`runtime/backend/src/thread_pool`")), "{found:?}");
    }
}
