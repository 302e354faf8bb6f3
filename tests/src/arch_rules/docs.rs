//! Checks that links and paths in the documentation exist.

use super::Tree;

/// Returns broken relative links in Markdown files.
pub fn links_exist(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (number, line) in file.lines_outside_code() {
            for target in link_targets(line) {
                let path = resolve(&file.path, target.split('#').next().unwrap_or_default());
                if !path.is_empty() && !exists(tree, &path) {
                    breaches.push(format!("{}:{number}: no `{path}` for the link `{target}`", file.path));
                }
            }
        }
    }
    breaches
}

/// Returns paths of pages under `docs/` that are mentioned but do not exist.
pub fn adding_guides_exist(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for file in tree.files.iter().filter(|file| !file.path.starts_with("tests/src/arch_rules/")) {
        for (index, line) in file.text.lines().enumerate() {
            for (at, _) in line.match_indices("docs/") {
                let part_of_longer = line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '/');
                let end = line[at..]
                    .find(|c: char| !(c.is_alphanumeric() || "/-_.".contains(c)))
                    .map_or(line.len(), |offset| at + offset);
                let path = line[at..end].trim_end_matches('.');
                if !part_of_longer && path.ends_with(".md") && !exists(tree, path) {
                    breaches.push(format!("{}:{}: names `{path}`, which is not there", file.path, index + 1));
                }
            }
        }
    }
    breaches
}

/// Returns the targets of the links in a line, except URLs.
fn link_targets(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    for (at, _) in line.match_indices("](") {
        let Some(end) = line[at..].find(')') else { continue };
        // Links in inline code are examples.
        if line[..at].matches('`').count() % 2 == 1 {
            continue;
        }
        let target = line[at + 2..at + end].split(' ').next().unwrap_or_default();
        if !target.contains("://") && !target.starts_with("mailto:") {
            targets.push(target);
        }
    }
    targets
}

fn exists(tree: &Tree, path: &str) -> bool {
    tree.paths.iter().any(|known| known == path)
}

/// Resolves `target`, relative to the file `from`, to a path from the root; returns an empty path for the file itself.
fn resolve(from: &str, target: &str) -> String {
    if target.is_empty() {
        return String::new();
    }
    let mut parts: Vec<&str> = match target.starts_with('/') {
        true => Vec::new(),
        false => from.split('/').collect(),
    };
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found() {
        let page =
            "[a](b.md) [b](../README.md#top) [c](missing.md)\n`[d](no.md)` [e](https://x.y/z)\n[f](#here)";
        let found =
            links_exist(&Tree::from_files(&[("docs/a.md", page), ("docs/b.md", ""), ("README.md", "")]));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("docs/missing.md"), "{found:?}");
    }

    #[test]
    fn named_pages_exist() {
        let page = "//! See docs/adding-a-model.md and docs/adding-a-quant.md.";
        let found =
            adding_guides_exist(&Tree::from_files(&[("a/src/lib.rs", page), ("docs/adding-a-model.md", "")]));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("docs/adding-a-quant.md"), "{found:?}");
    }
}
